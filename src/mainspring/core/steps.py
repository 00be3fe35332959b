"""Everything that can become of a schedule.

Every function here takes a schedule and returns a `Decision`: the schedule as it is to be, and the runs that are to be
written with it. A store writes both while the schedule is still at the revision that was decided on, else neither.

The cursor goes back only by `reset`, and nothing before the schedule's creation is owed, so that neither a clock that is
set back nor a second node decides a slot twice. A slot that made its job before a `reset` is passed over.
"""

from collections.abc import Callable, Collection, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final, TypeAlias
from uuid import UUID

from msgspec.structs import replace

from mainspring.core.missed import MOMENT, Owed, Reason, Span, owed, span
from mainspring.core.names import Name
from mainspring.core.rules import Every, same_rule
from mainspring.core.schedule import (
    CANCELLED,
    Decision,
    Origin,
    Overlap,
    Paused,
    Plan,
    Run,
    Schedule,
    Slot,
    has_runs_left,
    slot_after,
)
from mainspring.errors import ScheduleError

IN_TIME: Final = timedelta(minutes=1)
"""A slot that is decided later than this is being caught up with."""
NEXT_TICK: Final = timedelta(seconds=1)
"""Between two helpings of a backlog."""
ASK_AGAIN: Final = timedelta(seconds=30)
"""Before a run that is to be cancelled is told so once more: whoever was to tell it may have died."""
AHEAD: Final = timedelta(minutes=5)
"""A cursor that is further ahead of now than this was written while the clock was ahead."""
MOST_GROWN: Final = 1000
"""After so many growths a run without a job is followed by another: each is a row that is written once more, and while
somebody holds an old snapshot of the database open, every look at it meets all that it was before."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_HOLDING: Final = frozenset({Overlap.QUEUE_ONE, Overlap.CANCEL_PREVIOUS})
"""A slot waits for the end of the run before it."""

Ids: TypeAlias = Callable[[], UUID]


def create(
    name: Name,
    plan: Plan,
    now: datetime,
    *,
    owner: str | None = None,
    release: str = "",
    paused: Paused | None = None,
    known_since: datetime | None = None,
) -> Decision:
    """Begin a schedule: it owes what comes up from now on."""
    plan = _anchored(plan, now)
    fresh = Schedule(
        name=name,
        plan=plan,
        created_at=now,
        cursor=now,
        next_at=None,
        revision=(now - _EPOCH) // MOMENT,
        owner=owner,
        release=release,
        paused=paused,
        known_since=known_since,
    )
    return Decision(before=None, after=replace(fresh, next_at=None if paused else slot_after(fresh, now)))


def change(
    schedule: Schedule, plan: Plan, now: datetime, ids: Ids, *, busy: bool, owner: str | None = None, release: str = ""
) -> Decision:
    """Have a schedule do something else from now on. What it owes is to be decided before, under its old rule."""
    draft = _Draft(replace(schedule, owner=owner, release=release), now, ids, busy=busy)
    if same_rule(plan.rule, schedule.plan.rule):
        plan, cursor = replace(plan, rule=schedule.plan.rule), schedule.cursor
    else:
        plan, cursor = _anchored(plan, now), max(now, schedule.cursor)
        if schedule.paused:
            draft.pass_over(Reason.PAUSED)
    draft.schedule = replace(draft.schedule, plan=plan, cursor=cursor, known_since=_horizon(schedule, now))
    written = _written(schedule, draft.schedule, now, draft.runs, busy=busy)
    if written.after and written.after.held and not written.after.paused:
        # Whether what it waits for is to be cancelled may be another matter now: whoever ticks sees to it at once.
        return replace(written, after=replace(written.after, next_at=now), cancels=False)
    return written


def is_declared(schedule: Schedule, plan: Plan, release: str) -> bool:
    """Say whether a declaration is what a schedule does already."""
    return schedule.release == release and not differences(schedule.plan, plan)


def differences(before: Plan, after: Plan) -> tuple[str, ...]:
    """Name what a plan says differently from the one before."""
    if same_rule(after.rule, before.rule):
        after = replace(after, rule=before.rule)
    changed = (name for name in Plan.__struct_fields__ if getattr(before, name) != getattr(after, name))
    return tuple("call" if name == "template" else name for name in changed)


def pause(schedule: Schedule, now: datetime, *, by: str = "", reason: str = "") -> Decision:
    """Let a schedule stand still. What it owes at the moment makes no job either."""
    if schedule.paused:
        raise ScheduleError(f"schedule {schedule.name}", "it is paused already")
    paused = Paused(at=now, by=by, reason=reason)
    return Decision(before=schedule, after=_revised(replace(schedule, paused=paused, next_at=None)))


def cancel(schedule: Schedule, now: datetime) -> Decision:
    """Take a schedule away: one that code declares, and would declare again, stands still for good instead."""
    if schedule.owner is None:
        return remove(schedule)
    paused = Paused(at=now, by=CANCELLED, reason="it was cancelled")  # whoever has paused it before
    return Decision(before=schedule, after=_revised(replace(schedule, paused=paused, next_at=None)))


def resume(schedule: Schedule, now: datetime, ids: Ids, *, busy: bool) -> Decision:
    """Let a schedule go on. What came up meanwhile, or was held back before, makes no job: one run tells of it."""
    if not schedule.paused:
        raise ScheduleError(f"schedule {schedule.name}", "it is not paused")
    draft = _Draft(replace(schedule, paused=None), now, ids, busy=busy)
    draft.drop_held(Reason.PAUSED)
    draft.pass_over(Reason.PAUSED)
    draft.schedule = replace(draft.schedule, cursor=max(now, schedule.cursor))
    return _written(schedule, draft.schedule, now, draft.runs, busy=busy)


def is_ahead(schedule: Schedule, now: datetime) -> bool:
    """Say whether slots were decided, or a run ended, later than now: the clock was ahead, and has been corrected."""
    return max(schedule.cursor, schedule.last_end or schedule.cursor) > now + AHEAD


def reset(schedule: Schedule, now: datetime, *, busy: bool) -> Decision:
    """Have a schedule that is ahead of the clock go on from now.

    The slots between now and the cursor come up again; those that have a job are to be given to `decide` as `done`.
    """
    if not is_ahead(schedule, now):
        raise ScheduleError(f"schedule {schedule.name}", "it is not ahead of the clock; there is nothing to reset")
    rule, last_end = schedule.plan.rule, schedule.last_end
    if isinstance(rule, Every) and schedule.created_at > now:
        free = replace(rule, start=None)
        rule = free.anchored(now) if rule == free.anchored(schedule.created_at) else rule
    after = replace(
        schedule,
        plan=replace(schedule.plan, rule=rule),
        cursor=now,
        last_end=None if last_end is None else min(last_end, now),
        last_drop=None,
    )
    return _written(schedule, after, now, busy=busy)


def remove(schedule: Schedule) -> Decision:
    """Take a schedule away. Jobs that it made go on."""
    return Decision(before=schedule, after=None)


def run_now(schedule: Schedule, now: datetime, ids: Ids) -> Decision:
    """Make one job at once, whatever the rule says. It has no slot, and counts for no limit."""
    run = _run(schedule, now, ids(), origin=Origin.MANUAL)
    return Decision(before=schedule, after=_revised(schedule), runs=(run,))


def run_again(schedule: Schedule, now: datetime, id_: UUID) -> Decision:
    """Make one more job, because a run asked for it; while the schedule is paused it makes none, and the run says so."""
    run = _run(schedule, now, id_, origin=Origin.MANUAL, reason=Reason.PAUSED if schedule.paused else None)
    return Decision(before=schedule, after=_revised(schedule), runs=(run,))


def backfill(schedule: Schedule, slots: Sequence[datetime], now: datetime, ids: Ids) -> Decision:
    """Make jobs for slots of the past that have none."""
    horizon = _horizon(schedule, now)
    if early := [slot for slot in slots if slot <= horizon]:
        problem = f"{early[0]} is too long ago: what became of slots is known since {horizon}, and who knows whether it had one"
        raise ScheduleError(f"schedule {schedule.name}", problem)
    runs = [_run(schedule, now, ids(), slot=slot, origin=Origin.BACKFILL, is_catch_up=True) for slot in slots]
    return Decision(before=schedule, after=_revised(schedule), runs=tuple(runs))


def _horizon(schedule: Schedule, now: datetime) -> datetime:
    """Say since when it is known what became of slots."""
    kept = now - schedule.plan.keep_runs
    return kept if schedule.known_since is None else max(kept, schedule.known_since)


def decide(
    schedule: Schedule,
    now: datetime,
    ids: Ids,
    *,
    busy: bool,
    shut: Reason | None = None,
    done: Collection[datetime] = (),
) -> Decision:
    """Decide every slot that has come up; `busy` says whether a run of the schedule is open.

    `shut` says why no slot may make a job now, whatever the schedule wants: its task's breaker is open, or nobody has it.
    `done` are slots that have made their job, before the schedule was reset: they are passed over.
    """
    if schedule.paused:
        return _written(schedule, schedule, now)
    draft = _Draft(schedule, now, ids, busy=busy, shut=shut, done=done)
    due = _from_the_end(schedule, now, busy=busy) if schedule.plan.counts_from_the_end else _due(schedule, now)
    slots = [Slot(at=at, is_catch_up=now - at > IN_TIME or at != due.last or due.more) for at in due.chosen]
    if schedule.plan.overlap in _HOLDING:
        draft.hold(due.dropped, slots)
        draft.let_in_held()
    else:
        draft.let_in_held()
        for one in due.dropped:
            draft.drop(one)
        for slot in slots:
            draft.take(slot)
    decided = replace(draft.schedule, cursor=max(schedule.cursor, due.last or schedule.cursor))
    written = _written(schedule, decided, now, draft.runs, busy=draft.busy)
    if due.more and written.after:
        return replace(written, after=replace(written.after, next_at=now + _helping(decided, now)))
    return written


def _helping(schedule: Schedule, now: datetime) -> timedelta:
    """Say how long the rest of a backlog waits: less than it takes to grow by one slot, or it would never end."""
    slot = slot_after(schedule, now)
    later = None if slot is None else slot_after(schedule, slot)
    return NEXT_TICK if slot is None or later is None else min(NEXT_TICK, (later - slot) / 2)


class _Draft:
    """A schedule while its slots are decided one by one."""

    def __init__(
        self,
        schedule: Schedule,
        now: datetime,
        ids: Ids,
        *,
        busy: bool,
        shut: Reason | None = None,
        done: Collection[datetime] = (),
    ) -> None:
        self.schedule = schedule
        self.runs: tuple[Run, ...] = ()
        self.busy = busy
        self._shut = shut
        self._done = done
        self._now = now
        self._ids = ids

    def let_in_held(self) -> None:
        held = self.schedule.held
        if held and not self.busy:
            self.schedule = replace(self.schedule, held=None)
            self._fire(held)

    def take(self, slot: Slot) -> None:
        """Make a job for a slot that waits for nobody, or none at all."""
        if not self.busy or self.schedule.plan.overlap is Overlap.ALLOW:
            self._fire(slot)
        elif has_runs_left(self.schedule):
            self.drop(Span(first=slot.at, last=slot.at, count=1, reason=Reason.OVERLAPPED))

    def hold(self, dropped: Sequence[Span], slots: Sequence[Slot]) -> None:
        """Hold the newest slot in the place of all before it: what is fired must not be superseded already."""
        if slots:
            self.drop_held(Reason.SUPERSEDED)
        for one in dropped:
            self.drop(one)
        for slot in slots:
            self.drop_held(Reason.SUPERSEDED)
            self.schedule = replace(self.schedule, held=slot)

    def drop_held(self, reason: Reason) -> None:
        held = self.schedule.held
        if held:
            self.schedule = replace(self.schedule, held=None)
            self.drop(Span(first=held.at, last=held.at, count=1, reason=reason))

    def pass_over(self, reason: Reason) -> None:
        """Let no slot that has come up make a job. Of a fixed delay none has: the next is counted from now."""
        plan = self.schedule.plan
        if not plan.counts_from_the_end and has_runs_left(self.schedule):
            until = _until(self.schedule, self._now)
            for one in span(plan.rule, reason, after=self.schedule.cursor, until=until):
                self.drop(one)

    def drop(self, dropped: Span) -> None:
        """Tell of slots that made no job, in the run before if that is of the same kind."""
        before, grown = self.schedule.last_drop, self.schedule.last_drop_grown + 1
        if before and before.reason is dropped.reason and before.slot and before.last and grown <= MOST_GROWN:
            first, last = min(before.slot, dropped.first), max(before.last, dropped.last)
            count = before.count + dropped.count
            run = replace(before, slot=first, last=last, count=count, decided_at=self._now)
            self.runs = tuple(one for one in self.runs if one.id != run.id)
        else:
            run = _run(self.schedule, self._now, self._ids(), slot=dropped.first, reason=dropped.reason)
            run, grown = replace(run, last=dropped.last, count=dropped.count), 0
        self.runs = (*self.runs, run)
        self.schedule = replace(self.schedule, last_drop=run, last_drop_grown=grown)

    def _fire(self, slot: Slot) -> None:
        if not has_runs_left(self.schedule) or slot.at in self._done:
            return
        if self._shut:
            self.drop(Span(first=slot.at, last=slot.at, count=1, reason=self._shut))
            return
        run = _run(self.schedule, self._now, self._ids(), slot=slot.at, is_catch_up=slot.is_catch_up)
        self.runs = (*self.runs, run)
        self.busy = True
        self.schedule = replace(self.schedule, runs=self.schedule.runs + 1, last_drop=None)


def _due(schedule: Schedule, now: datetime) -> Owed:
    plan = schedule.plan
    if not has_runs_left(schedule):
        return Owed()
    # Of those that take each other's place only one can make a job: there is nothing to be spread over several ticks.
    missed = replace(plan.missed, per_tick=plan.missed.limit) if plan.overlap in _HOLDING else plan.missed
    return owed(plan.rule, missed, after=schedule.cursor, until=_until(schedule, now), now=now)


def _from_the_end(schedule: Schedule, now: datetime, *, busy: bool) -> Owed:
    """A fixed delay owes one slot at most: so long after the end of the run before."""
    slot = None if busy else slot_after(schedule, schedule.cursor)
    if slot is None or slot > now:
        return Owed()
    if now - slot <= schedule.plan.missed.grace:
        return Owed(chosen=(slot,))
    return Owed(dropped=(Span(first=slot, last=now, count=1, reason=Reason.TOO_OLD),))


def _until(schedule: Schedule, now: datetime) -> datetime:
    return now if schedule.plan.until is None else min(now, schedule.plan.until)


def _written(
    before: Schedule, after: Schedule, now: datetime, runs: tuple[Run, ...] = (), *, busy: bool = False
) -> Decision:
    """Say when to look again, and whether the end of a run is awaited."""
    awaited = busy and after.plan.counts_from_the_end
    cancels = busy and after.held is not None and after.plan.overlap is Overlap.CANCEL_PREVIOUS
    instants = [] if awaited else [slot_after(after, after.cursor)]
    if after.held:
        instants += [now + ASK_AGAIN if cancels else None if busy else now]
    known = [instant for instant in instants if instant is not None]
    next_at = min(known) if known and not after.paused else None
    waits = awaited or after.held is not None
    after = _revised(replace(after, next_at=next_at, waits=waits))
    return Decision(before=before, after=after, runs=runs, cancels=cancels)


def _run(
    schedule: Schedule,
    now: datetime,
    id_: UUID,
    *,
    slot: datetime | None = None,
    origin: Origin = Origin.SLOT,
    is_catch_up: bool = False,
    reason: Reason | None = None,
) -> Run:
    return Run(
        id=id_,
        schedule=schedule.name,
        decided_at=now,
        slot=slot,
        last=slot if reason else None,
        origin=origin,
        is_catch_up=is_catch_up,
        zone=schedule.plan.zone,
        owner=schedule.owner,
        reason=reason,
    )


def _anchored(plan: Plan, now: datetime) -> Plan:
    return replace(plan, rule=plan.rule.anchored(now)) if isinstance(plan.rule, Every) else plan


def _revised(schedule: Schedule) -> Schedule:
    return replace(schedule, revision=schedule.revision + 1)
