"""The dead letters of an outbox: what can be done about messages that were given up."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, Generic, TypedDict, TypeVar, Unpack

from mainspring.client.connection import Connection
from mainspring.duration import Duration, duration
from mainspring.errors import DeclarationError
from mainspring.outbox.definition import OutboxDefinition
from mainspring.outbox.message import Message
from mainspring.runtime.call import storable
from mainspring.runtime.executors.errors import attempt_error
from mainspring.stores.outbox import Letter, LetterFilter, LetterPage, LetterState, Outboxes

T = TypeVar("T")

LIMIT: Final = 100
LONGEST_ERROR: Final = 2000


class Which(TypedDict, total=False):
    """Which dead letters are meant; what is left out does not matter."""

    ids: Iterable[int] | None
    partition: int | None
    type: str | None
    key: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reprocessed:
    """What came of a round of reprocessing."""

    resolved: int = 0
    returned: int = 0
    """Those that failed again, and are pending."""


class DeadLetters(Generic[T]):
    """What an outbox can do about its dead letters. They are pending until somebody does something about them."""

    def __init__(self, connection: Connection, definition: OutboxDefinition[T]) -> None:
        self._connection: Final = connection
        self._definition: Final = definition
        self._known: Outboxes | None = None

    async def letters(
        self,
        *,
        states: Iterable[LetterState | str] = (LetterState.PENDING,),
        limit: int = LIMIT,
        after: str | None = None,
        **which: Unpack[Which],
    ) -> LetterPage:
        """List dead letters, the newest failure first. The next page begins `after` the page's own."""
        wanted = self._filter(which, tuple(LetterState(one) for one in states))
        return await (await self._store()).letters(wanted, limit=limit, after=after)

    async def replay(self, *, limit: int = LIMIT, **which: Unpack[Which]) -> int:
        """Put dead letters back at the end of their partitions, the oldest failure first; returns how many."""
        return await (await self._steered()).replay_letters(self._filter(which), limit)

    async def take(self, *, within: Duration = "5m", limit: int = LIMIT, **which: Unpack[Which]) -> tuple[Letter, ...]:
        """Take dead letters for reprocessing by hand; whoever has neither resolved nor rejected them by then has lost them."""
        return await (await self._steered()).take_letters(self._filter(which), duration(within), limit)

    async def resolve(self, letters: Iterable[Letter]) -> int:
        """End the reprocessing of letters well; returns how many were still ours."""
        return await (await self._steered()).resolve_letters([(one.id, one.term) for one in letters])

    async def reject(self, letters: Iterable[Letter], error: str) -> int:
        """End the reprocessing of letters badly: they are pending again; returns how many were still ours."""
        told = storable(error, LONGEST_ERROR)
        return await (await self._steered()).return_letters([(one.id, one.term) for one in letters], told)

    async def reprocess(
        self,
        handler: Callable[[Message[T]], Awaitable[object] | object],
        *,
        within: Duration = "5m",
        limit: int = LIMIT,
        **which: Unpack[Which],
    ) -> Reprocessed:
        """Have dead letters handled here and now, all of them `within` that time.

        One that the handler raises on is pending again, and so are those for which the time was too short.
        """
        if not callable(handler):
            raise DeclarationError("reprocess", f"it takes a function, and not {handler!r}")
        time = duration(within)
        taken = await self.take(within=time, limit=limit, **which)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + time.total_seconds()
        resolved = returned = 0
        for letter in taken:
            error = await self._handle(handler, letter, deadline)
            if error is None:
                resolved += await self.resolve([letter])
            else:
                returned += await self.reject([letter], error)
        return Reprocessed(resolved=resolved, returned=returned)

    async def discard(self, *, limit: int = LIMIT, **which: Unpack[Which]) -> int:
        """Give up dead letters that are pending; returns how many."""
        return await (await self._steered()).discard_letters(self._filter(which), limit)

    async def clear(self, *, older_than: Duration = "7d", limit: int = 1000) -> int:
        """Delete dead letters, of any outbox, that were resolved or discarded so long ago; returns how many."""
        return await (await self._steered()).clear_letters(duration(older_than), limit)

    async def _handle(self, handler: Callable[[Message[T]], Any], letter: Letter, deadline: float) -> str | None:
        loop = asyncio.get_running_loop()

        def remaining() -> timedelta:
            return timedelta(seconds=max(0.0, deadline - loop.time()))

        message: Message[T] = Message(
            letter.message, self._definition.payloads.decode, attempt=letter.attempts + 1, remaining=remaining
        )
        try:
            if not remaining():
                raise TimeoutError("no time was left for it")  # noqa: TRY301 - what came of it is told in one place
            async with asyncio.timeout_at(deadline):
                answer = handler(message)
                if inspect.isawaitable(answer):
                    await answer
        except Exception as error:  # noqa: BLE001 - whatever the handler raises is what came of it
            told = attempt_error(error)
            return f"{told.type}: {told.message}"
        return None

    def _filter(self, which: Which, states: tuple[LetterState, ...] = (LetterState.PENDING,)) -> LetterFilter:
        ids = which.get("ids")
        return LetterFilter(
            ids=None if ids is None else tuple(ids),
            outbox=self._definition.name,
            partition=which.get("partition"),
            type=which.get("type"),
            key=which.get("key"),
            states=states,
        )

    async def _steered(self) -> Outboxes:
        """Return the store to whoever may decide about messages: not to a plugin."""
        self._connection.guard.steer("outbox.letters")
        return await self._store()

    async def _store(self) -> Outboxes:
        return self._playing(await self._connection.store())

    def _playing(self, store: object) -> Outboxes:
        """See that a store keeps outboxes; asked once, since asking takes longer than publishing into memory."""
        if self._known is None or self._known is not store:
            self._known = outboxes_of(store, self._definition.name)
        return self._known


def outboxes_of(store: object, name: str) -> Outboxes:
    """Return a store that keeps outboxes, or raise `DeclarationError`."""
    if isinstance(store, Outboxes):
        return store
    raise DeclarationError(f"outbox {name}", f"{type(store).__name__} keeps no outboxes; use SQLite or PostgreSQL")
