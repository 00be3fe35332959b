"""How briskly an outbox is delivered: named profiles, and what they are made of.

Nobody has to wait for a poll, whatever the profile: messages are announced, and a node looks once a second for what it
was not told of. Looking more rarely would save next to nothing, for one look finds the work of all outboxes; and what
was lost would lie for longer.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from typing import Any, Final, TypedDict

from mainspring.core.backoff import Backoff
from mainspring.duration import Duration, seconds
from mainspring.errors import DeclarationError
from mainspring.supervise import Pacing

JITTER: Final = 0.25
LARGEST_BATCH: Final = 10_000


class TuningOptions(TypedDict, total=False):
    """What may be said instead of what a profile says."""

    size: int
    min_interval: Duration
    active_interval: Duration
    ramp_step: Duration
    retry_base: Duration
    retry_max: Duration
    degrade_after: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning:
    """How a partition is delivered while there is something to deliver."""

    size: int = 10
    """Messages that a delivery holds at most."""
    min_interval: Duration = "100ms"
    active_interval: Duration = "500ms"
    """The pause between deliveries: this one at first, shorter by `ramp_step` each time, down to `min_interval`."""
    ramp_step: Duration = "50ms"
    retry_base: Duration = "1s"
    """The wait after the first failure. It doubles, up to `retry_max`."""
    retry_max: Duration = "60s"
    degrade_after: int = 2
    """Failures in a row after which a batch is taken apart that is handled as a whole."""

    def __post_init__(self) -> None:
        DeclarationError.unless("tuning", self._requirements())

    def _requirements(self) -> Iterator[tuple[bool, str]]:
        fits = type(self.size) is int and 1 <= self.size <= LARGEST_BATCH
        yield fits, f"size is a number of messages from 1 to {LARGEST_BATCH:,}, not {self.size!r}"
        fits = type(self.degrade_after) is int and self.degrade_after >= 1
        yield fits, f"degrade_after is a number of failures, at least 1, not {self.degrade_after!r}"
        quickest, first = seconds(self.min_interval), seconds(self.active_interval)
        yield quickest <= first, "min_interval is longer than active_interval"
        seconds(self.ramp_step)
        base, most = seconds(self.retry_base), seconds(self.retry_max)
        yield base > 0, "retry_base is longer than nothing: a message that fails at once would be tried without end"
        yield base <= most, "retry_base is longer than retry_max"

    @property
    def pacing(self) -> Pacing:
        return Pacing(active_interval=self.active_interval, min_interval=self.min_interval, ramp_step=self.ramp_step)

    @property
    def backoff(self) -> Backoff:
        return Backoff.exponential(self.retry_base, cap=self.retry_max, jitter=JITTER)

    @classmethod
    def of(cls, profile: object = "default", options: TuningOptions | None = None) -> "Tuning":
        """Take a profile, or what was made by hand, with everything that was said beside it instead."""
        given: Mapping[str, Any] = options or {}
        if isinstance(profile, cls):
            return replace(profile, **given)
        try:
            found = PROFILES[Profile(str(profile))]
        except ValueError:
            names = ", ".join(map(repr, map(str, Profile)))
            raise DeclarationError("profile", f"there is no {profile!r}, but {names}") from None
        return replace(found, **given)


class Profile(StrEnum):
    """What can be chosen by its name."""

    DEFAULT = "default"
    LOW_LATENCY = "low_latency"
    HIGH_THROUGHPUT = "high_throughput"
    RELAXED = "relaxed"


PROFILES: Final[Mapping[Profile, Tuning]] = {
    Profile.DEFAULT: Tuning(),
    Profile.LOW_LATENCY: Tuning(
        min_interval="1ms",
        active_interval="2ms",
        ramp_step="1ms",
        retry_base="100ms",
        retry_max="10s",
        degrade_after=3,
    ),
    Profile.HIGH_THROUGHPUT: Tuning(size=100, min_interval="1ms", active_interval="20ms", ramp_step="2ms"),
    Profile.RELAXED: Tuning(retry_base="5s", retry_max="5m", degrade_after=1),
}

TUNABLE: Final = frozenset(field.name for field in fields(Tuning))
