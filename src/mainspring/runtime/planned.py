"""The schedules that a program declares, and steps with schedules from what they are at the moment."""

from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from difflib import get_close_matches
from functools import partial
from typing import Final

from mainspring.core.job import NodeId
from mainspring.core.missed import MOMENT
from mainspring.core.names import Name
from mainspring.core.schedule import Decision, Plan, Schedule
from mainspring.core.steps import create, decide, pause
from mainspring.errors import NameTaken, ScheduleError, UnknownSchedule
from mainspring.ids import new_id
from mainspring.runtime.firing import move_of
from mainspring.stores.port import Store
from mainspring.stores.records import Former, Look, RunFilter

PAGE: Final = 500
RUNS_PAGE: Final = 1000
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
    gone: "dict[str, Planned]" = field(default_factory=dict)
    """Those that were uninstalled, likewise: their schedules are to be paused."""
    changes: int = 0
    """How often a plugin was installed or uninstalled."""

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


class AlreadySo(Exception):
    """Somebody was faster: there is nothing to do any more."""


async def pause_gone(store: Store, planned: Planned, ours: Collection[NodeId]) -> None:
    """Pause the schedules of plugins that were uninstalled here, unless another node still has their tasks."""
    for id_, plugin in tuple(planned.gone.items()):
        tasks = {plan.template.task for plan in plugin.plans.values()}
        others = (view for view in await store.nodes() if view.alive and view.node.id not in ours)
        if any(not tasks.isdisjoint(view.node.tasks) for view in others):
            continue
        owned, _ = await owned_by(store, plugin.owner)
        for schedule in (look.schedule for look in owned):
            if schedule.paused is None and id_ in planned.gone:
                await _pause(store, schedule.name, plugin.resumes, f"plugin {id_} is not installed")


async def _pause(store: Store, name: Name, by: str, reason: str) -> None:
    def stand_still(look: Look, now: datetime) -> Decision:
        if look.schedule.paused:
            raise AlreadySo  # the node and whoever uninstalls both do it
        return pause(look.schedule, now, by=by, reason=reason)

    with suppress(UnknownSchedule, AlreadySo):  # or somebody removed it meanwhile
        await step(store, name, stand_still)


def fresh(
    name: Name, plan: Plan, now: datetime, former: Former | None, *, owner: str | None = None, release: str = ""
) -> Decision:
    """Decide on a new schedule, as far as there are traces of another that had its name.

    It owes slots from now on, or after those that have a job already. There are such if the clock was set back; their jobs
    could not be made again, and the schedule could not go on. And of what was before nobody knows which runs have been
    pruned by now, so that nothing of it can be backfilled.
    """
    begins = max(now, former.last_slot) if former and former.last_slot else now
    return create(name, plan, begins, owner=owner, release=release, known_since=begins if former else None)


async def owned_by(store: Store, owner: str) -> tuple[list[Look], set[str]]:
    """Read all schedules of an owner, and the names of those that cannot be read."""
    page = await store.list_schedules(owner=owner, limit=PAGE)
    looks, unreadable = list(page.looks), set(page.unreadable)
    while page.after:
        page = await store.list_schedules(owner=owner, limit=PAGE, after=page.after)
        looks += page.looks
        unreadable |= page.unreadable.keys()
    return looks, unreadable


async def step(
    store: Store, name: Name, choose: Callable[[Look, datetime], Decision], *, owed_first: bool = False
) -> Decision:
    """Take a step with a schedule, from what it is at the moment; `owed_first` has its due slots decided before that.

    Both are written together: decided apart, a schedule of moments would owe something again each time.
    Raises `UnknownSchedule` if it is not there.
    """
    for _ in range(TRIES):
        look, now = await look_at(store, name)
        first = owed(look, now) if owed_first else ()
        decision = choose(after(look, first), now)
        (accepted,) = await store.move([move_of(*first, decision)])
        if accepted:
            return decision
    raise ScheduleError(f"schedule {name}", f"it changed {TRIES} times while it was being changed; try again")


def owed(look: Look, now: datetime) -> tuple[Decision, ...]:
    """Decide all slots that have come up, as whoever ticks would, one helping upon the other."""
    decisions: list[Decision] = []
    while _is_due(look.schedule, now) and (not decisions or decisions[-1].runs):
        decision = decide(look.schedule, now, partial(new_id, now), busy=bool(look.open))
        decisions.append(decision)
        look = after(look, [decision])
    return tuple(decisions)


def after(look: Look, decisions: Sequence[Decision]) -> Look:
    """Say what a look would find once these decisions are written."""
    for decision in decisions:
        made = [run.job for run in decision.runs if run.is_open and run.job]
        look = Look(schedule=decision.after or look.schedule, open=(*made, *look.open))
    return look


def _is_due(schedule: Schedule, now: datetime) -> bool:
    # Not by `next_at` alone: of a backlog, the rest is looked at a second later, and is owed all the same.
    instants = (schedule.next_at, schedule.next_slot)
    return schedule.paused is None and any(instant is not None and instant <= now for instant in instants)


async def slots_with_job(store: Store, name: Name, slots: Sequence[datetime]) -> frozenset[datetime]:
    """Find the slots of a schedule, of these in order, that have made a job."""
    which = RunFilter(schedule=name, after_slot=slots[0] - MOMENT, until_slot=slots[-1], with_job=True)
    page = await store.runs(which, limit=RUNS_PAGE)
    found = {run.slot for run in page.runs}
    while page.after:  # under an earlier rule there may have been far more slots in the same time
        page = await store.runs(which, limit=RUNS_PAGE, after=page.after)
        found |= {run.slot for run in page.runs}
    return frozenset(slots) & found


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
