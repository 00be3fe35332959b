"""A process that publishes and delivers on one SQLite file until it is told to stop, or killed.

It says under which node it works, whenever that changes. Every message is written with a row of the user's own, and every
effect too, so that the tables tell afterwards what should have happened, and what has.
"""

import asyncio
import random
import sqlite3
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager, suppress

from msgspec.structs import replace

from mainspring.core.job import NodeId
from mainspring.core.outbox import Stand, begin, partition_of, release
from mainspring.errors import NodeGone
from mainspring.stores.outbox import Message, NewLetter, NewMessage, PartitionView, Stride
from mainspring.stores.records import NodeRecord, Process
from mainspring.stores.sqlite import SqliteStore

EXACT = "exact"
"""Its effects are written in the transaction that moves the cursor."""
LEASED = "leased"
"""Its effects are written between two steps."""
PARTITIONS = 4
TABLES = """
CREATE TABLE written (outbox TEXT, name TEXT, key TEXT);
CREATE TABLE effects (outbox TEXT, part INTEGER, seq INTEGER, name TEXT, key TEXT);
"""


ADD_EFFECT = "INSERT INTO effects VALUES (?, ?, ?, ?, ?)"


class RolledBack(Exception):
    """Nothing of a transaction is to be left."""


class Worker:
    """Writes and delivers by turns."""

    def __init__(self, path: str, name: str, seed: int) -> None:
        self.store = SqliteStore(path, durable=False)
        self.connection = sqlite3.connect(path, timeout=30, isolation_level=None)
        self.name = name
        self.random = random.Random(seed)  # noqa: S311 -- no secret
        self.stopped = threading.Event()
        self.node = NodeId("")
        self.term = 0
        self.count = 0

    async def work(self) -> None:
        await self.store.open()
        await self.join()
        while True:
            if not self.stopped.is_set():
                await self.write()
            try:
                delivered = await self.deliver()
            except NodeGone:  # somebody took it for dead
                await self.join()
                continue
            if self.stopped.is_set() and delivered is None:
                break
            if not delivered:
                await asyncio.sleep(0.002)  # for real: whoever else is at it is another process
        await self.store.close()

    async def join(self) -> None:
        self.count += 1
        self.node = NodeId(f"{self.name}-{self.count}")
        record = NodeRecord(id=self.node, process=Process(host="here", pid=1, started="now"), tasks=frozenset())
        self.term = await self.store.join(record)
        sys.stdout.write(f"{self.node} {self.term}\n")
        sys.stdout.flush()

    # Publishing.

    async def write(self) -> None:
        """Publish in a transaction of some length, which may be rolled back."""
        with suppress(RolledBack):
            if self.random.random() < 0.5:
                with self.users_own():
                    for one in self.drafts():
                        self.connection.execute(*written(one))
                        (answer,) = self.store.publish_in_sync(self.connection, [one])
                        assert answer.fresh
                        await asyncio.sleep(self.random.choice((0, 0, 0.001)))
            else:
                async with self.store.transaction() as tx:
                    for one in self.drafts():
                        await tx.execute(*written(one))
                        (answer,) = await self.store.publish_in(tx, [one])
                        assert answer.fresh

    def drafts(self) -> Iterator[NewMessage]:
        """Make some messages; then, maybe, have all of them rolled back."""
        for _ in range(self.random.randint(1, 3)):
            self.count += 1
            key, name = self.random.choice("abcdefgh"), f"{self.name}-{self.count}"
            yield NewMessage(
                outbox=self.random.choice((EXACT, LEASED)),
                partitions=PARTITIONS,
                partition=partition_of(key, PARTITIONS),
                payload=name.encode(),
                type="text",
                key=key,
                unique=self.random.choice((None, name)),
            )
        if self.random.random() < 0.3:
            raise RolledBack

    @contextmanager
    def users_own(self) -> Iterator[None]:
        self.connection.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self.connection.execute("ROLLBACK")
            raise
        self.connection.execute("COMMIT")

    # Delivering.

    async def deliver(self) -> bool | None:
        """Deliver what there is; whether there was something for this process; None if nothing is left for anybody."""
        looked = await self.store.look_at_partitions([EXACT, LEASED])
        left = [one for one in looked.partitions if one.stand.cursor < one.last]
        free = [one for one in left if not one.is_held or one.stand.holder == self.node]
        self.random.shuffle(free)
        for view in free:
            messages = await self.store.read_messages(
                view.outbox, view.partition, view.stand.cursor, self.random.randint(1, 5)
            )
            assert [one.seq for one in messages] == [view.stand.cursor + at + 1 for at in range(len(messages))]
            await (self.deliver_exactly if view.outbox == EXACT else self.deliver_leased)(view, messages)
        return bool(free) if left else None

    async def deliver_exactly(self, view: PartitionView, messages: tuple[Message, ...]) -> None:
        """Write effects and the step in one transaction; some messages become dead letters instead."""
        dead = [one for one in messages if self.random.random() < 0.1]
        done = [one for one in messages if one not in dead]
        step = self.step(view, replace(release(view.stand), cursor=messages[-1].seq))
        step = replace(step, letters=tuple(NewLetter(message=one, attempts=1, error="no") for one in dead))
        with suppress(RolledBack):
            if self.random.random() < 0.5:
                with self.users_own():
                    self.effect(done)
                    if not self.store.stride_in_sync(self.connection, self.node, self.term, step):
                        raise RolledBack
            else:
                async with self.store.transaction() as tx:
                    for one in done:
                        await tx.execute(ADD_EFFECT, effect(one))
                    if not await self.store.stride_in(tx, self.node, self.term, step):
                        raise RolledBack

    async def deliver_leased(self, view: PartitionView, messages: tuple[Message, ...]) -> None:
        """Begin, write effects, and end: what happens in between may happen again."""
        begun = begin(view.stand, self.node, len(messages))
        (accepted,) = await self.store.stride(self.node, self.term, [self.step(view, begun)])
        if not accepted:
            return
        self.effect(messages)
        done = replace(release(begun), cursor=messages[-1].seq)
        await self.store.stride(self.node, self.term, [replace(self.step(view, done), before=begun.revision)])

    def effect(self, messages: Iterable[Message]) -> None:
        self.connection.executemany(ADD_EFFECT, map(effect, messages))

    @staticmethod
    def step(view: PartitionView, after: Stand) -> Stride:
        return Stride(outbox=view.outbox, partition=view.partition, before=view.stand.revision, after=after)


def written(new: NewMessage) -> tuple[str, tuple[object, ...]]:
    return "INSERT INTO written VALUES (?, ?, ?)", (new.outbox, new.payload.decode(), new.key)


def effect(one: Message) -> tuple[object, ...]:
    return one.outbox, one.partition, one.seq, one.payload.decode(), one.key


def main(path: str, name: str, seed: str) -> None:
    worker = Worker(path, name, int(seed))

    def listen() -> None:
        sys.stdin.readline()
        worker.stopped.set()

    threading.Thread(target=listen, daemon=True).start()
    with closing(worker.connection):
        asyncio.run(worker.work())


if __name__ == "__main__":
    main(*sys.argv[1:])
