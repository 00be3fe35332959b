"""Reading a whole cron expression. What cannot be meant is refused here, with every problem at once."""

from collections.abc import Callable
from functools import lru_cache
from typing import Final, TypeVar

from msgspec import Struct

from mainspring.core.cron import fields
from mainspring.core.cron.days import Calendar, calendar, can_match
from mainspring.core.cron.fields import Field, MonthDays, WeekDays, begins_with_star
from mainspring.errors import ScheduleError

LONGEST: Final = 1_000
"""Characters. Every value of every field, written out, has 530."""

MACROS: Final = {
    "@YEARLY": "0 0 1 1 *",
    "@ANNUALLY": "0 0 1 1 *",
    "@MONTHLY": "0 0 1 * *",
    "@WEEKLY": "0 0 * * 0",
    "@DAILY": "0 0 * * *",
    "@MIDNIGHT": "0 0 * * *",
    "@HOURLY": "0 * * * *",
}

Read = TypeVar("Read")


class Expression(Struct, frozen=True, kw_only=True):
    """What a cron expression says, zones aside: sets of numbers as bits."""

    seconds: int
    minutes: int
    hours: int
    days: MonthDays
    months: int
    weekdays: WeekDays
    calendar: Calendar
    fixed: bool
    """Whether it names times, where one that begins with a star follows the clock on the wall when clocks change."""


@lru_cache(maxsize=4096)
def read(text: str) -> Expression:
    """Read an expression of 5 fields, of 6 with the seconds first, or a macro."""
    if len(text) > LONGEST:
        raise ScheduleError(shown(text), f"it has {len(text):,} characters, and {LONGEST:,} are enough for any rule")
    if not text.isascii():
        raise ScheduleError(shown(text), "it holds characters that no field has")
    words = _without_macro(text).upper().split()
    if len(words) not in {5, 6}:
        raise ScheduleError(
            shown(text),
            "expected 5 fields (minute, hour, day of month, month, day of week), or 6 with the second first, "
            f"not {len(words)}",
        )
    expression = _read_fields(text, words if len(words) == 6 else ["0", *words])
    if not can_match(expression.months, expression.calendar):
        raise ScheduleError(shown(text), "it can never fire: none of its months ever has such a day")
    return expression


def shown(text: str) -> str:
    """Name an expression in a message."""
    return f"Cron({text!r})" if len(text) <= 100 else f"Cron({text[:80]!r}…)"


def _without_macro(text: str) -> str:
    word = text.strip().upper()
    if word == "@REBOOT":
        raise ScheduleError(shown(text), "no time is named by @reboot; for what runs when a node starts, use a service")
    if word.startswith("@") and word not in MACROS:
        known = ", ".join(MACROS).lower()
        raise ScheduleError(shown(text), f"there is no such macro; expected one of {known}")
    return MACROS.get(word, text)


def _read_fields(text: str, words: list[str]) -> Expression:
    problems: list[str] = []

    def attempt(reading: Callable[[], Read], otherwise: Read) -> Read:
        try:
            return reading()
        except ScheduleError as error:
            problems.append(str(error))
            return otherwise

    def numbers(field: Field, word: str) -> int:
        return attempt(lambda: fields.read(field, word), 0)

    second, minute, hour, day, month, weekday = words
    seconds, minutes, hours = numbers(fields.SECOND, second), numbers(fields.MINUTE, minute), numbers(fields.HOUR, hour)
    days = attempt(lambda: fields.read_month_days(day), MonthDays())
    months = numbers(fields.MONTH, month)
    weekdays = attempt(lambda: fields.read_week_days(weekday), WeekDays())
    if problems:
        raise ScheduleError(shown(text), "; ".join(problems))
    return Expression(
        seconds=seconds,
        minutes=minutes,
        hours=hours,
        days=days,
        months=months,
        weekdays=weekdays,
        calendar=calendar(days, weekdays),
        fixed=not any(map(begins_with_star, (second, minute, hour))),
    )
