"""What the stories about supervision share: steps that play a script, and a place to run services in.

Imported as `tests.supervise.conftest`, the one file of this folder that pytest itself brings into reach.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from datetime import timedelta

from mainspring.supervise import Directive, Idle, Notifier, Service, Stop

MINUTE = 60.0
HOUR = 3600.0


class Boom(Exception):
    """What a failing step raises."""


class Work:
    """Takes some time before it comes to its end, a directive or an error."""

    def __init__(self, time: float, end: Directive | BaseException | None = None) -> None:
        self.time = time
        self.end: Directive | BaseException = Idle() if end is None else end


class Script:
    """A step that plays its acts in turn, the last one again and again if asked to; otherwise it idles in the end.

    `calls` and `ends` are the virtual times at which it was started and over.
    """

    def __init__(self, *acts: Work | Directive | BaseException, again: bool = False) -> None:
        self.calls: list[float] = []
        self.ends: list[float] = []
        self._acts = acts
        self._again = again

    async def __call__(self) -> Directive:
        act = self._act()
        self.calls.append(now())
        try:
            if isinstance(act, Work):
                await asyncio.sleep(act.time)
                act = act.end
        finally:
            self.ends.append(now())
        if isinstance(act, BaseException):
            raise act.with_traceback(None)  # the same error may be raised many times
        return act

    def _act(self) -> Work | Directive | BaseException:
        played = len(self.calls)
        if played < len(self._acts):
            return self._acts[played]
        return self._acts[-1] if self._again else Idle()


def now() -> float:
    return asyncio.get_running_loop().time()


async def until(time: float) -> None:
    """Wait for a time since the start of the test."""
    await asyncio.sleep(time - now())


async def settle() -> None:
    """Let everything happen that needs no time."""
    await asyncio.sleep(timedelta(microseconds=1).total_seconds())


async def notify_at(notifier: Notifier, times: Iterable[float]) -> None:
    for time in times:
        await until(time)
        notifier.notify_one()


@asynccontextmanager
async def running(*services: Service) -> AsyncIterator[Stop]:
    """Run services, each in its own task, until the block ends.

    Each has some turns before the next one is started: those that start at the same moment have no order.
    """
    stop = Stop()
    async with asyncio.TaskGroup() as group:
        for service in services:
            group.create_task(service.run(stop))
            for _ in range(5):
                await asyncio.sleep(0)
        try:
            yield stop
        finally:
            stop.set()


async def has_permit(notifier: Notifier) -> bool:
    """Tell whether a permit is stored, and take it."""
    probe = Script()
    async with running(Service("probe", probe, wake=[notifier], start_idle=True)):
        await settle()
    return bool(probe.calls)
