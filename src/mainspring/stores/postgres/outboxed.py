"""The role `Outboxes` of the store."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Final

from mainspring.core.job import NodeId
from mainspring.errors import StoreUnavailable
from mainspring.ids import new_id
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
from mainspring.stores.postgres import letters, log, outboxes, publish
from mainspring.stores.postgres.handle import Handle
from mainspring.stores.postgres.transaction import PostgresTransaction
from mainspring.stores.postgres.trouble import met_a_lock
from mainspring.stores.postgres.wake import Hint
from mainspring.stores.transactions import postgres as users

_NUMBERING: Final = 60.0
"""Seconds that giving numbers may take: a transaction may bring in millions of messages at once."""


class OutboxVerbs(Handle):
    """What is asked of a store that keeps outboxes."""

    async def register_outbox(self, name: str, partitions: int) -> None:
        await self._run(lambda: publish.register(self._at, name, partitions), whole=True)

    async def publish(self, new: Sequence[NewMessage]) -> tuple[Published, ...]:
        """As the port says. It is not tried again where it may have been committed: a message has no id of its own."""
        self._connections.must_be_open()
        if not new:
            return ()
        answers = None
        if publish.is_simple(new):
            answers = await self._connections.run(lambda: publish.publish_at_once(self._at, new), again=False)
        if answers is None:
            answers = await self._connections.run(lambda: publish.publish(self._at, new), whole=True, again=False)
        if any(answer.fresh for answer in answers):
            self._committed(None)
        return answers

    async def publish_in(self, tx: object, new: Sequence[NewMessage]) -> tuple[Published, ...]:
        """As the port says; a handler's own `transaction` is taken too."""
        if isinstance(tx, PostgresTransaction):
            return await self._own(tx).publish(new)
        self._connections.must_be_open()
        verb = publish.publish(self._at, new)
        return await users.run_in(tx, verb, self._settings, self._identity, hint=self._published)

    def publish_in_sync(self, tx: object, new: Sequence[NewMessage]) -> tuple[Published, ...]:
        self._connections.must_be_open()
        verb = publish.publish(self._at, new)
        return users.run_in_sync(tx, verb, self._settings, self._identity, hint=self._published)

    @property
    def _published(self) -> Hint | None:
        return self._users_hint(None)

    async def look_at_partitions(self, outboxes_: Sequence[str]) -> PartitionsLooked:
        looked = await self._look(outboxes_)
        last: dict[int, int] = {}
        if looked.fresh:
            last = await self._connections.run(lambda: outboxes.number(looked), whole=True, timeout=_NUMBERING)
        if last:  # whoever found somebody else at it waits for this
            self._committed(None)
        if len(last) < len(looked.fresh):  # others were quicker: they may be done, and all of it as they have left it
            looked, last = await self._look(outboxes_), {}
        return outboxes.numbered(looked, last, self.now())

    async def _look(self, outboxes_: Sequence[str]) -> outboxes.Look:
        settled = tuple(self._settled.values())
        looked = await self._run(lambda: outboxes.look(self._at, outboxes_, settled))
        self._settled.update(looked.settled)
        return looked

    async def read_messages(self, outbox: str, partition: int, after: int, limit: int) -> tuple[Message, ...]:
        return await self._run(lambda: outboxes.read(outbox, partition, after, limit))

    async def read_aside(self, outbox: str, partition: int, limit: int) -> tuple[Aside, ...]:
        return await self._run(lambda: outboxes.read_aside(self._at, outbox, partition, limit))

    async def read_keys_aside(self, outbox: str, partition: int, keys: Sequence[str]) -> frozenset[str]:
        self._connections.must_be_open()
        return await self._run(lambda: outboxes.read_keys_aside(outbox, partition, keys)) if keys else frozenset()

    async def stride(self, node: NodeId, term: int, strides: Sequence[Stride]) -> tuple[bool, ...]:
        self._connections.must_be_open()
        if not strides:
            return ()
        call = outboxes.Call(new_id(self.now()), node, term, strides, waits=True)
        try:
            accepted = await self._stride(call)
        except StoreUnavailable as error:
            if not met_a_lock(error):
                raise
            call.waits = (
                False  # somebody is at one of them who may never come back; the others are not to wait for that
            )
            accepted = await self._stride(call)
        if any(strides[place].after.holder is None for place in accepted):
            self._committed(None)
        return tuple(place in accepted for place in range(len(strides)))

    async def _stride(self, call: outboxes.Call) -> set[int]:
        return await self._run(lambda: outboxes.stride(self._at, call), whole=not call.is_plain)

    async def stride_in(self, tx: object, node: NodeId, term: int, stride: Stride) -> bool:
        """As the port says; a handler's own `transaction` is taken too."""
        call = outboxes.Call(new_id(self.now()), node, term, [stride])
        if isinstance(tx, PostgresTransaction):
            return await self._own(tx).stride(call)
        self._connections.must_be_open()
        verb = outboxes.stride(self._at, call)
        hint = self._published if stride.after.holder is None else None
        return bool(await users.run_in(tx, verb, self._settings, self._identity, hint=hint))

    def stride_in_sync(self, tx: object, node: NodeId, term: int, stride: Stride) -> bool:
        self._connections.must_be_open()
        verb = outboxes.stride(self._at, outboxes.Call(new_id(self.now()), node, term, [stride]))
        hint = self._published if stride.after.holder is None else None
        return bool(users.run_in_sync(tx, verb, self._settings, self._identity, hint=hint))

    async def outboxes(self) -> tuple[OutboxView, ...]:
        return await self._run(outboxes.views)

    async def clear_messages(self, limit: int) -> int:
        self._connections.must_be_open()
        return await log.clear(self._connections, self._at, limit, self._marks)

    # Dead letters

    async def letters(self, which: LetterFilter, *, limit: int = 100, after: str | None = None) -> LetterPage:
        return await self._run(lambda: letters.page(which, limit, after))

    async def take_letters(self, which: LetterFilter, within: timedelta, limit: int) -> tuple[Letter, ...]:
        return await self._run(lambda: letters.take(self._at, which, within, limit), whole=True, again=False)

    async def resolve_letters(self, letters_: Sequence[tuple[int, int]]) -> int:
        return await self._run(lambda: letters.resolve(self._at, letters_))

    async def return_letters(self, letters_: Sequence[tuple[int, int]], error: str) -> int:
        return await self._run(lambda: letters.give_back(self._at, letters_, error))

    async def discard_letters(self, which: LetterFilter, limit: int) -> int:
        return await self._run(lambda: letters.discard(self._at, which, limit), whole=True, again=False)

    async def replay_letters(self, which: LetterFilter, limit: int) -> int:
        replayed = await self._run(lambda: letters.replay(self._at, which, limit), whole=True, again=False)
        if replayed:
            self._committed(None)
        return replayed

    async def clear_letters(self, older_than: timedelta, limit: int) -> int:
        return await self._run(lambda: letters.clear(self._at, older_than, limit))
