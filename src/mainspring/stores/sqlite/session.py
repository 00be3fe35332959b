"""One transaction at work on the tables: its connection, its instant, and whether anyone should look afterwards.

The functions of this package work on a session and never ask whose transaction it is: the writer's, a handler's, or one
of the user's own. None of them begins, commits or rolls back.
"""

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from mainspring.stores.sqlite.lanes import Lane, Lanes
from mainspring.stores.sqlite.statements import statement

_RING: Final = statement("ring")


class Session:
    """`now` is the store's, in microseconds; every instant that this transaction writes is this one."""

    __slots__ = ("_cursor", "connection", "lanes", "now", "store", "woke")

    def __init__(self, connection: sqlite3.Connection, now: int, lanes: Lanes, store: str) -> None:
        self.connection = connection
        self.now = now
        self.lanes = lanes
        self.store = store
        """What errors call the store."""
        self.woke = False
        """Whether something became claimable or finished."""
        self._cursor = sqlite3.Cursor(connection)  # and not `cursor()`, which a user's connection may have made its own
        self._cursor.row_factory = None

    def rows(self, sql: str, parameters: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Run a statement to its end: none is left open while the next one writes."""
        return self._cursor.execute(sql, parameters).fetchall()

    def row(self, sql: str, parameters: Sequence[object] = ()) -> tuple[Any, ...] | None:
        found = self._cursor.execute(sql, parameters).fetchall()
        return found[0] if found else None

    def rows_by_name(self, sql: str, parameters: Mapping[str, object]) -> list[tuple[Any, ...]]:
        """Run a statement whose parameters have names."""
        return self._cursor.execute(sql, parameters).fetchall()

    def run(self, sql: str, parameters: Sequence[object] = ()) -> int:
        """Run a statement that writes; returns how many rows it changed."""
        return self._cursor.execute(sql, parameters).rowcount

    def run_many(self, sql: str, parameters: Iterable[Sequence[object]]) -> int:
        return self._cursor.executemany(sql, parameters).rowcount

    def lane(self, number: int) -> Lane:
        return self.lanes.get(self, number)

    def readable_lane(self, number: int) -> Lane | None:
        """Return a lane, or None if its row is missing or cannot be read."""
        return self.lanes.get_readable(self, number)

    def ring(self) -> int | None:
        """Count a ring if there is something to look at: done last, once. Returns the count."""
        if not self.woke:
            return None
        (count,) = self.rows(_RING)[0]
        return int(count)
