"""What a node says of itself: how it is doing, what it runs, what its services are at."""

import asyncio
from contextlib import suppress
from datetime import timedelta

import pytest

from mainspring import Mainspring, Sleep
from mainspring.client.services import ServiceContext
from mainspring.core.job import NodeId, State
from mainspring.runtime.board import MOST, Board
from mainspring.runtime.report import (
    LONGEST_ERROR,
    MOST_JOBS,
    Report,
    ServiceReport,
    ServiceState,
    first_line,
    read,
    written,
)
from mainspring.runtime.reporting import memory as memory_here
from mainspring.stores.memory import MemoryStore
from mainspring.supervise import Backoff, Failed, Service, Started, TaskSet
from mainspring.testing import VirtualTime
from mainspring.testing.faults import FaultyStore
from tests.runtime.conftest import Bench


def memory_of(store: FaultyStore) -> MemoryStore:
    assert isinstance(store.inner, MemoryStore)
    return store.inner


async def report(bench: Bench, node: NodeId) -> Report:
    found = read((await memory_of(bench.store).reports())[node].body)
    assert found
    return found


def named(found: Report, name: str) -> ServiceReport:
    return next(one for one in found.services if one.name == name)


async def test_a_node_says_what_it_runs_and_since_when(bench: Bench) -> None:
    @bench.app.task(name="work", queue="mail")
    async def work() -> None:
        await asyncio.sleep(20)

    async with bench.app.node(concurrency=3) as node:
        await asyncio.sleep(2)
        began = bench.time.clock.now()
        jobs = [await work.enqueue() for _ in range(4)]
        await asyncio.sleep(6)
        found = await report(bench, node.id)

        assert (found.busy, found.places, found.is_quiet, found.skew) == (3, 3, False, 0.0)
        assert {job.id for job in found.running} <= {job.id for job in jobs}
        assert {(job.task, job.queue, job.attempt) for job in found.running} == {("work", "mail", 1)}
        assert all(abs(job.since - began) < timedelta(seconds=1) for job in found.running)
        assert found.memory
        assert found.memory > 1_000_000
        await asyncio.sleep(60)
        assert (await report(bench, node.id)).running == ()


async def test_a_body_that_does_not_stop_is_told_as_such_until_it_ends(bench: Bench) -> None:
    @bench.app.task(name="stubborn")
    async def stubborn() -> None:
        ends = bench.time.elapsed + 60
        while bench.time.elapsed < ends:
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(ends - bench.time.elapsed)

    async with bench.app.node(stop_grace="3s") as node:
        job = await stubborn.enqueue()
        await asyncio.sleep(10)
        assert [one.is_abandoned for one in (await report(bench, node.id)).running] == [False]
        await job.cancel()
        await asyncio.sleep(12)
        assert await job.state() is State.CANCELLED
        assert [(one.id, one.is_abandoned) for one in (await report(bench, node.id)).running] == [(job.id, True)]
        await asyncio.sleep(60)
        assert (await report(bench, node.id)).running == ()


async def test_of_many_jobs_the_longest_are_told(bench: Bench) -> None:
    @bench.app.task(name="work")
    async def work() -> None:
        await asyncio.sleep(20)

    async with bench.app.node(concurrency=3 * MOST_JOBS) as node:
        first = await work.enqueue()
        await asyncio.sleep(1)
        for _ in range(2 * MOST_JOBS):
            await work.enqueue()
        await asyncio.sleep(6)
        found = await report(bench, node.id)

    assert (found.busy, len(found.running)) == (2 * MOST_JOBS + 1, MOST_JOBS)
    assert found.running[0].id == first.id


async def test_a_node_at_rest_reports_twice_a_minute_and_one_at_work_every_few_seconds(bench: Bench) -> None:
    @bench.app.task(name="work")
    async def work() -> None: ...

    async with bench.app.node():
        await asyncio.sleep(60)
        bench.store.calls.clear()
        await asyncio.sleep(600)
        assert bench.store.calls.count("report") in {20, 21}
        bench.store.calls.clear()
        for _ in range(120):
            await work.enqueue()
            await asyncio.sleep(5)
        assert 100 <= bench.store.calls.count("report") <= 121


async def test_an_order_to_be_quiet_shows(bench: Bench) -> None:
    async with bench.app.node() as node:
        await asyncio.sleep(2)
        node.quiet()
        await asyncio.sleep(6)
        assert (await report(bench, node.id)).is_quiet
        node.resume()
        await asyncio.sleep(6)
        assert not (await report(bench, node.id)).is_quiet


async def test_a_service_that_fails_is_told_within_a_second_or_two_with_its_error_and_backoff(bench: Bench) -> None:
    trouble = [False]

    @bench.app.service(name="poll", backoff=Backoff.fixed(60), listeners=())
    async def poll() -> Sleep:
        if trouble[0]:
            raise OSError("the disk is full\nand more of it" + "x" * 1000)
        return Sleep(1)

    async with bench.app.node() as node:
        await asyncio.sleep(10)
        poll_ = named(await report(bench, node.id), "poll")
        assert (poll_.state, poll_.directive, poll_.is_own, poll_.error) == (ServiceState.SLEEPING, "sleep", False, "")
        assert poll_.next_at
        trouble[0] = True
        await asyncio.sleep(2.5)
        poll_ = named(await report(bench, node.id), "poll")
        assert (poll_.state, poll_.failures, poll_.backoff) == (ServiceState.FAILING, 1, 60)
        assert poll_.error == "OSError: the disk is full"
        now = bench.time.clock.now()
        assert poll_.error_at
        assert poll_.next_at
        assert now - timedelta(seconds=3) < poll_.error_at <= now
        assert poll_.next_at - poll_.error_at == timedelta(seconds=60)
        trouble[0] = False
        await asyncio.sleep(62)
        poll_ = named(await report(bench, node.id), "poll")
        assert (poll_.state, poll_.failures, poll_.backoff) == (ServiceState.SLEEPING, 0, None)
        assert poll_.error == "OSError: the disk is full", "the last one is still worth knowing"


async def test_the_nodes_own_duties_are_told_too(bench: Bench) -> None:
    async with bench.app.node() as node:
        await asyncio.sleep(70)
        found = await report(bench, node.id)

    own = {one.name for one in found.services if one.is_own}
    assert {"claimer", "settler", "reaper", "pruner", "ticker", "keeper", "meter", "reporting", "census"} <= own
    assert named(found, "claimer").executions > 30
    assert named(found, "settler").state is ServiceState.IDLE


@pytest.mark.parametrize("singleton", [False, True])
async def test_of_a_service_that_is_not_declared_any_more_nothing_is_left(bench: Bench, singleton: bool) -> None:
    async with bench.app.node() as node:
        await asyncio.sleep(10)
        before = {one.name for one in (await report(bench, node.id)).services}

        @bench.app.service(name="sweep", singleton=singleton)
        async def sweep() -> Sleep:
            return Sleep(1)

        await asyncio.sleep(20)
        assert "sweep" in {one.name for one in (await report(bench, node.id)).services}
        bench.app._services.clear()
        node.refresh()
        await asyncio.sleep(60)
        assert {one.name for one in (await report(bench, node.id)).services} == before


async def test_of_a_singleton_is_told_where_it_runs(virtual_time: VirtualTime) -> None:
    memory = MemoryStore(clock=virtual_time.clock)
    apps = [Mainspring(store=memory.another(), clock=virtual_time.clock) for _ in range(2)]
    for app in apps:

        @app.service(name="sweep", singleton=True)
        async def sweep(ctx: ServiceContext) -> Sleep:
            assert ctx.held
            return Sleep(1)

    async with apps[0].node() as a:
        await asyncio.sleep(1)
        async with apps[1].node() as b:
            await asyncio.sleep(40)
            reports = {node: read(one.body) for node, one in (await apps[0].store.reports()).items()}  # type: ignore[attr-defined]  # of a memory store
            states = {
                node: (one.state, one.is_singleton, one.is_held)
                for node, found in reports.items()
                if found
                for one in [named(found, "sweep")]
            }
    assert states == {a.id: (ServiceState.SLEEPING, True, True), b.id: (ServiceState.STANDBY, True, False)}


async def test_a_service_that_dies_is_told_as_stopped(bench: Bench) -> None:
    @bench.app.service(name="fragile", on_panic="propagate", listeners=())
    async def fragile() -> Sleep:
        raise ValueError("that was it")

    async with bench.app.node() as node:
        await asyncio.sleep(5)
        found = named(await report(bench, node.id), "fragile")

    assert (found.state, found.error, found.next_at) == (ServiceState.STOPPED, "ValueError: that was it", None)


async def test_two_services_of_one_name_are_two_if_one_is_ours(bench: Bench) -> None:
    @bench.app.service(name="claimer")
    async def claimer() -> Sleep:
        return Sleep(1000)

    async with bench.app.node() as node:
        await asyncio.sleep(35)
        found = await report(bench, node.id)

    assert sorted((one.is_own, one.directive) for one in found.services if one.name == "claimer") == [
        (False, "sleep"),
        (True, "sleep"),
    ]


async def test_a_node_that_was_declared_dead_reports_under_its_new_id(bench: Bench) -> None:
    async with bench.app.node() as node:
        await asyncio.sleep(2)
        before = node.id
        memory = memory_of(bench.store)
        (view,) = await memory.nodes()
        await memory.declare_dead(before, view.term)
        await asyncio.sleep(40)
        assert node.id != before
        assert (await report(bench, node.id)).places == 20


@pytest.mark.parametrize("fault", ["drop", "lose_answer"])
async def test_a_store_in_trouble_gets_the_report_later(
    bench: Bench, fault: str, caplog: pytest.LogCaptureFixture
) -> None:
    getattr(bench.store, fault)("report", times=3)
    async with bench.app.node() as node:
        await asyncio.sleep(60)
        assert (await report(bench, node.id)).places == 20
    assert "reporting" not in caplog.text, "whatever else uses the store says so already"


async def test_news_by_the_dozen_are_reported_once_a_second(bench: Bench) -> None:
    fails = [0]

    @bench.app.service(name="flaps", backoff=Backoff.fixed(0.01), listeners=())
    async def flaps() -> Sleep:
        fails[0] += 1
        if fails[0] % 2:
            raise OSError("again")
        return Sleep(0.01)

    async with bench.app.node():
        await asyncio.sleep(60)

    assert 30 <= bench.store.calls.count("report") <= 61


async def test_a_service_that_was_taken_away_leaves_the_board(virtual_time: VirtualTime) -> None:
    board = Board(virtual_time.clock)

    async def step() -> Sleep:
        return Sleep(1)

    async with TaskSet() as tasks:
        tasks.start(Service("poll", step, listeners=[board.others]))
        await asyncio.sleep(5)
        changes = board.changes
        assert [one.name for one in board.services(virtual_time.clock.now(), {})] == ["poll"]
    board.forget("poll")
    board.forget("never there")

    assert board.services(virtual_time.clock.now(), {}) == ()
    assert board.changes == changes + 2, "it stopped, and was forgotten"


def test_of_more_services_than_a_report_takes_those_that_fail_are_in_it(virtual_time: VirtualTime) -> None:
    board = Board(virtual_time.clock)
    for number in range(2 * MOST):
        board.own(Started(service=f"own {number}"))
    board.others(Started(service="poll"))
    last = f"own {2 * MOST - 1}"
    board.own(Failed(service=last, seconds=1, error=OSError("no"), failures=3, backoff=1))

    told = board.services(virtual_time.clock.now(), {"sweep": False})

    assert len(told) == MOST
    assert [one.name for one in told[:3]] == [last, "poll", "sweep"]
    assert [one.state for one in told[:3]] == [ServiceState.FAILING, ServiceState.RUNNING, ServiceState.STANDBY]


def test_an_error_becomes_one_short_line() -> None:
    class Rude(Exception):
        def __str__(self) -> str:
            raise ValueError("I will not be printed")

    assert first_line(ValueError()) == "ValueError"
    assert first_line(ValueError("\n one \n two")) == "ValueError: one"
    assert len(first_line(ValueError("x" * 1000))) == LONGEST_ERROR
    assert first_line(Rude()) == "Rude"


def test_a_report_is_read_back_and_one_that_cannot_be_is_none() -> None:
    found = Report(busy=1, services=(ServiceReport(name="poll", state=ServiceState.IDLE),))

    assert read(written(found)) == found
    assert read(b'{"busy": "many"}') is None


def test_the_memory_of_a_process_is_told_without_proc_too(monkeypatch: pytest.MonkeyPatch) -> None:
    here = memory_here()
    monkeypatch.setattr("mainspring.runtime.reporting.STATM", "/nowhere")
    elsewhere = memory_here()

    assert here
    assert elsewhere
    assert here / 10 < elsewhere < here * 10
