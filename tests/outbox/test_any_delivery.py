"""Whatever fails, and however it is delivered: every message is done or a dead letter, and its key keeps its order."""

import asyncio
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mainspring import Fail, Mainspring, Message, Snooze
from mainspring.outbox.message import Batch
from mainspring.stores.memory import MemoryStore
from mainspring.testing import VirtualTime
from tests.outbox.conftest import Boom, all_done, victim

ALWAYS = 1000
MOST = 4

messages_drawn = st.lists(
    st.tuples(
        st.sampled_from(["a", "b", "c", None]),
        st.sampled_from([0, 0, 0, 1, 2, ALWAYS]),  # how often it fails before it does not
        st.sampled_from(["raise", "reject", "put off"]),
    ),
    min_size=1,
    max_size=25,
)


@pytest.mark.slow
@settings(max_examples=60)
@given(
    messages=messages_drawn,
    batch=st.booleans(),
    order=st.sampled_from(["partition", "key"]),
    size=st.integers(1, 9),
    kills=st.integers(0, 2),
)
async def test_every_message_is_done_or_dead_and_each_key_in_order(
    virtual_time: VirtualTime,
    messages: list[tuple[str | None, int, str]],
    *,
    batch: bool,
    order: str,
    size: int,
    kills: int,
) -> None:
    app = Mainspring(store=MemoryStore(clock=virtual_time.clock), clock=virtual_time.clock)
    orders = app.outbox("orders", partitions=1, payload=int)
    tries: Counter[int] = Counter()
    done: list[int] = []

    def handle(number: int) -> None:
        _, failures, how = messages[number]
        if tries[number] < failures:
            tries[number] += 1
            if how == "reject" and failures == ALWAYS:
                raise Fail("rejected")
            if how == "put off" and failures != ALWAYS:
                raise Snooze("3s")
            raise Boom
        done.append(number)

    async def one(message: Message[int]) -> None:
        await asyncio.sleep(0.1)
        handle(message.payload)

    async def several(given: Batch[int]) -> None:
        for message in given:
            await asyncio.sleep(0.1)
            handle(message.payload)
            await given.ack()

    options: Any = {"order": order, "size": size, "max_attempts": MOST, "batch": batch, "profile": "low_latency"}
    orders.handler(**options)(several if batch else one)

    async with app:
        for number, (key, *_) in enumerate(messages):
            await orders.publish(None, number, key=key)
        for _ in range(kills):
            async with victim(app, lease="1s") as killed:
                await asyncio.sleep(0.55)
                killed.kill()
        async with app.node(lease="1s"):
            await all_done(orders)
        letters = (await orders.letters(limit=1000)).letters

    dead = {letter.message.seq - 1 for letter in letters}
    assert len(letters) == len(dead)
    assert all(letter.attempts <= MOST for letter in letters)
    assert dead | set(done) == set(range(len(messages)))
    if not kills:
        assert dead == {number for number, (_, failures, _) in enumerate(messages) if failures == ALWAYS}
        assert Counter(done) == Counter(set(range(len(messages))) - dead)
    for wanted in "abc":
        mine = [number for number in dict.fromkeys(done) if messages[number][0] == wanted]
        assert mine == sorted(mine)
    if order == "partition":
        first = list(dict.fromkeys(done))
        assert first == sorted(first)
