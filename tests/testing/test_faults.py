from pathlib import Path

import pytest

from mainspring.stores.adopting import Adopts
from mainspring.stores.held import HoldsBack
from mainspring.stores.memory import MemoryStore
from mainspring.stores.outbox import Outboxes
from mainspring.stores.overview import Overview
from mainspring.stores.port import Store, Transactions, Upkeep
from mainspring.stores.sidecar import SidecarStore
from mainspring.stores.sqlite import SqliteStore
from mainspring.testing.faults import FaultyStore

ROLES = (Adopts, HoldsBack, Outboxes, Overview, Transactions, Upkeep)


@pytest.mark.parametrize("kind", ["memory", "sqlite", "sidecar"])
def test_a_faulty_store_has_the_roles_of_the_store_within(kind: str, tmp_path: Path) -> None:
    stores: dict[str, Store] = {
        "memory": MemoryStore(),
        "sqlite": SqliteStore(tmp_path / "jobs.db"),
        "sidecar": SidecarStore(tmp_path),
    }
    store = stores[kind]
    roles = {role for role in ROLES if isinstance(store, role)}
    assert roles, "a store without any role would show nothing"
    assert {role for role in ROLES if isinstance(FaultyStore(store).as_store, role)} == roles
