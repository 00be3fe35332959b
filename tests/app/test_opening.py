"""An app's store is opened by whoever needs it first, once, and closed once, from any loop and thread."""

import asyncio
import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from mainspring import Mainspring
from mainspring.client.outbox import Outbox
from mainspring.errors import StoreClosed, StoreUnavailable
from mainspring.stores.memory import MemoryStore
from mainspring.testing import VirtualTime


class Door(MemoryStore):
    """Takes its time to open and close, counts both, and can be jammed."""

    def __init__(self, seconds: float = 1.0) -> None:
        super().__init__()
        self.seconds = seconds
        self.steps: list[str] = []
        self.jammed: Exception | None = None

    async def open(self) -> None:
        self.steps.append("opening")
        await asyncio.sleep(self.seconds)
        if self.jammed:
            raise self.jammed
        self.steps.append("open")
        await super().open()

    async def close(self) -> None:
        self.steps.append("closing")
        await asyncio.sleep(self.seconds)
        self.steps.append("closed")
        await super().close()


def app_on(store: MemoryStore) -> Mainspring:
    app = Mainspring(store)
    app.task(name="nothing")(lambda: None)
    return app


async def test_a_block_opens_and_closes(app: Mainspring) -> None:
    async with app as entered:
        assert entered is app
        store = app.store
        assert await store.get([]) == ()
    with pytest.raises(StoreClosed):
        _ = app.store
    with pytest.raises(StoreClosed):
        await store.get([])


async def test_the_first_use_opens_and_the_store_stays_open_until_it_is_closed(app: Mainspring) -> None:
    task = app.task(name="nothing")(lambda: None)

    job = await task.enqueue()

    assert app.store is app.store
    assert (await job.refresh()).job.id == job.id
    await app.close()
    with pytest.raises(StoreClosed):
        _ = app.store


async def test_a_closed_app_can_be_used_again(app: Mainspring) -> None:
    task = app.task(name="nothing")(lambda: None)
    for count in (1, 2):
        async with app:
            await task.enqueue()
            assert len((await app.jobs()).jobs) == count
    await task.enqueue()
    assert len((await app.jobs()).jobs) == 3
    await app.close()
    await app.close()


async def test_blocks_in_one_another_close_with_the_last(virtual_time: VirtualTime) -> None:
    door = Door()
    app = app_on(door)
    async with app:
        async with app:
            pass
        assert await app.store.get([]) == ()
    assert door.steps == ["opening", "open", "closing", "closed"]
    assert virtual_time.elapsed == 2


async def test_many_at_once_share_one_opening(virtual_time: VirtualTime) -> None:
    door = Door()
    app = app_on(door)

    await asyncio.gather(*(app.enqueue("nothing") for _ in range(20)))

    assert door.steps == ["opening", "open"]
    assert virtual_time.elapsed == 1


async def test_many_at_once_share_one_failure_and_the_next_tries_again(virtual_time: VirtualTime) -> None:
    door = Door()
    door.jammed = StoreUnavailable("door", "jammed")
    app = app_on(door)

    ends = await asyncio.gather(*(app.enqueue("nothing") for _ in range(5)), return_exceptions=True)

    assert ends == [door.jammed] * 5
    assert virtual_time.elapsed == 1
    door.jammed = None
    await app.enqueue("nothing")
    assert door.steps == ["opening", "opening", "open"]


async def test_who_is_cancelled_while_opening_hands_over(virtual_time: VirtualTime) -> None:
    door = Door()
    app = app_on(door)
    first = asyncio.create_task(app.enqueue("nothing"))
    others = [asyncio.create_task(app.enqueue("nothing")) for _ in range(3)]
    await asyncio.sleep(0.5)

    first.cancel()
    others[0].cancel()
    await asyncio.gather(*others[1:])

    assert first.cancelled()
    assert others[0].cancelled()
    assert door.steps == ["opening", "opening", "open"]
    assert virtual_time.elapsed == 1.5


async def test_a_block_that_could_not_open_counts_for_nothing(virtual_time: VirtualTime) -> None:
    door = Door()
    door.jammed = StoreUnavailable("door", "jammed")
    app = app_on(door)
    with pytest.raises(StoreUnavailable):
        async with app:
            pass
    door.jammed = None
    async with app:
        pass

    assert door.steps[-1] == "closed"
    assert virtual_time.elapsed == 3


async def test_who_comes_while_it_closes_opens_it_again(virtual_time: VirtualTime) -> None:
    door = Door()
    app = app_on(door)
    await app.enqueue("nothing")
    closing = asyncio.create_task(app.close())
    await asyncio.sleep(0.5)

    await app.enqueue("nothing")

    assert closing.done()
    assert door.steps == ["opening", "open", "closing", "closed", "opening", "open"]
    assert virtual_time.elapsed == 3


async def test_who_closes_while_it_opens_waits_for_that(virtual_time: VirtualTime) -> None:
    door = Door()
    app = app_on(door)
    opening = asyncio.create_task(app.enqueue("nothing"))
    await asyncio.sleep(0.5)

    await app.close()

    assert opening.done()
    assert door.steps == ["opening", "open", "closing", "closed"]
    assert virtual_time.elapsed == 2


async def test_closing_what_was_never_opened_does_nothing(virtual_time: VirtualTime) -> None:
    door = Door()

    await app_on(door).close()

    assert (door.steps, virtual_time.elapsed) == ([], 0)


def test_many_loops_and_threads_share_one_opening() -> None:
    door = Door(seconds=0.05)
    app = app_on(door)
    start = threading.Barrier(8)

    def enqueue(number: int) -> None:
        start.wait()
        if number % 2:
            app.enqueue_sync("nothing")
        else:
            asyncio.run(app.enqueue("nothing"))

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(enqueue, range(8)))

    assert door.steps == ["opening", "open"]
    assert len(asyncio.run(app.jobs()).jobs) == 8
    app.close_sync()
    assert door.steps[2:] == ["closing", "closed"]


async def test_virtual_time_stands_still_for_an_opening_in_another_thread(virtual_time: VirtualTime) -> None:
    door = Door(seconds=0.2)  # of real time, in the thread
    app = app_on(door)
    thread = threading.Thread(target=lambda: app.enqueue_sync("nothing"))
    thread.start()
    while not door.steps:  # the thread is real, and so is this wait
        await asyncio.to_thread(threading.Event().wait, 0.001)

    await app.enqueue("nothing")

    assert door.steps == ["opening", "open"]
    assert virtual_time.elapsed == 0
    thread.join()
    await app.close()


# Sync calls beside a change on the same loop


def publish(file: Path, outbox: Outbox[int]) -> None:
    with closing(sqlite3.connect(file)) as connection:
        outbox.publish_sync(connection, 1, key="one")
        connection.commit()


@pytest.mark.parametrize("call", ["enqueue", "refresh", "cancel", "publish", "close"])
def test_a_sync_call_on_the_loop_whose_task_opens_the_store_is_answered(tmp_path: Path, call: str) -> None:
    app = Mainspring(f"sqlite:///{tmp_path}/jobs.db")
    task = app.task(name="nothing")(lambda: None)
    outbox = app.outbox("news", partitions=1, payload=int)
    job = task.enqueue_sync()
    app.close_sync()
    calls: dict[str, Callable[[], object]] = {
        "enqueue": task.enqueue_sync,
        "refresh": job.refresh_sync,
        "cancel": job.cancel_sync,
        "publish": lambda: publish(tmp_path / "jobs.db", outbox),
        "close": app.close_sync,
    }

    async def main() -> None:
        opening = asyncio.create_task(task.enqueue())
        await asyncio.sleep(0)
        calls[call]()
        await opening
        assert len((await app.jobs()).jobs) == 2 + (call == "enqueue")
        await app.close()

    asyncio.run(main())


def test_a_sync_call_on_the_loop_whose_task_closes_the_store_is_refused(tmp_path: Path) -> None:
    app = Mainspring(f"sqlite:///{tmp_path}/jobs.db")
    task = app.task(name="nothing")(lambda: None)

    async def main() -> None:
        await task.enqueue()
        closing = asyncio.create_task(app.close())
        await asyncio.sleep(0)
        with pytest.raises(RuntimeError, match="is being opened or closed on this event loop"):
            task.enqueue_sync()
        await closing
        task.enqueue_sync()
        await app.close()

    asyncio.run(main())


def test_an_opening_without_waiting_calls_is_cancelled() -> None:
    door = Door(seconds=3600)
    app = app_on(door)

    async def main() -> None:
        calls = [asyncio.create_task(app.enqueue("nothing")) for _ in range(3)]
        while not door.steps:  # the thread is real, and so is this wait
            await asyncio.sleep(0.001)
        calls[0].cancel()
        await asyncio.wait(calls[:1])
        assert not calls[1].done()
        for waiting in calls[1:]:
            waiting.cancel()
        await asyncio.wait(calls)
        door.seconds = 0
        await app.enqueue("nothing")
        assert door.steps == ["opening", "opening", "open"]
        await app.close()

    asyncio.run(main())


def test_an_opening_that_is_cancelled_before_it_has_begun_leaves_nothing_behind() -> None:
    app = app_on(Door(seconds=0))

    async def main() -> None:
        for _ in range(50):
            first = asyncio.create_task(app.enqueue("nothing"))
            await asyncio.sleep(0)
            first.cancel()
            await app.enqueue("nothing")
            await app.close()

    asyncio.run(main())


def test_every_call_to_a_store_that_fails_at_once_gets_its_error_from_one_opening() -> None:
    class Shut(MemoryStore):
        openings = 0

        async def open(self) -> None:
            self.openings += 1
            raise StoreUnavailable("shut", "refused")

    store = Shut()
    app = app_on(store)

    async def main() -> None:
        for number in range(1, 51):
            with pytest.raises(StoreUnavailable, match="refused"):
                await app.enqueue("nothing")
            assert store.openings == number

    asyncio.run(main())
