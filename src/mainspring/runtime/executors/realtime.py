"""Timers that go by real time, also on a loop whose own time is virtual: threads and processes know no other."""

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress


def after(seconds: float, callback: Callable[[], None]) -> threading.Timer:
    """Call back on the running loop when so many real seconds have passed; cancel the timer if it is not wanted."""
    loop = asyncio.get_running_loop()

    def ring() -> None:
        with suppress(RuntimeError):  # the loop has been closed meanwhile
            loop.call_soon_threadsafe(callback)

    timer = threading.Timer(seconds, ring)
    timer.daemon = True
    timer.start()
    return timer
