# ruff: noqa: S608 -- the names of tables that tests make up
"""The PostgreSQL store's own connections: reused, bounded, given up when they hang, and replaced when they are lost."""

import asyncio
import gc
import logging
import multiprocessing
import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import asyncpg
import pytest

from mainspring.errors import (
    Conflict,
    DeclarationError,
    StoreClosed,
    StoreError,
    StoreUnavailable,
    TransactionTooLong,
)
from mainspring.stores.postgres.connect import connect
from mainspring.stores.postgres.connections import REPEATS, Connections
from mainspring.stores.postgres.shelf import Shelf
from mainspring.stores.postgres.statements import Statement
from mainspring.stores.postgres.verb import Ask, Verb
from mainspring.testing import VirtualTime
from tests.servers.postgres import Server, new_server
from tests.servers.system import PATIENCE, free_port, wait_until
from tests.servers.wire import Wire
from tests.stores.postgres_wires import (
    ask,
    asleep,
    backend,
    lines,
    on_real_time,
    one,
    opened,
    run_together,
    sessions,
    settings,
    sleep,
    until_asleep,
)


@pytest.fixture
def server() -> Iterator[Server]:
    """One of the test's own, to be stopped and frozen."""
    with new_server() as server:
        yield server


@pytest.fixture(autouse=True)
def nobody_is_there(postgres: Server) -> None:
    """Wait for what others have left: a session ends a moment after its connection."""
    wait_until(lambda: not sessions(postgres), "the sessions of the test before have ended")


@pytest.fixture
def numbers(postgres: Server, new_schema: str) -> str:
    """A table with a column `n`."""
    postgres.sql(f"CREATE SCHEMA {new_schema}")
    postgres.sql(f"CREATE TABLE {new_schema}.numbers (n integer NOT NULL)")
    return f"{new_schema}.numbers"


# Running verbs


@on_real_time
async def test_a_verb_is_sent_its_rows_and_its_answer_comes_back(postgres: Server) -> None:
    def verb() -> Verb[int]:
        first = yield Ask(Statement("first", "SELECT $1::int + 1"), (1,))
        second = yield Ask(Statement("second", "SELECT $1::int * 10"), (first[0][0],))
        return int(second[0][0])

    async with opened(postgres.dsn()) as connections:
        assert await connections.run(verb) == 20
        assert await connections.run(verb, whole=True) == 20


@on_real_time
async def test_the_schema_stands_in_for_its_name(postgres: Server, numbers: str) -> None:
    schema = numbers.partition(".")[0]
    async with opened(postgres.dsn(), schema=schema) as connections:
        await connections.run(ask("INSERT INTO mainspring.numbers VALUES (7)"))
        assert await connections.run(ask("SELECT n FROM mainspring.numbers")) == 7


@on_real_time
async def test_a_whole_verb_that_raises_leaves_nothing_and_its_connection_goes_on(
    postgres: Server, numbers: str
) -> None:
    def refused() -> Verb[None]:
        yield Ask(Statement("insert", f"INSERT INTO {numbers} VALUES (1)"))
        raise Conflict("task", "key", "job")

    async with opened(postgres.dsn()) as connections:
        before = await connections.run(backend)
        with pytest.raises(Conflict):
            await connections.run(refused, whole=True)
        assert await connections.run(ask(f"SELECT count(*) FROM {numbers}")) == 0
        assert await connections.run(backend) == before

        with pytest.raises(Conflict):
            await connections.run(refused)
        assert await connections.run(ask(f"SELECT count(*) FROM {numbers}")) == 1


@on_real_time
async def test_a_statement_that_is_wrong_costs_no_connection(postgres: Server) -> None:
    async with opened(postgres.dsn()) as connections:
        before = await connections.run(backend)
        for whole in (False, True):
            with pytest.raises(StoreError, match="mainspring migrate") as raised:
                await connections.run(ask("SELECT * FROM mainspring.nowhere"), whole=whole)
            assert not isinstance(raised.value, StoreUnavailable)
            assert isinstance(raised.value.__cause__, asyncpg.UndefinedTableError)
        assert await connections.run(backend) == before


@on_real_time
async def test_what_we_want_set_is_set(postgres: Server) -> None:
    wanted = {
        "application_name": "mainspring",
        "enable_seqscan": "off",
        "enable_bitmapscan": "off",
        "enable_hashjoin": "off",
        "enable_mergejoin": "off",
        "jit": "off",
        "plan_cache_mode": "force_generic_plan",
        "default_transaction_isolation": "read committed",
        "statement_timeout": "3s",
        "idle_in_transaction_session_timeout": "3s",
        "lock_timeout": "1600ms",
        "search_path": "pg_catalog, pg_temp",
    }
    async with opened(postgres.dsn(), timeout=2.0) as connections:
        assert {name: await connections.run(ask(f"SHOW {name}")) for name in wanted} == wanted
        assert connections.pooled is False


@on_real_time
async def test_what_the_user_wants_set_comes_first(postgres: Server) -> None:
    async with opened(f"{postgres.dsn()}?application_name=shop&jit=on") as connections:
        assert await connections.run(ask("SHOW application_name")) == "shop"
        assert await connections.run(ask("SHOW jit")) == "on"
        assert await connections.run(ask("SHOW enable_seqscan")) == "off"


@on_real_time
async def test_a_longer_timeout_holds_for_the_server_too(postgres: Server) -> None:
    async with opened(postgres.dsn(), timeout=1.0) as connections:
        assert await connections.run(ask("SHOW statement_timeout"), timeout=29.0) == "30s"
        assert await connections.run(sleep(2.2), timeout=29.0, again=False)
        assert await connections.run(ask("SHOW statement_timeout")) == "2s"


# How many there are


@on_real_time
async def test_the_connection_used_last_is_taken_first(postgres: Server) -> None:
    async with opened(postgres.dsn()) as connections:
        await run_together(connections, 3)
        used = {await connections.run(backend) for _ in range(10)}
        assert len(used) == 1
        assert len(sessions(postgres)) == 3


@on_real_time
async def test_who_finds_all_connections_taken_waits_for_one(postgres: Server) -> None:
    async with opened(postgres.dsn(), connections=2) as connections:
        used = await run_together(connections, 2, of=20)
        assert len(set(used)) == 2


@on_real_time
async def test_a_long_line_that_moves_is_no_trouble_and_one_that_does_not_is(postgres: Server) -> None:
    async with opened(postgres.dsn(), connections=1, patience=2.0) as connections:
        await asyncio.gather(*(connections.run(sleep(0.25)) for _ in range(10)))

        stuck = asyncio.create_task(connections.run(sleep(6)))
        await until_asleep(postgres)
        with pytest.raises(StoreUnavailable, match=r"came free within 2 s"):
            await connections.run(one)
        stuck.cancel()


@on_real_time
async def test_whoever_leaves_the_line_takes_no_connection_along(postgres: Server) -> None:
    async with opened(postgres.dsn(), connections=1) as connections:
        await connections.run(one)
        for wait in (0.0, 0.02, 0.0201, 0.0202, 0.05):  # while it waits, or when its turn has just come
            first = asyncio.create_task(connections.run(sleep(0.02)))
            waiting = asyncio.create_task(connections.run(one))
            await asyncio.sleep(wait)
            waiting.cancel()
            await asyncio.wait([first, waiting])
            assert await asyncio.wait_for(connections.run(one), 30) == 1


@on_real_time
async def test_a_turn_that_came_at_the_moment_of_a_cancel_is_passed_on(postgres: Server) -> None:
    wanted = settings(postgres.dsn(), connections=1)
    shelf = Shelf(wanted, lambda: connect(wanted))
    taken = await shelf.take(0)
    first, second, third = (asyncio.create_task(shelf.take(0)) for _ in range(3))
    await asyncio.sleep(0)
    shelf.give(taken, 0)
    first.cancel()  # it was to be the next, and does not know yet
    assert await second is taken
    shelf.drop(taken)
    third.cancel()
    last = await asyncio.wait_for(shelf.take(0), 30)
    assert first.cancelled()
    assert last is not taken
    shelf.give(last, 0)
    await shelf.close(1.0)


@on_real_time
async def test_a_cancelled_statement_leaves_nothing_behind(postgres: Server) -> None:
    async with opened(postgres.dsn(), timeout=4.0) as connections:
        for whole in (False, True, False, True, False):  # more than there are places
            before = asleep(postgres)  # the server goes on for a while with what nobody waits for
            running = asyncio.create_task(connections.run(sleep(30), whole=whole))
            await until_asleep(postgres, besides=before)
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
            assert asleep(postgres) - before, "the caller did not wait for the statement"
        used = await run_together(connections, 3)
        assert len(set(used)) == 3
        await asyncio.to_thread(wait_until, lambda: set(sessions(postgres)) == set(used), "the server has ended them")
    assert len(asyncio.all_tasks()) == 1


# Others in the way


@on_real_time
async def test_a_deadlock_is_tried_again(postgres: Server, numbers: str) -> None:
    postgres.sql(f"INSERT INTO {numbers} VALUES (1), (2)")
    tries = []
    locked = set()

    def crossing(first: int, second: int) -> Verb[None]:
        tries.append(first)
        yield Ask(Statement("soon", "SET LOCAL deadlock_timeout = '50ms'"))
        yield Ask(Statement("lock", f"UPDATE {numbers} SET n = n WHERE n = $1"), (first,))
        locked.add(first)
        while len(locked) < 2:
            yield Ask(Statement("wait", "SELECT pg_sleep(0.02)"))
        yield Ask(Statement("lock", f"UPDATE {numbers} SET n = n WHERE n = $1"), (second,))

    async with opened(postgres.dsn()) as connections:
        await asyncio.gather(
            connections.run(lambda: crossing(1, 2), whole=True), connections.run(lambda: crossing(2, 1), whole=True)
        )
    assert len(tries) > 2


@on_real_time
async def test_a_serialization_failure_is_tried_again(postgres: Server, numbers: str) -> None:
    tries = []
    counts = []

    def counted() -> Verb[None]:
        tries.append(1)
        yield Ask(Statement("level", "SET TRANSACTION ISOLATION LEVEL SERIALIZABLE"))
        ((count,),) = yield Ask(Statement("count", f"SELECT count(*) FROM {numbers}"))
        counts.append(count)
        while len(counts) < 3:
            yield Ask(Statement("wait", "SELECT pg_sleep(0.02)"))
        yield Ask(Statement("insert", f"INSERT INTO {numbers} VALUES ($1)"), (count,))

    async with opened(postgres.dsn()) as connections:
        await asyncio.gather(*(connections.run(counted, whole=True, again=False) for _ in range(3)))
    assert postgres.sql(f"SELECT array_agg(n ORDER BY n) FROM {numbers}") == [([0, 1, 2],)]
    assert len(tries) > 3


@on_real_time
async def test_trying_again_has_an_end(postgres: Server) -> None:
    tries = []

    def unlucky() -> Verb[None]:
        tries.append(1)
        yield Ask(Statement("fail", "DO $$ BEGIN RAISE EXCEPTION 'again' USING ERRCODE = '40001'; END $$"))

    async with opened(postgres.dsn()) as connections:
        with pytest.raises(StoreUnavailable, match="too many others"):
            await connections.run(unlucky)
        assert len(tries) == REPEATS + 1
        assert await connections.run(one) == 1


@on_real_time
async def test_a_lock_that_is_held_for_too_long_costs_no_connection(postgres: Server, numbers: str) -> None:
    holder = await asyncpg.connect(postgres.dsn())
    async with opened(postgres.dsn(), patience=0.5) as connections, holder.transaction():
        await holder.execute(f"LOCK TABLE {numbers}")
        before = await connections.run(backend)
        with pytest.raises(StoreUnavailable, match="left open"):
            await connections.run(ask(f"SELECT count(*) FROM {numbers}"))
        assert await connections.run(backend) == before
    await holder.close()


# Lost connections


@on_real_time
async def test_sessions_that_were_ended_at_rest_are_replaced_without_a_word(
    postgres: Server, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened(postgres.dsn()) as connections:
        await run_together(connections, 3)
        before = sessions(postgres)
        postgres.sql("SELECT pg_terminate_backend(pid, 60000) FROM unnest(%s::int[]) pid", [before])
        (shelves,) = connections._shelves.values()
        async with asyncio.timeout(PATIENCE):
            while not all(one.is_closed for one in shelves.verbs.connections()):
                await asyncio.sleep(0.001)
        after = await asyncio.gather(*(connections.run(backend, again=False) for _ in range(3)))
        assert set(after).isdisjoint(before)
    assert lines(caplog, "") == []


@on_real_time
async def test_a_session_that_is_ended_amid_a_statement_is_replaced(
    postgres: Server, caplog: pytest.LogCaptureFixture
) -> None:
    tries = []

    def interrupted() -> Verb[int]:
        tries.append(1)
        rows = yield Ask(
            Statement("wait", "SELECT pg_backend_pid() FROM pg_sleep($1)"), (30 if len(tries) == 1 else 0,)
        )
        return int(rows[0][0])

    async with opened(postgres.dsn()) as connections:
        await run_together(connections, 3)
        before = set(sessions(postgres))
        running = asyncio.create_task(connections.run(interrupted))
        await until_asleep(postgres)
        postgres.sql(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() "
            "AND wait_event = 'PgSleep'"
        )
        assert await running not in before
        assert len(tries) == 2
        # The others are as dead, as a rule: they are given up without a try.
        assert {await connections.run(backend) for _ in range(3)}.isdisjoint(before)
    assert len(lines(caplog, "out of reach")) == 1
    assert len(lines(caplog, "is back after")) == 1


@on_real_time
async def test_what_must_not_be_done_twice_is_not(postgres: Server) -> None:
    postgres.sql("CREATE SEQUENCE public.once")

    def fatal() -> Verb[None]:
        yield Ask(Statement("count", "SELECT nextval('public.once')"))
        yield Ask(Statement("die", "SELECT pg_terminate_backend(pg_backend_pid())"))

    async with opened(postgres.dsn(), patience=2.0) as connections:
        with pytest.raises(StoreUnavailable):
            await connections.run(fatal, again=False)
        assert postgres.sql("SELECT last_value FROM public.once") == [(1,)]
        # In a transaction it is known that nothing of it is there, until the COMMIT is sent.
        with pytest.raises(StoreUnavailable):
            await connections.run(fatal, again=False, whole=True)
        assert postgres.sql("SELECT last_value FROM public.once")[0][0] > 2
    postgres.sql("DROP SEQUENCE public.once")


@pytest.mark.slow
@on_real_time
async def test_a_restart_in_the_middle_of_use_is_told_once_and_hurts_nobody(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    stop = False
    counts = [0] * 8

    async def use(position: int) -> None:
        while not stop:
            await connections.run(one, whole=position % 2 == 0)
            counts[position] += 1

    async with opened(server.dsn()) as connections:
        using = [asyncio.create_task(use(position)) for position in range(8)]
        await asyncio.to_thread(wait_until, lambda: all(counts), "all of them use it")
        await asyncio.to_thread(server.restart)
        before = list(counts)
        async with asyncio.timeout(PATIENCE):
            while not all(after > count for after, count in zip(counts, before, strict=True)):
                await asyncio.sleep(0.01)
        stop = True
        await asyncio.gather(*using)
    assert len(lines(caplog, "out of reach")) == 1
    assert len(lines(caplog, "is back after")) == 1


@pytest.mark.slow
@on_real_time
async def test_a_server_that_stays_away_is_waited_for_and_no_longer(server: Server) -> None:
    async with opened(server.dsn(), patience=1.0) as connections:
        await connections.run(one)
        server.kill()
        started = time.monotonic()
        async with asyncio.timeout(PATIENCE):
            with pytest.raises(StoreUnavailable, match="cannot be reached"):
                await connections.run(one)
        assert time.monotonic() - started > 0.9
        server.start()
        assert await connections.run(one) == 1


@pytest.mark.slow
@on_real_time
async def test_a_frozen_server_is_given_up_in_time(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    async with opened(server.dsn(), timeout=2.0, patience=2.0) as connections:
        before = await connections.run(backend)
        server.freeze()
        try:
            async with asyncio.timeout(PATIENCE):
                answers = await asyncio.gather(*(connections.run(one) for _ in range(6)), return_exceptions=True)
        finally:
            server.thaw()
        assert all(isinstance(answer, StoreUnavailable) for answer in answers), answers
        server.sql("SELECT 1")  # it has come to itself
        assert await connections.run(backend) != before
    assert len(lines(caplog, "out of reach")) == 1
    assert len(lines(caplog, "is back after")) == 1


@on_real_time
async def test_a_network_that_hangs_is_given_up_in_time_and_replaced_when_it_heals(postgres: Server) -> None:
    with Wire.to(postgres) as wire:
        async with opened(wire.dsn(), timeout=0.3) as connections:
            before = await connections.run(backend)
            wire.hang()
            asyncio.get_running_loop().call_later(1.0, wire.cut)
            asyncio.get_running_loop().call_later(1.0, wire.heal)
            started = time.monotonic()
            async with asyncio.timeout(PATIENCE):
                assert await connections.run(backend) != before
            assert time.monotonic() - started >= 1.0


@on_real_time
async def test_what_was_committed_without_an_answer_is_done_again_only_if_it_may_be(
    postgres: Server, numbers: str, caplog: pytest.LogCaptureFixture
) -> None:
    def count() -> int:
        ((found,),) = postgres.sql(f"SELECT count(*) FROM {numbers}")
        return int(found)

    insert = ask(f"INSERT INTO {numbers} VALUES (1)")
    with Wire.to(postgres) as wire:
        async with opened(wire.dsn(), timeout=2.0) as connections:
            await connections.run(insert)  # from here on it is prepared, and sent in one go
            wire.hang(answers_only=True)
            with pytest.raises(StoreUnavailable, match="does not answer"):
                await connections.run(insert, again=False)
            wire.heal()
            assert count() == 2

            await connections.run(insert)
            caplog.clear()
            wire.hang(answers_only=True)
            inserting = asyncio.create_task(connections.run(insert))
            await asyncio.to_thread(wait_until, lambda: lines(caplog, "out of reach"), "the first try was given up")
            assert count() == 4
            wire.heal()
            await inserting
    assert count() == 5


@pytest.mark.slow
@on_real_time
async def test_whatever_comes_no_place_is_lost(postgres: Server, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR, logger="mainspring")
    chance = random.Random(7)  # noqa: S311 -- no secret
    ends: Counter[str] = Counter()

    async def use() -> None:
        running = asyncio.create_task(connections.run(sleep(chance.uniform(0, 0.03)), whole=chance.random() < 0.5))
        if chance.random() < 0.3:
            await asyncio.sleep(chance.uniform(0, 0.05))
            running.cancel()
        await asyncio.wait([running])
        ends["cancelled" if running.cancelled() else repr(running.exception())] += 1

    async def disturb() -> None:
        end = (
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() "
            "AND application_name = 'mainspring'"
        )
        while True:
            await asyncio.sleep(chance.uniform(0.05, 0.2))
            await asyncio.to_thread(postgres.sql, end)
            await asyncio.sleep(chance.uniform(0.05, 0.2))
            wire.cut()

    with Wire.to(postgres) as wire:
        async with opened(wire.dsn(), patience=20.0) as connections:
            disturbing = asyncio.create_task(disturb())
            for _ in range(15):
                await asyncio.gather(*(use() for _ in range(12)))
            disturbing.cancel()
            used = await run_together(connections, 3)
            assert len(set(used)) == 3
            await asyncio.to_thread(wait_until, lambda: set(sessions(postgres)) == set(used), "only these are left")
    assert set(ends) == {"cancelled", "None"}
    assert min(ends.values()) > 15


@on_real_time
async def test_a_busy_event_loop_is_not_taken_for_a_silent_server(postgres: Server) -> None:
    async with opened(postgres.dsn(), timeout=1.5) as connections:
        before = await connections.run(backend)
        asyncio.get_running_loop().call_later(0.05, time.sleep, 2.0)
        assert await connections.run(sleep(0.1)) == before
        assert await connections.run(backend) == before


# Several loops, and their ends


def test_several_loops_use_it_at_the_same_time(postgres: Server) -> None:
    connections = Connections(settings(postgres.dsn()))

    async def use() -> set[int]:
        return set(await asyncio.gather(*(connections.run(sleep(0.002)) for _ in range(40))))

    async def end() -> None:
        await connections.close()

    asyncio.run(connections.open())
    with ThreadPoolExecutor(4) as threads:
        used = [future.result() for future in [threads.submit(asyncio.run, use()) for _ in range(4)]]
    assert len(set().union(*used)) == sum(map(len, used)) <= 12
    # A loop that ends takes its connections along, without a word from anybody.
    wait_until(lambda: not sessions(postgres), "the sessions have ended")
    asyncio.run(end())


@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")  # asyncio's own, and it is right
def test_connections_of_a_loop_that_was_closed_without_ceremony_are_ended_by_the_next(postgres: Server) -> None:
    connections = Connections(settings(postgres.dsn()))
    loop = asyncio.new_event_loop()
    loop.run_until_complete(connections.open())
    before = loop.run_until_complete(connections.run(backend))
    loop.close()
    del loop
    assert sessions(postgres) == [before]

    async def use() -> None:
        assert await connections.run(backend) != before
        await asyncio.to_thread(wait_until, lambda: before not in sessions(postgres), "the session has ended")
        await connections.close()

    asyncio.run(use())
    gc.collect()


def test_closing_ends_the_connections_of_other_loops_and_what_waits_there(postgres: Server) -> None:
    connections = Connections(settings(postgres.dsn(), connections=1, timeout=60.0))
    ready = threading.Event()
    ended: list[object] = []

    async def elsewhere() -> None:
        running = asyncio.create_task(connections.run(sleep(8)))
        await until_asleep(postgres)
        waiting = asyncio.create_task(connections.run(one))
        await asyncio.sleep(0)  # it stands in line
        ready.set()
        ended.extend(await asyncio.gather(running, waiting, return_exceptions=True))

    async def close() -> None:
        await asyncio.to_thread(ready.wait, PATIENCE)
        await connections.close()

    asyncio.run(connections.open())
    thread = threading.Thread(target=asyncio.run, args=(elsewhere(),))
    thread.start()
    asyncio.run(close())
    thread.join(PATIENCE)
    assert not thread.is_alive()
    assert [type(error) for error in ended] == [StoreClosed, StoreClosed]
    wait_until(lambda: not sessions(postgres), "the sessions have ended")


@on_real_time
async def test_closing_lets_what_is_under_way_end(postgres: Server) -> None:
    connections = Connections(settings(postgres.dsn(), connections=1))
    await connections.open()
    running = asyncio.create_task(connections.run(sleep(2)))
    await until_asleep(postgres)
    waiting = asyncio.create_task(connections.run(one))
    await asyncio.sleep(0)
    await connections.close()
    assert await running
    with pytest.raises(StoreClosed):
        await waiting
    with pytest.raises(StoreClosed):
        await connections.run(one)
    assert sessions(postgres) == []

    await connections.open()
    assert await connections.run(one) == 1
    await connections.close()


def test_what_is_not_open_says_so() -> None:
    connections = Connections(settings("postgresql://nowhere/"))
    with pytest.raises(StoreClosed, match="call open"):
        asyncio.run(connections.run(one))
    with pytest.raises(StoreClosed):
        connections.must_be_open()


def _in_child(connections: Connections, pipe: "multiprocessing.connection.Connection") -> None:
    pipe.send(asyncio.run(connections.run(backend)))
    asyncio.run(connections.close())
    pipe.close()


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
@on_real_time
async def test_a_forked_child_leaves_the_parents_connections_alone(postgres: Server) -> None:
    async with opened(postgres.dsn()) as connections:
        before = await connections.run(backend)
        mine, theirs = multiprocessing.Pipe()
        child = multiprocessing.get_context("fork").Process(target=_in_child, args=(connections, theirs))
        child.start()
        answer = await asyncio.to_thread(mine.recv)
        await asyncio.to_thread(child.join, PATIENCE)
        assert child.exitcode == 0
        assert answer != before
        assert await connections.run(backend) == before


# A handler's transaction


@on_real_time
async def test_a_lease_is_committed_at_its_end_and_rolled_back_if_that_raises(postgres: Server, numbers: str) -> None:
    async with opened(postgres.dsn()) as connections:
        async with connections.lease(5.0) as lease:
            await lease.fetch(f"INSERT INTO {numbers} VALUES ($1)", 1)
            assert postgres.sql(f"SELECT count(*) FROM {numbers}") == [(0,)]
        with pytest.raises(Conflict):
            async with connections.lease(5.0) as lease:
                await lease.fetch(f"INSERT INTO {numbers} VALUES ($1)", 2)
                raise Conflict("task", "key", "job")
        with pytest.raises(DeclarationError, match="has ended"):
            await lease.fetch("SELECT 1")
        assert len(sessions(postgres)) == 1
    assert postgres.sql(f"SELECT n FROM {numbers}") == [(1,)]


@on_real_time
async def test_what_a_handlers_own_statement_raises_is_its_own_affair(postgres: Server) -> None:
    async with opened(postgres.dsn()) as connections:
        with pytest.raises(StoreError, match="nothing of the transaction is kept"):
            async with connections.lease(5.0) as lease:
                with pytest.raises(asyncpg.DivisionByZeroError):
                    await lease.fetch("SELECT 1 / 0")
        assert await connections.run(one) == 1


@on_real_time
async def test_a_handlers_own_statements_are_planned_as_everywhere_else(postgres: Server) -> None:
    async with opened(postgres.dsn()) as connections:
        async with connections.lease(5.0) as lease:
            assert (await lease.fetch("SHOW enable_seqscan"))[0][0] == "on"
            assert (await lease.fetch("SHOW statement_timeout"))[0][0] == "6s"
            assert (await lease.fetch("SHOW search_path"))[0][0] == '"$user", public'
        async with connections.lease(5.0) as lease:
            await lease.fetch("SET LOCAL enable_hashjoin = off")
        assert await connections.run(ask("SHOW enable_seqscan")) == "off"


@on_real_time
async def test_a_lease_that_lasts_too_long_is_rolled_back(postgres: Server, numbers: str) -> None:
    async with opened(postgres.dsn()) as connections:
        for statement in ("SELECT pg_sleep(5)", "SELECT 1"):
            with pytest.raises(TransactionTooLong):
                async with connections.lease(0.2) as lease:
                    await lease.fetch(f"INSERT INTO {numbers} VALUES (1)")
                    await asyncio.sleep(0.0 if "sleep" in statement else 0.3)
                    await lease.fetch(statement)
        with pytest.raises(TransactionTooLong):
            async with connections.lease(0.1):
                await asyncio.sleep(0.2)
        async with connections.lease(5.0) as lease:
            assert await lease.fetch(f"SELECT n FROM {numbers}") == []


@on_real_time
async def test_the_server_ends_a_lease_whose_loop_stands_still(postgres: Server, numbers: str) -> None:
    with Wire.to(postgres) as wire:
        async with opened(wire.dsn(), timeout=0.3) as connections:
            with pytest.raises((TransactionTooLong, StoreUnavailable)):
                async with connections.lease(0.3) as lease:
                    await lease.fetch(f"INSERT INTO {numbers} VALUES (1)")
                    wire.hang()
                    # A loop that stands still is what this is about.
                    wait_until(lambda: not sessions(postgres), "the server has ended it")


@on_real_time
async def test_a_cancelled_lease_leaves_nothing_behind(postgres: Server, numbers: str) -> None:
    async def hold() -> None:
        async with connections.lease(30.0) as lease:
            await lease.fetch(f"INSERT INTO {numbers} VALUES (1)")
            await lease.fetch("SELECT pg_sleep(2)")

    async with opened(postgres.dsn(), connections=1) as connections:
        for _ in range(2):
            before = asleep(postgres)
            holding = asyncio.create_task(hold())
            await until_asleep(postgres, besides=before)
            holding.cancel()
            with pytest.raises(asyncio.CancelledError):
                await holding
        async with connections.lease(5.0) as lease:
            assert await lease.fetch(f"SELECT n FROM {numbers}") == []


@on_real_time
async def test_a_handler_that_holds_a_lease_can_still_run_verbs(postgres: Server) -> None:
    async with opened(postgres.dsn(), connections=1, patience=20.0) as connections, connections.lease(120.0) as lease:
        mine = (await lease.fetch("SELECT pg_backend_pid()"))[0][0]
        assert await connections.run(backend) != mine  # the lease is still held


# Virtual time


async def test_virtual_time_stands_still_meanwhile(postgres: Server, virtual_time: VirtualTime) -> None:
    async with opened(postgres.dsn()) as connections:
        assert await connections.run(one) == 1
        await connections.run(sleep(0.2))
        async with connections.lease(5.0) as lease:
            await lease.fetch("SELECT pg_sleep(0.1)")
        assert virtual_time.elapsed == 0
        await asyncio.sleep(3600)  # what rests here does not hold time
        assert await connections.run(one) == 1
    assert sessions(postgres) == []


async def test_a_hang_ends_on_virtual_time_too(postgres: Server, virtual_time: VirtualTime) -> None:
    with Wire.to(postgres) as wire:
        async with opened(wire.dsn(), timeout=1.0, patience=1.0) as connections:
            await connections.run(one)
            wire.hang()
            with pytest.raises(StoreUnavailable):
                await connections.run(one)
            assert virtual_time.elapsed == 0


async def test_a_cancelled_caller_on_virtual_time_leaves_nothing_behind(
    postgres: Server, virtual_time: VirtualTime
) -> None:
    async with opened(postgres.dsn(), connections=1, timeout=2.0) as connections:
        running = asyncio.create_task(connections.run(sleep(20)))
        await until_asleep(postgres)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert await connections.run(one) == 1
    assert virtual_time.elapsed == 0


async def test_closing_on_virtual_time_ends_what_tries_again(
    virtual_time: VirtualTime, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened(f"postgresql://postgres@127.0.0.1:{free_port()}/", patience=60.0) as connections:
        trying = asyncio.create_task(connections.run(one))
        await asyncio.to_thread(wait_until, lambda: lines(caplog, "out of reach"), "it has tried")
    with pytest.raises(StoreClosed):
        await trying
    assert virtual_time.elapsed == 0
