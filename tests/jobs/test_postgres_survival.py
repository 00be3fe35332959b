"""A node on PostgreSQL outlives what befalls its server and the network: it goes on soon, under the same id, having lost
nothing and done nothing twice, and says once that the database was out of reach and once that it is back.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Iterator
from uuid import UUID

import psycopg
import pytest

from mainspring import Context, Mainspring
from mainspring.core.job import State
from tests.jobs.postgres_work import SOON, TASKS, Told, Work, survive, until
from tests.servers.postgres import Server, new_server
from tests.servers.system import wait_until
from tests.servers.wire import Wire
from tests.stores.postgres_wires import on_real_time

pytestmark = pytest.mark.slow

OPTIONS = "timeout=2s"  # for a statement: short where it is to hang
PATIENT = "timeout=20s"  # where it is not, but the machine may be busy
STUCK = (
    "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() "
    "AND application_name = 'mainspring' AND wait_event_type = 'Lock'"
)
LAST_WORDS = 60.0
"""Seconds that a node without a server may take for its end: it tries each of its last writes for some time."""
TERMINATE = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() "
    "AND application_name = 'mainspring'"
)


@pytest.fixture
def told(caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]) -> Told:
    return Told(caplog, capsys)


@pytest.fixture
def server() -> Iterator[Server]:
    """One of the test's own, to be stopped and frozen."""
    with new_server() as server:
        yield server


@pytest.fixture
def wire(own_postgres: Server) -> Iterator[Wire]:
    with Wire.to(own_postgres) as wire:
        yield wire


@on_real_time
async def test_a_node_outlives_a_restart_of_the_server(server: Server, told: Told) -> None:
    await survive(f"{server.dsn()}?{PATIENT}", server.restart, told)


@on_real_time
async def test_a_node_outlives_a_crash_of_the_server(told: Told) -> None:
    with new_server(durable=True) as durable:

        def crash() -> None:
            durable.kill()
            time.sleep(1.0)
            durable.start()

        await survive(f"{durable.dsn()}?{PATIENT}", crash, told)


@on_real_time
async def test_a_node_outlives_the_end_of_all_its_connections(server: Server, told: Told) -> None:
    def terminate() -> None:
        with psycopg.connect(server.dsn()) as connection:
            connection.execute("LOCK TABLE mainspring.jobs")
            wait_until(lambda: server.sql(STUCK), "somebody is amid a statement")
            server.sql(TERMINATE)

    await survive(f"{server.dsn()}?{PATIENT}", terminate, told)


@on_real_time
async def test_a_node_outlives_a_network_that_hangs_for_longer_than_a_statement_may_take(
    own_postgres: Server, wire: Wire, told: Told
) -> None:
    def hang() -> None:
        wire.hang()
        time.sleep(4.0)
        wire.heal()

    with own_postgres.schema() as schema:
        await survive(f"{wire.dsn()}?{OPTIONS}&schema={schema}", hang, told)


@on_real_time
async def test_a_node_outlives_a_server_that_stands_still_for_a_while(server: Server, told: Told) -> None:
    def stand_still() -> None:
        server.freeze()
        time.sleep(4.0)
        server.thaw()

    await survive(f"{server.dsn()}?{OPTIONS}", stand_still, told)


@on_real_time
async def test_a_node_outlives_a_failover_to_a_standby(told: Told) -> None:
    with new_server(durable=True) as primary, primary.standby() as standby:

        def fail_over() -> None:
            primary.kill()
            standby.promote()

        hosts = f"{primary.host}:{primary.port},{standby.host}:{standby.port}"
        await survive(f"postgresql://postgres@{hosts}/postgres?{PATIENT}", fail_over, told)


# Silence


@on_real_time
async def test_a_node_goes_on_after_an_outage_that_outlasted_its_lease(server: Server, told: Told) -> None:
    work = Work(f"{server.dsn()}?{OPTIONS}&patience=2s", lasting=600)
    async with work.app:
        async with work.going_on(lease="5s"):
            long = await work.begin_long_jobs()
            before = work.node
            await asyncio.to_thread(server.stop)
            await asyncio.sleep(7.5)
            await asyncio.to_thread(server.start)
            over = time.monotonic()
            took = await until(lambda: work.runs_what_came_after(over), "the node to go on", within=SOON)
            await until(lambda: all(work.runs[job] == 2 for job in long), "the long jobs to begin again", within=SOON)
        assert work.node == before, "nobody was there to declare it dead"
        views = await work.views()
    assert Counter(view.job.state for view in views) == {State.SUCCEEDED: len(work.enqueued)}
    assert {view.job.attempt for view in views} == {1}, "stopped by the node, so that it is given back"
    runs = {name: {work.runs[view.job.id] for view in views if view.job.task.local == name} for name in TASKS}
    assert runs == {"quick": {1}, "long": {2}}
    told.figure(f"{len(views)} jobs; it went on {took:.2f} s after the outage was over")
    assert [line for line in told.lines if "out of reach" in line] == told.lines[:1]
    assert len([line for line in told.lines if "it stops its work before others take it" in line]) == 1
    assert len([line for line in told.lines if "the database is back after" in line]) == 1


class Bodies:
    """A node of which one wants to know when its bodies began and when they ended."""

    def __init__(self, url: str) -> None:
        self.app = Mainspring(url)
        self.began: dict[UUID, float] = {}
        self.ended: dict[UUID, float] = {}

        @self.app.task(name="hold")
        async def hold(ctx: Context) -> None:
            self.began[ctx.job] = time.monotonic()
            try:
                await asyncio.sleep(60)
            finally:
                self.ended[ctx.job] = time.monotonic()

        self.hold = hold

    async def enqueue(self, count: int) -> set[UUID]:
        return {job.id for job in await self.hold.enqueue_many([self.hold.call() for _ in range(count)])}


@on_real_time
async def test_a_node_that_is_cut_off_stops_its_work_before_another_takes_it_and_comes_back_under_a_new_id(
    own_postgres: Server, wire: Wire, told: Told
) -> None:
    with own_postgres.schema() as schema:
        lonely = Bodies(f"{wire.dsn()}?{OPTIONS}&schema={schema}")
        other = Bodies(f"{own_postgres.dsn()}?{OPTIONS}&schema={schema}")
        async with lonely.app.node(lease="5s", grace="0s") as node:
            jobs = await lonely.enqueue(3)
            await until(lambda: lonely.began.keys() == jobs, "the jobs to begin")
            before = node.id
            async with other.app.node(lease="5s", grace="0s", concurrency=3):
                await until_renewed_twice(other.app)
                wire.hang()
                hung = time.monotonic()
                await until(lambda: other.began.keys() == jobs, "the other node to take over")
                assert lonely.ended.keys() == jobs
                stopped, taken = max(lonely.ended.values()) - hung, min(other.began.values()) - hung
                told.figure(f"cut off with a lease of 5 s: stopped after {stopped:.2f} s, taken after {taken:.2f} s")
                assert stopped < taken
                assert node.id == before

                wire.heal()
                took = await until(lambda: node.id != before, "it to come back under a new id")
                more = await other.enqueue(2)  # for which only it has places
                took += await until(lambda: more <= lonely.began.keys(), "it to work again")
                told.figure(f"at work again {took:.2f} s after the network was back")
                assert took < SOON
        assert len([line for line in told.lines if "it stops its work before others take it" in line]) == 1
        assert len([line for line in told.lines if "goes on under a new id" in line]) == 1


async def until_renewed_twice(app: Mainspring) -> None:
    """Wait until each node has renewed twice more: with each renewal it looks at the others."""
    first = {view.node.id: view.counter for view in await app.store.nodes()}
    async with asyncio.timeout(SOON):
        while not all(view.counter >= first[view.node.id] + 2 for view in await app.store.nodes()):
            await asyncio.sleep(0.05)


# Its end


@on_real_time
@pytest.mark.parametrize("how", ["gone", "frozen"])
async def test_a_node_ends_in_bounded_time_without_its_server_and_its_jobs_are_done_by_the_next(
    server: Server, how: str, told: Told
) -> None:
    url = f"{server.dsn()}?{OPTIONS}"
    first = Bodies(url)
    context = first.app.node(grace="0s")
    await context.__aenter__()
    jobs = await first.enqueue(3)
    await until(lambda: first.began.keys() == jobs, "the jobs to begin")
    await asyncio.to_thread(server.stop if how == "gone" else server.freeze)
    began = time.monotonic()
    await context.__aexit__(None, None, None)
    took = time.monotonic() - began
    await asyncio.to_thread(server.start if how == "gone" else server.thaw)

    told.figure(f"with its server {how} a node ended within {took:.1f} s")
    assert first.ended.keys() == jobs
    assert took < LAST_WORDS
    second = Bodies(url)
    async with second.app.node(lease="2s", grace="0s"):
        await until(lambda: second.began.keys() == jobs, "the next one to take over", within=2 + 2 * SOON)
