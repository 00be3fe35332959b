"""A memory store with one node, on a clock that stands still, and short words for what tests do with it.

The verbs of a memory store never wait, so that none of this needs an event loop.
"""

from collections.abc import Coroutine
from datetime import datetime, timedelta
from itertools import count
from typing import Any, TypedDict, TypeVar, Unpack
from uuid import UUID

from mainspring.core import machine
from mainspring.core.backoff import Backoff
from mainspring.core.command import Command
from mainspring.core.job import Claim, Job, JobId, NodeId, Retention, State
from mainspring.core.limits import Gate, Rate, Scope
from mainspring.core.names import Name
from mainspring.core.outcome import AttemptError, Outcome, Raised
from mainspring.core.unique import UniqueKey
from mainspring.stores.memory import MemoryStore
from mainspring.stores.records import (
    Claimed,
    ClaimRequest,
    Delivery,
    Facts,
    JobFilter,
    JobView,
    NewJob,
    NodeRecord,
    Process,
    Settlement,
    Verdict,
    When,
)
from mainspring.testing.virtual import VirtualClock

SEND, RESIZE = Name("", "send"), Name("photos", "resize")
TASKS = frozenset({SEND, RESIZE})
SECOND, MINUTE = timedelta(seconds=1), timedelta(minutes=1)
RETRY_NOW = Raised(error=AttemptError(type="E", message="no"), retry_in=timedelta(0))
A_MINUTE_EACH = Rate(count=1, period=MINUTE)

T = TypeVar("T")


def done(verb: Coroutine[Any, Any, T]) -> T:
    """Run a verb, which must not wait for anything."""
    try:
        verb.send(None)
    except StopIteration as end:
        value: T = end.value
        return value
    verb.close()
    raise AssertionError("it waits")


class Fields(TypedDict, total=False):
    id: JobId
    task: Name
    run_at: When
    queue: str
    priority: int
    key: str | None
    unique: UniqueKey | None
    retention: Retention
    facts: Facts


class World:
    """An open store on a clock that stands still, with one node."""

    def __init__(self) -> None:
        self.clock = VirtualClock(lambda: 0.0)
        self.store = MemoryStore(self.clock)
        self._ids = count(1)
        done(self.store.open())
        self.node = self.join("node")

    @property
    def now(self) -> datetime:
        return self.clock.now()

    def join(self, name: str) -> NodeId:
        node = NodeId(name)
        process = Process(host="here", pid=1, started="now")
        done(self.store.join(NodeRecord(id=node, process=process, tasks=TASKS)))
        return node

    def new(self, **fields: Unpack[Fields]) -> NewJob:
        given = Fields(id=JobId(UUID(int=next(self._ids))), task=SEND)
        return NewJob(payload=b"", backoff=Backoff.fixed(0), max_attempts=99, loss_limit=2, **(given | fields))

    def enqueue(self, times: int = 1, **fields: Unpack[Fields]) -> list[JobId]:
        return [one.id for one in done(self.store.enqueue([self.new(**fields) for _ in range(times)]))]

    def ask(self, room: int = 1, node: NodeId | None = None) -> Claimed:
        return done(self.store.claim(ClaimRequest(node=node or self.node, term=1, tasks=TASKS, room=room)))

    def claim(self, room: int = 1) -> tuple[Delivery, ...]:
        return self.ask(room).deliveries

    def end(self, claim: Claim, outcome: Outcome, *, by: NodeId | None = None, keeps_place: bool = False) -> Verdict:
        change = machine.decide(claim, outcome, self.now, 0.5)
        settlement = Settlement(change=change, by=by or claim.node, keeps_place=keeps_place)
        (settled,) = done(self.store.settle([settlement]))
        return settled.verdict

    def command(self, job: Job, command: Command) -> Verdict:
        (settled,) = done(self.store.settle([Settlement(change=machine.command(job, command, self.now))]))
        return settled.verdict

    def jobs(self, *states: State) -> list[JobView]:
        return list(done(self.store.list_jobs(JobFilter(states=states), limit=1_000_000)).jobs)


def keyed(concurrency: int | None = None, rate: Rate | None = None) -> Gate:
    return Gate(scope=Scope.KEY, name=str(SEND), concurrency=concurrency, rate=rate)
