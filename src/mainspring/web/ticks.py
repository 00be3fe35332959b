"""Server-sent events: ticks, by which open pages learn that they should look again. They carry no data.

A tick comes soon after something has changed in the store, once a second at most, and every few seconds in any case.
"""

import asyncio
import signal
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from datetime import timedelta
from typing import Final

from mainspring.app import Mainspring
from mainspring.errors import StoreError

MOST: Final = 200
"""Streams at a time; each is an open connection."""
MAX_STREAMS_PER_IDENTITY: Final = 50
"""Streams of one identity. With a shared password, all users are one identity."""
APART: Final = timedelta(seconds=1)
AT_LEAST: Final = timedelta(seconds=5)
"""So often at least; it keeps proxies from taking the connection for dead, too."""
LIFE: Final = timedelta(minutes=1)
"""How long a stream lasts. Browsers come again by themselves, and are asked again then who they are. Also, a server that
waits for connections to end waits no longer than this."""
GLANCE: Final = timedelta(seconds=0.5)
"""How often it is looked whether the server is about to stop."""

TICK: Final = b"event: tick\ndata:\n\n"
FIRST: Final = b"retry: 1000\n\n"


class Ticks:
    """The streams of one dashboard."""

    def __init__(self, app: Mainspring) -> None:
        self._app: Final = app
        self._open: Final[set[asyncio.Event]] = set()
        self._by: Counter[str] = Counter()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._unwatch: Callable[[], None] | None = None
        self._glance: asyncio.TimerHandle | None = None
        self._over = False
        self._ended: Final = asyncio.Event()

    def is_full(self, identity: str = "") -> bool:
        """Whether there are too many streams, of all or of one identity."""
        return len(self._open) >= MOST or (bool(identity) and self._by[identity] >= MAX_STREAMS_PER_IDENTITY)

    def __len__(self) -> int:
        return len(self._open)

    def end(self) -> None:
        """End all streams, and begin no other; may be called in any thread, and by the handler of a signal."""
        self._over = True
        self._ring()

    async def stream(self, identity: str = "") -> AsyncIterator[bytes]:
        """Yield what one browser is sent; nothing, if there are too many."""
        if self.is_full(identity):
            return
        loop = self._loop = asyncio.get_running_loop()
        rung = asyncio.Event()
        self._open.add(rung)
        self._by[identity] += 1
        self._watch()
        if self._glance is None:
            self._look_at_the_server(loop)
        end = loop.time() + LIFE.total_seconds()
        ticked = loop.time()
        try:
            yield FIRST
            while not self._over and (left := end - loop.time()) > 0:
                at_last = ticked + AT_LEAST.total_seconds() - loop.time()
                with suppress(TimeoutError):
                    await asyncio.wait_for(rung.wait(), min(max(at_last, 0), left))
                await self._pause(ticked + APART.total_seconds() - loop.time())
                rung.clear()
                if self._ended.is_set():
                    break
                ticked = loop.time()
                yield TICK
        finally:
            self._open.discard(rung)
            self._by -= Counter([identity])
            if not self._open:
                self._stop_watching()
                self._stop_glancing()

    async def _pause(self, seconds: float) -> None:
        """Wait a little, so that a busy store does not make pages look all the time; not once all is over."""
        if seconds > 0:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._ended.wait(), seconds)

    def _look_at_the_server(self, loop: asyncio.AbstractEventLoop) -> None:
        if server_stops():
            self.end()
        self._glance = loop.call_later(GLANCE.total_seconds(), self._look_at_the_server, loop)

    def _stop_glancing(self) -> None:
        glance, self._glance = self._glance, None
        if glance:
            glance.cancel()

    def _watch(self) -> None:
        if self._unwatch is None:
            with suppress(StoreError):  # while it is not there, there is the tick every few seconds
                self._unwatch = self._app.store.watch(self._ring)

    def _stop_watching(self) -> None:
        unwatch, self._unwatch = self._unwatch, None
        if unwatch:
            unwatch()

    def _ring(self) -> None:
        loop = self._loop
        if loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        if self._over:
            self._ended.set()
        for rung in self._open:
            rung.set()


def server_stops() -> bool:
    """Say whether uvicorn is about to stop, where it serves this program.

    It waits for open streams then, and tells the app when they have ended. But it handles signals itself, by a method of
    the server: so the server is found, which says what it is about to do. Of others nothing is known.
    """
    servers = [getattr(signal.getsignal(one), "__self__", None) for one in (signal.SIGINT, signal.SIGTERM)]
    return any(getattr(server, "should_exit", False) is True for server in servers)
