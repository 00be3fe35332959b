"""Mainspring as a user would use it, through its public names only: the same actions as the peers."""

import asyncio
import itertools
import random
from typing import Any

import asyncpg

from bench.postgres.kit.child import Marks, Reading, Took, be_idle, ready, serve, told
from mainspring import Limit, Mainspring, Unique

CONCURRENCY = 100  # jobs that a node runs at a time, as pgqueuer takes batches of 100
TOGETHER = 50
CHUNK = 10_000  # jobs for each call of `enqueue_many` that fills
LOOK = 0.002  # seconds between two looks at how many are done

LIMITS: dict[str, dict[str, Any]] = {
    "plain": {},
    "keyed": {"limit": Limit(concurrency=1, key="key")},
    "task": {"limit": Limit(concurrency=1000)},
    "unique": {"unique": Unique(key="number")},
}
KEYS = 10_000


class Subject:
    """An app with one task that does nothing."""

    def __init__(self, dsn: str, kind: str = "plain") -> None:
        self.app = Mainspring(dsn)
        self.first: Reading | None = None

        @self.app.task(name="nothing", **LIMITS[kind])
        async def nothing(number: int, key: int) -> None:  # noqa: ARG001 - for limits and unique keys
            if self.first is None:
                self.first = Reading()

        self.task = nothing

    async def fill(self, jobs: int, *, later: bool = False, tx: object = None) -> None:
        task = self.task.using(delay="365d") if later else self.task
        for begin in range(0, jobs, CHUNK):
            numbers = range(begin, min(begin + CHUNK, jobs))
            await self.app.enqueue_many([task.call(number, number % KEYS) for number in numbers], tx=tx)


async def install(dsn: str, kind: str = "plain") -> None:
    async with Subject(dsn, kind).app:
        pass


async def fill(dsn: str, jobs: int, *, later: bool = False, kind: str = "plain") -> None:
    subject = Subject(dsn, kind)
    async with subject.app:
        await subject.fill(jobs, later=later)


async def drain(dsn: str, jobs: int, kind: str = "plain") -> Took:
    subject = Subject(dsn, kind)
    async with subject.app.node(concurrency=CONCURRENCY) as node:
        while node.events.counts["succeeded"] < jobs:  # noqa: ASYNC110 - a listener would slow down what is measured
            await asyncio.sleep(LOOK)
        return subject.first.since() if subject.first else Took(0, 0)


async def rounds(dsn: str, jobs: int, rounds: int) -> list[float]:
    """Fill and drain again and again, once before the parent has its say; return the seconds of each round.

    Each round is enqueued in one transaction of the caller's, so that all of its jobs are there at once.
    """
    subject = Subject(dsn)
    took = []
    connection = await asyncpg.connect(dsn)
    async with subject.app.node(concurrency=CONCURRENCY) as node:
        for number in range(rounds + 1):
            subject.first = None
            async with connection.transaction():
                await subject.fill(jobs, tx=connection)
            while node.events.counts["succeeded"] < jobs * (number + 1):  # noqa: ASYNC110 - as above
                await asyncio.sleep(LOOK)
            took.append((subject.first or Reading()).since().clock)
            if number == 0:
                ready()
                await told()
    await connection.close()
    return took[1:]


async def enqueue(dsn: str, way: str, count: int, bulk: int) -> Took:
    subject, numbers = Subject(dsn), itertools.count()

    async def enqueue_all(last: int) -> None:
        while (number := next(numbers)) < last:
            await subject.task.enqueue(number, number)

    async with subject.app:
        for number in range(20):
            await subject.task.enqueue(number, number)
        began = Reading()
        match way:
            case "one by one":
                for number in range(count):
                    await subject.task.enqueue(number, number)
            case "50 together":
                await asyncio.gather(*(enqueue_all(count) for _ in range(TOGETHER)))
            case "bulk":
                for begin in range(0, count, bulk):
                    calls = [subject.task.call(number, number) for number in range(begin, begin + bulk)]
                    await subject.task.enqueue_many(calls)
            case _:
                raise ValueError(way)
        return began.since()


async def wait(dsn: str) -> list[tuple[int, int]]:
    """Run a node until the parent has said enough."""
    app, marks = Mainspring(dsn), Marks()

    @app.task(name="nothing")
    async def nothing(number: int, key: int) -> None:  # noqa: ARG001 - the task of `Subject`
        marks.start(number)

    async with app.node(concurrency=CONCURRENCY):
        await asyncio.sleep(1)  # as long as the peers, which do not tell when they listen
        ready()
        await told()
    return marks.all


async def give(dsn: str, count: int, spacing: tuple[float, float]) -> list[tuple[int, int]]:
    """Enqueue jobs one by one, and say when."""
    subject, marks = Subject(dsn), Marks()
    async with subject.app:
        for number in range(count):
            marks.start(number)
            await subject.task.enqueue(number, number)
            await asyncio.sleep(random.uniform(*spacing))  # noqa: S311 - so as not to beat in time with a poll
    return marks.all


async def idle(dsn: str, warm: float, seconds: float) -> dict[str, float]:
    async with Subject(dsn).app.node():
        return await be_idle(warm, seconds)


if __name__ == "__main__":
    serve({action.__name__: action for action in (install, fill, drain, rounds, enqueue, wait, give, idle)})
