"""The link of a context in a process slot: the same verbs, over the pipe."""

import threading
from collections import deque
from collections.abc import Awaitable, Callable
from concurrent.futures import Future

from mainspring.clock import SystemClock
from mainspring.errors import LeaseLost
from mainspring.runtime.call import CallFacts
from mainspring.runtime.context import Done, Saved
from mainspring.runtime.executors.link import INTERVAL, MOST_LINES
from mainspring.runtime.executors.wire import Said
from mainspring.stores.records import LogLine, Progress


class SlotLink:
    """Made for one call. After its `end` nothing goes out any more: the next call may have begun."""

    def __init__(
        self,
        facts: CallFacts,
        *,
        call: int,
        saved: bytes | None,
        say: Callable[[Said], None],
        save: "Callable[[int, bytes], Future[None]]",
    ) -> None:
        self.clock = SystemClock()
        self.deadline: float | None = None
        self.saved = Saved(saved)
        self.stopping = False
        self._facts = facts
        self._call = call
        self._say = say
        self._save = save
        self._lock = threading.Lock()
        self._progress: Progress | None = None
        self._lines: deque[LogLine] = deque(maxlen=MOST_LINES)
        self._armed = False
        self._over = False

    def begin(self, remaining: float | None) -> None:
        """Start the timeout: the function is called now, with `remaining` seconds."""
        self.deadline = None if remaining is None else self.clock.monotonic() + remaining

    def stop(self) -> None:
        self.stopping = True

    def tell(self, *, progress: Progress | None = None, line: LogLine | None = None) -> None:
        with self._lock:
            self._progress = progress or self._progress
            if line is not None:
                self._lines.append(line)
            if self._armed or self._over:
                return
            self._armed = True
        # A thread ten times a second costs less than a message for each word.
        timer = threading.Timer(INTERVAL, self._flush)
        timer.daemon = True
        timer.start()

    def keep(self) -> Awaitable[None]:
        with self._lock:
            if self._over:
                raise LeaseLost(str(self._facts.job), self._facts.lease)
            kept = self._save(self._call, self.saved.payload or b"{}")
        kept.result()
        return Done()

    def end(self) -> None:
        """Say what is left, and no more."""
        with self._lock:
            self._say_all()
            self._over = True

    def _flush(self) -> None:
        with self._lock:
            self._armed = False
            self._say_all()

    def _say_all(self) -> None:
        if self._over or not (self._progress or self._lines):
            return
        self._say(Said(self._call, self._progress, tuple(self._lines)))
        self._progress = None
        self._lines.clear()
