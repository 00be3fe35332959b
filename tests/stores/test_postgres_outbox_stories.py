"""Random stories about an outbox on PostgreSQL, where others write while a transaction is open."""

from typing import ClassVar

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from mainspring.stores.port import Store
from mainspring.testing.contract import SettableClock, UserTransaction
from tests.servers.postgres import Server
from tests.stores.outbox_stories import Ground, OutboxStories
from tests.stores.postgres_world import handle
from tests.stores.test_transactions_postgres import ALL, PostgresTransactionsHarness
from tests.tier import FULL


class OnPostgres:
    """A schema."""

    joins = True
    two_writers = True

    def __init__(self, server: Server) -> None:
        self.clock = SettableClock()
        self._server = server
        self._made = server.schema()
        self._schema = self._made.__enter__()
        self._harness = PostgresTransactionsHarness(server, self._schema, self.clock, ALL["asyncpg"])

    async def open(self) -> Store:
        store = handle(self._server, self._schema, self.clock)
        await store.open()
        return store

    async def begin(self) -> UserTransaction:
        return await self._harness.begin(blocking=False)

    def close(self) -> None:
        self._server.sql(f"DROP TABLE {self._schema}_numbers")
        self._made.__exit__(None, None, None)


@pytest.mark.timeout(900)
def test_any_story_is_that_of_a_list(postgres: Server) -> None:
    class Stories(OutboxStories):
        server: ClassVar = postgres

        def make(self) -> Ground:
            return OnPostgres(self.server)

    run_state_machine_as_test(
        Stories,
        settings=settings(
            max_examples=40 if FULL else 10, stateful_step_count=30, report_multiple_bugs=False, deadline=None
        ),
    )
