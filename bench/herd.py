"""Claims and statements that one job costs when several nodes are idle, on PostgreSQL.

Each node is a process of its own; jobs do nothing and are enqueued by other processes. Phases with the same nodes: no jobs
at all, isolated jobs about a second apart, a steady 50 jobs/s from five processes, and isolated jobs while all places of
all nodes but one are taken. Idle nodes poll once a second; the rate of the first phase is subtracted.

    python -m bench.herd [--nodes 12] [--seconds 10] [--concurrency 10]

With PYTHONPATH set to the `src` of another checkout, the same script measures that one. The target is 2 claims per job.
"""

import argparse
import asyncio
import json
import random
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

from bench.postgres.kit.server import database, durable_server
from mainspring import Mainspring
from mainspring.stores.postgres import PostgresStore
from mainspring.stores.records import Claimed, ClaimRequest

MAX_CLAIMS_PER_JOB = 2.0
CLIENTS = 5
BUSY_RATE = 50.0  # jobs per second from all clients together
WARM_UP_S = 4.0  # two renewals: each node has read which other nodes are alive
SHOWN = 10  # statements of each phase that are listed

ONE_FREE = "isolated, one place free"

PREFIX = "%n|%d|"  # seconds since 1970, database
EXECUTED = re.compile(r"(?P<time>\d+\.\d+)\|(?P<database>\w+)\|LOG:  (?:statement|execute [^:]+): (?P<text>.*)")


# In child processes.


class CountingStore(PostgresStore):
    """A store that counts claims."""

    claims = 0

    async def claim(self, request: ClaimRequest) -> Claimed:
        self.claims += 1
        return await super().claim(request)


async def run_node(dsn: str, concurrency: int) -> None:
    """Run a node; answer each line of input with the number of claims so far and the start times of jobs since the last."""
    store = CountingStore(dsn)
    app = Mainspring(store=store)
    started: list[tuple[int, int]] = []

    @app.task(name="nothing")
    async def nothing(number: int) -> None:
        started.append((number, time.monotonic_ns()))

    @app.task(name="block")
    async def block() -> None:
        await asyncio.sleep(3600)

    async with app.node(concurrency=concurrency):
        print("ready", flush=True)
        while await asyncio.to_thread(sys.stdin.readline):
            print(json.dumps([store.claims, started]), flush=True)
            started.clear()


async def run_client(dsn: str, first: int, count: int, spacing: float) -> None:
    """Enqueue jobs one by one; print when each enqueue began."""
    app = Mainspring(dsn)

    @app.task(name="nothing")
    async def nothing(number: int) -> None: ...

    called = []
    async with app:
        for number in range(first, first + count):
            await asyncio.sleep(spacing * random.uniform(0.8, 1.2))  # noqa: S311 - not in step with a poll
            called.append((number, time.monotonic_ns()))
            await nothing.enqueue(number)
    print(json.dumps(called), flush=True)


async def run_filler(dsn: str, count: int) -> None:
    """Enqueue jobs that take a place and keep it."""
    app = Mainspring(dsn)

    @app.task(name="block")
    async def block() -> None: ...

    async with app:
        await block.enqueue_many([block.call() for _ in range(count)])
    print("done", flush=True)


# In the parent.


class Reading(NamedTuple):
    """Claims of all nodes in a phase, and waits of its jobs."""

    began: float
    ended: float
    claims: int
    waits_ms: list[float]


class Child:
    """A process that runs a node or a client."""

    def __init__(self, kind: str, **options: object) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bench.herd", kind, json.dumps(options)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).resolve().parents[1],
        )

    def read_line(self) -> str:
        line = self._process.stdout.readline() if self._process.stdout else ""
        return line or sys.exit("a child process ended early")

    def ask(self) -> Any:  # noqa: ANN401 - JSON
        if self._process.stdin:
            self._process.stdin.write("\n")
            self._process.stdin.flush()
        return json.loads(self.read_line())

    def kill(self) -> None:
        self._process.kill()

    def wait(self) -> None:
        self._process.wait()


def measure(dsn: str, nodes: list[Child], seconds: float, *, clients: int, jobs: int) -> Reading:
    """Run one phase: that many clients enqueue that many jobs together, spread over the time."""
    before = sum(claims for claims, _ in ask_all(nodes))
    began = time.time()
    each = jobs // clients if clients else 0
    running = [
        Child("client", dsn=dsn, first=index * each, count=each, spacing=seconds / each) for index in range(clients)
    ]
    called = dict(pair for child in running for pair in json.loads(child.read_line()))
    time.sleep(1.5 if clients else seconds)
    ended = time.time()
    answers = ask_all(nodes)
    started = dict(pair for _, pairs in answers for pair in pairs)
    if missing := called.keys() - started.keys():
        sys.exit(f"{len(missing)} of {len(called)} jobs were never started")
    for child in running:
        child.wait()
    waits = sorted((started[number] - at) / 1e6 for number, at in called.items())
    return Reading(began, ended, sum(claims for claims, _ in answers) - before, waits)


def ask_all(nodes: list[Child]) -> list[Any]:
    return [node.ask() for node in nodes]


def statements(log: str, name: str, reading: Reading) -> Counter[str]:
    lines = log.replace("\n\t", " ").splitlines()  # a statement of several lines is one
    return Counter(
        re.sub(r"\d{4,}.*'", "…'", " ".join(match["text"].split()))
        for match in map(EXECUTED.match, lines)
        if match and match["database"] == name and reading.began <= float(match["time"]) <= reading.ended
    )


def share(ordered: list[float], part: float) -> float:
    return ordered[min(len(ordered) - 1, int(len(ordered) * part))]


def main(arguments: Iterable[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--nodes", type=int, default=12)
    parser.add_argument("--seconds", type=float, default=10.0, help="length of each phase")
    parser.add_argument("--concurrency", type=int, default=10, help="jobs that each node runs at a time")
    args = parser.parse_args(list(arguments))
    is_met = True
    with durable_server() as server, database(server) as name, ExitStack() as ends:
        server.sql(f"ALTER SYSTEM SET log_line_prefix = '{PREFIX}'")
        server.sql("SELECT pg_reload_conf()")
        server.sql(f"ALTER DATABASE {name} SET log_statement = 'all'")
        dsn = server.dsn(name)
        nodes = [Child("node", dsn=dsn, concurrency=args.concurrency) for _ in range(args.nodes)]
        for end in ("wait", "kill"):  # run in reverse order: all nodes are killed before the first wait
            for node in nodes:
                ends.callback(getattr(node, end))
        for node in nodes:
            node.read_line()
        warm = Child("client", dsn=dsn, first=0, count=20, spacing=WARM_UP_S / 20)
        warm.read_line()
        ask_all(nodes)

        idle = measure(dsn, nodes, args.seconds, clients=0, jobs=0)
        length = idle.ended - idle.began
        idle_claims, idle_statements = idle.claims / length, statements(server.log, name, idle).total() / length
        print(f"{args.nodes} nodes, idle: {idle_claims:.1f} claims/s, {idle_statements:.1f} statements/s")
        for title, clients, jobs in (
            ("isolated", 1, int(args.seconds)),
            ("50 jobs/s", CLIENTS, int(args.seconds * BUSY_RATE)),
            (ONE_FREE, 1, int(args.seconds)),
        ):
            if title == ONE_FREE:
                Child("filler", dsn=dsn, count=args.nodes * args.concurrency - 1).read_line()
                time.sleep(WARM_UP_S)
            reading = measure(dsn, nodes, args.seconds, clients=clients, jobs=jobs)
            found = statements(server.log, name, reading)
            length = reading.ended - reading.began
            claims = (reading.claims - idle_claims * length) / jobs
            others = (found.total() - idle_statements * length) / jobs
            print(
                f"{title}: {claims:.2f} claims and {others:.2f} statements per job beyond idle"
                f" ({reading.claims / jobs:.2f} and {found.total() / jobs:.2f} in all);"
                f" wait p50 {share(reading.waits_ms, 0.5):.1f} ms, p99 {share(reading.waits_ms, 0.99):.1f} ms,"
                f" max {reading.waits_ms[-1]:.1f} ms"
            )
            for text, count in found.most_common(SHOWN):
                print(f"    {count / jobs:6.2f} per job  {text[:100]}")
            is_met = is_met and claims <= MAX_CLAIMS_PER_JOB
    print("at most 2 claims per job:", "met" if is_met else "MISSED")
    return 0 if is_met else 1


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["node", options]:
            asyncio.run(run_node(**json.loads(options)))
        case ["client", options]:
            asyncio.run(run_client(**json.loads(options)))
        case ["filler", options]:
            asyncio.run(run_filler(**json.loads(options)))
        case arguments:
            sys.exit(main(arguments))
