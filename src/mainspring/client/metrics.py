"""What is measured, in the text that Prometheus reads (version 0.0.4).

All that can be read is a row of `FAMILIES`. A family has `MOST` series at most: what comes later by name is put together
under `others`, and how much that was is a family of its own. Which series there are stays the same that way, whatever
their values do.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from mainspring.client.measuring import Measured
from mainspring.client.plain import text as without_halves

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
MOST: Final = 2000
OTHERS: Final = "others"
LEFT_OUT: Final = "mainspring_series_left_out"

Labels: TypeAlias = tuple[str, ...]
Series: TypeAlias = Iterable[tuple[Labels, float]]


@dataclass(frozen=True, slots=True)
class Family:
    """One name under which there are series."""

    name: str
    help: str
    labels: tuple[str, ...]
    read: Callable[[Measured], Series]
    few: tuple[str, ...] = ()
    """Labels that have few values, and keep them where series are put together."""
    fold: Callable[[float, float], float] = float.__add__
    """What two series make that are put together."""
    kind: str = "gauge"


def text(measured: Measured, most: int = MOST) -> str:
    """Write down what was measured."""
    left: dict[str, int] = {}
    lines: list[str] = []
    for family in FAMILIES:
        series, left_out = bounded(family, most, family.read(measured))
        if left_out:
            left[family.name] = left_out
        lines += written(family, series.items())
    lines += written(_LEFT_OUT, [((name,), float(number)) for name, number in left.items()])
    return "".join(f"{line}\n" for line in lines)


def bounded(family: Family, most: int, series: Series) -> tuple[dict[Labels, float], int]:
    """Keep as many series as may be, and put the others together; returns how many those were."""
    together: dict[Labels, float] = {}
    for labels, value in series:
        _fold(family, together, tuple(without_halves(one) for one in labels), value)
    if len(together) <= most:
        return together, 0
    ordered = sorted(together)
    kept = {labels: together[labels] for labels in ordered[:most]}
    for labels in ordered[most:]:
        rest = tuple(one if name in family.few else OTHERS for name, one in zip(family.labels, labels, strict=True))
        _fold(family, kept, rest, together[labels])
    return kept, len(ordered) - most


def _fold(family: Family, series: dict[Labels, float], labels: Labels, value: float) -> None:
    series[labels] = family.fold(series[labels], float(value)) if labels in series else float(value)


def written(family: Family, series: Series) -> Iterator[str]:
    """Write one family: nothing at all if it has no series, for then nobody knows its value."""
    lines = [f"{family.name}{_labels(family.labels, labels)} {number(value)}" for labels, value in series]
    if lines:
        yield f"# HELP {family.name} {_escaped(family.help)}"
        yield f"# TYPE {family.name} {family.kind}"
        yield from lines


def _labels(names: Sequence[str], values: Labels) -> str:
    if not names:
        return ""
    pairs = (f'{name}="{escaped(value)}"' for name, value in zip(names, values, strict=True))
    return f"{{{','.join(pairs)}}}"


def escaped(value: str) -> str:
    """Write a label's value so that it can be read back, whatever is in it."""
    return _escaped(value).replace('"', '\\"')


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n")


def number(value: float) -> str:
    """Write a value: whole ones without a fraction."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return str(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(value)


# What can be read.


def _jobs(measured: Measured) -> Series:
    for count in measured.counts or ():
        for state in ("due", "later", "running"):
            yield (count.queue, count.task, state), getattr(count, state)


def _oldest(measured: Measured) -> Series:
    for count in measured.counts or ():
        since = count.oldest
        yield (count.queue,), 0.0 if since is None else max((measured.now - since).total_seconds(), 0.0)


def _census_age(measured: Measured) -> Series:
    if measured.census_at is not None:
        yield (), (measured.now - measured.census_at).total_seconds()


def _attempts(measured: Measured) -> Series:
    for line in measured.lines or ():
        for event, ended in line.ends.items():
            yield (line.queue, line.task, event), ended


def _errors(measured: Measured) -> Series:
    for line in measured.lines or ():
        for error, number_ in line.errors.items():
            yield (line.queue, line.task, error), number_


def _enqueued(measured: Measured) -> Series:
    if measured.enqueued is not None:
        yield (), measured.enqueued


def _nodes(measured: Measured) -> Series:
    yield ("alive",), measured.alive
    yield ("dead",), measured.dead


def _lag_seconds(measured: Measured) -> Series:
    for lag in measured.lags:
        if lag.age is not None or not lag.backlog:
            yield (lag.outbox, str(lag.partition)), lag.age.total_seconds() if lag.age else 0.0


FAMILIES: Final = (
    Family(
        "mainspring_jobs",
        "Jobs that have not ended, as the last census counted them: 10000 stands for that many or more.",
        ("queue", "task", "state"),
        _jobs,
        few=("state",),
    ),
    Family(
        "mainspring_oldest_due_age_seconds",
        "How long the job of a queue has been due that waits for the longest, by the last census.",
        ("queue",),
        _oldest,
        fold=max,
    ),
    Family("mainspring_census_age_seconds", "How long ago jobs were counted.", (), _census_age),
    Family(
        "mainspring_attempts_last_minute",
        "Attempts that ended in the last whole minute, by how they ended.",
        ("queue", "task", "event"),
        _attempts,
        few=("event",),
    ),
    Family(
        "mainspring_errors_last_minute",
        "Attempts that raised in the last whole minute, by the class of the error.",
        ("queue", "task", "error"),
        _errors,
    ),
    Family("mainspring_enqueued_last_minute", "About how many jobs were enqueued in that minute.", (), _enqueued),
    Family(
        "mainspring_nodes", "Nodes by whether they are alive; dead ones are forgotten after a day.", ("state",), _nodes
    ),
    Family("mainspring_places", "How many jobs all live nodes can run at a time.", (), lambda one: [((), one.places)]),
    Family("mainspring_running", "How many jobs live nodes hold now.", (), lambda one: [((), one.running)]),
    Family(
        "mainspring_breaker_open",
        "1 while the breaker of a task holds its jobs back, open or half open, else 0.",
        ("task",),
        lambda one: [((task,), is_open) for task, is_open in one.breakers],
    ),
    Family(
        "mainspring_schedules_late",
        "Schedules that have been due for more than 30 s, or cannot be read.",
        (),
        lambda one: [((), one.late)],
    ),
    Family(
        "mainspring_outbox_lag_messages",
        "Messages that wait to be delivered, without those that were set aside.",
        ("outbox", "partition"),
        lambda one: [((lag.outbox, str(lag.partition)), lag.backlog) for lag in one.lags],
    ),
    Family(
        "mainspring_outbox_lag_seconds",
        "How long the first message of a partition has waited to be delivered.",
        ("outbox", "partition"),
        _lag_seconds,
        fold=max,
    ),
    Family(
        "mainspring_dead_letters",
        "Messages that were given up and wait for a person.",
        ("outbox",),
        lambda one: [((name,), letters) for name, letters in one.letters],
    ),
)
_LEFT_OUT: Final = Family(
    LEFT_OUT,
    "Series that were put together as others, because a family has no more than 2000.",
    ("family",),
    lambda _: (),
)
EVERY: Final = (*FAMILIES, _LEFT_OUT)
