"""Several handles on one schema of a PostgreSQL server, on real time, and short words for what tests do with them.

`staged` stops a verb between two of its statements, so that a race that takes a thousand tries is told as a story.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeVar, Unpack
from uuid import uuid4

import asyncpg

from mainspring.core import machine
from mainspring.core.backoff import Backoff
from mainspring.core.command import Command
from mainspring.core.job import Job, JobId, NodeId
from mainspring.core.names import Name
from mainspring.core.outcome import AttemptError, Outcome, Raised, Succeeded
from mainspring.ids import new_id
from mainspring.stores.postgres import PostgresStore, connections
from mainspring.stores.postgres.drive import Fetches, drive, drive_with
from mainspring.stores.postgres.statements import Statement, in_schema, qualified
from mainspring.stores.postgres.verb import Row, Verb
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

T = TypeVar("T")

SEND = Name("", "mail.send")
RAISED = Raised(error=AttemptError(type="ValueError", message="no"))
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


# Stories of two who meet.

Meanwhile = Callable[[], Awaitable[object]]

_STAGE: ContextVar[dict[str, Meanwhile] | None] = ContextVar("stage", default=None)


async def staged(verb: Awaitable[T], **meanwhile: Meanwhile) -> T:
    """Do a verb, and something else meanwhile: `before_take=…`, `after_settle_read=…`, once each, between its statements."""

    async def do() -> T:
        _STAGE.set(left)
        return await verb

    left = dict(meanwhile)
    real, connections.drive = connections.drive, _drive
    try:
        answer = await asyncio.create_task(do())
    finally:
        connections.drive = real
    assert not left, f"never came to {list(left)}"
    return answer


async def _drive(connection: Fetches, verb: Verb[T], schema: str) -> T:
    left = _STAGE.get()
    if not left:
        return await drive(connection, verb, schema)

    async def run(statement: Statement, values: tuple[object, ...]) -> Sequence[Row]:
        await _pause(left, f"before_{statement.name}")
        rows: Sequence[Row] = await connection.fetch(in_schema(statement, schema), *values)
        await _pause(left, f"after_{statement.name}")
        return rows

    return await drive_with(run, verb)


async def _pause(left: dict[str, Meanwhile], where: str) -> None:
    other = left.pop(where, None)
    if other is None:
        return

    async def alone() -> object:
        _STAGE.set(None)
        return await other()

    await asyncio.create_task(alone())
