"""Unique keys: who has one, and for how long.

A row says which job has a key. Whether the key is taken is read from that job: while it waits or runs, and after that
until the key's own period has passed. A key is held and looked at in two statements, since who waited for one must look
anew whether its owner is there: what it saw before it waited is over.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from mainspring.core.job import JobId, State
from mainspring.core.names import Name
from mainspring.core.unique import UniqueKey, is_taken
from mainspring.stores.postgres.rows import key_bytes
from mainspring.stores.postgres.statements import statement
from mainspring.stores.postgres.verb import Ask, Verb

_LOCK: Final = statement("unique_lock")
_STATES: Final = statement("unique_states")
_TAKE: Final = statement("unique_take")


def hold(task: Name, wanting: Sequence[tuple[UniqueKey, JobId]]) -> Verb[dict[str, tuple[JobId, datetime | None]]]:
    """Hold keys of a task until the transaction ends; says who has each, and until when at least."""
    keys = {key_bytes(wanted.key): wanted.key for wanted, _ in wanting}
    held = yield Ask(_LOCK, (str(task), list(keys), [job for _, job in wanting]))
    return {keys[bytes(key)]: (owner, taken_until) for key, owner, taken_until in held}


def take(task: Name, owners: Sequence[tuple[UniqueKey, JobId, datetime]]) -> Verb[None]:
    """Give keys that are held to jobs that were enqueued then."""
    yield Ask(
        _TAKE,
        (
            str(task),
            [key_bytes(wanted.key) for wanted, _, _ in owners],
            [job for _, job, _ in owners],
            [wanted.period for wanted, _, _ in owners],
            [enqueued_at for _, _, enqueued_at in owners],
        ),
    )


def take_again(
    at: datetime | None, task: Name, wanted: UniqueKey, job: JobId, enqueued_at: datetime
) -> Verb[JobId | None]:
    """Take a key for a finished job that becomes active again; returns the other job that has it."""
    held = yield from hold(task, [(wanted, job)])
    owner, taken_until = held[wanted.key]
    states, now = yield from states_of(at, [owner])
    if owner != job and is_taken(active=owner in states, taken_until=taken_until, now=now):
        return owner
    yield from take(task, [(wanted, job, enqueued_at)])
    return None


def states_of(at: datetime | None, jobs: Sequence[JobId]) -> Verb[tuple[dict[JobId, State], datetime]]:
    """Read the states of those that are active, and the time."""
    rows = yield Ask(_STATES, (at, list(jobs)))
    return {id_: State(state) for id_, state, _ in rows if id_ is not None}, rows[-1][2]
