"""Fair lock in front of SQLite's write lock, one per file and process.

SQLite has no queue for its write lock: waiting connections retry at random intervals, and the more of them retry, the
less is written (92 handler transactions a second of 466 at a concurrency of 20, and 2 at 300: docs/decisions/0044). So
the threads of a process queue here, and only the holder of the turn competes with other processes for SQLite's lock.

There are two queues, in order of arrival: one for writers, which carry renewals, claims and ends, and one for handler
transactions. They alternate while both have waiters, so a writer waits for one open transaction at most, however many
are queued behind it, and a busy writer cannot starve transactions.
"""

import os
import threading
import weakref
from collections import deque
from pathlib import Path
from typing import Final

TURN_WAIT_S: Final = 0.1
"""Interval at which a waiting thread checks whether its callers still wait."""


class Turn:
    """A fair lock: released to the next waiter directly."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._is_held = False
        self._is_writers = False
        self._writers: deque[threading.Lock] = deque()
        self._transactions: deque[threading.Lock] = deque()

    def take(self, timeout: float, *, as_writer: bool = False) -> bool:
        """Wait for the turn, for `timeout` seconds at most; False if it did not come."""
        queue = self._writers if as_writer else self._transactions
        with self._guard:
            if not self._is_held:
                self._is_held, self._is_writers = True, as_writer
                return True
            waiter = threading.Lock()
            waiter.acquire()  # until the holder hands over the turn
            queue.append(waiter)
        if waiter.acquire(timeout=min(max(timeout, 0.0), threading.TIMEOUT_MAX)):
            return True
        with self._guard:
            if waiter not in queue:  # handed over at the last moment
                return True
            queue.remove(waiter)
            return False

    def give_up(self) -> None:
        """End the turn: the other queue is next if it has waiters."""
        with self._guard:
            queue = (self._transactions or self._writers) if self._is_writers else (self._writers or self._transactions)
            if not queue:
                self._is_held = False
                return
            self._is_writers = queue is self._writers
            queue.popleft().release()


class _Turns:
    """The turns of this process, by file."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Drop all locks: a forked child has none of the threads that hold or wait for them."""
        self._guard = threading.Lock()
        self._by_file: weakref.WeakValueDictionary[Path, Turn] = weakref.WeakValueDictionary()

    def get(self, path: Path) -> Turn:
        with self._guard:
            turn = self._by_file.get(path)
            if turn is None:
                turn = self._by_file[path] = Turn()
            return turn


_turns: Final = _Turns()

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_turns.reset)


def turn_of(path: Path) -> Turn:
    """Return the turn of a file: the same for all stores on that file in this process."""
    return _turns.get(path)
