"""How far the database's clock is from this process's own.

Measured whenever a statement that asks for the time has been answered: the instant lies between the two at which the
statement was sent and answered, and the shorter that took, the better it is known. So of the last few samples the
quickest counts. Samples that the newest one contradicts are dropped: the database's clock has been set since.
"""

import logging
import threading
from collections import deque
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from mainspring.stores.postgres.settings import Settings

_NONE: Final = timedelta(0)
LARGE: Final = timedelta(seconds=1)
"""Beyond that people are told: what they read in logs and tables of several machines does not fit together."""
_KEPT: Final = 8
_JUMP: Final = timedelta(milliseconds=100)
"""The own clock has been set if it and the monotonic one part by more than that."""

_logger: Final = logging.getLogger("mainspring.stores.postgres")


class _Sample(NamedTuple):
    took: timedelta
    offset: timedelta

    def contradicts(self, other: "_Sample") -> bool:
        """Return whether no offset fits both: the error of each is at most half of its duration."""
        return abs(self.offset - other.offset) > (self.took + other.took) / 2


class Skew:
    """The database's time, as well as it can be known here. May be used from any thread."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._clock = settings.clock
        self._guard = threading.Lock()
        self._samples: deque[_Sample] = deque(maxlen=_KEPT)
        self._start: datetime | None = None
        self._is_large = False
        self.offset = _NONE
        """What to add to the own clock; nothing, as long as nothing was measured."""

    def after_fork(self) -> None:
        """Begin anew in a child: whoever held the lock stayed with the parent."""
        self._guard = threading.Lock()

    def now(self) -> datetime:
        return self._clock.now() + self.offset

    def sample(self, before: datetime, instant: datetime, after: datetime) -> None:
        """Learn from a statement that was sent and answered then, by the own clock, and says that instant."""
        if self._settings.own_time or after < before:  # the clock was set back amid that
            return
        with self._guard:
            self._forget_if_set(after)
            new = _Sample(after - before, instant - before - (after - before) / 2)
            fitting = [one for one in self._samples if not new.contradicts(one)]
            self._samples = deque([*fitting, new], maxlen=_KEPT)
            best = min(self._samples)
            self.offset = best.offset
            was_large, self._is_large = self._is_large, abs(best.offset) - best.took / 2 > LARGE
            changed = was_large != self._is_large
        if changed:
            self._tell(best.offset)

    def _forget_if_set(self, now: datetime) -> None:
        """Forget what was measured before the own clock was set to another time."""
        start = now - timedelta(seconds=self._clock.monotonic())
        if self._start is None or abs(start - self._start) > _JUMP:
            self._samples.clear()
        self._start = start

    def _tell(self, offset: timedelta) -> None:
        if self._is_large:
            _logger.warning(
                "%s: the clock of this machine is %.1f s %s the database's; due times follow the database, but set it "
                "right (NTP)",
                self._settings.store,
                abs(offset.total_seconds()),
                "behind" if offset > _NONE else "ahead of",
            )
        else:
            _logger.warning("%s: the clock of this machine is right again", self._settings.store)
