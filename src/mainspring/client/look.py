"""What people see of a store as a whole, made from what its nodes have counted. Pure: counts in, records out."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

from msgspec import Struct

from mainspring.client.health.finding import Finding
from mainspring.client.spans import Span, attempts_in
from mainspring.core.machine import Event
from mainspring.core.tally import (
    MINUTE,
    TEN_MINUTES,
    Counted,
    Line,
    Steps,
    add_to,
    percentile,
    start_of,
    time_in,
)
from mainspring.stores.overview import QueueRule
from mainspring.stores.records import Pause

FINE: Final = timedelta(hours=3)
"""So far back there are minutes; before that, spans of ten."""
MOST_TASKS: Final = 20
MOST_ERRORS: Final = 20
MOST_QUEUES: Final = 500
SPARKLINE: Final = 60
"""Minutes that the line of a queue shows."""


class Point(Struct, frozen=True, kw_only=True):
    """What happened in one span of a series."""

    at: datetime
    enqueued: int = 0
    succeeded: int = 0
    failed: int = 0
    retried: int = 0
    """Attempts that raised, and are made again."""
    lost: int = 0


class Percentiles(Struct, frozen=True, kw_only=True):
    """Lengths of time in seconds, told to within a tenth; None where nothing was counted."""

    count: int = 0
    p50: float | None = None
    p95: float | None = None
    p99: float | None = None


class Depth(Struct, frozen=True, kw_only=True):
    """How many jobs there were when they were counted last; of each queue and task ten thousand at most."""

    due: int = 0
    later: int = 0
    running: int = 0
    oldest: datetime | None = None
    """Since when the one has been due that has been for the longest."""


class TaskLook(Struct, frozen=True, kw_only=True):
    """What the attempts at one task came to."""

    task: str
    attempts: int
    seconds: float
    """That all of them took together."""
    share: float
    """Of the time of all tasks."""
    failures: int
    """Attempts that raised, or were lost."""
    failure_rate: float
    run: Percentiles
    wait: Percentiles


class ErrorLook(Struct, frozen=True, kw_only=True):
    """How often something went wrong in a task."""

    error: str
    """A class, or why a job failed without one."""
    task: str
    count: int


class QueueLook(Struct, frozen=True, kw_only=True):
    """A queue: what is in it, what holds for it, and what happened in it."""

    name: str
    depth: Depth = Depth()
    paused: Pause | None = None
    declared: int | None = None
    """How many of its jobs may run at a time, over all nodes, as code has it."""
    rate: str | None = None
    """How many of its jobs may start in a period, as code has it: "5/s". It holds beside either limit."""
    limit: int | None = None
    """The same, as an operator has it; it holds in place of the other."""
    limited_by: str = ""
    places: int | None = None
    """What holds of the two; None: as many as there are places on nodes."""
    nodes: int = 0
    """Live nodes that take jobs from it."""
    room: int = 0
    """Places on those nodes, for all that they do."""
    attempts: int = 0
    failures: int = 0
    per_minute: float = 0.0
    """Attempts that ended, over the whole span."""
    wait: Percentiles = Percentiles()
    sparkline: tuple[int, ...] = ()
    """Attempts that ended, by minute, the last hour at most."""


class Look(Struct, frozen=True, kw_only=True):
    """A store as a whole. What nodes counted is approximate: those that were killed took a few seconds of it along."""

    at: datetime
    since: datetime
    step: timedelta
    """How long each point of the series is."""
    series: tuple[Point, ...] = ()
    """The oldest first; the last one is not over yet."""
    depth: Depth = Depth()
    nodes: int = 0
    places: int = 0
    saturation: float | None = None
    """The share of places that are taken; None if there are none."""
    wait: Percentiles = Percentiles()
    run: Percentiles = Percentiles()
    tasks: tuple[TaskLook, ...] = ()
    """Those that took the most time."""
    errors: tuple[ErrorLook, ...] = ()
    """The most frequent."""
    queues: tuple[QueueLook, ...] = ()
    """By name."""
    counted_at: datetime | None = None
    """When what waits and runs was counted; None: nobody has."""
    complete: bool = True
    """Whether everything was counted then."""
    has_past: bool = True
    """False: the store does not play the role `Overview`. Nothing is known of what has been, and of what waits not whether
    it is due: all of it is told as if it were."""
    warnings: tuple[Finding, ...] = ()
    """What needs a person, the worst first."""


def step_for(minutes: int) -> timedelta:
    """Say how long the points of a series over so many minutes are."""
    return MINUTE if minutes * MINUTE <= FINE else TEN_MINUTES


def starts_of(since: datetime, at: datetime, step: timedelta) -> list[datetime]:
    """Say when the spans of a window begin, the oldest first; in the last one is `at`."""
    return [since + number * step for number in range((start_of(at, step) - since) // step + 1)]


def look(
    spans: Mapping[datetime, Span],
    *,
    at: datetime,
    since: datetime,
    step: timedelta,
    census: Counted,
    rules: Iterable[QueueRule],
    total: Counted,
) -> Look:
    """Put a look together from what was counted in each span and in all of them, and the last census."""
    starts = starts_of(since, at, step)
    lines = total.lines
    tasks = _gathered(lines, lambda line: line.task)
    seconds = sum(one.seconds for one in tasks.values())
    whole = Gathered.of(lines)
    depth = _depth(census)
    return Look(
        at=at,
        since=since,
        step=step,
        series=tuple(_point(start, spans.get(start)) for start in starts),
        depth=depth,
        nodes=census.nodes,
        places=census.places,
        saturation=depth.running / census.places if census.places else None,
        wait=percentiles(whole.waits),
        run=percentiles(whole.runs),
        tasks=tuple(_busiest(tasks, seconds)),
        errors=tuple(_errors(lines)),
        queues=tuple(
            _queues(
                _gathered(lines, lambda line: line.queue),
                _sparklines(spans, starts[-SPARKLINE:] if step == MINUTE else starts),
                minutes=len(starts) * (step // MINUTE),
                census=census,
                rules=rules,
            )
        ),
        counted_at=census.counted_at,
        complete=census.complete,
    )


class Gathered:
    """Lines, added up."""

    def __init__(self) -> None:
        self.ends: dict[str, int] = {}
        self.waits: dict[int, int] = {}
        self.runs: dict[int, int] = {}

    @classmethod
    def of(cls, lines: Iterable[Line]) -> "Gathered":
        gathered = cls()
        for line in lines:
            gathered.add(line)
        return gathered

    def add(self, line: Line) -> None:
        add_to(self.ends, line.ends)
        add_to(self.waits, line.waits)
        add_to(self.runs, line.runs)

    @property
    def attempts(self) -> int:
        return attempts_in(self.ends)

    @property
    def failures(self) -> int:
        return sum(self.ends.get(event, 0) for event in (Event.FAILED, Event.WILL_RETRY, Event.LOST))

    @property
    def seconds(self) -> float:
        return time_in(self.runs)


def percentiles(steps: Steps) -> Percentiles:
    return Percentiles(
        count=sum(steps.values()),
        p50=percentile(steps, 0.5),
        p95=percentile(steps, 0.95),
        p99=percentile(steps, 0.99),
    )


def _gathered(lines: Iterable[Line], key: Callable[[Line], str]) -> dict[str, Gathered]:
    found: dict[str, Gathered] = {}
    for line in lines:
        name = key(line)
        if name not in found:
            found[name] = Gathered()
        found[name].add(line)
    return found


def _point(at: datetime, span: Span | None) -> Point:
    if span is None:
        return Point(at=at)
    return Point(
        at=at,
        enqueued=span.counted.enqueued,
        succeeded=span.ends.get(Event.SUCCEEDED, 0),
        failed=span.ends.get(Event.FAILED, 0),
        retried=span.ends.get(Event.WILL_RETRY, 0),
        lost=span.ends.get(Event.LOST, 0),
    )


def _depth(census: Counted, queue: str | None = None) -> Depth:
    counts = [one for one in census.counts if queue in {None, one.queue}]
    return Depth(
        due=sum(one.due for one in counts),
        later=sum(one.later for one in counts),
        running=sum(one.running for one in counts),
        oldest=min((one.oldest for one in counts if one.oldest), default=None),
    )


def _busiest(tasks: Mapping[str, Gathered], total: float) -> list[TaskLook]:
    busiest = sorted(tasks, key=lambda name: (-tasks[name].seconds, -tasks[name].attempts, name))[:MOST_TASKS]
    return [
        TaskLook(
            task=name,
            attempts=one.attempts,
            seconds=one.seconds,
            share=one.seconds / total if total else 0.0,
            failures=one.failures,
            failure_rate=one.failures / one.attempts if one.attempts else 0.0,
            run=percentiles(one.runs),
            wait=percentiles(one.waits),
        )
        for name in busiest
        for one in [tasks[name]]
    ]


def _errors(lines: Iterable[Line]) -> list[ErrorLook]:
    counts: dict[tuple[str, str], int] = {}
    for line in lines:
        add_to(counts, {(error, line.task): number for error, number in line.errors.items()})
    worst = sorted(counts, key=lambda where: (-counts[where], where))[:MOST_ERRORS]
    return [ErrorLook(error=error, task=task, count=counts[error, task]) for error, task in worst]


def _queues(
    gathered: Mapping[str, Gathered],
    sparks: Mapping[str, tuple[int, ...]],
    *,
    minutes: int,
    census: Counted,
    rules: Iterable[QueueRule],
) -> list[QueueLook]:
    by_name = {rule.name: rule for rule in rules}
    names = sorted({*by_name, *gathered, *(one.queue for one in census.counts)})
    found = []
    for name in names[:MOST_QUEUES]:
        rule = by_name.get(name) or QueueRule(name=name)
        one = gathered.get(name) or Gathered()
        found.append(
            QueueLook(
                name=name,
                depth=_depth(census, name),
                paused=rule.paused,
                declared=rule.declared,
                rate=None if rule.rate is None else str(rule.rate),
                limit=rule.limit,
                limited_by=rule.by,
                places=rule.declared if rule.limit is None else rule.limit,
                attempts=one.attempts,
                failures=one.failures,
                per_minute=one.attempts / minutes,
                wait=percentiles(one.waits),
                sparkline=sparks.get(name, ()),
            )
        )
    return found


def _sparklines(spans: Mapping[datetime, Span], starts: Sequence[datetime]) -> dict[str, tuple[int, ...]]:
    lines: dict[str, list[int]] = {}
    for place, start in enumerate(starts):
        for queue, attempts in spans[start].attempts.items() if start in spans else ():
            lines.setdefault(queue, [0] * len(starts))[place] = attempts
    return {queue: tuple(numbers) for queue, numbers in lines.items()}
