"""What can be said about an enqueue, read and checked: `task.using(delay="10m", priority="high")`.

The readers of single options are shared with the declaration of tasks and queues, which have many of the same.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from difflib import get_close_matches
from enum import StrEnum
from typing import Any, Final, Literal, TypeAlias, TypedDict, TypeVar
from uuid import UUID

from mainspring.core.command import HIGHEST_PRIORITY, LOWEST_PRIORITY
from mainspring.core.job import JobId, Retention
from mainspring.core.keys import MAX_KEY_BYTES, key_length, shorten_key
from mainspring.core.names import Name
from mainspring.core.retry import GREATEST
from mainspring.core.unique import Unique
from mainspring.duration import Duration, duration
from mainspring.errors import DeclarationError
from mainspring.stores.records import AT_ONCE, When

Band: TypeAlias = Literal["background", "low", "normal", "high", "critical"]
BANDS: Final[Mapping[str, int]] = {"background": 0, "low": 25, "normal": 50, "high": 75, "critical": 100}

Priority: TypeAlias = int | Band
Reader: TypeAlias = Callable[[Any], object]
E = TypeVar("E", bound=StrEnum)
Tags: TypeAlias = str | Iterable[str]


class Using(TypedDict, total=False):
    """What `using` takes. None stands for nothing said."""

    delay: Duration | None
    """How long to wait before it is due."""
    run_at: datetime | None
    """When it is due."""
    priority: Priority | None
    queue: str | None
    max_attempts: int | None
    """Executions in total; the task's own limit holds too."""
    timeout: Duration | None
    expires: Duration | datetime | None
    """When it is no longer worth starting; a length of time counts from when it is due."""
    unique: Unique | str | bool | None
    """How it is unique, a key to be unique by, or False: not at all. A key of more than 200 bytes is kept as its hash."""
    key: str | None
    """What the task's keyed limit counts it under, instead of its arguments. More than 200 bytes are kept as a hash."""
    tags: Tags | None
    owner: str | None
    id: UUID | str | None
    """An id of your own: enqueued twice, there is still one job."""
    traceparent: str | None
    retention: Retention | None
    tx: object
    """A connection or session with a transaction of yours: the job is there when that commits, or never."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The same, read."""

    run_at: When = AT_ONCE
    priority: int | None = None
    queue: str | None = None
    max_attempts: int | None = None
    timeout: timedelta | None = None
    expires: When | None = None
    unique: Unique | str | bool | None = None
    key: str | None = None
    tags: tuple[str, ...] = ()
    owner: str | None = None
    id: JobId | None = None
    traceparent: str | None = None
    retention: Retention | None = None
    tx: object = None

    @property
    def own(self) -> tuple[str, ...]:
        """Name those that can be said of one job only."""
        given = {"id": self.id, "owner": self.owner, "traceparent": self.traceparent}
        return tuple(name for name, value in given.items() if value is not None)

    def but(self, given: Using) -> "Options":
        """Read what was said on top of this; raises `DeclarationError` with everything that is wrong with it."""
        values, problems = read_all(given, _READERS)
        if "tx" in given and given["tx"] is None:
            # What asyncpg's `async with connection.transaction() as tx` gives: the job must not go in outside unnoticed.
            problems.append("tx is None; give the connection or session that is in the transaction")
        if "delay" in values and "run_at" in values:
            problems.append("delay and run_at say the same thing; give one of them")
        DeclarationError.unless("using", ((False, problem) for problem in problems))
        if "delay" in values:
            values["run_at"] = values.pop("delay")
        return replace(self, **values)


def read_all(given: Mapping[str, Any], readers: Mapping[str, Reader]) -> tuple[dict[str, Any], list[str]]:
    """Read options by their names; returns those that were given, and what is wrong."""
    values: dict[str, Any] = {}
    problems: list[str] = []
    for name, value in given.items():
        if name not in readers:
            near = get_close_matches(name, readers, n=1)
            problems.append(f"there is no option {name!r}" + (f"; did you mean {near[0]!r}?" if near else ""))
        elif value is not None:
            try:
                values[name] = readers[name](value)
            except DeclarationError as error:
                problems.append(error.problem if error.subject == name else f"{name}: {error}")
    return values, problems


def read_priority(value: object) -> int:
    if isinstance(value, str) and value in BANDS:
        return BANDS[value]
    if type(value) is int and LOWEST_PRIORITY <= value <= HIGHEST_PRIORITY:
        return value
    bands = ", ".join(f"{name!r}" for name in BANDS)
    problem = f"priority is a number from {LOWEST_PRIORITY} to {HIGHEST_PRIORITY}, or one of {bands}, not {value!r}"
    raise DeclarationError("priority", problem)


def read_queue(value: object) -> str:
    return Name("", read_text(value)).local  # the same rules as for names of tasks


def read_text(value: object) -> str:
    if isinstance(value, str) and value:
        return value
    raise DeclarationError(repr(value), "give some text")


def read_short(value: object) -> str:
    """Read a text that a store looks up by an index."""
    text = read_text(value)
    if key_length(text) > MAX_KEY_BYTES:
        problem = f"length {key_length(text):,} exceeds the limit of {MAX_KEY_BYTES} bytes; use a shorter text"
        raise DeclarationError(f"{text[:40]!r}…", problem)
    return text


def read_count(value: object) -> int:
    if type(value) is not int or value < 1:
        raise DeclarationError(repr(value), "a number of at least 1 is needed")
    if value > GREATEST:
        raise DeclarationError(repr(value), f"a number of at most {GREATEST:,} is needed")
    return value


def read_retention(value: object) -> Retention:
    if isinstance(value, Retention):
        return value
    raise DeclarationError(repr(value), "write Retention(succeeded=timedelta(days=1), failed=timedelta(days=7))")


def read_texts(value: object) -> tuple[str, ...]:
    """Read one text, or several."""
    several = [value] if isinstance(value, str) or not isinstance(value, Iterable) else value
    return tuple(read_text(one) for one in several)


def read_id(value: object) -> JobId:
    if isinstance(value, UUID):
        return JobId(value)
    try:
        return JobId(UUID(read_text(value)))
    except ValueError:
        raise DeclarationError(repr(value), "ids of jobs are UUIDs") from None


def read_moment(value: object) -> datetime:
    if isinstance(value, datetime) and value.tzinfo is not None:
        return value
    if isinstance(value, datetime):
        raise DeclarationError(str(value), "it has no time zone; add tzinfo=UTC, or the zone it is meant in")
    raise DeclarationError(repr(value), "a datetime is needed")


def _read_run_at(value: object) -> datetime:
    if isinstance(value, datetime):
        return read_moment(value)
    raise DeclarationError(repr(value), "a datetime is needed; for a length of time there is delay=")


def _read_expires(value: Duration | datetime) -> When:
    return read_moment(value) if isinstance(value, datetime) else duration(value)


def _read_key(value: object) -> str:
    return shorten_key(read_text(value))


def _read_unique(value: object) -> Unique | str | bool:
    if isinstance(value, str) and value:
        return shorten_key(value)
    if isinstance(value, Unique | bool):
        return value
    raise DeclarationError(repr(value), "write Unique(key='order'), True, False, or the text of a key")


def _read_tx(value: object) -> object:
    return value


_READERS: Final[Mapping[str, Reader]] = {
    "delay": duration,
    "run_at": _read_run_at,
    "priority": read_priority,
    "queue": read_queue,
    "max_attempts": read_count,
    "timeout": duration,
    "expires": _read_expires,
    "unique": _read_unique,
    "key": _read_key,
    "tags": read_texts,
    "owner": read_text,
    "id": read_id,
    "traceparent": read_text,
    "retention": read_retention,
    "tx": _read_tx,
}


def read_word(what: str, word: str, kind: type[E]) -> E:
    """Read a member of an enumeration, or raise `DeclarationError` with the nearest that there is."""
    if word in list(kind):
        return kind(word)
    near = get_close_matches(word, [str(one) for one in kind], n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    raise DeclarationError(what, f"{word}: there are {', '.join(kind)}{hint}")
