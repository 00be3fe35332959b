"""A message that may have ended its node has its last chance alone: no other pays for it, and it pays for no other."""

import asyncio
from collections import Counter
from contextlib import suppress

import pytest

from mainspring import Mainspring, Message
from mainspring.outbox.room import Room
from mainspring.testing import VirtualTime
from tests.outbox.conftest import Victim, all_done, victim

NEIGHBOURS = [1, 2, 3]


@pytest.mark.parametrize("order", ["partition", "key"])
async def test_who_is_delivered_beside_poison_does_not_die_of_it(app: Mainspring, order: str) -> None:
    """All four are begun at once by every new node, and every time the first one ends it before the others are done."""
    orders = app.outbox("orders", partitions=4)
    nodes: list[Victim] = []
    given: Counter[int] = Counter()
    done: list[int] = []

    @orders.handler(max_attempts=3, order=order, retry_base="10ms", retry_max="10ms", timeout="1m")
    async def deliver(message: Message[int]) -> None:
        given[message.partition] += 1
        if message.partition == 0:
            nodes[-1].kill()
            nodes[-1].node._added[0].gone()
            await asyncio.sleep(60)
        await asyncio.sleep(1)
        done.append(message.partition)

    async with app:
        for partition in range(4):
            await orders.publish(None, partition, partition=partition, key=f"k{partition}")
        for _ in range(3):
            async with victim(app, lease="1s", outbox_partitions=8) as one:
                nodes.append(one)
                await asyncio.sleep(10)
        async with app.node(lease="1s"):
            await all_done(orders)
        letters = (await orders.letters()).letters

    assert [letter.message.partition for letter in letters] == [0]
    assert given[0] == 3
    assert sorted(done) == NEIGHBOURS


async def test_whoever_wants_to_be_alone_waits_for_those_inside_and_goes_before_those_who_come(
    virtual_time: VirtualTime,  # noqa: ARG001 - has it run
) -> None:
    room = Room()
    inside: list[str] = []
    crowds: list[tuple[str, ...]] = []

    async def stay(name: str, *, alone: bool = False) -> None:
        async with room.enter(alone=alone):
            inside.append(name)
            crowds.append(tuple(inside))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            crowds.append(tuple(inside))
            inside.remove(name)

    async with asyncio.TaskGroup() as group:
        for name in ("a", "b"):
            group.create_task(stay(name))
        await asyncio.sleep(0)
        for name in ("X", "Y"):
            group.create_task(stay(name, alone=True))
        await asyncio.sleep(0)
        group.create_task(stay("c"))

    entered = [crowd[-1] for crowd in dict.fromkeys(crowds)]
    assert list(dict.fromkeys(entered)) == ["a", "b", "X", "Y", "c"]
    assert all(len(crowd) == 1 for crowd in crowds if {"X", "Y"} & set(crowd))


async def test_whoever_gives_up_waiting_keeps_nobody_out(virtual_time: VirtualTime) -> None:  # noqa: ARG001 - has it run
    room = Room()
    async with room.enter(alone=False):
        waiting = asyncio.create_task(room.enter(alone=True).__aenter__())
        await asyncio.sleep(0)
        waiting.cancel()
        with suppress(asyncio.CancelledError):
            await waiting
        async with asyncio.timeout(1), room.enter(alone=False):
            pass
    async with asyncio.timeout(1), room.enter(alone=True):
        pass
