"""Schedules on PostgreSQL when several move them, end their runs, or lose their connection in between."""

import asyncio
import os
import random
import signal
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Iterator
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from functools import partial
from typing import TypeVar

import pytest
from asyncpg import Connection
from msgspec.structs import replace

from mainspring.core.command import CancelJob, DeleteJob, RetryJob
from mainspring.core.job import State
from mainspring.core.names import Name
from mainspring.core.outcome import Outcome, Succeeded
from mainspring.core.rules import Every
from mainspring.core.schedule import Overlap, Plan, Schedule
from mainspring.core.steps import pause, remove, run_now
from mainspring.core.unique import OnConflict, UniqueKey
from mainspring.errors import IllegalTransition, StoreUnavailable
from mainspring.ids import new_id
from mainspring.stores.postgres import PostgresStore
from mainspring.stores.records import Delivery, Move, Verdict
from tests.servers.pgbouncer import Pooler
from tests.servers.postgres import Server
from tests.servers.wire import Wire
from tests.stores.postgres_crowd import FATAL, RAISED, Crowd, Node, crowd, empty, end, few_and_many, lasting_schema, new
from tests.stores.postgres_planned import (
    HOUR,
    A,
    B,
    add,
    added,
    come_up,
    due_moves,
    due_since,
    look_at,
    plan,
    runs_of,
    schedule_of,
    stepped,
    tick,
)
from tests.stores.postgres_staged import staged
from tests.stores.postgres_wires import on_real_time

T = TypeVar("T")

SOON = 60.0
"""Seconds within which what waits for nobody must be done, on a machine that others use too."""
SHORT = timedelta(milliseconds=20)
SECOND = timedelta(seconds=1)
ONE_AT_A_TIME = plan(overlap=Overlap.QUEUE_ONE)
AFTER_THE_END = plan(Every(HOUR, after_end=True))


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


@asynccontextmanager
async def holding_a_slot(those: Crowd, planned: Plan = ONE_AT_A_TIME) -> AsyncIterator[tuple[Node, Delivery, Move]]:
    """A schedule whose first run is under way, and the step that has its second slot wait for that."""
    node = await those.node()
    await add(node.store, A, planned)
    assert len(await tick(node.store)) == 1
    (delivery,) = await node.take()
    await come_up(node.store)
    (move,) = await due_moves(node.store)
    assert move.after
    assert move.after.waits
    yield node, delivery, move


async def is_looked_at(store: PostgresStore, move: Move) -> Schedule:
    """See that a schedule which waited is due again."""
    schedule = await schedule_of(store)
    assert move.after
    assert schedule.next_at is not None
    assert schedule.next_at < store.now()
    assert schedule.held == move.after.held
    return schedule


# A run that ends while its schedule begins to wait for it.


@on_real_time
async def test_an_end_that_comes_when_its_run_is_held_finds_that_it_is_awaited(
    postgres: Server, postgres_schema: str
) -> None:
    async with crowd(postgres, postgres_schema) as those, holding_a_slot(those) as (node, delivery, move):
        other = await those.open()
        ends: list[asyncio.Future[list[Verdict]]] = []

        async def meanwhile() -> None:
            ends.append(await started(those, node.settle([delivery])))

        assert await staged(other.move([move]), after_runs_hold=meanwhile) == (True,)
        assert await ends[0] == [Verdict.ACCEPTED]
        schedule = await is_looked_at(other, move)
        assert not schedule.waits
        assert schedule.last_end == schedule.next_at
        assert len(await tick(other)) == 1  # what was held


@pytest.mark.parametrize("where", ["runs_end", "schedules_awaiting"])
@on_real_time
async def test_who_begins_to_wait_for_a_run_that_is_just_ending_is_looked_at_again(
    postgres: Server, postgres_schema: str, where: str
) -> None:
    async with crowd(postgres, postgres_schema) as those, holding_a_slot(those) as (node, delivery, move):
        other = await those.open()

        async def meanwhile() -> None:
            assert await asyncio.wait_for(other.move([move]), SOON) == (True,)

        assert await staged(node.settle([delivery]), **{f"after_{where}": meanwhile}) == [Verdict.ACCEPTED]
        schedule = await schedule_of(other)
        assert schedule.next_at is not None
        assert schedule.next_at <= other.now() + SECOND + SHORT
        await asyncio.sleep((schedule.next_at - other.now()).total_seconds() + 0.01)
        assert len(await tick(other)) == 1


@on_real_time
async def test_who_waits_for_a_run_that_a_user_is_ending_is_looked_at_once_a_second(
    postgres: Server, postgres_schema: str
) -> None:
    """And not all the time, for as long as the user's transaction is left open."""
    async with (
        crowd(postgres, postgres_schema) as those,
        holding_a_slot(those) as (node, delivery, move),
        those.connection() as user,
    ):
        await user.execute("BEGIN")
        await node.store.settle_in(user, end(delivery, Succeeded(), node.store.now()))
        before = node.store.now()
        assert await node.store.move([move]) == (True,)

        schedule = await schedule_of(node.store)
        assert schedule.waits
        assert schedule.next_at
        assert (
            schedule.next_at >= before + SECOND / 2
        )  # and not at once; clocks are known as well as a busy machine lets
        await user.execute("COMMIT")


@on_real_time
async def test_who_waits_for_a_run_that_has_ended_since_it_was_looked_at_is_looked_at_again(
    postgres: Server, postgres_schema: str
) -> None:
    async with crowd(postgres, postgres_schema) as those, holding_a_slot(those) as (node, delivery, move):
        other = await those.open()
        accepted = await staged(other.move([move]), before_runs_hold=partial(node.settle, [delivery]))

        assert accepted == (True,)
        assert (await is_looked_at(other, move)).waits
        assert len(await tick(other)) == 1


@on_real_time
async def test_an_end_that_comes_when_its_schedule_is_being_written_waits_for_that(
    postgres: Server, postgres_schema: str
) -> None:
    """By then the schedule waits already, and is moved on from there: to another slot, which takes the held one's place."""
    async with crowd(postgres, postgres_schema) as those, holding_a_slot(those) as (node, delivery, move):
        other = await those.open()
        assert await other.move([move]) == (True,)
        await come_up(other)
        (again,) = await due_moves(other)
        ends: list[asyncio.Future[list[Verdict]]] = []

        async def meanwhile() -> None:
            ends.append(await started(those, node.settle([delivery])))

        assert await staged(other.move([again]), after_schedules_write=meanwhile) == (True,)
        assert await ends[0] == [Verdict.ACCEPTED]
        assert not (await is_looked_at(other, again)).waits


@on_real_time
async def test_an_end_that_has_seen_the_wait_finds_its_schedule_wherever_that_is_by_then(
    postgres: Server, postgres_schema: str
) -> None:
    """The schedule waits for another run, too; it is being moved on when the first of them ends."""
    async with crowd(postgres, postgres_schema) as those, holding_a_slot(those) as (node, delivery, move):
        other = await those.open()
        assert await other.move([move]) == (True,)
        now = other.now()
        assert await other.move([stepped(run_now(await schedule_of(other), now, partial(new_id, now)))]) == (True,)
        await come_up(other)
        (again,) = await due_moves(other)
        assert again.after
        assert again.after.waits
        is_held, may_go_on = asyncio.Event(), asyncio.Event()
        moving: list[asyncio.Future[tuple[bool, ...]]] = []

        async def wait_until_awaited() -> None:
            is_held.set()
            await may_go_on.wait()

        async def meanwhile() -> None:
            moving.append(asyncio.ensure_future(staged(other.move([again]), after_schedules_write=wait_until_awaited)))
            await asyncio.wait_for(is_held.wait(), SOON)

        settling = staged(node.settle([delivery]), after_runs_end=meanwhile)
        assert await asyncio.wait_for(settling, SOON) == [Verdict.ACCEPTED]  # it does not wait for whoever moves it on
        may_go_on.set()

        assert await moving[0] == (True,)
        assert [look.schedule.name for look in (await node.store.due(1)).looks] == [A]
        schedule = await is_looked_at(other, again)
        assert (schedule.waits, schedule.revision) == (False, again.after.revision + 1)


@asynccontextmanager
async def in_hand_with_a_second_run(those: Crowd, planned: Plan) -> AsyncIterator[tuple[Node, Delivery, Connection]]:
    """A schedule that waits for two runs, of which a user's transaction has ended one and is left open."""
    node = await those.node()
    store = node.store
    await add(store, A, planned)
    await tick(store)
    now = store.now()
    assert await store.move([stepped(run_now(await schedule_of(store), now, partial(new_id, now)))]) == (True,)
    first, second = await node.take(2)
    if planned.overlap is Overlap.QUEUE_ONE:
        await come_up(store)
        await tick(store)
    assert (await schedule_of(store)).waits
    async with those.connection() as user:
        await user.execute("BEGIN")
        assert (await store.settle_in(user, end(first, Succeeded(), store.now()))).verdict is Verdict.ACCEPTED
        yield node, second, user


@on_real_time
async def test_an_end_does_not_wait_for_a_schedule_that_a_user_has_in_hand(
    postgres: Server, postgres_schema: str
) -> None:
    async with (
        crowd(postgres, postgres_schema) as those,
        in_hand_with_a_second_run(those, ONE_AT_A_TIME) as (node, second, user),
    ):
        store = node.store
        await store.enqueue([new() for _ in range(20)])
        others = await node.take(20)
        ends = [end(one, FATAL, store.now()) for one in others] + [end(second, Succeeded(), store.now())]

        settled = await asyncio.wait_for(store.settle(ends), SOON)
        assert {one.verdict for one in settled} == {Verdict.ACCEPTED}
        looked = await store.due(1)
        assert looked.looks == ()  # who ends the transaction knows what is to become of it
        assert looked.next_at
        assert looked.next_at - looked.now <= timedelta(seconds=1)
        await user.execute("COMMIT")
        (run,) = await tick(store)  # what was held
        assert (run.schedule, (await look_at(store)).open) == (A, (run.id,))
        assert await those.sql("SELECT 1 FROM mainspring.ends") == []


@on_real_time
async def test_a_delay_counts_from_the_last_end_also_if_its_schedule_was_in_hand(
    postgres: Server, postgres_schema: str
) -> None:
    async with (
        crowd(postgres, postgres_schema) as those,
        in_hand_with_a_second_run(those, AFTER_THE_END) as (node, second, user),
    ):
        between = node.store.now()
        assert await asyncio.wait_for(node.settle([second]), SOON) == [Verdict.ACCEPTED]
        await user.execute("COMMIT")
        await tick(node.store)
        schedule = await schedule_of(node.store)

        assert schedule.last_end
        assert schedule.last_end >= between
        assert schedule.next_at == schedule.last_end + HOUR


@on_real_time
async def test_an_end_is_told_although_whoever_had_the_schedule_in_hand_took_it_all_back(
    postgres: Server, postgres_schema: str
) -> None:
    async with (
        crowd(postgres, postgres_schema) as those,
        in_hand_with_a_second_run(those, ONE_AT_A_TIME) as (node, second, user),
    ):
        store = node.store
        assert await asyncio.wait_for(node.settle([second]), SOON) == [Verdict.ACCEPTED]
        before = (await schedule_of(store)).last_end
        await user.execute("ROLLBACK")

        (look,) = (await store.due(1)).looks
        assert look.schedule.last_end != before
        assert await tick(store) == []  # the first run goes on, and is waited for
        assert (await schedule_of(store)).waits
        assert await those.sql("SELECT 1 FROM mainspring.ends") == []


@on_real_time
async def test_an_end_of_a_schedule_that_was_removed_meanwhile_is_forgotten(
    postgres: Server, postgres_schema: str
) -> None:
    async with (
        crowd(postgres, postgres_schema) as those,
        in_hand_with_a_second_run(those, ONE_AT_A_TIME) as (node, second, user),
    ):
        assert await node.settle([second]) == [Verdict.ACCEPTED]
        await user.execute("ROLLBACK")
        assert await node.store.move([stepped(remove(await schedule_of(node.store)))]) == (True,)
        looked = await node.store.due(1)

        assert (looked.looks, await those.sql("SELECT 1 FROM mainspring.ends")) == ((), [])


@on_real_time
async def test_in_a_transaction_that_cannot_see_the_wait_the_end_fails_and_is_not_lost(
    postgres: Server, postgres_schema: str
) -> None:
    async with (
        crowd(postgres, postgres_schema) as those,
        holding_a_slot(those) as (node, delivery, move),
        those.connection() as user,
    ):
        await user.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        await user.fetch("SELECT 1")
        assert await node.store.move([move]) == (True,)
        with pytest.raises(StoreUnavailable, match="could not serialize"):
            await node.store.settle_in(user, end(delivery, Succeeded(), node.store.now()))
        await user.execute("ROLLBACK")

        assert await node.settle([delivery]) == [Verdict.ACCEPTED]
        await is_looked_at(node.store, move)


@few_and_many
@on_real_time
async def test_no_end_is_missed_and_no_slot_made_twice_in_a_crowd(
    postgres: Server, postgres_schema: str, size: int
) -> None:
    """Schedules that wait for ends all the time, of which any may come at any moment; all tick, work and operate."""
    kinds = [Overlap.QUEUE_ONE, Overlap.CANCEL_PREVIOUS, Overlap.SKIP]
    quick = Every(SHORT)
    plans = [plan(quick, overlap=kind) for kind in kinds] + [plan(Every(SHORT, after_end=True))] * 2
    unique = UniqueKey(key="one", on_conflict=OnConflict.REPLACE)
    plans += [plan(quick, overlap=kind, unique=unique) for kind in (Overlap.ALLOW, Overlap.QUEUE_ONE)]
    names = [Name("", f"s{number}") for number in range(len(plans))]
    ends: list[Outcome] = [Succeeded(), RAISED, FATAL]

    async with crowd(postgres, postgres_schema) as those:
        nodes = [await those.node() for _ in range(4)]
        operator = await those.open()
        await operator.move([added(due_since(name, one)) for name, one in zip(names, plans, strict=True)])
        over = asyncio.get_running_loop().time() + 3 * size

        async def ticking(node: Node) -> None:
            while asyncio.get_running_loop().time() < over:
                await tick(node.store)
                await asyncio.sleep(random.uniform(0, 0.01))  # noqa: S311 -- no secret

        async def working(node: Node) -> None:
            while asyncio.get_running_loop().time() < over:
                deliveries = await node.take(5)
                outcome = random.choice(ends)  # noqa: S311 -- no secret
                await asyncio.gather(*(node.settle([one], outcome) for one in deliveries))
                await asyncio.sleep(0.002)

        async def operating() -> None:
            while asyncio.get_running_loop().time() < over:
                runs = (await runs_of(operator))[:20]
                if runs:
                    job = random.choice(runs).job  # noqa: S311 -- no secret
                    word = random.choice([CancelJob(), RetryJob(), DeleteJob()])  # noqa: S311 -- no secret
                    with suppress(IllegalTransition, AssertionError):  # it is gone, or not in such a state
                        await those.command(operator, job or runs[0].id, word)  # type: ignore[arg-type]  # not there
                await asyncio.sleep(0.01)

        await asyncio.gather(*map(ticking, nodes), *map(working, nodes), operating())

        runs = await runs_of(operator)
        slots = Counter((run.schedule, run.slot) for run in runs if run.job)
        assert max(slots.values()) == 1
        assert {str(name) for name, _ in slots} == {str(name) for name in names}  # all of them went on
        assert await forgotten(those) == []
        while deliveries := await node_of(nodes).take(100):
            await node_of(nodes).settle(deliveries)
        assert await forgotten(those) == []
        states = await those.sql(
            "SELECT runs.id, runs.state, history.state FROM mainspring.runs JOIN mainspring.history USING (id)"
            " WHERE runs.state IS DISTINCT FROM history.state"
        )
        assert states == []


def node_of(nodes: list[Node]) -> Node:
    return nodes[0]


async def forgotten(those: Crowd) -> list[tuple[object, ...]]:
    """Find schedules that wait for nothing and will not be looked at, and open runs that have no job."""
    return await those.sql(
        "SELECT schedule FROM mainspring.positions WHERE waits AND next_at IS NULL AND NOT EXISTS ("
        " SELECT FROM mainspring.runs WHERE runs.schedule = positions.schedule AND is_open)"
        " UNION ALL SELECT id::text FROM mainspring.runs WHERE is_open AND NOT EXISTS ("
        " SELECT FROM mainspring.jobs WHERE jobs.id = runs.id)"
    )


# Who fires first.


async def fired_by_all(stores: list[PostgresStore]) -> list[bool]:
    """Have all of them fire the same slot at once, each with a job of its own; says who was accepted."""
    await add(stores[0])
    moves = [(await due_moves(store))[0] for store in stores]
    answers = await asyncio.gather(*(store.move([move]) for store, move in zip(stores, moves, strict=True)))
    return [accepted for (accepted,) in answers]


@on_real_time
async def test_a_slot_that_fifty_connections_fire_at_once_makes_one_job(postgres: Server, postgres_schema: str) -> None:
    async with crowd(postgres, postgres_schema) as those:
        stores = [await those.open(connections=1, listen=False) for _ in range(50)]
        answers = await fired_by_all(stores)

        assert Counter(answers) == {True: 1, False: 49}
        (run,) = await runs_of(stores[0])
        assert await those.sql("SELECT id FROM mainspring.jobs") == [(run.id,)]
        assert (await look_at(stores[0])).open == (run.id,)


@pytest.mark.needs("pgbouncer")
@on_real_time
async def test_a_slot_that_many_fire_through_a_pooler_makes_one_job(own_postgres: Server) -> None:
    with own_postgres.schema() as schema, Pooler(own_postgres, size=4) as pooler:
        stores = [PostgresStore(pooler.dsn(), schema=schema, connections=2, listen=False) for _ in range(10)]
        try:
            for store in stores:
                await store.open()
            answers = await fired_by_all(stores)
            assert Counter(answers) == {True: 1, False: 9}

            node = await Crowd(own_postgres, schema).node(stores[1])
            (delivery,) = await node.take()
            (run,) = await runs_of(stores[2])
            assert run.id == delivery.claim.job.id
            assert await node.settle([delivery]) == [Verdict.ACCEPTED]
            assert (await runs_of(stores[2]))[0].state is State.SUCCEEDED
        finally:
            for store in stores:
                await store.close()


@on_real_time
async def test_what_somebody_has_in_hand_does_not_hold_up_the_others(postgres: Server, postgres_schema: str) -> None:
    """A user's transaction that ended a run, and that nobody commits for now."""
    async with (
        crowd(postgres, postgres_schema) as those,
        holding_a_slot(those) as (node, delivery, move),
        those.connection() as user,
    ):
        assert await node.store.move([move]) == (True,)
        await user.execute("BEGIN")
        settled = await node.store.settle_in(user, end(delivery, Succeeded(), node.store.now()))
        assert settled.verdict is Verdict.ACCEPTED
        other = await add(node.store, B)
        here = await schedule_of(node.store)
        now = node.store.now()
        moves = [stepped(run_now(one, now, partial(new_id, now))) for one in (here, other)]

        assert await asyncio.wait_for(node.store.move(moves), SOON) == (False, True)
        await user.execute("COMMIT")
        assert await node.store.move(moves[:1]) == (False,)  # it was looked at, and has another revision
        assert len(await tick(node.store)) == 2
        assert [run.slot is None for run in await runs_of(node.store, B)] == [False, True]


@on_real_time
async def test_a_key_that_somebody_has_in_hand_holds_up_those_who_want_it_and_no_others(
    postgres: Server, postgres_schema: str
) -> None:
    """A user's transaction has enqueued a job with that key, and is left open."""
    async with crowd(postgres, postgres_schema) as those, those.connection() as user:
        store = await those.open()
        await add(store, A, plan(unique=UniqueKey(key="a")))
        await add(store, B)
        keyed = [Name("", f"k{number}") for number in range(20)]
        for name in keyed:
            await add(store, name, plan(unique=UniqueKey(key=str(name))))
        await user.execute("BEGIN")
        await store.enqueue_in(user, [new(unique=UniqueKey(key="a"))])

        fired = [run.schedule for run in await asyncio.wait_for(tick(store), SOON)]
        assert sorted(map(str, fired)) == sorted(map(str, [B, *keyed]))
        assert await asyncio.wait_for(tick(store), SOON) == []  # it is not accepted, and nothing is raised
        await user.execute("ROLLBACK")
        assert [run.schedule for run in await tick(store)] == [A]
        assert len(await runs_of(store)) == len(await those.sql("SELECT 1 FROM mainspring.jobs")) == 22


@on_real_time
async def test_a_tick_ends_soon_however_many_keys_somebody_has_in_hand(postgres: Server, postgres_schema: str) -> None:
    """What there was no time for comes with one of the next."""
    async with crowd(postgres, postgres_schema) as those, those.connection() as user:
        store = await those.open()
        names = [Name("", f"k{number}") for number in range(60)]
        keys = {name: UniqueKey(key=str(name)) for name in names}
        await store.move([added(due_since(name, plan(unique=key))) for name, key in keys.items()])
        await user.execute("BEGIN")
        await store.enqueue_in(user, [new(unique=keys[name]) for name in names[2:]])

        fired: set[Name] = set()
        async with asyncio.timeout(60):
            while len(fired) < 2:
                fired |= {run.schedule for run in await asyncio.wait_for(tick(store), SOON)}
        assert fired == set(names[:2])


@on_real_time
async def test_what_was_written_is_answered_although_the_rest_cannot_be(own_postgres: Server) -> None:
    with own_postgres.schema() as schema, Wire.to(own_postgres) as wire:
        async with crowd(own_postgres, schema):
            store = PostgresStore(wire.dsn(), schema=schema, timeout="500ms", patience="500ms", listen=False)
            await store.open()
            try:
                await add(store, A, plan(unique=UniqueKey(key="a")))
                await add(store, B)
                moves = await due_moves(store)

                async def hang() -> None:
                    wire.hang()

                accepted = await staged(store.move(moves), before_unique_lock=hang)
                assert {move.before.name for move, was in zip(moves, accepted, strict=True) if was and move.before} == {
                    B
                }
                with pytest.raises(StoreUnavailable):  # where nothing was written, that is said
                    await store.move([move for move, was in zip(moves, accepted, strict=True) if not was])
                wire.heal()
                assert [run.schedule for run in await tick(store)] == [A]
            finally:
                await store.close()


@on_real_time
async def test_a_move_waits_a_moment_for_whoever_has_its_schedule_in_hand(
    postgres: Server, postgres_schema: str
) -> None:
    async with crowd(postgres, postgres_schema) as those, those.connection() as user:
        store = await those.open()
        schedule = await add(store)
        await user.execute("BEGIN")
        await user.execute(f"SELECT 1 FROM {postgres_schema}.positions FOR UPDATE")  # noqa: S608 -- ours
        asyncio.get_running_loop().call_later(0.1, lambda: asyncio.ensure_future(user.execute("ROLLBACK")))
        steps = [stepped(pause(schedule, store.now()))]
        after = steps[0].after
        assert after
        steps.append(stepped(remove(after)))

        assert await store.move(steps) == (True, True)  # also what comes after it


# Connections that get lost.


async def ended_backend(those: Crowd) -> None:
    """End whoever is in a transaction, as an administrator does."""
    await those.sql(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE application_name = 'mainspring' AND state = 'idle in transaction' AND query LIKE '%' || $1 || '%'",
        those.schema,
    )


STEPS = [
    "unique_lock",
    "runs_hold",
    "schedules_hold",
    "schedules_name",
    "runs_with_slots",
    "schedules_add",
    "schedules_write",
    "schedules_remove",
    "runs_write",
    "enqueue_mixed",
    "schedules_answer",
]


@pytest.mark.parametrize("step", STEPS)
@on_real_time
async def test_a_move_that_loses_its_connection_is_done_again_whole(
    postgres: Server, postgres_schema: str, step: str
) -> None:
    async with crowd(postgres, postgres_schema) as those:
        store = await those.open()
        planned = replace(AFTER_THE_END, template=replace(AFTER_THE_END.template, unique=UniqueKey(key="a")))
        await add(store, A, planned)
        gone = await add(store, B)
        (fires,) = [move for move in await due_moves(store) if move.before and move.before.name == A]
        moves = [fires, stepped(remove(gone)), added(due_since(Name("", "c"), plan()))]

        accepted = await staged(store.move(moves), **{f"after_{step}": partial(ended_backend, those)})

        assert accepted == (True, True, True)
        (run,) = await runs_of(store)
        assert await those.sql("SELECT id FROM mainspring.jobs") == [(run.id,)]
        looks = (await store.list_schedules()).looks
        assert [str(look.schedule.name) for look in looks] == ["a", "c"]
        assert looks[0].schedule == fires.after


async def answers_lost(store: PostgresStore, wire: Wire, move: Move, meanwhile: Awaitable[object]) -> tuple[bool, ...]:
    """Have a step written whose answer does not come, and something else done before it is asked for again."""

    async def lose() -> None:
        wire.hang(answers_only=True)
        asyncio.get_running_loop().call_later(0.3, lambda: asyncio.ensure_future(go_on()))

    async def go_on() -> None:
        wire.cut()
        await meanwhile
        wire.heal()

    return await staged(store.move([move]), after_schedules_answer=lose)


async def nothing() -> None:
    pass


@on_real_time
async def test_a_move_whose_answer_was_lost_is_answered_and_not_done_again(own_postgres: Server) -> None:
    with own_postgres.schema() as schema, Wire.to(own_postgres) as wire:
        async with crowd(own_postgres, schema) as those:
            other = await those.open()
            store = PostgresStore(wire.dsn(), schema=schema, timeout="2s", listen=False)
            await store.open()
            try:
                await add(store)
                (move,) = await due_moves(store)
                assert await answers_lost(store, wire, move, nothing()) == (True,)
                (run,) = await runs_of(other)
                assert await those.sql("SELECT id FROM mainspring.jobs") == [(run.id,)]

                paused = stepped(pause(await schedule_of(other), other.now()))
                assert await answers_lost(store, wire, paused, nothing()) == (True,)
                assert await other.move([paused]) == (False,)  # whoever comes with the same step is too late
            finally:
                await store.close()


@on_real_time
async def test_a_lost_answer_is_still_true_when_others_have_moved_on(own_postgres: Server) -> None:
    with own_postgres.schema() as schema, Wire.to(own_postgres) as wire:
        async with crowd(own_postgres, schema) as those:
            other = await those.open()
            store = PostgresStore(wire.dsn(), schema=schema, timeout="2s", listen=False)
            await store.open()
            try:
                await add(store)

                async def paused_and_removed() -> None:
                    assert await other.move([stepped(pause(await schedule_of(other), other.now()))]) == (True,)
                    assert await other.move([stepped(remove(await schedule_of(other)))]) == (True,)

                (move,) = await due_moves(store)
                assert await answers_lost(store, wire, move, paused_and_removed()) == (True,)
                assert len(await runs_of(other)) == 1

                there = await add(other)
                assert await answers_lost(store, wire, stepped(remove(there)), add(other)) == (True,)
                assert (await look_at(other)).schedule != there  # what was added since stays
            finally:
                await store.close()


@on_real_time
async def test_a_try_that_is_about_to_be_committed_is_waited_for(own_postgres: Server) -> None:
    """A server process that stands still with the commit in its hands, given up by its client."""
    with own_postgres.schema() as schema:
        async with crowd(own_postgres, schema) as those:
            store = await those.open(connections=1, timeout="1s", listen=False)
            other = await those.open()
            await add(store)
            (move,) = await due_moves(store)
            frozen: list[int] = []

            async def freeze() -> None:
                look = (
                    "SELECT pid FROM pg_stat_activity WHERE datname = current_database() "
                    "AND state = 'idle in transaction' AND position($1 IN query) > 0"
                )
                ((pid,),) = await those.sql(look, schema)
                frozen.append(pid)
                os.kill(pid, signal.SIGSTOP)
                asyncio.get_running_loop().call_later(1.4, lambda: os.kill(pid, signal.SIGCONT))

            assert await staged(store.move([move]), after_schedules_answer=freeze) == (True,)
            assert frozen
            (run,) = await runs_of(other)
            assert await those.sql("SELECT id FROM mainspring.jobs") == [(run.id,)]


@on_real_time
async def test_a_move_on_a_connection_that_was_lost_before_is_done(postgres: Server, postgres_schema: str) -> None:
    async with crowd(postgres, postgres_schema) as those:
        store = await those.open(connections=1)
        await add(store)
        await those.sql(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() "
            "AND application_name = 'mainspring' AND query LIKE"
            " '%' || $1 || '%'",
            postgres_schema,
        )
        assert len(await tick(store)) == 1
