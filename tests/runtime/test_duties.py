"""The health of a node: renewals that fail, services of its own that die or fail, a store that was closed."""

import asyncio
from pathlib import Path

import pytest

from mainspring import Mainspring
from mainspring.testing import VirtualTime
from tests.runtime.conftest import Bench

OWN = ["keeper", "settler", "reaper", "orders", "pruner", "claimer", "ticker"]


async def problem_of(app: Mainspring) -> str | None:
    """Return what `app.health` reports of the node; None if it is well."""
    report = await app.health.look()
    (problem,) = [check.problem for check in report.checks if check.name == "node"]
    assert report.ok is not isinstance(problem, str)
    return problem if isinstance(problem, str) else None


async def test_a_node_that_cannot_renew_for_a_lease_time_is_not_ready(bench: Bench) -> None:
    async with bench.app.node(lease="15s"):
        await asyncio.sleep(5)
        assert await problem_of(bench.app) is None

        bench.store.drop("renew", times=10_000)
        await asyncio.sleep(10)
        assert await problem_of(bench.app) is None, "an outage shorter than a lease time is no reason for a restart"
        await asyncio.sleep(10)
        problem = await problem_of(bench.app)
        assert problem
        assert "longer than the lease of 15 s" in problem

        bench.store.heal()
        await asyncio.sleep(5)
        assert await problem_of(bench.app) is None


async def test_a_node_that_waits_for_its_renewal_for_a_lease_time_is_not_ready(bench: Bench) -> None:
    async with bench.app.node(lease="15s"):
        bench.store.delay("renew", "1m")
        await asyncio.sleep(30)
        assert await problem_of(bench.app)
        await asyncio.sleep(60)
        assert await problem_of(bench.app) is None


async def test_a_claimer_that_fails_for_a_lease_time_makes_its_node_not_ready(bench: Bench) -> None:
    @bench.app.task(name="work")
    async def work() -> None: ...

    async with bench.app.node(lease="15s"):
        bench.store.drop("claim", times=10_000)
        await asyncio.sleep(10)
        assert await problem_of(bench.app) is None
        await asyncio.sleep(20)
        problem = await problem_of(bench.app)
        assert problem
        assert problem.startswith("service claimer has failed for")
        bench.store.heal()
        await asyncio.sleep(5)
        assert await problem_of(bench.app) is None


@pytest.mark.parametrize("name", OWN)
async def test_a_service_of_the_node_that_was_cancelled_from_outside_is_started_again(bench: Bench, name: str) -> None:
    @bench.app.task(name="work")
    async def work() -> str:
        return "done"

    async with bench.app.node(lease="15s") as node:
        await asyncio.sleep(2)
        (task,) = [one for one in asyncio.all_tasks() if one.get_name() == name]
        task.cancel()
        await asyncio.sleep(0.5)
        assert await problem_of(bench.app) == f"service {name} has ended; it is being restarted"
        await asyncio.sleep(2)
        assert await problem_of(bench.app) is None
        assert node.events.counts["duties_restarted"] == 1

        before = node.id
        job = await work.enqueue()
        assert await job.result("5s") == "done"
        await asyncio.sleep(60)
        assert node.id == before, "it has renewed all the while"


async def test_a_node_survives_a_program_that_cancels_every_task_but_its_own(bench: Bench) -> None:
    @bench.app.task(name="work")
    async def work() -> str:
        return "done"

    async with bench.app.node() as node:
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
        await asyncio.sleep(3)
        assert await problem_of(bench.app) is None
        job = await work.enqueue()
        assert await job.result("5s") == "done"
        assert node.events.counts["duties_restarted"] >= len(OWN)


async def test_a_node_whose_store_was_closed_below_it_is_not_ready(tmp_path: Path, virtual_time: VirtualTime) -> None:
    app = Mainspring(f"sqlite:///{tmp_path / 'jobs.db'}", clock=virtual_time.clock)
    async with app.node(grace="0s"):
        await app.close()
        await asyncio.sleep(3)
        assert await problem_of(app) == "store closed; stop the node and start it again"
    await asyncio.sleep(3)
    async with app.node(grace="0s"):
        assert await problem_of(app) is None
    await app.close()
