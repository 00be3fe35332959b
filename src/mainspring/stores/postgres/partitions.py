"""The days of history: each has a table of its own, which is dropped whole once nothing of it can be seen any more.

Whoever owns the tables makes and drops them. A worker that does not deletes rows instead, a few at a time, and what no
day was made for goes to `history_rest`: slower, and otherwise the same.
"""

from datetime import UTC, date, datetime, time, timedelta
from typing import Final

from mainspring.stores.postgres.statements import Statement, statement
from mainspring.stores.postgres.verb import Ask, Verb

AHEAD: Final = 14
"""For how many days to come there are tables: what is kept for longer goes to `history_rest`."""

_MISSING: Final = statement("partition_missing")
_MAKE: Final = statement("partition_make")
_PASSED: Final = statement("partition_passed")
_DROP: Final = statement("partition_drop")
_EMPTY: Final = statement("partition_empty")
_BOUNDED: Final = Statement("partition_bounded", "SELECT set_config('statement_timeout', '2s', true)")
_DAY: Final = timedelta(days=1)


def make(ahead: int = AHEAD, *, most: int = AHEAD + 1, at: datetime | None = None) -> Verb[None]:
    """Make tables for the days to come, at most so many of them. Several statements."""
    missing = yield Ask(_MISSING, (at, ahead, most))
    if missing:
        yield Ask(_BOUNDED)
    for (day,) in missing:
        yield Ask(_of_day(_MAKE, day))


def drop(limit: int) -> Verb[int]:
    """Drop the oldest day of which nothing can be seen any more, or delete at most `limit` rows of such days.

    Several statements. Returns how many rows are gone; a whole day counts as one.
    """
    passed = yield Ask(_PASSED)
    for day, may_drop in passed:
        if may_drop:
            yield Ask(_BOUNDED)
            yield Ask(_of_day(_DROP, day))
            return len(passed) - len((yield Ask(_PASSED)))
    gone = 0
    for day, _ in passed:
        if gone < limit:
            ((rows,),) = yield Ask(_EMPTY, (_begin(day), _begin(day + _DAY), limit - gone))
            gone += rows
    return gone


def upkeep(limit: int) -> Verb[int]:
    """Drop or empty what has passed, and make the next day that is missing. Several statements, mostly two."""
    gone = yield from drop(limit)
    yield from make(most=1)
    return gone


def _of_day(template: Statement, day: date) -> Statement:
    text = template.text.replace("history_day", f"history_{day:%Y%m%d}")
    first, last = (_begin(one).isoformat() for one in (day, day + _DAY))
    return Statement(template.name, text.replace("first instant", first).replace("last instant", last))


def _begin(day: date) -> datetime:
    return datetime.combine(day, time.min, UTC)
