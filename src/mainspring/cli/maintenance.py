"""What the owner of the tables on PostgreSQL does for those who only work with them: rights, and the days of history."""

import asyncpg

from mainspring.cli.codes import Code
from mainspring.cli.root import Refusal
from mainspring.errors import StoreError
from mainspring.stores.postgres import log, partitions
from mainspring.stores.postgres.connections import Connections
from mainspring.stores.postgres.migrate import found, grants
from mainspring.stores.postgres.settings import Settings
from mainspring.stores.postgres.statements import Statement, quoted
from mainspring.stores.postgres.verb import Ask, Verb


async def maintain(settings: Settings, roles: tuple[str, ...]) -> int:
    """Let roles work with the tables, and drop the days that are past their time; returns how many were."""
    connections = Connections(settings)
    await connections.open()
    try:
        for role in roles:
            await _grant(connections, settings, role)
        dropped = 0
        while await connections.run(lambda: partitions.drop(0), whole=True):
            dropped += 1
        await log.drop_days(connections)
        return dropped
    finally:
        await connections.close()


async def _grant(connections: Connections, settings: Settings, role: str) -> None:
    try:
        await connections.run(lambda: _granted(settings, role), whole=True)
    except StoreError as error:
        if not isinstance(error.__cause__, asyncpg.UndefinedObjectError):
            raise
        make = f"CREATE ROLE {quoted(role)} LOGIN PASSWORD '…'"
        raise Refusal(f"{settings.store}: there is no role {role}; make it first: {make}", Code.STORE) from error


def _granted(settings: Settings, role: str) -> Verb[None]:
    tables = yield from found(settings.schema)
    if not tables.may_make:
        problem = f"the role {tables.role} cannot give rights on its tables; run this as {tables.owner}"
        raise Refusal(f"{settings.store}: {problem}", Code.STORE)
    for text in grants(settings.schema, role):
        yield Ask(Statement("grant", text))
