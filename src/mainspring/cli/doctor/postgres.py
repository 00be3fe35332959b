"""All that is looked at of a store in PostgreSQL before it is opened, from the ground up."""

import importlib.metadata
from collections.abc import AsyncIterator

from mainspring.cli.doctor import asked
from mainspring.cli.doctor.finding import Finding, Level, fail, ok
from mainspring.cli.doctor.reached import reached, try_hosts
from mainspring.cli.doctor.server import clocks, durability, pooler, room, vacuum, version
from mainspring.cli.doctor.tables import days, rights, schema
from mainspring.client.health.held import LONG
from mainspring.errors import StoreError
from mainspring.stores.postgres.connections import Connections
from mainspring.stores.postgres.migrate import found
from mainspring.stores.postgres.settings import Settings
from mainspring.stores.postgres.store import instant_there


async def examined(settings: Settings) -> AsyncIterator[Finding]:
    """Look at the server, then at our tables there; stops where nothing further can be seen."""
    yield ok("asyncpg", importlib.metadata.version("asyncpg"))
    try:
        tried = await try_hosts(settings)
        for finding in reached(settings, tried):
            yield finding
        if any(one.takes_writes for one in tried):
            for finding in await _inside(settings, len(tried)):
                yield finding
    except StoreError as error:
        yield fail("server", error.problem, "see the server's log")


async def _inside(settings: Settings, hosts: int) -> list[Finding]:
    connections = Connections(settings)
    await connections.open()
    try:
        return [*await _of_server(settings, connections, hosts), *await _of_tables(settings, connections)]
    finally:
        await connections.close()


async def _of_server(settings: Settings, connections: Connections, hosts: int) -> list[Finding]:
    server = await connections.run(asked.server)
    before = settings.clock.now()
    instant = await connections.run(instant_there)
    took = settings.clock.now() - before
    held, all_seen = await connections.run(lambda: asked.held(LONG))
    return [
        version(server),
        pooler(settings, pooled=bool(connections.pooled)),
        durability(server, hosts),
        clocks(instant - before - took / 2, took),
        room(server, settings),
        *vacuum(server, held, all_seen=all_seen),
    ]


async def _of_tables(settings: Settings, connections: Connections) -> list[Finding]:
    there = schema(settings, await connections.run(lambda: found(settings.schema)))
    if there.level is Level.FAIL:
        return [there]
    role = await connections.run(asked.role)
    if role.missing:
        return [there, rights(role)]
    return [there, rights(role), *days(await connections.run(asked.history), role)]
