"""Functions for process slots. A slot imports this module under the same name as the tests do."""

import asyncio
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.synchronize import Event
from pathlib import Path
from types import SimpleNamespace

from mainspring import Fail, RetryIn, Snooze
from mainspring.errors import LeaseLost
from mainspring.runtime.call import IN_SLOT, current_call
from mainspring.runtime.context import Context
from mainspring.runtime.executors.wire import Returned, pack
from tests.runtime.calling import task


@dataclass(frozen=True)
class Order:
    """Something that is no plain JSON."""

    number: int
    lines: list[str]


class Declined(Exception):
    """An error that is made from data and says something else than its argument."""

    def __init__(self, card: str, *, code: int) -> None:
        super().__init__(card)
        self.code = code

    def __str__(self) -> str:
        return f"card {self.args[0]} was declined ({self.code})"


class Busy(Snooze):
    """A signal of a user's own, with a constructor of its own."""

    def __init__(self) -> None:
        super().__init__(0.25, "busy")


class Panic(BaseException):
    """No `Exception`, on purpose."""


def add(a: int, b: int) -> int:
    return a + b


def grow(order: Order, line: str) -> Order:
    return Order(order.number + 1, [*order.lines, line])


def echo(text: str) -> str:
    return text


def who() -> int:
    return os.getpid()


def nap(seconds: float) -> int:
    time.sleep(seconds)
    return os.getpid()


async def later(seconds: float, ctx: Context) -> str:
    await asyncio.sleep(seconds)
    await ctx.save("slept", seconds)
    return f"{ctx.load('slept')} s in {threading.current_thread().name}"


def surroundings() -> dict[str, str | list[str] | bool | None]:
    call = current_call.get()
    return {
        "path": sys.path,
        "cwd": str(Path.cwd()),
        "PYTHONPATH": os.environ.get("PYTHONPATH"),
        "job": str(call.job) if call else None,
        "in_slot": IN_SLOT.is_set(),
        "inherited": os.environ.get("MAINSPRING_TEST_COLOUR"),
    }


def say(text: str) -> None:
    print(text)  # noqa: T201 - what this is about
    print(text, file=sys.stderr)  # noqa: T201 - the same


def object_of_no_type() -> object:
    return object()


# Errors.


def fail(how: str) -> None:
    error = ERRORS[how]()
    error.add_note("on the way")
    try:
        os.environ["NO_SUCH_BANK"]
    except KeyError as cause:
        raise error from cause


def _only_here() -> type[Exception]:
    class OnlyHere(ValueError, ConnectionError):
        """A class that the node cannot find: it is made inside of a function."""

    return OnlyHere


def _stranger() -> Exception:
    from wave import Error  # noqa: PLC0415 - a module that the node has not loaded

    return Error("no wave")


ERRORS: dict[str, Callable[[], BaseException]] = {
    "plain": lambda: ValueError("no"),
    "key": lambda: KeyError("a"),
    "unicode": lambda: UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad"),
    "system": lambda: FileNotFoundError(2, "No such file", "/nowhere"),
    "own": lambda: Declined("7", code=51),
    "only here": lambda: _only_here()("twice"),
    "stranger": _stranger,
    "retry": lambda: RetryIn(0.25, "soon"),
    "busy": Busy,
    "for good": lambda: Fail("never"),
    "lost": lambda: LeaseLost("j", 7),
    "exit": lambda: SystemExit(3),
    "interrupt": KeyboardInterrupt,
    "stop": lambda: StopIteration(1),
    "panic": lambda: Panic("at the disco"),
    "group": lambda: ExceptionGroup("all", [Snooze(1), ExceptionGroup("some", [Declined("7", code=51), Busy()])]),
}


# Death.


def leave(code: int) -> None:
    os._exit(code)


def shoot(number: int) -> None:
    os.kill(os.getpid(), number)
    time.sleep(10)


def hang_up() -> None:
    os.closerange(3, 256)
    time.sleep(10)


def babble() -> None:
    for descriptor in range(3, 256):
        try:
            os.write(descriptor, b"\0\0\0\x04what?")
        except OSError:
            continue
    time.sleep(10)


# Forks.

FORK = multiprocessing.get_context("fork")


def fork_and_return() -> int:
    """Return in both processes, as a function does that forgot `os._exit`; the slot returns how the other one ended."""
    child = os.fork()
    return _exit_code(child) if child else -1


def fork_and_report(ctx: Context) -> int:
    child = os.fork()
    if child:
        return _exit_code(child)
    ctx.progress(50, "from the fork")
    time.sleep(60)
    os._exit(0)


def _exit_code(child: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def answer_for_another() -> None:
    os.write(int(sys.argv[1]), pack(Returned(0, b'{"v":1,"value":null}')))
    time.sleep(60)


def terminate_children(number: int) -> list[int | None]:
    """Terminate each as soon as it has been started."""
    codes = []
    for _ in range(number):
        child = FORK.Process(target=time.sleep, args=(60,))
        child.start()
        child.terminate()
        child.join(30)
        codes.append(child.exitcode)
    return codes


def interrupt_a_child() -> int | None:
    ready = FORK.Event()
    child = FORK.Process(target=_until_interrupted, args=(ready,))
    child.start()
    assert ready.wait(30)
    os.kill(child.pid or 0, signal.SIGINT)
    child.join(30)
    return child.exitcode


def _until_interrupted(ready: Event) -> None:
    try:
        ready.set()
        time.sleep(60)
    except KeyboardInterrupt:
        sys.exit(3)


def leave_a_busy_pool() -> None:
    with FORK.Pool(2) as pool:
        for _ in pool.imap_unordered(time.sleep, [0.01, 600, 600]):
            raise ValueError("left")


def fork_with_a_handler_of_its_own() -> int | None:
    former = signal.signal(signal.SIGTERM, _leave)
    try:
        child = FORK.Process(target=time.sleep, args=(60,))
        child.start()
        child.terminate()
        child.join(30)
        return child.exitcode
    finally:
        signal.signal(signal.SIGTERM, former)


def _leave(_number: int, _frame: object) -> None:
    os._exit(5)


# The context.


def story(ctx: Context) -> dict[str, int | float | None]:
    ctx.progress(10, "begun")
    ctx.log("one")
    ctx.log("two", level="warning")
    ctx.save("page", (ctx.load("page") or 0) + 1)
    for step in range(1000):
        ctx.progress(step / 10)
    ctx.progress(99, "nearly")
    return {"page": ctx.load("page"), "attempt": ctx.attempt, "remaining": ctx.remaining()}


def slow_story(seconds: float, ctx: Context) -> None:
    ctx.progress(50, "half")
    time.sleep(seconds)


def save_refused(ctx: Context) -> str:
    try:
        ctx.save("page", 1)
    except LeaseLost as error:
        return f"{error.job} {error.lease}"
    return "kept"


def leave_a_thread_behind(ctx: Context) -> None:
    def talk() -> None:
        for _ in range(200):
            ctx.progress(66, "from the grave")
            try:
                ctx.save("from", "the grave")
            except LeaseLost:
                return
            time.sleep(0.001)

    threading.Thread(target=talk, daemon=True).start()


# Stopping.


def write(report: str, text: str) -> None:
    """Report all at once: who sees the file sees the text."""
    draft = Path(f"{report}.draft")
    draft.write_text(text, encoding="utf-8")
    draft.rename(report)


def until_told(report: str, ctx: Context) -> str:
    write(report, "begun")
    while not ctx.cancelled:
        time.sleep(0.005)
    return "stopped in good order"


def until_told_by_error(report: str, ctx: Context) -> None:
    write(report, "begun")
    while True:
        ctx.raise_if_cancelled()
        time.sleep(0.005)


async def until_cancelled(report: str) -> None:
    write(report, "begun")
    try:
        await asyncio.sleep(600)
    finally:
        write(report, "cleaned up")


def deaf(report: str) -> None:
    write(report, "begun")
    try:
        time.sleep(600)
    finally:
        write(report, "cleaned up")


def stone_deaf(report: str) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    write(report, f"{os.getpid()} {child.pid}")
    while True:
        time.sleep(1)


def undisturbed(report: str) -> str:
    write(report, str(os.getpid()))
    deadline = time.monotonic() + 60
    while Path(report).exists():
        assert time.monotonic() < deadline
        time.sleep(0.005)
    return "went on"


as_task = SimpleNamespace(definition=task(echo, "process"))
"""What a decorator leaves in place of a function: an object that has a definition."""
