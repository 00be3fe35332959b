# ruff: noqa: S101 -- a suite of tests is built on assert
"""What is deleted when its time has passed, and what is not."""

from datetime import timedelta

import pytest

from mainspring.core.command import RetryJob
from mainspring.core.job import Retention
from mainspring.core.limits import MOMENT, Gate, Scope
from mainspring.core.outcome import Lost, Succeeded
from mainspring.core.unique import UniqueKey
from mainspring.errors import NodeGone
from mainspring.stores.records import LogLine, Note, Quiet, Verdict
from mainspring.testing.contract.obligation import obligation
from mainspring.testing.contract.verbs.contract import Contract
from mainspring.testing.contract.world import DAY, FATAL, HOUR, RAISED, SECOND, SEND, World

KEEP = Retention(succeeded=timedelta(hours=1), failed=timedelta(hours=2))
LONG = 2 * DAY


class KeepingContract(Contract):
    """`prune`. Needs the roles Jobs, Nodes, Locks, Operator and Inspector."""

    @obligation("prune", 1)
    async def test_finished_jobs_are_kept_for_as_long_as_they_say(self, world: World) -> None:
        node = await world.node()
        succeeded, failed = (
            await world.running(node, retention=KEEP),
            await world.running(node, retention=KEEP),
        )
        await world.end(succeeded, Succeeded())
        await world.end(failed, FATAL)

        kept = []
        for _ in range(2):
            world.clock.advance(HOUR - SECOND)
            await prune_all(world)
            kept.append([await world.is_there(claim.job.id) for claim in (succeeded, failed)])
            world.clock.advance(SECOND + MOMENT)
            await prune_all(world)
            kept.append([await world.is_there(claim.job.id) for claim in (succeeded, failed)])

        assert kept == [[True, True], [False, True], [False, True], [False, False]]

    @obligation("prune", 1)
    async def test_what_belongs_to_a_job_goes_with_it(self, world: World) -> None:
        node = await world.node()
        claim = await world.running(node, retention=KEEP, unique=UniqueKey(key="a"))
        line = LogLine(at=world.now, level="INFO", message="hello")
        await world.store.note([Note(job=claim.job.id, lease=claim.job.lease, node=node.id, lines=(line,))])
        await world.end(claim, FATAL)
        world.clock.advance("3h")
        await prune_all(world)

        assert not await world.is_there(claim.job.id)
        assert await world.store.attempts(claim.job.id) == ()
        assert await world.store.log_lines(claim.job.id) == ()
        assert (await world.store.enqueue([world.new(unique=UniqueKey(key="a"))]))[0].fresh
        assert (await world.settle(claim, FATAL)).verdict is Verdict.REFUSED

    @obligation("prune", 1)
    async def test_the_place_that_a_pruned_job_kept_goes_with_it(self, world: World) -> None:
        node = await world.node()
        await world.store.declare([Gate(scope=Scope.TASK, name=str(SEND), concurrency=1)])
        claim = await world.running(node, retention=KEEP)
        await world.end(claim, FATAL, keeps_place=True)
        await world.enqueue()
        world.clock.advance("3h")
        assert await world.claim(node) == ()
        await prune_all(world)

        assert len(await world.claim(node)) == 1

    @obligation("prune", 1)
    async def test_jobs_that_are_active_are_kept(self, world: World) -> None:
        node = await world.node()
        retried = await world.running(node, retention=KEEP)
        await world.end(retried, FATAL)
        await world.command(retried.job.id, RetryJob())
        running = await world.claim_one(node)
        waiting = [await world.enqueue(retention=KEEP), await world.enqueue(retention=KEEP, run_at=LONG)]
        retrying = await world.running(node, retention=KEEP, priority=99)
        await world.end(retrying, RAISED)
        world.clock.advance("52w")
        await prune_all(world)

        for id_ in (running.job.id, retrying.job.id, *waiting):
            assert await world.is_there(id_)

    @obligation("prune")
    async def test_no_more_than_the_limit_is_deleted_at_a_time(self, world: World) -> None:
        node = await world.node()
        await world.enqueue_all(world.new(retention=KEEP) for _ in range(5))
        ids = []
        for delivery in await world.claim(node, room=5):
            ids.append(delivery.claim.job.id)
            await world.end(delivery.claim, FATAL)
        world.clock.advance("3h")

        left = []
        for _ in range(3):
            assert await world.store.prune(2) <= 2
            left.append(len([view for view in await world.store.get(ids) if view]))

        assert left == [3, 1, 0]
        await prune_all(world)
        assert await world.store.prune(2) == 0

    @obligation("prune", 2)
    async def test_dead_nodes_that_hold_nothing_go_a_day_after_their_death(self, world: World) -> None:
        alive, dead = await world.node("alive"), await world.node("dead")
        world.clock.advance("10d")
        await world.kill(dead)
        world.clock.advance(DAY - SECOND)
        await prune_all(world)
        assert await names(world) == ["alive", "dead"]

        world.clock.advance(2 * SECOND)
        await prune_all(world)
        assert await names(world) == ["alive"]
        await world.store.renew(alive.id, alive.term)

    @obligation("join", 1)
    async def test_the_id_of_a_node_that_was_pruned_was_used_too(self, world: World) -> None:
        dead = await world.node("dead")
        await world.kill(dead)
        world.clock.advance(LONG)
        await prune_all(world)

        with pytest.raises(NodeGone):
            await world.node("dead")

    @obligation("prune", 2)
    async def test_a_dead_node_that_holds_a_lease_or_a_place_is_kept(self, world: World) -> None:
        await world.store.declare([Gate(scope=Scope.TASK, name=str(SEND), concurrency=9)])
        reaper, leaseholder, placeholder = await world.node("r"), await world.node("l"), await world.node("p")
        leased = await world.running(leaseholder)
        await world.end(await world.running(placeholder), FATAL, keeps_place=True)
        await world.kill(leaseholder)
        await world.kill(placeholder)
        world.clock.advance(LONG)
        await prune_all(world)
        assert await names(world) == ["r", "l", "p"]

        await world.store.mend(100)
        assert (await world.settle(leased, Lost(), by=reaper.id)).verdict is Verdict.ACCEPTED
        await prune_all(world)
        assert await names(world) == ["r"]

    @obligation("prune", 2)
    async def test_orders_go_a_day_after_they_were_given(self, world: World) -> None:
        node = await world.node()
        old = await world.store.order(node.id, Quiet())
        world.clock.advance(DAY - SECOND)
        new = await world.store.order(node.id, Quiet())
        await prune_all(world)
        assert await world.store.orders(node.id) == (old, new)

        world.clock.advance(2 * SECOND)
        await prune_all(world)
        assert await world.store.orders(node.id) == (new,)

    @obligation("prune", 2)
    async def test_unique_keys_that_are_taken_are_kept(self, world: World) -> None:
        node = await world.node()
        period = UniqueKey(key="finished", period=timedelta(hours=6))
        finished = await world.running(node, unique=period)
        await world.end(finished, Succeeded())
        active = await world.enqueue(unique=UniqueKey(key="active"))
        world.clock.advance("5h")
        await prune_all(world)

        new = [world.new(unique=UniqueKey(key=key)) for key in ("finished", "active")]
        assert [one.id for one in await world.store.enqueue(new)] == [finished.job.id, active]

    @obligation("prune", 2)
    async def test_locks_go_a_day_after_they_expired(self, world: World) -> None:
        lock = await world.store.acquire("ticker", "a", HOUR)
        assert lock is not None
        world.clock.advance(HOUR + DAY - SECOND)
        await prune_all(world)
        kept = await world.store.extend(lock, HOUR)
        assert kept is not None

        world.clock.advance(HOUR + DAY + SECOND)
        await prune_all(world)
        assert await world.store.extend(kept, HOUR) is None

    @obligation("acquire", 2)
    async def test_the_term_of_a_lock_that_was_pruned_does_not_fall(self, world: World) -> None:
        lock = await world.store.acquire("ticker", "a", HOUR)
        world.clock.advance(LONG)
        await prune_all(world)
        again = await world.store.acquire("ticker", "b", HOUR)

        assert lock is not None
        assert again is not None
        assert again.term > lock.term


async def prune_all(world: World) -> None:
    while await world.store.prune(100):
        pass


async def names(world: World) -> list[str]:
    return [view.node.id for view in await world.store.nodes()]
