"""Rules in plain words, as they come from outside of Python, and the numbers of what can be wrong with them."""

from datetime import UTC, datetime
from enum import IntEnum
from typing import Final

from mainspring.core.rules import Cron, Every, Manual, Once, Rule
from mainspring.errors import ControlError, DeclarationError, ScheduleError

_YEAR_9999: Final = 253_402_300_799


class Code(IntEnum):
    """The numbers of what can be wrong."""

    BAD_NAME_TO_ADD = 0xB30
    BAD_INTERVAL = 0xB31
    UNKNOWN_KIND = 0xB32
    BAD_CRON = 0xB33
    BAD_NAME = 0xB37  # of what is there: to cancel it, to run it, to look at it
    NO_HOST = 0xD20


def rule_of(qname: str, kind: object, arg: object) -> Rule:
    """Make a rule of a kind and its argument, or raise `ControlError`."""
    match kind:
        case "manual":
            return Manual()
        case "periodic":
            return Every(_whole_seconds(qname, arg))
        case "cron":
            try:
                return Cron(str(arg))
            except ScheduleError as error:
                raise ControlError(f"schedule {qname!r}", error.problem, Code.BAD_CRON) from None
        case "once":
            try:
                return Once(_instant(arg))
            except (ScheduleError, ValueError, OverflowError) as error:
                raise ControlError(
                    f"schedule {qname!r}", f"{_short(arg)} is no instant: {error}", Code.BAD_INTERVAL
                ) from None
        case _:
            known = "periodic, cron, once or manual, or a rule"
            raise ControlError(f"schedule {qname!r}", f"it is {known}, not {kind!r}", Code.UNKNOWN_KIND)


def _whole_seconds(qname: str, arg: object) -> int:
    if isinstance(arg, int | str) and not isinstance(arg, bool):
        try:
            text = str(arg).strip()
            if text.isascii() and text.isdigit() and int(text):
                Every(int(text))
                return int(text)
        except (DeclarationError, OverflowError, ValueError):  # the last: Python reads 4,300 digits and no more
            pass
    raise ControlError(f"schedule {qname!r}", f"whole seconds, 1 or more, and not {_short(arg)}", Code.BAD_INTERVAL)


def _short(arg: object) -> str:
    try:
        text = repr(arg)
    except ValueError:  # an int of too many digits
        return "that"
    return text if len(text) <= 100 else f"{text[:100]}…"


def _instant(arg: object) -> datetime | str:
    """Read an instant: ISO 8601, a datetime, or seconds since 1970."""
    match arg:
        case bool():
            raise ValueError("it is neither text nor a number")
        case int() | float():
            if not 0 <= arg <= _YEAR_9999:
                raise ValueError("seconds since 1970 are meant")
            return datetime.fromtimestamp(arg, UTC)
        case datetime() | str():
            return arg
        case _:
            raise ValueError("it is neither text nor a number")
