"""Checks of what is in a SQLite file: whether it is whole, how safely it is written, and which tables it has."""

import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from mainspring.cli.doctor.finding import Finding, fail, ok, warn
from mainspring.errors import StoreError
from mainspring.stores.port import Schema
from mainspring.stores.sqlite.connect import keeps_a_log, look_inside

QUICKLY: Final = 5.0  # seconds that the search for damage may take
OFTEN: Final = 10_000  # steps of SQLite's machine between two looks at the time


def content(path: Path, *, durable: bool, limit: float = QUICKLY) -> Iterator[Finding]:
    """Look into the file, if there is one, without changing anything."""
    try:
        if not path.is_file():
            return
        yield look_inside(path, lambda connection: integrity(connection, limit))
    except sqlite3.Error as error:
        yield fail("integrity", f"the file cannot be read: {error}", "restore it from a backup; keep the damaged file")
        return
    except OSError:  # said already, by what looked at the place
        return
    yield durability(path, durable=durable)


def integrity(connection: sqlite3.Connection, limit: float) -> Finding:
    """Search the file for damage, for a limited time."""
    deadline = time.monotonic() + limit
    connection.set_progress_handler(lambda: time.monotonic() > deadline, OFTEN)
    began = time.monotonic()
    try:
        (found,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    except sqlite3.OperationalError as error:
        if "interrupted" not in str(error):
            raise
        return ok("integrity", f"no damage found in {limit:g} s; the file is larger than that")
    if found != "ok":
        return fail("integrity", f"the file is damaged: {found}", "stop all workers and restore it from a backup")
    return ok("integrity", f"no damage found, in {time.monotonic() - began:.1f} s")


def durability(path: Path, *, durable: bool) -> Finding:
    """Say what a power cut may take."""
    if not durable:
        return warn(
            "durability",
            "durable=false: a power cut may take back the last commits",
            "leave durable=false out of the URL, unless that is what you want",
        )
    if not keeps_a_log(path):
        do = "let a worker open it, which sets it; see whether something else sets it back"
        return warn("durability", "the file is not in WAL mode, so readers and writers wait for each other", do)
    return ok("durability", "every commit is on the disk before it counts")


async def tables(store: Schema) -> Finding:
    """Say whether the tables are those that this version needs."""
    do = "run `mainspring migrate`, or start a worker, which does it too"
    try:
        version = await store.schema()
    except StoreError as error:
        says, _, advice = error.problem.partition("; ")
        return fail("schema", says, advice or "see the findings above")
    if version.found == 0:
        return fail("schema", "there are no tables yet", do)
    if version.found < version.wanted:
        return fail("schema", f"version {version.found}, and this Mainspring wants {version.wanted}", do)
    newer = f", of a newer Mainspring than this, which wants {version.wanted}" if version.found > version.wanted else ""
    return ok("schema", f"version {version.found}{newer}")
