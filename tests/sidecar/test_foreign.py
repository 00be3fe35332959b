"""uni's rows: what they mean, whom they belong to, and what becomes of those that mean nothing here."""

import json
import logging
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from mainspring.core.backoff import Backoff
from mainspring.core.names import Name
from mainspring.core.rules import Cron, Every, Manual, Once
from mainspring.core.schedule import Schedule, Template
from mainspring.core.steps import decide
from mainspring.stores.adopting import Adoptable
from mainspring.stores.sidecar import SidecarStore
from mainspring.stores.sidecar.foreign import NotUnderstood, translated
from mainspring.testing.contract import plans
from mainspring.testing.contract.world import World
from tests.sidecar.opened import Place

pytestmark = pytest.mark.usefixtures("virtual_time")

MINUTE = timedelta(minutes=1)


class Tasks:
    """Some tasks, by name."""

    def __init__(self, *names: Name, owner: str | None = None) -> None:
        self.all = {name: adoptable(name, owner) for name in names}

    def names(self) -> frozenset[Name]:
        return frozenset(self.all)

    def adoptable(self) -> Mapping[Name, Adoptable]:
        return self.all


def adoptable(name: Name, owner: str | None = None) -> Adoptable:
    template = Template(task=name, payload=b"{}", backoff=Backoff.fixed(1), max_attempts=2)
    return Adoptable(task=name, template=template, owner=owner)


SWEEP = Name("uni", "system.sweep")


def row(schedule: object = None, *, qname: str = "uni.system.sweep", **fields: object) -> dict[str, object]:
    given = {} if schedule is None else {"schedule": schedule}
    return {"qname": qname, "status": "Pending", "consecutive_failures": 0} | given | fields


def instant(when: datetime) -> dict[str, int]:
    seconds, rest = divmod(when - datetime(1970, 1, 1, tzinfo=UTC), timedelta(seconds=1))
    return {"secs_since_epoch": seconds, "nanos_since_epoch": rest // timedelta(microseconds=1) * 1000}


async def opened(world: World, *names: Name) -> SidecarStore:
    store = world.store
    assert isinstance(store, SidecarStore)
    store.adopt_for(Tasks(*names))
    return store


async def adopted(place: Place, found: dict[str, object]) -> Schedule:
    """Have a row taken over for its task; returns the schedule, as it is after a restart too."""
    place.write(json.dumps([found]))
    async with place.world() as world:
        await opened(world, SWEEP)
        (look,) = (await world.store.list_schedules()).looks
    async with place.world() as world:
        assert (await world.store.list_schedules()).looks == (look,)
        assert look.schedule.name == SWEEP
        assert look.open == ()
    return look.schedule


async def test_a_row_without_schedule_and_time_is_manual(place: Place) -> None:
    schedule = await adopted(place, {"qname": "uni.system.sweep", "status": "Idle", "consecutive_failures": 0})

    assert (schedule.plan.rule, schedule.next_at) == (Manual(), None)


async def test_a_manual_row_is_never_fired_by_itself_whatever_its_time_says(place: Place) -> None:
    schedule = await adopted(place, row("Manual", next_fire_at=instant(place.clock.now() - MINUTE)))

    assert (schedule.plan.rule, schedule.next_at) == (Manual(), None)


@pytest.mark.parametrize("seconds", [-30, 30])
async def test_a_period_goes_on_in_its_phase(place: Place, seconds: int) -> None:
    fire = place.clock.now() + timedelta(seconds=seconds)
    schedule = await adopted(place, row({"Periodic": {"secs": 60, "nanos": 0}}, next_fire_at=instant(fire)))

    assert schedule.plan.rule == Every(MINUTE, start=fire)
    assert schedule.next_at == fire


async def test_a_period_without_a_time_counts_from_now(place: Place) -> None:
    schedule = await adopted(place, row({"Periodic": {"secs": 1, "nanos": 500_000_000}}, next_fire_at=None))

    assert schedule.next_at == place.clock.now() + timedelta(seconds=1.5)


async def test_what_was_missed_is_decided_by_the_policy(place: Place) -> None:
    fire = place.clock.now() - timedelta(minutes=30, seconds=10)
    place.write(json.dumps([row({"Periodic": {"secs": 60, "nanos": 0}}, next_fire_at=instant(fire))]))
    async with place.world() as world:
        await opened(world, SWEEP)
        (look,) = (await world.store.due(10)).looks
        decision = decide(look.schedule, world.now, world.id, busy=False)

    skipped, made = decision.runs
    assert (skipped.count, skipped.slot) == (30, fire)
    assert (made.slot, made.is_open) == (fire + 30 * MINUTE, True)


async def test_a_cron_row_keeps_its_times(place: Place) -> None:
    fire = datetime(2030, 1, 2, 3, 30, tzinfo=UTC)
    schedule = await adopted(place, row({"Cron": "0 30 3 * * *"}, next_fire_at=instant(fire)))

    assert (schedule.plan.rule, schedule.next_at) == (Cron("0 30 3 * * *"), fire)


async def test_a_once_that_is_to_come_is_waited_for(place: Place) -> None:
    when = place.clock.now() + MINUTE
    schedule = await adopted(place, row({"Once": instant(when)}, next_fire_at=instant(when)))

    assert (schedule.plan.rule, schedule.next_at) == (Once(when), when)


@pytest.mark.parametrize("fire", [None, -60])
async def test_a_once_that_has_passed_is_retired(place: Place, fire: int | None) -> None:
    when = place.clock.now() - MINUTE
    schedule = await adopted(place, row({"Once": instant(when)}, next_fire_at=None if fire is None else instant(when)))

    assert schedule.is_over


async def test_failures_in_a_row_are_taken_over(place: Place) -> None:
    await adopted(place, row("Manual", consecutive_failures=7))
    async with place.world() as world:
        assert await (await opened(world)).failures(SWEEP) == 7


@pytest.mark.parametrize("wrap", [lambda rows: rows, lambda rows: {"jobs": rows}, lambda rows: {"rows": rows}])
async def test_rows_stand_alone_or_under_a_name(place: Place, wrap: Any) -> None:  # noqa: ANN401 -- any JSON
    place.write(json.dumps(wrap([row("Manual")])))
    async with place.world() as world:
        await opened(world, SWEEP)
        assert len((await world.store.list_schedules()).looks) == 1


ODD: list[object] = [
    {"qname": "nodots", "status": "Pending", "consecutive_failures": 0},
    {"qname": "uni.other", "schedule": "Manual", "status": "Pending", "consecutive_failures": 0},
    {"status": "Pending"},
    {"qname": "uni.system.sweep", "schedule": "Sometimes"},
    {"qname": "uni.system.sweep", "schedule": {"Cron": "not a rule"}},
    {"qname": "uni.system.sweep", "schedule": {"Cron": "0 0 0 1 * Mon"}},
    {"qname": "uni.system.sweep", "schedule": {"Periodic": {"secs": 0, "nanos": 1}}},
    {"qname": "uni.system.sweep", "schedule": {"Periodic": {"secs": 60}, "Cron": "0 * * * * *"}},
    {"qname": "uni.system.sweep", "schedule": {"Once": {"secs_since_epoch": 10**18}}},
    {"qname": "uni.system.sweep", "color": "red"},
    {"qname": "uni.system.sweep", "consecutive_failures": -1},
    {"qname": "uni.system.sweep", "status": "Cancelled", "schedule": {"Periodic": {"secs": 60, "nanos": 0}}},
    17,
    "späte Grüße 🕰",
    None,
    [1, 2.50, 10**30],
]


async def test_rows_that_cannot_be_understood_are_kept_and_told_of(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    text = json.dumps(ODD)
    place.write(text)
    async with place.world() as world:
        store = await opened(world, SWEEP)
        with caplog.at_level(logging.WARNING):
            assert (await store.list_schedules()).looks == ()
            assert (await store.list_schedules()).looks == ()
        assert place.read().decode() == text  # it is not written for nothing
        unread = await store.unread()
        assert sorted(one.row for one in unread) == sorted(json.dumps(one) for one in ODD)
        assert all(one.problem for one in unread)
        assert len(caplog.records) == len(ODD)  # each once
        await plans.add(world)

    assert json.loads(place.read())["kept"] == ODD
    async with place.world() as world:
        assert len(await (await opened(world)).unread()) == len(ODD)


async def test_what_stands_beside_the_rows_is_kept(place: Place) -> None:
    place.write('{"jobs": [], "remark": "hands off", "number": 1.0}')
    async with place.world() as world:
        await plans.add(world)

    assert json.loads(place.read())["kept"] == [{"remark": "hands off", "number": 1.0}]


async def test_a_printed_name_that_two_tasks_have_is_nobodys(place: Place) -> None:
    place.write(json.dumps([row({"Periodic": {"secs": 60, "nanos": 0}})]))
    async with place.world() as world:
        store = await opened(world, SWEEP, Name("uni.system", "sweep"))
        assert (await store.list_schedules()).looks == ()
        (one,) = await store.unread()
        assert "'uni' with 'system.sweep' and 'uni.system' with 'sweep'" in one.problem


async def test_a_row_waits_for_its_task_to_be_registered(place: Place) -> None:
    place.write(json.dumps([row("Manual")]))
    async with place.world() as world:
        store = await opened(world, Name("", "other"))
        assert (await store.list_schedules()).looks == ()
        store.adopt_for(Tasks(Name("", "other"), SWEEP))
        assert len((await store.list_schedules()).looks) == 1
        assert await store.unread() == ()


async def test_u17_a_row_with_an_undotted_id_is_kept_and_told_of_and_never_dropped(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    """Nobody's task at first; then that of a program that has one of the very name, outside of all namespaces."""
    place.write(json.dumps([row({"Periodic": {"secs": 60, "nanos": 0}}, qname="sweep")]))
    async with place.world() as world:
        store = await opened(world, SWEEP, Name("uni", "sweep"))
        with caplog.at_level(logging.WARNING):
            assert (await store.list_schedules()).looks == ()
        (one,) = await store.unread()
        assert json.loads(one.row)["qname"] == "sweep"
        (told,) = caplog.records
        assert "sweep" in told.getMessage()
        await plans.add(world)  # has the file written anew
    assert [kept["qname"] for kept in json.loads(place.read())["kept"]] == ["sweep"]

    async with place.world() as world:
        store = await opened(world, Name("", "sweep"))
        names = [look.schedule.name for look in (await store.list_schedules()).looks]
        assert Name("", "sweep") in names
        assert await store.unread() == ()


async def test_an_alias_stands_for_its_task(place: Place) -> None:
    place.write(json.dumps([row("Manual", qname="old.name")]))
    async with place.world() as world:
        tasks = Tasks(SWEEP)
        tasks.all[Name("old", "name")] = tasks.all[SWEEP]
        store = await opened(world)
        store.adopt_for(tasks)
        (look,) = (await store.list_schedules()).looks
        assert look.schedule.name == SWEEP


async def test_of_two_rows_of_one_name_the_later_counts_and_the_other_is_kept(place: Place) -> None:
    place.write(json.dumps([row({"Periodic": {"secs": 60, "nanos": 0}}), row("Manual")]))
    async with place.world() as world:
        store = await opened(world, SWEEP)
        (look,) = (await store.list_schedules()).looks
        (one,) = await store.unread()

    assert look.schedule.plan.rule == Manual()
    assert "there is a schedule uni:system.sweep already" in one.problem


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("0 30 3 * * *", "0 30 3 * * *"),
        ("0 30 3 * * * *", "0 30 3 * * *"),
        ("0 0 9 ? * 2-6", "0 0 9 * * MON-FRI"),
        ("0 0 9 * * 1,7", "0 0 9 * * SUN,SAT"),
        ("0 0 9 * * Monday,tues", "0 0 9 * * Mon,tue"),
        ("0 0 9 * * */2", "0 0 9 * * 0-6/2"),
        ("0 0 9 * * 2/3", "0 0 9 * * MON-SAT/3"),
        ("0 0 9 1 January-mar ?", "0 0 9 1 Jan-mar *"),
        ("@daily", "@daily"),
    ],
)
def test_an_expression_is_translated(theirs: str, ours: str) -> None:
    assert translated(theirs) == ours
    Cron(ours)


@pytest.mark.parametrize(
    "theirs", ["0 30 3 * * * 2030", "30 3 * * *", "0 0 9 * * 0", "0 0 9 * * 8", "0 0 0 1 * Mon", ""]
)
def test_what_our_rules_cannot_say_is_not_guessed_at(theirs: str) -> None:
    with pytest.raises(NotUnderstood):
        translated(theirs)
