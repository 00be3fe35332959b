"""Who changed what, and how that went: one line for every change that somebody asked for, done or not.

It is written to the log `mainspring.audit`, and to the store, where that keeps an audit log. What was sent along stays
out of it: it may be secret. Somebody who is not known is in the log only: strangers must not be able to fill a store.
"""

from typing import Final, NamedTuple

from msgspec import UNSET

from mainspring.app import Mainspring
from mainspring.client import error_words
from mainspring.client.audit import DONE, DRY_RUN, FROM_A_SHELL, audit, entry_of, keep, on_one_line
from mainspring.core.job import JobId
from mainspring.web.auth import Identity
from mainspring.web.groups.common import Made
from mainspring.web.problems import Error
from mainspring.web.routes import AnyRoute
from mainspring.web.shares import Refusals

_NAMES: Final = ("about", "qname", "id", "name", "task", "outbox")
"""What a request may call what it is about; the first that it has."""
CUT_OFF: Final = Error(code=error_words.CUT_OFF, message="the server ended before it was known what came of it")


class Came(NamedTuple):
    """What came of a request."""

    who: Identity | None
    said: object
    given: object
    problem: Error | None
    status: int
    began: float
    """By the clock of the event loop: when it was begun, before anything was changed."""
    is_tried: bool
    """Whether the handler was called, or the check that it begins with."""

    @property
    def is_refused(self) -> bool:
        """Whether nothing can have been changed: a handler that failed may have done a part of its work."""
        if self.problem is None or self.problem is CUT_OFF or self.status >= 500:
            return False
        return not self.is_tried or self.problem.code == "not_allowed"


async def write_down(app: Mainspring, route: AnyRoute, came: Came, refusals: Refusals) -> None:
    """Write an audit line, even if the request is cancelled. If the write fails, the action is not undone.

    The log gets every line. In the store, refused changes of one identity above a rate are one line with a count.
    """
    is_dry = came.problem is None and getattr(came.said, "dry_run", False)
    if is_dry and not route.runs_statements:
        return  # nothing was changed, nor meant to be
    entry = entry_of(
        name_of(came.who),
        action_of(route, came.said),
        about_of(came.said),
        count=count_of(came.given),
        outcome=came.problem.code if came.problem else DRY_RUN if is_dry else DONE,
        job=job_of(came.given),
    )
    audit.info("%s %s %s: %d", entry.who, entry.action, entry.about, came.status)
    for who, number in refusals.over():
        folded = entry_of(who, "refused", "above the rate limit", count=number, outcome="refused")
        await keep(app._connection.store, folded, came.began)  # noqa: SLF001 - as below
    if came.who is not None and not (came.is_refused and not refusals.add(entry.who)):
        await keep(app._connection.store, entry, came.began)  # noqa: SLF001 - as in `Asked.store`


def signed_in(who: Identity | None, place: str) -> None:
    """Write to the log who has signed in, or that somebody tried to. It changes nothing, so the store is not told."""
    audit.info("%s login %s: %d", on_one_line(name_of(who)), on_one_line(place), 303 if who else 401)


def name_of(who: Identity | None) -> str:
    """Name whoever asks, so that nobody passes for somebody at a shell."""
    name = who.name if who else "unknown"
    return f"http:{name}" if name.startswith(FROM_A_SHELL) else name


def action_of(route: AnyRoute, said: object) -> str:
    """Name what was asked for; what is done to many has the name of what is done to one."""
    return str(route.also(said)) if route.also and isinstance(said, route.takes) else route.name


def about_of(said: object) -> str:
    """Say what a request is about."""
    values = (getattr(said, name, None) for name in _NAMES)
    return next((str(value) for value in values if value is not None and value is not UNSET), "")


def count_of(given: object) -> int | None:
    """Say to how many it was done, where an answer tells."""
    values = (getattr(given, name, None) for name in ("changed", "made", "rows"))
    return next((int(value) for value in values if isinstance(value, int)), None)


def job_of(given: object) -> JobId | None:
    """Name the job that was made, where one was."""
    return given.id if isinstance(given, Made) else None
