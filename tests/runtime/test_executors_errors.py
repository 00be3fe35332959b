"""How an error is written down, so that the next attempt and a person can read it."""

import asyncio
import pickle
import tracemalloc
from typing import NoReturn

import pytest

from mainspring import Fail, RetryIn, Snooze
from mainspring.errors import SlotDied
from mainspring.runtime.executors.coroutine import CoroutineExecutor
from mainspring.runtime.executors.errors import attempt_error
from mainspring.runtime.executors.reference import loaded
from mainspring.testing import VirtualTime
from tests.runtime.calling import attempt, task


class Declined(Exception):
    """An error of a user's own."""


class Mute(Exception):
    """Cannot say what is wrong."""

    def __str__(self) -> str:
        raise RuntimeError("not even this")


class Stubborn(Exception):
    """Does not let itself be looked at."""

    def __getattribute__(self, name: str) -> object:
        raise OSError(name)


def raised(error: BaseException, cause: BaseException | None = None) -> BaseException:
    """Give an error a traceback."""

    def throw() -> NoReturn:
        raise error from cause

    try:
        throw()
    except BaseException as caught:  # noqa: BLE001 - any
        return caught


def test_an_error_keeps_its_type_its_message_and_its_traceback() -> None:
    error = attempt_error(raised(Declined("card 7")))

    assert error.type.endswith("test_executors_errors.Declined")
    assert error.message == "card 7"
    assert error.traceback.startswith("Traceback (most recent call last):\n")
    assert "raise error from cause" in error.traceback
    assert error.traceback.endswith("Declined: card 7\n")


def test_an_error_of_python_has_a_plain_name() -> None:
    assert attempt_error(KeyError("a")).type == "KeyError"
    assert attempt_error(asyncio.CancelledError()).type == "asyncio.exceptions.CancelledError"


def test_causes_and_notes_are_kept() -> None:
    error = Declined("card 7")
    error.add_note("seen by the till")

    text = attempt_error(raised(error, cause=raised(KeyError("bank")))).traceback

    assert "KeyError: 'bank'" in text
    assert "direct cause" in text
    assert text.endswith("Declined: card 7\nseen by the till\n")


# Q12: the stack trace and the context of a job that asked for a retry, or failed itself, were thrown away.
@pytest.mark.parametrize("signal", [RetryIn("5s", "later"), Snooze(1, "later"), Fail("later")])
def test_a_signal_keeps_its_reason_its_traceback_and_its_cause(signal: Exception) -> None:
    error = attempt_error(raised(signal, cause=raised(KeyError("bank"))))

    assert error.message == "later"
    assert error.type == f"mainspring.{type(signal).__name__}"
    assert f"\nmainspring.{type(signal).__name__}: " in error.traceback
    assert "KeyError: 'bank'" in error.traceback
    assert "raise error from cause" in error.traceback


@pytest.mark.parametrize("kind", [Fail, RetryIn, Snooze])
def test_a_signal_is_found_under_the_name_that_it_is_shown_by(kind: type[Exception]) -> None:
    assert pickle.loads(pickle.dumps(kind)) is kind
    assert loaded(f"{kind.__module__}:{kind.__qualname__}") is kind


async def test_a_traceback_begins_where_the_handler_does(virtual_time: VirtualTime) -> None:
    async def handler() -> None:
        await asyncio.wait_for(inner(), 5)

    async def inner() -> None:
        raise Declined

    definition = task(handler)
    call = asyncio.create_task(CoroutineExecutor().call(definition, attempt(definition)))
    await asyncio.wait([call])
    error = call.exception()
    assert error is not None

    text = attempt_error(error).traceback

    assert text.splitlines()[1].endswith("in handler")
    assert "in wait_for" in text  # what the handler called is all there
    assert "coroutine.py" not in text
    assert virtual_time.elapsed == 0


async def test_where_the_handler_was_never_reached_the_traceback_is_whole(virtual_time: VirtualTime) -> None:
    async def old(page: str) -> str:
        return page

    async def new(page: int) -> int:
        return page

    call = asyncio.create_task(CoroutineExecutor().call(task(new), attempt(task(old), "seven")))
    await asyncio.wait([call])
    error = call.exception()
    assert error is not None

    assert "coroutine.py" in attempt_error(error).traceback
    assert virtual_time.elapsed == 0


def test_groups_are_told_with_their_members() -> None:
    text = attempt_error(raised(ExceptionGroup("both", [ValueError("one"), KeyError("two")]))).traceback

    assert "ValueError: one" in text
    assert "KeyError: 'two'" in text


def test_long_texts_are_cut_in_the_middle() -> None:
    error = attempt_error(raised(Declined("begin" + "x" * 1_000_000 + "end")))

    assert error.message.startswith("begin")
    assert error.message.endswith("end")
    assert len(error.message) < 10_100
    assert error.traceback.startswith("Traceback")
    assert error.traceback.endswith("xend\n")
    assert len(error.traceback) < 30_100


@pytest.mark.parametrize("how", ["message", "note", "cause", "member", "syntax error"])
def test_a_huge_text_is_cut_before_it_is_formatted(how: str) -> None:
    huge = "line\n" * 4_000_000
    error: BaseException = Declined(huge if how == "message" else "card 7")
    if how == "note":
        error.add_note(huge)
    if how == "member":
        error = ExceptionGroup("both", [ValueError("one"), ValueError(huge)])
    if how == "syntax error":
        error = SyntaxError(huge)
    caught = raised(error, cause=ValueError(huge) if how == "cause" else None)

    tracemalloc.start()
    try:
        written = attempt_error(caught)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert len(written.traceback) < 30_100
    assert peak < 5_000_000


def test_an_endless_recursion_is_told_in_short() -> None:
    def one(depth: int) -> None:
        two(depth + 1)

    def two(depth: int) -> None:
        one(depth + 1)

    with pytest.raises(RecursionError) as caught:
        one(0)

    error = attempt_error(caught.value)

    assert error.type == "RecursionError"
    assert len(error.traceback) < 30_100


def test_what_no_database_takes_is_written_in_another_way() -> None:
    error = attempt_error(raised(Declined("a lone \ud800 and a \0")))

    assert error.message == "a lone \\ud800 and a \\x00"
    error.traceback.encode()
    assert "\0" not in error.traceback


@pytest.mark.parametrize("end", [SystemExit, KeyboardInterrupt, GeneratorExit, asyncio.CancelledError])
def test_an_error_whose_message_would_end_the_program_is_written_down(end: type[BaseException]) -> None:
    class Deadly(Exception):
        def __str__(self) -> str:
            raise end

    error = attempt_error(raised(Deadly()))

    assert error.type.endswith("Deadly")
    assert end.__name__ in error.message
    assert "Deadly" in error.traceback or end.__name__ in error.traceback


def test_an_error_that_cannot_be_told_is_told_of_all_the_same() -> None:
    error = attempt_error(raised(Mute()))

    assert error.type.endswith("Mute")
    assert "RuntimeError" in error.message
    assert "raise error from cause" in error.traceback


def test_nothing_that_an_error_does_gets_through() -> None:
    error = attempt_error(raised(Stubborn()))

    assert error.type.endswith("Stubborn")
    assert error.message


@pytest.mark.parametrize(
    ("code", "words"),
    [(3, "exit code 3"), (-9, "SIGKILL; if nobody killed it, .* memory"), (-11, "SIGSEGV"), (-99, "signal 99")],
)
def test_the_death_of_a_worker_is_told_in_words(code: int, words: str) -> None:
    with pytest.raises(SlotDied, match=words):
        raise SlotDied(code)
