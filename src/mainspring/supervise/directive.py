"""What a service does next: the one thing that its step returns.

A directive may carry a report for the listeners: how many rows a sweep removed, what a poll found.
"""

from dataclasses import dataclass, field
from typing import TypeAlias

from mainspring.duration import Duration, duration


@dataclass(frozen=True, slots=True)
class Proceed:
    """There is more to do: run again, at the service's pace."""

    report: object = None


@dataclass(frozen=True, slots=True)
class Idle:
    """Nothing to do: wait until a notifier wakes the service."""

    report: object = None


@dataclass(frozen=True, slots=True)
class Sleep:
    """Pause for a time. No notifier cuts it short, unless it is `wakeable`."""

    time: Duration
    wakeable: bool = field(default=False, kw_only=True)
    report: object = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        duration(self.time)  # a bad one shows where it is written, not where it is slept


Directive: TypeAlias = Proceed | Idle | Sleep
