"""A file that is open: its writer, its readers, and whoever watches it."""

import os
import sqlite3
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self, TypeVar

from mainspring.errors import StoreError
from mainspring.stores.records import SchemaVersion
from mainspring.stores.sqlite import migrate
from mainspring.stores.sqlite.connect import FileIdentity, check_library, connect
from mainspring.stores.sqlite.lanes import Known
from mainspring.stores.sqlite.reader import THREADS_OF_SEARCHES, Reader
from mainspring.stores.sqlite.retry import persist
from mainspring.stores.sqlite.settings import Settings
from mainspring.stores.sqlite.transaction_queue import TransactionQueue
from mainspring.stores.sqlite.trouble import NOT_A_DATABASE, READ_ONLY, code, translated
from mainspring.stores.sqlite.turn import turn_of
from mainspring.stores.sqlite.wake import Bells
from mainspring.stores.sqlite.writer import Writer

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """Everything that has to be closed again."""

    writer: Writer
    reader: Reader
    searcher: Reader
    bells: Bells
    lanes: Known
    transactions: TransactionQueue

    @classmethod
    def open(cls, settings: Settings) -> Self:
        """Make the tables ready and start the threads. Blocks."""
        _prepare(settings)
        return cls.start(settings)

    @classmethod
    def start(cls, settings: Settings) -> Self:
        """Start the threads on a file whose tables are ready; the first use opens it."""
        file, lanes = FileIdentity(settings.path), Known()
        bells = Bells(settings.path, settings.poll)
        turn = turn_of(settings.path)
        writer = Writer(settings, file, lanes, bells, turn)
        reader = Reader(settings, file, lanes)
        searcher = Reader(settings, file, lanes, threads=THREADS_OF_SEARCHES)
        writer.start()
        transactions = TransactionQueue(settings, file, turn)
        return cls(writer=writer, reader=reader, searcher=searcher, bells=bells, lanes=lanes, transactions=transactions)

    def close(self) -> None:
        """Finish what was asked, and let go of the file. Blocks."""
        self.writer.close()
        self.reader.close()
        self.searcher.close(interrupt=True)
        self.transactions.close()
        self.bells.close()

    def leave_behind(self) -> None:
        """Close the inherited sockets in a forked child. The parent's threads do not exist here."""
        self.bells.leave_behind()


def version(settings: Settings) -> SchemaVersion:
    """Say how the tables stand, and change nothing. Blocks."""
    found = _persist(settings, lambda: migrate.look(settings.path))
    return SchemaVersion(found=found.version, wanted=migrate.WANTED)


def _prepare(settings: Settings) -> None:
    """Look before anything is touched, then migrate."""
    check_library(settings.store)
    if problem := _out_of_reach(settings.path):
        raise StoreError(settings.store, problem)
    found = _persist(settings, lambda: _look(settings.path))
    if found is not None:
        migrate.check(settings.store, found)
    try:
        _create(settings.path)
    except OSError as error:
        raise StoreError(settings.store, f"the file cannot be created: {error.strerror}") from error
    _persist(settings, lambda: _migrate(settings))


def _create(path: Path) -> None:
    """Make a new file that only its owner can read; SQLite gives the log beside it the same mode."""
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))


def _look(path: Path) -> migrate.Found | None:
    """None: whoever wrote last was killed amid that, and what it left is undone by the first who may write."""
    try:
        return migrate.look(path)
    except sqlite3.OperationalError as error:
        if code(error) != READ_ONLY:
            raise
        return None


def _out_of_reach(path: Path) -> str | None:
    """Say what SQLite would not say as clearly, or only at the first write."""
    try:
        if path.is_dir():
            return "it is a folder; name a file in it"
        if not path.parent.is_dir():
            return f"there is no folder {path.parent}; make it, or name another one"
    except PermissionError as error:
        return f"its folder cannot be entered; check the permissions ({error})"
    for place in (path.parent, *([path] if path.exists() else [])):
        if not os.access(place, os.W_OK):
            return f"{place} may not be written; check its permissions, and how the disk is mounted"
    return None


def _persist(settings: Settings, step: Callable[[], T]) -> T:
    try:
        return persist(step, settings.patience)
    except sqlite3.Error as error:
        if code(error) == NOT_A_DATABASE:
            raise migrate.no_database(settings.store) from error
        raise translated(settings.store, error) from error


def _migrate(settings: Settings) -> None:
    connection = connect(settings.path, durable=settings.durable, create=True)
    try:
        migrate.check(settings.store, migrate.found(connection))
        (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
        if mode != "wal":
            raise StoreError(
                settings.store,
                f"the file cannot be used by several processes at once: SQLite answers {mode!r} when asked for a "
                "write-ahead log; put it on a local disk",
            )
        migrate.migrate(settings.store, connection, settings.now())
    finally:
        connection.close()
