"""The selector under an event loop on virtual time: it does not wait, it asks.

It also knows which registered descriptors have someone else at their other end. For that it remembers whatever was
registered until that is closed: an end of a connection that its owner does not read just now (its buffer is full, or
it does something else first) is served by the loop all the same.
"""

import selectors
from collections.abc import Callable
from typing import Protocol, TypeAlias

from mainspring.testing.descriptors import Descriptor, elsewhere, identify, look

Ready: TypeAlias = list[tuple[selectors.SelectorKey, int]]


class HasFileno(Protocol):
    """A socket, a pipe: whatever stands for a file descriptor."""

    def fileno(self) -> int: ...


class Watch(selectors.DefaultSelector):
    """Calls `idle` when nothing is ready and the loop would wait; what that returns counts as ready."""

    def __init__(self, idle: Callable[[], Ready]) -> None:
        super().__init__()
        self._idle = idle
        self._served: dict[int, Descriptor] = {}
        self._ignored: set[Descriptor] = set()

    def register(self, fileobj: int | HasFileno, events: int, data: object = None) -> selectors.SelectorKey:
        key = super().register(fileobj, events, data)
        if served := identify(key.fd):
            self._served[key.fd] = served
        return key

    def select(self, timeout: float | None = None) -> Ready:
        ready = self.wait(0)
        return ready if ready or timeout == 0 else self._idle()

    def wait(self, real_seconds: float) -> Ready:
        """Wait as any selector does."""
        return super().select(real_seconds)

    def ignore(self, number: int) -> None:
        """Leave this open file out of `at_work` for as long as it is open."""
        if ignored := identify(number):
            self._ignored.add(ignored)

    def at_work(self) -> list[Descriptor]:
        """Find the registered descriptors with someone else at the other end."""
        self._served = {number: served for number, served in self._served.items() if identify(number) == served}
        heeded = [
            number for number in self.get_map() if number in self._served and self._served[number] not in self._ignored
        ]
        if not heeded:
            return []
        ends = {number: look(number) for number in self._served}
        return [self._served[number] for number in elsewhere(ends, heeded)]
