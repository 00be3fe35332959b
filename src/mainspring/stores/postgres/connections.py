"""Our own few connections: a verb is run on one of them, and run again where that makes sense.

Each event loop has its own, because a connection belongs to the loop that opened it; on virtual time the work is done
aside, on a loop on real time. Never `asyncpg.Pool`, which can hang past every timeout on a frozen server.

A verb that met others in the way (a deadlock, a serialization failure) is run again at once, one that lost its
connection on a fresh one, until `patience` has passed. What was lost may have been committed all the same, which every
verb of this store allows for; one that cannot is run with `again=False`.
"""

import asyncio
import logging
import os
import random
import threading
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeVar

from mainspring.clock import on_virtual_time
from mainspring.errors import StoreClosed
from mainspring.stores.postgres.aside import Aside, on_loop
from mainspring.stores.postgres.connect import begin, begin_lease, connect
from mainspring.stores.postgres.connected import Connected
from mainspring.stores.postgres.drive import drive
from mainspring.stores.postgres.lease import Lease
from mainspring.stores.postgres.outage import Outage
from mainspring.stores.postgres.settings import Settings
from mainspring.stores.postgres.shelf import Shelf
from mainspring.stores.postgres.trouble import Kind, is_shared, kind, translated
from mainspring.stores.postgres.verb import Verb

T = TypeVar("T")

REPEATS: Final = 30
"""Times that a verb is run again because others were in the way."""
SHORTEST: Final = 0.05
LONGEST: Final = 1.0
"""Seconds between tries to reach a server; the first follows at once."""
_CLOSING_TIME: Final = 2.0
"""Seconds that connections of other loops may take to end."""

_logger: Final = logging.getLogger("mainspring.stores.postgres")


class _Shelves(NamedTuple):
    """A handler's transaction has a connection of its own kind: it may enqueue, and must not wait for itself."""

    verbs: Shelf
    leases: Shelf


@dataclass(slots=True)
class _Tries:
    """How it has gone so far, with one verb."""

    began: float = 0.0
    losses: int = 0
    repeats: int = 0
    may_be_done: bool = False
    """Whether something was sent that may have been committed."""


class Connections:
    """All connections of a store but the one that listens."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._guard = threading.Lock()
        self._shelves: dict[asyncio.AbstractEventLoop, _Shelves] = {}
        self._aside: Aside | None = None
        self._is_open = False
        self._pooled = settings.pooled
        self._host = 0
        self._generation = 0
        self._outage = Outage(settings)
        _ALL.add(self)

    @property
    def pooled(self) -> bool | None:
        """Whether a pooler is in between; None before the first connection."""
        return self._pooled

    async def open(self) -> None:
        """Let verbs be run; connections are opened when they are needed."""
        with self._guard:
            self._is_open = True

    @property
    def is_open(self) -> bool:
        return self._is_open

    def must_be_open(self) -> None:
        if not self._is_open:
            raise StoreClosed(self._settings.store, "it is not open; call open() first, and close() last")

    async def run(
        self,
        verb: Callable[[], Verb[T]],
        *,
        whole: bool = False,
        timeout: float | None = None,  # noqa: ASYNC109 -- of each statement, and not of the whole
        again: bool = True,
    ) -> T:
        """Run a verb, each try with a fresh one; `whole`: in one transaction.

        `timeout` is for each of its statements, in seconds; `again=False` for what must not be done twice.
        """
        if on_virtual_time():
            return await on_loop(
                self._real_loop(), "the PostgreSQL store", lambda: self._run(verb, whole, timeout, again)
            )
        return await self._run(verb, whole, timeout, again)

    @asynccontextmanager
    async def lease(self, limit: float) -> AsyncIterator[Lease]:
        """Open a transaction for a handler: committed at the end of the block, rolled back if that raises.

        After `limit` seconds it is rolled back, and whoever uses it then gets `TransactionTooLong`.
        """
        home = self._real_loop() if on_virtual_time() else asyncio.get_running_loop()
        lease = await on_loop(home, "the PostgreSQL store", lambda: self._begin(limit))
        try:
            yield lease
        except Exception:
            await lease.roll_back()
            raise
        except BaseException:
            lease.abandon()
            raise
        await lease.commit()

    async def close(self) -> None:
        """End all connections, of all loops; what waits for one, and what comes later, raises `StoreClosed`.

        What is under way on this loop may end, for as long as a statement may take.
        """
        with self._guard:
            self._is_open = False
            shelves, self._shelves = self._shelves, {}
            aside, self._aside = self._aside, None
        await asyncio.gather(
            *(_close(loop, shelf, self._settings.timeout) for loop, pair in shelves.items() for shelf in pair)
        )
        if aside:
            await aside.stop(_CLOSING_TIME)

    def after_fork(self) -> None:
        """Begin anew in a child: what is open is the parent's."""
        _LEFT_BEHIND.append((self._shelves, self._aside))
        self._guard = threading.Lock()
        self._outage = Outage(self._settings)
        self._shelves = {}
        self._aside = None

    # On a loop on real time.

    async def _run(self, verb: Callable[[], Verb[T]], whole: bool, seconds: float | None, again: bool) -> T:
        tries = _Tries()

        async def step(connected: Connected) -> T:
            return await self._do(connected, verb, whole, seconds or self._settings.timeout, tries)

        shelf = (self._shelves.get(asyncio.get_running_loop()) or await self._furnish()).verbs
        connected, answer = await self._persist(shelf, step, tries, again)
        shelf.give(connected, self._generation)
        return answer

    async def _begin(self, limit: float) -> Lease:
        async def step(connected: Connected) -> None:
            connected.within = self._settings.timeout
            await connected.execute(begin_lease(self._settings, limit, pooled=connected.pooled))

        shelf = (self._shelves.get(asyncio.get_running_loop()) or await self._furnish()).leases
        connected, _ = await self._persist(shelf, step, _Tries(), again=True)
        return Lease(self._settings, connected, limit, lambda: shelf.give(connected, self._generation))

    async def _do(
        self, connected: Connected, verb: Callable[[], Verb[T]], whole: bool, seconds: float, tries: _Tries
    ) -> T:
        connected.within = seconds
        longer = seconds > self._settings.timeout
        # Behind a pooler a single statement wants a transaction too: asyncpg prepares and runs it in two steps, and
        # PgBouncer may give each another server connection.
        if not (whole or longer or connected.pooled):
            tries.may_be_done = True
            return await drive(connected, verb(), self._settings.schema)
        await connected.execute(begin(self._settings, seconds, pooled=connected.pooled))
        answer = await drive(connected, verb(), self._settings.schema)
        tries.may_be_done = True
        await connected.execute("COMMIT")
        return answer

    async def _persist(
        self, shelf: Shelf, step: Callable[[Connected], Awaitable[T]], tries: _Tries, again: bool
    ) -> tuple[Connected, T]:
        """Do a step on a connection, as often as it takes. The connection is the caller's to give back then."""
        loop = asyncio.get_running_loop()
        tries.began = loop.time()
        while True:
            connected: Connected | None = None
            tries.may_be_done = False
            try:
                connected = await shelf.take(self._generation)
                if not tries.losses:  # what was spent in the line does not count
                    tries.began = loop.time()
                answer = await step(connected)
            except Exception as error:  # noqa: BLE001 -- raised again if nothing can be done about it
                await self._tidy(shelf, connected, error)
                pause = self._pause(error, tries, loop.time(), again)
            except BaseException:
                if connected is not None:
                    shelf.drop(connected)  # its statement may still be running
                raise
            else:
                if self._outage.since is not None and connected.generation == self._generation:
                    self._outage.end()  # an old one may have answered once more before it is lost, too
                return connected, answer
            await asyncio.sleep(pause)

    async def _tidy(self, shelf: Shelf, connected: Connected | None, error: Exception) -> None:
        """Put a connection away after an error."""
        lost = kind(error) is Kind.LOST
        if is_shared(error):
            self._found_pooler()
        if connected is None:
            if lost:
                self._outage.begin(error)
        elif lost:
            shelf.drop(connected)
            if connected.generation == self._generation:  # the others are as dead, and each would cost a try
                self._generation += 1
                self._outage.begin(error)
        else:
            await _roll_back(shelf, connected)
            if connected.is_clean:
                shelf.give(connected, self._generation)

    def _pause(self, error: Exception, tries: _Tries, now: float, again: bool) -> float:
        """Choose how long to wait before the next try; raises if there is none."""
        match kind(error):
            case Kind.AGAIN if tries.repeats < REPEATS:
                tries.repeats += 1
                return random.uniform(0, 0.001 * 2 ** min(tries.repeats, 6))  # noqa: S311 -- no secret
            case Kind.LOST if (again or not tries.may_be_done) and now < tries.began + self._settings.patience:
                tries.losses += 1
                longest = min(SHORTEST * 2 ** min(tries.losses - 2, 10), LONGEST) if tries.losses > 1 else 0.0
                left = tries.began + self._settings.patience - now
                return min(random.uniform(longest / 2, longest), left)  # noqa: S311 -- no secret
            case _:
                raise translated(self._settings, error)

    async def _furnish(self) -> _Shelves:
        """Make the shelves of this loop."""
        loop = asyncio.get_running_loop()
        pair = _Shelves(Shelf(self._settings, self._open), Shelf(self._settings, self._open))
        with self._guard:
            self.must_be_open()
            if loop in self._shelves:  # somebody else's, made this very moment
                return self._shelves[loop]
            ended = [other for other in self._shelves if other.is_closed()]
            left = [self._shelves.pop(other) for other in ended]
            self._shelves[loop] = pair
        for shelf in (shelf for other in left for shelf in other):
            _let_go(shelf)
        for shelf in pair:
            await shelf.begin(lambda: self._forget(loop, pair))
        return pair

    def _forget(self, loop: asyncio.AbstractEventLoop, pair: _Shelves) -> None:
        with self._guard:
            if self._shelves.get(loop) is pair:
                del self._shelves[loop]

    async def _open(self) -> Connected:
        connected = await connect(self._settings, pooled=self._pooled, first=self._host)
        self._host = connected.host
        if connected.pooled:
            self._found_pooler()
        elif self._pooled is None:
            self._pooled = False
        return connected

    def _found_pooler(self) -> None:
        if self._pooled:
            return
        self._pooled = True
        _logger.info(
            "%s: there is a pooler in between, such as PgBouncer; statements are not kept prepared, and each runs in a "
            "transaction of its own",
            self._settings.store,
        )

    def _real_loop(self) -> asyncio.AbstractEventLoop:
        with self._guard:
            self.must_be_open()
            if self._aside is None:
                stopped = asyncio.Event()
                self._aside = Aside("mainspring-postgres", stopped.wait, stopped.set)
                self._aside.start()
            return self._aside.loop


async def _roll_back(shelf: Shelf, connected: Connected) -> None:
    if connected.is_clean:
        return
    try:
        if not connected.is_closed:
            await connected.execute("ROLLBACK")
    except Exception:  # noqa: BLE001 -- what raised before is what counts
        shelf.drop(connected)
    except BaseException:
        shelf.drop(connected)
        raise
    else:
        if not connected.is_clean:
            shelf.drop(connected)


async def _close(loop: asyncio.AbstractEventLoop, shelf: Shelf, seconds: float) -> None:
    if loop is asyncio.get_running_loop():
        await shelf.close(seconds)
        return
    if loop.is_closed() or not loop.is_running():
        _let_go(shelf)
        return
    with suppress(TimeoutError, RuntimeError):  # it has ended meanwhile
        async with asyncio.timeout(_CLOSING_TIME):
            await on_loop(loop, "connections of another event loop", lambda: shelf.close(seconds))


def _let_go(shelf: Shelf) -> None:
    """End connections whose loop does not run any more."""
    for connected in shelf.connections():
        with suppress(RuntimeError):  # the loop is closed; the server was told before that was noticed
            connected.terminate()


_ALL: Final["weakref.WeakSet[Connections]"] = weakref.WeakSet()
_LEFT_BEHIND: Final[list[Any]] = []
"""What a forked child has of its parent's: never to be closed or collected there."""


def _after_fork() -> None:
    for connections in tuple(_ALL):
        connections.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
