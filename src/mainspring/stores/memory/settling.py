"""How a change is written: held against the job as it is now, and then whole or not at all."""

from datetime import UTC, datetime
from typing import Final

from msgspec.structs import replace

from mainspring.core.job import Job, JobId, NodeId
from mainspring.core.machine import Event, Fit
from mainspring.core.outcome import Deferred, Snoozed, Succeeded, error_of
from mainspring.stores.memory.tables import Row, Tables, is_active
from mainspring.stores.records import AttemptView, JobView, Place, Settled, Settlement, Verdict
from mainspring.stores.schedules import end_of

ATTEMPTS_KEPT: Final = 100


def settle(tables: Tables, settlement: Settlement, now: datetime) -> Settled:
    """Write a change, or say why not."""
    change = settlement.change
    row = tables.rows.get(change.before.id)
    if row is None:
        return Settled(verdict=Verdict.REFUSED)
    if change.node is not None:
        by = _writer(settlement, change.node)
        if row.settled == (change.before.lease, by):
            return Settled(verdict=Verdict.REPEATED)
        if (by == change.node) != tables.is_alive(change.node):
            return Settled(verdict=Verdict.REFUSED)
    match change.fit(row.job, row.view.node):
        case Fit.REFUSED:
            return Settled(verdict=Verdict.REFUSED)
        case Fit.STALE:
            return Settled(verdict=Verdict.STALE, job=row.job)
        case Fit.FITS:
            return _apply(tables, row, settlement, now)


def _apply(tables: Tables, row: Row, settlement: Settlement, now: datetime) -> Settled:
    change = settlement.change
    if change.after is None:
        tables.uniques.forget(row.view)
        tables.delete(row, now)
    elif holder := _holder(tables, row, change.after, now):
        return Settled(verdict=Verdict.CONFLICT, holder=holder)
    elif change.node is None:
        tables.write(row, replace(row.view, job=_in_utc(change.after)), now)
    else:
        _end(tables, row, change.node, settlement, now)
    if change.before.of_schedule and (end := end_of(change, now)):
        tables.plans.ended(change.before.id, end, now, lingers=bool(tables.gates.of(change.before.id)))
    return Settled(verdict=Verdict.ACCEPTED, changed=tables.circuits.record(settlement, now))


def _writer(settlement: Settlement, holder: NodeId) -> NodeId:
    return holder if settlement.by is None else settlement.by


def _holder(tables: Tables, row: Row, after: Job, now: datetime) -> JobId | None:
    """Name the other job that has the unique key of one that was finished and becomes active again."""
    unique = row.view.unique
    if unique is None or is_active(row.job) or not is_active(after):
        return None
    holder = tables.uniques.taken_by((after.task, unique.key), now)
    return None if holder == after.id else holder


def _end(tables: Tables, row: Row, holder: NodeId, settlement: Settlement, now: datetime) -> None:
    """Write the end of an attempt, with all that is kept of it."""
    before = row.job
    row.settled = (before.lease, _writer(settlement, holder))
    if settlement.change.event is not Event.SUCCEEDED:
        row.attempts = (*row.attempts, _attempt(row.view, holder, settlement, now))[-ATTEMPTS_KEPT:]
    tables.write(row, _ended(row.view, settlement), now)
    taken = tables.gates.find(Place(before.id, before.lease))
    if taken and not settlement.keeps_place:
        tables.give_up(taken, now)


def _ended(view: JobView, settlement: Settlement) -> JobView:
    after, outcome = settlement.change.after, settlement.change.outcome
    return replace(
        view,
        job=_in_utc(after) if after else view.job,
        seconds=settlement.seconds,
        result=outcome.result if isinstance(outcome, Succeeded) else view.result,
        error=error_of(outcome) or view.error,
    )


def _attempt(view: JobView, holder: NodeId, settlement: Settlement, now: datetime) -> AttemptView:
    outcome = settlement.change.outcome
    return AttemptView(
        job=view.job.id,
        lease=view.job.lease,
        attempt=view.job.attempt,
        node=holder,
        event=settlement.change.event,
        started_at=view.started_at,
        ended_at=now,
        seconds=settlement.seconds,
        error=error_of(outcome),
        reason=outcome.reason if isinstance(outcome, Snoozed | Deferred) else "",
    )


def _in_utc(job: Job) -> Job:
    """An operator may have named a time in a zone of their own."""
    return job if job.run_at.tzinfo is UTC else replace(job, run_at=job.run_at.astimezone(UTC))
