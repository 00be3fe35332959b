"""What happened between two looks at the store, in words. The demo looks five times a second and tells the difference."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from mainspring.client.words import length
from mainspring.core.job import JobId, NodeId, State
from mainspring.stores.records import JobView, NodeView

UNTOLD: Final = frozenset({"quick"})  # too many of them to tell one by one


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """The store, as it was at one look."""

    seconds: float
    now: datetime
    jobs: Sequence[JobView]
    """The oldest first."""
    nodes: Sequence[NodeView]

    @property
    def alive(self) -> list[NodeView]:
        return [one for one in self.nodes if one.alive]


@dataclass(frozen=True, slots=True)
class Happening:
    """One line of the tale."""

    seconds: float
    who: str
    what: str


@dataclass(slots=True)
class Watcher:
    """Remembers the last look."""

    _jobs: dict[JobId, JobView] = field(default_factory=dict)
    _nodes: dict[NodeId, bool] = field(default_factory=dict)
    _names: dict[JobId, str] = field(default_factory=dict)
    _counts: dict[str, int] = field(default_factory=dict)

    def look(self, moment: Moment) -> list[Happening]:
        """Tell what is new."""
        told = [(who, what) for one in moment.nodes for who, what in self._node(one)]
        told += [(self._name(view), what) for view in moment.jobs for what in self._job(view, moment.now)]
        return [Happening(moment.seconds, who, what) for who, what in told]

    def _node(self, view: NodeView) -> Iterator[tuple[str, str]]:
        node = view.node.id
        if view.alive and node not in self._nodes:
            yield "node", f"{node} joins"
        elif not view.alive and self._nodes.get(node):
            yield "node", f"{node} is gone"
        self._nodes[node] = view.alive

    def _job(self, view: JobView, now: datetime) -> Iterator[str]:
        before = self._jobs.get(view.job.id)
        self._jobs[view.job.id] = view
        self._name(view)
        if str(view.job.task) not in UNTOLD:
            yield from changes(before, view, now)

    def _name(self, view: JobView) -> str:
        """Number the jobs of a task, if there are several."""
        if view.job.id not in self._names:
            task = str(view.job.task)
            self._counts[task] = self._counts.get(task, 0) + 1
            self._names[view.job.id] = f"{task} {self._counts[task]}"
        return self._names[view.job.id]


def changes(before: JobView | None, view: JobView, now: datetime) -> Iterator[str]:
    """Say what has become of a job since the last look."""
    job = view.job
    if before is None:
        if job.state is State.SCHEDULED:
            yield f"is scheduled, due in {length(job.run_at - now)}"
        return
    if job.losses > before.job.losses:
        yield "is lost with its worker" + ("" if job.state is State.FAILED else ", and goes to another")
    if job.cancel_requested_at and not before.job.cancel_requested_at:
        yield "is asked to stop"
    if job.state is State.RUNNING and job.lease > before.job.lease:
        yield f"starts on {view.node}"
    if (job.state, job.lease) == (before.job.state, before.job.lease):
        return
    match job.state:
        case State.SUCCEEDED:
            yield f"succeeds, try {job.attempt}"
        case State.RETRYING if view.error:
            yield f"fails ({view.error.type}: {view.error.message}), next try in {length(job.run_at - now)}"
        case State.SCHEDULED:
            yield f"snoozes for {length(job.run_at - now)}"
        case State.FAILED:
            yield f"has failed, cause: {job.cause}"
        case State.CANCELLED:
            yield "is cancelled"
        case _:
            return
