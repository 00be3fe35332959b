"""Deleting: a job goes with all that belongs to it."""

from collections.abc import Sequence
from typing import Final

from mainspring.stores.sqlite import gates, places, unique
from mainspring.stores.sqlite.rows import unique as unique_key
from mainspring.stores.sqlite.session import Session
from mainspring.stores.sqlite.statements import statement

_READ: Final = statement("jobs_deleted")
_TABLES: Final = tuple(
    statement(f"delete_{table}") for table in ("jobs", "payloads", "traces", "attempts", "log_lines")
)


def delete(session: Session, numbers: Sequence[int], *, pruned: bool = False) -> None:
    """Take jobs away. The unique key of one that is pruned stays taken until its period has passed."""
    any_places = places.any_taken(session)
    free = unique.outlive if pruned else unique.drop
    keys: set[tuple[str, str]] = set()
    for id_, lane, key, stored_unique in session.rows(_READ, (str(list(numbers)),)):
        if any_places:
            places.vacate_job(session, id_)
        its = session.readable_lane(lane)
        if its is None:
            continue  # keys are stored by task, and the task cannot be read
        if key is not None:
            keys.add((str(its.task), key))
        if (held := unique_key(stored_unique)) is not None:
            free(session, its.task, held, id_)
    for table in _TABLES:
        session.run_many(table, [(number,) for number in numbers])
    if keys:
        gates.unpark(session, keys)
