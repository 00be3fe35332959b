# ruff: noqa: S101 -- a suite of tests is built on assert
"""Unique keys: how long they are taken, and what meets those that are."""

from datetime import timedelta

import pytest
from msgspec.structs import replace

from mainspring.core import machine
from mainspring.core.command import CancelJob, DeleteJob, MoveJob, RetryJob
from mainspring.core.job import JobId, Retention, State
from mainspring.core.limits import MOMENT
from mainspring.core.outcome import Snoozed, Succeeded
from mainspring.core.unique import OnConflict, UniqueKey
from mainspring.errors import Conflict
from mainspring.stores.records import Enqueued, Settled, Settlement, Verdict
from mainspring.testing.contract.obligation import obligation
from mainspring.testing.contract.verbs.contract import Contract
from mainspring.testing.contract.world import FATAL, HOUR, RAISED, RESIZE, SEND, World

A = UniqueKey(key="a")
A_FOR_AN_HOUR = UniqueKey(key="a", period=HOUR)
REPLACE_A = UniqueKey(key="a", on_conflict=OnConflict.REPLACE)
RAISE_A = UniqueKey(key="a", on_conflict=OnConflict.RAISE)


class UniqueContract(Contract):
    """Unique keys in `enqueue` and `settle`. Needs the roles Jobs, Nodes and Inspector."""

    @obligation("enqueue", 3)
    async def test_a_key_is_taken_while_its_job_waits_runs_and_retries(self, world: World) -> None:
        node = await world.node()
        holder = await world.enqueue(unique=A)
        assert await who_has_a(world) == holder

        claim = await world.claim_one(node)
        assert await who_has_a(world) == holder

        await world.end(claim, RAISED)
        assert await who_has_a(world) == holder

        world.clock.advance("1h")
        await world.end(await world.claim_one(node), Snoozed(delay=HOUR))
        assert await who_has_a(world) == holder

    @obligation("enqueue", 3)
    @obligation("settle", 5)
    async def test_a_key_is_free_once_its_job_has_finished(self, world: World) -> None:
        node = await world.node()
        for outcome in (Succeeded(), FATAL):
            await world.end(await world.running(node, unique=A), outcome)
            assert await who_has_a(world) is None
        cancelled = await world.enqueue(unique=A)
        await world.command(cancelled, CancelJob())
        assert await who_has_a(world) is None

    @obligation("enqueue", 3)
    async def test_a_key_is_taken_within_its_task_only(self, world: World) -> None:
        await world.enqueue(SEND, unique=A)

        (other,) = await world.store.enqueue([world.new(RESIZE, unique=A)])
        assert other.fresh

    @obligation("enqueue", 3)
    async def test_a_key_with_a_period_stays_taken_for_that_long_from_the_enqueue(self, world: World) -> None:
        node = await world.node()
        await world.enqueue(run_at=timedelta(minutes=30), unique=A_FOR_AN_HOUR)
        world.clock.advance("30m")
        claim = await world.claim_one(node)
        await world.end(claim, Succeeded())

        world.clock.advance(timedelta(minutes=30) - MOMENT)
        assert await who_has_a(world) == claim.job.id
        world.clock.advance(MOMENT)
        assert await who_has_a(world) is None

    @obligation("enqueue", 3)
    async def test_a_period_that_has_passed_frees_no_active_job(self, world: World) -> None:
        holder = await world.enqueue(run_at=timedelta(days=2), unique=A_FOR_AN_HOUR)
        world.clock.advance("1d")

        assert await who_has_a(world) == holder

    @obligation("enqueue", 3)
    async def test_a_period_is_not_shortened_by_the_time_for_which_its_job_is_kept(self, world: World) -> None:
        short = Retention(succeeded=timedelta(minutes=1))
        claim = await world.running(await world.node(), unique=A_FOR_AN_HOUR, retention=short)
        await world.end(claim, Succeeded())
        world.clock.advance("30m")
        while await world.store.prune(100):
            pass
        assert not await world.is_there(claim.job.id)

        assert await who_has_a(world) == claim.job.id
        world.clock.advance("30m")
        assert await who_has_a(world) is None

    @obligation("enqueue", 3)
    async def test_return_answers_with_the_job_that_has_the_key_and_leaves_it_alone(self, world: World) -> None:
        holder = await world.enqueue(unique=A)
        before = await world.view(holder)
        new = world.new(unique=A, payload=b"other")

        assert await world.store.enqueue([new]) == (Enqueued(id=holder, fresh=False),)
        assert await world.view(holder) == before
        assert not await world.is_there(new.id)

    @obligation("enqueue", 3)
    async def test_replace_cancels_a_waiting_job_as_an_operator_would(self, world: World) -> None:
        old = await world.enqueue(unique=A)
        world.clock.advance("1m")
        expected = machine.command(await world.job(old), CancelJob(), world.now).after

        new = await world.enqueue(unique=REPLACE_A)

        assert await world.job(old) == expected
        assert (await world.job(new)).state is State.READY
        assert await who_has_a(world) == new

    @obligation("enqueue", 3)
    async def test_replace_takes_a_retrying_job_too(self, world: World) -> None:
        claim = await world.running(await world.node(), unique=A)
        await world.end(claim, RAISED)

        new = await world.enqueue(unique=REPLACE_A)

        assert (await world.job(claim.job.id)).state is State.CANCELLED
        assert await who_has_a(world) == new

    @obligation("enqueue", 3)
    async def test_replace_leaves_a_running_job_and_answers_with_it(self, world: World) -> None:
        claim = await world.running(await world.node(), unique=A)
        new = world.new(unique=REPLACE_A)

        assert await world.store.enqueue([new]) == (Enqueued(id=claim.job.id, fresh=False),)
        assert await world.job(claim.job.id) == claim.job

    @obligation("enqueue", 3)
    async def test_replace_answers_with_a_finished_job_whose_period_has_not_passed(self, world: World) -> None:
        claim = await world.running(await world.node(), unique=A_FOR_AN_HOUR)
        await world.end(claim, Succeeded())

        assert await world.store.enqueue([world.new(unique=REPLACE_A)]) == (Enqueued(id=claim.job.id, fresh=False),)

    @obligation("enqueue", 3)
    async def test_what_was_replaced_does_not_free_the_key_of_what_replaced_it(self, world: World) -> None:
        old = await world.enqueue(unique=A)
        new = await world.enqueue(unique=REPLACE_A)

        await world.command(old, DeleteJob())

        assert await who_has_a(world) == new

    @obligation("enqueue", 3)
    async def test_raise_names_the_job_that_has_the_key(self, world: World) -> None:
        holder = await world.enqueue(unique=A)
        with pytest.raises(Conflict) as caught:
            await world.store.enqueue([world.new(unique=RAISE_A)])

        assert (caught.value.task, caught.value.key, caught.value.job) == (str(SEND), "a", str(holder))

    @obligation("enqueue", 3)
    async def test_raise_takes_a_key_that_is_free(self, world: World) -> None:
        holder = await world.enqueue(unique=RAISE_A)

        assert await who_has_a(world) == holder

    @obligation("enqueue", 3)
    async def test_return_meets_earlier_jobs_of_its_batch(self, world: World) -> None:
        first, second = world.new(unique=A), world.new(unique=A)

        assert await world.store.enqueue([first, second]) == (
            Enqueued(id=first.id, fresh=True),
            Enqueued(id=first.id, fresh=False),
        )
        assert not await world.is_there(second.id)

    @obligation("enqueue", 3)
    async def test_replace_meets_earlier_jobs_of_its_batch(self, world: World) -> None:
        first, second, third = (world.new(unique=REPLACE_A) for _ in range(3))
        answers = await world.store.enqueue([first, second, third])

        assert [one.id for one in answers if one.fresh] == [first.id, second.id, third.id]
        states = [view and view.job.state for view in await world.store.get([first.id, second.id, third.id])]
        assert states == [State.CANCELLED, State.CANCELLED, State.READY]
        assert await who_has_a(world) == third.id

    @obligation("enqueue", 3)
    async def test_raise_meets_earlier_jobs_of_its_batch(self, world: World) -> None:
        first, second = world.new(unique=A), world.new(unique=RAISE_A)
        with pytest.raises(Conflict):
            await world.store.enqueue([first, second])

        assert not await world.is_there(first.id)
        assert await who_has_a(world) is None

    @obligation("enqueue", 3)
    async def test_a_moved_job_keeps_its_key(self, world: World) -> None:
        holder = await world.enqueue(unique=A)
        await world.command(holder, MoveJob(queue="other", priority=1))

        assert await who_has_a(world) == holder

    @obligation("settle", 6)
    async def test_a_retried_job_takes_its_key_again(self, world: World) -> None:
        job = await failed(world, A)
        assert await world.command(job, RetryJob()) is Verdict.ACCEPTED

        assert await who_has_a(world) == job

    @obligation("settle", 6)
    async def test_a_retry_conflicts_with_the_job_that_has_the_key_now(self, world: World) -> None:
        node = await world.node()
        job = await failed(world, A)
        other = await world.running(node, unique=A)
        before = await world.view(job)

        change = machine.command(before.job, RetryJob(), world.now)
        (settled,) = await world.store.settle([Settlement(change=change)])
        assert settled == Settled(verdict=Verdict.CONFLICT, holder=other.job.id)
        assert await world.view(job) == before
        assert await who_has_a(world) == other.job.id

        await world.end(other, Succeeded())
        assert await world.command(job, RetryJob()) is Verdict.ACCEPTED

    @obligation("settle", 6)
    async def test_a_retry_conflicts_with_a_period_that_has_not_passed(self, world: World) -> None:
        node = await world.node()
        job = await failed(world, A)
        other = await world.running(node, unique=A_FOR_AN_HOUR)
        await world.end(other, Succeeded())

        assert await world.command(job, RetryJob()) is Verdict.CONFLICT
        world.clock.advance("1h")
        assert await world.command(job, RetryJob()) is Verdict.ACCEPTED

    @obligation("settle", 6)
    async def test_a_retry_does_not_conflict_with_its_own_period(self, world: World) -> None:
        job = await failed(world, A_FOR_AN_HOUR)

        assert await world.command(job, RetryJob()) is Verdict.ACCEPTED

    @obligation("settle", 6)
    async def test_one_conflict_does_not_hinder_the_others(self, world: World) -> None:
        blocked, free = await failed(world, A), await failed(world, UniqueKey(key="b"))
        await world.enqueue(unique=A)
        changes = [machine.command(await world.job(job), RetryJob(), world.now) for job in (blocked, free)]

        settled = await world.store.settle([Settlement(change=change) for change in changes])

        assert [one.verdict for one in settled] == [Verdict.CONFLICT, Verdict.ACCEPTED]

    @obligation("settle", 6)
    async def test_who_had_the_key_before_does_not_free_it_later(self, world: World) -> None:
        retried = await failed(world, A)
        former = await failed(world, A)
        await world.command(retried, RetryJob())

        await world.command(former, DeleteJob())

        assert await who_has_a(world) == retried

    @obligation("settle", 7)
    async def test_deleting_a_job_frees_its_key_in_its_period_too(self, world: World) -> None:
        waiting = await world.enqueue(unique=A)
        await world.command(waiting, DeleteJob())
        assert await who_has_a(world) is None

        finished = await failed(world, A_FOR_AN_HOUR)
        assert await who_has_a(world) == finished
        await world.command(finished, DeleteJob())
        assert await who_has_a(world) is None


async def who_has_a(world: World) -> JobId | None:
    """Ask by an enqueue that conflicts; one that does not is taken back."""
    probe = replace(world.new(unique=A), run_at=timedelta(days=99))
    (answer,) = await world.store.enqueue([probe])
    if not answer.fresh:
        return answer.id
    await world.command(probe.id, DeleteJob())
    return None


async def failed(world: World, unique: UniqueKey) -> JobId:
    node = await world.node()
    claim = await world.running(node, unique=unique)
    await world.end(claim, FATAL)
    return claim.job.id
