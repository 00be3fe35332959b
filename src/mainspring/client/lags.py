"""How far behind the partitions of outboxes are."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from difflib import get_close_matches

from msgspec import Struct

from mainspring.core.job import NodeId
from mainspring.errors import UnknownOutbox
from mainspring.stores.outbox import Outboxes, OutboxView, PartitionView


class Lag(Struct, frozen=True, kw_only=True):
    """How far behind one partition is."""

    outbox: str
    partition: int
    last: int
    """The highest number that was given to a message of it."""
    cursor: int
    """Everything up to this number is done."""
    backlog: int
    """Messages behind the cursor: neither done, nor set aside."""
    oldest_at: datetime | None
    """When the first of these was published; None: there is none, or nobody has looked."""
    age: timedelta | None
    """How long ago that is."""
    holder: NodeId | None
    """The live node that is at it."""
    attempts: int
    """Deliveries of the first of them that have failed."""
    retry_at: datetime | None
    """Nothing behind the cursor is delivered before."""
    error: str
    aside_at: datetime | None
    """When the first of what was set aside may be delivered; None: nothing is."""


class Looked(Struct, frozen=True, kw_only=True):
    """What a look has found."""

    now: datetime
    lags: tuple[Lag, ...]


async def views_of(store: Outboxes, names: Sequence[str]) -> tuple[OutboxView, ...]:
    """Read outboxes by their names, or all; raises `UnknownOutbox` with the nearest name."""
    found = await store.outboxes()
    by_name = {one.name: one for one in found}
    for name in names:
        if name not in by_name:
            near = get_close_matches(name, by_name, n=1)
            raise UnknownOutbox(name, near[0] if near else "")
    return tuple(by_name[name] for name in dict.fromkeys(names)) if names else found


async def lags(store: Outboxes, names: Sequence[str], *, ages: int | None = None) -> Looked:
    """Look how all partitions of these outboxes stand, and how long messages wait in the first `ages` that are behind."""
    looked = await store.look_at_partitions(names)
    behind = [view for view in looked.partitions if view.last > view.stand.cursor][:ages]
    oldest = {(view.outbox, view.partition): await _oldest(store, view) for view in behind}
    return Looked(
        now=looked.now,
        lags=tuple(_lag(view, oldest.get((view.outbox, view.partition)), looked.now) for view in looked.partitions),
    )


async def _oldest(store: Outboxes, view: PartitionView) -> datetime | None:
    first = await store.read_messages(view.outbox, view.partition, view.stand.cursor, 1)
    return first[0].published_at if first else None


def _lag(view: PartitionView, oldest: datetime | None, now: datetime) -> Lag:
    stand = view.stand
    return Lag(
        outbox=view.outbox,
        partition=view.partition,
        last=view.last,
        cursor=stand.cursor,
        backlog=view.last - stand.cursor,
        oldest_at=oldest,
        age=None if oldest is None else max(now - oldest, timedelta(0)),
        holder=stand.holder if view.is_held else None,
        attempts=stand.attempts,
        retry_at=stand.retry_at,
        error=stand.error,
        aside_at=view.aside_at,
    )
