"""Addresses as properties: under which prefix a page is found, and what is made of a query."""

from datetime import UTC, datetime
from typing import Annotated

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET, Meta, Struct, UnsetType
from starlette.datastructures import QueryParams

from mainspring.web.login import beside, token_of
from mainspring.web.pages import ALL
from mainspring.web.pages.page import read_query
from mainspring.web.pages.render import ago, link, whole
from mainspring.web.prefix import inner
from mainspring.web.problems import Problem

KNOWN = {page.path for page in ALL} | {"api", "static", "events", "do", "login", "logout"}
words = st.from_regex(r"[a-z0-9._~-]{1,8}", fullmatch=True).filter(lambda word: word not in KNOWN)
prefixes = st.lists(words, max_size=4).map(lambda steps: "".join(f"/{step}" for step in steps))
paths = st.sampled_from([*(f"/{page.path}" for page in ALL), "/api/v1/jobs/list", "/do/jobs.retry", "/static/app.css"])


@given(outer=prefixes, mount=prefixes, path=paths)
def test_a_page_is_found_under_all_of_a_prefix_an_end_of_it_or_nothing(outer: str, mount: str, path: str) -> None:
    root = outer + mount
    for shown in (root + path, mount + path, path):
        assert inner(shown, root, KNOWN) == path


@given(root=prefixes.filter(bool))
def test_a_prefix_alone_is_told_from_a_page(root: str) -> None:
    assert inner(root, root, KNOWN) == ""
    assert inner(root, root, KNOWN - {""}) == root
    assert inner(f"{root}/", root, KNOWN) == "/"


pages = st.sampled_from([page.path for page in ALL if page.path]).map(lambda word: f"/{word}")


@given(outer=prefixes, mount=pages, path=paths)
def test_a_prefix_may_be_named_as_a_page(outer: str, mount: str, path: str) -> None:
    root = outer + mount
    for shown in (root, mount):
        assert inner(shown, root, KNOWN) == ""
        assert inner(shown + path, root, KNOWN) == path


class Query(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Every kind of field that routes have."""

    limit: Annotated[int, Meta(ge=1, le=200, description="so many")] = 50
    minutes: Annotated[int, Meta(ge=-5, le=5)] | UnsetType = UNSET
    name: Annotated[str, Meta(min_length=1, max_length=20)] | UnsetType = UNSET


names = st.sampled_from(["limit", "minutes", "name", "part", "other"]) | st.text(max_size=5)
values = st.integers().map(str) | st.text(max_size=30)


@given(st.lists(st.tuples(names, values), max_size=8))
def test_a_query_becomes_what_a_route_takes_or_is_told(said: list[tuple[str, str]]) -> None:
    query = QueryParams(said)
    if len(",".join(filter(None, query.getlist("name")))) > 20:  # numbers are never a reason
        with pytest.raises(Problem, match="name"):
            read_query(Query, query)
        return
    found = read_query(Query, query)
    assert 1 <= found.limit <= 200
    assert found.minutes is UNSET or -5 <= found.minutes <= 5
    assert msgspec.convert(msgspec.to_builtins(found), Query) == found


@given(number=st.integers())
def test_a_number_is_brought_to_the_nearest_that_is_allowed(number: int) -> None:
    assert read_query(Query, QueryParams({"limit": str(number)})).limit == min(max(number, 1), 200)


@given(st.text())
def test_after_signing_in_one_stays_beside(there: str) -> None:
    found = beside(there)
    path = found.partition("?")[0]
    assert path == "." or (path.isalpha() and path.isascii()) or (path == "" and found.startswith("?"))
    assert not set(found) & set("\\\n\r\t ")


@given(st.text(), st.text())
def test_no_cookie_is_too_odd_to_be_read(cookies: str, host: str) -> None:
    assert isinstance(token_of({"cookie": cookies, "host": host}), str)


@given(path=st.sampled_from([page.path for page in ALL]), value=st.text(min_size=1))
def test_a_link_says_what_it_was_given(path: str, value: str) -> None:
    made = link(path, name=value.encode("utf-8", "replace").decode(), gone=None, empty="")
    there, _, query = made.partition("?")
    assert there == (path or ".")
    assert dict(QueryParams(query)) == {"name": value.encode("utf-8", "replace").decode()}


@given(st.floats(min_value=0, max_value=1e8))
def test_lengths_have_one_unit_or_two(seconds: float) -> None:
    assert len(whole(seconds, shortly=True).split()) == 2
    assert len(whole(seconds).split()) in {2, 4}


@given(one=st.datetimes(), other=st.datetimes())
def test_what_is_past_is_ago_and_what_comes_is_in(one: datetime, other: datetime) -> None:
    then, now = one.replace(tzinfo=UTC), other.replace(tzinfo=UTC)
    said = ago(then, now)
    assert said == "now" or said.endswith(" ago") is (then < now)
