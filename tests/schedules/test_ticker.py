"""The part of a node that makes the jobs of schedules: when it looks, what it touches, and what it does in trouble."""

import asyncio
import inspect
import logging
import random
import threading
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import Any, cast

import pytest
from msgspec.structs import replace

from mainspring import Context, Every, Mainspring, Manual, Missed
from mainspring.core.job import State
from mainspring.core.missed import Reason
from mainspring.core.names import Name
from mainspring.core.rules import Rule
from mainspring.core.schedule import Schedule
from mainspring.core.steps import create
from mainspring.errors import StoreError, UnknownSchedule
from mainspring.runtime.firing import move_of
from mainspring.runtime.ticker import GAP, REARM, WHY
from mainspring.stores.memory import MemoryStore
from mainspring.stores.port import Store
from mainspring.stores.records import Move
from mainspring.task import Task
from mainspring.testing import VirtualTime
from mainspring.testing.contract import plans
from mainspring.testing.faults import FaultyStore
from tests.schedules.conftest import (
    DAY,
    HOUR,
    LASTING,
    MINUTE,
    SECOND,
    T0,
    Diary,
    MakeStore,
    diary_task,
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
from tests.servers.system import PATIENCE

pytestmark = pytest.mark.usefixtures("virtual_time")

on_lasting_stores = pytest.mark.parametrize("make_store", LASTING, indirect=True)
"""For counting: a hint is a look."""


SPIN = 100


async def add_many(app: Mainspring, names: Sequence[str], rule: Rule, task: Task[[], None]) -> list[Schedule]:
    """Add schedules that differ by their names only."""
    plan = (await app.schedules.add("the-first", rule, task.call())).plan
    decisions = [create(Name.parse(name), plan, app.store.now()) for name in names]
    assert all(await app.store.move([move_of(one) for one in decisions]))
    await app.schedules.remove("the-first")
    return [one.after for one in decisions if one.after]


class Recorder:
    """A store that remembers when it was asked what."""

    def __init__(self, inner: Store) -> None:
        self.inner = inner
        self.calls: list[tuple[float, str, tuple[Any, ...]]] = []

    @property
    def as_store(self) -> Store:
        """This object, for a type checker, which cannot see that it has every verb of the store within."""
        return cast("Store", self)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the store within has under that name
        attribute = getattr(self.inner, name)
        if not inspect.iscoroutinefunction(attribute):
            return attribute

        async def verb(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - as above
            self.calls.append((now(), name, args))
            # On virtual time, who asks without a pause asks for ever.
            assert name != "due" or len(self.times(name, since=now())) < SPIN, "it looks all the time"
            return await attribute(*args, **kwargs)

        return verb

    def times(self, verb: str, *, since: float = 0.0) -> list[float]:
        return [at for at, name, _ in self.calls if name == verb and at >= since]

    @property
    def moved(self) -> list[list[str]]:
        """The schedules that each move was about."""
        moves: list[list[Move]] = [list(args[0]) for _, name, args in self.calls if name == "move"]
        return [[str(cast("Schedule", move.after or move.before).name) for move in batch] for batch in moves]


@pytest.fixture
def recorder(make_store: MakeStore) -> Recorder:
    return Recorder(make_store())


@pytest.fixture
def recorded(recorder: Recorder, virtual_time: VirtualTime) -> Mainspring:
    """An app whose store remembers what it was asked."""
    return Mainspring(store=recorder.as_store, clock=virtual_time.clock)


@pytest.fixture
def faulty(make_store: MakeStore) -> FaultyStore:
    return FaultyStore(make_store())


@pytest.fixture
def shaky(faulty: FaultyStore, virtual_time: VirtualTime) -> Mainspring:
    return Mainspring(store=faulty.as_store, clock=virtual_time.clock)


async def a_real_moment() -> None:
    """Hold virtual time until a hint has come that is on its way through a socket."""
    await asyncio.to_thread(time.sleep, 0.3)


# When it looks.


@on_lasting_stores
async def test_it_sleeps_until_the_earliest_slot_and_looks_every_30_seconds_between(
    recorded: Mainspring, recorder: Recorder
) -> None:
    task, diary = diary_task(recorded)
    async with recorded:
        await recorded.schedules.add("later", Every(DAY), task.call())
        await recorded.schedules.add("soon", Every(137 * SECOND), task.call(), max_runs=1)
        async with recorded.node():
            await a_real_moment()
            await until(1)
            recorder.calls.clear()
            await until(136)
            looks = recorder.times("due")
            await until(138)
    assert looks == pytest.approx([looks[0] + n * REARM for n in range(4)])
    assert looks[0] <= REARM + GAP
    assert 137.0 in recorder.times("due")
    assert diary.times == [137.0]
    assert {"look", "list_schedules", "runs"}.isdisjoint(name for _, name, _ in recorder.calls)


@on_lasting_stores
async def test_without_any_schedule_it_looks_every_30_seconds_and_writes_nothing(
    recorded: Mainspring, recorder: Recorder
) -> None:
    async with recorded.node():
        await until(1)
        recorder.calls.clear()
        await until(302)
    assert len(recorder.times("due")) == 10
    assert recorder.moved == []


async def test_it_is_on_time(app: Mainspring) -> None:
    task, diary = diary_task(app)
    app.schedule(Every(timedelta(seconds=7.123456)))(task)
    async with app.node():
        await until(72)
    assert diary.slots == [T0 + n * timedelta(seconds=7.123456) for n in range(1, 11)]
    assert max(call.lateness for call in diary.calls) < 0.01 * SECOND


@pytest.mark.parametrize("change", ["add", "change", "resume", "declare"])
async def test_it_wakes_when_a_schedule_was_changed_through_another_handle(
    app: Mainspring, make_store: MakeStore, virtual_time: VirtualTime, change: str
) -> None:
    _, diary = diary_task(app)
    other = Mainspring(store=make_store(), clock=virtual_time.clock)
    twin, _ = diary_task(other)
    async with app.node(), other:
        match change:
            case "resume":
                await other.schedules.add("often", Every(SECOND), twin.call())
                await other.schedules.pause("often")
            case "change":
                await other.schedules.add("often", Every(DAY), twin.call())
            case _:
                pass
        await until(35)
        rung = threading.Event()
        end = app.store.watch(rung.set)
        match change:
            case "add":
                await other.schedules.add("often", Every(SECOND), twin.call())
            case "change":
                await other.schedules.change("often", Every(SECOND))
            case "resume":
                await other.schedules.resume("often")
            case _:
                other.schedule(Every(SECOND), name="often")(twin)
                async with other.node(ticker=False, queues=["another"]):
                    pass
        began = now()
        assert await asyncio.to_thread(rung.wait, PATIENCE)  # a thread or a socket brings it
        end()
        await pass_by(3.5 * SECOND)
    assert diary.times == pytest.approx([began + n for n in (1, 2, 3)], abs=GAP + 0.05)


async def test_hints_make_it_look_four_times_a_second_at_most(recorded: Mainspring, recorder: Recorder) -> None:
    task, diary = diary_task(recorded)
    recorded.schedule(Every(SECOND))(task)
    other, _ = diary_task(recorded, "other")
    async with recorded.node(queues=["default"]):
        await until(5)
        recorder.calls.clear()
        while now() < 15:
            await other.using(queue="nobody").enqueue()
            await asyncio.sleep(0.011)
    assert len(recorder.times("due")) <= 10 / GAP + 10 + 1  # and once for every slot
    assert diary.slots == [T0 + n * SECOND for n in range(1, 16)]
    assert max(call.lateness for call in diary.calls) < 0.05 * SECOND


@pytest.mark.timeout(30)
async def test_hints_at_any_instant_do_not_keep_it_from_letting_time_pass(
    virtual_time: VirtualTime,
) -> None:
    store = MemoryStore(clock=virtual_time.clock)
    app = Mainspring(store=store, clock=virtual_time.clock)
    task, diary = diary_task(app)
    app.schedule(Every(SECOND))(task)
    chance = random.Random(7)  # noqa: S311 - no secret
    async with app.node():
        while now() < 100:
            await asyncio.sleep(chance.random() / 3)
            await app.schedules.get("work")
            store._ring()  # a hint, and nothing behind it
    assert len(diary.calls) >= 99


# What it touches.


async def test_it_touches_only_what_is_due(recorded: Mainspring, recorder: Recorder) -> None:
    task, _ = diary_task(recorded)
    async with recorded:
        for number in range(30):
            await recorded.schedules.add(f"every-{number + 1}-minutes", Every((number + 1) * MINUTE), task.call())
        await recorded.schedules.add("paused", Every(MINUTE), task.call())
        await recorded.schedules.pause("paused")
        await recorded.schedules.add("by-hand", Manual(), task.call())
        first = {name: one.revision for name, one in (await schedules(recorded)).items()}
        async with recorded.node(queues=["another"]):
            recorder.calls.clear()
            await until(4 * MINUTE + SECOND)
        assert [sorted(batch) for batch in recorder.moved] == [
            ["every-1-minutes"],
            ["every-1-minutes", "every-2-minutes"],
            ["every-1-minutes", "every-3-minutes"],
            ["every-1-minutes", "every-2-minutes", "every-4-minutes"],
        ]
        kept = await schedules(recorded)
    assert {name for name, one in kept.items() if one.revision > first[name]} == {
        f"every-{n}-minutes" for n in (1, 2, 3, 4)
    }


async def test_many_that_come_up_together_are_all_made_at_once(virtual_time: VirtualTime) -> None:
    recorder = Recorder(MemoryStore(clock=virtual_time.clock))
    app = Mainspring(store=recorder.as_store, clock=virtual_time.clock)
    task, _ = diary_task(app)
    async with app:
        await add_many(app, [f"hourly-{number}" for number in range(2500)], Every(HOUR), task)
        virtual_time.clock.jump(HOUR)
        async with app.node(queues=["another"]):
            recorder.calls.clear()
            await pass_by(SECOND / 100)
        assert [len(batch) for batch in recorder.moved] == [1000, 1000, 500]
        assert {view.job.run_at for view in await jobs(app)} == {T0 + HOUR}
        assert len(await jobs(app)) == 2500


async def test_it_fires_schedules_of_tasks_that_its_node_does_not_know(
    app: Mainspring, make_store: MakeStore, virtual_time: VirtualTime
) -> None:
    other = Mainspring(store=make_store(), clock=virtual_time.clock)
    task, diary = diary_task(other, "of-another-program")
    async with app.node():
        await other.schedules.add("minutely", Every(MINUTE), task.call())
        await until(61)
        assert slots(await fired(app)) == [T0 + MINUTE]
        async with other.node(ticker=False):
            await pass_by(SECOND)
    assert diary.slots == [T0 + MINUTE]
    await other.close()


# What cannot be read.


def unreadable(schedule: Schedule) -> Schedule:
    """Make of a schedule one that newer code has written, with a word that this code does not know."""
    return plans.unreadable(replace(schedule, revision=schedule.revision + 1))


async def spoil(app: Mainspring, name: str) -> None:
    """Have a schedule that nobody here can read."""
    there = await app.schedules.get(name)
    assert await app.store.move([Move(before=there, after=unreadable(there))]) == (True,)


async def test_a_schedule_that_cannot_be_read_hinders_nobody_and_is_told_of_once(
    recorded: Mainspring, recorder: Recorder, caplog: pytest.LogCaptureFixture
) -> None:
    task, diary = diary_task(recorded)
    async with recorded.node() as node:
        for name in ("a-first", "m-second", "z-last"):
            await recorded.schedules.add(name, Every(MINUTE), task.call())
        await spoil(recorded, "a-first")
        await until(62)
        assert [call.schedule for call in diary.calls] == ["m-second", "z-last"]
        recorder.calls.clear()
        await until(182)
        assert node.events.counts["unreadable_schedules"] == 1
    assert len(diary.calls) == 6
    # What is due and cannot be read must not be looked at all the time. (A heartbeat of the memory store is a hint.)
    assert len(recorder.times("due")) <= 120 * 1.1
    told = [record for record in caplog.records if "a-first" in record.getMessage()]
    assert [(record.levelno, "on_full_moon" in record.getMessage()) for record in told] == [(logging.ERROR, True)]


async def test_a_schedule_that_cannot_be_read_can_be_removed(app: Mainspring) -> None:
    task, _ = diary_task(app)
    async with app:
        await app.schedules.add("strange", Every(MINUTE), task.call())
        await spoil(app, "strange")
        await app.schedules.remove("strange")
        page = await app.schedules.list()
        assert (page.looks, page.unreadable) == ((), {})
        with pytest.raises(UnknownSchedule):
            await app.schedules.remove("strange")


async def test_more_schedules_that_cannot_be_read_than_a_tick_takes_hinder_nobody(app: Mainspring) -> None:
    task, diary = diary_task(app)
    async with app:
        names = [f"broken-{number}" for number in range(1100)]
        added = await add_many(app, names, Every(MINUTE), task)
        assert all(await app.store.move([Move(before=one, after=unreadable(one)) for one in added]))
        await app.schedules.add("whole", Every(2 * MINUTE), task.call())
        async with app.node():
            await until(2 * MINUTE + SECOND)
    assert [call.schedule for call in diary.calls] == ["whole"]


async def test_a_node_starts_although_a_schedule_that_it_declares_cannot_be_read(
    make_store: MakeStore, virtual_time: VirtualTime, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[str | None] = []
    for life in (1, 2):
        app = Mainspring(store=make_store(), clock=virtual_time.clock)
        task, diary = diary_task(app)
        app.schedule(Every(MINUTE), name="broken")(task)
        app.schedule(Every(MINUTE), name="whole")(task)
        async with app.node():
            if life == 1:
                await spoil(app, "broken")
            await pass_by(61 * SECOND)
        seen += [call.schedule for call in diary.calls]
    assert seen == ["whole", "whole"]
    assert "broken" in caplog.text


# What cannot be written.


class Picky(Recorder):
    """A store that cannot keep the jobs of some schedules, as a database whose columns are too small for a value."""

    def __init__(self, inner: Store, *names: str) -> None:
        super().__init__(inner)
        self.names = {*names}

    async def move(self, moves: Sequence[Move]) -> tuple[bool, ...]:
        self.calls.append((now(), "move", (moves,)))
        if any(move.jobs and move.after and str(move.after.name) in self.names for move in moves):
            raise StoreError("picky store", "a value cannot be kept")
        return await self.inner.move(moves)


async def test_a_step_that_cannot_be_written_keeps_nobody_back_and_is_told_of_once(
    make_store: MakeStore, virtual_time: VirtualTime, caplog: pytest.LogCaptureFixture
) -> None:
    picky = Picky(make_store(), "broken")
    app = Mainspring(store=picky.as_store, clock=virtual_time.clock)
    task, diary = diary_task(app)
    async with app.node() as node:
        for name in ("a-first", "broken", "z-last"):
            await app.schedules.add(name, Every(MINUTE), task.call())
        picky.calls.clear()
        await until(5 * MINUTE + SECOND)
        assert node.events.counts["unwritable_schedules"] == 1
        assert picky.moved.count(["broken"]) <= 10, "it is tried all the time"
        picky.names.clear()
        await until(6 * MINUTE + SECOND)
    made = Counter(call.schedule for call in diary.calls)
    assert (made["a-first"], made["z-last"], made["broken"]) == (6, 6, 2)
    told = [record for record in caplog.records if "broken" in record.getMessage()]
    assert [record.getMessage() for record in told if record.levelno == logging.ERROR] == [
        "schedule broken cannot go on: its next step cannot be written: picky store: a value cannot be kept"
    ]


async def test_the_only_step_that_there_is_and_cannot_be_written_is_not_tried_all_the_time(
    make_store: MakeStore, virtual_time: VirtualTime
) -> None:
    picky = Picky(make_store(), "broken")
    app = Mainspring(store=picky.as_store, clock=virtual_time.clock)
    task, _ = diary_task(app)
    async with app.node():
        await app.schedules.add("broken", Every(MINUTE), task.call())
        picky.calls.clear()
        await until(3 * MINUTE)
        assert len(picky.moved) <= 10


# Trouble with the store.


@pytest.mark.parametrize("verb", ["due", "move"])
async def test_an_outage_is_told_of_ever_more_slowly_and_ends_by_itself(
    shaky: Mainspring, faulty: FaultyStore, caplog: pytest.LogCaptureFixture, verb: str
) -> None:
    task, diary = diary_task(shaky)
    shaky.schedule(Every(20 * SECOND), missed=Missed.all())(task)
    async with shaky.node():
        await until(15)
        faulty.drop(verb, times=1000)
        for _ in range(300):  # hints go on all the time: others are at work, on another connection
            await asyncio.sleep(0.2)
            await faulty.inner.enqueue([task.using(queue="nobody").call().hand_over()])
        faulty.heal()
        warned = [record for record in caplog.records if "ticker failed" in record.getMessage()]
        assert 20 <= len(warned) <= 50, "two seconds apart in the end"
        await pass_by(10 * SECOND)
        assert slots(await fired(shaky)) == [T0 + n * 20 * SECOND for n in (1, 2, 3, 4)]
    assert sorted(slot for slot in diary.slots if slot) == slots(await fired(shaky))


@pytest.mark.parametrize("verb", ["get", "settle"])
async def test_a_run_is_cancelled_in_the_end_although_whoever_was_to_ask_for_it_could_not(
    shaky: Mainspring, faulty: FaultyStore, verb: str
) -> None:
    task, diary = diary_task(shaky, takes=600)
    shaky.schedule(Every(MINUTE), overlap="cancel_previous", max_runs=2)(task)
    async with shaky.node(grace=0):
        await until(119)
        faulty.drop(verb, times=2)
        await until(121)
        faulty.heal()
        await until(165)
    assert diary.slots == [T0 + MINUTE, T0 + 2 * MINUTE]
    assert diary.times[1] > 121


async def test_a_move_whose_answer_was_lost_still_has_the_run_before_it_cancelled(
    shaky: Mainspring, faulty: FaultyStore
) -> None:
    task, diary = diary_task(shaky, takes=600)
    shaky.schedule(Every(MINUTE), overlap="cancel_previous", max_runs=2)(task)
    async with shaky.node(grace=0):
        await until(119)
        faulty.lose_answer("move")
        await until(165)
    assert diary.slots == [T0 + MINUTE, T0 + 2 * MINUTE]


async def test_a_store_that_hangs_does_not_hold_up_the_end_of_a_node(shaky: Mainspring, faulty: FaultyStore) -> None:
    task, _ = diary_task(shaky)
    shaky.schedule(Every(MINUTE))(task)
    async with shaky.node() as node:
        await until(59)
        faulty.delay("due", "1h", times=10)
        await until(61)
        began = now()
        await node.shutdown()
        assert now() - began <= 2.5


# Several nodes.


@pytest.mark.parametrize("count", [2, 3, 5])
async def test_each_slot_is_made_once_however_many_nodes_tick(
    make_store: MakeStore, virtual_time: VirtualTime, count: int
) -> None:
    diary = Diary()
    apps = [Mainspring(store=make_store(), clock=virtual_time.clock) for _ in range(count)]
    for app in apps:

        @app.schedule(Every(SECOND), name="often", missed=Missed.all(limit=1000, per_tick=1000))
        @app.task(name="work")
        async def work(ctx: Context) -> None:
            await diary.write(ctx)

    async with AsyncExitStack() as stack:
        nodes = [await stack.enter_async_context(app.node()) for app in apps]
        await until(20.5)
        made = sum(node.events.counts["runs"] for node in nodes)
    expected = [T0 + n * SECOND for n in range(1, 21)]
    assert slots(await fired(apps[0])) == expected
    assert sorted(slot for slot in diary.slots if slot) == expected
    assert len(await jobs(apps[0])) == made == 20


async def test_when_a_node_goes_another_goes_on_at_the_next_slot(
    make_store: MakeStore, virtual_time: VirtualTime
) -> None:
    diary = Diary()
    apps = [Mainspring(store=make_store(), clock=virtual_time.clock) for _ in range(2)]
    for app in apps:

        @app.schedule(Every(SECOND), name="often")
        @app.task(name="work")
        async def work(ctx: Context) -> None:
            await diary.write(ctx)

    async with apps[0].node():
        async with apps[1].node():
            await until(5.5)
        await until(10.5)
    assert diary.slots == [T0 + n * SECOND for n in range(1, 11)]
    assert max(call.lateness for call in diary.calls) < 0.3 * SECOND


async def test_a_node_without_a_ticker_runs_the_jobs_that_others_make(
    make_store: MakeStore, virtual_time: VirtualTime
) -> None:
    apps = [Mainspring(store=make_store(), clock=virtual_time.clock) for _ in range(2)]
    diaries = []
    for app in apps:
        task, diary = diary_task(app)
        app.schedule(Every(MINUTE), name="minutely")(task)
        diaries.append(diary)
    async with apps[0].node(ticker=False) as silent, apps[1].node(queues=["another"]):
        await until(3 * MINUTE + SECOND)
        assert silent.events.counts["runs"] == 0
    assert diaries[0].slots == [T0 + n * MINUTE for n in (1, 2, 3)]
    assert diaries[1].slots == []


# What somebody else has done already.


async def test_a_slot_that_is_held_and_was_backfilled_meanwhile_does_not_stop_its_schedule(
    recorded: Mainspring, recorder: Recorder
) -> None:
    task, diary = diary_task(recorded, takes=90)
    async with recorded.node(concurrency=5):
        await recorded.schedules.add("minutely", Every(MINUTE), task.call(), overlap="queue_one", max_runs=3)
        await until(125)
        assert (await recorded.schedules.get("minutely")).held, "the second slot waits for the end of the first"
        made = await recorded.schedules.backfill("minutely", T0, T0 + 2 * MINUTE)
        recorder.calls.clear()
        await until(10 * MINUTE)
    assert len(recorder.times("due")) < 10 * 60
    assert made == (), "the schedule will make that one itself"
    assert diary.slots[:2] == [T0 + MINUTE, T0 + 2 * MINUTE]
    assert len(diary.slots) == len(set(diary.slots)) == 3


async def test_a_schedule_that_comes_back_after_the_clock_was_set_back_makes_no_slot_twice_and_does_not_stop(
    recorded: Mainspring, recorder: Recorder, virtual_time: VirtualTime
) -> None:
    task, diary = diary_task(recorded)
    rule = Every(MINUTE, start=T0)
    async with recorded.node():
        await recorded.schedules.add("minutely", rule, task.call())
        await until(5 * MINUTE + SECOND)
        await recorded.schedules.remove("minutely")
        virtual_time.clock.jump(-2 * MINUTE)
        await recorded.schedules.add("minutely", rule, task.call())
        recorder.calls.clear()
        await pass_by(4 * MINUTE)
    assert len(recorder.times("due")) < 4 * 60
    assert diary.slots == [T0 + n * MINUTE for n in (1, 2, 3, 4, 5, 6, 7)]


@on_lasting_stores
async def test_a_move_that_is_refused_again_and_again_is_not_tried_all_the_time(
    recorded: Mainspring, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(moves: Sequence[Move]) -> tuple[bool, ...]:
        return (False,) * len(moves)

    task, diary = diary_task(recorded)
    recorded.schedule(Every(10 * SECOND))(task)
    async with recorded.node():
        await until(9)
        monkeypatch.setattr(recorder, "move", refuse, raising=False)
        recorder.calls.clear()
        await until(15)
        assert 2 <= len(recorder.times("due")) <= 6 / GAP
        monkeypatch.undo()
        await until(16)
    assert diary.slots == [T0 + 10 * SECOND]


# Clocks.


async def test_a_clock_that_is_set_forward_is_noticed_within_30_seconds(
    app: Mainspring, virtual_time: VirtualTime
) -> None:
    task, diary = diary_task(app)
    app.schedule(Every(DAY), name="daily")(task)
    async with app.node():
        await until(10)
        virtual_time.clock.jump(DAY - 5 * SECOND)
        await until(45)
    assert diary.slots == [T0 + DAY]
    assert diary.calls[0].lateness < 31 * SECOND


async def test_the_reasons_of_slots_that_made_no_job_are_counted(app: Mainspring, virtual_time: VirtualTime) -> None:
    task, _ = diary_task(app)
    app.schedule(Every(MINUTE))(task)
    async with app.node() as node:
        await until(10)
        virtual_time.clock.jump(2 * HOUR)
        await until(45)
        assert node.events.counts["runs"] == 1
        assert node.events.counts["slots_superseded"] == 119
    assert [(run.reason, run.count) for run in await runs(app)] == [(Reason.SUPERSEDED, 119), (None, 1)]
    assert {view.job.state for view in await jobs(app)} == {State.SUCCEEDED}


async def test_a_row_of_slots_that_make_no_job_is_told_of_by_the_first(
    app: Mainspring, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "mainspring.node")
    task, _ = diary_task(app, takes=600)
    app.schedule(Every(MINUTE), name="minutely", overlap="skip")(task)
    async with app.node(grace=0):
        await until(4 * MINUTE + SECOND)
    told = [(record.levelno, record.getMessage()) for record in caplog.records if "no job for" in record.getMessage()]
    because = "the run before it has not ended"
    first = "2030-01-01 00:02:00+00:00"
    assert told == [
        (logging.INFO, f"schedule minutely: no job for the slot of {first}, {because}"),
        (logging.DEBUG, f"schedule minutely: no job for 2 slots from {first} to 2030-01-01 00:03:00+00:00, {because}"),
        (logging.DEBUG, f"schedule minutely: no job for 3 slots from {first} to 2030-01-01 00:04:00+00:00, {because}"),
    ]


async def test_slots_that_share_a_run_are_counted_once_each(app: Mainspring) -> None:
    task, _ = diary_task(app, takes=290)
    app.schedule(Every(MINUTE), overlap="skip")(task)
    async with app.node(grace=0) as node:
        await until(5 * MINUTE + SECOND)
        assert [(run.reason, run.count) for run in await runs(app)] == [(None, 1), (Reason.OVERLAPPED, 4)]
        assert node.events.counts["slots_overlapped"] == 4


async def test_a_look_by_hand_through_another_handle_disturbs_nobody(app: Mainspring, make_store: MakeStore) -> None:
    task, diary = diary_task(app)
    app.schedule(Every(MINUTE), name="minutely")(task)
    async with app.node(), opened(make_store()) as other:
        await until(59)
        looked = await other.look([Name.parse("minutely"), Name.parse("unknown")])
        assert [str(look.schedule.name) for look in looked.looks] == ["minutely"]
        assert (await other.due(10)).looks == ()
        assert (await other.due(10)).next_at == T0 + MINUTE
        await until(61)
    assert diary.slots == [T0 + MINUTE]


def test_every_reason_for_making_no_job_can_be_told() -> None:
    assert set(WHY) == set(Reason)
