"""The readers: a few threads with connections of their own, which never wait for the writer and never write."""

import sqlite3
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, TypeVar

from mainspring.errors import StoreClosed, StoreUnavailable
from mainspring.stores.sqlite.answers import Answer
from mainspring.stores.sqlite.connect import FileIdentity, connect_reader
from mainspring.stores.sqlite.fork import IdleConnections
from mainspring.stores.sqlite.lanes import Known, Lanes
from mainspring.stores.sqlite.retry import persist
from mainspring.stores.sqlite.session import Session
from mainspring.stores.sqlite.settings import Settings
from mainspring.stores.sqlite.trouble import INTERRUPT, code, spoils_connection, translated

T = TypeVar("T")

THREADS: Final = 4
"""A long list does not hold up a short look."""
THREADS_OF_SEARCHES: Final = 2
"""What people look for may take a second each time. However many do, what the nodes read waits for none of them."""

INTERRUPT_INTERVAL_S: Final = 0.005
"""Interval between interrupts of running searches while the store is being closed."""


class Reader:
    """Owns the connections that read."""

    def __init__(self, settings: Settings, file: FileIdentity, lanes: Known, *, threads: int = THREADS) -> None:
        self._settings = settings
        self._file = file
        self._lanes = lanes
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="mainspring-sqlite-reader")
        self._idle = IdleConnections()
        self._lock = threading.Lock()
        self._in_use: set[sqlite3.Connection] = set()
        self._asked: set[Answer[Any]] = set()
        """Reads that have not been answered."""
        self._is_closed = False
        self._is_interrupted = False

    async def read(self, look: Callable[[Session], T]) -> T:
        """Look at the tables as they are at one moment. Safe in any thread with a running loop."""
        answer: Answer[T] = Answer()
        with self._lock:
            self._asked.add(answer)
        try:
            self._threads.submit(self._answer, look, answer)
        except RuntimeError as error:
            with self._lock:
                self._asked.discard(answer)  # a thread may still find it, so these are not counted
            if self._is_closed:
                raise self._closed() from None
            raise StoreUnavailable(
                self._settings.store, f"no thread can be started for a read ({error}); check the system's limits"
            ) from error
        return await answer.wait("a reader of the SQLite store")

    def close(self, *, interrupt: bool = False) -> None:
        """Finish all reads, or fail them with `StoreClosed`. Blocks."""
        self._is_closed = True
        self._threads.shutdown(wait=False)
        while interrupt:
            with self._lock:
                self._is_interrupted = True
                interrupt = bool(self._asked)
                for connection in self._in_use:
                    connection.interrupt()  # reaches a statement that runs, and not the next one
            if interrupt:
                time.sleep(INTERRUPT_INTERVAL_S)
        self._threads.shutdown()
        self._idle.close()

    def _answer(self, look: Callable[[Session], T], answer: Answer[T]) -> None:
        try:
            if not answer.is_unwanted:  # its caller may have given up while it waited for a thread
                self._decide(look, answer)
                Answer.bring([answer])
        finally:
            with self._lock:
                self._asked.discard(answer)

    def _decide(self, look: Callable[[Session], T], answer: Answer[T]) -> None:
        if self._is_interrupted:
            answer.fail(self._closed())
            return
        try:
            # Readers are turned away only for a moment: while the log is recovered, or the file is closed elsewhere.
            answer.set(persist(lambda: self._snapshot(look), self._settings.patience))
        except BaseException as error:  # noqa: BLE001 -- the caller gets it
            answer.fail(self._closed() if self._was_interrupted(error) else translated(self._settings.store, error))

    def _was_interrupted(self, error: BaseException) -> bool:
        return self._is_interrupted and isinstance(error, sqlite3.Error) and code(error) == INTERRUPT

    def _closed(self) -> StoreClosed:
        return StoreClosed(self._settings.store, "it has been closed")

    def _snapshot(self, look: Callable[[Session], T]) -> T:
        self._file.check(self._settings.store)
        connection = self._idle.take() or connect_reader(self._settings.path)
        with self._lock:
            self._in_use.add(connection)
        try:
            session = Session(connection, self._settings.now(), Lanes(self._lanes), self._settings.store)
            connection.execute("BEGIN")
            seen = look(session)
            connection.execute("COMMIT")
        except BaseException as error:
            is_spoilt = spoils_connection(error)
            try:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
            except sqlite3.Error:
                is_spoilt = True
            if is_spoilt:
                with self._lock:
                    self._in_use.discard(connection)
                connection.close()
            else:
                self._put_back(connection)
            raise
        self._put_back(connection)
        session.lanes.keep()
        return seen

    def _put_back(self, connection: sqlite3.Connection) -> None:
        with self._lock:
            self._in_use.discard(connection)
        self._idle.put(connection)
