# ruff: noqa: S101 -- a suite of tests is built on assert
"""Outboxes and their messages: what is taken in, what is not, and in which order it comes out."""

import asyncio
import threading

import pytest
from msgspec.structs import replace

from mainspring.core.outbox import LARGEST_PAYLOAD
from mainspring.errors import PartitionCountMismatch
from mainspring.stores.outbox import Message
from mainspring.testing.contract import outboxes
from mainspring.testing.contract.obligation import GENERAL, obligation
from mainspring.testing.contract.outboxes import ORDERS, PARTITIONS, message, on
from mainspring.testing.contract.verbs.contract import Contract
from mainspring.testing.contract.verbs.sharing import given_up
from mainspring.testing.contract.verbs.wake import Bell, heard
from mainspring.testing.contract.world import DAY, HOUR, SECOND, World

TEXT = "späte Grüße 🕰 'quoted' \"twice\" \\ % ; -- \n\ttabbed \u202e\u2028"


class PublishContract(Contract):
    """Publishing in the role Outboxes. Needs the role Wake too."""

    # register_outbox

    @obligation("register_outbox")
    async def test_an_outbox_is_made_with_its_partitions(self, world: World) -> None:
        await on(world).register_outbox(ORDERS, 8)

        looked = await outboxes.look(world)
        assert [(one.outbox, one.partition) for one in looked.partitions] == [(ORDERS, at) for at in range(8)]
        (there,) = await on(world).outboxes()
        assert (there.name, there.partitions, there.created_at, there.kept) == (ORDERS, 8, world.now, 0)

    @obligation("register_outbox")
    async def test_an_outbox_that_is_there_stays_as_it_is(self, world: World) -> None:
        await outboxes.publish(world, b"1")
        created_at = world.now
        world.clock.advance(HOUR)
        await on(world).register_outbox(ORDERS, PARTITIONS)

        (there,) = await on(world).outboxes()
        assert there.created_at == created_at
        assert await outboxes.log(world) == [b"1"]

    @obligation("register_outbox", 1)
    async def test_many_make_the_same_outbox_at_once(self, world: World) -> None:
        stores = [world.store, *[await world.open() for _ in range(3)]]
        await asyncio.gather(*(on(world, one).register_outbox(ORDERS, PARTITIONS) for one in stores * 3))

        looked = await outboxes.look(world)
        assert [one.partition for one in looked.partitions] == list(range(PARTITIONS))

    @obligation("register_outbox", 2)
    async def test_another_number_of_partitions_is_refused_and_the_outbox_stays(self, world: World) -> None:
        await on(world).register_outbox(ORDERS, 4)
        for other in (1, 2, 8, 64):
            with pytest.raises(PartitionCountMismatch) as caught:
                await on(world, await world.open()).register_outbox(ORDERS, other)
            assert (caught.value.outbox, caught.value.expected, caught.value.found) == (ORDERS, other, 4)

        (there,) = await on(world).outboxes()
        assert there.partitions == 4

    # publish

    @obligation("publish")
    @obligation("read_messages")
    @obligation(GENERAL, 7)
    async def test_a_message_comes_out_as_it_went_in(self, world: World) -> None:
        bodies = [b"", b"\x00", bytes(range(256)), b"x" * LARGEST_PAYLOAD]
        new = [
            message(
                body,
                type="order placed; v=1 'quoted' ~",
                key=key,
                unique=f"{number}{TEXT}",
                traceparent="00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            )
            for number, (body, key) in enumerate(zip(bodies, (None, "", TEXT, "a"), strict=True))
        ]
        answers = await on(world).publish(new)

        assert [one.fresh for one in answers] == [True] * 4
        assert await outboxes.read(world) == tuple(
            Message(
                outbox=ORDERS,
                partition=0,
                seq=seq,
                number=answer.number,
                payload=one.payload,
                type=one.type,
                key=one.key,
                published_at=world.now,
                traceparent=one.traceparent,
            )
            for seq, (one, answer) in enumerate(zip(new, answers, strict=True), start=1)
        )

    @obligation("publish")
    async def test_an_empty_call_publishes_nothing(self, world: World) -> None:
        assert await on(world).publish([]) == ()
        assert await on(world).outboxes() == ()

    @obligation("publish", 1)
    async def test_the_first_message_makes_its_outbox(self, world: World) -> None:
        await outboxes.publish(world, b"1", partitions=8, partition=7)

        looked = await outboxes.look(world)
        assert [(one.partition, one.last) for one in looked.partitions] == [*((at, 0) for at in range(7)), (7, 1)]

    @obligation("publish", 1)
    async def test_many_publish_into_a_new_outbox_at_once(self, world: World) -> None:
        stores = [world.store, await world.open()]
        await asyncio.gather(*(on(world, one).publish([message(b"1")]) for one in stores * 5))

        assert await outboxes.log(world) == [b"1"] * 10

    @obligation("publish", 2)
    @obligation(GENERAL, 1)
    async def test_nothing_is_written_if_one_outbox_has_another_number_of_partitions(self, world: World) -> None:
        await on(world).register_outbox(ORDERS, 4)
        new = [
            message(b"1", unique="a"),
            message(b"2", outbox="new", partitions=1),
            message(b"3", partitions=8),
            message(b"4"),
        ]
        with pytest.raises(PartitionCountMismatch) as caught:
            await on(world).publish(new)

        assert (caught.value.outbox, caught.value.expected, caught.value.found) == (ORDERS, 8, 4)
        assert await outboxes.log(world) == []
        assert [one.name for one in await on(world).outboxes()] == [ORDERS]
        assert (await outboxes.publish(world, b"5", unique="a"))[0].fresh

    @obligation("publish", 2)
    async def test_a_call_that_contradicts_itself_writes_nothing(self, world: World) -> None:
        with pytest.raises(PartitionCountMismatch):
            await on(world).publish([message(partitions=4), message(partitions=8)])

        assert await on(world).outboxes() == ()

    @obligation("publish", 2)
    async def test_a_call_that_is_refused_does_not_hurt_its_neighbours(self, world: World) -> None:
        await on(world).register_outbox(ORDERS, 4)
        calls = [on(world).publish([message(b"1", partitions=8 if number % 3 == 0 else 4)]) for number in range(9)]
        ends = await asyncio.gather(*calls, return_exceptions=True)

        assert [isinstance(end, PartitionCountMismatch) for end in ends] == [number % 3 == 0 for number in range(9)]
        assert await outboxes.log(world) == [b"1"] * 6

    @obligation("publish", 3)
    async def test_a_text_that_is_known_is_not_written_again(self, world: World) -> None:
        (first,) = await outboxes.publish(world, b"1", unique="a")
        other = await world.open()
        (same, elsewhere, more) = await on(world, other).publish(
            [message(b"2", unique="a", partition=1), message(b"3", unique="a", outbox="other"), message(b"4")]
        )

        assert (same.fresh, same.number) == (False, first.number)
        assert (elsewhere.fresh, more.fresh) == (True, True)
        assert await outboxes.log(world) == [b"1", b"4"]
        assert await outboxes.log(world, 1) == []
        assert await outboxes.log(world, outbox="other") == [b"3"]

    @obligation("publish", 3)
    async def test_earlier_messages_of_the_same_call_count(self, world: World) -> None:
        answers = await outboxes.publish(world, b"1", b"2", b"3", unique="a")

        assert [one.fresh for one in answers] == [True, False, False]
        assert len({one.number for one in answers}) == 1
        assert await outboxes.log(world) == [b"1"]

    @obligation("publish", 3)
    async def test_of_many_who_publish_the_same_text_one_does(self, world: World) -> None:
        stores = [world.store, await world.open(), await world.open()]
        calls = [on(world, one).publish([message(b"1", unique="a"), message(b"2")]) for one in stores * 4]
        answers = await asyncio.gather(*calls)

        assert [first.fresh for first, _ in answers].count(True) == 1
        assert len({first.number for first, _ in answers}) == 1
        assert sorted(await outboxes.log(world)) == [b"1"] + [b"2"] * 12

    @obligation("publish", 3)
    async def test_a_text_is_known_for_a_day_though_its_message_is_gone(self, world: World) -> None:
        (first,) = await outboxes.publish(world, b"1", unique="a")
        await outboxes.advance(world, await world.node(), 1)
        world.clock.advance(DAY - SECOND)
        await cleared(world)

        assert await outboxes.publish(world, b"2", unique="a") == (replace(first, fresh=False),)

    @obligation("publish", 3)
    async def test_a_text_is_known_for_as_long_as_its_message_waits(self, world: World) -> None:
        (first,) = await outboxes.publish(world, b"1", unique="a")
        for _ in range(5):
            world.clock.advance(DAY)
            await cleared(world)
            assert await outboxes.publish(world, b"2", unique="a") == (replace(first, fresh=False),)

    @obligation("clear_messages", 3)
    async def test_a_text_is_forgotten_some_days_after_its_message_was_delivered(self, world: World) -> None:
        await outboxes.publish(world, b"1", unique="a")
        await outboxes.advance(world, await world.node(), 1)
        for _ in range(4):
            world.clock.advance(DAY)
            await outboxes.look(world)
            await cleared(world)

        assert (await outboxes.publish(world, b"2", unique="a"))[0].fresh
        (one,) = await outboxes.read(world, after=1)
        assert (one.seq, one.payload) == (2, b"2")

    @obligation("publish", 4)
    async def test_messages_of_one_call_are_numbered_in_its_order(self, world: World) -> None:
        new = [message(str(number).encode(), partition=number * 7 % 4) for number in range(200)]
        answers = await on(world).publish(new)

        for partition in range(4):
            mine = [(a.number, n.payload) for a, n in zip(answers, new, strict=True) if n.partition == partition]
            assert mine == sorted(mine, key=lambda one: one[0])
            assert await outboxes.log(world, partition) == [payload for _, payload in mine]
        assert len({one.number for one in answers}) == 200

    @obligation("look_at_partitions", 3)
    async def test_what_was_published_before_is_read_before(self, world: World) -> None:
        stores = [world.store, await world.open()]
        for at in range(20):
            await on(world, stores[at % 2]).publish([message(str(at).encode())])

        assert await outboxes.log(world) == [str(at).encode() for at in range(20)]

    @obligation("publish")
    @obligation(GENERAL, 2)
    @pytest.mark.parametrize("steps", range(8))
    async def test_a_call_that_was_given_up_is_done_whole_or_not_at_all(self, world: World, steps: int) -> None:
        await on(world).register_outbox(ORDERS, PARTITIONS)
        await given_up(asyncio.ensure_future(outboxes.publish(world, *[b"1"] * 50)), steps)
        await outboxes.publish(world, b"2")

        payloads = await outboxes.log(world)
        assert payloads.count(b"2") == 1
        assert payloads.count(b"1") in {0, 50}

    @obligation("publish")
    @obligation(GENERAL, 3)
    async def test_messages_are_published_from_several_threads(self, world: World) -> None:
        def work(name: str) -> None:
            async def main() -> None:
                for number in range(20):
                    await on(world).publish([message(f"{name}{number}".encode())])

            asyncio.run(main())

        threads = [threading.Thread(target=work, args=(name,)) for name in "abc"]
        for thread in threads:
            thread.start()
        for thread in threads:
            await asyncio.to_thread(thread.join)

        payloads = await outboxes.log(world)
        for name in "abc":
            mine = [one.decode() for one in payloads if one.decode().startswith(name)]
            assert mine == [f"{name}{number}" for number in range(20)]

    @obligation("publish")
    @obligation("watch", 1)
    async def test_a_message_rings(self, world: World) -> None:
        for store in (world.store, await world.open()):
            bell = Bell()
            stop = store.watch(bell)
            await heard(world, bell)
            await outboxes.publish(world, b"1")
            await bell.wait()
            stop()

    @obligation("publish")
    async def test_a_crash_takes_nothing_with_it(self, world: World) -> None:
        other = await world.open()
        await on(world, other).publish([message(b"1")])
        await world.crash(other)

        assert await outboxes.log(world) == [b"1"]


async def cleared(world: World, limit: int = 1000) -> int:
    """Clear until there is nothing left; returns how many went."""
    total = 0
    while gone := await on(world).clear_messages(limit):
        assert gone <= limit
        total += gone
    return total
