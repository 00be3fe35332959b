# ruff: noqa: S608 -- the statements are the test's own
"""A job whose row cannot be decoded fails, and other jobs are not affected."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest

from mainspring import Every, Mainspring
from mainspring.core.job import Cause, JobId, State
from mainspring.handle import JobHandle
from mainspring.stores.records import JobView
from mainspring.testing import VirtualTime, drain
from tests.jobs.conftest import Ghost
from tests.servers.postgres import Server
from tests.stores.postgres_wires import on_real_time

ADDED = "[0,0,0,0,0,1.0,0.0,12]"  # a policy with one element more than this version writes
SQLITE_DAMAGE: dict[str, str | bytes | int] = {
    "jobs.state": "nonsense",
    "jobs.run_at": "soon",
    "jobs.run_at of bytes": b"soon",
    "jobs.run_at before the calendar": -(10**18),
    "jobs.attempt": "nonsense",
    "jobs.losses": "nonsense",
    "jobs.lease": "nonsense",
    "jobs.revision": "nonsense",
    "jobs.granted": "nonsense",
    "jobs.expires_at": "soon",
    "payloads.max_attempts": "nonsense",
    "payloads.loss_limit": "nonsense",
    "payloads.policy": "nonsense",
    "payloads.policy of another kind": 7,
    "payloads.policy with an added element": ADDED,
    "payloads.facts": "{",
    "payloads.timeout": "soon",
    "payloads.enqueued_at": "yesterday",
    "payloads.enqueued_at beyond the calendar": 10**18,
    "payloads.parent": "nonsense",
}
POSTGRES_DAMAGE: dict[str, str | bytes] = {
    "policy": "nonsense",
    "policy with an added element": ADDED,
    "facts": b"{",
    "facts of another kind": b'{"tags": 7}',
}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "jobs.db"


@pytest.fixture
def app(file: Path, virtual_time: VirtualTime) -> Mainspring:
    return Mainspring(f"sqlite:///{file}", clock=virtual_time.clock)


def edit(file: Path, job: JobHandle[None], damage: str) -> None:
    table, column = damage.split(maxsplit=1)[0].split(".")
    with closing(sqlite3.connect(file)) as connection, connection:
        change = connection.execute(
            f"UPDATE mainspring_{table} SET {column} = ? WHERE number = (SELECT number FROM mainspring_jobs WHERE id = ?)",
            (SQLITE_DAMAGE[damage], job.id.bytes),
        )
        assert change.rowcount == 1


@pytest.fixture
def schema(own_postgres: Server) -> Iterator[str]:
    with own_postgres.schema() as name:
        yield name


async def check_that_the_others_run(app: Mainspring, damaged: Callable[[JobHandle[None]], None]) -> None:
    ran: list[int] = []

    @app.task(name="work")
    async def work(number: int) -> None:
        ran.append(number)

    async with app:
        jobs = [await work.using(tags=["a"]).enqueue(number) for number in range(6)]
        bad, *others = jobs
        damaged(bad)
        assert {view.job.id for view in (await app.jobs()).jobs} == {job.id for job in jobs}
        assert await drain(app) == {State.SUCCEEDED: 5, State.FAILED: 1}
        assert sorted(ran) == [1, 2, 3, 4, 5]
        check_the_end(await bad.refresh(), attempt=0)
        assert [view.job.id for view in (await app.jobs(cause="unreadable")).jobs] == [bad.id]
        (attempt,) = await app.store.attempts(bad.id)
        assert (attempt.event, attempt.error) == ("failed", (await bad.refresh()).error)
        assert [await job.state() for job in others] == [State.SUCCEEDED] * 5


def check_the_end(view: JobView, *, attempt: int) -> None:
    assert (view.job.state, view.job.cause, view.job.attempt) == (State.FAILED, Cause.UNREADABLE, attempt)
    assert view.error is not None
    assert view.error.message.startswith("the stored job cannot be decoded: ")


async def check_that_it_is_taken_from_a_dead_node(app: Mainspring, damaged: Callable[[JobHandle[None]], None]) -> None:
    @app.task(name="work")
    async def work() -> None: ...

    async with app:
        jobs = [await work.enqueue() for _ in range(3)]
        ghost = await Ghost.join(app)
        assert len(await ghost.claim(3)) == 3
        bad, *others = jobs
        damaged(bad)
        assert await app.store.declare_dead(ghost.id, ghost.term)
        assert {claim.job.id for claim in await app.store.orphans(9)} == {job.id for job in jobs}
        await drain(app)
        check_the_end(await bad.refresh(), attempt=1)
        assert [await job.state() for job in others] == [State.SUCCEEDED] * 2


@pytest.mark.parametrize("damage", SQLITE_DAMAGE)
async def test_a_row_that_cannot_be_decoded_fails_and_the_others_run(app: Mainspring, file: Path, damage: str) -> None:
    await check_that_the_others_run(app, lambda job: edit(file, job, damage))


async def test_a_dead_nodes_job_that_cannot_be_decoded_is_taken_over(app: Mainspring, file: Path) -> None:
    await check_that_it_is_taken_from_a_dead_node(app, lambda job: edit(file, job, "payloads.policy"))


@pytest.mark.parametrize("run_at", ["soon", b"soon", -(10**18), 10**18])
async def test_a_run_at_that_cannot_be_decoded_stops_neither_enqueues_nor_claims(
    app: Mainspring, file: Path, run_at: object
) -> None:
    @app.task(name="work")
    async def work() -> None: ...

    async with app:
        await work.enqueue()
        with closing(sqlite3.connect(file)) as connection, connection:
            connection.execute("UPDATE mainspring_jobs SET run_at = ?", (run_at,))
        good = await work.enqueue()
        ghost = await Ghost.join(app)
        assert await ghost.claim(0) == ()
        claimed = [*await ghost.claim(2), *await ghost.claim(2)]
        assert [one.claim.job.id for one in claimed if one.unreadable is None] == [good.id]


async def test_an_error_that_cannot_be_decoded_does_not_keep_a_job_from_its_next_attempt(
    app: Mainspring, file: Path
) -> None:
    @app.task(name="work", max_attempts=1)
    async def work() -> None:
        raise ValueError

    async with app:
        job = await work.enqueue()
        await drain(app)
        with closing(sqlite3.connect(file)) as connection, connection:
            assert connection.execute("UPDATE mainspring_traces SET error = 'nonsense'").rowcount == 1
        error = (await job.refresh()).error
        assert error is not None
        assert error.message == "the stored error cannot be decoded"
        await job.retry()
        assert await drain(app) == {State.FAILED: 1}
        assert (await job.refresh()).job.cause is Cause.EXHAUSTED


async def test_the_run_of_a_schedule_ends_with_its_job_that_cannot_be_decoded(app: Mainspring, file: Path) -> None:
    @app.task(name="work")
    async def work() -> None: ...

    async with app:
        await app.schedules.add("often", Every("1d"), work.call())
        job = await app.schedules.run("often")
        edit(file, job, "payloads.policy")
        await drain(app)
        (run,) = (await app.schedules.runs("often")).runs
        assert (run.id, run.state) == (job.id, State.FAILED)


def test_a_policy_with_an_added_element_is_not_taken_for_that_of_a_schedule() -> None:
    from mainspring.stores.postgres import rows as postgres  # noqa: PLC0415 - beside its twin
    from mainspring.stores.sqlite import rows as sqlite  # noqa: PLC0415 - as above

    for rows in (sqlite, postgres):
        assert rows.policy("[0,0,0,0,0,1.0,0.0]")[2] is False
        assert rows.policy("[0,0,0,0,0,1.0,0.0,1]")[2] is True
        with pytest.raises(ValueError, match="more elements than this version can read"):
            rows.policy(ADDED)
    assert timedelta(0) == sqlite.policy("[0,0,0,0,0,1.0,0.0]")[0].initial


@pytest.mark.slow
@pytest.mark.parametrize("damage", POSTGRES_DAMAGE)
@on_real_time
async def test_a_row_of_postgresql_that_cannot_be_decoded_fails_and_the_others_run(
    own_postgres: Server, schema: str, damage: str
) -> None:
    await check_that_the_others_run(on_postgres(own_postgres, schema), editor(own_postgres, schema, damage))


@pytest.mark.slow
@on_real_time
async def test_a_dead_nodes_job_on_postgresql_that_cannot_be_decoded_is_taken_over(
    own_postgres: Server, schema: str
) -> None:
    await check_that_it_is_taken_from_a_dead_node(
        on_postgres(own_postgres, schema), editor(own_postgres, schema, "policy")
    )


def on_postgres(server: Server, schema: str) -> Mainspring:
    return Mainspring(f"{server.dsn()}?schema={schema}")


def editor(server: Server, schema: str, damage: str) -> Callable[[JobHandle[None]], None]:
    column = damage.split(maxsplit=1)[0]

    def change(job: JobHandle[None]) -> None:
        statement = f'UPDATE "{schema}".jobs SET {column} = %s WHERE id = %s RETURNING id'
        assert server.sql(statement, [POSTGRES_DAMAGE[damage], JobId(job.id)]) == [(job.id,)]

    return change
