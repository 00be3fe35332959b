# ruff: noqa: S101 -- a suite of tests is built on assert
"""Where steps of schedules meet jobs: unique keys that are taken, and runs that have ended meanwhile."""

import pytest
from msgspec.structs import replace

from mainspring.core.command import CancelJob
from mainspring.core.job import JobId, State
from mainspring.core.missed import Reason
from mainspring.core.names import Name
from mainspring.core.outcome import Succeeded
from mainspring.core.schedule import Decision, Overlap
from mainspring.core.steps import decide, pause, run_now
from mainspring.core.unique import OnConflict, UniqueKey
from mainspring.testing.contract import plans
from mainspring.testing.contract.obligation import obligation
from mainspring.testing.contract.verbs.contract import Contract
from mainspring.testing.contract.world import HOUR, RESIZE, SEND, World

A, B = Name("", "a"), Name("", "b")
UNIQUE = UniqueKey(key="a")


class MeetingContract(Contract):
    """`move` with unique keys and waiting schedules. Needs the roles Schedules, Jobs, Nodes and Inspector."""

    # 3

    @obligation("move", 3)
    @pytest.mark.parametrize("on_conflict", [OnConflict.RETURN, OnConflict.RAISE])
    async def test_a_job_whose_key_is_taken_is_not_made(self, world: World, on_conflict: OnConflict) -> None:
        holder = await world.enqueue(unique=UNIQUE)
        await plans.add(world, planned=plans.plan(unique=UniqueKey(key="a", on_conflict=on_conflict)))
        world.clock.advance(HOUR)
        (run,) = await plans.tick(world)

        assert await plans.runs(world) == (replace(run, reason=Reason.TAKEN, last=run.slot),)
        assert (await plans.look_at(world)).open == ()
        assert await world.store.get([JobId(run.id)]) == (None,)
        assert (await world.job(holder)).state is State.READY

    @obligation("move", 3)
    async def test_a_running_job_is_not_replaced_by_that_of_a_slot(self, world: World) -> None:
        holder = await world.running(await world.node(), unique=UNIQUE)
        await plans.add(world, planned=plans.plan(unique=UniqueKey(key="a", on_conflict=OnConflict.REPLACE)))
        world.clock.advance(HOUR)
        (run,) = await plans.tick(world)

        assert (await plans.run_of(world, run.id)).reason is Reason.TAKEN
        assert await world.job(holder.job.id) == holder.job

    @obligation("move", 3)
    @obligation("settle", 8)
    async def test_the_job_of_a_slot_replaces_that_of_the_slot_before(self, world: World) -> None:
        await plans.add(world, planned=plans.plan(unique=UniqueKey(key="a", on_conflict=OnConflict.REPLACE)))
        first = await plans.fire(world)
        second = await plans.fire(world)

        assert [(run.id, run.state) for run in await plans.runs(world)] == [
            (second.id, None),
            (first.id, State.CANCELLED),
        ]
        assert (await plans.run_of(world, first.id)).finished_at == world.now
        assert (await plans.look_at(world)).open == (second.id,)
        assert (await world.job(JobId(first.id))).state is State.CANCELLED

    @obligation("move", 3)
    @obligation("settle", 8)
    async def test_a_step_may_end_the_very_run_that_its_schedule_waits_for(self, world: World) -> None:
        unique = UniqueKey(key="a", on_conflict=OnConflict.REPLACE)
        await plans.add(world, planned=plans.after_the_end(unique=unique))
        first = await plans.fire(world)
        waiting = await plans.schedule(world)
        assert waiting.waits
        world.clock.advance("1m")
        by_hand = await plans.written(world, run_now(waiting, world.now, world.id))

        there = await plans.look_at(world)
        assert there.open == (by_hand.runs[0].id,)
        assert (await plans.run_of(world, first.id)).state is State.CANCELLED
        assert there.schedule.next_at == there.schedule.last_end == world.now
        assert not there.schedule.waits

    @obligation("move", 3)
    async def test_of_two_jobs_with_one_key_in_a_call_the_first_is_made(self, world: World) -> None:
        for name in (A, B):
            await plans.add(world, name, plans.plan(unique=UNIQUE))
        world.clock.advance(HOUR)
        first, second = await plans.tick(world)

        found = {run.id: run.reason for run in await plans.runs(world)}
        assert found == {first.id: None, second.id: Reason.TAKEN}
        assert await world.is_there(JobId(first.id))

    @obligation("move", 3)
    async def test_a_key_that_is_free_is_taken_by_the_job_of_a_slot(self, world: World) -> None:
        raising = UniqueKey(key="a", on_conflict=OnConflict.RAISE)
        await plans.add(world, planned=plans.plan(unique=raising))
        await world.enqueue(RESIZE, unique=UNIQUE)  # a key is taken within its task
        run = await plans.fire(world)

        assert (await world.view(JobId(run.id))).unique == raising
        (answer,) = await world.store.enqueue([world.new(SEND, unique=UNIQUE)])
        assert (answer.id, answer.fresh) == (run.id, False)

    # 4

    @obligation("move", 4)
    async def test_who_waits_for_a_run_that_is_open_keeps_its_time(self, world: World) -> None:
        await plans.add(world, planned=plans.after_the_end())
        await plans.fire(world)
        there = await plans.schedule(world)

        assert there.waits
        assert there.next_at is None

    @obligation("move", 4)
    async def test_who_waits_for_a_run_that_has_ended_meanwhile_is_looked_at_at_once(self, world: World) -> None:
        await plans.add(world, planned=plans.plan(overlap=Overlap.QUEUE_ONE))
        await plans.fire(world)
        claim = await world.claim_one(await world.node())
        world.clock.advance(HOUR)
        (look,) = (await world.store.due(9)).looks
        decision = decide(look.schedule, world.now, world.id, busy=bool(look.open))
        assert decision.after
        assert decision.after.waits
        await world.end(claim, Succeeded())
        world.clock.advance("1s")
        assert await plans.accepted(world, decision)

        assert await plans.schedule(world) == replace(decision.after, next_at=world.now)

    @obligation("move", 4)
    @obligation("move", 3)
    async def test_who_waits_for_a_job_that_was_not_made_is_looked_at_at_once(self, world: World) -> None:
        await world.enqueue(unique=UNIQUE)
        await plans.add(world, planned=plans.after_the_end(unique=UNIQUE))
        world.clock.advance(HOUR)
        await plans.tick(world)
        there = await plans.schedule(world)

        assert there.next_at == world.now
        assert await plans.tick(world) == []  # and nothing turns in circles after that
        assert (await plans.schedule(world)).next_at == world.now + HOUR

    @obligation("move", 4)
    async def test_who_is_paused_and_waits_for_nothing_is_left_alone(self, world: World) -> None:
        """Or a ticker would find it due again and again: while it is paused, nothing is decided."""
        await plans.add(world, planned=plans.plan(overlap=Overlap.QUEUE_ONE))
        await plans.fire(world)
        world.clock.advance(HOUR)
        assert await plans.tick(world) == []
        there = await plans.schedule(world)
        assert there.waits
        await plans.written(world, pause(there, world.now))
        await world.command((await plans.look_at(world)).open[0], CancelJob())
        there = await plans.schedule(world)
        held = replace(there, waits=True, revision=there.revision + 1)
        await plans.written(world, Decision(before=there, after=held))

        assert await plans.schedule(world) == held
        assert (await world.store.due(9)).looks == ()
