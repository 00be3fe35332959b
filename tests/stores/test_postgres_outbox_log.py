# ruff: noqa: S608 -- the names in these statements are the test's own
"""What goes of the log on PostgreSQL, and how: days whole, once they are delivered; the rest row by row."""

import asyncio
import re
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import TypeVar
from uuid import uuid4

import pytest
from msgspec.structs import replace

from mainspring.clock import SystemClock
from mainspring.stores.postgres import PostgresStore, log, migrate, partitions
from mainspring.stores.postgres.connect import wanted
from mainspring.stores.postgres.publish import publish
from mainspring.stores.postgres.settings import Settings
from mainspring.stores.postgres.verb import Verb
from tests.servers.postgres import Server
from tests.servers.system import PATIENCE
from tests.stores.postgres_outboxes import Box, days_of, transaction
from tests.stores.postgres_staged import Plan
from tests.stores.postgres_verbs import Verbs, make_tables
from tests.stores.postgres_wires import on_real_time

T = TypeVar("T")

DAY = timedelta(days=1)
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
ENOUGH = 1000


@pytest.fixture
def verbs(postgres: Server, postgres_schema: str) -> Iterator[Verbs]:
    """Tables without days."""
    with Verbs(postgres.dsn(), postgres_schema) as verbs:
        make_tables(verbs)
        yield verbs


@pytest.fixture
def with_days(verbs: Verbs) -> Verbs:
    """Tables with four days that have long passed, beginning with that noon's."""
    verbs.run(partitions.MESSAGES.make(3, at=NOON))
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


class Connections:
    """Runs verbs one after the other."""

    def __init__(self, verbs: Verbs) -> None:
        self.verbs = verbs

    async def run(
        self,
        verb: Callable[[], Verb[T]],
        *,
        whole: bool = False,
        timeout: float | None = None,  # noqa: ASYNC109 -- as the store's own
    ) -> T:
        assert whole in (False, True)
        assert timeout is None or timeout > 0
        return self.verbs.run(verb())


def clear(verbs: Verbs, marks: log.Marks | None = None, *, at: datetime | None = None, limit: int = ENOUGH) -> int:
    return asyncio.run(log.clear(Connections(verbs), at, limit, marks or log.Marks()))


def emptied(verbs: Verbs, marks: log.Marks | None = None) -> int:
    """Clear until a day is emptied: a server that is busy, or is at the table itself, may be in the way for a moment."""
    for _ in range(1000):
        if gone := clear(verbs, marks):
            return gone
        time.sleep(0.02)
    return 0


def dropped(verbs: Verbs, left: list[str]) -> None:
    """Clear until no other past days are there than these."""
    for _ in range(1000):
        assert clear(verbs) == 0
        if past(verbs) == left:
            return
        time.sleep(0.02)
    raise AssertionError(past(verbs))


def past(verbs: Verbs) -> list[str]:
    """The days that are there of those that have passed."""
    return [day for day in days_of(verbs) if day < "202602"]


def rows(verbs: Verbs, table: str = "outbox_messages") -> int:
    ((count,),) = verbs.sql(f"SELECT count(*) FROM mainspring.{table}")
    return int(count)


# Days.


def test_the_owner_makes_days_of_the_log_and_each_has_its_messages(with_days: Verbs) -> None:
    box = Box(with_days)
    for days in (-1, 0, 1, 3, 4):
        box.publish(b"1", at=NOON + days * DAY)

    names = ["20260101", "20260102", "20260103", "20260104"]
    assert past(with_days) == names
    assert [rows(with_days, f"outbox_messages_{name}") for name in names] == [1, 1, 0, 1]
    assert rows(with_days, "outbox_messages_rest") == 2
    box.look()
    assert len(box.log) == 5


def test_a_day_goes_when_all_of_it_is_delivered(with_days: Verbs) -> None:
    box = Box(with_days, partitions=2)
    box.publish(b"1", b"2", at=NOON)
    box.look()
    box.publish(b"3", at=NOON + DAY)
    box.publish(b"4", at=NOON, partition=1)
    box.look()
    box.deliver(2)
    clear(with_days)
    assert rows(with_days) == 4
    assert past(with_days)[0] == "20260101"

    box.deliver(1, partition=1)
    assert emptied(with_days) == 1
    assert [one.payload for one in box.read(2)] == [b"3"]
    assert rows(with_days) == 1
    dropped(with_days, ["20260102"])
    box.deliver(3)
    assert emptied(with_days) == 1
    dropped(with_days, [])


def test_a_day_stays_while_a_message_of_it_has_no_number(with_days: Verbs) -> None:
    box = Box(with_days)
    box.publish(b"1", at=NOON)
    box.look()
    box.deliver(1)
    box.publish(b"2", at=NOON)

    assert clear(with_days) == 0
    box.look()
    assert clear(with_days) == 0
    assert box.log == [b"1", b"2"]
    box.deliver(2)
    assert emptied(with_days) == 1


def test_a_day_stays_while_somebody_is_in_a_transaction_who_has_written_there(
    postgres: Server, with_days: Verbs
) -> None:
    box = Box(with_days)
    box.publish(b"1", at=NOON)
    box.look()
    box.deliver(1)
    with transaction(postgres.dsn()) as other:
        insert = f"""
            INSERT INTO {with_days.schema}.outbox_messages (line, number, published_at, type, payload)
            SELECT line, 99, %s, 't', 'x' FROM {with_days.schema}.outbox_lines
        """
        other.execute(insert.encode(), [NOON])
        assert clear(with_days) == 0
        box.publish(b"2", at=NOON)
        box.look()
        box.deliver(2)
        assert clear(with_days) == 0
        other.commit()
    assert clear(with_days) == 0
    box.look()

    assert box.log == [b"1", b"2", b"x"]
    box.deliver(3)
    assert emptied(with_days) == 1


def test_a_day_is_emptied_though_somebody_has_published_and_not_committed(postgres: Server, with_days: Verbs) -> None:
    """Its table stays until then: to drop it all of the log would have to be locked."""
    box = Box(with_days)
    box.publish(b"1", at=NOON)
    box.look()
    box.deliver(1)
    with transaction(postgres.dsn()) as other:
        box.publish_in(other, b"2")
        assert emptied(with_days) == 1
        assert rows(with_days) == 0
        assert clear(with_days) == 0
        assert past(with_days)[0] == "20260101"
        other.commit()
    dropped(with_days, [])
    box.look()
    assert [one.payload for one in box.read(1)] == [b"2"]


def test_days_to_come_are_made_one_at_a_time(verbs: Verbs) -> None:
    for days in range(1, partitions.MESSAGES.ahead + 3):
        clear(verbs)
        assert len(days_of(verbs)) == min(days, partitions.MESSAGES.ahead + 1)


def test_days_of_the_log_are_made_by_whoever_migrates(verbs: Verbs) -> None:
    verbs.run(migrate.migrate("a store", verbs.schema))

    assert len(days_of(verbs)) == partitions.MESSAGES.ahead + 1


# Row by row.


def test_who_owns_nothing_deletes_what_is_delivered_from_wherever_it_is(with_days: Verbs, worker: Verbs) -> None:
    box = Box(worker)
    for days in (-1, 0, 1):
        box.publish(b"1", b"2", at=NOON + days * DAY)
    box.look()
    box.deliver(5)
    marks = log.Marks()

    assert [clear(worker, marks, limit=2) for _ in range(4)] == [2, 2, 1, 0]
    assert [one.seq for one in box.read(5)] == [6]
    assert rows(worker) == 1
    box.deliver(6)
    assert clear(worker, marks) == 1
    assert rows(worker) == 0
    assert len(past(with_days)) == 4


def test_a_message_that_is_delivered_during_a_clearing_is_deleted_by_it_or_by_the_next(
    with_days: Verbs, worker: Verbs, monkeypatch: pytest.MonkeyPatch
) -> None:
    box = Box(with_days)
    find = log._find
    coming = [NOON + DAY, NOON]

    def publish_first(marks: Mapping[int, int]) -> Verb[list[log.Line]]:
        if coming:
            box.publish(b"1", at=coming.pop())
            box.deliver(box.look()[0].last)
        return find(marks)

    monkeypatch.setattr(log, "_find", publish_first)
    marks = log.Marks()
    for _ in range(4):
        clear(worker, marks)

    assert rows(worker) == 0


def test_what_no_day_was_made_for_goes_up_to_the_cursor_and_numbers_go_on(verbs: Verbs) -> None:
    box = Box(verbs)
    marks = log.Marks()
    for round_ in range(5):
        box.publish(*[b"1"] * 3, at=NOON)
        assert box.look()[0].last == 3 * round_ + 3
        box.deliver(3 * round_ + 2)
        assert clear(verbs, marks, at=NOON) == (2 if round_ == 0 else 3)
        assert [one.seq for one in box.read(3 * round_ + 2)] == [3 * round_ + 3]
    assert rows(verbs, "outbox_chunks") == 1

    box.deliver(15)
    assert clear(verbs, marks, at=NOON) == 1
    assert rows(verbs) == 0
    assert box.read() == ()
    assert box.look()[0].last == 15


def test_another_process_finds_out_how_far_the_log_is_cleared(verbs: Verbs) -> None:
    box = Box(verbs)
    for _ in range(4):
        box.publish(b"1", at=NOON)
        box.look()
    box.deliver(2)
    assert clear(verbs, at=NOON) == 2
    box.deliver(4)

    assert clear(verbs, at=NOON) == 2
    assert clear(verbs, at=NOON) == 0


def test_what_says_which_numbers_were_given_goes_with_its_messages(with_days: Verbs) -> None:
    """In another cluster it is all that tells what was delivered."""
    box = Box(with_days)
    marks = log.Marks()
    for days in (0, 1):
        for _ in range(3):
            box.publish(b"1", at=NOON + days * DAY)
            box.look()
    box.deliver(4)
    assert emptied(with_days, marks) == 1
    clear(with_days, marks)
    assert rows(with_days, "outbox_chunks") == 3
    box.deliver(6)
    assert emptied(with_days, marks) == 1
    clear(with_days, marks)

    assert rows(with_days, "outbox_chunks") == 1
    assert box.look()[0].last == 6


def test_a_day_with_a_message_that_was_passed_over_is_not_emptied_and_the_message_gets_its_number(
    with_days: Verbs,
) -> None:
    box = Box(with_days)
    for payload in (b"1", b"2"):
        box.publish(payload, at=NOON)
        box.look()
    with_days.sql(  # as one that another history of this cluster has published, whose transaction ids were lower
        "INSERT INTO mainspring.outbox_messages (line, number, xid, published_at, type, payload)"
        " SELECT line, number + 1000, xid, published_at, type, 'passed over' FROM mainspring.outbox_messages LIMIT 1"
    )
    box.deliver(2)
    assert box.look()[0].last == 2

    clear(with_days)
    assert rows(with_days) == 3
    assert box.look()[0].last == 3
    assert box.log == [b"1", b"2", b"passed over"]
    box.deliver(3)
    assert emptied(with_days) == 1


@pytest.fixture
def as_store(postgres: Server, with_days: Verbs) -> Iterator[Verbs]:
    """The same tables, with the settings of the store's own connections."""
    with Verbs(postgres.dsn(), with_days.schema) as verbs:
        for name, value in wanted(Settings(dsn=postgres.dsn(), clock=SystemClock())).items():
            verbs.sql("SELECT set_config(%s, %s, false)", [name, value])
        yield verbs


@pytest.mark.slow
def test_the_check_before_a_day_is_emptied_reads_each_message_a_few_times_however_many_there_are(
    as_store: Verbs,
) -> None:
    box = Box(as_store)
    count = 20_000
    for _ in range(count // ENOUGH):
        box.publish(*[b"1"] * ENOUGH, at=NOON)
        box.look()
    box.deliver(count)

    template = partitions.MESSAGES.of_day(log._EMPTY, NOON.date())
    check = re.search(r"WITH .*?(?=;)", template.text, re.DOTALL)
    assert check
    ((found,),) = as_store.sql(f"EXPLAIN (FORMAT JSON) {check[0]}")
    joins = [one for one in Plan("check", found[0]["Plan"]) if one.get("Join Type") in {"Anti", "Semi"}]
    assert joins == []
    assert emptied(as_store) == 1
    assert rows(as_store) == 0


@on_real_time
async def test_a_check_of_a_day_that_is_cancelled_is_logged_and_the_day_stays(
    postgres: Server, with_days: Verbs, caplog: pytest.LogCaptureFixture
) -> None:
    box = Box(with_days)
    box.publish(b"1", at=NOON)
    box.look()
    box.deliver(1)
    day = log.Day(NOON.replace(hour=0), has_passed=True, is_ours=True, is_filled=True)
    cancel = (
        "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE datname = current_database() "
        "AND %s = ANY (pg_blocking_pids(pid))"
    )
    store = PostgresStore(postgres.dsn(), schema=with_days.schema)
    await store.open()
    try:
        with transaction(postgres.dsn()) as other:
            other.execute(f"LOCK TABLE {with_days.schema}.outbox_chunks".encode())
            cleared = asyncio.create_task(log._clear_days(store._connections, None, [day]))
            async with asyncio.timeout(PATIENCE):
                while not with_days.sql(cancel, [other.info.backend_pid]):
                    await asyncio.sleep(0.01)
                assert await cleared == 0
    finally:
        await store.close()

    assert "outbox messages of 2026-01-01: the check before they are cleared was cancelled" in caplog.text
    assert rows(with_days) == 1


# Texts.


def test_a_text_is_known_for_a_day_and_while_its_message_is_in_the_log(verbs: Verbs) -> None:
    box = Box(verbs)
    marks = log.Marks()

    def is_fresh(text: str, at: datetime) -> bool:
        (answer,) = verbs.run(publish(at, [replace(box.message(), unique=text)]))
        return answer.fresh

    assert is_fresh("a", NOON)
    assert is_fresh("b", NOON)
    box.look()
    box.deliver(1)
    clear(verbs, marks, at=NOON + DAY / 2)
    assert not is_fresh("a", NOON + DAY / 2)  # its message is gone
    clear(verbs, marks, at=NOON + 2 * DAY)
    clear(verbs, marks, at=NOON + 2 * DAY)

    assert is_fresh("a", NOON + 2 * DAY)
    assert not is_fresh("b", NOON + 2 * DAY)  # its message is not
