"""The contract of outboxes on PostgreSQL: on the newest that is here and on the oldest, and with every driver."""

from collections.abc import Iterator

import pytest

from mainspring.testing import VirtualTime
from mainspring.testing.contract import (
    OutboxesContract,
    OutboxesInTransactionsContract,
    OutboxesOfManyWritersContract,
    SettableClock,
    TransactionsHarness,
)
from tests.servers.postgres import Server
from tests.stores.test_postgres_contract import OnReadyPostgres, OnTheOldestReady, ready_on_the_oldest
from tests.stores.test_transactions_postgres import ALL, SOONER, PostgresTransactionsHarness

__all__ = ["ready_on_the_oldest"]  # fixtures, by their names


class TestTheOutboxesOfPostgres(OnReadyPostgres, OutboxesContract): ...


@pytest.mark.full
class TestTheOutboxesOfTheOldestPostgres(OnTheOldestReady, OutboxesContract): ...


class TestTheOutboxesOfPostgresInTransactions(OutboxesInTransactionsContract, OutboxesOfManyWritersContract):
    @pytest.fixture(
        params=[pytest.param(ALL[name], id=name, marks=[] if name in SOONER else pytest.mark.full) for name in ALL]
    )
    def harness(
        self,
        postgres: Server,
        postgres_schema: str,
        clock: SettableClock,
        virtual_time: VirtualTime,
        request: pytest.FixtureRequest,
    ) -> Iterator[TransactionsHarness]:
        harness = PostgresTransactionsHarness(postgres, postgres_schema, clock, request.param)
        yield harness
        virtual_time.run(harness.close())
