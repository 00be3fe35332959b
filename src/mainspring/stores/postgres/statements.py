"""The SQL of this store: one statement a file, read once.

Every file says on top what its statement promises and which index serves it; `tests/stores/test_postgres_plans.py` asks
PostgreSQL whether that is so. In the files the schema is called `mainspring`; a store in another one says so here.
"""

import re
from functools import lru_cache
from importlib.resources import files
from typing import Final, NamedTuple

_FOLDER: Final = files("mainspring.stores.postgres").joinpath("sql")
_SCHEMA: Final = re.compile(r"\bmainspring\.")
_PLACE: Final = re.compile(r"\$(\d+)")


class Statement(NamedTuple):
    """A statement, and the name of its file."""

    name: str
    text: str


def statement(name: str) -> Statement:
    """Read the statement of that name, without its comments."""
    text = _FOLDER.joinpath(f"{name}.sql").read_text(encoding="utf-8")
    lines = (line for line in text.splitlines() if not line.lstrip().startswith("--"))
    return Statement(name, "\n".join(lines).strip())


@lru_cache(4096)
def in_schema(statement: Statement, schema: str) -> str:
    """Return the text for a schema; values stand at $1, $2, …, as PostgreSQL itself and asyncpg write it."""
    return qualified(statement.text, schema)


@lru_cache(4096)
def with_names(statement: Statement, schema: str) -> str:
    """Return the text for drivers that want values by name: $1 becomes %(p1)s."""
    return _PLACE.sub(r"%(p\1)s", in_schema(statement, schema).replace("%", "%%"))


def qualified(text: str, schema: str) -> str:
    return _SCHEMA.sub(quoted(schema) + ".", text)


def quoted(identifier: str) -> str:
    return '"' + identifier.replace('"', '""') + '"'
