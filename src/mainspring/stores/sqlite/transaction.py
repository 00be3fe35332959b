"""A transaction for a handler, in the thread of the store's `TransactionQueue`.

It holds the only write lock, so it may not last: after its limit it is rolled back, even if the handler never comes
back, even if the event loop stands still; whoever uses it then gets `TransactionTooLong`.
"""

import os
import sqlite3
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final, TypeVar

from mainspring.core.job import NodeId
from mainspring.errors import DeclarationError, StoreError, TransactionTooLong
from mainspring.stores.outbox import NewMessage, Published, Stride
from mainspring.stores.records import Enqueued, NewJob, Settled, Settlement
from mainspring.stores.sqlite.answers import Answer
from mainspring.stores.sqlite.enqueue import enqueue
from mainspring.stores.sqlite.lanes import Known, Lanes
from mainspring.stores.sqlite.outboxes import publish
from mainspring.stores.sqlite.session import Session
from mainspring.stores.sqlite.settings import Settings
from mainspring.stores.sqlite.settle import settle
from mainspring.stores.sqlite.strides import stride
from mainspring.stores.sqlite.transaction_queue import TransactionQueue
from mainspring.stores.sqlite.trouble import NOT_AUTHORIZED, code, translated
from mainspring.stores.sqlite.wake import Bells

T = TypeVar("T")

_STEPS: Final = 10_000
"""Of SQLite's machine, well under a millisecond, between two looks at the clock."""
_LASTING: Final = frozenset(
    {
        sqlite3.SQLITE_PRAGMA,
        sqlite3.SQLITE_ATTACH,
        sqlite3.SQLITE_DETACH,
        sqlite3.SQLITE_CREATE_TEMP_INDEX,
        sqlite3.SQLITE_CREATE_TEMP_TABLE,
        sqlite3.SQLITE_CREATE_TEMP_TRIGGER,
        sqlite3.SQLITE_CREATE_TEMP_VIEW,
    }
)
"""Actions of a handler's statements whose effect stays with the connection after the transaction."""


@dataclass(slots=True, eq=False)
class Command:
    """Something to be done in the transaction's thread."""

    step: Callable[[Session], Any]
    ends: bool = False
    answer: Answer[Any] = field(default_factory=Answer)


class SqliteTransaction:
    """An open transaction. Made by `SqliteStore.transaction`, which begins and ends it."""

    def __init__(
        self, settings: Settings, limit: timedelta, lanes: Known, bells: Bells, queue: TransactionQueue
    ) -> None:
        self._settings = settings
        self._limit = limit.total_seconds()
        self._lanes = lanes
        self._bells = bells
        self._queue = queue
        self._commands: deque[Command] = deque()
        self._over: BaseException | None = None
        """What to tell whoever comes now; once it is set, the thread takes no more commands."""
        self._deadline = 0.0
        self.changed_connection = False
        """Whether the connection is no longer as it was before."""
        self._process = os.getpid()

    async def execute(self, statement: str, parameters: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        return await self._do(lambda session: _execute(session, statement, parameters))

    async def enqueue(self, new: Sequence[NewJob]) -> tuple[Enqueued, ...]:
        return tuple(await self._do(lambda session: _whole(session, lambda: enqueue(session, new))))

    async def settle(self, settlement: Settlement) -> Settled:
        (settled,) = await self._do(lambda session: _whole(session, lambda: settle(session, [settlement])))
        return settled

    async def publish(self, new: Sequence[NewMessage]) -> tuple[Published, ...]:
        """As `Outboxes.publish`, in this transaction."""
        return tuple(await self._do(lambda session: _whole(session, lambda: publish(session, new))))

    async def stride(self, node: NodeId, term: int, one: Stride) -> bool:
        """As `Outboxes.stride`, in this transaction."""
        (accepted,) = await self._do(lambda session: _whole(session, lambda: stride(session, [(node, term, one)])))
        return accepted

    def is_on(self, settings: Settings) -> bool:
        """Say whether it is a transaction of that store."""
        return self._settings.path == settings.path

    @property
    def is_open(self) -> bool:
        """Whether it holds the write lock."""
        return self._over is None and not self._is_late()

    # Its beginning and its end.

    async def begin(self) -> None:
        begun: Answer[None] = Answer()
        self._queue.put(self, begun)
        try:
            await begun.wait("the write lock of the SQLite store")
        except BaseException:
            with suppress(Exception):  # it may have ended
                self._put(_leave, ends=True)  # the caller has left, so the lock must be released once it is taken
            raise

    async def commit(self) -> None:
        await self._do(self._commit, ends=True)

    async def roll_back(self) -> None:
        """End it without a trace; one that is over has none."""
        if self._over is None:
            await self._do(_leave, ends=True)

    async def _do(self, step: Callable[[Session], T], *, ends: bool = False) -> T:
        answer: T = await self._put(step, ends=ends).answer.wait("a transaction on the SQLite store")
        return answer

    def _put(self, step: Callable[[Session], Any], *, ends: bool) -> Command:
        command = Command(step, ends)
        if os.getpid() != self._process:
            raise StoreError(
                self._settings.store, "the transaction belongs to the parent process; begin one in this process"
            )
        with self._queue.changed:
            if self._over is not None:
                raise self._over
            if ends:
                self._over = DeclarationError("tx", "its block has ended; nothing more can be done in it")
            self._commands.append(command)
            self._queue.changed.notify()
        return command

    # In the thread.

    def start_clock(self) -> None:
        """Start its time limit: called after BEGIN, before its caller continues."""
        self._deadline = self._settings.clock.monotonic() + self._limit

    def serve(self, connection: sqlite3.Connection) -> list[Answer[Any]]:
        """Execute its commands until the end; return the answers to deliver after that."""
        connection.set_authorizer(self._authorize)
        connection.set_progress_handler(self._is_late, _STEPS)
        return self._obey(Session(connection, self._settings.now(), Lanes(self._lanes), self._settings.store))

    def fail(self, error: BaseException) -> list[Answer[Any]]:
        """Take no more commands; return the answers of those that are queued or being executed, which fail."""
        self.changed_connection = True
        with self._queue.changed:
            self._over = error
            late = [command.answer for command in self._commands]
            self._commands.clear()
        for answer in late:
            answer.fail(error)
        return late

    def _authorize(self, action: int, *_: str | None) -> int:
        if action in _LASTING:
            self.changed_connection = True
        return sqlite3.SQLITE_DENY if action == sqlite3.SQLITE_TRANSACTION else sqlite3.SQLITE_OK

    def _is_late(self) -> bool:
        return self._settings.clock.monotonic() >= self._deadline

    def _obey(self, session: Session) -> list[Answer[Any]]:
        """Execute commands until the end; return the answers to deliver then.

        A command stays in the queue until its answer is delivered, so that `fail` finds it.
        """
        while (command := self._next()) is not None:
            try:
                command.answer.set(command.step(session))
            except BaseException as error:  # noqa: BLE001 -- the caller gets it
                if self._is_late():  # and was interrupted for that
                    break
                command.answer.fail(error)
            if command.ends:
                return [command.answer]
            self._commands.popleft()
            Answer.bring([command.answer])
            if not session.connection.in_transaction:
                return self.fail(StoreError(session.store, "an error has ended the transaction; begin anew"))
        return self.fail(TransactionTooLong(self._limit))

    def _next(self) -> Command | None:
        """Wait for a command; None when the time is over. The clock may be virtual, then it is asked again."""
        while not self._is_late():
            with self._queue.changed:
                if self._commands:
                    return self._commands[0]
                left = max(0.0, self._deadline - self._settings.clock.monotonic())
                self._queue.changed.wait(min(left, self._queue.next_late()))
            self._queue.fail_late()
        return None

    def _commit(self, session: Session) -> None:
        rings = session.ring()
        session.connection.set_authorizer(None)
        session.connection.set_progress_handler(None, 0)
        try:
            session.run("COMMIT")
        except sqlite3.Error as error:
            self.changed_connection = True
            raise translated(session.store, error) from error
        session.lanes.keep()
        if rings is not None:
            self._bells.committed(rings)
            self._bells.ring_others()


def _leave(_: Session) -> None:
    """End without a commit."""


def _execute(session: Session, statement: str, parameters: Sequence[object]) -> list[tuple[Any, ...]]:
    """Run a statement of the handler's own. What SQLite says to it is the handler's business."""
    try:
        return session.rows(statement, parameters)
    except sqlite3.DatabaseError as error:
        if code(error) != NOT_AUTHORIZED:
            raise
        raise DeclarationError(
            "statement", "the transaction begins and ends with its block; leave out BEGIN, COMMIT and ROLLBACK"
        ) from error
    finally:
        session.lanes.forget()  # it may have rolled back to a savepoint of its own, and lanes with it


def _whole(session: Session, verb: Callable[[], T]) -> T:
    """Do a verb of ours whole or not at all: the handler may go on after an error."""
    session.run("SAVEPOINT mainspring_verb")
    try:
        return verb()
    except BaseException as error:
        if session.connection.in_transaction:
            session.run("ROLLBACK TO mainspring_verb")
            session.lanes.forget()
        raise translated(session.store, error) from error
    finally:
        if session.connection.in_transaction:
            session.run("RELEASE mainspring_verb")
