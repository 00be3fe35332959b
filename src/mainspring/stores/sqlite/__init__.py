"""The store in a SQLite file: for one machine, with any number of processes."""

from mainspring.stores.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]
