"""What `@plugin.job` says: a task and a schedule of it, under one name, and how many of its jobs may run at a time."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final, Literal, TypeAlias

from mainspring.client.declaration import TaskOptions
from mainspring.client.function import result_type
from mainspring.core.codec import Value
from mainspring.core.limits import Limit
from mainspring.errors import DeclarationError
from mainspring.runtime.definition import Definition
from mainspring.runtime.reported import JobOutcome, finish

Concurrency: TypeAlias = Literal["exclusive", "unbounded"] | int
"""One at a time, any number, or so many; over all nodes together."""
Overlap: TypeAlias = Literal["skip", "allow"]

_UNSAID: Final = JobOutcome | bool | int | float | str | list[Any] | None
"""What a function may return that does not say: of an object in JSON it could not be told whether it is an outcome."""


def limited(options: TaskOptions, concurrency: Concurrency) -> TaskOptions:
    """Add the limit of a job to the options of its task."""
    if isinstance(concurrency, bool) or not (concurrency in {"exclusive", "unbounded"} or isinstance(concurrency, int)):
        raise DeclarationError("concurrency", f"'exclusive', 'unbounded' or a number, not {concurrency!r}")
    if concurrency == "unbounded":
        return options
    whole = Limit(concurrency=1 if concurrency == "exclusive" else int(concurrency))
    given = options.get("limit") or ()
    return {**options, "limit": [whole, *(given if isinstance(given, Sequence) else (given,))]}


def overlap_of(concurrency: Concurrency) -> Overlap:
    """An exclusive job has no line behind it: a slot that comes up meanwhile is skipped, and a run says so."""
    return "skip" if concurrency == "exclusive" else "allow"


def reporting(definition: Definition) -> Definition:
    """Have what the function returns be read as an outcome."""
    result = definition.result
    if result_type(definition.function) in (Any, object):
        result = Value.of(_UNSAID, subject=f"result of {definition.name}")
    return replace(definition, result=result, finish=partial(finish, definition.name))
