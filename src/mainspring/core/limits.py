"""How many jobs may run at a time, and how many may start in a while.

A rate is a token bucket that is kept as one instant (the generic cell rate algorithm): `spent_until` is when all the
tokens that were ever taken would have been paid for at the steady pace. Nothing has to be refilled, and nothing drifts.
A clock that is set back by up to a minute makes the next start later by as much. After a larger step the account is from
another clock: one job starts at once, and the next ones follow at the steady pace.
"""

import re
from collections.abc import Iterator
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from msgspec import Struct

from mainspring.duration import LONGEST, duration
from mainspring.errors import DeclarationError

MOMENT: Final = timedelta(microseconds=1)
CLOCK_STEP: Final = timedelta(minutes=1)
"""An instant that is further ahead than its rule allows, by more than this, was written while the clock was ahead."""
_RATE: Final = re.compile(r"([0-9]{1,9}) */ *([0-9].*|[a-z]+)")
_UNITS: Final = (
    (timedelta(days=1), "d"),
    (timedelta(hours=1), "h"),
    (timedelta(minutes=1), "m"),
    (timedelta(seconds=1), "s"),
)


class Rate(Struct, frozen=True, kw_only=True):
    """So many starts in a period, spread evenly; after a quiet time, up to `burst` at once."""

    count: int
    period: timedelta
    burst: int = 1

    def __post_init__(self) -> None:
        DeclarationError.unless("Rate", self._requirements())

    def _requirements(self) -> Iterator[tuple[bool, str]]:
        some_count, some_burst = _is_count(self.count), _is_count(self.burst)
        some_time = timedelta(0) < self.period <= LONGEST
        yield some_count, f"at least one start in a period, not {self.count!r}"
        yield some_burst, f"a burst of at least one, not {self.burst!r}"
        yield some_time, f"a period of more than nothing and at most a century, not {self.period}"
        if some_count and some_burst and some_time:
            moments, longest = self.period // MOMENT, LONGEST // MOMENT
            yield self.count <= moments, "more than a million starts a second cannot be told apart"
            paid_for = self.burst * moments <= self.count * longest
            yield paid_for, f"a burst of {self.burst} would take more than a century to be paid for"

    @classmethod
    def of(cls, text: str, *, burst: int | None = None) -> "Rate":
        """Read "10/s", "100/5m" or "1/1h30m"; where nothing is said, a burst may be a whole period's worth."""
        match = _RATE.fullmatch(text.strip())
        if not match:
            raise DeclarationError("rate", f"{text!r} cannot be read; write how many in which time, like '10/s'")
        count, period = int(match[1]), match[2]
        length = duration(period if period[0].isdigit() else f"1{period}")
        return cls(count=count, period=length, burst=max(count, 1) if burst is None else burst)

    def __str__(self) -> str:
        """Write it as `of` reads it: "5/s", "100/5m"."""
        unit, word = next((one for one in _UNITS if not self.period % one[0]), (timedelta(milliseconds=1), "ms"))
        number = self.period / unit
        return f"{self.count}/{'' if number == 1 else f'{number:g}'}{word}"

    @property
    def interval(self) -> timedelta:
        """The steady time between two starts, in whole microseconds, rounded up: rather too few starts than too many."""
        return -(-self.period // self.count)

    def corrected(self, spent_until: datetime | None, now: datetime) -> datetime | None:
        """Return `spent_until`, or the instant that allows one start now if it was written while the clock was ahead."""
        if spent_until is None or spent_until - self.interval * self.burst <= now + CLOCK_STEP:
            return spent_until
        return now + self.interval * (self.burst - 1)

    def opens_at(self, spent_until: datetime | None) -> datetime | None:
        """Say when the next start is allowed; None: at any time."""
        return None if spent_until is None else spent_until - self.interval * (self.burst - 1)

    def room(self, spent_until: datetime | None, now: datetime) -> int:
        """Say how many may start now."""
        opens_at = self.opens_at(spent_until)
        if opens_at is None:
            return self.burst
        if opens_at > now:
            return 0
        return min(self.burst, (now - opens_at) // self.interval + 1)

    def take(self, spent_until: datetime | None, now: datetime, starts: int) -> datetime:
        """Return what `spent_until` becomes when so many start now."""
        begin = now if spent_until is None else max(spent_until, now)
        return begin + self.interval * starts


def _is_count(value: int) -> bool:
    return type(value) is int and value >= 1


class Limit(Struct, frozen=True, kw_only=True):
    """What a task or queue is limited to, over all nodes together.

    With `key`, the name of an argument or several, the limit holds for each value of it apart; a job whose key is None
    is not limited by it.
    """

    concurrency: int | None = None
    rate: Rate | str | None = None
    key: str | tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        DeclarationError.unless("Limit", self._requirements())
        if isinstance(self.rate, str):
            Rate.of(self.rate)  # what cannot be read is told here, and not when the first job comes

    def _requirements(self) -> Iterator[tuple[bool, str]]:
        yield self.concurrency is not None or self.rate is not None, "say how many: concurrency=1, or rate='10/s'"
        at_a_time = self.concurrency is None or _is_count(self.concurrency)
        yield at_a_time, f"concurrency of at least 1, not {self.concurrency!r}"
        yield self.rate is None or isinstance(self.rate, Rate | str), f"a rate is written as '10/s', not {self.rate!r}"
        named = self.key is None or (self.keys != () and all(self.keys))
        yield named, "a key is the name of an argument, or several of them"

    @property
    def keys(self) -> tuple[str, ...]:
        """The names of the arguments that make up the key."""
        if self.key is None:
            return ()
        return (self.key,) if isinstance(self.key, str) else self.key

    @property
    def pace(self) -> Rate | None:
        return Rate.of(self.rate) if isinstance(self.rate, str) else self.rate


class Scope(StrEnum):
    """Whom a gate stands in front of."""

    TASK = "task"  # all jobs of a task together
    KEY = "key"  # the jobs of a task that have the same key, each key apart
    QUEUE = "queue"  # all jobs of a queue together


class Gate(Struct, frozen=True, kw_only=True):
    """A limit as a store keeps it; `name` is the task or the queue."""

    scope: Scope
    name: str
    concurrency: int | None = None
    rate: Rate | None = None

    @property
    def longest_wait(self) -> timedelta:
        """How far ahead the next start can be, as far as time decides; an instant further ahead is from another clock."""
        return CLOCK_STEP if self.rate is None else self.rate.interval + CLOCK_STEP
