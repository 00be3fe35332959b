"""Which database a store is in, and how it is used."""

from dataclasses import dataclass

from mainspring.clock import Clock


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
    pooled: bool | None = None
    """Whether a pooler in between gives each transaction another server connection; None: found out."""

    @property
    def store(self) -> str:
        """What errors call it. Never the DSN: there may be a password in it."""
        return f"PostgreSQL store (schema {self.schema})"
