"""The programs that the tests beside this file kill, stop and starve: a worker, and a producer of jobs.

Whatever happens is written to one log by all of them, a line for each thing and one `write` for each line, on a file
opened with O_APPEND: lines of several processes never mix, and what was written is there after a kill.

    event     program  job  lease  ns
    ready     w1       -    -      …        the node has joined
    enqueued  p1       …    -      …        the commit was acknowledged
    started   w1       …    3      …        a handler has begun
    returned  w1       …    3      …        its last line; nothing has been settled yet
    succeeded w1       …    3      …        a listener was told of an accepted change; so for every other change
    refused   w1       -    7      …        how many ends of attempts the store would not take, at the end of a worker
"""

import argparse
import asyncio
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from mainspring import Context, Mainspring, Retry
from mainspring.runtime.call import current_call
from mainspring.runtime.events import StateChange

DATABASE = "jobs.db"
PLENTY = 50
"""Attempts and losses: what is tested is that nothing is lost, not how much bad luck is allowed."""


class Log:
    """The log that all share."""

    def __init__(self, folder: Path, program: str) -> None:
        self._file = os.open(folder / "log", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        self._program = program

    def write(self, event: str, job: object = "-", lease: object = "-") -> None:
        os.write(self._file, f"{event} {self._program} {job} {lease} {time.monotonic_ns()}\n".encode())

    def of_the_attempt(self, event: str) -> None:
        """Write a line about the attempt that the calling code belongs to."""
        call = current_call.get()
        assert call is not None
        self.write(event, call.job, call.lease)

    def of_a_change(self, change: StateChange) -> None:
        """Be a node's listener."""
        self.write(change.event, change.job.id, change.job.lease)


def an_app(folder: Path, tell: Callable[[str], None] = print) -> Mainspring:
    """Declare the tasks. Handlers tell when they begin and when they are about to return."""
    app = Mainspring(f"sqlite:///{folder / DATABASE}")

    async def for_a_while(seconds: float) -> None:
        tell("started")
        await asyncio.sleep(seconds)
        tell("returned")

    async def with_an_effect(ctx: Context, seconds: float) -> None:
        tell("started")
        await asyncio.sleep(seconds)
        async with ctx.transaction() as tx:
            await tx.execute("INSERT INTO effects (job) VALUES (?)", (str(ctx.job),))
        tell("returned")

    async def exits(seconds: float) -> None:
        tell("started")
        await asyncio.sleep(seconds)
        os._exit(1)

    patient = app.task(retry=Retry.exponential(max_attempts=PLENTY), loss_limit=PLENTY)
    patient(name="work")(for_a_while)
    patient(name="effect")(with_an_effect)
    app.task(name="neighbour")(for_a_while)
    app.task(name="poison")(exits)
    return app


async def work(folder: Path, log: Log, *, lease: str, grace: str, concurrency: int) -> None:
    """Be a node until SIGTERM comes."""
    app = an_app(folder, log.of_the_attempt)
    app.listener(log.of_a_change)
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    async with app.node(lease=lease, grace=grace, concurrency=concurrency) as node:
        log.write("ready")
        await stop.wait()
    log.write("refused", lease=node.events.counts["refused"])


async def produce(folder: Path, log: Log, *, rate: float, longest: float) -> None:
    """Enqueue jobs at about this rate, in batches of every size, for as long as this program is let live."""
    app = an_app(folder)
    tasks = [app.find("effect"), *[app.find("work")] * 9]
    async with app:
        while True:
            size = random.choice([1, 1, 2, 10, 100])  # noqa: S311 - chance, no secret
            calls = [random.choice(tasks).call(random.uniform(0, longest)) for _ in range(size)]  # noqa: S311 - as above
            for job in await app.enqueue_many(calls):
                log.write("enqueued", job.id)
            await asyncio.sleep(size / rate)


def end_with_the_parent() -> None:
    """Outlive nobody: the parent holds the other end of standard input for as long as it lives."""

    def wait() -> None:
        sys.stdin.read()
        os._exit(3)

    threading.Thread(target=wait, name="parent", daemon=True).start()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=["work", "produce"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("name")
    parser.add_argument("--lease", default="15s")
    parser.add_argument("--grace", default="30s")
    parser.add_argument("--concurrency", type=int, default=20)
    parser.add_argument("--rate", type=float, default=100.0)
    parser.add_argument("--longest", type=float, default=0.05)
    args = parser.parse_args()
    end_with_the_parent()
    log = Log(args.folder, args.name)
    if args.kind == "work":
        asyncio.run(work(args.folder, log, lease=args.lease, grace=args.grace, concurrency=args.concurrency))
    else:
        asyncio.run(produce(args.folder, log, rate=args.rate, longest=args.longest))


if __name__ == "__main__":
    main()
