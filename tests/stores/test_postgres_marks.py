"""Claims begin at remembered marks, and still pass nothing over: what is announced starts at once, the rest within a second."""

import asyncio
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from statistics import median
from typing import ParamSpec, TypeAlias
from uuid import UUID

import asyncpg
import pytest
from msgspec.structs import replace

from mainspring import Context, Limit, Mainspring, RetryIn, Snooze
from mainspring.core import machine
from mainspring.core.command import MoveJob
from mainspring.core.job import Claim, JobId
from mainspring.core.limits import Gate, Scope
from mainspring.core.names import Name
from mainspring.core.outcome import Interrupted
from mainspring.handle import JobHandle
from mainspring.stores.postgres import PostgresStore
from mainspring.stores.postgres.connected import Connected
from mainspring.stores.postgres.lanes import Lane
from mainspring.stores.postgres.statements import qualified
from mainspring.stores.postgres.verb import Row
from mainspring.stores.records import Delivery, Settlement
from mainspring.task import Task
from tests.servers.postgres import Server
from tests.stores.postgres_crowd import SEND, Crowd, Node, crowd, empty, lasting_schema, new, some_id
from tests.stores.postgres_filled import POLICY
from tests.stores.postgres_staged import driven
from tests.stores.postgres_wires import on_real_time

P = ParamSpec("P")

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
VALUES ($1, $2, $2, 'default', $3, 50, 'ready', $4, 3, 3, $5, now(), '{"v":1,"args":{}}')
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
            assert key
            self._begin(ctx)

        @self.app.task(name="limited")
        async def limited(ctx: Context) -> None:
            self._begin(ctx)

        self.work, self.keyed, self.limited = work, keyed, limited

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
    """A node that waits for work, somebody elsewhere, and a node of another queue that is at something for long."""

    def __init__(self, node: Program, other: Program, those: Crowd, late: Node) -> None:
        self.node = node
        self.other = other
        self.those = those
        self.late = late

    def now(self) -> datetime:
        return self.other.store.now()

    async def taken_elsewhere(
        self, task: Task[P, None], *args: P.args, **kwargs: P.kwargs
    ) -> tuple[JobHandle[None], list[Delivery]]:
        """Enqueue a job that the other node takes."""
        job = await task.using(queue="elsewhere").enqueue(*args, **kwargs)
        claimed = await self.late.claim(queues={"elsewhere": 1})
        assert [one.claim.job.id for one in claimed.deliveries] == [job.id]
        return job, list(claimed.deliveries)

    async def drain(self, jobs: int) -> None:
        """Work off many jobs, so that marks have moved on."""
        handles = await self.other.work.enqueue_many([self.other.work.call() for _ in range(jobs)])
        for handle in handles:
            await self.node.start(handle.id)
        await asyncio.sleep(0.3)


@asynccontextmanager
async def pair(server: Server, schema: str, *, jobs: int) -> AsyncIterator[Pair]:
    node, other = Program(server, schema), Program(server, schema)
    async with crowd(server, schema) as those, other.app, node.app.node(concurrency=10, queues=["default", "mail"]):
        late = await those.node(tasks=[Name("", task) for task in ("work", "limited", "keyed")])
        both = Pair(node, other, those, late)
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
    began = time.monotonic()
    return await both.node.start(job.id) - began


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
    job, deliveries = await both.taken_elsewhere(both.other.work)
    here = [
        replace(one.claim.job, queue="default") for one in deliveries
    ]  # of a queue that the node works, from now on
    changes = [
        machine.decide(Claim(job=one, node=both.late.id), Interrupted(started=True), both.now(), 0.5) for one in here
    ]
    await both.late.store.settle([Settlement(change=change, by=both.late.id) for change in changes])
    began = time.monotonic()
    return await both.node.start(job.id) - began


async def moved_into_the_past(both: Pair) -> float:
    job = await both.other.work.using(delay="1h").enqueue()
    await both.those.command(both.other.store, JobId(job.id), MoveJob(run_at=both.now() - HOUR))
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
    await both.other.store.declare([Gate(scope=Scope.TASK, name="limited", concurrency=1)])
    _, deliveries = await both.taken_elsewhere(both.other.limited)
    job = await both.other.limited.enqueue()
    await asyncio.sleep(0.3)
    assert not both.node.starts[job.id]
    await both.other.store.declare([Gate(scope=Scope.TASK, name="limited", concurrency=2)])
    began = time.monotonic()
    took = await both.node.start(job.id) - began
    await both.late.settle(deliveries)
    return took


async def parked_behind_a_key(both: Pair) -> float:
    key = str(some_id())
    _, deliveries = await both.taken_elsewhere(both.other.keyed, key)
    jobs = [await both.other.keyed.enqueue(key) for _ in range(30)]
    await asyncio.sleep(0.3)
    assert not both.node.starts[jobs[0].id]
    assert len(await both.those.sql("SELECT id FROM mainspring.jobs WHERE parked")) > 20
    await both.late.settle(deliveries)
    began = time.monotonic()
    took = await both.node.start(jobs[0].id) - began
    for job in jobs:  # and the others one after the other
        await both.node.start(job.id)
    return took


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


# A node that is busy: there is always something else to be claimed, so that no claim looks further than it has to.


class Busy:
    """Claims two jobs at a time from a backlog that does not end, and settles them."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.seen: dict[JobId, float] = {}

    async def work(self) -> None:
        while True:
            deliveries = await self.node.take(2)
            now = time.monotonic()
            self.seen |= {one.claim.job.id: now for one in deliveries}
            await self.node.settle(deliveries)

    async def see(self, job: JobId) -> float:
        async with asyncio.timeout(10):
            while job not in self.seen:
                await asyncio.sleep(0.001)
        return self.seen[job]


@asynccontextmanager
async def busy(those: Crowd, mine: PostgresStore | None = None) -> AsyncIterator[tuple[Busy, PostgresStore]]:
    """A node that is busy, and a handle of somebody elsewhere."""
    mine, other = mine or await those.open(), await those.open()
    node = await those.node(mine)
    unwatch = mine.watch(lambda: None)  # else nobody listens
    one = Busy(node)
    for _ in range(20):
        await other.enqueue([new() for _ in range(1000)])
    working = asyncio.create_task(one.work())
    try:
        await asyncio.sleep(1.2)
        yield one, other
        assert not working.done(), working.exception()
        assert await those.sql("SELECT id FROM mainspring.jobs LIMIT 1"), "the backlog has ended"
    finally:
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)
        unwatch()


@asynccontextmanager
async def late_commit(those: Crowd, age: timedelta) -> "AsyncIterator[tuple[JobId, asyncpg.Connection]]":
    """A job that somebody has inserted in an open transaction, and will commit without a word."""
    job = some_id()
    async with those.connection() as late:
        await late.execute("BEGIN")
        lane, now = Lane("default", SEND, 50).number, those.handles[0].now()
        await late.execute(qualified(LATE, those.schema), job, lane, str(SEND), now - age, POLICY)
        yield job, late


Announced: TypeAlias = Callable[[Crowd, PostgresStore], Awaitable[JobId]]
"""Has something become claimable, and says so; returns which job."""


async def job_of_higher_priority(_: Crowd, other: PostgresStore) -> JobId:
    job = new(priority=90)
    await other.enqueue([job])
    return job.id


async def job_due_for_long(_: Crowd, other: PostgresStore) -> JobId:
    job = new(run_at=other.now() - HOUR)
    await other.enqueue([job])
    return job.id


async def job_moved_into_the_past(those: Crowd, other: PostgresStore) -> JobId:
    job = new(run_at=other.now() + HOUR)
    await other.enqueue([job])
    await those.command(other, job.id, MoveJob(run_at=other.now() - HOUR))
    return job.id


async def job_of_a_resumed_queue(_: Crowd, other: PostgresStore) -> JobId:
    await other.pause("mail")
    job = new(queue="mail", run_at=other.now() - HOUR)
    await other.enqueue([job])
    await asyncio.sleep(0.1)
    await other.resume("mail")
    return job.id


async def job_of_a_long_transaction(_: Crowd, other: PostgresStore) -> JobId:
    job = new(priority=90)
    async with other.transaction() as tx:
        await tx.enqueue([job])
        await asyncio.sleep(0.6)
    return job.id


async def job_of_a_long_transaction_of_a_user(those: Crowd, other: PostgresStore) -> JobId:
    job = new(priority=90)
    async with those.connection() as user:
        await user.execute("BEGIN")
        await other.enqueue_in(user, [job])
        await asyncio.sleep(0.6)
        await user.execute("COMMIT")
    return job.id


ANNOUNCED = [
    job_of_higher_priority,
    job_due_for_long,
    job_moved_into_the_past,
    job_of_a_resumed_queue,
    job_of_a_long_transaction,
    job_of_a_long_transaction_of_a_user,
]


@pytest.mark.slow
@pytest.mark.parametrize("announce", ANNOUNCED, ids=[story.__name__ for story in ANNOUNCED])
@on_real_time
async def test_a_busy_node_takes_at_once_a(postgres: Server, postgres_schema: str, announce: Announced) -> None:
    async with crowd(postgres, postgres_schema) as those, busy(those) as (one, other):
        await one.see(await job_of_higher_priority(those, other))  # that there is such a lane is known

        async def measure() -> float:
            job = await announce(those, other)
            began = time.monotonic()
            return await one.see(job) - began

        await soon(measure, AT_ONCE)


@pytest.mark.slow
@on_real_time
async def test_a_busy_node_takes_a_late_commit_within_a_second_though_nobody_announces_it(
    postgres: Server, postgres_schema: str
) -> None:
    async with crowd(postgres, postgres_schema) as those, busy(those) as (one, _):

        async def measure() -> float:
            async with late_commit(those, HOUR) as (job, late):
                await asyncio.sleep(0.3)
                await late.execute("COMMIT")
                began = time.monotonic()
                return await one.see(job) - began

        await soon(measure, WITHIN_A_SECOND, times=3)


@pytest.mark.slow
@on_real_time
async def test_a_busy_node_takes_what_a_crashed_one_had_its_hands_on_within_a_second(
    postgres: Server, postgres_schema: str
) -> None:
    """Locked by a claim whose connection is lost before it commits: all others have stepped over it meanwhile."""
    async with crowd(postgres, postgres_schema) as those, busy(those) as (one, other):

        async def measure() -> float:
            job = new(run_at=other.now() + timedelta(milliseconds=100), priority=90)
            async with those.connection() as crashing:
                await other.enqueue([job])
                await crashing.execute("BEGIN")
                lock = qualified("SELECT id FROM mainspring.jobs WHERE id = $1 FOR UPDATE", those.schema)
                assert await crashing.fetch(lock, job.id)
                await asyncio.sleep(0.5)
                assert job.id not in one.seen
                await those.sql("SELECT pg_terminate_backend($1)", crashing.get_server_pid())
                began = time.monotonic()
                return await one.see(job.id) - began

        await soon(measure, WITHIN_A_SECOND, times=3)


@on_real_time
async def test_a_waiting_node_takes_a_late_commit_within_a_second_though_nobody_announces_it(
    postgres: Server, postgres_schema: str
) -> None:
    async with pair(postgres, postgres_schema, jobs=200) as both:

        async def measure() -> float:
            job = some_id()
            lane = Lane("default", Name("", "work"), 50).number
            async with both.those.connection() as late:
                await late.execute("BEGIN")
                text = qualified(LATE, both.those.schema)
                await late.execute(text, job, lane, "work", both.now(), POLICY)
                await asyncio.sleep(0.3)
                await late.execute("COMMIT")
                began = time.monotonic()
                return await both.node.start(job) - began

        await soon(measure, WITHIN_A_SECOND, times=1)


@pytest.mark.slow
@on_real_time
async def test_a_loop_that_was_busy_for_a_moment_does_not_make_late_commits_wait_for_long(
    postgres: Server, postgres_schema: str
) -> None:
    """How long a look at the whole has taken decides how soon the next one comes: by the server's time, not by ours."""

    async def held_up(connected: Connected, _: object, text: str, values: tuple[object, ...]) -> Sequence[Row]:
        rows = await connected.fetch(text, *values)
        await asyncio.sleep(0.3)  # a handler that blocks, a network that hangs
        return rows

    async with crowd(postgres, postgres_schema) as those:
        node = await those.node()
        await node.store.enqueue([new() for _ in range(10)])
        await node.settle(await node.take(5))
        await asyncio.sleep(1)  # then the next look is one at the whole
        await node.settle((await driven(node.claim(5), held_up)).deliveries)
        async with busy(those, node.store) as (one, _), late_commit(those, HOUR) as (job, late):
            await late.execute("COMMIT")
            began = time.monotonic()
            assert await one.see(job) - began <= WITHIN_A_SECOND
