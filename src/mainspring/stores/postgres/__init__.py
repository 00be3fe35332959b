"""The PostgreSQL store: the same promises across machines."""

from mainspring.stores.postgres.store import PostgresStore

__all__ = ["PostgresStore"]
