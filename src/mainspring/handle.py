"""A job, as the one who enqueued it holds it: its result, its state, and what an operator may do to it."""

import asyncio
from collections.abc import Callable
from datetime import datetime
from typing import Any, Final, Generic, TypeVar, assert_never

from mainspring.client.connection import Connection
from mainspring.client.options import Priority, read_moment, read_priority, read_queue
from mainspring.clock import in_a_loop
from mainspring.core import machine
from mainspring.core.codec import Value
from mainspring.core.command import CancelJob, Command, DeleteJob, MoveJob, RetryJob
from mainspring.core.job import FINISHED, Job, JobId, State
from mainspring.core.names import Name
from mainspring.duration import Duration, seconds
from mainspring.errors import Conflict, JobCancelled, JobFailed, JobGone, JobUnfinished, StoreUnavailable
from mainspring.stores.records import JobView, Settlement, Verdict

R = TypeVar("R")

Codecs = Callable[[Name], Value[Any]]
"""Finds the codec of a task's results."""


class JobHandle(Generic[R]):
    """A job by its id. It holds no state of its own: every method asks the store.

    Each has a twin for code without an event loop, which waits: `result_sync`, `cancel_sync` and so on.
    """

    __slots__ = ("_codecs", "_connection", "fresh", "id", "task")

    def __init__(
        self, connection: Connection, codecs: Codecs, job: JobId, *, task: Name | None = None, fresh: bool = False
    ) -> None:
        self._connection: Final = connection
        self._codecs: Final = codecs
        self.id: Final = job
        self.task: Final = task
        """The name of its task; None where only the id was known."""
        self.fresh: Final = fresh
        """Whether the enqueue that returned this handle made the job; False if it was there before."""

    def __repr__(self) -> str:
        return f"<JobHandle {self.id}{f' of {self.task}' if self.task else ''}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, JobHandle) and other.id == self.id

    def __hash__(self) -> int:
        return hash(self.id)

    async def result(self, timeout: Duration | None = None) -> R:  # noqa: ASYNC109 - the job goes on; only we stop waiting
        """Wait until the job has finished and return what its handler returned.

        Raises `JobFailed`, `JobCancelled` or `JobGone` if there is no result, and `JobUnfinished` if it took longer
        than `timeout`; the job goes on then, and can be waited for again.
        """
        limit = None if timeout is None else seconds(timeout)
        try:
            async with asyncio.timeout(limit):
                view = await self._connection.finished(self.id)
        except TimeoutError:
            view = await self.refresh()
            if view.job.state not in FINISHED:
                raise JobUnfinished(str(self.id), view.job.state, limit or 0) from None
        if view is None:
            raise JobGone(str(self.id))
        return self._read(view)

    async def refresh(self) -> JobView:
        """Read everything that is kept of the job, as it is now."""
        store = await self._connection.store()
        (view,) = await store.get([self.id])
        if view is None:
            raise JobGone(str(self.id))
        return view

    async def state(self) -> State:
        """Read where the job stands now."""
        return (await self.refresh()).job.state

    async def cancel(self) -> State:
        """Cancel the job: at once if it waits, as a request if it runs. Returns the state that it is in then."""
        job = await self._command(CancelJob())
        if job and job.state is State.RUNNING and self._connection.on_cancel:
            self._connection.on_cancel(job.id, job.lease)
        return job.state if job else State.CANCELLED

    async def retry(self) -> None:
        """Run a failed or cancelled job again, with one more attempt than it had."""
        await self._command(RetryJob())

    async def delete(self) -> None:
        """Forget the job and all that is kept of it, unless it runs."""
        await self._command(DeleteJob())

    async def move(
        self, *, priority: Priority | None = None, queue: str | None = None, run_at: datetime | None = None
    ) -> None:
        """Give a waiting job another priority, queue or time; what is left out stays."""
        command = MoveJob(
            priority=None if priority is None else read_priority(priority),
            queue=None if queue is None else read_queue(queue),
            run_at=None if run_at is None else read_moment(run_at),
        )
        await self._command(command)

    def result_sync(self, timeout: Duration | None = None) -> R:
        """Wait for the result in code without an event loop."""
        if in_a_loop():
            raise RuntimeError("result_sync would block the event loop of this thread; write `await job.result()`")
        return self._connection.wait_for(lambda: self.result(timeout))

    def refresh_sync(self) -> JobView:
        return self._connection.wait_for(self.refresh)

    def state_sync(self) -> State:
        return self._connection.wait_for(self.state)

    def cancel_sync(self) -> State:
        return self._connection.wait_for(self.cancel)

    def retry_sync(self) -> None:
        self._connection.wait_for(self.retry)

    def delete_sync(self) -> None:
        self._connection.wait_for(self.delete)

    def move_sync(
        self, *, priority: Priority | None = None, queue: str | None = None, run_at: datetime | None = None
    ) -> None:
        self._connection.wait_for(lambda: self.move(priority=priority, queue=queue, run_at=run_at))

    def _read(self, view: JobView) -> R:
        match view.job.state:
            case State.SUCCEEDED:
                value: R = None if view.result is None else self._codecs(view.job.task).decode(view.result)  # type: ignore[assignment]  # a handler that returned None has a result of that type
                return value
            case State.CANCELLED:
                raise JobCancelled(str(self.id))
            case _:
                error = f"{view.error.type}: {view.error.message}" if view.error else ""
                raise JobFailed(str(self.id), view.job.cause or "", error)

    async def _command(self, command: Command) -> Job | None:
        """Do what an operator may do. Whoever changes the job meanwhile has gone first: it is decided again."""
        store = await self._connection.store()
        view = await self.refresh()
        job = view.job
        self._connection.guard.change_job(job.task, command.queue if isinstance(command, MoveJob) else None)
        while True:
            change = machine.command(job, command, store.now())
            (settled,) = await store.settle([Settlement(change=change)])
            match settled.verdict:
                case Verdict.ACCEPTED | Verdict.REPEATED:
                    return change.after
                case Verdict.STALE if settled.job is not None:
                    job = settled.job
                case Verdict.STALE | Verdict.REFUSED:
                    raise JobGone(str(self.id))
                case Verdict.LOCKED:
                    raise StoreUnavailable("store", f"another transaction holds job {self.id}; try again")
                case Verdict.CONFLICT:
                    key = view.unique.key if view.unique else ""
                    raise Conflict(str(job.task), key, str(settled.holder))
                case _:
                    assert_never(settled.verdict)
