"""The role `Outboxes` of the store."""

from collections.abc import Sequence
from datetime import timedelta

from mainspring.core.job import NodeId
from mainspring.stores.outbox import (
    Aside,
    Letter,
    LetterFilter,
    LetterPage,
    Message,
    NewMessage,
    OutboxView,
    PartitionsLooked,
    Published,
    Stride,
)
from mainspring.stores.sqlite import letters as dead
from mainspring.stores.sqlite import outboxes as log
from mainspring.stores.sqlite import strides as delivery
from mainspring.stores.sqlite.handle import Handle
from mainspring.stores.sqlite.transaction import SqliteTransaction


class OutboxVerbs(Handle):
    """What is asked of a store that keeps outboxes."""

    async def register_outbox(self, name: str, partitions: int) -> None:
        await self._write(log.register, name, partitions)

    async def publish(self, new: Sequence[NewMessage]) -> tuple[Published, ...]:
        return tuple(await self._file.writer.do(log.publish, new))

    async def publish_in(self, tx: object, new: Sequence[NewMessage]) -> tuple[Published, ...]:
        return await self._own(tx).publish(new) if isinstance(tx, SqliteTransaction) else self.publish_in_sync(tx, new)

    def publish_in_sync(self, tx: object, new: Sequence[NewMessage]) -> tuple[Published, ...]:
        with self._joined(tx) as session:
            return tuple(log.publish(session, new))

    async def look_at_partitions(self, outboxes: Sequence[str]) -> PartitionsLooked:
        """As the port says; every message has had its number since it was written."""
        return await self._read(log.look, outboxes)

    async def read_messages(self, outbox: str, partition: int, after: int, limit: int) -> tuple[Message, ...]:
        return await self._read(log.read, outbox, partition, after, limit)

    async def read_aside(self, outbox: str, partition: int, limit: int) -> tuple[Aside, ...]:
        return await self._read(delivery.read_aside, outbox, partition, limit)

    async def read_keys_aside(self, outbox: str, partition: int, keys: Sequence[str]) -> frozenset[str]:
        return await self._read(delivery.read_keys_aside, outbox, partition, keys)

    async def stride(self, node: NodeId, term: int, strides: Sequence[Stride]) -> tuple[bool, ...]:
        return tuple(await self._file.writer.do(delivery.stride, [(node, term, one) for one in strides]))

    async def stride_in(self, tx: object, node: NodeId, term: int, stride: Stride) -> bool:
        if isinstance(tx, SqliteTransaction):
            return await self._own(tx).stride(node, term, stride)
        return self.stride_in_sync(tx, node, term, stride)

    def stride_in_sync(self, tx: object, node: NodeId, term: int, stride: Stride) -> bool:
        with self._joined(tx) as session:
            return delivery.stride(session, [(node, term, stride)])[0]

    async def outboxes(self) -> tuple[OutboxView, ...]:
        return await self._read(log.views)

    async def clear_messages(self, limit: int) -> int:
        return await self._write(log.clear, limit)

    # Dead letters

    async def letters(self, which: LetterFilter, *, limit: int = 100, after: str | None = None) -> LetterPage:
        return await self._read(dead.page, which, limit, after)

    async def take_letters(self, which: LetterFilter, within: timedelta, limit: int) -> tuple[Letter, ...]:
        return await self._write(dead.take, which, within, limit)

    async def resolve_letters(self, letters: Sequence[tuple[int, int]]) -> int:
        return await self._write(dead.resolve, letters)

    async def return_letters(self, letters: Sequence[tuple[int, int]], error: str) -> int:
        return await self._write(dead.give_back, letters, error)

    async def discard_letters(self, which: LetterFilter, limit: int) -> int:
        return await self._write(dead.discard, which, limit)

    async def replay_letters(self, which: LetterFilter, limit: int) -> int:
        return await self._write(dead.replay, which, limit)

    async def clear_letters(self, older_than: timedelta, limit: int) -> int:
        return await self._write(dead.clear, older_than, limit)
