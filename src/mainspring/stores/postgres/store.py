"""A store in a PostgreSQL database: its verbs, and who carries them out."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Final, TypeVar
from uuid import UUID

from mainspring.clock import Clock, SystemClock
from mainspring.core.breaker import Breaker, Phase, PhaseChange
from mainspring.core.job import WAITING, Claim, JobId, NodeId
from mainspring.core.limits import Gate
from mainspring.core.names import Name
from mainspring.duration import Duration, seconds
from mainspring.errors import DeclarationError, StoreUnavailable
from mainspring.ids import new_id
from mainspring.stores.outbox import (
    Aside,
    Letter,
    LetterFilter,
    LetterPage,
    Message,
    NewMessage,
    OutboxView,
    PartitionsLooked,
    Published,
    Stride,
)
from mainspring.stores.postgres import (
    breakers,
    claim,
    enqueue,
    gates,
    inspect,
    letters,
    locks,
    log,
    migrate,
    moves,
    moving,
    nodes,
    notes,
    operate,
    outboxes,
    partitions,
    prune,
    publish,
    runs,
    schedules,
    settle,
    through,
    upkeep,
)
from mainspring.stores.postgres.connections import Connections
from mainspring.stores.postgres.enqueue import Batch
from mainspring.stores.postgres.head import Head
from mainspring.stores.postgres.joined import identity
from mainspring.stores.postgres.lines import LONG_AGO, Lines
from mainspring.stores.postgres.settings import Settings
from mainspring.stores.postgres.skew import Skew
from mainspring.stores.postgres.statements import statement
from mainspring.stores.postgres.transaction import PostgresTransaction, may_conflict, settle_one
from mainspring.stores.postgres.trouble import met_a_lock
from mainspring.stores.postgres.verb import Ask, Verb
from mainspring.stores.postgres.wake import Bells, Hint
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

T = TypeVar("T")

SYSTEM_CLOCK: Final = SystemClock()
_INSTANT: Final = statement("instant")
LONG: Final = timedelta(minutes=1)
"""For a handler's transaction: it keeps a connection, and old rows from being cleared away."""
_IN_TIME: Final = 0.8
"""The share of a timeout within which a statement has to reach the server: the clocks are known to less than the rest."""
_BETWEEN_USERS: Final = 0.002
"""Seconds between two transactions of users that tell of themselves: each makes all others wait that do, for its commit."""
_MIGRATION: Final = 300.0
"""Seconds that one statement of a migration may take."""
_UNDER_WAY: Final = 3
"""Timeouts: no statement is under way for so long, so a claim that is committed later has begun since."""
_NUMBERING: Final = 60.0
"""Seconds that giving numbers may take: a transaction may bring in millions of messages at once."""
_ROUNDS: Final = 100
"""How often a claim goes on that only parked blocked jobs; each time a thousand of each lane."""


class PostgresStore:
    """Jobs in a schema of a PostgreSQL database, for any number of machines.

    `dsn` is read as libpq reads it, several hosts included. `connections` is how many each event loop may open, and
    again for handlers' transactions, beside the one that listens; `timeout` after which a statement that has no answer
    is given up, and its connection with it; `patience` for how long a verb is tried again on fresh connections before
    it raises. A `clock` that is not the system's gives all instants, for tests; else the database does.
    """

    def __init__(
        self,
        dsn: str,
        *,
        clock: Clock = SYSTEM_CLOCK,
        schema: str = "mainspring",
        connections: int = 5,
        timeout: Duration = "5s",
        patience: Duration = "10s",
        listen: bool = True,
        listen_dsn: str | None = None,
    ) -> None:
        self._settings = Settings(
            dsn=dsn,
            clock=clock,
            schema=schema,
            own_time=not isinstance(clock, SystemClock),
            connections=connections,
            timeout=seconds(timeout),
            patience=seconds(patience),
            listen=listen,
            listen_dsn=listen_dsn,
        )
        self._identity = UUID(int=0)
        self._lines = Lines()
        self._head = Head()
        self._marks = log.Marks()
        self._known: dict[NodeId, nodes.Known] = {}
        self._skew = Skew(self._settings)
        self._connections = Connections(self._settings)
        self._bells = Bells(self._settings, on_hint=self._hinted, skew=self._skew)
        self._lines.hears = self._bells.hears
        self._lines.now = self.now

    # Jobs

    async def enqueue(self, new: Sequence[NewJob]) -> tuple[Enqueued, ...]:
        self._connections.must_be_open()
        if len(new) == 1 and new[0].is_new and await self._enqueue_new(new[0]):
            return (Enqueued(id=new[0].id, fresh=True),)
        if not new:
            return ()
        batch = Batch(new)
        answers = await self._run(lambda: enqueue.enqueue(self._at, batch), whole=True)
        self._committed(self._since(new))  # also if all were there: an earlier try may have been cut off before it told
        return answers

    async def _enqueue_new(self, job: NewJob) -> bool:
        """Enqueue a job that cannot be there already, by one statement; False: it was cut off, or its key is contested."""
        least = self._since([job])
        hint = None if job.unique else self._bells.hint(least)
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
            self._committed(least)
        elif added:
            self._bells.told(least)
        return added

    async def claim(self, request: ClaimRequest) -> Claimed:
        claimed, again = await self._claim(request)
        for _ in range(_ROUNDS):
            if not again:
                break
            claimed, again = await self._claim(request)
        return claimed

    async def _claim(self, request: ClaimRequest) -> tuple[Claimed, bool]:
        """Claim once; says also whether to go on at once, because there were only blocked jobs in sight."""
        lines = self._lines
        grabbed = await self._run(lambda: claim.grab(self._at, request, lines)) if lines.expects else None
        if grabbed is not None:
            return grabbed, False
        held: Sequence[Gate] = through.gates_asked(lines, request) if lines.gated else ()
        tried: Sequence[Name] = through.probes_asked(lines, request) if held else ()
        if not held:
            claimed, held, tried = await self._run(lambda: claim.claim(self._at, request, lines))
            if claimed is not None:
                return claimed, False
        answer = await self._run(lambda: through.claim_through_gates(self._at, request, lines, held, tried), whole=True)
        lines.counted(held)
        return answer

    async def settle(self, settlements: Sequence[Settlement]) -> tuple[Settled, ...]:
        self._connections.must_be_open()
        if not settlements:
            return ()
        answers = await self._settle(settlements)
        written = [
            one.change.after for place, one in enumerate(settlements) if answers[place].verdict is Verdict.ACCEPTED
        ]
        if written:
            waiting = [after.run_at for after in written if after is not None and after.state in WAITING]
            self._committed(min(waiting, default=None))
        return tuple(answers[place] for place in range(len(settlements)))

    async def _settle(self, settlements: Sequence[Settlement]) -> Mapping[int, Settled]:
        """Write changes: the plain successes apart from the rest, unless some of them change a breaker."""
        with_terms = [one for one in settlements if one.term is not None]
        if with_terms and not await self._run(lambda: breakers.are_quiet(self._at, with_terms)):
            return dict(enumerate(await self._run(lambda: settle.settle_together(self._at, settlements), whole=True)))
        answers = dict(await self._succeed(settlements))
        left = [place for place in range(len(settlements)) if place not in answers]
        if left:
            rest = [settlements[place] for place in left]
            answers |= zip(left, await self._run(lambda: settle.settle(self._at, rest), whole=True), strict=True)
        return answers

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
        mended = await self._run(lambda: gates.mend(self._at, limit), whole=True)
        mended += await self._run(lambda: breakers.mend(limit - mended), whole=True)
        if mended:
            self._opened_up()
        return mended

    async def prune(self, limit: int) -> int:
        return await prune.prune(self._connections, self._at, limit)

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
        moved = await self._run(lambda: moves.move(self._at, call, patience), whole=True)
        done = [step for step in steps if step.place in moved.accepted]
        jobs = [job for step in done for job in step.jobs]
        self._head.pull(min((step.after.next_at for step in done if step.after and step.after.next_at), default=None))
        if done:  # other nodes' tickers want to know, also where there is nothing to claim
            self._committed(self._since(jobs) if jobs else None)
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

    # Outboxes

    async def register_outbox(self, name: str, partitions: int) -> None:
        await self._run(lambda: publish.register(self._at, name, partitions), whole=True)

    async def publish(self, new: Sequence[NewMessage]) -> tuple[Published, ...]:
        """As the port says. It is not tried again where it may have been committed: a message has no id of its own."""
        self._connections.must_be_open()
        if not new:
            return ()
        answers = None
        if publish.is_simple(new):
            answers = await self._connections.run(lambda: publish.publish_at_once(self._at, new), again=False)
        if answers is None:
            answers = await self._connections.run(lambda: publish.publish(self._at, new), whole=True, again=False)
        if any(answer.fresh for answer in answers):
            self._committed(None)
        return answers

    async def publish_in(self, tx: object, new: Sequence[NewMessage]) -> tuple[Published, ...]:
        """As the port says; a handler's own `transaction` is taken too."""
        if isinstance(tx, PostgresTransaction):
            return await self._own(tx).publish(new)
        self._connections.must_be_open()
        verb = publish.publish(self._at, new)
        return await users.run_in(tx, verb, self._settings, self._identity, hint=self._published)

    def publish_in_sync(self, tx: object, new: Sequence[NewMessage]) -> tuple[Published, ...]:
        self._connections.must_be_open()
        verb = publish.publish(self._at, new)
        return users.run_in_sync(tx, verb, self._settings, self._identity, hint=self._published)

    @property
    def _published(self) -> Hint | None:
        return self._bells.hint(None, pause=_BETWEEN_USERS)

    async def look_at_partitions(self, outboxes_: Sequence[str]) -> PartitionsLooked:
        looked = await self._run(lambda: outboxes.look(self._at, outboxes_))
        last: dict[int, int] = {}
        if looked.fresh:
            last = await self._connections.run(lambda: outboxes.number(looked), whole=True, timeout=_NUMBERING)
        if last:  # whoever found somebody else at it waits for this
            self._committed(None)
        if len(last) < len(looked.fresh):  # others were quicker: they may be done, and all of it as they have left it
            looked, last = await self._run(lambda: outboxes.look(self._at, outboxes_)), {}
        return outboxes.numbered(looked, last, self.now())

    async def read_messages(self, outbox: str, partition: int, after: int, limit: int) -> tuple[Message, ...]:
        return await self._run(lambda: outboxes.read(outbox, partition, after, limit))

    async def read_aside(self, outbox: str, partition: int, limit: int) -> tuple[Aside, ...]:
        return await self._run(lambda: outboxes.read_aside(self._at, outbox, partition, limit))

    async def read_keys_aside(self, outbox: str, partition: int, keys: Sequence[str]) -> frozenset[str]:
        self._connections.must_be_open()
        return await self._run(lambda: outboxes.read_keys_aside(outbox, partition, keys)) if keys else frozenset()

    async def stride(self, node: NodeId, term: int, strides: Sequence[Stride]) -> tuple[bool, ...]:
        self._connections.must_be_open()
        if not strides:
            return ()
        call = outboxes.Call(new_id(self.now()), node, term, strides, waits=True)
        try:
            accepted = await self._stride(call)
        except StoreUnavailable as error:
            if not met_a_lock(error):
                raise
            call.waits = (
                False  # somebody is at one of them who may never come back; the others are not to wait for that
            )
            accepted = await self._stride(call)
        if any(strides[place].after.holder is None for place in accepted):
            self._committed(None)
        return tuple(place in accepted for place in range(len(strides)))

    async def _stride(self, call: outboxes.Call) -> set[int]:
        return await self._run(lambda: outboxes.stride(self._at, call), whole=not call.is_plain)

    async def stride_in(self, tx: object, node: NodeId, term: int, stride: Stride) -> bool:
        """As the port says; a handler's own `transaction` is taken too."""
        call = outboxes.Call(new_id(self.now()), node, term, [stride])
        if isinstance(tx, PostgresTransaction):
            return await self._own(tx).stride(call)
        self._connections.must_be_open()
        verb = outboxes.stride(self._at, call)
        hint = self._published if stride.after.holder is None else None
        return bool(await users.run_in(tx, verb, self._settings, self._identity, hint=hint))

    def stride_in_sync(self, tx: object, node: NodeId, term: int, stride: Stride) -> bool:
        self._connections.must_be_open()
        verb = outboxes.stride(self._at, outboxes.Call(new_id(self.now()), node, term, [stride]))
        hint = self._published if stride.after.holder is None else None
        return bool(users.run_in_sync(tx, verb, self._settings, self._identity, hint=hint))

    async def outboxes(self) -> tuple[OutboxView, ...]:
        return await self._run(outboxes.views)

    async def clear_messages(self, limit: int) -> int:
        self._connections.must_be_open()
        return await log.clear(self._connections, self._at, limit, self._marks)

    async def letters(self, which: LetterFilter, *, limit: int = 100, after: str | None = None) -> LetterPage:
        return await self._run(lambda: letters.page(which, limit, after))

    async def take_letters(self, which: LetterFilter, within: timedelta, limit: int) -> tuple[Letter, ...]:
        return await self._run(lambda: letters.take(self._at, which, within, limit), whole=True, again=False)

    async def resolve_letters(self, letters_: Sequence[tuple[int, int]]) -> int:
        return await self._run(lambda: letters.resolve(self._at, letters_))

    async def return_letters(self, letters_: Sequence[tuple[int, int]], error: str) -> int:
        return await self._run(lambda: letters.give_back(self._at, letters_, error))

    async def discard_letters(self, which: LetterFilter, limit: int) -> int:
        return await self._run(lambda: letters.discard(self._at, which, limit), whole=True, again=False)

    async def replay_letters(self, which: LetterFilter, limit: int) -> int:
        replayed = await self._run(lambda: letters.replay(self._at, which, limit), whole=True, again=False)
        if replayed:
            self._committed(None)
        return replayed

    async def clear_letters(self, older_than: timedelta, limit: int) -> int:
        return await self._run(lambda: letters.clear(self._at, older_than, limit))

    # Nodes

    async def join(self, node: NodeRecord) -> int:
        return await self._run(lambda: nodes.join(self._at, node))

    async def renew(self, node: NodeId, term: int) -> Pulse:
        before = self._settings.clock.now()
        known = self._known.get(node, nodes.Known())
        pulse, instant = await self._run(lambda: nodes.renew(self._at, node, term, known))
        self._skew.sample(before, instant, self._settings.clock.now())
        since = (self._at or instant) - timedelta(seconds=_UNDER_WAY * self._settings.timeout)
        self._known[node] = nodes.Known(tuple(one.job for one in pulse.held), since)
        return pulse

    async def update(self, node: NodeId, term: int, record: NodeRecord) -> None:
        await self._run(lambda: nodes.update(self._at, node, term, record), whole=True)

    async def answer(self, node: NodeId, term: int, order: int, answer: str) -> None:
        await self._run(lambda: nodes.answer(self._at, node, term, order, answer))

    async def declare_dead(self, node: NodeId, term: int, counter: int | None = None) -> bool:
        died = await self._run(lambda: nodes.declare_dead(self._at, node, term, counter), whole=True)
        if died:
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

    async def get(self, ids: Sequence[JobId]) -> tuple[JobView | None, ...]:
        return await self._run(lambda: inspect.get(ids))

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

    # Upkeep

    async def compact(self) -> Compacted:
        self._connections.must_be_open()
        return await upkeep.compact(self._connections, self._at)

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
        if transaction.woke:  # what was due at once when it began may lie behind marks by now
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

    def now(self) -> datetime:
        return self._skew.now()

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

    # How all of this is done

    @property
    def _at(self) -> datetime | None:
        """What to tell the database about the time: nothing, unless a test's clock gives it."""
        return self._settings.clock.now() if self._settings.own_time else None

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

    async def _run(self, verb: Callable[[], Verb[T]], *, whole: bool = False, again: bool = True) -> T:
        return await self._connections.run(verb, whole=whole, again=again)

    def _hinted(self, least: datetime | None) -> None:
        self._lines.pull(least)
        self._head.pull(least)

    def _committed(self, least: datetime | None) -> None:
        """Tell everyone that something may be claimed, due since `least` at the earliest; None: it has only finished."""
        if self._connections.is_open:  # else the thread that tells would be started again, and nobody would end it
            self._bells.committed(least)

    def _since(self, new: Sequence[NewJob]) -> datetime:
        """Since when the first of these is due."""
        now = self.now()
        return min(when if isinstance(when, datetime) else now + when for when in {job.run_at for job in new})

    def _hint(self, least: datetime) -> Hint | None:
        """What to say when a user's own transaction is committed, which may be late: marks will have gone on by then."""
        return self._bells.hint(min(self.now(), least), pause=_BETWEEN_USERS)

    def _own(self, transaction: PostgresTransaction) -> PostgresTransaction:
        if not transaction.is_on(self._settings):
            raise DeclarationError("tx", f"it is a transaction of another store, and not of {self._settings.store}")
        return transaction

    def _opened_up(self) -> None:
        """Tell everyone that what was held back may be claimed, however long it has been due."""
        self._lines.forget_marks()
        self._committed(LONG_AGO)


def instant_there() -> Verb[datetime]:
    """Ask what time it is in the database."""
    ((instant,),) = yield Ask(_INSTANT)
    assert isinstance(instant, datetime)  # noqa: S101 -- it is what the statement asks for
    return instant
