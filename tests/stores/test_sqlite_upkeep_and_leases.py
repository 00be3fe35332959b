"""A file is written anew while a job runs: nobody can renew a lease meanwhile, and none is lost by that."""

import asyncio
import os
import sqlite3
import time
from contextlib import closing
from pathlib import Path

import pytest

from mainspring import Context, Mainspring
from mainspring.client.upkeep import compact
from mainspring.core.job import State
from mainspring.stores.sqlite import upkeep
from tests.stores.postgres_wires import on_real_time

pytestmark = pytest.mark.slow

LEASE = 3.0


def fill(path: Path, mebibytes: int) -> None:
    """Have so much of the file be in use, and as much be free, page by page."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS mainspring_passing (number INTEGER PRIMARY KEY, content BLOB)")
        connection.execute("BEGIN")
        rows = ((os.urandom(3500),) for _ in range(2 * mebibytes * 256))
        connection.executemany("INSERT INTO mainspring_passing (content) VALUES (?)", rows)
        connection.execute("DELETE FROM mainspring_passing WHERE number % 2 = 0")
        connection.execute("COMMIT")


@pytest.mark.full
@pytest.mark.timeout(120)
@on_real_time
async def test_leases_are_renewed_in_time_while_as_much_as_may_be_is_written_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upkeep, "LONGEST", 20.0)  # so that a busy machine does not give it up: this is about the rest
    path = tmp_path / "jobs.db"
    app = Mainspring(f"sqlite:///{path}")
    over = asyncio.Event()

    @app.task(name="long")
    async def long(ctx: Context) -> int:
        await over.wait()
        return ctx.attempt

    async with app.node(lease=LEASE), app.node(lease=LEASE):
        job = await long.enqueue()
        while await job.state() is not State.RUNNING:
            await asyncio.sleep(0.05)
        took = []
        for _ in range(2):
            await asyncio.to_thread(fill, path, 24)
            began = time.monotonic()
            done = await compact(app.store)
            took.append(time.monotonic() - began)
            assert isinstance(freed := done["freed"], int)
            assert freed > 12 << 20, done
            await asyncio.sleep(LEASE)  # in which whoever was thought dead would be found out
        over.set()
        assert await job.result(timeout="30s") == 1
        assert (await job.refresh()).job.claims == 1
    assert max(took) < 20 * LEASE, took
