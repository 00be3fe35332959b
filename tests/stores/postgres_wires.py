"""What the tests of the PostgreSQL store's connections have in common: real time, small verbs, and who is connected."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine
from collections.abc import Set as AbstractSet
from contextlib import asynccontextmanager
from functools import wraps
from typing import Any, ParamSpec

import pytest

from mainspring.clock import SystemClock
from mainspring.stores.postgres.connections import Connections
from mainspring.stores.postgres.settings import Settings
from mainspring.stores.postgres.statements import Statement
from mainspring.stores.postgres.verb import Ask, Verb
from tests.servers.postgres import Server
from tests.servers.system import wait_until

P = ParamSpec("P")
LOGGER = "mainspring.stores.postgres"


def on_real_time(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Servers that restart, freeze and time out do so in real time."""

    @wraps(test)
    def plain(*args: P.args, **kwargs: P.kwargs) -> None:
        asyncio.run(test(*args, **kwargs))

    return plain


def settings(dsn: str, **changes: Any) -> Settings:  # noqa: ANN401 -- of Settings
    # Both longer than a busy machine may take; a test that is about one of them says how long.
    given: dict[str, Any] = {"timeout": 10.0, "patience": 60.0, "connections": 3, **changes}
    return Settings(dsn=dsn, clock=SystemClock(), **given)


@asynccontextmanager
async def opened(dsn: str, **changes: Any) -> AsyncIterator[Connections]:  # noqa: ANN401 -- of Settings
    connections = Connections(settings(dsn, **changes))
    await connections.open()
    try:
        yield connections
    finally:
        await connections.close()


def ask(text: str, *values: object) -> Callable[[], Verb[Any]]:
    """Return a verb of one statement, which answers with its one value."""

    def verb() -> Verb[Any]:
        rows = yield Ask(Statement("test", text), values)
        return rows[0][0] if rows else None

    return verb


one = ask("SELECT 1")
backend = ask("SELECT pg_backend_pid()")


def sleep(seconds: float) -> Callable[[], Verb[Any]]:
    return ask("SELECT pg_backend_pid() FROM pg_sleep($1)", seconds)


def together(count: int) -> Callable[[], Verb[int]]:
    """Return a verb that goes on until so many sessions have begun it, and answers with its session."""
    begun: set[int] = set()

    def verb() -> Verb[int]:
        ((session,),) = yield Ask(Statement("session", "SELECT pg_backend_pid()"))
        begun.add(session)
        try:
            while len(begun) < count:
                yield Ask(Statement("wait", "SELECT pg_sleep(0.01)"))
        except BaseException:  # the session is lost, and another try begins
            begun.discard(session)
            raise
        return int(session)

    return verb


async def run_together(connections: Connections, count: int, *, of: int | None = None) -> list[int]:
    """Use so many connections at the same time, by that number of verbs or more; returns the session of each verb."""
    verb = together(count)
    return await asyncio.gather(*(connections.run(verb) for _ in range(of or count)))


def asleep(server: Server) -> set[int]:
    """Find who is amid a statement of `sleep`."""
    return {
        pid
        for (pid,) in server.sql(
            "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'PgSleep'"
        )
    }


async def until_asleep(server: Server, *, besides: AbstractSet[int] = frozenset()) -> None:
    await asyncio.to_thread(wait_until, lambda: asleep(server) - besides, "somebody is amid a statement")


def sessions(server: Server) -> list[int]:
    """Find who is connected as we are."""
    rows = server.sql(
        "SELECT pid FROM pg_stat_activity WHERE datname = current_database() "
        "AND application_name = 'mainspring' ORDER BY backend_start"
    )
    return [pid for (pid,) in rows]


def lines(caplog: pytest.LogCaptureFixture, word: str) -> list[str]:
    """Find what was logged with that word in it."""
    return [
        record.getMessage()
        for record in caplog.records
        if record.name == LOGGER and record.levelno > logging.DEBUG and word in record.getMessage()
    ]
