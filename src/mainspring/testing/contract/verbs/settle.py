# ruff: noqa: S101 -- a suite of tests is built on assert
"""How changes are written: whole or not at all, and once."""

from datetime import timedelta

import pytest

from mainspring.core import machine
from mainspring.core.backoff import Backoff
from mainspring.core.command import CancelJob, DeleteJob, MoveJob, RetryJob
from mainspring.core.job import Cause, Claim, State
from mainspring.core.machine import Event
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
)
from mainspring.stores.records import AttemptView, JobFilter, LogLine, Note, Settled, Settlement, Verdict
from mainspring.testing.contract.obligation import GENERAL, obligation
from mainspring.testing.contract.verbs.contract import Contract
from mainspring.testing.contract.world import ERROR, FATAL, RAISED, SECOND, World

ENDS: list[Outcome] = [
    Succeeded(b"42"),
    Succeeded(),
    RAISED,
    FATAL,
    Raised(error=ERROR, retry_in=timedelta(minutes=3)),
    Snoozed(delay=timedelta(minutes=3), reason="not yet"),
    Deferred(delay=timedelta(minutes=3), reason="breaker"),
    Interrupted(started=True),
    Interrupted(started=False),
    Expired(),
    NoSuchTask(),
]


class SettleContract(Contract):
    """`settle`, but for its fences and unique keys. Needs the roles Jobs, Nodes and Inspector."""

    @obligation("settle", 1)
    @obligation("settle", 5)
    @pytest.mark.parametrize("outcome", ENDS, ids=lambda outcome: type(outcome).__name__)
    async def test_the_end_of_an_attempt_is_written_whole(self, world: World, outcome: Outcome) -> None:
        node = await world.node()
        claim = await world.running(node, expires=timedelta(hours=1))
        started = world.now
        world.clock.advance("2s")
        settlement = world.settlement(claim, outcome, seconds=1.75)
        world.clock.advance("1s")  # a node decides a little before the store writes

        assert await world.store.settle([settlement]) == (Settled(verdict=Verdict.ACCEPTED),)
        view = await world.view(claim.job.id)
        assert view.job == settlement.change.after
        assert (view.node, view.started_at, view.seconds) == (node.id, started, 1.75)
        error = outcome.error if isinstance(outcome, Raised) else None
        assert view.error == error
        assert view.result == (outcome.result if isinstance(outcome, Succeeded) else None)
        expected = AttemptView(
            job=claim.job.id,
            lease=1,
            attempt=1,
            node=node.id,
            event=settlement.change.event,
            started_at=started,
            ended_at=world.now,
            seconds=1.75,
            error=error,
            reason=outcome.reason if isinstance(outcome, Snoozed | Deferred) else "",
        )
        rows = () if isinstance(outcome, Succeeded) else (expected,)
        assert await world.store.attempts(claim.job.id) == rows

    @obligation("settle", 1)
    async def test_a_change_that_was_decided_on_an_older_job_is_stale(self, world: World) -> None:
        claim = await world.running(await world.node())
        await world.command(claim.job.id, CancelJob())
        asked = await world.job(claim.job.id)

        settled = await world.settle(claim, RAISED)

        assert settled == Settled(verdict=Verdict.STALE, job=asked)
        assert await world.job(claim.job.id) == asked
        assert await world.store.attempts(claim.job.id) == ()
        assert settled.job
        again = await world.settle(Claim(job=settled.job, node=claim.node), RAISED)
        assert again.verdict is Verdict.ACCEPTED
        assert (await world.job(claim.job.id)).state is State.CANCELLED

    @obligation("settle", 1)
    async def test_a_command_that_was_decided_on_an_older_job_is_stale(self, world: World) -> None:
        node = await world.node()
        id_ = await world.enqueue()
        commands = (CancelJob(), MoveJob(priority=3), DeleteJob())
        stale = [machine.command(await world.job(id_), command, world.now) for command in commands]
        claim = await world.claim_one(node)

        settled = await world.store.settle([Settlement(change=change) for change in stale])

        assert settled == (Settled(verdict=Verdict.STALE, job=claim.job),) * 3
        assert await world.job(id_) == claim.job

    @obligation("settle", 1)
    async def test_commands_are_written_whole(self, world: World) -> None:
        node = await world.node()
        id_ = await world.enqueue()
        moved = MoveJob(priority=3, queue="other", run_at=world.now - SECOND)
        for command in (moved, CancelJob(), RetryJob(), CancelJob(), RetryJob()):
            world.clock.advance("1s")
            change = machine.command(await world.job(id_), command, world.now)
            assert await world.store.settle([Settlement(change=change)]) == (Settled(verdict=Verdict.ACCEPTED),)
            assert await world.job(id_) == change.after
        assert await world.store.attempts(id_) == ()
        claim = await world.claim_one(node)
        assert await world.command(id_, CancelJob()) is Verdict.ACCEPTED
        (held,) = (await world.store.renew(node.id, node.term)).held
        assert (held.job, held.lease, held.cancel_requested_at) == (id_, claim.job.lease, world.now)

    @obligation("settle")
    @obligation("settle", 1)
    async def test_what_is_not_accepted_does_not_hinder_the_others(self, world: World) -> None:
        node = await world.node()
        claims = [await world.running(node) for _ in range(4)]
        await world.command(claims[1].job.id, CancelJob())
        stranger = Claim(job=claims[2].job, node=(await world.node()).id)
        settlements = [
            world.settlement(claims[0], Succeeded()),
            world.settlement(claims[1], RAISED),
            world.settlement(stranger, Succeeded()),
            world.settlement(claims[3], Succeeded()),
        ]

        settled = await world.store.settle(settlements)

        assert [one.verdict for one in settled] == [
            Verdict.ACCEPTED,
            Verdict.STALE,
            Verdict.REFUSED,
            Verdict.ACCEPTED,
        ]
        states = [(await world.job(claim.job.id)).state for claim in claims]
        assert states == [State.SUCCEEDED, State.RUNNING, State.RUNNING, State.SUCCEEDED]

    @obligation("settle")
    async def test_nothing_to_settle_has_no_answers(self, world: World) -> None:
        assert await world.store.settle([]) == ()

    @obligation("settle", 3)
    async def test_the_same_end_settled_twice_is_repeated_and_written_once(self, world: World) -> None:
        claim = await world.running(await world.node())
        settlement = world.settlement(claim, RAISED, seconds=1.0)
        assert (await world.store.settle([settlement]))[0].verdict is Verdict.ACCEPTED
        before, attempts = await world.view(claim.job.id), await world.store.attempts(claim.job.id)
        world.clock.advance("1s")

        for other in (settlement, world.settlement(claim, Succeeded(b"2"), seconds=2.0)):
            (settled,) = await world.store.settle([other])
            assert settled.verdict is Verdict.REPEATED
            assert settled.accepted

        assert await world.view(claim.job.id) == before
        assert await world.store.attempts(claim.job.id) == attempts

    @obligation("settle", 3)
    async def test_the_same_end_twice_in_one_batch_is_repeated(self, world: World) -> None:
        claim = await world.running(await world.node())
        settlement = world.settlement(claim, Succeeded(b"1"))

        settled = await world.store.settle([settlement, settlement])

        assert [one.verdict for one in settled] == [Verdict.ACCEPTED, Verdict.REPEATED]

    @obligation("settle", 3)
    async def test_an_end_is_repeated_until_a_later_lease_was_settled(self, world: World) -> None:
        first, second = await world.node(), await world.node()
        old = await world.running(first)
        await world.end(old, Snoozed(delay=0 * SECOND))
        new = await world.claim_one(second)

        assert (await world.settle(old, Succeeded())).verdict is Verdict.REPEATED
        assert await world.job(old.job.id) == new.job
        await world.end(new, Snoozed(delay=0 * SECOND))
        before = await world.view(old.job.id)
        assert (await world.settle(old, Succeeded())).verdict is Verdict.REFUSED
        assert (await world.settle(new, Succeeded())).verdict is Verdict.REPEATED
        assert await world.view(old.job.id) == before

    @obligation("settle", 3)
    async def test_an_end_is_repeated_after_an_operator_has_retried_the_job(self, world: World) -> None:
        claim = await world.running(await world.node())
        await world.end(claim, FATAL)
        await world.command(claim.job.id, RetryJob())
        before = await world.view(claim.job.id)

        assert (await world.settle(claim, FATAL)).verdict is Verdict.REPEATED
        assert await world.view(claim.job.id) == before

    @obligation("settle", 3)
    async def test_the_end_that_another_wrote_is_not_ones_own(self, world: World) -> None:
        victim, reaper, other = [await world.node() for _ in range(3)]
        claim = await world.running(victim)
        await world.kill(victim)
        await world.settle(claim, Lost(), by=reaper.id)

        assert (await world.settle(claim, Lost(), by=reaper.id)).verdict is Verdict.REPEATED
        assert (await world.settle(claim, Lost(), by=other.id)).verdict is Verdict.REFUSED
        assert (await world.settle(claim, Succeeded())).verdict is Verdict.REFUSED

    @obligation("settle", 3)
    async def test_what_was_not_accepted_is_no_end_to_be_repeated(self, world: World) -> None:
        claim = await world.running(await world.node())
        await world.command(claim.job.id, CancelJob())
        for _ in range(2):
            assert (await world.settle(claim, RAISED)).verdict is Verdict.STALE
        asked = Claim(job=await world.job(claim.job.id), node=claim.node)

        assert (await world.settle(asked, RAISED)).verdict is Verdict.ACCEPTED
        assert (await world.settle(asked, RAISED)).verdict is Verdict.REPEATED

    @obligation("settle", 4)
    async def test_a_job_that_is_not_there_is_refused(self, world: World) -> None:
        claim = await world.running(await world.node())
        await world.end(claim, FATAL)
        delete, retry = [
            machine.command(await world.job(claim.job.id), command, world.now) for command in (DeleteJob(), RetryJob())
        ]
        assert (await world.store.settle([Settlement(change=delete)]))[0].verdict is Verdict.ACCEPTED

        late = [Settlement(change=delete), Settlement(change=retry), world.settlement(claim, FATAL)]
        assert await world.store.settle(late) == (Settled(verdict=Verdict.REFUSED),) * 3
        assert not await world.is_there(claim.job.id)

    @obligation("settle", 5)
    async def test_every_attempt_but_a_success_leaves_its_row_by_lease(self, world: World) -> None:
        node = await world.node()
        await world.enqueue(max_attempts=9, backoff=Backoff.fixed(0))
        ends: list[Outcome] = [RAISED, Snoozed(delay=0 * SECOND), Interrupted(started=True), RAISED, Succeeded()]
        for outcome in ends:
            await world.end(await world.claim_one(node), outcome)
        (job,) = (await world.store.list_jobs(JobFilter())).jobs

        rows = await world.store.attempts(job.job.id)

        assert [(row.lease, row.attempt, row.event) for row in rows] == [
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

        leases = [row.lease for row in await world.store.attempts(id_)]
        assert leases == list(range(4, 104))
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

    @obligation("settle", 7)
    async def test_deleting_a_job_takes_all_of_it_away(self, world: World) -> None:
        node = await world.node()
        claim = await world.running(node)
        line = LogLine(at=world.now, level="INFO", message="hello")
        await world.store.note([Note(job=claim.job.id, lease=1, node=node.id, lines=(line,))])
        await world.end(claim, FATAL)
        assert await world.store.log_lines(claim.job.id) == (line,)

        assert await world.command(claim.job.id, DeleteJob()) is Verdict.ACCEPTED

        assert await world.store.get([claim.job.id]) == (None,)
        assert await world.store.attempts(claim.job.id) == ()
        assert await world.store.log_lines(claim.job.id) == ()

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
