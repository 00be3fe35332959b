"""Checks of a store in a JSON file, before it is opened: where the file is, and what is in it."""

import os
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from pathlib import Path

from mainspring.cli.doctor.finding import Finding, fail, ok, warn
from mainspring.cli.doctor.place import MOUNTS, SHARED, disk, kind_of, may, open_to_all, written
from mainspring.cli.sidecar import advice, says
from mainspring.client.words import count, size
from mainspring.errors import StoreError
from mainspring.stores.sidecar import SidecarStore
from mainspring.stores.sidecar.form import VERSION, Standing

DOCUMENT = "document"
"""The subject of whatever has to be right before the store can be opened."""


async def examined(store: SidecarStore) -> AsyncIterator[Finding]:
    """Look at file and folder without changing anything, also while a program has them."""
    try:
        standing = await store.standing()
    except StoreError as error:
        problem, _, do = error.problem.rpartition("; ")
        yield fail(
            DOCUMENT, problem or do, do if problem else "see what is wrong with the disk, or name another folder"
        )
        return
    if standing is not Standing.OURS:
        yield fail(DOCUMENT, f"{store.path}: {says(standing)}", advice(store, standing))
        return
    real = store.path.resolve()
    yield ok(DOCUMENT, f"{store.path}, {size(real.stat().st_size)}, version {VERSION}")
    yield written(real, datetime.now(UTC))
    for finding in open_to_all(real):
        yield finding
    for finding in _place(real):
        yield finding


def _place(path: Path) -> Iterator[Finding]:
    if not path.stat().st_mode & 0o222 or not may(path, os.W_OK):
        yield fail(
            DOCUMENT, f"{path} is read-only for this user", f"let it write: chmod u+w {path}, or change its owner"
        )
    if may(path.parent, os.W_OK | os.X_OK):
        yield ok("folder", "can be written, as each new document needs, which is made beside the old one")
    else:
        do = "give it the right: each new document is made beside the old one"
        yield fail(DOCUMENT, f"this user cannot write in {path.parent}, or its file system is read-only", do)
    yield _file_system(path)
    yield disk(path)


def _file_system(path: Path) -> Finding:
    kind = kind_of(path, MOUNTS.read_text(encoding="utf-8")) if MOUNTS.exists() else None
    if kind in SHARED:
        return warn(
            "file system",
            f"{kind} is shared over a network or with a host, where the lock may not hold between two machines",
            "move the folder to a local disk, or see that one machine alone uses it",
        )
    return ok("file system", kind or "its kind cannot be seen on this system")


async def kept(store: SidecarStore) -> list[Finding]:
    """Say what is in an open document and does nothing."""
    unread = await store.unread()
    if not unread:
        return []
    rows = count(len(unread), "row is kept and does", "rows are kept and do")
    do = "give --app MODULE:APP to have its tasks known; what is meant for nobody can be deleted under `kept`"
    return [warn("rows", f"{rows} nothing: {unread[0].problem}: {unread[0].row[:80]}", do)]
