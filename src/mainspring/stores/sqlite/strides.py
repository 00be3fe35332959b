"""The delivery of partitions: its steps, each from the revision that it was made from, and what was set aside."""

from collections.abc import Iterable, Sequence
from typing import Final, TypeAlias

from mainspring.core.job import NodeId
from mainspring.core.outbox import Stand
from mainspring.stores.outbox import Aside, Message, Stride
from mainspring.stores.sqlite import nodes
from mainspring.stores.sqlite.letters import bury
from mainspring.stores.sqlite.outboxes import message, number_of, partition_id
from mainspring.stores.sqlite.rows import Row, clean, micros, optional_instant, optional_micros
from mainspring.stores.sqlite.session import Session
from mainspring.stores.sqlite.statements import statement

_STAND: Final = statement("partition_stand")
_STEP: Final = statement("partition_step")
_PUT_ASIDE: Final = statement("aside_put")
_DROP_ASIDE: Final = statement("aside_drop")
_FIRST_ASIDE: Final = statement("aside_first")
_DUE_ASIDE: Final = statement("aside_due")
_ASIDES_DUE: Final = statement("asides_due")
_ANY_ASIDE: Final = statement("asides_any")

Step: TypeAlias = tuple[NodeId, int, Stride]
"""A stride, and who makes it under which term."""


def stride(session: Session, steps: Sequence[Step]) -> list[bool]:
    """Write steps, each whole or not at all; whether all who make them are alive is found out before."""
    for node, term in dict.fromkeys((node, term) for node, term, _ in steps):
        nodes.must_live(session, node, term)
    return [_accept(session, node, one) for node, _, one in steps]


def _accept(session: Session, node: NodeId, one: Stride) -> bool:
    partition = partition_id(session, one.outbox, one.partition)
    if partition is None:
        return False
    revision, holder, last = session.rows(_STAND, (partition,))[0]
    if revision != one.before:
        return False
    if holder is not None and holder != node and nodes.is_alive(session, holder):
        return False
    _write(session, partition, one.before + 1, one.after)
    for letter in one.letters:
        bury(session, partition, letter)
    _set_aside(session, partition, one.aside, one.back)
    if one.after.holder is None and (one.after.cursor < last or session.row(_ANY_ASIDE, (partition,))):
        session.woke = True
    return True


def _write(session: Session, partition: int, revision: int, stand: Stand) -> None:
    session.run(
        _STEP,
        (
            revision,
            stand.cursor,
            stand.holder,
            stand.given,
            stand.width,
            stand.attempts,
            optional_micros(stand.retry_at),
            clean(stand.error),
            partition,
        ),
    )


def _set_aside(session: Session, partition: int, asides: Iterable[Aside], back: Iterable[int]) -> None:
    """Write what is set aside, and what is so no longer; then let the first of each key go on that waits for nobody."""
    freed = {
        key for seq in back for (key,) in session.rows(_DROP_ASIDE, (number_of(partition, seq),)) if key is not None
    }
    waiting = set()
    timed = set()
    for one in asides:
        number, key = number_of(partition, one.message.seq), one.message.key
        if one.retry_at is not None:
            timed.add(number)
        elif key is not None:
            waiting.add(key)
        _put(session, partition, number, one)
    for key in freed | waiting:
        first = session.row(_FIRST_ASIDE, (partition, key))
        if first is None:
            continue
        number, retry_at = first
        if retry_at is None or (key in freed and number not in timed):
            session.run(_DUE_ASIDE, (session.now, number))


def _put(session: Session, partition: int, number: int, one: Aside) -> None:
    of = one.message
    alone = one.retry_at is None and of.key is None  # it has nobody to wait for
    session.run(
        _PUT_ASIDE,
        (
            number,
            partition,
            micros(of.published_at),
            of.type,
            of.key,
            of.traceparent,
            of.payload,
            one.attempts,
            session.now if alone else optional_micros(one.retry_at),
            clean(one.error),
        ),
    )


# Reading.


def read_aside(session: Session, outbox: str, partition: int, limit: int) -> tuple[Aside, ...]:
    id_ = partition_id(session, outbox, partition)
    if id_ is None:
        return ()
    return tuple(_aside(outbox, row) for row in session.rows(_ASIDES_DUE, (id_, session.now, limit)))


def read_keys_aside(session: Session, outbox: str, partition: int, keys: Sequence[str]) -> frozenset[str]:
    id_ = partition_id(session, outbox, partition)
    if id_ is None:
        return frozenset()
    return frozenset(key for key in set(keys) if session.row(_FIRST_ASIDE, (id_, key)))


def _aside(outbox: str, row: Row) -> Aside:
    *of, attempts, retry_at, error = row
    found: Message = message(outbox, tuple(of))
    return Aside(message=found, attempts=attempts, retry_at=optional_instant(retry_at), error=error)
