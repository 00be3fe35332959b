# ruff: noqa: S101 -- a suite of tests is built on assert
"""Upkeep: it may do much or nothing, and nobody else sees a difference."""

import asyncio

from mainspring.core.outcome import Succeeded
from mainspring.stores.port import Upkeep
from mainspring.stores.records import JobFilter
from mainspring.testing.contract.obligation import obligation
from mainspring.testing.contract.verbs.contract import Contract
from mainspring.testing.contract.world import World


class UpkeepContract(Contract):
    """The role Upkeep. Needs the roles Jobs, Schedules, Nodes and Inspector."""

    @obligation("compact", 1)
    @obligation("analyze", 1)
    @obligation("flush", 1)
    @obligation("flush", 2)
    async def test_nobody_sees_a_difference(self, world: World) -> None:
        upkeep = of(world)
        node = await world.node()
        await world.end(await world.running(node), Succeeded(b"1"))
        running = await world.running(node)
        for _ in range(3):
            await world.enqueue()
        before = await content(world)
        await upkeep.compact()
        await upkeep.analyze()
        await upkeep.flush()
        assert await content(world) == before

        await world.end(running, Succeeded(b"2"))
        assert len(await world.claim(node, room=9)) == 3

    @obligation("compact")
    @obligation("compact", 2)
    @obligation("analyze")
    @obligation("flush")
    async def test_it_is_done_beside_the_work_of_others(self, world: World) -> None:
        upkeep = of(world)
        node = await world.node()

        async def work() -> int:
            done = 0
            for _ in range(20):
                await world.enqueue()
                done += len(await world.claim(node, room=9))
            return done

        async def keep_up() -> None:
            for _ in range(5):
                assert (await upkeep.compact()).freed >= 0
                await upkeep.analyze()
                await upkeep.flush()

        done, _ = await asyncio.gather(work(), keep_up())
        assert done == 20


def of(world: World) -> Upkeep:
    assert isinstance(world.store, Upkeep)
    return world.store


async def content(world: World) -> object:
    store = world.store
    return (await store.list_jobs(JobFilter()), await store.queues(), await store.nodes(), await store.list_schedules())
