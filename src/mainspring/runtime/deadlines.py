"""Tells when attempts have run out of time, with one timer for all of them.

A timer for each attempt costs 1.5 µs and stays in the loop's heap when it is cancelled; nearly none of them ever rings.
So only the earliest deadline has one. When it rings, whoever is overdue is told, and the next earliest gets it.
"""

import asyncio
from collections.abc import Callable, Iterable
from math import inf

from mainspring.runtime.attempt import Attempt


class Deadlines:
    """Watches the attempts that `running` names; `overdue` is called for each whose time is over."""

    def __init__(self, running: Callable[[], Iterable[Attempt]], overdue: Callable[[Attempt], None]) -> None:
        self._running = running
        self._overdue = overdue
        self._armed_for = inf
        self._timer: asyncio.TimerHandle | None = None

    def watch(self, deadline: float) -> None:
        """Take note of one more, on the loop's clock."""
        if deadline < self._armed_for:
            self._arm(deadline)

    def close(self) -> None:
        if self._timer:
            self._timer.cancel()

    def _arm(self, deadline: float) -> None:
        self.close()
        self._armed_for = deadline
        self._timer = asyncio.get_running_loop().call_at(deadline, self._ring)

    def _ring(self) -> None:
        now, earliest = self._armed_for, inf
        self._armed_for = inf
        for attempt in list(self._running()):
            if attempt.deadline <= now:
                if attempt.reason is None:
                    self._overdue(attempt)
            else:
                earliest = min(earliest, attempt.deadline)
        if earliest < self._armed_for:
            self._arm(earliest)
