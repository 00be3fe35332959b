"""Claims that PostgreSQL loses, or commits when their node has given them up: their jobs run, and no place is lost."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from uuid import UUID

import pytest

from mainspring import Context, Mainspring
from mainspring.core.job import State
from mainspring.stores.postgres import PostgresStore
from mainspring.stores.records import ClaimRequest
from tests.jobs.postgres_work import until
from tests.servers.postgres import Server, new_server
from tests.servers.system import wait_until
from tests.stores.postgres_wires import on_real_time

pytestmark = pytest.mark.slow


class Lasting:
    """An app with a task that takes some seconds."""

    def __init__(self, url: str, *, seconds: float) -> None:
        self.app = Mainspring(url)
        self.began: Counter[UUID] = Counter()

        @self.app.task(name="last")
        async def last(ctx: Context) -> None:
            self.began[ctx.job] += 1
            await asyncio.sleep(seconds)

        self.last = last

    async def enqueue(self, count: int) -> list[UUID]:
        return [job.id for job in await self.last.enqueue_many([self.last.call() for _ in range(count)])]

    async def states(self, jobs: Sequence[UUID]) -> Counter[State]:
        views = await self.app.store.get([self.app.job(job).id for job in jobs])
        return Counter(view.job.state for view in views if view)


@on_real_time
async def test_jobs_whose_claims_a_failover_lost_run_again_on_the_same_node_and_are_recorded() -> None:
    with new_server(durable=True) as primary, primary.standby(synchronous=False) as standby:
        hosts = f"{primary.host}:{primary.port},{standby.host}:{standby.port}"
        work = Lasting(f"postgresql://postgres@{hosts}/postgres?timeout=20s", seconds=8)
        async with work.app, work.app.node(concurrency=2) as node:
            before = node.id
            await work.app.store.pause("default")
            jobs = await work.enqueue(2)
            await asyncio.to_thread(follow_no_longer, primary, standby)
            await work.app.store.resume("default")
            await until(lambda: work.began.keys() == set(jobs), "the jobs to begin")
            await asyncio.to_thread(primary.kill)
            await asyncio.to_thread(standby.promote)
            await work.app.store.resume("default")

            await until(lambda: all(work.began[job] == 2 for job in jobs), "the jobs to begin again")
            async with asyncio.timeout(60):
                while await work.states(jobs) != {State.SUCCEEDED: 2}:
                    await asyncio.sleep(0.1)
            await until(lambda: node.running == 0, "both places to be free")
            later = await work.enqueue(2)
            await until(lambda: work.began.keys() > set(later), "both places to be used")
            assert node.id == before


def follow_no_longer(primary: Server, standby: Server) -> None:
    """Have a standby that has everything receive nothing more."""
    ((position,),) = primary.sql("SELECT pg_current_wal_lsn()::text")
    there = "SELECT 1 WHERE pg_last_wal_replay_lsn() >= %s::pg_lsn"
    wait_until(lambda: standby.sql(there, [position]), "the standby has caught up")
    standby.sql("ALTER SYSTEM SET primary_conninfo = ''")
    standby.sql("SELECT pg_reload_conf()")
    wait_until(lambda: not primary.sql("SELECT 1 FROM pg_stat_replication"), "the standby is cut off")


@on_real_time
async def test_jobs_whose_claims_are_committed_when_a_standby_is_back_are_given_back_and_run() -> None:
    """A commit that waits for a synchronous standby has no time limit, and its claim is visible when that ends."""
    with new_server(durable=True) as server:
        work = Lasting(f"{server.dsn()}?timeout=1s&patience=10s", seconds=0.1)
        async with work.app, work.app.node(concurrency=4, lease="5s") as node:
            jobs = [(await work.last.using(delay=0.2 * number).enqueue()).id for number in range(60)]
            await until(lambda: len(work.began) > 5, "some jobs to be run")
            await asyncio.to_thread(wait_for_standby, server, "nobody")
            await asyncio.sleep(9)  # the outage: three statements would have timed out one after the other
            await asyncio.to_thread(wait_for_standby, server, "")

            async with asyncio.timeout(90):
                while await work.states(jobs) != {State.SUCCEEDED: len(jobs)}:
                    await asyncio.sleep(0.2)
            await until(lambda: node.running == 0, "all places to be free")


def wait_for_standby(server: Server, name: str) -> None:
    """Have every commit wait for a standby of this name; of no name: for none."""
    server.sql(f"ALTER SYSTEM SET synchronous_standby_names = '{name}'")
    server.sql("SELECT pg_reload_conf()")


@on_real_time
async def test_a_claim_without_an_answer_is_given_back_when_its_node_shuts_down(
    postgres: Server, postgres_schema: str
) -> None:
    work = Lasting(f"{postgres.dsn()}?schema={postgres_schema}", seconds=0)
    other = PostgresStore(postgres.dsn(), schema=postgres_schema)
    async with work.app:
        async with work.app.node(queues=["another"]) as node:
            await other.open()
            async with asyncio.timeout(60):
                while (view := (await other.nodes())[0]).counter < 3:
                    await asyncio.sleep(0.1)
            (job,) = await work.enqueue(1)
            claimed = await other.claim(ClaimRequest(node=node.id, term=view.term, tasks=view.node.tasks))
            assert [one.claim.job.id for one in claimed.deliveries] == [job]
        (found,) = await other.get([work.app.job(job).id])
        assert found is not None
        assert (found.job.state, found.job.attempt, found.job.claims) == (State.READY, 0, 1)
        await other.close()
