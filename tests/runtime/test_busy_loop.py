"""A handler that blocks the event loop costs no lease: the keeper has a thread of its own. In real time."""

import asyncio
import threading
import time
from pathlib import Path

import pytest

from mainspring import Mainspring
from mainspring.core.job import State
from mainspring.runtime.node import Node


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
