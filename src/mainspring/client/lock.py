"""A lock that nodes and programs share by its name: `async with app.lock("nightly import") as lock:`.

It is a lease: it renews itself three times in its lifetime, and who dies with it loses it after `ttl`. So being inside
the block proves nothing by itself; what must not happen twice is guarded by `lock.term`, which grows with every holder
and can be kept beside what it guards: write only where the term that stands there is not greater.
"""

import asyncio
import random
import uuid
from types import TracebackType
from typing import Final, Self

from mainspring.client.connection import Connection
from mainspring.client.options import read_short
from mainspring.core.backoff import Backoff
from mainspring.duration import Duration, duration, seconds
from mainspring.errors import DeclarationError, LockTaken
from mainspring.runtime.named_lease import SHORTEST, NamedLease, log
from mainspring.supervise import Directive, Idle, Service, TaskSet, every

_LOOK_AGAIN: Final = Backoff.exponential("50ms", multiplier=1.5, cap="1s")
"""Asking writes, so hints would have those who wait wake one another without end."""


class NamedLock:
    """A lock that is taken by entering it, and given up by leaving. Each object can be entered once at a time."""

    def __init__(self, connection: Connection, name: str, *, ttl: Duration, timeout: Duration | None) -> None:
        self.name: Final = read_short(name)
        self._connection = connection
        self._ttl = duration(ttl)
        self._timeout = None if timeout is None else seconds(timeout)
        self._holder = uuid.uuid4().hex
        self._lease: NamedLease | None = None
        least = SHORTEST.total_seconds()
        DeclarationError.unless(f"lock {name!r}", [(self._ttl >= SHORTEST, f"a ttl under {least:g} s cannot be kept")])

    @property
    def held(self) -> bool:
        """Whether the lock is surely still ours: nobody else has it, as far as can be known without asking."""
        return self._lease is not None and self._lease.held

    @property
    def term(self) -> int:
        """The fencing number: it grows with every change of holder."""
        if self._lease is None or self._lease.lock is None:
            raise DeclarationError(f"lock {self.name!r}", "it is not held; a term is known inside of the block only")
        return self._lease.lock.term

    async def __aenter__(self) -> Self:
        DeclarationError.unless(f"lock {self.name!r}", [(self._lease is None, "it is entered already; make another")])
        store, clock = await self._connection.store(), self._connection.clock
        lease = NamedLease(store, self.name, self._holder, self._ttl, clock=clock, subject=f"lock {self.name!r}")
        await self._acquire(lease)
        self._lease = lease
        self._tasks = TaskSet()
        backoff = Backoff.fixed(lease.beat / 3, jitter=0.3)
        self._tasks.start(
            Service(f"lock {self.name}", self._extend, wake=[every(lease.beat)], start_idle=True, backoff=backoff)
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self._tasks.shutdown(grace=0, deadline=1)
        finally:
            lease, self._lease = self._lease, None
            if lease:
                await lease.resign()

    async def _acquire(self, lease: NamedLease) -> None:
        loop = asyncio.get_running_loop()
        began, tries = loop.time(), 0
        while not await lease.ask():
            tries += 1
            rest = _LOOK_AGAIN.delay(tries, random.random()).total_seconds()  # noqa: S311 - spreads those who wait
            if self._timeout is not None:
                left = began + self._timeout - loop.time()
                if left <= 0:
                    raise LockTaken(self.name, self._timeout)
                rest = min(rest, left)
            await asyncio.sleep(rest)

    async def _extend(self) -> Directive:
        if self._lease and not await self._lease.extend():
            log.warning("lock %r is lost: someone else may have it by now", self.name)
            self._tasks.stop.set()
        return Idle()
