"""How long to wait after the n-th failure in a row.

One curve serves all: the wait starts at `initial`, grows by `increment` and by `multiplier` with each further failure,
and is spread by jitter, but never beyond `cap`. Fixed, linear and exponential waits are names for settings of it, so
that a stored curve is five numbers. Jitter comes from a roll that the caller draws: replicas that fail together must
not return together, and least of all at the cap, where long outages lead. So what is spread stays as far below the
cap as jitter reaches.
"""

from datetime import timedelta
from typing import Final

from msgspec import Struct

from mainspring.duration import LONGEST, Duration, duration
from mainspring.errors import DeclarationError

QUARTER_HOUR: Final = timedelta(minutes=15)


class Backoff(Struct, frozen=True, kw_only=True):
    """The curve. Made by `fixed`, `linear` or `exponential`, which read durations as people write them."""

    initial: timedelta
    increment: timedelta = timedelta(0)
    multiplier: float = 1.0
    cap: timedelta
    jitter: float = 0.0

    def __post_init__(self) -> None:
        DeclarationError.unless(
            "Backoff",
            (
                (min(self.initial, self.increment) >= timedelta(0), "a wait cannot be negative"),
                (self.initial <= self.cap, "the initial wait is longer than the cap"),
                (self.cap <= LONGEST, "the cap is longer than a century"),
                (1 <= self.multiplier < float("inf"), "the multiplier must be at least 1: a wait does not shrink"),
                (0 <= self.jitter <= 1, "jitter is a share of the wait, from 0 to 1"),
                (self.multiplier <= 1 or bool(self.initial), "a wait of zero never grows by multiplying"),
            ),
        )

    @classmethod
    def fixed(cls, delay: Duration, *, jitter: float = 0.0) -> "Backoff":
        """Wait the same every time."""
        return cls(initial=duration(delay), cap=LONGEST, jitter=jitter)

    @classmethod
    def linear(
        cls, initial: Duration, increment: Duration, *, cap: Duration = QUARTER_HOUR, jitter: float = 0.0
    ) -> "Backoff":
        """Wait a little longer each time, by the same amount."""
        return cls(initial=duration(initial), increment=duration(increment), cap=duration(cap), jitter=jitter)

    @classmethod
    def exponential(
        cls, initial: Duration = 1, *, multiplier: float = 2.0, cap: Duration = QUARTER_HOUR, jitter: float = 0.25
    ) -> "Backoff":
        """Wait a multiple of the time before."""
        return cls(initial=duration(initial), multiplier=multiplier, cap=duration(cap), jitter=jitter)

    def delay(self, failures: int, roll: float) -> timedelta:
        """Return the wait after this many failures in a row, at least 1; `roll` is drawn evenly from 0 to 1."""
        highest = self.cap.total_seconds() / (1 + self.jitter)
        further = failures - 1
        start = self.initial.total_seconds() + self.increment.total_seconds() * further
        try:
            steady = min(highest, start * self.multiplier**further)
        except OverflowError:
            steady = highest
        return min(self.cap, timedelta(seconds=steady * (1 + self.jitter * (2 * roll - 1))))
