"""A PostgreSQL server for tests: started, stopped, killed, frozen, and followed by a standby.

It listens on 127.0.0.1 only and trusts everyone there. Its data is in a temporary folder and goes with it. Unless it
is `durable` it does not wait for the disk: quicker, but a kill may cost it the commits of the last half second.

Imports nothing of pytest: benchmarks and chaos tests use it too.
"""

import os
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote
from uuid import uuid4

from tests.servers.binaries import NoPostgres, binaries, major, versions
from tests.servers.program import Program, tail
from tests.servers.system import HOST, command, remove_shared_memory, wait_until

__all__ = ["NoPostgres", "Server", "binaries", "new_server", "versions"]

SETTINGS = {
    "listen_addresses": HOST,
    "unix_socket_directories": "",
    "max_connections": "200",
    "wal_level": "replica",
    "max_wal_senders": "8",
    "hot_standby": "on",
    "wal_keep_size": "512MB",  # for a standby that was down for a while
    "wal_retrieve_retry_interval": "100ms",  # of 5 s, which a promotion would have to wait for
    "dynamic_shared_memory_type": "mmap",  # in the data folder, so that a kill leaves nothing in /dev/shm
    "log_line_prefix": "%m [%p] %a ",
    # Neither UTC nor whole hours away: whatever depends on the server's zone shows.
    "timezone": "Asia/Kathmandu",
}
# A transaction that a test has forgotten would keep the drop waiting for ever; so it is named instead.
DROP = """
DO $$ BEGIN
    SET LOCAL lock_timeout = '{patience}';
    DROP SCHEMA IF EXISTS {name} CASCADE;
EXCEPTION WHEN lock_not_available THEN
    RAISE EXCEPTION 'a transaction was left open on {name}: %', (
        SELECT string_agg(format('%s %s, last: %s', pid, application_name, query), '; ') FROM pg_stat_activity
        WHERE state LIKE 'idle in transaction%' AND datname = current_database()
    );
END $$
"""
Row = tuple[Any, ...]
DURABLE = ("fsync", "synchronous_commit", "full_page_writes")


class Server(Program):
    """One server."""

    def __init__(
        self, *, durable: bool = False, version: int | None = None, options: Mapping[str, str] | None = None
    ) -> None:
        self.bin = binaries(version)
        super().__init__("postgres")
        self.version = major(self.bin)
        self.durable = durable
        self._options = options or {}
        self._standbys: list[str] = []

    @property
    def data(self) -> Path:
        return self.folder / "data"

    @property
    def database(self) -> str:
        """The database that `dsn` names if not asked for another."""
        return "postgres"

    def dsn(self, database: str | None = None, user: str | None = None) -> str:
        return dsn_of(self.host, self.port, database, user)

    def sql(self, statement: str, values: Sequence[object] = (), *, database: str | None = None) -> list[Row]:
        """Run a statement as superuser, committed at once; values at %s."""
        import psycopg  # noqa: PLC0415 -- costs 0.1 s, and pytest imports this module in every run

        with psycopg.connect(self.dsn(database), autocommit=True, connect_timeout=10) as connection:
            cursor = connection.execute(statement.encode(), values or None)
            return cursor.fetchall() if cursor.description is not None else []

    @contextmanager
    def schema(self, *, patience: str = "10s") -> Iterator[str]:
        """Think of a name for a schema, and drop the schema afterwards where there is one."""
        name = f"test_{uuid4().hex[:12]}"
        try:
            yield name
        finally:
            self.sql(DROP.format(name=name, patience=patience))

    def start(self) -> None:
        """Start it, on a fresh database the first time, and wait until it takes connections."""
        if self.runs:
            raise RuntimeError("it runs already")
        if not self.data.exists():
            self._make()
        # The port is no setting in the file, which a standby copies.
        self.launch(lambda: [self.bin / "postgres", "-D", self.data, "-p", str(self.port)], lambda _: self._ready())

    def stop(self, how: Literal["fast", "immediate"] = "fast") -> None:
        """Stop it: after a checkpoint, or at once, which leaves the next start to recover."""
        self.end(signal.SIGINT if how == "fast" else signal.SIGQUIT)

    def restart(self) -> None:
        """Start it again on the same port; stop it before where it still runs."""
        self.stop()
        self.start()

    def standby(self, *, synchronous: bool = True) -> "Server":
        """Start a second server that follows this one; where synchronous, every commit from now on waits for it."""
        standby = Server(durable=self.durable, version=self.version)
        name = f"standby_{standby.port}"
        primary = f"host={self.host} port={self.port} user=postgres application_name={name}"
        options = ["--wal-method=stream", "--checkpoint=fast", "--no-sync"]
        run([self.bin / "pg_basebackup", "--pgdata", standby.data, "--dbname", primary, *options])
        # Of what was altered on this server the standby gets nothing: after a promotion it would wait for itself.
        (standby.data / "postgresql.auto.conf").write_text(settings({"primary_conninfo": primary}), encoding="utf-8")
        standby._write("standby.signal", "")
        standby.start()
        if synchronous:
            self._standbys.append(name)
            self._alter("synchronous_commit", "on")
            self._alter("synchronous_standby_names", f"FIRST {len(self._standbys)} ({', '.join(self._standbys)})")
        wanted = "sync" if synchronous else "async"
        look = "SELECT 1 FROM pg_stat_replication WHERE (application_name, state, sync_state) = (%s, 'streaming', %s)"
        wait_until(lambda: self.sql(look, [name, wanted]), f"{name} follows")
        return standby

    def promote(self) -> None:
        """Make a standby a server of its own, that can be written to."""
        if self.sql("SELECT pg_promote(wait => true, wait_seconds => 60)") != [(True,)]:
            raise RuntimeError(f"it was not promoted\n{tail(self.log)}")

    def _make(self) -> None:
        options = ["--username=postgres", "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync"]
        run([self.bin / "initdb", "--pgdata", self.data, *options])
        chosen = SETTINGS | dict.fromkeys(DURABLE, "on" if self.durable else "off") | dict(self._options)
        self._write("postgresql.conf", settings(chosen))

    def _ready(self) -> bool:
        """Read what the server itself writes down: it is ours, and it takes connections."""
        lines = self._status()
        return len(lines) >= 8 and int(lines[0]) == self.pid and lines[7].strip() == "ready"

    def _sweep(self) -> None:
        memory = self._shared_memory()
        if memory is not None:
            remove_shared_memory(memory)

    def _shared_memory(self) -> int | None:
        lines = self._status()
        return int(lines[6].split()[1]) if len(lines) >= 7 and lines[6].strip() else None

    def _status(self) -> list[str]:
        try:
            return (self.data / "postmaster.pid").read_text(encoding="utf-8").splitlines()
        except FileNotFoundError:
            return []

    def _write(self, name: str, text: str) -> None:
        """Append to a file in the data folder, which may belong to another account than ours."""
        path = self.data / name
        new = not path.exists()
        with path.open("a", encoding="utf-8") as file:
            file.write(text)
        if new:
            owner = self.data.stat()
            os.chown(path, owner.st_uid, owner.st_gid)

    def _alter(self, name: str, value: str) -> None:
        self.sql(f"ALTER SYSTEM SET {name} = {quoted(value)}")
        self.sql("SELECT pg_reload_conf()")


def new_server(
    *, durable: bool = False, version: int | None = None, options: Mapping[str, str] | None = None
) -> Server:
    """Make a server that is not started yet; of the version that is preferred where none is named."""
    return Server(durable=durable, version=version, options=options)


def dsn_of(host: str, port: int, database: str | None, user: str | None) -> str:
    """Write the address of a server, or of what stands before it."""
    return f"postgresql://{quote(user or 'postgres', safe='')}@{host}:{port}/{quote(database or 'postgres', safe='')}"


def settings(values: Mapping[str, str]) -> str:
    return "".join(f"{name} = {quoted(value)}\n" for name, value in values.items())


def quoted(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def run(words: Sequence[str | Path]) -> None:
    done = command(words)
    if done.returncode != 0:
        raise RuntimeError(f"{Path(words[0]).name} failed:\n{tail(done.stdout)}")
