"""Lets a handler write the end of its own job together with its own writes: both are committed, or neither.

The settle comes last and is fenced like any other. If the lease is gone, the whole transaction is rolled back, so that
the effects of a job are there exactly once.
"""

from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

from mainspring.clock import Clock
from mainspring.core.breaker import PhaseChange
from mainspring.core.job import Claim, State
from mainspring.core.machine import Change, decide
from mainspring.core.outcome import Succeeded
from mainspring.duration import Duration, duration
from mainspring.errors import DeclarationError, LeaseLost
from mainspring.runtime.attempt import Attempt
from mainspring.runtime.context import Done
from mainspring.runtime.events import Events, StateChange
from mainspring.stores.port import Store, Transaction, Transactions
from mainspring.stores.records import Settled, Settlement, Verdict


class HandlerTransaction:
    """An open transaction on the store's database, which ends the job when it ends."""

    def __init__(self, inner: Transaction) -> None:
        self.inner: Final = inner
        """The store's own; what a task enqueues with `using(tx=…)` goes there."""
        self.value: object = None

    async def execute(self, statement: str, parameters: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Run a statement; returns its rows."""
        return await self.inner.execute(statement, parameters)

    def finish(self, value: object) -> None:
        """Set the job's result; what the handler returns later does not count."""
        self.value = value


class OwnEnd:
    """What one attempt can do about its own end."""

    def __init__(self, attempt: Attempt, store: Store, events: Events, clock: Clock) -> None:
        self._attempt = attempt
        self._store = store
        self._events = events
        self._clock = clock
        self._change: Change | None = None
        self._of_breaker: PhaseChange | None = None
        self._committed = False
        self._forgotten = False

    @asynccontextmanager
    async def transaction(self, limit: Duration | None) -> AsyncIterator[HandlerTransaction]:
        """Open a transaction whose commit ends the job with success."""
        transactions = self._transactions()
        self._attempt.ends_itself = True
        async with transactions.transaction(limit=None if limit is None else duration(limit)) as tx:
            own = HandlerTransaction(tx)
            yield own
            settlement = self._settlement(own.value)
            settled = await tx.settle(settlement)
            if settled.verdict is Verdict.STALE:  # a cancel came in between, and success outweighs it
                settlement = self._settlement(own.value, settled)
                settled = await tx.settle(settlement)
            self._check(settled)
            self._change = settlement.change
        self._committed = True

    def settle_in(self, tx: object, value: object) -> Awaitable[None]:
        """Write the end into a transaction of the handler's own. It counts once that is committed."""
        transactions = self._transactions()
        self._attempt.ends_itself = True
        if not transactions.blocks(tx):
            self._forgotten = True  # until it is awaited
            return self._settle_in(transactions, tx, value)
        settlement = self._settlement(value)
        settled = transactions.settle_in_sync(tx, settlement)
        if settled.verdict is Verdict.STALE:
            settlement = self._settlement(value, settled)
            settled = transactions.settle_in_sync(tx, settlement)
        self._check(settled)
        self._change = settlement.change
        return Done()

    async def _settle_in(self, transactions: Transactions, tx: object, value: object) -> None:
        self._forgotten = False
        settlement = self._settlement(value)
        settled = await transactions.settle_in(tx, settlement)
        if settled.verdict is Verdict.STALE:
            settlement = self._settlement(value, settled)
            settled = await transactions.settle_in(tx, settlement)
        self._check(settled)
        self._change = settlement.change

    async def confirm(self) -> None:
        """Look whether a transaction has ended the job, when its body has ended; on the node's own loop.

        Raises if one was to end it and was not committed.
        """
        if self._forgotten:
            raise RuntimeError("ctx.settle_in was not awaited; with this driver write `await ctx.settle_in(tx)`")
        if self._change is None:
            return
        if not self._committed:
            await self._look()
        self._attempt.settled = True
        self._tell(self._change)

    async def _look(self) -> None:
        job = self._attempt.delivery.claim.job
        (view,) = await self._store.get([job.id])
        match view and (view.job.state, view.job.lease):
            case (State.SUCCEEDED, job.lease):
                return
            case (State.RUNNING, job.lease):
                raise RuntimeError("the transaction that was to end the job was not committed")
            case _:
                raise LeaseLost(str(job.id), job.lease)

    def _settlement(self, value: object, stale: Settled | None = None) -> Settlement:
        claim = self._attempt.delivery.claim
        if stale is not None and stale.job is not None:
            claim = Claim(job=stale.job, node=claim.node)
        result = None if value is None else self._attempt.definition.result.encode(value)
        change = decide(claim, Succeeded(result), self._store.now(), 0.0)
        seconds = self._clock.monotonic() - self._attempt.began
        return Settlement(change=change, by=claim.node, seconds=seconds, term=self._attempt.delivery.term)

    def _check(self, settled: Settled) -> None:
        # REPEATED is no yes either: this lease was ended before, and not by these writes.
        if settled.verdict is not Verdict.ACCEPTED:
            job = self._attempt.delivery.claim.job
            raise LeaseLost(str(job.id), job.lease)
        self._of_breaker = settled.changed

    def _transactions(self) -> Transactions:
        if isinstance(self._store, Transactions):
            return self._store
        raise DeclarationError("transaction", "this store has no transactions to share; use a SQLite file")

    def _tell(self, change: Change) -> None:
        self._events.count(change.event)
        took = self._clock.monotonic() - self._attempt.began
        if self._events.meter:
            self._events.meter.look()
            self._events.meter.ended(change.before, change.event, began=self._attempt.began, seconds=took, error=None)
        if self._of_breaker is not None:
            self._events.tell_of_breaker(self._of_breaker, change.node)
        if change.after is not None:
            self._events.tell(
                StateChange(
                    job=change.after,
                    event=change.event,
                    source=change.before.state,
                    target=change.after.state,
                    node=change.node,
                    seconds=took,
                )
            )
