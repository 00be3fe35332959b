# ruff: noqa: S101 -- a suite of tests is built on assert
"""New jobs: where they begin, and what a second enqueue of the same id does."""

from datetime import timedelta
from random import Random

import pytest

from mainspring.core.backoff import Backoff
from mainspring.core.breaker import Breaker
from mainspring.core.command import CancelJob
from mainspring.core.job import Job, Retention, State
from mainspring.core.keys import MAX_KEY_BYTES
from mainspring.core.limits import MOMENT, Gate, Rate, Scope
from mainspring.core.names import LONGEST_PART, Name
from mainspring.core.outcome import Succeeded
from mainspring.core.unique import OnConflict, UniqueKey
from mainspring.errors import Conflict, DeclarationError
from mainspring.stores.records import Enqueued, JobFilter, Verdict
from mainspring.testing.contract.obligation import GENERAL, obligation
from mainspring.testing.contract.verbs.contract import Contract
from mainspring.testing.contract.world import HOUR, RAISED, RESIZE, SEND, TASKS, World


class _Texts:
    """Texts of the greatest length, which no compression makes shorter."""

    def __init__(self) -> None:
        self._random = Random(7)  # noqa: S311 -- repeatable

    def name(self) -> str:
        return self._text(LONGEST_PART)

    def key(self) -> str:
        return self._text(MAX_KEY_BYTES // 4)

    def _text(self, length: int) -> str:
        return "".join(chr(0x20000 + self._random.randrange(0xA000)) for _ in range(length))


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

    @obligation("enqueue", 5)
    @pytest.mark.parametrize("character", ["k", "é", "𠀀"], ids=["1-byte", "2-bytes", "4-bytes"])
    def test_a_text_that_is_too_long_to_be_indexed_is_refused(self, world: World, character: str) -> None:
        fits = character * (MAX_KEY_BYTES // len(character.encode()))
        world.new(key=fits, unique=UniqueKey(key=fits), queue=character * LONGEST_PART)

        with pytest.raises(DeclarationError, match=r"key: length .* exceeds the limit of 200 bytes"):
            world.new(key=fits + character)
        with pytest.raises(DeclarationError, match="unique key: length"):
            world.new(unique=UniqueKey(key=fits + character))
        with pytest.raises(DeclarationError, match="queue: length 256"):
            world.new(queue=character * (LONGEST_PART + 1))

    @obligation("enqueue", 5)
    async def test_the_longest_texts_pass_every_gate_and_block_no_other_job(self, world: World) -> None:
        texts = _Texts()
        task, queue, key = Name(texts.name(), texts.name()), texts.name(), texts.key()
        every = {task, *TASKS}
        node = await world.node(tasks=every)
        rate = Rate(count=100, period=HOUR, burst=100)
        gates = [(Scope.KEY, str(task), 1), (Scope.TASK, str(task), 2), (Scope.QUEUE, queue, 3)]
        await world.store.declare(
            [Gate(scope=scope, name=name, concurrency=number, rate=rate) for scope, name, number in gates]
        )
        await world.store.declare_breakers({task: Breaker()})
        long = [world.new(task, queue=queue, key=key, unique=UniqueKey(key=texts.key(), period=HOUR)) for _ in range(3)]
        await world.store.enqueue(long)
        await world.enqueue_all(world.new(SEND) for _ in range(3))

        done = []
        while claimed := await world.claim(node, room=10, tasks=every):
            done += [one.claim.job.id for one in claimed]
            for one in claimed:
                await world.end(one.claim, Succeeded())
        assert [id_ for id_ in done if id_ in {job.id for job in long}] == [job.id for job in long]
        assert len(done) == 6

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
