"""Opening a connection, to the first of the hosts that takes writes, within one timeout for all of them.

Connections of ours say what they want set when they begin: plans that do not hang on statistics, and limits, so that
no server goes on for ever for a client that is gone. A pooler such as PgBouncer refuses or forgets that; then it is
done without, and nothing that would need a server connection of one's own is used.
"""

import asyncio
import os
import time
from typing import Any, Final

import asyncpg
from asyncpg.connect_utils import SessionAttribute

from mainspring.errors import StoreError
from mainspring.stores.postgres.connected import Connected, Connection
from mainspring.stores.postgres.hosts import Host, hosts, options
from mainspring.stores.postgres.settings import Settings
from mainspring.stores.postgres.trouble import refuses_settings, said

# One walk is left that none of these keeps away: along an index as a whole, where a table seems to have a single row
# that is alive. Statements forbid it by `= ANY (ARRAY[…])` where they join a list (docs/decisions/0041).
_PLANS: Final = {
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "jit": "off",
    # Planned once for each connection: planning a claim takes as long as carrying it out.
    "plan_cache_mode": "force_generic_plan",
}
# Roles that may create functions and operators in some other schema must not have them run by our statements. Set by a
# statement and not at connect: then DEFAULT is still the search path of the role, for the transactions of handlers.
_PATH: Final = {"search_path": "pg_catalog, pg_temp"}
_PIN_PATH: Final = f"SET search_path = {_PATH['search_path']}"
_USUAL_PLANS: Final = {name: "auto" if name == "plan_cache_mode" else "on" for name in _PLANS}
# Of a query that is answered by how many rows it has: simple, because a prepared one would stay with the server
# connection that a pooler happened to give, and be in the way of whoever gets that next.
_IS_SET: Final = "SELECT 1 WHERE pg_catalog.current_setting('enable_seqscan') = 'off'"
_IS_PRIMARY: Final = "SELECT 1 WHERE NOT pg_catalog.pg_is_in_recovery()"
_ONE_ROW: Final = "SELECT 1"
_BEGIN: Final = "BEGIN ISOLATION LEVEL READ COMMITTED"


class OwnConnection(asyncpg.Connection):
    """A connection that is closed in a forked child: the session is the parent's, who would lose it otherwise."""

    __slots__ = ("_home",)

    def __init__(self, *args: Any) -> None:  # noqa: ANN401 -- asyncpg's own affair
        self._home = os.getpid()
        super().__init__(*args)

    def is_closed(self) -> bool:
        return os.getpid() != self._home or super().is_closed()


async def connect(
    settings: Settings, *, pooled: bool | None = None, dsn: str | None = None, first: int = 0
) -> Connected:
    """Open one connection.

    `pooled` is what is known about a pooler in between, `first` the host to begin with, by its position; both can be
    read from an earlier connection. Raises the driver's own errors; `ConnectionError` with all of them, if there are
    several hosts.
    """
    dsn = dsn or settings.dsn
    try:
        all_hosts = hosts(dsn)
    except ValueError as error:
        raise unreadable(settings, error) from None
    order = [*range(first, len(all_hosts)), *range(min(first, len(all_hosts)))]
    end = time.monotonic() + settings.timeout
    troubles: list[tuple[str, Exception]] = []
    for tried, position in enumerate(order):
        host = all_hosts[position]
        share = (end - time.monotonic()) / (len(order) - tried)
        try:
            async with asyncio.timeout(share):
                connection, pooled_there = await _reach(settings, host, pooled)
        except TimeoutError:
            troubles.append((host.name, TimeoutError(f"no answer within {share:.1f} s")))
        except Exception as error:  # noqa: BLE001 -- told at the end, once all were tried
            troubles.append((host.name, error))
        else:
            return Connected(connection, settings.timeout, pooled=pooled_there, host=position)
    if len(troubles) == 1:
        raise troubles[0][1]
    raise ConnectionError("; ".join(f"{name}: {said(error)}" for name, error in troubles)) from troubles[-1][1]


async def _reach(settings: Settings, host: Host, pooled: bool | None) -> tuple[Connection, bool]:
    if not pooled:
        try:
            connection = await _open(settings, host, wanted(settings))
        except asyncpg.PostgresError as error:
            if not refuses_settings(error):
                raise
        else:
            known = pooled is False or "enable_seqscan" in options(host.dsn)
            if known or await _answers(connection, _IS_SET):
                await _do(connection, _PIN_PATH)
                return connection, False
            connection.terminate()
    connection = await _open(settings, host, None)
    must_write = options(host.dsn).get("target_session_attrs", "read-write") in {"primary", "read-write"}
    if must_write and not await _answers(connection, _IS_PRIMARY):
        connection.terminate()
        raise asyncpg.TargetServerAttributeNotMatched("the pooler leads to a server that takes no writes")
    return connection, True


async def _open(settings: Settings, host: Host, wanted: dict[str, str] | None) -> Connection:
    given = options(host.dsn)
    own = None if wanted is None else {key: value for key, value in wanted.items() if key not in given}
    target = SessionAttribute.any if own is None else SessionAttribute.read_write
    try:
        connection: Connection = await asyncpg.connect(
            host.dsn,
            timeout=settings.timeout + 1,  # ours is shorter
            connection_class=OwnConnection,
            server_settings=own,
            target_session_attrs=None if "target_session_attrs" in given else target,
            # What was prepared stays so: its text never changes, and is looked up by the driver each time.
            statement_cache_size=0 if own is None else 500,
            max_cached_statement_lifetime=0,
            max_cacheable_statement_size=0,
        )
    except ValueError as error:  # of the driver's reading of the DSN
        raise unreadable(settings, error) from None
    return connection


async def _answers(connection: Connection, query: str) -> bool:
    return await _do(connection, query) == _ONE_ROW


async def _do(connection: Connection, statement: str) -> str:
    try:
        return await connection.execute(statement)
    except BaseException:
        connection.terminate()
        raise


def wanted(settings: Settings) -> dict[str, str]:
    """Say what our own connections want set."""
    return {
        "application_name": "mainspring",
        # The statements are written for it, whatever the database's own default is.
        "default_transaction_isolation": "read committed",
        **_PLANS,
        **_limits(settings.timeout, settings.patience),
    }


def begin(settings: Settings, seconds: float, *, pooled: bool) -> str:
    """Return how to begin a transaction of ours; what the connection has set already is not set again."""
    plans = _PLANS | _PATH if pooled else {}
    limits = _limits(seconds, settings.patience) if pooled or seconds != settings.timeout else {}
    return _begin(plans | limits)


def begin_lease(settings: Settings, seconds: float, *, pooled: bool) -> str:
    """Return how to begin a transaction for a handler, whose own statements use the usual plans and search path."""
    plans = {} if pooled else _USUAL_PLANS | {"search_path": "DEFAULT"}
    return _begin(plans | _limits(seconds, settings.patience))


def _begin(local: dict[str, str]) -> str:
    return "; ".join([_BEGIN, *(f"SET LOCAL {name} = {value}" for name, value in local.items())])


def _limits(seconds: float, patience: float) -> dict[str, str]:
    """Say after which times, in milliseconds, a server ends by itself what a client with that timeout asked for.

    The lock's comes before the client's own, so that waiting for a lock costs no connection; the others come later.
    """
    late = str(round(1000 * (seconds + 1)))
    return {
        "statement_timeout": late,
        "idle_in_transaction_session_timeout": late,
        "lock_timeout": str(max(1, round(1000 * min(0.8 * seconds, patience)))),
    }


def unreadable(settings: Settings, error: ValueError) -> StoreError:
    """Say that the URL is wrong, without a word of it: the driver may quote what it takes for a port and is a password."""
    if isinstance(error, asyncpg.ClientConfigurationError):
        return StoreError(settings.store, f"the URL asks for what cannot be ({error})")
    advice = "write it as postgresql://user:password@host:port/database, special characters as %40 and so on"
    return StoreError(settings.store, f"the URL cannot be read; {advice}")
