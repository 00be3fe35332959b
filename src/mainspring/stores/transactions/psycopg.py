"""Connections of psycopg 3, blocking or awaited, in a transaction that the user commits or rolls back."""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from mainspring.errors import DeclarationError
from mainspring.stores.postgres.joined import (
    CLOSED,
    FAILED,
    Awaited,
    Blocking,
    Work,
    by_name,
    drive,
    drive_awaited,
    in_utc,
    known,
)
from mainspring.stores.postgres.settings import Settings
from mainspring.stores.postgres.statements import with_names
from mainspring.stores.postgres.verb import Ask, Row
from mainspring.stores.transactions.recognized import imported

if TYPE_CHECKING:
    import psycopg

T = TypeVar("T")

# As libpq numbers what a connection is doing (psycopg.pq.TransactionStatus).
_IN_TRANSACTION: Final = 2
_IN_ERROR: Final = 3


def find(tx: Any) -> Blocking | Awaited | None:  # noqa: ANN401 -- whatever the user holds
    """Recognize what psycopg makes: a connection, or what leads to one. None if it is nothing of the kind."""
    leads = imported("psycopg", "Cursor", "AsyncCursor", "Transaction", "AsyncTransaction")
    connection = tx.connection if isinstance(tx, leads) else tx
    if isinstance(connection, imported("psycopg", "Connection")):
        return PsycopgTransaction(connection)
    return (
        AsyncPsycopgTransaction(connection) if isinstance(connection, imported("psycopg", "AsyncConnection")) else None
    )


class PsycopgTransaction(Blocking):
    """A transaction that is open, or that the driver begins with the first statement."""

    def __init__(self, connection: "psycopg.Connection[Any]") -> None:
        self._connection = connection

    def drive(self, work: Work[T]) -> T:
        self._catch_up()
        _check(self._connection)
        return drive(partial(self._run, work.settings), work.asks(known(self._connection)))

    def _run(self, settings: Settings, ask: Ask) -> Sequence[Row]:
        from psycopg import Cursor  # noqa: PLC0415 -- the user has imported it
        from psycopg.rows import tuple_row  # noqa: PLC0415 -- the same

        # Not by `cursor()`: which cursors and rows the user's connection makes is the user's choice.
        with Cursor(self._connection, row_factory=tuple_row) as cursor:
            cursor.execute(_text(settings, ask), by_name(ask.values))
            self._catch_up()
            return in_utc(cursor.fetchall()) if cursor.description is not None else ()

    def _catch_up(self) -> None:
        """Wait for what was asked, in case the user is in a pipeline: whoever enters a second one does."""
        if self._connection.info.pipeline_status:
            with self._connection.pipeline():
                pass


class AsyncPsycopgTransaction(Awaited):
    """The same, awaited."""

    def __init__(self, connection: "psycopg.AsyncConnection[Any]") -> None:
        self._connection = connection

    async def drive(self, work: Work[T]) -> T:
        await self._catch_up()
        _check(self._connection)
        return await drive_awaited(partial(self._run, work.settings), work.asks(known(self._connection)))

    async def _run(self, settings: Settings, ask: Ask) -> Sequence[Row]:
        from psycopg import AsyncCursor  # noqa: PLC0415 -- the user has imported it
        from psycopg.rows import tuple_row  # noqa: PLC0415 -- the same

        async with AsyncCursor(self._connection, row_factory=tuple_row) as cursor:
            await cursor.execute(_text(settings, ask), by_name(ask.values))
            await self._catch_up()
            return in_utc(await cursor.fetchall()) if cursor.description is not None else ()

    async def _catch_up(self) -> None:
        if self._connection.info.pipeline_status:
            async with self._connection.pipeline():
                pass


def _check(connection: "psycopg.Connection[Any] | psycopg.AsyncConnection[Any]") -> None:
    if connection.closed:
        raise DeclarationError("tx", CLOSED)
    status = int(connection.info.transaction_status)
    if status == _IN_ERROR:
        raise DeclarationError("tx", FAILED)
    if connection.autocommit and status != _IN_TRANSACTION:
        raise DeclarationError(
            "tx",
            "the connection commits each statement by itself; use it inside `with connection.transaction():`",
        )


def _text(settings: Settings, ask: Ask) -> str:
    return with_names(ask.statement, settings.schema)
