"""PostgreSQL servers as fixtures: one of the preferred version, which all processes of pytest-xdist share, and others.

Tests that stop or kill a server do not use these; they make their own with `new_server`.
"""

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest

from tests.servers import shared
from tests.servers.borrowed import BorrowedServer
from tests.servers.postgres import NoPostgres, Server, new_server, versions

if TYPE_CHECKING:
    from tests.servers.ready import ReadySchemas


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:  # noqa: ANN401 -- pytest-xdist has no types
    shared.start_for_all(node.config, node.workerinput)


def pytest_unconfigure(config: pytest.Config) -> None:
    """End the servers; not as the end of a fixture, whose time counts towards the timeout of the last test."""
    shared.close(config)


@pytest.fixture(scope="session")
def postgres(request: pytest.FixtureRequest) -> Iterator[Server]:
    """A running server of the version that is preferred, or the one of `$MAINSPRING_TEST_DSN`."""
    dsn = os.environ.get("MAINSPRING_TEST_DSN")
    if dsn is None:
        yield preferred_server(request)
        return
    borrowed = BorrowedServer(dsn)
    if not hasattr(request.config, "workerinput"):
        yield borrowed
        return
    name = f"mainspring_tests_{uuid4().hex[:8]}"  # each process has a database of its own
    borrowed.sql(f"CREATE DATABASE {name}")
    yield BorrowedServer(borrowed.dsn(name))
    borrowed.sql(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture(scope="session")
def own_postgres(request: pytest.FixtureRequest) -> Server:
    """A running server that trusts every client: for tests that put a `Pooler` or a `Wire` in front of it."""
    return preferred_server(request)


@pytest.fixture(scope="session")
def quiet_postgres() -> Iterator[Server]:
    """A running server of this process alone.

    Transactions keep dead rows of all databases of their server. So tests that count pages need one without others.
    """
    with unshared_server() as server:
        yield server


@pytest.fixture(scope="session")
def oldest_postgres(request: pytest.FixtureRequest) -> Server:
    """A running server of the oldest version that is installed."""
    preferred, oldest = preferred_server(request), min(versions(), default=None)
    return preferred if preferred.version == oldest else shared.start(request.config, oldest)


@pytest.fixture(scope="session")
def ready_schemas(postgres: Server) -> Iterator["ReadySchemas"]:
    """Schemas with the tables of a store, used by one test after the other."""
    from tests.servers.ready import ReadySchemas  # noqa: PLC0415 -- imports the store, which most runs do not need

    schemas = ReadySchemas(postgres)
    yield schemas
    schemas.close()


@pytest.fixture
def postgres_schema(ready_schemas: "ReadySchemas") -> Iterator[str]:
    """The name of a schema with the tables of a store, all of them empty."""
    with ready_schemas.one() as name:
        yield name


@pytest.fixture
def new_schema(postgres: Server) -> Iterator[str]:
    """A name for a schema that does not exist yet, and is dropped afterwards."""
    with postgres.schema() as name:
        yield name


def preferred_server(request: pytest.FixtureRequest) -> Server:
    try:
        return shared.shared(request.config)
    except NoPostgres as error:
        pytest.fail(str(error), pytrace=False)


def unshared_server() -> Server:
    try:
        return new_server()
    except NoPostgres as error:
        pytest.fail(str(error), pytrace=False)
