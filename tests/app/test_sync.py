"""The bridge from plain code: it blocks the caller, runs beside any loop, survives a fork, and holds up no exit."""

import asyncio
import gc
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from mainspring import Mainspring
from mainspring.core.job import State
from mainspring.errors import DeclarationError, StoreClosed
from mainspring.sync import Bridge
from mainspring.testing import VirtualTime


def bridges() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name.endswith(" bridge")}


def until(condition: Callable[[], object]) -> None:
    """Wait for another thread, which is real."""
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.001)


async def echo(value: int) -> tuple[int, str]:
    await asyncio.sleep(0)
    return value, threading.current_thread().name


async def for_ever() -> None:
    await asyncio.Event().wait()


def test_a_call_is_answered_from_a_thread_of_its_own() -> None:
    bridge = Bridge("test")
    assert bridges() == set()

    assert bridge.run(lambda: echo(1)) == (1, "test bridge")
    (thread,) = bridges()
    assert thread.daemon
    assert bridge.run(lambda: echo(2)) == (2, "test bridge")
    assert bridges() == {thread}

    bridge.close()
    assert bridges() == set()
    bridge.close()
    assert bridge.run(lambda: echo(3)) == (3, "test bridge")
    bridge.close()


def test_what_is_raised_there_is_raised_here() -> None:
    async def fail() -> None:
        raise DeclarationError("it", "is wrong")

    bridge = Bridge("test")
    with pytest.raises(DeclarationError, match="it: is wrong"):
        bridge.run(fail)
    bridge.close()


async def test_it_works_beside_a_running_loop_which_stands_still_meanwhile(virtual_time: VirtualTime) -> None:
    bridge = Bridge("test")
    others = asyncio.create_task(asyncio.sleep(1))

    assert bridge.run(lambda: echo(1)) == (1, "test bridge")

    assert not others.done()
    await others
    assert virtual_time.elapsed == 1
    bridge.close()


def test_its_own_thread_would_wait_for_itself() -> None:
    bridge = Bridge("test")

    async def call_again() -> object:
        return bridge.run(lambda: echo(1))

    with pytest.raises(RuntimeError, match="await the async method instead"):
        bridge.run(call_again)
    assert bridge.run(lambda: echo(2))[0] == 2
    bridge.close()


def test_many_threads_may_call_at_once() -> None:
    bridge = Bridge("test")
    answers: list[int] = []
    callers = [threading.Thread(target=lambda n=n: answers.append(bridge.run(lambda: echo(n))[0])) for n in range(20)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()

    assert sorted(answers) == list(range(20))
    assert len(bridges()) == 1
    bridge.close()


def test_who_waits_when_it_is_closed_is_told() -> None:
    bridge = Bridge("test")
    raised: list[BaseException] = []

    def wait() -> None:
        try:
            bridge.run(for_ever)
        except BaseException as error:  # noqa: BLE001 - looked at below
            raised.append(error)

    caller = threading.Thread(target=wait)
    caller.start()
    until(bridges)
    bridge.run(lambda: echo(1))
    bridge.close()
    caller.join(60)

    (error,) = raised
    assert isinstance(error, StoreClosed)


def test_who_is_interrupted_leaves_nothing_running() -> None:
    program = """
import asyncio, signal, threading
from mainspring.sync import Bridge
bridge = Bridge("test")
ended = []
async def for_ever():
    signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
    try:
        await asyncio.Event().wait()
    finally:
        ended.append("cancelled")
try:
    bridge.run(for_ever)
except KeyboardInterrupt:
    print("interrupted")
async def look():
    while not ended:
        await asyncio.sleep(0.001)
    return ended
print(*bridge.run(look))
"""
    assert run(program) == ["interrupted", "cancelled"]


def test_a_bridge_that_nobody_holds_ends() -> None:
    bridge = Bridge("test")
    bridge.run(lambda: echo(1))
    del bridge
    gc.collect()

    until(lambda: not bridges())


def run(program: str, *, folder: Path | None = None) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-W", "error::ResourceWarning", "-W", "ignore::DeprecationWarning", "-c", program],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stderr == ""
    return done.stdout.splitlines()


# Whole programs.

APP = """
import asyncio, os, sys, threading
from mainspring import Mainspring
app = Mainspring("sqlite:///jobs.db")
@app.task(name="double")
async def double(number: int) -> int:
    return number * 2
"""


@pytest.mark.slow
def test_a_script_that_never_closes_its_app_ends_at_once_and_its_jobs_are_there(tmp_path: Path) -> None:
    began = time.monotonic()
    assert run(APP + "print(double.enqueue_sync(1).fresh)", folder=tmp_path) == ["True"]
    assert run(APP + "print(asyncio.run(double.enqueue(2)).fresh)", folder=tmp_path) == ["True"]
    assert run(APP + "double.enqueue_sync(3); print(asyncio.run(double.enqueue(4)).fresh)", folder=tmp_path) == ["True"]
    assert time.monotonic() - began < 55
    assert [path.name for path in tmp_path.iterdir()] == ["jobs.db"]

    states = run(APP + "print(*(view.job.state for view in asyncio.run(app.jobs()).jobs))", folder=tmp_path)
    assert states == ["ready ready ready ready"]


def test_a_program_ends_although_a_thread_waits_for_a_result(tmp_path: Path) -> None:
    program = """
from mainspring.errors import StoreClosed
def wait():
    try:
        job.result_sync()
    except StoreClosed:
        pass
job = double.enqueue_sync(1)
threading.Thread(target=wait, daemon=True).start()
print(job.state_sync())
"""
    assert run(APP + program, folder=tmp_path) == ["ready"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork on this system")
def test_a_forked_child_goes_on_with_a_thread_and_a_store_of_its_own(tmp_path: Path) -> None:
    program = """
first = double.enqueue_sync(1)
if not (child := os.fork()):
    second = double.enqueue_sync(2)
    asyncio.run(double.enqueue(3))
    print(first.state_sync(), second.state_sync(), flush=True)
    app.close_sync()
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
double.enqueue_sync(4)
print(len(asyncio.run(app.jobs()).jobs), first.cancel_sync())
app.close_sync()
"""
    assert run(APP + program, folder=tmp_path) == ["ready ready", "4 cancelled"]


def test_sync_and_async_code_use_one_app_together(app: Mainspring, virtual_time: VirtualTime) -> None:
    task = app.task(name="nothing")(lambda: None)

    first = task.enqueue_sync()
    second = virtual_time.run(task.enqueue())

    assert virtual_time.run(first.state()) is second.state_sync() is State.READY
    app.close_sync()
    with pytest.raises(StoreClosed):
        _ = app.store
