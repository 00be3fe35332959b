"""An app's way to its store: made from what the app was given, opened once, closed once.

Code gets the store from here, in any thread and on any event loop; the first call opens it. Concurrent calls share one
opening and its error. The opening runs on a thread and an event loop of its own, so it completes even if the loop that
started it is blocked, for example by a sync call. It is cancelled when no call waits for it any more.
"""

import asyncio
import atexit
import threading
import weakref
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeVar, TypeVarTuple

from mainspring.client.urls import Source
from mainspring.client.waiting import Room
from mainspring.clock import Clock, on_virtual_time, outside
from mainspring.core.job import JobId
from mainspring.errors import DeclarationError, MainspringError, StoreClosed
from mainspring.plugins.guard import Guard
from mainspring.runtime.call import current_trace
from mainspring.stores.port import Store
from mainspring.stores.records import JobView
from mainspring.sync import Bridge, Detached, leave_behind, tell_after_fork

if TYPE_CHECKING:
    from mainspring.outbox.caller import Around

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

_LAST_WISH: Final = 2.0
"""Seconds that closing a store may take when the program ends. What was committed needs none of it."""


@dataclass(eq=False, slots=True)
class _Change:
    """An opening or closing under way."""

    loop: asyncio.AbstractEventLoop
    """The event loop on which it runs."""
    ended: "Future[None]" = field(default_factory=Future)
    """Completed at its end, with the error of an opening that failed."""
    thread: Detached | None = None
    """The thread of an opening; None on virtual time."""
    waiting: int = 0
    """Calls that wait for the opening."""


class Connection:
    """The store of one app, open or not."""

    def __init__(self, source: Source, clock: Clock, introduce: Callable[[Store], None] | None = None) -> None:
        self.clock = clock
        self._source = source
        self._introduce = introduce
        self.guard: Final = Guard()
        """Asked before anything is done here that a plugin may not."""
        self.on_cancel: Callable[[JobId, int], None] | None = None
        """Told of every running job, and its lease, that was asked from here to stop."""
        self.trace: Callable[[], str | None] | None = None
        """Says which span the running code is in, as a traceparent; None: nobody traces."""
        self.around_deliveries: Around | None = None
        """What handlers of outboxes are called in; None: nobody traces."""
        self._bridge = Bridge(f"mainspring {source.name}")
        self._rooms: dict[tuple[asyncio.AbstractEventLoop, int], Room] = {}
        self._users = 0
        self._made: Store | None = None
        self._open: Store | None = None
        self._guard = threading.Lock()
        self._change: _Change | None = None
        tell_after_fork(self)

    def after_fork(self) -> None:
        """Begin anew in a child: threads and open files belong to the parent."""
        self._guard = threading.Lock()
        leave_behind(self._change)
        self._change = self._open = None
        self._rooms = {}
        if self._made and self._source.again:
            leave_behind(self._made)
            self._made = None

    @contextmanager
    def instead(self, source: Source, clock: Clock) -> Iterator[None]:
        """Lead to another store while the block runs; what this one had open stays open."""
        kept = self._source, self.clock, self._made, self._open
        self._source, self.clock, self._made, self._open = source, clock, None, None
        try:
            yield
        finally:
            self._source, self.clock, self._made, self._open = kept

    @property
    def own(self) -> "Connection":
        """Itself; what stands for another one says which."""
        return self

    def traceparent(self) -> str | None:
        """Say what is kept with a job or a message that is enqueued or published now, to find where it came from."""
        return (None if self.trace is None else self.trace()) or current_trace.get()

    @property
    def opened(self) -> Store:
        """The store, which is open."""
        if self._open is None:
            raise StoreClosed(self._source.name, "it is not open; use it inside `async with app:`")
        return self._open

    async def store(self) -> Store:
        """Return the store, after opening it if need be."""
        while self._open is None:
            change = self._begin()
            if change and on_virtual_time():  # which a thread would miss
                return await self._finish_opening(change)
            if change:
                self._open_in_thread(change)
            # A call that has begun the opening waits for just this one: it may already have failed.
            if change := change or self._change:
                await self._wait_for_opening(change)
        return self._open

    async def expect_tables(self) -> None:
        """Raise where opening the store would have to make its tables: within a transaction of the user's it cannot.

        Their transaction holds the very lock that making them needs, and would be waited for in vain.
        """
        if self._open is not None:
            return
        version = await (self._made or self._source.make(self.clock)).schema()
        if version.found < version.wanted:
            problem = "its tables are not there yet, and cannot be made while your transaction is open"
            raise DeclarationError(
                "tx",
                f"{self._source.name}: {problem}; use `async with app:` before it, or run `mainspring migrate` once",
            )

    def store_sync(self) -> Store:
        """Return the store, for code that waits."""
        return self._open or self.wait_for(self.store)

    def wait_for(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Call an async function from code that waits."""
        self._check_not_changing_on_this_loop()
        return self._bridge.run(work)

    async def finished(self, job: JobId) -> JobView | None:
        """Wait until a job has finished, or is gone: None. All who wait on one loop share every look at the store."""
        store = await self.store()
        key = asyncio.get_running_loop(), id(store)
        room = self._rooms.get(key)
        if room is None:
            self._drop_rooms_of_closed_loops()
            room = self._rooms[key] = Room(store, on_empty=lambda: self._rooms.pop(key, None))
        return await room.finished(job)

    def _drop_rooms_of_closed_loops(self) -> None:
        """Drop calls that were waiting when their loop was closed: they never end."""
        for key in tuple(self._rooms):
            if key[0].is_closed() and (room := self._rooms.pop(key, None)):
                room.abandon()

    async def enter(self) -> None:
        """Open the store for a user who will leave again."""
        with self._guard:
            self._users += 1
        try:
            await self.store()
        except BaseException:
            with self._guard:
                self._users -= 1
            raise

    async def leave(self) -> None:
        """Close the store if this was the last of its users."""
        with self._guard:
            self._users -= 1
            last = self._users == 0
        if last:
            await self.close()

    async def close(self) -> None:
        """Close the store, whoever uses it."""
        await self.close_store()
        self._bridge.close()

    def close_sync(self) -> None:
        """Close the store, from code that waits."""
        self.wait_for(self.close_store)
        self._bridge.close()

    async def close_store(self) -> None:
        """Close the store, and leave the bridge as it is."""
        while not (change := self._begin(closing=True)):
            if under_way := self._change:
                with suppress(MainspringError):  # of an opening, whose own caller gets it
                    await _end_of(under_way)
        store, self._open = self._made, None
        if self._source.again:
            self._made = None
        try:
            if store:
                await store.close()
        finally:
            self._end(change)
            _OPEN.discard(self)

    def _check_not_changing_on_this_loop(self) -> None:
        try:
            running = asyncio.get_running_loop()
        except RuntimeError:
            return
        change = self._change
        if change and change.loop is running:
            raise RuntimeError(
                f"{self._source.name} is being opened or closed on this event loop, which a sync call would block; "
                "await that first, or await the async method"
            )

    def _open_in_thread(self, change: _Change) -> None:
        """Open the store on a thread of its own, which ends the change."""
        name = f"mainspring {self._source.name} opening"
        try:
            change.thread = Detached(name, self._open_store, lambda error: self._end(change, error))
        except BaseException:  # no thread can be started
            self._end(change)
            raise
        change.loop = change.thread.loop

    async def _wait_for_opening(self, change: _Change) -> None:
        """Wait for the end of a change; cancel an opening that no call waits for any more."""
        with self._guard:
            change.waiting += 1
        try:
            await _end_of(change)
        finally:
            with self._guard:
                change.waiting -= 1
                is_abandoned = not change.waiting
            if is_abandoned and change.thread:
                change.thread.cancel()

    async def _finish_opening(self, change: _Change) -> Store:
        try:
            store = await self._open_store()
        except Exception as error:
            self._end(change, error)
            raise
        except BaseException:
            self._end(change)
            raise
        self._end(change)
        return store

    async def _open_store(self) -> Store:
        # A store whose opening failed or was cancelled is opened again, so that none of its resources leak.
        store = self._made = self._made or self._source.make(self.clock)
        if self._introduce:
            self._introduce(store)
        await store.open()
        self._open = store
        _OPEN.add(self)
        return store

    def _begin(self, *, closing: bool = False) -> _Change | None:
        """Become the one who opens or closes; None if someone else does, or if it is open already."""
        with self._guard:
            if self._change or (self._open and not closing):
                return None
            self._change = _Change(asyncio.get_running_loop())
            return self._change

    def _end(self, change: _Change, error: BaseException | None = None) -> None:
        with self._guard:
            self._change = None
        if error:
            change.ended.set_exception(error)
        else:
            change.ended.set_result(None)


async def _end_of(change: _Change) -> None:
    """Wait for the end of a change; raise the error of an opening that failed."""
    elsewhere = change.loop is not asyncio.get_running_loop()
    with outside("a store that is opened on another event loop") if elsewhere else nullcontext():
        await asyncio.shield(asyncio.wrap_future(change.ended))


_OPEN: Final["weakref.WeakSet[Connection]"] = weakref.WeakSet()


class _LastLoop(asyncio.SelectorEventLoop):
    """At the end of a program there are no new threads: what is meant for one is done on the spot."""

    def run_in_executor(self, _: object, func: Callable[[*Ts], T], *args: *Ts) -> "asyncio.Future[T]":
        answer: asyncio.Future[T] = self.create_future()
        try:
            answer.set_result(func(*args))
        except Exception as error:  # noqa: BLE001 - goes to whoever awaits it
            answer.set_exception(error)
        return answer


@atexit.register
def _close_what_is_open() -> None:
    """Let a script that never closed its app leave no open files behind. Threads that wait end with the program."""
    for connection in tuple(_OPEN):
        with suppress(Exception), asyncio.Runner(loop_factory=_LastLoop) as runner:  # what was committed is safe
            runner.run(asyncio.wait_for(connection.close_store(), _LAST_WISH))
