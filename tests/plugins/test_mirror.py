"""What the mirror shows of schedules, on a real graph and on virtual time."""

import asyncio
import re
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from mainspring import Cron, Every, Mainspring, Manual, Once
from mainspring.core.job import State
from mainspring.core.names import Name
from mainspring.core.rules import Rule
from mainspring.core.schedule import Schedule
from mainspring.core.steps import run_now
from mainspring.errors import BadName
from mainspring.ids import new_id
from mainspring.plugins.mirror import DELETE, WRITE
from mainspring.plugins.mirrored import UNTOLD, Row, row_of
from mainspring.plugins.sinks import LADYBUG_COLUMNS
from mainspring.stores.memory import MemoryStore
from mainspring.stores.records import Look, Move
from mainspring.testing import VirtualTime
from tests.plugins.mirrors import Graph, add, an_app, held

pytestmark = pytest.mark.needs("ladybug")

NASTY = [
    "it's",
    'say"so"',
    "back\\slash\\",
    "\\'",
    "''",
    "\\u0027",
    "{qname=1}",
    "$rows",
    "`j`",
    "ünï-✓-😀",
    "е́",  # noqa: RUF001 - another alphabet, and a mark of its own
    "x'})/**/DETACH/**/DELETE/**/j//",
    "space'y:\"name\\'})",
]
INJECTION = '\'}) MATCH (n) DETACH DELETE n RETURN "x\\" //\n\\'


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[Graph]:
    graph = Graph(tmp_path / "graph.lbug")
    yield graph
    graph.close()


@pytest.fixture
def app(virtual_time: VirtualTime) -> Mainspring:
    return an_app(MemoryStore(clock=virtual_time.clock), virtual_time)


# What is shown.


def test_every_property_of_a_row_is_written_and_has_its_column() -> None:
    set_ = re.findall(r"j\.(\w+) = row\.(\w+)", WRITE)
    columns = [re.findall(r"EXISTS (\w+) (\w+)", column)[0] for column in LADYBUG_COLUMNS]
    properties = [*UNTOLD, "status", "updated_at"]

    assert sorted(set_) == sorted((name, name) for name in properties)
    assert sorted(name for name, _ in columns) == sorted(properties)
    assert {name for name, kind in columns if kind == "INT64"} == {"open_runs", "failures"}


async def test_u16_the_schedule_is_mirrored(app: Mainspring, graph: Graph, virtual_time: VirtualTime) -> None:
    rules: dict[str, Rule] = {
        "cron": Cron("0 9 * * MON-FRI", tz="Europe/Berlin"),
        "every": Every("15m"),
        "delay": Every("15m", after_end=True),
        "once": Once(virtual_time.clock.now() + timedelta(days=1)),
        "manual": Manual(),
    }
    app.mirror(graph.sink)
    async with app.node():
        for name, rule in rules.items():
            await add(app, name, rule)
        await asyncio.sleep(2)
        nodes = graph.nodes()
        kept = {name: (await app.schedules.get(name)).plan.rule for name in rules}
    assert {name: msgspec.json.decode(node["rule"], type=Rule) for name, node in nodes.items()} == kept
    assert "Europe/Berlin" in nodes["cron"]["explained"]
    assert nodes["manual"]["explained"] == "On demand only."
    assert nodes["cron"]["next_slot"] == "2030-01-01T08:00:00.000000+00:00"  # nine o'clock in Berlin
    assert nodes["once"]["next_slot"] == "2030-01-02T00:00:00.000000+00:00"
    assert nodes["manual"]["next_slot"] is None


async def test_u16_a_name_full_of_quotes_and_backslashes_does_no_harm(app: Mainspring, graph: Graph) -> None:
    app.mirror(graph.sink)
    graph.rows("CREATE NODE TABLE Bystander (name STRING PRIMARY KEY)")
    graph.rows("CREATE (:Bystander {name: 'here'})")
    async with app.node():
        for name in NASTY:
            await add(app, name, error=INJECTION)
            await app.schedules.run(name)
        await asyncio.sleep(3)
        assert graph.nodes() == await held(app.store)
        assert set(graph.nodes()) == set(NASTY)
        assert {node["last_error"] for node in graph.nodes().values()} == {f"ValueError: {INJECTION.splitlines()[0]}"}
        for name in NASTY[1::2]:
            await app.schedules.remove(name)
        await asyncio.sleep(2)
    assert set(graph.nodes()) == set(NASTY[::2])
    assert graph.rows("MATCH (b:Bystander) RETURN b.name AS name") == [{"name": "here"}]


@settings(max_examples=30)
@given(data=st.data())
async def test_u16_any_name_and_any_text_come_back_as_they_are(
    data: st.DataObject, graph_for_all: Graph, virtual_time: VirtualTime
) -> None:
    app = an_app(MemoryStore(clock=virtual_time.clock), virtual_time)
    parts = st.text(st.characters(exclude_categories=["Z", "C"], exclude_characters=":"), min_size=1, max_size=20)
    names = data.draw(st.sets(st.builds(name_of, parts, parts), min_size=1, max_size=5), label="names")
    error = data.draw(st.text(st.characters(exclude_categories=[])), label="error")
    async with app:
        for name in names:
            await add(app, str(name))
        page = await app.store.list_schedules()
        rows = [with_error(look, error, page.now) for look in page.looks]
    sink = graph_for_all.sink
    await sink.prepare()
    await sink.run(WRITE, {"rows": rows})
    nodes = graph_for_all.nodes()
    for name in names:
        node = nodes[str(name)]
        assert (node["namespace"], node["local"]) == (name.namespace, name.local)
        assert node["last_error"] == error[:1000].encode("utf-8", "replace").decode()  # halves of a pair become "?"
    await sink.run(DELETE, {"qnames": [str(name) for name in names]})
    assert graph_for_all.nodes() == {}


@pytest.fixture(scope="module")
def graph_for_all(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Graph]:
    graph = Graph(tmp_path_factory.mktemp("graph") / "graph.lbug")
    yield graph
    graph.close()


def name_of(namespace: str, local: str) -> Name:
    with suppress(BadName):
        return Name(namespace, local)
    return Name("", "plain")


def with_error(look: Look, error: str, now: datetime) -> Row:
    """Lay out a schedule whose last run has failed."""
    (run,) = run_now(look.schedule, now, partial(new_id, now)).runs
    return row_of(look, [replace(run, state=State.FAILED, error=error)], now)


async def test_the_status_says_how_a_schedule_stands(app: Mainspring, graph: Graph, virtual_time: VirtualTime) -> None:
    app.mirror(graph.sink)
    soon = virtual_time.clock.now() + timedelta(seconds=10)

    def status(name: str) -> str:
        return str(graph.nodes()[name]["status"])

    async with app.node():
        await add(app, "good", Every("1h"))
        await add(app, "bad", error="bad")
        await add(app, "long", takes=600)
        await add(app, "once", Once(soon))
        for name in ("bad", "long"):
            await app.schedules.run(name)
        await asyncio.sleep(20)
        assert [status(name) for name in ("good", "bad", "long", "once")] == ["idle", "failed", "open", "over"]
        await app.schedules.pause("good")
        await asyncio.sleep(2)
        assert status("good") == "paused"
        await app.schedules.resume("good")
        for failures in (2, 3):
            await app.schedules.run("bad")
            await asyncio.sleep(2)
            assert graph.nodes()["bad"]["failures"] == failures
        await app.schedules.change("bad", None, app.find("work").call())
        await app.schedules.run("bad")
        await asyncio.sleep(2)
        assert (status("good"), status("bad"), graph.nodes()["bad"]["failures"]) == ("idle", "idle", 0)


class ByNewerCode(Schedule, frozen=True, kw_only=True):
    """As a store would write it whose code knows more than this one."""


async def test_a_schedule_that_cannot_be_read_is_shown_as_such_and_comes_back(app: Mainspring, graph: Graph) -> None:
    app.mirror(graph.sink)
    async with app.node():
        await add(app, "strange")
        await add(app, "plain")
        await asyncio.sleep(2)
        there = await app.schedules.get("strange")
        fields = {name: getattr(there, name) for name in Schedule.__struct_fields__}
        plan = replace(there.plan, overlap="on_full_moon")
        newer = ByNewerCode(**{**fields, "plan": plan, "revision": there.revision + 1})
        assert await app.store.move([Move(before=there, after=newer)]) == (True,)
        await asyncio.sleep(2)
        assert graph.nodes()["strange"]["status"] == "unreadable"
        assert "on_full_moon" in graph.nodes()["strange"]["last_error"]
        assert graph.nodes()["plain"]["status"] == "idle"
        older = replace(there, revision=newer.revision + 1)
        assert await app.store.move([Move(before=newer, after=older)]) == (True,)
        await asyncio.sleep(2)
        assert graph.nodes() == await held(app.store)


async def test_the_owner_of_a_declared_schedule_is_shown(graph: Graph, virtual_time: VirtualTime) -> None:
    app = an_app(MemoryStore(clock=virtual_time.clock), virtual_time, owner="the 'shop'\\")
    app.schedule(Every("1h"))(app.find("work"))
    app.mirror(graph.sink)
    async with app.node():
        await asyncio.sleep(2)
    assert graph.nodes()["work"]["owner"] == "the 'shop'\\"


async def test_what_was_cancelled_is_deleted(app: Mainspring, graph: Graph) -> None:
    mirror = app.mirror(graph.sink)
    async with app.node():
        for name in ("keep", "drop"):
            await add(app, name)
        await asyncio.sleep(2)
        assert set(graph.nodes()) == {"keep", "drop"}
        graph.rows("CREATE REL TABLE watches (FROM _BackgroundJob TO _BackgroundJob)")
        graph.rows(
            "MATCH (a:_BackgroundJob {qname: 'keep'}), (b:_BackgroundJob {qname: 'drop'}) CREATE (a)-[:watches]->(b)"
        )
        await app.schedules.remove("drop")
        await asyncio.sleep(2)
        assert set(graph.nodes()) == {"keep"}
    assert (mirror.deleted, mirror.errors) == (1, 0)


@pytest.mark.slow
async def test_what_control_cancelled_is_deleted_from_the_graph(graph: Graph, virtual_time: VirtualTime) -> None:
    """Declared in code or added at run time: both are gone from the graph, and stay so over a restart."""
    store = MemoryStore(clock=virtual_time.clock)

    def a_program() -> Mainspring:
        app = an_app(store, virtual_time, owner="shop")
        app.schedule(Every("1h"), name="declared")(app.find("work"))
        app.schedule(Every("1h"), name="busy", kwargs={"takes": 7200.0})(app.find("work"))
        app.schedule(Every("1h"), name="paused")(app.find("work"))
        app.schedule(Every("1h"), name="kept")(app.find("work"))
        return app

    app = a_program()
    mirror = app.mirror(graph.sink)
    async with app, app.node():
        await add(app, "added", Every("1h"))
        await app.schedules.run("busy")
        await app.schedules.pause("paused", by="ann")
        await asyncio.sleep(2)
        assert set(graph.nodes()) == {"declared", "busy", "paused", "kept", "added"}
        for name in ("declared", "busy", "paused", "added"):
            assert await app.control.cancel(name)
        await asyncio.sleep(2)
        assert set(graph.nodes()) == {"kept"}
        assert (mirror.deleted, mirror.errors) == (4, 0)
        await asyncio.sleep(1000)  # when everything is looked at again
        assert set(graph.nodes()) == {"kept"}

        again = a_program()
        again.mirror(graph.sink)
        async with again.node():
            await asyncio.sleep(7200)
            assert set(graph.nodes()) == {"kept"}
            await again.control.add("declared", "periodic", 60, task="work")
            await asyncio.sleep(2)
            assert set(graph.nodes()) == {"kept", "declared"}
            assert graph.nodes()["declared"]["status"] == "idle"
