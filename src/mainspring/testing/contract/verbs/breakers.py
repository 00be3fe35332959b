# ruff: noqa: S101 -- a suite of tests is built on assert
"""Breakers: what they hold back, the one probe, and which ends count."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta

import pytest
from msgspec.structs import replace

from mainspring.core.breaker import Attempt, Breaker, Circuit, Phase, PhaseChange
from mainspring.core.command import CancelJob, Command, DeleteJob, MoveJob, RetryJob
from mainspring.core.job import JobId, State
from mainspring.core.limits import Gate, Scope
from mainspring.core.names import Name
from mainspring.core.outcome import (
    AttemptError,
    Deferred,
    Expired,
    Interrupted,
    NoSuchTask,
    Outcome,
    Raised,
    Snoozed,
    Succeeded,
    Unreadable,
)
from mainspring.stores.records import BreakerView, Claimed, Delivery, JobFilter, Settled, Settlement, Verdict
from mainspring.testing.contract.obligation import obligation
from mainspring.testing.contract.verbs.contract import Contract
from mainspring.testing.contract.verbs.wake import Bell
from mainspring.testing.contract.world import DAY, FATAL, HOUR, RAISED, RESIZE, SECOND, SEND, Member, World

MANY = 1000
COOLDOWN = timedelta(seconds=30)
RULE = Breaker(threshold=3, cooldown=COOLDOWN)

no_verdicts = pytest.mark.parametrize(
    "outcome",
    [Snoozed(delay=HOUR), Deferred(delay=HOUR), Interrupted(started=True), Expired(), NoSuchTask()],
    ids=lambda outcome: type(outcome).__name__,
)


class BreakersContract(Contract):
    """The role Breakers, and what breakers do in `claim` and `settle`. Needs Jobs, Nodes, Wake and Inspector too."""

    # What is held back.

    @obligation("declare_breakers", 1)
    @obligation("claim", 11)
    @obligation("settle", 9)
    async def test_so_many_failures_in_a_row_hold_all_jobs_of_a_task_back(self, world: World) -> None:
        node, other = await world.node(), await world.node()
        await world.store.declare_breakers({SEND: RULE})
        await world.enqueue_all(world.new(max_attempts=1) for _ in range(9))
        for _ in range(2):
            assert (await fail_next(world, node)).changed is None
        assert (await standing(world)).circuit.failures == 2

        settled = await fail_next(world, node)

        opened = PhaseChange(
            task=SEND,
            at=world.now,
            source=Phase.CLOSED,
            target=Phase.OPEN,
            term=1,
            job=settled.changed.job if settled.changed else None,
            reason="ValueError: no",
        )
        assert settled == Settled(verdict=Verdict.ACCEPTED, changed=opened)
        for one in (node, other):
            assert await world.claim(one, room=MANY) == ()

    @obligation("claim", 9)
    @obligation("claim", 11)
    async def test_the_end_of_the_cooldown_is_told_as_when_more_can_be_had(self, world: World) -> None:
        node = await world.node()
        await opened(world, node)
        await world.enqueue()

        claimed = await world.ask(node, room=MANY)
        assert claimed == Claimed(deliveries=(), next_due=world.now + COOLDOWN)
        world.clock.advance(COOLDOWN - timedelta(microseconds=1))
        assert await world.claim(node) == ()
        world.clock.advance(timedelta(microseconds=1))
        assert len(await world.claim(node)) == 1

    @obligation("claim", 4)
    @obligation("claim", 11)
    async def test_what_a_breaker_holds_back_steps_aside(self, world: World) -> None:
        node = await world.node()
        await opened(world, node)
        await world.enqueue_all(world.new(SEND, priority=100) for _ in range(MANY))
        free = [await world.enqueue(RESIZE, priority=0) for _ in range(3)]

        assert [one.claim.job.id for one in await world.claim(node, room=MANY)] == free

    @obligation("claim", 4)
    @obligation("claim", 11)
    async def test_what_was_held_back_keeps_its_order(self, world: World) -> None:
        node = await world.node()
        await opened(world, node)
        later = [await world.enqueue(run_at=world.now - at * SECOND) for at in range(5)]
        first = await world.enqueue(priority=99)
        world.clock.advance(COOLDOWN)

        (probe,) = await world.claim(node, room=MANY)
        assert probe.claim.job.id == first
        await end(world, probe, Succeeded())

        assert [one.claim.job.id for one in await world.claim(node, room=MANY)] == later[::-1]

    @obligation("claim", 11)
    @obligation("settle", 9)
    async def test_what_is_held_back_can_be_cancelled_deleted_and_moved_and_never_becomes_the_probe(
        self, world: World
    ) -> None:
        node = await world.node()
        await opened(world, node)
        cancelled, deleted, moved, late, last = [await world.enqueue() for _ in range(5)]
        assert await world.claim(node, room=MANY) == ()

        commands: dict[JobId, Command] = {
            cancelled: CancelJob(),
            deleted: DeleteJob(),
            moved: MoveJob(queue="elsewhere"),
            late: MoveJob(run_at=world.now + HOUR),
        }
        for job, wanted in commands.items():
            assert await world.command(job, wanted) is Verdict.ACCEPTED
        assert (await world.job(cancelled)).state is State.CANCELLED
        assert not await world.is_there(deleted)
        assert await world.claim(node, room=MANY) == (), "in whatever queue it is, it is of the task"

        world.clock.advance(COOLDOWN)
        (probe,) = await world.claim(node, room=MANY)
        assert probe.claim.job.id in {moved, last}
        await end(world, probe, Succeeded())
        (other,) = await world.claim(node, room=MANY)
        assert {probe.claim.job.id, other.claim.job.id} == {moved, last}
        assert await world.command(cancelled, RetryJob()) is Verdict.ACCEPTED
        assert [one.claim.job.id for one in await world.claim(node, room=MANY)] == [cancelled]

    @obligation("claim", 11)
    @obligation("settle", 9)
    async def test_what_expired_behind_a_breaker_frees_the_probe_for_what_has_not(self, world: World) -> None:
        node = await world.node()
        await opened(world, node)
        expired = {await world.enqueue(expires=SECOND, priority=99) for _ in range(3)}
        wanted = await world.enqueue()
        world.clock.advance(COOLDOWN)

        for _ in range(3):
            (delivery,) = await world.claim(node, room=MANY)
            expired.remove(delivery.claim.job.id)
            await end(world, delivery, Expired())
            assert (await standing(world)).circuit.failures == RULE.threshold

        (probe,) = await world.claim(node, room=MANY)
        assert probe.claim.job.id == wanted
        await end(world, probe, Succeeded())
        assert (await standing(world)).circuit.phase is Phase.CLOSED

    # The probe.

    @obligation("claim", 11)
    async def test_after_the_cooldown_one_job_is_given_out_and_no_other_before_its_end(self, world: World) -> None:
        node, other = await world.node(), await world.node()
        await opened(world, node)
        await world.enqueue_all(world.new(queue=queue, priority=20) for queue in "ab" * 5)
        world.clock.advance(COOLDOWN)

        claimed = await world.ask(node, room=MANY)

        (probe,) = claimed.deliveries
        half = PhaseChange(
            task=SEND,
            at=world.now,
            source=Phase.OPEN,
            target=Phase.HALF_OPEN,
            term=2,
            job=probe.claim.job.id,
        )
        assert claimed.changes == (half,)
        assert (await standing(world)).circuit.probe == Attempt(probe.claim.job.id, probe.claim.job.lease)
        for _ in range(3):
            world.clock.advance(DAY)
            for one in (node, other):
                assert await world.ask(one, room=MANY) == Claimed(deliveries=())

    @obligation("claim", 11)
    async def test_of_many_concurrent_claims_one_gets_the_probe(self, world: World) -> None:
        handles = [world.store, await world.open(), await world.open()]
        nodes = [await world.node() for _ in range(9)]
        await opened(world, nodes[0])
        await world.enqueue_all(world.new(priority=at % 3) for at in range(30))
        for _ in range(5):
            world.clock.advance(COOLDOWN)
            answers = await asyncio.gather(
                *(world.ask(node, store=handles[at % 3], room=3) for at, node in enumerate(nodes))
            )
            (probe,) = [one for answer in answers for one in answer.deliveries]
            await end(world, probe, FATAL)

    @obligation("claim", 11)
    @obligation("settle", 9)
    async def test_a_good_probe_closes_the_breaker_and_everything_goes_on(self, world: World) -> None:
        node = await world.node()
        probe = await probing(world, node)
        await world.enqueue_all(world.new() for _ in range(5))

        settled = await end(world, probe, Succeeded())

        assert settled.changed is not None
        assert (settled.changed.target, settled.changed.term) == (Phase.CLOSED, 3)
        given = await world.claim(node, room=MANY)
        assert [one.term for one in given] == [3] * 5
        assert (await standing(world)).circuit == Circuit(term=3, revision=(await standing(world)).circuit.revision)

    @obligation("settle", 9)
    async def test_a_success_without_its_term_says_nothing(self, world: World) -> None:
        node = await world.node()
        probe = await probing(world, node)
        wanted = await world.enqueue()

        (settled,) = await world.store.settle([replace(ending(world, probe, Succeeded()), term=None)])

        assert settled == Settled(verdict=Verdict.ACCEPTED)
        assert (await standing(world)).circuit.phase is Phase.HALF_OPEN
        await world.store.mend(MANY)  # the probe does not run any more
        assert (await world.claim_one(node)).job.id == wanted

    @obligation("settle", 9)
    async def test_a_bad_probe_opens_it_for_another_cooldown(self, world: World) -> None:
        """Flaw U9: there, ten more failures were needed."""
        node = await world.node()
        probe = await probing(world, node)
        await world.enqueue()
        world.clock.advance(SECOND)

        settled = await end(world, probe, FATAL)

        assert settled.changed is not None
        assert (settled.changed.source, settled.changed.target) == (Phase.HALF_OPEN, Phase.OPEN)
        assert (await world.ask(node)).next_due == world.now + COOLDOWN

    @obligation("settle", 10)
    @no_verdicts
    async def test_an_end_of_the_probe_that_is_no_verdict_frees_its_place(self, world: World, outcome: Outcome) -> None:
        node = await world.node()
        probe = await probing(world, node)
        wanted = await world.enqueue(priority=99)
        assert await world.claim(node) == ()

        settled = await end(world, probe, outcome)

        assert settled.changed is None
        (another,) = await world.claim(node, room=MANY)
        assert another.claim.job.id == wanted
        assert another.term == probe.term
        assert await world.claim(node, room=MANY) == ()

    @obligation("settle", 10)
    @pytest.mark.parametrize("has_term", [True, False], ids=["by its holder", "without a term"])
    async def test_a_probe_that_is_cancelled_frees_its_place(self, world: World, has_term: bool) -> None:
        """Flaw U8: there, a cancel was counted as a failure."""
        node = await world.node()
        probe = await probing(world, node)
        wanted = await world.enqueue()
        assert await world.command(probe.claim.job.id, CancelJob()) is Verdict.ACCEPTED
        assert await world.claim(node) == ()

        claim = replace(probe.claim, job=await world.job(probe.claim.job.id))
        term = probe.term if has_term else None
        (settled,) = await world.store.settle([replace(world.settlement(claim, RAISED), term=term)])

        assert settled == Settled(verdict=Verdict.ACCEPTED)
        assert (await world.claim_one(node)).job.id == wanted

    @obligation("settle", 10)
    async def test_a_probe_that_is_lost_with_its_node_frees_its_place(self, world: World) -> None:
        node, reaper = await world.node(), await world.node()
        probe = await probing(world, node)
        wanted = await world.enqueue(priority=99)
        await world.kill(node)
        assert await world.claim(reaper) == ()

        assert await world.reap(reaper) == [Verdict.ACCEPTED]

        (another,) = await world.claim(reaper, room=MANY)
        assert (another.claim.job.id, another.term) == (wanted, probe.term)
        late = replace(world.settlement(probe.claim, Succeeded()), term=probe.term)
        assert (await world.store.settle([late])) == (Settled(verdict=Verdict.REFUSED),)
        assert (await standing(world)).circuit.phase is Phase.HALF_OPEN

    @obligation("mend", 2)
    async def test_a_probe_that_runs_is_not_mended_away(self, world: World) -> None:
        node = await world.node()
        await probing(world, node)
        await world.enqueue()

        assert await world.store.mend(10) == 0
        assert await world.claim(node) == ()

    # Which ends count.

    @obligation("settle", 9)
    async def test_a_success_in_between_starts_the_count_anew(self, world: World) -> None:
        node = await world.node()
        await world.store.declare_breakers({SEND: RULE})
        outcomes: Sequence[Outcome] = [FATAL, FATAL, Succeeded(), FATAL, FATAL]
        for outcome in outcomes:
            await end(world, await delivered(world, node), outcome)

        assert ((await standing(world)).circuit.phase, (await standing(world)).circuit.failures) == (Phase.CLOSED, 2)

    @obligation("settle", 9)
    async def test_the_success_of_a_job_that_was_tried_before_starts_the_count_anew(self, world: World) -> None:
        node = await world.node()
        await world.store.declare_breakers({SEND: RULE})
        await end(world, await delivered(world, node), RAISED)
        world.clock.advance(HOUR)
        (again,) = await world.claim(node)
        await end(world, again, Succeeded())

        assert (await standing(world)).circuit.failures == 0

    @obligation("settle", 9)
    async def test_ends_of_a_batch_count_in_their_order(self, world: World) -> None:
        node = await world.node()
        await world.store.declare_breakers({SEND: RULE})
        await world.enqueue_all(world.new() for _ in range(6))
        given = await world.claim(node, room=6)
        outcomes: Sequence[Outcome] = [RAISED, RAISED, Succeeded(), RAISED, RAISED, RAISED]

        answers = await world.store.settle([ending(world, *each) for each in zip(given, outcomes, strict=True)])

        assert [bool(answer.changed) for answer in answers] == [False] * 5 + [True]
        change = answers[5].changed
        assert change is not None
        assert (change.target, change.job) == (Phase.OPEN, given[5].claim.job.id)

    @obligation("settle", 9)
    async def test_skips_and_snoozes_and_cancels_never_count(self, world: World) -> None:
        """Flaws U8 and U9."""
        node = await world.node()
        await world.store.declare_breakers({SEND: RULE})
        outcomes: Sequence[Outcome] = [
            Snoozed(delay=HOUR),
            Deferred(delay=HOUR),
            Interrupted(started=True),
            Expired(),
            NoSuchTask(),
            Unreadable(AttemptError(type="E", message="m")),
        ]
        for outcome in outcomes:
            await end(world, await delivered(world, node, priority=1), outcome)
            world.clock.advance(SECOND)
            for view in (await world.store.list_jobs(JobFilter())).jobs:
                if view.job.finished_at is None:
                    await world.command(view.job.id, CancelJob())
        for _ in range(5):
            delivery = await delivered(world, node)
            await world.command(delivery.claim.job.id, CancelJob())
            claim = replace(delivery.claim, job=await world.job(delivery.claim.job.id))
            await end(world, replace(delivery, claim=claim), RAISED)

        assert (await standing(world)).circuit == Circuit()

    @obligation("settle", 9)
    async def test_a_lost_attempt_says_nothing_about_its_task(self, world: World) -> None:
        reaper = await world.node()
        await world.store.declare_breakers({SEND: RULE})
        for _ in range(4):
            victim = await world.node()
            await delivered(world, victim, loss_limit=1)
            await world.kill(victim)
            await world.reap(reaper)

        assert (await standing(world)).circuit == Circuit()

    @obligation("settle", 9)
    async def test_late_ends_of_an_earlier_term_count_for_nothing(self, world: World) -> None:
        node = await world.node()
        await world.store.declare_breakers({SEND: RULE})
        await world.enqueue_all(world.new() for _ in range(3))
        slow = await world.claim(node, room=3)
        probe = await probing(world, node)

        outcomes: Sequence[Outcome] = [FATAL, Succeeded(), RAISED]
        for delivery, outcome in zip(slow, outcomes, strict=True):
            assert (await end(world, delivery, outcome)).changed is None
        assert (await standing(world)).circuit.probe == Attempt(probe.claim.job.id, probe.claim.job.lease)

        await end(world, probe, Succeeded())
        assert ((await standing(world)).circuit.phase, (await standing(world)).circuit.failures) == (Phase.CLOSED, 0)

    @obligation("settle", 9)
    async def test_what_is_not_accepted_counts_for_nothing(self, world: World) -> None:
        node, other = await world.node(), await world.node()
        await world.store.declare_breakers({SEND: RULE})
        delivery = await delivered(world, node)
        once = ending(world, delivery, FATAL)
        stranger = replace(once, by=other.id)
        stale = replace(
            once,
            change=replace(once.change, before=replace(once.change.before, revision=once.change.before.revision - 1)),
        )

        answers = [(await world.store.settle([one]))[0].verdict for one in (stranger, stale, once, once, stranger)]

        refused, repeated = Verdict.REFUSED, Verdict.REPEATED
        assert answers == [refused, Verdict.STALE, Verdict.ACCEPTED, repeated, refused]
        assert (await standing(world)).circuit.failures == 1

    @obligation("claim", 12)
    async def test_a_delivery_names_the_term_of_its_breaker(self, world: World) -> None:
        node = await world.node()
        assert (await delivered(world, node)).term is None
        await world.store.declare_breakers({SEND: RULE})
        assert (await delivered(world, node)).term == 0
        assert (await delivered(world, node, RESIZE)).term is None
        await world.store.reset_breaker(SEND)
        assert (await delivered(world, node)).term == 1

    @obligation("claim", 11)
    async def test_a_clock_that_is_set_forward_lets_one_probe_through_and_no_more(self, world: World) -> None:
        """Flaw U18: there, a jump of the clock fired everything or nothing."""
        node = await world.node()
        await opened(world, node)
        await world.enqueue_all(world.new() for _ in range(9))

        world.clock.jump(DAY)

        assert len(await world.claim(node, room=MANY)) == 1
        assert await world.claim(node, room=MANY) == ()

    @obligation("claim", 11)
    async def test_a_clock_that_is_set_back_keeps_it_open_for_one_more_cooldown_at_most(self, world: World) -> None:
        """Flaw U18."""
        for back in (timedelta(seconds=1), COOLDOWN, DAY):
            node = await world.node()
            await opened(world, node)
            await world.enqueue(run_at=world.now - 2 * DAY)
            assert await world.claim(node) == ()

            world.clock.jump(-back)
            world.clock.advance(2 * COOLDOWN)

            (probe,) = await world.claim(node)
            await end(world, probe, Succeeded())
            assert (await world.claim(node, room=MANY)) == ()

    # Together with what else stands in front of jobs.

    @obligation("claim", 6)
    @obligation("claim", 11)
    async def test_the_probe_passes_the_gates_of_its_task_too(self, world: World) -> None:
        node = await world.node()
        await world.store.declare([Gate(scope=Scope.TASK, name=str(SEND), concurrency=1)])
        await world.store.declare([Gate(scope=Scope.QUEUE, name="default", concurrency=2)])
        await opened(world, node)
        await world.enqueue_all(world.new(key=key, priority=60) for key in "aabb")
        await world.enqueue_all(world.new(RESIZE) for _ in range(4))
        world.clock.advance(COOLDOWN)

        given = await world.claim(node, room=MANY)
        assert [one.claim.job.task for one in given] == [SEND, RESIZE]
        await end(world, given[0], Succeeded())
        assert [one.claim.job.task for one in await world.claim(node, room=MANY)] == [SEND]

    @obligation("claim", 6)
    @obligation("claim", 11)
    async def test_a_full_gate_holds_the_probe_back_and_it_stays_to_be_had(self, world: World) -> None:
        node = await world.node()
        await world.store.declare([Gate(scope=Scope.QUEUE, name="default", concurrency=1)])
        await opened(world, node)
        busy = await delivered(world, node, RESIZE)
        await world.enqueue()
        world.clock.advance(COOLDOWN)

        assert await world.ask(node, room=MANY) == Claimed(deliveries=())
        assert (await standing(world)).circuit.phase is Phase.OPEN
        await end(world, busy, Succeeded())
        assert len(await world.claim(node, room=MANY)) == 1

    @obligation("claim", 2)
    @obligation("claim", 11)
    async def test_a_paused_queue_keeps_its_probe(self, world: World) -> None:
        node = await world.node()
        await opened(world, node)
        await world.enqueue()
        world.clock.advance(COOLDOWN)
        await world.store.pause("default")
        assert await world.claim(node) == ()
        await world.store.resume("default")
        assert len(await world.claim(node)) == 1

    @obligation("claim", 11)
    async def test_a_node_that_does_not_know_the_task_leaves_the_probe_to_others(self, world: World) -> None:
        node = await world.node()
        await opened(world, node)
        await world.enqueue(SEND)
        await world.enqueue(RESIZE)
        world.clock.advance(COOLDOWN)

        assert [one.claim.job.task for one in await world.claim(node, tasks=[RESIZE], room=MANY)] == [RESIZE]
        assert (await standing(world)).circuit.phase is Phase.OPEN

    @obligation("claim", 11)
    async def test_breakers_of_two_tasks_are_apart(self, world: World) -> None:
        node = await world.node()
        await opened(world, node, RESIZE)
        await opened(world, node, SEND)
        await world.enqueue_all(world.new(task) for task in (SEND, RESIZE) * 3)
        world.clock.advance(COOLDOWN)

        claimed = await world.ask(node, room=MANY)

        assert {one.claim.job.task for one in claimed.deliveries} == {SEND, RESIZE}
        assert len(claimed.deliveries) == 2
        settled = await world.store.settle(
            [ending(world, one, Succeeded() if one.claim.job.task == SEND else FATAL) for one in claimed.deliveries]
        )
        assert all(one.changed for one in settled)
        assert {one.claim.job.task for one in await world.claim(node, room=MANY)} == {SEND}

    # Rules.

    @obligation("declare_breakers", 1)
    async def test_the_newest_rule_holds_and_the_state_stays(self, world: World) -> None:
        node = await world.node()
        await opened(world, node)
        await world.enqueue()
        before = await standing(world)

        await world.store.declare_breakers({SEND: RULE})
        assert await standing(world) == before
        longer = Breaker(threshold=1, cooldown=HOUR)
        await world.store.declare_breakers({SEND: longer})
        assert await standing(world) == replace(before, rule=longer)

        world.clock.advance(COOLDOWN)
        assert await world.claim(node) == ()
        world.clock.advance(HOUR - COOLDOWN)
        assert len(await world.claim(node)) == 1

    @obligation("declare_breakers", 2)
    async def test_without_a_rule_there_is_no_breaker_and_what_it_held_back_goes_on(self, world: World) -> None:
        node = await world.node()
        await opened(world, node)
        await world.enqueue_all(world.new() for _ in range(3))

        await world.store.declare_breakers({SEND: None, RESIZE: None})

        assert await world.store.breakers([SEND, RESIZE]) == ()
        given = await world.claim(node, room=MANY)
        assert [one.term for one in given] == [None] * 3
        assert (await end(world, given[0], FATAL)).changed is None

    @obligation("declare_breakers", 2)
    @obligation("settle", 9)
    async def test_a_rule_that_comes_back_begins_in_a_new_term(self, world: World) -> None:
        node = await world.node()
        await world.store.declare_breakers({SEND: RULE})
        await world.enqueue_all(world.new() for _ in range(3))
        given = await world.claim(node, room=3)
        await world.store.declare_breakers({SEND: None})
        await world.store.declare_breakers({SEND: RULE})

        for delivery in given:
            assert (await end(world, delivery, FATAL)).changed is None

        assert ((await standing(world)).circuit.failures, (await standing(world)).circuit.phase) == (0, Phase.CLOSED)
        assert (await delivered(world, node)).term == (await standing(world)).circuit.term

    # What operators see and do.

    @obligation("breakers")
    @obligation("list_breakers")
    async def test_breakers_are_read_by_task_and_in_pages(self, world: World) -> None:
        names = [Name("", f"task{number}") for number in range(5)]
        await world.store.declare_breakers(dict.fromkeys(names[::-1], RULE) | {SEND: None})

        found = await world.store.breakers([names[3], SEND, names[1]])
        assert [one.task for one in found] == [names[3], names[1]]
        assert found[0] == BreakerView(task=names[3], rule=RULE, circuit=Circuit(), since=world.now)
        first = await world.store.list_breakers(limit=2)
        second = await world.store.list_breakers(limit=2, after=first.after)
        third = await world.store.list_breakers(limit=2, after=second.after)
        assert [one.task for page in (first, second, third) for one in page.breakers] == names
        assert [page.after is None for page in (first, second, third)] == [False, False, True]
        assert first.now == world.now

    @obligation("force_breaker")
    @obligation("claim", 11)
    async def test_forced_open_it_holds_back_until_it_is_reset(self, world: World) -> None:
        node = await world.node()
        await world.store.declare_breakers({SEND: RULE})
        running = await delivered(world, node)
        await world.enqueue()
        world.clock.advance(SECOND)

        change = await world.store.force_breaker(SEND, Phase.OPEN, by="ada", reason="the provider is down")

        assert change == PhaseChange(
            task=SEND,
            at=world.now,
            source=Phase.CLOSED,
            target=Phase.OPEN,
            term=1,
            by="ada",
            reason="the provider is down",
        )
        view = await standing(world)
        assert (view.since, view.by, view.reason, view.circuit.forced) == (
            world.now,
            "ada",
            "the provider is down",
            True,
        )
        assert (await end(world, running, Succeeded())).changed is None
        world.clock.advance(DAY)
        assert await world.ask(node) == Claimed(deliveries=())
        assert await world.store.reset_breaker(SEND, by="ada") is not None
        assert len(await world.claim(node)) == 1

    @obligation("force_breaker")
    async def test_forced_closed_it_lets_everything_through_whatever_fails(self, world: World) -> None:
        node = await world.node()
        await opened(world, node)
        await world.store.force_breaker(SEND, Phase.CLOSED)
        for _ in range(9):
            assert (await end(world, await delivered(world, node), FATAL)).changed is None

        await world.store.reset_breaker(SEND)

        for count in (1, 2, 3):
            changed = (await end(world, await delivered(world, node), FATAL)).changed
            assert bool(changed) == (count == 3)

    @obligation("force_breaker", 2)
    async def test_who_says_the_same_again_takes_nothing_away(self, world: World) -> None:
        await world.store.declare_breakers({SEND: RULE})
        await world.store.force_breaker(SEND, Phase.OPEN, by="ada", reason="the provider is down")
        before = await standing(world)
        world.clock.advance(SECOND)

        for reason in ("", "the provider is down"):
            assert await world.store.force_breaker(SEND, Phase.OPEN, by="bob", reason=reason) is None

        assert await standing(world) == before
        assert await world.store.force_breaker(SEND, Phase.OPEN, by="bob", reason="it moves") is not None
        assert ((await standing(world)).by, (await standing(world)).reason) == ("bob", "it moves")
        assert [one.reason for one in await world.store.breaker_changes(SEND)] == ["it moves", "the provider is down"]
        for number in range(3):  # closed is another word, and a reset may be said at any time
            closed = await world.store.force_breaker(SEND, Phase.CLOSED)
            assert (closed is not None) == (number == 0)
        for _ in range(2):
            assert await world.store.reset_breaker(SEND) is not None

    @obligation("breakers")
    @obligation("settle", 9)
    @pytest.mark.parametrize("has_term", [True, False], ids=["by its holder", "without a term"])
    async def test_what_opened_it_stays_to_be_seen_until_it_closes(self, world: World, has_term: bool) -> None:
        node = await world.node()
        await opened(world, node)
        view = await standing(world)
        assert (view.circuit.failures, view.by, view.reason) == (3, "", "ValueError: no")
        world.clock.advance(COOLDOWN)
        probe = await delivered(world, node)
        view = await standing(world)
        assert (view.circuit.failures, view.by, view.reason) == (3, "", "ValueError: no")

        worse = Raised(error=AttemptError(type="OSError", message=f"a\0b\n{'long ' * 100}\udcff"), retryable=False)
        settlement = ending(world, probe, worse)
        (settled,) = await world.store.settle([settlement if has_term else replace(settlement, term=None)])

        view = await standing(world)
        assert view.circuit.failures == 4
        assert view.reason.startswith("OSError: a\ufffdb long long")
        assert len(view.reason) == 200
        changes = await world.store.breaker_changes(SEND)
        assert [one.reason for one in changes] == [view.reason, "", "ValueError: no"]
        assert settled.changed == changes[0]
        world.clock.advance(COOLDOWN)
        await end(world, await delivered(world, node), Succeeded())
        view = await standing(world)
        assert (view.circuit.failures, view.reason) == (0, "")

    @obligation("force_breaker", 1)
    @obligation("reset_breaker", 1)
    async def test_an_operator_who_looked_at_another_term_changes_nothing(self, world: World) -> None:
        node = await world.node()
        store = world.store
        assert await store.force_breaker(SEND, Phase.OPEN) is None
        assert await store.reset_breaker(SEND) is None
        await opened(world, node)
        before = await standing(world)
        assert await store.force_breaker(SEND, Phase.CLOSED, term=before.circuit.term - 1) is None
        assert await store.reset_breaker(SEND, term=before.circuit.term + 1) is None
        assert await standing(world) == before
        assert await store.reset_breaker(SEND, term=before.circuit.term) is not None
        assert await store.force_breaker(RESIZE, Phase.OPEN) is None

    @obligation("reset_breaker")
    async def test_a_reset_sends_the_probe_away(self, world: World) -> None:
        node = await world.node()
        probe = await probing(world, node)
        await world.enqueue_all(world.new() for _ in range(4))

        await world.store.reset_breaker(SEND)

        assert len(await world.claim(node, room=MANY)) == 4
        assert (await end(world, probe, FATAL)).changed is None
        assert (await standing(world)).circuit.failures == 0

    @obligation("breaker_changes", 1)
    async def test_every_change_of_phase_is_kept_with_who_and_what_made_it(self, world: World) -> None:
        node = await world.node()
        assert await world.store.breaker_changes(SEND) == ()
        probe = await probing(world, node)
        await end(world, probe, Succeeded())
        forced = await world.store.force_breaker(SEND, Phase.OPEN, by="ada", reason="because")

        changes = await world.store.breaker_changes(SEND)

        assert changes[0] == forced
        assert [one.target for one in changes] == [Phase.OPEN, Phase.CLOSED, Phase.HALF_OPEN, Phase.OPEN]
        assert [one.term for one in changes] == [4, 3, 2, 1]
        assert [one.job for one in changes[1:3]] == [probe.claim.job.id] * 2
        assert await world.store.breaker_changes(SEND, limit=2) == changes[:2]
        assert await world.store.breaker_changes(RESIZE) == ()

    @obligation("breaker_changes", 2)
    async def test_the_last_hundred_changes_are_kept(self, world: World) -> None:
        await world.store.declare_breakers({SEND: RULE, RESIZE: RULE})
        await world.store.reset_breaker(RESIZE)
        for number in range(120):
            await world.store.reset_breaker(SEND, reason=str(number))

        changes = await world.store.breaker_changes(SEND, limit=MANY)

        assert [one.reason for one in changes] == [str(number) for number in range(119, 19, -1)]
        assert len(await world.store.breaker_changes(RESIZE)) == 1

    @obligation("watch", 1)
    async def test_whatever_opens_the_way_rings(self, world: World) -> None:
        node, bell = await world.node(), Bell()
        stop = (await world.open()).watch(bell)
        probe = await probing(world, node)
        for change in (
            lambda: end(world, probe, Snoozed(delay=HOUR)),
            lambda: world.store.force_breaker(SEND, Phase.CLOSED),
            lambda: world.store.reset_breaker(SEND),
            lambda: world.store.declare_breakers({SEND: None}),
        ):
            await asyncio.sleep(0.1)
            bell.reset()
            await change()
            await bell.wait()
        stop()

    @obligation("claim", 11)
    @obligation("settle", 9)
    async def test_one_handle_knows_what_another_has_done(self, world: World) -> None:
        node, other = await world.node(), await world.open()
        await world.store.declare_breakers({SEND: RULE})
        await world.enqueue_all(world.new(max_attempts=1) for _ in range(9))
        (given,) = (await world.ask(node, store=other)).deliveries
        for _ in range(3):
            await fail_next(world, node)

        assert (await world.ask(node, store=other, room=MANY)).deliveries == ()
        assert await other.settle([ending(world, given, Succeeded())]) == (Settled(verdict=Verdict.ACCEPTED),)
        assert await other.breakers([SEND]) == await world.store.breakers([SEND])
        await other.reset_breaker(SEND)
        assert len(await world.claim(node, room=MANY)) == 5


async def standing(world: World, task: Name = SEND) -> BreakerView:
    (view,) = await world.store.breakers([task])
    return view


def ending(world: World, delivery: Delivery, outcome: Outcome) -> Settlement:
    return replace(world.settlement(delivery.claim, outcome), term=delivery.term)


async def end(world: World, delivery: Delivery, outcome: Outcome) -> Settled:
    """Settle what must be accepted."""
    (settled,) = await world.store.settle([ending(world, delivery, outcome)])
    assert settled.verdict is Verdict.ACCEPTED
    return settled


async def fail_next(world: World, node: Member) -> Settled:
    (delivery,) = await world.claim(node)
    return await end(world, delivery, FATAL)


async def delivered(
    world: World, node: Member, task: Name = SEND, *, priority: int = 50, loss_limit: int = 3
) -> Delivery:
    """Enqueue a job and have it claimed; nothing else of its task may be waiting."""
    wanted = await world.enqueue(task, priority=priority, loss_limit=loss_limit)
    (delivery,) = await world.claim(node, tasks=[task])
    assert delivery.claim.job.id == wanted
    return delivery


async def opened(world: World, node: Member, task: Name = SEND) -> None:
    """Have a task fail until its breaker opens; none of its jobs may be waiting."""
    await world.store.declare_breakers({task: RULE})
    for _ in range(RULE.threshold):
        await end(world, await delivered(world, node, task), FATAL)
    assert (await standing(world, task)).circuit.phase is Phase.OPEN


async def probing(world: World, node: Member) -> Delivery:
    """Open the breaker, and have the node run the probe; no other jobs may be waiting."""
    await opened(world, node)
    world.clock.advance(COOLDOWN)
    probe = await delivered(world, node)
    assert (await standing(world)).circuit.phase is Phase.HALF_OPEN
    return probe
