"""Those who wait for results share their looks at the store, are woken by hints, and need none."""

import asyncio
import threading
from collections.abc import Callable, Sequence

import pytest

from mainspring import Mainspring
from mainspring.client.waiting import AT_ONCE, FLOOR, PAUSE
from mainspring.core.job import JobId
from mainspring.core.outcome import Succeeded
from mainspring.errors import JobGone, JobUnfinished, StoreClosed, StoreUnavailable
from mainspring.handle import JobHandle
from mainspring.stores.memory import MemoryStore
from mainspring.stores.records import JobView
from mainspring.testing import VirtualTime
from tests.app.conftest import Hand


class Watched(MemoryStore):
    """Counts looks and those who watch; can lose its hints and its temper."""

    def __init__(self, time: VirtualTime, *, mute: bool = False) -> None:
        super().__init__(time.clock)
        self.looks: list[int] = []
        self.watchers = 0
        self.mute = mute
        self.trouble: Exception | None = None

    async def get(self, ids: Sequence[JobId], *, preview: int | None = None) -> tuple[JobView | None, ...]:
        self.looks.append(len(ids))
        if self.trouble:
            raise self.trouble
        return await super().get(ids, preview=preview)

    def watch(self, ring: Callable[[], None]) -> Callable[[], None]:
        self.watchers += 1
        end = super().watch((lambda: None) if self.mute else ring)

        def unwatch() -> None:
            self.watchers -= 1
            end()

        return unwatch


def app_on(store: MemoryStore, time: VirtualTime) -> Mainspring:
    app = Mainspring(store, clock=time.clock)

    @app.task(name="double")
    async def double(number: int) -> int:
        return number * 2

    return app


async def enqueue(app: Mainspring, count: int) -> list[JobHandle[int]]:
    task = app.find("double")
    return await task.enqueue_many([task.call(number) for number in range(count)])


async def test_many_who_wait_cost_one_look(virtual_time: VirtualTime) -> None:
    store = Watched(virtual_time)
    async with app_on(store, virtual_time) as app:
        jobs = await enqueue(app, 500)
        waiting = [asyncio.create_task(job.result()) for job in jobs]
        await asyncio.sleep(PAUSE * 2)
        assert store.looks == [500]

        hand = Hand(app)
        deliveries = await hand.claim(room=500)
        await asyncio.sleep(PAUSE * 2)
        assert store.looks == [500, 500]  # a claim is a commit, too
        for number, _ in enumerate(deliveries):
            await hand.end(deliveries[number], app_success(app, number))
        assert await asyncio.gather(*waiting) == list(range(500))
        assert len(store.looks) <= 4
        assert store.watchers == 0


def app_success(app: Mainspring, number: int) -> Succeeded:
    return Succeeded(app.find("double").definition.result.encode(number))


async def test_a_hint_wakes_those_who_wait_at_once(app: Mainspring, hand: Hand, virtual_time: VirtualTime) -> None:
    @app.task(name="double")
    async def double(number: int) -> int:
        return number * 2

    done = threading.Event()
    async with app:
        job = await double.enqueue(1)

        async def work() -> None:
            await asyncio.sleep(0.3)
            await hand.succeed(2)
            # A file's hints come from a thread that virtual time cannot see; a thread that it sees holds it meanwhile.
            await asyncio.to_thread(done.wait, 10)

        async with asyncio.TaskGroup() as group:
            group.create_task(work())
            assert await job.result() == 2
            done.set()
        assert virtual_time.elapsed == pytest.approx(0.3, abs=0.05)


async def test_without_hints_a_look_a_second_is_enough(virtual_time: VirtualTime) -> None:
    store = Watched(virtual_time, mute=True)
    async with app_on(store, virtual_time) as app:
        (job,) = await enqueue(app, 1)

        async def work() -> None:
            await asyncio.sleep(2.5)
            await Hand(app).succeed(2)

        async with asyncio.TaskGroup() as group:
            group.create_task(work())
            assert await job.result() == 2
        assert 2.5 <= virtual_time.elapsed <= 2.5 + FLOOR + 0.01
        assert len(store.looks) == 4


async def test_one_more_who_waits_has_the_others_not_looked_at_again(virtual_time: VirtualTime) -> None:
    store = Watched(virtual_time)
    async with app_on(store, virtual_time) as app:
        jobs = await enqueue(app, 101)
        waiting = [asyncio.create_task(job.result()) for job in jobs[:100]]
        await asyncio.sleep(0.1)
        late = asyncio.create_task(jobs[100].result())
        await asyncio.sleep(0.1)

        assert store.looks == [100, 1]
        for task in (*waiting, late):
            task.cancel()


async def test_very_many_are_looked_at_in_batches(virtual_time: VirtualTime) -> None:
    store = Watched(virtual_time)
    async with app_on(store, virtual_time) as app:
        jobs = await enqueue(app, AT_ONCE + 1)
        waiting = [asyncio.create_task(job.result()) for job in jobs]
        await asyncio.sleep(0.1)

        assert store.looks == [AT_ONCE, 1]
        for task in waiting:
            task.cancel()


async def test_many_commits_in_a_row_become_few_looks(virtual_time: VirtualTime) -> None:
    store = Watched(virtual_time)
    async with app_on(store, virtual_time) as app:
        (job,) = await enqueue(app, 1)
        waiting = asyncio.create_task(job.result())
        await asyncio.sleep(0.1)
        store.looks.clear()
        for _ in range(100):
            await enqueue(app, 1)
            await asyncio.sleep(PAUSE / 10)

        assert 5 <= len(store.looks) <= 12
        waiting.cancel()


async def test_several_may_wait_for_one_job(virtual_time: VirtualTime) -> None:
    async with app_on(Watched(virtual_time), virtual_time) as app:
        (job,) = await enqueue(app, 1)
        waiting = [asyncio.create_task(job.result()) for _ in range(3)]
        impatient = asyncio.create_task(job.result(timeout=0.1))
        await asyncio.sleep(0.2)
        await Hand(app).succeed(2)

        assert await asyncio.gather(*waiting) == [2, 2, 2]
        with pytest.raises(JobUnfinished):
            await impatient


async def test_nobody_is_watched_for_when_nobody_waits(virtual_time: VirtualTime) -> None:
    store = Watched(virtual_time)
    async with app_on(store, virtual_time) as app:
        (job,) = await enqueue(app, 1)
        for _ in range(2):
            waiting = asyncio.create_task(job.result())
            await asyncio.sleep(0.1)
            assert store.watchers == 1
            waiting.cancel()
            await asyncio.sleep(0.1)
            assert store.watchers == 0
        looks = len(store.looks)
        await asyncio.sleep(10)

        assert len(store.looks) == looks
        assert len(asyncio.all_tasks()) == 1


async def test_who_waits_outlasts_an_outage_of_the_store(
    virtual_time: VirtualTime, caplog: pytest.LogCaptureFixture
) -> None:
    store = Watched(virtual_time)
    async with app_on(store, virtual_time) as app:
        (job,) = await enqueue(app, 1)
        store.trouble = StoreUnavailable("memory", "out of order")

        async def mend() -> None:
            await asyncio.sleep(60)
            store.trouble = None
            await Hand(app).succeed(2)

        async with asyncio.TaskGroup() as group:
            group.create_task(mend())
            assert await job.result() == 2
        assert 60 <= virtual_time.elapsed <= 63
    assert "results failed" in caplog.text


async def test_who_waits_is_told_of_trouble_that_will_not_pass(virtual_time: VirtualTime) -> None:
    store = Watched(virtual_time)
    async with app_on(store, virtual_time) as app:
        jobs = await enqueue(app, 2)
        waiting = [asyncio.create_task(job.result()) for job in jobs]
        await asyncio.sleep(0.1)
        store.trouble = OSError("the disk is gone")
        ends = await asyncio.gather(*waiting, return_exceptions=True)

        assert ends == [store.trouble, store.trouble]
        assert store.watchers == 0


async def test_who_waits_when_the_app_is_closed_is_told(app: Mainspring) -> None:
    task = app.task(name="double")(lambda: None)
    async with app:
        job = await task.enqueue()
        waiting = asyncio.create_task(job.result())
        await asyncio.sleep(0.1)
    with pytest.raises(StoreClosed):
        await waiting


async def test_a_job_that_is_deleted_while_one_waits_is_gone(app: Mainspring) -> None:
    task = app.task(name="double")(lambda: None)
    async with app:
        job = await task.enqueue()
        waiting = asyncio.create_task(job.result())
        await asyncio.sleep(0.1)
        await job.delete()

        with pytest.raises(JobGone):
            await waiting


def test_a_wait_whose_loop_was_closed_is_forgotten_by_the_next_one(virtual_time: VirtualTime) -> None:
    store = Watched(virtual_time)
    app = app_on(store, virtual_time)
    job = virtual_time.run(app.find("double").enqueue(1))
    for _ in range(3):
        loop = asyncio.new_event_loop()
        waiting = loop.create_task(job.result())
        loop.run_until_complete(asyncio.sleep(0.01))
        assert not waiting.done()
        for task in asyncio.all_tasks(loop):
            task._log_destroy_pending = False  # type: ignore[attr-defined] # they are left pending on purpose
        loop.close()
        assert store.watchers == 1

    with pytest.raises(JobUnfinished):
        asyncio.run(job.result(timeout=0.01))
    assert store.watchers == 0
