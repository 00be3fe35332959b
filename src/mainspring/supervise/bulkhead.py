"""How many steps may run at the same time.

A `Lane` has a number of places. A `Bulkhead` is the lanes that a service may use, best first: none means that nothing
limits it, one that it shares the lane with others, two that it has a second lane to turn to when the first is full
(a priority lane that others do not use).
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from mainspring.errors import DeclarationError
from mainspring.supervise.lines import Line, first_of
from mainspring.supervise.stop import Stop


class Lane(Line):
    """A number of places, given out in the order in which they are asked for."""

    def __init__(self, places: int) -> None:
        if not isinstance(places, int) or places < 1:
            raise DeclarationError("Lane", f"it needs a number of places, at least one, not {places!r}")
        super().__init__()
        self.free = places

    def take(self) -> bool:
        """Take a place if one is free. None is free while others wait: a place that is left goes to them."""
        if not self.free:
            return False
        self.free -= 1
        return True

    def give_back(self) -> None:
        if not self.call_first():
            self.free += 1


class Bulkhead:
    """The lanes that a service may use, best first: `Bulkhead()`, `Bulkhead(shared)`, `Bulkhead(shared, guaranteed)`."""

    def __init__(self, *lanes: Lane) -> None:
        for lane in lanes:
            if not isinstance(lane, Lane):
                raise DeclarationError("Bulkhead", f"it is made of lanes, not {lane!r}; write Bulkhead(Lane(2))")
        self._lanes = lanes

    @asynccontextmanager
    async def place(self, stop: Stop) -> AsyncIterator[bool]:
        """Hold a place for as long as the context lasts; False if the word to stop came first."""
        lane = await self._enter(stop)
        try:
            yield not stop.is_set()
        finally:
            if lane:
                lane.give_back()

    async def _enter(self, stop: Stop) -> Lane | None:
        for lane in self._lanes:
            if lane.take():
                return lane
        line = await first_of([stop, *self._lanes]) if self._lanes else None
        return line if isinstance(line, Lane) else None
