"""An app on virtual time whose store can be made to misbehave."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from mainspring import Mainspring
from mainspring.core.job import FINISHED, JobId
from mainspring.stores.memory import MemoryStore
from mainspring.stores.records import JobView
from mainspring.testing import VirtualTime
from mainspring.testing.faults import FaultyStore


@dataclass(frozen=True, slots=True)
class Bench:
    """What a test of a node works with."""

    app: Mainspring
    store: FaultyStore
    time: VirtualTime

    async def view(self, job: JobId) -> JobView:
        """Look at a job, also when the app has been closed."""
        await self.store.inner.open()
        (view,) = await self.store.inner.get([job])
        assert view
        return view

    async def ends(self, job: JobId) -> list[str]:
        """Name how the attempts of a job ended that did not succeed."""
        await self.store.inner.open()
        return [str(attempt.event) for attempt in await self.store.inner.attempts(job)]

    async def until(self, holds: Callable[[], object], *, within: float = 60) -> None:
        """Let virtual time pass until something is true."""
        async with asyncio.timeout(within):
            while not holds():
                await asyncio.sleep(0.01)

    async def until_finished(self, job: JobId) -> None:
        async with asyncio.timeout(3600):
            while (await self.view(job)).job.state not in FINISHED:
                await asyncio.sleep(0.1)


@pytest.fixture
def bench(virtual_time: VirtualTime) -> Bench:
    store = FaultyStore(MemoryStore(clock=virtual_time.clock))
    return Bench(Mainspring(store=store.as_store, clock=virtual_time.clock), store, virtual_time)
