# ruff: noqa: S101, PT012 -- a suite of tests is built on assert, and what a block raises is raised by all of it
"""Writing together with the user's own writes: both are committed, or neither."""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, nullcontext
from datetime import timedelta
from typing import Final

import pytest
from msgspec.structs import replace

from mainspring.core.breaker import Breaker, Phase
from mainspring.core.job import State
from mainspring.core.outcome import Snoozed, Succeeded
from mainspring.core.unique import OnConflict, UniqueKey
from mainspring.errors import Conflict, DeclarationError, TransactionTooLong
from mainspring.stores.port import Transactions
from mainspring.stores.records import Enqueued, NewJob, Settled, Settlement, Verdict
from mainspring.testing.contract import plans
from mainspring.testing.contract.harness import TransactionsHarness
from mainspring.testing.contract.obligation import obligation
from mainspring.testing.contract.verbs.contract import Contract
from mainspring.testing.contract.verbs.wake import Bell, check_that_the_commit_rings, heard
from mainspring.testing.contract.world import FATAL, SECOND, SEND, World

LONG: Final = timedelta(seconds=30)
SHORT: Final = timedelta(milliseconds=100)

both_ways = pytest.mark.parametrize("blocking", [False, True], ids=["awaited", "blocking"])


class Mistake(Exception):
    """What goes wrong in a block."""


class TransactionsContract(Contract):
    """The role Transactions. Needs the roles Jobs, Nodes, Inspector and Wake; its harness is a `TransactionsHarness`."""

    # A transaction that the store opens.

    @obligation("transaction")
    @obligation("execute")
    async def test_what_a_handler_writes_is_committed_with_the_end_of_its_job(
        self, harness: TransactionsHarness, world: World
    ) -> None:
        claim = await world.running(await world.node())
        new = world.new()
        async with transactions(world).transaction(limit=LONG) as tx:
            await tx.execute(harness.write_number, (7,))
            assert await tx.enqueue([new]) == (Enqueued(id=new.id, fresh=True),)
            assert await tx.settle(world.settlement(claim, Succeeded(b"1"))) == Settled(verdict=Verdict.ACCEPTED)

        assert await harness.numbers() == [7]
        assert await world.is_there(new.id)
        assert (await world.job(claim.job.id)).state is State.SUCCEEDED

    @obligation("transaction")
    async def test_a_block_that_raises_leaves_nothing(self, harness: TransactionsHarness, world: World) -> None:
        claim = await world.running(await world.node())
        new = world.new()
        with pytest.raises(Mistake):
            async with transactions(world).transaction(limit=LONG) as tx:
                await tx.execute(harness.write_number, (7,))
                await tx.enqueue([new])
                await tx.settle(world.settlement(claim, Succeeded(b"1")))
                raise Mistake

        assert await harness.numbers() == []
        assert not await world.is_there(new.id)
        assert await world.job(claim.job.id) == claim.job
        await world.end(claim, Succeeded())

    @obligation("transaction")
    async def test_a_lost_lease_is_refused_in_a_transaction_too(self, world: World) -> None:
        node, other = await world.node(), await world.node()
        claim = await world.running(node)
        await world.end(claim, Snoozed(delay=0 * SECOND))
        await world.end(await world.claim_one(other), Snoozed(delay=0 * SECOND))
        before = await world.view(claim.job.id)
        async with transactions(world).transaction(limit=LONG) as tx:
            settled = await tx.settle(world.settlement(claim, Succeeded()))

        assert settled.verdict is Verdict.REFUSED
        assert await world.view(claim.job.id) == before

    @obligation("transaction")
    async def test_a_conflict_in_a_transaction_is_raised(self, world: World) -> None:
        unique = UniqueKey(key="a", on_conflict=OnConflict.RAISE)
        await world.enqueue(unique=unique)
        with pytest.raises(Conflict):
            async with transactions(world).transaction(limit=LONG) as tx:
                await tx.enqueue([world.new(unique=unique)])

    @obligation("transaction", 1)
    @pytest.mark.parametrize("uses_it", [True, False], ids=["and is used", "and is ended"])
    async def test_a_transaction_that_is_open_for_too_long_is_rolled_back(
        self, harness: TransactionsHarness, world: World, uses_it: bool
    ) -> None:
        new = world.new()
        with pytest.raises(TransactionTooLong):
            async with transactions(world).transaction(limit=SHORT) as tx:
                await tx.enqueue([new])
                # Whichever clock the store goes by here, it has passed the limit.
                await asyncio.sleep(1)
                await asyncio.to_thread(time.sleep, 0.3)
                world.clock.advance("1s")
                if uses_it:
                    await tx.execute(harness.write_number, (7,))

        assert await harness.numbers() == []
        assert not await world.is_there(new.id)
        await world.enqueue()

    @obligation("transaction", 1)
    async def test_others_can_write_once_a_transaction_was_open_for_too_long(self, world: World) -> None:
        other = await world.open()
        new = world.new()
        with pytest.raises(TransactionTooLong):
            async with transactions(world).transaction(limit=SHORT) as tx:
                await tx.enqueue([world.new()])
                await asyncio.sleep(1)
                await asyncio.to_thread(time.sleep, 0.3)
                world.clock.advance("1s")
                await other.enqueue([new])
                await tx.enqueue([world.new()])

        (queue,) = await world.store.queues()
        assert queue.waiting == 1
        assert await world.is_there(new.id)

    @obligation("transaction")
    async def test_who_only_looks_does_not_wait_for_a_writer(self, world: World) -> None:
        other = await world.open()
        there, new = await world.enqueue(), world.new()
        async with transactions(world).transaction(limit=LONG) as tx:
            await tx.enqueue([new])
            for store in (world.store, other):
                views = await store.get([there, new.id])
                assert [view and view.job.id for view in views] == [there, None]

    @obligation("transaction", 2)
    @pytest.mark.parametrize("where", ["in the block", "in a task"])
    async def test_a_write_beside_the_transaction_does_not_wait_for_its_end(
        self, harness: TransactionsHarness, world: World, where: str
    ) -> None:
        other = await world.open()
        new = [world.new(), world.new()]
        closed, refused = asyncio.Event(), []

        async def write() -> None:
            for store, one in zip((world.store, other), new, strict=True):
                try:
                    await store.enqueue([one])
                except DeclarationError:
                    refused.append((store, one))

        async def write_again() -> None:
            await closed.wait()
            for store, one in refused:
                await store.enqueue([one])

        async with transactions(world).transaction(limit=LONG) as tx:
            await tx.execute(harness.write_number, (7,))
            await (asyncio.ensure_future(write()) if where == "in a task" else write())
            assert [await world.is_there(one.id) for one in new] == [not refused] * 2
            later = asyncio.ensure_future(write_again())
            await tx.execute(harness.write_number, (8,))
        closed.set()
        await later

        assert await harness.numbers() == [7, 8]
        assert [await world.is_there(one.id) for one in new] == [True, True]

    @obligation("watch", 1)
    async def test_nobody_is_woken_before_the_commit_of_a_transaction(self, world: World) -> None:
        bell = Bell()
        stop = (await world.open()).watch(bell)
        await heard(world, bell)

        @asynccontextmanager
        async def writing() -> AsyncIterator[None]:
            async with transactions(world).transaction(limit=LONG) as tx:
                await tx.enqueue([world.new()])
                yield

        await check_that_the_commit_rings(writing, bell)
        stop()

    # A transaction of the user's own.

    @obligation("blocks")
    @both_ways
    async def test_a_store_knows_which_drivers_block(
        self, harness: TransactionsHarness, world: World, blocking: bool
    ) -> None:
        tx = await harness.begin(blocking=blocking)
        assert transactions(world).blocks(tx.handle) or not blocking
        await tx.rollback()

    @obligation("enqueue_in")
    @obligation("enqueue_in_sync")
    @both_ways
    async def test_jobs_are_there_when_the_users_transaction_was_committed(
        self, harness: TransactionsHarness, world: World, blocking: bool
    ) -> None:
        there, new = await world.enqueue(), world.new()
        tx = await harness.begin(blocking=blocking)
        answers = await enqueue_in(world, tx.handle, [new, world.new(id=there)], blocking=blocking)

        assert answers == (Enqueued(id=new.id, fresh=True), Enqueued(id=there, fresh=False))
        assert not await world.is_there(new.id)
        await tx.commit()
        assert await world.is_there(new.id)
        assert await harness.numbers() == [1]
        assert [one.claim.job.id for one in await world.claim(await world.node(), room=9)] == [there, new.id]

    @obligation("enqueue_in", 1)
    @both_ways
    async def test_jobs_were_never_there_when_the_users_transaction_was_rolled_back(
        self, harness: TransactionsHarness, world: World, blocking: bool
    ) -> None:
        new = world.new(unique=UniqueKey(key="a"))
        tx = await harness.begin(blocking=blocking)
        await enqueue_in(world, tx.handle, [new], blocking=blocking)
        await tx.rollback()

        assert not await world.is_there(new.id)
        assert await harness.numbers() == []
        assert await world.claim(await world.node()) == ()
        assert (await world.store.enqueue([world.new(unique=UniqueKey(key="a"))]))[0].fresh

    @obligation("enqueue_in")
    @both_ways
    async def test_a_conflict_in_the_users_transaction_is_raised(
        self, harness: TransactionsHarness, world: World, blocking: bool
    ) -> None:
        unique = UniqueKey(key="a", on_conflict=OnConflict.RAISE)
        holder = await world.enqueue(unique=unique)
        tx = await harness.begin(blocking=blocking)
        with pytest.raises(Conflict) as caught:
            await enqueue_in(world, tx.handle, [world.new(unique=unique)], blocking=blocking)
        await tx.rollback()

        assert caught.value.job == str(holder)

    @obligation("enqueue_in", 2)
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
            await enqueue_in(world, tx.handle, [world.new()], blocking=blocking)
            yield
            await tx.commit()

        await check_that_the_commit_rings(writing, *bells)
        for stop in stops:
            stop()

    @obligation("enqueue_in", 3)
    @both_ways
    async def test_a_connection_to_another_database_is_refused(
        self, harness: TransactionsHarness, world: World, blocking: bool
    ) -> None:
        tx = await harness.begin_elsewhere()
        with pytest.raises(DeclarationError):
            await enqueue_in(world, tx.handle, [world.new()], blocking=blocking)
        await tx.rollback()

        assert await world.store.queues() == ()

    @obligation("enqueue_in", 3)
    @both_ways
    async def test_a_connection_that_commits_each_statement_is_refused(
        self, harness: TransactionsHarness, world: World, blocking: bool
    ) -> None:
        tx = await harness.commit_each()
        with pytest.raises(DeclarationError):
            await enqueue_in(world, tx.handle, [world.new()], blocking=blocking)
        await tx.rollback()

        assert await world.store.queues() == ()

    @obligation("settle_in")
    @obligation("settle_in_sync")
    @both_ways
    async def test_a_job_ends_with_the_users_transaction_or_goes_on(
        self, harness: TransactionsHarness, world: World, blocking: bool
    ) -> None:
        claim = await world.running(await world.node())
        settlement = world.settlement(claim, Succeeded(b"1"))
        tx = await harness.begin(blocking=blocking)
        assert (await settle_in(world, tx.handle, settlement, blocking=blocking)).verdict is Verdict.ACCEPTED
        await tx.rollback()
        assert await world.job(claim.job.id) == claim.job
        assert await harness.numbers() == []

        tx = await harness.begin(blocking=blocking)
        assert (await settle_in(world, tx.handle, settlement, blocking=blocking)).verdict is Verdict.ACCEPTED
        await tx.commit()
        view = await world.view(claim.job.id)
        assert (view.job.state, view.result) == (State.SUCCEEDED, b"1")
        assert await harness.numbers() == [1]
        assert (await world.settle(claim, Succeeded())).verdict is Verdict.REPEATED

    @obligation("settle", 9)
    @obligation("settle_in")
    @obligation("settle_in_sync")
    @pytest.mark.parametrize("way", ["own", "awaited", "blocking"])
    async def test_the_breaker_of_a_task_is_moved_with_the_users_writes_or_not_at_all(
        self, harness: TransactionsHarness, world: World, way: str
    ) -> None:
        node = await world.node()
        await world.store.declare_breakers({SEND: Breaker(threshold=1)})
        await world.enqueue_all(world.new() for _ in range(4))
        (first,) = await world.claim(node)
        await world.store.settle([replace(world.settlement(first.claim, FATAL), term=first.term)])
        world.clock.advance(SECOND * 30)
        (probe,) = await world.claim(node)
        settlement = replace(world.settlement(probe.claim, Succeeded(b"1")), term=probe.term)

        for last in (False, True):
            if way == "own":
                with nullcontext() if last else pytest.raises(Mistake):
                    async with transactions(world).transaction(limit=LONG) as own:
                        settled = await own.settle(settlement)
                        if not last:
                            raise Mistake
            else:
                tx = await harness.begin(blocking=way == "blocking")
                settled = await settle_in(world, tx.handle, settlement, blocking=way == "blocking")
                await (tx.commit() if last else tx.rollback())
            assert settled.changed is not None
            (view,) = await world.store.breakers([SEND])
            assert view.circuit.phase is (Phase.CLOSED if last else Phase.HALF_OPEN)
            assert len(await world.store.breaker_changes(SEND)) == (3 if last else 2)
        assert len(await world.claim(node, room=9)) == 2

    @obligation("settle", 8)
    @obligation("settle_in")
    @pytest.mark.parametrize("way", ["the store's", "awaited", "blocking"])
    async def test_a_run_ends_with_the_transaction_that_ends_its_job(
        self, harness: TransactionsHarness, world: World, way: str
    ) -> None:
        await plans.add(world, planned=plans.after_the_end())
        run = await plans.fire(world)
        before = await plans.look_at(world)
        claim = await world.claim_one(await world.node())
        settlement = world.settlement(claim, Succeeded(b"1"))
        world.clock.advance("1s")

        if way == "the store's":
            with pytest.raises(Mistake):
                async with transactions(world).transaction(limit=LONG) as own:
                    await own.settle(settlement)
                    raise Mistake
        else:
            tx = await harness.begin(blocking=way == "blocking")
            await settle_in(world, tx.handle, settlement, blocking=way == "blocking")
            assert await plans.look_at(world) == before
            await tx.rollback()
        assert await plans.look_at(world) == before

        if way == "the store's":
            async with transactions(world).transaction(limit=LONG) as own:
                assert (await own.settle(settlement)).verdict is Verdict.ACCEPTED
        else:
            tx = await harness.begin(blocking=way == "blocking")
            await settle_in(world, tx.handle, settlement, blocking=way == "blocking")
            await tx.commit()
        assert (await plans.run_of(world, run.id)).state is State.SUCCEEDED
        there = await plans.look_at(world)
        assert (there.open, there.schedule.waits) == ((), False)
        assert there.schedule.next_at == there.schedule.last_end == world.now


def transactions(world: World) -> Transactions:
    assert isinstance(world.store, Transactions)
    return world.store


async def enqueue_in(world: World, handle: object, new: Sequence[NewJob], *, blocking: bool) -> tuple[Enqueued, ...]:
    store = transactions(world)
    return store.enqueue_in_sync(handle, new) if blocking else await store.enqueue_in(handle, new)


async def settle_in(world: World, handle: object, settlement: Settlement, *, blocking: bool) -> Settled:
    store = transactions(world)
    return store.settle_in_sync(handle, settlement) if blocking else await store.settle_in(handle, settlement)
