"""A handler that ends its own job in a transaction: its effects are there once, and what is told of it is true."""

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing, suppress
from datetime import timedelta
from pathlib import Path

import pytest

from mainspring import Context, Mainspring, Retry
from mainspring.core.job import NodeId
from mainspring.core.machine import decide
from mainspring.core.outcome import Lost
from mainspring.errors import StoreUnavailable
from mainspring.runtime.events import StateChange
from mainspring.stores.records import NodeRecord, Process, Settlement, Verdict
from mainspring.stores.sqlite import SqliteStore
from mainspring.stores.sqlite.transaction import SqliteTransaction
from mainspring.testing import VirtualTime

INSERT = "INSERT INTO effects VALUES (?)"


class LosesCommits(SqliteStore):
    """A store that commits, and whose answer to that is lost, once."""

    lost = False

    @asynccontextmanager
    async def transaction(self, *, limit: timedelta | None = None) -> AsyncIterator[SqliteTransaction]:
        async with super().transaction(limit=limit) as tx:
            yield tx
        if not self.lost:
            self.lost = True
            raise StoreUnavailable("sqlite", "the answer to COMMIT was lost")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "jobs.db"
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("CREATE TABLE effects (attempt INTEGER)")
    return file


@pytest.fixture
def app(file: Path, virtual_time: VirtualTime) -> Mainspring:
    return Mainspring(SqliteStore(file, clock=virtual_time.clock, durable=False), clock=virtual_time.clock)


def effects(file: Path) -> list[int]:
    """Name the attempts whose writes are there."""
    with closing(sqlite3.connect(file)) as connection:
        return [attempt for (attempt,) in connection.execute("SELECT attempt FROM effects")]


def heard(app: Mainspring) -> list[tuple[str, int]]:
    """Keep what the nodes of an app tell of from now on: the events and their leases."""
    told: list[tuple[str, int]] = []

    @app.listener
    def listen(change: StateChange) -> None:
        told.append((str(change.event), change.job.claims))

    return told


async def lose(app: Mainspring, node: NodeId) -> None:
    """Declare a node dead, and write off its jobs, as another node does."""
    reaper = NodeId("reaper")
    elsewhere = Process(host="another machine", pid=1, started="then")
    await app.store.join(NodeRecord(id=reaper, process=elsewhere, tasks=frozenset()))
    assert await app.store.declare_dead(node, 1)
    for orphan in await app.store.orphans(10):
        change = decide(orphan, Lost(), app.store.now(), 0.5)
        (settled,) = await app.store.settle([Settlement(change=change, by=reaper)])
        assert settled.verdict is Verdict.ACCEPTED


async def test_an_abandoned_body_cannot_commit(app: Mainspring, file: Path, virtual_time: VirtualTime) -> None:
    @app.task(name="work", timeout="1s", retry=Retry.fixed("20s", max_attempts=2))
    async def work(ctx: Context) -> None:
        while ctx.attempt == 1 and virtual_time.elapsed < 10:  # it does not listen, and is abandoned after 3 s
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(10 - virtual_time.elapsed)
        async with ctx.transaction() as tx:
            await tx.execute(INSERT, (ctx.attempt,))

    async with app.node(stop_grace="2s") as node:
        job = await work.enqueue()
        await job.result("2m")

    assert node.events.counts["abandoned"] == 1
    assert effects(file) == [2]


async def test_a_handler_that_tries_again_after_a_lost_commit_has_its_effects_once(
    file: Path, virtual_time: VirtualTime
) -> None:
    store = LosesCommits(file, clock=virtual_time.clock, durable=False)
    app = Mainspring(store, clock=virtual_time.clock)
    told = heard(app)

    @app.task(name="work")
    async def work(ctx: Context) -> None:
        for _ in range(3):
            with suppress(StoreUnavailable):
                async with ctx.transaction() as tx:
                    await tx.execute(INSERT, (ctx.attempt,))
                return

    async with app.node():
        job = await work.enqueue()
        await job.result("2m")

    assert store.lost
    assert effects(file) == [1]
    assert told == [("claimed", 1), ("succeeded", 1)]


async def test_what_comes_after_a_committed_end_is_left_alone(app: Mainspring, file: Path) -> None:
    told = heard(app)
    after: list[str] = []

    @app.task(name="work")
    async def work(ctx: Context) -> None:
        with closing(sqlite3.connect(file)) as connection, connection:
            connection.execute(INSERT, (ctx.attempt,))
            await ctx.settle_in(connection)
        await asyncio.sleep(10)  # for longer than it takes the node to learn that the store has it ended
        after.append("finished")

    async with app.node():
        job = await work.enqueue()
        await job.result("2m")
        await asyncio.sleep(30)

    assert after == ["finished"]
    assert effects(file) == [1]
    assert told == [("claimed", 1), ("succeeded", 1)]


async def test_after_a_transaction_with_a_result_the_returned_value_does_not_count(
    app: Mainspring, caplog: pytest.LogCaptureFixture
) -> None:
    @app.task(name="work")
    async def work(ctx: Context) -> list[int]:  # type: ignore[return]  # it returns None, which is no list
        async with ctx.transaction() as tx:
            tx.finish([1, 2])

    async with app.node() as node:
        job = await work.enqueue()
        assert await job.result("2m") == [1, 2]
        await asyncio.sleep(5)

    assert node.events.counts["errors_after_the_end"] == 0
    assert str(job.id) not in caplog.text


async def test_an_error_after_a_committed_end_is_seen_and_changes_nothing(
    app: Mainspring, file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    told = heard(app)

    @app.task(name="work")
    async def work(ctx: Context) -> None:
        with closing(sqlite3.connect(file)) as connection, connection:
            await ctx.settle_in(connection)
        raise ValueError("too late to matter")

    async with app.node() as node:
        job = await work.enqueue()
        await job.result("2m")
        await asyncio.sleep(5)

    assert told == [("claimed", 1), ("succeeded", 1)]
    assert node.events.counts["errors_after_the_end"] == 1
    assert (
        f"job {job.id} (work) had succeeded with its transaction; ignored: ValueError: too late to matter"
        in caplog.text
    )


async def test_an_end_that_was_rolled_back_is_an_error_of_the_attempt(app: Mainspring, file: Path) -> None:
    told = heard(app)

    @app.task(name="work", retry=Retry.fixed("1s", max_attempts=2))
    async def work(ctx: Context) -> str | None:
        if ctx.previous_error:
            return ctx.previous_error.message
        with closing(sqlite3.connect(file)) as connection:
            connection.execute(INSERT, (ctx.attempt,))
            await ctx.settle_in(connection)
            connection.rollback()
        return None

    async with app.node():
        job = await work.enqueue()
        assert await job.result("2m") == "the transaction that was to end the job was not committed"

    assert effects(file) == []
    assert told == [("claimed", 1), ("will_retry", 1), ("claimed", 2), ("succeeded", 2)]


async def test_an_end_that_was_rolled_back_is_no_success_though_the_job_is_no_longer_running(
    app: Mainspring, file: Path
) -> None:
    told = heard(app)

    @app.task(name="work", max_attempts=5)
    async def work(ctx: Context) -> None:
        if ctx.attempt > 1:
            await asyncio.sleep(10)
            return
        with closing(sqlite3.connect(file)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            await ctx.settle_in(connection)
            connection.rollback()
        await lose(app, node.id)

    async with app.node() as node:
        job = await work.enqueue()
        await job.result("2m")

    assert ("succeeded", 1) not in told
    assert told[-1] == ("succeeded", 2)


async def test_listeners_are_called_on_the_nodes_own_thread(app: Mainspring) -> None:
    threads: list[tuple[str, threading.Thread]] = []

    @app.listener
    def listen(change: StateChange) -> None:
        threads.append((str(change.event), threading.current_thread()))

    @app.task(name="work", executor="thread")
    async def work(ctx: Context) -> None:
        async with ctx.transaction() as tx:
            await tx.execute("SELECT 1")

    async with app.node():
        job = await work.enqueue()
        await job.result("2m")
        await asyncio.sleep(5)

    here = threading.current_thread()
    assert threads == [("claimed", here), ("succeeded", here)]
