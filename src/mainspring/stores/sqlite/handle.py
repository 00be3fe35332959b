"""What the verbs of a SQLite store are carried out by: its file, while it is open, and who writes and reads there."""

import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Concatenate, Final, ParamSpec, TypeVar

from mainspring.clock import Clock, SystemClock
from mainspring.duration import Duration, seconds
from mainspring.errors import DeclarationError, StoreClosed
from mainspring.stores.sqlite.fork import GUARD
from mainspring.stores.sqlite.lanes import Lanes
from mainspring.stores.sqlite.opened import Opened
from mainspring.stores.sqlite.session import Session
from mainspring.stores.sqlite.settings import Settings
from mainspring.stores.sqlite.transaction import SqliteTransaction
from mainspring.stores.sqlite.trouble import translated
from mainspring.stores.transactions.sqlite import joined

P = ParamSpec("P")
T = TypeVar("T")

SYSTEM_CLOCK: Final = SystemClock()


class Handle:
    """A file that may be opened and closed."""

    def __init__(
        self,
        path: Path | str,
        *,
        clock: Clock = SYSTEM_CLOCK,
        durable: bool = True,
        poll: Duration = "50ms",
        patience: Duration = "60s",
    ) -> None:
        if not str(path) or str(path).startswith((":", "file:")):
            raise DeclarationError("path", f"{str(path)!r} is no file; for a store in memory there is MemoryStore")
        self._settings = Settings(
            path=Path(path).resolve(), clock=clock, durable=durable, poll=seconds(poll), patience=seconds(patience)
        )
        self._opening = threading.Lock()
        self._opened: Opened | None = None
        self._was_open = False
        """Whether it was open when this process was forked, and has not been used since."""
        GUARD.add_store(self)

    def after_fork(self) -> None:
        """Reset the state in a forked child: the threads exist only in the parent."""
        self._opening = threading.Lock()
        if self._opened is not None:
            self._opened.leave_behind()
            self._opened, self._was_open = None, True

    @property
    def path(self) -> Path:
        """The file, by its full name."""
        return self._settings.path

    @property
    def _file(self) -> Opened:
        file = self._opened or (self._reopen() if self._was_open else None)
        if file is None:
            raise StoreClosed(self._settings.store, "it is not open; call open() first, and close() last")
        return file

    @contextmanager
    def _joined(self, tx: object) -> Iterator[Session]:
        """Work in a transaction of the user's own. What it learns is told to nobody: it may be rolled back."""
        lanes = Lanes(self._file.lanes)
        try:
            with joined(tx, self._settings.path) as connection:
                session = Session(connection, self._settings.now(), lanes, self._settings.store)
                yield session
                rings = session.ring()
            if rings is not None:
                self._file.bells.expect(rings)
        except sqlite3.Error as error:
            raise translated(self._settings.store, error) from error

    def _own(self, transaction: SqliteTransaction) -> SqliteTransaction:
        if not transaction.is_on(self._settings):
            raise DeclarationError("tx", f"it is a transaction of another store, and not of {self._settings.path}")
        return transaction

    def _open(self) -> None:
        with self._opening:
            if self._opened is None:
                self._opened = Opened.open(self._settings)
                self._was_open = False

    def _reopen(self) -> Opened | None:
        """Restart the threads in a forked child, without opening the file; None if the store was closed meanwhile."""
        with self._opening:
            if self._opened is None and self._was_open:
                GUARD.check(self._settings.path)
                self._opened, self._was_open = Opened.start(self._settings), False
            return self._opened

    def _close(self) -> None:
        with self._opening:
            file, self._opened, self._was_open = self._opened, None, False
            if file is not None:
                file.close()

    async def _write(self, verb: Callable[Concatenate[Session, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._file.writer.do_one(lambda session: verb(session, *args, **kwargs))

    async def _read(self, look: Callable[Concatenate[Session, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._file.reader.read(lambda session: look(session, *args, **kwargs))

    async def _search(self, look: Callable[Concatenate[Session, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Read what may take a while, beside all other readers."""
        return await self._file.searcher.read(lambda session: look(session, *args, **kwargs))
