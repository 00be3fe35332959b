"""Every option has an effect (contracts 4.11, Q26): a table of stories, one for each option that there is.

An option without a story fails here, and so does a story without its option.
"""

import asyncio
import inspect
import os
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing
from dataclasses import fields
from datetime import timedelta
from uuid import UUID

import pytest

from mainspring import Breaker, Context, Every, Limit, Mainspring, Message, Retention, Retry, Unique
from mainspring.client.declaration import TaskOptions
from mainspring.client.nodes import NodeOptions
from mainspring.client.options import Using
from mainspring.client.redact import Redactor
from mainspring.core.job import Cause, State
from mainspring.errors import Conflict, DeclarationError, JobGone, PayloadError
from mainspring.settings import NodeSettings
from mainspring.stores.overview import Overview
from tests.jobs.conftest import HOUR, Boom, Changes, Ghost, MakeStore, ended, now, until

pytestmark = pytest.mark.usefixtures("virtual_time")

READY, RUNNING, SUCCEEDED, FAILED = State.READY, State.RUNNING, State.SUCCEEDED, State.FAILED

Story = Callable[[Mainspring, MakeStore], Awaitable[None]]
NODE: dict[str, Story] = {}
TASK: dict[str, Story] = {}
USING: dict[str, Story] = {}
QUEUE: dict[str, Story] = {}
QUEUE_OPTIONS = inspect.signature(Mainspring.queue).parameters.keys() - {"self", "name"}


def tells(stories: dict[str, Story], option: str) -> Callable[[Story], Story]:
    def keep(story: Story) -> Story:
        stories[option] = story
        return story

    return keep


async def _nothing() -> None:
    return


@pytest.mark.parametrize("option", sorted(NodeOptions.__annotations__))
async def test_Q26_every_setting_of_a_node_has_an_effect(app: Mainspring, make_store: MakeStore, option: str) -> None:
    await NODE[option](app, make_store)


@pytest.mark.parametrize("option", sorted(TaskOptions.__annotations__))
async def test_Q26_every_option_of_a_task_has_an_effect(app: Mainspring, make_store: MakeStore, option: str) -> None:
    await TASK[option](app, make_store)


@pytest.mark.parametrize("option", sorted(Using.__annotations__))
async def test_Q26_every_option_of_an_enqueue_has_an_effect(
    app: Mainspring, make_store: MakeStore, option: str
) -> None:
    await USING[option](app, make_store)


@pytest.mark.parametrize("option", sorted(QUEUE_OPTIONS))
async def test_Q26_every_option_of_a_queue_has_an_effect(app: Mainspring, make_store: MakeStore, option: str) -> None:
    await QUEUE[option](app, make_store)


def test_Q26_every_story_is_about_an_option_that_exists() -> None:
    assert NODE.keys() == NodeOptions.__annotations__.keys() == {field.name for field in fields(NodeSettings)}
    assert TASK.keys() == TaskOptions.__annotations__.keys()
    assert USING.keys() == Using.__annotations__.keys()
    assert QUEUE.keys() == QUEUE_OPTIONS


async def test_Q26_an_option_that_does_not_exist_is_refused(app: Mainspring) -> None:
    with pytest.raises(DeclarationError, match="did you mean 'priority'"):
        app.task(prioritee=1)(_nothing)  # type: ignore[call-overload]  # what a type checker would have said
    with pytest.raises(DeclarationError, match="did you mean 'delay'"):
        app.task(_nothing).using(dealy=1)  # type: ignore[call-arg]  # the same
    with pytest.raises(DeclarationError, match="did you mean 'concurrency'"):
        app.node(concurency=1)  # type: ignore[call-arg]  # the same


class Gauge:
    """Counts how many run at the same time."""

    def __init__(self) -> None:
        self.inside = 0
        self.most = 0
        self.starts: list[float] = []

    async def work(self, seconds: float) -> None:
        self.starts.append(now())
        self.inside += 1
        self.most = max(self.most, self.inside)
        try:
            await asyncio.sleep(seconds)
        finally:
            self.inside -= 1


@tells(NODE, "concurrency")
async def _(app: Mainspring, _: MakeStore) -> None:
    gauge = Gauge()

    @app.task
    async def work() -> None:
        await gauge.work(10)

    async with app.node(concurrency=2):
        jobs = [await work.enqueue() for _ in range(5)]
        await asyncio.gather(*[job.result("1m") for job in jobs])
    assert gauge.most == 2
    assert gauge.starts == pytest.approx([0, 0, 10, 10, 20], abs=0.2)


@tells(NODE, "queues")
async def _(app: Mainspring, _: MakeStore) -> None:
    @app.task
    async def work() -> None:
        return

    async with app.node(queues=["mail", "photos"]):
        mail, photo = await work.using(queue="mail").enqueue(), await work.using(queue="photos").enqueue()
        other = await work.enqueue()
        await until(5)
        assert [await job.state() for job in (mail, photo, other)] == [SUCCEEDED, SUCCEEDED, READY]


@tells(NODE, "processes")
async def _(app: Mainspring, _: MakeStore) -> None:
    changes = Changes(app)
    task = app.task(executor="process")(os.getpid)
    async with app.node(processes=1):
        jobs = [await task.enqueue() for _ in range(3)]
        processes = {await job.result("1m") for job in jobs}
    assert len(processes) == 1
    assert [change.target for change in changes] == [RUNNING, SUCCEEDED] * 3


@tells(NODE, "lease")
async def _(app: Mainspring, _: MakeStore) -> None:
    @app.task
    async def work() -> float:
        return now()

    async with app:
        ghost = await Ghost.join(app)
        job = await work.enqueue()
        await ghost.claim_one()
        async with app.node(lease="5s"):
            assert 3 < await job.result("1m") <= 5 + 2


@tells(NODE, "grace")
async def _(app: Mainspring, _: MakeStore) -> None:
    @app.task
    async def work(seconds: float) -> None:
        await asyncio.sleep(seconds)

    async with app:
        async with app.node(grace="8s"):
            short, long = await work.enqueue(5), await work.enqueue(60)
            await until(1)
        assert now() == pytest.approx(9, abs=0.5)
        assert [await short.state(), await long.state()] == [SUCCEEDED, READY]


@tells(NODE, "stop_grace")
async def _(app: Mainspring, _: MakeStore) -> None:
    @app.task(timeout="5s", max_attempts=1)
    async def stubborn() -> None:
        began = now()
        while now() < began + 30:
            try:
                await asyncio.sleep(began + 30 - now())
            except asyncio.CancelledError:
                continue

    async with app.node(stop_grace="3s"):
        job = await stubborn.enqueue()
        await until(7.8)
        assert await job.state() is RUNNING
        await until(8.3)
        assert await job.state() is FAILED
        await until(31)


@tells(NODE, "timeout")
async def _(app: Mainspring, _: MakeStore) -> None:
    @app.task(max_attempts=1)
    async def endless() -> None:
        await asyncio.sleep(HOUR)

    async with app.node(timeout="7s"):
        view = await ended(await endless.enqueue())
    assert view.seconds == pytest.approx(7)


@tells(NODE, "unknown_task_grace")
async def _(app: Mainspring, make_store: MakeStore) -> None:
    other = Mainspring(store=make_store(), clock=app.clock)

    @other.task
    async def unknown() -> None:
        return

    async with other, app.node(unknown_task_grace="1m", prune_every="5s"):
        job = await unknown.enqueue()
        await until(55)
        assert await job.state() is READY
        await until(80)  # looks are at most 7.5 s apart: first seen by 7.5 s, old enough by 67.5 s, ended by 75 s
        assert await job.state() is FAILED


@tells(NODE, "prune_every")
async def _(app: Mainspring, _: MakeStore) -> None:
    @app.task(keep="1s")
    async def work() -> None:
        return

    async with app.node(prune_every="10s"):
        job = await work.enqueue()
        await until(0.5)
        assert await job.state() is SUCCEEDED
        await until(17)
        with pytest.raises(JobGone):
            await job.refresh()


@tells(NODE, "ticker")
async def _(app: Mainspring, _: MakeStore) -> None:
    ran = []

    @app.schedule(Every("1m"))
    @app.task
    async def work() -> None:
        ran.append(1)

    async with app.node(ticker=False):
        await until(70)
        assert ran == []
        async with app.node():
            await until(130)
    assert ran


@tells(NODE, "tick")
async def _(app: Mainspring, _: MakeStore) -> None:
    ran = []

    @app.schedule(Every("7s"), max_runs=1)
    @app.task
    async def work() -> None:
        ran.append(1)

    async with app.node(tick="10s"):
        await until(9.5)
        assert ran == []
        await until(11)
    assert ran == [1]


@tells(NODE, "overview")
async def _(app: Mainspring, _: MakeStore) -> None:
    @app.task
    async def work() -> None:
        return

    async with app:
        for overview in (False, True):
            async with app.node(overview=overview):
                job = await work.enqueue()
                await asyncio.sleep(15)
                assert await job.state() == SUCCEEDED
            if isinstance(app.store, Overview):  # one that is not has nothing to switch off
                assert bool(await app.store.reports()) is overview
                assert (
                    bool(await app.store.tallies(timedelta(minutes=1), app.store.now() - timedelta(hours=1)))
                    is overview
                )


@tells(NODE, "outbox_partitions")
async def _(app: Mainspring, _: MakeStore) -> None:
    gauge = Gauge()
    orders = app.outbox("orders", partitions=8, payload=int)

    @orders.handler
    async def work(_: Message[int]) -> None:
        await gauge.work(5)

    async with app.node(outbox_partitions=3):
        for partition in range(8):
            await orders.publish(None, partition, partition=partition)
        await until(60)
        assert [one.lag for one in await orders.stats()] == [0] * 8
    assert gauge.most == 3


@tells(TASK, "name")
async def _(app: Mainspring, _: MakeStore) -> None:
    @app.task(name="mail.send")
    async def send() -> str:
        return "sent"

    async with app.node():
        assert await (await app.enqueue("mail.send")).result("1s") == "sent"
        (view,) = (await app.jobs(task="mail.send")).jobs
    assert str(view.job.task) == "mail.send"


@tells(TASK, "aliases")
async def _(app: Mainspring, make_store: MakeStore) -> None:
    before = Mainspring(store=make_store(), clock=app.clock)

    @before.task(name="old.place")
    async def old() -> str:
        return "old"

    @app.task(name="new.place", aliases=["old.place"])
    async def moved() -> str:
        return "moved"

    async with before:
        job = await old.enqueue()
    async with app.node():
        assert await app.job(job.id, moved).result("1s") == "moved"


@tells(TASK, "queue")
async def _(app: Mainspring, _: MakeStore) -> None:
    @app.task(queue="mail")
    async def send() -> None:
        return

    async with app.node(queues=["mail"]):
        assert (await ended(await send.enqueue(), within=1)).job.state is SUCCEEDED


@tells(TASK, "priority")
async def _(app: Mainspring, _: MakeStore) -> None:
    order: list[str] = []

    @app.task(priority="low")
    async def low() -> None:
        order.append("low")

    @app.task(priority="high")
    async def high() -> None:
        order.append("high")

    async with app:
        await low.enqueue()
        await high.enqueue()
        async with app.node(concurrency=1):
            await until(1)
    assert order == ["high", "low"]


@tells(TASK, "retry")
async def _(app: Mainspring, _: MakeStore) -> None:
    starts: list[float] = []

    @app.task(retry=Retry.linear("2s", "3s", max_attempts=3))
    async def fragile() -> None:
        starts.append(now())
        raise Boom

    async with app.node():
        await ended(await fragile.enqueue())
    assert starts == pytest.approx([0, 2, 7], abs=0.2)


@tells(TASK, "max_attempts")
async def _(app: Mainspring, _: MakeStore) -> None:
    @app.task(max_attempts=2)
    async def fragile() -> None:
        raise Boom

    async with app.node():
        assert (await ended(await fragile.enqueue())).job.attempt == 2


@tells(TASK, "timeout")
async def _(app: Mainspring, _: MakeStore) -> None:
    @app.task(timeout="3s", max_attempts=1)
    async def endless() -> None:
        await asyncio.sleep(HOUR)

    async with app.node():
        assert (await ended(await endless.enqueue())).seconds == pytest.approx(3)


@tells(TASK, "expires")
async def _(app: Mainspring, _: MakeStore) -> None:
    @app.task(expires="10s")
    async def news() -> None:
        raise AssertionError("yesterday's")

    async with app:
        stale = await news.enqueue()
        await until(11)
        async with app.node():
            view = await ended(stale)
    assert (view.job.state, view.job.cause, view.job.attempt) == (FAILED, Cause.EXPIRED, 0)


@tells(TASK, "executor")
async def _(app: Mainspring, _: MakeStore) -> None:
    here = app.task(name="here", executor="thread")(os.getpid)
    there = app.task(name="there", executor="process")(os.getpid)
    async with app.node():
        assert await (await here.enqueue()).result("1m") == os.getpid()
        assert await (await there.enqueue()).result("1m") != os.getpid()


@tells(TASK, "unique")
async def _(app: Mainspring, _: MakeStore) -> None:
    @app.task(unique=Unique(key="order"))
    async def ship(order: int, how: str) -> None:
        raise AssertionError((order, how))

    async with app:
        first, again, other = await ship.enqueue(1, "air"), await ship.enqueue(1, "sea"), await ship.enqueue(2, "air")
    assert [first.fresh, again.fresh, other.fresh] == [True, False, True]
    assert again.id == first.id


@tells(TASK, "limit")
async def _(app: Mainspring, _: MakeStore) -> None:
    whole, each = Gauge(), Gauge()

    @app.task(limit=[Limit(concurrency=3), Limit(concurrency=1, key="customer")])
    async def work(customer: str) -> None:
        await asyncio.gather(whole.work(10), each.work(10) if customer == "ann" else asyncio.sleep(0))

    async with app.node(), app.node():
        jobs = [await work.enqueue(customer) for customer in ["ann", "ann", "ben", "cem", "dan"]]
        await asyncio.gather(*[job.result("2m") for job in jobs])
    assert (whole.most, each.most) == (3, 1)


@tells(TASK, "breaker")
async def _(app: Mainspring, _: MakeStore) -> None:
    calls: list[float] = []

    @app.task(breaker=Breaker(threshold=2, cooldown="20s"), max_attempts=1)
    async def work() -> None:
        calls.append(now())
        raise Boom

    async with app.node():
        await work.enqueue_many([work.call() for _ in range(2)])
        await until(1)
        await work.enqueue_many([work.call() for _ in range(9)])
        await until(19)
        assert len(calls) == 2
        await until(22)
    assert len(calls) == 3


@tells(TASK, "retention")
async def _(app: Mainspring, _: MakeStore) -> None:
    @app.task(retention=Retention(succeeded=timedelta(seconds=10), failed=timedelta(seconds=40)), max_attempts=1)
    async def work(well: bool) -> None:
        if not well:
            raise Boom

    async with app.node(prune_every="2s"):
        good, bad = await work.enqueue(well=True), await work.enqueue(well=False)
        await until(15)
        with pytest.raises(JobGone):
            await good.refresh()
        assert await bad.state() is FAILED
        await until(45)
        with pytest.raises(JobGone):
            await bad.refresh()


@tells(TASK, "keep")
async def _(app: Mainspring, _: MakeStore) -> None:
    @app.task(keep="30s", max_attempts=1)
    async def work(well: bool) -> None:
        if not well:
            raise Boom

    async with app.node(prune_every="2s"):
        jobs = [await work.enqueue(well=True), await work.enqueue(well=False)]
        await until(29)
        assert [await job.state() for job in jobs] == [SUCCEEDED, FAILED]
        await until(35)
        for job in jobs:
            with pytest.raises(JobGone):
                await job.refresh()


@tells(TASK, "loss_limit")
async def _(app: Mainspring, _: MakeStore) -> None:
    @app.task(loss_limit=2)
    async def work() -> None:
        raise AssertionError("it never ran here")

    async with app:
        job = await work.enqueue()
        for _loss in range(2):
            ghost = await Ghost.join(app)
            await ghost.claim_one()
            await ghost.die()
            await Ghost.reap(app)
        view = await job.refresh()
    assert (view.job.state, view.job.cause, view.job.attempt) == (FAILED, Cause.POISON, 2)


@tells(TASK, "payload_limit")
async def _(app: Mainspring, _: MakeStore) -> None:
    @app.task(payload_limit=100)
    async def work(text: str) -> str:
        return text * 10

    async with app.node():
        with pytest.raises(PayloadError):
            await work.enqueue("x" * 100)
        view = await ended(await work.using(max_attempts=1).enqueue("x" * 50))
    assert view.job.state is FAILED, "its result was too long"


@tells(TASK, "redact")
async def _(app: Mainspring, _: MakeStore) -> None:
    @app.task(redact=["iban"])
    async def pay(iban: str, user: str) -> None: ...

    async with app:
        view = await (await pay.enqueue("DE1", "anna")).refresh()
    shown = Redactor(app.registry).whole(view)
    assert b"DE1" in view.payload, "it is kept as it is"
    assert b"DE1" not in shown.payload
    assert b"anna" in shown.payload


@tells(USING, "delay")
async def _(app: Mainspring, _: MakeStore) -> None:
    @app.task
    async def when() -> float:
        return now()

    async with app.node():
        job = await when.using(delay="10s").enqueue()
        assert await job.state() is State.SCHEDULED
        assert await job.result("1m") == pytest.approx(10, abs=0.1)


@tells(USING, "run_at")
async def _(app: Mainspring, _: MakeStore) -> None:
    @app.task
    async def when() -> float:
        return now()

    async with app.node():
        job = await when.using(run_at=app.clock.now() + timedelta(seconds=20)).enqueue()
        assert await job.result("1m") == pytest.approx(20, abs=0.1)


@tells(USING, "priority")
async def _(app: Mainspring, _: MakeStore) -> None:
    order: list[int] = []

    @app.task
    async def work(number: int) -> None:
        order.append(number)

    async with app:
        for number in (20, 80, 50):
            await work.using(priority=number).enqueue(number)
        async with app.node(concurrency=1):
            await until(1)
    assert order == [80, 50, 20]


@tells(USING, "queue")
async def _(app: Mainspring, _: MakeStore) -> None:
    @app.task(queue="mail")
    async def work() -> None:
        return

    async with app.node(queues="photos"):
        there, here = await work.enqueue(), await work.using(queue="photos").enqueue()
        await until(2)
        assert [await there.state(), await here.state()] == [READY, SUCCEEDED]


@tells(USING, "max_attempts")
async def _(app: Mainspring, _: MakeStore) -> None:
    @app.task(retry=Retry.fixed("1s"))
    async def fragile() -> None:
        raise Boom

    async with app.node():
        assert (await ended(await fragile.using(max_attempts=3).enqueue())).job.attempt == 3


@tells(USING, "timeout")
async def _(app: Mainspring, _: MakeStore) -> None:
    @app.task(timeout="1h", max_attempts=1)
    async def endless() -> None:
        await asyncio.sleep(HOUR)

    async with app.node():
        assert (await ended(await endless.using(timeout="4s").enqueue())).seconds == pytest.approx(4)


@tells(USING, "expires")
async def _(app: Mainspring, _: MakeStore) -> None:
    @app.task
    async def news() -> None:
        return

    async with app:
        late = await news.using(expires="5s").enqueue()
        soon = await news.using(expires="5s", delay="10s").enqueue()
        await until(9)
        async with app.node():
            assert (await ended(late)).job.cause is Cause.EXPIRED
            assert (await ended(soon)).job.state is SUCCEEDED


@tells(USING, "unique")
async def _(app: Mainspring, _: MakeStore) -> None:
    @app.task(unique=True)
    async def work(number: int) -> None:
        raise AssertionError(number)

    async with app:
        first, second = await work.enqueue(1), await work.using(unique=False).enqueue(1)
        third, fourth = await work.using(unique="same").enqueue(3), await work.using(unique="same").enqueue(4)
        with pytest.raises(Conflict):
            await work.using(unique=Unique(on_conflict="raise")).enqueue(1)
    assert [job.fresh for job in (first, second, third, fourth)] == [True, True, True, False]


@tells(USING, "key")
async def _(app: Mainspring, _: MakeStore) -> None:
    gauge = Gauge()

    @app.task(limit=Limit(concurrency=1, key="customer"))
    async def work(customer: str) -> None:
        assert customer
        await gauge.work(5)

    async with app.node():
        jobs = [await work.using(key="family").enqueue(customer) for customer in ("ann", "ben")]
        await asyncio.gather(*[job.result("1m") for job in jobs])
    assert gauge.most == 1


@tells(USING, "tags")
async def _(app: Mainspring, _: MakeStore) -> None:
    @app.task
    async def work(ctx: Context) -> list[str]:
        return list(ctx.tags)

    async with app.node():
        job = await work.using(tags=["red", "blue"]).enqueue()
        await work.enqueue()
        assert await job.result("1s") == ["red", "blue"]
        assert [view.job.id for view in (await app.jobs(tag="blue")).jobs] == [job.id]


@tells(USING, "owner")
async def _(app: Mainspring, _: MakeStore) -> None:
    @app.task
    async def work(ctx: Context) -> str | None:
        return ctx.owner

    async with app.node():
        assert await (await work.using(owner="ann").enqueue()).result("1s") == "ann"


@tells(USING, "id")
async def _(app: Mainspring, _: MakeStore) -> None:
    starts: list[int] = []

    @app.task
    async def work(number: int) -> None:
        starts.append(number)

    own = UUID("018f0000-0000-7000-8000-000000000001")
    async with app.node():
        first = await work.using(id=own).enqueue(1)
        await ended(first)
        again = await work.using(id=own).enqueue(2)
        await asyncio.sleep(1)
    assert (first.id, first.fresh, again.id, again.fresh) == (own, True, own, False)
    assert starts == [1]


@tells(USING, "traceparent")
async def _(app: Mainspring, _: MakeStore) -> None:
    @app.task
    async def child() -> None:
        return

    @app.task
    async def parent() -> str:
        return str((await child.enqueue()).id)

    async with app.node():
        job = await parent.using(traceparent="00-abc-def-01").enqueue()
        offspring = app.job(await job.result("1s"))
        assert (await job.refresh()).facts.traceparent == "00-abc-def-01"
        assert (await offspring.refresh()).facts.traceparent == "00-abc-def-01", "handed on to its children"


@tells(USING, "retention")
async def _(app: Mainspring, _: MakeStore) -> None:
    @app.task
    async def work() -> None:
        return

    async with app.node(prune_every="10s"):
        short = await work.using(retention=Retention(succeeded=timedelta(seconds=10))).enqueue()
        usual = await work.enqueue()
        await until(30)
        with pytest.raises(JobGone):
            await short.refresh()
        assert await usual.state() is SUCCEEDED


@tells(USING, "tx")
async def _(app: Mainspring, make_store: MakeStore) -> None:
    @app.task
    async def work() -> None:
        return

    async with app:
        if make_store.file is None:
            with pytest.raises(DeclarationError):
                await work.using(tx=object()).enqueue()
            return
        with closing(sqlite3.connect(make_store.file, isolation_level=None)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            undone = work.using(tx=connection).enqueue_sync()
            connection.execute("ROLLBACK")
            connection.execute("BEGIN IMMEDIATE")
            done = work.using(tx=connection).enqueue_sync()
            connection.execute("COMMIT")
        with pytest.raises(JobGone):
            await undone.refresh()
        assert await done.state() is READY


@tells(QUEUE, "concurrency")
async def _(app: Mainspring, _: MakeStore) -> None:
    app.queue("narrow", concurrency=2)
    narrow, wide = Gauge(), Gauge()

    @app.task
    async def work(queue: str) -> None:
        await (narrow if queue == "narrow" else wide).work(5)

    async with app.node(concurrency=10):
        jobs = [await work.using(queue=queue).enqueue(queue) for queue in ["narrow", "wide"] * 4]
        await asyncio.gather(*[job.result("1m") for job in jobs])
    assert (narrow.most, wide.most) == (2, 4)


@tells(QUEUE, "limit")
async def _(app: Mainspring, _: MakeStore) -> None:
    app.queue("narrow", limit=Limit(concurrency=2))
    gauge = Gauge()

    @app.task(queue="narrow")
    async def work() -> None:
        await gauge.work(5)

    async with app.node(), app.node():
        jobs = [await work.enqueue() for _ in range(5)]
        await asyncio.gather(*[job.result("1m") for job in jobs])
    assert gauge.most == 2


@tells(QUEUE, "timeout")
async def _(app: Mainspring, _: MakeStore) -> None:
    app.queue("quick", timeout="2s")

    @app.task(queue="quick", max_attempts=1)
    async def endless() -> None:
        await asyncio.sleep(HOUR)

    async with app.node():
        assert (await ended(await endless.enqueue())).seconds == pytest.approx(2)
