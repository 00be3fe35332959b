"""Outboxes: their messages in order, and what becomes of them when they are delivered.

There is one writer at a time, so the order of inserts is the order of commits: a message gets its `seq` when it is
written, in whoever's transaction that is, and a rollback takes the number back.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from mainspring.core.outbox import MOST_PARTITIONS, Stand
from mainspring.errors import PartitionCountMismatch
from mainspring.stores.outbox import (
    Message,
    NewMessage,
    OutboxView,
    PartitionsLooked,
    PartitionView,
    Published,
)
from mainspring.stores.sqlite.rows import Row, instant, optional_instant
from mainspring.stores.sqlite.session import Session
from mainspring.stores.sqlite.statements import statement

_FIND: Final = statement("outbox_find")
_ADD: Final = statement("outbox_add")
_ADD_PARTITION: Final = statement("partition_add")
_LAST: Final = statement("partition_last")
_GROW: Final = statement("partition_grow")
_ADD_MESSAGE: Final = statement("message_add")
_FIND_TEXT: Final = statement("unique_text_find")
_ADD_TEXT: Final = statement("unique_text_add")
_LOOK: Final = statement("partitions_look")
_BOUNDS: Final = statement("partition_bounds")
_READ: Final = statement("message_read")
_VIEWS: Final = statement("view_outboxes")
_TO_CLEAR: Final = statement("partitions_to_clear")
_CLEAR: Final = statement("message_clear")
_CLEARED: Final = statement("partition_clear")
_FORGET_TEXTS: Final = statement("unique_texts_forget")

_SEQ_BITS: Final = 40
"""Of a message's number; above them stands its partition."""
_SEQ: Final = (1 << _SEQ_BITS) - 1
_DAY: Final = 86_400_000_000


class Outbox(NamedTuple):
    """An outbox as it is kept."""

    id: int
    partitions: int


def number_of(partition: int, seq: int) -> int:
    return partition << _SEQ_BITS | seq


def find(session: Session, name: str) -> Outbox | None:
    row = session.row(_FIND, (name,))
    return None if row is None else Outbox(*row)


def partition_id(session: Session, outbox: str, partition: int) -> int | None:
    """Return the id of a partition, if it is there."""
    found = find(session, outbox)
    if found is None or not 0 <= partition < found.partitions:
        return None
    return found.id * MOST_PARTITIONS + partition


# Writing.


def register(session: Session, name: str, partitions: int) -> None:
    """Make an outbox, if it is not there."""
    found = find(session, name)
    if found is None:
        _make(session, name, partitions)
    elif found.partitions != partitions:
        raise PartitionCountMismatch(name, partitions, found.partitions)


def _make(session: Session, name: str, partitions: int) -> Outbox:
    (id_,) = session.rows(_ADD, (name, partitions, session.now))[0]
    session.run_many(_ADD_PARTITION, [(id_ * MOST_PARTITIONS + number,) for number in range(partitions)])
    return Outbox(id_, partitions)


def publish(session: Session, new: Sequence[NewMessage]) -> list[Published]:
    """Take in messages: a few statements for all of them together, and two more for each that has a text."""
    known = _known(session, new)
    batch = Batch(session)
    answers = [_add(session, batch, known[one.outbox].id, one) for one in new]
    batch.write()
    return answers


def _known(session: Session, new: Sequence[NewMessage]) -> dict[str, Outbox]:
    """Find the outboxes of messages, or make them: whether all fit is found out before anything is written."""
    found = {name: find(session, name) for name in dict.fromkeys(one.outbox for one in new)}
    counts = {name: kept.partitions for name, kept in found.items() if kept is not None}
    for one in new:
        if counts.setdefault(one.outbox, one.partitions) != one.partitions:
            raise PartitionCountMismatch(one.outbox, one.partitions, counts[one.outbox])
    return {name: kept or _make(session, name, counts[name]) for name, kept in found.items()}


def _add(session: Session, batch: "Batch", outbox: int, one: NewMessage) -> Published:
    if one.unique is not None and (there := session.row(_FIND_TEXT, (outbox, one.unique))):
        return Published(number=there[0], fresh=False)
    partition = outbox * MOST_PARTITIONS + one.partition
    number = batch.add(partition, one.type, one.key, one.traceparent, one.payload)
    if one.unique is not None:
        session.run(_ADD_TEXT, (outbox, one.unique, number, session.now))
    return Published(number=number)


class Batch:
    """Messages that are written together, each behind the last one of its partition."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._last: dict[int, int] = {}
        self._rows: list[Row] = []

    def add(self, partition: int, type_: str, key: str | None, traceparent: str | None, payload: bytes) -> int:
        """Return the number that a message gets."""
        last = self._last.get(partition)
        if last is None:
            (last,) = self._session.rows(_LAST, (partition,))[0]
        self._last[partition] = seq = last + 1
        number = number_of(partition, seq)
        self._rows.append((number, self._session.now, type_, key, traceparent, payload))
        return number

    def write(self) -> None:
        if not self._rows:
            return
        self._session.run_many(_ADD_MESSAGE, self._rows)
        self._session.run_many(_GROW, [(last, partition) for partition, last in self._last.items()])
        self._session.woke = True


def clear(session: Session, limit: int) -> int:
    """Clear away what is delivered: numbers have no gaps, so it is known how many go before they do."""
    gone = 0
    for partition, cleared, done in session.rows(_TO_CLEAR):
        until = min(done, cleared + limit - gone)
        if until > cleared:
            session.run_many(_CLEAR, [(number_of(partition, seq),) for seq in range(cleared + 1, until + 1)])
            session.run(_CLEARED, (until, partition))
            gone += until - cleared
        if until > 0:
            texts = number_of(partition, 0), number_of(partition, until)
            session.run(_FORGET_TEXTS, (*texts, limit, session.now - _DAY))
    return gone


# Reading.


def look(session: Session, names: Sequence[str]) -> PartitionsLooked:
    views = tuple(_view(name, row) for name in dict.fromkeys(names) for row in session.rows(_LOOK, (name,)))
    return PartitionsLooked(now=instant(session.now), partitions=views)


def read(session: Session, outbox: str, partition: int, after: int, limit: int) -> tuple[Message, ...]:
    id_ = partition_id(session, outbox, partition)
    if id_ is None:
        return ()
    cleared, last = session.rows(_BOUNDS, (id_,))[0]
    after = max(after, cleared)
    wanted = range(after + 1, min(after + limit, last) + 1)
    rows = (row for seq in wanted for row in session.rows(_READ, (number_of(id_, seq),)))
    return tuple(message(outbox, row) for row in rows)


def views(session: Session) -> tuple[OutboxView, ...]:
    return tuple(
        OutboxView(
            name=name,
            partitions=partitions,
            created_at=instant(created_at),
            kept=kept,
            bytes=None,
            aside=aside,
            letters=letters,
        )
        for name, partitions, created_at, kept, aside, letters in session.rows(_VIEWS)
    )


def message(outbox: str, row: Row) -> Message:
    number, published_at, type_, key, traceparent, payload = row
    return Message(
        outbox=outbox,
        partition=(number >> _SEQ_BITS) % MOST_PARTITIONS,
        seq=number & _SEQ,
        number=number,
        payload=payload,
        type=type_,
        key=key,
        published_at=instant(published_at),
        traceparent=traceparent,
    )


def _view(outbox: str, row: Row) -> PartitionView:
    partition, last, revision, cursor, holder, given, width, attempts, retry_at, error, is_held, aside_at = row
    stand = Stand(
        revision=revision,
        cursor=cursor,
        holder=holder,
        given=given,
        width=width,
        attempts=attempts,
        retry_at=optional_instant(retry_at),
        error=error,
    )
    return PartitionView(
        outbox=outbox,
        partition=partition,
        last=last,
        stand=stand,
        is_held=bool(is_held),
        aside_at=optional_instant(aside_at),
    )
