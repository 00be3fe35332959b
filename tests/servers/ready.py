"""Schemas with the tables of a store in them, empty, which tests use one after the other.

To make the tables and to drop them costs four times what most tests of the contract cost themselves. A schema that comes
back is emptied, and used again if it is what it was when it was made: the same tables, columns, indexes and grants, the
same rows where there were any, and sequences at their start. Else it is dropped, as after any other test. Tables of days
that a store has added meanwhile stay: stores of tests have clocks of different years.
"""

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import NamedTuple

import psycopg
from psycopg.sql import SQL, Identifier

from mainspring.stores.postgres import PostgresStore
from mainspring.testing.contract import SettableClock
from tests.servers.postgres import Server

SHAPE = """
SELECT md5(concat_ws('|',
    (SELECT string_agg(concat_ws(' ', relname, relkind, reloptions, relacl, relpersistence), ';' ORDER BY relname)
     FROM pg_class WHERE relnamespace = %(schema)s::regnamespace AND NOT relispartition),
    (SELECT string_agg(concat_ws(' ', relname, attname, atttypid, attnotnull, atthasdef), ';' ORDER BY relname, attnum)
     FROM pg_attribute JOIN pg_class ON pg_class.oid = attrelid
     WHERE relnamespace = %(schema)s::regnamespace AND relkind IN ('r', 'p') AND NOT relispartition AND attnum > 0),
    (SELECT string_agg(conname, ';' ORDER BY conname) FROM pg_constraint
     WHERE connamespace = %(schema)s::regnamespace AND conparentid = 0),
    (SELECT string_agg(proname, ';' ORDER BY proname) FROM pg_proc WHERE pronamespace = %(schema)s::regnamespace),
    (SELECT nspacl::text FROM pg_namespace WHERE oid = %(schema)s::regnamespace)
))
"""
WRITTEN = """
SELECT relname FROM pg_class
WHERE relnamespace = %(schema)s::regnamespace AND relkind = 'r' AND pg_relation_size(oid) > 0 ORDER BY 1
"""
FROM_THE_START = """
SELECT setval(seqrelid::regclass, seqstart, false) FROM pg_sequence JOIN pg_class ON pg_class.oid = seqrelid
WHERE relnamespace = %(schema)s::regnamespace
"""


class Made(NamedTuple):
    """A schema as it was made."""

    name: str
    drop: ExitStack
    shape: object
    rows: dict[str, object]
    """What stands in it from the start, by table."""


class ReadySchemas:
    """Those of one server."""

    def __init__(self, server: Server, *, patience: str = "10s") -> None:
        self._server = server
        self._patience = patience
        self._free: list[Made] = []
        self._connection: psycopg.Connection | None = None

    @contextmanager
    def one(self) -> Iterator[str]:
        """Lend a schema."""
        lent = self._free.pop() if self._free else self._make()
        try:
            yield lent.name
        finally:
            if self._is_as_it_was(lent):
                self._free.append(lent)
            else:
                lent.drop.close()

    def close(self) -> None:
        """Drop them all."""
        while self._free:
            self._free.pop().drop.close()
        if self._connection is not None:
            self._connection.close()

    def _make(self) -> Made:
        with ExitStack() as drop:
            name = drop.enter_context(self._server.schema(patience=self._patience))
            with ThreadPoolExecutor(1) as elsewhere:  # the loop of this thread is the test's
                elsewhere.submit(asyncio.run, self._open(name)).result()
            connection = self._connected()
            kept = {table: content(connection, name, table) for table in tables(connection, name)}
            return Made(name, drop.pop_all(), shape(connection, name), kept)
        raise AssertionError("a block that was left by returning")

    async def _open(self, name: str) -> None:
        store = PostgresStore(self._server.dsn(), schema=name, clock=SettableClock(), patience="10s")
        await store.open()
        await store.close()

    def _is_as_it_was(self, lent: Made) -> bool:
        """Empty a schema; says whether it is as if nothing had ever been in it."""
        try:
            connection = self._connected()
            connection.execute("SELECT set_config('lock_timeout', %s, false)", [self._patience])
            if shape(connection, lent.name) != lent.shape:
                return False
            used = [
                SQL(".").join([Identifier(lent.name), Identifier(table)])
                for table in tables(connection, lent.name)
                if table not in lent.rows
            ]
            if used:
                connection.execute(SQL("TRUNCATE {}").format(SQL(", ").join(used)))
            connection.execute(FROM_THE_START, {"schema": lent.name})
            return all(content(connection, lent.name, table) == rows for table, rows in lent.rows.items())
        except psycopg.Error:
            return False  # somebody has it in hand; the drop says who

    def _connected(self) -> "psycopg.Connection":
        """Return a connection that is used again and again: a new one costs as much as many a test."""
        if self._connection is None or self._connection.closed:
            self._connection = psycopg.connect(self._server.dsn(), autocommit=True, connect_timeout=10)
        return self._connection


def shape(connection: "psycopg.Connection", schema: str) -> object:
    return connection.execute(SHAPE, {"schema": schema}).fetchone()


def tables(connection: "psycopg.Connection", schema: str) -> list[str]:
    """Name the tables that have been written to."""
    return [name for (name,) in connection.execute(WRITTEN, {"schema": schema})]


def content(connection: "psycopg.Connection", schema: str, table: str) -> object:
    every = SQL("SELECT one::text FROM {}.{} AS one ORDER BY 1").format(Identifier(schema), Identifier(table))
    return connection.execute(every).fetchall()
