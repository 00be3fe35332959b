"""Lengths of time as people write them: 90, 1.5, timedelta(minutes=2), "90s", "15m", "1d12h".

Everything is a `timedelta` once read. Nothing negative, endless or longer than a century gets through, so that
adding a duration to a date of our times cannot overflow.
"""

import re
from datetime import timedelta
from typing import Final, TypeAlias

from mainspring.errors import BadDuration

Duration: TypeAlias = int | float | str | timedelta
"""A number of seconds, a `timedelta`, or text such as "90s", "15m", "1d12h"."""

LONGEST: Final = timedelta(days=36_525)

_UNITS: Final = {
    "w": timedelta(weeks=1),
    "d": timedelta(days=1),
    "h": timedelta(hours=1),
    "m": timedelta(minutes=1),
    "s": timedelta(seconds=1),
    "ms": timedelta(milliseconds=1),
}
_PART: Final = r"(?:(?P<{unit}>[0-9]+(?:\.[0-9]+)?){unit})?"
_TEXT: Final = re.compile(" *".join(_PART.format(unit=unit) for unit in _UNITS))


def duration(value: Duration) -> timedelta:
    """Read a length of time, or raise `BadDuration` saying what is wrong with it."""
    span = _span(value)
    if span < timedelta(0):
        raise BadDuration(repr(value), "time does not run backwards")
    if span > LONGEST:
        raise BadDuration(repr(value), "it is longer than a century")
    return span


def seconds(value: Duration) -> float:
    """Read a length of time as a number of seconds, for timers."""
    return duration(value).total_seconds()


def _span(value: Duration) -> timedelta:
    match value:
        case bool():
            raise BadDuration(repr(value), "it is a yes or no; give a number of seconds")
        case timedelta():
            return value
        case int() | float():
            try:
                return timedelta(seconds=value)
            except (OverflowError, ValueError):  # too many seconds, infinity, NaN
                raise BadDuration(repr(value), "it is not a finite number of seconds") from None
        case str():
            return _read(value)
        case _:
            raise BadDuration(repr(value), 'give a number of seconds, a timedelta, or text such as "90s" or "1d12h"')


def _read(text: str) -> timedelta:
    found = _TEXT.fullmatch(text)
    if text.startswith("-") and _TEXT.fullmatch(text[1:].lstrip()):
        raise BadDuration(repr(text), "time does not run backwards")
    given = {unit: count for unit, count in found.groupdict().items() if count} if found else {}
    if not given:
        raise BadDuration(repr(text), 'write it as "90s", "15m" or "1d12h": w, d, h, m, s, ms, the largest first')
    try:
        return sum((_UNITS[unit] * float(count) for unit, count in given.items()), timedelta(0))
    except OverflowError:
        raise BadDuration(repr(text), "it is longer than a century") from None
