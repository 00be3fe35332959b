"""Connections of the standard library's sqlite3, alone or below SQLAlchemy, in a transaction that the user commits or rolls back."""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from mainspring.errors import DeclarationError
from mainspring.stores.transactions import sqlite_sqlalchemy

_LEGACY: Final = getattr(sqlite3, "LEGACY_TRANSACTION_CONTROL", None)  # since Python 3.12


@contextmanager
def joined(tx: object, path: Path) -> Iterator[sqlite3.Connection]:
    """Check that this is an open transaction on that file, or one that begins with its first write, and use it.

    What a verb writes there is written whole or not at all: an error of ours leaves the user's transaction as it was.
    """
    connection = _checked(tx, path)
    text_factory, connection.text_factory = connection.text_factory, str
    try:
        connection.execute("SAVEPOINT mainspring_joined")
        try:
            yield connection
        except BaseException:
            if connection.in_transaction:  # some errors end the whole of it
                connection.execute("ROLLBACK TO mainspring_joined")
            raise
        finally:
            if connection.in_transaction:
                connection.execute("RELEASE mainspring_joined")
    finally:
        connection.text_factory = text_factory


def _checked(tx: object, path: Path) -> sqlite3.Connection:
    connection = tx if isinstance(tx, sqlite3.Connection) else sqlite_sqlalchemy.find(tx)
    if connection is None:
        raise DeclarationError(
            "tx",
            f"{type(tx).__module__}.{type(tx).__qualname__} cannot be joined; give a sqlite3.Connection to {path}, or a "
            "connection or session of SQLAlchemy",
        )
    try:
        file = _main_file(connection)
    except sqlite3.ProgrammingError as error:  # closed, or of another thread
        raise DeclarationError("tx", str(error)) from error
    if not file or not os.path.samefile(file, path):  # noqa: PTH121 -- a name that SQLite gave, not a path of ours
        raise DeclarationError(
            "tx",
            f"it is a connection to {file or 'a database in memory'}, and the store is in {path}: two files "
            "cannot be committed together",
        )
    if not connection.in_transaction:
        _begin(connection)
    return connection


def _begin(connection: sqlite3.Connection) -> None:
    """Begin as the module itself would before the first write; where it would not, the user has to."""
    by_itself = getattr(connection, "autocommit", _LEGACY) == _LEGACY and connection.isolation_level is not None
    if not by_itself:
        raise DeclarationError(
            "tx",
            "the connection commits each statement by itself; execute BEGIN IMMEDIATE first, and commit at the end",
        )
    connection.execute("BEGIN IMMEDIATE")


def _main_file(connection: sqlite3.Connection) -> str:
    cursor = sqlite3.Cursor(connection)
    cursor.row_factory = None
    files = {os.fsdecode(name): os.fsdecode(file or "") for _, name, file in cursor.execute("PRAGMA database_list")}
    return files["main"]
