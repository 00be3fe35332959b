"""Claims begin at remembered positions: a node that is never without work passes nothing over all the same."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import TypeAlias

import asyncpg
import pytest

from mainspring.core.command import MoveJob
from mainspring.core.job import JobId
from mainspring.stores.postgres import PostgresStore, positions
from mainspring.stores.postgres.connected import Connected
from mainspring.stores.postgres.statements import qualified
from mainspring.stores.postgres.verb import Row
from mainspring.stores.records import NewJob
from tests.servers.postgres import Server
from tests.servers.system import PATIENCE
from tests.stores.postgres_crowd import (
    SEND,
    Crowd,
    Node,
    crowd,
    empty,
    insert_late,
    lasting_schema,
    new,
)
from tests.stores.postgres_staged import driven, staged
from tests.stores.postgres_wires import on_real_time
from tests.tier import FULL

HOUR = timedelta(hours=1)
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


class Busy:
    """Claims two jobs at a time from a backlog that does not end, and settles them."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.seen: set[JobId] = set()

    async def work(self) -> None:
        while True:
            deliveries = await self.node.take(2)
            self.seen |= {one.claim.job.id for one in deliveries}
            await self.node.settle(deliveries)

    async def see(self, job: JobId) -> None:
        async with asyncio.timeout(PATIENCE):
            while job not in self.seen:
                await asyncio.sleep(0.001)

    async def see_more(self, jobs: int) -> None:
        """Wait until so many more jobs are taken."""
        before = len(self.seen)
        async with asyncio.timeout(PATIENCE):
            while len(self.seen) < before + jobs:
                await asyncio.sleep(0.001)


@asynccontextmanager
async def busy(those: Crowd, mine: PostgresStore | None = None) -> AsyncIterator[tuple[Busy, PostgresStore]]:
    """A node that is busy, and a handle of somebody elsewhere."""
    mine, other = mine or await those.open(), await those.open()
    node = await those.node(mine)
    unwatch = mine.watch(lambda: None)  # else nobody listens
    one = Busy(node)
    for _ in range(50):  # more than it takes in the longest of these tests, on a machine that has nothing else to do
        await other.enqueue([new() for _ in range(1000)])
    working = asyncio.create_task(one.work())
    try:
        await one.see_more(100)
        yield one, other
        assert not working.done(), working.exception()
        assert await those.sql("SELECT id FROM mainspring.jobs LIMIT 1"), "the backlog has ended"
    finally:
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)
        unwatch()


async def lock_new_job(those: Crowd, other: PostgresStore, connection: "asyncpg.Connection") -> tuple[NewJob, datetime]:
    """Enqueue a job and lock it before it is due; returns it and when that is."""
    lock = qualified("SELECT id FROM mainspring.jobs WHERE id = $1 AND state <> 'running' FOR UPDATE", those.schema)
    for lead_s in (0.5, 2, 10, 60):  # for as long as that takes
        due = other.now() + timedelta(seconds=lead_s)
        job = new(run_at=due, priority=90)
        await other.enqueue([job])
        if await connection.fetch(lock, job.id):
            return job, due
    raise TimeoutError("jobs start before they are locked")


@asynccontextmanager
async def late_commit(those: Crowd, age: timedelta) -> "AsyncIterator[tuple[JobId, asyncpg.Connection]]":
    """A job that somebody has inserted in an open transaction, and will commit without a word."""
    async with those.connection() as late:
        await late.execute("BEGIN")
        yield await insert_late(late, those.schema, SEND, those.handles[0].now() - age), late


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
    await other.resume("mail")
    return job.id


async def job_of_an_enqueue_that_took_long(_: Crowd, other: PostgresStore) -> JobId:
    """As one of many thousands does, or one whose commit has to wait for a disk."""
    job = new(priority=90)
    await staged(other.enqueue([job]), before_enqueue_again=lambda: asyncio.sleep(0.6))
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
    job_of_an_enqueue_that_took_long,
    job_of_a_long_transaction,
    job_of_a_long_transaction_of_a_user,
]


@pytest.mark.parametrize("announce", ANNOUNCED, ids=[story.__name__ for story in ANNOUNCED])
@on_real_time
async def test_a_busy_node_takes_at_once_a(
    postgres: Server, postgres_schema: str, announce: Announced, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Then the announcement alone leads to the job: no line is read from its start for the time alone.
    monkeypatch.setattr(positions, "READ_FROM_START_INTERVAL_S", NEVER_S)
    monkeypatch.setattr(positions, "MAX_READ_FROM_START_INTERVAL_S", NEVER_S)
    async with crowd(postgres, postgres_schema) as those, busy(those) as (one, other):
        await one.see(await job_of_higher_priority(those, other))  # so that this priority is known
        for _ in range(TIMES):
            await one.see(await announce(those, other))


@on_real_time
async def test_a_busy_node_takes_a_late_commit_within_a_second_though_nobody_announces_it(
    postgres: Server, postgres_schema: str
) -> None:
    assert positions.READ_FROM_START_INTERVAL_S < 1.0, "seconds of a node alone; a busy machine cannot measure them"
    async with crowd(postgres, postgres_schema) as those, busy(those) as (one, _):
        for _ in range(3):
            async with late_commit(those, HOUR) as (job, late):
                await one.see_more(20)
                await late.execute("COMMIT")
                await one.see(job)


@on_real_time
async def test_a_busy_node_takes_what_a_crashed_one_had_its_hands_on_within_a_second(
    postgres: Server, postgres_schema: str
) -> None:
    """Locked by a claim whose connection is lost before it commits: all others have stepped over it meanwhile."""
    async with crowd(postgres, postgres_schema) as those, busy(those) as (one, other):
        for _ in range(3):
            async with those.connection() as crashing:
                await crashing.execute("BEGIN")
                job, due = await lock_new_job(those, other, crashing)
                while other.now() < due + timedelta(seconds=0.6):  # with each of these the position moves on
                    await one.see_more(20)
                    await one.see(await job_of_higher_priority(those, other))
                assert job.id not in one.seen
                await those.sql("SELECT pg_terminate_backend($1)", crashing.get_server_pid())
                await one.see(job.id)


@on_real_time
async def test_a_loop_that_was_busy_for_a_moment_does_not_make_late_commits_wait_for_long(
    postgres: Server, postgres_schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """How long a look at the whole has taken decides how soon the next one comes: by the server's time, not by ours."""
    monkeypatch.setattr(positions, "MAX_READ_FROM_START_INTERVAL_S", NEVER_S)

    async def held_up(connected: Connected, _: object, text: str, values: tuple[object, ...]) -> Sequence[Row]:
        rows = await connected.fetch(text, *values)
        await asyncio.sleep(3)  # a handler that blocks, a network that hangs
        return rows

    async with crowd(postgres, postgres_schema) as those:
        node = await those.node()
        await node.store.enqueue([new() for _ in range(10)])
        await node.settle(await node.take(5))
        await asyncio.sleep(1)  # then the next look is one at the whole
        await node.settle((await driven(node.claim(5), held_up)).deliveries)
        async with busy(those, node.store) as (one, _), late_commit(those, HOUR) as (job, late):
            await late.execute("COMMIT")
            async with asyncio.timeout(PATIENCE / 2):  # and not twenty times as long as that took, which is PATIENCE
                await one.see(job)
