"""What is always true of lanes, strands and places when a transaction ends, whatever has happened before.

The functions are called on a database in memory, without threads: thousands of steps take a second.
"""

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from datetime import datetime, timedelta
from itertools import count
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from mainspring.core import machine
from mainspring.core.backoff import Backoff
from mainspring.core.command import CancelJob, Command, DeleteJob, MoveJob, RetryJob
from mainspring.core.job import Claim, JobId, NodeId
from mainspring.core.limits import Gate, Rate, Scope
from mainspring.core.names import Name
from mainspring.core.outcome import AttemptError, Interrupted, Lost, Outcome, Raised, Snoozed, Succeeded
from mainspring.core.unique import OnConflict, UniqueKey
from mainspring.errors import IllegalTransition
from mainspring.stores.records import ClaimRequest, Delivery, NewJob, NodeRecord, Place, Process, Settlement
from mainspring.stores.sqlite import claim, enqueue, gates, inspect, migrate, nodes, places, prune, settle
from mainspring.stores.sqlite.lanes import Known, Lanes
from mainspring.stores.sqlite.rows import instant, micros
from mainspring.stores.sqlite.session import Session

TASKS = [Name("", "a"), Name("", "b")]
KEYS = [None, "x", "y"]
START = datetime.fromisoformat("2030-01-01T00:00:00.000001+00:00")
RATE = Rate(count=2, period=timedelta(seconds=10), burst=2)
ERROR = AttemptError(type="E", message="m")


class Tables:
    """A store without threads: each verb is a transaction, after which everything is looked over."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection
        self.known = Known()
        self.now = micros(START)
        self.numbers = count(1)
        migrate.migrate("tables", connection, 0)
        self.node = NodeId("worker")
        with self as session:
            self.term = nodes.join(session, self.record(self.node))

    def record(self, node: NodeId) -> NodeRecord:
        process = Process(host="here", pid=1, started="now")
        return NodeRecord(id=node, process=process, tasks=frozenset(TASKS))

    def __enter__(self) -> Session:
        self.connection.execute("BEGIN IMMEDIATE")
        self.session = Session(self.connection, self.now, Lanes(self.known), "tables")
        return self.session

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self.connection.execute("ROLLBACK")
            return
        self.session.ring()
        self.connection.execute("COMMIT")
        self.session.lanes.keep()
        self.look_over()

    def new(self, task: Name, *, key: str | None = None, delay: int = 0, **fields: object) -> NewJob:
        id_ = JobId(UUID(int=next(self.numbers) * 7919 % 1009 << 64 | next(self.numbers)))  # not in the order of time
        run_at = timedelta(seconds=delay)
        made = NewJob(id=id_, task=task, payload=b"", backoff=Backoff.fixed(1), max_attempts=5, key=key, run_at=run_at)
        return replace(made, **fields)

    def claim(self, **fields: object) -> tuple[Delivery, ...]:
        request = ClaimRequest(node=self.node, term=self.term, tasks=frozenset(TASKS))
        with self as session:
            return claim.claim(session, replace(request, **fields)).deliveries

    def settle(self, claimed: Claim, outcome: Outcome, *, keeps_place: bool = False) -> None:
        change = machine.decide(claimed, outcome, instant(self.now), 0.5)
        with self as session:
            settle.settle(session, [Settlement(change=change, by=claimed.node, keeps_place=keeps_place)])

    def rows(self, sql: str) -> list[tuple[object, ...]]:
        return self.connection.execute(sql).fetchall()

    def look_over(self) -> None:
        for promise, sql in BROKEN.items():
            assert self.rows(sql) == [], promise
        with closing(self.connection.cursor()):
            session = Session(self.connection, self.now, Lanes(self.known), "tables")
            for task, key, full, opens_at in session.rows(MARKS):
                is_full, opens = gates.key_stands(session, task, key)
                assert bool(full) == is_full, (task, key)
                assert opens_at == opens or (opens is None and opens_at <= self.now), (task, key)


BROKEN = {
    "a strand begins with its first job": """
        SELECT strands.* FROM mainspring_strands AS strands
        WHERE (head_at, head_id) IS NOT (
            SELECT run_at, id FROM mainspring_jobs WHERE strand = strands.id ORDER BY run_at, id LIMIT 1)
        """,
    "a key that nobody waits with has no strand": """
        SELECT * FROM mainspring_strands WHERE key IS NOT NULL AND head_at IS NULL
        """,
    "there is one strand for each lane and key": """
        SELECT lane, key FROM mainspring_strands GROUP BY lane, key HAVING count(*) > 1
        """,
    "who waits has a strand, of its own lane and key, and nobody else has": """
        SELECT jobs.* FROM mainspring_jobs AS jobs JOIN mainspring_payloads AS payloads USING (number)
        LEFT JOIN mainspring_strands AS strands ON strands.id = jobs.strand
        WHERE (state IN ('ready', 'scheduled', 'retrying')) IS NOT (strands.id IS NOT NULL)
            OR (strands.id IS NOT NULL AND (strands.lane IS NOT jobs.lane OR strands.key IS NOT payloads.key))
        """,
    "every job has its payload, and only jobs have one": """
        SELECT number FROM mainspring_jobs WHERE number NOT IN (SELECT number FROM mainspring_payloads)
        UNION ALL SELECT number FROM mainspring_payloads WHERE number NOT IN (SELECT number FROM mainspring_jobs)
        UNION ALL SELECT number FROM mainspring_attempts WHERE number NOT IN (SELECT number FROM mainspring_jobs)
        UNION ALL SELECT number FROM mainspring_traces WHERE number NOT IN (SELECT number FROM mainspring_jobs)
        """,
    "a place belongs to an attempt that runs, or is kept": """
        SELECT * FROM mainspring_places AS places WHERE kept = 0 AND NOT EXISTS (
            SELECT 1 FROM mainspring_jobs WHERE id = places.job AND lease = places.lease AND state = 'running')
        """,
    "a unique key without a period belongs to a job that is there": """
        SELECT * FROM mainspring_unique_keys
        WHERE taken_until IS NULL AND job NOT IN (SELECT id FROM mainspring_jobs)
        """,
    "only what has finished is kept until a time": """
        SELECT * FROM mainspring_jobs
        WHERE (keep_until IS NOT NULL) IS NOT (state IN ('succeeded', 'failed', 'cancelled'))
        """,
}
MARKS = """
    SELECT lanes.task, strands.key, strands.full, strands.opens_at
    FROM mainspring_strands AS strands JOIN mainspring_lanes AS lanes ON lanes.id = strands.lane
    WHERE strands.key IS NOT NULL
"""


@pytest.fixture
def tables() -> Iterator[Tables]:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        yield Tables(connection)


OUTCOMES: list[Outcome] = [
    Succeeded(),
    Raised(error=ERROR),
    Raised(error=ERROR, retryable=False),
    Snoozed(delay=timedelta(seconds=3)),
    Interrupted(started=False),
    Lost(),
]
COMMANDS: list[Command] = [CancelJob(), RetryJob(), DeleteJob(), MoveJob(priority=60), MoveJob(queue="other")]
GATES = [
    Gate(scope=scope, name=name, concurrency=concurrency, rate=rate)
    for scope, name in [(Scope.KEY, "a"), (Scope.KEY, "b"), (Scope.TASK, "a"), (Scope.QUEUE, "default")]
    for concurrency, rate in [(1, None), (2, None), (None, RATE), (1, RATE), (None, None)]
]
UNIQUE = [
    None,
    UniqueKey(key="u"),
    UniqueKey(key="u", on_conflict=OnConflict.REPLACE),
    UniqueKey(key="u", period=timedelta(seconds=20)),
]
STEPS = st.one_of(
    st.tuples(
        st.just("enqueue"),
        st.lists(
            st.tuples(
                st.sampled_from(TASKS),
                st.sampled_from(KEYS),
                st.integers(-3, 3),
                st.sampled_from([50, 60]),
                st.sampled_from(UNIQUE),
            ),
            min_size=1,
            max_size=6,
        ),
    ),
    st.tuples(st.just("claim"), st.integers(1, 6)),
    st.tuples(st.just("claim"), st.integers(1, 6)),
    st.tuples(st.just("settle"), st.integers(0, 9), st.sampled_from(OUTCOMES), st.booleans()),
    st.tuples(st.just("settle"), st.integers(0, 9), st.sampled_from(OUTCOMES), st.booleans()),
    st.tuples(st.just("command"), st.integers(0, 9), st.sampled_from(COMMANDS)),
    st.tuples(st.just("declare"), st.sampled_from(GATES)),
    st.tuples(st.just("pass"), st.integers(1, 12)),
    st.tuples(
        st.just("tidy"),
    ),
)


@given(st.lists(STEPS, max_size=40))
def test_whatever_happens_the_tables_agree(steps: Sequence[tuple[object, ...]]) -> None:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        tables = Tables(connection)
        running: list[Claim] = []
        kept: list[Place] = []
        for step in steps:
            match step:
                case "enqueue", list(jobs):
                    new = [
                        tables.new(task, key=key, delay=delay, priority=priority, unique=unique)
                        for task, key, delay, priority, unique in jobs
                    ]
                    with tables as session:
                        enqueue.enqueue(session, new)
                case "claim", int(room):
                    running += [one.claim for one in tables.claim(room=room)]
                case "settle", int(place), outcome, bool(keeps_place) if running:
                    ended = running.pop(place % len(running))
                    tables.settle(ended, outcome, keeps_place=keeps_place)  # type: ignore[arg-type] # drawn from OUTCOMES
                    if keeps_place:
                        kept.append(Place(ended.job.id, ended.job.lease))
                case "command", int(place), word:
                    order(tables, place, word)  # type: ignore[arg-type] # drawn from COMMANDS
                case "declare", Gate() as gate:
                    with tables as session:
                        gates.declare(session, [gate])
                case "pass", int(seconds):
                    tables.now += seconds * 1_000_000
                case ("tidy",):
                    with tables as session:
                        places.release(session, tables.node, kept)
                    with tables as session:
                        prune.prune(session, 100)
                    kept.clear()
                case _:
                    pass  # nothing runs that could be settled


def order(tables: Tables, place: int, word: Command) -> None:
    with tables as session:
        everything = session.rows("SELECT id FROM mainspring_jobs ORDER BY id")
        if not everything:
            return
        found = settle.read(session, everything[place % len(everything)][0])
        assert found
        try:
            change = machine.command(found.job, word, instant(session.now))
        except IllegalTransition:
            return
        settle.settle(session, [Settlement(change=change)])


def test_jobs_of_many_strands_come_in_the_order_of_all(tables: Tables) -> None:
    """More strands than room, several jobs in each, and one key that has jobs in two lanes and room for one."""
    keys = [f"k{number}" for number in range(12)]
    new = [tables.new(TASKS[0], key=keys[n * 5 % 12], delay=-(n * 7 % 30), queue=f"q{n % 2}") for n in range(60)]
    with tables as session:
        gates.declare(session, [Gate(scope=Scope.KEY, name="a", concurrency=1)])
        enqueue.enqueue(session, new)
    expected = sorted(new, key=lambda job: (job.run_at, job.id))
    waiting = list(expected)
    for room in (1, 4, 3, 7, 12):
        firsts: list[NewJob] = []
        for job in waiting:
            if job.key not in {one.key for one in firsts} and len(firsts) < room:
                firsts.append(job)
        claimed = tables.claim(room=room)

        assert [one.claim.job.id for one in claimed] == [one.id for one in firsts]
        for one in claimed:
            tables.settle(one.claim, Succeeded())
        waiting = [job for job in waiting if job not in firsts]


def effort(blocked: int, behind: int) -> int:
    """How many hundreds of steps SQLite's machine takes for a claim of two."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        tables = Tables(connection)
        with tables as session:
            gates.declare(session, [Gate(scope=Scope.KEY, name="a", concurrency=1)])
            held = [tables.new(TASKS[0], key="x", delay=-100) for _ in range(blocked)]
            suspended = [tables.new(TASKS[1], delay=-100) for _ in range(blocked)]
            later = [tables.new(TASKS[0], delay=100) for _ in range(blocked)]
            others = [tables.new(TASKS[0], key=f"k{number}") for number in range(behind)]
            enqueue.enqueue(session, [*held, *suspended, *later, *others])
        tables.claim(room=1, tasks=frozenset({TASKS[0]}))  # from now on, "x" is full
        steps = count()

        def step() -> None:
            next(steps)

        with tables as session:
            connection.set_progress_handler(step, 100)
            request = ClaimRequest(node=tables.node, term=tables.term, tasks=frozenset({TASKS[0]}), room=2)
            found = claim.claim(session, request).deliveries
            connection.set_progress_handler(None, 0)
        assert len(found) == 2
        assert "x" not in {one.key for one in found}
        return next(steps)


def test_a_claim_reads_no_job_that_it_does_not_give_out() -> None:
    assert effort(blocked=1000, behind=1000) <= effort(blocked=5, behind=5) + 2


def test_the_view_of_a_queue_counts_what_waits_and_runs(tables: Tables) -> None:
    with tables as session:
        enqueue.enqueue(session, [tables.new(TASKS[n % 2], key=KEYS[n % 3], priority=n) for n in range(10)])
    tables.claim(room=4)
    with tables as session:
        (view,) = inspect.queues(session)

    assert (view.name, view.waiting, view.running) == ("default", 6, 4)
