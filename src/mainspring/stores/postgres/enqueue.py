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
from mainspring.stores.postgres.rows import NO_FACTS, care_of_new, facts_bytes, key_bytes, policy_text
from mainspring.stores.postgres.statements import statement
from mainspring.stores.postgres.verb import Ask, Verb
from mainspring.stores.records import Enqueued, NewJob, When

_ADD: Final = statement("enqueue")
_ADD_NEW: Final = statement("enqueue_new")
_ADD_ALL_NEW: Final = statement("enqueue_all_new")
_ADD_UNIQUE: Final = statement("enqueue_unique")
_ADDED_AGAIN: Final = statement("enqueue_again")
_ADD_HOLDERS: Final = statement("enqueue_holders")

Column: TypeAlias = "list[object] | None"
"""The values of a column, one for each job; None if all are NULL, which spares sending them."""


class Kind(NamedTuple):
    """What the jobs have in common that one statement takes in."""

    queue: str
    task: Name
    priority: int
    max_attempts: int
    loss_limit: int
    policy: str
    timeout: timedelta | None
    delay: timedelta | None
    expires_in: timedelta | None
    unique: bool


class Batch:
    """New jobs, and whether they have been tried before."""

    def __init__(self, new: Sequence[NewJob], *, once: bool = False) -> None:
        self.new: Final = new
        # A single one that is new has been tried before it comes here (`enqueue_new`), unless it is tried only `once`.
        self._untried = (once or len(new) > 1) and all(job.is_new for job in new)

    def begin(self) -> bool:
        """Say whether none of it can have been enqueued before: its ids are new, and this is the first try."""
        untried, self._untried = self._untried, False
        return untried


def enqueue(at: datetime | None, batch: Batch) -> Verb[tuple[Enqueued, ...]]:
    """Take in new jobs; one answer for each, in order. Several statements."""
    is_new = batch.begin()
    if is_new and not any(job.unique for job in batch.new):
        return (yield from _add_new(at, batch.new))
    answers: dict[int, Enqueued] = {}
    for places in rounds(batch.new):
        jobs = {place: batch.new[place] for place in places}
        found = yield from _contested(at, [job for job in jobs.values() if job.unique is not None])
        for kind, some in by_kind([job for job in jobs.values() if job.unique is None]).items():
            found |= yield from _add(at, kind, some)
        answers |= {place: found[job.id] for place, job in jobs.items()}
    fresh = [answer.id for answer in answers.values() if answer.fresh]
    again = {id_ for (id_,) in (yield Ask(_ADDED_AGAIN, (fresh,)))} if fresh and not is_new else set()
    return tuple(
        Enqueued(id=answer.id, fresh=False) if answer.id in again else answer
        for answer in (answers[place] for place in range(len(batch.new)))
    )


def enqueue_new(at: datetime | None, job: NewJob, hint: tuple[str, str] | None, until: datetime | None) -> Verb[bool]:
    """Take in a job that nobody can have enqueued before, and tell others of it with the commit. One statement.

    False if it comes there after `until`: then nothing is done.
    """
    return bool((yield Ask(_ADD_NEW, (*_single(at, job), *(hint or (None, None)), until))))


def enqueue_new_unique(at: datetime | None, job: NewJob) -> Verb[bool]:
    """Do the same with one that has a unique key; False: somebody has it, or had it. One statement."""
    return bool((yield Ask(_ADD_UNIQUE, _values(at, _kind(job), [job]))))


def rounds(new: Sequence[NewJob]) -> Iterator[Sequence[int]]:
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


def by_kind(jobs: Sequence[NewJob]) -> dict[Kind, list[NewJob]]:
    kinds: dict[Kind, list[NewJob]] = {}
    last: NewJob | None = None
    its: list[NewJob] = []
    for job in jobs:
        if last is None or not _are_alike(job, last):  # mostly they are: making and finding a kind takes 1.5 µs
            its = kinds.setdefault(_kind(job), [])
        its.append(job)
        last = job
    return kinds


def _are_alike(job: NewJob, other: NewJob) -> bool:
    """Say whether two jobs are of one kind, as those of one task are that were made alike; False: look closer."""
    return (
        job.task is other.task
        and job.backoff is other.backoff
        and job.retention is other.retention
        and job.run_at is other.run_at
        and job.expires is other.expires
        and job.timeout is other.timeout
        and job.unique is other.unique
        and job.facts.slot is other.facts.slot
        and job.queue == other.queue
        and job.priority == other.priority
        and job.max_attempts == other.max_attempts
        and job.loss_limit == other.loss_limit
    )


def _kind(job: NewJob) -> Kind:
    return Kind(
        job.queue,
        job.task,
        job.priority,
        job.max_attempts,
        job.loss_limit,
        policy_text(job.backoff, job.retention, job.facts.slot is not None),
        job.timeout,
        _span(job.run_at),
        None if job.expires is None else _span(job.expires),
        job.unique is not None,
    )


def _add_new(at: datetime | None, jobs: Sequence[NewJob]) -> Verb[tuple[Enqueued, ...]]:
    for kind, some in by_kind(jobs).items():
        yield Ask(_ADD_ALL_NEW, _values(at, kind, some))
    return tuple(Enqueued(id=job.id, fresh=True) for job in jobs)


def _add(at: datetime | None, kind: Kind, jobs: Sequence[NewJob]) -> Verb[dict[JobId, Enqueued]]:
    fresh = {id_ for (id_,) in (yield Ask(_ADD, _values(at, kind, jobs)))}
    return {job.id: Enqueued(id=job.id, fresh=job.id in fresh) for job in jobs}


def _contested(at: datetime | None, jobs: Sequence[NewJob]) -> Verb[dict[JobId, Enqueued]]:
    """Take in jobs with unique keys, those who get theirs."""
    if not jobs:
        return {}
    answers, winners = yield from contest(at, jobs)
    for kind, some in by_kind(winners).items():
        fresh = {id_ for (id_,) in (yield Ask(_ADD_HOLDERS, _values(at, kind, some)))}
        answers |= {job.id: Enqueued(id=job.id, fresh=job.id in fresh) for job in some}
    return answers


def _single(at: datetime | None, job: NewJob) -> tuple[object, ...]:
    """Give the values of one job, as in `_values` but no lists: a list of one takes both sides longer, 25 µs in all."""
    delay = _span(job.run_at)
    expires_in = None if job.expires is None else _span(job.expires)
    return (
        at,
        job.id,
        care_of_new(job.max_attempts, job.loss_limit),
        job.queue,
        str(job.task),
        job.priority,
        job.max_attempts,
        job.loss_limit,
        policy_text(job.backoff, job.retention, job.facts.slot is not None),
        job.timeout,
        None if delay is not None else job.run_at,
        delay,
        expires_in,
        None if expires_in is not None else job.expires,
        key_bytes(job.key),
        job.facts.parent,
        facts_bytes(job.facts),
        job.payload,
    )


def _values(at: datetime | None, kind: Kind, jobs: Sequence[NewJob]) -> tuple[object, ...]:
    values: tuple[object, ...] = (
        at,
        [job.id for job in jobs],
        care_of_new(kind.max_attempts, kind.loss_limit),
        kind.queue,
        str(kind.task),
        kind.priority,
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
    return values if values.count(None) < len(values) else None


def _span(when: When) -> timedelta | None:
    return when if isinstance(when, timedelta) else None


def least_run_at(new: Sequence[NewJob]) -> datetime | None:
    """Name the earliest instant that was asked for; those that are due at once do not count."""
    return min((job.run_at for job in new if isinstance(job.run_at, datetime)), default=None)
