"""Nodes: who is at work, what they hold and know, and what is asked of them."""

import secrets
from collections.abc import Mapping
from datetime import timedelta
from functools import lru_cache
from typing import Any, Final, TypeAlias

import msgspec

from mainspring.core.job import Claim, NodeId
from mainspring.core.names import Name
from mainspring.errors import NodeGone
from mainspring.stores.records import Held, NodeOrder, NodeRecord, NodeView, Order, Pulse
from mainspring.stores.sqlite.rows import Row, clean, instant, job, job_id, name, optional_instant, span_micros
from mainspring.stores.sqlite.session import Session
from mainspring.stores.sqlite.statements import statement

_LIVE: Final = statement("node_live")
_IS_ALIVE: Final = statement("node_is_alive")
_ID_USED: Final = statement("node_id_used")
_JOIN: Final = statement("node_join")
_RENEW: Final = statement("node_renew")
_UPDATE: Final = statement("node_update")
_RECORD: Final = statement("node_record")
_DIE: Final = statement("node_die")
_ALIVE: Final = statement("nodes_alive")
_ALL: Final = statement("nodes_all")
_ORDERS: Final = statement("orders_of")
_ORDER: Final = statement("order_add")
_ANSWER: Final = statement("order_answer")
_ORPHANS: Final = statement("orphans")
_KNOWN: Final = statement("task_known")
_WAITING_TASKS: Final = statement("tasks_waiting")
_WAITS_SINCE: Final = statement("task_waits_since")

_encode: Final = msgspec.json.Encoder().encode
_record: Final = lru_cache(256)(msgspec.json.Decoder(NodeRecord).decode)
_word: Final = msgspec.json.Decoder(NodeOrder)
_rows: Final = msgspec.json.Decoder(list[tuple[Any, ...]]).decode


Records: TypeAlias = Mapping[int, tuple[int, NodeRecord]]
"""Records of nodes that were read before, each with its revision, by the node's term."""
NOT_KNOWN: Final[Records] = {}
_REVISION_BITS: Final = 62
"""Of the random number from which the revisions of a node's record count up: a term can be given a second time."""


def must_live(session: Session, node: NodeId, term: int) -> None:
    if not session.rows(_LIVE, (term, node)):
        raise _gone(session, node)


def is_alive(session: Session, node: NodeId) -> bool:
    return bool(session.rows(_IS_ALIVE, (node,)))


def join(session: Session, node: NodeRecord) -> int:
    if session.rows(_ID_USED, (node.id, node.id)):
        raise NodeGone(session.store, f"the id {node.id!r} was used before; a node joins under a new one each time")
    (term,) = session.rows(_JOIN, (node.id, session.now, session.now, _text(node), secrets.randbits(_REVISION_BITS)))[0]
    return int(term)


def renew(session: Session, node: NodeId, term: int, known: Records) -> tuple[Pulse, Records]:
    """Renew a node; returns also the records of all nodes, of which those that are `known` are not read again."""
    revisions = _encode({str(term): revision for term, (revision, _) in known.items()}).decode()
    renewed = session.rows_by_name(_RENEW, {"now": session.now, "term": term, "node": node, "known": revisions})
    if not renewed:
        raise _gone(session, node)
    held, asked, others = map(_rows, renewed[0])
    pulse = Pulse(
        held=tuple(
            Held(job=job_id(bytes.fromhex(id_)), lease=lease, cancel_requested_at=optional_instant(cancelled))
            for id_, lease, cancelled in held
        ),
        orders=tuple(map(_order, asked)),
        nodes=tuple(_view(row, known) for row in others),
    )
    return pulse, {view.term: (row[7], view.node) for row, view in zip(others, pulse.nodes, strict=True)}


def update(session: Session, node: NodeId, term: int, record: NodeRecord) -> None:
    must_live(session, node, term)
    _part_from(session, _known(session, node, term) - record.tasks)
    session.run(_UPDATE, (_text(record), term, node))


def answer(session: Session, node: NodeId, term: int, order: int, words: str) -> None:
    must_live(session, node, term)
    session.run(_ANSWER, (session.now, clean(words), order, node))


def declare_dead(session: Session, node: NodeId, term: int, counter: int | None) -> bool:
    if not session.run(_DIE, (session.now, term, node, counter)):
        return False
    _part_from(session, _known(session, node, term))
    session.woke = True
    return True


def order(session: Session, node: NodeId, word: NodeOrder) -> Order:
    if not is_alive(session, node):
        raise _gone(session, node)
    (number,) = session.rows(_ORDER, (node, _encode(word).decode(), session.now))[0]
    return Order(id=number, node=node, order=word, given_at=instant(session.now))


def orders(session: Session, node: NodeId) -> tuple[Order, ...]:
    return tuple(map(_order, session.rows(_ORDERS, (node,))))


def views(session: Session) -> tuple[NodeView, ...]:
    return tuple(map(_view, session.rows(_ALL)))


def orphans(session: Session, limit: int) -> tuple[Claim, ...]:
    return tuple(Claim(job=job(row, session.lane(row[2])), node=row[18]) for row in session.rows(_ORPHANS, (limit,)))


def unknown_tasks(session: Session, grace: timedelta) -> tuple[Name, ...]:
    """List tasks that have been waited for in vain.

    A task that a live node knows is known now. When the last one parts from it, the time is written down; so a renewal
    writes nothing about tasks, however many there are.
    """
    since = session.now - span_micros(grace)
    known = {task for row in session.rows(_ALIVE) for task in _record(row[5]).tasks}
    waiting = ((name(task), task, last_known) for task, last_known in session.rows(_WAITING_TASKS))
    return tuple(
        task
        for task, text, last_known in waiting
        if task not in known
        and (last_known is None or last_known <= since)
        and session.rows(_WAITS_SINCE, (text,))[0][0] <= since
    )


def _known(session: Session, node: NodeId, term: int) -> frozenset[Name]:
    return _record(session.rows(_RECORD, (term, node))[0][0]).tasks


def _part_from(session: Session, tasks: frozenset[Name]) -> None:
    session.run_many(_KNOWN, [(str(task), session.now) for task in tasks])


def _gone(session: Session, node: NodeId) -> NodeGone:
    return NodeGone(session.store, f"node {node} is not alive under this term; join under a new id")


def _text(node: NodeRecord) -> str:
    return _encode(node).decode()


def _order(row: Row) -> Order:
    number, node, word, given_at, done_at, words = row
    return Order(
        id=number,
        node=node,
        order=_word.decode(word),
        given_at=instant(given_at),
        done_at=optional_instant(done_at),
        answer=words,
    )


def _view(row: Row, known: Records = NOT_KNOWN) -> NodeView:
    term, counter, alive, joined_at, renewed_at, record, running, _revision = row
    return NodeView(
        node=known[term][1] if record is None else _record(record),
        term=term,
        counter=counter,
        alive=bool(alive),
        joined_at=instant(joined_at),
        renewed_at=instant(renewed_at),
        running=running,
    )
