"""How fast messages go through an outbox, how soon they arrive, and what a transaction that is held open costs.

through   messages per second, from the first call of publish to the last acknowledgement. Batches of 100, each in a
          transaction of the program's own, profile "high_throughput", a handler that takes batches and does nothing.
          Held against a raw loop with the same driver and the same durability: insert 100 rows and commit, read 100 rows
          behind a cursor, move the cursor and commit. Both take turns.
soon      milliseconds from the commit of a message to the start of its handler on an idle node, in the profile
          "low_latency"; messages come some 15 ms apart. "in a transaction" is one of the program's own, committed by its
          own driver; "by itself" is `publish(None, …)`. The target for p50 is 10 ms.
held      ten rounds on PostgreSQL while another connection holds a transaction open from before the first: once one with
          a snapshot (REPEATABLE READ), once one that has written (it has a transaction id), and beside them none. The
          target for the tenth round is 0.85 of the first.
"""

import argparse
import asyncio
import random
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar

import asyncpg
import psycopg

from bench.postgres.kit.server import database, durable_server
from mainspring import Mainspring, Message
from mainspring.client.outbox import Outbox
from mainspring.outbox import Batch, DeliveryEnded, Outgoing
from tests.servers.postgres import Server

R = TypeVar("R")

BATCH = 100
PARTITIONS = 8
PAYLOAD = "x" * 200
SPACING = (0.010, 0.020)
WARM_UP = 20
SQLITE, POSTGRES = "SQLite", "PostgreSQL"


class Place(Protocol):
    """A database, as a program uses it with its own driver."""

    name: str
    url: str

    def transaction(self) -> Any: ...  # noqa: ANN401 - an async context manager around the driver's connection

    async def raw(self, count: int) -> None: ...


class OnSqlite:
    """A file, by sqlite3."""

    name = SQLITE

    def __init__(self, folder: Path) -> None:
        self.url = f"sqlite:///{folder}/ours.db"
        self._mine = sqlite3.connect(folder / "ours.db", isolation_level=None, timeout=30)
        self._raw = sqlite3.connect(folder / "raw.db", isolation_level=None)
        for connection in (self._mine, self._raw):
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")
        self._raw.executescript(RAW_ON_SQLITE)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[object]:
        self._mine.execute("BEGIN IMMEDIATE")
        yield self._mine
        self._mine.execute("COMMIT")

    async def raw(self, count: int) -> None:
        connection, row = self._raw, ("order", PAYLOAD.encode(), "key")
        for _ in range(0, count, BATCH):
            connection.execute("BEGIN IMMEDIATE")
            connection.executemany("INSERT INTO messages (type, payload, key) VALUES (?, ?, ?)", [row] * BATCH)
            connection.execute("COMMIT")
        for _ in range(0, count, BATCH):
            ((done,),) = connection.execute("SELECT done FROM cursors").fetchall()
            read = "SELECT id, type, payload, key FROM messages WHERE id > ? ORDER BY id LIMIT ?"
            rows = connection.execute(read, (done, BATCH)).fetchall()
            connection.execute("UPDATE cursors SET done = ?", (rows[-1][0],))

    async def close(self) -> None:
        self._mine.close()
        self._raw.close()


RAW_ON_SQLITE = """
    CREATE TABLE messages (id INTEGER PRIMARY KEY, type TEXT NOT NULL, payload BLOB NOT NULL, key TEXT);
    CREATE TABLE cursors (done INTEGER NOT NULL);
    INSERT INTO cursors VALUES (0);
"""
RAW_ON_POSTGRES = """
    CREATE TABLE messages (
        id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, type text NOT NULL, payload bytea NOT NULL, key text
    );
    CREATE TABLE cursors (done bigint NOT NULL);
    INSERT INTO cursors VALUES (0);
"""
INSERT = "INSERT INTO messages (type, payload, key) SELECT * FROM unnest($1::text[], $2::bytea[], $3::text[])"


class OnPostgres:
    """A database of a server, by asyncpg."""

    name = POSTGRES

    def __init__(self, url: str, connection: "asyncpg.Connection[Any]") -> None:
        self.url = url
        self._connection = connection

    @classmethod
    async def connect(cls, url: str) -> "OnPostgres":
        connection = await asyncpg.connect(url)
        await connection.execute(RAW_ON_POSTGRES)
        return cls(url, connection)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[object]:
        async with self._connection.transaction():
            yield self._connection

    async def raw(self, count: int) -> None:
        connection = self._connection
        columns = ["order"] * BATCH, [PAYLOAD.encode()] * BATCH, ["key"] * BATCH
        for _ in range(0, count, BATCH):
            async with connection.transaction():
                await connection.execute(INSERT, *columns)
        for _ in range(0, count, BATCH):
            done = await connection.fetchval("SELECT done FROM cursors")
            read = "SELECT id, type, payload, key FROM messages WHERE id > $1 ORDER BY id LIMIT $2"
            rows = await connection.fetch(read, done, BATCH)
            await connection.execute("UPDATE cursors SET done = $1", rows[-1]["id"])

    async def close(self) -> None:
        await self._connection.close()


class Counter:
    """Counts acknowledgements, and says when there have been enough."""

    def __init__(self) -> None:
        self._left = 0
        self._end = asyncio.Event()

    def expect(self, count: int) -> None:
        self._left = count
        self._end.clear()

    def told(self, ended: DeliveryEnded) -> None:
        self._left -= ended.acknowledged
        if self._left <= 0:
            self._end.set()

    async def end(self) -> None:
        await self._end.wait()


class Line:
    """An app with one outbox whose handler does nothing."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.app = Mainspring(place.url)
        self.orders: Outbox[str] = self.app.outbox("orders", partitions=PARTITIONS, payload=str)
        self.counter = Counter()

        @self.orders.handler(batch=True, profile="high_throughput")
        async def nothing(_: Batch[str]) -> None: ...

        self.orders.listener(self.counter.told)

    async def publish(self, count: int) -> None:
        for begin in range(0, count, BATCH):
            async with self.place.transaction() as tx:
                await self.orders.publish_many(
                    tx, [Outgoing(PAYLOAD, key=number) for number in range(begin, begin + BATCH)]
                )

    async def through(self, count: int) -> None:
        """Publish, and wait until all of it is acknowledged."""
        self.counter.expect(count)
        await self.publish(count)
        await self.counter.end()


# How fast.


async def through(place: Place, count: int, rounds: int) -> None:
    line = Line(place)
    ways: dict[str, Callable[[int], Awaitable[None]]] = {"raw": place.raw, "outbox": line.through}
    speeds: dict[str, list[float]] = {way: [] for way in (*ways, "publish alone", "deliver alone")}
    async with line.app.node():
        for go in ways.values():
            await go(BATCH * 10)
        for _ in range(rounds):
            for name, go in ways.items():
                speeds[name].append(count / await timed(go(count)))
    for _ in range(rounds):
        async with line.app:
            speeds["publish alone"].append(count / await timed(line.publish(count)))
        line.counter.expect(count)
        async with line.app.node():
            speeds["deliver alone"].append(count / await timed(line.counter.end()))
    base = statistics.median(speeds["raw"])
    print(f"{'through ' + place.name:<28}{'messages/s':>12}{'spread':>20}{'× raw':>8}")
    for way, found in speeds.items():
        speed = statistics.median(found)
        print(f"{way:<28}{speed:>12,.0f}{f'{min(found):,.0f}-{max(found):,.0f}':>20}{speed / base:>8.2f}")


async def timed(work: Awaitable[None]) -> float:
    began = time.perf_counter()
    await work
    return time.perf_counter() - began


# How soon.


async def soon(place: Place, count: int) -> None:
    app = Mainspring(place.url)
    marks: Outbox[int] = app.outbox("marks", partitions=PARTITIONS, payload=int)
    started: dict[int, int] = {}
    committed: dict[str, dict[int, int]] = {"in a transaction": {}, "by itself": {}}

    @marks.handler(profile="low_latency")
    async def mark(message: Message[int]) -> None:
        started[message.payload] = time.monotonic_ns()

    async with app.node():
        for number in range(0, (count + WARM_UP) * 2, 2):
            async with place.transaction() as tx:
                await marks.publish(tx, number, key=number)
            committed["in a transaction"][number] = time.monotonic_ns()
            await asyncio.sleep(random.uniform(*SPACING))  # noqa: S311 - so as not to beat in time with a poll
            await marks.publish(None, number + 1, key=number)
            committed["by itself"][number + 1] = time.monotonic_ns()
            await asyncio.sleep(random.uniform(*SPACING))  # noqa: S311 - as above
        await asyncio.sleep(1)
    print(f"{'soon ' + place.name + ', ms':<28}{'p50':>8}{'p90':>8}{'p99':>8}{'most':>8}")
    for way, made in committed.items():
        waits = sorted((started[number] - at) / 1e6 for number, at in list(made.items())[WARM_UP:])
        parts = [waits[min(len(waits) - 1, int(len(waits) * part))] for part in (0.5, 0.9, 0.99)]
        print(f"{way:<28}{''.join(f'{one:>8.2f}' for one in (*parts, waits[-1]))}")


# While a transaction is held.


@contextmanager
def held(url: str, *, writes: bool) -> Iterator[None]:
    """Hold a transaction open: one with a snapshot, or one that has written something."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS held (id int)")
        connection.execute("BEGIN" if writes else "BEGIN ISOLATION LEVEL REPEATABLE READ")
        connection.execute("INSERT INTO held VALUES (1)" if writes else "SELECT count(*) FROM held")
        yield
        kind = "backend_xid" if writes else "backend_xmin"
        mine = f"SELECT {kind} IS NOT NULL FROM pg_stat_activity WHERE pid = pg_backend_pid()"  # noqa: S608 - see above
        if connection.execute(mine).fetchone() != (True,):
            sys.exit("The transaction was not held to the end.")
        connection.execute("ROLLBACK")


async def rounds_while_held(place: Place, count: int, *, writes: bool | None) -> list[float]:
    """Return the speeds of ten rounds; None: nothing is held."""
    line = Line(place)
    async with line.app.node():
        await line.through(count)
        with nullcontext() if writes is None else held(place.url, writes=writes):
            return [count / await timed(line.through(count)) for _ in range(10)]


HELD: dict[str, bool | None] = {"nothing is held": None, "a snapshot is held": False, "an id is held": True}


def tell_held(found: dict[str, list[list[float]]]) -> None:
    print(f"{'held':<28}{'first':>12}{'tenth':>12}{'tenth / first':>20}")
    for name, runs in found.items():
        first, tenth = (statistics.median(one[place] for one in runs) for place in (0, -1))
        shares = [one[-1] / one[0] for one in runs]
        told = f"{statistics.median(shares):.2f} ({min(shares):.2f}-{max(shares):.2f})"
        print(f"{name:<28}{first:>12,.0f}{tenth:>12,.0f}{told:>20}")


async def on_postgres(url: str, work: Callable[[Place], Awaitable[R]]) -> R:
    place = await OnPostgres.connect(url)
    try:
        return await work(place)
    finally:
        await place.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", default=["through", "soon", "held"], help="through, soon, held")
    parser.add_argument("--count", type=int, default=20_000, help="messages of a round")
    parser.add_argument("--marks", type=int, default=300, help="messages of each way whose time is taken")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--on", choices=["sqlite", "postgres"], help="only there")
    args = parser.parse_args()
    work: dict[str, Callable[[Place], Awaitable[None]]] = {
        "through": lambda place: through(place, args.count, args.rounds),
        "soon": lambda place: soon(place, args.marks),
    }
    if args.on != "postgres":
        for part in [one for one in args.parts if one in work]:
            with tempfile.TemporaryDirectory(prefix="mainspring-bench-") as folder:
                asyncio.run(on_sqlite(Path(folder), work[part]))
    if args.on == "sqlite":
        return
    with durable_server() as server:
        for part in [one for one in args.parts if one in work]:
            with database(server) as name:
                asyncio.run(on_postgres(server.dsn(name), work[part]))
        if "held" in args.parts:
            measure_held(server, args.count // 4, args.rounds)


def measure_held(server: Server, count: int, rounds: int) -> None:
    found: dict[str, list[list[float]]] = {name: [] for name in HELD}
    for _ in range(rounds):
        for kind, writes in HELD.items():
            with database(server) as name:
                ten = partial(rounds_while_held, count=count, writes=writes)
                found[kind].append(asyncio.run(on_postgres(server.dsn(name), ten)))
    tell_held(found)


async def on_sqlite(folder: Path, work: Callable[[Place], Awaitable[None]]) -> None:
    place = OnSqlite(folder)
    try:
        await work(place)
    finally:
        await place.close()


if __name__ == "__main__":
    main()
