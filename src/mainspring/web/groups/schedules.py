"""Schedules over HTTP: what is planned, what became of it, and what an operator may do about it."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Annotated, Final

from msgspec import UNSET, Meta, Struct, UnsetType
from msgspec.structs import replace

from mainspring.client.backfill import MOST_BACKFILLED, next_part, past_slots
from mainspring.client.planned_words import owed, rule_text, standing
from mainspring.client.searching import EARLIEST
from mainspring.client.views import (
    RunView,
    ScheduleView,
    SlotView,
    next_slots,
    run_view,
    schedule_view,
    slot_view,
)
from mainspring.core.job import JobId, State
from mainspring.core.missed import MOMENT
from mainspring.core.names import Name
from mainspring.core.schedule import Run
from mainspring.errors import DeclarationError
from mainspring.runtime.planned import look_at
from mainspring.stores.overview import Overview
from mainspring.stores.port import Store
from mainspring.stores.records import Look, RunFilter, SchedulePage, Unread
from mainspring.web.auth import Permission
from mainspring.web.groups.common import Changed, Made, Named, NamedWithReason, Page, QName
from mainspring.web.routes import AnyRoute, Asked, Route

SLOTS: Final = 10
RUNS: Final = 100
MOST_PAGES: Final = 50
"""Of schedules that are looked through for a name at a time."""
LATEST: Final = 9998
"""The year before the last that there is."""

Moment = Annotated[datetime, Meta(tz=True)]


class ListSchedules(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A page of schedules."""

    owner: QName | UnsetType = UNSET
    name: Annotated[QName, Meta(description="a part of it")] | UnsetType = UNSET
    runs: Annotated[int, Meta(ge=0, le=50, description="so many of the last runs of each, too")] = 0
    limit: Page = 100
    after: QName | UnsetType = UNSET


class Listed(Struct, frozen=True, kw_only=True):
    """Schedules, by name."""

    schedules: tuple[ScheduleView, ...]
    standing: dict[str, str]
    """How each stands: on, paused, late, held, over."""
    unreadable: dict[str, str]
    """Why some cannot be understood here, by their names."""
    runs: dict[str, tuple[RunView, ...]]
    """What became of the last slots of each, the last decided first, as far as that was asked for."""
    states: dict[str, State]
    """Where the jobs of open runs among them stand, by their ids."""
    after: str | None


class ScheduleDetail(Struct, frozen=True, kw_only=True):
    """All that is kept of a schedule."""

    schedule: ScheduleView
    rule: str
    """As shortly as it can be said."""
    standing: str
    owed: int
    """Slots that should have been decided a while ago."""
    next: tuple[SlotView, ...]
    runs: tuple[RunView, ...]
    """The last hundred, the last decided first."""
    states: dict[str, State]
    """Where the jobs of open runs stand, by their ids."""


class Backfill(Named, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Slots of the past."""

    since: Moment
    until: Moment
    priority: Annotated[int, Meta(ge=0, le=100)] | UnsetType = UNSET
    dry_run: bool = False


class Backfilled(Struct, frozen=True, kw_only=True):
    """What came of a step: of the first thousand slots."""

    slots: int
    missing: int
    """Of these, so many had no job."""
    made: int
    after: datetime | None
    """The `since` of the next step; null: there are no more."""


async def list_(asked: Asked[ListSchedules]) -> Listed:
    """List schedules by name, with how each stands."""
    page = await _page(asked)
    store = await asked.store()
    names = [look.schedule.name for look in page.looks]
    runs = await _last_runs(store, names, asked.said.runs) if asked.said.runs else {}
    return Listed(
        schedules=tuple(map(schedule_view, page.looks)),
        standing={str(look.schedule.name): standing(look, page.now) for look in page.looks},
        unreadable=dict(page.unreadable),
        runs={str(name): tuple(map(run_view, some)) for name, some in runs.items()},
        states=await _states(store, [run for some in runs.values() for run in some]),
        after=page.after,
    )


async def _last_runs(store: Store, names: Sequence[Name], limit: int) -> dict[Name, tuple[Run, ...]]:
    """Read the last runs of each, at once where the store can."""
    if isinstance(store, Overview):
        found = await store.last_runs(names, limit=limit)
        return {name: found.get(name, ()) for name in names}
    return {name: (await store.runs(RunFilter(schedule=name), limit=limit)).runs for name in names}


async def _page(asked: Asked[ListSchedules]) -> SchedulePage:
    """Read a page; of those with some name, go on until it is full, there are no more, or many were looked at."""
    said, wanted = asked.said, asked.said.name or ""
    looks: list[Look] = []
    unread: list[Unread] = []
    after, pages = said.after or None, 0
    while True:
        page = await asked.app.schedules.list(owner=said.owner or None, limit=said.limit - len(looks), after=after)
        looks += [look for look in page.looks if wanted in str(look.schedule.name)]
        unread += [one for one in page.unread if wanted in one.name]
        after, pages = page.after, pages + 1
        if not wanted or after is None or len(looks) == said.limit or pages == MOST_PAGES:
            return replace(page, looks=tuple(looks), unread=tuple(unread))


async def show(asked: Asked[Named]) -> ScheduleDetail:
    """Show a schedule: its rule in words, its next slots, and what became of the last."""
    store = await asked.store()
    look, now = await look_at(store, Name.parse(asked.said.name))
    schedule = look.schedule
    runs = (await asked.app.schedules.runs(str(schedule.name), limit=RUNS)).runs
    slots = next_slots(schedule, max(now, schedule.cursor), SLOTS)
    return ScheduleDetail(
        schedule=schedule_view(look),
        rule=rule_text(schedule.plan.rule),
        standing=standing(look, now),
        owed=owed(schedule, now),
        next=tuple(map(slot_view, slots)),
        runs=tuple(map(run_view, runs)),
        states=await _states(store, runs),
    )


async def run(asked: Asked[Named]) -> Made:
    """Make a job of a schedule now, whatever its rule says."""
    job = await asked.app.schedules.run(asked.said.name)
    return Made(id=job.id, task=job.task, fresh=True)


async def pause(asked: Asked[NamedWithReason]) -> Changed:
    """Have a schedule make no jobs until it is resumed."""
    schedules, name = asked.app.schedules, asked.said.name
    if (await schedules.get(name)).paused:
        return Changed(name=name, changed=False)
    await schedules.pause(name, by=asked.by, reason=asked.said.reason)
    return Changed(name=name, changed=True)


async def resume(asked: Asked[Named]) -> Changed:
    """Let a schedule go on; slots of the meantime make no job."""
    schedules, name = asked.app.schedules, asked.said.name
    if not (await schedules.get(name)).paused:
        return Changed(name=name, changed=False)
    await schedules.resume(name)
    return Changed(name=name, changed=True)


async def backfill(asked: Asked[Backfill]) -> Backfilled:
    """Make jobs for slots of the past that have none, a thousand slots at a time; who asks goes on with `after`."""
    said = asked.said
    start, end = _instant("since", said.since), _instant("until", said.until)
    store = await asked.store()
    look, now = await look_at(store, Name.parse(said.name))
    slots = past_slots(look.schedule, start, end, now)
    part = await next_part(store, look.schedule, slots)
    if part is None:
        return Backfilled(slots=0, missing=0, made=0, after=None)
    made = 0
    if not said.dry_run and part.missing:
        priority = None if said.priority is UNSET else said.priority
        made = len(await asked.app.schedules.backfill(said.name, part.first, part.last, priority=priority))
    more = part.count == MOST_BACKFILLED and next(slots, None) is not None
    after = part.last + MOMENT if more else None
    return Backfilled(slots=part.count, missing=part.missing, made=made, after=after)


def _instant(name: str, given: datetime) -> datetime:
    """Keep away from the ends of the calendar, where nothing can be counted."""
    if not EARLIEST <= given.year <= LATEST:
        raise DeclarationError(name, f"{given.isoformat()} is no time for a slot")
    return given.astimezone(UTC)


async def _states(store: Store, runs: Iterable[Run]) -> dict[str, State]:
    open_ = [JobId(run.id) for run in runs if run.is_open]
    return {str(view.job.id): view.job.state for view in await store.get(open_) if view} if open_ else {}


ROUTES: Final[tuple[AnyRoute, ...]] = (
    Route("GET", "/schedules/list", Permission.SCHEDULES_LOOK, ListSchedules, Listed, list_),
    Route("GET", "/schedules/show", Permission.SCHEDULES_LOOK, Named, ScheduleDetail, show),
    Route("POST", "/schedules/run", Permission.SCHEDULES_RUN, Named, Made, run),
    Route("POST", "/schedules/pause", Permission.SCHEDULES_PAUSE, NamedWithReason, Changed, pause),
    Route("POST", "/schedules/resume", Permission.SCHEDULES_PAUSE, Named, Changed, resume),
    Route("POST", "/schedules/backfill", Permission.SCHEDULES_BACKFILL, Backfill, Backfilled, backfill),
)
