"""A PgBouncer in transaction mode in front of a server: a connection lasts for a transaction, whoever sends the next.

The package is not on PyPI; tests say `@pytest.mark.needs("pgbouncer")`.
"""

import os
import shutil
from pathlib import Path

from tests.servers.postgres import Server, dsn_of
from tests.servers.program import Program

HOW_TO_GET = "Debian: apt-get install pgbouncer; macOS: brew install pgbouncer"

# Whoever has a role on the server is let in: the pooler looks it up there as postgres.
CONFIGURATION = """
[databases]
* = host={server.host} port={server.port} auth_user=postgres

[pgbouncer]
listen_addr = {pooler.host}
listen_port = {pooler.port}
unix_socket_dir =
auth_type = trust
auth_file = {users}
admin_users = postgres
pool_mode = transaction
default_pool_size = {pooler.size}
max_client_conn = 500
server_login_retry = 0.1
"""


def find() -> str | None:
    """Look on PATH, and where Debian puts it, which is on the PATH of root only."""
    return shutil.which("pgbouncer", path=os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin"]))


class Pooler(Program):
    """One pooler, on a port of its own; every pair of database and user shares `size` connections."""

    def __init__(self, server: Server, *, size: int = 4) -> None:
        found = find()
        if found is None:
            raise FileNotFoundError(f"pgbouncer is missing. {HOW_TO_GET}")
        super().__init__("pgbouncer")
        self.bin = Path(found)
        self.server = server
        self.size = size

    def dsn(self, database: str | None = None, user: str | None = None) -> str:
        return dsn_of(self.host, self.port, database or self.server.database, user)

    def start(self) -> None:
        """Start it and wait until it takes connections."""
        self.launch(lambda: [self.bin, self._configured()], lambda log: "process up" in log)

    def restart(self) -> None:
        """Start it again on the same port; all connections through it are closed."""
        self.kill()
        self.start()

    def _configured(self) -> Path:
        users = self.folder / "users.txt"
        users.write_text('"postgres" ""\n', encoding="utf-8")
        configuration = self.folder / "pgbouncer.ini"
        text = CONFIGURATION.format(server=self.server, pooler=self, users=users)
        configuration.write_text(text, encoding="utf-8")
        return configuration
