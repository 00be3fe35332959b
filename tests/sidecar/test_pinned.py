"""Behaviours that the tests of uni's scheduler pin down, by their numbers, on the file that took the place of its own."""

import asyncio
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from mainspring import Cron, Every, Mainspring, Once
from mainspring.core.names import Name
from mainspring.core.outcome import Succeeded
from mainspring.core.rules import Manual
from mainspring.core.steps import change, remove
from mainspring.errors import DeclarationError
from mainspring.stores.sidecar import SidecarStore
from mainspring.testing import VirtualTime
from mainspring.testing.contract import plans
from mainspring.testing.contract.world import HOUR
from tests.sidecar.opened import UNSYNCED, Place
from tests.sidecar.test_foreign import SWEEP, adopted

pytestmark = pytest.mark.usefixtures("virtual_time")


class Beat:
    """A program with one job that is asked to run every so often, and counts."""

    def __init__(self, place: Place, time: VirtualTime, **options: Any) -> None:  # noqa: ANN401 -- as app.task takes them
        self.calls: list[float] = []
        self.fails = False
        self.app = Mainspring(SidecarStore(place.folder, clock=time.clock, files=UNSYNCED), clock=time.clock)
        self.task = self.app.task(name="beat", **options)(self.beat)

    async def beat(self) -> None:
        self.calls.append(asyncio.get_running_loop().time())
        if self.fails:
            raise ValueError("always")


async def test_1_every_50_ms_with_a_tick_of_25_ms_fires_at_least_twice_in_400_ms(
    place: Place, virtual_time: VirtualTime
) -> None:
    for tick in ("25ms", None):
        beat = Beat(place, virtual_time)
        beat.app.schedule(Every("50ms"), name="often")(beat.task)
        async with beat.app.node(tick=tick):
            await asyncio.sleep(0.4)
        assert 2 <= len(beat.calls) <= 9
        assert [entry["name"] for entry in json.loads(place.read())["schedules"]] == ["often"]


@pytest.mark.parametrize("how", ["remove", "pause", "cancel"])
async def test_2_after_a_cancel_there_is_at_most_one_more_fire_also_after_a_restart(
    place: Place, virtual_time: VirtualTime, how: str
) -> None:
    beat = Beat(place, virtual_time)
    async with beat.app.node():
        await beat.app.schedules.add("often", Every("50ms"), beat.task.call())
        await asyncio.sleep(0.62)
        before = len(beat.calls)
        await (beat.app.control.cancel("often") if how == "cancel" else getattr(beat.app.schedules, how)("often"))
        await asyncio.sleep(2)
    assert before >= 1
    assert len(beat.calls) <= before + 1
    again = Beat(place, virtual_time)
    async with again.app.node():
        await asyncio.sleep(2)
    assert again.calls == []


async def test_3_the_attempts_of_a_job_that_always_fails_plateau_between_10_and_20_also_after_a_restart(
    place: Place, virtual_time: VirtualTime
) -> None:
    counts = []
    for _ in range(2):
        beat = Beat(place, virtual_time, breaker=True, max_attempts=1)
        beat.fails = True
        beat.app.schedule(Every("20ms"), name="often")(beat.task)
        async with beat.app.node():
            await asyncio.sleep(0.5)
            counts.append(len(beat.calls))
            await asyncio.sleep(10)
            assert len(beat.calls) == counts[-1]
    assert 10 <= counts[0] <= 20
    assert counts[1] == 0  # it is as open as it was
    (breaker,) = json.loads(place.read())["breakers"]
    assert breaker["circuit"]["phase"] == "open"


async def test_4_a_run_that_has_started_is_a_row_and_a_dotted_name_comes_back(place: Place) -> None:
    async with place.world() as world:
        await plans.add(world, SWEEP)
        run = await plans.fire(world)
        await world.claim_one(await world.node())
    async with place.world() as world:
        look = await plans.look_at(world, SWEEP)
        assert look.open == (run.id,)
        assert look.schedule.name == Name.parse(str(SWEEP)) == SWEEP


async def test_5_a_schedule_that_is_removed_has_no_row(place: Place) -> None:
    async with place.world() as world:
        await plans.written(world, remove(await plans.add(world)))

    assert json.loads(place.read())["schedules"] == []


async def test_6_rows_outlive_a_restart(place: Place) -> None:
    async with place.world() as world:
        for letter in "abc":
            await plans.add(world, Name("", letter))
        before = (await world.store.list_schedules()).looks
    async with place.world() as world:
        assert (await world.store.list_schedules()).looks == before


async def test_7_without_a_place_nothing_is_kept_and_with_one_it_is(tmp_path: Path) -> None:
    with pytest.raises(DeclarationError, match="it names no folder"):
        Mainspring("sidecar://")
    for url, kept in (("memory://", 0), (f"sidecar:///{tmp_path}", 1)):
        for expected in (0, kept):
            app = Mainspring(url)
            task = app.task(name="sweep")(sweep)
            async with app:
                assert len((await app.schedules.list()).looks) == expected
                if not expected:
                    await app.schedules.add("sweep", Every("1h"), task.call())
    assert (tmp_path / "_system" / "background_jobs.json").exists()


async def sweep() -> None: ...


@pytest.mark.parametrize(
    "rule", [Every("90s"), Cron("15 30 3 * * MON-FRI", tz="Europe/Berlin"), Once(datetime(2031, 5, 6, 7, tzinfo=UTC))]
)
async def test_8_every_kind_of_rule_outlives_a_restart_exactly(place: Place, rule: Every | Cron | Once) -> None:
    async with place.world() as world:
        before = await plans.add(world, planned=plans.plan(rule))
    place.clock.advance("10s")
    async with place.world() as world:
        after = await plans.schedule(world)
        assert after == before
        assert after.next_at == before.next_at is not None


async def test_9_a_row_without_schedule_and_time_is_manual_and_due_never(place: Place) -> None:
    schedule = await adopted(place, {"qname": "uni.system.sweep", "status": "Pending", "consecutive_failures": 2})

    assert (schedule.plan.rule, schedule.next_at) == (Manual(), None)


async def test_10_a_name_that_is_declared_again_has_the_new_rule_and_one_row(place: Place) -> None:
    async with place.world() as world:
        there = await plans.add(world)
        await plans.written(world, change(there, plans.plan(Manual()), world.now, world.id, busy=False))
    assert len(json.loads(place.read())["schedules"]) == 1
    place.clock.advance(HOUR)
    async with place.world() as world:
        assert (await plans.schedule(world)).plan.rule == Manual()
        assert await plans.tick(world) == []
        run = await plans.written_run(world, await plans.schedule(world))
        await world.end(await world.claim_one(await world.node()), Succeeded())
        assert (await plans.run_of(world, run.id)).state == "succeeded"
