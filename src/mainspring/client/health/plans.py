"""Checks of the schedules in a store: whether somebody decides their slots, and can run their jobs."""

from collections.abc import AsyncIterator, Collection
from datetime import datetime
from typing import Final

from msgspec import Struct, field

from mainspring.client.health.finding import Finding, fail, ok, warn
from mainspring.client.words import ago, count
from mainspring.core.names import Name
from mainspring.core.schedule import Schedule
from mainspring.core.steps import IN_TIME, is_ahead
from mainspring.stores.port import Store
from mainspring.stores.records import SchedulePage

PAGE: Final = 500
MOST: Final = 10_000
"""Schedules that are looked at: of more, the first ones by name."""
MOST_NAMED: Final = 5


class Seen(Struct, kw_only=True):
    """What was found on the way."""

    now: datetime
    total: int = 0
    paused: int = 0
    late: list[Schedule] = field(default_factory=list)
    ahead: list[Schedule] = field(default_factory=list)
    """Decided for later than now, because the clock was ahead."""
    strange: list[Schedule] = field(default_factory=list)
    """Their task is not known to any live node."""
    unreadable: list[str] = field(default_factory=list)
    is_all: bool = True

    def add(self, page: SchedulePage, tasks: Collection[Name]) -> None:
        self.total += len(page.looks) + len(page.unreadable)
        self.unreadable += page.unreadable
        for schedule in (look.schedule for look in page.looks):
            self.paused += schedule.paused is not None
            if schedule.paused:
                continue
            if is_ahead(schedule, self.now):
                self.ahead.append(schedule)
            if schedule.next_at is None:
                continue
            if self.now - schedule.next_at > IN_TIME:
                self.late.append(schedule)
            if schedule.plan.template.task not in tasks:
                self.strange.append(schedule)


async def plans(store: Store, tasks: Collection[Name], *, anyone: bool) -> AsyncIterator[Finding]:
    """Look at the schedules; `tasks` are those that live nodes know, `anyone` says whether there are such nodes."""
    page = await store.list_schedules(limit=PAGE)
    seen = Seen(now=page.now)
    seen.add(page, tasks)
    while page.after and seen.total < MOST:
        page = await store.list_schedules(limit=PAGE, after=page.after)
        seen.add(page, tasks)
    seen.is_all = page.after is None
    found = list(_findings(seen, anyone=anyone))
    for finding in found or [ok("schedules", _told(seen))]:
        yield finding


def _findings(seen: Seen, *, anyone: bool) -> list[Finding]:
    found: list[Finding] = []
    if seen.late:
        since = min(one.next_at for one in seen.late if one.next_at)
        do = "see the logs of the nodes: one has to tick" if anyone else "start a node: mainspring worker MODULE:APP"
        late = f"{len(seen.late):,} of {seen.total:,} late, the first by a slot of {ago(since, seen.now)}"
        found.append(fail("schedules", f"{late}: {_named([str(one.name) for one in seen.late])}", do, "schedule_late"))
    if seen.ahead:
        until = max(one.cursor for one in seen.ahead).isoformat(" ", "seconds")
        ahead = f"{len(seen.ahead):,} of {seen.total:,} make no job before {until}, because the clock was ahead"
        named = _named([str(one.name) for one in seen.ahead])
        found.append(fail("schedules", f"{ahead}: {named}", "mainspring schedules reset NAME", "schedule_ahead"))
    if seen.strange and anyone:
        names = [f"{one.name} ({one.plan.template.task})" for one in seen.strange]
        do = "start a node that knows it, give the task its old name as an alias, or remove them"
        found.append(warn("schedules", f"no live node knows the task of {_named(names)}", do, "schedule_unknown_task"))
    if seen.unreadable:
        do = "a newer Mainspring may have written them, or a zone is not known here: mainspring schedules list"
        found.append(
            warn("schedules", f"cannot be understood here: {_named(seen.unreadable)}", do, "schedule_unreadable")
        )
    return found


def _told(seen: Seen) -> str:
    told = count(seen.total, "schedule") + ("" if seen.is_all else " and more")
    return f"{told}, {seen.paused:,} of them paused" if seen.paused else told


def _named(names: list[str]) -> str:
    more = len(names) - MOST_NAMED
    return ", ".join(names[:MOST_NAMED]) + (f" and {more:,} more" if more > 0 else "")
