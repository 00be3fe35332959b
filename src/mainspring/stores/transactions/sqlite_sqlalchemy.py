"""Connections and sessions of SQLAlchemy 2 on SQLite, which have one of the standard library's sqlite3 below them.

Unlike on PostgreSQL, work on that one does not escape the transaction: SQLAlchemy leaves its beginning to sqlite3, and
commits and rolls back on the same connection. It only has to know that there is something to commit.
"""

import sqlite3
from typing import TYPE_CHECKING, Any

from mainspring.errors import DeclarationError
from mainspring.stores.transactions.recognized import imported, led

if TYPE_CHECKING:
    from sqlalchemy import Connection, Dialect
    from sqlalchemy.orm import Session


def find(tx: object) -> sqlite3.Connection | None:
    """Return the connection below what SQLAlchemy makes; None if it is nothing of the kind."""
    found = led(tx)
    if isinstance(found, imported("sqlalchemy.ext.asyncio", "AsyncConnection", "AsyncSession")):
        problem = (
            "its driver is awaited, and works in a thread of its own; on SQLite use a Session or Connection that blocks"
        )
        raise DeclarationError("tx", problem)
    if isinstance(found, (imported("sqlalchemy", "Connection"), imported("sqlalchemy.orm", "Session"))):
        return _below(found)
    return None


def _below(tx: "Connection | Session") -> sqlite3.Connection:
    from sqlalchemy import Connection  # noqa: PLC0415 -- the user has imported it
    from sqlalchemy.exc import InvalidRequestError  # noqa: PLC0415 -- as above

    try:
        if isinstance(tx, Connection):
            _check_dialect(tx.dialect)
            connection = tx
        else:
            _check_dialect(tx.get_bind().dialect)
            connection = tx.connection()
        if connection.closed:
            raise DeclarationError("tx", "the connection is closed")
        if not connection.in_transaction():
            connection.begin()  # as before the first statement that it sees: else its commit would do nothing
    except InvalidRequestError as error:  # closed, bound to nothing, to be rolled back first
        raise DeclarationError("tx", str(error)) from error
    below: Any = connection.connection.dbapi_connection
    if not isinstance(below, sqlite3.Connection):
        raise DeclarationError("tx", f"below it is a {type(below).__qualname__}, and no sqlite3.Connection")
    return below


def _check_dialect(dialect: "Dialect") -> None:
    if dialect.name != "sqlite":
        raise DeclarationError("tx", f"it is a connection to {dialect.name}, and the store is in SQLite")
    if dialect.driver != "pysqlite":
        raise DeclarationError("tx", f"the driver {dialect.driver} cannot be used; connect with sqlite+pysqlite")
