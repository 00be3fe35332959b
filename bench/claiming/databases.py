"""Databases of the claim benchmark: a template for each content, filled once, and a fresh copy for each measurement.

Templates are filled by the checkout that is measured, because its schema may differ from that of others.
"""

import itertools
import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from bench.postgres.kit.subjects import Subject
from tests.servers.postgres import Server


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """Jobs of a template: `parts` are options of `child.calls`, the oldest jobs first; `tasks` are those to declare."""

    name: str
    tasks: tuple[str, ...]
    parts: tuple[dict[str, Any], ...]


class Databases(Protocol):
    """A kind of database."""

    @property
    def title(self) -> str: ...

    @property
    def postmaster(self) -> int | None:
        """Process id of the server, None where there is none."""
        ...

    def copy(self, subject: Subject, content: Content) -> Any:  # noqa: ANN401 - a context manager
        """Copy a template, which is filled at the first use, and drop the copy afterwards; yields its URL."""
        ...


@dataclass(slots=True)
class SqliteFiles:
    """Files in a folder."""

    folder: Path
    title: str = f"SQLite {sqlite3.sqlite_version}"
    postmaster: int | None = None
    _templates: dict[tuple[str, str], Path] = field(default_factory=dict)
    _numbers: "itertools.count[int]" = field(default_factory=itertools.count)

    @contextmanager
    def copy(self, subject: Subject, content: Content) -> Iterator[str]:
        folder = self._new_folder()
        try:
            shutil.copyfile(self._template(subject, content), folder / "bench.db")
            os.sync()  # so that no measurement waits for the copy to be written
            yield f"sqlite:///{folder}/bench.db"
        finally:
            shutil.rmtree(folder)

    def _template(self, subject: Subject, content: Content) -> Path:
        key = subject.name, content.name
        if key not in self._templates:
            path = self._new_folder() / "template.db"
            subject.ask("fill", url=f"sqlite:///{path}", tasks=content.tasks, parts=content.parts)
            with closing(sqlite3.connect(path)) as connection:
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            self._templates[key] = path
        return self._templates[key]

    def _new_folder(self) -> Path:
        folder = self.folder / str(next(self._numbers))
        folder.mkdir()
        return folder


@dataclass(slots=True)
class PostgresDatabases:
    """Databases of a server."""

    server: Server
    _templates: dict[tuple[str, str], str] = field(default_factory=dict)
    _numbers: "itertools.count[int]" = field(default_factory=itertools.count)

    @property
    def title(self) -> str:
        ((version,),) = self.server.sql("SHOW server_version")
        return f"PostgreSQL {version.split()[0]}"

    @property
    def postmaster(self) -> int | None:
        return self.server.pid

    @contextmanager
    def copy(self, subject: Subject, content: Content) -> Iterator[str]:
        name = f"claims_{next(self._numbers)}"
        # Copied as files, which begins and ends with a checkpoint: no measurement pays for what came before.
        template = self._template(subject, content)
        self.server.sql(f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY file_copy")
        try:
            yield self.server.dsn(name)
        finally:
            self.server.sql(f"DROP DATABASE {name} WITH (FORCE)")

    def _template(self, subject: Subject, content: Content) -> str:
        key = subject.name, content.name
        if key not in self._templates:
            name = f"template_{next(self._numbers)}"
            self.server.sql(f"CREATE DATABASE {name}")
            subject.ask("fill", url=self.server.dsn(name), tasks=content.tasks, parts=content.parts)
            self.server.sql("VACUUM ANALYZE", database=name)
            self._templates[key] = name
        return self._templates[key]
