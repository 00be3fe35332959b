"""Telling those who watch that something may have changed.

Commits of this process are told directly. Those of others ring the doorbell; and for whatever cannot ring, such as a
commit of the user's own, a thread looks at the file's data version, and then at the count of rings, a few times a
second: a look costs some microseconds. The thread lives only while somebody watches.

Whoever has just written in a transaction of the user's own knows that a commit is to come. For a while it looks closely,
and rings for the user when it has come.
"""

import logging
import selectors
import socket
import sqlite3
import threading
import time
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Final, TypeAlias

from mainspring.stores.sqlite.connect import connect_reader
from mainspring.stores.sqlite.doorbell import hang, ring_others
from mainspring.stores.sqlite.fork import IdleConnections
from mainspring.stores.sqlite.statements import statement

Ring: TypeAlias = Callable[[], None]

CLOSELY: Final = 0.002
"""Seconds between two looks for a commit that is to come."""
SOON: Final = 0.25
"""Seconds for which it is looked for so. What is open for longer is found by the others' own looks."""

_RINGS: Final = statement("rings")
_logger: Final = logging.getLogger("mainspring.stores.sqlite")


class Bells:
    """Whoever watches one store."""

    def __init__(self, path: Path, poll: float) -> None:
        self._path = path
        self._poll = poll
        self._lock = threading.Lock()
        self._watchers: dict[object, Ring] = {}
        self._listener: Listener | None = None
        self._onlooker: Onlooker | None = None

    def watch(self, ring: Ring) -> Callable[[], None]:
        """Have `ring` called after commits; returns how to end that."""
        watcher = object()
        with self._lock:
            if self._listener is None:
                self._listener = Listener(self._path, self._poll, self._tell)
                self._listener.start()
            self._watchers = {**self._watchers, watcher: ring}

        def end() -> None:
            with self._lock:
                self._watchers = {one: bell for one, bell in self._watchers.items() if one is not watcher}
                leaving = None if self._watchers else self._listener
                if leaving:
                    self._listener = None
            if leaving:
                leaving.stop()

        return end

    def committed(self, rings: int) -> None:
        """Tell everyone here of a commit of this process."""
        listener = self._listener
        if listener is not None:
            listener.heard(rings)
        self._tell()

    def expect(self, rings: int) -> None:
        """Look closely for a commit of the user's own that brings the count to this, and tell everyone when it has come."""
        with self._lock:
            if self._onlooker is None or not self._onlooker.is_alive or not self._onlooker.expect(rings):
                self._onlooker = Onlooker(self._path, rings, self._come)
                self._onlooker.start()

    def _come(self, rings: int) -> None:
        self.committed(rings)
        self.ring_others()

    def ring_others(self) -> None:
        """Tell every other process."""
        listener = self._listener
        ring_others(self._path, None if listener is None else listener.bell_name)

    def close(self) -> None:
        with self._lock:
            self._watchers = {}
            listener, self._listener = self._listener, None
            onlooker, self._onlooker = self._onlooker, None
        if onlooker:
            onlooker.end()
        if listener:
            listener.stop()
            listener.join()

    def leave_behind(self) -> None:
        """Close the inherited sockets in a forked child; the parent keeps its own."""
        if self._listener:
            self._listener.leave_behind()

    def _tell(self) -> None:
        for ring in self._watchers.values():
            try:
                ring()
            except Exception:  # what was committed is committed, whatever a listener makes of it
                _logger.exception("a watcher of the SQLite store raised")


class Onlooker:
    """A thread that looks for commits that are to come. It lives until they have, or have been given up."""

    def __init__(self, path: Path, rings: int, tell: Callable[[int], None]) -> None:
        self._path = path
        self._tell = tell
        self._lock = threading.Lock()
        self._expected: int | None = rings
        self._until = time.monotonic() + SOON
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._look, name="mainspring-sqlite-onlooker", daemon=True)

    def start(self) -> None:
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        """Whether it looks; one that was left behind by a fork does not."""
        return self._thread.is_alive()

    def expect(self, rings: int) -> bool:
        """Look for another one; False if it is too late for that."""
        with self._lock:
            if self._expected is None:
                return False
            self._expected, self._until = rings, time.monotonic() + SOON
            return True

    def end(self) -> None:
        self._stop.set()
        if self._thread is not threading.current_thread():
            self._thread.join()

    def _look(self) -> None:
        try:
            with closing(IdleConnections()) as idle:
                told = 0
                while not self._stop.wait(CLOSELY) and self._goes_on(told):
                    connection = idle.take() or connect_reader(self._path)
                    try:
                        rings = _count(connection)
                    finally:
                        idle.put(connection)
                    if rings > told and rings >= (self._expected or 0):
                        told = rings
                        self._tell(rings)
        except sqlite3.Error:  # the looks of those who watch will find it
            _logger.debug("could not look for a commit", exc_info=True)
        with self._lock:
            self._expected = None

    def _goes_on(self, told: int) -> bool:
        with self._lock:
            if self._expected is not None and (told >= self._expected or time.monotonic() >= self._until):
                self._expected = None
            return self._expected is not None


class Listener:
    """The thread that hears of other processes' commits."""

    def __init__(self, path: Path, poll: float, tell: Ring) -> None:
        self._path = path
        self._poll = poll
        self._tell = tell
        self._idle = IdleConnections()
        self._version = -1
        self.rings = -1
        """How many have been heard of; a file that cannot be read now is news as soon as it can be."""
        self._news()
        self._bell = hang(path)
        self._stopped, self._stop = socket.socketpair()
        self._thread = threading.Thread(target=self._listen, name="mainspring-sqlite-bell", daemon=True)

    @property
    def bell_name(self) -> str | None:
        return None if self._bell is None else self._bell.name

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        with suppress(OSError):
            self._stop.send(b"!")

    def join(self) -> None:
        if self._thread is not threading.current_thread():
            self._thread.join()

    def leave_behind(self) -> None:
        """Close the inherited sockets in a forked child."""
        if self._bell:
            self._bell.leave_behind()
        self._stopped.close()
        self._stop.close()

    def heard(self, rings: int) -> None:
        """Remember a ring that was told already."""
        self.rings = max(self.rings, rings)

    def _listen(self) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._stopped, selectors.EVENT_READ)
            if self._bell:
                selector.register(self._bell, selectors.EVENT_READ)
            while True:
                ready = {key.fileobj for key, _ in selector.select(self._poll)}
                if self._stopped in ready:
                    break
                if self._bell and ready:
                    self._bell.silence()
                if self._news():
                    self._tell()
        self._end()

    def _news(self) -> bool:
        """Look whether there was a ring that nobody has told yet."""
        connection = self._idle.take()
        try:
            if connection is None:
                connection = connect_reader(self._path)
                self._version = -1
            version = self._data_version(connection)
            count = None if version == self._version else _count(connection)
        except sqlite3.Error:  # readers and writers raise it; here, the next check may succeed
            _logger.debug("could not look for news", exc_info=True)
            if connection is not None:
                connection.close()
            return False
        self._idle.put(connection)
        if count is None:
            return False
        self._version = version
        news = count != self.rings  # it is lower in a file that was restored from a backup
        self.rings = count
        return news

    def _end(self) -> None:
        self._idle.close()
        if self._bell:
            self._bell.close()
        self._stopped.close()
        self._stop.close()

    @staticmethod
    def _data_version(connection: sqlite3.Connection) -> int:
        return int(connection.execute("PRAGMA data_version").fetchone()[0])


def _count(connection: sqlite3.Connection) -> int:
    return int(connection.execute(_RINGS).fetchone()[0])
