"""The SQL of this store: one statement a file, read once.

Every file says on top what its statement promises and which index serves it; `tests/stores/test_postgres_plans.py` asks
PostgreSQL whether that is so. In the files the schema is called `mainspring`; a store in another one says so here.

Calls of functions are qualified with `pg_catalog`. Statements run on connections of users too, with the user's search path,
where a function of another schema would be preferred if it fits the types of the arguments better.
"""

import re
from functools import lru_cache
from importlib.resources import files
from typing import Final, NamedTuple

_FOLDER: Final = files("mainspring.stores.postgres").joinpath("sql")
_SCHEMA: Final = re.compile(r"\bmainspring\.")
_PLACE: Final = re.compile(r"\$(\d+)")
_CALL: Final = re.compile(r"(?<![\w.\"])([a-z][a-z_0-9]*)\(")
_SYNTAX: Final = frozenset({"coalesce", "greatest", "least", "extract", "position"})
"""Expressions with the syntax of function calls, which PostgreSQL does not look up in the search path."""


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
    return qualified(_CALL.sub(_qualified_call, statement.text), schema)


@lru_cache(4096)
def with_names(statement: Statement, schema: str) -> str:
    """Return the text for drivers that want values by name: $1 becomes %(p1)s."""
    return _PLACE.sub(r"%(p\1)s", in_schema(statement, schema).replace("%", "%%"))


def qualified(text: str, schema: str) -> str:
    """Name the schema of tables."""
    return _SCHEMA.sub(quoted(schema) + ".", text)


def _qualified_call(call: re.Match[str]) -> str:
    # With several arguments unnest is syntax as well, and may not be qualified.
    if call[1] in _SYNTAX or (call[1] == "unnest" and _has_several_arguments(call.string, call.end())):
        return call[0]
    return f"pg_catalog.{call[0]}"


def _has_several_arguments(text: str, start: int) -> bool:
    """Return whether the call whose arguments begin at `start` has more than one."""
    depth = 1
    for character in text[start:]:
        depth += {"(": 1, "[": 1, ")": -1, "]": -1}.get(character, 0)
        if depth == 0 or (depth == 1 and character == ","):
            break
    return depth > 0


def quoted(identifier: str) -> str:
    return '"' + identifier.replace('"', '""') + '"'
