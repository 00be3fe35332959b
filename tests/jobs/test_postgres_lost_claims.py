"""Claims that PostgreSQL loses, or commits when their node has given them up: their jobs run, and no place is lost."""

import asyncio
from collections import Counter
from uuid import UUID

import pytest

from mainspring import Context, Mainspring
from mainspring.core.job import State
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

    async def states(self, jobs: list[UUID]) -> Counter[State]:
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
