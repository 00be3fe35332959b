"""Joining a transaction of the user's own on SQLite: connections and sessions of SQLAlchemy."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from sqlalchemy import Engine, create_engine, event, text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from mainspring.errors import DeclarationError
from mainspring.stores.outbox import NewMessage
from mainspring.stores.sqlite import SqliteStore
from mainspring.testing import VirtualTime
from mainspring.testing.contract import SettableClock
from mainspring.testing.contract.world import World
from tests.stores.test_transactions_sqlite import Files, orders

Way: TypeAlias = Callable[[Engine], AbstractContextManager[tuple[Any, Any]]]
"""Opens a transaction that is committed at the end; gives what can execute, and what is handed over as `tx`."""

INSERT = text("INSERT INTO orders (name) VALUES (:name)")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "app.db"


@pytest.fixture
def world(path: Path, virtual_time: VirtualTime) -> Iterator[World]:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, name TEXT UNIQUE)")
    clock = SettableClock()
    world = World(Files(path, clock), clock)
    world.store = virtual_time.run(world.open())
    yield world
    virtual_time.run(world.close())


@pytest.fixture
def store(world: World) -> SqliteStore:
    assert isinstance(world.store, SqliteStore)
    return world.store


@pytest.fixture
def engine(path: Path, world: World) -> Iterator[Engine]:  # noqa: ARG001 -- the tables have to be there
    engine = create_engine(f"sqlite:///{path}")
    yield engine
    engine.dispose()


@contextmanager
def a_session(engine: Engine) -> Iterator[tuple[Any, Any]]:
    with Session(engine) as session, session.begin():
        yield session, session


@contextmanager
def a_session_that_begins_by_itself(engine: Engine) -> Iterator[tuple[Any, Any]]:
    with Session(engine) as session:
        yield session, session
        session.commit()


@contextmanager
def the_transaction_of_a_session(engine: Engine) -> Iterator[tuple[Any, Any]]:
    with Session(engine) as session, session.begin() as transaction:
        yield session, transaction


@contextmanager
def a_registry_of_sessions(engine: Engine) -> Iterator[tuple[Any, Any]]:
    sessions = scoped_session(sessionmaker(engine))
    try:
        yield sessions, sessions
        sessions.commit()
    finally:
        sessions.remove()


@contextmanager
def a_connection(engine: Engine) -> Iterator[tuple[Any, Any]]:
    with engine.begin() as connection:
        yield connection, connection


@contextmanager
def a_connection_that_begins_by_itself(engine: Engine) -> Iterator[tuple[Any, Any]]:
    with engine.connect() as connection:
        yield connection, connection
        connection.commit()


@contextmanager
def a_connection_that_begins_at_once(engine: Engine) -> Iterator[tuple[Any, Any]]:
    """As SQLAlchemy's own pages advise: sqlite3 begins nothing, and SQLAlchemy says BEGIN IMMEDIATE itself."""

    @event.listens_for(engine, "connect")
    def connected(connection: Any, _: object) -> None:  # noqa: ANN401 -- the driver's
        connection.isolation_level = None

    @event.listens_for(engine, "begin")
    def begun(connection: Any) -> None:  # noqa: ANN401 -- as above
        connection.exec_driver_sql("BEGIN IMMEDIATE")

    with engine.begin() as connection:
        yield connection, connection


WAYS: list[Way] = [
    a_session,
    a_session_that_begins_by_itself,
    the_transaction_of_a_session,
    a_registry_of_sessions,
    a_connection,
    a_connection_that_begins_by_itself,
    a_connection_that_begins_at_once,
]
every_way = pytest.mark.parametrize("way", WAYS)


@every_way
@pytest.mark.parametrize("ours_first", [True, False])
async def test_a_commit_takes_both(
    world: World, store: SqliteStore, engine: Engine, path: Path, way: Way, *, ours_first: bool
) -> None:
    new = world.new()
    with way(engine) as (user, tx):
        if ours_first:
            store.enqueue_in_sync(tx, [new])
        user.execute(INSERT, {"name": "first"})
        if not ours_first:
            await store.enqueue_in(tx, [new])
        assert not await world.is_there(new.id)

    assert await world.is_there(new.id)
    assert orders(path) == 1


@every_way
async def test_a_rollback_takes_neither(world: World, store: SqliteStore, engine: Engine, path: Path, way: Way) -> None:
    new = world.new()
    with pytest.raises(RuntimeError), way(engine) as (user, tx):
        store.enqueue_in_sync(tx, [new])
        user.execute(INSERT, {"name": "first"})
        raise RuntimeError("changed my mind")

    assert not await world.is_there(new.id)
    assert orders(path) == 0


async def test_a_message_is_published_with_a_session(store: SqliteStore, engine: Engine) -> None:
    message = NewMessage(outbox="orders", partitions=1, partition=0, payload=b"1", type="json")
    with Session(engine) as session:
        store.publish_in_sync(session, [message])
        session.rollback()
        store.publish_in_sync(session, [message])
        session.commit()
    (view,) = (await store.look_at_partitions(["orders"])).partitions

    assert view.last == 1


async def test_what_a_savepoint_undoes_takes_ours_with_it(world: World, store: SqliteStore, engine: Engine) -> None:
    kept, undone = world.new(), world.new()
    with Session(engine) as session, session.begin():
        store.enqueue_in_sync(session, [kept])
        with pytest.raises(RuntimeError), session.begin_nested():
            store.enqueue_in_sync(session, [undone])
            raise RuntimeError("not this one")

    assert await world.is_there(kept.id)
    assert not await world.is_there(undone.id)


async def test_one_that_commits_each_statement_is_refused(world: World, store: SqliteStore, engine: Engine) -> None:
    committing = engine.execution_options(isolation_level="AUTOCOMMIT")
    with (
        committing.connect() as connection,
        pytest.raises(DeclarationError, match="commits each statement by itself"),
    ):
        store.enqueue_in_sync(connection, [world.new()])


async def test_another_file_is_refused(world: World, store: SqliteStore, tmp_path: Path) -> None:
    other = create_engine(f"sqlite:///{tmp_path / 'other.db'}")
    with Session(other) as session, pytest.raises(DeclarationError, match="two files cannot be committed together"):
        store.enqueue_in_sync(session, [world.new()])
    other.dispose()


async def test_another_database_is_refused(world: World, store: SqliteStore) -> None:
    with (
        Session(create_engine("postgresql+psycopg://nowhere/none")) as session,
        pytest.raises(DeclarationError, match="it is a connection to postgresql, and the store is in SQLite"),
    ):
        store.enqueue_in_sync(session, [world.new()])


async def test_a_closed_connection_is_refused(world: World, store: SqliteStore, engine: Engine) -> None:
    connection = engine.connect()
    connection.close()
    with pytest.raises(DeclarationError, match="closed"):
        store.enqueue_in_sync(connection, [world.new()])


async def test_a_session_that_has_to_be_rolled_back_first_is_refused(
    world: World, store: SqliteStore, engine: Engine
) -> None:
    with Session(engine) as session, session.begin() as transaction:
        transaction.rollback()
        with pytest.raises(DeclarationError):
            store.enqueue_in_sync(transaction, [world.new()])


async def test_one_that_is_awaited_is_refused(world: World, store: SqliteStore) -> None:
    session = AsyncSession(create_async_engine("postgresql+asyncpg://nowhere/none"))
    with pytest.raises(DeclarationError, match="its driver is awaited"):
        await store.enqueue_in(session, [world.new()])
    await session.close()
