"""Rows that uni has written, as they stand in its file, and the rules that they mean.

    {"qname": "uni.system.sweep", "status": "Pending", "consecutive_failures": 0,
     "schedule": {"Periodic": {"secs": 60, "nanos": 0}},
     "next_fire_at": {"secs_since_epoch": 1767225600, "nanos_since_epoch": 0}}

Older rows have neither schedule nor next_fire_at: "Manual", and none.
"""

import re
from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec
from msgspec import Struct

from mainspring.core.rules import Cron, Every, Manual, Once, Rule
from mainspring.errors import MainspringError

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_CANCELLED: Final = "Cancelled"
_WEEKDAYS: Final = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
_DAY: Final = re.compile(r"[0-9]+|[a-z]+", re.IGNORECASE)
_EVERY_DAY: Final = {"*", "?"}


class Instant(Struct, frozen=True, forbid_unknown_fields=True):
    """An instant as serde writes a `SystemTime`."""

    secs_since_epoch: int
    nanos_since_epoch: int = 0

    def read(self) -> datetime:
        return _EPOCH + timedelta(seconds=self.secs_since_epoch, microseconds=self.nanos_since_epoch // 1000)


class Period(Struct, frozen=True, forbid_unknown_fields=True):
    """A length of time as serde writes a `Duration`."""

    secs: int
    nanos: int = 0


class Timed(Struct, frozen=True, rename="pascal", forbid_unknown_fields=True):
    """A schedule that has a value: one of these."""

    cron: str | None = None
    periodic: Period | None = None
    once: Instant | None = None


class Row(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A row. One that says more than is known here is not understood."""

    qname: str
    status: str = "Pending"
    consecutive_failures: int = 0
    schedule: Timed | str = "Manual"
    next_fire_at: Instant | None = None

    @property
    def is_cancelled(self) -> bool:
        return self.status == _CANCELLED

    @property
    def next_fire(self) -> datetime | None:
        return self.next_fire_at.read() if self.next_fire_at else None

    def rule(self, now: datetime) -> Rule:
        """Return the rule that it means; of intervals with the next slot, so that its phase stays what it was."""
        if isinstance(self.schedule, str):
            if self.schedule != "Manual":
                raise NotUnderstood(f"there is no schedule {self.schedule!r}")
            return Manual()
        match self.schedule:
            case Timed(cron=str(text), periodic=None, once=None):
                return Cron(translated(text))
            case Timed(cron=None, periodic=Period() as period, once=None):
                interval = timedelta(seconds=period.secs, microseconds=period.nanos // 1000)
                return Every(interval, start=self.next_fire or now + interval)
            case Timed(cron=None, periodic=None, once=Instant() as instant):
                return Once(instant.read())
            case _:
                raise NotUnderstood("its schedule is not one of Cron, Periodic and Once")


class NotUnderstood(Exception):
    """Why a row says nothing here."""


def read(row: bytes) -> Row:
    """Read a row, and see that its rule and times can be; raises `NotUnderstood`."""
    try:
        found = _decode(row)
        if found.consecutive_failures < 0:
            raise NotUnderstood("it has failed fewer times than never")
        _ = found.rule(_EPOCH), found.next_fire
    except (msgspec.DecodeError, UnicodeDecodeError, MainspringError, OverflowError, RecursionError) as error:
        raise NotUnderstood(str(error)) from error
    return found


def translated(text: str) -> str:
    """Say what an expression of the Rust crate `cron` means in ours.

    There Sunday is 1 and Saturday 7, a seventh field is the year, names may be whole words, and a day has to fit both
    of its fields, where ours asks for one of them.
    """
    words = text.split()
    if len(words) == 1 and text.strip().startswith("@"):
        return text.strip()
    if len(words) == 7 and words[6] in _EVERY_DAY:
        words = words[:6]
    if len(words) != 6:
        raise NotUnderstood(f"the expression {text!r} has {len(words)} fields that count, and 6 can be understood")
    if words[3] not in _EVERY_DAY and words[5] not in _EVERY_DAY:
        raise NotUnderstood(f"the expression {text!r} limits days of the month and of the week at once")
    months = _DAY.sub(lambda found: found[0][:3] if found[0].isalpha() else found[0], words[4])
    words[4], words[5] = months, ",".join(_week_days(item) for item in words[5].split(","))
    return " ".join("*" if word == "?" else word for word in words)


def _week_days(item: str) -> str:
    days, slash, step = item.partition("/")
    if days in _EVERY_DAY:
        return f"0-6/{step}" if slash else "*"
    days = _DAY.sub(lambda found: _week_day(found[0]), days)
    if slash and "-" not in days:  # 2/3: from there to the end of the week, which is Saturday
        days = f"{days}-SAT"
    return f"{days}{slash}{step}"


def _week_day(word: str) -> str:
    if word.isalpha():
        return word[:3]
    if not 1 <= int(word) <= len(_WEEKDAYS):
        raise NotUnderstood(f"there is no day of the week {word}")
    return _WEEKDAYS[int(word) - 1]


_decode: Final = msgspec.json.Decoder(Row).decode
