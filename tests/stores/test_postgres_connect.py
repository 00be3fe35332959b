# ruff: noqa: S608 -- the names of tables that tests make up
"""Which server a connection of the PostgreSQL store leads to: past dead, frozen and read-only hosts, through poolers."""

import asyncio
import logging
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import asyncpg
import pytest

from mainspring.errors import StoreError, StoreUnavailable
from mainspring.stores.postgres.connect import connect
from mainspring.stores.postgres.hosts import hosts
from tests.servers.pgbouncer import Pooler
from tests.servers.postgres import Server, new_server
from tests.servers.system import PATIENCE, free_port, wait_until
from tests.servers.wire import Wire
from tests.stores.postgres_wires import ask, backend, lines, on_real_time, one, opened, run_together, settings, sleep

PORT = ask("SELECT inet_server_port()")
READ_ONLY = "SHOW default_transaction_read_only"


def several(*servers: Server | Pooler | Wire | int) -> str:
    """Write a DSN with several hosts; a number is a port where nobody listens."""
    ports = [one if isinstance(one, int) else one.port for one in servers]
    return f"postgresql://postgres@{','.join(f'127.0.0.1:{port}' for port in ports)}/postgres"


# DSNs


@pytest.mark.parametrize(
    ("dsn", "names", "dsns"),
    [
        ("postgresql://u@a/db", ["a"], ["postgresql://u@a/db"]),
        ("postgresql://a:1,b:2/db", ["a:1", "b:2"], ["postgresql://a:1/db", "postgresql://b:2/db"]),
        ("postgres://u:p@a,b/?x=1", ["a", "b"], ["postgres://u:p@a/?x=1", "postgres://u:p@b/?x=1"]),
        ("postgresql://u:p@ss@a/db", ["a"], ["postgresql://u:p%40ss@a/db"]),
        ("postgresql://u@%2Frun%2Fpg/db", ["/run/pg"], ["postgresql://u@%2Frun%2Fpg/db"]),
        (
            "postgresql://[::1]:5,[::2]:6/db",
            ["[::1]:5", "[::2]:6"],
            ["postgresql://[::1]:5/db", "postgresql://[::2]:6/db"],
        ),
        ("postgresql:///db", ["localhost"], ["postgresql:///db"]),
    ],
)
def test_a_dsn_is_taken_apart_into_its_hosts(dsn: str, names: list[str], dsns: list[str]) -> None:
    assert [host.name for host in hosts(dsn)] == names
    assert [host.dsn for host in hosts(dsn)] == dsns


def test_hosts_may_stand_behind_the_question_mark() -> None:
    found = hosts("postgresql:///db?host=/run/pg,b&port=1,2&x=y")
    assert [host.name for host in found] == ["/run/pg:1", "b:2"]
    assert [host.dsn.partition("?")[2] for host in found] == ["host=%2Frun%2Fpg&port=1&x=y", "host=b&port=2&x=y"]
    assert [host.name for host in hosts("postgresql:///db?host=a,b&port=7")] == ["a:7", "b:7"]


@pytest.mark.parametrize(
    "dsn",
    [
        "postgresql://u:se/cret@a/db",
        "postgresql://u:secret@a:port/db",
        "postgresql:///?host=a,b&port=1,2,3&password=secret",
    ],
)
@on_real_time
async def test_a_dsn_that_cannot_be_read_is_not_shown(dsn: str) -> None:
    with pytest.raises((StoreError, OSError)) as raised:
        await connect(settings(dsn, timeout=0.5))
    error: BaseException | None = raised.value
    while error is not None:
        assert "secret" not in str(error)
        assert "cret" not in str(error)
        error = error.__cause__


@on_real_time
async def test_wrong_settings_in_the_dsn_are_told(postgres: Server) -> None:
    with pytest.raises(StoreError, match="sslmode"):
        await connect(settings(f"{postgres.dsn()}?sslmode=sometimes"))
    with pytest.raises(StoreError, match="target_session_attrs"):
        await connect(settings(f"{postgres.dsn()}?target_session_attrs=whatever"))


@on_real_time
async def test_what_will_not_pass_is_told_at_once(postgres: Server) -> None:
    async with opened(postgres.dsn(database="nowhere"), patience=600.0) as connections, asyncio.timeout(PATIENCE):
        with pytest.raises(StoreError, match="no such database") as raised:
            await connections.run(one)
    assert not isinstance(raised.value, StoreUnavailable)
    user = "nobody_of_that_name"
    async with opened(postgres.dsn(user=user), patience=600.0) as connections, asyncio.timeout(PATIENCE):
        with pytest.raises(StoreError, match="refused") as raised:
            await connections.run(one)
    assert not isinstance(raised.value, StoreUnavailable)


# Several hosts


@on_real_time
async def test_a_dead_host_is_passed_over(postgres: Server) -> None:
    async with opened(several(free_port(), postgres)) as connections:
        assert await connections.run(PORT) == postgres.port


@on_real_time
async def test_a_frozen_host_leaves_the_others_their_share_of_the_time(postgres: Server) -> None:
    with Wire.to(postgres) as wire:
        wire.hang()
        # Without patience there is one try: had the frozen one all of the time, it would end with that.
        async with opened(several(wire, postgres), timeout=6.0, patience=0.0) as connections:
            started = time.monotonic()
            assert await connections.run(PORT) == postgres.port
            assert time.monotonic() - started > 2.9
            # The next ones do not begin with it.
            asked = wire.accepted
            assert asked > 0
            await run_together(connections, 3)
            assert wire.accepted == asked


@on_real_time
async def test_the_time_is_for_all_hosts_together(postgres: Server) -> None:
    with Wire.to(postgres) as first, Wire.to(postgres) as second:
        first.hang()
        second.hang()
        started = time.monotonic()
        with pytest.raises(ConnectionError, match=f"{first.port}: no answer.*; .*:{second.port}: no answer") as raised:
            await connect(settings(several(*[first] * 9, second), timeout=4.0))
        assert time.monotonic() - started < 36  # and not ten times 4 s
        assert isinstance(raised.value.__cause__, TimeoutError)


@on_real_time
async def test_a_host_that_never_says_a_word_is_given_up(postgres: Server) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        async with opened(several(silent.getsockname()[1], postgres), timeout=0.6) as connections:
            assert await connections.run(PORT) == postgres.port


@on_real_time
async def test_each_host_is_named_when_none_can_be_used() -> None:
    first, second = free_port(), free_port()
    async with opened(several(first, second), patience=0.2) as connections:
        with pytest.raises(StoreUnavailable, match=f"127.0.0.1:{first}: .*; 127.0.0.1:{second}: ") as raised:
            await connections.run(one)
    assert "postgresql://" not in str(raised.value)


@pytest.mark.slow
@on_real_time
async def test_a_failover_to_a_promoted_standby_is_followed(caplog: pytest.LogCaptureFixture) -> None:
    with new_server(durable=True) as primary, primary.standby() as standby:
        primary.sql("CREATE TABLE public.numbers (n integer PRIMARY KEY)")
        async with opened(several(standby, primary)) as connections:
            assert await connections.run(PORT) == primary.port  # the standby takes no writes
            written = 0
            stop = False

            async def write() -> None:
                nonlocal written
                while not stop:
                    insert = ask("INSERT INTO public.numbers VALUES ($1::int) ON CONFLICT DO NOTHING", written)
                    await connections.run(insert)
                    written += 1

            writing = asyncio.create_task(write())
            await asyncio.to_thread(wait_until, lambda: written >= 10, "it writes")
            await asyncio.to_thread(primary.kill)
            at_failure = written
            await asyncio.to_thread(standby.promote)
            async with asyncio.timeout(PATIENCE):
                while written <= at_failure + 1:  # one may have been under way
                    await asyncio.sleep(0.01)
            stop = True
            await writing
            assert await connections.run(PORT) == standby.port
            assert await connections.run(ask("SELECT count(*) FROM public.numbers")) == written
    assert len(lines(caplog, "out of reach")) == 1
    assert len(lines(caplog, "is back after")) == 1


@pytest.mark.slow
@on_real_time
async def test_a_server_that_takes_no_more_writes_is_left() -> None:
    with new_server() as old, new_server() as new:
        for server in (old, new):
            server.sql("CREATE TABLE public.numbers (n integer)")
        insert = ask("INSERT INTO public.numbers VALUES (1)")
        async with opened(several(old, new)) as connections:
            await connections.run(insert)
            old.sql("ALTER SYSTEM SET default_transaction_read_only = on")
            old.sql("SELECT pg_reload_conf()")
            wait_until(lambda: old.sql(READ_ONLY) == [("on",)], "it takes no more writes")
            await connections.run(insert)
            assert await connections.run(PORT) == new.port
            new.sql("ALTER SYSTEM SET default_transaction_read_only = on")
            new.sql("SELECT pg_reload_conf()")
            wait_until(lambda: new.sql(READ_ONLY) == [("on",)], "nor does the other")
        async with opened(new.dsn(), patience=0.3) as connections:
            with pytest.raises(StoreUnavailable, match="no host takes writes"):
                await connections.run(insert)


# Poolers


class Tolerant(Pooler):
    """One that takes what it does not know, and forgets it."""

    def _configured(self) -> Path:
        path = super()._configured()
        ignored = ["enable_seqscan", "enable_bitmapscan", "enable_hashjoin", "enable_mergejoin", "jit"]
        ignored += ["plan_cache_mode", "default_transaction_isolation", "statement_timeout", "lock_timeout"]
        ignored += ["idle_in_transaction_session_timeout"]
        with path.open("a", encoding="utf-8") as file:
            file.write(f"ignore_startup_parameters = {','.join(ignored)}\n")
        return path


@pytest.fixture(params=[Pooler, Tolerant], ids=["refuses what it does not know", "ignores what it does not know"])
def pooler(request: pytest.FixtureRequest, postgres: Server) -> Iterator[Pooler]:
    with request.param(postgres, size=2) as pooler:
        yield pooler


@pytest.mark.needs("pgbouncer")
@on_real_time
async def test_a_pooler_is_found_out_and_lived_with(
    pooler: Pooler, postgres: Server, new_schema: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    postgres.sql(f"CREATE SCHEMA {new_schema}")
    postgres.sql(f"CREATE TABLE {new_schema}.numbers (n integer)")
    insert = ask("INSERT INTO mainspring.numbers VALUES ($1::int)", 1)
    async with opened(pooler.dsn(), connections=5, schema=new_schema) as connections:
        used = await run_together(connections, 2, of=60)
        assert connections.pooled is True
        assert len(set(used)) == 2  # five of ours share two
        await asyncio.gather(*(connections.run(insert, whole=whole) for whole in (True, False) for _ in range(40)))
        assert await connections.run(ask("SHOW lock_timeout")) == "8s"
        assert await connections.run(ask("SHOW enable_seqscan")) == "off"
        async with connections.lease(5.0) as lease:
            assert (await lease.fetch(f"SELECT count(*) FROM {new_schema}.numbers"))[0][0] == 80
    assert len(lines(caplog, "pooler")) == 1
    # What is prepared would stay with the server's connections, in the way of whoever gets them next.
    direct = await asyncpg.connect(pooler.dsn(), statement_cache_size=0)
    assert await direct.fetchval("SELECT count(*) FROM pg_prepared_statements WHERE name <> ''") == 0
    await direct.close()


@pytest.mark.needs("pgbouncer")
@on_real_time
async def test_a_pooler_that_was_not_expected_is_found_out_by_what_goes_wrong(
    postgres: Server, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    with Tolerant(postgres, size=2) as pooler:
        async with opened(pooler.dsn(), connections=5, pooled=False) as connections:
            await asyncio.gather(*(connections.run(sleep(0.005)) for _ in range(60)))
            assert connections.pooled is True
    assert len(lines(caplog, "pooler")) == 1


@pytest.mark.needs("pgbouncer")
@on_real_time
async def test_a_pooler_that_restarts_is_waited_for(postgres: Server) -> None:
    with Pooler(postgres) as pooler:
        async with opened(pooler.dsn()) as connections:
            await connections.run(one)
            await asyncio.to_thread(pooler.restart)
            assert await connections.run(one) == 1


@pytest.mark.slow
@pytest.mark.needs("pgbouncer")
@on_real_time
async def test_a_pooler_before_a_standby_is_passed_over() -> None:
    with (
        new_server() as primary,
        primary.standby(synchronous=False) as standby,
        Pooler(standby) as reading,
        Pooler(primary) as writing,
    ):
        async with opened(several(reading, writing)) as connections:
            assert await connections.run(PORT) == primary.port
            assert connections.pooled is True


@on_real_time
async def test_a_server_without_a_pooler_keeps_statements_prepared(postgres: Server) -> None:
    async with opened(postgres.dsn()) as connections:
        for _ in range(3):
            await connections.run(backend)
        assert await connections.run(ask("SELECT count(*) FROM pg_prepared_statements")) == 2
