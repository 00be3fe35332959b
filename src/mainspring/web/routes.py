"""What a route is. The tables of routes are what the application and its description are both made from."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeAlias, TypeVar

from msgspec import Struct

from mainspring.app import Mainspring
from mainspring.web.auth import Identity, Permission

Q = TypeVar("Q", bound=Struct)
A = TypeVar("A")


class Nothing(Struct, frozen=True, forbid_unknown_fields=True):
    """A request that says no more than its path."""


@dataclass(frozen=True, slots=True)
class Asked(Generic[Q]):
    """One request, read and allowed."""

    app: Mainspring
    who: Identity
    said: Q


@dataclass(frozen=True, slots=True)
class Route(Generic[Q, A]):
    """One thing that can be asked for. What it is about, its handler's docstring says."""

    method: Literal["GET", "POST"]
    """GET looks, and takes what it needs from the query; POST changes, and takes it from a body of JSON."""
    path: str
    """Below /api/v1."""
    permission: Permission | None
    """None: whoever is known may."""
    takes: type[Q]
    gives: type[A]
    """Written as `--json` of the command line writes it."""
    handler: Callable[[Asked[Q]], Awaitable[A]]

    @property
    def changes(self) -> bool:
        return self.method != "GET"

    @property
    def name(self) -> str:
        return self.path.strip("/").replace("/", ".")


AnyRoute: TypeAlias = Route[Any, Any]
