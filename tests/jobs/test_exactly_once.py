"""Promise 4: effects in the same database are exactly once, whatever step of the transaction the worker dies at."""

import asyncio
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from mainspring.clock import SystemClock
from mainspring.core.backoff import Backoff
from mainspring.core.job import JobId, State
from mainspring.core.names import Name
from mainspring.ids import new_id
from mainspring.stores.records import JobView, NewJob
from mainspring.stores.sqlite import SqliteStore

WORKER = Path(__file__).with_name("exactly_once_worker.py")
OURS = "with_the_store's_transaction"
OWN = "with_a_transaction_of_its_own"


def work(file: Path, step: str = "") -> int:
    return subprocess.run([sys.executable, WORKER, file, step], check=False, timeout=60).returncode


def enqueue(file: Path, task: str) -> JobId:
    job = JobId(new_id(SystemClock().now()))

    async def put() -> None:
        store = SqliteStore(file)
        await store.open()
        new = NewJob(
            id=job, task=Name.parse(task), payload=b'{"v":1,"args":{}}', backoff=Backoff.fixed(0), max_attempts=3
        )
        await store.enqueue([new])
        await store.close()

    asyncio.run(put())
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("CREATE TABLE effects (job TEXT)")
    return job


def look(file: Path, job: JobId) -> JobView:
    async def get() -> JobView:
        store = SqliteStore(file)
        await store.open()
        (view,) = await store.get([job])
        await store.close()
        assert view
        return view

    return asyncio.run(get())


def effects(file: Path) -> int:
    with closing(sqlite3.connect(file)) as connection:
        (count,) = connection.execute("SELECT count(*) FROM effects").fetchone()
    return int(count)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("task", "step"),
    [
        *(
            (OURS, f"{when} {verb}")
            for verb in ("begin", "execute", "settle", "commit")
            for when in ("before", "after")
        ),
        *((OWN, step) for step in ("before the write", "after the write", "after settle_in", "after the commit")),
    ],
)
def test_effects_are_there_once_whatever_step_the_worker_dies_at(tmp_path: Path, task: str, step: str) -> None:
    file = tmp_path / "jobs.db"
    job = enqueue(file, task)

    assert work(file, step) == 9
    committed = step in {"after commit", "after the commit"}
    assert effects(file) == committed
    assert (look(file, job).job.state is State.SUCCEEDED) == committed

    assert work(file) == 0
    view = look(file, job)
    assert (effects(file), view.job.state) == (1, State.SUCCEEDED)
    assert view.job.claims == (1 if committed else 2)
