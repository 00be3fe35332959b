"""What can be seen. Reads on connections of its own, and never waits for a writer."""

from collections.abc import Sequence
from typing import Final

import msgspec

from mainspring.core.job import JobId, State
from mainspring.core.machine import Event
from mainspring.stores.records import (
    AttemptView,
    JobFilter,
    JobPage,
    JobView,
    LogLine,
    Pause,
    Progress,
    QueueView,
)
from mainspring.stores.sqlite.rows import (
    Row,
    error,
    facts,
    instant,
    job,
    optional_instant,
    optional_span,
    unique,
)
from mainspring.stores.sqlite.session import Session
from mainspring.stores.sqlite.statements import statement

_GET: Final = statement("view_job")
_LIST: Final = statement("view_jobs")
_LIST_FAILED: Final = statement("view_jobs_failed")
_LIST_RUNNING: Final = statement("view_jobs_running")
_LIST_CHILDREN: Final = statement("view_jobs_of_parent")
_ATTEMPTS: Final = statement("view_attempts")
_LOG_LINES: Final = statement("view_log_lines")
_WAITING: Final = statement("view_waiting")
_RUNNING: Final = statement("view_running")
_PAUSES: Final = statement("view_pauses")
_LAST: Final = b"\xff" * 17
"""Sorts after every id."""

_encode: Final = msgspec.json.Encoder().encode


def get(session: Session, ids: Sequence[JobId]) -> tuple[JobView | None, ...]:
    return tuple(_view(session, row) if (row := session.row(_GET, (id_.bytes,))) else None for id_ in ids)


def list_jobs(session: Session, which: JobFilter, limit: int, after: JobId | None) -> JobPage:
    """Read a page. What there may be few of among many has an index of its own; the rest is found by walking back."""
    wanted = {
        "after": _LAST if after is None else after.bytes,
        "states": _encode(which.states).decode() if which.states else None,
        "queue": which.queue,
        "task": None if which.task is None else str(which.task),
        "tag": which.tag,
        "cause": which.cause,
        "parent": None if which.parent is None else which.parent.bytes,
        "limit": limit + 1,
    }
    rows = session.rows_by_name(_listing(which), wanted)
    views = tuple(_view(session, row) for row in rows[:limit])
    return JobPage(jobs=views, after=views[-1].job.id if views and len(rows) > limit else None)


def _listing(which: JobFilter) -> str:
    if which.parent is not None:
        return _LIST_CHILDREN
    if which.states == (State.FAILED,) or (which.cause is not None and not which.states):
        return _LIST_FAILED
    return _LIST_RUNNING if which.states == (State.RUNNING,) else _LIST


def attempts(session: Session, job_: JobId) -> tuple[AttemptView, ...]:
    return tuple(_attempt(job_, row) for row in session.rows(_ATTEMPTS, (job_.bytes,)))


def log_lines(session: Session, job_: JobId) -> tuple[LogLine, ...]:
    return tuple(LogLine(instant(at), level, text) for at, level, text in session.rows(_LOG_LINES, (job_.bytes,)))


def queues(session: Session) -> tuple[QueueView, ...]:
    waiting = dict(session.rows(_WAITING))
    running = dict(session.rows(_RUNNING))
    pauses = {queue: Pause(at=instant(at), by=by, reason=reason) for queue, at, by, reason in session.rows(_PAUSES)}
    return tuple(
        QueueView(name=name, waiting=waiting.get(name, 0), running=running.get(name, 0), paused=pauses.get(name))
        for name in sorted({*waiting, *running, *pauses})
    )


def _view(session: Session, row: Row) -> JobView:
    (
        payload, enqueued_at, parent, stored_facts, node, started_at, seconds, timeout, key, unique_text,
        saved, percent, message, result, last_error,
    ) = row[18:]  # fmt: skip
    return JobView(
        job=job(row, session.lane(row[2])),
        payload=payload,
        enqueued_at=instant(enqueued_at),
        facts=facts(stored_facts, parent),
        node=node,
        started_at=optional_instant(started_at),
        seconds=seconds,
        timeout=optional_span(timeout),
        key=key,
        unique=unique(unique_text),
        saved=saved,
        progress=None if percent is None else Progress(percent, message),
        result=result,
        error=error(last_error),
    )


def _attempt(job_: JobId, row: Row) -> AttemptView:
    lease, attempt, node, event, started_at, ended_at, seconds, stored_error, reason = row
    return AttemptView(
        job=job_,
        lease=lease,
        attempt=attempt,
        node=node,
        event=Event(event),
        started_at=optional_instant(started_at),
        ended_at=instant(ended_at),
        seconds=seconds,
        error=error(stored_error),
        reason=reason,
    )
