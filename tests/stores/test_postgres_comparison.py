"""The same stories as in test_comparison.py, told to PostgreSQL."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from mainspring.stores.port import Store
from mainspring.stores.postgres import sight, through
from mainspring.testing.contract import SettableClock
from tests.servers.postgres import Server
from tests.stores.pair import Pair
from tests.stores.postgres_world import handle
from tests.stores.test_comparison import Stores
from tests.tier import FULL

SERVERS: list[Server] = []
"""The one that is used now: a state machine is made by hypothesis, which knows of no fixtures."""


@pytest.fixture(autouse=True, scope="module")
def server(postgres: Server) -> Iterator[None]:
    SERVERS.append(postgres)
    with pytest.MonkeyPatch.context() as patch:
        # In stories there are few jobs; a claim is to read so few at a time that it has to park, and to read more.
        patch.setattr(sight, "FIRST_ENTRIES_PER_SOURCE", -3)
        patch.setattr(through, "MANY", 2)
        yield
    SERVERS.clear()


class PostgresPair(Pair):
    """The memory store, and one in a schema of its own, which goes with it."""

    def __init__(self) -> None:
        self._schema = SERVERS[-1].schema()
        name = self._schema.__enter__()

        def second(_: Path, clock: SettableClock) -> Store:
            return handle(SERVERS[-1], name, clock)

        super().__init__(second)

    def close(self) -> None:
        super().close()
        self._schema.__exit__(None, None, None)


class PostgresStores(Stores):
    """Tells a story to PostgreSQL."""

    def pair(self) -> Pair:
        return PostgresPair()


TestStories = pytest.mark.slow(pytest.mark.timeout(900)(PostgresStores.TestCase))
TestStories.settings = settings(max_examples=60 if FULL else 10, stateful_step_count=50, report_multiple_bugs=False)
