"""Strands: the lines that jobs wait in, one for each lane and key.

Always true when a transaction ends: a strand's head is its first job, `full` and `opens_at` are what its key's gate
says, and a key that nobody waits with has no strand. So a claim reads the heads of what it may have and nothing else,
whatever waits behind them or is held back in front of them.
"""

from collections.abc import Collection
from typing import Final

from mainspring.stores.sqlite import gates
from mainspring.stores.sqlite.lanes import Lane
from mainspring.stores.sqlite.session import Session
from mainspring.stores.sqlite.statements import statement

_FIND: Final = statement("strand_find")
_ADD: Final = statement("strand_add")
_LEAD: Final = statement("strand_lead")
_REFRESH: Final = statement("strands_refresh")
_DROP_EMPTY: Final = statement("strands_drop_empty")
_UNREADABLE: Final = statement("strands_unreadable")
_MAKE_DUE: Final = statement("jobs_unreadable_due")
_BEFORE_THE_CALENDAR: Final = -(1 << 61)
"""A `run_at` that is due and cannot be decoded."""


def enter(session: Session, lane: Lane, key: str | None, run_at: int, job: bytes) -> int:
    """Return the strand for a job, or the first of several, that is about to wait there; it leads if it is first."""
    found = session.row(_FIND, (lane.id, key))
    if found is None:
        full, opens_at = (False, None) if key is None else gates.key_stands(session, str(lane.task), key)
        found = session.rows(_ADD, (lane.id, key, run_at, job, full, opens_at))[0]
        return int(found[0])
    strand, head_at, head_id = found
    if not isinstance(head_at, int) or (run_at, job) < (head_at, head_id):  # None: it is empty
        session.run(_LEAD, (run_at, job, strand))
    return int(strand)


def leave(session: Session, strands: Collection[int]) -> None:
    """Look again where these begin: jobs have left them."""
    numbers = [(strand,) for strand in strands]
    session.run_many(_REFRESH, numbers)
    session.run_many(_DROP_EMPTY, numbers)


def make_unreadable_due(session: Session, lanes: Collection[int]) -> None:
    """Make jobs whose `run_at` is not a number due: SQLite orders them after all others, and they would never be claimed.

    They still cannot be decoded, so the next claim fails them.
    """
    numbers = [number for lane in lanes for (number,) in session.rows(_UNREADABLE, (lane,))]
    session.run_many(_MAKE_DUE, [(_BEFORE_THE_CALENDAR, number) for number in numbers])
    leave(session, numbers)
