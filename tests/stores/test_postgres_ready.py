"""Schemas that tests of the contract use one after the other are as good as new."""

from contextlib import closing

import psycopg
import pytest

from mainspring.testing import VirtualTime
from mainspring.testing.contract import SettableClock
from mainspring.testing.contract.world import HOUR, World
from tests.servers.postgres import Server
from tests.servers.ready import ReadySchemas
from tests.stores.postgres_world import PostgresHarness


def test_a_schema_that_is_used_again_is_as_if_nothing_had_been_in_it(
    postgres: Server, virtual_time: VirtualTime
) -> None:
    async def use(schema: str) -> tuple[int, int]:
        clock = SettableClock()
        world = World(PostgresHarness(postgres, schema, clock), clock)
        world.store = await world.open()
        await world.enqueue()
        node = await world.node()
        await world.claim_one(node)
        lock = await world.store.acquire("lock", "me", HOUR)
        await world.close()
        assert lock
        return node.term, lock.term

    schemas = ReadySchemas(postgres)
    seen = []
    for _ in range(2):
        with schemas.one() as schema:
            assert postgres.sql(f"SELECT count(*) FROM {schema}.jobs") == [(0,)]  # noqa: S608 -- a name of ours
            seen.append((schema, virtual_time.run(use(schema))))
    schemas.close()
    assert seen[0] == seen[1], "the same schema, and the same numbers"


@pytest.mark.parametrize(
    "change",
    [
        "ALTER TABLE {}.jobs ADD COLUMN more text",
        "DROP INDEX {}.runs_open",
        "UPDATE {}.versions SET version = version + 1",
        "GRANT SELECT ON {}.jobs TO PUBLIC",
        "CREATE TABLE {}.another ()",
        "ALTER TABLE {}.jobs SET (fillfactor = 50)",
        "DROP SCHEMA {} CASCADE",
    ],
)
def test_a_schema_that_was_changed_is_not_used_again(postgres: Server, change: str) -> None:
    schemas = ReadySchemas(postgres)
    with schemas.one() as changed:
        postgres.sql(change.format(changed))
    assert postgres.sql("SELECT FROM pg_namespace WHERE nspname = %s", [changed]) == []
    with schemas.one() as other:
        assert other != changed
    schemas.close()
    assert postgres.sql("SELECT FROM pg_namespace WHERE nspname = %s", [other]) == []


def test_who_leaves_a_transaction_open_on_a_schema_is_named(postgres: Server) -> None:
    with (
        closing(ReadySchemas(postgres, patience="200ms")) as schemas,
        psycopg.connect(postgres.dsn(), application_name="the forgetful") as connection,
        pytest.raises(psycopg.Error, match=r"left open on .* the forgetful"),
        schemas.one() as schema,
    ):
        connection.execute(f"INSERT INTO {schema}.pauses VALUES ('a', now(), '', '')")  # noqa: S608 -- a name of ours
    postgres.sql(f"DROP SCHEMA {schema} CASCADE")
