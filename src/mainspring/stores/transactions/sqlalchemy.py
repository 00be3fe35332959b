"""Connections and sessions of SQLAlchemy 2, blocking or not, in a transaction that the user commits or rolls back.

Every statement goes through SQLAlchemy's own connection. The driver's, below it, would escape the transaction, which
SQLAlchemy begins with the first statement that it sees itself.
"""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from mainspring.errors import DeclarationError
from mainspring.stores.postgres.joined import (
    CLOSED,
    Awaited,
    Blocking,
    Known,
    Work,
    by_name,
    drive,
    in_utc,
)
from mainspring.stores.postgres.settings import Settings
from mainspring.stores.postgres.statements import in_schema, with_names
from mainspring.stores.postgres.verb import Ask, Row
from mainspring.stores.transactions.recognized import imported, led

if TYPE_CHECKING:
    from sqlalchemy import Connection, Dialect
    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession
    from sqlalchemy.orm import Session

T = TypeVar("T")

_DRIVERS: Final = ("asyncpg", "psycopg")
_KNOWN: Final = "mainspring"


def find(tx: object) -> Blocking | Awaited | None:
    """Recognize what SQLAlchemy makes: a connection, a session, or what leads to one. None if it is nothing of the kind."""
    found = led(tx)
    if isinstance(found, (imported("sqlalchemy", "Connection"), imported("sqlalchemy.orm", "Session"))):
        return SqlalchemyTransaction(found)
    if isinstance(found, imported("sqlalchemy.ext.asyncio", "AsyncConnection", "AsyncSession")):
        return AsyncSqlalchemyTransaction(found)
    return None


class SqlalchemyTransaction(Blocking):
    """A transaction that is open, or that SQLAlchemy begins with the first statement."""

    def __init__(self, tx: "Connection | Session") -> None:
        self._tx = tx

    def drive(self, work: Work[T]) -> T:
        from sqlalchemy.exc import InvalidRequestError  # noqa: PLC0415 -- the user has imported it

        try:
            connection = _connection(self._tx)
        except InvalidRequestError as error:  # closed, bound to nothing, to be rolled back first, outside of its loop
            raise DeclarationError("tx", str(error)) from error
        asks = work.asks(_known(connection))
        return drive(partial(_run, connection, work.settings), asks)


class AsyncSqlalchemyTransaction(Awaited):
    """The same, awaited: all of it in one step of SQLAlchemy's own bridge to drivers that are awaited."""

    def __init__(self, tx: "AsyncConnection | AsyncSession") -> None:
        self._tx = tx

    async def drive(self, work: Work[T]) -> T:
        return await self._tx.run_sync(lambda tx: SqlalchemyTransaction(tx).drive(work))


def _connection(tx: "Connection | Session") -> "Connection":
    """Return the connection that the transaction is on, or will be, after a look at whether it can be joined."""
    from sqlalchemy import Connection  # noqa: PLC0415 -- the user has imported it

    if isinstance(tx, Connection):
        _check_dialect(tx.dialect)
        connection = tx
    else:
        _check_dialect(tx.get_bind().dialect)
        connection = tx.connection()
    if connection.closed:
        raise DeclarationError("tx", CLOSED)
    below: Any = connection.connection.dbapi_connection  # to be looked at only
    if below.autocommit:
        raise DeclarationError(
            "tx", "the connection commits each statement by itself; use one whose isolation_level is not AUTOCOMMIT"
        )
    return connection


def _check_dialect(dialect: "Dialect") -> None:
    if dialect.name != "postgresql":
        raise DeclarationError("tx", f"it is a connection to {dialect.name}, and the store is in PostgreSQL")
    if dialect.driver not in _DRIVERS:
        raise DeclarationError(
            "tx", f"the driver {dialect.driver} cannot be used; connect with postgresql+psycopg or postgresql+asyncpg"
        )
    if dialect.is_async and not _is_bridged():
        raise DeclarationError(
            "tx",
            "its driver is awaited; give the AsyncSession or AsyncConnection to the awaited form of this call, or make "
            "it inside of their run_sync()",
        )


def _run(connection: "Connection", settings: Settings, ask: Ask) -> Sequence[Row]:
    # A cursor of the server's, which the user may have asked for, serves queries only.
    options = {"stream_results": False, "yield_per": None}
    if connection.dialect.driver == "asyncpg":
        text = in_schema(ask.statement, settings.schema)
        result = connection.exec_driver_sql(text, ask.values, execution_options=options)
        return result.fetchall() if result.returns_rows else ()
    text = with_names(ask.statement, settings.schema)
    result = connection.exec_driver_sql(text, by_name(ask.values), execution_options=options)
    return in_utc(result.fetchall()) if result.returns_rows else ()


def _known(connection: "Connection") -> Known:
    """Return what is known of the driver's connection: SQLAlchemy keeps this for as long as that lives."""
    known: Known = connection.info.setdefault(_KNOWN, set())
    return known


def _is_bridged() -> bool:
    from sqlalchemy.util.concurrency import in_greenlet  # noqa: PLC0415 -- the user has imported it

    return bool(in_greenlet())
