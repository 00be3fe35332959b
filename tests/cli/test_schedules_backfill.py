"""What `mainspring schedules` asks of `app.schedules`, where a file and a real clock would take too long."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from mainspring import Every, Mainspring, Manual
from mainspring.errors import ScheduleError
from mainspring.stores.memory import MemoryStore
from mainspring.testing import VirtualTime

MINUTE = timedelta(minutes=1)


@pytest.fixture
def app(virtual_time: VirtualTime) -> Mainspring:
    return Mainspring(MemoryStore(clock=virtual_time.clock), clock=virtual_time.clock)


async def test_a_slot_that_is_held_back_is_not_backfilled_and_fires_when_it_may(app: Mainspring) -> None:
    @app.task(name="slow")
    async def slow() -> None:
        await asyncio.sleep(90)

    async with app.node():
        await app.schedules.add("often", Every("1m"), slow.call(), overlap="queue_one")
        await asyncio.sleep(125)
        held = (await app.schedules.get("often")).held
        assert held
        assert await app.schedules.backfill("often", held.at, held.at) == ()
        await asyncio.sleep(40)
        runs = (await app.schedules.runs("often")).runs
        assert [run.slot for run in runs if run.job] == [held.at, held.at - MINUTE]


async def test_slots_that_had_a_job_under_a_denser_rule_are_not_backfilled_again(
    app: Mainspring, virtual_time: VirtualTime
) -> None:
    @app.task(name="add")
    async def add() -> None: ...

    now = virtual_time.clock.now()
    start = now - 30 * MINUTE
    await app.schedules.add("often", Every("1s", start=start), add.call())
    for part in range(2):
        begin = start + part * 15 * MINUTE
        assert len(await app.schedules.backfill("often", begin, begin + 15 * MINUTE - timedelta(seconds=1))) == 900
    await app.schedules.change("often", Every("1m", start=start))
    assert await app.schedules.backfill("often", start, now - MINUTE) == ()
    await app.close()


async def test_of_a_backfill_only_the_jobs_that_were_made_are_returned(
    app: Mainspring, virtual_time: VirtualTime
) -> None:
    @app.task(name="single", unique=True)
    async def single() -> None: ...

    now = virtual_time.clock.now()
    await app.schedules.add("often", Every("1m", start=now - 5 * MINUTE), single.call())
    made = await app.schedules.backfill("often", now - 5 * MINUTE, now)
    assert len(made) == 1
    assert await made[0].state() == "ready"
    with pytest.raises(ScheduleError, match="another one has the unique key"):
        await app.schedules.run("often")
    await app.close()


async def test_what_is_no_rule_cannot_be_changed_to(app: Mainspring) -> None:
    @app.task(name="add")
    async def add() -> None: ...

    await app.schedules.add("by-hand", Manual(), add.call())
    with pytest.raises(ScheduleError, match=r"a rule is Cron\('0 9 \* \* \*'\), .* not '0 2 \* \* \*'"):
        await app.schedules.change("by-hand", "0 2 * * *")  # type: ignore[arg-type]  # the mistake that is tested
    assert (await app.schedules.get("by-hand")).plan.rule == Manual()
    await app.close()


async def test_every_method_can_be_called_without_an_event_loop(app: Mainspring, virtual_time: VirtualTime) -> None:
    @app.task(name="add")
    async def add() -> None: ...

    def work() -> list[int]:
        start = datetime(2029, 12, 31, 23, 50, tzinfo=UTC)
        app.schedules.add_sync("often", Every("1m", start=start), add.call())
        made = app.schedules.backfill_sync("often", start, start + 4 * MINUTE)
        return [len(made), len(app.schedules.list_sync().looks), len(app.schedules.runs_sync("often").runs)]

    assert virtual_time.clock.now() == datetime(2030, 1, 1, tzinfo=UTC)
    assert await asyncio.to_thread(work) == [5, 1, 5]
    await app.close()
