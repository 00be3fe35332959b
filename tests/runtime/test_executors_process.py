"""Functions in process slots: real children, in real time.

Most stories share two slots, which are warm after the first; whoever breaks one has it replaced for the next.
"""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

from mainspring import Fail, RetryIn, Snooze
from mainspring.core.outcome import Outcome, Raised, Snoozed, outcome_of
from mainspring.core.retry import Retry
from mainspring.errors import BadResult, DeclarationError, Escaped, JobCancelled, LeaseLost, ShuttingDown, SlotDied
from mainspring.runtime.definition import Definition, ExecutorKind
from mainspring.runtime.executors.child import Child
from mainspring.runtime.executors.errors import attempt_error
from mainspring.runtime.executors.process import ProcessExecutor
from mainspring.runtime.executors.slot import FORKED
from mainspring.stores.records import Note, Progress
from mainspring.testing import VirtualTime
from tests.runtime import slot_tasks
from tests.runtime.calling import JOB, ROOT, Notebook, attempt, context_of, task

pytestmark = pytest.mark.slow

T = TypeVar("T")
SOON = 60.0
"""Seconds that anything in these stories may take at the very most."""


class Office:
    """An event loop, and an executor with two slots on it."""

    def __init__(self) -> None:
        self._runner = asyncio.Runner()
        self.executor = ProcessExecutor(2, stop_grace=0.1)

    def run(self, story: Coroutine[Any, Any, T]) -> T:
        async def in_time() -> T:
            async with asyncio.timeout(SOON):
                return await story

        return self._runner.run(in_time())

    def call(self, function: Callable[..., object], *args: object) -> Any:  # noqa: ANN401 - what a function returned
        definition = task(function, "process")
        return self.run(self.executor.call(definition, attempt(definition, *args)))

    def error_of(self, function: Callable[..., object], *args: object) -> BaseException:
        async def story() -> BaseException:
            call = begin(self.executor, function, *args)
            await asyncio.wait([call])
            error = call.exception()
            assert error is not None
            return error

        return self.run(story())

    def close(self) -> None:
        self.run(self.executor.close(1.0))
        self._runner.close()


@pytest.fixture(scope="module")
def office() -> Iterator[Office]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT))
        office = Office()
        yield office
        office.close()


@pytest.fixture
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have slots of a story's own find the functions."""
    monkeypatch.syspath_prepend(str(ROOT))


def begin(
    executor: ProcessExecutor, function: Callable[..., object], *args: object, notebook: Notebook | None = None
) -> "asyncio.Task[object]":
    definition = task(function, "process")
    facts = attempt(definition, *args)
    ctx = context_of(facts, notebook or Notebook())[0] if definition.context else None
    return asyncio.create_task(executor.call(definition, facts, ctx))


async def until(holds: Callable[[], object]) -> None:
    while not holds():
        await asyncio.sleep(0.005)


def is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return (
        Path(f"/proc/{pid}/stat").exists()
        and Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    )


# The call.


def test_a_function_runs_in_another_process_and_its_result_comes_back(office: Office) -> None:
    assert office.call(slot_tasks.add, 1, 2) == 3
    assert office.call(slot_tasks.who) != os.getpid()


def test_arguments_and_results_keep_their_types(office: Office) -> None:
    order = office.call(slot_tasks.grow, slot_tasks.Order(6, ["a"]), "b")

    assert order == slot_tasks.Order(7, ["a", "b"])


def test_a_task_is_found_where_its_function_was(office: Office) -> None:
    definition = task(slot_tasks.echo, "process", reference="tests.runtime.slot_tasks:as_task")

    assert office.run(office.executor.call(definition, attempt(definition, "hello"))) == "hello"


def test_a_slot_is_kept_for_the_next_call(office: Office) -> None:
    assert len({office.call(slot_tasks.who) for _ in range(5)}) == 1


def test_large_arguments_and_results_get_through(office: Office) -> None:
    text = "x" * 250_000

    assert office.call(slot_tasks.echo, text) == text


def test_a_child_sees_the_world_as_the_node_does(office: Office) -> None:
    seen = office.call(slot_tasks.surroundings)

    assert seen["path"] == sys.path
    assert seen["cwd"] == str(Path.cwd())
    assert seen["PYTHONPATH"] == os.environ.get("PYTHONPATH")
    assert (seen["job"], seen["in_slot"]) == (str(JOB), True)


@pytest.mark.usefixtures("importable")
def test_a_child_inherits_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MAINSPRING_TEST_COLOUR", "green")
    monkeypatch.setenv("PYTHONPATH", "/somewhere")
    office = Office()
    seen = office.call(slot_tasks.surroundings)
    office.close()

    assert (seen["inherited"], seen["PYTHONPATH"]) == ("green", "/somewhere")


def test_a_coroutine_runs_on_a_loop_of_its_own(office: Office) -> None:
    async def story() -> object:
        return await begin(office.executor, slot_tasks.later, 0.01, notebook=notebook)

    notebook = Notebook()

    assert office.run(story()) == "0.01 s in MainThread"
    assert notebook.saved == [b'{"slept":0.01}']


def test_a_function_that_no_other_process_could_find_is_refused(office: Office) -> None:
    def inner() -> None: ...

    definition = task(inner, "process")
    lost = Definition(
        name=definition.name,
        function=inner,
        arguments=definition.arguments,
        result=definition.result,
        executor=ExecutorKind.PROCESS,
    )

    with pytest.raises(DeclarationError, match="no name"):
        office.run(office.executor.call(lost, attempt(lost)))
    with pytest.raises(DeclarationError, match="finds no function"):
        office.run(office.executor.call(definition, attempt(definition)))


# Places.


def test_no_more_run_at_a_time_than_there_are_slots(office: Office) -> None:
    async def story() -> set[object]:
        calls = [begin(office.executor, slot_tasks.nap, 0.02) for _ in range(10)]
        await asyncio.sleep(0)
        assert office.executor.busy == 2
        return set(await asyncio.gather(*calls))

    assert len(office.run(story())) == 2
    assert office.executor.busy == 0


def test_who_waits_for_a_slot_is_served_in_turn_and_may_leave(office: Office) -> None:
    async def story() -> list[int]:
        order: list[int] = []
        executor = ProcessExecutor(1)  # with two, the order of the ends is a matter of luck
        calls = [begin(executor, slot_tasks.nap, 0.01) for _ in range(8)]
        for number, call in enumerate(calls):
            call.set_name(str(number))
            call.add_done_callback(lambda ended: order.append(int(ended.get_name())))
        await asyncio.sleep(0)
        calls[4].cancel()
        await asyncio.wait(calls)
        await executor.close()
        assert calls[4].cancelled()
        return order

    assert office.run(story()) == [4, 0, 1, 2, 3, 5, 6, 7]


# Errors.


def test_an_error_comes_back_with_its_class_its_words_and_its_traceback(office: Office) -> None:
    error = office.error_of(slot_tasks.fail, "own")

    assert isinstance(error, slot_tasks.Declined)
    assert str(error) == "card 7 was declined (51)"
    told = attempt_error(error)
    assert told.type == "tests.runtime.slot_tasks.Declined"
    assert told.message == "card 7 was declined (51)"
    lines = told.traceback.splitlines()
    assert "KeyError: 'NO_SUCH_BANK'" in lines
    assert lines[-2:] == ["tests.runtime.slot_tasks.Declined: card 7 was declined (51)", "on the way"]
    assert "slot.py" not in told.traceback
    assert "in fail" in told.traceback
    assert any("in fail" in note for note in error.__notes__)  # for loggers, which know nothing of `attempt_error`


@pytest.mark.parametrize(
    ("how", "kind", "words"),
    [
        ("plain", ValueError, "no"),
        ("key", KeyError, "'a'"),
        ("unicode", UnicodeDecodeError, "'utf-8' codec can't decode byte 0xff in position 0: bad"),
        ("system", FileNotFoundError, "[Errno 2] No such file: '/nowhere'"),
        ("only here", ValueError, "twice"),
        ("only here", ConnectionError, "twice"),
        ("panic", slot_tasks.Panic, "at the disco"),
    ],
)
def test_an_error_is_of_every_class_that_the_node_knows(
    office: Office, how: str, kind: type[BaseException], words: str
) -> None:
    error = office.error_of(slot_tasks.fail, how)

    assert isinstance(error, kind)
    assert str(error) == words
    assert Retry.fixed(1, retry_on=(kind,)).wants(error)
    assert not Retry.fixed(1, fail_on=(kind,)).wants(error)


def test_nothing_is_imported_for_an_error(office: Office) -> None:
    assert "wave" not in sys.modules

    error = office.error_of(slot_tasks.fail, "stranger")

    assert attempt_error(error).type == "wave.Error"
    assert (isinstance(error, Exception), str(error)) == (True, "no wave")
    assert "wave" not in sys.modules


# Q10: a panic in a job killed the loop that ran all of them.
@pytest.mark.parametrize(
    ("how", "name"), [("exit", "SystemExit"), ("interrupt", "KeyboardInterrupt"), ("stop", "StopIteration")]
)
def test_what_an_event_loop_would_misread_is_an_error_of_the_job(office: Office, how: str, name: str) -> None:
    error = office.error_of(slot_tasks.fail, how)

    assert isinstance(error, Escaped)
    assert attempt_error(error).type == name
    assert "in fail" in attempt_error(error).traceback
    assert office.call(slot_tasks.add, 1, 2) == 3


# Q12: the stack trace of a job that asked for a retry was thrown away. F19: delays were cut to whole seconds.
@pytest.mark.parametrize(
    ("how", "kind", "delay"), [("retry", RetryIn, 0.25), ("busy", Snooze, 0.25), ("for good", Fail, None)]
)
def test_a_signal_comes_back_whole(office: Office, how: str, kind: type[Exception], delay: float | None) -> None:
    signal = office.error_of(slot_tasks.fail, how)

    assert type(signal) is kind
    told = attempt_error(signal)
    assert "KeyError: 'NO_SUCH_BANK'" in told.traceback
    outcome: Outcome = outcome_of(signal, told, Retry.fixed(1))
    match outcome:
        case Raised(retry_in=asked, retryable=retryable):
            assert (asked.total_seconds() if asked else None, retryable) == (delay, how == "retry")
            assert outcome.error.message in {"soon", "never"}
        case Snoozed(delay=asked, reason=reason):
            assert (asked.total_seconds(), reason) == (delay, "busy")
        case _:
            pytest.fail(repr(outcome))


def test_an_error_of_ours_comes_back_whole(office: Office) -> None:
    error = office.error_of(slot_tasks.fail, "lost")

    assert isinstance(error, LeaseLost)
    assert (error.job, error.lease) == ("j", 7)


def test_a_group_comes_back_with_its_members(office: Office) -> None:
    error = office.error_of(slot_tasks.fail, "group")

    assert isinstance(error, ExceptionGroup)
    first, inner = error.exceptions
    assert isinstance(inner, ExceptionGroup)
    declined, busy = inner.exceptions
    assert (type(first), type(busy)) == (Snooze, Snooze)
    assert isinstance(declined, slot_tasks.Declined)
    policy = Retry.fixed(1, fail_on=(slot_tasks.Declined,))
    assert outcome_of(error, attempt_error(error), policy) == Raised(error=attempt_error(error), retryable=False)


def test_a_result_that_does_not_fit_is_an_error_of_the_job(office: Office) -> None:
    error = office.error_of(slot_tasks.object_of_no_type)

    assert isinstance(error, BadResult)
    assert "result" in str(error)


def test_an_import_that_fails_is_an_error_of_the_job(tmp_path: Path) -> None:
    (tmp_path / "broken_tasks.py").write_text(
        "def work() -> None: ...\nraise LookupError('no config')\n", encoding="utf-8"
    )

    def work() -> None: ...

    definition = task(work, "process", reference="broken_tasks:work")
    missing = task(work, "process", reference="tasks_that_never_were:work")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(tmp_path))
        office = Office()
        with pytest.raises(LookupError, match="no config") as broken:
            office.run(office.executor.call(definition, attempt(definition)))
        with pytest.raises(ModuleNotFoundError, match="tasks_that_never_were"):
            office.run(office.executor.call(missing, attempt(missing)))
        office.close()

    assert "broken_tasks.py" in attempt_error(broken.value).traceback


# Death.


@pytest.mark.parametrize(
    ("function", "argument", "code", "words"),
    [
        (slot_tasks.leave, 3, 3, "exit code 3"),
        (slot_tasks.leave, 0, 0, "exit code 0"),
        (slot_tasks.shoot, signal.SIGKILL, -9, "SIGKILL"),
        (slot_tasks.shoot, signal.SIGSEGV, -11, "SIGSEGV"),
    ],
)
def test_the_death_of_a_child_is_an_error_of_the_job_alone(
    office: Office, function: Callable[..., object], argument: int, code: int, words: str
) -> None:
    async def story() -> tuple[object, object]:
        doomed = begin(office.executor, function, int(argument))
        neighbour = begin(office.executor, slot_tasks.nap, 0.05)
        await asyncio.wait([doomed, neighbour])
        return doomed.exception(), neighbour.result()

    death, neighbour = office.run(story())

    assert isinstance(death, SlotDied)
    assert isinstance(death, RuntimeError)
    assert death.code == code
    assert words in str(death)
    assert Retry.fixed(1).wants(death)
    assert neighbour
    assert office.call(slot_tasks.add, 1, 2) == 3


@pytest.mark.parametrize("function", [slot_tasks.hang_up, slot_tasks.babble])
def test_a_child_that_cannot_be_talked_to_is_replaced(office: Office, function: Callable[..., object]) -> None:
    assert isinstance(office.error_of(function), SlotDied)
    assert office.call(slot_tasks.add, 1, 2) == 3


@pytest.mark.usefixtures("importable")
def test_a_child_that_does_not_understand_its_node_ends(capfd: pytest.CaptureFixture[str]) -> None:
    async def story() -> int | None:
        child = Child()
        child.pipe._socket.send(b"\0\0\0\x04what")
        async with asyncio.timeout(SOON):
            await child.gone()
        return child.code

    assert asyncio.run(story()) == 1
    assert "msgspec" in capfd.readouterr().err


def test_a_child_that_died_at_rest_costs_no_job_anything(office: Office) -> None:
    async def story() -> object:
        pid = await begin(office.executor, slot_tasks.who)
        assert isinstance(pid, int)
        os.kill(pid, signal.SIGKILL)
        await until(lambda: not any(child.is_usable for child in office.executor._rested))
        return await begin(office.executor, slot_tasks.add, 1, 2)

    assert office.run(story()) == 3


# Forks.


def test_a_forked_process_that_returns_from_the_function_ends_and_answers_nothing(office: Office) -> None:
    assert office.call(slot_tasks.fork_and_return) == FORKED
    assert [office.call(slot_tasks.add, number, 1) for number in range(3)] == [1, 2, 3]


def test_a_forked_process_that_uses_the_context_ends_and_reports_nothing(office: Office) -> None:
    async def story() -> object:
        return await begin(office.executor, slot_tasks.fork_and_report, notebook=notebook)

    notebook = Notebook()

    assert office.run(story()) == FORKED
    assert notebook.progress == []


def test_an_answer_to_another_call_ends_the_slot(office: Office) -> None:
    death = office.error_of(slot_tasks.answer_for_another)

    assert isinstance(death, SlotDied)
    assert "message of call 0 during call" in str(death)
    assert office.call(slot_tasks.add, 1, 2) == 3


def test_a_function_can_terminate_the_processes_that_it_forks(office: Office) -> None:
    assert office.call(slot_tasks.terminate_children, 10) == [-signal.SIGTERM] * 10


@pytest.mark.skipif(signal.getsignal(signal.SIGINT) is signal.SIG_IGN, reason="SIGINT is ignored from the start")
def test_a_function_can_interrupt_the_processes_that_it_forks(office: Office) -> None:
    assert office.call(slot_tasks.interrupt_a_child) == 3


def test_a_function_can_leave_a_pool_whose_workers_are_busy(office: Office) -> None:
    error = office.error_of(slot_tasks.leave_a_busy_pool)  # its workers would be busy for longer than that waits

    assert isinstance(error, ValueError)


def test_a_signal_handler_that_a_function_has_set_is_inherited_by_what_it_forks(office: Office) -> None:
    assert office.call(slot_tasks.fork_with_a_handler_of_its_own) == 5


# The context.


def test_a_context_works_over_the_pipe(office: Office) -> None:
    notebook = Notebook()
    definition = task(slot_tasks.story, "process")
    facts = attempt(definition, saved=b'{"page":6}', timeout=60, number=2)

    async def story() -> Any:  # noqa: ANN401 - what the function returned
        ctx, link = context_of(facts, notebook)
        returned = await office.executor.call(definition, facts, ctx)
        await link.flush()
        return returned, ctx.load("page")

    returned, loaded = office.run(story())

    assert (returned["page"], returned["attempt"], loaded) == (7, 2, 7)
    assert 50 < returned["remaining"] <= 60
    assert notebook.saved == [b'{"page":7}']
    assert notebook.progress[-1] == Progress(99.0, "nearly")
    assert len(notebook.progress) <= 3
    assert [(line.level, line.message) for line in notebook.lines] == [("info", "one"), ("warning", "two")]


def test_progress_is_seen_while_the_function_works_on(office: Office) -> None:
    async def story() -> None:
        call = begin(office.executor, slot_tasks.slow_story, 0.5, notebook=notebook)
        await until(lambda: notebook.progress)
        assert not call.done()
        await call

    notebook = Notebook()
    office.run(story())

    assert notebook.progress == [Progress(50.0, "half")]


def test_what_middleware_saved_is_there_for_the_function(office: Office) -> None:
    async def story() -> object:
        definition = task(slot_tasks.story, "process")
        facts = attempt(definition)
        ctx, _ = context_of(facts, notebook)
        await ctx.save("before", 1)
        await ctx.save("page", 40)
        await office.executor.call(definition, facts, ctx)
        return ctx.load("before"), ctx.load("page")

    notebook = Notebook()

    assert office.run(story()) == (1, 41)
    assert notebook.saved[-1] == b'{"before":1,"page":41}'


def test_a_refused_save_raises_in_the_child(office: Office) -> None:
    async def story() -> object:
        return await begin(office.executor, slot_tasks.save_refused, notebook=Notebook(holds_lease=False))

    assert office.run(story()) == f"{JOB} 5"


def test_what_a_function_leaves_behind_does_not_speak_for_the_next_job(office: Office) -> None:
    async def story() -> None:
        await begin(office.executor, slot_tasks.leave_a_thread_behind)
        await begin(office.executor, slot_tasks.slow_story, 0.05, notebook=notebook)

    notebook = Notebook()
    office.run(story())

    assert notebook.saved == []
    assert "from the grave" not in {progress.message for progress in notebook.progress}


# Stopping. Q11, F19: a timeout dropped the future, and the handler was never told.


def test_a_function_that_stops_when_told_has_succeeded_and_keeps_its_slot(office: Office, tmp_path: Path) -> None:
    report = tmp_path / "report"

    async def story() -> object:
        call = begin(office.executor, slot_tasks.until_told, str(report))
        await until(report.exists)
        for _ in range(3):
            call.cancel()
            await asyncio.sleep(0)
        return await call

    before = office.call(slot_tasks.who)
    assert office.run(story()) == "stopped in good order"
    assert office.call(slot_tasks.who) == before


def test_a_function_that_stops_by_raising_has_raised(office: Office, tmp_path: Path) -> None:
    report = tmp_path / "report"

    async def story() -> None:
        call = begin(office.executor, slot_tasks.until_told_by_error, str(report))
        await until(report.exists)
        call.cancel()
        await call

    with pytest.raises(JobCancelled, match=str(JOB)):
        office.run(story())


def test_a_coroutine_is_cancelled_in_the_child(office: Office, tmp_path: Path) -> None:
    report = tmp_path / "report"

    async def story() -> bool:
        call = begin(office.executor, slot_tasks.until_cancelled, str(report))
        await until(report.exists)
        call.cancel()
        await asyncio.wait([call])
        return call.cancelled()

    before = office.call(slot_tasks.who)
    assert office.run(story())
    assert report.read_text() == "cleaned up"
    assert office.call(slot_tasks.who) == before


def test_a_function_that_does_not_listen_is_ended_with_its_finally_blocks(office: Office, tmp_path: Path) -> None:
    report = tmp_path / "report"

    async def story() -> bool:
        call = begin(office.executor, slot_tasks.deaf, str(report))
        await until(report.exists)
        call.cancel()
        await asyncio.wait([call])
        return call.cancelled()

    before = office.call(slot_tasks.who)
    assert office.run(story())
    assert report.read_text() == "cleaned up"
    assert office.call(slot_tasks.who) != before


def test_a_function_that_does_not_even_heed_sigterm_is_killed_with_all_it_started(
    office: Office, tmp_path: Path
) -> None:
    report = tmp_path / "report"

    async def story() -> bool:
        call = begin(office.executor, slot_tasks.stone_deaf, str(report))
        await until(report.exists)
        call.cancel()
        await asyncio.wait([call])
        await until(lambda: all(is_gone(int(pid)) for pid in report.read_text().split()))
        return call.cancelled()

    assert office.run(story())  # what it started would go on for longer than that waits
    assert office.call(slot_tasks.add, 1, 2) == 3


def test_signals_to_everyone_are_left_for_the_node_to_understand(office: Office, tmp_path: Path) -> None:
    report = tmp_path / "report"

    async def story() -> object:
        call = begin(office.executor, slot_tasks.undisturbed, str(report))
        await until(report.exists)
        for which in (signal.SIGINT, signal.SIGTERM):
            os.kill(int(report.read_text()), which)
        report.unlink()  # it looks for it in Python, which handles signals first
        return await call

    assert office.run(story()) == "went on"


# The end.


@pytest.mark.usefixtures("importable")
def test_closing_ends_all_children(tmp_path: Path) -> None:
    report = tmp_path / "report"

    async def story() -> tuple[int, int, BaseException | None]:
        executor = ProcessExecutor(2)
        call = begin(executor, slot_tasks.stone_deaf, str(report))
        at_rest = await begin(executor, slot_tasks.who)
        await until(report.exists)
        others = [begin(executor, slot_tasks.nap, 30.0) for _ in range(2)]  # one at work, one in line
        await asyncio.sleep(0.01)
        await executor.close(0.1)
        await asyncio.wait([call, *others])
        with pytest.raises(ShuttingDown):
            await begin(executor, slot_tasks.who)
        assert [type(other.exception()) for other in others] == [SlotDied, ShuttingDown]
        assert isinstance(at_rest, int)
        return at_rest, executor.busy, call.exception()

    at_rest, busy, error = asyncio.run(story())

    assert is_gone(at_rest)
    assert is_gone(int(report.read_text().split()[0]))
    assert (busy, type(error)) == (0, SlotDied)


PROGRAM = """
import asyncio
from tests.runtime import slot_tasks
from tests.runtime.calling import attempt, task
from mainspring.runtime.executors.process import ProcessExecutor

async def main(function, *args):
    executor, definition = ProcessExecutor(1), task(function, "process")
    await executor.call(definition, attempt(definition, *args))
    await executor.close(1)

asyncio.run(main(slot_tasks.{call}))
"""


def test_a_child_whose_node_was_killed_ends_at_once(tmp_path: Path) -> None:
    report = tmp_path / "report"
    program = PROGRAM.format(call=f"stone_deaf, {str(report)!r}")
    node = subprocess.Popen([sys.executable, "-c", program], cwd=ROOT)
    try:
        asyncio.run(asyncio.wait_for(until(report.exists), SOON))
    finally:
        node.kill()
        node.wait()

    pids = [int(pid) for pid in report.read_text().split()]
    asyncio.run(asyncio.wait_for(until(lambda: all(map(is_gone, pids))), SOON))


def test_what_a_child_prints_is_printed_by_the_node() -> None:
    program = PROGRAM.format(call="say, 'hello'")
    ended = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=SOON, check=False
    )

    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "hello\n", "hello\n")


def test_a_module_started_with_m_finds_its_own_tasks(tmp_path: Path) -> None:
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "till.py").write_text(
        """
import asyncio
from mainspring.core.retry import Retry
from mainspring.runtime.executors.process import ProcessExecutor
from tests.runtime.calling import attempt, task

class Empty(Exception):
    pass

def sell() -> None:
    raise Empty("nothing left")

async def main() -> None:
    executor, definition = ProcessExecutor(1), task(sell, "process")
    try:
        await executor.call(definition, attempt(definition))
    except Empty as error:
        print(__name__, definition.reference, error, Retry.fixed(1, fail_on=(Empty,)).wants(error))
    await executor.close(1)

if __name__ == "__main__":
    asyncio.run(main())
""",
        encoding="utf-8",
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    ended = subprocess.run(
        [sys.executable, "-m", "shop.till"],
        cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=SOON, check=False,
    )  # fmt: skip

    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "__main__ __main__:sell nothing left False\n", "")


# Virtual time.


@pytest.mark.usefixtures("importable")
async def test_time_stands_still_while_a_child_works_and_passes_while_it_rests(virtual_time: VirtualTime) -> None:
    class SlowNotebook(Notebook):
        async def write(self, note: Note) -> bool:
            await asyncio.sleep(30)
            return await super().write(note)

    executor, notebook = ProcessExecutor(1), SlowNotebook()

    await begin(executor, slot_tasks.nap, 0.01)
    assert virtual_time.elapsed == 0
    await asyncio.sleep(60)
    assert virtual_time.elapsed == 60
    assert await begin(executor, slot_tasks.save_refused, notebook=notebook) == "kept"
    assert virtual_time.elapsed == 90
    await executor.close(1)
    assert virtual_time.elapsed == 90
