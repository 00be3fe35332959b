"""What the stories about schedules share: all stores, an app on virtual time, and short words for slots and runs.

Imported as `tests.schedules.conftest`, the one file of this folder that pytest itself brings into reach.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from mainspring import Context, Mainspring
from mainspring.core.job import FINISHED, State
from mainspring.core.missed import Reason
from mainspring.core.names import Name
from mainspring.core.schedule import Run, Schedule
from mainspring.stores.memory import MemoryStore
from mainspring.stores.port import Store
from mainspring.stores.postgres import PostgresStore
from mainspring.stores.records import JobView, RunFilter
from mainspring.stores.sqlite import SqliteStore
from mainspring.task import Task
from mainspring.testing import VirtualTime
from mainspring.testing.virtual import START
from tests.servers.postgres import Server

SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
T0 = START
"""When every test begins: midnight, the beginning of 2030."""

MakeStore = Callable[[], Store]
"""Makes handles on one and the same state."""


class Boom(Exception):
    """What a failing handler raises."""


# `make test` runs these on the memory store only (tests/conftest.py), and those of LASTING on SQLite. The contract and the
# comparison show that stores are equal, and tests/chaos/postgres runs nodes on PostgreSQL.
STORES = ["memory", "sqlite", "postgres"]
LASTING = ["sqlite", pytest.param("postgres", marks=pytest.mark.full)]
"""Those that have transactions. They ring for changes only; the memory store rings at every heartbeat too."""


@pytest.fixture(params=STORES)
def make_store(request: pytest.FixtureRequest, tmp_path: Path, virtual_time: VirtualTime) -> MakeStore:
    match request.param:
        case "memory":
            return MemoryStore(clock=virtual_time.clock).another
        case "sqlite":
            return lambda: SqliteStore(tmp_path / "jobs.db", clock=virtual_time.clock, durable=False)
        case _:
            server: Server = request.getfixturevalue("postgres")
            schema: str = request.getfixturevalue("postgres_schema")
            return lambda: PostgresStore(server.dsn(), schema=schema, clock=virtual_time.clock)


@pytest.fixture
def app(make_store: MakeStore, virtual_time: VirtualTime) -> Mainspring:
    return Mainspring(store=make_store(), clock=virtual_time.clock)


# Time.


def now() -> float:
    return asyncio.get_running_loop().time()


async def until(time: float | timedelta) -> None:
    """Wait for a time since the start of the test."""
    await asyncio.sleep((time.total_seconds() if isinstance(time, timedelta) else time) - now())


async def pass_by(time: timedelta) -> None:
    await asyncio.sleep(time.total_seconds())


# Schedules and what became of their slots.


async def runs(app: Mainspring, name: str | None = None) -> list[Run]:
    """Read all runs, the first decision first."""
    async with app:
        which = RunFilter(schedule=None if name is None else Name.parse(name))
        page = await app.store.runs(which, limit=500)
        found = list(page.runs)
        while page.after is not None:
            page = await app.store.runs(which, limit=500, after=page.after)
            found += page.runs
    return found[::-1]


async def fired(app: Mainspring, name: str | None = None) -> list[Run]:
    """Read the runs that made a job, in the order of their slots."""
    return sorted((run for run in await runs(app, name) if run.job), key=lambda run: run.slot or run.decided_at)


async def dropped(app: Mainspring, name: str | None = None) -> list[tuple[Reason | None, int]]:
    """Say for which reasons how many slots made no job, run by run."""
    return [(run.reason, run.count) for run in await runs(app, name) if not run.job]


def slots(runs: Iterable[Run]) -> list[datetime | None]:
    return [run.slot for run in runs]


async def schedules(app: Mainspring) -> dict[str, Schedule]:
    """Read all schedules that are kept, by name."""
    async with app:
        page = await app.store.list_schedules(limit=10_000)
        assert page.after is None
        return {str(look.schedule.name): look.schedule for look in page.looks}


async def jobs(app: Mainspring) -> list[JobView]:
    """Read all jobs, the first made first."""
    async with app:
        page = await app.jobs(limit=10_000)
        assert page.after is None
        return list(page.jobs)[::-1]


async def all_ended(app: Mainspring) -> None:
    """Wait until no job waits or runs."""
    async with asyncio.timeout(600):
        while any(view.job.state not in FINISHED for view in await jobs(app)):
            await asyncio.sleep(0.5)


async def states(app: Mainspring) -> Counter[State]:
    return Counter(view.job.state for view in await jobs(app))


@dataclass(slots=True)
class Call:
    """One execution of a handler, as its context tells of it."""

    began: float
    schedule: str | None
    slot: datetime | None
    lateness: timedelta
    is_catch_up: bool
    zone: str
    attempt: int
    ended: float | None = None


@dataclass(slots=True)
class Diary:
    """What a task that takes its time writes down."""

    calls: list[Call] = field(default_factory=list)
    most_at_once: int = 0
    running: int = 0

    @property
    def slots(self) -> list[datetime | None]:
        return [call.slot for call in self.calls]

    @property
    def times(self) -> list[float]:
        return [call.began for call in self.calls]

    async def write(self, ctx: Context, takes: float = 0.0, stopping: float = 0.0) -> None:
        """Be the body of a handler; one that is cancelled needs so many seconds to stop."""
        call = Call(now(), ctx.schedule, ctx.slot, ctx.lateness, ctx.is_catch_up, ctx.zone, ctx.attempt)
        self.calls.append(call)
        self.running += 1
        self.most_at_once = max(self.most_at_once, self.running)
        try:
            await asyncio.sleep(takes)
        except asyncio.CancelledError:
            await asyncio.sleep(stopping)
            raise
        finally:
            self.running -= 1
            call.ended = now()


def diary_task(
    app: Mainspring,
    name: str = "work",
    *,
    takes: float = 0.0,
    **options: Any,  # noqa: ANN401 - as app.task takes them
) -> "tuple[Task[[], None], Diary]":
    """Declare a task that writes down when it was run and what for."""
    diary = Diary()

    async def work(ctx: Context) -> None:
        await diary.write(ctx, takes)

    return app.task(name=name, **options)(work), diary


@asynccontextmanager
async def opened(store: Store) -> AsyncIterator[Store]:
    """Open another handle, and close it at the end of the block."""
    await store.open()
    try:
        yield store
    finally:
        await store.close()


def every(runs: Sequence[Run], state: State) -> bool:
    """Say whether all of them ended so, and there are any."""
    return bool(runs) and all(run.state is state for run in runs)
