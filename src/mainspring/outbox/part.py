"""The outboxes of a node, as a part of it: a lookout, and a processor for each partition that has a handler here."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from mainspring.core.backoff import Backoff
from mainspring.duration import seconds
from mainspring.errors import DeclarationError, NodeGone, StoreError
from mainspring.outbox.caller import Around, Caller
from mainspring.outbox.definition import Handler, Mode, OutboxDefinition
from mainspring.outbox.lookout import Lookout
from mainspring.outbox.processor import Processor, Surroundings
from mainspring.outbox.room import Room
from mainspring.runtime.events import log
from mainspring.runtime.executors.thread import ThreadExecutor
from mainspring.runtime.part import Seat
from mainspring.stores.outbox import Outboxes
from mainspring.stores.port import Transactions
from mainspring.supervise import NO_PAUSE, Bulkhead, Lane, Service, Stop, TaskSet

AGAIN: Final = Backoff.exponential("100ms", cap="2s", jitter=0.3)
LAST_WORDS: Final = 5.0  # seconds that giving up what is held may take; a dead node holds nothing


class OutboxPart:
    """All of them. `definitions` may grow while the node runs."""

    def __init__(
        self, definitions: Mapping[str, OutboxDefinition[Any]], seat: Seat, *, around: Around | None = None
    ) -> None:
        self._definitions = definitions
        self._seat = seat
        self._around = around
        self._registered: set[str] = set()
        self._processors: dict[tuple[str, int], Processor] = {}
        self._spacing = 0.0
        self._quiet = self._silent = self._has_begun = False
        self._threads = ThreadExecutor()
        self._room = Room()
        self._gate = Bulkhead(Lane(seat.settings.outbox_partitions))
        self._looking = TaskSet()
        self._working = TaskSet()
        self._lookout: Lookout | None = None

    # While the node runs.

    async def declare(self) -> None:
        for definition in tuple(self._definitions.values()):
            if definition.name not in self._registered:
                outboxes = self._outboxes(definition.name)
                self._check(definition)
                await outboxes.register_outbox(definition.name, definition.partitions)
                self._registered.add(definition.name)

    async def _declare_new(self) -> None:
        """Register what was declared since. What is wrong with it must not keep the others waiting."""
        try:
            await self.declare()
        except DeclarationError as error:
            wrong = [name for name in self._definitions if name not in self._registered][:1]
            self._registered.update(wrong)
            log.error("outbox %s cannot be delivered: %s", "".join(wrong), error)

    def start(self) -> None:
        self._has_begun = True
        self.refresh()

    def refresh(self) -> None:
        if not self._has_begun or self._working.stop.is_set() or not self._definitions:
            return
        if self._lookout is None:
            self._lookout = self._make_lookout()
            self._looking.start(
                Service(
                    "outbox lookout",
                    self._lookout.step,
                    wake=[self._lookout.wake],
                    pacing=NO_PAUSE,
                    backoff=AGAIN,
                    listeners=self._seat.listeners,
                )
            )
        for definition in tuple(self._definitions.values()):
            if definition.handler is not None and (definition.name, 0) not in self._processors:
                self._begin(definition, definition.handler)
                self.hint()

    def hint(self) -> None:
        if self._lookout is not None:
            self._lookout.wake.notify_one()

    def pause(self, *, quiet: bool, silent: bool) -> None:
        if silent and not self._silent:
            self._drop_all()
        self._quiet, self._silent = quiet, silent
        self.hint()

    def gone(self) -> None:
        self._drop_all()
        self.hint()

    def _drop_all(self) -> None:
        for processor in self._processors.values():
            processor.drop()

    def _takes_more(self) -> bool:
        return not (self._quiet or self._silent or self._working.stop.is_set())

    def _begin(self, definition: OutboxDefinition[Any], declared: Handler) -> None:
        handler = _fitting(declared, self._seat)
        caller = Caller(definition, handler, self._threads, self._seat.clock, around=self._around)
        around = Surroundings(
            store=self._seat.store,
            outboxes=self._outboxes(definition.name),
            events=self._seat.events,
            clock=self._seat.clock,
            me=self._seat.me,
            look=self.hint,
            takes_more=self._takes_more,
            room=self._room,
        )
        spacing = handler.spacing.total_seconds()
        self._spacing = min(self._spacing, spacing) if self._processors else spacing
        for partition in range(definition.partitions):
            processor = Processor(definition, handler, partition, around, caller)
            self._processors[definition.name, partition] = processor
            self._working.start(
                Service(
                    processor.name,
                    processor.step,
                    wake=[processor.wake],
                    start_idle=True,
                    pacing=handler.pacing,
                    bulkhead=self._gate,
                    backoff=AGAIN,
                    listeners=self._seat.listeners,
                )
            )

    def _make_lookout(self) -> Lookout:
        return Lookout(
            self._outboxes(next(iter(self._definitions))),
            clock=self._seat.clock,
            me=lambda: self._seat.me().node,
            prepare=self._declare_new,
            processors=self._processors,
            spacing=lambda: self._spacing,
            may_look=self._takes_more,
        )

    def _outboxes(self, name: str) -> Outboxes:
        store = self._seat.store
        if isinstance(store, Outboxes):
            return store
        raise DeclarationError(f"outbox {name}", f"{type(store).__name__} keeps no outboxes; use SQLite or PostgreSQL")

    def _check(self, definition: OutboxDefinition[Any]) -> None:
        handler = definition.handler
        if handler is not None and _fitting(handler, self._seat).mode is Mode.TRANSACTIONAL:
            store = self._seat.store
            if not isinstance(store, Transactions):
                problem = f"{type(store).__name__} has no transactions; use SQLite or PostgreSQL, or mode='leased'"
                raise DeclarationError(f"handler of outbox {definition.name}", problem)

    # The end.

    async def end(self, *, grace: float, hurry: Stop) -> tuple[str, ...]:
        await self._looking.shutdown(grace=1, deadline=2)
        deadline = grace + seconds(self._seat.settings.stop_grace) + 1
        stopping = asyncio.ensure_future(self._working.shutdown(grace=grace, deadline=deadline))
        hurried = asyncio.ensure_future(hurry.wait())
        await asyncio.wait([stopping, hurried], return_when=asyncio.FIRST_COMPLETED)
        hurried.cancel()
        stopping.cancel()  # which takes away the grace time, and does nothing to one that is done
        await asyncio.wait([stopping])
        stuck = self._working.running
        await self._give_up([one for one in self._processors.values() if one.name not in stuck])
        await self._threads.close()
        return stuck

    async def _give_up(self, processors: list[Processor]) -> None:
        """Let others have what is ours, without waiting for it to be noticed that we are gone."""
        strides = [stride for processor in processors if (stride := processor.last_stride())]
        if not strides or not isinstance(self._seat.store, Outboxes):
            return
        me = self._seat.me()
        try:
            async with asyncio.timeout(LAST_WORDS):
                await self._seat.store.stride(me.node, me.term, strides)
        except NodeGone:
            return
        except (StoreError, TimeoutError) as error:
            log.warning("%d partitions could not be given up; they are free when the node is: %r", len(strides), error)


def _fitting(handler: Handler, seat: Seat) -> Handler:
    """Say how a handler is called on this store."""
    if handler.prefers_transactions and not isinstance(seat.store, Transactions):
        return replace(handler, mode=Mode.LEASED)
    return handler
