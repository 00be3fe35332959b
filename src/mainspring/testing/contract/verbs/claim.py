# ruff: noqa: S101 -- a suite of tests is built on assert
"""Claims: what a node gets, how much of it, and when it may ask again."""

import asyncio
from collections import Counter
from datetime import timedelta

import pytest

from mainspring.core import machine
from mainspring.core.command import CancelJob, MoveJob, RetryJob
from mainspring.core.job import JobId, State, claim_count
from mainspring.core.limits import MOMENT
from mainspring.core.names import Name
from mainspring.core.outcome import Interrupted, Outcome, Raised, Snoozed, Succeeded
from mainspring.errors import NodeGone
from mainspring.stores.records import ClaimRequest, Delivery, Facts, Held, Note, Verdict
from mainspring.testing.contract.obligation import GENERAL, obligation
from mainspring.testing.contract.verbs.contract import Contract
from mainspring.testing.contract.world import ERROR, HOUR, RESIZE, SECOND, SEND, TASKS, Member, World, claim_number


class ClaimContract(Contract):
    """`claim`, but for its order and for gates. Needs the roles Jobs, Nodes, Operator and Inspector."""

    @obligation("claim", 1)
    async def test_a_claimed_job_is_as_the_machine_says_and_committed(self, world: World) -> None:
        node = await world.node()
        other = await world.open()
        id_ = await world.enqueue()
        waiting = await world.job(id_)
        world.clock.advance("1s")

        request = ClaimRequest(node=node.id, term=node.term, tasks=TASKS, number=0xFFFF_FFFF)
        expected = machine.claim(waiting, node.id, request.number)
        (delivery,) = (await world.store.claim(request)).deliveries
        assert delivery.claim == expected
        assert claim_number(delivery.claim) == request.number
        (view,) = await other.get([id_])
        assert view is not None
        assert (view.job, view.node, view.started_at) == (expected.job, node.id, world.now)

    @obligation("claim", 1)
    async def test_a_claimed_job_is_held_by_its_node(self, world: World) -> None:
        node, bystander = await world.node(), await world.node()
        claim = await world.running(node)

        assert (await world.store.renew(node.id, node.term)).held == (Held(job=claim.job.id, lease=claim.job.lease),)
        assert (await world.store.renew(bystander.id, bystander.term)).held == ()

    @obligation("claim", 1)
    async def test_a_delivery_brings_all_that_an_attempt_needs(self, world: World) -> None:
        node = await world.node()
        facts = Facts(tags=("a", "b"), parent=world.id(), owner="me", traceparent="00-1-2-01")
        began = world.now
        new = world.new(payload=b"\x00\xff", timeout=timedelta(seconds=90), key="k", facts=facts)
        await world.store.enqueue([new])
        (first,) = await world.claim(node)

        assert first == Delivery(
            claim=first.claim,
            source=State.READY,
            payload=b"\x00\xff",
            enqueued_at=began,
            timeout=timedelta(seconds=90),
            key="k",
            facts=facts,
        )

        await world.store.note([Note(job=new.id, lease=first.claim.job.lease, node=node.id, saved=b'{"page":3}')])
        await world.end(first.claim, Raised(error=ERROR))
        world.clock.advance("1h")
        (second,) = await world.claim(node)

        assert (second.saved, second.previous_error) == (b'{"page":3}', ERROR)
        assert (second.payload, second.enqueued_at, second.facts) == (first.payload, began, facts)
        assert second.claim.job.attempt == 2

    @obligation("claim", 1)
    async def test_a_delivery_tells_in_which_state_its_job_waited(self, world: World) -> None:
        node = await world.node()
        await world.enqueue(run_at=SECOND)
        sources = []
        ends: list[Outcome] = [Raised(error=ERROR), Snoozed(delay=HOUR), Interrupted(started=True), Succeeded()]
        for outcome in ends:
            world.clock.advance("1h")
            (delivery,) = await world.claim(node)
            sources.append(delivery.source)
            await world.end(delivery.claim, outcome)

        assert sources == [State.SCHEDULED, State.RETRYING, State.SCHEDULED, State.READY]

    @obligation("claim", 2)
    async def test_only_what_is_due_is_claimed(self, world: World) -> None:
        node = await world.node()
        id_ = await world.enqueue(run_at=SECOND)

        world.clock.advance(SECOND - MOMENT)
        assert await world.claim(node) == ()
        world.clock.advance(MOMENT)
        assert (await world.claim_one(node)).job.id == id_

    @obligation("claim", 2)
    async def test_a_retry_and_a_snooze_are_claimed_when_they_are_due(self, world: World) -> None:
        node = await world.node()
        for outcome in (Raised(error=ERROR, retry_in=HOUR), Snoozed(delay=HOUR)):
            claim = await world.running(node)
            await world.end(claim, outcome)
            world.clock.advance(HOUR - MOMENT)
            assert await world.claim(node) == ()
            world.clock.advance(MOMENT)
            await world.end(await world.claim_one(node), Succeeded())

    @obligation("claim", 2)
    async def test_only_waiting_jobs_are_claimed(self, world: World) -> None:
        node = await world.node()
        cancelled = await world.enqueue()
        await world.command(cancelled, CancelJob())
        await world.end(await world.running(node), Succeeded())
        await world.running(node)

        assert await world.claim(node, room=10) == ()

    @obligation("claim", 2)
    async def test_only_the_tasks_asked_for_are_claimed(self, world: World) -> None:
        node = await world.node()
        await world.enqueue(SEND)
        resize = await world.enqueue(RESIZE)
        await world.enqueue(Name("", "photos.resize"))

        assert ids(await world.claim(node, room=10, tasks=[RESIZE])) == [resize]
        assert await world.claim(node, room=10, tasks=[]) == ()

    @obligation("claim", 2)
    async def test_only_the_queues_asked_for_are_claimed(self, world: World) -> None:
        node = await world.node()
        await world.enqueue(queue="mail")
        photo = await world.enqueue(queue="photos")

        assert ids((await world.ask(node, room=10, queues={"photos": 10})).deliveries) == [photo]
        assert (await world.ask(node, room=10, queues={})).deliveries == ()

    @obligation("claim", 2)
    @obligation("claim", 3)
    async def test_other_queues_are_claimed_where_that_is_asked_for(self, world: World) -> None:
        node = await world.node()
        await world.enqueue_all(world.new(queue=queue) for queue in ("mail", "photos", "bills") for _ in range(3))

        answer = await world.ask(node, room=10, queues={"mail": 1, "photos": 0}, others=True)

        assert Counter(one.claim.job.queue for one in answer.deliveries) == {"mail": 1, "bills": 3}

    @obligation("claim", 2)
    @obligation("pause")
    @obligation("resume")
    async def test_nothing_is_claimed_from_a_paused_queue_until_it_is_resumed(self, world: World) -> None:
        node = await world.node()
        paused, other = await world.enqueue(queue="mail"), await world.enqueue(queue="photos")
        await world.store.pause("mail")

        assert ids(await world.claim(node, room=10)) == [other]
        late = await world.enqueue(queue="mail")
        assert await world.claim(node, room=10) == ()
        await world.store.resume("mail")
        assert ids(await world.claim(node, room=10)) == [paused, late]

    @obligation("claim", 2)
    async def test_only_what_was_due_by_the_instant_asked_for_is_claimed(self, world: World) -> None:
        node = await world.node()
        early = await world.enqueue(run_at=world.now - HOUR)
        await world.enqueue(run_at=world.now - SECOND)

        answer = await world.ask(node, room=10, due_by=world.now - HOUR)

        assert ids(answer.deliveries) == [early]
        assert (await world.ask(node, room=10, due_by=world.now - HOUR)).deliveries == ()

    @obligation("claim", 3)
    async def test_no_more_than_room_and_ahead_together_are_claimed(self, world: World) -> None:
        node = await world.node()
        await world.enqueue_all(world.new() for _ in range(10))

        assert (await world.ask(node, room=0)).deliveries == ()
        assert len((await world.ask(node, room=2, ahead=3)).deliveries) == 5
        assert len((await world.ask(node, room=0, ahead=1)).deliveries) == 1
        assert len((await world.ask(node, room=9)).deliveries) == 4

    @obligation("claim", 3)
    async def test_no_more_than_its_own_room_is_claimed_of_a_queue(self, world: World) -> None:
        node = await world.node()
        await world.enqueue_all(world.new(queue=queue) for queue in ("mail", "photos", "bills") for _ in range(5))

        answer = await world.ask(node, room=10, ahead=2, queues={"mail": 2, "photos": 1, "bills": 0})

        assert Counter(one.claim.job.queue for one in answer.deliveries) == {"mail": 2, "photos": 1}

    @obligation("claim", 5)
    async def test_no_more_suspects_than_asked_for_are_claimed_and_others_come_instead(self, world: World) -> None:
        node = await world.node()
        suspects = [await world.enqueue(loss_limit=2) for _ in range(3)]
        await world.lose(1, suspects)
        clean = [await world.enqueue() for _ in range(2)]

        answer = await world.ask(node, room=4, suspects=0)
        assert ids(answer.deliveries) == clean
        answer = await world.ask(node, room=4, suspects=2)
        assert ids(answer.deliveries) == suspects[:2]

    @obligation("claim", 5)
    async def test_a_suspect_is_not_claimed_ahead(self, world: World) -> None:
        node = await world.node()
        suspects = [await world.enqueue(loss_limit=2) for _ in range(2)]
        await world.lose(1, suspects)
        clean = await world.enqueue()

        answer = await world.ask(node, room=0, ahead=5, suspects=5)
        assert not answer.deliveries
        answer = await world.ask(node, room=1, ahead=5, suspects=5)
        assert ids(answer.deliveries) == suspects[:1]
        answer = await world.ask(node, room=0, ahead=5, suspects=0)
        assert ids(answer.deliveries) == [clean]

    @obligation("claim", 5)
    @pytest.mark.parametrize("kind", ["only attempt", "only loss", "last of three attempts", "granted by an operator"])
    async def test_a_job_that_a_loss_would_end_is_not_claimed_ahead_nor_passed_over(
        self, world: World, kind: str
    ) -> None:
        node = await world.node()
        before = [await world.enqueue(run_at=world.now - 3 * HOUR) for _ in range(2)]
        last = [await last_chance(world, node, kind) for _ in range(3)]
        behind = [await world.enqueue() for _ in range(2)]
        urgent = await world.enqueue(priority=99)

        assert ids((await world.ask(node, room=0, ahead=9)).deliveries) == [urgent, *before]
        assert not (await world.ask(node, room=0, ahead=9)).deliveries
        assert ids((await world.ask(node, room=2, ahead=9)).deliveries) == last[:2]
        assert ids((await world.ask(node, room=1, ahead=9)).deliveries) == [last[2], *behind]

    @obligation("claim", 5)
    async def test_a_job_that_a_loss_would_end_steps_aside_where_its_queue_is_full(self, world: World) -> None:
        node = await world.node()
        full = await world.enqueue(max_attempts=1, queue="full")
        behind = await world.enqueue()

        assert ids((await world.ask(node, room=0, ahead=9, queues={"full": 0, "default": 9})).deliveries) == [behind]
        assert ids((await world.ask(node, room=1, ahead=9)).deliveries) == [full]

    @obligation("claim", 5)
    async def test_a_job_that_may_be_lost_once_more_is_no_suspect_yet(self, world: World) -> None:
        node = await world.node()
        lost = [await world.enqueue(loss_limit=3) for _ in range(3)]
        await world.lose(1, lost)

        assert ids((await world.ask(node, room=1, ahead=1, suspects=0)).deliveries) == lost[:2]

    @obligation("claim", 5)
    async def test_a_job_that_was_never_lost_is_no_suspect(self, world: World) -> None:
        node = await world.node()
        fresh = [await world.enqueue(loss_limit=1) for _ in range(2)]

        assert ids((await world.ask(node, room=2, ahead=1, suspects=0)).deliveries) == fresh

    @obligation("claim", 5)
    async def test_many_suspects_in_front_do_not_hide_what_comes_behind(self, world: World) -> None:
        node = await world.node()
        suspects = [await world.enqueue(loss_limit=2) for _ in range(30)]
        await world.lose(1, suspects)
        clean = await world.enqueue()

        assert ids((await world.ask(node, room=2, suspects=1)).deliveries) == [suspects[0], clean]

    @obligation("claim", 7)
    async def test_concurrent_claims_never_share_a_job(self, world: World) -> None:
        handles = [world.store, await world.open(), await world.open()]
        nodes = [await world.node() for _ in range(6)]
        await world.enqueue_all(world.new() for _ in range(100))

        async def drain(number: int, node: Member) -> list[Delivery]:
            got: list[Delivery] = []
            while batch := (await world.ask(node, store=handles[number % 3], room=3)).deliveries:
                got.extend(batch)
            return got

        everything = [one for got in await asyncio.gather(*map(drain, range(6), nodes)) for one in got]

        assert len(everything) == 100
        assert len({(one.claim.job.id, one.claim.job.lease) for one in everything}) == 100
        for delivery in everything:
            assert await world.job(delivery.claim.job.id) == delivery.claim.job

    @obligation("claim", 7)
    async def test_every_claim_of_a_job_has_a_lease_of_its_own(self, world: World) -> None:
        first, second = await world.node(), await world.node()
        await world.enqueue()
        leases: list[int] = []
        for node in (first, first, second, second):
            claim = await world.claim_one(node)
            leases.append(claim.job.lease)
            await world.end(claim, Snoozed(delay=0 * SECOND))

        assert [claim_count(lease) for lease in leases] == [1, 2, 3, 4]
        assert leases == sorted(leases)

    @obligation("claim", 7)
    async def test_every_lease_contains_the_number_of_its_request(self, world: World) -> None:
        """Of several claims in a row, too, which a store may serve in another way than the first."""
        node = await world.node()
        await world.enqueue_all(world.new() for _ in range(6))
        given: list[int] = []
        for number in (7, 3, 5):
            request = ClaimRequest(node=node.id, term=node.term, tasks=TASKS, room=2, number=number)
            given += [claim_number(one.claim) for one in (await world.store.claim(request)).deliveries]

        assert given == [7, 7, 3, 3, 5, 5]

    @obligation("claim", 8)
    @obligation(GENERAL, 1)
    async def test_a_node_that_is_not_alive_under_its_term_gets_nothing(self, world: World) -> None:
        dead, stranger = await world.node(), Member(world.record().id, 1)
        await world.kill(dead)
        alive = await world.node()
        id_ = await world.enqueue()

        for node in (dead, stranger, Member(alive.id, alive.term + 1)):
            with pytest.raises(NodeGone):
                await world.claim(node)

        assert (await world.job(id_)).state is State.READY


def ids(deliveries: tuple[Delivery, ...]) -> list[object]:
    return [one.claim.job.id for one in deliveries]


async def last_chance(world: World, node: Member, kind: str) -> JobId:
    """Enqueue a job that a loss would end, due an hour ago, which nothing else may be as long as it is made."""
    long_ago = world.now - HOUR
    match kind:
        case "only attempt":
            return await world.enqueue(max_attempts=1, run_at=long_ago)
        case "only loss":
            return await world.enqueue(loss_limit=1, run_at=long_ago)
        case "last of three attempts":
            job = await world.enqueue(max_attempts=3, run_at=long_ago, priority=100)
            for _ in range(2):
                claim = await world.claim_one(node)
                await world.end(claim, Raised(error=ERROR, retry_in=0 * SECOND))
        case _:
            job = await world.enqueue(max_attempts=1, run_at=long_ago, priority=100)
            await world.fail(job, node)
            assert await world.command(job, RetryJob()) is Verdict.ACCEPTED
    assert await world.command(job, MoveJob(priority=50, run_at=long_ago)) is Verdict.ACCEPTED
    return job
