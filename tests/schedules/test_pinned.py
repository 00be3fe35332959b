"""What the tests of uni's scheduler and of forge's cron pin (contracts 1.10 and 2.8), as DESIGN 13 spells it here.

All of 1.10 on the sidecar store is in tests/sidecar/test_pinned.py; number 9, about older rows of its file, is there alone.
"""

import asyncio
from datetime import datetime
from functools import partial

import pytest

from mainspring import Breaker, Context, Cron, Every, Mainspring, Manual, Missed, Once
from mainspring.core.job import State
from mainspring.core.missed import Reason
from mainspring.core.names import Name
from mainspring.core.rules import Rule
from mainspring.core.schedule import Decision, Origin, Run, Schedule
from mainspring.core.steps import decide
from mainspring.errors import ScheduleError, UnknownSchedule
from mainspring.ids import new_id
from mainspring.runtime.firing import move_of
from mainspring.settings import NodeSettings
from mainspring.stores.memory import MemoryStore
from mainspring.stores.port import Store
from mainspring.stores.schedules import read_schedule, schedule_bytes
from mainspring.testing import VirtualTime
from tests.jobs.conftest import Ghost, victim
from tests.schedules.conftest import (
    DAY,
    HOUR,
    MINUTE,
    SECOND,
    STORES,
    T0,
    Boom,
    MakeStore,
    diary_task,
    dropped,
    fired,
    jobs,
    now,
    opened,
    pass_by,
    runs,
    schedules,
    slots,
    until,
)

pytestmark = pytest.mark.usefixtures("virtual_time")


# uni: 1.10. On PostgreSQL too, wherever slow tests run.

on_every_store = pytest.mark.parametrize("make_store", STORES, indirect=True)


@on_every_store
async def test_1_10_1_every_50_ms_fires_at_least_twice_in_400_ms(app: Mainspring) -> None:
    task, diary = diary_task(app)
    app.schedule(Every(SECOND / 20))(task)
    async with app.node():
        await until(0.41)
    assert len(diary.calls) >= 2
    assert diary.slots == [T0 + n * SECOND / 20 for n in range(1, 9)]


@on_every_store
@pytest.mark.parametrize("how", ["remove", "pause"])
async def test_1_10_2_after_a_cancel_there_is_at_most_one_more_fire(app: Mainspring, how: str) -> None:
    task, diary = diary_task(app)
    async with app.node():
        await app.schedules.add("often", Every(SECOND / 20), task.call())
        await until(0.62)
        before = len(diary.calls)
        await getattr(app.schedules, how)("often")
        await until(2)
    assert before >= 1
    assert len(diary.calls) <= before + 1


@on_every_store
async def test_1_10_3_the_attempts_of_a_job_that_always_fails_plateau_between_10_and_20(app: Mainspring) -> None:
    calls: list[float] = []

    @app.schedule(Every("20ms"))
    @app.task(name="broken", breaker=True, max_attempts=1)
    async def broken() -> None:
        calls.append(now())
        raise Boom

    async with app.node():
        await until(0.5)
        assert len(calls) == 10
        opened_at = calls[-1]
        await until(opened_at + 29.9)
        assert len(calls) == 10
        await until(opened_at + 31)
        assert len(calls) == 11  # the probe
        await until(opened_at + 59)
        assert len(calls) == 11
    missed = [(run.reason, run.count) for run in await runs(app) if run.reason]
    assert {reason for reason, _ in missed} == {Reason.BREAKER_OPEN}
    assert sum(count for _, count in missed) > 2800
    assert len(missed) < 5  # a span of slots is one run


async def test_slots_go_on_when_the_breaker_has_closed(app: Mainspring) -> None:
    is_broken = True
    calls: list[float] = []

    @app.schedule(Every("1s"))
    @app.task(name="broken", breaker=Breaker(threshold=2, cooldown="10s"), max_attempts=1)
    async def broken() -> None:
        calls.append(now())
        if is_broken:
            raise Boom

    async with app.node():
        await until(5.5)
        assert len(calls) == 2
        is_broken = False
        await until(20.5)
    assert [round(call) for call in calls[2:]] == [12, 13, 14, 15, 16, 17, 18, 19, 20]


async def test_a_breaker_that_is_forced_open_skips_slots_and_none_of_them_counts(app: Mainspring) -> None:
    task, diary = diary_task(app, breaker=Breaker(threshold=1))
    app.schedule(Every(SECOND), name="often")(task)
    async with app.node():
        await until(2.5)
        await app.breakers.open(task.name, by="ada", reason="not now")
        await until(60.5)
        assert len(diary.calls) == 2
        await app.breakers.reset(task.name)
        await until(62.5)
    assert len(diary.calls) == 4
    assert await dropped(app) == [(Reason.BREAKER_OPEN, 58)]


@on_every_store
@pytest.mark.parametrize("name", ["nightly", "uni.system.ttl_sweep", "uni:system.ttl_sweep", "täglich/früh"])
async def test_1_10_4_a_run_that_has_begun_can_be_read_and_a_dotted_name_comes_back_as_it_was(
    app: Mainspring, make_store: MakeStore, name: str
) -> None:
    task, _ = diary_task(app, takes=60)
    async with app.node():
        added = await app.schedules.add(name, Every(SECOND), task.call(), max_runs=1)
        await until(1.5)
        async with opened(make_store()) as other:
            (look,) = (await other.look([Name.parse(name)])).looks
            (run,) = await runs(app, name)
    assert look.schedule.name == added.name == Name.parse(name)
    assert str(look.schedule.name) == name
    assert look.open == (run.id,)
    assert (run.schedule, run.slot, run.state) == (Name.parse(name), T0 + SECOND, None)


@on_every_store
async def test_1_10_5_a_cancel_removes_the_row(app: Mainspring, make_store: MakeStore) -> None:
    task, _ = diary_task(app)
    async with app:
        await app.schedules.add("nightly", Every(DAY), task.call())
        await app.schedules.remove("nightly")
        async with opened(make_store()) as other:
            assert (await other.list_schedules()).looks == ()
        with pytest.raises(UnknownSchedule):
            await app.schedules.get("nightly")
        with pytest.raises(UnknownSchedule):
            await app.schedules.remove("nightly")


@on_every_store
async def test_1_10_6_rows_are_there_after_close_and_reopen(
    app: Mainspring, make_store: MakeStore, virtual_time: VirtualTime
) -> None:
    task, _ = diary_task(app)
    async with app.node():
        await app.schedules.add("minutely", Every(MINUTE), task.call())
        await app.schedules.add("daily", Every(DAY), task.call())
        await until(150)
    kept, ran = await schedules(app), await runs(app)

    after = Mainspring(store=make_store(), clock=virtual_time.clock)
    assert await schedules(after) == kept
    assert await runs(after) == ran
    assert set(kept) == {"daily", "minutely"}
    assert slots(ran) == [T0 + MINUTE, T0 + 2 * MINUTE]


@on_every_store
async def test_1_10_7_what_has_no_place_is_not_kept_and_what_has_one_is(
    make_store: MakeStore, virtual_time: VirtualTime
) -> None:
    kept: list[int] = []
    for make in (lambda: MemoryStore(clock=virtual_time.clock), make_store):
        for _ in range(2):
            app = Mainspring(store=make(), clock=virtual_time.clock)
            task, _ = diary_task(app)
            async with app:
                kept.append(len((await app.schedules.list()).looks))
                if not kept[-1]:
                    await app.schedules.add("nightly", Every(DAY), task.call())
    assert kept == [0, 0, 0, 1]


@on_every_store
async def test_1_10_8_every_cron_and_once_survive_a_reopen_exactly(
    app: Mainspring, make_store: MakeStore, virtual_time: VirtualTime
) -> None:
    task, _ = diary_task(app)
    rules: dict[str, Rule] = {
        "every": Every(90 * SECOND),
        "after-the-end": Every(MINUTE, after_end=True),
        "aligned": Every(HOUR, start=T0 - DAY),
        "cron": Cron("*/15 9-17 * * MON-FRI", tz="Europe/Berlin"),
        "seconds": Cron("30 0 0 L * ?", tz="Pacific/Apia"),
        "once": Once(T0 + DAY + SECOND / 3),
        "manual": Manual(),
    }
    added: dict[str, Schedule] = {}
    async with app:
        for name, rule in rules.items():
            added[name] = await app.schedules.add(name, rule, task.call())

    kept = await schedules(Mainspring(store=make_store(), clock=virtual_time.clock))
    assert kept == added
    assert {name: kept[name].plan.rule for name in rules if not name.startswith(("every", "after"))} == {
        name: rule for name, rule in rules.items() if not name.startswith(("every", "after"))
    }
    assert {name: schedule.next_at for name, schedule in kept.items()} == {
        "every": T0 + 90 * SECOND,
        "after-the-end": T0 + MINUTE,
        "aligned": T0 + HOUR,
        "cron": T0 + 8 * HOUR,  # 9 in Berlin, on a Tuesday
        "seconds": datetime.fromisoformat("2030-01-31T00:00:30+13:00"),
        "once": T0 + DAY + SECOND / 3,
        "manual": None,
    }


@on_every_store
async def test_1_10_10_declaring_a_name_again_overwrites_the_schedule_and_leaves_one_row(
    make_store: MakeStore, virtual_time: VirtualTime
) -> None:
    seen: list[dict[str, datetime | None]] = []
    for rule in (Every(HOUR), Every(MINUTE)):
        app = Mainspring(store=make_store(), clock=virtual_time.clock)
        task, _ = diary_task(app)
        app.schedule(rule, name="nightly")(task)
        async with app.node():
            pass
        seen.append({name: schedule.next_at for name, schedule in (await schedules(app)).items()})
    assert seen == [{"nightly": T0 + HOUR}, {"nightly": T0 + MINUTE}]


# forge: 2.8.


def test_2_8_1_states_round_trip_and_others_are_refused() -> None:
    assert [State(str(state)) for state in State] == list(State)
    with pytest.raises(ValueError, match="invalid"):
        State("invalid")


def test_2_8_1_a_stored_schedule_with_a_word_that_nobody_knows_is_refused(app: Mainspring) -> None:
    task, _ = diary_task(app)
    schedule = app.schedules.add_sync("nightly", Every(DAY), task.call(), overlap="skip")
    app.close_sync()
    read = partial(
        read_schedule,
        "nightly",
        revision=schedule.revision,
        next_at=schedule.next_at,
        waits=False,
        last_end=None,
    )
    written = schedule_bytes(schedule)
    assert read(written) == schedule
    with pytest.raises(ScheduleError, match=r"nightly.*invalid"):
        read(written.replace(b'"skip"', b'"invalid"'))


def test_2_8_1_a_new_run_has_nothing_that_is_not_known_yet() -> None:
    run = Run(id=new_id(T0), schedule=Name.parse("nightly"), decided_at=T0, slot=T0)
    assert (run.state, run.finished_at, run.error, run.owner, run.reason) == (None, None, None, None, None)
    assert run.is_open
    assert run.zone == "UTC"


def test_2_8_1_a_node_makes_the_jobs_of_schedules_unless_it_is_told_not_to() -> None:
    assert NodeSettings().ticker


async def test_2_8_2_a_slot_makes_one_run_and_one_job_that_know_each_other(app: Mainspring) -> None:
    seen: list[tuple[object, str | None, datetime | None]] = []

    @app.schedule(Every(MINUTE), name="minutely")
    @app.task(name="work")
    async def work(ctx: Context) -> None:
        seen.append((ctx.job, ctx.schedule, ctx.slot))
        await asyncio.sleep(10)

    async with app.node():
        await until(61)
        (run,), (view,) = await runs(app), await jobs(app)
    assert view.job.state is State.RUNNING
    assert run.is_open
    assert run.job == run.id == view.job.id
    assert view.job.of_schedule
    assert view.facts.slot
    assert (view.facts.slot.schedule, view.facts.slot.slot) == ("minutely", T0 + MINUTE)
    assert seen == [(run.id, "minutely", T0 + MINUTE)]


async def test_2_8_3_the_same_slot_is_taken_once(app: Mainspring, make_store: MakeStore) -> None:
    task, _ = diary_task(app)
    async with app, opened(make_store()) as other:
        await app.schedules.add("minutely", Every(MINUTE), task.call())
        await until(61)
        decisions = [await decided(store) for store in (app.store, other)]
        answers = [await store.move([move_of(one)]) for store, one in zip((app.store, other), decisions, strict=True)]
        assert answers == [(True,), (False,)]
        (run,), (view,) = await runs(app), await jobs(app)
    assert run.id == view.job.id == decisions[0].runs[0].id
    assert decisions[0].runs[0].slot == decisions[1].runs[0].slot == T0 + MINUTE


async def decided(store: Store) -> Decision:
    """Decide about the one schedule that is due, as a ticker does."""
    looked = await store.due(10)
    (look,) = looked.looks
    return decide(look.schedule, looked.now, partial(new_id, looked.now), busy=bool(look.open))


async def test_2_8_4_the_slot_of_a_dead_node_is_run_by_another_as_the_same_run_under_a_new_lease(
    app: Mainspring,
) -> None:
    task, diary = diary_task(app, takes=10 * 60, max_attempts=3)
    async with app:
        await app.schedules.add("once", Every(MINUTE), task.call(), max_runs=1)
        async with victim(app) as first:
            await until(70)
            (before,), (old,) = await runs(app), await jobs(app)
            stale = await app.store.orphans(10)
            first.kill()
        async with app.node() as second:
            await until(120)
            (after,), (view,) = await runs(app), await jobs(app)
            assert view.node == second.id
    assert stale == ()
    assert old.job.state is view.job.state is State.RUNNING
    assert after == before
    assert view.job.id == old.job.id == after.id
    assert (old.job.claims, view.job.claims) == (1, 2)
    assert [call.slot for call in diary.calls] == [T0 + MINUTE] * 2
    assert [call.attempt for call in diary.calls] == [1, 2]
    assert diary.most_at_once == 1


async def test_2_8_4_the_old_attempt_can_write_nothing_any_more(app: Mainspring) -> None:
    task, _ = diary_task(app, max_attempts=2)
    async with app:
        await app.schedules.add("by-hand", Manual(), task.call())
        await app.schedules.run("by-hand")
        first = await Ghost.join(app)
        old = await first.claim_one()
        await first.die()
        await Ghost.reap(app)
        second = await Ghost.join(app)
        fresh = await second.claim_one()
        assert not await first.say(old, b"late")
        assert await second.say(fresh, b"in time")
        (run,) = await runs(app)
    assert fresh.job.id == old.job.id == run.id
    assert run.is_open


async def test_2_8_5_the_running_job_of_a_live_node_is_left_alone(app: Mainspring) -> None:
    task, diary = diary_task(app, takes=20 * 60)
    async with app.node():
        await app.schedules.add("once", Every(MINUTE), task.call(), max_runs=1)
        await until(61)
        (before,) = await runs(app)
        async with app.node(), app.node():
            await pass_by(MINUTE)
            (after,), (view,) = await runs(app), await jobs(app)
    assert after == before
    assert (view.job.state, view.job.claims) == (State.RUNNING, 1)
    assert len(diary.calls) == 1


@pytest.mark.parametrize("again", ["another node", "clock set back", "backfill"])
async def test_2_8_6_a_slot_that_is_done_is_never_taken_again(
    app: Mainspring, virtual_time: VirtualTime, again: str
) -> None:
    task, diary = diary_task(app)
    async with app.node():
        await app.schedules.add("minutely", Every(MINUTE), task.call())
        await until(185)
        before = await runs(app)
        match again:
            case "another node":
                async with app.node():
                    await until(235)
            case "clock set back":
                virtual_time.clock.jump(-3 * MINUTE)
                await until(235)
            case _:
                assert await app.schedules.backfill("minutely", T0, T0 + 3 * MINUTE) == ()
                await until(235)
        assert await runs(app) == before
    assert diary.slots == slots(before) == [T0 + n * MINUTE for n in (1, 2, 3)]
    assert {run.state for run in before} == {State.SUCCEEDED}


async def test_2_8_7_catch_up_with_a_limit_of_3_makes_3_jobs_at_most_one_for_each_slot(app: Mainspring) -> None:
    task, diary = diary_task(app)
    app.schedule(Every(HOUR), name="hourly", missed=Missed.all(limit=3))(task)
    async with app.node():
        pass
    await until(12 * HOUR + MINUTE)
    async with app.node():
        await pass_by(MINUTE)
    made = await fired(app)
    assert slots(made) == [T0 + n * HOUR for n in (10, 11, 12)]
    assert [view.job.id for view in await jobs(app)] == [run.id for run in made]
    assert sorted(slot for slot in diary.slots if slot) == slots(made)


async def test_2_8_8_a_node_without_a_ticker_never_fires_and_one_with_it_needs_no_leader(app: Mainspring) -> None:
    task, diary = diary_task(app)
    app.schedule(Every(MINUTE), name="minutely")(task)
    async with app.node(ticker=False), app.node(ticker=False):
        await until(2 * MINUTE + SECOND)
        assert await runs(app) == []
        async with app.node() as node:
            await pass_by(MINUTE)
            assert node.events.counts["runs"] > 0
    assert diary.calls
    assert {run.origin for run in await runs(app)} == {Origin.SLOT}
