"""The command: sets the scene, tells the jobs when to come, watches, and has the story told.

One of the jobs kills the worker that runs it. So the workers are processes of their own, under a supervisor, started
just as a person would start them.
"""

import asyncio
import logging
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
import webbrowser
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

import click

from mainspring.cli.codes import Code
from mainspring.cli.demo.board import busy, is_there, served
from mainspring.cli.demo.events import Moment
from mainspring.cli.demo.fates import FATES
from mainspring.cli.demo.story import Story, read_story
from mainspring.cli.demo.view import View, view
from mainspring.cli.echo import echo
from mainspring.cli.root import Refusal
from mainspring.client.urls import VARIABLE
from mainspring.core.job import FINISHED, JobId
from mainspring.handle import JobHandle
from mainspring.stores.records import JobFilter
from mainspring.supervise import Stop

if TYPE_CHECKING:
    from mainspring.app import Mainspring

R = TypeVar("R")

LOOK_EVERY: Final = 0.2
TASKS: Final = "mainspring.cli.demo.tasks:app"
SHOP: Final = "mainspring.cli.demo.shop:app"
PATIENCE: Final = 15.0  # seconds for the workers to end; their grace time is shorter
WORKERS: Final = ("--processes=2", "--concurrency=10", "--slots=1", "--grace=3s", "--lease=3s", "--log-level=warning")


@click.command()
@click.option("--seconds", default=20.0, show_default=True, type=click.FloatRange(3, 60), help="How long at most.")
@click.option("--keep", is_flag=True, help="Leave the file behind, for other commands to look at.")
@click.option("--dashboard/--no-dashboard", default=True, help="Serve the dashboard, with a shop around the story.")
@click.option("--stay/--no-stay", default=None, help="Go on until Ctrl-C. [default: on a terminal, with the dashboard]")
@click.option("--open", "opens", is_flag=True, help="Show the dashboard in a browser.")
def demo(*, seconds: float, keep: bool, dashboard: bool, stay: bool | None, opens: bool) -> None:
    """Show jobs of every fate at work, and a dashboard.

    The story takes about 20 seconds. On a terminal, the dashboard and a little shop stay until Ctrl-C.
    """
    has_board = dashboard and is_there()
    if dashboard and not has_board:
        echo("To watch it in a browser, too: install Mainspring with the extra 'dashboard'")
    stays = stay if stay is not None else has_board and sys.stdout.isatty()
    folder = Path(tempfile.mkdtemp(prefix="mainspring-demo-"))
    try:
        story = asyncio.run(Demo(folder, has_board=has_board, stays=stays, opens=opens).play(seconds))
    finally:
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)
    if keep:
        echo(f"\nLook around: mainspring jobs list --url sqlite:///{folder / 'demo.db'}")
    click.get_current_context().exit(Code.DONE if story.nothing_lost else Code.FAILED)


class Demo:
    """One run of the demo."""

    def __init__(self, folder: Path, *, has_board: bool, stays: bool, opens: bool) -> None:
        self._folder = folder
        self._has_board = has_board
        self._stays = stays
        self._opens = opens
        self._enqueued: set[JobId] = set()
        self._stop = Stop()
        self._began = 0.0

    async def play(self, seconds: float) -> Story:
        """Enqueue, watch until everything has ended or the time is up, and tell what the store has kept."""
        # The terminal is the story's: what the dashboard has to say goes where the workers' words go.
        logging.basicConfig(filename=self._folder / "demo.log", level=logging.WARNING)
        os.environ[VARIABLE] = f"sqlite:///{self._folder / 'demo.db'}"
        echo("Two workers, a SQLite file, and jobs of every fate. Ctrl-C ends it early.")
        if self._has_board:
            from mainspring.cli.demo import shop  # noqa: F401, PLC0415 - adds to the app of tasks
        from mainspring.cli.demo.tasks import app  # noqa: PLC0415 - reads the variable when it is imported

        async with app:
            with suppress(NotImplementedError):  # no signal handlers on Windows' loops
                asyncio.get_running_loop().add_signal_handler(signal.SIGINT, self._stop.set)
            async with self._board(app) as address:
                with _workers(SHOP if self._has_board else TASKS, self._folder / "workers.log") as workers:
                    await self._perform(app, workers, seconds)
                    if self._stays and not self._stop.is_set():
                        story = await read_story(app.store, frozenset(self._enqueued))
                        await self._stay(story, workers, address)
                        return story
                story = await read_story(app.store, frozenset(self._enqueued))
                _tell(story)
                return story

    @asynccontextmanager
    async def _board(self, app: "Mainspring") -> AsyncIterator[str]:
        """Serve the dashboard where there is one; gives its address, or nothing."""
        if not self._has_board:
            echo()
            yield ""
            return
        async with served(app) as address:
            ends = "" if self._stays else " (it ends by itself, with the story; --stay keeps it until Ctrl-C)"
            echo(f"Watch it in a browser: {address}{ends}\n")
            sys.stdout.flush()
            if self._opens:
                threading.Timer(0.5, webbrowser.open, [address]).start()
            async with busy(address):
                yield address

    async def _perform(self, app: "Mainspring", workers: "subprocess.Popen[bytes]", seconds: float) -> None:
        with view() as screen:
            self._began = time.monotonic()
            script = asyncio.create_task(self._script())
            try:
                await self._watch(app, screen, script, workers, seconds)
            finally:
                script.cancel()
                await asyncio.wait([script])

    async def _stay(self, story: Story, workers: "subprocess.Popen[bytes]", address: str) -> None:
        """Tell the story, and let the rest go on until somebody ends it."""
        _tell(story)
        where = f"The dashboard stays at {address}, with work going on" if address else "The workers stay"
        echo(f"\n{where}. Ctrl-C ends it.")
        while not self._stop.is_set():
            self._check(workers)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stop.wait(), 1)

    async def _script(self) -> None:
        """What happens when."""
        from mainspring.cli.demo import tasks  # noqa: PLC0415 - as above

        for number in range(25):
            self._note(await tasks.quick.enqueue(number))
        for _ in range(2):
            self._note(await tasks.film.enqueue(seconds=7.0))
        for _ in range(3):
            self._note(await tasks.flaky.enqueue())
            self._note(await tasks.later.using(delay="6s").enqueue())
        self._note(await tasks.parcel.enqueue())
        self._note(await tasks.primes.enqueue(20_000_000))
        march = self._note(await tasks.march.enqueue())
        while (await march.refresh()).progress is None:  # noqa: ASYNC110 - another process runs it
            await asyncio.sleep(LOOK_EVERY)
        await asyncio.sleep(1.5)
        await march.cancel()
        # Ahead of the others: the jobs that it takes down with it the first time shall not make it wait for its next.
        self._note(await tasks.poison.using(priority="high").enqueue())
        for _ in range(5):
            await asyncio.sleep(2)
            for number in range(5):
                self._note(await tasks.quick.enqueue(number))

    def _note(self, job: JobHandle[R]) -> JobHandle[R]:
        self._enqueued.add(job.id)
        return job

    async def _watch(
        self,
        app: "Mainspring",
        screen: View,
        script: "asyncio.Task[None]",
        workers: "subprocess.Popen[bytes]",
        seconds: float,
    ) -> None:
        while not self._stop.is_set():
            moment = await self._look(app)
            screen.show(moment)
            if script.done():
                script.result()
                if all(one.job.state in FINISHED for one in moment.jobs):
                    return
            if moment.seconds >= seconds:
                return
            self._check(workers)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stop.wait(), LOOK_EVERY)

    async def _look(self, app: "Mainspring") -> Moment:
        page = await app.store.list_jobs(JobFilter(), limit=1000)
        nodes = await app.store.nodes()
        seconds = time.monotonic() - self._began
        jobs = tuple(view for view in reversed(page.jobs) if str(view.job.task) in FATES)
        return Moment(seconds=seconds, now=app.store.now(), jobs=jobs, nodes=nodes)

    def _check(self, workers: "subprocess.Popen[bytes]") -> None:
        if workers.poll() is not None:
            raise Refusal(f"the workers have ended with {workers.returncode}: {self._last_words()}")

    def _last_words(self) -> str:
        lines = (self._folder / "workers.log").read_text(encoding="utf-8").splitlines()
        return lines[-1] if lines else "they said nothing"


def _tell(story: Story) -> None:
    echo()
    for sentence in story.sentences():
        echo(textwrap.fill(sentence, width=min(100, shutil.get_terminal_size().columns)))


@contextmanager
def _workers(target: str, log: Path) -> "Iterator[subprocess.Popen[bytes]]":
    """Have two workers run, under a supervisor, until the block ends."""
    command = [sys.executable, "-m", "mainspring", "worker", target, *WORKERS, "--supervised"]
    with (
        log.open("wb") as lines,
        subprocess.Popen(  # noqa: S603 - ourselves
            command, stdin=subprocess.PIPE, stdout=lines, stderr=lines, process_group=0
        ) as process,
    ):
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                process.kill()
