"""What a handler holds of its own job while it runs: who it is, how long it has, what it saved, and a way to say more.

The same object serves a coroutine on the node's loop, a thread and a process slot. What differs is the `Link` behind
it, which carries what the handler says to the node.
"""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime, timedelta
from typing import Any, Final, Protocol, TypeAlias

import msgspec

from mainspring.clock import Clock
from mainspring.core.codec import LIMIT, Value
from mainspring.core.job import JobId
from mainspring.core.names import Name
from mainspring.core.outcome import AttemptError
from mainspring.core.schedule import Run
from mainspring.duration import Duration
from mainspring.errors import DeclarationError, JobCancelled, PayloadError
from mainspring.runtime.call import CallFacts, storable
from mainspring.runtime.job_host import JobHost
from mainspring.stores.records import LogLine, Progress
from mainspring.stores.write_lock import is_held

LONGEST_LINE: Final = 10_000
"""Characters of a log line or of a word on progress."""

_ANYTHING: Final[Value[Any]] = Value.of(Any, subject="saved value")


class Saved:
    """The values that a job keeps across its attempts, as one JSON object. May be used from any thread."""

    __slots__ = ("_lock", "_values", "payload")

    def __init__(self, payload: bytes | None) -> None:
        self.payload = payload
        self._values: dict[str, Any] | None = None
        self._lock = threading.Lock()

    def get(self, key: str, default: object) -> Any:  # noqa: ANN401 - any JSON
        with self._lock:
            return self._read().get(key, default)

    def put(self, key: str, value: object) -> None:
        """Add a value, or raise `PayloadError` if JSON would not give it back the same."""
        subject = f"ctx.save({key!r})"
        try:
            _ANYTHING.encode(value)
        except PayloadError as misfit:
            raise PayloadError(subject, misfit.path, misfit.problem) from None
        # Read back at once: a list that the handler goes on changing is saved as it was.
        copy = msgspec.json.decode(msgspec.json.encode(value))
        with self._lock:
            values = {**self._read(), key: copy}
            payload = msgspec.json.encode(values)
            if len(payload) > LIMIT:
                problem = f"{len(payload):,} bytes of JSON with all that was saved before, the limit is {LIMIT:,}"
                raise PayloadError(subject, "", f"{problem}; keep it elsewhere and save its key")
            self._values, self.payload = values, payload

    def replace(self, payload: bytes) -> None:
        """Take over what was saved in a process slot."""
        with self._lock:
            self._values, self.payload = None, payload

    def _read(self) -> dict[str, Any]:
        if self._values is None:
            self._values = msgspec.json.decode(self.payload, type=dict[str, Any]) if self.payload else {}
        return self._values


class Link(Protocol):
    """How a context reaches the node. Everything here may be called from any thread."""

    @property
    def clock(self) -> Clock: ...

    @property
    def deadline(self) -> float | None:
        """When the timeout comes, on the clock's monotonic scale."""
        ...

    @property
    def saved(self) -> Saved: ...

    @property
    def stopping(self) -> bool:
        """Whether someone wants the attempt to end; once set, it stays set."""
        ...

    def stop(self) -> None:
        """Let the handler see that someone wants it to end."""
        ...

    def tell(self, *, progress: Progress | None = None, line: LogLine | None = None) -> None:
        """Have something kept, at leisure: with the end of the attempt at the latest."""
        ...

    def keep(self) -> Awaitable[None]:
        """Have what is saved kept now, whether or not the answer is awaited.

        On the node's loop the answer comes when it is durable; anywhere else this returns only then. `LeaseLost` if
        the attempt no longer holds its job.
        """
        ...


class OwnTransaction(Protocol):
    """An open transaction on the store's database, whose commit ends the job with success."""

    async def execute(self, statement: str, parameters: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Run a statement of the handler's own; returns its rows."""
        ...

    def finish(self, value: object) -> None:
        """Set the job's result: what the handler returns after the commit comes too late."""
        ...


class OwnEnd(Protocol):
    """How a handler ends its own job, in the transaction of its own writes."""

    def transaction(self, limit: Duration | None) -> AbstractAsyncContextManager[OwnTransaction]: ...

    def settle_in(self, tx: object, value: object) -> Awaitable[None]: ...


Past: TypeAlias = Callable[[Name, JobId], Awaitable[Run | None]]
"""Looks up the last run of a schedule before the one of a job."""


class Done:
    """An answer that is there already."""

    def __await__(self) -> Generator[None, None, None]:
        return
        yield  # what makes this a generator


class Context:
    """The handler's view of its own attempt: the parameter of a task that is annotated with it.

    Making one costs next to nothing; what is read from the job is read when it is asked for.
    """

    __slots__ = ("_facts", "_host", "_own_end", "_past", "link")

    def __init__(
        self,
        facts: CallFacts,
        link: Link,
        own_end: OwnEnd | None = None,
        host: JobHost | None = None,
        *,
        past: "Past | None" = None,
    ) -> None:
        self.link = link
        self._past = past
        self._host = host
        self._facts = facts
        self._own_end = own_end

    @property
    def job(self) -> JobId:
        return self._facts.job

    @property
    def task(self) -> str:
        return self._facts.task

    @property
    def queue(self) -> str:
        return self._facts.queue

    @property
    def attempt(self) -> int:
        """Counted from 1."""
        return self._facts.attempt

    @property
    def max_attempts(self) -> int:
        return self._facts.max_attempts

    @property
    def is_retry(self) -> bool:
        return self.attempt > 1

    @property
    def is_last_attempt(self) -> bool:
        return self.attempt >= self.max_attempts

    @property
    def previous_error(self) -> AttemptError | None:
        """What the attempt before this one raised, with its traceback."""
        return self._facts.previous_error

    @property
    def tags(self) -> tuple[str, ...]:
        return self._facts.tags

    @property
    def owner(self) -> str | None:
        return self._facts.owner

    @property
    def parent(self) -> JobId | None:
        """The job whose handler enqueued this one."""
        return self._facts.parent

    @property
    def traceparent(self) -> str | None:
        """The span that enqueued this job, as W3C Trace Context writes it."""
        return self._facts.traceparent

    @property
    def key(self) -> str | None:
        """What the task's keyed limit counts this job under."""
        return self._facts.key

    @property
    def enqueued_at(self) -> datetime:
        return self._facts.enqueued_at

    @property
    def due_at(self) -> datetime:
        return self._facts.run_at

    @property
    def started_at(self) -> datetime:
        return self._facts.started_at

    @property
    def schedule(self) -> str | None:
        """The schedule that made this job; None for one that was enqueued."""
        return self._facts.slot.schedule if self._facts.slot else None

    @property
    def slot(self) -> datetime | None:
        """The instant that the job was made for, in UTC; None for one without, such as a run that was asked for by hand."""
        return self._facts.slot.slot if self._facts.slot else None

    @property
    def zone(self) -> str:
        """The time zone of the schedule, by its name."""
        return self._facts.slot.zone if self._facts.slot else "UTC"

    @property
    def lateness(self) -> timedelta:
        """How long after its slot, or after it was due, this attempt was started."""
        return max(timedelta(0), self.started_at - (self.slot or self.due_at))

    @property
    def is_catch_up(self) -> bool:
        """Whether the slot had been missed when it was decided, or was asked for later."""
        return self._facts.slot is not None and self._facts.slot.is_catch_up

    async def previous_run(self) -> Run | None:
        """Look up the run of the schedule before this one, and how it ended; None for the first, or without a schedule."""
        slot = self._facts.slot
        if slot is None:
            return None
        if self._past is None:
            raise DeclarationError(self.task, "a process slot cannot look it up; use the thread or coroutine executor")
        return await self._past(Name.parse(slot.schedule), self.job)

    def previous_run_sync(self) -> Run | None:
        """As `previous_run`, for a handler in a thread."""
        return asyncio.run(self.previous_run())

    def remaining(self) -> float | None:
        """Say how many seconds are left before the timeout, 0.0 at least; None if there is no timeout."""
        deadline = self.link.deadline
        return None if deadline is None else max(0.0, deadline - self.link.clock.monotonic())

    @property
    def cancelled(self) -> bool:
        """Whether the handler should stop: cancelled, out of time, the node shuts down, or the lease is lost."""
        return self.link.stopping

    def raise_if_cancelled(self) -> None:
        if self.link.stopping:
            raise JobCancelled(str(self.job))

    def load(self, key: str, default: Any = None) -> Any:  # noqa: ANN401 - any JSON
        """Return what this or an earlier attempt saved under `key`."""
        return self.link.saved.get(key, default)

    def save(self, key: str, value: Any) -> Awaitable[None]:  # noqa: ANN401 - any JSON
        """Keep a value across attempts: text, numbers, booleans, None, lists and dicts of them.

        In a coroutine, await it: it is durable then, and written even if not awaited. In a thread or a process it is
        durable when this returns. `LeaseLost` means that the job has been taken away: stop. Where the store has a single
        write lock, as SQLite has, it cannot be used inside of `ctx.transaction()`: `DeclarationError`.
        """
        if is_held():
            raise DeclarationError(
                f"ctx.save({key!r})",
                "called inside of an open transaction that holds the only write lock; save before the transaction",
            )
        self.link.saved.put(key, value)
        return self.link.keep()

    def progress(self, percent: float, message: str = "") -> None:
        """Say how far the job is. Call it as often as you like: about ten a second are written, and always the last."""
        if not isinstance(message, str):
            raise TypeError(_no_text(percent, message))
        # In this order a NaN becomes 0: a wrong sum about progress is no reason to fail.
        within = min(100.0, max(0.0, float(percent)))
        self.link.tell(progress=Progress(within, storable(message, LONGEST_LINE)))

    def log(self, message: str, level: str = "info") -> None:
        """Keep a line with the job; a store keeps its last thousand."""
        line = LogLine(self.link.clock.now(), storable(str(level), 50), storable(str(message), LONGEST_LINE))
        self.link.tell(line=line)

    def transaction(self, *, limit: Duration | None = None) -> AbstractAsyncContextManager[OwnTransaction]:
        """Open a transaction on the store's database: its commit is the end of the job, together with your writes.

        `async with ctx.transaction() as tx:`, then `await tx.execute(…)` and, for a result, `tx.finish(value)`. If the
        lease has been lost meanwhile, nothing is written and `LeaseLost` is raised. One that is still open after `limit`
        is rolled back: without one after 2 s on SQLite, where nobody else can write meanwhile, and a minute on PostgreSQL.
        """
        return self._ends().transaction(limit)

    def settle_in(self, tx: object, value: object = None) -> Awaitable[None]:
        """End the job in a transaction of your own, on the store's database: commit it, and the job has succeeded.

        The last thing to do in it; await it where the driver is awaited. If it is rolled back, so is the end of the job;
        a handler that returns without a commit has failed. `LeaseLost` if the lease has been lost: roll back then.
        """
        return self._ends().settle_in(tx, value)

    @property
    def host(self) -> JobHost:
        """What the embedding program offers: `await ctx.host.execute_write(…)`. Not in a process slot."""
        if self._host is None:
            raise DeclarationError(
                self.task, "a process slot cannot reach what the program offers; use the thread or coroutine executor"
            )
        return self._host

    def _ends(self) -> OwnEnd:
        if self._own_end is None:
            raise DeclarationError(
                self.task, "a process slot has no part in the node's transactions; use the thread or coroutine executor"
            )
        if self._host is not None:
            self._host.must_be_allowed_to_write()
        return self._own_end


def _no_text(percent: float, message: object) -> str:
    """Say how to write what others write as `done, total`."""
    problem = f"ctx.progress takes a percentage and a text, not {message!r}"
    is_total = isinstance(message, int | float) and not isinstance(message, bool)
    return f"{problem}; for {percent} of {message}: ctx.progress(100 * {percent} / {message})" if is_total else problem
