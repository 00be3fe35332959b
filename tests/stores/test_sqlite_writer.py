"""The writer: groups in which nobody is hurt by another, locks that others hold, callers who leave or come from anywhere."""

import asyncio
import gc
import sqlite3
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from mainspring.core.unique import OnConflict, UniqueKey
from mainspring.errors import Conflict, NodeGone, StoreClosed, StoreError, StoreUnavailable
from mainspring.stores.port import Store
from mainspring.stores.records import NewJob
from mainspring.stores.sqlite import SqliteStore, retry
from mainspring.stores.sqlite.answers import Answer
from mainspring.stores.sqlite.connect import connect
from mainspring.stores.sqlite.enqueue import enqueue
from mainspring.stores.sqlite.fork import IdleConnections
from mainspring.stores.sqlite.reader import Reader
from mainspring.stores.sqlite.session import Session
from mainspring.testing import VirtualTime
from mainspring.testing.contract import SettableClock
from mainspring.testing.contract.world import World

PATIENCE = 1.0

Call: TypeAlias = Callable[[], Coroutine[Any, Any, Any]]


class Files:
    """Handles on one file, for a `World`; they do not wait for long."""

    def __init__(self, path: Path, clock: SettableClock) -> None:
        self.path = path
        self.clock = clock

    async def open(self) -> SqliteStore:
        store = SqliteStore(self.path, clock=self.clock, durable=False, patience=PATIENCE)
        await store.open()
        return store

    async def crash(self, store: Store) -> None:
        raise NotImplementedError


async def until(condition: Callable[[], bool]) -> None:
    """Wait for something that a thread is about to do."""
    give_up_at = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < give_up_at
        await asyncio.to_thread(time.sleep, 0.001)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "jobs.db"


@pytest.fixture
def world(path: Path, virtual_time: VirtualTime) -> Iterator[World]:
    clock = SettableClock()
    world = World(Files(path, clock), clock)
    world.store = virtual_time.run(world.open())
    yield world
    virtual_time.run(world.close())


@pytest.fixture
def store(world: World) -> SqliteStore:
    assert isinstance(world.store, SqliteStore)
    return world.store


@contextmanager
def locked(path: Path) -> Iterator[Callable[[], object]]:
    """Hold the write lock, until what is yielded is called."""
    with closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        yield lambda: connection.execute("ROLLBACK")


async def together(store: SqliteStore, calls: Sequence[Call]) -> list[Any]:
    """Have calls wait for the writer at the same time, so that it takes them as one group."""
    at_work, gate = threading.Event(), threading.Event()

    def hold(_session: Session) -> None:
        at_work.set()
        gate.wait(10)

    holding = asyncio.ensure_future(store._write(hold))
    assert await asyncio.to_thread(at_work.wait, 10)
    tasks = [asyncio.ensure_future(call()) for call in calls]
    await asyncio.sleep(0)
    gate.set()
    await holding
    return await asyncio.gather(*tasks, return_exceptions=True)


def enqueuing(store: SqliteStore, *jobs: NewJob) -> Call:
    return lambda: store.enqueue(jobs)


def commits(path: Path) -> int:
    """How often the file was committed to, as far as rings were counted."""
    with closing(sqlite3.connect(path)) as connection:
        (count,) = connection.execute("SELECT value FROM mainspring_counters WHERE name = 'rings'").fetchone()
    return int(count)


async def test_what_waits_is_committed_together(world: World, store: SqliteStore, path: Path) -> None:
    before = commits(path)
    jobs = [world.new() for _ in range(50)]
    answers = await together(store, [enqueuing(store, job) for job in jobs])

    assert [answer[0].id for answer in answers] == [job.id for job in jobs]
    assert commits(path) == before + 1


async def test_each_gets_its_own_answers_of_a_merged_call(world: World, store: SqliteStore) -> None:
    there = await world.enqueue()
    batches = [[world.new()], [world.new(id=there), world.new()], [], [world.new(), world.new()]]
    answers = await together(store, [enqueuing(store, *batch) for batch in batches])

    assert [[one.fresh for one in answer] for answer in answers] == [[True], [False, True], [], [True, True]]


def poisoned(session: Session, _items: Sequence[object]) -> Sequence[object]:
    """Write something, then fail."""
    session.run("DELETE FROM mainspring_payloads")
    raise RuntimeError("poison")


async def test_one_that_raises_hurts_nobody_of_its_group(world: World, store: SqliteStore) -> None:
    kept = await world.enqueue()
    jobs = [world.new() for _ in range(4)]
    calls = [enqueuing(store, job) for job in jobs]
    calls.insert(2, lambda: store._file.writer.do(poisoned, (None,)))
    answers = await together(store, calls)

    assert isinstance(answers.pop(2), RuntimeError)
    assert [answer[0].fresh for answer in answers] == [True] * 4
    assert await world.is_there(kept)
    assert None not in await store.get([job.id for job in jobs])


async def test_a_conflict_is_told_to_the_one_who_caused_it(world: World, store: SqliteStore) -> None:
    unique = UniqueKey(key="one", on_conflict=OnConflict.RAISE)
    await world.enqueue(unique=unique)
    new = [world.new(), world.new(unique=unique), world.new()]
    answers = await together(store, [enqueuing(store, job) for job in new])

    assert [type(answer) for answer in answers] == [tuple, Conflict, tuple]
    assert [await world.is_there(job.id) for job in new] == [True, False, True]


async def test_a_refusal_before_anything_was_written_spoils_no_group(
    world: World, store: SqliteStore, path: Path
) -> None:
    node = await world.node()
    await world.kill(node)
    before = commits(path)
    answers = await together(
        store,
        [
            lambda: store.enqueue([world.new()]),
            lambda: store.renew(node.id, node.term),
            lambda: world.ask(node),
            lambda: store.enqueue([world.new()]),
        ],
    )

    assert [type(answer) for answer in answers] == [tuple, NodeGone, NodeGone, tuple]
    assert commits(path) == before + 1, "the group was not done again one by one"


async def test_a_renewal_goes_in_front(world: World, store: SqliteStore) -> None:
    node = await world.node()
    order: list[str] = []

    def slow(_session: Session) -> None:
        order.append("other")

    async def renew() -> None:
        await store._file.writer.do_one(lambda _: order.append("renewal"), urgent=True)

    await together(store, [*[lambda: store._write(slow)] * 3, renew, lambda: store.renew(node.id, node.term)])

    assert order == ["renewal", "other", "other", "other"]


async def test_a_caller_who_leaves_takes_nothing_along(world: World, store: SqliteStore) -> None:
    leaver = world.new()

    async def leave() -> None:
        task = asyncio.ensure_future(store.enqueue([leaver]))
        await asyncio.sleep(0)
        task.cancel()

    stayer = world.new()
    answers = await together(store, [leave, lambda: store.enqueue([stayer])])

    assert answers[1][0].fresh
    assert not await world.is_there(leaver.id)
    assert await world.is_there(stayer.id)


async def test_a_lock_that_is_freed_is_waited_for(world: World, path: Path) -> None:
    with locked(path) as free:
        threading.Timer(PATIENCE / 4, free).start()
        await world.enqueue()


async def test_a_lock_that_stays_is_told_and_nothing_is_done_later(
    world: World, store: SqliteStore, path: Path
) -> None:
    new = world.new()
    with locked(path) as free:
        began = time.monotonic()
        with pytest.raises(StoreUnavailable, match="look for a transaction that was left open"):
            await store.enqueue([new])
        assert PATIENCE <= time.monotonic() - began < 60 * PATIENCE
        free()
    await store.enqueue([world.new()])

    assert not await world.is_there(new.id)


async def test_a_long_wait_for_a_lock_of_this_program_is_reported_once_and_names_tx(
    world: World, store: SqliteStore, path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(retry, "REPORTED_AFTER_S", 0.1)
    with (
        caplog.at_level("WARNING", "mainspring.stores.sqlite"),
        locked(path),
        pytest.raises(StoreUnavailable, match=r"held by a transaction of this program .*; pass it as tx="),
    ):
        await store.enqueue([world.new()])

    (line,) = caplog.messages
    assert "still waiting for the write lock" in line
    assert "for up to 1 s in all" in line
    assert "not passed as tx=" in line


@pytest.mark.parametrize("gives_up", [True, False])
async def test_a_wait_for_a_handlers_long_transaction_is_reported(
    world: World,
    store: SqliteStore,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    gives_up: bool,
) -> None:
    monkeypatch.setattr(retry, "REPORTED_AFTER_S", 0.1)
    began = asyncio.Event()

    async def write() -> None:
        await began.wait()
        await world.enqueue()

    writing = asyncio.ensure_future(write())
    async with store.transaction(limit=timedelta(hours=1)):
        began.set()
        if gives_up:
            with pytest.raises(StoreUnavailable, match="the write lock is held"):
                await writing
        else:
            await until(lambda: bool(caplog.messages))
    if not gives_up:
        await writing

    assert ["still waiting for the write lock" in line for line in caplog.messages] == [True]


async def test_a_reader_does_not_wait_for_a_lock(world: World, path: Path) -> None:
    node = await world.node()
    claim = await world.running(node)
    with locked(path):
        assert await world.job(claim.job.id) == claim.job
        assert (await world.store.queues())[0].running == 1
        assert [view.node.id for view in await world.store.nodes()] == [node.id]


@pytest.mark.slow
async def test_a_lock_of_five_seconds_is_survived(path: Path, virtual_time: VirtualTime) -> None:
    clock = SettableClock()
    store = SqliteStore(path, clock=clock)
    await store.open()
    world = World(Files(path, clock), clock)
    world.store = store
    node = await world.node()
    with locked(path) as free:
        release = threading.Timer(5, free)
        release.start()
        renewal = asyncio.ensure_future(store.renew(node.id, node.term))
        await asyncio.gather(*(world.enqueue() for _ in range(20)))
        release.join()

    assert (await renewal).nodes[0].counter == 1
    assert (await store.queues())[0].waiting == 20
    assert virtual_time.elapsed == 0
    await store.close()


async def test_what_waits_when_the_store_is_closed_is_done(world: World) -> None:
    store = await world.open()
    world.forget(store)
    new = [world.new() for _ in range(20)]
    calls = [asyncio.ensure_future(store.enqueue([job])) for job in new]
    await asyncio.sleep(0)
    await store.close()

    assert all([(await call)[0].fresh for call in calls])
    assert None not in await world.store.get([job.id for job in new])
    with pytest.raises(StoreClosed):
        await store.enqueue([world.new()])


async def test_a_close_does_not_wait_for_a_lock_for_ever(
    world: World, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mainspring.stores.sqlite.writer.CLOSING_TIME", 0.1)
    store = SqliteStore(path, clock=world.clock)
    await store.open()
    with locked(path):
        call = asyncio.ensure_future(store.enqueue([world.new()]))
        await asyncio.sleep(0)
        await store.close()
        with pytest.raises(StoreUnavailable):
            await call


def test_several_loops_in_several_threads_use_one_store(world: World) -> None:
    batches = [[world.new() for _ in range(20)] for _ in range(6)]

    async def write(batch: Sequence[NewJob]) -> int:
        answers = await asyncio.gather(*(world.store.enqueue([job]) for job in batch))
        return sum(one.fresh for (one,) in answers)

    def run(batch: Sequence[NewJob]) -> None:
        found.append(asyncio.run(write(batch)))

    found: list[int] = []
    threads = [
        threading.Thread(target=lambda batch=batch: found.append(asyncio.run(write(batch)))) for batch in batches
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert found == [20] * 6


async def test_a_loop_that_was_closed_while_it_waited_hurts_nobody(world: World, store: SqliteStore) -> None:
    gate = threading.Event()

    async def walk_off() -> None:
        task = asyncio.ensure_future(store._write(lambda _: gate.wait(10)))
        await asyncio.sleep(0.05)
        task.cancel()

    await asyncio.to_thread(asyncio.run, walk_off())
    gate.set()

    await world.enqueue()


async def test_time_stands_still_while_the_writer_is_at_work(store: SqliteStore, virtual_time: VirtualTime) -> None:
    def slow(_session: Session) -> None:
        time.sleep(0.05)  # in a thread, for real

    alarm = asyncio.ensure_future(asyncio.sleep(3600))
    await store._write(slow)

    assert virtual_time.elapsed == 0
    alarm.cancel()


async def test_a_group_is_not_larger_than_others_can_wait_for(
    world: World, store: SqliteStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mainspring.stores.sqlite.writer.LARGEST_GROUP", 10)
    before = commits(path)
    await together(store, [lambda: store.enqueue([world.new() for _ in range(4)]) for _ in range(5)])
    await together(store, [lambda: store.enqueue([world.new() for _ in range(25)])])

    assert commits(path) == before + 3 + 1


def test_the_same_work_is_done_as_one(world: World, store: SqliteStore, virtual_time: VirtualTime) -> None:
    calls: list[int] = []

    def counted(session: Session, items: Sequence[NewJob]) -> Sequence[object]:
        calls.append(len(items))
        return enqueue(session, items)

    async def story() -> None:
        await together(store, [lambda: store._file.writer.do(counted, [world.new()]) for _ in range(7)])

    virtual_time.run(story())
    assert calls == [7]


async def test_a_job_that_would_expire_after_the_calendars_end_is_refused(world: World) -> None:
    with pytest.raises(StoreError, match="beyond the calendar's end"):
        await world.enqueue(expires=timedelta(days=3_000_000))
    with pytest.raises(StoreError, match="beyond the calendar's end"):
        await world.store.acquire("lock", "me", timedelta(days=3_000_000))
    job = await world.enqueue()

    assert [one.claim.job.id for one in await world.claim(await world.node())] == [job]


async def test_an_error_that_was_told_too_early_is_taken_back(virtual_time: VirtualTime) -> None:
    """One of a group is refused before anything was written; the group is done again, and this time it is not."""
    answer: Answer[int] = Answer()
    answer.fail(RuntimeError("at first"))
    answer.set(1)
    Answer.bring([answer])

    assert await answer.wait("an answer") == 1
    assert virtual_time.elapsed == 0


async def test_an_error_of_the_disk_does_not_close_the_connection(world: World, store: SqliteStore) -> None:
    """The last one to close would recover the log, and commit what was written but could not be synced."""
    await world.enqueue()
    connection = await store._write(lambda session: session.connection)

    def fail(_session: Session) -> None:
        error = sqlite3.OperationalError("disk I/O error")
        error.sqlite_errorcode = sqlite3.SQLITE_IOERR_FSYNC
        raise error

    with pytest.raises(StoreUnavailable, match="the disk does not answer"):
        await store._write(fail)

    assert await store._write(lambda session: session.connection) is connection
    await world.enqueue()


async def test_a_reader_whose_rollback_fails_closes_its_connection(store: SqliteStore) -> None:
    """Every later fork of the process would wait for it, and the child could not use the file."""

    def fail(session: Session) -> None:
        session.connection.set_authorizer(
            lambda action, *_: sqlite3.SQLITE_DENY if action == sqlite3.SQLITE_TRANSACTION else sqlite3.SQLITE_OK
        )
        raise ValueError("in the read")

    with pytest.raises(ValueError, match="in the read"):
        await store._read(fail)

    assert not store._file.reader._in_use


def move(file: Path, there: Path) -> None:
    file.replace(there)


def exists(file: Path) -> bool:
    return file.exists()


async def test_a_file_that_was_deleted_is_told(world: World, store: SqliteStore, path: Path, tmp_path: Path) -> None:
    node = await world.node()
    await world.enqueue()
    aside = tmp_path / "aside.db"
    move(path, aside)

    with pytest.raises(StoreUnavailable, match="the file was replaced or deleted"):
        await world.enqueue()
    with pytest.raises(StoreUnavailable, match="the file was replaced or deleted"):
        await store.renew(node.id, node.term)

    move(aside, path)
    assert len(await world.claim(node)) == 1


async def test_a_renewal_does_not_read_the_records_of_nodes_again(world: World, path: Path) -> None:
    node, other = await world.node(), await world.node()
    before = await world.store.renew(node.id, node.term)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE mainspring_nodes SET record = 'unreadable' WHERE id = ?", [other.id])

    after = await world.store.renew(node.id, node.term)

    assert [view.node for view in after.nodes] == [view.node for view in before.nodes]


async def test_a_file_that_was_replaced_is_told(world: World, path: Path, tmp_path: Path) -> None:
    await world.enqueue()
    backup = tmp_path / "backup.db"
    with closing(sqlite3.connect(path)) as now, closing(sqlite3.connect(backup)) as then:
        now.backup(then)
    move(path, tmp_path / "aside.db")
    move(backup, path)

    with pytest.raises(StoreUnavailable, match="the file was replaced or deleted"):
        await world.enqueue()
    move(tmp_path / "aside.db", path)


async def test_a_deleted_file_is_neither_read_nor_recreated_empty(
    world: World, store: SqliteStore, path: Path, tmp_path: Path
) -> None:
    await world.enqueue()
    assert await store.get([]) == ()
    unwatch = store.watch(lambda: None)
    aside = tmp_path / "aside.db"
    move(path, aside)

    for _ in range(8):  # more than there are readers
        with pytest.raises(StoreUnavailable, match="the file was replaced or deleted"):
            await store.queues()
    unwatch()
    store.watch(lambda: None)()  # it looks at the file when it begins
    with pytest.raises(StoreError):
        await store.flush()
    assert not exists(path)

    move(aside, path)
    assert len(await store.queues()) == 1


async def test_a_renewal_does_not_wait_for_a_group_that_is_done_one_by_one(store: SqliteStore) -> None:
    order: list[str] = []
    renewals: list[asyncio.Future[object]] = []
    loop = asyncio.get_running_loop()

    async def renew() -> None:  # in the writer's thread, as the others: what the loop hears of it comes later
        await store._file.writer.do_one(lambda _: order.append("renewal"), urgent=True)

    def spoil(session: Session) -> None:
        """Come last of the group; when the others are done again, a renewal waits."""
        session.run("UPDATE mainspring_counters SET value = value")
        if not renewals:
            come = threading.Event()

            def start() -> None:
                renewals.append(asyncio.ensure_future(renew()))
                loop.call_soon(come.set)

            loop.call_soon_threadsafe(start)
            come.wait(10)
            raise RuntimeError("poison")

    def step(_session: Session) -> None:
        order.append("single" if renewals else "group")

    await together(store, [*[lambda: store._write(step)] * 3, lambda: store._write(spoil)])
    await asyncio.gather(*renewals)

    assert order == ["group"] * 3 + ["renewal"] + ["single"] * 3


class FaultyClock(SettableClock):
    """A clock that raises while `is_faulty`."""

    is_faulty = False

    def now(self) -> datetime:
        if self.is_faulty:
            raise ZeroDivisionError
        return super().now()


@pytest.mark.usefixtures("virtual_time")
async def test_a_write_whose_clock_raises_fails_and_the_next_one_is_done(path: Path) -> None:
    clock = FaultyClock()
    store = SqliteStore(path, clock=clock, durable=False, patience="1s")
    await store.open()
    clock.is_faulty = True
    with pytest.raises(ZeroDivisionError):
        await store.acquire("first", "one", timedelta(seconds=1))
    clock.is_faulty = False

    assert await store.acquire("first", "two", timedelta(seconds=1))
    await store.close()


@pytest.mark.usefixtures("virtual_time")
async def test_a_read_whose_thread_cannot_start_fails_and_the_next_one_is_done(path: Path) -> None:
    store = SqliteStore(path, durable=False)
    await store.open()
    reader = Reader(store._settings, store._file.reader._file, store._file.lanes)
    before = threading.stack_size(1 << 46)  # more memory than the system has
    try:
        with pytest.raises(StoreUnavailable, match="no thread can be started"):
            await reader.read(lambda _: 1)
    finally:
        threading.stack_size(before)

    assert await reader.read(lambda _: 1) == 1
    reader.close(interrupt=True)
    with pytest.raises(StoreClosed):
        await reader.read(lambda _: 1)
    await store.close()


def test_idle_connections_of_a_store_that_is_no_longer_used_are_closed(path: Path) -> None:
    """Python 3.13 warns of every connection that is left to the garbage collector."""
    idle = IdleConnections()
    connection = connect(path, durable=False, create=True)
    idle.put(connection)

    del idle
    gc.collect()

    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        connection.execute("SELECT 1")
