"""What is counted of work in a span of time, and how counts are put together.

Lengths of time are counted in steps, each of which is longer than the one before by the same factor: what took between
1.0 and 1.19 s is one step, whatever it was exactly. So counts of many nodes and minutes can be added up, and a percentile
of the whole be told to within a tenth.
"""

import math
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Final, TypeAlias, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

MINUTE: Final = timedelta(minutes=1)
TEN_MINUTES: Final = timedelta(minutes=10)

SHORTEST: Final = 0.001
"""Seconds: everything shorter is in step 0."""
STEPS_TO_DOUBLE: Final = 4
LAST_STEP: Final = 120
"""It ends after about twelve days; everything longer is in it too."""
MOST_ERRORS: Final = 20
"""Classes of errors that are told apart in one line; the rarest are put together as `OTHERS`."""
OTHERS: Final = "others"

_STARTS: Final = [SHORTEST * 2 ** (step / STEPS_TO_DOUBLE) for step in range(LAST_STEP)]
"""Of steps 1, 2 and so on."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

K = TypeVar("K")
Steps: TypeAlias = Mapping[int, int]
"""How many took so long, by step."""


class Count(Struct, frozen=True, kw_only=True):
    """How many jobs of one queue and task there are. Each number is `MOST` of the census if there are as many, or more."""

    queue: str
    task: str
    due: int = 0
    """Waiting, and could be taken."""
    later: int = 0
    """Waiting for their time."""
    running: int = 0
    oldest: datetime | None = None
    """Since when the one has been due that has been for the longest."""


class Line(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """What happened to the jobs of one queue and task.

    Tens of thousands are kept by whoever looks at days. None can be part of a cycle, so the collector need not go
    through them: of two weeks it took a quarter of a second at a time, in which nothing else went on.
    """

    queue: str
    task: str
    ends: Mapping[str, int] = {}
    """How attempts ended, by `machine.Event`."""
    waits: Steps = {}
    """How long jobs waited from when they were due until they started."""
    runs: Steps = {}
    """How long attempts took."""
    errors: Mapping[str, int] = {}
    """Of attempts that raised, by class; of jobs that failed without that, by cause."""


class Counted(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """All that was counted in a span."""

    lines: tuple[Line, ...] = ()
    """By queue and task."""
    enqueued: int = 0
    counted_at: datetime | None = None
    """When a census was taken last; from here on, of several spans those of the last one that has one."""
    complete: bool = True
    """Whether that census counted everything."""
    counts: tuple[Count, ...] = ()
    nodes: int = 0
    places: int = 0
    """How many jobs all nodes together could have run."""


def step_of(seconds: float) -> int:
    """Return the step in which a length of time is counted."""
    return bisect_right(_STARTS, seconds)


def seconds_of(step: int) -> float:
    """Return a length of time out of the middle of a step."""
    if step == 0:
        return SHORTEST / 2
    return float(SHORTEST * 2 ** ((step - 0.5) / STEPS_TO_DOUBLE))


def percentile(steps: Steps, share: float) -> float | None:
    """Say how long the given share of all took at most, as nearly as steps tell; None if nothing was counted."""
    left = math.ceil(share * sum(steps.values()) - 1e-9)  # 0.07 of 100 is 7, and not the 7.000000000000001 of floats
    for step in sorted(steps):
        left -= steps[step]
        if left <= 0:
            return seconds_of(step)
    return None


def time_in(steps: Steps) -> float:
    """Say how many seconds all took together, as nearly as steps tell."""
    return sum(seconds_of(step) * number for step, number in steps.items())


def added(many: Iterable[Counted]) -> Counted:
    """Put counts together. Whose census counts is told by its time; all else is the same in any order."""
    total = Sum()
    for one in many:
        total.add(one)
    return total.counted()


class Sum:
    """Counts that are put together one by one, by somebody who may pause in between."""

    def __init__(self) -> None:
        self._lines: dict[tuple[str, str], _LineSum] = {}
        self._enqueued = 0
        self._last = Counted()

    def add(self, one: Counted) -> None:
        self._enqueued += one.enqueued
        self._last = _later(self._last, one)
        for line in one.lines:
            where = line.queue, line.task
            if where in self._lines:
                self._lines[where].add(line)
            else:
                self._lines[where] = _LineSum(line)

    def counted(self) -> Counted:
        lines = tuple(self._lines[where].line(*where) for where in sorted(self._lines))
        return replace(self._last, lines=lines, enqueued=self._enqueued)


def _later(one: Counted, other: Counted) -> Counted:
    if other.counted_at is None or (one.counted_at is not None and one.counted_at > other.counted_at):
        return one
    return other


class _LineSum:
    """Lines of one queue and task, added up."""

    def __init__(self, first: Line) -> None:
        self._ends = dict(first.ends)
        self._waits = dict(first.waits)
        self._runs = dict(first.runs)
        self._errors = dict(first.errors)

    def add(self, line: Line) -> None:
        add_to(self._ends, line.ends)
        add_to(self._waits, line.waits)
        add_to(self._runs, line.runs)
        add_to(self._errors, line.errors)

    def line(self, queue: str, task: str) -> Line:
        errors = fewer(self._errors)
        return Line(queue=queue, task=task, ends=self._ends, waits=self._waits, runs=self._runs, errors=errors)


def add_to(total: dict[K, int], more: Mapping[K, int]) -> None:
    """Add what is counted under the same word."""
    for key, number in more.items():
        total[key] = total.get(key, 0) + number


def fewer(errors: Mapping[str, int]) -> dict[str, int]:
    """Keep the most frequent classes, and put the others together."""
    if len(errors) <= MOST_ERRORS:
        return dict(errors)
    named = sorted((name for name in errors if name != OTHERS), key=lambda name: (-errors[name], name))
    kept = {name: errors[name] for name in named[: MOST_ERRORS - 1]}
    return {**kept, OTHERS: sum(errors.values()) - sum(kept.values())}


def start_of(instant: datetime, span: timedelta) -> datetime:
    """Return when the span began in which an instant lies: spans are whole since the epoch."""
    return instant - (instant - _EPOCH) % span


def written(counted: Counted) -> bytes:
    """Write counts down, as they are kept."""
    return msgspec.json.encode(counted)


def read(body: bytes) -> Counted | None:
    """Read what was written down; None if it cannot be understood, as from a later version."""
    try:
        return msgspec.json.decode(body, type=Counted)
    except msgspec.DecodeError:
        return None
