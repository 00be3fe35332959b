"""The two sinks: ladybug by its path, with calls that hang, and neo4j's driver on the wire."""

import asyncio
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import neo4j
import pytest

from mainspring import Mainspring
from mainspring.clock import SystemClock
from mainspring.plugins.mirror import DELETE, FIND, WRITE, Mirror
from mainspring.plugins.sinks import NEO4J_CONSTRAINT, LadybugSink, Neo4jSink
from mainspring.stores.memory import MemoryStore
from mainspring.testing import VirtualTime
from tests.plugins.bolt import BoltServer
from tests.plugins.mirrors import Graph, add, held

pytestmark = [pytest.mark.needs("ladybug"), pytest.mark.slow]

NASTY = ["it's", 'say"so"', "back\\slash\\", "ünï-✓-😀", "x'})/**/DETACH/**/DELETE/**/j//"]


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[Graph]:
    graph = Graph(tmp_path / "graph.lbug")
    yield graph
    graph.close()


def an_app() -> Mainspring:
    app = Mainspring(store=MemoryStore(clock=SystemClock()))

    @app.task(name="work")
    async def work() -> None: ...

    return app


# Ladybug.


def in_another_process(path: Path) -> list[str]:
    """Open the database for writing elsewhere, and read the names."""
    script = f"""
import ladybug
connection = ladybug.Connection(ladybug.Database({str(path)!r}, buffer_pool_size=2**26))
print(*(name for name, in connection.execute("MATCH (j:_BackgroundJob) RETURN j.qname ORDER BY j.qname")))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


async def test_between_two_passes_others_may_write_into_the_same_file(
    tmp_path: Path, virtual_time: VirtualTime
) -> None:
    path = tmp_path / "graph.lbug"
    app = Mainspring(store=MemoryStore(clock=virtual_time.clock), clock=virtual_time.clock)
    app.task(name="work")(an_app().find("work").definition.function)
    mirror = app.mirror(LadybugSink(path))
    async with app.node():
        await add(app, "a")
        await asyncio.sleep(2)
        assert await asyncio.to_thread(in_another_process, path) == ["a"]
        await add(app, "b")
        await asyncio.sleep(2)
        assert await asyncio.to_thread(in_another_process, path) == ["a", "b"]
    assert mirror.errors == 0
    assert in_another_process(path) == ["a", "b"]


def test_while_another_process_has_the_file_the_mirror_waits_and_catches_up(tmp_path: Path) -> None:
    path = tmp_path / "graph.lbug"
    script = f"""
import ladybug
database = ladybug.Database({str(path)!r}, buffer_pool_size=2**26)
print("open", flush=True)
input()
database.close()
"""

    async def story() -> None:
        app = an_app()
        async with app:
            mirror = Mirror(lambda: app.store, LadybugSink(path))
            await add(app, "a")
            holder = subprocess.Popen(  # noqa: ASYNC220 - it is waited for below
                [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
            with holder:
                assert holder.stdout
                assert holder.stdout.readline() == "open\n"
                with pytest.raises(RuntimeError, match="lock"):
                    await mirror.step()
                holder.communicate("\n")
            await mirror.step()
            assert mirror.passes == 1

    asyncio.run(story())
    assert in_another_process(path) == ["a"]


def test_a_call_that_hangs_is_given_up_and_nothing_is_asked_before_it_has_come_back(tmp_path: Path) -> None:
    gate = threading.Event()
    path = tmp_path / "graph.lbug"

    class Hanging(LadybugSink):
        hangs = False

        def _execute(self, *asked: object) -> list[dict[str, object]]:
            rows = super()._execute(*asked)  # type: ignore[arg-type]  # as it was called
            if self.hangs:
                assert gate.wait(60)
            return rows

    async def story() -> None:
        app = an_app()
        sink = Hanging(path)
        async with app:
            mirror = Mirror(lambda: app.store, sink, timeout=60)
            await mirror.step()
            await add(app, "a")
            sink.hangs = True
            mirror = Mirror(lambda: app.store, sink, timeout=0.05)
            with pytest.raises(TimeoutError):
                await mirror.step()
            threads = threading.active_count()
            for _ in range(3):
                with pytest.raises(TimeoutError, match="not come back"):
                    await mirror.step()
            assert threading.active_count() == threads
            sink.hangs = False
            gate.set()
            last = sink._last
            assert last
            await asyncio.to_thread(last.join)
            assert sink._connection is None  # what came back late has let go of the file
            mirror = Mirror(lambda: app.store, sink)
            await mirror.step()
            assert (mirror.passes, mirror.errors) == (1, 0)

    asyncio.run(story())
    assert in_another_process(path) == ["a"]


def test_a_program_that_ends_does_not_wait_for_a_call_that_hangs(tmp_path: Path) -> None:
    script = f"""
import asyncio, threading
from mainspring.plugins.sinks import LadybugSink
sink = LadybugSink({str(tmp_path / "graph.lbug")!r})
sink._execute = lambda *_: threading.Event().wait()
async def main():
    try:
        async with asyncio.timeout(0.1):
            await sink.prepare()
    except TimeoutError:
        print("given up")
asyncio.run(main())
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=60)
    assert (done.stdout, done.returncode) == ("given up\n", 0), done.stderr


def test_a_database_that_the_program_has_open_stays_open(graph: Graph) -> None:
    async def story() -> None:
        app = an_app()
        async with app:
            mirror = Mirror(lambda: app.store, LadybugSink(graph.database))
            await add(app, "a")
            await mirror.step()
            assert graph.nodes() == await held(app.store)

    asyncio.run(story())
    assert graph.rows("RETURN 1 AS one") == [{"one": 1}]


# Neo4j.


def test_neo4js_driver_carries_the_same_statements_and_catches_up_after_an_outage(graph: Graph) -> None:
    server = BoltServer(graph)

    async def story() -> None:
        app = an_app()
        async with app:
            async with server.serving():
                uri = f"bolt://127.0.0.1:{server.port}"
                async with neo4j.AsyncGraphDatabase.driver(uri, auth=("neo4j", "secret")) as driver:
                    mirror = Mirror(lambda: app.store, Neo4jSink(driver, database="jobs"), timeout=5)
                    for name in (*NASTY, "gone"):
                        await add(app, name)
                    await mirror.step()
                    assert graph.nodes() == await held(app.store)
            await app.schedules.remove("gone")
            async with neo4j.AsyncGraphDatabase.driver(uri, auth=("neo4j", "secret")) as driver:
                mirror = Mirror(lambda: app.store, Neo4jSink(driver, constraint=False), timeout=0.5)
                with pytest.raises((OSError, TimeoutError, neo4j.exceptions.DriverError)):
                    await mirror.step()
                async with server.serving():
                    await mirror.step()
                    assert graph.nodes() == await held(app.store)

    asyncio.run(story())
    statements = [statement for statement, _, _ in server.asked]
    assert statements == [NEO4J_CONSTRAINT, FIND, WRITE, FIND, FIND, WRITE, DELETE]
    assert {begun.get("db") for _, _, begun in server.asked[:3]} == {"jobs"}
    assert {row["qname"] for row in server.asked[2][1]["rows"]} == {*NASTY, "gone"}
    assert server.asked[-1][1] == {"qnames": ["gone"]}
