"""A store in one SQLite file: its verbs, and who carries them out."""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

from mainspring.core.breaker import Breaker, Phase, PhaseChange
from mainspring.core.job import Claim, JobId, NodeId
from mainspring.core.limits import Gate
from mainspring.core.names import Name
from mainspring.stores.records import (
    AttemptView,
    BreakerPage,
    BreakerView,
    Claimed,
    ClaimRequest,
    Compacted,
    Enqueued,
    JobFilter,
    JobPage,
    JobView,
    Lock,
    LogLine,
    Looked,
    Move,
    NewJob,
    NodeOrder,
    NodeRecord,
    NodeView,
    Note,
    Order,
    Place,
    Pulse,
    QueueView,
    RunFilter,
    RunPage,
    SchedulePage,
    SchemaVersion,
    Settled,
    Settlement,
)
from mainspring.stores.sqlite import breakers, inspect, locks, nodes, opened, operate, runs, schedules, upkeep
from mainspring.stores.sqlite.answers import in_thread
from mainspring.stores.sqlite.enqueue import enqueue
from mainspring.stores.sqlite.gates import declare
from mainspring.stores.sqlite.notes import note
from mainspring.stores.sqlite.outboxed import OutboxVerbs
from mainspring.stores.sqlite.overview import OverviewVerbs
from mainspring.stores.sqlite.places import mend, release
from mainspring.stores.sqlite.prune import prune
from mainspring.stores.sqlite.session import Session
from mainspring.stores.sqlite.settle import settle
from mainspring.stores.sqlite.transaction import SqliteTransaction
from mainspring.stores.write_lock import hold, refuse_inside

LONG: Final = timedelta(seconds=2)
"""For a transaction: nobody else can write while it is open."""


class SqliteStore(OutboxVerbs, OverviewVerbs):
    """Jobs in a SQLite file, for any number of processes of one machine. The file may be the user's own database.

    `durable=False` lets a crash of the machine, not of the process, take the last moments with it, and commits faster.
    `poll` is how often to look for commits that could not ring, such as those of a user's own transaction. `patience`
    is how long a verb waits for a write lock that somebody else holds.
    """

    # Jobs

    async def enqueue(self, new: Sequence[NewJob]) -> tuple[Enqueued, ...]:
        return tuple(await self._file.writer.do(enqueue, new))

    async def claim(self, request: ClaimRequest) -> Claimed:
        return await self._file.writer.claim(request)

    async def settle(self, settlements: Sequence[Settlement]) -> tuple[Settled, ...]:
        return tuple(await self._file.writer.do(settle, settlements))

    async def note(self, notes: Sequence[Note]) -> tuple[bool, ...]:
        return tuple(await self._file.writer.do(note, notes))

    async def release(self, node: NodeId, places: Sequence[Place]) -> None:
        await self._write(release, node, places)

    async def declare(self, gates: Sequence[Gate]) -> None:
        await self._write(declare, gates)

    async def mend(self, limit: int) -> int:
        return await self._write(_mend, limit)

    async def prune(self, limit: int) -> int:
        return await self._write(prune, limit)

    # Schedules

    async def due(self, limit: int) -> Looked:
        return await self._read(schedules.due, limit)

    async def look(self, names: Sequence[Name]) -> Looked:
        return await self._read(schedules.look, names)

    async def move(self, moves: Sequence[Move]) -> tuple[bool, ...]:
        return tuple(await self._file.writer.do(schedules.move, moves))

    async def list_schedules(
        self, *, owner: str | None = None, limit: int = 100, after: str | None = None
    ) -> SchedulePage:
        return await self._read(schedules.list_schedules, owner, limit, after)

    async def runs(self, which: RunFilter, *, limit: int = 100, after: UUID | None = None) -> RunPage:
        return await self._read(runs.list_runs, which, limit, after)

    # Breakers

    async def declare_breakers(self, rules: Mapping[Name, Breaker | None]) -> None:
        await self._write(breakers.declare, rules)

    async def breakers(self, tasks: Sequence[Name]) -> tuple[BreakerView, ...]:
        return await self._read(breakers.views, tasks)

    async def list_breakers(self, *, limit: int = 100, after: str | None = None) -> BreakerPage:
        return await self._read(breakers.page, limit, after)

    async def force_breaker(
        self, task: Name, phase: Phase, *, term: int | None = None, by: str = "", reason: str = ""
    ) -> PhaseChange | None:
        return await self._write(breakers.operate, task, phase, term=term, by=by, reason=reason)

    async def reset_breaker(
        self, task: Name, *, term: int | None = None, by: str = "", reason: str = ""
    ) -> PhaseChange | None:
        return await self._write(breakers.operate, task, None, term=term, by=by, reason=reason)

    async def breaker_changes(self, task: Name, *, limit: int = 100) -> tuple[PhaseChange, ...]:
        return await self._read(breakers.changes, task, limit)

    # Nodes

    async def join(self, node: NodeRecord) -> int:
        return await self._write(nodes.join, node)

    async def renew(self, node: NodeId, term: int, *, whole: bool = False) -> Pulse:  # noqa: ARG002 -- every one is whole
        return await self._file.writer.renew(node, term)

    async def update(self, node: NodeId, term: int, record: NodeRecord) -> None:
        await self._write(nodes.update, node, term, record)

    async def answer(self, node: NodeId, term: int, order: int, answer: str) -> None:
        await self._write(nodes.answer, node, term, order, answer)

    async def declare_dead(self, node: NodeId, term: int, counter: int | None = None) -> bool:
        return await self._write(nodes.declare_dead, node, term, counter)

    async def orphans(self, limit: int) -> tuple[Claim, ...]:
        return await self._read(nodes.orphans, limit)

    async def unknown_tasks(self, grace: timedelta) -> tuple[Name, ...]:
        return await self._read(nodes.unknown_tasks, grace)

    # Locks

    async def acquire(self, name: str, holder: str, ttl: timedelta) -> Lock | None:
        return await self._write(locks.acquire, name, holder, ttl)

    async def extend(self, lock: Lock, ttl: timedelta) -> Lock | None:
        return await self._write(locks.extend, lock, ttl)

    async def resign(self, lock: Lock) -> bool:
        return await self._write(locks.resign, lock)

    # Operator

    async def pause(self, queue: str, *, by: str = "", reason: str = "") -> bool:
        return await self._write(operate.pause, queue, by, reason)

    async def resume(self, queue: str) -> bool:
        return await self._write(operate.resume, queue)

    async def order(self, node: NodeId, order: NodeOrder) -> Order:
        return await self._write(nodes.order, node, order)

    # Inspector

    async def get(self, ids: Sequence[JobId], *, preview: int | None = None) -> tuple[JobView | None, ...]:
        return await self._read(inspect.get, ids, preview)

    async def list_jobs(self, which: JobFilter, *, limit: int = 100, after: JobId | None = None) -> JobPage:
        return await self._search(inspect.list_jobs, which, limit, after)

    async def attempts(self, job: JobId) -> tuple[AttemptView, ...]:
        return await self._read(inspect.attempts, job)

    async def log_lines(self, job: JobId) -> tuple[LogLine, ...]:
        return await self._read(inspect.log_lines, job)

    async def queues(self) -> tuple[QueueView, ...]:
        return await self._read(inspect.queues)

    async def nodes(self) -> tuple[NodeView, ...]:
        return await self._read(nodes.views)

    async def orders(self, node: NodeId) -> tuple[Order, ...]:
        return await self._read(nodes.orders, node)

    # Upkeep

    async def compact(self) -> Compacted:
        self._file  # noqa: B018 - raises if it is closed
        return await in_thread("compacting the SQLite store", lambda: upkeep.compact(self._settings))

    async def analyze(self) -> tuple[str, ...]:
        self._file  # noqa: B018 - as above
        return await in_thread("analyzing the SQLite store", lambda: upkeep.analyze(self._settings))

    async def flush(self) -> None:
        self._file  # noqa: B018 - as above
        await in_thread("flushing the SQLite store", lambda: upkeep.flush(self._settings))

    # Wake

    def watch(self, ring: Callable[[], None]) -> Callable[[], None]:
        return self._file.bells.watch(ring)

    # Transactions

    @asynccontextmanager
    async def transaction(self, *, limit: timedelta | None = None) -> AsyncIterator[SqliteTransaction]:
        file = self._file
        refuse_inside(self._settings.path, self._settings.store)
        transaction = SqliteTransaction(self._settings, limit or LONG, file.lanes, file.bells, file.transactions)
        await transaction.begin()
        try:
            with hold(self._settings.path, transaction):
                yield transaction
        except BaseException:
            await transaction.roll_back()
            raise
        await transaction.commit()

    def blocks(self, tx: object) -> bool:
        """Everything but a handler's own `transaction`: there is no other driver."""
        return not isinstance(tx, SqliteTransaction)

    async def enqueue_in(self, tx: object, new: Sequence[NewJob]) -> tuple[Enqueued, ...]:
        """As the port says; a handler's own `transaction` is taken too."""
        return await self._own(tx).enqueue(new) if isinstance(tx, SqliteTransaction) else self.enqueue_in_sync(tx, new)

    def enqueue_in_sync(self, tx: object, new: Sequence[NewJob]) -> tuple[Enqueued, ...]:
        with self._joined(tx) as session:
            return tuple(enqueue(session, new))

    async def settle_in(self, tx: object, settlement: Settlement) -> Settled:
        if isinstance(tx, SqliteTransaction):
            return await self._own(tx).settle(settlement)
        return self.settle_in_sync(tx, settlement)

    def settle_in_sync(self, tx: object, settlement: Settlement) -> Settled:
        with self._joined(tx) as session:
            return settle(session, [settlement])[0]

    # Schema

    @property
    def shares_fate(self) -> bool:
        return True

    def now(self) -> datetime:
        return self._settings.clock.now()

    async def open(self) -> None:
        """Make the store ready; one that is open stays so."""
        await in_thread("opening the SQLite store", self._open)

    async def close(self) -> None:
        """Let go of the file; it may be opened again."""
        await in_thread("closing the SQLite store", self._close)

    async def schema(self) -> SchemaVersion:
        return await in_thread("looking at the SQLite store", lambda: opened.version(self._settings))


def _mend(session: Session, limit: int) -> int:
    mended = mend(session, limit)
    return mended + breakers.mend(session, limit - mended)
