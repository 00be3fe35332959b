"""The schedules of a store, for programs and people: `app.schedules`.

Each method that changes something is one step of the schedule, written from the state that it was chosen on; if a node
ticked in between, it is chosen again. Twins for code without an event loop end in `_sync`.
"""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import partial
from itertools import islice
from typing import Any, Final, Unpack
from uuid import UUID

from msgspec.structs import replace

from mainspring.client.backfill import MOST_BACKFILLED, past_slots, without_job
from mainspring.client.calls import Call
from mainspring.client.connection import Connection
from mainspring.client.options import Priority, Reader, read_all, read_count, read_moment, read_priority
from mainspring.client.plans import ScheduleOptions, changed, plan_of
from mainspring.core import steps as core
from mainspring.core.job import JobId
from mainspring.core.names import Name
from mainspring.core.rules import Once, Rule
from mainspring.core.schedule import Decision, Schedule
from mainspring.errors import DeclarationError, NameTaken, ScheduleError
from mainspring.handle import JobHandle
from mainspring.ids import new_id
from mainspring.runtime.firing import move_of
from mainspring.runtime.planned import TRIES, fresh, look_at, step
from mainspring.stores.port import Store
from mainspring.stores.records import Look, Move, RunFilter, RunPage, SchedulePage

Handles = Callable[[JobId, Name], JobHandle[Any]]
Own = Callable[[list[Call[Any]]], object]
"""Raises for calls of tasks that this app does not have."""


class Schedules:
    """Add, look at, change, pause, resume, reset, run, backfill and remove schedules, by their names."""

    def __init__(self, connection: Connection, handle: Handles, own: Own) -> None:
        self._connection = connection
        self._handle = handle
        self._own = own

    # Looking.

    async def get(self, name: str) -> Schedule:
        """Read a schedule, or raise `UnknownSchedule`."""
        store = await self._connection.store()
        look, _ = await look_at(store, Name.parse(name))
        return look.schedule

    async def list(self, *, owner: str | None = None, limit: int = 100, after: str | None = None) -> SchedulePage:
        """List schedules by name; the next page begins `after` the page's own."""
        _read_limit(limit)
        store = await self._connection.store()
        return await store.list_schedules(owner=owner, limit=limit, after=after)

    async def runs(self, name: str | None = None, *, limit: int = 100, after: UUID | None = None) -> RunPage:
        """List what happened at the slots of a schedule, or of all, the last decided first."""
        _read_limit(limit)
        store = await self._connection.store()
        which = RunFilter(schedule=None if name is None else Name.parse(name))
        return await store.runs(which, limit=limit, after=after)

    # Changing.

    async def add(self, name: str, rule: Rule, call: Call[Any], /, **options: Unpack[ScheduleOptions]) -> Schedule:
        """Add a schedule at run time: `await app.schedules.add("nightly", Cron("0 2 * * *"), report.call())`.

        It belongs to nobody's declarations, and stays until it is removed. `NameTaken` if there is one of that name.
        """
        plan = plan_of(f"schedule {name!r}", rule, call, options)
        self._own([call])
        self._ask(name, (plan.template.task, plan.template.queue))
        store = await self._connection.store()
        looked = await store.look([Name.parse(name)])
        if isinstance(rule, Once) and rule.when <= looked.now:
            raise ScheduleError(f"schedule {name!r}", f"{rule.when.isoformat()} has passed already")
        if plan.until is not None and plan.until <= looked.now:
            raise ScheduleError(f"schedule {name!r}", f"until {plan.until.isoformat()} has passed already")
        decision = fresh(Name.parse(name), plan, looked.now, next(iter(looked.former), None))
        (accepted,) = await store.move([move_of(decision)])
        if not accepted or decision.after is None:
            raise NameTaken(name, "schedule")
        return decision.after

    async def change(
        self, name: str, /, rule: Rule | None = None, call: Call[Any] | None = None, **options: Unpack[ScheduleOptions]
    ) -> Schedule:
        """Change a schedule from now on; what is left out stays. What it owes is decided before, as it was declared.

        `until=None` and `max_runs=None` take an end back. One that is declared in code is declared again when its
        program next starts.
        """
        self._ask(name, (call.definition.name, call.queue) if isinstance(call, Call) else None)

        def choose(look: Look, now: datetime) -> Decision:
            there = look.schedule
            plan = changed(there.plan, rule, call, options, f"schedule {name!r}")
            if call is not None:
                self._own([call])
            # While it was over nothing was owed, and nothing shall be when it goes on.
            base = replace(there, cursor=max(now, there.cursor)) if there.is_over else there
            ids, busy = partial(new_id, now), bool(look.open)
            decision = core.change(base, plan, now, ids, busy=busy, owner=there.owner, release=there.release)
            return replace(decision, before=there)

        return await self._step(name, choose, owed_first=True)

    async def pause(self, name: str, *, by: str = "", reason: str = "") -> Schedule:
        """Have a schedule make no jobs until it is resumed. What it made before goes on."""
        texts = (isinstance(by, str), "by is text, as in by='ann'"), (isinstance(reason, str), "reason is text")
        ScheduleError.unless(f"schedule {name!r}", texts)
        return await self._step(name, lambda look, now: core.pause(look.schedule, now, by=by, reason=reason))

    async def resume(self, name: str) -> Schedule:
        """Let a schedule go on from now. Slots of the meantime make no job; one run tells how many there were."""

        def choose(look: Look, now: datetime) -> Decision:
            return core.resume(look.schedule, now, partial(new_id, now), busy=bool(look.open))

        return await self._step(name, choose)

    async def reset(self, name: str) -> Schedule:
        """Have a schedule go on from now that was decided for later, because the store's clock was ahead for a while.

        Its slots come up again from now on, but for those that have a job. `ScheduleError` if it is not ahead.
        """
        return await self._step(name, lambda look, now: core.reset(look.schedule, now, busy=bool(look.open)))

    async def remove(self, name: str) -> None:
        """Take a schedule away. Its jobs go on, and its runs are kept for as long as they would have been."""
        self._ask(name)
        store = await self._connection.store()
        for unread in (await store.look([Name.parse(name)])).unread:  # nobody else would ever get rid of it
            if (await store.move([Move(before=unread, after=None)]))[0]:
                return
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

    async def backfill(
        self, name: str, start: datetime, end: datetime, *, priority: Priority | None = None
    ) -> tuple[JobHandle[Any], ...]:
        """Make jobs for the slots from `start` to `end` that have none, oldest first; returns those that were made.

        `end` must have come already: what is still to come is the schedule's own. Not further back than runs are
        kept, because nobody knows what became of earlier slots; and a thousand at a time. They are all due at once,
        whatever `overlap` says; a low `priority` has them stand behind others.
        """
        self._ask(name)
        start, end, chosen = _read_backfill(name, start, end, priority)
        store = await self._connection.store()
        for _ in range(TRIES):
            look, now = await look_at(store, Name.parse(name))
            slots = list(islice(past_slots(look.schedule, start, end, now), MOST_BACKFILLED + 1))
            if len(slots) > MOST_BACKFILLED:
                problem = f"these are more than {MOST_BACKFILLED} slots; backfill a part at a time"
                raise ScheduleError(f"schedule {name!r}", problem)
            # Read after the look: who makes a job for one of them from here on moves the schedule on.
            missing = await without_job(store, look.schedule, slots)
            decision = core.backfill(look.schedule, missing, now, partial(new_id, now))
            if (await store.move([_with_priority(move_of(decision), chosen)]))[0]:
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
        self, name: str, /, rule: Rule | None = None, call: Call[Any] | None = None, **options: Unpack[ScheduleOptions]
    ) -> Schedule:
        return self._connection.wait_for(lambda: self.change(name, rule, call, **options))

    def get_sync(self, name: str) -> Schedule:
        return self._connection.wait_for(lambda: self.get(name))

    def pause_sync(self, name: str, *, by: str = "", reason: str = "") -> Schedule:
        return self._connection.wait_for(lambda: self.pause(name, by=by, reason=reason))

    def resume_sync(self, name: str) -> Schedule:
        return self._connection.wait_for(lambda: self.resume(name))

    def reset_sync(self, name: str) -> Schedule:
        return self._connection.wait_for(lambda: self.reset(name))

    def remove_sync(self, name: str) -> None:
        self._connection.wait_for(lambda: self.remove(name))

    def run_sync(self, name: str) -> JobHandle[Any]:
        return self._connection.wait_for(lambda: self.run(name))

    def backfill_sync(
        self, name: str, start: datetime, end: datetime, *, priority: Priority | None = None
    ) -> tuple[JobHandle[Any], ...]:
        return self._connection.wait_for(lambda: self.backfill(name, start, end, priority=priority))

    def list_sync(self, *, owner: str | None = None, limit: int = 100, after: str | None = None) -> SchedulePage:
        return self._connection.wait_for(lambda: self.list(owner=owner, limit=limit, after=after))

    def runs_sync(self, name: str | None = None, *, limit: int = 100, after: UUID | None = None) -> RunPage:
        return self._connection.wait_for(lambda: self.runs(name, limit=limit, after=after))


def _read_limit(limit: int) -> None:
    _, problems = read_all({"limit": limit}, {"limit": read_count})
    DeclarationError.unless("schedules", ((False, problem) for problem in problems))


def _read_backfill(
    name: str, start: datetime, end: datetime, priority: Priority | None
) -> tuple[datetime, datetime, int | None]:
    given = {"start": start, "end": end, "priority": priority}
    values, problems = read_all(given, _BACKFILL)
    problems += [f"{one} is missing" for one in ("start", "end") if given[one] is None]
    ScheduleError.unless(f"schedule {name!r}", ((False, problem) for problem in problems))
    return values["start"].astimezone(UTC), values["end"].astimezone(UTC), values.get("priority")


def _with_priority(move: Move, priority: int | None) -> Move:
    if priority is None:
        return move
    return replace(move, jobs=tuple(replace(job, priority=priority) for job in move.jobs))


_BACKFILL: Final[Mapping[str, Reader]] = {"start": read_moment, "end": read_moment, "priority": read_priority}
