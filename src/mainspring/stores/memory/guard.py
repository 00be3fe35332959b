"""What keeps a memory store whole: one lock around each verb, and bells that are rung when it is released."""

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Final, TypeAlias

from mainspring.clock import Clock
from mainspring.errors import StoreClosed
from mainspring.stores.memory.tables import Tables
from mainspring.stores.records import SchemaVersion

Bell: TypeAlias = Callable[[], None]

_VERSION: Final = 1
_logger: Final = logging.getLogger("mainspring.stores")


class Shared:
    """What all handles on one state have in common."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.lock = threading.Lock()
        self.tables = Tables()
        self.bells: dict[object, Bell] = {}


class Guarded:
    """A handle on the state: the roles `Wake` and `Schema`, and the way in for all others."""

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self._tables = shared.tables
        self._is_open = False

    @property
    def shares_fate(self) -> bool:
        return True

    def now(self) -> datetime:
        return self._shared.clock.now()

    async def open(self) -> None:
        self._is_open = True

    async def close(self) -> None:
        with self._shared.lock:  # what was called before is done
            self._is_open = False

    async def schema(self) -> SchemaVersion:
        return SchemaVersion(found=_VERSION, wanted=_VERSION)

    def watch(self, ring: Bell) -> Callable[[], None]:
        watcher = object()
        with self._shared.lock:
            self._shared.bells = {**self._shared.bells, watcher: ring}

        def end() -> None:
            with self._shared.lock:
                self._shared.bells = {one: bell for one, bell in self._shared.bells.items() if one is not watcher}

        return end

    @contextmanager
    def _locked(self) -> Iterator[datetime]:
        """Be alone with the tables, at one instant. Nothing in here waits, so that no verb is ever half done."""
        with self._shared.lock:
            if not self._is_open:
                raise StoreClosed("memory", "it is not open; call open() first, and close() last")
            yield self._shared.clock.now()

    def _ring(self) -> None:
        """Tell everyone who watches that something has changed; called after the lock has been released."""
        for bell in self._shared.bells.values():
            try:
                bell()
            except Exception:  # what was committed is committed, whatever a listener thinks of it
                _logger.exception("a watcher of the memory store raised")
