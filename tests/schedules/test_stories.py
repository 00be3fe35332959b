"""Schedules as people live with them: nights without a node, closed lids, wrong clocks, runs that take too long."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from mainspring import Context, Cron, Every, Mainspring, Manual, Missed, Once, Retry, Unique
from mainspring.client.health import plans as health
from mainspring.client.health.finding import Level
from mainspring.core.job import State
from mainspring.core.missed import Reason
from mainspring.core.schedule import Origin
from mainspring.errors import ScheduleError
from mainspring.stores.memory import MemoryStore
from mainspring.task import Task
from mainspring.testing import VirtualTime
from tests.schedules import told
from tests.schedules.conftest import (
    DAY,
    HOUR,
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


@asynccontextmanager
async def away(app: Mainspring, time: timedelta) -> AsyncIterator[None]:
    """Have a node that ends at once, nobody for a while, and a node again for the block."""
    async with app.node():
        pass
    await pass_by(time)
    async with app.node():
        yield


# A node asleep for three days.


async def test_asleep_for_three_days_latest_makes_up_for_all_by_one(app: Mainspring) -> None:
    task, diary = diary_task(app)
    app.schedule(Every(HOUR))(task)
    async with away(app, 3 * DAY + 59 * MINUTE):
        await pass_by(2 * MINUTE)
    assert diary.slots == [T0 + 3 * DAY, T0 + 3 * DAY + HOUR]
    assert [call.is_catch_up for call in diary.calls] == [True, False]
    assert [call.lateness for call in diary.calls] == [59 * MINUTE, timedelta(0)]
    first, *_ = await runs(app)
    assert (first.reason, first.count, first.slot, first.last) == (
        Reason.SUPERSEDED,
        71,
        T0 + HOUR,
        T0 + 3 * DAY - HOUR,
    )


async def test_asleep_for_three_days_latest_makes_none_if_the_newest_is_older_than_the_grace_time(
    app: Mainspring,
) -> None:
    task, diary = diary_task(app)
    app.schedule(Every(DAY))(task)
    async with away(app, 3 * DAY + 61 * MINUTE):
        await pass_by(SECOND)
        assert await dropped(app) == [(Reason.TOO_OLD, 3)]
    assert diary.calls == []
    assert (await schedules(app))["work"].next_at == T0 + 4 * DAY


async def test_asleep_for_three_days_skip_makes_none(app: Mainspring) -> None:
    task, diary = diary_task(app)
    app.schedule(Every(HOUR), missed=Missed.skip())(task)
    async with away(app, 3 * DAY + 59 * MINUTE):
        await pass_by(2 * MINUTE)
    assert diary.slots == [T0 + 3 * DAY + HOUR]
    assert not diary.calls[0].is_catch_up
    assert await dropped(app) == [(Reason.SKIPPED, 72)]


async def test_asleep_for_three_days_all_makes_the_newest_ten_in_two_helpings(app: Mainspring) -> None:
    task, diary = diary_task(app)
    app.schedule(Every(HOUR), missed=Missed.all())(task)
    async with away(app, 3 * DAY + 30 * MINUTE):
        began = now()
        await pass_by(MINUTE)
    assert diary.slots == [T0 + 3 * DAY - n * HOUR for n in range(9, -1, -1)]
    assert {call.is_catch_up for call in diary.calls} == {True}
    assert Counter(round(time - began) for time in diary.times) == {0: 5, 1: 5}
    assert await dropped(app) == [(Reason.SUPERSEDED, 62)]


async def test_asleep_for_three_days_all_makes_none_that_is_older_than_the_grace_time(app: Mainspring) -> None:
    task, diary = diary_task(app)
    app.schedule(Every(HOUR), missed=Missed.all(limit=1000, per_tick=1000, grace="5h"))(task)
    async with away(app, 3 * DAY):
        await pass_by(SECOND)
    assert diary.slots == [T0 + 3 * DAY - n * HOUR for n in range(5, -1, -1)]
    assert await dropped(app) == [(Reason.TOO_OLD, 66)]


async def test_asleep_for_three_days_a_single_slot_is_made_up_for_or_told_of(app: Mainspring) -> None:
    task, diary = diary_task(app)
    app.schedule(Once(T0 + DAY), name="patient", missed=Missed.latest(grace="7d"))(task)
    app.schedule(Once(T0 + DAY), name="strict")(task)
    async with away(app, 3 * DAY):
        await pass_by(SECOND)
    assert [(call.schedule, call.slot, call.lateness) for call in diary.calls] == [("patient", T0 + DAY, 2 * DAY)]
    assert await dropped(app, "strict") == [(Reason.TOO_OLD, 1)]
    assert {one.is_over for one in (await schedules(app)).values()} == {True}


async def test_asleep_for_three_days_a_fixed_delay_owes_one_slot_at_most(app: Mainspring) -> None:
    task, diary = diary_task(app)
    app.schedule(Every(HOUR, after_end=True), name="strict")(task)
    app.schedule(Every(HOUR, after_end=True), name="patient", missed=Missed.latest(grace="7d"))(task)
    async with away(app, 3 * DAY):
        await pass_by(SECOND)
        kept = await schedules(app)
    assert [(call.schedule, call.slot) for call in diary.calls] == [("patient", T0 + HOUR)]
    assert await dropped(app, "strict") == [(Reason.TOO_OLD, 1)]
    assert kept["strict"].next_at == T0 + 3 * DAY + HOUR
    assert kept["patient"].next_at == T0 + 3 * DAY + HOUR


# A laptop whose lid was closed, and clocks that are set.


async def test_a_lid_that_was_closed_for_an_hour(app: Mainspring, virtual_time: VirtualTime) -> None:
    """The process stood still: all its clocks show an hour more, and every timer is over."""
    task, diary = diary_task(app)
    app.schedule(Every(10 * MINUTE), name="latest")(task)
    app.schedule(Every(10 * MINUTE), name="all", missed=Missed.all())(task)
    app.schedule(Every(10 * MINUTE), name="skip", missed=Missed.skip())(task)
    async with app.node() as node:
        await until(15 * MINUTE)
        loop = virtual_time.loop
        loop._move_to(loop.time() + 3600)  # as the kernel does to a process that it wakes
        await asyncio.sleep(40)
        assert node.events.counts["declared_dead"] == 0
        by_name = {name: [call.slot for call in diary.calls if call.schedule == name] for name in ("latest", "all")}
    assert by_name["latest"] == [T0 + n * MINUTE for n in (10, 70)]
    assert by_name["all"] == [T0 + n * MINUTE for n in (10, 20, 30, 40, 50, 60, 70)]
    assert slots(await fired(app, "skip")) == [T0 + 10 * MINUTE]
    assert await dropped(app, "latest") == [(Reason.SUPERSEDED, 5)]
    assert await dropped(app, "skip") == [(Reason.SKIPPED, 6)]
    assert {run.state for run in await fired(app)} == {SUCCEEDED}


async def test_a_clock_that_is_set_back_an_hour_makes_no_slot_twice_and_goes_on_when_it_has_caught_up(
    app: Mainspring, virtual_time: VirtualTime
) -> None:
    task, diary = diary_task(app)
    app.schedule(Every(10 * MINUTE))(task)
    async with app.node():
        virtual_time.clock.jump(35 * MINUTE)
        await until(40)
        assert diary.slots == [T0 + 30 * MINUTE]
        virtual_time.clock.jump(-HOUR)
        await pass_by(MINUTE)
        virtual_time.clock.jump(59 * MINUTE)
        await pass_by(4 * MINUTE)
        assert diary.slots == [T0 + 30 * MINUTE], "not again what has been"
        await pass_by(MINUTE)
        virtual_time.clock.jump(9 * MINUTE)
        await pass_by(MINUTE)
    assert diary.slots == [T0 + n * MINUTE for n in (30, 40, 50)]
    assert await dropped(app) == [(Reason.SUPERSEDED, 2)]


async def test_a_fixed_delay_goes_on_although_the_clock_was_set_back_while_it_ran(
    app: Mainspring, virtual_time: VirtualTime
) -> None:
    task, diary = diary_task(app, takes=30)
    app.schedule(Every(MINUTE, after_end=True))(task)
    async with app.node():
        await until(70)
        virtual_time.clock.jump(-3 * MINUTE)
        await until(8 * MINUTE)
    assert len(diary.calls) >= 3
    assert len(set(diary.slots)) == len(diary.slots)


async def test_a_clock_that_is_set_forward_a_day_applies_the_missed_policies(
    app: Mainspring, virtual_time: VirtualTime
) -> None:
    task, diary = diary_task(app)
    app.schedule(Every(HOUR), name="latest")(task)
    app.schedule(Every(HOUR), name="all", missed=Missed.all(limit=3))(task)
    app.schedule(Every(HOUR), name="skip", missed=Missed.skip())(task)
    async with app.node():
        await until(90)
        virtual_time.clock.jump(DAY)
        await pass_by(MINUTE)
    assert slots(await fired(app, "latest")) == [T0 + DAY]
    assert slots(await fired(app, "all")) == [T0 + DAY - 2 * HOUR, T0 + DAY - HOUR, T0 + DAY]
    assert await dropped(app, "latest") == [(Reason.SUPERSEDED, 23)]
    assert await dropped(app, "all") == [(Reason.SUPERSEDED, 21)]
    assert await dropped(app, "skip") == [(Reason.SKIPPED, 24)]
    assert len(diary.calls) == 4


async def test_a_clock_that_is_set_forward_and_back_again_leaves_no_slot_out_and_makes_none_twice(
    app: Mainspring, virtual_time: VirtualTime
) -> None:
    task, diary = diary_task(app)
    app.schedule(Every(MINUTE), missed=Missed.all(limit=100, per_tick=100))(task)
    async with app.node():
        await until(90)
        virtual_time.clock.jump(5 * MINUTE)
        await until(125)
        virtual_time.clock.jump(-5 * MINUTE)
        await until(10 * MINUTE + SECOND)
    assert sorted(slot for slot in diary.slots if slot) == [T0 + n * MINUTE for n in range(1, 11)]


async def test_schedules_decided_while_the_clock_was_ahead_are_reported_and_go_on_after_a_reset(
    app: Mainspring, virtual_time: VirtualTime, caplog: pytest.LogCaptureFixture
) -> None:
    task, diary = diary_task(app)
    app.schedule(Every(10 * MINUTE), name="often")(task)
    async with app.node():
        await until(MINUTE)
        virtual_time.clock.jump(HOUR)
        await pass_by(MINUTE)
        assert diary.slots == [T0 + HOUR]
        virtual_time.clock.jump(-HOUR)
        await pass_by(MINUTE)
        assert "clock of the store: set back by 1:00:00" in caplog.text
        assert caplog.text.count("schedules often: decided for later than now") == 1
        (found,) = [one async for one in health.plans(app.store, [task.definition.name], anyone=True)]
        assert (found.level, found.code, found.do) == (Level.FAIL, "schedule_ahead", "mainspring schedules reset NAME")

        await app.schedules.reset("often")
        with pytest.raises(ScheduleError, match="not ahead"):
            await app.schedules.reset("often")
        await until(2 * HOUR + MINUTE)
    assert sorted(slot for slot in diary.slots if slot) == [T0 + n * 10 * MINUTE for n in range(1, 13)]


async def test_schedules_ahead_of_the_clock_are_reported_at_the_start_of_a_node_and_once_an_hour(
    app: Mainspring, virtual_time: VirtualTime, caplog: pytest.LogCaptureFixture
) -> None:
    task, _ = diary_task(app)
    app.schedule(Every(MINUTE), name="often")(task)
    virtual_time.clock.jump(DAY)
    async with app.node():
        await pass_by(2 * MINUTE)
    virtual_time.clock.jump(-DAY)
    async with app.node():
        await pass_by(2 * HOUR + MINUTE)
    assert caplog.text.count("schedules often: decided for later than now") == 3
    assert "set back" not in caplog.text


# A year of half past two.


def days(first: str, last: str, time: str) -> Iterator[datetime]:
    """Name an instant, in UTC, on every day from one to another."""
    day, end = datetime.fromisoformat(f"{first}T{time}Z"), datetime.fromisoformat(f"{last}T{time}Z")
    while day <= end:
        yield day
        day += DAY


YEARS = {
    # The 31st of March has no 02:30: the first instant after the gap is 03:00. The 27th of October has two.
    "Europe/Berlin": [
        *days("2030-01-01", "2030-03-30", "01:30"),
        *days("2030-03-31", "2030-03-31", "01:00"),
        *days("2030-04-01", "2030-10-27", "00:30"),
        *days("2030-10-28", "2030-12-31", "01:30"),
    ],
    # The 10th of March has no 02:30. On the 3rd of November it is the hour before that repeats.
    "America/New_York": [
        *days("2030-01-01", "2030-03-09", "07:30"),
        *days("2030-03-10", "2030-03-10", "07:00"),
        *days("2030-03-11", "2030-11-02", "06:30"),
        *days("2030-11-03", "2030-12-31", "07:30"),
    ],
    # Half an hour, in the south: back on the 7th of April, from 02:00 to 01:30, and forward on the 6th of October, from
    # 02:00 to 02:30. There is one 02:30 on each of these days.
    "Australia/Lord_Howe": [
        *days("2030-01-01", "2030-04-05", "15:30"),
        *days("2030-04-06", "2030-10-04", "16:00"),
        *days("2030-10-05", "2030-12-31", "15:30"),
    ],
}


async def year(app: Mainspring, virtual_time: VirtualTime) -> None:
    """Let a year pass for a node, most of it by the wall clock alone: heartbeats need not be counted.

    In memory it is there every day. Other stores take longer for each look: there it makes up for a week at a time.
    """
    async with app.node(queues=["another"], lease="10m", prune_every="1h"):
        step = DAY if isinstance(app.store, MemoryStore) else 7 * DAY
        while virtual_time.clock.now() < T0 + 365 * DAY:
            left = T0 + 365 * DAY - virtual_time.clock.now()
            virtual_time.clock.jump(min(step, left) - 31 * SECOND)
            await pass_by(31 * SECOND)


@pytest.mark.slow
async def test_a_year_of_half_past_two_in_berlin_new_york_and_lord_howe(
    app: Mainspring, virtual_time: VirtualTime
) -> None:
    task, _ = diary_task(app)
    for zone in YEARS:
        app.schedule(Cron("30 2 * * *", tz=zone), name=zone, missed=Missed.all(grace="8d"), keep_runs="400d")(task)
    await year(app, virtual_time)
    for zone, expected in YEARS.items():
        assert slots(await fired(app, zone)) == expected, zone
    assert await dropped(app) == []
    assert Counter(view.facts.slot.zone for view in await jobs(app) if view.facts.slot) == dict.fromkeys(YEARS, 365)


@pytest.mark.slow
async def test_a_year_of_lord_howe_where_half_an_hour_is_missing_or_repeats(
    app: Mainspring, virtual_time: VirtualTime
) -> None:
    task, _ = diary_task(app)
    for name, text in (("missing", "10 2 * * *"), ("repeats", "45 1 * * *")):
        rule = Cron(text, tz="Australia/Lord_Howe")
        app.schedule(rule, name=name, missed=Missed.all(grace="8d"), keep_runs="400d")(task)
    await year(app, virtual_time)
    assert slots(await fired(app, "missing")) == [
        *days("2030-01-01", "2030-04-05", "15:10"),
        *days("2030-04-06", "2030-10-04", "15:40"),
        *days("2030-10-05", "2030-10-05", "15:30"),  # there is no 02:10: at 02:30, right after the gap
        *days("2030-10-06", "2030-12-31", "15:10"),
    ]
    assert slots(await fired(app, "repeats")) == [
        *days("2030-01-01", "2030-04-06", "14:45"),  # on the last of them 01:45 comes twice, and the first counts
        *days("2030-04-07", "2030-10-05", "15:15"),
        *days("2030-10-06", "2030-12-31", "14:45"),
    ]


async def test_a_schedule_that_follows_the_wall_clock_skips_the_gap_and_repeats_with_the_hour(
    app: Mainspring, virtual_time: VirtualTime
) -> None:
    task, _ = diary_task(app)
    app.schedule(Cron("*/30 * * * *", tz="Europe/Berlin"), missed=Missed.all(limit=100), keep_runs="400d")(task)
    async with app.node(queues=["another"]):
        for start in ("2030-03-31T00:00:10Z", "2030-10-27T00:00:10Z"):
            await app.schedules.pause("work")
            virtual_time.clock.jump(datetime.fromisoformat(start) - virtual_time.clock.now())
            await app.schedules.resume("work")
            for _ in range(5):
                virtual_time.clock.jump(30 * MINUTE - 31 * SECOND)
                await pass_by(31 * SECOND)
    assert [slot for slot in slots(await fired(app)) if slot and slot.month in {3, 10}] == [
        *[datetime.fromisoformat(f"2030-03-31T{time}Z") for time in ("00:30", "01:00", "01:30", "02:00", "02:30")],
        *[datetime.fromisoformat(f"2030-10-27T{time}Z") for time in ("00:30", "01:00", "01:30", "02:00", "02:30")],
    ]


async def test_cron_with_seconds_fires_at_the_second(app: Mainspring) -> None:
    task, diary = diary_task(app)
    app.schedule(Cron("*/20 * * * * *"))(task)
    async with app.node():
        await until(65)
    assert diary.times == pytest.approx([20, 40, 60], abs=0.01)


# What a handler is told.


@pytest.mark.parametrize("kind", ["coroutine", "thread", pytest.param("process", marks=pytest.mark.slow)])
async def test_a_handler_is_told_of_its_slot_wherever_it_runs(
    app: Mainspring, virtual_time: VirtualTime, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.syspath_prepend(Path(__file__).parents[2])  # where a process slot looks for the function
    task: Task[[], list[str]]
    match kind:
        case "coroutine":
            task = app.task(name="tell")(told.tell_async)
        case "thread":
            task = app.task(name="tell")(told.tell)
        case _:
            task = app.task(name="tell", executor="process")(told.tell)
    app.schedule(Cron("*/10 * * * *", tz="Asia/Tokyo"), name="often")(task)
    async with app.node():
        virtual_time.clock.jump(12 * MINUTE)
        await until(40)
        await app.schedules.run("often")
        enqueued = await task.enqueue()
        (made,) = await app.schedules.backfill("often", T0, T0)
        await all_ended(app)
        by_slot, by_hand, *_ = [await app.job(run.id, task).result() for run in await runs(app)]
        assert by_slot[:2] == ["often", "00:10"]
        assert 120 <= int(by_slot[2]) <= 151
        assert by_slot[3:] == ["Asia/Tokyo", "True"]
        assert by_hand == ["often", "none", "0", "Asia/Tokyo", "False"]
        assert await enqueued.result() == ["None", "none", "0", "UTC", "False"]
        filled = await made.result()
        assert (filled[1], filled[4]) == ("00:00", "True")


async def test_lateness_grows_with_each_attempt_and_what_is_in_time_is_no_catch_up(app: Mainspring) -> None:
    diary = Diary()

    @app.schedule(Every(MINUTE), max_runs=1)
    @app.task(name="work", retry=Retry.fixed("90s", max_attempts=2))
    async def work(ctx: Context) -> None:
        await diary.write(ctx)
        if ctx.attempt == 1:
            raise Boom

    async with app.node():
        await until(200)
    assert [(call.attempt, call.slot, call.is_catch_up) for call in diary.calls] == [
        (1, T0 + MINUTE, False),
        (2, T0 + MINUTE, False),
    ]
    assert diary.calls[0].lateness == timedelta(0)
    assert diary.calls[1].lateness >= 90 * SECOND


# Overlap.


async def test_skip_leaves_out_what_comes_up_while_a_run_is_open(app: Mainspring) -> None:
    task, diary = diary_task(app, takes=150)
    app.schedule(Every(MINUTE), overlap="skip")(task)
    async with app.node(grace=0):
        await until(6 * MINUTE + SECOND)
    assert diary.slots == [T0 + n * MINUTE for n in (1, 4)]
    assert diary.most_at_once == 1
    assert await dropped(app) == [(Reason.OVERLAPPED, 2), (Reason.OVERLAPPED, 2)]


async def test_skip_counts_a_job_that_waits_or_is_to_be_retried_as_open(app: Mainspring) -> None:
    @app.schedule(Every(MINUTE), overlap="skip", max_runs=2)
    @app.task(name="work", retry=Retry.fixed("150s", max_attempts=2))
    async def work(ctx: Context) -> None:
        if ctx.attempt == 1:
            raise Boom

    async with app.node(queues=["another"]):
        await until(2 * MINUTE + SECOND)
        assert await dropped(app) == [(Reason.OVERLAPPED, 1)], "it waits for somebody to run it"
    async with app.node():
        await until(4 * MINUTE + SECOND)
        assert await dropped(app) == [(Reason.OVERLAPPED, 3)], "it waits for its second attempt"
        await until(5 * MINUTE + SECOND)
    assert slots(await fired(app)) == [T0 + MINUTE, T0 + 5 * MINUTE]


async def test_queue_one_holds_the_newest_and_runs_it_right_after_the_end(app: Mainspring) -> None:
    task, diary = diary_task(app, takes=200)
    app.schedule(Every(MINUTE), overlap="queue_one", until=T0 + 5 * MINUTE)(task)
    async with app.node():
        await until(4 * MINUTE + 10 * SECOND)
        kept = (await schedules(app))["work"]
        assert kept.held
        assert kept.held.at == T0 + 4 * MINUTE
        await until(15 * MINUTE)
    assert diary.slots == [T0 + n * MINUTE for n in (1, 4, 5)]
    assert diary.times == pytest.approx([60, 260, 460], abs=1)
    assert diary.most_at_once == 1
    assert await dropped(app) == [(Reason.SUPERSEDED, 2)]


async def test_a_held_slot_waits_for_the_end_of_retries_and_outlives_its_node(app: Mainspring) -> None:
    diary = Diary()

    @app.schedule(Every(MINUTE), overlap="queue_one", until=T0 + 2 * MINUTE)
    @app.task(name="work", max_attempts=3)
    async def work(ctx: Context) -> None:
        await diary.write(ctx, takes=40)
        if ctx.slot == T0 + MINUTE and ctx.attempt < 3:
            raise Boom

    async with app.node():
        await until(2 * MINUTE + SECOND)
    async with app.node():
        await until(6 * MINUTE)
    assert [(call.slot, call.attempt) for call in diary.calls][-1] == (T0 + 2 * MINUTE, 1)
    assert diary.most_at_once == 1
    assert [run.state for run in await fired(app)] == [SUCCEEDED, SUCCEEDED]


async def test_cancel_previous_starts_when_a_body_that_takes_its_time_has_stopped(app: Mainspring) -> None:
    seconds = 3
    diary = Diary()

    @app.schedule(Every(MINUTE), overlap="cancel_previous", until=T0 + 3 * MINUTE)
    @app.task(name="work")
    async def work(ctx: Context) -> None:
        await diary.write(ctx, takes=600, stopping=seconds)

    async with app.node():
        await until(3 * MINUTE + 20 * SECOND)
        ended = await fired(app)
        await app.job(ended[-1].id).cancel()
        await all_ended(app)
    assert diary.slots == [T0 + n * MINUTE for n in (1, 2, 3)]
    assert diary.most_at_once == 1, "the new one has to wait until the old body has really stopped"
    assert [run.state for run in ended] == [CANCELLED, CANCELLED, None]
    for n, call in enumerate(diary.calls[1:], start=2):
        assert seconds <= call.began - n * 60 < seconds + 5


@pytest.mark.parametrize("stop_grace", ["10m", "5s"], ids=["waited for", "abandoned"])
async def test_cancel_previous_makes_the_newest_of_those_that_came_up_while_a_body_would_not_stop(
    app: Mainspring, stop_grace: str
) -> None:
    diary = Diary()

    @app.schedule(Every(MINUTE), overlap="cancel_previous", until=T0 + 4 * MINUTE)
    @app.task(name="work")
    async def work(ctx: Context) -> None:
        await diary.write(ctx, takes=600 if ctx.slot == T0 + MINUTE else 1, stopping=150)

    async with app.node(stop_grace=stop_grace):
        await until(8 * MINUTE)
    assert diary.slots == [T0 + n * MINUTE for n in (1, 4)]
    assert diary.most_at_once == 1
    assert await dropped(app) == [(Reason.SUPERSEDED, 2)]


async def test_overlap_stays_taken_by_a_body_that_timed_out_and_was_abandoned(app: Mainspring) -> None:
    diary = Diary()

    @app.schedule(Every(MINUTE), overlap="skip", until=T0 + 4 * MINUTE)
    @app.task(name="work", max_attempts=1, timeout="10s")
    async def work(ctx: Context) -> None:
        await diary.write(ctx, takes=600 if ctx.slot == T0 + MINUTE else 1, stopping=130)

    async with app.node(stop_grace="5s"):
        await until(2 * MINUTE)
        (run,) = await fired(app)
        assert (run.state, run.lingers) == (FAILED, True)
        await until(8 * MINUTE)
    assert diary.slots == [T0 + n * MINUTE for n in (1, 4)]
    assert diary.most_at_once == 1
    assert await dropped(app) == [(Reason.OVERLAPPED, 2)]


async def test_cancel_previous_that_ends_by_itself_just_then_counts_as_what_it_was(app: Mainspring) -> None:
    task, diary = diary_task(app, takes=60)
    app.schedule(Every(MINUTE), overlap="cancel_previous", max_runs=3)(task)
    async with app.node():
        await until(5 * MINUTE)
    assert len(diary.calls) == 3
    assert diary.most_at_once == 1
    assert {run.state for run in await fired(app)} <= {SUCCEEDED, CANCELLED}


async def test_overlap_counts_a_run_that_was_asked_for_by_hand(app: Mainspring) -> None:
    task, diary = diary_task(app, takes=80)
    app.schedule(Every(MINUTE), name="minutely", overlap="skip")(task)
    async with app.node(grace=0):
        await until(30)
        await app.schedules.run("minutely")
        await until(125)
    assert diary.slots == [None, T0 + 2 * MINUTE]
    assert await dropped(app) == [(Reason.OVERLAPPED, 1)]


# Fixed delay.


@pytest.mark.parametrize("end", ["returns", "fails", "is cancelled", "is lost"])
async def test_a_fixed_delay_goes_on_however_a_run_ends(app: Mainspring, end: str) -> None:
    diary = Diary()

    @app.schedule(Every(MINUTE, after_end=True), name="often")
    @app.task(name="work", max_attempts=1)
    async def work(ctx: Context) -> None:
        await diary.write(ctx, takes=20)
        if end == "fails":
            raise Boom

    async with app.node():
        await until(65)
        (run,) = await fired(app)
        if end == "is cancelled":
            await app.job(run.id).cancel()
        if end == "is lost":
            (view,) = await app.store.nodes()
            await app.store.declare_dead(view.node.id, view.term)
        await until(4 * MINUTE)
        first, second, *_ = await fired(app)
    assert first.state is {"returns": SUCCEEDED, "is cancelled": CANCELLED}.get(end, FAILED)
    assert first.finished_at
    assert second.slot
    assert second.slot - first.finished_at == MINUTE


async def test_a_fixed_delay_waits_for_a_run_that_is_still_open(app: Mainspring) -> None:
    task, diary = diary_task(app, takes=300)
    app.schedule(Every(MINUTE, after_end=True))(task)
    async with app.node(grace=0):
        await until(6 * MINUTE - SECOND)
        kept = (await schedules(app))["work"]
        assert (kept.waits, kept.next_at, kept.next_slot) == (True, None, None)
        assert len(diary.calls) == 1
        await until(7 * MINUTE + SECOND)
        assert len(diary.calls) == 2


# Jitter.


async def test_jitter_spreads_starts_and_never_beyond_its_bound(app: Mainspring) -> None:
    task, diary = diary_task(app)
    async with app.node():
        for number in range(40):
            await app.schedules.add(f"minutely-{number}", Every(MINUTE), task.call(), jitter="30s", max_runs=2)
        await until(2 * MINUTE + 31 * SECOND)
    assert len(diary.calls) == 80
    delays = [call.lateness for call in diary.calls]
    assert min(delays) >= timedelta(0)
    assert max(delays) <= 30.3 * SECOND
    assert len({round(delay / SECOND) for delay in delays}) > 15, "spread over the half minute"
    assert max(Counter(int(delay / SECOND) // 5 for delay in delays).values()) < 30
    by_name: dict[str | None, set[timedelta]] = {}
    for call in diary.calls:
        by_name.setdefault(call.schedule, set()).add(call.lateness)
    assert sum(len(delays) == 2 for delays in by_name.values()) > 35, "not the same one every time"


async def test_jitter_moves_the_start_and_not_the_slot(app: Mainspring) -> None:
    task, diary = diary_task(app)
    app.schedule(Every(MINUTE), jitter="20s")(task)
    async with app.node():
        await until(5 * MINUTE + 21 * SECOND)
        views = await jobs(app)
    assert diary.slots == [T0 + n * MINUTE for n in range(1, 6)]
    for run, view in zip(await fired(app), views, strict=True):
        assert run.slot
        assert run.slot == run.decided_at
        assert run.slot <= view.job.run_at <= run.slot + 20 * SECOND


async def test_what_is_made_up_for_and_what_is_asked_for_is_not_put_off(app: Mainspring) -> None:
    task, diary = diary_task(app)
    app.schedule(Every(HOUR, start=T0 - DAY), name="hourly", jitter="30m")(task)
    async with away(app, HOUR + 30 * MINUTE):
        await app.schedules.run("hourly")
        await app.schedules.backfill("hourly", T0 - HOUR, T0)
        await pass_by(SECOND)
    assert Counter(diary.slots) == {T0 + HOUR: 1, None: 1, T0: 1, T0 - HOUR: 1}


# Ends.


async def test_no_slot_after_the_end_date_and_the_last_is_in_it(app: Mainspring) -> None:
    task, diary = diary_task(app)
    app.schedule(Every(MINUTE), until=T0 + 3 * MINUTE)(task)
    async with app.node():
        await until(6 * MINUTE)
    assert diary.slots == [T0 + n * MINUTE for n in (1, 2, 3)]
    kept = (await schedules(app))["work"]
    assert kept.is_over
    assert kept.next_slot is None


async def test_an_end_date_that_passed_while_nobody_was_there_leaves_no_slot_beyond_it(app: Mainspring) -> None:
    task, diary = diary_task(app)
    app.schedule(Every(HOUR), until=T0 + 5 * HOUR, missed=Missed.all(limit=100))(task)
    async with away(app, 12 * HOUR):
        await pass_by(10 * SECOND)
    assert diary.slots == [T0 + n * HOUR for n in range(1, 6)]


async def test_an_end_date_may_be_on_any_clock(app: Mainspring) -> None:
    task, _ = diary_task(app)
    end = datetime(2030, 1, 1, 1, 2, tzinfo=datetime.fromisoformat("2030-01-01T01:00+01:00").tzinfo)
    app.schedule(Every(MINUTE), until=end)(task)
    async with app.node():
        await until(5 * MINUTE)
    assert slots(await fired(app)) == [T0 + MINUTE, T0 + 2 * MINUTE]
    until_ = (await schedules(app))["work"].plan.until
    assert until_ == end
    assert until_.tzinfo is UTC


async def test_a_limit_of_runs_counts_slots_that_made_a_job_and_nothing_else(app: Mainspring) -> None:
    task, diary = diary_task(app, takes=80)
    app.schedule(Every(MINUTE), name="minutely", max_runs=3, overlap="skip")(task)
    async with app.node():
        await until(30)
        await app.schedules.run("minutely")  # overlaps with the first slot
        await until(8 * MINUTE)
    assert diary.slots == [None, *[T0 + n * MINUTE for n in (2, 4, 6)]]
    kept = (await schedules(app))["minutely"]
    assert (kept.runs, kept.is_over) == (3, True)


async def test_a_limit_of_runs_holds_over_all_nodes_and_restarts(
    make_store: MakeStore, virtual_time: VirtualTime
) -> None:
    diary = Diary()

    def program() -> Mainspring:
        app = Mainspring(store=make_store(), clock=virtual_time.clock)

        @app.schedule(Every(10 * SECOND), name="often", max_runs=5, missed=Missed.all())
        @app.task(name="work")
        async def work(ctx: Context) -> None:
            await diary.write(ctx)

        return app

    for _ in range(3):
        async with program().node(), program().node():
            await pass_by(25 * SECOND)
    assert len(diary.calls) == 5


# By hand.


async def test_run_now_makes_a_job_at_once_and_changes_nothing_else(app: Mainspring) -> None:
    @app.schedule(Every(HOUR), name="hourly", args=[20])
    @app.task(name="double")
    async def double(ctx: Context, number: int) -> int:
        assert (ctx.schedule, ctx.slot, ctx.is_catch_up) == ("hourly", None, False)
        return 2 * number

    async with app.node():
        await until(10)
        before = await app.schedules.get("hourly")
        job = await app.schedules.run("hourly")
        assert await job.result("1s") == 40
        after = await app.schedules.get("hourly")
        again = await app.schedules.run("hourly")
    assert again.id != job.id
    assert (after.cursor, after.next_at, after.runs) == (before.cursor, before.next_at, before.runs)
    first, _ = await runs(app)
    assert (first.id, first.slot, first.origin, first.state) == (job.id, None, Origin.MANUAL, SUCCEEDED)


@pytest.mark.parametrize("state", ["paused", "over", "manual"])
async def test_run_now_works_whatever_the_schedule_does(app: Mainspring, state: str) -> None:
    task, diary = diary_task(app)
    rule = Manual() if state == "manual" else Every(MINUTE)
    async with app.node():
        await app.schedules.add("x", rule, task.call())
        if state == "over":
            await app.schedules.change("x", until=T0)
        if state == "paused":
            await app.schedules.pause("x")
        await (await app.schedules.run("x")).result("1s")
        await until(90)
    assert diary.slots == [None]


async def test_a_backfill_makes_the_jobs_of_slots_that_have_none_and_twice_makes_nothing_new(app: Mainspring) -> None:
    task, diary = diary_task(app)
    app.schedule(Every(HOUR, start=T0 - DAY), name="hourly", missed=Missed.skip())(task)
    async with away(app, 7 * HOUR - MINUTE):
        await pass_by(2 * MINUTE)  # one that is made as usual
        made = await app.schedules.backfill("hourly", T0 - HOUR, T0 + 7 * HOUR)
        assert await app.schedules.backfill("hourly", T0 - HOUR, T0 + 7 * HOUR) == ()
        await all_ended(app)
        assert [await job.state() for job in made] == [SUCCEEDED] * len(made)
    assert len(made) == 8
    assert sorted(slot for slot in diary.slots if slot) == [T0 + n * HOUR for n in range(-1, 8)]
    filled = [run for run in await fired(app) if run.origin is Origin.BACKFILL]
    assert slots(filled) == [T0 + n * HOUR for n in range(-1, 7)]
    assert {run.is_catch_up for run in filled} == {True}
    assert [run.id for run in filled] == [job.id for job in made]
    kept = (await schedules(app))["hourly"]
    assert (kept.runs, kept.cursor) == (1, T0 + 7 * HOUR)


async def test_a_backfill_from_many_places_at_once_makes_each_slot_once(
    app: Mainspring, make_store: MakeStore, virtual_time: VirtualTime
) -> None:
    task, _ = diary_task(app)
    others = [Mainspring(store=make_store(), clock=virtual_time.clock) for _ in range(5)]
    async with app.node(queues=["another"]):
        await app.schedules.add("minutely", Every(MINUTE, start=T0 - DAY), task.call())
        await until(130)
        made = await asyncio.gather(*(other.schedules.backfill("minutely", T0 - HOUR, T0 + MINUTE) for other in others))
    for other in others:
        await other.close()
    assert sorted(len(handles) for handles in made) == [0, 0, 0, 0, 61]
    assert slots(await fired(app)) == [T0 + n * MINUTE for n in range(-60, 3)]
    assert len(await jobs(app)) == 63


async def test_a_backfill_finds_the_slots_of_an_earlier_rule(app: Mainspring) -> None:
    """There were far more of them in the same time than a page of runs has."""
    task, _ = diary_task(app)
    async with app:
        rule = Every(SECOND, start=T0)
        await app.schedules.add("often", rule, task.call(), missed=Missed.all(limit=5000, per_tick=5000))
        await pass_by(1500.5 * SECOND)
        await app.schedules.change("often", Every(MINUTE, start=T0))
        assert len(await fired(app)) == 1500
        assert await app.schedules.backfill("often", T0 + SECOND, T0 + 1500 * SECOND) == ()


@pytest.mark.parametrize(
    ("start", "end", "problem"),
    [
        (T0, T0 + 2 * DAY, "has not come yet"),
        (T0 - 40 * DAY, T0 - 39 * DAY, "too long ago"),
        (T0 - 20 * DAY, T0, "more than 1000 slots"),
    ],
)
async def test_a_backfill_that_cannot_be_is_refused_and_makes_nothing(
    app: Mainspring, start: datetime, end: datetime, problem: str
) -> None:
    task, _ = diary_task(app)
    async with app.node():
        await app.schedules.add("often", Every(20 * MINUTE, start=T0 - 100 * DAY), task.call())
        await until(10)
        with pytest.raises(ScheduleError, match=problem):
            await app.schedules.backfill("often", start, end)
    assert await runs(app) == []


async def test_a_backfill_does_not_make_again_what_was_forgotten_when_runs_are_now_kept_for_longer(
    app: Mainspring,
) -> None:
    task, diary = diary_task(app)
    async with app.node(prune_every="1s"):
        await app.schedules.add("minutely", Every(MINUTE), task.call(), keep_runs="2m")
        await until(6 * MINUTE + 5 * SECOND)  # the pruner takes its time, half as long again at most
        await app.schedules.change("minutely", keep_runs="30d")
        before = len(diary.calls)
        assert slots(await runs(app))[0] == T0 + 5 * MINUTE
        with pytest.raises(ScheduleError, match="too long ago"):
            await app.schedules.backfill("minutely", T0 + MINUTE, T0 + 6 * MINUTE)
        await pass_by(SECOND)
    assert len(diary.calls) == before


@pytest.mark.parametrize("declared", [False, True])
async def test_a_backfill_does_not_make_again_what_another_of_its_name_may_have_made(
    app: Mainspring, declared: bool
) -> None:
    task, diary = diary_task(app)
    async with app.node(prune_every="1s"):
        await app.schedules.add("minutely", Every(MINUTE, start=T0), task.call(), keep_runs="2m")
        await until(6 * MINUTE + 5 * SECOND)
        await app.schedules.remove("minutely")
        if declared:
            app.schedule(Every(MINUTE, start=T0), name="minutely")(task)
            await pass_by(20 * SECOND)  # the node declares it by and by
        else:
            await app.schedules.add("minutely", Every(MINUTE, start=T0), task.call())
        with pytest.raises(ScheduleError, match="too long ago"):
            await app.schedules.backfill("minutely", T0 + MINUTE, T0 + 6 * MINUTE)
        await until(8 * MINUTE + SECOND)
        assert await app.schedules.backfill("minutely", T0 + 7 * MINUTE, T0 + 8 * MINUTE) == ()
    assert sorted(slot for slot in diary.slots if slot) == [T0 + n * MINUTE for n in range(1, 9)]


# Pauses.


async def test_an_every_second_schedule_that_was_paused_for_a_day_leaves_one_run_that_counts_86_400(
    app: Mainspring, virtual_time: VirtualTime
) -> None:
    task, diary = diary_task(app)
    async with app.node():
        await app.schedules.add("often", Every(SECOND), task.call())
        await until(5.5)
        await app.schedules.pause("often", by="a person", reason="maintenance")
        await until(10.5)
        virtual_time.clock.jump(DAY - 5 * SECOND)
        await app.schedules.resume("often")
        await until(13.7)
        history = await runs(app)
    assert [(run.reason, run.count) for run in history if run.reason] == [(Reason.PAUSED, 86_400)]
    (paused,) = [run for run in history if run.reason]
    assert (paused.slot, paused.last) == (T0 + 6 * SECOND, T0 + DAY + 5 * SECOND)
    assert slots(run for run in history if run.job) == [
        *[T0 + n * SECOND for n in range(1, 6)],
        *[T0 + DAY + n * SECOND for n in (6, 7, 8)],
    ]
    assert len(diary.calls) == 8


async def test_what_was_made_before_a_pause_goes_on_and_a_held_slot_makes_no_job_after_it(app: Mainspring) -> None:
    task, diary = diary_task(app, takes=100)
    app.schedule(Every(MINUTE), name="minutely", overlap="queue_one", until=T0 + 2 * MINUTE)(task)
    async with app.node():
        await until(130)
        await app.schedules.pause("minutely")
        await until(200)
        assert [run.state for run in await fired(app)] == [SUCCEEDED]
        await app.schedules.resume("minutely")
        await until(320)
    assert diary.slots == [T0 + MINUTE]
    assert await dropped(app) == [(Reason.PAUSED, 1)]


# Changes.


async def test_a_change_of_rule_decides_what_is_owed_under_the_old_rule_and_begins_then(app: Mainspring) -> None:
    task, _ = diary_task(app)
    async with app:
        await app.schedules.add("x", Every(HOUR), task.call(), missed=Missed.all(limit=12, per_tick=5))
        await until(9 * HOUR + MINUTE)
        changed = await app.schedules.change("x", Every(DAY))
        assert slots(await fired(app)) == [T0 + n * HOUR for n in range(1, 10)]
    assert (changed.cursor, changed.next_at) == (T0 + 9 * HOUR + MINUTE, T0 + DAY + 9 * HOUR + MINUTE)
    assert await dropped(app) == []


async def test_a_change_of_rule_tells_of_owed_slots_that_make_no_job(app: Mainspring) -> None:
    task, _ = diary_task(app)
    async with app:
        await app.schedules.add("x", Every(HOUR), task.call(), missed=Missed.skip())
        await until(9 * HOUR + 30 * MINUTE)
        await app.schedules.change("x", Every(DAY))
    assert await dropped(app) == [(Reason.SKIPPED, 9)]


async def test_a_change_of_anything_else_leaves_the_slots_where_they_are(app: Mainspring) -> None:
    @app.task(name="say")
    async def say(word: str) -> None:
        """Do nothing."""

    async with app:
        await app.schedules.add("x", Every(HOUR), say.call("one"), missed=Missed.skip(), description="words")
        await until(25 * MINUTE)
        changed = await app.schedules.change("x", None, say.using(priority=7).call("two"), jitter="5m")
    assert changed.next_at == T0 + HOUR
    assert (changed.plan.missed, changed.plan.description, changed.plan.jitter) == (Missed.skip(), "words", 5 * MINUTE)
    assert changed.plan.template.priority == 7
    assert b"two" in changed.plan.template.payload


# Runs, and their jobs.


async def test_a_run_whose_job_fails_and_is_retried_by_an_operator_says_how_it_went(app: Mainspring) -> None:
    @app.schedule(Every(MINUTE), max_runs=1, overlap="skip")
    @app.task(name="work", max_attempts=1)
    async def work(ctx: Context) -> None:
        await asyncio.sleep(10)
        if ctx.attempt == 1:
            raise Boom("the disk is full")

    async with app.node():
        await until(75)
        (failed,) = await runs(app)
        assert (failed.state, failed.error) == (FAILED, "tests.schedules.conftest.Boom: the disk is full")
        await app.job(failed.id).retry()
        await until(80)
        (again,) = await runs(app)
        assert (again.is_open, again.state, again.error, again.finished_at) == (True, None, None, None)
        await until(95)
        (ended,) = await runs(app)
    assert (ended.state, ended.error, ended.finished_at) == (SUCCEEDED, None, T0 + 85 * SECOND)


async def test_runs_are_kept_as_long_as_their_schedule_says_and_open_ones_longer(app: Mainspring) -> None:
    task, _ = diary_task(app, takes=240)
    quick, _ = diary_task(app, "quick")
    async with app.node(prune_every="5s"):
        await app.schedules.add("short", Every(MINUTE), quick.call(), max_runs=2, keep_runs="1m")
        await app.schedules.add("long", Every(MINUTE), quick.call(), max_runs=2)
        await app.schedules.add("open", Every(MINUTE), task.call(), max_runs=1, keep_runs="1m")
        await until(4 * MINUTE)
        assert Counter(str(run.schedule) for run in await runs(app)) == {"long": 2, "open": 1}
        await until(5 * MINUTE + 20 * SECOND)
        assert Counter(str(run.schedule) for run in await runs(app)) == {"long": 2}
        await app.schedules.remove("long")
        assert len(await runs(app, "long")) == 2


async def test_the_slot_of_a_unique_task_whose_key_is_taken_makes_no_job_and_says_so(app: Mainspring) -> None:
    task, diary = diary_task(app, takes=90, unique=Unique())
    app.schedule(Every(MINUTE), name="minutely")(task)
    async with app.node(grace=0):
        await until(50)
        await task.enqueue()
        await until(3 * MINUTE + SECOND)
        history = await runs(app)
    assert diary.slots == [None, T0 + 3 * MINUTE]
    assert [(run.slot, run.reason) for run in history] == [
        (T0 + MINUTE, Reason.TAKEN),
        (T0 + 2 * MINUTE, Reason.TAKEN),
        (T0 + 3 * MINUTE, None),
    ]
    assert [run.is_open for run in history] == [False, False, True]


@pytest.mark.parametrize("on_conflict", ["return", "raise", "replace"])
async def test_a_unique_task_in_whatever_way_hinders_neither_its_schedule_nor_others(
    app: Mainspring,
    on_conflict: Any,  # noqa: ANN401 - one of the words, as mypy cannot see
) -> None:
    task, _ = diary_task(app, unique=Unique(on_conflict=on_conflict))
    other, _ = diary_task(app, "other")
    app.schedule(Every(MINUTE), name="unique")(task)
    app.schedule(Every(MINUTE), name="other")(other)
    async with app.node(queues=["another"]):
        await until(3 * MINUTE + SECOND)
        history = await runs(app, "unique")
        assert len(await fired(app, "other")) == 3
    if on_conflict == "replace":
        assert [(run.reason, run.state) for run in history] == [(None, CANCELLED), (None, CANCELLED), (None, None)]
    else:
        assert [run.reason for run in history] == [None, Reason.TAKEN, Reason.TAKEN]


async def test_a_fixed_delay_of_a_unique_task_goes_on_after_a_slot_that_was_taken(app: Mainspring) -> None:
    task, diary = diary_task(app, takes=100, unique=Unique())
    app.schedule(Every(MINUTE, after_end=True), name="often")(task)
    async with app.node(grace=0):
        await until(50)
        await task.enqueue()
        await until(4 * MINUTE + SECOND)
        history = await runs(app)
    assert [(run.slot, run.reason) for run in history] == [
        (T0 + MINUTE, Reason.TAKEN),
        (T0 + 2 * MINUTE, Reason.TAKEN),
        (T0 + 3 * MINUTE, None),
    ]
    assert diary.slots == [None, T0 + 3 * MINUTE]


async def test_run_now_of_a_unique_task_whose_key_is_taken_says_so(app: Mainspring) -> None:
    task, _ = diary_task(app, unique=Unique())
    async with app:
        await app.schedules.add("by-hand", Manual(), task.call())
        await task.enqueue()
        with pytest.raises(ScheduleError, match="unique key"):
            await app.schedules.run("by-hand")
    assert [run.reason for run in await runs(app)] == [Reason.TAKEN]


async def test_a_limit_of_runs_counts_a_slot_whose_key_was_taken(app: Mainspring) -> None:
    task, diary = diary_task(app, takes=90, unique=Unique())
    app.schedule(Every(MINUTE), name="minutely", max_runs=2)(task)
    async with app.node(grace=0):
        await until(50)
        await task.enqueue()
        await until(8 * MINUTE)
    assert diary.slots == [None]
    assert [run.reason for run in await runs(app)] == [Reason.TAKEN, Reason.TAKEN]
