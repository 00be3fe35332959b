"""The order of jobs that a node on PostgreSQL has claimed ahead and given back, in real time."""

import asyncio

import pytest

from mainspring import Mainspring
from tests.servers.postgres import Server
from tests.servers.system import PATIENCE
from tests.stores.postgres_wires import on_real_time

JOBS = 6000
STALLED = range(3000, 3005)


@pytest.mark.slow
@on_real_time
async def test_jobs_that_were_claimed_ahead_and_given_back_run_in_the_order_of_their_due_times(
    postgres: Server, postgres_schema: str
) -> None:
    app = Mainspring(f"{postgres.dsn()}?schema={postgres_schema}")
    starts: list[int] = []
    done = asyncio.Event()

    @app.task(name="work")
    async def work(number: int) -> None:
        starts.append(number)
        if number in STALLED:  # all places are taken for longer than a claimed job may wait
            await given_back(number)
        if number == JOBS - 1:
            done.set()

    async def given_back(number: int) -> None:
        async with asyncio.timeout(PATIENCE):
            while not node.events.counts["given_back_unstarted"]:
                await asyncio.sleep(0.05)
        await asyncio.sleep(0.01 * (number - STALLED[0]))

    async with app:
        await work.enqueue_many([work.call(number) for number in range(JOBS)])
        async with app.node(concurrency=len(STALLED)) as node, asyncio.timeout(2 * PATIENCE):
            await done.wait()
    assert starts == list(range(JOBS))
