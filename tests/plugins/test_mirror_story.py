"""The graph shows what the store holds, after whatever has happened to both."""

import asyncio
import random
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import pytest

from mainspring import Cron, Every, Mainspring, Manual, Once, Retry
from mainspring.core.job import FINISHED, State
from mainspring.core.rules import Rule
from mainspring.errors import IllegalTransition, JobGone
from mainspring.stores.memory import MemoryStore
from mainspring.stores.sqlite import SqliteStore
from mainspring.testing import VirtualTime
from tests.plugins.mirrors import Flaky, Graph, Node, held

pytestmark = pytest.mark.needs("ladybug")

CHANGES = 1000
NAMES = [
    *(f"job-{number}" for number in range(25)),
    *(
        "it's",
        'said:"so"',
        "back\\slash\\",
        "\\'",
        "{qname:1}".replace(":", "="),
        "$rows",
        "`j`",
        "ünï-✓-😀",
        "a.b:c.d",
    ),
    "x'})/**/DETACH/**/DELETE/**/j//",
]


@pytest.fixture
def graph(tmp_path: Path) -> Iterator[Graph]:
    graph = Graph(tmp_path / "graph.lbug")
    yield graph
    graph.close()


class Operators:
    """Do something at random to one of the schedules, or to a job of one."""

    def __init__(self, app: Mainspring, seed: int) -> None:
        self.app = app
        self.random = random.Random(seed)  # noqa: S311 - repeatable, and no secret
        self.work = app.find("work")
        self.there: set[str] = set()
        self.paused: set[str] = set()

    def rule(self) -> Rule:
        minutes = self.random.randint(1, 90)
        soon = self.app.clock.now() + timedelta(minutes=minutes % 3 + 1)
        rules: list[Rule] = [
            Cron(f"*/{minutes % 30 + 1} * * * *", tz="Europe/Berlin"),
            Every(timedelta(minutes=minutes)),
            Manual(),
        ]
        rules += [Once(soon), Every(timedelta(minutes=minutes), after_end=True)]
        return self.random.choice(rules)

    async def change(self) -> None:
        schedules, name = self.app.schedules, self.random.choice(NAMES)
        if name not in self.there:
            call = self.work.call(self.random.choice(["well", "badly", "worse", "slowly"]))
            await schedules.add(name, self.rule(), call)
            self.there.add(name)
            return
        match self.random.choice(["change", "pause", "run", "run", "run", "job", "job", "job", "remove"]):
            case "change":
                await schedules.change(name, self.rule())
            case "pause":
                await (schedules.resume if name in self.paused else schedules.pause)(name)
                self.paused ^= {name}
            case "run":
                await schedules.run(name)
            case "job":
                await self.touch_a_job(name)
            case _:
                await schedules.remove(name)
                self.there.discard(name)
                self.paused.discard(name)

    async def touch_a_job(self, name: str) -> None:
        page = await self.app.schedules.runs(name, limit=5)
        jobs = [run.job for run in page.runs if run.job]
        if not jobs:
            return
        job = self.app.job(self.random.choice(jobs))
        with suppress(IllegalTransition, JobGone):
            match self.random.choice(["cancel", "retry", "retry", "delete"]):
                case "cancel":
                    await job.cancel()
                case "retry":
                    await job.retry()
                case _:
                    if await job.state() in FINISHED:
                        await job.delete()


async def look(app: Mainspring, graph: Graph) -> dict[str, Node]:
    """Find the graph level two and a half seconds after a change, at the first moment when nothing else happens."""
    for _ in range(50):
        before = await held(app.store)
        await asyncio.sleep(2.5)
        if before == await held(app.store):
            assert graph.nodes() == before
            return before
    raise AssertionError("something happened all the time")


def an_app(store: MemoryStore | SqliteStore, virtual_time: VirtualTime) -> Mainspring:
    app = Mainspring(store=store, clock=virtual_time.clock)

    @app.task(name="work", retry=Retry.none())
    async def work(how: str) -> None:
        match how:
            case "badly":
                raise ValueError("it's \"bad\" \\ '}) MATCH (n) DETACH DELETE n //\n\x00")
            case "worse":
                raise ZeroDivisionError
            case "slowly":
                await asyncio.sleep(400)
            case _:
                pass

    return app


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_the_graph_shows_what_the_store_holds_after_a_thousand_random_changes_and_outages(
    kind: str, graph: Graph, tmp_path: Path, virtual_time: VirtualTime
) -> None:
    clock = virtual_time.clock
    store = (
        MemoryStore(clock=clock) if kind == "memory" else SqliteStore(tmp_path / "jobs.db", clock=clock, durable=False)
    )
    virtual_time.loop.limit = 100
    app = an_app(store, virtual_time)
    sink = Flaky(graph.sink)
    mirror = app.mirror(sink)
    outages = {250: "fails", 330: "well", 450: "hangs", 520: "well", 640: "loses answers", 700: "well"}
    shown: list[Node] = []
    async with app.node():
        operators = Operators(app, seed=6)
        for number in range(CHANGES):
            sink.how = outages.get(number, sink.how)
            await operators.change()
            if number % 5 == 0:
                await asyncio.sleep(operators.random.choice([0.0, 0.3, 1.5, 3.0, 60.0]))
            if number % 100 == 99 and sink.how == "well":
                await asyncio.sleep(40)  # by then, whatever was away has been tried again
                shown += (await look(app, graph)).values()
        shown += (await look(app, graph)).values()
    assert mirror.errors >= 3
    assert {node["status"] for node in shown} == {"paused", "open", "failed", "idle", "over"}
    assert {node["last_state"] for node in shown} == {State.FAILED, State.SUCCEEDED, State.CANCELLED, None}
    assert max(node["failures"] for node in shown) > 3
    assert {sink.how, mirror.last_error} == {"well", None}
