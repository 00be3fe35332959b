"""How fast jobs get in on SQLite: one by one, from fifty coroutines at a time, in bulk, without an event loop.

Held against sqlite3 alone with the same durability (WAL, synchronous=FULL) and rows of about the same size: one INSERT
for each commit, and `executemany` of a thousand for each commit. All take turns on one pair of files, no node runs.
"""

import argparse
import asyncio
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from mainspring import Mainspring

BULK = 1000
TOGETHER = 50

RAW_TABLE = """
    CREATE TABLE jobs (
        id BLOB PRIMARY KEY, queue TEXT NOT NULL, priority INTEGER NOT NULL, run_at INTEGER NOT NULL,
        state INTEGER NOT NULL, payload BLOB NOT NULL
    ) WITHOUT ROWID;
    CREATE INDEX claimable ON jobs (queue, priority DESC, run_at, id) WHERE state = 0;
"""
RAW_INSERT = "INSERT INTO jobs VALUES (?, 'default', 50, ?, 0, ?)"


class Raw:
    """sqlite3 alone."""

    def __init__(self, path: Path) -> None:
        self._connection = sqlite3.connect(path, isolation_level=None)
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.execute("PRAGMA synchronous = FULL")
        self._connection.executescript(RAW_TABLE)
        self._number = 0
        self.close = self._connection.close

    def one_by_one(self, count: int) -> None:
        for _ in range(count):
            self._connection.execute(RAW_INSERT, self._row())

    def in_bulk(self, count: int) -> None:
        for _ in range(0, count, BULK):
            self._connection.execute("BEGIN IMMEDIATE")
            self._connection.executemany(RAW_INSERT, [self._row() for _ in range(BULK)])
            self._connection.execute("COMMIT")

    def _row(self) -> tuple[bytes, int, bytes]:
        self._number += 1
        return self._number.to_bytes(16, "big"), time.time_ns(), b"[[1],{}]"


class Ours:
    """The same through an app."""

    def __init__(self, path: Path, runner: asyncio.Runner) -> None:
        self._app = Mainspring(f"sqlite:///{path}")
        self._runner = runner

        @self._app.task(name="nothing")
        async def nothing(_number: int) -> None: ...

        self._task = nothing

    def one_by_one(self, count: int) -> None:
        async def enqueue() -> None:
            for number in range(count):
                await self._task.enqueue(number)

        self._runner.run(enqueue())

    def together(self, count: int) -> None:
        numbers = iter(range(count))

        async def enqueue() -> None:
            for number in numbers:
                await self._task.enqueue(number)

        async def all_of_them() -> None:
            async with asyncio.TaskGroup() as group:
                for _ in range(TOGETHER):
                    group.create_task(enqueue())

        self._runner.run(all_of_them())

    def in_bulk(self, count: int) -> None:
        async def enqueue() -> None:
            for start in range(0, count, BULK):
                await self._task.enqueue_many([self._task.call(number) for number in range(start, start + BULK)])

        self._runner.run(enqueue())

    def without_a_loop(self, count: int) -> None:
        for number in range(count):
            self._task.enqueue_sync(number)

    def close(self) -> None:
        self._runner.run(self._app.close())


def compare(folder: Path, count: int, rounds: int) -> None:
    with (
        asyncio.Runner() as runner,
        closing(Raw(folder / "raw.db")) as raw,
        closing(Ours(folder / "ours.db", runner)) as ours,
    ):
        ways: dict[str, tuple[Callable[[int], None], int]] = {
            "raw, one by one": (raw.one_by_one, count),
            "one by one": (ours.one_by_one, count),
            "without a loop": (ours.without_a_loop, count),
            f"{TOGETHER} coroutines": (ours.together, count * 5),
            f"raw, bulk of {BULK}": (raw.in_bulk, count * 20),
            f"bulk of {BULK}": (ours.in_bulk, count * 20),
        }
        speeds: dict[str, list[float]] = {way: [] for way in ways}
        for _ in range(rounds):
            for way, (enqueue, number) in ways.items():
                began = time.perf_counter()
                enqueue(number)
                speeds[way].append(number / (time.perf_counter() - began))
    print(f"{'enqueue':<20}{'jobs/s':>10}{'spread':>18}{'µs/job':>9}{'× raw':>8}")
    base = 1.0
    for way, found in speeds.items():
        speed = statistics.median(found)
        base = speed if way.startswith("raw") else base
        spread = f"{min(found):,.0f}-{max(found):,.0f}"
        print(f"{way:<20}{speed:>10,.0f}{spread:>18}{1e6 / speed:>9.1f}{speed / base:>8.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=1000, help="jobs that go one by one; the others are more")
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="mainspring-bench-") as folder:
        compare(Path(folder), args.count, args.rounds)


if __name__ == "__main__":
    main()
