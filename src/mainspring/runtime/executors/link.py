"""The link of an attempt to its node, on the node's loop: buffers what the handler says, writes it in order.

One write is under way at a time, with all that was said meanwhile in the next: an older value never overwrites a newer
one, and a handler that reports progress a million times costs ten writes a second.
"""

import asyncio
import concurrent.futures
import threading
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, suppress
from types import TracebackType
from typing import Final, Self, TypeAlias

from mainspring.clock import Clock, SystemClock, outside
from mainspring.errors import LeaseLost
from mainspring.runtime.call import CallFacts
from mainspring.runtime.context import Done, Saved
from mainspring.stores.records import LogLine, Note, Progress

Write: TypeAlias = Callable[[Note], Awaitable[bool]]
"""Writes a note; False if the attempt no longer holds its job."""

INTERVAL: Final = 0.1
"""Seconds between something that can wait and its write; shorter jobs write once, at their end."""

MOST_LINES: Final = 1000
"""Log lines that wait to be written; a store keeps no more of a job."""

_SYSTEM: Final = SystemClock()


class Hold:
    """Holds virtual time while a thread is at work, but not while it waits for what only the loop can do."""

    def __init__(self, what: str, thread: int | None = None) -> None:
        self._what = what
        self.thread = thread
        """Its number while it is at this work; several may have the same name."""
        self.thread_ended = False
        """Whether the function has ended, as recorded by its thread, even if the loop no longer waits for it."""
        self._held: AbstractContextManager[None] | None = None
        self._waiting = 0
        self._over = False

    def __enter__(self) -> Self:
        self._take()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over = True
        self.thread = None  # it is at other work now
        self._release()

    def wait(self) -> None:
        """Let time pass: a thread begins to wait for the loop."""
        self._waiting += 1
        self._release()

    def go_on(self) -> None:
        """Hold it again: the thread has its answer."""
        self._waiting -= 1
        if not self._waiting and not self._over:
            self._take()

    def _take(self) -> None:
        self._held = outside(self._what)
        self._held.__enter__()

    def _release(self) -> None:
        if self._held is not None:
            self._held.__exit__(None, None, None)
            self._held = None


class LoopLink:
    """Made on the node's loop, for one attempt. The runner flushes it when the attempt ends, and then closes it."""

    __slots__ = (
        "_armed",
        "_deadline",
        "_home",
        "_lines",
        "_lock",
        "_loop",
        "_over",
        "_paused",
        "_paused_at",
        "_progress",
        "_save",
        "_savers",
        "_timer",
        "_urgent",
        "_write",
        "_writer",
        "clock",
        "facts",
        "hold",
        "saved",
        "stopping",
    )

    def __init__(self, facts: CallFacts, write: Write, *, clock: Clock = _SYSTEM) -> None:
        self.facts = facts
        self.clock = clock
        self._deadline = None if facts.timeout is None else clock.monotonic() + facts.timeout
        self._paused = 0.0
        self._paused_at: float | None = None
        self.saved = Saved(facts.saved)
        self.stopping = False
        self.hold: Hold | None = None
        self._write = write
        self._loop = asyncio.get_running_loop()
        self._home = threading.get_ident()
        self._lock = threading.Lock()
        self._progress: Progress | None = None
        self._lines: deque[LogLine] | None = None
        self._save = False
        self._savers: list[asyncio.Future[None]] = []
        self._armed = False
        self._urgent = False
        self._timer: asyncio.TimerHandle | None = None
        self._writer: asyncio.Task[None] | None = None
        self._over = False

    @property
    def over(self) -> bool:
        """Whether the attempt no longer holds its job, or has ended."""
        return self._over

    @property
    def deadline(self) -> float | None:
        return None if self._deadline is None else self._deadline + self.paused

    @property
    def paused(self) -> float:
        """Seconds that do not count for the timeout, the present pause included."""
        return self._paused + (0.0 if self._paused_at is None else self.clock.monotonic() - self._paused_at)

    def pause_clock(self) -> None:
        """Pause the timeout: the function waits for a process to start."""
        self._paused_at = self.clock.monotonic()

    def resume_clock(self) -> None:
        """Resume the timeout; does nothing if it is not paused."""
        self._paused = self.paused
        self._paused_at = None

    def stop(self) -> None:
        """Let the handler see that someone wants it to stop."""
        self.stopping = True

    def tell(self, *, progress: Progress | None = None, line: LogLine | None = None) -> None:
        if self._over:
            return
        with self._lock:
            self._progress = progress or self._progress
            if line is not None:
                self._lines = deque(maxlen=MOST_LINES) if self._lines is None else self._lines
                self._lines.append(line)
            if self._armed:
                return
            self._armed = True
        if threading.get_ident() == self._home:
            self._arm()
            return
        with suppress(RuntimeError):  # the loop is closed, the attempt long over
            self._loop.call_soon_threadsafe(self._arm)

    def keep(self) -> Awaitable[None]:
        if threading.get_ident() == self._home:
            return self.keep_here()
        answer: concurrent.futures.Future[None] = concurrent.futures.Future()
        try:
            self._loop.call_soon_threadsafe(self._keep_for_thread, answer)
        except RuntimeError:  # the loop is closed: the node is gone, and its leases with it
            raise self._lost() from None
        answer.result()
        return Done()

    async def flush(self) -> bool:
        """Write what is left; False if the attempt no longer holds its job. What a write raises is raised."""
        while not self._over and (self._writer or self._has_news()):
            await asyncio.shield(self._hurry())
            await asyncio.sleep(0)  # a writer that had ended just before is let go of in the loop's next turn
        return not self._over

    def close(self) -> None:
        """Let nothing through any more: the attempt is over, whatever still runs."""
        self._end()

    def _arm(self) -> None:
        if self._timer is None and not self._over:
            self._timer = self._loop.call_later(INTERVAL, self._hurry)

    def keep_here(self) -> "asyncio.Future[None]":
        """As `keep`, on the node's loop."""
        saver: asyncio.Future[None] = self._loop.create_future()
        saver.add_done_callback(_seen)
        if self._over:
            saver.set_exception(self._lost())
            return saver
        with self._lock:
            self._save = True
            self._savers.append(saver)
        self._hurry()
        return saver

    def _keep_for_thread(self, answer: "concurrent.futures.Future[None]") -> None:
        hold = self.hold
        if hold:
            hold.wait()

        def tell(saver: asyncio.Future[None]) -> None:
            if hold:
                hold.go_on()
            error = self._lost() if saver.cancelled() else saver.exception()
            if error:
                answer.set_exception(error)
            else:
                answer.set_result(None)

        self.keep_here().add_done_callback(tell)

    def _hurry(self) -> "asyncio.Task[None]":
        """Have everything written that was said so far."""
        self._urgent = True
        if self._writer is None:
            self._writer = self._loop.create_task(self._write_all(), name=f"notes of {self.facts.job}")
            self._writer.add_done_callback(_seen)
        return self._writer

    async def _write_all(self) -> None:
        try:
            await self._write_what_is_urgent()
        finally:
            self._writer = None  # before anyone else has a turn, who would rely on a writer that writes no more

    async def _write_what_is_urgent(self) -> None:
        # What was told during a write waits for its own time, or a busy handler would make one write after another.
        while self._urgent and self._has_news() and not self._over:
            self._urgent = False
            note, savers = self._take()
            try:
                accepted = await self._write(note)
            except BaseException as error:
                self._put_back(note)  # for the next write, or the flush
                for saver in savers:
                    _fail(saver, error)
                raise
            if not accepted:
                self._savers.extend(savers)
                self._end()
                return
            for saver in savers:
                if not saver.done():
                    saver.set_result(None)

    def _has_news(self) -> bool:
        return bool(self._progress or self._lines or self._save)

    def _take(self) -> tuple[Note, list[asyncio.Future[None]]]:
        if self._timer:
            self._timer.cancel()
            self._timer = None
        with self._lock:
            self._armed = False
            note = Note(
                job=self.facts.job,
                lease=self.facts.lease,
                node=self.facts.node,
                saved=self.saved.payload if self._save else None,
                progress=self._progress,
                lines=tuple(self._lines or ()),
            )
            savers, self._savers = self._savers, []
            self._save = False
            self._progress = self._lines = None
        return note, savers

    def _put_back(self, note: Note) -> None:
        with self._lock:
            self._save = self._save or note.saved is not None
            self._progress = self._progress or note.progress
            if note.lines:
                self._lines = deque((*note.lines, *(self._lines or ())), maxlen=MOST_LINES)

    def _end(self) -> None:
        self._over = self.stopping = True
        if self._timer:
            self._timer.cancel()
            self._timer = None
        savers, self._savers = self._savers, []
        for saver in savers:
            _fail(saver, self._lost())

    def _lost(self) -> LeaseLost:
        return LeaseLost(str(self.facts.job), self.facts.lease)


def _fail(saver: "asyncio.Future[None]", error: BaseException) -> None:
    if saver.done():
        return
    if isinstance(error, asyncio.CancelledError):
        saver.cancel()
    else:
        saver.set_exception(error)


def _seen(future: "asyncio.Future[None]") -> None:
    """Look at an error, or asyncio complains of one that nobody awaited; the flush raises what is still wrong then."""
    if not future.cancelled():
        future.exception()
