# ruff: noqa: S101 -- a suite of tests is built on assert
"""Places that are kept although their attempts have ended, and how they are given up."""

from mainspring.core.command import DeleteJob
from mainspring.core.job import Claim, next_lease
from mainspring.core.outcome import Snoozed
from mainspring.stores.records import Place
from mainspring.testing.contract.obligation import obligation
from mainspring.testing.contract.verbs.contract import Contract
from mainspring.testing.contract.verbs.gates import MANY, task_gate
from mainspring.testing.contract.world import FATAL, SECOND, World


class PlacesContract(Contract):
    """Kept places in `claim` and `settle`, `release` and `mend`. Needs the roles Jobs and Nodes."""

    @obligation("claim", 6)
    async def test_a_kept_place_stays_taken(self, world: World) -> None:
        node, other = await world.node(), await world.node()
        await world.store.declare([task_gate(1)])
        claim = await world.running(node)
        await world.end(claim, Snoozed(delay=0 * SECOND), keeps_place=True)

        assert await world.claim(other, room=MANY) == ()
        await world.enqueue()
        assert await world.claim(other, room=MANY) == ()
        await world.store.release(node.id, [place(claim)])
        assert [one.claim.job.id for one in await world.claim(other, room=MANY)] == [claim.job.id]

    @obligation("release", 1)
    async def test_only_the_node_that_keeps_a_place_can_release_it(self, world: World) -> None:
        node, other = await world.node(), await world.node()
        await world.store.declare([task_gate(1)])
        claim = await world.running(node)
        await world.end(claim, FATAL, keeps_place=True)
        await world.enqueue()

        await world.store.release(other.id, [place(claim)])
        assert await world.claim(other) == ()
        await world.store.release(node.id, [place(claim)])
        assert len(await world.claim(other)) == 1

    @obligation("release", 1)
    async def test_the_place_of_an_attempt_that_still_runs_cannot_be_released(self, world: World) -> None:
        node = await world.node()
        await world.store.declare([task_gate(1)])
        claim = await world.running(node)
        await world.enqueue()

        await world.store.release(node.id, [place(claim)])

        assert await world.claim(node) == ()

    @obligation("release", 1)
    async def test_releasing_what_is_not_taken_changes_nothing(self, world: World) -> None:
        node = await world.node()
        await world.store.declare([task_gate(2)])
        kept = await world.running(node)
        await world.end(kept, FATAL, keeps_place=True)
        await world.enqueue_all(world.new() for _ in range(5))
        undone = Place(job=kept.job.id, lease=kept.job.lease ^ 1)  # by a failover, before the job was claimed again
        never = [Place(job=world.id(), lease=1), Place(job=kept.job.id, lease=next_lease(kept.job.lease, 0)), undone]

        await world.store.release(node.id, never)
        assert len(await world.claim(node, room=MANY)) == 1
        for _ in range(2):  # the second time there is nothing left to release
            await world.store.release(node.id, [place(kept)])
        assert len(await world.claim(node, room=MANY)) == 1

    @obligation("release", 1)
    async def test_releasing_an_older_place_leaves_the_running_attempts_own(self, world: World) -> None:
        node = await world.node()
        await world.store.declare([task_gate(2)])
        old = await world.running(node)
        await world.end(old, Snoozed(delay=0 * SECOND), keeps_place=True)
        new = await world.claim_one(node)
        assert (new.job.id, new.job.claims) == (old.job.id, 2)
        await world.enqueue_all(world.new() for _ in range(5))
        assert await world.claim(node, room=MANY) == ()

        await world.store.release(node.id, [place(old), place(new)])

        assert len(await world.claim(node, room=MANY)) == 1

    @obligation("settle", 7)
    async def test_deleting_a_job_gives_up_the_place_it_kept(self, world: World) -> None:
        node = await world.node()
        await world.store.declare([task_gate(1)])
        claim = await world.running(node)
        await world.end(claim, FATAL, keeps_place=True)
        await world.enqueue()
        assert await world.claim(node) == ()

        await world.command(claim.job.id, DeleteJob())

        assert len(await world.claim(node)) == 1

    @obligation("mend", 1)
    async def test_mending_gives_up_the_places_that_dead_nodes_kept(self, world: World) -> None:
        node, other = await world.node(), await world.node()
        await world.store.declare([task_gate(3)])
        await world.enqueue_all(world.new() for _ in range(9))
        for delivery in await world.claim(node, room=3):
            await world.end(delivery.claim, FATAL, keeps_place=True)
        assert await world.store.mend(MANY) == 0
        assert await world.claim(other) == ()
        await world.kill(node)

        assert await world.store.mend(2) == 2
        assert len(await world.claim(other, room=MANY)) == 2
        assert await world.store.mend(MANY) == 1
        assert len(await world.claim(other, room=MANY)) == 1
        assert await world.store.mend(MANY) == 0

    @obligation("mend", 1)
    async def test_mending_leaves_the_places_of_running_attempts(self, world: World) -> None:
        node, orphaned = await world.node(), await world.node()
        await world.store.declare([task_gate(2)])
        await world.running(node)
        await world.running(orphaned)
        await world.kill(orphaned)
        await world.enqueue()

        # The attempt of a dead node has not ended before its job is settled as lost.
        assert await world.store.mend(MANY) == 0
        assert await world.claim(node) == ()


def place(claim: Claim) -> Place:
    return Place(job=claim.job.id, lease=claim.job.lease)
