"""Works one partition off: begins a delivery, has it handled, and writes in one step how it ended and what comes next.

Whoever was overtaken finds out when it writes: then nothing that it did counts, and the partition is looked at afresh.
What could not be written because the store was away is written when it is back.
"""

import asyncio
import random
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Final, TypeVar

from msgspec import structs

from mainspring.clock import Clock
from mainspring.core.outbox import Delivery, Order, Trouble, Verdict, begin_next, release, width_of
from mainspring.errors import LeaseLost, NodeGone, StoreError, StoreUnavailable
from mainspring.outbox.caller import LONGEST_ERROR, Caller
from mainspring.outbox.definition import Handler, Mode, OutboxDefinition
from mainspring.outbox.events import DeliveryEnded, tell
from mainspring.outbox.message import Progress
from mainspring.outbox.room import Room
from mainspring.outbox.turn import Came, Draft, Turn, company, counted, ended, is_used_up, left_behind
from mainspring.runtime.call import storable
from mainspring.runtime.events import Events, log
from mainspring.runtime.keeper import Membership
from mainspring.stores.outbox import NewLetter, Outboxes, PartitionView, Stride
from mainspring.stores.port import Store, Transactions
from mainspring.supervise import Directive, Idle, Notifier, Proceed

MARGIN: Final = timedelta(seconds=1)
"""How much longer than its handler a transaction may take."""

R = TypeVar("R")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pending:
    """A stride, what comes after it, and what is told then."""

    stride: Stride
    turn: Turn | None
    events: tuple[DeliveryEnded, ...] = ()

    @property
    def alone(self) -> Stride:
        """The same without what comes after it: nothing is begun."""
        if self.turn is None:
            return self.stride
        begun = {one.message.seq for one in self.turn.counted}
        return structs.replace(
            self.stride,
            after=structs.replace(self.stride.after, holder=None, given=0),
            aside=tuple(one for one in self.stride.aside if one.message.seq not in begun),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What all processors of a node share."""

    store: Store
    outboxes: Outboxes
    events: Events
    clock: Clock
    me: Callable[[], Membership]
    look: Callable[[], None]
    """Have the partitions looked at."""
    takes_more: Callable[[], bool]
    """Whether anything new may be begun."""
    room: Room


class Processor:
    """The step of a service: one delivery."""

    def __init__(
        self,
        definition: OutboxDefinition[Any],
        handler: Handler,
        partition: int,
        around: Surroundings,
        caller: Caller,
        *,
        roll: Callable[[], float] = random.random,
    ) -> None:
        self.name: Final = f"outbox {definition.name}/{partition}"
        self.wake: Final = Notifier()
        self._definition = definition
        self._handler = handler
        self._rules: Delivery = handler.rules
        self._partition = partition
        self._around = around
        self._caller = caller
        self._roll = roll
        self._found: PartitionView | None = None
        self._revision = -1
        """The last one that we wrote: whatever was seen before that is out of date."""
        self._turn: Turn | None = None
        self._pending: Pending | None = None
        self._doubtful: Pending | None = None
        """What was to be committed when the store went away: it may have been."""
        self._progress: Progress | None = None
        self._began = 0.0
        self._call: asyncio.Task[Any] | None = None
        self._is_working = False
        self._has_aside = False
        self._aside_last = False

    @property
    def is_busy(self) -> bool:
        """Whether the partition is ours, or we are about to take it."""
        return self._is_working or self._turn is not None or self._pending is not None

    def offer(self, view: PartitionView) -> None:
        """Say that there is something to deliver, as a look has found it."""
        if not self.is_busy:
            self._found = view
            self.wake.notify_one()

    def drop(self) -> None:
        """Stop at once, and write nothing: others may have taken over."""
        self._turn = self._pending = self._doubtful = self._found = None
        if self._call is not None:
            self._call.cancel()

    async def step(self) -> Directive:
        self._is_working = True
        try:
            return await self._step()
        finally:
            self._is_working = False

    async def _step(self) -> Directive:
        if self._pending is not None:
            return await self._write(self._pending, again=True)
        if self._turn is None:
            return await self._begin()
        return await self._deliver_begun(self._turn)

    # Beginning.

    async def _begin(self) -> Directive:
        view, self._found = self._found, None
        if view is None or not self._around.takes_more():
            return Idle()
        if view.stand.revision < self._revision:
            self._around.look()
            return Idle()
        self._has_aside = self._has_aside or view.aside_at is not None
        draft = await self._found_draft(view)
        event = self._event(draft, None) if draft.verdict is not Verdict.NONE else None
        turn = await self._next(draft, is_first=True)
        if turn is None and event is None and not view.stand.given and not draft.letters:
            return Idle()  # what was there has been taken by others, or is not due
        # It is in the room before its beginning is written: who is lost while it waits there is not to blame.
        async with self._room(turn):
            if not self._around.takes_more():
                return Idle()
            directive = await self._write(self._pending_for(draft, turn, event))
            # It was woken to work: the first delivery does not wait for the pace of those that follow.
            return await self._deliver(self._turn) if self._turn is not None else directive

    def _room(self, turn: Turn | None) -> AbstractAsyncContextManager[None]:
        return self._around.room.enter(alone=turn is not None and turn.is_last_chance(self._rules))

    async def _found_draft(self, view: PartitionView) -> Draft:
        stand, now = view.stand, self._around.store.now()
        if not stand.given:
            return Draft(release(stand))
        head = await self._around.outboxes.read_messages(self._definition.name, self._partition, stand.cursor, 1)
        log.warning("%s: a delivery of %d messages was left behind by node %s", self.name, stand.given, stand.holder)
        return left_behind(stand, head[0] if head else None, self._rules, now, self._roll())

    async def _next(self, draft: Draft, *, is_first: bool = False) -> Turn | None:
        """Find what is to be delivered after a step that is not written yet, and begin it in the same.

        What has its last chance waits for the others in the room, and a step that is to be written does not: then nothing
        is begun, and the partition is looked at afresh.
        """
        if not self._around.takes_more():
            return None
        ways = [self._next_aside, self._next_span]
        for way in reversed(ways) if self._aside_last else ways:
            turn = await way(draft)
            if turn is not None:
                if turn.is_last_chance(self._rules) and not is_first:
                    return None
                self._aside_last = bool(turn.asides)
                draft.stand = turn.stand
                draft.put_aside(turn.counted)
                return turn
        return None

    async def _next_aside(self, draft: Draft) -> Turn | None:
        if not self._looks_aside:
            return None
        rules, now = self._rules, self._around.store.now()
        read = await self._around.outboxes.read_aside(self._definition.name, self._partition, rules.batch)
        due = [one for one in read if not draft.touches(one.message.seq)]
        for one in due:
            if is_used_up(one, rules):
                draft.bury(one)
        chosen = company([one for one in due if not is_used_up(one, rules)], rules)
        if not chosen:
            return None
        return Turn(
            stand=begin_next(draft.stand, self._around.me().node, 0),
            asides=chosen,
            counted=tuple(counted(one, rules, now, self._roll()) for one in chosen),
        )

    async def _next_span(self, draft: Draft) -> Turn | None:
        stand = draft.stand
        if stand.retry_at is not None and stand.retry_at > self._around.store.now():
            return None
        outboxes, name = self._around.outboxes, self._definition.name
        width = width_of(stand, self._rules)
        span = await outboxes.read_messages(name, self._partition, stand.cursor, width)
        if not span:
            return None
        skipped: frozenset[int] = frozenset()
        keys = {one.key for one in span if one.key is not None}
        if self._looks_aside and keys:
            aside = draft.keys | await outboxes.read_keys_aside(name, self._partition, tuple(keys))
            skipped = frozenset(one.seq for one in span if one.key in aside)
        return Turn(stand=begin_next(stand, self._around.me().node, len(span)), span=span, skipped=skipped)

    @property
    def _looks_aside(self) -> bool:
        """Whether something may be set aside: also where another release of the program has left it so."""
        return self._has_aside or self._rules.order is Order.KEY

    # Delivering.

    async def _deliver_begun(self, turn: Turn) -> Directive:
        async with self._room(turn):
            return await self._deliver(turn) if self._turn is turn else self._look_afresh()

    async def _deliver(self, turn: Turn) -> Directive:
        self._progress = progress = Progress(len(turn.given))
        self._began = self._around.clock.monotonic()
        if self._handler.mode is Mode.TRANSACTIONAL and progress.given:
            return await self._deliver_in(turn, progress)
        answer = await self._called(self._caller.leased(turn.given, progress)) if progress.given else (None,)
        if answer is None or self._turn is not turn:  # it was dropped meanwhile
            return self._look_afresh()
        return await self._finish(turn, Came(progress.done, progress.rejected, answer[0]))

    async def _finish(self, turn: Turn, came: Came, rules: Delivery | None = None) -> Directive:
        draft = self._ended(turn, came, rules)
        event = self._event(draft, turn)
        try:
            following = await self._next(draft)
        except StoreError as error:  # what was handled must not be handled again for that
            log.debug("%s: what comes next could not be read: %r", self.name, error)
            following = None
        if self._turn is not turn:  # it was dropped meanwhile
            return self._look_afresh()
        self._turn, self._progress = None, None
        return await self._write(self._pending_for(draft, following, event))

    async def _deliver_in(self, turn: Turn, progress: Progress) -> Directive:
        """Deliver in a transaction that ends with the step itself."""
        if self._doubtful is not None:
            doubtful, is_committed = self._doubtful, await self._stands(self._doubtful.stride)
            if self._turn is not turn:  # it was dropped meanwhile
                return self._look_afresh()
            self._doubtful = None
            if is_committed:
                return self._written(doubtful)
        try:
            answer = await self._called(self._transaction(turn, progress))
        except (LeaseLost, NodeGone):
            return self._look_afresh()
        except Exception as error:  # such as a constraint that is looked at when it is committed
            is_away = isinstance(error, StoreUnavailable)
            if is_away and (self._doubtful is not None or progress.trouble is None):
                progress.reset()  # once it is back, the same is delivered again, unless it was committed
                raise
            self._doubtful = None
            trouble = progress.trouble or Trouble(storable(f"{type(error).__name__}: {error}", LONGEST_ERROR))
            whole = replace(self._rules, by_message=False)  # everything was undone, and nobody knows who is to blame
            return await self._finish(turn, Came(trouble=trouble), whole)
        if answer is None or self._turn is not turn:
            return self._look_afresh()
        return self._written(answer[0])

    async def _transaction(self, turn: Turn, progress: Progress) -> Pending:
        around, me = self._around, self._around.me()
        store = around.store
        if not isinstance(store, Transactions):
            raise TypeError(f"{type(store).__name__} has no transactions")
        async with store.transaction(limit=self._handler.timeout + MARGIN) as tx:
            trouble = await self._caller.transactional(turn.given, progress, tx)
            draft = self._ended(turn, Came(progress.done, progress.rejected, trouble))
            event = self._event(draft, turn)
            following = await self._next(draft)
            pending = self._pending_for(draft, following, event)
            if not await around.outboxes.stride_in(tx, me.node, me.term, pending.stride):
                raise LeaseLost(self.name, pending.stride.before)  # which rolls everything back
            if self._turn is turn:
                self._doubtful = pending
        return pending

    def _ended(self, turn: Turn, came: Came, rules: Delivery | None = None) -> Draft:
        return ended(turn, came, rules or self._rules, self._around.store.now(), self._roll())

    async def _called(self, work: Coroutine[Any, Any, R]) -> tuple[R] | None:
        """Run the handler in a task of its own, which can be cancelled without us; None if it was."""
        task = asyncio.ensure_future(work)
        self._call = task
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError:
            while not task.done():
                task.cancel()
                try:
                    await asyncio.wait([task])
                except asyncio.CancelledError:
                    continue
            if not task.cancelled():
                task.exception()  # looked at, or asyncio complains of it
            raise
        finally:
            if task.done():
                self._call = None
        return None if task.cancelled() else (task.result(),)

    # Writing.

    async def _write(self, pending: Pending, *, again: bool = False) -> Directive:
        around, me = self._around, self._around.me()
        self._pending = pending
        try:
            (accepted,) = await around.outboxes.stride(me.node, me.term, [pending.stride])
            if not accepted and again:  # it may have been, and only its answer was lost
                accepted = await self._stands(pending.stride)
        except NodeGone:
            accepted = False
        if self._pending is not pending:  # it was dropped meanwhile
            return self._look_afresh()
        self._pending = None
        return self._written(pending) if accepted else self._look_afresh()

    async def _stands(self, stride: Stride) -> bool:
        looked = await self._around.outboxes.look_at_partitions([self._definition.name])
        return any(view.partition == self._partition and view.stand == stride.after for view in looked.partitions)

    def _written(self, pending: Pending) -> Directive:
        self._revision = pending.stride.after.revision
        self._turn, self._doubtful, self._progress = pending.turn, None, None
        self._has_aside = self._has_aside or bool(pending.stride.aside)
        counts = self._definition.counts[self._partition]
        for event in pending.events:
            tell(self._around.events, self._definition.listeners, counts, event)
        if pending.turn is not None:
            return Proceed()
        self._around.look()
        return Idle()

    def _look_afresh(self) -> Directive:
        self._turn = self._pending = self._doubtful = self._progress = None
        self._around.events.count("strides_lost")
        self._around.look()
        return Idle()

    def _pending_for(self, draft: Draft, turn: Turn | None, event: DeliveryEnded | None) -> Pending:
        events = () if event is None else (event,)
        buried = (self._burial(letter) for letter in draft.buried)
        stride = draft.stride(self._definition.name, self._partition)
        return Pending(stride=stride, turn=turn, events=(*events, *buried))

    def _burial(self, letter: NewLetter) -> DeliveryEnded:
        return DeliveryEnded(
            outbox=self._definition.name,
            partition=self._partition,
            node=self._around.me().node,
            first=letter.message.seq,
            given=0,
            acknowledged=0,
            rejected=0,
            verdict=Verdict.DEAD,
            undone=letter.message.seq,
            attempts=letter.attempts,
            error=letter.error,
        )

    def _event(self, draft: Draft, turn: Turn | None) -> DeliveryEnded:
        given = turn.given if turn is not None else []
        first = given[0].message.seq if given else draft.undone or draft.stand.cursor + 1
        return DeliveryEnded(
            outbox=self._definition.name,
            partition=self._partition,
            node=self._around.me().node,
            first=first,
            given=len(given),
            acknowledged=draft.acknowledged,
            rejected=draft.rejected,
            verdict=draft.verdict,
            undone=draft.undone,
            attempts=draft.attempts,
            retry_at=draft.retry_at,
            error=draft.error,
            seconds=self._around.clock.monotonic() - self._began if turn is not None else 0.0,
        )

    # The end.

    def last_stride(self) -> Stride | None:
        """Say what is to be written about a partition that is ours still, when nothing of it runs any more."""
        if self._pending is not None:
            return self._pending.alone
        if self._turn is None:
            return None
        progress = self._progress if self._handler.mode is Mode.LEASED else None
        came = Came() if progress is None else Came(progress.done, progress.rejected)
        return self._ended(self._turn, came).stride(self._definition.name, self._partition)
