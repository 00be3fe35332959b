"""Fills any store with jobs in all states, by the verbs of the port."""

import random
from collections.abc import Sequence
from datetime import datetime, timedelta

from bench.looking.names import (
    KEYS,
    LONG_AFTER,
    MESSAGE,
    NODE,
    QUEUES,
    RARE,
    RARE_KEY,
    RARE_QUEUE,
    RARE_TASK,
    TAG,
    TASKS,
)
from mainspring.core.backoff import Backoff
from mainspring.core.command import CancelJob
from mainspring.core.job import Claim, JobId
from mainspring.core.machine import command, decide
from mainspring.core.names import Name
from mainspring.core.outcome import AttemptError, Outcome, Raised, Succeeded
from mainspring.ids import Ids
from mainspring.stores.port import Store
from mainspring.stores.records import ClaimRequest, Delivery, Facts, NewJob, NodeRecord, Process, Settlement

BATCH = 1000
BACKLOG = TASKS[0]
"""Nobody takes its jobs."""
SUCCESS = Succeeded(result=b"42")
ERROR = AttemptError(type="ValueError", message=MESSAGE, traceback="Traceback (most recent call last)\n" * 8)
ENDS: list[Outcome] = [*[SUCCESS] * 95, *[Raised(error=ERROR, retryable=False)] * 3, *[Raised(error=ERROR)] * 2]


async def fill(store: Store, count: int) -> datetime:
    """Make so many jobs; returns when the first was enqueued."""
    began = store.now()
    await Fill(store).fill(count)
    return began


class Fill:
    """Makes jobs in all states."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._ids = Ids()
        self._chance = random.Random(8)  # noqa: S311 -- the same store each time
        self._term = 0

    async def fill(self, count: int) -> None:
        tasks = frozenset([*TASKS, RARE_TASK])
        process = Process(host="bench", pid=1, started="now")
        self._term = await self._store.join(NodeRecord(id=NODE, process=process, tasks=tasks))
        await self._store.enqueue([self._new(RARE_TASK, queue=RARE_QUEUE, key=RARE_KEY) for _ in range(RARE)])
        for begin in range(0, count, BATCH):
            new = [self._new(self._chance.choice(TASKS)) for _ in range(min(BATCH, count - begin))]
            await self._store.enqueue(new)
            await self._work(tasks - {BACKLOG})
            if begin == 0:
                await self._cancel([job.id for job in new if job.task == BACKLOG][:RARE])
        await self._claim(frozenset([BACKLOG]), 50)

    def _new(self, task: Name, *, queue: str | None = None, key: str | None = None) -> NewJob:
        chance = self._chance
        number = chance.randrange(1_000_000)
        return NewJob(
            id=JobId(self._ids.next(self._store.now())),
            task=task,
            payload=b'{"args":{"order":{"number":%d,"lines":[{"sku":"tea","count":2}]},"note":"as always"}}' % number,
            backoff=Backoff.fixed(LONG_AFTER),
            max_attempts=5,
            run_at=LONG_AFTER if chance.random() < 0.01 else timedelta(0),
            queue=queue or chance.choice(QUEUES),
            priority=chance.choice([50, 50, 50, 10]),
            key=key or (chance.choice(KEYS) if chance.random() < 0.1 else None),
            facts=Facts(tags=(TAG,)) if chance.random() < 0.05 else Facts(),
        )

    async def _work(self, tasks: frozenset[Name]) -> None:
        while deliveries := await self._claim(tasks, BATCH):
            ends = [self._end(delivery.claim) for delivery in deliveries]
            await self._store.settle(ends)

    async def _claim(self, tasks: frozenset[Name], room: int) -> Sequence[Delivery]:
        return (await self._store.claim(ClaimRequest(node=NODE, term=self._term, tasks=tasks, room=room))).deliveries

    def _end(self, claim: Claim) -> Settlement:
        outcome = SUCCESS if claim.job.task == RARE_TASK else self._chance.choice(ENDS)
        return Settlement(change=decide(claim, outcome, self._store.now(), 0.5), by=NODE, seconds=0.2)

    async def _cancel(self, jobs: Sequence[JobId]) -> None:
        views = [view for view in await self._store.get(jobs) if view]
        now = self._store.now()
        await self._store.settle([Settlement(change=command(view.job, CancelJob(), now)) for view in views])
