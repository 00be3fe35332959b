"""Tasks that have an owner: named, watched while they run, and ended together within a deadline.

Unlike `asyncio.TaskGroup`, one that dies takes nobody with it, and one that will not end is abandoned and named rather
than waited for without end. Nothing started here is ever detached: each task appears in the report.
"""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from types import TracebackType
from typing import Self

from mainspring.duration import Duration, seconds
from mainspring.errors import DeclarationError, NameTaken, ShuttingDown
from mainspring.supervise.listener import log
from mainspring.supervise.service import Service
from mainspring.supervise.stop import Stop


class Ending(StrEnum):
    """How a task ended."""

    FINISHED = "finished"  # by itself, or when it was told to stop
    CANCELLED = "cancelled"  # it did not stop within the grace time, and was cancelled
    DIED = "died"  # of an error
    ABANDONED = "abandoned"  # it did not even end when cancelled; it may be running still


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskEnd:
    """What became of one task."""

    name: str
    ending: Ending
    error: BaseException | None = None


class TaskSet:
    """Owns tasks. Use it as an async context, which shuts it down, or call `shutdown` and look at the report.

    `stop` is shared by all its tasks. `on_end` is told of each task that ends, when it ends.
    """

    def __init__(self, *, on_end: Callable[[TaskEnd], None] | None = None) -> None:
        self.stop = Stop()
        self._on_end = on_end
        self._running: dict[str, asyncio.Task[None]] = {}
        self._ended: list[TaskEnd] = []

    @property
    def running(self) -> tuple[str, ...]:
        """The names of what runs now, in the order in which it was started."""
        return tuple(self._running)

    def start(self, service: Service) -> None:
        """Run a service until the set is told to stop."""
        self.spawn(service.name, service.run(self.stop))

    def spawn(self, name: str, work: Coroutine[object, object, None]) -> None:
        """Run any coroutine as a task of this set. It is expected to end once `stop` is set."""
        refusal = ShuttingDown(name) if self.stop.is_set else NameTaken(name) if name in self._running else None
        if refusal:
            work.close()
            raise refusal
        task = asyncio.create_task(work, name=name)
        self._running[name] = task
        task.add_done_callback(partial(self._note_end, name))

    async def shutdown(self, *, grace: Duration = "10s", deadline: Duration = "15s") -> tuple[TaskEnd, ...]:
        """Tell all to stop; cancel who is still there after `grace`, abandon who is still there at `deadline`.

        Returns how each task of the set ended, also those that ended before, in the order in which they ended.
        """
        if seconds(grace) > seconds(deadline):
            raise DeclarationError("shutdown", "the grace time is longer than the deadline")
        self.stop.set()
        began = asyncio.get_running_loop().time()
        cancelled = await self._gone_by(began + seconds(grace))
        for task in self._running.values():
            task.cancel()
        # Who cancels the shutdown itself ends the grace time and no more: nobody is left behind before the deadline.
        while again := await self._gone_by(began + seconds(deadline)):
            cancelled = again
        abandoned = tuple(TaskEnd(name=name, ending=Ending.ABANDONED) for name in self._running)
        for end in abandoned:
            log.error("%s did not end within %s of being told to; abandoned", end.name, deadline)
        if cancelled:
            raise cancelled
        return (*self._ended, *abandoned)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.shutdown()

    async def _gone_by(self, when: float) -> asyncio.CancelledError | None:
        """Wait until all have ended or the time has come. If we are cancelled meanwhile, return that."""
        try:
            if self._running:
                await asyncio.wait(self._running.values(), timeout=when - asyncio.get_running_loop().time())
                await asyncio.sleep(0)  # one that had ended just before has its end noted in the loop's next turn
        except asyncio.CancelledError as cancelled:
            return cancelled
        return None

    def _note_end(self, name: str, task: asyncio.Task[None]) -> None:
        del self._running[name]
        end = _end_of(name, task)
        self._ended.append(end)
        if end.ending is Ending.DIED:
            log.error("%s died", name, exc_info=end.error)
        if not self._on_end:
            return
        try:
            self._on_end(end)
        except Exception:  # noqa: BLE001 - the set goes on, whatever its owner's callback does
            log.exception("on_end raised on %r", end)


def _end_of(name: str, task: asyncio.Task[None]) -> TaskEnd:
    if task.cancelled():
        return TaskEnd(name=name, ending=Ending.CANCELLED)
    error = task.exception()
    return TaskEnd(name=name, ending=Ending.DIED if error else Ending.FINISHED, error=error)
