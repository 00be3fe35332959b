"""What was counted in spans of time, and what nodes say of themselves."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

from mainspring.core.job import NodeId
from mainspring.stores.overview import NodeReport, Tally
from mainspring.stores.sqlite import nodes
from mainspring.stores.sqlite.rows import instant, micros, span_micros
from mainspring.stores.sqlite.session import Session
from mainspring.stores.sqlite.statements import statement

_PUT: Final = statement("tally_put")
_DROP: Final = statement("tallies_drop")
_READ: Final = statement("view_tallies")
_REPORT: Final = statement("report_put")
_REPORTS: Final = statement("view_reports")
_NEVER: Final = (1 << 63) - 1


def write(session: Session, tallies: Sequence[Tally], drop: tuple[timedelta, datetime] | None) -> None:
    session.run_many(_PUT, [(span_micros(one.span), micros(one.at), one.by, one.body) for one in tallies])
    if drop is not None:
        session.run(_DROP, (span_micros(drop[0]), micros(drop[1])))


def read(session: Session, span: timedelta, since: datetime, until: datetime | None) -> tuple[Tally, ...]:
    rows = session.rows(_READ, (span_micros(span), micros(since), _NEVER if until is None else micros(until)))
    return tuple(Tally(at=instant(at), span=span, by=by, body=body) for at, by, body in rows)


def report(session: Session, node: NodeId, term: int, body: bytes) -> None:
    nodes.must_live(session, node, term)
    session.run(_REPORT, (node, session.now, body))


def reports(session: Session) -> dict[NodeId, NodeReport]:
    return {node: NodeReport(node=node, at=instant(at), body=body) for node, at, body in session.rows(_REPORTS)}
