"""A job with everything that is kept of it, as people see it."""

from mainspring.stores.records import JobView, Progress, cut_of
from mainspring.stores.sqlite.rows import (
    EPOCH,
    Row,
    error,
    instant,
    job,
    optional_instant,
    optional_span,
    shown_facts,
    unique,
)
from mainspring.stores.sqlite.session import Session
from mainspring.stores.unreadable import readable


def view(session: Session, row: Row, preview: int | None = None) -> JobView:
    """Read the columns of sql/view_job.sql, and of sql/search_read.sql, which has the same."""
    (
        payload, enqueued_at, parent, stored_facts, node, started_at, seconds, timeout, key, unique_text,
        saved, percent, message, result, last_error, payload_size, saved_size, result_size,
    ) = row[18:]  # fmt: skip
    return JobView(
        job=job(row, session.lane(row[2])),
        payload=payload,
        enqueued_at=readable(instant, enqueued_at, EPOCH),
        facts=shown_facts(stored_facts, parent),
        node=node,
        started_at=readable(optional_instant, started_at, None),
        seconds=seconds,
        timeout=readable(optional_span, timeout, None),
        key=key,
        unique=unique(unique_text),
        saved=saved,
        progress=None if percent is None else Progress(percent, message),
        result=result,
        error=error(last_error),
        cut=cut_of(preview, payload_size, saved_size, result_size),
    )
