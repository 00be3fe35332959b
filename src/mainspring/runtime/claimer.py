"""Claims jobs for the places that are free, and a few more that will start soon.

Claimed ahead are as many jobs as places become free in a tenth of a second at the present rate: a node of slow jobs
holds no job that another node could start, and a node of quick jobs saves round trips.

Where the store announces jobs, nodes take turns (`claim_turns.py`), and a place that becomes free leads to a claim only if
there may be something to claim.
"""

import asyncio
import math
import random
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Final, NamedTuple

from mainspring.clock import Clock
from mainspring.core.names import Name
from mainspring.errors import NodeGone
from mainspring.runtime.claim_turns import ClaimStart, ClaimTurns
from mainspring.runtime.keeper import Membership
from mainspring.runtime.runner import Runner
from mainspring.stores.announcements import Announcements
from mainspring.stores.port import Store
from mainspring.stores.records import Claimed, ClaimRequest, Delivery
from mainspring.supervise import Directive, Notifier, Proceed, Sleep

AHEAD: Final = 0.1  # seconds of work that may be claimed before there is a place for it
MOST_AHEAD: Final = 2500
LOOK: Final = 1.0  # seconds between two looks if nothing wakes the claimer: a hint may be lost, a clock may jump
JITTER: Final = 0.04  # by which a look may come sooner: nodes that started together drift apart, and it costs little
AGAIN: Final = 0.05  # what is due and was not given waits for something else to end


class ClaimOutcome(NamedTuple):
    """Outcome of one claim."""

    wait: float
    """Seconds to wait before the next claim."""
    was_sent: bool = False
    """False: there was no free place, or no task to claim."""
    jobs: int = 0
    is_drained: bool = False
    """Whether no due job is left for this node."""
    next_due: datetime | None = None
    """When the next job will be due; None if it already is, or is not known."""


class Claimer:
    """The step of a service; `wake` is notified when something may have become claimable."""

    def __init__(
        self,
        store: Store,
        runner: Runner,
        *,
        me: Callable[[], Membership],
        clock: Clock,
        tasks: Callable[[], tuple[frozenset[Name], frozenset[Name]]],
        queues: tuple[str, ...] | None,
        roll: Callable[[], float] = random.random,
    ) -> None:
        self.wake = Notifier()
        self.quiet = False
        self.silent = False
        """The node cannot renew: what it claimed now, others might take from it soon."""
        self._store = store
        self._runner = runner
        self._me = me
        self._clock = clock
        self._tasks = tasks
        self._queues = queues
        self._roll = roll
        self._pace = Pace()
        self._claimed_at = -math.inf
        self.turns = ClaimTurns(store, now=store.now, wake=self.wake) if isinstance(store, Announcements) else None
        """None: the store does not announce jobs, and every hint leads to a claim."""

    def place_freed(self) -> None:
        """Claim for a free place, unless the last claim left nothing and no announcement's turn has come."""
        is_late = self._clock.monotonic() - self._claimed_at >= LOOK  # a full node does not poll
        if self.turns is None or self.turns.expects_jobs or is_late:
            self.wake.notify_one()

    async def step(self) -> Directive:
        me = self._me()
        await self._runner.give_back_late()
        if self.quiet or self.silent:
            return Sleep(self._look(), wakeable=True)
        light, heavy = self._tasks()
        ahead = self._pace.ahead(self._runner.bodies_ended, self._clock.monotonic())
        self._runner.expects(ahead)
        start = self.turns.begin_claim() if self.turns else None
        # Jobs for process slots are claimed first, or light jobs would take every place that becomes free.
        room, early = self._runner.room_for_heavy(ahead) if heavy else (0, 0)
        first = await self._claim(me, heavy, self._runner.take_heavy, room=room, ahead=early)
        # A last chance is claimed only when a place is free, which is never seen while light jobs are claimed ahead.
        ahead = 0 if early and first.wait == AGAIN else max(0, ahead - self._runner.buffered)
        second = await self._claim(me, light, self._runner.take, room=self._runner.room, ahead=ahead)
        if self.turns and start:
            self._record(self.turns, start, light | heavy, first, second)
        wait = min(first.wait, second.wait)
        if wait <= 0:
            return Proceed()
        await asyncio.sleep(0)  # what was started begins now, and not after all that it takes to go to sleep: 0.1 ms
        return Sleep(wait, wakeable=True)

    def _record(self, turns: ClaimTurns, start: ClaimStart, tasks: frozenset[Name], *results: ClaimOutcome) -> None:
        if not any(one.was_sent for one in results):
            turns.skip_claim(start)
            return
        due_times = [one.next_due for one in results if one.next_due is not None]
        turns.end_claim(
            start,
            tasks=tasks,
            jobs=sum(one.jobs for one in results),
            is_drained=all(one.is_drained for one in results),
            next_due=min(due_times, default=None),
        )
        for due in due_times if turns.is_reliable else ():
            turns.remember_due(due)  # only now: announcements that the claim has handled are no longer pending

    async def _claim(
        self, me: Membership, tasks: frozenset[Name], take: Callable[[Delivery], None], *, room: int, ahead: int
    ) -> ClaimOutcome:
        """Claim jobs of these tasks, as many as there is room for."""
        if not tasks or (room <= 0 and ahead <= 0):
            return ClaimOutcome(self._look(), is_drained=not tasks)
        request = ClaimRequest(
            node=me.node,
            term=me.term,
            tasks=tasks,
            queues=self._rooms(),
            others=self._queues is None,
            room=max(room, 0),
            ahead=ahead,
            suspects=0 if self._runner.has_suspect else 1,
        )
        self._claimed_at = self._clock.monotonic()
        try:
            with self._runner.claiming():
                claimed = await self._store.claim(request)
                self._runner.tell_of_probes(claimed.changes, me.node)
                if self.quiet or self.silent:  # said while the claim was under way
                    take = self._runner.give_back
                for delivery in claimed.deliveries:
                    take(delivery)
        except NodeGone:  # the keeper will learn it too, join again, and wake us
            return ClaimOutcome(self._look(), was_sent=True)
        return ClaimOutcome(
            wait=self._wait(request, claimed),
            was_sent=True,
            jobs=len(claimed.deliveries),
            is_drained=self._is_drained(request, claimed),
            next_due=claimed.next_due if claimed.next_due and claimed.next_due > self._store.now() else None,
        )

    def _rooms(self) -> Mapping[str, int] | None:
        rooms = self._runner.rooms()
        if self._queues is not None:
            everything = self._runner.concurrency + MOST_AHEAD
            return {queue: rooms.get(queue, everything) for queue in self._queues}
        return rooms or None

    def _wait(self, request: ClaimRequest, claimed: Claimed) -> float:
        if len(claimed.deliveries) == request.room + request.ahead:
            return 0 if self._runner.room > 0 else self._look()
        if claimed.next_due is None:
            return self._look()
        due_in = (claimed.next_due - self._store.now()).total_seconds()
        if due_in > 0:
            takes_turns = self.turns is not None and self.turns.is_reliable  # other nodes wait for the same instant
            return self._look() if takes_turns else min(self._look(), due_in)
        if (
            request.ahead
        ):  # the next job may be a last chance, which is claimed only when no other waits and a place is free
            self._runner.expects(0)
        return AGAIN

    def _is_drained(self, request: ClaimRequest, claimed: Claimed) -> bool:
        """Return whether the store has no more jobs that are due and that this node could ever claim."""
        if self.quiet or self.silent or len(claimed.deliveries) == request.room + request.ahead:
            return False
        if not request.suspects or not all((request.queues or {}).values()):  # some were not asked for
            return False
        return claimed.next_due is None or claimed.next_due > self._store.now()

    def _look(self) -> float:
        return LOOK - JITTER * self._roll()


class Pace:
    """Rate at which places become free: a moving average over about a second."""

    def __init__(self) -> None:
        self._rate = 0.0
        self._freed = 0
        self._at: float | None = None

    def ahead(self, freed: int, now: float) -> int:
        """Record how many places have become free so far; return how many to claim ahead."""
        if self._at is None:
            self._freed, self._at = freed, now
            return 0
        elapsed = now - self._at
        if elapsed >= 0.01:  # shorter than that says nothing about a pace
            weight = min(1.0, elapsed)
            self._rate += ((freed - self._freed) / elapsed - self._rate) * max(weight, 0.2)
            self._freed, self._at = freed, now
        return min(MOST_AHEAD, int(self._rate * AHEAD))
