"""The shop of `conftest.py` on a PostgreSQL server: the same app, another URL."""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mainspring import Mainspring
from tests.cli.conftest import SHOP, Shop, cli
from tests.servers.postgres import Server


@dataclass(frozen=True, slots=True)
class ServerShop(Shop):
    """A folder with an app in shop.py, and a schema of a database in which its jobs are."""

    server: Server
    schema: str

    @property
    def url(self) -> str:
        return self.as_role(None)

    def as_role(self, role: str | None, **options: str) -> str:
        return url_of(self.server.dsn(user=role), schema=self.schema, **options)

    def enqueue(self, task: str, *args: object) -> str:
        module: dict[str, Any] = {"__name__": "shop"}
        exec((self.folder / "shop.py").read_text(), module)  # noqa: S102 -- an import would stay for the next test
        app: Mainspring = module["app"]
        job = app.enqueue_sync(task, *args)
        app.close_sync()
        return str(job.id)

    def migrate(self, *options: str) -> None:
        done = cli("migrate", "--url", self.url, *options)
        assert done.exit_code == 0, done.output

    @contextmanager
    def role(self, *, grant: bool = True) -> Iterator[str]:
        """Make a role that may work with the tables, or that may do nothing yet."""
        name = f"test_role_{secrets.token_hex(4)}"
        self.server.sql(f"CREATE ROLE {name} LOGIN")
        try:
            if grant:
                self.migrate("--grant", name)
            yield name
        finally:
            self.server.sql(f"DROP OWNED BY {name}")
            self.server.sql(f"DROP ROLE {name}")


def url_of(dsn: str, **options: str) -> str:
    sign = "&" if "?" in dsn else "?"
    return dsn + sign + "&".join(f"{name}={value}" for name, value in options.items())


def shop_on(server: Server, schema: str, folder: Path) -> ServerShop:
    """Write the app; it is told its URL by the environment, as in most deployments."""
    shop = ServerShop(folder, server, schema)
    os.environ["SHOP_URL"] = shop.url
    source = SHOP.replace('"sqlite:///shop.db"', 'os.environ["SHOP_URL"]')
    assert source != SHOP
    (folder / "shop.py").write_text(source, encoding="utf-8")
    return shop
