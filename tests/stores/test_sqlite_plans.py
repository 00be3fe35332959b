"""Every statement is served by the index that it names; none walks over all jobs."""

import json
import re
import sqlite3
from collections import defaultdict
from collections.abc import Iterator
from contextlib import closing
from importlib.resources import files
from itertools import product
from pathlib import Path

import pytest

from mainspring.stores.sqlite import migrate
from mainspring.stores.sqlite.statements import statement

FOLDER = Path(str(files("mainspring.stores.sqlite").joinpath("sql")))
NAMES = sorted(path.stem for path in FOLDER.glob("*.sql"))
# What grows with history or with what waits. Walking over these is for the inspector alone.
LARGE = (
    r"(mainspring_)?(jobs|payloads|traces|attempts|log_lines|parked_keys|unique_keys|schedules|runs"
    r"|messages|unique_texts|texts|asides|earlier|dead_letters|letters|audit|tallies)"
)
SCAN = re.compile(rf"SCAN {LARGE}\b(?! USING (COVERING )?INDEX mainspring_(jobs_running|dead_letters_pending)\b)")
MAY_SCAN = {"view_waiting", "parked_keys_any"}  # the second stops at the first row


A_LITTLE_OF_EVERYTHING = """
INSERT INTO mainspring_lanes VALUES
    (1, 'mail.send', 'default', 0, 0), (2, 'mail.send', 'default', 1, 0), (3, 'resize', 'photos', 0, 1);
INSERT INTO mainspring_parked_keys VALUES ('mail.send', 'a', 1, 5), ('mail.send', 'b', 1, NULL);
INSERT INTO mainspring_jobs (number, id, state, lane, rank, parked, run_at, node, keep_until) VALUES
    (1, x'01', 'ready', 1, 0, NULL, 1, NULL, NULL),
    (2, x'02', 'running', 1, NULL, NULL, 1, 'a', NULL),
    (3, x'03', 'failed', 1, NULL, NULL, 1, 'a', 9),
    (4, x'04', 'ready', 1, NULL, 'a', 1, NULL, NULL);
INSERT INTO mainspring_payloads (number, max_attempts, loss_limit, policy, enqueued_at, parent, payload) VALUES
    (1, 1, 1, '[]', 1, NULL, x''), (2, 1, 1, '[]', 1, x'01', x''), (3, 1, 1, '[]', 1, x'01', x'');
UPDATE mainspring_payloads SET key = 'a', job = x'03' WHERE number = 3;
INSERT INTO mainspring_traces (number) VALUES (1), (2), (3);
INSERT INTO mainspring_attempts VALUES
    (1, 1, 1, 'a', 'raised', 1, 1, 1, NULL, ''), (3, 1, 1, 'a', 'raised', 1, 1, 1, NULL, '');
INSERT INTO mainspring_log_lines VALUES (3, 1, 1, 'info', ''), (3, 2, 1, 'info', '');
INSERT INTO mainspring_places VALUES
    ('task', 'mail.send', '', x'02', 1, 'a', 0), ('queue', 'default', '', x'02', 1, 'a', 0);
INSERT INTO mainspring_unique_keys VALUES ('mail.send', 'a', x'01', NULL), ('mail.send', 'b', x'03', 1);
INSERT INTO mainspring_nodes (id, joined_at, renewed_at, record) VALUES ('a', 1, 1, '{}'), ('b', 1, 1, '{}');
INSERT INTO mainspring_orders (node, word, given_at) VALUES ('a', '{}', 1);
INSERT INTO mainspring_schedules VALUES
    ('a', 'shop', 1, 5, 0, 0, NULL, '{}'), ('b', NULL, 1, NULL, 1, 0, NULL, '{}'), ('c', NULL, 1, NULL, 0, 1, 3, '{}');
INSERT INTO mainspring_runs VALUES
    (x'01', 'a', 1, NULL, 1, 'slot', 0, 'UTC', NULL, NULL, 1, NULL, NULL, NULL, 1, 9),
    (x'02', 'a', 2, NULL, 1, 'slot', 0, 'UTC', NULL, NULL, 1, 'failed', 3, 'no', 0, 9),
    (x'03', 'b', 2, 3, 2, 'slot', 0, 'UTC', NULL, 'paused', 1, NULL, NULL, NULL, 0, 9);
INSERT INTO mainspring_outboxes VALUES (1, 'orders', 2, 1), (2, 'mail', 1, 1);
INSERT INTO mainspring_partitions (id, last, cursor, holder) VALUES (64, 2, 1, 'a'), (65, 1, 0, NULL), (128, 0, 0, NULL);
INSERT INTO mainspring_messages (number, published_at, type, payload) VALUES
    ((64 << 40) + 1, 1, 'order', x''), ((64 << 40) + 2, 1, 'order', x''), ((65 << 40) + 1, 1, 'order', x'');
INSERT INTO mainspring_unique_texts VALUES (1, 'a', (64 << 40) + 1, 1), (1, 'b', (65 << 40) + 1, 1);
INSERT INTO mainspring_asides (number, partition, published_at, type, key, payload, attempts, retry_at, error) VALUES
    ((64 << 40) + 1, 64, 1, 'order', 'a', x'', 1, 5, ''), ((64 << 40) + 2, 64, 1, 'order', 'a', x'', 1, NULL, ''),
    ((65 << 40) + 1, 65, 1, 'order', NULL, x'', 1, 5, '');
INSERT INTO mainspring_dead_letters (
    outbox, number, published_at, type, payload, state, attempts, error, failed_at, deadline, completed_at
) VALUES
    (1, 1, 1, 'order', x'', 'pending', 1, '', 1, NULL, NULL), (1, 2, 1, 'order', x'', 'reprocessing', 1, '', 1, 5, NULL),
    (2, 3, 1, 'order', x'', 'resolved', 1, '', 1, NULL, 5), (2, 4, 1, 'order', x'', 'pending', 1, '', 1, NULL, NULL);
INSERT INTO mainspring_tallies VALUES (60, 1, 'a', x''), (60, 2, 'a', x''), (600, 1, '', x'');
INSERT INTO mainspring_audit (at, who, action, about, outcome) VALUES
    (1, 'me', 'jobs.retry', 'a', 'done'), (2, 'you', 'jobs.retry', 'b', 'done'),
    (3, 'me', 'jobs.cancel', 'b', 'done'), (4, 'me', 'queues.pause', 'mail', 'done');
ANALYZE;
"""
# An index that is empty has no statistics, and SQLite then takes the table for a large one: other plans, other mistakes.
THREE_THAT_WAIT = """
INSERT INTO mainspring_lanes VALUES (1, 'mail.send', 'default', 0, 0);
INSERT INTO mainspring_jobs (number, id, state, lane, rank, run_at) VALUES
    (1, x'01', 'ready', 1, 0, 1), (2, x'02', 'ready', 1, 0, 1), (3, x'03', 'ready', 1, 0, 1);
INSERT INTO mainspring_payloads (number, max_attempts, loss_limit, policy, enqueued_at, parent, payload) VALUES
    (1, 1, 1, '[]', 1, NULL, x''), (2, 1, 1, '[]', 1, x'01', x''), (3, 1, 1, '[]', 1, x'01', x'');
INSERT INTO mainspring_schedules VALUES ('a', 'shop', 1, 5, 0, 0, NULL, '{}'), ('b', 'shop', 1, 6, 0, 0, NULL, '{}');
INSERT INTO mainspring_runs VALUES
    (x'01', 'a', 1, NULL, 1, 'slot', 0, 'UTC', NULL, NULL, 1, 'succeeded', 1, NULL, 0, 9),
    (x'02', 'a', 2, NULL, 1, 'slot', 0, 'UTC', NULL, NULL, 1, 'succeeded', 3, NULL, 0, 9);
INSERT INTO mainspring_outboxes VALUES (1, 'orders', 1, 1);
INSERT INTO mainspring_partitions (id, last, cursor) VALUES (64, 1, 1);
INSERT INTO mainspring_messages (number, published_at, type, payload) VALUES ((64 << 40) + 1, 1, 'order', x'');
INSERT INTO mainspring_dead_letters (outbox, number, published_at, type, payload, state, attempts, error, failed_at)
VALUES (1, 1, 1, 'order', x'', 'pending', 1, '', 1);
ANALYZE;
"""


@pytest.fixture(
    scope="module",
    params=["", A_LITTLE_OF_EVERYTHING, THREE_THAT_WAIT],
    ids=["never analyzed", "analyzed with little", "analyzed when idle"],
)
def connection(request: pytest.FixtureRequest) -> Iterator[sqlite3.Connection]:
    """A file without statistics, and one whose owner had them made when there were three jobs in it."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        migrate.migrate("a store", connection, 0)
        connection.executescript(request.param)
        yield connection


def plan(connection: sqlite3.Connection, sql: str) -> str:
    """Ask SQLite how it would do it; what is asked for makes no difference, for it counts no values."""
    for count in range(20):
        parameters = defaultdict[str, None](lambda: None) if re.search(r":\w", sql) else [None] * count
        try:
            rows = connection.execute(f"EXPLAIN QUERY PLAN {sql}", parameters).fetchall()
        except sqlite3.ProgrammingError:  # another number of parameters
            continue
        return "; ".join(detail for *_, detail in rows)
    raise AssertionError(sql)


def head(name: str) -> str:
    lines = (FOLDER / f"{name}.sql").read_text(encoding="utf-8").splitlines()
    return " ".join(line.removeprefix("--").strip() for line in lines if line.startswith("--"))


@pytest.mark.parametrize("name", NAMES)
def test_a_statement_says_what_it_promises(name: str) -> None:
    text = (FOLDER / f"{name}.sql").read_text(encoding="utf-8")

    assert text.startswith("-- ")
    assert len(text.splitlines()[0]) > 20
    assert ";" not in statement(name), "one statement a file"


@pytest.mark.parametrize("name", NAMES)
def test_a_statement_uses_the_indexes_that_it_names(connection: sqlite3.Connection, name: str) -> None:
    known = {index for (index,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'index'")}
    named = {f"mainspring_{word}" for word in re.findall(r"\w+", head(name).partition("Index")[2])} & known
    if "ON CONFLICT" in statement(name) or name == "job_add":
        named.clear()  # an upsert finds its row by the constraint, which the plan does not show
    used = plan(connection, statement(name))

    assert all(index in used for index in named), used


@pytest.mark.parametrize("name", NAMES)
def test_a_statement_does_not_walk_over_what_grows(connection: sqlite3.Connection, name: str) -> None:
    used = plan(connection, statement(name))

    assert bool(SCAN.search(used)) == (name in MAY_SCAN), used


def test_the_last_number_is_read_and_not_looked_for(connection: sqlite3.Connection) -> None:
    """Any other index has the numbers too, in another order: SQLite would read all of it to find the highest."""
    assert plan(connection, statement("job_numbers")) == "SEARCH mainspring_jobs"


def test_a_renewal_reads_no_record_whose_revision_is_known() -> None:
    parameters = {"now": 2, "term": 1, "node": "a", "known": '{"1": 0, "2": 7}'}
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        migrate.migrate("a store", connection, 0)
        for node in "ab":
            connection.execute(statement("node_join"), (node, 1, 1, "{}", 0)).fetchall()
        ((_held, _orders, others),) = connection.execute(statement("node_renew"), parameters).fetchall()
    assert [(row[0], row[5]) for row in json.loads(others)] == [(1, None), (2, "{}")]


def test_children_are_found_by_their_numbers(connection: sqlite3.Connection) -> None:
    assert "SEARCH jobs USING INTEGER PRIMARY KEY" in plan(connection, statement("search_by_parent"))


@pytest.mark.parametrize("name", ["search_by_id", "search_by_lane", "search_by_state", "search_by_key"])
def test_a_search_finds_places_in_the_index_alone_and_in_its_order(connection: sqlite3.Connection, name: str) -> None:
    """Then it costs no more than what it returns, and nothing is sorted."""
    used = plan(connection, statement(name))

    assert re.fullmatch(r"SEARCH mainspring_(jobs|payloads) USING COVERING INDEX mainspring_\w+ \(.*\)", used)
    assert "B-TREE" not in used


@pytest.mark.parametrize(
    ("name", "table"),
    [
        *product(["search_read"], ["jobs", "payloads", "traces"]),
        ("search_errors", "traces"),
        ("search_payloads", "payloads"),
    ],
)
def test_what_a_search_reads_is_found_by_its_number(connection: sqlite3.Connection, name: str, table: str) -> None:
    used = plan(connection, statement(name))

    assert used.startswith("SCAN wanted")
    assert f"SEARCH {table} USING INTEGER PRIMARY KEY" in used


def test_a_walk_over_all_jobs_would_be_found(connection: sqlite3.Connection) -> None:
    assert SCAN.search(plan(connection, "SELECT * FROM mainspring_jobs WHERE losses = ?"))
    assert SCAN.search(plan(connection, "SELECT * FROM mainspring_jobs AS jobs WHERE started_at = ?"))
    assert not SCAN.search(plan(connection, "SELECT * FROM mainspring_jobs WHERE id = ?"))


def test_the_statements_of_the_hot_paths_are_there() -> None:
    """So that one that is renamed does not leave this file without being noticed."""
    hot = {"claim_rank", "claim_first", "claim_next", "claim_heads", "claim_first_of_lane", "claim_next_of_lane"}
    hot |= {"claim_later", "jobs_claimed", "jobs_take", "settle_success", "job_settled"}
    hot |= {
        "jobs_park",
        "jobs_parked",
        "jobs_unpark",
        "parked_first",
        "parked_key_lanes",
        "parked_keys_open",
        "parked_keys_next",
        "parked_tasks",
    }

    assert {"schedules_due", "schedules_next", "runs_open", "run_end", "schedule_wake", "prune_runs"} <= set(NAMES)
    assert {
        "search_by_id",
        "search_by_lane",
        "search_by_state",
        "search_by_key",
        "search_read",
        "census_waiting",
    } <= set(NAMES)
    assert {"partitions_look", "message_read", "message_add", "partition_step", "asides_due"} <= set(NAMES)
    assert hot | {"job_write", "node_renew", "job_add", "payload_add", "prune_jobs"} <= set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_parameters_are_named_or_in_order(name: str) -> None:
    # Python 3.12.0 to 3.12.3 take "?1" for a name, and warn of it at every call (CPython issue 117995).
    assert not re.search(r"\?[0-9]", statement(name))
