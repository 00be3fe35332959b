"""What the embedding program offers, as one attempt of a job may use it: `ctx.host`.

A job that asks for what is not there snoozes, so that neither a program that is still starting nor one that is ending
makes a job fail. An attempt that was told to stop, or has lost its job, is refused: whatever its body still does, it
does not write through its host.
"""

import asyncio
from concurrent.futures import Future
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar

from mainspring.clock import in_a_loop
from mainspring.core.job import State
from mainspring.core.outcome import HostNotReady
from mainspring.errors import HostMissing, JobCancelled, LeaseLost
from mainspring.runtime.host import COMPACT, NO_PARAMS, READ, WRITE, Host, Params

if TYPE_CHECKING:
    from mainspring.runtime.attempt import Attempt
    from mainspring.runtime.executors.link import LoopLink
    from mainspring.stores.port import Store

T = TypeVar("T")

SOON: Final = timedelta(seconds=5)
"""After which a job asks again that found no service; twice as long each time, up to the next."""
LATER: Final = timedelta(minutes=1)


class JobHost:
    """The host as one attempt sees it. What is not offered has the job snooze; who was told to stop is refused."""

    __slots__ = ("_attempt", "_home", "_host", "_link", "_store")

    def __init__(self, host: Host, attempt: "Attempt", link: "LoopLink", store: "Store") -> None:
        self._host = host
        self._attempt = attempt
        self._link = link
        self._store = store
        self._home = asyncio.get_running_loop()

    @property
    def namespace(self) -> str:
        """The plugin whose job this is; empty for the program's own."""
        return self._attempt.delivery.claim.job.task.namespace

    def must_be_allowed_to_write(self) -> None:
        """Raise `CapabilityError` if it is a plugin's job, and that was not granted `HostWrite`."""
        self._host.permission.use_host(WRITE, self.namespace)

    async def compact_storage(self) -> None:
        """Have the program compact its storage; `CompactionFailed` if it could not."""
        await self._ask(COMPACT)

    async def execute_write(self, statement: str, params: Params = NO_PARAMS) -> Any:  # noqa: ANN401 - the program's own
        """Have the program write; returns what it returns. `WriteFailed` if it could not, `CapabilityError` if you may not.

        `JobCancelled` or `LeaseLost` if the job is no longer this attempt's to do: then nothing is written.
        """
        return await self._ask(WRITE, statement, params)

    async def execute_read(self, statement: str, params: Params = NO_PARAMS) -> Any:  # noqa: ANN401 - the program's own
        """Have the program read; returns what it returns. `ReadFailed` if it could not."""
        return await self._ask(READ, statement, params)

    def compact_storage_sync(self) -> None:
        """As `compact_storage`, for a handler in a thread."""
        self._wait_for(COMPACT)

    def execute_write_sync(self, statement: str, params: Params = NO_PARAMS) -> Any:  # noqa: ANN401 - the program's own
        """As `execute_write`, for a handler in a thread."""
        return self._wait_for(WRITE, statement, params)

    def execute_read_sync(self, statement: str, params: Params = NO_PARAMS) -> Any:  # noqa: ANN401 - the program's own
        """As `execute_read`, for a handler in a thread."""
        return self._wait_for(READ, statement, params)

    def get(self, kind: type[T]) -> T:
        """Return what the program provides under a type. Once the attempt is to stop it gives out nothing."""
        self._must_go_on()
        try:
            return self._host.look_up(kind, self.namespace)
        except HostMissing as missing:
            self._snooze(missing)

    async def _ask(self, service: str, *args: object) -> Any:  # noqa: ANN401 - the program's own
        if asyncio.get_running_loop() is self._home:
            return await self._call(service, *args)
        return await asyncio.wrap_future(self._hand_over(service, *args))  # an `async def` in a thread has its own loop

    def _wait_for(self, service: str, *args: object) -> Any:  # noqa: ANN401 - the program's own
        if in_a_loop():
            raise RuntimeError(
                f"{service}_sync would block the event loop of this thread; write `await ctx.host.{service}(…)`"
            )
        return self._hand_over(service, *args).result()

    def _hand_over(self, service: str, *args: object) -> "Future[Any]":
        work = self._for_a_thread(service, *args)
        try:
            return asyncio.run_coroutine_threadsafe(work, self._home)
        except RuntimeError:  # the loop is closed: the node is gone, and its leases with it
            work.close()
            raise self._lost() from None

    async def _for_a_thread(self, service: str, *args: object) -> Any:  # noqa: ANN401 - the program's own
        hold = self._link.hold
        if hold:
            hold.wait()
        try:
            return await self._call(service, *args)
        finally:
            if hold:
                hold.go_on()

    async def _call(self, service: str, *args: object) -> Any:  # noqa: ANN401 - the program's own
        self._must_go_on()
        try:
            self._host.find(service, self.namespace)
            if service != READ:
                await self._confirm()
            return await self._host.call(service, *args)
        except HostMissing as missing:
            self._snooze(missing)

    def _must_go_on(self) -> None:
        """Refuse an attempt that was told to stop, as far as this node knows."""
        if self._attempt.is_lost or self._link.over:
            raise self._lost()
        if self._link.stopping:
            raise JobCancelled(str(self._attempt.lease[0]))

    async def _confirm(self) -> None:
        """Look whether the job is still this attempt's. A node that stood still, or has not heard of a cancel, is wrong."""
        job, lease = self._attempt.lease
        (view,) = await self._store.get([job])
        if view is None or (view.job.state, view.job.lease) != (State.RUNNING, lease):
            raise self._lost()
        if view.job.cancel_requested_at is not None:
            raise JobCancelled(str(job))
        self._must_go_on()

    def _lost(self) -> LeaseLost:
        job, lease = self._attempt.lease
        return LeaseLost(str(job), lease)

    def _snooze(self, missing: HostMissing) -> NoReturn:
        self._host.tell_missing(missing)
        job = self._attempt.delivery.claim.job
        given_back = min(job.claims - job.attempt, 10)  # the claims that were no attempts
        delay = min(LATER, SOON * 2 ** max(0, given_back))
        raise HostNotReady(delay, str(missing), missing.code) from missing
