"""Claims on PostgreSQL while something else happens: an enqueue, other rules, another claim, a stall; and obstacles in front."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest
from msgspec.structs import replace

from mainspring.core.breaker import Breaker
from mainspring.core.job import JobId
from mainspring.core.limits import Gate, Rate, Scope
from mainspring.core.names import Name
from mainspring.core.outcome import Interrupted
from mainspring.core.unique import UniqueKey
from mainspring.errors import StoreUnavailable
from mainspring.stores.postgres import PostgresStore, claim, positions
from mainspring.stores.postgres.positions import LATE, Progress
from mainspring.stores.postgres.statements import qualified
from mainspring.stores.postgres.verb import Verb
from tests.servers.postgres import Server
from tests.servers.system import PATIENCE
from tests.stores.postgres_crowd import RAISED, SEND, Crowd, Node, crowd, empty, end, insert_late, lasting_schema, new
from tests.stores.postgres_staged import explained, staged
from tests.stores.postgres_wires import on_real_time

OTHER = Name("", "other")
FREE = Name("", "free")
LIMITED = Name("", "limited")
HOUR = timedelta(hours=1)


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
    monkeypatch.setattr(positions, "READ_FROM_START_INTERVAL_S", 0.0)
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
        node.store._claim_cache.expects = False  # so that it reads
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

        node.store._claim_cache.expects = False
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

        node.store._claim_cache.expects = True
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
            cache = node.store._claim_cache.positions
            cache._progress = {source: one._replace(whole_at=0.0) for source, one in cache._progress.items()}
            assert [one.claim.job.id for one in await other.take(1)] == late[:1]

        node.store._claim_cache.expects = False
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


@on_real_time
async def test_announcements_do_not_keep_claims_from_walking_over_a_backlog(
    postgres: Server, postgres_schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """During each claim, a job is enqueued that is due now, and one that is due since long ago."""
    monkeypatch.setattr(claim, "MAX_ENTRIES", 1500)
    monkeypatch.setattr(positions, "READ_FROM_START_INTERVAL_S", 0.0)
    async with crowd(postgres, postgres_schema) as those:
        node, other = await those.node(), await those.open()
        unwatch = node.store.watch(lambda: None)
        await node.store.pause("paused")
        since = node.store.now() - HOUR
        await other.enqueue([new(queue="paused", run_at=since) for _ in range(9000)])
        own = new()
        await other.enqueue([own])
        given: list[JobId] = []
        for _ in range(20):
            claimed = await staged(
                node.claim(5),
                after_peek=lambda: node.store.enqueue([new(queue="paused", run_at=since), new(queue="paused")]),
            )
            given += [one.claim.job.id for one in claimed.deliveries]
        unwatch()
        assert given == [own.id]


@on_real_time
async def test_a_node_without_notifications_walks_over_the_backlogs_of_its_queues(
    postgres: Server, postgres_schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of its empty claims has to read from the start, in all queues together more than one claim may read."""
    monkeypatch.setattr(claim, "MAX_ENTRIES", 4500)
    async with crowd(postgres, postgres_schema) as those:
        node = await those.node(await those.open(listen=False))
        queues = dict.fromkeys(("a", "b", "c"), 100)
        since = node.store.now() - HOUR
        for queue in queues:
            await node.store.enqueue([new(OTHER, queue=queue, run_at=since) for _ in range(4000)])
        own = [new(queue=queue) for queue in queues]
        await node.store.enqueue(own)
        given: set[JobId] = set()
        for _ in range(20):
            given |= {one.claim.job.id for one in (await node.claim(30, queues=queues)).deliveries}
        assert given == {job.id for job in own}


@on_real_time
async def test_a_claim_reads_no_unbounded_number_of_entries_behind_an_old_job_that_was_announced(
    postgres: Server, postgres_schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claim, "MAX_ENTRIES", 1500)
    async with crowd(postgres, postgres_schema) as those:
        node = await those.node(tasks=[SEND, FREE])
        since = node.store.now() - HOUR
        await node.store.enqueue([new(OTHER, run_at=since) for _ in range(9000)])
        for _ in range(20):
            assert await node.take(5) == []
        own = new(run_at=since - HOUR)
        await node.store.enqueue([own])
        assert node.store._claim_cache.expects

        given: list[JobId] = []
        for _ in range(20):
            claimed, plans = await explained(node.claim(5))
            given += [one.claim.job.id for one in claimed.deliveries]
            scans = [one for plan in plans for one in plan if one.get("Relation Name") == "jobs"]
            assert max(one.get("Actual Rows") + one.get("Rows Removed by Filter", 0) for one in scans) <= 1500
        assert given == [own.id]


@on_real_time
async def test_a_claim_beside_limits_reads_one_job_of_the_others_and_takes_all_that_it_wants(
    postgres: Server, postgres_schema: str
) -> None:
    async with crowd(postgres, postgres_schema) as those:
        node = await those.node(tasks=[SEND, FREE, LIMITED])
        await node.store.declare([Gate(scope=Scope.TASK, name="limited", concurrency=1)])
        await node.store.enqueue([new(LIMITED) for _ in range(30)])
        assert len(await node.take(1)) == 1
        await node.store.enqueue([new(task, priority=priority) for task in (SEND, FREE) for priority in (50, 90) * 25])
        assert len(await node.take(10)) == 10

        claimed, plans = await explained(node.claim(50))
        assert len(claimed.deliveries) == 50
        assert [one.claim.job.priority for one in claimed.deliveries] == [90] * 40 + [50] * 10
        assert [plan.statement for plan in plans] == ["peek", "grab"]
        scans = [one for one in plans[0] if one.get("Relation Name") == "jobs"]
        assert sum(one.get("Actual Rows") * one.get("Actual Loops") for one in scans) < 50


@on_real_time
async def test_queues_that_are_full_in_turn_do_not_keep_claims_from_walking_over_a_backlog(
    postgres: Server, postgres_schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a busy node, each claim is made because another queue has room."""
    monkeypatch.setattr(claim, "MAX_ENTRIES", 1500)
    async with crowd(postgres, postgres_schema) as those:
        node = await those.node(tasks=[LIMITED])
        await node.store.declare([Gate(scope=Scope.TASK, name="limited", concurrency=1000)])
        since = node.store.now() - HOUR
        await node.store.enqueue([new(LIMITED, queue="elsewhere", run_at=since) for _ in range(9000)])
        own = {queue: new(LIMITED, queue=queue) for queue in ("a", "b")}
        await node.store.enqueue(list(own.values()))
        given: list[JobId] = []
        for number in range(30):
            rooms = {"a": number % 2, "b": (number + 1) % 2}
            given += [one.claim.job.id for one in (await node.claim(5, queues=rooms)).deliveries]
        assert set(given) == {job.id for job in own.values()}
        assert len(given) == 2


@on_real_time
async def test_a_limited_line_that_begins_with_jobs_of_a_full_queue_is_read_further_before_lower_priorities(
    postgres: Server, postgres_schema: str
) -> None:
    async with crowd(postgres, postgres_schema) as those:
        node = await those.node(tasks=[SEND, LIMITED])
        gates = [
            Gate(scope=Scope.TASK, name="limited", concurrency=100),
            Gate(scope=Scope.QUEUE, name="full", concurrency=1),
        ]
        await node.store.declare(gates)
        await node.store.enqueue([new(LIMITED, queue="full")])
        assert len(await node.take(1)) == 1
        since = node.store.now() - HOUR
        high = [new(SEND, priority=60, run_at=since) for _ in range(2)]
        blocked = [new(LIMITED, queue="full", priority=60, run_at=since) for _ in range(30)]
        limited = new(LIMITED, priority=60, run_at=since + timedelta(minutes=1))
        low = [new(SEND, priority=50, run_at=since) for _ in range(30)]
        await node.store.enqueue([*high, *blocked, limited, *low])

        assert [one.claim.job.priority for one in await node.take(1)] == [60]
        assert [one.claim.job.priority for one in await node.take(10)] == [60, 60] + [50] * 8


@on_real_time
async def test_how_long_a_read_from_the_start_took_is_kept_although_another_statement_claims(
    postgres: Server, postgres_schema: str
) -> None:
    """It decides when such a read is repeated."""
    async with crowd(postgres, postgres_schema) as those:
        node = await those.node()
        assert await node.take(1) == []  # reads the rules, and finds that all jobs are in one line
        await node.store.enqueue([new() for _ in range(30)])
        node.store._claim_cache.positions.forget()
        _, plans = await explained(node.claim(10))
        assert [plan.statement for plan in plans] == ["peek", "grab_task"]
        assert [
            one.took > 0 for source, one in node.store._claim_cache.positions._progress.items() if source.line.rest
        ] == [True]


# Positions and commits.

_WAITS = """
CREATE FUNCTION mainspring.obstacle() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    PERFORM pg_advisory_xact_lock(19);
    RETURN NEW;
END $$;
CREATE TRIGGER obstacle BEFORE INSERT ON mainspring.jobs FOR EACH ROW EXECUTE FUNCTION mainspring.obstacle();
"""
_FAILS_ONCE = """
CREATE FUNCTION mainspring.obstacle() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    IF nextval('mainspring.commits') = 1 THEN RAISE EXCEPTION 'once' USING ERRCODE = '40001'; END IF;
    RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER obstacle AFTER UPDATE ON mainspring.jobs
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION mainspring.obstacle();
"""


@asynccontextmanager
async def _obstacle(those: Crowd, trigger: str) -> AsyncIterator[None]:
    """Create a trigger, and a sequence for it."""
    async with those.connection() as connection:
        await connection.execute(qualified(f"CREATE SEQUENCE mainspring.commits; {trigger}", those.schema))
        try:
            yield
        finally:
            drops = "DROP FUNCTION mainspring.obstacle CASCADE; DROP SEQUENCE mainspring.commits"
            await connection.execute(qualified(drops, those.schema))


@pytest.mark.parametrize(
    ("unique", "is_lost"),
    [(False, False), (True, False), (True, True)],
    ids=["batch", "unique", "the answer is lost"],
)
@on_real_time
async def test_jobs_whose_commit_took_long_are_claimed_when_they_are_announced(
    postgres: Server, postgres_schema: str, monkeypatch: pytest.MonkeyPatch, *, unique: bool, is_lost: bool
) -> None:
    """They are due since the statement began; meanwhile positions have moved on."""
    for name in ("READ_FROM_START_INTERVAL_S", "MAX_READ_FROM_START_INTERVAL_S"):
        monkeypatch.setattr(positions, name, 3600.0)
    async with crowd(postgres, postgres_schema) as those:
        node, other = await those.node(), await those.open()
        unwatch = node.store.watch(lambda: None)
        async with asyncio.timeout(PATIENCE):
            while not node.store.receives_announcements:
                await node.take(1)
        jobs = [replace(new(unique=UniqueKey(key="one")), is_new=True)] if unique else [new(), new()]
        run = other._connections.run

        async def lose_the_answer(verb: Callable[[], Verb[bool]], *, again: bool) -> None:
            monkeypatch.setattr(other._connections, "run", run)
            await run(verb, again=again)
            raise StoreUnavailable("the PostgreSQL store", "the connection was lost")

        if is_lost:
            monkeypatch.setattr(other._connections, "run", lose_the_answer)
        async with those.connection() as obstacle, _obstacle(those, _WAITS):
            await obstacle.execute("SELECT pg_advisory_lock(19)")
            began = other.now()
            enqueued = asyncio.create_task(other.enqueue(jobs))
            async with asyncio.timeout(PATIENCE):
                while not await those.sql(
                    "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
                ):
                    assert not enqueued.done()
                while not any(one.position[0] > began + LATE for one in _progress(node)):
                    assert await node.take(1) == []
            await obstacle.execute("SELECT pg_advisory_unlock(19)")
            await enqueued
        given: list[JobId] = []
        async with asyncio.timeout(PATIENCE):
            while len(given) < len(jobs):
                given += [one.claim.job.id for one in await node.take(5)]
        unwatch()
        assert set(given) == {job.id for job in jobs}


@on_real_time
async def test_a_job_that_is_given_back_in_front_of_a_read_that_others_cut_short_is_claimed_first(
    postgres: Server, postgres_schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The line of the rest begins with more jobs of a limited task than are read at first, and these fill each claim."""
    for name in ("READ_FROM_START_INTERVAL_S", "MAX_READ_FROM_START_INTERVAL_S"):
        monkeypatch.setattr(positions, name, 3600.0)
    async with crowd(postgres, postgres_schema) as those:
        node = await those.node(tasks=[LIMITED, FREE, OTHER])
        await node.store.declare([Gate(scope=Scope.TASK, name="limited", concurrency=1000)])
        since = node.store.now() - HOUR
        free = new(FREE, run_at=since)
        await node.store.enqueue([free, *[new(LIMITED, run_at=since + timedelta(minutes=1)) for _ in range(1500)]])
        first = await node.take(1)
        assert [one.claim.job.task for one in await node.take(1)] == [LIMITED]
        await node.settle(first, Interrupted(started=True))
        again = await node.take(1)
        assert [one.claim.job.id for one in (*first, *again)] == [free.id, free.id]


@pytest.mark.parametrize("is_limited", [True, False], ids=["limits", "pooler"])
@on_real_time
async def test_a_claim_whose_commit_fails_finds_the_same_jobs_again(
    postgres: Server, postgres_schema: str, monkeypatch: pytest.MonkeyPatch, *, is_limited: bool
) -> None:
    """Claims through limits are transactions, and all claims are behind a pooler."""
    for name in ("READ_FROM_START_INTERVAL_S", "MAX_READ_FROM_START_INTERVAL_S"):
        monkeypatch.setattr(positions, name, 3600.0)
    async with crowd(postgres, postgres_schema) as those:
        store = PostgresStore(postgres.dsn(), schema=postgres_schema)
        store._connections._pooled = not is_limited
        await store.open()
        those.handles.append(store)
        node = await those.node(store)
        unwatch = store.watch(lambda: None)
        if is_limited:
            await store.declare([Gate(scope=Scope.TASK, name="mail.send", concurrency=100)])
        since = node.store.now() - HOUR
        jobs = [new(run_at=since + timedelta(seconds=number)) for number in range(5)]
        await node.store.enqueue(jobs)
        assert [one.claim.job.id for one in await node.take(2)] == [job.id for job in jobs[:2]]
        async with asyncio.timeout(PATIENCE):
            while not node.store.receives_announcements:
                await asyncio.sleep(0.01)
        async with _obstacle(those, _FAILS_ONCE):
            assert [one.claim.job.id for one in await node.take(5)] == [job.id for job in jobs[2:]]
            assert await those.sql("SELECT last_value > 1 FROM mainspring.commits") == [(True,)]
        unwatch()


def _progress(node: Node) -> list[Progress]:
    return list(node.store._claim_cache.positions._progress.values())


@pytest.mark.parametrize("due", ["infinity", "-infinity", "0044-03-15 BC"])
@on_real_time
async def test_a_due_time_that_python_cannot_represent_does_not_stop_claims(
    postgres: Server, postgres_schema: str, due: str
) -> None:
    async with crowd(postgres, postgres_schema) as those:
        node = await those.node()
        odd, own = new(priority=10, run_at=node.store.now() + HOUR), new(run_at=node.store.now() + HOUR)
        await node.store.enqueue([odd, own])
        await those.sql("UPDATE mainspring.jobs SET run_at = $1::text::timestamptz WHERE priority = 10", due)
        for _ in range(2):
            claimed = await node.claim(5)
            assert claimed.next_due is not None
            assert timedelta(0) < claimed.next_due - node.store.now() <= HOUR
        await those.sql("UPDATE mainspring.jobs SET run_at = $1::text::timestamptz WHERE priority = 50", due)
        await node.store.enqueue([new()])
        left = 2 if due == "infinity" else 0
        async with asyncio.timeout(PATIENCE):
            while await those.sql("SELECT count(*) FROM mainspring.jobs WHERE state <> 'running'") != [(left,)]:
                await node.take(5)
                await asyncio.sleep(
                    0.05
                )  # changed by an UPDATE of its own, the job is found by the next read from the start
