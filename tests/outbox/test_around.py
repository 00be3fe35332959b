"""Outboxes and what is around them: plugins, orders for a node, and declarations that come late."""

import asyncio

import pytest

from mainspring import Mainspring, Message, Plugin, Retry
from mainspring.errors import JobFailed
from mainspring.plugins.capability import BackgroundJobs, Capability, EnqueueTasks
from mainspring.runtime.node import Node
from tests.outbox.conftest import all_done, outboxes, stands, until


@pytest.mark.parametrize(
    ("grant", "allowed"),
    [
        ([BackgroundJobs()], False),
        ([BackgroundJobs(), EnqueueTasks(("mail",))], False),
        ([BackgroundJobs(), EnqueueTasks(("",))], True),
        ([BackgroundJobs(), EnqueueTasks()], True),
    ],
)
async def test_a_plugin_publishes_if_it_may_have_the_program_do_something(
    memory_app: Mainspring, grant: list[Capability], *, allowed: bool
) -> None:
    app = memory_app
    orders = app.outbox("orders", partitions=1)
    plugin = Plugin("shop", "1.0", requires=[BackgroundJobs()])

    @plugin.task(retry=Retry.none())
    async def sell() -> None:
        await orders.publish(None, 1)

    app.install(plugin, grant=grant)
    async with app, app.node():
        job = await sell.enqueue()
        if allowed:
            await job.result(timeout="10s")
        else:
            with pytest.raises(JobFailed, match="EnqueueTasks"):
                await job.result(timeout="10s")
        assert (await stands(orders)).last == allowed


async def test_a_node_that_is_told_to_be_quiet_begins_nothing_new(app: Mainspring) -> None:
    orders = app.outbox("orders", partitions=1)
    done: list[int] = []

    @orders.handler(size=1)
    async def deliver(message: Message[int]) -> None:
        await asyncio.sleep(1)
        done.append(message.payload)

    async with app, app.node() as node:
        await orders.publish_many(None, range(5))
        await asyncio.sleep(0.5)
        node.quiet()
        await asyncio.sleep(20)
        assert done == [0]
        assert (await stands(orders)).stand.holder is None
        node.resume()
        await all_done(orders)

    assert done == list(range(5))


async def test_a_node_that_cannot_renew_stops_what_it_is_at_before_others_take_it(app: Mainspring) -> None:
    orders = app.outbox("orders", partitions=1)
    ends: list[str] = []

    @orders.handler(timeout="10m")
    async def deliver(_: Message[int]) -> None:
        try:
            await asyncio.sleep(100 if not ends else 0)
        except asyncio.CancelledError:
            ends.append("cancelled")
            raise
        ends.append("done")

    async with app, app.node() as node:
        await orders.publish(None, 1)
        await asyncio.sleep(1)
        before = await stands(orders)
        _fall_silent(node)
        await asyncio.sleep(0.01)  # and no longer: with its next renewal it would go on
        assert ends == ["cancelled"]
        assert await stands(orders) == before  # nothing is written: somebody else may be at it
        node._parts.claimer.silent = False
        node._pause_parts()
        await all_done(orders)

    assert ends == ["cancelled", "done"]


def _fall_silent(node: Node) -> None:
    """Stores in this process share the fate of their nodes, and never make one fall silent by themselves."""
    node._fall_silent()


async def test_an_outbox_that_contradicts_the_store_keeps_no_other_from_being_delivered(
    app: Mainspring, caplog: pytest.LogCaptureFixture
) -> None:
    came: list[int] = []
    orders = app.outbox("orders", partitions=1)

    @orders.handler
    async def deliver(message: Message[int]) -> None:
        came.append(message.payload)

    async with app, app.node():
        await outboxes(app).register_outbox("late", 4)
        app.outbox("late", partitions=8)
        await asyncio.sleep(10)
        await orders.publish(None, 1)
        await until(lambda: came == [1])

    assert "outbox late cannot be delivered" in caplog.text
