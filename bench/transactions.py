"""Throughput of handler transactions on SQLite, by the concurrency of the node.

Each handler opens `ctx.transaction()`, inserts a row of its own and sets a result. SQLite has one write lock, so more
handlers at once cannot make it faster; the target is that they do not make it slower: at a concurrency of 20 and of 300
at least 0.8 of the transactions a second at 5. Beside the node the same process enqueues a job every 20 ms; "enqueue"
is how long that takes. "renewals" is the longest time between two renewals of the node's lease, as the table has them.

The concurrencies are measured in turns, each in a process of its own on a file of its own, without syncing
(`durable=false`), so that the figures are those of the locks and not of the disk. `--against FOLDER` measures the
package of another checkout in the same turns.
"""

import argparse
import asyncio
import json
import os
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

CONCURRENCIES = (1, 5, 20, 300)
REFERENCE = 5  # the concurrency that the others are compared with
WARM_UP_S = 1.0
BACKLOG = 8_000  # more jobs than any window can end
HERE = Path(__file__).resolve().parent.parent


class Measured(NamedTuple):
    """What one process has measured; times in milliseconds."""

    per_second: float
    enqueue_median: float
    enqueue_worst: float
    renewal_gap: float


async def measure(path: Path, concurrency: int, seconds: float) -> Measured:
    from mainspring import Context, Mainspring  # noqa: PLC0415 - of the checkout that the child was given

    app = Mainspring(f"sqlite:///{path}?durable=false")
    ended = 0

    @app.task(name="write")
    async def write(ctx: Context, number: int) -> None:
        nonlocal ended
        async with ctx.transaction(limit="60s") as tx:
            await tx.execute("INSERT INTO numbers VALUES (?)", (number,))
            tx.finish(None)
        ended += 1

    @app.task(name="beside", queue="beside")
    async def beside() -> None: ...

    enqueued: list[float] = []

    async def enqueue_beside() -> None:
        while True:
            began = time.perf_counter()
            await beside.enqueue()
            enqueued.append((time.perf_counter() - began) * 1e3)
            await asyncio.sleep(0.02)

    async with app:
        await write.enqueue_many([write.call(number) for number in range(BACKLOG)])
    with closing(sqlite3.connect(path, timeout=10)) as connection, connection:
        connection.execute("CREATE TABLE numbers (number INTEGER)")
    async with app.node(concurrency=concurrency, queues=["default"]):
        caller = asyncio.create_task(enqueue_beside())
        await asyncio.sleep(WARM_UP_S)
        began, before = time.perf_counter(), ended
        gap = await renewal_gap(path, seconds)
        per_second = (ended - before) / (time.perf_counter() - began)
        if caller.done():
            caller.result()  # raises: it has no other end
        answer = Measured(per_second, statistics.median(enqueued or [0]), max(enqueued or [0]), gap)
        print(json.dumps(answer), flush=True)
        os._exit(0)  # what still waits for the lock is of no interest


async def renewal_gap(path: Path, seconds: float) -> float:
    """Read for some seconds when the node has renewed, and return the longest time between two renewals."""
    give_up_at = time.monotonic() + seconds
    with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as connection:
        longest = 0
        while time.monotonic() < give_up_at:
            ((renewed_at,),) = connection.execute("SELECT renewed_at FROM mainspring_nodes").fetchall()
            longest = max(longest, time.time_ns() // 1000 - renewed_at)
            await asyncio.sleep(0.02)
    return longest / 1e3


def in_a_child(checkout: Path, concurrency: int, seconds: float) -> Measured:
    with tempfile.TemporaryDirectory(prefix="mainspring-bench-") as folder:
        command = [sys.executable, __file__, "--child", str(concurrency), "--seconds", str(seconds)]
        command += ["--file", f"{folder}/bench.db"]
        environment = os.environ | {"PYTHONPATH": str(checkout / "src")}
        run = subprocess.run(command, check=True, stdout=subprocess.PIPE, timeout=seconds + 300, env=environment)
    return Measured(*json.loads(run.stdout))


def compare(checkouts: dict[str, Path], rounds: int, seconds: float) -> None:
    found: dict[tuple[str, int], list[Measured]] = {
        (name, concurrency): [] for name in checkouts for concurrency in CONCURRENCIES
    }
    for _ in range(rounds):
        for (name, concurrency), measured in found.items():
            measured.append(in_a_child(checkouts[name], concurrency, seconds))
    print(
        f"Python {sys.version.split()[0]}, SQLite {sqlite3.sqlite_version}, median of {rounds} rounds of {seconds:g} s"
    )
    for name in checkouts:
        report(name, {concurrency: found[name, concurrency] for concurrency in CONCURRENCIES})


def report(name: str, found: dict[int, list[Measured]]) -> None:
    medians = {
        concurrency: Measured(*map(statistics.median, zip(*measured, strict=True)))
        for concurrency, measured in found.items()
    }
    print(f"\n{name}")
    print(
        f"{'concurrency':<12}{'tx/s':>8}{'spread':>14}{f'× at {REFERENCE}':>9}{'enqueue p50':>13}{'worst':>10}{'renewals':>11}"
    )
    for concurrency, one in medians.items():
        speeds = [measured.per_second for measured in found[concurrency]]
        print(
            f"{concurrency:<12}{one.per_second:>8.0f}{f'{min(speeds):.0f}-{max(speeds):.0f}':>14}"
            f"{one.per_second / medians[REFERENCE].per_second:>9.2f}{one.enqueue_median:>10.1f} ms"
            f"{one.enqueue_worst:>7.0f} ms{one.renewal_gap:>8.0f} ms"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=5.0, help="that each concurrency is measured for in a round")
    parser.add_argument("--against", type=Path, metavar="FOLDER", help="another checkout, measured in the same turns")
    parser.add_argument("--child", type=int, metavar="CONCURRENCY", help=argparse.SUPPRESS)
    parser.add_argument("--file", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        asyncio.run(measure(args.file, args.child, args.seconds))
        return
    others = {"other checkout": args.against.resolve()} if args.against else {}
    compare({**others, "this checkout": HERE}, args.rounds, args.seconds)


if __name__ == "__main__":
    main()
