"""Recognizing what users hold, without importing the libraries that it comes from."""

import sys
from typing import Any


def imported(module: str, *names: str) -> tuple[Any, ...]:
    """Look types up without importing them: of a module that nobody has imported, there is nothing to be recognized."""
    found = sys.modules.get(module)
    return tuple(getattr(found, name) for name in names if hasattr(found, name))


def led(tx: Any) -> Any:  # noqa: ANN401 -- whatever the user holds
    """Go from a transaction of SQLAlchemy, or from a registry of sessions, to what it is on."""
    registries = (
        imported("sqlalchemy.orm", "scoped_session"),
        imported("sqlalchemy.ext.asyncio", "async_scoped_session"),
    )
    of_sessions = (
        imported("sqlalchemy.orm", "SessionTransaction"),
        imported("sqlalchemy.ext.asyncio", "AsyncSessionTransaction"),
    )
    of_connections = imported("sqlalchemy", "Transaction"), imported("sqlalchemy.ext.asyncio", "AsyncTransaction")
    if isinstance(tx, registries):
        return tx()
    if isinstance(tx, of_sessions):
        return tx.session
    return tx.connection if isinstance(tx, of_connections) else tx
