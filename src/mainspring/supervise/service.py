"""A supervised loop: the only place that loops, waits and backs off.

A service runs its step, rests as the step's directive says, and runs it again until it is stopped. A step that raises
is told to the listeners and tried again after a backoff that nothing cuts short; it needs no other notification, and
no other service notices.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Any, Final, Literal, TypeAlias

from mainspring.core.backoff import Backoff
from mainspring.errors import DeclarationError
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
from mainspring.supervise.notify import Interval, Notifier, Wake, Wakes
from mainspring.supervise.pacing import Pacing, Rhythm, Wait, Why
from mainspring.supervise.stop import Stop

Step: TypeAlias = Callable[[], Awaitable[Directive]]

DEFAULT_PACING: Final = Pacing()
UNLIMITED: Final = Bulkhead()
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
        pacing: Pacing = DEFAULT_PACING,
        bulkhead: Bulkhead = UNLIMITED,
        backoff: Backoff = DEFAULT_BACKOFF,
        listeners: Iterable[Listener] = (log_failures,),
        on_panic: Literal["retry", "propagate"] = "retry",
        roll: Callable[[], float] = random.random,
    ) -> None:
        self.name = name
        self.listener_errors = 0
        self._step = step
        self._wake: tuple[Wake, ...] = _each(wake)
        self._first = Wait(Why.IDLE, None, wakeable=True) if start_idle else Wait(Why.START, 0)
        self._pacing = pacing
        self._bulkhead = bulkhead
        self._backoff = backoff
        self._listeners: tuple[Listener, ...] = _each(listeners)
        self._on_panic = on_panic
        self._roll = roll
        DeclarationError.unless(f"service {name!r}", self._requirements())

    def _requirements(self) -> Iterator[tuple[bool, str]]:
        """What a type checker would say, for those who have none: a wrong argument would fail only when it is needed."""
        yield (
            callable(self._step),
            f"the step must be an async function, not {self._step!r}; pass it without calling it",
        )
        yield isinstance(self._pacing, Pacing), "pacing takes a Pacing; write Pacing(active_interval=0.1)"
        yield isinstance(self._bulkhead, Bulkhead), "bulkhead takes a Bulkhead; write Bulkhead(lane)"
        yield isinstance(self._backoff, Backoff), "backoff takes a Backoff; write Backoff.fixed(5)"
        yield self._on_panic in {"retry", "propagate"}, f"on_panic is 'retry' or 'propagate', not {self._on_panic!r}"
        for wake in self._wake:
            fits = isinstance(wake, Notifier | Interval)
            yield fits, f"wake takes notifiers and intervals, not {wake!r}; write wake=[mail, every('30s')]"
        for listener in self._listeners:
            fits = callable(listener) and not isinstance(listener, type)
            yield fits, f"a listener is a function or an object that can be called, not {listener!r}"

    async def run(self, stop: Stop) -> None:
        """Go on until stopped. A step that is under way then may finish; cancel the task to cut it short."""
        wakes = Wakes(self._wake, asyncio.get_running_loop().time())
        rhythm = Rhythm(self._pacing, self._backoff)
        wait = self._first
        cancels = _cancels()
        self._tell(Started(service=self.name))
        try:
            while not stop.is_set():
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
            directive = _checked(await _awaitable(self._step()))
        except (KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException as error:
            cancelled = _cancels() > cancels
            if cancelled and isinstance(error, asyncio.CancelledError):
                raise
            return self._failed(error, loop.time() - began, rhythm, last=cancelled or self._on_panic == "propagate")
        self._tell(Completed(service=self.name, seconds=loop.time() - began, directive=directive))
        if _cancels() > cancels:  # the step made something else of being cancelled; our owner's word holds
            raise asyncio.CancelledError
        return rhythm.completed(directive)

    def _failed(self, error: BaseException, took: float, rhythm: Rhythm, *, last: bool) -> Wait:
        wait = rhythm.failed(self._roll())
        backoff = None if last else wait.seconds
        self._tell(Failed(service=self.name, seconds=took, error=error, failures=rhythm.failures, backoff=backoff))
        if not last:
            return wait
        if not isinstance(error, asyncio.CancelledError):
            raise error
        # Not our own: raised as it is, it would make our end look like one that our owner asked for.
        raise RuntimeError("the step awaited something that someone else cancelled") from error

    def _tell_of(self, wait: Wait) -> None:
        if wait.why is Why.IDLE:
            self._tell(Idling(service=self.name))
        elif wait.why is Why.SLEEP and wait.seconds is not None:
            self._tell(Sleeping(service=self.name, seconds=wait.seconds))

    def _tell(self, event: ServiceEvent) -> None:
        for listener in self._listeners:
            try:
                listener(event)
            except KeyboardInterrupt:
                raise
            except BaseException:  # noqa: BLE001 - whatever a listener raises is its own affair: counted and logged
                self.listener_errors += 1
                log.exception("a listener of %s raised on %r; the service goes on", self.name, event)


def _each(given: object) -> tuple[Any, ...]:
    """Read several of something; a single one is kept as it is, for `_requirements` to talk about."""
    return tuple(given) if isinstance(given, Iterable) and not isinstance(given, str) else (given,)


def _awaitable(result: object) -> Awaitable[object]:
    if isinstance(result, Awaitable):
        return result
    raise TypeError(f"the step is no async function: calling it returned {result!r}")


def _checked(directive: object) -> Directive:
    if isinstance(directive, Proceed | Idle | Sleep):
        return directive
    raise TypeError(f"the step returned {directive!r}; it must return Proceed(), Idle() or Sleep(time)")


def _cancels() -> int:
    task = asyncio.current_task()
    return task.cancelling() if task else 0
