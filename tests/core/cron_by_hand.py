"""Cron by hand: the rules of the documentation, followed the slow way, without a line of the code that is tested.

Nothing here is quick or clever. Fields are spelled out value by value, days are looked up in a calendar, and slots are
found by going through time minute by minute, looking at the clock each time.
"""

import calendar
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta, tzinfo
from functools import lru_cache

MINUTE = timedelta(minutes=1)
SECOND = timedelta(seconds=1)
MONTHS = ["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"]
WEEKDAYS = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"]


class ByHand:
    """An expression of 5 or 6 fields, without macros."""

    def __init__(self, text: str) -> None:
        words = text.upper().split()
        if len(words) == 5:
            words = ["0", *words]
        second, minute, hour, self.day, month, self.weekday = words
        self.seconds = numbers(second, 0, 59)
        self.minutes = numbers(minute, 0, 59)
        self.hours = numbers(hour, 0, 23)
        self.months = numbers(month, 1, 12, MONTHS)
        self.follows_the_wall = any(word.startswith("*") for word in (second, minute, hour))
        self.step = MINUTE if self.seconds == {0} else SECOND
        self.is_meant = lru_cache(maxsize=None)(self._is_meant)

    def shows(self, wall: datetime) -> bool:
        """Say whether a clock that shows this makes a slot."""
        return (
            wall.minute in self.minutes
            and wall.hour in self.hours
            and wall.second in self.seconds
            and self.is_meant(wall.date())
        )

    def _is_meant(self, day: date) -> bool:
        if day.month not in self.months:
            return False
        by_date = any(is_date(item, day) for item in self.day.split(","))
        by_weekday = any(is_weekday(item, day) for item in self.weekday.split(","))
        if self.day[0] in "*?" or self.weekday[0] in "*?":
            return by_date and by_weekday
        return by_date or by_weekday


def numbers(text: str, first: int, last: int, names: Iterable[str] = ()) -> set[int]:
    """Spell out a field."""
    value = {name: number for number, name in enumerate(names, first)}
    found = set()
    for item in text.split(","):
        span, _, step = item.partition("/")
        low, _, high = span.partition("-")
        begin = first if low == "*" else value.get(low) if low in value else int(low)
        end = value.get(high) if high in value else int(high) if high else last if step or low == "*" else begin
        assert begin is not None
        for number in range(200):
            if number % int(step or 1) == 0:
                found.add(begin)
            if begin == end:
                break
            begin = begin + 1 if begin < last else first
    return found


def is_date(item: str, day: date) -> bool:
    length = calendar.monthrange(day.year, day.month)[1]
    if item == "?":
        return True
    if item.startswith("L") and item != "LW":
        return day.day == length - int(item[2:] or 0)
    if item.endswith("W"):
        wanted = length if item == "LW" else int(item[:-1])
        weekdays = [one for one in range(1, length + 1) if day.replace(day=one).weekday() < 5]
        return wanted <= length and day.day == min(weekdays, key=lambda one: abs(one - wanted))
    return day.day in numbers(item, 1, 31)


def is_weekday(item: str, day: date) -> bool:
    names = {name: str(number) for number, name in enumerate(WEEKDAYS)}
    for name, number in names.items():
        item = item.replace(name, number)
    if item == "?":
        return True
    same = [
        one
        for one in range(1, calendar.monthrange(day.year, day.month)[1] + 1)
        if day.replace(day=one).weekday() == day.weekday()
    ]
    today = day.isoweekday() % 7
    if item.endswith("L"):
        return int(item[:-1]) % 7 == today and day.day == same[-1]
    if "#" in item:
        weekday, count = map(int, item.split("#"))
        return weekday % 7 == today and same.index(day.day) + 1 == count
    if "-" in item:  # from one day to the next, until the last: 5-1, 6-7, 7-2
        span, _, step = item.partition("/")
        low, high = map(int, span.split("-"))
        if low > high:
            high += 7
        return today in {number % 7 for number in range(low, high + 1, int(step or 1))}
    return today in {number % 7 for number in numbers(item, 0, 7)}


@dataclass(frozen=True, slots=True)
class Moment:
    """An instant, what the clock shows then, and how it came to show that."""

    instant: datetime
    wall: datetime
    again: bool
    """The clock has shown this before."""
    left_out: list[datetime] = field(default_factory=list)
    """What the clock has not shown because it was set forward just now."""


def moments(
    zone: tzinfo, start: datetime, end: datetime, step: timedelta = MINUTE, before: timedelta = timedelta(hours=30)
) -> Iterator[Moment]:
    """Go from one instant to another, both included, looking at the clock at each step.

    It is looked at for a while before, because what was shown then may be shown again.
    """
    seen: set[datetime] = set()
    instant = start - before
    expected = instant.astimezone(zone).replace(tzinfo=None)
    while instant <= end:
        wall = instant.astimezone(zone).replace(tzinfo=None, fold=0)
        left_out = []
        while expected < wall:
            left_out.append(expected)
            expected += step
        if instant >= start:
            yield Moment(instant, wall, wall in seen, [one for one in left_out if one not in seen])
        seen.add(wall)
        expected = wall + step
        instant += step


def slots(rule: ByHand, walk: Iterable[Moment]) -> list[datetime]:
    """Name the instants of a walk that are slots."""
    return [moment.instant for moment in walk if is_slot(rule, moment)]


def is_slot(rule: ByHand, moment: Moment) -> bool:
    if rule.follows_the_wall:
        return rule.shows(moment.wall)
    if rule.shows(moment.wall) and not moment.again:
        return True
    return any(map(rule.shows, moment.left_out))


def changes(zone: tzinfo, begin: datetime, end: datetime) -> list[datetime]:
    """Name the instants at which clocks were set, by looking every third day: none was ever set twice in less."""
    found = []
    look, step = begin, timedelta(days=3)
    offset = look.astimezone(zone).utcoffset()
    while look < end:
        if (then := (look + step).astimezone(zone).utcoffset()) != offset:
            same, other = look, look + step
            while other - same > SECOND:
                middle = same + (other - same) // SECOND // 2 * SECOND
                if middle.astimezone(zone).utcoffset() == offset:
                    same = middle
                else:
                    other = middle
            found.append(other)
        offset = then
        look += step
    return found


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)
