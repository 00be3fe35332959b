"""The PostgreSQL store for the suites: handles on one schema of a server that the tests have started."""

import asyncpg

from mainspring.clock import Clock
from mainspring.stores.port import Store
from mainspring.stores.postgres import PostgresStore
from mainspring.testing.contract import SettableClock
from tests.servers.postgres import Server


def handle(server: Server, schema: str, clock: Clock, *, patience: str = "10s") -> PostgresStore:
    """Return a store that is not open yet."""
    return PostgresStore(server.dsn(), schema=schema, clock=clock, patience=patience)


class PostgresHarness:
    """Handles on one schema. They wait for as long as anyone waits; where something stands in their way, say `patience`."""

    def __init__(self, server: Server, schema: str, clock: SettableClock, *, patience: str = "10s") -> None:
        self.server = server
        self.schema = schema
        self._clock = clock
        self._patience = patience
        self._crashed: list[Store] = []
        self._obstacle: asyncpg.Connection | None = None

    async def open(self) -> Store:
        store = handle(self.server, self.schema, self._clock, patience=self._patience)
        await store.open()
        return store

    async def crash(self, store: Store) -> None:
        self._crashed.append(store)

    def unopened(self) -> Store:
        return handle(self.server, self.schema, self._clock)

    async def occupy(self) -> None:
        await self._execute(f'CREATE SCHEMA "{self.schema}"; CREATE TABLE "{self.schema}".jobs (title text)')

    async def outgrow(self) -> None:
        await self._execute(
            f'UPDATE "{self.schema}".versions SET version = version + 1, oldest_code = version + 1'  # noqa: S608 -- ours
        )

    async def content(self) -> object:
        connection = await self.connect()
        try:
            return await connection.fetch(
                "SELECT table_name, column_name, data_type FROM information_schema.columns"
                " WHERE table_schema = $1 ORDER BY 1, 2",
                self.schema,
            )
        finally:
            await connection.close()

    async def obstruct(self) -> None:
        self._obstacle = await self.connect()
        await self._obstacle.execute("BEGIN")
        await self._obstacle.execute(f'LOCK TABLE "{self.schema}".jobs IN ACCESS EXCLUSIVE MODE')

    async def clear(self) -> None:
        if self._obstacle:
            await self._obstacle.close()
        self._obstacle = None

    async def close(self) -> None:
        """Free what the crashed hold; by now nobody looks any more."""
        await self.clear()
        for store in self._crashed:
            await store.close()

    async def connect(self) -> "asyncpg.Connection":
        return await asyncpg.connect(self.server.dsn())

    async def _execute(self, script: str) -> None:
        connection = await self.connect()
        try:
            await connection.execute(script)
        finally:
            await connection.close()
