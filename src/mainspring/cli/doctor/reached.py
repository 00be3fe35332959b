"""Whether a PostgreSQL server can be reached, host by host, and what to do where it cannot."""

import asyncio
import shlex
import socket
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final, NamedTuple
from urllib.parse import unquote, urlsplit

import asyncpg

from mainspring.cli.doctor.finding import Finding, fail, ok, warn
from mainspring.client.words import count
from mainspring.errors import StoreError
from mainspring.stores.postgres.connect import connect, unreadable
from mainspring.stores.postgres.hosts import Host, hosts, options
from mainspring.stores.postgres.settings import Settings
from mainspring.stores.postgres.trouble import said, translated

_PASSWORD: Final = "correct them in the URL, $PGPASSWORD or ~/.pgpass, or what the server's pg_hba.conf allows"  # noqa: S105 -- no password
_DO: Final = {
    "28P01": _PASSWORD,
    "28000": _PASSWORD,
    "53300": "raise its max_connections, or have fewer connections: of other programs, or by connections= in the URL",
    "57P03": "wait; it is starting up or shutting down, and its log says why",
    "42704": "correct the options behind the question mark in the URL",
}


class Tried(NamedTuple):
    """How it went with one host."""

    host: Host
    pooled: bool = False
    error: Exception | None = None

    @property
    def takes_writes(self) -> bool:
        return self.error is None

    @property
    def is_standby(self) -> bool:
        return isinstance(self.error, asyncpg.TargetServerAttributeNotMatched)


async def try_hosts(settings: Settings) -> list[Tried]:
    """Try all hosts of a DSN at once; raises `StoreError` if it cannot be read."""
    try:
        found = hosts(settings.dsn)
    except ValueError as error:
        raise unreadable(settings, error) from None
    return await asyncio.gather(*(_try(settings, host) for host in found))


async def _try(settings: Settings, host: Host) -> Tried:
    try:
        connected = await connect(replace(settings, dsn=host.dsn))
    except Exception as error:  # noqa: BLE001 -- whatever it is, it is told
        return Tried(host, error=error)
    await connected.close(settings.timeout)
    return Tried(host, connected.pooled)


def reached(settings: Settings, tried: Sequence[Tried]) -> Iterator[Finding]:
    """Say how it went. Without a host that takes writes nothing further can be seen."""
    writes = [one.host.name for one in tried if one.takes_writes]
    standbys = [one.host.name for one in tried if one.is_standby]
    if writes:
        also = f"; {count(len(standbys), 'standby', 'standbys')}: {', '.join(standbys)}" if standbys else ""
        yield ok("server", f"{', '.join(writes)} takes writes{also}")
    elif standbys:
        do = "promote one, or add the primary to the hosts in the URL"
        yield fail("server", f"it takes no writes, it is a standby: {', '.join(standbys)}", do)
    for one in tried:
        if one.error is not None and not one.is_standby:
            tell = warn if writes else fail
            yield tell("server", f"{one.host.name}: {_told(settings, one.error)}", advice(one.host, one.error))


def _told(settings: Settings, error: Exception) -> str:
    if isinstance(error, asyncpg.PostgresError):
        return said(error)
    ours = translated(settings, error)
    return ours.problem if isinstance(ours, StoreError) else f"{type(error).__name__}: {said(error)}"


def advice(host: Host, error: Exception) -> str:
    """Say what to do about an error at connecting."""
    match error:
        case asyncpg.PostgresError(sqlstate="3D000"):
            return f"make it, `{createdb(host)}`, or correct the URL"
        case asyncpg.PostgresError():
            return _DO.get(error.sqlstate or "", "see the server's log")
        case TimeoutError():
            return (
                "see whether the server hangs, or something on the way drops what is sent: a firewall, a wrong address"
            )
        case socket.gaierror():
            return "correct the host's name in the URL"
        case ConnectionRefusedError() | FileNotFoundError():
            return "start the server, or correct host and port in the URL; see its listen_addresses"
        case OSError():
            return "see whether host and port in the URL are right, and the server runs"
        case _:
            return "correct the URL"


def createdb(host: Host) -> str:
    """Return the command that makes the database of a DSN; a password is not in it."""
    parts, given = urlsplit(host.dsn), options(host.dsn)
    named = {
        "host": unquote(parts.hostname or "") or given.get("host"),
        "port": str(parts.port) if parts.port else given.get("port"),
        "username": unquote(parts.username or "") or given.get("user"),
    }
    database = unquote(parts.path.lstrip("/")) or given.get("dbname") or given.get("database") or ""
    words = ["createdb", *(f"--{name}={value}" for name, value in named.items() if value), database]
    return shlex.join(filter(None, words))
