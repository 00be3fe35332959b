"""The behaviours that the tests of taskward pin, in their order and with their figures (contracts 3.8).

Where our rules differ (DESIGN 13), the test keeps the name and asserts ours.
"""

import asyncio

import pytest

from mainspring.supervise import (
    NO_PAUSE,
    Backoff,
    Bulkhead,
    Directive,
    Ending,
    Failed,
    Idle,
    Lane,
    Notifier,
    Pacing,
    Proceed,
    Service,
    ServiceEvent,
    Sleep,
    Started,
    Stop,
    Stopped,
    TaskSet,
    every,
)
from mainspring.testing import VirtualTime
from tests.supervise.conftest import HOUR, MINUTE, Boom, Script, Work, notify_at, now, running, until

pytestmark = pytest.mark.usefixtures("virtual_time")


async def test_3_8_1_proceed_after_long_work_does_not_wait_for_the_next_poke() -> None:
    step = Script(Work(2 * HOUR), Work(5 * HOUR, Proceed()), Work(1 * HOUR))
    async with running(Service("long", step, wake=[every("4h")], start_idle=True, pacing=NO_PAUSE)):
        await until(17 * HOUR)
    assert step.calls[:3] == [4 * HOUR, 8 * HOUR, 13 * HOUR]
    assert step.ends[2] < 17 * HOUR


async def test_3_8_1_with_the_usual_pacing_call_3_is_a_tenth_of_a_second_later() -> None:
    step = Script(Work(2 * HOUR), Work(5 * HOUR, Proceed()), Work(1 * HOUR))
    async with running(Service("long", step, wake=[every("4h")], start_idle=True)):
        await until(17 * HOUR)
    assert step.calls[:3] == pytest.approx([4 * HOUR, 8 * HOUR, 13 * HOUR + 0.1], rel=1e-12)


@pytest.mark.parametrize("start_idle", [True, False])
async def test_3_8_2_an_external_notifier_and_a_poker_wake_the_same_service(start_idle: bool) -> None:
    step = Script()
    signal = Notifier()
    signal.notify_one()
    service = Service("both", step, wake=[every("5h"), signal], start_idle=start_idle)
    async with running(service):
        await notify_at(signal, [1 * HOUR, 2 * HOUR])
        await until(4 * HOUR)
    assert step.calls == [0, 1 * HOUR, 2 * HOUR]


@pytest.mark.parametrize("notified", [[], [5, 10, 15, 20]], ids=["by itself", "notified"])
async def test_3_8_3_errors_back_off_and_one_success_resets_the_backoff(notified: list[float]) -> None:
    step = Script(Boom(), Boom(), Boom(), Proceed(), Boom(), Sleep("1h"))
    signal = Notifier()
    service = Service(
        "flaky", step, wake=[signal], pacing=NO_PAUSE, backoff=Backoff.exponential(1, multiplier=2, cap=60, jitter=0)
    )
    async with running(service):
        await notify_at(signal, notified)
        await until(30)
    assert step.calls == [0, 1, 3, 7, 7, 8]


async def test_3_8_4_three_notifiers_used_in_turn_wake_it_once_each() -> None:
    step = Script()
    notifiers = [Notifier(), Notifier(), Notifier()]
    async with running(Service("three", step, wake=notifiers)):
        for hour, notifier in enumerate(notifiers, start=1):
            await until(hour * HOUR)
            notifier.notify_one()
        await until(24 * HOUR)
    assert step.calls == [0, 1 * HOUR, 2 * HOUR, 3 * HOUR]


async def test_3_8_5_four_services_share_two_places_and_one_notifier() -> None:
    inside = 0
    most = 0
    calls = 0

    async def step() -> Directive:
        nonlocal inside, most, calls
        calls += 1
        inside += 1
        most = max(most, inside)
        await asyncio.sleep(30)
        inside -= 1
        return Idle()

    lane, signal, tasks = Lane(2), Notifier(), TaskSet()
    for number in range(4):
        tasks.start(Service(f"worker-{number}", step, wake=[signal], start_idle=True, bulkhead=Bulkhead(lane)))
    await notify_at(signal, range(5, 45, 5))
    await until(2 * MINUTE)
    ends = await tasks.shutdown()
    assert calls >= 4
    assert most == 2
    assert {end.ending for end in ends} == {Ending.FINISHED}
    assert len(ends) == 4


async def test_3_8_6_a_vacuum_that_sleeps_an_hour_runs_hourly_whatever_its_poker_says() -> None:
    step = Script(Sleep("1h"), again=True)
    async with running(Service("vacuum", step, wake=[every("10m")])):
        await until(4 * HOUR - 1)
    assert step.calls == [0, 1 * HOUR, 2 * HOUR, 3 * HOUR]


async def test_3_8_7_an_error_in_the_first_call_is_caught_and_the_service_goes_on() -> None:
    step = Script(Boom())
    stop = Stop()
    run = asyncio.create_task(Service("fragile", step, wake=[every("1s")], on_panic="retry").run(stop))
    await until(10)
    stop.set()
    await run
    assert len(step.calls) > 1
    assert now() == 10


async def test_3_8_8_a_failing_service_and_its_sibling_both_go_on() -> None:
    failing, healthy = Script(Boom(), again=True), Script()
    async with TaskSet() as tasks:
        tasks.start(Service("failing", failing, wake=[every("1s")], backoff=Backoff.fixed("500ms")))
        tasks.start(Service("healthy", healthy, wake=[every("1s")]))
        await until(10.25)
        assert failing.calls == [tick / 2 for tick in range(21)]
        assert healthy.calls == list(range(11))


# What the project around those tests pins for its workers.


async def test_an_already_stopped_service_makes_no_call_but_tells_of_its_start_and_stop(
    virtual_time: VirtualTime,
) -> None:
    step, events, stop, signal = Script(), list[ServiceEvent](), Stop(), Notifier()
    stop.set()
    signal.notify_one()
    await Service("late", step, wake=[signal], listeners=[events.append]).run(stop)
    assert step.calls == []
    assert events == [Started(service="late"), Stopped(service="late")]
    assert virtual_time.elapsed == 0


@pytest.mark.parametrize(
    "act",
    [Idle(), Sleep("1h"), Sleep("1h", wakeable=True), Proceed(), Boom()],
    ids=["idle", "asleep", "dozing", "pausing", "backing off"],
)
async def test_a_stop_ends_a_waiting_service_at_once(act: Directive | BaseException) -> None:
    step, stop = Script(act), Stop()
    service = Service("waiting", step, pacing=Pacing(active_interval="1h"), backoff=Backoff.fixed("1h"))
    run = asyncio.create_task(service.run(stop))
    await until(1 * MINUTE)
    assert not run.done()
    stop.set()
    await run
    assert now() == 1 * MINUTE
    assert step.calls == [0]


async def test_a_stop_ends_a_service_that_waits_for_a_place_at_once() -> None:
    lane, stop = Lane(1), Stop()
    first, second = Script(Work(1 * HOUR)), Script()
    async with running(Service("holder", first, bulkhead=Bulkhead(lane))):
        run = asyncio.create_task(Service("waiting", second, bulkhead=Bulkhead(lane)).run(stop))
        await until(1 * MINUTE)
        assert not run.done()
        stop.set()
        await run
        assert now() == 1 * MINUTE
    assert second.calls == []


@pytest.mark.parametrize(
    "act",
    [Idle(), Sleep("1h"), Sleep("1h", wakeable=True), Proceed(), Boom(), Work(HOUR)],
    ids=["idle", "asleep", "dozing", "pausing", "backing off", "at work"],
)
async def test_a_cancelled_service_ends_at_once(act: Work | Directive | BaseException) -> None:
    step = Script(act)
    service = Service("waiting", step, pacing=Pacing(active_interval="1h"), backoff=Backoff.fixed("1h"))
    run = asyncio.create_task(service.run(Stop()))
    await until(1 * MINUTE)
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert now() == 1 * MINUTE
    assert step.calls == [0]


async def test_a_step_under_way_finishes_after_the_stop() -> None:
    step, stop = Script(Work(1 * HOUR, Proceed())), Stop()
    run = asyncio.create_task(Service("thorough", step, pacing=NO_PAUSE).run(stop))
    await until(1 * MINUTE)
    stop.set()
    await run
    assert step.ends == [1 * HOUR]
    assert len(step.calls) == 1
    assert now() == 1 * HOUR


async def test_a_success_resets_the_backoff() -> None:
    step, events = Script(Boom(), Boom(), Boom(), Sleep(1), Boom(), Boom()), list[ServiceEvent]()
    backoff = Backoff.exponential(1, multiplier=2, cap=60, jitter=0)
    async with running(Service("flaky", step, backoff=backoff, listeners=[events.append])):
        await until(1 * MINUTE)
    failed = [event for event in events if isinstance(event, Failed)]
    assert [(event.failures, event.backoff) for event in failed] == [(1, 1), (2, 2), (3, 4), (1, 1), (2, 2)]


async def test_the_pace_goes_from_30_to_20_to_10_ms_and_stays_there() -> None:
    step = Script(*[Proceed()] * 4)
    pacing = Pacing(active_interval="30ms", min_interval="10ms", ramp_step="10ms")
    async with running(Service("eager", step, pacing=pacing)):
        await until(1)
    assert step.calls == pytest.approx([0, 0.03, 0.05, 0.06, 0.07])


async def test_a_place_is_held_for_the_whole_step() -> None:
    lane = Lane(1)
    first, second = Script(Work(3)), Script()
    async with running(
        Service("first", first, bulkhead=Bulkhead(lane)), Service("second", second, bulkhead=Bulkhead(lane))
    ):
        await until(10)
    assert first.calls == [0]
    assert second.calls == [3]
