"""Several handles on one schema of a PostgreSQL server, on real time, and short words for what tests do with them."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeVar, Unpack
from uuid import uuid4

import asyncpg
import pytest

from mainspring.core import machine
from mainspring.core.backoff import Backoff
from mainspring.core.command import Command
from mainspring.core.job import Job, JobId, NodeId
from mainspring.core.names import Name
from mainspring.core.outcome import AttemptError, Outcome, Raised, Succeeded
from mainspring.ids import new_id
from mainspring.stores.postgres import PostgresStore
from mainspring.stores.postgres.statements import qualified
from mainspring.stores.records import (
    Claimed,
    ClaimRequest,
    Delivery,
    NewJob,
    NodeRecord,
    Process,
    Settled,
    Settlement,
    Verdict,
)
from mainspring.testing.contract.world import Fields
from tests.servers.postgres import Server
from tests.stores.postgres_filled import POLICY

T = TypeVar("T")

SEND = Name("", "mail.send")
RAISED = Raised(error=AttemptError(type="ValueError", message="no"))
few_and_many = pytest.mark.parametrize(
    "size", [pytest.param(1, id="few"), pytest.param(8, id="many", marks=pytest.mark.full)]
)
FATAL = Raised(error=AttemptError(type="ValueError", message="no"), retryable=False)


def new(task: Name = SEND, **fields: Unpack[Fields]) -> NewJob:
    given = Fields(id=some_id(), payload=b"{}", backoff=Backoff.fixed("10s"), max_attempts=3)
    return NewJob(**(given | fields), task=task)


def some_id() -> JobId:
    return JobId(new_id(datetime.now(UTC)))


def end(delivery: Delivery, outcome: Outcome, now: datetime) -> Settlement:
    """Return the end of an attempt, as the node writes it that ran it."""
    return Settlement(change=machine.decide(delivery.claim, outcome, now, 0.5), by=delivery.claim.node)


@dataclass(frozen=True, slots=True)
class Node:
    """A node that has joined, on one handle."""

    store: PostgresStore
    id: NodeId
    term: int
    tasks: frozenset[Name]

    async def claim(self, room: int = 1, **more: Any) -> Claimed:  # noqa: ANN401 -- of ClaimRequest
        request = ClaimRequest(node=self.id, term=self.term, tasks=self.tasks, room=room, **more)
        return await self.store.claim(request)

    async def take(self, room: int = 1) -> list[Delivery]:
        return list((await self.claim(room)).deliveries)

    async def settle(self, deliveries: Sequence[Delivery], outcome: Outcome | None = None) -> list[Verdict]:
        """End attempts, as successes unless something else is said."""
        now = self.store.now()
        ends = [end(delivery, outcome or Succeeded(), now) for delivery in deliveries]
        return [settled.verdict for settled in await self.store.settle(ends)]


class Crowd:
    """Handles on one schema, each as another process would have it."""

    def __init__(self, server: Server, schema: str) -> None:
        self.server = server
        self.schema = schema
        self.handles: list[PostgresStore] = []

    async def open(self, **settings: Any) -> PostgresStore:  # noqa: ANN401 -- of PostgresStore
        store = PostgresStore(self.server.dsn(), schema=self.schema, **settings)
        await store.open()
        self.handles.append(store)
        return store

    async def node(self, store: PostgresStore | None = None, *, tasks: Iterable[Name] = (SEND,)) -> Node:
        """Join; on a handle of its own where none is given."""
        store = store or await self.open()
        names = frozenset(tasks)
        process = Process(host="here", pid=1, started="today")
        record = NodeRecord(id=NodeId(uuid4().hex), process=process, tasks=names)
        return Node(store, record.id, await store.join(record), names)

    async def command(self, store: PostgresStore, job: JobId, command: Command) -> Settled:
        """Do what an operator asks, on the job as it is now."""
        (settled,) = await store.settle([Settlement(change=machine.command(await self.job(job), command, store.now()))])
        return settled

    async def job(self, job: JobId) -> Job:
        (view,) = await self.handles[0].get([job])
        assert view is not None
        return view.job

    async def sql(self, text: str, *values: object) -> list[tuple[Any, ...]]:
        """Run a statement of the test's own; `mainspring.` in it is the schema."""
        async with self.connection() as connection:
            return [tuple(row) for row in await connection.fetch(qualified(text, self.schema), *values)]

    @asynccontextmanager
    async def connection(self) -> "AsyncIterator[asyncpg.Connection]":
        connection = await asyncpg.connect(self.server.dsn())
        try:
            yield connection
        finally:
            connection.terminate()

    async def places_of(self, job: JobId) -> list[str]:
        """The tables that a job is in: one of them, if all is well."""
        look = "SELECT 'jobs' FROM mainspring.jobs WHERE id = $1 UNION ALL SELECT 'history' FROM mainspring.history WHERE id = $1"
        return [table for (table,) in await self.sql(look, job)]

    async def is_over(self) -> bool:
        """Say whether nothing waits or runs any more."""
        return await self.sql("SELECT 1 FROM mainspring.jobs LIMIT 1") == []

    async def ended(self) -> Counter[str]:
        """How many jobs have ended how."""
        rows = await self.sql("SELECT state, count(*) FROM mainspring.history GROUP BY state")
        return Counter({str(state): int(count) for state, count in rows})

    async def close(self) -> None:
        for store in self.handles:
            await store.close()


@asynccontextmanager
async def crowd(server: Server, schema: str) -> AsyncIterator[Crowd]:
    one = Crowd(server, schema)
    try:
        yield one
    finally:
        await one.close()


@asynccontextmanager
async def watching(look: Callable[[], Awaitable[object]]) -> AsyncIterator[None]:
    """Look again and again while the block runs; what the look finds wrong it raises."""
    over = asyncio.Event()

    async def watch() -> None:
        while not over.is_set():
            await look()

    async with asyncio.TaskGroup() as group:
        group.create_task(watch())
        try:
            yield
        finally:
            over.set()


_LATE = """
INSERT INTO mainspring.jobs (
    id, queue, task, priority, state, run_at, loss_limit, max_attempts, policy, enqueued_at, payload
)
VALUES ($1, 'default', $2, 50, 'ready', $3, 3, 3, $4, now(), '{"v":1,"args":{}}')
"""


async def insert_late(connection: "asyncpg.Connection", schema: str, task: Name, run_at: datetime) -> JobId:
    """Insert a job as somebody would who tells nobody."""
    job = some_id()
    await connection.execute(qualified(_LATE, schema), job, str(task), run_at, POLICY)
    return job


# One schema for many tests: making one takes a third of a second, emptying it a few milliseconds.


@contextmanager
def lasting_schema(server: Server) -> Iterator[str]:
    """Make a schema with a store's tables, for the tests of a module."""

    async def make() -> None:
        store = PostgresStore(server.dsn(), schema=name, listen=False)
        await store.open()
        await store.close()

    with server.schema() as name:
        asyncio.run(make())
        yield name


def empty(server: Server, schema: str) -> None:
    """Take away what the last test has left."""
    find = "SELECT relname FROM pg_class WHERE relnamespace = %s::regnamespace AND relkind IN ('r', 'p') AND NOT relispartition"
    tables = [table for (table,) in server.sql(find, [schema]) if table not in {"versions", "rules"}]
    deletes = [f"DELETE FROM {schema}.{table}" for table in tables]  # noqa: S608 -- names of ours
    change = f"UPDATE {schema}.rules SET version = version + 1, pruned_until = '-infinity'"  # noqa: S608 -- the same
    server.sql("; ".join([*deletes, change]))
