"""Giving a role of PostgreSQL's what workers need: rows of our tables, and nothing else."""

import asyncpg

from mainspring.cli.codes import Code
from mainspring.cli.root import Refusal
from mainspring.errors import StoreError
from mainspring.stores.postgres.connections import Connections
from mainspring.stores.postgres.migrate import found, grants
from mainspring.stores.postgres.settings import Settings
from mainspring.stores.postgres.statements import Statement, quoted
from mainspring.stores.postgres.verb import Ask, Verb


async def grant(settings: Settings, role: str) -> None:
    """Let a role work with the tables, all at once or not at all."""
    connections = Connections(settings)
    await connections.open()
    try:
        await connections.run(lambda: _granted(settings, role), whole=True)
    except StoreError as error:
        if not isinstance(error.__cause__, asyncpg.UndefinedObjectError):
            raise
        make = f"CREATE ROLE {quoted(role)} LOGIN PASSWORD '…'"
        raise Refusal(f"{settings.store}: there is no role {role}; make it first: {make}", Code.STORE) from error
    finally:
        await connections.close()


def _granted(settings: Settings, role: str) -> Verb[None]:
    tables = yield from found(settings.schema)
    if not tables.may_make:
        problem = f"the role {tables.role} cannot give rights on its tables; run this as {tables.owner}"
        raise Refusal(f"{settings.store}: {problem}", Code.STORE)
    for text in grants(settings.schema, role):
        yield Ask(Statement("grant", text))
