"""Who of several new jobs gets the unique key that it wants, where somebody has it or had it."""

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from mainspring.core.command import CancelJob
from mainspring.core.job import WAITING, JobId
from mainspring.core.machine import command
from mainspring.core.unique import OnConflict, UniqueKey, is_taken
from mainspring.errors import Conflict
from mainspring.stores.postgres import settle, unique
from mainspring.stores.postgres.statements import statement
from mainspring.stores.postgres.verb import Ask, Verb
from mainspring.stores.records import Enqueued, NewJob, Settlement

_THERE: Final = statement("ids_there")


def contest(at: datetime | None, jobs: Sequence[NewJob]) -> Verb[tuple[dict[JobId, Enqueued], list[NewJob]]]:
    """Decide over jobs that want different keys: the answers of those who get none, and those who do."""
    there = yield from _there(jobs)
    wanting = [(job, job.unique) for job in jobs if job.id not in there and job.unique is not None]
    if not wanting:
        return _known(there), []
    held = yield from unique.hold([(job.task, wanted, job.id) for job, wanted in wanting])
    # Once more, now that the keys are held: who had them just now may have enqueued the very same job.
    there |= yield from _there(jobs)
    answers = _known(there)
    states, now = yield from unique.states_of(at, [owner.job for owner in held.values()])
    winners: list[tuple[NewJob, UniqueKey]] = []
    for job, wanted in wanting:
        if job.id in there:
            continue
        owner = held[job.task, wanted.key]
        state = states.get(owner.job)
        taken = owner.job != job.id and is_taken(active=state is not None, taken_until=owner.taken_until, now=now)
        if taken and wanted.on_conflict is OnConflict.RAISE:
            raise Conflict(str(job.task), wanted.key, str(owner.job))
        if taken and wanted.on_conflict is OnConflict.REPLACE and state in WAITING:
            taken = not (yield from _cancel(at, owner.job, now))
        if taken:
            answers[job.id] = Enqueued(id=owner.job, fresh=False)
        else:
            winners.append((job, wanted))
    if winners:
        yield from unique.take([(job.task, wanted, job.id, now) for job, wanted in winners])
    return answers, [job for job, _ in winners]


def _there(jobs: Sequence[NewJob]) -> Verb[set[JobId]]:
    return {id_ for (id_,) in (yield Ask(_THERE, ([job.id for job in jobs],)))}


def _known(ids: set[JobId]) -> dict[JobId, Enqueued]:
    return {id_: Enqueued(id=id_, fresh=False) for id_ in ids}


def _cancel(at: datetime | None, job: JobId, now: datetime) -> Verb[bool]:
    """Cancel a waiting job, as an operator would, unless somebody is at it just now."""
    found = yield from settle.hold_waiting(job)
    if found is None:
        return False
    yield from settle.settle(at, [Settlement(change=command(found, CancelJob(), now))])
    return True
