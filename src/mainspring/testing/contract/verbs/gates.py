# ruff: noqa: S101 -- a suite of tests is built on assert
"""Concurrency gates: exact over all nodes, and nobody behind them waits for those in front."""

import asyncio
from collections import Counter

import pytest

from mainspring.core.command import CancelJob, DeleteJob, MoveJob
from mainspring.core.limits import Gate, Scope
from mainspring.core.names import Name
from mainspring.core.outcome import Deferred, Interrupted, Lost, Outcome, Snoozed, Succeeded
from mainspring.stores.records import Delivery, Verdict
from mainspring.testing.contract.obligation import obligation
from mainspring.testing.contract.verbs.contract import Contract
from mainspring.testing.contract.world import FATAL, HOUR, RAISED, RESIZE, SECOND, SEND, Member, World

MANY = 1000


class GatesContract(Contract):
    """Concurrency in `claim` and `declare`. Needs the roles Jobs, Nodes and Inspector."""

    @obligation("claim", 6)
    @obligation("declare", 1)
    async def test_no_more_jobs_of_a_task_run_than_its_gate_says(self, world: World) -> None:
        node, other = await world.node(), await world.node()
        await world.store.declare([task_gate(3)])
        await world.enqueue_all(world.new(SEND) for _ in range(9))

        first, second = await world.claim(node, room=2), await world.claim(other, room=MANY)
        assert [len(first), len(second)] == [2, 1]
        assert await world.claim(node, room=MANY) == ()
        await world.end(first[0].claim, Succeeded())
        assert len(await world.claim(other, room=MANY)) == 1

    @obligation("claim", 6)
    async def test_no_more_jobs_of_a_queue_run_than_its_gate_says(self, world: World) -> None:
        node = await world.node()
        await world.store.declare([Gate(scope=Scope.QUEUE, name="mail", concurrency=2)])
        await world.enqueue_all(world.new(task, queue="mail") for task in (SEND, RESIZE) * 3)
        await world.enqueue_all(world.new(queue="other") for _ in range(4))

        assert Counter(one.claim.job.queue for one in await world.claim(node, room=MANY)) == {"mail": 2, "other": 4}

    @obligation("claim", 6)
    async def test_each_key_is_counted_apart_and_within_its_task(self, world: World) -> None:
        node = await world.node()
        await world.store.declare([key_gate(1), Gate(scope=Scope.KEY, name=str(RESIZE), concurrency=2)])
        for task in (SEND, RESIZE):
            await world.enqueue_all(world.new(task, key=key) for key in "aab" * 2)

        claimed = await world.claim(node, room=MANY)

        counts = Counter((one.claim.job.task, one.key) for one in claimed)
        assert counts == {(SEND, "a"): 1, (SEND, "b"): 1, (RESIZE, "a"): 2, (RESIZE, "b"): 2}

    @obligation("claim", 6)
    async def test_a_job_without_a_key_passes_a_gate_of_keys(self, world: World) -> None:
        node = await world.node()
        await world.store.declare([key_gate(1)])
        await world.enqueue_all(world.new(key=key) for key in (None, "", None, "", None))

        assert Counter(one.key for one in await world.claim(node, room=MANY)) == {None: 3, "": 1}

    @obligation("claim", 6)
    async def test_a_job_passes_all_of_its_gates_or_none(self, world: World) -> None:
        node = await world.node()
        await world.store.declare([task_gate(3), key_gate(1), Gate(scope=Scope.QUEUE, name="default", concurrency=4)])
        await world.enqueue_all(world.new(SEND, key=key) for key in "aaaabcde")
        await world.enqueue_all(world.new(RESIZE) for _ in range(3))

        claimed = await world.claim(node, room=MANY)

        # What is held back by one gate takes no place at another: else those behind the first three would find none.
        assert [one.key for one in claimed] == ["a", "b", "c", None]

    @obligation("claim", 6)
    @pytest.mark.parametrize(
        "outcome",
        [Succeeded(), RAISED, FATAL, Snoozed(delay=HOUR), Deferred(delay=HOUR), Interrupted(started=True)],
        ids=lambda outcome: type(outcome).__name__,
    )
    @obligation("settle", 5)
    async def test_any_end_of_an_attempt_gives_its_place_up(self, world: World, outcome: Outcome) -> None:
        node = await world.node()
        await world.store.declare([task_gate(1), key_gate(1), Gate(scope=Scope.QUEUE, name="default", concurrency=1)])
        claim = await world.running(node, key="a")
        await world.enqueue(key="a", priority=99)
        assert await world.claim(node) == ()

        await world.end(claim, outcome)

        assert (await world.claim_one(node)).job.priority == 99

    @obligation("claim", 6)
    @obligation("settle", 5)
    async def test_a_lost_attempt_gives_its_place_up_when_it_is_settled_and_not_before(self, world: World) -> None:
        node, reaper = await world.node(), await world.node()
        await world.store.declare([task_gate(1)])
        claim = await world.running(node)
        await world.enqueue(priority=99)
        await world.kill(node)
        assert await world.claim(reaper) == ()

        await world.settle(claim, Lost(), by=reaper.id)

        assert (await world.claim_one(reaper)).job.priority == 99

    @obligation("claim", 6)
    async def test_a_gate_is_exact_under_many_concurrent_claims(self, world: World) -> None:
        handles = [world.store, await world.open(), await world.open()]
        nodes = [await world.node() for _ in range(6)]
        await world.store.declare([task_gate(5), key_gate(2)])
        await world.enqueue_all(world.new(key=key) for key in "abcd" * 15)
        running: set[Delivery] = set()
        done = 0

        async def work(number: int, node: Member) -> None:
            nonlocal done
            store = handles[number % len(handles)]
            for turn in range(MANY):
                mine = (await world.ask(node, store=store, room=1 + (number + turn) % 3)).deliveries
                running.update(mine)
                assert len(running) <= 5
                assert max(Counter(one.key for one in running).values(), default=0) <= 2
                await asyncio.sleep(0)
                for delivery in mine:
                    # Counted out before it is settled: from then on another may have the place.
                    running.remove(delivery)
                    settled = await world.settle(delivery.claim, Succeeded(), store=store)
                    assert settled.verdict is Verdict.ACCEPTED
                    done += 1
                if done == 60:
                    return

        await asyncio.gather(*map(work, range(6), nodes))
        assert done == 60

    @obligation("claim", 6)
    async def test_as_many_run_as_a_gate_allows_under_concurrent_claims(self, world: World) -> None:
        handles = [world.store, await world.open(), await world.open()]
        nodes = [await world.node() for _ in range(9)]
        await world.store.declare([task_gate(7)])
        await world.enqueue_all(world.new() for _ in range(50))

        answers = await asyncio.gather(
            *(world.ask(node, store=handles[at % 3], room=3) for at, node in enumerate(nodes))
        )

        assert sum(len(answer.deliveries) for answer in answers) == 7

    @obligation("claim", 4)
    async def test_what_a_gate_holds_back_steps_aside(self, world: World) -> None:
        node = await world.node()
        await world.store.declare([task_gate(1)])
        await world.enqueue_all(world.new(SEND, priority=100) for _ in range(MANY))
        free = await world.enqueue(RESIZE, priority=0)

        claimed = await world.claim(node, room=2)

        assert [one.claim.job.task for one in claimed] == [SEND, RESIZE]
        assert claimed[1].claim.job.id == free

    @obligation("claim", 4)
    async def test_what_was_held_back_keeps_its_order(self, world: World) -> None:
        node = await world.node()
        await world.store.declare([task_gate(1)])
        held = [await world.enqueue(run_at=world.now - at * SECOND) for at in range(5)]
        claim = await world.claim_one(node)
        assert await world.claim(node) == ()
        low, high = await world.enqueue(priority=0), await world.enqueue(priority=100)

        order = []
        while True:
            await world.end(claim, Succeeded())
            following = await world.claim(node)
            if not following:
                break
            claim = following[0].claim
            order.append(claim.job.id)

        assert order == [high, *held[3::-1], low]

    @obligation("declare", 1)
    async def test_a_new_declaration_holds_for_jobs_that_wait_already(self, world: World) -> None:
        node = await world.node()
        await world.enqueue_all(world.new() for _ in range(20))
        await world.store.declare([task_gate(2)])
        claimed = list(await world.claim(node, room=MANY))
        assert len(claimed) == 2

        await world.store.declare([task_gate(5)])
        claimed += await world.claim(node, room=MANY)
        assert len(claimed) == 5

        await world.store.declare([task_gate(4)])
        await world.end(claimed.pop().claim, Succeeded())
        assert await world.claim(node, room=MANY) == ()
        await world.end(claimed.pop().claim, Succeeded())
        assert len(await world.claim(node, room=MANY)) == 1

    @obligation("declare", 1)
    async def test_a_declaration_counts_what_runs_already(self, world: World) -> None:
        node = await world.node()
        await world.enqueue_all(world.new(key="a") for _ in range(9))
        running = await world.claim(node, room=3)
        await world.store.declare([task_gate(4), key_gate(4)])

        assert len(await world.claim(node, room=MANY)) == 1
        await world.end(running[0].claim, Succeeded())
        assert len(await world.claim(node, room=MANY)) == 1

    @obligation("declare", 1)
    @pytest.mark.parametrize("scope", list(Scope))
    async def test_a_declaration_without_limits_takes_the_gate_away(self, world: World, scope: Scope) -> None:
        node = await world.node()
        name = "default" if scope is Scope.QUEUE else str(SEND)
        await world.store.declare([Gate(scope=scope, name=name, concurrency=1)])
        await world.enqueue_all(world.new(key="a") for _ in range(9))
        assert len(await world.claim(node, room=MANY)) == 1

        await world.store.declare([Gate(scope=scope, name=name)])

        assert len(await world.claim(node, room=MANY)) == 8

    @obligation("declare", 1)
    async def test_gates_of_the_same_name_and_another_scope_are_others(self, world: World) -> None:
        node = await world.node()
        await world.store.declare([Gate(scope=Scope.QUEUE, name=str(SEND), concurrency=1)])
        await world.store.declare([Gate(scope=Scope.TASK, name="default", concurrency=1)])
        await world.enqueue_all(world.new(task, key="a") for task in (SEND, Name("", "mail")) for _ in range(3))

        assert len(await world.claim(node, room=MANY, tasks=[SEND, Name("", "mail")])) == 6

    @obligation("declare", 1)
    async def test_the_last_of_two_declarations_in_one_call_holds(self, world: World) -> None:
        node = await world.node()
        await world.store.declare([task_gate(1), task_gate(2)])
        await world.enqueue_all(world.new() for _ in range(5))

        assert len(await world.claim(node, room=MANY)) == 2

    @obligation("claim", 6)
    async def test_a_held_back_job_that_is_moved_answers_to_its_new_queue(self, world: World) -> None:
        node = await world.node()
        await world.store.declare([Gate(scope=Scope.QUEUE, name="mail", concurrency=1)])
        claim = await world.running(node, queue="mail")
        mover, stayer = await world.enqueue(queue="mail"), await world.enqueue(queue="mail")
        assert await world.claim(node, room=MANY) == ()

        assert await world.command(mover, MoveJob(queue="other")) is Verdict.ACCEPTED
        assert [one.claim.job.id for one in await world.claim(node, room=MANY)] == [mover]
        await world.end(claim, Succeeded())
        assert [one.claim.job.id for one in await world.claim(node, room=MANY)] == [stayer]

    @obligation("claim", 6)
    async def test_held_back_jobs_that_leave_hinder_nobody(self, world: World) -> None:
        node = await world.node()
        await world.store.declare([task_gate(1)])
        claim = await world.running(node)
        cancelled, deleted, last = [await world.enqueue() for _ in range(3)]
        assert await world.claim(node) == ()
        await world.command(cancelled, CancelJob())
        await world.command(deleted, DeleteJob())

        await world.end(claim, Succeeded())

        assert [one.claim.job.id for one in await world.claim(node, room=MANY)] == [last]

    @obligation("claim", 6)
    async def test_one_free_place_is_enough_for_a_job_that_another_node_knows(self, world: World) -> None:
        sender, resizer = await world.node(), await world.node()
        await world.store.declare([Gate(scope=Scope.QUEUE, name="default", concurrency=1)])
        claim = await world.running(sender, SEND)
        await world.enqueue(SEND)
        wanted = await world.enqueue(RESIZE)
        assert await world.claim(sender, room=MANY) == ()
        await world.end(claim, Succeeded())

        # The place goes to the first in line that the node can run, not to the first in line.
        assert [one.claim.job.id for one in await world.claim(resizer, tasks=[RESIZE])] == [wanted]


def task_gate(concurrency: int) -> Gate:
    return Gate(scope=Scope.TASK, name=str(SEND), concurrency=concurrency)


def key_gate(concurrency: int) -> Gate:
    return Gate(scope=Scope.KEY, name=str(SEND), concurrency=concurrency)
