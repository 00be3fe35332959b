"""Fills PostgreSQL by statements of its own, in a minute: verbs would take ten times as long.

A fifth of the jobs waits or runs; finished ones are spread over the tables of ten days, and all is vacuumed.
"""

from datetime import datetime, timedelta

import asyncpg

from bench.looking.names import MESSAGE, NODE, QUEUES, RARE, RARE_KEY, RARE_QUEUE, RARE_TASK, TAG, TASKS
from mainspring.stores.port import Store
from mainspring.stores.postgres.rows import facts_bytes
from mainspring.stores.postgres.statements import qualified
from mainspring.stores.records import Facts, NodeRecord, Process

SCHEMA = "mainspring"
POLICY = "[10000000,0,3153600000000000,86400000000,604800000000,1.0,0.0]"
CHUNK = 100_000

# Number n is a job of n seconds ago, so that ids grow with time. Every fifth waits or runs.
_NUMBERED = """
WITH numbered AS (
    SELECT
        n, now() - make_interval(secs => {count} - n) AS at, kinds.queue, kinds.task,
        (lpad(to_hex((extract(epoch FROM now()) * 1000)::bigint - ({count} - n) * 1000), 12, '0') || '7'
            || lpad(to_hex(n % 4096), 3, '0') || '8' || lpad(to_hex(n), 15, '0'))::uuid AS id
    FROM generate_series({first}, {last}) AS n
    JOIN (VALUES {kinds}) AS kinds (place, queue, task)
        ON kinds.place = CASE WHEN n <= {rare} THEN {kind_count} ELSE n / 7 % {kind_count} END
    WHERE (n % 5 = 0) = {active}
)
"""
# Of those that wait or run: 1 of 100 runs, 1 is to be tried again, 20 are for later.
_JOBS = """
INSERT INTO mainspring.jobs (
    id, queue, task, priority, state, run_at, attempt, loss_limit, lease, max_attempts, policy, node,
    started_at, enqueued_at, key, facts, payload
)
SELECT
    id, queue, task, 50,
    CASE
        WHEN n / 5 % 100 = 0 THEN 'running' WHEN n / 5 % 100 = 1 THEN 'retrying' WHEN n / 5 % 100 < 22 THEN 'scheduled'
        ELSE 'ready'
    END,
    CASE WHEN n / 5 % 100 BETWEEN 1 AND 21 THEN now() + make_interval(secs => n) ELSE at END, 0, 3, 0, 3, '{policy}',
    CASE WHEN n / 5 % 100 = 0 THEN '{node}' END, CASE WHEN n / 5 % 100 = 0 THEN at END, at,
    CASE WHEN n <= {rare} THEN '{rare_key}'::bytea WHEN n % 20 = 0 THEN ('customer-' || n / 20 % 20)::bytea END,
    CASE WHEN n / 5 % 20 = 7 THEN decode('{facts}', 'hex') END,
    convert_to(
        '{{"args":{{"order":{{"number":' || n || ',"lines":[{{"sku":"tea","count":2}}]}},"note":"as always"}}}}', 'UTF8'
    )
FROM numbered
"""
# Of those that have finished: 2 of 100 failed, 1 was cancelled.
_HISTORY = """
INSERT INTO mainspring.history (
    id, queue, task, priority, state, run_at, attempt, granted, losses, loss_limit, lease, revision, max_attempts, policy,
    finished_at, keep_until, cause, node, settled_by, started_at, seconds, enqueued_at, key, facts, payload, result, error
)
SELECT
    id, queue, task, 50, CASE n % 100 WHEN 1 THEN 'failed' WHEN 2 THEN 'failed' WHEN 3 THEN 'cancelled' ELSE 'succeeded' END,
    at, 1, 0, 0, 3, 1, 2, 3, '{policy}', at + interval '1 s', now() + interval '1 h' + make_interval(days => (n % 10)::integer),
    CASE WHEN n % 100 IN (1, 2) THEN 'exhausted' END, '{node}', '{node}', at, 0.1, at,
    CASE WHEN n <= {rare} THEN '{rare_key}'::bytea WHEN n % 20 = 1 THEN ('customer-' || n / 20 % 20)::bytea END,
    CASE WHEN n % 20 = 7 THEN decode('{facts}', 'hex') END,
    convert_to(
        '{{"args":{{"order":{{"number":' || n || ',"lines":[{{"sku":"tea","count":2}}]}},"note":"as always"}}}}', 'UTF8'
    ), '42',
    CASE WHEN n % 100 IN (1, 2) THEN convert_to(
        '{{"type":"ValueError","message":"{message}","traceback":"' || repeat('line ', 100) || '"}}', 'UTF8'
    ) END
FROM numbered
"""


async def fill(store: Store, url: str, count: int) -> datetime:
    """Fill the tables of a store, which are there and empty; returns when the first job was enqueued."""
    await store.join(
        NodeRecord(id=NODE, process=Process(host="bench", pid=1, started="now"), tasks=frozenset([*TASKS, RARE_TASK]))
    )
    kinds = [(queue, task) for task in TASKS for queue in QUEUES]
    rows = enumerate([*kinds, (RARE_QUEUE, RARE_TASK)])
    words: dict[str, object] = {
        "count": count,
        "kind_count": len(kinds),
        "kinds": ", ".join(f"({place}, '{queue}', '{task}')" for place, (queue, task) in rows),
        "policy": POLICY,
        "rare": RARE,
        "rare_key": RARE_KEY,
        "facts": (facts_bytes(Facts(tags=(TAG,))) or b"").hex(),
        "message": MESSAGE,
        "node": NODE,
    }
    connection = await asyncpg.connect(url)
    try:
        for first in range(1, count + 1, CHUNK):
            words |= {"first": first, "last": min(first + CHUNK - 1, count)}
            for text, active in ((_JOBS, True), (_HISTORY, False)):
                whole = (_NUMBERED + text).format(**words, active=str(active).lower())
                await connection.execute(qualified(whole, SCHEMA), timeout=600)
        await connection.execute("VACUUM ANALYZE", timeout=600)
    finally:
        await connection.close()
    return store.now() - timedelta(seconds=count)
