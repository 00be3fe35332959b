# ruff: noqa: S101 -- a suite of tests is built on assert
"""How changes are written: whole or not at all, and once."""

from datetime import timedelta

import pytest

from mainspring.core import machine
from mainspring.core.command import CancelJob, DeleteJob, MoveJob, RetryJob
from mainspring.core.job import Claim, State
from mainspring.core.outcome import (
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
    error_of,
)
from mainspring.stores.records import AttemptView, LogLine, Note, Settled, Settlement, Verdict
from mainspring.testing.contract.obligation import obligation
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
    Unreadable(ERROR),
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
        error = error_of(outcome)
        assert view.error == error
        assert view.result == (outcome.result if isinstance(outcome, Succeeded) else None)
        expected = AttemptView(
            job=claim.job.id,
            lease=claim.job.lease,
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

    @obligation("settle", 7)
    async def test_deleting_a_job_takes_all_of_it_away(self, world: World) -> None:
        node = await world.node()
        claim = await world.running(node)
        line = LogLine(at=world.now, level="INFO", message="hello")
        await world.store.note([Note(job=claim.job.id, lease=claim.job.lease, node=node.id, lines=(line,))])
        await world.end(claim, FATAL)
        assert await world.store.log_lines(claim.job.id) == (line,)

        assert await world.command(claim.job.id, DeleteJob()) is Verdict.ACCEPTED

        assert await world.store.get([claim.job.id]) == (None,)
        assert await world.store.attempts(claim.job.id) == ()
        assert await world.store.log_lines(claim.job.id) == ()
