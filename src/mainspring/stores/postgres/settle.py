"""Settling: writing the changes that the machine chose, each whole or not at all.

Successes go the short way, all of a batch by one statement that says itself what must still be true. What it did not
write, and every other change, goes the long way: the jobs are read and held, each change is held against its job, and
those that fit are written together.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final, NamedTuple, TypeAlias, assert_never

from mainspring.core.job import FINISHED, Job, JobId, NodeId, State
from mainspring.core.limits import Scope
from mainspring.core.machine import Event, Fit
from mainspring.core.outcome import Deferred, Snoozed, Succeeded, error_of
from mainspring.core.unique import UniqueKey
from mainspring.stores.postgres import breakers, runs, unique
from mainspring.stores.postgres.bodies import attempt_bytes
from mainspring.stores.postgres.rows import care_of, clean, columns, error_bytes, job, key_bytes, shown_key
from mainspring.stores.postgres.rows import unique as unique_key
from mainspring.stores.postgres.statements import statement
from mainspring.stores.postgres.verb import Ask, Row, Verb
from mainspring.stores.records import AttemptView, Settled, Settlement, Verdict
from mainspring.stores.schedules import End, end_of

_LATEST: Final = datetime(2200, 1, 1, tzinfo=UTC)
"""Up to then, an instant in seconds is exact to the microsecond; the driver takes a tenth of the time to write it."""
_SUCCEED: Final = statement("settle_success")
_READ: Final = statement("settle_read")
_READ_HISTORY: Final = statement("settle_read_history")
_HOLD: Final = statement("settle_hold")
_HOLD_FREE: Final = statement("settle_hold_free")
_BE_BRIEF: Final = statement("schedules_be_brief")
_HOLD_WAITING: Final = statement("settle_hold_waiting")
_LIVING: Final = statement("settle_living")
_WRITE: Final = statement("settle_write")
_FINISH: Final = statement("settle_finish")
_REVIVE: Final = statement("settle_revive")
_DELETE: Final = statement("settle_delete")
_ADD_ATTEMPTS: Final = statement("attempts_add")
_KEEP_ERRORS: Final = statement("traces_error")
_VACATE: Final = statement("places_vacate")
_KEEP_PLACES: Final = statement("places_keep")
_ATTEMPTS_KEPT: Final = 100

ACCEPTED: Final = Settled(verdict=Verdict.ACCEPTED)
_REPEATED: Final = Settled(verdict=Verdict.REPEATED)
_REFUSED: Final = Settled(verdict=Verdict.REFUSED)
LOCKED: Final = Settled(verdict=Verdict.LOCKED)

Answers: TypeAlias = "dict[int, Settled]"
"""By the place of a settlement in its batch."""
Write: TypeAlias = "Callable[[datetime | None, Sequence[Settlement]], Verb[list[Settled]]]"
"""`settle` or `settle_together`."""


# The short way.


def successes(settlements: Sequence[Settlement]) -> tuple[NodeId, list[int]] | None:
    """The places of successes that a node writes about its own attempts, each the only change of its job here."""
    by = settlements[0].by
    if by is None:
        return None
    plain = [
        place
        for place, one in enumerate(settlements)
        if one.change.event is Event.SUCCEEDED
        and one.by == by == one.change.node
        and not one.keeps_place
        and not one.change.before.of_schedule  # whose run is to be told
        and one.change.after is not None
        and one.change.after.keep_until is not None
        and one.change.after.keep_until < _LATEST
    ]
    if not plain or len({one.change.before.id for one in settlements}) < len(settlements):
        return None
    return by, plain


def succeed(by: NodeId, settlements: Sequence[Settlement]) -> Verb[set[JobId]]:
    """Write successes; says of which jobs. One statement."""
    ordered = sorted(settlements, key=_id)  # in one order for everyone, as on the long way
    changes = [one.change for one in ordered]
    afters = [change.after for change in changes if change.after is not None]
    rows = yield Ask(
        _SUCCEED,
        (
            by,
            [change.before.id for change in changes],
            [change.before.lease for change in changes],
            [change.before.revision for change in changes],
            [_epoch(after.finished_at) for after in afters],
            [_epoch(after.keep_until) for after in afters],
            [one.seconds for one in ordered],
            [change.outcome.result if isinstance(change.outcome, Succeeded) else None for change in changes],
        ),
    )
    return {id_ for (id_,) in rows}


def _epoch(instant: datetime | None) -> float:
    return 0.0 if instant is None else instant.timestamp()


def _id(settlement: Settlement) -> JobId:
    return settlement.change.before.id


# The long way.


class Found(NamedTuple):
    """A job as it is, with what a change of it has to look at beside."""

    job: Job
    holder: NodeId | None
    previous_lease: int | None
    settled_by: NodeId | None
    started_at: datetime | None
    enqueued_at: datetime
    key: str | None
    unique: UniqueKey | None
    traced: bool

    @property
    def settled_lease(self) -> int | None:
        """The last lease that was settled: every lease is, before the next one is given."""
        return self.previous_lease if self.job.state is State.RUNNING else self.job.lease


def hold_waiting(id_: JobId) -> Verb[Job | None]:
    """Hold a job that waits; None if it does not, or if another holds it just now."""
    rows = yield Ask(_HOLD_WAITING, (id_,))
    return job(rows[0]) if rows else None


def settle_free(at: datetime | None, settlements: Sequence[Settlement], write: Write) -> Verb[Answers]:
    """Write the changes of jobs that no other transaction holds; finished jobs count as held. Several statements."""
    free = {id_ for (id_,) in (yield Ask(_HOLD_FREE, ([_id(one) for one in settlements],)))}
    places = [place for place, one in enumerate(settlements) if _id(one) in free]
    answers = (yield from write(at, [settlements[place] for place in places])) if places else []
    return dict(zip(places, answers, strict=True))


def settle_briefly(
    at: datetime | None, settlements: Sequence[Settlement], write: Write, patience: float
) -> Verb[list[Settled]]:
    """Write changes, waiting at most `patience` seconds for the locks on their jobs. Several statements."""
    yield Ask(_BE_BRIEF, (f"{max(1, round(1000 * patience))}ms",))
    return (yield from write(at, settlements))


def settle(at: datetime | None, settlements: Sequence[Settlement]) -> Verb[list[Settled]]:
    """Write changes; one answer for each, in order. Several statements.

    In rounds: two changes of one job in a batch are written one after the other. What they say about breakers comes last.
    """
    probes: set[JobId] = set()
    answers = yield from _settle(at, settlements, probes)
    return (yield from breakers.record(at, settlements, answers, probes))


def settle_together(at: datetime | None, settlements: Sequence[Settlement]) -> Verb[list[Settled]]:
    """Write changes, successes by the short way, in one transaction with what they do to breakers. Several statements."""
    answers: Answers = {}
    if len(settlements) > 1:  # else in two steps, which could meet others who hold several
        yield Ask(_HOLD, ([_id(one) for one in settlements],))
    plain = successes(settlements)
    if plain is not None:
        by, places = plain
        done = yield from succeed(by, [settlements[place] for place in places])
        answers = {place: ACCEPTED for place in places if _id(settlements[place]) in done}
    left = [place for place in range(len(settlements)) if place not in answers]
    probes: set[JobId] = set()
    if left:
        answers |= zip(left, (yield from _settle(at, [settlements[place] for place in left], probes)), strict=True)
    together = [answers[place] for place in range(len(settlements))]
    return (yield from breakers.record(at, settlements, together, probes))


def _settle(at: datetime | None, settlements: Sequence[Settlement], probes: set[JobId]) -> Verb[list[Settled]]:
    answers: Answers = {}
    left = list(range(len(settlements)))
    while left:
        jobs: set[JobId] = set()
        now: list[int] = []
        later: list[int] = []
        for place in left:
            id_ = _id(settlements[place])
            (later if id_ in jobs else now).append(place)
            jobs.add(id_)
        probes |= yield from _round(at, {place: settlements[place] for place in now}, answers)
        left = later
    return [answers[place] for place in range(len(settlements))]


def _round(at: datetime | None, settlements: dict[int, Settlement], answers: Answers) -> Verb[set[JobId]]:
    """Write what fits; returns which of the jobs are probes of breakers."""
    found = yield from _read([_id(one) for one in settlements.values()])
    living, now, probes = yield from _living(at, settlements.values())
    writes = Writes(now)
    for place, one in settlements.items():
        known = found.get(_id(one))
        refusal = _REFUSED if known is None else _refusal(known, one, living)
        if refusal is not None or known is None:
            answers[place] = refusal or _REFUSED
            continue
        other = yield from _takes_key_again(at, known, one.change.after)
        if other is not None:
            answers[place] = Settled(verdict=Verdict.CONFLICT, holder=other)
            continue
        writes.add(known, one)
        answers[place] = ACCEPTED
    yield from writes.write()
    return probes


def _read(ids: list[JobId]) -> Verb[dict[JobId, Found]]:
    """Read and hold jobs. One that an operator brings back just now is in neither place at first: looked for again."""
    found: dict[JobId, Found] = {}
    for read in (_READ, _READ_HISTORY, _READ):
        left = [id_ for id_ in ids if id_ not in found]
        if left:
            found |= {row[0]: _found(row) for row in (yield Ask(read, (left,)))}
    return found


def _found(row: Row) -> Found:
    holder, previous_lease, settled_by, started_at, enqueued_at, key, key_, period, on_conflict, traced = row[19:]
    return Found(
        job=job(row),
        holder=holder,
        previous_lease=previous_lease,
        settled_by=settled_by,
        started_at=started_at,
        enqueued_at=enqueued_at,
        key=shown_key(key),
        unique=unique_key(key_, period, on_conflict),
        traced=traced,
    )


def _living(at: datetime | None, settlements: Iterable[Settlement]) -> Verb[tuple[set[str], datetime, set[JobId]]]:
    ends = [one for one in settlements if one.change.node is not None]
    nodes = sorted({str(one.change.node) for one in ends})
    rows = yield Ask(_LIVING, (at, nodes, [_id(one) for one in ends]))
    _, now, probes = rows[-1]
    return {node for node, *_ in rows if node is not None}, now, set(probes)


def _refusal(found: Found, settlement: Settlement, living: set[str]) -> Settled | None:
    """Say why a change is not written; None: it is."""
    change = settlement.change
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
            return None
        case other:
            assert_never(other)


def _takes_key_again(at: datetime | None, found: Found, after: Job | None) -> Verb[JobId | None]:
    """Take the unique key of a finished job that becomes active again; returns the other job that has it."""
    if found.unique is None or after is None or found.job.state not in FINISHED or after.state in FINISHED:
        return None
    return (yield from unique.take_again(at, after.task, found.unique, after.id, found.enqueued_at))


@dataclass(slots=True)
class Writes:
    """The changes of a round that fit, written together: what attempts leave behind first, for it goes along."""

    now: datetime
    moved: list[tuple[object, ...]] = field(default_factory=list)
    finished: list[tuple[object, ...]] = field(default_factory=list)
    revived: list[tuple[object, ...]] = field(default_factory=list)
    deleted: list[JobId] = field(default_factory=list)
    attempts: list[tuple[JobId, int, bytes]] = field(default_factory=list)
    errors: list[tuple[JobId, bytes]] = field(default_factory=list)
    vacated: list[tuple[JobId, int]] = field(default_factory=list)
    kept: list[tuple[object, ...]] = field(default_factory=list)
    ends: list[tuple[JobId, End]] = field(default_factory=list)
    """Of jobs of schedules, for their runs."""

    def add(self, found: Found, settlement: Settlement) -> None:
        after = settlement.change.after
        if found.job.of_schedule and (end := end_of(settlement.change, self.now)) is not None:
            self.ends.append((found.job.id, end))
        if after is None:
            self.deleted.append(found.job.id)
            return
        if settlement.change.node is not None:
            self._end_attempt(found, settlement.change.node, settlement)
        if found.job.state in FINISHED:
            self.revived.append(_revived(after))
        elif after.state in FINISHED:
            self.finished.append(_finished(after, settlement))
        else:
            self.moved.append(_moved(after, settlement))

    def write(self) -> Verb[None]:
        if self.attempts:
            yield Ask(_ADD_ATTEMPTS, (*columns(self.attempts), _ATTEMPTS_KEPT - 1))
        if self.errors:
            yield Ask(_KEEP_ERRORS, columns(self.errors))
        if self.vacated:
            yield Ask(_VACATE, columns(self.vacated))
        if self.kept:
            yield Ask(_KEEP_PLACES, columns(self.kept))
        if self.moved:
            yield Ask(_WRITE, columns(self.moved))
        if self.finished:
            yield Ask(_FINISH, columns(self.finished))
        for values in self.revived:
            yield Ask(_REVIVE, values)
        for id_ in self.deleted:
            yield Ask(_DELETE, (id_,))
        if self.ends:
            yield from runs.end(self.now, self.ends)
        if self.deleted:  # with the places that bodies of theirs kept
            yield from runs.let_go(self.now)

    def _end_attempt(self, found: Found, node: NodeId, settlement: Settlement) -> None:
        job_, outcome = found.job, settlement.change.outcome
        if settlement.keeps_place:
            self.kept += _places(found, node)
        else:
            self.vacated.append((job_.id, job_.lease))
        if settlement.change.event is Event.SUCCEEDED:
            return
        error = error_of(outcome)
        attempt = AttemptView(
            job=job_.id,
            lease=job_.lease,
            attempt=job_.attempt,
            node=node,
            event=settlement.change.event,
            started_at=found.started_at,
            ended_at=self.now,
            seconds=settlement.seconds,
            error=error,
            reason=clean(outcome.reason) if isinstance(outcome, Snoozed | Deferred) else "",
        )
        self.attempts.append((job_.id, job_.lease, attempt_bytes(attempt)))
        if (kept := error_bytes(error)) is not None:
            self.errors.append((job_.id, kept))


def _places(found: Found, node: NodeId) -> list[tuple[object, ...]]:
    job_ = found.job
    task = str(job_.task)
    subjects = [(Scope.TASK, task, b""), (Scope.QUEUE, job_.queue, b"")]
    if found.key is not None:
        subjects.append((Scope.KEY, task, key_bytes(found.key) or b""))
    return [(str(scope), name, key, job_.id, job_.lease, node) for scope, name, key in subjects]


def _moved(after: Job, settlement: Settlement) -> tuple[object, ...]:
    return (
        after.id,
        care_of(after),
        after.queue,
        after.priority,
        str(after.state),
        after.run_at,
        after.attempt,
        after.granted,
        after.losses,
        after.revision,
        after.expires_at,
        after.cancel_requested_at,
        _writer(settlement),
        settlement.seconds,
        settlement.change.node is not None,
    )


def _finished(after: Job, settlement: Settlement) -> tuple[object, ...]:
    outcome = settlement.change.outcome
    return (
        after.id,
        str(after.state),
        after.run_at,
        after.attempt,
        after.granted,
        after.losses,
        after.revision,
        after.expires_at,
        after.cancel_requested_at,
        after.finished_at,
        after.keep_until,
        None if after.cause is None else str(after.cause),
        _writer(settlement),
        settlement.seconds,
        outcome.result if isinstance(outcome, Succeeded) else None,
    )


def _revived(after: Job) -> tuple[object, ...]:
    return (
        after.id,
        care_of(after),
        after.queue,
        after.priority,
        str(after.state),
        after.run_at,
        after.attempt,
        after.granted,
        after.losses,
        after.revision,
        after.expires_at,
        after.cancel_requested_at,
        after.lease,
    )


def _writer(settlement: Settlement) -> NodeId | None:
    """Who ends an attempt by this; None: nobody does."""
    return None if settlement.change.node is None else settlement.by or settlement.change.node
