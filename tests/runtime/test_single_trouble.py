"""Singletons in trouble: the step stops in time, nobody runs beside another, and the service goes on when it can."""

import asyncio
import logging
import random
from contextlib import suppress
from datetime import timedelta
from itertools import pairwise

import pytest

from mainspring import Idle, Proceed
from mainspring.client.services import ServiceContext
from mainspring.settings import NodeSettings
from mainspring.supervise import Notifier
from mainspring.testing import VirtualTime
from tests.runtime.singles import LOCKS, NAME, TTL, Line, Program, World


@pytest.fixture
def world(virtual_time: VirtualTime) -> World:
    return World.on(virtual_time)


# Dropping it in time.


async def test_the_step_is_stopped_before_another_can_have_the_lease(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    a, b = world.sweepers(2, lasts=600.0)
    async with a.node() as holder:
        await asyncio.sleep(20)
        async with b.node():
            a.lose_touch()
            last = world.time.elapsed
            await world.until(lambda: len(world.of("a")) == 2)
            stopped = world.of("a")[1]
            assert stopped.what == "end"
            assert 0.9 * TTL - 5.5 <= stopped.at - last <= 0.9 * TTL
            await world.until(lambda: world.of("b"))
            assert world.of("b")[0].at - stopped.at >= 0.1 * TTL - 0.01
            assert "service sweep: its lease was not extended in time" in caplog.text
            await asyncio.sleep(60)
            assert len(world.of("a")) == 2, "it does not run again before it is elected"
            a.store.heal()
            await asyncio.sleep(60)
            assert len(world.of("a")) == 2
            assert "another node has its lease" not in caplog.text, "nothing of it was left to stop"
            assert holder.events.counts["service_leases_lost"] == 1
        await world.until(lambda: len(world.of("a")) > 2)  # it stands for election again

    assert world.terms() == [("a", 1), ("b", 2), ("a", 3)]


async def test_after_an_outage_in_which_nobody_took_it_the_holder_goes_on_under_its_term(world: World) -> None:
    (a,) = world.sweepers(1)
    async with a.node():
        await asyncio.sleep(10)
        a.lose_touch()
        await asyncio.sleep(60)
        steps = len(world.lines)
        await asyncio.sleep(60)
        assert len(world.lines) == steps
        a.store.heal()
        await asyncio.sleep(10)

    assert len(world.lines) > steps
    assert world.terms() == [("a", 1)]


async def test_an_outage_that_is_shorter_than_the_lease_is_not_noticed(world: World) -> None:
    a, b = world.sweepers(2)
    async with a.node():
        await asyncio.sleep(10)
        async with b.node():
            for _ in range(20):
                a.lose_touch()
                await asyncio.sleep(6)
                a.store.heal()
                await asyncio.sleep(6)

    steps = [line.at for line in world.of("a") if line.what == "step"]
    assert max(after - before for before, after in pairwise(steps)) < 1.1
    assert world.terms()[0] == ("a", 1)


async def test_a_store_that_hangs_is_no_reason_to_hold_on(world: World) -> None:
    a, b = world.sweepers(2, lasts=600.0)
    async with a.node():
        await asyncio.sleep(11)
        async with b.node():
            a.store.delay("extend", "1h", times=100)
            await world.until(lambda: world.of("b"))
            assert [line.what for line in world.of("a")] == ["step", "end"]
            assert world.of("a")[1].at < world.of("b")[0].at


async def test_a_lease_that_another_has_taken_is_left_at_once_and_told_in_one_line(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    (a,) = world.sweepers(1, lasts=600.0)
    await world.memory.open()
    async with a.node() as holder:
        await asyncio.sleep(6)
        held = await world.memory.acquire(NAME, holder.id, timedelta(seconds=TTL))
        assert held
        assert await world.memory.resign(held)  # somebody has meddled with the table
        theirs = await world.memory.acquire(NAME, "somebody", timedelta(seconds=30))
        assert theirs
        took = await world.until(lambda: len(world.of("a")) == 2)
        assert took <= 5
        lines = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
        assert lines == ["service sweep: another node has its lease by now; it is stopped here"]
        assert holder.events.counts["service_leases_lost"] == 1
        await world.until(lambda: len(world.of("a")) == 3)
    assert world.of("a")[2].term > theirs.term


async def test_a_step_that_will_not_stop_is_reported_and_fenced_and_nothing_runs_beside_it(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    a, b = world.program("a"), world.program("b")
    b.sweeps()
    contexts: list[ServiceContext] = []

    @a.app.service(name="sweep", singleton=True)
    async def stubborn(ctx: ServiceContext) -> Idle:
        a.write(ctx, "step")
        contexts.append(ctx)
        until = world.time.elapsed + 120
        while world.time.elapsed < until:
            try:
                await asyncio.sleep(until - world.time.elapsed)
            except asyncio.CancelledError:
                a.write(ctx, "told")
        a.write(ctx, "end")
        return Idle()

    async with a.node(stop_grace="5s") as holder:
        await asyncio.sleep(1)
        async with b.node():
            a.lose_touch()
            await world.until(lambda: world.of("b"))
            assert [line.what for line in world.of("a")] == ["step", "told"]
            assert (contexts[0].held, contexts[0].stopping, contexts[0].term) == (False, True, 1)
            a.store.heal()
            await asyncio.sleep(30)
        assert "service sweep: a step under term 1 goes on although it was told to stop" in caplog.text
        assert holder.events.counts["services_abandoned"] == 1
        await asyncio.sleep(30)  # nobody has the lease now, and it is not asked for here
        assert [line.what for line in world.of("a")] == ["step", "told"]
        await world.until(lambda: len(world.of("a")) == 4)
        assert [line.what for line in world.of("a")] == ["step", "told", "end", "step"]
        assert world.of("a")[3].at - world.of("a")[2].at < 1
        await asyncio.sleep(125)

    assert [line.term for line in world.of("a")] == [1, 1, 1, 3, 3]


async def test_F9_nobody_runs_a_step_that_the_clock_has_overtaken(world: World) -> None:
    """A machine that slept, or whose clock was set: its monotonic clock may not have counted that time."""
    a, b = world.sweepers(2)
    async with a.node():
        await asyncio.sleep(4)
        async with b.node():
            for _ in range(20):
                await asyncio.sleep(7.1)
                world.time.clock.jump("5m")

    terms = [line.term for line in world.lines if line.what == "step"]
    assert terms == sorted(terms), "an older term after a newer one"
    assert len(world.terms()) > 2, "it never went to another, so that nothing was tested"


async def test_F9_a_step_that_lasts_is_stopped_when_the_clock_has_overtaken_it(virtual_time: VirtualTime) -> None:
    """Nothing wakes the holder then, and it may be a while until it learns from the store that another has its lease."""
    world = World.without_hints(virtual_time)
    a, b = world.sweepers(2, lasts=1000)
    async with a.node():
        await asyncio.sleep(4)
        async with b.node():
            await asyncio.sleep(4)
            a.lose_touch()  # else it might extend its lease before the other asks, and would rightly go on
            world.time.clock.jump("5m")
            await asyncio.sleep(0.51)
            assert [line.what for line in world.of("a")] == ["step", "end"]
            await world.until(lambda: world.of("b"), within=6)


async def test_F9_steps_that_last_overlap_for_half_a_second_at_most(virtual_time: VirtualTime) -> None:
    world = World.without_hints(virtual_time)
    a, b = world.sweepers(2, lasts=1000)
    async with a.node():
        await asyncio.sleep(4)
        async with b.node():
            for _ in range(30):
                await asyncio.sleep(7.1)
                world.time.clock.jump("5m")

    began: dict[str, float] = {}
    for line in world.lines:
        if line.what == "step":
            began[line.who] = line.at
        elif line.at - began.pop(line.who) > 0 and began:
            assert line.at - max(began.values()) <= 0.5, "two at a time"


async def test_what_woke_a_step_that_may_not_run_wakes_the_next_one(world: World) -> None:
    a = world.program("a")
    mail = Notifier()

    @a.app.service(name="sweep", singleton=True, wake=mail, start_idle=True)
    async def send(ctx: ServiceContext) -> None:
        a.write(ctx, "step")

    async with a.node():
        await asyncio.sleep(6)
        world.time.clock.jump("1h")
        mail.notify_one()
        await asyncio.sleep(0.5)

    assert len(world.lines) == 1


async def test_a_step_whose_cleaning_up_fails_does_not_take_the_service_with_it(world: World) -> None:
    a = world.program("a")

    @a.app.service(name="sweep", singleton=True)
    async def clumsy(ctx: ServiceContext) -> None:
        a.write(ctx, "step")
        try:
            await asyncio.sleep(600)
        finally:
            raise OSError("it was not there any more")

    async with a.node():
        await asyncio.sleep(1)
        a.lose_touch()
        await asyncio.sleep(60)
        a.store.heal()
        await asyncio.sleep(5)

    assert [line.what for line in world.lines] == ["step", "step"]


async def test_a_singleton_that_dies_goes_to_another_node(world: World, caplog: pytest.LogCaptureFixture) -> None:
    a, b = world.program("a"), world.program("b")
    b.sweeps()

    @a.app.service(name="sweep", singleton=True, on_panic="propagate")
    async def fragile(ctx: ServiceContext) -> None:
        a.write(ctx, "step")
        await asyncio.sleep(10)
        raise OSError("no")

    async with a.node(), b.node():
        await asyncio.sleep(60)

    assert world.terms() == [("a", 1), ("b", 2)]
    assert len(world.of("a")) == 1
    assert "service sweep runs on this node no more" in caplog.text


async def test_a_singleton_that_proceeds_still_lets_go(world: World) -> None:
    a, b = world.program("a"), world.program("b")
    b.sweeps()

    @a.app.service(name="sweep", singleton=True)
    async def eager(ctx: ServiceContext) -> Proceed:
        a.write(ctx, "step")
        return Proceed()

    async with a.node():
        await asyncio.sleep(1)
        async with b.node():
            a.lose_touch()
            await world.until(lambda: world.of("b"))
            first = world.of("b")[0].at
            await asyncio.sleep(5)

    assert max(line.at for line in world.of("a")) < first


# The end of a node.


async def test_a_lease_that_cannot_be_given_up_does_not_hold_up_the_end(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    (a,) = world.sweepers(1)
    async with a.node():
        await asyncio.sleep(1)
        a.store.drop("resign")
    assert "the lease of service sweep could not be given up" in caplog.text

    async with a.node():
        await asyncio.sleep(20)
        a.store.delay("resign", "1h")
        began = world.time.elapsed
    assert world.time.elapsed - began <= 4
    assert "the leases of services could not be given up within 2 s" in caplog.text


async def test_a_lease_whose_step_would_not_stop_is_not_given_up(world: World) -> None:
    a = world.program("a")

    @a.app.service(name="sweep", singleton=True)
    async def stubborn() -> None:
        until = world.time.elapsed + 40
        while world.time.elapsed < until:
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(until - world.time.elapsed)

    await world.memory.open()
    async with a.app:
        node = a.app.make_node(NodeSettings(ticker=False, stop_grace="1s"))
        await node.start()
        await asyncio.sleep(1)
        report = await node.shutdown(grace=0)
        assert report.services == ("sweep",)
        assert await world.memory.acquire(NAME, "somebody", timedelta(seconds=TTL)) is None
        await asyncio.sleep(TTL)
        assert await world.memory.acquire(NAME, "somebody", timedelta(seconds=TTL)), "it runs out"
        await asyncio.sleep(40)


async def test_a_node_that_is_about_to_end_does_not_stand_for_election_any_more(world: World) -> None:
    a, b = world.sweepers(2)

    @b.app.service(name="slow")
    async def slow() -> None:
        await asyncio.sleep(600)

    async with a.app, b.app:
        holder, leaver = (one.app.make_node(NodeSettings(ticker=False)) for one in (a, b))
        await holder.start()
        await leaver.start()
        await asyncio.sleep(1)
        ending = asyncio.create_task(leaver.shutdown())
        await asyncio.sleep(1)
        await holder.shutdown()  # the lease is free, and b lets its slow step finish
        await asyncio.sleep(5)
        assert not ending.done()
        await world.memory.open()
        assert await world.memory.acquire(NAME, "somebody", timedelta(seconds=TTL))
        await ending


# All of it together.


@pytest.mark.parametrize("seed", range(4))
async def test_whatever_befalls_the_nodes_steps_never_overlap_and_terms_never_fall(world: World, seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311 - the same in every run
    programs = world.sweepers(3, lasts=0.7, ttl="3s")
    # Told to stop, they all do: then nobody may ever be beside another.

    async def trouble(program: Program) -> None:
        while True:
            async with program.node(grace=chance.choice([0, 2])):
                for _ in range(chance.randrange(1, 20)):
                    await asyncio.sleep(chance.expovariate(1 / 4))
                    verb = chance.choice(LOCKS)
                    match chance.randrange(5):
                        case 0:
                            program.store.drop(verb, times=chance.randrange(1, 10))
                        case 1:
                            program.store.lose_answer(verb, times=chance.randrange(1, 10))
                        case 2:
                            program.store.delay(verb, chance.uniform(0, 6), times=chance.randrange(1, 5))
                        case 3:
                            program.store.duplicate(verb)
                        case _:
                            program.store.heal()
            await asyncio.sleep(chance.expovariate(1 / 3))

    troubles = [asyncio.create_task(trouble(program)) for program in programs]
    await asyncio.sleep(300)
    for one in troubles:
        one.cancel()
    await asyncio.gather(*troubles, return_exceptions=True)

    running: Line | None = None
    highest = 0
    for line in world.lines:
        if line.what == "end":
            running = None
            continue
        assert running is None, f"{line} beside {running}"
        assert line.term >= highest
        running, highest = line, line.term
    assert highest >= 5, "it hardly changed hands, so that nothing was tested"
    assert len(world.lines) > 60
