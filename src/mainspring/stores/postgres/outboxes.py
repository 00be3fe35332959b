"""Outboxes: numbers for what was committed, and where delivery stands.

A message gets its `seq` from whoever looks first. What is new is the difference of two snapshots (`outbox_look.sql`), so
nothing is passed over, however late it is committed, and nobody is waited for.
"""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Final, NamedTuple
from uuid import UUID

from msgspec.structs import replace

from mainspring.core.job import NodeId
from mainspring.core.outbox import Stand
from mainspring.stores.outbox import Aside, Message, OutboxView, PartitionsLooked, PartitionView, Stride
from mainspring.stores.postgres.nodes import gone
from mainspring.stores.postgres.publish import digest
from mainspring.stores.postgres.rows import columns, key_bytes, key_text
from mainspring.stores.postgres.statements import Statement, statement
from mainspring.stores.postgres.verb import Ask, Row, Verb

_LOOK: Final = statement("outbox_look")
_HOLD: Final = statement("outbox_hold")
_NUMBER: Final = statement("outbox_number")
_NUMBER_FOREIGN: Final = statement("outbox_number_foreign")
_READ: Final = statement("outbox_read")
_READ_ASIDE: Final = statement("outbox_asides_read")
_KEYS_ASIDE: Final = statement("outbox_asides_keys")
_STRIDE: Final = statement("outbox_stride")
_STRIDE_OR_SKIP: Final = Statement(
    _STRIDE.name, _STRIDE.text.replace("FOR UPDATE OF stands", "FOR UPDATE OF stands SKIP LOCKED")
)
_STRIDE_DONE: Final = statement("outbox_stride_done")
_ADD_LETTERS: Final = statement("outbox_letters_add")
_WRITE_ASIDE: Final = statement("outbox_asides_write")
_TAKE_ASIDE: Final = statement("outbox_asides_take")
_WAKE_ASIDE: Final = statement("outbox_asides_wake")
_VIEWS: Final = statement("outbox_views")

CHUNK: Final = 1000
"""Messages whose numbers are written as one row, at most."""
PATIENCE: Final = "300ms"
"""For so long a step waits for somebody else who is writing the same one, and has not committed yet."""


# Numbers.


class Look(NamedTuple):
    """What a look at partitions has found."""

    now: datetime | None
    """None: there are no such outboxes."""
    views: dict[int, PartitionView]
    """By line, in order."""
    fresh: list[int]
    """Lines that have messages without a number."""
    foreign: list[int]
    """Those of them that were last looked at in another cluster."""
    settled: dict[int, str]
    """By line, the names of last chunks that no late message can follow."""


def look(at: datetime | None, outboxes: Sequence[str], settled: Iterable[str] = ()) -> Verb[Look]:
    """Read the state of partitions; `settled` are the chunks that an earlier call returned as settled. One statement."""
    rows = yield Ask(_LOOK, (at, list(outboxes), list(settled)))
    return Look(
        rows[0][0] if rows else None,
        {row[3]: _view(row) for row in rows},
        [row[3] for row in rows if row[6]],
        [row[3] for row in rows if row[5]],
        {row[3]: row[17] for row in rows if row[18] and not row[6]},
    )


def number(looked: Look) -> Verb[dict[int, int]]:
    """Give what is new in some lines its numbers, where nobody else is at that; returns the last one of each.

    Several statements, in a transaction that is READ COMMITTED: what is new is to be seen once the lines are held.
    """
    held = [line for line, _ in (yield Ask(_HOLD, (looked.fresh,)))]
    foreign = [line for line in looked.foreign if line in held]
    plain = [line for line in held if line not in foreign]
    given: list[Row] = []
    if plain:
        given += yield Ask(_NUMBER, (plain, CHUNK))
    for line in foreign:
        given += yield Ask(_NUMBER_FOREIGN, (line, CHUNK))
    return {row[0]: row[1] for row in given}


def numbered(looked: Look, last: dict[int, int], now: datetime) -> PartitionsLooked:
    """Say how partitions stand, with the numbers that were given since they were looked at."""
    views = (replace(view, last=last[line]) if line in last else view for line, view in looked.views.items())
    return PartitionsLooked(
        now=looked.now or now, partitions=tuple(views), is_sequenced=last.keys() >= set(looked.fresh)
    )


# Reading.


def read(outbox: str, partition: int, after: int, limit: int) -> Verb[tuple[Message, ...]]:
    """Read messages in order. One statement; more, where some are gone from the log."""
    while limit > 0:
        rows = yield Ask(_READ, (outbox, partition, after, limit))
        found = tuple(_message(outbox, partition, row) for row in rows if row[6] is not None)
        if found or not rows:
            return found
        after = rows[-1][0]
    return ()


def read_aside(at: datetime | None, outbox: str, partition: int, limit: int) -> Verb[tuple[Aside, ...]]:
    rows = yield Ask(_READ_ASIDE, (at, outbox, partition, limit))
    return tuple(
        Aside(message=_message(outbox, partition, row), attempts=row[7], retry_at=row[8], error=key_text(row[9]) or "")
        for row in rows
    )


def read_keys_aside(outbox: str, partition: int, keys: Sequence[str]) -> Verb[frozenset[str]]:
    rows = yield Ask(_KEYS_ASIDE, (outbox, partition, [digest(key) for key in keys]))
    return frozenset(keys[place - 1] for (place,) in rows)


def views() -> Verb[tuple[OutboxView, ...]]:
    return tuple(
        OutboxView(
            name=name, partitions=partitions, created_at=made, kept=kept, bytes=size, aside=aside, letters=letters
        )
        for name, partitions, made, kept, size, aside, letters in (yield Ask(_VIEWS))
    )


# Steps.


class Call:
    """Steps of one call, and how often it was tried: the answer to a try may have got lost after its commit."""

    def __init__(self, id_: UUID, node: NodeId, term: int, strides: Sequence[Stride], *, waits: bool = False) -> None:
        self.id: Final = id_
        self.node: Final = node
        self.term: Final = term
        self.strides: Final = strides
        self.tries = 0
        self.waits = waits
        """Whether to wait for others who are writing the same. If not, what they are at is not accepted."""

    @property
    def is_plain(self) -> bool:
        """Whether one statement will do."""
        is_more = any(one.letters or one.aside or one.back for one in self.strides)
        return not is_more and len({(one.outbox, one.partition) for one in self.strides}) == len(self.strides)


def stride(at: datetime | None, call: Call) -> Verb[set[int]]:
    """Write steps; returns the places of those that were accepted. One statement if they are plain."""
    call.tries += 1
    accepted: set[int] = set()
    if call.tries > 1:
        every = list(range(len(call.strides)))
        accepted |= {every[place - 1] for (place,) in (yield Ask(_STRIDE_DONE, (call.id, *_steps(call, every))))}
    for places in _rounds(call, [place for place in range(len(call.strides)) if place not in accepted]):
        values = columns([_step(call.strides[place]) for place in places])
        how, patience = (_STRIDE, PATIENCE) if call.waits else (_STRIDE_OR_SKIP, None)
        rows = yield Ask(how, (call.node, call.term, call.id, *values, patience))
        if not rows:
            raise gone(call.node)
        done = [places[place - 1] for (place,) in rows if place is not None]
        accepted.update(done)
        yield from _write_rest(at, [call.strides[place] for place in done])
    return accepted


def _rounds(call: Call, places: Sequence[int]) -> Iterator[list[int]]:
    """Divide steps, so that no partition comes twice in one part."""
    left = list(places)
    while left:
        now: dict[tuple[str, int], int] = {}
        for place in left:
            now.setdefault((call.strides[place].outbox, call.strides[place].partition), place)
        yield list(now.values())
        left = [place for place in left if place not in now.values()]


def _write_rest(at: datetime | None, strides: Sequence[Stride]) -> Verb[None]:
    """Write what belongs to steps that were accepted."""
    letters = [
        (*_values(letter.message), letter.attempts, key_bytes(letter.error))
        for one in strides
        for letter in one.letters
    ]
    if letters:
        yield Ask(_ADD_LETTERS, (at, *columns(letters)))
    waiting: list[Row] = []
    back = [(one.outbox, one.partition, seq) for one in strides for seq in one.back]
    if back:
        waiting += yield Ask(_TAKE_ASIDE, columns(back))
    asides = [aside for one in strides for aside in one.aside]
    if asides:
        yield Ask(_WRITE_ASIDE, columns([_aside_values(aside) for aside in asides]))
        waiting += [
            (one.message.outbox, one.message.partition, one.message.seq, _digest(one.message))
            for one in asides
            if one.retry_at is None
        ]
    if waiting:
        yield Ask(_WAKE_ASIDE, (at, *columns([tuple(row) for row in waiting])))


# Rows.


def _steps(call: Call, places: Sequence[int]) -> tuple[object, ...]:
    return columns([_step(call.strides[place])[:3] for place in places])


def _step(one: Stride) -> tuple[object, ...]:
    after = one.after
    return (
        one.outbox,
        one.partition,
        one.before,
        after.cursor,
        after.holder,
        after.given,
        after.width,
        after.attempts,
        after.retry_at,
        key_bytes(after.error),
    )


def _values(message: Message) -> tuple[object, ...]:
    return (
        message.outbox,
        message.partition,
        message.seq,
        message.number,
        message.published_at,
        key_bytes(message.key),
        message.type,
        message.traceparent,
        message.payload,
    )


def _aside_values(aside: Aside) -> tuple[object, ...]:
    message = aside.message
    return (*_values(message), aside.attempts, key_bytes(aside.error), aside.retry_at, _digest(message))


def _digest(message: Message) -> bytes | None:
    return None if message.key is None else digest(message.key)


def _view(row: Row) -> PartitionView:
    (
        _now, outbox, partition, _line, last, _is_foreign, _has_news, revision, cursor, holder, given, width, attempts,
        retry_at, error, is_held, aside_at, _chunk, _is_settled,
    ) = row  # fmt: skip
    return PartitionView(
        outbox=outbox,
        partition=partition,
        last=last,
        stand=Stand(
            revision=revision,
            cursor=cursor,
            holder=None if holder is None else NodeId(holder),
            given=given,
            width=width,
            attempts=attempts,
            retry_at=retry_at,
            error=key_text(error) or "",
        ),
        is_held=is_held,
        aside_at=aside_at,
    )


def _message(outbox: str, partition: int, row: Row) -> Message:
    seq, number_, published_at, key, type_, traceparent, payload = row[:7]
    return Message(
        outbox=outbox,
        partition=partition,
        seq=seq,
        number=number_,
        payload=bytes(payload),
        type=type_,
        key=key_text(key),
        published_at=published_at,
        traceparent=traceparent,
    )
