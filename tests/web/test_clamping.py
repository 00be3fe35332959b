"""Numbers of pages are brought within their bounds, whatever is said about a field beside them."""

from typing import Annotated

from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET, Meta, Struct, UnsetType
from starlette.datastructures import QueryParams

from mainspring.web.groups import ALL
from mainspring.web.pages.page import read_query


class Odd(Struct):
    """Bounds of every kind."""

    closed: Annotated[int, Meta(ge=1, le=200)] = 50
    open: Annotated[int, Meta(gt=0, lt=10)] | UnsetType = UNSET
    low: Annotated[int, Meta(ge=5)] | None = None
    described: Annotated[int, Meta(ge=1, le=9, description="so many")] = 1
    around: Annotated[Annotated[int, Meta(ge=1, le=9)] | None, Meta(description="so many")] = None
    text: str = ""


BOUNDS = {"closed": (1, 200), "open": (1, 9), "low": (5, None), "described": (1, 9), "around": (1, 9)}


@given(st.dictionaries(st.sampled_from(sorted(BOUNDS)), st.integers(-(2**62), 2**62)))
def test_every_number_is_within_its_bounds_and_the_nearest_to_what_was_asked(numbers: dict[str, int]) -> None:
    found = read_query(Odd, QueryParams({name: str(number) for name, number in numbers.items()}))
    for name, number in numbers.items():
        low, high = BOUNDS[name]
        nearest = max(number, low) if high is None else min(max(number, low), high)
        assert getattr(found, name) == nearest


def test_what_is_no_number_is_left_out_and_texts_stay_as_they_are() -> None:
    assert read_query(Odd, QueryParams({"closed": "x", "text": "999", "unknown": "999"})) == Odd(text="999")


def test_pages_of_every_route_can_be_asked_for_by_any_number() -> None:
    limited = [route for route in ALL if not route.changes and "limit" in route.takes.__struct_fields__]
    assert len(limited) >= 6
    needed = {"task": "a"}
    for route in limited:
        for number in ("-5", "0", "99999999999999999999999"):
            assert 1 <= read_query(route.takes, QueryParams({**needed, "limit": number})).limit <= 500
