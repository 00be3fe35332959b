"""Queue of a store's handler transactions, and the thread that serves them one after the other.

SQLite has one write lock, so a process gains nothing from transactions that wait for it side by side. One thread serves
all of a store, with one connection that is kept open between them; it ends when the queue is empty. It holds the
process's `Turn` from before BEGIN until after the end of a transaction.
"""

import sqlite3
import threading
from collections import deque
from dataclasses import dataclass
from typing import Any, Final, Protocol

from mainspring.errors import StoreUnavailable
from mainspring.stores.sqlite.answers import Answer
from mainspring.stores.sqlite.connect import FileIdentity, connect
from mainspring.stores.sqlite.fork import IdleConnections
from mainspring.stores.sqlite.retry import LockWait, persist
from mainspring.stores.sqlite.settings import Settings
from mainspring.stores.sqlite.trouble import is_busy, locked, translated
from mainspring.stores.sqlite.turn import TURN_WAIT_S, Turn


class Served(Protocol):
    """A transaction, as its thread sees it."""

    def start_clock(self) -> None:
        """Start its time limit: called after BEGIN, before its caller continues."""
        ...

    def serve(self, connection: sqlite3.Connection) -> list[Answer[Any]]:
        """Execute everything between BEGIN and the end; return the answers to deliver after the end."""
        ...

    def fail(self, error: BaseException) -> list[Answer[Any]]:
        """End it with an error; return the answers to deliver."""
        ...

    @property
    def changed_connection(self) -> bool:
        """Whether the connection is no longer as it was before."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Waiting:
    """A transaction that has not begun."""

    transaction: Served
    begun: Answer[None]
    wait: LockWait


class TransactionQueue:
    """The transactions of one open store, in the order of their arrival."""

    def __init__(self, settings: Settings, file: FileIdentity, turn: Turn) -> None:
        self.changed: Final = threading.Condition()
        """Guards the queue, and the commands of the transaction that is open; notified when one of them grows."""
        self._settings = settings
        self._turn = turn
        self._waiting: deque[Waiting] = deque()
        self._is_served = False
        self._file = file
        self._idle = IdleConnections()
        self._is_closed = False

    def put(self, transaction: Served, begun: Answer[None]) -> None:
        """Queue a transaction."""
        with self.changed:
            if not self._is_served:
                self._start_thread()  # it waits for the guard
            self._waiting.append(Waiting(transaction, begun, LockWait(self._settings)))
            self.changed.notify()

    def _start_thread(self) -> None:
        try:
            threading.Thread(target=self._serve, name="mainspring-sqlite-transaction", daemon=True).start()
        except RuntimeError as error:
            raise StoreUnavailable(
                self._settings.store, f"no thread can be started for a transaction ({error}); check the system's limits"
            ) from error
        self._is_served = True

    def close(self) -> None:
        """Close the connection now, or after the last queued or open transaction."""
        self._is_closed = True
        self._idle.close()

    # In the thread.

    def next_late(self) -> float:
        """Return the seconds until the first queued transaction times out; call with `changed` held."""
        return self._waiting[0].wait.left() if self._waiting else threading.TIMEOUT_MAX

    def fail_late(self) -> None:
        """Fail transactions that have been queued for too long."""
        with self.changed:
            late = []
            while self._waiting and self._waiting[0].wait.left() <= 0:
                late.append(self._waiting.popleft().begun)
        for begun in late:
            begun.fail(locked(self._settings.store))
        Answer.bring(late)

    def _serve(self) -> None:
        while (one := self._next()) is not None:
            try:
                answers = self._serve_one(one)
            except BaseException as error:  # noqa: BLE001 -- the callers get it, and the thread serves the next one
                reason = translated(self._settings.store, error)
                one.begun.fail(reason)  # has no effect after it was delivered
                answers = [one.begun, *one.transaction.fail(reason)]
            Answer.bring(answers)

    def _next(self) -> Waiting | None:
        with self.changed:
            if self._waiting:
                return self._waiting.popleft()
            self._is_served = False
            return None

    def _serve_one(self, one: Waiting) -> list[Answer[Any]]:
        while not self._turn.take(min(TURN_WAIT_S, one.wait.left())):
            self.fail_late()
            if one.begun.is_unwanted:
                return []
            if one.wait.left() <= 0:
                raise locked(self._settings.store)
        try:
            return [] if one.begun.is_unwanted else self._serve_in_turn(one)  # its caller may have given up meanwhile
        finally:
            self._turn.give_up()

    def _serve_in_turn(self, one: Waiting) -> list[Answer[Any]]:
        connection = self._begin(one.wait.left())
        try:
            one.transaction.start_clock()
            one.begun.set(None)
            Answer.bring([one.begun])
            return one.transaction.serve(connection)
        finally:
            self._leave(connection, keep=not one.transaction.changed_connection)

    def _begin(self, patience: float) -> sqlite3.Connection:
        wait = LockWait(self._settings)  # not from the start of the queueing, which may have been long

        def on_busy() -> None:
            wait.report()
            self.fail_late()

        return persist(self._try_to_begin, patience, on_busy=on_busy)

    def _try_to_begin(self) -> sqlite3.Connection:
        self._file.check(self._settings.store)
        connection = self._idle.take() or connect(self._settings.path, durable=self._settings.durable)
        try:
            connection.execute("BEGIN IMMEDIATE")
        except BaseException as error:
            if is_busy(error):
                self._put_back(connection)  # a fork during the pause closes it
            else:
                connection.close()
            raise
        return connection

    def _leave(self, connection: sqlite3.Connection, *, keep: bool) -> None:
        """Roll back what is still open; keep the connection for the next transaction, or close it."""
        try:
            connection.set_authorizer(None)
            connection.set_progress_handler(None, 0)
            if connection.in_transaction:
                connection.execute("ROLLBACK")
        except sqlite3.Error:
            keep = False
        if keep:
            self._put_back(connection)
        else:
            connection.close()

    def _put_back(self, connection: sqlite3.Connection) -> None:
        """Keep a connection for the next transaction. Without the guard: closing it may take long."""
        self._idle.put(connection)
        if self._is_closed:
            self._idle.close()
