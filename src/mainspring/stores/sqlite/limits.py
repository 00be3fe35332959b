"""Limits of queues that operators have set: they hold in place of what is declared, until they are taken back.

Claims read both at once (`sql/rules_all.sql`); here they are changed, and shown.
"""

from typing import Final

from mainspring.core.limits import Rate
from mainspring.stores.overview import QueueRule
from mainspring.stores.sqlite import inspect
from mainspring.stores.sqlite.rows import to_span
from mainspring.stores.sqlite.session import Session
from mainspring.stores.sqlite.statements import statement

_FIND: Final = statement("limit_find")
_SET: Final = statement("limit_set")
_DROP: Final = statement("limit_drop")
_OCCUPY_RUNNING: Final = statement("places_of_running_queue")
_LIMITS: Final = statement("view_limits")
_DECLARED: Final = statement("view_queue_gates")


def limit(session: Session, queue: str, concurrency: int | None, by: str) -> bool:
    found = session.row(_FIND, (queue,))
    if (found[0] if found else None) == concurrency:
        return False
    if concurrency is None:
        session.run(_DROP, (queue,))
    else:
        session.run(_SET, (queue, concurrency, by))
        # What runs may have passed no gate; from now on it counts like everything else.
        session.run(_OCCUPY_RUNNING, (queue,))
    session.woke = True
    return True


def rules(session: Session) -> tuple[QueueRule, ...]:
    declared = {name: (concurrency, _rate(*paced)) for name, concurrency, *paced in session.rows(_DECLARED)}
    limits = {queue: (concurrency, by) for queue, concurrency, by in session.rows(_LIMITS)}
    paused = inspect.pauses(session)
    return tuple(
        QueueRule(
            name=name,
            paused=paused.get(name),
            declared=declared[name][0] if name in declared else None,
            rate=declared[name][1] if name in declared else None,
            limit=limits[name][0] if name in limits else None,
            by=limits[name][1] if name in limits else "",
        )
        for name in sorted({*declared, *limits, *paused})
    )


def _rate(count: int | None, period: int, burst: int) -> Rate | None:
    return None if count is None else Rate(count=count, period=to_span(period), burst=burst)
