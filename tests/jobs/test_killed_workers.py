"""Jobs of a real worker that is killed with -9 or stopped while thousands of jobs wait."""

import asyncio
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from mainspring import JobHandle
from mainspring.core.job import FINISHED, Cause, State
from mainspring.stores.records import JobFilter, JobView
from tests.jobs.killed_worker import an_app
from tests.servers.postgres import Server
from tests.servers.system import PATIENCE, wait_until

pytestmark = pytest.mark.slow

WORKER = Path(__file__).with_name("killed_worker.py")
BACKLOG = 3000


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'jobs.db'}"
        return
    server: Server = request.getfixturevalue("postgres")
    with server.schema() as schema:
        yield f"{server.dsn()}?schema={schema}"


class Workers:
    """Workers on one store, and the jobs whose handlers they have called, in order."""

    def __init__(self, url: str, file: Path) -> None:
        self._url = url
        self._file = file
        file.touch()

    @contextmanager
    def worker(self, *, concurrency: int) -> "Iterator[subprocess.Popen[bytes]]":
        words: list[str | Path] = [
            sys.executable,
            "-m",
            "tests.jobs.killed_worker",
            self._url,
            self._file,
            str(concurrency),
        ]
        process = subprocess.Popen(words)
        try:
            yield process
        finally:
            process.kill()
            process.wait()

    @property
    def called(self) -> list[UUID]:
        return [UUID(line) for line in self._file.read_text().splitlines()]

    def until_called(self, job: JobHandle[Any], times: int = 1) -> None:
        wait_until(lambda: self.called.count(job.id) >= times, f"call {times} of {job.id}", patience=2 * PATIENCE)

    def enqueue(self, *names: str) -> list[JobHandle[Any]]:
        async def put() -> list[JobHandle[Any]]:
            app, tasks = an_app(self._url)
            async with app:
                return await app.enqueue_many([tasks[name].call() for name in names])

        return asyncio.run(put())

    def until_finished(self) -> list[JobView]:
        async def look() -> list[JobView]:
            app, _ = an_app(self._url)
            async with app, asyncio.timeout(2 * PATIENCE):
                while (await app.jobs(state=["ready", "running"], limit=1)).jobs:
                    await asyncio.sleep(0.1)
                views: list[JobView] = []
                page = await app.store.list_jobs(JobFilter(states=FINISHED), limit=1000)
                while page.jobs:
                    views += page.jobs
                    page = await app.store.list_jobs(JobFilter(states=FINISHED), limit=1000, after=page.jobs[-1].job.id)
                return views

        return asyncio.run(look())


@pytest.fixture
def workers(url: str, tmp_path: Path) -> Workers:
    return Workers(url, tmp_path / "called")


def test_a_job_of_a_killed_worker_runs_before_the_jobs_that_were_enqueued_after_it(workers: Workers) -> None:
    (first,) = workers.enqueue("long")
    with workers.worker(concurrency=1) as doomed:
        workers.until_called(first)
        workers.enqueue(*["short"] * BACKLOG)  # of 150 s
        doomed.kill()
    with workers.worker(concurrency=1):
        workers.until_called(first, times=2)
    assert len(workers.called) < BACKLOG / 2


def test_jobs_that_a_stopped_worker_gave_back_run_first_on_the_next_one_and_in_order(workers: Workers) -> None:
    first = [job.id for job in workers.enqueue(*["long"] * 3)]
    with workers.worker(concurrency=3) as stopped:
        wait_until(lambda: len(workers.called) == 3, "three jobs to run")
        workers.enqueue(*["short"] * BACKLOG)
        stopped.terminate()
        assert stopped.wait(PATIENCE) == 0
    with workers.worker(concurrency=4):
        wait_until(lambda: len(workers.called) >= 7, "the next worker to go on")
    assert workers.called[:6] == first + first


def test_of_the_jobs_with_one_attempt_a_killed_worker_costs_only_those_that_it_had_places_for(
    workers: Workers,
) -> None:
    places = 5
    workers.enqueue(*["once", "quick"] * BACKLOG)  # the quick ones have the worker claim ahead
    with workers.worker(concurrency=places) as doomed:
        wait_until(lambda: len(workers.called) > BACKLOG / 4, "the worker to be in full swing")
        doomed.kill()
    with workers.worker(concurrency=places):
        views = workers.until_finished()
    failed = {view.job.id: view.job.cause for view in views if view.job.state is State.FAILED}
    assert len(views) == 2 * BACKLOG
    assert set(failed.values()) <= {Cause.LOST}
    called = Counter(workers.called)
    never_called = {view.job.id for view in views} - set(called)
    # A job whose claim is committed, and whose handler is about to be called, cannot be distinguished from one that was called.
    assert never_called <= set(failed)
    assert len(never_called) <= places
    assert max(called[view.job.id] for view in views if view.job.max_attempts == 1) == 1
