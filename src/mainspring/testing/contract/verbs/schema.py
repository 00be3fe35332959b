# ruff: noqa: S101 -- a suite of tests is built on assert
"""A store as a thing that is opened and closed."""

import asyncio
from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any

import pytest

from mainspring.core.job import NodeId
from mainspring.errors import StoreClosed, StoreError
from mainspring.stores.port import Store
from mainspring.stores.records import ClaimRequest, JobFilter, Quiet
from mainspring.testing.contract.obligation import GENERAL, obligation
from mainspring.testing.contract.verbs.contract import Contract
from mainspring.testing.contract.world import HOUR, TASKS, World

NODE = NodeId("node")
VERBS: dict[str, Callable[[Store, World], Coroutine[Any, Any, object]]] = {
    "enqueue": lambda store, world: store.enqueue([world.new()]),
    "claim": lambda store, _: store.claim(ClaimRequest(node=NODE, term=1, tasks=TASKS)),
    "settle": lambda store, _: store.settle([]),
    "note": lambda store, _: store.note([]),
    "release": lambda store, _: store.release(NODE, []),
    "declare": lambda store, _: store.declare([]),
    "mend": lambda store, _: store.mend(1),
    "prune": lambda store, _: store.prune(1),
    "join": lambda store, world: store.join(world.record()),
    "renew": lambda store, _: store.renew(NODE, 1),
    "update": lambda store, world: store.update(NODE, 1, world.record()),
    "answer": lambda store, _: store.answer(NODE, 1, 1, ""),
    "declare_dead": lambda store, _: store.declare_dead(NODE, 1),
    "orphans": lambda store, _: store.orphans(1),
    "unknown_tasks": lambda store, _: store.unknown_tasks(HOUR),
    "acquire": lambda store, _: store.acquire("lock", "me", HOUR),
    "pause": lambda store, _: store.pause("mail"),
    "resume": lambda store, _: store.resume("mail"),
    "order": lambda store, _: store.order(NODE, Quiet()),
    "get": lambda store, world: store.get([world.id()]),
    "list_jobs": lambda store, _: store.list_jobs(JobFilter()),
    "attempts": lambda store, world: store.attempts(world.id()),
    "log_lines": lambda store, world: store.log_lines(world.id()),
    "queues": lambda store, _: store.queues(),
    "nodes": lambda store, _: store.nodes(),
    "orders": lambda store, _: store.orders(NODE),
}


class SchemaContract(Contract):
    """The role Schema, as far as it holds for a store that does not outlive its process too."""

    @obligation("now")
    @obligation(GENERAL, 4)
    async def test_the_stores_now_is_its_clocks(self, world: World) -> None:
        world.clock.advance("1h")
        world.clock.jump(timedelta(microseconds=1))

        assert world.store.now() == world.clock.now()
        assert world.store.now().utcoffset() == timedelta(0)

    @obligation("shares_fate")
    async def test_a_store_says_whether_its_outage_hits_all_nodes_alike(self, world: World) -> None:
        assert world.store.shares_fate in {True, False}

    @obligation("schema")
    async def test_an_open_store_has_the_tables_that_it_wants(self, world: World) -> None:
        schema = await world.store.schema()

        assert schema.found == schema.wanted > 0

    @obligation("close")
    @pytest.mark.parametrize("verb", VERBS)
    async def test_a_closed_store_does_nothing_more(self, world: World, verb: str) -> None:
        store = await world.open()
        await store.close()
        world.forget(store)

        with pytest.raises(StoreClosed):
            await VERBS[verb](store, world)

    @obligation("close")
    async def test_what_was_called_before_a_close_is_done_or_raises(self, world: World) -> None:
        store = await world.open()
        calls = [asyncio.ensure_future(store.enqueue([world.new()])) for _ in range(20)]
        await asyncio.sleep(0)
        await store.close()
        world.forget(store)

        for answer in await asyncio.gather(*calls, return_exceptions=True):
            assert isinstance(answer, tuple | StoreError)
