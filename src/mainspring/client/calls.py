"""How the call of a task becomes a job, and gets into the store."""

import os
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final, Generic, TypeVar
from uuid import UUID

from msgspec.structs import replace

from mainspring.client.connection import Connection
from mainspring.client.keys import Keys
from mainspring.client.options import Options
from mainspring.core.job import JobId
from mainspring.core.unique import OnConflict, Unique, UniqueKey
from mainspring.duration import duration
from mainspring.errors import DeclarationError
from mainspring.ids import new_id
from mainspring.runtime.call import CallFacts, current_call
from mainspring.runtime.definition import Definition
from mainspring.runtime.own_end import HandlerTransaction
from mainspring.stores.port import Store, Transactions
from mainspring.stores.records import Enqueued, Facts, NewJob, When

R_co = TypeVar("R_co", covariant=True)

CHUNK: Final = 2000
"""Jobs that one call of the store takes in: some milliseconds of writing, which others have to wait for."""

_NOBODY: Final = JobId(UUID(int=0))
_NOTHING: Final = Facts()


class _Process:
    """Tells a process from those that are forked from it, where the same call may be enqueued too."""

    mark = object()

    @classmethod
    def begin(cls) -> None:
        cls.mark = object()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_Process.begin)


class Call(Generic[R_co]):
    """A job that is to be: its arguments are checked and written. Enqueued twice, it is still one job."""

    __slots__ = ("_first", "_new", "definition", "own")

    def __init__(self, definition: Definition, new: NewJob, own: tuple[str, ...] = ()) -> None:
        self.definition: Final = definition
        self.own: Final = own
        """Options that can be those of one job only, by their names."""
        self._new: Final = new
        self._first = _Process.mark if new.is_new else None

    @property
    def queue(self) -> str:
        return self._new.queue

    def hand_over(self) -> NewJob:
        """Return what a store is given. Only the first who asks gets it as new: others may come after it was enqueued."""
        try:
            mark = self._first
            del self._first  # of several threads, one can
        except AttributeError:
            mark = None
        return self._new if mark is _Process.mark else replace(self._new, is_new=False)

    def __reduce__(self) -> tuple[object, ...]:
        """Copy it; neither of the two is new then, for nobody knows which of them comes first."""
        return type(self), (self.definition, replace(self.hand_over(), is_new=False), self.own)

    def __repr__(self) -> str:
        return f"<Call of {self.definition.name} as {self._new.id}>"


class Pattern:
    """The jobs of one task with one set of options: all that they have in common is put together once."""

    def __init__(self, definition: Definition, options: Options) -> None:
        self._definition: Final = definition
        self._options: Final = options
        self._keys: Final = next((limit.keys for limit in definition.limits if limit.keys), None)
        self._rule: Final = _unique_rule(definition, options.unique)
        self._expires: Final = definition.expires if options.expires is None else options.expires
        self._common: Final = NewJob(
            id=options.id or _NOBODY,
            task=definition.name,
            payload=b"",
            backoff=definition.retry.backoff,
            max_attempts=definition.retry.limit(options.max_attempts),
            run_at=options.run_at,
            expires=self._expires,
            queue=options.queue or definition.queue,
            priority=definition.priority if options.priority is None else options.priority,
            loss_limit=definition.loss_limit,
            retention=options.retention or definition.retention,
            timeout=options.timeout,  # the task's own stays with the task, where the next version can change it
            key=options.key,
            facts=_facts(definition, options, None, None),
            is_new=options.id is None,
        )
        self._is_plain: Final = (
            not isinstance(self._expires, timedelta) and self._rule is None and (options.key or self._keys is None)
        )

    def job(self, payload: bytes, now: datetime, traceparent: str | None = None) -> NewJob:
        """Put together what the store is given; `traceparent` says where it comes from, if the options do not."""
        options = self._options
        id_ = options.id or JobId(new_id(now))
        call = current_call.get()
        if self._is_plain and call is None and traceparent is None:
            return replace(self._common, id=id_, payload=payload)
        return replace(
            self._common,
            id=id_,
            payload=payload,
            expires=_expires(self._expires, options.run_at, now),
            key=options.key or self._limit_key(payload),
            unique=self._unique_key(payload),
            facts=_facts(self._definition, options, call, traceparent),
        )

    def _limit_key(self, payload: bytes) -> str | None:
        return None if self._keys is None else Keys(self._definition.arguments).limit(payload, self._keys)

    def _unique_key(self, payload: bytes) -> UniqueKey | None:
        asked, rule = self._options.unique, self._rule
        if rule is None:
            return None
        return UniqueKey(
            key=asked if isinstance(asked, str) else Keys(self._definition.arguments).unique(payload, rule.keys),
            period=None if rule.period is None else duration(rule.period),
            on_conflict=OnConflict(rule.on_conflict),
        )


def _expires(expires: When | None, run_at: When, now: datetime) -> When | None:
    """A length of time counts from when the job is due: one that is delayed must not expire before its time."""
    if not isinstance(expires, timedelta):
        return expires
    return run_at + expires if isinstance(run_at, timedelta) else max(run_at, now) + expires


def _unique_rule(definition: Definition, asked: Unique | str | bool | None) -> Unique | None:
    match asked:
        case Unique():
            return asked
        case None:
            return definition.unique
        case False:
            return None
        case _:
            return definition.unique or Unique()


def _facts(definition: Definition, options: Options, call: CallFacts | None, traceparent: str | None) -> Facts:
    """What the job is told of where it comes from: a job that a handler enqueues is a child of the handler's."""
    given = options.tags or options.owner or options.traceparent or traceparent or definition.redact
    if call is None and not given:
        return _NOTHING
    return Facts(
        tags=options.tags,
        parent=call.job if call else None,
        owner=options.owner,
        traceparent=options.traceparent or traceparent or (call.traceparent if call else None),
        redact=definition.redact,
    )


async def submit(
    connection: Connection, new: Sequence[NewJob], tx: object = None, *, kept: bool = True
) -> list[Enqueued]:
    """Enqueue jobs, a few thousand at a time: each of these batches is there whole or not at all.

    `kept` says that the caller has them still, and may enqueue them again.
    """
    connection.guard.enqueue((job.task, job.queue) for job in new)
    if tx is not None:
        return await _submit_in(connection, new, tx.inner if isinstance(tx, HandlerTransaction) else tx)
    store = await connection.store()
    answers: list[Enqueued] = []
    for batch in _batches(new, kept=kept):
        answers += await store.enqueue(batch)
    return answers


async def _submit_in(connection: Connection, new: Sequence[NewJob], tx: object) -> list[Enqueued]:
    await connection.expect_tables()
    transactions = _transactions(await connection.store())
    answers: list[Enqueued] = []
    for batch in _batches(new):
        answers += await transactions.enqueue_in(tx, batch)
    return answers


def submit_sync(
    connection: Connection, new: Sequence[NewJob], tx: object = None, *, kept: bool = True
) -> list[Enqueued]:
    """Do the same from code that waits. A transaction of the user's is written to in the thread that is in it."""
    connection.guard.enqueue((job.task, job.queue) for job in new)
    if tx is None:
        return connection.wait_for(lambda: submit(connection, new, kept=kept))
    connection.wait_for(connection.expect_tables)
    transactions = _transactions(connection.store_sync())
    answers: list[Enqueued] = []
    for batch in _batches(new):
        answers += transactions.enqueue_in_sync(tx, batch)
    return answers


def _batches(new: Sequence[NewJob], *, kept: bool = False) -> list[Sequence[NewJob]]:
    batches = [new[start : start + CHUNK] for start in range(0, len(new), CHUNK)]
    if kept and batches and len(batches[-1]) == 1:
        # A store may take in a single new job by a statement that cannot be called back, other than in a transaction. If
        # whoever waits for it is cancelled and enqueues the same call again, which is over before the first is read, it
        # would run twice.
        batches[-1] = [replace(batches[-1][0], is_new=False)]
    return batches


def _transactions(store: Store) -> Transactions:
    if isinstance(store, Transactions):
        return store
    raise DeclarationError("tx", f"{type(store).__name__} cannot write in a transaction of yours; leave tx out")
