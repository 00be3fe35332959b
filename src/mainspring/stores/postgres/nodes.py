"""Nodes: who is at work, what they hold and know, and what is asked of them."""

import logging
import secrets
from collections.abc import Mapping
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Final, NamedTuple, TypeAlias

import msgspec

from mainspring.core.job import Claim, JobId, NodeId
from mainspring.core.names import Name
from mainspring.errors import NodeGone
from mainspring.stores.postgres import migrate
from mainspring.stores.postgres.rows import encode, job, key_bytes, key_text, shown_name
from mainspring.stores.postgres.statements import statement
from mainspring.stores.postgres.verb import Ask, Row, Verb
from mainspring.stores.records import Held, NodeOrder, NodeRecord, NodeView, Order, Pulse

_JOIN: Final = statement("node_join")
_RENEW: Final = statement("node_renew")
_HELD: Final = statement("node_held")
_UPDATE: Final = statement("node_update")
_HOLD: Final = statement("node_hold")
_DIE: Final = statement("node_die")
_KNOWN: Final = statement("node_tasks_known")
_ALL: Final = statement("nodes_all")
_ORPHANS: Final = statement("nodes_orphans")
_UNKNOWN: Final = statement("nodes_tasks_unknown")
_ORDER: Final = statement("order_add")
_ANSWER: Final = statement("order_answer")
_ORDERS: Final = statement("orders_of")
_STORE: Final = "PostgreSQL store"
_logger: Final = logging.getLogger("mainspring.stores.postgres")

_record: Final = lru_cache(256)(msgspec.json.Decoder(NodeRecord).decode)
_word: Final = msgspec.json.Decoder(NodeOrder)


Records: TypeAlias = Mapping[int, tuple[int, NodeRecord]]
"""Records of nodes that were read before, each with its revision, by the node's term."""
NOT_KNOWN: Final[Records] = {}
_REVISION_BITS: Final = 62
"""Of the random number from which the revisions of a node's record count up: a term can be given a second time."""


def gone(node: NodeId) -> NodeGone:
    """Make the error for a node that is not alive under its term."""
    return NodeGone(_STORE, f"node {node} is not alive under this term; join under a new id")


def join(at: datetime | None, node: NodeRecord, code: int = migrate.WANTED) -> Verb[int]:
    """Register a node; `code` is the last migration in its code. One statement."""
    joined = yield Ask(_JOIN, (at, node.id, encode(node), code, secrets.randbits(_REVISION_BITS)))
    if not joined:
        yield from migrate.check_code(_STORE, code)
        raise NodeGone(_STORE, f"the id {node.id!r} was used before; a node joins under a new one each time")
    return int(joined[0][0])


class Renewed(NamedTuple):
    """The answer to a renewal, the time of the database's own clock, and the records of all nodes."""

    pulse: Pulse
    instant: datetime
    records: Records


def renew(at: datetime | None, node: NodeId, term: int, jobs: list[JobId], known: Records) -> Verb[Renewed]:
    """Renew a node, and look up which of these jobs it holds."""
    revisions = [revision for revision, _ in known.values()]
    renewed = yield Ask(_RENEW, (at, term, node, jobs, list(known), revisions))
    if not renewed:
        raise gone(node)
    now, held, asked, present = renewed[0]
    pulse = Pulse(
        held=tuple(map(_held, held)),
        orders=tuple(map(_order, asked)),
        nodes=tuple(_view(row, known) for row in present),
    )
    records = {view.term: (row[7], view.node) for row, view in zip(present, pulse.nodes, strict=True)}
    return Renewed(pulse, now, records)


def all_held(node: NodeId) -> Verb[tuple[Held, ...]]:
    """Read all leases of a node."""
    return tuple(map(_held, (yield Ask(_HELD, (node,)))))


def update(at: datetime | None, node: NodeId, term: int, record: NodeRecord) -> Verb[None]:
    """Replace what a node says about itself. Several statements."""
    before = yield Ask(_UPDATE, (term, node, encode(record)))
    if not before:
        raise gone(node)
    yield from _part_from(at, _record(before[0][0]).tasks - record.tasks)


def answer(at: datetime | None, node: NodeId, term: int, order: int, words: str) -> Verb[None]:
    if not (yield Ask(_ANSWER, (at, term, node, order, key_bytes(words)))):
        raise gone(node)


def declare_dead(at: datetime | None, node: NodeId, term: int, counter: int | None = None) -> Verb[bool]:
    """End a node; True for one caller, who may wake those that look for orphans. Several statements."""
    if counter is not None:
        yield Ask(_HOLD, (term, node))
    died = yield Ask(_DIE, (at, term, node, counter))
    if not died:
        return False
    yield from _part_from(at, _record(died[0][0]).tasks)
    return True


def order(at: datetime | None, node: NodeId, word: NodeOrder) -> Verb[Order]:
    given = yield Ask(_ORDER, (at, node, encode(word)))
    if not given:
        raise gone(node)
    number, given_at = given[0]
    return Order(id=number, node=node, order=word, given_at=given_at)


def orders(node: NodeId) -> Verb[tuple[Order, ...]]:
    return tuple(map(_order, (yield Ask(_ORDERS, (node,)))))


def views() -> Verb[tuple[NodeView, ...]]:
    return tuple(map(_view, (yield Ask(_ALL))))


def orphans(limit: int) -> Verb[tuple[Claim, ...]]:
    return tuple(Claim(job=job(row), node=row[19]) for row in (yield Ask(_ORPHANS, (limit,))))


def unknown_tasks(at: datetime | None, grace: timedelta) -> Verb[tuple[Name, ...]]:
    """List tasks that have been waited for in vain.

    A task that a live node knows is known now. When the last one parts from it, the time is written down; so a renewal
    writes nothing about tasks, however many there are.
    """
    ((records, tasks),) = yield Ask(_UNKNOWN, (at, grace))
    known = {task for record in records for task in _record(record).tasks}
    shown = [(text, shown_name(text)) for text in tasks]
    for text, task in shown:
        if str(task) != text:
            _report_unreadable(text)
    return tuple(task for text, task in shown if str(task) == text and task not in known)


@lru_cache(1024)
def _report_unreadable(task: str) -> None:
    """Log a task name that cannot be parsed, once."""
    _logger.error(
        "task name %r: cannot be parsed, and its waiting jobs are not claimed; correct the column task of these rows in the "
        "table jobs",
        task,
    )


def _part_from(at: datetime | None, tasks: frozenset[Name]) -> Verb[None]:
    if tasks:
        yield Ask(_KNOWN, (at, [str(task) for task in tasks]))


def _held(row: Row) -> Held:
    job_, lease, cancel_requested_at = row
    return Held(job=job_, lease=lease, cancel_requested_at=cancel_requested_at)


def _order(row: Row) -> Order:
    number, node, word, given_at, done_at, words = row
    return Order(
        id=number, node=node, order=_word.decode(word), given_at=given_at, done_at=done_at, answer=key_text(words)
    )


def _view(row: Row, known: Records = NOT_KNOWN) -> NodeView:
    term, counter, alive, joined_at, renewed_at, record, running, _revision = row
    return NodeView(
        node=known[term][1] if record is None else _record(record),
        term=term,
        counter=counter,
        alive=alive,
        joined_at=joined_at,
        renewed_at=renewed_at,
        running=running,
    )
