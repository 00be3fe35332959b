"""Verbs of the PostgreSQL store that meet: races that chance takes a thousand tries for, told one statement at a time."""

import asyncio
import os
import signal
from collections.abc import Awaitable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import TypeVar

import pytest
from msgspec.structs import replace

from mainspring.core import machine
from mainspring.core.command import CancelJob, DeleteJob, MoveJob, RetryJob
from mainspring.core.job import Claim, Retention, State
from mainspring.core.outcome import Lost, Outcome, Succeeded
from mainspring.core.unique import OnConflict, UniqueKey
from mainspring.errors import NodeGone
from mainspring.stores.postgres.enqueue import Batch, enqueue
from mainspring.stores.postgres.statements import qualified
from mainspring.stores.records import LogLine, Note, Progress, Settled, Settlement, Verdict
from tests.servers.postgres import Server
from tests.stores.postgres_crowd import FATAL, RAISED, Crowd, Node, crowd, empty, end, lasting_schema, new
from tests.stores.postgres_staged import staged
from tests.stores.postgres_wires import on_real_time

T = TypeVar("T")

HOUR = timedelta(hours=1)
FAR = datetime(2100, 1, 1, tzinfo=UTC)
SOON = 60.0
"""Seconds within which what waits for nobody must be done, on a machine that others use too."""


@pytest.fixture(scope="module")
def schema(postgres: Server) -> Iterator[str]:
    with lasting_schema(postgres) as name:
        yield name


@pytest.fixture
def postgres_schema(postgres: Server, schema: str) -> str:
    empty(postgres, schema)
    return schema


async def started(those: Crowd, verb: Awaitable[T]) -> "asyncio.Future[T]":
    """Start a verb that has to wait for somebody; returns once it waits."""
    task = asyncio.ensure_future(verb)
    look = (
        "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() "
        "AND wait_event_type = 'Lock' AND query LIKE '%' || $1 || '%'"
    )
    async with asyncio.timeout(30):
        while not await those.sql(look, those.schema):
            assert not task.done(), "it did not wait"
            await asyncio.sleep(0.01)
    return task


async def reap(reaper: Node, orphans: Sequence[Claim]) -> list[Verdict]:
    """Take jobs from a dead node."""
    now = reaper.store.now()
    ends = [Settlement(change=machine.decide(orphan, Lost(), now, 0.5), by=reaper.id) for orphan in orphans]
    return [settled.verdict for settled in await reaper.store.settle(ends)]


# Enqueueing.


@on_real_time
async def test_an_id_that_is_enqueued_again_while_its_key_is_contested_is_one_job(
    postgres: Server, postgres_schema: str
) -> None:
    """Who repeats an enqueue whose answer was lost may come between, and its job may be over by then."""
    async with crowd(postgres, postgres_schema) as those:
        node, other = await those.node(), await those.open()
        await node.store.enqueue([new(unique=UniqueKey(key="a"))])
        job = new(unique=UniqueKey(key="a", period=HOUR, on_conflict=OnConflict.REPLACE))

        async def meanwhile() -> None:
            assert [answer.fresh for answer in await node.store.enqueue([job])] == [True]
            await node.settle(await node.take())

        answers = await staged(other.enqueue([job]), before_unique_lock=meanwhile)

        assert [(answer.id, answer.fresh) for answer in answers] == [(job.id, False)]
        assert await those.places_of(job.id) == ["history"]


@on_real_time
async def test_an_id_in_a_batch_that_has_to_wait_is_not_enqueued_again(postgres: Server, postgres_schema: str) -> None:
    async with crowd(postgres, postgres_schema) as those, those.connection() as user:
        node, other = await those.node(), await those.open()
        held, job = new(), new()
        await user.execute("BEGIN")
        await other.enqueue_in(user, [held])
        late = await started(those, other.enqueue([held, job]))
        await node.store.enqueue([job])
        assert await node.settle(await node.take()) == [Verdict.ACCEPTED]
        await user.execute("COMMIT")

        assert [answer.fresh for answer in await late] == [False, False]
        assert await those.places_of(job.id) == ["history"]


@on_real_time
async def test_new_jobs_whose_enqueue_has_to_be_tried_again_are_no_second_jobs(
    postgres: Server, postgres_schema: str
) -> None:
    """What was committed, and its answer lost, may have run by then."""
    async with crowd(postgres, postgres_schema) as those:
        node = await those.node()
        for unique in (None, UniqueKey(key="a")):
            jobs = [replace(new(unique=unique), is_new=True), replace(new(), is_new=True)]
            batch = Batch(jobs)
            for fresh in (True, False):
                answers = await node.store._run(lambda: enqueue(None, batch), whole=True)  # noqa: B023 -- run at once
                assert [(answer.id, answer.fresh) for answer in answers] == [(job.id, fresh) for job in jobs]
                await node.settle(await node.take(2))

            assert [await those.places_of(job.id) for job in jobs] == [["history"], ["history"]]


@on_real_time
async def test_new_jobs_that_were_sent_and_not_committed_are_sent_again(postgres: Server, postgres_schema: str) -> None:
    async with crowd(postgres, postgres_schema) as those:
        node = await those.node()
        jobs = [replace(new(), is_new=True) for _ in range(3)]

        async def cut() -> None:
            look = (
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() "
                "AND state = 'idle in transaction'"
            )
            assert await those.sql(look)

        answers = await staged(node.store.enqueue(jobs), after_enqueue_all_new=cut)

        assert [answer.fresh for answer in answers] == [True] * 3
        assert len(await node.take(5)) == 3


@on_real_time
async def test_an_enqueue_that_is_carried_out_long_after_it_was_given_up_is_no_second_job(own_postgres: Server) -> None:
    """A server process that stood still goes on with what it was sent, and sees only then that nobody waits for it."""
    with own_postgres.schema() as schema:
        async with crowd(own_postgres, schema) as those:
            store = await those.open(connections=1, timeout="1s", listen=False)
            node = await those.node()
            await store.enqueue([replace(new(), is_new=True)])  # so that the statement is prepared
            await node.settle(await node.take())
            job = replace(new(), is_new=True)
            look = (
                "SELECT pid FROM pg_stat_activity WHERE datname = current_database() "
                "AND state = 'idle' AND position($1 IN query) > 0"
            )
            ((pid,),) = await those.sql(look, qualified("INSERT INTO mainspring.jobs", schema))
            os.kill(pid, signal.SIGSTOP)
            try:
                assert [answer.fresh for answer in await store.enqueue([job])] == [True]
                assert await node.settle(await node.take()) == [Verdict.ACCEPTED]
            finally:
                os.kill(pid, signal.SIGCONT)
            await until_gone(those, pid)

            assert await those.places_of(job.id) == ["history"]


async def until_gone(those: Crowd, pid: int) -> None:
    async with asyncio.timeout(30):
        while await those.sql("SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND pid = $1", pid):
            await asyncio.sleep(0.01)


@on_real_time
async def test_a_job_that_is_being_claimed_is_not_replaced(postgres: Server, postgres_schema: str) -> None:
    async with crowd(postgres, postgres_schema) as those:
        node, other = await those.node(), await those.open()
        first, second = (new(unique=UniqueKey(key="a", on_conflict=OnConflict.REPLACE)) for _ in range(2))
        await node.store.enqueue([first])
        answers = await staged(other.enqueue([second]), before_settle_hold_waiting=node.take)

        assert [(answer.id, answer.fresh) for answer in answers] == [(first.id, False)]
        assert await those.sql("SELECT id, state FROM mainspring.jobs") == [(first.id, "running")]


@on_real_time
async def test_a_key_whose_job_ends_while_somebody_waits_for_it_is_to_be_had(
    postgres: Server, postgres_schema: str
) -> None:
    async with crowd(postgres, postgres_schema) as those:
        node, other = await those.node(), await those.open()
        first, second = (new(unique=UniqueKey(key="a", on_conflict=OnConflict.RAISE)) for _ in range(2))
        await node.store.enqueue([first])
        deliveries = await node.take()

        async def meanwhile() -> None:
            assert await asyncio.wait_for(node.settle(deliveries), SOON) == [Verdict.ACCEPTED]

        answers = await staged(other.enqueue([second]), after_unique_lock=meanwhile)

        assert [answer.fresh for answer in answers] == [True]
        assert await those.sql("SELECT job FROM mainspring.unique_keys") == [(second.id,)]


# Claiming.


@on_real_time
async def test_nothing_is_claimed_from_a_queue_that_was_paused_after_a_look_at_it(
    postgres: Server, postgres_schema: str
) -> None:
    async with crowd(postgres, postgres_schema) as those:
        node, other = await those.node(), await those.open()
        await node.store.enqueue([new(queue="mail"), new()])
        claimed = await staged(node.claim(2), before_grab_task=lambda: other.pause("mail"))

        assert [delivery.claim.job.queue for delivery in claimed.deliveries] == ["default"]


@on_real_time
async def test_a_job_that_is_moved_while_it_is_claimed_keeps_its_new_place(
    postgres: Server, postgres_schema: str
) -> None:
    async with crowd(postgres, postgres_schema) as those:
        node, other = await those.node(), await those.open()
        moved, there = new(queue="slow", priority=10), new(queue="quick", priority=90)
        await node.store.enqueue([moved, there])

        async def meanwhile() -> None:
            await those.command(other, moved.id, MoveJob(queue="quick", priority=90))

        claimed = await staged(node.claim(2), before_grab_task=meanwhile)
        deliveries = [*claimed.deliveries, *await node.take()]
        (found,) = (delivery for delivery in deliveries if delivery.claim.job.id == moved.id)
        assert (found.claim.job.queue, found.claim.job.priority) == ("quick", 90)

        await node.settle([found], RAISED)
        job = await those.job(moved.id)
        assert (job.queue, job.priority) == ("quick", 90)


@on_real_time
async def test_what_somebody_has_his_hands_on_is_not_waited_for(postgres: Server, postgres_schema: str) -> None:
    async with crowd(postgres, postgres_schema) as those:
        node, other = await those.node(), await those.open()
        first, second = new(), new()
        await node.store.enqueue([first, second])
        found: list[object] = []

        async def meanwhile() -> None:
            deliveries = await asyncio.wait_for(node.take(2), SOON)
            found.extend(delivery.claim.job.id for delivery in deliveries)

        stale = replace(await those.job(first.id), revision=99)
        change = machine.command(stale, CancelJob(), other.now())
        answers = await staged(other.settle([Settlement(change=change)]), after_settle_read=meanwhile)
        assert [answer.verdict for answer in answers] == [Verdict.STALE]
        assert found == [second.id]

        assert [delivery.claim.job.id for delivery in await node.take(2)] == [first.id]


@on_real_time
async def test_what_a_node_is_given_when_it_has_just_been_declared_dead_is_found_by_the_reaper(
    postgres: Server, postgres_schema: str
) -> None:
    async with crowd(postgres, postgres_schema) as those:
        node, reaper = await those.node(), await those.node()
        job = new()
        await node.store.enqueue([job])
        try:
            claimed = await staged(node.claim(), before_grab_task=lambda: reaper.store.declare_dead(node.id, node.term))
        except NodeGone:
            assert await reaper.store.orphans(10) == ()
        else:
            assert await node.settle(claimed.deliveries) == [Verdict.REFUSED]
            assert await reap(reaper, await reaper.store.orphans(10)) == [Verdict.ACCEPTED]

        assert [delivery.claim.job.id for delivery in await reaper.take()] == [job.id]


# The ends of attempts.


@on_real_time
async def test_an_end_and_a_note_of_the_same_attempt_are_both_kept(postgres: Server, postgres_schema: str) -> None:
    async with crowd(postgres, postgres_schema) as those:
        node = await those.node()
        await node.store.enqueue([new()])
        (delivery,) = await node.take()
        job = delivery.claim.job
        line = LogLine(node.store.now(), "info", "hello")
        note = Note(job=job.id, lease=job.lease, node=node.id, saved=b"1", progress=Progress(50.0), lines=(line,))
        ends: list[asyncio.Future[list[Verdict]]] = []

        async def meanwhile() -> None:
            ends.append(await started(those, node.settle([delivery])))

        assert await staged(node.store.note([note]), after_note_hold=meanwhile) == (True,)
        assert await ends[0] == [Verdict.ACCEPTED]
        (view,) = await node.store.get([job.id])
        assert view is not None
        assert (view.job.state, view.saved, view.progress) == (State.SUCCEEDED, b"1", Progress(50.0))
        assert await node.store.log_lines(job.id) == (line,)


@on_real_time
async def test_a_note_that_comes_when_the_attempt_is_ending_is_not_accepted(
    postgres: Server, postgres_schema: str
) -> None:
    async with crowd(postgres, postgres_schema) as those:
        node = await those.node()
        await node.store.enqueue([new()])
        (delivery,) = await node.take()
        note = Note(job=delivery.claim.job.id, lease=delivery.claim.job.lease, node=node.id, saved=b"1")
        notes: list[asyncio.Future[tuple[bool, ...]]] = []

        async def meanwhile() -> None:
            notes.append(await started(those, node.store.note([note])))

        settled = await staged(
            node.store.settle([end(delivery, RAISED, node.store.now())]), after_settle_read=meanwhile
        )
        assert [answer.verdict for answer in settled] == [Verdict.ACCEPTED]
        assert await notes[0] == (False,)
        assert await those.sql("SELECT saved FROM mainspring.traces") == [(None,)]


@pytest.mark.parametrize("outcome", [Succeeded(), RAISED], ids=["success", "error"])
@on_real_time
async def test_a_reaper_that_waits_for_the_end_of_an_attempt_is_refused(
    postgres: Server, postgres_schema: str, outcome: Outcome
) -> None:
    async with crowd(postgres, postgres_schema) as those:
        node, reaper = await those.node(), await those.node()
        await node.store.enqueue([new(), new()])
        deliveries = await node.take(2)
        reaped: list[asyncio.Future[list[Verdict]]] = []

        async def meanwhile() -> None:
            await reaper.store.declare_dead(node.id, node.term)
            reaped.append(await started(those, reap(reaper, await reaper.store.orphans(10))))

        ends = [end(deliveries[0], outcome, node.store.now()), end(deliveries[1], RAISED, node.store.now())]
        settled = await staged(node.store.settle(ends), after_settle_living=meanwhile)

        assert [answer.verdict for answer in settled] == [Verdict.ACCEPTED] * 2
        assert Verdict.ACCEPTED not in await reaped[0]
        assert {len(await those.places_of(delivery.claim.job.id)) for delivery in deliveries} == {1}


@on_real_time
async def test_the_end_of_an_attempt_that_waits_for_the_reaper_is_refused(
    postgres: Server, postgres_schema: str
) -> None:
    async with crowd(postgres, postgres_schema) as those:
        node, reaper = await those.node(), await those.node()
        await node.store.enqueue([new()])
        deliveries = await node.take()
        ends: list[asyncio.Future[list[Verdict]]] = []

        async def meanwhile() -> None:
            ends.append(await started(those, node.settle(deliveries)))

        await reaper.store.declare_dead(node.id, node.term)
        reaped = await staged(reap(reaper, await reaper.store.orphans(10)), after_settle_living=meanwhile)

        assert reaped == [Verdict.ACCEPTED]
        assert await ends[0] == [Verdict.REFUSED]
        assert len(await reaper.take()) == 1


@on_real_time
async def test_a_cancel_that_comes_when_the_attempt_is_ending_is_looked_at_again(
    postgres: Server, postgres_schema: str
) -> None:
    async with crowd(postgres, postgres_schema) as those:
        node, other = await those.node(), await those.open()
        await node.store.enqueue([new()])
        (delivery,) = await node.take()
        ends: list[asyncio.Future[list[Verdict]]] = []

        async def meanwhile() -> None:
            ends.append(await started(those, node.settle([delivery])))

        settled = await staged(those.command(other, delivery.claim.job.id, CancelJob()), after_settle_read=meanwhile)
        assert settled.verdict is Verdict.ACCEPTED
        assert await ends[0] == [Verdict.STALE]
        assert (await those.job(delivery.claim.job.id)).cancel_requested_at is not None


# Operators and pruning.


@on_real_time
async def test_a_retry_that_was_accepted_is_there_even_if_its_day_is_hidden_meanwhile(
    postgres: Server, postgres_schema: str
) -> None:
    async with crowd(postgres, postgres_schema) as those:
        node, other = await those.node(), await those.open()
        job = new(retention=Retention(failed=timedelta(milliseconds=300)))
        await node.store.enqueue([job])
        await node.settle(await node.take(), FATAL)

        async def meanwhile() -> None:
            await asyncio.sleep(0.4)
            await other.prune(100)

        settled = await staged(those.command(node.store, job.id, RetryJob()), before_settle_revive=meanwhile)
        there = {Verdict.ACCEPTED: ["jobs"]}.get(settled.verdict, ["history"])
        assert await those.places_of(job.id) == there


@on_real_time
async def test_of_two_who_retry_a_job_one_is_told_that_it_has_changed(postgres: Server, postgres_schema: str) -> None:
    async with crowd(postgres, postgres_schema) as those:
        node, other = await those.node(), await those.open()
        job = new()
        await node.store.enqueue([job])
        await node.settle(await node.take(), FATAL)
        late: list[asyncio.Future[Settled]] = []

        async def meanwhile() -> None:
            late.append(await started(those, those.command(other, job.id, RetryJob())))

        first = await staged(those.command(node.store, job.id, RetryJob()), before_settle_revive=meanwhile)
        assert (first.verdict, (await late[0]).verdict) == (Verdict.ACCEPTED, Verdict.STALE)
        assert await those.places_of(job.id) == ["jobs"]


@on_real_time
async def test_a_job_that_is_deleted_while_it_is_retried_is_gone_or_back(
    postgres: Server, postgres_schema: str
) -> None:
    async with crowd(postgres, postgres_schema) as those:
        node, other = await those.node(), await those.open()
        job = new()
        await node.store.enqueue([job])
        await node.settle(await node.take(), FATAL)
        late: list[asyncio.Future[Settled]] = []

        async def meanwhile() -> None:
            late.append(await started(those, those.command(other, job.id, RetryJob())))

        first = await staged(those.command(node.store, job.id, DeleteJob()), before_settle_delete=meanwhile)
        assert (first.verdict, (await late[0]).verdict) == (Verdict.ACCEPTED, Verdict.REFUSED)
        assert await those.places_of(job.id) == []


@on_real_time
async def test_a_job_is_deleted_while_another_takes_its_key(postgres: Server, postgres_schema: str) -> None:
    async with crowd(postgres, postgres_schema) as those, those.connection() as user:
        node, other = await those.node(), await those.open()
        first, second = (new(unique=UniqueKey(key="a", period=timedelta(milliseconds=1))) for _ in range(2))
        await node.store.enqueue([first])
        await node.settle(await node.take())
        await asyncio.sleep(0.01)
        await user.execute("BEGIN")
        assert [answer.fresh for answer in await other.enqueue_in(user, [second])] == [True]
        deleted = await started(those, those.command(node.store, first.id, DeleteJob()))
        await user.execute("COMMIT")

        assert (await deleted).verdict is Verdict.ACCEPTED
        assert await those.places_of(first.id) == []
        assert await those.sql("SELECT job FROM mainspring.unique_keys") == [(second.id,)]
