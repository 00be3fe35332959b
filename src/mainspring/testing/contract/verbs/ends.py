# ruff: noqa: S101 -- a suite of tests is built on assert
"""How runs end: with their jobs, and schedules that wait for that are looked at again."""

from collections.abc import Awaitable, Callable
from typing import TypeAlias

import pytest
from msgspec.structs import replace

from mainspring.core.command import CancelJob, DeleteJob, MoveJob, RetryJob
from mainspring.core.job import Claim, JobId, State
from mainspring.core.names import Name
from mainspring.core.outcome import (
    AttemptError,
    Deferred,
    Expired,
    Interrupted,
    Lost,
    NoSuchTask,
    Outcome,
    Raised,
    Snoozed,
    Succeeded,
    Unreadable,
)
from mainspring.core.steps import pause, run_now
from mainspring.core.unique import OnConflict, UniqueKey
from mainspring.stores.records import JobFilter, Place, Verdict
from mainspring.testing.contract import plans
from mainspring.testing.contract.obligation import obligation
from mainspring.testing.contract.verbs.contract import Contract
from mainspring.testing.contract.verbs.keeping import prune_all
from mainspring.testing.contract.world import DAY, ERROR, FATAL, HOUR, SECOND, Member, World

A, B = Name("", "a"), Name("", "b")
REPLACE = UniqueKey(key="a", on_conflict=OnConflict.REPLACE)

Ending: TypeAlias = Callable[[World, Member, JobId], Awaitable[object]]
"""Brings a schedule's waiting job to its end."""


def by(outcome: Outcome) -> Ending:
    async def end(world: World, node: Member, job: JobId) -> None:
        claim = await world.claim_one(node)
        assert claim.job.id == job
        await world.end(claim, outcome)

    return end


def says(message: str) -> Raised:
    return Raised(error=AttemptError(type="ValueError", message=message), retryable=False)


async def cancelled_before_it_ran(world: World, _: Member, job: JobId) -> None:
    assert await world.command(job, CancelJob()) is Verdict.ACCEPTED


async def cancelled_while_it_ran(world: World, node: Member, job: JobId) -> None:
    claim = await world.claim_one(node)
    assert await world.command(job, CancelJob()) is Verdict.ACCEPTED
    assert (await plans.run_of(world, job)).is_open
    await world.end(Claim(job=await world.job(job), node=claim.node), Raised(error=ERROR))


async def lost(world: World, node: Member, job: JobId) -> None:
    victim = await world.node()
    assert (await world.claim_one(victim)).job.id == job
    await world.kill(victim)
    assert await world.reap(node) == [Verdict.ACCEPTED]


async def replaced(world: World, _: Member, job: JobId) -> None:
    await world.enqueue(unique=REPLACE)
    assert (await world.job(job)).state is State.CANCELLED


async def deleted(world: World, _: Member, job: JobId) -> None:
    assert await world.command(job, DeleteJob()) is Verdict.ACCEPTED


ENDINGS: dict[str, tuple[Ending, State, str | None]] = {
    "success": (by(Succeeded(b"1")), State.SUCCEEDED, None),
    "failure": (by(FATAL), State.FAILED, "ValueError: no"),
    "failure that says much": (by(says("\n first\nsecond")), State.FAILED, "ValueError:  first"),
    "failure that says all in one line": (by(says("x" * 5000)), State.FAILED, "ValueError: " + "x" * 187 + "…"),
    "failure that says nothing": (by(says("\n")), State.FAILED, "ValueError"),
    "no attempts left": (by(Raised(error=ERROR)), State.FAILED, "ValueError: no"),
    "expired": (by(Expired()), State.FAILED, "expired"),
    "unknown task": (by(NoSuchTask()), State.FAILED, "unknown_task"),
    "unreadable": (by(Unreadable(ERROR)), State.FAILED, "ValueError: no"),
    "lost": (lost, State.FAILED, "lost"),
    "cancelled before it ran": (cancelled_before_it_ran, State.CANCELLED, None),
    "cancelled while it ran": (cancelled_while_it_ran, State.CANCELLED, None),
    "replaced": (replaced, State.CANCELLED, None),
    "deleted": (deleted, State.CANCELLED, None),
}
every_ending = pytest.mark.parametrize("ending", ENDINGS)


async def released(world: World, node: Member, claim: Claim) -> None:
    await world.store.release(node.id, [Place(claim.job.id, claim.job.lease)])


async def mended(world: World, node: Member, _: Claim) -> None:
    await world.kill(node)
    assert await world.store.mend(9) == 1


async def deleted_later(world: World, _: Member, claim: Claim) -> None:
    assert await world.command(claim.job.id, DeleteJob()) is Verdict.ACCEPTED


async def pruned(world: World, _: Member, claim: Claim) -> None:
    world.clock.advance("8d")
    await prune_all(world)
    assert not await world.is_there(claim.job.id)


LETTING_GO: dict[str, Callable[[World, Member, Claim], Awaitable[object]]] = {
    "released": released,
    "mended after its node died": mended,
    "deleted by an operator": deleted_later,
    "pruned": pruned,
}
every_letting_go = pytest.mark.parametrize("letting_go", LETTING_GO)

GOES_ON: list[Outcome] = [
    Raised(error=ERROR),
    Snoozed(delay=0 * SECOND),
    Deferred(delay=0 * SECOND),
    Interrupted(started=True),
    Lost(),
]


class EndsContract(Contract):
    """`settle` as far as runs go. Needs the roles Schedules, Jobs, Nodes and Inspector."""

    @obligation("settle", 8)
    @every_ending
    async def test_a_run_ends_with_its_job(self, world: World, ending: str) -> None:
        end, state, error = ENDINGS[ending]
        node = await world.node()
        there = await plans.add(world, planned=plans.plan(unique=REPLACE))
        other = await plans.add(world, A)
        run = await plans.written_run(world, there)
        bystander = await plans.written_run(world, other, run_at=DAY)
        there = await plans.schedule(world)
        world.clock.advance("1m")
        await end(world, node, JobId(run.id))

        expected = replace(run, state=state, finished_at=world.now, error=error)
        assert await plans.run_of(world, run.id) == expected
        assert await plans.run_of(world, bystander.id) == bystander
        look = await plans.look_at(world)
        assert (look.schedule, look.open) == (there, ())

    @obligation("settle", 8)
    @every_ending
    async def test_a_schedule_that_waits_for_the_end_of_a_run_is_looked_at_again(
        self, world: World, ending: str
    ) -> None:
        end, _, _ = ENDINGS[ending]
        node = await world.node()
        there = await plans.add(world, planned=plans.plan(unique=REPLACE))
        run = await plans.written_run(world, there, waits=True)
        there = await plans.schedule(world)
        world.clock.advance("1m")
        await end(world, node, JobId(run.id))

        woken = await plans.schedule(world)
        assert there.waits
        assert woken.revision > there.revision
        expected = replace(there, waits=False, next_at=world.now, last_end=world.now, revision=woken.revision)
        assert woken == expected
        (look,) = (await world.store.due(9)).looks
        assert look.schedule == woken

    @obligation("settle", 8)
    @every_ending
    async def test_a_paused_schedule_hears_of_the_end_and_stays_where_it_is(self, world: World, ending: str) -> None:
        end, _, _ = ENDINGS[ending]
        node = await world.node()
        there = await plans.add(world, planned=plans.plan(unique=REPLACE))
        run = await plans.written_run(world, there, waits=True)
        await plans.written(world, pause(await plans.schedule(world), world.now))
        there = await plans.schedule(world)
        world.clock.advance("1m")
        await end(world, node, JobId(run.id))

        heard = await plans.schedule(world)
        assert (heard.waits, heard.next_at, heard.last_end) == (False, None, world.now)
        assert heard.revision > there.revision
        assert (await world.store.due(9)).looks == ()

    @obligation("settle", 11)
    @obligation("release", 2)
    @every_letting_go
    async def test_a_run_stays_open_while_a_body_of_its_job_goes_on(self, world: World, letting_go: str) -> None:
        node = await world.node()
        there = await plans.add(world, planned=plans.plan())
        run = await plans.written_run(world, there, waits=True)
        there = await plans.schedule(world)
        claim = await world.claim_one(node)
        world.clock.advance("1m")
        await world.end(claim, FATAL, keeps_place=True)

        ended = replace(run, state=State.FAILED, finished_at=world.now, error="ValueError: no", lingers=True)
        assert await plans.run_of(world, run.id) == ended
        look = await plans.look_at(world)
        assert (look.schedule, look.open) == (there, (run.id,))
        await prune_all(world)
        await world.store.mend(9)
        assert (await plans.run_of(world, run.id)).lingers

        await LETTING_GO[letting_go](world, node, claim)
        assert await plans.run_of(world, run.id) == replace(ended, lingers=False)
        look = await plans.look_at(world)
        expected = replace(there, waits=False, next_at=world.now, last_end=world.now, revision=look.schedule.revision)
        assert look.schedule.revision > there.revision
        assert (look.schedule, look.open) == (expected, ())

    @obligation("settle", 11)
    async def test_a_run_stays_open_while_a_body_of_an_earlier_attempt_goes_on(self, world: World) -> None:
        node = await world.node()
        run = await plans.written_run(world, await plans.add(world), waits=True)
        first = await world.claim_one(node)
        await world.end(first, Snoozed(delay=0 * SECOND), keeps_place=True)
        second = await world.claim_one(node)
        await world.end(second, Succeeded(), keeps_place=True)
        places = [Place(one.job.id, one.job.lease) for one in (first, second)]

        await world.store.release(node.id, [places[1]])
        assert (await plans.run_of(world, run.id)).lingers
        assert (await plans.schedule(world)).waits
        await world.store.release(node.id, [places[0]])
        assert not (await plans.run_of(world, run.id)).is_open
        assert not (await plans.schedule(world)).waits

    @obligation("settle", 11)
    async def test_the_retry_of_a_job_with_a_body_that_goes_on_opens_its_run_for_the_next(self, world: World) -> None:
        node = await world.node()
        run = await plans.written_run(world, await plans.add(world), waits=True)
        claim = await world.claim_one(node)
        await world.end(claim, FATAL, keeps_place=True)
        assert await world.command(claim.job.id, RetryJob()) is Verdict.ACCEPTED
        await world.store.release(node.id, [Place(claim.job.id, claim.job.lease)])

        assert await plans.run_of(world, run.id) == run
        await world.end(await world.claim_one(node), Succeeded())
        assert not (await plans.run_of(world, run.id)).is_open

    @obligation("settle", 8)
    async def test_what_was_decided_before_the_end_of_a_run_is_decided_again(self, world: World) -> None:
        node = await world.node()
        there = await plans.add(world)
        await plans.written_run(world, there, waits=True)
        before = await plans.schedule(world)
        await world.end(await world.claim_one(node), Succeeded())

        assert not await plans.accepted(world, run_now(before, world.now, world.id))

    @obligation("settle", 8)
    @pytest.mark.parametrize("outcome", GOES_ON, ids=lambda outcome: type(outcome).__name__)
    async def test_a_run_whose_job_goes_on_stays_open(self, world: World, outcome: Outcome) -> None:
        node, reaper = await world.node(), await world.node()
        there = await plans.add(world)
        run = await plans.written_run(world, there, waits=True, max_attempts=3)
        there = await plans.schedule(world)
        claim = await world.claim_one(node)
        if isinstance(outcome, Lost):
            await world.kill(node)
            assert await world.reap(reaper) == [Verdict.ACCEPTED]
        else:
            await world.end(claim, outcome)
        world.clock.advance("1m")
        await world.command(JobId(run.id), MoveJob(priority=7))
        assert (await world.claim_one(reaper)).job.id == run.id
        await world.command(JobId(run.id), CancelJob())  # a request, for now

        look = await plans.look_at(world)
        assert (look.schedule, look.open) == (there, (run.id,))
        assert await plans.runs(world) == (run,)

    @obligation("settle", 8)
    async def test_a_job_that_kills_its_workers_ends_its_run(self, world: World) -> None:
        there = await plans.add(world)
        run = await plans.written_run(world, there, max_attempts=9, loss_limit=2)
        await world.lose(2, [JobId(run.id)])

        ended = await plans.run_of(world, run.id)
        assert (ended.state, ended.error) == (State.FAILED, "poison")

    @obligation("settle", 8)
    @pytest.mark.parametrize("ending", ["failure", "cancelled before it ran", "cancelled while it ran"])
    async def test_a_retry_opens_the_run_again(self, world: World, ending: str) -> None:
        end, _, _ = ENDINGS[ending]
        node = await world.node()
        there = await plans.add(world)
        run = await plans.written_run(world, there)
        there = await plans.schedule(world)
        await end(world, node, JobId(run.id))
        assert await world.command(JobId(run.id), RetryJob()) is Verdict.ACCEPTED

        look = await plans.look_at(world)
        assert (look.schedule, look.open) == (there, (run.id,))
        assert await plans.runs(world) == (run,)
        world.clock.advance("1m")
        await world.end(await world.claim_one(node), Succeeded())
        assert await plans.runs(world) == (replace(run, state=State.SUCCEEDED, finished_at=world.now),)

    @obligation("settle", 8)
    async def test_a_retry_is_no_end_that_a_schedule_could_wait_for(self, world: World) -> None:
        there = await plans.add(world)
        first = await plans.written_run(world, there)
        await world.end(await world.claim_one(await world.node()), FATAL)
        second = await plans.written_run(world, await plans.schedule(world), waits=True)
        there = await plans.schedule(world)
        await world.command(JobId(first.id), RetryJob())

        look = await plans.look_at(world)
        assert (look.schedule, look.open) == (there, (second.id, first.id))

    @obligation("settle", 8)
    async def test_a_finished_job_that_is_deleted_leaves_its_run_as_it_ended(self, world: World) -> None:
        node = await world.node()
        there = await plans.add(world)
        run = await plans.written_run(world, there, waits=True)
        await world.end(await world.claim_one(node), FATAL)
        before, ended = await plans.schedule(world), await plans.run_of(world, run.id)
        world.clock.advance("1m")
        assert await world.command(JobId(run.id), DeleteJob()) is Verdict.ACCEPTED

        assert await plans.run_of(world, run.id) == ended
        assert await plans.schedule(world) == before

    @obligation("settle", 8)
    async def test_an_end_that_is_not_accepted_does_not_end_the_run(self, world: World) -> None:
        first, second = await world.node(), await world.node()
        there = await plans.add(world)
        run = await plans.written_run(world, there, waits=True, max_attempts=9)
        there = await plans.schedule(world)
        old = await world.claim_one(first)
        await world.end(old, Snoozed(delay=0 * SECOND))
        new = await world.claim_one(second)
        assert (await world.settle(old, Succeeded())).verdict is Verdict.REPEATED
        await world.command(JobId(run.id), CancelJob())
        assert (await world.settle(new, FATAL)).verdict is Verdict.STALE
        await world.kill(second)
        late = Claim(job=await world.job(new.job.id), node=second.id)
        assert (await world.settle(late, Succeeded())).verdict is Verdict.REFUSED

        look = await plans.look_at(world)
        assert (look.schedule, look.open) == (there, (run.id,))

    @obligation("settle", 8)
    async def test_an_end_that_is_told_twice_wakes_the_schedule_once(self, world: World) -> None:
        there = await plans.add(world)
        await plans.written_run(world, there, waits=True)
        settlement = world.settlement(await world.claim_one(await world.node()), Succeeded())
        verdicts = [one.verdict for one in await world.store.settle([settlement] * 2)]
        assert verdicts == [Verdict.ACCEPTED, Verdict.REPEATED]
        there = await plans.schedule(world)
        world.clock.advance("1m")
        (again,) = await world.store.settle([settlement])

        assert again.verdict is Verdict.REPEATED
        assert await plans.schedule(world) == there

    @obligation("settle", 8)
    async def test_a_batch_ends_the_runs_of_those_jobs_that_have_one(self, world: World) -> None:
        node = await world.node()
        a, b = await plans.add(world, A), await plans.add(world, B)
        first, second = await plans.written_run(world, a, waits=True), await plans.written_run(world, b)
        plain = [await world.enqueue() for _ in range(3)]
        third = await plans.written_run(world, await plans.schedule(world, A), waits=True)
        claims = {one.claim.job.id: one.claim for one in await world.claim(node, room=9)}
        assert len(claims) == 6
        ends: list[tuple[JobId, Outcome]] = [
            (plain[0], Succeeded()),
            (JobId(first.id), Succeeded()),
            (JobId(third.id), FATAL),
            (plain[1], FATAL),
            (JobId(second.id), Succeeded()),
            (plain[2], Succeeded()),
        ]
        settled = await world.store.settle([world.settlement(claims[job], outcome) for job, outcome in ends])

        assert {one.verdict for one in settled} == {Verdict.ACCEPTED}
        states = {run.id: run.state for run in await plans.runs(world)}
        assert states == {first.id: State.SUCCEEDED, second.id: State.SUCCEEDED, third.id: State.FAILED}
        assert (await plans.schedule(world, A)).next_at == world.now
        assert [look.open for look in (await world.store.list_schedules()).looks] == [(), ()]

    @obligation("settle", 8)
    async def test_the_retry_of_a_job_whose_run_is_gone_is_no_trouble(self, world: World) -> None:
        node = await world.node()
        there = await plans.add(world, planned=plans.plan(keep_runs=HOUR))
        run = await plans.written_run(world, there, waits=True)
        await world.end(await world.claim_one(node), FATAL)
        world.clock.advance("2h")
        await prune_all(world)
        assert await plans.runs(world) == ()

        assert await world.command(JobId(run.id), RetryJob()) is Verdict.ACCEPTED
        await world.end(await world.claim_one(node), Succeeded())
        assert await plans.runs(world) == ()

    @obligation("settle", 8)
    @obligation("claim", 1)
    @obligation("orphans")
    @obligation("get")
    @obligation("list_jobs")
    async def test_a_job_knows_whether_a_schedule_made_it(self, world: World) -> None:
        node, reaper = await world.node(), await world.node()
        there = await plans.add(world)
        plain = await world.enqueue()
        run = await plans.written_run(world, there, max_attempts=9)
        expected = {plain: False, JobId(run.id): True}
        claims = [one.claim for one in await world.claim(node, room=9)]
        assert {claim.job.id: claim.job.of_schedule for claim in claims} == expected
        for claim in claims:
            await world.command(claim.job.id, CancelJob())
        stale = await world.store.settle([world.settlement(claim, FATAL) for claim in claims])
        assert {one.job.id: one.job.of_schedule for one in stale if one.job} == expected
        await world.kill(node)
        orphans = await world.store.orphans(9)
        assert {claim.job.id: claim.job.of_schedule for claim in orphans} == expected
        await world.reap(reaper)
        page = await world.store.list_jobs(JobFilter())
        assert {view.job.id: view.job.of_schedule for view in page.jobs} == expected
        for job in expected:
            await world.command(job, RetryJob())
        again = await world.claim(reaper, room=9)
        assert {one.claim.job.id: one.claim.job.of_schedule for one in again} == expected
        assert {one.claim.job.id: one.facts.slot is not None for one in again} == expected
        assert {view.job.id: view.job.of_schedule for view in await world.store.get([*expected]) if view} == expected
