"""The contract suite on PostgreSQL: on the newest that is here, and on the oldest."""

from collections.abc import Iterator
from typing import ClassVar

import pytest

from mainspring.testing import VirtualTime
from mainspring.testing.contract import (
    CostContract,
    LastingContract,
    LastingHarness,
    OverviewContract,
    OverviewCostContract,
    SettableClock,
    StoreContract,
    UpkeepContract,
)
from tests.servers.postgres import Server
from tests.servers.ready import ReadySchemas
from tests.stores.postgres_world import PostgresHarness


@pytest.fixture(scope="module")
def ready_on_the_oldest(oldest_postgres: Server) -> Iterator[ReadySchemas]:
    schemas = ReadySchemas(oldest_postgres)
    yield schemas
    schemas.close()


class OnPostgres:
    """On a schema that is not there yet."""

    patience: ClassVar = "10s"

    @pytest.fixture
    def harness(
        self, postgres: Server, new_schema: str, clock: SettableClock, virtual_time: VirtualTime
    ) -> Iterator[LastingHarness]:
        harness = PostgresHarness(postgres, new_schema, clock, patience=self.patience)
        yield harness
        virtual_time.run(harness.close())


class OnTheOldest:
    """Likewise."""

    patience: ClassVar = "10s"

    @pytest.fixture
    def harness(
        self, oldest_postgres: Server, clock: SettableClock, virtual_time: VirtualTime
    ) -> Iterator[LastingHarness]:
        with oldest_postgres.schema() as schema:
            harness = PostgresHarness(oldest_postgres, schema, clock, patience=self.patience)
            yield harness
            virtual_time.run(harness.close())


class OnReadyPostgres:
    """On a schema that others have used before."""

    @pytest.fixture
    def harness(
        self, postgres: Server, postgres_schema: str, clock: SettableClock, virtual_time: VirtualTime
    ) -> Iterator[LastingHarness]:
        harness = PostgresHarness(postgres, postgres_schema, clock)
        yield harness
        virtual_time.run(harness.close())


class OnTheOldestReady:
    """Likewise."""

    @pytest.fixture
    def harness(
        self,
        oldest_postgres: Server,
        ready_on_the_oldest: ReadySchemas,
        clock: SettableClock,
        virtual_time: VirtualTime,
    ) -> Iterator[LastingHarness]:
        with ready_on_the_oldest.one() as schema:
            harness = PostgresHarness(oldest_postgres, schema, clock)
            yield harness
            virtual_time.run(harness.close())


class TestPostgres(OnReadyPostgres, StoreContract): ...


class TestPostgresLasts(OnPostgres, LastingContract):
    patience: ClassVar = "1s"  # by itself each is alone in its schema: only what obstructs it makes it wait


class TestTheUpkeepOfPostgres(OnPostgres, UpkeepContract): ...


class TestTheOverviewOfPostgres(OnReadyPostgres, OverviewContract): ...


@pytest.mark.full
class TestTheOverviewOfTheOldestPostgres(OnTheOldestReady, OverviewContract): ...


@pytest.mark.slow
class TestTheCostOfTheOverviewOfPostgres(OnPostgres, OverviewCostContract): ...


@pytest.mark.full
class TestTheOldestPostgres(OnTheOldestReady, StoreContract): ...


@pytest.mark.full
class TestTheOldestPostgresLasts(OnTheOldest, LastingContract):
    patience: ClassVar = "1s"


@pytest.mark.slow
class TestTheCostOfPostgres(OnPostgres, CostContract): ...
