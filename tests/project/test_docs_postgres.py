"""What the pages about PostgreSQL show really runs: programs, commands and statements, on a server of its own."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest

from mainspring.client import urls
from mainspring.stores.postgres.migrate import MIGRATIONS
from tests.cli.conftest import cli
from tests.project.test_docs_code import ROOT, blocks, blocks_under
from tests.project.test_docs_reference import names, rows, section
from tests.servers.postgres import Server

IN_TRANSACTION = "docs/how-to/enqueue-in-your-transaction.md"
PAGES = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md"))


@dataclass
class Database:
    """A database of a test's own, in which tables and roles can be as the pages have them."""

    server: Server
    name: str
    roles: list[str] = field(default_factory=list)

    @property
    def url(self) -> str:
        return self.server.dsn(self.name)

    def sql(self, statement: str) -> "list[tuple[object, ...]]":
        return self.server.sql(statement, database=self.name)

    def mainspring(self, *arguments: str, url: str = "") -> str:
        done = cli(*arguments, MAINSPRING_URL=url or self.url)
        assert done.exit_code == 0, done.output
        return done.stdout

    def run(self, *words: str, url: str = "", cwd: Path | None = None) -> str:
        done = subprocess.run(
            [sys.executable, "-W", "error", *words],
            cwd=cwd, env=self.environment(url), capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def environment(self, url: str = "") -> dict[str, str]:
        return {**os.environ, "MAINSPRING_URL": url or self.url}


@pytest.fixture
def database(own_postgres: Server) -> Iterator[Database]:
    name = f"docs_{uuid4().hex[:8]}"
    own_postgres.sql(f"CREATE DATABASE {name}")
    database = Database(own_postgres, name)
    yield database
    own_postgres.sql(f"DROP DATABASE {name} WITH (FORCE)")
    for role in database.roles:
        own_postgres.sql(f"DROP ROLE {role}")


@contextmanager
def worker(database: Database, folder: Path, url: str = "") -> Iterator[None]:
    command = [sys.executable, "-m", "mainspring", "worker", "shop:app"]
    with subprocess.Popen(
        command, cwd=folder, env=database.environment(url), stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr
        try:
            assert any("mainspring.worker: node" in line for line in process.stderr)
            yield
        finally:
            process.terminate()
            process.communicate(timeout=30)


def test_the_first_program_on_postgresql_runs(database: Database, tmp_path: Path) -> None:
    (program,) = blocks("docs/how-to/run-on-postgresql.md")
    (tmp_path / "shop.py").write_text(program, encoding="utf-8")
    made = database.mainspring("migrate")
    page = (ROOT / "docs/how-to/run-on-postgresql.md").read_text(encoding="utf-8")
    assert re.sub(r"\S+/\S+:", "localhost/shop:", made) in page
    with worker(database, tmp_path):
        said = database.run("shop.py", cwd=tmp_path)
    assert f"$ python shop.py\n{said}" in page


TABLES = """
CREATE TABLE orders (id integer GENERATED ALWAYS AS IDENTITY, article text NOT NULL);
CREATE TABLE ledger (order_id integer, cents integer);
"""
PLAY = """
import asyncio
import shop
from shop import app, book, credit, refund, ship
from mainspring.testing import drain

AWAITED = shop.place_order, shop.place_order_awaited, shop.place_order_in_awaited_session
BLOCKING = shop.place_order_blocking, shop.place_order_in_session

class Unlucky:
    # Enqueues, and raises before the transaction can be committed.
    def using(self, tx):
        self.enqueuer = ship.using(tx=tx)
        return self

    async def enqueue(self, order: int) -> None:
        await self.enqueuer.enqueue(order)
        raise LookupError

    def enqueue_sync(self, order: int) -> None:
        self.enqueuer.enqueue_sync(order)
        raise LookupError

async def play() -> None:
    async with app:
        placed = [await place("tea") for place in AWAITED] + [await asyncio.to_thread(place, "tea") for place in BLOCKING]
        print(*placed)
        shop.ship = Unlucky()
        for unlucky in [*(place("nothing") for place in AWAITED), *(asyncio.to_thread(place, "nothing") for place in BLOCKING)]:
            try:
                await unlucky
            except LookupError:
                print("rolled back")
        shop.ship = ship
        print(len((await app.jobs()).jobs), "jobs")
        for task in (book, refund, credit):
            await task.enqueue(1, 250)
        print(dict(await drain(app)))
    await shop.awaited_engine.dispose()
    shop.engine.dispose()

asyncio.run(play())
"""


@pytest.mark.parametrize("driver", ["asyncpg", "psycopg"])
def test_a_job_and_an_order_are_there_together_with_every_driver(
    database: Database, tmp_path: Path, driver: str
) -> None:
    page = "\n".join(blocks_under(IN_TRANSACTION, "On PostgreSQL", "With PostgreSQL"))
    page = page.replace("postgresql://localhost/shop", database.url).replace(
        "postgresql+asyncpg:", f"postgresql+{driver}:"
    )
    assert database.url in page
    (tmp_path / "shop.py").write_text(page, encoding="utf-8")
    (tmp_path / "play.py").write_text(PLAY, encoding="utf-8")
    database.sql(TABLES)
    assert database.run("play.py", cwd=tmp_path).splitlines() == [
        "1 2 3 4 5",
        *["rolled back"] * 5,
        "5 jobs",
        "{<State.SUCCEEDED: 'succeeded'>: 9}",
    ]
    assert sorted(database.sql("SELECT order_id, cents FROM ledger")) == [(1, -250), (1, -250), (1, 250)]
    assert database.sql("SELECT count(*) FROM orders") == [(5,)]


def test_the_roles_of_the_page_are_enough(database: Database, tmp_path: Path) -> None:
    (program,) = blocks("docs/how-to/run-on-postgresql.md")
    (tmp_path / "shop.py").write_text(program, encoding="utf-8")
    (make,) = blocks_under("docs/how-to/roles-and-rights.md", "Roles and rights", language="sql")
    names = {"shop_owner": f"owner_{database.name}", "shop_worker": f"worker_{database.name}"}
    for plain, own in names.items():
        make = make.replace(plain, own)
    roles, _, _ = make.partition("CREATE DATABASE")
    database.roles += names.values()
    database.sql(roles)
    database.sql(f"ALTER DATABASE {database.name} OWNER TO {names['shop_owner']}")

    as_owner, as_worker = (database.server.dsn(database.name, role) for role in names.values())
    said = database.mainspring("migrate", "--grant", names["shop_worker"], url=as_owner)
    assert said.endswith(f"the role {names['shop_worker']} may work with it\n")
    with worker(database, tmp_path, as_worker):
        assert database.run("shop.py", url=as_worker, cwd=tmp_path) == "order 7 is on its way\n"
        database.mainspring("doctor", url=as_worker)
    assert "up to date" in database.mainspring("migrate", url=as_owner)
    script = database.mainspring("migrate", "--sql", "--grant", names["shop_worker"], url=as_worker)
    assert script.startswith("-- rights of a role\nBEGIN;\nGRANT USAGE ON SCHEMA")


def statements() -> Iterator[tuple[str, str]]:
    for page in PAGES:
        for block in blocks_under(page, language="sql"):
            if "CREATE ROLE" not in block and "ALTER ROLE" not in block:
                yield page, block


def test_every_statement_that_a_page_shows_is_one(database: Database, tmp_path: Path) -> None:
    (program,) = blocks("docs/how-to/run-on-postgresql.md")
    failing = 'raise ValueError("out of paper")'
    (tmp_path / "shop.py").write_text(
        program.replace('return f"order {order} is on its way"', failing), encoding="utf-8"
    )
    (tmp_path / "fail.py").write_text(
        "import asyncio, shop\nfrom mainspring.testing import drain\n"
        "async def main():\n"
        "    async with shop.app:\n"
        "        await shop.ship.using(max_attempts=1).enqueue(7)\n"
        "        await drain(shop.app)\n"
        "        await shop.ship.enqueue(8)\n"
        "asyncio.run(main())\n",
        encoding="utf-8",
    )
    database.run("fail.py", cwd=tmp_path)
    with psycopg.connect(database.url) as connection:
        answers = {block: connection.execute(block.encode()).fetchall() for _, block in statements()}
    assert len(answers) >= 8
    (failed,) = [rows for block, rows in answers.items() if "mainspring.history\nWHERE state = 'failed'" in block]
    assert [row[-1] for row in failed] == ["out of paper"]
    (arguments,) = [rows for block, rows in answers.items() if "AS arguments" in block]
    assert [row[-1] for row in arguments] == [{"order": 8}]


def test_a_worker_s_role_takes_the_settings_of_the_page(database: Database) -> None:
    (page,) = blocks_under("docs/how-to/behind-pgbouncer.md", "Plans", language="sql")
    role = f"worker_{database.name}"
    database.roles.append(role)
    database.sql(f"CREATE ROLE {role} LOGIN")
    database.sql(page.replace("shop_worker", role))
    with psycopg.connect(database.server.dsn(database.name, role)) as connection:
        assert connection.execute("SHOW enable_seqscan").fetchone() == ("off",)


def test_every_table_is_listed() -> None:
    made = {
        name
        for step in MIGRATIONS
        for name in re.findall(r"^CREATE TABLE mainspring\.(\w+)", step.script, re.MULTILINE)
    }
    text = (ROOT / "docs/reference/postgresql-tables.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE)) == made


def test_every_option_of_the_url_is_listed() -> None:
    ours, _, theirs = section("settings.md", "PostgreSQL").partition("All else is read as by libpq")
    assert theirs
    assert {names(option)[0] for option, *_ in rows(ours)} == urls._POSTGRES


def test_a_page_says_no_less_than_what_was_really_printed(database: Database) -> None:
    """Hold the doctor's report on the page against a real one: the same subjects, in the same order."""
    page = (ROOT / "docs/how-to/run-on-postgresql.md").read_text(encoding="utf-8")
    (shown,) = re.findall(r"^\$ mainspring doctor\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    database.mainspring("migrate")
    real = database.mainspring("doctor")
    assert subjects(shown) == subjects(real)


def subjects(report: str) -> list[str]:
    return [line[6:17].strip() for line in report.splitlines() if line[:4].strip()]
