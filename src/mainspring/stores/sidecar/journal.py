"""The tables of a memory store that remember how they were, so that what could not be written has never been.

Between two documents, the first change of a thing keeps it as it was. `keep` forgets that, `undo` puts it back. What
belongs to the process alone, and is in no document, is not undone: nodes, their orders, locks.
"""

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime
from typing import TypeAlias
from uuid import UUID

from mainspring.core.breaker import PhaseChange
from mainspring.core.job import Job, JobId, NodeId, State
from mainspring.core.names import Name
from mainspring.core.schedule import Run
from mainspring.stores.circuits import Kept as Circuit
from mainspring.stores.circuits import Step
from mainspring.stores.memory.circuits import Circuits
from mainspring.stores.memory.gates import Accounts, Taken, taken_by
from mainspring.stores.memory.plans import Kept, Plans, Runs
from mainspring.stores.memory.tables import Node, Row, Tables
from mainspring.stores.memory.uniques import Hold, UniqueName, Uniques
from mainspring.stores.records import JobView, NodeRecord, Pause, Process
from mainspring.stores.schedules import End

KeptRun: TypeAlias = tuple[Run, datetime]
"""A run, and until when it is kept."""


class RememberedRuns(Runs):
    """Runs; all changes of one go through `drop`."""

    def __init__(self) -> None:
        super().__init__()
        self.were: dict[UUID, KeptRun | None] = {}

    def drop(self, id_: UUID) -> None:
        if id_ not in self.were:
            self.were[id_] = self.found(id_)
        super().drop(id_)

    def found(self, id_: UUID) -> KeptRun | None:
        run = self.by_id.get(id_)
        return (run, self._keep_until[id_]) if run else None

    def undo(self) -> None:
        for id_, was in list(self.were.items()):
            self.drop(id_)
            if was:
                self.put(*was)
        self.were.clear()


class RememberedPlans(Plans):
    """Schedules; all changes of one go through `remove`. Also how often in a row the runs of each have failed."""

    def __init__(self) -> None:
        super().__init__()
        self.runs: RememberedRuns = RememberedRuns()
        self.failures: dict[str, int] = {}
        self.were: dict[str, tuple[Kept | None, int]] = {}

    def remove(self, name: str) -> None:
        self._remember(name)
        super().remove(name)

    def ended(self, id_: UUID, end: End, now: datetime, *, lingers: bool) -> None:
        run = self.runs.by_id.get(id_)
        name = str(run.schedule) if run else ""
        if name in self.kept and end.state in {State.SUCCEEDED, State.FAILED}:
            self._remember(name)
            self.failures[name] = self.failures.get(name, 0) + 1 if end.state is State.FAILED else 0
        super().ended(id_, end, now, lingers=lingers)

    def forget_removed(self) -> None:
        """Let the failures of a schedule go with it: one that is added again begins anew."""
        for name in self.were:
            if name not in self.kept:
                self.failures.pop(name, None)

    def undo(self) -> None:
        for name, (kept, failures) in list(self.were.items()):
            self.remove(name)
            self.failures.pop(name, None)
            if kept:
                self.put(kept)
            if failures:
                self.failures[name] = failures
        self.were.clear()
        self.runs.undo()

    def _remember(self, name: str) -> None:
        if name not in self.were:
            kept = self.kept.get(name)  # which is changed in place
            self.were[name] = (replace(kept) if kept else None, self.failures.get(name, 0))


class RememberedUniques(Uniques):
    """Unique keys."""

    def __init__(self) -> None:
        super().__init__()
        self.were: dict[UniqueName, Hold | None] = {}

    def take(self, view: JobView) -> None:
        self._remember(view)
        super().take(view)

    def finish(self, view: JobView, now: datetime) -> None:
        self._remember(view)
        super().finish(view, now)

    def _free(self, name: UniqueName) -> None:
        self._remember_name(name)
        super()._free(name)

    def period(self, name: UniqueName) -> Hold | None:
        """Return what a finished job still has of a key."""
        hold = self._holds.get(name)
        return hold if hold and not hold.active else None

    def put(self, name: Name, key: str, hold: Hold | None) -> None:
        """Have a key held as it is said."""
        unique = name, key
        self._ending.drop(unique)
        self._holds.pop(unique, None)
        if hold:
            self._holds[unique] = hold
            if not hold.active and hold.taken_until:
                self._ending.put(unique, (hold.taken_until, hold.job.int))

    def undo(self) -> None:
        for (task, key), was in self.were.items():
            self.put(task, key, was)
        self.were.clear()

    def _remember(self, view: JobView) -> None:
        if view.unique:
            self._remember_name((view.job.task, view.unique.key))

    def _remember_name(self, name: UniqueName) -> None:
        if name not in self.were:
            hold = self._holds.get(name)
            self.were[name] = replace(hold) if hold else None


class RememberedCircuits(Circuits):
    """Breakers; all changes of one go through `put` and `free`."""

    def __init__(self) -> None:
        super().__init__()
        self.were: dict[Name, tuple[Circuit | None, list[PhaseChange]]] = {}

    def put(self, step: Step) -> PhaseChange | None:
        self._remember(step.kept.task)
        return super().put(step)

    def free(self, task: Name) -> None:
        self._remember(task)
        super().free(task)

    def undo(self) -> None:
        for task, (kept, changes) in self.were.items():
            self._kept.pop(task, None)
            self._changes.pop(task, None)
            if kept:
                self.restore(kept, changes)
        self.were.clear()

    def restore(self, kept: Circuit, changes: list[PhaseChange]) -> None:
        self._kept[kept.task] = kept
        if changes:
            self._changes[kept.task] = changes

    def _remember(self, task: Name) -> None:
        if task not in self.were:
            self.were[task] = (self.get(task), self.changes(task))  # neither is ever changed in place


class Journal(Tables):
    """All of it."""

    def __init__(self) -> None:
        super().__init__()
        self.circuits: RememberedCircuits = RememberedCircuits()
        self.plans: RememberedPlans = RememberedPlans()
        self.uniques: RememberedUniques = RememberedUniques()
        self.rows_were: dict[JobId, Row | None] = {}
        self._places: list[tuple[bool, Taken]] = []  # whether it was taken, or given up
        self._accounts: Accounts | None = None
        self._paused: dict[str, Pause] = {}

    @property
    def is_touched(self) -> bool:
        """Whether something may have changed that is in the document, or has to be undone with what is."""
        remembered = (self.rows_were, self.plans.were, self.plans.runs.were, self.uniques.were, self._places)
        return any(remembered) or bool(self.circuits.were) or self.paused != self._paused

    def keep(self) -> None:
        """Let what has changed be so."""
        self._forget()

    def undo(self) -> None:
        """Let nothing have changed since the last time that something was kept."""
        self.plans.undo()
        self.uniques.undo()
        self.circuits.undo()
        for was_taken, taken in reversed(self._places):
            if was_taken:
                self.gates.leave(taken)
            else:
                self.gates.hold(taken)
        if self._accounts is not None:
            self.gates.set_accounts(self._accounts)
        for id_, was in self.rows_were.items():
            if row := self.rows.pop(id_, None):
                self._unshelve(row.view)
            if was:
                self.rows[id_] = was
                self._shelve(was.view)
        for _, taken in self._places:
            self._reconsider(taken)
        self.paused = dict(self._paused)
        self._forget()

    def _forget(self) -> None:
        for were in (self.rows_were, self.plans.were, self.plans.runs.were, self.uniques.were, self.circuits.were):
            were.clear()
        self._places.clear()
        self._accounts = None
        self._paused = dict(self.paused)

    def remember(self, jobs: Iterable[JobId]) -> None:
        """Keep rows as they are, before something changes more of them than `write` sees."""
        for id_ in jobs:
            if id_ not in self.rows_were:
                row = self.rows.get(id_)
                self.rows_were[id_] = replace(row, lines=list(row.lines)) if row else None

    # What changes tables, as the memory store does it.

    def insert(self, view: JobView) -> None:
        self.remember([view.job.id])
        super().insert(view)

    def write(self, row: Row, view: JobView, now: datetime) -> None:
        self.remember([row.job.id])
        super().write(row, view, now)

    def delete(self, row: Row, now: datetime) -> None:
        self.remember([row.job.id])
        super().delete(row, now)

    def take_place(self, job: Job, key: str | None, node: NodeId, now: datetime) -> None:
        if self._accounts is None:
            self._accounts = self.gates.accounts()
        self._places.append((True, taken_by(job, key, node)))
        super().take_place(job, key, node, now)

    def give_up(self, taken: Taken, now: datetime) -> None:
        self._places.append((False, taken))
        super().give_up(taken, now)

    # What a document brings.

    def restore(self, view: JobView, now: datetime) -> None:
        """Make a job again as it was. One that ran when its process ended is an orphan, with its place still taken."""
        if view.job.state is State.RUNNING and view.node is not None:
            if view.node not in self.nodes:
                self.nodes[view.node] = _dead(view.node, now)
                self.used_ids.add(view.node)
            self.gates.hold(taken_by(view.job, view.key, view.node))
        self.insert(view)


def _dead(node: NodeId, now: datetime) -> Node:
    """Stand for a node of which nothing is known but that its process has ended."""
    record = NodeRecord(id=node, process=Process(host="", pid=0, started=""), tasks=frozenset())
    return Node(record=record, joined_at=now, renewed_at=now, died_at=now)
