"""Outboxes as a table: what was published, how far each partition was delivered, and what was set aside."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import count
from typing import Final, NamedTuple

from msgspec.structs import replace

from mainspring.core.outbox import Stand
from mainspring.errors import PartitionCountMismatch
from mainspring.stores.outbox import Aside, Letter, LetterState, Message, NewMessage, OutboxView, Published, Stride

KNOWN_FOR: Final = timedelta(days=1)
"""How long a unique text is known at least."""


@dataclass(slots=True)
class Partition:
    """One line of messages, and where their delivery stands."""

    messages: dict[int, Message] = field(default_factory=dict)
    """By `seq`, in order."""
    last: int = 0
    stand: Stand = field(default_factory=Stand)
    aside: dict[int, Aside] = field(default_factory=dict)
    """By `seq`."""

    def add(self, new: NewMessage, number: int, now: datetime) -> Message:
        self.last += 1
        message = self.messages[self.last] = Message(
            outbox=new.outbox,
            partition=new.partition,
            seq=self.last,
            number=number,
            payload=new.payload,
            type=new.type,
            key=new.key,
            published_at=now,
            traceparent=new.traceparent,
        )
        return message

    def firsts(self) -> Iterator[Aside]:
        """What was set aside and waits for no other: the first message of each key, and all that have none."""
        keys: set[str] = set()
        for _, one in sorted(self.aside.items()):
            key = one.message.key
            if key is None or key not in keys:
                yield one
            if key is not None:
                keys.add(key)

    @property
    def aside_at(self) -> datetime | None:
        return min((one.retry_at for one in self.firsts() if one.retry_at), default=None)

    def take(self, stride: Stride, now: datetime) -> None:
        """Write all that belongs to a step."""
        self.stand = stride.after
        keys = {self.aside.pop(seq).message.key for seq in stride.back if seq in self.aside}
        for one in stride.aside:
            self.aside[one.message.seq] = one
            if one.retry_at is None:
                keys.add(one.message.key)
        for one in tuple(self.firsts()):
            if one.message.key in keys and one.retry_at is None:
                self.aside[one.message.seq] = replace(one, retry_at=now)

    def clear(self, limit: int) -> int:
        done = [seq for seq in self.messages if seq <= self.stand.cursor and seq not in self.aside][:limit]
        for seq in done:
            del self.messages[seq]
        return len(done)


class Known(NamedTuple):
    """A unique text, and the message that brought it."""

    number: int
    partition: int
    seq: int
    until: datetime


@dataclass(slots=True)
class Outbox:
    """An outbox with all that is in it."""

    name: str
    created_at: datetime
    partitions: list[Partition]
    uniques: dict[str, Known] = field(default_factory=dict)

    def known(self, unique: str | None, now: datetime) -> Known | None:
        """Look a unique text up: it is known while its message is in the log, and for a day at least."""
        found = None if unique is None else self.uniques.get(unique)
        return found if found is not None and self._is_known(found, now) else None

    def forget(self, now: datetime, limit: int) -> int:
        gone = [text for text, known in self.uniques.items() if not self._is_known(known, now)][:limit]
        for text in gone:
            del self.uniques[text]
        return len(gone)

    def _is_known(self, known: Known, now: datetime) -> bool:
        return known.until > now or known.seq in self.partitions[known.partition].messages


class Logs:
    """All outboxes of a store, and the dead letters of all of them."""

    def __init__(self) -> None:
        self.outboxes: dict[str, Outbox] = {}
        self.letters: dict[int, Letter] = {}
        self._numbers = count(1)
        self._letter_ids = count(1)

    def find(self, outbox: str, partition: int) -> Partition | None:
        found = self.outboxes.get(outbox)
        return found.partitions[partition] if found and 0 <= partition < len(found.partitions) else None

    def check(self, name: str, partitions: int) -> None:
        """Raise if an outbox is there with another number of partitions."""
        found = self.outboxes.get(name)
        if found is not None and len(found.partitions) != partitions:
            raise PartitionCountMismatch(name, partitions, len(found.partitions))

    def made(self, name: str, partitions: int, now: datetime) -> Outbox:
        """Return an outbox, which is made if it is not there."""
        found = self.outboxes.get(name)
        if found is None:
            found = Outbox(name, now, [Partition() for _ in range(partitions)])
            self.outboxes[name] = found
        return found

    def publish(self, new: NewMessage, now: datetime) -> Published:
        outbox = self.made(new.outbox, new.partitions, now)
        known = outbox.known(new.unique, now)
        if known is not None:
            return Published(number=known.number, fresh=False)
        number = next(self._numbers)
        message = outbox.partitions[new.partition].add(new, number, now)
        if new.unique is not None:
            outbox.uniques[new.unique] = Known(number, new.partition, message.seq, now + KNOWN_FOR)
        return Published(number=number)

    def bury(self, stride: Stride, now: datetime) -> None:
        """Keep the dead letters of a step."""
        for one in stride.letters:
            letter = next(self._letter_ids)
            self.letters[letter] = Letter(
                id=letter,
                message=one.message,
                state=LetterState.PENDING,
                attempts=one.attempts,
                error=one.error,
                failed_at=now,
            )

    def republish(self, letter: Letter, now: datetime) -> None:
        """Put a dead letter back at the end of its partition, and resolve it."""
        old = letter.message
        found = self.outboxes[old.outbox]
        new = NewMessage(
            outbox=old.outbox,
            partitions=len(found.partitions),
            partition=old.partition,
            payload=old.payload,
            type=old.type,
            key=old.key,
            traceparent=old.traceparent,
        )
        self.publish(new, now)
        self.letters[letter.id] = replace(letter, state=LetterState.RESOLVED, deadline=None, completed_at=now)

    def view(self, outbox: Outbox) -> OutboxView:
        pending = (one for one in self.letters.values() if one.state is LetterState.PENDING)
        return OutboxView(
            name=outbox.name,
            partitions=len(outbox.partitions),
            created_at=outbox.created_at,
            kept=sum(len(partition.messages) for partition in outbox.partitions),
            bytes=None,
            aside=sum(len(partition.aside) for partition in outbox.partitions),
            letters=sum(one.message.outbox == outbox.name for one in pending),
        )
