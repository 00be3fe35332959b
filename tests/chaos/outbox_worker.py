"""The programs that the stress of outboxes starts and kills: nodes that deliver, and writers that publish.

They write to one log, as those of `worker.py` do. What its column for jobs says here:

    publishes  p1  NAME                            -        …   about to be published, in a transaction
    committed  p1  NAME                            -        …   its commit was acknowledged
    given      w1  OUTBOX/PARTITION/SEQ/KEY/NAME   attempt  …   a handler was given it
    handled    w1  OUTBOX/PARTITION/SEQ/KEY/NAME   attempt  …   its last line; nothing has been acknowledged yet

Whatever was committed is told by a table of the user's own too, which every message is written into with its publishing.
"""

import argparse
import asyncio
import logging
import os
import random
import signal
import sqlite3
import threading
import time
from collections.abc import Awaitable, Callable
from contextlib import closing, suppress
from datetime import timedelta
from functools import cache, partial
from pathlib import Path
from typing import Any
from uuid import uuid4

from mainspring import Mainspring, Message
from mainspring.client.outbox import Outbox
from mainspring.core.outbox import partition_of
from mainspring.outbox.message import Batch
from mainspring.runtime import process
from mainspring.stores.port import Store, Transaction, Transactions
from tests.chaos.worker import DATABASE, PLENTY, Log, choose_by_seed, end_with_the_parent

PARTITIONS = 8
EXACT, BATCHES, LEASED, KEYED = OUTBOXES = ("exact", "batches", "leased", "keyed")
"""In transactions, one by one and several at once; leased; and leased where only the key of what fails waits."""
IN_TRANSACTIONS = frozenset({EXACT, BATCHES})
POISONED = "mixed"
POISON = "poison"
KEYS = [f"k{number}" for number in range(24)]
BAD_KEY = KEYS[0]
"""Its messages fail some times before they do not, in the outbox where nobody else has to wait for that."""
NEIGHBOUR = next(key for key in KEYS[1:] if partition_of(key, PARTITIONS) == partition_of(BAD_KEY, PARTITIONS))
"""A key of the same partition."""
FAILURES = 3
POISON_ATTEMPTS = 3

Told = Callable[[str, str, int], None]
Write = Callable[[str], tuple[str, str]]


class RolledBack(Exception):
    """Nothing of a transaction is to be left."""


class Unlucky(Exception):
    """What handlers raise now and then."""


def written_table(prefix: str) -> str:
    return f"{prefix}written"


def effects_table(prefix: str) -> str:
    return f"{prefix}effects"


def declare(url: str, prefix: str, tell: Told, *, poison: str = "", doom: float = 0.0) -> Mainspring:
    """Declare the outboxes; handlers tell when they begin, and when they are about to return."""
    app = Mainspring(url)
    marks = "$1, $2, $3, $4" if url.startswith("postgres") else "?, ?, ?, ?"
    insert = f"INSERT INTO {effects_table(prefix)} (outbox, part, seq, name) VALUES ({marks})"  # noqa: S608 - no user's

    async def handle(message: Message[str], tx: Transaction | None = None) -> None:
        place = f"{message.outbox}/{message.partition}/{message.seq}/{message.key}/{message.payload}"
        tell("given", place, message.attempt)
        if tx is not None:
            await tx.execute(insert, (message.outbox, message.partition, message.seq, message.payload))
        if message.payload.startswith(POISON):
            os._exit(1)
        await asyncio.sleep(random.choice((0, 0, 0, 0.001, 0.02)))  # noqa: S311 - chance, no secret
        is_bad = message.outbox == KEYED and message.key == BAD_KEY and message.attempt <= FAILURES
        if is_bad or (not poison and random.random() < 0.02):  # noqa: S311 - as above
            raise Unlucky
        tell("handled", place, message.attempt)
        if random.random() < doom:  # noqa: S311 - as above
            # At about the time when what was done is written down: a kill from outside hardly ever comes just then.
            threading.Timer(random.uniform(0, 0.01), os.kill, (os.getpid(), signal.SIGKILL)).start()  # noqa: S311 - as above

    async def leased(message: Message[str]) -> None:
        await handle(message)

    async def exact(message: Message[str], tx: Transaction) -> None:
        await handle(message, tx)

    async def batches(batch: Batch[str], tx: Transaction) -> None:
        for message in batch:
            await handle(message, tx)
            if random.random() < 0.3:  # noqa: S311 - as above
                await batch.ack()

    options: dict[str, Any] = {"profile": "low_latency", "retry_base": "50ms", "retry_max": "500ms"}
    if poison:
        mode, order = poison.split("/")
        box = app.outbox(POISONED, partitions=PARTITIONS, payload=str)
        function = exact if mode == "transactional" else leased
        box.handler(mode=mode, order=order, max_attempts=POISON_ATTEMPTS, **options)(function)
        return app
    options["max_attempts"] = PLENTY  # what is tested is that nothing is lost, not how much bad luck is allowed
    boxes = {name: app.outbox(name, partitions=PARTITIONS, payload=str) for name in OUTBOXES}
    boxes[EXACT].handler(mode="transactional", **options)(exact)
    boxes[BATCHES].handler(mode="transactional", batch=True, **options)(batches)
    boxes[LEASED].handler(**options)(leased)
    boxes[KEYED].handler(order="key", **options)(leased)
    return app


async def work(app: Mainspring, log: Log, *, lease: str) -> None:
    """Be a node until SIGTERM comes."""
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    async with app.node(lease=lease, outbox_partitions=PARTITIONS):
        log.write("ready")
        await stop.wait()


class Writer:
    """Publishes in transactions of any length, some of which are rolled back, until its time is up."""

    def __init__(self, app: Mainspring, log: Log, args: argparse.Namespace) -> None:
        self._boxes: dict[str, Outbox[str]] = {
            name: app.outbox(name, partitions=PARTITIONS, payload=str) for name in OUTBOXES
        }
        self._log = log
        self._longest = float(args.longest)
        self._table = written_table(args.prefix)
        self._until = time.monotonic() + float(args.seconds)
        self._missing = int(args.at_least)

    @property
    def is_over(self) -> bool:
        """Whether the time is up and enough was committed, however busy the machine is."""
        return time.monotonic() >= self._until and self._missing <= 0

    def drafts(self) -> list[tuple[Outbox[str], str, str]]:
        count = random.choice((1, 1, 2, 3, 8))  # noqa: S311 - chance, no secret
        places = [(random.choice(OUTBOXES), random.choice(KEYS)) for _ in range(count)]  # noqa: S311 - as above
        if random.random() < 0.3:  # noqa: S311 - however few messages there are, some are behind one that fails
            places += [(KEYED, BAD_KEY), (KEYED, NEIGHBOUR)]
        return [(self._boxes[outbox], key, f"m{uuid4().hex[:12]}") for outbox, key in places]

    def note(self, outbox: Outbox[str], key: str, name: str) -> str:
        """The statement of the user's own for a message; names are ours."""
        return f"INSERT INTO {self._table} (outbox, key, name) VALUES ('{outbox.name}', '{key}', '{name}')"  # noqa: S608 - ours

    def pause(self) -> float:
        """How long the user thinks in between: mostly not at all, now and then for seconds."""
        if random.random() < 0.03:  # noqa: S311 - chance, no secret
            return random.uniform(0.0, self._longest)  # noqa: S311 - as above
        return random.choice((0.0, 0.0, 0.003, 0.015)) * self._longest  # noqa: S311 - as above

    @staticmethod
    def rolls_back() -> bool:
        return random.random() < 0.25  # noqa: S311 - chance, no secret

    def committed(self, drafts: list[tuple[Outbox[str], str, str]]) -> None:
        for _, _, name in drafts:
            self._log.write("committed", name)
        self._missing -= len(drafts)

    async def publish(self, tx: object, run: Callable[[str], Awaitable[object]]) -> list[tuple[Outbox[str], str, str]]:
        drafts = self.drafts()
        for outbox, key, name in drafts:
            await run(self.note(outbox, key, name))
            self._log.write("publishes", name)
            await outbox.publish(tx, name, key=key)
            await asyncio.sleep(self.pause())
        return drafts

    async def write(
        self,
        tx: object,
        run: Callable[[str], Awaitable[object]],
        commit: Callable[[], Awaitable[None]],
        rollback: Callable[[], Awaitable[None]],
    ) -> None:
        """One transaction, for drivers that are awaited."""
        drafts = await self.publish(tx, run)
        if self.rolls_back():
            await rollback()
            return
        await commit()
        self.committed(drafts)

    def write_sync(
        self,
        tx: object,
        run: Callable[[str], object],
        commit: Callable[[], object],
        rollback: Callable[[], object],
    ) -> None:
        """One transaction, for drivers that block."""
        drafts = self.drafts()
        for outbox, key, name in drafts:
            run(self.note(outbox, key, name))
            self._log.write("publishes", name)
            outbox.publish_sync(tx, name, key=key)
            time.sleep(self.pause())
        if self.rolls_back():
            rollback()
            return
        commit()
        self.committed(drafts)


def write_sqlite(writer: Writer, path: Path) -> None:
    """Be one writer on a file, with a connection of its own."""
    while not writer.is_over:
        with closing(sqlite3.connect(path, timeout=60, isolation_level=None)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            writer.write_sync(connection, connection.execute, connection.commit, connection.rollback)
        time.sleep(random.uniform(0, 0.05))  # noqa: S311 - chance, no secret


async def write_in_own(writer: Writer, store: Store) -> None:
    """Be one writer in transactions of the store's own."""
    assert isinstance(store, Transactions)
    while not writer.is_over:
        with suppress(RolledBack):
            async with store.transaction(limit=timedelta(minutes=1)) as tx:
                drafts = await writer.publish(tx, tx.execute)
                if writer.rolls_back():
                    raise RolledBack
            writer.committed(drafts)
        await asyncio.sleep(random.uniform(0, 0.05))  # noqa: S311 - chance, no secret


def write_postgres_sync(writer: Writer, dsn: str, number: int) -> None:
    import psycopg  # noqa: PLC0415 - nodes do without
    from sqlalchemy.orm import Session  # noqa: PLC0415 - as above

    from tests.stores.ways import engine  # noqa: PLC0415 - as above

    while not writer.is_over:
        if number % 2:
            with closing(psycopg.connect(dsn)) as connection:
                run = partial(run_bytes, connection)
                writer.write_sync(connection, run, connection.commit, connection.rollback)
        else:
            with Session(engine(dsn)) as session:
                writer.write_sync(session, partial(run_text, session), session.commit, session.rollback)


async def write_postgres(writer: Writer, dsn: str, number: int) -> None:
    from tests.stores import ways  # noqa: PLC0415 - nodes do without

    found = [
        ways.asyncpg_connection,
        ways.psycopg_awaited,
        ways.sqlalchemy_awaited_session("asyncpg"),
        ways.sqlalchemy_awaited_session("psycopg"),
        ways.sqlalchemy_awaited("asyncpg"),
    ]
    while not writer.is_over:
        async with found[number % len(found)](dsn) as user:
            await writer.write(user.handle, user.run, user.commit, user.rollback)


def run_text(session: Any, statement: str) -> None:  # noqa: ANN401 - a session of SQLAlchemy, which only writers load
    from sqlalchemy import text  # noqa: PLC0415 - as above

    session.execute(text(statement))


def run_bytes(connection: Any, statement: str) -> None:  # noqa: ANN401 - a connection of psycopg, as above
    connection.execute(statement.encode())


async def write(args: argparse.Namespace, log: Log) -> None:
    """Be so many writers at once, half of them in threads."""
    app = Mainspring(args.url)
    writer = Writer(app, log, args)
    async with app:
        if args.url.startswith("postgres"):
            dsn = args.url.partition("?")[0]
            awaited = [write_postgres(writer, dsn, number) for number in range(args.writers // 2)]
            blocking = [
                in_a_thread(write_postgres_sync, writer, dsn, number) for number in range(args.writers - len(awaited))
            ]
            await asyncio.gather(*awaited, *blocking)
        else:
            path = args.folder / DATABASE
            blocking = [in_a_thread(write_sqlite, writer, path) for _ in range(args.writers - 1)]
            await asyncio.gather(write_in_own(writer, app.store), *blocking)


async def in_a_thread(work: Callable[..., None], *args: object) -> None:
    """Have a thread of its own for each: those of the loop are few."""
    loop, done = asyncio.get_running_loop(), asyncio.get_running_loop().create_future()

    def run() -> None:
        try:
            work(*args)
        except BaseException as error:  # noqa: BLE001 - whoever waits is told of whatever happened
            loop.call_soon_threadsafe(done.set_exception, error)
        else:
            loop.call_soon_threadsafe(done.set_result, None)

    threading.Thread(target=run, daemon=True).start()
    await done


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=["work", "write"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("name")
    parser.add_argument("--url", required=True)
    parser.add_argument("--prefix", default="", help="of the names of the user's own tables")
    parser.add_argument("--host", help="pretend to be on a machine of that name, where nobody sees whether it lives")
    parser.add_argument("--lease", default="6s")
    parser.add_argument("--poison", default="", help="deliver the outbox with poison, MODE/ORDER, and no other")
    parser.add_argument("--doom", type=float, default=0.0, help="of so many handled messages one ends the process soon")
    parser.add_argument("--writers", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--at-least", type=int, default=0, help="messages that are committed, however long that takes")
    parser.add_argument(
        "--longest", type=float, default=3.0, help="seconds that a transaction may stay open for nothing"
    )
    args = parser.parse_args()
    end_with_the_parent()
    choose_by_seed(args.name)
    logging.basicConfig(format="%(asctime)s.%(msecs)03d %(levelname)s %(name)s: %(message)s", datefmt="%H:%M:%S")
    if args.host:
        process.host = cache(lambda: str(args.host))
    log = Log(args.folder, args.name)
    if args.kind == "write":
        asyncio.run(write(args, log))
    else:
        app = declare(args.url, args.prefix, log.write, poison=args.poison, doom=args.doom)
        asyncio.run(work(app, log, lease=args.lease))


if __name__ == "__main__":
    main()
