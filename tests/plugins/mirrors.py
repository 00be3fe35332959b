"""What the stories about the mirror share: a graph to look into, a sink that breaks, and what a store holds.

`held` is an account of its own: it reads everything, each time, and knows nothing of how the mirror does it.
"""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import Any, LiteralString

import msgspec

from mainspring import Every, Mainspring, Manual, Retry
from mainspring.core.job import State
from mainspring.core.names import Name
from mainspring.core.rules import Rule
from mainspring.core.schedule import Run
from mainspring.core.steps import create
from mainspring.plugins.mirror import DELETE, FIND, TRY_AGAIN, WRITE, Mirror
from mainspring.plugins.sinks import CypherSink, LadybugSink
from mainspring.runtime.firing import move_of
from mainspring.stores.port import Store
from mainspring.stores.records import Look, RunFilter
from mainspring.supervise import Service
from mainspring.testing import VirtualTime

Node = dict[str, Any]


class Graph:
    """A real ladybug database, and a connection of the test's own to it."""

    def __init__(self, path: Path) -> None:
        ladybug = import_module("ladybug")
        self.database = ladybug.Database(str(path), buffer_pool_size=64 * 1024 * 1024)
        self.connection = ladybug.Connection(self.database)

    @property
    def sink(self) -> LadybugSink:
        return LadybugSink(self.database)

    def nodes(self) -> dict[str, Node]:
        """Everything that it shows, by name, but for when it was written."""
        found = [row["j"] for row in self.rows("MATCH (j:_BackgroundJob) RETURN j")]
        by_name = {node["qname"]: {key: value for key, value in node.items() if key not in NOT_SAID} for node in found}
        assert len(by_name) == len(found)
        return by_name

    def rows(self, statement: str, **parameters: object) -> list[dict[str, Any]]:
        result = self.connection.execute(statement, parameters)
        rows = [dict(row) for row in result.rows_as_dict()]
        result.close()
        return rows

    def close(self) -> None:
        self.connection.close()
        self.database.close()


NOT_SAID = {"_ID", "_LABEL", "updated_at"}


class Nowhere:
    """A sink that keeps nothing."""

    async def prepare(self) -> None: ...

    async def run(self, *_: object) -> Sequence[Mapping[str, object]]:
        return []

    async def close(self) -> None: ...


class Down(Exception):
    """What a sink raises that is away."""


@dataclass(slots=True)
class Flaky:
    """A sink that fails or hangs when told to, before or after the graph has done what was asked."""

    inner: CypherSink
    how: str = "well"  # or "fails", "hangs", "loses answers"
    calls: list[tuple[str, Mapping[str, Any]]] = field(default_factory=list)
    tried_at: list[float] = field(default_factory=list)
    closed: int = 0

    async def prepare(self) -> None:
        self.tried_at.append(asyncio.get_running_loop().time())
        await self._trouble()
        await self.inner.prepare()

    async def run(self, statement: LiteralString, parameters: Mapping[str, object]) -> Sequence[Mapping[str, object]]:
        await self._trouble()
        rows = await self.inner.run(statement, parameters)
        self.calls.append((statement, parameters))
        if self.how == "loses answers":
            raise Down
        return rows

    async def close(self) -> None:
        self.closed += 1
        await self.inner.close()

    async def _trouble(self) -> None:
        if self.how == "hangs":
            await asyncio.Event().wait()
        if self.how == "fails":
            raise Down

    @property
    def kinds(self) -> Counter[str]:
        """How many statements of each kind there were."""
        names = {WRITE: "write", DELETE: "delete", FIND: "find"}
        return Counter(names[statement] for statement, _ in self.calls)

    @property
    def sizes(self) -> list[int]:
        """How many rows each statement wrote."""
        return [len(parameters["rows"]) for statement, parameters in self.calls if statement == WRITE]


async def held(store: Store) -> dict[str, Node]:
    """Say what the graph should show."""
    looks: list[Look] = []
    page = await store.list_schedules(limit=500)
    looks += page.looks
    while page.after:
        page = await store.list_schedules(limit=500, after=page.after)
        looks += page.looks
    runs: defaultdict[str, list[Run]] = defaultdict(list)
    some = await store.runs(RunFilter(with_job=True), limit=500)
    while True:
        for run in some.runs:
            runs[str(run.schedule)].append(run)
        if some.after is None:
            break
        some = await store.runs(RunFilter(with_job=True), limit=500, after=some.after)
    return {str(look.schedule.name): _node(look, runs[str(look.schedule.name)][:20]) for look in looks}


def _node(look: Look, runs: list[Run]) -> Node:
    schedule = look.schedule
    ended = [run for run in runs if run.state is not None]
    verdicts = [run.state for run in ended if run.state is not State.CANCELLED]
    over = schedule.is_over and not isinstance(schedule.plan.rule, Manual)
    last = ended[0].state if ended else None
    return {
        "qname": str(schedule.name),
        "namespace": schedule.name.namespace,
        "local": schedule.name.local,
        "task": str(schedule.plan.template.task),
        "rule": msgspec.json.encode(schedule.plan.rule).decode(),
        "explained": schedule.plan.rule.explain(),
        "owner": schedule.owner,
        "status": "paused" if schedule.paused
        else "open" if look.open
        else "failed" if last is State.FAILED
        else "over" if over
        else "idle",
        "next_slot": text(schedule.next_slot),
        "last_slot": text(runs[0].slot) if runs else None,
        "last_at": text(runs[0].decided_at) if runs else None,
        "last_state": None if last is None else last.value,
        "last_error": ended[0].error if ended else None,
        "open_runs": len(look.open),
        "failures": [*verdicts, State.SUCCEEDED].index(State.SUCCEEDED),
    }  # fmt: skip


def text(instant: datetime | None) -> str | None:
    return None if instant is None else f"{instant.astimezone(UTC):%Y-%m-%dT%H:%M:%S.%f}+00:00"


# Programs.


def an_app(store: Store, virtual_time: VirtualTime, owner: str | None = None) -> Mainspring:
    app = Mainspring(store=store, clock=virtual_time.clock, owner=owner)

    @app.task(name="work", retry=Retry.none())
    async def work(error: str = "", takes: float = 0.0) -> None:
        await asyncio.sleep(takes)
        if error:
            raise ValueError(error)

    return app


async def add(app: Mainspring, name: str, rule: Rule | None = None, **arguments: object) -> None:
    await app.schedules.add(name, rule or Manual(), app.find("work").call(**arguments))


async def add_many(app: Mainspring, count: int) -> None:
    await add(app, "pattern", Every("1h"))
    pattern = await app.schedules.get("pattern")
    names = [Name("", f"job-{number}") for number in range(1, count)]
    for start in range(0, len(names), 1000):
        part = names[start : start + 1000]
        assert all(await app.store.move([move_of(create(name, pattern.plan, app.store.now())) for name in part]))


def the_mirror(app: Mainspring, sink: Flaky, **options: float) -> tuple[Mirror, Service]:
    """Make a mirror without a node around it: nothing happens but what the test does."""
    mirror = Mirror(lambda: app.store, sink, **options)
    return mirror, Service("mirror", mirror.step, wake=[mirror.wake], backoff=TRY_AGAIN, listeners=())
