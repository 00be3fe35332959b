"""A job with everything that is kept of it, as people see it."""

from mainspring.stores.records import JobView, Progress, cut_of
from mainspring.stores.sqlite.rows import Row, error, facts, instant, job, optional_instant, optional_span, unique
from mainspring.stores.sqlite.session import Session


def view(session: Session, row: Row, preview: int | None = None) -> JobView:
    """Read the columns of sql/view_job.sql, and of sql/search_read.sql, which has the same."""
    (
        payload, enqueued_at, parent, stored_facts, node, started_at, seconds, timeout, key, unique_text,
        saved, percent, message, result, last_error, payload_size, saved_size, result_size,
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
        cut=cut_of(preview, payload_size, saved_size, result_size),
    )
