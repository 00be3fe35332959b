"""What the stories about plugins share: an app on each store that needs nothing else."""

import os
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

HERE = Path(__file__).parent
MakeStore = Callable[[], Store]

STORES = ["memory", "sqlite", pytest.param("postgres", marks=pytest.mark.slow)]
# On PostgreSQL all of them take minutes more, which `make chaos` has; these are the short ones that say the most.
SHORT = {
    "test_a_node_that_runs_takes_up_a_plugin_at_once",
    "test_uninstalled_and_installed_at_once_schedules_go_on",
    "test_schedules_of_a_plugin_pause_while_it_is_uninstalled",
    "test_a_transaction_of_the_store_is_a_write_of_the_hosts",
    "test_losses_are_not_forgotten_while_a_host_is_not_there",
    "test_a_program_with_plugins_has_them_when_it_runs_work",
}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what takes long on PostgreSQL, unless there is time for it."""
    if os.environ.get("MAINSPRING_CHAOS") == "full":
        return
    long = [one for one in items if isinstance(one, pytest.Function) and _is_long(one)]
    if long:
        config.hook.pytest_deselected(items=long)
        items[:] = [one for one in items if one not in set(long)]


def _is_long(item: pytest.Function) -> bool:
    drawn = getattr(item, "callspec", None)
    on_postgres = drawn is not None and drawn.params.get("make_store") == "postgres"
    return on_postgres and item.path.parent == HERE and item.originalname not in SHORT


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
