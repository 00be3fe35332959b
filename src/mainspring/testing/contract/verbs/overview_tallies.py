# ruff: noqa: S101 -- a suite of tests is built on assert
"""Tallies of spans of time, and what nodes say of themselves."""

import asyncio
from datetime import timedelta

import pytest
from msgspec.structs import replace

from mainspring.core.job import NodeId
from mainspring.errors import NodeGone
from mainspring.stores.overview import NodeReport, Tally
from mainspring.testing.contract.obligation import obligation
from mainspring.testing.contract.overviews import on
from mainspring.testing.contract.verbs.contract import Contract
from mainspring.testing.contract.world import DAY, HOUR, SECOND, Member, World

MINUTE = timedelta(minutes=1)


class TalliesContract(Contract):
    """`write_tallies` and `tallies`."""

    @obligation("tallies")
    async def test_tallies_of_a_span_are_read_by_time(self, world: World) -> None:
        made = [tally(world, minutes, by) for minutes in (3, 1, 2) for by in ("b", "a")]
        await on(world).write_tallies(made)
        await on(world).write_tallies([replace(tally(world, 1), span=10 * MINUTE, body=b"ten")])

        ordered = sorted(made, key=lambda one: (one.at, one.by))
        assert await read(world, 0) == ordered
        assert await read(world, 2) == ordered[2:]
        assert await read(world, 9) == []
        start = world.now
        assert list(await on(world).tallies(MINUTE, start, start + 3 * MINUTE)) == ordered[:4]
        assert await on(world).tallies(MINUTE, start, start + MINUTE) == ()
        assert [one.body for one in await on(world).tallies(10 * MINUTE, world.now)] == [b"ten"]
        assert await on(world).tallies(HOUR, world.now) == ()

    @obligation("write_tallies", 1)
    async def test_one_that_is_written_again_takes_the_place_of_the_first(self, world: World) -> None:
        await on(world).write_tallies([tally(world, 1), tally(world, 1, "other"), tally(world, 2)])
        again = replace(tally(world, 1), body=b"{}\0\xff")
        for _ in range(2):
            await on(world).write_tallies([again])

        assert await read(world, 0) == [again, tally(world, 1, "other"), tally(world, 2)]

    @obligation("write_tallies", 1)
    async def test_of_two_in_one_call_the_last_stays(self, world: World) -> None:
        last = replace(tally(world, 1), body=b"last")
        await on(world).write_tallies([tally(world, 1), last])

        assert await read(world, 0) == [last]

    @obligation("write_tallies")
    async def test_old_ones_of_one_span_are_forgotten_with_a_write(self, world: World) -> None:
        whole = replace(tally(world, 1, ""), span=10 * MINUTE)
        await on(world).write_tallies([*(tally(world, minutes) for minutes in range(6)), whole])
        begin = world.now + 3 * MINUTE
        await on(world).write_tallies([], drop=(MINUTE, begin))
        assert await read(world, 0) == [tally(world, minutes) for minutes in (3, 4, 5)]
        await on(world).write_tallies([tally(world, 1), tally(world, 9)], drop=(MINUTE, begin + SECOND))

        assert await read(world, 0) == [tally(world, minutes) for minutes in (4, 5, 9)]
        assert await on(world).tallies(10 * MINUTE, world.now) == (whole,)
        await on(world).write_tallies([])

    @obligation("write_tallies", 1)
    async def test_many_may_write_at_once(self, world: World) -> None:
        stores = [world.store, await world.open(), await world.open()]
        some = [tally(world, minutes, by) for minutes in range(10) for by in ("a", "b")]
        await asyncio.gather(
            *(on(world, store).write_tallies(some[::step]) for store in stores for step in (1, -1) for _ in range(3))
        )

        assert await read(world, 0) == sorted(some, key=lambda one: (one.at, one.by))


class ReportsContract(Contract):
    """`report` and `reports`. Needs the roles Jobs and Nodes too."""

    @obligation("report")
    @obligation("reports")
    async def test_what_a_node_said_last_is_read(self, world: World) -> None:
        assert await on(world).reports() == {}
        first, second = await world.node("first"), await world.node("second")
        await said(world, first, b"one")
        world.clock.advance(SECOND)
        await said(world, first, b"two\0\xff")
        await said(world, second, b"three")
        await world.kill(second)

        assert await on(world).reports() == {
            NodeId("first"): NodeReport(node=first.id, at=world.now, body=b"two\0\xff"),
            NodeId("second"): NodeReport(node=second.id, at=world.now, body=b"three"),
        }

    @obligation("report", 1)
    async def test_who_is_not_alive_says_nothing(self, world: World) -> None:
        node = await world.node("node")
        await said(world, node, b"one")
        with pytest.raises(NodeGone):
            await said(world, Member(node.id, node.term + 1), b"two")
        with pytest.raises(NodeGone):
            await said(world, Member(NodeId("nobody"), node.term), b"two")
        await world.kill(node)
        with pytest.raises(NodeGone):
            await said(world, node, b"two")

        assert [one.body for one in (await on(world).reports()).values()] == [b"one"]

    @obligation("report", 2)
    async def test_a_node_that_is_pruned_takes_its_report_along(self, world: World) -> None:
        first, second = await world.node(), await world.node()
        for node in (first, second):
            await said(world, node, b"one")
        await world.kill(first)
        world.clock.advance(2 * DAY)
        while await world.store.prune(100):
            pass

        assert {node.node.id for node in await world.store.nodes()} == {second.id}
        assert set(await on(world).reports()) == {second.id}


def tally(world: World, minutes: int, by: str = "node") -> Tally:
    return Tally(at=world.now + minutes * MINUTE, span=MINUTE, by=by, body=f"{by} {minutes}".encode())


async def read(world: World, minutes: int) -> list[Tally]:
    """Read the tallies of a minute each that begin so many from now, or later."""
    return list(await on(world).tallies(MINUTE, world.now + minutes * MINUTE))


async def said(world: World, node: Member, body: bytes) -> None:
    await on(world).report(node.id, node.term, body)
