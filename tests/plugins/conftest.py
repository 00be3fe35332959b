"""What the stories about plugins share: an app on each store that needs nothing else."""

from collections.abc import Callable
from pathlib import Path

import pytest

from mainspring import Mainspring
from mainspring.stores.memory import MemoryStore
from mainspring.stores.port import Store
from mainspring.stores.postgres import PostgresStore
from mainspring.stores.sqlite import SqliteStore
from mainspring.testing import VirtualTime
from tests.servers.postgres import Server

MakeStore = Callable[[], Store]

STORES = ["memory", "sqlite", "postgres"]


@pytest.fixture(params=STORES)
def make_store(request: pytest.FixtureRequest, tmp_path: Path, virtual_time: VirtualTime) -> MakeStore:
    """Make handles on one and the same state."""
    if request.param == "sqlite":
        return lambda: SqliteStore(tmp_path / "jobs.db", clock=virtual_time.clock)
    if request.param == "postgres":
        server: Server = request.getfixturevalue("postgres")
        schema: str = request.getfixturevalue("postgres_schema")
        return lambda: PostgresStore(server.dsn(), schema=schema, clock=virtual_time.clock)
    return MemoryStore(clock=virtual_time.clock).another


@pytest.fixture
def app(make_store: MakeStore, virtual_time: VirtualTime) -> Mainspring:
    return Mainspring(make_store(), clock=virtual_time.clock)


@pytest.fixture
def another_app(make_store: MakeStore, virtual_time: VirtualTime) -> Callable[[], Mainspring]:
    """Make further programs on the same store."""
    return lambda: Mainspring(make_store(), clock=virtual_time.clock)
