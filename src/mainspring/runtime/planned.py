"""The schedules that a program declares, and how a store comes to have them.

Each deployment has its own: what another one declared, or somebody added at run time, is never touched. Of two releases
of the same deployment that run side by side for a while, the newer one's word holds; an older node that starts late
does not write its own back.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from difflib import get_close_matches
from enum import Enum, auto
from functools import partial
from typing import Final

from mainspring.core.job import NodeId
from mainspring.core.names import Name
from mainspring.core.releases import is_older
from mainspring.core.schedule import Decision, Plan, Schedule
from mainspring.core.steps import change, create, decide, differences, is_declared, pause, remove, resume
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


class _Done(Enum):
    """What became of a declaration."""

    WRITTEN = auto()
    AS_IT_WAS = auto()
    LEFT = auto()  # it is not this node's to write
    OVERTAKEN = auto()  # others were faster all the time


async def declare(store: Store, planned: Planned, tasks: frozenset[Name]) -> bool:
    """Have the store keep what is declared, by the app and its plugins, and nothing of these owners that is not.

    `tasks` are those known here. False if some of it is still to be done, because others changed the same schedules all
    the time.
    """
    done = await _declare_all(store, planned, tasks)
    for id_, plugin in tuple(planned.plugins.items()):
        is_installed = partial(_is, planned.plugins, id_, plugin)
        done = await _declare_all(store, plugin, tasks, while_=is_installed) and done
        await _resume(store, plugin, while_=is_installed)
    return done


def _is(plugins: "dict[str, Planned]", id_: str, plugin: Planned) -> bool:
    return plugins.get(id_) is plugin


class _AlreadySo(Exception):
    """Somebody was faster: there is nothing to do any more."""


async def _resume(store: Store, planned: Planned, *, while_: Callable[[], bool]) -> None:
    """Let schedules go on that were paused only because nobody declared them."""

    def go_on(look: Look, now: datetime) -> Decision:
        if look.schedule.paused is None:
            raise _AlreadySo
        return resume(look.schedule, now, partial(new_id, now), busy=bool(look.open))

    owned, _ = await _owned(store, planned.owner)
    for schedule in (look.schedule for look in owned):
        if schedule.paused and schedule.paused.by == planned.resumes and schedule.name in planned.plans and while_():
            with suppress(UnknownSchedule, _AlreadySo):
                await step(store, schedule.name, go_on)


async def pause_gone(store: Store, planned: Planned, ours: Collection[NodeId]) -> None:
    """Pause the schedules of plugins that were uninstalled here, unless another node still has their tasks."""
    for id_, plugin in tuple(planned.gone.items()):
        tasks = {plan.template.task for plan in plugin.plans.values()}
        others = (view for view in await store.nodes() if view.alive and view.node.id not in ours)
        if any(not tasks.isdisjoint(view.node.tasks) for view in others):
            continue
        owned, _ = await _owned(store, plugin.owner)
        for schedule in (look.schedule for look in owned):
            if schedule.paused is None and id_ in planned.gone:
                await _pause(store, schedule.name, plugin.resumes, f"plugin {id_} is not installed")


async def _pause(store: Store, name: Name, by: str, reason: str) -> None:
    def stand_still(look: Look, now: datetime) -> Decision:
        if look.schedule.paused:
            raise _AlreadySo  # the node and whoever uninstalls both do it
        return pause(look.schedule, now, by=by, reason=reason)

    with suppress(UnknownSchedule, _AlreadySo):  # or somebody removed it meanwhile
        await step(store, name, stand_still)


async def _declare_all(
    store: Store, planned: Planned, tasks: frozenset[Name], *, while_: Callable[[], bool] = lambda: True
) -> bool:
    """Declare what one owner has; no more of it once that is not to be any longer."""
    owned, unreadable = await _owned(store, planned.owner)
    newer = _newer(planned, owned, unreadable)
    done = [await _declare(store, planned, name, plan, newer=newer) for name, plan in planned.plans.items() if while_()]
    if count := done.count(_Done.AS_IT_WAS):
        log.info("%s of the schedules that %s declares are there already", count, planned.owner)
    return await _remove(store, planned, tasks) and _Done.OVERTAKEN not in done


def _newer(planned: Planned, owned: Iterable[Look], unreadable: Collection[str]) -> str:
    """Say what is newer than this node: a release that has declared schedules of the same owner, or may have.

    What cannot be read here was most likely written by newer code. Who cannot tell brings back nothing that it took away.
    """
    for look in owned:
        if is_older(planned.release, look.schedule.release):
            return f"release {look.schedule.release} has been here"
    if planned.release and unreadable:
        return f"a newer release seems to have been here, for {min(unreadable)} cannot be understood"
    return ""


async def _declare(store: Store, planned: Planned, name: Name, plan: Plan, *, newer: str) -> _Done:
    for _ in range(TRIES):
        looked = await store.look([name])
        if looked.looks or str(name) in looked.unreadable:
            wanted = _wanted(planned, name, plan, looked)
        elif newer:  # whoever took it away knew better
            log.warning("schedule %s is not made by release %s: %s", name, planned.release, newer)
            return _Done.LEFT
        else:
            wanted = (await fresh(store, name, plan, looked.now, owner=planned.owner, release=planned.release),)
        if isinstance(wanted, _Done):
            return wanted
        (accepted,) = await store.move([move_of(*wanted)])
        if accepted:
            _tell(planned, name, wanted[-1])
            return _Done.WRITTEN
    log.warning("schedule %s is still not what is declared: others change it all the time", name)
    return _Done.OVERTAKEN


def _wanted(planned: Planned, name: Name, plan: Plan, looked: Looked) -> tuple[Decision, ...] | _Done:
    """Decide what a declaration does to a schedule that is there."""
    if problem := looked.unreadable.get(str(name)):
        log.error("schedule %s is left as it is: what is stored of it cannot be understood here: %s", name, problem)
        return _Done.LEFT
    now = looked.now
    (look,) = looked.looks
    there = look.schedule
    if there.owner != planned.owner:
        whose = "was added at run time" if there.owner is None else f"belongs to {there.owner}"
        log.warning("schedule %s %s and is left as it is; give one of them another name", name, whose)
        return _Done.LEFT
    if is_declared(there, plan, planned.release):
        return _Done.AS_IT_WAS
    if is_older(planned.release, there.release):
        if not is_declared(there, plan, there.release):
            words = "schedule %s stays as release %s has declared it: %s is an older one"
            log.warning(words, name, there.release, planned.release)
        return _Done.LEFT
    first = owed(look, now)
    look = after(look, first)
    ids, busy = partial(new_id, now), bool(look.open)
    last = change(look.schedule, plan, now, ids, busy=busy, owner=there.owner, release=planned.release)
    return (*first, last)


def _tell(planned: Planned, name: Name, decision: Decision) -> None:
    if decision.after and not decision.before:
        log.info("schedule %s is added: %s declares it", name, planned.owner)
    elif decision.after and decision.before and (what := differences(decision.before.plan, decision.after.plan)):
        log.info("schedule %s is changed: %s declares another %s", name, planned.owner, ", ".join(what))


async def _remove(store: Store, planned: Planned, tasks: frozenset[Name]) -> bool:
    """Remove what is not declared any more; False if others were faster all the time."""
    for _ in range(TRIES):
        owned, _unreadable = await _owned(store, planned.owner)
        gone = [look.schedule for look in owned if _may_go(planned, look.schedule, tasks)]
        accepted = await store.move([move_of(remove(schedule)) for schedule in gone]) if gone else ()
        for schedule in (schedule for schedule, was in zip(gone, accepted, strict=True) if was):
            log.info("schedule %s is gone: %s does not declare it any more", schedule.name, planned.owner)
        if all(accepted):
            return True
    log.warning("schedules that %s does not declare are still there: others change them all the time", planned.owner)
    return False


async def fresh(
    store: Store, name: Name, plan: Plan, now: datetime, *, owner: str | None = None, release: str = ""
) -> Decision:
    """Decide on a new schedule, as far as there are traces of another that had its name.

    It owes slots from now on, or after those that have a job already. There are such if the clock was set back; their jobs
    could not be made again, and the schedule could not go on. And of what was before nobody knows which runs have been
    pruned by now, so that nothing of it can be backfilled.
    """
    made = await store.runs(RunFilter(schedule=name, after_slot=now, with_job=True), limit=PAGE)
    begins = max([now, *(run.slot for run in made.runs if run.slot)])
    traces = await store.runs(RunFilter(schedule=name), limit=1)
    return create(name, plan, begins, owner=owner, release=release, known_since=begins if traces.runs else None)


def _may_go(planned: Planned, schedule: Schedule, tasks: frozenset[Name]) -> bool:
    """Say whether a schedule of this owner is surely not wanted any more."""
    if schedule.name in planned.plans or is_older(planned.release, schedule.release):
        return False
    return planned.owner_is_given or (bool(planned.plans) and schedule.plan.template.task in tasks)


async def _owned(store: Store, owner: str) -> tuple[list[Look], set[str]]:
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
