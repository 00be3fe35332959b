# ruff: noqa: S101 -- a suite of tests is built on assert
"""What a claim costs with many jobs around, and a look with many schedules: as much as without them, or nearly.

Real time is measured, so the best of many counts, and the bounds are far from what a sound store needs. A store that
walks over what waits is a hundred times off.
"""

import time

import pytest
from msgspec.structs import replace

from mainspring.core.breaker import Breaker, Phase
from mainspring.core.job import State
from mainspring.core.limits import Gate, Rate, Scope
from mainspring.core.names import Name
from mainspring.core.outcome import Succeeded
from mainspring.core.rules import Every
from mainspring.core.schedule import Paused, Run
from mainspring.core.steps import create
from mainspring.stores.records import NewJob
from mainspring.testing.contract import plans
from mainspring.testing.contract.obligation import obligation
from mainspring.testing.contract.verbs.contract import Contract
from mainspring.testing.contract.world import DAY, FATAL, HOUR, RESIZE, SEND, Member, World

MANY = 20_000
ROUNDS = 30
FACTOR = 10


class CostContract(Contract):
    """The cost of `claim` and `due`. Takes seconds. Needs the roles Jobs, Schedules, Nodes and Operator."""

    @obligation("claim", 10)
    @pytest.mark.parametrize(
        "gate",
        [
            Gate(scope=Scope.TASK, name=str(RESIZE), concurrency=1),
            Gate(scope=Scope.KEY, name=str(RESIZE), concurrency=1),
            Gate(scope=Scope.TASK, name=str(RESIZE), rate=Rate(count=1, period=DAY)),
        ],
        ids=["task", "key", "rate"],
    )
    async def test_what_a_gate_holds_back_in_front_costs_nothing(self, world: World, gate: Gate) -> None:
        node = await world.node()
        alone = await cost(world, node)
        await world.store.declare([gate])
        await world.enqueue_all(world.new(RESIZE, key="a", priority=100) for _ in range(MANY))
        first = await world.claim_one(node)
        assert first.job.task == RESIZE
        free = await world.enqueue(SEND, priority=0)

        (delivery,) = await world.claim(node)
        assert delivery.claim.job.id == free
        await world.end(delivery.claim, Succeeded())

        crowded = await cost(world, node)
        assert crowded < FACTOR * alone, (crowded, alone)

    @obligation("claim", 10)
    @obligation("claim", 11)
    @pytest.mark.parametrize("phase", [Phase.OPEN, Phase.HALF_OPEN])
    async def test_what_a_breaker_holds_back_in_front_costs_nothing(self, world: World, phase: Phase) -> None:
        node = await world.node()
        alone = await cost(world, node)
        await world.store.declare_breakers({RESIZE: Breaker(threshold=1, cooldown=HOUR)})
        await world.enqueue(RESIZE, priority=100)
        (delivery,) = await world.claim(node)
        await world.store.settle([replace(world.settlement(delivery.claim, FATAL), term=delivery.term)])
        await world.enqueue_all(world.new(RESIZE, key="a", priority=100) for _ in range(5 * MANY))
        if phase is Phase.HALF_OPEN:
            world.clock.advance(HOUR)
            assert (await world.claim_one(node)).job.task == RESIZE
        (view,) = await world.store.breakers([RESIZE])
        assert view.circuit.phase is phase

        crowded = await cost(world, node)
        assert crowded < FACTOR * alone, (crowded, alone)

    @obligation("claim", 10)
    async def test_a_paused_queue_in_front_costs_nothing(self, world: World) -> None:
        node = await world.node()
        alone = await cost(world, node)
        since = world.now - HOUR
        await world.enqueue_all(world.new(queue="paused", priority=100, run_at=since) for _ in range(MANY))
        await world.store.pause("paused")

        crowded = await cost(world, node)
        assert crowded < FACTOR * alone, (crowded, alone)

    @obligation("claim", 10)
    async def test_what_waits_behind_costs_nothing(self, world: World) -> None:
        node = await world.node()
        alone = await cost(world, node)

        def crowd() -> NewJob:
            return world.new(priority=1, run_at=world.now - HOUR)

        await world.enqueue_all(crowd() for _ in range(MANY // 2))
        await world.enqueue_all(world.new(priority=100, run_at=HOUR) for _ in range(MANY // 2))

        crowded = await cost(world, node)
        assert crowded < FACTOR * alone, (crowded, alone)

    @obligation("due", 4)
    async def test_schedules_that_are_not_due_cost_nothing(self, world: World) -> None:
        await idle(world, 20)
        await plans.add(world)
        world.clock.advance(HOUR)
        alone = await cost_of_a_look(world)
        await idle(world, MANY)

        crowded = await cost_of_a_look(world)
        assert crowded < FACTOR * alone, (crowded, alone)

    @obligation("due", 4)
    async def test_runs_that_are_over_cost_a_look_nothing(self, world: World) -> None:
        await plans.add(world)
        await plans.fire(world)
        world.clock.advance(HOUR)
        alone = await cost_of_a_look(world)
        for _ in range(MANY // 1000):
            there = await plans.schedule(world)
            over = Run(id=world.id(), schedule=there.name, decided_at=world.now, state=State.SUCCEEDED)
            runs = tuple(replace(over, id=world.id()) for _ in range(1000))
            await plans.written(world, plans.stepped(there, *runs))

        crowded = await cost_of_a_look(world)
        assert crowded < FACTOR * alone, (crowded, alone)


async def idle(world: World, count: int) -> None:
    """Add schedules that are not due for long, half of them paused."""
    for _ in range(0, count, 1000):
        moves = []
        for number in range(min(count, 1000)):
            paused = Paused(at=world.now) if number % 2 else None
            name = Name("", f"idle-{world.id()}")
            decision = create(name, plans.plan(Every(30 * DAY)), world.now, paused=paused)
            moves.append(plans.move_of(world, decision))
        assert all(await world.store.move(moves))


async def cost_of_a_look(world: World) -> float:
    """Measure the cheapest of several looks that find one schedule."""
    best = float("inf")
    for _ in range(ROUNDS):
        began = time.perf_counter()
        looked = await world.store.due(100)
        best = min(best, time.perf_counter() - began)
        assert len(looked.looks) == 1
    return best


async def cost(world: World, node: Member) -> float:
    """Measure the cheapest of several claims of one free job."""
    best = float("inf")
    for _ in range(ROUNDS):
        wanted = await world.enqueue(SEND, priority=50)
        began = time.perf_counter()
        deliveries = await world.claim(node)
        best = min(best, time.perf_counter() - began)
        (delivery,) = deliveries
        assert delivery.claim.job.id == wanted
        await world.end(delivery.claim, Succeeded())
    return best
