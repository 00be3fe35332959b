"""Every statement is served by the indexes that it names, whatever PostgreSQL believes about its tables."""

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterator, Sequence
from datetime import timedelta
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import psycopg
import pytest
from msgspec.structs import replace

from mainspring.clock import SystemClock
from mainspring.core.command import CancelJob, DeleteJob
from mainspring.core.machine import command
from mainspring.core.names import Name
from mainspring.core.outcome import Succeeded
from mainspring.core.schedule import Overlap
from mainspring.core.steps import pause, remove
from mainspring.core.unique import UniqueKey
from mainspring.stores.outbox import Aside, LetterFilter, LetterState, NewLetter
from mainspring.stores.postgres import PostgresStore, connect
from mainspring.stores.postgres.connect import wanted
from mainspring.stores.postgres.settings import Settings
from mainspring.stores.postgres.statements import in_schema, qualified, statement
from mainspring.stores.records import Move, Note, RunFilter, Settlement
from tests.servers.postgres import Server
from tests.stores import postgres_outboxes as boxes
from tests.stores.postgres_crowd import FATAL, RAISED, Crowd, Node, crowd, end, lasting_schema, new
from tests.stores.postgres_filled import TASKS, analyze, clear, fill, forget_rows, leave_alone
from tests.stores.postgres_outboxes import message
from tests.stores.postgres_planned import added, decided, due_since, plan, stepped
from tests.stores.postgres_staged import Plan, explained

T = TypeVar("T")

FOLDER = Path(str(files("mainspring.stores.postgres").joinpath("sql")))
NAMES = sorted(path.stem for path in FOLDER.glob("*.sql"))
# What is no query cannot be explained.
QUERIES = [
    name for name in NAMES if re.match(r"\(|(SELECT|INSERT|UPDATE|DELETE|WITH)\b", statement(name).text, re.IGNORECASE)
]

LARGE = (
    *("jobs", "history", "traces", "attempts", "log_lines", "unique_keys", "keys"),
    *("schedules", "positions", "runs", "moved"),
    *("outbox_messages", "outbox_chunks", "outbox_stands", "outbox_texts", "outbox_letters", "outbox_asides"),
)
"""What grows with jobs or schedules. The rest is small, and how it is read does not matter."""
COMES_AND_GOES = (
    *("jobs", "traces", "attempts", "log_lines", "unique_keys", "keys", "schedules", "positions", "moved"),
    *("outbox_chunks", "outbox_stands", "outbox_texts", "outbox_asides"),
)
"""What may be almost empty, and full of what is dead. The rest is kept for days, or given up a part at a time."""
MAY_WALK = {
    "view_queues": "it counts",
    "nodes_tasks_unknown": "of the parked jobs of a task it stops at the first that is due for long",
    "gates_forget": "a rate begins afresh for all keys",
    "unpark_all": "a gate has changed: all of them",
    "prune_unique_stray": "twenty pages",
    "runs_page_of_slots": "all of some slots, to put them in order",
    "runs_let_go": "what lingers is little",
    "outbox_views": "it counts",
    "outbox_letters_oldest": "all whose deadline has passed",
    "outbox_number": "all that is new",
    "outbox_number_foreign": "all of a line, once in a cluster",
}
MAY_MULTIPLY = {
    "outbox_read": "what a chunk says, for each chunk",
    "outbox_clear_rest": "the same",
    "outbox_number_foreign": "once in a cluster, and what is gone through is a row",
}
MAY_READ_ALL_THAT_RUNS = {
    *("places_of_running", "view_jobs_running", "view_queues"),
    *("search_running", "search_waiting", "search_by_key", "census_rest"),
}
# A look by one of these, all of whose first columns are given, finds one job, or what belongs to one.
BY_ONE = {
    "jobs_pkey": ("id",),
    "history_by_id": ("id",),
    "traces_pkey": ("job",),
    "attempts_pkey": ("job",),
    "log_lines_pkey": ("job",),
    "unique_keys_pkey": ("task", "key"),
    "keys_pkey": ("task", "key"),
    "jobs_by_parent": ("parent",),
    "history_by_parent": ("parent",),
    "schedules_pkey": ("name",),
    "positions_pkey": ("schedule", "revision"),
    "runs_pkey": ("id",),
    "runs_by_slot": ("schedule", "slot"),
    "moved_pkey": ("id",),
    "outbox_messages_by_xid": ("line", "xid", "number"),
    "outbox_chunks_pkey": ("line", "last"),
    "outbox_stands_pkey": ("line", "revision"),
    "outbox_texts_pkey": ("outbox", "digest"),
    "outbox_letters_pkey": ("id",),
    "outbox_asides_pkey": ("line", "seq"),
}
# A walk along one of these, from a place on and not further than a limit.
BY_ORDER = {
    "jobs_by_order": "priority",
    "jobs_by_queue": "queue",
    "jobs_by_task": "task",
    "jobs_suspect": "priority",
    "jobs_parked": "task",
    "history_by_id": "id",
    "jobs_pkey": "id",
    "history_ended_badly": "state",
    "history_by_kind": "hashtextextended",
    "history_by_key": "hashtextextended",
    "jobs_by_key": "hashtextextended",
    "jobs_deferred": "state",
    "history_rest_by_time": "keep_until",
    "history_long_by_time": "keep_until",
    "keys_by_spent": "spent_until",
    "unique_keys_by_time": "taken_until",
    "schedules_pkey": "name",
    "positions_pkey": "schedule",
    "positions_due": "next_at",
    "schedules_by_owner": "owner",
    "runs_pkey": "id",
    "runs_of_schedule": "schedule",
    "runs_by_slot": "schedule",
    "runs_open": "schedule",
    "runs_by_time": "keep_until",
    "runs_lingering": "id",
    "moved_pkey": "id",
    "outbox_messages_by_xid": "xid",
    "outbox_messages_rest_by_day": "published_at",
    "outbox_chunks_pkey": "line",
    "outbox_stands_pkey": "line",
    "outbox_texts_by_time": "published_at",
    "outbox_letters_by_state": "state",
    "outbox_letters_pending": "id",
    "outbox_letters_overdue": "deadline",
    "outbox_letters_done": "completed_at",
    "outbox_asides_due": "line",
    "outbox_asides_by_key": "digest",
}


# Most plans are the same for all values. With these, parts of history that cannot be meant are left out.
VALUES = {"partition_empty": ("now()", "now() + interval '1 day'", "5")}


class Tables:
    """A store's tables, and what PostgreSQL would do with them."""

    def __init__(self, server: Server, schema: str, belief: str) -> None:
        self.server = server
        self.belief = belief
        self.schema = schema
        settings = wanted(Settings(dsn=server.dsn(), clock=SystemClock()))
        options = " ".join("-c {}={}".format(name, value.replace(" ", "\\ ")) for name, value in settings.items())
        self._connection = psycopg.connect(server.dsn(), autocommit=True, options=options, prepare_threshold=None)
        find = """
            SELECT child.relname, coalesce(parent.relname, child.relname), child.relkind IN ('i', 'I')
            FROM pg_class AS child LEFT JOIN pg_inherits ON inhrelid = child.oid
            LEFT JOIN pg_class AS parent ON parent.oid = inhparent
            WHERE child.relnamespace = %s::regnamespace AND child.relkind IN ('r', 'p', 'i', 'I')
        """
        found = self._connection.execute(find, [schema]).fetchall()
        self.whole: dict[str, str] = {name: whole for name, whole, _ in found}
        """By the name of a table or index the one that it is a part of, or its own."""
        self.indexes = {name for name, _, is_index in found if is_index and name.startswith(LARGE)}

    def close(self) -> None:
        self._connection.close()

    def plan(self, name: str, text: str | None = None) -> Plan:
        """Plan a statement as our connections do: once, for whatever values may come."""
        text = in_schema(statement(name), self.schema) if text is None else qualified(text, self.schema)
        values = max((int(number) for number in re.findall(r"\$(\d+)", text)), default=0)
        given = f"({', '.join(VALUES.get(name, ['NULL'] * values))})" if values else ""
        self._connection.execute(f"PREPARE {name} AS {text}".encode())
        try:
            ((found,),) = self._connection.execute(f"EXPLAIN (FORMAT JSON) EXECUTE {name} {given}".encode()).fetchall()
        finally:
            self._connection.execute(f"DEALLOCATE {name}".encode())
        return Plan(name, found[0]["Plan"])

    def table(self, plan: Plan) -> str:
        name = str(plan.get("Relation Name", ""))
        return self.whole.get(name, name)

    def index(self, plan: Plan) -> str:
        name = str(plan.get("Index Name", ""))
        return self.whole.get(name, name)

    def used(self, plan: Plan) -> set[str]:
        """The indexes that a plan looks into, those that find what is there already included."""
        arbiters = {self.whole.get(name, name) for one in plan for name in one.get("Conflict Arbiter Indexes", ())}
        return {self.index(one) for one in plan} | arbiters

    def scans(self, plan: Plan) -> list[Plan]:
        """The places in a plan where a large table is read."""
        return [one for one in plan if self.table(one) in LARGE and "Scan" in one.get("Node Type")]

    def walks(self, plan: Plan, *, limited: bool = False) -> Iterator[str]:
        """Say where more of a large table is read than what is asked for."""
        kind = plan.get("Node Type")
        limited = kind == "Limit" or (limited and kind not in {"Sort", "Aggregate", "Materialize"})
        if plan in self.scans(plan) and not self._is_narrow(plan, limited):
            yield told(plan)
        for one in plan.below:
            stops = plan.get("Join Type") in {"Semi", "Anti"} and one.get("Parent Relationship") == "Inner"
            yield from self.walks(one, limited=stops or (limited and not one.get("Subplan Name")))

    def _is_narrow(self, plan: Plan, limited: bool) -> bool:
        index, condition = self.index(plan), plan.get("Index Cond") or ""
        if plan.get("Node Type") == "Tid Scan":
            return True
        if index in BY_ONE and all(re.search(rf"\b{column} = ", condition) for column in BY_ONE[index]):
            return True
        if index == "jobs_running":
            return "node = " in condition or plan.statement in MAY_READ_ALL_THAT_RUNS
        if index == "keys_by_look":
            return "task = " in condition
        return (
            limited and index in BY_ORDER and (not condition or bool(re.search(rf"\b{BY_ORDER[index]}\b", condition)))
        )

    def multiplies(self, plan: Plan) -> Iterator[str]:
        """Say where all of a batch is gone through for each row of a table, or all that a node runs for each of a batch."""
        for join in (one for one in plan if one.get("Node Type") == "Nested Loop"):
            outer, inner = (one for one in join.below if one.get("Parent Relationship") in {"Outer", "Inner"})
            if has_batch(inner) and any(not self._is_narrow(scan, limited=False) for scan in self.scans(outer)):
                yield f"all of the batch for each of {[told(scan) for scan in self.scans(outer)]}"
            if has_batch(outer):
                yield from (told(scan) for scan in self.scans(inner) if self.index(scan) == "jobs_running")


def has_batch(plan: Plan) -> bool:
    """Return whether a batch is gone through; what is run once beforehand, as for the time, is none."""
    if plan.get("Parent Relationship") == "InitPlan":
        return False
    return plan.get("Node Type") in {"Function Scan", "CTE Scan"} or any(has_batch(one) for one in plan.below)


def told(plan: Plan) -> str:
    where = f"{plan.get('Relation Name')} by {plan.get('Index Name')}"
    return f"{plan.get('Node Type')} of {where}: {plan.get('Index Cond')}"


FEW, MANY = 10_000, 1_000_000
SLOWLY = pytest.mark.timeout(600)  # to fill the tables takes half a minute
BELIEFS = [
    *("never analyzed", "vacuumed when empty", "analyzed", "analyzed when empty", "vacuumed when emptied"),
    "analyzed when all but one were dead",
]


def state(count: int, belief: str, *marks: pytest.MarkDecorator, is_oldest: bool = False) -> object:
    size = {FEW: "few", MANY: "a million"}[count]
    name = f"{size}, {belief}{', on the oldest server' if is_oldest else ''}"
    return pytest.param((count, belief, is_oldest), id=name, marks=[pytest.mark.slow, *marks])


@pytest.fixture(
    scope="module",
    params=[
        *(state(FEW, belief) for belief in BELIEFS),
        state(MANY, BELIEFS[0], SLOWLY),
        *(state(MANY, belief, SLOWLY, pytest.mark.full) for belief in BELIEFS[2::2]),
        *(state(FEW, belief, pytest.mark.full, is_oldest=True) for belief in BELIEFS[2::3]),
    ],
)
def tables(request: pytest.FixtureRequest) -> Iterator[Tables]:
    count, belief, is_oldest = request.param
    postgres: Server = request.getfixturevalue("oldest_postgres" if is_oldest else "postgres")
    with lasting_schema(postgres) as schema:
        leave_alone(postgres, schema)
        if belief == "analyzed when empty":
            analyze(postgres, schema)
        if belief == "vacuumed when empty":
            analyze(postgres, schema, "VACUUM")
        if belief == "vacuumed when emptied":
            fill(postgres, schema, FEW)
            clear(postgres, schema)
        fill(postgres, schema, count)
        if belief in {"analyzed", "analyzed when all but one were dead"}:
            analyze(postgres, schema)
        if belief == "analyzed when all but one were dead":
            forget_rows(postgres, schema, COMES_AND_GOES)
        tables = Tables(postgres, schema, belief)
        yield tables
        tables.close()


def head(name: str) -> str:
    lines = (FOLDER / f"{name}.sql").read_text(encoding="utf-8").splitlines()
    return " ".join(line.removeprefix("--").strip() for line in lines if line.startswith("--"))


# What is written on top.


@pytest.mark.parametrize("name", NAMES)
def test_a_statement_says_what_it_promises(name: str) -> None:
    text = (FOLDER / f"{name}.sql").read_text(encoding="utf-8")

    assert text.startswith("-- ")
    assert len(text.splitlines()[0]) > 20
    assert name not in QUERIES or ";" not in statement(name).text, "one statement a file"


def test_statements_use_the_indexes_that_they_name_and_no_others(tables: Tables) -> None:
    wrong: dict[str, list[set[str]]] = {}
    for name in QUERIES:
        named = set(re.findall(r"\w+", head(name).partition("Index")[2])) & tables.indexes
        used = tables.used(tables.plan(name)) & tables.indexes
        if used != named:
            wrong[name] = [used - named, named - used]

    assert wrong == {}


# What a plan must not do.


def test_statements_do_not_walk_over_what_grows(tables: Tables) -> None:
    walks = {name: [*tables.walks(tables.plan(name))] for name in QUERIES}
    found = {name: where for name, where in walks.items() if where}

    assert {name: where for name, where in found.items() if name not in MAY_WALK} == {}
    assert set(found) <= set(MAY_WALK)


def test_statements_do_not_go_through_their_batch_for_each_job(tables: Tables) -> None:
    found = {name: [*tables.multiplies(tables.plan(name))] for name in QUERIES if name not in MAY_MULTIPLY}

    assert {name: where for name, where in found.items() if where} == {}


OF_QUEUE = (
    "SELECT * FROM mainspring.jobs WHERE state <> 'running' AND NOT parked AND care <> 1"
    ' AND queue COLLATE "C" >= \'\' AND queue COLLATE "C" = $1'
)


def test_a_walk_would_be_found(tables: Tables) -> None:
    for text in (
        "SELECT * FROM mainspring.jobs WHERE started_at = $1",
        OF_QUEUE,
        f"SELECT * FROM ({OF_QUEUE} OFFSET 0) AS line ORDER BY enqueued_at LIMIT 5",  # noqa: S608 -- a constant
        "SELECT count(*) FROM mainspring.history WHERE run_at > $1",
        "SELECT * FROM mainspring.jobs WHERE id = $1 AND queue = $2 UNION ALL SELECT * FROM mainspring.jobs WHERE parked",
    ):
        assert [*tables.walks(tables.plan("walk", text))], text
    for text in (
        f"{OF_QUEUE} AND priority = 50 ORDER BY run_at, id LIMIT 5",
        "SELECT * FROM mainspring.history WHERE id = ANY ($1)",
    ):
        assert not [*tables.walks(tables.plan("walk", text))], text


# What is read when it is run.

BATCH = 100
PLAIN = {
    "enqueue", "enqueue_new", "enqueue_all_new", "enqueue_unique", "enqueue_holders", "peek", "take", "settle_success",
}  # fmt: skip
MOST = {"outbox_letters_page": 500, "peek": 13_000, "park": 13_000, "keys_state": 13_000, "nodes_orphans": 2_000}
"""Rows that are read at most where it is not a few for each of the batch: where keys may be blocked, a claim reads a
thousand jobs of each line and priority; and all that a dead node has left has to be put in order."""


NOT_PLANNED = {
    "schedules_there",
    "schedules_be_brief",
    "schedules_wait",
    "schedules_give",
    "schedules_wake_idle",
    "schedules_answered",
    "schedules_try_again",
    "runs_without_job",
    "outbox_stride_done",
    "outbox_number_foreign",
    "outbox_clear_rest",
    "outbox_views",
    "outbox_letters_overdue",
}
"""What is asked only when several meet, or to be seen; where it looks it does by key."""


class Reading(NamedTuple):
    """A place in a plan that was run, and how many rows were read there: found, or left out."""

    statement: str
    where: str
    rows: int


def readings(tables: Tables, plans: Sequence[Plan]) -> list[Reading]:
    return [
        Reading(
            plan.statement,
            told(scan),
            int(
                (
                    scan.get("Actual Rows")
                    + scan.get("Rows Removed by Filter", 0)
                    + scan.get("Rows Removed by Index Recheck", 0)
                )
                * scan.get("Actual Loops")
            ),
        )
        for plan in plans
        for scan in tables.scans(plan)
    ]


async def lived_through(tables: Tables, *, generic: bool) -> list[Plan]:
    """All that happens to a job, in batches; returns how PostgreSQL did it."""
    async with crowd(tables.server, tables.schema) as those:
        return await _lived_through(those, generic)


async def _lived_through(those: Crowd, generic: bool) -> list[Plan]:
    plans: list[Plan] = []

    async def do(verb: Awaitable[T]) -> T:
        answer, found = await explained(verb, generic=generic)
        plans.extend(found)
        return answer

    node = await those.node(tasks=TASKS)
    store = node.store
    for unique in (None, UniqueKey(key=f"{node.id} alone")):
        await do(store.enqueue([new(unique=unique)]))
        await do(store.enqueue([replace(new(unique=unique and UniqueKey(key=f"{node.id}, new")), is_new=True)]))
    await do(store.enqueue([replace(new(), is_new=True) for _ in range(BATCH)]))
    await do(store.enqueue([new() for _ in range(BATCH)]))
    await do(store.enqueue([new(unique=UniqueKey(key=f"{node.id} {n}")) for n in range(BATCH)]))
    await do(store.enqueue([new(unique=UniqueKey(key=f"{node.id} {n}")) for n in range(BATCH)]))
    claimed = [await do(node.claim(BATCH)) for _ in range(3)]
    deliveries = [delivery for one in claimed for delivery in one.deliveries]
    assert len(deliveries) > BATCH
    now = store.now()
    some = [delivery.claim.job for delivery in deliveries[:10]]
    await do(store.note([Note(job=job.id, lease=job.lease, node=node.id, saved=b"1") for job in some]))
    await do(store.renew(node.id, node.term))
    await do(store.settle([end(delivery, Succeeded(), now) for delivery in deliveries[:50]]))
    await do(store.settle([end(delivery, RAISED, now) for delivery in deliveries[50:75]]))
    await do(store.settle([end(delivery, FATAL, now) for delivery in deliveries[75:]]))
    await do(store.orphans(10))
    await do(store.get([delivery.claim.job.id for delivery in deliveries[:10]]))
    await _planned(do, store, str(node.id))
    await _published(do, node)
    return plans


async def _planned(do: Callable[[Awaitable[Any]], Awaitable[Any]], store: PostgresStore, prefix: str) -> None:
    """All that happens to a schedule: it is added, fires, waits for its run, hears of the end, is paused and removed."""
    names = [Name("", f"{prefix}-{number}") for number in range(BATCH)]
    ones = [
        plan(overlap=Overlap.QUEUE_ONE, unique=UniqueKey(key=str(name)) if n % 2 else None)
        for n, name in enumerate(names)
    ]
    await do(store.move([added(due_since(name, one)) for name, one in zip(names, ones, strict=True)]))
    looked = await do(store.look(names))
    fired = [decided(look, looked.now) for look in looked.looks]
    assert all(await do(store.move(fired)))
    looked = await do(store.look(names))
    afters = [replace(look.schedule, waits=True, revision=look.schedule.revision + 1) for look in looked.looks]
    waiting = [Move(before=look.schedule, after=after) for look, after in zip(looked.looks, afters, strict=True)]
    assert all(await do(store.move(waiting)))
    jobs = [view.job for view in await store.get([job for look in looked.looks for job in look.open]) if view]
    now = store.now()
    await do(store.settle([Settlement(change=command(job, CancelJob(), now)) for job in jobs[:-1]]))
    await do(store.settle([Settlement(change=command(jobs[-1], DeleteJob(), now))]))
    looked = await do(store.look(names))
    assert {look.schedule.waits for look in looked.looks} == {False}
    assert not any(look.open for look in looked.looks)
    assert all(await do(store.move([stepped(pause(look.schedule, now)) for look in looked.looks])))
    looked = await do(store.look(names))
    assert all(await do(store.move([stepped(remove(look.schedule)) for look in looked.looks])))
    assert len((await do(store.look(names))).former) == BATCH
    slots = {"after_slot": now - timedelta(hours=1), "until_slot": now}
    for which in (RunFilter(), RunFilter(schedule=names[0]), RunFilter(schedule=names[0], with_job=True, **slots)):
        await do(store.runs(which))
    await do(store.last_runs(names, limit=2))
    await do(store.due(BATCH))
    await do(store.list_schedules(limit=BATCH))
    await do(store.list_schedules(limit=BATCH, owner="owner 2"))


async def _published(do: Callable[[Awaitable[Any]], Awaitable[Any]], node: Node) -> None:
    """All that happens to messages: published, numbered, delivered, set aside, buried, replayed and cleared away."""
    store, outbox = node.store, f"outbox-{node.id}"
    await do(store.register_outbox(outbox, 2))
    new_ = [message(outbox, partitions=2, partition=n % 2) for n in range(BATCH)]
    await do(store.publish(new_))
    for _ in range(2):
        await do(store.publish([replace(one, unique=str(n)) for n, one in enumerate(new_)]))
    await do(store.look_at_partitions([outbox, "outbox-0"]))
    found = await do(store.read_messages(outbox, 0, 0, BATCH))
    assert len(found) == BATCH
    letters = tuple(NewLetter(message=one, attempts=1, error="no") for one in found[:50])
    asides = tuple(Aside(message=one) for one in found[50:])
    step = replace(boxes.stepped(outbox, 0, BATCH), letters=letters, aside=asides)
    assert await do(store.stride(node.id, node.term, [step, boxes.stepped("outbox-1", 0)])) == (True, False)
    due = await do(store.read_aside(outbox, 0, BATCH))
    await do(store.read_keys_aside(outbox, 0, ["somebody", "nobody"]))
    back = replace(boxes.stepped(outbox, 1, BATCH), back=tuple(one.message.seq for one in due))
    assert await do(store.stride(node.id, node.term, [back])) == (True,)
    page = await do(store.letters(LetterFilter(states=tuple(LetterState)), limit=BATCH))
    await do(store.letters(LetterFilter(states=tuple(LetterState)), limit=BATCH, after=page.after))
    taken = await do(store.take_letters(LetterFilter(), timedelta(minutes=1), BATCH))
    assert len(taken) == BATCH
    await do(store.resolve_letters([(one.id, one.term) for one in taken[:50]]))
    await do(store.return_letters([(one.id, one.term) for one in taken[50:]], "no"))
    assert await do(store.discard_letters(LetterFilter(), 10)) == 10
    assert await do(store.replay_letters(LetterFilter(), 10)) == 10
    assert await do(store.clear_letters(timedelta(0), 10)) == 10
    await do(store.clear_messages(BATCH))


def test_what_is_read_grows_with_the_batch_and_not_with_what_is_there(tables: Tables) -> None:
    """On real values: no more rows of a large table than a few for each job of the batch."""
    plans = asyncio.run(lived_through(tables, generic=True))

    assert PLAIN | {"settle_read", "settle_write", "settle_finish", "node_renew", "note_hold"} <= statements(plans)
    planned = {name for name in NAMES if name.startswith(("schedules_", "runs_"))} - NOT_PLANNED
    assert planned - statements(plans) == set()
    about_outboxes = {name for name in QUERIES if name.startswith("outbox_")} - NOT_PLANNED
    assert about_outboxes - statements(plans) == set()
    assert [one for one in readings(tables, plans) if one.rows > MOST.get(one.statement, 3 * BATCH)] == []


def test_behind_a_pooler_the_same_holds_for_claims_and_successes_once_the_tables_are_analyzed(
    tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There the planner's settings are the server's own. Without them a store takes it that there is a pooler."""
    if tables.belief != "analyzed":
        return
    monkeypatch.setattr(connect, "_PLANS", {})
    plans = asyncio.run(lived_through(tables, generic=False))
    found = [one for one in readings(tables, plans) if one.statement in PLAIN and "jobs" in one.where]

    assert statements(plans) >= PLAIN
    # Ten thousand jobs are read as a whole as quickly as a hundred of them by index: which is chosen hangs on very little.
    walked = [one for one in found if "Seq Scan" in one.where]
    assert [one for one in walked if one.rows > 2 * FEW] == []
    assert [one for one in found if one not in walked and one.rows > MOST.get(one.statement, 3 * BATCH)] == []


def statements(plans: Sequence[Plan]) -> set[str]:
    return {plan.statement for plan in plans}
