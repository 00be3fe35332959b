"""An event loop on real time, in a thread of its own."""

import asyncio
import concurrent.futures
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, TypeVar

from mainspring.clock import outside
from mainspring.errors import StoreClosed

T = TypeVar("T")


class Aside:
    """Runs a coroutine in a thread, and whatever else is brought there meanwhile; `end` makes it return soon."""

    def __init__(self, name: str, main: Callable[[], Coroutine[Any, Any, object]], end: Callable[[], None]) -> None:
        self.loop = asyncio.new_event_loop()
        self._main = main
        self._end = end
        self._ended: concurrent.futures.Future[None] = concurrent.futures.Future()
        self._task: asyncio.Task[None] | None = None
        # A daemon: a program that leaves without a word is not held back.
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def call(self, callback: Callable[..., object], *args: object) -> None:
        """Have something called there soon; from any thread."""
        with suppress(RuntimeError):  # it has ended
            self.loop.call_soon_threadsafe(callback, *args)

    async def stop(self, seconds: float) -> None:
        """Have it end, and wait for that; after so many seconds it is cancelled."""
        self.call(self._stop, seconds)
        with outside("a thread of the PostgreSQL store"):
            await asyncio.shield(asyncio.wrap_future(self._ended))
        self._thread.join()  # it has nothing more to do

    def _serve(self) -> None:
        try:
            with asyncio.Runner(loop_factory=lambda: self.loop) as runner, suppress(asyncio.CancelledError):
                runner.run(self._begin())
        finally:
            self._ended.set_result(None)

    async def _begin(self) -> None:
        self._task = asyncio.current_task()
        await self._main()

    def _stop(self, seconds: float) -> None:
        self._end()
        if self._task:
            self.loop.call_later(seconds, self._task.cancel)


async def on_loop(home: asyncio.AbstractEventLoop, what: str, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run something on another loop, wherever that is, and wait for it; virtual time stands still meanwhile."""
    if home is asyncio.get_running_loop():
        return await work()
    coroutine = work()
    try:
        answer = asyncio.run_coroutine_threadsafe(coroutine, home)
    except RuntimeError:  # the loop has ended
        coroutine.close()
        raise
    try:
        with outside(what):
            return await asyncio.wrap_future(answer)
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        raise StoreClosed(what, "it was closed while this was waited for") from None  # and its loop has ended
