"""Commands as people run them: in a folder of their own, with an app in a module beside the store."""

import fcntl
import logging
import os
import pty
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner, Result

from mainspring import Mainspring
from mainspring.cli import main

SHOP = """
import asyncio, logging, os, signal, time
from mainspring import Context, Fail, Limit, Mainspring, Retry, Unique

app = Mainspring("sqlite:///shop.db")

@app.task(name="add")
async def add(a: int, b: int = 1) -> int:
    return a + b

@app.task(name="fail", retry=Retry.none())
async def fail(why: str = "no reason") -> None:
    raise ValueError(why)

@app.task(name="nap")
async def nap(ctx: Context, seconds: float) -> str:
    ctx.log("good night")
    ctx.progress(50, "asleep")
    logging.getLogger("shop").info("goes to bed")
    await asyncio.sleep(seconds)
    return "rested"

@app.task(name="deaf")
def deaf(seconds: float) -> None:
    time.sleep(seconds)

@app.task(name="where")
async def where() -> int:
    return os.getpid()

@app.task(name="once", unique=Unique(), queue="mail")
async def once(letter: str) -> None: ...
"""


@dataclass(frozen=True, slots=True)
class Shop:
    """A folder with an app in shop.py and, once something is enqueued, a store in shop.db."""

    folder: Path

    @property
    def path(self) -> Path:
        return self.folder / "shop.db"

    @property
    def url(self) -> str:
        return f"sqlite:///{self.path}"

    def app(self) -> Mainspring:
        """Hold the store from here, without the tasks."""
        return Mainspring(self.url)

    def run(self, *arguments: str, **variables: str) -> "subprocess.CompletedProcess[str]":
        """Run a command as a process of its own, in the folder; where no process is the subject, `cli` is quicker."""
        return subprocess.run(
            [sys.executable, "-W", "error", "-m", "mainspring", *arguments],
            cwd=self.folder,
            env=environment(variables),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def enqueue(self, task: str, *args: object) -> str:
        """Enqueue a job of the app in shop.py, from this process."""
        module: dict[str, Any] = {"__name__": "shop"}
        exec(SHOP, module)  # noqa: S102 - the same text as in the file; an import would stay for the next test
        app: Mainspring = module["app"]
        job = app.enqueue_sync(task, *args)
        app.close_sync()
        return str(job.id)

    def lines(self, *arguments: str) -> list[dict[str, Any]]:
        """Run a command with --json in this process, and read what it prints."""
        done = cli(*arguments, "--json", "--url", self.url)
        assert done.exit_code == 0, done.output
        return [msgspec.json.decode(line) for line in done.stdout.splitlines()]

    def job(self, job: str) -> dict[str, Any]:
        (found,) = self.lines("jobs", "show", job)
        return found

    @contextmanager
    def worker(self, *options: str, target: str = "shop:app") -> "Iterator[Running]":
        """Have a worker run in the background; killed at the end if the test has left it running."""
        log = self.folder / f"worker-{time.monotonic_ns()}.log"
        with (
            log.open("wb") as lines,
            subprocess.Popen(
                [sys.executable, "-W", "error", "-m", "mainspring", "worker", target, *options],
                cwd=self.folder,
                env=environment({}),
                stdin=subprocess.DEVNULL,
                stdout=lines,
                stderr=lines,
                start_new_session=True,
            ) as process,
        ):
            try:
                yield Running(process, log)
            finally:
                if process.poll() is None:
                    process.kill()


@dataclass(frozen=True, slots=True)
class Running:
    """A worker in the background."""

    process: "subprocess.Popen[bytes]"
    log: Path

    def text(self) -> str:
        return self.log.read_text(encoding="utf-8")

    def says(self, text: str, times: int = 1) -> str:
        """Wait until it has logged something."""
        until(lambda: self.text().count(text) >= times, self.text)
        return self.text()

    def signal(self, number: signal.Signals = signal.SIGTERM) -> None:
        self.process.send_signal(number)

    def ends(self, within: float = 50) -> int:
        return self.process.wait(within)


def until(true: Callable[[], object], otherwise: Callable[[], object] = lambda: "", seconds: float = 60) -> None:
    """Wait for another process to have done something."""
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, otherwise()
        time.sleep(0.02)


def environment(variables: dict[str, str]) -> dict[str, str]:
    ours = {name: value for name, value in os.environ.items() if not name.startswith("MAINSPRING")}
    return ours | variables


def cli(*arguments: str, answer: str | None = None, **variables: str) -> Result:
    """Run a command in this process, with somebody at the keyboard or with nobody, and undo what it does to the process."""
    with process_as_it_was():
        return CliRunner().invoke(
            main, arguments, prog_name="mainspring", input=answer, env=variables, catch_exceptions=False
        )


@contextmanager
def process_as_it_was() -> Iterator[None]:
    """Undo what a command leaves in the process that it runs in: the app's modules, the path, the log, signal handlers.

    The handlers of pytest wait meanwhile: log lines go where they go in a program that has none, to stderr.
    """
    path, modules = sys.path[:], set(sys.modules)
    signals = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    logs = {logger: (logger.level, logger.handlers[:]) for logger in loggers()}
    logging.getLogger().handlers.clear()
    try:
        yield
    finally:
        for logger in loggers():
            level, logger.handlers[:] = logs.get(logger, (logging.NOTSET, []))
            logger.setLevel(level)
        for number, handler in signals.items():
            signal.signal(number, handler)
        forget(modules, path)


def loggers() -> list[logging.Logger]:
    """The loggers that a command may set: the root, and our own."""
    ours = [name for name in logging.root.manager.loggerDict if name.partition(".")[0] == "mainspring"]
    return [logging.getLogger(name) for name in ("", *ours)]


def forget(modules: set[str], path: list[str]) -> None:
    """Have the next command import its app anew, though it has the same name: forget the modules of added folders."""
    added = [folder for folder in sys.path if folder not in path]
    for name in set(sys.modules) - modules:
        file = getattr(sys.modules[name], "__file__", None)
        if file is not None and any(Path(file).is_relative_to(folder) for folder in added):
            del sys.modules[name]
    for folder in added:
        sys.path_importer_cache.pop(folder, None)
    sys.path[:] = path


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shop:
    for name in ("MAINSPRING_APP", "MAINSPRING_URL", "MAINSPRING_DEBUG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "shop.py").write_text(SHOP, encoding="utf-8")
    return Shop(tmp_path)


def on_terminal(*arguments: str, columns: int = 80, code: str = "", **variables: str) -> tuple[str, int]:
    """Run a command on a terminal of that width; returns what it wrote, escapes and all, and how it ended."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    program = code or "from mainspring.cli import main; main(prog_name='mainspring')"
    variables = {"TERM": "xterm-256color", "COLUMNS": "", "NO_COLOR": "", **variables}
    with subprocess.Popen(
        [sys.executable, "-c", program, *arguments],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=environment(variables),
    ) as process:
        os.close(theirs)
        written = b""
        with os.fdopen(ours, "rb", buffering=0) as terminal, suppress(OSError):  # EIO: nobody is left who could write
            while some := terminal.read(65536):
                written += some
        return written.decode(), process.wait(60)


WITHOUT_RICH = "import sys; sys.modules['rich'] = None; from mainspring.cli import main; main(prog_name='mainspring')"


def running_children(parent: int) -> list[int]:
    """List the processes that a process has started, by the kernel's own list."""
    found = Path(f"/proc/{parent}/task/{parent}/children").read_text(encoding="ascii")
    return [int(child) for child in found.split()]
