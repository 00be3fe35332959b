"""Times, lengths and numbers as people say them."""

from datetime import datetime, timedelta
from typing import Final

_UNITS: Final = ((86400, "d"), (3600, "h"), (60, "min"))


def length(span: timedelta | float, *, shortly: bool = False) -> str:
    """Say how long, in one or two units, or `shortly` in one: "0.4 s", "12 s", "3 min", "2 h 5 min"."""
    seconds = span.total_seconds() if isinstance(span, timedelta) else span
    if seconds < 9.95:
        return f"{max(seconds, 0):.1f} s"
    rest = round(seconds)
    if rest < 60:
        return f"{rest} s"
    for place, (size, unit) in enumerate(_UNITS):
        if rest >= size:
            whole, rest = divmod(rest, size)
            smaller, name = _UNITS[place + 1] if place + 1 < len(_UNITS) else (1, "s")
            part = rest // smaller
            return f"{whole} {unit} {part} {name}" if part and not shortly else f"{whole} {unit}"
    raise AssertionError(seconds)


def ago(then: datetime, now: datetime, *, shortly: bool = False) -> str:
    """Say when, as seen from now: "12 s ago", "in 3 min"."""
    if then > now:
        return f"in {length(then - now, shortly=shortly)}"
    return f"{length(now - then, shortly=shortly)} ago"


def count(number: int, one: str, several: str = "") -> str:
    """Say how many: "1 job", "3 jobs"."""
    return f"{number:,} {one if number == 1 else several or one + 's'}"


def percent(done: float) -> str:
    """Say how far something is, rounded down: what is not done is never "100 %"."""
    return f"{int(done)} %"


def size(number: float) -> str:
    """Say how many bytes."""
    for unit in ("bytes", "kB", "MB", "GB"):
        if number < 1000:
            return f"{number:.0f} {unit}" if unit in {"bytes", "kB"} else f"{number:.1f} {unit}"
        number /= 1000
    return f"{number:.1f} TB"
