"""The role of a store that keeps outboxes, and the plain values that it takes and gives.

What holds for all verbs (G1 to G7 of `stores.port`) holds here too. A store need not play this role.

A message has two numbers. `number` is given by the database when it is inserted, in the user's transaction; `seq` when
that is committed: 1, 2, 3… in each partition, without a gap. What is said of order is said of `seq`.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Protocol, runtime_checkable

from msgspec import Struct

from mainspring.core.job import NodeId
from mainspring.core.outbox import Stand


class NewMessage(Struct, frozen=True, kw_only=True, gc=False):
    """A message that is to be; all of it has been checked."""

    outbox: str
    partitions: int
    """How many its outbox has, as declared here."""
    partition: int
    payload: bytes
    type: str
    key: str | None = None
    unique: str | None = None
    """While a message with the same text is known in its outbox, this one is not written."""
    traceparent: str | None = None


class Published(Struct, frozen=True, kw_only=True, gc=False):
    """The answer for one new message."""

    number: int
    fresh: bool = True
    """Whether it was written; if not, `number` is that of the one that is there under the same `unique` text."""


class Message(Struct, frozen=True, kw_only=True, gc=False):
    """A message that was committed."""

    outbox: str
    partition: int
    seq: int
    number: int
    payload: bytes
    type: str
    key: str | None
    published_at: datetime
    traceparent: str | None = None


class Aside(Struct, frozen=True, kw_only=True):
    """A message that was set aside: it, or one before it with the same key, is to be delivered again."""

    message: Message
    attempts: int = 0
    """Deliveries of it that have failed or were lost."""
    retry_at: datetime | None = None
    """When it may be delivered; None: after the one before it with the same key."""
    error: str = ""


class NewLetter(Struct, frozen=True, kw_only=True):
    """A message that becomes a dead letter."""

    message: Message
    attempts: int
    error: str


class Stride(Struct, frozen=True, kw_only=True):
    """A step in the delivery of one partition, with everything that belongs to it."""

    outbox: str
    partition: int
    before: int
    """The revision that it was made from."""
    after: Stand
    """What is to stand there: under the next revision, one above `before`."""
    letters: tuple[NewLetter, ...] = ()
    aside: tuple[Aside, ...] = ()
    """Set aside, or, if it was already, what it is like now."""
    back: tuple[int, ...] = ()
    """The `seq` of those that are set aside no longer."""


class PartitionView(Struct, frozen=True, kw_only=True):
    """How one partition stands."""

    outbox: str
    partition: int
    last: int
    """The highest `seq` that was given."""
    stand: Stand
    is_held: bool
    """Whether its holder is alive."""
    aside_at: datetime | None = None
    """When the first of what is set aside may be delivered; None: nothing is."""


class PartitionsLooked(Struct, frozen=True, kw_only=True):
    """What a look at partitions has found."""

    now: datetime
    partitions: tuple[PartitionView, ...]
    is_sequenced: bool = True
    """Whether every message that was committed before the look has its `seq`. If not, somebody else was giving some just
    then, who will tell when that is done."""


class OutboxView(Struct, frozen=True, kw_only=True):
    """An outbox as people see it."""

    name: str
    partitions: int
    created_at: datetime
    kept: int
    """Messages that are still there, delivered ones that were not cleared away yet among them; about so many."""
    bytes: int | None
    """What they take on the disk, where that can be said."""
    aside: int
    letters: int
    """Dead letters that are pending."""


class LetterState(StrEnum):
    """The life of a dead letter."""

    PENDING = "pending"
    REPROCESSING = "reprocessing"
    RESOLVED = "resolved"
    DISCARDED = "discarded"


class Letter(Struct, frozen=True, kw_only=True):
    """A dead letter."""

    id: int
    message: Message
    state: LetterState
    attempts: int
    error: str
    failed_at: datetime
    term: int = 0
    """Grows whenever somebody takes it for reprocessing: an end that was decided under an earlier one does not count."""
    deadline: datetime | None = None
    """Until when whoever reprocesses it may take; later it is anybody's."""
    completed_at: datetime | None = None


class LetterFilter(Struct, frozen=True, kw_only=True):
    """Which dead letters are meant; what is left out does not matter."""

    ids: tuple[int, ...] | None = None
    outbox: str | None = None
    partition: int | None = None
    type: str | None = None
    key: str | None = None
    states: tuple[LetterState, ...] = (LetterState.PENDING,)


class LetterPage(Struct, frozen=True, kw_only=True):
    """Some dead letters, and where the next page begins."""

    letters: tuple[Letter, ...]
    after: str | None = None


@runtime_checkable
class Outboxes(Protocol):
    """Messages on their way."""

    async def register_outbox(self, name: str, partitions: int) -> None:
        """Make an outbox, if it is not there.

        1. Safe in several processes at once. 2. One that is there with another number of partitions raises
           `PartitionCountMismatch`, and stays as it is.
        """
        ...

    async def publish(self, new: Sequence[NewMessage]) -> tuple[Published, ...]:
        """Take in messages; one answer for each, in order.

        1. An outbox that is not there is made, as by `register_outbox`.
        2. All or nothing: an outbox with another number of partitions raises `PartitionCountMismatch`, and nothing is written.
        3. A message whose `unique` text is known in its outbox is not written: its answer is not `fresh`. A text is known
           while its message is in the log, and for a day at least. Earlier messages of the same call count.
        4. Messages of one call and partition get numbers in the order of the call.
        """
        ...

    async def publish_in(self, tx: object, new: Sequence[NewMessage]) -> tuple[Published, ...]:
        """As `publish`, in a transaction of the user's own, on a connection of theirs, or a `Transaction` of this store's.

        1. Rolled back means never there: neither a `seq`, nor a `unique` text, nor a new outbox is left of it.
        2. Nobody is woken before the commit, and everybody soon after.
        3. A connection that cannot be joined raises `DeclarationError`, as for `Transactions.enqueue_in`.
        """
        ...

    def publish_in_sync(self, tx: object, new: Sequence[NewMessage]) -> tuple[Published, ...]:
        """As `publish_in`, for drivers that block."""
        ...

    async def look_at_partitions(self, outboxes: Sequence[str]) -> PartitionsLooked:
        """Give every committed message of these outboxes its `seq`, where nobody else is at that; say how all stand.

        1. In each partition `seq` is 1, 2, 3…, without a gap or a duplicate, on whatever connections this is called.
        2. A message is given one soon after its commit, however late that comes; it is never passed over.
        3. If A was committed before B was published, both in the same partition, A has the lower one. Once given it never
           changes, and every reader sees the same.
        4. It waits for nobody: neither for a user's transaction, nor for another who is at the same partition.
        5. Outboxes that are not there are left out; partitions come in order.
        6. Its cost grows with what is new, not with what is kept, and not with what a held transaction keeps from being
           cleared away.
        """
        ...

    async def read_messages(self, outbox: str, partition: int, after: int, limit: int) -> tuple[Message, ...]:
        """Read messages of a partition with a `seq` above `after`, in order, at most `limit`.

        1. None is left out in between. 2. What is at or below the cursor may have been cleared away.
        """
        ...

    async def read_aside(self, outbox: str, partition: int, limit: int) -> tuple[Aside, ...]:
        """Read what was set aside and may be delivered now, at most `limit`: the first message of each key, the longest due first."""
        ...

    async def read_keys_aside(self, outbox: str, partition: int, keys: Sequence[str]) -> frozenset[str]:
        """Say which of these keys have messages that are set aside."""
        ...

    async def stride(self, node: NodeId, term: int, strides: Sequence[Stride]) -> tuple[bool, ...]:
        """Write steps of partitions; whether each was accepted, in order. One that is not does not hinder the others.

        1. Accepted while the partition's stand is at the revision `before`, and, if somebody else than this node holds it,
           only if that one is not alive; then all of it is written, else nothing.
        2. Two strides from the same revision are never both accepted, on whatever connections.
        3. A node that is not alive under this term: `NodeGone`, and nothing is written.
        4. A message that comes back (`back`) lets the next one with its key be delivered now: its `retry_at` becomes the
           store's now. So does one whose key has nothing else set aside and that comes without a `retry_at`.
        5. Everybody is woken when something can be delivered that could not before: a stand that nobody holds any more.
        """
        ...

    async def stride_in(self, tx: object, node: NodeId, term: int, stride: Stride) -> bool:
        """As `stride`, in a transaction of the user's own, or a `Transaction` of this store's: both are committed, or neither."""
        ...

    def stride_in_sync(self, tx: object, node: NodeId, term: int, stride: Stride) -> bool:
        """As `stride_in`, for drivers that block."""
        ...

    async def outboxes(self) -> tuple[OutboxView, ...]:
        """Read all outboxes, by name."""
        ...

    async def clear_messages(self, limit: int) -> int:
        """Clear away what is delivered, at most `limit` of it; returns how many.

        1. Nothing behind a cursor goes, and nothing that was set aside or is a dead letter.
        2. No `seq` is ever given again.
        3. `unique` texts that are known no longer go too.
        4. It waits for nobody, and holds nobody up for longer than some milliseconds for each thousand.
        """
        ...

    async def letters(self, which: LetterFilter, *, limit: int = 100, after: str | None = None) -> LetterPage:
        """Read a page of dead letters, newest failure first; `after` is a page's own `after`."""
        ...

    async def take_letters(self, which: LetterFilter, within: timedelta, limit: int) -> tuple[Letter, ...]:
        """Take dead letters for reprocessing: those that are pending, and then those whose deadline has passed.

        1. `states` of the filter does not matter. 2. Their term grows, and their deadline is the store's now and `within`.
        3. Nobody else gets the same under the same term. Pending ones come first, then by deadline, then by id.
        """
        ...

    async def resolve_letters(self, letters: Sequence[tuple[int, int]]) -> int:
        """End reprocessing (id, term) well; returns how many were resolved. Those in another state or term are skipped."""
        ...

    async def return_letters(self, letters: Sequence[tuple[int, int]], error: str) -> int:
        """End reprocessing (id, term) badly: pending again, with one more attempt, this error, and a new `failed_at`."""
        ...

    async def discard_letters(self, which: LetterFilter, limit: int) -> int:
        """Give up dead letters that are pending; returns how many. `states` of the filter does not matter."""
        ...

    async def replay_letters(self, which: LetterFilter, limit: int) -> int:
        """Put dead letters back at the end of their partitions, the oldest failure first; returns how many.

        1. Those that are pending, or whose deadline has passed. Each is resolved in the transaction that publishes it.
        """
        ...

    async def clear_letters(self, older_than: timedelta, limit: int) -> int:
        """Delete dead letters that were resolved or discarded so long ago, at most `limit`; returns how many."""
        ...
