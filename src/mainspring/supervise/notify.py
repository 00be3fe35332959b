"""What wakes a service: notifiers and intervals, any number of them together.

A `Notifier` keeps a permit when nobody waits, so that a notification while the service works is not lost, and keeps
one only, so that many become one. A step that starts answers every notification that came before it.
"""

import asyncio
import threading
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, TypeAlias

from mainspring.duration import Duration, seconds
from mainspring.errors import BadDuration, DeclarationError
from mainspring.supervise.lines import Line, Waiter, first_of
from mainspring.supervise.pacing import Wait
from mainspring.supervise.stop import Stop


class Notifier(Line):
    """Wakes one of the services that wait for it, on one event loop. `notify_one` may be called from any thread.

    A handler of `signal.signal` is no place to call it, because the loop does not wake up for what happens there; one
    of `loop.add_signal_handler` is.
    """

    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.Lock()
        self._permit = False
        self._on_their_way = 0  # from other threads, to the loop
        self._home: tuple[asyncio.AbstractEventLoop, int] | None = None  # where services wait: the loop, its thread

    def notify_one(self) -> None:
        """Wake whoever has waited longest; if nobody waits, store a permit for the next who would."""
        with self._lock:
            home = self._home
            if home is None:
                self._permit = True
                return
            loop, thread = home
            if loop.is_closed():  # whoever waited there will not wake up any more
                self._waiting.clear()
                self._home, self._permit = None, True
                return
            if thread != threading.get_ident():
                self._on_their_way += 1
                # A loop that closes before it gets there leaves it to be taken on the next.
                with suppress(RuntimeError):
                    loop.call_soon_threadsafe(self._arrive)
                return
        self._wake()

    def take(self) -> bool:
        """Take the stored permit, if there is one, and all that are on their way from other threads."""
        with self._lock:
            taken = self._permit or self._on_their_way > 0
            self._permit, self._on_their_way = False, 0
        return taken

    def join(self, waiter: Waiter) -> None:
        with self._lock:
            self._settle_down(waiter.get_loop())
        super().join(waiter)
        if self.take():  # a thread may have notified since the service last looked
            self._wake()

    def give_back(self) -> None:
        self._wake()

    def _settle_down(self, loop: asyncio.AbstractEventLoop) -> None:
        before = self._home[0] if self._home else loop
        if before is not loop:
            if self._waiting and not before.is_closed():
                raise DeclarationError("Notifier", "services on another event loop wait for it; give each loop its own")
            self._waiting.clear()
        self._home = loop, threading.get_ident()

    def _arrive(self) -> None:
        with self._lock:
            if not self._on_their_way:  # taken meanwhile
                return
            self._on_their_way -= 1
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

_A_MOMENT: Final = 1e-6
"""Seconds by which floats may be off."""


class Wakes:
    """Everything that wakes one service, for as long as it runs."""

    def __init__(self, wakes: Iterable[Wake], now: float) -> None:
        wakes = tuple(wakes)
        self._notifiers = [wake for wake in wakes if isinstance(wake, Notifier)]
        self._began = now
        self._due = {wake: now + wake.seconds for wake in wakes if isinstance(wake, Interval)}
        self._taken: list[Notifier] = []  # permits that woke the service and that no step has answered yet

    async def rest(self, wait: Wait, stop: Stop) -> None:
        """Wait as told, or until stopped."""
        now = asyncio.get_running_loop().time()
        until = None if wait.seconds is None else now + wait.seconds
        if not wait.wakeable:
            await first_of([stop], until=until)
            return
        if self._take_all(now):
            await first_of([stop], until=now)  # one turn of the loop, for the others
            return
        times = [*self._due.values(), *([] if until is None else [until])]
        end = min(times, default=None)
        caller = await first_of([stop, *self._notifiers], until=end)
        if isinstance(caller, Notifier):
            self._taken.append(caller)
        elif caller is None and end is not None:
            # Some loops let timers fire a little early. The time has come all the same: an interval that were still
            # due would wake the service again at once.
            self._take_all(end)

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
        passed = [interval for interval, due in self._due.items() if due <= now + _A_MOMENT]
        for interval in passed:
            # Whole intervals since the beginning, so that nothing adds up; a due time that rounding puts a hair's
            # breadth after now would wake the service a second time for the same.
            count = (now - self._began + _A_MOMENT) // interval.seconds
            self._due[interval] = self._began + (count + 1) * interval.seconds
        return bool(permits or passed)
