"""The contract of transactions on PostgreSQL: with every driver that a user may have."""

from collections.abc import Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import NamedTuple

import pytest

from mainspring.testing import VirtualTime
from mainspring.testing.contract import SettableClock, TransactionsContract, TransactionsHarness, UserTransaction
from tests.servers.postgres import Server
from tests.stores import ways
from tests.stores.postgres_world import PostgresHarness
from tests.stores.ways import User, Way

ELSEWHERE = "template1"  # there on every server


class Drivers(NamedTuple):
    """What one test uses: a driver that blocks, one that is awaited, and one that commits each statement."""

    blocking: Way
    awaited: Way
    committing: Way


@dataclass(frozen=True, slots=True)
class Begun:
    """A transaction of the user's own; whoever ends it has let go of everything."""

    user: User
    stack: AsyncExitStack

    @property
    def handle(self) -> object:
        return self.user.handle

    async def commit(self) -> None:
        async with self.stack:
            await self.user.commit()

    async def rollback(self) -> None:
        async with self.stack:
            await self.user.rollback()


class PostgresTransactionsHarness(PostgresHarness):
    """Handles on one schema, with a table of the user's beside ours."""

    def __init__(self, server: Server, schema: str, clock: SettableClock, drivers: Drivers) -> None:
        super().__init__(server, schema, clock)
        self._drivers = drivers
        self._table = f"{schema}_numbers"
        self.write_number = f"INSERT INTO {self._table} (number) VALUES ($1)"  # noqa: S608 -- a name of ours
        self._begun: list[Begun] = []
        server.sql(f"CREATE TABLE {self._table} (number integer)")

    async def numbers(self) -> list[int]:
        read = f"SELECT number FROM {self._table} ORDER BY number"  # noqa: S608 -- a name of ours
        return [number for (number,) in self.server.sql(read)]

    async def begin(self, *, blocking: bool) -> UserTransaction:
        way = self._drivers.blocking if blocking else self._drivers.awaited
        begun = await self._begin(way, self.server.dsn())
        await begun.user.run(self.write_number.replace("$1", "1"))
        return begun

    async def begin_elsewhere(self) -> UserTransaction:
        return await self._begin(self._drivers.blocking, self.server.dsn(ELSEWHERE))

    async def commit_each(self) -> UserTransaction:
        return await self._begin(self._drivers.committing, self.server.dsn())

    async def close(self) -> None:
        for begun in self._begun:
            await begun.stack.aclose()
        self.server.sql(f"DROP TABLE {self._table}")
        await super().close()

    async def _begin(self, way: Way, dsn: str) -> Begun:
        stack = AsyncExitStack()
        begun = Begun(await stack.enter_async_context(way(dsn)), stack)
        self._begun.append(begun)
        return begun


ALL = {
    "asyncpg": Drivers(ways.psycopg_connection, ways.asyncpg_connection, ways.asyncpg_committing),
    "psycopg": Drivers(ways.psycopg_connection, ways.psycopg_awaited, ways.psycopg_committing),
    "sqlalchemy connection": Drivers(
        ways.sqlalchemy_connection, ways.sqlalchemy_awaited("asyncpg"), ways.sqlalchemy_committing
    ),
    "sqlalchemy session, asyncpg": Drivers(
        ways.sqlalchemy_session, ways.sqlalchemy_awaited_session("asyncpg"), ways.COMMITTING["sqlalchemy asyncpg"]
    ),
    "sqlalchemy session, psycopg": Drivers(
        ways.sqlalchemy_session, ways.sqlalchemy_awaited_session("psycopg"), ways.COMMITTING["sqlalchemy psycopg"]
    ),
}
SOONER = (
    "asyncpg",
    "sqlalchemy session, psycopg",
)  # the others go the same way, or one of test_transactions_drivers.py


class TestPostgresInTransactions(TransactionsContract):
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
