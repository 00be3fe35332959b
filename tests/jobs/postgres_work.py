"""A node on PostgreSQL at work, with somebody who enqueues all the time, and what becomes of both when something happens."""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from uuid import UUID

import pytest

from mainspring import Context, Mainspring
from mainspring.core.job import NodeId, State
from mainspring.errors import StoreUnavailable
from mainspring.runtime.node import Node
from mainspring.stores.records import JobView
from tests.servers.system import PATIENCE

TASKS = ("quick", "long")
LONG = 5.0
"""Seconds that some jobs take: they begin before the fault and end after it."""
SOON = PATIENCE
"""Seconds after the end of a fault within which a node goes on; nearly all of it is for a machine that is busy."""
LOST_CLAIM = PATIENCE
"""Seconds until a node has seen twice, a beat apart, that it holds a job of which it never heard, and gave it back:
nearly all of these are for a machine that is busy."""


class Work:
    """An app whose node is at work, and for which somebody enqueues all the time, whatever happens."""

    def __init__(self, url: str, *, lasting: float = LONG) -> None:
        self.app = Mainspring(url)
        self.enqueued: dict[UUID, float] = {}
        """When each enqueue was acknowledged."""
        self.runs: Counter[UUID] = Counter()
        self.ran_at: dict[UUID, float] = {}
        self._node: Node | None = None

        @self.app.task(name="quick")
        async def quick(ctx: Context) -> None:
            self._begin(ctx)

        @self.app.task(name="long")
        async def long(ctx: Context) -> None:
            self._begin(ctx)
            await asyncio.sleep(lasting if self.runs[ctx.job] == 1 else 0)

        self.quick, self.long = quick, long

    def _begin(self, ctx: Context) -> None:
        self.runs[ctx.job] += 1
        self.ran_at[ctx.job] = time.monotonic()

    @property
    def node(self) -> NodeId:
        assert self._node is not None
        return self._node.id

    @asynccontextmanager
    async def going_on(self, *, lease: str = "15s") -> AsyncIterator[None]:
        """Be a node, and enqueue; at the end, only wait until all is done."""
        async with self.app.node(lease=lease) as self._node:
            async with asyncio.TaskGroup() as group:
                feeding = group.create_task(self._feed())
                try:
                    yield
                finally:
                    feeding.cancel()
            await until(lambda: set(self.enqueued) <= set(self.runs), "all jobs to be run", within=LOST_CLAIM)

    async def _feed(self) -> None:
        while True:
            call = self.quick.call()
            acknowledged = False
            while not acknowledged:
                with suppress(StoreUnavailable):
                    await self.app.enqueue_many([call])
                    acknowledged = True
            self.enqueued[call.hand_over().id] = time.monotonic()
            await asyncio.sleep(0.02)

    async def begin_long_jobs(self) -> list[UUID]:
        jobs = await self.long.enqueue_many([self.long.call() for _ in range(5)])
        self.enqueued |= {job.id: time.monotonic() for job in jobs}
        await until(lambda: all(self.runs[job.id] for job in jobs), "the long jobs to begin")
        await until(lambda: len(self.runs) > 30, "the others to come along")
        return [job.id for job in jobs]

    def runs_what_came_after(self, instant: float) -> bool:
        """Whether a job was run that was enqueued after that."""
        return any(at > instant for job, at in self.enqueued.items() if job in self.runs)

    async def views(self) -> list[JobView]:
        views = await self.app.store.get([self.app.job(job).id for job in self.enqueued])
        return [view for view in views if view]


async def until(true: Callable[[], object], what: str, *, within: float = 60.0) -> float:
    """Wait for something; returns how long that took."""
    began = time.monotonic()
    try:
        async with asyncio.timeout(within):
            while not true():
                await asyncio.sleep(0.01)
    except TimeoutError:
        pytest.fail(f"waited {within:g} s for {what}")
    return time.monotonic() - began


@dataclass
class Told:
    """What is said about it all: to those who watch the log, and to those who watch the tests."""

    caplog: pytest.LogCaptureFixture
    capsys: pytest.CaptureFixture[str]

    @property
    def lines(self) -> list[str]:
        said = (record for record in self.caplog.records if record.levelno >= logging.WARNING)
        return [record.getMessage() for record in said if record.name.startswith("mainspring")]

    @property
    def of_notifications(self) -> list[str]:
        return [line for line in self.lines if "notifications" in line]

    def check(self, *, perhaps: bool = False) -> None:
        """Look whether people are told what they need to know, and no more; `perhaps`: or nothing at all."""
        jobs = [line for line in self.lines if "was claimed, but the answer never came; given back" in line]
        about = [line for line in self.lines if line not in jobs and line not in self.of_notifications]
        if perhaps and not about:
            return
        assert len(about) == 2, self.lines
        assert "the database is out of reach" in about[0]
        assert "the database is back after" in about[1]

    def figure(self, text: str) -> None:
        with self.capsys.disabled():
            print(f"\n{text}")  # noqa: T201 - what somebody wants to know who runs the slow tests


async def survive(url: str, fault: Callable[[], object], told: Told, *, unnoticed: bool = False) -> None:
    """Have a node at work while something befalls it, and see what became of its jobs.

    It may be `unnoticed` if it can happen between two statements.
    """
    work = Work(url)
    async with work.app:
        async with work.going_on():
            await work.begin_long_jobs()
            before = work.node
            await asyncio.to_thread(fault)
            over = time.monotonic()
            took = await until(lambda: work.runs_what_came_after(over), "the node to go on", within=SOON)
            # Said of notifications only if they stay away for longer; then they come back later, too.
            await until(lambda: len(told.of_notifications) in {0, 2}, "notifications to be heard again")
        # The node has ended, and what ran with it.
        assert work.node == before, "it was declared dead"
        views = await work.views()
    assert len(views) == len(work.enqueued)
    assert Counter(view.job.state for view in views) == {State.SUCCEEDED: len(views)}
    # One that was being enqueued when that was ended may have run, too, and nobody was told its name.
    assert {job: work.runs[job] for job in work.enqueued} == dict.fromkeys(work.enqueued, 1)
    assert max(work.runs.values()) == 1
    assert {view.job.attempt for view in views} == {1}
    told.figure(f"{len(views)} jobs; it went on {took:.2f} s after the fault was over")
    told.check(perhaps=unnoticed)
