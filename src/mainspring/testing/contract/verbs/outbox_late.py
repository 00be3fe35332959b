# ruff: noqa: S101 -- a suite of tests is built on assert
"""Transactions of the user's that are open at the same time, end in any order, and hold nobody up."""

import asyncio

from mainspring.testing.contract import outboxes
from mainspring.testing.contract.harness import TransactionsHarness
from mainspring.testing.contract.obligation import obligation
from mainspring.testing.contract.outboxes import ORDERS, PARTITIONS, message, on
from mainspring.testing.contract.verbs.contract import Contract
from mainspring.testing.contract.verbs.outbox_publish import cleared
from mainspring.testing.contract.verbs.outbox_transactions import publish_in
from mainspring.testing.contract.world import DAY, World


class OutboxesOfManyWritersContract(Contract):
    """The role Outboxes where one can write while the transaction of another is open.

    Not for a store where a second writer has to wait for the first, such as SQLite. Its harness is a
    `TransactionsHarness`.
    """

    @obligation("look_at_partitions", 2)
    @obligation("look_at_partitions", 4)
    async def test_messages_of_others_are_delivered_while_a_transaction_stays_open(
        self, harness: TransactionsHarness, world: World
    ) -> None:
        node = await world.node()
        await on(world).register_outbox(ORDERS, PARTITIONS)
        tx = await harness.begin(blocking=False)
        await publish_in(world, tx.handle, [message(b"late")], blocking=False)
        for number in range(1, 6):
            async with asyncio.timeout(5):
                await outboxes.publish(world, str(number).encode())
                (one,) = await outboxes.read(world, after=number - 1)
                assert one.payload == str(number).encode()
                await outboxes.advance(world, node, number)
        await tx.commit()

        (late,) = await outboxes.read(world, after=5)
        assert (late.seq, late.payload) == (6, b"late")

    @obligation("look_at_partitions", 1)
    @obligation("look_at_partitions", 2)
    @obligation("look_at_partitions", 3)
    async def test_transactions_that_end_in_any_order_leave_no_hole(
        self, harness: TransactionsHarness, world: World
    ) -> None:
        await on(world).register_outbox(ORDERS, PARTITIONS)
        open_ = [await harness.begin(blocking=False) for _ in range(6)]
        for number, tx in enumerate(open_):
            await publish_in(world, tx.handle, [message(str(number).encode())], blocking=False)
        there: tuple[object, ...] = ()
        for number in (3, 0, 5, 1, 4, 2):
            await (open_[number].commit() if number % 3 else open_[number].rollback())
            found = await outboxes.read(world)
            assert found[: len(there)] == there
            there = found

        assert await outboxes.log(world) == [b"5", b"1", b"4", b"2"]

    @obligation("clear_messages", 4)
    async def test_clearing_does_not_wait_for_a_users_transaction(
        self, harness: TransactionsHarness, world: World
    ) -> None:
        await outboxes.publish(world, b"1")
        await outboxes.advance(world, await world.node(), 1)
        world.clock.advance(3 * DAY)
        await outboxes.look(world)
        tx = await harness.begin(blocking=False)
        await publish_in(world, tx.handle, [message(b"2", unique="a")], blocking=False)
        async with asyncio.timeout(5):
            await cleared(world)
        await tx.commit()

        assert [one.payload for one in await outboxes.read(world, after=1)] == [b"2"]
