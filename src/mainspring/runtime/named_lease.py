"""A lock of one name, as its holder sees it: asked for, kept, given up, and trusted for no longer than it surely lasts.

Two clocks must agree that it is still ours. The monotonic one counts from the moment at which we asked: what the store
gave us then lasts for `ttl`, and is trusted for a little less. The store's own says that it has not expired, because
that is what others go by: a machine that slept has not counted that time on its monotonic clock, and a clock that was
set forward ends every lock at once.

Being the holder proves nothing by itself. What must not happen twice is guarded by the term.
"""

import logging
from datetime import timedelta
from typing import Final

from mainspring.clock import Clock
from mainspring.errors import StoreError
from mainspring.stores.port import Store
from mainspring.stores.records import Lock

SHORTEST: Final = timedelta(milliseconds=500)
MARGIN: Final = 0.1
"""The part of its lifetime for which a lock is not trusted any more: clocks of two machines do not run alike."""

log: Final = logging.getLogger("mainspring.lock")


class NamedLease:
    """A lock that may be ours. `subject` is what the log calls it."""

    def __init__(self, store: Store, name: str, holder: str, ttl: timedelta, *, clock: Clock, subject: str) -> None:
        self.ttl: Final = ttl
        self.beat: Final = ttl / 3
        """How often to extend it: one that fails leaves time for others."""
        self.lock: Lock | None = None
        self.until = 0.0
        """Until when it is trusted, on the monotonic clock, if nobody extends it."""
        self._store = store
        self._name = name
        self._holder = holder  # for good: an answer that was lost is no lock that was lost
        self._clock = clock
        self._subject = subject

    @property
    def held(self) -> bool:
        """Whether it is surely still ours: nobody else has it, as far as can be known without asking."""
        lock = self.lock
        return lock is not None and self._clock.monotonic() < self.until and self._store.now() < lock.expires_at

    async def ask(self) -> bool:
        """Take it if it is free, expired, or ours already."""
        asked = self._clock.monotonic()
        self._took(await self._store.acquire(self._name, self._holder, self.ttl), asked)
        return self.lock is not None

    async def extend(self) -> bool:
        """Keep it for longer; False if another has it, or had it meanwhile. `lock` says then what we had."""
        if self.lock is None:
            return False
        asked = self._clock.monotonic()
        kept = await self._store.extend(self.lock, self.ttl)
        self._took(kept or self.lock, asked if kept else float("-inf"))
        return kept is not None

    async def resign(self) -> None:
        """Give it up, if we have it. If that fails, it runs out by itself."""
        lock, self.lock = self.lock, None
        if lock is None:
            return
        try:
            await self._store.resign(lock)
        except StoreError as error:
            log.warning("%s could not be given up: %s", self._subject, error)

    def forget(self) -> None:
        """Take it for lost, and say nothing to the store."""
        self.lock = None

    def _took(self, lock: Lock | None, asked: float) -> None:
        self.lock = lock
        self.until = asked + self.ttl.total_seconds() * (1 - MARGIN)
