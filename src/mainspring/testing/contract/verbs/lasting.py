# ruff: noqa: S101 -- a suite of tests is built on assert
"""A store whose state outlives the process: what it finds when it is opened, and trouble that passes."""

import asyncio

import pytest

from mainspring.core.outcome import Succeeded
from mainspring.core.steps import run_now
from mainspring.errors import SchemaError, StoreClosed, StoreUnavailable
from mainspring.stores.records import Look
from mainspring.testing.contract import plans
from mainspring.testing.contract.harness import LastingHarness, SettableClock
from mainspring.testing.contract.obligation import GENERAL, obligation
from mainspring.testing.contract.verbs.contract import Contract
from mainspring.testing.contract.world import World


class LastingContract(Contract):
    """The rest of the role Schema, and G6, for a store that lasts. Its harness is a `LastingHarness`."""

    @obligation("open", 1)
    async def test_many_may_open_a_new_store_at_once(self, harness: LastingHarness, clock: SettableClock) -> None:
        world = World(harness, clock)
        handles = [harness.unopened() for _ in range(4)]
        await asyncio.gather(*(asyncio.to_thread(asyncio.run, handle.open()) for handle in handles))
        for handle in handles:
            await handle.enqueue([world.new()])

        (queue,) = await handles[0].queues()
        assert queue.waiting == 4
        for handle in handles:
            await handle.close()

    @obligation("open", 2)
    async def test_what_is_no_store_of_ours_is_refused_and_left_as_it_was(self, harness: LastingHarness) -> None:
        await harness.occupy()
        before = await harness.content()
        handle = harness.unopened()
        with pytest.raises(SchemaError):
            await handle.open()
        await handle.close()

        assert await harness.content() == before

    @obligation("open", 2)
    async def test_a_newer_store_is_refused_and_left_as_it_was(self, harness: LastingHarness) -> None:
        await (first := await harness.open()).close()
        await harness.outgrow()
        before = await harness.content()
        handle = harness.unopened()
        schema = await handle.schema()
        assert schema.found > schema.wanted
        assert (await first.schema()) == schema
        with pytest.raises(SchemaError):
            await handle.open()
        await handle.close()

        assert await harness.content() == before

    @obligation("schema")
    async def test_how_the_tables_stand_can_be_asked_before_they_are_there(self, harness: LastingHarness) -> None:
        handle = harness.unopened()
        before = await handle.schema()
        again = await handle.schema()
        await handle.open()
        after = await handle.schema()
        await handle.close()

        assert before == again
        assert before.found == 0
        assert after.found == after.wanted == before.wanted

    @obligation("close")
    async def test_a_handle_that_was_not_opened_does_nothing(
        self, harness: LastingHarness, clock: SettableClock
    ) -> None:
        with pytest.raises(StoreClosed):
            await harness.unopened().enqueue([World(harness, clock).new()])

    @obligation("close")
    @obligation("enqueue", 4)
    async def test_what_was_committed_is_there_after_all_were_closed(self, world: World) -> None:
        node = await world.node()
        waiting, claim = await world.enqueue(priority=1), await world.running(node)
        await world.close()
        world.store = await world.open()

        assert await world.job(claim.job.id) == claim.job
        assert (await world.job(waiting)).id == waiting
        await world.end(claim, Succeeded())

    @obligation("close")
    @obligation("move", 1)
    async def test_schedules_and_runs_are_there_after_all_were_closed(self, world: World) -> None:
        await plans.add(world)
        await plans.fire(world)
        look, runs = await plans.look_at(world), await plans.runs(world)
        await world.close()
        world.store = await world.open()

        assert await plans.look_at(world) == look
        assert await plans.runs(world) == runs
        await world.end(await world.claim_one(await world.node()), Succeeded())
        assert (await plans.look_at(world)).open == ()

    @obligation(GENERAL, 6)
    @obligation(GENERAL, 1)
    @obligation("move", 1)
    async def test_a_move_that_met_with_trouble_is_made_later(self, harness: LastingHarness, world: World) -> None:
        look = Look(schedule=await plans.add(world))
        move = plans.move_of(world, run_now(look.schedule, world.now, world.id))
        await harness.obstruct()
        with pytest.raises(StoreUnavailable):
            await world.store.move([move])
        await harness.clear()

        assert await plans.look_at(world) == look
        assert await plans.runs(world) == ()
        assert await world.store.move([move]) == (True,)

    @obligation(GENERAL, 6)
    @obligation(GENERAL, 1)
    async def test_trouble_that_may_pass_is_told_as_such_and_passes(
        self, harness: LastingHarness, world: World
    ) -> None:
        await harness.obstruct()
        new = world.new()
        with pytest.raises(StoreUnavailable):
            await world.store.enqueue([new])
        await harness.clear()

        assert not await world.is_there(new.id)
        assert (await world.store.enqueue([new]))[0].fresh
