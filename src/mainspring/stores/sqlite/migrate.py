"""Migrations: numbered, forward only, each in one transaction, safe when several processes start at once.

The tables say by themselves which code they serve: `oldest_code` is the number of the first migration that code must
know in order to work with them. It is looked at when a store is opened: a program that runs already is not told, so where
a migration raises it, older programs have to be stopped before.
"""

import re
import sqlite3
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Final, NamedTuple

from mainspring.errors import SchemaError
from mainspring.stores.sqlite.connect import look_inside
from mainspring.stores.sqlite.statements import statement

_FOLDER: Final = files("mainspring.stores.sqlite").joinpath("migrations")
_EXISTS: Final = statement("schema_exists")
_READ: Final = statement("schema_read")
_CLEAR: Final = statement("schema_clear")
_WRITE: Final = statement("schema_write")
_NAME: Final = re.compile(r"(\d{4})_\w+\.sql")
_OLDEST_CODE: Final = re.compile(r"^-- oldest code: (\d+)$", re.MULTILINE)


class Migration(NamedTuple):
    """One step of the tables' way."""

    number: int
    oldest_code: int
    script: str

    @property
    def statements(self) -> Iterator[str]:
        """Its statements, one by one: `executescript` would commit first."""
        lines: list[str] = []
        for line in self.script.splitlines():
            lines.append(line)
            if sqlite3.complete_statement("\n".join(lines)):
                yield "\n".join(lines)
                lines.clear()
        assert not "".join(lines).strip(), f"migration {self.number} ends within a statement"  # noqa: S101 -- ours


def migrations() -> tuple[Migration, ...]:
    """Read all that this code knows, in order."""
    found = []
    for file in _FOLDER.iterdir():
        if name := _NAME.fullmatch(file.name):
            script = file.read_text(encoding="utf-8")
            oldest = _OLDEST_CODE.search(script)
            assert oldest, f"{file.name} does not say which code it serves"  # noqa: S101 -- ours, and tested
            found.append(Migration(int(name[1]), int(oldest[1]), script))
    return tuple(sorted(found))


MIGRATIONS: Final = migrations()
WANTED: Final = MIGRATIONS[-1].number


class Found(NamedTuple):
    """How the tables stand; 0 and 0 where there are none."""

    version: int
    oldest_code: int


def found(connection: sqlite3.Connection) -> Found:
    if not connection.execute(_EXISTS).fetchall():
        return Found(0, 0)
    return Found(*connection.execute(_READ).fetchone())


def check(store: str, tables: Found, wanted: int = WANTED) -> None:
    """Raise if this code cannot work with the tables."""
    if tables.oldest_code > wanted:
        raise SchemaError(
            store,
            f"its tables have version {tables.version} and serve code that knows version {tables.oldest_code} or "
            f"later, and this one knows {wanted}; upgrade Mainspring here. Nothing was changed",
        )


def look(path: Path) -> Found:
    """Read how the tables of a file stand, and change nothing."""
    if not path.exists():
        return Found(0, 0)
    return look_inside(path, found)


def no_database(store: str) -> SchemaError:
    return SchemaError(
        store, "the file is no SQLite database; use another file, or move this one away. Nothing was changed"
    )


def migrate(store: str, connection: sqlite3.Connection, now: int, steps: tuple[Migration, ...] = MIGRATIONS) -> None:
    """Bring the tables up to date. Raises SQLite's own error if another process is at it: try again."""
    while True:
        tables = found(connection)
        check(store, tables, steps[-1].number)
        coming = [step for step in steps if step.number > tables.version]
        if not coming:
            return
        connection.execute("BEGIN IMMEDIATE")
        try:
            if found(connection) == tables:  # else another process was faster
                _make(connection, coming[0], tables, now)
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise


def _make(connection: sqlite3.Connection, step: Migration, tables: Found, now: int) -> None:
    for one in step.statements:
        connection.execute(one)
    connection.execute(_CLEAR)
    connection.execute(_WRITE, (step.number, max(step.oldest_code, tables.oldest_code), now))
