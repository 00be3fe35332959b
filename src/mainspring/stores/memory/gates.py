"""Limits over all nodes: which gates were declared, who is inside, and how much of each rate is spent.

Who is inside is known whether there is a gate or not, because one may be declared while jobs run. It is known by name:
a place is tied to the lease that took it, so that nothing is given back twice or lost in a sum.
"""

from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import takewhile
from typing import Final, NamedTuple, TypeAlias

from mainspring.core.job import Job, JobId, NodeId
from mainspring.core.limits import Gate, Rate, Scope
from mainspring.stores.records import Place

LONG_AGO: Final = timedelta(days=1)
"""A rate that was paid for so long ago may be forgotten, even if the clock is set back by less."""


Accounts: TypeAlias = dict[tuple[Scope, str], dict[str | None, datetime]]
"""Until when each rate is spent, by key, the latest start last."""


class Subject(NamedTuple):
    """Whom a gate counts: all jobs of a queue or of a task, or those of a task that have the same key."""

    scope: Scope
    name: str
    key: str | None = None


class Taken(NamedTuple):
    """A place that is taken, the node whose attempt took it, and who counts it."""

    place: Place
    node: NodeId
    subjects: tuple[Subject, ...]


def taken_by(job: Job, key: str | None, node: NodeId) -> Taken:
    """Return the place that a job takes when it is claimed."""
    task = str(job.task)
    whole = (Subject(Scope.QUEUE, job.queue), Subject(Scope.TASK, task))
    return Taken(Place(job.id, job.lease), node, whole if key is None else (*whole, Subject(Scope.KEY, task, key)))


class Gates:
    """The declared limits, and what they count."""

    def __init__(self) -> None:
        self._gates: dict[tuple[Scope, str], Gate] = {}
        self.limits: dict[str, tuple[int, str]] = {}
        """What operators have said of queues, in place of what is declared, and who they were."""
        self._taken: dict[JobId, dict[int, Taken]] = {}  # by lease: a body may go on while its job runs again
        self._inside: dict[Subject, set[Place]] = {}
        self._spent: Accounts = {}

    def declare(self, gate: Gate) -> bool:
        """Set a gate up, or take it away if it limits nothing; returns whether that changes anything."""
        where = gate.scope, gate.name
        before = self._gates.pop(where, None)
        if gate.concurrency is not None or gate.rate is not None:
            self._gates[where] = gate
        if before and before.rate != gate.rate:
            self._spent.pop(where, None)
        return self._gates.get(where) != before

    @property
    def declared(self) -> tuple[Gate, ...]:
        return tuple(self._gates.values())

    def limit(self, queue: str, concurrency: int | None, by: str) -> bool:
        """Have an operator's limit hold for a queue, or the declared one again; returns whether that changes anything."""
        before = self.limits.get(queue)
        if concurrency == (before[0] if before else None):
            return False
        if concurrency is None:
            del self.limits[queue]
        else:
            self.limits[queue] = concurrency, by
        return True

    def is_full(self, subject: Subject) -> bool:
        """Say whether one has to leave before another may enter."""
        concurrency = self._concurrency(subject)
        return concurrency is not None and len(self._inside.get(subject, ())) >= concurrency

    def _concurrency(self, subject: Subject) -> int | None:
        if subject.scope is Scope.QUEUE and subject.name in self.limits:
            return self.limits[subject.name][0]
        gate = self._gates.get((subject.scope, subject.name))
        return gate.concurrency if gate else None

    def opens_at(self, subject: Subject) -> datetime | None:
        """Say when the rate allows the next to enter; None: at any time."""
        rate = self._rate(subject)
        return rate.opens_at(self._spent_until(subject)) if rate else None

    def lets_in(self, subject: Subject, now: datetime) -> bool:
        """Say whether one more may enter now."""
        if self.is_full(subject):
            return False
        opens_at = self.opens_at(subject)
        return opens_at is None or opens_at <= now

    def enter(self, taken: Taken, now: datetime) -> None:
        self.hold(taken)
        for subject in taken.subjects:
            if rate := self._rate(subject):
                spent_until = rate.take(self._spent_until(subject), now, 1)
                spent = self._spent.setdefault((subject.scope, subject.name), {})
                spent.pop(subject.key, None)
                spent[subject.key] = spent_until

    def hold(self, taken: Taken) -> None:
        """Count a place as taken; what it costs has been paid."""
        self._taken.setdefault(taken.place.job, {})[taken.place.lease] = taken
        for subject in taken.subjects:
            self._inside.setdefault(subject, set()).add(taken.place)

    def accounts(self) -> Accounts:
        """Return how much of each rate is spent, for `set_accounts`."""
        return {where: dict(spent) for where, spent in self._spent.items()}

    def correct_accounts(self, now: datetime) -> None:
        """Correct the accounts of rates that were written while the clock was ahead."""
        for where, spent in self._spent.items():
            gate = self._gates.get(where)
            if gate and gate.rate:
                rate = gate.rate
                spent.update({key: rate.corrected(until, now) or until for key, until in spent.items()})

    def set_accounts(self, accounts: Accounts) -> None:
        self._spent = accounts

    def leave(self, taken: Taken) -> None:
        job, lease = taken.place.job, taken.place.lease
        del self._taken[job][lease]
        if not self._taken[job]:
            del self._taken[job]
        for subject in taken.subjects:
            self._inside[subject].remove(taken.place)
            if not self._inside[subject]:
                del self._inside[subject]

    def find(self, place: Place) -> Taken | None:
        return self._taken.get(place.job, {}).get(place.lease)

    def of(self, job: JobId) -> tuple[Taken, ...]:
        """Return all places of a job: that of its running attempt, and those which ended attempts keep."""
        return tuple(self._taken.get(job, {}).values())

    def __iter__(self) -> Iterator[Taken]:
        for places in self._taken.values():
            yield from places.values()

    def forget(self, now: datetime) -> None:
        """Let go of rates that were paid for long ago: there may be one for every key that ever was."""
        for spent in self._spent.values():
            old = takewhile(lambda each: each[1] + LONG_AGO <= now, spent.items())
            for key in [key for key, _ in old]:
                del spent[key]

    def _rate(self, subject: Subject) -> Rate | None:
        gate = self._gates.get((subject.scope, subject.name))
        return gate.rate if gate else None

    def _spent_until(self, subject: Subject) -> datetime | None:
        return self._spent.get((subject.scope, subject.name), {}).get(subject.key)
