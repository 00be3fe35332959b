"""The breakers of a store, for programs and people: `app.breakers`.

A breaker that is opened or closed by hand stays so until it is reset. Twins for code without an event loop end in `_sync`.
"""

from difflib import get_close_matches
from typing import TYPE_CHECKING, Final, TypeVar

from msgspec import Struct

from mainspring.client.connection import Connection
from mainspring.core.breaker import Phase, PhaseChange
from mainspring.core.names import Name
from mainspring.errors import UnknownBreaker
from mainspring.stores.port import Store
from mainspring.stores.records import BreakerPage, BreakerView

if TYPE_CHECKING:
    from mainspring.runtime.events import BreakerListener

L = TypeVar("L", bound="BreakerListener")

PAGE: Final = 500


class BreakerStory(Struct, frozen=True, kw_only=True):
    """A breaker as it stands, and how it came to that."""

    breaker: BreakerView
    changes: tuple[PhaseChange, ...]
    """Of its phase, the newest first."""


class Breakers:
    """List, show, open, close and reset breakers, by the names of their tasks."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.listeners: list[BreakerListener] = []

    def listener(self, listener: L) -> L:
        """Have a function told when a breaker changes its phase by what this app's nodes do, after it was committed."""
        self._connection.guard.steer("app.breakers.listener")
        self.listeners.append(listener)
        return listener

    async def list(self, *, limit: int = 100, after: str | None = None) -> BreakerPage:
        """List breakers by task; the next page begins `after` the page's own."""
        store = await self._connection.store()
        return await store.list_breakers(limit=limit, after=after)

    async def show(self, task: str, *, limit: int = 100) -> BreakerStory:
        """Read a breaker and its last changes, or raise `UnknownBreaker`."""
        store = await self._connection.store()
        name = Name.parse(task)
        views = await store.breakers([name])
        if not views:
            raise await _unknown(store, name)
        return BreakerStory(breaker=views[0], changes=await store.breaker_changes(name, limit=limit))

    async def open(self, task: str, *, by: str = "", reason: str = "", term: int | None = None) -> PhaseChange | None:
        """Let no job of a task through until the breaker is reset.

        None if it is forced open already, unless there is another `reason`; that takes the place of the first, which
        stays among its changes. With a `term`, None also if that is over. Raises `UnknownBreaker` if there is none.
        """
        return await self._force(task, Phase.OPEN, by=by, reason=reason, term=term)

    async def close(self, task: str, *, by: str = "", reason: str = "", term: int | None = None) -> PhaseChange | None:
        """Let all jobs of a task through until the breaker is reset, whatever fails."""
        return await self._force(task, Phase.CLOSED, by=by, reason=reason, term=term)

    async def reset(self, task: str, *, by: str = "", reason: str = "", term: int | None = None) -> PhaseChange | None:
        """Close a breaker, forget its failures, and let it move by itself again."""
        return await self._force(task, None, by=by, reason=reason, term=term)

    async def _force(
        self, task: str, phase: Phase | None, *, by: str, reason: str, term: int | None
    ) -> PhaseChange | None:
        self._connection.guard.steer("app.breakers")
        store = await self._connection.store()
        name = Name.parse(task)
        if phase is None:
            change = await store.reset_breaker(name, term=term, by=by, reason=reason)
        else:
            change = await store.force_breaker(name, phase, term=term, by=by, reason=reason)
        if change is None and not await store.breakers([name]):
            raise await _unknown(store, name)
        return change

    # For code without an event loop.

    def list_sync(self, *, limit: int = 100, after: str | None = None) -> BreakerPage:
        return self._connection.wait_for(lambda: self.list(limit=limit, after=after))

    def show_sync(self, task: str, *, limit: int = 100) -> BreakerStory:
        return self._connection.wait_for(lambda: self.show(task, limit=limit))

    def open_sync(self, task: str, *, by: str = "", reason: str = "", term: int | None = None) -> PhaseChange | None:
        return self._connection.wait_for(lambda: self.open(task, by=by, reason=reason, term=term))

    def close_sync(self, task: str, *, by: str = "", reason: str = "", term: int | None = None) -> PhaseChange | None:
        return self._connection.wait_for(lambda: self.close(task, by=by, reason=reason, term=term))

    def reset_sync(self, task: str, *, by: str = "", reason: str = "", term: int | None = None) -> PhaseChange | None:
        return self._connection.wait_for(lambda: self.reset(task, by=by, reason=reason, term=term))


async def _unknown(store: Store, name: Name) -> UnknownBreaker:
    page = await store.list_breakers(limit=PAGE)
    near = get_close_matches(str(name), [str(view.task) for view in page.breakers], n=1)
    return UnknownBreaker(str(name), near[0] if near else "")
