# ruff: noqa: S101 -- a suite of tests is built on assert
"""New jobs: where they begin, and what a second enqueue of the same id does."""

from datetime import timedelta

import pytest

from mainspring.core.backoff import Backoff
from mainspring.core.command import CancelJob
from mainspring.core.job import Job, Retention, State
from mainspring.core.limits import MOMENT
from mainspring.core.outcome import Succeeded
from mainspring.core.unique import OnConflict, UniqueKey
from mainspring.errors import Conflict
from mainspring.stores.records import Enqueued, JobFilter, Verdict
from mainspring.testing.contract.obligation import GENERAL, obligation
from mainspring.testing.contract.verbs.contract import Contract
from mainspring.testing.contract.world import HOUR, RAISED, RESIZE, SEND, World


class EnqueueContract(Contract):
    """`enqueue`, but for unique keys. Needs the roles Jobs, Nodes and Inspector."""

    @obligation("enqueue", 1)
    async def test_a_job_without_a_time_is_ready_now(self, world: World) -> None:
        job = await world.job(await world.enqueue())

        assert (job.state, job.run_at) == (State.READY, world.now)

    @obligation("enqueue", 1)
    async def test_a_job_is_ready_from_the_very_moment_it_is_due(self, world: World) -> None:
        past, present, soon = [
            await world.job(await world.enqueue(run_at=world.now + later)) for later in (-HOUR, 0 * HOUR, MOMENT)
        ]

        assert (past.state, past.run_at) == (State.READY, world.now - HOUR)
        assert (present.state, present.run_at) == (State.READY, world.now)
        assert (soon.state, soon.run_at) == (State.SCHEDULED, world.now + MOMENT)

    @obligation("enqueue", 1)
    async def test_lengths_of_time_count_from_the_stores_now(self, world: World) -> None:
        id_ = await world.enqueue(run_at=timedelta(minutes=5), expires=timedelta(minutes=7))
        job = await world.job(id_)

        assert job.state is State.SCHEDULED
        assert job.run_at == world.now + timedelta(minutes=5)
        assert job.expires_at == world.now + timedelta(minutes=7)

    @obligation("enqueue", 1)
    async def test_an_instant_until_which_it_is_wanted_is_kept(self, world: World) -> None:
        job = await world.job(await world.enqueue(expires=world.now + HOUR))

        assert job.expires_at == world.now + HOUR

    @obligation("enqueue", 1)
    async def test_all_that_was_said_about_a_job_is_kept(self, world: World) -> None:
        backoff = Backoff.exponential("1.5s", multiplier=1.7, cap="10m", jitter=0.3)
        retention = Retention(succeeded=timedelta(seconds=3), failed=timedelta(days=9))
        new = world.new(
            RESIZE,
            backoff=backoff,
            max_attempts=7,
            queue="photos",
            priority=75,
            loss_limit=2,
            retention=retention,
        )
        (answer,) = await world.store.enqueue([new])

        assert answer == Enqueued(id=new.id, fresh=True)
        assert await world.job(new.id) == Job(
            id=new.id,
            task=RESIZE,
            state=State.READY,
            run_at=world.now,
            backoff=backoff,
            max_attempts=7,
            queue="photos",
            priority=75,
            loss_limit=2,
            retention=retention,
        )

    @obligation("enqueue")
    async def test_each_new_job_has_its_answer_in_order(self, world: World) -> None:
        there = await world.enqueue()
        new = [world.new(), world.new(id=there), world.new()]

        assert await world.store.enqueue(new) == (
            Enqueued(id=new[0].id, fresh=True),
            Enqueued(id=there, fresh=False),
            Enqueued(id=new[2].id, fresh=True),
        )

    @obligation("enqueue")
    async def test_nothing_new_has_no_answers(self, world: World) -> None:
        assert await world.store.enqueue([]) == ()

    @obligation("enqueue", 2)
    @pytest.mark.parametrize("state", list(State))
    async def test_an_id_that_is_there_is_not_touched_in_whatever_state(self, world: World, state: State) -> None:
        new = world.new(run_at=HOUR) if state is State.SCHEDULED else world.new()
        await world.store.enqueue([new])
        await _bring_to(world, state)
        before = await world.view(new.id)
        assert before.job.state is state

        again = world.new(RESIZE, id=new.id, payload=b"other", priority=99, queue="other")
        answers = await world.store.enqueue([again])

        assert answers == (Enqueued(id=new.id, fresh=False),)
        assert await world.view(new.id) == before

    @obligation("enqueue", 2)
    async def test_an_id_twice_in_one_batch_is_taken_once(self, world: World) -> None:
        first = world.new(payload=b"first")
        answers = await world.store.enqueue([first, world.new(id=first.id, payload=b"second")])

        assert [one.fresh for one in answers] == [True, False]
        assert (await world.view(first.id)).payload == b"first"

    @obligation("enqueue", 2)
    @pytest.mark.parametrize("on_conflict", list(OnConflict))
    async def test_an_enqueue_that_is_repeated_does_not_meet_its_own_unique_key(
        self, world: World, on_conflict: OnConflict
    ) -> None:
        new = world.new(unique=UniqueKey(key="a", on_conflict=on_conflict))
        await world.store.enqueue([new])
        before = await world.view(new.id)

        assert await world.store.enqueue([new]) == (Enqueued(id=new.id, fresh=False),)
        assert await world.view(new.id) == before

    @obligation("enqueue", 2)
    async def test_an_id_that_is_there_takes_no_unique_key(self, world: World) -> None:
        there = await world.enqueue()
        await world.store.enqueue([world.new(id=there, unique=UniqueKey(key="a"))])

        other = world.new(unique=UniqueKey(key="a"))
        assert await world.store.enqueue([other]) == (Enqueued(id=other.id, fresh=True),)

    @obligation("enqueue", 4)
    async def test_a_committed_job_is_there_for_another_handle_at_once(self, world: World) -> None:
        other = await world.open()
        id_ = await world.enqueue()

        (view,) = await other.get([id_])
        assert view == await world.view(id_)
        node = await world.node()
        (delivery,) = (await world.ask(node, store=other)).deliveries
        assert delivery.claim.job.id == id_

    @obligation("enqueue", 4)
    async def test_a_committed_job_outlives_a_crash(self, world: World) -> None:
        victim = await world.open()
        new = [world.new() for _ in range(100)]
        await victim.enqueue(new)
        await world.crash(victim)

        survivor = await world.open()
        views = await survivor.get([one.id for one in new])
        assert [view and view.job.id for view in views] == [one.id for one in new]

    @obligation(GENERAL, 1)
    async def test_a_batch_that_conflicts_leaves_nothing_behind(self, world: World) -> None:
        keep = UniqueKey(key="a", on_conflict=OnConflict.REPLACE)
        strict = UniqueKey(key="b", on_conflict=OnConflict.RAISE)
        replaceable = await world.enqueue(unique=keep)
        taken = await world.enqueue(unique=strict)
        before = await world.store.list_jobs(JobFilter())

        batch = [world.new(), world.new(unique=keep), world.new(unique=UniqueKey(key="c")), world.new(unique=strict)]
        with pytest.raises(Conflict) as caught:
            await world.store.enqueue(batch)

        assert (caught.value.task, caught.value.key, caught.value.job) == (str(SEND), "b", str(taken))
        assert await world.store.list_jobs(JobFilter()) == before
        assert (await world.job(replaceable)).state is State.READY
        assert (await world.store.enqueue([world.new(unique=UniqueKey(key="c"))]))[0].fresh


async def _bring_to(world: World, state: State) -> None:
    """Bring the only job there is to a state."""
    if state in {State.READY, State.SCHEDULED}:
        return
    node = await world.node()
    claim = await world.claim_one(node)
    match state:
        case State.RETRYING:
            await world.end(claim, RAISED)
        case State.SUCCEEDED:
            await world.end(claim, Succeeded(b"1"))
        case State.FAILED | State.CANCELLED:
            await world.end(claim, RAISED)
            if state is State.CANCELLED:
                assert await world.command(claim.job.id, CancelJob()) is Verdict.ACCEPTED
            else:
                world.clock.advance("1h")
                await world.fail(claim.job.id, node)
        case _:
            assert state is State.RUNNING
