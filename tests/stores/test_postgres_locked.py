"""Ends of attempts and claims beside a transaction that holds a job and stays open: they do not wait for it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest
from msgspec.structs import replace

from mainspring import Mainspring
from mainspring.core.breaker import Breaker
from mainspring.core.job import JobId, State
from mainspring.core.limits import Gate, Scope
from mainspring.core.outcome import AttemptError, Interrupted, Outcome, Raised, Snoozed, Succeeded
from mainspring.errors import JobFailed
from mainspring.stores.postgres.statements import qualified
from mainspring.stores.records import Verdict
from tests.servers.postgres import Server
from tests.servers.system import PATIENCE
from tests.stores.postgres_crowd import SEND, Crowd, crowd, end, new
from tests.stores.postgres_staged import staged
from tests.stores.postgres_wires import on_real_time

ERROR = AttemptError(type="ValueError", message="no")
ENDS: list[Outcome] = [
    Succeeded(),
    Raised(error=ERROR),
    Raised(error=ERROR, retryable=False),
    Snoozed(delay=timedelta(minutes=1)),
    Interrupted(started=True),
]
GATE = Gate(scope=Scope.TASK, name=str(SEND), concurrency=5)


@asynccontextmanager
async def held(those: Crowd, job: JobId) -> AsyncIterator[None]:
    """Hold the row of a job, as a person in psql does."""
    async with those.connection() as connection:
        await connection.execute("BEGIN")
        await connection.execute(
            qualified("SELECT FROM mainspring.jobs WHERE id = '%s' FOR UPDATE", those.schema) % job
        )
        yield
        await connection.execute("ROLLBACK")


@pytest.mark.parametrize("has_breaker", [False, True], ids=["plain", "with a breaker that records them"])
@pytest.mark.parametrize("outcome", ENDS, ids=["success", "retry", "failure", "snooze", "interruption"])
@on_real_time
async def test_an_end_whose_job_is_held_elsewhere_does_not_hinder_the_others(
    postgres: Server, postgres_schema: str, outcome: Outcome, *, has_breaker: bool
) -> None:
    async with crowd(postgres, postgres_schema) as those:
        node = await those.node()
        if has_breaker:
            await node.store.declare_breakers({SEND: Breaker(threshold=50, cooldown=timedelta(minutes=1))})
        await node.store.enqueue([new() for _ in range(5)])
        deliveries = await node.take(5)
        ends = [replace(end(one, outcome, node.store.now()), term=one.term) for one in deliveries]
        jobs = [one.claim.job.id for one in deliveries]
        async with held(those, jobs[2]):
            answers = await node.store.settle(ends)
            states = [(await those.job(job)).state for job in jobs]

        assert [one.verdict for one in answers] == [
            Verdict.LOCKED if number == 2 else Verdict.ACCEPTED for number in range(5)
        ]
        assert states.pop(2) is State.RUNNING
        assert State.RUNNING not in states
        assert [one.verdict for one in await node.store.settle(ends)] == [
            Verdict.ACCEPTED if number == 2 else Verdict.REPEATED for number in range(5)
        ]


@on_real_time
async def test_successes_are_written_at_once_though_the_job_of_one_is_held(
    postgres: Server, postgres_schema: str
) -> None:
    async with crowd(postgres, postgres_schema) as those:
        node = await those.node()
        await node.store.enqueue([new() for _ in range(5)])
        deliveries = await node.take(5)
        ends = [end(one, Succeeded(), node.store.now()) for one in deliveries]
        states: list[State] = []

        async def look() -> None:
            states.extend([(await those.job(one.claim.job.id)).state for one in deliveries])

        async with held(those, deliveries[2].claim.job.id):
            await staged(node.store.settle(ends), after_settle_success=look)

        assert states == [State.RUNNING if number == 2 else State.SUCCEEDED for number in range(5)]


@on_real_time
async def test_of_several_held_jobs_each_end_is_written_once_its_job_is_free(
    postgres: Server, postgres_schema: str
) -> None:
    async with crowd(postgres, postgres_schema) as those:
        node = await those.node()
        await node.store.enqueue([new() for _ in range(6)])
        deliveries = await node.take(6)
        ends = [end(one, ENDS[1], node.store.now()) for one in deliveries]
        jobs = [one.claim.job.id for one in deliveries]
        async with held(those, jobs[0]):
            async with held(those, jobs[3]):
                answers = await node.store.settle(ends)
                assert [place for place, one in enumerate(answers) if one.verdict is Verdict.LOCKED] == [0, 3]
            answers = await node.store.settle([ends[0], ends[3]])
            assert [one.verdict for one in answers] == [Verdict.LOCKED, Verdict.ACCEPTED]
        assert [one.verdict for one in await node.store.settle(ends[:1])] == [Verdict.ACCEPTED]


@pytest.mark.slow
@on_real_time
async def test_a_node_writes_other_ends_while_the_job_of_one_is_held(postgres: Server, postgres_schema: str) -> None:
    app = Mainspring(f"{postgres.dsn()}?schema={postgres_schema}")
    started, go_on = asyncio.Event(), asyncio.Event()

    @app.task(name="first", max_attempts=1)
    async def first() -> None:
        started.set()
        await go_on.wait()
        raise ValueError

    @app.task(name="other", max_attempts=1)
    async def other() -> None:
        raise ValueError

    async with crowd(postgres, postgres_schema) as those, app.node() as node, asyncio.timeout(PATIENCE):
        job = await first.enqueue()
        await started.wait()
        async with held(those, JobId(job.id)):
            go_on.set()
            for _ in range(3):
                with pytest.raises(JobFailed):
                    await (await other.enqueue()).result(PATIENCE)
            assert await job.state() is State.RUNNING
        with pytest.raises(JobFailed):
            await job.result(PATIENCE)
        assert node.events.counts["refused"] == 0


@pytest.mark.parametrize("declared", ["before", "after"])
@on_real_time
async def test_a_claim_through_a_gate_does_not_wait_for_a_transaction_that_has_settled_a_job_of_it(
    postgres: Server, postgres_schema: str, declared: str
) -> None:
    async with crowd(postgres, postgres_schema) as those:
        node = await those.node()
        if declared == "before":
            await node.store.declare([GATE])
        await node.store.enqueue([new() for _ in range(12)])
        (ended, *others) = await node.take(3)
        async with node.store.transaction() as open_:
            assert (await open_.settle(end(ended, Succeeded(), node.store.now()))).verdict is Verdict.ACCEPTED
            fresh = await those.node()
            if declared == "after":
                await fresh.store.declare([GATE])
            # Of five places two are taken by the others, and one by the job that has ended, if it ever had one.
            given = await fresh.take(9)
            assert len(given) == (2 if declared == "before" else 3)
            assert await node.take(9) == []
        assert len(await fresh.take(9)) == (1 if declared == "before" else 0)
        await fresh.settle(given)
        await node.settle(others)
        assert len(await (await those.node()).take(9)) == (4 if declared == "before" else 5)


@on_real_time
async def test_a_job_whose_end_was_rolled_back_is_counted_by_a_gate_that_was_put_up_meanwhile(
    postgres: Server, postgres_schema: str
) -> None:
    async with crowd(postgres, postgres_schema) as those:
        node = await those.node()
        await node.store.enqueue([new() for _ in range(12)])
        (running,) = await node.take(1)
        with pytest.raises(ZeroDivisionError):
            async with node.store.transaction() as open_:
                await open_.settle(end(running, Succeeded(), node.store.now()))
                fresh = await those.node()
                await fresh.store.declare([replace(GATE, concurrency=2)])
                assert len(await fresh.take(1)) == 1
                raise ZeroDivisionError
        assert await fresh.take(9) == []
