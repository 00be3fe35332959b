# ruff: noqa: S101 -- a suite of tests is built on assert
"""What an operator says of a queue holds in place of what code declares."""

import asyncio

import pytest

from mainspring.core.limits import Gate, Rate, Scope
from mainspring.core.outcome import Succeeded
from mainspring.errors import DeclarationError
from mainspring.stores.overview import QueueRule
from mainspring.stores.records import Delivery, Pause, Verdict
from mainspring.testing.contract.obligation import obligation
from mainspring.testing.contract.overviews import on
from mainspring.testing.contract.verbs.contract import Contract
from mainspring.testing.contract.verbs.wake import Bell
from mainspring.testing.contract.world import HOUR, RESIZE, SECOND, SEND, Member, World

MANY = 1000
MAIL = "mail"


class LimitsContract(Contract):
    """`limit_queue` and `queue_rules`. Needs the roles Jobs, Nodes, Operator and Wake too."""

    @obligation("limit_queue")
    async def test_no_more_jobs_of_a_queue_run_than_an_operator_says(self, world: World) -> None:
        node, other = await world.node(), await world.node()
        await fill(world)
        assert await on(world).limit_queue(MAIL, 3)
        first, second = await world.claim(node, room=2), await claimed(world, other)
        assert [len(first), second] == [2, 1]
        assert await claimed(world, node) == 0
        await world.end(first[0].claim, Succeeded())

        assert await claimed(world, other) == 1

    @obligation("limit_queue")
    async def test_other_queues_and_tasks_go_on_as_they_did(self, world: World) -> None:
        node = await world.node()
        await world.store.declare([Gate(scope=Scope.TASK, name=str(RESIZE), concurrency=2)])
        await on(world).limit_queue(MAIL, 1)
        await fill(world, 5)
        await world.enqueue_all(world.new(SEND, queue="other") for _ in range(5))
        await world.enqueue_all(world.new(RESIZE, queue="other") for _ in range(5))

        assert await claimed(world, node) == 1 + 5 + 2

    @obligation("limit_queue", 1)
    @pytest.mark.parametrize("limit", [1, 2, 5])
    async def test_it_holds_in_place_of_what_is_declared(self, world: World, limit: int) -> None:
        node = await world.node()
        await world.store.declare([gate(2)])
        await on(world).limit_queue(MAIL, limit)
        await fill(world)
        assert await claimed(world, node) == limit

    @obligation("limit_queue", 1)
    async def test_it_holds_for_jobs_that_wait_and_counts_those_that_run(self, world: World) -> None:
        node = await world.node()
        await fill(world)
        running = list(await world.claim(node, room=4))
        await on(world).limit_queue(MAIL, 3)
        assert await claimed(world, node) == 0
        for _ in range(2):
            await world.end(running.pop().claim, Succeeded())
        assert await claimed(world, node) == 1
        await on(world).limit_queue(MAIL, 6)

        assert await claimed(world, node) == 3

    @obligation("limit_queue", 1)
    @pytest.mark.parametrize("before", [None, 4])
    async def test_it_holds_through_later_declarations(self, world: World, before: int | None) -> None:
        node = await world.node()
        if before:
            await world.store.declare([gate(before)])
        await on(world).limit_queue(MAIL, 2)
        await fill(world)
        for declared in (5, 1, None, 7):
            await world.store.declare([gate(declared)])
        assert await claimed(world, node) == 2
        await world.store.declare([gate(None)])
        assert await claimed(world, node) == 0
        await world.store.declare([gate(7)])
        await on(world).limit_queue(MAIL, None)

        assert await claimed(world, node) == 5

    @obligation("limit_queue", 1)
    @pytest.mark.parametrize("declared", [None, 3])
    async def test_once_it_is_taken_back_what_is_declared_holds(self, world: World, declared: int | None) -> None:
        node = await world.node()
        if declared:
            await world.store.declare([gate(declared)])
        await on(world).limit_queue(MAIL, 1)
        await fill(world, 20)
        assert await claimed(world, node) == 1
        assert await on(world).limit_queue(MAIL, None)

        assert await claimed(world, node) == (declared or 20) - 1

    @obligation("limit_queue", 1)
    async def test_it_holds_for_whoever_opens_the_store_later(self, world: World) -> None:
        await on(world).limit_queue(MAIL, 2)
        await fill(world)
        other = await world.open()
        await other.declare([gate(9)])
        node = await world.node()

        assert len((await world.ask(node, store=other, room=MANY)).deliveries) == 2

    @obligation("limit_queue", 1)
    async def test_it_is_heard_of_by_handles_that_know_another(self, world: World) -> None:
        other = await world.open()
        node = await world.node()
        await fill(world)
        await world.store.declare([gate(1)])
        assert len((await world.ask(node, store=other, room=MANY)).deliveries) == 1
        for limit in (3, 4, None, 7):
            await on(world).limit_queue(MAIL, limit)
            wanted = {3: 2, 4: 1, None: 0, 7: 3}[limit]
            assert len((await world.ask(node, store=other, room=MANY)).deliveries) == wanted

    @obligation("limit_queue", 2)
    @pytest.mark.parametrize("limited_first", [False, True])
    async def test_a_declared_rate_stays(self, world: World, limited_first: bool) -> None:
        node = await world.node()
        rated = Gate(scope=Scope.QUEUE, name=MAIL, rate=Rate(count=1, period=HOUR, burst=4))
        await fill(world, 20)
        if limited_first:
            await on(world).limit_queue(MAIL, 3)
        await world.store.declare([rated])
        await on(world).limit_queue(MAIL, 3)
        running = await world.claim(node, room=MANY)
        assert len(running) == 3
        for one in running:
            await world.end(one.claim, Succeeded())
        assert await claimed(world, node) == 1
        await on(world).limit_queue(MAIL, None)
        assert await claimed(world, node) == 0
        world.clock.advance(HOUR)

        assert await claimed(world, node) == 1

    @obligation("limit_queue")
    async def test_it_says_whether_it_was_so(self, world: World) -> None:
        assert not await on(world).limit_queue(MAIL, None)
        assert await on(world).limit_queue(MAIL, 2, by="me")
        assert not await on(world).limit_queue(MAIL, 2, by="you")
        assert await on(world).limit_queue(MAIL, 3, by="you")
        assert await on(world).limit_queue(MAIL, None)
        assert not await on(world).limit_queue(MAIL, None)
        await world.store.declare([gate(2)])
        assert await on(world).limit_queue(MAIL, 2)

    @obligation("limit_queue", 3)
    @pytest.mark.parametrize("limit", [0, -1])
    async def test_less_than_one_is_no_limit(self, world: World, limit: int) -> None:
        with pytest.raises(DeclarationError):
            await on(world).limit_queue(MAIL, limit)
        assert await on(world).queue_rules() == ()

    @obligation("limit_queue", 1)
    async def test_it_is_exact_under_many_concurrent_claims(self, world: World) -> None:
        handles = [world.store, await world.open(), await world.open()]
        nodes = [await world.node() for _ in range(6)]
        await fill(world, 60)
        await on(world).limit_queue(MAIL, 5)
        running: set[Delivery] = set()
        done = 0

        async def work(number: int, node: Member) -> None:
            nonlocal done
            store = handles[number % len(handles)]
            for turn in range(MANY):
                mine = (await world.ask(node, store=store, room=1 + (number + turn) % 3)).deliveries
                running.update(mine)
                assert len(running) <= 5
                await asyncio.sleep(0)
                for delivery in mine:
                    running.remove(delivery)  # before it is settled: from then on another may have the place
                    settled = await world.settle(delivery.claim, Succeeded(), store=store)
                    assert settled.verdict is Verdict.ACCEPTED
                    done += 1
                if done == 60:
                    return

        await asyncio.gather(*map(work, range(6), nodes))
        assert done == 60

    @obligation("limit_queue")
    @pytest.mark.parametrize("limit", [9, None])
    async def test_who_waits_for_a_place_is_told(self, world: World, limit: int | None) -> None:
        other = await world.open()
        node = await world.node()
        await on(world).limit_queue(MAIL, 1)
        await fill(world, 5)
        assert await claimed(world, node) == 1
        bell = Bell()
        stop = other.watch(bell)
        bell.reset()
        await on(world).limit_queue(MAIL, limit)
        await bell.wait()
        stop()

        assert len((await world.ask(node, store=other, room=MANY)).deliveries) == 4

    # queue_rules

    @obligation("queue_rules")
    async def test_queues_that_are_paused_limited_or_declared_are_told_by_name(self, world: World) -> None:
        assert await on(world).queue_rules() == ()
        await world.enqueue(queue="plain")
        await world.store.declare([gate(3), Gate(scope=Scope.TASK, name="task", concurrency=1)])
        await world.store.declare([Gate(scope=Scope.QUEUE, name="rated", rate=Rate.of("1/s"))])
        await world.store.pause("paused", by="me", reason="why")
        await on(world).limit_queue("limited", 2, by="you")
        await on(world).limit_queue(MAIL, 4, by="them")
        pause = Pause(at=world.now, by="me", reason="why")
        world.clock.advance(SECOND)

        assert await on(world).queue_rules() == (
            QueueRule(name="limited", limit=2, by="you"),
            QueueRule(name=MAIL, declared=3, limit=4, by="them"),
            QueueRule(name="paused", paused=pause),
            QueueRule(name="rated", rate=Rate.of("1/s")),
        )
        await on(world).limit_queue("limited", None)
        await on(world).limit_queue(MAIL, 4, by="somebody else")
        await world.store.declare([gate(None)])
        await world.store.resume("paused")

        assert await on(world).queue_rules() == (
            QueueRule(name=MAIL, limit=4, by="them"),
            QueueRule(name="rated", rate=Rate.of("1/s")),
        )


def gate(concurrency: int | None) -> Gate:
    return Gate(scope=Scope.QUEUE, name=MAIL, concurrency=concurrency)


async def fill(world: World, jobs: int = 12) -> None:
    await world.enqueue_all(world.new((SEND, RESIZE)[at % 2], queue=MAIL) for at in range(jobs))


async def claimed(world: World, node: Member) -> int:
    """Claim all there is, and say how many that were."""
    return len(await world.claim(node, room=MANY))
