"""The port: what the rest of Mainspring asks of a store, as a few small roles.

The obligations of each verb are its numbered sentences; `mainspring.testing.contract` checks them one by one, under the
same numbers. What holds for all verbs:

G1. A verb is atomic: all of it is committed when it returns, or none of it when it raises.
G2. A verb whose caller gave up (was cancelled) was done whole or not at all; nobody will tell which.
G3. Verbs may be called from several event loops and threads at the same time.
G4. The store's clock gives every instant that a verb writes or compares with; callers never pass their own "now".
G5. Instants are kept to the microsecond and come back aware, in UTC.
G6. Trouble that may pass (locked, unreachable, out of space) raises `StoreUnavailable`, what will not pass another
    `StoreError`; after either the store can be used again.
G7. What comes out equals what went in: payloads, results and saved values are bytes and are never looked into.

Where rows can be changed from outside, a row that cannot be decoded affects no other (`stores.unreadable`): a claim
delivers it with the error, and lists, orphans and settles use its readable columns. The name of its task is an exception:
a waiting job whose task cannot be parsed is not claimed until the name is corrected.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime, timedelta
from typing import Any, Protocol, runtime_checkable
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


class Jobs(Protocol):
    """The way of a job through the store."""

    async def enqueue(self, new: Sequence[NewJob]) -> tuple[Enqueued, ...]:
        """Take in new jobs; one answer for each, in order.

        1. A job that is due by the store's now begins as `ready`, any other as `scheduled`
           (`machine.first_state`); a `timedelta` in `run_at` or `expires` counts from the store's now.
        2. An id that is there already, in whatever state, is not touched: its answer is not `fresh`.
        3. A unique key is taken within its task while its job is active, and until its period has passed. If it is
           taken: RETURN answers with the job that has it; REPLACE cancels that job if it waits, as an operator would,
           and takes the key, else answers as RETURN; RAISE raises `Conflict` for the whole batch. Earlier jobs of the
           same batch count.
        4. A committed job is there for every later verb of every handle on the same state, after a crash too.
        5. `NewJob` bounds every text that a store may index (task, queue, key, unique key). A job with texts of the
           greatest length is enqueued, claimed and settled like any other, under every gate.
        """
        ...

    async def claim(self, request: ClaimRequest) -> Claimed:
        """Give a node jobs to run, each under a new lease.

        1. A claimed job is as `machine.claim` says, committed before it is returned, and held by the node from then on.
        2. Only waiting jobs that are due, of the tasks and queues asked for, from queues that are not paused.
        3. No more than `room + ahead`, and none beyond a queue's own room.
        4. Jobs of one queue and priority go in the order of run_at, then id; higher priorities first, over all queues.
           What a gate or a breaker holds back steps aside for what comes behind it.
        5. A suspect (`Job.is_suspect`) is given only within `suspects`; it steps aside otherwise. A job that a loss would
           end (`Job.is_last_chance`) is given only within `room`: if its turn comes when that is used up, neither it nor
           anything behind it is given.
        6. Gates hold over all nodes together: no more jobs of a scope run, or keep their place, than its concurrency
           says, and no more start than its rate says (`core.limits`). A job without a key passes a KEY gate. A rate that
           was spent while the clock was ahead by more than a minute allows one start as soon as the clock is corrected.
        7. Two claims never give out the same lease, also if one of them is undone (a failover, a restore): it contains the
           number of the request (`core.job.next_lease`). A job is running for one node at a time.
        8. A node that is not alive under this term gets nothing: `NodeGone`.
        9. `next_due` is not later than the instant at which this node could get a job that waits now, as far as time
           alone decides; what waits for a pause, a full gate or another node to end does not count.
        10. Its cost grows with the number of returned jobs, not with the number of waiting jobs, whether these are behind
            the returned jobs or held back in front of them. A store may repeat a bounded scan of held-back jobs from time
            to time.
        11. While the breaker of a task is not closed, no job of it is given out, but for one when `breaker.admit` says
            so: the probe, of which there is one over all nodes. That it is the probe is committed with its claim.
        12. A delivery names the term of its task's breaker.
        """
        ...

    async def settle(self, settlements: Sequence[Settlement]) -> tuple[Settled, ...]:
        """Write changes; one answer for each, in order. One that is not accepted does not hinder the others.

        If another transaction holds a job for long, the end of its attempt is LOCKED after a short wait: nothing is
        written, and it may be settled again. The other ends of the batch do not wait for it.
        A batch may be written in several transactions. If it raises, some of its changes may be committed; settled again, they
        are REPEATED.

        1. A change is written whole while the job fits it (`Change.fit`), else not at all: STALE or REFUSED.
        2. The end of an attempt is REFUSED, too, if its holder writes it and is not alive, or if another node writes it
           and its holder is alive.
        3. The same (job, lease, by) settled before is REPEATED, for as long as no later lease of the job was settled;
           whether the change is the same does not matter.
        4. A job that is not there is REFUSED; so is every change of a job that was deleted.
        5. With the change are written, in the same transaction: the result of a success; for any other end of an
           attempt its row of `attempts`, of which a store keeps the last hundred of each job; the last error;
           the job's places are given up unless it `keeps_place`; a finished job's unique key.
        6. A finished job that becomes active again takes its unique key again; if another has it: CONFLICT, and its `holder`.
        7. Deleting a job takes all of it away: attempts, log lines, places, its unique key.
        8. The end of a schedule's job is written to its run in the same transaction: state, `finished_at`, and of a
           failure the first line of its error, 200 characters at most. An operator's retry opens the run again; a job
           that is deleted before its end leaves it as cancelled. A schedule that `waits` is looked at again: `next_at` and `last_end` become the store's now,
           it waits no longer, its revision grows; one that is paused keeps its `next_at`.
        9. The end of an attempt, if it is accepted, is recorded with the breaker of its task (`breaker.record`) in the
           same transaction, in the order of the settlements; a change of its phase comes with the answer. A success
           without the term that its delivery brought says nothing.
        10. An end of the probe that is no verdict frees its place, whoever writes it.
        11. While a place of a schedule's job is kept, its run `lingers`: it stays open, and nobody is told, until the last
            such place is given up.
        12. A job that waits again is claimed in the order of the `run_at` of the change, even if claims have already
            passed that time: a job that was lost or given back keeps its `run_at`. Claims of the
            same handle keep to this order as soon as the call has returned, claims of other handles within a second. If
            the store is reading past many jobs that the node may not claim, both do so after that read has ended.
        """
        ...

    async def note(self, notes: Sequence[Note]) -> tuple[bool, ...]:
        """Keep what running attempts say; whether each was accepted, in order.

        1. Accepted only for a running job, under its present lease, held by this node, while the node is alive.
        2. Leaves state, lease and revision alone.
        3. Keeps the last thousand log lines of each job.
        """
        ...

    async def release(self, node: NodeId, places: Sequence[Place]) -> None:
        """Give up places that were kept when their attempts were settled.

        1. Only this node's; one that is not taken, or whose attempt still runs, is left as it is.
        2. A run that lingered for the last of them is open no longer, as if its job ended now (`settle` 8).
        """
        ...

    async def declare(self, gates: Sequence[Gate]) -> None:
        """Set the limits of tasks, keys and queues.

        1. The newest declaration of a (scope, name) holds, for jobs that wait already too. One without concurrency and
           rate takes the gate away.
        2. A rate that changes starts afresh; one that stays the same goes on.
        """
        ...

    async def mend(self, limit: int) -> int:
        """Find what a fault has left behind, at most `limit` of it; returns how many were mended.

        1. Places whose attempt has ended and which no live node keeps are given up, as by `release`.
        2. A probe that does not run any more gives its place to another.
        """
        ...

    async def prune(self, limit: int) -> int:
        """Delete what is past its time, at most `limit` of it; returns how many.

        1. Finished jobs whose `keep_until` has passed, with all that belongs to them; nothing else that is a job.
        2. Dead nodes that hold no lease and no place, a day after their death; orders a day after they were given;
           unique keys that are free; locks a day after they expired.
        3. Runs that are not open, when their schedule's `keep_runs` has passed since they were decided.
        """
        ...


class Schedules(Protocol):
    """What is planned. A schedule's steps are decided by `core.steps`, on what a look found."""

    async def due(self, limit: int) -> Looked:
        """Look at the schedules whose `next_at` has come, the longest due first, at most `limit`.

        1. By the store's now, which the answer brings. 2. `next_at` of the answer is the earliest one of those that are
           not among them; it may have passed already.
        3. One that cannot be read here does not hinder the others.
        4. Its cost grows with what it returns, not with the schedules that there are.
        """
        ...

    async def look(self, names: Sequence[Name]) -> Looked:
        """Look at schedules by their names; those that are not there are left out.

        1. Of those that are not there, `former` has each of which runs are kept, with the last slot that has a job.
        """
        ...

    async def move(self, moves: Sequence[Move]) -> tuple[bool, ...]:
        """Write steps of schedules; whether each was accepted, in order. One that is not does not hinder the others.

        1. Accepted while the schedule is at the revision of `before`, or is not there if that is None; then all of it
           is written, the jobs as `Jobs.enqueue` would, else nothing.
        2. Two moves from the same revision are never both accepted, on whatever connections, and a slot of a schedule
           has one job at most: a run with a job for a slot that has one already makes its move not accepted.
        3. A job whose unique key is taken is not made: its run is written without one, for the reason `taken`.
        4. One that is to wait (`waits`) while no run of it is open is to be looked at at once: `next_at` becomes now,
           unless it is paused.
        5. Taking a schedule away leaves its runs and its jobs.
        6. One that cannot be read here (`Unread`) can be taken away all the same.
        """
        ...

    async def list_schedules(
        self, *, owner: str | None = None, limit: int = 100, after: str | None = None
    ) -> SchedulePage:
        """Read a page of schedules, by name, of one owner or of all; `after` is a page's own `after`."""
        ...

    async def runs(self, which: RunFilter, *, limit: int = 100, after: UUID | None = None) -> RunPage:
        """Read a page of runs, newest decision first; `after` is a page's own `after`."""
        ...


class Breakers(Protocol):
    """The circuit breakers of tasks. How they move is decided by `core.breaker`; claims and settlements move them."""

    async def declare_breakers(self, rules: Mapping[Name, Breaker | None]) -> None:
        """Set the rules of tasks.

        1. The newest rule of a task holds, for jobs that wait already too. Where the breaker stands stays as it is.
        2. None takes the breaker away, and what it held back goes on. One that is declared again begins in a new term.
        """
        ...

    async def breakers(self, tasks: Sequence[Name]) -> tuple[BreakerView, ...]:
        """Read the breakers of these tasks, in this order; tasks that have none are left out."""
        ...

    async def list_breakers(self, *, limit: int = 100, after: str | None = None) -> BreakerPage:
        """Read a page of all breakers, by task; `after` is a page's own `after`."""
        ...

    async def force_breaker(
        self, task: Name, phase: Phase, *, term: int | None = None, by: str = "", reason: str = ""
    ) -> PhaseChange | None:
        """Open or close a breaker by an operator's word (`breaker.force`); it stays so until it is reset.

        1. None, and nothing is written, if the task has no breaker, or if it is not in this `term` any more.
        2. None, and nothing is written, if it is forced into that phase already and no other reason is given.
        """
        ...

    async def reset_breaker(
        self, task: Name, *, term: int | None = None, by: str = "", reason: str = ""
    ) -> PhaseChange | None:
        """Close a breaker and let it move by itself again (`breaker.reset`).

        1. None, and nothing is written, if the task has no breaker, or if it is not in this `term` any more.
        """
        ...

    async def breaker_changes(self, task: Name, *, limit: int = 100) -> tuple[PhaseChange, ...]:
        """Read the changes of a breaker's phase, the newest first.

        1. Each is written in the transaction that makes it. 2. The last hundred of each task are kept.
        """
        ...


class Nodes(Protocol):
    """Who is at work, and what they hold. May be called from a thread with a loop of its own (G3)."""

    async def join(self, node: NodeRecord) -> int:
        """Begin to be a node; returns its term.

        1. An id that was ever used raises `NodeGone`: a dead node comes back under a new one.
        """
        ...

    async def renew(self, node: NodeId, term: int, *, whole: bool = False) -> Pulse:
        """Renew the node: it is alive.

        1. Its counter grows by one. 2. Not alive under this term: `NodeGone`, and nothing is written.
        3. Returns leases that it holds, open orders for it, and the nodes that are not dead, whose running jobs need
           not be counted. The leases include those of all claims that this handle has answered.
        4. A lease whose claim was not answered here, or was committed later, is reported 30 s after its commit at the
           latest, at the first renewal that follows a gap of 3 s, and at once if `whole` is set.
        """
        ...

    async def update(self, node: NodeId, term: int, record: NodeRecord) -> None:
        """Replace what the node says about itself: tasks, queues, concurrency.

        1. Not alive under this term: `NodeGone`.
        """
        ...

    async def answer(self, node: NodeId, term: int, order: int, answer: str) -> None:
        """Say that an order has been carried out; it is open no longer.

        1. Not alive under this term: `NodeGone`.
        """
        ...

    async def declare_dead(self, node: NodeId, term: int, counter: int | None = None) -> bool:
        """End a node: from now on everything it writes is refused. A node that leaves does it to itself.

        1. True for exactly one caller; False if it is not alive under this term.
        2. With a `counter`, False if the node has renewed since it stood there.
        """
        ...

    async def orphans(self, limit: int) -> tuple[Claim, ...]:
        """List running jobs whose node is not alive, at most `limit`, those with the fewest losses first."""
        ...

    async def unknown_tasks(self, grace: timedelta) -> tuple[Name, ...]:
        """List tasks of which a job has been due for `grace` and which no live node has known for as long."""
        ...


class Locks(Protocol):
    """Named leases. They save work and serve users; no promise of Mainspring's own rests on them."""

    async def acquire(self, name: str, holder: str, ttl: timedelta) -> Lock | None:
        """Take a lock that is free or expired; None while another has it.

        1. The holder itself gets it again under the same term, and later. 2. Else the term grows, and never falls,
           not even when the lock was resigned. 3. A lock that was granted while the clock was ahead, by more than a
           minute, expires one ttl after the first acquire that finds it; a lock that was resigned then is free.
        """
        ...

    async def extend(self, lock: Lock, ttl: timedelta) -> Lock | None:
        """Keep a lock for longer, from now on; None if it is not held under this exact term any more.

        1. One that has expired and that nobody else has taken is still held.
        """
        ...

    async def resign(self, lock: Lock) -> bool:
        """Give a lock up; False if it is not held under this exact term."""
        ...


class Operator(Protocol):
    """What a person may do beside changing jobs, which goes through `settle`."""

    async def pause(self, queue: str, *, by: str = "", reason: str = "") -> bool:
        """Let nothing more be claimed from a queue; False if it was paused already."""
        ...

    async def resume(self, queue: str) -> bool:
        """Let a queue go on; False if it was not paused."""
        ...

    async def order(self, node: NodeId, order: NodeOrder) -> Order:
        """Ask something of a node, which learns of it with its next renewal.

        1. A node that is not alive raises `NodeGone`.
        """
        ...


class Inspector(Protocol):
    """What can be seen. Never waits for a writer."""

    async def get(self, ids: Sequence[JobId], *, preview: int | None = None) -> tuple[JobView | None, ...]:
        """Read jobs; None for each that is not there.

        1. With a `preview`, at most that many bytes of each payload are read, and no saved value and no result;
           `JobView.cut` has the sizes of the missing values.
        """
        ...

    async def list_jobs(self, which: JobFilter, *, limit: int = 100, after: JobId | None = None) -> JobPage:
        """Read a page of jobs, by id, newest first; `after` is a page's own `after`.

        1. It ends when it is full, when there is nothing older, or after some seconds. A page that ran out of time is not
           `in_time`, may have few jobs or none, and has an `after`; all pages together have each matching job once.
        """
        ...

    async def attempts(self, job: JobId) -> tuple[AttemptView, ...]:
        """Read the attempts of a job that did not succeed, by lease."""
        ...

    async def log_lines(self, job: JobId) -> tuple[LogLine, ...]:
        """Read what a job logged, in order."""
        ...

    async def queues(self) -> tuple[QueueView, ...]:
        """Read all queues that have waiting or running jobs or are paused, by name."""
        ...

    async def nodes(self) -> tuple[NodeView, ...]:
        """Read all nodes, the dead ones that are not pruned yet too, by the time they joined."""
        ...

    async def orders(self, node: NodeId) -> tuple[Order, ...]:
        """Read the orders given to a node, by id, done ones too."""
        ...


class Wake(Protocol):
    """Hints that something may have changed. The truth is always in the tables."""

    def watch(self, ring: Callable[[], None]) -> Callable[[], None]:
        """Have `ring` called, in any thread, soon after a commit by anyone by which something became claimable or finished.

        So it is when a schedule is changed, or a lock resigned.

        Returns how to end that. It may be called for other commits too.

        1. Called at least once after the last of any number of such commits, and never before the commit.
        2. Within 5 ms or so where the same process committed, within 100 ms where another process did.
        """
        ...


class Transaction(Protocol):
    """An open transaction on the store's own database, for a handler's writes."""

    async def execute(self, statement: str, parameters: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Run a statement of the handler's own; returns its rows."""
        ...

    async def enqueue(self, new: Sequence[NewJob]) -> tuple[Enqueued, ...]:
        """As `Jobs.enqueue`, in this transaction."""
        ...

    async def settle(self, settlement: Settlement) -> Settled:
        """As `Jobs.settle`, in this transaction."""
        ...


@runtime_checkable
class Transactions(Protocol):
    """Writing together with the user's own writes: both are committed, or neither."""

    def transaction(self, *, limit: timedelta | None = None) -> AbstractAsyncContextManager[Transaction]:
        """Open a transaction: committed at the end of the block, rolled back if that raises.

        1. One that is still open after `limit`, or what the store itself finds long, is rolled back; whoever uses it
           then gets `TransactionTooLong`.
        2. Any other write to the store from inside of the block, or from a task that was started there, takes effect
           without waiting for the end of the transaction, or raises `DeclarationError` at once.
        """
        ...

    def blocks(self, tx: object) -> bool:
        """Say whether a transaction of the user's own is on a driver that blocks: it can be used without awaiting."""
        ...

    async def enqueue_in(self, tx: object, new: Sequence[NewJob]) -> tuple[Enqueued, ...]:
        """As `Jobs.enqueue`, in a transaction of the user's own, on a connection of theirs.

        1. Rolled back means never there. 2. Nobody is woken before the commit, and everybody soon after.
        3. A connection to another database, or one that would commit each statement by itself, raises
           `DeclarationError` before anything is written.
        """
        ...

    def enqueue_in_sync(self, tx: object, new: Sequence[NewJob]) -> tuple[Enqueued, ...]:
        """As `enqueue_in`, for drivers that block."""
        ...

    async def settle_in(self, tx: object, settlement: Settlement) -> Settled:
        """As `Jobs.settle`, in a transaction of the user's own."""
        ...

    def settle_in_sync(self, tx: object, settlement: Settlement) -> Settled:
        """As `settle_in`, for drivers that block."""
        ...


@runtime_checkable
class Upkeep(Protocol):
    """What keeps a store small and quick, now and then. A store need not play it, and no promise rests on it."""

    async def compact(self) -> Compacted:
        """Give back room that nothing needs any more, as far as that can be done beside everybody's work.

        1. No other verb sees a difference, and what is committed meanwhile is kept.
        2. What would hold others up for longer than seconds is left, and the answer says why.
        """
        ...

    async def analyze(self) -> tuple[str, ...]:
        """Look again at how the tables are filled, for whoever plans statements; returns the names of those looked at.

        1. No other verb sees a difference.
        """
        ...

    async def flush(self) -> None:
        """Bring what is committed to where it stays; committed it is without that.

        1. No other verb sees a difference. 2. Where others are in the way for too long: `StoreUnavailable`.
        """
        ...


class Schema(Protocol):
    """The store as a thing that is opened, migrated and closed."""

    @property
    def shares_fate(self) -> bool:
        """Whether an outage of the store hits all nodes alike, as on one machine: then no node has to fear the others."""
        ...

    def now(self) -> datetime:
        """Return the store's clock, as well as it can be known here."""
        ...

    async def open(self) -> None:
        """Make the store ready, its tables included.

        1. Safe in several processes at once. 2. What is no store of ours, or a newer one than this code knows, raises
           `SchemaError` and is left as it was.
        """
        ...

    async def close(self) -> None:
        """Let go of everything. What was called before is done or raises; what is called later raises `StoreClosed`."""
        ...

    async def schema(self) -> SchemaVersion:
        """Say how the tables stand; may be called before `open`, and changes nothing."""
        ...


class Store(Jobs, Schedules, Breakers, Nodes, Locks, Operator, Inspector, Wake, Schema, Protocol):
    """A store that plays every role there is today."""
