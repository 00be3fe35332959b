"""What the stories about apps share: both stores that need nothing else, and someone who runs jobs by hand.

Imported as `tests.app.conftest`, the one file of this folder that pytest itself brings into reach.
"""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from mainspring.app import Mainspring
from mainspring.core import machine
from mainspring.core.job import Claim, JobId, NodeId
from mainspring.core.outcome import AttemptError, Outcome, Raised, Succeeded
from mainspring.stores.memory import MemoryStore
from mainspring.stores.port import Store
from mainspring.stores.records import ClaimRequest, Delivery, NodeRecord, Process, Settlement, Verdict
from mainspring.stores.sqlite import SqliteStore
from mainspring.testing import VirtualTime

MakeStore = Callable[[], Store]


@pytest.fixture(params=["memory", "sqlite"])
def make_store(request: pytest.FixtureRequest, tmp_path: Path, virtual_time: VirtualTime) -> MakeStore:
    """Make handles on one and the same state."""
    if request.param == "sqlite":
        return lambda: SqliteStore(tmp_path / "jobs.db", clock=virtual_time.clock)
    first = MemoryStore(clock=virtual_time.clock)
    return first.another


@pytest.fixture
def app(make_store: MakeStore, virtual_time: VirtualTime) -> Mainspring:
    return Mainspring(make_store(), clock=virtual_time.clock)


class Hand:
    """Runs jobs one step at a time, through the port, as a node would."""

    def __init__(self, app: Mainspring) -> None:
        self.app = app
        self.node = NodeId("by hand")
        self.term: int | None = None

    async def claim(self, room: int = 1) -> tuple[Delivery, ...]:
        if self.term is None:
            process = Process(host="here", pid=os.getpid(), started="now")
            self.term = await self.app.store.join(
                NodeRecord(id=self.node, process=process, tasks=self.app.registry.names)
            )
        request = ClaimRequest(node=self.node, term=self.term, tasks=self.app.registry.names, room=room)
        return (await self.app.store.claim(request)).deliveries

    async def end(self, delivery: Delivery, outcome: Outcome) -> None:
        claim = delivery.claim
        while True:
            change = machine.decide(claim, outcome, self.app.store.now(), 0.5)
            (settled,) = await self.app.store.settle([Settlement(change=change, by=self.node)])
            if settled.job is None:
                assert settled.verdict is Verdict.ACCEPTED
                return
            claim = Claim(job=settled.job, node=self.node)

    async def succeed(self, result: object = None) -> JobId:
        """Run the next job to a good end."""
        (delivery,) = await self.claim()
        job = delivery.claim.job
        codec = self.app.registry.find(job.task).result
        await self.end(delivery, Succeeded(None if result is None else codec.encode(result)))
        return job.id

    async def fail(self, message: str) -> JobId:
        """Run the next job to a bad end."""
        (delivery,) = await self.claim()
        error = AttemptError(type="ValueError", message=message)
        await self.end(delivery, Raised(error=error, retryable=False))
        return delivery.claim.job.id


@pytest.fixture
def hand(app: Mainspring) -> Hand:
    return Hand(app)
