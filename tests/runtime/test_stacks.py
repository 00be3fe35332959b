"""Where a node stands: each thread and task has its stack, down to what it waits for, and says which job it runs."""

import asyncio
import threading
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainspring import Mainspring
from mainspring.client.orders import answered, give
from mainspring.client.stacks import Stack, parts_of
from mainspring.duration import duration
from mainspring.runtime.stacks import MOST_TASKS, stacks
from mainspring.stores.memory import MemoryStore
from mainspring.stores.records import DumpStacks
from mainspring.testing import VirtualTime


async def stood(app: Mainspring, node: str) -> tuple[Stack, ...]:
    order = await give(app.store, node, DumpStacks())
    return parts_of((await answered(app.store, order, duration("1m"))).answer or "")


async def deep_down(gate: asyncio.Event) -> None:
    await gate.wait()


async def test_a_job_is_seen_down_to_what_it_waits_for(virtual_time: VirtualTime) -> None:
    app = Mainspring(MemoryStore(clock=virtual_time.clock), clock=virtual_time.clock)
    gate = asyncio.Event()

    @app.task(name="dig")
    async def dig() -> None:
        await deep_down(gate)

    async with app, app.node() as node:
        jobs = {(await dig.enqueue()).id for _ in range(2)}
        await asyncio.sleep(1)
        parts = await stood(app, node.id)
        gate.set()
    ours = [one for one in parts if one.job]
    assert {one.job for one in ours} == jobs
    assert parts[:2] == tuple(ours)  # they come first
    for one in ours:
        assert one.title.endswith("(dig)")
        names = [line.rpartition(" in ")[2] for line in one.text.splitlines() if line.lstrip().startswith("File ")]
        assert names[-3:] == ["dig", "deep_down", "wait"]


async def test_a_function_is_seen_in_its_thread(virtual_time: VirtualTime) -> None:
    app = Mainspring(MemoryStore(clock=virtual_time.clock), clock=virtual_time.clock)
    begun, gate = threading.Event(), threading.Event()

    @app.task(name="block")
    def block() -> None:
        begun.set()
        gate.wait(30)

    async with app, app.node() as node:
        job = await block.enqueue()
        while not begun.is_set():
            await asyncio.sleep(0)
        text = stacks(node._parts.runner.unstoppable())  # virtual time stands still for an order
        gate.set()
        await job.result("1m")
    (part,) = [one for one in parts_of(text) if one.job and one.title.startswith("thread ")]
    assert part.job == job.id
    assert "in block\n" in part.text


@given(name=st.text(), job=st.booleans())
def test_a_name_does_not_look_like_another_stack(name: str, job: bool) -> None:
    before = threading.current_thread().name
    threading.current_thread().name = name + (" of job 00000000-0000-0000-0000-00000000000x (a)" if job else "")
    try:
        (part,) = [one for one in parts_of(stacks()) if "test_a_name_does_not_look" in one.text]
    finally:
        threading.current_thread().name = before
    assert part.title.startswith("thread")
    assert part.job is None


class Endless:
    """Has almost every attribute that it is asked for, as what stands in for something else often does."""

    def __init__(self, future: "asyncio.Future[None]") -> None:
        self._inner = future.__await__()

    def __await__(self) -> Any:  # noqa: ANN401 - it stands in for whatever is waited for
        return self

    def __iter__(self) -> "Endless":
        return self

    def __next__(self) -> Any:  # noqa: ANN401 - what the loop waits for
        return next(self._inner)

    def __getattr__(self, name: str) -> "Endless":
        if name in {"send", "throw", "close"}:
            raise AttributeError(name)
        return self


@pytest.mark.usefixtures("virtual_time")
async def test_what_has_no_end_is_not_followed_for_ever() -> None:
    async def wait() -> None:
        await Endless(asyncio.get_running_loop().create_future())

    task = asyncio.create_task(wait(), name="endless")
    await asyncio.sleep(0)
    (one,) = [one for one in parts_of(stacks()) if one.title == "task endless"]
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert one.text.count(" in wait") == 1


async def test_of_very_many_tasks_some_are_told_and_all_that_run_a_job(virtual_time: VirtualTime) -> None:
    app = Mainspring(MemoryStore(clock=virtual_time.clock), clock=virtual_time.clock)
    gate = asyncio.Event()

    @app.task(name="dig")
    async def dig() -> None:
        await gate.wait()

    others = [asyncio.create_task(gate.wait()) for _ in range(2 * MOST_TASKS)]
    async with app, app.node() as node:
        job = await dig.enqueue()
        await asyncio.sleep(1)
        parts = await stood(app, node.id)
        gate.set()
    await asyncio.gather(*others)
    tasks = [one for one in parts if one.title.startswith("task ")]
    assert len(tasks) == MOST_TASKS
    assert parts[0].job == job.id
    assert [one.title for one in parts if "more tasks" in one.title]
