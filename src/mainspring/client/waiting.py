"""Waiting for jobs to finish: any number of those who wait share every look at the store.

Hints say when to look, and a look a second makes up for hints that were lost. After each look there is a pause at least
as long as the look took, so that waiting for very many jobs cannot keep a store busy by itself.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Final, TypeAlias

from mainspring.core.backoff import Backoff
from mainspring.core.job import FINISHED, JobId
from mainspring.errors import StoreUnavailable
from mainspring.stores.port import Store
from mainspring.stores.records import JobView
from mainspring.supervise import Idle, Notifier, Service, Stop, every

FLOOR: Final = 1.0
"""Seconds after which everyone's job is looked at, whatever hints there were."""
PAUSE: Final = 0.005
"""Seconds between two looks at least: many commits in a row become one look."""
AT_ONCE: Final = 1000
"""Jobs that one call asks for."""
_BACKOFF: Final = Backoff.exponential("100ms", cap="2s")

Waiter: TypeAlias = "asyncio.Future[JobView | None]"


class Room:
    """Those on one event loop who wait for jobs of one store. It opens with the first and closes with the last."""

    def __init__(self, store: Store, *, on_empty: Callable[[], object]) -> None:
        self._store = store
        self._on_empty = on_empty
        self._waiting: dict[JobId, list[Waiter]] = {}
        self._unseen: set[JobId] = set()  # jobs that nobody has looked at since someone came to wait for them
        self._hinted = True
        self._looked = 0.0
        self._wake = Notifier()
        self._stop = Stop()
        service = Service("results", self._look, wake=[self._wake, every(FLOOR)], backoff=_BACKOFF)
        self._unwatch = store.watch(self._hint)
        self._task = asyncio.create_task(service.run(self._stop), name="mainspring results")

    async def finished(self, job: JobId) -> JobView | None:
        """Wait until a job has finished; None if it is gone."""
        waiter: Waiter = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(job, []).append(waiter)
        self._unseen.add(job)
        self._wake.notify_one()
        try:
            return await waiter
        finally:
            self._leave(job, waiter)

    def abandon(self) -> None:
        """Stop watching the store: the loop was closed while calls were waiting here."""
        unwatch, self._unwatch = (
            self._unwatch,
            lambda: None,
        )  # a coroutine that is garbage-collected later calls this, too
        unwatch()

    def _leave(self, job: JobId, waiter: Waiter) -> None:
        others = self._waiting[job]
        others.remove(waiter)
        if not others:
            del self._waiting[job]
            self._unseen.discard(job)
        if not self._waiting:
            self._unwatch()
            with suppress(RuntimeError):  # the loop is closed, and this coroutine collected
                self._stop.set()
            self._on_empty()

    def _hint(self) -> None:
        """Called in any thread."""
        self._hinted = True
        self._wake.notify_one()

    async def _look(self) -> Idle:
        began = asyncio.get_running_loop().time()
        everyone = began - self._looked >= FLOOR
        if self._hinted:  # no more than this: a hint that comes between looking and writing must not be lost
            everyone, self._hinted = True, False
        jobs = list(self._waiting if everyone else self._unseen)
        self._unseen.clear()
        try:
            for start in range(0, len(jobs), AT_ONCE):
                self._tell(await self._store.get(jobs[start : start + AT_ONCE]), jobs[start : start + AT_ONCE])
        except StoreUnavailable:
            self._hinted = True
            raise  # the service comes back for everyone; those who wait have time limits of their own
        except Exception as error:  # noqa: BLE001 - goes to those who wait
            self._fail(error)
        ended = asyncio.get_running_loop().time()
        self._looked = began if everyone else self._looked
        await asyncio.sleep(max(PAUSE, ended - began))
        return Idle()

    def _tell(self, views: tuple[JobView | None, ...], jobs: list[JobId]) -> None:
        for job, view in zip(jobs, views, strict=True):
            if view is None or view.job.state in FINISHED:
                for waiter in self._waiting.get(job, ()):
                    if not waiter.done():
                        waiter.set_result(view)

    def _fail(self, error: Exception) -> None:
        for waiters in self._waiting.values():
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_exception(error)
