# ruff: noqa: S101 -- a suite of tests is built on assert
"""The order of claims, over many random lines of jobs."""

import random
from collections import defaultdict
from datetime import timedelta
from uuid import UUID

import pytest

from mainspring.core.command import MoveJob
from mainspring.core.job import Job, JobId
from mainspring.core.limits import MOMENT
from mainspring.core.outcome import Interrupted, Lost, Snoozed, Succeeded
from mainspring.stores.records import NewJob, Verdict
from mainspring.testing.contract.obligation import obligation
from mainspring.testing.contract.verbs.contract import Contract
from mainspring.testing.contract.world import HOUR, RAISED, SECOND, World


class OrderContract(Contract):
    """The order of `claim`. Needs the roles Jobs, Nodes and Inspector."""

    @obligation("claim", 4)
    @pytest.mark.parametrize("seed", range(5))
    async def test_every_claim_takes_the_head_of_each_line_and_higher_priorities_first(
        self, world: World, seed: int
    ) -> None:
        dice = random.Random(seed)  # noqa: S311 -- the same lines in every run, for every store
        node = await world.node()
        new = [random_job(world, dice) for _ in range(60)]
        await world.enqueue_all(new, batch=dice.choice([1, 7, 60]))
        waiting = {one.id: await world.job(one.id) for one in new}
        while waiting:
            room = dice.choice([1, 2, 5, 13])
            claimed = [waiting[one.claim.job.id] for one in await world.claim(node, room=room)]
            assert len(claimed) == min(room, len(waiting))
            for job in claimed:
                del waiting[job.id]
            assert_in_order(claimed, list(waiting.values()))

    @obligation("claim", 4)
    async def test_what_is_due_earlier_goes_first_whatever_its_id(self, world: World) -> None:
        node = await world.node()
        late = await world.enqueue(run_at=world.now - HOUR)
        early = await world.enqueue(run_at=world.now - HOUR - MOMENT)

        assert [one.claim.job.id for one in await world.claim(node, room=2)] == [early, late]

    @obligation("claim", 4)
    async def test_what_is_due_at_the_same_time_goes_by_id(self, world: World) -> None:
        node = await world.node()
        ids = [JobId(UUID(int=number << 100 | 7)) for number in (9, 1, 255, 16, 128)]
        for id_ in ids:
            await world.enqueue(id=id_)

        assert [one.claim.job.id for one in await world.claim(node, room=5)] == sorted(ids)

    @obligation("claim", 4)
    async def test_a_retried_or_snoozed_job_stands_where_its_new_time_says(self, world: World) -> None:
        node = await world.node()
        snoozed, raised = await world.running(node), await world.running(node)
        await world.end(raised, RAISED)
        await world.end(snoozed, Snoozed(delay=11 * SECOND))
        world.clock.advance("11s")
        fresh = await world.enqueue()

        claimed = [one.claim.job.id for one in await world.claim(node, room=3)]
        assert claimed == [raised.job.id, snoozed.job.id, fresh]

    @obligation("claim", 4)
    @obligation("settle", 12)
    @pytest.mark.parametrize("end", ["lost", "interrupted", "never started"])
    async def test_a_job_that_is_lost_or_given_back_keeps_its_position_in_front_of_a_backlog(
        self, world: World, end: str
    ) -> None:
        node, other = await world.node(), await world.node()
        await world.enqueue_all([world.new() for _ in range(6)])
        early = [one.claim for one in await world.claim(node, room=5)]
        world.clock.advance("1m")
        await world.enqueue_all([world.new() for _ in range(2000)])
        for _ in range(4):  # a store may remember where its claims end: behind the jobs that come back
            assert len(await world.claim(other, room=25)) == 25
        world.clock.advance("1m")
        if end == "lost":
            await world.kill(node)
        outcome = Lost() if end == "lost" else Interrupted(started=end == "interrupted")
        settlements = [world.settlement(claim, outcome, by=other.id if end == "lost" else None) for claim in early]
        answers = await world.store.settle([settlements[number] for number in (3, 1, 4, 0, 2)])
        assert {one.verdict for one in answers} == {Verdict.ACCEPTED}

        assert [await world.job(claim.job.id) for claim in early] == [one.change.after for one in settlements]
        expected = [claim.job.id for claim in early]
        assert [one.claim.job.id for one in await world.claim(other, room=3)] == expected[:3]
        assert [one.claim.job.id for one in await world.claim(other, room=3)][:2] == expected[3:]

    @obligation("claim", 4)
    async def test_a_moved_job_stands_where_it_was_moved_to(self, world: World) -> None:
        node = await world.node()
        first, second, third, fourth = [await world.enqueue() for _ in range(4)]
        assert await world.command(third, MoveJob(priority=90)) is Verdict.ACCEPTED
        assert await world.command(first, MoveJob(run_at=world.now + HOUR)) is Verdict.ACCEPTED
        assert await world.command(fourth, MoveJob(run_at=world.now - HOUR)) is Verdict.ACCEPTED

        assert [one.claim.job.id for one in await world.claim(node, room=9)] == [third, fourth, second]
        world.clock.advance("1h")
        assert (await world.claim_one(node)).job.id == first

    @obligation("claim", 4)
    async def test_a_higher_priority_goes_first_over_all_queues(self, world: World) -> None:
        node = await world.node()
        low = await world.enqueue(queue="a", priority=1, run_at=world.now - HOUR)
        high = await world.enqueue(queue="z", priority=100)
        middle = await world.enqueue(queue="m", priority=50)

        for expected in (high, middle, low):
            claim = await world.claim_one(node)
            assert claim.job.id == expected
            await world.end(claim, Succeeded())

    @obligation("claim", 4)
    @obligation("claim", 3)
    async def test_a_queue_without_room_steps_aside(self, world: World) -> None:
        node = await world.node()
        high = [await world.enqueue(queue="full", priority=100) for _ in range(3)]
        low = [await world.enqueue(queue="free", priority=0) for _ in range(3)]

        answer = await world.ask(node, room=3, queues={"full": 1, "free": 9})

        assert [one.claim.job.id for one in answer.deliveries] == [high[0], *low[:2]]


def random_job(world: World, dice: random.Random) -> NewJob:
    return world.new(
        id=JobId(UUID(int=dice.getrandbits(128))),
        queue=dice.choice(["default", "mail", "photos"]),
        priority=dice.choice([0, 50, 50, 50, 51, 100]),
        run_at=world.now - timedelta(microseconds=dice.choice([0, 0, 1, 2, 10**9])),
    )


def assert_in_order(claimed: list[Job], left: list[Job]) -> None:
    """The port fixes an order within each queue and priority, and between priorities; not between equal queues."""
    assert [job.priority for job in claimed] == sorted((job.priority for job in claimed), reverse=True)
    lines: dict[tuple[str, int], list[Job]] = defaultdict(list)
    for job in claimed:
        lines[job.queue, job.priority].append(job)
    for line in lines.values():
        assert line == sorted(line, key=place)
    for job in left:
        line = lines[job.queue, job.priority]
        assert not line or place(line[-1]) < place(job)
        assert not claimed or job.priority <= claimed[-1].priority


def place(job: Job) -> tuple[object, JobId]:
    return job.run_at, job.id
