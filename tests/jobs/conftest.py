"""What the stories about jobs share: both stores, an app on virtual time, nodes that can be killed, and one made by hand.

Imported as `tests.jobs.conftest`, the one file of this folder that pytest itself brings into reach.
"""

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, Unpack, cast

import pytest

from mainspring import Context, JobHandle, Mainspring
from mainspring.client.nodes import NodeOptions, node_settings
from mainspring.core import machine
from mainspring.core.job import FINISHED, Claim, JobId, NodeId
from mainspring.core.names import Name
from mainspring.core.outcome import Lost, Outcome
from mainspring.runtime.events import StateChange
from mainspring.runtime.middleware import Next
from mainspring.runtime.node import Node
from mainspring.stores.memory import MemoryStore
from mainspring.stores.port import Store
from mainspring.stores.records import (
    ClaimRequest,
    Delivery,
    JobView,
    NodeRecord,
    Note,
    Process,
    Pulse,
    Settlement,
    Verdict,
)
from mainspring.stores.sqlite import SqliteStore
from mainspring.testing import VirtualTime

MINUTE = 60.0
HOUR = 3600.0
ELSEWHERE = Process(host="elsewhere", pid=1, started="long ago")


@dataclass(frozen=True, slots=True)
class MakeStore:
    """Makes handles on one and the same state."""

    make: Callable[[], Store]
    file: Path | None = None
    """Where the state is, if it is in a file."""

    def __call__(self) -> Store:
        return self.make()


class Boom(Exception):
    """What a failing handler raises."""


@pytest.fixture(params=["memory", "sqlite"])
def make_store(request: pytest.FixtureRequest, tmp_path: Path, virtual_time: VirtualTime) -> MakeStore:
    if request.param == "memory":
        return MakeStore(MemoryStore(clock=virtual_time.clock).another)
    file = tmp_path / "jobs.db"
    return MakeStore(lambda: SqliteStore(file, clock=virtual_time.clock, durable=False), file)


@pytest.fixture
def app(make_store: MakeStore, virtual_time: VirtualTime) -> Mainspring:
    return Mainspring(store=make_store(), clock=virtual_time.clock)


# Time.


def now() -> float:
    return asyncio.get_running_loop().time()


async def until(time: float) -> None:
    """Wait for a time since the start of the test."""
    await asyncio.sleep(time - now())


# What can be seen of a job.


async def ended(job: JobHandle[Any], *, within: float = MINUTE) -> JobView:
    """Wait until a job has finished, by looking and without any hint."""
    async with asyncio.timeout(within):
        while True:
            view = await job.refresh()
            if view.job.state in FINISHED:
                return view
            await asyncio.sleep(0.2)


class Changes(list[StateChange]):
    """The changes of jobs that the nodes of an app tell of."""

    def __init__(self, app: Mainspring) -> None:
        super().__init__()
        app.listener(self.append)

    def of(self, job: JobHandle[Any]) -> list[tuple[str | None, str]]:
        """The steps of one job, as pairs of states."""
        return [(change.source, change.target) for change in self if change.job.id == job.id]


@asynccontextmanager
async def opened(store: Store) -> AsyncIterator[Store]:
    """Open another handle, and close it at the end of the block."""
    await store.open()
    try:
        yield store
    finally:
        await store.close()


# Nodes that die.


class Line:
    """A store, as it is seen through a line that can be cut: from then on nothing is answered, and nothing arrives."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._cut = False

    @property
    def as_store(self) -> Store:
        """This object, for a type checker, which cannot see that it has every verb of the store within."""
        return cast("Store", self)

    def cut(self) -> None:
        self._cut = True

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the store within has under that name
        attribute = getattr(self._store, name)
        if not inspect.iscoroutinefunction(attribute):
            return attribute

        async def verb(*args: object, **kwargs: object) -> object:
            answer = None if self._cut else await attribute(*args, **kwargs)
            if self._cut:
                await asyncio.get_running_loop().create_future()
            return answer

        return verb


class Victim:
    """A node of an app, on a line of its own, that can be killed: as by `kill -9`, it says no further word."""

    def __init__(self, app: Mainspring, **settings: Unpack[NodeOptions]) -> None:
        self._line = Line(app.store)
        self._bodies: set[asyncio.Task[object]] = set()
        self.node = Node(
            self._line.as_store,
            app.registry,
            settings=node_settings(settings),
            clock=app.clock,
            middleware=[self._remember],
        )

    @property
    def id(self) -> NodeId:
        return self.node.id

    async def start(self) -> None:
        await self.node.start()

    def kill(self) -> None:
        self._line.cut()
        for body in self._bodies:
            body.cancel()

    async def _remember(self, _: Context, call_next: Next) -> object:
        body = asyncio.current_task()
        assert body
        self._bodies.add(body)
        try:
            return await call_next()
        finally:
            self._bodies.discard(body)


@asynccontextmanager
async def victim(app: Mainspring, **settings: Unpack[NodeOptions]) -> AsyncIterator[Victim]:
    """Start a node on the app's open store that is killed at the end of the block at the latest."""
    one = Victim(app, **settings)
    await one.start()
    try:
        yield one
    finally:
        one.kill()


# A node by hand, through the port.


class Ghost:
    """A node on another machine that does one step at a time, and renews only when it is told to."""

    _numbers = count(1)

    def __init__(self, store: Store, tasks: frozenset[Name], node: NodeId, term: int) -> None:
        self.store = store
        self.tasks = tasks
        self.id = node
        self.term = term

    @classmethod
    async def join(cls, app: Mainspring, *, process: Process = ELSEWHERE) -> "Ghost":
        node = NodeId(f"ghost-{next(cls._numbers)}")
        tasks = app.registry.names
        return cls(app.store, tasks, node, await app.store.join(NodeRecord(id=node, process=process, tasks=tasks)))

    async def claim(self, room: int = 1, *, suspects: int = 1) -> tuple[Delivery, ...]:
        request = ClaimRequest(node=self.id, term=self.term, tasks=self.tasks, room=room, suspects=suspects)
        return (await self.store.claim(request)).deliveries

    async def claim_one(self) -> Claim:
        (delivery,) = await self.claim()
        return delivery.claim

    async def end(self, claim: Claim, outcome: Outcome) -> Verdict:
        change = machine.decide(claim, outcome, self.store.now(), 0.5)
        (settled,) = await self.store.settle([Settlement(change=change, by=self.id)])
        return settled.verdict

    async def say(self, claim: Claim, saved: bytes) -> bool:
        (accepted,) = await self.store.note([Note(job=claim.job.id, lease=claim.job.lease, node=self.id, saved=saved)])
        return accepted

    async def renew(self) -> Pulse:
        return await self.store.renew(self.id, self.term)

    async def die(self) -> None:
        """Be declared dead, by itself or whoever noticed."""
        assert await self.store.declare_dead(self.id, self.term)

    @classmethod
    async def reap(cls, app: Mainspring) -> None:
        """Write off the jobs of dead nodes, as the reaper of a node does."""
        reaper = await cls.join(app)
        for orphan in await app.store.orphans(1000):
            assert await reaper.end(orphan, Lost()) is Verdict.ACCEPTED
        await reaper.die()


def ids(jobs: Sequence[JobHandle[Any]]) -> list[JobId]:
    return [job.id for job in jobs]
