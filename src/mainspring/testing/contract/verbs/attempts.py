# ruff: noqa: S101 -- a suite of tests is built on assert
"""What is kept of attempts that did not succeed."""

from mainspring.core.backoff import Backoff
from mainspring.core.command import CancelJob
from mainspring.core.job import Cause, Claim, State, claim_count
from mainspring.core.machine import Event
from mainspring.core.outcome import AttemptError, Interrupted, Outcome, Raised, Snoozed, Succeeded
from mainspring.stores.records import JobFilter
from mainspring.testing.contract.obligation import GENERAL, obligation
from mainspring.testing.contract.verbs.contract import Contract
from mainspring.testing.contract.world import ERROR, FATAL, RAISED, SECOND, World


class AttemptsContract(Contract):
    """What `settle` writes beside the job. Needs the roles Jobs, Nodes and Inspector."""

    @obligation("settle", 5)
    async def test_every_attempt_but_a_success_leaves_its_row_by_lease(self, world: World) -> None:
        node = await world.node()
        await world.enqueue(max_attempts=9, backoff=Backoff.fixed(0))
        ends: list[Outcome] = [RAISED, Snoozed(delay=0 * SECOND), Interrupted(started=True), RAISED, Succeeded()]
        for outcome in ends:
            await world.end(await world.claim_one(node), outcome)
        (job,) = (await world.store.list_jobs(JobFilter())).jobs

        rows = await world.store.attempts(job.job.id)

        assert [(claim_count(row.lease), row.attempt, row.event) for row in rows] == [
            (1, 1, Event.WILL_RETRY),
            (2, 2, Event.SNOOZED),
            (3, 2, Event.GIVEN_BACK),
            (4, 2, Event.WILL_RETRY),
        ]

    @obligation("settle", 5)
    async def test_the_last_hundred_attempts_of_each_job_are_kept(self, world: World) -> None:
        node = await world.node()
        other = await world.running(node)
        await world.end(other, FATAL)
        id_ = await world.enqueue()
        for _ in range(103):
            await world.end(await world.claim_one(node), Snoozed(delay=0 * SECOND))

        claims = [claim_count(row.lease) for row in await world.store.attempts(id_)]
        assert claims == list(range(4, 104))
        assert len(await world.store.attempts(other.job.id)) == 1

    @obligation("settle", 5)
    async def test_the_last_error_is_kept_until_there_is_another(self, world: World) -> None:
        node = await world.node()
        await world.enqueue(max_attempts=9, backoff=Backoff.fixed(0))
        errors = [AttemptError(type="E", message=str(number)) for number in range(2)]
        steps: list[tuple[Outcome, AttemptError]] = [
            (Raised(error=errors[0]), errors[0]),
            (Snoozed(delay=0 * SECOND), errors[0]),
            (Raised(error=errors[1]), errors[1]),
            (Succeeded(), errors[1]),
        ]
        for outcome, expected in steps:
            claim = await world.claim_one(node)
            await world.end(claim, outcome)
            assert (await world.view(claim.job.id)).error == expected

    @obligation("settle", 5)
    async def test_the_error_of_an_attempt_that_was_asked_to_stop_is_kept(self, world: World) -> None:
        node = await world.node()
        claim = await world.running(node)
        await world.command(claim.job.id, CancelJob())
        asked = Claim(job=await world.job(claim.job.id), node=node.id)
        await world.end(asked, RAISED)

        view = await world.view(claim.job.id)
        assert (view.job.state, view.error) == (State.CANCELLED, ERROR)
        (row,) = await world.store.attempts(claim.job.id)
        assert (row.event, row.error) == (Event.CANCELLED, ERROR)

    @obligation("settle", 1)
    async def test_text_that_has_no_encoding_does_not_keep_an_attempt_from_ending(self, world: World) -> None:
        """Such text comes from file names that are no UTF-8. How it is shown later is the store's own affair."""
        claim = await world.running(await world.node())
        await world.end(
            claim, Raised(error=AttemptError(type="OSError", message="bad \udcff name", traceback="\udcff"))
        )

        error = (await world.view(claim.job.id)).error
        assert error is not None
        assert (error.type, error.message[:4], error.message[-5:]) == ("OSError", "bad ", " name")

    @obligation("settle", 1)
    async def test_the_rules_for_losses_hold_on_the_store(self, world: World) -> None:
        """Poison after the loss limit, lost when no attempts are left; and neighbours go on."""
        poison = await world.enqueue(loss_limit=2, max_attempts=9)
        await world.lose(2, [poison])
        job = await world.job(poison)
        assert (job.state, job.cause, job.losses) == (State.FAILED, Cause.POISON, 2)

        last = await world.enqueue(loss_limit=9, max_attempts=1)
        await world.lose(1, [last])
        job = await world.job(last)
        assert (job.state, job.cause, job.losses) == (State.FAILED, Cause.LOST, 1)

        rows = await world.store.attempts(poison)
        assert [(row.event, row.error) for row in rows] == [(Event.LOST, None), (Event.FAILED, None)]

    @obligation(GENERAL, 4)
    async def test_who_decided_early_does_not_move_the_stores_time(self, world: World) -> None:
        claim = await world.running(await world.node())
        settlement = world.settlement(claim, FATAL)
        decided = world.now
        world.clock.advance("5s")
        await world.store.settle([settlement])

        assert (await world.job(claim.job.id)).finished_at == decided
        (row,) = await world.store.attempts(claim.job.id)
        assert row.ended_at == world.now
