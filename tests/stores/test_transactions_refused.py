"""Which transactions of the user's own are refused, on PostgreSQL, before anything is written."""

import asyncio
from collections.abc import Iterator
from contextlib import closing
from uuid import uuid4

import asyncpg
import psycopg
import pytest
import sqlalchemy
from sqlalchemy.orm import Session

from mainspring.errors import DeclarationError
from mainspring.stores.postgres.joined import identity
from mainspring.stores.transactions.postgres import run_in
from tests.servers.postgres import Server
from tests.stores import ways
from tests.stores.place import Place, every_driver, join, join_sync, new
from tests.stores.ways import Way

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


@pytest.fixture(scope="module")
def elsewhere(tables: Place) -> Iterator[Place]:
    """A store of the same name, in another database of the same server."""
    name = f"elsewhere_{uuid4().hex[:12]}"
    tables.rows(f"CREATE DATABASE {name}")
    with closing(Place(tables.server, tables.schema, name)) as place:
        yield place
    tables.rows(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.mark.parametrize("way", [pytest.param(way, id=name) for name, way in ways.COMMITTING.items()])
async def test_a_connection_that_commits_each_statement_is_refused(there: Place, way: Way) -> None:
    async with way(there.dsn) as user:
        with pytest.raises(DeclarationError, match="commits each statement by itself; use"):
            await join(there, user, [new()])
        await user.run(there.write(1))

    assert there.jobs == []
    assert there.numbers == [1]


@every_driver
async def test_another_database_is_refused(there: Place, way: Way) -> None:
    async with way(there.server.dsn("template1")) as user:
        with pytest.raises(
            DeclarationError, match=r"template1.*has no store .*two databases cannot be committed together"
        ):
            await join(there, user, [new()])
        await user.run("SELECT 1")  # its transaction goes on


@every_driver
async def test_another_store_of_the_same_name_is_refused(there: Place, elsewhere: Place, way: Way) -> None:
    async with way(elsewhere.dsn) as user:
        for _ in range(2):
            with pytest.raises(DeclarationError, match="another store"):
                await join(there, user, [new()])
        assert await join(elsewhere, user, [kept := new()]) == [True]
        await user.commit()

    assert elsewhere.jobs == [kept.id]
    elsewhere.clear()


@every_driver
async def test_a_role_that_may_not_look_is_told_and_keeps_its_transaction(there: Place, way: Way) -> None:
    role = f"guest_{uuid4().hex[:12]}"
    there.rows(f"CREATE ROLE {role} LOGIN")
    try:
        async with way(there.server.dsn(user=role)) as user:
            with pytest.raises(DeclarationError, match=f"the role {role} may not use .* migrate --grant {role}`"):
                await join(there, user, [new()])
            await user.run("SELECT 1")
    finally:
        there.rows(f"DROP ROLE {role}")


@every_driver
async def test_a_transaction_in_which_something_failed_is_refused(there: Place, way: Way) -> None:
    async with way(there.dsn) as user:
        with pytest.raises(Exception, match="division by zero"):
            await user.run("SELECT 1 / 0")
        with pytest.raises(DeclarationError, match=r"an earlier statement has failed .* put a savepoint around"):
            await join(there, user, [new()])
        await user.rollback()


@pytest.mark.parametrize("tx", [None, "postgresql://localhost", object(), sqlalchemy.create_engine("sqlite://")])
async def test_what_is_no_transaction_is_refused_by_name(there: Place, tx: object) -> None:
    for run in (join_sync, lambda *given: asyncio.run(run_in(given[1], identity(), there.settings, there.identity))):
        with pytest.raises(
            DeclarationError, match=rf"{type(tx).__name__} cannot be joined; give a connection of asyncpg"
        ):
            await asyncio.to_thread(run, there, tx, [new()])


async def test_a_pool_is_no_connection(there: Place) -> None:
    async with asyncpg.create_pool(there.dsn, min_size=0) as pool:
        with pytest.raises(DeclarationError, match=r"asyncpg.pool.Pool cannot be joined"):
            await run_in(pool, identity(), there.settings, there.identity)


async def test_a_closed_connection_is_refused(there: Place) -> None:
    pool = await asyncpg.create_pool(there.dsn, min_size=1, max_size=1)
    lent = await pool.acquire()
    await pool.release(lent)
    await pool.close()
    plain = await asyncpg.connect(there.dsn)
    await plain.close()
    blocking = psycopg.connect(there.dsn)
    blocking.close()
    awaited = await psycopg.AsyncConnection.connect(there.dsn)
    await awaited.close()
    alchemy = ways.engine(there.dsn).connect()
    alchemy.close()
    for closed in (lent, plain, blocking, awaited, alchemy):
        with pytest.raises(DeclarationError, match=r"closed|given back"):
            await run_in(closed, identity(), there.settings, there.identity)


async def test_a_session_that_is_bound_to_nothing_is_refused(there: Place) -> None:
    with Session() as session, pytest.raises(DeclarationError, match="not bound"):
        join_sync(there, session, [new()])


async def test_a_connection_of_sqlalchemy_to_something_else_is_refused(there: Place) -> None:
    engine = sqlalchemy.create_engine("sqlite://")
    with engine.connect() as connection, pytest.raises(DeclarationError, match="it is a connection to sqlite, and the"):
        join_sync(there, connection, [new()])
    engine.dispose()


async def test_a_driver_that_is_not_supported_is_named(there: Place) -> None:
    engine = sqlalchemy.create_engine("postgresql+pg8000://", module=psycopg)  # which is never called
    with (
        Session(engine) as session,
        pytest.raises(DeclarationError, match=r"pg8000 cannot be used; .*postgresql\+psycopg"),
    ):
        join_sync(there, session, [new()])
