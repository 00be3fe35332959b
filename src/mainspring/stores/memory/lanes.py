"""Where jobs wait, in such an order that a claim finds the next one without looking at the others.

A lane holds the waiting jobs of one queue, task and priority, suspects and last chances apart: whatever holds back
one of them holds back all, but for the limit of their key. So a lane is made of strands, one for each key. A strand is

- *going*: its first job may go as soon as it is due; of these the lane knows the least (run_at, id);
- or *resting*: the rate of its key opens later than its first job is due; of these the lane knows who opens first;
- or neither: its key is full, and nothing need be done until a place is given up.

There are few lanes. There may be very many strands, and very many jobs in one: neither is ever walked by a claim.
"""

from collections.abc import Iterator
from datetime import datetime
from typing import NamedTuple

from mainspring.core.job import Job, JobId
from mainspring.core.limits import Scope
from mainspring.core.names import Name
from mainspring.stores.memory.gates import Gates, Subject
from mainspring.stores.memory.turns import Turn, Turns


class Kind(NamedTuple):
    """What the jobs of a lane have in common."""

    queue: str
    task: Name
    priority: int
    suspect: bool
    """Whether they were lost with their nodes when they last ran."""
    last_chance: bool
    """Whether a loss would end them."""


def kind_of(job: Job) -> Kind:
    return Kind(job.queue, job.task, job.priority, job.is_suspect, job.is_last_chance)


class Lane:
    """The waiting jobs of one kind."""

    def __init__(self, kind: Kind, gates: Gates) -> None:
        task = str(kind.task)
        self.kind = kind
        self.waiting = 0
        self.subjects = (Subject(Scope.QUEUE, kind.queue), Subject(Scope.TASK, task))
        """Who counts all of its jobs alike."""
        self._task = task
        self._gates = gates
        self._strands: dict[str | None, Turns[JobId]] = {}
        self._going: Turns[str | None] = Turns()
        self._resting: Turns[str | None] = Turns()

    def add(self, job: Job, key: str | None) -> None:
        self._strands.setdefault(key, Turns()).put(job.id, (job.run_at, job.id.int))
        self.waiting += 1
        self.reconsider(key)

    def remove(self, job: Job, key: str | None) -> None:
        self._strands[key].drop(job.id)
        self.waiting -= 1
        self.reconsider(key)
        if not self._strands[key]:
            del self._strands[key]

    def reconsider(self, key: str | None) -> None:
        """Put a strand where it belongs, after its first job, or what the gate of its key counts, has changed."""
        turn = self._turn(key)
        if turn is None or (key is not None and self._gates.is_full(self._subject(key))):
            self._going.drop(key)
            self._resting.drop(key)
            return
        opens_at = None if key is None else self._gates.opens_at(self._subject(key))
        if opens_at is None or opens_at <= turn[0]:
            self._resting.drop(key)
            self._going.put(key, turn)
        else:
            self._going.drop(key)
            self._resting.put(key, (opens_at, turn[1]))

    def reconsider_all(self) -> None:
        for key in self._strands:
            self.reconsider(key)

    def first(self, now: datetime) -> tuple[Turn, JobId] | None:
        """Return the first job that its key's gate lets go now, or when it is due if that is later."""
        self._rouse(now)
        while going := self._going.first():
            (run_at, _), key = going
            if run_at > now or key is None or self._gates.lets_in(self._subject(key), now):
                return self._strands[key].first()
            self.reconsider(key)  # its rate had opened, but the clock has been set back since: it rests once more
        return None

    def next_due(self) -> datetime | None:
        """Say when a job of the lane may go, as far as time and its key decide."""
        firsts = (self._going.first(), self._resting.first())
        return min((first[0][0] for first in firsts if first), default=None)

    def oldest(self) -> datetime:
        """Return the least `run_at` of all its jobs, whatever holds them back. Walks the strands."""
        return min(turn[0] for key in self._strands if (turn := self._turn(key)))

    def _rouse(self, now: datetime) -> None:
        """Let those go whose rate has opened: each came to rest by a start, which has paid for this."""
        while (resting := self._resting.first()) and resting[0][0] <= now:
            _, key = resting
            self._resting.drop(key)
            if turn := self._turn(key):
                self._going.put(key, turn)

    def _turn(self, key: str | None) -> Turn | None:
        strand = self._strands.get(key)
        first = strand.first() if strand else None
        return first[0] if first else None

    def _subject(self, key: str) -> Subject:
        return Subject(Scope.KEY, self._task, key)


class Lanes:
    """All lanes that have jobs."""

    def __init__(self, gates: Gates) -> None:
        self._gates = gates
        self._lanes: dict[str, dict[Kind, Lane]] = {}  # by the name of the task, as gates name it

    def __iter__(self) -> Iterator[Lane]:
        for lanes in self._lanes.values():
            yield from lanes.values()

    def add(self, job: Job, key: str | None) -> None:
        kind = kind_of(job)
        lanes = self._lanes.setdefault(str(job.task), {})
        if kind not in lanes:
            lanes[kind] = Lane(kind, self._gates)
        lanes[kind].add(job, key)

    def remove(self, job: Job, key: str | None) -> None:
        task, kind = str(job.task), kind_of(job)
        lane = self._lanes[task][kind]
        lane.remove(job, key)
        if not lane.waiting:
            del self._lanes[task][kind]
        if not self._lanes[task]:
            del self._lanes[task]

    def reconsider(self, subject: Subject) -> None:
        """Look again at the strands of a key, after what its gate counts has changed."""
        if subject.scope is Scope.KEY:  # the gates of whole lanes are asked in passing
            for lane in self._lanes.get(subject.name, {}).values():
                lane.reconsider(subject.key)

    def reconsider_all(self, task: str) -> None:
        """Look again at all strands of a task, after the gate of its keys has changed."""
        for lane in self._lanes.get(task, {}).values():
            lane.reconsider_all()
