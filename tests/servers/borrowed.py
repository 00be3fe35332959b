"""The server of `$MAINSPRING_TEST_DSN`: someone else's, so it is asked and never stopped."""

from typing import NoReturn
from urllib.parse import quote, unquote, urlsplit, urlunsplit

from tests.servers.postgres import Server
from tests.servers.system import HOST


class BorrowedServer(Server):
    """A server that runs already, and goes on running. Its address has to be a URL of one host."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self.durable = True  # as far as anyone here knows
        address = urlsplit(dsn)
        self.host = address.hostname or HOST
        self.port = address.port or 5432
        self.version = int(self.sql("SHOW server_version_num")[0][0]) // 10_000

    @property
    def runs(self) -> bool:
        return True

    @property
    def database(self) -> str:
        return unquote(urlsplit(self._dsn).path.removeprefix("/")) or super().database

    def dsn(self, database: str | None = None, user: str | None = None) -> str:
        parts = urlsplit(self._dsn)
        address = parts.netloc
        if user is not None:
            address = f"{quote(user, safe='')}@{address.rpartition('@')[2]}"
        path = parts.path if database is None else f"/{quote(database, safe='')}"
        return urlunsplit(parts._replace(netloc=address, path=path))

    def close(self) -> None:
        """Leave it alone."""

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise RuntimeError(
            "The server of $MAINSPRING_TEST_DSN is not ours to start, stop or freeze. "
            "A test that does that asks for a server of its own, with tests.servers.postgres.new_server()."
        )

    start = stop = kill = restart = freeze = thaw = standby = promote = _refuse
