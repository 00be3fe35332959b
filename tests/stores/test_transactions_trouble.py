"""What goes wrong in transactions of the user's own, on PostgreSQL, and who waits for whom."""

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import closing

import psycopg
import pytest

from mainspring.core.unique import OnConflict, UniqueKey
from mainspring.errors import Conflict, DeclarationError, StoreError, StoreUnavailable
from mainspring.stores.postgres.statements import qualified
from mainspring.stores.postgres.verb import Verb
from mainspring.stores.transactions.postgres import run_in
from tests.servers.postgres import Server
from tests.stores.place import Place, ask, every_driver, join, join_sync, new
from tests.stores.ways import Way

WAITING = "SELECT query FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"

pytestmark = pytest.mark.usefixtures("virtual_time")


@pytest.fixture(scope="module")
def tables(postgres: Server) -> Iterator[Place]:
    with postgres.schema() as schema, closing(Place(postgres, schema)) as place:
        yield place


@pytest.fixture
def there(tables: Place) -> Iterator[Place]:
    """The store; nothing is in it."""
    yield tables
    tables.clear()


@every_driver
async def test_a_conflict_leaves_the_users_transaction_as_it_was(there: Place, way: Way) -> None:
    unique = UniqueKey(key="one", on_conflict=OnConflict.RAISE)
    holder, first, second, third = new(unique), new(UniqueKey(key="two")), new(unique), new()
    async with way(there.dsn) as user:
        await join(there, user, [holder])
        await user.commit()
    async with way(there.dsn) as user:
        await user.run(there.write(1))
        with pytest.raises(Conflict):
            await join(there, user, [first, second], whole=True)
        await user.run(there.write(2))
        assert await join(there, user, [third], whole=True) == [True]
        await user.commit()

    assert there.jobs == [holder.id, third.id]
    assert there.numbers == [1, 2]


@every_driver
async def test_what_the_database_refuses_is_told_as_the_port_says(there: Place, way: Way) -> None:
    """A lock that is held for too long passes; and a verb that was whole has left the transaction in order."""
    holds = psycopg.connect(there.dsn)
    holds.execute(qualified("LOCK TABLE mainspring.jobs", there.schema).encode())
    async with way(there.dsn) as user:
        await user.run(there.write(1))
        await user.run("SET LOCAL lock_timeout = 50")
        with pytest.raises(StoreUnavailable, match="somebody holds a lock for too long"):
            await join(there, user, [new()], whole=True)
        await user.run(there.write(2))
        with pytest.raises(StoreUnavailable):
            await join(there, user, [new()])
        with pytest.raises(DeclarationError, match="an earlier statement has failed"):
            await join(there, user, [new()])
        await user.rollback()
    holds.close()

    assert there.numbers == []


@every_driver
async def test_a_connection_that_is_lost_amid_a_verb_is_told_as_trouble_that_passes(there: Place, way: Way) -> None:
    def breaks_off() -> Verb[None]:
        yield ask("SELECT pg_terminate_backend(pg_backend_pid())")

    async with way(there.dsn) as user:
        with pytest.raises(StoreUnavailable):
            await run_in(user.handle, breaks_off(), there.settings, there.identity, whole=True)


@every_driver
async def test_an_error_of_ours_is_told_without_the_users_data(there: Place, way: Way) -> None:
    def fails() -> Verb[None]:
        yield ask("SELECT $1::text::integer", "secret")

    async with way(there.dsn) as user:
        with pytest.raises(StoreError, match="invalid input syntax") as caught:
            await run_in(user.handle, fails(), there.settings, there.identity)

    assert type(caught.value) is StoreError
    assert "SELECT" not in str(caught.value)


@every_driver
async def test_two_who_enqueue_into_the_same_lane_do_not_wait_for_each_other(there: Place, way: Way) -> None:
    first, second = new(), new()
    async with way(there.dsn) as one, way(there.dsn) as other:
        await join(there, one, [first])
        await other.run("SET LOCAL statement_timeout = '5s'")
        await join(there, other, [second])
        await other.commit()
        assert there.jobs == [second.id]
        await one.commit()

    assert there.jobs == [first.id, second.id]


@pytest.mark.parametrize("commits", [True, False], ids=["commits", "rolls back"])
@every_driver
async def test_who_wants_a_unique_key_waits_for_whoever_may_get_it(there: Place, way: Way, commits: bool) -> None:
    unique = UniqueKey(key="one")
    first, second = new(unique), new(unique)
    answers: list[bool] = []

    def want() -> None:
        with psycopg.connect(there.dsn) as connection:
            answers.extend(join_sync(there, connection, [second]))

    thread = threading.Thread(target=want)
    async with way(there.dsn) as user:
        await join(there, user, [first])
        thread.start()
        await asyncio.to_thread(wait_until_somebody_waits, there)
        assert answers == []
        await (user.commit() if commits else user.rollback())
    await asyncio.to_thread(thread.join)

    assert answers == [not commits]
    assert there.jobs == [first.id if commits else second.id]


def wait_until_somebody_waits(there: Place) -> None:
    end = time.monotonic() + 20
    while not any(there.schema in query for (query,) in there.rows(WAITING)):
        assert time.monotonic() < end, "nobody waits"


@pytest.mark.parametrize("isolation", ["REPEATABLE READ", "SERIALIZABLE"])
async def test_a_stricter_transaction_that_comes_too_late_is_told_as_trouble_that_passes(
    there: Place, isolation: str
) -> None:
    unique = UniqueKey(key="one")
    first, second = new(unique), new(unique)
    with psycopg.connect(there.dsn) as one, psycopg.connect(there.dsn) as other:
        one.isolation_level = psycopg.IsolationLevel[isolation.replace(" ", "_")]
        one.execute("SELECT 1 FROM pg_class LIMIT 1")  # takes its snapshot
        assert join_sync(there, other, [first]) == [True]
        other.commit()
        with pytest.raises(StoreUnavailable):
            join_sync(there, one, [second])
        one.rollback()
        assert join_sync(there, one, [second]) == [False]

    assert there.jobs == [first.id]
