"""Takes a census of the store now and then, on one node at a time, and keeps the counts of all nodes in bounds.

For people only. It is for the node that has been there for the longest, as each one sees by its own renewals; so it
costs no lease. Two that both believe to be that one, for a few seconds, write the same down. A census goes to the minute
in whose end it was taken; so it is taken when a minute has passed, and a few times within it while something goes on.
"""

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from typing import Final

from mainspring.clock import Clock
from mainspring.core.job import NodeId
from mainspring.core.tally import MINUTE, TEN_MINUTES, Counted, added, read, start_of, written
from mainspring.runtime.keeper import Beat
from mainspring.stores.overview import Census, Overview, Tally
from mainspring.stores.records import NodeView
from mainspring.supervise import Directive, Idle, Notifier, Sleep

EVERY: Final = 10.0  # seconds between two censuses, while something goes on
FIRST: Final = 2.0  # seconds after the start: what comes up with the node has settled by then
A_MOMENT: Final = 0.05  # seconds: a minute that is about to end has ended then
LATEST: Final = 2 * MINUTE  # of what was enqueued earlier nobody knows any more when
KEEP_MINUTES: Final = timedelta(hours=3)
KEEP_TENS: Final = timedelta(days=14)
FOLD_EVERY: Final = 600.0
FOLD_FIRST: Final = 60.0


class CensusTaker:
    """The step of a service. Every node has one, and one of them counts."""

    def __init__(
        self,
        store: Overview,
        *,
        now: Callable[[], datetime],
        me: Callable[[], NodeId],
        started: Callable[[], int],
        clock: Clock,
    ) -> None:
        self.wake = Notifier()
        self.is_first = False
        """Whether it is for this node to count."""
        self._store = store
        self._now = now
        self._me = me
        self._clock = clock
        self._nodes = self._places = 0
        self._last: tuple[datetime, Counted] | None = None
        """The minute that was written last, and what was written of it."""
        self._has_begun = self._goes_on = False
        self._started = started
        self._seen = 0
        """Jobs that this node had started when it counted last."""
        self._fold_at = clock.monotonic() + FOLD_FIRST

    def renewed(self, beat: Beat) -> None:
        """Look at the nodes, as a renewal has found them."""
        self._nodes = len(beat.pulse.nodes)
        self._places = sum(view.node.concurrency for view in beat.pulse.nodes)
        was_first, self.is_first = self.is_first, first_of(beat.pulse.nodes) == self._me()
        if self.is_first and not was_first:
            self.wake.notify_one()

    async def step(self) -> Directive:
        if not self.is_first:
            self._last, self._has_begun = None, False
            return Idle()
        if not self._has_begun:
            self._has_begun = True
            return Sleep(FIRST)
        if self._is_due():
            await self._count()
            if self._clock.monotonic() >= self._fold_at:
                await self._fold()
                self._fold_at = self._clock.monotonic() + FOLD_EVERY
        now = self._now()
        turn = (start_of(now, MINUTE) + MINUTE - now).total_seconds() + A_MOMENT
        return Sleep(min(EVERY, turn))

    def _is_due(self) -> bool:
        """A store at rest is counted when a minute has passed, and no more often."""
        if self._last is None or self._goes_on or self._started() != self._seen:
            return True
        counted_at = self._last[1].counted_at
        return counted_at is None or start_of(self._now(), MINUTE) != start_of(counted_at, MINUTE)

    # Counting.

    async def _count(self) -> None:
        """Count, and write it down."""
        seen = self._started()
        last = self._last or await self._found()
        now = self._now()
        since = min(max(last[1].counted_at or now, now - LATEST), now) if last else start_of(now, MINUTE)
        census = await self._store.census(since)
        minute = start_of(census.at - (census.at - since) / 2, MINUTE)
        before = last[1].enqueued if last and last[0] == minute else 0
        counted = self._counted(census, before)
        self._last = None  # until it is known what was written: the answer may be lost
        await self._store.write_tallies([Tally(at=minute, span=MINUTE, by="", body=written(counted))])
        self._last, self._seen = (minute, counted), seen
        self._goes_on = census.enqueued > 0 or any(count.due or count.running for count in census.counts)

    def _counted(self, census: Census, enqueued: int) -> Counted:
        return Counted(
            enqueued=enqueued + census.enqueued,
            counted_at=census.at,
            complete=census.complete,
            counts=census.counts,
            nodes=self._nodes,
            places=self._places,
        )

    async def _found(self) -> tuple[datetime, Counted] | None:
        """Go on from what another node has written."""
        now = self._now()
        tallies = await self._store.tallies(MINUTE, start_of(now - LATEST, MINUTE), now)
        found = [(tally.at, counted) for tally in tallies if not tally.by and (counted := read(tally.body))]
        return found[-1] if found else None

    # Keeping counts in bounds.

    async def _fold(self) -> None:
        """Put minutes that have passed together into spans of ten, and forget old ones."""
        now = self._now()
        until = start_of(now - KEEP_MINUTES, TEN_MINUTES)
        spans: dict[datetime, list[Tally]] = {}
        for tally in await self._store.tallies(MINUTE, until - KEEP_TENS, until):
            spans.setdefault(start_of(tally.at, TEN_MINUTES), []).append(tally)
        for at, minutes in spans.items():  # one by one: after a long rest there are many, and all else waits meanwhile
            await self._fold_one(at, at + TEN_MINUTES, minutes)
        await self._store.write_tallies([], drop=(TEN_MINUTES, start_of(now - KEEP_TENS, TEN_MINUTES)))

    async def _fold_one(self, at: datetime, until: datetime, minutes: Sequence[Tally]) -> None:
        """Put one span together. One that is there already is added to: a node that was stopped writes hours later."""
        there = await self._store.tallies(TEN_MINUTES, at, until)
        if there:  # or somebody else is folding, and the minutes are gone by now
            minutes = await self._store.tallies(MINUTE, at, until)
        await self._store.write_tallies(folded([*there, *minutes]) if minutes else [], drop=(MINUTE, until))


def first_of(views: Iterable[NodeView]) -> NodeId | None:
    """Name the node that counts: of those that do, the one that has been there for the longest."""
    counting = [(view.joined_at, view.node.id) for view in views if view.node.takes_census]
    return min(counting)[1] if counting else None


def folded(minutes: Iterable[Tally]) -> list[Tally]:
    """Put minutes together into spans of ten, and with what was put together of these before."""
    spans: dict[datetime, list[Counted]] = {}
    for tally in minutes:
        if counted := read(tally.body):
            spans.setdefault(start_of(tally.at, TEN_MINUTES), []).append(counted)
    return [Tally(at=at, span=TEN_MINUTES, by="", body=written(added(many))) for at, many in spans.items()]
