"""What a route is. The tables of routes are what the application and its description are both made from."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final, Generic, Literal, TypeAlias, TypeVar

from msgspec import Struct

from mainspring.app import Mainspring
from mainspring.client.plain import text
from mainspring.client.redact import Redactor
from mainspring.stores.port import Store
from mainspring.web.auth import Identity, Permission

LONGEST_NAME: Final = 200

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
    redact: Redactor
    """What is hidden. Answers are held against it after the handler; handlers ask it what may be searched for."""

    @property
    def by(self) -> str:
        """Name whoever asks, as every store can keep it."""
        return text(self.who.name).replace("\0", "")[:LONGEST_NAME]

    async def store(self) -> Store:
        """Return the store, and open it if nobody has: mounted in another app, nobody may have."""
        return await self.app._connection.store()  # noqa: SLF001 - `app.store` is for those who have opened it


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
    also: Callable[[Q], Permission] | None = None
    """Another permission that is needed, where that hangs on what is asked for."""
    searches: bool = False
    """Whether it may keep the store busy for a second; the number of concurrent calls per identity is limited."""
    runs_statements: bool = False
    """Whether a dry run also passes a statement to the program, and is therefore written to the audit log."""

    @property
    def changes(self) -> bool:
        return self.method != "GET"

    @property
    def name(self) -> str:
        return self.path.strip("/").replace("/", ".")


AnyRoute: TypeAlias = Route[Any, Any]
