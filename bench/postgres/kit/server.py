"""The server that a benchmark measures on: its own and durable, with a fresh database for each measurement.

Its data is in the folder for temporary files, so $TMPDIR says which disk is measured.
"""

import itertools
import os
import signal
import statistics
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

from tests.servers.postgres import Server, new_server

DURABLE = ("fsync", "synchronous_commit", "full_page_writes")

_numbers = itertools.count(1)


@contextmanager
def durable_server() -> Iterator[Server]:
    """Start one, and stop it whatever ends the block, a SIGTERM included."""
    signal.signal(signal.SIGTERM, _leave)
    with new_server(durable=True) as server:
        if weak := [name for name in DURABLE if server.sql(f"SHOW {name}") != [("on",)]]:
            sys.exit(f"This server would be measured without {', '.join(weak)}.")
        yield server


def _leave(number: int, _: object) -> NoReturn:
    sys.exit(128 + number)


@contextmanager
def database(server: Server, template: str = "template1") -> Iterator[str]:
    """Make a database, and drop it afterwards, which ends with a checkpoint: no measurement pays for the one before."""
    name = f"bench_{next(_numbers)}"
    server.sql(f"CREATE DATABASE {name} TEMPLATE {template}")
    try:
        yield name
    finally:
        server.sql(f"DROP DATABASE {name} WITH (FORCE)")


def written(server: Server) -> int:
    """Say how many bytes of write-ahead log there have been."""
    ((position,),) = server.sql("SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')")
    return int(position)


def sync_time(folder: Path, count: int = 50) -> float:
    """Say how many milliseconds the disk takes to keep one page: what every commit waits for."""
    took = []
    path = folder / "sync"
    with path.open("wb", buffering=0) as file:
        for _ in range(count):
            began = time.perf_counter()
            file.write(bytes(8192))
            os.fdatasync(file.fileno())
            took.append(time.perf_counter() - began)
    path.unlink()
    return statistics.median(took) * 1000
