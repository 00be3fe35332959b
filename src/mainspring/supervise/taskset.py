"""Tasks that have an owner: named, watched while they run, and ended together within a deadline.

Unlike `asyncio.TaskGroup`, one that dies takes nobody with it, and one that will not end is abandoned and named rather
than waited for without end. Nothing started here is ever detached: whatever runs when the end begins is in the report.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from types import TracebackType
from typing import Any, Final, Self

from mainspring.duration import Duration, seconds
from mainspring.errors import DeclarationError, NameTaken, ShuttingDown
from mainspring.supervise.listener import log
from mainspring.supervise.service import Service
from mainspring.supervise.stop import Stop

REMEMBERED: Final = 1000  # ends that are kept for the report; a node that lives for years spawns more


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
        self._running: dict[str, asyncio.Task[object]] = {}
        self._cancelled: set[asyncio.Task[object]] = set()
        self._ended: deque[TaskEnd] = deque(maxlen=REMEMBERED)
        self._ending: set[asyncio.Task[object] | None] = set()  # tasks of the set that are in `shutdown` themselves
        self._home: asyncio.AbstractEventLoop | None = None

    @property
    def running(self) -> tuple[str, ...]:
        """The names of what runs now, in the order in which it was started."""
        return tuple(self._running)

    def start(self, service: Service) -> None:
        """Run a service until the set is told to stop."""
        self.spawn(service.name, service.run(self.stop))

    def spawn(self, name: str, work: Coroutine[Any, Any, object]) -> None:
        """Run any coroutine as a task of this set. It is expected to end once `stop` is set."""
        try:
            self._check(name)
        except BaseException:
            work.close()  # it will never be awaited, and Python would complain of that instead
            raise
        task = asyncio.create_task(work, name=name)
        self._running[name] = task
        task.add_done_callback(partial(self._note_end, name))

    def cancel(self, name: str) -> None:
        """End one task early; nothing if there is none of that name."""
        task = self._running.get(name)
        if task is not None:
            self._cancelled.add(task)
            task.cancel()

    def _check(self, name: str) -> None:
        self._stay_home()
        if self.stop.is_set():
            raise ShuttingDown(name)
        if name in self._running:
            raise NameTaken(name)

    def _stay_home(self) -> None:
        loop = asyncio.get_running_loop()
        if self._running and self._home is not loop:
            raise DeclarationError("TaskSet", "its tasks run on another event loop; start and end them on the same one")
        self._home = loop

    async def shutdown(self, *, grace: Duration = "10s", deadline: Duration = "15s") -> tuple[TaskEnd, ...]:
        """Tell all to stop; cancel who is still there after `grace`, abandon who is still there at `deadline`.

        Returns how each task of the set ended, in the order in which they ended; of those that had ended before, the
        last thousand. A task of the set may call this: it is not waited for.
        """
        self._stay_home()
        if seconds(grace) > seconds(deadline):
            raise DeclarationError("shutdown", "the grace time is longer than the deadline")
        self.stop.set()
        self._ended = deque(self._ended)  # from here on none is forgotten
        self._ending.add(asyncio.current_task())
        try:
            return await self._end_all(seconds(grace), seconds(deadline))
        finally:
            self._ending.discard(asyncio.current_task())

    async def _end_all(self, grace: float, deadline: float) -> tuple[TaskEnd, ...]:
        began = asyncio.get_running_loop().time()
        cancelled = await self._gone_by(began + grace)
        for task in self._others().values():
            self._cancelled.add(task)
            task.cancel()
        # Who cancels the shutdown itself ends the grace time and no more: nobody is left behind before the deadline.
        while again := await self._gone_by(began + deadline):
            cancelled = again
        abandoned = [TaskEnd(name=name, ending=Ending.ABANDONED) for name in self._others()]
        for end in abandoned:
            # asyncio.run() waits for it without end; a program that wants to leave all the same calls os._exit().
            log.error("%s did not end within %g s although it was cancelled; abandoned", end.name, deadline)
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
            if others := self._others():
                await asyncio.wait(others.values(), timeout=when - asyncio.get_running_loop().time())
                await asyncio.sleep(0)  # one that had ended just before has its end noted in the loop's next turn
        except asyncio.CancelledError as cancelled:
            return cancelled
        return None

    def _others(self) -> dict[str, asyncio.Task[object]]:
        return {name: task for name, task in self._running.items() if task not in self._ending}

    def _note_end(self, name: str, task: asyncio.Task[object]) -> None:
        del self._running[name]
        end = _end_of(name, task, cancelled=task in self._cancelled)
        self._cancelled.discard(task)
        self._ended.append(end)
        if end.ending is Ending.DIED:
            log.error("%s died", name, exc_info=end.error)
        if not self._on_end:
            return
        try:
            self._on_end(end)
        except Exception:  # noqa: BLE001 - the set goes on, whatever its owner's callback does
            log.exception("on_end raised on %r", end)


def _end_of(name: str, task: asyncio.Task[object], *, cancelled: bool) -> TaskEnd:
    if task.cancelled():
        if cancelled:
            return TaskEnd(name=name, ending=Ending.CANCELLED)
        return TaskEnd(
            name=name, ending=Ending.DIED, error=asyncio.CancelledError("by someone outside of its task set")
        )
    error = task.exception()
    return TaskEnd(name=name, ending=Ending.DIED if error else Ending.FINISHED, error=error)
