"""What was wrong with outboxes elsewhere, each under its number, and is right here."""

import asyncio
import random
from collections import Counter
from pathlib import Path

import pytest

from mainspring import Fail, Mainspring, Message, RetryIn
from mainspring.core.outbox import Stand, begin, partition_of
from mainspring.errors import DeclarationError, NodeGone, TransactionTooLong
from mainspring.outbox.events import DeliveryEnded
from mainspring.stores.memory import MemoryStore
from mainspring.stores.outbox import Stride
from mainspring.stores.port import Store, Transaction, Transactions
from mainspring.stores.sqlite import SqliteStore
from mainspring.testing import VirtualTime
from tests.outbox.conftest import Boom, Table, all_done, ghost, now, outboxes, stands, until, victim


async def test_m4_retry_and_reject_undo_what_the_handler_wrote(joined: Mainspring, table: Table) -> None:
    app = joined
    orders = app.outbox("orders", partitions=1)
    tried: Counter[str] = Counter()

    @orders.handler(mode="transactional", max_attempts=3)
    async def deliver(message: Message[str], tx: Transaction) -> None:
        tried[message.payload] += 1
        await tx.execute(table.insert, (message.payload,))
        if message.payload == "rejected":
            raise Fail("never")
        if message.payload == "retried" and tried["retried"] < 3:
            raise Boom

    async with app, app.node():
        await table.make(app)
        await orders.publish_many(None, ["first", "rejected", "second", "retried", "third"])
        await all_done(orders)

        assert await table.rows(app) == ["first", "second", "retried", "third"]
        # What had succeeded before was neither repeated nor buried with what failed.
        (letter,) = (await orders.letters()).letters
        assert (letter.message.payload, letter.error) == (b'{"v":1,"value":"rejected"}', "never")
        assert tried == {"first": 1, "rejected": 1, "second": 1, "retried": 3, "third": 1}


async def test_m5_how_far_a_call_has_come_is_its_own_affair(app: Mainspring) -> None:
    """Eight partitions are delivered at a time by one function, each with other failures in between."""
    orders = app.outbox("orders", partitions=8)
    done: Counter[tuple[int, int]] = Counter()
    failed: set[tuple[int, int]] = set()

    @orders.handler(profile="low_latency")
    async def deliver(message: Message[int]) -> None:
        await asyncio.sleep(random.random() / 100)  # noqa: S311 - no secret
        place = (message.partition, message.seq)
        if message.seq % (message.partition + 2) == 0 and place not in failed:
            failed.add(place)
            raise Boom
        done[place] += 1

    async with app, app.node(outbox_partitions=8):
        for partition in range(8):
            for number in range(20):
                await orders.publish(None, number, partition=partition)
        await all_done(orders)

    assert done == {(partition, seq): 1 for partition in range(8) for seq in range(1, 21)}
    counts = [one.counts for one in await orders.stats()]
    assert [one.acknowledged for one in counts] == [20] * 8
    assert [one.retried for one in counts] == [20 // (partition + 2) for partition in range(8)]


async def test_m6_a_message_is_announced_when_it_is_committed_and_not_before(joined: Mainspring) -> None:
    app = joined
    orders = app.outbox("orders", partitions=1)
    came: list[float] = []

    @orders.handler
    async def deliver(_: Message[int]) -> None:
        came.append(now())

    async with app, app.node():
        store = app.store
        assert isinstance(store, Transactions)
        await asyncio.sleep(10.5)
        async with store.transaction() as tx:
            await orders.publish(tx, 1)
            assert (await stands(orders)).last == 0
        committed = now()
        await until(lambda: bool(came))  # who looks while the node gives the number does not wait for that
        assert (await stands(orders)).last == 1

    assert came[0] - committed < 0.2


async def test_m6_a_message_that_nobody_was_told_of_is_found_within_a_second(app: Mainspring) -> None:
    orders = app.outbox("orders", partitions=64)
    came: list[float] = []

    @orders.handler
    async def deliver(message: Message[int]) -> None:
        came.append(now() - message.payload / 1000)

    async with app, victim(app, deaf=True):
        for _ in range(5):
            await asyncio.sleep(3.3)
            await orders.publish(None, round(now() * 1000))
        await until(lambda: len(came) == 5)

    assert max(came) < 1.1


async def test_m7_a_wait_ends_by_itself(app: Mainspring) -> None:
    """Nothing is published, and nobody is told of anything, when it is over."""
    orders = app.outbox("orders", partitions=1)
    came: list[float] = []

    @orders.handler
    async def deliver(_: Message[int]) -> None:
        came.append(now())
        if len(came) == 1:
            raise RetryIn(20.3)

    async with app, victim(app, deaf=True):
        await orders.publish(None, 1)
        await until(lambda: len(came) == 2)

    assert came[1] - came[0] == pytest.approx(20.3, abs=0.05)


async def test_m8_a_partition_that_is_held_elsewhere_makes_nobody_spin(app: Mainspring) -> None:
    orders = app.outbox("orders", partitions=64)
    came: list[int] = []

    @orders.handler(profile="low_latency")
    async def deliver(message: Message[int]) -> None:
        came.append(message.seq)

    async with app:
        await outboxes(app).register_outbox("orders", 64)
        node, term = await ghost(app)
        held = begin(Stand(), node, 1)
        await orders.publish(None, 1, partition=0)
        steps = [Stride(outbox="orders", partition=0, before=0, after=held)]
        assert await outboxes(app).stride(node, term, steps) == (True,)
        async with victim(app, deaf=True, lease="10m") as one:
            await asyncio.sleep(60)
            looks = Counter(one.line.asked)
            assert 55 <= looks["look_at_partitions"] <= 61
            assert looks["stride"] == looks["read_messages"] == 0
    assert came == []


async def test_m9_a_message_that_always_fails_ends_and_the_partition_goes_on(app: Mainspring) -> None:
    orders = app.outbox("orders", partitions=1)
    tried: Counter[int] = Counter()

    @orders.handler
    async def deliver(message: Message[int]) -> None:
        tried[message.payload] += 1
        if message.payload == 2:
            raise Boom("always")

    async with app, app.node():
        await orders.publish_many(None, [1, 2, 3])
        await all_done(orders)

        assert tried == {1: 1, 2: 10, 3: 1}
        (letter,) = (await orders.letters()).letters
        assert (letter.message.seq, letter.attempts) == (2, 10)
        assert letter.error.endswith("Boom: always")


async def test_m10_a_handler_may_take_longer_than_a_lease(app: Mainspring) -> None:
    orders = app.outbox("orders", partitions=1)
    began: list[float] = []

    @orders.handler(timeout="5m")
    async def deliver(_: Message[int]) -> None:
        began.append(now())
        await asyncio.sleep(120)

    async with app, app.node(lease="2s"), app.node(lease="2s"):
        await orders.publish(None, 1)
        await all_done(orders)

    assert len(began) == 1


async def test_m10_a_handler_that_takes_too_long_is_cancelled_and_has_failed(app: Mainspring) -> None:
    orders = app.outbox("orders", partitions=1)
    left: list[float] = []
    cancelled: list[float] = []

    @orders.handler(timeout="3s", max_attempts=2)
    async def deliver(message: Message[int]) -> None:
        left.append(message.remaining().total_seconds())
        began = now()
        try:
            await asyncio.sleep(1000)
        finally:
            cancelled.append(now() - began)

    async with app, app.node():
        await orders.publish(None, 1)
        await all_done(orders)
        (letter,) = (await orders.letters()).letters

    assert letter.error == "TimeoutError: it took longer than 3 s"
    assert left == pytest.approx([3, 3], abs=0.01)
    assert cancelled == pytest.approx([3, 3], abs=0.01)


@pytest.mark.slow
def test_m10_a_handler_that_takes_too_long_in_a_transaction_is_cancelled_too(tmp_path: Path) -> None:
    """On real time: while a transaction is open, the store's other writers wait for real."""
    app = Mainspring(store=SqliteStore(tmp_path / "jobs.db", durable=False))
    orders = app.outbox("orders", partitions=1)
    table = Table()
    tried: list[int] = []

    @orders.handler(mode="transactional", timeout="1s", max_attempts=2, retry_base="10ms", profile="low_latency")
    async def deliver(message: Message[int], tx: Transaction) -> None:
        tried.append(message.payload)
        await tx.execute(table.insert, ("x",))
        await asyncio.sleep(0.01 if message.payload != 3 else 60)

    async def story() -> None:
        async with app:
            await table.make(app)
            await orders.publish_many(None, [1, 2, 3, 4])
            async with app.node():
                await all_done(orders)
            (letter,) = (await orders.letters()).letters
            assert (letter.message.seq, letter.attempts) == (3, 2)
            assert await table.rows(app) == ["x"] * 3

    asyncio.run(story())
    # It had less than all of the time at first, for those before it had taken some: that counted for nothing.
    assert tried == [1, 2, 3, 3, 3, 4]


async def test_m10_a_transaction_that_its_store_has_ended_is_a_failed_attempt(joined: Mainspring) -> None:
    app = joined
    orders = app.outbox("orders", partitions=1)

    @orders.handler(mode="transactional", max_attempts=2)
    async def deliver(_: Message[int], _tx: Transaction) -> None:
        raise TransactionTooLong(2)

    async with app, app.node():
        await orders.publish(None, 1)
        await all_done(orders)
        (letter,) = (await orders.letters()).letters

    assert letter.attempts == 2


async def test_m15_what_has_the_same_key_goes_the_same_way_and_what_is_unique_is_there_once(app: Mainspring) -> None:
    orders = app.outbox("orders", partitions=8)

    async with app:
        for number in range(40):
            await orders.publish(None, number, key=number % 10)
        first = await orders.publish(None, "x", key="k", unique="once")
        again = await orders.publish(None, "y", key="k", unique="once")

        assert (first.fresh, again.fresh, first.number) == (True, False, again.number)
        await orders.stats()  # which has them given their numbers
        messages = [
            one for partition in range(8) for one in await outboxes(app).read_messages("orders", partition, 0, 100)
        ]
        assert len(messages) == 41
        assert all(one.partition == partition_of(one.key or "", 8) for one in messages)


async def test_m16_whoever_was_given_up_acknowledges_nothing_more(app: Mainspring) -> None:
    """The owner is the same one as before, and still its word does not count: it is dead."""
    orders = app.outbox("orders", partitions=1)

    async with app:
        await orders.publish(None, 1)
        node, term = await ghost(app)
        held = begin(Stand(), node, 1)
        store = outboxes(app)
        assert await store.stride(node, term, [Stride(outbox="orders", partition=0, before=0, after=held)]) == (True,)
        assert await app.store.declare_dead(node, term)

        after = Stand(revision=2, cursor=1)
        with pytest.raises(NodeGone):
            await store.stride(node, term, [Stride(outbox="orders", partition=0, before=1, after=after)])
        assert (await stands(orders)).stand == held


async def test_m17_whoever_was_overtaken_is_told_by_a_plain_no(
    app: Mainspring, caplog: pytest.LogCaptureFixture
) -> None:
    """While the handler runs, somebody else moves the partition on: what came of it is dropped, without an error."""
    orders = app.outbox("orders", partitions=1)
    told: list[DeliveryEnded] = []
    orders.listener(told.append)
    came: list[int] = []
    term = 0

    @orders.handler
    async def deliver(message: Message[int]) -> None:
        came.append(message.seq)
        if len(came) == 1:
            view = await stands(orders)
            assert view.stand.holder
            after = Stand(revision=view.stand.revision + 1, cursor=1)
            step = Stride(outbox="orders", partition=0, before=view.stand.revision, after=after)
            assert await outboxes(app).stride(view.stand.holder, term, [step]) == (True,)

    async with app, app.node() as node:
        term = node._membership.term
        await orders.publish_many(None, [1, 2])
        await all_done(orders)

        assert came == [1, 2, 2]  # all of the delivery was lost, also what had not been overtaken
        assert node.events.counts["strides_lost"] == 1
        assert [one.acknowledged for one in told] == [1]
    assert not [record for record in caplog.records if record.levelname in {"ERROR", "WARNING"}]


async def test_a_store_that_has_no_transactions_says_so_when_a_node_starts(virtual_time: VirtualTime) -> None:
    store: Store = MemoryStore(clock=virtual_time.clock)
    app = Mainspring(store=store, clock=virtual_time.clock)

    @app.outbox("orders").handler(mode="transactional")
    async def deliver(_: Message[int], _tx: Transaction) -> None: ...

    with pytest.raises(DeclarationError, match="has no transactions"):
        async with app.node():
            pass
