"""Enqueueing: one way for a single job and for thousands, one statement for all jobs of a kind.

A batch is taken in rounds, in each of which no id and no unique key comes twice, so that within a round the order does
not matter. There is rarely a second round.
"""

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Final, NamedTuple, TypeAlias

from mainspring.core.job import JobId
from mainspring.core.names import Name
from mainspring.stores.postgres.contest import contest
from mainspring.stores.postgres.lanes import Lane
from mainspring.stores.postgres.rows import NO_FACTS, facts_bytes, key_bytes, policy_text
from mainspring.stores.postgres.statements import statement
from mainspring.stores.postgres.verb import Ask, Verb
from mainspring.stores.records import Enqueued, NewJob, When

_ADD: Final = statement("enqueue")
_ADD_UNIQUE: Final = statement("enqueue_unique")
_ADDED_AGAIN: Final = statement("enqueue_again")
_ADD_HOLDERS: Final = statement("enqueue_holders")

Column: TypeAlias = "list[object] | None"
"""The values of a column, one for each job; None if all are NULL, which spares sending them."""


class Kind(NamedTuple):
    """What the jobs have in common that one statement takes in."""

    lane: Lane
    max_attempts: int
    loss_limit: int
    policy: str
    timeout: timedelta | None
    delay: timedelta | None
    expires_in: timedelta | None
    unique: bool


class Batch:
    """New jobs, put in the order in which they are taken in."""

    def __init__(self, new: Sequence[NewJob]) -> None:
        self.new: Final = new
        self.rounds: Final = [_by_kind(new, places) for places in _rounds(new)]

    @property
    def is_one_statement(self) -> bool:
        """Whether it needs no transaction around it."""
        return len(self.rounds) == 1 and len(self.rounds[0]) == 1 and not next(iter(self.rounds[0])).unique


def enqueue(at: datetime | None, batch: Batch) -> Verb[tuple[Enqueued, ...]]:
    """Take in new jobs; one answer for each, in order. Several statements, unless it `is_one_statement`."""
    answers: dict[int, Enqueued] = {}
    for round_ in batch.rounds:
        for kind, places in round_.items():
            jobs = [batch.new[place] for place in places]
            there = (yield from _add_unique(at, kind, jobs)) if kind.unique else (yield from _add(at, kind, jobs))
            answers |= zip(places, there, strict=True)
    return tuple(answers[place] for place in range(len(batch.new)))


def enqueue_unique_alone(at: datetime | None, job: NewJob) -> Verb[Enqueued | None]:
    """Take in one job if its unique key was never taken, as most are, in one statement; None: look closer."""
    added = yield Ask(_ADD_UNIQUE, _values(at, _kind(job), [job]))
    return Enqueued(id=job.id, fresh=True) if added else None


def _rounds(new: Sequence[NewJob]) -> Iterator[Sequence[int]]:
    """Divide a batch, so that no id and no unique key comes twice in one part; gives places in the batch."""
    left: Sequence[int] = range(len(new))
    if len({job.id for job in new}) == len(new) and not any(job.unique for job in new):
        yield left
        return
    while left:
        ids: set[JobId] = set()
        keys: set[tuple[Name, str]] = set()
        now: list[int] = []
        later: list[int] = []
        for place in left:
            job = new[place]
            key = None if job.unique is None else (job.task, job.unique.key)
            if job.id in ids or (key is not None and key in keys):
                later.append(place)
            else:
                now.append(place)
            # One that has to wait makes those wait that come after it and want the same.
            ids.add(job.id)
            if key is not None:
                keys.add(key)
        yield now
        left = later


def _by_kind(new: Sequence[NewJob], places: Sequence[int]) -> dict[Kind, list[int]]:
    kinds: dict[Kind, list[int]] = {}
    for place in places:
        kinds.setdefault(_kind(new[place]), []).append(place)
    # In one order for everyone: two batches that take the keys of two tasks must not wait for each other in a circle.
    return dict(sorted(kinds.items(), key=lambda each: (str(each[0].lane.task), each[0].lane)))


def _kind(job: NewJob) -> Kind:
    return Kind(
        Lane(job.queue, job.task, job.priority),
        job.max_attempts,
        job.loss_limit,
        policy_text(job.backoff, job.retention),
        job.timeout,
        _span(job.run_at),
        None if job.expires is None else _span(job.expires),
        job.unique is not None,
    )


def _add(at: datetime | None, kind: Kind, jobs: Sequence[NewJob]) -> Verb[list[Enqueued]]:
    added = yield Ask(_ADD, _values(at, kind, jobs))
    if len(added) == len(jobs):
        return [Enqueued(id=job.id, fresh=True) for job in jobs]
    fresh = {id_ for (id_,) in added}
    if fresh:  # what is not may have been waited for, and these may have been enqueued by others, and be over, since
        fresh -= {id_ for (id_,) in (yield Ask(_ADDED_AGAIN, (list(fresh),)))}
    return [Enqueued(id=job.id, fresh=job.id in fresh) for job in jobs]


def _add_unique(at: datetime | None, kind: Kind, jobs: Sequence[NewJob]) -> Verb[list[Enqueued]]:
    added = yield Ask(_ADD_UNIQUE, _values(at, kind, jobs))
    answers = {id_: Enqueued(id=id_, fresh=True) for (id_,) in added}
    left = [job for job in jobs if job.id not in answers]
    if left:
        answers |= yield from _look_closer(at, kind, left)
    return [answers[job.id] for job in jobs]


def _look_closer(at: datetime | None, kind: Kind, jobs: Sequence[NewJob]) -> Verb[dict[JobId, Enqueued]]:
    """Take in jobs whose ids may be there already, or whose keys somebody has or had."""
    answers, winners = yield from contest(at, kind.lane.task, jobs)
    if winners:
        fresh = {id_ for (id_,) in (yield Ask(_ADD_HOLDERS, _values(at, kind, winners)))}
        answers |= {job.id: Enqueued(id=job.id, fresh=job.id in fresh) for job in winners}
    return answers


def _values(at: datetime | None, kind: Kind, jobs: Sequence[NewJob]) -> tuple[object, ...]:
    lane = kind.lane
    values: tuple[object, ...] = (
        at,
        [job.id for job in jobs],
        lane.number,
        lane.queue,
        str(lane.task),
        lane.priority,
        kind.max_attempts,
        kind.loss_limit,
        kind.policy,
        kind.timeout,
        None if kind.delay is not None else [job.run_at for job in jobs],
        kind.delay,
        kind.expires_in,
        _column([None if isinstance(job.expires, timedelta) else job.expires for job in jobs]),
        _column([key_bytes(job.key) for job in jobs]),
        _column([job.facts.parent for job in jobs]),
        _column([None if job.facts is NO_FACTS else facts_bytes(job.facts) for job in jobs]),
        [job.payload for job in jobs],
    )
    if not kind.unique:
        return values
    keys = [job.unique for job in jobs if job.unique is not None]
    return (
        *values,
        [key_bytes(key.key) for key in keys],
        [key.period for key in keys],
        [str(key.on_conflict) for key in keys],
    )


def _column(values: list[object]) -> Column:
    return values if any(value is not None for value in values) else None


def _span(when: When) -> timedelta | None:
    return when if isinstance(when, timedelta) else None


def least_run_at(new: Sequence[NewJob]) -> datetime | None:
    """Name the earliest instant that was asked for; those that are due at once do not count."""
    return min((job.run_at for job in new if isinstance(job.run_at, datetime)), default=None)
