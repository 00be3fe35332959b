"""Steps of schedules through a store that drops, loses and doubles: a slot makes one job all the same."""

from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from mainspring.core.missed import Missed
from mainspring.core.outcome import Succeeded
from mainspring.core.rules import Every
from mainspring.core.schedule import Plan
from mainspring.core.steps import create, decide
from mainspring.errors import StoreUnavailable
from mainspring.stores.memory import MemoryStore
from mainspring.stores.port import Schedules, Store
from mainspring.stores.records import RunFilter
from mainspring.stores.sqlite import SqliteStore
from mainspring.testing import FaultyStore, VirtualTime
from mainspring.testing.contract import Harness, SettableClock, plans
from mainspring.testing.contract.world import HOUR, World

VERBS = [name for name in vars(Schedules) if not name.startswith("_")]


class NoHarness:
    """There is one handle, and it is there."""

    async def open(self) -> Store:
        raise NotImplementedError

    async def crash(self, store: Store) -> None:
        raise NotImplementedError


@pytest.fixture(params=["memory", "sqlite"])
def faulty(
    request: pytest.FixtureRequest, tmp_path: Path, clock: SettableClock, virtual_time: VirtualTime
) -> Iterator[FaultyStore]:
    store: Store = MemoryStore(clock) if request.param == "memory" else SqliteStore(tmp_path / "jobs.db", clock=clock)
    virtual_time.run(store.open())
    yield FaultyStore(store)
    virtual_time.run(store.close())


@pytest.fixture
def clock() -> SettableClock:
    return SettableClock()


@pytest.fixture
def world(faulty: FaultyStore, clock: SettableClock) -> World:
    harness: Harness = NoHarness()
    world = World(harness, clock)
    world.store = faulty.as_store
    return world


async def ticked(world: World) -> None:
    """Tick until that succeeds, as a ticker does after its backoff."""
    while True:
        try:
            await plans.tick(world)
        except StoreUnavailable:
            continue
        return


@pytest.mark.parametrize("verb", VERBS)
async def test_every_verb_can_be_dropped(world: World, faulty: FaultyStore, verb: str) -> None:
    created = plans.move_of(world, create(plans.HOURLY, plans.plan(), world.now))
    calls: dict[str, Callable[[], Coroutine[Any, Any, object]]] = {
        "due": lambda: world.store.due(9),
        "look": lambda: world.store.look([plans.HOURLY]),
        "move": lambda: world.store.move([created]),
        "list_schedules": lambda: world.store.list_schedules(owner="me", limit=3),
        "runs": lambda: world.store.runs(RunFilter(), limit=3),
    }
    faulty.drop(verb)
    with pytest.raises(StoreUnavailable):
        await calls[verb]()
    assert (await world.store.list_schedules()).looks == ()
    await calls[verb]()

    assert faulty.calls.count(verb) >= 2


async def test_whatever_befalls_a_step_each_slot_makes_one_job(world: World, faulty: FaultyStore) -> None:
    node = await world.node()
    keep_all = Missed.all(limit=100, per_tick=1)
    await plans.add(world, planned=Plan(rule=Every(HOUR), template=plans.plan().template, missed=keep_all))
    began = world.now
    for fault in (faulty.drop, faulty.lose_answer, faulty.duplicate, faulty.lose_answer, faulty.drop) * 2:
        world.clock.advance(HOUR)
        if fault == faulty.duplicate:
            faulty.duplicate("move")
            looked = await world.store.due(9)
            moves = [
                plans.move_of(world, decide(look.schedule, world.now, world.id, busy=False)) for look in looked.looks
            ]
            assert await world.store.move(moves) == (False,)  # the second time; the first one was accepted
        else:
            fault("move", times=2)
            await ticked(world)

    slots = [run.slot for run in await plans.runs(world)]
    assert slots == [began + number * HOUR for number in range(10, 0, -1)]
    deliveries = await world.claim(node, room=99)
    assert {one.claim.job.id for one in deliveries} == {run.id for run in await plans.runs(world)}


async def test_an_end_whose_answer_was_lost_wakes_its_schedule_once(world: World, faulty: FaultyStore) -> None:
    await plans.add(world, planned=plans.after_the_end())
    await plans.fire(world)
    settlement = world.settlement(await world.claim_one(await world.node()), Succeeded())
    faulty.lose_answer("settle")
    with pytest.raises(StoreUnavailable):
        await world.store.settle([settlement])
    woken = await plans.look_at(world)
    assert woken.schedule.next_at == world.now
    world.clock.advance("1m")
    await world.store.settle([settlement])

    assert await plans.look_at(world) == woken
