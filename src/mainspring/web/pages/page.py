"""What a page is: a row, as a route of the JSON API is one. How a request becomes a page, `web.dashboard` says."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec
from msgspec import UNSET, Struct, inspect
from starlette.datastructures import QueryParams

from mainspring.web.clamping import clamped, whole_number
from mainspring.web.problems import Problem

Q = TypeVar("Q", bound=Struct)


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """One page. Its template is given what the route answers, as JSON has it, under the name `record`."""

    path: str
    """One word, or nothing for the first page: all links are relative, and lead to a neighbour."""
    title: str
    gathers: str
    """The name of the route of the JSON API whose record it shows; who may ask for that may see the page."""
    template: str
    parts: tuple[str, ...] = ()
    """Blocks of the template that can be asked for alone by `?part=`, as live updates do."""
    icon: str = ""
    """With one it stands in the navigation."""
    key: str = ""
    """After `g` it leads here."""
    within: str = ""
    """The page of the navigation that it belongs to, where its own name does not tell."""
    says: Mapping[str, str] | None = None
    """What it asks for beside what its address says."""
    has_search: bool = False
    """Shows what is wrong with what was searched for beside its form, and not in place of the page."""


def read_query(takes: type[Q], query: QueryParams, more: Mapping[str, str] | None = None) -> Q:
    """Read what an address says: what is not known is left out, and numbers are brought within their bounds.

    An address is typed, kept and handed around; a page that is nearly the one that was meant is better than none. What
    names several is joined: of `state=failed&state=cancelled` both count. `more` is what it says unless it says otherwise.
    """
    found: dict[str, Any] = dict(more or {})
    info = inspect.type_info(takes)
    assert isinstance(info, inspect.StructType)  # noqa: S101 - routes take nothing else
    for field in info.fields:
        said = [one for one in query.getlist(field.encode_name) if one]
        if said:
            number = whole_number(field.type)
            value = ",".join(said) if number is None else clamped(said[-1], number)
            if value is not None:
                found[field.encode_name] = value
    try:
        return msgspec.convert(found, takes, strict=False)
    except msgspec.ValidationError as error:
        raise Problem(422, "invalid", str(error)) from None


def answered(query: Mapping[str, str], changes: Mapping[str, object] | None = None) -> dict[str, str]:
    """Take an address' words, with some of them changed; None and UNSET leave one out."""
    changed = {**query, **(changes or {})}
    return {name: str(value) for name, value in changed.items() if value not in {None, UNSET, ""} and name != "part"}
