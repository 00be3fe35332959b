"""Several processes on one file, and processes that are killed."""

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import IO

import pytest

from mainspring.clock import SystemClock
from mainspring.core.job import State
from mainspring.core.outcome import Succeeded
from mainspring.stores.port import Store
from mainspring.stores.records import JobFilter, Verdict
from mainspring.stores.sqlite import SqliteStore
from mainspring.stores.sqlite.doorbell import folder_of
from mainspring.testing.contract import SettableClock
from mainspring.testing.contract.world import World

PRELUDE = """
import asyncio, itertools, os, sys
from datetime import timedelta
from pathlib import Path
from mainspring.core import machine
from mainspring.core.backoff import Backoff
from mainspring.core.job import JobId, NodeId
from mainspring.core.names import Name
from mainspring.core.outcome import Succeeded
from mainspring.ids import new_id
from mainspring.stores.records import ClaimRequest, NewJob, NodeRecord, Process, Settlement
from mainspring.stores.sqlite import SqliteStore

TASK = Name("", "mail.send")

def new(store, **fields):
    id = JobId(new_id(store.now()))
    return NewJob(id=id, task=TASK, payload=b"{}", backoff=Backoff.fixed(1), max_attempts=3, **fields)

async def join(store):
    node = NodeId(f"process-{os.getpid()}")
    record = NodeRecord(id=node, process=Process(host="here", pid=os.getpid(), started="now"), tasks=frozenset({TASK}))
    return node, await store.join(record)

def say(*words):
    print(*words, flush=True)

async def hear():
    return (await asyncio.to_thread(sys.stdin.readline)).strip()
"""


class Children:
    """Processes that run a piece of code on the file, and talk over their pipes."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._all: list[subprocess.Popen[str]] = []

    def start(self, code: str) -> subprocess.Popen[str]:
        main = f"{PRELUDE}\nstore = SqliteStore(sys.argv[1])\n{code}\nasyncio.run(main())\n"
        child = subprocess.Popen(
            [sys.executable, "-c", main, str(self._path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )
        self._all.append(child)
        return child

    def end(self) -> None:
        for child in self._all:
            child.kill()
            child.communicate()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "jobs.db"


@pytest.fixture
def children(path: Path) -> Iterator[Children]:
    children = Children(path)
    yield children
    children.end()


def pipe(stream: IO[str] | None) -> IO[str]:
    assert stream
    return stream


def told(child: subprocess.Popen[str]) -> str:
    return pipe(child.stdout).readline().strip()


def tell(child: subprocess.Popen[str], word: str = "go") -> None:
    pipe(child.stdin).write(word + "\n")


async def opened(path: Path) -> SqliteStore:
    store = SqliteStore(path)
    await store.open()
    return store


ENQUEUER = """
async def main():
    await store.open()
    say("ready")
    await hear()
    for number in itertools.count():
        batch = [new(store) for _ in range(1 + number % 7)]
        await store.enqueue(batch)
        say(*(job.id for job in batch))
"""


@pytest.mark.parametrize(
    "moment", [pytest.param(0.0, marks=pytest.mark.slow), 0.013, pytest.param(0.05, marks=pytest.mark.slow)]
)
def test_what_was_committed_survives_a_kill_and_nothing_is_half_there(
    path: Path, children: Children, moment: float
) -> None:
    """Killed in the middle of enqueuing, at no moment in particular: the more often, the more of them are met."""
    for round_ in range(3):
        child = children.start(ENQUEUER)
        assert told(child) == "ready"
        tell(child)
        told_ids = set(told(child).split())
        time.sleep(moment * (round_ + 1))  # for real: the child is a process of its own
        os.kill(child.pid, signal.SIGKILL)
        *whole, last = pipe(child.stdout).read().split("\n")
        for line in whole:
            told_ids |= set(line.split())
        assert len(last.split()) <= 7  # cut off while it was said
        assert told_ids <= ids_there(path)
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert (
            connection.execute("SELECT count(*) FROM mainspring_jobs").fetchone()
            == connection.execute(
                "SELECT count(*) FROM mainspring_jobs JOIN mainspring_payloads USING (number) "
                "JOIN mainspring_lanes AS lanes ON lanes.id = lane WHERE rank = -priority"
            ).fetchone()
        )


def ids_there(path: Path) -> set[str]:
    async def look() -> set[str]:
        store = await opened(path)
        seen: set[str] = set()
        page = await store.list_jobs(JobFilter(), limit=1000)
        seen |= {str(view.job.id) for view in page.jobs}
        while page.after:
            page = await store.list_jobs(JobFilter(), limit=1000, after=page.after)
            seen |= {str(view.job.id) for view in page.jobs}
        await store.close()
        return seen

    return asyncio.run(look())


WORKER = """
async def main():
    await store.open()
    node, term = await join(store)
    say("ready")
    await hear()
    request = ClaimRequest(node=node, term=term, tasks=frozenset({TASK}), room=7)
    while True:
        claimed = await store.claim(request)
        if not claimed.deliveries:
            break
        say(*(f"{one.claim.job.id}/{one.claim.job.lease}" for one in claimed.deliveries))
        changes = [machine.decide(one.claim, Succeeded(), store.now(), 0.5) for one in claimed.deliveries]
        answers = await store.settle([Settlement(change=change, by=node) for change in changes])
        assert all(answer.accepted for answer in answers), answers
    await store.close()
"""


def test_several_processes_share_the_jobs_and_no_lease_is_given_twice(path: Path, children: Children) -> None:
    jobs = 600

    async def fill() -> None:
        clock = SettableClock(SystemClock().now())
        world = World(Files(path, clock), clock)
        world.store = await world.open()
        await world.enqueue_all(world.new() for _ in range(jobs))
        await world.close()

    asyncio.run(fill())
    workers = [children.start(WORKER) for _ in range(3)]
    assert [told(worker) for worker in workers] == ["ready"] * 3
    for worker in workers:
        tell(worker)
    taken = [pipe(worker.stdout).read().split() for worker in workers]

    assert [worker.wait(60) for worker in workers] == [0] * 3
    assert Counter(lease for part in taken for lease in part).most_common(1)[0][1] == 1
    assert sum(map(len, taken)) == jobs
    with closing(sqlite3.connect(path)) as connection:
        states = connection.execute("SELECT state, lease >> 32, count(*) FROM mainspring_jobs GROUP BY 1, 2").fetchall()
    assert states == [(State.SUCCEEDED, 1, jobs)]


class Files:
    def __init__(self, path: Path, clock: SettableClock) -> None:
        self.path = path
        self.clock = clock

    async def open(self) -> Store:
        store = SqliteStore(self.path, clock=self.clock)
        await store.open()
        return store

    async def crash(self, store: Store) -> None:
        raise NotImplementedError


HOLDER = """
async def main():
    await store.open()
    node, term = await join(store)
    claimed = await store.claim(ClaimRequest(node=node, term=term, tasks=frozenset({TASK}), room=5))
    say(len(claimed.deliveries), node, term)
    await hear()
"""


def test_a_lease_outlives_the_process_that_was_killed_with_it(path: Path, children: Children) -> None:
    async def story() -> None:
        clock = SettableClock(SystemClock().now())
        world = World(Files(path, clock), clock)
        world.store = await world.open()
        await world.enqueue_all(world.new() for _ in range(3))
        child = children.start(HOLDER)
        count, node, term = told(child).split()
        assert count == "3"
        child.kill()
        child.wait()

        reaper = await world.node()
        assert await world.claim(reaper, room=5) == ()
        assert await world.store.orphans(10) == ()
        (dead,) = [view for view in await world.store.nodes() if view.node.id == node]
        assert await world.store.declare_dead(dead.node.id, int(term))
        assert await world.reap(reaper) == [Verdict.ACCEPTED] * 3
        again = await world.claim(reaper, room=5)
        assert [one.claim.job.claims for one in again] == [2] * 3
        for one in again:
            await world.end(one.claim, Succeeded())
        await world.close()

    asyncio.run(story())


WATCHER = """
import threading
rung = threading.Event()
store = SqliteStore(sys.argv[1], poll="1h")  # only a bell tells it of anything

async def main():
    await store.open()
    store.watch(rung.set)
    say("ready")
    for _ in range(int(await hear())):
        if not await asyncio.to_thread(rung.wait, 60):
            return say("nothing came")
        rung.clear()
        say("rung")
        await hear()
    await store.close()
"""


def test_a_commit_rings_in_another_process(path: Path, children: Children) -> None:
    times = 8

    async def story() -> None:
        clock = SettableClock(SystemClock().now())
        world = World(Files(path, clock), clock)
        world.store = await world.open()
        child = children.start(WATCHER)
        assert told(child) == "ready"
        tell(child, str(times))
        for _ in range(times):
            await world.enqueue()
            assert told(child) == "rung"
            await asyncio.sleep(0.02)  # a ring that was told twice is over by then
            tell(child)
        assert child.wait(30) == 0
        assert not folder_of(path).exists(), "the bell was taken down"
        await world.close()

    asyncio.run(story())


def test_the_bell_of_a_process_that_was_killed_is_taken_down(path: Path, children: Children) -> None:
    async def story() -> None:
        store = await opened(path)
        child = children.start(WATCHER)
        assert told(child) == "ready"
        assert len(list(folder_of(path).iterdir())) == 1
        child.kill()
        child.wait()
        assert len(list(folder_of(path).iterdir())) == 1
        await store.pause("mail")
        await store.resume("mail")
        await store.close()
        assert not list(folder_of(path).iterdir())

    asyncio.run(story())


USER = """
import sqlite3

async def main():
    await store.open()
    connection = sqlite3.connect(sys.argv[1])
    store.enqueue_in_sync(connection, [new(store)])
    say("written")
    await hear()
    connection.commit()
    say("committed")
    await hear()
"""


def test_a_commit_of_the_users_own_is_seen_from_another_process(path: Path, children: Children) -> None:
    async def story() -> None:
        store = await opened(path)
        child = children.start(USER)
        assert told(child) == "written"
        loop, rung = asyncio.get_running_loop(), asyncio.Event()

        def ring() -> None:
            loop.call_soon_threadsafe(rung.set)

        end = store.watch(ring)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(rung.wait(), 0.15)  # three looks: what is not committed is not told
        tell(child)
        assert told(child) == "committed"
        await asyncio.wait_for(rung.wait(), 60)
        (queue,) = await store.queues()
        assert queue.waiting == 1
        end()
        tell(child)
        await store.close()

    asyncio.run(story())
