"""Connections to the file, each set up for what it does."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Final

from mainspring.errors import StoreError

OLDEST: Final = (3, 35, 0)
"""The first version of SQLite with RETURNING."""

_CACHE: Final = "PRAGMA cache_size = -16384"  # 16 MiB
_WAL_LIMIT: Final = "PRAGMA journal_size_limit = 67108864"  # what a burst made of the log is given back, above 64 MiB
_STATEMENTS: Final = 256  # more than this package has: none is ever compiled twice


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


def connect(path: Path, *, durable: bool) -> sqlite3.Connection:
    """Open a connection that writes. It never waits for a lock: whoever uses it tries again, at random intervals."""
    connection = _connect(str(path))
    connection.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
    connection.execute(f"PRAGMA fullfsync = {int(durable)}")  # on macOS, where an fsync alone does not reach the disk
    connection.execute(_WAL_LIMIT)
    return connection


def connect_reader(path: Path) -> sqlite3.Connection:
    """Open a connection that cannot write."""
    connection = _connect(str(path))
    connection.execute("PRAGMA query_only = 1")
    return connection


def look_inside(path: Path) -> sqlite3.Connection:
    """Open a file for one look that leaves no trace."""
    # A file that keeps a log and has none now is open nowhere; SQLite would begin a log in order to read it.
    alone = _keeps_a_log(path) and not path.with_name(path.name + "-wal").exists()
    return _connect(f"{path.as_uri()}?mode=ro{'&immutable=1' if alone else ''}", uri=True)


def _keeps_a_log(path: Path) -> bool:
    """Read it from the file's head, https://www.sqlite.org/fileformat.html."""
    with path.open("rb") as file:
        return file.read(20)[18:] == b"\x02\x02"


def _connect(target: str, *, uri: bool = False) -> sqlite3.Connection:
    connection = sqlite3.connect(
        target,
        timeout=0,
        isolation_level=None,
        check_same_thread=False,  # each is used by one thread at a time, and closed by another
        cached_statements=_STATEMENTS,
        uri=uri,
    )
    try:
        connection.execute(_CACHE)
    except BaseException:
        connection.close()
        raise
    return connection
