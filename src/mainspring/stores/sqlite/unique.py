"""Unique keys: who has one, and for how long.

A row says which job has a key. Whether the key is taken is read from that job: while it waits or runs, and after that
until the key's own period has passed. So the end of a job has nothing to write here.
"""

from typing import Final, NamedTuple

from mainspring.core.job import FINISHED, State
from mainspring.core.names import Name
from mainspring.core.unique import UniqueKey, is_taken
from mainspring.stores.sqlite.rows import instant, optional_instant, optional_micros
from mainspring.stores.sqlite.session import Session
from mainspring.stores.sqlite.statements import statement

_FIND: Final = statement("unique_find")
_TAKE: Final = statement("unique_take")
_DROP: Final = statement("unique_drop")
_OUTLIVE: Final = statement("unique_outlive")


class Holder(NamedTuple):
    """The job that has a key, and its state; a job that is gone has none."""

    job: bytes
    state: State | None


def holder(session: Session, task: Name, key: str) -> Holder | None:
    """Return who has a key, if it is taken."""
    row = session.row(_FIND, (str(task), key))
    if row is None:
        return None
    job, taken_until, stored = row
    state = None if stored is None else State(stored)
    active = state is not None and state not in FINISHED
    if not is_taken(active=active, taken_until=optional_instant(taken_until), now=instant(session.now)):
        return None
    return Holder(job, state)


def take(session: Session, task: Name, unique: UniqueKey, job: bytes, enqueued_at: int) -> None:
    """Give a key to a job, for as long as it is active, and for its period."""
    until = optional_micros(unique.taken_until(instant(enqueued_at)))
    session.run(_TAKE, (str(task), unique.key, job, until))


def drop(session: Session, task: Name, unique: UniqueKey, job: bytes) -> None:
    """Free the key of a job that an operator deletes, whatever its period says."""
    session.run(_DROP, (str(task), unique.key, job))


def outlive(session: Session, task: Name, unique: UniqueKey, job: bytes) -> None:
    """Free the key of a job that is pruned, unless it has a period: that may be longer than the job was kept."""
    session.run(_OUTLIVE, (str(task), unique.key, job))
