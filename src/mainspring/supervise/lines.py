"""Standing in line: the one way in which anything here waits.

A `Line` holds those who wait for one kind of thing, in the order they came. `first_of` stands in several lines at once
until the first of them calls, or a time has come. What was handed to someone who is cancelled at that very moment goes
back to its line, so that a call is never lost.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import TypeAlias

Waiter: TypeAlias = "asyncio.Future[Line | None]"


class Line(ABC):
    """Those who wait for one kind of thing. It belongs to one event loop; touch it from that loop only."""

    def __init__(self) -> None:
        # A dict is an ordered set: leaving the middle of the line costs no search.
        self._waiting: dict[Waiter, None] = {}

    def join(self, waiter: Waiter) -> None:
        self._waiting[waiter] = None

    def leave(self, waiter: Waiter) -> None:
        self._waiting.pop(waiter, None)

    def call_first(self) -> bool:
        """Call whoever has waited longest; False if nobody waits."""
        while self._waiting:
            waiter = next(iter(self._waiting))
            del self._waiting[waiter]
            if not waiter.done():  # done: another line called it first, or it was cancelled
                waiter.set_result(self)
                return True
        return False

    @abstractmethod
    def give_back(self) -> None:
        """Take back what a call handed out, because whoever was called cannot use it."""


async def first_of(lines: Iterable[Line], *, until: float | None = None) -> Line | None:
    """Wait for the first of these lines to call, and return it; None when the loop's time reaches `until`."""
    loop = asyncio.get_running_loop()
    waiter: Waiter = loop.create_future()
    joined = tuple(lines)
    timer = None if until is None else loop.call_at(until, _ring, waiter)
    try:
        for line in joined:
            line.join(waiter)
        return await waiter
    except asyncio.CancelledError:
        caller = waiter.result() if waiter.done() and not waiter.cancelled() else None
        if caller:
            caller.give_back()
        raise
    finally:
        if timer:
            timer.cancel()
        for line in joined:
            line.leave(waiter)


def _ring(waiter: Waiter) -> None:
    if not waiter.done():
        waiter.set_result(None)
