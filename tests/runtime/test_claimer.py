"""The claimer: when claimed jobs begin, and how many jobs for process slots a busy node claims."""

import asyncio

from mainspring import Mainspring
from mainspring.core.job import State
from mainspring.runtime.events import StateChange
from mainspring.runtime.node import Node
from mainspring.stores.memory import MemoryStore
from mainspring.stores.records import Claimed, ClaimRequest
from mainspring.testing import VirtualTime
from mainspring.testing.faults import FaultyStore
from tests.runtime import slot_tasks
from tests.runtime.conftest import Bench


async def test_what_was_claimed_has_begun_when_the_claimer_goes_to_sleep(bench: Bench) -> None:
    began = []

    @bench.app.task(name="work")
    async def work(number: int) -> None:
        began.append(number)
        await asyncio.sleep(1)

    async with bench.app.node() as node:
        node.quiet()
        for number in range(3):
            await work.enqueue(number)
        await asyncio.sleep(0.1)  # until the service has heard of them, and rests
        claimer = node._parts.claimer
        claimer.quiet = False

        await claimer.step()

        assert began == [0, 1, 2]


async def test_a_node_without_a_free_place_claims_no_job_for_a_process_slot(bench: Bench) -> None:
    heavy = bench.app.task(name="heavy", executor="process")(slot_tasks.echo)

    @bench.app.task(name="light")
    async def light() -> None:
        await asyncio.sleep(60)

    async with bench.app.node(concurrency=2, processes=2, grace="0s") as full:
        for _ in range(2):
            await light.enqueue()
        await bench.until(lambda: full.running == 2)
        job = await heavy.enqueue("x")
        await asyncio.sleep(12)

        view = await bench.view(job.id)
        assert (view.job.state, view.job.lease) == (State.READY, 0)
        assert full.events.counts["given_back_unstarted"] == 0

        async with bench.app.node(concurrency=2, processes=2, grace="0s"):
            assert await job.result("2s") == "x"


async def test_a_node_full_of_quick_jobs_runs_a_job_for_a_process_slot_before_the_backlog_ends(bench: Bench) -> None:
    started: list[str] = []

    @bench.app.listener
    def listen(change: StateChange) -> None:
        if change.event == "claimed":
            started.append(str(change.job.task))

    heavy = bench.app.task(name="heavy", executor="process", priority=0)(slot_tasks.echo)

    @bench.app.task(name="light", priority=100)
    async def light() -> None:
        await asyncio.sleep(0.02)

    async with bench.app.node(concurrency=2, processes=2, grace="0s") as node:
        await light.enqueue_many([light.call() for _ in range(1000)])
        await bench.until(lambda: len(started) > 200)
        assert node._parts.runner.buffered, "light jobs are claimed ahead: no place is ever seen to be free"
        before = len(started)
        job = await heavy.enqueue("x")
        assert await job.result("5s") == "x"

    assert started.index("heavy") - before < 200
    assert (await bench.view(job.id)).job.claims == 1


class StoreThatRecordsLastChances(MemoryStore):
    """A store that records how many jobs its node was running when jobs were claimed that a loss would end."""

    def __init__(self, time: VirtualTime) -> None:
        super().__init__(clock=time.clock)
        self.node: Node | None = None
        self.running: list[int] = []

    async def claim(self, request: ClaimRequest) -> Claimed:
        running = self.node.running if self.node else 0
        claimed = await super().claim(request)
        self.running += [running for one in claimed.deliveries if one.claim.job.is_last_chance]
        return claimed


async def test_a_last_chance_for_a_process_slot_is_claimed_when_a_place_is_free_and_before_the_backlog_ends(
    virtual_time: VirtualTime,
) -> None:
    store = StoreThatRecordsLastChances(virtual_time)
    faulty = FaultyStore(store)
    bench = Bench(Mainspring(store=faulty.as_store, clock=virtual_time.clock), faulty, virtual_time)
    started: list[str] = []
    heavy = bench.app.task(name="heavy", executor="process", max_attempts=1, priority=0)(slot_tasks.echo)

    @bench.app.task(name="light", priority=100)
    async def light() -> None:
        started.append("light")
        await asyncio.sleep(0.02)

    async with bench.app.node(concurrency=2, processes=2, grace="0s") as node:
        await light.enqueue_many([light.call() for _ in range(1000)])
        await bench.until(lambda: len(started) > 200)
        assert node._parts.runner.buffered, "light jobs are claimed ahead: no place is ever seen to be free"
        before = len(started)
        store.node = node
        job = await heavy.enqueue("x")
        await bench.until(lambda: store.running)
        assert len(started) - before < 200
        assert await job.result("5s") == "x"

    assert store.running < [2], "a place was free"


async def test_a_task_that_is_unregistered_while_its_jobs_wait_stops_no_claims(bench: Bench) -> None:
    heavy = bench.app.task(name="heavy", executor="process")(slot_tasks.echo)
    done: list[int] = []

    @bench.app.task(name="light")
    async def light() -> None:
        await asyncio.sleep(0.02)
        done.append(1)

    async with bench.app.node(concurrency=2, processes=2, grace="0s") as node:
        await light.enqueue_many([light.call() for _ in range(1000)])
        await bench.until(lambda: len(done) > 200 and node._parts.runner.buffered)
        bench.app.registry.remove(light.definition)
        await node._parts.claimer.step()
        job = await heavy.enqueue("x")
        assert await job.result("5s") == "x"
