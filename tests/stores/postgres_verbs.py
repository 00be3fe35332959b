"""The PostgreSQL store's verbs without the store: at any time, as any role, each in a transaction of its own."""

from collections.abc import Sequence
from types import TracebackType
from typing import Self, TypeVar

import psycopg

from mainspring.stores.postgres import migrate
from mainspring.stores.postgres.drive import drive_sync
from mainspring.stores.postgres.statements import Statement, qualified, with_names
from mainspring.stores.postgres.verb import Verb
from tests.servers.postgres import Row

T = TypeVar("T")


class Verbs:
    """A connection that blocks, and the schema that it works in."""

    def __init__(self, dsn: str, schema: str) -> None:
        self.schema = schema
        self.connection = psycopg.connect(dsn, autocommit=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.connection.close()

    def run(self, verb: Verb[T]) -> T:
        with self.connection.transaction():
            return drive_sync(self.ask, verb)

    def sql(self, text: str, values: Sequence[object] = ()) -> list[Row]:
        """Run a statement of the test's own; `mainspring.` in it is the schema."""
        cursor = self.connection.execute(qualified(text, self.schema).encode(), values or None)
        return cursor.fetchall() if cursor.description else []

    def ask(self, statement: Statement, values: tuple[object, ...]) -> list[Row]:
        """Run a statement that a verb asks for."""
        named = {f"p{place}": value for place, value in enumerate(values, start=1)}
        cursor = self.connection.execute(with_names(statement, self.schema).encode(), named)
        return cursor.fetchall() if cursor.description else []


def make_tables(verbs: Verbs, *, days: int = 0) -> None:
    """Make all migrations that there are, and tables for so many days to come."""
    while verbs.run(migrate.migrate("a store", verbs.schema, days=days)):
        pass


def days_of(verbs: Verbs) -> list[str]:
    """The tables of history's days."""
    look = "SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = 'mainspring.history'::regclass"
    names = [name.rpartition(".")[2] for (name,) in verbs.sql(look)]
    return sorted(name for name in names if name not in {"history_rest", "history_long"})
