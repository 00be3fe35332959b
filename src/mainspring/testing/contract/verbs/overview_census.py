# ruff: noqa: S101 -- a suite of tests is built on assert
"""The census: how many jobs have not ended, and what that may cost."""

from datetime import timedelta

from mainspring.core.command import CancelJob
from mainspring.core.limits import Gate, Scope
from mainspring.core.outcome import Succeeded
from mainspring.core.tally import Count
from mainspring.stores.overview import MOST
from mainspring.testing.contract.obligation import obligation
from mainspring.testing.contract.overviews import on
from mainspring.testing.contract.verbs.contract import Contract
from mainspring.testing.contract.world import HOUR, RAISED, RESIZE, SECOND, SEND, World

NO_TIME = timedelta(0)


class CensusContract(Contract):
    """`census`. Needs the roles Jobs and Nodes too."""

    @obligation("census")
    async def test_there_may_be_nothing_to_count(self, world: World) -> None:
        census = await on(world).census(world.now - HOUR)

        assert (census.at, census.counts, census.enqueued, census.complete) == (world.now, (), 0, True)

    @obligation("census")
    async def test_what_waits_and_runs_is_counted_by_queue_and_task(self, world: World) -> None:
        node = await world.node()
        for _ in range(2):
            await world.running(node, SEND, queue="mail", priority=99)
        await world.end(await world.running(node, SEND, queue="mail", priority=99), RAISED)
        await world.end(await world.running(node, SEND, queue="mail", priority=99), Succeeded())
        since = world.now
        world.clock.advance(SECOND)
        for priority in (0, 50, 100):
            await world.enqueue(SEND, queue="mail", priority=priority)
        await world.enqueue(RESIZE, queue="mail", run_at=since - HOUR)
        await world.enqueue(RESIZE, run_at=HOUR)
        await world.command(await world.enqueue(), CancelJob())
        world.clock.advance(SECOND)

        census = await on(world).census(since)
        assert sorted(census.counts, key=lambda one: (one.queue, one.task)) == [
            Count(queue="default", task=str(RESIZE), later=1),
            Count(queue="mail", task=str(SEND), due=3, later=1, running=2, oldest=since + SECOND),
            Count(queue="mail", task=str(RESIZE), due=1, oldest=since - HOUR),
        ]
        assert census.at == world.now
        assert census.complete

    @obligation("census")
    async def test_what_a_gate_holds_back_is_due(self, world: World) -> None:
        node = await world.node()
        await world.store.declare([Gate(scope=Scope.KEY, name=str(SEND), concurrency=1)])
        await world.enqueue_all(world.new(key="a") for _ in range(40))
        assert len(await world.claim(node, room=9)) == 1
        (count,) = (await on(world).census(world.now)).counts

        assert (count.due, count.later, count.running) == (39, 0, 1)

    @obligation("census")
    async def test_about_as_many_are_told_to_be_new_as_are(self, world: World) -> None:
        node = await world.node()
        await world.enqueue_all(world.new() for _ in range(30))
        world.clock.advance(HOUR)
        since = world.now
        await world.enqueue_all(world.new(priority=99) for _ in range(100))
        for claim in [one.claim for one in await world.claim(node, room=60)]:
            await world.end(claim, Succeeded())
        world.clock.advance(HOUR)

        assert 80 <= (await on(world).census(since)).enqueued <= 120
        assert (await on(world).census(world.now)).enqueued == 0

    @obligation("census", 1)
    async def test_without_time_it_says_what_it_has(self, world: World) -> None:
        await world.enqueue_all(world.new(queue=f"queue-{number % 50}") for number in range(200))
        everything = {one.queue: one for one in (await on(world).census(world.now)).counts}
        census = await on(world).census(world.now, budget=NO_TIME)

        assert len(everything) == 50
        assert all(one == everything[one.queue] for one in census.counts)
        assert census.complete == (len(census.counts) == 50)


class CensusCostContract(Contract):
    """What `census` costs with many jobs around. Takes seconds."""

    @obligation("census", 2)
    async def test_no_more_are_counted_of_a_kind_than_most(self, world: World) -> None:
        await world.enqueue_all(world.new(priority=at % 3 * 50, run_at=at % 2 * HOUR) for at in range(2 * MOST + 30))
        await world.enqueue(RESIZE)
        counts = {one.task: one for one in (await on(world).census(world.now)).counts}

        assert (counts[str(SEND)].due, counts[str(SEND)].later) == (MOST, MOST)
        assert counts[str(RESIZE)].due == 1
