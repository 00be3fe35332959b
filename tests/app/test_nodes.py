"""An app's own node: it opens the store, runs the app's tasks, and is told what the app was told."""

import asyncio
from dataclasses import fields
from datetime import timedelta
from typing import get_type_hints

import pytest

from mainspring import Context, Limit, Mainspring
from mainspring.client.nodes import NodeOptions, node_settings
from mainspring.core.job import State
from mainspring.errors import DeclarationError, StoreClosed
from mainspring.runtime.definition import QueueSettings
from mainspring.runtime.events import StateChange
from mainspring.runtime.middleware import Next
from mainspring.settings import NodeSettings
from mainspring.testing import VirtualTime


async def test_a_node_runs_what_is_enqueued(app: Mainspring, virtual_time: VirtualTime) -> None:
    @app.task
    async def double(ctx: Context, number: int) -> int:
        await asyncio.sleep(3)
        return number * 2 + ctx.attempt

    async with app.node(concurrency=2, queues=["default"]):
        job = await double.enqueue(7)
        assert await job.result() == 15
        assert 3 <= virtual_time.elapsed <= 4
    with pytest.raises(StoreClosed):
        _ = app.store


async def test_a_job_that_a_handler_enqueues_is_its_child(app: Mainspring) -> None:
    @app.task
    async def leaf() -> int:
        return 1

    @app.task
    async def root() -> int:
        one, two = await leaf.enqueue(), leaf.enqueue_sync()
        return await one.result() + await two.result()

    async with app.node():
        job = await root.enqueue()
        assert await job.result() == 2
        assert len((await app.jobs(parent=job.id)).jobs) == 2


async def test_middleware_and_listeners_are_told_in_the_order_of_their_registration(app: Mainspring) -> None:
    told: list[str] = []

    @app.middleware
    async def outer(ctx: Context, call_next: Next) -> object:
        told.append(f"outer of {ctx.task}")
        return await call_next()

    @app.middleware
    async def inner(_: Context, call_next: Next) -> object:
        told.append("inner")
        return await call_next()

    @app.listener
    def listen(change: StateChange) -> None:
        told.append(f"{change.source} to {change.target}")

    @app.task(name="work")
    async def work() -> None:
        told.append("work")

    async with app.node():
        await (await work.enqueue()).result()

    assert [line for line in told if " to " not in line] == ["outer of work", "inner", "work"]
    assert told[-1] == f"{State.RUNNING} to {State.SUCCEEDED}"


async def test_a_node_works_its_queues_as_they_were_declared(app: Mainspring, virtual_time: VirtualTime) -> None:
    app.queue("slow", concurrency=1)

    @app.task(queue="slow")
    async def work() -> None:
        await asyncio.sleep(10)

    async with app.node(concurrency=10):
        jobs = await work.enqueue_many([work.call() for _ in range(3)])
        await asyncio.gather(*(job.result() for job in jobs))

        assert 30 <= virtual_time.elapsed <= 33


async def test_a_node_on_an_open_app_leaves_it_open(app: Mainspring) -> None:
    async with app:
        async with app.node():
            pass
        assert await app.store.get([]) == ()
        node = app.make_node(NodeSettings(concurrency=3))
        assert node.settings.concurrency == 3


def test_wrong_settings_are_refused_where_they_are_given() -> None:
    app = Mainspring("memory://")

    for name, value in (("concurrency", 0), ("lease", "soon"), ("queues", ["my queue"]), ("queues", []), ("lesae", 3)):
        with pytest.raises(DeclarationError):
            app.node(**{name: value})  # type: ignore[arg-type]  # what the test is about


def test_whatever_can_be_set_about_a_node_can_be_said_to_an_app() -> None:
    assert set(get_type_hints(NodeOptions)) == {field.name for field in fields(NodeSettings)}
    assert node_settings({"queues": "mail"}).queues == ("mail",)
    assert node_settings({}) == NodeSettings()


def test_what_a_queue_was_told_is_kept_for_nodes() -> None:
    app = Mainspring("memory://")

    app.queue("mail", concurrency=3, timeout="1m", limit=Limit(rate="10/s"))
    app.queue("plain")

    assert app._queues == {
        "mail": QueueSettings(concurrency=3, timeout=timedelta(minutes=1), limit=Limit(rate="10/s")),
        "plain": QueueSettings(),
    }
