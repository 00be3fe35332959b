"""How this store's verbs are written: as generators that ask for statements and are sent their rows.

They do no I/O themselves, so one text of each verb serves every way in: our own connections, and a user's transaction
on asyncpg, psycopg or SQLAlchemy, blocking or not.
"""

from collections.abc import Generator, Sequence
from typing import Any, NamedTuple, TypeAlias, TypeVar

from mainspring.stores.postgres.statements import Statement

T = TypeVar("T")

Row: TypeAlias = Sequence[Any]
"""What the database gives back: only the statement knows the types. Read by position; a driver may give no names."""


class Ask(NamedTuple):
    """A statement to be run with these values."""

    statement: Statement
    values: tuple[object, ...] = ()


Verb: TypeAlias = Generator[Ask, Sequence[Row], T]
