"""Schedules: which are due, and the writing of their steps, each from the revision that it was decided on."""

from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import Final

from mainspring.core.names import Name
from mainspring.core.schedule import Schedule
from mainspring.errors import ScheduleError
from mainspring.stores.records import Former, Look, Looked, Move, SchedulePage, Unread
from mainspring.stores.schedules import kept_runs, read_schedule, schedule_bytes
from mainspring.stores.sqlite import runs
from mainspring.stores.sqlite.enqueue import enqueue
from mainspring.stores.sqlite.rows import Row, instant, optional_instant, optional_micros
from mainspring.stores.sqlite.session import Session
from mainspring.stores.sqlite.statements import statement

_REVISION: Final = statement("schedule_revision")
_ADD: Final = statement("schedule_add")
_WRITE: Final = statement("schedule_write")
_DROP: Final = statement("schedule_drop")
_WAKE_IDLE: Final = statement("schedule_wake_idle")
_DUE: Final = statement("schedules_due")
_NEXT: Final = statement("schedules_next")
_LOOK: Final = statement("schedule_look")
_FORMER: Final = statement("schedule_former")
_LIST: Final = statement("view_schedules")
_LIST_OF_OWNER: Final = statement("view_schedules_of_owner")
_EVER: Final = -(1 << 63)


class Found:
    """Schedules that were read, and those that could not be."""

    def __init__(self, session: Session) -> None:
        self.looks: list[Look] = []
        self.unread: list[Unread] = []
        self._session = session

    def add(self, rows: Iterable[Row]) -> None:
        for row in rows:
            try:
                self.looks.append(Look(schedule=_schedule(row), open=runs.open_of(self._session, row[0])))
            except ScheduleError as error:
                self.unread.append(Unread(name=row[0], revision=row[1], problem=error.problem))


def due(session: Session, limit: int) -> Looked:
    """Look at what is due. What cannot be read takes no place from what can."""
    found = Found(session)
    at, name = _EVER, ""
    while wanted := max(0, limit - len(found.looks)):
        rows = session.rows_by_name(_DUE, {"now": session.now, "at": at, "name": name, "limit": wanted})
        found.add(rows)
        if rows:
            name, _, at, *_ = rows[-1]
        if len(rows) < wanted:
            break
    following = session.row(_NEXT, (at, name))
    return Looked(
        now=instant(session.now),
        looks=tuple(found.looks),
        next_at=instant(following[0]) if following else None,
        unread=tuple(found.unread),
    )


def look(session: Session, names: Sequence[Name]) -> Looked:
    found = Found(session)
    former: set[Former] = set()
    for name in map(str, names):
        rows = session.rows(_LOOK, (name,))
        found.add(rows)
        if not rows:
            slots = session.rows_by_name(_FORMER, {"name": name})
            former |= {Former(name=name, last_slot=optional_instant(slot)) for (slot,) in slots}
    return Looked(
        now=instant(session.now),
        looks=tuple(found.looks),
        unread=tuple(found.unread),
        former=tuple(sorted(former, key=attrgetter("name"))),
    )


def list_schedules(session: Session, owner: str | None, limit: int, after: str | None) -> SchedulePage:
    wanted = {"owner": owner, "after": after or "", "limit": limit + 1}
    rows = session.rows_by_name(_LIST if owner is None else _LIST_OF_OWNER, wanted)
    found = Found(session)
    found.add(rows[:limit])
    return SchedulePage(
        now=instant(session.now),
        looks=tuple(found.looks),
        after=rows[limit - 1][0] if len(rows) > limit > 0 else None,
        unread=tuple(found.unread),
    )


def move(session: Session, moves: Sequence[Move]) -> list[bool]:
    """Write steps, each whole or not at all: whether it may be is found out before anything of it is written.

    Schedules and runs first, then all jobs together: one of them may end another, and then that one's run must be there.
    """
    answers = [_accept(session, one) for one in moves]
    accepted = [one for one, answer in zip(moves, answers, strict=True) if answer]
    jobs = [job for one in accepted for job in one.jobs]
    made = enqueue(session, jobs, may_raise=False)
    runs.without_job(session, [job.id for job, answer in zip(jobs, made, strict=True) if answer.id != job.id])
    for one in accepted:
        if one.after is not None and one.after.waits:
            session.rows_by_name(_WAKE_IDLE, {"now": session.now, "name": str(one.after.name)})
    if accepted:
        session.woke = True
    return answers


def _accept(session: Session, one: Move) -> bool:
    """Write the step of a schedule and its runs, if it is at the revision that the step was decided on."""
    subject = one.after or one.before
    if subject is None:
        raise ScheduleError("move", "it leads from nothing to nothing")
    name = str(subject.name)
    there = session.row(_REVISION, (name,))
    if there != (None if one.before is None else (one.before.revision,)) or runs.is_taken(session, one.runs):
        return False
    if one.after is None:
        session.run(_DROP, (name,))
    else:
        session.run(_ADD if one.before is None else _WRITE, _row(one.after))
    if one.runs:
        runs.put(session, one.runs, kept_runs(subject))
    return True


def _row(schedule: Schedule) -> tuple[object, ...]:
    return (
        schedule.owner,
        schedule.revision,
        optional_micros(schedule.next_at),
        schedule.waits,
        schedule.paused is not None,
        optional_micros(schedule.last_end),
        schedule_bytes(schedule),
        str(schedule.name),
    )


def _schedule(row: Row) -> Schedule:
    name, revision, next_at, waits, last_end, record = row
    return read_schedule(
        name,
        record,
        revision=revision,
        next_at=optional_instant(next_at),
        waits=bool(waits),
        last_end=optional_instant(last_end),
    )
