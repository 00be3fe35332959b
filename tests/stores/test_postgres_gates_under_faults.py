# ruff: noqa: S311 -- chance decides who meets whom, and keeps no secret
"""Limits on PostgreSQL when several claim, end and operate at the same time: never exceeded, and nobody is forgotten."""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace

from mainspring.core import machine
from mainspring.core.command import CancelJob, Command, DeleteJob, MoveJob
from mainspring.core.job import JobId
from mainspring.core.limits import Gate, Rate, Scope
from mainspring.core.outcome import Interrupted, Lost, Outcome, Snoozed, Succeeded
from mainspring.stores.postgres import through
from mainspring.stores.records import Delivery, Place, Settlement, Verdict
from tests.servers.postgres import Server
from tests.stores.postgres_crowd import (
    FATAL,
    RAISED,
    SEND,
    Crowd,
    Node,
    crowd,
    empty,
    end,
    few_and_many,
    lasting_schema,
    new,
    watching,
)
from tests.stores.postgres_staged import staged
from tests.stores.postgres_wires import on_real_time

FAR = datetime(2100, 1, 1, tzinfo=UTC)
SHORT = timedelta(milliseconds=20)
ENDS: list[Outcome] = [Succeeded(), Snoozed(delay=SHORT), Interrupted(started=True), RAISED, FATAL]


@pytest.fixture(scope="module")
def schema(postgres: Server) -> Iterator[str]:
    with lasting_schema(postgres) as name:
        yield name


@pytest.fixture
def postgres_schema(postgres: Server, schema: str) -> str:
    empty(postgres, schema)
    return schema


@on_real_time
async def test_jobs_that_a_keys_rate_has_parked_go_on_at_its_pace(postgres: Server, postgres_schema: str) -> None:
    async with crowd(postgres, postgres_schema) as those:
        node = await those.node()
        rate = Rate(count=200, period=timedelta(seconds=1), burst=2)
        await node.store.declare([Gate(scope=Scope.KEY, name=str(SEND), rate=rate)])
        await node.store.enqueue([new(key="a") for _ in range(60)])
        parked: list[int] = []
        async with asyncio.timeout(60):
            done = 0
            while done < 60:
                claimed = await node.claim(10)
                done += len(await node.settle(claimed.deliveries)) if claimed.deliveries else 0
                ((number,),) = await those.sql("SELECT count(*) FROM mainspring.jobs WHERE parked")
                parked.append(number)
                due = claimed.next_due
                assert done == 60 or due is not None, f"{done} done, {number} parked, and nobody will look again"
                await asyncio.sleep(0 if due is None else max(0, (due - node.store.now()).total_seconds()))

        assert max(parked) > 30  # else this shows nothing


@on_real_time
async def test_a_gate_counts_what_was_being_claimed_when_it_was_put_up(postgres: Server, postgres_schema: str) -> None:
    async with crowd(postgres, postgres_schema) as those:
        node, other = await those.node(), await those.open()
        await node.store.declare([Gate(scope=Scope.QUEUE, name="default", concurrency=10)])
        await node.store.enqueue([new() for _ in range(5)])
        gate = Gate(scope=Scope.TASK, name=str(SEND), concurrency=1)
        first = await staged(node.claim(1), after_take=lambda: other.declare([gate]))
        second = await node.claim(5)

        assert len(first.deliveries) + len(second.deliveries) == 1


@pytest.fixture
def _quick_to_park(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(through, "HINDERING", 0)


@asynccontextmanager
async def blocked(server: Server, schema: str) -> "AsyncIterator[tuple[Crowd, Node, list[Delivery], list[JobId]]]":
    """A job of a key that runs, and two more of the same key behind it, parked."""
    async with crowd(server, schema) as those:
        node = await those.node()
        await node.store.declare([Gate(scope=Scope.KEY, name=str(SEND), concurrency=1)])
        jobs = [new(key="a") for _ in range(3)]
        await node.store.enqueue(jobs)
        deliveries = await node.take(3)
        assert [delivery.claim.job.id for delivery in deliveries] == [jobs[0].id]
        assert await those.sql("SELECT id FROM mainspring.jobs WHERE parked ORDER BY id") == [
            (job.id,) for job in jobs[1:]
        ]
        yield those, node, deliveries, [job.id for job in jobs[1:]]


async def taken_soon(node: Node) -> list[JobId]:
    """Claim as a node does that nobody wakes: at once, and then once a second."""
    async with asyncio.timeout(30):
        while not (deliveries := await node.take(5)):
            await asyncio.sleep(0.2)
    return [delivery.claim.job.id for delivery in deliveries]


@pytest.mark.parametrize("blocked", [1, through.HINDERING + 1, through.MANY + 1])
@on_real_time
async def test_who_may_go_is_found_behind_however_many_may_not(
    postgres: Server, postgres_schema: str, blocked: int
) -> None:
    async with crowd(postgres, postgres_schema) as those:
        node = await those.node()
        await node.store.declare([Gate(scope=Scope.KEY, name=str(SEND), concurrency=1)])
        jobs = [new(key="a") for _ in range(blocked + 1)]
        await node.store.enqueue([*jobs, last := new(key="b")])
        first, second = await node.take(1), await node.take(1)

        assert [delivery.claim.job.id for delivery in [*first, *second]] == [jobs[0].id, last.id]
        assert await node.take(1) == []
        await node.settle(first)
        assert await taken_soon(node) == [jobs[1].id]


@on_real_time
async def test_a_key_that_was_freed_and_that_nobody_waits_for_is_done_with(
    postgres: Server, postgres_schema: str
) -> None:
    async with crowd(postgres, postgres_schema) as those:
        node = await those.node()
        await node.store.declare([Gate(scope=Scope.KEY, name=str(SEND), concurrency=1)])
        await node.store.enqueue([new(key="a")])
        await node.settle(await node.take(1))
        freed = "SELECT key FROM mainspring.freed"
        assert await those.sql(freed) == [(b"a",)]
        assert await node.take(1) == []
        assert await those.sql(freed) == []
        await node.store.enqueue([job := new(key="a")])

        assert await taken_soon(node) == [job.id]


@pytest.mark.usefixtures("_quick_to_park")
@on_real_time
async def test_parked_jobs_go_on_one_by_one_in_order(postgres: Server, postgres_schema: str) -> None:
    async with blocked(postgres, postgres_schema) as (_, node, first, others):
        await node.settle(first)
        second = await node.take(3)
        assert await node.take(3) == []
        await node.settle(second)
        third = await node.take(3)

        assert [delivery.claim.job.id for delivery in [*second, *third]] == others


@pytest.mark.usefixtures("_quick_to_park")
@on_real_time
async def test_a_parked_job_is_not_forgotten_because_somebody_had_his_hands_on_it(
    postgres: Server, postgres_schema: str
) -> None:
    async with blocked(postgres, postgres_schema) as (those, node, first, others):
        other = await those.open()

        async def meanwhile() -> None:
            await node.settle(first)
            assert await node.take(5) == []

        stale = [replace(await those.job(job), revision=99) for job in others]
        changes = [Settlement(change=machine.command(job, CancelJob(), other.now())) for job in stale]
        await staged(other.settle(changes), after_settle_read=meanwhile)

        assert await taken_soon(node) == others[:1]


@pytest.mark.parametrize("word", [CancelJob(), DeleteJob(), MoveJob(run_at=FAR), MoveJob(queue="paused")], ids=repr)
@pytest.mark.usefixtures("_quick_to_park")
@on_real_time
async def test_a_parked_job_is_not_forgotten_because_the_one_before_it_was_taken_away(
    postgres: Server, postgres_schema: str, word: Command
) -> None:
    async with blocked(postgres, postgres_schema) as (those, node, first, others):
        other = await those.open()
        await other.pause("paused")
        await node.settle(first)

        assert (await node.claim(5, queues={"elsewhere": 5})).deliveries == ()
        assert await those.sql("SELECT id FROM mainspring.jobs WHERE parked") == [(others[1],)]
        assert (await those.command(other, others[0], word)).verdict is Verdict.ACCEPTED

        assert await taken_soon(node) == others[1:]


# Many at once.


class Yard:
    """Jobs behind gates, and nodes that work them off in all ways that there are."""

    def __init__(self, those: Crowd, limit: int) -> None:
        self.those = those
        self.limit = limit
        self.ends: Counter[JobId] = Counter()

    async def look(self) -> None:
        """Hold what runs, and what keeps its place, against the limits."""
        over = await self.those.sql(
            "SELECT 'running', key::text, count(*) FROM mainspring.jobs WHERE state = 'running' AND key IS NOT NULL"
            " GROUP BY key HAVING count(*) > $1"
            " UNION ALL SELECT 'places', key::text, count(*) FROM mainspring.places WHERE scope = 'key'"
            " GROUP BY key HAVING count(*) > $1",
            self.limit,
        )
        assert over == []

    async def work(self, node: Node) -> None:
        """Claim and end attempts until nothing is left; idle for a moment where nothing is given, as a node would be."""
        while not await self.those.is_over():
            deliveries = await node.take(random.randint(1, 6))
            if not deliveries:
                await asyncio.sleep(0.01)
                continue
            for delivery in deliveries:
                await self._end(node, delivery)

    async def _end(self, node: Node, delivery: Delivery) -> None:
        outcome = random.choices(ENDS, [10, 2, 2, 1, 1])[0]
        keeps = random.random() < 0.2
        settlement = end(delivery, outcome, node.store.now())
        (settled,) = await node.store.settle([_keeping(settlement, keeps)])
        assert settled.verdict is Verdict.ACCEPTED
        if keeps:
            await asyncio.sleep(random.uniform(0, 0.01))
            await node.store.release(node.id, [Place(delivery.claim.job.id, delivery.claim.job.lease)])

    async def die(self) -> None:
        """Be a node that takes jobs and is never heard of again; another finds what it leaves."""
        reaper = await self.those.node()
        while not await self.those.is_over():
            node = await self.those.node(reaper.store)
            await node.take(3)
            await asyncio.sleep(0.02)
            assert await reaper.store.declare_dead(node.id, node.term)
            for orphan in await reaper.store.orphans(10):
                change = machine.decide(orphan, Lost(), reaper.store.now(), 0.5)
                await reaper.store.settle([Settlement(change=change, by=reaper.id)])
            await asyncio.sleep(0.05)


def _keeping(settlement: Settlement, keeps: bool) -> Settlement:
    return Settlement(change=settlement.change, by=settlement.by, keeps_place=keeps)


@pytest.mark.parametrize("patience", [(1, 0), (3, 2), (1000, 20)], ids=["parks all", "parks some", "as it is"])
@few_and_many
@on_real_time
async def test_a_limit_by_key_is_never_exceeded_and_nobody_is_forgotten(
    postgres: Server, postgres_schema: str, size: int, patience: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(through, "MANY", patience[0])
    monkeypatch.setattr(through, "HINDERING", patience[1])
    async with crowd(postgres, postgres_schema) as those:
        yard = Yard(those, limit=3)
        nodes = [await those.node() for _ in range(4)]
        store = nodes[0].store
        await store.declare([Gate(scope=Scope.KEY, name=str(SEND), concurrency=3)])
        backoff = new().backoff.fixed("10ms")
        jobs = [
            new(
                key=random.choice(["a", "a", "a", "b", None]),
                priority=random.choice([10, 50]),
                backoff=backoff,
                loss_limit=99,
            )
            for _ in range(60 * size)
        ]
        await store.enqueue(jobs)
        async with asyncio.timeout(90), watching(yard.look):
            await asyncio.gather(yard.die(), *map(yard.work, nodes))

        assert sum((await those.ended()).values()) == len(jobs)
        assert await those.sql("SELECT * FROM mainspring.places WHERE NOT kept") == []
