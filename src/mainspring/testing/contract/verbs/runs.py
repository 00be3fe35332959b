# ruff: noqa: S101 -- a suite of tests is built on assert
"""What is kept of runs: they are listed, and go when their time has passed."""

from datetime import datetime, timedelta
from itertools import product

import pytest
from msgspec.structs import replace

from mainspring.core.command import RetryJob
from mainspring.core.job import JobId
from mainspring.core.limits import MOMENT
from mainspring.core.missed import Reason
from mainspring.core.names import Name
from mainspring.core.outcome import (
    Succeeded,
)
from mainspring.core.schedule import Run
from mainspring.core.steps import backfill, remove
from mainspring.stores.records import RunFilter
from mainspring.testing.contract import plans
from mainspring.testing.contract.obligation import obligation
from mainspring.testing.contract.plans import HOURLY
from mainspring.testing.contract.verbs.contract import Contract
from mainspring.testing.contract.verbs.keeping import prune_all
from mainspring.testing.contract.world import DAY, FATAL, HOUR, World

A = Name("", "a")


class RunsContract(Contract):
    """`runs`, and what `prune` leaves of them. Needs the roles Schedules, Jobs, Nodes and Inspector."""

    # prune

    @obligation("prune", 3)
    async def test_runs_are_kept_for_as_long_as_their_schedule_says(self, world: World) -> None:
        node = await world.node()
        keep = plans.plan(keep_runs=timedelta(hours=5))
        there = await plans.add(world, planned=keep)
        dropped = Run(
            id=world.id(), schedule=HOURLY, decided_at=world.now, slot=world.now, last=world.now, reason=Reason.SKIPPED
        )
        ended = await plans.written_run(world, there, dropped)
        still_open = await plans.written_run(world, await plans.schedule(world), run_at=DAY)
        await world.end(await world.claim_one(node), Succeeded())
        world.clock.advance(timedelta(hours=5) - MOMENT)
        await prune_all(world)
        assert {run.id for run in await plans.runs(world)} == {dropped.id, ended.id, still_open.id}

        world.clock.advance(2 * MOMENT)
        await prune_all(world)
        assert await plans.runs(world) == (still_open,)
        assert (await plans.look_at(world)).open == (still_open.id,)

    @obligation("prune", 3)
    async def test_a_run_that_ends_late_goes_at_once_and_one_that_was_opened_again_stays(self, world: World) -> None:
        node = await world.node()
        there = await plans.add(world, planned=plans.plan(keep_runs=HOUR))
        late = await plans.written_run(world, there)
        again = await plans.written_run(world, await plans.schedule(world))
        world.clock.advance("2h")
        for _ in range(2):
            await world.end(await world.claim_one(node), FATAL)
        await world.command(JobId(again.id), RetryJob())
        await prune_all(world)

        assert await plans.runs(world) == (again,)
        assert await world.is_there(JobId(late.id))

    @obligation("prune", 3)
    async def test_the_runs_of_a_schedule_that_is_gone_go_in_their_time(self, world: World) -> None:
        there = await plans.add(world, planned=plans.plan(keep_runs=HOUR))
        await plans.written_run(world, there)
        await world.end(await world.claim_one(await world.node()), Succeeded())
        await plans.written(world, remove(await plans.schedule(world)))
        await prune_all(world)
        assert len(await plans.runs(world)) == 1

        world.clock.advance("61m")
        await prune_all(world)
        assert await plans.runs(world) == ()

    @obligation("prune", 3)
    @obligation("prune")
    async def test_no_more_runs_than_the_limit_are_deleted_at_a_time(self, world: World) -> None:
        there = await plans.add(world, planned=plans.plan(keep_runs=HOUR))
        dropped = [
            Run(id=world.id(), schedule=HOURLY, decided_at=world.now, slot=world.now, reason=Reason.SKIPPED)
            for _ in range(5)
        ]
        await plans.written(world, plans.stepped(there, *dropped))
        world.clock.advance("2h")

        left = []
        for _ in range(3):
            assert await world.store.prune(2) <= 2
            left.append(len(await plans.runs(world)))
        assert left == [3, 1, 0]
        assert await world.store.prune(2) == 0

    # runs

    @obligation("runs")
    async def test_runs_are_listed_newest_first_in_pages(self, world: World) -> None:
        there = await plans.add(world)
        other = await plans.add(world, A)
        ids = []
        for _ in range(7):
            ids.append((await plans.written_run(world, there)).id)
            there = await plans.schedule(world)
        await plans.written_run(world, other)

        for limit in (1, 2, 3, 6, 7, 8):
            pages = await paged(world, RunFilter(schedule=HOURLY), limit)
            assert [run.id for page in pages for run in page] == ids[::-1]
            assert [len(page) for page in pages] == [len(ids[at : at + limit]) for at in range(0, len(ids), limit)]
        assert len(await plans.runs(world)) == 8
        assert await paged(world, RunFilter(schedule=Name("", "nobody")), 9) == [()]

    @obligation("runs")
    @pytest.mark.parametrize("limit", [2, 100])
    async def test_a_filter_of_runs_lets_through_what_it_says_and_nothing_else(self, world: World, limit: int) -> None:
        slots = await various(world)
        everything = await plans.runs(world)
        found = 0
        instants = [None, *slots[::2], slots[0] - HOUR]
        for schedule, after, until, with_job in product([None, HOURLY, A], instants, instants, [None, True, False]):
            which = RunFilter(schedule=schedule, after_slot=after, until_slot=until, with_job=with_job)
            expected = [run for run in everything if wanted(run, which)]
            got = [run for page in await paged(world, which, limit) for run in page]
            assert got == expected, which
            found += len(got)
        assert found > 100  # or the runs are not various enough


async def various(world: World) -> list[datetime]:
    """Make runs that differ in all that can be asked for; returns the slots that they are about."""
    slots = [world.now + number * HOUR for number in range(6)]
    world.clock.advance("9h")
    node = await world.node()
    for name in (HOURLY, A):
        there = await plans.add(world, name)
        at, once, span = [
            Run(id=world.id(), schedule=name, decided_at=world.now, slot=slot, last=slot, reason=Reason.SKIPPED)
            for slot in (slots[0], slots[3], slots[1])
        ]
        several = replace(span, last=slots[4], count=4, reason=Reason.SUPERSEDED)
        await plans.written(world, plans.stepped(there, at, once, several))
        there = await plans.schedule(world, name)
        await plans.written(world, backfill(there, [slots[1], slots[2], slots[5]], world.now, world.id))
        await plans.written_run(world, await plans.schedule(world, name))
    for _ in range(3):
        await world.end(await world.claim_one(node), Succeeded())
    return slots


async def paged(world: World, which: RunFilter, limit: int) -> list[tuple[Run, ...]]:
    """Read all pages."""
    page = await world.store.runs(which, limit=limit)
    pages = [page.runs]
    while page.after:
        before = page.after
        page = await world.store.runs(which, limit=limit, after=page.after)
        assert page.after != before, "a page that leads back to itself"
        pages.append(page.runs)
    return pages


def wanted(run: Run, which: RunFilter) -> bool:
    """A run of several slots in a row is one of each of them."""
    first, last = run.slot, run.last or run.slot
    return (
        which.schedule in {None, run.schedule}
        and which.with_job in {None, run.job is not None}
        and (which.after_slot is None or (last is not None and last > which.after_slot))
        and (which.until_slot is None or (first is not None and first <= which.until_slot))
    )
