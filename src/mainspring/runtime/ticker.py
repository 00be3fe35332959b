"""Makes jobs of schedules: sleeps until the earliest slot, decides what is due, and writes it.

Every node has one, and none of them leads. Which of several was first is settled by the store, where a step of a
schedule is written only from the revision that it was decided on; whoever comes too late looks again. A tick reads what
is due and nothing else.

Where several nodes would wake at the same instant, they take turns: the first looks at the slot itself, the next 50 ms
later, in another order for each slot. Usually the later nodes find it done and attempt no write.

Told a `tick`, it looks at that interval instead, whatever comes when. The same slots are decided in the same way, each up
to a tick later; a store is asked ten times a second for nothing, mostly.
"""

import logging
from collections.abc import Collection, Sequence
from datetime import datetime
from functools import partial
from typing import Final
from zlib import crc32

from mainspring.clock import Clock
from mainspring.core.breaker import is_shut
from mainspring.core.command import CancelJob
from mainspring.core.job import FINISHED, JobId, NodeId
from mainspring.core.machine import command
from mainspring.core.missed import Reason
from mainspring.core.names import Name
from mainspring.core.schedule import Decision, Run
from mainspring.core.steps import decide
from mainspring.errors import ScheduleError, SchemaError, StoreClosed, StoreError, StoreUnavailable
from mainspring.ids import new_id
from mainspring.runtime.clock_watch import ClockWatch
from mainspring.runtime.events import Events, log
from mainspring.runtime.firing import move_of
from mainspring.runtime.planned import slots_with_job
from mainspring.stores.port import Store
from mainspring.stores.records import Look, Looked, Settlement, Verdict
from mainspring.supervise import Directive, Notifier, Proceed, Sleep

MOST: Final = 1000  # schedules that one tick decides; the rest comes right after
REARM: Final = 30.0  # seconds that it sleeps at most: a clock may have been set, and hints may get lost
GAP: Final = 0.25  # seconds between two looks that nothing but a hint asked for: a busy store hints all the time
LEAST: Final = 0.001
TURN_S: Final = 0.05  # seconds that a slot is left to each node before this one
MAX_TURN_S: Final = 0.25  # and to all of them: the first nodes may all be blocked

_WORTH_A_WARNING: Final = {Reason.SKIPPED, Reason.TOO_OLD}
_OF_THE_STORE: Final = (StoreUnavailable, StoreClosed, SchemaError)  # whatever is written

WHY: Final = {
    Reason.SKIPPED: "nobody was there in time, and what was missed is skipped",
    Reason.SUPERSEDED: "a later slot stands for it",
    Reason.TOO_OLD: "nobody was there in time, and it is too late now",
    Reason.OVERLAPPED: "the run before it has not ended",
    Reason.PAUSED: "it was paused",
    Reason.BREAKER_OPEN: "the breaker of its task is open",
    Reason.NO_PROVIDER: "the plugin of its task is installed nowhere",
    Reason.TAKEN: "another job has the unique key of its job",
}


class Ticker:
    """The step of a service; `wake` is notified when a schedule may have changed, or a run ended."""

    def __init__(self, store: Store, events: Events, *, clock: Clock, tick: float | None = None) -> None:
        self.wake = Notifier()
        self.known: frozenset[Name] | None = None
        """The tasks that a live node knows, as the last renewal has found them."""
        self._store = store
        self._events = events
        self._clock = clock
        self._tick = tick
        self._turns: tuple[NodeId, Sequence[NodeId]] | None = None
        self._looked_at = float("-inf")
        self._look_at = float("-inf")
        self._slot_at = float("inf")
        """From here until `_look_at` a slot is left to other nodes, and hints wait."""
        self._watch = ClockWatch(store, clock)
        self._refused: dict[str, int] = {}
        """Schedules whose last step was not accepted, and from which revision."""
        self._done: dict[str, tuple[int, frozenset[datetime]]] = {}
        """Slots of schedules that were reset which have a job, and at which revision that was found out."""
        self._unreadable: dict[str, str] = {}
        self._unwritable: dict[str, tuple[int, float]] = {}
        """Schedules whose next step cannot be written: from which revision, and until when it is not tried again."""

    def take_turns(self, me: NodeId, nodes: Sequence[NodeId]) -> None:
        """Record the live nodes that make jobs of schedules, as the last renewal has found them."""
        self._turns = me, nodes

    def _turn(self, slot: datetime) -> float:
        """Return the seconds for which a slot is left to other nodes. All nodes compute the same order, by a hash."""
        if self._turns is None:
            return 0.0
        me, nodes = self._turns
        mine = _order(slot, me)
        return min(MAX_TURN_S, TURN_S * sum(_order(slot, node) < mine for node in nodes))

    async def step(self) -> Directive:
        now = self._clock.monotonic()
        rest = (self._look_at if now >= self._slot_at else min(self._looked_at + GAP, self._look_at)) - now
        if rest > 0:
            return Sleep(max(LEAST, rest))  # less than a microsecond is no sleep at all: on virtual time, for ever
        # Until it has gone well, it is due: a rest in between would end the backoff of a store that does not answer.
        self._looked_at, self._look_at, self._slot_at = now, float("-inf"), float("inf")
        looked = await self._store.due(MOST)
        self._watch.read(looked.now)
        self._tell_of_unreadable(looked)
        looks = [look for look in looked.looks if not self._is_put_aside(look)]
        shut = await self._shut(looked.now, {_task(look) for look in looks})
        decisions = [
            decide(
                look.schedule,
                looked.now,
                partial(new_id, looked.now),
                busy=bool(look.open),
                shut=shut.get(_task(look)),
                done=self._done_of(look),
            )
            for look in looks
        ]
        accepted = await self._move(decisions)
        for look, decision, was_accepted in zip(looks, decisions, accepted, strict=True):
            if was_accepted:
                self._refused.pop(str(look.schedule.name), None)
                self._done.pop(str(look.schedule.name), None)
                await self._written(look, decision)
            elif was_accepted is False:
                await self._not_accepted(look, decision)
        await self._watch.check_schedules()
        return self._rest(looked, decisions, accepted)

    def _done_of(self, look: Look) -> frozenset[datetime]:
        revision, done = self._done.get(str(look.schedule.name), (0, frozenset()))
        return done if revision == look.schedule.revision else frozenset()

    async def _not_accepted(self, look: Look, decision: Decision) -> None:
        """Find out which slots have a job, if a step was refused twice from one revision: no other node was faster then."""
        name, revision = look.schedule.name, look.schedule.revision
        slots = sorted(run.slot for run in decision.runs if run.job and run.slot)
        if slots and self._refused.get(str(name)) == revision:
            self._done[str(name)] = revision, await slots_with_job(self._store, name, slots)
        self._refused[str(name)] = revision

    async def _shut(self, now: datetime, tasks: Collection[Name]) -> dict[Name, Reason]:
        """Say of which tasks no slot may make a job now, and why."""
        views = await self._store.breakers(tuple(tasks)) if tasks else ()
        shut = {view.task: Reason.BREAKER_OPEN for view in views if is_shut(view.rule, view.circuit, now)}
        if self.known is not None:
            # Jobs of a plugin wait until it is installed again: there must not be one more with every slot.
            missing = (task for task in tasks if task.namespace and task not in self.known)
            shut |= dict.fromkeys(missing, Reason.NO_PROVIDER)
        return shut

    async def _move(self, decisions: Sequence[Decision]) -> Sequence[bool | None]:
        """Write decisions; whether each was accepted, and None for one that cannot be written."""
        if not decisions:
            return ()
        try:
            return await self._store.move([move_of(one) for one in decisions])
        except _OF_THE_STORE:
            raise
        except (StoreError, ScheduleError) as error:  # one of them cannot be written; it must not keep back the others
            if len(decisions) > 1:
                return await self._move_one_by_one(decisions)
            self._put_aside(decisions[0], error)
            return (None,)

    async def _move_one_by_one(self, decisions: Sequence[Decision]) -> Sequence[bool | None]:
        accepted: list[bool | None] = []
        failures: list[tuple[Decision, Exception]] = []
        for decision in decisions:
            try:
                accepted += await self._store.move([move_of(decision)])
            except _OF_THE_STORE:
                raise
            except (StoreError, ScheduleError) as error:
                accepted.append(None)
                failures.append((decision, error))
        if len(failures) == len(decisions):  # hardly the fault of each
            raise failures[-1][1]
        for unwritable, why in failures:
            self._put_aside(unwritable, why)
        return accepted

    def _put_aside(self, decision: Decision, error: Exception) -> None:
        """Leave a schedule alone for a while: each try would cost the others a try of their own."""
        if decision.before is None:
            return
        name, revision = str(decision.before.name), decision.before.revision
        if self._unwritable.get(name, (0, 0.0))[0] != revision:
            self._events.count("unwritable_schedules")
            log.error("schedule %s cannot go on: its next step cannot be written: %s", name, error)
        self._unwritable[name] = (revision, self._clock.monotonic() + REARM)

    def _is_put_aside(self, look: Look) -> bool:
        revision, until = self._unwritable.get(str(look.schedule.name), (0, 0.0))
        return revision == look.schedule.revision and self._clock.monotonic() < until

    def _rest(self, looked: Looked, decisions: Sequence[Decision], accepted: Sequence[bool | None]) -> Directive:
        """Sleep until the next slot; look at once if there is more, and soon if somebody else was faster with some."""
        if False in accepted:
            return self._sleep(GAP)
        if len(looked.looks) == MOST:
            return Proceed() if any(accepted) else self._sleep(GAP)
        written = [decision.after for decision, was in zip(decisions, accepted, strict=True) if was]
        known = [after.next_at for after in written if after and after.next_at]
        instants = [*known, looked.next_at] if looked.next_at else known
        if not instants:
            return self._sleep(REARM)
        slot = min(instants)
        return self._sleep((slot - self._store.now()).total_seconds(), turn=self._turn(slot))

    def _sleep(self, time: float, *, turn: float = 0.0) -> Directive:
        if self._tick is not None:
            self._look_at = self._clock.monotonic() + self._tick
            return Sleep(self._tick)
        rest = min(REARM, max(LEAST, time + turn))
        self._look_at = self._clock.monotonic() + rest
        self._slot_at = self._look_at - turn
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
        level = logging.WARNING if run.reason in _WORTH_A_WARNING else logging.DEBUG if told else logging.INFO
        log.log(level, "schedule %s: no job for %s, %s", run.schedule, _slots(run), WHY[run.reason])

    def _tell_of_unreadable(self, looked: Looked) -> None:
        for name, problem in looked.unreadable.items():
            if self._unreadable.get(name) != problem:
                self._unreadable[name] = problem
                self._events.count("unreadable_schedules")
                log.error("schedule %s cannot be understood here, and does nothing on this node: %s", name, problem)


def _order(slot: datetime, node: NodeId) -> tuple[int, NodeId]:
    return crc32(f"{slot.timestamp()} {node}".encode()), node


def _slots(run: Run) -> str:
    """Say which slots a run is about."""
    first, last = (slot.isoformat(" ", "seconds") if slot else "" for slot in (run.slot, run.last))
    return f"the slot of {first}" if run.count == 1 else f"{run.count:,} slots from {first} to {last}"


async def cancel(store: Store, jobs: Sequence[JobId]) -> None:
    """Cancel what has not finished: at once if it waits, as a request if it runs."""
    left = [view.job for view in await store.get(jobs) if view]
    while left := [job for job in left if job.state not in FINISHED and job.cancel_requested_at is None]:
        changes = [command(job, CancelJob(), store.now()) for job in left]
        answers = await store.settle([Settlement(change=change) for change in changes])
        left = [answer.job for answer in answers if answer.verdict is Verdict.STALE and answer.job]


def _task(look: Look) -> Name:
    return look.schedule.plan.template.task
