"""Settling: writing the changes that the machine chose, each whole or not at all.

Successes go the short way, all of a batch by one statement that says itself what must still be true. If it did not
write them all, none of that is kept, and each is looked at like every other change.
"""

from collections import Counter
from collections.abc import Sequence
from operator import itemgetter
from typing import Final, NamedTuple, assert_never

from mainspring.core.job import FINISHED, WAITING, Job, JobId, NodeId, State
from mainspring.core.machine import Event, Fit
from mainspring.core.outcome import Deferred, Snoozed, Succeeded, error_of
from mainspring.core.unique import UniqueKey
from mainspring.stores.records import Settled, Settlement, Verdict
from mainspring.stores.sqlite import breakers, delete, gates, nodes, places, runs, unique
from mainspring.stores.sqlite.lanes import Care
from mainspring.stores.sqlite.rows import clean, error_text, job, job_id, micros, optional_micros
from mainspring.stores.sqlite.rows import unique as unique_key
from mainspring.stores.sqlite.session import Session
from mainspring.stores.sqlite.statements import statement

_SUCCEED: Final = statement("settle_success")
_READ: Final = statement("job_settled")
_WRITE: Final = statement("job_write")
_END: Final = statement("job_end")
_ADD_ATTEMPT: Final = statement("attempt_add")
_TRIM_ATTEMPTS: Final = statement("attempts_trim")
_KEEP_ERROR: Final = statement("trace_error")
_ATTEMPTS_KEPT: Final = 100

_id: Final = itemgetter(6)  # in the parameters of `settle_success`

_ACCEPTED: Final = Settled(verdict=Verdict.ACCEPTED)
_REPEATED: Final = Settled(verdict=Verdict.REPEATED)
_REFUSED: Final = Settled(verdict=Verdict.REFUSED)


class Found(NamedTuple):
    """A job as it is, with what a change of it has to look at beside."""

    number: int
    job: Job
    holder: NodeId | None
    previous_lease: int | None
    settled_by: NodeId | None
    started_at: int | None
    enqueued_at: int
    key: str | None
    unique: UniqueKey | None
    probes: bool
    """It is, or was, the probe of its task's breaker."""

    @property
    def settled_lease(self) -> int | None:
        """The last lease that was settled: every lease is, before the next one is given."""
        return self.previous_lease if self.job.state is State.RUNNING else self.job.lease


def read(session: Session, stored_id: bytes) -> Found | None:
    row = session.row(_READ, (stored_id,))
    if row is None:
        return None
    holder, previous_lease, settled_by, started_at, enqueued_at, key, unique_text, probes = row[18:]
    return Found(
        number=row[0],
        job=job(row, session.lane(row[2])),
        holder=holder,
        previous_lease=previous_lease,
        settled_by=settled_by,
        started_at=started_at,
        enqueued_at=enqueued_at,
        key=key,
        unique=unique_key(unique_text),
        probes=bool(probes),
    )


def settle(session: Session, settlements: Sequence[Settlement]) -> list[Settled]:
    """Write changes; one answer for each, in order. What they say about breakers is written last, in that order too."""
    probes: set[JobId] = set()
    answers = _answers(session, settlements, probes)
    return breakers.record(session, settlements, answers, probes)


def _answers(session: Session, settlements: Sequence[Settlement], probes: set[JobId]) -> list[Settled]:
    living = Living(session)
    plain = _plain_successes(settlements, living)
    if not plain or not _succeed(session, [settlements[place] for place in plain]):
        return [_settle(session, one, living, probes) for one in settlements]
    if len(plain) == len(settlements):
        return [_ACCEPTED] * len(plain)
    done = set(plain)
    return [
        _ACCEPTED if place in done else _settle(session, one, living, probes) for place, one in enumerate(settlements)
    ]


class Living:
    """Which nodes are alive; each is looked up once for a batch."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._known: dict[NodeId, bool] = {}

    def __contains__(self, node: NodeId) -> bool:
        if node not in self._known:
            self._known[node] = nodes.is_alive(self._session, node)
        return self._known[node]


# The short way.


def _plain_successes(settlements: Sequence[Settlement], living: Living) -> list[int]:
    """The places of successes that their own living nodes settle, and that are the only change of their job here."""
    alive = {node for node in {one.by for one in settlements} if node is not None and node in living}
    plain = [
        place
        for place, one in enumerate(settlements)
        if one.change.event is Event.SUCCEEDED and one.by == one.change.node and not one.keeps_place and one.by in alive
    ]
    if len(plain) == len(settlements):  # two of one job would not both be written, and be found out by that
        return plain
    times = Counter(one.change.before.id for one in settlements)
    return [place for place in plain if times[settlements[place].change.before.id] == 1]


def _succeed(session: Session, settlements: Sequence[Settlement]) -> bool:
    """Write successes; False, and nothing is written, if one of them does not fit its job any more."""
    session.run("SAVEPOINT mainspring_successes")
    rows = sorted(map(_success, settlements), key=_id)  # neighbours are on one page
    fit = session.run_many(_SUCCEED, rows) == len(settlements)
    if not fit:
        session.run("ROLLBACK TO mainspring_successes")
    session.run("RELEASE mainspring_successes")
    if fit:
        session.woke = True
        if places.any_taken(session):
            befores = (one.change.before for one in settlements)
            places.vacate(session, ((before.id.bytes, before.lease) for before in befores))
        runs.end(session, [one.change for one in settlements if one.change.before.of_schedule])
    return fit


def _success(settlement: Settlement) -> tuple[object, ...]:
    change = settlement.change
    before, after, outcome = change.before, change.after, change.outcome
    assert after is not None  # noqa: S101 -- a success leads to a state
    assert after.finished_at is not None and after.keep_until is not None  # noqa: S101, PT018 -- the machine says when
    return (
        after.revision,
        micros(after.finished_at),
        micros(after.keep_until),
        settlement.seconds,
        outcome.result if isinstance(outcome, Succeeded) else None,
        settlement.by,
        before.id.bytes,
        before.lease,
        change.node,
        before.revision,
    )


# The long way.


def _settle(session: Session, settlement: Settlement, living: Living, probes: set[JobId]) -> Settled:
    change = settlement.change
    found = read(session, change.before.id.bytes)
    if found is None:
        return _REFUSED
    if found.probes:
        probes.add(found.job.id)
    if change.node is not None:
        by = settlement.by or change.node
        if found.settled_lease == change.before.lease and found.settled_by == by:
            return _REPEATED
        if (by == change.node) != (change.node in living):
            return _REFUSED
    match change.fit(found.job, found.holder):
        case Fit.REFUSED:
            return _REFUSED
        case Fit.STALE:
            return Settled(verdict=Verdict.STALE, job=found.job)
        case Fit.FITS:
            return _apply(session, found, settlement)
        case other:
            assert_never(other)


def _apply(session: Session, found: Found, settlement: Settlement) -> Settled:
    change = settlement.change
    if change.after is None:
        delete.delete(session, [found.number])
    elif _becomes_active(found.job, change.after) and (other := _takes_key_again(session, found)):
        return Settled(verdict=Verdict.CONFLICT, holder=other)
    else:
        _write(session, found, change.after)
        if change.node is not None:
            _end_attempt(session, found, change.node, settlement)
    if found.job.of_schedule:
        runs.end(session, [change])
    session.woke = True
    return _ACCEPTED


def _becomes_active(before: Job, after: Job) -> bool:
    return before.state in FINISHED and after.state not in FINISHED


def _takes_key_again(session: Session, found: Found) -> JobId | None:
    """Take the job's unique key, if it has one; returns the other job that has it."""
    if found.unique is None:
        return None
    job = found.job.id.bytes
    holder = unique.holder(session, found.job.task, found.unique.key)
    if holder is not None and holder.job != job:
        return job_id(holder.job)
    unique.take(session, found.job.task, found.unique, job, found.enqueued_at)
    return None


def _write(session: Session, found: Found, after: Job) -> None:
    waits = after.state in WAITING
    care = Care.of(after) if waits else Care.NONE
    lane = session.lanes.find(session, after.task, after.queue, after.priority, care)
    session.run(
        _WRITE,
        (
            after.state,
            lane.id,
            -lane.priority if waits else None,
            micros(after.run_at),
            after.attempt,
            after.granted,
            after.losses,
            after.revision,
            optional_micros(after.expires_at),
            optional_micros(after.cancel_requested_at),
            optional_micros(after.finished_at),
            optional_micros(after.keep_until),
            after.cause,
            found.number,
        ),
    )
    if found.key is not None and found.job.state in WAITING:
        gates.unpark(session, [(str(found.job.task), found.key)])  # it may have been the only claimable job of its key


def _end_attempt(session: Session, found: Found, node: NodeId, settlement: Settlement) -> None:
    job, outcome = found.job, settlement.change.outcome
    result = outcome.result if isinstance(outcome, Succeeded) else None
    session.run(_END, (settlement.by or node, settlement.seconds, result, found.number))
    if settlement.keeps_place:
        places.keep(session, job, found.key, node)
    elif places.any_taken(session):
        places.vacate(session, [(job.id.bytes, job.lease)])
    if settlement.change.event is Event.SUCCEEDED:
        return
    error = error_text(error_of(outcome))
    reason = clean(outcome.reason) if isinstance(outcome, Snoozed | Deferred) else ""
    session.run(
        _ADD_ATTEMPT,
        (
            found.number,
            job.lease,
            job.attempt,
            node,
            settlement.change.event,
            found.started_at,
            session.now,
            settlement.seconds,
            error,
            reason,
        ),
    )
    if job.claims > _ATTEMPTS_KEPT:  # every claim before this one has left a row
        session.run(_TRIM_ATTEMPTS, (found.number, found.number, _ATTEMPTS_KEPT))
    if error is not None:
        session.run(_KEEP_ERROR, (found.number, error))
