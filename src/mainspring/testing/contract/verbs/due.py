# ruff: noqa: S101 -- a suite of tests is built on assert
"""When a node may ask again."""

from datetime import timedelta

from mainspring.core.limits import Gate, Rate, Scope
from mainspring.core.outcome import Raised, Snoozed
from mainspring.testing.contract.obligation import obligation
from mainspring.testing.contract.verbs.contract import Contract
from mainspring.testing.contract.world import ERROR, HOUR, RESIZE, SEND, World


class DueContract(Contract):
    """`next_due` in the answer to a claim. Needs the roles Jobs, Nodes and Operator."""

    @obligation("claim", 9)
    async def test_the_next_due_time_is_not_later_than_the_next_job(self, world: World) -> None:
        node = await world.node()
        for delay in (3, 1, 2):
            await world.enqueue(run_at=delay * HOUR)

        next_due = (await world.ask(node)).next_due

        assert next_due is not None
        assert next_due <= world.now + HOUR

    @obligation("claim", 9)
    async def test_something_that_is_left_and_due_calls_for_another_claim_at_once(self, world: World) -> None:
        node = await world.node()
        await world.enqueue_all(world.new() for _ in range(3))

        next_due = (await world.ask(node, room=1)).next_due

        assert next_due is not None
        assert next_due <= world.now

    @obligation("claim", 9)
    async def test_a_due_time_is_known_for_what_retries_and_snoozes(self, world: World) -> None:
        node = await world.node()
        for outcome in (Snoozed(delay=HOUR), Raised(error=ERROR, retry_in=timedelta(minutes=20))):
            await world.end(await world.running(node), outcome)
        next_due = (await world.ask(node)).next_due

        assert next_due is not None
        assert next_due <= world.now + timedelta(minutes=20)

    @obligation("claim", 9)
    async def test_nothing_is_due_where_nothing_waits(self, world: World) -> None:
        node = await world.node()
        await world.running(node)

        assert (await world.ask(node)).next_due is None

    @obligation("claim", 9)
    async def test_what_the_node_did_not_ask_for_is_not_due_for_it(self, world: World) -> None:
        node = await world.node()
        await world.enqueue(RESIZE, run_at=HOUR)
        await world.enqueue(SEND, run_at=HOUR, queue="mail")

        assert (await world.ask(node, tasks=[SEND], queues={"photos": 5})).next_due is None

    @obligation("claim", 9)
    async def test_what_waits_for_a_pause_or_a_full_gate_is_not_due(self, world: World) -> None:
        node = await world.node()
        await world.store.declare([Gate(scope=Scope.TASK, name=str(SEND), concurrency=1)])
        await world.running(node, SEND)
        await world.enqueue(SEND)
        await world.enqueue(RESIZE, queue="paused")
        await world.store.pause("paused")

        answer = await world.ask(node, room=5)

        assert answer.deliveries == ()
        # Anything due now would make a node ask again and again.
        assert answer.next_due is None

    @obligation("claim", 9)
    async def test_what_waits_for_a_rate_is_due_when_the_rate_allows_it(self, world: World) -> None:
        node = await world.node()
        rate = Rate(count=1, period=timedelta(minutes=1))
        await world.store.declare([Gate(scope=Scope.TASK, name=str(SEND), rate=rate)])
        await world.running(node, SEND)
        await world.enqueue(SEND)

        answer = await world.ask(node, room=5)

        assert answer.deliveries == ()
        assert answer.next_due is not None
        assert world.now < answer.next_due <= world.now + timedelta(minutes=1)
