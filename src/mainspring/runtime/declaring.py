"""How a store comes to have the schedules that a program declares.

Each deployment has its own: what another one declared, or somebody added at run time, is never touched. Of two releases
of the same deployment that run side by side for a while, the newer one's word holds; an older node that starts late
does not write its own back.

All that an owner has is read once, page by page; what stands there as it is declared costs no more than that. The rest
is looked at and written some hundreds at a time, and what others were faster with is tried again after all else.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from enum import Enum, auto
from functools import partial
from itertools import islice
from typing import Final, NamedTuple, TypeAlias

from mainspring.core.names import Name
from mainspring.core.releases import is_older
from mainspring.core.schedule import Decision, Plan, Schedule
from mainspring.core.steps import change, differences, is_declared, remove, resume
from mainspring.errors import ScheduleError, SchemaError, StoreClosed, StoreError, StoreUnavailable, UnknownSchedule
from mainspring.ids import new_id
from mainspring.runtime.events import log
from mainspring.runtime.firing import move_of
from mainspring.runtime.planned import PAGE, TRIES, AlreadySo, Planned, after, fresh, owed, owned_by, step
from mainspring.stores.port import Store
from mainspring.stores.records import Former, Look, Looked

MOST_RUNS: Final = 1000
"""So many runs are written together with their schedules, unless a single one has more: what they owe may be much."""

Steps: TypeAlias = dict[Name, tuple[Decision, ...]]
"""What is to be written, by name: decisions, one upon the other."""
_OF_THE_STORE: Final = (StoreUnavailable, StoreClosed, SchemaError)  # whatever is written


class _Done(Enum):
    """What became of a declaration."""

    WRITTEN = auto()
    AS_IT_WAS = auto()
    LEFT = auto()  # it is not this node's to write, or cannot be written
    OVERTAKEN = auto()  # others were faster


async def declare(store: Store, planned: Planned, tasks: frozenset[Name]) -> bool:
    """Have the store keep what is declared, by the app and its plugins, and nothing of these owners that is not.

    `tasks` are those known here. False if some of it is still to be done, because others changed the same schedules all
    the time.
    """
    done = await _Declaration(store, planned).carry_out(tasks)
    for id_, plugin in tuple(planned.plugins.items()):
        declaration = _Declaration(store, plugin, while_=partial(_is, planned.plugins, id_, plugin))
        done = await declaration.carry_out(tasks) and done
        await declaration.resume()
    return done


def _is(plugins: dict[str, Planned], id_: str, plugin: Planned) -> bool:
    return plugins.get(id_) is plugin


class _Declaration:
    """What one owner declares, on its way to the store; no more of it once that is not to be any longer."""

    def __init__(self, store: Store, planned: Planned, *, while_: Callable[[], bool] = lambda: True) -> None:
        self._store = store
        self._planned = planned
        self._while = while_
        self._owned: list[Look] = []
        """What was there of this owner before."""

    async def carry_out(self, tasks: frozenset[Name]) -> bool:
        """Write what differs, and remove what is not declared any more; False if others were faster all the time."""
        self._owned, unreadable = await owned_by(self._store, self._planned.owner)
        newer = _newer(self._planned, self._owned, unreadable)
        done = await self._write_what_differs(newer)
        if count := list(done.values()).count(_Done.AS_IT_WAS):
            log.debug("schedules of %s: %s unchanged", self._planned.owner, count)
        overtaken = [name for name, how in done.items() if how is _Done.OVERTAKEN]
        for name in overtaken:
            log.warning("schedule %s is still not what is declared: others change it all the time", name)
        self._report_undeclared(tasks)
        return await self._remove(tasks) and not overtaken

    def _report_undeclared(self, tasks: frozenset[Name]) -> None:
        """Log schedules of this owner that this program does not declare. They stay: another program may declare them."""
        for schedule in (look.schedule for look in self._owned):
            if schedule.name in self._planned.plans or _may_go(self._planned, schedule, tasks):
                continue
            if schedule.plan.template.task in tasks and not is_older(self._planned.release, schedule.release):
                log.warning(
                    "schedule %s: not declared by this program, and still active; if it was deleted from the code, "
                    "remove it with `mainspring schedules remove %s`. Only schedules that were declared by an app with an "
                    "owner, as Mainspring(..., owner='myapp'), are removed automatically",
                    schedule.name,
                    schedule.name,
                )
            else:
                log.debug("schedule %s: not declared by this program, and still active", schedule.name)

    async def resume(self) -> None:
        """Let schedules go on that were paused only because nobody declared them."""

        def go_on(look: Look, now: datetime) -> Decision:
            if look.schedule.paused is None:
                raise AlreadySo
            return resume(look.schedule, now, partial(new_id, now), busy=bool(look.open))

        planned = self._planned
        for schedule in (look.schedule for look in self._owned):
            is_ours = schedule.paused and schedule.paused.by == planned.resumes and schedule.name in planned.plans
            if is_ours and self._while():
                with suppress(UnknownSchedule, AlreadySo):
                    await step(self._store, schedule.name, go_on)

    async def _write_what_differs(self, newer: str) -> dict[Name, _Done]:
        """Write declarations in rounds: in each, those that others were faster with in the one before."""
        release, plans = self._planned.release, self._planned.plans
        there = {look.schedule.name: look.schedule for look in self._owned}
        done = {
            name: _Done.AS_IT_WAS if name in there and is_declared(there[name], plan, release) else _Done.OVERTAKEN
            for name, plan in tuple(plans.items())
        }
        for _ in range(TRIES):
            left = iter([name for name, how in done.items() if how is _Done.OVERTAKEN])
            while self._while() and (some := list(islice(left, PAGE))):
                done |= await self._write(some, newer)
            if not self._while():
                return {name: _Done.LEFT if how is _Done.OVERTAKEN else how for name, how in done.items()}
            if _Done.OVERTAKEN not in done.values():
                break
        return done

    async def _write(self, names: Sequence[Name], newer: str) -> dict[Name, _Done]:
        """Look at some schedules, and write what is to become of them."""
        found = _Found.of(await self._store.look(names))
        done: dict[Name, _Done] = {}
        steps: Steps = {}
        for name in names:
            try:
                wanted = self._wanted(name, found, newer)
            except ScheduleError as error:
                wanted = _unwritable(name, error)
            if isinstance(wanted, _Done):
                done[name] = wanted
            else:
                steps[name] = wanted
        for part in _parts(steps):
            if not self._while():
                break
            done |= await self._move(part)
        return done

    def _wanted(self, name: Name, found: "_Found", newer: str) -> tuple[Decision, ...] | _Done:
        planned, plan = self._planned, self._planned.plans[name]
        if problem := found.unreadable.get(str(name)):
            log.error("schedule %s is left as it is: what is stored of it cannot be understood here: %s", name, problem)
            return _Done.LEFT
        if look := found.looks.get(name):
            return _changed(planned, plan, look, found.now)
        if newer:  # whoever took it away knew better
            log.warning("schedule %s is not made by release %s: %s", name, planned.release, newer)
            return _Done.LEFT
        former = found.former.get(str(name))
        return (fresh(name, plan, found.now, former, owner=planned.owner, release=planned.release),)

    async def _move(self, steps: Steps) -> dict[Name, _Done]:
        """Write steps together. If one of them cannot be written it must not keep back the others."""
        failures: dict[Name, StoreError | ScheduleError] = {}
        accepted = await self._move_apart(steps, failures)
        of_the_store = [error for error in failures.values() if isinstance(error, StoreError)]
        if of_the_store and len(failures) == len(steps):  # hardly the fault of each
            raise of_the_store[-1]
        done = {name: _unwritable(name, error) for name, error in failures.items()}
        for name, was_accepted in accepted.items():
            done[name] = _Done.WRITTEN if was_accepted else _Done.OVERTAKEN
            if was_accepted:
                self._tell(name, steps[name][-1])
        return done

    async def _move_apart(self, steps: Steps, failures: "dict[Name, StoreError | ScheduleError]") -> dict[Name, bool]:
        """Write steps, in halves where they cannot be written together; adds to the failures what cannot be at all."""
        try:
            answers = await self._store.move([move_of(*decisions) for decisions in steps.values()])
        except _OF_THE_STORE:
            raise
        except (StoreError, ScheduleError) as error:
            names = list(steps)
            if len(names) == 1:
                failures[names[0]] = error
                return {}
            middle = len(names) // 2
            accepted: dict[Name, bool] = {}
            for half in (names[:middle], names[middle:]):
                accepted |= await self._move_apart({name: steps[name] for name in half}, failures)
            return accepted
        return dict(zip(steps, answers, strict=True))

    def _tell(self, name: Name, decision: Decision) -> None:
        owner = self._planned.owner
        if decision.after and not decision.before:
            log.info("schedule %s is added: %s declares it", name, owner)
        elif decision.after and decision.before and (what := differences(decision.before.plan, decision.after.plan)):
            log.info("schedule %s is changed: %s declares another %s", name, owner, ", ".join(what))

    async def _remove(self, tasks: frozenset[Name]) -> bool:
        """Remove what is not declared any more; False if others were faster all the time."""
        owner, owned = self._planned.owner, self._owned
        for _ in range(TRIES):
            gone = iter([look.schedule for look in owned if _may_go(self._planned, look.schedule, tasks)])
            accepted: list[bool] = []
            while some := list(islice(gone, PAGE)):
                answers = await self._store.move([move_of(remove(schedule)) for schedule in some])
                accepted += answers
                for schedule in (schedule for schedule, was in zip(some, answers, strict=True) if was):
                    log.info("schedule %s is gone: %s does not declare it any more", schedule.name, owner)
            if all(accepted):
                return True
            owned, _unreadable = await owned_by(self._store, owner)
        log.warning("schedules that %s does not declare are still there: others change them all the time", owner)
        return False


class _Found(NamedTuple):
    """What a look has found, by name."""

    now: datetime
    looks: dict[Name, Look]
    unreadable: Mapping[str, str]
    former: dict[str, Former]

    @classmethod
    def of(cls, looked: Looked) -> "_Found":
        looks = {look.schedule.name: look for look in looked.looks}
        return cls(looked.now, looks, looked.unreadable, {one.name: one for one in looked.former})


def _newer(planned: Planned, owned: Iterable[Look], unreadable: Collection[str]) -> str:
    """Say what is newer than this node: a release that has declared schedules of the same owner, or may have.

    What cannot be read here was most likely written by newer code. Who cannot tell brings back nothing that it took away.
    """
    for release in dict.fromkeys(look.schedule.release for look in owned):
        if is_older(planned.release, release):
            return f"release {release} has been here"
    if planned.release and unreadable:
        return f"a newer release seems to have been here, for {min(unreadable)} cannot be understood"
    return ""


def _changed(planned: Planned, plan: Plan, look: Look, now: datetime) -> tuple[Decision, ...] | _Done:
    """Decide what a declaration does to a schedule that is there."""
    there = look.schedule
    name = there.name
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


def _unwritable(name: Name, error: Exception) -> _Done:
    log.error("schedule %s is left as it is: what is declared cannot be written: %s", name, error)
    return _Done.LEFT


def _parts(steps: Steps) -> Iterator[Steps]:
    """Divide steps, so that no part has many runs."""
    part: Steps = {}
    runs = 0
    for name, decisions in steps.items():
        own = sum(len(decision.runs) for decision in decisions)
        if part and runs + own > MOST_RUNS:
            yield part
            part, runs = {}, 0
        part[name] = decisions
        runs += own
    if part:
        yield part


def _may_go(planned: Planned, schedule: Schedule, tasks: frozenset[Name]) -> bool:
    """Say whether a schedule of this owner is surely not wanted any more."""
    if schedule.name in planned.plans or is_older(planned.release, schedule.release):
        return False
    return planned.owner_is_given or (bool(planned.plans) and schedule.plan.template.task in tasks)
