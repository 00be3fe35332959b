"""The schedules of a store, for programs and people: `app.schedules`.

Each method that changes something is one step of the schedule, written from the state that it was chosen on; if a node
ticked in between, it is chosen again. Twins for code without an event loop end in `_sync`.
"""

from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from itertools import islice
from typing import Any, Final, Unpack
from uuid import UUID

from mainspring.client.calls import Call
from mainspring.client.connection import Connection
from mainspring.client.options import read_moment
from mainspring.client.plans import ScheduleOptions, changed, plan_of
from mainspring.core import schedule as core
from mainspring.core.job import JobId
from mainspring.core.missed import MOMENT
from mainspring.core.names import Name
from mainspring.core.rules import Once, Rule
from mainspring.core.schedule import Decision, Schedule
from mainspring.errors import NameTaken, ScheduleError
from mainspring.handle import JobHandle
from mainspring.ids import new_id
from mainspring.runtime.firing import move_of
from mainspring.runtime.planned import TRIES, beginning, look_at, step
from mainspring.stores.port import Store
from mainspring.stores.records import Look, RunFilter, RunPage, SchedulePage

MOST_BACKFILLED: Final = 1000
"""Slots that one backfill may make jobs for: they all come up at once."""

Handles = Callable[[JobId, Name], JobHandle[Any]]


class Schedules:
    """Add, look at, change, pause, resume, run, backfill and remove schedules, by their names."""

    def __init__(self, connection: Connection, handle: Handles) -> None:
        self._connection = connection
        self._handle = handle

    # Looking.

    async def get(self, name: str) -> Schedule:
        """Read a schedule, or raise `UnknownSchedule`."""
        store = await self._connection.store()
        look, _ = await look_at(store, Name.parse(name))
        return look.schedule

    async def list(self, *, owner: str | None = None, limit: int = 100, after: str | None = None) -> SchedulePage:
        """List schedules by name; the next page begins `after` the page's own."""
        store = await self._connection.store()
        return await store.list_schedules(owner=owner, limit=limit, after=after)

    async def runs(self, name: str | None = None, *, limit: int = 100, after: UUID | None = None) -> RunPage:
        """List what happened at the slots of a schedule, or of all, the newest first."""
        store = await self._connection.store()
        which = RunFilter(schedule=None if name is None else Name.parse(name))
        return await store.runs(which, limit=limit, after=after)

    # Changing.

    async def add(self, name: str, rule: Rule, call: Call[Any], /, **options: Unpack[ScheduleOptions]) -> Schedule:
        """Add a schedule at run time: `await app.schedules.add("nightly", Cron("0 2 * * *"), report.call())`.

        It belongs to nobody's declarations, and stays until it is removed. `NameTaken` if there is one of that name.
        """
        plan = plan_of(f"schedule {name!r}", rule, call, options)
        self._ask(name, (plan.template.task, plan.template.queue))
        store = await self._connection.store()
        looked = await store.look([Name.parse(name)])
        if isinstance(rule, Once) and rule.when <= looked.now:
            raise ScheduleError(f"schedule {name!r}", f"{rule.when.isoformat()} has passed already")
        decision = core.create(Name.parse(name), plan, await beginning(store, Name.parse(name), looked.now))
        (accepted,) = await store.move([move_of(decision)])
        if not accepted or decision.after is None:
            raise NameTaken(name)
        return decision.after

    async def change(
        self, name: str, rule: Rule | None = None, call: Call[Any] | None = None, /, **options: Unpack[ScheduleOptions]
    ) -> Schedule:
        """Change a schedule from now on; what is left out stays. What it owes is decided before, as it was declared.

        One that is declared in code is declared again when its program next starts.
        """
        self._ask(name, None if call is None else (call.definition.name, call.queue))

        def choose(look: Look, now: datetime) -> Decision:
            there = look.schedule
            plan = changed(there.plan, rule, call, options, f"schedule {name!r}")
            return core.change(there, plan, now, partial(new_id, now), owner=there.owner, release=there.release)

        return await self._step(name, choose, owed_first=True)

    async def pause(self, name: str, *, by: str = "", reason: str = "") -> Schedule:
        """Have a schedule make no jobs until it is resumed. What it made before goes on."""
        return await self._step(name, lambda look, now: core.pause(look.schedule, now, by=by, reason=reason))

    async def resume(self, name: str) -> Schedule:
        """Let a schedule go on from now. Slots of the meantime make no job; one run tells how many there were."""
        return await self._step(name, lambda look, now: core.resume(look.schedule, now, partial(new_id, now)))

    async def remove(self, name: str) -> None:
        """Take a schedule away. Its jobs go on, and its runs are kept for as long as they would have been."""
        self._ask(name)
        store = await self._connection.store()
        await step(store, Name.parse(name), lambda look, _: core.remove(look.schedule))

    async def run(self, name: str) -> JobHandle[Any]:
        """Make a job of it now, whatever its rule says, and whether or not it is paused."""
        self._ask(name)
        store = await self._connection.store()
        decision = await step(
            store, Name.parse(name), lambda look, now: core.run_now(look.schedule, now, partial(new_id, now))
        )
        made = await self._made(store, decision)
        if not made:
            raise ScheduleError(f"schedule {name!r}", "it made no job: another one has the unique key of its job")
        return made[0]

    async def backfill(self, name: str, start: datetime, end: datetime) -> tuple[JobHandle[Any], ...]:
        """Make jobs for the slots from `start` to `end` that have none, oldest first; returns those that were made.

        `end` must have come already: what is still to come is the schedule's own. Not further back than runs are
        kept, because nobody knows what became of earlier slots; and a thousand at a time.
        """
        self._ask(name)
        start, end = read_moment(start).astimezone(UTC), read_moment(end).astimezone(UTC)
        store = await self._connection.store()
        parsed = Name.parse(name)
        which = RunFilter(schedule=parsed, after_slot=start - MOMENT, until_slot=end, with_job=True)
        for _ in range(TRIES):
            look, now = await look_at(store, parsed)
            slots = _past_slots(look.schedule, start, end, now)
            # Read after the look: who makes a job for one of them from here on moves the schedule on.
            taken = await _slots_with_jobs(store, which)
            missing = [slot for slot in slots if slot not in taken]
            decision = core.backfill(look.schedule, missing, now, partial(new_id, now))
            if (await store.move([move_of(decision)]))[0]:
                return await self._made(store, decision)
        raise ScheduleError(f"schedule {name!r}", "it changed all the time; pause it, and backfill then")

    async def _step(
        self, name: str, choose: Callable[[Look, datetime], Decision], *, owed_first: bool = False
    ) -> Schedule:
        self._ask(name)
        store = await self._connection.store()
        decision = await step(store, Name.parse(name), choose, owed_first=owed_first)
        if decision.after is None:
            raise ScheduleError(f"schedule {name!r}", "it was removed")
        return decision.after

    def _ask(self, name: str, job: tuple[Name, str] | None = None) -> None:
        """Raise `CapabilityError` if a plugin plans what it may not."""
        if self._connection.guard is not None:
            self._connection.guard.change_schedule(Name.parse(name), job)

    async def _made(self, store: Store, decision: Decision) -> tuple[JobHandle[Any], ...]:
        """Hold the jobs of a decision. Those whose unique key was taken have not been made, and their runs say so."""
        if decision.after is None:
            return ()
        template = decision.after.plan.template
        jobs = [run.job for run in decision.runs if run.job]
        if template.unique and jobs:
            jobs = [job for job, view in zip(jobs, await store.get(jobs), strict=True) if view]
        return tuple(self._handle(job, template.task) for job in jobs)

    # For code without an event loop.

    def add_sync(self, name: str, rule: Rule, call: Call[Any], /, **options: Unpack[ScheduleOptions]) -> Schedule:
        return self._connection.wait_for(lambda: self.add(name, rule, call, **options))

    def change_sync(
        self, name: str, rule: Rule | None = None, call: Call[Any] | None = None, /, **options: Unpack[ScheduleOptions]
    ) -> Schedule:
        return self._connection.wait_for(lambda: self.change(name, rule, call, **options))

    def get_sync(self, name: str) -> Schedule:
        return self._connection.wait_for(lambda: self.get(name))

    def pause_sync(self, name: str, *, by: str = "", reason: str = "") -> Schedule:
        return self._connection.wait_for(lambda: self.pause(name, by=by, reason=reason))

    def resume_sync(self, name: str) -> Schedule:
        return self._connection.wait_for(lambda: self.resume(name))

    def remove_sync(self, name: str) -> None:
        self._connection.wait_for(lambda: self.remove(name))

    def run_sync(self, name: str) -> JobHandle[Any]:
        return self._connection.wait_for(lambda: self.run(name))

    def backfill_sync(self, name: str, start: datetime, end: datetime) -> tuple[JobHandle[Any], ...]:
        return self._connection.wait_for(lambda: self.backfill(name, start, end))

    def list_sync(self, *, owner: str | None = None, limit: int = 100, after: str | None = None) -> SchedulePage:
        return self._connection.wait_for(lambda: self.list(owner=owner, limit=limit, after=after))

    def runs_sync(self, name: str | None = None, *, limit: int = 100, after: UUID | None = None) -> RunPage:
        return self._connection.wait_for(lambda: self.runs(name, limit=limit, after=after))


def _past_slots(schedule: Schedule, start: datetime, end: datetime, now: datetime) -> list[datetime]:
    """List the slots from `start` to `end` that have been decided, or were before the schedule's time."""
    subject = f"schedule {str(schedule.name)!r}"
    if end > now:
        raise ScheduleError(subject, f"{end.isoformat()} has not come yet; backfill what is past")
    if schedule.plan.counts_from_the_end:
        raise ScheduleError(subject, "it counts from the end of a run to the next, and has no slots of the past")
    slots = list(islice(schedule.plan.rule.between(start - MOMENT, min(end, schedule.cursor)), MOST_BACKFILLED + 1))
    if len(slots) > MOST_BACKFILLED:
        raise ScheduleError(subject, f"these are more than {MOST_BACKFILLED} slots; backfill a part at a time")
    # A held one makes its job later: two for one slot would be refused, and the schedule could not go on.
    return [slot for slot in slots if schedule.held is None or slot != schedule.held.at]


async def _slots_with_jobs(store: Store, which: RunFilter) -> set[datetime | None]:
    """Read all pages: under an earlier rule there may have been far more slots in the same time."""
    page = await store.runs(which, limit=MOST_BACKFILLED)
    found = {run.slot for run in page.runs}
    while page.after:
        page = await store.runs(which, limit=MOST_BACKFILLED, after=page.after)
        found |= {run.slot for run in page.runs}
    return found
