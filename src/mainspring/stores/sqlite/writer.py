"""The writer: one thread through which all writes of a store go, many in one transaction.

It takes the write lock first and then all that waits: while it was waiting for the lock, or for the disk, others have
come. If one of them raises, the transaction is rolled back and each is done alone, so that nobody is hurt by another.
Renewals go in front of everything else, because a node that cannot renew stops its work. Before SQLite's write lock it
takes the process's `Turn`, which it shares with the transactions of handlers.
"""

import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias, TypeVar

from mainspring.core.job import NodeId
from mainspring.errors import StoreClosed
from mainspring.stores.records import Claimed, ClaimRequest, Pulse
from mainspring.stores.sqlite import nodes
from mainspring.stores.sqlite.answers import Answer
from mainspring.stores.sqlite.claim import claim
from mainspring.stores.sqlite.connect import FileIdentity, connect
from mainspring.stores.sqlite.fork import IdleConnections
from mainspring.stores.sqlite.lanes import Known, Lanes
from mainspring.stores.sqlite.nothing import Nothing, Rings
from mainspring.stores.sqlite.retry import LockWait, pauses
from mainspring.stores.sqlite.session import Session
from mainspring.stores.sqlite.settings import Settings
from mainspring.stores.sqlite.trouble import is_busy, is_of_the_disk, locked, spoils_connection, translated
from mainspring.stores.sqlite.turn import TURN_WAIT_S, Turn
from mainspring.stores.sqlite.wake import Bells
from mainspring.stores.write_lock import refuse_inside

Item = TypeVar("Item")
Result = TypeVar("Result")
Work: TypeAlias = Callable[[Session, Sequence[Item]], Sequence[Result]]
"""What is done with some items, with an answer for each of them."""

LARGEST_GROUP: Final = 5_000
"""Items of one transaction, unless a single request has more: others want to write too."""
CLOSING_TIME: Final = 5.0
"""Seconds that requests may still wait for the lock when the store is being closed."""


@dataclass(slots=True, eq=False)
class Request:
    """Something to be done in a transaction. Neighbours with the same `work` are done as one."""

    work: Work[Any, Any]
    items: Sequence[Any]
    deadline: float
    alone: Callable[[Session], Any] | None = None
    """How to answer it without a transaction, if nothing else waits; it returns None where that cannot be."""
    answer: Answer[Sequence[Any]] = field(default_factory=Answer)


class Spoilt(Exception):
    """One of a group raised; nothing of the group is kept."""


class Writer:
    """Owns the connection that writes."""

    def __init__(self, settings: Settings, file: FileIdentity, lanes: Known, bells: Bells, turn: Turn) -> None:
        self._settings = settings
        self._turn = turn
        self._lanes = lanes
        self._bells = bells
        self._idle = IdleConnections()
        self._connection: sqlite3.Connection | None = None  # while it serves
        self._file = file
        self._rings: Rings | None = None
        self._nothing = Nothing()
        self._records = nodes.NOT_KNOWN
        self._changed = threading.Condition()
        self._urgent: deque[Request] = deque()
        self._waiting: deque[Request] = deque()
        self._closing = False
        self._thread = threading.Thread(target=self._serve, name="mainspring-sqlite-writer", daemon=True)

    def start(self) -> None:
        self._thread.start()

    async def do(
        self,
        work: Work[Item, Result],
        items: Sequence[Item],
        *,
        urgent: bool = False,
        alone: Callable[[Session], Result | None] | None = None,
    ) -> Sequence[Result]:
        """Have something done, and wait for the answers. Safe in any thread with a running loop.

        Raises at once inside of a transaction of the caller, which holds the lock that this call needs.
        """
        refuse_inside(self._settings.path, self._settings.store)
        request = Request(work, items, time.monotonic() + self._settings.patience, alone)
        with self._changed:
            if self._closing:
                raise StoreClosed(self._settings.store, "it has been closed")
            (self._urgent if urgent else self._waiting).append(request)
            self._changed.notify()
        return await request.answer.wait("the SQLite store's writer")

    async def do_one(
        self,
        verb: Callable[[Session], Result],
        *,
        urgent: bool = False,
        alone: Callable[[Session], Result | None] | None = None,
    ) -> Result:
        """Have something done that has one answer."""
        (answer,) = await self.do(lambda session, _: (verb(session),), (None,), urgent=urgent, alone=alone)
        return answer

    async def renew(self, node: NodeId, term: int) -> Pulse:
        """Renew in front of everything else: a node that cannot renew may have to stop its work."""

        def verb(session: Session) -> Pulse:
            pulse, self._records = nodes.renew(session, node, term, self._records)
            return pulse

        return await self.do_one(verb, urgent=True, alone=verb)  # one statement is a transaction of its own

    async def claim(self, request: ClaimRequest) -> Claimed:
        """Claim; a node that has been told that there is nothing is told so again for as long as that is true."""

        def verb(session: Session) -> Claimed:
            claimed = claim(session, request)
            self._nothing.remember(request, claimed, self._counted(session).count(), self._settings.clock.now())
            return claimed

        def alone(session: Session) -> Claimed | None:
            return self._nothing.still(request, self._counted(session).count(), self._settings.clock.now())

        return await self.do_one(verb, alone=alone)

    def close(self) -> None:
        """Finish what waits, and end the thread. Blocks."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join()

    # In the thread.

    def _serve(self) -> None:
        while self._wait_for_work():
            self._connection = self._idle.take()
            try:
                if self._serve_alone():
                    continue
                connection = self._begin()
                if connection is not None:
                    self._serve_group(connection, self._take())
            except Exception as error:  # noqa: BLE001 -- whatever it is, it is told to those who wait
                self._fail_all(error)
            finally:
                self._put_back()
        self._idle.close()

    def _put_back(self) -> None:
        """Keep the connection for the next turn, unless a fork closes it in between."""
        connection, self._connection = self._connection, None
        if connection is not None:
            self._idle.put(connection)

    def _wait_for_work(self) -> bool:
        with self._changed:
            while not (self._urgent or self._waiting or self._closing):
                self._changed.wait()
            return bool(self._urgent or self._waiting)

    def _serve_alone(self) -> bool:
        """Answer the only one that waits without a transaction, if that can be. False: it waits still.

        A node that is idle renews, asks for jobs and does nothing else: this way that is one statement, and none.
        """
        with self._changed:
            line = self._urgent or self._waiting
            request = line[0] if len(self._urgent) + len(self._waiting) == 1 else None
        if request is None or request.alone is None or self._connection is None or not self._file.is_same():
            return False
        session = Session(self._connection, self._settings.now(), Lanes(self._lanes), self._settings.store)
        try:
            answer = request.alone(session)
            if answer is None:
                return False
            request.answer.set((answer,))
        except sqlite3.Error as error:
            if is_busy(error):
                return False  # the way of all others waits for the lock
            self._let_go(error)
            request.answer.fail(translated(self._settings.store, error))
        except Exception as error:  # noqa: BLE001 -- the caller gets it
            request.answer.fail(error)
        with self._changed:
            line.popleft()
        Answer.bring([request.answer])
        return True

    def _counted(self, session: Session) -> Rings:
        """The count of rings as the present connection sees it."""
        if self._rings is None or self._rings.connection is not session.connection:
            self._rings = Rings(session.connection)
        return self._rings

    def _begin(self, request: Request | None = None) -> sqlite3.Connection | None:
        """Get the turn and the write lock; None if no caller waits any more. For a single request, or for all queued.

        With a connection the turn is held, until `_transact` gives it up.
        """
        wait = LockWait(self._settings)
        while not self._turn.take(TURN_WAIT_S, as_writer=True):
            self._put_back()  # a fork does not wait for it
            if not self._still_wanted(locked(self._settings.store), request):
                return None
            wait.report()
        self._connection = self._connection or self._idle.take()
        connection = None
        try:
            connection = self._begin_in_turn(request, wait)
        finally:
            if connection is None:
                self._turn.give_up()
        return connection

    def _begin_in_turn(self, request: Request | None, wait: LockWait) -> sqlite3.Connection | None:
        for pause in pauses():
            self._file.check(self._settings.store)
            try:
                if self._connection is None:
                    self._connection = connect(self._settings.path, durable=self._settings.durable)
                self._connection.execute("BEGIN IMMEDIATE")
            except sqlite3.Error as error:
                if not is_busy(error):
                    self._let_go(error)
                    raise
                if not self._still_wanted(error, request):
                    return None
                wait.report()
            else:
                return self._connection
            self._put_back()
            time.sleep(pause)
            self._connection = self._idle.take()
        return None

    def _still_wanted(self, error: Exception, request: Request | None) -> bool:
        """Give up on those who have waited for too long; say whether anyone is left."""
        now = time.monotonic()
        late = []
        with self._changed:
            closing_by = now + CLOSING_TIME if self._closing else now + self._settings.patience
            mine = [request] if request else [*self._urgent, *self._waiting]
            for one in mine:
                one.deadline = min(one.deadline, closing_by)
                if one.deadline <= now:
                    late.append(one)
            if not request:
                self._urgent = deque(one for one in self._urgent if one.deadline > now)
                self._waiting = deque(one for one in self._waiting if one.deadline > now)
        self._fail(late, error)
        return len(late) < len(mine)

    def _take(self) -> list[Request]:
        """Take what waits, the urgent ones first, up to a group's size; those whose callers gave up are left out."""
        group: list[Request] = []
        size = 0
        with self._changed:
            for line in (self._urgent, self._waiting):
                while line and (size + len(line[0].items) <= LARGEST_GROUP or not group):
                    request = line.popleft()
                    if not request.answer.is_unwanted:
                        group.append(request)
                        size += len(request.items)
        return group

    def _serve_group(self, connection: sqlite3.Connection, group: Sequence[Request]) -> None:
        try:
            self._transact(connection, group)
        except Spoilt:
            for request in group:
                self._serve_urgent()
                self._serve_single(request)
        except Exception as error:  # noqa: BLE001 -- the callers get it
            self._fail(group, error)

    def _serve_single(self, request: Request) -> None:
        try:
            if (alone := self._begin(request)) is not None:
                self._transact(alone, [request])
        except Exception as error:  # noqa: BLE001 -- the caller gets it
            self._fail([request], error)

    def _serve_urgent(self) -> None:
        """Serve what came while a group is done one by one: a thousand commits may take longer than a node may wait."""
        while True:
            with self._changed:
                request = self._urgent.popleft() if self._urgent else None
            if request is None:
                return
            if not request.answer.is_unwanted:
                self._serve_single(request)

    def _transact(self, connection: sqlite3.Connection, group: Sequence[Request]) -> None:
        """Do a group in the transaction that is open; raises with nothing kept, and `Spoilt` if it was more than one."""
        try:
            session = Session(connection, self._settings.now(), Lanes(self._lanes), self._settings.store)
            for merged in _merged(group):
                self._do(session, merged, alone=len(group) == 1)
            rings = session.ring()
            connection.execute("COMMIT")
        except BaseException as error:
            self._let_go(error)
            self._nothing = Nothing()  # what a claim of this group found may have hung on a neighbour
            self._records = nodes.NOT_KNOWN  # so may what a renewal read
            if len(group) > 1:
                raise Spoilt from error
            raise
        finally:
            self._turn.give_up()
        session.lanes.keep()
        # Watchers of this process hear of it before the callers do: on virtual time, a caller who goes on at once could
        # let time pass before those who have work to do. Other processes come last: ringing their bells takes longer.
        if rings is not None:
            self._counted(session).own(rings)
            self._bells.committed(rings)
        Answer.bring([request.answer for request in group])
        if rings is not None:
            self._bells.ring_others()

    def _do(self, session: Session, requests: Sequence[Request], *, alone: bool) -> None:
        """Do requests of the same work as one."""
        items = requests[0].items if len(requests) == 1 else [item for one in requests for item in one.items]
        before = session.connection.total_changes
        try:
            answers = requests[0].work(session, items)
        except Exception as error:
            untouched = session.connection.in_transaction and session.connection.total_changes == before
            if alone or len(requests) > 1 or not untouched or isinstance(error, sqlite3.Error):
                raise
            requests[0].answer.fail(error)  # a refusal before anything was written hurts nobody
            return
        start = 0
        for one in requests:
            one.answer.set(answers[start : start + len(one.items)])
            start += len(one.items)

    def _let_go(self, error: BaseException) -> None:
        """Roll back what is open; after trouble with the file, open it anew next time.

        But not after an error of reading or writing that could be rolled back: whoever closes the last connection lets
        the log be recovered, and with it what could not be synced, and was refused, would be committed after all.
        """
        connection = self._connection
        if connection is None:
            return
        try:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
        except sqlite3.Error:
            spoilt = True
        else:
            spoilt = spoils_connection(error) and not is_of_the_disk(error)
        if spoilt:
            self._connection = None
            connection.close()

    def _fail(self, group: Sequence[Request], error: BaseException) -> None:
        for request in group:
            request.answer.fail(translated(self._settings.store, error))
        Answer.bring([request.answer for request in group])

    def _fail_all(self, error: BaseException) -> None:
        with self._changed:
            group = [*self._urgent, *self._waiting]
            self._urgent.clear()
            self._waiting.clear()
        self._fail(group, error)


def _merged(group: Sequence[Request]) -> list[list[Request]]:
    """Put neighbours together that ask for the same work."""
    merged: list[list[Request]] = []
    for request in group:
        if merged and merged[-1][0].work is request.work:
            merged[-1].append(request)
        else:
            merged.append([request])
    return merged
