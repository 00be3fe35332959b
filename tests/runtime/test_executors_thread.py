"""Functions in threads of the node. The threads are real; the time on the loop is virtual, and stands still meanwhile."""

import asyncio
import gc
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable
from contextvars import ContextVar

import pytest

from mainspring.core.retry import Retry
from mainspring.errors import Escaped, JobCancelled, LeaseLost, PayloadError, ShuttingDown
from mainspring.runtime.call import current_call
from mainspring.runtime.context import Context
from mainspring.runtime.definition import ExecutorKind
from mainspring.runtime.executors.errors import attempt_error
from mainspring.runtime.executors.thread import ThreadExecutor
from mainspring.stores.records import Note, Progress
from mainspring.testing import VirtualTime
from tests.runtime.calling import ROOT, Notebook, attempt, context_of, task

THREAD = ExecutorKind.THREAD
SOON = 60.0
"""Real seconds that a thread of these stories may take at the very most."""

colour: ContextVar[str] = ContextVar("colour", default="none")


async def call(executor: ThreadExecutor, function: Callable[..., object], *args: object) -> object:
    definition = task(function, THREAD)
    return await executor.call(definition, attempt(definition, *args))


# The call.


async def test_a_function_runs_in_a_thread_of_ours_and_its_result_comes_back(virtual_time: VirtualTime) -> None:
    def add(a: int, b: int) -> int:
        threads.append(threading.current_thread())
        return a + b

    threads: list[threading.Thread] = []

    assert await call(ThreadExecutor(), add, 1, 2) == 3
    (thread,) = threads
    assert (thread.name, thread.daemon) == ("mainspring thread 1", True)
    assert virtual_time.elapsed == 0


async def test_threads_are_used_again(virtual_time: VirtualTime) -> None:
    def who() -> None:
        names.append(threading.current_thread().name)

    names: list[str] = []
    executor = ThreadExecutor()

    for _ in range(5):
        await call(executor, who)

    assert names == ["mainspring thread 1"] * 5
    assert virtual_time.elapsed == 0


async def test_there_are_as_many_threads_as_there_are_calls(virtual_time: VirtualTime) -> None:
    def meet() -> int:
        return gate.wait(SOON)

    gate = threading.Barrier(20)  # nobody passes before all are there

    executor = ThreadExecutor()
    numbers = await asyncio.gather(*(call(executor, meet) for _ in range(20)))

    assert sorted(numbers) == list(range(20))  # type: ignore[type-var]  # they are ints
    assert (executor.busy, virtual_time.elapsed) == (0, 0)


async def test_a_function_sees_the_variables_of_its_caller_and_keeps_its_own(virtual_time: VirtualTime) -> None:
    def look() -> str:
        seen = colour.get()
        colour.set("green")
        return seen

    executor = ThreadExecutor()
    colour.set("red")

    assert [await call(executor, look), await call(executor, look), colour.get()] == ["red"] * 3
    assert virtual_time.elapsed == 0


async def test_a_function_knows_the_attempt_it_belongs_to(virtual_time: VirtualTime) -> None:
    def look() -> None:
        seen.append(current_call.get())

    seen: list[object] = []
    definition = task(look, THREAD)
    facts = attempt(definition)

    await ThreadExecutor().call(definition, facts)

    assert seen == [facts]
    assert virtual_time.elapsed == 0


async def test_time_stands_still_while_a_thread_works(virtual_time: VirtualTime) -> None:
    def work() -> str:
        time.sleep(0.05)
        return "done"

    async def tick() -> None:
        await asyncio.sleep(0.001)
        ticks.append(virtual_time.elapsed)

    ticks: list[float] = []
    ticking = asyncio.create_task(tick())

    assert await call(ThreadExecutor(), work) == "done"
    assert ticks == []
    await ticking


async def test_a_thread_at_rest_keeps_nothing_of_its_last_call(virtual_time: VirtualTime) -> None:
    class Large:
        """Something that a job made."""

    def work() -> None:
        large = Large()
        made.append(weakref.ref(large))
        raise ValueError(large)

    made: list[weakref.ref[Large]] = []
    with pytest.raises(ValueError, match="Large"):
        await call(ThreadExecutor(), work)

    gc.collect()

    assert [one() for one in made] == [None]
    assert virtual_time.elapsed == 0


# Errors.


async def test_an_error_comes_over_as_it_is(virtual_time: VirtualTime) -> None:
    def work() -> None:
        raise error

    error = ValueError("no")

    definition = task(work, THREAD)
    with pytest.raises(ValueError, match="no") as caught:
        await asyncio.create_task(ThreadExecutor().call(definition, attempt(definition)))

    assert caught.value is error
    error.__traceback__ = error.__traceback__ and error.__traceback__.tb_next  # without the frame of this test
    assert attempt_error(error).traceback.splitlines()[1].endswith("in work")
    assert virtual_time.elapsed == 0


# Q10: a panic in a job killed the loop that ran all of them.
@pytest.mark.parametrize(
    "error",
    [SystemExit(3), KeyboardInterrupt(), StopIteration("it"), GeneratorExit(), asyncio.CancelledError()],
    ids=lambda error: type(error).__name__,
)
async def test_what_an_event_loop_would_misread_is_an_error_of_the_job(
    virtual_time: VirtualTime, error: BaseException
) -> None:
    def work() -> None:
        raise error

    def fine() -> int:
        return 1

    executor = ThreadExecutor()

    with pytest.raises(Escaped) as caught:
        await asyncio.create_task(call(executor, work))

    assert caught.value.__cause__ is error
    assert attempt_error(caught.value).type.endswith(type(error).__name__)
    assert Retry.fixed(1).wants(caught.value)
    assert await call(executor, fine) == 1
    assert virtual_time.elapsed == 0


async def test_a_payload_that_does_not_fit_is_an_error_of_the_job(virtual_time: VirtualTime) -> None:
    def old(page: str) -> str:
        return page

    def new(page: int) -> int:
        return page

    with pytest.raises(PayloadError, match="page"):
        await ThreadExecutor().call(task(new, THREAD), attempt(task(old, THREAD), "seven"))
    assert virtual_time.elapsed == 0


# Stopping.


class Story:
    """A call under way, whose function goes on when it is told to."""

    def __init__(
        self, function: Callable[..., object], clock: VirtualTime, executor: ThreadExecutor | None = None
    ) -> None:
        definition = task(function, THREAD)
        facts = attempt(definition)
        self.notebook = Notebook()
        self.executor = executor or ThreadExecutor()
        self.ctx, self.link = context_of(facts, self.notebook, clock.clock)
        self.call = asyncio.create_task(self.executor.call(definition, facts, self.ctx))

    async def turn(self) -> None:
        """Let the loop do what it has to do at once."""
        for _ in range(5):
            await asyncio.sleep(0)


# Q11, F19: a timeout dropped the future, and the handler was never told.
async def test_a_function_is_told_to_stop_and_waited_for(virtual_time: VirtualTime) -> None:
    def work(ctx: Context) -> str:
        while not ctx.cancelled:
            time.sleep(0.001)
        assert go_on.wait(SOON)
        return "it was nearly done"

    go_on = threading.Event()
    story = Story(work, virtual_time)
    await story.turn()

    for _ in range(3):
        story.call.cancel()
        await story.turn()
        assert not story.call.done()
    go_on.set()

    assert await story.call == "it was nearly done"


async def test_a_timeout_does_not_undo_a_success(virtual_time: VirtualTime) -> None:
    def work(ctx: Context) -> str:
        while not ctx.cancelled:
            time.sleep(0.001)
        return "done"

    async def limited() -> object:
        async with asyncio.timeout(0):
            return await story.call

    story = Story(work, virtual_time)

    assert await limited() == "done"


async def test_a_function_that_stops_by_raising_has_raised(virtual_time: VirtualTime) -> None:
    def work(ctx: Context) -> None:
        while True:
            ctx.raise_if_cancelled()
            time.sleep(0.001)

    story = Story(work, virtual_time)
    await story.turn()
    story.call.cancel()

    with pytest.raises(JobCancelled):
        await story.call


# Coroutines in threads.


async def test_a_coroutine_in_a_thread_has_a_loop_of_its_own(virtual_time: VirtualTime) -> None:
    async def work(ctx: Context) -> str:
        await asyncio.sleep(0.01)
        await ctx.save("page", 7)
        loops.append(asyncio.get_running_loop())
        return f"{ctx.load('page')} in {threading.current_thread().name}"

    loops: list[asyncio.AbstractEventLoop] = []
    story = Story(work, virtual_time)

    assert await story.call == "7 in mainspring thread 1"
    assert loops[0] is not asyncio.get_running_loop()
    assert loops[0].is_closed()
    assert story.notebook.saved == [b'{"page":7}']


async def test_a_coroutine_in_a_thread_is_cancelled_there(virtual_time: VirtualTime) -> None:
    async def work(ctx: Context) -> None:
        began.set()
        try:
            await asyncio.sleep(SOON)
        finally:
            await asyncio.sleep(0.01)  # cleaning up is not disturbed by a second cancel
            ended.append(ctx.cancelled)

    began, ended = threading.Event(), list[bool]()
    story = Story(work, virtual_time)
    await asyncio.to_thread(began.wait, SOON)

    story.call.cancel()
    await story.turn()
    story.call.cancel()
    await asyncio.wait([story.call])

    assert story.call.cancelled()
    assert ended == [True]


async def test_a_coroutine_may_turn_a_cancel_into_a_success(virtual_time: VirtualTime) -> None:
    async def work(ctx: Context) -> str:
        began.set()
        try:
            await asyncio.sleep(SOON)
        except asyncio.CancelledError:
            return "half"
        return f"whole {ctx.job}"

    began = threading.Event()
    story = Story(work, virtual_time)
    await asyncio.to_thread(began.wait, SOON)
    story.call.cancel()

    assert await story.call == "half"


# The context in a thread.


async def test_a_save_in_a_thread_is_durable_when_it_returns(virtual_time: VirtualTime) -> None:
    def work(ctx: Context) -> int:
        ctx.progress(50, "half")
        ctx.log("one")
        ctx.save("page", 7)
        return len(notebook.saved)

    notebook = Notebook()
    definition = task(work, THREAD)
    facts = attempt(definition)
    ctx, link = context_of(facts, notebook, virtual_time.clock)

    assert await ThreadExecutor().call(definition, facts, ctx) == 1
    await link.flush()
    assert notebook.progress == [Progress(50.0, "half")]
    assert [line.message for line in notebook.lines] == ["one"]


async def test_time_passes_while_a_thread_waits_for_its_save(virtual_time: VirtualTime) -> None:
    class SlowNotebook(Notebook):
        async def write(self, note: Note) -> bool:
            await asyncio.sleep(30)
            return await super().write(note)

    def work(ctx: Context) -> None:
        with_others = [threading.Thread(target=ctx.save, args=(key, 1)) for key in "ab"]
        for thread in with_others:
            thread.start()
        ctx.save("page", 7)
        for thread in with_others:
            thread.join()
        time.sleep(0.01)  # time stands still again: this takes none

    notebook = SlowNotebook()
    definition = task(work, THREAD)
    facts = attempt(definition)
    ctx, _ = context_of(facts, notebook, virtual_time.clock)

    await ThreadExecutor().call(definition, facts, ctx)

    assert virtual_time.elapsed in {30, 60, 90}  # one write, or more for those who came while one was under way
    assert sorted(ctx.load(key) for key in ("a", "b", "page")) == [1, 1, 7]


async def test_a_refused_save_raises_in_the_thread(virtual_time: VirtualTime) -> None:
    def work(ctx: Context) -> None:
        ctx.save("page", 7)

    definition = task(work, THREAD)
    facts = attempt(definition)
    ctx, _ = context_of(facts, Notebook(holds_lease=False), virtual_time.clock)

    with pytest.raises(LeaseLost):
        await ThreadExecutor().call(definition, facts, ctx)


# The end.


async def test_a_closed_executor_takes_nothing_new_and_its_threads_end(virtual_time: VirtualTime) -> None:
    def who() -> None:
        threads.append(threading.current_thread())

    threads: list[threading.Thread] = []
    executor = ThreadExecutor()
    await call(executor, who)

    await executor.close()

    threads[0].join(SOON)
    assert not threads[0].is_alive()
    with pytest.raises(ShuttingDown):
        await call(executor, who)
    assert virtual_time.elapsed == 0


async def test_closing_waits_for_what_ends_in_time(virtual_time: VirtualTime) -> None:
    def work(ctx: Context) -> str:
        threads.append(threading.current_thread())
        while not ctx.cancelled:
            time.sleep(0.001)
        return "done"

    threads: list[threading.Thread] = []
    story = Story(work, virtual_time)
    await story.turn()
    story.call.cancel()

    await story.executor.close(SOON)

    assert await story.call == "done"
    threads[0].join(SOON)
    assert not threads[0].is_alive()


async def test_closing_does_not_wait_for_what_never_ends(virtual_time: VirtualTime) -> None:
    def work(ctx: Context) -> None:
        assert go_on.wait(SOON)
        try:
            ctx.save("late", 1)
        except LeaseLost:
            late.set()

    go_on, late = threading.Event(), threading.Event()
    story = Story(work, virtual_time)
    await story.turn()
    story.call.cancel()

    await story.executor.close(0.01)
    await asyncio.wait([story.call])
    story.link.close()

    assert story.call.cancelled()
    assert story.executor.busy == 0
    go_on.set()
    assert await asyncio.to_thread(late.wait, SOON)
    await asyncio.sleep(1)  # virtual, and nothing holds it


def test_a_thread_that_never_ends_does_not_hold_the_process_back() -> None:
    program = """
import asyncio, threading
from tests.runtime.calling import attempt, task
from mainspring.runtime.executors.thread import ThreadExecutor

def stuck() -> None:
    began.set()
    threading.Event().wait()

began = threading.Event()

async def main() -> None:
    executor, definition = ThreadExecutor(), task(stuck, "thread")
    call = asyncio.create_task(executor.call(definition, attempt(definition)))
    await asyncio.to_thread(began.wait)
    call.cancel()
    await executor.close(0.01)

asyncio.run(main())
print("bye")
"""
    ended = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=SOON, check=False
    )

    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "bye\n", "")
