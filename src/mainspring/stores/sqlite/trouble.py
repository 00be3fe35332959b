"""What SQLite's errors mean for whoever called, and what to do about them."""

import sqlite3
from typing import Final

from mainspring.errors import StoreError, StoreUnavailable

# Primary result codes, https://www.sqlite.org/rescode.html; the sqlite3 module names them only for some versions.
_BUSY: Final = 5
_LOCKED: Final = 6
READ_ONLY: Final = 8
INTERRUPT: Final = 9
_IOERR: Final = 10
_CORRUPT: Final = 11
_FULL: Final = 13
CANNOT_OPEN: Final = 14
_PROTOCOL: Final = 15
NOT_AUTHORIZED: Final = 23
NOT_A_DATABASE: Final = 26

_HELD: Final = (
    "the write lock is held by a transaction of this program that was not passed as tx=, or by another process; "
    "pass it as tx=, or look for a transaction that was left open"
)
_PASSING: Final = {
    _BUSY: _HELD,
    _LOCKED: _HELD,
    _PROTOCOL: "too many processes open the file at once",
    INTERRUPT: "it was interrupted",
    _FULL: "there is no space left; free some on the disk, or raise max_page_count",
    _IOERR: "the disk does not answer as it should; look at the system's log",
}
_LASTING: Final = {
    READ_ONLY: "it may not be written; check the permissions of the file, of its folder, and how the disk is mounted",
    _CORRUPT: "the file is damaged; keep a copy of it and restore a backup",
    CANNOT_OPEN: "the file cannot be opened; check that its folder exists and may be written",
    NOT_A_DATABASE: "the file is no SQLite database",
}


def code(error: sqlite3.Error) -> int:
    """The primary result code; 0 where the error comes from the module and not from the library."""
    return int(getattr(error, "sqlite_errorcode", 0) or 0) & 0xFF


def is_busy(error: BaseException) -> bool:
    """Say whether someone else has the lock; the same may work in a moment."""
    return isinstance(error, sqlite3.Error) and code(error) in {_BUSY, _LOCKED, _PROTOCOL}


def is_of_the_disk(error: BaseException) -> bool:
    """Say whether the system could not read, write or sync."""
    return isinstance(error, sqlite3.Error) and code(error) == _IOERR


def spoils_connection(error: BaseException) -> bool:
    """Say whether to open a new connection before going on, in case the file is another or a better one by then."""
    return isinstance(error, sqlite3.Error) and code(error) in {
        _IOERR,
        CANNOT_OPEN,
        _CORRUPT,
        READ_ONLY,
        NOT_A_DATABASE,
    }


def locked(store: str) -> StoreUnavailable:
    """Return the error for a write lock that was not released within this process."""
    return StoreUnavailable(store, _HELD)


def translated(store: str, error: BaseException) -> BaseException:
    """Return what to raise instead of an error of SQLite; any other error is its own."""
    if not isinstance(error, sqlite3.Error):
        return error
    kind = code(error)
    if kind in _PASSING:
        return _because(StoreUnavailable(store, f"{_PASSING[kind]} ({error})"), error)
    return _because(StoreError(store, f"{_LASTING[kind]} ({error})" if kind in _LASTING else str(error)), error)


def _because(ours: StoreError, theirs: sqlite3.Error) -> StoreError:
    ours.__cause__ = theirs
    return ours
