"""Functions that are called in process slots: child processes that can be killed.

A slot is one child, started when it is first needed and kept for later calls. One that was killed, or has died, is
replaced. The pools of the standard library lose all their workers with one; here a death costs only its own call.
"""

import asyncio
import itertools
import threading
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Final, TypeVar

from mainspring.clock import outside
from mainspring.errors import DeclarationError, ShuttingDown, SlotDied, SlotStartTimeout
from mainspring.runtime.call import CallFacts, current_call, current_trace
from mainspring.runtime.context import Context, Link
from mainspring.runtime.definition import Definition
from mainspring.runtime.executors.child import Child
from mainspring.runtime.executors.executor import decode_result
from mainspring.runtime.executors.link import LoopLink
from mainspring.runtime.executors.realtime import after
from mainspring.runtime.executors.reference import importable
from mainspring.runtime.executors.thrown import rebuilt, thrown
from mainspring.runtime.executors.wire import Began, Call, Cancel, Kept, Raised, Returned, Said, Save
from mainspring.supervise.bulkhead import Lane
from mainspring.supervise.lines import first_of

CANCELLED: Final = f"{asyncio.CancelledError.__module__}:{asyncio.CancelledError.__qualname__}"
KILL_GRACE: Final = 0.5
"""Seconds from SIGTERM, upon which the function's `finally` blocks run, to SIGKILL."""

START_LIMIT_S: Final = 60.0
"""Seconds from a call to the beginning of the function: the start of the child and the import of the module."""

T = TypeVar("T")


class ProcessExecutor:
    """So many slots; who finds none free stands in line.

    A function that is told to stop sees it in its context; a coroutine is cancelled. After `stop_grace` real seconds
    its process is ended.

    Time counts for the timeout only while the function runs: the start of a process and the import of a module have a
    limit of their own, or a task whose module takes longer to import than its timeout could never succeed.
    """

    def __init__(self, processes: int, *, stop_grace: float = 1.0, start_limit: float = START_LIMIT_S) -> None:
        self._lane = Lane(processes)
        self._stop_grace = stop_grace
        self._start_limit = start_limit
        self._rested: list[Child] = []
        self._children: set[Child] = set()
        self._busy = 0
        self._numbers = itertools.count(1)
        self._closed = False

    @property
    def busy(self) -> int:
        return self._busy

    async def call(self, definition: Definition, facts: CallFacts, context: Context | None = None) -> object:
        if definition.reference is None:
            raise DeclarationError(facts.task, "it has no name by which another process could import it")
        if definition.context is not None and context is None:
            raise TypeError(f"{facts.task} takes a context, and was called without")
        reference = importable(definition.reference)
        current_call.set(facts)
        link = context.link if context is not None and isinstance(context.link, LoopLink) else None
        if link is not None:
            link.pause_clock()
        try:
            answer = await self._ask_in_turn(reference, definition, facts, context)
        finally:
            if link is not None:
                link.resume_clock()
        if isinstance(answer, Raised):
            raise rebuilt(answer.thrown)
        return decode_result(definition, answer.result)

    async def close(self, deadline: float = 1.0) -> None:
        """End all children: those at rest by themselves, those at work too, who is left after `deadline` is killed."""
        self._closed = True
        left = [child for child in self._children if child.code is None]
        if not left:
            return
        for child in left:
            child.dismiss()
        timer = after(deadline, partial(_kill, left))
        try:
            with outside("process slots that end"):
                for child in left:
                    await child.gone()
        finally:
            timer.cancel()

    async def _ask_in_turn(
        self, reference: str, definition: Definition, facts: CallFacts, context: Context | None
    ) -> Returned | Raised:
        if not self._lane.take():
            await first_of([self._lane])
        self._busy += 1
        try:
            return await self._ask(reference, definition, facts, context)
        finally:
            self._busy -= 1
            self._lane.give_back()

    async def _ask(
        self, reference: str, definition: Definition, facts: CallFacts, context: Context | None
    ) -> Returned | Raised:
        if self._closed:
            raise ShuttingDown(facts.task)
        link = context.link if context else None
        call = Call(
            number=next(self._numbers),
            reference=reference,
            context=definition.context,
            facts=facts,
            saved=link.saved.payload if link else facts.saved,
            remaining=context.remaining() if context else facts.timeout,
            trace=current_trace.get(),
        )
        child = self._free_child()
        try:
            return await _Conversation(
                child, call, link, stop_grace=self._stop_grace, start_limit=self._start_limit
            ).answer()
        finally:
            self._put_back(child)

    def _free_child(self) -> Child:
        while self._rested:
            child = self._rested.pop()
            if child.is_usable:
                return child
        child = Child()
        self._children = {one for one in self._children if one.code is None} | {child}
        return child

    def _put_back(self, child: Child) -> None:
        if child.is_usable:
            self._rested.append(child)
        else:
            child.kill()


def _kill(children: Iterable[Child]) -> None:
    for child in children:
        child.kill()


class _Conversation:
    """One call, from the question to the answer. It ends only then, or with the child, however often we are cancelled."""

    def __init__(self, child: Child, call: Call, link: Link | None, *, stop_grace: float, start_limit: float) -> None:
        self._child = child
        self._call = call
        self._link = link
        self._stop_grace = stop_grace
        self._start_limit = start_limit
        self._start_timer: threading.Timer | None = None
        self._is_late = False
        self._what = f"process slot {child.pid} in {call.facts.task}"
        self._cancelled: asyncio.CancelledError | None = None
        self._timer: threading.Timer | None = None
        self._over = False

    async def answer(self) -> Returned | Raised:
        """Ask; raise `SlotDied` if the child died by itself, `CancelledError` if it was stopped because we were."""
        self._child.pipe.send(self._call)
        # For every call: until `Began` no timeout runs, and also a process that has been called before may be stopped.
        self._start_timer = after(self._start_limit, self._end_start)
        try:
            answer = await self._hear()
        except BaseException:
            self._child.kill()  # whatever went wrong, nobody listens to this call any more
            raise
        finally:
            self._over = True
            for timer in filter(None, (self._timer, self._start_timer)):
                timer.cancel()
        if self._cancelled and isinstance(answer, Raised) and self._was_stopped(answer):
            raise self._cancelled
        return answer

    def _was_stopped(self, answer: Raised) -> bool:
        """Whether what the function raised is what we did to it: a coroutine was cancelled, anything else ended."""
        return answer.thrown.classes[0] == CANCELLED or not self._child.is_usable

    async def _hear(self) -> Returned | Raised:
        while True:
            with outside(self._what):
                message = await self._patiently(self._child.pipe.receive)
            if message is not None and message.call != self._call.number:
                raise await self._death(f"received a message of call {message.call} during call {self._call.number}")
            match message:
                case Began():
                    self._begin()
                case Said():
                    self._pass_on(message)
                case Save():
                    await self._keep(message)
                case Returned() | Raised():
                    return message
                case None:
                    raise await self._death()

    def _begin(self) -> None:
        if self._start_timer:
            self._start_timer.cancel()
            self._start_timer = None
        if isinstance(self._link, LoopLink):
            self._link.resume_clock()

    def _end_start(self) -> None:
        if self._start_timer is not None and not self._over:
            self._is_late = True
            self._child.kill()

    async def _patiently(self, wait: Callable[[], Awaitable[T]]) -> T:
        while True:
            try:
                return await wait()
            except asyncio.CancelledError as cancelled:
                if self._cancelled is None:
                    self._cancelled = cancelled
                    self._stop()

    def _stop(self) -> None:
        if self._link:
            self._link.stop()
        self._child.pipe.send(Cancel())
        self._timer = after(self._stop_grace, self._terminate)

    def _terminate(self) -> None:
        if self._over:
            return
        self._child.terminate()
        self._timer = after(KILL_GRACE, self._child.kill)

    def _pass_on(self, said: Said) -> None:
        if self._link is None:
            return
        self._link.tell(progress=said.progress)
        for line in said.lines:
            self._link.tell(line=line)

    async def _keep(self, save: Save) -> None:
        """Have it written and tell the child. Not within `outside`: a store may need time to pass."""
        error: BaseException | None = TypeError("for the node this task takes no context; restart whichever is older")
        if self._link:
            self._link.saved.replace(save.saved)
            written = asyncio.ensure_future(self._link.keep())
            await self._patiently(lambda: asyncio.wait([written]))
            error = written.exception()
        self._child.pipe.send(Kept(save.number, thrown(error) if error else None))

    async def _death(self, problem: str = "") -> BaseException:
        """Return how the child died. A child that has only closed its connection, or that sent an unexpected message,
        is ended.
        """
        timer = after(KILL_GRACE, self._child.kill)
        with outside(self._what):
            await self._patiently(self._child.gone)
        timer.cancel()
        if self._cancelled:
            return self._cancelled
        if self._is_late:
            return SlotStartTimeout(self._call.reference.partition(":")[0], self._start_limit)
        return SlotDied(self._child.code or 0, problem or self._child.pipe.problem)
