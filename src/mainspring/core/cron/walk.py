"""Finding the slots of an expression in a zone, through every change of its clocks.

Within a stretch of even time a wall time and an instant differ by a constant, and there is nothing to it. Between two
stretches clocks have jumped, and the two kinds of expressions part:

- One that follows the clock on the wall has a slot whenever that clock shows one of its times: none for a time that is
  left out, two for a time that is shown twice.
- One with fixed times has a slot for each of its times, at the first instant at which clocks show that time or a later
  one: for a time that is left out this is the end of the gap, and for a time that is shown twice it is the first.
"""

from collections.abc import Callable, Iterator
from datetime import datetime
from functools import lru_cache
from typing import Final

from mainspring.core.cron.expression import read, shown
from mainspring.core.cron.timetable import DAY, Timetable
from mainspring.core.cron.zone import EPOCH, SECOND, Zone, zone
from mainspring.errors import ScheduleError

FIRST: Final = (datetime.fromisoformat("0002-01-01T00:00Z") - EPOCH) // SECOND
END: Final = (datetime.fromisoformat("9999-01-01T00:00Z") - EPOCH) // SECOND
"""Slots lie from `FIRST` on and before `END`, so that no zone's clocks leave the calendar."""

# When the last announced change is past, clocks change for ever by a rule that asks for no more than the weekdays of a
# year and whether it is a leap year. Today's data announce none after 2087, and these 28 years are of all 14 kinds.
_SETTLED: Final = (datetime.fromisoformat("2101-01-01T00:00Z") - EPOCH) // SECOND
_ALL_KINDS_OF_YEARS: Final = (datetime.fromisoformat("2129-01-01T00:00Z") - EPOCH) // SECOND


class Walk:
    """The slots of one expression in one zone, as seconds since 1970."""

    __slots__ = ("_fixed", "_timetable", "_zone")

    def __init__(self, timetable: Timetable, zone: Zone, *, fixed: bool) -> None:
        self._timetable = timetable
        self._zone = zone
        self._fixed = fixed

    def at_or_after(self, instant: int, until: int = END) -> int | None:
        """Find the first slot that is not before an instant."""
        instant = max(instant, FIRST)
        asked, found = 1, 0  # nothing matches from the one to the other: not asked again while clocks stay within
        while instant < until:
            start, end, offset, reached = self._zone.at(instant)
            wall = instant + offset
            if self._fixed and (instant == start or wall < reached):
                wall = reached
            if not asked <= wall <= found:
                asked, answer = wall, self._timetable.at_or_after(wall)
                if answer is None:
                    return None
                found = answer
            slot = max(found - offset, start)
            if slot < end:
                return slot if slot < until else None
            instant = end
        return None

    def at_or_before(self, instant: int) -> int | None:
        """Find the last slot that is not after an instant."""
        instant = min(instant, END - 1)
        asked, found = 0, 1
        while instant >= FIRST:
            start, _, offset, reached = self._zone.at(instant)
            wall = instant + offset
            if not found <= wall <= asked:
                asked, answer = wall, self._timetable.at_or_before(wall)
                if answer is None:
                    return None
                found = answer
            if found >= (reached if self._fixed else start + offset):
                slot = max(found - offset, start)
                return slot if slot >= FIRST else None
            instant = start - 1
        return None

    def count(self, first: int, last: int) -> int:
        """Count the slots from one instant to another, both included; a day takes as long as a slot."""
        total = 0
        last = min(last, END - 1)
        slot = self.at_or_after(first)
        while slot is not None and slot <= last:
            start, end, offset, _ = self._zone.at(slot)
            if slot == start:  # perhaps for a time that was left out, of a day that is over
                total, rest = total + 1, slot + 1
            else:
                second = (slot + offset) % DAY
                midnight = slot - second
                rest = min(midnight + DAY, end, last + 1)
                total += self._timetable.count_in_day(second, rest - midnight)
            slot = self.at_or_after(rest)
        return total


@lru_cache(maxsize=4096)  # 10 MB, if it comes to that
def walk(text: str, tz: str) -> Walk:
    """Read an expression and a zone; raises `ScheduleError` if they cannot be read or can never fire."""
    if problems := [*_problems(read, text), *_problems(zone, tz)]:
        raise ScheduleError(shown(text), "; ".join(problems))
    expression = read(text)
    found = Walk(Timetable(expression), zone(tz), fixed=expression.fixed)
    if found.at_or_after(_SETTLED, _ALL_KINDS_OF_YEARS) is None:
        raise ScheduleError(shown(text), f"it can never fire: in {tz} clocks are set forward past its times")
    return found


def _problems(reading: Callable[[str], object], text: str) -> Iterator[str]:
    try:
        reading(text)
    except ScheduleError as error:
        yield error.problem
