"""The schedules that a program declares, and how a store comes to have them.

Each deployment has its own: what another one declared, or somebody added at run time, is never touched. Of two releases
of the same deployment that run side by side for a while, the newer one's word holds; an older node that starts late
does not write its own back.
"""

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from difflib import get_close_matches
from functools import partial
from typing import Final

from mainspring.core.names import Name
from mainspring.core.schedule import (
    Decision,
    Plan,
    Schedule,
    change,
    create,
    decide,
    is_declared,
    is_older,
    remove,
    resume,
)
from mainspring.errors import NameTaken, ScheduleError, UnknownSchedule
from mainspring.ids import new_id
from mainspring.runtime.events import log
from mainspring.runtime.firing import move_of
from mainspring.stores.port import Store
from mainspring.stores.records import Look, Looked, RunFilter

PAGE: Final = 500
TRIES: Final = 50
"""How often a step is decided again that others were faster with."""


@dataclass(slots=True, kw_only=True)
class Planned:
    """What an app declares, by name."""

    owner: str = "app"
    owner_is_given: bool = False
    """Without one that was given, two programs may have the same: only what is surely this one's is taken away then."""
    release: str = ""
    plans: dict[Name, Plan] = field(default_factory=dict)
    resumes: str = ""
    """By whom a schedule of this owner may have been paused that goes on when it is declared again."""
    plugins: "dict[str, Planned]" = field(default_factory=dict)
    """What the plugins of the app declare, each an owner of its own, by their ids."""

    def everything(self) -> dict[Name, Plan]:
        """Name all that is declared, whoever declares it."""
        together = dict(self.plans)
        for planned in tuple(self.plugins.values()):
            together |= planned.plans
        return together

    def add(self, name: Name, plan: Plan) -> None:
        if name in self.plans:
            raise NameTaken(str(name))
        self.plans[name] = plan


async def declare(store: Store, planned: Planned, tasks: frozenset[Name]) -> None:
    """Have the store keep what is declared, and nothing of this owner that is not; `tasks` are those known here."""
    owned = await _owned(store, planned.owner)
    is_behind = any(is_older(planned.release, look.schedule.release) for look in owned)
    for name, plan in planned.plans.items():
        await _declare(store, planned, name, plan, is_behind=is_behind)
    for _ in range(TRIES):  # until nobody was faster
        gone = [look.schedule for look in await _owned(store, planned.owner) if _may_go(planned, look.schedule, tasks)]
        accepted = await store.move([move_of(remove(schedule)) for schedule in gone]) if gone else ()
        for schedule in (schedule for schedule, was in zip(gone, accepted, strict=True) if was):
            log.info("schedule %s is gone: %s does not declare it any more", schedule.name, planned.owner)
        if all(accepted):
            break
    if planned.resumes:
        await _resume(store, planned)
    for plugin in tuple(planned.plugins.values()):
        await declare(store, plugin, tasks)


async def _resume(store: Store, planned: Planned) -> None:
    """Let schedules go on that were paused only because nobody declared them."""
    for look in await _owned(store, planned.owner):
        paused = look.schedule.paused
        if paused and paused.by == planned.resumes and look.schedule.name in planned.plans:
            with suppress(UnknownSchedule):
                await step(
                    store, look.schedule.name, lambda look, now: resume(look.schedule, now, partial(new_id, now))
                )


async def _declare(store: Store, planned: Planned, name: Name, plan: Plan, *, is_behind: bool) -> None:
    refused = 0
    while refused < TRIES:  # until there is nothing left to do
        looked = await store.look([name])
        is_new = not looked.looks and str(name) not in looked.unreadable
        if is_new and is_behind:  # whoever took it away knew better
            log.info("schedule %s is not made: there is a newer release than %s without it", name, planned.release)
            return
        if is_new:
            now = await beginning(store, name, looked.now)
            decision: Decision | None = create(name, plan, now, owner=planned.owner, release=planned.release)
        else:
            decision = _wanted(planned, name, plan, looked)
        if decision is None:
            return
        (accepted,) = await store.move([move_of(decision)])
        refused += not accepted


def _wanted(planned: Planned, name: Name, plan: Plan, looked: Looked) -> Decision | None:
    """Decide what a declaration does to a schedule that is there; None: nothing."""
    if problem := looked.unreadable.get(str(name)):
        log.error("schedule %s is left as it is: what is stored of it cannot be understood here: %s", name, problem)
        return None
    now = looked.now
    (look,) = looked.looks
    there = look.schedule
    if there.owner != planned.owner:
        whose = "was added at run time" if there.owner is None else f"belongs to {there.owner}"
        log.warning("schedule %s %s and is left as it is; give one of them another name", name, whose)
        return None
    if is_older(planned.release, there.release):
        log.info("schedule %s stays as release %s has declared it", name, there.release)
        return None
    if is_declared(there, plan, planned.release):
        return None
    return owed(look, now) or change(there, plan, now, partial(new_id, now), owner=there.owner, release=planned.release)


async def beginning(store: Store, name: Name, now: datetime) -> datetime:
    """Say from when on a new schedule owes slots: now, or after those that one of its name has made jobs for already.

    There are such if the clock was set back. Their jobs could not be made again, and the schedule could not go on.
    """
    made = await store.runs(RunFilter(schedule=name, after_slot=now, with_job=True), limit=PAGE)
    return max([now, *(run.slot for run in made.runs if run.slot)])


def _may_go(planned: Planned, schedule: Schedule, tasks: frozenset[Name]) -> bool:
    """Say whether a schedule of this owner is surely not wanted any more."""
    if schedule.name in planned.plans or is_older(planned.release, schedule.release):
        return False
    return planned.owner_is_given or (bool(planned.plans) and schedule.plan.template.task in tasks)


async def _owned(store: Store, owner: str) -> Iterable[Look]:
    page = await store.list_schedules(owner=owner, limit=PAGE)
    looks = list(page.looks)
    while page.after:
        page = await store.list_schedules(owner=owner, limit=PAGE, after=page.after)
        looks += page.looks
    return looks


async def step(
    store: Store, name: Name, choose: Callable[[Look, datetime], Decision], *, owed_first: bool = False
) -> Decision:
    """Take a step with a schedule, from what it is at the moment; `owed_first` has its due slots decided before that.

    Raises `UnknownSchedule` if it is not there.
    """
    refused = 0
    while refused < TRIES:
        look, now = await look_at(store, name)
        first = owed(look, now) if owed_first else None
        decision = first or choose(look, now)
        (accepted,) = await store.move([move_of(decision)])
        if accepted and first is None:
            return decision
        refused += not accepted
    raise ScheduleError(f"schedule {name}", f"it changed {TRIES} times while it was being changed; try again")


def owed(look: Look, now: datetime) -> Decision | None:
    """Decide the slots that have come up, as whoever ticks would; None if there are none."""
    schedule = look.schedule
    # Not by `next_at` alone: of a backlog, the rest is looked at a second later, and is owed all the same.
    is_due = any(instant is not None and instant <= now for instant in (schedule.next_at, schedule.next_slot))
    if schedule.paused or not is_due:
        return None
    return decide(schedule, now, partial(new_id, now), busy=bool(look.open))


async def look_at(store: Store, name: Name) -> tuple[Look, datetime]:
    """Look at one schedule, or raise `UnknownSchedule` with the nearest that there is."""
    looked = await store.look([name])
    if problem := looked.unreadable.get(str(name)):
        raise ScheduleError(f"schedule {name}", problem)
    if not looked.looks:
        page = await store.list_schedules(limit=PAGE)
        near = get_close_matches(str(name), [str(look.schedule.name) for look in page.looks], n=1)
        raise UnknownSchedule(str(name), near[0] if near else "")
    return looked.looks[0], looked.now
