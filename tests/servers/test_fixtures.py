"""What tests are given, and a server that is not ours."""

import os
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

from tests.servers.borrowed import BorrowedServer
from tests.servers.postgres import Server, versions

ROOT = Path(__file__).resolve().parents[2]


def schemas(server: Server) -> set[str]:
    return {name for (name,) in server.sql("SELECT nspname FROM pg_namespace")}


def test_a_schema_is_not_there_yet_and_is_dropped_afterwards(own_postgres: Server) -> None:
    with own_postgres.schema() as name, own_postgres.schema() as other:
        assert name != other
        assert not {name, other} & schemas(own_postgres)
        own_postgres.sql(f"CREATE SCHEMA {name} CREATE TABLE jobs (id integer)")

    assert name not in schemas(own_postgres)


def test_a_transaction_that_was_left_open_is_named(own_postgres: Server) -> None:
    with psycopg.connect(own_postgres.dsn(), application_name="forgetful") as forgetful:
        with (
            pytest.raises(psycopg.errors.RaiseException, match=r"left open on test_.*: .* forgetful, last: LOCK TABLE"),
            own_postgres.schema(patience="10ms") as name,
        ):
            own_postgres.sql(f"CREATE SCHEMA {name} CREATE TABLE jobs (id integer)")
            forgetful.execute(f"LOCK TABLE {name}.jobs".encode())
        forgetful.rollback()
        own_postgres.sql(f"DROP SCHEMA {name} CASCADE")


@pytest.mark.slow
def test_the_oldest_is_the_oldest_that_can_be_had(oldest_postgres: Server) -> None:
    assert oldest_postgres.version == versions()[0]
    assert oldest_postgres.sql("SELECT 1") == [(1,)]


def test_a_borrowed_server_is_asked_and_never_stopped(own_postgres: Server) -> None:
    borrowed = BorrowedServer(f"{own_postgres.dsn()}?application_name=borrower")

    with borrowed, borrowed.schema() as name:
        assert borrowed.sql("SELECT current_setting('application_name')") == [("borrower",)]
        assert (borrowed.host, borrowed.port, borrowed.version) == (
            own_postgres.host,
            own_postgres.port,
            own_postgres.version,
        )
        borrowed.sql(f"CREATE SCHEMA {name}")

    assert borrowed.runs
    assert name not in schemas(own_postgres)
    for refused in (
        borrowed.stop,
        borrowed.kill,
        borrowed.freeze,
        borrowed.standby,
        borrowed.restart,
        borrowed.promote,
    ):
        with pytest.raises(RuntimeError, match="MAINSPRING_TEST_DSN is not ours"):
            refused()


def test_the_address_of_a_borrowed_server_keeps_what_it_came_with(own_postgres: Server) -> None:
    address = f"postgresql://postgres:secret@{own_postgres.host}:{own_postgres.port}/template1?application_name=x"
    borrowed = BorrowedServer(address)

    assert borrowed.dsn() == address
    assert borrowed.dsn("postgres") == address.replace("template1", "postgres")
    assert borrowed.dsn(user="worker") == address.replace("postgres:secret@", "worker@")


@pytest.mark.slow
def test_a_suite_uses_the_server_that_is_named(own_postgres: Server, tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").touch()
    (tmp_path / "test_it.py").write_text(
        f"def test_it(postgres, new_schema): assert postgres.dsn() == {own_postgres.dsn()!r}", encoding="utf-8"
    )
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "tests.servers.fixtures", "-p", "no:cacheprovider"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT), "MAINSPRING_TEST_DSN": own_postgres.dsn()},
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )

    assert "1 passed" in done.stdout
    assert own_postgres.sql("SELECT 1") == [(1,)]
