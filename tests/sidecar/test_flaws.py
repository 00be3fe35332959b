"""The flaws of uni's scheduler that a file of its own could have, one by one: none of them is here.

See also tests/sidecar/test_foreign.py for U17, and tests/sidecar/test_commit.py for U11; the others are in tests/schedules
(U10, U13, U15), tests/plugins (U6 to U8, U16) and tests/jobs (U9, U18).
"""

import asyncio
import json
from datetime import timedelta

import pytest

from mainspring.core.job import JobId
from mainspring.core.names import Name
from mainspring.core.outcome import AttemptError, Raised, Succeeded
from mainspring.core.rules import Every, Manual, Once
from mainspring.core.steps import change, create, pause, remove, run_now
from mainspring.errors import SchemaError, StoreUnavailable
from mainspring.stores.sidecar import SidecarStore
from mainspring.testing.contract import plans
from mainspring.testing.contract.world import FATAL, HOUR, World
from tests.sidecar.files import FaultyFiles
from tests.sidecar.opened import Place, seen

pytestmark = pytest.mark.usefixtures("virtual_time")


async def test_u1_a_name_is_the_same_pair_after_a_restart(place: Place) -> None:
    names = [Name("uni", "system.sweep"), Name("uni.system", "sweep"), Name("", "uni.system.sweep")]
    async with place.world() as world:
        for name in names:
            await plans.add(world, name)
    async with place.world() as world:
        looked = await world.store.look(names)
        assert [look.schedule.name for look in looked.looks] == names


async def test_u2_a_daily_schedule_runs_in_a_process_that_lives_for_half_a_day(place: Place) -> None:
    async with place.world() as world:
        await plans.add(world, planned=plans.plan(Every("24h")))
    fired = []
    for _ in range(6):
        place.clock.advance("12h")
        async with place.world() as world:
            fired += await plans.tick(world)
            for _ in fired:
                if claims := await world.claim(await world.node()):
                    await world.end(claims[0].claim, Succeeded())

    assert [run.slot for run in fired] == [fired[0].slot + timedelta(days=day) for day in range(3) if fired[0].slot]


async def test_u3_what_was_decided_is_not_fired_again(place: Place) -> None:
    once = Name("", "once")
    async with place.world() as world:
        await plans.add(world, once, plans.plan(Once(world.now + HOUR)))
        await plans.add(world, plans.BY_HAND, plans.plan(Manual()))
        place.clock.advance(HOUR)
        (run,) = await plans.tick(world)
        await world.end(await world.claim_one(await world.node()), Succeeded())
    for _ in range(3):
        place.clock.advance(HOUR)
        async with place.world() as world:
            assert await plans.tick(world) == []
            assert await world.claim(await world.node()) == ()
            assert [one.id for one in await plans.runs(world)] == [run.id]
            assert (await plans.schedule(world, once)).is_over


async def test_u3_an_open_slot_is_made_again_once_with_the_same_id(place: Place) -> None:
    async with place.world() as world:
        await plans.add(world)
        run = await plans.fire(world)
    for _ in range(3):
        async with place.world() as world:
            assert (await plans.look_at(world)).open == (run.id,)
            assert await plans.tick(world) == []
    async with place.world() as world:
        node = await world.node()
        assert (await world.claim_one(node)).job.id == run.id
        assert await world.claim(node) == ()


async def test_u4_what_was_removed_stays_removed_and_what_was_paused_paused(place: Place) -> None:
    paused = Name("", "paused")
    async with place.world() as world:
        await plans.add(world)
        await plans.written(world, remove(await plans.schedule(world)))
        await plans.written(world, pause(await plans.add(world, paused), world.now, by="me"))
        before = await plans.look_at(world, paused)
    place.clock.advance(HOUR)
    async with place.world() as world:
        assert (await world.store.list_schedules()).looks == (before,)
        assert await plans.tick(world) == []


async def test_u5_a_name_that_is_registered_twice_is_one_schedule(place: Place) -> None:
    async with place.world() as world:
        there = await plans.add(world)
        assert not await plans.accepted(world, create(there.name, plans.plan(Manual()), world.now))
        place.clock.advance(HOUR)
        assert len(await plans.tick(world)) == 1

    assert len(json.loads(place.read())["schedules"]) == 1


async def test_u11_one_sync_serves_many_changes(place: Place) -> None:
    files = FaultyFiles()
    async with place.world(files) as world:
        there = [await plans.add(world, Name("", f"s{number}")) for number in range(200)]
        moves = [plans.move_of(world, run_now(one, world.now, world.id)) for one in there]
        files.calls.clear()
        assert all(await asyncio.gather(*(world.store.move([move]) for move in moves)))

        assert files.calls.count("sync") <= 5


async def test_u12_trouble_with_the_file_is_never_swallowed(place: Place) -> None:
    files = FaultyFiles()
    async with place.world(files) as world:
        await plans.add(world)
        await plans.fire(world)
        claim = await world.claim_one(await world.node())
        before = await seen(world)
        files.always = 28
        for verb in (
            world.settle(claim, Succeeded()),
            world.store.move([plans.move_of(world, run_now(await plans.schedule(world), world.now, world.id))]),
        ):
            with pytest.raises(StoreUnavailable):
                await verb
        assert await seen(world) == before
        files.always = None
        await world.end(claim, Succeeded())

    place.write(b'{"version": 1, "schedules"')
    with pytest.raises(SchemaError):
        await place.open()
    assert place.read() == b'{"version": 1, "schedules"'


async def test_u14_what_happened_is_remembered(place: Place) -> None:
    """When, with which error, and how often in a row."""
    error = Raised(error=AttemptError(type="ValueError", message="no"), retryable=False)
    async with place.world() as world:
        await plans.add(world)
        for outcome in (Succeeded(), error, error, FATAL):
            await plans.fire(world)
            await world.end(await world.claim_one(await world.node()), outcome)
        before = await plans.runs(world)
    async with place.world() as world:
        assert await plans.runs(world) == before
        last, second, *_ = before
        assert (second.error, second.finished_at) == ("ValueError: no", second.slot)
        assert last.state == "failed"
        assert await failures(world) == 3
        await plans.fire(world)
        await world.end(await world.claim_one(await world.node()), Succeeded())
        assert await failures(world) == 0
        changed = change(await plans.schedule(world), plans.plan(Manual()), world.now, world.id, busy=False)
        await plans.written(world, changed)
    async with place.world() as world:
        assert await failures(world) == 0


async def failures(world: World) -> int:
    assert isinstance(world.store, SidecarStore)
    return await world.store.failures(plans.HOURLY)


async def test_a_job_that_ends_its_process_again_and_again_stops(place: Place) -> None:
    """Promise 6: the count of losses is in the document before the handler starts."""
    async with place.world() as world:
        there = await plans.add(world, planned=plans.plan(Manual()))
        run = await plans.written_run(world, there, max_attempts=9, loss_limit=3)
    for lost in range(3):
        async with place.world() as world:
            (claim,) = await world.store.orphans(10) or [None]
            if claim:
                await world.reap(await world.node())
            assert (await world.job(JobId(run.id))).losses == lost
            assert (await world.claim_one(await world.node())).job.id == run.id
    async with place.world() as world:
        await world.reap(await world.node())
        ended = await plans.run_of(world, run.id)
        assert (ended.state, ended.error) == ("failed", "poison")
        assert await world.claim(await world.node()) == ()
