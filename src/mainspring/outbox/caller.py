"""Calls a handler with what is to be delivered, and says what came of it."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import timedelta
from functools import partial
from typing import Any, Final, NamedTuple, TypeAlias

from mainspring.clock import Clock
from mainspring.core.outbox import Trouble
from mainspring.core.outcome import Raised, Snoozed, outcome_of
from mainspring.core.retry import Retry
from mainspring.errors import StoreError
from mainspring.outbox.definition import Handler, OutboxDefinition
from mainspring.outbox.message import Batch, Message, Progress, Savepoint
from mainspring.runtime.call import current_trace, storable
from mainspring.runtime.events import log
from mainspring.runtime.executors.errors import attempt_error, escaped
from mainspring.runtime.executors.thread import ThreadExecutor
from mainspring.stores import outbox as stored
from mainspring.stores.port import Transaction

LONGEST_ERROR: Final = 2000
"""Characters that are kept of what went wrong."""
MARK: Final = "SAVEPOINT mainspring_message"
UNDO: Final = "ROLLBACK TO SAVEPOINT mainspring_message"
KEEP: Final = "RELEASE SAVEPOINT mainspring_message"

Around: TypeAlias = Callable[[Sequence[Message[Any]]], AbstractContextManager[None]]
"""What each call of a handler with some messages happens in."""

_POLICY: Final = Retry.exponential()
_SWALLOWED: Final = "CancelledError: it awaited something that someone else cancelled"


class Given(NamedTuple):
    """A message that is to be delivered, and which attempt that is."""

    message: stored.Message
    attempt: int


class Deadline:
    """When the time of a call is over."""

    def __init__(self, clock: Clock, timeout: timedelta) -> None:
        self._clock = clock
        self._timeout = timeout.total_seconds()
        self._at = clock.monotonic() + self._timeout

    def begin(self) -> None:
        """Give the next call all of its time."""
        self._at = self._clock.monotonic() + self._timeout

    def left(self) -> float:
        return max(0.0, self._at - self._clock.monotonic())

    def remaining(self) -> timedelta:
        return timedelta(seconds=self.left())

    @property
    def trouble(self) -> Trouble:
        return Trouble(f"TimeoutError: it took longer than {self._timeout:g} s")


class Caller:
    """Knows how the handler of one outbox is called."""

    def __init__(
        self,
        definition: OutboxDefinition[Any],
        handler: Handler,
        threads: ThreadExecutor,
        clock: Clock,
        *,
        around: Around | None = None,
    ) -> None:
        self._definition = definition
        self._handler = handler
        self._threads = threads
        self._clock = clock
        self._around = around

    async def leased(self, given: Sequence[Given], progress: Progress) -> Trouble | None:
        """Deliver outside of any transaction; returns why it stopped, None if it came to its end."""
        deadline = self._deadline()
        if not self._handler.rules.by_message:
            messages = self._messages(given, deadline)
            batch = Batch(messages, progress, remaining=deadline.remaining)
            trouble = await self._call(deadline, messages, batch)
            if trouble is None:
                progress.settle_all()
            return trouble
        for place, message in enumerate(self._messages(given, deadline)):
            deadline.begin()
            trouble = await self._call(deadline, [message], message)
            if trouble is not None and not trouble.final:
                return trouble
            progress.settle(place, rejected=None if trouble is None else trouble.error)
        return None

    async def transactional(self, given: Sequence[Given], progress: Progress, tx: Transaction) -> Trouble | None:
        """Deliver in a transaction: what the handler wrote for a message that failed is undone."""
        deadline = self._deadline()
        if not self._handler.rules.by_message:
            return await self._batch_in(tx, given, progress, deadline)
        for place, message in enumerate(self._messages(given, deadline)):
            await tx.execute(MARK)
            trouble = await self._call(deadline, [message], message, tx) or await self._keep(tx)
            if trouble is not None:
                progress.trouble = trouble
                await _undo(tx)
            if trouble is not None and not trouble.final:
                if place and trouble == deadline.trouble:
                    # Those before it have used up the time; it is the first of the next delivery, and has all of it.
                    progress.trouble = None
                return progress.trouble
            progress.trouble = None
            progress.settle(place, rejected=None if trouble is None else trouble.error)
        return None

    async def _batch_in(
        self, tx: Transaction, given: Sequence[Given], progress: Progress, deadline: Deadline
    ) -> Trouble | None:
        async def keep() -> None:
            await tx.execute(KEEP)
            await tx.execute(MARK)

        async def undo() -> None:
            await tx.execute(UNDO)

        savepoint = Savepoint(keep, undo)
        await tx.execute(MARK)
        messages = self._messages(given, deadline)
        batch = Batch(messages, progress, remaining=deadline.remaining, savepoint=savepoint)
        trouble = await self._call(deadline, messages, batch, tx)
        if trouble is None and savepoint.pending:
            trouble = Trouble(
                "RuntimeError: in a transaction write `await batch.ack()`, and so for ack_chunk and reject"
            )
        trouble = trouble or await self._keep(tx)
        if trouble is None:
            progress.settle_all()
        else:
            progress.trouble = trouble
            await _undo(tx)
        return trouble

    async def _keep(self, tx: Transaction) -> Trouble | None:
        """Keep what a handler wrote. Returns why that cannot be, such as a statement whose failure it has hushed up."""
        try:
            await tx.execute(KEEP)
        except StoreError as error:
            return self._trouble(error.__cause__ or error)
        return None

    def _deadline(self) -> Deadline:
        return Deadline(self._clock, self._handler.timeout)

    def _messages(self, given: Sequence[Given], deadline: Deadline) -> list[Message[Any]]:
        decode = self._definition.payloads.decode
        return [Message(message, decode, attempt=attempt, remaining=deadline.remaining) for message, attempt in given]

    async def _call(self, deadline: Deadline, messages: Sequence[Message[Any]], *args: object) -> Trouble | None:
        """Call the handler once. Raises only `CancelledError`, if its caller was told to stop."""
        # What it enqueues comes from where the message does, if that is one.
        current_trace.set(messages[0].traceparent if len(messages) == 1 else None)
        cancels = _cancels()
        scope = asyncio.timeout(deadline.left())
        try:
            async with scope:
                with nullcontext() if self._around is None else self._around(messages):
                    await self._invoke(*args)
        except TimeoutError as error:
            return deadline.trouble if scope.expired() else self._trouble(error)
        except asyncio.CancelledError:
            if _cancels() > cancels:
                raise
            return Trouble(_SWALLOWED)
        except KeyboardInterrupt:
            raise
        except SystemExit as error:  # through a task it would end the whole loop
            stand_in = escaped(error)
            stand_in.__cause__ = error
            return self._trouble(stand_in)
        except BaseException as error:  # noqa: BLE001 - whatever a handler raises is what came of it
            return self._trouble(error)
        return None

    async def _invoke(self, *args: object) -> None:
        function = self._handler.function
        if self._handler.is_async:
            await function(*args)
        else:
            await self._threads.do(_Invocation(partial(function, *args)), self._handler.name)

    def _trouble(self, raised: BaseException) -> Trouble:
        told = attempt_error(raised)
        text = storable(f"{told.type}: {told.message}", LONGEST_ERROR)
        match outcome_of(raised, told, _POLICY):
            case Snoozed(delay=delay, reason=reason):
                return Trouble(storable(reason, LONGEST_ERROR) or "it was put off", after=delay, counts=False)
            case Raised(retryable=False):
                return Trouble(storable(told.message, LONGEST_ERROR) or text, final=True)
            case Raised(retry_in=after):
                log.debug("the handler of outbox %s raised", self._definition.name, exc_info=raised)
                return Trouble(text, after=after)
            case _:
                return Trouble(text)


class _Invocation:
    """One call in a thread, which cannot be made to stop: it can look how much time remains."""

    def __init__(self, work: "partial[object]") -> None:
        self._work = work

    def run(self) -> object:
        return self._work()

    def stop(self) -> None:
        pass


async def _undo(tx: Transaction) -> None:
    await tx.execute(UNDO)
    await tx.execute(KEEP)


def _cancels() -> int:
    task = asyncio.current_task()
    return task.cancelling() if task else 0
