"""What wakes a service: notifiers and intervals, any number of them together.

A `Notifier` keeps a permit when nobody waits, so that a notification while the service works is not lost, and keeps
one only, so that many become one. A step that starts answers every notification that came before it.
"""

import asyncio
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

from mainspring.duration import Duration, seconds
from mainspring.errors import BadDuration
from mainspring.supervise.lines import Line, Waiter, first_of
from mainspring.supervise.pacing import Wait
from mainspring.supervise.stop import Stop


class Notifier(Line):
    """Wakes one of the services that wait for it. `notify_one` may be called from any thread."""

    def __init__(self) -> None:
        super().__init__()
        self._permit = False
        self._lock = threading.Lock()
        self._home: tuple[asyncio.AbstractEventLoop, int] | None = None  # where services wait: the loop, its thread

    def notify_one(self) -> None:
        """Wake whoever has waited longest; if nobody waits, store a permit for the next who would."""
        with self._lock:
            home = self._home
            if home is None:
                self._permit = True
                return
        loop, thread = home
        if thread == threading.get_ident():
            self._wake()
            return
        try:
            loop.call_soon_threadsafe(self._wake)
        except RuntimeError:  # that loop is closed; whoever waits on the next one finds the permit
            with self._lock:
                self._permit = True

    def take(self) -> bool:
        """Take the stored permit, if there is one."""
        with self._lock:
            taken, self._permit = self._permit, False
        return taken

    def join(self, waiter: Waiter) -> None:
        with self._lock:
            self._home = waiter.get_loop(), threading.get_ident()
        super().join(waiter)
        if self.take():  # a thread may have notified since the service last looked
            self._wake()

    def give_back(self) -> None:
        self._wake()

    def _wake(self) -> None:
        if not self.call_first():
            with self._lock:
                self._permit = True


@dataclass(frozen=True, slots=True)
class Interval:
    """Wakes a service each time so many seconds have gone by; made by `every`."""

    seconds: float


def every(interval: Duration) -> Interval:
    """Wake at a fixed rate, first after one whole interval; what falls due while the service works becomes one."""
    length = seconds(interval)
    if not length:
        raise BadDuration(repr(interval), "an interval of nothing would never let the service rest")
    return Interval(length)


Wake: TypeAlias = Notifier | Interval


class Wakes:
    """Everything that wakes one service, for as long as it runs."""

    def __init__(self, wakes: Iterable[Wake], now: float) -> None:
        wakes = tuple(wakes)
        self._notifiers = [wake for wake in wakes if isinstance(wake, Notifier)]
        self._due = {wake: now + wake.seconds for wake in wakes if isinstance(wake, Interval)}
        self._taken: list[Notifier] = []  # permits that woke the service and that no step has answered yet

    async def rest(self, wait: Wait, stop: Stop) -> None:
        """Wait as told, or until stopped."""
        now = asyncio.get_running_loop().time()
        until = None if wait.seconds is None else now + wait.seconds
        if not wait.wakeable:
            caller = await first_of([stop], until=until)
        elif self._take_all(now):
            caller = await first_of([stop], until=now)  # one turn of the loop, for the others
        else:
            times = [*self._due.values(), *([] if until is None else [until])]
            caller = await first_of([stop, *self._notifiers], until=min(times, default=None))
        if isinstance(caller, Notifier):
            self._taken.append(caller)

    def answer(self) -> None:
        """Note that a step starts now: it sees whatever any of these told of."""
        self._take_all(asyncio.get_running_loop().time())
        self._taken.clear()

    def give_back(self) -> None:
        """Return the permits that no step has answered, for a service that goes on."""
        while self._taken:
            self._taken.pop().give_back()

    def _take_all(self, now: float) -> bool:
        permits = [notifier for notifier in self._notifiers if notifier.take()]
        self._taken += permits
        passed = [interval for interval, due in self._due.items() if due <= now]
        for interval in passed:
            # At a fixed rate: the next one is a whole number of intervals after the first.
            missed = (now - self._due[interval]) // interval.seconds
            self._due[interval] += (missed + 1) * interval.seconds
        return bool(permits or passed)
