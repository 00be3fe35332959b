"""Joining a transaction of the user's own: sqlite3, as people open and use it."""

import sqlite3
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from mainspring.core.command import CancelJob
from mainspring.core.job import State
from mainspring.core.machine import command
from mainspring.core.outcome import Succeeded
from mainspring.core.unique import OnConflict, UniqueKey
from mainspring.errors import Conflict, DeclarationError, StoreClosed, StoreUnavailable
from mainspring.stores.port import Store
from mainspring.stores.records import Settlement, Verdict
from mainspring.stores.sqlite import SqliteStore
from mainspring.testing import VirtualTime
from mainspring.testing.contract import SettableClock
from mainspring.testing.contract.world import World

Connect: TypeAlias = Callable[[Path], sqlite3.Connection]


class Files:
    """Handles on one file, for a `World`."""

    def __init__(self, path: Path, clock: SettableClock) -> None:
        self.path = path
        self.clock = clock

    async def open(self) -> SqliteStore:
        store = SqliteStore(self.path, clock=self.clock, durable=False, patience="5s")
        await store.open()
        return store

    async def crash(self, store: Store) -> None:
        raise NotImplementedError


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
def connection(path: Path, world: World) -> Iterator[sqlite3.Connection]:  # noqa: ARG001 -- the tables have to be there
    with closing(sqlite3.connect(path)) as connection:
        yield connection


def orders(path: Path) -> int:
    with closing(sqlite3.connect(path)) as connection:
        return int(connection.execute("SELECT count(*) FROM orders").fetchone()[0])


async def test_the_with_block_of_a_plain_connection_takes_both_or_neither(
    world: World, store: SqliteStore, connection: sqlite3.Connection, path: Path
) -> None:
    kept, lost = world.new(), world.new()
    with connection:
        store.enqueue_in_sync(connection, [kept])
        connection.execute("INSERT INTO orders (name) VALUES ('first')")
    with pytest.raises(RuntimeError), connection:
        connection.execute("INSERT INTO orders (name) VALUES ('second')")
        store.enqueue_in_sync(connection, [lost])
        raise RuntimeError("changed my mind")

    assert await world.is_there(kept.id)
    assert not await world.is_there(lost.id)
    assert orders(path) == 1


async def test_our_write_may_come_first_and_still_waits_for_the_commit(
    world: World, store: SqliteStore, connection: sqlite3.Connection
) -> None:
    new = world.new()
    store.enqueue_in_sync(connection, [new])
    assert connection.in_transaction
    assert not await world.is_there(new.id)
    connection.commit()

    assert await world.is_there(new.id)


def own_begin(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
    return connection


def immediate(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(path, isolation_level="IMMEDIATE")


def with_rows(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path)
    connection.row_factory = sqlite3.Row
    return connection


def with_bytes(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path)
    connection.text_factory = bytes
    return connection


def with_a_cursor_of_its_own(path: Path) -> sqlite3.Connection:
    class Cursor(sqlite3.Cursor):
        def execute(self, *_: object) -> "Cursor":
            raise AssertionError("not ours to use")

    class Connection(sqlite3.Connection):
        def cursor(self, *_: object) -> Any:  # noqa: ANN401 -- as the module's own
            return super().cursor(Cursor)

    return sqlite3.connect(path, factory=Connection)


def with_declared_types(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(path, detect_types=sqlite3.PARSE_DECLTYPES | sqlite3.PARSE_COLNAMES)


WAYS: list[Connect] = [immediate, own_begin, with_rows, with_bytes, with_a_cursor_of_its_own, with_declared_types]
if sys.version_info >= (3, 12):

    def without_autocommit(path: Path) -> sqlite3.Connection:
        return sqlite3.connect(path, autocommit=False)

    def with_autocommit_and_own_begin(path: Path) -> sqlite3.Connection:
        connection = sqlite3.connect(path, autocommit=True)
        connection.execute("BEGIN")
        return connection

    WAYS += [without_autocommit, with_autocommit_and_own_begin]


@pytest.mark.parametrize("way", WAYS)
async def test_every_way_to_connect_works(world: World, store: SqliteStore, path: Path, way: Connect) -> None:
    kept, lost = world.new(key="a"), world.new(key="b")
    with closing(way(path)) as connection:
        factories = connection.text_factory, connection.row_factory
        (answer,) = await store.enqueue_in(connection, [kept])
        connection.execute("COMMIT")
        assert answer.fresh
        if not connection.in_transaction:
            connection.execute("BEGIN")
        assert [one.fresh for one in store.enqueue_in_sync(connection, [kept, lost])] == [False, True]
        connection.execute("ROLLBACK")
        assert (connection.text_factory, connection.row_factory) == factories

    assert await world.is_there(kept.id)
    assert not await world.is_there(lost.id)
    node = await world.node()
    (claimed,) = await world.claim(node, room=5)
    assert claimed.claim.job.id == kept.id


def committing(path: Path) -> sqlite3.Connection:
    if sys.version_info >= (3, 12):
        return sqlite3.connect(path, autocommit=True)
    return sqlite3.connect(path, isolation_level=None)


@pytest.mark.parametrize("connect", [committing, lambda path: sqlite3.connect(path, isolation_level=None)])
async def test_a_connection_that_commits_each_statement_is_refused(
    world: World,
    store: SqliteStore,
    path: Path,
    connect: Connect,
) -> None:
    new = world.new()
    with closing(connect(path)) as connection, pytest.raises(DeclarationError, match="execute BEGIN IMMEDIATE first"):
        store.enqueue_in_sync(connection, [new])

    assert not await world.is_there(new.id)


async def test_another_file_is_refused(world: World, store: SqliteStore, tmp_path: Path) -> None:
    for other in (tmp_path / "other.db", ":memory:"):
        with closing(sqlite3.connect(other)) as connection:
            with pytest.raises(DeclarationError, match="two files cannot be committed together"):
                store.enqueue_in_sync(connection, [world.new()])
            assert not connection.in_transaction


async def test_the_same_file_by_another_name_is_taken(
    world: World, store: SqliteStore, path: Path, tmp_path: Path
) -> None:
    link = tmp_path / "link.db"
    link.symlink_to(path)  # SQLite itself follows it
    new = world.new()
    with closing(sqlite3.connect(link)) as connection, connection:
        store.enqueue_in_sync(connection, [new])

    assert await world.is_there(new.id)


@pytest.mark.parametrize("tx", [None, "sqlite:///app.db", object()])
async def test_what_is_no_connection_is_refused_by_name(world: World, store: SqliteStore, tx: object) -> None:
    with pytest.raises(DeclarationError, match=rf"{type(tx).__name__} cannot be joined; give a sqlite3.Connection"):
        store.enqueue_in_sync(tx, [world.new()])


async def test_a_closed_connection_is_refused(world: World, store: SqliteStore, path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.close()
    with pytest.raises(DeclarationError, match="closed"):
        store.enqueue_in_sync(connection, [world.new()])


async def test_a_conflict_leaves_the_users_transaction_as_it_was(
    world: World, store: SqliteStore, connection: sqlite3.Connection, path: Path
) -> None:
    unique = UniqueKey(key="one", on_conflict=OnConflict.RAISE)
    await world.enqueue(unique=unique)
    first, second = world.new(queue="a queue that was never seen"), world.new(unique=unique)
    with connection:
        connection.execute("INSERT INTO orders (name) VALUES ('kept')")
        with pytest.raises(Conflict):
            store.enqueue_in_sync(connection, [first, second])
        connection.execute("INSERT INTO orders (name) VALUES ('kept too')")

    assert orders(path) == 2
    assert not await world.is_there(first.id)


async def test_what_a_rolled_back_transaction_made_is_not_remembered(
    world: World, store: SqliteStore, connection: sqlite3.Connection
) -> None:
    """Neither by the store that joined it nor by its next call: numbers of lanes are given out again."""
    store.enqueue_in_sync(connection, [world.new(queue="never")])
    store.enqueue_in_sync(connection, [world.new(queue="never", priority=3)])
    connection.rollback()
    await world.enqueue(queue="later", priority=3)
    await world.enqueue(queue="never", priority=3)

    assert [(queue.name, queue.waiting) for queue in await store.queues()] == [("later", 1), ("never", 1)]
    claims = await world.claim(await world.node(), room=5)
    assert sorted((one.claim.job.queue, one.claim.job.priority) for one in claims) == [("later", 3), ("never", 3)]


async def test_a_job_ends_with_the_users_transaction(
    world: World, store: SqliteStore, connection: sqlite3.Connection, path: Path
) -> None:
    node = await world.node()
    claim = await world.running(node)
    settlement = world.settlement(claim, Succeeded(b"1"))
    with pytest.raises(RuntimeError), connection:
        connection.execute("INSERT INTO orders (name) VALUES ('lost')")
        assert store.settle_in_sync(connection, settlement).verdict is Verdict.ACCEPTED
        raise RuntimeError("at the last moment")
    assert (await world.job(claim.job.id)).state is State.RUNNING
    with connection:
        connection.execute("INSERT INTO orders (name) VALUES ('kept')")
        assert (await store.settle_in(connection, settlement)).verdict is Verdict.ACCEPTED

    view = await world.view(claim.job.id)
    assert (view.job.state, view.result) == (State.SUCCEEDED, b"1")
    assert orders(path) == 1
    assert (await store.settle([settlement]))[0].verdict is Verdict.REPEATED


async def test_a_lost_lease_is_refused_in_the_users_transaction(
    world: World, store: SqliteStore, connection: sqlite3.Connection
) -> None:
    node = await world.node()
    claim = await world.running(node)
    await world.kill(node)
    with connection:
        assert store.settle_in_sync(connection, world.settlement(claim, Succeeded())).verdict is Verdict.REFUSED


async def test_an_operators_word_goes_through_the_users_transaction_too(
    world: World, store: SqliteStore, connection: sqlite3.Connection
) -> None:
    job = await world.enqueue(key="a")
    change = command(await world.job(job), CancelJob(), world.now)
    with connection:
        assert store.settle_in_sync(connection, Settlement(change=change)).verdict is Verdict.ACCEPTED

    assert (await world.job(job)).state is State.CANCELLED
    assert await world.claim(await world.node()) == ()


async def test_an_old_snapshot_is_told_as_trouble_that_passes(world: World, store: SqliteStore, path: Path) -> None:
    """A deferred transaction that has read cannot write once somebody else has."""
    with closing(sqlite3.connect(path, isolation_level=None, timeout=0)) as connection:
        connection.execute("BEGIN")
        connection.execute("SELECT * FROM orders").fetchall()
        await world.enqueue()
        with pytest.raises(StoreUnavailable):
            store.enqueue_in_sync(connection, [world.new()])
        connection.execute("ROLLBACK")


async def test_a_lock_that_somebody_holds_is_told_as_trouble_that_passes(
    world: World, store: SqliteStore, path: Path
) -> None:
    with closing(own_begin(path)), closing(sqlite3.connect(path, timeout=0)) as connection:
        with pytest.raises(StoreUnavailable, match="the write lock is held"):
            store.enqueue_in_sync(connection, [world.new()])
        assert not connection.in_transaction


async def test_a_store_that_is_not_open_joins_nothing(world: World, connection: sqlite3.Connection, path: Path) -> None:
    with pytest.raises(StoreClosed):
        SqliteStore(path).enqueue_in_sync(connection, [world.new()])
    assert not connection.in_transaction


def test_code_without_a_loop_can_use_it(world: World, store: SqliteStore, path: Path) -> None:
    new = world.new()

    def blocking() -> None:
        with closing(sqlite3.connect(path)) as connection, connection:
            store.enqueue_in_sync(connection, [new])

    thread = threading.Thread(target=blocking)
    thread.start()
    thread.join()
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT id FROM mainspring_jobs").fetchall() == [(new.id.bytes,)]
