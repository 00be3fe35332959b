"""Schedules, their runs and their times in the words that all commands about them share."""

import getpass
import platform
from datetime import UTC, datetime
from typing import Final

import click

from mainspring.cli.schedules_clocks import time_of, wall, zone_info
from mainspring.cli.words import ago, length
from mainspring.core.missed import MOMENT
from mainspring.core.rules import Cron, Every, Manual, Once, Rule
from mainspring.core.schedule import CANCELLED, Paused, Run, Schedule
from mainspring.core.steps import IN_TIME
from mainspring.stores.records import Look

FORMS: Final = "2027-01-31, 2027-01-31T09:00 or 2027-01-31T09:00+01:00"


class InstantType(click.ParamType):  # type: ignore[type-arg]  # generic in the newest click only
    """Reads ISO 8601: an instant, or a time on the clocks of a zone that only the command knows."""

    name = "instant"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        if isinstance(value, datetime):
            return value
        try:
            return datetime.fromisoformat(str(value))
        except ValueError:
            self.fail(f"{str(value)!r} is no instant; write it as {FORMS}", param, ctx)


INSTANT: Final = InstantType()


def placed(given: datetime, tz: str) -> datetime:
    """Make an instant of a time that was given without an offset: it is meant on the clocks of a zone."""
    return (given if given.tzinfo else given.replace(tzinfo=zone_info(tz))).astimezone(UTC)


def placed_text(given: datetime, tz: str) -> str:
    """Say what was made of a time on the clocks of a zone, and where that is not what it seems; nothing in UTC."""
    if given.tzinfo is not None or tz == "UTC":
        return ""
    meant = placed(given, tz)
    told = f"{wall(given)} in {tz} is {at(meant, tz)}, {at(meant, 'UTC')}"
    if meant.astimezone(zone_info(tz)).replace(tzinfo=None) != given:
        return f"{told}: clocks go forward that day, and do not show {time_of(given)}"
    first, second = (given.replace(tzinfo=zone_info(tz), fold=fold).utcoffset() for fold in (0, 1))
    if first != second:
        return (
            f"{told}: clocks go back that day and show it twice, and this is the first; for the other give its offset"
        )
    return told


def rule_text(rule: Rule) -> str:
    """Say a rule as shortly as it can be: a cron expression as it is written, all else in words."""
    match rule:
        case Cron():
            return f"{rule.text} {rule.tz}"
        case Every(after_end=True):
            return f"{_interval(rule)} after the end"
        case Every():
            return f"every {_interval(rule)}"
        case Once():
            return "once"
        case Manual():
            return "on demand"


def _interval(rule: Every) -> str:
    seconds = rule.interval.total_seconds()
    return f"{seconds:g} s" if seconds < 60 else length(rule.interval)


def standing(look: Look, now: datetime) -> str:
    """Say how a schedule stands, in a word that scripts may rely on."""
    schedule = look.schedule
    if schedule.paused:
        return "paused"
    if schedule.next_at is not None and now - schedule.next_at > IN_TIME:
        return "late"
    if schedule.held:
        return "held"
    if schedule.is_over and not look.open and not isinstance(schedule.plan.rule, Manual):
        return "over"
    return "on"


def at(slot: datetime, tz: str) -> str:
    """Write a slot on the clocks of a zone, with the name of their time."""
    local = slot.astimezone(zone_info(tz))
    return f"{wall(local)} {local:%Z}"


def instant(then: datetime, now: datetime, tz: str = "UTC") -> str:
    return f"{at(then, tz)}, {ago(then, now)}"


def is_known(schedule: Schedule) -> bool:
    """Say whether the next slot is: that of a fixed delay is not while its run goes on."""
    return not (schedule.waits and schedule.plan.counts_from_the_end)


def next_text(schedule: Schedule, now: datetime) -> str:
    """Say when the next slot is, or what keeps it from being known."""
    if not is_known(schedule):
        return "after the end of its run"
    return "" if schedule.next_slot is None else instant(schedule.next_slot, now, schedule.plan.zone)


def paused_text(paused: Paused, now: datetime) -> str:
    """Say since when, by whom and why."""
    since = length(now - paused.at)
    if paused.by == CANCELLED:
        return f"cancelled {since} ago; mainspring control add brings it back"
    return f"since {since}, by {paused.by or 'someone'}" + (f": {paused.reason}" if paused.reason else "")


def owed(schedule: Schedule, now: datetime) -> int:
    """Count the slots that should have been decided a while ago: no node has looked."""
    if schedule.paused or schedule.plan.counts_from_the_end:
        return 0
    until = min(now - IN_TIME, schedule.plan.until or now)
    return schedule.plan.rule.count(schedule.cursor, until) if until > schedule.cursor + MOMENT else 0


def run_text(run: Run, state: str | None = None) -> str:
    """Say what became of a run: the state of its job, or why there is none."""
    if run.reason is not None:
        return str(run.reason)
    text = str(run.state or state or "open")
    return f"{text}, goes on" if run.lingers else text


def schedule_fields(look: Look) -> dict[str, object]:
    """Unfold a schedule for JSON, with what its record only implies."""
    schedule = look.schedule
    return {
        **{name: getattr(schedule, name) for name in schedule.__struct_fields__},
        "next_slot": schedule.next_slot,
        "is_over": schedule.is_over,
        "explained": schedule.plan.rule.explain(),
        "open": look.open,
    }


def run_fields(run: Run) -> dict[str, object]:
    return {**{name: getattr(run, name) for name in run.__struct_fields__}, "job": run.job}


def by_whom() -> str:
    """Name the person at the keyboard, for whoever wonders later."""
    try:
        return f"{getpass.getuser()}@{platform.node()}"
    except (KeyError, OSError):  # a user id without a name, as in many containers
        return platform.node()
