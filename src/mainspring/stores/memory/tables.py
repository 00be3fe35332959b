"""All that a memory store keeps, and the few ways in which it changes.

A row is found by its job's id, and also where its state puts it: in a lane while it waits, with its node while it runs,
in the order of retention once it has finished. `write` is the only way to change a job, so that these always agree.
"""

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import ClassVar, NamedTuple

from mainspring.core.job import FINISHED, WAITING, Job, JobId, NodeId, State
from mainspring.core.names import Name
from mainspring.errors import NodeGone
from mainspring.stores.memory.circuits import Circuits
from mainspring.stores.memory.gates import Gates, Taken, taken_by
from mainspring.stores.memory.lanes import Lanes
from mainspring.stores.memory.logs import Logs
from mainspring.stores.memory.plans import Plans
from mainspring.stores.memory.turns import Turns
from mainspring.stores.memory.uniques import Uniques
from mainspring.stores.overview import Entry, NodeReport, Tally
from mainspring.stores.records import (
    AttemptView,
    JobView,
    Lock,
    LogLine,
    NodeRecord,
    NodeView,
    Order,
    Pause,
)


@dataclass(slots=True)
class Row:
    """A job with all that belongs to it."""

    view: JobView
    attempts: tuple[AttemptView, ...] = ()
    lines: list[LogLine] = field(default_factory=list)
    settled: tuple[int, NodeId] | None = None
    """The lease whose end was written last, and who wrote it."""

    @property
    def job(self) -> Job:
        return self.view.job


@dataclass(slots=True)
class Node:
    """A node with all that it holds."""

    record: NodeRecord
    joined_at: datetime
    renewed_at: datetime
    counter: int = 0
    died_at: datetime | None = None
    running: set[JobId] = field(default_factory=set)

    term: ClassVar[int] = 1
    """No id is ever used again, so that no node has a second one."""

    @property
    def alive(self) -> bool:
        return self.died_at is None

    def view(self) -> NodeView:
        return NodeView(
            node=self.record,
            term=self.term,
            counter=self.counter,
            alive=self.alive,
            joined_at=self.joined_at,
            renewed_at=self.renewed_at,
            running=len(self.running),
        )


class Grant(NamedTuple):
    """A lock, and when it was last acquired or extended."""

    lock: Lock
    at: datetime


class Tables:
    """The state of a store. It knows neither time nor locks: both are its user's."""

    def __init__(self) -> None:
        self.rows: dict[JobId, Row] = {}
        self.finished: Turns[JobId] = Turns()  # by the time until which they are kept
        self.gates = Gates()
        self.lanes = Lanes(self.gates)
        self.circuits = Circuits()
        self.uniques = Uniques()
        self.plans = Plans()
        self.logs = Logs()
        self.nodes: dict[NodeId, Node] = {}
        self.used_ids: set[NodeId] = set()
        self.last_known: dict[Name, datetime] = {}  # when a task was last known by a node that has forgotten it or died
        self.orders: dict[int, Order] = {}
        self.order_ids = count(1)
        self.paused: dict[str, Pause] = {}
        self.locks: dict[str, Grant] = {}
        self.tallies: dict[tuple[timedelta, datetime, str], Tally] = {}
        self.reports: dict[NodeId, NodeReport] = {}
        self.entries: dict[int, Entry] = {}
        self.entry_ids = count(1)
        self._claimed_at = datetime.min.replace(tzinfo=UTC)
        self.lock_terms = count(1)  # one for all locks: a lock that was pruned must not begin again

    def insert(self, view: JobView) -> None:
        """Take in a job whose id and unique key are free."""
        self.rows[view.job.id] = Row(view)
        self.uniques.take(view)
        self._shelve(view)

    def write(self, row: Row, view: JobView, now: datetime) -> None:
        """Replace what is known of a job, and find it where it belongs from now on."""
        was, is_now = is_active(row.job), is_active(view.job)
        self._unshelve(row.view)
        row.view = view
        self._shelve(view)
        if is_now and not was:
            self.uniques.take(view)
        if was and not is_now:
            self.uniques.finish(view, now)

    def delete(self, row: Row, now: datetime) -> None:
        """Take a job away, but for its unique key."""
        self._unshelve(row.view)
        del self.rows[row.job.id]
        for taken in self.gates.of(row.job.id):
            self.give_up(taken, now)

    def follow_clock(self, now: datetime) -> None:
        """Correct rates, and the strands that wait for them, if the clock was set back since the last claim."""
        if now < self._claimed_at:
            self.gates.correct_accounts(now)
            for lane in self.lanes:
                lane.reconsider_all()
        self._claimed_at = now

    def take_place(self, job: Job, key: str | None, node: NodeId, now: datetime) -> None:
        """Count a job that was claimed."""
        taken = taken_by(job, key, node)
        self.gates.enter(taken, now)
        self._reconsider(taken)

    def give_up(self, taken: Taken, now: datetime) -> None:
        """Let others have a place; a run of a schedule that was open only for it is open no longer."""
        self.gates.leave(taken)
        self._reconsider(taken)
        if not self.gates.of(taken.place.job):
            self.plans.let_go(taken.place.job, now)

    def still_runs(self, taken: Taken) -> bool:
        """Say whether the attempt that took a place still runs."""
        return self.runs(taken.place.job, taken.place.lease)

    def runs(self, job: JobId, lease: int) -> bool:
        """Say whether a job runs under this lease."""
        row = self.rows.get(job)
        return row is not None and row.job.state is State.RUNNING and row.job.lease == lease

    def is_alive(self, node: NodeId) -> bool:
        found = self.nodes.get(node)
        return found is not None and found.alive

    def living(self, node: NodeId, term: int | None = None) -> Node:
        """Return a node that is alive, under this term if one is given, or raise `NodeGone`."""
        found = self.nodes.get(node)
        if found is None or not found.alive or term not in {None, found.term}:
            under = "" if term is None else f" under term {term}"
            raise NodeGone("memory", f"node {node} is not alive{under}")
        return found

    def _shelve(self, view: JobView) -> None:
        job = view.job
        if job.state in WAITING:
            self.lanes.add(job, view.key)
        elif job.state in FINISHED:
            if job.keep_until:
                self.finished.put(job.id, (job.keep_until, job.id.int))
        elif view.node is not None:
            self.nodes[view.node].running.add(job.id)

    def _unshelve(self, view: JobView) -> None:
        job = view.job
        if job.state in WAITING:
            self.lanes.remove(job, view.key)
        elif job.state in FINISHED:
            self.finished.drop(job.id)
        elif view.node is not None:
            self.nodes[view.node].running.discard(job.id)

    def _reconsider(self, taken: Taken) -> None:
        for subject in taken.subjects:
            self.lanes.reconsider(subject)


def is_active(job: Job) -> bool:
    return job.state not in FINISHED
