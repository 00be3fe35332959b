"""A store in one JSON file: its verbs.

Schedules and the jobs that they have open are in the file, everything else is in memory: nodes, locks, what jobs log and
return. Each verb is that of a memory store, done by `Commit`, which brings to the disk what it changed before it answers.
"""

import os
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from importlib.metadata import PackageNotFoundError, version
from itertools import count
from pathlib import Path
from typing import Final, TypeVar
from uuid import UUID

from mainspring.clock import Clock, SystemClock
from mainspring.core.breaker import Breaker, Phase, PhaseChange
from mainspring.core.job import Claim, JobId, NodeId
from mainspring.core.limits import Gate
from mainspring.core.names import Name
from mainspring.core.schedule import Origin
from mainspring.errors import StoreClosed
from mainspring.stores.adopting import Tasks
from mainspring.stores.memory.guard import Shared
from mainspring.stores.memory.store import MemoryStore
from mainspring.stores.records import (
    AttemptView,
    BreakerPage,
    BreakerView,
    Claimed,
    ClaimRequest,
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
from mainspring.stores.sidecar import form
from mainspring.stores.sidecar.adoption import Adoption, Unread
from mainspring.stores.sidecar.bells import Bells
from mainspring.stores.sidecar.commit import Commit, Kind, aside, finished
from mainspring.stores.sidecar.document import Document
from mainspring.stores.sidecar.file import DocumentFile, Files, SystemFiles
from mainspring.stores.sidecar.form import Standing
from mainspring.stores.sidecar.journal import Journal
from mainspring.stores.sidecar.lock import FileLock
from mainspring.stores.sidecar.nojobs import NoTransactions, keeps_no_jobs
from mainspring.stores.sidecar.trouble import on_opening

T = TypeVar("T")

_SYSTEM_CLOCK: Final = SystemClock()
_SYSTEM_FILES: Final = SystemFiles()
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MOMENT: Final = timedelta(microseconds=1)


class SidecarStore(NoTransactions):
    """Schedules in `<folder>/_system/background_jobs.json`, for one process at a time, which has no database.

    It plays every role that a node needs, but keeps no jobs that no schedule has made.
    """

    def __init__(self, folder: Path | str, *, clock: Clock = _SYSTEM_CLOCK, files: Files = _SYSTEM_FILES) -> None:
        self._clock = clock
        self._file = DocumentFile(Path(folder).absolute(), files)
        self._bells = Bells()
        self._tasks: Tasks | None = None
        self._opening = threading.Lock()
        self._opened: _Opened | None = None
        _ALL.add(self)

    def after_fork(self) -> None:
        """Close the store in a forked child: the writing thread and the lock belong to the parent."""
        self._opening = threading.Lock()
        self._bells = Bells()
        self._opened = None

    @property
    def path(self) -> Path:
        """The file, by its full name."""
        return self._file.path

    # What is in it that another program has left.

    def adopt_for(self, tasks: Tasks) -> None:
        """Take over uni's rows for these tasks, the next time that schedules are looked at."""
        self._tasks = tasks

    async def unread(self) -> tuple[Unread, ...]:
        """List what is kept in the document and does nothing, with the reason."""
        opened = self._open
        return await self._read(lambda: opened.adoption.unread(self._tasks, self.now()))

    async def standing(self) -> Standing:
        """Say what is in the place of the document; that may be asked while another process has it."""
        return await aside(self._standing)

    async def take_over(self) -> None:
        """Have the document written in our own form, whatever it is in. Of another one, all that is there is kept."""
        await self._adopt()
        document = self._open.document
        await self._write(lambda _: document.begin())

    async def failures(self, schedule: Name) -> int:
        """Say how often in a row the runs of a schedule have failed, up to now."""
        plans = self._open.tables.plans
        return await self._read(lambda: plans.failures.get(str(schedule), 0))

    # Jobs

    async def enqueue(self, new: Sequence[NewJob]) -> tuple[Enqueued, ...]:  # noqa: ARG002 -- the port's
        _ = self._open
        raise keeps_no_jobs(self.path)

    async def claim(self, request: ClaimRequest) -> Claimed:
        return await self._write(lambda inner: finished(inner.claim(request)))

    async def settle(self, settlements: Sequence[Settlement]) -> tuple[Settled, ...]:
        tables = self._open.tables

        def verb(inner: MemoryStore) -> tuple[Settled, ...]:
            tables.remember(one.change.before.id for one in settlements)
            return finished(inner.settle(settlements))

        return await self._write(verb)

    async def note(self, notes: Sequence[Note]) -> tuple[bool, ...]:
        tables = self._open.tables
        lasting = [note.job for note in notes if note.saved is not None]

        def verb(inner: MemoryStore) -> tuple[bool, ...]:
            if lasting:  # lines and progress are of the process alone, and cost no write
                tables.remember(note.job for note in notes)
            return finished(inner.note(notes))

        return await self._do(verb, Kind.LASTING if lasting else Kind.PASSING)

    async def release(self, node: NodeId, places: Sequence[Place]) -> None:
        await self._write(lambda inner: finished(inner.release(node, places)))

    async def declare(self, gates: Sequence[Gate]) -> None:
        await self._do(lambda inner: finished(inner.declare(gates)), Kind.PASSING)

    async def mend(self, limit: int) -> int:
        return await self._write(lambda inner: finished(inner.mend(limit)))

    async def prune(self, limit: int) -> int:
        return await self._write(lambda inner: finished(inner.prune(limit)))

    # Schedules

    async def due(self, limit: int) -> Looked:
        await self._adopt()
        return await self._ask(lambda inner: finished(inner.due(limit)))

    async def look(self, names: Sequence[Name]) -> Looked:
        await self._adopt()
        return await self._ask(lambda inner: finished(inner.look(names)))

    async def move(self, moves: Sequence[Move]) -> tuple[bool, ...]:
        await self._adopt()
        horizons = self._open.document.known_since

        def verb(inner: MemoryStore) -> tuple[bool, ...]:
            """Refuse to fill slots again whose runs are not known any more, and leave the others to the memory."""
            known = [not _is_beyond(move, horizons) for move in moves]
            answers = iter(finished(inner.move([move for move, may in zip(moves, known, strict=True) if may])))
            return tuple(may and next(answers) for may in known)

        return await self._write(verb)

    async def list_schedules(
        self, *, owner: str | None = None, limit: int = 100, after: str | None = None
    ) -> SchedulePage:
        await self._adopt()
        return await self._ask(lambda inner: finished(inner.list_schedules(owner=owner, limit=limit, after=after)))

    async def runs(self, which: RunFilter, *, limit: int = 100, after: UUID | None = None) -> RunPage:
        return await self._ask(lambda inner: finished(inner.runs(which, limit=limit, after=after)))

    async def _adopt(self) -> None:
        opened, tasks = self._open, self._tasks
        if tasks is None or not opened.adoption.is_due(tasks):
            return
        adopted = await self._write(lambda _: opened.adoption.adopt(tasks, self.now()))
        await self._read(lambda: opened.adoption.tell(tasks, adopted, self.now()))

    # Breakers

    async def declare_breakers(self, rules: Mapping[Name, Breaker | None]) -> None:
        await self._write(lambda inner: finished(inner.declare_breakers(rules)))

    async def breakers(self, tasks: Sequence[Name]) -> tuple[BreakerView, ...]:
        return await self._ask(lambda inner: finished(inner.breakers(tasks)))

    async def list_breakers(self, *, limit: int = 100, after: str | None = None) -> BreakerPage:
        return await self._ask(lambda inner: finished(inner.list_breakers(limit=limit, after=after)))

    async def force_breaker(
        self, task: Name, phase: Phase, *, term: int | None = None, by: str = "", reason: str = ""
    ) -> PhaseChange | None:
        return await self._write(
            lambda inner: finished(inner.force_breaker(task, phase, term=term, by=by, reason=reason))
        )

    async def reset_breaker(
        self, task: Name, *, term: int | None = None, by: str = "", reason: str = ""
    ) -> PhaseChange | None:
        return await self._write(lambda inner: finished(inner.reset_breaker(task, term=term, by=by, reason=reason)))

    async def breaker_changes(self, task: Name, *, limit: int = 100) -> tuple[PhaseChange, ...]:
        return await self._ask(lambda inner: finished(inner.breaker_changes(task, limit=limit)))

    # Nodes

    async def join(self, node: NodeRecord) -> int:
        return await self._do(lambda inner: finished(inner.join(node)), Kind.PASSING)

    async def renew(self, node: NodeId, term: int, *, whole: bool = False) -> Pulse:  # noqa: ARG002 -- every one is whole
        return await self._do(lambda inner: finished(inner.renew(node, term)), Kind.PASSING)

    async def update(self, node: NodeId, term: int, record: NodeRecord) -> None:
        await self._do(lambda inner: finished(inner.update(node, term, record)), Kind.PASSING)

    async def answer(self, node: NodeId, term: int, order: int, answer: str) -> None:
        await self._do(lambda inner: finished(inner.answer(node, term, order, answer)), Kind.PASSING)

    async def declare_dead(self, node: NodeId, term: int, counter: int | None = None) -> bool:
        return await self._do(lambda inner: finished(inner.declare_dead(node, term, counter)), Kind.PASSING)

    async def orphans(self, limit: int) -> tuple[Claim, ...]:
        return await self._ask(lambda inner: finished(inner.orphans(limit)))

    async def unknown_tasks(self, grace: timedelta) -> tuple[Name, ...]:
        return await self._ask(lambda inner: finished(inner.unknown_tasks(grace)))

    # Locks

    async def acquire(self, name: str, holder: str, ttl: timedelta) -> Lock | None:
        return await self._do(lambda inner: finished(inner.acquire(name, holder, ttl)), Kind.PASSING)

    async def extend(self, lock: Lock, ttl: timedelta) -> Lock | None:
        return await self._do(lambda inner: finished(inner.extend(lock, ttl)), Kind.PASSING)

    async def resign(self, lock: Lock) -> bool:
        return await self._do(lambda inner: finished(inner.resign(lock)), Kind.PASSING)

    # Operator

    async def pause(self, queue: str, *, by: str = "", reason: str = "") -> bool:
        return await self._write(lambda inner: finished(inner.pause(queue, by=by, reason=reason)))

    async def resume(self, queue: str) -> bool:
        return await self._write(lambda inner: finished(inner.resume(queue)))

    async def order(self, node: NodeId, order: NodeOrder) -> Order:
        return await self._do(lambda inner: finished(inner.order(node, order)), Kind.PASSING)

    # Inspector

    async def get(self, ids: Sequence[JobId], *, preview: int | None = None) -> tuple[JobView | None, ...]:
        return await self._ask(lambda inner: finished(inner.get(ids, preview=preview)))

    async def list_jobs(self, which: JobFilter, *, limit: int = 100, after: JobId | None = None) -> JobPage:
        return await self._ask(lambda inner: finished(inner.list_jobs(which, limit=limit, after=after)))

    async def attempts(self, job: JobId) -> tuple[AttemptView, ...]:
        return await self._ask(lambda inner: finished(inner.attempts(job)))

    async def log_lines(self, job: JobId) -> tuple[LogLine, ...]:
        return await self._ask(lambda inner: finished(inner.log_lines(job)))

    async def queues(self) -> tuple[QueueView, ...]:
        return await self._ask(lambda inner: finished(inner.queues()))

    async def nodes(self) -> tuple[NodeView, ...]:
        return await self._ask(lambda inner: finished(inner.nodes()))

    async def orders(self, node: NodeId) -> tuple[Order, ...]:
        return await self._ask(lambda inner: finished(inner.orders(node)))

    # Wake and Schema

    def watch(self, ring: Callable[[], None]) -> Callable[[], None]:
        return self._bells.watch(ring)

    @property
    def shares_fate(self) -> bool:
        return True

    def now(self) -> datetime:
        return self._clock.now()

    async def open(self) -> None:
        await aside(self._begin)

    async def close(self) -> None:
        await aside(self._end)

    async def schema(self) -> SchemaVersion:
        if self._opened is not None:
            return SchemaVersion(found=form.VERSION, wanted=form.VERSION)
        return SchemaVersion(found=await aside(self._version), wanted=form.VERSION)

    def _begin(self) -> None:
        with self._opening:
            if self._opened is None:
                self._opened = _open(self._file, self._clock, self._bells)

    def _end(self) -> None:
        with self._opening:
            opened, self._opened = self._opened, None
            if opened is not None:
                opened.commit.stop()
                opened.commit.lock.free()

    def _version(self) -> int:
        return form.version_of(self._file.store, self._peek() or b"")

    def _standing(self) -> Standing:
        data = self._peek()
        return Standing.MISSING if data is None else form.standing_of(self._file.store, data)

    def _peek(self) -> bytes | None:
        try:
            return self._file.peek()
        except OSError as error:
            raise on_opening(self.path, error) from error

    # The way of all verbs.

    @property
    def _open(self) -> "_Opened":
        opened = self._opened
        if opened is None:
            raise StoreClosed(self._file.store, "it is not open; call open() first, and close() last")
        return opened

    async def _do(self, verb: Callable[[MemoryStore], T], kind: Kind) -> T:
        opened = self._open
        return await opened.commit.do(lambda: verb(opened.inner), kind)

    async def _write(self, verb: Callable[[MemoryStore], T]) -> T:
        return await self._do(verb, Kind.LASTING)

    async def _ask(self, verb: Callable[[MemoryStore], T]) -> T:
        return await self._do(verb, Kind.READ)

    async def _read(self, step: Callable[[], T]) -> T:
        return await self._do(lambda _: step(), Kind.READ)


class _Opened:
    """What there is of a store while it is open."""

    def __init__(self, file: DocumentFile, lock: FileLock, clock: Clock, bells: Bells) -> None:
        shared = Shared(clock)
        self.tables: Final = Journal()
        shared.tables = self.tables
        self.inner: Final = MemoryStore(shared=shared)
        self.document: Final = Document(self.tables, f"mainspring {_release()}")
        self.commit: Final = Commit(self.tables, self.document, file, lock, bells.ring)
        self.adoption: Final = Adoption(self.document, self.tables, file.store)
        now = clock.now()
        content = form.read(file.store, file.read())
        try:
            self.document.load(content, now)
        except Exception as error:
            raise form.misfit(file.store, repr(error)) from error
        # Terms of locks never fall, and there is nothing that they could be read from after a restart.
        self.tables.lock_terms = count((now - _EPOCH) // _MOMENT)
        finished(self.inner.open())
        self.inner.watch(self._rang)
        self.commit.start()

    def _rang(self) -> None:
        """Remember to ring; the verb that rings is done by `Commit`, under its guard."""
        self.commit.rang = True


def _open(file: DocumentFile, clock: Clock, bells: Bells) -> _Opened:
    """Take the lock, and read what is there. Nothing that is there is touched."""
    try:
        file.make_folder()
        lock = FileLock(file.path, file.real)
        lock.take()
    except OSError as error:
        raise on_opening(file.path, error) from error
    try:
        file.try_out()
        return _Opened(file, lock, clock, bells)
    except OSError as error:
        lock.free()
        raise on_opening(file.path, error) from error
    except BaseException:
        lock.free()
        raise


def _is_beyond(move: Move, horizons: dict[str, datetime]) -> bool:
    """Say whether a move fills slots of the past of which it is not known any more whether they had a job."""
    return any(
        run.origin is Origin.BACKFILL and run.is_open and run.slot and run.slot <= horizons[str(run.schedule)]
        for run in move.runs
        if str(run.schedule) in horizons
    )


def _release() -> str:
    try:
        return version("mainspring")
    except PackageNotFoundError:
        return "unreleased"


_ALL: Final["weakref.WeakSet[SidecarStore]"] = weakref.WeakSet()


def _after_fork() -> None:
    for store in tuple(_ALL):
        store.after_fork()


os.register_at_fork(after_in_child=_after_fork)
