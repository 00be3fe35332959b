"""One server for all processes of pytest-xdist, with a database for each.

The process that hands out the tests starts it before all others and ends it after them, so it does not depend on any of
those that run tests. They receive its address with their configuration.
"""

import os
from pathlib import Path

import pytest

from tests.servers.borrowed import BorrowedServer
from tests.servers.postgres import NoPostgres, Server, new_server

CONNECTIONS = 100
"""Connections that the tests of one process open at most."""
SERVERS = pytest.StashKey[dict[int | None, Server]]()
"""The servers that a process has started, by version; None is the preferred one."""
SHARED = pytest.StashKey["SharedServer"]()
NAME = "mainspring_postgres"
"""Key of the address in the configuration of a process."""


class SharedServer(BorrowedServer):
    """The server that another process has started, with a database of this one."""

    def __init__(self, dsn: str, folder: Path) -> None:
        super().__init__(dsn)
        self.bin = folder
        self.durable = False


def start_for_all(config: pytest.Config, workerinput: dict[str, object]) -> None:
    """Start the server that all processes share, unless the tests of this run use none; add its address to an input."""
    if "not slow" in config.getoption("-m"):
        return
    try:
        server = start(config)
    except NoPostgres:
        return  # tests that need one report that
    workerinput[NAME] = [server.dsn(), str(server.bin)]


def start(config: pytest.Config, version: int | None = None) -> Server:
    """Return the server of a version that this process has started."""
    servers = config.stash.setdefault(SERVERS, {})
    if version not in servers:
        processes = getattr(config.option, "numprocesses", None) or 1
        options = {"max_connections": str(CONNECTIONS * max(4, processes))}
        server = new_server(version=version, options=options)
        server.start()
        servers[version] = server
    return servers[version]


def shared(config: pytest.Config) -> Server:
    """Return the server that all processes share, or that of this process if there is no other."""
    workerinput = getattr(config, "workerinput", {})
    if NAME not in workerinput:
        return start(config)
    if SHARED not in config.stash:
        dsn, folder = workerinput[NAME]
        database = f"tests_{os.environ['PYTEST_XDIST_WORKER']}"
        BorrowedServer(dsn).sql(f"CREATE DATABASE {database}")
        config.stash[SHARED] = SharedServer(BorrowedServer(dsn).dsn(database), Path(folder))
    return config.stash[SHARED]


def close(config: pytest.Config) -> None:
    """End the servers of this process."""
    for server in config.stash.get(SERVERS, {}).values():
        server.close()
    config.stash[SERVERS] = {}
