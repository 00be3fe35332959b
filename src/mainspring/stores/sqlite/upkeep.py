"""The role `Upkeep`: room that is given back, statistics, and the log brought into the file. All of it blocks.

VACUUM writes the whole file anew, and nobody else writes meanwhile, nor renews a lease: so only where much of it is free
and what is left is soon written, and not for longer than leases can bear. It may number the rows of other people's
tables anew, so only where there are none.
"""

import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from typing import Final, TypeVar

from mainspring.errors import StoreUnavailable
from mainspring.stores.records import Compacted
from mainspring.stores.sqlite.connect import connect
from mainspring.stores.sqlite.retry import pauses, persist
from mainspring.stores.sqlite.settings import Settings
from mainspring.stores.sqlite.trouble import is_busy, translated

T = TypeVar("T")

WORTH: Final = 4 << 20
"""Bytes: less than this is used again before long."""
SHARE: Final = 0.25
"""Of the file that has to be free."""
MOST: Final = 64 << 20
"""Bytes that one VACUUM may have to write: 1.5 s were measured, and a disk of 20 MB/s takes half of a lease of 15 s."""
LONGEST: Final = 1.0
"""Seconds for which a VACUUM may gather what is left; then it is given up. What it writes after that cannot be stopped,
and takes two to four times as long."""
PAGES: Final = 1000
"""That one step of an incremental vacuum moves, at most; others write in between."""
STEPS: Final = 100
PATIENCE: Final = 5.0
"""Seconds for which it is tried again while others are in the way."""
SAMPLE: Final = 400
"""Rows of each index that are looked at for statistics."""

_INCREMENTAL: Final = 2
# About the schema, of a few dozen rows, and not about what is in the tables.
_OTHERS: Final = (
    "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT GLOB 'mainspring_*' AND name NOT GLOB 'sqlite_*'"
)
_HAS_STATISTICS: Final = "SELECT 1 FROM sqlite_master WHERE name = 'sqlite_stat1'"
_ANALYZED: Final = "SELECT DISTINCT tbl FROM sqlite_stat1 WHERE tbl GLOB 'mainspring_*' ORDER BY tbl"


def compact(settings: Settings) -> Compacted:
    """Give back free pages, if there are enough of them."""
    return _with(settings, _compact)


def analyze(settings: Settings) -> tuple[str, ...]:
    """Refresh statistics where there are some already, in the way that SQLite recommends.

    Where there are none, none are made: the plans of our statements follow from the tables then, as they are tested.
    What was counted while hardly a job was there would only mislead.
    """

    def work(connection: sqlite3.Connection) -> tuple[str, ...]:
        if not connection.execute(_HAS_STATISTICS).fetchone():
            return ()
        connection.execute(f"PRAGMA analysis_limit = {SAMPLE}")
        persist(lambda: connection.execute("PRAGMA optimize").fetchall(), PATIENCE)
        return tuple(name for (name,) in connection.execute(_ANALYZED).fetchall())

    return _with(settings, work)


def flush(settings: Settings) -> None:
    """Bring the whole log into the file."""

    def work(connection: sqlite3.Connection) -> None:
        give_up_at = time.monotonic() + PATIENCE
        for pause in pauses():
            (busy, _, _) = connection.execute("PRAGMA wal_checkpoint(FULL)").fetchone()
            if not busy:
                return
            if time.monotonic() >= give_up_at:
                break
            time.sleep(pause)
        problem = "others read or wrote all the time, and its log could not be brought into the file; try again later"
        raise StoreUnavailable(settings.store, problem)

    _with(settings, work)


def _with(settings: Settings, work: Callable[[sqlite3.Connection], T]) -> T:
    """Work on a connection of its own: the writer's is in the middle of something."""
    try:
        with closing(connect(settings.path, durable=settings.durable)) as connection:
            return work(connection)
    except sqlite3.Error as error:
        raise translated(settings.store, error) from error


def _compact(connection: sqlite3.Connection) -> Compacted:
    size, free = _room(connection)
    if free < WORTH or free < SHARE * size:
        return Compacted(size=size)
    (mode,) = connection.execute("PRAGMA auto_vacuum").fetchone()
    try:
        if mode == _INCREMENTAL:
            _vacuum_a_little(connection)
        elif (left := _in_the_way(connection, size - free)) or (left := _vacuum(connection)):
            return Compacted(size=size, left=left)
    except sqlite3.Error as error:
        if not is_busy(error):
            raise
        return Compacted(size=size, left="others were writing; the next time will come")
    now, _ = _room(connection)
    _let_shrink(connection)
    return Compacted(freed=size - now, size=now)


def _vacuum(connection: sqlite3.Connection) -> str:
    """Write the file anew, or say why not: it would take too long, and others have to write."""
    give_up_at = time.monotonic() + LONGEST
    connection.set_progress_handler(lambda: time.monotonic() >= give_up_at, 1000)
    try:
        connection.execute("VACUUM")
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode != sqlite3.SQLITE_INTERRUPT:
            raise
        return f"others would have waited for more than {LONGEST:g} s; run VACUUM when nobody works"
    finally:
        connection.set_progress_handler(None, 0)
    return ""


def _vacuum_a_little(connection: sqlite3.Connection) -> None:
    for _ in range(STEPS):
        # As a script: the statement answers with a row of no columns for each page, and `execute` stops at the first.
        persist(lambda: connection.executescript(f"PRAGMA incremental_vacuum({PAGES})"), PATIENCE)
        if not connection.execute("PRAGMA freelist_count").fetchone()[0]:
            return


def _in_the_way(connection: sqlite3.Connection, used: int) -> str:
    if used > MOST:
        return f"{used >> 20} MiB would have to be written anew; run VACUUM when nobody works"
    if found := connection.execute(_OTHERS).fetchone():
        return f"the file has tables of others, such as {found[0]}; run VACUUM if they can be numbered anew"
    return ""


def _let_shrink(connection: sqlite3.Connection) -> None:
    """Let the file shrink, which it does when the log is brought into it; whoever reads an old page delays that."""
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()


def _room(connection: sqlite3.Connection) -> tuple[int, int]:
    """Return the bytes of the file, and those of them that are free."""
    page, count, free = (
        int(connection.execute(f"PRAGMA {name}").fetchone()[0])
        for name in ("page_size", "page_count", "freelist_count")
    )
    return page * count, page * free
