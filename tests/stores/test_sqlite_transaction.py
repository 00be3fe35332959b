"""A handler's own transaction: whole or nothing, and never for long."""

import asyncio
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from mainspring.clock import Clock
from mainspring.core.job import State
from mainspring.core.outcome import Succeeded
from mainspring.core.unique import OnConflict, UniqueKey
from mainspring.errors import Conflict, DeclarationError, StoreError, StoreUnavailable, TransactionTooLong
from mainspring.stores.port import Store
from mainspring.stores.records import Verdict
from mainspring.stores.sqlite import SqliteStore
from mainspring.stores.sqlite.transaction import SqliteTransaction
from mainspring.stores.sqlite.turn import Turn, turn_of
from mainspring.testing import VirtualTime
from mainspring.testing.contract import SettableClock
from mainspring.testing.contract.world import RESIZE, SECOND, SEND, World

LIMIT = 5 * SECOND
INSERT = "INSERT INTO orders (name) VALUES (?)"


class Files:
    """Handles on one file, for a `World`."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self.path = path
        self.clock = clock

    async def open(self) -> SqliteStore:
        store = SqliteStore(self.path, clock=self.clock, durable=False, patience="500ms")
        await store.open()
        return store

    async def crash(self, store: Store) -> None:
        raise NotImplementedError


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "jobs.db"


@pytest.fixture
def clock() -> SettableClock:
    return SettableClock()


@pytest.fixture
def world(path: Path, clock: SettableClock, virtual_time: VirtualTime) -> Iterator[World]:
    world = World(Files(path, clock), clock)
    world.store = virtual_time.run(world.open())
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, name TEXT UNIQUE)")
    yield world
    virtual_time.run(world.close())


@pytest.fixture
def store(world: World) -> SqliteStore:
    assert isinstance(world.store, SqliteStore)
    return world.store


def orders(path: Path) -> list[str]:
    with closing(sqlite3.connect(path)) as connection:
        return [name for (name,) in connection.execute("SELECT name FROM orders ORDER BY id")]


def transactions_at_work() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "mainspring-sqlite-transaction"]


async def test_its_writes_and_the_jobs_end_are_committed_together(world: World, store: SqliteStore, path: Path) -> None:
    claim = await world.running(await world.node())
    child = world.new()
    async with store.transaction(limit=LIMIT) as tx:
        await tx.execute(INSERT, ["first"])
        assert await tx.execute("SELECT id, name FROM orders") == [(1, "first")]
        await tx.enqueue([child])
        settled = await tx.settle(world.settlement(claim, Succeeded(b"1")))
        assert orders(path) == []
        assert (await world.job(claim.job.id)).state is State.RUNNING

    assert settled.verdict is Verdict.ACCEPTED
    assert orders(path) == ["first"]
    assert (await world.job(claim.job.id)).state is State.SUCCEEDED
    assert await world.is_there(child.id)
    assert not transactions_at_work()


async def test_a_block_that_raises_leaves_nothing_and_the_lock_is_free_at_once(
    world: World, store: SqliteStore, path: Path
) -> None:
    lost = world.new()
    with pytest.raises(RuntimeError):
        async with store.transaction(limit=LIMIT) as tx:
            await tx.execute(INSERT, ["lost"])
            await tx.enqueue([lost])
            raise RuntimeError("no")
    with closing(sqlite3.connect(path, timeout=0)) as connection, connection:
        connection.execute(INSERT, ["next"])

    assert orders(path) == ["next"]
    assert not await world.is_there(lost.id)


async def test_one_that_is_cancelled_leaves_nothing(world: World, store: SqliteStore, path: Path) -> None:
    begun = asyncio.Event()

    async def handler() -> None:
        async with store.transaction(limit=LIMIT) as tx:
            await tx.execute(INSERT, ["lost"])
            begun.set()
            await asyncio.Event().wait()

    task = asyncio.ensure_future(handler())
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    await world.enqueue()
    assert orders(path) == []


async def test_one_who_gives_up_waiting_for_the_lock_does_not_get_it_later(
    world: World, store: SqliteStore, path: Path
) -> None:
    async def handler() -> None:
        async with store.transaction(limit=timedelta(hours=1)):
            raise AssertionError("it never began")

    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        task = asyncio.ensure_future(handler())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    await world.enqueue()
    for thread in transactions_at_work():
        await asyncio.to_thread(thread.join, 10)
    assert not transactions_at_work()


async def test_an_error_of_the_handlers_own_statement_is_its_own_business(store: SqliteStore, path: Path) -> None:
    async with store.transaction(limit=LIMIT) as tx:
        await tx.execute(INSERT, ["one"])
        with pytest.raises(sqlite3.IntegrityError):
            await tx.execute(INSERT, ["one"])
        await tx.execute(INSERT, ["two"])

    assert orders(path) == ["one", "two"]


async def test_a_verb_of_ours_that_raises_leaves_none_of_itself(world: World, store: SqliteStore, path: Path) -> None:
    unique = UniqueKey(key="one", on_conflict=OnConflict.RAISE)
    await world.enqueue(unique=unique)
    first, second, third = world.new(queue="new"), world.new(unique=unique), world.new(queue="newer")
    async with store.transaction(limit=LIMIT) as tx:
        await tx.execute(INSERT, ["kept"])
        with pytest.raises(Conflict):
            await tx.enqueue([first, second])
        await tx.enqueue([third])

    assert orders(path) == ["kept"]
    assert [await world.is_there(job.id) for job in (first, second, third)] == [False, False, True]
    assert (await world.job(third.id)).queue == "newer"


@pytest.mark.parametrize("word", ["COMMIT", "ROLLBACK", "END", "BEGIN", "/* now */ commit"])
async def test_it_ends_with_its_block_and_not_before(store: SqliteStore, path: Path, word: str) -> None:
    with pytest.raises(RuntimeError):
        async with store.transaction(limit=LIMIT) as tx:
            await tx.execute(INSERT, ["lost"])
            with pytest.raises(DeclarationError, match="leave out BEGIN, COMMIT and ROLLBACK"):
                await tx.execute(word)
            raise RuntimeError("no")

    assert orders(path) == []


async def test_a_savepoint_of_the_handlers_own_works(store: SqliteStore, path: Path) -> None:
    async with store.transaction(limit=LIMIT) as tx:
        await tx.execute(INSERT, ["kept"])
        await tx.execute("SAVEPOINT mine")
        await tx.execute(INSERT, ["lost"])
        await tx.execute("ROLLBACK TO mine")

    assert orders(path) == ["kept"]


async def test_after_its_block_it_cannot_be_used(store: SqliteStore) -> None:
    async with store.transaction(limit=LIMIT) as tx:
        pass
    with pytest.raises(DeclarationError, match="its block has ended"):
        await tx.execute("SELECT 1")


async def test_one_that_is_used_after_its_limit_is_told(store: SqliteStore, clock: SettableClock, path: Path) -> None:
    with pytest.raises(TransactionTooLong, match="more than 5 s"):
        async with store.transaction(limit=LIMIT) as tx:
            await tx.execute(INSERT, ["lost"])
            clock.advance(LIMIT)
            await tx.execute(INSERT, ["lost too"])
    with pytest.raises(TransactionTooLong):
        await tx.execute("SELECT 1")

    assert orders(path) == []


async def test_one_that_comes_to_its_end_too_late_is_not_committed(
    store: SqliteStore, clock: SettableClock, path: Path
) -> None:
    with pytest.raises(TransactionTooLong):
        async with store.transaction(limit=LIMIT) as tx:
            await tx.execute(INSERT, ["lost"])
            clock.advance(LIMIT)

    assert orders(path) == []


def test_a_handler_that_never_comes_back_loses_the_lock(path: Path, world: World) -> None:
    """Even though it blocks the event loop, on which no timer can fire: here for as long as it takes."""

    async def story() -> float:
        store = SqliteStore(path, durable=False)
        await store.open()
        began = time.monotonic()
        with pytest.raises(TransactionTooLong):
            async with store.transaction(limit=timedelta(milliseconds=200)) as tx:
                await tx.execute(INSERT, ["lost"])
                with closing(sqlite3.connect(path, timeout=30)) as other, other:  # waits, and blocks the loop
                    other.execute(INSERT, ["other"])
        waited = time.monotonic() - began
        await store.close()
        return waited

    assert asyncio.run(story()) >= 0.2
    assert orders(path) == ["other"]
    assert world.store is not None


async def test_a_statement_that_does_not_end_is_interrupted(path: Path, store: SqliteStore) -> None:
    real = SqliteStore(path, durable=False)
    await real.open()
    endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"
    with pytest.raises(TransactionTooLong):
        async with real.transaction(limit=timedelta(milliseconds=100)) as tx:
            await tx.execute(endless)
    await real.close()

    async with store.transaction(limit=LIMIT):
        pass


async def test_a_lock_that_somebody_holds_is_waited_for_and_told(store: SqliteStore, path: Path) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(
            StoreUnavailable, match=r"the write lock is held by a transaction of this program .* or by another process"
        ):
            async with store.transaction(limit=LIMIT):
                raise AssertionError("it never began")
    async with store.transaction(limit=LIMIT) as tx:
        await tx.execute(INSERT, ["now"])

    assert orders(path) == ["now"]


async def test_an_error_that_ends_the_transaction_is_told_to_the_next_use(store: SqliteStore, path: Path) -> None:
    with pytest.raises(StoreError, match="an error has ended the transaction"):
        async with store.transaction(limit=LIMIT) as tx:
            await tx.execute(INSERT, ["one"])
            with pytest.raises(sqlite3.IntegrityError):
                await tx.execute("INSERT OR ROLLBACK INTO orders (name) VALUES ('one')")
            await tx.execute(INSERT, ["two"])

    assert orders(path) == []


async def test_a_commit_rings(store: SqliteStore, world: World) -> None:
    rung = threading.Event()
    end = store.watch(rung.set)
    async with store.transaction(limit=LIMIT) as tx:
        await tx.enqueue([world.new()])
        assert not rung.is_set()
    assert await asyncio.to_thread(rung.wait, 10)
    end()


async def test_it_can_be_given_wherever_a_transaction_of_the_users_can(
    store: SqliteStore, world: World, tmp_path: Path
) -> None:
    claim = await world.running(await world.node())
    child = world.new()
    async with store.transaction(limit=LIMIT) as tx:
        await store.enqueue_in(tx, [child])
        assert (await store.settle_in(tx, world.settlement(claim, Succeeded()))).accepted
        with pytest.raises(DeclarationError, match="SqliteTransaction cannot be joined"):
            store.enqueue_in_sync(tx, [world.new()])
        stranger = SqliteStore(tmp_path / "other.db")
        with pytest.raises(DeclarationError, match="a transaction of another store"):
            await stranger.enqueue_in(tx, [world.new()])
        assert isinstance(tx, SqliteTransaction)

    assert await world.is_there(child.id)
    assert (await world.job(claim.job.id)).state is State.SUCCEEDED


async def test_two_wait_for_each_other_and_time_stands_still(
    store: SqliteStore, path: Path, virtual_time: VirtualTime
) -> None:
    async def write(name: str) -> None:
        async with store.transaction(limit=LIMIT) as tx:
            await tx.execute(INSERT, [name])
            await tx.execute("UPDATE orders SET name = name || '!' WHERE name = ?", [name])

    await asyncio.gather(*(write(str(number)) for number in range(5)))

    assert sorted(orders(path)) == ["0!", "1!", "2!", "3!", "4!"]
    assert virtual_time.elapsed == 0


async def test_a_lane_that_went_with_a_savepoint_is_made_again(world: World, store: SqliteStore) -> None:
    kept = world.new(RESIZE, priority=10)
    async with store.transaction(limit=LIMIT) as tx:
        await tx.execute("SAVEPOINT mine")
        await tx.enqueue([world.new(RESIZE, priority=10)])
        await tx.execute("ROLLBACK TO mine")
        await tx.enqueue([kept])
    await world.enqueue(SEND)  # and does not get the number of the lane that was rolled back

    claimed = await world.claim(await world.node(), room=10)
    assert {(one.claim.job.id == kept.id, one.claim.job.task) for one in claimed} == {(True, RESIZE), (False, SEND)}


async def test_a_job_whose_lane_was_deleted_is_told(world: World, path: Path) -> None:
    job = await world.enqueue()
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("DELETE FROM mainspring_lanes")

    with pytest.raises(StoreError, match="there are jobs in lane 1, and there is no such lane"):
        await (await world.open()).get([job])


async def until(condition: Callable[[], bool]) -> None:
    """Wait for something that a thread is about to do."""
    give_up_at = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < give_up_at
        await asyncio.to_thread(time.sleep, 0.001)


async def test_a_renewal_waits_for_one_of_many_transactions_at_most(world: World, store: SqliteStore) -> None:
    node = await world.node()
    order: list[str] = []

    began = asyncio.Event()

    async def write(name: str) -> None:
        await began.wait()
        async with store.transaction(limit=LIMIT):
            order.append(name)

    async def renew() -> None:
        await began.wait()
        await store.renew(node.id, node.term)
        order.append("renewed")

    waiting = [asyncio.ensure_future(write(f"{number}")) for number in range(5)]
    renewal = asyncio.ensure_future(renew())
    async with store.transaction(limit=LIMIT):
        began.set()
        turn = turn_of(store.path)
        await until(lambda: bool(turn._writers))
    await asyncio.gather(*waiting, renewal)

    assert [name for name in order if name != "renewed"] == ["0", "1", "2", "3", "4"]
    assert order.index("renewed") <= 1


async def test_transactions_of_two_stores_on_one_file_share_the_turn(world: World, store: SqliteStore) -> None:
    other = await world.open()
    assert isinstance(other, SqliteStore)
    may_begin, began = asyncio.Event(), asyncio.Event()

    async def write() -> None:
        await may_begin.wait()
        async with other.transaction(limit=LIMIT):
            began.set()

    waiting = asyncio.ensure_future(write())
    async with store.transaction(limit=LIMIT):
        may_begin.set()
        turn = turn_of(store.path)
        await until(lambda: bool(turn._transactions))
        assert not began.is_set()
    await waiting

    assert began.is_set()


async def test_a_transaction_queued_behind_a_long_one_fails_after_the_stores_patience(
    store: SqliteStore, path: Path
) -> None:
    began = asyncio.Event()

    async def wait_behind() -> None:
        await began.wait()
        async with store.transaction(limit=LIMIT):
            raise AssertionError("it never began")

    waiting = asyncio.ensure_future(wait_behind())
    async with store.transaction(limit=timedelta(hours=1)) as tx:
        await tx.execute(INSERT, ["kept"])
        began.set()
        with pytest.raises(StoreUnavailable, match="the write lock is held"):
            await waiting

    assert orders(path) == ["kept"]


@pytest.mark.parametrize("statement", ["CREATE TEMP TABLE mine (a)", "PRAGMA case_sensitive_like = 1"])
async def test_connection_state_left_by_a_handler_does_not_reach_the_next(store: SqliteStore, statement: str) -> None:
    for _ in range(2):
        async with store.transaction(limit=LIMIT) as tx:
            assert await tx.execute("SELECT name FROM sqlite_temp_schema") == []
            assert await tx.execute("SELECT 'A' LIKE 'a'") == [(1,)]
            await tx.execute(statement)


async def test_the_connection_is_kept_from_one_transaction_to_the_next(store: SqliteStore) -> None:
    idle = store._file.transactions._idle._idle
    kept: list[sqlite3.Connection] = []
    for _ in range(2):
        async with store.transaction(limit=LIMIT) as tx:
            await tx.execute("SELECT 1")
            assert len(idle) == 0
        kept += idle

    first, second = kept
    assert first is second


async def test_a_transaction_on_a_file_that_was_replaced_is_refused(
    store: SqliteStore, path: Path, tmp_path: Path
) -> None:
    async with store.transaction(limit=LIMIT) as tx:
        await tx.execute(INSERT, ["first"])
    aside = tmp_path / "aside"
    aside.mkdir()
    files = [path.with_name(path.name + end) for end in ("", "-wal", "-shm")]
    for file in files:
        file.rename(aside / file.name)
    with pytest.raises(StoreUnavailable, match="the file was replaced or deleted"):
        async with store.transaction(limit=LIMIT):
            raise AssertionError("it never began")
    for file in files:
        (aside / file.name).rename(file)

    async with store.transaction(limit=LIMIT) as tx:
        await tx.execute(INSERT, ["second"])
    assert orders(path) == ["first", "second"]


async def test_a_transaction_whose_thread_cannot_start_fails_and_the_next_one_runs(
    store: SqliteStore, path: Path
) -> None:
    before = threading.stack_size(1 << 46)  # more memory than the system has
    try:
        with pytest.raises(StoreUnavailable, match="no thread can be started"):
            async with store.transaction(limit=LIMIT):
                raise AssertionError("it never began")
    finally:
        threading.stack_size(before)

    async with store.transaction(limit=LIMIT) as tx:
        await tx.execute(INSERT, ["next"])
    assert orders(path) == ["next"]


class FaultyClock(SettableClock):
    """A clock that raises once in a thread of transactions, at the nth call of one of its methods."""

    fault: str = ""
    calls_left: int = 0

    def now(self) -> datetime:
        self._count("now")
        return super().now()

    def monotonic(self) -> float:
        self._count("monotonic")
        return super().monotonic()

    def _count(self, method: str) -> None:
        if self.fault == method and threading.current_thread() in transactions_at_work():
            self.calls_left -= 1
            if self.calls_left == 0:
                raise ZeroDivisionError


@pytest.mark.usefixtures("virtual_time")
@pytest.mark.parametrize("fault", ["now 1", *(f"monotonic {number}" for number in range(1, 8))])
async def test_a_transaction_whose_clock_raises_fails_and_the_next_one_runs(fault: str, path: Path) -> None:
    clock = FaultyClock()
    store = await Files(path, clock).open()
    async with store.transaction(limit=LIMIT) as tx:
        await tx.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, name TEXT UNIQUE)")
    method, calls = fault.split()
    clock.calls_left, clock.fault = int(calls), method
    with pytest.raises(ZeroDivisionError):
        async with store.transaction(limit=LIMIT) as tx:
            while True:
                await tx.execute("SELECT 1")
    assert clock.calls_left == 0

    async with store.transaction(limit=LIMIT) as tx:
        await tx.execute(INSERT, ["next"])
    await store.close()
    assert orders(path) == ["next"]
    assert not path.with_name("jobs.db-wal").exists(), "a connection is still open"


def test_the_turn_alternates_between_writers_and_transactions() -> None:
    turn = Turn()
    order: list[str] = []

    def take(name: str, as_writer: bool) -> None:
        assert turn.take(30, as_writer=as_writer)
        order.append(name)
        turn.give_up()

    assert turn.take(0)
    assert not turn.take(0)
    assert not turn.take(0, as_writer=True)
    threads = []
    for count, name in enumerate(["t1", "t2", "t3", "w1", "w2"], start=1):
        threads.append(threading.Thread(target=take, args=(name, name.startswith("w"))))
        threads[-1].start()
        give_up_at = time.monotonic() + 30
        while len(turn._transactions) + len(turn._writers) < count:
            assert time.monotonic() < give_up_at
            time.sleep(0.001)
    turn.give_up()
    for thread in threads:
        thread.join(30)

    assert order == ["w1", "t1", "w2", "t2", "t3"]
    assert turn.take(0)
