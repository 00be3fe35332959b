"""A snapshot that somebody holds open, or jobs that are not due for long: claims read as much as without."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest

from mainspring.core.job import NodeId
from mainspring.core.limits import Gate, Scope
from mainspring.stores.postgres import PostgresStore, nodes
from mainspring.stores.postgres.lines import Source
from mainspring.stores.postgres.positions import READ_FROM_START_INTERVAL_S
from mainspring.stores.postgres.statements import in_schema
from mainspring.stores.records import Claimed, NodeRecord, Process
from tests.servers.postgres import Server
from tests.servers.system import wait_until
from tests.stores.postgres_crowd import SEND, Crowd, Node, crowd, empty, lasting_schema, new
from tests.stores.postgres_filled import POLICY
from tests.stores.postgres_staged import explained
from tests.stores.postgres_wires import on_real_time
from tests.tier import FULL

BATCH = 100
LATER = """
INSERT INTO mainspring.jobs (
    id, queue, task, priority, state, run_at, loss_limit, max_attempts, policy, enqueued_at, payload
)
SELECT
    gen_random_uuid(), 'default', 'mail.send', 50, 'scheduled', now() + make_interval(secs => 60 + n), 3, 3,
    $2::text, now(), '{}'
FROM generate_series(1, $1::integer) AS n
"""

RENEW = """
CREATE OR REPLACE FUNCTION {schema}.renew(timestamptz, bigint, text, uuid[], bigint[], bigint[]) RETURNS void
SET search_path = pg_catalog SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
SET plan_cache_mode = force_generic_plan
LANGUAGE plpgsql AS $$ DECLARE answer record; BEGIN FOR answer IN {statement} LOOP END LOOP; END $$
"""
"""The statement of a renewal itself, with its parameters."""

RENEWALS = """
DO $$ DECLARE terms bigint[]; revisions bigint[]; BEGIN
    SELECT array_agg(term), array_agg(revision) INTO terms, revisions FROM {schema}.nodes;
    FOR beat IN 1..{beats} LOOP
        PERFORM {schema}.renew(NULL, term, id, '{{}}', terms, revisions) FROM {schema}.nodes;
        COMMIT;
    END LOOP;
END $$
"""


@pytest.fixture(scope="module")
def postgres(quiet_postgres: Server) -> Server:
    """Pages are counted, which dead rows change."""
    return quiet_postgres


@pytest.fixture(scope="module")
def schema(postgres: Server) -> Iterator[str]:
    with lasting_schema(postgres) as name:
        yield name


@pytest.fixture
def postgres_schema(postgres: Server, schema: str) -> str:
    empty(postgres, schema)
    # What the last test has left behind dead would be counted here. Emptied once it was vacuumed, an index starts anew.
    postgres.sql(
        f"VACUUM {schema}.jobs, {schema}.places, {schema}.freed, {schema}.keys, {schema}.nodes, {schema}.gates, {schema}.beats"
    )
    return schema


@asynccontextmanager
async def held(those: Crowd) -> AsyncIterator[None]:
    """Have somebody hold a snapshot open: from now on nothing that is dead can be cleared away."""
    async with those.connection() as other:
        await other.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        await other.fetch("SELECT 1")
        yield


@asynccontextmanager
async def listening(store: PostgresStore) -> AsyncIterator[None]:
    """Have a handle listen, as that of a node does."""
    unwatch = store.watch(lambda: None)
    await asyncio.to_thread(wait_until, store._bells.hears, "it listens")
    yield
    unwatch()


def looks_since(began: float) -> float:
    """Return how often a line may have been read from its start since then; the first time may come at once."""
    return (time.monotonic() - began) / READ_FROM_START_INTERVAL_S + 1.7


def looked_until(node: Node) -> dict[Source, float]:
    """Return until when each source is not read from its start again."""
    return {source: one.whole_at for source, one in node.store._claim_cache.positions._progress.items()}


async def read(node: Node, room: int = BATCH) -> tuple[Claimed, int]:
    """Claim; says also how many pages that looked at."""
    claimed, plans = await explained(node.claim(room))
    return claimed, sum(plan.buffers for plan in plans)


async def drain(node: Node, jobs: int) -> list[int]:
    """Claim and settle so many jobs, a batch at a time; says how many pages some of the claims looked at.

    Those are left out that read from the start, which happens once a second: on a busy machine to any of them.
    """
    pages: list[int] = []
    left, is_wanted = jobs, False
    while left:
        is_wanted = is_wanted or left % (5 * BATCH) == 0
        if is_wanted:
            looks = looked_until(node)
            claimed, looked_at = await read(node)
            if looks == looked_until(node):
                pages.append(looked_at)
                is_wanted = False
        else:
            claimed = await node.claim(BATCH)
        assert claimed.deliveries
        left -= len(claimed.deliveries)
        await node.settle(claimed.deliveries)
    return pages


async def rounds(node: Node, count: int, jobs: int, *, keys: int = 0) -> list[list[int]]:
    """Enqueue, claim and settle, again and again; says of each round how many pages some of its claims looked at."""
    pages: list[list[int]] = []
    for _ in range(count):
        for begin in range(0, jobs, 500):
            numbers = range(begin, min(jobs, begin + 500))
            await node.store.enqueue([new(key=f"key {n % keys}" if keys else None) for n in numbers])
        pages.append(await drain(node, jobs))
    return pages


few_and_many = pytest.mark.parametrize(("count", "jobs"), [(3, 500), (10, 2000)], ids=["three of 500", "ten of 2,000"])


@few_and_many
@on_real_time
async def test_the_last_round_under_a_held_snapshot_reads_no_more_than_the_first(
    postgres: Server, postgres_schema: str, count: int, jobs: int
) -> None:
    async with crowd(postgres, postgres_schema) as those:
        node = await those.node()
        async with held(those):
            await rounds(node, 1, 500)  # priorities and rules are read, pages are made
            pages = await rounds(node, count, jobs)

        assert max(pages[-1]) <= 1.2 * max(pages[0]), pages


@on_real_time
async def test_a_job_that_is_alone_among_the_dead_is_claimed_and_settled_as_if_they_were_not_there(
    postgres: Server, postgres_schema: str
) -> None:
    """Analyzed then, the table seems to have one row, and a walk over all of it to cost as little as a look (0041)."""
    async with crowd(postgres, postgres_schema) as those:
        node = await those.node()
        async with held(those):
            await rounds(node, 5, 2000)
            await node.store.enqueue([new()])
            postgres.sql(f"ANALYZE {postgres_schema}.jobs")
            claimed, looked = await explained(node.claim(BATCH))
            _, ended = await explained(node.settle(claimed.deliveries))

        assert len(claimed.deliveries) == 1
        pages = {plan.statement: plan.buffers for plan in [*looked, *ended]}
        assert max(pages.values()) < 500, pages  # a read from the start, once a second, is a hundred
        assert {"take", "grab_task"} & {plan.statement for plan in looked}
        assert {plan.statement for plan in ended} == {"settle_success"}


@pytest.mark.parametrize("scope", [Scope.TASK, Scope.KEY])
@on_real_time
async def test_a_claim_through_a_gate_under_a_held_snapshot_reads_a_page_for_a_few_of_those_that_have_passed(
    postgres: Server, postgres_schema: str, scope: Scope
) -> None:
    """Freed places are read when the others are counted; no position steps over them (0023)."""
    async with crowd(postgres, postgres_schema) as those:
        node = await those.node()
        await node.store.declare([Gate(scope=scope, name=str(SEND), concurrency=1000)])
        async with held(those):
            await rounds(node, 1, 500)
            pages = await rounds(node, 5, 1000, keys=7)

        assert max(pages[-1]) - max(pages[0]) <= 4000 / 2, pages


@on_real_time
async def test_a_busy_priority_does_not_make_every_claim_read_the_dead_entries_of_another(
    postgres: Server, postgres_schema: str
) -> None:
    """Each priority of the line is read from its start now and then; every claim in between begins at a position."""
    async with crowd(postgres, postgres_schema) as those:
        node = await those.node()
        async with held(those):
            await rounds(node, 5, 2000)
            await node.store.enqueue([new(priority=90) for _ in range(2 * BATCH)])
            await node.settle((await node.claim(BATCH)).deliveries)
            claimed, usual = await read(node)
            await node.settle(claimed.deliveries)
            began = time.monotonic()
            pages: list[int] = []
            # Not more than 200: entries of the busy priority itself stay too, 0.6 pages for each claim.
            while len(pages) <= 20 or (time.monotonic() < began + 3 and len(pages) < 200):
                await node.store.enqueue([new(priority=90) for _ in range(BATCH)])
                claimed, looked_at = await read(node)
                pages.append(looked_at)
                await node.settle(claimed.deliveries)

        whole = [looked_at for looked_at in pages if looked_at > usual + 200]
        assert len(whole) <= 2 * looks_since(began), (usual, pages)  # of either priority


@on_real_time
async def test_claims_that_come_back_empty_look_at_the_whole_at_most_once_a_second(
    postgres: Server, postgres_schema: str
) -> None:
    """A node that gets a job now and then finds nothing more after each."""
    async with crowd(postgres, postgres_schema) as those:
        node = await those.node()
        async with held(those), listening(node.store):
            await rounds(node, 5, 2000)
            began = time.monotonic()
            pages: list[int] = []
            while time.monotonic() < began + 3 or len(pages) <= 20:
                await node.store.enqueue([new()])
                while True:
                    heard = node.store._bells.hears()
                    claimed, looked_at = await read(node, 5)
                    if heard and node.store._bells.hears():  # who hears nothing has to look, each time
                        pages.append(looked_at)
                    if not claimed.deliveries:
                        break
                    await node.settle(claimed.deliveries)

        whole = [looked_at for looked_at in pages if looked_at > 300]
        assert len(whole) <= looks_since(began), (len(whole), len(pages))


@on_real_time
async def test_a_node_that_starts_while_a_snapshot_is_held_walks_over_what_is_dead_once_a_second_at_most(
    postgres: Server, postgres_schema: str
) -> None:
    async with crowd(postgres, postgres_schema) as those:
        node = await those.node()
        async with held(those):
            await rounds(node, 5, 2000)
            for _ in range(8):
                await node.store.enqueue([new(queue="other") for _ in range(1000)])
            late = await those.node()
            began = time.monotonic()
            pages: list[int] = []
            while time.monotonic() < began + 2 or len(pages) <= 20:
                claimed, looked_at = await read(late, 5)
                assert claimed.deliveries
                pages.append(looked_at)
                await late.settle(claimed.deliveries)

        whole = [looked_at for looked_at in pages if looked_at > 300]
        assert len(whole) <= 2 * looks_since(began), (len(whole), len(pages))


@on_real_time
async def test_a_renewal_does_not_walk_over_what_the_node_has_run(postgres: Server, postgres_schema: str) -> None:
    async with crowd(postgres, postgres_schema) as those:
        node = await those.node()
        async with held(those):
            await rounds(node, 1, 2000)
            await node.store.renew(node.id, node.term)
            await node.store.enqueue([new()])
            (delivery,) = await node.take()
            pulse, plans = await explained(node.store.renew(node.id, node.term))

        assert [one.job for one in pulse.held] == [delivery.claim.job.id]
        assert [plan.buffers for plan in plans if plan.buffers > 50] == []


@pytest.mark.slow
@pytest.mark.timeout(600)  # 96,000 renewals; on a busy machine they take two minutes
@on_real_time
async def test_an_hour_of_renewals_of_forty_nodes_does_not_matter(postgres: Server, postgres_schema: str) -> None:
    """Replayed by the statement of a renewal itself: 2,400 beats of 1.5 s, or the first ten minutes of them."""
    a_quarter = 600 if FULL else 100
    statement = in_schema(nodes._RENEW, postgres_schema)
    await asyncio.to_thread(postgres.sql, RENEW.format(schema=postgres_schema, statement=statement))
    async with crowd(postgres, postgres_schema) as those:
        node = await those.node()
        for number in range(39):
            process = Process(host="another", pid=number, started="then")
            await node.store.join(NodeRecord(id=NodeId(f"other-{number}"), process=process, tasks=frozenset({SEND})))
        async with held(those):
            await pages_of_beat(node)  # with the records of the others, and a whole look
            before = await pages_of_beat(node)
            after = []
            for _ in range(4):
                await asyncio.to_thread(postgres.sql, RENEWALS.format(schema=postgres_schema, beats=a_quarter))
                after.append(await pages_of_beat(node))
            beats = await those.sql("SELECT count(*), min(counter) FROM mainspring.beats")

        assert beats == [(40, 4 * a_quarter)]
        levels = 3 * 40  # by which the index of beats may have grown, for each node
        assert all(new <= old + levels for quarter in after for old, new in zip(before, quarter, strict=True)), after


async def pages_of_beat(node: Node) -> tuple[int, int, int]:
    """Return how many pages a renewal, a claim and a settle read."""
    _, renewal = await explained(node.store.renew(node.id, node.term))
    await node.store.enqueue([new()])
    deliveries, claim = await explained(node.take())
    _, settle = await explained(node.settle(deliveries))
    renewed, claimed, settled = (sum(plan.buffers for plan in plans) for plans in (renewal, claim, settle))
    return renewed, claimed, settled


@pytest.mark.parametrize("later", [20_000, 300_000])
@on_real_time
async def test_jobs_that_are_not_due_for_long_do_not_matter(postgres: Server, postgres_schema: str, later: int) -> None:
    async with crowd(postgres, postgres_schema) as those:
        node = await those.node()
        without = await rounds(node, 2, 500)
        await those.sql(LATER, later, POLICY)
        with_them = await rounds(node, 2, 500)

        assert max(with_them[-1]) <= 1.5 * max(without[-1]), (without, with_them)
        claimed, looked_at = await read(node)
        assert claimed.deliveries == ()
        assert claimed.next_due is not None
        assert looked_at < 200
