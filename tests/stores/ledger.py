"""What must be true of any store, kept as a ledger of what it was told and what it answered.

Written from the port alone: it counts places and starts by itself and asks no store how it does that.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from mainspring.core.job import FINISHED, Claim, Job, JobId, NodeId, State
from mainspring.core.limits import Gate, Scope
from mainspring.stores.records import Delivery, Enqueued, JobView, Place


class Passage(NamedTuple):
    """What a gate counts under: the whole of a task or queue, or one key of a task."""

    scope: Scope
    name: str
    key: str | None = None


class Ledger:
    """Keeps count, and fails an assertion when a store does what no store may do."""

    def __init__(self) -> None:
        self.there: set[JobId] = set()
        self._leases: set[tuple[JobId, int]] = set()
        self.limits: dict[str, int] = {}
        """What an operator has said of queues, in place of what is declared."""
        self._gates: dict[tuple[Scope, str], Gate] = {}
        self._spent: dict[Passage, datetime] = {}
        self._taken: dict[Place, tuple[NodeId, tuple[Passage, ...]]] = {}
        self._kept: set[Place] = set()

    def enqueued(self, answers: Sequence[Enqueued]) -> None:
        for answer in answers:
            assert answer.fresh == (answer.id not in self.there)
            self.there.add(answer.id)

    def declared(self, gate: Gate) -> None:
        before = self._gates.get((gate.scope, gate.name))
        self._gates[gate.scope, gate.name] = gate
        if before is None or before.rate != gate.rate:
            self._spent = {
                passage: spent
                for passage, spent in self._spent.items()
                if (passage.scope, passage.name) != (gate.scope, gate.name)
            }

    def claimed(self, deliveries: Sequence[Delivery], node: NodeId, now: datetime) -> None:
        starts: Counter[Passage] = Counter()
        for delivery in deliveries:
            job = delivery.claim.job
            assert delivery.claim.node == node
            assert (job.id, job.lease) not in self._leases, "a lease was given out twice"
            self._leases.add((job.id, job.lease))
            passages = passages_of(job, delivery.key)
            self._taken[Place(job.id, job.lease)] = (node, passages)
            starts.update(passages)
        for passage, count in starts.items():
            self._check(passage, count, now)

    def _check(self, passage: Passage, starts: int, now: datetime) -> None:
        gate = self._gate(passage)
        if gate is None:
            return
        if gate.concurrency is not None:
            taken = self._count(passage)
            assert taken <= gate.concurrency, f"{taken} at {gate}"
        if gate.rate is not None:
            spent = gate.rate.corrected(self._spent.get(passage), now)  # the clock may have been set back
            assert starts <= gate.rate.room(spent, now), f"{starts} starts at {gate}"
            self._spent[passage] = gate.rate.take(spent, now, starts)

    def ended(self, claim: Claim, *, keeps_place: bool) -> None:
        place = Place(claim.job.id, claim.job.lease)
        if keeps_place:
            self._kept.add(place)
        else:
            self._taken.pop(place)

    def released(self, node: NodeId, places: Iterable[Place]) -> None:
        for place in places:
            if place in self._kept and self._taken[place][0] == node:
                self._give_up(place)

    def mended(self, alive: set[NodeId]) -> int:
        stray = [place for place in self._kept if self._taken[place][0] not in alive]
        for place in stray:
            self._give_up(place)
        return len(stray)

    def deleted(self, job: JobId) -> None:
        self.there.discard(job)
        for place in [place for place in self._kept if place.job == job]:
            self._give_up(place)

    def pruned(self, before: Mapping[JobId, JobView], after: Mapping[JobId, JobView], now: datetime) -> None:
        for job in before.keys() - after.keys():
            keep_until = before[job].job.keep_until
            assert before[job].job.state in FINISHED
            assert keep_until is not None
            assert keep_until <= now
            self.deleted(job)

    def _give_up(self, place: Place) -> None:
        self._kept.discard(place)
        del self._taken[place]

    def is_full(self, view: JobView) -> bool:
        """Say whether a gate in front of a job has no place left."""
        return any(
            gate.concurrency is not None and self._count(passage) >= gate.concurrency
            for passage, gate in self._gates_of(view)
        )

    def opens_at(self, view: JobView) -> list[datetime]:
        """Say when the rates in front of a job allow another start."""
        times = [gate.rate.opens_at(self._spent.get(passage)) for passage, gate in self._gates_of(view) if gate.rate]
        return [time for time in times if time is not None]

    def _gates_of(self, view: JobView) -> Iterator[tuple[Passage, Gate]]:
        for passage in passages_of(view.job, view.key):
            if gate := self._gate(passage):
                yield passage, gate

    def _gate(self, passage: Passage) -> Gate | None:
        """The gate that holds."""
        gate = self._gates.get((passage.scope, passage.name))
        if passage.scope is Scope.QUEUE and passage.name in self.limits:
            rate = gate.rate if gate else None
            return Gate(scope=Scope.QUEUE, name=passage.name, concurrency=self.limits[passage.name], rate=rate)
        return gate

    def _count(self, passage: Passage) -> int:
        return sum(passage in passages for _, passages in self._taken.values())

    @property
    def gates(self) -> list[Gate]:
        return list(self._gates.values())

    @property
    def places(self) -> list[tuple[NodeId, Place]]:
        """Every place that is taken, and by whom."""
        return [(node, place) for place, (node, _) in self._taken.items()]

    def check(self, views: Sequence[JobView]) -> None:
        """Hold everything that can be seen against the ledger."""
        assert {view.job.id for view in views} == self.there, "a job was lost, or came from nowhere"
        running = {Place(view.job.id, view.job.lease) for view in views if view.job.state is State.RUNNING}
        assert running == self._taken.keys() - self._kept
        active = [view for view in views if view.job.state not in FINISHED and view.unique]
        keys = Counter((view.job.task, view.unique.key) for view in active if view.unique)
        assert all(count == 1 for count in keys.values()), "a unique key is held twice"


def passages_of(job: Job, key: str | None) -> tuple[Passage, ...]:
    keyed = () if key is None else (Passage(Scope.KEY, str(job.task), key),)
    return (Passage(Scope.TASK, str(job.task)), Passage(Scope.QUEUE, job.queue), *keyed)
