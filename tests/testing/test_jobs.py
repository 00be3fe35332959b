"""The tools for people who test programs that enqueue jobs."""

import asyncio
from pathlib import Path

import pytest

import mainspring.testing
from mainspring import Context, Mainspring, Retry
from mainspring.core.job import State
from mainspring.testing import (
    VirtualTime,
    assert_enqueued,
    assert_not_enqueued,
    drain,
    enqueued,
    in_memory,
    perform,
)


async def test_what_was_enqueued_can_be_asserted(memory_app: Mainspring) -> None:
    @memory_app.task(name="resize")
    async def resize(photo: int, width: int = 800) -> None: ...

    await resize.enqueue(7)
    await resize.using(queue="slow").enqueue(8, width=200)

    view = await assert_enqueued(memory_app, resize, photo=8)
    assert view.job.queue == "slow"
    await assert_enqueued(memory_app, resize, width=800)
    await assert_enqueued(memory_app, resize, times=2)
    await assert_not_enqueued(memory_app, resize, photo=9)
    assert len(await enqueued(memory_app, resize)) == 2


async def test_a_failing_assertion_says_what_was_there(memory_app: Mainspring) -> None:
    @memory_app.task(name="resize")
    async def resize(photo: int) -> None: ...

    await resize.enqueue(7)

    with pytest.raises(
        AssertionError, match=r"expected a job of resize with \{'photo': 8\}; found 0; .*\{'photo': 7\}"
    ):
        await assert_enqueued(memory_app, resize, photo=8)
    with pytest.raises(AssertionError, match="expected 3 jobs of resize"):
        await assert_enqueued(memory_app, resize, times=3)
    with pytest.raises(AssertionError, match="expected no job of resize"):
        await assert_not_enqueued(memory_app, resize)


@pytest.mark.slow
async def test_drain_runs_what_is_due_and_what_that_brings_about(memory_app: Mainspring) -> None:
    said: list[str] = []

    @memory_app.task(name="child")
    async def child() -> None:
        said.append("child")

    @memory_app.task(name="parent", retry=Retry.fixed("1h", max_attempts=2))
    async def parent(ctx: Context) -> None:
        if ctx.attempt == 1:
            raise ValueError("once")
        said.append("parent")
        await child.enqueue()

    await parent.enqueue()
    later = await child.using(delay="3h").enqueue()

    assert await drain(memory_app) == {State.SUCCEEDED: 2}
    assert said == ["parent", "child"]
    assert (await later.state()) is State.SCHEDULED
    assert await drain(memory_app, scheduled=True) == {State.SUCCEEDED: 1}


async def test_drain_does_not_wait_for_a_paused_queue(memory_app: Mainspring) -> None:
    @memory_app.task(name="work")
    async def work() -> None: ...

    waiting = await work.using(queue="mail").enqueue()
    await memory_app.store.pause("mail")
    await work.enqueue()

    async with asyncio.timeout(3600):
        assert await drain(memory_app) == {State.SUCCEEDED: 1}
    assert await waiting.state() is State.READY


async def test_one_task_runs_through_the_real_pipeline(memory_app: Mainspring) -> None:
    @memory_app.task(name="flaky", retry=Retry.fixed("1s", max_attempts=3))
    async def flaky(ctx: Context, fails: int) -> int:
        ctx.log(f"attempt {ctx.attempt}")
        if ctx.attempt <= fails:
            raise OSError("the network")
        return ctx.attempt

    good = await perform(memory_app, flaky.call(2))
    assert (good.state, good.result) == (State.SUCCEEDED, 3)
    assert [line.message for line in good.lines] == ["attempt 1", "attempt 2", "attempt 3"]
    assert len(good.attempts) == 2

    bad = await perform(memory_app, flaky.call(3))
    assert bad.state is State.FAILED
    assert bad.error
    assert (bad.error.type, bad.error.message, bad.cause) == ("OSError", "the network", "exhausted")


async def test_a_programs_own_app_can_be_tested_in_memory(virtual_time: VirtualTime, tmp_path: Path) -> None:
    file = tmp_path / "jobs.db"
    app = Mainspring(f"sqlite:///{file}")

    @app.task(name="work")
    async def work() -> int:
        await asyncio.sleep(1800)
        return 1

    with in_memory(app, clock=virtual_time.clock):
        job = await work.enqueue()
        await drain(app, grace="2h")
        assert await job.result() == 1

    assert not file.exists()


def test_names_of_the_test_kit_can_be_completed() -> None:
    assert set(mainspring.testing.__all__) == set(dir(mainspring.testing))
