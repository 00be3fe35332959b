"""Where the deliveries of a node take place: side by side, or one alone.

A message that was being delivered when its node was lost may have ended it, or may have been in bad company. Before that
costs it its last attempt, it is delivered while nothing else is: then there is no doubt.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final


class Room:
    """Holds any number of deliveries, or one that is to be alone. Whoever wants to be alone goes first."""

    def __init__(self) -> None:
        self._inside = 0
        self._wishes = 0
        """How many are alone, or wait until they are."""
        self._waiting: Final[list[asyncio.Future[None]]] = []

    @asynccontextmanager
    async def enter(self, *, alone: bool) -> AsyncIterator[None]:
        self._wishes += alone
        try:
            await self._until(lambda: not (self._inside if alone else self._wishes))
            self._inside += 1
            try:
                yield
            finally:
                self._inside -= 1
        finally:
            self._wishes -= alone
            self._ring()

    async def _until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            waiter = asyncio.get_running_loop().create_future()
            self._waiting.append(waiter)
            try:
                await waiter
            finally:
                self._waiting.remove(waiter)

    def _ring(self) -> None:
        for waiter in self._waiting:
            if not waiter.done():
                waiter.set_result(None)
