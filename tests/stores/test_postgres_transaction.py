# ruff: noqa: S608 -- the names in these statements are the test's own
"""A handler's own transaction on PostgreSQL: whole or nothing, and not for ever."""

import asyncio
import threading
import time
from collections.abc import Iterator
from datetime import timedelta

import asyncpg
import psycopg
import pytest

from mainspring.core.job import State
from mainspring.core.outcome import Succeeded
from mainspring.core.unique import OnConflict, UniqueKey
from mainspring.errors import Conflict, DeclarationError, StoreError, StoreUnavailable, TransactionTooLong
from mainspring.stores.postgres import PostgresStore
from mainspring.stores.postgres.transaction import PostgresTransaction
from mainspring.testing import VirtualTime
from mainspring.testing.contract import SettableClock
from mainspring.testing.contract.world import SECOND, World
from tests.servers.postgres import Server
from tests.stores.postgres_world import PostgresHarness

LIMIT = 30 * SECOND


@pytest.fixture
def harness(postgres: Server, postgres_schema: str) -> PostgresHarness:
    return PostgresHarness(postgres, postgres_schema, SettableClock())


@pytest.fixture
def world(harness: PostgresHarness, virtual_time: VirtualTime) -> Iterator[World]:
    world = World(harness, harness._clock)
    world.store = virtual_time.run(world.open())
    harness.server.sql(f"CREATE TABLE {harness.schema}.mine (name text UNIQUE)")
    yield world
    virtual_time.run(world.close())


@pytest.fixture
def store(world: World) -> PostgresStore:
    assert isinstance(world.store, PostgresStore)
    return world.store


class Orders:
    """The user's table."""

    def __init__(self, server: Server, schema: str) -> None:
        self.server = server
        self.insert = f"INSERT INTO {schema}.mine VALUES ($1)"
        self._read = f"SELECT name FROM {schema}.mine ORDER BY 1"

    @property
    def names(self) -> list[str]:
        return [name for (name,) in self.server.sql(self._read)]


@pytest.fixture
def orders(harness: PostgresHarness, world: World) -> Orders:  # noqa: ARG001 -- the table has to be there
    return Orders(harness.server, harness.schema)


async def test_a_block_that_raises_leaves_nothing(world: World, store: PostgresStore, orders: Orders) -> None:
    lost = world.new()
    with pytest.raises(RuntimeError):
        async with store.transaction(limit=LIMIT) as tx:
            await tx.execute(orders.insert, ["lost"])
            await tx.enqueue([lost])
            raise RuntimeError("no")

    assert orders.names == []
    assert not await world.is_there(lost.id)


async def test_one_that_is_cancelled_leaves_nothing_and_holds_nothing(store: PostgresStore, orders: Orders) -> None:
    begun = asyncio.Event()

    async def handler() -> None:
        async with store.transaction(limit=LIMIT) as tx:
            await tx.execute(orders.insert, ["one"])
            begun.set()
            await asyncio.Event().wait()

    task = asyncio.ensure_future(handler())
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    async with store.transaction(limit=LIMIT) as tx:
        await tx.execute(orders.insert, ["one"])  # which waits for whoever has written the same

    assert orders.names == ["one"]


async def test_rows_come_as_plain_tuples(store: PostgresStore) -> None:
    async with store.transaction(limit=LIMIT) as tx:
        assert await tx.execute("SELECT $1::integer + 1, 'a'", [1]) == [(2, "a")]
        assert await tx.execute("SELECT WHERE false") == []


async def test_an_error_of_the_handlers_own_statement_is_its_own_and_the_next_use_says_what_it_means(
    store: PostgresStore, orders: Orders
) -> None:
    with pytest.raises(StoreError, match=r"an earlier statement has failed .* put a savepoint") as caught:
        async with store.transaction(limit=LIMIT) as tx:
            await tx.execute(orders.insert, ["one"])
            with pytest.raises(asyncpg.UniqueViolationError):
                await tx.execute(orders.insert, ["one"])
            await tx.execute(orders.insert, ["two"])

    assert isinstance(caught.value.__cause__, asyncpg.UniqueViolationError)
    assert orders.names == []


async def test_an_error_that_was_swallowed_is_told_at_the_end(store: PostgresStore, orders: Orders) -> None:
    """PostgreSQL itself answers such a COMMIT with a ROLLBACK, and calls it a success."""
    with pytest.raises(StoreError, match="a statement has failed, so that nothing of the transaction is kept"):
        async with store.transaction(limit=LIMIT) as tx:
            await tx.execute(orders.insert, ["one"])
            with pytest.raises(asyncpg.UniqueViolationError):
                await tx.execute(orders.insert, ["one"])

    assert orders.names == []


async def test_with_a_savepoint_of_its_own_the_handler_goes_on_after_an_error(
    store: PostgresStore, orders: Orders
) -> None:
    async with store.transaction(limit=LIMIT) as tx:
        await tx.execute(orders.insert, ["one"])
        await tx.execute("SAVEPOINT mine")
        with pytest.raises(asyncpg.UniqueViolationError):
            await tx.execute(orders.insert, ["one"])
        await tx.execute("ROLLBACK /* back */ TO mine")
        await tx.execute(orders.insert, ["two"])

    assert orders.names == ["one", "two"]


async def test_a_verb_of_ours_that_raises_leaves_none_of_itself(
    world: World, store: PostgresStore, orders: Orders
) -> None:
    unique = UniqueKey(key="one", on_conflict=OnConflict.RAISE)
    await world.enqueue(unique=unique)
    first, second, third = world.new(unique=UniqueKey(key="two")), world.new(unique=unique), world.new()
    async with store.transaction(limit=LIMIT) as tx:
        await tx.execute(orders.insert, ["kept"])
        with pytest.raises(Conflict):
            await tx.enqueue([first, second])
        await tx.enqueue([third])

    assert orders.names == ["kept"]
    assert [await world.is_there(job.id) for job in (first, second, third)] == [False, False, True]


@pytest.mark.parametrize(
    "word",
    [
        "COMMIT",
        "ROLLBACK",
        "rollback work",
        "ROLLBACK AND CHAIN",
        "END",
        "ABORT",
        "BEGIN",
        "START TRANSACTION",
        "PREPARE TRANSACTION 'mine'",
        "-- now\n /* or /* never */ */ commit;",
        "; COMMIT",
    ],
)
async def test_it_ends_with_its_block_and_not_before(store: PostgresStore, orders: Orders, word: str) -> None:
    with pytest.raises(RuntimeError):
        async with store.transaction(limit=LIMIT) as tx:
            await tx.execute(orders.insert, ["lost"])
            with pytest.raises(DeclarationError, match="leave out BEGIN, COMMIT and ROLLBACK"):
                await tx.execute(word)
            raise RuntimeError("no")

    assert orders.names == []


async def test_two_statements_in_one_are_refused(store: PostgresStore, orders: Orders) -> None:
    with pytest.raises(asyncpg.PostgresSyntaxError, match="multiple commands"):
        async with store.transaction(limit=LIMIT) as tx:
            await tx.execute(orders.insert, ["lost"])
            await tx.execute("SELECT 1; COMMIT")

    assert orders.names == []


async def test_after_its_block_it_cannot_be_used(store: PostgresStore) -> None:
    async with store.transaction(limit=LIMIT) as tx:
        pass
    with pytest.raises(DeclarationError, match="its block has ended"):
        await tx.execute("SELECT 1")


async def test_it_belongs_to_the_loop_that_opened_it(store: PostgresStore) -> None:
    async with store.transaction(limit=LIMIT) as tx:
        with pytest.raises(DeclarationError, match="belongs to another event loop"):
            await asyncio.to_thread(asyncio.run, tx.execute("SELECT 1"))


async def test_what_is_asked_at_once_is_done_in_turn(world: World, store: PostgresStore, orders: Orders) -> None:
    new = [world.new() for _ in range(5)]
    async with store.transaction(limit=LIMIT) as tx:
        await asyncio.gather(
            *(tx.execute(orders.insert, [str(number)]) for number in range(5)), *(tx.enqueue([job]) for job in new)
        )
        left = asyncio.ensure_future(tx.execute("SELECT pg_sleep(0.05)"))
        await asyncio.sleep(0)
    await left

    assert orders.names == ["0", "1", "2", "3", "4"]
    assert all([await world.is_there(job.id) for job in new])


async def test_what_it_leaves_in_the_session_goes_with_it(store: PostgresStore) -> None:
    for _ in range(2):
        async with store.transaction(limit=LIMIT) as tx:
            await tx.execute("CREATE TEMPORARY TABLE mine (number integer)")
    async with store.transaction(limit=LIMIT) as tx:
        await tx.execute("SET statement_timeout = 1234")
    async with store.transaction(limit=LIMIT) as tx:
        await tx.execute("SET LOCAL statement_timeout = 4321")
        before = await tx.execute("SELECT pg_backend_pid()")
    async with store.transaction(limit=LIMIT) as tx:
        assert await tx.execute("SELECT pg_backend_pid()") == before  # that was no reason to part with it
        ((timeout,),) = await tx.execute("SHOW statement_timeout")
    assert timeout not in {"1234ms", "4321ms"}


async def test_a_commit_rings(store: PostgresStore, world: World) -> None:
    rung = threading.Event()
    async with store.transaction(limit=LIMIT) as tx:
        await tx.enqueue([world.new()])
        end = store.watch(rung.set)
    assert await asyncio.to_thread(rung.wait, 10)
    end()


async def test_it_can_be_given_wherever_a_transaction_of_the_users_can(
    store: PostgresStore, world: World, harness: PostgresHarness
) -> None:
    claim = await world.running(await world.node())
    child = world.new()
    async with store.transaction(limit=LIMIT) as tx:
        await store.enqueue_in(tx, [child])
        assert not store.blocks(tx)
        assert (await store.settle_in(tx, world.settlement(claim, Succeeded()))).accepted
        with pytest.raises(DeclarationError, match="PostgresTransaction cannot be joined"):
            store.enqueue_in_sync(tx, [world.new()])
        stranger = PostgresStore(harness.server.dsn(), schema="other", clock=world.clock)
        with pytest.raises(DeclarationError, match="a transaction of another store"):
            await stranger.enqueue_in(tx, [world.new()])
        assert isinstance(tx, PostgresTransaction)

    assert await world.is_there(child.id)
    assert (await world.job(claim.job.id)).state is State.SUCCEEDED


# Time, which is the real one here: a transaction is over when others would have waited too long for it.

SHORT = timedelta(milliseconds=200)


async def test_one_that_is_used_after_its_limit_is_told(store: PostgresStore, orders: Orders) -> None:
    with pytest.raises(TransactionTooLong, match=r"more than 0\.2 s"):
        async with store.transaction(limit=SHORT) as tx:
            await tx.execute(orders.insert, ["lost"])
            await asyncio.to_thread(time.sleep, 0.3)
            await tx.execute(orders.insert, ["lost too"])
    with pytest.raises(TransactionTooLong):
        await tx.execute("SELECT 1")

    assert orders.names == []


async def test_one_that_comes_to_its_end_too_late_is_not_committed(store: PostgresStore, orders: Orders) -> None:
    with pytest.raises(TransactionTooLong):
        async with store.transaction(limit=SHORT) as tx:
            await tx.execute(orders.insert, ["lost"])
            await asyncio.to_thread(time.sleep, 0.3)

    assert orders.names == []


async def test_its_time_is_looked_at_even_where_no_timer_could_fire(
    store: PostgresStore, orders: Orders, world: World
) -> None:
    with pytest.raises(TransactionTooLong):
        async with store.transaction(limit=LIMIT) as tx:
            await tx.execute(orders.insert, ["lost"])
            world.clock.advance(LIMIT)
    with pytest.raises(TransactionTooLong):
        async with store.transaction(limit=LIMIT) as tx:
            world.clock.advance(LIMIT)
            await tx.execute(orders.insert, ["lost"])

    assert orders.names == []


async def test_a_statement_that_does_not_end_is_left_to_itself(store: PostgresStore, orders: Orders) -> None:
    with pytest.raises(TransactionTooLong):
        async with store.transaction(limit=SHORT) as tx:
            await tx.execute(orders.insert, ["lost"])
            await tx.execute("SELECT pg_sleep(60)")

    async with store.transaction(limit=LIMIT) as tx:
        await tx.execute(orders.insert, ["lost"])  # waits for the server to notice, which it does within two seconds


def test_a_handler_that_never_comes_back_loses_its_locks(
    postgres: Server, orders: Orders, harness: PostgresHarness
) -> None:
    """Even though it blocks the event loop, on which no timer can fire: here for as long as it takes."""

    async def story() -> float:
        store = PostgresStore(postgres.dsn(), schema=harness.schema)
        await store.open()
        began = time.monotonic()
        with pytest.raises(TransactionTooLong):
            async with store.transaction(limit=SHORT) as tx:
                await tx.execute(orders.insert, ["one"])
                with psycopg.connect(postgres.dsn()) as other:  # waits, and blocks the loop
                    other.execute(orders.insert.replace("$1", "'one'").encode())
        waited = time.monotonic() - began
        await store.close()
        return waited

    assert 0.2 <= asyncio.run(story()) < 30
    assert orders.names == ["one"]


async def test_a_connection_that_is_lost_is_told_as_trouble_that_passes(store: PostgresStore, orders: Orders) -> None:
    with pytest.raises(StoreUnavailable):
        async with store.transaction(limit=LIMIT) as tx:
            await tx.execute(orders.insert, ["lost"])
            await tx.execute("SELECT pg_terminate_backend(pg_backend_pid())")
    async with store.transaction(limit=LIMIT) as tx:
        await tx.execute(orders.insert, ["kept"])

    assert orders.names == ["kept"]


async def test_a_constraint_that_is_looked_at_with_the_commit_is_the_handlers_own_affair(
    store: PostgresStore, harness: PostgresHarness
) -> None:
    table = f"{harness.schema}.later"
    harness.server.sql(f"CREATE TABLE {table} (number integer UNIQUE DEFERRABLE INITIALLY DEFERRED)")
    with pytest.raises(asyncpg.UniqueViolationError):
        async with store.transaction(limit=LIMIT) as tx:
            await tx.execute(f"INSERT INTO {table} VALUES (1), (1)")

    async with store.transaction(limit=LIMIT) as tx:
        assert await tx.execute(f"SELECT * FROM {table}") == []
