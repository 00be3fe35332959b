"""Claims begin at remembered marks, and still pass nothing over: what is announced starts at once, the rest within a second."""

import asyncio
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from statistics import median
from typing import TypeAlias
from uuid import UUID

import asyncpg
import pytest

from mainspring import Context, Limit, Mainspring, RetryIn, Snooze
from mainspring.core.command import MoveJob
from mainspring.core.job import JobId
from mainspring.core.limits import Gate, Scope
from mainspring.core.names import Name
from mainspring.core.outcome import Interrupted
from mainspring.stores.postgres import PostgresStore
from mainspring.stores.postgres.lanes import Lane
from mainspring.stores.postgres.statements import qualified
from mainspring.stores.records import ClaimRequest
from tests.servers.postgres import Server
from tests.servers.wire import Wire
from tests.stores.postgres_crowd import SEND, Crowd, Node, crowd, empty, lasting_schema, new, some_id
from tests.stores.postgres_filled import POLICY
from tests.stores.postgres_wires import on_real_time

AT_ONCE = 0.1
"""Seconds until what was announced has started."""
WITHIN_A_SECOND = 1.3
"""Seconds until what nobody has announced has started, with something for a machine that others use too."""
HOUR = timedelta(hours=1)
DELAY = 0.3
LATE = """
INSERT INTO mainspring.jobs (
    id, lane, home, queue, task, priority, state, run_at, loss_limit, max_attempts, policy, enqueued_at, payload
)
VALUES ($1, $2, $2, 'default', $3, 50, 'ready', $4, 3, 3, $5, now(), '[[],{}]')
"""


@pytest.fixture(scope="module")
def schema(postgres: Server) -> Iterator[str]:
    with lasting_schema(postgres) as name:
        yield name


@pytest.fixture
def postgres_schema(postgres: Server, schema: str) -> str:
    empty(postgres, schema)
    return schema


class Program:
    """An app as two processes would have it: one runs a node, the other enqueues and operates."""

    def __init__(self, server: Server, schema: str) -> None:
        self.app = Mainspring(f"{server.dsn()}?schema={schema}")
        self.starts: defaultdict[UUID, list[float]] = defaultdict(list)
        self.ends: dict[UUID, float] = {}
        self._started = asyncio.Event()

        @self.app.task(name="work")
        async def work(ctx: Context, wish: str = "") -> None:
            self._begin(ctx)
            if wish and len(self.starts[ctx.job]) == 1:
                self.ends[ctx.job] = time.monotonic()
                raise RetryIn(DELAY) if wish == "retry" else Snooze(DELAY)

        @self.app.task(name="keyed", limit=Limit(concurrency=1, key="key"))
        async def keyed(ctx: Context, key: str) -> None:
            self._begin(ctx)

        self.work, self.keyed = work, keyed

    def _begin(self, ctx: Context) -> None:
        self.starts[ctx.job].append(time.monotonic())
        self._started.set()

    @property
    def store(self) -> PostgresStore:
        assert isinstance(self.app.store, PostgresStore)
        return self.app.store

    async def start(self, job: UUID, number: int = 1) -> float:
        """Wait for a start of a job; says when it was."""
        async with asyncio.timeout(10):
            while len(self.starts[job]) < number:
                self._started.clear()
                await self._started.wait()
        return self.starts[job][number - 1]


class Pair:
    """A node that waits for work, and somebody elsewhere."""

    def __init__(self, node: Program, other: Program, those: Crowd) -> None:
        self.node = node
        self.other = other
        self.those = those

    async def drain(self, jobs: int) -> None:
        """Work off many jobs, so that marks have moved on."""
        handles = await self.other.work.enqueue_many([self.other.work.call() for _ in range(jobs)])
        for handle in handles:
            await self.node.start(handle.id)
        await asyncio.sleep(0.3)


@asynccontextmanager
async def pair(server: Server, schema: str, *, jobs: int) -> AsyncIterator[Pair]:
    node, other = Program(server, schema), Program(server, schema)
    async with crowd(server, schema) as those, other.app, node.app.node(concurrency=10):
        both = Pair(node, other, those)
        await both.drain(jobs)
        yield both


async def soon(measure: Callable[[], Awaitable[float]], within: float, *, times: int = 5) -> None:
    """Measure several times, and all of that again where the machine was busy with something else."""
    for _ in range(3):
        took = [await measure() for _ in range(times)]
        if median(took) <= within:
            return
    pytest.fail(f"it took {[f'{1000 * one:.0f} ms' for one in took]}")


# A node that waits.

Story: TypeAlias = Callable[[Pair], Awaitable[float]]
"""Has something become claimable; says how many seconds later it started."""


async def of_higher_priority(both: Pair) -> float:
    job = await both.other.work.using(priority=90).enqueue()
    return await both.node.start(job.id) - time.monotonic()


async def retry_come_due(both: Pair) -> float:
    job = await both.other.work.enqueue("retry")
    return await both.node.start(job.id, 2) - both.node.ends[job.id] - DELAY


async def snoozed_come_due(both: Pair) -> float:
    job = await both.other.work.enqueue("snooze")
    return await both.node.start(job.id, 2) - both.node.ends[job.id] - DELAY


async def scheduled_come_due(both: Pair) -> float:
    job = await both.other.work.using(delay=DELAY).enqueue()
    due = time.monotonic() + DELAY
    return await both.node.start(job.id) - due


async def given_back(both: Pair) -> float:
    """A job that another node had."""
    late = await both.those.node(tasks=[Name("", "work")])
    await both.node.store.pause("elsewhere")
    job = await both.other.work.using(queue="elsewhere", delay="1ms").enqueue()
    await asyncio.sleep(0.01)
    request = ClaimRequest(node=late.id, term=late.term, tasks=late.tasks, queues={"elsewhere": 1})
    await both.other.store.resume("elsewhere")
    claimed = await late.store.claim(request)
    if not claimed.deliveries:  # the node was faster: then it was at once
        return 0.0
    await late.settle(claimed.deliveries, Interrupted(started=False))
    began = time.monotonic()
    return await both.node.start(job.id) - began


async def moved_into_the_past(both: Pair) -> float:
    job = await both.other.work.using(delay="1h").enqueue()
    await both.those.command(both.other.store, JobId(job.id), MoveJob(run_at=both.other.store.now() - HOUR))
    began = time.monotonic()
    return await both.node.start(job.id) - began


async def in_a_resumed_queue(both: Pair) -> float:
    await both.other.store.pause("mail")
    job = await both.other.work.using(queue="mail").enqueue()
    await asyncio.sleep(0.3)
    assert not both.node.starts[job.id]
    await both.other.store.resume("mail")
    began = time.monotonic()
    return await both.node.start(job.id) - began


async def behind_a_raised_limit(both: Pair) -> float:
    await both.other.store.pause("narrow")
    first, second = [await both.other.work.using(queue="narrow").enqueue() for _ in range(2)]
    gate = Gate(scope=Scope.QUEUE, name="narrow", concurrency=1)
    await both.other.store.declare([gate])
    late = await both.those.node(tasks=[Name("", "work")])
    await both.other.store.resume("narrow")
    request = ClaimRequest(node=late.id, term=late.term, tasks=late.tasks, queues={"narrow": 1})
    held = await late.store.claim(request)
    if not held.deliveries:
        await both.node.start(second.id)
        return 0.0
    await asyncio.sleep(0.3)
    assert not both.node.starts[second.id]
    await both.other.store.declare([Gate(scope=Scope.QUEUE, name="narrow", concurrency=2)])
    began = time.monotonic()
    took = await both.node.start(second.id) - began
    await late.settle(held.deliveries)
    return took


async def parked_behind_a_key(both: Pair) -> float:
    """The one that has the key's place runs on another node."""
    late = await both.those.node(tasks=[Name("", "keyed")])
    key = str(some_id())
    await both.node.store.pause("default")
    first, *others = [await both.other.keyed.enqueue(key) for _ in range(30)]
    await both.other.store.resume("default")
    request = ClaimRequest(node=late.id, term=late.term, tasks=late.tasks, room=1)
    held = await late.store.claim(request)
    if not held.deliveries:
        await both.node.start(others[-1].id)
        return 0.0
    await asyncio.sleep(0.1)
    assert not both.node.starts[others[0].id]
    await late.settle(held.deliveries)
    began = time.monotonic()
    return await both.node.start(others[0].id) - began


STORIES = [
    of_higher_priority,
    retry_come_due,
    snoozed_come_due,
    scheduled_come_due,
    given_back,
    moved_into_the_past,
    in_a_resumed_queue,
    behind_a_raised_limit,
    parked_behind_a_key,
]


@pytest.mark.slow
@pytest.mark.parametrize("story", STORIES, ids=[story.__name__ for story in STORIES])
@on_real_time
async def test_after_a_long_drain_a_job_starts_at_once_that_is(
    postgres: Server, postgres_schema: str, story: Story
) -> None:
    async with pair(postgres, postgres_schema, jobs=2000) as both:
        await soon(lambda: story(both), AT_ONCE)


@on_real_time
async def test_after_a_drain_a_job_of_higher_priority_starts_at_once(postgres: Server, postgres_schema: str) -> None:
    async with pair(postgres, postgres_schema, jobs=200) as both:
        await soon(lambda: of_higher_priority(both), AT_ONCE)
