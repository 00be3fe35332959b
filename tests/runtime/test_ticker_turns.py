"""Turns of several tickers at a slot: usually one decides it, and the next one soon after if that one does not."""

import asyncio
from contextlib import AsyncExitStack
from datetime import timedelta

import pytest

from mainspring import Context, Every
from mainspring.core.job import NodeId
from mainspring.runtime.ticker import MAX_TURN_S
from mainspring.stores.records import NodeRecord, Process
from tests.runtime.conftest import Bench

NODES = 6
SLOTS = 20


async def count_moves(bench: Bench, *, nodes: int) -> tuple[int, list[timedelta]]:
    """Run a schedule of seconds on several nodes; return how many writes were tried, and how late its jobs began."""
    late: list[timedelta] = []

    @bench.app.schedule(Every("1s"))
    @bench.app.task(name="second")
    async def second(ctx: Context) -> None:
        assert ctx.lateness is not None
        late.append(ctx.lateness)

    for verb in ("due", "move"):  # a round trip: all who wake at the same instant read before the first has written
        bench.store.delay(verb, "5ms", times=100_000)
    async with AsyncExitStack() as stack:
        for _ in range(nodes):
            await stack.enter_async_context(bench.app.node())
        await asyncio.sleep(3)  # until each has seen the others
        late.clear()
        before = bench.store.calls.count("move")
        await bench.until(lambda: len(late) == SLOTS)
        return bench.store.calls.count("move") - before, late


async def test_of_several_nodes_one_writes_a_slot_and_the_others_find_it_done(bench: Bench) -> None:
    moves, late = await count_moves(bench, nodes=NODES)

    assert moves <= SLOTS + 2, "every node would have been SLOTS * NODES"
    assert max(late) < timedelta(milliseconds=40), "the first in turn does not wait"


async def test_a_node_alone_leaves_no_slot_to_others(bench: Bench) -> None:
    moves, late = await count_moves(bench, nodes=1)

    assert moves <= SLOTS + 1
    assert max(late) < timedelta(milliseconds=40)


@pytest.mark.parametrize("ticks", [True, False])
async def test_a_slot_whose_first_node_does_nothing_is_written_by_the_next(bench: Bench, *, ticks: bool) -> None:
    await bench.store.inner.open()
    elsewhere = Process(host="another machine", pid=1, started="then")
    names = [NodeId(f"hangs-{number}") for number in range(5)]
    terms = [
        await bench.store.inner.join(NodeRecord(id=name, process=elsewhere, tasks=frozenset(), ticks=ticks))
        for name in names
    ]

    async def keep_alive() -> None:
        while True:
            for name, term in zip(names, terms, strict=True):
                await bench.store.inner.renew(name, term)
            await asyncio.sleep(1)

    alive = asyncio.create_task(keep_alive())
    try:
        _, late = await count_moves(bench, nodes=1)
    finally:
        alive.cancel()

    longest = MAX_TURN_S if ticks else 0.0
    assert max(late) < timedelta(seconds=longest + 0.04)
