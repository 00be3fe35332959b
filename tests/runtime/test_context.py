"""The handler's own view of its attempt, on the node's loop."""

import asyncio
import math
from datetime import timedelta

import msgspec
import pytest

from mainspring.core.outcome import AttemptError
from mainspring.errors import JobCancelled, LeaseLost, PayloadError, StoreUnavailable
from mainspring.runtime.call import CallFacts
from mainspring.runtime.context import Context
from mainspring.stores.records import LogLine, Note, Progress
from mainspring.testing import VirtualTime
from tests.runtime.calling import JOB, NOON, Notebook, attempt, context_of, granted_more, task


async def greet(name: str, ctx: Context) -> str:
    return f"{name} {ctx.job}"


TASK = task(greet)


class SlowNotebook(Notebook):
    """Takes its time for each note."""

    def __init__(self, seconds: float = 0.5) -> None:
        super().__init__()
        self._seconds = seconds

    async def write(self, note: Note) -> bool:
        await asyncio.sleep(self._seconds)
        return await super().write(note)


# What an attempt is.


async def test_a_context_shows_what_is_known_of_the_attempt(virtual_time: VirtualTime) -> None:
    error = AttemptError(type="ValueError", message="no", traceback="…")
    ctx, _ = context_of(attempt(TASK, "ann", number=2, previous_error=error), Notebook(), virtual_time.clock)

    assert (ctx.job, ctx.task, ctx.queue, ctx.key) == (JOB, "greet", "mail", "customer 7")
    assert (ctx.attempt, ctx.max_attempts, ctx.previous_error) == (2, 3, error)
    assert (ctx.tags, ctx.owner) == (("red", "blue"), "ann")
    assert ctx.parent is not None
    assert ctx.parent.int == 9
    assert (ctx.due_at - ctx.enqueued_at, ctx.started_at - ctx.due_at) == (timedelta(minutes=5), timedelta(seconds=1))


@pytest.mark.parametrize(
    ("number", "is_retry", "is_last"), [(1, False, False), (2, True, False), (3, True, True), (4, True, True)]
)
async def test_a_context_knows_the_first_attempt_and_the_last(
    virtual_time: VirtualTime, number: int, is_retry: bool, is_last: bool
) -> None:
    ctx, _ = context_of(attempt(TASK, "ann", number=number), Notebook(), virtual_time.clock)

    assert (ctx.is_retry, ctx.is_last_attempt) == (is_retry, is_last)


async def test_attempts_that_an_operator_granted_count(virtual_time: VirtualTime) -> None:
    ctx, _ = context_of(granted_more(attempt(TASK, "ann", number=3)), Notebook(), virtual_time.clock)

    assert (ctx.max_attempts, ctx.is_last_attempt) == (5, False)


def test_the_facts_of_a_call_cross_a_pipe_unchanged() -> None:
    facts = attempt(TASK, "ann", timeout=2.5, saved=b'{"a":1}')

    assert msgspec.msgpack.decode(msgspec.msgpack.encode(facts), type=CallFacts) == facts


# How long it has.


async def test_the_time_that_remains_goes_by_the_monotonic_clock(virtual_time: VirtualTime) -> None:
    ctx, _ = context_of(attempt(TASK, "ann", timeout=10), Notebook(), virtual_time.clock)

    await asyncio.sleep(4)
    virtual_time.clock.jump("1h")

    assert ctx.remaining() == 6


async def test_the_time_that_remains_is_never_negative(virtual_time: VirtualTime) -> None:
    ctx, _ = context_of(attempt(TASK, "ann", timeout=10), Notebook(), virtual_time.clock)
    # Q11: a negative timeout made the worker panic.
    odd, _ = context_of(attempt(TASK, "ann", timeout=-3), Notebook(), virtual_time.clock)

    await asyncio.sleep(11)

    assert (ctx.remaining(), odd.remaining()) == (0.0, 0.0)


async def test_without_a_timeout_no_time_remains_or_runs_out(virtual_time: VirtualTime) -> None:
    ctx, _ = context_of(attempt(TASK, "ann"), Notebook(), virtual_time.clock)

    assert ctx.remaining() is None


async def test_a_handler_sees_that_it_is_to_stop(virtual_time: VirtualTime) -> None:
    ctx, link = context_of(attempt(TASK, "ann"), Notebook(), virtual_time.clock)
    ctx.raise_if_cancelled()
    before = ctx.cancelled

    link.stop()

    assert (before, ctx.cancelled) == (False, True)
    with pytest.raises(JobCancelled, match=str(JOB)):
        ctx.raise_if_cancelled()


# What it saves.


async def test_a_save_is_durable_when_it_has_been_awaited(virtual_time: VirtualTime) -> None:
    notebook = SlowNotebook()
    ctx, _ = context_of(attempt(TASK, "ann"), notebook, virtual_time.clock)

    await ctx.save("page", 7)

    assert virtual_time.elapsed == 0.5
    (note,) = notebook.notes
    assert (note.job, note.lease, note.node) == (JOB, 5, "node-1")
    assert (note.saved, note.progress, note.lines) == (b'{"page":7}', None, ())


async def test_a_save_that_is_not_awaited_is_written_all_the_same(virtual_time: VirtualTime) -> None:
    notebook = Notebook()
    ctx, _ = context_of(attempt(TASK, "ann"), notebook, virtual_time.clock)

    ctx.save("page", 7)
    await asyncio.sleep(0.001)

    assert notebook.saved == [b'{"page":7}']


async def test_what_one_attempt_saved_the_next_one_loads(virtual_time: VirtualTime) -> None:
    notebook = Notebook()
    first, _ = context_of(attempt(TASK, "ann"), notebook, virtual_time.clock)
    await first.save("page", 7)
    await first.save("seen", ["a", {"b": None}])

    second, _ = context_of(attempt(TASK, "ann", number=2, saved=notebook.saved[-1]), notebook, virtual_time.clock)

    assert (second.load("page"), second.load("seen")) == (7, ["a", {"b": None}])
    assert (second.load("else"), second.load("else", 3)) == (None, 3)


async def test_what_was_saved_can_be_loaded_at_once_as_it_was(virtual_time: VirtualTime) -> None:
    ctx, _ = context_of(attempt(TASK, "ann", saved=b'{"old":1}'), Notebook(), virtual_time.clock)
    pages = [1]

    await ctx.save("pages", pages)
    pages.append(2)

    assert (ctx.load("pages"), ctx.load("old")) == ([1], 1)


@pytest.mark.parametrize("value", [timedelta(1), (1, 2), {1: "one"}, math.nan, object(), b"bytes"])
async def test_what_json_would_not_give_back_is_refused(virtual_time: VirtualTime, value: object) -> None:
    notebook = Notebook()
    ctx, link = context_of(attempt(TASK, "ann"), notebook, virtual_time.clock)

    with pytest.raises(PayloadError, match=r"ctx\.save\('it'\)"):
        await ctx.save("it", value)

    assert await link.flush()
    assert (ctx.load("it"), notebook.notes) == (None, [])


async def test_all_that_is_saved_together_has_a_limit(virtual_time: VirtualTime) -> None:
    ctx, _ = context_of(attempt(TASK, "ann"), Notebook(), virtual_time.clock)
    await ctx.save("first", "x" * 200_000)

    with pytest.raises(PayloadError, match="with all that was saved before"):
        await ctx.save("second", "x" * 100_000)

    assert ctx.load("second") is None


async def test_saves_at_the_same_time_never_undo_each_other(virtual_time: VirtualTime) -> None:
    notebook = SlowNotebook()
    ctx, _ = context_of(attempt(TASK, "ann"), notebook, virtual_time.clock)

    async def save(number: int, key: str) -> None:
        await asyncio.sleep(number / 10)
        await ctx.save(key, 1)

    await asyncio.gather(*(save(number, key) for number, key in enumerate("abcd")))

    # The first, and then all that came while it was written.
    assert [msgspec.json.decode(saved) for saved in notebook.saved] == [{"a": 1}, dict.fromkeys("abcd", 1)]


async def test_a_refused_save_raises_and_tells_the_handler_to_stop(virtual_time: VirtualTime) -> None:
    ctx, link = context_of(attempt(TASK, "ann"), Notebook(holds_lease=False), virtual_time.clock)

    with pytest.raises(LeaseLost, match="lease 5"):
        await ctx.save("page", 7)

    assert ctx.cancelled
    with pytest.raises(LeaseLost):
        await ctx.save("page", 8)
    assert not await link.flush()


async def test_a_save_that_fails_raises_and_goes_out_with_the_end(virtual_time: VirtualTime) -> None:
    notebook = Notebook()
    ctx, link = context_of(attempt(TASK, "ann"), notebook, virtual_time.clock)
    ctx.progress(10)
    ctx.log("one")
    notebook.trouble = StoreUnavailable("store", "locked")
    with pytest.raises(StoreUnavailable):
        await ctx.save("page", 7)
    with pytest.raises(StoreUnavailable):
        await link.flush()

    notebook.trouble = None
    ctx.progress(20)
    ctx.log("two")
    assert await link.flush()

    (note,) = notebook.notes
    assert (note.saved, note.progress) == (b'{"page":7}', Progress(20.0))
    assert [line.message for line in note.lines] == ["one", "two"]


async def test_whoever_is_cancelled_while_saving_has_still_saved(virtual_time: VirtualTime) -> None:
    notebook = SlowNotebook()
    ctx, link = context_of(attempt(TASK, "ann"), notebook, virtual_time.clock)

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await ctx.save("page", 7)
    await link.flush()

    assert notebook.saved == [b'{"page":7}']


# What it says.


async def test_progress_is_written_ten_times_a_second_and_always_the_last(virtual_time: VirtualTime) -> None:
    notebook = Notebook()
    ctx, link = context_of(attempt(TASK, "ann"), notebook, virtual_time.clock)

    for step in range(1000):
        ctx.progress(step / 10, f"step {step}")
        await asyncio.sleep(0.001)
    await link.flush()

    assert 9 <= len(notebook.progress) <= 11
    assert notebook.progress[-1] == Progress(99.9, "step 999")


@pytest.mark.parametrize(("seconds", "most"), [(0.005, 11), (0.5, 3)])
async def test_what_is_said_during_a_write_waits_its_time(virtual_time: VirtualTime, seconds: float, most: int) -> None:
    notebook = SlowNotebook(seconds)
    ctx, link = context_of(attempt(TASK, "ann"), notebook, virtual_time.clock)

    for step in range(1000):
        ctx.progress(step / 10)
        await asyncio.sleep(0.001)
    await link.flush()

    assert len(notebook.progress) <= most
    assert notebook.progress[-1] == Progress(99.9)


async def test_a_short_job_writes_all_it_said_at_once(virtual_time: VirtualTime) -> None:
    notebook = Notebook()
    ctx, link = context_of(attempt(TASK, "ann"), notebook, virtual_time.clock)

    ctx.progress(50, "half")
    ctx.log("one")
    ctx.log("two", level="warning")
    assert await link.flush()
    await asyncio.sleep(1)

    (note,) = notebook.notes
    assert note.progress == Progress(50.0, "half")
    assert [(line.level, line.message) for line in note.lines] == [("info", "one"), ("warning", "two")]


async def test_what_was_said_is_written_while_the_handler_works_on(virtual_time: VirtualTime) -> None:
    notebook = Notebook()
    ctx, _ = context_of(attempt(TASK, "ann"), notebook, virtual_time.clock)

    await asyncio.sleep(5)
    ctx.progress(10)
    ctx.log("begun")
    await asyncio.sleep(0.11)

    assert notebook.progress == [Progress(10.0)]
    assert notebook.lines == [LogLine(virtual_time.clock.now() - timedelta(seconds=0.11), "info", "begun")]


async def test_who_says_nothing_writes_nothing(virtual_time: VirtualTime) -> None:
    notebook = Notebook()
    _, link = context_of(attempt(TASK, "ann"), notebook, virtual_time.clock)

    assert await link.flush()

    assert notebook.notes == []


@pytest.mark.parametrize(("given", "kept"), [(-5, 0.0), (50, 50.0), (250, 100.0), (math.nan, 0.0), (math.inf, 100.0)])
async def test_progress_stays_within_bounds(virtual_time: VirtualTime, given: float, kept: float) -> None:
    notebook = Notebook()
    ctx, link = context_of(attempt(TASK, "ann"), notebook, virtual_time.clock)

    ctx.progress(given)
    await link.flush()

    assert notebook.progress == [Progress(kept)]


async def test_progress_as_done_and_total_is_told_how_to_say_it(virtual_time: VirtualTime) -> None:
    ctx, _ = context_of(attempt(TASK, "ann"), Notebook(), virtual_time.clock)

    with pytest.raises(TypeError, match=r"takes a percentage and a text, not 10; .*: ctx.progress\(100 \* 3 / 10\)"):
        ctx.progress(3, 10)  # type: ignore[arg-type]  # that is the point
    with pytest.raises(TypeError, match=r"takes a percentage and a text, not None$"):
        ctx.progress(3, None)  # type: ignore[arg-type]  # as above


async def test_any_text_can_be_logged_and_kept(virtual_time: VirtualTime) -> None:
    notebook = Notebook()
    ctx, link = context_of(attempt(TASK, "ann"), notebook, virtual_time.clock)

    ctx.log("a lone \ud800 and a \0")
    ctx.log("x" * 1_000_000)
    await link.flush()

    odd, long = (line.message for line in notebook.lines)
    assert odd == "a lone \\ud800 and a \\x00"
    assert len(long) < 10_100
    assert "characters left out" in long
    msgspec.json.encode(notebook.notes)


async def test_of_too_many_lines_the_last_are_kept(virtual_time: VirtualTime) -> None:
    notebook = Notebook()
    ctx, link = context_of(attempt(TASK, "ann"), notebook, virtual_time.clock)

    for number in range(3000):
        ctx.log(str(number))
    await link.flush()

    assert [line.message for line in notebook.lines] == [str(number) for number in range(2000, 3000)]


async def test_a_refused_note_tells_the_handler_to_stop(virtual_time: VirtualTime) -> None:
    ctx, link = context_of(attempt(TASK, "ann"), Notebook(holds_lease=False), virtual_time.clock)

    ctx.progress(10)
    await asyncio.sleep(0.2)

    assert ctx.cancelled
    assert not await link.flush()


async def test_after_the_end_of_its_attempt_a_context_says_nothing(virtual_time: VirtualTime) -> None:
    notebook = Notebook()
    ctx, link = context_of(attempt(TASK, "ann"), notebook, virtual_time.clock)
    ctx.progress(10)

    link.close()
    ctx.progress(20)
    ctx.log("late")
    with pytest.raises(LeaseLost):
        await ctx.save("page", 7)
    await asyncio.sleep(1)

    assert notebook.notes == []
    assert ctx.cancelled


# In a thread that the handler started itself.


async def test_a_save_from_another_thread_returns_when_it_is_durable(virtual_time: VirtualTime) -> None:
    notebook = Notebook()
    ctx, link = context_of(attempt(TASK, "ann"), notebook, virtual_time.clock)

    def work() -> list[bytes]:
        ctx.progress(30)
        ctx.save("page", 7)  # it has blocked until it was durable
        return notebook.saved

    assert await asyncio.to_thread(work) == [b'{"page":7}']
    await link.flush()
    assert notebook.progress == [Progress(30.0)]


async def test_a_refused_save_raises_in_another_thread_too(virtual_time: VirtualTime) -> None:
    ctx, _ = context_of(attempt(TASK, "ann"), Notebook(holds_lease=False), virtual_time.clock)

    with pytest.raises(LeaseLost):
        await asyncio.to_thread(ctx.save, "page", 7)


def test_a_save_after_the_loop_has_gone_is_refused() -> None:
    async def begin() -> Context:
        return context_of(attempt(TASK, "ann"), Notebook())[0]

    ctx = asyncio.run(begin())
    refused: list[BaseException] = []

    def work() -> None:
        ctx.progress(10)
        try:
            ctx.save("page", 7)  # it raises before it returns
        except LeaseLost as error:
            refused.append(error)

    with asyncio.Runner() as runner:
        runner.run(asyncio.to_thread(work))

    assert len(refused) == 1


def test_the_times_in_these_stories_are_as_they_should_be() -> None:
    assert attempt(TASK, "ann").run_at == NOON
