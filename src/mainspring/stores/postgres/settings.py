"""Which database a store is in, and how it is used."""

import re
from dataclasses import dataclass
from typing import Final

from mainspring.clock import Clock
from mainspring.errors import DeclarationError

_SCHEMA: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")
_HOST: Final = r"(?:\[[0-9A-Fa-f:.]+\]|[\w.%-]*)(?::[0-9]+)?"
_PLACE: Final = re.compile(rf"[a-z]+://(?:[^@/?#]*@)?({_HOST}(?:,{_HOST})*(?:/[\w.%-]*)?)(?:\?[^@#]*)?")
"""A URL in which the user and the password end before the only "@"."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What the user has set; lengths of time in seconds."""

    dsn: str
    """As libpq reads it: several hosts, a password file and so on may be in it."""
    clock: Clock
    schema: str = "mainspring"
    own_time: bool = False
    """Take every instant from `clock` and not from the database: for tests."""
    connections: int = 5
    """How many each event loop may open for verbs, and again for handlers' transactions; one more listens."""
    timeout: float = 5.0
    """After which a statement that has no answer is given up, and its connection with it."""
    patience: float = 10.0
    """For how long a verb is tried again on fresh connections before it raises `StoreUnavailable`."""
    listen: bool = True
    """Whether to ask for notifications; without them a node looks once a second."""
    listen_dsn: str | None = None
    """Another way to the same database, on which notifications arrive: past a pooler, for one."""
    notify: bool = True
    """Whether a user's transaction that enqueues or publishes also notifies; without, it is found within a second."""
    pooled: bool | None = None
    """Whether a pooler in between gives each transaction another server connection; None: found out."""

    def __post_init__(self) -> None:
        """Raise `DeclarationError` for a schema name that would have to be quoted in statements."""
        problem = f"schema {self.schema!r}: must be up to 63 letters, digits and _, not beginning with a digit"
        DeclarationError.unless("PostgresStore", [(_SCHEMA.fullmatch(self.schema) is not None, problem)])

    @property
    def store(self) -> str:
        """What errors call it: its hosts and database, where the DSN is so plain that nothing there can be a password."""
        plain = _PLACE.fullmatch(self.dsn)
        place = f" {plain[1]}" if plain and plain[1] else ""
        return f"PostgreSQL store{place} (schema {self.schema})"
