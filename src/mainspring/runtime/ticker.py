"""Makes jobs of schedules: sleeps until the earliest slot, decides what is due, and writes it.

Every node has one, and none of them leads. Which of several was first is settled by the store, where a step of a
schedule is written only from the revision that it was decided on; whoever comes too late looks again. A tick reads what
is due and nothing else.

Told a `tick`, it looks at that interval instead, whatever comes when. The same slots are decided in the same way, each up
to a tick later; a store is asked ten times a second for nothing, mostly.
"""

from collections.abc import Sequence
from functools import partial
from typing import Final

from mainspring.clock import Clock
from mainspring.core.command import CancelJob
from mainspring.core.job import FINISHED, JobId
from mainspring.core.machine import command
from mainspring.core.missed import Reason
from mainspring.core.schedule import Decision, Run, decide
from mainspring.ids import new_id
from mainspring.runtime.events import Events, log
from mainspring.runtime.firing import move_of
from mainspring.stores.port import Store
from mainspring.stores.records import Look, Looked, Settlement, Verdict
from mainspring.supervise import Directive, Notifier, Proceed, Sleep

MOST: Final = 1000  # schedules that one tick decides; the rest comes right after
REARM: Final = 30.0  # seconds that it sleeps at most: a clock may have been set, and hints may get lost
GAP: Final = 0.25  # seconds between two looks that nothing but a hint asked for: a busy store hints all the time
LEAST: Final = 0.001

_WORTH_A_WARNING: Final = {Reason.SKIPPED, Reason.TOO_OLD}


class Ticker:
    """The step of a service; `wake` is notified when a schedule may have changed, or a run ended."""

    def __init__(self, store: Store, events: Events, *, clock: Clock, tick: float | None = None) -> None:
        self.wake = Notifier()
        self._store = store
        self._events = events
        self._clock = clock
        self._tick = tick
        self._looked_at = float("-inf")
        self._look_at = float("-inf")
        self._unreadable: dict[str, str] = {}

    async def step(self) -> Directive:
        now = self._clock.monotonic()
        rest = min(self._looked_at + GAP, self._look_at) - now
        if rest > 0:
            return Sleep(max(LEAST, rest))  # less than a microsecond is no sleep at all: on virtual time, for ever
        # Until it has gone well, it is due: a rest in between would end the backoff of a store that does not answer.
        self._looked_at, self._look_at = now, float("-inf")
        looked = await self._store.due(MOST)
        self._tell_of_unreadable(looked)
        decisions = [
            decide(look.schedule, looked.now, partial(new_id, looked.now), busy=bool(look.open))
            for look in looked.looks
        ]
        accepted = await self._store.move([move_of(one) for one in decisions]) if decisions else ()
        for look, decision, was_accepted in zip(looked.looks, decisions, accepted, strict=True):
            if was_accepted:
                await self._written(look, decision)
        return self._rest(looked, decisions, accepted)

    def _rest(self, looked: Looked, decisions: Sequence[Decision], accepted: Sequence[bool]) -> Directive:
        """Sleep until the next slot; look at once if there is more, and soon if somebody else was faster with some."""
        if not all(accepted):
            return self._sleep(GAP)
        if len(looked.looks) == MOST:
            return Proceed()
        known = [decision.after.next_at for decision in decisions if decision.after and decision.after.next_at]
        instants = [*known, looked.next_at] if looked.next_at else known
        return self._sleep((min(instants) - self._store.now()).total_seconds() if instants else REARM)

    def _sleep(self, time: float) -> Directive:
        if self._tick is not None:
            self._look_at = self._clock.monotonic() + self._tick
            return Sleep(self._tick)
        rest = min(REARM, max(LEAST, time))
        self._look_at = self._clock.monotonic() + rest
        return Sleep(rest, wakeable=True)

    async def _written(self, look: Look, decision: Decision) -> None:
        grown = decision.before.last_drop if decision.before else None
        for run in decision.runs:
            self._tell(run, told=grown.count if grown and grown.id == run.id else 0)
        if decision.cancels:
            await cancel(self._store, look.open)

    def _tell(self, run: Run, *, told: int) -> None:
        """Tell of a run; of some of its slots, so many, it may have been told before."""
        if run.reason is None:
            self._events.count("runs")
            return
        self._events.count(f"slots_{run.reason}", run.count - told)
        tell = log.warning if run.reason in _WORTH_A_WARNING else log.info
        tell(
            "schedule %s made no job for %s, %s from %s to %s", run.schedule, run.reason, run.count, run.slot, run.last
        )

    def _tell_of_unreadable(self, looked: Looked) -> None:
        for name, problem in looked.unreadable.items():
            if self._unreadable.get(name) != problem:
                self._unreadable[name] = problem
                self._events.count("unreadable_schedules")
                log.error("schedule %s cannot be understood here, and does nothing on this node: %s", name, problem)


async def cancel(store: Store, jobs: Sequence[JobId]) -> None:
    """Cancel what has not finished: at once if it waits, as a request if it runs."""
    left = [view.job for view in await store.get(jobs) if view]
    while left := [job for job in left if job.state not in FINISHED and job.cancel_requested_at is None]:
        changes = [command(job, CancelJob(), store.now()) for job in left]
        answers = await store.settle([Settlement(change=change) for change in changes])
        left = [answer.job for answer in answers if answer.verdict is Verdict.STALE and answer.job]
