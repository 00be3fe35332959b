"""Who is woken by a notification, what is kept of it when nobody waits, and how intervals behave."""

import asyncio
import threading
from collections.abc import Callable
from contextvars import Context
from datetime import timedelta

import pytest

from mainspring.duration import Duration
from mainspring.errors import DeclarationError
from mainspring.supervise import (
    NO_PAUSE,
    Backoff,
    Bulkhead,
    Directive,
    Idle,
    Lane,
    Notifier,
    Pacing,
    Proceed,
    Service,
    Sleep,
    Stop,
    every,
)
from mainspring.testing import VirtualTime
from tests.supervise.conftest import Boom, Script, Work, has_permit, notify_at, now, running, settle, until

pytestmark = pytest.mark.usefixtures("virtual_time")


# Permits.


async def test_a_service_starts_with_one_step_by_itself() -> None:
    step = Script()
    async with running(Service("ready", step)):
        await until(1000)
    assert step.calls == [0]


async def test_a_service_that_starts_idle_waits_for_its_first_notification() -> None:
    step, signal = Script(), Notifier()
    async with running(Service("idle", step, wake=[signal], start_idle=True)):
        await notify_at(signal, [7])
        await until(1000)
    assert step.calls == [7]


async def test_a_service_that_starts_idle_without_notifiers_never_makes_a_step() -> None:
    step, stop = Script(), Stop()
    run = asyncio.create_task(Service("never", step, start_idle=True).run(stop))
    await until(1000)
    assert not run.done()
    stop.set()
    await run
    assert step.calls == []


async def test_many_notifications_while_nobody_waits_are_one_permit() -> None:
    step, signal = Script(), Notifier()
    for _ in range(5):
        signal.notify_one()
    async with running(Service("idle", step, wake=[signal], start_idle=True)):
        await until(10)
    assert step.calls == [0]
    assert not await has_permit(signal)


async def test_a_permit_waits_for_a_service_to_come() -> None:
    step, signal = Script(), Notifier()
    signal.notify_one()
    await until(50)
    async with running(Service("idle", step, wake=[signal], start_idle=True)):
        await until(60)
    assert step.calls == [50]


async def test_the_initial_wake_and_a_stored_permit_are_one_step() -> None:
    step, signal = Script(), Notifier()
    signal.notify_one()
    async with running(Service("ready", step, wake=[signal])):
        await until(10)
    assert step.calls == [0]
    assert not await has_permit(signal)


async def test_permits_of_several_notifiers_are_one_step() -> None:
    step, notifiers = Script(), [Notifier() for _ in range(3)]
    for notifier in notifiers:
        notifier.notify_one()
    async with running(Service("idle", step, wake=notifiers, start_idle=True)):
        await until(10)
    assert step.calls == [0]
    assert [await has_permit(notifier) for notifier in notifiers] == [False, False, False]


async def test_notifications_during_a_step_lead_to_one_step_right_after_it() -> None:
    step, signal = Script(Work(10), Work(1)), Notifier()
    async with running(Service("busy", step, wake=[signal])):
        await notify_at(signal, [2, 4, 6])
        await until(100)
    assert step.calls == [0, 10]


async def test_a_step_that_notifies_its_own_service_is_followed_by_another() -> None:
    signal, calls = Notifier(), list[float]()

    async def step() -> Directive:
        calls.append(now())
        if len(calls) < 3:
            signal.notify_one()
        return Idle()

    async with running(Service("own", step, wake=[signal])):
        await until(1)
    assert calls == [0, 0, 0]


async def test_a_step_answers_what_was_notified_while_it_waited_for_its_place() -> None:
    lane, signal = Lane(1), Notifier()
    holder, step = Script(Work(10)), Script()
    async with running(
        Service("holder", holder, bulkhead=Bulkhead(lane)),
        Service("waiting", step, wake=[signal], bulkhead=Bulkhead(lane)),
    ):
        await notify_at(signal, [3, 6])
        await until(100)
    assert step.calls == [10]


@pytest.mark.parametrize(
    "act", [Proceed(), Sleep(10), Boom()], ids=["after a pause", "after a sleep", "after a backoff"]
)
async def test_a_step_answers_what_was_notified_before_it(act: Directive | BaseException) -> None:
    step, signal = Script(act), Notifier()
    service = Service("later", step, wake=[signal], pacing=Pacing(active_interval=10), backoff=Backoff.fixed(10))
    async with running(service):
        await notify_at(signal, [3])
        await until(100)
    assert step.calls == [0, 10]


async def test_a_notification_cuts_a_wakeable_sleep_short() -> None:
    step, signal = Script(Sleep(100, wakeable=True), Sleep(100, wakeable=True)), Notifier()
    async with running(Service("dozing", step, wake=[signal])):
        await notify_at(signal, [30])
        await until(1000)
    assert step.calls == [0, 30, 130]


async def test_a_permit_stored_during_the_step_cuts_a_wakeable_sleep_short_at_once() -> None:
    step, signal = Script(Work(10, Sleep(100, wakeable=True))), Notifier()
    async with running(Service("dozing", step, wake=[signal])):
        await notify_at(signal, [3])
        await until(1000)
    assert step.calls == [0, 10]


async def test_an_interval_cuts_a_wakeable_sleep_short() -> None:
    step = Script(Sleep(100, wakeable=True))
    async with running(Service("dozing", step, wake=[every(40)])):
        await until(79)
    assert step.calls == [0, 40]


async def test_a_wakeable_sleep_that_is_over_leaves_no_claim_on_the_next_notification() -> None:
    dozing, idle, signal = Script(Sleep(5, wakeable=True), Sleep(100)), Script(), Notifier()
    async with running(Service("dozing", dozing, wake=[signal]), Service("idle", idle, wake=[signal], start_idle=True)):
        await notify_at(signal, [10])
        await until(50)
    assert dozing.calls == [0, 5]
    assert idle.calls == [10]


# Several services, one notifier.


async def test_a_notification_wakes_one_service_the_one_that_waited_longest() -> None:
    signal = Notifier()
    steps = [Script(Work(start)) for start in (3, 1, 2)]  # idle from that time on
    async with running(*[Service(f"s{n}", step, wake=[signal]) for n, step in enumerate(steps)]):
        await notify_at(signal, [10, 20, 30, 40])
        await until(100)
    assert [step.calls for step in steps] == [[0, 30], [0, 10, 40], [0, 20]]


async def test_several_notifications_at_once_wake_several_services() -> None:
    signal, steps = Notifier(), [Script() for _ in range(4)]
    async with running(*[Service(f"s{n}", step, wake=[signal], start_idle=True) for n, step in enumerate(steps)]):
        await until(5)
        for _ in range(3):
            signal.notify_one()
        await until(10)
    assert [step.calls for step in steps] == [[5], [5], [5], []]


async def test_surplus_notifications_are_answered_by_the_steps_that_start_after_them() -> None:
    signal, steps = Notifier(), [Script(Work(3)), Script(Work(5))]
    async with running(*[Service(f"s{n}", step, wake=[signal], start_idle=True) for n, step in enumerate(steps)]):
        await until(5)
        for _ in range(5):
            signal.notify_one()
        await until(100)
    assert [step.calls for step in steps] == [[5], [5]]
    assert not await has_permit(signal)


async def test_a_service_at_work_is_not_among_those_that_wait() -> None:
    both, other = Notifier(), Notifier()
    busy, idle = Script(Work(0), Work(100)), Script()
    async with running(
        Service("busy", busy, wake=[other, both]),
        Service("idle", idle, wake=[both], start_idle=True),
    ):
        await notify_at(other, [1])  # busy waited for `both` too, and longer
        await notify_at(both, [2])
        await until(50)
    assert busy.calls == [0, 1]
    assert idle.calls == [2]


@pytest.mark.parametrize("manner", ["stopped", "cancelled"])
async def test_a_service_that_ended_is_not_among_those_that_wait(manner: str) -> None:
    signal, gone, idle, stop = Notifier(), Script(), Script(), Stop()
    run = asyncio.create_task(Service("gone", gone, wake=[signal], start_idle=True).run(stop))
    async with running(Service("idle", idle, wake=[signal], start_idle=True)):
        await until(1)
        if manner == "stopped":
            stop.set()
        else:
            run.cancel()
        await asyncio.wait([run])
        await notify_at(signal, [2])
        await until(3)
    assert gone.calls == []
    assert idle.calls == [2]


# Permits that are given back.


@pytest.mark.parametrize("manner", ["stopped", "cancelled"])
@pytest.mark.parametrize("order", ["notified first", "ended first"])
async def test_a_notification_and_an_end_at_the_same_moment_lose_nothing(manner: str, order: str) -> None:
    signal, step, stop = Notifier(), Script(), Stop()
    run = asyncio.create_task(Service("ending", step, wake=[signal], start_idle=True).run(stop))
    await until(5)
    if order == "notified first":
        signal.notify_one()
    if manner == "stopped":
        stop.set()
    else:
        run.cancel()
    if order == "ended first":
        signal.notify_one()
    await asyncio.wait([run])
    assert now() == 5
    assert bool(step.calls) != await has_permit(signal)


@pytest.mark.parametrize("manner", ["stopped", "cancelled"])
async def test_a_service_that_ends_on_the_way_to_its_place_gives_its_permit_back(manner: str) -> None:
    lane, signal, stop = Lane(1), Notifier(), Stop()
    holder, step = Script(Work(100)), Script()
    async with running(Service("holder", holder, bulkhead=Bulkhead(lane))):
        run = asyncio.create_task(
            Service("waiting", step, wake=[signal], start_idle=True, bulkhead=Bulkhead(lane)).run(stop)
        )
        await notify_at(signal, [5])
        await until(10)
        if manner == "stopped":
            stop.set()
        else:
            run.cancel()
        await asyncio.wait([run])
        assert step.calls == []
        assert await has_permit(signal)


async def test_a_permit_that_is_given_back_goes_to_the_one_who_waits() -> None:
    lane, signal, stop = Lane(1), Notifier(), Stop()
    holder, step, other = Script(Work(100)), Script(), Script()
    async with running(Service("holder", holder, bulkhead=Bulkhead(lane))):
        run = asyncio.create_task(
            Service("waiting", step, wake=[signal], start_idle=True, bulkhead=Bulkhead(lane)).run(stop)
        )
        await notify_at(signal, [5])
        async with running(Service("other", other, wake=[signal], start_idle=True)):
            await until(10)
            assert other.calls == []
            stop.set()
            await run
            await until(20)
    assert step.calls == []
    assert other.calls == [10]
    assert not await has_permit(signal)


async def test_every_permit_that_was_taken_is_given_back_to_its_own_notifier() -> None:
    lane, signals, stop = Lane(1), [Notifier(), Notifier(), Notifier()], Stop()
    holder, step = Script(Work(100)), Script()
    async with running(Service("holder", holder, bulkhead=Bulkhead(lane))):
        run = asyncio.create_task(
            Service("waiting", step, wake=signals, start_idle=True, bulkhead=Bulkhead(lane)).run(stop)
        )
        await until(5)
        signals[0].notify_one()
        signals[2].notify_one()
        await until(10)
        stop.set()
        await run
    assert step.calls == []
    assert [await has_permit(signal) for signal in signals] == [True, False, True]


async def test_a_service_that_was_stopped_before_it_began_leaves_the_permit_alone() -> None:
    signal, stop, step = Notifier(), Stop(), Script()
    signal.notify_one()
    stop.set()
    await Service("late", step, wake=[signal], start_idle=True).run(stop)
    assert step.calls == []
    assert await has_permit(signal)


async def test_a_step_that_was_run_uses_its_permit_up_even_if_it_fails() -> None:
    signal, stop, step = Notifier(), Stop(), Script(Boom())
    run = asyncio.create_task(
        Service("failing", step, wake=[signal], start_idle=True, backoff=Backoff.fixed(100)).run(stop)
    )
    await notify_at(signal, [5])
    await until(10)
    stop.set()
    await run
    assert step.calls == [5]
    assert not await has_permit(signal)


async def test_a_notification_during_a_sleep_stays_stored_when_the_service_is_stopped() -> None:
    signal, stop, step = Notifier(), Stop(), Script(Sleep(100))
    run = asyncio.create_task(Service("asleep", step, wake=[signal]).run(stop))
    await notify_at(signal, [5])
    await until(10)
    stop.set()
    await run
    assert step.calls == [0]
    assert await has_permit(signal)


# Intervals.


async def test_an_interval_wakes_at_a_fixed_rate_first_after_one_whole_interval() -> None:
    step = Script(Work(0), Work(1), Work(3), Work(2), Work(0))
    async with running(Service("ticking", step, wake=[every(4)], start_idle=True)):
        await until(21)
    assert step.calls == [4, 8, 12, 16, 20]


async def test_an_interval_counts_from_the_start_of_its_service() -> None:
    step, interval = Script(), every(4)
    await until(3)
    async with running(Service("ticking", step, wake=[interval])):
        await until(16)
    assert step.calls == [3, 7, 11, 15]


async def test_what_falls_due_while_the_service_works_is_one_step_and_keeps_the_rate() -> None:
    step = Script(Work(13))
    async with running(Service("ticking", step, wake=[every(4)], start_idle=True)):
        await until(29)
    assert step.calls == [4, 17, 20, 24, 28]


async def test_an_interval_is_not_moved_by_steps_that_others_caused() -> None:
    step, signal = Script(), Notifier()
    async with running(Service("ticking", step, wake=[signal, every(10)], start_idle=True)):
        await notify_at(signal, [3, 13, 19])
        await until(31)
    assert step.calls == [3, 10, 13, 19, 20, 30]


async def test_what_fell_due_during_a_hard_wait_is_answered_by_the_step_after_it() -> None:
    step = Script(Sleep(15))
    async with running(Service("ticking", step, wake=[every(10)])):
        await until(31)
    assert step.calls == [0, 15, 20, 30]


async def test_intervals_of_several_lengths_compose() -> None:
    step = Script()
    async with running(Service("ticking", step, wake=[every(3), every(5)])):
        await until(14)
    assert step.calls == [0, 3, 5, 6, 9, 10, 12]


async def test_services_that_share_an_interval_are_all_woken() -> None:
    interval, steps = every(5), [Script(), Script()]
    async with running(*[Service(f"s{n}", step, wake=[interval]) for n, step in enumerate(steps)]):
        await until(12)
    assert [step.calls for step in steps] == [[0, 5, 10], [0, 5, 10]]


@pytest.mark.parametrize("length", [90, 90.0, "90s", "1m30s", timedelta(seconds=90)])
async def test_an_interval_is_given_as_any_duration(length: Duration) -> None:
    step = Script()
    async with running(Service("ticking", step, wake=[every(length)])):
        await until(100)
    assert step.calls == [0, 90]


async def test_a_fixed_rate_does_not_drift_over_a_million_seconds() -> None:
    step = Script()
    async with running(Service("ticking", step, wake=[every("1000s")])):
        await until(1_000_500)
    assert step.calls == [tick * 1000 for tick in range(1001)]


async def test_notifications_at_the_same_moment_as_an_interval_are_at_least_one_step() -> None:
    step, signal = Script(), Notifier()
    async with running(Service("both", step, wake=[signal, every(5)], start_idle=True, pacing=NO_PAUSE)):
        await notify_at(signal, [5])
        await settle()
        assert step.calls in ([5], [5, 5])
        await until(9)
    assert not await has_permit(signal)


# Loops whose timers are not exact, and loops that end.


class EarlyLoop(asyncio.SelectorEventLoop):
    """Fires timers a little early, as loops do that count in whole milliseconds."""

    def call_at(
        self, when: float, callback: Callable[..., object], *args: object, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return super().call_at(when - 0.009, callback, *args, context=context)


def test_an_interval_does_not_run_hot_where_timers_fire_early() -> None:
    step = Script()

    async def story() -> None:
        async with running(Service("poller", step, wake=[every(0.02)])):
            await asyncio.sleep(0.2)

    with asyncio.Runner(loop_factory=EarlyLoop) as runner:
        runner.run(story())
    assert len(step.calls) <= 12


def test_a_thread_that_notifies_a_loop_about_to_close_is_heard_on_the_next() -> None:
    step, signal = Script(), Notifier()

    async def wait() -> None:
        async with running(Service("heir", step, wake=[signal], start_idle=True)):
            await asyncio.sleep(0)

    loop = asyncio.new_event_loop()
    loop.run_until_complete(wait())
    thread = threading.Thread(target=signal.notify_one)
    thread.start()
    thread.join()
    loop.close()  # before it came to what the thread had asked for
    assert step.calls == []
    asyncio.run(wait())
    assert len(step.calls) == 1


def test_a_call_after_the_loop_was_closed_is_heard_on_the_next() -> None:
    step, signal = Script(), Notifier()
    loop = asyncio.new_event_loop()
    left = loop.create_task(Service("left", Script(), wake=[signal], start_idle=True).run(Stop()))
    for _ in range(5):
        loop.run_until_complete(asyncio.sleep(0))
    loop.close()  # with a service still waiting
    signal.notify_one()

    async def wait() -> None:
        async with running(Service("heir", step, wake=[signal], start_idle=True)):
            await asyncio.sleep(0)

    asyncio.run(wait())
    assert len(step.calls) == 1
    left._log_destroy_pending = False  # type: ignore[attr-defined] # private to asyncio; that it was left is the story


async def test_a_step_answers_what_threads_told_of_before_it() -> None:
    step, signal = Script(), Notifier()
    async with running(Service("reader", step, wake=[signal], start_idle=True)):
        signal.notify_one()
        thread = threading.Thread(target=signal.notify_one)
        thread.start()
        thread.join()
        await until(10)
    assert step.calls == [0]


@pytest.mark.parametrize("interval", [0.1, 0.3, 0.7, 1 / 3, 1.1])
async def test_an_interval_wakes_once_for_each_due_time_however_floats_round(interval: float) -> None:
    for count in range(1, 60):
        start, step = now(), Script(Work(count * interval))
        async with running(Service("poller", step, wake=[every(interval)])):
            await asyncio.sleep((count + 2.5) * interval)
        assert [round((call - start) / interval) for call in step.calls] == [0, count, count + 1, count + 2]


def test_services_on_two_loops_at_once_are_told_apart() -> None:
    signal, stop = Notifier(), Stop()
    with VirtualTime() as one, VirtualTime() as two:

        async def begin() -> asyncio.Task[None]:
            task = asyncio.create_task(Service("first", Script(), wake=[signal], start_idle=True).run(stop))
            await asyncio.sleep(1)
            return task

        first = one.run(begin())
        with pytest.raises(DeclarationError, match="give each loop its own"):
            two.run(Service("second", Script(), wake=[signal], start_idle=True).run(Stop()))
        stop.set()
        one.run(asyncio.wait_for(first, 1))


def test_who_is_refused_by_one_line_does_not_stay_in_the_others() -> None:
    signal, stop, late = Notifier(), Stop(), Stop()
    with VirtualTime() as one, VirtualTime() as two:

        async def begin() -> asyncio.Task[None]:
            task = asyncio.create_task(Service("first", Script(), wake=[signal], start_idle=True).run(stop))
            await asyncio.sleep(1)
            return task

        first = one.run(begin())
        with pytest.raises(DeclarationError):
            two.run(Service("second", Script(), wake=[signal], start_idle=True).run(late))
        assert not late.call_first()
        stop.set()
        one.run(asyncio.wait_for(first, 1))
