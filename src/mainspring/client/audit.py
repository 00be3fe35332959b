"""A line of the audit log: how it is made, and kept. Whoever has something done by a person leaves one.

What is said along, as statements, arguments and reasons, stays out of it: it may be secret. A line that cannot be kept
undoes nothing: the log `mainspring.audit` says which it was.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from datetime import timedelta
from typing import Final

import msgspec

from mainspring.client.plain import text
from mainspring.core.job import JobId
from mainspring.errors import MainspringError
from mainspring.stores.overview import NewEntry, Overview
from mainspring.stores.port import Store

audit = logging.getLogger("mainspring.audit")

LONGEST: Final = 500
"""Characters of what it is about."""
NAMED: Final = 5
"""So many ids are named."""
DONE: Final = "done"
DRY_RUN: Final = "dry_run"
"""Outcome of an action that only counted rows, by passing a statement to the program."""
FROM_A_SHELL: Final = "cli:"
"""What the name of somebody begins with who uses the command line, and nobody else's."""
PATIENCE: Final = 2.0
"""Seconds that a line may take once the process has been told to end, or where the store is out of reach as it seems."""


def entry_of(
    who: str, action: str, about: str = "", *, count: int | None = None, outcome: str = DONE, job: JobId | None = None
) -> NewEntry:
    """Make a line; `job` is the one that was made."""
    return NewEntry(
        who=on_one_line(who),
        action=action,
        about=on_one_line(about),
        count=count,
        outcome=outcome,
        detail=None if job is None else msgspec.json.encode({"job": job}),
    )


def named(ids: Sequence[object]) -> str:
    """Name some of those that it is about."""
    more = len(ids) - NAMED
    return ", ".join(map(str, ids[:NAMED])) + (f" and {more} more" if more > 0 else "")


def letters_named(
    outbox: str | None, ids: Sequence[int], *, partition: int | None, type_: str | None, has_key: bool
) -> str:
    """Say which dead letters are meant: by what they must have, or all. A key itself may be secret."""
    words = (
        outbox,
        None if partition is None else f"partition {partition}",
        None if type_ is None else f"type={type_}",
        "key" if has_key else None,
        f"{'letter' if len(ids) == 1 else 'letters'} {named(ids)}" if ids else None,
    )
    return ", ".join(word for word in words if word is not None) or "all of them"


def on_one_line(value: str) -> str:
    """Keep what a line of a log, and every store, can carry."""
    short = value if len(value) <= LONGEST else f"{value[: LONGEST - 1]}…"
    return short if short.isprintable() else text(repr(short))


async def keep(
    store: Callable[[], Awaitable[Store | None]], entry: NewEntry, began: float, *, within: float | None = None
) -> None:
    """Have a store keep a line, also where we are cancelled meanwhile; one that keeps no audit log is left alone.

    It is kept under the time when it was `began`, by the clock of the event loop: what came of it has happened since. Who
    cannot wait for as long as the store does says within how many seconds.
    """
    await _to_the_end(_kept(store, entry, began, within))


async def _kept(
    opened: Callable[[], Awaitable[Store | None]], entry: NewEntry, began: float, within: float | None
) -> None:
    try:
        async with asyncio.timeout(within):
            store = await opened()
            if store is not None and isinstance(store, Overview):
                passed = asyncio.get_running_loop().time() - began
                await store.write_audit([entry], at=store.now() - timedelta(seconds=passed))
    except Exception as error:  # noqa: BLE001 - whatever it is, the change has been made
        line = f"{entry.who} {entry.action} {entry.about}: {entry.outcome}"
        unforeseen = None if isinstance(error, MainspringError | TimeoutError) else error
        why = on_one_line(str(error)) or "the store did not answer in time"
        audit.error("not in the audit log: %s; %s", line, why, exc_info=unforeseen)


async def _to_the_end(writing: Coroutine[object, object, None]) -> None:
    """Wait for something to be written, and for a moment longer if we are cancelled meanwhile."""
    task = asyncio.create_task(writing)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task], timeout=PATIENCE)
        raise
