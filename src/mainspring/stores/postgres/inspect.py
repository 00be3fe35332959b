"""What can be seen. Jobs that wait or run are in one table, finished ones in another; each statement looks in both, so
that a job that moves between them meanwhile is neither missed nor told twice.
"""

from collections.abc import Sequence
from typing import Final
from uuid import UUID

from mainspring.core.job import FINISHED, JobId, State
from mainspring.stores.postgres import bodies
from mainspring.stores.postgres.rows import encode, error, job, shown_facts, shown_key, unique
from mainspring.stores.postgres.statements import statement
from mainspring.stores.postgres.verb import Ask, Row, Verb
from mainspring.stores.records import AttemptView, JobFilter, JobPage, JobView, LogLine, Pause, QueueView, cut_of

_GET: Final = statement("view_job")
_LIST: Final = statement("view_jobs")
_LIST_FAILED: Final = statement("view_jobs_failed")
_LIST_RUNNING: Final = statement("view_jobs_running")
_LIST_CHILDREN: Final = statement("view_jobs_of_parent")
_ATTEMPTS: Final = statement("view_attempts")
_LOG_LINES: Final = statement("view_log_lines")
_QUEUES: Final = statement("view_queues")
_LAST: Final = (1 << 128) - 1


def get(ids: Sequence[JobId], preview: int | None = None) -> Verb[tuple[JobView | None, ...]]:
    if not ids:
        return ()
    found = {row[0]: row for row in (yield Ask(_GET, (list(ids), preview)))}
    return tuple(_view(found[id_], preview) if id_ in found else None for id_ in ids)


def list_jobs(which: JobFilter, limit: int, after: JobId | None) -> Verb[JobPage]:
    """Read a page. What there may be few of among many has an index of its own; the rest is found by walking back.

    One statement, or several where a tag is asked for: a statement finds those whose facts hold its text, and that may
    be the name of an owner too.
    """
    views: list[JobView] = []
    upto = _LAST if after is None else after.int - 1
    while upto >= 0 and len(views) <= limit:
        rows = yield _ask(which, limit + 1, UUID(int=upto))
        views += (view for view in map(_view, rows) if which.tag is None or which.tag in view.facts.tags)
        upto = rows[-1][0].int - 1 if len(rows) > limit else -1
    page = tuple(views[:limit])
    return JobPage(jobs=page, after=page[-1].job.id if page and len(views) > limit else None)


def _ask(which: JobFilter, limit: int, upto: UUID) -> Ask:
    states = set(which.states or State)
    tag = None if which.tag is None else encode(which.tag)
    task = None if which.task is None else str(which.task)
    cause = None if which.cause is None else str(which.cause)
    common = (upto, limit, [str(state) for state in which.states] or None, which.queue, task, tag, cause)
    tables = (not states <= set(FINISHED), not states.isdisjoint(FINISHED))
    if which.parent is not None:
        return Ask(_LIST_CHILDREN, (*common, *tables, which.parent))
    if states == {State.FAILED} or (which.cause is not None and not which.states):
        return Ask(_LIST_FAILED, common)
    return Ask(_LIST_RUNNING, common) if states == {State.RUNNING} else Ask(_LIST, (*common, *tables))


def attempts(job_: JobId) -> Verb[tuple[AttemptView, ...]]:
    return tuple(bodies.attempt(body) for body, _ in (yield Ask(_ATTEMPTS, (job_,))))


def log_lines(job_: JobId) -> Verb[tuple[LogLine, ...]]:
    return tuple(bodies.line(body) for body, _ in (yield Ask(_LOG_LINES, (job_,))))


def queues() -> Verb[tuple[QueueView, ...]]:
    rows = yield Ask(_QUEUES)
    return tuple(
        QueueView(
            name=queue,
            waiting=waiting,
            running=running,
            paused=None if at is None else Pause(at=at, by=by, reason=reason),
        )
        for queue, waiting, running, at, by, reason in sorted(rows, key=lambda row: str(row[0]))
    )


def _view(row: Row, preview: int | None = None) -> JobView:
    (
        node, started_at, seconds, enqueued_at, timeout, key, unique_key, unique_period, unique_on_conflict, parent,
        stored_facts, payload, saved, progress, last_error, result, *sizes,
    ) = row[19:]  # fmt: skip
    return JobView(
        job=job(row),
        payload=payload,
        enqueued_at=enqueued_at,
        facts=shown_facts(stored_facts, parent),
        node=node,
        started_at=started_at,
        seconds=seconds,
        timeout=timeout,
        key=shown_key(key),
        unique=unique(unique_key, unique_period, unique_on_conflict),
        saved=saved,
        progress=bodies.progress(progress),
        result=result,
        error=error(last_error),
        cut=cut_of(preview, *sizes) if sizes else None,
    )
