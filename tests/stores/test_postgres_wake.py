"""Hints on PostgreSQL: who is rung and when, what is sent, and what happens when the connection that listens is lost."""

import asyncio
import logging
import multiprocessing
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import psycopg
import pytest

from mainspring import Limit, Mainspring, Retry
from mainspring.stores.announcements import JobsAnnounced, JobsTaken, Notice, OtherChange
from mainspring.stores.postgres import PostgresStore, post
from mainspring.stores.postgres.connected import Connected
from mainspring.stores.postgres.handle import HINTS_AT_ONCE
from mainspring.stores.postgres.payloads import (
    ENDED,
    Outgoing,
    decode,
    encode_announcement,
    encode_taken,
)
from mainspring.stores.postgres.skew import Skew
from mainspring.stores.postgres.wake import Bells, channel_of
from tests.servers.pgbouncer import Pooler
from tests.servers.postgres import Row, Server, new_server
from tests.servers.system import PATIENCE, free_port, wait_until
from tests.servers.wire import Wire
from tests.stores.place import new
from tests.stores.postgres_wires import LOGGER, lines, on_real_time, sessions, settings

NOON = datetime(2031, 5, 6, 12, 0, 0, 123456, tzinfo=UTC)
SECOND = timedelta(seconds=1)
MARK = "mark"
THREAD = "mainspring-postgres-post"


@pytest.fixture(autouse=True)
def nobody_is_there(postgres: Server) -> None:
    """Wait for what others have left: a session ends a moment after its connection."""
    wait_until(lambda: not sessions(postgres), "the sessions of the test before have ended")


class Process:
    """One process's bells, and all that they have said."""

    def __init__(self, dsn: str, schema: str, **changes: Any) -> None:  # noqa: ANN401 -- of Settings
        self.settings = settings(dsn, schema=schema, **changes)
        self.skew = Skew(self.settings)
        self.bells = Bells(self.settings, on_hint=self._hinted, skew=self.skew)
        self.hints: list[datetime | None] = []
        self.notices: list[Notice] = []
        self.rings = 0
        self._rung = threading.Event()

    def _hinted(self, least: datetime | None) -> None:
        self.hints.append(least)

    def ring(self) -> None:
        self.rings += 1
        self._rung.set()

    async def watch(self) -> Callable[[], None]:
        """Watch, and wait until it listens."""
        end = self.bells.watch(self.ring)
        await self.rung()
        return end

    async def subscribe(self, group: str = "group") -> Callable[[], None]:
        """Subscribe, and wait until it listens."""
        end = self.bells.subscribe(self.notices.append, lambda: group)
        await until(lambda: OtherChange() in self.notices, "it listens")
        self.notices.clear()
        return end

    async def rung(self) -> None:
        assert await asyncio.to_thread(self._rung.wait, PATIENCE), "no ring came"
        self.reset()

    def reset(self) -> None:
        self._rung.clear()

    def forget(self) -> None:
        self.hints, self.rings = [], 0
        self.reset()


@asynccontextmanager
async def process(dsn: str, schema: str, **changes: Any) -> AsyncIterator[Process]:  # noqa: ANN401 -- of Settings
    one = Process(dsn, schema, **changes)
    try:
        yield one
    finally:
        await one.bells.close()


@asynccontextmanager
async def heard(server: Server, schema: str) -> AsyncIterator[list[tuple[float, str]]]:
    """Everything that is notified, with the time at which it came."""
    found: list[tuple[float, str]] = []
    connection = await asyncpg.connect(server.dsn())
    await connection.add_listener(channel_of(schema), lambda *notified: found.append((time.monotonic(), notified[3])))
    try:
        yield found
    finally:
        await connection.close()


async def mark(server: Server, schema: str, notified: list[tuple[float, str]]) -> None:
    """Notify once more and wait until that is heard: what was committed before is heard before."""
    server.sql("SELECT pg_notify(%s, %s)", [channel_of(schema), MARK])
    await until(lambda: MARK in [payload for _, payload in notified], "the mark is heard")
    notified.remove(next(one for one in notified if one[1] == MARK))


async def until(true: Callable[[], object], what: str) -> None:
    await asyncio.to_thread(wait_until, true, what)


BEFORE: set[int | None] = set()


@pytest.fixture(autouse=True)
def _count_threads_from_here() -> None:
    """What an earlier test has left is not this one's."""
    BEFORE.clear()
    BEFORE.update(thread.ident for thread in threading.enumerate())


async def at_rest(server: Server, look: str) -> list[Row]:
    """Wait until nothing happens any more; returns what is to be seen then."""
    found = server.sql(look)
    async with asyncio.timeout(PATIENCE):
        while True:
            await asyncio.sleep(0.3)
            before, found = found, server.sql(look)
            if before == found:
                return found


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == THREAD and thread.ident not in BEFORE]


def due(payload: str) -> datetime | None:
    announced = decode(payload).announced
    return announced.due_times[0] if announced is not None and announced.due_times else None


@pytest.mark.parametrize(
    "due_times",
    [(), (NOON,), (datetime(1970, 1, 1, tzinfo=UTC),), (datetime(1, 1, 1, tzinfo=UTC), NOON, NOON + SECOND)],
)
@pytest.mark.parametrize("were_held_back", [True, False])
@pytest.mark.parametrize(("jobs", "for_all_nodes"), [(None, False), (7, False), (None, True)])
@pytest.mark.parametrize("group", ["", "abc"])
@pytest.mark.parametrize("other_change", [True, False])
def test_an_announcement_is_read_as_it_was_written(
    due_times: tuple[datetime, ...],
    jobs: int | None,
    group: str,
    *,
    were_held_back: bool,
    for_all_nodes: bool,
    other_change: bool,
) -> None:
    announced = JobsAnnounced(
        key="key",
        due_times=due_times,
        were_held_back=were_held_back,
        jobs=jobs,
        for_all_nodes=for_all_nodes,
        group=group,
        local=True,
    )
    assert decode(encode_announcement(announced, other_change=other_change), local=True) == (
        announced,
        None,
        other_change,
    )


@pytest.mark.parametrize("due_times", [(), (NOON,), (NOON, NOON + SECOND)])
def test_a_report_of_taken_jobs_is_read_as_it_was_written(due_times: tuple[datetime, ...]) -> None:
    taken = JobsTaken(group="group", keys=("key", "@1"), due_times=due_times)
    assert decode(encode_taken(taken)) == (None, taken, False)


@pytest.mark.parametrize(
    "payload",
    [
        "",
        "noon",
        "9" * 40,
        "-",
        "1.5",
        "jobs",
        "jobs x key 1 -",
        "jobs 1,now key 1 -",
        "jobs 1 key x -",
        f"also {'9' * 40} key 1 -",
        "taken group x key",
    ],
)
def test_a_payload_that_is_not_understood_may_mean_anything_but_jobs(payload: str) -> None:
    assert decode(payload) == (None, None, True)


@pytest.mark.parametrize("word", ["it's", "a'; DROP TABLE jobs; --", "@1", "@x", "A", "é", "a\n", "", "a" * 33])
def test_a_key_or_group_that_is_not_ours_is_never_sent_back(word: str) -> None:
    for payload in (f"jobs 1 {word} 1 -", f"also 1 key 1 {word}", f"taken {word} - key"):
        assert decode(payload) == (None, None, True)
    assert decode(f"taken group - a{word}").taken is None or word == ""


def test_payloads_that_wait_are_merged_into_as_few_as_possible() -> None:
    outgoing = Outgoing()
    assert not outgoing.is_waiting
    for number, due_times in enumerate([(NOON,), (NOON - SECOND,), (NOON + SECOND, NOON + 2 * SECOND)]):
        outgoing.announce(JobsAnnounced(key=f"key{number}", due_times=due_times, jobs=1))
        assert outgoing.is_waiting
    outgoing.ended = True
    outgoing.report_taken(JobsTaken(group="a", keys=("1",), due_times=(NOON,)))
    outgoing.report_taken(JobsTaken(group="b", keys=("2",)))
    outgoing.report_taken(JobsTaken(group="a", keys=("3",), due_times=(NOON - SECOND,)))
    merged = JobsAnnounced(key="key2", due_times=(NOON - SECOND, NOON + SECOND, NOON + 2 * SECOND), jobs=3)
    assert outgoing.payloads(NOON) == [
        encode_announcement(merged, other_change=False),
        encode_taken(JobsTaken(group="a", keys=("1", "3"), due_times=(NOON - SECOND, NOON))),
        "taken b - 2",
    ]
    outgoing.other_change = True
    assert outgoing.payloads(NOON)[0].startswith("also ")


def test_a_count_that_is_unknown_stays_so_and_all_nodes_stay_all_nodes() -> None:
    outgoing = Outgoing()
    outgoing.announce(JobsAnnounced(key="a", due_times=(NOON,), jobs=1))
    outgoing.announce(JobsAnnounced(key="b", for_all_nodes=True))
    outgoing.announce(JobsAnnounced(key="c", jobs=1))
    assert outgoing.announced == JobsAnnounced(key="c", due_times=(NOON,), for_all_nodes=True)


def test_a_place_that_was_freed_is_not_hidden_by_a_job_that_is_due_later() -> None:
    outgoing = Outgoing()
    outgoing.announce(JobsAnnounced(key="a", were_held_back=True))
    outgoing.announce(JobsAnnounced(key="b", due_times=(NOON,), jobs=1))
    (payload,) = outgoing.payloads(NOON - SECOND)
    assert decode(payload).announced == JobsAnnounced(key="b", due_times=(NOON,), were_held_back=True)


def test_notifications_that_could_not_be_sent_come_before_later_ones() -> None:
    earlier, later = Outgoing(), Outgoing()
    earlier.announce(JobsAnnounced(key="a", due_times=(NOON,), jobs=1))
    earlier.report_taken(JobsTaken(group="g", keys=("a",)))
    earlier.other_change = True
    later.announce(JobsAnnounced(key="b", due_times=(NOON,), jobs=1))
    earlier.merge(later)
    assert earlier.payloads(NOON) == [
        encode_announcement(JobsAnnounced(key="b", due_times=(NOON,), jobs=2), other_change=True),
        "taken g - a",
    ]


def test_a_payload_keeps_within_the_limit_of_postgresql() -> None:
    outgoing = Outgoing()
    for number in range(1000):
        due = NOON + number * SECOND
        outgoing.announce(
            JobsAnnounced(key=f"{number:016}", due_times=(due,), were_held_back=True, jobs=1, group="g" * 12)
        )
        outgoing.report_taken(JobsTaken(group="g" * 12, keys=(f"{number:016}",), due_times=(due,)))
    keys = tuple(f"@{number:016}" for number in range(1000))
    outgoing.report_taken(JobsTaken(group="h" * 12, keys=keys, due_times=(NOON,) * 1000))
    assert len(outgoing.payloads(NOON)) == 3
    assert all(len(payload) < 8000 for payload in outgoing.payloads(NOON))


def test_each_schema_has_a_channel_of_its_own_that_is_a_plain_word() -> None:
    names = {channel_of(schema) for schema in ("mainspring", "Main spring", 'q"uoted', "mainspring2")}
    assert len(names) == 4
    assert all(name.isidentifier() and name.islower() and len(name) < 32 for name in names)


@on_real_time
async def test_a_commit_is_told_here_at_once_and_there_soon(
    postgres: Server, postgres_schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(post, "PROBE_EVERY", 3600.0)  # nothing is sent along with a probe
    async with (
        process(postgres.dsn(), postgres_schema) as here,
        process(postgres.dsn(), postgres_schema) as there,
    ):
        await here.watch()
        await there.watch()
        here.bells.committed(NOON)  # from now on it is connected
        await there.rung()
        for second in range(5):
            here.forget()
            there.forget()
            here.bells.committed(NOON + second * SECOND)
            assert (here.rings, here.hints) == (1, [NOON + second * SECOND])
            await there.rung()
            assert there.hints == [NOON + second * SECOND]
            there.bells.committed(NOON - SECOND)
            await until(lambda: NOON - SECOND in here.hints, "what was sent later is heard")
            assert here.rings == 2, "what this process sent rings it no second time"


@on_real_time
async def test_other_schemas_are_not_disturbed(postgres: Server, postgres_schema: str) -> None:
    async with (
        process(postgres.dsn(), postgres_schema) as here,
        process(postgres.dsn(), "another") as there,
        process(postgres.dsn(), "another") as beside,
        heard(postgres, postgres_schema) as notified,
    ):
        await there.watch()
        there.forget()
        here.bells.committed(NOON)
        await until(lambda: notified, "it is heard")
        beside.bells.committed(NOON + SECOND)
        await there.rung()
        assert there.hints == [NOON + SECOND]


@on_real_time
async def test_many_commits_are_one_notification_every_20_ms(postgres: Server, postgres_schema: str) -> None:
    async with process(postgres.dsn(), postgres_schema) as here, heard(postgres, postgres_schema) as notified:
        here.bells.committed(NOON)
        await until(lambda: notified, "it is connected")
        notified.clear()
        started = time.monotonic()
        count = 0
        while time.monotonic() - started < 0.5 or count < 1000 or len(notified) < 3:
            count += 1
            here.bells.committed(NOON - count * SECOND)
            await asyncio.sleep(0)
            assert time.monotonic() - started < PATIENCE, "the first go while others still come"
        last = NOON - count * SECOND
        await until(lambda: due(notified[-1][1]) == last, "and none is forgotten")
        assert len(notified) <= (time.monotonic() - started) / 0.02 + 2
        assert min(due(payload) or NOON for _, payload in notified) == last


@on_real_time
async def test_what_has_no_time_does_not_hide_what_has_one(postgres: Server, postgres_schema: str) -> None:
    async with process(postgres.dsn(), postgres_schema) as here, heard(postgres, postgres_schema) as notified:
        for least in (NOON, None, NOON - SECOND, None, NOON):  # while it still connects
            here.bells.committed(least)

        def both() -> bool:
            received = [decode(payload) for _, payload in notified]
            times = [one.announced.due_times[0] for one in received if one.announced]
            return NOON - SECOND in times and any(one.other_change for one in received)

        await until(both, "both are heard of")


@on_real_time
async def test_many_transactions_of_users_notify_once_in_20_ms(postgres: Server, postgres_schema: str) -> None:
    store = PostgresStore(postgres.dsn(), schema=postgres_schema)
    await store.open()
    async with heard(postgres, postgres_schema) as notified:
        began = time.monotonic()
        with psycopg.connect(postgres.dsn()) as connection:
            for _ in range(100):
                store.enqueue_in_sync(connection, [new()])
                connection.commit()
        took = time.monotonic() - began
        await until(lambda: len(notified) >= HINTS_AT_ONCE, "those of the beginning were heard of")
        assert HINTS_AT_ONCE <= len(notified) <= took / 0.02 + HINTS_AT_ONCE
    await store.close()


@on_real_time
async def test_a_hint_for_the_users_own_transaction_comes_every_20_ms_at_most(
    postgres: Server, postgres_schema: str
) -> None:
    assert post.PAUSE == 0.02  # two lines of a test may lie further apart than that
    connection = await asyncpg.connect(postgres.dsn())
    async with process(postgres.dsn(), postgres_schema) as here, process(postgres.dsn(), postgres_schema) as there:
        await there.watch()
        there.forget()
        hint = here.bells.hint([NOON])
        assert hint is not None
        assert (hint.channel, due(hint.payload)) == (channel_of(postgres_schema), NOON)
        assert here.bells.hint([NOON], pause=3600.0) is None
        await asyncio.sleep(0.025)  # a pause
        later = here.bells.hint()
        assert later is not None
        assert later.payload == ""

        transaction = connection.transaction()
        await transaction.start()
        await connection.fetch("SELECT pg_notify($1, $2)", *hint)
        here.bells.committed(NOON + SECOND)
        await there.rung()
        assert there.hints == [NOON + SECOND], "what is not committed is not heard"
        there.forget()
        await transaction.commit()
        await there.rung()
        assert there.hints == [NOON]
    await connection.close()


@on_real_time
async def test_a_listener_whose_session_was_ended_is_back_soon_and_rings(
    postgres: Server, postgres_schema: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with process(postgres.dsn(), postgres_schema) as here, process(postgres.dsn(), postgres_schema) as there:
        await there.watch()
        for _ in range(2):
            there.forget()
            (session,) = sessions(postgres)
            postgres.sql("SELECT pg_terminate_backend(%s, 5000)", [session])
            await there.rung()
            assert session not in sessions(postgres)
        there.forget()
        here.bells.committed(NOON)
        await there.rung()
        assert there.hints == [NOON]
    assert lines(caplog, "") == []


@pytest.mark.slow
@on_real_time
async def test_a_server_that_was_away_is_listened_to_again(
    postgres_schema: str, caplog: pytest.LogCaptureFixture
) -> None:
    with new_server() as server:
        async with process(server.dsn(), postgres_schema) as here, process(server.dsn(), postgres_schema) as there:
            here.bells.committed(None)
            await there.watch()
            there.forget()
            assert there.bells.hears()
            server.kill()
            told = "no notifications are heard for now"
            await asyncio.to_thread(wait_until, lambda: lines(caplog, told), "somebody said so")
            assert not there.bells.hears()
            here.bells.committed(NOON)  # it is kept until it can be sent
            server.start()
            await asyncio.to_thread(wait_until, lambda: lines(caplog, "heard again"), "it listens")
            assert there.rings > 0, "something may have been missed"
            await until(lambda: not here.bells.is_waiting, "it was sent")
            here.bells.committed(NOON + SECOND)
            await until(lambda: NOON + SECOND in there.hints, "it is heard of")
    assert len(lines(caplog, told)) == len(lines(caplog, "heard again")) == 1


@on_real_time
async def test_a_silent_network_is_found_out_by_the_probe(
    postgres: Server, postgres_schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(post, "PROBE_EVERY", 0.2)
    with Wire.to(postgres) as wire:
        async with process(wire.dsn(), postgres_schema, timeout=4.0) as here:
            await here.watch()
            here.forget()
            look = (
                "SELECT state_change FROM pg_stat_activity WHERE datname = current_database() "
                "AND application_name = 'mainspring'"
            )
            seen: set[str] = set()

            def was_probed_twice() -> bool:
                seen.add(str(postgres.sql(look)))
                return len(seen) > 2

            await until(was_probed_twice, "it was probed twice")
            assert here.rings == 0, "a probe rings nobody"
            wire.hang()
            await until(lambda: not here.bells.hears(), "it was found out")
            wire.cut()
            wire.heal()
            await here.rung()
            async with process(postgres.dsn(), postgres_schema) as there:
                here.forget()
                there.bells.committed(NOON)
                await here.rung()
                assert here.hints == [NOON]


@on_real_time
async def test_at_rest_it_does_nothing(postgres: Server, postgres_schema: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(post, "PROBE_EVERY", 3600.0)
    async with process(postgres.dsn(), postgres_schema) as here:
        await here.watch()
        look = (
            "SELECT state_change FROM pg_stat_activity WHERE datname = current_database() "
            "AND application_name = 'mainspring'"
        )
        before = await at_rest(postgres, look)
        (thread,) = (one for one in threading.enumerate() if one.name == THREAD and one.ident not in BEFORE)
        assert thread.ident
        clock = time.pthread_getcpuclockid(thread.ident)
        used = time.clock_gettime(clock)
        await asyncio.sleep(1.0)  # nothing is to happen, so there is nothing to wait for
        assert postgres.sql(look) == before
        assert time.clock_gettime(clock) - used < 0.001


@on_real_time
async def test_it_listens_only_while_somebody_watches(
    postgres: Server, postgres_schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(post, "PROBE_EVERY", 0.1)
    last = "SELECT query FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'mainspring'"
    async with process(postgres.dsn(), postgres_schema) as here, process(postgres.dsn(), postgres_schema) as there:
        there.bells.committed(NOON)
        await asyncio.to_thread(wait_until, lambda: postgres.sql(last) == [(post._CLOCK,)], "it does not listen")
        end = await here.watch()
        end()
        both = [(post._CLOCK,)] * 2
        await until(lambda: postgres.sql(last) == both, "none of them listens")
        here.forget()
        async with heard(postgres, postgres_schema) as notified:
            there.bells.committed(NOON)
            await until(lambda: notified, "it was sent")
        await here.watch()
        there.bells.committed(NOON + SECOND)
        await until(lambda: NOON + SECOND in here.hints, "it is heard")
        assert NOON not in here.hints


@on_real_time
async def test_the_probe_measures_the_clock(postgres: Server, postgres_schema: str) -> None:
    async with process(postgres.dsn(), postgres_schema) as here:
        await here.watch()
        await asyncio.to_thread(wait_until, lambda: here.skew.offset != timedelta(0), "it was measured")
        assert abs(here.skew.offset) < timedelta(seconds=PATIENCE)  # as little as an answer took, twice


@on_real_time
async def test_closing_sends_what_is_to_be_sent_and_ends_the_thread(postgres: Server, postgres_schema: str) -> None:
    async with heard(postgres, postgres_schema) as notified:
        for _ in range(3):
            async with process(postgres.dsn(), postgres_schema) as here:
                await here.watch()
                here.bells.committed(NOON)
                here.bells.committed(NOON - SECOND)
            assert threads() == []
            await until(lambda: any(due(one) == NOON - SECOND for _, one in notified), "all of it was sent")
            notified.clear()
    await until(lambda: not sessions(postgres), "the sessions have ended")


@on_real_time
async def test_a_program_that_commits_once_and_leaves_is_heard(postgres: Server, postgres_schema: str) -> None:
    async with heard(postgres, postgres_schema) as notified:
        async with process(postgres.dsn(), postgres_schema) as here:
            here.bells.committed(NOON)
        await until(lambda: notified, "it is heard")
        await mark(postgres, postgres_schema, notified)
        assert [due(payload) for _, payload in notified] == [NOON]


def _commit_once(process: Process) -> None:
    process.bells.committed(NOON)
    asyncio.run(process.bells.close())


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
@on_real_time
async def test_a_forked_child_rings_by_itself_and_leaves_the_parents_ears_alone(
    postgres: Server, postgres_schema: str
) -> None:
    async with process(postgres.dsn(), postgres_schema) as here, process(postgres.dsn(), postgres_schema) as there:
        await here.watch()
        before = sessions(postgres)
        here.forget()
        child = multiprocessing.get_context("fork").Process(target=_commit_once, args=(here,))
        child.start()
        await here.rung()
        await asyncio.to_thread(child.join, PATIENCE)
        assert child.exitcode == 0
        assert here.hints == [NOON]
        await until(lambda: sessions(postgres) == before, "the child's session has ended, and no other")
        here.forget()
        there.bells.committed(NOON + SECOND)
        await here.rung()
        assert here.hints == [NOON + SECOND]


@pytest.mark.slow
@on_real_time
async def test_closing_waits_for_no_server_that_is_not_there(postgres: Server, postgres_schema: str) -> None:
    nowhere = f"postgresql://postgres@127.0.0.1:{free_port()}/"
    async with asyncio.timeout(PATIENCE), process(nowhere, postgres_schema, timeout=600.0, patience=600.0) as here:
        here.bells.committed(NOON)
    with Wire.to(postgres) as wire:
        wire.hang()
        async with asyncio.timeout(PATIENCE), process(wire.dsn(), postgres_schema, timeout=600.0) as here:
            here.bells.committed(NOON)
    assert threads() == []


@on_real_time
async def test_it_can_be_used_again_after_it_was_closed(postgres: Server, postgres_schema: str) -> None:
    async with process(postgres.dsn(), postgres_schema) as here, process(postgres.dsn(), postgres_schema) as there:
        await there.watch()
        await there.bells.close()
        there.forget()
        async with heard(postgres, postgres_schema) as notified:
            here.bells.committed(NOON)
            await until(lambda: notified, "it was sent")
        assert (there.rings, there.hints) == (0, [])
        await there.watch()
        here.bells.committed(NOON + SECOND)
        await until(lambda: NOON + SECOND in there.hints, "it is heard")
        assert NOON not in there.hints


@on_real_time
async def test_who_asks_for_no_notifications_gets_none_and_sends_them_still(
    postgres: Server, postgres_schema: str
) -> None:
    async with (
        process(postgres.dsn(), postgres_schema, listen=False) as deaf,
        process(postgres.dsn(), postgres_schema) as there,
        heard(postgres, postgres_schema) as notified,
    ):
        deaf.bells.watch(deaf.ring)
        assert threads() == []
        await there.watch()
        there.forget()
        deaf.bells.committed(NOON)
        await there.rung()
        deaf.forget()
        notified.clear()
        there.bells.committed(NOON)
        await until(lambda: notified, "others hear it")
        assert deaf.rings == 0


@on_real_time
async def test_a_watcher_that_raises_is_logged_and_hinders_nobody(
    postgres: Server, postgres_schema: str, caplog: pytest.LogCaptureFixture
) -> None:
    def broken() -> None:
        raise ZeroDivisionError

    async with process(postgres.dsn(), postgres_schema, listen=False) as here:
        here.bells.watch(broken)
        here.bells.watch(here.ring)
        here.bells.committed(NOON)
        assert here.rings == 1
    assert [record.message for record in caplog.records if record.name == LOGGER and record.levelno >= logging.ERROR]


@on_real_time
async def test_jobs_are_announced_here_at_once_and_there_under_the_same_key(
    postgres: Server, postgres_schema: str
) -> None:
    async with process(postgres.dsn(), postgres_schema) as here, process(postgres.dsn(), postgres_schema) as there:
        await here.subscribe("here")
        await there.subscribe("there")
        here.bells.announce([NOON], 3)
        (mine,) = here.notices
        assert isinstance(mine, JobsAnnounced)
        assert (mine.jobs, mine.due_times, mine.local, mine.group) == (3, (NOON,), True, "here")
        await until(lambda: there.notices, "it is received")
        (theirs,) = there.notices
        assert isinstance(theirs, JobsAnnounced)
        assert (theirs.key, theirs.jobs, theirs.due_times, theirs.local, theirs.group) == (
            mine.key,
            3,
            (NOON,),
            False,
            "here",
        )
        assert there.hints[-1] == NOON

        there.bells.report_taken(JobsTaken(group="there", keys=(theirs.key,)))
        await until(lambda: len(here.notices) > 1, "the report is received")
        assert here.notices[1] == JobsTaken(group="there", keys=(mine.key,))


@on_real_time
async def test_a_commit_that_was_reported_here_is_not_reported_again_by_its_own_notification(
    postgres: Server, postgres_schema: str
) -> None:
    async with process(postgres.dsn(), postgres_schema) as here, process(postgres.dsn(), postgres_schema) as there:
        await here.subscribe()
        hint = here.bells.hint([NOON], jobs=1, other_change=False)
        assert hint is not None
        here.bells.told(hint)
        postgres.sql("SELECT pg_notify(%s, %s)", list(hint))
        there.bells.announce([NOON], 1)
        await until(lambda: len(here.notices) > 1, "the notification of another process is received")
        mine, theirs = here.notices
        assert isinstance(mine, JobsAnnounced)
        assert isinstance(theirs, JobsAnnounced)
        assert (mine.local, theirs.local) == (True, False)
        assert mine.key != theirs.key


@on_real_time
async def test_a_report_of_taken_jobs_does_not_wait_for_the_pause_between_notifications(
    postgres: Server, postgres_schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with process(postgres.dsn(), postgres_schema) as here, heard(postgres, postgres_schema) as notified:
        here.bells.report_ended()
        await until(lambda: notified, "it is connected")
        monkeypatch.setattr(post, "PAUSE", 60.0)
        here.bells.report_ended()
        here.bells.report_taken(JobsTaken(group="g", keys=("a",)))
        await until(lambda: len(notified) == 3, "both were sent")
        assert [payload for _, payload in notified[1:]] == [ENDED, "taken g - a"]
        here.bells.report_taken(JobsTaken(group="g", keys=("b",)))
        await mark(postgres, postgres_schema, notified)
        assert len(notified) == 3, "but there is a pause between two of them"


@on_real_time
async def test_what_rings_a_watcher_and_what_a_node_is_told(postgres: Server, postgres_schema: str) -> None:
    async with process(postgres.dsn(), postgres_schema) as here:
        await here.subscribe()
        here.bells.watch(here.ring)
        here.forget()
        here.bells.report_ended()
        assert (here.rings, here.notices) == (1, [])
        here.bells.committed(None)
        assert (here.rings, here.notices) == (2, [OtherChange()])
        here.bells.report_taken(JobsTaken(group="g", keys=("a",)))
        assert (here.rings, here.notices[1:]) == (2, [JobsTaken(group="g", keys=("a",))])
        here.bells.committed(NOON)
        assert here.rings == 3
        assert [type(notice) for notice in here.notices[2:]] == [JobsAnnounced, OtherChange]


@on_real_time
async def test_the_end_of_a_job_announces_jobs_only_where_it_frees_a_place(
    postgres: Server, postgres_schema: str
) -> None:
    store, elsewhere = (PostgresStore(postgres.dsn(), schema=postgres_schema) for _ in range(2))
    app = Mainspring(store=store)

    @app.task(name="plain")
    async def plain() -> None: ...

    @app.task(name="limited", limit=Limit(concurrency=1), retry=Retry.fixed("1h", max_attempts=2))
    async def limited(*, fails: bool) -> None:
        assert not fails

    notices: list[Notice] = []
    await elsewhere.open()
    try:
        async with app.node():
            elsewhere.subscribe(notices.append, str)
            await until(lambda: OtherChange() in notices, "it listens")

            def announced() -> list[tuple[int | None, bool]]:
                jobs = [one for one in notices if isinstance(one, JobsAnnounced) and not one.for_all_nodes]
                return [(one.jobs, one.were_held_back) for one in jobs]

            await (await plain.enqueue()).result("30s")
            await until(announced, "the enqueue was announced")
            await (await limited.enqueue(fails=False)).result("30s")
            await until(lambda: (None, True) in announced(), "a place was freed")
            assert announced() == [(1, False), (1, False), (None, True)]
            await limited.enqueue(fails=True)  # its next attempt is due in an hour, but the place is free at once
            freed = (
                "a place was freed by a job that will be tried again"  # perhaps in one notification with the enqueue
            )
            await until(lambda: (None, True) in announced()[3:], freed)
    finally:
        await elsewhere.close()


@on_real_time
async def test_a_subscriber_that_raises_is_logged_and_hinders_nobody(
    postgres: Server, postgres_schema: str, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(_: Notice) -> None:
        raise ZeroDivisionError

    async with process(postgres.dsn(), postgres_schema, listen=False) as here:
        here.bells.subscribe(broken, str)
        end = here.bells.subscribe(here.notices.append, str)
        here.bells.committed(None)
        assert here.notices == [OtherChange()]
        end()
        here.bells.committed(None)
        assert here.notices == [OtherChange()]
    assert [record.message for record in caplog.records if record.name == LOGGER and record.levelno >= logging.ERROR]


@pytest.mark.needs("pgbouncer")
@on_real_time
async def test_behind_a_pooler_nothing_is_heard_but_by_a_way_past_it(
    postgres: Server, postgres_schema: str, caplog: pytest.LogCaptureFixture
) -> None:
    with Pooler(postgres) as pooler:
        async with (
            process(pooler.dsn(), postgres_schema) as behind,
            process(pooler.dsn(), postgres_schema, listen_dsn=postgres.dsn()) as past,
            heard(postgres, postgres_schema) as notified,
        ):
            behind.bells.watch(behind.ring)
            await past.watch()
            past.forget()
            behind.bells.committed(NOON)
            await past.rung()
            assert past.hints == [NOON]
            behind.forget()
            notified.clear()
            past.bells.committed(NOON)
            await until(lambda: notified, "others hear it")
            assert behind.rings == 0
    assert len(lines(caplog, "listen=HOST:PORT")) == 1


@on_real_time
async def test_a_connection_that_swallows_notifications_is_told_once_and_asked_rarely(
    postgres: Server, postgres_schema: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def swallow(*_: object) -> None:
        """As a pooler does that nobody has found out: LISTEN is done, on a connection that is somebody else's next."""

    monkeypatch.setattr(post, "PROBE_EVERY", 0.05)
    monkeypatch.setattr(Connected, "listen", swallow)
    async with process(postgres.dsn(), postgres_schema, timeout=1.0) as here:
        await here.watch()
        await asyncio.to_thread(wait_until, lambda: lines(caplog, "no notifications arrive"), "it was told")
        await until(lambda: not here.bells.hears(), "it has given up")
        look = (
            "SELECT state_change FROM pg_stat_activity WHERE datname = current_database() "
            "AND application_name = 'mainspring'"
        )
        before = await at_rest(postgres, look)
        await asyncio.sleep(0.5)  # ten times that pause: nothing is to happen, so there is nothing to wait for
        assert postgres.sql(look) == before
    assert len(lines(caplog, "no notifications arrive")) == 1
