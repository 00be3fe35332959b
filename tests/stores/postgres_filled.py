"""A store's tables with many jobs in them: waiting, scheduled, running, parked and finished."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from uuid import UUID

import msgspec

from mainspring.core.backoff import Backoff
from mainspring.core.job import NodeId
from mainspring.core.names import Name
from mainspring.core.rules import Every
from mainspring.core.schedule import Plan, Schedule, Template
from mainspring.core.steps import create
from mainspring.stores.postgres.statements import qualified
from mainspring.stores.records import NodeRecord, Process
from mainspring.stores.schedules import schedule_bytes
from tests.servers.postgres import Server

QUEUES = ("default", "mail", "photos")
PRIORITIES = (10, 50)
TASKS = (Name("", "mail.send"), Name("photos", "resize"))
KINDS = [(queue, task, priority) for queue in QUEUES for task in TASKS for priority in PRIORITIES]
DEAD = "node-0"
NODES = [DEAD, *(f"node-{number}" for number in range(1, 6))]
POLICY = "[10000000,0,3153600000000000,86400000000,604800000000,1.0,0.0]"
KEYS = 200

# Of a thousand jobs: 2 run, 100 are parked, 300 are for later, the rest is due.
_JOBS = """
INSERT INTO mainspring.jobs (
    id, {old_columns}queue, task, priority, state, parked, run_at, attempt, loss_limit, lease, max_attempts, policy, node,
    started_at, enqueued_at, key, unique_key, unique_on_conflict, parent, traced, payload
)
SELECT
    lpad(to_hex(n), 32, '0')::uuid, {old_values}kinds.queue, kinds.task, kinds.priority,
    CASE WHEN n % 1000 < 2 THEN 'running' WHEN n % 1000 BETWEEN 102 AND 401 THEN 'scheduled' ELSE 'ready' END,
    n % 1000 BETWEEN 2 AND 101,
    CASE
        WHEN n % 1000 BETWEEN 102 AND 401 THEN now() + make_interval(secs => 3600 + n) ELSE now() - make_interval(secs => 1e6 - n / 10.0)
    END,
    (n % 1000 < 2)::integer, 3, (n % 1000 < 2)::integer, 3, '{policy}',
    CASE WHEN n % 1000 < 2 THEN 'node-' || n / 1000 % {nodes} END,
    CASE WHEN n % 1000 < 2 THEN now() - make_interval(secs => n % 100) END,
    now(), CASE WHEN n % 1000 < 200 THEN ('key ' || n % {keys})::bytea END, CASE WHEN n % 10 = 0 THEN ('unique ' || n)::bytea END,
    CASE WHEN n % 10 = 0 THEN 'return' END, CASE WHEN n % 50 = 0 THEN lpad(to_hex(n / 5000), 32, '0')::uuid END, n % 100 = 0,
    '{{}}'
FROM generate_series(1, {count}) AS n
JOIN (VALUES {kinds}) AS kinds (place, queue, task, priority) ON kinds.place = n / 1000 % {kind_count}
"""
_HISTORY = """
INSERT INTO mainspring.history (
    id, queue, task, priority, state, run_at, attempt, granted, losses, loss_limit, lease, revision, max_attempts, policy,
    finished_at, keep_until, cause, node, settled_by, enqueued_at, parent, payload
)
SELECT
    lpad(to_hex(n + {count} * 10), 32, '0')::uuid, kinds.queue, kinds.task, kinds.priority,
    CASE WHEN n % 100 = 0 THEN 'failed' ELSE 'succeeded' END, now(), 1, 0, 0, 3, 1, 2, 3, '{policy}', now(),
    now() + make_interval(hours => (n % 288)::integer), CASE WHEN n % 100 = 0 THEN 'exhausted' END, 'node-1', 'node-1', now(),
    CASE WHEN n % 50 = 0 THEN lpad(to_hex(n / 5000), 32, '0')::uuid END, '{{}}'
FROM generate_series(1, {count}) AS n
JOIN (VALUES {kinds}) AS kinds (place, queue, task, priority) ON kinds.place = n / 1000 % {kind_count}
"""
_NODES = """
INSERT INTO mainspring.nodes (id, alive, joined_at, died_at, record)
SELECT 'node-' || n, n <> 0, now(), CASE WHEN n = 0 THEN now() END, '{record}' FROM generate_series(0, {nodes} - 1) AS n;
INSERT INTO mainspring.beats (term, counter, renewed_at) SELECT term, 0, now() FROM mainspring.nodes;
"""
_NODES_WITHOUT_BEATS = """
INSERT INTO mainspring.nodes (id, alive, joined_at, renewed_at, died_at, record)
SELECT 'node-' || n, n <> 0, now(), now(), CASE WHEN n = 0 THEN now() END, '{record}' FROM generate_series(0, {nodes} - 1) AS n;
"""
_REST = """
INSERT INTO mainspring.gates (scope, name, concurrency) VALUES
    ('task', 'photos:resize', 100000), ('key', 'mail.send', 3), ('queue', 'photos', 100000);
INSERT INTO mainspring.keys (task, key, spent_until) SELECT 'mail.send', ('key ' || n)::bytea, now() FROM generate_series(1, {count}) AS n;
INSERT INTO mainspring.traces (job, saved) SELECT id, '{{}}' FROM mainspring.jobs WHERE traced;
INSERT INTO mainspring.attempts (job, lease, body) SELECT id, -n, '{{}}' FROM mainspring.jobs, generate_series(1, 3) AS n WHERE traced;
INSERT INTO mainspring.log_lines (job, position, body) SELECT id, n, '{{}}' FROM mainspring.jobs, generate_series(1, 3) AS n WHERE traced;
INSERT INTO mainspring.unique_keys (task, key, job) SELECT task, unique_key, id FROM mainspring.jobs WHERE unique_key IS NOT NULL;
INSERT INTO mainspring.places (scope, name, key, job, lease, node)
    SELECT 'task', task, '', id, 1, node FROM mainspring.jobs WHERE state = 'running'
    UNION ALL SELECT 'key', task, key, id, 1, node FROM mainspring.jobs WHERE state = 'running' AND key IS NOT NULL;
INSERT INTO mainspring.orders (node, word, given_at, done_at) SELECT 'node-1', '{{}}', now(), now() FROM generate_series(1, 1000);
UPDATE mainspring.rules SET version = version + 1;
"""
# Of a thousand schedules: 100 are due, 100 never come up by themselves, half belong to somebody. Each has ten runs, of
# which one is open, and one made no job.
_SCHEDULES = """
INSERT INTO mainspring.schedules (name, owner)
SELECT 'schedule-' || n, CASE WHEN n % 2 = 0 THEN ('owner ' || n % 20)::bytea END
FROM generate_series(1, {count} / 10) AS n;
INSERT INTO mainspring.positions (schedule, revision, next_at, waits, paused, record)
SELECT
    'schedule-' || n, 1,
    CASE WHEN n % 10 > 1 THEN now() + make_interval(secs => n) WHEN n % 10 = 1 THEN now() - make_interval(secs => n) END,
    n % 10 = 0, false, '{schedule}'
FROM generate_series(1, {count} / 10) AS n;
INSERT INTO mainspring.runs (
    id, schedule, slot, count, origin, is_catch_up, zone, reason, decided_at, state, is_open, keep_until
)
SELECT
    lpad(to_hex(n), 32, '0')::uuid, 'schedule-' || n / 10 + 1, now() - make_interval(mins => 10 - n % 10), 1, 'slot', false,
    'UTC', CASE WHEN n % 10 = 0 THEN 'skipped' END, now(), CASE WHEN n % 10 BETWEEN 1 AND 8 THEN 'succeeded' END,
    n % 10 = 9, now() + make_interval(days => 30)
FROM generate_series(1, {count}) AS n;
INSERT INTO mainspring.moved (id, accepted, moved_at)
SELECT lpad(to_hex(n), 32, '0')::uuid, '{{true}}', now() FROM generate_series(1, 1000) AS n;
"""
# Four outboxes of eight partitions each, all of it delivered but for the last tenth. As many texts, letters of every state,
# and what was set aside, each a tenth.
_OUTBOXES = """
INSERT INTO mainspring.outboxes (name, partitions, created_at) SELECT 'outbox-' || n, 8, now() FROM generate_series(0, 3) AS n;
INSERT INTO mainspring.outbox_lines (line, outbox)
SELECT id * 64 + n, id FROM mainspring.outboxes, generate_series(0, 7) AS n;
INSERT INTO mainspring.outbox_stands (line, revision, cursor, given, width, attempts, error)
SELECT line, {count} / 100, {count} / 32 * 9 / 10, 0, 0, 0, '' FROM mainspring.outbox_lines;
INSERT INTO mainspring.outbox_messages (line, number, published_at, key, type, payload)
SELECT lines.line, nextval('mainspring.outbox_numbers'), now(), ('key ' || n % 100)::bytea, 'order', '{{}}'
FROM generate_series(1, {count}) AS n
JOIN (SELECT line, row_number() OVER (ORDER BY line) - 1 AS place FROM mainspring.outbox_lines) AS lines
    ON lines.place = n % 32;
INSERT INTO mainspring.outbox_texts (outbox, digest, line, number, xid, published_at)
SELECT line / 64, decode(md5(number::text), 'hex'), line, number, xid, published_at
FROM mainspring.outbox_messages WHERE number % 10 = 0;
INSERT INTO mainspring.outbox_letters (
    line, seq, number, published_at, key, type, payload, state, attempts, error, failed_at, deadline, completed_at
)
SELECT
    line, number, number, published_at, key, type, payload, (ARRAY['pending', 'reprocessing', 'resolved'])[number % 3 + 1], 1,
    '', now() - make_interval(secs => number), CASE WHEN number % 3 = 1 THEN now() + make_interval(secs => number) END,
    CASE WHEN number % 3 = 2 THEN now() - make_interval(secs => number) END
FROM mainspring.outbox_messages WHERE number % 10 = 0;
INSERT INTO mainspring.outbox_asides (
    line, seq, number, published_at, key, digest, type, payload, attempts, retry_at, error
)
SELECT
    line, number, number, published_at, key, decode(md5(key), 'hex'), type, payload, 1,
    CASE WHEN number % 20 = 0 THEN now() + make_interval(secs => number) END, ''
FROM mainspring.outbox_messages WHERE number % 10 = 0;
"""
# By another transaction, which sees what the first has written.
_CHUNKS = """
INSERT INTO mainspring.outbox_chunks (line, first, last, numbers, xids, since, until, snapshot, cluster)
SELECT
    line, min(place), max(place), array_agg(number ORDER BY place), array_agg(xid ORDER BY place), min(published_at),
    max(published_at), pg_current_snapshot(), (SELECT system_identifier FROM pg_control_system())
FROM (SELECT *, row_number() OVER (PARTITION BY line ORDER BY number) AS place FROM mainspring.outbox_messages) AS placed
GROUP BY line, (place - 1) / 10
"""
# Nobody is to look at the tables behind our back: what the planner knows is what the test says.
_ALONE = """
DO $$ DECLARE name regclass; BEGIN
    FOR name IN SELECT oid::regclass FROM pg_class WHERE relnamespace = '{schema}'::regnamespace AND relkind = 'r' LOOP
        EXECUTE format('ALTER TABLE %s SET (autovacuum_enabled = off)', name);
    END LOOP;
END $$
"""


def fill(server: Server, schema: str, count: int, *, old: bool = False) -> None:
    """Fill a store's tables: so many jobs that wait or run, and as many that have finished; `old` tables have lanes."""
    kinds = ", ".join(
        f"({place}, '{queue}', '{task}', {priority}::smallint)" for place, (queue, task, priority) in enumerate(KINDS)
    )
    process = Process(host="here", pid=1, started="today")
    record = NodeRecord(id=NodeId("a node"), process=process, tasks=frozenset(TASKS))
    words = {
        "record": msgspec.json.encode(record).decode(),
        "count": count,
        "kinds": kinds,
        "old_columns": "lane, home, " if old else "",
        "old_values": "CASE WHEN n % 1000 >= 102 THEN kinds.place END, kinds.place, " if old else "",
        "kind_count": len(KINDS),
        "nodes": len(NODES),
        "policy": POLICY,
        "keys": KEYS,
        "schedule": schedule_bytes(_schedule()).decode(),
    }
    nodes = _NODES_WITHOUT_BEATS if old else _NODES
    for text in (_JOBS, _HISTORY, nodes, _REST, _SCHEDULES, _OUTBOXES, _CHUNKS):
        server.sql(qualified(text.format(**words), schema))


def _schedule() -> Schedule:
    """Make the one that all are, but for their names."""
    template = Template(task=TASKS[0], payload=b"{}", backoff=Backoff.fixed("10s"), max_attempts=3)
    plan = Plan(rule=Every(timedelta(minutes=1)), template=template)
    schedule = create(Name("", "schedule"), plan, datetime(2030, 1, 1, tzinfo=UTC)).after
    assert schedule
    return schedule


def clear(server: Server, schema: str) -> None:
    """Take all jobs away again, and have the tables vacuumed: what the indexes were they stay, but for their entries."""
    server.sql(
        qualified("DELETE FROM mainspring.jobs; DELETE FROM mainspring.history; DELETE FROM mainspring.nodes", schema)
    )
    server.sql(
        qualified("DELETE FROM mainspring.gates; DELETE FROM mainspring.keys; DELETE FROM mainspring.traces", schema)
    )
    server.sql(
        qualified(
            "DELETE FROM mainspring.attempts; DELETE FROM mainspring.log_lines; DELETE FROM mainspring.places", schema
        )
    )
    server.sql(qualified("DELETE FROM mainspring.unique_keys; DELETE FROM mainspring.orders", schema))
    server.sql(qualified("DELETE FROM mainspring.schedules; DELETE FROM mainspring.positions", schema))
    server.sql(qualified("DELETE FROM mainspring.runs; DELETE FROM mainspring.moved", schema))
    for what in ("outboxes", "outbox_lines", "outbox_stands", "outbox_messages", "outbox_chunks"):
        server.sql(f"DELETE FROM {schema}.{what}")  # noqa: S608 -- a name of ours
    for what in ("outbox_texts", "outbox_letters", "outbox_asides"):
        server.sql(f"DELETE FROM {schema}.{what}")  # noqa: S608 -- a name of ours
    analyze(server, schema, "VACUUM")


def leave_alone(server: Server, schema: str) -> None:
    """Have the tables' statistics stay as they are."""
    server.sql(_ALONE.format(schema=schema))


def analyze(server: Server, schema: str, word: str = "ANALYZE") -> None:
    tables = server.sql(
        "SELECT oid::regclass::text FROM pg_class WHERE relnamespace = %s::regnamespace AND relkind IN ('r', 'p')",
        [schema],
    )
    for (name,) in tables:
        server.sql(f"{word} {name}")


def forget_rows(server: Server, schema: str, tables: Sequence[str]) -> None:
    """Have PostgreSQL believe that one row of each table is alive, as after ANALYZE while somebody holds an old snapshot.

    The tables are as large as they are, and it is told so: it believes that most of what is in them is dead.
    """
    server.sql(
        """
        UPDATE pg_class SET reltuples = 1
        FROM pg_index RIGHT JOIN pg_class AS whole ON whole.oid = pg_index.indrelid
        WHERE whole.relnamespace = %s::regnamespace AND whole.relname = ANY (%s)
            AND pg_class.oid IN (whole.oid, pg_index.indexrelid)
        """,
        [schema, list(tables)],
    )


def id_of(number: int) -> UUID:
    """Return the id of a job by its number, from 1."""
    return UUID(int=number)
