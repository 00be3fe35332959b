"""Which file a store is in, and how it is used."""

from dataclasses import dataclass
from pathlib import Path

from mainspring.clock import Clock
from mainspring.stores.sqlite.rows import micros


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What the user has set; lengths of time in seconds."""

    path: Path
    clock: Clock
    durable: bool
    poll: float
    patience: float

    @property
    def store(self) -> str:
        """What errors call it."""
        return f"SQLite store {self.path}"

    def now(self) -> int:
        """The store's instant, as it is kept."""
        return micros(self.clock.now())
