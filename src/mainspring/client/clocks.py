"""The slots of a rule as its zone's clocks show them, and what changes of those clocks do to them.

A slot is an instant. What a person planned is a time on a wall, and twice a year the two part: a time is left out and
its slot moves to the end of the gap, or a time comes twice. This says where.
"""

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta, tzinfo
from itertools import islice
from typing import Final
from zoneinfo import ZoneInfo

from msgspec import Struct

from mainspring.client.words import count
from mainspring.core.cron.expression import read
from mainspring.core.cron.zone import EPOCH, SECOND, zone
from mainspring.core.missed import MOMENT
from mainspring.core.rules import Cron, Rule
from mainspring.errors import ScheduleError

MOST_TOLD: Final = 3600
"""Times that were left out, of one slot: a gap of an hour has so many at most."""


class ClockChange(Struct, frozen=True, kw_only=True):
    """An instant at which the clocks of a zone jump."""

    at: datetime
    shown: datetime
    """What they would have shown."""
    instead: datetime
    """What they show."""

    @property
    def is_forward(self) -> bool:
        return self.instead > self.shown

    def explain(self) -> str:
        way = "forward" if self.is_forward else "back"
        if self.shown.date() == self.instead.date():
            return f"clocks go {way} {time_of(self.shown)} → {time_of(self.instead)} on {self.shown:%Y-%m-%d}"
        return f"clocks go {way} from {wall(self.shown)} to {wall(self.instead)}"


class ShownSlot(Struct, frozen=True, kw_only=True):
    """A slot, and all that clocks have to do with it."""

    slot: datetime
    local: datetime
    zone: str
    changes: tuple[ClockChange, ...] = ()
    """Since the slot before it."""
    moved_from: tuple[datetime, ...] = ()
    """The times on the wall that it stands for, if they are left out on its day."""
    turn: int | None = None
    """1 or 2, if clocks show its time twice."""

    @property
    def mark(self) -> str:
        """Say in a word or two that there is something to explain."""
        if self.moved_from:
            return "moved"
        if self.turn:
            return "first of two" if self.turn == 1 else "second of two"
        return "changed" if self.changes else ""

    def explain(self) -> Iterator[str]:
        """Say it in sentences."""
        if len(self.changes) > 2:
            first, last = self.changes[0].at, self.changes[-1].at
            yield f"clocks change {count(len(self.changes), 'time')} from {first:%Y-%m-%d} to {last:%Y-%m-%d}"
        else:
            yield from (change.explain() for change in self.changes)
        if self.moved_from:
            verb = "does" if len(self.moved_from) == 1 else "do"
            same_day = self.moved_from[0].date() == self.local.date()
            to = time_of(self.local) if same_day else wall(self.local)
            yield f"{_times(self.moved_from)} {verb} not exist that day: moved to {to}"
        if self.turn:
            which = "first" if self.turn == 1 else "second"
            yield f"{time_of(self.local)} comes twice that day: this is the {which}"


def shown_slots(rule: Rule, tz: str, slots: Iterable[datetime], after: datetime) -> Iterator[ShownSlot]:
    """Show slots that follow one another, the first of them `after` an instant."""
    for slot in slots:
        changes = tuple(clock_changes(tz, after, slot))
        local = slot.astimezone(zone_info(tz))
        yield ShownSlot(
            slot=slot,
            local=local,
            zone=tz,
            changes=changes,
            moved_from=_moved_from(rule, slot, changes),
            turn=_turn(local),
        )
        after = slot


def clock_changes(tz: str, after: datetime, until: datetime) -> Iterator[ClockChange]:
    """Name the changes of a zone's clocks after an instant, up to and with another."""
    clocks = zone(tz)
    stretch = clocks.at((after - EPOCH) // SECOND)
    end = (until - EPOCH) // SECOND
    while stretch.end <= end:
        before, stretch = stretch, clocks.at(stretch.end)
        if before.offset != stretch.offset:
            yield ClockChange(
                at=EPOCH + timedelta(seconds=stretch.start),
                shown=_wall(stretch.start + before.offset),
                instead=_wall(stretch.start + stretch.offset),
            )


def _wall(seconds: int) -> datetime:
    return (EPOCH + timedelta(seconds=seconds)).replace(tzinfo=None)


def _moved_from(rule: Rule, slot: datetime, changes: tuple[ClockChange, ...]) -> tuple[datetime, ...]:
    """Name the times in a gap that a slot at its end stands for. On a clock without changes they would be slots."""
    gap = next((change for change in changes if change.at == slot and change.is_forward), None)
    if gap is None or not isinstance(rule, Cron) or not read(rule.text).fixed:
        return ()
    begin, end = (one.replace(tzinfo=UTC) - MOMENT for one in (gap.shown, gap.instead))
    return tuple(one.replace(tzinfo=None) for one in islice(Cron(rule.text).between(begin, end), MOST_TOLD))


def _times(moved: tuple[datetime, ...]) -> str:
    if len(moved) > 2:
        return f"{time_of(moved[0])} to {time_of(moved[-1])}"
    return " and ".join(time_of(one) for one in moved)


def _turn(local: datetime) -> int | None:
    first, second = (local.replace(fold=fold).utcoffset() for fold in (0, 1))
    return None if first == second else local.fold + 1


def zone_info(tz: str) -> tzinfo:
    """Find a zone by its name, or raise `ScheduleError`."""
    zone(tz)
    return UTC if tz == "UTC" else ZoneInfo(tz)


def is_zone(tz: str) -> bool:
    try:
        zone(tz)
    except ScheduleError:
        return False
    return True


def have_seconds(times: Iterable[datetime | None]) -> bool:
    """Say whether a list of times needs seconds: then all of them show theirs, and stand below one another."""
    return any(one is not None and one.second for one in times)


def wall(local: datetime, *, seconds: bool = False) -> str:
    """Write a time as clocks show it, with its day; with `seconds` also where they are zero."""
    return f"{local:%Y-%m-%d} {time_of(local, seconds=seconds)}"


def time_of(local: datetime, *, seconds: bool = False) -> str:
    """Write the time of a day. An `Every` that counts from when it was made has fractions of seconds: noise to people."""
    return f"{local:%H:%M:%S}" if seconds or local.second else f"{local:%H:%M}"
