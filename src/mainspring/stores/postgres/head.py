"""Where a look for due schedules begins: behind the dead, where these are many.

Every slot leaves a dead entry at the head of the index of what is due, and while somebody holds an old snapshot open none
of them can be cleared away: after a day of a schedule that comes up every second, a look at the whole takes 110 ms. Nodes
look more often than there are slots, whenever something was announced. So, as with the positions of claims
(`positions.py`), a read from the start that took long is repeated only after twenty times its duration; reads in between
start at the first live entry that it found. This is a hint: a schedule that becomes due in front of that entry is found a
little later.
"""

import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple, TypeAlias

from mainspring.stores.postgres.positions import LATE, SHARE

Place: TypeAlias = "tuple[datetime, str]"
"""In the order in which schedules come up: behind this instant and name."""
START: Final[Place] = (datetime(1, 1, 1, tzinfo=UTC), "")
LONG: Final = 0.02
"""Seconds that a look at the whole may take without a thought."""


class Mark(NamedTuple):
    """The position at which one look begins, as `Position` for claims (`positions.py`)."""

    place: Place = START
    pulls: int = 0


class Head:
    """Used by several loops and threads at once."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._guard = threading.Lock()
        self._place = START
        self._pulls = 0
        self._whole_at = 0.0

    def after_fork(self) -> None:
        """Replace the lock in a forked child: another thread of the parent may have held it."""
        self._guard = threading.Lock()

    def mark(self) -> Mark:
        """Return the position of the next look: the start, if nothing was read from the start for a while."""
        return Mark(self._place if self._monotonic() < self._whole_at else START, self._pulls)

    def advance(self, mark: Mark, first: datetime | None, now: datetime, took: float) -> None:
        """Record a look that began at a position: when the first schedule it found comes up, and how many seconds it took."""
        if mark.place == START:
            self._whole_at = self._monotonic() + took * SHARE if took > LONG else 0.0
        latest = now - LATE  # most transactions that bring a schedule up commit within that time
        with self._guard:
            if self._pulls == mark.pulls:
                self._place = (latest if first is None else min(first, latest), "")

    def pull(self, least: datetime | None) -> None:
        """Begin no later than there: something may have come up since then."""
        if least is None:
            return
        with self._guard:
            if (least, "") < self._place:
                self._pulls += 1
                self._place = (least - timedelta(microseconds=1), "")
