"""Connections to the file, each set up for what it does."""

import sqlite3
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Final, TypeVar

from mainspring.errors import StoreError, StoreUnavailable
from mainspring.stores.sqlite.fork import GUARD, Connection
from mainspring.stores.sqlite.trouble import CANNOT_OPEN, code

T = TypeVar("T")

OLDEST: Final = (3, 35, 0)
"""The first version of SQLite with RETURNING."""

_CACHE: Final = "PRAGMA cache_size = -16384"  # 16 MiB
_WAL_LIMIT: Final = "PRAGMA journal_size_limit = 67108864"  # what a burst made of the log is given back, above 64 MiB
_STATEMENTS: Final = 256  # more than this package has: none is ever compiled twice


class FileIdentity:
    """Identity of the file that a store has opened, to detect that another file has replaced it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._first: tuple[int, int] | None = None

    def is_same(self) -> bool:
        """Whether the path still leads to that file. Takes 2 µs."""
        try:
            found = self._path.stat()
        except OSError:
            return False
        identity = (found.st_dev, found.st_ino)
        self._first = self._first or identity
        return self._first == identity

    def check(self, store: str) -> None:
        """Raise unless it is the same: writes to a deleted file are lost, and reads from it are stale."""
        if not self.is_same():
            raise StoreUnavailable(store, "the file was replaced or deleted; restart the programs that use it")


def check_library(store: str) -> None:
    """Raise where this Python's SQLite cannot do what is asked of it."""
    if sqlite3.sqlite_version_info < OLDEST:
        wanted = ".".join(map(str, OLDEST))
        raise StoreError(
            store,
            f"Mainspring needs SQLite {wanted}, and this Python has {sqlite3.sqlite_version}; "
            "use a newer Python, or one that is linked against a newer SQLite",
        )
    with closing(sqlite3.connect(":memory:")) as connection:
        try:
            connection.execute("SELECT value FROM json_each('[1]')").fetchall()
        except sqlite3.Error as error:
            raise StoreError(store, "this Python's SQLite was built without JSON; use another build of it") from error


def connect(path: Path, *, durable: bool, create: bool = False) -> sqlite3.Connection:
    """Open a connection that writes; only `create` makes a file where there is none.

    It never waits for a lock: the caller tries again, at random intervals.
    """
    return _connect(
        path,
        "mode=rwc" if create else "mode=rw",
        f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}",
        f"PRAGMA fullfsync = {int(durable)}",  # on macOS, where an fsync alone does not reach the disk
        _WAL_LIMIT,
    )


def connect_reader(path: Path) -> sqlite3.Connection:
    """Open a connection that cannot write."""
    # Not "ro", which could neither make nor recover the log's index.
    return _connect(path, "mode=rw", "PRAGMA query_only = 1")


def look_inside(path: Path, look: Callable[[sqlite3.Connection], T]) -> T:
    """Look at a file once, and leave no trace.

    Only ever through SQLite: whoever opens the file in another way, and closes it again, lets go of all locks that this
    process has on it, those of the user's own connections too (https://www.sqlite.org/howtocorrupt.html, 2.2). Then
    another process believes to be alone with the file, and takes away the log that this one writes to.
    """
    # A file with nothing beside it is in the middle of nothing; to read it, SQLite would begin a log.
    if not any(path.with_name(path.name + end).exists() for end in ("-wal", "-journal")):
        with suppress(sqlite3.DatabaseError):  # it may have been read while somebody came and wrote
            return _look(path, "immutable=1", look)
    return _look(path, "", look)


def keeps_a_log(path: Path) -> bool:
    """Say whether a file is in WAL mode: SQLite refuses to read one that is without locks, before it touches anything."""
    try:
        _look(path, "nolock=1", lambda connection: connection.execute("PRAGMA schema_version").fetchall())
    except sqlite3.OperationalError as error:
        if code(error) == CANNOT_OPEN:
            return True
        raise
    return False


def _look(path: Path, option: str, look: Callable[[sqlite3.Connection], T]) -> T:
    with closing(_connect(path, f"mode=ro&{option}")) as connection:
        return look(connection)


def _connect(path: Path, options: str, *pragmas: str) -> sqlite3.Connection:
    GUARD.check(path)
    connection = sqlite3.connect(
        f"{path.as_uri()}?{options}",
        timeout=0,
        isolation_level=None,
        check_same_thread=False,  # each is used by one thread at a time, and closed by another
        cached_statements=_STATEMENTS,
        uri=True,
        factory=Connection,
    )
    try:
        for pragma in (_CACHE, *pragmas):
            connection.execute(pragma)
    except BaseException:
        connection.close()
        raise
    return connection
