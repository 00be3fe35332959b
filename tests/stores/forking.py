"""Programs that fork: a store's name in, printed lines out. Each runs in a session of its own, so that none is left behind."""

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

PRELUDE = """
import asyncio, faulthandler, gc, os, signal, sqlite3, subprocess, sys, threading, time, traceback
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from mainspring import Mainspring
from mainspring.errors import StoreError

faulthandler.register(signal.SIGUSR1)
app = Mainspring(STORE)

@app.task(name="add")
async def add(number: int) -> int:
    return number + 1

def enqueue(count):
    for number in range(count):
        add.enqueue_sync(number)

class Child:
    # A forked process, which is let go on step by step: `work` is given a function that waits for `go`.
    def __init__(self, work, fork=os.fork):
        self._heard, here = os.pipe()
        there, self._tell = os.pipe()
        self.pid = fork()
        if self.pid:
            os.close(here), os.close(there)
            return
        def step():
            os.write(here, b".")
            assert os.read(there, 1) == b"."
        try:
            os.close(self._heard), os.close(self._tell)
            work(step)
            sys.stdout.flush()
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            sys.stderr.flush()
            os._exit(1)

    def wait(self):
        assert os.read(self._heard, 1) == b"."  # else it has ended

    def go(self):
        os.write(self._tell, b".")

    def join(self):
        _, status = os.waitpid(self.pid, 0)
        assert status == 0, status

def in_three_parts(step):
    enqueue(1)
    step()
    enqueue(50)
    step()
    enqueue(50)
"""

PATIENCE = 60


def run(program: str, folder: Path, store: str, *, tools: str) -> list[str]:
    """Run a program whose app is on a store, an expression; return the lines that it prints."""
    running = subprocess.Popen(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", tools + PRELUDE.replace("STORE", store) + program],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        out, errors = running.communicate(timeout=PATIENCE)  # until all of its children have ended, too
    except subprocess.TimeoutExpired:
        os.killpg(running.pid, signal.SIGUSR1)  # each process writes where it is
        with suppress(subprocess.TimeoutExpired):
            running.communicate(timeout=2)
        os.killpg(running.pid, signal.SIGKILL)
        out, errors = running.communicate()
        pytest.fail(f"it hangs\n{out}\n{errors}")
    assert errors == ""
    assert running.returncode == 0
    return out.splitlines()
