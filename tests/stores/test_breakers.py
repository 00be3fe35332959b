"""Breakers where many are at them at once, and what is found of a probe that was left behind."""

import asyncio
import sqlite3
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from random import Random

import pytest
from msgspec.structs import replace

from mainspring.core import machine
from mainspring.core.backoff import Backoff
from mainspring.core.breaker import Breaker, Phase
from mainspring.core.job import JobId, NodeId, State
from mainspring.core.limits import Gate, Scope
from mainspring.core.names import Name
from mainspring.core.outcome import AttemptError, Raised, Snoozed, Succeeded
from mainspring.ids import new_id
from mainspring.stores.memory import MemoryStore
from mainspring.stores.port import Store
from mainspring.stores.postgres import PostgresStore
from mainspring.stores.postgres.statements import Statement, in_schema
from mainspring.stores.records import ClaimRequest, Delivery, NewJob, NodeRecord, Process, Settlement, Verdict
from mainspring.stores.sqlite import SqliteStore
from mainspring.testing import VirtualTime
from mainspring.testing.contract import SettableClock
from tests.servers.postgres import Server
from tests.servers.system import wait_until
from tests.stores.postgres_crowd import crowd
from tests.stores.postgres_wires import on_real_time, sessions

SEND = Name("", "mail.send")
FAILED = Raised(error=AttemptError(type="ValueError", message="no"), retryable=False)
COOLDOWN = 0.03
RULE = Breaker(threshold=2, cooldown=COOLDOWN)
ROUNDS = 25
"""How many probes are waited for."""
OTHER = Name("", "free")


class Probes:
    """Counts what runs at the same time, over all loops and threads, and decides how each probe ends."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running = 0
        self.most = 0
        self.given = 0

    def begin(self) -> int:
        """Count one that begins; returns which it is."""
        with self._lock:
            self._running += 1
            self.given += 1
            self.most = max(self.most, self._running)
            return self.given

    def end(self) -> None:
        with self._lock:
            self._running -= 1


async def join(store: Store, name: str) -> ClaimRequest:
    """Join, and return what the node asks for."""
    record = NodeRecord(id=NodeId(name), process=Process(host="here", pid=1, started="today"), tasks=frozenset({SEND}))
    return ClaimRequest(node=record.id, term=await store.join(record), tasks=record.tasks, room=5)


def some_jobs(store: Store, count: int) -> list[NewJob]:
    return [
        NewJob(
            id=JobId(new_id(store.now())),
            task=SEND,
            payload=b"{}",
            backoff=Backoff.fixed("1s"),
            max_attempts=1,
            priority=at % 3,
        )
        for at in range(count)
    ]


def ending(store: Store, delivery: Delivery, outcome: "Succeeded | Raised | Snoozed") -> Settlement:
    change = machine.decide(delivery.claim, outcome, store.now(), 0.5)
    return Settlement(change=change, by=delivery.claim.node, term=delivery.term)


async def break_it(store: Store) -> None:
    """Have the task fail until its breaker is open; many more jobs wait."""
    await store.declare_breakers({SEND: RULE})
    await store.enqueue(some_jobs(store, 40))
    request = replace(await join(store, "breaks"), room=2)
    for delivery in (await store.claim(request)).deliveries:
        await store.settle([ending(store, delivery, FAILED)])
    (view,) = await store.breakers([SEND])
    assert view.circuit.phase is Phase.OPEN


async def compete(store: Store, name: str, probes: Probes) -> None:
    """Ask for jobs as fast as can be, until there were enough probes. Most of them snooze; some fail."""
    request = await join(store, name)
    while probes.given < ROUNDS:
        for delivery in (await store.claim(request)).deliveries:
            number = probes.begin()
            await asyncio.sleep(0.002)
            probes.end()  # before it is settled: from then on another may be the probe
            outcome = FAILED if number % 4 == 0 else Snoozed(delay=timedelta(0))
            (settled,) = await store.settle([ending(store, delivery, outcome)])
            assert settled.verdict is Verdict.ACCEPTED
        await asyncio.sleep(0)


def test_one_probe_at_a_time_runs_over_many_threads_on_one_file(tmp_path: Path) -> None:
    probes = Probes()

    async def work(number: int) -> None:
        store = SqliteStore(tmp_path / "jobs.db", durable=False)
        await store.open()
        try:
            await compete(store, f"node-{number}", probes)
        finally:
            await store.close()

    async def begin() -> None:
        store = SqliteStore(tmp_path / "jobs.db", durable=False)
        await store.open()
        await break_it(store)
        await store.close()

    asyncio.run(begin())
    with ThreadPoolExecutor(6) as threads:
        for done in [threads.submit(asyncio.run, work(number)) for number in range(6)]:
            done.result()
    assert probes.most == 1


@on_real_time
async def test_one_probe_at_a_time_runs_over_twenty_connections(postgres: Server, postgres_schema: str) -> None:
    async with crowd(postgres, postgres_schema) as many:
        stores = [await many.open(connections=1) for _ in range(20)]
        await break_it(stores[0])
        probes = Probes()
        await asyncio.gather(*(compete(store, f"node-{at}", probes) for at, store in enumerate(stores)))
        assert probes.most == 1
        await stores[3].reset_breaker(SEND)
        late = [await join(store, f"late-{at}") for at, store in enumerate(stores)]
        answers = await asyncio.gather(*(store.claim(one) for store, one in zip(stores, late, strict=True)))
        assert sum(len(answer.deliveries) for answer in answers) >= 25  # all that wait, but for what has failed


# What a fault has left behind.


async def probing(store: Store, clock: SettableClock) -> tuple[ClaimRequest, Delivery]:
    """Open the breaker and claim the probe; one more job waits behind it."""
    await break_it(store)
    clock.advance(COOLDOWN)
    request = await join(store, "node")
    (probe,) = (await store.claim(request)).deliveries
    return request, probe


async def frees(store: Store, request: ClaimRequest) -> None:
    """Mend, and find that another may be the probe from then on."""
    assert (await store.claim(request)).deliveries == ()
    assert await store.mend(10) == 1
    assert len((await store.claim(request)).deliveries) == 1
    assert await store.mend(10) == 0


async def test_a_probe_that_was_left_behind_is_mended_in_memory(virtual_time: VirtualTime) -> None:  # noqa: ARG001 -- runs it
    clock = SettableClock()
    store = MemoryStore(clock=clock)
    await store.open()
    request, probe = await probing(store, clock)
    row = store._tables.rows[probe.claim.job.id]
    store._tables.write(row, replace(row.view, job=replace(row.job, state=State.READY)), clock.now())
    await frees(store, request)


async def test_a_probe_that_was_left_behind_is_mended_on_sqlite(tmp_path: Path, virtual_time: VirtualTime) -> None:  # noqa: ARG001 -- runs it
    clock = SettableClock()
    store = SqliteStore(tmp_path / "jobs.db", clock=clock, durable=False)
    await store.open()
    try:
        request, _ = await probing(store, clock)
        with sqlite3.connect(tmp_path / "jobs.db") as connection:
            connection.execute("UPDATE mainspring_breakers SET probe_lease = probe_lease + 1")
        connection.close()
        await frees(store, request)
    finally:
        await store.close()


@on_real_time
async def test_a_probe_that_was_left_behind_is_mended_on_postgresql(postgres: Server, postgres_schema: str) -> None:
    async with crowd(postgres, postgres_schema) as many:
        store = await many.open()
        await break_it(store)
        await asyncio.sleep(2 * COOLDOWN)
        request = await join(store, "node")
        assert len((await store.claim(request)).deliveries) == 1
        await many.sql("UPDATE mainspring.breakers SET probe_lease = probe_lease + 1")
        await frees(store, request)


# What it costs.


@dataclass
class Counted:
    """The statements that a store has run, by name."""

    names: list[str] = field(default_factory=list)

    def take(self) -> list[str]:
        names, self.names = self.names, []
        return names


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Counted:
    """Watches the statements that our own connections to PostgreSQL run."""
    found = Counted()
    plain = in_schema

    def watched(statement: Statement, schema: str) -> str:
        found.names.append(statement.name)
        return plain(statement, schema)

    monkeypatch.setattr("mainspring.stores.postgres.drive.in_schema", watched)
    return found


async def day(store: PostgresStore, request: ClaimRequest, counted: Counted) -> dict[str, list[str]]:
    """Claim and settle in every way, and say by which statements."""
    costs: dict[str, list[str]] = {}
    await store.enqueue(some_jobs(store, 20))
    await store.claim(replace(request, room=1))  # reads the priorities and the rules
    counted.take()
    first = (await store.claim(request)).deliveries
    costs["claim"] = counted.take()
    second = (await store.claim(request)).deliveries
    costs["claim again"] = counted.take()
    assert len(first) == len(second) == 5
    await store.settle([ending(store, one, Succeeded()) for one in first])
    costs["success"] = counted.take()
    await store.settle([ending(store, one, Snoozed(delay=timedelta(hours=1))) for one in second])
    costs["snooze"] = counted.take()
    return costs


AS_BEFORE = {
    "claim": ["grab_task"],
    "claim again": ["grab_task"],
    "success": ["settle_success"],
    "snooze": ["settle_hold_free", "settle_read", "settle_living", "attempts_add", "places_vacate", "settle_write"],
}


@on_real_time
async def test_where_there_is_no_breaker_claims_and_settlements_take_the_statements_that_they_took_before(
    postgres: Server, postgres_schema: str, counted: Counted
) -> None:
    async with crowd(postgres, postgres_schema) as many:
        store = await many.open()
        assert await day(store, await join(store, "node"), counted) == AS_BEFORE


@on_real_time
async def test_a_closed_breaker_costs_a_claim_nothing_and_a_batch_of_successes_one_read(
    postgres: Server, postgres_schema: str, counted: Counted
) -> None:
    async with crowd(postgres, postgres_schema) as many:
        store = await many.open()
        await store.declare_breakers({SEND: RULE})
        read = {way: ["breakers_read", *names] for way, names in AS_BEFORE.items() if way in {"success", "snooze"}}
        assert await day(store, await join(store, "node"), counted) == {
            **AS_BEFORE,
            **read,
            "snooze": [*read["snooze"], "breakers_read"],
        }


@on_real_time
async def test_an_open_breaker_costs_the_claims_of_other_tasks_nothing(
    postgres: Server, postgres_schema: str, counted: Counted
) -> None:
    async with crowd(postgres, postgres_schema) as many:
        store = await many.open()
        await break_it(store)
        await store.force_breaker(SEND, Phase.OPEN)
        other = replace(await join(store, "node"), tasks=frozenset({SEND, OTHER}))
        await store.enqueue([replace(one, task=OTHER) for one in some_jobs(store, 9)])
        await store.claim(replace(other, room=1))
        counted.take()
        assert len((await store.claim(other)).deliveries) == 5
        assert counted.take() == ["grab_task"]
        assert len((await store.claim(replace(other, room=2))).deliveries) == 2
        assert counted.take() == ["grab_task"]


# Nobody waits in a circle.


async def busy(store: PostgresStore, name: str, until: float, draw: Random) -> Counter[str]:
    """Claim and settle for a while, in batches of several tasks, with whatever outcome."""
    request = replace(await join(store, name), tasks=frozenset(CROWDED), room=7)
    seen: Counter[str] = Counter()
    while asyncio.get_running_loop().time() < until:
        deliveries = (await store.claim(request)).deliveries
        ends: list[Succeeded | Raised | Snoozed] = [Succeeded(), FAILED, Snoozed(delay=timedelta(0))]
        outcomes = [draw.choice(ends) for _ in deliveries]
        settled = await store.settle([ending(store, *each) for each in zip(deliveries, outcomes, strict=True)])
        assert all(one.verdict is Verdict.ACCEPTED for one in settled)
        seen.update(one.changed.target for one in settled if one.changed)
        if draw.random() < 0.05:
            await store.reset_breaker(draw.choice(CROWDED))
        if draw.random() < 0.05:
            await store.mend(10)
        if not deliveries:
            await store.enqueue([replace(one, task=draw.choice(CROWDED)) for one in some_jobs(store, 50)])
    return seen


CROWDED = [Name("", f"task-{number}") for number in range(4)]


@on_real_time
async def test_claims_settlements_and_operators_never_wait_for_each_other_in_a_circle(
    postgres: Server, postgres_schema: str
) -> None:
    async with crowd(postgres, postgres_schema) as many:
        stores = [await many.open(connections=2) for _ in range(6)]
        await stores[0].declare_breakers(dict.fromkeys(CROWDED, Breaker(threshold=2, cooldown="10ms")))
        await stores[0].declare(
            [
                Gate(scope=Scope.TASK, name=str(CROWDED[0]), concurrency=3),
                Gate(scope=Scope.QUEUE, name="default", concurrency=20),
            ]
        )
        deadlocks = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
        before = await many.sql(deadlocks)
        until = asyncio.get_running_loop().time() + 3
        draws = [Random(at) for at in range(len(stores))]  # noqa: S311 -- no secret
        seen = await asyncio.gather(*(busy(store, f"node-{at}", until, draws[at]) for at, store in enumerate(stores)))
        for store in stores:
            await store.close()
        # The server's processes count what they have seen before they end.
        await asyncio.to_thread(wait_until, lambda: not sessions(postgres), "the sessions have ended")
        assert await many.sql(deadlocks) == before
        assert sum(seen, Counter())[Phase.OPEN] > 10
