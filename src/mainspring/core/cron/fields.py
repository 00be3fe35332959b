"""Reading one field of a cron expression.

Whatever is written (numbers, names, ranges, steps, lists), a field becomes a set of numbers, kept as the bits of one
integer: bit n is set where n is meant. A list of ten thousand ranges is no larger than `*`. The two fields of days know
more than numbers, because which day is the last one, or the second Monday, depends on the month (see `days.py`).
"""

import re
from collections.abc import Iterator
from typing import Final

from msgspec import Struct

from mainspring.errors import ScheduleError


class Field(Struct, frozen=True, kw_only=True):
    """What may stand in a field. `last` may be a second name of a value: 7 is Sunday, as 0 is."""

    name: str
    first: int
    last: int
    size: int  # how many different values there are
    names: tuple[str, ...] = ()  # of the values from `first` on
    expected: str


SECOND: Final = Field(name="second", first=0, last=59, size=60, expected="0 to 59")
MINUTE: Final = Field(name="minute", first=0, last=59, size=60, expected="0 to 59")
HOUR: Final = Field(name="hour", first=0, last=23, size=24, expected="0 to 23")
DAY: Final = Field(name="day of month", first=1, last=31, size=31, expected="1 to 31, L, L-3, LW or 15W")
MONTH: Final = Field(
    name="month",
    first=1,
    last=12,
    size=12,
    names=("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"),
    expected="1 to 12 or JAN to DEC",
)
WEEKDAY: Final = Field(
    name="day of week",
    first=0,
    last=7,
    size=7,
    names=("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"),
    expected="0 to 7 (0 and 7 are Sunday), SUN to SAT, MON#2 or FRIL",
)

_ITEM: Final = re.compile(r"(?P<first>\*|[0-9]+|[A-Z]+)(?:-(?P<last>[0-9]+|[A-Z]+))?(?:/(?P<step>[0-9]+))?")
_FROM_LAST: Final = re.compile(r"L(?:-([0-9]+))?")
_NEAREST: Final = re.compile(r"([0-9]+)W")
_NTH: Final = re.compile(r"([0-9]|[A-Z]{3})#([0-9]+)")
_LAST: Final = re.compile(r"([0-9]|[A-Z]{3})L")


class MonthDays(Struct, frozen=True, kw_only=True):
    """What a field of days of the month says."""

    numbers: int = 0
    from_last: int = 0  # bit 0 for the last day, bit 3 for L-3
    nearest: int = 0  # bit 15 for 15W
    last_weekday: bool = False  # LW
    starred: bool = False

    @property
    def every(self) -> bool:
        return self.numbers == EVERY_DAY


class WeekDays(Struct, frozen=True, kw_only=True):
    """What a field of days of the week says; bit 0 is Sunday."""

    numbers: int = 0
    nth: tuple[int, int, int, int, int] = (0, 0, 0, 0, 0)  # the first of a month, the second …
    last: int = 0
    starred: bool = False

    @property
    def every(self) -> bool:
        return self.numbers == EVERY_WEEKDAY


EVERY_DAY: Final = (2 << 31) - 2
EVERY_WEEKDAY: Final = (1 << 7) - 1


def begins_with_star(text: str) -> bool:
    """Say whether a field leaves its unit open; of this Vixie's rules make more than of what the field means."""
    return text.startswith(("*", "?"))


def bits(numbers: int) -> Iterator[int]:
    """Name the members of a set, the smallest first."""
    while numbers:
        lowest = numbers & -numbers
        yield lowest.bit_length() - 1
        numbers ^= lowest


def read(field: Field, text: str) -> int:
    """Read a field that holds nothing but numbers and names."""
    found = 0
    for item in text.split(","):
        found |= _read_item(field, item)
    return found


def read_month_days(text: str) -> MonthDays:
    """Read a field of days of the month."""
    numbers = from_last = nearest = 0
    last_weekday = False
    for item in _items(text):
        if item == "LW":
            last_weekday = True
        elif special := _FROM_LAST.fullmatch(item):
            from_last |= 1 << _within(DAY, int(special[1] or 0), 0, 30, item)
        elif special := _NEAREST.fullmatch(item):
            nearest |= 1 << _within(DAY, int(special[1]), 1, 31, item)
        else:
            numbers |= _read_item(DAY, item)
    return MonthDays(
        numbers=numbers,
        from_last=from_last,
        nearest=nearest,
        last_weekday=last_weekday,
        starred=begins_with_star(text),
    )


def read_week_days(text: str) -> WeekDays:
    """Read a field of days of the week."""
    numbers = last = 0
    nth = [0] * 5
    for item in _items(text):
        if special := _NTH.fullmatch(item):
            count = _within(WEEKDAY, int(special[2]), 1, 5, item)
            nth[count - 1] |= _read_item(WEEKDAY, special[1])
        elif special := _LAST.fullmatch(item):
            last |= _read_item(WEEKDAY, special[1])
        else:
            numbers |= _read_item(WEEKDAY, item)
    first, second, third, fourth, fifth = nth
    return WeekDays(
        numbers=numbers, nth=(first, second, third, fourth, fifth), last=last, starred=begins_with_star(text)
    )


def _items(text: str) -> list[str]:
    return ["*"] if text == "?" else text.split(",")


def _read_item(field: Field, item: str) -> int:
    found = _ITEM.fullmatch(item)
    if not found or (found["first"] == "*" and found["last"]):
        raise _refusal(field, f"{item!r} cannot be read")
    step = _step(field, item, found["step"])
    if found["first"] == "*":
        first, last = field.first, field.last
    else:
        first = last = _value(field, found["first"])
        if found["last"]:
            last = _value(field, found["last"])
        elif found["step"]:  # 5/15 goes on to the end of the field
            last = field.last
    numbers = 0
    for number in _range(field, first, last)[::step]:
        numbers |= 1 << (number - field.first) % field.size + field.first
    return numbers


def _range(field: Field, first: int, last: int) -> range:
    """Count from one to the other, and on past the end of the field where that is meant: 22-2, FRI-MON."""
    return range(first, last + 1 if first <= last else last + field.size + 1)


def _step(field: Field, item: str, text: str | None) -> int:
    step = int(text or 1)
    if not 1 <= step <= field.size:  # who writes */90 wants every 90 minutes, and would get every hour
        advice = "; for other lengths of time there is Every" if step else ""
        raise ScheduleError(field.name, f"the step of {item!r} is out of range; expected 1 to {field.size}{advice}")
    return step


def _value(field: Field, text: str) -> int:
    if text in field.names:
        return field.first + field.names.index(text)
    if not text.isdigit():
        raise _refusal(field, f"{text!r} cannot be read")
    return _within(field, int(text), field.first, field.last, text)


def _within(field: Field, number: int, first: int, last: int, text: str) -> int:
    if not first <= number <= last:
        raise _refusal(field, f"{text!r} is out of range")
    return number


def _refusal(field: Field, problem: str) -> ScheduleError:
    return ScheduleError(field.name, f"{problem}; expected {field.expected}")
