"""How a node ends: in good order, in a hurry, cancelled, with a store that hangs, or because it can renew no more."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from mainspring import Mainspring
from mainspring.core.job import State
from mainspring.runtime.events import StateChange
from mainspring.settings import NodeSettings
from mainspring.stores.memory import MemoryStore
from mainspring.stores.records import StopNode
from mainspring.testing import VirtualTime
from mainspring.testing.faults import FaultyStore
from tests.runtime.conftest import Bench


class Remote(FaultyStore):
    """A store on another machine: who cannot reach it must not believe that nobody can."""

    shares_fate = False


@pytest.fixture
def remote(virtual_time: VirtualTime) -> Bench:
    store = Remote(MemoryStore(clock=virtual_time.clock))
    return Bench(Mainspring(store=store.as_store, clock=virtual_time.clock), store, virtual_time)


@contextmanager
def nothing_left_behind() -> Iterator[None]:
    """Fail if a task still runs at the end of the block that did not run at its beginning."""
    before = asyncio.all_tasks()
    yield
    left = asyncio.all_tasks() - before
    for task in left:
        task.cancel()
    assert sorted(task.get_name() for task in left) == []


async def test_a_shutdown_that_is_cancelled_leaves_nothing_behind(bench: Bench) -> None:
    @bench.app.task(name="work")
    async def work() -> None:
        await asyncio.sleep(600)

    async def program() -> None:
        async with bench.app.node(grace="30s"):
            await work.enqueue()
            await asyncio.sleep(3600)

    with nothing_left_behind():
        running = asyncio.create_task(program())
        await asyncio.sleep(5)
        running.cancel()
        await asyncio.sleep(5)
        running.cancel()  # somebody is in a hurry
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(running, 10)
        await asyncio.sleep(120)

    (view,) = (await bench.app.jobs()).jobs
    assert (view.job.state, view.job.attempt) == (State.READY, 0)


async def test_a_start_that_is_cancelled_leaves_nothing_behind(bench: Bench) -> None:
    bench.store.drop("join", times=1000)
    with nothing_left_behind():
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(5), bench.app.node():
                pytest.fail("it has not joined")
        bench.store.heal()
        await asyncio.sleep(60)

    await bench.store.inner.open()
    assert not [view for view in await bench.store.inner.nodes() if view.alive]


async def test_a_run_that_is_cancelled_leaves_nothing_behind(bench: Bench) -> None:
    @bench.app.task(name="work")
    async def work() -> None:
        await asyncio.sleep(600)

    async with bench.app:
        with nothing_left_behind():
            running = asyncio.create_task(bench.app.make_node(NodeSettings(grace="1h")).run())
            job = await work.enqueue()
            await asyncio.sleep(5)
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asyncio.wait_for(running, 20)
            await asyncio.sleep(120)
        assert (await bench.view(job.id)).job.state is State.READY
        assert [view.alive for view in await bench.store.inner.nodes()] == [False]


async def test_a_node_that_waits_for_the_store_can_be_told_to_stop(bench: Bench) -> None:
    async with bench.app:
        bench.store.drop("join", times=1000)
        with nothing_left_behind():
            node = bench.app.make_node(NodeSettings())
            running = asyncio.create_task(node.run())
            await asyncio.sleep(30)
            node.stop.set()
            assert (await asyncio.wait_for(running, 10)).drained


async def test_the_last_writes_of_a_node_have_one_deadline_for_all(bench: Bench) -> None:
    @bench.app.task(name="work")
    async def work() -> None:
        await asyncio.sleep(600)

    async with bench.app:
        node = bench.app.make_node(NodeSettings(grace="1s", stop_grace="1s"))
        await node.start()
        await work.enqueue()
        await asyncio.sleep(3)
        for verb in ("renew", "settle", "write_tallies", "report", "declare_dead"):
            bench.store.delay(verb, "10h", times=100)
        began = bench.time.elapsed
        report = await node.shutdown()
        # Grace, the last writes, and two task sets with a step that hangs.
        assert bench.time.elapsed - began <= 1 + 5 + 2 + 4
        assert report.unwritten == 1


@pytest.mark.parametrize("verb", ["renew", "declare_dead", "get"])
async def test_shutdown_ends_though_the_store_hangs(bench: Bench, verb: str) -> None:
    @bench.app.task(name="work")
    async def work() -> None: ...

    async with bench.app:
        node = bench.app.make_node(NodeSettings(grace="1s", stop_grace="1s"))
        await node.start()
        await asyncio.sleep(3)
        if verb == "get":  # it is asked for what was lost
            bench.store.lose_answer("claim")
            await work.enqueue()
            await asyncio.sleep(0.2)
        bench.store.delay(verb, "10h", times=100)
        began = bench.time.elapsed
        await node.shutdown()
        assert bench.time.elapsed - began < 60


async def test_a_body_that_ends_after_it_was_given_back_is_not_told_as_a_success(bench: Bench) -> None:
    told: list[str] = []

    @bench.app.listener
    def listen(change: StateChange) -> None:
        told.append(str(change.event))

    @bench.app.task(name="work")
    async def work() -> str:
        while bench.time.elapsed < 12:
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(12 - bench.time.elapsed)
        return "done"

    async with bench.app:
        node = bench.app.make_node(NodeSettings(grace="1s", stop_grace="5s"))
        await node.start()
        job = await work.enqueue()
        await asyncio.sleep(4)
        bench.store.delay("settle", "4s")  # it ends while it is being written that it was given back
        report = await node.shutdown(exiting=True)
        assert (await bench.view(job.id)).job.state is State.READY

    assert report.abandoned == (job.id,)
    assert told == ["claimed", "given_back"]


async def test_the_report_counts_what_was_interrupted_and_not_what_finished_all_the_same(bench: Bench) -> None:
    @bench.app.task(name="work")
    async def work(*, obeys: bool) -> None:
        try:
            await asyncio.sleep(100)
        except asyncio.CancelledError:
            if obeys:
                raise

    async with bench.app:
        node = bench.app.make_node(NodeSettings(grace="1s"))
        await node.start()
        obedient = await work.enqueue(obeys=True)
        other = await work.enqueue(obeys=False)
        await asyncio.sleep(1)
        report = await node.shutdown()
        assert (await bench.view(obedient.id)).job.state is State.READY
        assert (await bench.view(other.id)).job.state is State.SUCCEEDED

    assert (report.interrupted, report.drained) == (1, True)


async def test_a_node_inside_of_a_program_that_is_ordered_to_stop_takes_nothing_new(bench: Bench) -> None:
    @bench.app.task(name="work")
    async def work() -> None: ...

    async with bench.app.node() as node:
        await bench.store.inner.order(node.id, StopNode())
        await asyncio.sleep(10)
        (order,) = await bench.store.inner.orders(node.id)
        job = await work.enqueue()
        await asyncio.sleep(60)
        assert order.answer == "done"
        assert (await bench.view(job.id)).job.state is State.READY


# A node that can renew no more stops by itself, before others take its work.


async def test_a_silent_node_starts_nothing_that_it_had_claimed_ahead(remote: Bench) -> None:
    started: list[float] = []

    @remote.app.task(name="quick")
    async def quick() -> None:
        await asyncio.sleep(0.001)

    @remote.app.task(name="long")
    async def long() -> None:
        if not started:  # from now on nothing comes through
            remote.store.drop("renew", times=10_000)
            remote.store.delay("claim", "10h", times=10_000)
            remote.store.delay("settle", "10h", times=10_000)
        started.append(remote.time.elapsed)
        await asyncio.sleep(600)

    async with remote.app:
        await remote.app.enqueue_many([quick.call() for _ in range(400)] + [long.call() for _ in range(8)])
        async with remote.app.node(lease="15s", concurrency=2, grace="0s") as node:
            await remote.until(lambda: started)
            views = (await remote.app.jobs(task="long", state="running")).jobs
            assert len(views) > 2  # some wait for a place
            await asyncio.sleep(60)
            assert node.running == 0
            remote.store.heal()

    assert len(started) == 2


async def test_a_silent_node_claims_nothing_until_it_can_renew_again(remote: Bench) -> None:
    @remote.app.task(name="long")
    async def long() -> None:
        await asyncio.sleep(600)

    async with remote.app.node(lease="15s", concurrency=1, grace="0s") as node:
        jobs = [await long.enqueue() for _ in range(3)]
        await remote.until(lambda: node.running == 1)
        remote.store.drop("renew", times=10_000)  # and nothing else: by the store's account it might claim
        await asyncio.sleep(60)
        assert node.running == 0
        assert [(await remote.view(job.id)).job.attempt for job in jobs] == [0, 0, 0]
        remote.store.heal()
        await remote.until(lambda: node.running == 1)
