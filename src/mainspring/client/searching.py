"""Looking for jobs by what people type, and reading the audit log: where the role `Overview` is asked.

A store that does not play the role can still list jobs by what all stores know.
"""

from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Final, TypeAlias, TypedDict
from uuid import UUID

import msgspec

from mainspring.client.options import read_id, read_word
from mainspring.core.job import Cause, JobId, NodeId, State
from mainspring.core.keys import shorten_key
from mainspring.core.names import Name
from mainspring.duration import Duration, duration
from mainspring.errors import BadDuration, DeclarationError, NoOverview
from mainspring.stores.overview import Argument, Found, Overview, Search
from mainspring.stores.port import Store
from mainspring.stores.records import JobFilter, JobView
from mainspring.stores.searching import previewed

EARLIEST: Final = 1970

When: TypeAlias = datetime | Duration
"""An instant, or how long ago: "2h"; or the text of an instant, "2030-01-01T12:00:00Z"."""


class Which(TypedDict, total=False):
    """Which jobs are looked for; what is left out does not matter."""

    state: State | str | Iterable[State | str]
    queue: str | None
    task: str | None
    key: str | None
    tag: str | None
    cause: Cause | str | None
    parent: UUID | str | None
    node: str | None
    since: When | None
    """Enqueued then or later: an instant, or an age as "2h"."""
    until: When | None
    error: str | None
    """A text within the class and message of the last error."""
    argument: str | None
    """`order.id=7`, or `order.id` if anything is there; what is no JSON is text, `name=Ada`."""


def overview_of(store: Store, what: str) -> Overview:
    """Return a store as one that can be looked at as a whole, or raise `NoOverview`."""
    if isinstance(store, Overview):
        return store
    raise NoOverview(type(store).__name__, what)


async def search(
    store: Store,
    which: Search,
    *,
    limit: int = 50,
    after: JobId | None = None,
    preview: int | None = None,
    accept: Callable[[JobView], bool] | None = None,
) -> Found:
    """Look for jobs, the newest first; raises `NoOverview` where the store cannot tell."""
    if isinstance(store, Overview):
        return await store.search(which, limit=limit, after=after, preview=preview, accept=accept)
    given = {name for name in which.__struct_fields__ if getattr(which, name) not in {None, ()}}
    if more := sorted(given - set(JobFilter.__struct_fields__)):
        raise NoOverview(type(store).__name__, f"search by {' and '.join(more)}")
    plain = JobFilter(**{name: getattr(which, name) for name in JobFilter.__struct_fields__})
    page = await store.list_jobs(plain, limit=limit, after=after)
    back_to = page.jobs[-1].enqueued_at if page.jobs else None
    jobs = tuple(previewed(view, preview) for view in page.jobs)
    return Found(jobs=jobs, after=page.after, looked=len(jobs), back_to=back_to, in_time=page.in_time)


def read_states(text: str) -> tuple[State, ...]:
    """Read states with commas between them."""
    words = [word.strip() for word in text.split(",") if word.strip()]
    return tuple(read_word("state", word, State) for word in words)


def search_of(which: Which, now: datetime) -> Search:
    """Read which jobs are looked for, or raise `DeclarationError`."""
    state, task, parent, cause = which.get("state", ()), which.get("task"), which.get("parent"), which.get("cause")
    node, since, until, argument = which.get("node"), which.get("since"), which.get("until"), which.get("argument")
    key = which.get("key")
    return Search(
        states=read_states(state) if isinstance(state, str) else tuple(read_word("state", one, State) for one in state),
        queue=which.get("queue"),
        task=None if task is None else Name.parse(task),
        tag=which.get("tag"),
        cause=None if cause is None else read_word("cause", cause, Cause),
        parent=None if parent is None else read_id(parent),
        key=None if key is None else shorten_key(key),
        node=None if node is None else NodeId(node),
        since=None if since is None else read_instant("since", since, now),
        until=None if until is None else read_instant("until", until, now),
        error=which.get("error"),
        argument=None if argument is None else read_argument(argument),
    )


def read_instant(name: str, value: When, now: datetime) -> datetime:
    """Read an instant, or how long ago it was: "2026-01-31T09:00:00Z", "2h"."""
    found = value if isinstance(value, datetime) else None
    if not isinstance(value, datetime):
        try:
            return now - duration(value)
        except BadDuration:
            found = _instant(str(value))
    if found is None or found.tzinfo is None or found.year < EARLIEST:
        problem = (
            f"write 2026-01-31T09:00:00Z, with a zone, or how long ago it was, as 2h, and not {str(value)[:100]!r}"
        )
        raise DeclarationError(name, problem)
    return found.astimezone(UTC)


def _instant(text: str) -> datetime | None:
    try:
        found = datetime.fromisoformat(text)
        return found if found.tzinfo is None else found.astimezone(UTC)
    except (ValueError, OverflowError):  # the last hours that there are may be none in UTC
        return None


def read_argument(text: str) -> Argument:
    """Read where an argument is, and what: `order.id=7`, or only where. What is no JSON is text: `name=Ada`."""
    path, equals, value = text.partition("=")
    steps = tuple(path.strip().split("."))
    if not all(steps):
        raise DeclarationError("argument", f"write order.id=7, name=Ada, or only order.id, and not {text[:100]!r}")
    return Argument(path=steps, value=_json(value.strip()) if equals else None)


def _json(text: str) -> bytes:
    try:
        msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return msgspec.json.encode(text)
    return text.encode()
