"""Unique keys: who has one, and for how long.

A row says which job has a key. Whether the key is taken is read from that job: while it waits or runs, and after that
until the key's own period has passed. A key is held and looked at in two statements, since who waited for one must look
anew whether its owner is there: what it saw before it waited is over.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Final, NamedTuple

from mainspring.core.job import JobId, State
from mainspring.core.names import Name
from mainspring.core.unique import UniqueKey, is_taken
from mainspring.stores.postgres.rows import key_bytes, key_text, name
from mainspring.stores.postgres.statements import statement
from mainspring.stores.postgres.verb import Ask, Verb

_LOCK: Final = statement("unique_lock")
_STATES: Final = statement("unique_states")
_TAKE: Final = statement("unique_take")


class Owner(NamedTuple):
    """Who has a key."""

    job: JobId
    taken_until: datetime | None
    """Until when at least."""


def hold(wanting: Sequence[tuple[Name, UniqueKey, JobId]]) -> Verb[dict[tuple[Name, str], Owner]]:
    """Hold keys until the transaction ends, all in one order for everyone; says who has each."""
    tasks = [str(task) for task, _, _ in wanting]
    keys = [key_bytes(wanted.key) for _, wanted, _ in wanting]
    rows = yield Ask(_LOCK, (tasks, keys, [job for _, _, job in wanting]))
    return {(name(task), key_text(key) or ""): Owner(job, until) for task, key, job, until in rows}


def take(owners: Sequence[tuple[Name, UniqueKey, JobId, datetime]]) -> Verb[None]:
    """Give keys that are held to jobs that were enqueued then."""
    yield Ask(
        _TAKE,
        (
            [str(task) for task, _, _, _ in owners],
            [key_bytes(wanted.key) for _, wanted, _, _ in owners],
            [job for _, _, job, _ in owners],
            [wanted.period for _, wanted, _, _ in owners],
            [enqueued_at for _, _, _, enqueued_at in owners],
        ),
    )


def take_again(
    at: datetime | None, task: Name, wanted: UniqueKey, job: JobId, enqueued_at: datetime
) -> Verb[JobId | None]:
    """Take a key for a finished job that becomes active again; returns the other job that has it."""
    held = yield from hold([(task, wanted, job)])
    owner = held[task, wanted.key]
    states, now = yield from states_of(at, [owner.job])
    if owner.job != job and is_taken(active=owner.job in states, taken_until=owner.taken_until, now=now):
        return owner.job
    yield from take([(task, wanted, job, enqueued_at)])
    return None


def states_of(at: datetime | None, jobs: Sequence[JobId]) -> Verb[tuple[dict[JobId, State], datetime]]:
    """Read the states of those that are active, and the time."""
    rows = yield Ask(_STATES, (at, list(jobs)))
    return {id_: State(state) for id_, state, _ in rows if id_ is not None}, rows[-1][2]
