"""The programs that the tests beside this file kill, stop and starve: a worker, and a producer of jobs.

Whatever happens is written to one log by all of them, a line for each thing and one `write` for each line, on a file
opened with O_APPEND: lines of several processes never mix, and what was written is there after a kill.

    event     program  job  lease  ns
    ready     w1       -    -      …        the node has joined
    enqueued  p1       …    -      …        the commit was acknowledged
    started   w1       …    3      …        a handler has begun
    key:a     w1       …    3      …        the same one is counted under this key
    returned  w1       …    3      …        its last line; nothing has been settled yet
    raised    w1       …    3      …        so, if it raises
    stopped   w1       …    3      …        so, if it was cancelled
    succeeded w1       …    3      …        a listener was told of an accepted change; so for every other change
    refused   w1       -    7      …        how many ends of attempts the store would not take, at the end of a worker
"""

import argparse
import asyncio
import logging
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from mainspring import Context, Limit, Mainspring, Retry, Unique
from mainspring.client.calls import Call
from mainspring.errors import StoreUnavailable
from mainspring.runtime import process
from mainspring.runtime.call import current_call
from mainspring.runtime.events import StateChange

DATABASE = "jobs.db"
PLENTY = 50
"""Attempts and losses: what is tested is that nothing is lost, not how much bad luck is allowed."""
KEYS = "abcd"
AT_ONCE = 3
"""Jobs of one key that may run at a time, over all workers."""
TOGETHER = 5
"""Jobs of the task `few` that may run at a time, over all workers."""
FAILURES = 2


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


def sqlite_in(folder: Path) -> str:
    return f"sqlite:///{folder / DATABASE}"


def an_app(url: str, tell: Callable[[str], None] = print) -> Mainspring:
    """Declare the tasks. Handlers tell when they begin and when they are about to return."""
    app = Mainspring(url)
    insert = f"INSERT INTO effects (job) VALUES ({'$1' if url.startswith('postgres') else '?'})"  # noqa: S608 - no user's

    @contextmanager
    def telling(key: str = "") -> Iterator[None]:
        tell("started")
        if key:
            tell(f"key:{key}")
        try:
            yield
        except asyncio.CancelledError:
            tell("stopped")
            raise
        except Exception:
            tell("raised")
            raise
        tell("returned")

    async def for_a_while(seconds: float) -> None:
        with telling():
            await asyncio.sleep(seconds)

    async def with_an_effect(ctx: Context, seconds: float) -> None:
        with telling():
            await asyncio.sleep(seconds)
            async with ctx.transaction() as tx:
                await tx.execute(insert, (str(ctx.job),))

    async def exits(seconds: float) -> None:
        tell("started")
        await asyncio.sleep(seconds)
        os._exit(1)

    async def fails_at_first(ctx: Context, seconds: float) -> None:
        with telling():
            await asyncio.sleep(seconds)
            if ctx.attempt <= FAILURES:
                raise RuntimeError("not yet")

    def in_a_thread(seconds: float) -> None:
        with telling():
            time.sleep(seconds)

    async def of_a_key(seconds: float, key: str) -> None:
        with telling(key):
            await asyncio.sleep(seconds)

    patient = app.task(retry=Retry.fixed("200ms", max_attempts=PLENTY), loss_limit=PLENTY)
    patient(name="work")(for_a_while)
    patient(name="effect")(with_an_effect)
    patient(name="flaky")(fails_at_first)
    patient(name="thread")(in_a_thread)
    limited = app.task(
        retry=Retry.fixed("200ms", max_attempts=PLENTY),
        loss_limit=PLENTY,
        limit=Limit(concurrency=AT_ONCE, key="key"),
    )
    limited(name="keyed")(of_a_key)
    app.task(name="few", limit=Limit(concurrency=TOGETHER))(for_a_while)
    app.task(name="unique", unique=Unique(key="key"))(of_a_key)
    app.task(name="neighbour")(for_a_while)
    app.task(name="poison")(exits)
    return app


async def work(url: str, log: Log, *, lease: str, grace: str, concurrency: int) -> None:
    """Be a node until SIGTERM comes."""
    app = an_app(url, log.of_the_attempt)
    app.listener(log.of_a_change)
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    async with app.node(lease=lease, grace=grace, concurrency=concurrency) as node:
        log.write("ready")
        await stop.wait()
    log.write("refused", lease=node.events.counts["refused"])


async def produce(url: str, log: Log, *, rate: float, longest: float) -> None:
    """Enqueue jobs at about this rate, in batches of every size, for as long as this program is let live."""
    app = an_app(url)
    tasks = [app.find("effect"), *[app.find("work")] * 9]
    async with app:
        while True:
            size = random.choice([1, 1, 2, 10, 100])  # noqa: S311 - chance, no secret
            calls = [random.choice(tasks).call(random.uniform(0, longest)) for _ in range(size)]  # noqa: S311 - as above
            await enqueue(app, log, calls)
            await asyncio.sleep(size / rate)


async def mix(url: str, log: Log, *, rate: float, count: int) -> None:
    """Enqueue so many jobs of every kind at about this rate, however often that has to be tried, and end."""
    app = an_app(url)
    began, done = time.monotonic(), 0
    while done < count:
        size = min(count - done, random.choice([1, 1, 2, 10, 100]))  # noqa: S311 - chance, no secret
        await enqueue(app, log, [a_call(app) for _ in range(size)])
        done += size
        await asyncio.sleep(max(0.0, began + done / rate - time.monotonic()))
    await app.close()


def a_call(app: Mainspring) -> Call[Any]:
    """Choose a job: most do nothing, some take their time, some fail at first, some have to wait for others."""
    (kind,) = random.choices(  # noqa: S311 - chance, no secret
        ["work", "slow", "flaky", "thread", "keyed", "effect"], weights=[70, 8, 4, 7, 5, 6]
    )
    length = random.uniform(0.0, 0.05)  # noqa: S311 - as above
    match kind:
        case "work":
            return app.find("work").call(0.0)
        case "slow":
            return app.find("work").call(random.uniform(0.5, 2.0))  # noqa: S311 - as above
        case "keyed":
            return app.find("keyed").call(length, random.choice(KEYS))  # noqa: S311 - as above
        case _:
            return app.find(kind).call(length)


async def enqueue(app: Mainspring, log: Log, calls: list[Call[Any]]) -> None:
    """Enqueue until it is acknowledged. The ids are the calls' own: what is repeated is there once."""
    while True:
        try:
            jobs = await app.enqueue_many(calls)
        except StoreUnavailable:
            continue  # it has waited long enough by itself
        for job in jobs:
            log.write("enqueued", job.id)
        return


async def keyed(url: str, log: Log, *, count: int, task: str) -> None:
    """Enqueue so many jobs one by one, for each key in turn; say which were there already."""
    async with an_app(url) as app:
        for number in range(count):
            job = await app.find(task).enqueue(0.01, KEYS[number % len(KEYS)])
            log.write("fresh" if job.fresh else "there", job.id)


def end_with_the_parent() -> None:
    """Outlive nobody: the parent holds the other end of standard input for as long as it lives."""

    def wait() -> None:
        sys.stdin.read()
        os._exit(3)

    threading.Thread(target=wait, name="parent", daemon=True).start()


def choose_by_seed(program: str) -> None:
    """Make the random choices of this process by the seed of the run, which tests/tier.py passes on."""
    random.seed(f"{os.environ.get('MAINSPRING_SEED', '1')} {program}")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=["work", "produce", "mix", "keyed", "unique"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("name")
    parser.add_argument("--url")
    parser.add_argument("--host", help="pretend to be on a machine of that name, where nobody sees whether it lives")
    parser.add_argument("--lease", default="15s")
    parser.add_argument("--grace", default="30s")
    parser.add_argument("--concurrency", type=int, default=20)
    parser.add_argument("--rate", type=float, default=100.0)
    parser.add_argument("--count", type=int, default=0)
    parser.add_argument("--longest", type=float, default=0.05)
    args = parser.parse_args()
    end_with_the_parent()
    choose_by_seed(args.name)
    logging.basicConfig(format="%(asctime)s.%(msecs)03d %(levelname)s %(name)s: %(message)s", datefmt="%H:%M:%S")
    if args.host:
        process.host = cache(lambda: str(args.host))
    log = Log(args.folder, args.name)
    url = args.url or sqlite_in(args.folder)
    match args.kind:
        case "work":
            asyncio.run(work(url, log, lease=args.lease, grace=args.grace, concurrency=args.concurrency))
        case "produce":
            asyncio.run(produce(url, log, rate=args.rate, longest=args.longest))
        case "mix":
            asyncio.run(mix(url, log, rate=args.rate, count=args.count))
        case _:
            asyncio.run(keyed(url, log, count=args.count, task=args.kind))


if __name__ == "__main__":
    main()
