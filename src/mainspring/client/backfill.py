"""Which slots of the past a schedule can still make jobs for."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from functools import partial
from itertools import chain, islice
from typing import Final

from msgspec import Struct

from mainspring.core import steps as core
from mainspring.core.missed import MOMENT
from mainspring.core.rules import Every, Manual
from mainspring.core.schedule import Schedule
from mainspring.errors import ScheduleError
from mainspring.ids import new_id
from mainspring.runtime.planned import slots_with_job
from mainspring.stores.port import Store

MOST_BACKFILLED: Final = 1000
"""Slots that one step makes jobs for: they all come up at once."""


class Part(Struct, frozen=True, kw_only=True):
    """Slots in a row, as many as one backfill takes."""

    first: datetime
    last: datetime
    count: int
    missing: int
    """Of these, so many have no job yet."""


def past_slots(schedule: Schedule, start: datetime, end: datetime, now: datetime) -> Iterator[datetime]:
    """Name the slots from `start` to `end` that have been decided, or were before the schedule's time, oldest first.

    Raises `ScheduleError` at once if there can be none, or if the first is too long ago.
    """
    ScheduleError.unless(f"schedule {str(schedule.name)!r}", _requirements(schedule, start, end, now))
    slots = schedule.plan.rule.between(start - MOMENT, min(end, schedule.cursor))
    first = next(slots, None)
    if first is None:
        return iter(())
    core.backfill(schedule, [first], now, partial(new_id, now))  # refuses what is too long ago
    return chain([first], slots)


def _requirements(schedule: Schedule, start: datetime, end: datetime, now: datetime) -> Iterator[tuple[bool, str]]:
    rule = schedule.plan.rule
    yield start <= end, "start is later than end"
    yield end <= now, f"{end.isoformat()} has not come yet; backfill what is past"
    yield not isinstance(rule, Manual), "it is run by hand only, and has no slots"
    if isinstance(rule, Every):
        yield not rule.after_end, "it counts from the end of a run to the next, and has no slots of the past"
        if rule.start and not rule.after_end:
            yield end >= rule.start, f"its first slot is {rule.start.isoformat()}, and there are none before it"
    if schedule.paused:
        first = rule.next(schedule.cursor)
        is_decided = first is None or first > min(end, schedule.plan.until or end)
        yield is_decided, f"it is paused, and slots from {first} on are not decided yet: resume it first"


async def without_job(store: Store, schedule: Schedule, slots: Sequence[datetime]) -> list[datetime]:
    """Leave out those that have made a job, or are about to."""
    if not slots:
        return []
    taken = set(await slots_with_job(store, schedule.name, slots))
    # A held one makes its job later: two for one slot would be refused, and the schedule could not go on.
    if schedule.held:
        taken.add(schedule.held.at)
    return [slot for slot in slots if slot not in taken]


async def next_part(store: Store, schedule: Schedule, slots: Iterator[datetime]) -> Part | None:
    """Take as many slots as one backfill takes, and count those without a job; None: there are no more."""
    chunk = list(islice(slots, MOST_BACKFILLED))
    if not chunk:
        return None
    missing = len(await without_job(store, schedule, chunk))
    return Part(first=chunk[0], last=chunk[-1], count=len(chunk), missing=missing)
