"""An outbox, as a program holds it: messages that are written with the program's own writes, and delivered in order.

orders = app.outbox("orders", payload=Order)

async with session.begin():
    session.add(order)
    await orders.publish(session, order, key=order.customer)

@orders.handler(mode="transactional")
async def deliver(message: Message[Order], tx) -> None: ...
"""

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar, Unpack, overload
from uuid import UUID

from mainspring.client.calls import Pattern
from mainspring.client.connection import Connection
from mainspring.client.letters import DeadLetters
from mainspring.client.options import Options
from mainspring.core.job import JobId
from mainspring.core.outbox import LONGEST_NAME, check_name, check_partitions, partition_of
from mainspring.errors import (
    DeclarationError,
    NameTaken,
    PartitionOutOfRange,
    PayloadError,
    UnknownOutbox,
)
from mainspring.ids import ordered
from mainspring.outbox.definition import Handler, HandlerOptions, OutboxDefinition, declare_handler
from mainspring.outbox.events import Counts, DeliveryListener
from mainspring.outbox.message import Batch, Key, Message, Outgoing
from mainspring.outbox.payloads import Payloads
from mainspring.runtime.call import current_call
from mainspring.runtime.definition import Definition
from mainspring.runtime.own_end import HandlerTransaction
from mainspring.runtime.part import Part, Seat
from mainspring.stores import outbox as stored
from mainspring.stores.outbox import NewMessage, PartitionView, Published
from mainspring.stores.port import Store, Transaction
from mainspring.stores.records import NewJob
from mainspring.task import Task

T = TypeVar("T")
A = TypeVar("A")
B = TypeVar("B")
H = TypeVar("H", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionStats:
    """How one partition stands, and what this program has delivered of it."""

    view: PartitionView
    counts: Counts

    @property
    def lag(self) -> int:
        """Messages that wait to be delivered, without those that were set aside."""
        return self.view.last - self.view.stand.cursor


class Outbox(DeadLetters[T]):
    """An outbox: `T` is what its messages carry."""

    def __init__(self, connection: Connection, definition: OutboxDefinition[T]) -> None:
        super().__init__(connection, definition)

    @property
    def name(self) -> str:
        return self._definition.name

    @property
    def partitions(self) -> int:
        return self._definition.partitions

    def __repr__(self) -> str:
        return f"<Outbox {self.name}>"

    # Publishing.

    async def publish(
        self,
        tx: object,
        payload: T,
        *,
        key: Key | None = None,
        partition: int | None = None,
        unique: str | None = None,
    ) -> Published:
        """Publish one message in a transaction of yours: it is there when that commits, or never.

        Messages with the same `key` are delivered in order; one without goes to any partition. While a message with the
        same `unique` text is known, another is not written. With None for `tx` it is committed by itself.
        """
        (published,) = await self.publish_many(tx, [Outgoing(payload, key, partition, unique)])
        return published

    def publish_sync(
        self,
        tx: object,
        payload: T,
        *,
        key: Key | None = None,
        partition: int | None = None,
        unique: str | None = None,
    ) -> Published:
        """Publish one message from code without an event loop."""
        (published,) = self.publish_many_sync(tx, [Outgoing(payload, key, partition, unique)])
        return published

    async def publish_many(self, tx: object, messages: Iterable[Outgoing[T] | T]) -> tuple[Published, ...]:
        """Publish several messages, all or none: payloads, or `Outgoing(payload, key=…)`. All are checked first."""
        new = self._new(messages)
        if tx is None:
            return await (await self._store()).publish(new)
        await self._connection.expect_tables()
        return await (await self._store()).publish_in(_inner(tx), new)

    def publish_many_sync(self, tx: object, messages: Iterable[Outgoing[T] | T]) -> tuple[Published, ...]:
        """Publish several messages from code without an event loop, in the thread that the transaction belongs to."""
        if tx is None:
            return self._connection.wait_for(lambda: self.publish_many(None, messages))
        new = self._new(messages)
        self._connection.wait_for(self._connection.expect_tables)
        return self._playing(self._connection.store_sync()).publish_in_sync(_inner(tx), new)

    def _new(self, messages: Iterable[Outgoing[T] | T]) -> list[NewMessage]:
        self._connection.guard.publish()
        call = current_call.get()
        traceparent = self._connection.traceparent() or (None if call is None else call.traceparent)
        return [
            self._checked(one if isinstance(one, Outgoing) else Outgoing(one), traceparent) for one in tuple(messages)
        ]

    def _checked(self, one: Outgoing[T], traceparent: str | None) -> NewMessage:
        key, unique = _text("key", one.key), _text("unique", one.unique)
        type_, payload = self._definition.payloads.encode(one.payload)
        return NewMessage(
            outbox=self.name,
            partitions=self.partitions,
            partition=self._partition(one.partition, key),
            payload=payload,
            type=type_,
            key=key,
            unique=unique,
            traceparent=traceparent,
        )

    def _partition(self, partition: object, key: str | None) -> int:
        if partition is None:
            return random.randrange(self.partitions) if key is None else partition_of(key, self.partitions)  # noqa: S311 - no secret
        if type(partition) is not int or not 0 <= partition < self.partitions:
            raise PartitionOutOfRange(self.name, partition, self.partitions)
        return partition

    # Delivering.

    @overload
    def handler(self, function: H, /) -> H: ...

    @overload
    def handler(self, /, **options: Unpack[HandlerOptions]) -> Callable[[H], H]: ...

    def handler(self, function: H | None = None, /, **options: Unpack[HandlerOptions]) -> H | Callable[[H], H]:
        """Have messages delivered to a function: `@orders.handler`, or `@orders.handler(mode="transactional")`.

        It is given a `Message[T]`, or a `Batch[T]` if `batch=True`, and in a transaction that as well. What it raises
        decides what becomes of the message: `Fail` makes a dead letter of it, `Snooze` puts it off, `RetryIn` and
        everything else have it delivered again until `max_attempts` are used up.
        """

        def declare(function: H) -> H:
            self._set(declare_handler(self.name, function, options))
            return function

        return declare if function is None else declare(function)

    def to(self, task: Task[[T], Any], /, **options: Unpack[HandlerOptions]) -> None:
        """Turn messages into jobs of a task that takes the payload, once each: in one transaction, where there are any.

        A message that the task cannot take becomes a dead letter.
        """
        if not isinstance(task, Task):
            raise DeclarationError(f"outbox {self.name}", f"it hands messages to a task, and not to {task!r}")
        given: HandlerOptions = {"size": 100, **options, "mode": "transactional", "batch": True}
        handler = declare_handler(self.name, _Forwarder(self._connection, task).deliver_in, given)
        self._set(replace(handler, function=_Forwarder(self._connection, task), prefers_transactions=True))

    def _set(self, handler: Handler) -> None:
        self._connection.guard.steer("outbox.handler")
        if self._definition.handler is not None:
            problem = (
                f"it has a handler, {self._definition.handler.name}; have that one do both, or publish to two outboxes"
            )
            raise DeclarationError(f"outbox {self.name}", problem)
        self._definition.handler = handler

    def listener(self, listener: DeliveryListener) -> DeliveryListener:
        """Have a function told of every delivery by this app's nodes, after it was committed."""
        self._connection.guard.steer("outbox.listener")
        self._definition.listeners.append(listener)
        return listener

    async def stats(self) -> tuple[PartitionStats, ...]:
        """Say how each partition stands, and what was delivered of it by this program's nodes."""
        looked = await (await self._store()).look_at_partitions([self.name])
        if not looked.partitions:
            raise UnknownOutbox(self.name)
        return tuple(
            PartitionStats(view=view, counts=replace(self._definition.counts[view.partition]))
            for view in looked.partitions
        )


class _Forwarder:
    """The handler that makes jobs of messages."""

    def __init__(self, connection: Connection, task: Task[..., Any]) -> None:
        self._connection = connection
        self.task: Final = task

    async def __call__(self, batch: Batch[Any], tx: Transaction | None = None) -> None:
        store = await self._connection.store()
        jobs: list[NewJob] = []
        for message in batch:
            try:
                jobs.append(self._job(message, store))
            except PayloadError as error:
                await self._enqueue(jobs, batch, store, tx)
                jobs.clear()
                await batch.reject(str(error))
        await self._enqueue(jobs, batch, store, tx)

    async def deliver_in(self, batch: Batch[Any], tx: Transaction) -> None:
        await self(batch, tx)

    async def _enqueue(self, jobs: Sequence[NewJob], batch: Batch[Any], store: Store, tx: Transaction | None) -> None:
        if jobs:
            await (store.enqueue(jobs) if tx is None else tx.enqueue(jobs))
            await batch.ack_chunk(len(jobs))

    def _job(self, message: Message[Any], store: Store) -> NewJob:
        definition = self.task.definition
        payload = definition.arguments.encode((message.payload,), {})
        options = Options(id=job_of(message.stored), traceparent=message.traceparent)
        return Pattern(definition, options).job(payload, store.now())


def job_of(message: stored.Message) -> JobId:
    """Name the job that a message becomes: always the same one, and in the order of the messages."""
    name = f"{message.outbox}\n{message.partition}\n{message.number}"
    return JobId(ordered(name, message.seq, message.published_at))


class Outboxes:
    """What `app.outbox` is: the outboxes of an app, and the way to declare one."""

    def __init__(self, connection: Connection) -> None:
        self._connection: Final = connection
        self._definitions: Final[dict[str, OutboxDefinition[Any]]] = {}

    @overload
    def __call__(self, name: str, *, partitions: int = 8) -> Outbox[Any]: ...

    @overload
    def __call__(self, name: str, *, partitions: int = 8, payload: type[T]) -> Outbox[T]: ...

    @overload
    def __call__(self, name: str, *, partitions: int = 8, payload: tuple[type[A], type[B]]) -> Outbox[A | B]: ...

    @overload
    def __call__(self, name: str, *, partitions: int = 8, payload: object) -> Outbox[Any]: ...

    def __call__(self, name: str, *, partitions: int = 8, payload: object = Any) -> Outbox[Any]:
        """Declare an outbox with 1, 2, 4… up to 64 partitions, which it keeps for ever.

        `payload` is what its messages carry: a type, several types, bytes, or without it anything that JSON can say.
        Each type has the name of its class; {"order.v1": Order} gives it another.
        """
        self._connection.guard.steer("app.outbox")
        check_name(name)
        check_partitions(name, partitions)
        if name in self._definitions:
            raise NameTaken(name, "outbox")
        definition: OutboxDefinition[Any] = OutboxDefinition(
            name=name, partitions=partitions, payloads=Payloads(name, payload)
        )
        self._definitions[name] = definition
        return Outbox(self._connection, definition)

    def forwarding(self) -> dict[str, Definition]:
        """Name the outboxes whose messages become jobs, and the task of each."""
        return {name: task for name, task in self.handled().items() if task is not None}

    def handled(self) -> dict[str, Definition | None]:
        """Return the outboxes that have a handler in this program, with the task if their messages become jobs."""
        handlers = {name: one.handler.function for name, one in self._definitions.items() if one.handler}
        return {name: one.task.definition if isinstance(one, _Forwarder) else None for name, one in handlers.items()}

    def part(self, seat: Seat) -> Part:
        """Make what delivers them on a node."""
        from mainspring.outbox.part import OutboxPart  # noqa: PLC0415 - only programs that run work load what runs it

        return OutboxPart(self._definitions, seat, around=self._connection.around_deliveries)


def _inner(tx: object) -> object:
    return tx.inner if isinstance(tx, HandlerTransaction) else tx


def _text(what: str, given: object) -> str | None:
    """Read a key, or a text that is to be unique: something that every store can keep."""
    if given is None:
        return None
    fits = isinstance(given, str | int | UUID) and not isinstance(given, bool)
    text = str(given) if fits else ""
    kept = fits and "\0" not in text and len(text) <= LONGEST_NAME and text.isprintable()
    if not kept:
        raise DeclarationError(
            what, f"a text of at most {LONGEST_NAME} printable characters, or a whole number, not {given!r}"
        )
    return text
