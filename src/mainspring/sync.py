"""The way from plain code into the async core: one thread with an event loop of its own, for each app that asks.

There is one implementation of everything, and it is async. Code without a loop hands a coroutine over and blocks until
it is done. That works beside a running loop too, which then stands still for as long, as with any call that blocks. Only
while a task of that loop closes the store it raises `RuntimeError`: the loop could not finish that.
The thread is started when it is first needed, ends with its app, and never holds up the end of the program.
"""

import asyncio
import concurrent.futures
import os
import threading
import weakref
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from mainspring.errors import StoreClosed

T = TypeVar("T")

_PATIENCE: Final = 5.0
"""Seconds that the end of the thread is waited for; it has nothing to do but to cancel what is left."""


class Forked(Protocol):
    """Something that holds threads or locks, which a forked child does not have or cannot open."""

    def after_fork(self) -> None: ...


_FORKED: Final[weakref.WeakSet[Forked]] = weakref.WeakSet()


def tell_after_fork(holder: Forked) -> None:
    """Have `holder.after_fork` called in every forked child, for as long as the holder is there."""
    _FORKED.add(holder)


def leave_behind(thing: object) -> None:
    """Keep something of the parent's from ever being closed or collected here."""
    _LEFT_BEHIND.append(thing)


_LEFT_BEHIND: Final[list[object]] = []


def _after_fork() -> None:
    for holder in tuple(_FORKED):
        holder.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


class Bridge:
    """Runs coroutines for threads that wait."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._running: _Running | None = None
        tell_after_fork(self)

    def after_fork(self) -> None:
        """Begin anew: the thread stayed behind in the parent."""
        self._lock = threading.Lock()
        if self._running:
            leave_behind(self._running.loop)  # its descriptors are the parent's: closing them would make that one deaf
            self._running.end.detach()
        self._running = None

    def run(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Call an async function on the bridge's loop; return what it returns, raise what it raises."""
        # Made before anything is started: an interrupt that comes at any moment from here on finds what to cancel.
        waiting: concurrent.futures.Future[T] = concurrent.futures.Future()
        try:
            self._start(work, waiting)
            return waiting.result()
        except concurrent.futures.CancelledError:
            raise StoreClosed(self._name, "the app was closed while this was waited for") from None
        except BaseException:  # Ctrl-C, for one: nobody waits any more
            waiting.cancel()
            raise

    def _start(self, work: Callable[[], Coroutine[Any, Any, T]], waiting: "concurrent.futures.Future[T]") -> None:
        with self._lock:
            if self._running is None or self._running.loop.is_closed():
                self._running = self._open()
            if self._running.thread is threading.current_thread():
                raise RuntimeError("this thread runs the loop that has to answer; await the async method instead")
            self._running.waiting.add(waiting)
            waiting.add_done_callback(self._running.waiting.discard)
            self._running.loop.call_soon_threadsafe(_begin, work, waiting)

    def close(self) -> None:
        """End the thread; whoever waits for something there gets `StoreClosed`. The next `run` starts another."""
        with self._lock:
            running, self._running = self._running, None
        if running:
            running.end()
            if running.thread is not threading.current_thread():
                running.thread.join(_PATIENCE)
            for waiting in tuple(running.waiting):  # what came too late to be begun
                waiting.cancel()

    def _open(self) -> "_Running":
        loop = asyncio.new_event_loop()
        # It knows the loop and not the bridge: an app that nobody holds any more can go, and takes its thread with it.
        thread = threading.Thread(target=_serve, args=(loop,), name=f"{self._name} bridge", daemon=True)
        thread.start()
        end = weakref.finalize(self, _stop, loop)
        end.atexit = False  # a daemon needs no end there, and a loop cannot end then: Python starts no more threads
        return _Running(loop, thread, end, set())


class Detached:
    """A coroutine on a thread and an event loop of its own, which ends whatever becomes of the caller's loop.

    `ended` is called in the thread, once the loop is closed: with the error, or None after success and cancellation.
    """

    def __init__(
        self, name: str, work: Callable[[], Coroutine[Any, Any, object]], ended: Callable[[BaseException | None], None]
    ) -> None:
        self.loop: Final = asyncio.new_event_loop()
        try:
            threading.Thread(target=self._serve, args=(work, ended), name=name, daemon=True).start()
        except BaseException:
            self.loop.close()
            raise

    def cancel(self) -> None:
        _stop(self.loop)

    def _serve(
        self, work: Callable[[], Coroutine[Any, Any, object]], ended: Callable[[BaseException | None], None]
    ) -> None:
        problem: BaseException | None = None
        try:
            with asyncio.Runner(loop_factory=lambda: self.loop) as runner, suppress(asyncio.CancelledError):
                runner.run(work())
        except BaseException as error:  # noqa: BLE001 -- raised by those who wait
            problem = error
        ended(problem)


def _begin(work: Callable[[], Coroutine[Any, Any, T]], waiting: "concurrent.futures.Future[T]") -> None:
    """Start on the loop what a thread waits for, and have both know how the other ends."""
    if waiting.cancelled():
        return
    loop = asyncio.get_running_loop()
    task = loop.create_task(work())

    def ended(task: "asyncio.Task[T]") -> None:
        if task.cancelled():
            waiting.cancel()
        elif not waiting.cancelled():
            error = task.exception()
            with suppress(concurrent.futures.InvalidStateError):  # given up at this very moment
                waiting.set_exception(error) if error else waiting.set_result(task.result())

    def given_up(waiting: "concurrent.futures.Future[T]") -> None:
        if waiting.cancelled():
            with suppress(RuntimeError):  # the loop is closed, the task long gone
                loop.call_soon_threadsafe(task.cancel)

    task.add_done_callback(ended)
    waiting.add_done_callback(given_up)


class _Running(NamedTuple):
    loop: asyncio.AbstractEventLoop
    thread: threading.Thread
    end: "weakref.finalize[[asyncio.AbstractEventLoop], Bridge]"
    waiting: "set[concurrent.futures.Future[Any]]"


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    with asyncio.Runner(loop_factory=lambda: loop) as runner, suppress(asyncio.CancelledError):
        runner.run(_forever())


async def _forever() -> None:
    await asyncio.get_running_loop().create_future()


def _stop(loop: asyncio.AbstractEventLoop) -> None:
    with suppress(RuntimeError):  # it is closed already
        loop.call_soon_threadsafe(_cancel_all, loop)


def _cancel_all(loop: asyncio.AbstractEventLoop) -> None:
    for task in asyncio.all_tasks(loop):
        task.cancel()
