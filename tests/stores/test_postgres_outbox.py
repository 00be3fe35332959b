"""Numbers of messages on PostgreSQL: the same order for everyone, no hole, nothing passed over, nobody waited for."""

import random
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, rule
from msgspec.structs import replace

from mainspring.stores.postgres import outboxes
from mainspring.stores.postgres.log import clear_texts
from mainspring.stores.postgres.publish import is_simple, publish
from mainspring.stores.postgres.statements import statement, with_names
from tests.servers.postgres import Server, new_server
from tests.stores.postgres_crowd import crowd, lasting_schema
from tests.stores.postgres_outboxes import Box, message, stepped, transaction
from tests.stores.postgres_staged import explained, staged
from tests.stores.postgres_verbs import Verbs, make_tables
from tests.stores.postgres_wires import on_real_time


@pytest.fixture(scope="module")
def postgres(quiet_postgres: Server) -> Server:
    """Pages are counted, which dead rows change."""
    return quiet_postgres


@pytest.fixture(scope="module")
def schema(postgres: Server) -> Iterator[str]:
    with lasting_schema(postgres) as name:
        yield name


@pytest.fixture
def verbs(postgres: Server, schema: str) -> Iterator[Verbs]:
    with Verbs(postgres.dsn(), schema) as verbs:
        yield verbs


@pytest.fixture
def box(verbs: Verbs) -> Box:
    return Box(verbs)


# Whenever it is committed.


def test_transactions_that_end_in_any_order_leave_no_hole(postgres: Server, box: Box) -> None:
    with ExitStack() as stack:
        open_ = [stack.enter_context(transaction(postgres.dsn())) for _ in range(6)]
        for number, one in enumerate(open_):
            box.publish_in(one, str(number).encode())
        there: list[bytes] = []
        for number in (3, 0, 5, 1, 4, 2):
            open_[number].rollback() if number % 3 == 0 else open_[number].commit()
            box.look()
            assert box.log[: len(there)] == there
            there = box.log

    assert there == [b"5", b"1", b"4", b"2"]


def test_all_savepoints_of_a_transaction_are_one(postgres: Server, box: Box) -> None:
    with transaction(postgres.dsn()) as other:
        box.publish_in(other, b"before")
        other.execute("SAVEPOINT one")
        box.publish_in(other, b"kept")
        other.execute("RELEASE one")
        other.execute("SAVEPOINT two")
        box.publish_in(other, b"undone")
        other.execute("ROLLBACK TO two")
        box.publish(b"meanwhile")
        box.look()
        box.publish_in(other, b"after")
        assert box.log == [b"meanwhile"]
        box.look()
        other.commit()
    box.look()

    assert box.log == [b"meanwhile", b"before", b"kept", b"after"]


def test_one_that_began_long_before_and_publishes_late_comes_when_it_is_committed(postgres: Server, box: Box) -> None:
    with transaction(postgres.dsn()) as other:
        other.execute("SELECT pg_current_xact_id()")
        for number in range(3):
            box.publish(str(number).encode())
            box.look()
        box.publish_in(other, b"late")
        box.publish(b"3")
        box.look()
        other.commit()
    box.look()

    assert box.log == [b"0", b"1", b"2", b"3", b"late"]


def test_what_was_committed_before_comes_first_though_the_other_transaction_is_older(
    postgres: Server, box: Box
) -> None:
    with transaction(postgres.dsn()) as older:
        older.execute("SELECT pg_current_xact_id()")
        box.publish(b"first")
        box.publish_in(older, b"second")
        older.commit()
    box.look()

    assert box.log == [b"first", b"second"]


def test_one_that_sees_an_old_state_publishes_all_the_same(postgres: Server, box: Box) -> None:
    with transaction(postgres.dsn()) as other:
        other.execute("SET TRANSACTION ISOLATION LEVEL SERIALIZABLE")
        other.execute("SELECT 1")
        box.publish(b"1")
        box.look()
        box.publish_in(other, b"2")
        other.commit()
    box.look()

    assert box.log == [b"1", b"2"]


@pytest.mark.slow
def test_a_prepared_transaction_is_under_way_until_somebody_ends_it() -> None:
    with new_server() as server, server.schema() as schema:
        server.sql("ALTER SYSTEM SET max_prepared_transactions = 4")
        server.restart()
        with Verbs(server.dsn(), schema) as verbs:
            make_tables(verbs)
            box = Box(verbs)
            with transaction(server.dsn()) as other:
                box.publish_in(other, b"prepared")
                other.execute("PREPARE TRANSACTION 'one'")
            for payload in (b"1", b"2"):
                box.publish(payload)
                box.look()
                box.look()
            assert box.log == [b"1", b"2"]
            server.sql("COMMIT PREPARED 'one'")
            box.look()

            assert box.log == [b"1", b"2", b"prepared"]


def test_more_than_a_thousand_come_in_order_and_are_read_from_anywhere(box: Box) -> None:
    payloads = [str(number).encode() for number in range(2500)]
    box.publish(*payloads)
    (view,) = box.look()

    assert view.last == 2500
    assert box.log == payloads
    for after in (0, 1, 998, 999, 1000, 1001, 1999, 2499, 2500):
        found = box.verbs.run(outboxes.read(box.name, 0, after, 7))
        assert [one.seq for one in found] == [*range(after + 1, min(after + 7, 2500) + 1)]
        assert [one.payload for one in found] == payloads[after : after + 7]


class Histories(RuleBasedStateMachine):
    """Transactions that begin, publish, go back and end in any order, with looks in between, against a list."""

    server: Server
    verbs: Verbs

    def __init__(self) -> None:
        super().__init__()
        self.box = Box(self.verbs)
        self.committed: list[tuple[int, bytes]] = []
        """What is committed, each with when: the count of looks and commits so far."""
        self.published: dict[bytes, int] = {}
        self.there: list[bytes] = []
        self.time = 0
        self.open: dict[int, psycopg.Connection] = {}
        self.written: dict[int, list[bytes]] = {}
        self.marks: dict[int, int] = {}

    transactions = Bundle("transactions")

    @rule(target=transactions)
    def begin(self) -> int:
        number = len(self.written)
        self.open[number] = psycopg.connect(self.server.dsn())
        self.written[number] = []
        return number

    @rule(one=transactions, many=st.integers(1, 3))
    def publish(self, one: int, many: int) -> None:
        payloads = [f"{len(self.published) + place}".encode() for place in range(many)]
        self.box.publish_in(self.open[one], *payloads)
        self.written[one] += payloads
        self.published |= dict.fromkeys(payloads, self.time)

    @rule(one=transactions)
    def mark(self, one: int) -> None:
        self.open[one].execute("SAVEPOINT mark")
        self.marks[one] = len(self.written[one])

    @rule(one=transactions)
    def go_back(self, one: int) -> None:
        if one in self.marks:
            self.open[one].execute("ROLLBACK TO mark")
            del self.written[one][self.marks[one] :]

    @rule(one=consumes(transactions))
    def commit(self, one: int) -> None:
        with self.open.pop(one) as connection:
            connection.commit()
        self.time += 1
        self.committed += [(self.time, payload) for payload in self.written[one]]

    @rule(one=consumes(transactions))
    def roll_back(self, one: int) -> None:
        with self.open.pop(one) as connection:
            connection.rollback()

    @rule()
    def look(self) -> None:
        (view,) = self.box.look()
        log = self.box.log
        assert len(log) == view.last == len(self.committed)
        assert log[: len(self.there)] == self.there
        assert set(log) == {payload for _, payload in self.committed}
        self.there = log
        place = {payload: number for number, payload in enumerate(log)}
        for when, payload in self.committed:
            later = [place[other] for _, other in self.committed if self.published[other] >= when]
            assert place[payload] < min(later, default=len(log))

    def teardown(self) -> None:
        for connection in self.open.values():
            connection.close()
        self.look()


def test_any_history_of_transactions_is_one_order(postgres: Server, verbs: Verbs) -> None:
    class Here(Histories):
        pass

    Here.server, Here.verbs = postgres, verbs
    Here.TestCase.settings = settings(max_examples=25, stateful_step_count=30)
    Here.TestCase("runTest").runTest()


# By many at once.

WRITERS, READERS, EACH = 20, 4, 25


def test_many_publish_while_many_give_numbers(postgres: Server, schema: str) -> None:
    """Each writer's transactions follow one another, and so do their messages; those that roll back leave nothing."""
    over = threading.Event()
    with Verbs(postgres.dsn(), schema) as verbs:
        box = Box(verbs)

    def write(writer: int) -> list[bytes]:
        kept: list[bytes] = []
        draw = random.Random(writer)  # noqa: S311 -- the same every time
        with Verbs(postgres.dsn(), schema) as own, psycopg.connect(postgres.dsn()) as connection:
            mine = Box(own, box.name)
            for number in range(EACH):
                payloads = [f"{writer} {number} {place}".encode() for place in range(draw.randint(1, 4))]
                mine.publish_in(connection, *payloads)
                if draw.random() < 0.3:
                    mine.look()  # so that others end before us
                if draw.random() < 0.2:
                    connection.rollback()
                else:
                    connection.commit()
                    kept += payloads
        return kept

    def number() -> list[list[bytes]]:
        seen: list[list[bytes]] = []
        with Verbs(postgres.dsn(), schema) as own:
            mine = Box(own, box.name)
            while not over.is_set():
                mine.look()
                seen.append(mine.log)
        return seen

    with ThreadPoolExecutor(WRITERS + READERS) as pool:
        reading = [pool.submit(number) for _ in range(READERS)]
        writing = [pool.submit(write, writer) for writer in range(WRITERS)]
        try:
            written = [one.result() for one in writing]
        finally:
            over.set()
        seen = [log for one in reading for log in one.result()]

    with Verbs(postgres.dsn(), schema) as verbs:
        box = Box(verbs, box.name)
        box.look()
        log = box.log
    assert sorted(log) == sorted(payload for some in written for payload in some)
    for some in written:
        assert [payload for payload in log if payload in set(some)] == some
    assert all(one == log[: len(one)] for one in seen)


def test_who_finds_somebody_else_at_it_waits_for_nobody(postgres: Server, verbs: Verbs, box: Box) -> None:
    box.publish(b"1")
    with transaction(postgres.dsn()) as other:
        other.execute(f"SELECT FROM {verbs.schema}.outbox_lines FOR UPDATE".encode())
        looked = verbs.run(outboxes.look(None, [box.name]))
        assert looked.fresh
        last = verbs.run(outboxes.number(looked))
        assert not outboxes.numbered(looked, last, looked.now).is_sequenced  # type: ignore[arg-type] # it is there
    box.look()

    assert box.log == [b"1"]


def test_numbers_that_somebody_else_gave_since_the_look_are_told(verbs: Verbs, box: Box) -> None:
    box.publish(b"1")
    looked = verbs.run(outboxes.look(None, [box.name]))
    box.publish(b"2")
    box.look()
    last = verbs.run(outboxes.number(looked))

    found = outboxes.numbered(looked, last, looked.now)  # type: ignore[arg-type] # it is there
    assert (found.is_sequenced, [view.last for view in found.partitions]) == (True, [2])


@on_real_time
async def test_what_is_committed_until_the_line_is_held_is_numbered_whatever_a_roles_isolation_is(
    postgres: Server, schema: str
) -> None:
    async with crowd(postgres, schema) as those:
        store, other = await those.open(), await those.open()
        await store.publish([message("isolated", b"1")])
        postgres.sql("ALTER ROLE postgres SET default_transaction_isolation = 'repeatable read'")
        try:
            fresh = await those.open()
            looked = await staged(
                fresh.look_at_partitions(["isolated"]),
                after_outbox_hold=lambda: other.publish([message("isolated", b"2")]),
            )
        finally:
            postgres.sql("ALTER ROLE postgres RESET default_transaction_isolation")

        assert looked.partitions[0].last == 2


@on_real_time
async def test_who_was_overtaken_between_two_statements_says_how_it_stands_now(postgres: Server, schema: str) -> None:
    async with crowd(postgres, schema) as those:
        store, other = await those.open(), await those.open()
        await store.publish([message("overtaken", b"1")])
        looked = await staged(
            store.look_at_partitions(["overtaken"]), after_outbox_look=lambda: other.look_at_partitions(["overtaken"])
        )

        assert (looked.partitions[0].last, looked.is_sequenced) == (1, True)


# Texts.


def test_an_empty_text_is_a_text(verbs: Verbs, box: Box) -> None:
    empty = replace(box.message(), unique="")
    (first,) = verbs.run(publish(None, [empty]))
    (again,) = verbs.run(publish(None, [empty]))
    together = verbs.run(publish(None, [empty, box.message(), empty]))

    assert not is_simple([empty])
    assert [first.fresh, again.fresh, *(one.fresh for one in together)] == [True, False, False, True, False]
    assert {first.number, again.number, together[0].number, together[2].number} == {first.number}


def _searches(plan: dict[str, Any]) -> Iterator[int]:
    if plan.get("Relation Name", "").startswith("outbox_messages"):
        yield plan["Actual Loops"]
    for one in plan.get("Plans", ()):
        yield from _searches(one)


def test_an_idle_line_is_not_searched_again_for_transactions_that_are_over(
    postgres: Server, verbs: Verbs, box: Box
) -> None:
    def late_searches(settled: Sequence[str]) -> int:
        """Count how often a look searches the log."""
        text = with_names(statement("outbox_look"), verbs.schema)
        values = {"p1": None, "p2": [box.name], "p3": list(settled)}
        cursor = verbs.connection.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {text}".encode(), values)
        ((found,),) = cursor.fetchall()
        return sum(_searches(found[0]["Plan"]))

    with ExitStack() as stack:
        for _ in range(20):
            stack.enter_context(transaction(postgres.dsn())).execute("SELECT pg_current_xact_id()")
        box.publish(b"1")
        box.look()
        assert verbs.run(outboxes.look(None, [box.name])).settled == {}
    looked = verbs.run(outboxes.look(None, [box.name]))
    assert list(looked.settled) == list(looked.views)
    settled = list(looked.settled.values())
    assert late_searches([]) - late_searches(settled) >= 20

    assert verbs.run(outboxes.look(None, [box.name], settled)).fresh == []
    box.publish(b"2")
    looked = verbs.run(outboxes.look(None, [box.name], settled))
    assert (looked.fresh, looked.settled) == (list(looked.views), {})
    box.look()
    assert box.log == [b"1", b"2"]


# In another cluster.


def elsewhere(box: Box, snapshot: str = "1:1:") -> None:
    """Have it be as after a dump that was played into another server, with other transaction numbers."""
    box.verbs.sql(
        "UPDATE mainspring.outbox_chunks SET cluster = 1, snapshot = %s::pg_snapshot, xids = xids", [snapshot]
    )


@pytest.mark.parametrize("snapshot", ["1:1:", "999999999:999999999:"], ids=["behind", "ahead"])
def test_in_another_cluster_nothing_is_lost_and_nothing_comes_twice(verbs: Verbs, box: Box, snapshot: str) -> None:
    box.publish(b"1", b"2")
    box.look()
    box.publish(b"3")
    elsewhere(box, snapshot)
    box.publish(b"4")
    assert box.look()[0].last == 4
    assert box.log == [b"1", b"2", b"3", b"4"]
    looked = verbs.run(outboxes.look(None, [box.name]))
    assert (looked.fresh, looked.foreign) == ([], [])

    box.publish(b"5")
    box.look()
    assert box.log == [b"1", b"2", b"3", b"4", b"5"]


def test_in_another_cluster_a_line_without_news_is_known_to_have_none(verbs: Verbs, box: Box) -> None:
    box.publish(b"1")
    box.look()
    elsewhere(box)
    assert box.look()[0].last == 1

    assert verbs.run(outboxes.look(None, [box.name])).fresh == []
    assert box.log == [b"1"]


def ahead(verbs: Verbs, box: Box, by: int) -> None:
    """Have its messages come from a server whose transactions had got further than they have here."""
    verbs.sql(
        "UPDATE mainspring.outbox_messages SET xid = (pg_snapshot_xmax(pg_current_snapshot())::text::bigint + %s)::text::xid8"
        " WHERE line / 64 = (SELECT id FROM mainspring.outboxes WHERE name = %s)",
        [by, box.name],
    )
    verbs.sql(
        "UPDATE mainspring.outbox_chunks SET xids = ARRAY(SELECT messages.xid FROM unnest(numbers)"
        " WITH ORDINALITY AS one (number, place) JOIN mainspring.outbox_messages AS messages"
        " ON messages.number = one.number ORDER BY place)"
        " WHERE line / 64 = (SELECT id FROM mainspring.outboxes WHERE name = %s)",
        [box.name],
    )


def test_messages_from_a_cluster_that_was_ahead_are_numbered_though_nobody_had_looked_there(
    verbs: Verbs, box: Box
) -> None:
    box.publish(b"1", b"2")
    ahead(verbs, box, 1_000_000)

    assert box.look()[0].last == 2
    box.publish(b"3")
    box.look()
    assert box.log == [b"1", b"2", b"3"]
    assert verbs.run(outboxes.look(None, [box.name])).fresh == []


@pytest.mark.parametrize("was_looked_at", [False, True])
def test_messages_from_a_cluster_that_was_ahead_are_not_new_when_it_is_caught_up_with(
    verbs: Verbs, box: Box, was_looked_at: bool
) -> None:
    box.publish(b"1", b"2")
    if was_looked_at:
        box.look()
        box.publish(b"3")
        elsewhere(box)
    ahead(verbs, box, 20)
    box.look()
    there = box.log
    for _ in range(30):
        verbs.sql("SELECT pg_current_xact_id()")

    assert verbs.run(outboxes.look(None, [box.name])).fresh == []
    box.publish(b"last")
    box.look()
    assert box.log == [*there, b"last"]


LOGGED = ("outboxes", "outbox_lines", "outbox_messages", "outbox_chunks", "outbox_stands")


def replicate(source: Verbs, target: Verbs) -> None:
    """Copy the outboxes' rows from another server, as logical replication does, and set the sequence."""
    target.sql(f"TRUNCATE {', '.join(f'mainspring.{table}' for table in LOGGED)}")
    for table in LOGGED:
        name = f"{source.schema}.{table}"
        with (
            source.connection.cursor().copy(f"COPY (TABLE {name}) TO STDOUT".encode()) as rows,
            target.connection.cursor().copy(f"COPY {target.schema}.{table} FROM STDIN".encode()) as copy,
        ):
            for row in rows:
                copy.write(row)
    ((number,),) = source.sql("SELECT last_value FROM mainspring.outbox_numbers")
    target.sql("SELECT setval('mainspring.outbox_numbers', %s)", [number])


@pytest.mark.slow
def test_messages_are_not_passed_over_on_a_physical_copy_that_was_fed_logically() -> None:
    """It has the same system identifier, and transaction ids of its own, which are lower."""
    with new_server() as blue:
        with Verbs(blue.dsn(), "mainspring") as verbs:
            make_tables(verbs)
            Box(verbs, "orders").publish(b"0")
        with blue.standby(synchronous=False) as green:
            green.promote()
            with Verbs(blue.dsn(), "mainspring") as old, Verbs(green.dsn(), "mainspring") as new:
                box = Box(old, "orders")
                for _ in range(500):
                    old.sql("SELECT pg_current_xact_id()")
                box.publish(b"1", b"2")
                box.look()
                box.publish(b"3")
                replicate(old, new)

                box = Box(new, "orders")
                box.publish(b"4", b"5")
                box.look()
                assert box.log == [b"0", b"1", b"2", b"3", b"4", b"5"]
                for _ in range(600):
                    new.sql("SELECT pg_current_xact_id()")
                box.publish(b"6")
                box.look()
                assert box.log == [b"0", b"1", b"2", b"3", b"4", b"5", b"6"]


def test_a_text_from_a_cluster_that_was_ahead_is_known_while_its_message_is_in_the_log(verbs: Verbs, box: Box) -> None:
    long_ago = datetime(2020, 1, 1, tzinfo=UTC)
    verbs.run(publish(long_ago, [replace(box.message(b"1"), unique="text")]))
    box.look()
    elsewhere(box)
    ahead(verbs, box, 1_000_000)
    verbs.sql(
        "UPDATE mainspring.outbox_texts AS texts SET xid = messages.xid FROM mainspring.outbox_messages AS messages"
        " WHERE messages.number = texts.number"
    )
    box.look()
    verbs.run(clear_texts(None, (long_ago - timedelta(days=1), 0), 100))

    mine = "SELECT count(*) FROM mainspring.outbox_texts WHERE line / 64 = (SELECT id FROM mainspring.outboxes WHERE name = %s)"
    assert verbs.sql(mine, [box.name]) == [(1,)]


# Whatever somebody holds.

HELD = {
    "a snapshot": ["BEGIN ISOLATION LEVEL REPEATABLE READ", "SELECT 1"],
    "a transaction that has written": ["BEGIN", "SELECT pg_current_xact_id()"],
}


@pytest.mark.parametrize("how", HELD)
@on_real_time
async def test_a_transaction_that_somebody_holds_costs_a_look_nothing(postgres: Server, schema: str, how: str) -> None:
    """Pages that are looked at, when nothing is new and for ten new messages, of the last round and the first."""
    name = f"held by {len(how)}".replace(" ", "-")
    async with crowd(postgres, schema) as those, those.connection() as other:
        store = await those.open()
        node = await those.node(store)
        for statement in HELD[how]:
            await other.execute(statement)
        pages: list[tuple[int, int]] = []
        revision = 0
        for _ in range(12):
            for _ in range(10):
                await store.publish([message(name) for _ in range(20)])
                looked = await store.look_at_partitions([name])
                for _ in range(3):
                    step = stepped(name, revision, looked.partitions[0].last)
                    assert await store.stride(node.id, node.term, [step]) == (True,)
                    revision += 1
            await store.publish([message(name) for _ in range(10)])
            _, news = await explained(store.look_at_partitions([name]))
            _, none = await explained(store.look_at_partitions([name]))
            pages.append((sum(plan.buffers for plan in news), sum(plan.buffers for plan in none)))

        # A tree that grows by a level costs a page a look in it.
        assert pages[-1][0] <= 1.2 * pages[1][0] + 4, pages
        assert pages[-1][1] <= 1.2 * pages[1][1] + 4, pages


@on_real_time
async def test_what_a_transaction_has_written_that_is_still_open_is_not_even_stepped_over(
    postgres: Server, schema: str
) -> None:
    async with crowd(postgres, schema) as those, those.connection() as other:
        store = await those.open()
        await store.publish([message("large", b"1")])
        _, before = await explained(store.look_at_partitions(["large"]))
        await other.execute("BEGIN")
        for _ in range(20):
            await store.publish_in(other, [message("large") for _ in range(500)])
        _, after = await explained(store.look_at_partitions(["large"]))
        await store.publish([message("large", b"2")])
        _, news = await explained(store.look_at_partitions(["large"]))

        _, later = await explained(store.look_at_partitions(["large"]))

        assert sum(plan.buffers for plan in later) <= sum(plan.buffers for plan in before) + 10
        assert sum(plan.buffers for plan in after) <= sum(plan.buffers for plan in before) + 10
        assert sum(plan.buffers for plan in news) <= sum(plan.buffers for plan in before) + 60
        await other.execute("COMMIT")
        assert (await store.look_at_partitions(["large"])).partitions[0].last == 10_002
