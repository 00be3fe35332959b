"""The rules by which schedules make slots: `Cron`, `Every`, `Once` and `Manual`.

A rule is a value: it is checked when it is made, equals its like, and is kept in a store as JSON. It knows no clock:
instants are handed in, aware, and come out in UTC. `next` and `previous` look strictly after and before one, `between`
leaves out its start and takes in its end, as the cursor of a schedule does.
"""

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Final, TypeAlias

from msgspec import Struct
from msgspec.structs import force_setattr, replace

from mainspring.core.cron.expression import read
from mainspring.core.cron.sentence import sentence
from mainspring.core.cron.walk import Walk, walk
from mainspring.core.cron.zone import EPOCH
from mainspring.duration import Duration, duration
from mainspring.errors import ScheduleError

SHORTEST: Final = timedelta(milliseconds=10)
"""Of intervals. A slot is a transaction, and a hundred of them a second are much for one schedule: what shall happen
more often is the step of a service."""

_MOMENT: Final = timedelta(microseconds=1)
_DAY: Final = 86_400
_ALONE: Final = re.compile("^1 (?=[a-z]+$)")  # every hour, and not every 1 hour


class Cron(Struct, frozen=True, tag="cron", forbid_unknown_fields=True, dict=True):
    """The times that a cron expression names, on the clocks of a zone.

    The expression has 5 fields (minute, hour, day of month, month, day of week), 6 with the second first, or is a macro
    such as `@daily`. The zone is an IANA name.
    """

    text: str
    tz: str = "UTC"

    if TYPE_CHECKING:

        def __init__(self, text: str, *, tz: str = "UTC") -> None: ...

    def __post_init__(self) -> None:
        for name, value in (("expression", self.text), ("zone", self.tz)):
            if not isinstance(value, str):
                raise ScheduleError("Cron", f"the {name} is text, not {value!r}")
        force_setattr(self, "text", " ".join(self.text.split()))
        walk(self.text, self.tz)

    @cached_property
    def _walk(self) -> Walk:
        return walk(self.text, self.tz)

    def next(self, after: datetime) -> datetime | None:
        """Return the first slot after an instant; None if there is none before the year 9999."""
        passed = _since_1970(after)
        return _instant(self._walk.at_or_after(passed.days * _DAY + passed.seconds + 1))

    def previous(self, before: datetime) -> datetime | None:
        """Return the last slot before an instant; None if there is none from the year 2 on."""
        passed = _since_1970(before) - _MOMENT
        return _instant(self._walk.at_or_before(passed.days * _DAY + passed.seconds))

    def between(self, start: datetime, end: datetime) -> Iterator[datetime]:
        """Name the slots after `start`, up to and with `end`, one by one as they are asked for."""
        return _between(self, start, end)

    def count(self, start: datetime, end: datetime) -> int:
        """Count the slots that `between` names, without naming them."""
        begin, stop = _since_1970(start), _since_1970(end)
        return self._walk.count(begin.days * _DAY + begin.seconds + 1, stop.days * _DAY + stop.seconds)

    def matches(self, instant: datetime) -> bool:
        """Say whether an instant is a slot."""
        passed = _since_1970(instant)
        second = passed.days * _DAY + passed.seconds
        return not passed.microseconds and self._walk.at_or_after(second) == second

    def explain(self) -> str:
        """Say it in English."""
        return sentence(read(self.text), self.tz)


class Every(Struct, frozen=True, tag="every", forbid_unknown_fields=True):
    """A slot at every so many seconds, counted from slot to slot; with `after_end`, from the end of a run to the next.

    `start` is the first slot. Without it the rule counts from whatever instant it is asked about, until a schedule is
    made from it: see `anchored`.
    """

    interval: timedelta
    after_end: bool = False
    start: datetime | None = None

    if TYPE_CHECKING:

        def __init__(
            self, interval: Duration, *, after_end: bool = False, start: datetime | str | None = None
        ) -> None: ...

    def __post_init__(self) -> None:
        force_setattr(self, "interval", duration(self.interval))
        if self.interval < SHORTEST:
            raise ScheduleError(
                "Every", f"an interval has 10 ms or more, not {self.interval}; a service can be quicker"
            )
        if not isinstance(self.after_end, bool):
            raise ScheduleError("Every", f"after_end is yes or no, not {self.after_end!r}")
        if self.start is not None:
            force_setattr(self, "start", _read(self.start, "Every: start"))

    def anchored(self, now: datetime) -> "Every":
        """Return the rule with a first slot: the given one, else one interval from now."""
        return self if self.start else replace(self, start=_later(_utc(now), self.interval))

    def next(self, after: datetime) -> datetime | None:
        """Return the first slot after an instant; with `after_end`, the one to come if a run has ended at that instant."""
        after = _utc(after)
        if self.start and after < self.start:
            return self.start
        if self.start is None or self.after_end:
            return _later(after, self.interval)
        return _later(self.start, ((after - self.start) // self.interval + 1) * self.interval)

    def previous(self, before: datetime) -> datetime | None:
        """Return the last slot before an instant; with `after_end` None, because only the runs know."""
        before = _utc(before)
        if self.after_end or (self.start and before <= self.start):
            return None
        if self.start is None:
            return _later(before, -self.interval)
        return self.start + (before - self.start - _MOMENT) // self.interval * self.interval

    def between(self, start: datetime, end: datetime) -> Iterator[datetime]:
        """Name the slots after `start`, up to and with `end`; with `after_end` one at most, the others wait for its end."""
        slots = _between(self, start, end)
        return islice(slots, 1) if self.after_end else slots

    def count(self, start: datetime, end: datetime) -> int:
        """Count the slots that `between` names, without naming them."""
        if self.start is None or self.after_end:
            return sum(1 for _ in self.between(start, end))
        return max(0, self._passed(_utc(end)) - self._passed(_utc(start)))

    def _passed(self, instant: datetime) -> int:
        """Count the slots up to and with an instant."""
        return 0 if self.start is None or instant < self.start else (instant - self.start) // self.interval + 1

    def explain(self) -> str:
        """Say it in English."""
        first = f", for the first time at {_shown(self.start)}" if self.start else ""
        if self.after_end:
            return f"{_spelled(self.interval)} after the end of the run before{first}."
        return f"Every {_ALONE.sub('', _spelled(self.interval))}{first}."


class Once(Struct, frozen=True, tag="once", forbid_unknown_fields=True):
    """A single slot."""

    when: datetime

    if TYPE_CHECKING:

        def __init__(self, when: datetime | str) -> None: ...

    def __post_init__(self) -> None:
        force_setattr(self, "when", _read(self.when, "Once"))

    def next(self, after: datetime) -> datetime | None:
        """Return the slot if it is after an instant."""
        return self.when if _utc(after) < self.when else None

    def previous(self, before: datetime) -> datetime | None:
        """Return the slot if it is before an instant."""
        return self.when if _utc(before) > self.when else None

    def between(self, start: datetime, end: datetime) -> Iterator[datetime]:
        """Name the slot if it is after `start`, and not after `end`."""
        return _between(self, start, end)

    def count(self, start: datetime, end: datetime) -> int:
        """Count the slots that `between` names."""
        return sum(1 for _ in self.between(start, end))

    def explain(self) -> str:
        """Say it in English."""
        return f"Once, at {_shown(self.when)}."


class Manual(Struct, frozen=True, tag="manual", forbid_unknown_fields=True):
    """No slots at all: a schedule that fires on demand only."""

    def next(self, after: datetime) -> datetime | None:
        """Return None."""
        _utc(after)
        return None

    def previous(self, before: datetime) -> datetime | None:
        """Return None."""
        return self.next(before)

    def between(self, start: datetime, end: datetime) -> Iterator[datetime]:
        """Name nothing."""
        return _between(self, start, end)

    def count(self, start: datetime, end: datetime) -> int:
        """Count the slots that `between` names."""
        return sum(1 for _ in self.between(start, end))

    def explain(self) -> str:
        """Say it in English."""
        return "On demand only."


Rule: TypeAlias = Cron | Every | Once | Manual


def same_rule(declared: Rule, stored: Rule) -> bool:
    """Say whether a declaration asks for nothing but what is stored.

    An `Every` that names no start leaves it open where its slots lie, and any stored one of its interval will do.
    """
    if isinstance(declared, Every) and isinstance(stored, Every) and declared.start is None:
        stored = replace(stored, start=None)
    return declared == stored


def _between(rule: Rule, start: datetime, end: datetime) -> Iterator[datetime]:
    return _slots(rule, _utc(start), _utc(end))


def _slots(rule: Rule, start: datetime, end: datetime) -> Iterator[datetime]:
    slot = rule.next(start)
    while slot and slot <= end:
        yield slot
        slot = rule.next(slot)


def _since_1970(instant: datetime) -> timedelta:
    try:
        return instant - EPOCH
    except TypeError:
        raise _no_instant(instant) from None


def _instant(seconds: int | None) -> datetime | None:
    return None if seconds is None else EPOCH + timedelta(0, seconds)


def _utc(instant: datetime) -> datetime:
    if not isinstance(instant, datetime) or instant.utcoffset() is None:
        raise _no_instant(instant)
    try:
        return instant.astimezone(UTC)
    except OverflowError:
        raise _no_instant(instant) from None


def _read(given: datetime | str, subject: str) -> datetime:
    instant = given
    try:
        instant = datetime.fromisoformat(given) if isinstance(given, str) else given
        return _utc(instant)
    except ValueError:  # also ours, which knows neither the subject nor the text
        is_naive = isinstance(instant, datetime) and instant.utcoffset() is None
        raise _no_instant(given, subject, _ADVICE if is_naive else "") from None


_ADVICE: Final = "; it has no time zone: add tzinfo=UTC or tzinfo=ZoneInfo('Europe/Berlin'), or to text its offset"


def _no_instant(given: object, subject: str = "instant", advice: str = "") -> ScheduleError:
    problem = f"expected an aware datetime, or text such as '2027-01-31T09:00+01:00', not {given!r}"
    return ScheduleError(subject, problem + advice)


def _later(instant: datetime, span: timedelta) -> datetime | None:
    try:
        return instant + span
    except OverflowError:
        return None


def _shown(instant: datetime) -> str:
    """Say an instant in whole seconds: the fractions of a start that was counted from some `now` tell nobody anything."""
    return f"{instant.replace(tzinfo=None).isoformat(' ', 'seconds')} UTC"


def _spelled(span: timedelta) -> str:
    minutes, rest = divmod(span, timedelta(minutes=1))
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    seconds = f"{rest.total_seconds():.6f}".rstrip("0").rstrip(".")
    counts = {"day": f"{days:,}", "hour": f"{hours}", "minute": f"{minutes}", "second": seconds}
    *others, last = [f"{count} {unit}{'' if count == '1' else 's'}" for unit, count in counts.items() if count != "0"]
    return f"{', '.join(others)} and {last}" if others else last
