"""Claims begin at remembered positions and pass no job over: announced jobs start at once, the others within a second."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import ParamSpec, TypeAlias
from uuid import UUID

import pytest
from msgspec.structs import replace

from mainspring import Context, Limit, Mainspring, RetryIn, Snooze
from mainspring.core import machine
from mainspring.core.command import MoveJob
from mainspring.core.job import Claim, JobId
from mainspring.core.limits import Gate, Scope
from mainspring.core.names import Name
from mainspring.core.outcome import Interrupted, Lost, Outcome
from mainspring.handle import JobHandle
from mainspring.runtime import claimer
from mainspring.stores.postgres import PostgresStore, positions
from mainspring.stores.records import Delivery, Settlement, Verdict
from mainspring.task import Task
from tests.servers.postgres import Server
from tests.servers.system import PATIENCE
from tests.stores.postgres_crowd import (
    Crowd,
    Node,
    crowd,
    empty,
    insert_late,
    lasting_schema,
    some_id,
)
from tests.stores.postgres_wires import on_real_time
from tests.tier import FULL

P = ParamSpec("P")

HOUR = timedelta(hours=1)
DELAY = 0.3
NEVER_S = 3600.0
TIMES = 5 if FULL else 2
"""Repetitions of a story: each one passes positions again."""


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
        self.starts: Counter[UUID] = Counter()
        self._started = asyncio.Event()

        @self.app.task(name="work")
        async def work(ctx: Context, wish: str = "") -> None:
            self._begin(ctx)
            if wish and self.starts[ctx.job] == 1:
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
        self.starts[ctx.job] += 1
        self._started.set()

    @property
    def store(self) -> PostgresStore:
        assert isinstance(self.app.store, PostgresStore)
        return self.app.store

    async def start(self, job: UUID, number: int = 1) -> None:
        """Wait for a start of a job."""
        async with asyncio.timeout(PATIENCE):
            while self.starts[job] < number:
                self._started.clear()
                await self._started.wait()


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
        """Work off many jobs, so that positions have moved on."""
        handles = await self.other.work.enqueue_many([self.other.work.call() for _ in range(jobs)])
        for handle in handles:
            await self.node.start(handle.id)
            await handle.result(PATIENCE)


@asynccontextmanager
async def pair(server: Server, schema: str, *, jobs: int) -> AsyncIterator[Pair]:
    node, other = Program(server, schema), Program(server, schema)
    # The other node never renews: with a shorter lease it would be taken for dead on a machine that is slow.
    at_work = node.app.node(concurrency=10, queues=["default", "mail"], lease="10m")
    async with crowd(server, schema) as those, other.app, at_work:
        late = await those.node(tasks=[Name("", task) for task in ("work", "limited", "keyed")])
        both = Pair(node, other, those, late)
        await both.drain(jobs)
        yield both


# A node that waits.

Story: TypeAlias = Callable[[Pair], Awaitable[None]]
"""Has something become claimable, and waits until it starts."""


@pytest.fixture
def no_polling(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a node claim only when it is told of something, and read no line from its start for the time alone."""
    monkeypatch.setattr(claimer, "LOOK", NEVER_S)
    monkeypatch.setattr(positions, "READ_FROM_START_INTERVAL_S", NEVER_S)
    monkeypatch.setattr(positions, "MAX_READ_FROM_START_INTERVAL_S", NEVER_S)


async def of_higher_priority(both: Pair) -> None:
    job = await both.other.work.using(priority=90).enqueue()
    await both.node.start(job.id)


async def retry_come_due(both: Pair) -> None:
    job = await both.other.work.enqueue("retry")
    await both.node.start(job.id, 2)


async def snoozed_come_due(both: Pair) -> None:
    job = await both.other.work.enqueue("snooze")
    await both.node.start(job.id, 2)


async def scheduled_come_due(both: Pair) -> None:
    job = await both.other.work.using(delay=DELAY).enqueue()
    await both.node.start(job.id)


async def given_back(both: Pair) -> None:
    job, deliveries = await both.taken_elsewhere(both.other.work)
    await started_after(both, job, deliveries, Interrupted(started=True))


async def given_back_long_after_it_was_due(both: Pair) -> None:
    """The job keeps its due time, in front of which positions have moved on."""
    job, deliveries = await both.taken_elsewhere(both.other.work)
    await both.drain(200)
    await started_after(both, job, deliveries, Interrupted(started=True))


async def lost_long_after_it_was_due(both: Pair) -> None:
    doomed = await both.those.node(tasks=[Name("", "work")])
    job = await both.other.work.using(queue="elsewhere").enqueue()
    claimed = await doomed.claim(queues={"elsewhere": 1})
    await both.drain(200)
    assert await doomed.store.declare_dead(doomed.id, doomed.term)
    await started_after(both, job, list(claimed.deliveries), Lost())


async def started_after(both: Pair, job: JobHandle[None], deliveries: list[Delivery], outcome: Outcome) -> None:
    """End the attempts of another node, and move their jobs to a queue that the node works."""
    changes = [
        machine.decide(
            Claim(job=replace(one.claim.job, queue="default"), node=one.claim.node), outcome, both.now(), 0.5
        )
        for one in deliveries
    ]
    answers = await both.late.store.settle([Settlement(change=change, by=both.late.id) for change in changes])
    assert [answer.verdict for answer in answers] == [Verdict.ACCEPTED]
    await both.node.start(job.id)


async def moved_into_the_past(both: Pair) -> None:
    job = await both.other.work.using(delay="1h").enqueue()
    await both.those.command(both.other.store, JobId(job.id), MoveJob(run_at=both.now() - HOUR))
    await both.node.start(job.id)


async def in_a_resumed_queue(both: Pair) -> None:
    await both.other.store.pause("mail")
    job = await both.other.work.using(queue="mail").enqueue()
    await asyncio.sleep(0.3)
    assert not both.node.starts[job.id]
    await both.other.store.resume("mail")
    await both.node.start(job.id)


async def behind_a_raised_limit(both: Pair) -> None:
    await both.other.store.declare([Gate(scope=Scope.TASK, name="limited", concurrency=1)])
    _, deliveries = await both.taken_elsewhere(both.other.limited)
    job = await both.other.limited.enqueue()
    await asyncio.sleep(0.3)
    assert not both.node.starts[job.id]
    await both.other.store.declare([Gate(scope=Scope.TASK, name="limited", concurrency=2)])
    await both.node.start(job.id)
    await both.late.settle(deliveries)
    await job.result()  # until then it has the place that the next job needs


async def parked_behind_a_key(both: Pair) -> None:
    key = str(some_id())
    _, deliveries = await both.taken_elsewhere(both.other.keyed, key)
    jobs = [await both.other.keyed.enqueue(key) for _ in range(30)]
    await asyncio.sleep(0.3)
    assert not both.node.starts[jobs[0].id]
    assert len(await both.those.sql("SELECT id FROM mainspring.jobs WHERE parked")) > 20
    await both.late.settle(deliveries)
    for job in jobs:  # one after the other
        await both.node.start(job.id)


STORIES = [
    of_higher_priority,
    retry_come_due,
    snoozed_come_due,
    scheduled_come_due,
    given_back,
    given_back_long_after_it_was_due,
    lost_long_after_it_was_due,
    moved_into_the_past,
    in_a_resumed_queue,
    behind_a_raised_limit,
    parked_behind_a_key,
]


@pytest.mark.parametrize("story", STORIES, ids=[story.__name__ for story in STORIES])
@pytest.mark.usefixtures("no_polling")
@on_real_time
async def test_after_a_long_drain_a_job_starts_at_once_that_is(
    postgres: Server, postgres_schema: str, story: Story
) -> None:
    async with pair(postgres, postgres_schema, jobs=2000) as both:
        for _ in range(TIMES):
            await story(both)


@pytest.mark.usefixtures("no_polling")
@on_real_time
async def test_after_a_drain_a_job_of_higher_priority_starts_at_once(postgres: Server, postgres_schema: str) -> None:
    async with pair(postgres, postgres_schema, jobs=200) as both:
        for _ in range(TIMES):
            await of_higher_priority(both)


@on_real_time
async def test_a_waiting_node_takes_a_late_commit_within_a_second_though_nobody_announces_it(
    postgres: Server, postgres_schema: str
) -> None:
    async with pair(postgres, postgres_schema, jobs=200) as both, both.those.connection() as late:
        await late.execute("BEGIN")
        job = await insert_late(late, both.those.schema, Name("", "work"), both.now() - HOUR)
        await of_higher_priority(both)
        await late.execute("COMMIT")
        await both.node.start(job)
