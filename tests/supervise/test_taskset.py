"""Named tasks with an owner: how they are started, how each one ends, and how all of them are brought to an end."""

import asyncio
import logging
from contextlib import suppress

import pytest

from mainspring.errors import DeclarationError, NameTaken, ShuttingDown
from mainspring.supervise import Ending, Idle, Service, Stop, TaskEnd, TaskSet, every
from mainspring.testing import VirtualTime
from tests.supervise.conftest import Boom, Script, Work, now, settle, until

pytestmark = pytest.mark.usefixtures("virtual_time")


async def nap(time: float) -> None:
    await asyncio.sleep(time)


async def fail(time: float, error: BaseException) -> None:
    await asyncio.sleep(time)
    raise error


async def clean_up(time: float, log: list[float]) -> None:
    """Sleep for ever; when cancelled, take some time to end."""
    try:
        await asyncio.Event().wait()
    finally:
        log.append(now())
        await asyncio.sleep(time)
        log.append(now())


def by_name(ends: tuple[TaskEnd, ...]) -> dict[str, Ending]:
    return {end.name: end.ending for end in ends}


# Starting.


async def test_services_and_coroutines_run_side_by_side_under_their_names() -> None:
    step = Script()
    async with TaskSet() as tasks:
        tasks.start(Service("ticking", step, wake=[every(1)]))
        tasks.spawn("napping", nap(2.5))
        assert set(tasks.running) == {"ticking", "napping"}
        await until(3.5)
        assert set(tasks.running) == {"ticking"}
    assert set(tasks.running) == set()
    assert step.calls == [0, 1, 2, 3]


async def test_services_of_a_set_end_by_its_stop() -> None:
    tasks = TaskSet()
    tasks.start(Service("idle", Script()))
    await until(3)
    assert not tasks.stop.is_set()
    tasks.stop.set()
    await settle()
    assert set(tasks.running) == set()
    await tasks.shutdown()


async def test_a_name_is_taken_while_it_runs() -> None:
    async with TaskSet() as tasks:
        tasks.spawn("one", nap(5))
        with pytest.raises(NameTaken) as taken:
            tasks.spawn("one", nap(5))
        assert taken.value.name == "one"
        with pytest.raises(NameTaken):
            tasks.start(Service("one", Script()))
        await until(2)
        assert set(tasks.running) == {"one"}


async def test_a_name_is_free_again_when_its_task_has_ended() -> None:
    log = list[float]()

    async def note() -> None:
        log.append(now())

    async with TaskSet() as tasks:
        tasks.spawn("one", note())
        await until(1)
        tasks.spawn("one", note())
        await until(2)
    assert log == [0, 1]


async def test_nothing_is_started_once_a_shutdown_has_begun() -> None:
    tasks = TaskSet()
    tasks.spawn("slow", nap(5))
    shutdown = asyncio.create_task(tasks.shutdown())
    await until(1)
    with pytest.raises(ShuttingDown) as refused:
        tasks.spawn("late", nap(1))
    assert refused.value.name == "late"
    with pytest.raises(ShuttingDown):
        tasks.start(Service("late too", Script()))
    assert by_name(await shutdown) == {"slow": Ending.FINISHED}
    with pytest.raises(ShuttingDown):
        tasks.spawn("much too late", nap(1))


# Ends.


async def test_each_end_is_told_when_it_happens() -> None:
    told = list[tuple[float, TaskEnd]]()
    error, log = Boom(), list[float]()
    tasks = TaskSet(on_end=lambda end: told.append((now(), end)))
    tasks.spawn("finishes", nap(1))
    tasks.spawn("dies", fail(2, error))
    tasks.spawn("must be cancelled", clean_up(1, log))
    tasks.start(Service("stops", Script()))
    await until(10)
    assert told == [
        (1, TaskEnd(name="finishes", ending=Ending.FINISHED)),
        (2, TaskEnd(name="dies", ending=Ending.DIED, error=error)),
    ]
    await tasks.shutdown(grace=5, deadline=20)
    assert told[2:] == [
        (10, TaskEnd(name="stops", ending=Ending.FINISHED)),
        (16, TaskEnd(name="must be cancelled", ending=Ending.CANCELLED)),
    ]


async def test_a_death_is_logged_once_at_once_with_its_error(caplog: pytest.LogCaptureFixture) -> None:
    error = Boom()
    async with TaskSet() as tasks:
        tasks.spawn("mortal", fail(2, error))
        with caplog.at_level(logging.DEBUG):
            await until(1.5)
            assert caplog.records == []
            await until(2.5)
            (record,) = caplog.records
    assert record.levelno >= logging.WARNING
    assert record.name == "mainspring.supervise"
    assert "mortal" in record.getMessage()
    assert record.exc_info is not None
    assert record.exc_info[1] is error


async def test_a_death_leaves_its_siblings_alone() -> None:
    step = Script()
    async with TaskSet() as tasks:
        tasks.start(Service("sibling", step, wake=[every(1)]))
        tasks.spawn("mortal", fail(1.5, Boom()))
        await until(4.5)
        assert set(tasks.running) == {"sibling"}
    assert step.calls == [0, 1, 2, 3, 4]


async def test_an_on_end_that_raises_hurts_nobody() -> None:
    def bad(_: TaskEnd) -> None:
        raise Boom

    step, tasks = Script(), TaskSet(on_end=bad)
    tasks.start(Service("sibling", step, wake=[every(1)]))
    tasks.spawn("short", nap(0.5))
    await until(2.5)
    assert step.calls == [0, 1, 2]
    assert set(tasks.running) == {"sibling"}
    assert by_name(await tasks.shutdown())["sibling"] is Ending.FINISHED


async def test_a_task_that_dies_during_the_shutdown_is_reported_with_its_error() -> None:
    error = Boom()
    tasks = TaskSet()
    tasks.spawn("dies late", fail(3, error))
    assert await tasks.shutdown() == (TaskEnd(name="dies late", ending=Ending.DIED, error=error),)
    assert now() == 3


async def test_a_task_whose_clean_up_fails_is_reported_as_a_death() -> None:
    async def run() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            raise Boom

    tasks = TaskSet()
    tasks.spawn("untidy", run())
    (end,) = await tasks.shutdown(grace=1, deadline=2)
    assert end.ending is Ending.DIED
    assert isinstance(end.error, Boom)


async def test_a_task_that_is_cancelled_by_anyone_but_its_set_has_died(caplog: pytest.LogCaptureFixture) -> None:
    told = list[TaskEnd]()
    async with TaskSet(on_end=told.append) as tasks:
        tasks.spawn("suicidal", fail(1, asyncio.CancelledError()))
        await until(2)
        assert by_name(tuple(told)) == {"suicidal": Ending.DIED}
    assert "suicidal died" in caplog.text


async def test_a_task_may_shut_down_its_own_set() -> None:
    tasks, reports = TaskSet(), list[tuple[TaskEnd, ...]]()

    async def operator() -> None:
        await asyncio.sleep(1)
        reports.append(await tasks.shutdown(grace=10, deadline=20))

    tasks.start(Service("idle", Script()))
    tasks.spawn("operator", operator())
    await until(2)
    assert [by_name(report) for report in reports] == [{"idle": Ending.FINISHED}]
    assert tasks.running == ()


async def test_two_tasks_may_shut_down_their_set_at_the_same_moment() -> None:
    tasks, reports = TaskSet(), list[dict[str, Ending]]()

    async def operator() -> None:
        await asyncio.sleep(1)
        reports.append(by_name(await tasks.shutdown(grace=10, deadline=20)))

    tasks.start(Service("idle", Script()))
    tasks.spawn("one", operator())
    tasks.spawn("two", operator())
    await until(2)
    assert len(reports) == 2
    assert all(report["idle"] is Ending.FINISHED for report in reports)


async def test_a_report_names_all_that_were_running_however_many_and_as_they_were_named() -> None:
    async def wait(stop: Stop) -> None:
        task = asyncio.current_task()
        assert task
        task.set_name("renamed")
        await stop.wait()

    tasks = TaskSet()
    for number in range(1500):
        tasks.spawn(str(number), wait(tasks.stop))
    await until(1)
    assert set(by_name(await tasks.shutdown())) == {str(number) for number in range(1500)}


async def test_a_set_that_lives_long_remembers_the_last_thousand_ends() -> None:
    tasks = TaskSet()
    for number in range(1500):
        tasks.spawn(str(number), asyncio.sleep(0))
        await asyncio.sleep(0)
    await until(1)
    assert [end.name for end in await tasks.shutdown()] == [str(number) for number in range(500, 1500)]


def test_a_set_is_ended_on_the_loop_on_which_it_was_started() -> None:
    tasks = TaskSet()
    with VirtualTime() as mine, VirtualTime() as other:

        async def start() -> None:
            tasks.start(Service("idle", Script()))

        mine.run(start())
        with pytest.raises(DeclarationError, match="another event loop"):
            other.run(tasks.shutdown())
        assert mine.run(tasks.shutdown())


def test_nothing_is_started_outside_of_a_loop() -> None:
    with pytest.raises(RuntimeError, match="no running event loop"):
        TaskSet().start(Service("early", Script()))


# Shutdown.


async def test_a_shutdown_is_over_as_soon_as_all_have_ended() -> None:
    tasks = TaskSet()
    tasks.start(Service("idle", Script()))
    tasks.start(Service("busy", Script(Work(7))))
    await until(3)
    assert by_name(await tasks.shutdown()) == {"idle": Ending.FINISHED, "busy": Ending.FINISHED}
    assert now() == 7


async def test_a_shutdown_sets_the_stop_first() -> None:
    tasks = TaskSet()

    async def obedient() -> None:
        await tasks.stop.wait()

    tasks.spawn("obedient", obedient())
    await until(3)
    assert by_name(await tasks.shutdown()) == {"obedient": Ending.FINISHED}
    assert now() == 3


async def test_grace_deadline_and_defaults_are_10_and_15_seconds_from_the_start_of_the_shutdown() -> None:
    released = asyncio.Event()
    cancelled_at = list[float]()

    async def stubborn() -> None:
        while not released.is_set():
            try:
                await released.wait()
            except asyncio.CancelledError:
                cancelled_at.append(now())

    tasks = TaskSet()
    tasks.spawn("stubborn", stubborn())
    tasks.spawn("sluggish", clean_up(3, []))
    await until(100)
    assert by_name(await tasks.shutdown()) == {"stubborn": Ending.ABANDONED, "sluggish": Ending.CANCELLED}
    assert now() == 115
    assert cancelled_at[0] == 110
    released.set()
    await settle()


async def test_tasks_are_shut_down_together_and_not_one_after_the_other() -> None:
    tasks, logs = TaskSet(), [list[float]() for _ in range(5)]
    for number, log in enumerate(logs):
        tasks.spawn(f"slow-{number}", clean_up(3, log))
    await settle()
    started = now()
    await tasks.shutdown(grace=2, deadline=20)
    assert [[time - started for time in log] for log in logs] == [[pytest.approx(2), pytest.approx(5)]] * 5
    assert now() - started == pytest.approx(5)


async def test_an_empty_set_is_shut_down_at_once() -> None:
    assert await TaskSet().shutdown() == ()
    assert now() == 0


async def test_a_second_shutdown_finds_nothing_to_do() -> None:
    tasks = TaskSet()
    tasks.start(Service("idle", Script()))
    await settle()
    await tasks.shutdown()
    before = now()
    await tasks.shutdown()
    assert now() == before


async def test_two_shutdowns_at_the_same_time_both_end() -> None:
    tasks = TaskSet()
    tasks.spawn("slow", nap(3))
    await asyncio.gather(tasks.shutdown(), tasks.shutdown())
    assert now() == 3
    assert set(tasks.running) == set()


async def test_a_cancelled_shutdown_still_cancels_and_awaits_its_tasks() -> None:
    log, tasks = list[float](), TaskSet()
    tasks.spawn("slow", clean_up(3, log))
    shutdown = asyncio.create_task(tasks.shutdown(grace=100, deadline=200))
    await until(5)
    shutdown.cancel()
    with pytest.raises(asyncio.CancelledError):
        await shutdown
    assert log == [5, 8]
    assert set(tasks.running) == set()


async def test_a_shutdown_that_is_cancelled_while_it_cancels_still_awaits_its_tasks() -> None:
    log, tasks = list[float](), TaskSet()
    tasks.spawn("slow", clean_up(3, log))
    shutdown = asyncio.create_task(tasks.shutdown(grace=2, deadline=200))
    await until(3)
    assert log == [2]
    shutdown.cancel()
    with pytest.raises(asyncio.CancelledError):
        await shutdown
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert set(tasks.running) == set()


async def test_a_cancelled_shutdown_does_not_wait_beyond_its_deadline_for_a_task_that_will_not_end() -> None:
    released, tasks = asyncio.Event(), TaskSet()

    async def stubborn() -> None:
        while not released.is_set():
            with suppress(asyncio.CancelledError):
                await released.wait()

    tasks.spawn("stubborn", stubborn())
    shutdown = asyncio.create_task(tasks.shutdown(grace=2, deadline=10))
    await until(1)
    shutdown.cancel()
    await asyncio.wait([shutdown], timeout=100)
    assert now() <= 10
    assert shutdown.cancelled()
    released.set()
    await settle()


async def test_leaving_the_block_shuts_down() -> None:
    step = Script(Work(5))
    async with TaskSet() as tasks:
        tasks.start(Service("busy", step))
        await until(1)
    assert step.ends == [5]
    assert now() == 5
    assert tasks.stop.is_set()


async def test_an_error_in_the_block_shuts_down_and_comes_out() -> None:
    step = Script(Work(5))
    with pytest.raises(Boom):
        async with TaskSet() as tasks:
            tasks.start(Service("busy", step))
            await until(1)
            raise Boom
    assert step.ends == [5]
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_a_cancellation_of_the_block_leaves_no_task_behind() -> None:
    step = Script(Work(5))

    async def block() -> None:
        async with TaskSet() as tasks:
            tasks.start(Service("busy", step))
            await asyncio.Event().wait()

    run = asyncio.create_task(block())
    await until(1)
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert len(step.ends) == 1
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_a_task_cancelled_before_its_first_turn_leaves_nothing_unawaited() -> None:
    tasks = TaskSet()
    tasks.spawn("unborn", nap(100))
    ends = await tasks.shutdown(grace=0, deadline=1)
    assert by_name(ends) == {"unborn": Ending.CANCELLED}


async def test_a_service_can_be_started_again_in_another_set() -> None:
    step = Script(Idle(), Idle())
    service = Service("reborn", step)
    for _ in range(2):
        async with TaskSet() as tasks:
            tasks.start(service)
            await asyncio.sleep(1)
    assert step.calls == [0, 1]


async def test_a_set_of_its_own_does_not_hear_the_stop_of_another() -> None:
    one, other = TaskSet(), TaskSet()
    other.start(Service("idle", Script()))
    await one.shutdown()
    await until(3)
    assert set(other.running) == {"idle"}
    assert isinstance(other.stop, Stop)
    await other.shutdown()
