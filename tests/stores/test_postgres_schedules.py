# ruff: noqa: S608 -- the names in these statements are the test's own
"""Schedules on PostgreSQL: by how many statements, at what cost, from which tables, and who may use them."""

import asyncio
from collections.abc import Awaitable, Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import TypeVar
from uuid import uuid4

import pytest
from msgspec.structs import replace

from mainspring.core.job import State
from mainspring.core.names import Name
from mainspring.core.outcome import AttemptError, Raised, Succeeded
from mainspring.core.rules import Manual
from mainspring.core.schedule import Overlap
from mainspring.core.steps import create, pause, run_now
from mainspring.core.unique import UniqueKey
from mainspring.ids import new_id
from mainspring.stores.postgres import PostgresStore, head, migrate
from mainspring.stores.postgres.connected import Connected
from mainspring.stores.postgres.head import START, Head, Mark
from mainspring.stores.postgres.positions import LATE
from mainspring.stores.postgres.statements import Statement, qualified
from mainspring.stores.postgres.verb import Row
from mainspring.stores.records import Move, Verdict
from mainspring.testing.contract import SettableClock
from tests.servers.postgres import Server
from tests.stores.postgres_crowd import crowd, empty, end, lasting_schema, new
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
from tests.stores.postgres_staged import driven, explained
from tests.stores.postgres_verbs import Verbs
from tests.stores.postgres_wires import on_real_time

T = TypeVar("T")

SOON = 60.0
MANY = 1000


@pytest.fixture(scope="module")
def schema(postgres: Server) -> Iterator[str]:
    with lasting_schema(postgres) as name:
        yield name


@pytest.fixture
def tidy(postgres: Server, schema: str) -> str:
    empty(postgres, schema)
    return schema


async def counted(verb: Awaitable[T]) -> tuple[T, list[str]]:
    """Do a verb; says also by which statements."""
    names: list[str] = []

    async def run(connected: Connected, one: Statement, text: str, values: tuple[object, ...]) -> Sequence[Row]:
        names.append(one.name)
        return list(await connected.fetch(text, *values))

    return await driven(verb, run), names


# By how many statements.


@on_real_time
async def test_a_thousand_slots_of_as_many_tasks_are_a_handful_of_statements(postgres: Server, tidy: str) -> None:
    async with crowd(postgres, tidy) as those:
        store = await those.open()
        plans = [plan(task=Name("", f"task{number}")) for number in range(MANY)]
        new_ones = [added(due_since(Name("", f"s{number:04}"), one)) for number, one in enumerate(plans)]
        answers, statements = await counted(store.move(new_ones))
        assert all(answers)
        assert statements == ["schedules_name", "schedules_add", "schedules_answer"]

        looked, statements = await counted(store.due(MANY))
        assert (len(looked.looks), statements) == (MANY, ["schedules_due"])
        moves = await due_moves(store, MANY)
        answers, statements = await counted(store.move(moves))
        assert all(answers)
        assert statements == [
            "schedules_hold",
            "runs_with_slots",
            "schedules_write",
            "runs_write",
            "enqueue_mixed",
            "schedules_answer",
        ]
        assert await those.sql("SELECT count(*), count(DISTINCT task) FROM mainspring.jobs") == [(MANY, MANY)]

        answers, statements = await counted(store.move(moves))  # whoever is late has not much to do
        assert not any(answers)
        assert statements == ["schedules_hold", "schedules_there"]


@on_real_time
async def test_a_thousand_slots_with_unique_keys_and_waits_are_a_few_more(postgres: Server, tidy: str) -> None:
    async with crowd(postgres, tidy) as those:
        store = await those.open()
        one = plan(overlap=Overlap.QUEUE_ONE)
        plans = [
            replace(one, template=replace(one.template, unique=UniqueKey(key=str(number)))) for number in range(MANY)
        ]
        names = [Name("", f"s{number:04}") for number in range(MANY)]
        await store.move([added(due_since(name, one)) for name, one in zip(names, plans, strict=True)])
        fired, statements = await counted(store.move(await due_moves(store, MANY)))
        assert all(fired)
        assert len(statements) < 15

        looked = await store.look(names)
        waiting = [
            Move(before=look.schedule, after=replace(look.schedule, waits=True, revision=look.schedule.revision + 1))
            for look in looked.looks
        ]
        waited, statements = await counted(store.move(waiting))
        assert all(waited)
        assert statements == ["runs_hold", "schedules_hold", "schedules_write", "schedules_answer"]


@on_real_time
async def test_only_the_end_of_a_schedules_job_takes_more_than_one_statement(postgres: Server, tidy: str) -> None:
    async with crowd(postgres, tidy) as those:
        node = await those.node()
        store = node.store
        await add(store)
        await tick(store)
        await store.enqueue([new() for _ in range(5)])
        deliveries = await node.take(6)
        assert sorted(one.claim.job.of_schedule for one in deliveries) == [False] * 5 + [True]
        ends = [end(one, Succeeded(), store.now()) for one in deliveries]
        plain = [one for one in ends if not one.change.before.of_schedule]
        settled, statements = await counted(store.settle(plain[:2]))
        assert ([one.verdict for one in settled], statements) == ([Verdict.ACCEPTED] * 2, ["settle_success"])

        rest = [one for one in ends if one not in plain[:2]]
        settled, statements = await counted(store.settle(rest))
        assert [one.verdict for one in settled] == [Verdict.ACCEPTED] * 4
        assert statements[0] == "settle_success"
        assert statements[-3:] == ["settle_finish", "runs_end", "schedules_awaiting"]


@on_real_time
async def test_who_waits_for_a_run_that_comes_to_nothing_in_the_same_call_is_looked_at_at_once(
    postgres: Server, tidy: str
) -> None:
    async with crowd(postgres, tidy) as those:
        store = await those.open()
        unique = UniqueKey(key="a")
        await store.enqueue([new(unique=unique)])
        schedule = create(A, plan(Manual(), unique=unique), store.now()).after
        assert schedule
        assert await store.move([added(schedule)]) == (True,)
        now = store.now()
        runs = run_now(schedule, now, partial(new_id, now))
        assert runs.after
        waits = Move(before=runs.after, after=replace(runs.after, waits=True, revision=runs.after.revision + 1))

        assert await store.move([stepped(runs), waits]) == (True, True)
        look = await look_at(store)
        assert (look.open, look.schedule.waits) == ((), True)
        assert look.schedule.next_at is not None


# Who waits for whom.


@on_real_time
async def test_who_looks_waits_for_nobody(postgres: Server, tidy: str) -> None:
    async with crowd(postgres, tidy) as those, those.connection() as user:
        store = await those.open()
        await add(store)
        await tick(store)
        await come_up(store)
        await user.execute("BEGIN")
        for table in ("schedules", "positions", "runs"):
            await user.execute(f"LOCK TABLE {tidy}.{table} IN EXCLUSIVE MODE")
            await user.execute(f"SELECT 1 FROM {tidy}.{table} FOR UPDATE")

        async with asyncio.timeout(SOON):
            assert len((await store.due(9)).looks) == 1
            assert len((await look_at(store)).open) == 1
            assert len((await store.list_schedules()).looks) == 1
            assert len(await runs_of(store, A)) == len(await runs_of(store)) == 1


# While somebody holds an old snapshot open.

# As a schedule does that comes up every second, for some hours.
_HOURS = """
DO $$ BEGIN
    FOR n IN 1..{count} LOOP
        UPDATE mainspring.positions SET revision = {first} + n, next_at = now() - make_interval(secs => {count} - n)
        WHERE schedule = 'a' AND revision = {first} + n - 1;
        COMMIT;
    END LOOP;
END $$
"""
DEAD = 5000


@pytest.mark.parametrize("is_analyzed", [False, True], ids=["as they come", "analyzed"])
@on_real_time
async def test_the_dead_are_in_nobodys_way(
    postgres: Server, tidy: str, monkeypatch: pytest.MonkeyPatch, is_analyzed: bool
) -> None:
    postgres.sql(f"VACUUM {tidy}.schedules, {tidy}.positions, {tidy}.runs, {tidy}.moved")
    monkeypatch.setattr(head, "LONG", 0.0)  # so that any look at the whole counts as a long one
    monkeypatch.setattr(head, "SHARE", 1_000_000)
    async with crowd(postgres, tidy) as those, those.connection() as other:
        store = await those.open()
        first = (await add(store)).revision
        await other.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        await other.fetch("SELECT 1")
        async with those.connection() as writer:
            await writer.execute("SET enable_seqscan = off; SET synchronous_commit = off")
            await writer.execute(qualified(_HOURS.format(count=DEAD, first=first), tidy))
        pages: list[int] = []
        for _ in range(2):
            looked, (looks,) = await explained(store.due(9))
            assert len(looked.looks) == 1
            pages.append(looks.buffers)
        assert pages[0] > DEAD / 20  # else this shows nothing
        assert pages[1] < 30

        if is_analyzed:  # as autovacuum does, whenever it likes
            postgres.sql(f"ANALYZE {tidy}.positions")
        _, (look,) = await explained(store.look([A]))
        accepted, plans = await explained(store.move(await due_moves(store)))
        assert accepted == (True,)
        assert {plan.statement: plan.buffers for plan in [look, *plans] if plan.buffers >= 60} == {}


def test_a_look_at_the_whole_that_took_long_is_not_repeated_soon() -> None:
    clock = SettableClock()
    one, now = Head(clock.monotonic), clock.now()
    one.advance(one.mark(), None, now, took=0.001)
    assert one.mark().place == START

    one.advance(one.mark(), None, now, took=0.1)
    assert one.mark().place == (now - LATE, "")
    clock.advance("1999ms")
    assert one.mark().place == (now - LATE, "")
    clock.advance("1ms")
    assert one.mark().place == START


def test_looks_begin_in_front_of_what_is_alive_and_of_what_was_announced() -> None:
    one, now = Head(lambda: 0.0), datetime.now(UTC)
    one.advance(one.mark(), now - HOUR, now, took=1.0)
    assert one.mark().place == (now - HOUR, "")

    one.pull(now)
    one.pull(None)
    assert one.mark().place == (now - HOUR, "")
    late = one.mark()
    one.pull(now - 2 * HOUR)
    assert one.mark().place < (now - 2 * HOUR, "")
    one.advance(late, None, now, took=0.1)  # it had begun before that was announced
    assert one.mark().place < (now - 2 * HOUR, "")
    one.advance(one.mark(), None, now, took=0.1)
    assert one.mark() == Mark((now - LATE, ""), 1)


@on_real_time
async def test_what_comes_up_in_front_of_the_mark_is_found(
    postgres: Server, tidy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(head, "LONG", -1.0)
    monkeypatch.setattr(head, "SHARE", 1_000_000)
    async with crowd(postgres, tidy) as those:
        store, other = await those.open(), await those.open()
        assert (await store.due(9)).looks == ()
        assert await store.move([added(due_since(A, plan(), HOUR / 2))]) == (True,)
        assert len((await store.due(9)).looks) == 1  # one's own
        await tick(store)

        assert (await store.due(9)).looks == ()
        assert await other.move([added(due_since(B, plan(), HOUR / 2))]) == (True,)
        assert (await store.due(9)).looks == ()
        monkeypatch.setattr(store._head, "_whole_at", 0.0)  # as after a while
        assert len((await store.due(9)).looks) == 1


# What is kept.


@on_real_time
async def test_names_are_sorted_as_python_does(postgres: Server, tidy: str) -> None:
    find = "SELECT table_name, column_name, collation_name FROM information_schema.columns WHERE table_schema = %s"
    found = {(table, column): collation for table, column, collation in postgres.sql(find, [tidy])}
    keys = [("schedules", "name"), ("positions", "schedule"), ("runs", "schedule")]
    assert {found[key] for key in keys} == {"C"}

    async with crowd(postgres, tidy) as those:
        store = await those.open()
        names = [Name("", name) for name in ("b", "Ba", "ä", "_", "a.b", "a-b", "Z")] + [Name("a", "b")]
        await store.move([added(due_since(name, plan())) for name in names])
        page = await store.list_schedules()
        assert [str(look.schedule.name) for look in page.looks] == sorted(map(str, names))
        assert [str(look.schedule.name) for look in (await store.due(99)).looks]


@on_real_time
async def test_whatever_an_error_or_an_owner_is_called_is_kept(postgres: Server, tidy: str) -> None:
    odd = "a\0b \ud800 'c' \\ %"
    async with crowd(postgres, tidy) as those:
        node = await those.node()
        store = node.store
        schedule = create(A, plan(Manual()), store.now(), owner="a\0b").after
        assert schedule
        assert await store.move([added(schedule)]) == (True,)
        assert len((await store.list_schedules(owner="a\0b")).looks) == 1
        now = store.now()
        assert await store.move([stepped(run_now(schedule, now, partial(new_id, now)))]) == (True,)
        error = AttemptError(type="ValueError", message=odd)
        assert await node.settle(await node.take(), Raised(error=error, retryable=False)) == [Verdict.ACCEPTED]

        (run,) = await runs_of(store)
        assert (run.state, run.error, run.owner) == (State.FAILED, f"ValueError: {odd}", "a\0b")


@pytest.mark.usefixtures("virtual_time")
async def test_what_is_past_its_time_is_pruned_a_little_at_a_time(postgres: Server, postgres_schema: str) -> None:
    clock = SettableClock()
    store = PostgresStore(postgres.dsn(), schema=postgres_schema, clock=clock)
    await store.open()
    try:
        schedule = create(A, plan(Manual(), keep_runs=HOUR), clock.now()).after
        assert schedule
        assert await store.move([added(schedule)]) == (True,)
        for _ in range(5):
            step = run_now(await schedule_of(store), clock.now(), partial(new_id, clock.now()))
            ended = [replace(run, state=State.SUCCEEDED, finished_at=clock.now()) for run in step.runs]
            assert await store.move([Move(before=step.before, after=step.after, runs=tuple(ended))]) == (True,)
        step = run_now(await schedule_of(store), clock.now(), partial(new_id, clock.now()))
        assert await store.move([stepped(step)]) == (True,)

        assert await store.prune(100) == 0
        clock.advance(HOUR)
        assert [await store.prune(2) for _ in range(4)] == [2, 2, 1, 0]
        assert [run.id for run in await runs_of(store)] == [step.runs[0].id]  # it is open
        assert postgres.sql(f"SELECT count(*) FROM {postgres_schema}.moved") == [(0,)]
    finally:
        await store.close()


# From where it comes, and who may use it.


@pytest.mark.usefixtures("virtual_time")
async def test_tables_of_before_schedules_are_migrated_with_their_jobs_and_rights(
    postgres: Server, new_schema: str
) -> None:
    role = f"test_worker_{uuid4().hex[:8]}"
    postgres.sql(f"CREATE ROLE {role} LOGIN")
    first = migrate.MIGRATIONS[0]
    with Verbs(postgres.dsn(), new_schema) as verbs:
        while verbs.run(migrate.migrate("a store", new_schema, (first,), days=0)):
            pass
    for one in migrate.grants(new_schema, role):
        postgres.sql(one)
    clock = SettableClock()
    old = PostgresStore(postgres.dsn(), schema=new_schema, clock=clock)
    assert ((await old.schema()).found, (await old.schema()).wanted) == (1, migrate.WANTED)
    postgres.sql(
        f"""
        INSERT INTO {new_schema}.jobs (
            id, lane, home, queue, task, priority, state, run_at, loss_limit, max_attempts, policy, enqueued_at, payload
        ) VALUES (gen_random_uuid(), 1, 1, 'q', 'mail.send', 50, 'ready', now(), 3, 3, '[0,0,0,0,0,1.0,0.0]', now(), '')
        """
    )
    try:
        await old.open()  # by whom the tables belong to
        await old.close()
        worker = PostgresStore(postgres.dsn(user=role), schema=new_schema, clock=clock)
        await worker.open()
        ((job,),) = postgres.sql(f"SELECT id FROM {new_schema}.jobs")
        (view,) = await worker.get([job])
        assert view
        assert not view.job.of_schedule

        schedule = replace(due_since(A, plan()), next_at=clock.now())
        assert await worker.move([added(schedule)]) == (True,)
        here = await schedule_of(worker)
        steps = [run_now(here, clock.now(), partial(new_id, clock.now()))]
        assert await worker.move([stepped(steps[0])]) == (True,)
        assert await worker.move([stepped(pause(await schedule_of(worker), clock.now()))]) == (True,)
        assert len(await runs_of(worker)) == 1
        await worker.prune(100)
        await worker.close()
    finally:
        postgres.sql(f"DROP OWNED BY {role}")
        postgres.sql(f"DROP ROLE {role}")


@on_real_time
async def test_a_move_wakes_others_who_watch_the_store(postgres: Server, tidy: str) -> None:
    async with crowd(postgres, tidy) as those:
        store, other = await those.open(), await those.open()
        rung = asyncio.Event()
        loop = asyncio.get_running_loop()

        def ring() -> None:
            loop.call_soon_threadsafe(rung.set)

        stop = other.watch(ring)
        await until_quiet(rung)
        for step in ("add", "fire", "pause"):
            if step == "add":
                await add(store)
            elif step == "fire":
                assert len(await tick(store)) == 1
            else:
                assert await store.move([stepped(pause(await schedule_of(store), store.now()))]) == (True,)
            await asyncio.wait_for(rung.wait(), SOON)
            await until_quiet(rung)
        assert await store.move([stepped(run_now(due_since(A, plan()), store.now(), uuid4))]) == (False,)
        await asyncio.sleep(0.2)  # nothing is sent, so there is nothing to wait for
        assert not rung.is_set()
        stop()


async def until_quiet(rung: asyncio.Event) -> None:
    """Wait until nobody has rung for a while."""
    await asyncio.sleep(0.3)
    while rung.is_set():
        rung.clear()
        await asyncio.sleep(0.3)
