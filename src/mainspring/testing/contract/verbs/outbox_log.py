# ruff: noqa: S101 -- a suite of tests is built on assert
"""The log of an outbox: which numbers its messages get, who reads what, and when it is cleared away."""

import asyncio
import time
from collections.abc import Awaitable, Callable

from msgspec.structs import replace

from mainspring.core.outbox import Stand
from mainspring.stores.outbox import PartitionView
from mainspring.testing.contract import outboxes
from mainspring.testing.contract.obligation import obligation
from mainspring.testing.contract.outboxes import ORDERS, message, on
from mainspring.testing.contract.verbs.contract import Contract
from mainspring.testing.contract.verbs.outbox_publish import cleared
from mainspring.testing.contract.world import DAY, HOUR, World

MANY = 5000
ROUNDS = 20
FACTOR = 10


class LogContract(Contract):
    """Numbering, reading and clearing in the role Outboxes. Needs the role Nodes too."""

    # look_at_partitions

    @obligation("look_at_partitions", 1)
    @obligation("look_at_partitions", 2)
    async def test_each_partition_counts_by_itself_without_a_gap(self, world: World) -> None:
        await on(world).publish([message(str(number).encode(), partition=number % 3) for number in range(100)])

        for partition in range(4):
            wanted = [str(number).encode() for number in range(100) if number % 3 == partition]
            assert await outboxes.log(world, partition) == wanted
        views = (await outboxes.look(world)).partitions
        assert [one.last for one in views] == [34, 33, 33, 0]

    @obligation("look_at_partitions", 1)
    @obligation("look_at_partitions", 2)
    @obligation("look_at_partitions", 3)
    async def test_many_who_look_while_many_publish_see_one_order(self, world: World) -> None:
        """Each writer's own messages keep their order, since each is committed before the next one is published."""
        stores = [world.store, *[await world.open() for _ in range(3)]]
        await on(world).register_outbox(ORDERS, 4)
        seen: list[dict[int, bytes]] = [{} for _ in stores]

        async def write(at: int) -> None:
            for number in range(25):
                await on(world, stores[at]).publish([message(f"{at}-{number}".encode()) for _ in range(number % 3 + 1)])

        async def watch(at: int) -> None:
            store, after = on(world, stores[at]), 0
            while len(seen[at]) < wanted:
                await store.look_at_partitions([ORDERS])
                for one in await store.read_messages(ORDERS, 0, after, 7):
                    assert one.seq == after + 1
                    seen[at][one.seq] = one.payload
                    after = one.seq
                await asyncio.sleep(0)  # the verbs of a store need not wait for anything

        wanted = len(stores) * sum(number % 3 + 1 for number in range(25))
        await asyncio.gather(*(work(at) for at in range(len(stores)) for work in (write, watch)))

        assert all(one == seen[0] for one in seen)
        for at in range(len(stores)):
            mine = [one.decode() for _, one in sorted(seen[0].items()) if one.decode().startswith(f"{at}-")]
            assert mine == [f"{at}-{number}" for number in range(25) for _ in range(number % 3 + 1)]

    @obligation("look_at_partitions", 3)
    async def test_a_number_never_changes(self, world: World) -> None:
        other = await world.open()
        there: tuple[object, ...] = ()
        for number in range(10):
            await on(world, other).publish([message(str(number).encode())])
            found = await outboxes.read(world, store=other if number % 2 else None)
            assert found[: len(there)] == there
            there = found
        assert len(there) == 10

    @obligation("look_at_partitions")
    async def test_a_look_says_how_all_partitions_stand(self, world: World) -> None:
        node = await world.node()
        await on(world).register_outbox(ORDERS, 2)
        await outboxes.publish(world, b"1", b"2", b"3", partitions=2, partition=1)
        first = Stand(
            cursor=2,
            holder=node.id,
            given=1,
            width=7,
            attempts=3,
            retry_at=world.now + HOUR,
            error="späte Grüße 🕰",
        )
        assert await outboxes.step(world, node, outboxes.stride(Stand(), first, 1))
        other = await world.open()

        assert (await outboxes.look(world, store=other)).partitions == (
            PartitionView(outbox=ORDERS, partition=0, last=0, stand=Stand(), is_held=False),
            PartitionView(outbox=ORDERS, partition=1, last=3, stand=replace(first, revision=1), is_held=True),
        )

    @obligation("look_at_partitions")
    async def test_a_look_tells_the_time(self, world: World) -> None:
        await on(world).register_outbox(ORDERS, 1)
        world.clock.advance(HOUR)

        assert (await outboxes.look(world)).now == world.now

    @obligation("look_at_partitions")
    async def test_who_is_not_alive_holds_nothing(self, world: World) -> None:
        node = await world.node()
        await outboxes.publish(world, b"1")
        held = await outboxes.begun(world, node)
        assert (await outboxes.view(world)).is_held
        await world.kill(node)

        view = await outboxes.view(world)
        assert (view.is_held, view.stand) == (False, held)

    @obligation("look_at_partitions", 5)
    async def test_outboxes_that_are_not_there_are_left_out(self, world: World) -> None:
        await on(world).register_outbox("b", 2)
        await on(world).register_outbox("a", 1)

        looked = await outboxes.look(world, "nowhere", "b", "a")
        found = [(one.outbox, one.partition) for one in looked.partitions]
        assert sorted(found) == [("a", 0), ("b", 0), ("b", 1)]
        assert found.index(("b", 0)) < found.index(("b", 1))
        assert (await outboxes.look(world, "nowhere")).partitions == ()
        assert (await on(world).look_at_partitions([])).partitions == ()

    @obligation("look_at_partitions", 5)
    async def test_all_of_many_partitions_come_in_order(self, world: World) -> None:
        await on(world).register_outbox(ORDERS, 64)

        assert [one.partition for one in (await outboxes.look(world)).partitions] == list(range(64))

    @obligation("look_at_partitions", 4)
    async def test_many_look_at_once(self, world: World) -> None:
        stores = [world.store, *[await world.open() for _ in range(3)]]
        await outboxes.publish(world, *[b"1"] * 100)
        await asyncio.gather(*(on(world, one).look_at_partitions([ORDERS]) for one in stores * 5))

        assert await outboxes.log(world) == [b"1"] * 100

    @obligation("look_at_partitions", 6)
    async def test_what_is_kept_costs_a_look_nothing(self, world: World) -> None:
        """Real time is measured, so the best of many counts; a store that walks over its messages is far off."""
        await outboxes.publish(world, b"1")
        alone = await cost(lambda: outboxes.look(world))
        for _ in range(MANY // 1000):
            await outboxes.publish(world, *[b"1"] * 1000)
        await outboxes.look(world)

        crowded = await cost(lambda: outboxes.look(world))
        assert crowded < FACTOR * alone, (crowded, alone)

    # read_messages

    @obligation("read_messages", 1)
    async def test_messages_are_read_from_anywhere_on(self, world: World) -> None:
        await outboxes.publish(world, *(str(number).encode() for number in range(1, 21)))

        for after in (0, 1, 5, 19, 20, 21):
            for limit in (1, 3, 20, 100):
                found = await outboxes.read(world, after=after, limit=limit)
                assert [one.seq for one in found] == list(range(after + 1, min(20, after + limit) + 1))
                assert [one.payload for one in found] == [str(one.seq).encode() for one in found]

    @obligation("read_messages")
    async def test_where_nothing_is_nothing_is_read(self, world: World) -> None:
        await on(world).register_outbox(ORDERS, 4)

        assert await on(world).read_messages(ORDERS, 3, 0, 10) == ()
        assert await on(world).read_messages("nowhere", 0, 0, 10) == ()

    @obligation("read_messages", 2)
    @obligation("clear_messages", 2)
    async def test_what_is_behind_the_cursor_is_read_whatever_was_cleared_away(self, world: World) -> None:
        node = await world.node()
        await outboxes.publish(world, *(str(number).encode() for number in range(1, 11)))
        await outboxes.advance(world, node, 4)
        world.clock.advance(3 * DAY)
        await cleared(world)

        assert [one.seq for one in await outboxes.read(world, after=4)] == [5, 6, 7, 8, 9, 10]

    # clear_messages

    @obligation("clear_messages", 1)
    async def test_only_what_is_delivered_is_cleared_away(self, world: World) -> None:
        node = await world.node()
        await outboxes.publish(world, *[b"1"] * 10)
        await outboxes.publish(world, *[b"1"] * 10, partition=1)
        await outboxes.publish(world, *[b"1"] * 10, outbox="other")
        await outboxes.advance(world, node, 10)
        await outboxes.advance(world, node, 3, 1)
        world.clock.advance(3 * DAY)
        gone = await cleared(world)

        assert gone <= 13
        assert [one.seq for one in await outboxes.read(world, 1, after=3)] == list(range(4, 11))
        assert await outboxes.log(world, outbox="other") == [b"1"] * 10
        kept = {one.name: one.kept for one in await on(world).outboxes()}
        assert kept["orders"] >= 7

    @obligation("clear_messages", 1)
    async def test_what_was_set_aside_or_is_a_dead_letter_is_there_after_it_was_cleared_behind(
        self, world: World
    ) -> None:
        node = await world.node()
        await outboxes.publish(world, b"1", b"2", key="a")
        (letter,) = await outboxes.bury(world, node, b"dead", partition=1)
        messages = await outboxes.read(world)
        await outboxes.put_aside(world, node, *(outboxes.aside(one, world.now) for one in messages))
        await outboxes.advance(world, node, 2)
        world.clock.advance(10 * DAY)
        await cleared(world)

        (first,) = await on(world).read_aside(ORDERS, 0, 10)
        assert first.message == messages[0]
        assert await outboxes.dead(world) == (letter,)

    @obligation("clear_messages")
    async def test_no_more_than_so_many_are_cleared_at_a_time(self, world: World) -> None:
        node = await world.node()
        for partition in range(4):
            await outboxes.publish(world, *[b"1"] * 10, partition=partition)
            await outboxes.advance(world, node, 10, partition)
        world.clock.advance(3 * DAY)
        await outboxes.look(world)
        for _ in range(50):
            assert await on(world).clear_messages(3) <= 3
        await cleared(world)

        assert await on(world).clear_messages(1000) == 0

    @obligation("clear_messages", 2)
    async def test_numbers_go_on_where_they_were(self, world: World) -> None:
        node = await world.node()
        for day in range(5):
            await outboxes.publish(world, b"1", b"2")
            (first, second) = await outboxes.read(world, after=2 * day)
            assert (first.seq, second.seq) == (2 * day + 1, 2 * day + 2)
            await outboxes.advance(world, node, second.seq)
            world.clock.advance(2 * DAY)
            await cleared(world)

    @obligation("clear_messages", 4)
    async def test_clearing_a_thousand_takes_milliseconds(self, world: World) -> None:
        """A generous bound: who else is at work on the machine is not the store's fault."""
        node = await world.node()
        await outboxes.publish(world, *[b"x" * 100] * 1000)
        await outboxes.look(world)
        await outboxes.advance(world, node, 1000)
        world.clock.advance(3 * DAY)
        began = time.perf_counter()
        await on(world).clear_messages(1000)

        assert time.perf_counter() - began < 0.5

    # outboxes

    @obligation("outboxes")
    async def test_outboxes_are_read_by_name(self, world: World) -> None:
        node = await world.node()
        await outboxes.publish(world, b"1", b"2", b"3", outbox="b", partitions=2, partition=1)
        await on(world).register_outbox("a", 4)
        await on(world).register_outbox("c", 1)
        await outboxes.bury(world, node, b"4", b"5", outbox="c", partitions=1)
        (first, *_) = await outboxes.read(world, 1, outbox="b")
        before = Stand()
        aside = replace(outboxes.stride(before, before, 1, outbox="b"), aside=(outboxes.aside(first, world.now),))
        assert await outboxes.step(world, node, aside)

        views = await on(world).outboxes()
        assert [(one.name, one.partitions, one.aside, one.letters) for one in views] == [
            ("a", 4, 0, 0),
            ("b", 2, 1, 0),
            ("c", 1, 0, 2),
        ]
        assert [one.created_at for one in views] == [world.now] * 3
        assert views[1].bytes is None or views[1].bytes > 0

    @obligation("outboxes")
    async def test_letters_that_are_not_pending_are_not_counted(self, world: World) -> None:
        node = await world.node()
        await outboxes.bury(world, node, b"1", b"2", b"3")
        (taken, *_) = await outboxes.taken(world, HOUR)
        await on(world).resolve_letters([(taken.id, taken.term)])

        (view,) = await on(world).outboxes()
        assert view.letters == 0


async def cost(step: Callable[[], Awaitable[object]]) -> float:
    """Measure the cheapest of several."""
    best = float("inf")
    for _ in range(ROUNDS):
        began = time.perf_counter()
        await step()
        best = min(best, time.perf_counter() - began)
    return best
