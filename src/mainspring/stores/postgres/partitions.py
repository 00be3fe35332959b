"""Tables of days: each day has one of its own, which is dropped whole once nothing of it is needed any more.

Those of history go by when their jobs are to be forgotten, and those of an outbox's log by when their messages were
published. Whoever owns the tables makes and drops them. A worker that does not deletes rows instead, a few at a time, and
what no day was made for goes to a table for the rest: slower, and otherwise the same.

Making a day reads the table for the rest under a lock, within a limit. Where that is too short because the rest is large, each
process tries again an hour later, and not with every prune (`Pace`).
"""

import time as system_time
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from typing import Final, NamedTuple

from mainspring.stores.postgres.statements import Statement, statement
from mainspring.stores.postgres.verb import Ask, Verb

AHEAD: Final = 16
"""Days ahead for which there are tables. Jobs that are kept for more than 14 days go to `history_long`; the other two days
are time to make the next table. A job that finds none goes to `history_rest`, and its day cannot be made any more."""

RETRY_AFTER_S: Final = 3600.0
"""Seconds until a process tries again to make a day that it could not make."""

_MAKE: Final = statement("partition_make")
_PASSED: Final = statement("partition_passed")
_DROP: Final = statement("partition_drop")
_EMPTY: Final = statement("partition_empty")
_BOUNDED: Final = Statement("partition_bounded", "SELECT set_config('statement_timeout', '2s', true)")
_DAY: Final = timedelta(days=1)


class Days(NamedTuple):
    """A table in days."""

    table: str
    ahead: int
    """For how many days to come there are tables, at most."""
    missing: Statement

    def make(self, ahead: int | None = None, *, most: int | None = None, at: datetime | None = None) -> Verb[None]:
        """Make tables for the days to come, at most so many of them. Several statements."""
        ahead = self.ahead if ahead is None else min(ahead, self.ahead)
        missing = yield Ask(self.missing, (at, ahead, ahead + 1 if most is None else most))
        if missing:
            yield Ask(_BOUNDED)
        # Written for history, and the same for any other.
        make_one = Statement(_MAKE.name, _MAKE.text.replace("history", self.table))
        for (day,) in missing:
            yield Ask(self.of_day(make_one, day))

    def of_day(self, template: Statement, day: date) -> Statement:
        """Return a statement for the table of one day."""
        text = template.text.replace(f"{self.table}_day", f"{self.table}_{day:%Y%m%d}")
        first, last = (begin(one).isoformat() for one in (day, day + _DAY))
        return Statement(template.name, text.replace("first instant", first).replace("last instant", last))


HISTORY: Final = Days("history", AHEAD, statement("partition_missing"))
MESSAGES: Final = Days("outbox_messages", 3, statement("outbox_days_missing"))
"""What is published is published now; each day more is one more table to look into for what is new."""


def make(ahead: int = AHEAD, *, most: int | None = None, at: datetime | None = None) -> Verb[None]:
    """Make tables for the days of history to come, at most so many of them. Several statements."""
    yield from HISTORY.make(ahead, most=most, at=at)


def drop(limit: int) -> Verb[int]:
    """Drop the oldest day of which nothing can be seen any more, or delete at most `limit` rows of such days.

    Several statements. Returns how many rows are gone; a whole day counts as one.
    """
    passed = yield Ask(_PASSED)
    for day, may_drop in passed:
        if may_drop:
            yield Ask(_BOUNDED)
            yield Ask(HISTORY.of_day(_DROP, day))
            return len(passed) - len((yield Ask(_PASSED)))
    gone = 0
    for day, _ in passed:
        if gone < limit:
            ((rows,),) = yield Ask(_EMPTY, (begin(day), begin(day + _DAY), limit - gone))
            gone += rows
    return gone


class Pace:
    """Rate limit of this process for creating a day of history."""

    def __init__(self, clock: Callable[[], float] = system_time.monotonic) -> None:
        self._clock = clock
        self._not_before: float | None = None

    @property
    def is_due(self) -> bool:
        return self._not_before is None or self._clock() >= self._not_before

    def failed(self) -> None:
        self._not_before = self._clock() + RETRY_AFTER_S


def upkeep(limit: int, pace: Pace) -> Verb[int]:
    """Drop or empty what has passed, and make the next day that is missing. Several statements, mostly two."""
    gone = yield from drop(limit)
    if pace.is_due and (missing := (yield Ask(HISTORY.missing, (None, AHEAD, 1)))):
        yield from make(most=1)
        if (yield Ask(HISTORY.missing, (None, AHEAD, 1))) == missing:
            pace.failed()
    return gone


def begin(day: date) -> datetime:
    return datetime.combine(day, time.min, UTC)
