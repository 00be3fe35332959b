"""A node on PostgreSQL outlives what befalls its server and the network: it goes on soon, under the same id, having lost
nothing and done nothing twice, and says once that the database was out of reach and once that it is back.
"""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from uuid import UUID

import psycopg
import pytest

from mainspring import Context, Mainspring
from mainspring.core.job import NodeId, State
from mainspring.errors import StoreUnavailable
from mainspring.runtime.node import Node
from mainspring.stores.records import JobView
from tests.servers.postgres import Server, new_server
from tests.servers.system import wait_until
from tests.servers.wire import Wire
from tests.stores.postgres_wires import on_real_time

pytestmark = pytest.mark.slow

OPTIONS = "timeout=1s"  # for a statement
LONG = 6.0
"""Seconds that some jobs take: they begin before the fault and end after it."""
SOON = 3.0
"""Seconds after the end of a fault within which a node goes on; most of it is for a machine that is busy."""
LOST_CLAIM = 6.0
"""Seconds until a node has seen twice, a beat apart, that it holds a job of which it never heard, and gave it back."""
STUCK = "SELECT 1 FROM pg_stat_activity WHERE application_name = 'mainspring' AND wait_event_type = 'Lock'"
TERMINATE = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'mainspring'"


class Work:
    """An app whose node is at work, and for which somebody enqueues all the time, whatever happens."""

    def __init__(self, url: str) -> None:
        self.app = Mainspring(url)
        self.enqueued: dict[UUID, float] = {}
        """When each enqueue was acknowledged."""
        self.runs: Counter[UUID] = Counter()
        self.ran_at: dict[UUID, float] = {}
        self._node: Node | None = None

        @self.app.task(name="quick")
        async def quick(ctx: Context) -> None:
            self._begin(ctx)

        @self.app.task(name="long")
        async def long(ctx: Context) -> None:
            self._begin(ctx)
            await asyncio.sleep(LONG)

        self.quick, self.long = quick, long

    def _begin(self, ctx: Context) -> None:
        self.runs[ctx.job] += 1
        self.ran_at[ctx.job] = time.monotonic()

    @property
    def node(self) -> NodeId:
        assert self._node is not None
        return self._node.id

    @asynccontextmanager
    async def going_on(self) -> AsyncIterator[None]:
        """Be a node, and enqueue; at the end, only wait until all is done."""
        async with self.app.node() as self._node:
            async with asyncio.TaskGroup() as group:
                feeding = group.create_task(self._feed())
                try:
                    yield
                finally:
                    feeding.cancel()
            await until(lambda: set(self.enqueued) <= set(self.runs), "all jobs to be run", within=LOST_CLAIM)

    async def _feed(self) -> None:
        while True:
            call = self.quick.call()
            acknowledged = False
            while not acknowledged:
                with suppress(StoreUnavailable):
                    await self.app.enqueue_many([call])
                    acknowledged = True
            self.enqueued[call.new.id] = time.monotonic()
            await asyncio.sleep(0.02)

    async def begin_long_jobs(self) -> None:
        jobs = await self.long.enqueue_many([self.long.call() for _ in range(5)])
        self.enqueued |= {job.id: time.monotonic() for job in jobs}
        await until(lambda: all(self.runs[job.id] for job in jobs), "the long jobs to begin")
        await until(lambda: len(self.runs) > 30, "the others to come along")

    def runs_what_came_after(self, instant: float) -> bool:
        """Whether a job was run that was enqueued after that."""
        return any(at > instant for job, at in self.enqueued.items() if job in self.runs)

    async def views(self) -> list[JobView]:
        views = await self.app.store.get([self.app.job(job).id for job in self.enqueued])
        return [view for view in views if view]


async def until(true: Callable[[], object], what: str, *, within: float = 30.0) -> float:
    """Wait for something; returns how long that took."""
    began = time.monotonic()
    try:
        async with asyncio.timeout(within):
            while not true():
                await asyncio.sleep(0.01)
    except TimeoutError:
        pytest.fail(f"waited {within:g} s for {what}")
    return time.monotonic() - began


@dataclass
class Told:
    """What is said about it all: to those who watch the log, and to those who watch the tests."""

    caplog: pytest.LogCaptureFixture
    capsys: pytest.CaptureFixture[str]

    @property
    def lines(self) -> list[str]:
        return [record.getMessage() for record in self.caplog.records if record.name.startswith("mainspring")]

    @property
    def of_notifications(self) -> list[str]:
        return [line for line in self.lines if "notifications" in line]

    def check(self) -> None:
        """Look whether people are told what they need to know, and no more."""
        jobs = [line for line in self.lines if "was claimed, but the answer never came; given back" in line]
        about = [line for line in self.lines if line not in jobs and line not in self.of_notifications]
        assert len(about) == 2, self.lines
        assert "the database is out of reach" in about[0]
        assert "the database is back after" in about[1]

    def figure(self, text: str) -> None:
        with self.capsys.disabled():
            print(f"\n{text}")  # noqa: T201 - what somebody wants to know who runs the slow tests


@pytest.fixture
def told(caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]) -> Told:
    return Told(caplog, told)


async def survive(url: str, fault: Callable[[], object], told: Told) -> None:
    """Have a node at work while something befalls it, and see what became of its jobs."""
    work = Work(url)
    async with work.app:
        async with work.going_on():
            await work.begin_long_jobs()
            before = work.node
            await asyncio.to_thread(fault)
            over = time.monotonic()
            took = await until(lambda: work.runs_what_came_after(over), "the node to go on", within=SOON)
            # Said of notifications only if they stay away for longer; then they come back later, too.
            await until(lambda: len(told.of_notifications) in {0, 2}, "notifications to be heard again", within=10)
        # The node has ended, and what ran with it.
        assert work.node == before, "it was declared dead"
        views = await work.views()
    assert len(views) == len(work.enqueued)
    assert Counter(view.job.state for view in views) == {State.SUCCEEDED: len(views)}
    assert work.runs == dict.fromkeys(work.enqueued, 1)
    assert {view.job.attempt for view in views} == {1}
    told.figure(f"{len(views)} jobs; it went on {took:.2f} s after the fault was over")
    told.check()


@pytest.fixture
def server() -> Iterator[Server]:
    """One of the test's own, to be stopped and frozen."""
    with new_server() as server:
        yield server


@pytest.fixture
def wire(own_postgres: Server) -> Iterator[Wire]:
    with Wire(own_postgres.host, own_postgres.port) as wire:
        yield wire


@on_real_time
async def test_a_restart_of_the_server(server: Server, told: Told) -> None:
    await survive(f"{server.dsn()}?{OPTIONS}", server.restart, told)


@on_real_time
async def test_a_crash_of_the_server(told: Told) -> None:
    def crash() -> None:
        server.kill()
        time.sleep(1.0)
        server.start()

    with new_server(durable=True) as server:
        await survive(f"{server.dsn()}?{OPTIONS}", crash, told)


@on_real_time
async def test_the_end_of_all_its_connections(server: Server, told: Told) -> None:
    def terminate() -> None:
        with psycopg.connect(server.dsn()) as connection:
            connection.execute("LOCK TABLE mainspring.jobs")
            wait_until(lambda: server.sql(STUCK), "somebody is amid a statement")
            server.sql(TERMINATE)

    await survive(f"{server.dsn()}?{OPTIONS}", terminate, told)


@on_real_time
async def test_a_network_that_hangs_for_longer_than_a_statement_may_take(
    wire: Wire, postgres_schema: str, told: Told
) -> None:
    def hang() -> None:
        wire.hang()
        time.sleep(3.0)
        wire.heal()

    await survive(f"{wire.dsn()}?{OPTIONS}&schema={postgres_schema}", hang, told)


@on_real_time
async def test_a_server_that_stands_still_for_a_while(server: Server, told: Told) -> None:
    def stand_still() -> None:
        server.freeze()
        time.sleep(3.0)
        server.thaw()

    await survive(f"{server.dsn()}?{OPTIONS}", stand_still, told)


@on_real_time
async def test_a_failover_to_a_standby(told: Told) -> None:
    with new_server(durable=True) as server, server.standby() as standby:

        def fail_over() -> None:
            server.kill()
            standby.promote()

        hosts = f"{server.host}:{server.port},{standby.host}:{standby.port}"
        await survive(f"postgresql://postgres@{hosts}/postgres?{OPTIONS}", fail_over, told)
