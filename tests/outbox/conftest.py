"""What the stories about outboxes share: the stores that keep some, an app on virtual time, and nodes that can be killed.

Imported as `tests.outbox.conftest`. A store joins these stories by a line in `make_store`.
"""

import asyncio
import gc
import inspect
import warnings
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
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
from mainspring.stores.port import Store, Transaction, Transactions
from mainspring.stores.postgres import PostgresStore
from mainspring.stores.records import NodeRecord, Process
from mainspring.stores.sqlite import SqliteStore
from mainspring.testing import VirtualTime
from tests.servers.postgres import Server

STORES = ["memory", "sqlite", pytest.param("postgres", marks=pytest.mark.slow)]
WITH_TRANSACTIONS = STORES[1:]
ELSEWHERE = Process(host="elsewhere", pid=1, started="long ago")


class Table:
    """A table of the user's own, in the store's database."""

    def __init__(self, name: str = "effects", mark: str = "?", place: str = "rowid") -> None:
        self.create = f"CREATE TABLE {name} (text TEXT)"
        self.insert = f"INSERT INTO {name} VALUES ({mark})"  # noqa: S608 - a name of ours
        self.select = f"SELECT text FROM {name} ORDER BY {place}"  # noqa: S608 - as above

    async def make(self, app: Mainspring) -> None:
        async with transaction(app) as tx:
            await tx.execute(self.create)

    async def rows(self, app: Mainspring) -> list[str]:
        async with transaction(app) as tx:
            return [text for (text,) in await tx.execute(self.select)]


def transaction(app: Mainspring) -> AbstractAsyncContextManager[Transaction]:
    store = app.store
    assert isinstance(store, Transactions)
    return store.transaction()


def make_store(request: pytest.FixtureRequest, folder: Path, clock: Clock) -> tuple[Store, Table]:
    match request.param:
        case "memory":
            return MemoryStore(clock=clock), Table()
        case "sqlite":
            return SqliteStore(folder / "jobs.db", clock=clock, durable=False), Table()
        case _:
            server: Server = request.getfixturevalue("postgres")
            schema: str = request.getfixturevalue("postgres_schema")
            return PostgresStore(server.dsn(), schema=schema, clock=clock), Table(f"{schema}.effects", "$1", "ctid")


@contextmanager
def collected(request: pytest.FixtureRequest) -> Iterator[None]:
    """Have nobody complain, in some later test, of a connection that was being opened when its loop ended: those of
    nodes that were killed here, in the middle of a program that lives.
    """
    yield
    if request.param == "postgres":
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            gc.collect()


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest, tmp_path: Path, virtual_time: VirtualTime) -> Iterator[Store]:
    with collected(request):
        yield make_store(request, tmp_path, virtual_time.clock)[0]


@pytest.fixture
def app(store: Store, virtual_time: VirtualTime) -> Mainspring:
    return Mainspring(store=store, clock=virtual_time.clock)


@pytest.fixture(params=WITH_TRANSACTIONS)
def lasting(request: pytest.FixtureRequest, tmp_path: Path, virtual_time: VirtualTime) -> Iterator[tuple[Store, Table]]:
    with collected(request):
        yield make_store(request, tmp_path, virtual_time.clock)


@pytest.fixture
def joined(lasting: tuple[Store, Table], virtual_time: VirtualTime) -> Mainspring:
    """An app whose store has transactions."""
    return Mainspring(store=lasting[0], clock=virtual_time.clock)


@pytest.fixture
def table(lasting: tuple[Store, Table]) -> Table:
    """A table beside it."""
    return lasting[1]


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


async def has_pruned(node: Node) -> None:
    """Wait until a node has cleared away what it found when it started; until then it may clear what comes later."""
    await until(lambda: "letters_cleared" in node.events.counts)


async def all_done(outbox: Outbox[Any], *, within: float = 600) -> None:
    """Wait until nothing of an outbox is left to deliver, and nobody is at it."""
    async with asyncio.timeout(within):
        while True:
            looked = await (await outbox._store()).look_at_partitions([outbox.name])
            if looked.is_sequenced and all(is_done(view) for view in looked.partitions):
                return
            await asyncio.sleep(0.05)


def is_done(view: PartitionView) -> bool:
    return view.last == view.stand.cursor and not view.aside_at and not view.stand.holder


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
