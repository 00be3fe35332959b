"""Claims: both scans for jobs, parked jobs, and what is always true of the tables when a transaction ends.

The functions are called on a database in memory, without threads: thousands of steps take a second.
"""

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, closing
from datetime import datetime, timedelta
from functools import partial
from itertools import count, pairwise
from pathlib import Path
from typing import NamedTuple
from unittest.mock import Mock, patch
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from mainspring.core import machine
from mainspring.core.backoff import Backoff
from mainspring.core.breaker import Breaker, Phase
from mainspring.core.command import CancelJob, Command, DeleteJob, MoveJob, RetryJob
from mainspring.core.job import Claim, JobId, NodeId
from mainspring.core.limits import Gate, Rate, Scope
from mainspring.core.names import Name
from mainspring.core.outcome import AttemptError, Interrupted, Lost, Outcome, Raised, Snoozed, Succeeded
from mainspring.core.unique import OnConflict, UniqueKey
from mainspring.errors import IllegalTransition
from mainspring.stores.records import Claimed, ClaimRequest, Delivery, NewJob, NodeRecord, Place, Process, Settlement
from mainspring.stores.sqlite import (
    breakers,
    claim,
    delete,
    enqueue,
    gates,
    inspect,
    migrate,
    nodes,
    operate,
    parking,
    places,
    prune,
    selection,
    settle,
)
from mainspring.stores.sqlite.lanes import Known, Lanes
from mainspring.stores.sqlite.rows import instant, micros, span_micros
from mainspring.stores.sqlite.session import Session
from mainspring.stores.sqlite.statements import statement

TASKS = [Name("", "a"), Name("", "b")]
KEYS = [None, "x", "y"]
START = datetime.fromisoformat("2030-01-01T00:00:00.000001+00:00")
RATE = Rate(count=2, period=timedelta(seconds=10), burst=2)
FAST = Rate(count=1, period=timedelta(seconds=1), burst=5)
ERROR = AttemptError(type="E", message="m")


class OneWay(Lanes):
    """Lets every claim scan by lane at once, or none."""

    def __init__(self, common: Known, *, by_lane: bool) -> None:
        super().__init__(common)
        self._by_lane = by_lane

    def consume_lane_scan(self, request: ClaimRequest) -> bool:
        del request
        return self._by_lane


class Tables:
    """A store without threads: each verb is a transaction, after which everything is looked over."""

    def __init__(self, connection: sqlite3.Connection, *, by_lane: bool | None = None) -> None:
        self.connection = connection
        self.by_lane = by_lane
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
        lanes = Lanes(self.known) if self.by_lane is None else OneWay(self.known, by_lane=self.by_lane)
        self.session = Session(self.connection, self.now, lanes, "tables")
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

    def request(self, **fields: object) -> ClaimRequest:
        return replace(ClaimRequest(node=self.node, term=self.term, tasks=frozenset(TASKS)), **fields)

    def ask(self, **fields: object) -> Claimed:
        with self as session:
            claimed = claim.claim(session, self.request(**fields))
        self.look_at_order([one.claim.job.id.bytes for one in claimed.deliveries])
        return claimed

    def claim(self, **fields: object) -> tuple[Delivery, ...]:
        return self.ask(**fields).deliveries

    def enqueue(self, jobs: Sequence[NewJob]) -> None:
        with self as session:
            enqueue.enqueue(session, jobs)

    def declare(self, *wanted: Gate) -> None:
        with self as session:
            gates.declare(session, wanted)

    def settle(self, claimed: Claim, outcome: Outcome, *, keeps_place: bool = False) -> None:
        change = machine.decide(claimed, outcome, instant(self.now), 0.5)
        with self as session:
            settle.settle(session, [Settlement(change=change, by=claimed.node, keeps_place=keeps_place)])

    def rows(self, sql: str) -> list[tuple[object, ...]]:
        return self.connection.execute(sql).fetchall()

    def look_over(self) -> None:
        for promise, sql in BROKEN.items():
            assert self.rows(sql) == [], promise
        session = Session(self.connection, self.now, Lanes(self.known), "tables")
        for task, key, lane, opens_at in session.rows("SELECT * FROM mainspring_parked_keys"):
            self.look_at_key(session, task, key, lane, opens_at)

    def look_at_order(self, given: Sequence[bytes]) -> None:
        """No due job waits, claimable or parked, that precedes a given job with the same task, queue, care and key."""
        first: dict[object, tuple[int, int, bytes]] = {}
        positions = self.connection.execute(POSITIONS, (self.now,)).fetchall() if given else []
        for *subject, rank, run_at, id_, waits in positions:
            if waits:
                first[tuple(subject)] = min(first.get(tuple(subject), (rank, run_at, id_)), (rank, run_at, id_))
        for *subject, rank, run_at, id_, _ in positions:
            if id_ in given and tuple(subject) in first:
                assert (rank, run_at, id_) < first[tuple(subject)], subject

    def look_at_key(self, session: Session, task: str, key: str, lane: int, opens_at: int | None) -> None:
        """While a key has a free place, the first waiting job of each of its lanes is claimable."""
        row = session.row(statement("gate_find"), (Scope.KEY, task))
        passage = None if row is None else gates.approach_with_key(session, gates.with_account(row)[0], key)
        waiting = session.rows(WAITING_WITH_KEY, (lane, key))
        if passage is None or passage.room > 0:
            longest = timedelta(0) if passage is None else passage.gate.longest_wait
            will_open = opens_at is not None and not self.now < opens_at <= self.now + span_micros(longest)
            assert not waiting or waiting[0][0] is None or will_open, (task, key)
        elif not passage.is_full:
            assert opens_at is not None or not any(parked for (parked,) in waiting), (task, key)


BROKEN = {
    "a waiting job has the rank of its priority or is parked for its key, and no other job has or is": """
        SELECT jobs.* FROM mainspring_jobs AS jobs JOIN mainspring_payloads AS payloads USING (number)
        JOIN mainspring_lanes AS lanes ON lanes.id = jobs.lane
        WHERE (state IN ('ready', 'scheduled', 'retrying')) IS NOT (rank IS NOT NULL OR parked IS NOT NULL)
            OR (rank IS NOT NULL AND (rank IS NOT -priority OR parked IS NOT NULL))
            OR (parked IS NOT NULL AND parked IS NOT key)
        """,
    "the lane and key of a parked job are known": """
        SELECT jobs.* FROM mainspring_jobs AS jobs JOIN mainspring_lanes AS lanes ON lanes.id = jobs.lane
        WHERE parked IS NOT NULL AND NOT EXISTS (
            SELECT 1 FROM mainspring_parked_keys AS keys
            WHERE keys.task = lanes.task AND keys.key = parked AND keys.lane = jobs.lane)
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
POSITIONS = """
    SELECT task, queue, suspect, key, -priority, run_at, jobs.id, state IN ('ready', 'scheduled', 'retrying')
    FROM mainspring_jobs AS jobs JOIN mainspring_payloads USING (number)
    JOIN mainspring_lanes AS lanes ON lanes.id = jobs.lane
    WHERE run_at <= ? AND state IN ('ready', 'scheduled', 'retrying', 'running')
"""
WAITING_WITH_KEY = """
    SELECT parked FROM mainspring_jobs JOIN mainspring_payloads USING (number)
    WHERE lane = ? AND key = ? AND state IN ('ready', 'scheduled', 'retrying') ORDER BY run_at, id
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
    for concurrency, rate in [(1, None), (2, None), (25, None), (None, RATE), (None, FAST), (1, RATE), (None, None)]
]
UNIQUE = [
    None,
    UniqueKey(key="u"),
    UniqueKey(key="u", on_conflict=OnConflict.REPLACE),
    UniqueKey(key="u", period=timedelta(seconds=20)),
]
REQUESTS: list[dict[str, object]] = [
    {"ahead": 3},
    {"suspects": 0},
    {"tasks": frozenset({TASKS[0]})},
    {"queues": {"default": 2}, "others": True},
    {"queues": {"other": 3}},
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
    st.tuples(st.just("add"), st.integers(1, 40), st.sampled_from(TASKS), st.sampled_from(KEYS), st.integers(-3, 0)),
    st.tuples(st.just("claim"), st.integers(0, 6), st.sampled_from(REQUESTS)),
    st.tuples(st.just("claim"), st.integers(1, 6) | st.just(50), st.just({})),
    st.tuples(st.just("settle"), st.integers(0, 9), st.sampled_from(OUTCOMES), st.booleans()),
    st.tuples(st.just("settle"), st.integers(0, 9), st.sampled_from(OUTCOMES), st.booleans()),
    st.tuples(st.just("command"), st.integers(0, 9), st.sampled_from(COMMANDS)),
    st.tuples(st.just("declare"), st.sampled_from(GATES)),
    st.tuples(st.just("pass"), st.one_of(st.integers(1, 12), st.sampled_from([-5, -7200, 7200]))),
    st.tuples(st.just("pause"), st.sampled_from(["default", "other"])),
    st.tuples(
        st.just("tidy"),
    ),
)


OPENED = st.sampled_from([1, 2, 1000])
"""Keys that have opened whose jobs one claim unparks."""


@given(st.lists(STEPS, max_size=40), OPENED)
def test_whatever_happens_the_tables_agree(steps: Sequence[tuple[object, ...]], opened: int) -> None:
    with (
        closing(sqlite3.connect(":memory:", isolation_level=None)) as connection,
        patch.object(parking, "_MAX_OPENED", opened),
        patch.object(claim, "_MAX_OPENED_JOBS", opened),
    ):
        story = Story(Tables(connection))
        for step in steps:
            story.take(step)


@given(st.lists(STEPS, max_size=40), OPENED)
def test_both_scans_choose_the_same_jobs(steps: Sequence[tuple[object, ...]], opened: int) -> None:
    """The scan in claim order, the scan by lane, and a scan in claim order that is given up at once in favour of the other."""
    with ExitStack() as stack:
        stack.enter_context(patch.object(parking, "_MAX_OPENED", opened))
        stack.enter_context(patch.object(claim, "_MAX_OPENED_JOBS", opened))
        stories = []
        for by_lane in (False, True, None):
            connection = stack.enter_context(closing(sqlite3.connect(":memory:", isolation_level=None)))
            stories.append(Story(Tables(connection, by_lane=by_lane)))
        for step in steps:
            answers = [story.take(step) for story in stories[:2]]
            with patch.object(selection, "_MAX_SKIPPED", -1_000_000), patch.object(claim, "_CLAIMS_BY_LANE", 0):
                answers.append(stories[2].take(step))
            assert answers[0] == answers[1] == answers[2]


class Round(NamedTuple):
    """New jobs, a gate of their key, some seconds, and a claim."""

    jobs: int
    key: str
    queue: str
    priority: int
    gate: Gate
    seconds: int
    room: int
    fields: dict[str, object]


ONE_BY_KEY = Gate(scope=Scope.KEY, name="a", concurrency=1)
OF_KEY = [
    Gate(scope=Scope.KEY, name="a", concurrency=concurrency, rate=rate)
    for concurrency, rate in [(1, None), (4, None), (25, None), (None, FAST), (25, FAST)]
]
OF_ONE_PLACE = [ONE_BY_KEY, Gate(scope=Scope.KEY, name="a", rate=Rate(count=1, period=timedelta(seconds=2)))]
SMALL_ROUNDS = st.builds(
    Round,
    st.integers(1, 3),
    st.sampled_from("vwxyz"),
    st.sampled_from(["default", "default", "default", "other"]),
    st.just(50),
    st.sampled_from([*OF_ONE_PLACE, OF_ONE_PLACE[1]]),
    st.integers(0, 4),
    st.integers(0, 3),
    st.sampled_from([{}, {}, {"tasks": frozenset({TASKS[1]})}, {"queues": {"default": 2}, "others": True}]),
)
ROUNDS = st.builds(
    Round,
    st.sampled_from([1, 3, 10, 40]),
    st.sampled_from(["x", "x", "y", "z"]),
    st.sampled_from(["default", "other"]),
    st.sampled_from([50, 50, 60]),
    st.sampled_from(OF_KEY),
    st.integers(0, 4),
    st.sampled_from([0, 2, 9, 50, 50]),
    st.sampled_from([{}, {}, {"tasks": frozenset({TASKS[1]})}, {"queues": {"default": 2}, "others": True}]),
)


@pytest.mark.parametrize(("unparked", "opened"), [(2, 1), (20, 1), (20, 1000)])
@given(rounds=st.lists(ROUNDS, max_size=12))
def test_jobs_of_keys_come_in_their_order(unparked: int, opened: int, rounds: Sequence[Round]) -> None:
    """Gates open for more jobs, and for more keys, than are unparked at once, and newer jobs come meanwhile."""
    with patch.object(gates, "_MAX_UNPARKED", unparked), patch.object(selection, "_MAX_BLOCKED", 10 * unparked):
        play(rounds, opened)


@given(rounds=st.lists(SMALL_ROUNDS, min_size=4, max_size=20))
def test_jobs_of_keys_with_one_place_come_in_their_order(rounds: Sequence[Round]) -> None:
    """Some keys are yet to be unparked when newer jobs of them are claimed."""
    play(rounds, opened=1)


def play(rounds: Sequence[Round], opened: int) -> None:
    """Let so many opened keys be unparked by one claim. In the end all of them have been."""
    with (
        closing(sqlite3.connect(":memory:", isolation_level=None)) as connection,
        patch.object(parking, "_MAX_OPENED", opened),
    ):
        tables = Tables(connection)
        story = Story(tables)
        for one in rounds:
            fields = {"key": one.key, "queue": one.queue, "priority": one.priority}
            tables.enqueue([tables.new(TASKS[0], **fields) for _ in range(one.jobs)])  # type: ignore[arg-type] # as drawn
            tables.declare(one.gate)
            tables.now += one.seconds * 1_000_000
            story.take(("claim", one.room, one.fields))
            story.take(("settle", 0, Succeeded(), False))
        for _ in {(one.key, one.queue, one.priority) for one in rounds}:
            tables.ask(room=0)
        assert opened_keys(tables) == 0


class Story:
    """Steps of many kinds, taken on one store."""

    def __init__(self, tables: Tables) -> None:
        self.tables = tables
        self.running: list[Claim] = []
        self.kept: list[Place] = []

    def take(self, step: tuple[object, ...]) -> object:
        """Take a step; returns what a claim has given, and when there will be more."""
        tables = self.tables
        match step:
            case "enqueue", list(jobs):
                tables.enqueue(
                    [
                        tables.new(task, key=key, delay=delay, priority=priority, unique=unique)
                        for task, key, delay, priority, unique in jobs
                    ]
                )
            case "add", int(jobs), task, key, delay:
                tables.enqueue([tables.new(task, key=key, delay=delay) for _ in range(jobs)])  # type: ignore[arg-type] # drawn from TASKS and KEYS
            case "claim", int(room), dict(fields):
                claimed = tables.ask(room=room, **fields)
                self.running += [one.claim for one in claimed.deliveries]
                due = claimed.next_due
                return [one.claim.job.id for one in claimed.deliveries], due and max(due, instant(tables.now))
            case "settle", int(place), outcome, bool(keeps_place) if self.running:
                ended = self.running.pop(place % len(self.running))
                tables.settle(ended, outcome, keeps_place=keeps_place)  # type: ignore[arg-type] # drawn from OUTCOMES
                if keeps_place:
                    self.kept.append(Place(ended.job.id, ended.job.lease))
            case "command", int(place), word:
                order(tables, place, word)  # type: ignore[arg-type] # drawn from COMMANDS
            case "declare", Gate() as gate:
                tables.declare(gate)
            case "pass", int(seconds):
                tables.now += seconds * 1_000_000
            case "pause", str(queue):
                with tables as session:
                    if not operate.resume(session, queue):
                        operate.pause(session, queue, "", "")
            case ("tidy",):
                with tables as session:
                    places.release(session, tables.node, self.kept)
                with tables as session:
                    prune.prune(session, 100)
                self.kept.clear()
            case _:
                pass  # nothing runs that could be settled
        return None


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


def test_jobs_of_many_lanes_and_keys_come_in_the_order_of_all(tables: Tables) -> None:
    """More keys than room, several jobs of each, and one key that has jobs in two lanes and room for one."""
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


@pytest.fixture
def file(tmp_path: Path) -> Iterator[tuple[Tables, Tables]]:
    """Two processes that work on one file."""
    with ExitStack() as stack:
        connections = [
            stack.enter_context(closing(sqlite3.connect(tmp_path / "jobs.db", isolation_level=None))) for _ in range(2)
        ]
        one, other = Tables(connections[0]), Tables.__new__(Tables)
        other.__dict__.update(vars(one), connection=connections[1], known=Known())
        yield one, other


def parked(tables: Tables) -> int:
    return int(tables.connection.execute("SELECT count(parked) FROM mainspring_jobs").fetchone()[0])


def keys(claimed: Sequence[Delivery]) -> list[str | None]:
    return [one.key for one in claimed]


def test_jobs_of_a_blocked_key_are_parked_once_and_come_in_their_order(tables: Tables) -> None:
    new = [tables.new(TASKS[0], key="x", delay=-number) for number in range(9)]
    tables.declare(ONE_BY_KEY)
    tables.enqueue([*new, tables.new(TASKS[0])])
    order = []
    for left in range(8, -1, -1):
        (first, *others) = tables.claim(room=5)
        assert keys(others) == ([None] if left == 8 else [])
        assert parked(tables) == left
        order.append(first.claim.job.id)
        tables.settle(first.claim, Succeeded())
        assert parked(tables) == max(0, left - 1)

    assert order == [job.id for job in reversed(new)]
    assert tables.rows("SELECT * FROM mainspring_parked_keys") == []


@pytest.mark.parametrize("word", [CancelJob(), DeleteJob(), MoveJob(queue="other"), MoveJob(priority=10)])
def test_a_free_place_goes_to_the_next_job_if_the_first_one_leaves(tables: Tables, word: Command) -> None:
    tables.declare(ONE_BY_KEY)
    tables.enqueue([tables.new(TASKS[0], key="x", delay=-number) for number in range(5)])
    (running,) = tables.claim(room=9)
    assert parked(tables) == 4
    tables.settle(running.claim, Succeeded())
    (first,) = tables.rows("SELECT id FROM mainspring_jobs WHERE rank IS NOT NULL")
    everything = [id_ for (id_,) in tables.rows("SELECT id FROM mainspring_jobs ORDER BY id")]
    order(tables, everything.index(first[0]), word)

    (following,) = tables.claim(room=1, queues={"default": 9})
    assert following.claim.job.priority == 50
    assert following.claim.job.id.bytes != first[0]


def test_a_rate_that_has_been_open_for_long_lets_a_whole_burst_of_parked_jobs_start(tables: Tables) -> None:
    rate = Rate(count=1, period=timedelta(seconds=10), burst=30)
    tables.declare(Gate(scope=Scope.KEY, name="a", rate=rate))
    tables.enqueue([tables.new(TASKS[0], key="x", delay=-1) for _ in range(100)])
    assert len(tables.claim(room=99)) == 30
    assert parked(tables) == 70
    asked = tables.ask(room=99)
    assert (asked.deliveries, asked.next_due) == ((), instant(tables.now + 10_000_000))

    tables.now += 10_000_000
    tables.claim(room=0)  # unparks the first job only
    tables.now += 1_000_000_000
    assert len(tables.claim(room=99)) == 30


@pytest.mark.parametrize("by_lane", [False, True, None])
def test_a_claim_parks_some_jobs_and_leaves_the_rest_to_the_next_ones(tables: Tables, by_lane: bool | None) -> None:
    tables.by_lane = by_lane
    tables.declare(ONE_BY_KEY)
    blocked = [tables.new(TASKS[0], key="x", delay=-9, priority=60) for _ in range(250)]
    free = [tables.new(TASKS[0], key=key, delay=-8) for key in (None, "y", None)]
    tables.enqueue([*blocked, *free])
    seen = []
    with patch.object(selection, "_MAX_BLOCKED", 100):
        for _ in range(4):
            claimed = tables.ask(room=9)
            due = claimed.next_due and claimed.next_due <= instant(tables.now)
            seen.append((ids(claimed.deliveries), parked(tables), due))

    first = in_order(blocked)[:1]
    assert seen == [(first, 100, True), ([], 200, True), (in_order(free), 249, None), ([], 249, None)]


def test_jobs_of_a_key_whose_gate_is_taken_away_are_claimed_in_their_order(tables: Tables) -> None:
    new = [tables.new(TASKS[0], key="x", delay=-number) for number in range(200)]
    tables.declare(ONE_BY_KEY)
    tables.enqueue(new)
    order = [one.claim.job.id for one in tables.claim(room=9)]
    tables.declare(Gate(scope=Scope.KEY, name="a"))
    while claimed := tables.claim(room=70):
        order += [one.claim.job.id for one in claimed]

    assert order == [job.id for job in reversed(new)]
    assert parked(tables) == 0


def in_order(new: Sequence[NewJob]) -> list[JobId]:
    """Return the ids of jobs that were enqueued together, with one priority."""
    return [job.id for job in sorted(new, key=lambda job: (job.run_at, job.id))]


def ids(claimed: Sequence[Delivery]) -> list[JobId]:
    return [one.claim.job.id for one in claimed]


def test_newer_jobs_of_a_key_do_not_take_the_places_of_parked_ones(tables: Tables) -> None:
    """The gate has room for more jobs than were unparked when it was changed."""
    tables.declare(ONE_BY_KEY)
    old = [tables.new(TASKS[0], key="x", delay=-9) for _ in range(100)]
    tables.enqueue(old)
    first = ids(tables.claim(room=100))
    assert parked(tables) == 99
    tables.enqueue([tables.new(TASKS[0], key="x", queue=queue) for queue in ("default", "other") for _ in range(20)])
    tables.declare(replace(ONE_BY_KEY, concurrency=31))
    first += ids(tables.claim(room=100))

    assert first == in_order(old)[:31]


def test_parked_jobs_of_another_lane_come_before_newer_jobs_of_their_key(tables: Tables) -> None:
    """Each lane has one claimable job when the gate opens, and the newer job of one lane would take the last place."""
    tables.declare(ONE_BY_KEY)
    (running,) = enqueue_and_claim(tables, [tables.new(TASKS[0], key="x", delay=-99)])
    old = [tables.new(TASKS[0], key="x", delay=-9, queue="other") for _ in range(30)]
    tables.enqueue([*old, tables.new(TASKS[0], key="x", delay=-8)])
    assert tables.claim(room=9) == ()
    tables.settle(running, Succeeded())
    tables.declare(replace(ONE_BY_KEY, concurrency=28))

    assert ids(tables.claim(room=99)) == in_order(old)[:28]


def test_parked_jobs_of_a_key_come_before_newer_jobs_without_one(tables: Tables) -> None:
    tables.declare(ONE_BY_KEY)
    (running,) = enqueue_and_claim(tables, [tables.new(TASKS[0], key="x", delay=-99)])
    old = [tables.new(TASKS[0], key="x", delay=-9) for _ in range(30)]
    tables.enqueue(old)
    assert tables.claim(room=9) == ()
    tables.settle(running, Succeeded())
    tables.enqueue([tables.new(TASKS[0]) for _ in range(30)])
    tables.declare(replace(ONE_BY_KEY, concurrency=50))

    assert ids(tables.claim(room=25)) == in_order(old)[:25]


def enqueue_and_claim(tables: Tables, new: Sequence[NewJob]) -> list[Claim]:
    tables.enqueue(new)
    return [one.claim for one in tables.claim(room=len(new))]


def test_the_rate_of_a_key_that_opens_for_a_claim_of_another_task_keeps_the_order(tables: Tables) -> None:
    tables.declare(Gate(scope=Scope.KEY, name="a", rate=FAST))
    enqueue_and_claim(tables, [tables.new(TASKS[0], key="x", delay=-9) for _ in range(5)])
    old = [tables.new(TASKS[0], key="x") for _ in range(6)]
    tables.enqueue(old)
    assert tables.claim(room=20) == ()
    tables.now += 1_000_000
    assert tables.claim(room=5, tasks=frozenset({TASKS[1]})) == ()
    tables.now += 2_000_000
    tables.enqueue([tables.new(TASKS[0], key="x") for _ in range(3)])

    assert ids(tables.claim(room=20)) == in_order(old)[:3]


def test_the_rate_of_a_key_that_opens_while_its_queue_is_paused_keeps_the_order(tables: Tables) -> None:
    tables.declare(Gate(scope=Scope.KEY, name="a", rate=FAST))
    enqueue_and_claim(tables, [tables.new(TASKS[0], key="x", delay=-9) for _ in range(5)])
    old = [tables.new(TASKS[0], key="x") for _ in range(6)]
    tables.enqueue(old)
    assert tables.claim(room=20) == ()
    pause(tables, "default")
    tables.now += 1_000_000
    assert tables.claim(room=20) == ()  # unparks the first job only
    tables.now += 2_000_000
    tables.enqueue([tables.new(TASKS[0], key="x") for _ in range(3)])
    with tables as session:
        operate.resume(session, "default")

    assert ids(tables.claim(room=20)) == in_order(old)[:3]


def opened_keys(tables: Tables) -> int:
    """Count the lanes and keys of parked jobs that the next claims unpark."""
    rows = tables.connection.execute("SELECT 1 FROM mainspring_parked_keys WHERE opens_at <= ?", (tables.now,))
    return len(rows.fetchall())


TEN_SECONDS = Gate(scope=Scope.KEY, name="a", rate=Rate(count=1, period=timedelta(seconds=10)))


def park_jobs_of_many_keys(tables: Tables, gate: Gate, keys: int, *, queue: str = "default") -> list[Claim]:
    """Let one job of each key start, and one be parked; returns those that have started."""
    tables.declare(gate)
    new = [tables.new(TASKS[0], key=f"k{number}", delay=-9, queue=queue) for number in range(keys) for _ in "12"]
    started = enqueue_and_claim(tables, new)
    assert (len(started), parked(tables)) == (keys, keys)
    return started


@pytest.fixture
def unchecked() -> Iterator[None]:
    """Transactions after which the tables are not looked over, which takes long with thousands of keys."""
    with patch.object(Tables, "look_over"), patch.object(Tables, "look_at_order"):
        yield


@pytest.mark.usefixtures("unchecked")
def test_one_claim_unparks_the_jobs_of_some_keys_and_leaves_the_rest_to_the_next_ones(tables: Tables) -> None:
    park_jobs_of_many_keys(tables, TEN_SECONDS, 2500)
    tables.now += 10_000_000
    seen = []
    for _ in range(4):
        claimed = tables.ask(room=2)
        due = claimed.next_due and claimed.next_due <= instant(tables.now)
        seen.append((len(claimed.deliveries), parked(tables), opened_keys(tables), due))

    assert seen == [(2, 1500, 1500, True), (2, 500, 500, True), (2, 0, 0, True), (2, 0, 0, True)]


def test_a_claim_that_leaves_keys_to_the_next_one_asks_for_it_at_once(tables: Tables) -> None:
    park_jobs_of_many_keys(tables, TEN_SECONDS, 5)
    pause(tables, "default")
    tables.now += 10_000_000
    with patch.object(parking, "_MAX_OPENED", 2):
        dues = [tables.ask(room=9).next_due for _ in range(3)]

    assert dues == [instant(tables.now), instant(tables.now), None]
    assert opened_keys(tables) == 0


def test_one_claim_unparks_a_bounded_number_of_jobs(tables: Tables) -> None:
    """A gate is raised: each key may have 20 jobs of each lane back."""
    tables.declare(ONE_BY_KEY)
    enqueue_and_claim(tables, [tables.new(TASKS[0], key=f"k{key}", delay=-9) for _ in range(5) for key in range(6)])
    waiting = parked(tables)
    tables.declare(replace(ONE_BY_KEY, concurrency=5))
    left = [waiting]
    with patch.object(claim, "_MAX_OPENED_JOBS", 8):
        while left[-1]:
            claimed = tables.ask(room=1)
            assert len(claimed.deliveries) == 1
            assert claimed.next_due is not None
            assert claimed.next_due <= instant(tables.now)
            left.append(parked(tables))

    assert waiting == 24
    assert max(before - after for before, after in pairwise(left)) <= 8


def test_keys_that_opened_first_are_unparked_first_whatever_their_task_is(tables: Tables) -> None:
    tables.declare(TEN_SECONDS, replace(TEN_SECONDS, name="b"))
    for number in range(6):
        task = TASKS[number % 2]
        enqueue_and_claim(tables, [tables.new(task, key=f"k{number}", delay=-9) for _ in "12"])
        tables.now += 1_000_000
    tables.now += 10_000_000
    found = []
    with patch.object(parking, "_MAX_OPENED", 2):
        for _ in range(3):
            found += keys(tables.claim(room=2))

    assert sorted(found, key=str) == [f"k{number}" for number in range(6)]
    assert [{*found[n : n + 2]} for n in (0, 2, 4)] == [{"k0", "k1"}, {"k2", "k3"}, {"k4", "k5"}]


@pytest.mark.parametrize("by_lane", [False, True])
@pytest.mark.parametrize("queue", ["default", "other"])
def test_a_newer_job_does_not_overtake_one_of_its_key_that_is_yet_to_be_unparked(
    tables: Tables, queue: str, by_lane: bool
) -> None:
    """The claim takes one job of the key, which has room for one."""
    tables.by_lane = by_lane
    tables.declare(TEN_SECONDS)
    old = {key: [tables.new(TASKS[0], key=key, delay=-9) for _ in "12"] for key in ("x", "y")}
    for new in old.values():
        enqueue_and_claim(tables, new)
        tables.now += 1_000_000
    assert parked(tables) == 2
    tables.now += 10_000_000
    newer = [tables.new(TASKS[0], key="y", queue=queue), tables.new(TASKS[0], key="y")]
    tables.enqueue(newer)
    with patch.object(parking, "_MAX_OPENED", 1):
        first = tables.claim(room=2)
        assert opened_keys(tables) == 0

    assert ids(first) == [in_order(old[key])[1] for key in ("x", "y")]


def statements_of(tables: Tables, verb: Callable[[Session], object]) -> int:
    """Count the statements that a verb runs."""
    counted = count()
    with tables as session:
        tables.connection.set_trace_callback(lambda _: next(counted))
        verb(session)
        tables.connection.set_trace_callback(None)
    return next(counted)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("gate", [Gate(scope=Scope.KEY, name="a"), Gate(scope=Scope.KEY, name="a", concurrency=2)])
def test_a_gate_is_changed_with_the_same_statements_for_any_number_of_keys(gate: Gate) -> None:
    needed = []
    for number in (3, 300):
        with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
            tables = Tables(connection)
            park_jobs_of_many_keys(tables, ONE_BY_KEY, number)
            needed.append(statements_of(tables, lambda session: gates.declare(session, [gate])))
            assert len(tables.claim(room=999)) == number

    assert needed[0] == needed[1]


def test_jobs_of_keys_whose_gate_was_changed_are_unparked_by_the_next_claims(tables: Tables) -> None:
    park_jobs_of_many_keys(tables, ONE_BY_KEY, 5)
    tables.declare(Gate(scope=Scope.KEY, name="a"))
    tables.now -= 30_000_000  # the clock is set back
    with patch.object(parking, "_MAX_OPENED", 2):
        for left in (3, 1, 0):
            assert tables.claim(room=0) == ()
            assert parked(tables) == left
    tables.now += 30_000_000

    assert len(tables.claim(room=9)) == 5


def pause(tables: Tables, queue: str) -> None:
    with tables as session:
        operate.pause(session, queue, "", "")


def test_jobs_that_were_blocked_only_by_jobs_which_are_not_taken_after_all_are_not_parked(tables: Tables) -> None:
    tables.declare(Gate(scope=Scope.KEY, name="a", rate=Rate(count=1, period=timedelta(seconds=10), burst=2)))
    tables.enqueue([tables.new(TASKS[0], key="x", delay=-50) for _ in range(4)])
    assert keys(tables.claim(room=9)) == ["x", "x"]
    tables.now += 10_000_000
    assert tables.claim(room=0) == ()  # unparks the third job of "x", as the only one that could start by now
    tables.now += 10_000_000
    tables.enqueue([tables.new(TASKS[0], key="y", delay=-9, queue=queue) for queue in ("first", "default", "other")])
    assert keys(tables.claim(room=1, queues={"first": 1})) == ["y"]

    # At first it is "x", "y", which blocks the last job; then the fourth job of "x" is unparked.
    assert keys(tables.claim(room=2)) == ["x", "x"]
    assert parked(tables) == 0
    assert keys(tables.claim(room=3, queues={"other": 3})) == ["y"]


def test_what_one_process_parks_another_one_unparks(file: tuple[Tables, Tables]) -> None:
    one, other = file
    one.declare(ONE_BY_KEY)
    one.enqueue([one.new(TASKS[0], key="x") for _ in range(3)])
    (running,) = one.claim(room=9)
    assert parked(other) == 2
    assert other.claim(room=9) == ()
    other.settle(running.claim, Succeeded())

    assert len(one.claim(room=9)) == 1


@pytest.mark.parametrize("by_lane", [False, True])
def test_a_lane_that_another_process_adds_is_found_at_once(file: tuple[Tables, Tables], by_lane: bool) -> None:
    one, other = file
    one.by_lane = by_lane
    for number in range(3):
        assert one.claim(room=9) == ()
        other.enqueue([other.new(TASKS[0], queue=f"q{number}")])
        (found,) = one.claim(room=9)
        assert found.claim.job.queue == f"q{number}"


DAMAGE = {
    "task name": "UPDATE mainspring_lanes SET task = 'a b' WHERE task = 'a'",
    "task of bytes": "UPDATE mainspring_lanes SET task = x'ff' WHERE task = 'a'",
    "priority": "UPDATE mainspring_lanes SET priority = 'high' WHERE task = 'a'",
    "care": "UPDATE mainspring_lanes SET suspect = 7 WHERE task = 'a'",
    "missing row": "DELETE FROM mainspring_lanes WHERE task = 'a'",
}


@pytest.mark.parametrize("by_lane", [False, True])
@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_a_lane_that_cannot_be_read_holds_back_only_its_own_jobs(
    tables: Tables, damage: str, by_lane: bool, caplog: pytest.LogCaptureFixture
) -> None:
    tables.by_lane = by_lane
    tables.enqueue([tables.new(TASKS[0], priority=60), *[tables.new(TASKS[1]) for _ in range(3)]])
    tables.enqueue([tables.new(TASKS[0], delay=5, priority=60), tables.new(TASKS[1], delay=9)])
    lanes = tables.rows("SELECT * FROM mainspring_lanes")
    tables.connection.execute(damage)
    tables.known = Known()  # as in a process that starts now
    with patch.object(tables, "look_over"):
        claimed = [tables.ask(room=1), tables.ask(room=9), tables.ask(room=9)]

    assert [len(one.deliveries) for one in claimed] == [1, 2, 0]
    assert claimed[-1].next_due == instant(tables.now + 9_000_000)
    if damage.startswith("DELETE") and by_lane:
        return  # then its jobs are not met
    assert caplog.text.count("lane 1 cannot be read") == 1

    tables.connection.executemany("INSERT OR REPLACE INTO mainspring_lanes VALUES (?, ?, ?, ?, ?)", lanes)
    assert [one.claim.job.task for one in tables.claim(room=9)] == [TASKS[0]]
    tables.now += 5_000_000
    assert [one.claim.job.task for one in tables.claim(room=9)] == [TASKS[0]]


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_jobs_of_a_lane_that_cannot_be_read_are_deleted_with_others(tables: Tables, damage: str) -> None:
    jobs = [tables.new(task, key="k", unique=UniqueKey(key="one")) for task in TASKS[:2]]
    tables.enqueue(jobs)
    tables.connection.execute(damage)
    tables.known = Known()  # as in a process that starts now
    with patch.object(tables, "look_over"), tables as session:
        delete.delete(session, [1, 2])

    assert tables.rows("SELECT number FROM mainspring_jobs UNION ALL SELECT number FROM mainspring_payloads") == []
    with patch.object(tables, "look_over"):
        tables.enqueue([tables.new(TASKS[1], unique=UniqueKey(key="one"))])
        assert [one.claim.job.task for one in tables.claim(room=9)] == [TASKS[1]]


def test_parked_jobs_of_a_lane_that_cannot_be_read_come_back_when_it_is_corrected(tables: Tables) -> None:
    tables.declare(ONE_BY_KEY)
    tables.enqueue(
        [tables.new(TASKS[0], key="x", queue=queue, priority=n) for n, queue in enumerate(("other", "default"))]
    )
    (running,) = tables.claim(room=9)
    assert (running.claim.job.queue, parked(tables)) == ("default", 1)
    tables.connection.execute("UPDATE mainspring_lanes SET task = 'a b' WHERE queue = 'other'")
    tables.known = Known()
    tables.settle(running.claim, Succeeded())
    assert tables.claim(room=9) == ()
    tables.connection.execute("UPDATE mainspring_lanes SET task = 'a' WHERE queue = 'other'")

    assert [one.claim.job.queue for one in tables.claim(room=9)] == ["other"]


@pytest.mark.parametrize("by_lane", [False, True])
@pytest.mark.parametrize("value", [0.5, 1e12 + 0.5, 1e30, "soon", b"soon"])
def test_a_due_time_that_is_no_integer_holds_back_no_other_job(
    tables: Tables, value: float | str | bytes, by_lane: bool
) -> None:
    """The job is claimed, with an error if its time cannot be decoded, and no claim is asked to be repeated for ever."""
    tables.by_lane = by_lane
    tables.enqueue([tables.new(TASKS[0]) for _ in range(3)])
    time = tables.now + value if isinstance(value, float) else value
    tables.connection.execute("UPDATE mainspring_jobs SET run_at = ? WHERE number = 1", (time,))
    with patch.object(tables, "look_at_order"):
        claimed = [tables.ask(room=9) for _ in range(4)]

    assert sum(len(one.deliveries) for one in claimed) == 3
    assert claimed[-1] == Claimed(deliveries=())


@pytest.mark.parametrize("by_lane", [False, True])
def test_a_parked_job_whose_due_time_is_no_number_holds_back_no_other(tables: Tables, by_lane: bool) -> None:
    tables.by_lane = by_lane
    tables.declare(Gate(scope=Scope.KEY, name="a", concurrency=2))
    tables.enqueue([tables.new(TASKS[0], key="x", delay=-9) for _ in range(6)])
    running = tables.claim(room=9)
    tables.connection.execute(
        "UPDATE mainspring_jobs SET run_at = 'soon' WHERE number = (SELECT max(number) FROM mainspring_jobs WHERE parked IS NOT NULL)"
    )
    claimed = 2
    with patch.object(tables, "look_over"), patch.object(tables, "look_at_order"):
        for _ in range(9):
            for one in running:
                tables.settle(one.claim, Succeeded())
            running = tables.claim(room=9)
            claimed += len(running)

    assert claimed == 6


@pytest.mark.parametrize("by_lane", [False, True, None])
@pytest.mark.parametrize("left", [0, 2])
def test_a_job_without_a_payload_holds_back_no_other(tables: Tables, left: int, by_lane: bool | None) -> None:
    tables.by_lane = by_lane
    tables.enqueue([tables.new(TASKS[0], delay=-9, queue="paused") for _ in range(5)])
    pause(tables, "paused")
    damaged = [tables.new(TASKS[0], delay=-8) for _ in range(3)]
    others = [tables.new(TASKS[0], delay=-7) for _ in range(left)]
    tables.enqueue([*damaged, *others])
    with patch.object(tables, "look_over"), patch.object(tables, "look_at_order"):
        tables.connection.execute("DELETE FROM mainspring_payloads WHERE number BETWEEN 6 AND 8")
        claimed = [tables.ask(room=1) for _ in range(left + 1)]

    assert [one.claim.job.id for answer in claimed for one in answer.deliveries] == in_order(others)
    assert claimed[-1].next_due is None


def test_lanes_that_were_rolled_back_are_not_remembered(tables: Tables) -> None:
    tables.by_lane = True
    request = ClaimRequest(node=tables.node, term=tables.term, tasks=frozenset(TASKS), room=9)
    with pytest.raises(ZeroDivisionError), tables as session:
        enqueue.enqueue(session, [tables.new(TASKS[0], queue="gone")])
        assert len(claim.claim(session, request).deliveries) == 1
        raise ZeroDivisionError
    tables.enqueue([tables.new(TASKS[1], queue="came")])  # under the number of the lane that is gone

    assert [one.claim.job.queue for one in tables.claim(room=9)] == ["came"]


def scans_in_order() -> AbstractContextManager[Mock]:
    return patch.object(claim, "scan_in_order", wraps=selection.scan_in_order)


def test_after_a_scan_in_vain_claims_scan_by_lane_for_a_while(tables: Tables) -> None:
    asked: list[bool] = []
    here = ClaimRequest(node=tables.node, term=tables.term, tasks=frozenset({TASKS[0]}))
    tables.enqueue([tables.new(TASKS[1], delay=-9) for _ in range(2000)])
    tables.enqueue([tables.new(TASKS[0]) for _ in range(40)])
    for _ in range(36):
        with tables as session, scans_in_order() as scan:
            assert len(claim.claim(session, here).deliveries) == 1
        asked.append(scan.called)

    assert asked == [True, *[False] * 32, True, False, False]


def test_a_claim_that_chooses_again_counts_as_one_scan_by_lane(tables: Tables) -> None:
    tables.declare(Gate(scope=Scope.KEY, name="a", rate=Rate(count=1, period=timedelta(seconds=10), burst=9)))
    tables.enqueue([tables.new(TASKS[0], key="x", delay=-9) for _ in range(99)])
    assert len(tables.claim(room=99)) == 9
    tables.now += 10_000_000
    assert tables.claim(room=0) == ()  # unparks the first job only
    tables.now += 50_000_000
    tables.known.of_request(tables.request()).claims_by_lane = 3
    with scans_in_order() as scan, patch.object(claim, "scan_by_lane", wraps=selection.scan_by_lane) as by_lane:
        assert len(tables.claim(room=99)) == 6

    assert (scan.called, by_lane.call_count) == (False, 2)
    assert tables.known.of_request(tables.request()).claims_by_lane == 2


def test_a_node_with_queues_of_its_own_scans_by_lane_and_others_do_not(tables: Tables) -> None:
    tables.enqueue([tables.new(TASKS[0]) for _ in range(3)])
    for fields, in_order in (
        ({"queues": {"default": 1}}, False),
        ({"queues": {"x": 1}, "others": True}, True),
        ({}, True),
    ):
        with scans_in_order() as scan:
            assert len(tables.claim(**fields)) == 1
        assert scan.called == in_order


HALF = 1000


def effort(prepare: Callable[[Tables], None], **fields: object) -> int:
    """Count the hundreds of steps that SQLite's machine takes for a claim of two, which is not the first one."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        tables = Tables(connection)
        prepare(tables)
        tables.enqueue([tables.new(TASKS[0]) for _ in range(9)])
        wanted: dict[str, object] = {"tasks": frozenset({TASKS[0]}), "room": 2, **fields}
        assert tables.claim(**wanted)
        found: list[Delivery] = []
        steps = steps_of(
            tables, lambda session: found.extend(claim.claim(session, tables.request(**wanted)).deliveries)
        )
        assert keys(found) == [None, None]
        return steps


def steps_of(tables: Tables, verb: Callable[[Session], object]) -> int:
    """Count the hundreds of steps that SQLite's machine takes for a verb."""
    steps = count()

    def step() -> None:
        next(steps)

    with tables as session:
        tables.connection.set_progress_handler(step, 100)
        verb(session)
        tables.connection.set_progress_handler(None, 0)
    return next(steps)


def in_front(tables: Tables, **fields: object) -> None:
    tables.enqueue([tables.new(TASKS[0], **{"delay": -100, **fields}) for _ in range(HALF * 2)])  # type: ignore[arg-type] # as above


def of_another_task(tables: Tables) -> None:
    tables.enqueue([tables.new(TASKS[1], delay=-100) for _ in range(HALF * 2)])


def of_a_paused_queue(tables: Tables) -> None:
    in_front(tables, queue="paused")
    pause(tables, "paused")


def behind_a_full_queue(tables: Tables) -> None:
    tables.declare(Gate(scope=Scope.QUEUE, name="full", concurrency=1))
    in_front(tables, queue="full")
    assert len(tables.claim(queues={"full": 9}, room=9)) == 1


def behind_a_full_key(tables: Tables) -> None:
    tables.declare(ONE_BY_KEY)
    in_front(tables, key="x")
    assert len(tables.claim(room=9)) == 1


def later(tables: Tables) -> None:
    in_front(tables, delay=100, priority=90)


def in_many_queues(tables: Tables) -> None:
    tables.enqueue([tables.new(TASKS[0], delay=1 + number % 9, queue=f"q{number}") for number in range(HALF)])


@pytest.mark.parametrize(
    "obstacle", [of_another_task, of_a_paused_queue, behind_a_full_queue, behind_a_full_key, later, in_many_queues]
)
def test_a_claim_reads_no_job_that_it_does_not_give_out(obstacle: Callable[[Tables], None]) -> None:
    """The gates that some of them declare cost a little."""
    assert effort(obstacle) <= effort(lambda _: None) + 8


def behind_a_full_task(tables: Tables) -> None:
    tables.declare(Gate(scope=Scope.TASK, name="a", concurrency=1))


def behind_another_full_queue(tables: Tables) -> None:
    tables.declare(Gate(scope=Scope.QUEUE, name="default", concurrency=1))


def behind_a_breaker(tables: Tables) -> None:
    with tables as session:
        breakers.declare(session, {TASKS[0]: Breaker()})
        breakers.operate(session, TASKS[0], Phase.OPEN, term=None, by="me", reason="")


def in_a_paused_queue(tables: Tables) -> None:
    pause(tables, "default")


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("obstacle", "wait"),
    [(behind_a_full_task, None), (behind_a_breaker, None), (behind_another_full_queue, 10), (in_a_paused_queue, 10)],
)
def test_a_claim_that_gives_out_nothing_does_not_read_when_all_keys_open(
    obstacle: Callable[[Tables], None], wait: int | None
) -> None:
    """It asks for the next claim when the last key opens that was read, unless all of them wait for another job."""
    steps = []
    for number in (1500, 3000):
        with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
            tables = Tables(connection)
            (_, *others) = park_jobs_of_many_keys(tables, TEN_SECONDS, number)
            changes = [machine.decide(one, Succeeded(), instant(tables.now), 0.5) for one in others]
            with tables as session:
                settle.settle(session, [Settlement(change=change, by=tables.node) for change in changes])
            obstacle(tables)
            steps.append(steps_of(tables, partial(claim.claim, request=tables.request(room=9))))
            due = tables.ask(room=9).next_due
            assert due == (None if wait is None else instant(tables.now + wait * 1_000_000))

    assert steps[1] <= steps[0] + 4


def test_a_key_that_opens_behind_many_of_a_paused_queue_is_claimed_when_it_does(tables: Tables) -> None:
    """Before that, a claim may be asked for when the last key that was read opens."""
    park_jobs_of_many_keys(tables, TEN_SECONDS, 12, queue="paused")
    pause(tables, "paused")
    tables.now += 2_000_000
    enqueue_and_claim(tables, [tables.new(TASKS[0], key="x", delay=-9) for _ in "12"])
    seen = []
    with patch.object(claim, "_FEW_OPENINGS", 2), patch.object(claim, "_MAX_OPENINGS", 5):
        for _ in range(9):
            claimed = tables.ask(room=9)
            seen.append((tables.now - micros(START), keys(claimed.deliveries)))
            if claimed.deliveries:
                break
            assert claimed.next_due
            tables.now = micros(claimed.next_due)

    assert seen == [(2_000_000, []), (10_000_000, []), (12_000_000, ["x"])]


def test_a_node_of_a_quiet_queue_does_not_read_the_backlog_of_another(tables: Tables) -> None:
    del tables
    assert effort(in_front_of_another_queue, queues={"default": 9}) <= effort(lambda _: None) + 4


def in_front_of_another_queue(tables: Tables) -> None:
    in_front(tables, queue="busy")


def test_the_view_of_a_queue_counts_what_waits_and_runs(tables: Tables) -> None:
    with tables as session:
        enqueue.enqueue(session, [tables.new(TASKS[n % 2], key=KEYS[n % 3], priority=n) for n in range(10)])
    tables.claim(room=4)
    with tables as session:
        (view,) = inspect.queues(session)

    assert (view.name, view.waiting, view.running) == ("default", 6, 4)
