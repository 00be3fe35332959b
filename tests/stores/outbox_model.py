"""Outboxes as plain lists: what a store has to answer, where the port leaves it no choice."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import count

from msgspec.structs import replace

from mainspring.core.job import NodeId
from mainspring.core.outbox import Stand
from mainspring.stores.outbox import (
    Aside,
    Letter,
    LetterFilter,
    LetterState,
    Message,
    NewMessage,
    PartitionView,
    Published,
    Stride,
)

DAY = timedelta(days=1)


@dataclass(slots=True, eq=False)
class Entry:
    """A message that was written, and when: in steps of the story, since a transaction may end late."""

    new: NewMessage
    at: datetime
    published: int
    rank: float
    """Its place among those of the same call."""
    number: int | None = None
    committed: int | None = None

    def is_before(self, other: "Entry") -> bool:
        """Say whether it has to come before another."""
        if self.published == other.published:
            return self.rank < other.rank
        return self.committed is not None and self.committed < other.published


@dataclass(slots=True)
class Partition:
    """One partition."""

    stand: Stand = field(default_factory=Stand)
    log: list[Message] = field(default_factory=list)
    entries: list[Entry] = field(default_factory=list)
    """Of the log, in the same order."""
    coming: list[Entry] = field(default_factory=list)
    """Committed, and without a `seq` as far as is known."""
    asides: dict[int, Aside] = field(default_factory=dict)

    def heads(self) -> list[Aside]:
        """Return the first of each key that is set aside."""
        first: dict[object, Aside] = {}
        for seq, one in sorted(self.asides.items()):
            first.setdefault(seq if one.message.key is None else one.message.key, one)
        return list(first.values())


class Model:
    """One outbox."""

    def __init__(self, name: str, partitions: int) -> None:
        self.name = name
        self.partitions = [Partition() for _ in range(partitions)]
        self.letters: dict[int, Letter] = {}
        self.alive: set[NodeId] = set()
        self.texts: dict[str, Entry] = {}
        self._steps = count(1)

    # Messages.

    def written(self, new: Sequence[NewMessage], answers: Sequence[Published], now: datetime) -> list[Entry]:
        """Take in what a call has answered; returns what it has written, which is not committed yet."""
        step, made = next(self._steps), []
        for rank, (one, answer) in enumerate(zip(new, answers, strict=True)):
            known = None if one.unique is None else self.texts.get(one.unique)
            if not answer.fresh:
                assert known is not None, "nobody has published under this text"
                assert answer.number == known.number
                continue
            assert known is None or not self._must_be_known(known, now), "the text is known"
            entry = Entry(one, now, step, rank, answer.number)
            made.append(entry)
            if one.unique is not None:
                self.texts[one.unique] = entry
        return made

    def committed(self, entries: Iterable[Entry]) -> None:
        step = next(self._steps)
        for entry in entries:
            entry.committed = step
            self.partitions[entry.new.partition].coming.append(entry)

    def rolled_back(self, entries: Iterable[Entry], texts: dict[str, Entry]) -> None:
        """Forget what was written; `texts` is what was known before."""
        next(self._steps)
        self.texts = texts
        assert all(entry.committed is None for entry in entries)

    def read(self, partition: int, after: int, found: Sequence[Message]) -> None:
        """Compare with what was read after a look that has seen everything, and learn the order of what is new."""
        here = self.partitions[partition]
        for message in found:
            if message.seq > len(here.log):
                self._follow(partition, message)
        assert not here.coming, "a message was passed over"
        assert list(found) == here.log[after:]

    def _follow(self, partition: int, message: Message) -> None:
        here = self.partitions[partition]
        alike = [e for e in here.coming if (e.new.payload, e.at) == (message.payload, message.published_at)]
        assert alike, "nobody has published this"
        entry = alike[0]
        assert not any(other.is_before(entry) for other in here.coming if other is not entry)
        here.coming.remove(entry)
        entry.number = entry.number or message.number
        of = entry.new
        assert message == Message(
            outbox=self.name,
            partition=partition,
            seq=len(here.log) + 1,
            number=entry.number,
            payload=of.payload,
            type=of.type,
            key=of.key,
            published_at=entry.at,
            traceparent=of.traceparent,
        )
        assert not any(entry.is_before(other) for other in here.entries)
        here.log.append(message)
        here.entries.append(entry)

    def _must_be_known(self, entry: Entry, now: datetime) -> bool:
        here = self.partitions[entry.new.partition]
        if now - entry.at < DAY or entry not in here.entries:
            return True
        seq = here.entries.index(entry) + 1
        return seq > here.stand.cursor or seq in here.asides

    def may_clear(self) -> int:
        return sum(min(one.stand.cursor, len(one.log)) for one in self.partitions)

    # Delivery.

    def accepts(self, node: NodeId, one: Stride) -> bool:
        stand = self.partitions[one.partition].stand
        is_theirs = stand.holder is not None and stand.holder != node and stand.holder in self.alive
        return stand.revision == one.before and not is_theirs

    def strode(self, one: Stride, now: datetime) -> None:
        """Do what a step says that was accepted, but for its letters: only the store knows their ids."""
        here = self.partitions[one.partition]
        here.stand = replace(one.after, revision=one.before + 1)
        freed = {here.asides.pop(seq).message.key for seq in one.back if seq in here.asides}
        for aside in one.aside:
            here.asides[aside.message.seq] = aside
        timed = {aside.message.seq for aside in one.aside if aside.retry_at is not None}
        for head in here.heads():
            seq = head.message.seq
            is_next = head.message.key is not None and head.message.key in freed and seq not in timed
            if head.retry_at is None or is_next:
                here.asides[seq] = replace(head, retry_at=now)

    def due(self, partition: int, now: datetime) -> list[Aside]:
        heads = self.partitions[partition].heads()
        return [one for one in heads if one.retry_at is not None and one.retry_at <= now]

    def view(self, partition: int) -> PartitionView:
        here = self.partitions[partition]
        return PartitionView(
            outbox=self.name,
            partition=partition,
            last=len(here.log),
            stand=here.stand,
            is_held=here.stand.holder in self.alive,
            aside_at=min((one.retry_at for one in here.heads() if one.retry_at is not None), default=None),
        )

    # Dead letters.

    def meant(self, which: LetterFilter) -> list[Letter]:
        """Return the letters that a filter means, in whatever state."""
        wanted = (which.partition, "partition"), (which.type, "type"), (which.key, "key")
        return [
            one
            for one in self.letters.values()
            if (which.ids is None or one.id in which.ids)
            and all(value is None or getattr(one.message, name) == value for value, name in wanted)
        ]

    def free(self, which: LetterFilter, now: datetime) -> list[Letter]:
        """Return those that somebody may take, in the order in which they are taken."""
        pending = [one for one in self.meant(which) if one.state is LetterState.PENDING]
        late = [
            (one.deadline, one.id, one)
            for one in self.meant(which)
            if one.state is LetterState.REPROCESSING and one.deadline is not None and one.deadline <= now
        ]
        return sorted(pending, key=lambda one: one.id) + [one for _, _, one in sorted(late, key=lambda of: of[:2])]

    def replayed(self, letters: Iterable[Letter], now: datetime) -> None:
        """Publish what letters say, the oldest failure first; the order of equals is the store's."""
        step = next(self._steps)
        entries = []
        for one in letters:
            of = one.message
            new = NewMessage(
                outbox=self.name,
                partitions=len(self.partitions),
                partition=of.partition,
                payload=of.payload,
                type=of.type,
                key=of.key,
                traceparent=of.traceparent,
            )
            entries.append(Entry(new, now, step, one.failed_at.timestamp()))
        self.committed(entries)
