"""The flaws of taskward that are mended here (contracts 3.9), one story or more for each."""

import asyncio
import logging
import sys
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from itertools import pairwise

import pytest

from mainspring.supervise import (
    Backoff,
    Directive,
    Ending,
    Failed,
    Idle,
    Notifier,
    Service,
    ServiceEvent,
    Sleep,
    Stop,
    TaskEnd,
    TaskSet,
    every,
)
from mainspring.testing import VirtualTime
from tests.supervise.conftest import HOUR, MINUTE, Boom, Script, Work, notify_at, now, running, until

pytestmark = pytest.mark.usefixtures("virtual_time")


async def test_M1_failed_work_is_tried_again_after_its_backoff_without_another_notification() -> None:
    step, signal = Script(Boom(), Boom(), Idle()), Notifier()
    service = Service("retrier", step, wake=[signal, every("10m")], start_idle=True, backoff=Backoff.fixed(2))
    async with running(service):
        await notify_at(signal, [5])
        await until(9 * MINUTE)
    assert step.calls == [5, 7, 9]


async def test_M2_no_notification_and_no_interval_cuts_a_sleep_short() -> None:
    step, signal = Script(Sleep("1h"), Sleep("1h"), Idle()), Notifier()
    async with running(Service("sleeper", step, wake=[signal, every("7m")])):
        await notify_at(signal, [minute * MINUTE for minute in range(1, 110)])
        await until(2 * HOUR + 1)
    assert step.calls == [0, 1 * HOUR, 2 * HOUR]


async def test_M2_no_notification_and_no_interval_cuts_a_backoff_short() -> None:
    step, signal = Script(Boom(), Boom(), Boom(), Sleep("1h")), Notifier()
    backoff = Backoff.exponential("10m", multiplier=2, cap="1h", jitter=0)
    async with running(Service("failing", step, wake=[signal, every("7m")], backoff=backoff)):
        await notify_at(signal, [minute * MINUTE for minute in range(1, 80)])
    assert step.calls == [0, 10 * MINUTE, 30 * MINUTE, 70 * MINUTE]


async def test_M2_a_notification_during_a_sleep_is_answered_by_the_step_after_it() -> None:
    step, signal = Script(Sleep(10)), Notifier()
    async with running(Service("sleeper", step, wake=[signal])):
        await notify_at(signal, [3])
        await until(60)
    assert step.calls == [0, 10]


async def test_M3_leftover_work_is_looked_at_without_any_notification() -> None:
    step = Script()
    async with running(Service("restarted", step, wake=[Notifier(), every("10m")])):
        await until(1)
    assert step.calls == [0]


async def test_M3_a_signal_that_comes_before_the_service_is_scheduled_is_kept() -> None:
    step, signal = Script(), Notifier()
    async with TaskSet() as tasks:
        tasks.start(Service("unborn", step, wake=[signal], start_idle=True))
        signal.notify_one()  # its task has not been given a single turn yet
        await until(1)
    assert step.calls == [0]


# M11: threads that notify at the very moment at which the service goes idle. On a real loop: the race is between real
# threads, and virtual time would have nothing to tell. Each signal must be answered before its sender sends another,
# so a single lost one stops its sender for good; PATIENCE is how long that takes to show, and no part of a good run.

PATIENCE = 10
SENDERS = 4
SIGNALS = 1500


@pytest.fixture
def nervous_threads() -> Iterator[None]:
    """Let threads take turns every few microseconds."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(usual)


class Mailbox:
    """Letters come from threads; a step answers those that it finds."""

    def __init__(self, services: int = 1) -> None:
        self.signal = Notifier()
        self.steps = 0
        self.unanswered = 0
        self._letters: deque[threading.Event] = deque()
        self._services = [Service(f"reader-{n}", self._answer, wake=[self.signal]) for n in range(services)]

    async def _answer(self) -> Directive:
        self.steps += 1
        with suppress(IndexError):
            while True:
                self._letters.popleft().set()
        return Idle()

    def _send(self) -> None:
        for _ in range(SIGNALS):
            answer = threading.Event()
            self._letters.append(answer)
            self.signal.notify_one()
            if not answer.wait(PATIENCE):
                self.unanswered += 1
                return

    async def run(self) -> None:
        async with running(*self._services):
            await asyncio.gather(*[asyncio.to_thread(self._send) for _ in range(SENDERS)])


@pytest.mark.usefixtures("nervous_threads")
@pytest.mark.parametrize("services", [1, 3])
def test_M11_no_signal_of_a_thread_is_lost_however_it_meets_a_service_going_idle(services: int) -> None:
    mailbox = Mailbox(services)
    asyncio.run(mailbox.run())
    assert mailbox.unanswered == 0
    assert mailbox.steps <= SENDERS * SIGNALS + services


def test_M11_a_thread_wakes_a_loop_in_which_nothing_else_happens() -> None:
    """An idle loop waits in its selector; whoever only sets a flag does not wake it."""
    idle, answered = threading.Event(), threading.Event()
    signal, stop = Notifier(), Stop()
    in_time = False

    async def step() -> Directive:
        answered.set()
        return Idle()

    async def main() -> None:
        loop = asyncio.get_running_loop()
        loop.call_later(0, idle.set)

        def notify() -> None:
            nonlocal in_time
            idle.wait(PATIENCE)
            signal.notify_one()
            in_time = answered.wait(PATIENCE)
            loop.call_soon_threadsafe(stop.set)

        thread = threading.Thread(target=notify)
        thread.start()
        await Service("idle", step, wake=[signal], start_idle=True).run(stop)
        thread.join()

    asyncio.run(main())
    assert in_time


# M12: an end by a deadline, aborts, no detached pokers, deaths noticed when they happen.


class Stubborn:
    """Ends only when it is released, whoever cancels it."""

    def __init__(self) -> None:
        self.cancels: list[float] = []
        self.released = asyncio.Event()

    async def run(self) -> None:
        while not self.released.is_set():
            try:
                await self.released.wait()
            except asyncio.CancelledError:
                self.cancels.append(now())


async def test_M12_a_shutdown_is_over_at_its_deadline_whatever_a_task_does(
    virtual_time: VirtualTime, caplog: pytest.LogCaptureFixture
) -> None:
    stubborn, tasks = Stubborn(), TaskSet()
    tasks.spawn("stubborn", stubborn.run())
    tasks.start(Service("obedient", Script()))
    await until(100)
    ends = {end.name: end.ending for end in await tasks.shutdown(grace="3s", deadline="5s")}
    assert ends == {"stubborn": Ending.ABANDONED, "obedient": Ending.FINISHED}
    assert virtual_time.elapsed == 105
    assert stubborn.cancels[0] == 103
    assert any("stubborn" in record.getMessage() for record in caplog.records)
    stubborn.released.set()
    await until(106)


async def test_M12_a_task_that_will_not_stop_is_cancelled_after_the_grace(virtual_time: VirtualTime) -> None:
    endless, tasks = Script(Work(24 * HOUR)), TaskSet()
    tasks.start(Service("endless", endless))
    await until(100)
    (end,) = await tasks.shutdown(grace="3s", deadline="5s")
    assert end.name == "endless"
    assert end.ending is Ending.CANCELLED
    assert virtual_time.elapsed == 103
    assert endless.ends == [103]


@pytest.mark.parametrize("manner", ["stopped", "cancelled"])
async def test_M12_nothing_is_left_of_an_interval_when_its_service_ends(manner: str, virtual_time: VirtualTime) -> None:
    step, stop = Script(), Stop()
    me = asyncio.current_task()
    run = asyncio.create_task(Service("poked", step, wake=[every("1s"), every("90ms")]).run(stop))
    await until(10.5)
    if manner == "stopped":
        stop.set()
    else:
        run.cancel()
    await asyncio.wait([run])
    assert asyncio.all_tasks() == {me}
    assert [timer for timer in virtual_time.loop._scheduled if not timer.cancelled()] == []


async def test_M12_a_death_is_told_and_logged_when_it_happens_and_the_others_go_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    told: list[tuple[float, TaskEnd]] = []
    death = Boom("out of luck")
    dying = Service("dying", Script(Work(3, death)), on_panic="propagate")
    sibling = Script()
    async with TaskSet(on_end=lambda end: told.append((now(), end))) as tasks:
        tasks.start(dying)
        tasks.start(Service("sibling", sibling, wake=[every("1s")]))
        await until(2.5)
        assert told == []
        with caplog.at_level(logging.WARNING, logger="mainspring.supervise"):
            await until(3.5)
            assert told == [(3, TaskEnd(name="dying", ending=Ending.DIED, error=death))]
            assert any("dying" in record.getMessage() for record in caplog.records)
        assert set(tasks.running) == {"sibling"}
        await until(5.5)
        assert sibling.calls == [0, 1, 2, 3, 4, 5]


# M13: defaults that keep a service alive and calm.


async def failing_by_default(stop: Stop, time: float) -> list[float]:
    """Run a service with nothing but a name and a failing step, and return the pauses between its calls."""
    calls, signal = list[float](), Notifier()

    async def step() -> Directive:
        calls.append(now())
        if len(calls) > 1000:
            stop.set()  # a tight loop would never let virtual time go on
        signal.notify_one()  # must not make it any faster
        raise Boom

    asyncio.get_running_loop().call_at(time, stop.set)
    await Service("failing", step, wake=[signal]).run(stop)
    assert now() == time
    return [later - earlier for earlier, later in pairwise(calls)]


async def test_M13_a_service_whose_step_always_fails_goes_on_calmly() -> None:
    # 0.1 s, 0.2 s, 0.4 s … give or take 30 %: the first eight take between 17 s and 34 s.
    pauses = await failing_by_default(Stop(), 34)
    assert 8 <= len(pauses) <= 10
    for doublings, pause in enumerate(pauses[:8]):
        assert 0.07 * 2**doublings - 1e-6 <= pause <= 0.13 * 2**doublings + 1e-6


async def test_M13_no_backoff_by_default_is_longer_than_half_a_minute() -> None:
    pauses = await failing_by_default(Stop(), 2 * HOUR)
    assert len(pauses) > 200
    assert max(pauses) <= 30 + 1e-6
    assert min(pauses[10:]) > 10


# M14: jitter by chance and not by name.


async def test_M14_two_services_of_the_same_name_do_not_back_off_in_step() -> None:
    events: tuple[list[ServiceEvent], list[ServiceEvent]] = ([], [])
    twins = [Service("twin", Script(Boom(), again=True), listeners=[heard.append]) for heard in events]
    async with running(*twins):
        await until(1 * MINUTE)
    mine, yours = ([event.backoff for event in heard if isinstance(event, Failed)] for heard in events)
    assert len(mine) >= 5
    assert mine[:5] != yours[:5]


async def test_M14_a_service_that_is_started_again_does_not_repeat_its_schedule() -> None:
    schedules = []
    for _ in range(2):
        step, start = Script(Boom(), again=True), now()
        async with running(Service("phoenix", step)):
            await asyncio.sleep(MINUTE)
        schedules.append([call - start for call in step.calls])
    first, second = schedules
    assert first[1:6] != pytest.approx(second[1:6])
