"""The least that a queue on PostgreSQL can do: loops over asyncpg, with the durability of everyone else.

Nothing is started and nothing is decided, so this is what all others are held against. A claim takes 100 rows with one
statement, a settle moves 100 rows to `history` with another, both in autocommit and one after the other on one
connection. Written to be fast: ids are numbers, `history` has no index, and rows are named by `= ANY(…)`; with
`IN (SELECT …)` in the claim and a join with `unnest` in the settle the loop reaches 0.8 of its speed.
"""

import asyncio
import itertools
import random
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta

import asyncpg

from bench.postgres.kit.child import Drain, Marks, Reading, Took, be_idle, ready, serve, told

BATCH = 100
TOGETHER = 50
CONNECTIONS = 10  # for those fifty
POLL = 1.0  # seconds after which a listener looks without having been told
NOW = timedelta(0)

TABLES = """
    CREATE TABLE jobs (
        id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, queue text NOT NULL, priority smallint NOT NULL,
        run_at timestamptz NOT NULL, state smallint NOT NULL DEFAULT 0, lease bigint NOT NULL DEFAULT 0, node text,
        payload bytea NOT NULL
    );
    CREATE INDEX claimable ON jobs (queue, priority DESC, run_at, id) WHERE state = 0;
    CREATE TABLE history (LIKE jobs, finished_at timestamptz NOT NULL);
"""
COLUMNS = ("queue", "priority", "run_at", "payload")
INSERT = "INSERT INTO jobs (queue, priority, run_at, payload) VALUES ($1, $2, $3, $4) RETURNING id"
INSERT_MANY = """
    INSERT INTO jobs (queue, priority, run_at, payload)
    SELECT * FROM unnest($1::text[], $2::smallint[], $3::timestamptz[], $4::bytea[])
"""
INSERT_AND_TELL = """
    WITH made AS (INSERT INTO jobs (queue, priority, run_at, payload) VALUES ($1, $2, $3, $4) RETURNING id)
    SELECT id, pg_notify('jobs', '') FROM made
"""
CLAIM = """
    UPDATE jobs SET state = 1, lease = lease + 1, node = 'raw'
    WHERE id = ANY(ARRAY(
        SELECT id FROM jobs WHERE state = 0 AND queue = 'default' AND run_at <= now()
        ORDER BY priority DESC, run_at, id LIMIT $1 FOR UPDATE SKIP LOCKED
    ))
    RETURNING id, lease, payload
"""
SETTLE = """
    WITH gone AS (DELETE FROM jobs WHERE id = ANY($1::bigint[]) AND node = 'raw' AND state = 1 RETURNING *)
    INSERT INTO history SELECT id, queue, priority, run_at, 2, lease, node, payload, now() FROM gone
"""


async def install(dsn: str) -> None:
    async with connected(dsn) as connection:
        await connection.execute(TABLES)


async def fill(dsn: str, jobs: int, *, later: bool = False) -> None:
    async with connected(dsn) as connection:
        await copy(connection, jobs, timedelta(days=365) if later else NOW)


async def drain(dsn: str, jobs: int) -> Took:
    async with connected(dsn) as connection:
        return await drained(connection, jobs)


async def rounds(dsn: str, jobs: int, rounds: int) -> list[float]:
    """Fill and drain again and again, once before the parent has its say; return the seconds of each round."""
    async with connected(dsn) as connection:
        took = []
        for number in range(rounds + 1):
            await copy(connection, jobs)
            took.append((await drained(connection, jobs)).clock)
            if number == 0:
                ready()
                await told()
        return took[1:]


async def enqueue(dsn: str, way: str, count: int, bulk: int) -> Took:
    async with (
        connected(dsn) as connection,
        asyncpg.create_pool(dsn, min_size=CONNECTIONS, max_size=CONNECTIONS) as pool,
    ):
        numbers = itertools.count()

        async def insert_all(last: int) -> None:
            while next(numbers) < last:
                await pool.fetchval(INSERT, *a_row())

        for _ in range(20):
            await connection.fetchval(INSERT, *a_row())
        began = Reading()
        match way:
            case "one by one":
                for _ in range(count):
                    await connection.fetchval(INSERT, *a_row())
            case "50 together":
                await asyncio.gather(*(insert_all(count) for _ in range(TOGETHER)))
            case "bulk":
                for _ in range(0, count, bulk):
                    await connection.execute(INSERT_MANY, *map(list, zip(*some_rows(bulk), strict=True)))
            case "COPY":
                for _ in range(0, count, bulk):
                    await copy(connection, bulk)
            case _:
                raise ValueError(way)
        return began.since()


async def wait(dsn: str) -> list[tuple[int, int]]:
    """Take jobs one by one as notifications tell of them, until the parent has said enough."""
    marks, bell, end = Marks(), asyncio.Event(), asyncio.create_task(told())
    end.add_done_callback(lambda _: bell.set())
    async with connected(dsn) as listener, connected(dsn) as connection:
        await listener.add_listener("jobs", lambda *_: bell.set())
        await connection.fetch(CLAIM, 1)  # prepared before it counts
        ready()
        while not end.done():
            bell.clear()
            while claimed := await connection.fetch(CLAIM, 1):
                for job, _, payload in claimed:
                    marks.start(int(payload))
                    await connection.execute(SETTLE, [job])
            with suppress(TimeoutError):
                await asyncio.wait_for(bell.wait(), POLL)
    return marks.all


async def give(dsn: str, count: int, spacing: tuple[float, float]) -> list[tuple[int, int]]:
    """Enqueue jobs one by one, and say when."""
    marks = Marks()
    async with connected(dsn) as connection:
        for number in range(count):
            marks.start(number)
            await connection.fetchval(INSERT_AND_TELL, *a_row(payload=str(number).encode()))
            await asyncio.sleep(random.uniform(*spacing))  # noqa: S311 - so as not to beat in time with a poll
    return marks.all


async def idle(dsn: str, warm: float, seconds: float) -> dict[str, float]:
    """Listen, and look once a second."""
    async with connected(dsn) as listener, connected(dsn) as connection:
        await listener.add_listener("jobs", lambda *_: None)

        async def poll() -> None:
            while not await connection.fetch(CLAIM, 1):  # noqa: ASYNC110 - it is a poll that is measured
                await asyncio.sleep(POLL)

        polling = asyncio.create_task(poll())
        found = await be_idle(warm, seconds)
        polling.cancel()
        await asyncio.wait([polling])
        return found


@asynccontextmanager
async def connected(dsn: str) -> "AsyncIterator[asyncpg.Connection[asyncpg.Record]]":
    connection = await asyncpg.connect(dsn)
    try:
        yield connection
    finally:
        await connection.close()


def a_row(delay: timedelta = NOW, payload: bytes = b"[[1],{}]") -> tuple[str, int, datetime, bytes]:
    return "default", 50, datetime.now(UTC) + delay, payload


def some_rows(count: int, delay: timedelta = NOW) -> Iterator[tuple[str, int, datetime, bytes]]:
    return (a_row(delay) for _ in range(count))


async def copy(connection: "asyncpg.Connection[asyncpg.Record]", count: int, delay: timedelta = NOW) -> None:
    await connection.copy_records_to_table("jobs", records=some_rows(count, delay), columns=COLUMNS)


async def drained(connection: "asyncpg.Connection[asyncpg.Record]", jobs: int) -> Took:
    drain = Drain(jobs)
    while claimed := await connection.fetch(CLAIM, BATCH):
        drain.start()
        await connection.execute(SETTLE, [row[0] for row in claimed])
        drain.settle(len(claimed))
    return await drain.end()


if __name__ == "__main__":
    serve({action.__name__: action for action in (install, fill, drain, rounds, enqueue, wait, give, idle)})
