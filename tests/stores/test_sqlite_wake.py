"""Hints: what rings and what does not, with a doorbell and without, and what watching costs."""

import asyncio
import logging
import sqlite3
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from mainspring.core.limits import Gate, Scope
from mainspring.core.outcome import Succeeded
from mainspring.stores.port import Store
from mainspring.stores.records import Note, Quiet
from mainspring.stores.sqlite import SqliteStore, doorbell, wake
from mainspring.testing import VirtualTime
from mainspring.testing.contract import SettableClock
from mainspring.testing.contract.world import HOUR, World


class Files:
    """Handles on one file, for a `World`."""

    def __init__(self, path: Path, clock: SettableClock) -> None:
        self.path = path
        self.clock = clock

    async def open(self) -> SqliteStore:
        store = SqliteStore(self.path, clock=self.clock, durable=False)
        await store.open()
        return store

    async def crash(self, store: Store) -> None:
        raise NotImplementedError


class Bell:
    """Counts its rings, and can be waited for."""

    def __init__(self) -> None:
        self._rings = threading.Semaphore(0)
        self.count = 0

    def __call__(self) -> None:
        self.count += 1
        self._rings.release()

    async def wait(self) -> None:
        assert await asyncio.to_thread(self._rings.acquire, timeout=60), "no ring came"

    async def settle(self) -> int:
        """Wait for as long as a ring may still come, and say how many have come."""
        await asyncio.to_thread(time.sleep, 0.15)  # three looks of the listener, which is a thread, for real
        while self._rings.acquire(blocking=False):
            pass
        return self.count


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "jobs.db"


@pytest.fixture
def world(path: Path, virtual_time: VirtualTime) -> Iterator[World]:
    clock = SettableClock()
    world = World(Files(path, clock), clock)
    world.store = virtual_time.run(world.open())
    yield world
    virtual_time.run(world.close())


async def test_what_changes_nothing_to_take_rings_for_nobody(world: World) -> None:
    here, there = Bell(), Bell()
    node = await world.node()
    claim = await world.running(node)
    other = await world.open()
    ends = [world.store.watch(here), other.watch(there)]
    await world.store.renew(node.id, node.term)
    await world.store.note([Note(job=claim.job.id, lease=claim.job.lease, node=node.id, saved=b"1")])
    await world.store.pause("mail")
    await world.claim(node)
    await world.store.acquire("lock", "me", HOUR)
    await world.store.order(node.id, Quiet())
    await world.store.prune(10)
    await world.store.mend(10)

    assert (await here.settle(), await there.settle()) == (0, 0)
    for end in ends:
        end()


async def test_what_lets_a_job_run_or_ends_one_rings_once_for_each_handle(world: World) -> None:
    here, there = Bell(), Bell()
    node = await world.node()
    claim = await world.running(node)
    await world.store.pause("mail")
    other = await world.open()
    ends = [world.store.watch(here), other.watch(there)]
    verbs: list[Callable[[], Coroutine[Any, Any, object]]] = [
        world.enqueue,
        lambda: world.enqueue(run_at=HOUR),
        lambda: world.end(claim, Succeeded()),
        lambda: world.store.resume("mail"),
        lambda: world.store.declare([Gate(scope=Scope.QUEUE, name="mail", concurrency=1)]),
        lambda: world.kill(node),
    ]
    for count, verb in enumerate(verbs, start=1):
        await verb()
        await here.wait()
        await there.wait()
        assert (here.count, there.count) == (count, count)

    assert (await here.settle(), await there.settle()) == (len(verbs), len(verbs))
    for end in ends:
        end()


async def test_without_a_doorbell_a_look_finds_it(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wake, "hang", lambda _path: None)
    bell = Bell()
    other = await world.open()
    end = other.watch(bell)
    await world.enqueue()
    await bell.wait()
    end()


async def test_a_commit_of_the_users_own_is_found(world: World, path: Path) -> None:
    bell = Bell()
    end = world.store.watch(bell)
    assert isinstance(world.store, SqliteStore)
    with closing(sqlite3.connect(path)) as connection:
        world.store.enqueue_in_sync(connection, [world.new()])
        assert await bell.settle() == 0, "nobody is woken before the commit"
        connection.commit()
    await bell.wait()
    assert await bell.settle() == 1
    end()


async def test_a_commit_of_the_users_that_is_none_of_ours_rings_for_nobody(world: World, path: Path) -> None:
    bell = Bell()
    end = world.store.watch(bell)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY)")

    assert await bell.settle() == 0
    end()


async def test_a_watcher_that_raises_is_logged_and_hinders_nobody(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    def broken() -> None:
        raise RuntimeError("broken")

    bell = Bell()
    ends = [world.store.watch(broken), world.store.watch(bell)]
    await world.enqueue()
    await bell.wait()
    await world.enqueue()
    await bell.wait()

    assert [record.levelno for record in caplog.records] == [logging.ERROR] * 2
    for end in ends:
        end()


def listeners() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "mainspring-sqlite-bell"]


async def test_the_thread_lives_only_while_somebody_watches(world: World, path: Path) -> None:
    assert not listeners()
    first, second = world.store.watch(lambda: None), world.store.watch(lambda: None)
    (thread,) = listeners()
    first()
    first()
    assert thread.is_alive()
    second()
    await asyncio.to_thread(thread.join, 10)
    assert not thread.is_alive()
    assert not doorbell.folder_of(path).exists()

    bell = Bell()
    end = world.store.watch(bell)
    await world.enqueue()
    await bell.wait()
    end()


async def test_a_watcher_may_leave_while_it_is_rung(world: World) -> None:
    other = await world.open()
    left = threading.Event()

    def leave() -> None:
        end()
        left.set()

    end = other.watch(leave)
    await world.enqueue()
    assert await asyncio.to_thread(left.wait, 10)
    await world.enqueue()


async def test_a_deep_folder_has_a_bell_too(tmp_path: Path, virtual_time: VirtualTime) -> None:
    """Deeper than the path of a socket may be long."""
    deep = tmp_path.joinpath(*["a-rather-long-name-of-a-folder"] * 5)
    deep.mkdir(parents=True)
    clock = SettableClock()
    world = World(Files(deep / "jobs.db", clock), clock)
    world.store = await world.open()
    other, bell = await world.open(), Bell()
    end = other.watch(bell)
    (hung,) = doorbell.folder_of(deep / "jobs.db").iterdir()
    assert hung.is_socket()
    await world.enqueue()
    await bell.wait()
    end()
    await world.close()
    assert virtual_time.elapsed == 0


def test_a_bell_that_cannot_be_hung_is_done_without(tmp_path: Path) -> None:
    (tmp_path / "jobs.db-bells").write_text("in the way")

    assert doorbell.hang(tmp_path / "jobs.db") is None
    doorbell.ring_others(tmp_path / "jobs.db", None)


def test_what_is_no_bell_is_left_where_it_is(tmp_path: Path) -> None:
    folder = doorbell.folder_of(tmp_path / "jobs.db")
    folder.mkdir()
    (folder / "notes.txt").write_text("keep me")
    bell = doorbell.hang(tmp_path / "jobs.db")
    assert bell
    doorbell.ring_others(tmp_path / "jobs.db", bell.name)
    bell.close()

    assert [file.name for file in folder.iterdir()] == ["notes.txt"]


def test_a_thousand_rings_are_one_while_nobody_looks(tmp_path: Path) -> None:
    bell = doorbell.hang(tmp_path / "jobs.db")
    assert bell
    for _ in range(1000):
        doorbell.ring_others(tmp_path / "jobs.db", None)
    bell.silence()
    bell.close()


async def test_watching_an_unchanged_file_is_one_statement_in_each_interval(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[float] = []
    counts: list[float] = []
    enough = threading.Event()
    data_version, count = wake.Listener._data_version, wake._count

    def look(connection: sqlite3.Connection) -> int:
        looks.append(time.monotonic())
        if len(looks) == 12:
            enough.set()
        return data_version(connection)

    def read_count(connection: sqlite3.Connection) -> int:
        counts.append(time.monotonic())
        return count(connection)

    monkeypatch.setattr(wake.Listener, "_data_version", staticmethod(look))
    monkeypatch.setattr(wake, "_count", read_count)
    end = world.store.watch(lambda: None)
    assert await asyncio.to_thread(enough.wait, 60), "the file is not looked at"
    end()

    pauses = [later - earlier for earlier, later in pairwise(looks[1:])]  # the first look is made at once
    assert min(pauses) > 0.045  # of 50 ms; a slow machine makes them longer
    assert [at for at in counts if at > looks[1]] == []


@pytest.mark.usefixtures("virtual_time")
async def test_a_file_that_cannot_be_read_yet_is_watched_all_the_same(tmp_path: Path) -> None:
    path = tmp_path / "not yet" / "jobs.db"
    bell = Bell()
    bells = wake.Bells(path, poll=0.01)
    end = bells.watch(bell)
    path.parent.mkdir()
    store = SqliteStore(path)
    await store.open()

    await bell.wait()
    end()
    bells.close()
    await store.close()


async def test_a_count_of_rings_that_goes_back_is_news(world: World, path: Path) -> None:
    """As in a file into which an older state was copied."""
    await world.enqueue()
    bell = Bell()
    end = world.store.watch(bell)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE mainspring_counters SET value = 0 WHERE name = 'rings'")

    await bell.wait()
    end()
