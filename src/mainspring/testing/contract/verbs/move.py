# ruff: noqa: S101 -- a suite of tests is built on assert
"""How steps of schedules are written: whole or not at all, from the revision that they were decided on."""

import asyncio

import pytest
from msgspec.structs import replace

from mainspring.core.job import JobId, State
from mainspring.core.limits import MOMENT
from mainspring.core.missed import Reason
from mainspring.core.names import Name
from mainspring.core.outcome import Succeeded
from mainspring.core.rules import Manual
from mainspring.core.schedule import Decision, Origin, Run, Schedule
from mainspring.core.steps import backfill, create, decide, pause, remove, run_now
from mainspring.core.unique import UniqueKey
from mainspring.stores.port import Store
from mainspring.stores.records import Look, Move, SlotFacts
from mainspring.testing.contract import plans
from mainspring.testing.contract.obligation import GENERAL, obligation
from mainspring.testing.contract.plans import HOURLY
from mainspring.testing.contract.verbs.contract import Contract
from mainspring.testing.contract.verbs.sharing import given_up
from mainspring.testing.contract.verbs.wake import Bell, quiet
from mainspring.testing.contract.world import HOUR, World

A, B = Name("", "a"), Name("", "b")
UNIQUE = UniqueKey(key="a")


class MoveContract(Contract):
    """`move`, but for what it finds of jobs. Needs the roles Schedules, Jobs, Nodes, Inspector and Wake."""

    # 1

    @obligation("move")
    @obligation("move", 1)
    async def test_a_schedule_is_added_once(self, world: World) -> None:
        there = await plans.add(world)
        other = create(HOURLY, plans.plan(Manual()), world.now)

        assert not await plans.accepted(world, other)
        assert await plans.look_at(world) == Look(schedule=there)

    @obligation("move", 1)
    async def test_a_slot_moves_the_schedule_and_makes_a_run_and_its_job(self, world: World) -> None:
        before = await plans.add(world)
        world.clock.advance(HOUR)
        decision = decide(before, world.now, world.id, busy=False)
        assert await plans.accepted(world, decision)

        (run,) = decision.runs
        look = await plans.look_at(world)
        assert (look.schedule, look.open) == (decision.after, (run.id,))
        assert await plans.runs(world) == (run,)
        view = await world.view(JobId(run.id))
        assert view.job.state is State.READY
        assert view.job.of_schedule
        assert view.facts.slot == SlotFacts(schedule="hourly", slot=world.now)
        assert (await world.claim_one(await world.node())).job.id == run.id

    @obligation("move", 1)
    async def test_a_step_from_another_revision_leaves_nothing(self, world: World) -> None:
        before = await plans.add(world)
        await plans.fire(world)
        there, runs = await plans.look_at(world), await plans.runs(world)
        world.clock.advance(HOUR)

        for wrong in (before, replace(there.schedule, revision=there.schedule.revision + 1)):
            late = decide(wrong, world.now, world.id, busy=False)
            assert not await plans.accepted(world, late)
            assert await world.store.get([JobId(run.id) for run in late.runs]) == (None,) * len(late.runs)

        assert await plans.look_at(world) == there
        assert await plans.runs(world) == runs

    @obligation("move", 1)
    async def test_what_is_not_there_is_neither_changed_nor_taken_away(self, world: World) -> None:
        there = await plans.add(world)
        await plans.written(world, remove(there))

        for step in (remove(there), pause(there, world.now), run_now(there, world.now, world.id)):
            assert not await plans.accepted(world, step)
        assert (await world.store.look([HOURLY])).looks == ()
        assert await plans.runs(world) == ()
        assert await world.store.queues() == ()

    @obligation("move")
    @obligation("move", 1)
    async def test_what_is_not_accepted_does_not_hinder_the_other_steps(self, world: World) -> None:
        names = [Name("", letter) for letter in "abcd"]
        there = [await plans.add(world, name) for name in names]
        await plans.written(world, pause(there[1], world.now))
        await plans.written(world, remove(there[2]))
        steps = [plans.move_of(world, run_now(one, world.now, world.id)) for one in there]

        assert await world.store.move(steps) == (True, False, False, True)

        assert {str(run.schedule) for run in await plans.runs(world)} == {"a", "d"}
        views = await world.store.get([JobId(step.runs[0].id) for step in steps])
        assert [view is not None for view in views] == [True, False, False, True]

    @obligation("move", 1)
    async def test_a_step_of_one_that_was_removed_is_none_of_its_successor(self, world: World) -> None:
        before = await plans.add(world)
        await plans.written(world, remove(before))
        world.clock.advance(HOUR)
        await plans.add(world)

        assert await world.store.move([plans.move_of(world, run_now(before, world.now, world.id))]) == (False,)

    @obligation("move")
    async def test_no_steps_have_no_answers(self, world: World) -> None:
        assert await world.store.move([]) == ()

    @obligation("move", 1)
    async def test_the_steps_of_one_call_follow_one_another(self, world: World) -> None:
        """Such as to decide what is due under the old rule, and then to change that."""
        before = await plans.add(world)
        world.clock.advance(HOUR)
        owed = decide(before, world.now, world.id, busy=False)
        assert owed.after
        changed = replace(owed.after, plan=plans.plan(Manual()), revision=owed.after.revision + 1)
        by_hand = run_now(changed, world.now, world.id)

        steps = [owed, Decision(before=owed.after, after=changed), by_hand]
        assert await world.store.move([plans.move_of(world, step) for step in steps]) == (True, True, True)

        look = await plans.look_at(world)
        assert (look.schedule, look.open) == (by_hand.after, (by_hand.runs[0].id, owed.runs[0].id))

    @obligation("move", 1)
    async def test_a_run_is_written_over_what_is_there_under_its_id(self, world: World) -> None:
        there = await plans.add(world)
        before = drop(world, there, Reason.OVERLAPPED)
        await plans.written(world, plans.stepped(there, before))
        there = await plans.schedule(world)
        grown = replace(before, last=before.slot and before.slot + HOUR, count=2, decided_at=world.now + MOMENT)
        other = drop(world, there, Reason.SKIPPED)
        await plans.written(world, plans.stepped(there, grown, other))

        assert await plans.runs(world) == (other, grown)

    @obligation("move", 1)
    async def test_everything_about_a_run_is_kept(self, world: World) -> None:
        there = await plans.add(world)
        odd = Run(
            id=world.id(),
            schedule=there.name,
            decided_at=world.now + MOMENT,
            slot=world.now - HOUR,
            last=world.now - MOMENT,
            count=2**40,
            origin=Origin.BACKFILL,
            is_catch_up=True,
            zone="Australia/Lord_Howe",
            owner="späte Grüße 🕰",
            reason=Reason.TOO_OLD,
        )
        ended = Run(
            id=world.id(),
            schedule=there.name,
            decided_at=world.now,
            slot=world.now,
            state=State.FAILED,
            finished_at=world.now + MOMENT,
            error="ValueError: 'späte' \n Grüße 🕰",
        )
        by_hand = replace(ended, id=world.id(), slot=None, origin=Origin.MANUAL, state=State.CANCELLED, error=None)
        await plans.written(world, plans.stepped(there, odd, ended, by_hand))

        assert await plans.runs(world) == (by_hand, ended, odd)
        assert (await plans.look_at(world)).open == ()

    # 2

    @obligation("move", 2)
    async def test_of_two_steps_from_one_revision_the_first_is_accepted(self, world: World) -> None:
        there = await plans.add(world)
        steps = [plans.move_of(world, run_now(there, world.now, world.id)) for _ in range(2)]

        assert await world.store.move(steps) == (True, False)
        assert [run.id for run in await plans.runs(world)] == [steps[0].runs[0].id]
        new = [plans.move_of(world, create(A, plans.plan(), world.now)) for _ in range(2)]
        assert await world.store.move(new) == (True, False)

    @obligation("move", 2)
    @obligation(GENERAL, 3)
    async def test_one_slot_makes_one_job_however_many_fire_it(self, world: World) -> None:
        await plans.add(world)
        stores = [world.store, *[await world.open() for _ in range(4)]]
        looks = [await plans.look_at(world, store=store) for store in stores]
        for _ in range(5):
            world.clock.advance(HOUR)

            async def fire(store: Store, look: Look) -> bool:
                decision = decide(look.schedule, world.now, world.id, busy=False)
                return await plans.accepted(world, decision, store=store)

            pairs = zip(stores, looks, strict=True)
            answers = await asyncio.gather(*(asyncio.to_thread(asyncio.run, fire(*pair)) for pair in pairs))
            assert sorted(answers) == [False] * 4 + [True]
            looks = [await plans.look_at(world, store=store) for store in stores]

        assert len({str(look.schedule) for look in looks}) == 1
        runs = await plans.runs(world)
        assert len(runs) == len({run.slot for run in runs}) == 5
        assert {one.claim.job.id for one in await world.claim(await world.node(), room=9)} == {run.id for run in runs}

    @obligation("move", 2)
    async def test_a_slot_that_has_a_job_makes_no_other(self, world: World) -> None:
        await plans.add(world)
        first = await plans.fire(world)
        await world.end(await world.claim_one(await world.node()), Succeeded())
        slot, earlier = world.now, world.now - HOUR
        assert first.slot == slot
        there = await plans.look_at(world)

        again = backfill(there.schedule, [earlier, slot], world.now, world.id)
        assert not await plans.accepted(world, again)

        assert await plans.look_at(world) == there
        assert [run.id for run in await plans.runs(world)] == [first.id]
        assert await world.store.get([JobId(run.id) for run in again.runs]) == (None, None)
        assert await plans.accepted(world, backfill(there.schedule, [earlier], world.now, world.id))

    @obligation("move", 2)
    async def test_a_schedule_that_is_added_again_makes_no_second_job_of_a_slot(self, world: World) -> None:
        await plans.add(world)
        await plans.fire(world)
        await plans.written(world, remove(await plans.schedule(world)))
        there = await plans.add(world)

        assert not await plans.accepted(world, backfill(there, [world.now], world.now, world.id))

    @obligation("move", 2)
    async def test_one_step_cannot_make_two_jobs_of_a_slot(self, world: World) -> None:
        there = await plans.add(world)
        world.clock.advance(HOUR)

        assert not await plans.accepted(world, backfill(there, [world.now] * 2, world.now, world.id))
        steps = [plans.move_of(world, backfill(there, [world.now], world.now, world.id))]
        after = steps[0].after
        assert after
        steps.append(plans.move_of(world, backfill(after, [world.now], world.now, world.id)))
        assert await world.store.move(steps) == (True, False)
        assert len(await plans.runs(world)) == 1

    @obligation("move", 2)
    async def test_a_slot_that_made_no_job_may_still_make_one(self, world: World) -> None:
        there = await plans.add(world)
        await plans.written(world, plans.stepped(there, drop(world, there, Reason.PAUSED)))
        there = await plans.schedule(world)
        await plans.add(world, A)
        other = await plans.schedule(world, A)

        assert await plans.accepted(world, backfill(there, [world.now], world.now, world.id))
        assert await plans.accepted(world, backfill(other, [world.now], world.now, world.id))
        assert len(await plans.runs(world)) == 3

    # 5

    @obligation("move", 5)
    async def test_a_schedule_that_is_taken_away_leaves_its_runs_and_jobs(self, world: World) -> None:
        node = await world.node()
        await plans.add(world)
        first, second = await plans.fire(world), await plans.fire(world)
        claim = await world.claim_one(node)
        await plans.written(world, remove(await plans.schedule(world)))

        assert (await world.store.list_schedules()).looks == ()
        assert await plans.runs(world, HOURLY) == (second, first)
        await world.end(claim, Succeeded())
        assert (await plans.run_of(world, first.id)).state is State.SUCCEEDED
        assert (await world.claim_one(node)).job.id == second.id

    @obligation("move", 5)
    async def test_a_step_that_takes_a_schedule_away_may_tell_of_its_last_slots(self, world: World) -> None:
        there = await plans.add(world)
        last = drop(world, there, Reason.SKIPPED)
        await plans.written(world, Decision(before=there, after=None, runs=(last,)))

        assert await plans.runs(world) == (last,)

    # 6

    @obligation("move", 6)
    async def test_what_cannot_be_read_is_taken_away_from_where_it_stands(self, world: World) -> None:
        await plans.add(world)
        await plans.fire(world)
        there = await plans.schedule(world)
        newer = replace(plans.unreadable(there), revision=there.revision + 1)
        assert await plans.accepted(world, Decision(before=there, after=newer))
        (unread,) = (await world.store.look([HOURLY])).unread
        assert (unread.name, unread.revision) == (str(HOURLY), there.revision + 1)
        assert (await world.store.list_schedules()).unread == (unread,)

        earlier = replace(unread, revision=unread.revision - 1)
        assert await world.store.move([Move(before=earlier, after=None)]) == (False,)
        assert await world.store.move([Move(before=unread, after=None)] * 2) == (True, False)
        page = await world.store.list_schedules()
        assert (page.looks, page.unread) == ((), ())
        assert len(await plans.runs(world)) == 1
        await plans.add(world)

    # What holds for all verbs.

    @obligation("watch", 1)
    async def test_whatever_changes_a_schedule_rings(self, world: World) -> None:
        bell = Bell()
        stop = (await world.open()).watch(bell)
        node = await world.node()

        async def step(decision: Decision) -> None:
            await quiet(bell)
            await plans.written(world, decision)
            await bell.wait()

        await step(create(HOURLY, plans.after_the_end(), world.now))
        await step(run_now(await plans.schedule(world), world.now, world.id))
        await step(pause(await plans.schedule(world), world.now))
        claim = await world.claim_one(node)
        await quiet(bell)
        await world.end(claim, Succeeded())
        await bell.wait()
        await step(remove(await plans.schedule(world)))
        stop()

    @obligation(GENERAL, 2)
    @pytest.mark.parametrize("steps", range(8))
    async def test_a_move_that_was_given_up_is_done_whole_or_not_at_all(self, world: World, steps: int) -> None:
        there = [await plans.add(world, Name("", f"s{number}")) for number in range(10)]
        moves = [plans.move_of(world, run_now(one, world.now, world.id)) for one in there]
        await given_up(asyncio.ensure_future(world.store.move(moves)), steps)

        # In this order: what was given up may still be done between two looks, and then all of it.
        schedules = (await world.store.list_schedules()).looks
        runs = await plans.runs(world)
        views = await world.store.get([JobId(move.runs[0].id) for move in moves])
        moved = {look.schedule.revision for look in schedules}
        assert len(moved) == 1
        assert len(runs) in {0, 10}
        assert len({view is None for view in views}) == 1
        assert moved == {one.revision for one in there} or len(runs) == 10
        assert len(runs) == 0 or None not in views


def drop(world: World, found: Schedule, reason: Reason) -> Run:
    """A run that made no job."""
    return Run(
        id=world.id(),
        schedule=found.name,
        decided_at=world.now,
        slot=world.now,
        last=world.now,
        reason=reason,
    )
