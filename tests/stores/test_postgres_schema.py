# ruff: noqa: S608 -- the names in these statements are the test's own
"""A schema as it is found: new, the user's own, older, newer, foreign."""

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from mainspring.core.job import NodeId
from mainspring.errors import SchemaError
from mainspring.stores.postgres import PostgresStore, migrate, nodes, partitions
from mainspring.stores.postgres.drive import drive_sync
from mainspring.stores.postgres.migrate import Migration
from mainspring.stores.records import NodeRecord, Process
from mainspring.testing.contract import SettableClock
from tests.servers.postgres import Row, Server
from tests.stores.postgres_filled import fill
from tests.stores.postgres_verbs import Verbs, days_of, make_tables

pytestmark = pytest.mark.usefixtures("virtual_time")


@pytest.fixture(scope="module")
def postgres(quiet_postgres: Server) -> Server:
    """Transactions of others would change which indexes are used."""
    return quiet_postgres


@pytest.fixture
def verbs(postgres: Server, new_schema: str) -> Iterator[Verbs]:
    with Verbs(postgres.dsn(), new_schema) as verbs:
        yield verbs


@pytest.fixture
def store(postgres: Server, new_schema: str) -> PostgresStore:
    return PostgresStore(postgres.dsn(), schema=new_schema, clock=SettableClock(), patience="2s")


def relations(server: Server) -> set[Row]:
    """All that is there, whosever it is; the tables for long values come and go with those that they belong to."""
    look = "SELECT relnamespace::regnamespace::text, relname FROM pg_class WHERE relname !~ '^pg_toast'"
    return set(server.sql(look))


async def test_all_that_it_makes_is_in_its_schema(postgres: Server, new_schema: str, store: PostgresStore) -> None:
    before = relations(postgres)
    await store.open()
    await store.close()

    made = relations(postgres) - before
    assert {schema for schema, _ in made} == {new_schema}
    assert {"jobs", "history", "versions", "jobs_by_order", "lock_terms"} <= {name for _, name in made}


async def test_whoever_starts_beside_one_that_migrates_waits_for_it_longer_than_for_any_other_lock(
    postgres: Server, new_schema: str
) -> None:
    store = PostgresStore(postgres.dsn(), schema=new_schema, clock=SettableClock(), patience="200ms")
    waited = (
        "SELECT FROM pg_stat_activity WHERE datname = current_database() "
        "AND wait_event = 'advisory' AND now() - query_start > '500ms'::interval"
    )
    with psycopg.connect(postgres.dsn()) as other:
        other.execute("SELECT pg_advisory_xact_lock(hashtextextended('mainspring migrates ' || %s, 0))", [new_schema])
        opening = asyncio.ensure_future(store.open())
        while not opening.done() and not await asyncio.to_thread(postgres.sql, waited):
            pass
        other.commit()
    await opening
    assert (await store.schema()).found == migrate.WANTED
    await store.close()


async def test_asking_for_the_schema_leaves_no_trace(postgres: Server, new_schema: str, store: PostgresStore) -> None:
    assert (await store.schema()).found == 0

    assert postgres.sql("SELECT FROM pg_namespace WHERE nspname = %s", [new_schema]) == []


async def test_it_moves_into_a_schema_of_the_users_own(postgres: Server, new_schema: str, store: PostgresStore) -> None:
    postgres.sql(f"CREATE SCHEMA {new_schema}")
    postgres.sql(f"CREATE TABLE {new_schema}.letters (title text)")
    postgres.sql(f"INSERT INTO {new_schema}.letters VALUES ('to a friend')")
    await store.open()
    await store.close()

    assert (await store.schema()).found == migrate.WANTED
    assert postgres.sql(f"SELECT * FROM {new_schema}.letters") == [("to a friend",)]


@pytest.mark.parametrize(
    ("foreign", "named"),
    [
        ("CREATE TABLE {}.jobs (title text)", "jobs"),
        ("CREATE VIEW {}.history AS SELECT 1", "history"),
        ("CREATE TYPE {}.rules AS ENUM ('one')", "rules"),
        ("CREATE SEQUENCE {}.lock_terms", "lock_terms"),
        ("CREATE TABLE {0}.letters (title text); CREATE INDEX jobs_waiting ON {0}.letters (title)", "jobs_waiting"),
        ("CREATE TABLE {0}.versions (version integer); INSERT INTO {0}.versions VALUES (1)", "versions"),
        (
            "CREATE TABLE {}.versions (version integer, oldest_code integer, changed_at timestamptz)",
            "versions",
        ),
    ],
)
async def test_what_has_our_names_and_is_not_ours_is_left_alone(
    postgres: Server, new_schema: str, store: PostgresStore, foreign: str, named: str
) -> None:
    postgres.sql(f"CREATE SCHEMA {new_schema}; {foreign.format(new_schema)}")
    before = relations(postgres)

    with pytest.raises(SchemaError, match=f"the schema has {named}, .* not ours; name another schema. Nothing was"):
        await store.open()
    assert (await store.schema()).found == 0
    assert relations(postgres) == before


async def test_tables_that_serve_newer_code_only_are_left_alone(
    postgres: Server, new_schema: str, store: PostgresStore
) -> None:
    await store.open()
    await store.close()
    postgres.sql(f"UPDATE {new_schema}.versions SET version = 99, oldest_code = 98")

    problem = rf"version 99 .* 98 or later, and this one knows {migrate.WANTED}; upgrade Mainspring here"
    with pytest.raises(SchemaError, match=problem):
        await store.open()
    assert (await store.schema()).found == 99
    assert postgres.sql(f"SELECT version, oldest_code FROM {new_schema}.versions") == [(99, 98)]


async def test_newer_tables_that_serve_this_code_too_are_used(
    postgres: Server, new_schema: str, store: PostgresStore
) -> None:
    await store.open()
    await store.close()
    postgres.sql(f"UPDATE {new_schema}.versions SET version = 99")

    await store.open()
    assert await store.queues() == ()
    assert (await store.schema()).found == 99
    await store.close()


def test_migrations_are_numbered_without_a_gap_and_each_says_whom_it_serves() -> None:
    assert [step.number for step in migrate.MIGRATIONS] == list(range(1, migrate.WANTED + 1))
    assert all(1 <= step.oldest_code <= step.number for step in migrate.MIGRATIONS)


def test_a_script_is_cut_where_a_line_ends_with_a_semicolon_and_not_in_a_comment() -> None:
    script = "-- first; and\nCREATE TABLE a (\n    b int  -- one;\n);\n\nINSERT INTO a VALUES (1); -- done;\n"

    assert [one.text for one in Migration(1, 1, script).statements] == [
        "CREATE TABLE a (\n    b int\n);",
        "INSERT INTO a VALUES (1);",
    ]


FIRST = migrate.MIGRATIONS[0]
SECOND = Migration(2, 1, "CREATE TABLE mainspring.second (a text);\nINSERT INTO mainspring.second VALUES (';');\n")
THIRD = Migration(3, 2, "CREATE TABLE mainspring.third (a text);")


def test_only_what_is_missing_is_migrated_one_step_at_a_time(verbs: Verbs) -> None:
    def step(*steps: Migration) -> bool:
        return verbs.run(migrate.migrate("a store", verbs.schema, steps, days=0))

    assert [step(FIRST, SECOND), step(FIRST, SECOND), step(FIRST, SECOND)] == [True, True, False]
    assert versions(verbs) == [(2, 1)]
    assert [step(FIRST, SECOND, THIRD), step(FIRST, SECOND, THIRD)] == [True, False]

    assert versions(verbs) == [(3, 2)]
    assert verbs.sql("SELECT * FROM mainspring.second") == [(";",)]
    assert not step(FIRST, SECOND)  # older code, which these tables serve
    with pytest.raises(SchemaError, match="upgrade"):
        step(FIRST)


def test_a_migration_that_fails_leaves_the_tables_as_they_were(postgres: Server, verbs: Verbs) -> None:
    verbs.run(migrate.migrate("a store", verbs.schema, (FIRST,), days=0))
    before = relations(postgres)
    broken = Migration(2, 2, "CREATE TABLE mainspring.second (a text);\nINSERT INTO mainspring.nowhere VALUES (1);")
    with pytest.raises(psycopg.errors.UndefinedTable, match="nowhere"):
        verbs.run(migrate.migrate("a store", verbs.schema, (FIRST, broken), days=0))

    assert relations(postgres) == before
    assert versions(verbs) == [(1, 1)]


NEXT = migrate.WANTED + 1
PARTING = Migration(NEXT, NEXT, "CREATE TABLE mainspring.later (a text);")
"""A migration that older code cannot work with."""
WAITS = "SELECT FROM pg_locks WHERE NOT granted AND pid = %s"


def test_a_migration_that_older_code_cannot_work_with_is_refused_while_such_a_node_is_alive(verbs: Verbs) -> None:
    def step() -> bool:
        return verbs.run(migrate.migrate("a store", verbs.schema, (*migrate.MIGRATIONS, PARTING), days=0))

    make_tables(verbs)
    older, newer = (node_record(name) for name in ("older", "newer"))
    term = verbs.run(nodes.join(None, older))
    verbs.run(nodes.join(None, newer, NEXT))

    with pytest.raises(SchemaError, match="nodes of older code are running: older; stop them, then run"):
        step()
    assert versions(verbs) == [(migrate.WANTED, migrate.MIGRATIONS[-1].oldest_code)]
    verbs.run(nodes.declare_dead(None, older.id, term))
    assert step()
    assert versions(verbs) == [(NEXT, NEXT)]
    with pytest.raises(SchemaError, match="upgrade Mainspring here"):
        verbs.run(nodes.join(None, node_record("late")))
    assert verbs.sql("SELECT id FROM mainspring.nodes WHERE alive") == [("newer",)]


def test_a_node_of_older_code_that_crashed_does_not_block_a_migration(verbs: Verbs) -> None:
    make_tables(verbs)
    verbs.run(nodes.join(None, node_record("older")))
    verbs.sql("UPDATE mainspring.beats SET renewed_at = now() - interval '61 seconds'")

    assert verbs.run(migrate.migrate("a store", verbs.schema, (*migrate.MIGRATIONS, PARTING), days=0))
    assert verbs.sql("SELECT id FROM mainspring.nodes WHERE alive") == []


def test_a_migration_waits_for_a_node_of_older_code_that_joins_at_the_same_time(postgres: Server, verbs: Verbs) -> None:
    make_tables(verbs)
    steps = (*migrate.MIGRATIONS, PARTING)
    with Verbs(postgres.dsn(), verbs.schema) as joining, ThreadPoolExecutor(1) as thread:
        with joining.connection.transaction():
            drive_sync(joining.ask, nodes.join(None, node_record("older")))
            migrated = thread.submit(lambda: verbs.run(migrate.migrate("a store", verbs.schema, steps, days=0)))
            while not postgres.sql(WAITS, [verbs.connection.info.backend_pid]):
                assert not migrated.done()
        with pytest.raises(SchemaError, match="running: older"):
            migrated.result(60)
    assert versions(verbs) == [(migrate.WANTED, migrate.MIGRATIONS[-1].oldest_code)]


def test_a_node_that_joins_during_a_migration_joins_after_it(postgres: Server, verbs: Verbs) -> None:
    make_tables(verbs)
    later = Migration(NEXT, migrate.MIGRATIONS[-1].oldest_code, "CREATE TABLE mainspring.later (a text);")
    with Verbs(postgres.dsn(), verbs.schema) as joining, ThreadPoolExecutor(1) as thread:
        with verbs.connection.transaction():
            drive_sync(verbs.ask, migrate.migrate("a store", verbs.schema, (*migrate.MIGRATIONS, later), days=0))
            joined = thread.submit(lambda: joining.run(nodes.join(None, node_record("late"))))
            while not postgres.sql(WAITS, [joining.connection.info.backend_pid]):
                assert not joined.done()
        assert joined.result(60) > 0
    assert verbs.sql("SELECT id FROM mainspring.nodes WHERE alive") == [("late",)]


def test_a_node_that_joins_while_renewals_get_a_table_of_their_own_has_one(postgres: Server, verbs: Verbs) -> None:
    def step(last: int) -> bool:
        return verbs.run(migrate.migrate("a store", verbs.schema, migrate.MIGRATIONS[:last], days=0))

    while step(6):
        pass
    with Verbs(postgres.dsn(), verbs.schema) as joining, ThreadPoolExecutor(1) as thread:
        with joining.connection.transaction():
            joining.sql(
                "INSERT INTO mainspring.nodes (id, joined_at, renewed_at, record) VALUES ('older', now(), now(), '')"
            )
            migrated = thread.submit(lambda: step(7))
            while not postgres.sql(WAITS, [verbs.connection.info.backend_pid]):
                assert not migrated.done()
        assert migrated.result(60)
    assert verbs.sql("SELECT id, beats.counter FROM mainspring.nodes JOIN mainspring.beats USING (term)") == [
        ("older", 0)
    ]


def node_record(name: str) -> NodeRecord:
    return NodeRecord(id=NodeId(name), process=Process(host="here", pid=1, started="today"), tasks=frozenset())


def versions(verbs: Verbs) -> list[Row]:
    return verbs.sql("SELECT version, oldest_code FROM mainspring.versions")


STARTER = """
import asyncio, sys
from mainspring.stores.postgres import PostgresStore

async def main():
    store = PostgresStore(sys.argv[1], schema=sys.argv[2])
    print("ready", flush=True)
    sys.stdin.readline()
    await store.open()
    print((await store.schema()).found, len(await store.queues()), flush=True)
    await store.close()

asyncio.run(main())
"""


def test_several_processes_may_start_on_a_new_schema_at_once(postgres: Server, verbs: Verbs) -> None:
    """Each opens the store when it is told to, so that they really meet; the days are made by all of them too."""
    start = [sys.executable, "-c", STARTER, postgres.dsn(), verbs.schema]
    children = [
        subprocess.Popen(start, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1) for _ in range(5)
    ]
    for child in children:
        assert child.stdout
        assert child.stdout.readline() == "ready\n"
    for child in children:
        assert child.stdin
        child.stdin.write("go\n")
        child.stdin.flush()
    answers = [child.communicate(timeout=60)[0] for child in children]

    assert answers == [f"{migrate.WANTED} 0\n"] * 5
    assert [child.returncode for child in children] == [0] * 5
    assert len(days_of(verbs)) == partitions.AHEAD + 1


def test_indexes_of_claims_are_used_at_once_after_a_migration_beside_an_older_transaction(
    postgres: Server, verbs: Verbs
) -> None:
    """An index that is created after an update of the same transaction is not used while an older transaction runs."""

    def step(last: int) -> bool:
        return verbs.run(migrate.migrate("a store", verbs.schema, migrate.MIGRATIONS[:last], days=0))

    while step(4):
        pass
    fill(postgres, verbs.schema, 1000, old=True)
    verbs.sql("UPDATE mainspring.nodes SET alive = false, died_at = now()")  # older code would hold up the migration
    while step(9):
        pass
    verbs.sql(
        "UPDATE mainspring.jobs SET losses = 2 WHERE state <> 'running' AND id IN (SELECT id FROM mainspring.jobs LIMIT 9)"
    )
    verbs.sql(
        "UPDATE mainspring.jobs SET max_attempts = 2147483647, granted = 1 WHERE id IN (SELECT id FROM mainspring.jobs LIMIT 1)"
    )
    with psycopg.connect(postgres.dsn()) as older:
        older.execute("SELECT pg_current_xact_id()")
        assert step(10)
        unused = verbs.sql(
            "SELECT indexrelid::regclass::text FROM pg_index WHERE indcheckxmin AND indrelid = 'mainspring.jobs'::regclass"
        )
    assert unused == []
    assert verbs.sql(
        "SELECT count(*) FROM mainspring.jobs WHERE care <> CASE WHEN losses > 0 AND losses >= loss_limit - 1 THEN 1 "
        "WHEN max_attempts::bigint + granted - attempt <= 1 OR loss_limit - losses <= 1 THEN 2 ELSE 0 END"
    ) == [(0,)]
    assert {care for (care,) in verbs.sql("SELECT DISTINCT care FROM mainspring.jobs")} >= {0, 1}
