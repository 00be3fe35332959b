"""What can be seen. Reads on connections of its own, and never waits for a writer."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Final

from msgspec.structs import asdict

from mainspring.core.job import JobId
from mainspring.core.machine import Event
from mainspring.stores.overview import Search
from mainspring.stores.records import (
    AttemptView,
    JobFilter,
    JobPage,
    JobView,
    LogLine,
    Pause,
    QueueView,
)
from mainspring.stores.sqlite.rows import Row, error, instant, optional_instant
from mainspring.stores.sqlite.search import search
from mainspring.stores.sqlite.session import Session
from mainspring.stores.sqlite.statements import statement
from mainspring.stores.sqlite.views import view

LIST_BUDGET: Final = timedelta(seconds=5)
"""Time limit of one page. While it is read, its snapshot keeps the log from being reset."""

_GET: Final = statement("view_job")
_ATTEMPTS: Final = statement("view_attempts")
_LOG_LINES: Final = statement("view_log_lines")
_WAITING: Final = statement("view_waiting")
_RUNNING: Final = statement("view_running")
_PAUSES: Final = statement("view_pauses")


def get(session: Session, ids: Sequence[JobId], preview: int | None = None) -> tuple[JobView | None, ...]:
    rows = (session.row(_GET, (preview, preview, preview, preview, id_.bytes)) for id_ in ids)
    return tuple(view(session, row, preview) if row else None for row in rows)


def list_jobs(session: Session, which: JobFilter, limit: int, after: JobId | None) -> JobPage:
    """Read a page, or as much of it as its time allows."""
    found = search(session, Search(**asdict(which)), limit + 1, after, LIST_BUDGET)
    views = found.jobs[:limit]
    if not found.in_time:
        return JobPage(jobs=views, after=found.after, in_time=False)
    return JobPage(jobs=views, after=views[-1].job.id if views and len(found.jobs) > limit else None)


def attempts(session: Session, job_: JobId) -> tuple[AttemptView, ...]:
    return tuple(_attempt(job_, row) for row in session.rows(_ATTEMPTS, (job_.bytes,)))


def log_lines(session: Session, job_: JobId) -> tuple[LogLine, ...]:
    return tuple(LogLine(instant(at), level, text) for at, level, text in session.rows(_LOG_LINES, (job_.bytes,)))


def queues(session: Session) -> tuple[QueueView, ...]:
    waiting = dict(session.rows(_WAITING))
    running = dict(session.rows(_RUNNING))
    paused = pauses(session)
    return tuple(
        QueueView(name=name, waiting=waiting.get(name, 0), running=running.get(name, 0), paused=paused.get(name))
        for name in sorted({*waiting, *running, *paused})
    )


def pauses(session: Session) -> dict[str, Pause]:
    """Read which queues stand still."""
    return {queue: Pause(at=instant(at), by=by, reason=reason) for queue, at, by, reason in session.rows(_PAUSES)}


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
