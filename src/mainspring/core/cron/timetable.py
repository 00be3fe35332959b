"""The times at which an expression matches a clock on a wall, as whole seconds; zones aside.

A wall time is a number of seconds since 1970 as that clock shows them. Days come from the table of `days.py`, the time
of a day is a set of 1,440 minutes and one of 60 seconds; the next one is found by its lowest bit, not by walking.
"""

from datetime import MAXYEAR, date
from typing import Final

from mainspring.core.cron.days import SHORTEST, length_of
from mainspring.core.cron.expression import Expression
from mainspring.core.cron.fields import bits

DAY: Final = 86_400
_EPOCH: Final = date(1970, 1, 1).toordinal()
_date = date.fromordinal


class Timetable:
    """The wall times of one expression."""

    __slots__ = ("_calendar", "_first", "_first_second", "_last", "_last_second", "_minutes", "_months", "_seconds")

    def __init__(self, expression: Expression) -> None:
        self._months = expression.months
        self._calendar = expression.calendar
        self._minutes = sum(expression.minutes << 60 * hour for hour in bits(expression.hours))
        self._seconds = expression.seconds
        self._first_second = _lowest(self._seconds)
        self._last_second = _highest(self._seconds)
        self._first = _lowest(self._minutes) * 60 + self._first_second
        self._last = _highest(self._minutes) * 60 + self._last_second

    def at_or_after(self, wall: int) -> int | None:
        """Find the first wall time that is not before this one; None if it would be after the year 9999."""
        number, second = divmod(wall, DAY)
        day = _date(number + _EPOCH)
        later = self._days(day.year, day.month, number + _EPOCH - day.day + 1) >> day.day
        if later & 1 and (time := self._time_at_or_after(second)) is not None:
            return number * DAY + time
        later >>= 1
        if later:
            return (number + 1 + _lowest(later)) * DAY + self._first
        first = self._first_day_after(day.year, day.month)
        return None if first is None else (first - _EPOCH) * DAY + self._first

    def at_or_before(self, wall: int) -> int | None:
        """Find the last wall time that is not after this one; None if it would be before the year 1."""
        number, second = divmod(wall, DAY)
        day = _date(number + _EPOCH)
        days = self._days(day.year, day.month, number + _EPOCH - day.day + 1)
        if days >> day.day & 1 and (time := self._time_at_or_before(second)) is not None:
            return number * DAY + time
        earlier = days & (1 << day.day) - 1
        if earlier:
            return (number - day.day + _highest(earlier)) * DAY + self._last
        last = self._last_day_before(day.year, day.month)
        return None if last is None else (last - _EPOCH) * DAY + self._last

    def count_in_day(self, begin: int, end: int) -> int:
        """Count the times of a day that matches, from one second of it to before another."""
        return self._count_from(begin) - self._count_from(end)

    def _count_from(self, second: int) -> int:
        minute, second = divmod(second, 60)
        later = self._minutes >> minute
        in_this_minute = (self._seconds >> second).bit_count() if later & 1 else 0
        return in_this_minute + (later >> 1).bit_count() * self._seconds.bit_count()

    def _time_at_or_after(self, second: int) -> int | None:
        minute, second = divmod(second, 60)
        later = self._minutes >> minute
        if later & 1 and (seconds := self._seconds >> second):
            return minute * 60 + second + _lowest(seconds)
        later >>= 1
        return (minute + 1 + _lowest(later)) * 60 + self._first_second if later else None

    def _time_at_or_before(self, second: int) -> int | None:
        minute, second = divmod(second, 60)
        if self._minutes >> minute & 1 and (seconds := self._seconds & (2 << second) - 1):
            return minute * 60 + _highest(seconds)
        earlier = self._minutes & (1 << minute) - 1
        return _highest(earlier) * 60 + self._last_second if earlier else None

    def _first_day_after(self, year: int, month: int) -> int | None:
        while True:
            later = self._months >> month + 1
            if later:
                month += 1 + _lowest(later)
            else:
                year, month = year + 1, _lowest(self._months)
            if year > MAXYEAR:
                return None
            first = date(year, month, 1).toordinal()
            if days := self._days(year, month, first):
                return first + _lowest(days) - 1

    def _last_day_before(self, year: int, month: int) -> int | None:
        while True:
            earlier = self._months & (1 << month) - 1
            if earlier:
                month = _highest(earlier)
            else:
                year, month = year - 1, _highest(self._months)
            if year < 1:
                return None
            first = date(year, month, 1).toordinal()
            if days := self._days(year, month, first):
                return first + _highest(days) - 1

    def _days(self, year: int, month: int, first: int) -> int:
        """Return the days of a month that match; `first` is the number of its first day, where Sundays divide by 7."""
        return self._calendar[length_of(year, month) - SHORTEST][first % 7] if self._months >> month & 1 else 0


def _lowest(numbers: int) -> int:
    return (numbers & -numbers).bit_length() - 1


def _highest(numbers: int) -> int:
    return numbers.bit_length() - 1
