"""Lines of a claim: every job that a request may claim is in one of them, and jobs in other lines cost it nothing."""

import asyncio
import dataclasses
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from mainspring.core.breaker import Breaker, Circuit, Phase
from mainspring.core.job import JobId, NodeId
from mainspring.core.limits import Gate, Scope
from mainspring.core.names import Name
from mainspring.core.outcome import Lost
from mainspring.stores.circuits import Kept
from mainspring.stores.postgres.claim import widen
from mainspring.stores.postgres.claim_cache import ClaimCache
from mainspring.stores.postgres.lines import Line, LineIndex, RequestLines, Source, lines_of
from mainspring.stores.postgres.pick import pick
from mainspring.stores.postgres.positions import Positions, ReadEnd
from mainspring.stores.postgres.rules import LONG_AGO, Rules
from mainspring.stores.postgres.sight import (
    FIRST_ENTRIES_PER_SOURCE,
    MAX_ENTRIES,
    CandidateJob,
    ReadLimits,
    Sight,
    SourceRead,
    first_read_limits,
)
from mainspring.stores.postgres.statements import Statement, in_schema
from mainspring.stores.records import ClaimRequest
from tests.servers.postgres import Server
from tests.stores.postgres_crowd import SEND, Node, crowd, empty, end, lasting_schema, new
from tests.stores.postgres_staged import explained
from tests.stores.postgres_wires import on_real_time

NOW = datetime(2030, 1, 1, tzinfo=UTC)
TASKS = [Name("", name) for name in ("mail", "report", "resize")]
QUEUES = ["default", "mail", "slow"]
OTHER = Name("", "other")


# Which lines there are.


@st.composite
def rules(draw: st.DrawFn) -> Rules:
    named = [
        *((Scope.TASK, str(task)) for task in TASKS),
        *((Scope.KEY, str(task)) for task in TASKS),
        *((Scope.QUEUE, queue) for queue in QUEUES),
    ]
    gates = draw(st.sets(st.sampled_from(named), max_size=3))
    unclosed = draw(st.frozensets(st.sampled_from(TASKS), max_size=1))
    phase = draw(st.sampled_from([Phase.OPEN, Phase.HALF_OPEN]))
    opened_at = NOW - draw(st.sampled_from([timedelta(seconds=1), timedelta(hours=1)]))
    circuit = Circuit(phase=phase, term=1, opened_at=opened_at)
    rule = Breaker(threshold=1, cooldown=timedelta(minutes=1))
    return Rules(
        paused=draw(st.frozensets(st.sampled_from(QUEUES), max_size=1)),
        gates={(scope, name): Gate(scope=scope, name=name, concurrency=1) for scope, name in gates},
        breakers={task: Kept(task=task, rule=rule, circuit=circuit, since=LONG_AGO) for task in unclosed},
        unclosed=unclosed,
    )


@st.composite
def requests(draw: st.DrawFn) -> ClaimRequest:
    return ClaimRequest(
        node=NodeId("n"),
        term=1,
        tasks=draw(st.frozensets(st.sampled_from(TASKS), min_size=1)),
        queues=draw(st.none() | st.dictionaries(st.sampled_from(QUEUES), st.integers(0, 9))),
        others=draw(st.booleans()),
        room=draw(st.integers(0, 5)),
        ahead=draw(st.integers(0, 5)),
    )


def holds(request_lines: RequestLines, line: Line, task: Name, queue: str) -> bool:
    """Return whether jobs of a task in a queue are read in a line."""
    if line.kind is LineIndex.TASK and str(task) != line.name:
        return False
    if line.kind is LineIndex.QUEUE and queue != line.name:
        return False
    if queue in line.not_in_rest:
        return False
    subjects = (
        {(Scope.QUEUE, queue), (Scope.TASK, str(task))} if line.kind is LineIndex.SUSPECT else {(Scope.QUEUE, queue)}
    )
    named = line.named is None or queue in line.named
    return task in line.tasks and named and request_lines.left_out_of(line).isdisjoint(subjects)


@given(rules(), requests(), st.sampled_from([*TASKS, OTHER]), st.sampled_from([*QUEUES, "another"]))
def test_a_job_that_a_request_may_have_is_in_one_line_and_any_other_in_none(
    some: Rules, request: ClaimRequest, task: Name, queue: str
) -> None:
    request_lines = lines_of(some, request, NOW)
    refused = task in some.unclosed and some.refusal(task, NOW) is not None
    may_have = task in request.tasks and queue not in some.paused and request.room_in(queue) > 0 and not refused

    held = [line.kind is LineIndex.SUSPECT for line in request_lines.lines if holds(request_lines, line, task, queue)]
    assert sorted(held) == ([False, True] if may_have else [])


@given(rules(), requests(), st.sampled_from(TASKS), st.sampled_from(QUEUES), st.sampled_from([Scope.TASK, Scope.QUEUE]))
def test_jobs_behind_a_full_gate_are_only_in_the_line_of_that_gate(
    some: Rules, request: ClaimRequest, task: Name, queue: str, scope: Scope
) -> None:
    gate = scope, str(task) if scope is Scope.TASK else queue
    some = dataclasses.replace(some, gates={**some.gates, gate: Gate(scope=scope, name=gate[1], concurrency=1)})
    request_lines = lines_of(some, request, NOW, {gate})

    for line in (line for line in request_lines.lines if holds(request_lines, line, task, queue)):
        assert (line.kind, line.name) == (LineIndex(str(scope)), gate[1])


@given(rules(), requests())
def test_the_number_of_lines_depends_on_what_is_declared(some: Rules, request: ClaimRequest) -> None:
    lines = lines_of(some, request, NOW).lines
    assert len(lines) <= len(some.gates) + len(some.unclosed) + len(request.queues or ()) + 2


def sight_of(rules: Rules, request_lines: RequestLines, reads: list[SourceRead]) -> Sight:
    """Return what a claim has read, with all gates and breakers open."""
    return Sight(
        now=NOW,
        horizon=NOW,
        rules=rules,
        request_lines=request_lines,
        reads=reads,
        passages={},
        full=frozenset(),
        keyed={},
        began=Positions({}, 0, {}, 0.0),
        trials={},
    )


def test_a_claim_stops_in_front_of_jobs_that_were_not_read() -> None:
    """Of the higher priority, only jobs were read that the request may not claim; there may be others behind them."""
    request = ClaimRequest(node=NodeId("n"), term=1, tasks=frozenset(TASKS), room=1, suspects=0)
    request_lines = lines_of(Rules(), request, NOW)
    (line,) = request_lines.lines
    low = CandidateJob(10, NOW, JobId(UUID(int=1)), "default", TASKS[0], 0, None)
    sight = sight_of(
        Rules(),
        request_lines,
        [
            SourceRead(Source(line, 50), (), (NOW, UUID(int=9)), None, 1),
            SourceRead(Source(line, 10), [low], None, None, 1),
        ],
    )
    picked = pick(sight, request, {})

    assert picked.jobs == []
    assert picked.cut_short
    assert picked.ends == {
        Source(line, 50): ReadEnd((NOW, UUID(int=9)), is_end=False),
        Source(line, 10): ReadEnd(low.position),
    }


@pytest.mark.parametrize(("count", "behind"), [(20, 5_000), (50, 3_000), (50, 10_000), (2, 1_000_000)])
def test_one_claim_reads_a_bounded_number_of_entries_in_few_statements(count: int, behind: int) -> None:
    """Many tasks with limits, and behind a few jobs of each many in queues that the node does not serve."""
    tasks = [Name("", f"task_{number}") for number in range(count)]
    gates = {(Scope.TASK, str(task)): Gate(scope=Scope.TASK, name=str(task), concurrency=10) for task in tasks}
    request = ClaimRequest(node=NodeId("n"), term=1, tasks=frozenset(tasks), room=1000, suspects=0)
    cache = ClaimCache()
    cache.rules = Rules(gates=gates)
    request_lines = lines_of(cache.rules, request, NOW)
    read_limits: ReadLimits | None = first_read_limits(cache, request)
    statements = entries = 0
    while read_limits is not None:
        statements += 1
        reads = []
        for place, source in enumerate(cache.sources(request_lines.lines)):
            jobs = [
                CandidateJob(
                    50, NOW + timedelta(seconds=place * 10 + number), JobId(UUID(int=number)), "a", task, 0, None
                )
                for task in source.line.tasks
                for number in range(place % 3)
            ]
            limit = read_limits.entries_of(source)
            entries += min(limit, behind)
            reached = (NOW + timedelta(seconds=place * 10 + 5), UUID(int=9)) if limit < behind else None
            reads.append(SourceRead(source, jobs, reached, None, read_limits.most))
        sight = sight_of(cache.rules, request_lines, reads)
        picked = pick(sight, request, {})
        read_limits = widen(read_limits, sight, picked, request.room)

    assert statements <= 4
    assert entries <= 2 * MAX_ENTRIES + count * 2 * (FIRST_ENTRIES_PER_SOURCE + 4 * request.room)


# What is read.


@pytest.fixture(scope="module")
def schema(postgres: Server) -> Iterator[str]:
    with lasting_schema(postgres) as name:
        yield name


@pytest.fixture
def postgres_schema(postgres: Server, schema: str) -> str:
    empty(postgres, schema)
    return schema


async def entries_of(node: Node, room: int = 5, queues: dict[str, int] | None = None) -> tuple[int, int]:
    """Claim; return how many jobs that gave, and how many rows of `jobs` it read."""
    claimed, plans = await explained(node.claim(room, queues=queues))
    scans = [one for plan in plans for one in plan if one.get("Relation Name") == "jobs"]
    rows = sum(
        int((scan.get("Actual Rows") + scan.get("Rows Removed by Filter", 0)) * scan.get("Actual Loops"))
        for scan in scans
    )
    return len(claimed.deliveries), rows


@on_real_time
async def test_a_node_of_a_quiet_queue_does_not_read_the_backlog_of_another(
    postgres: Server, postgres_schema: str
) -> None:
    async with crowd(postgres, postgres_schema) as those:
        node = await those.node(tasks=[SEND, OTHER])
        await node.store.enqueue([new(queue="busy") for _ in range(3000)])
        await node.store.enqueue([new(queue="quiet") for _ in range(3)])

        given, read = await entries_of(node, queues={"quiet": 100})
        assert given == 3
        assert read < 100
        given, read = await entries_of(node, queues={"quiet": 100})
        assert given == 0
        assert read < 100


@pytest.mark.parametrize("obstacle", ["of another task", "in a paused queue", "behind a full limit"])
@on_real_time
async def test_jobs_in_front_that_may_not_run_are_stepped_over(
    postgres: Server, postgres_schema: str, obstacle: str
) -> None:
    async with crowd(postgres, postgres_schema) as those:
        node = await those.node(tasks=[SEND, Name("", "free"), Name("", "limited")])
        task = {"of another task": OTHER, "behind a full limit": Name("", "limited")}.get(obstacle, SEND)
        queue = "paused" if obstacle == "in a paused queue" else "default"
        await node.store.declare([Gate(scope=Scope.TASK, name="limited", concurrency=1)])
        await node.store.pause("paused")
        since = node.store.now() - timedelta(hours=1)
        await node.store.enqueue([new(task, queue=queue, run_at=since) for _ in range(3000)])
        await node.store.enqueue([new(Name("", "free"), run_at=since) for _ in range(12)])
        if obstacle == "behind a full limit":
            assert len(await node.take(1)) == 1

        assert len(await node.take(5)) == 5
        given, read = await entries_of(node)
        assert given == 5
        assert read < 300
        assert len(await node.take(5)) == 2


@on_real_time
async def test_claimers_of_one_queue_get_different_jobs_with_two_statements_at_most(
    postgres: Server, postgres_schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with crowd(postgres, postgres_schema) as those:
        nodes = [await those.node() for _ in range(12)]
        await nodes[0].store.enqueue([new() for _ in range(600)])
        for node in nodes:  # reads the rules, and the priorities
            await node.claim(0)
        statements: list[str] = []

        def watched(statement: Statement, schema: str) -> str:
            statements.append(statement.name)
            return in_schema(statement, schema)

        async def work(node: Node) -> list[JobId]:
            return [one.claim.job.id for _ in range(5) for one in await node.take(10)]

        monkeypatch.setattr("mainspring.stores.postgres.drive.in_schema", watched)
        found = await asyncio.gather(*map(work, nodes))

        jobs = [job for each in found for job in each]
        assert len(jobs) == len(set(jobs)) == 600
        assert len(statements) <= 2 * 60, statements


@on_real_time
async def test_a_job_that_was_lost_too_often_is_claimed_in_its_turn_amid_a_backlog(
    postgres: Server, postgres_schema: str
) -> None:
    """Suspects are in an index of their own, which claims of a backlog do not read as long as there are none."""
    async with crowd(postgres, postgres_schema) as those:
        node, doomed = await those.node(), await those.node()
        await node.store.enqueue([new(loss_limit=2) for _ in range(30)])
        (lost,) = await doomed.take(1)
        for _ in range(2):
            assert len(await node.take(5)) == 5
        assert await node.store.declare_dead(doomed.id, doomed.term)
        await node.store.settle([replace(end(lost, Lost(), node.store.now()), by=node.id)])

        assert [one.claim.job.id for one in await node.take(1)] == [lost.claim.job.id]
        assert len(await node.take(30)) == 19
