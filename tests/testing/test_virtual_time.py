"""Time that jumps from timer to timer, and says so when it cannot go on."""

import asyncio
import math
import os
import signal
import threading
from collections.abc import AsyncIterator
from contextvars import ContextVar
from datetime import UTC, datetime, timedelta, timezone
from itertools import count

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mainspring.clock import Clock
from mainspring.errors import BadDuration, DeclarationError, Standstill
from mainspring.supervise import Idle, Service, TaskSet
from mainspring.testing import VirtualClock, VirtualLoop, VirtualTime

HOUR = 3600.0
YEAR = 365.25 * 24 * HOUR

delays = st.floats(min_value=0, max_value=1e12)
unhurried = settings(deadline=None)  # Hypothesis measures real time, and on a busy machine that tells nothing


# Timers.


async def test_sixteen_hours_pass_without_waiting(virtual_time: VirtualTime) -> None:
    async def beat(every: int) -> None:
        for _ in range(16 * 3600 // every):
            await asyncio.sleep(every)

    async with asyncio.TaskGroup() as group:
        for every in (10, 60, 3600):
            group.create_task(beat(every))
    assert virtual_time.elapsed == 16 * HOUR


async def test_a_thousand_years_pass_too(virtual_time: VirtualTime) -> None:
    # With the resolution of the system's clock no timer would be due after 97 days.
    for years in (1, 99, 900):
        await asyncio.sleep(years * YEAR)
    assert virtual_time.elapsed == 1000 * YEAR


async def test_a_timer_fires_at_its_own_time_and_not_a_moment_earlier(virtual_time: VirtualTime) -> None:
    loop = virtual_time.loop
    fired: list[float] = []
    times = [0.1 + 0.2, math.nextafter(0.1 + 0.2, 1)]
    for time in reversed(times):
        loop.call_at(time, lambda: fired.append(loop.time()))
    await asyncio.sleep(1)
    assert fired == times


@unhurried
@given(st.lists(delays))
@example([0.1, 0.2, 0.3, 0.1 + 0.2, 2**23 + 0.1, 1e12])
async def test_timers_fire_in_order_at_exactly_their_times(virtual_time: VirtualTime, waits: list[float]) -> None:
    fired: list[float] = []
    for wait in waits:
        virtual_time.loop.call_later(wait, lambda: fired.append(virtual_time.elapsed))
    await asyncio.sleep(1e12)
    assert fired == sorted(waits)


@unhurried
@given(st.lists(st.tuples(delays, st.booleans()), max_size=300))
async def test_a_cancelled_timer_neither_fires_nor_moves_time(
    virtual_time: VirtualTime, waits: list[tuple[float, bool]]
) -> None:
    fired: list[float] = []
    for wait, cancelled in waits:
        timer = virtual_time.loop.call_later(wait, lambda: fired.append(virtual_time.elapsed))
        if cancelled:
            timer.cancel()
    kept = sorted(wait for wait, cancelled in waits if not cancelled)
    end = max(kept, default=0) + 1
    await asyncio.sleep(end)
    assert fired == kept
    assert virtual_time.elapsed == end


async def test_what_is_ready_comes_before_any_timer(virtual_time: VirtualTime) -> None:
    for _ in range(1000):
        await asyncio.sleep(0)
    assert virtual_time.elapsed == 0


async def test_timeouts_expire_in_virtual_time(virtual_time: VirtualTime) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(HOUR):
            await asyncio.Event().wait()
    assert virtual_time.elapsed == HOUR
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(asyncio.sleep(3 * HOUR), timeout=HOUR)
    assert virtual_time.elapsed == 2 * HOUR


async def test_a_timeout_that_was_not_needed_leaves_no_trace(virtual_time: VirtualTime) -> None:
    async with asyncio.timeout(HOUR):
        await asyncio.sleep(1)
    await asyncio.wait_for(asyncio.sleep(1), timeout=HOUR)
    await asyncio.sleep(1)
    assert virtual_time.elapsed == 3


async def test_queues_and_conditions_work(virtual_time: VirtualTime) -> None:
    queue: asyncio.Queue[int] = asyncio.Queue(maxsize=1)
    changed = asyncio.Condition()
    taken: list[tuple[int, float]] = []

    async def produce() -> None:
        for number in range(3):
            await queue.put(number)

    async def consume() -> None:
        while len(taken) < 3:
            await asyncio.sleep(60)
            taken.append((await queue.get(), virtual_time.elapsed))
        async with changed:
            changed.notify_all()

    async with asyncio.TaskGroup() as group, changed:
        group.create_task(produce())
        group.create_task(consume())
        await changed.wait_for(lambda: len(taken) == 3)
    assert taken == [(0, 60), (1, 120), (2, 180)]


async def test_a_failing_task_takes_its_group_along(virtual_time: VirtualTime) -> None:
    async def fail() -> None:
        await asyncio.sleep(5)
        raise ZeroDivisionError

    with pytest.RaisesGroup(ZeroDivisionError):
        async with asyncio.TaskGroup() as group:
            group.create_task(fail())
            group.create_task(asyncio.sleep(HOUR))
    assert virtual_time.elapsed == 5


# Standstill.


def test_a_standstill_names_each_task_and_where_it_waits() -> None:
    async def sweep(never: asyncio.Event) -> None:
        await pause(never)

    async def pause(never: asyncio.Event) -> None:
        await never.wait()

    async def main() -> None:
        sweeper = asyncio.create_task(sweep(asyncio.Event()), name="sweeper")
        await asyncio.sleep(HOUR)
        await sweeper

    with VirtualTime() as time, pytest.raises(Standstill, match="nothing is ready") as standstill:
        time.run(main())
    line = pause.__code__.co_firstlineno + 1
    assert f"sweeper at test_virtual_time.py:{line} in pause" in standstill.value.waiting
    assert any(" in main" in it for it in standstill.value.waiting)
    assert time.elapsed == HOUR


def test_a_sleep_without_end_is_a_standstill() -> None:
    with VirtualTime() as time, pytest.raises(Standstill):
        time.run(asyncio.sleep(math.inf))


def test_timers_that_were_cancelled_do_not_keep_time_going() -> None:
    async def main() -> None:
        for wait in range(500):
            asyncio.get_running_loop().call_later(wait, print).cancel()
        await asyncio.Event().wait()

    with VirtualTime() as time, pytest.raises(Standstill):
        time.run(main())
    assert time.elapsed == 0


def test_after_a_standstill_everything_is_cleaned_up() -> None:
    ended: list[str] = []

    async def numbers() -> AsyncIterator[int]:
        try:
            yield 1
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(60)
            ended.append("generator")

    async def count() -> None:
        async for _ in numbers():
            pass

    async def main() -> None:
        counter = asyncio.create_task(count())
        try:
            await counter
        finally:
            await asyncio.sleep(60)
            ended.append("main")

    with VirtualTime() as time:
        with pytest.raises(Standstill):
            time.run(main())
        assert ended == []
    assert ended == ["generator", "main"]
    assert time.elapsed == 120
    assert time.loop.is_closed()


def test_a_standstill_ends_asyncio_run_as_any_error_does() -> None:
    ended = []

    async def main() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("main")

    with pytest.raises(Standstill), asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(main())
    assert ended == ["main"]


def test_time_goes_on_after_a_standstill() -> None:
    with VirtualTime() as time:
        with pytest.raises(Standstill):
            time.run(asyncio.Event().wait())
        time.run(asyncio.sleep(HOUR))
        assert time.elapsed == HOUR


def test_a_task_that_refuses_to_end_is_a_standstill_of_the_cleanup() -> None:
    async def stubborn() -> None:
        while True:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                continue

    async def main() -> asyncio.Task[None]:
        return asyncio.create_task(stubborn(), name="stubborn")

    time = VirtualTime()
    task = time.run(main())
    with pytest.raises(Standstill, match="stubborn at"):
        time.close()
    assert time.loop.is_closed()
    task._log_destroy_pending = False  # type: ignore[attr-defined] # nobody is left to end it


# The clock.


async def test_the_clock_follows_virtual_time(virtual_time: VirtualTime) -> None:
    clock: Clock = virtual_time.clock
    assert clock.now() == datetime(2030, 1, 1, tzinfo=UTC)
    await asyncio.sleep(1.5)
    assert clock.now() == datetime(2030, 1, 1, 0, 0, 1, 500_000, tzinfo=UTC)
    assert clock.monotonic() == 1.5 == asyncio.get_running_loop().time()


async def test_a_jump_moves_the_wall_time_alone(virtual_time: VirtualTime) -> None:
    clock = virtual_time.clock
    clock.jump("1h")
    clock.jump(timedelta(minutes=-90))
    assert clock.jumped == timedelta(minutes=-30)
    assert clock.now() == datetime(2029, 12, 31, 23, 30, tzinfo=UTC)
    await asyncio.sleep(60)
    assert clock.now() == datetime(2029, 12, 31, 23, 31, tzinfo=UTC)
    assert clock.monotonic() == virtual_time.elapsed == 60


def test_text_cannot_set_the_clock_back() -> None:
    with pytest.raises(BadDuration):
        VirtualClock(lambda: 0.0).jump("-90s")


def test_the_start_can_be_chosen_and_is_told_in_utc() -> None:
    start = datetime(2024, 3, 31, 1, 30, tzinfo=timezone(timedelta(hours=2)))
    with VirtualTime(start=start) as time:
        assert time.clock.now() == start
        assert time.clock.now().tzinfo is UTC
    with pytest.raises(DeclarationError, match="no time zone"):
        VirtualClock(lambda: 0.0, datetime(2024, 3, 31))  # noqa: DTZ001 -- the point of the test


@unhurried
@given(st.lists(st.timedeltas(timedelta(0), timedelta(days=1)), min_size=1))
async def test_who_sleeps_until_a_moment_wakes_up_at_that_moment(
    virtual_time: VirtualTime, waits: list[timedelta]
) -> None:
    for wait in waits:
        due = virtual_time.clock.now() + wait
        await asyncio.sleep(wait.total_seconds())
        assert virtual_time.clock.now() == due


# What a test holds.


def test_runs_go_on_where_the_last_one_stopped() -> None:
    async def background() -> None:
        while True:
            await asyncio.sleep(7)
            beats.append(time.elapsed)

    async def begin() -> asyncio.Task[None]:
        return asyncio.create_task(background())

    beats: list[float] = []
    with VirtualTime() as time:
        task = time.run(begin())
        assert time.elapsed == 0
        time.run(asyncio.sleep(10))
        time.run(asyncio.sleep(10))
        assert time.elapsed == 20
        assert beats == [7, 14]
    assert task.cancelled()


def test_restart_begins_again_with_the_same_clock() -> None:
    with VirtualTime(patience=5) as time:
        clock = time.clock
        clock.jump("1h")
        time.run(asyncio.sleep(10))
        first = time.loop
        time.restart()
        assert first.is_closed()
        assert (time.elapsed, clock.monotonic(), clock.now()) == (0, 0, datetime(2030, 1, 1, tzinfo=UTC))
        assert time.loop.patience == 5
        time.run(asyncio.sleep(3))
        assert clock.monotonic() == 3


def test_a_run_sees_the_context_of_its_caller() -> None:
    name = ContextVar("name", default="nobody")

    async def who() -> str:
        return name.get()

    with VirtualTime() as time:
        token = name.set("caller")
        assert time.run(who()) == "caller"
        name.reset(token)
        assert time.run(who()) == "nobody"


def test_results_and_errors_come_out_of_run() -> None:
    async def fail() -> None:
        raise ZeroDivisionError

    with VirtualTime() as time:
        assert time.run(asyncio.sleep(1, "result")) == "result"
        with pytest.raises(ZeroDivisionError):
            time.run(fail())


def test_unused_time_is_closed_without_a_word() -> None:
    with VirtualTime() as time:
        pass
    assert time.loop.is_closed()
    time.close()


def test_other_threads_can_call_into_the_loop(virtual_time: VirtualTime) -> None:
    async def main() -> str:
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[str] = loop.create_future()
        threading.Timer(0.05, lambda: loop.call_soon_threadsafe(answer.set_result, "from afar")).start()
        with virtual_time.loop.outside("the timer thread"):
            return await answer

    assert virtual_time.run(main()) == "from afar"
    assert virtual_time.elapsed == 0


def test_ctrl_c_interrupts_a_loop_that_waits_for_the_outside(virtual_time: VirtualTime) -> None:
    async def main() -> None:
        threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT)).start()
        with virtual_time.loop.outside("nothing at all"):
            await asyncio.Event().wait()

    with pytest.raises(KeyboardInterrupt):
        virtual_time.run(main())
    assert virtual_time.elapsed == 0


def test_signal_handlers_of_the_loop_are_called(virtual_time: VirtualTime) -> None:
    async def main() -> None:
        caught = asyncio.Event()
        virtual_time.loop.add_signal_handler(signal.SIGUSR1, caught.set)
        virtual_time.loop.call_later(HOUR, os.kill, os.getpid(), signal.SIGUSR1)
        await caught.wait()

    virtual_time.run(main())
    assert virtual_time.elapsed == HOUR


def test_a_run_that_would_go_on_for_ever_is_ended_and_told_apart() -> None:
    """A service that polls keeps virtual time going, however long its test waits for what will never come."""

    async def poll() -> None:
        for _ in count():
            await asyncio.sleep(1)

    async def story() -> None:
        polling = asyncio.create_task(poll(), name="poller")
        await asyncio.Event().wait()
        polling.cancel()

    with VirtualTime(limit="200ms") as time:
        with pytest.raises(Standstill, match="does not end") as told:
            time.run(story())
        assert any(line.startswith("poller at test_virtual_time.py") for line in told.value.waiting)
        time.run(asyncio.sleep(1))  # the limit is for each run


def test_time_that_stands_still_is_no_part_of_the_limit() -> None:
    async def story() -> None:
        await asyncio.to_thread(threading.Event().wait, 0.3)
        await asyncio.sleep(1)

    with VirtualTime(limit="200ms") as time:
        time.run(story())


def test_a_standstill_shows_the_line_of_the_test_and_not_the_inside_of_a_service() -> None:
    async def story() -> None:
        async with TaskSet() as tasks:
            tasks.start(Service("sender", rest))
            await tasks.stop.wait()

    async def rest() -> Idle:
        return Idle()

    with VirtualTime() as time, pytest.raises(Standstill) as told:
        time.run(story())
    places = {line.split(" at ")[0]: line.split(" in ")[-1] for line in told.value.waiting}
    assert places["sender"] == "run"
    assert "story" in places.values()


@pytest.mark.parametrize("back", [-3600, -3600.0, timedelta(hours=-1)])
def test_a_clock_can_be_set_back_by_a_number_too(back: float | timedelta) -> None:
    with VirtualTime() as time:
        before = time.clock.now()
        time.clock.jump(back)
        assert before - time.clock.now() == timedelta(hours=1)
