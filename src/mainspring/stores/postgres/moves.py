"""Moving schedules on.

A move is written from the revision that it was decided on, all of it in one transaction with the others of its call. It
waits for nobody who has a schedule or a run in hand, so that one transaction that was left open does not hold up all
schedules: what is not to be had is left to another transaction, which is patient for a moment (`moving.py`).
"""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from operator import itemgetter
from typing import Final, NamedTuple
from uuid import UUID

from mainspring.core.names import Name
from mainspring.core.schedule import Run, Schedule
from mainspring.errors import ScheduleError
from mainspring.stores.postgres import mixed, runs
from mainspring.stores.postgres.rows import columns, key_bytes
from mainspring.stores.postgres.statements import statement
from mainspring.stores.postgres.verb import Ask, Verb
from mainspring.stores.records import Move, NewJob, Unread
from mainspring.stores.schedules import kept_runs, schedule_bytes

_HOLD: Final = statement("schedules_hold")
_THERE: Final = statement("schedules_there")
_WAIT: Final = statement("schedules_wait")
_NAME: Final = statement("schedules_name")
_ADD: Final = statement("schedules_add")
_WRITE: Final = statement("schedules_write")
_GIVE: Final = statement("schedules_give")
_REMOVE: Final = statement("schedules_remove")
_WAKE_IDLE: Final = statement("schedules_wake_idle")
_ANSWERED: Final = statement("schedules_answered")
_ANSWER: Final = statement("schedules_answer")
_TRY_AGAIN: Final = statement("schedules_try_again")
_BE_BRIEF: Final = statement("schedules_be_brief")

_FIRST_PAUSE: Final = 0.005
"""Seconds between the first two looks whether a schedule that somebody has in hand is to be had; then twice as many."""


class Step(NamedTuple):
    """A move, with what is asked of it again and again."""

    place: int
    """In its call."""
    name: str
    before: Schedule | Unread | None
    after: Schedule | None
    record: bytes
    runs: tuple[Run, ...]
    jobs: tuple[NewJob, ...]
    keep_runs: timedelta

    @classmethod
    def of(cls, place: int, move: Move) -> "Step":
        subject = move.after or move.before
        if subject is None:
            raise ScheduleError("move", "it leads from nothing to nothing")
        return cls(
            place,
            str(subject.name),
            move.before,
            move.after,
            b"" if move.after is None else schedule_bytes(move.after),
            move.runs,
            move.jobs,
            kept_runs(subject),
        )

    @property
    def slots(self) -> list[tuple[tuple[str, datetime], UUID]]:
        """The slots for which it makes jobs, and their runs."""
        return [((self.name, run.slot), run.id) for run in self.runs if run.reason is None and run.slot is not None]

    @property
    def keys(self) -> set[tuple[Name, str]]:
        """The unique keys that its jobs want, each within its task."""
        return {(job.task, job.unique.key) for job in self.jobs if job.unique is not None}

    @property
    def waits(self) -> bool:
        return self.after is not None and _waits(self.after)

    @property
    def revision(self) -> int:
        """The one from which it leads."""
        return self.before.revision if self.before else 0

    def row(self, after: Schedule) -> tuple[object, ...]:
        return (
            self.name,
            after.revision,
            after.next_at,
            after.waits,
            after.paused is not None,
            after.last_end,
            self.record,
        )


class Call:
    """Moves of one call, and how often it was tried: the answer to a try may have got lost after its commit."""

    def __init__(self, id_: UUID, steps: Sequence[Step]) -> None:
        self.id: Final = id_
        self.steps: Final = steps
        self.tries = 0


class Moved(NamedTuple):
    """What became of the moves of a call."""

    accepted: set[int]
    left: set[int]
    """Those of which somebody else has the schedule in hand."""


def move(at: datetime | None, call: Call, patience: float | None = None) -> Verb[Moved]:
    """Write moves, each whole or not at all. Several statements, in one transaction.

    With `patience` what somebody has in hand is waited for, so many seconds.
    """
    call.tries += 1
    if call.tries > 1 and not (yield Ask(_TRY_AGAIN, (at, call.id))):
        return (yield from _answered(call))
    if patience is not None:
        yield Ask(_BE_BRIEF, (f"{round(1000 * patience)}ms",))
    yield from mixed.hold_keys([job for step in call.steps for job in step.jobs])
    batch = _Batch(at, patience or 0.0)
    for steps in _rounds(call.steps):
        yield from batch.round([step for step in steps if step.name not in batch.left])
    yield from batch.make_jobs()
    accepted = {step.place for step in batch.accepted}
    if accepted:
        yield Ask(_ANSWER, (at, call.id, [step.place in accepted for step in call.steps]))
    return Moved(accepted, {step.place for step in call.steps if step.name in batch.left})


def _answered(call: Call) -> Verb[Moved]:
    """Read what an earlier try has done, whose answer was lost; what that did not do may still be to be had."""
    ((accepted,),) = yield Ask(_ANSWERED, (call.id,))
    # Nothing at all stands there, if that try had come to nothing.
    done = {step.place for step, was_accepted in zip(call.steps, accepted, strict=False) if was_accepted}
    return Moved(done, {step.place for step in call.steps} - done)


def _rounds(steps: Sequence[Step]) -> Iterator[list[Step]]:
    """Divide moves, so that no schedule comes twice in one part. There is rarely a second."""
    left = sorted(steps, key=itemgetter(0))
    while left:
        now: dict[str, Step] = {}
        later: list[Step] = []
        for step in left:
            if step.name in now:
                later.append(step)
            else:
                now[step.name] = step
        yield [now[name] for name in sorted(now)]
        left = later


class _Batch:
    """Moves while they are written: schedules and runs round by round, then the jobs of all."""

    def __init__(self, at: datetime | None, patience: float) -> None:
        self._at = at
        self._patience = patience
        self._awaited: dict[UUID, str] = {}
        """Open runs that are held, and their schedules."""
        self.accepted: list[Step] = []
        self.left: set[str] = set()
        """Schedules that somebody else has in hand."""

    def round(self, steps: list[Step]) -> Verb[None]:
        """Write moves of different schedules, by name."""
        waiting = [step.name for step in steps if step.waits]
        if waiting:
            self._awaited |= yield from runs.hold_open(waiting)
        held = yield from self._hold([step for step in steps if step.before is not None])
        held |= yield from self._name([step for step in steps if step.before is None])
        fitting = yield from self._with_free_slots([step for step in steps if step.name in held])
        yield from self._write(fitting)
        self.accepted += fitting

    def _hold(self, steps: Sequence[Step]) -> Verb[set[str]]:
        """Hold schedules that are at the revision from which they are to be moved."""
        held: set[str] = set()
        pause = _FIRST_PAUSE
        while steps:
            held |= {name for (name,) in (yield Ask(_HOLD, _revisions(steps)))}
            steps = [step for step in steps if step.name not in held]
            in_hand = {name for (name,) in (yield Ask(_THERE, _revisions(steps)))} if steps else set()
            steps = [step for step in steps if step.name in in_hand]
            if not steps or self._patience <= 0:
                break
            yield Ask(_WAIT, (min(pause, self._patience),))
            self._patience -= pause
            pause *= 2
        self.left |= {step.name for step in steps}
        return held

    def _name(self, steps: Sequence[Step]) -> Verb[set[str]]:
        """Take in the names of schedules that are not there."""
        if not steps:
            return set()
        names = columns([(step.name, key_bytes(step.after.owner if step.after else None)) for step in steps])
        return {name for (name,) in (yield Ask(_NAME, names))}

    def _with_free_slots(self, steps: list[Step]) -> Verb[list[Step]]:
        """Leave out moves that make a job for a slot that has one. Who holds a schedule is the only one to give it any."""
        slots = [slot for step in steps for slot, _ in step.slots]
        if not slots:
            return steps
        taken = yield from runs.with_job(slots)
        free = [step for step in steps if _are_free(step.slots, taken)]
        places = {step.place for step in free}
        named = [step for step in steps if step.before is None and step.place not in places]
        if named:
            yield Ask(_REMOVE, _revisions(named))
        return free

    def _write(self, steps: Sequence[Step]) -> Verb[None]:
        added = [step.row(step.after) for step in steps if step.after and not step.before]
        if added:
            yield Ask(_ADD, columns(added))
        changed = [(*step.row(step.after), step.revision) for step in steps if step.after and step.before]
        if changed:
            yield Ask(_WRITE, columns(changed))
        given = [
            (step.name, key_bytes(step.after.owner))
            for step in steps
            if step.after and isinstance(step.before, Schedule) and step.after.owner != step.before.owner
        ]
        if given:
            yield Ask(_GIVE, columns(given))
        removed = [step for step in steps if step.after is None]
        if removed:
            yield Ask(_REMOVE, _revisions(removed))
        written = [(run, step.keep_runs) for step in steps for run in step.runs]
        if written:
            yield from runs.write(written)

    def make_jobs(self) -> Verb[None]:
        """Make the jobs of what was accepted; then have those looked at that wait for a run and have none."""
        steps = sorted(self.accepted, key=itemgetter(0))
        jobs = [job for step in steps for job in step.jobs]
        lost = (yield from mixed.make(self._at, jobs)) if jobs else set()
        if lost:
            yield from runs.lose_jobs(lost)
        own = {run.id: step.name for step in steps for run in step.runs if run.is_open}
        busy = {name for run, name in (self._awaited | own).items() if run not in lost}
        last = {step.name: step.after for step in steps}
        idle = [(name, after.revision) for name, after in last.items() if after and _waits(after) and name not in busy]
        if idle:
            yield Ask(_WAKE_IDLE, (self._at, *columns(idle)))


def _revisions(steps: Sequence[Step]) -> tuple[list[str], list[int]]:
    return [step.name for step in steps], [step.revision for step in steps]


def _waits(schedule: Schedule) -> bool:
    """Say whether the end of a run is awaited; while a schedule is paused, nobody looks."""
    return schedule.waits and schedule.paused is None


def _are_free(slots: Iterable[tuple[tuple[str, datetime], UUID]], taken: dict[tuple[str, datetime], UUID]) -> bool:
    own: dict[tuple[str, datetime], UUID] = {}
    for slot, id_ in slots:
        if slot in own or taken.get(slot, id_) != id_:
            return False
        own[slot] = id_
    return True
