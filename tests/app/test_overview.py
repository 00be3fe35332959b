"""A store as a whole, as an app shows it: from what nodes have counted, and by counting only while none does."""

import asyncio
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainspring import Breaker, Cron, Mainspring, Message, Retry, Sleep
from mainspring.cli.doctor.life import ONE_PROCESS, life
from mainspring.client.health.finding import Finding, Level
from mainspring.client.health.warnings import PATIENCE
from mainspring.client.look import Look, look
from mainspring.client.overview import LONGEST, NodeLook
from mainspring.client.searching import read_argument, read_instant, search_of
from mainspring.client.spans import Span, Spans
from mainspring.core.job import NodeId, State
from mainspring.core.names import Name
from mainspring.core.tally import MINUTE, TEN_MINUTES, Count, Counted, Line, start_of, written
from mainspring.errors import DeclarationError, NoOverview, StoreUnavailable
from mainspring.runtime.report import Report, ServiceState
from mainspring.runtime.report import written as report_written
from mainspring.stores.memory import MemoryStore
from mainspring.stores.overview import NewEntry, QueueRule, Tally
from mainspring.stores.records import NodeRecord, NodeView, Process
from mainspring.supervise import Backoff
from mainspring.testing import VirtualTime
from mainspring.testing.faults import FaultyStore
from mainspring.testing.virtual import START

ELSEWHERE = Process(host="another machine", pid=1, started="then")


class World:
    """An app on a store in memory, which can have faults."""

    def __init__(self, time: VirtualTime) -> None:
        self.time = time
        self.memory = MemoryStore(clock=time.clock)
        self.store = FaultyStore(self.memory)
        self.app = Mainspring(store=self.store.as_store, clock=time.clock)

    async def join(self, node: str, *tasks: str, queues: tuple[str, ...] | None = None) -> int:
        """Have a node at work that does nothing."""
        names = frozenset(map(Name.parse, tasks))
        record = NodeRecord(id=NodeId(node), process=ELSEWHERE, tasks=names, queues=queues, takes_census=True)
        return await self.memory.join(record)

    async def count(self, *counts: Count, ago: float = 0) -> None:
        """Have a census be taken."""
        at = self.time.clock.now() - timedelta(seconds=ago)
        body = written(Counted(counted_at=at, counts=counts))
        await self.memory.write_tallies([Tally(at=start_of(at, MINUTE), span=MINUTE, by="", body=body)])

    async def warnings(self) -> dict[str, Finding]:
        await asyncio.sleep(6)  # for so long the last ones are kept
        return {one.code: one for one in (await self.app.overview.look()).warnings}


@pytest.fixture
def world(virtual_time: VirtualTime) -> World:
    return World(virtual_time)


# A look.


async def test_a_look_shows_what_has_happened(world: World) -> None:
    app = world.app

    @app.task(name="send", queue="mail")
    async def send() -> None:
        await asyncio.sleep(1)

    @app.task(name="burn", retry=Retry.fixed("1s", max_attempts=2))
    async def burn() -> None:
        await asyncio.sleep(10)
        raise ValueError("hot")

    app.queue("mail", concurrency=5)
    async with app.node(concurrency=10):
        await asyncio.sleep(1)
        for _ in range(20):
            await send.enqueue()
        await burn.enqueue()
        await asyncio.sleep(70)
        await send.using(delay="1h").enqueue()
        await asyncio.sleep(60)
        seen = await app.overview.look(minutes=5)

    assert (seen.step, len(seen.series)) == (MINUTE, 5)
    assert sum(point.enqueued for point in seen.series) == 22
    assert sum(point.succeeded for point in seen.series) == 20
    assert [point.succeeded for point in seen.series[-3:]] == [20, 0, 0]
    assert (sum(point.retried for point in seen.series), sum(point.failed for point in seen.series)) == (1, 1)
    assert (seen.depth.due, seen.depth.later, seen.depth.running) == (0, 1, 0)
    assert (seen.nodes, seen.places, seen.saturation) == (1, 10, 0)
    assert [(task.task, task.attempts, task.failures) for task in seen.tasks] == [("burn", 2, 2), ("send", 20, 0)]
    assert [task.share for task in seen.tasks] == pytest.approx([0.5, 0.5], abs=0.1)
    assert seen.tasks[1].run.p95 == pytest.approx(1, rel=0.1)
    assert seen.tasks[0].failure_rate == 1
    assert [(one.error, one.task, one.count) for one in seen.errors] == [("ValueError", "burn", 2)]
    assert seen.run.count == 22
    assert seen.run.p99 == pytest.approx(10, rel=0.1)
    mail = next(queue for queue in seen.queues if queue.name == "mail")
    assert (mail.attempts, mail.failures, sum(mail.sparkline), mail.depth.later) == (20, 0, 20, 1)
    assert mail.per_minute == 4
    assert seen.counted_at
    assert seen.at - seen.counted_at <= MINUTE
    assert seen.warnings == ()


async def test_before_anybody_has_counted_a_look_says_so(world: World) -> None:
    async with world.app:
        term = await world.join("far", "work")
        assert (await world.app.overview.look()).warnings == (), "it has just begun"
        await asyncio.sleep(40)
        await world.memory.renew(NodeId("far"), term)
        seen = await world.app.overview.look()

    assert seen.counted_at is None
    assert (seen.nodes, seen.saturation, len(seen.series)) == (1, None, 60)
    assert [one.code for one in seen.warnings] == ["census_missing"]


async def test_a_look_over_days_is_by_ten_minutes_and_what_is_folded_meanwhile_is_in_it_once(world: World) -> None:
    line = Line(queue="mail", task="send", ends={"succeeded": 1}, runs={40: 1})
    body = written(Counted(lines=(line,), enqueued=1))
    now = START + timedelta(hours=10)
    await asyncio.sleep(10 * 3600)
    async with world.app:
        minutes = [Tally(at=now - n * MINUTE, span=MINUTE, by="a", body=body) for n in range(180)]
        tens = [Tally(at=START + n * TEN_MINUTES, span=TEN_MINUTES, by="", body=body) for n in range(43)]
        await world.memory.write_tallies([*minutes, *tens])
        seen = await world.app.overview.look(minutes=600)

    assert (seen.step, len(seen.series)) == (TEN_MINUTES, 60)
    by_time = {point.at: point.succeeded for point in seen.series}
    assert by_time[START + 42 * TEN_MINUTES] == 1, "of one that is there both ways"
    assert by_time[START + 43 * TEN_MINUTES] == 10
    assert sum(by_time.values()) == sum(point.enqueued for point in seen.series)


@pytest.mark.parametrize("minutes", [-5, 0, 1, 180, 181, LONGEST, 10**9])
async def test_any_number_of_minutes_is_answered(world: World, minutes: int) -> None:
    async with world.app:
        seen = await world.app.overview.look(minutes=minutes)

    assert 1 <= len(seen.series) <= LONGEST / 10
    assert seen.series[0].at == seen.since
    assert seen.series[-1].at == start_of(seen.at, seen.step)


async def test_all_who_wait_for_a_look_are_told_at_once_that_it_failed(world: World) -> None:
    async def hangs(span: timedelta, since: datetime, until: datetime | None = None) -> tuple[Tally, ...]:
        await asyncio.sleep(10)
        raise StoreUnavailable("it", f"down: {span}, {since}, {until}")

    works = world.memory.tallies
    async with world.app:
        world.memory.tallies = hangs  # type: ignore[method-assign] # as a store does that is down
        looks = [asyncio.create_task(world.app.overview.look(no_older_than="1s")) for _ in range(20)]
        began = world.time.elapsed
        await asyncio.sleep(5)
        looks[0].cancel()  # who came first does not take the others along
        cancelled, *found = await asyncio.gather(*looks, return_exceptions=True)
        assert world.time.elapsed - began < 11
        assert isinstance(cancelled, asyncio.CancelledError)
        assert {type(one) for one in found} == {StoreUnavailable}
        world.memory.tallies = works  # type: ignore[method-assign] # and is there again
        assert (await world.app.overview.look(no_older_than="1s")).nodes == 0


async def test_queues_are_looked_at_again_without_reading_all_of_the_hour(world: World) -> None:
    asked: list[datetime] = []
    read_all = world.memory.tallies

    async def noted(span: timedelta, since: datetime, until: datetime | None = None) -> tuple[Tally, ...]:
        asked.append(since)
        return await read_all(span, since, until)

    world.memory.tallies = noted  # type: ignore[method-assign] # as it is, but that it is seen
    async with world.app:
        await world.join("far", "send")
        await world.count(Count(queue="mail", task="send", due=3))
        for _ in range(3):
            assert [one.depth.due for one in (await world.app.overview.queues()).queues] == [3]
            await asyncio.sleep(1)
    now = start_of(world.time.clock.now(), MINUTE)
    assert asked == [now - 59 * MINUTE, now - 3 * MINUTE, now - 3 * MINUTE]


async def test_a_census_from_before_the_clock_was_set_back_is_passed_over(world: World) -> None:
    async with world.app:
        await world.join("far", "send")
        await world.count(Count(queue="mail", task="send", due=99), ago=-7200)
        await world.count(Count(queue="mail", task="send", due=3), ago=10)
        assert (await world.app.overview.look()).depth.due == 3
        assert (await world.app.overview.look(minutes=1440)).depth.due == 3
        assert [one.depth.due for one in (await world.app.overview.queues()).queues] == [3]
        assert [one.due for one in (await world.app.measure()).counts or ()] == [3]


@pytest.mark.parametrize("why", ["a node counts", "somebody has counted"])
async def test_a_look_counts_nothing_while_others_do(world: World, why: str) -> None:
    async with world.app:
        if why == "a node counts":
            await world.join("far")
        else:
            await world.count()
        await world.app.overview.look()

    assert {"list_jobs", "queues", "census", "list_schedules", "search"}.isdisjoint(world.store.calls)


async def test_while_nobody_counts_a_look_does_and_not_too_often(world: World) -> None:
    @world.app.task(name="work")
    async def work() -> None: ...

    async with world.app:
        await world.count(Count(queue="old", task="old", due=7), ago=300)
        for _ in range(3):
            await work.enqueue()
        for _ in range(10):
            await world.app.overview.look()
        seen = await world.app.overview.look()
        assert (seen.depth.due, seen.counted_at) == (3, seen.at)
        assert {one.code for one in seen.warnings} == {"no_node"}
        assert world.store.calls.count("census") == 1


async def test_of_a_store_that_keeps_no_counts_a_look_shows_what_is_there(virtual_time: VirtualTime) -> None:
    class Modest(MemoryStore):
        census = None  # type: ignore[assignment]  # says to Python that there is none

    app = Mainspring(Modest(clock=virtual_time.clock), clock=virtual_time.clock)

    @app.task(name="nap", queue="naps")
    async def nap() -> None:
        await asyncio.sleep(3600)

    async with app, app.node(concurrency=2):
        for _ in range(5):
            await nap.enqueue()
        await asyncio.sleep(20)
        await app.store.pause("naps", by="ada")
        seen = await app.overview.look()
        nodes = await app.overview.nodes()
        with pytest.raises(NoOverview):
            await app.overview.services()
    assert (seen.has_past, seen.series, seen.tasks) == (False, (), ())
    assert (seen.depth.due, seen.depth.running, seen.nodes, seen.places, seen.saturation) == (3, 2, 1, 2, 1)
    assert [(one.name, one.depth.due, one.paused is not None) for one in seen.queues] == [("naps", 3, True)]
    assert {one.code for one in seen.warnings} == {"queue_paused"}
    assert [one.standing for one in nodes] == ["alive"]


async def test_a_second_look_sees_what_was_counted_since(world: World) -> None:
    app = world.app

    @app.task(name="work")
    async def work() -> None: ...

    async with app.node():
        for number in range(1, 4):
            await work.enqueue()
            await asyncio.sleep(12)
            seen = await app.overview.look()
            assert sum(point.succeeded for point in seen.series) == number


@pytest.mark.slow
@given(
    st.dictionaries(
        st.integers(min_value=0, max_value=59),
        st.lists(
            st.builds(
                Line,
                queue=st.sampled_from(["mail", "photos"]),
                task=st.sampled_from(["send", "resize", "burn"]),
                ends=st.dictionaries(
                    st.sampled_from(["succeeded", "failed", "will_retry", "given_back"]),
                    st.integers(min_value=1, max_value=9),
                ),
                runs=st.dictionaries(st.integers(min_value=0, max_value=120), st.integers(min_value=1, max_value=9)),
                errors=st.dictionaries(
                    st.sampled_from(["OSError", "ValueError"]), st.integers(min_value=1, max_value=9)
                ),
            ),
            max_size=4,
        ),
    )
)
def test_each_way_to_look_at_it_adds_up_to_the_same(minutes: dict[int, list[Line]]) -> None:
    spans = {START + n * MINUTE: Span.of(Counted(lines=tuple(lines))) for n, lines in minutes.items()}
    until, total = START + 59 * MINUTE, asyncio.run(Spans().total([spans[at] for at in sorted(spans)]))
    seen = look(spans, at=until, since=START, step=MINUTE, census=Counted(), rules=[], total=total)
    lines = [line for span in spans.values() for line in span.counted.lines]
    attempts = sum(n for line in lines for event, n in line.ends.items() if event != "given_back")

    assert sum(task.attempts for task in seen.tasks) == attempts
    assert sum(queue.attempts for queue in seen.queues) == attempts
    assert sum(sum(queue.sparkline) for queue in seen.queues) == attempts
    assert sum(p.succeeded + p.failed + p.retried for p in seen.series) == attempts
    assert sum(one.count for one in seen.errors) == sum(sum(line.errors.values()) for line in lines)
    assert seen.run.count == sum(sum(line.runs.values()) for line in lines)
    assert sum(task.share for task in seen.tasks) == pytest.approx(1 if seen.run.count else 0)


def test_what_holds_for_a_queue_is_shown_beside_what_is_in_it() -> None:
    census = Counted(counted_at=START, counts=(Count(queue="mail", task="send", due=3, running=1, oldest=START),))
    rules = [QueueRule(name="mail", declared=5, limit=2, by="ada"), QueueRule(name="empty", declared=7)]
    seen = look({}, at=START, since=START, step=MINUTE, census=census, rules=rules, total=Counted())
    empty, mail = seen.queues

    assert (mail.places, mail.declared, mail.limited_by, mail.depth.due, mail.depth.oldest) == (2, 5, "ada", 3, START)
    assert (empty.places, empty.depth.due) == (7, 0)


def test_a_store_that_cannot_be_looked_at_says_which_can(tmp_path: Path) -> None:
    app = Mainspring(f"sidecar:///{tmp_path}")
    with pytest.raises(NoOverview, match="SQLite, PostgreSQL and memory have"):
        app.overview.search_sync()
    assert not app.overview.look_sync().has_past
    app.close_sync()


def test_code_without_an_event_loop_can_look_too() -> None:
    app = Mainspring("memory://")
    assert isinstance(app.overview.look_sync(minutes=3), Look)
    assert app.overview.nodes_sync() == ()
    assert app.overview.services_sync() == ()
    assert app.overview.search_sync(state="failed").jobs == ()
    app.close_sync()


# What needs a person.


async def test_no_live_node_is_worse_while_jobs_wait(world: World) -> None:
    async with world.app:
        assert (await world.warnings())["no_node"].level is Level.WARN
        await world.count(Count(queue="mail", task="send", due=3))
        found = (await world.warnings())["no_node"]

    assert found.level is Level.FAIL
    assert "3 jobs are due" in found.says
    assert "mainspring worker" in found.do


async def test_a_node_that_has_fallen_silent(world: World) -> None:
    async with world.app:
        await world.join("far", "send")
        await world.count()
        assert await world.warnings() == {}
        await asyncio.sleep(30)
        assert set(await world.warnings()) == {"node_silent", "no_node"}


async def test_clocks_that_differ(world: World) -> None:
    async with world.app:
        for node, skew in (("good", 0.2), ("bad", -70.0)):
            term = await world.join(node)
            await world.memory.report(NodeId(node), term, report_written(Report(skew=skew)))
        await world.count()
        found = await world.warnings()

    assert set(found) == {"clock_skew"}
    assert "the clock of bad is 1 min 10 s ahead of the store's" in found["clock_skew"].says


async def test_an_open_breaker_a_paused_queue_and_a_late_schedule(world: World) -> None:
    app = world.app

    @app.schedule(Cron("* * * * *"))
    @app.task(name="tick")
    async def tick() -> None: ...

    @app.task(name="call", queue="calls", breaker=Breaker(threshold=5))
    async def call() -> None: ...

    async with app.node():
        await app.breakers.open("call", reason="maintenance")
        await app.store.pause("calls", by="ada")
        await call.enqueue()
        await asyncio.sleep(65)
        assert set(await world.warnings()) == {"breaker_open", "queue_paused"}
    async with app:
        await asyncio.sleep(300)
        found = await world.warnings()

    assert found["schedule_late"].level is Level.FAIL
    assert "tick" in found["schedule_late"].says


async def test_jobs_that_no_live_node_would_take(world: World) -> None:
    async with world.app:
        await world.join("mailer", "send", "resize", queues=("mail",))
        await world.join("resizer", "resize")
        await world.count(
            Count(queue="mail", task="send", due=1),
            Count(queue="bulk", task="resize", due=1),
            Count(queue="bulk", task="send", due=1),
            Count(queue="mail", task="gone", due=1),
            Count(queue="mail", task="gone later", later=1),
        )
        found = await world.warnings()

    assert set(found) == {"unknown_task", "unserved_queue"}
    assert found["unknown_task"].says.endswith(": gone")
    assert found["unserved_queue"].says.endswith("from bulk")


async def test_of_very_many_partitions_that_are_behind_some_are_asked_since_when(world: World) -> None:
    async with world.app:
        for name in ("orders", "mails"):
            outbox = world.app.outbox(name, partitions=64)
            for partition in range(64):
                await outbox.publish(None, {"n": 1}, partition=partition)
        await asyncio.sleep(120)
        world.store.calls.clear()
        found = await world.warnings()
    assert world.store.calls.count("read_messages") == 64
    assert "nobody delivers 64 messages" in found["outbox_alone"].says


async def test_dead_letters(world: World) -> None:
    app = world.app
    orders = app.outbox("orders", partitions=1)

    @orders.handler(max_attempts=1)
    async def handle(message: Message[int]) -> None:
        raise ValueError(message)

    async with app.node():
        await orders.publish(None, 7)
        await asyncio.sleep(70)
        found = await world.warnings()

    assert "orders (1)" in found["dead_letters"].says


async def test_a_census_that_is_old(world: World) -> None:
    async with world.app:
        await world.join("far", "send")
        await world.count(ago=400)
        found = await world.warnings()

    assert "6 min" in found["census_stale"].says


def test_jobs_that_were_claimed_ahead_take_no_places() -> None:
    node = NodeRecord(id=NodeId("n"), process=ELSEWHERE, tasks=frozenset(), concurrency=5)
    view = NodeView(node=node, term=1, counter=1, alive=True, joined_at=START, renewed_at=START, running=14)
    assert NodeLook(view=view, standing="alive").busy == 5


async def test_a_body_that_does_not_stop(world: World) -> None:
    @world.app.task(name="stubborn")
    async def stubborn() -> None:
        ends = world.time.elapsed + 60
        while world.time.elapsed < ends:
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(ends - world.time.elapsed)

    async with world.app.node(stop_grace="3s") as node:
        job = await stubborn.enqueue()
        await asyncio.sleep(1)
        await job.cancel()
        await asyncio.sleep(10)
        found = await world.warnings()
        (busy,) = await world.app.overview.nodes()
        in_doctor = [one async for one in life(world.app.store, lambda: world.app.store, ONE_PROCESS)]
        await asyncio.sleep(60)
        assert "body_left" not in await world.warnings()
        (idle,) = await world.app.overview.nodes()

    assert (busy.view.running, busy.busy, idle.busy) == (0, 1, 0)
    assert [msgspec.structs.replace(busy, standing=ended).busy for ended in ("gone", "dead")] == [0, 0]
    assert [one.says for one in in_doctor if one.code == "body_left"] == [found["body_left"].says]
    assert (
        found["body_left"].says == f"1 body did not stop when told to, and still runs: stubborn on {node.id} ({job.id})"
    )


async def test_a_service_that_keeps_failing(world: World) -> None:
    @world.app.service(name="poll", backoff=Backoff.fixed(30), listeners=())
    async def poll() -> Sleep:
        raise OSError("no route to host")

    async with world.app.node():
        await asyncio.sleep(10)
        assert "service_failing" not in await world.warnings()  # once is nothing
        await asyncio.sleep(120)
        found = await world.warnings()
        services = {one.service.name: one for one in await world.app.overview.services()}

    assert "OSError: no route to host" in found["service_failing"].says
    assert services["poll"].service.state is ServiceState.FAILING
    assert services["poll"].standing == "alive"
    assert services["claimer"].service.is_own


async def test_a_store_that_is_slow_does_not_hold_up_a_look(world: World) -> None:
    async with world.app:
        await world.join("far", "send")
        await world.count()
        world.store.delay("list_breakers", 3600)
        before = world.time.elapsed
        seen = await world.app.overview.look()

    assert world.time.elapsed - before <= PATIENCE + 0.1
    (found,) = seen.warnings
    assert found.code == "unanswered"
    assert "breakers" in found.says


async def test_warnings_are_looked_for_once_in_a_few_seconds(world: World) -> None:
    async with world.app:
        for _ in range(10):
            await world.app.overview.look()
            await asyncio.sleep(0.3)

    assert world.store.calls.count("due") == 1


# Nodes, search and the audit log.


async def test_a_node_is_shown_with_what_it_said_last(world: World) -> None:
    async with world.app.node() as node:
        await asyncio.sleep(2)
        term = await world.join("mute", "send")
        found = {one.view.node.id: one for one in await world.app.overview.nodes()}
        assert set(found) == {node.id, "mute"}
        assert found[node.id].standing == "alive"
        said = found[node.id].report
        assert said
        assert said.places == 20
        assert found[NodeId("mute")].report is None
        await world.memory.declare_dead(NodeId("mute"), term)
        assert len(await world.app.overview.nodes()) == 1
        assert len(await world.app.overview.nodes(dead_too=True)) == 2


async def test_a_search_takes_plain_words(world: World) -> None:
    app = world.app

    @app.task(name="charge", queue="pay")
    async def charge(order: dict[str, object]) -> None:
        if order["id"] == 7:
            raise ValueError("no such customer")

    async with app.node():
        jobs = [await charge.enqueue({"id": number, "name": "Ada"}) for number in (7, 8)]
        await asyncio.sleep(3600)
        jobs += [await charge.using(delay="1d").enqueue({"id": 9})]
        await asyncio.sleep(1)

        async def ids(**which: object) -> list[int]:
            found = await app.overview.search(**which)  # type: ignore[arg-type]  # as a caller without types
            return [jobs.index(next(job for job in jobs if job.id == one.job.id)) for one in found.jobs]

        assert await ids() == [2, 1, 0]
        assert await ids(argument="order.id=8") == [1]
        assert await ids(argument="order.name=Ada") == [1, 0]
        assert await ids(argument='order.name="Ada"', error="CUSTOMER") == [0]
        assert await ids(argument="order.name") == [1, 0]
        assert await ids(since="30m") == [2]
        assert await ids(until="30m", state="succeeded") == [1]
        assert await ids(since=START.isoformat(), state=["scheduled", State.SUCCEEDED]) == [2, 1]
        assert await ids(queue="pay", task="charge", limit=0) == [2]
        with pytest.raises(DeclarationError, match="walking"):
            await ids(state="walking")


async def test_the_audit_log_is_read_from_the_newest_line(world: World) -> None:
    async with world.app:
        await world.memory.write_audit([NewEntry(who=who, action="jobs.retry") for who in ("ada", "bob", "ada")])
        page = await world.app.overview.audit(who="ada", limit=1)
        rest = await world.app.overview.audit(who="ada", after=page.after)

    assert [line.id for line in (*page.entries, *rest.entries)] == [3, 1]


@pytest.mark.parametrize(
    ("text", "instant"),
    [
        ("2h", START - timedelta(hours=2)),
        (60, START - MINUTE),
        (timedelta(days=1), START - timedelta(days=1)),
        ("2029-12-31T23:00:00Z", START - timedelta(hours=1)),
        (datetime(2029, 12, 31, tzinfo=UTC), START - timedelta(days=1)),
    ],
)
def test_an_age_or_an_instant(text: str | float | timedelta | datetime, instant: datetime) -> None:
    assert read_instant("since", text, START) == instant


def test_what_is_neither_an_age_nor_an_instant_is_refused() -> None:
    with pytest.raises(DeclarationError, match="2026-01-31T09:00:00Z"):
        read_instant("since", "yesterday", START)
    with pytest.raises(DeclarationError, match="with a zone"):
        read_instant("since", "2030-01-01T12:00:00", START)


def test_an_argument_is_a_way_and_a_value() -> None:
    assert read_argument("order.lines.0.sku=7").path == ("order", "lines", "0", "sku")
    assert read_argument("a=b=c").value == b'"b=c"'
    assert read_argument('a={"b": 1}').value == b'{"b": 1}'
    assert read_argument("a").value is None
    assert read_argument("a=").value == b'""'
    for text in ("", "=7", "a..b=1"):
        with pytest.raises(DeclarationError, match="write order"):
            read_argument(text)


def test_a_search_for_anything_is_a_search() -> None:
    assert search_of({}, START) == search_of({"state": (), "queue": None}, START)
