"""The role `Outboxes`."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import NoReturn

from msgspec.structs import replace

from mainspring.core.job import NodeId
from mainspring.core.outbox import Stand
from mainspring.errors import DeclarationError, PartitionCountMismatch
from mainspring.stores.memory.guard import Guarded
from mainspring.stores.memory.logs import Partition
from mainspring.stores.outbox import (
    Aside,
    Letter,
    LetterFilter,
    LetterPage,
    LetterState,
    Message,
    NewMessage,
    OutboxView,
    PartitionsLooked,
    PartitionView,
    Published,
    Stride,
)

_COMPLETED = (LetterState.RESOLVED, LetterState.DISCARDED)


class OutboxesRole(Guarded):
    """Messages on their way. There is one lock, so that a message has its `seq` as soon as it is there."""

    async def register_outbox(self, name: str, partitions: int) -> None:
        with self._locked() as now:
            self._tables.logs.check(name, partitions)
            self._tables.logs.made(name, partitions, now)

    async def publish(self, new: Sequence[NewMessage]) -> tuple[Published, ...]:
        with self._locked() as now:
            logs = self._tables.logs
            first: dict[str, int] = {}
            for one in new:
                logs.check(one.outbox, one.partitions)
                found = first.setdefault(one.outbox, one.partitions)
                if found != one.partitions:
                    raise PartitionCountMismatch(one.outbox, one.partitions, found)
            answers = tuple(logs.publish(one, now) for one in new)
        if any(answer.fresh for answer in answers):
            self._ring()
        return answers

    async def publish_in(self, tx: object, new: Sequence[NewMessage]) -> tuple[Published, ...]:  # noqa: ARG002 - the port's
        _refuse()

    def publish_in_sync(self, tx: object, new: Sequence[NewMessage]) -> tuple[Published, ...]:  # noqa: ARG002 - as above
        _refuse()

    async def look_at_partitions(self, outboxes: Sequence[str]) -> PartitionsLooked:
        with self._locked() as now:
            logs = self._tables.logs
            views = tuple(
                self._view(name, number, partition)
                for name in outboxes
                if name in logs.outboxes
                for number, partition in enumerate(logs.outboxes[name].partitions)
            )
        return PartitionsLooked(now=now, partitions=views)

    async def read_messages(self, outbox: str, partition: int, after: int, limit: int) -> tuple[Message, ...]:
        with self._locked():
            found = self._tables.logs.find(outbox, partition)
            seqs = range(after + 1, min(after + limit, found.last) + 1) if found else ()
            return tuple(message for seq in seqs if found and (message := found.messages.get(seq)))

    async def read_aside(self, outbox: str, partition: int, limit: int) -> tuple[Aside, ...]:
        with self._locked() as now:
            found = self._tables.logs.find(outbox, partition)
            due = [(one.retry_at, one) for one in found.firsts() if one.retry_at] if found else []
        ripe = sorted((pair for pair in due if pair[0] <= now), key=lambda pair: (pair[0], pair[1].message.seq))
        return tuple(one for _, one in ripe[:limit])

    async def read_keys_aside(self, outbox: str, partition: int, keys: Sequence[str]) -> frozenset[str]:
        with self._locked():
            found = self._tables.logs.find(outbox, partition)
            there = {one.message.key for one in found.aside.values()} if found else set()
            return frozenset(key for key in keys if key in there)

    async def stride(self, node: NodeId, term: int, strides: Sequence[Stride]) -> tuple[bool, ...]:
        with self._locked() as now:
            self._tables.living(node, term)
            answers = tuple(self._stride(node, one, now) for one in strides)
        if any(accepted and one.after.holder is None for accepted, one in zip(answers, strides, strict=True)):
            self._ring()
        return answers

    async def stride_in(self, tx: object, node: NodeId, term: int, stride: Stride) -> bool:  # noqa: ARG002 - the port's
        _refuse()

    def stride_in_sync(self, tx: object, node: NodeId, term: int, stride: Stride) -> bool:  # noqa: ARG002 - the port's
        _refuse()

    async def outboxes(self) -> tuple[OutboxView, ...]:
        with self._locked():
            logs = self._tables.logs
            return tuple(logs.view(outbox) for _, outbox in sorted(logs.outboxes.items()))

    async def clear_messages(self, limit: int) -> int:
        with self._locked() as now:
            left = limit
            for outbox in self._tables.logs.outboxes.values():
                for partition in outbox.partitions:
                    left -= partition.clear(left)
                outbox.forget(now, limit)
            return limit - left

    # Dead letters.

    async def letters(self, which: LetterFilter, *, limit: int = 100, after: str | None = None) -> LetterPage:
        with self._locked():
            fitting = [one for one in self._fitting(which) if one.state in which.states]
        found = sorted(fitting, key=_place, reverse=True)
        if after is not None:
            end = _read_place(after)
            found = [one for one in found if _place(one) < end]
        page = tuple(found[:limit])
        return LetterPage(letters=page, after=_write_place(page[-1]) if page and len(found) > limit else None)

    async def take_letters(self, which: LetterFilter, within: timedelta, limit: int) -> tuple[Letter, ...]:
        with self._locked() as now:
            free = sorted(
                self._free(which, now), key=lambda one: (one.deadline is not None, one.deadline or now, one.id)
            )
            taken = tuple(
                replace(one, state=LetterState.REPROCESSING, term=one.term + 1, deadline=now + within)
                for one in free[:limit]
            )
            self._put(taken)
        return taken

    async def resolve_letters(self, letters: Sequence[tuple[int, int]]) -> int:
        with self._locked() as now:
            held = self._in_hand(letters)
            self._put([replace(one, state=LetterState.RESOLVED, deadline=None, completed_at=now) for one in held])
        return len(held)

    async def return_letters(self, letters: Sequence[tuple[int, int]], error: str) -> int:
        with self._locked() as now:
            held = self._in_hand(letters)
            self._put(
                [
                    replace(
                        one,
                        state=LetterState.PENDING,
                        deadline=None,
                        attempts=one.attempts + 1,
                        error=error,
                        failed_at=now,
                    )
                    for one in held
                ]
            )
        return len(held)

    async def discard_letters(self, which: LetterFilter, limit: int) -> int:
        with self._locked() as now:
            pending = [one for one in self._fitting(which) if one.state is LetterState.PENDING][:limit]
            self._put([replace(one, state=LetterState.DISCARDED, completed_at=now) for one in pending])
        return len(pending)

    async def replay_letters(self, which: LetterFilter, limit: int) -> int:
        with self._locked() as now:
            free = sorted(self._free(which, now), key=_place)[:limit]
            for one in free:
                self._tables.logs.republish(one, now)
        if free:
            self._ring()
        return len(free)

    async def clear_letters(self, older_than: timedelta, limit: int) -> int:
        with self._locked() as now:
            letters = self._tables.logs.letters
            old = [
                one.id
                for one in letters.values()
                if one.state in _COMPLETED and one.completed_at and one.completed_at <= now - older_than
            ][:limit]
            for letter in old:
                del letters[letter]
        return len(old)

    # Within the lock.

    def _view(self, name: str, number: int, partition: Partition) -> PartitionView:
        return PartitionView(
            outbox=name,
            partition=number,
            last=partition.last,
            stand=partition.stand,
            is_held=self._is_tended(partition.stand),
            aside_at=partition.aside_at,
        )

    def _is_tended(self, stand: Stand) -> bool:
        return stand.holder is not None and self._tables.is_alive(stand.holder)

    def _stride(self, node: NodeId, stride: Stride, now: datetime) -> bool:
        found = self._tables.logs.find(stride.outbox, stride.partition)
        if found is None or not found.stand.revision == stride.before == stride.after.revision - 1:
            return False
        if found.stand.holder != node and self._is_tended(found.stand):
            return False
        found.take(stride, now)
        self._tables.logs.bury(stride, now)
        return True

    def _fitting(self, which: LetterFilter) -> Iterator[Letter]:
        for one in self._tables.logs.letters.values():
            message = one.message
            wanted = (which.outbox, which.partition, which.type, which.key)
            has = (message.outbox, message.partition, message.type, message.key)
            if all(want in (None, got) for want, got in zip(wanted, has, strict=True)) and (
                which.ids is None or one.id in which.ids
            ):
                yield one

    def _free(self, which: LetterFilter, now: datetime) -> Iterator[Letter]:
        """Those that are pending, and those whose deadline has passed."""
        for one in self._fitting(which):
            late = one.state is LetterState.REPROCESSING and one.deadline is not None and one.deadline <= now
            if late or one.state is LetterState.PENDING:
                yield one

    def _in_hand(self, letters: Sequence[tuple[int, int]]) -> list[Letter]:
        found = (self._tables.logs.letters.get(letter) for letter, _ in dict(letters).items())
        terms = dict(letters)
        return [one for one in found if one and one.state is LetterState.REPROCESSING and one.term == terms[one.id]]

    def _put(self, letters: Sequence[Letter]) -> None:
        self._tables.logs.letters.update({one.id: one for one in letters})


def _refuse() -> NoReturn:
    raise DeclarationError("tx", "MemoryStore cannot write in a transaction of yours; leave tx out")


def _place(letter: Letter) -> tuple[datetime, int]:
    return letter.failed_at, letter.id


def _write_place(letter: Letter) -> str:
    return f"{letter.failed_at.astimezone(UTC).isoformat()} {letter.id}"


def _read_place(after: str) -> tuple[datetime, int]:
    failed_at, _, letter = after.partition(" ")
    return datetime.fromisoformat(failed_at), int(letter)
