# ruff: noqa: S101 -- a suite of tests is built on assert
"""Rate gates: no more starts than they say, on the store's clock."""

import asyncio
from datetime import timedelta

import pytest

from mainspring.core.limits import MOMENT, Gate, Rate, Scope
from mainspring.core.outcome import Interrupted, Snoozed, Succeeded
from mainspring.testing.contract.obligation import obligation
from mainspring.testing.contract.verbs.contract import Contract
from mainspring.testing.contract.world import DAY, HOUR, SECOND, SEND, Member, World

MANY = 1000
ONE_A_MINUTE = Rate(count=1, period=timedelta(minutes=1))
THREE_AT_ONCE = Rate(count=6, period=timedelta(minutes=1), burst=3)


class RatesContract(Contract):
    """Rates in `claim` and `declare`. Needs the roles Jobs and Nodes."""

    @obligation("claim", 6)
    async def test_a_burst_starts_at_once_and_the_others_at_the_steady_pace(self, world: World) -> None:
        node = await world.node()
        await world.store.declare([gate(THREE_AT_ONCE)])
        await world.enqueue_all(world.new() for _ in range(20))

        assert await starts(world, node) == 3
        world.clock.advance(10 * SECOND - MOMENT)
        assert await starts(world, node) == 0
        world.clock.advance(MOMENT)
        assert await starts(world, node) == 1
        world.clock.advance("25s")
        assert await starts(world, node) == 2
        world.clock.advance("1h")
        assert await starts(world, node) == 3

    @obligation("claim", 6)
    async def test_a_rate_is_as_the_rules_say_at_every_moment(self, world: World) -> None:
        node = await world.node()
        rate = Rate(count=7, period=timedelta(seconds=3), burst=4)
        await world.store.declare([gate(rate)])
        await world.enqueue_all(world.new() for _ in range(200))
        spent = None
        for step in range(40):
            world.clock.advance(timedelta(microseconds=step * 61_803))
            expected = rate.room(spent, world.now)
            assert await starts(world, node) == expected
            if expected:
                spent = rate.take(spent, world.now, expected)

    @obligation("claim", 6)
    async def test_a_rate_holds_over_all_nodes_and_handles_together(self, world: World) -> None:
        handles = [world.store, await world.open(), await world.open()]
        nodes = [await world.node() for _ in range(6)]
        await world.store.declare([gate(Rate(count=60, period=timedelta(minutes=1), burst=7))])
        await world.enqueue_all(world.new() for _ in range(50))

        for expected in (7, 0):
            answers = await asyncio.gather(
                *(world.ask(node, store=handles[at % 3], room=3) for at, node in enumerate(nodes))
            )
            assert sum(len(answer.deliveries) for answer in answers) == expected

    @obligation("claim", 6)
    async def test_a_start_counts_however_it_ended(self, world: World) -> None:
        node = await world.node()
        await world.store.declare([gate(ONE_A_MINUTE)])
        for outcome in (Succeeded(), Snoozed(delay=0 * SECOND), Interrupted(started=False)):
            await world.enqueue()
            (delivery,) = await world.claim(node, room=MANY)
            await world.end(delivery.claim, outcome)
            assert await starts(world, node) == 0
            world.clock.advance("1m")

    @obligation("claim", 6)
    async def test_what_another_gate_holds_back_does_not_count_as_a_start(self, world: World) -> None:
        node = await world.node()
        await world.store.declare([Gate(scope=Scope.TASK, name=str(SEND), concurrency=1, rate=THREE_AT_ONCE)])
        await world.enqueue_all(world.new() for _ in range(10))
        for _ in range(3):
            (delivery,) = await world.claim(node, room=MANY)
            await world.end(delivery.claim, Succeeded())

        assert await starts(world, node) == 0

    @obligation("claim", 6)
    async def test_each_key_has_a_rate_of_its_own(self, world: World) -> None:
        node = await world.node()
        await world.store.declare([Gate(scope=Scope.KEY, name=str(SEND), rate=ONE_A_MINUTE)])
        await world.enqueue_all(world.new(key=key) for key in ("a", "a", "b", "b", None, None))

        claimed = await world.claim(node, room=MANY)
        assert sorted(one.key or "-" for one in claimed) == ["-", "-", "a", "b"]
        world.clock.advance("1m")
        claimed = await world.claim(node, room=MANY)
        assert sorted(one.key or "-" for one in claimed) == ["a", "b"]

    @obligation("claim", 6)
    async def test_a_clock_that_is_set_back_lets_nothing_start_early(self, world: World) -> None:
        node = await world.node()
        await world.store.declare([gate(ONE_A_MINUTE)])
        await world.enqueue_all(world.new(run_at=world.now - HOUR) for _ in range(5))
        assert await starts(world, node) == 1

        world.clock.jump(timedelta(minutes=-1))
        for _ in range(2):
            assert await starts(world, node) == 0
            world.clock.advance("1m")
        assert await starts(world, node) == 1

    @obligation("claim", 6)
    @pytest.mark.parametrize("scope", list(Scope))
    async def test_a_clock_that_was_ahead_holds_nothing_back_after_its_correction(
        self, world: World, scope: Scope
    ) -> None:
        """One job starts at once, and the others follow at the steady pace."""
        node = await world.node()
        name = "default" if scope is Scope.QUEUE else str(SEND)
        await world.store.declare([Gate(scope=scope, name=name, rate=THREE_AT_ONCE)])
        await world.enqueue_all(world.new(key="a", run_at=world.now - HOUR) for _ in range(60))
        world.clock.jump(DAY)
        assert await starts(world, node) == 3
        assert await starts(world, node) == 0

        world.clock.jump(-DAY)
        assert await starts(world, node) == 1
        assert (await world.ask(node, room=MANY)).next_due == world.now + 10 * SECOND
        for _ in range(3):
            world.clock.advance("10s")
            assert await starts(world, node) == 1
            assert await starts(world, node) == 0
        world.clock.advance("1h")
        assert await starts(world, node) == 3

    @obligation("claim", 6)
    async def test_a_clock_that_was_ahead_holds_no_key_of_many_back_after_its_correction(self, world: World) -> None:
        node = await world.node()
        await world.store.declare([Gate(scope=Scope.KEY, name=str(SEND), rate=ONE_A_MINUTE)])
        keys = [f"key {number}" for number in range(40)]
        await world.enqueue_all(world.new(key=key, run_at=world.now - HOUR) for key in keys for _ in range(3))
        world.clock.jump(DAY)
        assert await starts(world, node) == 40
        assert await starts(world, node) == 0

        world.clock.jump(-DAY)
        assert await starts(world, node) == 40
        assert await starts(world, node) == 0
        world.clock.advance("1m")
        assert await starts(world, node) == 40

    @obligation("claim", 6)
    async def test_a_clock_that_is_set_back_under_more_keys_than_there_is_room_for(self, world: World) -> None:
        """What was open a moment ago is shut again; a claim finds that out, and ends."""
        node = await world.node()
        await world.store.declare([Gate(scope=Scope.KEY, name=str(SEND), rate=ONE_A_MINUTE)])
        began = world.now
        await world.enqueue_all(world.new(key=key, run_at=began - HOUR) for key in "aabbcc")
        assert await starts(world, node) == 3
        world.clock.advance("61s")
        assert len(await world.claim(node, room=1)) == 1

        world.clock.jump(timedelta(seconds=-5))
        answer = await world.ask(node, room=1)
        assert (answer.deliveries, answer.next_due) == ((), began + timedelta(minutes=1))
        await world.enqueue(run_at=began - SECOND)
        assert [one.key for one in await world.claim(node, room=1)] == [None]
        world.clock.advance("4s")
        assert [one.key for one in await world.claim(node, room=1)] == ["b"]
        assert [one.key for one in await world.claim(node, room=1)] == ["c"]
        assert await starts(world, node) == 0

    @obligation("declare", 2)
    async def test_a_rate_that_changes_starts_afresh(self, world: World) -> None:
        node = await world.node()
        await world.store.declare([gate(ONE_A_MINUTE)])
        await world.enqueue_all(world.new() for _ in range(20))
        assert await starts(world, node) == 1

        await world.store.declare([gate(THREE_AT_ONCE)])

        assert await starts(world, node) == 3

    @obligation("declare", 2)
    async def test_a_rate_that_stays_the_same_goes_on(self, world: World) -> None:
        node = await world.node()
        await world.store.declare([gate(THREE_AT_ONCE)])
        await world.enqueue_all(world.new() for _ in range(20))
        assert await starts(world, node) == 3

        await world.store.declare([gate(THREE_AT_ONCE)])
        assert await starts(world, node) == 0
        with_concurrency = Gate(scope=Scope.TASK, name=str(SEND), concurrency=MANY, rate=THREE_AT_ONCE)
        await world.store.declare([with_concurrency])
        assert await starts(world, node) == 0
        world.clock.advance("10s")
        assert await starts(world, node) == 1

    @obligation("declare", 1)
    @pytest.mark.parametrize("scope", list(Scope))
    async def test_a_rate_that_is_taken_away_holds_nothing_back(self, world: World, scope: Scope) -> None:
        node = await world.node()
        name = "default" if scope is Scope.QUEUE else str(SEND)
        await world.store.declare([Gate(scope=scope, name=name, rate=ONE_A_MINUTE)])
        await world.enqueue_all(world.new(key="a") for _ in range(5))
        assert await starts(world, node) == 1

        await world.store.declare([Gate(scope=scope, name=name)])

        assert await starts(world, node) == 4

    @obligation("claim", 4)
    async def test_what_a_rate_holds_back_steps_aside_and_keeps_its_order(self, world: World) -> None:
        node = await world.node()
        await world.store.declare([Gate(scope=Scope.KEY, name=str(SEND), rate=ONE_A_MINUTE)])
        held = [await world.enqueue(key="a", priority=100, run_at=world.now - at * SECOND) for at in range(4)]
        free = await world.enqueue(priority=0)

        assert [one.claim.job.id for one in await world.claim(node, room=MANY)] == [held[3], free]
        order = []
        for _ in range(3):
            world.clock.advance("1m")
            order += [one.claim.job.id for one in await world.claim(node, room=MANY)]
        assert order == held[2::-1]


def gate(rate: Rate) -> Gate:
    return Gate(scope=Scope.TASK, name=str(SEND), rate=rate)


async def starts(world: World, node: Member) -> int:
    return len(await world.claim(node, room=MANY))
