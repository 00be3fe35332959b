"""Bodies that outlive their node: their jobs run nowhere else before they have ended."""

import asyncio
import logging
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from mainspring import Context, Limit, Mainspring
from mainspring.core.job import Claim, NodeId, State
from mainspring.runtime.events import StateChange
from mainspring.settings import NodeSettings
from mainspring.stores.memory import MemoryStore
from mainspring.stores.records import Pulse, Settled, Settlement, Verdict
from mainspring.testing import VirtualTime
from mainspring.testing.faults import FaultyStore
from tests.runtime.conftest import Bench


def declare_stubborn(bench: Bench, bodies: list[tuple[int, float, float]], *, until: float) -> None:
    """Declare a task whose first body ignores its cancellation."""

    @bench.app.task(name="stubborn", limit=Limit(concurrency=1))
    async def stubborn(ctx: Context) -> str:
        began = bench.time.elapsed
        while not bodies and bench.time.elapsed < until:
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(until - bench.time.elapsed)
        bodies.append((ctx.attempt, began, bench.time.elapsed))
        if began < 5:
            raise ValueError("ended because the program goes on without it")
        return "done"


async def test_a_job_whose_body_outlives_its_node_runs_again_only_when_the_body_has_ended(bench: Bench) -> None:
    bodies: list[tuple[int, float, float]] = []
    declare_stubborn(bench, bodies, until=120)
    told: list[str] = []

    @bench.app.listener
    def listen(change: StateChange) -> None:
        told.append(str(change.event))

    async with bench.app.node(grace="0s", stop_grace="1s", lease="3s") as first:
        job = await bench.app.enqueue("stubborn")
        await asyncio.sleep(1)
    assert bench.time.elapsed < 20
    async with bench.app.node(lease="3s") as second:
        assert await job.result("5m") == "done"
        views = {view.node.id: view.alive for view in await bench.app.store.nodes()}
        assert views == {first.id: False, second.id: True}

    (_, _, ended), (attempt, began, _) = bodies
    assert 120 <= ended <= began <= 125
    assert attempt == 1, "the first attempt was interrupted and does not count"
    assert (await bench.view(job.id)).job.losses == 0
    assert sorted(told) == ["claimed", "claimed", "given_back", "succeeded"]


async def test_the_place_of_a_timed_out_body_stays_taken_until_it_has_ended_after_its_node(bench: Bench) -> None:
    began: list[float] = []

    @bench.app.task(name="deaf", limit=Limit(concurrency=1), timeout="2s", retry=None)
    async def deaf() -> None:
        began.append(bench.time.elapsed)
        while len(began) == 1 and bench.time.elapsed < 60:
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(60 - bench.time.elapsed)

    async with bench.app.node(grace="0s", stop_grace="1s", lease="3s") as node:
        await deaf.enqueue()
        await bench.until(lambda: node.events.counts["abandoned"])
        other = await deaf.enqueue()
    async with bench.app.node(lease="3s"):
        await other.result("5m")

    assert 60 <= began[1] <= 65


async def test_the_store_stays_open_until_the_last_body_has_ended_and_no_longer(bench: Bench) -> None:
    bodies: list[tuple[int, float, float]] = []
    declare_stubborn(bench, bodies, until=60)

    async with bench.app.node(grace="0s", stop_grace="1s", lease="3s") as node:
        job = await bench.app.enqueue("stubborn")
        await asyncio.sleep(1)
    assert bench.app._connection._open is not None
    await bench.until(lambda: bench.app._connection._open is None, within=120)

    assert 60 <= bench.time.elapsed <= 65
    assert (await bench.view(job.id)).job.state is State.READY
    (view,) = await bench.store.inner.nodes()
    assert (view.node.id, view.alive) == (node.id, False)


class StoreWithHeldRows(MemoryStore):
    """A store in which another transaction holds the rows of all jobs for a while."""

    held = False
    held_answers = 0

    async def settle(self, settlements: Sequence[Settlement]) -> tuple[Settled, ...]:
        if self.held:
            self.held_answers += 1
            return tuple(Settled(verdict=Verdict.LOCKED) for _ in settlements)
        return await super().settle(settlements)


async def test_a_node_renews_until_another_transaction_lets_go_of_the_row_of_its_last_job(
    virtual_time: VirtualTime,
) -> None:
    store = StoreWithHeldRows(clock=virtual_time.clock)
    faulty = FaultyStore(store)
    bench = Bench(Mainspring(store=faulty.as_store, clock=virtual_time.clock), faulty, virtual_time)
    declare_stubborn(bench, [], until=10)

    async with bench.app.node(grace="0s", stop_grace="1s", lease="3s"):
        job = await bench.app.enqueue("stubborn")
        await asyncio.sleep(1)
    store.held = True
    await asyncio.sleep(60)
    renewals = faulty.calls.count("renew")
    (view,) = await store.nodes()
    assert view.alive
    assert (await bench.view(job.id)).job.state is State.RUNNING
    assert 5 < store.held_answers < 100, "it tries again, and not without a pause"

    await asyncio.sleep(30)
    assert faulty.calls.count("renew") - renewals >= 30 / 0.6 - 1, "a beat is a fifth of the lease time"
    store.held = False
    await bench.until(lambda: bench.app._connection._open is None)
    await store.open()
    (view,) = await store.nodes()
    assert not view.alive
    assert (await bench.view(job.id)).job.state is State.READY


async def test_leases_are_renewed_as_soon_as_the_store_is_back_after_an_outage(bench: Bench) -> None:
    bodies: list[tuple[int, float, float]] = []
    declare_stubborn(bench, bodies, until=200)
    async with bench.app.node(grace="0s", stop_grace="1s", lease="3s"):
        job = await bench.app.enqueue("stubborn")
        await asyncio.sleep(1)
    async with bench.app.node(lease="3s"):
        bench.store.drop("renew", times=100_000)
        await asyncio.sleep(60)
        bench.store.heal()
        assert await job.result("10m") == "done"

    (_, _, ended), (attempt, began, _) = bodies
    assert 200 <= ended <= began
    assert attempt == 1
    assert (await bench.view(job.id)).job.losses == 0


async def test_closing_the_app_ends_the_renewals_and_is_not_held_up(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    declare_stubborn(bench, [], until=60)
    async with bench.app.node(grace="0s", stop_grace="1s", lease="3s"):
        await bench.app.enqueue("stubborn")
        await asyncio.sleep(1)
    began = bench.time.elapsed

    await bench.app.close()

    assert bench.time.elapsed - began < 1
    await bench.until(lambda: "lingering" not in {task.get_name() for task in asyncio.all_tasks()})
    assert bench.time.elapsed - began < 5
    assert "store closed with jobs still running" in caplog.text


async def test_a_program_that_exits_gives_back_the_job_at_once(bench: Bench) -> None:
    declare_stubborn(bench, [], until=60)
    async with bench.app:
        node = bench.app.make_node(NodeSettings(grace="0s", stop_grace="1s"))
        await node.start()
        job = await bench.app.enqueue("stubborn")
        await asyncio.sleep(1)
        await node.shutdown(exiting=True)
        assert (await bench.view(job.id)).job.state is State.READY


@pytest.mark.slow
def test_a_thread_that_outlives_its_node_and_its_event_loop_keeps_its_job(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, "mainspring.node")
    app = Mainspring(f"sqlite:///{tmp_path / 'jobs.db'}")
    may_end = threading.Event()
    running: list[float] = []
    most: list[int] = []
    starts: list[float] = []

    @app.task(name="stuck", limit=Limit(concurrency=1))
    def stuck() -> str:
        starts.append(time.monotonic())
        running.append(1)
        most.append(len(running))
        may_end.wait(60)
        running.pop()
        return "done"

    async def first() -> None:
        async with app.node(grace="0s", stop_grace="200ms", lease="1s"):
            await stuck.enqueue()
            while not starts:
                await asyncio.sleep(0.01)

    async def second() -> None:
        async with app.node(grace="5s", lease="1s"):
            (view,) = (await app.jobs()).jobs
            await asyncio.sleep(3)  # for three lease times nothing may happen
            assert len(starts) == 1
            may_end.set()
            assert await app.job(view.job.id).result("30s") == "done"

    asyncio.run(first())
    asyncio.run(second())

    assert most == [1, 1]


class SlowOrphans(MemoryStore):
    """A store whose answer to the reaper takes seconds."""

    delay = 0.0

    async def orphans(self, limit: int) -> tuple[Claim, ...]:
        await asyncio.sleep(self.delay)
        return await super().orphans(limit)


async def test_a_body_that_ends_while_the_services_of_its_node_are_stopped_is_settled(
    virtual_time: VirtualTime,
) -> None:
    store = SlowOrphans(clock=virtual_time.clock)
    app = Mainspring(store=store, clock=virtual_time.clock)
    calls: list[float] = []

    @app.task(name="stubborn")
    async def stubborn() -> str:
        began = virtual_time.elapsed
        calls.append(began)
        while len(calls) == 1 and virtual_time.elapsed < began + 2.6:
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(began + 2.6 - virtual_time.elapsed)
        return "done"

    async with app:
        async with app.node(grace="1s", stop_grace="1s") as node:
            job = await stubborn.enqueue()
            while not calls:
                await asyncio.sleep(0.01)
            store.delay = 1.0
            # The reaper waits for its answer from 1.9 to 2.9 s: the services are stopped from 2 s on.
            asyncio.get_running_loop().call_later(1.9, node._parts.reaper.sweep)
        store.delay = 0.0
        async with app.node():
            await job.result("1m")
    assert len(calls) == 1


class SlowRenewals(MemoryStore):
    """A store that other nodes can reach while this one cannot, and whose answers to renewals take seconds."""

    shares_fate = False
    delay = 0.0

    async def renew(self, node: NodeId, term: int, *, whole: bool = False) -> Pulse:
        pulse = await super().renew(node, term, whole=whole)
        await asyncio.sleep(self.delay)
        return pulse


async def test_a_node_that_has_left_does_not_watch_its_renewals(
    virtual_time: VirtualTime, caplog: pytest.LogCaptureFixture
) -> None:
    store = SlowRenewals(clock=virtual_time.clock)
    app = Mainspring(store=store, clock=virtual_time.clock)
    async with app:
        async with app.node(lease="3s"):
            await asyncio.sleep(1)
            store.delay = 1.2
            await asyncio.sleep(0.9)
        await asyncio.sleep(10)
    assert "could not renew" not in caplog.text
