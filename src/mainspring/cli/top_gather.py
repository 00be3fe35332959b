"""What `mainspring top` shows, gathered: one look at a store, as one record.

Only what is cheap is asked for, once a second if need be: what `app.overview` tells, and pages of a few jobs.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Final

import msgspec
from msgspec import Struct

from mainspring.app import Mainspring
from mainspring.client.health.finding import Finding
from mainspring.client.look import ErrorLook, Look, QueueLook
from mainspring.client.measuring import last_minute
from mainspring.client.overview import NodeLook
from mainspring.client.searching import search
from mainspring.core.job import JobId, NodeId, State
from mainspring.core.machine import Event
from mainspring.core.tally import MINUTE, Counted, Line, added, percentile, start_of
from mainspring.stores.overview import Overview, Search
from mainspring.stores.port import Store
from mainspring.stores.records import JobView

LATELY: Final = 10
"""Minutes of which errors are told."""
MOST_JOBS: Final = 50
MOST_ERRORS: Final = 10
_BAD: Final = (Event.WILL_RETRY, Event.FAILED, Event.LOST)


class NodeRow(Struct, frozen=True, kw_only=True):
    """A node that is alive, or was until lately."""

    id: NodeId
    state: str
    running: int
    places: int
    memory: int | None
    """Bytes, if it says so."""
    renewed_at: datetime


class QueueRow(Struct, frozen=True, kw_only=True):
    """A queue."""

    name: str
    due: int
    later: int | None
    """None: nobody told those from the others."""
    running: int
    oldest_at: datetime | None
    """Since when the job has been due that waits for the longest."""
    ended: int
    """Attempts, in the last whole minute."""
    bad: int
    """Those that raised or were lost."""
    paused: bool
    limit: int | None
    rate: str | None


class TaskRow(Struct, frozen=True, kw_only=True):
    """A task that has had work in the last whole minute."""

    task: str
    ended: int
    bad: int
    wait: float | None
    """Seconds: nineteen of twenty jobs started sooner."""
    run: float | None
    """Seconds: nineteen of twenty attempts took less."""


class RunningRow(Struct, frozen=True, kw_only=True):
    """A job that runs."""

    id: JobId
    task: str
    queue: str
    node: NodeId | None
    attempt: int
    started_at: datetime | None
    percent: float | None
    message: str


class ErrorRow(Struct, frozen=True, kw_only=True):
    """A class of errors that attempts have raised lately."""

    error: str
    count: int
    task: str
    """Where there were most of it."""


class FailedRow(Struct, frozen=True, kw_only=True):
    """A job that has failed, lately or not: the newest of those that there are."""

    id: JobId
    task: str
    finished_at: datetime | None
    error: str


class Frame(Struct, frozen=True, kw_only=True):
    """All that is shown at a time."""

    now: datetime
    nodes: tuple[NodeRow, ...]
    queues: tuple[QueueRow, ...]
    tasks: tuple[TaskRow, ...]
    running: tuple[RunningRow, ...]
    errors: tuple[ErrorRow, ...]
    failed: tuple[FailedRow, ...]
    warnings: tuple[Finding, ...]
    """What needs a person, the worst first."""
    enqueued: int | None
    """In the last whole minute, about."""
    counted_at: datetime | None
    """When due, later and running jobs of the queues were counted; None: now."""


async def gather(app: Mainspring) -> Frame:
    """Look at the store of an app, which is open."""
    store = app.store
    look = await app.overview.look(minutes=LATELY)
    minute = await _minute(store, look.at)
    running = await search(store, Search(states=(State.RUNNING,)), limit=MOST_JOBS, preview=0)
    failed = await search(store, Search(states=(State.FAILED,)), limit=MOST_ERRORS, preview=0)
    return Frame(
        now=look.at,
        nodes=tuple(_node(one) for one in await app.overview.nodes()),
        queues=tuple(_queues(look, minute)),
        tasks=tuple(_tasks(minute.lines)),
        running=tuple(_running(view) for view in running.jobs),
        errors=tuple(_errors(look.errors)),
        failed=tuple(_failed(view) for view in failed.jobs),
        warnings=look.warnings,
        enqueued=minute.enqueued if look.has_past else None,
        counted_at=look.counted_at if look.has_past else None,
    )


async def _minute(store: Store, now: datetime) -> Counted:
    """Read what was counted in the last whole minute, where somebody counts."""
    if not isinstance(store, Overview):
        return Counted()
    return last_minute(await store.tallies(MINUTE, start_of(now, MINUTE) - 2 * MINUTE), now)


def _node(one: NodeLook) -> NodeRow:
    return NodeRow(
        id=one.view.node.id,
        state=one.standing,
        running=one.busy,
        places=one.view.node.concurrency,
        memory=one.report.memory if one.report else None,
        renewed_at=one.view.renewed_at,
    )


def _queues(look: Look, minute: Counted) -> Iterable[QueueRow]:
    ends: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for line in minute.lines:
        ends[line.queue].update(line.ends)
    for one in look.queues:
        yield _queue(one, ends[one.name], has_past=look.has_past)


def _queue(one: QueueLook, ends: Mapping[str, int], *, has_past: bool) -> QueueRow:
    return QueueRow(
        name=one.name,
        due=one.depth.due,
        later=one.depth.later if has_past else None,
        running=one.depth.running,
        oldest_at=one.depth.oldest,
        ended=sum(ends.values()),
        bad=_bad(ends),
        paused=one.paused is not None,
        limit=one.places,
        rate=one.rate,
    )


def _tasks(lines: Iterable[Line]) -> Iterable[TaskRow]:
    """Put the queues of each task together, the busiest first."""
    together: dict[str, Line] = {}
    for line in lines:
        (one,) = added(
            Counted(lines=(msgspec.structs.replace(part, queue=""),))
            for part in (together.get(line.task), line)
            if part is not None
        ).lines
        together[line.task] = one
    rows = [
        TaskRow(
            task=task,
            ended=sum(line.ends.values()),
            bad=_bad(line.ends),
            wait=percentile(line.waits, 0.95),
            run=percentile(line.runs, 0.95),
        )
        for task, line in together.items()
    ]
    return sorted(rows, key=lambda row: (-row.ended, row.task))


def _bad(ends: Mapping[str, int]) -> int:
    return sum(ends.get(event, 0) for event in _BAD)


def _running(view: JobView) -> RunningRow:
    return RunningRow(
        id=view.job.id,
        task=str(view.job.task),
        queue=view.job.queue,
        node=view.node,
        attempt=view.job.attempt,
        started_at=view.started_at,
        percent=view.progress.percent if view.progress else None,
        message=view.progress.message if view.progress else "",
    )


def _errors(errors: Iterable[ErrorLook]) -> Iterable[ErrorRow]:
    """Put the tasks of each class together; those with the most of it come first."""
    together: dict[str, list[ErrorLook]] = defaultdict(list)
    for one in errors:
        together[one.error].append(one)
    rows = [
        ErrorRow(error=error, count=sum(one.count for one in found), task=found[0].task)
        for error, found in together.items()
    ]
    return sorted(rows, key=lambda row: -row.count)[:MOST_ERRORS]


def _failed(view: JobView) -> FailedRow:
    error = f"{view.error.type}: {view.error.message}" if view.error else str(view.job.cause or "")
    return FailedRow(id=view.job.id, task=str(view.job.task), finished_at=view.job.finished_at, error=error)
