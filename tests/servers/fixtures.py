"""Servers as fixtures. Each process of pytest-xdist has its own, which starts with the first test that asks for it.

Tests that kill a server do not use these; they make their own with `new_server`.
"""

import os
from collections.abc import Iterator

import pytest

from tests.servers.borrowed import BorrowedServer
from tests.servers.postgres import NoPostgres, Server, new_server, versions


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    """A running server of the version that is preferred, or the one of `$MAINSPRING_TEST_DSN`."""
    dsn = os.environ.get("MAINSPRING_TEST_DSN")
    if dsn:
        yield BorrowedServer(dsn)
    else:
        with made() as server:
            yield server


@pytest.fixture(scope="session")
def own_postgres(postgres: Server) -> Iterator[Server]:
    """A running server that lets everyone in: for tests that put a `Pooler` or a `Wire` before it."""
    if isinstance(postgres, BorrowedServer):
        with made() as server:
            yield server
    else:
        yield postgres


@pytest.fixture(scope="session")
def oldest_postgres() -> Iterator[Server]:
    """A running server of the oldest version that can be had here."""
    with made(min(versions(), default=None)) as server:
        yield server


@pytest.fixture
def postgres_schema(postgres: Server) -> Iterator[str]:
    """A name for a schema that is not there yet, and is dropped afterwards."""
    with postgres.schema() as name:
        yield name


def made(version: int | None = None) -> Server:
    try:
        return new_server(version=version)
    except NoPostgres as error:
        pytest.fail(str(error), pytrace=False)
