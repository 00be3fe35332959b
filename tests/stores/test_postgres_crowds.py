# ruff: noqa: S311 -- chance decides who meets whom, and keeps no secret
"""Many who use one PostgreSQL store at the same time: what must hold, whatever comes between what."""

import asyncio
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import datetime, timedelta

import pytest

from mainspring.core import machine
from mainspring.core.command import CancelJob, Command, DeleteJob, MoveJob, RetryJob
from mainspring.core.job import Claim, JobId, State
from mainspring.core.outcome import Interrupted, Lost, Outcome, Snoozed, Succeeded
from mainspring.core.unique import OnConflict, UniqueKey
from mainspring.errors import Conflict, IllegalTransition
from mainspring.stores.postgres import PostgresStore
from mainspring.stores.records import Delivery, LogLine, NewJob, Note, Settlement, Verdict
from tests.servers.postgres import Server
from tests.stores.postgres_crowd import (
    FATAL,
    RAISED,
    Crowd,
    Node,
    crowd,
    empty,
    few_and_many,
    lasting_schema,
    new,
    watching,
)
from tests.stores.postgres_wires import on_real_time

SHORT = timedelta(milliseconds=20)

ENDS: list[Outcome] = [Succeeded(), Snoozed(delay=SHORT), Interrupted(started=True), RAISED, FATAL]

WORDS: list[Command] = [CancelJob(), RetryJob(), MoveJob(priority=10), MoveJob(priority=90)]


@pytest.fixture(scope="module")
def schema(postgres: Server) -> Iterator[str]:
    with lasting_schema(postgres) as name:
        yield name


@pytest.fixture
def postgres_schema(postgres: Server, schema: str) -> str:
    empty(postgres, schema)
    return schema


# Claiming.


@few_and_many
@on_real_time
async def test_claimers_that_compete_get_each_job_once_and_in_order(
    postgres: Server, postgres_schema: str, size: int
) -> None:
    jobs = [new(queue=f"q{n % 3}", priority=10 * (n % 2)) for n in range(400 * size)]
    given: list[Delivery] = []

    async def drain(node: Node) -> None:
        last: dict[tuple[str, int], tuple[datetime, JobId]] = {}
        while deliveries := await node.take(random.randint(1, 40)):
            assert [-delivery.claim.job.priority for delivery in deliveries] == sorted(
                -delivery.claim.job.priority for delivery in deliveries
            )
            for job in (delivery.claim.job for delivery in deliveries):
                line, position = (job.queue, job.priority), (job.run_at, job.id)
                assert line not in last or last[line] < position
                last[line] = position
            given.extend(deliveries)
            assert set(await node.settle(deliveries)) == {Verdict.ACCEPTED}

    async with crowd(postgres, postgres_schema) as those:
        nodes = [await those.node() for _ in range(5)]
        for begin in range(0, len(jobs), 500):
            await nodes[0].store.enqueue(jobs[begin : begin + 500])
        await asyncio.gather(*map(drain, nodes))

        assert Counter(delivery.claim.job.id for delivery in given) == Counter(job.id for job in jobs)
        assert {delivery.claim.job.claims for delivery in given} == {1}
        assert await those.is_over()
        assert await those.ended() == {"succeeded": len(jobs)}


@few_and_many
@on_real_time
async def test_a_claim_that_begins_when_a_queue_has_been_paused_gets_nothing_of_it(
    postgres: Server, postgres_schema: str, size: int
) -> None:
    async with crowd(postgres, postgres_schema) as those:
        operator = await those.open()
        nodes = [await those.node() for _ in range(4)]
        await operator.enqueue([new(queue="mail") for _ in range(300)])
        standing = 0  # even: the queue goes on; odd: it stands, and grows before anybody asks for that to change
        claims = 0

        async def work(node: Node) -> None:
            nonlocal claims
            while claims < 200 * size:
                claims += 1
                before = standing
                deliveries = await node.take(2)
                assert not (deliveries and before % 2 and standing == before)
                await node.settle(deliveries, Interrupted(started=False))

        async def pause_and_resume() -> None:
            nonlocal standing
            while claims < 200 * size:
                assert await operator.pause("mail")
                standing += 1
                await asyncio.sleep(random.uniform(0, 0.02))
                standing += 1
                assert await operator.resume("mail")
                await asyncio.sleep(random.uniform(0, 0.02))

        await asyncio.gather(pause_and_resume(), *map(work, nodes))


# Enqueueing.


@few_and_many
@on_real_time
async def test_an_id_that_many_enqueue_while_it_runs_and_ends_is_one_job(
    postgres: Server, postgres_schema: str, size: int
) -> None:
    async with crowd(postgres, postgres_schema) as those:
        handles = [await those.open() for _ in range(10)]
        node = await those.node()
        fresh: Counter[JobId] = Counter()
        is_over = asyncio.Event()

        async def work() -> None:
            while not is_over.is_set() or not await those.is_over():
                await node.settle(await node.take(5))

        async def enqueue_all() -> None:
            for number in range(25 * size):
                unique = [None, UniqueKey(key="a"), UniqueKey(key="b", period=SHORT)][number % 3]
                jobs = [new(unique=unique), new()]
                await asyncio.gather(*(enqueue(handle, jobs[: 1 + n % 2]) for n, handle in enumerate(handles)))
            is_over.set()

        async def enqueue(handle: PostgresStore, jobs: Sequence[NewJob]) -> None:
            await asyncio.sleep(random.uniform(0, 0.01))
            for answer in await handle.enqueue(jobs):
                fresh[answer.id] += answer.fresh

        await asyncio.gather(work(), enqueue_all())

        assert {id_: times for id_, times in fresh.items() if times != 1} == {}
        assert await those.sql("SELECT id FROM mainspring.history GROUP BY id HAVING count(*) > 1") == []
        assert await those.ended() == {"succeeded": len(fresh)}


@few_and_many
@on_real_time
async def test_of_a_unique_key_there_is_never_more_than_one_active_job(
    postgres: Server, postgres_schema: str, size: int
) -> None:
    """And whoever is in the way of whom, nobody hears of a deadlock."""
    answers: Counter[str] = Counter()

    async def look() -> None:
        assert await those.sql("SELECT unique_key FROM mainspring.jobs GROUP BY unique_key HAVING count(*) > 1") == []

    async with crowd(postgres, postgres_schema) as those:
        nodes = [await those.node() for _ in range(3)]
        handles = [await those.open() for _ in range(10)]
        is_over = asyncio.Event()

        async def enqueue(handle: PostgresStore) -> None:
            for _ in range(15 * size):
                words = list(OnConflict)
                random.shuffle(words)
                keys = random.sample("abcdef", random.choice([1, 3]))
                new_ones = [
                    new(unique=UniqueKey(key=key, on_conflict=word), priority=random.choice([10, 50]))
                    for key, word in zip(keys, words, strict=False)
                ]
                try:
                    for answer in await handle.enqueue(new_ones):
                        answers["fresh" if answer.fresh else "there"] += 1
                except Conflict:
                    answers["conflict"] += 1

        async def work(node: Node) -> None:
            while not is_over.is_set():
                deliveries = await node.take(2)
                await node.settle(deliveries, random.choice(ENDS))

        async def retry(handle: PostgresStore) -> None:
            while not is_over.is_set():
                rows = await those.sql("SELECT id FROM mainspring.history WHERE state <> 'succeeded' LIMIT 5")
                for (id_,) in rows:
                    (view,) = await handle.get([id_])
                    if view is not None and view.job.state in {State.FAILED, State.CANCELLED}:
                        change = machine.command(view.job, RetryJob(), handle.now())
                        (settled,) = await handle.settle([Settlement(change=change)])
                        answers[settled.verdict] += 1
                await asyncio.sleep(0.005)

        async def enqueue_all() -> None:
            await asyncio.gather(*map(enqueue, handles))
            is_over.set()

        async with watching(look):
            await asyncio.gather(enqueue_all(), *map(work, nodes), retry(await those.open()))

        assert min(answers["fresh"], answers["there"], answers["conflict"]) > 0
        assert (
            await those.sql(
                "SELECT jobs.id FROM mainspring.jobs LEFT JOIN mainspring.unique_keys AS keys"
                " ON keys.job = jobs.id AND keys.key = jobs.unique_key WHERE keys.job IS NULL"
            )
            == []
        )


# The ends of attempts.


@few_and_many
@on_real_time
async def test_of_a_node_and_its_reaper_one_is_believed(postgres: Server, postgres_schema: str, size: int) -> None:
    async with crowd(postgres, postgres_schema) as those:
        reapers = [await those.node() for _ in range(2)]
        handles = [await those.open() for _ in range(3)]
        believed: Counter[JobId] = Counter()
        tellers: Counter[str] = Counter()

        async def settle(node: Node, deliveries: Sequence[Delivery]) -> None:
            await asyncio.sleep(random.uniform(0, 0.006))
            outcome = random.choice(ENDS)
            for delivery, verdict in zip(deliveries, await node.settle(deliveries, outcome), strict=True):
                count(delivery.claim.job.id, verdict, "node")

        async def reap(reaper: Node, node: Node) -> None:
            await asyncio.sleep(random.uniform(0, 0.006))
            await reaper.store.declare_dead(node.id, node.term)
            orphans = await reaper.store.orphans(10)
            changes = [machine.decide(orphan, Lost(), reaper.store.now(), 0.5) for orphan in orphans]
            settled = await reaper.store.settle([Settlement(change=change, by=reaper.id) for change in changes])
            for orphan, answer in zip(orphans, settled, strict=True):
                count(orphan.job.id, answer.verdict, "reaper")

        def count(job: JobId, verdict: Verdict, teller: str) -> None:
            believed[job] += verdict is Verdict.ACCEPTED
            tellers[teller] += verdict is Verdict.ACCEPTED

        for _ in range(20 * size):
            node = await those.node(random.choice(handles))
            jobs = [new() for _ in range(5)]
            await node.store.enqueue(jobs)
            halves = await node.take(5)
            await asyncio.gather(
                settle(node, halves[:3]), settle(node, halves[3:]), *(reap(reaper, node) for reaper in reapers)
            )
            assert [believed[job.id] for job in jobs] == [1] * 5
            await those.sql("DELETE FROM mainspring.jobs")

        assert min(tellers.values()) > 0, tellers


@few_and_many
@on_real_time
async def test_every_change_that_was_accepted_is_there_whoever_else_was_at_it(
    postgres: Server, postgres_schema: str, size: int
) -> None:
    """Nodes, operators, notes and pruning at the same jobs. A revision counts the changes: none is lost, none comes twice."""
    async with crowd(postgres, postgres_schema) as those:
        nodes = [await those.node() for _ in range(3)]
        operators = [await those.open() for _ in range(3)]
        jobs = [new(backoff=new().backoff.fixed("1ms"), max_attempts=99) for _ in range(10)]
        await operators[0].enqueue(jobs)
        ids = [job.id for job in jobs]
        changes: Counter[JobId] = Counter()
        deleted: set[JobId] = set()
        steps = 0
        enough = 150 * size

        async def work(node: Node) -> None:
            nonlocal steps
            while steps < enough:
                steps += 1
                deliveries = await node.take(2)
                changes.update(delivery.claim.job.id for delivery in deliveries)
                now = node.store.now()
                notes = [
                    Note(
                        job=one.claim.job.id,
                        lease=one.claim.job.lease,
                        node=node.id,
                        lines=(LogLine(now, "info", "."),),
                    )
                    for one in deliveries
                ]
                outcome = random.choice(ENDS[1:])
                noted = asyncio.create_task(node.store.note(notes))
                verdicts = await node.settle(deliveries, outcome)
                await noted
                for delivery, verdict in zip(deliveries, verdicts, strict=True):
                    await written(node, delivery, outcome, verdict)

        async def written(node: Node, delivery: Delivery, outcome: Outcome, verdict: Verdict) -> None:
            """Decide again on what has changed meanwhile, as a node does."""
            id_ = delivery.claim.job.id
            while verdict is Verdict.STALE:
                (view,) = await node.store.get([id_])
                assert view is not None
                change = machine.decide(Claim(job=view.job, node=node.id), outcome, node.store.now(), 0.5)
                (settled,) = await node.store.settle([Settlement(change=change, by=node.id)])
                verdict = settled.verdict
            assert verdict is Verdict.ACCEPTED
            changes[id_] += 1

        async def operate(store: PostgresStore) -> None:
            nonlocal steps
            while steps < enough:
                steps += 1
                (view,) = await store.get([random.choice(ids)])
                if view is None:
                    continue
                word: Command = random.choice(WORDS)
                if len(deleted) < 3 and random.random() < 0.05:
                    word = DeleteJob()
                with suppress(IllegalTransition):
                    change = machine.command(view.job, word, store.now())
                    (settled,) = await store.settle([Settlement(change=change)])
                    assert settled.verdict is not Verdict.CONFLICT
                    changes[view.job.id] += settled.accepted
                    if settled.accepted and word == DeleteJob():
                        deleted.add(view.job.id)

        async def prune(store: PostgresStore) -> None:
            while steps < enough:
                await store.prune(100)
                await store.mend(100)

        await asyncio.gather(*map(work, nodes), *map(operate, operators), prune(await those.open()))

        left = {id_: view.job.revision for id_, view in zip(ids, await operators[0].get(ids), strict=True) if view}
        assert set(left) == set(ids) - deleted
        assert left == {id_: changes[id_] for id_ in left}
        for id_ in ids:
            assert len(await those.places_of(id_)) == (id_ in left)
        assert await those.sql("SELECT job FROM mainspring.log_lines EXCEPT SELECT id FROM mainspring.jobs") == []


# Threads.


def test_one_handle_serves_several_loops_and_threads(postgres: Server, postgres_schema: str) -> None:
    store = PostgresStore(postgres.dsn(), schema=postgres_schema)
    asyncio.run(store.open())
    jobs = [new() for _ in range(600)]
    given: list[JobId] = []

    async def drain() -> None:
        those = Crowd(postgres, postgres_schema)
        node = await those.node(store)
        while deliveries := await node.take(7):
            given.extend(delivery.claim.job.id for delivery in deliveries)
            assert set(await node.settle(deliveries)) == {Verdict.ACCEPTED}

    async def enqueue() -> None:
        for begin in range(0, len(jobs), 50):
            await store.enqueue(jobs[begin : begin + 50])

    asyncio.run(enqueue())
    with ThreadPoolExecutor(4) as threads:
        for done in [threads.submit(asyncio.run, drain()) for _ in range(4)]:
            done.result(60)
    asyncio.run(store.close())

    assert Counter(given) == Counter(job.id for job in jobs)
