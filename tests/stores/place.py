"""A store's tables without the store, for verbs in transactions of the user's own; and words for running them there."""

from collections.abc import Sequence
from itertools import count
from typing import Any
from uuid import UUID

import psycopg
import pytest

from mainspring.clock import SystemClock
from mainspring.core.backoff import Backoff
from mainspring.core.job import JobId
from mainspring.core.names import Name
from mainspring.core.unique import UniqueKey
from mainspring.stores.postgres.enqueue import Batch, enqueue
from mainspring.stores.postgres.migrate import MIGRATIONS
from mainspring.stores.postgres.settings import Settings
from mainspring.stores.postgres.statements import Statement, qualified
from mainspring.stores.postgres.verb import Ask, Verb
from mainspring.stores.records import Enqueued, NewJob
from mainspring.stores.transactions.postgres import run_in, run_in_sync
from tests.servers.postgres import Server
from tests.stores import ways
from tests.stores.ways import User, Way

_IDS = count(1)


def new(unique: UniqueKey | None = None) -> NewJob:
    id_ = JobId(UUID(int=0x018F << 112 | 0x7 << 76 | 0x8 << 60 | next(_IDS)))
    backoff = Backoff.fixed("10s")
    return NewJob(id=id_, task=Name("", "mail.send"), payload=b"\x00{}", backoff=backoff, max_attempts=3, unique=unique)


class Place:
    """A store's tables, and one of the user's beside them."""

    def __init__(self, server: Server, schema: str, database: str | None = None) -> None:
        self.server = server
        self.schema = schema
        self.dsn = server.dsn(database)
        self.settings = Settings(dsn=self.dsn, clock=SystemClock(), schema=schema)
        self._connection = psycopg.connect(self.dsn, autocommit=True, options="-c statement_timeout=10s")
        tables = "\n".join(migration.script for migration in MIGRATIONS)
        self.rows(f"CREATE SCHEMA {schema}; {tables}; CREATE TABLE mainspring.mine (number integer UNIQUE)")
        ((self.identity,),) = self.rows("SELECT identity FROM mainspring.rules")

    def rows(self, script: str) -> list[tuple[Any, ...]]:
        cursor = self._connection.execute(qualified(script, self.schema).encode())
        return cursor.fetchall() if cursor.description else []

    def write(self, number: int) -> str:
        return qualified(f"INSERT INTO mainspring.mine VALUES ({number})", self.schema)  # noqa: S608 -- a number of ours

    @property
    def numbers(self) -> list[int]:
        return [number for (number,) in self.rows("SELECT number FROM mainspring.mine ORDER BY 1")]

    @property
    def jobs(self) -> list[UUID]:
        return [id_ for (id_,) in self.rows("SELECT id FROM mainspring.jobs ORDER BY 1")]

    def clear(self) -> None:
        self.rows("DELETE FROM mainspring.jobs; DELETE FROM mainspring.unique_keys; DELETE FROM mainspring.mine")

    def close(self) -> None:
        self._connection.close()


every_way = pytest.mark.parametrize(
    "way", [pytest.param(way, id=name) for name, way in (ways.BLOCKING | ways.AWAITED).items()]
)
blocking_ways = pytest.mark.parametrize("way", [pytest.param(way, id=name) for name, way in ways.BLOCKING.items()])
awaited_ways = pytest.mark.parametrize("way", [pytest.param(way, id=name) for name, way in ways.AWAITED.items()])
# One of each driver, where the difference between its objects does not matter.
DRIVERS: dict[str, Way] = {
    name: (ways.BLOCKING | ways.AWAITED)[name]
    for name in ("asyncpg", "psycopg", "psycopg awaited", "sqlalchemy", "sqlalchemy asyncpg", "sqlalchemy psycopg")
}
every_driver = pytest.mark.parametrize("way", [pytest.param(way, id=name) for name, way in DRIVERS.items()])


def taking_in(jobs: Sequence[NewJob]) -> Verb[tuple[Enqueued, ...]]:
    return enqueue(None, Batch(jobs))


async def join(there: Place, user: User, jobs: Sequence[NewJob], *, whole: bool = False) -> list[bool]:
    answers = await run_in(user.handle, taking_in(jobs), there.settings, there.identity, whole=whole)
    return [answer.fresh for answer in answers]


def join_sync(there: Place, handle: object, jobs: Sequence[NewJob], *, whole: bool = False) -> list[bool]:
    answers = run_in_sync(handle, taking_in(jobs), there.settings, there.identity, whole=whole)
    return [answer.fresh for answer in answers]


def ask(text: str, *values: object) -> Ask:
    return Ask(Statement("a test's", text), values)
