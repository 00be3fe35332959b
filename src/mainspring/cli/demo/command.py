"""The command: sets the scene, tells the jobs when to come, watches, and has the story told.

One of the jobs kills the worker that runs it. So the workers are processes of their own, under a supervisor, started
just as a person would start them.
"""

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

import click

from mainspring.cli.codes import Code
from mainspring.cli.demo.events import Moment
from mainspring.cli.demo.story import Story, read_story
from mainspring.cli.demo.view import View, view
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
PATIENCE: Final = 15.0  # seconds for the workers to end; their grace time is shorter
WORKERS: Final = ("--processes=2", "--concurrency=10", "--slots=1", "--grace=3s", "--lease=3s", "--log-level=warning")


@click.command()
@click.option("--seconds", default=20.0, show_default=True, type=click.FloatRange(3, 60), help="How long at most.")
@click.option("--keep", is_flag=True, help="Leave the file behind, for other commands to look at.")
def demo(*, seconds: float, keep: bool) -> None:
    """Show jobs of every fate at work, for about 20 seconds."""
    folder = Path(tempfile.mkdtemp(prefix="mainspring-demo-"))
    try:
        story = asyncio.run(Demo(folder).play(seconds))
    finally:
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)
    click.echo()
    for sentence in story.sentences():
        click.echo(textwrap.fill(sentence, width=min(100, shutil.get_terminal_size().columns)))
    if keep:
        click.echo(f"\nLook around: mainspring jobs list --url sqlite:///{folder / 'demo.db'}")
    click.get_current_context().exit(Code.DONE if story.nothing_lost else Code.FAILED)


class Demo:
    """One run of the demo."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._enqueued: set[JobId] = set()
        self._stop = Stop()
        self._began = 0.0

    async def play(self, seconds: float) -> Story:
        """Enqueue, watch until everything has ended or the time is up, and read what the store has kept."""
        url = f"sqlite:///{self._folder / 'demo.db'}"
        click.echo("Two workers, a SQLite file, and jobs of every fate. Ctrl-C ends it early.\n")
        os.environ[VARIABLE] = url
        from mainspring.cli.demo import tasks  # noqa: PLC0415 - reads the variable when it is imported

        app = tasks.app
        async with app:
            with suppress(NotImplementedError):  # no signal handlers on Windows' loops
                asyncio.get_running_loop().add_signal_handler(signal.SIGINT, self._stop.set)
            with _workers(self._folder / "workers.log") as workers, view() as screen:
                self._began = time.monotonic()
                script = asyncio.create_task(self._script())
                try:
                    await self._watch(app, screen, script, workers, seconds)
                finally:
                    script.cancel()
                    await asyncio.wait([script])
            return await read_story(app.store, frozenset(self._enqueued))

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
            if workers.poll() is not None:
                raise Refusal(f"the workers have ended with {workers.returncode}: {self._last_words()}")
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stop.wait(), LOOK_EVERY)

    async def _look(self, app: "Mainspring") -> Moment:
        page = await app.store.list_jobs(JobFilter(), limit=1000)
        nodes = await app.store.nodes()
        seconds = time.monotonic() - self._began
        return Moment(seconds=seconds, now=app.store.now(), jobs=tuple(reversed(page.jobs)), nodes=nodes)

    def _last_words(self) -> str:
        lines = (self._folder / "workers.log").read_text(encoding="utf-8").splitlines()
        return lines[-1] if lines else "they said nothing"


@contextmanager
def _workers(log: Path) -> "Iterator[subprocess.Popen[bytes]]":
    """Have two workers run, under a supervisor, until the block ends."""
    command = [sys.executable, "-m", "mainspring", "worker", "mainspring.cli.demo.tasks:app", *WORKERS, "--supervised"]
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
