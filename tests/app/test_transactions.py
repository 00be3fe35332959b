"""Enqueueing in transactions, through the façade: the user's own, and a handler's."""

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from mainspring import Context, Every, Mainspring
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


async def test_every_write_beside_a_handlers_transaction_is_refused_at_once(app: Mainspring, tmp_path: Path) -> None:
    elsewhere = Mainspring(f"sqlite:///{tmp_path}/other.db", clock=app.clock)
    outbox = app.outbox("orders", payload=dict[str, int])
    refused: dict[str, str] = {}

    @app.task(name="other")
    async def other(number: int) -> None: ...

    @elsewhere.task(name="abroad")
    async def abroad(number: int) -> None: ...

    @app.task(name="work", max_attempts=1)
    async def work(ctx: Context, waiting: str) -> None:
        handle = app.job(waiting)
        async with ctx.transaction() as tx:
            writes: dict[str, Callable[[], Awaitable[object]]] = {
                "save": lambda: ctx.save("key", 1),
                "enqueue": lambda: other.enqueue(1),
                "enqueue in a task": lambda: asyncio.create_task(in_a_task()),
                "enqueue_sync": lambda: asyncio.to_thread(other.enqueue_sync, 1),
                "enqueue_many": lambda: other.enqueue_many([other.call(1), other.call(2)]),
                "publish": lambda: outbox.publish(None, {"a": 1}),
                "cancel": handle.cancel,
                "pause a queue": lambda: app.store.pause("default"),
                "pause a schedule": lambda: app.schedules.pause("nightly"),
                "transaction": lambda: ctx.transaction().__aenter__(),
            }
            for name, write in writes.items():
                try:
                    await write()
                except DeclarationError as error:
                    refused[name] = str(error)
                else:
                    refused[name] = "was done"
            await abroad.enqueue(1)
            await other.using(tx=tx).enqueue(1)

    async def in_a_task() -> None:
        await other.enqueue(1)

    async with app, elsewhere:
        await app.schedules.add("nightly", Every("1d"), other.call(1))
        waiting = await other.using(delay="1h").enqueue(1)
        job = await work.enqueue(str(waiting.id))
        await drain(app)
        assert await job.state() is State.SUCCEEDED
        assert await waiting.state() is State.SCHEDULED
        assert len((await elsewhere.jobs()).jobs) == 1
        assert len((await app.jobs(task="other")).jobs) == 2

    assert "save before the transaction" in refused.pop("save")
    assert {name for name, problem in refused.items() if "use `.using(tx=tx)`" not in problem} == set()
