"""Where the tasks of an event loop stand, one line each: `Task-1 at test_mail.py:12 in test_an_answer_comes`."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from types import AsyncGeneratorType, CoroutineType, FrameType, GeneratorType
from typing import Final

_ASYNCIO: Final = Path(asyncio.__file__).parent
_MAINSPRING: Final = Path(__file__).parents[1]


def waiting(loop: asyncio.AbstractEventLoop) -> list[str]:
    """Describe every task that has not ended."""
    return sorted(_line(task) for task in asyncio.all_tasks(loop))


def _line(task: asyncio.Task[object]) -> str:
    frames = list(_frames(task.get_coro()))
    if not frames:
        return task.get_name()
    # `Event.wait` in asyncio/locks.py is where every task waits; whoever called it is the news. Of a task that is ours
    # altogether, a service at rest, its beginning says most.
    known = [frame for frame in frames if Path(frame.f_code.co_filename).parent != _ASYNCIO]
    theirs = [frame for frame in known if _MAINSPRING not in Path(frame.f_code.co_filename).parents]
    frame = theirs[-1] if theirs else known[0] if known else frames[-1]
    return f"{task.get_name()} at {Path(frame.f_code.co_filename).name}:{frame.f_lineno} in {frame.f_code.co_name}"


def _frames(awaited: object) -> Iterator[FrameType]:
    """Walk from a task's coroutine down to what it awaits in the end."""
    while True:
        match awaited:
            case CoroutineType():
                frame, awaited = awaited.cr_frame, awaited.cr_await
            case GeneratorType():
                frame, awaited = awaited.gi_frame, awaited.gi_yieldfrom
            case AsyncGeneratorType():
                frame, awaited = awaited.ag_frame, awaited.ag_await
            case _:
                return
        if frame is not None:
            yield frame
