# ruff: noqa: S608 -- the names in these statements are the test's own
"""Two roles: one owns the tables and makes the days of history, another works with them and may do nothing else."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import psycopg
import pytest

from mainspring.core.outcome import Succeeded
from mainspring.errors import SchemaError
from mainspring.stores.port import Store
from mainspring.stores.postgres import PostgresStore, migrate, partitions
from mainspring.stores.postgres.migrate import Migration
from mainspring.stores.records import LogLine, Note
from mainspring.testing.contract import SettableClock
from mainspring.testing.contract.world import RAISED, World
from tests.servers.postgres import Server
from tests.stores.postgres_verbs import Verbs, days_of, make_tables

pytestmark = pytest.mark.usefixtures("virtual_time")

FIRST = migrate.MIGRATIONS[0]
NEW_YEAR = datetime(2030, 1, 1, tzinfo=UTC)


@pytest.fixture
def verbs(postgres: Server, new_schema: str) -> Iterator[Verbs]:
    with Verbs(postgres.dsn(), new_schema) as verbs:
        yield verbs


@pytest.fixture
def store(postgres: Server, new_schema: str) -> PostgresStore:
    return PostgresStore(postgres.dsn(), schema=new_schema, clock=SettableClock(), patience="2s")


@pytest.fixture
def role(postgres: Server) -> Iterator[str]:
    """A role that may do nothing yet."""
    name = f"test_worker_{uuid4().hex[:8]}"
    postgres.sql(f"CREATE ROLE {name} LOGIN")
    yield name
    postgres.sql(f"DROP OWNED BY {name}")
    postgres.sql(f"DROP ROLE {name}")


async def test_who_may_not_make_the_tables_is_told_who_may(postgres: Server, new_schema: str, role: str) -> None:
    store = PostgresStore(postgres.dsn(user=role), schema=new_schema)
    make = f"the role {role} may not make them; run `mainspring migrate --grant {role}` as"
    with pytest.raises(SchemaError, match=f"it has no tables yet, and {make} a role that may create schemas"):
        await store.open()

    postgres.sql(f"CREATE SCHEMA {new_schema}")
    with pytest.raises(SchemaError, match=f"it has no tables yet, and {make} postgres"):
        await store.open()
    assert (await store.schema()).found == 0
    assert postgres.sql("SELECT FROM pg_class WHERE relnamespace = %s::regnamespace", [new_schema]) == []


async def test_who_may_not_use_the_tables_is_told_who_grants_that(
    postgres: Server, new_schema: str, role: str, store: PostgresStore
) -> None:
    await store.open()
    await store.close()
    with pytest.raises(
        SchemaError, match=f"the role {role} may not use its tables; run .* --grant {role}` as postgres"
    ):
        await PostgresStore(postgres.dsn(user=role), schema=new_schema).open()


def test_who_may_use_the_tables_and_finds_them_old_is_told_who_migrates(
    postgres: Server, verbs: Verbs, role: str
) -> None:
    verbs.run(migrate.migrate("a store", verbs.schema, (FIRST,), days=0))
    grant(postgres, verbs.schema, role)
    wanted = "its tables have version 1, this code wants 2, and the role .* may not make them; run .* as postgres"
    with Verbs(postgres.dsn(user=role), verbs.schema) as worker, pytest.raises(SchemaError, match=wanted):
        worker.run(migrate.migrate("a store", verbs.schema, (FIRST, Migration(2, 1, ""))))


def grant(server: Server, schema: str, role: str) -> None:
    for one in migrate.grants(schema, role):
        server.sql(one)


async def test_a_worker_needs_no_more_than_it_is_granted(
    postgres: Server, new_schema: str, role: str, store: PostgresStore
) -> None:
    await store.open()
    await store.close()
    grant(postgres, new_schema, role)
    clock = SettableClock()
    world = World(Workers(postgres.dsn(user=role), new_schema, clock), clock)
    world.store = await world.open()
    await whole_life(world)
    await world.close()

    assert (await store.schema()).found == migrate.WANTED


class Workers:
    """Handles of a role, for a `World`."""

    def __init__(self, dsn: str, schema: str, clock: SettableClock) -> None:
        self.dsn = dsn
        self.schema = schema
        self.clock = clock

    async def open(self) -> Store:
        store = PostgresStore(self.dsn, schema=self.schema, clock=self.clock)
        await store.open()
        return store

    async def crash(self, store: Store) -> None:
        raise NotImplementedError


async def whole_life(world: World) -> None:
    """Do what workers and operators do, once each."""
    store = world.store
    node = await world.node()
    first = await world.running(node)
    line = LogLine(at=world.now, level="INFO", message="hello")
    assert await store.note(
        [Note(job=first.job.id, lease=first.job.lease, node=node.id, saved=b"1", lines=(line,))]
    ) == (True,)
    await world.end(first, RAISED)
    await world.end(await world.running(node), Succeeded())
    assert await store.pause("default")
    assert await store.resume("default")
    assert await store.acquire("lock", "me", timedelta(seconds=1))
    await store.renew(node.id, node.term)
    await world.kill(node)
    world.clock.advance("30d")
    while await store.prune(100):
        pass
    await store.mend(100)
    assert len(await store.queues()) == 1


@pytest.mark.parametrize(
    "forbidden",
    [
        "DROP TABLE mainspring.jobs",
        "ALTER TABLE mainspring.jobs ADD COLUMN more text",
        "TRUNCATE mainspring.jobs",
        "CREATE TABLE mainspring.more (a text)",
        "DROP TABLE mainspring.history_20300101",
        "CREATE INDEX ON mainspring.jobs (queue)",
    ],
)
def test_a_worker_changes_no_tables(postgres: Server, verbs: Verbs, role: str, forbidden: str) -> None:
    make_tables(verbs)
    verbs.run(partitions.make(1, at=NEW_YEAR))
    grant(postgres, verbs.schema, role)

    with Verbs(postgres.dsn(user=role), verbs.schema) as worker:
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            worker.sql(forbidden)
        assert worker.sql("SELECT count(*) FROM mainspring.history_20300101") == [(0,)]


def test_what_the_owner_makes_later_is_the_workers_too(postgres: Server, verbs: Verbs, role: str) -> None:
    verbs.run(migrate.migrate("a store", verbs.schema, (FIRST,), days=0))
    grant(postgres, verbs.schema, role)
    counting = (
        "CREATE TABLE mainspring.later (a bigint GENERATED ALWAYS AS IDENTITY);\nCREATE SEQUENCE mainspring.counts;"
    )
    verbs.run(migrate.migrate("a store", verbs.schema, (FIRST, Migration(2, 1, counting)), days=0))
    verbs.run(partitions.make(1, at=NEW_YEAR))

    with Verbs(postgres.dsn(user=role), verbs.schema) as worker:
        worker.sql("INSERT INTO mainspring.later DEFAULT VALUES")
        assert worker.sql("SELECT a, nextval('mainspring.counts') FROM mainspring.later") == [(1, 1)]
        worker.sql("DELETE FROM mainspring.history_20300102")


# Days.


def test_the_owner_makes_the_days_to_come_once(verbs: Verbs) -> None:
    make_tables(verbs, days=partitions.AHEAD)
    made = days_of(verbs)
    verbs.run(migrate.migrate("a store", verbs.schema))
    verbs.run(partitions.make())

    today = datetime.now(UTC).date()
    around = [f"history_{today + timedelta(days=day):%Y%m%d}" for day in range(-1, partitions.AHEAD + 2)]
    assert made in (around[1:-1], around[:-2], around[2:])  # it may be midnight
    assert set(days_of(verbs)) <= {*made, around[-1]}


def test_a_worker_makes_no_days_and_minds_none(postgres: Server, verbs: Verbs, role: str) -> None:
    make_tables(verbs)
    grant(postgres, verbs.schema, role)
    with Verbs(postgres.dsn(user=role), verbs.schema) as worker:
        worker.run(migrate.migrate("a store", verbs.schema))

    assert days_of(verbs) == []


@contextmanager
def transaction(server: Server) -> Iterator[psycopg.Connection]:
    with psycopg.connect(server.dsn()) as connection:
        yield connection
        connection.rollback()


def test_a_day_that_somebody_is_in_the_way_of_is_made_another_time(postgres: Server, verbs: Verbs) -> None:
    make_tables(verbs)
    with transaction(postgres) as other:
        other.execute(f"SELECT count(*) FROM {verbs.schema}.history")
        verbs.run(partitions.make(1, at=NEW_YEAR))
        assert days_of(verbs) == []
    verbs.run(partitions.make(1, at=NEW_YEAR))

    assert days_of(verbs) == ["history_20300101", "history_20300102"]


def test_a_day_belongs_to_whom_the_tables_belong_whoever_makes_it(postgres: Server, verbs: Verbs, role: str) -> None:
    postgres.sql(f"CREATE SCHEMA {verbs.schema} AUTHORIZATION {role}")
    with Verbs(postgres.dsn(user=role), verbs.schema) as owner:
        make_tables(owner)
    verbs.run(partitions.make(1, at=NEW_YEAR))

    look = "SELECT DISTINCT pg_get_userbyid(relowner) FROM pg_class WHERE relnamespace = %s::regnamespace"
    assert postgres.sql(look, [verbs.schema]) == [(role,)]
