"""A handler that blocks the event loop costs no lease: the keeper has a thread of its own. In real time."""

import asyncio
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import pytest

from mainspring import Mainspring
from mainspring.core.job import State
from mainspring.handle import JobHandle
from mainspring.runtime.node import Node
from mainspring.stores.memory import MemoryStore
from tests.runtime import busy_worker


class RemoteStore(MemoryStore):
    """A store that one node alone may fail to reach, so that a node without renewals stops its work."""

    shares_fate = False


def uvloop() -> asyncio.AbstractEventLoop:
    loop: asyncio.AbstractEventLoop = import_module("uvloop").new_event_loop()
    return loop


@pytest.mark.slow
@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, pytest.param(uvloop, marks=pytest.mark.needs("uvloop"))])
def test_a_blocked_loop_is_no_missed_renewal_on_any_event_loop(
    new_loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    """asyncio runs callbacks of other threads before timers that are due, uvloop runs them after."""
    app = Mainspring(store=RemoteStore())

    @app.task(name="block")
    async def block() -> str:
        await asyncio.sleep(0.1)
        time.sleep(2.5)  # noqa: ASYNC251 - two lease times and more
        return "done"

    @app.task(name="neighbour")
    async def neighbour() -> str:
        await asyncio.sleep(3.5)
        return "done"

    async def work() -> None:
        async with app.node(lease="1s"):
            jobs = [await neighbour.enqueue(), await block.enqueue()]
            for job in jobs:
                assert await job.result("60s") == "done"
                assert (await job.refresh()).job.claims == 1  # not given back and claimed again

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(work())


@pytest.mark.slow
def test_a_handler_that_blocks_the_loop_for_several_lease_times_keeps_its_job(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'jobs.db'}"
    working, watching = Mainspring(url), Mainspring(url)
    over = threading.Event()
    watchers: list[Node] = []

    @working.task(name="block")
    async def block() -> str:
        time.sleep(4)  # noqa: ASYNC251 - that is the point
        return "done"

    async def watch() -> None:
        async with watching.node(lease="1s") as node:
            watchers.append(node)
            while not over.is_set():
                await asyncio.sleep(0.05)

    async def work() -> None:
        async with working.node(lease="1s"):
            job = await block.enqueue()
            assert await job.result("30s") == "done"
            view = await job.refresh()
            assert (view.job.state, view.job.attempt, view.job.claims) == (State.SUCCEEDED, 1, 1)

    watcher = threading.Thread(target=lambda: asyncio.run(watch()))
    watcher.start()
    try:
        asyncio.run(work())
    finally:
        over.set()
        watcher.join()

    (node,) = watchers
    assert node.events.counts["nodes_declared_dead"] == 0


@pytest.mark.slow
def test_a_handler_that_holds_the_interpreter_lock_makes_its_node_busy_and_not_dead(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    url = f"sqlite:///{tmp_path / 'jobs.db'}"
    app = busy_worker.make_app(url)

    async def watch() -> None:
        async with app.node(lease=busy_worker.LEASE, queues=["second"]) as watcher:
            neighbour = await app.enqueue("innocent")
            await until_running(neighbour)
            holder = await app.enqueue("hold")
            assert await holder.result("60s") == "held"
            assert await neighbour.result("60s") == "done"
            for job in (holder, neighbour):
                view = await job.refresh()
                assert (view.job.claims, view.job.losses) == (1, 0)
            assert watcher.events.counts["nodes_declared_dead"] == 0

    command = [sys.executable, "-m", "tests.runtime.busy_worker", url]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as worker:
        try:
            assert worker.stdout
            assert worker.stdout.readline() == "works\n"
            asyncio.run(watch())
        finally:
            worker.kill()

    assert "not renewing while its process is busy" in caplog.text


async def until_running(job: JobHandle[object]) -> None:
    async with asyncio.timeout(30):
        while await job.state() is not State.RUNNING:
            await asyncio.sleep(0.01)
