"""Claims on PostgreSQL while something else happens: an enqueue, other rules, another claim, a stall; and obstacles in front."""

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from msgspec.structs import replace

from mainspring.core.breaker import Breaker
from mainspring.core.limits import Gate, Rate, Scope
from mainspring.core.names import Name
from mainspring.stores.postgres import claim, lines
from mainspring.stores.postgres.lines import SELDOM_S, Came, Kind, Line, Lines, Source
from tests.servers.postgres import Server
from tests.stores.postgres_crowd import RAISED, SEND, crowd, empty, end, insert_late, lasting_schema, new
from tests.stores.postgres_staged import staged
from tests.stores.postgres_wires import on_real_time

OTHER = Name("", "other")
FREE = Name("", "free")
LIMITED = Name("", "limited")
HOUR = timedelta(hours=1)
NOON = datetime(2031, 5, 6, 12, tzinfo=UTC)
SOURCE = Source(Line(Kind.ALL, "", frozenset({SEND}), None, frozenset()), 50)


@pytest.fixture(scope="module")
def schema(postgres: Server) -> Iterator[str]:
    with lasting_schema(postgres) as name:
        yield name


@pytest.fixture
def postgres_schema(postgres: Server, schema: str) -> str:
    empty(postgres, schema)
    return schema


# Obstacles in front.


@pytest.mark.parametrize("scope", [Scope.TASK, Scope.KEY])
@pytest.mark.parametrize("jobs", [12, 1500])
@on_real_time
async def test_jobs_of_a_full_queue_do_not_hide_those_behind_them(
    postgres: Server, postgres_schema: str, scope: Scope, jobs: int
) -> None:
    """The task has a limit of its own, which is not used up, so the full queue is in the middle of its line."""
    async with crowd(postgres, postgres_schema) as those:
        node = await those.node(tasks=[LIMITED, FREE])
        gates = [Gate(scope=scope, name="limited", concurrency=5), Gate(scope=Scope.QUEUE, name="busy", concurrency=1)]
        await node.store.declare(gates)
        since = node.store.now() - HOUR
        await node.store.enqueue([new(LIMITED, queue="busy", run_at=since) for _ in range(jobs)])
        assert len(await node.take(1)) == 1
        behind = [new(LIMITED, queue="idle", run_at=since + timedelta(seconds=1)), new(FREE), new(FREE, priority=10)]
        await node.store.enqueue(behind)

        for _ in range(2):
            assert [one.claim.job.id for one in await node.take(1)] == [behind.pop(0).id]
        claimed = await node.claim(10)
        assert [one.claim.job.id for one in claimed.deliveries] == [behind.pop().id]
        claimed = await node.claim(10)
        assert claimed.deliveries == ()
        assert claimed.next_due is None, "a place has to be freed first"


@on_real_time
async def test_jobs_of_a_queue_whose_rate_is_spent_are_due_when_it_opens(
    postgres: Server, postgres_schema: str
) -> None:
    async with crowd(postgres, postgres_schema) as those:
        node = await those.node(tasks=[LIMITED])
        slow = Gate(scope=Scope.QUEUE, name="slow", rate=Rate(count=1, period=HOUR, burst=1))
        await node.store.declare([Gate(scope=Scope.TASK, name="limited", concurrency=9), slow])
        await node.store.enqueue([new(LIMITED, queue="slow", run_at=node.store.now() - HOUR) for _ in range(30)])
        assert len(await node.take(5)) == 1

        claimed = await node.claim(5)
        assert claimed.deliveries == ()
        assert claimed.next_due is not None
        assert HOUR / 2 < claimed.next_due - node.store.now() <= HOUR


@on_real_time
async def test_suspects_that_a_node_may_not_have_do_not_hide_its_own(postgres: Server, postgres_schema: str) -> None:
    async with crowd(postgres, postgres_schema) as those:
        node = await those.node()
        since = node.store.now() - HOUR
        await node.store.enqueue([new(OTHER, run_at=since) for _ in range(2500)] + [new()])
        await those.sql("UPDATE mainspring.jobs SET care = 1, losses = 2")

        assert len(await node.take(5)) == 1


@on_real_time
async def test_suspects_behind_a_full_limit_do_not_hide_others(postgres: Server, postgres_schema: str) -> None:
    async with crowd(postgres, postgres_schema) as those:
        node = await those.node(tasks=[LIMITED, SEND])
        await node.store.declare([Gate(scope=Scope.TASK, name="limited", concurrency=1)])
        since = node.store.now() - HOUR
        await node.store.enqueue([new(LIMITED, run_at=since) for _ in range(50)])
        assert len(await node.take(1)) == 1
        own = new()
        await node.store.enqueue([own])
        await those.sql("UPDATE mainspring.jobs SET care = 1, losses = 2 WHERE state <> 'running'")

        assert [one.claim.job.id for one in await node.take(5)] == [own.id]


@on_real_time
async def test_a_backlog_of_another_task_is_walked_over_by_several_claims(
    postgres: Server, postgres_schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each reads a bounded number of entries and goes on where the last one ended, however long that takes."""
    monkeypatch.setattr(claim, "MAX_ENTRIES", 1500)
    monkeypatch.setattr(lines, "EVERY_S", 0.0)
    async with crowd(postgres, postgres_schema) as those:
        node = await those.node()
        since = node.store.now() - HOUR
        await node.store.enqueue([new(OTHER, run_at=since) for _ in range(9000)] + [new(run_at=since + HOUR / 2)])
        claims = 1
        while not (claimed := await node.claim(5)).deliveries:
            claims += 1
            assert claims <= 9
            assert claimed.next_due is not None
            assert claimed.next_due <= node.store.now(), "the next claim goes on at once"


# Something else meanwhile.


@pytest.mark.parametrize("priority", [50, 90])
@on_real_time
async def test_a_job_that_is_enqueued_while_a_claim_reads_is_the_next_one(
    postgres: Server, postgres_schema: str, priority: int
) -> None:
    async with crowd(postgres, postgres_schema) as those:
        node = await those.node()
        await node.store.enqueue([new(run_at=node.store.now() - HOUR) for _ in range(30)])
        await node.take(1)
        early = new(priority=priority, run_at=node.store.now() - 2 * HOUR)
        node.store._lines.expects = False  # so that it reads
        claimed = await staged(node.claim(5), after_peek=lambda: node.store.enqueue([early]))
        if early.id not in {one.claim.job.id for one in claimed.deliveries}:
            assert [one.claim.job.id for one in await node.take(1)] == [early.id]


@on_real_time
async def test_a_claim_goes_by_the_rules_that_it_read(postgres: Server, postgres_schema: str) -> None:
    async with crowd(postgres, postgres_schema) as those:
        node = await those.node()
        other = await those.node(node.store)
        await node.store.enqueue([new() for _ in range(30)])
        await node.take(1)

        async def pause_another_queue() -> None:
            await node.store.pause("another")
            await other.claim(1)  # reads the rules

        node.store._lines.expects = False
        await staged(node.claim(5), after_peek=pause_another_queue)
        assert len(await node.take(5)) == 5


@on_real_time
async def test_jobs_are_given_in_the_term_of_the_breaker_that_they_were_claimed_in(
    postgres: Server, postgres_schema: str
) -> None:
    async with crowd(postgres, postgres_schema) as those:
        node = await those.node()
        other = await those.node(node.store)
        await node.store.declare_breakers({SEND: Breaker(threshold=1, cooldown=HOUR)})
        await node.store.enqueue([new() for _ in range(30)])
        (bad,) = await node.take(1)

        async def trip() -> None:
            await node.store.settle([replace(end(bad, RAISED, node.store.now()), term=bad.term)])
            await other.claim(1)

        node.store._lines.expects = True
        claimed = await staged(node.claim(5), after_grab_task=trip)
        assert {one.term for one in claimed.deliveries} == {bad.term}


@on_real_time
async def test_of_two_claims_the_one_that_ends_last_does_not_step_over_jobs_that_the_other_saw(
    postgres: Server, postgres_schema: str
) -> None:
    async with crowd(postgres, postgres_schema) as those:
        node = await those.node()
        other = await those.node(node.store)
        since = node.store.now() - HOUR
        await node.store.enqueue([new(run_at=since + timedelta(seconds=number)) for number in range(60)])
        await node.take(2)
        late = []

        async def claim_from_the_start() -> None:
            async with those.connection() as connection:
                for number in range(3):  # by a transaction that commits late and notifies nobody
                    due = since - timedelta(seconds=10 - number)
                    late.append(await insert_late(connection, postgres_schema, SEND, due))
            stored = node.store._lines._reaches
            node.store._lines._reaches = {source: one._replace(valid_until=0.0) for source, one in stored.items()}
            assert [one.claim.job.id for one in await other.take(1)] == late[:1]

        node.store._lines.expects = False
        await staged(node.claim(5), after_peek=claim_from_the_start)
        assert [one.claim.job.id for one in await node.take(2)] == late[1:]


@on_real_time
async def test_a_limit_that_is_set_again_as_it_was_counts_jobs_that_were_claimed_without_it(
    postgres: Server, postgres_schema: str
) -> None:
    async with crowd(postgres, postgres_schema) as those:
        node = await those.node()
        gate = Gate(scope=Scope.TASK, name=str(SEND), concurrency=1)
        await node.store.declare([gate])
        await node.store.enqueue([new() for _ in range(10)])
        await node.settle(await node.take(1))
        await node.store.declare([Gate(scope=Scope.TASK, name=str(SEND))])
        await node.settle(await node.take(1))
        claimed = await staged(node.claim(3), after_grab_task=lambda: node.store.declare([gate]))
        assert len(claimed.deliveries) == 3

        assert await node.take(3) == []
        assert await those.sql("SELECT count(*) FROM mainspring.places") == [(3,)]


@on_real_time
async def test_after_a_claim_that_a_last_chance_ended_more_is_due_now(postgres: Server, postgres_schema: str) -> None:
    async with crowd(postgres, postgres_schema) as those:
        node = await those.node()
        since = node.store.now() - HOUR
        jobs = [
            new(max_attempts=1 if number == 5 else 5, run_at=since + timedelta(seconds=number)) for number in range(24)
        ]
        await node.store.enqueue(jobs)
        assert len(await node.take(1)) == 1
        claimed = await node.claim(1, ahead=8)

        assert len(claimed.deliveries) == 4
        assert claimed.next_due is not None
        assert claimed.next_due <= node.store.now()


# Positions by themselves.


@pytest.mark.parametrize("took", [0.0, 3.0, 3600.0, -5.0])
def test_reads_from_the_start_are_repeated_soon_however_long_one_took(took: float) -> None:
    remembered = Lines()
    remembered.advance(remembered.positions(), {SOURCE: Came((NOON, UUID(int=1)), took)}, NOON)
    (reach,) = remembered._reaches.values()
    assert reach.valid_until - time.monotonic() <= SELDOM_S


def test_a_read_from_the_start_that_several_claims_share_is_not_begun_anew_before_its_end() -> None:
    remembered = Lines()
    for number in range(5):
        began = remembered.positions()
        assert began.by_source == {} if number == 0 else SOURCE in began.by_source
        remembered.advance(began, {SOURCE: Came((NOON, UUID(int=number)), 1e9, is_end=False)}, NOON + HOUR)
    remembered.advance(remembered.positions(), {SOURCE: Came((NOON, UUID(int=9)), 0.1)}, NOON + HOUR)
    (reach,) = remembered._reaches.values()
    assert reach.valid_until < time.monotonic() + SELDOM_S + 1


def test_a_pull_is_seen_by_claims_that_began_before_it() -> None:
    remembered = Lines()
    remembered.advance(remembered.positions(), {SOURCE: Came((NOON, UUID(int=1)))}, NOON + HOUR)
    began = remembered.positions()
    remembered.pull(NOON - HOUR)
    remembered.advance(began, {SOURCE: Came((NOON, UUID(int=2)))}, NOON + HOUR)
    remembered.looked_into_gaps(began, 1.0)
    remembered.expect(began, expects=False)
    remembered.found_empty(began, [SOURCE.line], None)

    assert remembered.positions().by_source == {SOURCE: (NOON - HOUR, UUID(int=0))}
    assert remembered.gaps(whole=False) != ([], [])
    assert remembered.expects
    assert not remembered.are_empty([SOURCE.line])
