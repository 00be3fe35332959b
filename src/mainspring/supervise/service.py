"""A supervised loop: the only place that loops, waits and backs off.

A service runs its step, rests as the step's directive says, and runs it again until it is stopped. A step that raises
is told to the listeners and tried again after a backoff that nothing cuts short; it needs no other notification, and
no other service notices.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterable
from typing import Final, Literal, TypeAlias

from mainspring.core.backoff import Backoff
from mainspring.supervise.bulkhead import Bulkhead
from mainspring.supervise.directive import Directive, Idle, Proceed, Sleep
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
    log,
    log_failures,
)
from mainspring.supervise.notify import Wake, Wakes
from mainspring.supervise.pacing import Pacing, Rhythm, Wait, Why
from mainspring.supervise.stop import Stop

Step: TypeAlias = Callable[[], Awaitable[Directive]]

DEFAULT_BACKOFF: Final = Backoff.exponential("100ms", cap="30s", jitter=0.3)


class Service:
    """A named step and how it is to be run. It starts by itself, unless `start_idle` has it wait to be woken."""

    def __init__(
        self,
        name: str,
        step: Step,
        *,
        wake: Iterable[Wake] = (),
        start_idle: bool = False,
        pacing: Pacing | None = None,
        bulkhead: Bulkhead | None = None,
        backoff: Backoff = DEFAULT_BACKOFF,
        listeners: Iterable[Listener] = (log_failures,),
        on_panic: Literal["retry", "propagate"] = "retry",
        roll: Callable[[], float] = random.random,
    ) -> None:
        self.name = name
        self.listener_errors = 0
        self._step = step
        self._wake = tuple(wake)
        self._first = Wait(Why.IDLE, None, wakeable=True) if start_idle else Wait(Why.START, 0)
        self._pacing = pacing or Pacing()
        self._bulkhead = bulkhead or Bulkhead()
        self._backoff = backoff
        self._listeners = tuple(listeners)
        self._propagate = on_panic == "propagate"
        self._roll = roll

    async def run(self, stop: Stop) -> None:
        """Go on until stopped. A step that is under way then may finish; cancel the task to cut it short."""
        wakes = Wakes(self._wake, asyncio.get_running_loop().time())
        rhythm = Rhythm(self._pacing, self._backoff)
        wait = self._first
        cancels = _cancels()
        self._tell(Started(service=self.name))
        try:
            while not stop.is_set:
                self._tell_of(wait)
                await wakes.rest(wait, stop)
                async with self._bulkhead.place(stop) as admitted:
                    if not admitted:
                        break
                    wakes.answer()
                    wait = await self._execute(rhythm, cancels)
        finally:
            wakes.give_back()
            self._tell(Stopped(service=self.name))

    async def _execute(self, rhythm: Rhythm, cancels: int) -> Wait:
        loop = asyncio.get_running_loop()
        self._tell(Executing(service=self.name))
        began = loop.time()
        try:
            directive = _checked(await self._step())
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - whatever it is, it is told and retried
            # A cancellation that is not our own is the step's error: it awaited what someone else cancelled.
            _end_if_cancelled(since=cancels)
            return self._failed(error, loop.time() - began, rhythm)
        _end_if_cancelled(since=cancels)
        self._tell(Completed(service=self.name, seconds=loop.time() - began, directive=directive))
        return rhythm.completed(directive)

    def _failed(self, error: BaseException, took: float, rhythm: Rhythm) -> Wait:
        wait = rhythm.failed(self._roll())
        backoff = None if self._propagate else wait.seconds
        self._tell(Failed(service=self.name, seconds=took, error=error, failures=rhythm.failures, backoff=backoff))
        if self._propagate:
            raise error
        return wait

    def _tell_of(self, wait: Wait) -> None:
        if wait.why is Why.IDLE:
            self._tell(Idling(service=self.name))
        elif wait.why is Why.SLEEP and wait.seconds is not None:
            self._tell(Sleeping(service=self.name, seconds=wait.seconds))

    def _tell(self, event: ServiceEvent) -> None:
        for listener in self._listeners:
            try:
                listener(event)
            except Exception:  # noqa: BLE001 - whatever a listener raises is its own affair: counted and logged
                self.listener_errors += 1
                log.exception("a listener of %s raised on %r; it goes on without it", self.name, event)


def _checked(directive: object) -> Directive:
    if isinstance(directive, Proceed | Idle | Sleep):
        return directive
    raise TypeError(f"the step returned {directive!r}; it must return Proceed(), Idle() or Sleep(time)")


def _end_if_cancelled(*, since: int) -> None:
    """End with our task if someone has cancelled it, whatever the step made of that."""
    if _cancels() > since:
        raise asyncio.CancelledError


def _cancels() -> int:
    task = asyncio.current_task()
    return task.cancelling() if task else 0
