"""Calling a function away from the node's loop, be it sync or async, in such a way that it can be told to stop."""

import asyncio
import inspect
import threading
from collections.abc import Coroutine
from typing import Any, Protocol

from mainspring.runtime.call import CallFacts
from mainspring.runtime.context import Context
from mainspring.runtime.definition import Definition
from mainspring.runtime.executors.executor import arguments_of


class Invoked(Protocol):
    """Something to be run in a thread."""

    def run(self) -> object: ...

    def stop(self) -> None:
        """Tell it to stop; called from another thread."""
        ...


class Invocation:
    """One call. `run` in the thread that is to do the work, `stop` from any other.

    A coroutine gets a fresh event loop, and is cancelled when it is told to stop, as it would be on the node's. Anything
    else can only look at its context.
    """

    def __init__(self, definition: Definition, facts: CallFacts, context: Context | None) -> None:
        self._definition = definition
        self._facts = facts
        self._context = context
        self._lock = threading.Lock()
        self._stopped = False
        self._task: asyncio.Task[object] | None = None

    def run(self) -> object:
        args, kwargs = arguments_of(self._definition, self._facts, self._context)
        returned = self._definition.function(*args, **kwargs)
        if not inspect.iscoroutine(returned):
            return returned
        with asyncio.Runner() as runner:
            return runner.run(self._await(returned))

    def stop(self) -> None:
        """Tell it to stop, once: a second cancel would only disturb a coroutine that is cleaning up."""
        if self._context is not None:
            self._context.link.stop()
        with self._lock:
            if self._task is not None and not self._stopped:
                self._task.get_loop().call_soon_threadsafe(self._task.cancel)
            self._stopped = True

    async def _await(self, coroutine: Coroutine[Any, Any, object]) -> object:
        task = asyncio.current_task()
        with self._lock:
            self._task = task
            if self._stopped and task is not None:
                task.cancel()
        try:
            return await coroutine
        finally:
            with self._lock:
                self._task = None
