"""How the call of a task becomes a job, and gets into the store."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Generic, TypeVar

from mainspring.client.connection import Connection
from mainspring.client.keys import Keys
from mainspring.client.options import Options
from mainspring.core.job import JobId
from mainspring.core.unique import OnConflict, Unique, UniqueKey
from mainspring.duration import duration
from mainspring.errors import DeclarationError
from mainspring.ids import new_id
from mainspring.runtime.call import current_call
from mainspring.runtime.definition import Definition
from mainspring.runtime.own_end import HandlerTransaction
from mainspring.stores.port import Store, Transactions
from mainspring.stores.records import Enqueued, Facts, NewJob, When

R_co = TypeVar("R_co", covariant=True)

CHUNK: Final = 2000
"""Jobs that one call of the store takes in: some milliseconds of writing, which others have to wait for."""


@dataclass(frozen=True, slots=True)
class Call(Generic[R_co]):
    """A job that is to be: its arguments are checked and written. Enqueued twice, it is still one job."""

    definition: Definition
    new: NewJob

    def __repr__(self) -> str:
        return f"<Call of {self.definition.name} as {self.new.id}>"


def new_job(definition: Definition, payload: bytes, options: Options, now: datetime, *, is_new: bool) -> NewJob:
    """Put together what the store is given."""
    return NewJob(
        id=options.id or JobId(new_id(now)),
        task=definition.name,
        payload=payload,
        backoff=definition.retry.backoff,
        max_attempts=definition.retry.limit(options.max_attempts),
        run_at=options.run_at,
        expires=_expires(definition.expires if options.expires is None else options.expires, options.run_at, now),
        queue=options.queue or definition.queue,
        priority=definition.priority if options.priority is None else options.priority,
        loss_limit=definition.loss_limit,
        retention=options.retention or definition.retention,
        timeout=options.timeout,  # the task's own stays with the task, where the next version can change it
        key=options.key or _limit_key(definition, payload),
        unique=_unique_key(definition, payload, options.unique),
        facts=_facts(options),
        is_new=is_new,
    )


def _expires(expires: When | None, run_at: When, now: datetime) -> When | None:
    """A length of time counts from when the job is due: one that is delayed must not expire before its time."""
    if not isinstance(expires, timedelta):
        return expires
    return run_at + expires if isinstance(run_at, timedelta) else max(run_at, now) + expires


def _limit_key(definition: Definition, payload: bytes) -> str | None:
    names = next((limit.keys for limit in definition.limits if limit.keys), None)
    return None if names is None else Keys(definition.arguments).limit(payload, names)


def _unique_key(definition: Definition, payload: bytes, asked: Unique | str | bool | None) -> UniqueKey | None:
    match asked:
        case Unique():
            rule: Unique | None = asked
        case None:
            rule = definition.unique
        case False:
            rule = None
        case _:
            rule = definition.unique or Unique()
    if rule is None:
        return None
    return UniqueKey(
        key=asked if isinstance(asked, str) else Keys(definition.arguments).unique(payload, rule.keys),
        period=None if rule.period is None else duration(rule.period),
        on_conflict=OnConflict(rule.on_conflict),
    )


_NOTHING: Final = Facts()


def _facts(options: Options) -> Facts:
    """What the job is told of where it comes from: a job that a handler enqueues is a child of the handler's."""
    call = current_call.get()
    if call is None and not (options.tags or options.owner or options.traceparent):
        return _NOTHING
    return Facts(
        tags=options.tags,
        parent=call.job if call else None,
        owner=options.owner,
        traceparent=options.traceparent or (call.traceparent if call else None),
    )


async def submit(connection: Connection, new: Sequence[NewJob], tx: object = None) -> list[Enqueued]:
    """Enqueue jobs, a few thousand at a time: each of these batches is there whole or not at all."""
    if tx is not None:
        return await _submit_in(connection, new, tx.inner if isinstance(tx, HandlerTransaction) else tx)
    store = await connection.store()
    answers: list[Enqueued] = []
    for batch in _batches(new):
        answers += await store.enqueue(batch)
    return answers


async def _submit_in(connection: Connection, new: Sequence[NewJob], tx: object) -> list[Enqueued]:
    await connection.expect_tables()
    transactions = _transactions(await connection.store())
    answers: list[Enqueued] = []
    for batch in _batches(new):
        answers += await transactions.enqueue_in(tx, batch)
    return answers


def submit_sync(connection: Connection, new: Sequence[NewJob], tx: object = None) -> list[Enqueued]:
    """Do the same from code that waits. A transaction of the user's is written to in the thread that is in it."""
    if tx is None:
        return connection.wait_for(lambda: submit(connection, new))
    connection.wait_for(connection.expect_tables)
    transactions = _transactions(connection.store_sync())
    answers: list[Enqueued] = []
    for batch in _batches(new):
        answers += transactions.enqueue_in_sync(tx, batch)
    return answers


def _batches(new: Sequence[NewJob]) -> list[Sequence[NewJob]]:
    return [new[start : start + CHUNK] for start in range(0, len(new), CHUNK)]


def _transactions(store: Store) -> Transactions:
    if isinstance(store, Transactions):
        return store
    raise DeclarationError("tx", f"{type(store).__name__} cannot write in a transaction of yours; leave tx out")
