"""A lock that nodes and programs share by its name: `async with app.lock("nightly import") as lock:`.

It is a lease: it renews itself three times in its lifetime, and who dies with it loses it after `ttl`. So being inside
the block proves nothing by itself; what must not happen twice is guarded by `lock.term`, which grows with every holder
and can be kept beside what it guards: write only where the term that stands there is not greater.
"""

import asyncio
import logging
import random
import uuid
from types import TracebackType
from typing import Final, Self

from mainspring.client.connection import Connection
from mainspring.client.options import read_text
from mainspring.core.backoff import Backoff
from mainspring.duration import Duration, duration, seconds
from mainspring.errors import DeclarationError, LockTaken, StoreError
from mainspring.stores.records import Lock
from mainspring.supervise import Directive, Idle, Service, TaskSet, every

log: Final = logging.getLogger("mainspring.lock")

_LOOK_AGAIN: Final = Backoff.exponential("50ms", multiplier=1.5, cap="1s")
"""Asking writes, so hints would have those who wait wake one another without end."""
_SHORTEST: Final = 0.5
_MARGIN: Final = 0.1
"""The part of its lifetime for which a lock is not trusted any more: clocks of two machines do not run alike."""


class NamedLock:
    """A lock that is taken by entering it, and given up by leaving. Each object can be entered once at a time."""

    def __init__(self, connection: Connection, name: str, *, ttl: Duration, timeout: Duration | None) -> None:
        self.name: Final = read_text(name)
        self._connection = connection
        self._ttl = duration(ttl)
        self._timeout = None if timeout is None else seconds(timeout)
        self._holder = uuid.uuid4().hex  # for good: an answer that was lost is no lock that was lost
        self._lock: Lock | None = None
        self._trusted_until = 0.0
        DeclarationError.unless(
            f"lock {name!r}", [(seconds(ttl) >= _SHORTEST, f"a ttl under {_SHORTEST:g} s cannot be kept")]
        )

    @property
    def held(self) -> bool:
        """Whether the lock is surely still ours: nobody else has it, as far as can be known without asking."""
        return self._lock is not None and self._connection.clock.monotonic() < self._trusted_until

    @property
    def term(self) -> int:
        """The fencing number: it grows with every change of holder."""
        if self._lock is None:
            raise DeclarationError(f"lock {self.name!r}", "it is not held; a term is known inside of the block only")
        return self._lock.term

    async def __aenter__(self) -> Self:
        DeclarationError.unless(f"lock {self.name!r}", [(self._lock is None, "it is entered already; make another")])
        self._store = await self._connection.store()
        self._lock = await self._acquire()
        self._tasks = TaskSet()
        beat = self._ttl / 3
        backoff = Backoff.fixed(beat / 3, jitter=0.3)
        self._tasks.start(
            Service(f"lock {self.name}", self._extend, wake=[every(beat)], start_idle=True, backoff=backoff)
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self._tasks.shutdown(grace=0, deadline=1)
        finally:
            lock, self._lock = self._lock, None
            if lock:
                await self._resign(lock)

    async def _acquire(self) -> Lock:
        loop = asyncio.get_running_loop()
        began, tries = loop.time(), 0
        while True:
            asked = self._connection.clock.monotonic()
            if lock := await self._store.acquire(self.name, self._holder, self._ttl):
                self._trust(asked)
                return lock
            tries += 1
            rest = _LOOK_AGAIN.delay(tries, random.random()).total_seconds()  # noqa: S311 - spreads those who wait
            if self._timeout is not None:
                left = began + self._timeout - loop.time()
                if left <= 0:
                    raise LockTaken(self.name, self._timeout)
                rest = min(rest, left)
            await asyncio.sleep(rest)

    async def _extend(self) -> Directive:
        if self._lock is None:
            return Idle()
        asked = self._connection.clock.monotonic()
        lock = await self._store.extend(self._lock, self._ttl)
        if lock is None:
            self._trusted_until = 0.0
            log.warning("lock %r is lost: someone else may have it by now", self.name)
            self._tasks.stop.set()
        else:
            self._lock = lock
            self._trust(asked)
        return Idle()

    def _trust(self, asked: float) -> None:
        self._trusted_until = asked + self._ttl.total_seconds() * (1 - _MARGIN)

    async def _resign(self, lock: Lock) -> None:
        try:
            await self._store.resign(lock)
        except StoreError as error:  # the work is done, and the lock runs out by itself
            log.warning("lock %r could not be given up: %s", self.name, error)
