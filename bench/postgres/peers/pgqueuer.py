"""pgqueuer with the settings that were fastest here, of those that its documentation offers.

Batches of 100, and so acknowledgements in buffers of 100; no cap on tasks; uvloop, as its own command line uses it;
a pool of four connections, so that a batch can be fetched while another is acknowledged; its own tuning of autovacuum;
all tables logged (`durable`, the default). Tried beside: one connection reached about 0.9 of that, two consumers in
the process about 0.95, and the standard event loop was slower than all of them.

It acknowledges by id alone: a job that another worker has taken over meanwhile is settled all the same.
"""

# mypy: disable-error-code="import-not-found, misc, untyped-decorator"
# It is installed in an environment of its own, where no type checker goes.

import asyncio
import itertools
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import asyncpg
import uvloop
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver, AsyncpgPoolDriver
from pgqueuer.models import Job
from pgqueuer.queries import Queries

from bench.postgres.kit.child import Drain, Marks, Reading, Took, be_idle, ready, serve, told

BATCH = 100
CONNECTIONS = 4
TOGETHER = 50
CHUNK = 10_000  # jobs for each statement that fills
LATER = timedelta(days=365)


class Counted(Queries):
    """Its statements, with a word after each acknowledgement."""

    def __init__(self, driver: AsyncpgPoolDriver, settled: Callable[[int], None]) -> None:
        super().__init__(driver)
        self._settled = settled

    async def log_jobs(self, job_status: list[Any]) -> None:
        await super().log_jobs(job_status)
        self._settled(len(job_status))


async def install(dsn: str) -> None:
    async with queries(dsn) as ours:
        await ours.install()
        await ours.optimize_autovacuum()


async def fill(dsn: str, jobs: int, *, later: bool = False) -> None:
    async with queries(dsn) as ours:
        for begin in range(0, jobs, CHUNK):
            await enqueue_many(ours, min(CHUNK, jobs - begin), LATER if later else None)


async def drain(dsn: str, jobs: int) -> Took:
    drain = Drain(jobs)
    async with worker(dsn, lambda _: drain.start(), drain.settle):
        return await drain.end()


async def rounds(dsn: str, jobs: int, rounds: int) -> list[float]:
    """Fill and drain again and again, once before the parent has its say; return the seconds of each round."""
    now = Drain(jobs)
    took = []
    async with (
        queries(dsn) as ours,
        worker(dsn, lambda _: now.start(), lambda count: now.settle(count)),  # noqa: PLW0108 - `now` changes
    ):
        for number in range(rounds + 1):
            now = Drain(jobs)
            await enqueue_many(ours, jobs)
            took.append((await now.end()).clock)
            if number == 0:
                ready()
                await told()
    return took[1:]


async def enqueue(dsn: str, way: str, count: int, bulk: int) -> Took:
    async with queries(dsn) as ours, asyncpg.create_pool(dsn, min_size=10, max_size=10) as pool:
        many, numbers = Queries(AsyncpgPoolDriver(pool)), itertools.count()

        async def enqueue_all(last: int) -> None:
            while next(numbers) < last:
                await many.enqueue("nothing", b"1")

        for _ in range(20):
            await ours.enqueue("nothing", b"1")
        began = Reading()
        match way:
            case "one by one":
                for _ in range(count):
                    await ours.enqueue("nothing", b"1")
            case "50 together":
                await asyncio.gather(*(enqueue_all(count) for _ in range(TOGETHER)))
            case "bulk":
                for _ in range(0, count, bulk):
                    await enqueue_many(ours, bulk)
            case _:
                raise ValueError(way)
        return began.since()


async def wait(dsn: str) -> list[tuple[int, int]]:
    """Run a worker until the parent has said enough."""
    marks = Marks()
    async with worker(dsn, lambda job: marks.start(int(job.payload or b"0"))):
        await asyncio.sleep(1)  # it does not tell when it listens
        ready()
        await told()
    return marks.all


async def give(dsn: str, count: int, spacing: tuple[float, float]) -> list[tuple[int, int]]:
    """Enqueue jobs one by one, and say when."""
    marks = Marks()
    async with queries(dsn) as ours:
        for number in range(count):
            marks.start(number)
            await ours.enqueue("nothing", str(number).encode())
            await asyncio.sleep(random.uniform(*spacing))  # noqa: S311 - so as not to beat in time with a poll
    return marks.all


async def idle(dsn: str, warm: float, seconds: float) -> dict[str, float]:
    async with worker(dsn, lambda _: None):
        return await be_idle(warm, seconds)


@asynccontextmanager
async def queries(dsn: str) -> AsyncIterator[Queries]:
    connection = await asyncpg.connect(dsn)
    try:
        yield Queries(AsyncpgDriver(connection))
    finally:
        await connection.close()


async def enqueue_many(ours: Queries, count: int, delay: timedelta | None = None) -> None:
    await ours.enqueue(["nothing"] * count, [b"1"] * count, [0] * count, [delay] * count)


@asynccontextmanager
async def worker(
    dsn: str, started: Callable[[Job], None], settled: Callable[[int], None] = lambda _: None
) -> AsyncIterator[None]:
    async with asyncpg.create_pool(dsn, min_size=CONNECTIONS, max_size=CONNECTIONS) as pool:
        driver = AsyncpgPoolDriver(pool)
        pgq = PgQueuer(driver, queries=Counted(driver, settled))

        @pgq.entrypoint("nothing")
        async def nothing(job: Job) -> None:
            started(job)

        running = asyncio.create_task(pgq.run(batch_size=BATCH))
        try:
            yield
        finally:
            pgq.shutdown.set()
            await running


if __name__ == "__main__":
    serve({action.__name__: action for action in (install, fill, drain, rounds, enqueue, wait, give, idle)}, uvloop.run)
