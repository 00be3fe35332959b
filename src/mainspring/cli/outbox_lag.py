"""How far behind the partitions of outboxes are, as `mainspring outbox lag` and the doctor tell it."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from difflib import get_close_matches

from msgspec import Struct

from mainspring.app import Mainspring
from mainspring.client.letters import outboxes_of
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
    """When the first of these was published."""
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


def reached_outboxes(app: Mainspring) -> Outboxes:
    """Return the store of an app as one that keeps outboxes, or raise `DeclarationError`."""
    return outboxes_of(app.store, "of this store")


async def views_of(store: Outboxes, names: Sequence[str]) -> tuple[OutboxView, ...]:
    """Read outboxes by their names, or all; raises `UnknownOutbox` with the nearest name."""
    found = await store.outboxes()
    by_name = {one.name: one for one in found}
    for name in names:
        if name not in by_name:
            near = get_close_matches(name, by_name, n=1)
            raise UnknownOutbox(name, near[0] if near else "")
    return tuple(by_name[name] for name in dict.fromkeys(names)) if names else found


async def lags(store: Outboxes, names: Sequence[str]) -> Looked:
    """Look how all partitions of these outboxes stand."""
    looked = await store.look_at_partitions(names)
    return Looked(now=looked.now, lags=tuple([await _lag(store, view, looked.now) for view in looked.partitions]))


async def _lag(store: Outboxes, view: PartitionView, now: datetime) -> Lag:
    stand, oldest = view.stand, None
    if view.last > stand.cursor:
        first = await store.read_messages(view.outbox, view.partition, stand.cursor, 1)
        oldest = first[0].published_at if first else None
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
