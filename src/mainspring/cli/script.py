"""What `mainspring migrate` would run on PostgreSQL, as a script: for people whose database is run by others.

The migrations themselves are asked, one statement after the other, and answered as if each had been carried out.
"""

import re
from collections.abc import Callable, Sequence
from datetime import UTC, date, timedelta
from typing import Any, Final

from mainspring.cli.doctor import asked
from mainspring.stores.postgres import log, partitions
from mainspring.stores.postgres.connections import Connections
from mainspring.stores.postgres.drive import drive_sync
from mainspring.stores.postgres.migrate import WITH_OUTBOXES, Found, check, found, grants, migrate
from mainspring.stores.postgres.settings import Settings
from mainspring.stores.postgres.statements import Statement, in_schema
from mainspring.stores.postgres.verb import Row, Verb

_PLACE: Final = re.compile(r"\$(\d+)")


async def script(settings: Settings, roles: Sequence[str]) -> str:
    """Return what would be run, for psql; a comment if that is nothing."""
    tables, made, published = await _look(settings)
    check(settings.store, tables)
    missing = {
        partitions.HISTORY.missing.name: _missing(settings, partitions.HISTORY, made),
        partitions.MESSAGES.missing.name: _missing(settings, partitions.MESSAGES, published),
    }
    recorder = Recorder(settings.schema, tables, missing)
    while recorder.transaction(lambda: migrate(settings.store, settings.schema, days=0)):
        pass
    recorder.transaction(partitions.make)
    recorder.transaction(partitions.MESSAGES.make)
    for role in roles:
        recorder.write("rights of a role", grants(settings.schema, role))
    if not recorder.lines:
        return f"-- up to date, version {tables.version}: there is nothing to run"
    return "\n".join(recorder.lines)


async def _look(settings: Settings) -> tuple[Found, set[date], set[date]]:
    """Look how the tables stand, and for which days there are some: of history, and of the log of messages."""
    connections = Connections(settings)
    await connections.open()
    try:
        tables = await connections.run(lambda: found(settings.schema))
        parts = await connections.run(asked.history) if tables.version else []
        published = await connections.run(lambda: log.days(None)) if tables.version >= WITH_OUTBOXES else []
        return tables, {part.day for part in parts if part.day is not None}, {day.first.date() for day in published}
    finally:
        await connections.close()


def _missing(settings: Settings, table: partitions.Days, made: set[date]) -> list[date]:
    today = settings.clock.now().astimezone(UTC).date()
    days = (today + timedelta(days=ahead) for ahead in range(table.ahead + 1))
    return [day for day in days if day not in made]


class Recorder:
    """Answers the questions of a migration, and writes down all else that it asks for."""

    def __init__(self, schema: str, tables: Found, missing: dict[str, list[date]]) -> None:
        self.lines: list[str] = []
        self._schema = schema
        self._tables = tables
        self._missing = missing
        self._said: list[str] = []

    def transaction(self, verb: "Callable[[], Verb[bool | None]]") -> bool:
        """Write down what a verb does, if it does anything; returns what it returns."""
        self._said = []
        again = drive_sync(self._run, verb())
        if self._said:
            title = f"version {self._tables.version}" if again else "days"
            self.write(title, self._said)
        return bool(again)

    def write(self, title: str, statements: Sequence[str]) -> None:
        self.lines += [f"-- {title}", "BEGIN;", *(f"{one.rstrip(';')};" for one in statements), "COMMIT;", ""]

    def _run(self, statement: Statement, values: tuple[Any, ...]) -> Sequence[Row]:
        tables = self._tables
        match statement.name:
            case "schema_find":
                return [(tables.is_there, tables.role, tables.owner, True, True, tables.version > 0, tables.taken)]
            case "schema_read":
                return [(tables.version, tables.oldest_code)]
            case name if name in self._missing:
                return [(day,) for day in self._missing[name]]
            case "schema_write":
                version, oldest_code = values
                self._tables = tables._replace(is_there=True, version=version, oldest_code=oldest_code)
            case _:
                pass
        self._said.append(written(in_schema(statement, self._schema), values))
        return ()


def written(text: str, values: Sequence[object]) -> str:
    """Put values into a statement."""
    return _PLACE.sub(lambda place: _literal(values[int(place[1]) - 1]), text) if values else text


def _literal(value: object) -> str:
    return str(value) if isinstance(value, int) else "'" + str(value).replace("'", "''") + "'"
