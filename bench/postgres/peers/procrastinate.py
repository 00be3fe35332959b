"""procrastinate as its documentation shows it: psycopg, LISTEN on, twenty jobs at a time, for latency and idle cost.

It fetches one job for each round trip, so its drain would only make a benchmark longer.
"""

# mypy: disable-error-code="import-not-found, misc, untyped-decorator"
# It is installed in an environment of its own, where no type checker goes.

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import procrastinate

from bench.postgres.kit.child import Marks, be_idle, ready, serve, told

CONCURRENCY = 20


async def install(dsn: str) -> None:
    async with opened(dsn) as app:
        await app.schema_manager.apply_schema_async()


async def wait(dsn: str) -> list[tuple[int, int]]:
    """Run a worker until the parent has said enough."""
    marks = Marks()
    async with worker(dsn, marks.start):
        await asyncio.sleep(1)  # it does not tell when it listens
        ready()
        await told()
    return marks.all


async def give(dsn: str, count: int, spacing: tuple[float, float]) -> list[tuple[int, int]]:
    """Enqueue jobs one by one, and say when."""
    marks = Marks()
    async with opened(dsn) as app:
        for number in range(count):
            marks.start(number)
            await app.configure_task("nothing").defer_async(number=number)
            await asyncio.sleep(random.uniform(*spacing))  # noqa: S311 - so as not to beat in time with a poll
    return marks.all


async def idle(dsn: str, warm: float, seconds: float) -> dict[str, float]:
    async with worker(dsn, lambda _: None):
        return await be_idle(warm, seconds)


@asynccontextmanager
async def opened(dsn: str) -> AsyncIterator[procrastinate.App]:
    app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=dsn))
    async with app.open_async():
        yield app


@asynccontextmanager
async def worker(dsn: str, started: Callable[[int], None]) -> AsyncIterator[None]:
    async with opened(dsn) as app:

        @app.task(name="nothing")
        async def nothing(number: int) -> None:
            started(number)

        running = asyncio.create_task(app.run_worker_async(concurrency=CONCURRENCY, install_signal_handlers=False))
        try:
            yield
        finally:
            running.cancel()
            await asyncio.wait([running])


if __name__ == "__main__":
    logging.getLogger("procrastinate").setLevel(logging.ERROR)  # it warns of apps that are made in a main program
    serve({action.__name__: action for action in (install, wait, give, idle)})
