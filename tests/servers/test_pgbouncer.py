"""The pooler: few connections for many clients, and what that takes away from each."""

from collections.abc import Iterator
from contextlib import ExitStack
from uuid import uuid4

import psycopg
import pytest

from tests.servers.pgbouncer import Pooler
from tests.servers.postgres import Server

pytestmark = pytest.mark.needs("pgbouncer")


@pytest.fixture
def pooler(own_postgres: Server) -> Iterator[Pooler]:
    with Pooler(own_postgres) as pooler:
        yield pooler


def connect(pooler: Pooler) -> psycopg.Connection:
    return psycopg.connect(pooler.dsn(), autocommit=True, prepare_threshold=None)


def backend(connection: psycopg.Connection) -> int:
    [(pid,)] = connection.execute("SELECT pg_backend_pid()").fetchall()
    return int(pid)


def test_many_clients_share_few_connections(pooler: Pooler) -> None:
    with ExitStack() as stack:
        clients = [stack.enter_context(connect(pooler)) for _ in range(20)]

        assert len({backend(client) for client in clients}) <= pooler.size


def test_a_client_has_a_connection_for_a_transaction_and_not_for_longer(pooler: Pooler) -> None:
    with connect(pooler) as one, connect(pooler) as other:
        with one.transaction():
            kept = backend(one)
            assert backend(one) == kept
            assert backend(other) != kept
        # Nobody else is there: the one that was used last is given out first.
        assert backend(other) == backend(one)


def test_every_role_of_the_server_is_let_in(pooler: Pooler, own_postgres: Server) -> None:
    clerk = f"clerk_{uuid4().hex[:8]}"
    own_postgres.sql(f"CREATE ROLE {clerk} LOGIN")
    try:
        with psycopg.connect(pooler.dsn(user=clerk), prepare_threshold=None) as connection:
            assert connection.execute("SELECT current_user").fetchall() == [(clerk,)]
    finally:
        own_postgres.sql(f"DROP ROLE {clerk}")


def test_a_restart_closes_all_connections_and_keeps_the_address(pooler: Pooler) -> None:
    address = pooler.dsn()
    with connect(pooler) as connection:
        backend(connection)
        pooler.restart()
        with pytest.raises(psycopg.OperationalError):
            backend(connection)

    assert pooler.dsn() == address
    with connect(pooler) as connection:
        assert backend(connection)
    assert "PgBouncer" in pooler.log
