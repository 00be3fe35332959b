"""Where every thread and every asyncio task of this process stands, and which of them runs a job."""

import asyncio
import sys
import threading
import traceback
from collections.abc import Iterable, Iterator
from types import FrameType
from typing import Final

from mainspring.runtime.attempt import Attempt

MOST_TASKS: Final = 500
"""Tasks that are told of: a program may have as many as it has connections, and nothing else goes on meanwhile."""
DEEPEST: Final = 100
"""Steps from a task to what it waits for; what stands in for something else may have no end."""


def stacks(attempts: Iterable[Attempt] = ()) -> str:
    """Write it down, for a person. The line above each stack says what it is; all other lines begin with spaces."""
    running = tuple(attempts)
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    lines: list[str] = []
    for ident, frame in sys._current_frames().items():  # noqa: SLF001 - there is no other way to see other threads
        name = names.get(ident, str(ident))
        lines += [f"thread {_line(name)}{_job_in(running, ident)}\n", *traceback.format_stack(frame), "\n"]
    jobs = {attempt.task: _job(attempt) for attempt in running}
    tasks = sorted(_tasks(), key=lambda task: task not in jobs)
    for task in tasks[:MOST_TASKS]:
        frames = [line for frame in _frames(task) for line in traceback.format_stack(frame, limit=1)]
        lines += [f"task {_line(task.get_name())}{jobs.get(task, '')}\n", *frames, "\n"]
    if len(tasks) > MOST_TASKS:
        lines.append(f"and {len(tasks) - MOST_TASKS} more tasks\n")
    return "".join(lines)


def _tasks() -> "set[asyncio.Task[object]]":
    """The tasks of the running loop; none where there is no loop."""
    try:
        return asyncio.all_tasks()
    except RuntimeError:
        return set()


def _frames(task: "asyncio.Task[object]") -> Iterator[FrameType]:
    """Walk from a task's coroutine to what it waits for: `Task.get_stack` ends at the first of them."""
    awaited: object = task.get_coro()
    for _ in range(DEEPEST):
        if awaited is None:
            return
        frame = _of(awaited, "frame")
        if isinstance(frame, FrameType):
            yield frame
        awaited = _of(awaited, "await") or getattr(awaited, "gi_yieldfrom", None)


def _of(awaited: object, what: str) -> object:
    """Coroutines, generators and asynchronous generators each have a prefix of their own."""
    return next((found for kind in ("cr", "gi", "ag") if (found := getattr(awaited, f"{kind}_{what}", None))), None)


def _job_in(running: Iterable[Attempt], thread: int) -> str:
    for attempt in running:
        hold = attempt.link.hold if attempt.link else None
        if hold and hold.thread == thread:
            return _job(attempt)
    return ""


def _job(attempt: Attempt) -> str:
    job = attempt.delivery.claim.job
    return f" of job {job.id} ({_line(str(job.task))})"


def _line(name: str) -> str:
    """A name may be anything, and must not look like the beginning of the next stack."""
    return " ".join(name.split())
