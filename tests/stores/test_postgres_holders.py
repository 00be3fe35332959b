"""Who holds a database back, as an open store tells it."""

from datetime import timedelta

import psycopg

from mainspring.client.health.held import held_back
from mainspring.stores.held import HoldsBack
from mainspring.stores.memory import MemoryStore
from mainspring.stores.postgres import PostgresStore
from tests.servers.postgres import Server
from tests.stores.postgres_wires import on_real_time


@on_real_time
async def test_a_transaction_that_stays_open_is_named(postgres: Server, postgres_schema: str) -> None:
    store = PostgresStore(postgres.dsn(), schema=postgres_schema)
    await store.open()
    try:
        assert isinstance(store, HoldsBack)
        with psycopg.connect(postgres.dsn(), application_name="forgetful") as connection:
            connection.execute("SELECT pg_current_xact_id()")
            found = await store.held(timedelta(0))
            named = [one for one in found if one.pid == connection.info.backend_pid]
            assert [one.program for one in named] == ["forgetful"]
            assert await held_back(store) == [], "not yet for five minutes"
            connection.rollback()
    finally:
        await store.close()


def test_a_store_that_knows_nothing_of_it_tells_nothing() -> None:
    assert not isinstance(MemoryStore(), HoldsBack)
