"""The role `Upkeep`: days of history that have passed are dropped, and tables that change all the time are analyzed.

Room within a table is the server's own affair: autovacuum gives it back. Whoever does not own the tables does neither.
"""

from datetime import datetime
from typing import Final

from mainspring.stores.postgres import partitions
from mainspring.stores.postgres.prune import Runs
from mainspring.stores.postgres.statements import Statement, quoted
from mainspring.stores.postgres.verb import Ask, Verb
from mainspring.stores.records import Compacted

MOST: Final = 100
"""Days that go at a time; or, where they cannot be dropped, so many thousand rows of them."""
CHUNK: Final = 1000
LONG: Final = 30.0
"""Seconds that one ANALYZE may take; it looks at thirty thousand rows at most."""

# A look into the catalogue; only the owner of a table may analyze it.
_TABLES: Final = Statement(
    "upkeep_tables",
    """
    SELECT relname FROM pg_class
    WHERE relnamespace = (SELECT relnamespace FROM pg_class WHERE oid = 'mainspring.jobs'::regclass)
        AND relname IN ('jobs', 'schedules', 'positions', 'runs') AND relkind = 'r' AND pg_has_role(relowner, 'USAGE')
    ORDER BY relname
    """,
)


async def compact(connections: Runs, at: datetime | None, pace: partitions.Pace) -> Compacted:
    """Drop days of which nothing can be seen any more, each in a transaction of its own."""
    dropped = 0
    while at is None and dropped < MOST:
        gone = await connections.run(lambda: partitions.upkeep(CHUNK, pace), whole=True)
        if not gone:
            break
        dropped += 1
    return Compacted(dropped=dropped)


def analyze() -> Verb[tuple[str, ...]]:
    """Analyze what changes all the time. Several statements."""
    names = [str(name) for (name,) in (yield Ask(_TABLES))]
    for name in names:
        yield Ask(Statement("upkeep_analyze", f"ANALYZE mainspring.{quoted(name)}"))
    return tuple(names)
