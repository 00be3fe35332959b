# ruff: noqa: S101 -- a suite of tests is built on assert
"""Nodes: how they begin, say that they are alive, take orders, and end."""

import asyncio

import pytest
from msgspec.structs import replace

from mainspring.core.command import CancelJob
from mainspring.core.job import NodeId
from mainspring.core.outcome import Succeeded
from mainspring.errors import NodeGone
from mainspring.stores.records import (
    DumpStacks,
    Held,
    NodeOrder,
    NodeRecord,
    NodeView,
    Process,
    Quiet,
    Resume,
    SetConcurrency,
    StopNode,
)
from mainspring.testing.contract.obligation import obligation
from mainspring.testing.contract.verbs.contract import Contract
from mainspring.testing.contract.world import FATAL, HOUR, RESIZE, SEND, Member, World

ORDERS: list[NodeOrder] = [Quiet(), Resume(), StopNode(), DumpStacks(), SetConcurrency(7)]


class NodesContract(Contract):
    """The roles Nodes, and of Operator the orders. Needs the roles Jobs and Inspector too."""

    @obligation("join")
    async def test_a_node_that_joins_can_be_seen_with_all_that_it_said(self, world: World) -> None:
        record = NodeRecord(
            id=NodeId("böse/node"),
            process=Process(host="host-1", pid=2**31, started="12:00"),
            tasks=frozenset({SEND, RESIZE}),
            queues=("mail", "photos"),
            concurrency=20,
            version="1.2.3",
            doorbell="/run/bell",
        )
        plain = world.record(tasks=())
        term, other = await world.store.join(record), await world.store.join(plain)

        first, second = await world.store.nodes()
        assert first == seen(world, record, term, first.counter)
        assert second == seen(world, plain, other, second.counter)

    @obligation("join", 1)
    async def test_an_id_that_was_ever_used_cannot_join(self, world: World) -> None:
        alive, dead = world.record(), world.record()
        await world.store.join(alive)
        await world.kill(Member(dead.id, await world.store.join(dead)))
        before = await world.store.nodes()

        for record in (alive, dead, replace(dead, process=Process(host="other", pid=1, started="now"))):
            with pytest.raises(NodeGone):
                await world.store.join(record)

        assert await world.store.nodes() == before

    @obligation("renew", 1)
    async def test_each_renewal_adds_one_to_the_counter(self, world: World) -> None:
        node, other = await world.node(), await world.node()
        joined = world.now
        first, second = await world.store.nodes()
        for expected in (1, 2, 3):
            world.clock.advance("5s")
            pulse = await world.store.renew(node.id, node.term)
            counters = {view.node.id: (view.counter, view.renewed_at) for view in pulse.nodes}
            assert counters == {
                node.id: (first.counter + expected, world.now),
                other.id: (second.counter, joined),
            }

    @obligation("renew", 2)
    async def test_a_renewal_under_a_term_that_does_not_live_writes_nothing(self, world: World) -> None:
        alive, dead = await world.node(), await world.node()
        await world.kill(dead)
        before = await world.store.nodes()
        world.clock.advance("1s")

        for node in (dead, Member(alive.id, alive.term + 1), Member(NodeId("nobody"), 1)):
            with pytest.raises(NodeGone):
                await world.store.renew(node.id, node.term)

        assert await world.store.nodes() == before

    @obligation("renew", 3)
    async def test_a_renewal_tells_exactly_the_leases_held(self, world: World) -> None:
        node, other = await world.node(), await world.node()
        await world.enqueue_all(world.new() for _ in range(4))
        mine = [one.claim for one in await world.claim(node, room=3)]
        await world.claim(other)
        await world.end(mine[0], Succeeded())
        await world.end(mine[1], FATAL, keeps_place=True)
        world.clock.advance("1s")
        await world.command(mine[2].job.id, CancelJob())

        pulse = await world.store.renew(node.id, node.term)

        assert pulse.held == (Held(job=mine[2].job.id, lease=mine[2].job.lease, cancel_requested_at=world.now),)

    @obligation("renew", 3)
    async def test_a_lease_is_reported_although_the_clock_was_set_back(self, world: World) -> None:
        node = await world.node()
        before = await world.running(node)
        await world.store.renew(node.id, node.term)
        world.clock.jump(-HOUR)
        after = await world.running(node)

        for _ in range(2):
            pulse = await world.store.renew(node.id, node.term)
            assert {(one.job, one.lease) for one in pulse.held} == {
                (claim.job.id, claim.job.lease) for claim in (before, after)
            }

    @obligation("renew", 4)
    @pytest.mark.parametrize("how", ["in time", "after a gap", "whole"])
    async def test_a_claim_whose_answer_did_not_come_here_is_reported(self, world: World, how: str) -> None:
        """As one that is committed after some renewals: this handle has not seen its answer."""
        node = await world.node()
        for _ in range(3):
            await world.store.renew(node.id, node.term)
            world.clock.advance("1s")
        await world.enqueue()
        (lost,) = (await world.ask(node, store=await world.open())).deliveries

        pulse = await world.store.renew(node.id, node.term, whole=how == "whole")
        seconds = 30 if how == "in time" else 1
        for _ in range(seconds):
            world.clock.advance("1s")
            pulse = await world.store.renew(node.id, node.term, whole=how == "whole")
        if how == "after a gap":
            world.clock.advance("4s")
            pulse = await world.store.renew(node.id, node.term)

        assert pulse.held == (Held(job=lost.claim.job.id, lease=lost.claim.job.lease),)

    @obligation("renew", 3)
    async def test_a_renewal_tells_the_nodes_that_are_not_dead(self, world: World) -> None:
        nodes = [await world.node() for _ in range(3)]
        await world.kill(nodes[1])
        await world.enqueue()
        await world.claim_one(nodes[2])

        pulse = await world.store.renew(nodes[0].id, nodes[0].term)

        told = {view.node.id: (view.term, view.alive) for view in pulse.nodes}
        assert told == {nodes[0].id: (nodes[0].term, True), nodes[2].id: (nodes[2].term, True)}

    @obligation("renew", 3)
    @obligation("order")
    @obligation("orders")
    @obligation("answer")
    async def test_orders_are_open_until_they_are_answered(self, world: World) -> None:
        node, other = await world.node(), await world.node()
        given = []
        for order in ORDERS:
            world.clock.advance("1s")
            given.append(await world.store.order(node.id, order))
            assert (given[-1].node, given[-1].order, given[-1].given_at) == (node.id, order, world.now)
        assert (given[0].done_at, given[0].answer) == (None, None)
        assert len({order.id for order in given}) == len(ORDERS)

        assert (await world.store.renew(node.id, node.term)).orders == tuple(given)
        assert (await world.store.renew(other.id, other.term)).orders == ()
        world.clock.advance("1s")
        await world.store.answer(node.id, node.term, given[1].id, "as you wish")
        assert (await world.store.renew(node.id, node.term)).orders == (given[0], *given[2:])
        done = replace(given[1], done_at=world.now, answer="as you wish")
        assert await world.store.orders(node.id) == (given[0], done, *given[2:])
        assert await world.store.orders(other.id) == ()

    @obligation("answer", 1)
    async def test_a_node_that_is_not_alive_answers_nothing(self, world: World) -> None:
        node = await world.node()
        order = await world.store.order(node.id, Quiet())
        with pytest.raises(NodeGone):
            await world.store.answer(node.id, node.term + 1, order.id, "no")
        await world.kill(node)
        with pytest.raises(NodeGone):
            await world.store.answer(node.id, node.term, order.id, "no")

        assert await world.store.orders(node.id) == (order,)

    @obligation("order", 1)
    async def test_a_node_that_is_not_alive_takes_no_orders(self, world: World) -> None:
        node = await world.node()
        await world.kill(node)
        for id_ in (node.id, NodeId("nobody")):
            with pytest.raises(NodeGone):
                await world.store.order(id_, Quiet())

        assert await world.store.orders(node.id) == ()

    @obligation("update")
    async def test_an_update_replaces_what_a_node_says_about_itself(self, world: World) -> None:
        record = world.record()
        term = await world.store.join(record)
        (before,) = await world.store.nodes()
        said = replace(record, tasks=frozenset({SEND}), queues=("mail",), concurrency=3)

        await world.store.update(record.id, term, said)

        assert await world.store.nodes() == (replace(before, node=said),)

    @obligation("renew", 3)
    @obligation("update")
    async def test_a_renewal_reports_the_current_record_of_another_node(self, world: World) -> None:
        node, record = await world.node(), world.record()
        term = await world.store.join(record)
        for concurrency in (0, 3, 3, 5):
            said = replace(record, concurrency=concurrency)
            if concurrency:
                await (await world.open()).update(record.id, term, said)

            for _ in range(2):
                pulse = await world.store.renew(node.id, node.term)
                assert [view.node for view in pulse.nodes if view.node.id == record.id] == [said]

    @obligation("update", 1)
    async def test_a_node_that_is_not_alive_cannot_be_updated(self, world: World) -> None:
        record = world.record()
        term = await world.store.join(record)
        said = replace(record, concurrency=3)
        with pytest.raises(NodeGone):
            await world.store.update(record.id, term + 1, said)
        await world.kill(Member(record.id, term))
        before = await world.store.nodes()
        with pytest.raises(NodeGone):
            await world.store.update(record.id, term, said)

        assert await world.store.nodes() == before

    @obligation("declare_dead", 1)
    async def test_exactly_one_caller_ends_a_node(self, world: World) -> None:
        handles = [world.store, await world.open(), await world.open()]
        node = await world.node()

        told = await asyncio.gather(*(handle.declare_dead(node.id, node.term) for handle in handles * 3))

        assert sorted(told) == [False] * 8 + [True]
        assert [view.alive for view in await world.store.nodes()] == [False]

    @obligation("declare_dead", 1)
    async def test_a_node_does_not_end_under_a_term_that_it_does_not_have(self, world: World) -> None:
        node = await world.node()

        assert not await world.store.declare_dead(node.id, node.term + 1)
        assert not await world.store.declare_dead(NodeId("nobody"), 1)
        await world.store.renew(node.id, node.term)

    @obligation("declare_dead", 2)
    async def test_a_node_that_has_renewed_since_it_was_seen_does_not_end(self, world: World) -> None:
        node = await world.node()
        (seen_before,) = (await world.store.renew(node.id, node.term)).nodes
        (seen_after,) = (await world.store.renew(node.id, node.term)).nodes

        assert not await world.store.declare_dead(node.id, node.term, seen_before.counter)
        assert await world.store.declare_dead(node.id, node.term, seen_after.counter)
        assert not await world.store.declare_dead(node.id, node.term, seen_after.counter)

    @obligation("nodes")
    async def test_nodes_are_listed_by_the_time_they_joined_dead_ones_too(self, world: World) -> None:
        names = ["zoe", "adam", "mia"]
        members = []
        for name in names:
            members.append(await world.node(name))
            world.clock.advance("1s")
        await world.kill(members[1])
        await world.enqueue_all(world.new() for _ in range(3))
        await world.claim(members[2], room=2)

        views = await world.store.nodes()

        assert [(view.node.id, view.alive, view.running) for view in views] == [
            ("zoe", True, 0),
            ("adam", False, 0),
            ("mia", True, 2),
        ]


def seen(world: World, record: NodeRecord, term: int, counter: int) -> NodeView:
    """A node that has joined just now. Where its counter begins is the store's own affair."""
    return NodeView(node=record, term=term, counter=counter, alive=True, joined_at=world.now, renewed_at=world.now)
