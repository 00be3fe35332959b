"""What the services of a node are at: written by their listeners, read by whoever reports.

Listeners are called at every turn of every service, so they do no more than to keep what they were told.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from functools import partial
from typing import Final, assert_never

from mainspring.clock import Clock
from mainspring.runtime.report import ServiceReport, ServiceState, first_line
from mainspring.supervise import Notifier
from mainspring.supervise.directive import Directive
from mainspring.supervise.listener import (
    Completed,
    Executing,
    Failed,
    Idling,
    Listener,
    ServiceEvent,
    Sleeping,
    Started,
    Stopped,
)

MOST: Final = 200
"""Services that are told of: an outbox has one for each partition."""


class Place:
    """One service on the board."""

    __slots__ = ("backoff", "directive", "error", "error_at", "executions", "failures", "name", "state", "until")

    def __init__(self, name: str) -> None:
        self.name = name
        self.state = ServiceState.RUNNING
        self.directive: Directive | None = None
        self.executions = 0
        self.failures = 0
        self.error = ""
        self.error_at = 0.0
        self.backoff: float | None = None
        self.until: float | None = None


class Board:
    """All services of a node, by name. Times on it are those of the monotonic clock."""

    def __init__(self, clock: Clock) -> None:
        self.news = Notifier()
        """Notified when a service begins, ends, fails, or has recovered."""
        self.changes = 0
        """How often that has happened."""
        self._clock = clock
        self._own: dict[str, Place] = {}
        self._others: dict[str, Place] = {}

    @property
    def own(self) -> Listener:
        """Listens to the node's own duties."""
        return partial(self._told, self._own)

    @property
    def others(self) -> Listener:
        """Listens to services that the app declared."""
        return partial(self._told, self._others)

    def _told(self, places: dict[str, Place], event: ServiceEvent) -> None:
        place = places.get(event.service)
        is_new = place is None
        if place is None:
            place = places[event.service] = Place(event.service)
        before, failures = place.state, place.failures
        match event:
            case Executing():
                place.state = ServiceState.RUNNING
            case Completed(directive=directive):
                place.executions += 1
                place.directive, place.until, place.backoff, place.failures = directive, None, None, 0
            case Idling():
                place.state = ServiceState.IDLE
            case Sleeping(seconds=seconds):
                place.state, place.until = ServiceState.SLEEPING, self._clock.monotonic() + seconds
            case Failed():
                self._failed(place, event)
            case Started():
                place.state = ServiceState.RUNNING
            case Stopped():
                place.state, place.until = ServiceState.STOPPED, None
            case _:
                assert_never(event)
        if is_new or ServiceState.STOPPED in {before, place.state} or (failures > 0) != (place.failures > 0):
            self._ring()

    def _failed(self, place: Place, event: Failed) -> None:
        now = self._clock.monotonic()
        place.executions += 1
        place.state, place.failures, place.backoff = ServiceState.FAILING, event.failures, event.backoff
        place.error, place.error_at = first_line(event.error), now
        place.until = None if event.backoff is None else now + event.backoff

    def forget(self, name: str, keeper: str = "") -> None:
        """Take a service of the app off the board, and who kept its lease: it is not declared any more."""
        self._own.pop(keeper, None)
        if self._others.pop(name, None):
            self._ring()

    def _ring(self) -> None:
        self.changes += 1
        self.news.notify_one()

    def services(self, now: datetime, singles: Mapping[str, bool]) -> tuple[ServiceReport, ...]:
        """Tell of all, or of the first `MOST`: those that fail, then those of the app, then the node's own.

        `singles` says of each singleton whether it is held here.
        """
        known = [(place, False) for place in tuple(self._others.values())]
        known += [(Place(name), False) for name in singles if name not in self._others]
        known += [(place, True) for place in tuple(self._own.values())]
        known.sort(key=lambda one: (one[0].failures == 0, one[1]))
        return tuple(self._report(place, now, singles, is_own=is_own) for place, is_own in known[:MOST])

    def _report(self, place: Place, now: datetime, singles: Mapping[str, bool], *, is_own: bool) -> ServiceReport:
        is_singleton = not is_own and place.name in singles
        is_held = is_singleton and singles[place.name]
        waits = is_singleton and not is_held
        mono = self._clock.monotonic()
        return ServiceReport(
            name=place.name,
            state=ServiceState.STANDBY if waits else place.state,
            is_own=is_own,
            is_singleton=is_singleton,
            is_held=is_held,
            directive="" if place.directive is None else type(place.directive).__name__.lower(),
            executions=place.executions,
            failures=place.failures,
            error=place.error,
            error_at=None if not place.error else now - timedelta(seconds=mono - place.error_at),
            backoff=place.backoff,
            next_at=None if place.until is None or waits else now + timedelta(seconds=place.until - mono),
        )
