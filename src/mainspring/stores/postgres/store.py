"""A store in a PostgreSQL database: its verbs, and who carries them out."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from functools import partial
from typing import Final
from uuid import UUID

from msgspec.structs import replace

from mainspring.core.breaker import Breaker, Phase, PhaseChange
from mainspring.core.job import Claim, JobId, NodeId
from mainspring.core.limits import Gate
from mainspring.core.names import Name
from mainspring.errors import NodeGone, StoreUnavailable
from mainspring.ids import new_id
from mainspring.stores import records
from mainspring.stores.held import Held
from mainspring.stores.postgres import (
    breakers,
    claim,
    enqueue,
    gates,
    inspect,
    locks,
    migrate,
    moves,
    moving,
    nodes,
    notes,
    operate,
    partitions,
    prune,
    runs,
    schedules,
    settle,
    through,
    upkeep,
)
from mainspring.stores.postgres.connections import Connections
from mainspring.stores.postgres.enqueue import Batch
from mainspring.stores.postgres.held import held
from mainspring.stores.postgres.holdings import Holdings
from mainspring.stores.postgres.joined import identity
from mainspring.stores.postgres.outboxed import OutboxVerbs
from mainspring.stores.postgres.overviewed import OverviewVerbs
from mainspring.stores.postgres.settle import Write
from mainspring.stores.postgres.statements import statement
from mainspring.stores.postgres.transaction import PostgresTransaction, may_conflict, settle_one
from mainspring.stores.postgres.trouble import met_a_lock
from mainspring.stores.postgres.verb import Ask, Verb
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
    Verdict,
)
from mainspring.stores.transactions import postgres as users

_INSTANT: Final = statement("instant")
LONG: Final = timedelta(minutes=1)
"""For a handler's transaction: it keeps a connection, and old rows from being cleared away."""
_IN_TIME: Final = 0.8
"""The share of a timeout within which a statement has to reach the server: the clocks are known to less than the rest."""
_MIGRATION: Final = 3600.0
"""Seconds that one statement of a migration may take: an index that takes longer would be begun anew at each start."""
_LOCK_WAIT_S: Final = 0.1
"""Seconds for which the end of an attempt waits for its job, if another transaction holds it."""
_ROUNDS: Final = 100
"""Upper bound of the repetitions of a claim that found only blocked jobs, and parked them: up to ten thousand of each line
and priority each time."""


class PostgresStore(OutboxVerbs, OverviewVerbs):
    """Jobs in a schema of a PostgreSQL database, for any number of machines.

    `dsn` is read as libpq reads it, several hosts included. `connections` is how many each event loop may open, and
    again for handlers' transactions, beside the one that listens; `timeout` after which a statement that has no answer
    is given up, and its connection with it; `patience` for how long a verb is tried again on fresh connections before
    it raises; `notify=False` leaves NOTIFY out of users' transactions, which can be prepared for a two-phase commit then,
    and whose jobs are found within a second. A `clock` that is not the system's gives all instants, for tests; else the database does.
    """

    # Jobs

    async def enqueue(self, new: Sequence[NewJob]) -> tuple[Enqueued, ...]:
        self._connections.must_be_open()
        if not new:
            return ()
        due_times = self._due_times(new)
        if len(new) == 1 and new[0].is_new and await self._enqueue_new(new[0], due_times):
            return (Enqueued(id=new[0].id, fresh=True),)
        batch = Batch(new)
        answers = await self._run(lambda: enqueue.enqueue(self._at, batch), whole=True)
        self._enqueued(
            new, due_times
        )  # also if all jobs existed: an earlier attempt may have been cut off before its announcement
        return answers

    async def _enqueue_new(self, job: NewJob, due_times: AbstractSet[datetime]) -> bool:
        """Enqueue a job that cannot be there already, by one statement; False: it was cut off, or its key is contested."""
        hint = None if job.unique else self._bells.hint(due_times, jobs=1, other_change=False)
        # One that a frozen server reads when it has been given up must not go in any more: it may be over by then.
        until = None if self._settings.own_time else self.now() + timedelta(seconds=_IN_TIME * self._settings.timeout)
        try:
            if job.unique:
                added = await self._connections.run(lambda: enqueue.enqueue_new_unique(self._at, job), again=False)
            else:
                added = await self._connections.run(
                    lambda: enqueue.enqueue_new(self._at, job, hint, until), again=False
                )
        except StoreUnavailable:
            return False  # it may be there: from here on it is not new
        if added and hint is None:
            self._enqueued([job], due_times)
        elif added and hint:
            self._bells.told(hint)
        return added

    async def claim(self, request: ClaimRequest) -> Claimed:
        holdings = self._holdings.setdefault(request.node, Holdings())
        try:
            claimed, again = await self._claim(request, holdings)
            for _ in range(_ROUNDS):
                if not again:
                    break
                claimed, again = await self._claim(request, holdings)
        except NodeGone:
            self._holdings.pop(request.node, None)
            raise
        except BaseException:
            holdings.doubt()
            self._claim_cache.positions.forget()
            raise
        holdings.add(delivery.claim.job.id for delivery in claimed.deliveries)
        return claimed

    async def _claim(self, request: ClaimRequest, holdings: Holdings) -> tuple[Claimed, bool]:
        """Claim once; returns also whether to go on at once, because all jobs that were read were blocked."""
        cache = self._claim_cache
        # After a rollback, jobs are in front of the positions that were recorded in the transaction.
        forget = cache.positions.forget
        grab = holdings.tried(lambda: claim.grab(self._at, request, cache), forget)
        grabbed = await self._run(grab) if cache.expects else None
        if grabbed is not None:
            return grabbed, False
        held: Sequence[Gate] = through.gates_asked(cache, request) if cache.gated else ()
        tried: Sequence[Name] = through.probes_asked(cache, request) if held else ()
        if not held:
            plain = holdings.tried(lambda: claim.claim(self._at, request, cache), forget)
            claimed, held, tried = await self._run(plain)
            if claimed is not None:
                return claimed, False
        gated = holdings.tried(lambda: through.claim_through_gates(self._at, request, cache, held, tried), forget)
        result = await self._run(gated, whole=True)
        cache.counted(result.counted)
        if result.unparked is not None:
            cache.positions.pull(result.unparked)
        return result.claimed, result.again

    async def settle(self, settlements: Sequence[Settlement]) -> tuple[Settled, ...]:
        self._connections.must_be_open()
        if not settlements:
            return ()
        answers = await self._settle(settlements)
        written = [one for place, one in enumerate(settlements) if answers[place].verdict is Verdict.ACCEPTED]
        self._settled_changes(written)
        return tuple(answers[place] for place in range(len(settlements)))

    async def _settle(self, settlements: Sequence[Settlement]) -> Mapping[int, Settled]:
        """Write changes: the plain successes apart from the rest, unless some of them change a breaker."""
        with_terms = [one for one in settlements if one.term is not None]
        if with_terms and not await self._run(lambda: breakers.are_quiet(self._at, with_terms)):
            return await self._write(settlements, settle.settle_together)
        answers = dict(await self._succeed(settlements))
        left = [place for place in range(len(settlements)) if place not in answers]
        if left:
            rest = [settlements[place] for place in left]
            written = await self._write(rest, settle.settle)
            answers |= {left[place]: answer for place, answer in written.items()}
        return answers

    async def _write(self, settlements: Sequence[Settlement], write: Write) -> dict[int, Settled]:
        """Write changes in a transaction. A job that another transaction holds does not delay the ends of other attempts."""
        if any(one.change.node is None for one in settlements):
            return dict(enumerate(await self._run(lambda: write(self._at, settlements), whole=True)))
        answers = await self._run(lambda: settle.settle_free(self._at, settlements, write), whole=True)
        parts = [[place for place in range(len(settlements)) if place not in answers]]
        patience, until = _LOCK_WAIT_S, time.monotonic() + 2 * _LOCK_WAIT_S
        while parts:
            part = parts.pop()
            rest = [settlements[place] for place in part]
            verb = partial(settle.settle_briefly, self._at, rest, write, patience)
            try:
                if time.monotonic() < until and part:
                    answers |= zip(part, await self._run(verb, whole=True), strict=True)
            except StoreUnavailable as error:
                if not met_a_lock(error):
                    raise
                middle = len(part) // 2
                parts += [half for half in (part[:middle], part[middle:]) if len(part) > 1]
            patience = 0.0
        return dict.fromkeys(range(len(settlements)), settle.LOCKED) | answers

    async def _succeed(self, settlements: Sequence[Settlement]) -> dict[int, Settled]:
        """Write the plain successes among them; what was not written is left to the long way."""
        plain = settle.successes(settlements)
        if plain is None:
            return {}
        by, places = plain
        done = await self._run(lambda: settle.succeed(by, [settlements[place] for place in places]))
        return {place: settle.ACCEPTED for place in places if settlements[place].change.before.id in done}

    async def note(self, notes_: Sequence[Note]) -> tuple[bool, ...]:
        self._connections.must_be_open()
        return await self._run(lambda: notes.note(notes_), whole=True) if notes_ else ()

    async def release(self, node: NodeId, places: Sequence[Place]) -> None:
        self._connections.must_be_open()
        released = await self._run(lambda: gates.release(self._at, node, places), whole=True) if places else False
        if released:
            self._opened_up()

    async def declare(self, gates_: Sequence[Gate]) -> None:
        if await self._run(lambda: gates.declare(gates_), whole=True):
            self._opened_up()

    async def mend(self, limit: int) -> int:
        after = self._woken_until
        mended, self._woken_until = await self._run(lambda: gates.mend(self._at, limit, after), whole=True)
        mended += await self._run(lambda: breakers.mend(limit - mended), whole=True)
        if mended:
            self._opened_up()
        return mended

    async def prune(self, limit: int) -> int:
        return await prune.prune(self._connections, self._at, limit, self._pace)

    # Schedules

    async def due(self, limit: int) -> Looked:
        due = await self._run(lambda: schedules.due(self._at, limit, self._head))
        if due.is_untold and await self._run(lambda: runs.tell_kept(self._at), whole=True):
            self._head.pull(due.looked.now)
            due = await self._run(lambda: schedules.due(self._at, limit, self._head))
        return schedules.soon(due.looked) if due.is_untold else due.looked

    async def look(self, names: Sequence[Name]) -> Looked:
        return await self._run(lambda: schedules.look(self._at, names))

    async def move(self, moves_: Sequence[Move]) -> tuple[bool, ...]:
        self._connections.must_be_open()
        steps = [moves.Step.of(place, move) for place, move in enumerate(moves_)]
        accepted = await moving.carry_out(steps, self._move)
        return tuple(step.place in accepted for step in steps)

    async def _move(self, steps: Sequence[moves.Step], patience: float | None) -> moves.Moved:
        call = moves.Call(new_id(self.now()), steps)
        due_times = self._due_times([job for step in steps for job in step.jobs])
        moved = await self._run(lambda: moves.move(self._at, call, patience), whole=True)
        done = [step for step in steps if step.place in moved.accepted]
        self._head.pull(min((step.after.next_at for step in done if step.after and step.after.next_at), default=None))
        if done:  # other nodes' tickers want to know, also where there is nothing to claim
            self._committed(min(due_times) if any(step.jobs for step in done) else None)
        return moved

    async def list_schedules(
        self, *, owner: str | None = None, limit: int = 100, after: str | None = None
    ) -> SchedulePage:
        return await self._run(lambda: schedules.page(self._at, owner, limit, after))

    async def runs(self, which: RunFilter, *, limit: int = 100, after: UUID | None = None) -> RunPage:
        return await self._run(lambda: runs.page(which, limit, after))

    # Breakers

    async def declare_breakers(self, rules: Mapping[Name, Breaker | None]) -> None:
        self._connections.must_be_open()
        if not rules:
            return
        if await self._run(lambda: breakers.declare(self._at, rules), whole=True):
            self._opened_up()

    async def breakers(self, tasks: Sequence[Name]) -> tuple[BreakerView, ...]:
        return await self._run(lambda: breakers.views(self._at, tasks))

    async def list_breakers(self, *, limit: int = 100, after: str | None = None) -> BreakerPage:
        return await self._run(lambda: breakers.page(self._at, self.now(), limit, after))

    async def force_breaker(
        self, task: Name, phase: Phase, *, term: int | None = None, by: str = "", reason: str = ""
    ) -> PhaseChange | None:
        return await self._operate(task, phase, term=term, by=by, reason=reason)

    async def reset_breaker(
        self, task: Name, *, term: int | None = None, by: str = "", reason: str = ""
    ) -> PhaseChange | None:
        return await self._operate(task, None, term=term, by=by, reason=reason)

    async def _operate(
        self, task: Name, phase: Phase | None, *, term: int | None, by: str, reason: str
    ) -> PhaseChange | None:
        change = await self._run(
            lambda: breakers.operate(self._at, task, phase, term=term, by=by, reason=reason), whole=True
        )
        if change is not None:
            self._opened_up()
        return change

    async def breaker_changes(self, task: Name, *, limit: int = 100) -> tuple[PhaseChange, ...]:
        return await self._run(lambda: breakers.changes(task, limit))

    # Nodes

    async def join(self, node: NodeRecord) -> int:
        return await self._run(lambda: nodes.join(self._at, node))

    async def renew(self, node: NodeId, term: int, *, whole: bool = False) -> Pulse:
        clock = self._settings.clock
        holdings = self._holdings.setdefault(node, Holdings())
        number, jobs, is_look_due = holdings.begin_renewal(clock.monotonic())
        before = clock.now()
        try:
            records_ = self._records
            pulse, instant, self._records = await self._run(lambda: nodes.renew(self._at, node, term, jobs, records_))
        except NodeGone:
            self._holdings.pop(node, None)
            raise
        self._skew.sample(before, instant, clock.now())
        if whole or is_look_due:
            pulse = replace(pulse, held=await self._all_held(node, holdings, pulse.held, must=whole))
        holdings.end_renewal(number, [one.job for one in pulse.held])
        return pulse

    async def _all_held(
        self, node: NodeId, holdings: Holdings, known: tuple[records.Held, ...], *, must: bool
    ) -> tuple[records.Held, ...]:
        """Read all leases of a node; some may have ended since the renewal. With `must`, raise if that fails."""
        clock = self._settings.clock
        began = clock.monotonic()
        holdings.begin_look()
        try:
            found = await self._run(lambda: nodes.all_held(node), again=False)
        except BaseException as error:
            holdings.fail_look(clock.monotonic())
            if must or not isinstance(error, StoreUnavailable):
                raise
            return known  # the renewal itself went through
        holdings.end_look(clock.monotonic(), clock.monotonic() - began)
        by_job = {one.job: one for one in (*known, *found)}
        return tuple(by_job[job] for job in sorted(by_job))

    async def update(self, node: NodeId, term: int, record: NodeRecord) -> None:
        await self._run(lambda: nodes.update(self._at, node, term, record), whole=True)

    async def answer(self, node: NodeId, term: int, order: int, answer: str) -> None:
        await self._run(lambda: nodes.answer(self._at, node, term, order, answer))

    async def declare_dead(self, node: NodeId, term: int, counter: int | None = None) -> bool:
        died = await self._run(lambda: nodes.declare_dead(self._at, node, term, counter), whole=True)
        if died:
            self._holdings.pop(node, None)
            self._committed(None)
        return died

    async def orphans(self, limit: int) -> tuple[Claim, ...]:
        return await self._run(lambda: nodes.orphans(limit))

    async def unknown_tasks(self, grace: timedelta) -> tuple[Name, ...]:
        return await self._run(lambda: nodes.unknown_tasks(self._at, grace))

    # Locks

    async def acquire(self, name: str, holder: str, ttl: timedelta) -> Lock | None:
        return await self._run(lambda: locks.acquire(self._at, name, holder, ttl))

    async def extend(self, lock: Lock, ttl: timedelta) -> Lock | None:
        return await self._run(lambda: locks.extend(self._at, lock, ttl))

    async def resign(self, lock: Lock) -> bool:
        resigned = await self._run(lambda: locks.resign(self._at, lock))
        if resigned:
            self._committed(None)
        return resigned

    # Operator

    async def pause(self, queue: str, *, by: str = "", reason: str = "") -> bool:
        return await self._run(lambda: operate.pause(self._at, queue, by, reason))

    async def resume(self, queue: str) -> bool:
        resumed = await self._run(lambda: operate.resume(queue))
        if resumed:
            self._opened_up()
        return resumed

    async def order(self, node: NodeId, order: NodeOrder) -> Order:
        return await self._run(lambda: nodes.order(self._at, node, order))

    # Inspector

    async def get(self, ids: Sequence[JobId], *, preview: int | None = None) -> tuple[JobView | None, ...]:
        return await self._run(lambda: inspect.get(ids, preview))

    async def list_jobs(self, which: JobFilter, *, limit: int = 100, after: JobId | None = None) -> JobPage:
        return await self._run(lambda: inspect.list_jobs(which, limit, after))

    async def attempts(self, job: JobId) -> tuple[AttemptView, ...]:
        return await self._run(lambda: inspect.attempts(job))

    async def log_lines(self, job: JobId) -> tuple[LogLine, ...]:
        return await self._run(lambda: inspect.log_lines(job))

    async def queues(self) -> tuple[QueueView, ...]:
        return await self._run(inspect.queues)

    async def nodes(self) -> tuple[NodeView, ...]:
        return await self._run(nodes.views)

    async def orders(self, node: NodeId) -> tuple[Order, ...]:
        return await self._run(lambda: nodes.orders(node))

    async def held(self, longer: timedelta) -> tuple[Held, ...]:
        found, _ = await self._run(lambda: held(longer.total_seconds()))
        return tuple(found)

    # Upkeep

    async def compact(self) -> Compacted:
        self._connections.must_be_open()
        return await upkeep.compact(self._connections, self._at, self._pace)

    async def analyze(self) -> tuple[str, ...]:
        return await self._connections.run(upkeep.analyze, whole=True, timeout=upkeep.LONG)

    async def flush(self) -> None:
        """Do nothing: the server does it, and a committed transaction is on its disk."""
        self._connections.must_be_open()

    # Wake

    def watch(self, ring: Callable[[], None]) -> Callable[[], None]:
        self._connections.must_be_open()
        return self._bells.watch(ring)

    # Transactions

    @asynccontextmanager
    async def transaction(self, *, limit: timedelta | None = None) -> AsyncIterator[PostgresTransaction]:
        began = self.now()
        async with PostgresTransaction.begun(self._connections, limit or LONG, self._settings, self._at) as transaction:
            yield transaction
        if transaction.woke:  # what was due at once when it began may be in front of positions by now
            self._committed(began if transaction.least is None else min(began, transaction.least))

    def blocks(self, tx: object) -> bool:
        return not isinstance(tx, PostgresTransaction) and users.blocks(tx)

    async def enqueue_in(self, tx: object, new: Sequence[NewJob]) -> tuple[Enqueued, ...]:
        """As the port says; a handler's own `transaction` is taken too."""
        if isinstance(tx, PostgresTransaction):
            return await self._own(tx).enqueue(new)
        self._connections.must_be_open()
        verb = enqueue.enqueue(self._at, Batch(new, once=True))
        hint = self._hint(self._since(new))
        return await users.run_in(tx, verb, self._settings, self._identity, whole=may_conflict(new), hint=hint)

    def enqueue_in_sync(self, tx: object, new: Sequence[NewJob]) -> tuple[Enqueued, ...]:
        self._connections.must_be_open()
        verb = enqueue.enqueue(self._at, Batch(new, once=True))
        hint = self._hint(self._since(new))
        return users.run_in_sync(tx, verb, self._settings, self._identity, whole=may_conflict(new), hint=hint)

    async def settle_in(self, tx: object, settlement: Settlement) -> Settled:
        if isinstance(tx, PostgresTransaction):
            return await self._own(tx).settle(settlement)
        self._connections.must_be_open()
        verb = settle_one(self._at, settlement)
        return await users.run_in(tx, verb, self._settings, self._identity, hint=self._hint(self.now()))

    def settle_in_sync(self, tx: object, settlement: Settlement) -> Settled:
        self._connections.must_be_open()
        verb = settle_one(self._at, settlement)
        return users.run_in_sync(tx, verb, self._settings, self._identity, hint=self._hint(self.now()))

    # Schema

    @property
    def shares_fate(self) -> bool:
        return False

    async def open(self) -> None:
        """Make the store ready; one that is open stays so."""
        await self._connections.open()
        try:
            await self._migrate()
            self._identity = await self._run(identity)
            await self._measure_skew()
        except BaseException:
            await asyncio.shield(self._connections.close())
            raise

    async def close(self) -> None:
        """Let go of the database; it may be opened again."""
        await self._connections.close()  # first: a verb that ends meanwhile still has something to tell
        await self._bells.close()

    async def schema(self) -> SchemaVersion:
        connections = Connections(self._settings)
        await connections.open()
        try:
            tables = await connections.run(lambda: migrate.found(self._settings.schema))
        finally:
            await connections.close()
        return SchemaVersion(found=tables.version, wanted=migrate.WANTED)

    async def _migrate(self) -> None:
        settings = self._settings
        days = 0 if settings.own_time else partitions.AHEAD  # a test's clock is in another time
        while await self._connections.run(
            lambda: migrate.migrate(settings.store, settings.schema, days=days), whole=True, timeout=_MIGRATION
        ):
            pass

    async def _measure_skew(self) -> None:
        before = self._settings.clock.now()
        instant = await self._run(instant_there)
        self._skew.sample(before, instant, self._settings.clock.now())


def instant_there() -> Verb[datetime]:
    """Ask what time it is in the database."""
    ((instant,),) = yield Ask(_INSTANT)
    assert isinstance(instant, datetime)  # noqa: S101 -- it is what the statement asks for
    return instant
