"""Short words for what these tests do with a sidecar store: open it, plan, fire, end."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from mainspring.core.job import FINISHED
from mainspring.stores.records import JobFilter, RunFilter
from mainspring.stores.sidecar import SidecarStore
from mainspring.stores.sidecar.file import Files
from mainspring.testing.contract import SettableClock
from mainspring.testing.contract.world import World
from tests.sidecar.files import UnsyncedFiles

UNSYNCED = UnsyncedFiles()


class Place:
    """A folder, and the clock that all stores on it have."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.clock = SettableClock()
        self.path = SidecarStore(folder).path
        self._world = World(self, self.clock)  # one for all: no id is made twice

    async def open(self, files: Files = UNSYNCED) -> SidecarStore:
        store = SidecarStore(self.folder, clock=self.clock, files=files)
        await store.open()
        return store

    async def crash(self, store: object) -> None:
        """Nothing to do: whoever opens a store here closes it."""

    @asynccontextmanager
    async def world(self, files: Files = UNSYNCED) -> AsyncIterator[World]:
        """Open the store for a while, as a process does that comes and goes."""
        store = self._world.store = await self.open(files)
        try:
            yield self._world
        finally:
            await store.close()

    def write(self, text: str | bytes) -> None:
        """Put something in the place of the document."""
        self.path.parent.mkdir(exist_ok=True)
        self.path.write_bytes(text if isinstance(text, bytes) else text.encode())

    def read(self) -> bytes:
        return self.path.read_bytes() if self.path.exists() else b""


async def seen(world: World) -> object:
    """Return all that a document keeps, as the store shows it."""
    store = world.store
    assert isinstance(store, SidecarStore)
    page = await store.list_schedules()
    jobs = [view for view in (await store.list_jobs(JobFilter())).jobs if view.job.state not in FINISHED]
    return (
        page.looks,
        (await store.runs(RunFilter())).runs,
        jobs,
        [await store.failures(look.schedule.name) for look in page.looks],
        await store.queues(),
    )
