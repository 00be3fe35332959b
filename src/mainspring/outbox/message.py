"""What is published, and what a handler is given: a message, or a batch of them."""

from collections.abc import Awaitable, Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, Generic, TypeVar
from uuid import UUID

from mainspring.core.outbox import Trouble
from mainspring.errors import DeclarationError
from mainspring.runtime.context import Done
from mainspring.stores import outbox as stored

T = TypeVar("T")

Key = str | int | UUID
Decode = Callable[[stored.Message], Any]
Remaining = Callable[[], timedelta]


class Message(Generic[T]):
    """One message of an outbox, as it is delivered.

    `payload` is read when it is first asked for: one that does not fit its type raises there, as any other trouble of a
    handler would.
    """

    __slots__ = ("_decode", "_payload", "_remaining", "attempt", "stored")

    def __init__(self, message: stored.Message, decode: Decode, *, attempt: int = 1, remaining: Remaining) -> None:
        self.stored: Final = message
        """As the store keeps it."""
        self.attempt: Final = attempt
        """Which delivery of it this is, counted from 1, as far as it is known to be to blame for those before."""
        self._decode = decode
        self._payload: tuple[T] | None = None
        self._remaining = remaining

    @property
    def payload(self) -> T:
        if self._payload is None:
            self._payload = (self._decode(self.stored),)
        return self._payload[0]

    @property
    def outbox(self) -> str:
        return self.stored.outbox

    @property
    def partition(self) -> int:
        return self.stored.partition

    @property
    def seq(self) -> int:
        """Its number in its partition: 1, 2, 3…, without a gap."""
        return self.stored.seq

    @property
    def key(self) -> str | None:
        return self.stored.key

    @property
    def type(self) -> str:
        """The name of its payload's type."""
        return self.stored.type

    @property
    def published_at(self) -> datetime:
        return self.stored.published_at

    @property
    def traceparent(self) -> str | None:
        return self.stored.traceparent

    @property
    def id(self) -> str:
        """Names it among all messages of the store; the same in every delivery."""
        return f"{self.outbox}/{self.partition}/{self.seq}"

    def remaining(self) -> timedelta:
        """How long the handler may still take."""
        return self._remaining()

    def __repr__(self) -> str:
        return f"<Message {self.id}>"


@dataclass(frozen=True, slots=True)
class Outgoing(Generic[T]):
    """A message that is to be published, for `publish_many`."""

    payload: T
    key: Key | None = None
    partition: int | None = None
    unique: str | None = None


class Progress:
    """How far one call of a handler has come. It is local to the call: nothing of it is shared with others."""

    def __init__(self, given: int) -> None:
        self.given: Final = given
        self.done = 0
        """Messages, from the first on, that need no more."""
        self.rejected: dict[int, str] = {}
        """Why some of them were rejected, by their place."""
        self.trouble: Trouble | None = None
        """Why the handler's writes are being undone. If that cannot be done, neither is anything of its transaction kept."""
        self._settled: set[int] = set()

    def settle(self, place: int, rejected: str | None = None) -> None:
        """Note that a message needs no more. It counts once all before it need no more either."""
        if rejected is not None:
            self.rejected[place] = rejected
        self._settled.add(place)
        while self.done in self._settled:
            self.done += 1

    def settle_all(self) -> None:
        self.done = self.given

    def reset(self) -> None:
        self.done = 0
        self.rejected.clear()
        self._settled.clear()

    def is_settled(self, place: int) -> bool:
        return place < self.done or place in self._settled


Keep = Callable[[], Awaitable[None]]
"""Keeps the writes of a transaction, or undoes them, up to what was kept last."""


class Savepoint:
    """How a batch in a transaction keeps and undoes writes."""

    def __init__(self, keep: Keep, undo: Keep) -> None:
        self.keep = keep
        self.undo = undo
        self.pending = 0
        """What was asked for and not awaited."""


class Batch(Generic[T]):
    """Messages of one partition, in order, for a handler that takes several at once.

    Returning acknowledges all that is left. Raising has the rest delivered again: what was acknowledged before, from the
    first message on, stays so. In a transaction `ack`, `ack_chunk` and `reject` have to be awaited, since they keep or
    undo writes too.
    """

    def __init__(
        self,
        messages: Sequence[Message[T]],
        progress: Progress,
        *,
        remaining: Remaining,
        savepoint: Savepoint | None = None,
    ) -> None:
        self._messages = tuple(messages)
        self._progress = progress
        self._remaining = remaining
        self._savepoint = savepoint
        self._taken = 0

    def __len__(self) -> int:
        """How many messages it was given."""
        return len(self._messages)

    def __iter__(self) -> Iterator[Message[T]]:
        """Take one message after the other, from where it stands on."""
        while self._taken < len(self._messages):
            self._taken += 1
            yield self._messages[self._taken - 1]

    def next_chunk(self, most: int) -> tuple[Message[T], ...]:
        """Take the next messages, at most so many; none when all were taken."""
        begin = self._taken
        self._taken = min(len(self._messages), begin + max(0, most))
        return self._messages[begin : self._taken]

    @property
    def taken(self) -> int:
        """How many were taken."""
        return self._taken

    @property
    def acknowledged(self) -> int:
        """How many, from the first on, need no more: they were acknowledged or rejected."""
        return self._progress.done

    @property
    def left(self) -> int:
        """How many were not taken yet."""
        return len(self._messages) - self._taken

    def remaining(self) -> timedelta:
        """How long the handler may still take."""
        return self._remaining()

    def ack(self) -> Awaitable[None]:
        """Acknowledge all that was taken."""
        return self._ack(self._taken)

    def ack_chunk(self, count: int) -> Awaitable[None]:
        """Acknowledge the next so many of those that were taken and not acknowledged yet."""
        return self._ack(min(self._taken, self._progress.done + max(0, count)))

    def reject(self, reason: str, message: Message[T] | None = None) -> Awaitable[None]:
        """Make a dead letter of one message: the one that was taken last, unless another is given."""
        place = self._taken - 1 if message is None else self._messages.index(message)
        if place < 0 or self._progress.is_settled(place):
            raise DeclarationError("reject", "take a message first, and one that needs more than it has had")
        if self._savepoint is None:
            self._progress.settle(place, rejected=reason)
            return Done()
        if place != self._progress.done:
            raise DeclarationError("reject", "its writes are undone with it; acknowledge what comes before it first")
        return self._undone(self._savepoint, place, reason)

    def _ack(self, until: int) -> Awaitable[None]:
        if self._savepoint is None:
            self._settle(until)
            return Done()
        return self._kept(self._savepoint, until)

    def _settle(self, until: int) -> None:
        for place in range(self._progress.done, until):
            self._progress.settle(place)

    def _kept(self, savepoint: Savepoint, until: int) -> Awaitable[None]:
        return _Awaited(savepoint, savepoint.keep, lambda: self._settle(until))

    def _undone(self, savepoint: Savepoint, place: int, reason: str) -> Awaitable[None]:
        return _Awaited(savepoint, savepoint.undo, lambda: self._progress.settle(place, rejected=reason))


class _Awaited:
    """Something that happens only when it is awaited; who forgets that is told when the handler returns."""

    def __init__(self, savepoint: Savepoint, act: Keep, then: Callable[[], None]) -> None:
        self._savepoint = savepoint
        self._act = act
        self._then = then
        savepoint.pending += 1

    def __await__(self) -> Generator[Any, None, None]:
        return self._run().__await__()

    async def _run(self) -> None:
        await self._act()
        self._savepoint.pending -= 1
        self._then()
