"""Actions of the claim benchmark: each runs in a process of its own, on the package that PYTHONPATH names.

Public names and the store port only, so that the same actions run on older and newer checkouts.
"""

import asyncio
import json
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from itertools import islice
from pathlib import Path
from typing import Any
from uuid import uuid4

import mainspring
from bench.claiming.processor import Reading, Spent
from bench.postgres.kit.child import ready, serve, told
from mainspring import Limit, Mainspring
from mainspring.core.job import NodeId
from mainspring.core.names import Name
from mainspring.stores.port import Store
from mainspring.stores.records import ClaimRequest, NodeRecord, Process

CONCURRENCY = 200
CHUNK = 10_000  # jobs of one call of `enqueue_many`
POLL_INTERVAL_S = 0.005
NOOP, LIMITED, QUIET = "noop", "limited", "quiet"
STARTED_S = 2.0  # until a node that was just started is idle
QUIET_SPACING_S = 0.02
BACKEND_ENDS_S = 0.02  # a backend still works for a moment after its answer was received


class Work:
    """An app with no-op tasks, and one with a limit whose only job never ends."""

    def __init__(self, url: str, tasks: Sequence[str], postmaster: int | None = None) -> None:
        self.app = Mainspring(url)
        self.first: Reading | None = None
        self._postmaster = postmaster
        for name in tasks:
            if name == LIMITED:
                self.app.task(name=name, limit=Limit(concurrency=1))(self._wait)
            else:
                self.app.task(name=name)(self._end)

    async def _end(self, _number: int) -> None:
        self.first = self.first or Reading(self._postmaster)

    async def _wait(self, _number: int) -> None:
        await asyncio.Event().wait()


async def fill(url: str, tasks: Sequence[str], parts: Sequence[dict[str, Any]]) -> None:
    """Create the schema and enqueue each part in turn, so that earlier parts are older."""
    work = Work(url, tasks)
    async with work.app:
        for part in parts:
            made = calls(work.app, **part)
            while chunk := list(islice(made, CHUNK)):
                await work.app.enqueue_many(chunk)


def calls(
    app: Mainspring,
    *,
    jobs: int,
    tasks: Sequence[str] = (NOOP,),
    queues: Sequence[str] = ("default",),
    priorities: int = 1,
    delay: str | None = None,
) -> Iterator[Any]:
    """Make calls that go round robin through tasks, then queues, and through priorities."""
    options: dict[str, Any] = {} if delay is None else {"delay": delay}
    bound: dict[tuple[str, str, int], Any] = {}
    for number in range(jobs):
        task, queue = tasks[number % len(tasks)], queues[number // len(tasks) % len(queues)]
        priority = 50 if priorities == 1 else number % priorities
        key = task, queue, priority
        if key not in bound:
            bound[key] = app.find(task).using(queue=queue, priority=priority, **options)
        yield bound[key].call(number)


async def drain(
    *, url: str, tasks: Sequence[str], jobs: int, longest: float, postmaster: int | None, pause: str | None = None
) -> None:
    """Answer with the jobs that have ended and their cost, from the first start to the last settle."""
    work = Work(url, tasks, postmaster)
    if pause is not None:
        async with work.app:
            await work.app.store.pause(pause)
    give_up_at = time.monotonic() + longest
    async with work.app.node(concurrency=CONCURRENCY) as node:
        await wait_for(node.events.counts, jobs, give_up_at)
        spent = (work.first or Reading(postmaster)).since()
        leave(node.events.counts["succeeded"], spent)


async def idle(
    *, url: str, tasks: Sequence[str], jobs: int, longest: float, seconds: float, postmaster: int | None
) -> None:
    """Drain, wait until the node is idle, and answer with the cost of so many seconds."""
    work = Work(url, tasks, postmaster)
    give_up_at = time.monotonic() + longest
    async with work.app.node(concurrency=CONCURRENCY) as node:
        await wait_for(node.events.counts, jobs, give_up_at)
        if (ended := node.events.counts["succeeded"]) < jobs:
            print(f"idle: {ended:,} of {jobs:,} jobs ended within {longest:g} s", file=sys.stderr, flush=True)
            os._exit(1)
        await asyncio.sleep(STARTED_S)
        reading = Reading(postmaster)
        await asyncio.sleep(seconds)
        leave(seconds, reading.since())


async def quiet(url: str, jobs: int, longest: float, postmaster: int | None) -> None:
    """Serve one queue whose jobs arrive one by one, and answer with their cost."""
    work = Work(url, [NOOP], postmaster)
    async with work.app.node(concurrency=CONCURRENCY, queues=[QUIET]) as node:
        await asyncio.sleep(STARTED_S)
        ready()
        await told()
        give_up_at = time.monotonic() + longest
        reading = Reading(postmaster)
        await wait_for(node.events.counts, jobs, give_up_at)
        leave(node.events.counts["succeeded"], reading.since())


async def feed(url: str, jobs: int) -> None:
    """Enqueue jobs to the quiet queue, one by one."""
    work = Work(url, [NOOP])
    task = work.app.find(NOOP).using(queue=QUIET)
    async with work.app:
        ready()
        await told()
        for number in range(jobs):
            await task.enqueue(number)
            await asyncio.sleep(QUIET_SPACING_S)


async def claim(url: str, size: int, claims: int, postmaster: int | None) -> None:
    """Answer with the cost of each claim, the first one for an empty cache included."""
    app, found = Mainspring(url), []
    async with app:
        node, term = await join(app.store)
        for _ in range(claims):
            request = ClaimRequest(node=node, term=term, tasks=frozenset({Name("", NOOP)}), room=size)
            await asyncio.sleep(BACKEND_ENDS_S)
            reading = Reading(postmaster)
            claimed = await app.store.claim(request)
            spent = reading.since()
            await asyncio.sleep(BACKEND_ENDS_S)
            found.append((len(claimed.deliveries), spent._replace(server=reading.server_since())))
    leave(found)


async def contend(url: str, claimers: int, size: int, jobs: int, longest: float) -> None:
    """Claim with many stores at once; answer with jobs, cost, number of claims, and when it began and ended."""
    apps = [Mainspring(url) for _ in range(claimers)]
    claimed = claims = 0

    async def claim_once(store: Store, node: NodeId, term: int) -> None:
        nonlocal claimed, claims
        request = ClaimRequest(node=node, term=term, tasks=frozenset({Name("", NOOP)}), room=size)
        answer = await store.claim(request)
        claimed += len(answer.deliveries)
        claims += 1

    async def claim_until(store: Store, node: NodeId, term: int, give_up_at: float) -> None:
        while claimed < jobs and time.monotonic() < give_up_at:
            await claim_once(store, node, term)

    async with AsyncExitStack() as stack:
        for app in apps:
            await stack.enter_async_context(app)
        nodes = [(app.store, *await join(app.store)) for app in apps]
        for _ in range(2):  # connections, prepared statements and caches
            await asyncio.gather(*(claim_once(*node) for node in nodes))
        await asyncio.sleep(0.2)
        claimed = claims = 0
        began, reading = time.time(), Reading(None)
        give_up_at = time.monotonic() + longest
        await asyncio.gather(*(claim_until(*node, give_up_at) for node in nodes))
        spent, ended = reading.since(), time.time()
        await asyncio.sleep(0.2)
        leave(claimed, spent, claims, began, ended)


async def rounds(url: str, jobs: int, rounds: int, longest: float, postmaster: int | None) -> list[Spent]:
    """Fill and drain repeatedly, and answer with the cost of each round but the first, which warms up."""
    import asyncpg  # noqa: PLC0415 - which SQLite does not need

    work, found = Work(url, [NOOP], postmaster), []
    connection = await asyncpg.connect(url)
    async with work.app.node(concurrency=CONCURRENCY) as node:
        for number in range(rounds + 1):
            work.first = None
            async with connection.transaction():  # all jobs of a round become visible at once
                await work.app.enqueue_many(list(calls(work.app, jobs=jobs)), tx=connection)
            await wait_for(node.events.counts, jobs * (number + 1), time.monotonic() + longest)
            found.append((work.first or Reading(postmaster)).since())
            if number == 0:
                ready()
                await told()
        if (ended := node.events.counts["succeeded"]) < jobs * (rounds + 1):
            sys.exit(f"rounds: {ended:,} of {jobs * (rounds + 1):,} jobs ended in time")
    await connection.close()
    return found[1:]


async def wait_for(counts: Mapping[str, int], jobs: int, give_up_at: float) -> None:
    """Wait until so many jobs have succeeded, or until an instant of the monotonic clock."""
    # A listener would slow down what is measured.
    while counts["succeeded"] < jobs and time.monotonic() < give_up_at:  # noqa: ASYNC110
        await asyncio.sleep(POLL_INTERVAL_S)


async def join(store: Store) -> tuple[NodeId, int]:
    process = Process(host="bench", pid=os.getpid(), started=uuid4().hex)
    node = NodeId(uuid4().hex)
    return node, await store.join(NodeRecord(id=node, process=process, tasks=frozenset({Name("", NOOP)})))


def leave(*answer: float | Spent | Sequence[object]) -> None:
    """Print the answer and end at once: claimed jobs and open handlers are of no interest any more."""
    print(json.dumps(answer), flush=True)
    os._exit(0)


if __name__ == "__main__":
    if not Path(mainspring.__file__).is_relative_to(os.environ["PYTHONPATH"]):
        sys.exit(f"mainspring was imported from {mainspring.__file__}, not from {os.environ['PYTHONPATH']}")
    serve({action.__name__: action for action in (fill, drain, idle, quiet, feed, claim, contend, rounds)})
