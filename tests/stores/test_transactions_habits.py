"""Transactions of the user's own, on PostgreSQL, on connections that people have set up to their liking."""

import asyncio
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime

import asyncpg
import psycopg
import pytest
import sqlalchemy
from psycopg import ClientCursor
from psycopg.rows import dict_row
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from mainspring.core.unique import UniqueKey
from mainspring.errors import DeclarationError
from mainspring.stores.postgres import PostgresStore
from mainspring.stores.postgres.joined import identity
from mainspring.stores.postgres.verb import Row, Verb
from mainspring.stores.transactions.postgres import run_in
from mainspring.testing import VirtualTime
from tests.servers.pgbouncer import Pooler
from tests.servers.postgres import Server, new_server
from tests.stores import ways
from tests.stores.place import Place, ask, every_driver, join_sync, new, taking_in
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


def read(text: str) -> Verb[Row]:
    (row,) = yield ask(text)
    return row


@every_driver
async def test_instants_come_in_utc_whatever_the_session_says(there: Place, way: Way) -> None:
    async with way(there.dsn) as user:
        await user.run("SET LOCAL timezone = 'Asia/Kathmandu'")
        verb = read("SELECT '2030-01-01 00:00:00.123457+00'::timestamptz")
        (instant,) = await run_in(user.handle, verb, there.settings, there.identity)

    assert instant == datetime(2030, 1, 1, 0, 0, 0, 123457, UTC)
    assert instant.tzinfo is UTC


@every_driver
async def test_a_percent_sign_is_a_percent_sign(there: Place, way: Way) -> None:
    async with way(there.dsn) as user:
        assert tuple(await run_in(user.handle, read("SELECT '%', 7 % 4"), there.settings, there.identity)) == ("%", 3)


def test_psycopg_with_rows_and_cursors_of_the_users_own(there: Place) -> None:
    with psycopg.connect(there.dsn, row_factory=dict_row, cursor_factory=ClientCursor) as connection:
        assert join_sync(there, connection, [new(UniqueKey(key="one")), new()]) == [True, True]
        assert connection.execute("SELECT 1 AS one").fetchall() == [{"one": 1}]


def test_psycopg_in_a_block_of_its_own(there: Place) -> None:
    kept, lost = new(), new()
    with psycopg.connect(there.dsn, autocommit=True) as connection, connection.transaction():
        join_sync(there, connection, [kept])
        with pytest.raises(RuntimeError), connection.transaction() as inner:
            join_sync(there, inner, [lost])
            raise RuntimeError("no")

    assert there.jobs == [kept.id]


def test_psycopg_in_a_pipeline(there: Place) -> None:
    kept, too = new(), new()
    with psycopg.connect(there.dsn) as connection:
        with connection.pipeline():
            connection.execute(there.write(1).encode())
            join_sync(there, connection, [kept])
        connection.commit()
    with psycopg.connect(there.dsn, autocommit=True) as connection, connection.pipeline():
        with connection.transaction():
            connection.execute(there.write(2).encode())
            join_sync(there, connection, [too], whole=True)
        connection.execute("SELECT 1")
        with pytest.raises(DeclarationError, match="commits each statement"):
            join_sync(there, connection, [new()])

    assert there.jobs == [kept.id, too.id]
    assert there.numbers == [1, 2]


async def test_psycopg_in_a_pipeline_that_is_awaited(there: Place) -> None:
    async with await psycopg.AsyncConnection.connect(there.dsn) as connection, connection.pipeline():
        await connection.execute(there.write(1).encode())
        await run_in(connection, taking_in([kept := new()]), there.settings, there.identity, whole=True)

    assert there.jobs == [kept.id]
    assert there.numbers == [1]


async def test_asyncpg_with_records_and_codecs_of_the_users_own(there: Place) -> None:
    class LikeADict(asyncpg.Record):
        def __iter__(self) -> Iterator[str]:  # as some people like it
            return iter(self.keys())

    connection = await asyncpg.connect(there.dsn, record_class=LikeADict)
    await connection.set_type_codec("jsonb", schema="pg_catalog", encoder=str, decoder=str)
    async with connection.transaction():
        answers = await run_in(connection, taking_in([new()]), there.settings, there.identity)
    await connection.close()

    assert there.jobs == [answer.id for answer in answers]


async def test_asyncpg_that_is_busy_with_something_else_says_so(there: Place) -> None:
    connection = await asyncpg.connect(there.dsn)
    async with connection.transaction():
        busy = asyncio.ensure_future(connection.execute("SELECT pg_sleep(0.05)"))
        await asyncio.sleep(0)
        with pytest.raises(DeclarationError, match="another operation is in progress"):
            await run_in(connection, taking_in([new()]), there.settings, there.identity)
        await busy
        await run_in(connection, taking_in([new()]), there.settings, there.identity)
    await connection.close()


def test_sqlalchemy_whose_results_are_streamed(there: Place) -> None:
    with ways.engine(there.dsn).connect().execution_options(stream_results=True, yield_per=1) as connection:
        assert join_sync(there, connection, [new(), new()]) == [True, True]
        connection.commit()

    assert len(there.jobs) == 2


def test_sqlalchemy_in_a_savepoint_of_the_users(there: Place) -> None:
    kept, lost = new(), new()
    with Session(ways.engine(there.dsn)) as session:
        with pytest.raises(RuntimeError), session.begin_nested():
            session.execute(sqlalchemy.text(there.write(1)))
            join_sync(there, session, [lost], whole=True)
            raise RuntimeError("no")
        join_sync(there, session, [kept], whole=True)
        session.commit()

    assert there.jobs == [kept.id]
    assert there.numbers == []


@contextmanager
def async_session(there: Place, driver: str, virtual_time: VirtualTime) -> Iterator[AsyncSession]:
    url = sqlalchemy.make_url(there.dsn).set(drivername=f"postgresql+{driver}")
    engine = create_async_engine(url)
    session = AsyncSession(engine)
    yield session
    virtual_time.run(session.close())
    virtual_time.run(engine.dispose())


@pytest.mark.parametrize("driver", ["asyncpg", "psycopg"])
def test_an_awaited_session_seen_from_its_blocking_side(there: Place, driver: str, virtual_time: VirtualTime) -> None:
    """As in `run_sync`, and in listeners to a session's events."""
    kept = new()
    with async_session(there, driver, virtual_time) as session:

        async def story() -> None:
            assert await session.run_sync(lambda blocking: join_sync(there, blocking, [kept])) == [True]
            with pytest.raises(DeclarationError, match="its driver is awaited; give the AsyncSession"):
                join_sync(there, session.sync_session, [new()])
            with pytest.raises(DeclarationError, match="its driver is awaited; give the AsyncSession"):
                await run_in(session.sync_session, identity(), there.settings, there.identity)
            await session.commit()

        virtual_time.run(story())

    assert there.jobs == [kept.id]


@pytest.mark.needs("pgbouncer")
async def test_through_a_pooler(own_postgres: Server) -> None:
    """As its manual says: nothing is kept prepared on a connection that is another one with the next transaction."""
    jobs = [new() for _ in range(4)]
    with (
        own_postgres.schema() as schema,
        closing(Place(own_postgres, schema)) as there,
        Pooler(own_postgres, size=1) as pooler,
    ):
        connection = await asyncpg.connect(pooler.dsn(), statement_cache_size=0)
        with psycopg.connect(pooler.dsn(), prepare_threshold=None) as blocking:
            for job in jobs:
                async with connection.transaction():
                    await run_in(connection, taking_in([job]), there.settings, there.identity)
                assert join_sync(there, blocking, [job]) == [False]
                blocking.rollback()
        await connection.close()

        assert there.jobs == [job.id for job in jobs]


@pytest.mark.slow
async def test_a_transaction_without_a_notification_can_be_prepared_for_a_two_phase_commit() -> None:
    with new_server() as server, server.schema() as schema:
        server.sql("ALTER SYSTEM SET max_prepared_transactions = 4")
        server.restart()
        job = new()
        store = PostgresStore(server.dsn(), schema=schema, notify=False)
        await store.open()
        with psycopg.connect(server.dsn()) as connection:
            store.enqueue_in_sync(connection, [job])
            connection.execute("PREPARE TRANSACTION 'one'")
            connection.rollback()
        assert await store.get([job.id]) == (None,)
        server.sql("COMMIT PREPARED 'one'")
        (view,) = await store.get([job.id])
        await store.close()

    assert view is not None
