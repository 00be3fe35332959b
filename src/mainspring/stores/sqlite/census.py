"""The census: how many jobs wait and run. Counts in indexes, up to a number of each, while there is time."""

import time
from datetime import datetime, timedelta
from typing import Final

from mainspring.core.tally import Count
from mainspring.stores.overview import MOST, Census
from mainspring.stores.sqlite.numbers import given_since
from mainspring.stores.sqlite.rows import instant, micros, optional_instant
from mainspring.stores.sqlite.session import Session
from mainspring.stores.sqlite.statements import statement

_LANES: Final = statement("search_lanes")
_WAITING: Final = statement("census_waiting")
_RUNNING: Final = statement("census_running")
_MOST_RUNNING: Final = 10 * MOST
_SECOND: Final = 1_000_000


def census(session: Session, since: datetime, budget: timedelta) -> Census:
    give_up_at = time.monotonic() + budget.total_seconds()
    enqueued = _enqueued(session, micros(since))
    running: dict[int, int] = dict(session.rows(_RUNNING, (_MOST_RUNNING,)))
    complete = sum(running.values()) < _MOST_RUNNING
    counts: dict[tuple[str, str], Count] = {}
    for (number,) in session.rows_by_name(_LANES, {"queue": None, "task": None}):
        due, later, oldest = 0, 0, None
        if time.monotonic() < give_up_at:
            due, later, oldest = session.rows_by_name(_WAITING, {"lane": number, "now": session.now, "most": MOST})[0]
        else:
            complete = False
        if due or later or number in running:
            lane = session.lane(number)
            one = Count(
                queue=lane.queue,
                task=str(lane.task),
                due=due,
                later=later,
                running=min(running.get(number, 0), MOST),
                oldest=optional_instant(oldest),
            )
            kind = one.queue, one.task
            counts[kind] = _both(counts[kind], one) if kind in counts else one
    return Census(
        at=instant(session.now),
        counts=tuple(counts[kind] for kind in sorted(counts)),
        enqueued=enqueued,
        complete=complete,
    )


def _both(one: Count, other: Count) -> Count:
    """Put lanes of one kind together."""
    olds = [old for old in (one.oldest, other.oldest) if old is not None]
    return Count(
        queue=one.queue,
        task=one.task,
        due=min(one.due + other.due, MOST),
        later=min(one.later + other.later, MOST),
        running=min(one.running + other.running, MOST),
        oldest=min(olds, default=None),
    )


def _enqueued(session: Session, since: int) -> int:
    """About how many jobs were enqueued since then. Those that were deleted since count too."""
    late = given_since(session, since)
    seconds = max((session.now - since) / _SECOND, 1)
    return min(len(late), int(MOST * seconds))
