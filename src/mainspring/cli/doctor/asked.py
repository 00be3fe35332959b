"""What the doctor asks a PostgreSQL server, as verbs; the statements are in `sql/`."""

from collections.abc import Sequence
from datetime import date
from importlib.resources import files
from typing import Final, NamedTuple

from mainspring.stores.held import Held
from mainspring.stores.postgres.held import held
from mainspring.stores.postgres.migrate import MIGRATIONS
from mainspring.stores.postgres.statements import Statement
from mainspring.stores.postgres.verb import Ask, Verb

__all__ = ["Held", "Part", "Role", "Server", "held", "history", "role", "server"]

_FOLDER: Final = files("mainspring.cli.doctor").joinpath("sql")


def _read(name: str) -> Statement:
    return Statement(f"doctor {name}", _FOLDER.joinpath(f"{name}.sql").read_text(encoding="utf-8"))


_SERVER: Final = _read("server")
_ROLE: Final = _read("role")
_HISTORY: Final = _read("history")


class Server(NamedTuple):
    """How a server is set."""

    number: int
    """Of its version: 180001 is 18.1."""
    version: str
    off: Sequence[str]
    """What is switched off of that which keeps commits safe."""
    waits_for_standbys: bool
    autovacuum: bool
    connections: int
    """How many it takes of those who are no superusers."""
    in_use: int


class Role(NamedTuple):
    """Who we are, and what we may do about the tables."""

    name: str
    is_superuser: bool
    owns: bool
    """May make and drop tables there."""
    owner: str
    missing: Sequence[str]
    """Rights that a worker needs, as in "INSERT on jobs"."""


class Part(NamedTuple):
    """A table of finished jobs."""

    day: date | None
    """None: of those that no day was made for."""
    size: int
    rows: int
    today: date


def server() -> Verb[Server]:
    rows = yield Ask(_SERVER)
    return Server(*rows[0])


def role() -> Verb[Role]:
    names = [name for step in MIGRATIONS for name in step.names]
    rows = yield Ask(_ROLE, (names,))
    return Role(*rows[0])


def history() -> Verb[list[Part]]:
    rows = yield Ask(_HISTORY)
    return [Part(*row) for row in rows]
