"""Functions that are called in threads of the node. A thread cannot be killed: it is asked to stop, and waited for.

The threads are our own, and daemons. Those of `ThreadPoolExecutor` are joined when the interpreter exits, so that one
function that never returns would keep the process for ever.
"""

import asyncio
import threading
from contextlib import suppress
from contextvars import copy_context
from queue import SimpleQueue

from mainspring.errors import ShuttingDown
from mainspring.runtime.call import CallFacts, current_call
from mainspring.runtime.context import Context
from mainspring.runtime.definition import Definition
from mainspring.runtime.executors.django_connections import call_with_fresh_connections
from mainspring.runtime.executors.errors import CANNOT_TRAVEL, escaped
from mainspring.runtime.executors.invoke import Invocation, Invoked
from mainspring.runtime.executors.link import Hold, LoopLink
from mainspring.runtime.executors.realtime import after


class ThreadExecutor:
    """As many threads as there are calls at a time, which the node's concurrency bounds; kept for later calls."""

    def __init__(self) -> None:
        self._rested: list[_Thread] = []
        self._works: set[_Work] = set()
        self._started = 0
        self._closed = False
        self._empty: asyncio.Future[None] | None = None

    @property
    def busy(self) -> int:
        return len(self._works)

    async def call(self, definition: Definition, facts: CallFacts, context: Context | None = None) -> object:
        current_call.set(facts)
        link = context.link if context is not None and isinstance(context.link, LoopLink) else None
        return await self.do(Invocation(definition, facts, context), facts.task, link)

    async def do(self, invocation: Invoked, what: str, link: LoopLink | None = None) -> object:
        """Run anything that can be told to stop, and end as it does."""
        if self._closed:
            raise ShuttingDown(what)
        thread = self._rested.pop() if self._rested else self._new_thread()
        hold = Hold(f"{thread.name} in {what}", thread.ident)
        work = _Work(self, invocation, hold)
        if link is not None:
            link.hold = hold
        self._works.add(work)
        try:
            with hold:
                thread.inbox.put(work)
                return await work.end()
        finally:
            self._works.discard(work)
            if self._empty and not self._works and not self._empty.done():
                self._empty.set_result(None)

    async def close(self, deadline: float = 1.0) -> None:
        """Let the threads end. After `deadline` real seconds nobody is kept waiting for one that does not."""
        self._closed = True
        while self._rested:
            self._rested.pop().inbox.put(None)
        if not self._works:
            return
        self._empty = asyncio.get_running_loop().create_future()
        timer = after(deadline, self._give_up)
        try:
            await self._empty
        finally:
            timer.cancel()

    def rest(self, thread: "_Thread") -> None:
        """Take back a thread that has done its work."""
        if self._closed:
            thread.inbox.put(None)
        else:
            self._rested.append(thread)

    def _give_up(self) -> None:
        for work in self._works:
            work.give_up()

    def _new_thread(self) -> "_Thread":
        self._started += 1
        thread = _Thread(f"mainspring thread {self._started}")
        thread.start()
        return thread


class _Thread(threading.Thread):
    def __init__(self, name: str) -> None:
        super().__init__(name=name, daemon=True)
        self.inbox: SimpleQueue[_Work | None] = SimpleQueue()

    def run(self) -> None:
        while self._do_one():
            pass

    def _do_one(self) -> bool:
        # A frame for each: a thread at rest must not keep the arguments and the result of its last call alive.
        work = self.inbox.get()
        if work is None:
            return False
        work.do(self)
        return True


class _Work:
    """One call: done in a thread, waited for on the loop."""

    def __init__(self, executor: ThreadExecutor, invocation: Invoked, hold: Hold) -> None:
        self._executor = executor
        self._hold = hold
        self._invocation = invocation
        self._variables = copy_context()
        self._loop = asyncio.get_running_loop()
        self._waiter: asyncio.Future[None] | None = None
        self._value: object = None
        self._error: BaseException | None = None
        self._over = False
        self._given_up = False

    def do(self, thread: _Thread) -> None:
        try:
            self._value = self._variables.run(call_with_fresh_connections, self._invocation.run)
        except BaseException as error:  # noqa: BLE001 - told to whoever waits, SystemExit too
            self._error = error
        self._hold.thread_ended = True
        with suppress(RuntimeError):  # the loop has been closed: nobody waits
            self._loop.call_soon_threadsafe(self._done, thread)

    def _done(self, thread: _Thread) -> None:
        self._over = True
        self._executor.rest(thread)
        self._wake()

    def give_up(self) -> None:
        self._given_up = True
        self._wake()

    async def end(self) -> object:
        """Wait until the function has ended, however often we are cancelled, and end as it did."""
        cancelled = False
        while not self._over:
            self._waiter = self._loop.create_future()
            try:
                await self._waiter
            except asyncio.CancelledError:
                cancelled = True
                self._invocation.stop()
            if self._given_up and not self._over:
                raise asyncio.CancelledError("its thread has not ended, and is left to itself")
        if self._error is None:
            return self._value
        return self._fail(cancelled=cancelled)

    def _fail(self, *, cancelled: bool) -> object:
        error, self._error = self._error, None  # no circle of error, traceback and this frame
        try:
            if not isinstance(error, CANNOT_TRAVEL):
                raise error  # type: ignore[misc]  # it is no longer None
            if cancelled and isinstance(error, asyncio.CancelledError):
                raise error  # a coroutine that ended because it was told to
            raise escaped(error) from error
        finally:
            del error

    def _wake(self) -> None:
        if self._waiter and not self._waiter.done():
            self._waiter.set_result(None)
