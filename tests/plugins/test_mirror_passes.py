"""When the mirror works, how little it asks for, and what trouble does to it: on a real graph and on virtual time."""

import asyncio
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from mainspring import Every, Mainspring, Manual, Retry
from mainspring.errors import NameTaken
from mainspring.plugins import mirror as module
from mainspring.plugins.mirror import PAGE
from mainspring.plugins.sinks import LadybugSink
from mainspring.stores.memory import MemoryStore
from mainspring.supervise import TaskSet
from mainspring.testing import VirtualTime
from mainspring.testing.faults import FaultyStore
from tests.plugins.mirrors import Flaky, Graph, add, add_many, an_app, held, the_mirror
from tests.runtime.singles import Deaf

pytestmark = [pytest.mark.needs("ladybug"), pytest.mark.slow]


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[Graph]:
    graph = Graph(tmp_path / "graph.lbug")
    yield graph
    graph.close()


@pytest.fixture
def app(virtual_time: VirtualTime) -> Mainspring:
    return an_app(MemoryStore(clock=virtual_time.clock), virtual_time)


# Little is read, and less is written.


async def test_rows_are_written_many_at_a_time_and_only_what_changed(app: Mainspring, graph: Graph) -> None:
    sink = Flaky(graph.sink)
    async with app:
        await add_many(app, 5 * PAGE)
        mirror, _ = the_mirror(app, sink)
        await mirror.step()
        assert sink.sizes == [PAGE] * 5
        assert len(graph.nodes()) == 5 * PAGE
        sink.calls.clear()
        await asyncio.sleep(2)
        await mirror.step()
        assert sink.calls == []
        await app.schedules.pause("job-7")
        await app.schedules.pause("job-8")
        await app.schedules.run("job-999")
        await asyncio.sleep(2)
        await mirror.step()
        assert sum(sink.sizes) == 3
        sink.calls.clear()
        for number in range(10, 510):
            await app.schedules.remove(f"job-{number}")
        await asyncio.sleep(2)
        await mirror.step()
        assert sink.kinds == {"delete": 1}
        assert graph.nodes() == await held(app.store)


async def test_runs_are_read_only_of_what_may_have_changed(graph: Graph, virtual_time: VirtualTime) -> None:
    store = FaultyStore(MemoryStore(clock=virtual_time.clock))
    app = Mainspring(store=store.as_store, clock=virtual_time.clock)

    @app.task(name="work")
    async def work() -> None: ...

    async with app:
        await add_many(app, 3 * PAGE)
        mirror, _ = the_mirror(app, Flaky(graph.sink))
        await mirror.step()
        store.calls.clear()
        await asyncio.sleep(2)
        await app.schedules.pause("job-3")
        store.calls.clear()
        await mirror.step()
        assert (store.calls.count("list_schedules"), store.calls.count("runs")) == (3, 1)


async def test_a_run_that_was_retried_and_ended_between_two_passes_is_seen(app: Mainspring, graph: Graph) -> None:
    mirror = app.mirror(graph.sink)
    error = "bad"

    @app.task(name="mended", retry=Retry.none())
    async def mended() -> None:
        if error:
            raise ValueError(error)

    async with app.node():
        await app.schedules.add("mended", Manual(), mended.call())
        job = await app.schedules.run("mended")
        await asyncio.sleep(3)
        assert graph.nodes()["mended"]["last_state"] == "failed"
        error = "worse"
        passes = mirror.passes
        await job.retry()
        await asyncio.sleep(0.2)
        assert await job.state() == "failed"
        assert mirror.passes <= passes + 1
        await asyncio.sleep(2)
        assert graph.nodes()["mended"]["last_error"] == "ValueError: worse"
        error = ""
        await job.retry()
        await asyncio.sleep(2)
    assert (graph.nodes()["mended"]["last_state"], graph.nodes()["mended"]["failures"]) == ("succeeded", 0)


async def test_runs_that_were_pruned_are_forgotten_after_a_while(app: Mainspring, graph: Graph) -> None:
    app.mirror(graph.sink)
    async with app.node(prune_every="1m"):
        await app.schedules.add("brief", Manual(), app.find("work").call(), keep_runs="5m")
        await app.schedules.run("brief")
        await asyncio.sleep(2)
        assert graph.nodes()["brief"]["last_state"] == "succeeded"
        await asyncio.sleep(1800)
        assert graph.nodes() == await held(app.store)
    assert graph.nodes()["brief"]["last_state"] is None


async def test_many_that_failed_are_read_again_in_turns(
    app: Mainspring, graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "AGAIN", 3)
    broken = True

    @app.task(name="mended", retry=Retry.none())
    async def mended() -> None:
        if broken:
            raise ValueError

    sink = Flaky(graph.sink)
    mirror, _ = the_mirror(app, sink)
    async with app.node():
        names = [f"job-{number}" for number in range(10)]
        jobs = []
        for name in names:
            await app.schedules.add(name, Manual(), mended.call())
            jobs.append(await app.schedules.run(name))
        await asyncio.sleep(1)
        await mirror.step()
        broken = False
        for job in jobs:
            await job.retry()
        await asyncio.sleep(1.5)
        for _ in range(4):
            await mirror.step()
            await asyncio.sleep(1.5)
        assert graph.nodes() == await held(app.store)
    assert {node["last_state"] for node in graph.nodes().values()} == {"succeeded"}


# When.


async def test_a_storm_of_changes_makes_one_pass_a_second(app: Mainspring, graph: Graph) -> None:
    mirror, service = the_mirror(app, Flaky(graph.sink))
    async with app, TaskSet() as tasks:
        tasks.start(service)
        await add(app, "busy")
        await asyncio.sleep(1)
        passes = mirror.passes
        for _ in range(100):
            await app.schedules.pause("busy")
            await app.schedules.resume("busy")
            await asyncio.sleep(0.1)
        assert 9 <= mirror.passes - passes <= 11
        await app.schedules.pause("busy")
        await asyncio.sleep(1.01)
        assert graph.nodes()["busy"]["status"] == "paused"


async def test_without_a_hint_there_is_a_pass_every_thirty_seconds(graph: Graph, virtual_time: VirtualTime) -> None:
    app = an_app(Deaf(clock=virtual_time.clock), virtual_time)
    mirror, service = the_mirror(app, Flaky(graph.sink))
    async with app, TaskSet() as tasks:
        tasks.start(service)
        await asyncio.sleep(1)
        await add(app, "quiet")
        await asyncio.sleep(28)
        assert graph.nodes() == {}
        await asyncio.sleep(2)
        assert set(graph.nodes()) == {"quiet"}
        await asyncio.sleep(300)
    assert 11 <= mirror.passes <= 12


async def test_passes_that_take_long_leave_the_store_alone_nine_tenths_of_the_time(app: Mainspring) -> None:
    class Slow(Flaky):
        async def _trouble(self) -> None:
            await asyncio.sleep(1)

    class Nothing:
        async def prepare(self) -> None: ...
        async def run(self, *_: object) -> list[dict[str, object]]:
            return []

        async def close(self) -> None: ...

    mirror, service = the_mirror(app, Slow(Nothing()))
    async with app, TaskSet() as tasks:
        tasks.start(service)
        for _ in range(1000):
            await add(app, f"job-{_}")
            await asyncio.sleep(1)
    assert 1000 / 11 / 1.5 < mirror.passes < 1000 / 10  # one second of work, ten of rest; the first took two


# Trouble.


@pytest.mark.slow
@pytest.mark.parametrize("how", ["fails", "hangs", "loses answers"])
async def test_trouble_with_the_graph_slows_and_fails_no_job(
    how: str, app: Mainspring, graph: Graph, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "mainspring.mirror")
    times: list[float] = []

    @app.schedule(Every("10s"), overlap="skip")
    @app.task(name="beat")
    async def beat() -> None:
        times.append(asyncio.get_running_loop().time())

    sink = Flaky(graph.sink, how)
    mirror = app.mirror(sink)
    async with app.node() as node:
        await asyncio.sleep(601)
        assert mirror.passes == 0
        assert mirror.last_error is not None
        tries = mirror.errors
        sink.how = "well"
        await asyncio.sleep(61)
        assert graph.nodes().keys() == {"beat"}
        assert graph.nodes()["beat"]["last_state"] == "succeeded"
        sink.how = how
        await asyncio.sleep(600)
        began = asyncio.get_running_loop().time()
    assert asyncio.get_running_loop().time() - began < 15  # its shutdown waits for no graph
    assert len(times) == 126
    assert all(time % 10 < 0.01 for time in times)
    assert node.events.counts["succeeded"] == 126
    assert 15 < tries < 40  # every half minute, once it has gone on for a while
    told = [record.levelname for record in caplog.records if record.name == "mainspring.mirror"]
    assert told == ["WARNING", "INFO", "WARNING"]


async def test_after_a_lost_answer_everything_is_written_again(app: Mainspring, graph: Graph) -> None:
    sink = Flaky(graph.sink)
    mirror, service = the_mirror(app, sink)
    async with app, TaskSet() as tasks:
        tasks.start(service)
        for name in ("a", "b", "c"):
            await add(app, name)
        await asyncio.sleep(3)
        sink.how = "loses answers"
        await app.schedules.remove("b")
        await app.schedules.pause("c")
        await asyncio.sleep(20)
        sink.how = "well"
        graph.rows(
            "MATCH (j:_BackgroundJob {qname: 'a'}) SET j.status = 'forged'"
        )  # nobody knows what happened meanwhile
        await asyncio.sleep(31)
        assert graph.nodes() == await held(app.store)
    assert mirror.errors > 1


async def test_an_outage_of_the_store_is_told_once_too(
    graph: Graph, virtual_time: VirtualTime, caplog: pytest.LogCaptureFixture
) -> None:
    store = FaultyStore(MemoryStore(clock=virtual_time.clock))
    app = Mainspring(store=store.as_store, clock=virtual_time.clock)

    @app.task(name="work")
    async def work() -> None: ...

    mirror, service = the_mirror(app, Flaky(graph.sink))
    async with app, TaskSet() as tasks:
        await add(app, "a")
        tasks.start(service)
        await asyncio.sleep(2)
        store.drop("list_schedules", times=5)
        await add(app, "b")
        await asyncio.sleep(60)
        assert graph.nodes() == await held(app.store)
    assert mirror.errors == 5
    assert len([record for record in caplog.records if record.name == "mainspring.mirror"]) == 1


async def test_a_graph_with_stale_nodes_is_brought_level_at_the_start(app: Mainspring, graph: Graph) -> None:
    graph.rows("CREATE NODE TABLE _BackgroundJob (qname STRING PRIMARY KEY, status STRING)")  # of an earlier release
    names = ["there", *(f"stale-'{number}\\" for number in range(2500))]
    graph.rows("UNWIND $names AS name CREATE (:_BackgroundJob {qname: name, status: 'Running'})", names=names)
    sink = Flaky(graph.sink)
    app.mirror(sink)
    async with app.node():
        await add(app, "there")
        await add(app, "new")
        await asyncio.sleep(2)
        assert graph.nodes() == await held(app.store)
    assert sink.kinds["find"] == 4
    assert sink.kinds["delete"] == 3


# Nodes.


async def test_another_node_goes_on_and_trusts_nothing_that_it_wrote_before(
    graph: Graph, virtual_time: VirtualTime
) -> None:
    memory = MemoryStore(clock=virtual_time.clock)
    first, second = an_app(memory, virtual_time), an_app(memory.another(), virtual_time)
    one, other = first.mirror(graph.sink), second.mirror(graph.sink)
    async with second:
        async with first.node():
            await add(first, "a")
            await add(first, "c")
            await asyncio.sleep(2)
            async with second.node():
                await asyncio.sleep(60)
        assert (one.passes > 0, other.passes) == (True, 0)
        async with second.node():
            await second.schedules.remove("a")
            await add(second, "b")
            await asyncio.sleep(5)
            assert set(graph.nodes()) == {"b", "c"}
            assert other.passes > 0
        graph.rows("MATCH (j:_BackgroundJob) DETACH DELETE j")
        graph.rows("CREATE (:_BackgroundJob {qname: 'a', status: 'idle'})")
        async with first.node():  # it remembers "a" and "c", and has never heard of "b"
            await asyncio.sleep(5)
            assert graph.nodes() == await held(memory)


def test_one_name_is_one_mirror(app: Mainspring) -> None:
    app.mirror(LadybugSink("a.lbug"))
    app.mirror(LadybugSink("b.lbug"), name="another")
    with pytest.raises(NameTaken):
        app.mirror(LadybugSink("c.lbug"))
