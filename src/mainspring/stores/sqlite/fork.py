"""Connections to SQLite files across `os.fork`.

SQLite keeps its locks in memory, by process and inode. A forked child inherits that record but not the POSIX locks
behind it: a connection that the child opens beside an inherited one takes no real locks, another process deletes the
log below it, and its commits are lost. So no connection may be open at a fork:

- `IdleConnections` are closed before the fork, and opened again by the next use, in the parent and in the child;
- connections in use are waited for, for `PAUSE_LIMIT_S`; none is opened meanwhile;
- a file that is still open at the fork (in a long transaction, or by a connection of the user's own) is refused in the
  child: an error instead of lost jobs. It is detected by its descriptor.

`subprocess` does not call the hooks, unless it is given a `preexec_fn`.
"""

import os
import sqlite3
import stat
import threading
import time
import weakref
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Protocol

from mainspring.errors import StoreError, StoreUnavailable

PAUSE_LIMIT_S: Final = 1.0
"""How long a fork waits for connections in use."""
OPENING_LIMIT_S: Final = 2 * PAUSE_LIMIT_S
"""How long a new connection waits for a fork."""

_DESCRIPTORS: Final = "/dev/fd"
_MAX_UNLISTED_DESCRIPTORS: Final = 1024
"""How many are tried where the system does not list them."""


class Forked(Protocol):
    """A store that resets its state in a forked child."""

    def after_fork(self) -> None: ...


class ForkGuard:
    """All connections of this process; one instance, `GUARD`."""

    def __init__(self) -> None:
        # Reentrant, and its sections are single operations on sets: a signal handler may fork within one of them.
        self._changed = threading.Condition(threading.RLock())
        self._open: weakref.WeakSet[Connection] = weakref.WeakSet()
        self._pools: weakref.WeakSet[IdleConnections] = weakref.WeakSet()
        self._stores: weakref.WeakSet[Forked] = weakref.WeakSet()
        self._left_behind: list[Connection] = []
        """Connections of the parent, which must never be closed here: the last one to close deletes the log."""
        self._inherited: frozenset[tuple[int, int]] = frozenset()
        self._forks = 0
        self._give_up_at = 0.0
        """End of the pause; one for all forks that overlap, else they would extend it one after the other."""

    @property
    def is_forking(self) -> bool:
        """Whether connections have to be closed after use."""
        return self._forks > 0

    def add_store(self, store: Forked) -> None:
        """Call `store.after_fork` in every child, for as long as the store exists."""
        with self._changed:
            self._stores.add(store)

    def add_pool(self, pool: "IdleConnections") -> None:
        with self._changed:
            self._pools.add(pool)

    def opening(self, connection: "Connection") -> None:
        """Count a connection, before it is opened; waits for a fork to end.

        Not for ever: a fork hook of another library may use a store, in the thread that forks.
        """
        with self._changed:
            if not self._changed.wait_for(lambda: not self._forks, OPENING_LIMIT_S):
                raise StoreUnavailable(
                    "SQLite store", "a fork of this process is under way; do not use a store in a fork hook"
                )
            self._open.add(connection)

    def closed(self, connection: "Connection") -> None:
        with self._changed:
            self._open.discard(connection)
            self._changed.notify_all()

    def check(self, path: Path) -> None:
        """Raise if the file was open in the parent when this process was forked."""
        if not self._inherited:
            return
        with suppress(OSError):  # missing: opening it raises
            found = path.stat()
            identity = (found.st_dev, found.st_ino)
            if identity in self._inherited and (self._left_behind or identity in _open_files()):
                raise StoreError(
                    f"SQLite store {path}",
                    "this process was forked while the file was open in its parent, in a transaction, a long read or a "
                    "connection of your own, and SQLite's locks do not survive that; fork before the file is opened, "
                    "close your connections first, or start the process by spawn",
                )

    # Hooks

    def before_fork(self) -> None:
        with self._changed:
            if not self._forks:
                self._give_up_at = time.monotonic() + PAUSE_LIMIT_S
            self._forks += 1
            pools = tuple(self._pools)
        for pool in pools:
            pool.close()
        with self._changed:
            while self._open and (left := self._give_up_at - time.monotonic()) > 0:
                self._changed.wait(left)

    def after_fork_in_parent(self) -> None:
        with self._changed:
            self._forks -= 1
            self._changed.notify_all()

    def after_fork_in_child(self) -> None:
        self._changed = threading.Condition(threading.RLock())  # another thread may have held the old one
        self._left_behind += self._open
        self._open = weakref.WeakSet()
        self._pools = weakref.WeakSet()
        self._forks = 0
        self._inherited |= frozenset(_open_files())
        for store in tuple(self._stores):
            store.after_fork()


class Connection(sqlite3.Connection):
    """A connection that a fork waits for."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401 -- as the class above takes them
        GUARD.opening(self)
        try:
            super().__init__(*args, **kwargs)
        except BaseException:
            GUARD.closed(self)
            raise

    def close(self) -> None:
        super().close()
        GUARD.closed(self)


class IdleConnections:
    """Connections between two uses. Safe in any thread, without a lock that could be held at a fork.

    If it is garbage-collected, as part of a store that was never closed, its connections are closed.
    """

    def __init__(self) -> None:
        self._idle: deque[sqlite3.Connection] = deque()
        weakref.finalize(self, _close_all, self._idle).atexit = False  # a store closes itself at exit
        GUARD.add_pool(self)

    def take(self) -> sqlite3.Connection | None:
        try:
            return self._idle.pop()
        except IndexError:
            return None

    def put(self, connection: sqlite3.Connection) -> None:
        """Keep a connection for the next use; if a fork waits, close it."""
        self._idle.append(connection)
        if GUARD.is_forking:
            self.close()

    def close(self) -> None:
        """Close the connections that are idle now. More may be put back later."""
        _close_all(self._idle)


def _close_all(idle: deque[sqlite3.Connection]) -> None:
    with suppress(IndexError):
        while True:
            idle.pop().close()


def _open_files() -> Iterator[tuple[int, int]]:
    """Return the identity of every regular file that this process has open."""
    try:
        descriptors = [int(name) for name in os.listdir(_DESCRIPTORS)]  # noqa: PTH208 -- names, not paths
    except OSError:
        descriptors = list(range(_MAX_UNLISTED_DESCRIPTORS))
    for descriptor in descriptors:
        with suppress(OSError):  # such as that of the listing itself
            found = os.fstat(descriptor)
            if stat.S_ISREG(found.st_mode):
                yield found.st_dev, found.st_ino


GUARD: Final = ForkGuard()

if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=GUARD.before_fork,
        after_in_parent=GUARD.after_fork_in_parent,
        after_in_child=GUARD.after_fork_in_child,
    )
