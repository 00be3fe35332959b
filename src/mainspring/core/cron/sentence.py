"""Saying in one English sentence when an expression matches.

Two expressions with the same sentence match at the same times: what has no short name is spelled out.
"""

from collections.abc import Callable, Iterable
from typing import Final

from mainspring.core.cron.expression import Expression
from mainspring.core.cron.fields import HOUR, MINUTE, MONTH, SECOND, Field, MonthDays, WeekDays, bits

MONTHS: Final = (
    "January", "February", "March", "April", "May", "June",
    "July", "August", "September", "October", "November", "December",
)  # fmt: skip
WEEKDAYS: Final = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
COUNTS: Final = ("first", "second", "third", "fourth", "fifth")
MOST_TIMES: Final = 6
"""So many times of a day are told one by one."""

_ONLY_ZERO: Final = 1


def sentence(expression: Expression, tz: str) -> str:
    """Say it, with the zone at the end."""
    zone = tz if tz == "UTC" else f"{tz} time"
    return f"{_times(expression)}{_days(expression)}, {zone}."


def _times(expression: Expression) -> str:
    seconds, minutes, hours = expression.seconds, expression.minutes, expression.hours
    if _are_few(expression):
        shape = "{:02}:{:02}" if seconds == _ONLY_ZERO else "{:02}:{:02}:{:02}"
        times = ((hour, minute, second) for hour in bits(hours) for minute in bits(minutes) for second in bits(seconds))
        return f"At {_listed(shape.format(*time) for time in times)}"
    if seconds == _ONLY_ZERO:
        step = _pace(MINUTE, minutes)
        return f"Every {_units(MINUTE, step)}{_during(hours)}" if step else f"At {_minutes(minutes, hours)}"
    if step := _pace(SECOND, seconds):
        within = _during(hours) if _is_full(MINUTE, minutes) else f" of {_minutes(minutes, hours)}"
        return f"Every {_units(SECOND, step)}{within}"
    return f"At {_numbered(SECOND, seconds)} of {_minutes(minutes, hours)}"


def _are_few(expression: Expression) -> bool:
    hours, minutes, seconds = expression.hours, expression.minutes, expression.seconds
    return hours.bit_count() * minutes.bit_count() * seconds.bit_count() <= MOST_TIMES


def _units(field: Field, step: int) -> str:
    return field.name if step == 1 else f"{step} {field.name}s"


def _minutes(minutes: int, hours: int) -> str:
    """Name the minutes in which something happens, and the hours that they belong to."""
    if step := _pace(MINUTE, minutes):
        return f"every {'' if step == 1 else f'{_ordinal(step)} '}minute{_during(hours)}"
    of_hours = " of every hour" if _is_full(HOUR, hours) else _of_hours(hours)
    return f"{_numbered(MINUTE, minutes)}{of_hours}"


def _during(hours: int) -> str:
    """Say in which hours something goes on."""
    if _is_full(HOUR, hours):
        return ""
    runs = _runs(hours)
    if len(runs) <= 2:
        return " " + _listed(f"from {run[0]:02}:00 to {run[-1]:02}:59" for run in runs)
    return _of_hours(hours)


def _of_hours(hours: int) -> str:
    step = _pace(HOUR, hours)
    return f" of every {_ordinal(step)} hour" if step else f" of the {_numbered(HOUR, hours)}"


def _pace(field: Field, numbers: int) -> int:
    """Return the step of a set that goes evenly through a field that begins with 0; 0 if it does not."""
    step = field.size - (numbers.bit_length() - 1)
    even = sum(1 << number for number in range(0, field.size, step))
    return step if step < field.size and field.size % step == 0 and numbers == even else 0


def _is_full(field: Field, numbers: int) -> bool:
    return numbers.bit_count() == field.size


def _numbered(field: Field, numbers: int) -> str:
    """Say "minute 30", or "minutes 0, 10 and 20 to 25"."""
    plural = "s" if numbers.bit_count() > 1 else ""
    return f"{field.name}{plural} {_listed(_spans(_runs(numbers), str))}"


def _days(expression: Expression) -> str:
    days, weekdays, months = expression.days, expression.weekdays, expression.months
    both = days.starred or weekdays.starred
    if (days.every and weekdays.every) or (not both and (days.every or weekdays.every)):
        every_day = " every day" if _are_few(expression) or not _pace(HOUR, expression.hours) else ""
        return every_day + _in_months(months)
    if both and days.every:
        return f" {_by_weekday(weekdays, months)}"
    if both and weekdays.every:
        return f" {_by_date(days, months)}"
    if both:
        return f" {_by_weekday(weekdays, months)}, where it falls on {_listed(_dates(days), 'or')} of the month"
    return f" {_by_date(days, months)} and {_by_weekday(weekdays, months)}"


def _by_date(days: MonthDays, months: int) -> str:
    return f"on {_listed(_dates(days))} of {_every_month(months)}"


def _dates(days: MonthDays) -> list[str]:
    found = _even_dates(days.numbers) or [f"the {one}" for one in _spans(_runs(days.numbers), _ordinal)]
    found += [_before_the_last(distance) for distance in bits(days.from_last)]
    found += [f"the weekday nearest to the {_ordinal(day)}" for day in bits(days.nearest)]
    return [*found, "the last weekday"] if days.last_weekday else found


def _even_dates(numbers: int) -> list[str]:
    """Shorten what */2 stands for."""
    for step in range(2, 10):
        first, second, *_, last = range(1, 32, step)
        if numbers == sum(1 << day for day in range(1, 32, step)):
            return [f"every {_ordinal(step)} day ({_ordinal(first)}, {_ordinal(second)} … {_ordinal(last)})"]
    return []


def _before_the_last(distance: int) -> str:
    if distance == 0:
        return "the last day"
    return "the last day but one" if distance == 1 else f"the {_ordinal(distance)} day before the last"


def _by_weekday(weekdays: WeekDays, months: int) -> str:
    found = []
    if weekdays.numbers:
        named = _spans(_in_a_circle(_runs(weekdays.numbers), 6), WEEKDAYS.__getitem__)
        found.append(f"on {_listed(named)}{_in_months(months)}")
    monthly = [
        f"the {count} {WEEKDAYS[day]}" for count, nth in zip(COUNTS, weekdays.nth, strict=True) for day in bits(nth)
    ]
    monthly += [f"the last {WEEKDAYS[day]}" for day in bits(weekdays.last)]
    if monthly:
        found.append(f"on {_listed(monthly)} of {_every_month(months)}")
    return " and ".join(found)


def _in_months(months: int) -> str:
    if _is_full(MONTH, months):
        return ""
    named = _months(months)
    return f" from {named[0]}" if len(named) == 1 and " to " in named[0] else f" in {_listed(named)}"


def _every_month(months: int) -> str:
    inside = _in_months(months)
    return inside.removeprefix(" in ") if inside.startswith(" in ") else f"every month{inside}"


def _months(months: int) -> list[str]:
    return _spans(_in_a_circle(_runs(months >> 1), 11), MONTHS.__getitem__)


def _runs(numbers: int) -> list[list[int]]:
    """Cut a set where a number is missing."""
    runs: list[list[int]] = []
    for number in bits(numbers):
        if runs and runs[-1][-1] == number - 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return runs


def _in_a_circle(runs: list[list[int]], last: int) -> list[list[int]]:
    """Join the end to the beginning: Saturday and Sunday, November to February."""
    if len(runs) > 1 and runs[0][0] == 0 and runs[-1][-1] == last:
        return [*runs[1:-1], runs[-1] + runs[0]]
    return runs


def _spans(runs: list[list[int]], say: Callable[[int], str]) -> list[str]:
    found: list[str] = []
    for run in runs:
        found += [f"{say(run[0])} to {say(run[-1])}"] if len(run) > 2 else map(say, run)
    return found


def _listed(words: Iterable[str], joint: str = "and") -> str:
    *others, last = words
    return f"{', '.join(others)} {joint} {last}" if others else last


def _ordinal(number: int) -> str:
    ending = "th" if 11 <= number <= 13 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"
