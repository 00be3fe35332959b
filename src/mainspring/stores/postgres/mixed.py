"""Enqueueing jobs of many kinds by one statement: those of schedules, of which a thousand may be due at once, each of
another task.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

from msgspec.structs import replace

from mainspring.core.job import JobId
from mainspring.core.unique import OnConflict
from mainspring.stores.postgres import unique
from mainspring.stores.postgres.contest import contest
from mainspring.stores.postgres.enqueue import rounds
from mainspring.stores.postgres.rows import care_of_new, columns, facts_bytes, key_bytes, policy_text
from mainspring.stores.postgres.statements import statement
from mainspring.stores.postgres.verb import Ask, Verb
from mainspring.stores.records import NewJob

_ADD: Final = statement("enqueue_mixed")
_ADDED_AGAIN: Final = statement("enqueue_again")


def hold_keys(jobs: Sequence[NewJob]) -> Verb[None]:
    """Hold the unique keys that jobs want, before anything else is held. What is not made then leaves them as they were."""
    wanting = {(job.task, job.unique.key): (job.task, job.unique, job.id) for job in jobs if job.unique is not None}
    if wanting:
        yield from unique.hold(list(wanting.values()))


def make(at: datetime | None, new: Sequence[NewJob]) -> Verb[set[JobId]]:
    """Take in jobs as `enqueue` does, but for raising; returns those that are not made, because another has their key.

    Several statements.
    """
    quiet = [_quiet(job) for job in new]
    made: list[JobId] = []
    lost: set[JobId] = set()
    for places in rounds(quiet):
        wanting = [quiet[place] for place in places if quiet[place].unique is not None]
        answers, winners = (yield from contest(at, wanting)) if wanting else ({}, [])
        lost |= {id_ for id_, answer in answers.items() if answer.id != id_}
        won = {job.id for job in winners}
        jobs = [job for job in (new[place] for place in places) if job.unique is None or job.id in won]
        if jobs:
            made += (id_ for (id_,) in (yield Ask(_ADD, (at, *columns([_row(job) for job in jobs])))))
    if made and not all(job.is_new for job in new):
        yield Ask(_ADDED_AGAIN, (made,))
    return lost


def _quiet(job: NewJob) -> NewJob:
    """Have a job that would raise where its key is taken say so without a word."""
    if job.unique is None or job.unique.on_conflict is not OnConflict.RAISE:
        return job
    return replace(job, unique=replace(job.unique, on_conflict=OnConflict.RETURN))


def _row(job: NewJob) -> tuple[object, ...]:
    wanted = job.unique
    return (
        job.id,
        care_of_new(job.max_attempts, job.loss_limit),
        job.queue,
        str(job.task),
        job.priority,
        job.max_attempts,
        job.loss_limit,
        policy_text(job.backoff, job.retention, job.facts.slot is not None),
        job.timeout,
        *_either(job.run_at),
        *_either(job.expires),
        key_bytes(job.key),
        job.facts.parent,
        facts_bytes(job.facts),
        job.payload,
        *((None, None, None) if wanted is None else (key_bytes(wanted.key), wanted.period, str(wanted.on_conflict))),
    )


def _either(when: datetime | timedelta | None) -> tuple[datetime | None, timedelta | None]:
    """Divide what is an instant from what is a span, from now on."""
    return (None, when) if isinstance(when, timedelta) else (when, None)
