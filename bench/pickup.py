"""How long a job waits on an idle node: from the call of `enqueue` in another process to the start of its handler.

Three ways, in turns, some milliseconds apart:

- raw: a row committed with synchronous=FULL, a datagram over a UNIX socket, one read of the row by who waits for it.
- enqueue: `await task.enqueue(…)`.
- own transaction: `task.using(tx=connection)` on a sqlite3 connection of the caller's. Who commits there is not
  Mainspring: the store has to see for itself that the commit has come, and rings the doorbell then.

"after commit" is counted from the moment at which the caller knew that its commit was done; a node can be faster than
that. Both processes read one clock, the system's monotonic one. The targets for enqueue are p50 < 5 ms, p99 < 25 ms.
"""

import argparse
import asyncio
import json
import random
import socket
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

SPACING = (0.010, 0.020)  # seconds between two jobs: the node is idle again long before the next


# Who waits for work: children that take down when each piece of it began.


def wait_raw(folder: Path) -> None:
    """Answer datagrams with one read each."""
    started: list[tuple[int, int]] = []
    with closing(open_raw(folder)) as connection, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as bell:
        bell.bind(str(folder / "bell"))
        print("ready", flush=True)
        while number := int(bell.recv(64)):
            connection.execute("SELECT payload FROM jobs WHERE id = ?", (number,)).fetchone()
            started.append((number, time.monotonic_ns()))
    print(json.dumps(started))


async def wait_node(folder: Path) -> None:
    """Run a node until standard input is closed."""
    from mainspring import Mainspring  # noqa: PLC0415 - the raw child must not carry it

    app = Mainspring(f"sqlite:///{folder}/bench.db")
    started: list[tuple[int, int]] = []

    @app.task(name="mark")
    async def mark(number: int) -> None:
        started.append((number, time.monotonic_ns()))

    async with app.node(concurrency=20):
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.read)
    print(json.dumps(started))


@contextmanager
def child(kind: str, folder: Path) -> Iterator["subprocess.Popen[str]"]:
    command = [sys.executable, __file__, "--child", kind, "--folder", str(folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            if not process.stdout or process.stdout.readline() != "ready\n":
                sys.exit(f"the {kind} child did not start")
            yield process
        finally:
            process.kill()


def answer(process: "subprocess.Popen[str]") -> dict[int, int]:
    """Have a child end, and take over what it took down."""
    out, _ = process.communicate(timeout=60)
    return dict(json.loads(out))


# Who gives it.


def open_raw(folder: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(folder / "raw.db", isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("CREATE TABLE IF NOT EXISTS jobs (id INTEGER PRIMARY KEY, payload BLOB NOT NULL)")
    return connection


async def measure(folder: Path, count: int) -> dict[str, list[tuple[float, float]]]:
    """Return for each way the milliseconds from call and from commit to start, in the order of the calls."""
    from mainspring import Mainspring  # noqa: PLC0415 - as above

    app = Mainspring(f"sqlite:///{folder}/bench.db")

    @app.task(name="mark")
    async def mark(number: int) -> None: ...

    with (
        closing(open_raw(folder)) as raw,
        child("raw", folder) as listener,
        child("node", folder) as node,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as bell,
        closing(sqlite3.connect(folder / "bench.db", isolation_level=None, timeout=10)) as mine,
    ):
        bell.connect(str(folder / "bell"))

        async def by_hand(number: int) -> None:
            raw.execute("INSERT INTO jobs VALUES (?, ?)", (number, b"[[1],{}]"))
            bell.send(str(number).encode())

        async def by_enqueue(number: int) -> None:
            await mark.enqueue(number)

        async def in_own_transaction(number: int) -> None:
            mine.execute("BEGIN IMMEDIATE")
            await mark.using(tx=mine).enqueue(number)
            mine.execute("COMMIT")

        ways: dict[str, Callable[[int], Awaitable[None]]] = {
            "raw": by_hand,
            "enqueue": by_enqueue,
            "own transaction": in_own_transaction,
        }
        calls: dict[str, dict[int, tuple[int, int]]] = {way: {} for way in ways}
        async with app:
            for number in range(1, count + 1):
                for way, give in ways.items():
                    key = number * len(ways) + list(ways).index(way)
                    called = time.monotonic_ns()
                    await give(key)
                    calls[way][key] = called, time.monotonic_ns()
                    await asyncio.sleep(random.uniform(*SPACING))  # noqa: S311 - so as not to beat in time with a poll
            await asyncio.sleep(0.5)
        bell.send(b"0")
        started = answer(listener) | answer(node)
    return {
        way: [
            ((started[key] - called) / 1e6, (started[key] - returned) / 1e6) for key, (called, returned) in made.items()
        ]
        for way, made in calls.items()
    }


def report(found: dict[str, list[tuple[float, float]]]) -> None:
    print(
        f"{'ms from':<18}{'call: p50':>10}{'p90':>8}{'p99':>8}{'most':>8}{'after commit: p50':>20}{'p99':>8}{'× raw':>8}"
    )
    base = statistics.median(call for call, _ in found["raw"])
    for way, times in found.items():
        call, commit = sorted(call for call, _ in times), sorted(commit for _, commit in times)
        print(
            f"{way:<18}{share(call, 0.5):>10.2f}{share(call, 0.9):>8.2f}{share(call, 0.99):>8.2f}{call[-1]:>8.2f}"
            f"{share(commit, 0.5):>20.2f}{share(commit, 0.99):>8.2f}{share(call, 0.5) / base:>8.1f}"
        )


def share(ordered: list[float], part: float) -> float:
    return ordered[min(len(ordered) - 1, int(len(ordered) * part))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=500, help="jobs of each way")
    parser.add_argument("--child", choices=["raw", "node"], help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    match args.child:
        case "raw":
            wait_raw(args.folder)
        case "node":
            asyncio.run(wait_node(args.folder))
        case _:
            with tempfile.TemporaryDirectory(prefix="mainspring-bench-") as folder:
                report(asyncio.run(measure(Path(folder), args.count)))


if __name__ == "__main__":
    main()
