"""What nodes count and say, who did what, and what holds for queues."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

from mainspring.core.job import NodeId
from mainspring.core.limits import Rate
from mainspring.stores.overview import (
    MOST_LINES,
    Entry,
    EntryFilter,
    EntryPage,
    NewEntry,
    NodeReport,
    QueueRule,
    Tally,
)
from mainspring.stores.postgres.nodes import gone
from mainspring.stores.postgres.rows import columns, key_bytes, key_text
from mainspring.stores.postgres.statements import statement
from mainspring.stores.postgres.verb import Ask, Row, Verb
from mainspring.stores.records import Pause

_TALLIES_WRITE: Final = statement("tallies_write")
_TALLIES_DROP: Final = statement("tallies_drop")
_TALLIES_READ: Final = statement("tallies_read")
_REPORT: Final = statement("report_write")
_REPORTS: Final = statement("reports_all")
_AUDIT_WRITE: Final = statement("audit_write")
_AUDIT_PAGE: Final = statement("audit_page")
_AUDIT_PAGE_ABOUT: Final = statement("audit_page_about")
_AUDIT_BEYOND: Final = statement("audit_beyond")
_AUDIT_BEYOND_ABOUT: Final = statement("audit_beyond_about")
_QUEUE_RULES: Final = statement("queue_rules")
_LAST: Final = (1 << 63) - 1


def write_tallies(tallies: Sequence[Tally], drop: tuple[timedelta, datetime] | None) -> Verb[None]:
    """Keep tallies, each in place of the one that is there, and forget old ones. Several statements."""
    # In one order for everyone: two that write the same ones at the same time must not wait for each other.
    last = {(one.span, one.at, one.by): one.body for one in tallies}
    if last:
        rows = [(*place, last[place]) for place in sorted(last)]
        yield Ask(_TALLIES_WRITE, columns(rows))
    if drop:
        yield Ask(_TALLIES_DROP, drop)


def tallies(span: timedelta, since: datetime, until: datetime | None) -> Verb[tuple[Tally, ...]]:
    rows = yield Ask(_TALLIES_READ, (span, since, until))
    return tuple(Tally(at=at, span=span_, by=by, body=body) for at, span_, by, body in rows)


def report(at: datetime | None, node: NodeId, term: int, body: bytes) -> Verb[None]:
    if not (yield Ask(_REPORT, (at, node, term, body))):
        raise gone(node)


def reports() -> Verb[dict[NodeId, NodeReport]]:
    rows = yield Ask(_REPORTS)
    return {node: NodeReport(node=node, at=at, body=body) for node, at, body in rows}


def write_audit(at: datetime | None, entries: Sequence[NewEntry]) -> Verb[None]:
    rows = [
        (
            key_bytes(one.who),
            key_bytes(one.action),
            key_bytes(one.about),
            one.count,
            key_bytes(one.outcome),
            one.detail,
        )
        for one in entries
    ]
    yield Ask(_AUDIT_WRITE, (at, *columns(rows)))


def audit(which: EntryFilter, limit: int, after: int | None) -> Verb[EntryPage]:
    """Read a page. Several statements, where lines are left out: only then more are looked at than a page has."""
    upto = _LAST if after is None else after
    about = () if which.about is None else (key_bytes(which.about),)
    beyond: int | None = None
    if which.who is not None or which.action is not None:
        far = yield Ask(_AUDIT_BEYOND_ABOUT if about else _AUDIT_BEYOND, (upto, MOST_LINES, *about))
        beyond = far[0][0] if far else None
    wanted = (upto, -1 if beyond is None else beyond, limit + 1, key_bytes(which.who), key_bytes(which.action))
    rows = yield Ask(_AUDIT_PAGE_ABOUT if about else _AUDIT_PAGE, (*wanted, *about))
    page = tuple(map(_entry, rows[:limit]))
    if len(rows) > limit:
        return EntryPage(entries=page, after=page[-1].id)
    return EntryPage(entries=page, after=None if beyond is None else beyond + 1)


def queue_rules() -> Verb[tuple[QueueRule, ...]]:
    return tuple(sorted(map(_rule, (yield Ask(_QUEUE_RULES))), key=lambda rule: rule.name))


def _entry(row: Row) -> Entry:
    id_, at, who, action, about, count, outcome, detail = row
    entry = NewEntry(
        who=key_text(who) or "",
        action=key_text(action) or "",
        about=key_text(about) or "",
        count=count,
        outcome=key_text(outcome) or "",
        detail=detail,
    )
    return Entry(id=id_, at=at, entry=entry)


def _rule(row: Row) -> QueueRule:
    queue, paused_at, paused_by, reason, declared, count, period, burst, limit, limited_by = row
    return QueueRule(
        name=queue,
        paused=None if paused_at is None else Pause(at=paused_at, by=paused_by, reason=reason),
        declared=declared,
        rate=None if count is None else Rate(count=count, period=period, burst=burst),
        limit=limit,
        by=key_text(limited_by) or "",
    )
