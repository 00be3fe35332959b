"""Trying again while somebody else has a lock.

Always at random: SQLite's own busy handler, where all wait for the same times, gave two of four processes nothing at
all. The first pauses are short, because most locks are held for a millisecond or two.
"""

import logging
import random
import sqlite3
import time
from collections.abc import Callable, Iterator
from typing import Final, TypeVar

from mainspring.stores.sqlite.settings import Settings
from mainspring.stores.sqlite.trouble import is_busy

T = TypeVar("T")

SHORTEST: Final = 0.001
LONGEST: Final = 0.016
REPORTED_AFTER_S: Final = 2.0
"""Longer waits for the write lock are logged: most take a millisecond or two."""

_logger: Final = logging.getLogger("mainspring.stores.sqlite")


class LockWait:
    """A wait for the write lock, which is reported once if it takes long."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._began = time.monotonic()
        self._is_reported = False

    def left(self) -> float:
        """Return how many seconds are left of the store's patience."""
        return max(0.0, self._began + self._settings.patience - time.monotonic())

    def report(self) -> None:
        waited = time.monotonic() - self._began
        if self._is_reported or waited < REPORTED_AFTER_S:
            return
        self._is_reported = True
        _logger.warning(
            "%s: still waiting for the write lock after %.0f s, for up to %g s in all; the lock is held by a transaction of "
            "this program that was not passed as tx= (pass it, or end it first), or by another process",
            self._settings.store,
            waited,
            self._settings.patience,
        )


def pauses() -> Iterator[float]:
    """How long to wait before each further try, in seconds."""
    highest = SHORTEST
    while True:
        yield random.uniform(0, highest)  # noqa: S311 -- no secret
        highest = min(2 * highest, LONGEST)


def persist(step: Callable[[], T], patience: float, *, on_busy: Callable[[], None] | None = None) -> T:
    """Do it as often as somebody is in the way; raises SQLite's own error after `patience` seconds."""
    give_up_at = time.monotonic() + patience
    for pause in pauses():
        try:
            return step()
        except sqlite3.Error as error:
            if not is_busy(error) or time.monotonic() >= give_up_at:
                raise
        if on_busy is not None:
            on_busy()
        time.sleep(pause)
    raise AssertionError  # the pauses do not end
