"""Two processes publish and deliver on one file, and are killed at no moment in particular."""

import asyncio
import random
import select
import sqlite3
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import IO

import pytest

from mainspring.core.job import NodeId
from mainspring.stores.outbox import LetterFilter, Message
from mainspring.stores.sqlite import SqliteStore
from tests.stores import outbox_process
from tests.stores.outbox_process import EXACT, LEASED, PARTITIONS

PATIENCE = 60
"""Seconds after which a process will not come to its end any more."""


class Crew:
    """The processes, and what they have said."""

    def __init__(self, path: Path, chance: random.Random) -> None:
        self._path = path
        self._chance = chance
        self._count = 0
        self.all: dict[subprocess.Popen[str], tuple[NodeId, int]] = {}

    def start(self) -> None:
        self._count += 1
        command = [sys.executable, "-m", outbox_process.__name__]
        child = subprocess.Popen(
            [*command, str(self._path), f"worker{self._count}", str(self._chance.random())[2:9]],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
            cwd=Path(__file__).parents[2],
        )
        self.all[child] = (NodeId(""), 0)
        self.hear(child)

    def hear(self, child: subprocess.Popen[str]) -> tuple[NodeId, int]:
        """Return the node that a process works under, as far as it has said."""
        stream = pipe(child.stdout)
        while self.all[child][1] == 0 or select.select([stream], [], [], 0)[0]:
            line = stream.readline()
            if not line:
                break
            node, term = line.split()
            self.all[child] = (NodeId(node), int(term))
        return self.all[child]

    def kill(self, child: subprocess.Popen[str]) -> tuple[NodeId, int]:
        child.kill()
        child.wait()
        node = self.hear(child)
        close(child)
        del self.all[child]
        return node

    def finish(self) -> None:
        """Let all of them deliver what is left."""
        for child in self.all:
            pipe(child.stdin).write("stop\n")
        for child in self.all:
            assert child.wait(PATIENCE) == 0

    def end(self) -> None:
        for child in self.all:
            child.kill()
            child.wait()
            close(child)


def pipe(stream: IO[str] | None) -> IO[str]:
    assert stream
    return stream


def close(child: subprocess.Popen[str]) -> None:
    for stream in (child.stdin, child.stdout):
        pipe(stream).close()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "jobs.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.executescript(outbox_process.TABLES)
    return path


@pytest.fixture(params=[4, pytest.param(25, marks=pytest.mark.full)])
def rounds(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.fixture
def crew(path: Path) -> Iterator[Crew]:
    crew = Crew(path, random.Random(path.name))  # noqa: S311 -- no secret
    yield crew
    crew.end()


@pytest.mark.slow
def test_each_committed_message_is_delivered_in_order_whoever_is_killed(path: Path, crew: Crew, rounds: int) -> None:
    asyncio.run(tell(path, crew, rounds))

    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        written = connection.execute("SELECT outbox, name, key FROM written ORDER BY rowid").fetchall()
        effects = connection.execute("SELECT outbox, part, seq, name FROM effects ORDER BY rowid").fetchall()
    logs, buried = asyncio.run(found(path))
    assert len(written) > 10 * rounds, "the processes came to nothing"

    # There is one writer at a time, so the order of the user's rows is the order of commits.
    for outbox in (EXACT, LEASED):
        committed: dict[str, list[str]] = defaultdict(list)
        for _, name, key in (row for row in written if row[0] == outbox):
            committed[key].append(name)
        published: dict[str, list[str]] = defaultdict(list)
        for log in logs[outbox]:
            assert [one.seq for one in log] == list(range(1, len(log) + 1))
            for one in log:
                published[str(one.key)].append(one.payload.decode())
        assert published == committed

    for part in range(PARTITIONS):
        exact = [(seq, name) for outbox, of, seq, name in effects if (outbox, of) == (EXACT, part)]
        assert [seq for seq, _ in exact] == sorted({seq for seq, _ in exact})
        both = {**dict(exact), **{one.seq: one.payload.decode() for one in buried if one.partition == part}}
        assert both == {one.seq: one.payload.decode() for one in logs[EXACT][part]}
        assert len(both) == len(exact) + sum(one.partition == part for one in buried)

        leased = [(seq, name) for outbox, of, seq, name in effects if (outbox, of) == (LEASED, part)]
        first = list(dict.fromkeys(leased))
        assert first == [(one.seq, one.payload.decode()) for one in logs[LEASED][part]]


async def tell(path: Path, crew: Crew, rounds: int) -> None:
    """Kill one of two again and again, or take one for dead that is not."""
    chance = random.Random(7)  # noqa: S311 -- no secret
    store = SqliteStore(path, durable=False)
    await store.open()
    for _ in range(2):
        crew.start()
    for _ in range(rounds):
        await asyncio.sleep(chance.uniform(0.02, 0.3))  # for real: they are processes of their own
        child = chance.choice(list(crew.all))
        if chance.random() < 0.25:
            await store.declare_dead(*crew.hear(child))
            continue
        await store.declare_dead(*crew.kill(child))
        crew.start()
    await asyncio.sleep(0.2)
    await asyncio.to_thread(crew.finish)
    await store.close()


async def found(path: Path) -> tuple[dict[str, list[tuple[Message, ...]]], list[Message]]:
    """Read the whole log, and all dead letters."""
    store = SqliteStore(path, durable=False)
    await store.open()
    looked = await store.look_at_partitions([EXACT, LEASED])
    assert all(one.stand.cursor == one.last for one in looked.partitions)
    logs = {
        outbox: [await store.read_messages(outbox, part, 0, 1_000_000) for part in range(PARTITIONS)]
        for outbox in (EXACT, LEASED)
    }
    page = await store.letters(LetterFilter(), limit=1_000_000)
    await store.close()
    return logs, [one.message for one in page.letters]
