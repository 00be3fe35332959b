"""The parent of several workers: starts them, starts another when one dies, passes signals on, and ends last.

Each worker is in a process group of its own, so that a Ctrl-C in a terminal reaches it once, through here, and not twice.
Each has a pipe from here as its stdin: when it closes, the parent is gone, and the worker ends in good order.
"""

import asyncio
import logging
import signal
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from mainspring.cli.codes import Code
from mainspring.client.words import length
from mainspring.supervise import (
    NO_PAUSE,
    Backoff,
    Directive,
    Failed,
    Idle,
    Proceed,
    Service,
    ServiceEvent,
    Stop,
    TaskSet,
)

log: Final = logging.getLogger("mainspring.supervisor")

BACKOFF: Final = Backoff.exponential("500ms", cap="30s", jitter=0.3)
SETTLED: Final = 30.0  # seconds after which a worker that dies was no false start: the next one begins at once
SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)

BY_WEIGHT: Final = (Code.DONE, Code.ABANDONED, Code.FAILED, Code.STORE, Code.USAGE)


class WorkerDied(Exception):
    """A worker ended without having been told to."""


class Supervisor:
    """Runs a command in so many processes."""

    def __init__(self, command: Sequence[str], processes: int, *, patience: float) -> None:
        self._command = command
        self._processes = processes
        self._patience = patience
        self._running: dict[int, asyncio.subprocess.Process] = {}
        self._codes: dict[int, Code] = {}
        self._stop = Stop()
        self._signals = 0

    def end(self) -> None:
        """Tell all workers to stop, and come to an end when they have."""
        self._stop.set()
        self._tell_all(signal.SIGTERM)

    async def run(self) -> Code:
        """Go on until told to stop, or until every worker has ended in good order; returns the worst of their codes."""
        loop = asyncio.get_running_loop()
        for received in SIGNALS:
            loop.add_signal_handler(received, self._signalled, received)
        try:
            workers = TaskSet()
            for number in range(1, self._processes + 1):
                self._start(workers, number)
            await self._stop.wait()
            await workers.shutdown(grace=self._patience, deadline=self._patience + 10)
        finally:
            for received in SIGNALS:
                loop.remove_signal_handler(received)
        return max(self._codes.values(), key=BY_WEIGHT.index, default=Code.DONE)

    def _start(self, workers: TaskSet, number: int) -> None:
        async def step() -> Directive:
            return await self._live(number)

        def tell(event: ServiceEvent) -> None:
            if isinstance(event, Failed) and event.backoff is not None:
                log.warning("%s; the next one starts in %s", event.error, length(event.backoff))

        workers.start(Service(f"worker {number}", step, pacing=NO_PAUSE, backoff=BACKOFF, listeners=[tell]))

    async def _live(self, number: int) -> Directive:
        """Run one worker to its end."""
        began = asyncio.get_running_loop().time()
        process = await asyncio.create_subprocess_exec(*self._command, stdin=asyncio.subprocess.PIPE, process_group=0)
        self._running[number] = process
        if self._stop.is_set():
            self._pass_on(process, signal.SIGTERM)
        try:
            code = await process.wait()
        except asyncio.CancelledError:
            log.critical("worker %s (process %s) did not end in time and is killed", number, process.pid)
            self._pass_on(process, signal.SIGKILL)
            await process.wait()
            self._codes[number] = Code.ABANDONED
            raise
        finally:
            del self._running[number]
        ended = asyncio.get_running_loop().time()
        if self._is_last(number, code):
            return Idle()
        if ended - began < SETTLED:
            raise WorkerDied(f"worker {number} (process {process.pid}) {told(code)}")
        log.warning("worker %s (process %s) %s; the next one starts", number, process.pid, told(code))
        return Proceed()

    def _is_last(self, number: int, code: int) -> bool:
        """Take note of how a worker ended; says whether no other shall take its place."""
        if self._stop.is_set():
            self._codes[number] = code_of_worker(code)
            return True
        if code in (Code.DONE, Code.ABANDONED):  # an operator has told it to stop
            self._codes[number] = Code(code)
            if len(self._codes) == self._processes:
                self._stop.set()
            return True
        if code == Code.USAGE:  # it has said why, and the next one would say the same
            self._codes[number] = Code.USAGE
            self.end()
            return True
        return False

    def _signalled(self, number: signal.Signals) -> None:
        self._signals += 1
        if self._signals == 1:
            log.info("%s: ending %s workers; once more to hurry", number.name, len(self._running))
            self.end()
        elif self._signals == 2:
            self._tell_all(signal.SIGTERM)
        else:
            self._tell_all(signal.SIGKILL)

    def _tell_all(self, number: signal.Signals) -> None:
        for process in self._running.values():
            self._pass_on(process, number)

    def _pass_on(self, process: asyncio.subprocess.Process, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            process.send_signal(number)


def code_of_worker(code: int) -> Code:
    """Read how a worker ended that had been told to."""
    if code == -signal.SIGTERM:  # it came before the worker listened, and so before anything ran
        return Code.DONE
    if code < 0:
        return Code.ABANDONED
    return Code(code) if code in BY_WEIGHT else Code.FAILED


def told(code: int) -> str:
    """Say how a process ended."""
    if code >= 0:
        return f"ended with {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:  # a real-time signal has no name
        return f"was killed by signal {-code}"
