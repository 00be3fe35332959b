"""What a service tells of itself, and the two listeners that come with it.

A listener is any callable that takes an event. Listeners are called in order, from within the service's loop: they
must be quick. One that raises is logged and counted; the others and the service go on, and it is called again.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from mainspring.errors import StoreClosed, StoreUnavailable
from mainspring.supervise.directive import Directive, Idle


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """The service begins."""

    service: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopped:
    """The service has ended, in whatever way."""

    service: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Executing:
    """A step begins: it has its place, and its wake-up is answered."""

    service: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Completed:
    """A step returned."""

    service: str
    seconds: float
    directive: Directive


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """A step raised; the service tries again after `backoff` seconds (None: it does not, it dies of it)."""

    service: str
    seconds: float
    error: BaseException
    failures: int
    backoff: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Idling:
    """The service waits to be woken."""

    service: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Sleeping:
    """The service pauses for so many seconds."""

    service: str
    seconds: float


ServiceEvent: TypeAlias = Started | Stopped | Executing | Completed | Failed | Idling | Sleeping
Listener: TypeAlias = Callable[[ServiceEvent], None]

log: Final = logging.getLogger("mainspring.supervise")


def log_failures(event: ServiceEvent) -> None:
    """Write failures to the log, as warnings, the first in a row with its traceback. The default listener.

    A store that cannot be reached, or was closed, has no traceback: the error says what is wrong, and everything that uses
    the store fails alike. At the exit of a program, stores are closed while nodes in daemon threads still run.
    """
    if isinstance(event, Failed) and event.backoff is not None:  # one that dies of it tells its owner, who logs it
        text = "%s failed (%d in a row), again in %.3g s: %r"
        expected = isinstance(event.error, StoreUnavailable | StoreClosed)
        trace = event.error if event.failures == 1 and not expected else None
        log.warning(text, event.service, event.failures, event.backoff, event.error, exc_info=trace)


@dataclass(slots=True)
class Stats:
    """Counts for one service, or for several together, since it was made."""

    executions: int = 0
    idle: int = 0
    failures: int = 0
    total_seconds: float = 0.0
    max_seconds: float = 0.0
    errors: dict[str, int] = field(default_factory=dict)

    def __call__(self, event: ServiceEvent) -> None:
        match event:
            case Completed(seconds=took, directive=directive):
                self._took(took)
                self.idle += isinstance(directive, Idle)
            case Failed(seconds=took, error=error):
                self._took(took)
                self.failures += 1
                name = type(error).__name__
                self.errors[name] = self.errors.get(name, 0) + 1
            case _:
                pass

    def _took(self, took: float) -> None:
        self.executions += 1
        self.total_seconds += took
        self.max_seconds = max(self.max_seconds, took)
