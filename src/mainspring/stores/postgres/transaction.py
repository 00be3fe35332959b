"""A transaction for a handler, on a connection of the store's that nobody else uses meanwhile.

It is over after its limit (`lease.py`), even if the handler never comes back; whoever uses it then gets
`TransactionTooLong`. If the event loop stands still, the server ends it by itself, about a second later.
"""

import asyncio
import math
import re
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Any, Final, TypeVar

import asyncpg

from mainspring.core.job import WAITING
from mainspring.core.unique import OnConflict
from mainspring.errors import DeclarationError, StoreError, StoreUnavailable, TransactionTooLong
from mainspring.stores.outbox import NewMessage, Published
from mainspring.stores.postgres import outboxes, settle
from mainspring.stores.postgres.connections import Connections
from mainspring.stores.postgres.enqueue import Batch, enqueue, least_run_at
from mainspring.stores.postgres.joined import FAILED, drive_awaited, undoing
from mainspring.stores.postgres.lease import Lease
from mainspring.stores.postgres.publish import publish
from mainspring.stores.postgres.settings import Settings
from mainspring.stores.postgres.statements import in_schema
from mainspring.stores.postgres.trouble import translated
from mainspring.stores.postgres.verb import Ask, Row, Verb
from mainspring.stores.records import Enqueued, NewJob, Settled, Settlement, Verdict

T = TypeVar("T")

_COMMENT: Final = re.compile(r"/\*(?:(?!/\*|\*/).)*\*/|--[^\n]*", re.DOTALL)
"""One that has none in it: PostgreSQL's may."""
_ENDS: Final = re.compile(
    r"[\s;]*(?:BEGIN|START|COMMIT|END|ABORT|PREPARE\s+TRANSACTION|ROLLBACK(?!\s+(?:(?:WORK|TRANSACTION)\s+)?TO\b))\b",
    re.IGNORECASE,
)
_PASSES: Final = re.compile(
    r"[\s;(]*(?:SELECT|INSERT|UPDATE|DELETE|MERGE|WITH|VALUES|TABLE|SAVEPOINT|RELEASE|ROLLBACK|LOCK"
    r"|SET\s+(?:LOCAL|CONSTRAINTS))\b",
    re.IGNORECASE,
)
"""What leaves nothing behind in the session. `SELECT set_config(…, false)` does, and is not found out."""
_USED_UP: Final = -1


class PostgresTransaction:
    """An open transaction. Made by `PostgresStore.transaction`."""

    def __init__(self, lease: Lease, limit: float, settings: Settings, at: datetime | None) -> None:
        self.woke = False
        """Whether something became claimable or finished: to be told after the commit."""
        self.least: datetime | None = None
        """The earliest instant since when something is due that became claimable; None: since about now."""
        self._lease = lease
        self._limit = limit
        self._deadline = settings.clock.monotonic() + limit
        self._settings = settings
        self._at = at
        self._loop = asyncio.get_running_loop()
        self._turn = asyncio.Lock()  # a handler may ask for several things at once, a connection is asked for one
        self._failure: Exception | None = None

    @classmethod
    @asynccontextmanager
    async def begun(
        cls, connections: Connections, limit: timedelta, settings: Settings, at: datetime | None
    ) -> "AsyncIterator[PostgresTransaction]":
        """Open one: committed at the end of the block, rolled back if that raises."""
        seconds = limit.total_seconds()
        async with connections.lease(seconds) as lease:
            transaction = cls(lease, seconds, settings, at)
            yield transaction
            await transaction._finish()

    async def execute(self, statement: str, parameters: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Run a statement of the handler's own, with its values at $1, $2…; what the driver raises is its own affair."""
        words = _without_comments(statement)
        if _ENDS.match(words):
            raise _ended_early()
        if not _PASSES.match(words):
            self._lease.connected.generation = _USED_UP  # the next user would find a temporary table, or another role
        rows = await self._ask(statement, parameters)
        if not self._lease.connected.connection.is_in_transaction():
            raise _ended_early()
        return [tuple(row) for row in rows]

    async def enqueue(self, new: Sequence[NewJob]) -> tuple[Enqueued, ...]:
        verb = enqueue(self._at, Batch(new, once=True))
        answers = await self._do(undoing(verb) if may_conflict(new) else verb)
        if any(answer.fresh for answer in answers):
            self._wake(least_run_at(new))
        return answers

    async def settle(self, settlement: Settlement) -> Settled:
        settled = await self._do(settle_one(self._at, settlement))
        if settled.verdict is Verdict.ACCEPTED:
            after = settlement.change.after
            self._wake(after.run_at if after is not None and after.state in WAITING else None)
        return settled

    async def publish(self, new: Sequence[NewMessage]) -> tuple[Published, ...]:
        answers = await self._do(publish(self._at, new)) if new else ()
        if any(answer.fresh for answer in answers):
            self.woke = True
        return answers

    async def stride(self, call: outboxes.Call) -> bool:
        accepted = bool(await self._do(outboxes.stride(self._at, call)))
        if accepted and call.strides[0].after.holder is None:
            self.woke = True
        return accepted

    def is_on(self, settings: Settings) -> bool:
        """Say whether it is a transaction of that store."""
        return (self._settings.dsn, self._settings.schema) == (settings.dsn, settings.schema)

    async def _finish(self) -> None:
        """Do what comes before the commit: after it nobody can tell any more that it came too late."""
        async with self._turn:  # what the handler has left under way comes first
            self._check_time()
            self._deadline = math.inf

    def _check_time(self) -> None:
        """Look at the clock: the lease's own timer cannot fire while something blocks the event loop."""
        if self._settings.clock.monotonic() >= self._deadline:
            raise TransactionTooLong(self._limit)

    def _wake(self, least: datetime | None) -> None:
        self.woke = True
        if least is not None:
            self.least = least if self.least is None else min(self.least, least)

    async def _do(self, verb: Verb[T]) -> T:
        """Do a verb of ours."""
        try:
            return await drive_awaited(self._run, verb)
        except Exception as error:
            ours = translated(self._settings, error)
            if ours is error:
                raise
            raise ours from error

    async def _run(self, ask: Ask) -> Sequence[Row]:
        return await self._ask(in_schema(ask.statement, self._settings.schema), ask.values)

    async def _ask(self, text: str, values: Iterable[object] = ()) -> Sequence[Row]:
        if asyncio.get_running_loop() is not self._loop:
            raise DeclarationError("tx", "it belongs to another event loop; use it in the coroutine that opened it")
        async with self._turn:
            self._check_time()
            try:
                return await self._lease.fetch(text, *values)
            except asyncpg.InFailedSQLTransactionError:
                raise StoreError(self._settings.store, FAILED) from self._failure
            except asyncpg.PostgresError as error:
                self._failure = error
                raise
            except StoreUnavailable:
                self._check_time()  # then the server has ended it
                raise


def settle_one(at: datetime | None, settlement: Settlement) -> Verb[Settled]:
    """Write one change: a success by one statement, if all is as it was; else by several."""
    (settled,) = yield from settle.settle_together(at, [settlement])
    return settled


def may_conflict(new: Sequence[NewJob]) -> bool:
    """Say whether enqueueing may raise when it has written some of them: then it is to be undone."""
    return any(job.unique is not None and job.unique.on_conflict is OnConflict.RAISE for job in new)


def _ended_early() -> DeclarationError:
    problem = "the transaction begins and ends with its block; leave out BEGIN, COMMIT and ROLLBACK"
    return DeclarationError("statement", problem)


def _without_comments(statement: str) -> str:
    """Blank out comments, the innermost first; what stands in quotes does not matter to those who ask."""
    before = None
    while statement != before:
        before, statement = statement, _COMMENT.sub(" ", statement)
    return statement
