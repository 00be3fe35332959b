"""Checks of this machine and this Python, before any store is looked at."""

import importlib.metadata
import platform
import sqlite3
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final

from mainspring.cli.doctor.finding import Finding, fail, ok
from mainspring.stores.sqlite.connect import OLDEST

# https://sqlite.org/wal.html#walresetbug: two checkpoints and a commit within microseconds; never seen in the wild.
MENDED: Final = ((3, 51, 3), (3, 50, 7), (3, 44, 6))
EARLIEST: Final = 2025  # no clock that is right shows an earlier year


def versions() -> Iterator[Finding]:
    """Say what this runs on."""
    python = f"{platform.python_version()}, {platform.python_implementation()} on {sys.platform}"
    yield ok("python", python)
    parts = [f"{name} {importlib.metadata.version(name)}" for name in ("mainspring", "msgspec", "click")]
    yield ok("packages", ", ".join(parts))


def sqlite_version(version: tuple[int, ...] = sqlite3.sqlite_version_info) -> Finding:
    """Say whether this SQLite will do."""
    text = ".".join(map(str, version))
    if version < OLDEST:
        wanted = ".".join(map(str, OLDEST))
        return fail("sqlite", f"{text} is older than {wanted}", "use a newer Python, or one with a newer SQLite")
    mended = version >= MENDED[0] or any(version[:2] == one[:2] and version >= one for one in MENDED)
    return ok("sqlite", text if mended else f"{text}, which has the rare WAL-reset bug; 3.51.3 has not")


def clock(now: datetime | None = None) -> Finding:
    """Say whether the clock can be right at all."""
    now = now or datetime.now(UTC)
    if now.year < EARLIEST:
        return fail("clock", f"it is {now:%Y-%m-%d} here", "set the clock; jobs are due by it")
    return ok("clock", f"{now:%Y-%m-%d %H:%M:%S} UTC")
