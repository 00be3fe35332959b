# ruff: noqa: S101 -- a suite of tests is built on assert
"""What the tests of the contract act through: a store, its clock, and short words for what they do again and again."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import count
from typing import Final, TypedDict, Unpack
from uuid import UUID

from mainspring.core import machine
from mainspring.core.backoff import Backoff
from mainspring.core.command import Command
from mainspring.core.job import Claim, Job, JobId, NodeId, Retention
from mainspring.core.names import Name
from mainspring.core.outcome import AttemptError, Lost, Outcome, Raised
from mainspring.core.unique import UniqueKey
from mainspring.stores.port import Store
from mainspring.stores.records import (
    Claimed,
    ClaimRequest,
    Delivery,
    Facts,
    JobView,
    NewJob,
    NodeRecord,
    Process,
    Settled,
    Settlement,
    Verdict,
    When,
)
from mainspring.testing.contract.harness import Harness, SettableClock

SEND: Final = Name("", "mail.send")
RESIZE: Final = Name("photos", "resize")
TASKS: Final = frozenset({SEND, RESIZE})
SECOND: Final = timedelta(seconds=1)
HOUR: Final = timedelta(hours=1)
DAY: Final = timedelta(days=1)
ERROR: Final = AttemptError(type="ValueError", message="no", traceback="Traceback…")
RAISED: Final = Raised(error=ERROR)
FATAL: Final = Raised(error=ERROR, retryable=False)


class Fields(TypedDict, total=False):
    """What may be said about a new job beside its task."""

    id: JobId
    payload: bytes
    backoff: Backoff
    max_attempts: int
    run_at: When
    expires: When | None
    queue: str
    priority: int
    loss_limit: int
    retention: Retention
    timeout: timedelta | None
    key: str | None
    unique: UniqueKey | None
    facts: Facts


def claim_number(claim: Claim) -> int:
    """Return the number of a claim, which is part of its lease."""
    return claim.job.lease & 0xFFFF_FFFF


@dataclass(frozen=True, slots=True)
class Member:
    """A node that has joined."""

    id: NodeId
    term: int


class World:
    """One store under test, through one or more handles."""

    store: Store
    """The first handle."""

    def __init__(self, harness: Harness, clock: SettableClock) -> None:
        self.harness = harness
        self.clock = clock
        self._handles: list[Store] = []
        self._numbers = count(1)  # drawn from by several threads
        self._claims = count(1)  # two worlds in which the same happens give the same leases

    @property
    def now(self) -> datetime:
        return self.clock.now()

    async def open(self) -> Store:
        """Open another handle; it is closed with the world."""
        store = await self.harness.open()
        if not any(store is one for one in self._handles):
            self._handles.append(store)
        return store

    async def crash(self, store: Store) -> None:
        self.forget(store)
        await self.harness.crash(store)

    def forget(self, store: Store) -> None:
        """Leave it to others to close a handle."""
        self._handles = [one for one in self._handles if one is not store]

    async def close(self) -> None:
        while self._handles:
            await self._handles.pop().close()

    # Jobs.

    def id(self) -> JobId:
        """Make an id that sorts behind all that were made before."""
        number = next(self._numbers)
        return JobId(UUID(int=(0x018F_0000_0000 + number) << 80 | 0x7 << 76 | 0x8 << 60 | number))

    def new(self, task: Name = SEND, **fields: Unpack[Fields]) -> NewJob:
        return NewJob(**(self._defaults() | fields), task=task)

    def _defaults(self) -> Fields:
        return Fields(id=self.id(), payload=b"{}", backoff=Backoff.fixed("10s"), max_attempts=3)

    async def enqueue(self, task: Name = SEND, **fields: Unpack[Fields]) -> JobId:
        """Enqueue one job that must be fresh."""
        (one,) = await self.store.enqueue([self.new(task, **fields)])
        assert one.fresh
        return one.id

    async def enqueue_all(self, new: Iterable[NewJob], *, batch: int = 1000) -> None:
        """Enqueue any number of jobs."""
        jobs = list(new)
        for begin in range(0, len(jobs), batch):
            await self.store.enqueue(jobs[begin : begin + batch])

    async def view(self, job: JobId) -> JobView:
        """Look at a job that must be there."""
        (view,) = await self.store.get([job])
        assert view is not None
        return view

    async def job(self, job: JobId) -> Job:
        return (await self.view(job)).job

    async def is_there(self, job: JobId) -> bool:
        return (await self.store.get([job])) != (None,)

    # Nodes.

    def record(self, name: str = "", *, tasks: Iterable[Name] = TASKS) -> NodeRecord:
        number = next(self._numbers)
        id_ = NodeId(name or f"node-{number}")
        process = Process(host="here", pid=number, started="today")
        return NodeRecord(id=id_, process=process, tasks=frozenset(tasks))

    async def node(self, name: str = "", *, tasks: Iterable[Name] = TASKS) -> Member:
        record = self.record(name, tasks=tasks)
        return Member(record.id, await self.store.join(record))

    async def kill(self, node: Member) -> None:
        assert await self.store.declare_dead(node.id, node.term)

    async def reap(self, reaper: Member) -> list[Verdict]:
        """Settle every orphan as lost, as a reaper does."""
        orphans = await self.store.orphans(1000)
        return [(await self.settle(claim, Lost(), by=reaper.id)).verdict for claim in orphans]

    # The way of a job.

    async def ask(
        self,
        node: Member,
        *,
        store: Store | None = None,
        tasks: Iterable[Name] = TASKS,
        queues: Mapping[str, int] | None = None,
        others: bool = False,
        room: int = 1,
        ahead: int = 0,
        suspects: int = 1,
        due_by: datetime | None = None,
    ) -> Claimed:
        """Claim; the whole answer."""
        request = ClaimRequest(
            node=node.id,
            term=node.term,
            tasks=frozenset(tasks),
            queues=queues,
            others=others,
            room=room,
            ahead=ahead,
            suspects=suspects,
            due_by=due_by,
            number=next(self._claims),
        )
        return await (store or self.store).claim(request)

    async def claim(self, node: Member, *, room: int = 1, tasks: Iterable[Name] = TASKS) -> tuple[Delivery, ...]:
        return (await self.ask(node, room=room, tasks=tasks)).deliveries

    async def claim_one(self, node: Member) -> Claim:
        """Claim a job that must be there."""
        (delivery,) = await self.claim(node)
        return delivery.claim

    async def running(self, node: Member, task: Name = SEND, **fields: Unpack[Fields]) -> Claim:
        """Enqueue a job and have the node claim it; nothing else may be waiting."""
        await self.enqueue(task, **fields)
        return await self.claim_one(node)

    async def settle(
        self,
        claim: Claim,
        outcome: Outcome,
        *,
        by: NodeId | None = None,
        seconds: float | None = None,
        keeps_place: bool = False,
        store: Store | None = None,
    ) -> Settled:
        """Decide what becomes of a claim and write it: as its holder, if nobody else is named."""
        settlement = self.settlement(claim, outcome, by=by, seconds=seconds, keeps_place=keeps_place)
        (settled,) = await (store or self.store).settle([settlement])
        return settled

    def settlement(
        self,
        claim: Claim,
        outcome: Outcome,
        *,
        by: NodeId | None = None,
        seconds: float | None = None,
        keeps_place: bool = False,
    ) -> Settlement:
        change = machine.decide(claim, outcome, self.now, roll=0.5)
        return Settlement(change=change, by=by or claim.node, seconds=seconds, keeps_place=keeps_place)

    async def end(self, claim: Claim, outcome: Outcome, *, keeps_place: bool = False) -> None:
        """Settle what must be accepted."""
        settled = await self.settle(claim, outcome, keeps_place=keeps_place)
        assert settled.verdict is Verdict.ACCEPTED

    async def command(self, job: JobId, command: Command) -> Verdict:
        """Do what an operator does: look, decide, write."""
        change = machine.command(await self.job(job), command, self.now)
        (settled,) = await self.store.settle([Settlement(change=change)])
        return settled.verdict

    async def fail(self, job: JobId, node: Member) -> None:
        """Have the next job, which must be this one, fail for good."""
        claim = await self.claim_one(node)
        assert claim.job.id == job
        await self.end(claim, FATAL)

    async def lose(self, times: int, jobs: Sequence[JobId]) -> None:
        """Have each of these jobs lost with its node, so many times; nothing else may be waiting."""
        reaper = await self.node()
        for _ in range(times):
            for _ in jobs:
                victim = await self.node()
                await self.claim_one(victim)
                await self.kill(victim)
            await self.reap(reaper)
