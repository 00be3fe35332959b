"""How a service spaces its steps: the pace while there is work, the backoff while there are errors.

Pure but for the two counts that `Rhythm` keeps: from what a step returned or raised follows the next `Wait`.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, assert_never

from mainspring.core.backoff import Backoff
from mainspring.duration import Duration, seconds
from mainspring.errors import DeclarationError
from mainspring.supervise.directive import Directive, Idle, Proceed, Sleep


@dataclass(frozen=True, slots=True, kw_only=True)
class Pacing:
    """The pause between steps that proceed: `active_interval` first, shorter by `ramp_step` each time, down to
    `min_interval`. Anything but `Proceed` starts it anew.
    """

    active_interval: Duration = 0.1
    min_interval: Duration = 0.01
    ramp_step: Duration = 0.01

    def __post_init__(self) -> None:
        if seconds(self.min_interval) > seconds(self.active_interval):
            raise DeclarationError("Pacing", "min_interval is longer than active_interval")
        seconds(self.ramp_step)


NO_PAUSE: Final = Pacing(active_interval=0, min_interval=0, ramp_step=0)


class Why(StrEnum):
    """What a service waits for."""

    START = "start"
    PACE = "pace"
    IDLE = "idle"
    SLEEP = "sleep"
    BACKOFF = "backoff"


@dataclass(frozen=True, slots=True)
class Wait:
    """A rest between two steps: `seconds` long (None: without end), cut short by a notifier if `wakeable`."""

    why: Why
    seconds: float | None
    wakeable: bool = False


class Rhythm:
    """The pace and the failures in a row of one service."""

    def __init__(self, pacing: Pacing, backoff: Backoff) -> None:
        self._pacing = pacing
        self._backoff = backoff
        self._pace = seconds(pacing.active_interval)
        self.failures = 0

    def completed(self, directive: Directive) -> Wait:
        """Say how to wait after a step that returned."""
        self.failures = 0
        match directive:
            case Proceed():
                return Wait(Why.PACE, self._quicken())
            case Idle():
                self._slow_down()
                return Wait(Why.IDLE, None, wakeable=True)
            case Sleep():
                self._slow_down()
                return Wait(Why.SLEEP, seconds(directive.time), directive.wakeable)
            case _:
                assert_never(directive)

    def failed(self, roll: float) -> Wait:
        """Say how to wait after a step that raised."""
        self.failures += 1
        self._slow_down()
        return Wait(Why.BACKOFF, self._backoff.delay(self.failures, roll).total_seconds())

    def _quicken(self) -> float:
        pace = self._pace
        self._pace = max(seconds(self._pacing.min_interval), pace - seconds(self._pacing.ramp_step))
        return pace

    def _slow_down(self) -> None:
        self._pace = seconds(self._pacing.active_interval)
