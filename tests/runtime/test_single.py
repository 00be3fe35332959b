"""Singletons on virtual time: who runs one, who takes over and when, and what that costs."""

import asyncio
from datetime import timedelta

import pytest

from mainspring.client.services import ServiceContext
from mainspring.core.job import NodeId
from mainspring.runtime.services import Neighbours
from mainspring.settings import NodeSettings
from mainspring.stores.records import NodeRecord, NodeView, Process
from mainspring.testing import VirtualTime
from mainspring.testing.virtual import START
from tests.runtime.singles import LOCKS, NAME, TTL, World

ELSEWHERE = Process(host="another machine", pid=1, started="then")


@pytest.fixture
def world(virtual_time: VirtualTime) -> World:
    return World.on(virtual_time)


# One at a time.


async def test_a_singleton_runs_on_one_node_and_a_healthy_holder_is_never_disturbed(world: World) -> None:
    a, b = world.sweepers(2)
    async with a.node():
        await asyncio.sleep(1)
        async with b.node():
            await asyncio.sleep(600)

    assert world.terms() == [("a", 1)]
    assert len([line for line in world.of("a") if line.what == "step"]) == pytest.approx(600, abs=5)


async def test_a_standby_takes_over_at_once_when_the_holder_leaves(world: World) -> None:
    a, b = world.sweepers(2)
    async with b.app:
        async with a.node():
            await asyncio.sleep(1)
            standby = b.app.make_node(NodeSettings(ticker=False))
            await standby.start()
            await asyncio.sleep(63.2)
        left = world.time.elapsed
        await world.until(lambda: world.of("b"))
        assert world.of("b")[0].at - left <= 1
        assert world.of("b")[0].at >= world.of("a")[-1].at
        await standby.shutdown()

    assert world.terms() == [("a", 1), ("b", 2)]


async def test_the_lease_is_kept_while_the_last_step_finishes_and_given_up_then(world: World) -> None:
    a, b = world.sweepers(2, lasts=8.0, ttl="3s")
    async with b.app:
        async with a.node():
            await asyncio.sleep(1)
            standby = b.app.make_node(NodeSettings(ticker=False))
            await standby.start()
            await asyncio.sleep(1)
            began = world.time.elapsed
        assert world.time.elapsed - began == pytest.approx(6, abs=0.5)
        assert world.terms() == [("a", 1)]
        assert [line.what for line in world.lines] == ["step", "end"]
        assert await world.until(lambda: world.of("b")) <= 1.5
        await standby.shutdown(grace=0)


async def test_two_singletons_of_two_names_may_run_on_two_nodes(world: World) -> None:
    a, b = world.sweepers(2)

    @b.app.service(name="other", singleton=True)
    async def other(ctx: ServiceContext) -> None:
        b.write(ctx, "other")

    async with a.node():
        await asyncio.sleep(1)
        async with b.node():
            await asyncio.sleep(60)
            assert {(line.who, line.what) for line in world.lines if line.what != "end"} == {
                ("a", "step"),
                ("b", "other"),
            }


async def test_a_lock_of_the_same_name_is_another_lock(world: World) -> None:
    (a,) = world.sweepers(1)
    async with a.app, a.app.lock("sweep"), a.node():
        await asyncio.sleep(1)

    assert world.of("a")


async def test_an_answer_that_was_lost_is_no_election_that_was_lost(world: World) -> None:
    a, b = world.sweepers(2)
    a.store.lose_answer("acquire", times=2)
    async with a.node(), b.node():
        await world.until(lambda: world.of("a"), within=8)
        a.store.lose_answer("extend", times=3)
        await asyncio.sleep(60)

    assert world.terms()[0] == ("a", 1)
    assert len(world.terms()) <= 2


# Taking over from one that has died.


@pytest.mark.parametrize("late", [0.0, 0.7, 1.9, 3.1, 4.3])
@pytest.mark.parametrize("ttl", [1.0, 5.0, 8.0, TTL, 40.0])
async def test_after_the_death_of_its_node_a_standby_runs_it_within_the_ttl_and_two_seconds(
    virtual_time: VirtualTime, ttl: float, late: float
) -> None:
    """On another machine: all that can be seen is that the node has fallen silent."""
    world = World.without_hints(virtual_time)
    (standby,) = world.sweepers(1, ttl=ttl)
    await world.memory.open()
    node, life = NodeId("another"), timedelta(seconds=ttl)
    term = await world.memory.join(NodeRecord(id=node, process=ELSEWHERE, tasks=frozenset()))
    assert await world.memory.acquire(NAME, node, life)

    async def live(seconds: float) -> None:
        until = world.time.elapsed + seconds
        while world.time.elapsed < until:
            await asyncio.sleep(0.25)
            assert await world.memory.acquire(NAME, node, life), "it was taken from one that was alive"
            await world.memory.renew(node, term)

    async with standby.node():
        await live(20 + late)
        assert not world.lines
        took = await world.until(lambda: world.lines)

    assert ttl <= took <= ttl + 2


async def test_a_standby_asks_more_often_only_while_a_node_is_missing(virtual_time: VirtualTime) -> None:
    world = World.without_hints(virtual_time)
    (standby,) = world.sweepers(1)
    await world.memory.open()
    node, ages = NodeId("another"), timedelta(hours=1)
    term = await world.memory.join(NodeRecord(id=node, process=ELSEWHERE, tasks=frozenset()))
    assert await world.memory.acquire(NAME, "who knows", ages)

    async def asked(seconds: float, *, alive: bool) -> int:
        standby.store.calls.clear()
        for _ in range(int(seconds)):
            await asyncio.sleep(1)
            if alive:
                await world.memory.renew(node, term)
        return standby.store.calls.count("acquire")

    async with standby.node():
        assert await asked(60, alive=True) <= 60 / (0.75 * TTL / 3) + 1
        assert await asked(30, alive=False) >= 20
        await asked(20, alive=False)
        assert await asked(60, alive=False) <= 60 / (0.75 * TTL / 3) + 1, "it was declared dead long ago"


# What it costs.


async def test_a_holder_extends_three_times_a_ttl_and_a_standby_asks_about_as_often(virtual_time: VirtualTime) -> None:
    world = World.without_hints(virtual_time)
    a, b = world.sweepers(2)
    async with a.node():
        await asyncio.sleep(1)
        async with b.node():
            await asyncio.sleep(10)
            for program in (a, b):
                program.store.calls.clear()
            await asyncio.sleep(600)
            calls = [{verb: one.store.calls.count(verb) for verb in LOCKS} for one in (a, b)]

    assert calls[0]["extend"] == pytest.approx(600 / (TTL / 3), rel=0.02)
    assert calls[0]["acquire"] == calls[1]["extend"] == calls[1]["resign"] == 0
    assert 600 / (TTL / 3) * 0.98 <= calls[1]["acquire"] <= 600 / (TTL / 3) / 0.75 * 1.02


async def test_a_busy_store_does_not_make_a_standby_busy(world: World) -> None:
    a, b = world.sweepers(2)

    @a.app.task
    async def work() -> None: ...

    async with a.node():
        await asyncio.sleep(1)
        async with b.node(queues=["none"]):
            await asyncio.sleep(10)
            b.store.calls.clear()
            for _ in range(1000):
                await work.enqueue()
                await asyncio.sleep(0.02)
            assert 15 <= b.store.calls.count("acquire") <= 21


# Who is missing.


def view(node: str, counter: int) -> NodeView:
    record = NodeRecord(id=NodeId(node), process=ELSEWHERE, tasks=frozenset())
    return NodeView(node=record, term=1, counter=counter, alive=True, joined_at=START, renewed_at=START)


def test_a_node_that_renews_is_not_missing() -> None:
    neighbours = Neighbours()

    assert not any(neighbours.is_one_missing([view("a", beat), view("b", beat)], beat * 1.5) for beat in range(10))


def test_a_node_that_has_gone_is_missing_once() -> None:
    neighbours = Neighbours()
    neighbours.is_one_missing([view("a", 1), view("b", 1)], 0.0)

    assert neighbours.is_one_missing([view("a", 2)], 1.5)
    assert not neighbours.is_one_missing([view("a", 3)], 3.0)


def test_a_node_that_has_fallen_silent_is_missing_until_it_is_heard_again() -> None:
    neighbours = Neighbours()
    said = [neighbours.is_one_missing([view("a", 7)], at) for at in (0.0, 1.5, 3.0, 4.5, 6.0)]

    assert said == [False, False, False, True, True]
    assert not neighbours.is_one_missing([view("a", 8)], 7.5)
