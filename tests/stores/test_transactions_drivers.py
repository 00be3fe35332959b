"""Verbs in transactions of the user's own, on PostgreSQL, by every driver: both are committed, or neither."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing

import asyncpg
import psycopg
import pytest
import sqlalchemy
from sqlalchemy.orm import Session

from mainspring.core.unique import UniqueKey
from mainspring.errors import DeclarationError
from mainspring.stores.transactions.postgres import run_in
from tests.servers.postgres import Server
from tests.stores.place import (
    Place,
    awaited_ways,
    blocking_ways,
    every_driver,
    every_way,
    join,
    join_sync,
    new,
    taking_in,
)
from tests.stores.ways import User, Way

pytestmark = pytest.mark.usefixtures("virtual_time")


@pytest.fixture(scope="module")
def tables(postgres: Server) -> Iterator[Place]:
    with postgres.schema() as schema, closing(Place(postgres, schema)) as place:
        yield place


@pytest.fixture
def there(tables: Place) -> Iterator[Place]:
    """The store; nothing is in it."""
    yield tables
    tables.clear()


@every_way
async def test_both_are_there_with_the_commit_and_not_before(there: Place, way: Way) -> None:
    first, second = new(), new()
    async with way(there.dsn) as user:
        assert await join(there, user, [first]) == [True]  # it may come before all that the user does
        await user.run(there.write(1))
        assert await join(there, user, [first, second]) == [False, True]
        assert there.jobs == there.numbers == []
        await user.commit()

    assert there.jobs == [first.id, second.id]
    assert there.numbers == [1]


@every_way
async def test_a_rollback_leaves_neither(there: Place, way: Way) -> None:
    job = new(UniqueKey(key="one"))
    async with way(there.dsn) as user:
        await user.run(there.write(1))
        await join(there, user, [job])
        await user.rollback()
    async with way(there.dsn) as user:
        assert await join(there, user, [job]) == [True]  # neither the id nor the key is taken

    assert there.jobs == there.numbers == []


@blocking_ways
async def test_code_without_a_loop_does_the_same(there: Place, way: Way) -> None:
    kept, lost = new(), new()
    async with way(there.dsn) as user:
        await user.run(there.write(1))
        assert join_sync(there, user.handle, [kept]) == [True]
        await user.commit()
    async with way(there.dsn) as user:
        await user.run(there.write(2))
        assert join_sync(there, user.handle, [lost]) == [True]
        await user.rollback()

    assert there.jobs == [kept.id]
    assert there.numbers == [1]


@awaited_ways
async def test_what_is_awaited_cannot_be_used_by_code_that_blocks(there: Place, way: Way) -> None:
    async with way(there.dsn) as user:
        with pytest.raises(DeclarationError, match="has to be awaited; use the awaited form"):
            join_sync(there, user.handle, [new()])
        await user.run(there.write(1))
        await user.commit()

    assert there.jobs == []
    assert there.numbers == [1]


@every_way
async def test_a_thousand_jobs_go_at_once(there: Place, way: Way) -> None:
    jobs = [new() for _ in range(1000)]
    async with way(there.dsn) as user:
        assert all(await join(there, user, jobs))
        await user.commit()

    assert there.jobs == [job.id for job in jobs]


@every_driver
async def test_a_hint_comes_with_the_commit_and_only_then(there: Place, way: Way) -> None:
    with psycopg.connect(there.dsn, autocommit=True) as listener:
        listener.execute(f"LISTEN {there.schema}".encode())

        async def tell(user: User, payload: str) -> None:
            verb = taking_in([new()])
            await run_in(user.handle, verb, there.settings, there.identity, hint=(there.schema, payload))

        async with way(there.dsn) as user:
            await tell(user, "lost")
            await user.rollback()
        async with way(there.dsn) as user:
            await tell(user, "kept")
            assert not list(listener.notifies(timeout=0.05))
            await user.commit()
        (told,) = listener.notifies(timeout=10, stop_after=1)

    assert told.payload == "kept"


# What is remembered, and what is not needed.


async def test_where_a_connection_leads_is_looked_at_once(there: Place) -> None:
    asked: list[str] = []
    connection = await asyncpg.connect(there.dsn)
    connection.add_query_logger(lambda query: asked.append(query.query))
    pool = await asyncpg.create_pool(there.dsn, min_size=1, max_size=1)
    for _ in range(3):
        async with connection.transaction():
            await run_in(connection, taking_in([new()]), there.settings, there.identity)
        async with pool.acquire() as lent, lent.transaction():
            with lent.query_logger(lambda query: asked.append(query.query)):
                await run_in(lent, taking_in([new()]), there.settings, there.identity)
    await connection.close()
    await pool.close()

    assert sum("has_schema_privilege" in query for query in asked) == 2
    assert sum("INSERT" in query for query in asked) == 6


def test_sqlalchemy_remembers_it_with_the_connection_of_its_pool(there: Place) -> None:
    asked: list[str] = []
    url = sqlalchemy.make_url(there.dsn).set(drivername="postgresql+psycopg")
    engine = sqlalchemy.create_engine(url, pool_size=1)
    sqlalchemy.event.listen(engine, "before_cursor_execute", lambda *given: asked.append(given[2]))
    for _ in range(3):
        with Session(engine) as session, session.begin():
            join_sync(there, session, [new()])
    engine.dispose()

    assert sum("has_schema_privilege" in query for query in asked) == 1
    assert sum("INSERT" in query for query in asked) == 3


def test_drivers_that_nobody_uses_are_not_imported() -> None:
    code = """
import sys
from mainspring.clock import SystemClock
from mainspring.errors import DeclarationError
from mainspring.stores.postgres.joined import identity
from mainspring.stores.postgres.settings import Settings
from mainspring.stores.transactions.postgres import run_in_sync
try:
    run_in_sync(object(), identity(), Settings(dsn="", clock=SystemClock()), None)
except DeclarationError:
    print(sorted({"asyncpg", "psycopg", "sqlalchemy"} & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "['asyncpg']\n"  # the store's own
