"""Functions planted in a schema of the search path are not run by the store's statements."""

import re
from collections.abc import Iterator
from uuid import uuid4

import asyncpg
import psycopg
import pytest

from mainspring.clock import SystemClock
from mainspring.core.backoff import Backoff
from mainspring.core.job import JobId, NodeId
from mainspring.core.machine import decide
from mainspring.core.outcome import Succeeded
from mainspring.core.unique import UniqueKey
from mainspring.errors import DeclarationError
from mainspring.stores.outbox import NewMessage
from mainspring.stores.postgres import PostgresStore, migrate
from mainspring.stores.postgres.statements import in_schema
from mainspring.stores.records import ClaimRequest, NewJob, NodeRecord, Process, Settlement
from mainspring.testing.contract.world import SEND
from tests.servers.pgbouncer import Pooler
from tests.servers.postgres import Server
from tests.stores.postgres_wires import on_real_time

# Each fits the types of some call better than the catalogue's own.
PLANTED = (
    *(
        f"unnest({kind}[]) RETURNS SETOF {kind}"
        for kind in ("uuid", "text", "bytea", "bigint", "integer", "timestamptz")
    ),
    "hashtextextended(text, integer) RETURNS bigint",
    "count(uuid) RETURNS bigint",
    "cardinality(uuid[]) RETURNS integer",
    "cardinality(bigint[]) RETURNS integer",
)
BODY = "LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'a planted function was called'; END $$"


@pytest.fixture
def database(own_postgres: Server) -> Iterator[str]:
    """A database where every role may create in `public`, as before PostgreSQL 15, with planted functions."""
    name = f"planted_{uuid4().hex[:8]}"
    own_postgres.sql(f"CREATE DATABASE {name}")
    own_postgres.sql("GRANT CREATE ON SCHEMA public TO PUBLIC", database=name)
    for function in PLANTED:
        own_postgres.sql(f"CREATE FUNCTION public.{function} {BODY}", database=name)
    with pytest.raises(psycopg.errors.RaiseException, match="planted"):
        own_postgres.sql("SELECT unnest(ARRAY[gen_random_uuid()])", database=name)
    yield name
    own_postgres.sql(f"DROP DATABASE {name} WITH (FORCE)")


def new(*, key: str | None = None, unique: UniqueKey | None = None) -> NewJob:
    backoff = Backoff.fixed("10s")
    return NewJob(id=JobId(uuid4()), task=SEND, payload=b"{}", backoff=backoff, max_attempts=1, key=key, unique=unique)


async def work(store: PostgresStore, dsn: str) -> None:
    """Open the store, and have a job, a message and a node go their whole way."""
    await store.open()
    try:
        tasks = frozenset({SEND})
        record = NodeRecord(id=NodeId("node"), process=Process(host="here", pid=1, started="today"), tasks=tasks)
        term = await store.join(record)
        await store.enqueue([new(key="a", unique=UniqueKey(key="a")), new()])
        connection = await asyncpg.connect(dsn, statement_cache_size=0)
        message = NewMessage(
            outbox="orders", partitions=2, partition=1, payload=b"1", type="order", unique="a", key="a"
        )
        await store.register_outbox("orders", 2)
        async with connection.transaction():
            await store.enqueue_in(connection, [new(unique=UniqueKey(key="b"))])
            await store.publish_in(connection, [message, message])
        await connection.close()
        async with store.transaction() as tx:
            await tx.enqueue([new(), new()])
            (path,) = await tx.execute("SHOW search_path")
        assert "public" in path[0]

        claimed = await store.claim(ClaimRequest(node=record.id, term=term, tasks=tasks, room=10))
        assert len(claimed.deliveries) == 5
        await store.renew(record.id, term)
        changes = [decide(one.claim, Succeeded(), store.now(), 0.5) for one in claimed.deliveries]
        await store.settle([Settlement(change=change, by=record.id) for change in changes])
        await store.look_at_partitions(["orders"])
        assert len(await store.read_messages("orders", 1, 0, 10)) == 1
        await store.prune(100)
        await store.unknown_tasks(store.now() - store.now())
        assert not (await store.queues())
    finally:
        await store.close()


@on_real_time
async def test_planted_functions_are_not_called(own_postgres: Server, database: str) -> None:
    dsn = own_postgres.dsn(database)
    await work(PostgresStore(dsn, clock=SystemClock()), dsn)


@pytest.mark.needs("pgbouncer")
@on_real_time
async def test_planted_functions_are_not_called_behind_a_pooler(own_postgres: Server, database: str) -> None:
    with Pooler(own_postgres, size=3) as pooler:
        dsn = pooler.dsn(database)
        await work(PostgresStore(dsn, clock=SystemClock(), listen=False), dsn)


def test_the_indexes_are_built_on_the_catalogues_own_functions() -> None:
    texts = [in_schema(one, "mainspring") for step in migrate.MIGRATIONS for one in step.statements]
    calls = [call for text in texts for call in re.findall(r"([\w.]*hashtextextended)\(", text)]

    assert set(calls) == {"pg_catalog.hashtextextended"}


@pytest.mark.parametrize("schema", ["", "it's", 'quo"te', "1st", "x" * 64, "a.b"])
def test_a_schema_whose_name_would_have_to_be_quoted_is_refused(schema: str) -> None:
    with pytest.raises(DeclarationError, match="letters, digits and _"):
        PostgresStore("postgresql://nowhere", schema=schema)
