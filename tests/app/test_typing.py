"""What type checkers know of tasks: mypy reads this file with everything else, and each line here is a test of it.

`assert_type` fails the check where a type is another; an ignore that is not needed fails it too, so that every wrong
call below is known to be an error.
"""

from collections.abc import Coroutine
from typing import Any, assert_type

from mainspring import Context, JobHandle, Mainspring, Task
from mainspring.client.calls import Call
from mainspring.testing import VirtualTime

app = Mainspring("memory://")


@app.task
async def resize(photo: int, width: int = 800) -> str:
    return f"{photo} at {width}"


@app.task(name="plain", priority="high")
def plain(photo: int, *, width: int = 800) -> list[int]:
    return [photo, width]


@app.task
async def report(ctx: Context, day: int) -> bytes:
    return f"{ctx.attempt} {day}".encode()


@app.task(queue="slow")
def watched(ctx: Context) -> float:
    return ctx.attempt / 2


async def test_arguments_and_results_keep_their_types(virtual_time: VirtualTime) -> None:
    assert_type(await resize.enqueue(7, width=200), JobHandle[str])
    assert_type(await plain.enqueue(7, width=200), JobHandle[list[int]])
    assert_type(await resize.using(delay="10m").enqueue(7), JobHandle[str])
    assert_type(await resize.using(delay="10m").using(priority=3).enqueue(photo=7), JobHandle[str])
    assert_type(resize.call(7), Call[str])
    assert_type(resize.using(priority="low").call(7, 200), Call[str])
    assert_type(await resize.enqueue_many([resize.call(n) for n in range(3)]), list[JobHandle[str]])
    assert_type(resize.enqueue_sync(7), JobHandle[str])
    assert_type(resize.enqueue_many_sync([resize.call(7)]), list[JobHandle[str]])
    handle = await resize.enqueue(7)
    assert_type(app.job(handle.id), JobHandle[Any])
    assert_type(app.job(handle.id, plain), JobHandle[list[int]])
    assert virtual_time.elapsed == 0


async def result_types(text: JobHandle[str], numbers: JobHandle[list[int]]) -> None:
    assert_type(await text.result(timeout="5s"), str)
    assert_type(numbers.result_sync(), list[int])


async def test_a_context_is_no_part_of_what_is_passed(virtual_time: VirtualTime) -> None:
    assert_type(await report.enqueue(3), JobHandle[bytes])
    assert_type(await report.enqueue(day=3), JobHandle[bytes])
    assert_type(await watched.enqueue(), JobHandle[float])
    assert_type(watched.using(tags=["a"]).call(), Call[float])
    assert virtual_time.elapsed == 0


async def test_a_task_is_called_as_the_function_that_it_is(virtual_time: VirtualTime) -> None:
    assert_type(plain(7, width=2), list[int])
    assert await assert_type(resize(7), Coroutine[Any, Any, str]) == "7 at 800"
    assert plain(7, width=2) == [7, 2]
    assert virtual_time.elapsed == 0


def test_a_task_can_be_named_as_a_type() -> None:
    def takes(task: Task[[int, int], str]) -> Call[str]:
        return task.call(7, 200)

    def takes_any(task: Task[..., Any]) -> str:
        return task.name

    assert takes(resize).hand_over().payload == resize.call(7, width=200).hand_over().payload
    assert takes_any(plain) == "plain"


async def wrong_tasks() -> None:
    """As below."""
    wrong: Task[[int], str] = plain  # type: ignore[assignment]  # it has another result
    await wrong.enqueue(7)


async def wrong_calls() -> None:
    """Never called: type checkers look at it, and each line must be an error to them."""
    await resize.enqueue("seven")  # type: ignore[arg-type]  # a text for a number
    await resize.enqueue()  # type: ignore[call-arg]  # nothing
    await resize.enqueue(7, hight=3)  # type: ignore[call-arg]  # an unknown name
    await resize.using(delay="10m").enqueue("seven")  # type: ignore[arg-type]  # types are kept
    await resize.using(delya="10m").enqueue(7)  # type: ignore[call-arg]  # an unknown option
    await resize.using(delay=[]).enqueue(7)  # type: ignore[arg-type]  # an option of another type
    resize.call(7, "wide")  # type: ignore[arg-type]  # a text for a number
    await resize.enqueue_many([plain.call(7)])  # type: ignore[list-item]  # calls of a task with another result
    await report.enqueue()  # type: ignore[call-arg]  # the day is missing
    await report.enqueue(3, 4)  # type: ignore[call-arg]  # the context does not count
    await resize("seven")  # type: ignore[arg-type]  # as with the function itself
    app.task(nmae="x")  # type: ignore[call-overload]  # an unknown option
    app.node(concurency=3)  # type: ignore[call-arg]  # an unknown setting
