"""A network that hangs, heals and is cut, with a real server behind it."""

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any

import psycopg
import pytest

from tests.servers.postgres import Server
from tests.servers.wire import Wire

A_MOMENT = 0.2
"""Seconds in which an answer would have come many times over."""


@pytest.fixture
def wire(own_postgres: Server) -> Iterator[Wire]:
    with Wire.to(own_postgres) as wire:
        yield wire


@pytest.fixture
def connection(wire: Wire) -> Iterator[psycopg.Connection]:
    with psycopg.connect(wire.dsn(), autocommit=True) as connection:
        yield connection


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor() as pool:
        yield pool


def hangs(future: "Future[Any]") -> bool:
    done, _ = wait([future], timeout=A_MOMENT)
    return not done


def test_much_passes_both_ways(connection: psycopg.Connection) -> None:
    text = "x" * 5_000_000

    assert connection.execute("SELECT %s || 'y'", [text]).fetchall() == [(text + "y",)]


def test_what_hangs_arrives_when_it_heals(wire: Wire, connection: psycopg.Connection, pool: ThreadPoolExecutor) -> None:
    wire.hang()
    answer = pool.submit(connection.execute, "SELECT 1")
    new = pool.submit(lambda: psycopg.connect(wire.dsn()))
    try:
        assert hangs(answer)
        assert hangs(new)
    finally:
        wire.heal()
    assert answer.result().fetchall() == [(1,)]
    new.result().close()


def test_answers_alone_can_hang(
    wire: Wire, connection: psycopg.Connection, pool: ThreadPoolExecutor, own_postgres: Server
) -> None:
    with own_postgres.schema() as name:
        wire.hang(answers_only=True)
        answer = pool.submit(connection.execute, f"CREATE SCHEMA {name}".encode())
        assert hangs(answer)

        assert own_postgres.sql("SELECT 1 FROM pg_namespace WHERE nspname = %s", [name])
        wire.cut()
        assert isinstance(answer.exception(), psycopg.OperationalError)


def test_what_hangs_is_lost_where_it_is_cut(
    wire: Wire, connection: psycopg.Connection, pool: ThreadPoolExecutor, own_postgres: Server
) -> None:
    with own_postgres.schema() as name:
        wire.hang()
        answer = pool.submit(connection.execute, f"CREATE SCHEMA {name}".encode())
        assert hangs(answer)
        wire.cut()
        assert isinstance(answer.exception(), psycopg.OperationalError)
        wire.heal()
        assert not own_postgres.sql("SELECT 1 FROM pg_namespace WHERE nspname = %s", [name])

    with psycopg.connect(wire.dsn()) as new:
        assert new.execute("SELECT 1").fetchall() == [(1,)]


def test_a_side_that_closes_closes_the_other(connection: psycopg.Connection, own_postgres: Server) -> None:
    own_postgres.sql("SELECT pg_terminate_backend(%s)", [connection.info.backend_pid])

    with pytest.raises(psycopg.OperationalError):
        connection.execute("SELECT 1")


def test_without_a_server_behind_it_a_connection_is_closed_at_once() -> None:
    with Wire("127.0.0.1", 1) as wire, pytest.raises(psycopg.OperationalError, match="closed"):
        psycopg.connect(wire.dsn())


def test_a_closed_wire_takes_nothing(wire: Wire, connection: psycopg.Connection) -> None:
    wire.close()
    wire.close()

    with pytest.raises(psycopg.OperationalError):
        connection.execute("SELECT 1")
    with pytest.raises(psycopg.OperationalError, match="refused"):
        psycopg.connect(wire.dsn())
