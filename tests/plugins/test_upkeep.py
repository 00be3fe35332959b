"""The jobs that Mainspring brings itself: where they are, what they do, and that they are like any other."""

import asyncio
from typing import Any

import pytest

from mainspring import Mainspring, Plugin, Retry
from mainspring.client.upkeep import COUNTED, compact, count, sweep
from mainspring.core.job import State
from mainspring.errors import PluginError
from mainspring.plugins import BackgroundJobs
from mainspring.stores.memory import MemoryStore
from mainspring.testing import VirtualTime
from tests.plugins.conftest import MakeStore

NAMES = ["mainspring:compaction", "mainspring:retention_sweep", "mainspring:statistics"]


def a_plugin() -> Plugin:
    plugin = Plugin("greeter", "1", requires=[BackgroundJobs()])

    @plugin.task
    async def greet() -> str:
        return "hello"

    return plugin


def with_upkeep(make_store: MakeStore, time: VirtualTime) -> Mainspring:
    return Mainspring(make_store(), clock=time.clock, upkeep=True)


async def names(app: Mainspring) -> list[str]:
    return [str(look.schedule.name) for look in (await app.schedules.list()).looks]


async def results(app: Mainspring, task: str) -> list[Any]:
    jobs = (await app.jobs(task=task, state=State.SUCCEEDED)).jobs
    return [await app.job(view.job.id).result() for view in jobs]


# Where they are.


async def test_a_program_without_plugins_has_none(app: Mainspring) -> None:
    async with app.node():
        await asyncio.sleep(120)
        assert await names(app) == []
        assert (await app.jobs()).jobs == ()


async def test_a_program_with_plugins_has_them_when_it_runs_work(app: Mainspring) -> None:
    app.install(a_plugin(), grant="all")
    assert [one.plugin.id for one in app.plugins] == ["greeter"]
    async with app.node():
        assert await names(app) == NAMES
        assert {one.plugin.id for one in app.plugins} == {"greeter", "mainspring"}


async def test_a_node_that_runs_gets_them_with_the_first_plugin(app: Mainspring) -> None:
    async with app.node():
        assert await names(app) == []
        app.install(a_plugin(), grant="all")
        await asyncio.sleep(1)
        assert await names(app) == NAMES


async def test_a_program_can_ask_for_them_and_do_without(make_store: MakeStore, virtual_time: VirtualTime) -> None:
    app = with_upkeep(make_store, virtual_time)
    async with app.node():
        assert await names(app) == NAMES
    without = Mainspring(MemoryStore(clock=virtual_time.clock), clock=virtual_time.clock, upkeep=False)
    without.install(a_plugin(), grant="all")
    async with without.node():
        assert await names(without) == []


async def test_they_can_be_uninstalled_and_stay_away(app: Mainspring) -> None:
    app.install(a_plugin(), grant="all")
    async with app.node():
        await app.uninstall("mainspring")
        await asyncio.sleep(600)
        assert (await app.jobs(limit=10)).jobs == ()
        await app.uninstall("greeter")
        app.install(a_plugin(), grant="all")
        assert "mainspring" not in app.plugins


def test_nobody_else_is_called_mainspring() -> None:
    with pytest.raises(PluginError, match="what Mainspring brings itself"):
        Mainspring("memory://").install(Plugin("mainspring", "1"))


# What they do.


async def test_they_come_up_at_their_times_and_tell_what_they_did(
    make_store: MakeStore, virtual_time: VirtualTime
) -> None:
    app = with_upkeep(make_store, virtual_time)
    async with app.node():
        await asyncio.sleep(60 * 60 + 5)
        runs = {name: len((await app.schedules.runs(name)).runs) for name in NAMES}
        assert runs == {NAMES[0]: 1, NAMES[1]: 6, NAMES[2]: 6}
        for name in NAMES:
            assert len(await results(app, name)) == runs[name]
        (done,) = await results(app, NAMES[0])
        assert done["freed"] == 0
        assert (await results(app, NAMES[2]))[0]["finished"]["failed"] == 0


async def test_they_can_be_paused_and_run_by_hand_like_any_other(
    make_store: MakeStore, virtual_time: VirtualTime
) -> None:
    app = with_upkeep(make_store, virtual_time)
    async with app.node():
        for name in NAMES:
            await app.schedules.pause(name)
        await asyncio.sleep(3600)
        assert (await app.jobs()).jobs == ()
        job = await app.schedules.run("mainspring:retention_sweep")
        assert await job.result(timeout="1m") == {"pruned": 0, "more": False}


async def test_a_sweep_deletes_in_bounded_chunks(app: Mainspring, monkeypatch: pytest.MonkeyPatch) -> None:
    @app.task(name="work", keep="10s")
    async def work() -> None: ...

    async with app.node(prune_every="1d"):
        for job in await work.enqueue_many([work.call() for _ in range(25)]):
            await job.result(timeout="1m")
        await asyncio.sleep(60)
        monkeypatch.setattr("mainspring.client.upkeep.CHUNK", 10)
        monkeypatch.setattr("mainspring.client.upkeep.CHUNKS", 2)
        assert await sweep(app.store) == {"pruned": 20, "more": True}
        assert await sweep(app.store) == {"pruned": 5, "more": False}


async def test_statistics_count_within_bounds(app: Mainspring) -> None:
    @app.task(name="work")
    async def work() -> None: ...

    @app.task(name="fail", retry=Retry.none())
    async def fail() -> None:
        raise ValueError

    async with app.node():
        await work.enqueue_many([work.call() for _ in range(COUNTED + 1)])
        await fail.enqueue()
        await asyncio.sleep(60)
        await work.using(delay="1h", queue="later").enqueue()
        found = await count(app.store)
    assert found["finished"] == {"succeeded": f"{COUNTED} or more", "failed": 1, "cancelled": 0}
    assert found["queues"] == {"later": {"waiting": 1, "running": 0}}


@pytest.mark.usefixtures("virtual_time")
async def test_a_store_without_upkeep_is_left_alone() -> None:
    assert await compact(object()) == {"left": "this store has nothing to give back"}  # type: ignore[arg-type]  # no role
