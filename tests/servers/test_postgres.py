"""Servers that really start, stop, break and come back."""

import socket
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from threading import Event
from typing import Any

import psycopg
import pytest

from tests.servers.postgres import Server, new_server, versions
from tests.servers.system import all_in, remove_shared_memory, wait_until

A_MOMENT = 0.3
"""Seconds in which an answer would have come many times over."""


@pytest.fixture
def server() -> Iterator[Server]:
    """One of the test's own, which keeps what it has committed."""
    with new_server(durable=True) as server:
        yield server


@pytest.fixture
def connection(server: Server) -> Iterator[psycopg.Connection]:
    with psycopg.connect(server.dsn(), autocommit=True) as connection:
        yield connection


def nobody_listens(server: Server) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((server.host, server.port)) != 0


@pytest.mark.slow
@pytest.mark.parametrize(
    "version", [pytest.param(one, marks=[] if one == versions()[-1] else pytest.mark.full) for one in versions()]
)
def test_every_version_starts_answers_and_leaves_nothing_behind(version: int) -> None:
    with new_server(version=version) as server:
        [(number,)] = server.sql("SHOW server_version_num")
        family = server.family()
        memory = server._shared_memory()

    assert int(number) // 10_000 == version == server.version
    assert memory is not None
    assert all_in("Z", family)
    assert nobody_listens(server)
    assert not server.folder.exists()
    assert not remove_shared_memory(memory)


def test_it_listens_on_this_machine_only(own_postgres: Server) -> None:
    assert own_postgres.sql("SHOW listen_addresses") == [("127.0.0.1",)]
    assert own_postgres.sql("SHOW unix_socket_directories") == [("",)]


@pytest.mark.full
@pytest.mark.parametrize(("durable", "switch"), [(True, "on"), (False, "off")])
def test_it_waits_for_the_disk_only_where_it_has_to_be_durable(durable: bool, switch: str) -> None:
    with new_server(durable=durable) as server:
        names = ["fsync", "synchronous_commit", "full_page_writes"]
        found = server.sql("SELECT name, setting FROM pg_settings WHERE name = ANY (%s)", [names])

    assert dict(found) == dict.fromkeys(names, switch)


def test_a_killed_server_comes_back_where_it_was_with_what_was_committed(
    server: Server, connection: psycopg.Connection
) -> None:
    address = server.dsn()
    connection.execute("CREATE TABLE kept AS SELECT 1 AS one")
    family = server.family()

    server.kill()

    assert len(family) > 5  # with the process of this connection among them
    assert connection.info.backend_pid in family
    assert all_in("Z", family)
    with pytest.raises(psycopg.OperationalError):
        connection.execute("SELECT 1")
    assert nobody_listens(server)

    server.restart()

    assert server.dsn() == address
    assert server.sql("TABLE kept") == [(1,)]
    assert "was not properly shut down" in server.log


@pytest.mark.slow
def test_a_stopped_server_has_finished_and_one_stopped_at_once_recovers(server: Server) -> None:
    server.stop()
    assert not server.runs
    server.start()
    assert "was not properly shut down" not in server.log

    server.stop("immediate")
    assert not server.runs
    server.start()
    assert "was not properly shut down" in server.log
    assert server.sql("SELECT 1") == [(1,)]


def test_a_frozen_server_keeps_its_connections_and_answers_when_it_thaws(
    server: Server, connection: psycopg.Connection
) -> None:
    with ThreadPoolExecutor() as pool:
        server.freeze()
        answer = pool.submit(lambda: connection.execute("SELECT 1").fetchall())
        new = pool.submit(lambda: psycopg.connect(server.dsn()))
        asked: list[Future[Any]] = [answer, new]
        try:
            done, _ = wait(asked, timeout=A_MOMENT)
            assert not done
            assert all_in("T", server.family())
        finally:
            server.thaw()
        assert answer.result() == [(1,)]
        new.result().close()


@pytest.mark.slow
def test_a_frozen_server_can_be_stopped_and_killed(server: Server) -> None:
    server.freeze()
    server.stop()
    server.start()
    server.freeze()
    server.kill()
    server.start()
    assert server.sql("SELECT 1") == [(1,)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("version", "durable"),
    [(None, True), pytest.param(None, False, marks=pytest.mark.full)]
    + [pytest.param(version, True, marks=pytest.mark.full) for version in versions()[:-1]],
)
def test_a_promoted_standby_has_every_commit_that_was_acknowledged(version: int | None, durable: bool) -> None:
    with new_server(durable=durable, version=version) as primary, primary.standby() as standby:
        primary.sql("CREATE TABLE numbers (number integer PRIMARY KEY)")
        acknowledged: list[int] = []
        many = Event()

        def write() -> None:
            with psycopg.connect(primary.dsn(), autocommit=True) as connection:
                for number in range(1_000_000):
                    connection.execute("INSERT INTO numbers VALUES (%s)", [number])
                    acknowledged.append(number)
                    if number == 200:
                        many.set()

        with ThreadPoolExecutor() as pool:
            writer = pool.submit(write)
            assert many.wait(60)
            primary.kill()  # in the middle of it
            assert isinstance(writer.exception(), psycopg.OperationalError)
        assert standby.sql("SELECT pg_is_in_recovery()") == [(True,)]

        standby.promote()

        kept = {number for (number,) in standby.sql("TABLE numbers")}
        assert set(acknowledged) <= kept
        assert len(kept) <= len(acknowledged) + 1  # the last one may have arrived without the answer
        standby.sql("INSERT INTO numbers VALUES (-1)")
        assert standby.dsn() != primary.dsn()


@pytest.mark.full
def test_a_commit_waits_for_a_synchronous_standby_and_not_for_another(server: Server) -> None:
    server.sql("CREATE TABLE numbers (number integer)")
    with server.standby(synchronous=False) as other:
        other.freeze()
        server.sql("INSERT INTO numbers VALUES (1)")
        other.thaw()
        wait_until(lambda: other.sql("TABLE numbers") == [(1,)], "the row arrives later")

        with server.standby() as standby, ThreadPoolExecutor() as pool:
            standby.freeze()
            commit = pool.submit(server.sql, "INSERT INTO numbers VALUES (2)")
            look = "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'SyncRep'"
            wait_until(lambda: server.sql(look), "the commit waits")
            assert not commit.done()
            standby.thaw()
            commit.result()


@pytest.mark.full
def test_a_promoted_standby_does_not_wait_for_the_standbys_of_its_primary(server: Server) -> None:
    with server.standby() as first, server.standby() as second:
        server.kill()
        first.close()
        second.promote()
        second.sql("CREATE TABLE written (number integer)")
        with second.standby() as third:
            second.sql("INSERT INTO written VALUES (1)")
            assert third.version == second.version
            second.kill()
            third.promote()
            assert third.sql("TABLE written") == [(1,)]


@pytest.mark.slow
def test_a_server_that_cannot_start_shows_its_log(server: Server) -> None:
    server.stop()
    server._write("postgresql.conf", "no_such_setting = 1\n")

    with pytest.raises(RuntimeError, match='unrecognized configuration parameter "no_such_setting"'):
        server.start()
    assert not server.runs


@pytest.mark.slow
def test_a_port_that_was_taken_is_changed_before_the_first_start_and_never_after() -> None:
    server = new_server()
    taken = server.port
    with socket.create_server((server.host, taken)), server:
        assert server.port != taken
        assert server.sql("SELECT inet_server_port()") == [(server.port,)]

        server.stop()
        with (
            socket.create_server((server.host, server.port)),
            pytest.raises(RuntimeError, match="Address already in use"),
        ):
            server.start()
