"""The connections of one event loop: a few, opened when they are needed, the one used last taken first.

Always true: a connection is at rest here, out with exactly one caller, or ended. Nothing here is called from another
thread; whoever closes the store from there asks the loop to.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Final

from mainspring.errors import StoreClosed, StoreUnavailable
from mainspring.stores.postgres.connected import Connected
from mainspring.stores.postgres.settings import Settings

_FAREWELL: Final = 1.0
"""Seconds for ending a connection in good order."""


class Shelf:
    """Up to `Settings.connections` of them."""

    def __init__(self, settings: Settings, open_one: Callable[[], Awaitable[Connected]]) -> None:
        self._settings = settings
        self._open_one = open_one
        self._loop = asyncio.get_running_loop()
        self._idle: list[Connected] = []
        self._out: set[Connected] = set()
        self._opening = 0
        self._waiting: deque[asyncio.Future[Connected | None]] = deque()
        self._moved_at = 0.0
        self._is_closed = False
        self._emptied = asyncio.Event()
        self._end_of_loop: AsyncGenerator[None, None] | None = None

    async def begin(self, on_end: Callable[[], None]) -> None:
        """Have everything ended with the loop, if nobody closes the store before; `on_end` is called then."""
        self._end_of_loop = _until_the_end(self, on_end)
        await anext(self._end_of_loop)

    async def take(self, generation: int) -> Connected:
        """Take a connection that is not older than that; waits while all are out."""
        while True:
            if self._is_closed:
                raise StoreClosed(self._settings.store, "it has been closed")
            if (connected := self._rested(generation)) is not None:
                return connected
            if len(self._out) + self._opening < self._settings.connections:
                return await self._open(generation)
            if (connected := await self._wait()) is not None:
                return connected

    def give(self, connected: Connected, generation: int) -> None:
        """Give one back that can be used again."""
        if self._is_closed or connected.generation < generation or not connected.is_clean:
            self.drop(connected)
            return
        self._moved_at = self._loop.time()
        while self._waiting:
            waiting = self._waiting.popleft()
            if not waiting.done():
                waiting.set_result(connected)
                return
        self._out.discard(connected)
        self._idle.append(connected)

    def drop(self, connected: Connected) -> None:
        """End one that was out, whatever it is doing."""
        self._out.discard(connected)
        connected.terminate()
        self._free_place()

    async def close(self, seconds: float) -> None:
        """End all: what rests in good order, what is out once it comes back, but none later than that."""
        self._shut()
        idle, self._idle = self._idle, []
        try:
            async with asyncio.timeout(seconds):
                await asyncio.gather(*(connected.close(min(seconds, _FAREWELL)) for connected in idle))
                while self._out or self._opening:
                    self._emptied.clear()
                    await self._emptied.wait()
        except TimeoutError:
            pass
        finally:
            self._idle += idle
            self.end()
            if self._end_of_loop:
                await self._end_of_loop.aclose()

    def end(self) -> None:
        """End all, at once."""
        self._shut()
        out, idle = list(self._out), self._idle
        self._idle = []
        for connected in (*out, *idle):
            connected.terminate()

    def connections(self) -> tuple[Connected, ...]:
        """Name all that are open."""
        return (*self._out, *self._idle)

    def _shut(self) -> None:
        self._is_closed = True
        while self._waiting:
            waiting = self._waiting.popleft()
            if not waiting.done():
                waiting.set_result(None)  # and sees that it is closed

    def _rested(self, generation: int) -> Connected | None:
        while self._idle:
            connected = self._idle.pop()
            if connected.generation >= generation and not connected.is_closed:
                self._out.add(connected)
                return connected
            connected.terminate()
        return None

    async def _open(self, generation: int) -> Connected:
        self._opening += 1
        try:
            connected = await self._open_one()
        except BaseException:
            self._opening -= 1
            self._free_place()
            raise
        self._opening -= 1
        connected.generation = generation
        self._out.add(connected)
        if self._is_closed:
            self.drop(connected)
            raise StoreClosed(self._settings.store, "it has been closed")
        return connected

    async def _wait(self) -> Connected | None:
        """Wait for a connection, or for a place to open one: None."""
        waiting: asyncio.Future[Connected | None] = self._loop.create_future()
        self._waiting.append(waiting)
        timer = self._loop.call_later(self._settings.patience, self._doubt, waiting)
        try:
            return await waiting
        except asyncio.CancelledError:
            if waiting.done() and not waiting.cancelled():  # it came at the very moment that it was not wanted any more
                self._pass_on(waiting.result())
            raise
        finally:
            timer.cancel()

    def _pass_on(self, connected: Connected | None) -> None:
        if connected is None:
            self._free_place()
        else:
            self.give(connected, connected.generation)

    def _doubt(self, waiting: "asyncio.Future[Connected | None]") -> None:
        """Give up on a line that does not move; one that does is merely long."""
        if waiting.done():
            return
        if self._loop.time() - self._moved_at < self._settings.patience:
            self._loop.call_later(self._settings.patience, self._doubt, waiting)
            return
        problem = f"none of this event loop's connections came free within {self._settings.patience:g} s"
        waiting.set_exception(StoreUnavailable(self._settings.store, problem))

    def _free_place(self) -> None:
        self._emptied.set()
        while self._waiting:
            waiting = self._waiting.popleft()
            if not waiting.done():
                waiting.set_result(None)
                return


async def _until_the_end(shelf: Shelf, on_end: Callable[[], None]) -> AsyncGenerator[None, None]:
    """Be closed by the loop before it ends: `asyncio.run` does that for all async generators, and for nothing else."""
    try:
        yield
    finally:
        shelf.end()
        on_end()
        await asyncio.sleep(0)  # the transports let go of their sockets in the loop's next turn
