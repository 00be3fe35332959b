"""Which days of a month are meant.

A month is told by its length and the weekday of its first day, and there are 28 such months. So all that a rule can ever
say of days is a table of 28 numbers, in which bit d stands for day d, made once when the rule is read.
"""

from typing import Final, TypeAlias

from mainspring.core.cron.fields import MonthDays, WeekDays, bits

Calendar: TypeAlias = tuple[tuple[int, ...], ...]
"""The days of a month: by its length from 28 on, then by the weekday of its first day from Sunday on."""

LENGTHS: Final = (0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
SHORTEST: Final = 28

_SUNDAY, _SATURDAY = 0, 6
_FIVE_WEEKS: Final = sum(1 << 7 * week for week in range(5))


def calendar(days: MonthDays, weekdays: WeekDays) -> Calendar:
    """Work out every month that there can be."""
    return tuple(
        tuple(_in_month(days, weekdays, length, first) for first in range(7)) for length in range(SHORTEST, 32)
    )


def can_match(months: int, by_month: Calendar) -> bool:
    """Say whether there is a day in any year: in 400 years every month begins on every day of the week."""
    lengths = {length for month in bits(months) for length in _lengths(month)}
    return any(any(by_month[length - SHORTEST]) for length in lengths)


def length_of(year: int, month: int) -> int:
    if month == 2 and year % 4 == 0 and (year % 100 or year % 400 == 0):
        return 29
    return LENGTHS[month]


def _lengths(month: int) -> tuple[int, ...]:
    return (28, 29) if month == 2 else (LENGTHS[month],)


def _in_month(days: MonthDays, weekdays: WeekDays, length: int, first: int) -> int:
    """Vixie's rule: where both fields are restricted, either will do; one that begins with a star restricts nothing."""
    by_date, by_weekday = _by_date(days, length, first), _by_weekday(weekdays, length, first)
    return by_date & by_weekday if days.starred or weekdays.starred else by_date | by_weekday


def _by_date(days: MonthDays, length: int, first: int) -> int:
    found = days.numbers & _all(length)
    for distance in bits(days.from_last):
        if distance < length:
            found |= 1 << length - distance
    for day in bits(days.nearest):
        if day <= length:
            found |= 1 << _nearest_weekday(day, length, first)
    if days.last_weekday:
        found |= 1 << _nearest_weekday(length, length, first)
    return found


def _nearest_weekday(day: int, length: int, first: int) -> int:
    """Move a day off the weekend, to Friday or Monday, but never into another month."""
    weekday = (first + day - 1) % 7
    if weekday == _SATURDAY:
        return day - 1 if day > 1 else 3
    if weekday == _SUNDAY:
        return day + 1 if day < length else day - 2
    return day


def _by_weekday(weekdays: WeekDays, length: int, first: int) -> int:
    found = _week(weekdays.numbers, first) * _FIVE_WEEKS
    for week, nth in enumerate(weekdays.nth):
        found |= _week(nth, first) << 7 * week
    final_week = _all(length) & ~_all(length - 7)
    return (found << 1 | _week(weekdays.last, first) * _FIVE_WEEKS << 1 & final_week) & _all(length)


def _week(weekdays: int, first: int) -> int:
    """Turn a set of weekdays so that bit 0 is the first day of the month."""
    return (weekdays >> first | weekdays << 7 - first) & 0b1111111


def _all(length: int) -> int:
    return (2 << length) - 2
