"""Whether a job is one that is looked for. Stores ask here while they walk back: no index knows its error or arguments."""

from typing import Any

import msgspec

from mainspring.core.outcome import AttemptError
from mainspring.stores.overview import Argument, Search
from mainspring.stores.records import JobFilter, JobView

_decode = msgspec.json.decode


def is_listed(which: JobFilter, view: JobView) -> bool:
    """Say whether a job is one of those that a list is of."""
    job = view.job
    return (
        (not which.states or job.state in which.states)
        and which.queue in {None, job.queue}
        and which.task in {None, job.task}
        and (which.tag is None or which.tag in view.facts.tags)
        and which.cause in {None, job.cause}
        and which.parent in {None, view.facts.parent}
    )


def fits(which: Search, view: JobView) -> bool:
    """Say whether a job is one of those that are looked for."""
    return (
        is_listed(which, view)
        and which.key in {None, view.key}
        and which.node in {None, view.node}
        and (which.since is None or view.enqueued_at >= which.since)
        and (which.until is None or view.enqueued_at < which.until)
        and fits_inside(which, view)
    )


def looks_inside(which: Search) -> bool:
    """Say whether jobs have to be read whole to know whether they fit."""
    return which.error is not None or which.argument is not None


def fits_inside(which: Search, view: JobView) -> bool:
    """Say whether the error and the arguments of a job are those that are looked for."""
    if which.error is not None and not says(view.error, which.error):
        return False
    return which.argument is None or has(which.argument, view.payload)


def says(error: AttemptError | None, text: str) -> bool:
    """Say whether a text is within an error."""
    return error is not None and text.casefold() in f"{error.type}: {error.message}".casefold()


def has(argument: Argument, payload: bytes) -> bool:
    """Say whether an argument is in a payload: all that has to be read of most jobs."""
    try:
        found: Any = _decode(payload)["args"]
        for step in argument.path:
            found = found[int(step)] if isinstance(found, list) else found[step]
        return argument.value is None or same(found, _decode(argument.value))
    except (LookupError, TypeError, ValueError, RecursionError):  # it is not there, or no such payload
        return False


def same(one: object, other: object) -> bool:
    """Compare what was read from JSON: 1 is 1.0 there, and not true, at any depth."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(value, other[key]) for key, value in one.items())
    return one == other
