"""What the clocks of a zone do: stretches of time in which they run evenly, and the jumps between them.

`zoneinfo` answers for one instant at a time and names no changes. They are found by looking every second day and halving
where two looks differ. The least time between two changes of any zone was four days (Freetown in 1939), in our century
it is a week, and `tests/core/test_cron_zones.py` compares every zone with the file that it comes from. Stretches are
found for half a year at a time, in 0.1 ms, and remembered.
"""

import difflib
import re
import zoneinfo
from bisect import bisect_right
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache
from operator import attrgetter
from typing import Final, NamedTuple

from mainspring.errors import ScheduleError

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
SECOND: Final = timedelta(seconds=1)

LONGEST_NAME: Final = 64  # twice what the longest has; zoneinfo goes as deep as there are slashes

_HALF_YEAR: Final = 24  # as a power of two: 194 days
_TWO_DAYS: Final = 2 * 86_400
_LONGEST_JUMP: Final = _TWO_DAYS  # with room to spare: Samoa and Kwajalein once left out a day
_NAME: Final = re.compile(r"[A-Za-z0-9_+-]+(?:/[A-Za-z0-9_+-]+)*")
# Files that stand among the zones and mean something else on each machine, or count leap seconds.
_NO_ZONES: Final = re.compile(r"localtime|posixrules|(?:posix|right)/.*")


class Stretch(NamedTuple):
    """A time in which the clocks of a zone run evenly. Instants are seconds since 1970; wall times, as clocks show them."""

    start: int
    end: int
    offset: int
    """Wall time less instant."""
    reached: int
    """The wall time that clocks had come to when it began: later than the first one shown if they were set back,
    earlier if they were set forward."""


_end = attrgetter("end")


class Zone:
    """A zone by its name."""

    __slots__ = ("_last", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        self._last = Stretch(0, 0, 0, 0)

    def at(self, instant: int) -> Stretch:
        """Find the stretch of an instant. Most are asked for again at once, so the last one is kept at hand."""
        last = self._last
        if last.start <= instant < last.end:
            return last
        stretches = _stretches(self.name, instant >> _HALF_YEAR)
        self._last = found = stretches[bisect_right(stretches, instant, key=_end)]
        return found


@lru_cache(maxsize=1024)
def zone(name: str) -> Zone:
    """Look up a zone by its IANA name, or raise `ScheduleError`."""
    _load(name)
    return Zone(name)


def _load(name: str) -> tzinfo:
    if name == "UTC":  # also where there is no data of zones at all
        return UTC
    if len(name) <= LONGEST_NAME and _NAME.fullmatch(name) and not _NO_ZONES.fullmatch(name):
        try:
            return zoneinfo.ZoneInfo(name)
        except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):  # a folder, a file of another kind
            pass
    raise ScheduleError("tz", f"there is no zone named {_shortened(name)}; {_advice(name)}")


def _advice(name: str) -> str:
    known = {known.lower(): known for known in zoneinfo.available_timezones() if not _NO_ZONES.fullmatch(known)}
    if not known:
        return "this system has no data of zones at all: install the package tzdata"
    near = difflib.get_close_matches(name[:LONGEST_NAME].lower(), known, 1)
    return f"did you mean {known[near[0]]!r}?" if near else "expected a name such as 'Europe/Berlin'"


def _shortened(name: str) -> str:
    return repr(name) if len(name) <= LONGEST_NAME else f"{name[:LONGEST_NAME]!r}…"


@lru_cache(maxsize=4096)
def _stretches(name: str, number: int) -> tuple[Stretch, ...]:
    """Cut a half-year into stretches; it begins and ends where it does, and not where a stretch would."""
    begin, end = number << _HALF_YEAR, number + 1 << _HALF_YEAR
    found = []
    reached = begin - 2 * _LONGEST_JUMP
    for since, until, offset in _even(_load(name), begin - _LONGEST_JUMP, end):
        if since >= begin:
            found.append(Stretch(since, until, offset, reached))
        elif until > begin:
            found.append(Stretch(begin, until, offset, max(reached, begin + offset)))
        reached = until + offset
    return tuple(found)


def _even(zone: tzinfo, begin: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Name the times between two changes, with the offset that holds there."""
    since, offset = begin, _offset(zone, begin)
    for look in (*range(begin + _TWO_DAYS, end, _TWO_DAYS), end - 1):
        if _offset(zone, look) == offset:
            continue
        same, other = look - _TWO_DAYS, look
        while other - same > 1:
            middle = (same + other) // 2
            if _offset(zone, middle) == offset:
                same = middle
            else:
                other = middle
        yield since, other, offset
        since, offset = other, _offset(zone, look)
    yield since, end, offset


def _offset(zone: tzinfo, instant: int) -> int:
    offset = (EPOCH + timedelta(0, instant)).astimezone(zone).utcoffset()
    assert offset is not None  # noqa: S101 - zones always have one; for the type checker
    return offset // SECOND
