"""Supervision of a node's own services: the keeper, the claimer, the settler and the others.

A service that raises retries by itself. A service whose task has ended while the node is running, as after
`for task in asyncio.all_tasks(): task.cancel()` in the host program, is restarted after a second. Both are
visible in `Node.problem`, and with it in `app.health`.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final

from mainspring.clock import Clock
from mainspring.errors import StoreClosed
from mainspring.runtime.events import Events, log
from mainspring.supervise import Completed, Failed, Service, ServiceEvent, TaskEnd, TaskSet

RESTART_DELAY_S: Final = 1.0
"""Not zero: a loop that is about to be closed also cancels its tasks, and must not get new ones."""


class Duties:
    """The node's own services, in several task sets."""

    def __init__(self, events: Events, clock: Clock) -> None:
        self._events = events
        self._clock = clock
        self._started: dict[str, tuple[TaskSet, Callable[[], Coroutine[Any, Any, object]]]] = {}
        self._failing: dict[str, tuple[float, BaseException]] = {}
        """Start of each service's current failure, by the monotonic clock, and its last error."""

    def task_set(self) -> TaskSet:
        """Make a task set whose services are started again if they end before it is stopped."""
        return TaskSet(on_end=self._on_end)

    def start(self, tasks: TaskSet, service: Service) -> None:
        self.spawn(tasks, service.name, lambda: service.run(tasks.stop))

    def spawn(self, tasks: TaskSet, name: str, run: Callable[[], Coroutine[Any, Any, object]]) -> None:
        self._started[name] = tasks, run
        tasks.spawn(name, run())

    def listen(self, event: ServiceEvent) -> None:
        """Record failures: the listener of each service, called in the service's thread."""
        if isinstance(event, Failed):
            since, _ = self._failing.get(event.service, (self._clock.monotonic(), None))
            self._failing[event.service] = since, event.error
        elif isinstance(event, Completed):
            self._failing.pop(event.service, None)

    def problem(self, *, tolerance: float) -> str:
        """Describe a service that has ended, or has failed for longer than `tolerance` seconds; "" if there is none."""
        failing = tuple(self._failing.items())
        if any(isinstance(error, StoreClosed) for _, (_, error) in failing):
            return "store closed; stop the node and start it again"
        for name, (tasks, _) in self._started.items():
            if name not in tasks.running:
                return f"service {name} has ended; it is being restarted"
        for name, (since, error) in failing:
            age = self._clock.monotonic() - since
            if age > tolerance:
                return f"service {name} has failed for {age:.0f} s: {type(error).__name__}: {error}"
        return ""

    def _on_end(self, end: TaskEnd) -> None:
        if end.name in self._started and not self._started[end.name][0].stop.is_set():
            self._events.count("duties_restarted")
            log.error("service %s ended while its node is running; restarting it", end.name)
            asyncio.get_running_loop().call_later(RESTART_DELAY_S, self._restart, end.name)

    def _restart(self, name: str) -> None:
        tasks, run = self._started[name]
        if not tasks.stop.is_set():
            tasks.spawn(name, run())
