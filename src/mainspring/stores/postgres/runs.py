"""Runs: what happened at the slots of schedules, and how their jobs ended.

A run that made a job has the job's id, and the end of the job is written to it in the same transaction. Whoever ends one
writes the run first and looks in a later statement whether its schedule waits for that. Whoever makes a schedule wait
writes its open runs first. So of two that meet, one sees what the other did: the end finds that it is awaited, or the
wait finds that there is nothing left to wait for. An end waits for nobody who has the schedule in hand: it is kept, and
whoever looks for what is due tells the schedule of it (`tell_kept`).
"""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from itertools import groupby
from operator import attrgetter, itemgetter
from typing import Final
from uuid import UUID

from mainspring.core.job import JobId
from mainspring.core.missed import Reason
from mainspring.core.names import Name
from mainspring.core.schedule import Origin, Run
from mainspring.stores.postgres.rows import STATES, columns, key_bytes, key_text, name
from mainspring.stores.postgres.statements import statement
from mainspring.stores.postgres.verb import Ask, Row, Verb
from mainspring.stores.records import RunFilter, RunPage
from mainspring.stores.schedules import OPEN_SHOWN, End, keep_until

_HOLD: Final = statement("runs_hold")
_WITH_SLOTS: Final = statement("runs_with_slots")
_WRITE: Final = statement("runs_write")
_WITHOUT_JOB: Final = statement("runs_without_job")
_END: Final = statement("runs_end")
_LET_GO: Final = statement("runs_let_go")
_AWAITING: Final = statement("schedules_awaiting")
_HOLD_AWAITING: Final = statement("schedules_hold_awaiting")
_WAKE: Final = statement("schedules_wake")
_KEEP_END: Final = statement("ends_add")
_UNTOLD: Final = statement("ends_of_whom")
_TAKE_ENDS: Final = statement("ends_take")
_PAGE: Final = statement("runs_page")
_PAGE_OF_SCHEDULE: Final = statement("runs_page_of_schedule")
_PAGE_OF_SLOTS: Final = statement("runs_page_of_slots")
_LAST_OF_EACH: Final = statement("runs_last")
_LAST: Final = (1 << 128) - 1
_LINGERING_AT_ONCE: Final = 1000
_UNTOLD_AT_ONCE: Final = 1000
_ORIGINS: Final = {str(origin): origin for origin in Origin}
_REASONS: Final = {str(reason): reason for reason in Reason}


def hold_open(schedules: Sequence[str]) -> Verb[dict[UUID, str]]:
    """Hold open runs of schedules that are to wait; says which, and of whom."""
    rows = yield Ask(_HOLD, (list(schedules), OPEN_SHOWN))
    return {row[0]: row[1] for row in rows}


def with_job(slots: Iterable[tuple[str, datetime]]) -> Verb[dict[tuple[str, datetime], UUID]]:
    """Look up the runs that have a job for slots. What is found for a schedule that is held stays true until it is let go."""
    rows = yield Ask(_WITH_SLOTS, columns(list(slots)))
    return {(schedule, slot): id_ for schedule, slot, id_ in rows}


def write(runs: Iterable[tuple[Run, timedelta]]) -> Verb[None]:
    """Write runs, each with how long its schedule keeps them; of two with the same id the later one."""
    yield Ask(_WRITE, columns([*{run.id: _row(run, keep_runs) for run, keep_runs in runs}.values()]))


def lose_jobs(runs: Iterable[UUID]) -> Verb[None]:
    """Have runs say that they made no job, since another has the unique key of theirs."""
    yield Ask(_WITHOUT_JOB, (list(runs), str(Reason.TAKEN)))


def end(now: datetime, ends: Sequence[tuple[JobId, End]]) -> Verb[None]:
    """Write how jobs of schedules ended, or that they go on; schedules that wait for an end are looked at again."""
    rows = [
        (job, None if one.state is None else str(one.state), one.finished_at, key_bytes(one.error))
        for job, one in sorted(ends, key=itemgetter(0))  # in one order for everyone
    ]
    yield from _tell(now, {schedule for schedule, is_open in (yield Ask(_END, columns(rows))) if not is_open})


def let_go(at: datetime | None) -> Verb[None]:
    """Close runs that were open for bodies which have ended: they are few."""
    rows = yield Ask(_LET_GO, (at, _LINGERING_AT_ONCE))
    if rows:
        yield from _tell(rows[0][1], {schedule for schedule, _ in rows})


def _tell(now: datetime, ended: set[str]) -> Verb[None]:
    """Have schedules looked at again that wait for the end of a run."""
    awaiting = sorted(schedule for (schedule,) in (yield Ask(_AWAITING, (list(ended),)))) if ended else []
    if not awaiting:
        return
    held = yield Ask(_HOLD_AWAITING, (awaiting,))
    told = [(schedule, revision, now) for schedule, revision, waits, _ in held if waits]
    if told:
        yield Ask(_WAKE, (now, *columns(told)))
    in_hand = set(awaiting) - {row[0] for row in held}
    if in_hand:
        yield Ask(_KEEP_END, (now, sorted(in_hand)))


def tell_kept(at: datetime | None) -> Verb[bool]:
    """Have schedules looked at that nobody could tell of an end; says whether there are any. Several statements.

    Also those that were told of an earlier end since, since a delay counts from the last.
    """
    rows = yield Ask(_UNTOLD, (at, _UNTOLD_AT_ONCE))
    if not rows:
        return False
    schedules, now = [row[0] for row in rows], rows[0][1]
    held = {row[0]: row for row in (yield Ask(_HOLD_AWAITING, (schedules,)))}
    ends: dict[str, datetime] = {}
    for schedule, ended_at in (yield Ask(_TAKE_ENDS, (schedules, list(held)))):
        ends[schedule] = max(ended_at, ends.get(schedule, ended_at))
    told = [
        (schedule, revision, max(ends[schedule], last_end or ends[schedule]))
        for schedule, revision, _, last_end in held.values()
        if schedule in ends
    ]
    if told:
        yield Ask(_WAKE, (now, *columns(told)))
    return bool(told)


def page(which: RunFilter, limit: int, after: UUID | None) -> Verb[RunPage]:
    """Read a page, newest first. One statement."""
    upto = _LAST if after is None else after.int - 1
    if upto < 0:
        return RunPage(runs=())
    found = [_run(row) for row in (yield _ask(which, UUID(int=upto), limit + 1))]
    runs = tuple(found[:limit])
    return RunPage(runs=runs, after=runs[-1].id if runs and len(found) > limit else None)


def last(schedules: Iterable[Name], limit: int) -> Verb[dict[Name, tuple[Run, ...]]]:
    """Read the last runs of some schedules, newest first. One statement."""
    rows = yield Ask(_LAST_OF_EACH, ([str(one) for one in schedules], limit))
    return {schedule: tuple(some) for schedule, some in groupby(map(_run, rows), key=attrgetter("schedule"))}


def _ask(which: RunFilter, upto: UUID, limit: int) -> Ask:
    if which.schedule is None:
        return Ask(_PAGE, (upto, limit, which.after_slot, which.until_slot, which.with_job))
    schedule = str(which.schedule)
    if which.with_job and which.after_slot is not None and which.until_slot is not None:
        return Ask(_PAGE_OF_SLOTS, (upto, limit, which.after_slot, which.until_slot, schedule))
    return Ask(_PAGE_OF_SCHEDULE, (upto, limit, which.after_slot, which.until_slot, which.with_job, schedule))


def _row(run: Run, keep_runs: timedelta) -> tuple[object, ...]:
    return (
        run.id,
        str(run.schedule),
        run.slot,
        run.last,
        run.count,
        str(run.origin),
        run.is_catch_up,
        run.zone,
        key_bytes(run.owner),
        None if run.reason is None else str(run.reason),
        run.decided_at,
        None if run.state is None else str(run.state),
        run.finished_at,
        key_bytes(run.error),
        run.is_open,
        keep_until(run, keep_runs),
    )


def _run(row: Row) -> Run:
    (
        id_, schedule, slot, last, count, origin, is_catch_up, zone, owner, reason, decided_at, state, finished_at, error,
        is_open,
    ) = row  # fmt: skip
    return Run(
        id=id_,
        schedule=name(schedule),
        slot=slot,
        last=last,
        count=count,
        origin=_ORIGINS[origin],
        is_catch_up=is_catch_up,
        zone=zone,
        owner=key_text(owner),
        reason=None if reason is None else _REASONS[reason],
        decided_at=decided_at,
        state=None if state is None else STATES[state],
        finished_at=finished_at,
        error=key_text(error),
        lingers=is_open and state is not None,
    )
