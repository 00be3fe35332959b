"""Schedules, their runs and their times in the words that all edges share."""

from datetime import datetime

from mainspring.client.clocks import wall, zone_info
from mainspring.client.words import ago, length
from mainspring.core.missed import MOMENT
from mainspring.core.rules import Cron, Every, Manual, Once, Rule
from mainspring.core.schedule import CANCELLED, Paused, Run, Schedule
from mainspring.core.steps import IN_TIME
from mainspring.stores.records import Look


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


def at(slot: datetime, tz: str, *, seconds: bool = False) -> str:
    """Write a slot on the clocks of a zone, with the name of their time; with `seconds` also where they are zero."""
    local = slot.astimezone(zone_info(tz))
    return f"{wall(local, seconds=seconds)} {local:%Z}"


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
