"""The ends of attempts are written, whatever is wrong with one of them, with the store, or with an answer."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress

import pytest

from mainspring import Context, Limit, Mainspring, Retry
from mainspring.core.job import State
from mainspring.core.outcome import Succeeded
from mainspring.errors import StoreUnavailable
from mainspring.runtime.events import StateChange
from mainspring.stores.memory import MemoryStore
from mainspring.stores.records import Settled, Settlement, Verdict
from mainspring.testing import FaultyStore, VirtualTime
from tests.runtime.conftest import Bench

UNWRITABLE = Succeeded(b'{"v":1,"value":"unwritable"}')


class Choosy(MemoryStore):
    """A store that cannot write one kind of result, and says so with an error that is not a store's."""

    away = 0
    """How many single settlements fail as if the store were away."""

    async def settle(self, settlements: Sequence[Settlement]) -> tuple[Settled, ...]:
        if any(one.change.outcome == UNWRITABLE for one in settlements):
            raise UnicodeError("it cannot be encoded")
        if self.away and len(settlements) == 1:
            self.away -= 1
            raise StoreUnavailable("memory", "away")
        return await super().settle(settlements)


@pytest.mark.parametrize("away", [0, 2], ids=["store there", "store away for a moment"])
async def test_an_end_that_cannot_be_written_keeps_back_no_other_and_fails_its_job(
    virtual_time: VirtualTime, caplog: pytest.LogCaptureFixture, away: int
) -> None:
    store = Choosy(clock=virtual_time.clock)
    app = Mainspring(store=store, clock=virtual_time.clock)

    @app.task(name="work")
    async def work(result: str) -> str:
        await asyncio.sleep(1)  # so that all ends are written together
        return result

    results = ["one", "unwritable", "two", "three"]
    async with app:
        jobs = await work.enqueue_many([work.call(result) for result in results])
        async with app.node() as node:
            store.away = away
            assert [await job.result("1m") for job in jobs if job is not jobs[1]] == ["one", "two", "three"]
            await asyncio.sleep(5)
            view = await jobs[1].refresh()

    assert view.job.state is State.FAILED
    assert view.error
    assert (view.error.type, view.error.message) == (
        "UnicodeError",
        "how it ended could not be written: it cannot be encoded",
    )
    assert node.events.counts["unwritable"] == 1
    assert "cannot be written; it fails instead" in caplog.text


async def test_a_place_is_given_up_however_busy_the_node_is(bench: Bench) -> None:
    ended: list[float] = []

    @bench.app.task(name="stubborn", timeout="1s", retry=Retry.none(), limit=Limit(concurrency=1))
    async def stubborn(seconds: float) -> None:
        end = bench.time.elapsed + seconds
        while bench.time.elapsed < end:
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(end - bench.time.elapsed)
        ended.append(bench.time.elapsed)

    @bench.app.task(name="quick")
    async def quick() -> None:
        await asyncio.sleep(0.05)

    bench.store.delay("settle", "100ms", times=10_000)  # while one batch is written, there is always another
    async with bench.app.node(concurrency=10, stop_grace="1s", grace="1s"):
        await stubborn.enqueue(5.0)
        second = await stubborn.enqueue(0.0)
        await quick.enqueue_many([quick.call() for _ in range(2500)])
        await asyncio.sleep(8)
        assert (await bench.app.jobs(task="quick", state="ready", limit=1)).jobs  # it is busy still
        assert (await bench.view(second.id)).job.state is State.SUCCEEDED

    assert len(ended) == 2


async def test_a_place_is_given_up_once_the_store_is_back(bench: Bench) -> None:
    @bench.app.task(name="stubborn", timeout="1s", retry=Retry.none(), limit=Limit(concurrency=1))
    async def stubborn(seconds: float) -> None:
        end = bench.time.elapsed + seconds
        while bench.time.elapsed < end:
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(end - bench.time.elapsed)

    async with bench.app.node(stop_grace="1s"):
        await stubborn.enqueue(5.0)
        second = await stubborn.enqueue(0.0)
        bench.store.drop("release", times=3)
        bench.store.lose_answer("release")
        await second.result("1m")

    assert bench.store.calls.count("release") == 5


class Locked(MemoryStore):
    """A store in which another transaction holds the job of each attempt that keeps its place, for a while."""

    answers = 6

    async def settle(self, settlements: Sequence[Settlement]) -> tuple[Settled, ...]:
        if self.answers and any(one.keeps_place for one in settlements):
            self.answers -= 1
            return tuple([Settled(verdict=Verdict.LOCKED) for _ in settlements])
        return await super().settle(settlements)


async def test_a_place_is_given_up_though_the_body_ended_before_the_end_of_its_attempt_was_written(
    virtual_time: VirtualTime,
) -> None:
    store = Locked(clock=virtual_time.clock)
    app = Mainspring(store=store, clock=virtual_time.clock)

    @app.task(name="stubborn", timeout="1s", retry=Retry.none(), limit=Limit(concurrency=1))
    async def stubborn(seconds: float) -> None:
        end = virtual_time.elapsed + seconds
        while virtual_time.elapsed < end:
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(end - virtual_time.elapsed)

    async with app:
        await stubborn.enqueue(5.0)
        second = await stubborn.enqueue(0.0)
        async with app.node(stop_grace="1s"):
            await second.result("1m")

    assert store.answers == 0


async def test_what_is_told_of_a_retry_is_what_is_stored_though_an_answer_was_lost(bench: Bench) -> None:
    told: list[StateChange] = []
    bench.app.listener(told.append)

    @bench.app.task(name="work", retry=Retry.exponential("1m", max_attempts=3))
    async def work(_ctx: Context) -> None:
        bench.store.lose_answer("settle")  # so it is settled again, with another throw of the dice for its delay
        raise ValueError

    async with bench.app.node(grace="0s"):
        job = await work.enqueue()
        await asyncio.sleep(3)
        view = await bench.view(job.id)

    assert view.job.state is State.RETRYING
    assert [str(change.event) for change in told] == ["claimed", "will_retry"]
    assert told[-1].job.run_at == view.job.run_at


async def test_a_store_that_can_write_no_end_at_all_is_asked_again_with_a_pause(bench: Bench) -> None:
    asked: list[float] = []

    class Broken(FaultyStore):
        async def settle(self, _settlements: Sequence[Settlement]) -> tuple[Settled, ...]:
            asked.append(bench.time.elapsed)
            raise TypeError("broken")

    app = Mainspring(store=Broken(bench.store.inner).as_store, clock=bench.time.clock)

    @app.task(name="work")
    async def work() -> None: ...

    async with app.node(grace="1s", stop_grace="1s"):
        await work.enqueue()
        await asyncio.sleep(20)

    assert 5 < len(asked) < 100
