"""An idle node that asks again costs the file nothing, and misses nothing by that."""

import asyncio
import sqlite3
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from mainspring import Mainspring
from mainspring.core.limits import Gate, Scope
from mainspring.core.outcome import Succeeded
from mainspring.errors import NodeGone, StoreUnavailable
from mainspring.stores.port import Store
from mainspring.stores.sqlite import SqliteStore, writer
from mainspring.stores.sqlite.connect import connect
from mainspring.stores.sqlite.statements import statement
from mainspring.testing import VirtualTime
from mainspring.testing.contract import SettableClock
from mainspring.testing.contract.world import SECOND, Member, World

Story: TypeAlias = Callable[[World, Member], Coroutine[Any, Any, Callable[[], Coroutine[Any, Any, object]]]]
"""Brings about that there is nothing to claim, and returns what changes that."""


class Files:
    """Handles on one file, for a `World`; they do not wait for long."""

    def __init__(self, path: Path, clock: SettableClock) -> None:
        self.path = path
        self.clock = clock

    async def open(self) -> SqliteStore:
        store = SqliteStore(self.path, clock=self.clock, durable=False, patience="100ms")
        await store.open()
        return store

    async def crash(self, store: Store) -> None:
        raise NotImplementedError


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "jobs.db"


@pytest.fixture
def rung() -> threading.Event:
    return threading.Event()


@pytest.fixture
def world(path: Path, virtual_time: VirtualTime, rung: threading.Event) -> Iterator[World]:
    """A store that is watched, as a node does."""
    clock = SettableClock()
    world = World(Files(path, clock), clock)
    world.store = virtual_time.run(world.open())
    end = world.store.watch(rung.set)
    yield world
    end()
    virtual_time.run(world.close())


async def asks(world: World, node: Member, path: Path) -> bool:
    """Say whether a claim would have to wait for the write lock."""
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        try:
            assert await world.claim(node) == ()
        except StoreUnavailable:
            return True
    return False


async def test_the_same_question_is_not_asked_twice(world: World, path: Path) -> None:
    node, other = await world.node(), await world.node()
    assert await world.claim(node) == ()

    assert not await asks(world, node, path)
    assert await asks(world, other, path), "another node has not asked yet"
    assert await world.claim(node, room=2) == ()
    assert await asks(world, node, path), "the last question was another"


async def enqueue(world: World, _: Member) -> Callable[[], Coroutine[Any, Any, object]]:
    return world.enqueue


async def come_due(world: World, _: Member) -> Callable[[], Coroutine[Any, Any, object]]:
    await world.enqueue(run_at=SECOND)

    async def wait() -> None:
        world.clock.advance(SECOND)

    return wait


async def resume(world: World, _: Member) -> Callable[[], Coroutine[Any, Any, object]]:
    await world.enqueue(queue="mail")
    await world.store.pause("mail")
    return lambda: world.store.resume("mail")


async def make_room(world: World, node: Member) -> Callable[[], Coroutine[Any, Any, object]]:
    await world.store.declare([Gate(scope=Scope.QUEUE, name="default", concurrency=1)])
    first = await world.running(node)
    await world.enqueue()
    return lambda: world.end(first, Succeeded())


async def lift_a_limit(world: World, node: Member) -> Callable[[], Coroutine[Any, Any, object]]:
    await make_room(world, node)
    return lambda: world.store.declare([Gate(scope=Scope.QUEUE, name="default")])


STORIES: list[Story] = [enqueue, come_due, resume, make_room, lift_a_limit]


@pytest.mark.parametrize("story", STORIES)
async def test_whatever_changes_that_is_known_at_once(world: World, story: Story) -> None:
    node = await world.node()
    change = await story(world, node)
    assert await world.claim(node) == ()
    assert await world.claim(node) == ()
    await change()

    assert len(await world.claim(node)) == 1


async def test_a_node_that_died_meanwhile_learns_of_it(world: World) -> None:
    node = await world.node()
    assert await world.claim(node) == ()
    await world.kill(node)

    with pytest.raises(NodeGone):
        await world.claim(node)


@pytest.mark.parametrize("story", [enqueue, resume, make_room, lift_a_limit])
async def test_what_another_handle_changes_is_known_at_once_without_its_ring(world: World, story: Story) -> None:
    node = await world.node()
    change = await story(world, node)
    assert await world.claim(node) == ()
    here, world.store = world.store, await world.open()
    await change()
    world.store = here

    assert len(await world.claim(node)) == 1


async def test_an_idle_node_claims_without_the_write_lock(
    path: Path, virtual_time: VirtualTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = SqliteStore(path, clock=virtual_time.clock, durable=False)
    app = Mainspring(store, clock=virtual_time.clock)
    app.task(name="work")(lambda: None)
    claims: list[str] = []

    def note(executed: str) -> None:
        if executed == statement("paused_queues"):
            claims.append(executed)

    def connect_traced(path: Path, *, durable: bool) -> sqlite3.Connection:
        connection = connect(path, durable=durable)
        connection.set_trace_callback(note)
        return connection

    monkeypatch.setattr(writer, "connect", connect_traced)
    async with app, app.node():
        await asyncio.sleep(10)
        claims.clear()
        await app.enqueue("work")
        await asyncio.sleep(10)
        after_a_job = len(claims)
        await asyncio.sleep(60)

    assert after_a_job > 0
    assert len(claims) == after_a_job
