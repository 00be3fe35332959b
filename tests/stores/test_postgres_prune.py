# ruff: noqa: S608 -- the names in these statements are the test's own
"""What goes, and how: days that are hidden by one instant and dropped whole, rows that are deleted a few at a time."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from itertools import count
from uuid import UUID, uuid4

import psycopg
import pytest

from mainspring.core.job import JobId, NodeId
from mainspring.stores.postgres import gates, inspect, locks, migrate, nodes, partitions
from mainspring.stores.postgres.drive import drive_sync
from mainspring.stores.postgres.prune import pruned
from mainspring.stores.postgres.statements import Statement
from mainspring.stores.records import JobFilter, NodeRecord, Process
from tests.servers.postgres import Row, Server
from tests.stores.postgres_verbs import Verbs, days_of, make_tables

DAY = timedelta(days=1)
HOUR = timedelta(hours=1)
MORNING = datetime(2030, 1, 1, 6, tzinfo=UTC)
ENOUGH = 1000
_numbers = count(1)


@pytest.fixture
def verbs(postgres: Server, new_schema: str) -> Iterator[Verbs]:
    """Tables without days."""
    with Verbs(postgres.dsn(), new_schema) as verbs:
        make_tables(verbs)
        yield verbs


@pytest.fixture
def with_days(verbs: Verbs) -> Verbs:
    """Tables with three days, beginning with that morning's."""
    verbs.run(partitions.make(2, at=MORNING))
    return verbs


@pytest.fixture
def worker(postgres: Server, with_days: Verbs) -> Iterator[Verbs]:
    """The same, as a role that owns nothing."""
    role = f"test_worker_{uuid4().hex[:8]}"
    postgres.sql(f"CREATE ROLE {role} LOGIN")
    for one in migrate.grants(with_days.schema, role):
        postgres.sql(one)
    with Verbs(postgres.dsn(user=role), with_days.schema) as verbs:
        yield verbs
    postgres.sql(f"DROP OWNED BY {role}")
    postgres.sql(f"DROP ROLE {role}")


def finish(verbs: Verbs, keep_until: datetime, *, lease: int = 1, kept_for: timedelta = DAY) -> JobId:
    """Insert a finished job, kept for a day unless the test needs longer."""
    id_ = JobId(UUID(int=next(_numbers)))
    verbs.sql(
        """
        INSERT INTO mainspring.history (
            id, queue, task, priority, state, run_at, attempt, granted, losses, loss_limit, lease, revision, max_attempts,
            policy, finished_at, keep_until, enqueued_at, payload
        ) VALUES (%s, 'q', 'mail.send', 50, 'succeeded', now(), 1, 0, 0, 3, %s, 2, 3, %s, %s, %s, now(), '')
        """,
        [id_, lease, "[0,0,0,0,0,1.0,0.0]", keep_until - kept_for, keep_until],
    )
    return id_


def enqueue(verbs: Verbs, id_: JobId | None = None) -> JobId:
    """Have there be a job that waits."""
    id_ = id_ or JobId(UUID(int=next(_numbers)))
    verbs.sql(
        """
        INSERT INTO mainspring.jobs (
            id, queue, task, priority, state, run_at, loss_limit, max_attempts, policy, enqueued_at, payload
        ) VALUES (%s, 'q', 'mail.send', 50, 'ready', now(), 3, 3, '[0,0,0,0,0,1.0,0.0]', now(), '')
        """,
        [id_],
    )
    return id_


def seen(verbs: Verbs) -> list[JobId]:
    """The jobs that can be seen, oldest first."""
    return [view.job.id for view in verbs.run(inspect.list_jobs(JobFilter(), ENOUGH, None)).jobs[::-1]]


def rows(verbs: Verbs, table: str = "history") -> int:
    ((rows,),) = verbs.sql(f"SELECT count(*) FROM mainspring.{table}")
    return int(rows)


@contextmanager
def holding(server: Server, verbs: Verbs, statement: str) -> Iterator[None]:
    """Run a statement in a transaction that stays open."""
    with psycopg.connect(server.dsn()) as other:
        other.execute(statement.replace("mainspring.", f"{verbs.schema}.").encode())
        yield
        other.rollback()


# Days.


def test_a_day_has_what_is_kept_until_then_and_the_rest_has_the_rest(with_days: Verbs) -> None:
    midnight = MORNING.replace(hour=0)
    for keep_until in (midnight - HOUR, midnight, midnight + DAY, midnight + 3 * DAY - HOUR, midnight + 3 * DAY):
        finish(with_days, keep_until)

    names = ["history_20300101", "history_20300102", "history_20300103"]
    assert days_of(with_days) == names
    assert [rows(with_days, name) for name in names] == [1, 1, 1]
    assert rows(with_days, "history_rest") == 2


def test_what_is_past_its_time_is_hidden_at_once_and_goes_with_its_day(with_days: Verbs) -> None:
    past = [finish(with_days, MORNING + hours * HOUR) for hours in (0, 1, 2)]
    kept = [finish(with_days, MORNING + 2 * HOUR + timedelta(microseconds=1)), finish(with_days, MORNING + DAY)]
    with_days.run(pruned(MORNING + 2 * HOUR, 1))

    assert seen(with_days) == kept
    assert with_days.run(inspect.get(past)) == (None, None, None)
    assert rows(with_days) == 5
    assert with_days.run(partitions.drop(ENOUGH)) == 0  # something of that day can still be seen

    with_days.run(pruned(MORNING + DAY, 1))
    assert [with_days.run(partitions.drop(ENOUGH)) for _ in range(2)] == [1, 0]
    assert days_of(with_days) == ["history_20300102", "history_20300103"]
    assert rows(with_days) == 1
    assert seen(with_days) == []


def test_days_that_have_passed_are_dropped_one_by_one(with_days: Verbs) -> None:
    with_days.run(pruned(MORNING + 10 * DAY, ENOUGH))

    assert [with_days.run(partitions.drop(ENOUGH)) for _ in range(4)] == [1, 1, 1, 0]
    assert days_of(with_days) == []


def test_the_watermark_stays_without_days_and_moves_back_with_the_clock(verbs: Verbs) -> None:
    def hidden_until() -> datetime | None:
        look = "SELECT CASE WHEN pruned_until > '-infinity' THEN pruned_until END FROM mainspring.rules"
        ((instant,),) = verbs.sql(look)
        return instant if isinstance(instant, datetime) else None

    verbs.run(pruned(MORNING, ENOUGH))
    assert hidden_until() is None

    verbs.run(partitions.make(2, at=MORNING))
    verbs.run(pruned(MORNING, ENOUGH))
    assert hidden_until() == MORNING
    verbs.run(pruned(MORNING + 3 * DAY, ENOUGH))
    assert hidden_until() == MORNING + 3 * DAY
    now = finish(verbs, MORNING + DAY)
    assert seen(verbs) == []

    verbs.run(pruned(MORNING - HOUR, ENOUGH))
    assert hidden_until() == MORNING - HOUR
    assert seen(verbs) == [now]


def test_whoever_looks_at_history_is_not_waited_for_when_a_day_is_dropped(postgres: Server, with_days: Verbs) -> None:
    with_days.run(pruned(MORNING + DAY, ENOUGH))
    with holding(postgres, with_days, "SELECT count(*) FROM mainspring.history"):
        assert with_days.run(partitions.drop(ENOUGH)) == 0
    assert len(days_of(with_days)) == 3

    assert with_days.run(partitions.drop(ENOUGH)) == 1


def test_a_day_of_which_rows_went_to_the_rest_is_not_made(verbs: Verbs) -> None:
    early = finish(verbs, MORNING + DAY)
    verbs.run(partitions.make(2, at=MORNING))

    assert days_of(verbs) == ["history_20300101", "history_20300103"]
    assert seen(verbs) == [early]


def test_a_worker_deletes_what_it_may_not_drop_a_few_at_a_time(with_days: Verbs, worker: Verbs) -> None:
    for hours in range(5):
        finish(with_days, MORNING + hours * HOUR)
    later = finish(with_days, MORNING + DAY)
    worker.run(pruned(MORNING + 17 * HOUR, ENOUGH))
    assert worker.run(partitions.drop(2)) == 0  # the day is not over
    worker.run(pruned(MORNING + 18 * HOUR, ENOUGH))

    assert [worker.run(partitions.drop(2)) for _ in range(4)] == [2, 2, 1, 0]
    assert seen(with_days) == [later]
    assert len(days_of(with_days)) == 3
    assert with_days.run(partitions.drop(2)) == 1  # the owner takes the empty table away
    assert len(days_of(with_days)) == 2


def test_pruning_on_the_databases_own_clock_makes_the_next_day_that_is_missing(verbs: Verbs) -> None:
    assert [verbs.run(partitions.upkeep(ENOUGH, partitions.Pace())) for _ in range(2)] == [0, 0]

    assert len(days_of(verbs)) == 2


def test_a_job_that_is_kept_for_longer_than_there_are_days_does_not_keep_its_day_from_being_made(verbs: Verbs) -> None:
    long, short = (finish(verbs, MORNING + 30 * DAY, kept_for=days * DAY) for days in (30, 14))
    assert (rows(verbs, "history_long"), rows(verbs, "history_rest")) == (1, 1)
    verbs.sql("DELETE FROM mainspring.history WHERE id = %s", [short])

    verbs.run(partitions.make(1, at=MORNING + 30 * DAY))
    assert days_of(verbs) == ["history_20300131", "history_20300201"]
    others = [finish(verbs, MORNING + 30 * DAY) for _ in range(3)]
    assert (rows(verbs, "history_20300131"), rows(verbs, "history_long")) == (3, 1)
    assert seen(verbs) == [long, *others]
    assert [verbs.run(pruned(MORNING + 30 * DAY, 1)) for _ in range(2)] == [1, 0]
    assert rows(verbs, "history_long") == 0


def test_a_job_that_is_kept_for_two_weeks_has_a_day_though_none_was_made_for_a_day(verbs: Verbs) -> None:
    """As where `mainspring migrate` makes the days, once a day: else its day could not be made any more."""
    verbs.run(partitions.make(at=MORNING))
    midnight = MORNING.replace(hour=0) + 2 * DAY
    finish(verbs, midnight + 14 * DAY + HOUR, kept_for=14 * DAY)

    assert (rows(verbs, "history_20300117"), rows(verbs, "history_rest")) == (1, 0)


def test_a_day_that_cannot_be_made_is_tried_again_an_hour_later(postgres: Server, verbs: Verbs) -> None:
    now = 0.0
    pace = partitions.Pace(lambda: now)
    with holding(postgres, verbs, "SELECT count(*) FROM mainspring.history_rest"):
        verbs.run(partitions.upkeep(ENOUGH, pace))
    assert days_of(verbs) == []

    now = partitions.RETRY_AFTER_S - 1
    verbs.run(partitions.upkeep(ENOUGH, pace))
    assert days_of(verbs) == []
    now = partitions.RETRY_AFTER_S
    verbs.run(partitions.upkeep(ENOUGH, pace))
    verbs.run(partitions.upkeep(ENOUGH, pace))
    assert len(days_of(verbs)) == 2


# Rows.


def test_what_has_no_day_is_deleted_a_few_at_a_time(verbs: Verbs) -> None:
    for minutes in range(5):
        finish(verbs, MORNING + timedelta(minutes=minutes))
    later = finish(verbs, MORNING + HOUR)
    now = MORNING + timedelta(minutes=4)

    assert [verbs.run(pruned(now, 2)) for _ in range(4)] == [2, 2, 1, 0]
    assert seen(verbs) == [later]
    assert rows(verbs) == 1


def test_nothing_that_somebody_holds_is_waited_for(postgres: Server, with_days: Verbs) -> None:
    verbs = with_days
    finish(verbs, MORNING - DAY)
    verbs.sql("INSERT INTO mainspring.unique_keys VALUES ('mail.send', 'a', %s, %s)", [uuid4(), MORNING - DAY])
    verbs.sql("INSERT INTO mainspring.keys VALUES ('mail.send', 'a', %s)", [MORNING - 2 * DAY])
    verbs.run(locks.acquire(MORNING - 3 * DAY, "lock", "me", HOUR))
    tables = ["history_rest", "unique_keys", "keys", "locks"]
    hold = "; ".join(f"SELECT * FROM mainspring.{table} FOR UPDATE" for table in [*tables, "rules"])
    verbs.sql("SET lock_timeout = '1ms'")
    with holding(postgres, verbs, hold):
        assert verbs.run(pruned(MORNING, ENOUGH)) == 0
    assert [rows(verbs, table) for table in tables] == [1, 1, 1, 1]

    assert verbs.run(pruned(MORNING, ENOUGH)) == 3
    assert [rows(verbs, table) for table in tables] == [0, 0, 0, 0]


def test_a_place_that_was_kept_goes_with_its_job_and_its_key_is_told(with_days: Verbs) -> None:
    deleted, hidden = finish(with_days, MORNING - DAY), finish(with_days, MORNING)
    kept, active = finish(with_days, MORNING + DAY), enqueue(with_days)
    for job in (deleted, hidden, kept, active):
        for scope, key in (("task", ""), ("key", f"key of {job}")):
            with_days.sql(
                "INSERT INTO mainspring.places VALUES (%s, 'mail.send', %s, %s, 1, 'node', true)",
                [scope, key.encode(), job],
            )
    with_days.run(pruned(MORNING, ENOUGH))

    left = with_days.sql("SELECT DISTINCT job FROM mainspring.places ORDER BY job")
    assert left == [(kept,), (active,)]
    assert sorted(with_days.sql("SELECT task, convert_from(key, 'UTF8') FROM mainspring.freed")) == [
        ("mail.send", f"key of {deleted}"),
        ("mail.send", f"key of {hidden}"),
    ]


def test_a_claim_of_a_dead_node_that_is_committed_after_it_was_cleared_is_found_within_a_day(verbs: Verbs) -> None:
    record = NodeRecord(id=NodeId("dead"), process=Process(host="here", pid=1, started="today"), tasks=frozenset())
    term = verbs.run(nodes.join(MORNING, record))
    verbs.run(nodes.declare_dead(MORNING, record.id, term))
    verbs.run(pruned(MORNING + HOUR, ENOUGH))
    late = enqueue(verbs)
    verbs.sql("UPDATE mainspring.jobs SET state = 'running', node = 'dead', lease = 1")
    assert verbs.run(nodes.orphans(ENOUGH)) == ()

    verbs.run(pruned(MORNING + DAY, ENOUGH))

    assert [claim.job.id for claim in verbs.run(nodes.orphans(ENOUGH))] == [late]


def test_the_sweep_over_keys_with_parked_jobs_goes_on_where_it_ended(verbs: Verbs) -> None:
    for key in (b"", b"a", b"b", b"c", b"d"):
        id_ = enqueue(verbs)
        verbs.sql("UPDATE mainspring.jobs SET parked = true, key = %s WHERE id = %s", [key, id_])

    def swept(after: tuple[str, bytes]) -> tuple[list[bytes], tuple[str, bytes]]:
        _, after = verbs.run(gates.mend(None, 2, after))
        return [bytes(key) for (key,) in verbs.sql("DELETE FROM mainspring.freed RETURNING key")], after

    first, after = swept(gates.FIRST_KEY)
    second, after = swept(after)
    third, after = swept(after)
    assert [first, second, third, after] == [[b"", b"a"], [b"b", b"c"], [b"d"], gates.FIRST_KEY]


def test_unique_keys_are_freed_unless_they_are_taken(verbs: Verbs) -> None:
    active, over = enqueue(verbs), finish(verbs, MORNING + DAY)
    for key, job, taken_until in [
        ("active", active, None),
        ("active, its period over", active, MORNING),
        ("over", over, MORNING),
        ("over, its period not", over, MORNING + HOUR),
        ("over, and left behind", over, None),
    ]:
        verbs.sql("INSERT INTO mainspring.unique_keys VALUES ('t', %s, %s, %s)", [key.encode(), job, taken_until])

    assert verbs.run(pruned(MORNING, ENOUGH)) == 1
    assert verbs.sql("SELECT convert_from(key, 'UTF8'), taken_until FROM mainspring.unique_keys ORDER BY 1") == [
        ("active", None),
        ("active, its period over", None),
        ("over, its period not", MORNING + HOUR),
    ]


def test_a_key_whose_job_comes_back_while_it_is_looked_at_is_not_freed(postgres: Server, verbs: Verbs) -> None:
    """Between the look for keys and the look for their jobs somebody may commit; what counts is what is true then."""
    job = finish(verbs, MORNING + DAY)
    verbs.sql("INSERT INTO mainspring.unique_keys VALUES ('t', 'a', %s, %s)", [job, MORNING])

    def ask(statement: Statement, values: tuple[object, ...]) -> list[Row]:
        answer = verbs.ask(statement, values)
        if statement.name == "prune_unique_hold":
            with Verbs(postgres.dsn(), verbs.schema) as other:
                enqueue(other, job)
        return answer

    with verbs.connection.transaction():
        assert drive_sync(ask, pruned(MORNING, ENOUGH)) == 0
    assert verbs.sql("SELECT taken_until FROM mainspring.unique_keys") == [(None,)]


def test_accounts_of_keys_are_kept_while_they_say_something(verbs: Verbs) -> None:
    parked = enqueue(verbs)
    verbs.sql("UPDATE mainspring.jobs SET parked = true, key = 'parked' WHERE id = %s", [parked])
    for key, spent_until, look_at in [
        ("paid", MORNING - DAY, None),
        ("empty", None, None),
        ("looked at", None, MORNING),
        ("parked", MORNING - DAY, None),
        ("recent", MORNING - HOUR, None),
    ]:
        verbs.sql("INSERT INTO mainspring.keys VALUES ('mail.send', %s, %s, %s)", [key.encode(), spent_until, look_at])

    assert verbs.run(pruned(MORNING, ENOUGH)) == 0
    left = verbs.sql("SELECT convert_from(key, 'UTF8') FROM mainspring.keys ORDER BY 1")
    assert left == [("looked at",), ("parked",), ("recent",)]


def test_a_lock_that_was_resigned_goes_a_day_later_and_is_not_counted(verbs: Verbs) -> None:
    lock = verbs.run(locks.acquire(MORNING, "lock", "me", HOUR))
    assert lock
    assert verbs.run(locks.resign(MORNING, lock))
    verbs.run(pruned(MORNING + DAY - HOUR, ENOUGH))
    assert rows(verbs, "locks") == 1

    assert verbs.run(pruned(MORNING + DAY, ENOUGH)) == 0
    assert rows(verbs, "locks") == 0
