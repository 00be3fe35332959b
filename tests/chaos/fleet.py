"""Programs that a test starts, kills, stops and counts. None of them outlives the test."""

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from math import inf
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

from mainspring import Mainspring
from mainspring.core.job import JobId
from mainspring.stores.records import AttemptView, JobView
from tests.chaos.ledger import Ledger, Line, lines_of
from tests.chaos.worker import DATABASE, an_app, sqlite_in

T = TypeVar("T")

ROOT = Path(__file__).parents[2]
WORKER = "tests.chaos.worker"
PATIENCE = 100.0
"""Seconds that anything may take that is only waited for; a machine may be busy with other things."""


@dataclass(slots=True)
class Program:
    """One of them, running or ended."""

    name: str
    kind: str
    process: "subprocess.Popen[bytes]"

    @property
    def runs(self) -> bool:
        return self.process.poll() is None

    def stop(self) -> None:
        """Have it stand still, and wait until it does: a signal takes its time."""
        self.process.send_signal(signal.SIGSTOP)
        os.waitpid(self.process.pid, os.WUNTRACED)

    def go_on(self) -> None:
        self.process.send_signal(signal.SIGCONT)


class Fleet:
    """All programs of a test, on one store; what they write is in one folder, and so is the store without a `url`."""

    def __init__(self, folder: Path, url: str | None = None, *, program: str = WORKER) -> None:
        self.folder = folder
        self._program = program
        self.url = url or sqlite_in(folder)
        self.killed: dict[str, int] = {}
        """When the test sent SIGKILL to whom, or saw that a program had ended by itself."""
        self._programs: list[Program] = []

    def start(self, kind: str = "work", **options: object) -> Program:
        """Start a worker or a producer; options are those of its command line, `worker.py` has them all."""
        name = f"{kind[0]}{len(self._programs)}"
        command = [sys.executable, "-m", self._program, kind, str(self.folder), name, "--url", self.url]
        for option, value in options.items():
            command += [f"--{option}", str(value)]
        with (self.folder / f"{name}.err").open("wb") as errors:
            process = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=errors, cwd=ROOT)
        program = Program(name, kind, process)
        self._programs.append(program)
        return program

    def start_ready(self, count: int, **options: object) -> list[Program]:
        """Start workers, and wait until they have joined."""
        programs = [self.start("work", **options) for _ in range(count)]
        names = {program.name for program in programs}

        def ready() -> bool:
            assert all(program.runs for program in programs), f"a worker did not start\n{self.errors()}"
            return names <= {line.program for line in self.lines("ready")}

        self.wait_for(ready, "the workers to be ready")
        return programs

    def kill(self, program: Program) -> None:
        self.killed[program.name] = time.monotonic_ns()
        program.process.kill()
        program.process.wait()

    def kill_at_work(self, program: Program) -> None:
        """Kill a worker while a handler of it runs: on a slow machine all other kills may come while workers start."""
        held: set[str] = set()
        while not held:
            self.wait_for(lambda: bool(self.held_by(program)), "a worker to be at work")
            program.stop()
            held = self.held_by(program)
            if not held:
                program.go_on()
        self.kill(program)

    def end(self, program: Program) -> int:
        """Ask for an orderly end, and wait for it; returns the exit code."""
        program.process.terminate()
        return program.process.wait(PATIENCE)

    @property
    def running(self) -> list[Program]:
        return [program for program in self._programs if program.runs]

    def lines(self, event: str) -> list[Line]:
        return [line for line in lines_of(self.folder) if line.event == event]

    def ledger(self) -> Ledger:
        return Ledger.read(self.folder, self.killed)

    def held_by(self, program: Program) -> set[str]:
        """Name the jobs whose handler has begun there and not come to its end."""
        bodies = self.ledger().bodies()
        return {body.job for body in bodies if body.program == program.name and body.ended == inf}

    def errors(self) -> str:
        """What the programs have said on standard error, for the one who reads a failure."""
        texts = {path.name: path.read_text(errors="replace") for path in sorted(self.folder.glob("*.err"))}
        return "\n".join(f"--- {name}\n{text[-2000:]}" for name, text in texts.items() if text)

    def wait_for(
        self, condition: Callable[[], bool], what: str, *, limit: float = PATIENCE, every: float = 0.02
    ) -> None:
        deadline = time.monotonic() + limit
        while not condition():
            assert time.monotonic() < deadline, f"waited {limit:g} s for {what}\n{self.errors()}"
            time.sleep(every)

    # What the store says.

    def ask(self, question: Callable[[Mainspring], Awaitable[T]]) -> T:
        """Open the store, ask it something, and close it again."""

        async def answer() -> T:
            async with an_app(self.url) as app:
                return await question(app)

        return asyncio.run(answer())

    def enqueue(self, task: str, lengths: Sequence[float]) -> list[str]:
        """Enqueue jobs that take so many seconds each; returns their ids."""

        async def enqueue(app: Mainspring) -> list[str]:
            found = app.find(task)
            return [str(job.id) for job in await found.enqueue_many([found.call(length) for length in lengths])]

        return self.ask(enqueue)

    def jobs(self) -> list[JobView]:
        """Read every job that there is."""

        async def read(app: Mainspring) -> list[JobView]:
            found: list[JobView] = []
            page = await app.jobs(limit=1000)
            found += page.jobs
            while page.after:
                page = await app.jobs(limit=1000, after=page.after)
                found += page.jobs
            return found

        return self.ask(read)

    def attempts(self, jobs: Sequence[JobId]) -> dict[JobId, tuple[AttemptView, ...]]:
        """Read the attempts of jobs that did not succeed."""

        async def read(app: Mainspring) -> dict[JobId, tuple[AttemptView, ...]]:
            return {job: await app.store.attempts(job) for job in jobs}

        return self.ask(read)

    def wait_until_done(self, *, limit: float = PATIENCE) -> None:
        """Wait until nothing waits and nothing runs."""
        self.wait_for(lambda: not self.ask(lambda app: app.store.queues()), "the jobs to be done", limit=limit)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for program in self._programs:
            if program.runs:
                program.process.kill()  # a stopped one too
        for program in self._programs:
            program.process.wait()
            if program.process.stdin:
                program.process.stdin.close()


@contextmanager
def write_lock(folder: Path) -> Iterator[None]:
    """Hold the write lock of the store, as a program of somebody else's may."""
    with closing(sqlite3.connect(folder / DATABASE, isolation_level=None, timeout=PATIENCE)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        yield
        connection.execute("ROLLBACK")


def write_lock_is_free(folder: Path) -> bool:
    """Say whether nobody needs longer than a moment for what it is writing."""
    with closing(sqlite3.connect(folder / DATABASE, isolation_level=None, timeout=0.5)) as connection:
        try:
            connection.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            return False
        return True


def make_effects(folder: Path) -> None:
    """Make a table of the user's own, for what handlers write together with the end of their job."""
    with closing(sqlite3.connect(folder / DATABASE)) as connection:
        connection.execute("CREATE TABLE effects (job TEXT NOT NULL)")


def effects(folder: Path) -> Counter[str]:
    """Count what handlers have written, by job."""
    with closing(sqlite3.connect(folder / DATABASE)) as connection:
        return Counter(job for (job,) in connection.execute("SELECT job FROM effects"))


def is_sound(folder: Path) -> bool:
    """Have SQLite check the whole file."""
    with closing(sqlite3.connect(folder / DATABASE)) as connection:
        return bool(connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)])
