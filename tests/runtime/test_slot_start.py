"""Start of a process for a task: the timeout counts only while the function runs."""

import asyncio
import importlib
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from mainspring import Mainspring
from mainspring.core.job import Cause
from mainspring.errors import JobFailed, SlotStartTimeout
from mainspring.runtime.executors.process import ProcessExecutor
from mainspring.stores.memory import MemoryStore
from tests.runtime import slot_tasks
from tests.runtime.calling import Notebook, attempt, context_of, task

pytestmark = pytest.mark.slow

SLOW_TO_IMPORT = """
import time
from mainspring import Context
from mainspring.runtime.call import IN_SLOT

if IN_SLOT.is_set():  # the node itself has imported it long ago
    time.sleep({seconds})

def remaining(ctx: Context) -> float | None:
    return ctx.remaining()

def endless() -> None:
    time.sleep(60)
"""


@pytest.fixture
def slow_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """A module that takes 3 s to import in a process slot."""
    (tmp_path / "slow_to_import.py").write_text(SLOW_TO_IMPORT.format(seconds=3), encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield importlib.import_module("slow_to_import")
    del sys.modules["slow_to_import"]


def test_a_module_may_take_longer_to_import_than_the_timeout_of_its_task(slow_module: ModuleType) -> None:
    app = Mainspring(MemoryStore())
    remaining = app.task(executor="process", timeout="2s")(slow_module.remaining)

    async def story() -> tuple[float | None, int]:
        async with app, app.node(processes=1):
            job = await remaining.enqueue()
            return await job.result("1m"), (await job.refresh()).job.attempt

    left, attempts = asyncio.run(story())

    assert left is not None
    assert 0 < left <= 2
    assert attempts == 1


def test_the_timeout_holds_from_the_beginning_of_the_function(slow_module: ModuleType) -> None:
    app = Mainspring(MemoryStore())
    endless = app.task(executor="process", timeout="200ms")(slow_module.endless)

    async def story() -> None:
        async with app, app.node(processes=1):
            await (await endless.using(max_attempts=1).enqueue()).result("50s")

    with pytest.raises(JobFailed, match=r"longer than 0\.2 s") as failed:
        asyncio.run(story())
    assert failed.value.cause == Cause.EXHAUSTED


def test_the_time_left_stands_still_on_the_node_while_the_module_is_imported(slow_module: ModuleType) -> None:
    definition = task(slow_module.remaining, "process")
    facts = attempt(definition, timeout=600)

    async def story() -> tuple[object, float | None, float, float]:
        context, link = context_of(facts, Notebook())
        executor = ProcessExecutor(1)
        began = time.monotonic()
        left = await executor.call(definition, facts, context)
        after = context.remaining()
        took = time.monotonic() - began
        await executor.close()
        return left, after, link.paused, took

    left, after, paused, took = asyncio.run(story())

    assert paused >= 3
    assert isinstance(left, float)
    assert after is not None
    assert max(left, after) <= 600
    assert 600 - min(left, after) <= took - paused + 0.1, "the import does not count"


def test_an_import_that_takes_too_long_is_ended_and_named(slow_module: ModuleType) -> None:
    definition = task(slow_module.remaining, "process")
    facts = attempt(definition)

    async def story() -> None:
        executor = ProcessExecutor(1, start_limit=0.5)
        async with asyncio.timeout(60):
            try:
                await executor.call(definition, facts, context_of(facts, Notebook())[0])
            finally:
                await executor.close()

    with pytest.raises(SlotStartTimeout, match="importing slow_to_import took longer than") as late:
        asyncio.run(story())
    assert isinstance(late.value, TimeoutError)
    assert (late.value.module, late.value.seconds) == ("slow_to_import", 0.5)


def test_a_process_that_does_not_begin_a_later_call_is_ended_after_the_same_limit() -> None:
    definition = task(slot_tasks.who, "process")
    facts = attempt(definition, timeout=1)

    async def story() -> tuple[object, object]:
        executor = ProcessExecutor(1, start_limit=8)
        try:
            async with asyncio.timeout(60):
                stopped = await executor.call(definition, facts, context_of(facts, Notebook())[0])
                assert isinstance(stopped, int)
                os.kill(stopped, signal.SIGSTOP)
                with pytest.raises(SlotStartTimeout):
                    await executor.call(definition, facts, context_of(facts, Notebook())[0])
                return stopped, await executor.call(definition, facts, context_of(facts, Notebook())[0])
        finally:
            await executor.close()

    stopped, following = asyncio.run(story())

    assert isinstance(following, int)
    assert following != stopped
