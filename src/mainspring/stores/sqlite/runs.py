"""Runs: what happened at slots. Those with a job end with it, in the transaction that ends it."""

from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Final
from uuid import UUID

from mainspring.core.job import JobId
from mainspring.core.machine import Change
from mainspring.core.missed import Reason
from mainspring.core.names import Name
from mainspring.core.schedule import Origin, Run
from mainspring.stores.records import RunFilter, RunPage
from mainspring.stores.schedules import OPEN_SHOWN, end_of, keep_until
from mainspring.stores.sqlite.rows import (
    STATES,
    Row,
    clean,
    instant,
    job_id,
    micros,
    name,
    optional_instant,
    optional_micros,
)
from mainspring.stores.sqlite.session import Session
from mainspring.stores.sqlite.statements import statement

_PUT: Final = statement("run_put")
_END: Final = statement("run_end")
_LET_GO: Final = statement("run_let_go")
_TAKEN: Final = statement("run_taken")
_WITH_JOB: Final = statement("run_with_job")
_OPEN: Final = statement("runs_open")
_WAKE: Final = statement("schedule_wake")
_LIST: Final = statement("view_runs")
_LIST_OF_SCHEDULE: Final = statement("view_runs_of_schedule")
_LIST_OF_SLOTS: Final = statement("view_runs_of_slots")
_LAST: Final = b"\xff" * 17
"""Sorts after every id."""
_FOREVER: Final = (1 << 63) - 1


def put(session: Session, runs: Iterable[Run], keep: timedelta) -> None:
    """Write runs, over what is there under their ids."""
    session.run_many(_PUT, [_row(run, keep) for run in runs])


def without_job(session: Session, ids: Iterable[UUID]) -> None:
    """Write that the unique keys of these runs' jobs were taken."""
    session.run_many(_TAKEN, [(id_.bytes,) for id_ in ids])


def end(session: Session, changes: Iterable[Change]) -> None:
    """Write to runs what became of their jobs, and have those schedules looked at that wait for the end of one."""
    now = instant(session.now)
    for change in changes:
        ended = end_of(change, now)
        if ended is None:
            continue
        error = None if ended.error is None else clean(ended.error)
        values = {
            "id": change.before.id.bytes,
            "state": ended.state,
            "finished_at": optional_micros(ended.finished_at),
            "error": error,
        }
        _wake(session, [schedule for schedule, is_open in session.rows_by_name(_END, values) if not is_open])


def let_go(session: Session, jobs: Iterable[bytes]) -> None:
    """Close the runs of jobs that have ended and of which no place is kept any more."""
    for job in jobs:
        _wake(session, [schedule for (schedule,) in session.rows_by_name(_LET_GO, {"id": job})])


def _wake(session: Session, schedules: Iterable[str]) -> None:
    for schedule in schedules:
        session.rows_by_name(_WAKE, {"now": session.now, "name": schedule})


def is_taken(session: Session, runs: Sequence[Run]) -> bool:
    """Say whether another run has a job for the slot of one of these, or two of them are for the same slot."""
    with_job = [run for run in runs if run.reason is None and run.slot is not None]
    if len({(run.schedule, run.slot) for run in with_job}) < len(with_job):
        return True
    for run in with_job:
        there = session.row(_WITH_JOB, (str(run.schedule), optional_micros(run.slot)))
        if there is not None and there[0] != run.id.bytes:
            return True
    return False


def open_of(session: Session, schedule: str) -> tuple[JobId, ...]:
    """List open runs of a schedule, the newest first, no more than are shown."""
    return tuple(job_id(id_) for (id_,) in session.rows(_OPEN, (schedule, OPEN_SHOWN)))


def list_runs(session: Session, which: RunFilter, limit: int, after: UUID | None) -> RunPage:
    """Read a page. A run of several slots in a row is one of each of them."""
    wanted = {
        "after": _LAST if after is None else after.bytes,
        "schedule": None if which.schedule is None else str(which.schedule),
        "after_slot": optional_micros(which.after_slot),
        "until_slot": optional_micros(which.until_slot),
        "with_job": which.with_job,
        "limit": limit + 1,
    }
    if which.schedule is None:
        listing = _LIST
    elif which.with_job and not which.after_slot is which.until_slot is None:
        listing = _LIST_OF_SLOTS
        wanted["after_slot"] = -_FOREVER if which.after_slot is None else wanted["after_slot"]
        wanted["until_slot"] = _FOREVER if which.until_slot is None else wanted["until_slot"]
    else:
        listing = _LIST_OF_SCHEDULE
    rows = session.rows_by_name(listing, wanted)
    runs = tuple(map(_run, rows[:limit]))
    return RunPage(runs=runs, after=runs[-1].id if runs and len(rows) > limit else None)


def last_runs(session: Session, schedules: Iterable[Name], limit: int) -> dict[Name, tuple[Run, ...]]:
    """Read the last runs of some schedules, of each by its own look in the index: here that costs no way there and back."""
    pages = {name_: list_runs(session, RunFilter(schedule=name_), limit, None) for name_ in schedules}
    return {name_: page.runs for name_, page in pages.items() if page.runs}


def _row(run: Run, keep: timedelta) -> tuple[object, ...]:
    return (
        run.id.bytes,
        str(run.schedule),
        optional_micros(run.slot),
        optional_micros(run.last),
        run.count,
        run.origin,
        run.is_catch_up,
        run.zone,
        run.owner,
        run.reason,
        micros(run.decided_at),
        run.state,
        optional_micros(run.finished_at),
        run.error,
        run.is_open,
        micros(keep_until(run, keep)),
    )


def _run(row: Row) -> Run:
    (
        id_, schedule, slot, last, count, origin, is_catch_up, zone, owner, reason, decided_at, state, finished_at,
        error, is_open,
    ) = row  # fmt: skip
    return Run(
        id=job_id(id_),
        schedule=name(schedule),
        decided_at=instant(decided_at),
        slot=optional_instant(slot),
        last=optional_instant(last),
        count=count,
        origin=Origin(origin),
        is_catch_up=bool(is_catch_up),
        zone=zone,
        owner=owner,
        reason=None if reason is None else Reason(reason),
        state=None if state is None else STATES[state],
        finished_at=optional_instant(finished_at),
        error=error,
        lingers=bool(is_open) and state is not None,
    )
