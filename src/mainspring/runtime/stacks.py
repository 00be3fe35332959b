"""Where every thread and every asyncio task of this process stands."""

import asyncio
import sys
import threading
import traceback


def stacks() -> str:
    """Write it down, for a person."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    lines: list[str] = []
    for ident, frame in sys._current_frames().items():  # noqa: SLF001 - there is no other way to see other threads
        lines += [f"thread {names.get(ident, ident)}\n", *traceback.format_stack(frame), "\n"]
    for task in _tasks():
        frames = [line for frame in task.get_stack() for line in traceback.format_stack(frame, limit=1)]
        lines += [f"task {task.get_name()}\n", *frames, "\n"]
    return "".join(lines)


def _tasks() -> "set[asyncio.Task[object]]":
    """The tasks of the running loop; none where there is no loop."""
    try:
        return asyncio.all_tasks()
    except RuntimeError:
        return set()
