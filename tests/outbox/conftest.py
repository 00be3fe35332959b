"""What the stories about outboxes share: the stores that keep some, an app on virtual time, and nodes that can be killed.

Imported as `tests.outbox.conftest`. A store joins these stories by a line in `STORES` and one in `ALL`.
"""

import asyncio
import inspect
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Unpack, cast

import pytest

from mainspring import Mainspring
from mainspring.client.nodes import NodeOptions, node_settings
from mainspring.client.outbox import Outbox
from mainspring.clock import Clock
from mainspring.core.job import NodeId
from mainspring.runtime.node import Node
from mainspring.stores.memory import MemoryStore
from mainspring.stores.outbox import Outboxes, PartitionView
from mainspring.stores.port import Store
from mainspring.stores.postgres import PostgresStore
from mainspring.stores.records import NodeRecord, Process
from mainspring.stores.sqlite import SqliteStore
from mainspring.testing import VirtualTime

MakeStore = Callable[[pytest.FixtureRequest, Path, Clock], Store]


def in_memory(_: pytest.FixtureRequest, _folder: Path, clock: Clock) -> Store:
    return MemoryStore(clock=clock)


def in_a_file(_: pytest.FixtureRequest, folder: Path, clock: Clock) -> Store:
    return SqliteStore(folder / "jobs.db", clock=clock, durable=False)


def on_a_server(request: pytest.FixtureRequest, _: Path, clock: Clock) -> Store:
    server, schema = request.getfixturevalue("postgres"), request.getfixturevalue("postgres_schema")
    return PostgresStore(server.dsn(), schema=schema, clock=clock)


STORES: dict[str, MakeStore] = {"memory": in_memory, "sqlite": in_a_file, "postgres": on_a_server}
# On PostgreSQL they take minutes more, which `make chaos` has.
ALL = ["memory", "sqlite", pytest.param("postgres", marks=pytest.mark.slow)]
USED = ALL if os.environ.get("MAINSPRING_CHAOS") == "full" and issubclass(PostgresStore, Outboxes) else ALL[:2]
WITH_TRANSACTIONS = USED[1:]
ELSEWHERE = Process(host="elsewhere", pid=1, started="long ago")


@pytest.fixture(params=USED)
def store(request: pytest.FixtureRequest, tmp_path: Path, virtual_time: VirtualTime) -> Store:
    return STORES[request.param](request, tmp_path, virtual_time.clock)


@pytest.fixture
def app(store: Store, virtual_time: VirtualTime) -> Mainspring:
    return Mainspring(store=store, clock=virtual_time.clock)


@pytest.fixture(params=WITH_TRANSACTIONS)
def joined(request: pytest.FixtureRequest, tmp_path: Path, virtual_time: VirtualTime) -> Mainspring:
    """An app whose store has transactions."""
    store = STORES[request.param](request, tmp_path, virtual_time.clock)
    return Mainspring(store=store, clock=virtual_time.clock)


class Boom(Exception):
    """What a failing handler raises."""


def now() -> float:
    return asyncio.get_running_loop().time()


def outboxes(app: Mainspring) -> Outboxes:
    store = app.store
    assert isinstance(store, Outboxes)
    return store


async def stands(outbox: Outbox[Any], partition: int = 0) -> PartitionView:
    return (await outbox.stats())[partition].view


async def until(condition: Callable[[], bool], *, within: float = 60) -> float:
    """Wait until something holds, by looking; returns when it did."""
    async with asyncio.timeout(within):
        while not condition():
            await asyncio.sleep(0.01)
    return now()


async def all_done(outbox: Outbox[Any], *, within: float = 600) -> None:
    """Wait until nothing of an outbox is left to deliver, and nobody is at it."""
    store = await outbox._store()
    async with asyncio.timeout(within):
        while True:
            looked = await store.look_at_partitions([outbox.name])
            if looked.is_sequenced and not any(map(_is_open, looked.partitions)):
                return
            await asyncio.sleep(0.05)


def _is_open(view: PartitionView) -> bool:
    return view.last > view.stand.cursor or view.aside_at is not None or view.stand.holder is not None


class Line:
    """A store as it is seen through a line that can be cut, or that brings no hints; it counts what is asked."""

    def __init__(self, store: Store, *, deaf: bool = False) -> None:
        self._store = store
        self._cut = False
        self._deaf = deaf
        self.asked: list[str] = []
        self.fails: dict[str, Exception] = {}
        """What verbs raise instead of doing anything."""

    @property
    def as_store(self) -> Store:
        return cast("Store", self)

    def cut(self) -> None:
        self._cut = True

    def watch(self, ring: Callable[[], None]) -> Callable[[], None]:
        return self._store.watch((lambda: None) if self._deaf else ring)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the store within has under that name
        return self._verb(name)

    def _verb(self, name: str) -> Any:  # noqa: ANN401 - as above
        attribute = getattr(self._store, name)
        if not inspect.iscoroutinefunction(attribute):
            return attribute

        async def verb(*args: object, **kwargs: object) -> object:
            self.asked.append(name)
            if name in self.fails:
                raise self.fails[name]
            answer = None if self._cut else await attribute(*args, **kwargs)
            if self._cut:
                await asyncio.get_running_loop().create_future()
            return answer

        return verb


def _forward(name: str) -> Callable[..., Any]:
    return lambda self, *args, **kwargs: self._verb(name)(*args, **kwargs)


for _name in [name for name, one in vars(Outboxes).items() if inspect.isfunction(one) and not name.startswith("_")]:
    setattr(Line, _name, _forward(_name))  # whether a store plays the role is asked of its class


class Victim:
    """A node of an app, on a line of its own, that can be killed: as by `kill -9`, it says no further word."""

    def __init__(self, app: Mainspring, *, deaf: bool = False, **settings: Unpack[NodeOptions]) -> None:
        self.line = Line(app.store, deaf=deaf)
        self.node = Node(
            self.line.as_store,
            app.registry,
            settings=node_settings(settings),
            clock=app.clock,
            parts=[app.outbox.part],
        )

    def kill(self) -> None:
        self.line.cut()
        for part in self.node._added:  # a dead process handles nothing more
            part.gone()


@asynccontextmanager
async def victim(app: Mainspring, *, deaf: bool = False, **settings: Unpack[NodeOptions]) -> AsyncIterator[Victim]:
    """Start a node on the app's open store that is killed at the end of the block at the latest."""
    one = Victim(app, deaf=deaf, **settings)
    await one.node.start()
    try:
        yield one
    finally:
        one.kill()


async def ghost(app: Mainspring) -> tuple[NodeId, int]:
    """Join as a node on another machine, that does nothing by itself."""
    node = NodeId("ghost")
    return node, await app.store.join(NodeRecord(id=node, process=ELSEWHERE, tasks=frozenset()))
