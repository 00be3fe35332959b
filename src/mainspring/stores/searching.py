"""Whether a job is one that is looked for. Stores ask here while they walk back: no index knows its error or arguments."""

from collections.abc import Callable
from functools import lru_cache
from itertools import takewhile
from typing import Any, Final

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from mainspring.core.outcome import AttemptError
from mainspring.stores.overview import Argument, Search
from mainspring.stores.records import Cut, JobFilter, JobView, cut_of

_decode = msgspec.json.decode

REMEMBERED: Final = 16
"""Arguments that are looked for again and again, by pages that keep themselves up to date."""
DEEPEST: Final = 10
"""Steps of a path for which types are made. Nobody takes more, but for those who want to see what becomes of a thousand."""


def previewed(view: JobView, preview: int | None) -> JobView:
    """Shorten a job to a preview: the first bytes of its payload, and neither saved values nor its result."""
    known = view.cut or Cut()
    cut = cut_of(
        preview,
        known.payload or len(view.payload),
        known.saved or len(view.saved or b""),
        known.result or len(view.result or b""),
    )
    return view if cut is None else replace(view, payload=view.payload[:preview], saved=None, result=None, cut=cut)


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
    return finder(argument)(payload)


@lru_cache(REMEMBERED)
def finder(argument: Argument) -> Callable[[bytes], bool]:
    """Make what says of many payloads whether an argument is there.

    Of each no more is built than what the path leads to: that takes half as long as to read all of a short payload, and
    a quarter of a long one. What may be a place in a list, or is no plain name, is gone to step by step.
    """
    path = ("args", *argument.path)
    names = tuple(takewhile(str.isidentifier, path[:DEEPEST]))
    steps = path[len(names) :]
    read = msgspec.json.Decoder(_within(names)).decode
    value = argument.value

    def find(payload: bytes) -> bool:
        try:
            found: Any = read(payload)
            for _ in names:
                found = found.inner
                if found is UNSET:
                    return False
            for step in steps:
                found = found[int(step)] if isinstance(found, list) else found[step]
            if value is None:
                return True
            wanted = _decode(value)
            return found == wanted and same(found, wanted)  # what differs for Python does so in JSON, and sooner
        except (LookupError, TypeError, ValueError, RecursionError):  # it is not there, or no such payload
            return False

    return find


def _within(names: tuple[str, ...]) -> Any:  # noqa: ANN401 -- a type that is made here
    """Make the type of an object in an object, each under its name, of which all else is passed over."""
    inner: Any = Any
    for name in reversed(names):
        inner = msgspec.defstruct("Outer", [("inner", inner | UnsetType, msgspec.field(default=UNSET, name=name))])
    return inner


def same(one: object, other: object) -> bool:
    """Compare what was read from JSON: 1 is 1.0 there, and not true, at any depth."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(value, other[key]) for key, value in one.items())
    return one == other
