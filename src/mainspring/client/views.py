"""Records with what they only imply, as `--json` and the JSON API write them: the record within is unfolded into them."""

from collections.abc import Iterator
from datetime import datetime
from itertools import islice

from msgspec import Struct

from mainspring.client.clocks import ClockChange, ShownSlot, shown_slots
from mainspring.client.planned_words import is_known, rule_text
from mainspring.core.job import JobId
from mainspring.core.rules import Rule
from mainspring.core.schedule import Run, Schedule
from mainspring.stores.records import Look


class ScheduleView(Struct, frozen=True, kw_only=True):
    """A schedule as others see it."""

    schedule: Schedule
    next_slot: datetime | None
    is_over: bool
    is_cancelled: bool
    """It is kept for its name only."""
    rule: str
    """As shortly as it can be said."""
    explained: str
    """The same in a sentence."""
    zone: str
    """Whose clocks its rule is about."""
    open: tuple[JobId, ...]
    """Jobs of its runs that wait or run, newest first, ten at most."""


class RunView(Struct, frozen=True, kw_only=True):
    """A run as others see it."""

    run: Run
    job: JobId | None


class ChangeView(Struct, frozen=True, kw_only=True):
    """A change of clocks; what they show has no offset."""

    at: datetime
    shown: str
    instead: str


class SlotView(Struct, frozen=True, kw_only=True):
    """A slot, and what clocks have to do with it; what they show has no offset."""

    slot: datetime
    local: str
    zone: str
    mark: str | None
    """That there is something to explain, in a word or two."""
    says: tuple[str, ...]
    """The explanation, in sentences."""
    clock_changes: tuple[ChangeView, ...]
    moved_from: tuple[str, ...]


def schedule_view(look: Look) -> ScheduleView:
    schedule = look.schedule
    return ScheduleView(
        schedule=schedule,
        next_slot=schedule.next_slot,
        is_over=schedule.is_over,
        is_cancelled=schedule.is_cancelled,
        rule=rule_text(schedule.plan.rule),
        explained=schedule.plan.rule.explain(),
        zone=schedule.plan.zone,
        open=look.open,
    )


def run_view(run: Run) -> RunView:
    return RunView(run=run, job=run.job)


def slot_view(slot: ShownSlot) -> SlotView:
    return SlotView(
        slot=slot.slot,
        local=slot.local.isoformat(),
        zone=slot.zone,
        mark=slot.mark or None,
        says=tuple(slot.explain()),
        clock_changes=tuple(map(_change, slot.changes)),
        moved_from=tuple(one.isoformat() for one in slot.moved_from),
    )


def _change(change: ClockChange) -> ChangeView:
    return ChangeView(at=change.at, shown=change.shown.isoformat(), instead=change.instead.isoformat())


def next_slots(schedule: Schedule, start: datetime, number: int) -> list[ShownSlot]:
    """Show the slots after an instant that will make a job, as far as that is known, and changes of clocks before each."""
    plan = schedule.plan
    return list(shown_slots(plan.rule, plan.zone, _upcoming(schedule, start, number), start))


def slots_after(rule: Rule, start: datetime) -> Iterator[datetime]:
    """Name the slots of a rule, without an end where it has none."""
    slot = rule.next(start)
    while slot is not None:
        yield slot
        slot = rule.next(slot)


def _upcoming(schedule: Schedule, start: datetime, number: int) -> Iterator[datetime]:
    plan = schedule.plan
    if plan.counts_from_the_end:
        if schedule.next_slot is not None and is_known(schedule):
            yield schedule.next_slot
        return
    if plan.max_runs is not None:
        number = min(number, max(0, plan.max_runs - schedule.runs))
    for slot in islice(slots_after(plan.rule, start), number):
        if plan.until is not None and slot > plan.until:
            return
        yield slot
