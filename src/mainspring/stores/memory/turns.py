"""Things in the order of their turns: a heap in which a thing can change its turn, or leave, at any time."""

from collections.abc import Hashable
from datetime import datetime
from heapq import heapify, heappop, heappush
from typing import Final, Generic, TypeAlias, TypeVar

Turn: TypeAlias = tuple[datetime, int]
"""When it is a thing's turn. The number tells apart what has the same instant: of jobs, the smaller id goes first."""

T = TypeVar("T", bound=Hashable)

_FEW: Final = 8
"""So many entries are not worth clearing up."""


class Turns(Generic[T]):
    """Every thing has one turn at a time.

    What left, or got another turn, stays in the heap until it comes up or until such entries are the most: so each step
    costs the logarithm of what is in it, spread over all steps, and it never holds more than twice as much as it must.
    """

    __slots__ = ("_heap", "_pushed", "_turns")

    def __init__(self) -> None:
        self._turns: dict[T, Turn] = {}
        self._heap: list[tuple[Turn, int, T]] = []
        self._pushed = 0  # tells apart what things of the same turn cannot be compared by

    def __len__(self) -> int:
        return len(self._turns)

    def put(self, thing: T, turn: Turn) -> None:
        """Give a thing its turn, instead of the one it may have."""
        if self._turns.get(thing) != turn:
            self._turns[thing] = turn
            self._pushed += 1
            heappush(self._heap, (turn, self._pushed, thing))
            self._clear_up()

    def drop(self, thing: T) -> None:
        """Let a thing go, if it is there."""
        if self._turns.pop(thing, None) is not None:
            self._clear_up()

    def first(self) -> tuple[Turn, T] | None:
        """Return whose turn it is, and leave it there."""
        while self._heap:
            turn, _, thing = self._heap[0]
            if self._turns.get(thing) == turn:
                return turn, thing
            heappop(self._heap)
        return None

    def _clear_up(self) -> None:
        if len(self._heap) > 2 * len(self._turns) + _FEW:
            self._heap = [(turn, number, thing) for number, (thing, turn) in enumerate(self._turns.items())]
            heapify(self._heap)
