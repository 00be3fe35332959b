"""Functions on the node's own loop."""

import asyncio

import pytest

from mainspring.errors import Escaped, PayloadError
from mainspring.runtime.call import CallFacts, current_call
from mainspring.runtime.context import Context
from mainspring.runtime.executors.coroutine import CoroutineExecutor
from mainspring.runtime.executors.errors import attempt_error
from mainspring.testing import VirtualTime
from tests.runtime.calling import JOB, Notebook, attempt, context_of, task


async def test_a_coroutine_gets_its_arguments_and_its_result_comes_back(virtual_time: VirtualTime) -> None:
    async def join(first: str, /, *rest: int, end: str = ".") -> str:
        await asyncio.sleep(1)
        return first + "".join(map(str, rest)) + end

    definition = task(join)

    assert await CoroutineExecutor().call(definition, attempt(definition, "a", 1, 2, end="!")) == "a12!"
    assert virtual_time.elapsed == 1


async def test_a_coroutine_gets_its_context(virtual_time: VirtualTime) -> None:
    async def remember(page: int, *, ctx: Context) -> None:
        await ctx.save("page", page)

    definition, notebook = task(remember), Notebook()
    facts = attempt(definition, 7)

    await CoroutineExecutor().call(definition, facts, context_of(facts, notebook, virtual_time.clock)[0])

    assert notebook.saved == [b'{"page":7}']


async def test_a_task_that_takes_a_context_is_not_called_without(virtual_time: VirtualTime) -> None:
    async def remember(ctx: Context) -> None:
        await ctx.save("page", 7)

    definition = task(remember)

    with pytest.raises(TypeError, match="takes a context"):
        await CoroutineExecutor().call(definition, attempt(definition))
    assert virtual_time.elapsed == 0


async def test_what_a_coroutine_calls_knows_the_attempt_it_belongs_to(virtual_time: VirtualTime) -> None:
    async def look() -> None:
        seen.append(current_call.get())

    seen: list[CallFacts | None] = []
    definition = task(look)
    facts = attempt(definition)

    await asyncio.create_task(CoroutineExecutor().call(definition, facts))
    await look()

    assert seen == [facts, None]
    assert virtual_time.elapsed == 0


async def test_a_cancel_reaches_the_coroutine_where_it_waits(virtual_time: VirtualTime) -> None:
    async def work(ctx: Context) -> None:
        try:
            await asyncio.sleep(60)
        finally:
            seen.append((ctx.cancelled, virtual_time.elapsed))

    seen: list[tuple[bool, float]] = []
    definition = task(work)
    facts = attempt(definition)
    ctx, link = context_of(facts, Notebook(), virtual_time.clock)
    executor = CoroutineExecutor()
    call = asyncio.create_task(executor.call(definition, facts, ctx))

    await asyncio.sleep(5)
    assert executor.busy == 1
    link.stop()
    call.cancel()
    await asyncio.wait([call])

    assert call.cancelled()
    assert (seen, executor.busy) == ([(True, 5.0)], 0)


# Q10: a panic in a job killed the loop that ran all of them.
async def test_a_job_that_exits_is_an_error_of_the_job(virtual_time: VirtualTime) -> None:
    async def leave() -> None:
        raise SystemExit(3)

    definition = task(leave)

    with pytest.raises(Escaped, match="SystemExit: 3") as caught:
        await asyncio.create_task(CoroutineExecutor().call(definition, attempt(definition)))

    error = attempt_error(caught.value)
    assert (error.type, error.message) == ("SystemExit", "3")
    assert error.traceback.splitlines()[1].endswith("in leave")
    assert virtual_time.elapsed == 0


async def test_a_payload_that_does_not_fit_is_an_error_of_the_job(virtual_time: VirtualTime) -> None:
    async def old(page: str) -> str:
        return page

    async def new(page: int) -> int:
        return page

    facts = attempt(task(old), "seven")

    with pytest.raises(PayloadError, match="page"):
        await CoroutineExecutor().call(task(new), facts)
    assert (facts.job, virtual_time.elapsed) == (JOB, 0)
