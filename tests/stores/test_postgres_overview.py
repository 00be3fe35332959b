"""Looking at a PostgreSQL store as a whole: the same is found as in memory, in time, whatever is in the way."""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TypeVar
from uuid import UUID, uuid4

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mainspring.core import machine
from mainspring.core.backoff import Backoff
from mainspring.core.command import CancelJob
from mainspring.core.job import Cause, JobId, NodeId, State
from mainspring.core.names import Name
from mainspring.core.outcome import AttemptError, NoSuchTask, Outcome, Raised, Snoozed, Succeeded
from mainspring.errors import StoreUnavailable
from mainspring.stores.memory import MemoryStore
from mainspring.stores.overview import Argument, EntryFilter, NewEntry, Overview, Search, Tally
from mainspring.stores.port import Store
from mainspring.stores.postgres import PostgresStore, migrate, search, streams
from mainspring.stores.postgres.statements import Statement
from mainspring.stores.postgres.verb import Ask, Verb
from mainspring.stores.records import ClaimRequest, Facts, NewJob, NodeRecord, Process, Settlement
from mainspring.testing.contract import SettableClock
from tests.servers.pgbouncer import Pooler
from tests.servers.postgres import Server
from tests.servers.system import PATIENCE
from tests.servers.wire import Wire
from tests.stores.postgres_crowd import FATAL, Crowd, Node, crowd, empty, lasting_schema, new
from tests.stores.postgres_filled import fill, leave_alone
from tests.stores.postgres_staged import Plan, explained, staged
from tests.stores.postgres_verbs import Verbs
from tests.stores.postgres_wires import on_real_time, until_asleep

T = TypeVar("T")

SECOND = timedelta(seconds=1)
START = datetime(2030, 1, 1, tzinfo=UTC)
TASKS = [Name("", "mail.send"), Name("", "mail.read"), Name("photos", "resize")]
QUEUES = ["default", "mail"]
KEYS = [None, "a", "b"]
TAGS = ["a", "ab"]


@pytest.fixture(scope="module")
def schema(postgres: Server) -> Iterator[str]:
    with lasting_schema(postgres) as name:
        yield name


@pytest.fixture
def clean(postgres: Server, schema: str) -> str:
    empty(postgres, schema)
    return schema


# The same is found as in memory.


OUTCOMES: list[Outcome | None] = [
    None,
    Succeeded(),
    Raised(error=AttemptError(type="ValueError", message="no such User")),
    Raised(error=AttemptError(type="KeyError", message="user"), retryable=False),
    NoSuchTask(),
    Snoozed(delay=timedelta(hours=1)),
]


@dataclass(frozen=True)
class Told:
    """A job, and what becomes of it."""

    new: NewJob
    is_claimed: bool
    outcome: Outcome | None
    is_cancelled: bool


@st.composite
def stories(draw: st.DrawFn) -> list[Told]:
    ids = draw(st.lists(st.integers(1, 60), unique=True, max_size=25))
    some = st.sampled_from
    return [
        Told(
            NewJob(
                id=JobId(UUID(int=id_ << 80 | id_)),
                task=draw(some(TASKS)),
                queue=draw(some(QUEUES)),
                key=draw(some(KEYS)),
                payload=draw(some([b'{"args":{"a":1}}', b'{"args":{"a":[1,{"b":null}]}}', b"{}"])),
                backoff=Backoff.fixed("10s"),
                max_attempts=3,
                run_at=draw(some([timedelta(0), timedelta(hours=1)])),
                facts=Facts(tags=tuple(draw(st.lists(some(TAGS), unique=True))), owner="ab"),
            ),
            draw(st.booleans()),
            draw(some(OUTCOMES)),
            draw(st.integers(0, 4)) == 0,
        )
        for id_ in ids
    ]


def searches() -> st.SearchStrategy[Search]:
    def maybe(*values: T) -> st.SearchStrategy[T | None]:
        return st.none() | st.none() | st.sampled_from(values)

    began = START
    return st.builds(
        Search,
        states=st.lists(st.sampled_from(State), unique=True, max_size=3).map(tuple),
        queue=maybe(*QUEUES),
        task=maybe(*TASKS),
        key=maybe("a", "b"),
        tag=maybe(*TAGS),
        cause=maybe(Cause.REFUSED, Cause.UNKNOWN_TASK),
        node=maybe(NodeId("node")),
        since=maybe(began + 5 * SECOND),
        until=maybe(began + 9 * SECOND),
        error=maybe("USER", "key"),
        argument=maybe(
            Argument(path=("a",)), Argument(path=("a", "1", "b"), value=b"null"), Argument(path=("a",), value=b"1.0")
        ),
    )


async def tell(store: Store, story: Sequence[Told], clock: SettableClock) -> None:
    """Have it all happen, a second apart."""
    process = Process(host="here", pid=1, started="today")
    term = await store.join(NodeRecord(id=NodeId("node"), process=process, tasks=frozenset(TASKS)))
    for one in story:
        clock.advance(SECOND)
        await store.enqueue([one.new])
        if one.is_cancelled:
            (view,) = await store.get([one.new.id])
            assert view
            await store.settle([Settlement(change=machine.command(view.job, CancelJob(), clock.now()))])
        elif one.is_claimed:
            request = ClaimRequest(node=NodeId("node"), term=term, tasks=frozenset(TASKS), room=1)
            for delivery in (await store.claim(request)).deliveries:
                outcome = {each.new.id: each.outcome for each in story}[delivery.claim.job.id]
                if outcome is not None:
                    change = machine.decide(delivery.claim, outcome, clock.now(), 0.5)
                    await store.settle([Settlement(change=change, by=NodeId("node"))])


async def found(store: Overview, which: Search, limit: int, budget: timedelta) -> list[JobId]:
    """Go on until there is nothing older."""
    ids: list[JobId] = []
    after: JobId | None = None
    for _ in range(1000):
        page = await store.search(which, limit=limit, after=after, budget=budget)
        ids += [view.job.id for view in page.jobs]
        if page.after is None:
            return ids
        after = page.after
    raise AssertionError("it never ends")


SMALL = {"FIRST": 2, "LONGEST": 4, "FEW": 3}


@pytest.fixture
def in_small_steps() -> Iterator[None]:
    """Of few jobs, have walks take several statements, and tasks and queues have too many waiting jobs to sort."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in SMALL.items():
            patch.setattr(streams, name, value)
        patch.setattr(search, "AT_ONCE", 3)
        yield


@pytest.mark.usefixtures("in_small_steps")
@settings(max_examples=60, deadline=None)
@given(
    story=stories(),
    asked=st.lists(
        st.tuples(searches(), st.integers(1, 9), st.sampled_from([SECOND, 0 * SECOND])), min_size=8, max_size=8
    ),
)
def test_the_same_is_found_as_in_memory(
    postgres: Server, schema: str, story: list[Told], asked: list[tuple[Search, int, timedelta]]
) -> None:
    async def compare() -> None:
        clocks = SettableClock(START), SettableClock(START)
        memory = MemoryStore(clocks[0])
        other = PostgresStore(postgres.dsn(), schema=schema, clock=clocks[1], listen=False)
        await memory.open()
        await other.open()
        try:
            await tell(memory, story, clocks[0])
            await tell(other, story, clocks[1])
            for which, limit, budget in asked:
                wanted = await found(memory, which, limit, budget)
                assert await found(other, which, limit, budget) == wanted, which
            assert (await other.census(START)).counts == (await memory.census(START)).counts
        finally:
            await other.close()

    empty(postgres, schema)
    asyncio.run(compare())


# What a search reads.


@pytest.fixture(scope="module")
def filled(postgres: Server) -> Iterator[str]:
    """Twenty thousand jobs, half of them finished, over the tables of many days; nobody has analyzed them."""
    with lasting_schema(postgres) as name:
        leave_alone(postgres, name)
        fill(postgres, name, 10_000)
        yield name


def rows_of(plans: Sequence[Plan]) -> dict[str, int]:
    """Say how many rows of jobs and history each statement has read."""
    read: dict[str, int] = {}
    for plan in plans:
        for node in plan:
            if str(node.get("Relation Name", "")).startswith(("jobs", "history")):
                rows = (node.get("Actual Rows") + node.get("Rows Removed by Filter", 0)) * node.get("Actual Loops")
                read[plan.statement] = read.get(plan.statement, 0) + round(rows)
    return read


@pytest.mark.parametrize(
    ("which", "statement", "most"),
    [
        (Search(key="nobody"), "search_by_key", 50),
        (Search(states=(State.FAILED,), task=Name("", "none"), queue="none"), "search_kind", 0),
        (Search(task=Name("", "none")), "search_kinds", 600),
        (Search(task=Name("", "none")), "search_waiting", 2000),
        (Search(states=(State.CANCELLED,)), "search_cancelled", 0),
        (Search(states=(State.RETRYING,)), "search_retrying", 0),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
@on_real_time
async def test_what_is_not_there_is_not_looked_for_everywhere(
    postgres: Server, filled: str, which: Search, statement: str, most: int
) -> None:
    async with crowd(postgres, filled) as some:
        store = await some.open()
        answer, plans = await explained(store.search(which, limit=50, budget=20 * SECOND))

        assert answer.jobs == ()
        assert answer.after is None
        read = rows_of(plans)
        assert read[statement] <= most
        assert read.get("search_active", 0) + read.get("search_history", 0) <= 2 * (streams.FIRST + 20)


@on_real_time
async def test_a_walk_reads_no_more_than_its_window_of_each_table(postgres: Server, filled: str) -> None:
    async with crowd(postgres, filled) as some:
        store = await some.open()
        _, plans = await explained(store.search(Search(node=NodeId("nobody")), budget=20 * SECOND))

        walks = [rows_of([plan]) for plan in plans if plan.statement in {"search_active", "search_history"}]
        assert len(walks) > 6
        # One more row of each day's table is read, to know which is next.
        assert max(sum(read.values()) for read in walks) <= streams.LONGEST + 20


@on_real_time
async def test_a_census_counts_in_the_index_and_no_more_than_most(
    postgres: Server, filled: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mainspring.stores.postgres.census.MOST", 100)
    async with crowd(postgres, filled) as some:
        store = await some.open()
        census, plans = await explained(store.census(datetime.now(UTC), budget=20 * SECOND))

        assert max(count.due for count in census.counts) == 100
        lines = 4  # two tasks, two priorities
        assert rows_of(plans)["census_count"] <= lines * 2 * (200 + 1)


# In time.


@on_real_time
async def test_a_statement_that_takes_too_long_is_cut_off_and_the_rest_is_told(postgres: Server, clean: str) -> None:
    async with crowd(postgres, clean) as some:
        node = await some.node()
        await node.store.enqueue([new() for _ in range(600)])
        await node.settle(await node.take(3), FATAL)
        first = await node.store.search(Search(), limit=20)

        async def lock() -> None:
            await blocker.execute("BEGIN")
            await blocker.execute(f"LOCK TABLE {clean}.history IN ACCESS EXCLUSIVE MODE")

        async with some.connection() as blocker:
            which = Search(error="nothing like it")
            async with asyncio.timeout(PATIENCE):  # it would wait for as long as the lock is held
                cut = await staged(node.store.search(which, budget=0.3 * SECOND), after_search_history=lock)
            await blocker.execute("ROLLBACK")

        assert not cut.in_time
        assert cut.after is not None
        assert cut.looked > 0
        assert (await node.store.search(Search(), limit=20)) == first
        assert (await node.store.search(which, after=cut.after)).after is None


@on_real_time
async def test_a_first_statement_that_is_cut_off_is_no_trouble(postgres: Server, clean: str) -> None:
    async with crowd(postgres, clean) as some:
        store = await some.open()
        await store.enqueue([new()])
        async with some.connection() as blocker:
            await blocker.execute("BEGIN")
            await blocker.execute(f"LOCK TABLE {clean}.jobs IN ACCESS EXCLUSIVE MODE")
            found = await store.search(Search(), budget=0.1 * SECOND)
            census = await store.census(store.now(), budget=0.1 * SECOND)
            await blocker.execute("ROLLBACK")

        assert (found.jobs, found.looked, found.in_time, found.back_to) == ((), 0, False, None)
        assert len((await store.search(Search(), after=found.after)).jobs) == 1
        assert (census.counts, census.complete) == ((), False)


@on_real_time
async def test_a_census_that_is_begun_anew_counts_nothing_twice(postgres: Server, clean: str) -> None:
    async with crowd(postgres, clean) as some:
        store = await some.open()
        await store.enqueue([new() for _ in range(7)])

        async def lose() -> None:
            await some.sql(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE datname = current_database() AND pid <> pg_backend_pid() AND application_name = 'mainspring'"
            )

        census = await staged(store.census(store.now(), budget=5 * SECOND), before_census_count=lose)
        assert [count.due for count in census.counts] == [7]
        assert census.complete


@on_real_time
async def test_no_answer_at_all_is_trouble_that_comes_in_time_and_costs_one_connection(
    postgres: Server, clean: str
) -> None:
    with Wire.to(postgres) as wire:
        store = PostgresStore(wire.dsn(), schema=clean, listen=False, timeout="600s", patience="600s")
        await store.open()
        try:
            await store.enqueue([new() for _ in range(10)])
            wire.hang(answers_only=True)
            for verb in (store.search(Search(), budget=0.2 * SECOND), store.census(store.now(), budget=0.2 * SECOND)):
                async with asyncio.timeout(PATIENCE):  # a tenth of what a statement may take elsewhere
                    with pytest.raises(StoreUnavailable):
                        await verb
            wire.heal()
            assert len((await store.search(Search(), budget=30 * SECOND)).jobs) == 10
        finally:
            await store.close()


@on_real_time
async def test_a_slow_census_says_what_it_has(postgres: Server, clean: str) -> None:
    async with crowd(postgres, clean) as some:
        store = await some.open()
        await store.enqueue([new(Name("", f"task-{number}")) for number in range(60)])

        async def wait() -> None:
            await asyncio.sleep(0.3)

        census = await staged(store.census(store.now(), budget=0.2 * SECOND), after_census_count=wait)
        assert not census.complete
        assert 0 < len(census.counts) < 60
        assert {one.due for one in census.counts} == {1}


@on_real_time
async def test_what_is_new_is_told_by_its_pace_where_there_is_much_of_it(
    postgres: Server, clean: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mainspring.stores.postgres.census._FIRST", 10)
    monkeypatch.setattr("mainspring.stores.postgres.census._LAST", 40)
    async with crowd(postgres, clean) as some:
        store = await some.open()
        await store.enqueue([new() for _ in range(400)])
        await some.sql(
            "UPDATE mainspring.jobs SET enqueued_at = now() - make_interval(secs => 100 - place / 4.0)"
            " FROM (SELECT id AS job, row_number() OVER (ORDER BY id) AS place FROM mainspring.jobs) AS placed"
            " WHERE id = job"
        )
        census = await store.census(store.now() - timedelta(seconds=100))

        assert 250 <= census.enqueued <= 550


# A job that moves meanwhile.


@on_real_time
async def test_a_job_that_finishes_meanwhile_is_found_once(postgres: Server, clean: str) -> None:
    async with crowd(postgres, clean) as some:
        node = await some.node()
        await node.store.enqueue([new() for _ in range(5)])
        running = await node.take(5)

        async def finish() -> None:
            await node.settle(running)

        page = await staged(node.store.search(Search()), after_search_active=finish)
        assert [view.job.id for view in page.jobs] == sorted((one.claim.job.id for one in running), reverse=True)
        assert {view.job.state for view in page.jobs} == {State.SUCCEEDED}


# Limits of queues.


@on_real_time
async def test_a_limit_holds_for_many_who_claim_while_it_changes(postgres: Server, clean: str) -> None:
    async with crowd(postgres, clean) as some:
        nodes = [await some.node() for _ in range(4)]
        await nodes[0].store.enqueue([new() for _ in range(300)])
        most, running, done = [9], set[UUID](), 0

        async def work(node: Node) -> None:
            nonlocal done
            while done < 300:
                allowed = max(most)  # a claim that began under the old limit may end under the new one
                mine = await node.take(3)
                running.update(one.claim.job.id for one in mine)
                assert not mine or len(running) <= max(allowed, *most)
                await asyncio.sleep(0)
                running.difference_update(one.claim.job.id for one in mine)
                await node.settle(mine)
                done += len(mine)

        async def change() -> None:
            turn = 0
            while done < 300:
                limit = (2, 9, 4, 1)[turn % 4]
                most.append(limit)
                await nodes[turn % 4].store.limit_queue("default", limit)
                await asyncio.sleep(0.02)
                most[:] = [limit]
                turn += 1

        await nodes[0].store.limit_queue("default", 9)
        await asyncio.gather(*map(work, nodes), change())
        assert done == 300
        assert await some.sql("SELECT * FROM mainspring.places") == []


@on_real_time
async def test_however_many_search_everything_else_goes_on_and_none_of_them_is_turned_away(
    postgres: Server, clean: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_over = asyncio.Event()

    def slow(looking: search.Looking) -> Verb[None]:
        while not is_over.is_set():
            yield Ask(Statement("sleep", "SELECT pg_sleep(0.02)"))
        looking.is_answered = looking.is_over = True

    monkeypatch.setattr(search, "search", slow)
    async with crowd(postgres, clean) as some:
        store = await some.open()
        searches = [asyncio.create_task(store.search(Search(), budget=600 * SECOND)) for _ in range(12)]
        await until_asleep(postgres)
        await asyncio.wait_for(store.nodes(), PATIENCE)

        is_over.set()
        assert all(found.after is None for found in await asyncio.gather(*searches))


@on_real_time
async def test_older_code_leaves_a_limit_alone(postgres: Server, clean: str) -> None:
    """It sets a gate by the columns that it knows."""
    async with crowd(postgres, clean) as some:
        store = await some.open()
        await store.limit_queue("default", 2, by="me")
        await some.sql(
            "INSERT INTO mainspring.gates (scope, name, concurrency) VALUES ('queue', 'default', 7)"
            " ON CONFLICT (scope, name) DO UPDATE SET concurrency = excluded.concurrency"
        )
        (rule,) = await store.queue_rules()

        assert (rule.declared, rule.limit, rule.by) == (7, 2, "me")


# What was there before.


@on_real_time
async def test_tables_of_the_version_before_are_searched_like_any_other(postgres: Server) -> None:
    with postgres.schema() as schema, Verbs(postgres.dsn(), schema) as verbs:
        for number in range(1, 5):
            verbs.run(migrate.migrate("a store", schema, migrate.MIGRATIONS[:number], days=3))
        fill(postgres, schema, 1000, old=True)
        verbs.sql(
            "UPDATE mainspring.nodes SET alive = false, died_at = now()"
        )  # older code would hold up the migration
        async with crowd(postgres, schema) as some:
            store = await some.open()

            async def count(which: Search) -> int:
                return len(await found(store, which, 200, SECOND))

            assert (await store.schema()).found == migrate.WANTED
            assert await count(Search()) == 2000
            assert await count(Search(states=(State.FAILED,))) == 10
            assert await count(Search(task=TASKS[0], queue="default")) == 2000
            assert await count(Search(task=TASKS[1])) == 0
            assert [rule.declared for rule in await store.queue_rules()] == [100_000]


# Who looks.


async def everything(store: PostgresStore) -> None:
    """Do all that there is to do with a store as a whole."""
    node = await Crowd.node(Crowd.__new__(Crowd), store)
    jobs = [new(key="a", queue="mail") for _ in range(3)]
    await store.enqueue(jobs)
    await node.settle(await node.take(1), FATAL)
    for which in (Search(), Search(key="a"), Search(task=jobs[0].task), Search(queue="mail"), Search(error="none")):
        page = await store.search(which, limit=2)
        assert len(page.jobs) == (0 if which.error else 2)
    (failed,) = (await store.search(Search(states=(State.FAILED,), error="VALUE"))).jobs
    assert failed.error
    (count,) = (await store.census(store.now() - SECOND)).counts
    assert (count.due, count.running) == (2, 0)
    at = datetime(2030, 1, 1, tzinfo=UTC)
    await store.write_tallies([Tally(at=at, span=SECOND, by="me", body=b"1")], drop=(SECOND, at))
    assert len(await store.tallies(SECOND, at)) == 1
    await store.report(node.id, node.term, b"well")
    assert (await store.reports())[node.id].body == b"well"
    await store.write_audit([NewEntry(who="me", action="jobs.retry")])
    assert len((await store.audit(EntryFilter(who="me"))).entries) == 1
    assert await store.limit_queue("mail", 1)
    assert len(await node.take(9)) == 1
    assert [rule.limit for rule in await store.queue_rules()] == [1]
    await store.prune(100)


@on_real_time
async def test_a_role_that_may_only_read_and_write_rows_can_do_all_of_it(postgres: Server, clean: str) -> None:
    role = f"test_looker_{uuid4().hex[:8]}"
    postgres.sql(f"CREATE ROLE {role} LOGIN")
    try:
        for one in migrate.grants(clean, role):
            postgres.sql(one)
        store = PostgresStore(postgres.dsn(user=role), schema=clean, listen=False)
        await store.open()
        await everything(store)
        await store.close()
    finally:
        postgres.sql(f"DROP OWNED BY {role}")
        postgres.sql(f"DROP ROLE {role}")


@pytest.mark.needs("pgbouncer")
@on_real_time
async def test_all_of_it_works_through_a_pooler(own_postgres: Server) -> None:
    with own_postgres.schema() as schema, Pooler(own_postgres, size=3) as pooler:
        store = PostgresStore(pooler.dsn(), schema=schema, connections=3, listen=False)
        await store.open()
        try:
            await everything(store)
            async with asyncio.timeout(PATIENCE):
                await asyncio.gather(*(store.search(Search(error="none"), budget=0 * SECOND) for _ in range(10)))
            ((left,),) = own_postgres.sql(
                "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() "
                "AND state LIKE 'idle in transaction%'"
            )
            assert left == 0
        finally:
            await store.close()
