"""How long a service waits after each kind of result, and what counts as an error."""

import asyncio
from collections.abc import Iterable
from datetime import timedelta
from itertools import pairwise

import pytest

from mainspring.duration import Duration
from mainspring.supervise import (
    NO_PAUSE,
    Backoff,
    Completed,
    Directive,
    Failed,
    Idle,
    Notifier,
    Pacing,
    Proceed,
    Service,
    ServiceEvent,
    Sleep,
    Stop,
    Stopped,
    every,
)
from tests.supervise.conftest import Boom, Script, Work, has_permit, notify_at, now, running, settle, until

pytestmark = pytest.mark.usefixtures("virtual_time")


def pauses(calls: Iterable[float]) -> list[float]:
    return [later - earlier for earlier, later in pairwise(calls)]


# Pacing. Powers of two, so that sums are exact.

RAMP = Pacing(active_interval=1, min_interval=0.25, ramp_step=0.25)


async def test_pauses_shrink_from_the_active_interval_to_the_least() -> None:
    step = Script(*[Proceed()] * 6)
    async with running(Service("eager", step, pacing=RAMP)):
        await until(100)
    assert pauses(step.calls) == [1, 0.75, 0.5, 0.25, 0.25, 0.25]


async def test_the_usual_pauses_go_from_100_ms_to_10_ms_by_10_ms() -> None:
    step = Script(*[Proceed()] * 12)
    async with running(Service("eager", step)):
        await until(100)
    expected = [0.1, 0.09, 0.08, 0.07, 0.06, 0.05, 0.04, 0.03, 0.02, 0.01, 0.01, 0.01]
    assert pauses(step.calls) == pytest.approx(expected)


async def test_a_step_that_does_not_divide_the_ramp_ends_at_the_least_interval() -> None:
    step = Script(*[Proceed()] * 4)
    pacing = Pacing(active_interval=1, min_interval=0.25, ramp_step=0.5)
    async with running(Service("eager", step, pacing=pacing)):
        await until(100)
    assert pauses(step.calls) == [1, 0.5, 0.25, 0.25]


async def test_without_a_ramp_the_pause_stays_as_it_is() -> None:
    step = Script(*[Proceed()] * 4)
    async with running(Service("steady", step, pacing=Pacing(active_interval=1, min_interval=0.25, ramp_step=0))):
        await until(100)
    assert pauses(step.calls) == [1, 1, 1, 1]


@pytest.mark.parametrize(
    "other", [Idle(), Sleep(2), Sleep(2, wakeable=True), Boom()], ids=["idle", "sleep", "doze", "error"]
)
async def test_anything_but_proceed_starts_the_pace_anew(other: Directive | BaseException) -> None:
    step = Script(Proceed(), Proceed(), other, Proceed(), Proceed())
    # Started at 0, 1, 1.75; again at 3.75, by itself or by the interval.
    async with running(Service("eager", step, pacing=RAMP, backoff=Backoff.fixed(2), wake=[every(3.75)])):
        await until(7)
    assert step.calls == [0, 1, 1.75, 3.75, 4.75, 5.5]


async def test_a_pause_is_counted_from_the_end_of_the_step() -> None:
    step = Script(Work(5, Proceed()), Work(5, Proceed()))
    async with running(Service("eager", step, pacing=RAMP)):
        await until(100)
    assert step.calls == [0, 6, 11.75]


async def test_a_notification_does_not_cut_a_pause_short() -> None:
    step, signal = Script(Proceed(), Proceed()), Notifier()
    async with running(Service("eager", step, wake=[signal, every(3)], pacing=Pacing(active_interval=10))):
        await notify_at(signal, [1, 2, 11])
        await until(20.5)
    assert step.calls == pytest.approx([0, 10, 19.99])


async def test_no_pause_is_no_pause() -> None:
    step = Script(*[Proceed()] * 100)
    async with running(Service("eager", step, pacing=NO_PAUSE)):
        await until(1)
    assert step.calls == [0] * 101


async def test_a_service_without_pauses_lets_others_have_their_turns() -> None:
    done = False
    others = 0

    async def greedy() -> Directive:
        return Idle() if done else Proceed()

    async with running(Service("greedy", greedy, pacing=NO_PAUSE)):
        for _ in range(10):
            await asyncio.sleep(0)
            others += 1
        done = True
    assert others == 10


async def test_a_service_without_pauses_can_be_stopped() -> None:
    calls = 0
    stop = Stop()

    async def greedy() -> Directive:
        nonlocal calls
        calls += 1
        if calls == 10:
            stop.set()
        return Proceed() if calls < 1000 else Idle()

    await Service("greedy", greedy, pacing=NO_PAUSE).run(stop)
    assert calls == 10


@pytest.mark.parametrize("time", [90, 90.0, "90s", "1m30s", timedelta(seconds=90)])
@pytest.mark.parametrize("wakeable", [True, False])
async def test_a_sleep_is_given_as_any_duration(time: Duration, wakeable: bool) -> None:
    step = Script(Sleep(time, wakeable=wakeable))
    async with running(Service("asleep", step)):
        await until(1000)
    assert step.calls == [0, 90]


async def test_a_sleep_is_counted_from_the_end_of_the_step() -> None:
    step = Script(Work(5, Sleep(10)))
    async with running(Service("asleep", step)):
        await until(100)
    assert step.calls == [0, 15]


async def test_a_sleep_of_no_time_is_another_step_at_once() -> None:
    step = Script(Sleep(0), Sleep(0, wakeable=True))
    async with running(Service("asleep", step)):
        await until(100)
    assert step.calls == [0, 0, 0]


# Backoff.


@pytest.mark.parametrize(
    ("backoff", "expected"),
    [
        (Backoff.fixed(3), [3, 3, 3, 3, 3, 3]),
        (Backoff.linear(1, 2, cap=8), [1, 3, 5, 7, 8, 8]),
        (Backoff.exponential(1, multiplier=3, cap=60, jitter=0), [1, 3, 9, 27, 60, 60]),
        (Backoff.exponential("1s", cap=timedelta(seconds=10), jitter=0), [1, 2, 4, 8, 10, 10]),
    ],
    ids=["fixed", "linear", "exponential", "doubling"],
)
async def test_backoffs_grow_as_they_say(backoff: Backoff, expected: list[float]) -> None:
    step = Script(*[Boom()] * 6)
    async with running(Service("failing", step, backoff=backoff)):
        await until(1000)
    assert pauses(step.calls) == expected


async def test_a_backoff_is_counted_from_the_end_of_the_step() -> None:
    step = Script(Work(5, Boom()))
    async with running(Service("failing", step, backoff=Backoff.fixed(3))):
        await until(100)
    assert step.calls == [0, 8]


@pytest.mark.parametrize(("roll", "factor"), [(0.0, 0.5), (0.25, 0.75), (0.5, 1.0), (0.75, 1.25)])
async def test_jitter_spreads_a_backoff_evenly_to_both_sides(roll: float, factor: float) -> None:
    step, backoff = Script(*[Boom()] * 3), Backoff.exponential(1, multiplier=2, cap=60, jitter=0.5)
    async with running(Service("failing", step, backoff=backoff, roll=lambda: roll)):
        await until(100)
    assert pauses(step.calls) == [1 * factor, 2 * factor, 4 * factor]


async def test_jitter_does_not_lift_a_backoff_above_its_cap() -> None:
    step, backoff = Script(*[Boom()] * 5), Backoff.exponential(1, multiplier=2, cap=4, jitter=0.5)
    async with running(Service("failing", step, backoff=backoff, roll=lambda: 0.75)):
        await until(100)
    steady = 4 / 1.5  # as far below the cap as jitter reaches, so that there is something left to spread
    assert pauses(step.calls) == pytest.approx([1.25, 2.5, steady * 1.25, steady * 1.25, steady * 1.25])


async def test_the_highest_roll_reaches_the_cap_and_no_more() -> None:
    step, backoff = Script(*[Boom()] * 5), Backoff.exponential(1, multiplier=2, cap=4, jitter=0.5)
    async with running(Service("failing", step, backoff=backoff, roll=lambda: 1.0)):
        await until(100)
    assert pauses(step.calls) == pytest.approx([1.5, 3, 4, 4, 4])


async def test_every_failure_rolls_anew() -> None:
    rolls = iter([0.0, 0.25, 0.75])
    step = Script(*[Boom()] * 3)
    async with running(Service("failing", step, backoff=Backoff.fixed(8, jitter=0.25), roll=lambda: next(rolls))):
        await until(100)
    assert pauses(step.calls) == [6, 7, 9]


async def test_the_usual_backoff_doubles_from_100_ms_to_half_a_minute() -> None:
    step = Script(*[Boom()] * 11)
    async with running(Service("failing", step, roll=lambda: 0.5)):
        await until(1000)
    steady = 30 / 1.3
    expected = [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, steady, steady, steady]
    assert pauses(step.calls) == pytest.approx(expected)


@pytest.mark.parametrize(("roll", "factor"), [(0.0, 0.7), (0.75, 1.15)])
async def test_the_usual_backoff_is_spread_by_three_tenths(roll: float, factor: float) -> None:
    step = Script(*[Boom()] * 2)
    async with running(Service("failing", step, roll=lambda: roll)):
        await until(1000)
    assert pauses(step.calls) == pytest.approx([0.1 * factor, 0.2 * factor])


@pytest.mark.parametrize(
    "success", [Idle(), Proceed(), Sleep(2), Sleep(2, wakeable=True)], ids=["idle", "proceed", "sleep", "doze"]
)
async def test_any_success_resets_the_backoff(success: Directive) -> None:
    step, events, signal = Script(Boom(), Boom(), success, Boom(), Boom()), list[ServiceEvent](), Notifier()
    backoff = Backoff.exponential(1, multiplier=2, cap=60, jitter=0)
    async with running(Service("flaky", step, wake=[signal], backoff=backoff, listeners=[events.append])):
        await notify_at(signal, [3.5])  # for the one that idles
        await until(100)
    assert [event.backoff for event in events if isinstance(event, Failed)] == [1, 2, 1, 2]


# What counts as an error.


@pytest.mark.parametrize("nothing", [None, 3, "idle", Idle, Sleep])
async def test_a_step_that_returns_no_directive_has_failed(nothing: object) -> None:
    calls, events = list[float](), list[ServiceEvent]()

    async def step() -> Directive:
        calls.append(now())
        return nothing if len(calls) == 1 else Idle()  # type: ignore[return-value] # the mistake in question

    async with running(Service("wrong", step, backoff=Backoff.fixed(2), listeners=[events.append])):
        await until(10)
    assert calls == [0, 2]
    assert [event.failures for event in events if isinstance(event, Failed)] == [1]


async def test_a_step_that_raises_a_cancellation_of_its_own_has_failed() -> None:
    events, cancellation = list[ServiceEvent](), asyncio.CancelledError()
    step = Script(cancellation)
    async with running(Service("odd", step, backoff=Backoff.fixed(2), listeners=[events.append])):
        await until(10)
    assert step.calls == [0, 2]
    assert [event.error for event in events if isinstance(event, Failed)] == [cancellation]


async def test_a_step_that_awaits_something_cancelled_has_failed() -> None:
    calls = list[float]()

    async def step() -> Directive:
        calls.append(now())
        if len(calls) == 1:
            inner = asyncio.create_task(asyncio.sleep(100))
            asyncio.get_running_loop().call_later(3, inner.cancel)
            await inner
        return Idle()

    async with running(Service("odd", step, backoff=Backoff.fixed(2))):
        await until(10)
    assert calls == [0, 5]


async def test_a_cancelled_service_does_not_take_its_cancellation_for_an_error() -> None:
    step, events = Script(Work(100)), list[ServiceEvent]()
    run = asyncio.create_task(Service("cancelled", step, listeners=[events.append]).run(Stop()))
    await until(3)
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert not any(isinstance(event, Failed) for event in events)
    assert events[-1] == Stopped(service="cancelled")


@pytest.mark.parametrize("answer", [Boom(), Sleep(10), Idle()], ids=["an error", "a sleep", "idle"])
async def test_a_cancelled_service_ends_whatever_its_step_makes_of_the_cancellation(
    answer: Directive | BaseException,
) -> None:
    async def step() -> Directive:
        try:
            await asyncio.sleep(100)
        except asyncio.CancelledError:
            if isinstance(answer, BaseException):
                raise answer from None
            return answer
        return Idle()

    events = list[ServiceEvent]()
    service = Service("cancelled", step, backoff=Backoff.fixed(10), listeners=[events.append])
    run = asyncio.create_task(service.run(Stop()))
    await until(3)
    run.cancel()
    await asyncio.wait([run], timeout=1)
    assert run.done()
    told = [event for event in events if isinstance(event, Completed | Failed)]
    if isinstance(answer, BaseException):  # its last words are not swallowed
        assert run.exception() is answer
        assert told == [Failed(service="cancelled", seconds=3, error=answer, failures=1, backoff=None)]
    else:
        assert run.cancelled()
        assert told == [Completed(service="cancelled", seconds=3, directive=answer)]


@pytest.mark.parametrize("error", [Boom("why"), SystemExit(3)], ids=["error", "exit"])
async def test_a_service_that_propagates_lets_the_error_out(error: BaseException) -> None:
    step, events = Script(Idle(), Work(2, error)), list[ServiceEvent]()
    service = Service("brittle", step, wake=[every(5)], on_panic="propagate", listeners=[events.append])
    with pytest.raises(type(error)) as raised:
        await service.run(Stop())
    assert raised.value is error
    assert step.calls == [0, 5]
    assert [(event.error, event.backoff) for event in events if isinstance(event, Failed)] == [(error, None)]
    assert events[-1] == Stopped(service="brittle")


async def test_a_service_that_propagates_dies_of_a_foreign_cancellation_and_does_not_look_cancelled() -> None:
    service = Service("brittle", Script(asyncio.CancelledError()), on_panic="propagate")
    with pytest.raises(RuntimeError, match="someone else cancelled"):
        await service.run(Stop())


async def test_a_step_that_exits_does_not_end_the_program() -> None:
    step = Script(SystemExit(2), Idle())
    async with running(Service("leaver", step, backoff=Backoff.fixed(1))):
        await until(5)
    assert step.calls == [0, 1]


async def test_a_step_that_is_no_async_function_is_told_as_such() -> None:
    events = list[ServiceEvent]()
    service = Service("sync", Idle, backoff=Backoff.fixed(10), listeners=[events.append])  # type: ignore[arg-type] # the mistake
    async with running(service):
        await until(1)
    [failed] = [event for event in events if isinstance(event, Failed)]
    assert "no async function" in str(failed.error)


async def test_a_service_that_propagates_uses_up_the_permit_of_the_step_that_failed() -> None:
    signal, step = Notifier(), Script(Boom())
    signal.notify_one()
    with pytest.raises(Boom):
        await Service("brittle", step, wake=[signal], start_idle=True, on_panic="propagate").run(Stop())
    assert not await has_permit(signal)


async def test_a_stop_during_a_failing_step_is_not_followed_by_a_backoff() -> None:
    step, stop = Script(Work(5, Boom())), Stop()
    run = asyncio.create_task(Service("failing", step, backoff=Backoff.fixed(100)).run(stop))
    await until(3)
    stop.set()
    await run
    assert now() == 5


async def test_a_stop_can_be_awaited_and_set_twice() -> None:
    stop, was_set = Stop(), list[bool]()
    waiting = asyncio.create_task(stop.wait())
    await until(3)
    was_set.append(stop.is_set())
    assert not waiting.done()
    stop.set()
    stop.set()
    was_set.append(stop.is_set())
    await waiting
    await stop.wait()
    assert was_set == [False, True]
    assert now() == 3


async def test_one_stop_ends_all_services_that_were_given_it() -> None:
    stop = Stop()
    runs = [asyncio.create_task(Service(f"s{n}", Script()).run(stop)) for n in range(3)]
    await until(3)
    stop.set()
    await settle()
    assert all(run.done() for run in runs)
