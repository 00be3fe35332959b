"""What can be done with a job that one holds: its result, its state, and an operator's commands."""

import asyncio
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from mainspring import Mainspring, Unique
from mainspring.core.job import State
from mainspring.core.outcome import Interrupted
from mainspring.errors import (
    Conflict,
    DeclarationError,
    IllegalTransition,
    JobCancelled,
    JobFailed,
    JobGone,
    JobUnfinished,
)
from mainspring.stores.memory import MemoryStore
from mainspring.testing import VirtualTime
from mainspring.testing.virtual import START
from tests.app.conftest import Hand


async def price(order: int) -> Decimal:
    return Decimal(order)


async def perhaps() -> int | None:
    return None


async def test_a_result_comes_back_as_what_it_was(app: Mainspring, hand: Hand) -> None:
    task = app.task(name="price")(price)
    async with app:
        job = await task.enqueue(1)
        await hand.succeed(Decimal("9.90"))

        assert await job.result() == Decimal("9.90")
        assert await job.state() is State.SUCCEEDED


async def test_a_handler_that_returned_none_has_a_result_too(app: Mainspring, hand: Hand) -> None:
    task = app.task(name="quiet")(perhaps)
    async with app:
        job = await task.enqueue()
        await hand.succeed()

        assert await job.result() is None


async def test_a_failed_job_says_why(app: Mainspring, hand: Hand) -> None:
    task = app.task(name="price")(price)
    async with app:
        job = await task.enqueue(1)
        await hand.fail("no such order")

        with pytest.raises(JobFailed) as raised:
            await job.result()
        assert (raised.value.job, raised.value.cause) == (str(job.id), "refused")
        assert raised.value.error == "ValueError: no such order"


async def test_a_cancelled_job_has_no_result(app: Mainspring) -> None:
    task = app.task(name="price")(price)
    async with app:
        job = await task.enqueue(1)
        assert await job.cancel() is State.CANCELLED

        with pytest.raises(JobCancelled):
            await job.result()


async def test_a_job_that_is_not_there_is_gone(app: Mainspring) -> None:
    task = app.task(name="price")(price)
    async with app:
        job = await task.enqueue(1)
        await job.delete()

        for ask in (job.result, job.refresh, job.state, job.cancel, job.retry, job.delete):
            with pytest.raises(JobGone):
                await ask()


async def test_a_result_that_takes_too_long_can_be_waited_for_again(
    app: Mainspring, hand: Hand, virtual_time: VirtualTime
) -> None:
    task = app.task(name="price")(price)
    async with app:
        job = await task.enqueue(1)

        with pytest.raises(JobUnfinished) as raised:
            await job.result(timeout="5s")
        assert virtual_time.elapsed == pytest.approx(5, abs=0.01)
        assert (raised.value.state, raised.value.seconds) == ("ready", 5)
        assert isinstance(raised.value, TimeoutError)

        await hand.succeed(Decimal(1))
        assert await job.result(timeout=0) == 1


async def test_a_result_that_was_there_at_the_last_moment_counts(virtual_time: VirtualTime) -> None:
    class Mute(MemoryStore):
        def watch(self, ring: Any) -> Any:  # noqa: ANN401, ARG002 - as the port has it
            return lambda: None

    app = Mainspring(Mute(virtual_time.clock), clock=virtual_time.clock)
    task = app.task(name="price")(price)
    async with app:
        job = await task.enqueue(1)

        async def work() -> None:
            await asyncio.sleep(0.4)  # between two looks of those who wait
            await Hand(app).succeed(Decimal(1))

        async with asyncio.TaskGroup() as group:
            group.create_task(work())
            assert await job.result(timeout=0.5) == 1


async def test_a_running_job_is_asked_to_stop(app: Mainspring, hand: Hand) -> None:
    task = app.task(name="price")(price)
    async with app:
        job = await task.enqueue(1)
        (delivery,) = await hand.claim()

        assert await job.cancel() is State.RUNNING
        view = await job.refresh()
        assert view.job.cancel_requested_at == app.store.now()
        for refused in (job.retry, job.delete, job.move):
            with pytest.raises(IllegalTransition):
                await refused()
        await hand.end(delivery, Interrupted(started=True))
        assert await job.state() is State.CANCELLED


async def test_a_failed_job_is_retried(app: Mainspring, hand: Hand) -> None:
    task = app.task(name="price")(price)
    async with app:
        job = await task.enqueue(1)
        with pytest.raises(IllegalTransition):
            await job.retry()
        await hand.fail("no")
        await job.retry()

        view = await job.refresh()
        assert (view.job.state, view.job.granted, view.job.attempt) == (State.READY, 1, 1)
        await hand.succeed(Decimal(2))
        assert await job.result() == 2


async def test_a_waiting_job_is_moved(app: Mainspring) -> None:
    task = app.task(name="price")(price)
    later = START + timedelta(hours=1)
    async with app:
        job = await task.using(delay="10m").enqueue(1)

        await job.move(priority="high", queue="fast", run_at=later)
        view = await job.refresh()
        assert (view.job.priority, view.job.queue, view.job.run_at) == (75, "fast", later)

        await job.move(priority=3)
        view = await job.refresh()
        assert (view.job.priority, view.job.queue, view.job.run_at) == (3, "fast", later)


async def test_a_move_to_nowhere_is_refused(app: Mainspring) -> None:
    task = app.task(name="price")(price)
    naive = datetime(2030, 1, 1)  # noqa: DTZ001 - what the test is about
    async with app:
        job = await task.enqueue(1)
        moves: list[dict[str, Any]] = [{"priority": 101}, {"queue": "my queue"}, {"run_at": naive}]
        for move in moves:
            with pytest.raises(DeclarationError):
                await job.move(**move)


async def test_a_retry_whose_key_was_taken_meanwhile_is_a_conflict(app: Mainspring, hand: Hand) -> None:
    task = app.task(name="price", unique=Unique(key="order"))(price)
    async with app:
        failed = await task.enqueue(1)
        await hand.fail("no")
        await task.enqueue(1)

        with pytest.raises(Conflict) as raised:
            await failed.retry()
        assert raised.value.key == '{"order":1}'


async def test_a_command_is_decided_again_when_the_job_has_changed_meanwhile(virtual_time: VirtualTime) -> None:
    class Hasty(MemoryStore):
        """Lets someone else claim the job between the look at it and the command."""

        hand: Hand | None = None

        async def settle(self, settlements: Any) -> Any:  # noqa: ANN401 - as the port has it
            if self.hand:
                hand, self.hand = self.hand, None
                await hand.claim()
            return await super().settle(settlements)

    store = Hasty(virtual_time.clock)
    app = Mainspring(store, clock=virtual_time.clock)
    task = app.task(name="price")(price)
    async with app:
        job = await task.enqueue(1)
        store.hand = Hand(app)

        assert await job.cancel() is State.RUNNING
        assert (await job.refresh()).job.cancel_requested_at


async def test_handles_are_the_same_where_their_ids_are(app: Mainspring) -> None:
    task = app.task(name="price")(price)
    async with app:
        one, two = await task.enqueue(1), await task.enqueue(2)

        assert {one, app.job(one.id), two} == {one, two}
        assert one != two
        assert one != one.id
        assert repr(one) == f"<JobHandle {one.id} of price>"
        assert repr(app.job(one.id)) == f"<JobHandle {one.id}>"


async def test_everything_can_be_done_without_a_loop_too(app: Mainspring, hand: Hand) -> None:
    task = app.task(name="price")(price)
    async with app:
        job = task.enqueue_sync(1)
        (other,) = task.enqueue_many_sync([task.call(2)])
        (third,) = app.enqueue_many_sync([task.call(3)])
        assert app.enqueue_sync("price", 4).fresh

        assert job.state_sync() is State.READY
        job.move_sync(queue="fast")
        assert job.refresh_sync().job.queue == "fast"
        assert job.cancel_sync() is State.CANCELLED
        job.retry_sync()
        job.delete_sync()
        # Only this one may take long, so it wants a thread without a loop.
        with pytest.raises(JobGone):
            await asyncio.to_thread(job.result_sync)
        await hand.succeed(Decimal(7))
        assert await asyncio.to_thread(other.result_sync, timeout=60) == 7
        with pytest.raises(JobUnfinished):
            await asyncio.to_thread(third.result_sync, timeout=0)
