"""Who changed what, and how that went: one line for every change that somebody asked for, done or not.

It is written to the log `mainspring.audit`, and to the store, where that keeps an audit log. What was sent along stays
out of it: it may be secret. Somebody who is not known is in the log only: strangers must not be able to fill a store.
"""

import asyncio
import logging
from collections.abc import Coroutine
from datetime import timedelta
from typing import Final, NamedTuple

import msgspec
from msgspec import UNSET

from mainspring.app import Mainspring
from mainspring.client.plain import text
from mainspring.stores.overview import NewEntry, Overview
from mainspring.web.auth import Identity
from mainspring.web.groups.common import Made
from mainspring.web.problems import Error
from mainspring.web.routes import AnyRoute

audit = logging.getLogger("mainspring.audit")

LONGEST: Final = 500
"""Characters of what it is about."""
_NAMES: Final = ("about", "qname", "id", "name", "task", "outbox")
"""What a request may call what it is about; the first that it has."""


CUT_OFF: Final = Error(code="cut_off", message="the server ended before it was known what came of it")
PATIENCE: Final = 2.0
"""Seconds that a line may take once the server has been told to end."""


class Came(NamedTuple):
    """What came of a request."""

    who: Identity | None
    said: object
    given: object
    problem: Error | None
    status: int
    began: float
    """By the clock of the event loop: when it was begun, before anything was changed."""


async def write_down(app: Mainspring, route: AnyRoute, came: Came) -> None:
    """Write a line, also where the request is cancelled. If it cannot be kept, what was done stays done."""
    if came.problem is None and getattr(came.said, "dry_run", False):
        return  # nothing was changed, nor meant to be
    name, about = on_one_line(came.who.name if came.who else "unknown"), on_one_line(about_of(came.said))
    action = action_of(route, came.said)
    audit.info("%s %s %s: %d", name, action, about, came.status)
    if came.who is None:
        return
    outcome = came.problem.code if came.problem else "done"
    count, detail = count_of(came.given), detail_of(came.given)
    entry = NewEntry(who=name, action=action, about=about, count=count, outcome=outcome, detail=detail)
    await _to_the_end(_kept(app, entry, came.began))


def signed_in(who: Identity | None, place: str) -> None:
    """Write to the log who has signed in, or that somebody tried to. It changes nothing, so the store is not told."""
    name = on_one_line(who.name) if who else "unknown"
    audit.info("%s login %s: %d", name, on_one_line(place), 303 if who else 401)


async def _kept(app: Mainspring, entry: NewEntry, began: float) -> None:
    """Have the store keep it under the time when it was begun: what came of it has happened since."""
    try:
        store = await app._connection.store()  # noqa: SLF001 - as in `Asked.store`
        if isinstance(store, Overview):
            passed = asyncio.get_running_loop().time() - began
            await store.write_audit([entry], at=store.now() - timedelta(seconds=passed))
    except Exception:  # noqa: BLE001 - whatever it is, the change has been made
        audit.exception("not kept: %s %s %s: %s", entry.who, entry.action, entry.about, entry.outcome)


async def _to_the_end(writing: Coroutine[object, object, None]) -> None:
    """Wait for something to be written, and for a moment longer if we are cancelled meanwhile."""
    task = asyncio.create_task(writing)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task], timeout=PATIENCE)
        raise


def action_of(route: AnyRoute, said: object) -> str:
    """Name what was asked for; what is done to many has the name of what is done to one."""
    return str(route.also(said)) if route.also and isinstance(said, route.takes) else route.name


def about_of(said: object) -> str:
    """Say what a request is about."""
    values = (getattr(said, name, None) for name in _NAMES)
    return next((str(value) for value in values if value is not None and value is not UNSET), "")


def count_of(given: object) -> int | None:
    """Say to how many it was done, where an answer tells."""
    values = (getattr(given, name, None) for name in ("changed", "made"))
    return next((int(value) for value in values if isinstance(value, int)), None)


def detail_of(given: object) -> bytes | None:
    """Name the job that was made, where one was."""
    return msgspec.json.encode({"job": given.id}) if isinstance(given, Made) else None


def on_one_line(value: str) -> str:
    """Keep what a line of a log, and every store, can carry."""
    short = value if len(value) <= LONGEST else f"{value[: LONGEST - 1]}…"
    return short if short.isprintable() else text(repr(short))
