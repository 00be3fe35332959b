"""What a newcomer types first, and what is said about it."""

import asyncio

import pytest

from mainspring import Mainspring
from mainspring.errors import DeclarationError, IllegalTransition, PayloadError
from mainspring.testing import perform


async def test_options_among_the_arguments(memory_app: Mainspring) -> None:
    @memory_app.task(name="work")
    async def work(number: int) -> None: ...

    with pytest.raises(PayloadError, match=r"options go before it: \.using\(delay=…\)\.enqueue\(…\)"):
        await work.enqueue(1, delay="5s")  # type: ignore[call-arg]  # that is the point


async def test_many_of_something_that_is_no_call(memory_app: Mainspring) -> None:
    @memory_app.task(name="work")
    async def work(number: int) -> None: ...

    with pytest.raises(DeclarationError, match=r"it takes calls, like \[task.call\(1\), task.call\(2\)\], and not 1"):
        await work.enqueue_many([1, 2])  # type: ignore[list-item]  # that is the point


async def test_waiting_for_a_result_where_that_would_stop_the_loop(memory_app: Mainspring) -> None:
    @memory_app.task(name="work")
    async def work() -> None: ...

    job = await work.enqueue()
    with pytest.raises(RuntimeError, match=r"would block the event loop of this thread; write `await job.result\(\)`"):
        job.result_sync()


async def test_a_retry_of_what_waits_anyway(memory_app: Mainspring) -> None:
    @memory_app.task(name="work")
    async def work() -> None: ...

    job = await work.enqueue()
    with pytest.raises(IllegalTransition, match="it waits, and will run by itself"):
        await job.retry()


async def test_a_forgotten_return(memory_app: Mainspring) -> None:
    @memory_app.task(name="work", max_attempts=1)
    async def work() -> int:
        await asyncio.sleep(0)
        return None  # type: ignore[return-value]  # that is the point

    done = await perform(memory_app, work.call())
    assert done.error
    assert "int" in done.error.message


async def test_a_task_that_no_worker_knows_is_told_of(memory_app: Mainspring, caplog: pytest.LogCaptureFixture) -> None:
    elsewhere = Mainspring(store=memory_app._connection._source.make(memory_app.clock), clock=memory_app.clock)

    @elsewhere.task(name="unknown")
    async def unknown() -> None: ...

    await unknown.enqueue()
    async with memory_app.node(prune_every="10s"):
        await asyncio.sleep(120)

    assert caplog.text.count("jobs of unknown wait, and no live node knows that task") == 1
