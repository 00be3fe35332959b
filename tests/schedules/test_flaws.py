"""The flaws of forge's cron, of uni's scheduler and of qml's recurring jobs that are not here (contracts 2.9, 1.11 and
4.11), one story or more for each.
"""

import asyncio
import logging
import sys
from datetime import datetime
from itertools import pairwise
from types import FrameType

import pytest

from mainspring import Context, Cron, Every, Fail, Mainspring, Manual, Missed, Once, Plugin, Retry
from mainspring.core.job import Cause, State
from mainspring.core.missed import Reason
from mainspring.errors import NameTaken, ScheduleError
from mainspring.plugins import BackgroundJobs, Schedules
from mainspring.stores.memory import MemoryStore
from mainspring.stores.records import Facts
from mainspring.testing import VirtualTime
from mainspring.testing.faults import FaultyStore
from mainspring.testing.virtual import VirtualClock
from tests.jobs.conftest import Ghost, victim
from tests.schedules.conftest import (
    DAY,
    HOUR,
    LASTING,
    MINUTE,
    SECOND,
    T0,
    Boom,
    Diary,
    MakeStore,
    all_ended,
    diary_task,
    dropped,
    fired,
    jobs,
    now,
    pass_by,
    runs,
    schedules,
    slots,
    until,
)

pytestmark = pytest.mark.usefixtures("virtual_time")

SUCCEEDED, FAILED, CANCELLED = State.SUCCEEDED, State.FAILED, State.CANCELLED


@pytest.fixture
def faulty(make_store: MakeStore) -> FaultyStore:
    return FaultyStore(make_store())


@pytest.fixture
def shaky(faulty: FaultyStore, virtual_time: VirtualTime) -> Mainspring:
    """An app on a store that can be made to misbehave."""
    return Mainspring(store=faulty.as_store, clock=virtual_time.clock)


# F1: a run ends with its job, in whatever way that ends.


@pytest.mark.parametrize(
    ("how", "state", "error"),
    [
        ("returns", SUCCEEDED, None),
        ("raises", FAILED, "tests.schedules.conftest.Boom: the disk is full"),
        ("refuses", FAILED, "mainspring.Fail: no such customer"),
        ("takes too long", FAILED, "TimeoutError: it ran for longer than 5 s"),
    ],
)
async def test_F1_a_run_ends_as_its_handler_does(app: Mainspring, how: str, state: State, error: str | None) -> None:
    @app.task(name="work", timeout="5s", max_attempts=1)
    async def work() -> None:
        match how:
            case "raises":
                raise Boom("the disk is full")
            case "refuses":
                raise Fail("no such customer")
            case "takes too long":
                await asyncio.sleep(60)
            case _:
                await asyncio.sleep(2)

    app.schedule(Every(MINUTE), max_runs=1)(work)
    async with app.node():
        await until(61)
        (run,) = await runs(app)
        assert run.is_open == (how in {"returns", "takes too long"})
        await until(70)
        (run,), (view,) = await runs(app), await jobs(app)
    assert not run.is_open
    assert (run.state, run.error) == (state, error)
    assert run.state is view.job.state
    assert run.finished_at == view.job.finished_at


async def test_F1_a_run_stays_open_while_its_job_is_retried_and_ends_with_the_last_attempt(app: Mainspring) -> None:
    @app.schedule(Every(MINUTE), max_runs=1)
    @app.task(name="work", retry=Retry.fixed("10s", max_attempts=3))
    async def work(ctx: Context) -> None:
        raise Boom(f"attempt {ctx.attempt}")

    async with app.node():
        await until(75)
        (run,) = await runs(app)
        assert (run.is_open, run.error) == (True, None)
        await until(85)
        (run,) = await runs(app)
    assert run.state is FAILED
    assert run.error
    assert run.error.endswith("Boom: attempt 3")


async def test_F1_a_run_whose_job_is_cancelled_ends_with_it(app: Mainspring) -> None:
    task, _ = diary_task(app, takes=600)
    async with app.node(concurrency=1):
        await app.schedules.add("minutely", Every(MINUTE), task.call(), max_runs=2)
        await until(125)
        running, waiting = await fired(app)
        for run in (waiting, running):
            await app.job(run.id).cancel()
        await until(135)  # a node hears of it with its next heartbeat
        ended = await fired(app)
    assert [(run.state, run.error) for run in ended] == [(CANCELLED, None)] * 2


async def test_F1_a_run_whose_job_is_deleted_before_its_end_counts_as_cancelled(app: Mainspring) -> None:
    task, _ = diary_task(app)
    async with app.node(queues=["another"]):
        await app.schedules.add("minutely", Every(MINUTE), task.call(), max_runs=1)
        await until(61)
        (run,) = await runs(app)
        await app.job(run.id).delete()
        (run,) = await runs(app)
    assert (run.state, run.finished_at) == (CANCELLED, T0 + 61 * SECOND)


async def test_F1_a_run_whose_job_expires_ends_with_it(app: Mainspring) -> None:
    blocker, _ = diary_task(app, "blocker", takes=120)
    task, diary = diary_task(app, expires="30s")
    async with app.node(concurrency=1):
        await app.schedules.add("minutely", Every(MINUTE), task.call(), max_runs=1)
        await until(59)
        await blocker.enqueue()
        await until(200)
        (run,) = await runs(app)
    assert diary.calls == []
    assert (run.state, run.error) == (FAILED, "expired")


async def test_F1_a_run_whose_last_attempt_is_lost_with_its_node_ends_as_failed(app: Mainspring) -> None:
    task, _ = diary_task(app, takes=600, max_attempts=1)
    async with app:
        await app.schedules.add("minutely", Every(MINUTE), task.call(), max_runs=1)
        async with victim(app) as node:
            await until(61)
            node.kill()
        async with app.node():
            await until(90)
            (run,) = await runs(app)
    assert (run.state, run.error) == (FAILED, "lost")


async def test_F1_a_run_of_a_task_that_nobody_knows_fails_after_the_grace_time(
    app: Mainspring, make_store: MakeStore, virtual_time: VirtualTime
) -> None:
    other = Mainspring(store=make_store(), clock=virtual_time.clock)
    task, _ = diary_task(other, "of-another-program")
    async with other:
        await other.schedules.add("minutely", Every(MINUTE), task.call(), max_runs=1)
    async with app.node(unknown_task_grace="2m", prune_every="10s"):
        await until(61)
        (run,) = await runs(app)
        assert run.is_open
        await until(240)
        (run,) = await runs(app)
    assert (run.state, run.error) == (FAILED, "unknown_task")


@pytest.mark.parametrize("make_store", LASTING, indirect=True)
async def test_F1_a_run_ends_in_the_transaction_of_its_handler(app: Mainspring) -> None:
    @app.schedule(Every(MINUTE), max_runs=1)
    @app.task(name="work")
    async def work(ctx: Context) -> None:
        async with ctx.transaction():
            pass

    async with app.node():
        await until(62)
        (run,), (view,) = await runs(app), await jobs(app)
    assert run.state is view.job.state is SUCCEEDED
    assert run.finished_at


@pytest.mark.parametrize("error", [Boom("\udcff\0 \N{SNOWMAN}"), Boom("x" * 2_000_000), Boom(object())])
async def test_F1_an_error_of_any_shape_can_be_written_to_a_run(app: Mainspring, error: Exception) -> None:
    @app.schedule(Every(MINUTE), max_runs=1)
    @app.task(name="work", max_attempts=1)
    async def work() -> None:
        raise error

    async with app.node():
        await until(65)
        (run,) = await runs(app)
    assert run.state is FAILED
    assert run.error
    assert "Boom" in run.error


# F2 to F4: what is made up for is what was missed, and the limit is one in total.


async def test_F2_slots_that_are_done_or_have_failed_are_not_run_again_and_hold_up_nobody(app: Mainspring) -> None:
    diary = Diary()

    @app.schedule(Every(MINUTE), missed=Missed.all(limit=3, per_tick=3))
    @app.task(name="work", max_attempts=1)
    async def work(ctx: Context) -> None:
        await diary.write(ctx)
        if len(diary.calls) % 2:
            raise Boom

    async with app.node():
        await until(16 * MINUTE + SECOND)  # longer than forge's 15 minutes
    assert diary.slots == [T0 + n * MINUTE for n in range(1, 17)]
    assert [run.state for run in await fired(app)] == [FAILED, SUCCEEDED] * 8


async def test_F3_slots_that_were_decided_before_use_up_nothing_of_the_limit(app: Mainspring) -> None:
    task, diary = diary_task(app, takes=5 * 60)
    app.schedule(Every(MINUTE), missed=Missed.all(limit=3))(task)
    async with app.node():
        await until(3 * MINUTE + SECOND)  # three that have not ended
    await until(8 * MINUTE + 30 * SECOND)
    async with app.node():
        await until(8 * MINUTE + 45 * SECOND)
    assert slots(await fired(app)) == [T0 + n * MINUTE for n in (1, 2, 3, 6, 7, 8)]
    assert await dropped(app) == [(Reason.SUPERSEDED, 2)]
    assert {T0 + n * MINUTE for n in (6, 7, 8)} <= set(diary.slots)


async def test_F4_the_limit_is_for_all_ticks_together(app: Mainspring) -> None:
    task, diary = diary_task(app)
    app.schedule(Every(HOUR), missed=Missed.all(limit=7, per_tick=2))(task)
    async with app.node():
        pass
    await until(20 * HOUR + MINUTE)
    async with app.node():
        await pass_by(2 * MINUTE)
    assert diary.slots == [T0 + n * HOUR for n in range(14, 21)]
    assert diary.times == [72_060.0 + n for n in (0, 0, 1, 1, 2, 2, 3)]
    assert await dropped(app) == [(Reason.SUPERSEDED, 13)]


# F5: a slot waits for whoever decides it, and errors are told.


@pytest.mark.parametrize("verb", ["due", "move"])
async def test_F5_a_slot_is_not_lost_while_the_store_does_not_answer(
    shaky: Mainspring, faulty: FaultyStore, caplog: pytest.LogCaptureFixture, verb: str
) -> None:
    task, diary = diary_task(shaky)
    shaky.schedule(Every(5 * MINUTE), name="often")(task)
    async with shaky.node():
        await until(5 * MINUTE - SECOND / 10)
        faulty.calls.clear()
        faulty.drop(verb, times=30)
        await until(7 * MINUTE)
    assert faulty.calls.count(verb) > 30
    assert diary.slots == [T0 + 5 * MINUTE]
    assert diary.calls[0].lateness > 30 * SECOND, "tried again and again, and ever more slowly"
    assert any("ticker" in record.getMessage() and record.levelno >= logging.WARNING for record in caplog.records)


async def test_F5_a_slot_that_came_up_while_no_node_was_there_is_made_up_for_within_the_grace_time(
    app: Mainspring,
) -> None:
    task, diary = diary_task(app)
    app.schedule(Every(HOUR))(task)
    async with app.node():
        pass
    await until(HOUR + 59 * MINUTE)
    async with app.node():
        await pass_by(SECOND)
    assert diary.slots == [T0 + HOUR]
    assert diary.calls[0].is_catch_up
    assert diary.calls[0].lateness == 59 * MINUTE


# F6: nothing before its creation.


@pytest.mark.parametrize("missed", [Missed.skip(), Missed.latest(), Missed.all()], ids=["skip", "latest", "all"])
async def test_F6_a_schedule_that_is_new_owes_nothing_of_the_past(app: Mainspring, missed: Missed) -> None:
    task, diary = diary_task(app)
    await until(90)
    async with app.node():
        await app.schedules.add("aligned", Every(HOUR, start=T0 - 100 * DAY), task.call(), missed=missed)
        await app.schedules.add("minutely", Every(MINUTE), task.call(), missed=missed)
        await until(100)
    assert await runs(app) == []
    assert diary.calls == []


# F7: who runs for long is not taken for dead.


@pytest.mark.slow
async def test_F7_a_run_that_takes_longer_than_15_minutes_is_left_alone(app: Mainspring) -> None:
    task, diary = diary_task(app, takes=16 * 60)
    async with app.node(), app.node():
        await app.schedules.add("minutely", Every(MINUTE), task.call(), max_runs=1)
        await until(17 * MINUTE + 10 * SECOND)
    assert [(call.slot, call.attempt) for call in diary.calls] == [(T0 + MINUTE, 1)]
    assert [run.state for run in await runs(app)] == [SUCCEEDED]


# F8: what has failed can be run again.


async def test_F8_a_failed_slot_can_be_run_again_and_its_run_says_how_that_went(app: Mainspring) -> None:
    @app.schedule(Every(MINUTE), max_runs=1)
    @app.task(name="work", max_attempts=1)
    async def work(ctx: Context) -> None:
        assert ctx.slot == T0 + MINUTE
        if ctx.attempt == 1:
            raise Boom

    async with app.node():
        await until(62)
        (before,) = await runs(app)
        assert (before.state, before.error) == (FAILED, "tests.schedules.conftest.Boom")
        await app.job(before.id).retry()
        await until(63)
        (after,) = await runs(app)
    assert after.id == before.id
    assert (after.state, after.error) == (SUCCEEDED, None)
    assert after.finished_at == T0 + 62 * SECOND


# F9: safety rests on no leader.


@pytest.mark.parametrize("verb", ["due", "move"])
async def test_F9_nodes_that_decide_the_same_slot_at_the_same_time_make_one_job(
    make_store: MakeStore, virtual_time: VirtualTime, verb: str
) -> None:
    diary = Diary()
    faulty = [FaultyStore(make_store()) for _ in range(3)]
    apps = [Mainspring(store=one.as_store, clock=virtual_time.clock) for one in faulty]
    for app in apps:

        @app.schedule(Every(MINUTE), name="minutely")
        @app.task(name="work")
        async def work(ctx: Context) -> None:
            await diary.write(ctx)

    async with apps[0].node(), apps[1].node(), apps[2].node():
        for n in (1, 2):
            await until(n * 60 - 1)
            for number, one in enumerate(faulty):
                one.delay(verb, 2 + number / 10)  # all have looked before anybody writes
            await until(n * 60 + 5)
        assert diary.slots == slots(await runs(apps[0])) == [T0 + n * MINUTE for n in (1, 2)]
        assert len(await jobs(apps[0])) == 2


# F10: there is a policy for overlap.


@pytest.mark.parametrize(
    ("overlap", "began"),
    [
        ("allow", [60, 120, 180, 240]),
        ("skip", [60, 180]),
        ("queue_one", [60, 150, 240]),
        ("cancel_previous", [60, 120, 180, 240]),
    ],
)
async def test_F10_a_slot_that_comes_up_before_the_run_before_it_has_ended_does_as_it_was_told(
    app: Mainspring, overlap: str, began: list[int]
) -> None:
    task, diary = diary_task(app, takes=90)
    app.schedule(Every(MINUTE), overlap=overlap)(task)  # type: ignore[arg-type]  # one of the words, as mypy cannot see
    async with app.node(grace=0):
        await until(250)
    assert diary.times == pytest.approx(began, abs=2)  # a node hears of a cancel with its next heartbeat
    assert diary.most_at_once == (2 if overlap == "allow" else 1)


# F11: what is not due costs nothing.


@pytest.mark.parametrize("make_store", LASTING, indirect=True)
@pytest.mark.parametrize("idle", [1, 200])
async def test_F11_looking_for_what_is_due_costs_the_same_however_many_schedules_there_are(
    shaky: Mainspring, faulty: FaultyStore, idle: int
) -> None:
    task, _ = diary_task(shaky)
    async with shaky:
        for number in range(idle):
            await shaky.schedules.add(f"idle-{number}", Every(DAY), task.call())
        await shaky.schedules.add("minutely", Every(MINUTE), task.call())
        async with shaky.node(queues=["another"]):
            await until(10)
            faulty.calls.clear()
            await until(310)
    # Every 30 s, and at each of 5 slots, after which the new job rings once more.
    assert faulty.calls.count("due") <= 20
    assert faulty.calls.count("move") == 5
    assert "look" not in faulty.calls
    assert "list_schedules" not in faulty.calls


# F12: how many were missed is told, all of them.


async def test_F12_the_number_of_missed_slots_is_told_whole(app: Mainspring, caplog: pytest.LogCaptureFixture) -> None:
    task, _ = diary_task(app)
    app.schedule(Every(HOUR), name="hourly", missed=Missed.skip())(task)
    async with app.node():
        pass
    await until(3 * DAY + 30 * MINUTE)
    async with app.node() as node:
        await pass_by(SECOND)
        assert node.events.counts["slots_skipped"] == 72
    (run,) = await runs(app)
    assert (run.reason, run.count, run.slot, run.last) == (Reason.SKIPPED, 72, T0 + HOUR, T0 + 3 * DAY)
    assert "schedule hourly: no job for 72 slots from 2030-01-01 01:00:00+00:00 to" in caplog.text


# F13: the end is prompt, and runs do not stay for ever.


async def test_F13_a_ticker_that_sleeps_ends_at_once(app: Mainspring) -> None:
    task, _ = diary_task(app)
    app.schedule(Every(DAY))(task)
    async with app.node() as node:
        await until(10)
        began = now()
        await node.shutdown()
        assert now() - began < 0.1


async def test_F13_runs_are_kept_for_a_while_and_not_for_ever(app: Mainspring) -> None:
    task, _ = diary_task(app)
    app.schedule(Every(MINUTE), keep_runs="5m", until=T0 + 10 * MINUTE)(task)
    async with app.node(prune_every="10s"):
        await until(11 * MINUTE)
        assert slots(await runs(app)) == [T0 + n * MINUTE for n in (6, 7, 8, 9, 10)]
        await until(16 * MINUTE)
        assert await runs(app) == []


# F14: a run says whose it is, and on whose clocks.


async def test_F14_a_run_keeps_its_zone_and_owner(make_store: MakeStore, virtual_time: VirtualTime) -> None:
    app = Mainspring(store=make_store(), clock=virtual_time.clock, owner="billing")
    task, diary = diary_task(app)
    app.schedule(Cron("*/5 * * * *", tz="Asia/Kathmandu"), name="declared")(task)
    async with app.node():
        await app.schedules.add("added", Cron("*/5 * * * *", tz="Asia/Tokyo"), task.call())
        await until(5 * MINUTE + SECOND)
    assert {str(run.schedule): (run.owner, run.zone) for run in await runs(app)} == {
        "declared": ("billing", "Asia/Kathmandu"),
        "added": (None, "Asia/Tokyo"),
    }
    assert {(call.schedule, call.zone) for call in diary.calls} == {
        ("declared", "Asia/Kathmandu"),
        ("added", "Asia/Tokyo"),
    }


# F21: a zone that does not exist is told of where it is written.


@pytest.mark.parametrize("zone", ["Mars/Olympus_Mons", "europe", "", "Europe/Berlin ", "../../etc/passwd"])
def test_F21_an_unknown_zone_is_refused_when_it_is_declared(zone: str) -> None:
    with pytest.raises(ScheduleError) as refused:
        Cron("0 9 * * *", tz=zone)
    assert repr(zone) in str(refused.value)


# F22: slots and the due times of their jobs are those of one clock, the store's.


@pytest.mark.parametrize("skew", [-7 * HOUR, 7 * HOUR], ids=["behind", "ahead"])
async def test_F22_a_node_whose_own_clock_is_wrong_goes_by_the_clock_of_the_store(
    make_store: MakeStore, virtual_time: VirtualTime, skew: "datetime | object"
) -> None:
    wrong = VirtualClock(virtual_time.loop.time)
    wrong.jump(skew)  # type: ignore[arg-type]  # a timedelta
    app = Mainspring(store=make_store(), clock=wrong)
    task, diary = diary_task(app)
    app.schedule(Every(MINUTE))(task)
    async with app.node():
        await until(130)
    assert diary.slots == [T0 + MINUTE, T0 + 2 * MINUTE]
    assert diary.times == pytest.approx([60, 120], abs=0.1)
    for run, view in zip(await runs(app), await jobs(app), strict=True):
        assert run.decided_at == run.slot == view.job.run_at == view.enqueued_at


# U2: a restart changes nothing about when it is due.


async def test_U2_a_daily_schedule_of_a_program_that_restarts_every_twelve_hours_runs_every_day(
    make_store: MakeStore, virtual_time: VirtualTime
) -> None:
    diary = Diary()
    for half_day in range(1, 11):
        app = Mainspring(store=make_store(), clock=virtual_time.clock)

        @app.schedule(Every("24h"), name="daily")
        @app.task(name="work")
        async def work(ctx: Context) -> None:
            await diary.write(ctx)

        async with app.node():
            virtual_time.clock.jump(12 * HOUR - 40 * SECOND)
            await pass_by(41 * SECOND)
            assert len(diary.calls) == half_day // 2
    assert diary.slots == [T0 + n * DAY for n in range(1, 6)]


async def test_U2_the_slots_of_a_declared_interval_stay_where_they_are_over_restarts(
    make_store: MakeStore, virtual_time: VirtualTime
) -> None:
    seen: list[datetime | None] = []
    for start in (0, 25, 100, 190):
        await until(max(start, now()))
        app = Mainspring(store=make_store(), clock=virtual_time.clock)
        task, diary = diary_task(app)
        app.schedule(Every(MINUTE), name="minutely")(task)
        async with app.node():
            await pass_by(60.5 * SECOND)
        seen += diary.slots
    assert seen == [T0 + n * MINUTE for n in (1, 2, 3, 4)]


# U3: what has been done once is not done again.


async def test_U3_a_single_slot_fires_once_whatever_restarts(make_store: MakeStore, virtual_time: VirtualTime) -> None:
    diary = Diary()
    for _ in range(4):
        app = Mainspring(store=make_store(), clock=virtual_time.clock)

        @app.schedule(Manual(), name="by-hand")
        @app.schedule(Once(T0 + MINUTE), name="once")
        @app.task(name="work")
        async def work(ctx: Context) -> None:
            await diary.write(ctx)

        async with app.node():
            await pass_by(90 * SECOND)
        assert (await schedules(app))["once"].is_over
    assert diary.slots == [T0 + MINUTE]


async def test_U3_a_single_slot_that_has_passed_cannot_be_added(app: Mainspring) -> None:
    task, _ = diary_task(app)
    async with app:
        with pytest.raises(ScheduleError, match=r"2029-12-31T23:59:59.* has passed already"):
            await app.schedules.add("once", Once(T0 - SECOND), task.call())
        assert await schedules(app) == {}


# U4: what was taken away stays away.


@pytest.mark.parametrize("how", ["remove", "pause"])
async def test_U4_a_schedule_that_was_removed_or_paused_stays_so_after_a_restart(
    make_store: MakeStore, virtual_time: VirtualTime, how: str
) -> None:
    diary = Diary()
    for life in range(3):
        app = Mainspring(store=make_store(), clock=virtual_time.clock)

        @app.task(name="work")
        async def work(ctx: Context) -> None:
            await diary.write(ctx)

        async with app.node():
            if life == 0:
                await app.schedules.add("minutely", Every(MINUTE), work.call())
                await until(61)
                await getattr(app.schedules, how)("minutely")
            await pass_by(3 * MINUTE)
    assert diary.slots == [T0 + MINUTE]


async def test_U4_a_declared_schedule_that_was_paused_stays_so_after_a_deploy(
    make_store: MakeStore, virtual_time: VirtualTime
) -> None:
    for release, jitter in (("1", "0s"), ("2", "0s"), ("3", "1s")):
        app = Mainspring(store=make_store(), clock=virtual_time.clock, release=release)
        task, diary = diary_task(app)
        app.schedule(Every(MINUTE), name="minutely", jitter=jitter)(task)
        async with app.node():
            if release == "1":
                await app.schedules.pause("minutely", by="a person", reason="maintenance")
            await pass_by(2 * MINUTE)
            paused = (await app.schedules.get("minutely")).paused
            assert paused
            assert (paused.by, paused.reason, paused.at) == ("a person", "maintenance", T0)
        assert diary.calls == []


# U5: a name is one schedule.


async def test_U5_a_schedule_that_many_nodes_declare_fires_once_for_each_slot(
    make_store: MakeStore, virtual_time: VirtualTime
) -> None:
    diary = Diary()
    apps = [Mainspring(store=make_store(), clock=virtual_time.clock) for _ in range(3)]
    for app in apps:

        @app.schedule(Every(20 * SECOND), name="often")
        @app.task(name="work")
        async def work(ctx: Context) -> None:
            await diary.write(ctx)

    async with apps[0].node(), apps[1].node(), apps[2].node():
        await until(45)
        await apps[0].schedules.remove("often")
        await until(90)
    assert diary.slots == [T0 + 20 * SECOND, T0 + 40 * SECOND]


async def test_U5_a_name_cannot_be_added_twice(app: Mainspring) -> None:
    task, _ = diary_task(app)
    async with app:
        await app.schedules.add("minutely", Every(MINUTE), task.call())
        with pytest.raises(NameTaken, match="minutely"):
            await app.schedules.add("minutely", Every(HOUR), task.call())
        assert (await app.schedules.get("minutely")).next_at == T0 + MINUTE


def test_U5_a_name_cannot_be_declared_twice(app: Mainspring) -> None:
    task, _ = diary_task(app)
    app.schedule(Every(MINUTE))(task)
    with pytest.raises(NameTaken, match="work"):
        app.schedule(Every(HOUR))(task)
    app.schedule(Every(HOUR), name="another")(task)


# U10: what is registered and has nothing to do costs nothing.


async def test_U10_a_minute_of_work_costs_the_same_however_many_jobs_are_registered(virtual_time: VirtualTime) -> None:
    """From the slot to the end of the job: looking what is due, finding who does it, running it, writing its end.

    The databases' own part is told by the plans of their statements (tests/stores).
    """
    few, many = [await _calls_of_a_minute(virtual_time, idle) for idle in (10, 1000)]
    assert many < 1.5 * few


async def _calls_of_a_minute(virtual_time: VirtualTime, idle: int) -> int:
    """Count the functions that are called while 5 jobs come up and run, out of so many more."""
    clock, ran = virtual_time.clock, list[str]()
    app = Mainspring(MemoryStore(clock=clock), clock=clock, upkeep=False)
    plugin = Plugin("many", "1")

    async def work(ctx: Context) -> None:
        ran.append(ctx.task)

    for number in range(idle):
        plugin.job(schedule=Every("30d"), name=f"idle-{number}")(work)
    for number in range(5):
        plugin.job(schedule=Every("1m"), name=f"due-{number}")(work)
    app.install(plugin, grant=[BackgroundJobs(), Schedules()])
    counted = 0

    def count(_frame: FrameType, event: str, _arg: object) -> None:
        nonlocal counted
        counted += event in {"call", "c_call"}

    async with app.node():
        await asyncio.sleep(90)
        ran.clear()
        before = sys.getprofile()
        sys.setprofile(count)
        try:
            await asyncio.sleep(60)
        finally:
            sys.setprofile(before)
    assert sorted(ran) == [f"many:due-{number}" for number in range(5)]
    return counted


# U13: fixed rate and fixed delay, zones, jitter, and what to do about what was missed.


async def test_U13_a_fixed_rate_does_not_drift_however_long_its_runs_take(app: Mainspring) -> None:
    task, diary = diary_task(app, takes=17)
    app.schedule(Every(MINUTE))(task)
    async with app.node():
        await until(10 * MINUTE + SECOND)
    assert diary.times == pytest.approx([60.0 * n for n in range(1, 11)], abs=0.01)


async def test_U13_a_fixed_delay_counts_from_the_end(app: Mainspring) -> None:
    task, diary = diary_task(app, takes=17)
    app.schedule(Every(MINUTE, after_end=True))(task)
    async with app.node():
        await until(5 * MINUTE)
        await all_ended(app)
    assert diary.times == pytest.approx([60, 137, 214, 291], abs=0.5)
    for before, after in pairwise(diary.calls):
        assert before.ended
        assert 60 <= after.began - before.ended < 60.3


async def test_U13_cron_goes_by_the_clocks_of_its_zone(app: Mainspring) -> None:
    task, _ = diary_task(app)
    async with app:
        for zone in ("UTC", "Asia/Kolkata", "America/New_York"):
            await app.schedules.add(zone, Cron("30 9 * * *", tz=zone), task.call())
        kept = await schedules(app)
    assert {name: one.next_at for name, one in kept.items()} == {
        "UTC": T0 + 9 * HOUR + 30 * MINUTE,
        "Asia/Kolkata": T0 + 4 * HOUR,
        "America/New_York": T0 + 14 * HOUR + 30 * MINUTE,
    }


# U14: what has happened can be read.


async def test_U14_when_runs_began_how_they_ended_and_what_went_wrong_is_kept(
    app: Mainspring, make_store: MakeStore, virtual_time: VirtualTime
) -> None:
    @app.schedule(Every(MINUTE), max_runs=4)
    @app.task(name="work", max_attempts=1)
    async def work(ctx: Context) -> None:
        await asyncio.sleep(2)
        if ctx.slot != T0 + MINUTE:
            raise Boom(f"at {ctx.slot:%H:%M}")

    async with app.node():
        await until(5 * MINUTE)

    history = await runs(Mainspring(store=make_store(), clock=virtual_time.clock), "work")
    assert [(run.slot, run.state, run.error) for run in history] == [
        (T0 + MINUTE, SUCCEEDED, None),
        (T0 + 2 * MINUTE, FAILED, "tests.schedules.conftest.Boom: at 00:02"),
        (T0 + 3 * MINUTE, FAILED, "tests.schedules.conftest.Boom: at 00:03"),
        (T0 + 4 * MINUTE, FAILED, "tests.schedules.conftest.Boom: at 00:04"),
    ]
    for run in history:
        assert run.slot
        assert run.decided_at == run.slot
        assert run.finished_at
        assert run.finished_at - run.slot == 2 * SECOND


# U15: on demand means on demand.


async def test_U15_a_manual_schedule_fires_when_it_is_asked_to_and_not_before(app: Mainspring) -> None:
    task, diary = diary_task(app)
    app.schedule(Manual(), name="by-hand")(task)
    async with app.node():
        await until(5 * MINUTE)
        assert diary.calls == []
        job = await app.schedules.run("by-hand")
        await job.result("1s")
        await until(10 * MINUTE)
    assert [(call.schedule, call.slot, call.is_catch_up) for call in diary.calls] == [("by-hand", None, False)]


# Q21: one write for the slot and its job; missed slots, retries, priority and zones are as declared.


@pytest.mark.parametrize("fault", ["drop", "lose_answer", "duplicate"])
@pytest.mark.parametrize("verb", ["due", "move"])
async def test_Q21_a_slot_and_its_job_are_written_together_whatever_goes_wrong(
    shaky: Mainspring, faulty: FaultyStore, fault: str, verb: str
) -> None:
    task, diary = diary_task(shaky)
    shaky.schedule(Every(MINUTE), name="minutely")(task)
    async with shaky.node():
        for n in range(1, 6):
            await until(n * MINUTE - SECOND)
            getattr(faulty, fault)(verb, times=n)
            await until(n * MINUTE + 30 * SECOND)
            faulty.heal()
    assert diary.slots == slots(await fired(shaky)) == [T0 + n * MINUTE for n in range(1, 6)]
    assert await dropped(shaky) == []
    assert len(await jobs(shaky)) == 5


async def test_Q21_missed_slots_do_not_collapse_to_one_if_each_of_them_counts(app: Mainspring) -> None:
    task, diary = diary_task(app)
    app.schedule(Every(HOUR), missed=Missed.all(limit=100, per_tick=100))(task)
    async with app.node():
        pass
    await until(7 * HOUR + MINUTE)
    async with app.node():
        await pass_by(SECOND)
    assert sorted(slot for slot in diary.slots if slot) == [T0 + n * HOUR for n in range(1, 8)]


async def test_Q21_the_jobs_of_a_schedule_have_the_options_that_others_of_their_task_have(app: Mainspring) -> None:
    @app.schedule(Every(MINUTE), name="declared", args=[7], kwargs={"width": 200})
    @app.task(name="resize", queue="images", priority="high", retry=Retry.fixed("5s", max_attempts=4), loss_limit=2)
    async def resize(photo: int, width: int = 800) -> str:
        return f"{photo} at {width}"

    async with app.node(queues=["nothing"]):
        call = resize.using(priority=3, queue="urgent", tags=["night"], timeout="9s", max_attempts=2, expires="30s")
        await app.schedules.add("added", Every(MINUTE), call.call(8))
        await until(61)
        views = {view.facts.slot.schedule: view for view in await jobs(app) if view.facts.slot}
    declared, added = views["declared"], views["added"]
    assert resize.definition.arguments.decode(declared.payload) == ((), {"photo": 7, "width": 200})
    job = declared.job
    assert (job.queue, job.priority, job.max_attempts, job.loss_limit) == ("images", 75, 4, 2)
    assert job.backoff == resize.definition.retry.backoff
    assert resize.definition.arguments.decode(added.payload) == ((), {"photo": 8})
    job = added.job
    assert (job.queue, job.priority, job.max_attempts) == ("urgent", 3, 2)
    assert job.expires_at == T0 + 90 * SECOND
    assert added.facts.tags == ("night",)


async def test_Q21_a_job_that_waits_for_nobody_is_the_same_as_one_that_was_enqueued(app: Mainspring) -> None:
    task, _ = diary_task(app)
    async with app:
        enqueued = await task.enqueue()
        await app.schedules.add("by-hand", Manual(), task.call())
        made = await app.schedules.run("by-hand")
        ghost = await Ghost.join(app)
        first, second = await ghost.claim(2)
        views = [await enqueued.refresh(), await made.refresh()]
    assert [first.claim.job.id, second.claim.job.id] == [enqueued.id, made.id]
    assert [one.claim.job.of_schedule for one in (first, second)] == [False, True]
    assert views[0].facts == Facts()
    assert views[0].payload == views[1].payload
    assert views[0].job.cause is views[1].job.cause is None
    assert Cause.EXHAUSTED
