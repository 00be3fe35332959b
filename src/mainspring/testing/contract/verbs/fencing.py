# ruff: noqa: S101 -- a suite of tests is built on assert
"""A node that has lost a job cannot write to it, however it was lost.

Each way to lose a lease is a short story with the same end: a node that believes it holds a job which it does not hold.
Then every verb by which a node writes is tried.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import pytest
from msgspec.structs import replace

from mainspring.core.command import RetryJob
from mainspring.core.job import Claim
from mainspring.core.outcome import Lost, Outcome, Snoozed, Succeeded
from mainspring.errors import NodeGone
from mainspring.stores.records import LogLine, Note, Progress, Verdict
from mainspring.testing.contract.obligation import GENERAL, obligation
from mainspring.testing.contract.verbs.contract import Contract
from mainspring.testing.contract.world import FATAL, RAISED, SECOND, Member, World

NOW_AGAIN = Snoozed(delay=0 * SECOND)


@dataclass(frozen=True, slots=True)
class Fenced:
    """Someone who holds a job no longer, and believes that it does."""

    claim: Claim
    node: Member
    verdict: Verdict = Verdict.REFUSED
    """What it is told when it settles: REPEATED if it has ended this very lease before."""
    alive: bool = True


async def snoozed_and_claimed_by_another_node(world: World) -> Fenced:
    node, other = await world.node(), await world.node()
    claim = await world.running(node)
    await world.end(claim, NOW_AGAIN)
    await world.claim_one(other)
    return Fenced(claim, node, Verdict.REPEATED)


async def snoozed_claimed_and_ended_by_another_node(world: World) -> Fenced:
    node, other = await world.node(), await world.node()
    claim = await world.running(node)
    await world.end(claim, NOW_AGAIN)
    await world.end(await world.claim_one(other), FATAL)
    return Fenced(claim, node)


async def snoozed_and_claimed_again_by_the_same_node(world: World) -> Fenced:
    """The attempt has the same number again; only the lease tells them apart."""
    node = await world.node()
    claim = await world.running(node)
    await world.end(claim, NOW_AGAIN)
    again = await world.claim_one(node)
    assert again.job.attempt == claim.job.attempt
    return Fenced(claim, node, Verdict.REPEATED)


async def retried_by_an_operator_and_claimed_by_another_node(world: World) -> Fenced:
    node, other = await world.node(), await world.node()
    claim = await world.running(node)
    await world.end(claim, FATAL)
    assert await world.command(claim.job.id, RetryJob()) is Verdict.ACCEPTED
    await world.claim_one(other)
    return Fenced(claim, node, Verdict.REPEATED)


async def retried_by_an_operator_and_ended_by_another_node(world: World) -> Fenced:
    node, other = await world.node(), await world.node()
    claim = await world.running(node)
    await world.end(claim, FATAL)
    assert await world.command(claim.job.id, RetryJob()) is Verdict.ACCEPTED
    await world.end(await world.claim_one(other), Succeeded(b"theirs"))
    return Fenced(claim, node)


async def declared_dead(world: World) -> Fenced:
    node = await world.node()
    claim = await world.running(node)
    await world.kill(node)
    return Fenced(claim, node, alive=False)


async def left_by_itself(world: World) -> Fenced:
    """A node leaves as another would declare it dead, through a handle of its own."""
    node = await world.node()
    claim = await world.running(node)
    assert await (await world.open()).declare_dead(node.id, node.term)
    return Fenced(claim, node, alive=False)


async def reaped(world: World) -> Fenced:
    reaper, fenced = await world.node(), await declared_dead(world)
    assert (await world.settle(fenced.claim, Lost(), by=reaper.id)).verdict is Verdict.ACCEPTED
    return fenced


async def reaped_and_claimed_by_another_node(world: World) -> Fenced:
    reaper, fenced = await world.node(), await declared_dead(world)
    assert (await world.settle(fenced.claim, Lost(), by=reaper.id)).verdict is Verdict.ACCEPTED
    await world.claim_one(reaper)
    return fenced


async def reaped_and_ended_by_another_node(world: World) -> Fenced:
    reaper, fenced = await world.node(), await declared_dead(world)
    assert (await world.settle(fenced.claim, Lost(), by=reaper.id)).verdict is Verdict.ACCEPTED
    await world.end(await world.claim_one(reaper), Succeeded(b"theirs"))
    return fenced


async def held_by_another_node(world: World) -> Fenced:
    """The right job and the right lease, in other hands."""
    holder, node = await world.node(), await world.node()
    claim = await world.running(holder)
    return Fenced(replace(claim, node=node.id), node)


async def undone_by_a_failover_and_claimed_again_by_the_same_node(world: World) -> Fenced:
    """The right job, node, attempt, revision and count of claims; only the number of the claim is another."""
    node = await world.node()
    return Fenced(undone(await world.running(node)), node)


async def undone_by_a_failover_claimed_again_and_ended_by_the_same_node(world: World) -> Fenced:
    node = await world.node()
    claim = await world.running(node)
    await world.end(claim, FATAL)
    return Fenced(undone(claim), node)


async def undone_by_a_failover_claimed_again_snoozed_and_claimed_by_the_same_node(world: World) -> Fenced:
    node = await world.node()
    claim = await world.running(node)
    await world.end(claim, NOW_AGAIN)
    await world.claim_one(node)
    return Fenced(undone(claim), node)


def undone(claim: Claim) -> Claim:
    """Make the claim that a store gave for this job before it lost it and gave the present one."""
    return replace(claim, job=replace(claim.job, lease=claim.job.lease ^ 1))


WAYS: list[Callable[[World], Awaitable[Fenced]]] = [
    snoozed_and_claimed_by_another_node,
    snoozed_claimed_and_ended_by_another_node,
    snoozed_and_claimed_again_by_the_same_node,
    retried_by_an_operator_and_claimed_by_another_node,
    retried_by_an_operator_and_ended_by_another_node,
    declared_dead,
    left_by_itself,
    reaped,
    reaped_and_claimed_by_another_node,
    reaped_and_ended_by_another_node,
    held_by_another_node,
    undone_by_a_failover_and_claimed_again_by_the_same_node,
    undone_by_a_failover_claimed_again_and_ended_by_the_same_node,
    undone_by_a_failover_claimed_again_snoozed_and_claimed_by_the_same_node,
]
every_way = pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)


class FencingContract(Contract):
    """What someone writes who has lost the lease. Needs the roles Jobs, Nodes and Inspector."""

    @obligation("settle", 1)
    @obligation("settle", 2)
    @obligation("settle", 3)
    @every_way
    @pytest.mark.parametrize("outcome", [Succeeded(b"mine"), RAISED, NOW_AGAIN], ids=lambda it: type(it).__name__)
    @pytest.mark.parametrize("keeps_place", [False, True], ids=["gives its place up", "keeps its place"])
    async def test_nothing_is_settled_under_a_lease_that_was_lost(
        self, world: World, way: Callable[[World], Awaitable[Fenced]], outcome: Outcome, *, keeps_place: bool
    ) -> None:
        fenced = await way(world)
        before = await everything(world, fenced)
        world.clock.advance("1s")

        settled = await world.settle(fenced.claim, outcome, keeps_place=keeps_place)

        assert (settled.verdict, settled.job) == (fenced.verdict, None)
        assert await everything(world, fenced) == before

    @obligation("note", 1)
    @every_way
    async def test_nothing_is_noted_under_a_lease_that_was_lost(
        self, world: World, way: Callable[[World], Awaitable[Fenced]]
    ) -> None:
        fenced = await way(world)
        before = await everything(world, fenced)
        note = Note(
            job=fenced.claim.job.id,
            lease=fenced.claim.job.lease,
            node=fenced.node.id,
            saved=b"mine",
            progress=Progress(99.0, "nearly"),
            lines=(LogLine(at=world.now, level="INFO", message="mine"),),
        )

        assert await world.store.note([note]) == (False,)
        assert await everything(world, fenced) == before

    @obligation("renew", 2)
    @obligation("renew", 3)
    @every_way
    async def test_a_renewal_does_not_bring_a_lost_lease_back(
        self, world: World, way: Callable[[World], Awaitable[Fenced]]
    ) -> None:
        fenced = await way(world)
        before = await everything(world, fenced)
        if not fenced.alive:
            with pytest.raises(NodeGone):
                await world.store.renew(fenced.node.id, fenced.node.term)
            assert await everything(world, fenced) == before
            return
        pulse = await world.store.renew(fenced.node.id, fenced.node.term)
        lost = (fenced.claim.job.id, fenced.claim.job.lease)
        assert lost not in [(held.job, held.lease) for held in pulse.held]

    @obligation("claim", 8)
    @every_way
    async def test_a_dead_node_claims_nothing_and_a_live_one_gets_another_lease(
        self, world: World, way: Callable[[World], Awaitable[Fenced]]
    ) -> None:
        fenced = await way(world)
        fresh = await world.enqueue()
        if not fenced.alive:
            with pytest.raises(NodeGone):
                await world.claim(fenced.node, room=9)
            assert (await world.job(fresh)).lease == 0
            return
        for delivery in await world.claim(fenced.node, room=9):
            assert (delivery.claim.job.id, delivery.claim.job.lease) != (fenced.claim.job.id, fenced.claim.job.lease)

    @obligation("settle", 2)
    async def test_the_end_of_a_dead_nodes_attempt_is_written_by_another(self, world: World) -> None:
        reaper, fenced = await world.node(), await declared_dead(world)
        settlement = world.settlement(fenced.claim, Lost(), by=reaper.id)
        other = await world.open()

        assert [one.verdict for one in await other.settle([settlement])] == [Verdict.ACCEPTED]
        assert await world.job(fenced.claim.job.id) == settlement.change.after
        (row,) = await world.store.attempts(fenced.claim.job.id)
        assert row.node == fenced.node.id

    @obligation("settle", 2)
    async def test_the_end_of_a_living_nodes_attempt_is_not_written_by_another(self, world: World) -> None:
        node, other = await world.node(), await world.node()
        await world.enqueue()
        (delivery,) = await world.claim(node)

        for outcome in (Succeeded(None), Lost()):
            assert (await world.settle(delivery.claim, outcome, by=other.id)).verdict is Verdict.REFUSED
        await world.end(delivery.claim, Succeeded(None))

    @obligation("settle", 2)
    @pytest.mark.parametrize("outcome", [Lost(), Succeeded(b"mine")], ids=lambda it: type(it).__name__)
    async def test_the_attempt_of_a_live_node_is_not_ended_by_another(self, world: World, outcome: Outcome) -> None:
        holder, other = await world.node(), await world.node()
        claim = await world.running(holder)
        before = await world.view(claim.job.id)

        assert (await world.settle(claim, outcome, by=other.id)).verdict is Verdict.REFUSED
        assert await world.view(claim.job.id) == before
        await world.end(claim, Succeeded())

    @obligation("settle", 2)
    @obligation(GENERAL, 1)
    async def test_two_reapers_settle_an_orphan_once(self, world: World) -> None:
        first, second, fenced = await world.node(), await world.node(), await declared_dead(world)
        settlements = [world.settlement(fenced.claim, Lost(), by=reaper.id) for reaper in (first, second)]

        verdicts = [one.verdict for one in await world.store.settle(settlements)]

        assert verdicts == [Verdict.ACCEPTED, Verdict.REFUSED]
        assert (await world.job(fenced.claim.job.id)).losses == 1


async def everything(world: World, fenced: Fenced) -> object:
    """Whatever a write could have changed."""
    job = fenced.claim.job.id
    nodes = [(view.node.id, view.counter, view.running) for view in await world.store.nodes()]
    return await world.view(job), await world.store.attempts(job), await world.store.log_lines(job), nodes
