"""What a node costs while there is nothing to do, and whether it grows with what waits.

One node in a process of its own, on SQLite, for some seconds: processor time, SQLite statements (a look at `PRAGMA
data_version` is none: it reads a counter in shared memory), voluntary context switches, resident memory. Once with an
empty store and once with 100,000 jobs that cannot start: a half due in a year, a quarter in a paused queue, a quarter
behind a limit whose only place is taken. A node must not grow with them.

Statements are counted in a run of their own, by a trace on every connection that is opened, so that counting them costs
the other run nothing.
"""

import argparse
import asyncio
import json
import re
import resource
import sqlite3
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from pathlib import Path
from typing import Any

from mainspring import Limit, Mainspring

WARM_UP = 3.0  # seconds: the start of a node is not what is measured here
LOOK = "data_version"
VALUES = re.compile(r"'[^']*'|\b[0-9]+\b")  # a trace shows them in the place of parameters


def an_app(folder: Path) -> Mainspring:
    app = Mainspring(f"sqlite:///{folder}/bench.db")

    @app.task(name="nothing")
    async def nothing(_number: int) -> None: ...

    @app.task(name="limited", limit=Limit(concurrency=1))
    async def limited(_number: int) -> None:
        await asyncio.sleep(3600)

    return app


async def fill(folder: Path, count: int) -> None:
    """Enqueue what cannot start; the first of the limited jobs will stand in the way of the others."""
    app = an_app(folder)
    nothing, limited = app.find("nothing"), app.find("limited")
    later, held = nothing.using(delay="365d"), nothing.using(queue="paused")
    async with app:
        await app.store.pause("paused")
        for start in range(0, count, 4000):
            kinds = (later, later, held, limited)
            numbers = range(start, min(start + 4000, count))
            await app.enqueue_many([kinds[number % 4].call(number) for number in numbers])


async def be_idle(folder: Path, seconds: float, statements: Counter[str] | None) -> dict[str, Any]:
    """Run a node, look at what it costs for a while, and say so."""
    async with an_app(folder).node(grace=0):
        await asyncio.sleep(WARM_UP)
        if statements is not None:
            statements.clear()
        before = resource.getrusage(resource.RUSAGE_SELF)
        await asyncio.sleep(seconds)
        after = resource.getrusage(resource.RUSAGE_SELF)
        counted = dict(statements or {})
        return {
            "cpu": (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) / seconds * 100,
            "switches": (after.ru_nvcsw - before.ru_nvcsw) / seconds,
            "resident": resident(),
            "threads": threading.active_count(),
            "statements": {text: number / seconds for text, number in counted.items() if LOOK not in text},
            "looks": sum(number for text, number in counted.items() if LOOK in text) / seconds,
        }


def resident() -> float:
    """Say how much memory this process has at present, in MB."""
    try:
        for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) / 1024
    except OSError:  # no Linux: the most that it ever had
        pass
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def trace() -> Counter[str]:
    """Count the statements of every connection that is opened from now on."""
    counts: Counter[str] = Counter()
    connect = sqlite3.connect

    def traced(*args: Any, **options: Any) -> sqlite3.Connection:  # noqa: ANN401 - whatever sqlite3.connect takes
        connection: sqlite3.Connection = connect(*args, **options)
        connection.set_trace_callback(lambda text: counts.update([VALUES.sub("?", text)]))
        return connection

    sqlite3.connect = traced  # type: ignore[assignment] # the overloads of the original
    return counts


def in_a_child(folder: Path, seconds: float, *, traced: bool) -> dict[str, Any]:
    command = [sys.executable, __file__, "--child", "--folder", str(folder), "--seconds", str(seconds)]
    command += ["--trace"] if traced else []
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, timeout=seconds + 60)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def compare(seconds: float, count: int) -> None:
    found: dict[str, dict[str, Any]] = {}
    for jobs in (0, count):
        with tempfile.TemporaryDirectory(prefix="mainspring-bench-") as name:
            folder = Path(name)
            if jobs:
                asyncio.run(fill(folder, jobs))
            plain = in_a_child(folder, seconds, traced=False)
            counted = in_a_child(folder, seconds, traced=True)
            found[f"{jobs:,} waiting"] = plain | {key: counted[key] for key in ("statements", "looks")}
    print(f"{'node, idle':<18}{'CPU %':>8}{'statements/s':>14}{'looks/s':>9}{'switches/s':>12}{'threads':>9}{'MB':>8}")
    for name, one in found.items():
        print(
            f"{name:<18}{one['cpu']:>8.2f}{sum(one['statements'].values()):>14.2f}{one['looks']:>9.1f}"
            f"{one['switches']:>12.1f}{one['threads']:>9}{one['resident']:>8.1f}"
        )
    print("\nStatements of the last, most frequent first, each second:")
    for text, rate in sorted(one["statements"].items(), key=lambda pair: -pair[1])[:12]:
        print(f"{rate:>8.2f}  {' '.join(text.split())[:100]}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--jobs", type=int, default=100_000)
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--trace", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        statements = trace() if args.trace else None
        print(json.dumps(asyncio.run(be_idle(args.folder, args.seconds, statements))))
    else:
        compare(args.seconds, args.jobs)


if __name__ == "__main__":
    main()
