"""How fast a node works off a backlog on SQLite: 100,000 jobs that do nothing, enqueued before, one process.

Counted from the first start to the last settle, and held against two others, in turns within one run:

- raw: a loop over sqlite3 with the same durability (WAL, synchronous=FULL) that claims 100 rows with one UPDATE …
  RETURNING and settles them with another, each in a transaction of its own. It starts nothing and decides nothing.
- huey: SqliteHuey with fsync and its consumer, with the setting that was fastest here: one worker thread (two threads
  reach 0.75 of it, two processes 0.9), results off. It takes a job out before it runs, so at most once: a job is lost
  with its worker, and there is no settle to wait for. Left out where huey is not installed.

The targets are 0.2 of raw and 6 times huey.
"""

import argparse
import asyncio
import cProfile
import importlib
import importlib.util
import json
import logging
import pstats
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

BATCH = 100
LONGEST = 300.0  # seconds that one drain may take

# Integers as ids: with the 16 bytes that a UUID takes, the same loop reaches 0.8 of its speed.
RAW_TABLE = """
    CREATE TABLE jobs (
        id INTEGER PRIMARY KEY, queue TEXT NOT NULL, priority INTEGER NOT NULL, run_at INTEGER NOT NULL,
        state INTEGER NOT NULL, lease INTEGER NOT NULL, node TEXT, payload BLOB NOT NULL
    );
    CREATE INDEX claimable ON jobs (queue, priority DESC, run_at, id) WHERE state = 0;
"""
RAW_CLAIM = """
    UPDATE jobs SET state = 1, lease = lease + 1, node = 'raw'
    WHERE id IN (
        SELECT id FROM jobs WHERE state = 0 AND queue = 'default' AND run_at <= ?
        ORDER BY priority DESC, run_at, id LIMIT ?
    )
    RETURNING id, lease, payload
"""
RAW_SETTLE = "UPDATE jobs SET state = 2 WHERE id = ? AND lease = ? AND node = 'raw' AND state = 1"


class Took(NamedTuple):
    """Seconds that a drain took, by the clock and of processor time, all threads together."""

    clock: float
    processor: float


class Reading:
    """The time, and how much of it the processors have spent on this process."""

    def __init__(self) -> None:
        self._time = time.monotonic()
        self._spent = time.process_time()

    def since(self) -> Took:
        return Took(time.monotonic() - self._time, time.process_time() - self._spent)


def drain_raw(path: Path, jobs: int) -> Took:
    """Claim and settle in a plain loop."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.executescript(RAW_TABLE)
    rows = ((number, number, b"[[1],{}]") for number in range(jobs))
    connection.execute("BEGIN IMMEDIATE")
    connection.executemany("INSERT INTO jobs VALUES (?, 'default', 50, ?, 0, 0, NULL, ?)", rows)
    connection.execute("COMMIT")
    done = 0
    began = Reading()
    while done < jobs:
        connection.execute("BEGIN IMMEDIATE")
        claimed = connection.execute(RAW_CLAIM, (jobs, BATCH)).fetchall()
        connection.execute("COMMIT")
        connection.execute("BEGIN IMMEDIATE")
        done += connection.executemany(RAW_SETTLE, [(job, lease) for job, lease, _ in claimed]).rowcount
        connection.execute("COMMIT")
    took = began.since()
    connection.close()
    return took


def drain_huey(path: Path, jobs: int) -> Took:
    """Have huey's consumer take out and run everything."""
    logging.getLogger("huey").addHandler(logging.NullHandler())
    # By its name: it has no types, and may not be there.
    huey = importlib.import_module("huey").SqliteHuey("bench", filename=str(path), fsync=True, results=False)
    first: Reading | None = None
    took: Took | None = None
    done = 0
    everything = threading.Event()

    def nothing(_number: int) -> None:
        nonlocal first, took, done
        first = first or Reading()
        done += 1
        if done == jobs:
            took = first.since()
            everything.set()

    task = huey.task()(nothing)
    rows = [(huey.name, huey.serialize_task(task.s(number))) for number in range(jobs)]
    with huey.storage.db(commit=True) as cursor:  # one by one they would take longer than the drain
        cursor.executemany("INSERT INTO task (queue, data, priority) VALUES (?, ?, 0)", rows)
    consumer = huey.create_consumer(workers=1, periodic=False)
    consumer.start()
    everything.wait(LONGEST)
    consumer.stop()
    return took or sys.exit(f"huey had run {done} of {jobs} jobs after {LONGEST:g} s")


class Threads:
    """Looks at how much processor time each thread takes, and at one of them function by function."""

    def __init__(self, which: str) -> None:
        self.profile = cProfile.Profile()
        self._which = which
        self._before: dict[int, float] = {}

    def begin(self) -> None:
        if self._which == "main":
            self.profile.enable()
        else:
            threading.setprofile(self._look_at)
        self._before = self._spent()

    def end(self) -> None:
        self.profile.disable()
        threading.setprofile(None)
        names = {thread.ident: thread.name for thread in threading.enumerate()}
        for ident, spent in self._spent().items():
            print(f"{names[ident][:40]:<41}{spent - self._before.get(ident, 0):>6.2f} s")

    def _look_at(self, *_: object) -> None:
        """Be called with the first thing that a new thread does."""
        wanted = self._which in threading.current_thread().name
        sys.setprofile(None)
        if wanted:
            self.profile.enable()

    def _spent(self) -> dict[int, float]:
        idents = [thread.ident for thread in threading.enumerate() if thread.ident is not None]
        return {ident: time.clock_gettime(time.pthread_getcpuclockid(ident)) for ident in idents}


async def drain_node(path: Path, jobs: int, concurrency: int, profile: Threads | None = None) -> Took:
    """Have a node of this process run everything, with its event loop in the main thread."""
    from mainspring import Mainspring  # noqa: PLC0415 - not a part of the other measurements

    app = Mainspring(f"sqlite:///{path}")
    first: Reading | None = None

    @app.task(name="nothing")
    async def nothing(_number: int) -> None:
        nonlocal first
        first = first or Reading()

    async with app:
        for begin in range(0, jobs, 10_000):
            await nothing.enqueue_many([nothing.call(number) for number in range(begin, min(begin + 10_000, jobs))])
    if profile:
        profile.begin()
    async with asyncio.timeout(LONGEST), app.node(concurrency=concurrency) as node:
        while node.events.counts["succeeded"] < jobs:  # noqa: ASYNC110 - a listener would slow down what is measured
            await asyncio.sleep(0.005)
        took = first.since() if first else Took(0, 0)
        if profile:
            profile.end()
    return took


def in_a_child(kind: str, jobs: int, concurrency: int) -> Took:
    """Measure in a process of its own, on a file of its own."""
    with tempfile.TemporaryDirectory(prefix="mainspring-bench-") as folder:
        command = [sys.executable, __file__, "--child", kind, "--file", f"{folder}/bench.db"]
        command += ["--jobs", str(jobs), "--concurrency", str(concurrency)]
        answer = subprocess.run(command, check=True, stdout=subprocess.PIPE, timeout=LONGEST + 60).stdout
    return Took(*json.loads(answer))


def compare(jobs: int, rounds: int, concurrency: int) -> None:
    counts = {"raw": jobs, "mainspring": jobs, "huey": max(100, jobs // 10)}
    if importlib.util.find_spec("huey") is None:
        print("huey is not installed: pip install huey\n")
        del counts["huey"]
    found: dict[str, list[Took]] = {kind: [] for kind in counts}
    for _ in range(rounds):
        for kind, took in found.items():
            took.append(in_a_child(kind, counts[kind], concurrency))
    speeds = {kind: [counts[kind] / one.clock for one in took] for kind, took in found.items()}
    medians = {kind: statistics.median(speed) for kind, speed in speeds.items()}
    print(
        f"Python {sys.version.split()[0]}, SQLite {sqlite3.sqlite_version}, {concurrency} places, median of {rounds}\n"
    )
    print(f"{'drain':<12}{'jobs':>8}{'jobs/s':>10}{'spread':>18}{'µs/job':>9}{'CPU µs':>9}{'× raw':>8}{'× huey':>8}")
    for kind, speed in medians.items():
        spread = f"{min(speeds[kind]):,.0f}-{max(speeds[kind]):,.0f}"
        spent = statistics.median(one.processor for one in found[kind]) / counts[kind] * 1e6
        huey = f"{speed / medians['huey']:.1f}" if "huey" in medians else ""
        print(
            f"{kind:<12}{counts[kind]:>8,}{speed:>10,.0f}{spread:>18}{1e6 / speed:>9.1f}{spent:>9.1f}"
            f"{speed / medians['raw']:>8.2f}{huey:>8}"
        )


def show_profile(which: str, jobs: int, concurrency: int, lines: int) -> None:
    """Run once under cProfile, which makes everything slower, and print where a thread's time went."""
    threads = Threads(which)
    with tempfile.TemporaryDirectory(prefix="mainspring-bench-") as folder:
        took = asyncio.run(drain_node(Path(folder, "bench.db"), jobs, concurrency, threads))
    print(f"\n{jobs / took.clock:,.0f} jobs/s while being profiled\n")
    pstats.Stats(threads.profile).sort_stats("tottime").print_stats(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--concurrency", type=int, default=100)
    parser.add_argument(
        "--profile", nargs="?", const="main", metavar="THREAD", help="where a thread spends its time: main, or writer"
    )
    parser.add_argument("--lines", type=int, default=40, help="of the profile")
    parser.add_argument("--child", choices=["raw", "mainspring", "huey"], help=argparse.SUPPRESS)
    parser.add_argument("--file", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.profile:
        show_profile(args.profile, args.jobs, args.concurrency, args.lines)
    elif args.child:
        measure: dict[str, Callable[[], Took]] = {
            "raw": lambda: drain_raw(args.file, args.jobs),
            "huey": lambda: drain_huey(args.file, args.jobs),
            "mainspring": lambda: asyncio.run(drain_node(args.file, args.jobs, args.concurrency)),
        }
        print(json.dumps(measure[args.child]()))
    else:
        compare(args.jobs, args.rounds, args.concurrency)


if __name__ == "__main__":
    main()
