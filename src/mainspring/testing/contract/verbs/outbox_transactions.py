# ruff: noqa: S101, PT012 -- a suite of tests is built on assert, and what a block raises is raised by all of it
"""Messages and steps of delivery in transactions: both they and the user's writes are committed, or neither.

A transaction that is open while others publish is what tells a log with holes from one without. Where a second writer
has to wait for the first, the others wait, and the same holds.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Final

import pytest
from msgspec.structs import replace

from mainspring.core.outbox import Stand, begin
from mainspring.errors import DeclarationError, NodeGone, PartitionCountMismatch
from mainspring.stores.outbox import NewLetter, NewMessage, Published, Stride
from mainspring.testing.contract import outboxes
from mainspring.testing.contract.harness import TransactionsHarness
from mainspring.testing.contract.obligation import obligation
from mainspring.testing.contract.outboxes import ORDERS, PARTITIONS, aside, message, on
from mainspring.testing.contract.verbs.contract import Contract
from mainspring.testing.contract.verbs.transactions import LONG, Mistake, both_ways, transactions
from mainspring.testing.contract.verbs.wake import Bell, check_that_the_commit_rings, heard
from mainspring.testing.contract.world import HOUR, Member, World

A_MOMENT: Final = 0.05
"""Real seconds in which others would go on, if they could."""


class OutboxesInTransactionsContract(Contract):
    """The role Outboxes of a store that plays Transactions too; its harness is a `TransactionsHarness`."""

    # publish_in, in a transaction of the user's own.

    @obligation("publish_in")
    @obligation("publish_in_sync")
    @both_ways
    async def test_messages_are_there_when_the_users_transaction_was_committed(
        self, harness: TransactionsHarness, world: World, blocking: bool
    ) -> None:
        await outboxes.publish(world, b"0", unique="a")
        tx = await harness.begin(blocking=blocking)
        new = [message(b"1", unique="a"), message(b"2", unique="b"), message(b"3", outbox="other")]
        answers = await publish_in(world, tx.handle, new, blocking=blocking)

        assert [one.fresh for one in answers] == [False, True, True]
        assert await outboxes.log(world) == [b"0"]
        await tx.commit()
        assert await outboxes.log(world) == [b"0", b"2"]
        assert await outboxes.log(world, outbox="other") == [b"3"]
        assert await harness.numbers() == [1]
        (_, found) = await outboxes.read(world)
        assert found.number == answers[1].number

    @obligation("publish_in", 1)
    @obligation("look_at_partitions", 1)
    @both_ways
    async def test_nothing_is_left_of_messages_whose_transaction_was_rolled_back(
        self, harness: TransactionsHarness, world: World, blocking: bool
    ) -> None:
        await outboxes.publish(world, b"1")
        tx = await harness.begin(blocking=blocking)
        new = [message(b"2", unique="a"), message(b"3", outbox="other", partitions=2)]
        await publish_in(world, tx.handle, new, blocking=blocking)
        await outboxes.look(world)
        await tx.rollback()

        assert [one.name for one in await on(world).outboxes()] == [ORDERS]
        assert (await outboxes.view(world)).last == 1
        assert (await outboxes.publish(world, b"4", unique="a"))[0].fresh
        assert await outboxes.log(world) == [b"1", b"4"]
        await on(world).register_outbox("other", 8)
        assert await harness.numbers() == []

    @obligation("publish_in")
    @both_ways
    async def test_many_calls_of_one_transaction_follow_one_another(
        self, harness: TransactionsHarness, world: World, blocking: bool
    ) -> None:
        tx = await harness.begin(blocking=blocking)
        answers: list[Published] = []
        for number in range(10):
            new = [message(str(number).encode(), unique=str(number % 5))]
            answers += await publish_in(world, tx.handle, new, blocking=blocking)
        await tx.commit()

        assert [one.fresh for one in answers] == [True] * 5 + [False] * 5
        assert [one.number for one in answers[:5]] == [one.number for one in answers[5:]]
        assert await outboxes.log(world) == [b"0", b"1", b"2", b"3", b"4"]

    @obligation("publish_in")
    @obligation("publish", 2)
    @both_ways
    async def test_a_mismatch_in_the_users_transaction_is_raised_and_writes_nothing(
        self, harness: TransactionsHarness, world: World, blocking: bool
    ) -> None:
        await on(world).register_outbox(ORDERS, 4)
        tx = await harness.begin(blocking=blocking)
        with pytest.raises(PartitionCountMismatch):
            await publish_in(world, tx.handle, [message(b"1"), message(b"2", partitions=8)], blocking=blocking)
        await publish_in(world, tx.handle, [message(b"3")], blocking=blocking)
        await tx.commit()

        assert await outboxes.log(world) == [b"3"]
        assert await harness.numbers() == [1]

    @obligation("publish_in", 2)
    @both_ways
    async def test_nobody_is_woken_before_the_users_commit_and_everybody_soon_after(
        self, harness: TransactionsHarness, world: World, blocking: bool
    ) -> None:
        bells = [Bell(), Bell()]
        stops = [world.store.watch(bells[0]), (await world.open()).watch(bells[1])]
        for bell in bells:
            await heard(world, bell)

        @asynccontextmanager
        async def writing() -> AsyncIterator[None]:
            tx = await harness.begin(blocking=blocking)
            await publish_in(world, tx.handle, [message()], blocking=blocking)
            yield
            await tx.commit()

        await check_that_the_commit_rings(writing, *bells)
        for stop in stops:
            stop()

    @obligation("publish_in", 3)
    @both_ways
    async def test_a_connection_to_another_database_is_refused(
        self, harness: TransactionsHarness, world: World, blocking: bool
    ) -> None:
        tx = await harness.begin_elsewhere()
        with pytest.raises(DeclarationError):
            await publish_in(world, tx.handle, [message()], blocking=blocking)
        await tx.rollback()

        assert await on(world).outboxes() == ()

    @obligation("publish_in", 3)
    @both_ways
    async def test_a_connection_that_commits_each_statement_is_refused(
        self, harness: TransactionsHarness, world: World, blocking: bool
    ) -> None:
        tx = await harness.commit_each()
        with pytest.raises(DeclarationError):
            await publish_in(world, tx.handle, [message()], blocking=blocking)
        await tx.rollback()

        assert await on(world).outboxes() == ()

    @obligation("publish_in", 3)
    async def test_what_is_no_transaction_is_refused(self, world: World) -> None:
        node = await world.node()
        for nothing in (None, "tx", object()):
            with pytest.raises(DeclarationError):
                await on(world).publish_in(nothing, [message()])
            with pytest.raises(DeclarationError):
                on(world).publish_in_sync(nothing, [message()])
            with pytest.raises(DeclarationError):
                await on(world).stride_in(nothing, node.id, node.term, outboxes.stride(Stand(), Stand()))

    # publish_in and stride_in, in a transaction that the store opens.

    @obligation("publish_in")
    @obligation("stride_in")
    async def test_the_stores_own_transaction_publishes_and_steps(
        self, harness: TransactionsHarness, world: World
    ) -> None:
        node = await world.node()
        await outboxes.publish(world, b"1")
        held = await outboxes.begun(world, node)
        done = outboxes.stride(held, Stand(cursor=1))
        with pytest.raises(Mistake):
            async with transactions(world).transaction(limit=LONG) as tx:
                await tx.execute(harness.write_number, (7,))
                await on(world).publish_in(tx, [message(b"no")])
                assert await on(world).stride_in(tx, node.id, node.term, done)
                raise Mistake
        assert await harness.numbers() == []
        assert await outboxes.stand(world) == held
        assert await outboxes.log(world) == [b"1"]

        async with transactions(world).transaction(limit=LONG) as tx:
            await tx.execute(harness.write_number, (7,))
            await on(world).publish_in(tx, [message(b"2")])
            assert await on(world).stride_in(tx, node.id, node.term, done)
        assert await harness.numbers() == [7]
        assert await outboxes.stand(world) == done.after
        assert await outboxes.log(world) == [b"1", b"2"]

    @obligation("publish_in", 2)
    async def test_nobody_is_woken_before_the_commit_of_the_stores_own_transaction(self, world: World) -> None:
        bell = Bell()
        stop = (await world.open()).watch(bell)
        await heard(world, bell)

        @asynccontextmanager
        async def writing() -> AsyncIterator[None]:
            async with transactions(world).transaction(limit=LONG) as tx:
                await on(world).publish_in(tx, [message()])
                yield

        await check_that_the_commit_rings(writing, bell)
        stop()

    # stride_in

    @obligation("stride_in")
    @obligation("stride_in_sync")
    @both_ways
    async def test_a_partition_steps_on_with_the_users_transaction_or_not_at_all(
        self, harness: TransactionsHarness, world: World, blocking: bool
    ) -> None:
        node = await world.node()
        await outboxes.publish(world, b"1", b"2", b"3", key="a")
        first, second, _ = await outboxes.read(world)
        held = await outboxes.begun(world, node, 3)
        step = replace(
            outboxes.stride(held, Stand(cursor=3)),
            letters=(NewLetter(message=first, attempts=1, error="no"),),
            aside=(aside(second),),
        )
        for last in (False, True):
            tx = await harness.begin(blocking=blocking)
            assert await stride_in(world, tx.handle, node, step, blocking=blocking)
            assert await outboxes.stand(world) == held
            await (tx.commit() if last else tx.rollback())
            assert await harness.numbers() == ([1] if last else [])
            assert len(await outboxes.dead(world)) == last
            assert len(await on(world).read_aside(ORDERS, 0, 9)) == last

        assert await outboxes.stand(world) == step.after
        assert not await outboxes.step(world, node, step)

    @obligation("stride_in")
    @both_ways
    async def test_a_step_that_was_overtaken_is_refused_in_a_transaction_too(
        self, harness: TransactionsHarness, world: World, blocking: bool
    ) -> None:
        node = await world.node()
        await outboxes.publish(world, b"1")
        late = outboxes.stride(Stand(), Stand(cursor=1))
        held = await outboxes.begun(world, node)
        tx = await harness.begin(blocking=blocking)
        accepted = await stride_in(world, tx.handle, node, late, blocking=blocking)
        await tx.rollback()

        assert not accepted
        assert await outboxes.stand(world) == held

    @obligation("stride_in")
    @both_ways
    async def test_what_another_holds_is_left_alone_in_a_transaction_too(
        self, harness: TransactionsHarness, world: World, blocking: bool
    ) -> None:
        holder, other = await world.node(), await world.node()
        await outboxes.publish(world, b"1")
        held = await outboxes.begun(world, holder)
        take_over = outboxes.stride(held, begin(held, other.id, 1))
        for alive in (True, False):
            tx = await harness.begin(blocking=blocking)
            assert await stride_in(world, tx.handle, other, take_over, blocking=blocking) is not alive
            await tx.rollback()
            if alive:
                await world.kill(holder)

    @obligation("stride_in")
    @both_ways
    async def test_a_node_that_is_gone_writes_nothing_in_a_transaction_either(
        self, harness: TransactionsHarness, world: World, blocking: bool
    ) -> None:
        node = await world.node()
        await on(world).register_outbox(ORDERS, PARTITIONS)
        await world.kill(node)
        tx = await harness.begin(blocking=blocking)
        with pytest.raises(NodeGone):
            await stride_in(world, tx.handle, node, outboxes.stride(Stand(), Stand(cursor=1)), blocking=blocking)
        await tx.rollback()

        assert await outboxes.stand(world) == Stand()

    @obligation("stride", 2)
    @obligation("stride_in")
    @both_ways
    async def test_of_two_from_one_revision_one_is_committed_though_one_is_in_a_transaction(
        self, harness: TransactionsHarness, world: World, blocking: bool
    ) -> None:
        """Whoever comes second waits for the first, and is told that it was too late, or waits in vain."""
        node = await world.node()
        await on(world).register_outbox(ORDERS, PARTITIONS)
        for last in (False, True):
            before = await outboxes.stand(world)
            tx = await harness.begin(blocking=blocking)
            mine = outboxes.stride(before, Stand(error="mine"))
            assert await stride_in(world, tx.handle, node, mine, blocking=blocking)
            theirs = asyncio.ensure_future(outboxes.step(world, node, outboxes.stride(before, Stand(error="theirs"))))
            await asyncio.to_thread(time.sleep, A_MOMENT)
            await (tx.commit() if last else tx.rollback())
            accepted = await theirs

            assert accepted is not last
            after = await outboxes.stand(world)
            assert (after.revision, after.error) == (before.revision + 1, "mine" if last else "theirs")

    # Transactions that commit late.

    @obligation("look_at_partitions", 2)
    @obligation("look_at_partitions", 3)
    @both_ways
    async def test_a_message_that_is_committed_late_is_not_passed_over(
        self, harness: TransactionsHarness, world: World, blocking: bool
    ) -> None:
        other = await world.open()
        await outboxes.publish(world, b"first")
        tx = await harness.begin(blocking=blocking)
        await publish_in(world, tx.handle, [message(b"late", unique="late")], blocking=blocking)
        writing = asyncio.ensure_future(on(world, other).publish([message(b"between")]))
        await asyncio.to_thread(time.sleep, A_MOMENT)
        before = await outboxes.read(world)
        await tx.commit()
        await writing
        after = await outboxes.read(world)

        assert b"late" not in [one.payload for one in before]
        assert after[: len(before)] == before
        assert await outboxes.log(world, store=other) == [one.payload for one in after]
        assert sorted(one.payload for one in after) == [b"between", b"first", b"late"]
        assert after[0].payload == b"first"
        await outboxes.publish(world, b"last")
        assert (await outboxes.log(world))[-1] == b"last"

    @obligation("publish", 3)
    @obligation("publish_in", 1)
    @both_ways
    @pytest.mark.parametrize("commits", [True, False], ids=["committed", "rolled back"])
    async def test_whether_a_text_is_known_is_decided_by_the_end_of_the_transaction_that_took_it(
        self, harness: TransactionsHarness, world: World, blocking: bool, commits: bool
    ) -> None:
        await on(world).register_outbox(ORDERS, PARTITIONS)
        tx = await harness.begin(blocking=blocking)
        (mine,) = await publish_in(world, tx.handle, [message(b"mine", unique="a")], blocking=blocking)
        writing = asyncio.ensure_future(outboxes.publish(world, b"theirs", unique="a"))
        await asyncio.to_thread(time.sleep, A_MOMENT)
        await (tx.commit() if commits else tx.rollback())
        (theirs,) = await writing

        assert theirs.fresh is not commits
        assert (theirs.number == mine.number) or not commits
        assert await outboxes.log(world) == [b"mine" if commits else b"theirs"]

    @obligation("look_at_partitions", 4)
    @obligation("read_messages")
    @both_ways
    async def test_who_looks_or_reads_does_not_wait_for_a_users_transaction(
        self, harness: TransactionsHarness, world: World, blocking: bool
    ) -> None:
        node, other = await world.node(), await world.open()
        await outboxes.publish(world, b"1")
        await outboxes.bury(world, node, b"2", partition=1)
        tx = await harness.begin(blocking=blocking)
        await publish_in(world, tx.handle, [message(b"3"), message(b"4", outbox="new")], blocking=blocking)
        await stride_in(world, tx.handle, node, outboxes.stride(Stand(), Stand(cursor=1)), blocking=blocking)
        for store in (world.store, other):
            role = on(world, store)
            async with asyncio.timeout(5):
                assert await outboxes.log(world, store=store) == [b"1"]
                looked = await outboxes.look(world, ORDERS, "new", store=store)
                assert [one.last for one in looked.partitions] == [1, 1, 0, 0]
                assert await role.read_aside(ORDERS, 0, 9) == ()
                assert await role.read_keys_aside(ORDERS, 0, ["a"]) == frozenset()
                assert len(await role.outboxes()) == 1
                assert len(await outboxes.dead(world)) == 1
        await tx.rollback()

    @obligation("take_letters")
    @obligation("publish_in")
    async def test_letters_are_not_touched_by_a_transaction_that_is_rolled_back(
        self, harness: TransactionsHarness, world: World
    ) -> None:
        node = await world.node()
        await outboxes.publish(world, b"1")
        (one,) = await outboxes.read(world)
        tx = await harness.begin(blocking=True)
        dead = (NewLetter(message=one, attempts=1, error="no"),)
        step = replace(outboxes.stride(Stand(), Stand(cursor=1)), letters=dead)
        assert await stride_in(world, tx.handle, node, step, blocking=True)
        await tx.rollback()

        assert await outboxes.taken(world, HOUR) == ()


async def publish_in(
    world: World, handle: object, new: Sequence[NewMessage], *, blocking: bool
) -> tuple[Published, ...]:
    store = on(world)
    return store.publish_in_sync(handle, new) if blocking else await store.publish_in(handle, new)


async def stride_in(world: World, handle: object, node: Member, stride: Stride, *, blocking: bool) -> bool:
    store = on(world)
    if blocking:
        return store.stride_in_sync(handle, node.id, node.term, stride)
    return await store.stride_in(handle, node.id, node.term, stride)
