"""Outboxes of a PostgreSQL store without the store: published in any transaction, numbered and read by any connection."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from itertools import count

import psycopg

from mainspring.core.job import NodeId
from mainspring.core.outbox import Stand
from mainspring.stores.outbox import Message, NewMessage, PartitionView, Stride
from mainspring.stores.postgres import nodes, outboxes
from mainspring.stores.postgres.drive import drive_sync
from mainspring.stores.postgres.publish import publish, register
from mainspring.stores.postgres.statements import Statement, with_names
from mainspring.stores.records import NodeRecord, Process
from tests.servers.postgres import Row
from tests.stores.postgres_verbs import Verbs

ENOUGH = 10_000
_NAMES = count(1)


def message(outbox: str, payload: bytes = b"{}", *, partitions: int = 1, partition: int = 0) -> NewMessage:
    return NewMessage(
        outbox=outbox, partitions=partitions, partition=partition, payload=payload, type="order", key="somebody"
    )


def stepped(outbox: str, before: int, cursor: int = 0, *, holder: NodeId | None = None, partition: int = 0) -> Stride:
    """Return a step to that cursor."""
    after = Stand(revision=before + 1, cursor=cursor, holder=holder)
    return Stride(outbox=outbox, partition=partition, before=before, after=after)


class Box:
    """An outbox in some tables. Each of several connections may have one for the same name."""

    def __init__(self, verbs: Verbs, name: str | None = None, partitions: int = 1) -> None:
        self.verbs = verbs
        self.name = name or f"box-{next(_NAMES)}"
        self.partitions = partitions
        verbs.run(register(None, self.name, partitions))

    def message(self, payload: bytes = b"{}", partition: int = 0) -> NewMessage:
        return message(self.name, payload, partitions=self.partitions, partition=partition)

    def publish(self, *payloads: bytes, at: datetime | None = None, partition: int = 0) -> None:
        """Publish, and commit that."""
        self.verbs.run(publish(at, [self.message(one, partition) for one in payloads]))

    def publish_in(self, connection: psycopg.Connection, *payloads: bytes) -> list[int]:
        """Publish in a transaction that is open."""

        def ask(statement: Statement, values: tuple[object, ...]) -> list[Row]:
            named = {f"p{place}": value for place, value in enumerate(values, start=1)}
            cursor = connection.execute(with_names(statement, self.verbs.schema).encode(), named)
            return cursor.fetchall() if cursor.description else []

        return [one.number for one in drive_sync(ask, publish(None, [self.message(one) for one in payloads]))]

    def look(self) -> tuple[PartitionView, ...]:
        """Give numbers, where nobody else is at that."""
        looked = self.verbs.run(outboxes.look(None, [self.name]))
        last = self.verbs.run(outboxes.number(looked)) if looked.fresh else {}
        return outboxes.numbered(looked, last, datetime.now().astimezone()).partitions

    def read(self, after: int = 0, partition: int = 0) -> tuple[Message, ...]:
        return self.verbs.run(outboxes.read(self.name, partition, after, ENOUGH))

    @property
    def log(self) -> list[bytes]:
        """All payloads that have numbers, in order; none of the numbers may be missing."""
        found = self.read()
        assert [one.seq for one in found] == list(range(1, len(found) + 1))
        return [one.payload for one in found]

    def deliver(self, cursor: int, partition: int = 0) -> None:
        """Have everything up to there be delivered."""
        self.verbs.sql(
            "UPDATE mainspring.outbox_stands SET cursor = %s, revision = revision + 1 WHERE line % 64 = %s AND line / 64 ="
            " (SELECT id FROM mainspring.outboxes WHERE name = %s)".replace("% 64", "%% 64"),
            [cursor, partition, self.name],
        )


@contextmanager
def transaction(dsn: str) -> Iterator[psycopg.Connection]:
    """Open a connection whose transaction begins with its first statement; what is not committed is rolled back."""
    with psycopg.connect(dsn) as connection:
        yield connection
        connection.rollback()


def joined(verbs: Verbs, name: str) -> tuple[NodeId, int]:
    """Have there be a node."""
    record = NodeRecord(id=NodeId(name), process=Process(host="here", pid=1, started="today"), tasks=frozenset())
    return record.id, verbs.run(nodes.join(None, record))


def days_of(verbs: Verbs) -> list[str]:
    """The tables of the log's days."""
    look = "SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = 'mainspring.outbox_messages'::regclass"
    names: Sequence[str] = [name.rpartition(".")[2] for (name,) in verbs.sql(look)]
    return sorted(name.rpartition("_")[2] for name in names if not name.endswith("_rest"))
