"""Pruning: what is past its time goes, a little at a time."""

from typing import Final

from mainspring.stores.overview import KEEP_AUDIT
from mainspring.stores.sqlite import delete
from mainspring.stores.sqlite.rows import span_micros
from mainspring.stores.sqlite.session import Session
from mainspring.stores.sqlite.statements import statement

_DAY: Final = 86_400_000_000
_LONG: Final = span_micros(KEEP_AUDIT)
_JOBS: Final = statement("prune_jobs")
_NODES: Final = statement("prune_nodes")
_PAST_NODE: Final = statement("past_node_add")
_NODE: Final = statement("node_delete")
_ORDERS: Final = statement("prune_orders")
_LOCKS: Final = statement("prune_locks")
_KEYS: Final = statement("prune_unique_keys")
_PERIODS: Final = statement("unique_periods_passed")
_SPENT: Final = statement("prune_spent")
_RUNS: Final = statement("prune_runs")
_REPORT: Final = statement("report_drop")
_AUDIT: Final = statement("prune_audit")
_LINE: Final = statement("audit_drop")


def prune(session: Session, limit: int) -> int:
    """Delete what is past its time, at most `limit` of it."""
    numbers = [number for (number,) in session.rows(_JOBS, (session.now, limit))]
    if numbers:
        delete.delete(session, numbers, pruned=True)
    gone = len(numbers)
    yesterday = session.now - _DAY
    steps = (
        (_runs, session.now),
        (_nodes, yesterday),
        (_orders, yesterday),
        (_locks, yesterday),
        (_audit, session.now - _LONG),
        (_unique_keys, session.now),
    )
    for step, until in steps:
        if gone < limit:
            gone += step(session, until, limit - gone)
    session.run(_SPENT, (session.now, limit))
    return gone


def _runs(session: Session, until: int, limit: int) -> int:
    return session.run(_RUNS, (until, limit))


def _nodes(session: Session, until: int, limit: int) -> int:
    """Forget dead nodes and what they said, but for their ids."""
    dead = session.rows(_NODES, (until, limit))
    session.run_many(_REPORT, dead)
    session.run_many(_PAST_NODE, dead)
    return session.run_many(_NODE, dead)


def _orders(session: Session, until: int, limit: int) -> int:
    return session.run(_ORDERS, (until, limit))


def _locks(session: Session, until: int, limit: int) -> int:
    return session.run(_LOCKS, (until, limit))


def _audit(session: Session, until: int, limit: int) -> int:
    return session.run_many(_LINE, session.rows(_AUDIT, (until, limit)))


def _unique_keys(session: Session, until: int, limit: int) -> int:
    """Free keys whose period has passed. One whose job is still active needs no period any more: its end frees it."""
    freed = session.run(_KEYS, (until, limit))
    session.run(_PERIODS, (until, limit))
    return freed
