# ruff: noqa: S101 -- a suite of tests is built on assert
"""What holds when several use a store at once, or give up halfway."""

import asyncio
import threading
from collections import Counter
from contextlib import suppress

import pytest

from mainspring.core.job import JobId, State
from mainspring.core.limits import Gate, Scope
from mainspring.core.outcome import Snoozed, Succeeded
from mainspring.core.unique import OnConflict, UniqueKey
from mainspring.errors import Conflict, NodeGone
from mainspring.stores.records import Verdict
from mainspring.testing.contract.obligation import GENERAL, obligation
from mainspring.testing.contract.verbs.contract import Contract
from mainspring.testing.contract.world import SECOND, SEND, Member, World


class SharingContract(Contract):
    """G1 to G3, and G6 as far as every store can show it. Needs the roles Jobs, Nodes and Inspector."""

    @obligation(GENERAL, 2)
    @pytest.mark.parametrize("steps", range(8))
    async def test_an_enqueue_that_was_given_up_is_done_whole_or_not_at_all(self, world: World, steps: int) -> None:
        batch = [world.new() for _ in range(50)]
        await given_up(asyncio.ensure_future(world.store.enqueue(batch)), steps)

        views = await world.store.get([one.id for one in batch])

        assert len({view is None for view in views}) == 1

    @obligation(GENERAL, 2)
    @pytest.mark.parametrize("steps", range(8))
    async def test_a_claim_that_was_given_up_is_done_whole_or_not_at_all(self, world: World, steps: int) -> None:
        node = await world.node()
        new = [world.new() for _ in range(5)]
        await world.enqueue_all(new)
        await given_up(asyncio.ensure_future(world.ask(node, room=5)), steps)

        # In this order: what was given up may still be done between two looks.
        views = await world.store.get([one.id for one in new])
        running = {view.job.id for view in views if view and view.job.state is State.RUNNING}
        held = {one.job for one in (await world.store.renew(node.id, node.term)).held}

        assert running <= held
        assert {len(running), len(held)} <= {0, 5}

    @obligation(GENERAL, 3)
    async def test_verbs_are_called_from_several_threads_with_loops_of_their_own(self, world: World) -> None:
        nodes = [await world.node() for _ in range(3)]
        done: Counter[JobId] = Counter()

        async def work(node: Member) -> None:
            store = world.store
            for number in range(20):
                await store.enqueue([world.new(payload=str(number).encode())])
                for delivery in (await world.ask(node, room=2)).deliveries:
                    settled = await world.settle(delivery.claim, Succeeded(delivery.payload))
                    assert settled.verdict is Verdict.ACCEPTED
                    done[delivery.claim.job.id] += 1
                await store.renew(node.id, node.term)
                await store.queues()

        await asyncio.gather(*(asyncio.to_thread(asyncio.run, work(node)) for node in nodes))
        for delivery in await world.claim(nodes[0], room=99):
            done[delivery.claim.job.id] += 1

        assert len(done) == done.total() == 60

    @obligation(GENERAL, 3)
    async def test_gates_and_unique_keys_hold_over_several_threads(self, world: World) -> None:
        nodes = [await world.node() for _ in range(4)]
        await world.store.declare([Gate(scope=Scope.TASK, name=str(SEND), concurrency=2)])
        counting, running, most = threading.Lock(), 0, 0

        async def work(number: int, node: Member) -> None:
            nonlocal running, most
            for _ in range(15):
                await world.store.enqueue([world.new(unique=UniqueKey(key=str(number % 2)))])
                for delivery in (await world.ask(node, room=2)).deliveries:
                    with counting:
                        running += 1
                        most = max(most, running)
                    await asyncio.sleep(0)
                    with counting:  # before it is settled: from then on another may have the place
                        running -= 1
                    await world.settle(delivery.claim, Snoozed(delay=0 * SECOND))

        await asyncio.gather(*(asyncio.to_thread(asyncio.run, work(at, node)) for at, node in enumerate(nodes)))

        assert 1 <= most <= 2
        waiting = {queue.name: queue.waiting for queue in await world.store.queues()}
        assert waiting == {"default": 2}

    @obligation(GENERAL, 6)
    async def test_a_store_that_has_raised_can_be_used_again(self, world: World) -> None:
        node, strict = await world.node(), UniqueKey(key="a", on_conflict=OnConflict.RAISE)
        await world.enqueue(unique=strict)
        for _ in range(3):
            with pytest.raises(Conflict):
                await world.store.enqueue([world.new(), world.new(unique=strict)])
            with pytest.raises(NodeGone):
                await world.store.renew(node.id, node.term + 1)

        await world.end(await world.claim_one(node), Succeeded())
        assert await world.claim(node) == ()


async def given_up(task: asyncio.Future[object], steps: int) -> None:
    """Cancel a call after so many steps of the loop."""
    for _ in range(steps):
        await asyncio.sleep(0)
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
