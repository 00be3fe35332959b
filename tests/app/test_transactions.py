"""Enqueueing in transactions, through the façade: the user's own, and a handler's."""

import sqlite3
from pathlib import Path

import pytest

from mainspring import Context, Mainspring
from mainspring.core.job import State
from mainspring.errors import DeclarationError
from mainspring.testing import VirtualTime, drain


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "jobs.db"


@pytest.fixture
def app(file: Path, virtual_time: VirtualTime) -> Mainspring:
    return Mainspring(f"sqlite:///{file}", clock=virtual_time.clock)


async def test_a_job_enqueued_in_a_handlers_transaction_comes_with_its_commit_or_not_at_all(app: Mainspring) -> None:
    @app.task(name="follow-up")
    async def follow_up(number: int) -> int:
        return number

    @app.task(name="work", max_attempts=1)
    async def work(ctx: Context, *, fails: bool) -> None:
        async with ctx.transaction() as tx:
            await follow_up.using(tx=tx).enqueue(1)
            if fails:
                raise ValueError

    async with app:
        await work.enqueue(fails=True)
        assert await drain(app) == {State.FAILED: 1}
        await work.enqueue(fails=False)
        assert await drain(app) == {State.SUCCEEDED: 2}


async def test_a_first_use_inside_of_a_transaction_says_what_to_do_instead_of_waiting_for_itself(
    app: Mainspring, file: Path
) -> None:
    @app.task(name="work")
    async def work() -> None: ...

    connection = sqlite3.connect(file)
    connection.execute("CREATE TABLE mine (x)")
    connection.execute("INSERT INTO mine VALUES (1)")

    with pytest.raises(DeclarationError, match="cannot be made while your transaction is open; use `async with app:`"):
        await work.using(tx=connection).enqueue()
    with pytest.raises(DeclarationError, match="run `mainspring migrate` once"):
        work.using(tx=connection).enqueue_sync()
    connection.rollback()

    async with app:
        with connection:
            job = await work.using(tx=connection).enqueue()
        assert await job.state() is State.READY
    connection.close()
