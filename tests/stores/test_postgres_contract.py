"""The contract suite on PostgreSQL: on the newest that is here, and on the oldest."""

from collections.abc import Iterator

import pytest

from mainspring.testing import VirtualTime
from mainspring.testing.contract import (
    CostContract,
    LastingContract,
    LastingHarness,
    SettableClock,
    StoreContract,
    UpkeepContract,
)
from tests.servers.postgres import Server
from tests.stores.postgres_world import PostgresHarness


class OnPostgres:
    @pytest.fixture
    def harness(
        self, postgres: Server, postgres_schema: str, clock: SettableClock, virtual_time: VirtualTime
    ) -> Iterator[LastingHarness]:
        harness = PostgresHarness(postgres, postgres_schema, clock)
        yield harness
        virtual_time.run(harness.close())


class OnTheOldest:
    @pytest.fixture
    def harness(
        self, oldest_postgres: Server, clock: SettableClock, virtual_time: VirtualTime
    ) -> Iterator[LastingHarness]:
        with oldest_postgres.schema() as schema:
            harness = PostgresHarness(oldest_postgres, schema, clock)
            yield harness
            virtual_time.run(harness.close())


class TestPostgres(OnPostgres, StoreContract): ...


@pytest.mark.quick
class TestPostgresLasts(OnPostgres, LastingContract): ...


class TestTheUpkeepOfPostgres(OnPostgres, UpkeepContract): ...


@pytest.mark.slow
class TestTheOldestPostgres(OnTheOldest, StoreContract): ...


@pytest.mark.slow
class TestTheOldestPostgresLasts(OnTheOldest, LastingContract): ...


@pytest.mark.slow
class TestTheCostOfPostgres(OnPostgres, CostContract): ...
