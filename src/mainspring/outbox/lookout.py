"""Looks how the partitions stand, for all outboxes of a node at once, and wakes those who have something to deliver.

It looks when the store says that something has changed, when the next wait is over, and once a second in any case: what
nobody was told of is found then. A partition that others are at is left alone, however much there is in it.
"""

from collections.abc import Awaitable, Callable, Collection, Mapping
from datetime import datetime
from typing import Final, Protocol

from mainspring.clock import Clock
from mainspring.core.job import NodeId
from mainspring.stores.outbox import Outboxes, PartitionView
from mainspring.supervise import Directive, Notifier, Sleep

EVERY: Final = 1.0
"""Seconds after which it looks, whatever it was told."""
A_MOMENT: Final = 1e-4
"""Seconds that are not worth waiting for: by less than the rounding of a float no clock moves."""


class Offered(Protocol):
    """Who is told that there is something to deliver."""

    @property
    def is_busy(self) -> bool: ...

    def offer(self, view: PartitionView) -> None: ...


class Lookout:
    """The step of a service; there is one on each node."""

    def __init__(
        self,
        store: Outboxes,
        *,
        clock: Clock,
        me: Callable[[], NodeId],
        prepare: Callable[[], Awaitable[None]],
        processors: Mapping[tuple[str, int], Offered],
        spacing: Callable[[], float],
        may_look: Callable[[], bool],
    ) -> None:
        self.wake: Final = Notifier()
        self._store = store
        self._clock = clock
        self._me = me
        self._prepare = prepare
        self._processors = processors
        self._spacing = spacing
        self._may_look = may_look
        self._looked: float | None = None

    async def step(self) -> Directive:
        await self._prepare()
        names = self._names()
        if not names or not self._may_look():
            return Sleep(EVERY, wakeable=True)
        now = self._clock.monotonic()
        soon = 0.0 if self._looked is None else self._looked + self._spacing() - now
        if soon > A_MOMENT:  # hints come in swarms; all that come meanwhile are answered by one look
            return Sleep(soon)
        self._looked = now
        return await self._look(names)

    def _names(self) -> Collection[str]:
        return tuple(dict.fromkeys(name for name, _ in self._processors))

    async def _look(self, names: Collection[str]) -> Directive:
        looked = await self._store.look_at_partitions(tuple(names))
        wait = EVERY
        for view in looked.partitions:
            processor = self._processors.get((view.outbox, view.partition))
            if processor is None or processor.is_busy:
                continue
            at = ready_at(view, self._me(), looked.now)
            if at is None:
                continue
            if at <= looked.now:
                processor.offer(view)
            else:
                wait = min(wait, (at - looked.now).total_seconds())
        return Sleep(wait, wakeable=True)


def ready_at(view: PartitionView, me: NodeId, now: datetime) -> datetime | None:
    """Say when something of a partition can be delivered by this node; None: not before something changes."""
    stand = view.stand
    if view.is_held and stand.holder != me:
        return None
    times = [] if view.aside_at is None else [view.aside_at]
    if view.last > stand.cursor or stand.given:
        times.append(stand.retry_at or now)
    return min(times, default=None)
