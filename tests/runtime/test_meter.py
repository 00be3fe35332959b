"""What a node counts of its attempts, and how it gets into the store."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import cast
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mainspring import Context, Mainspring, Retry, Snooze
from mainspring.core.backoff import Backoff
from mainspring.core.job import Job, JobId, NodeId, State
from mainspring.core.machine import Event
from mainspring.core.names import Name
from mainspring.core.tally import MINUTE, MOST_ERRORS, OTHERS, Counted, Line, added, percentile, read, step_of
from mainspring.errors import StoreUnavailable
from mainspring.runtime.events import Events
from mainspring.runtime.meter import EVERY, KEPT, MOST_LINES, Meter
from mainspring.stores.memory import MemoryStore
from mainspring.stores.overview import Overview, Tally
from mainspring.stores.records import JobFilter
from mainspring.supervise import NO_PAUSE, Service, TaskSet
from mainspring.testing import VirtualTime, drain
from mainspring.testing.faults import FaultyStore
from mainspring.testing.virtual import START
from tests.runtime.conftest import Bench


def make_job(queue: str = "default") -> Job:
    return Job(
        id=JobId(UUID(int=7)),
        task=Name.parse("work"),
        state=State.RUNNING,
        run_at=START,
        backoff=Backoff.fixed(1),
        max_attempts=1,
        queue=queue,
    )


class Trouble(MemoryStore):
    """Takes no tallies while it is in trouble, and is slow to say so."""

    slow = 0.0
    in_trouble = True

    async def write_tallies(self, tallies: Sequence[Tally], *, drop: tuple[timedelta, datetime] | None = None) -> None:
        if self.in_trouble:
            await asyncio.sleep(self.slow)
            raise StoreUnavailable("it", "in trouble")
        await super().write_tallies(tallies, drop=drop)


def metered(store: MemoryStore, time: VirtualTime, *, events: Events | None = None, me: str = "me") -> Meter:
    return Meter(store, events or Events(), now=store.now, me=lambda: NodeId(me), clock=time.clock)


def count(meter: Meter) -> None:
    meter.look()
    meter.ended(make_job(), Event.SUCCEEDED, began=None, seconds=None, error=None)


async def tallies(bench: Bench) -> list[Tally]:
    """All that nodes have written, and not the census."""
    await bench.store.inner.open()
    return [one for one in await overview(bench).tallies(MINUTE, START) if one.by]


def overview(bench: Bench) -> MemoryStore:
    assert isinstance(bench.store.inner, MemoryStore)
    return bench.store.inner


async def whole(bench: Bench) -> dict[tuple[str, str], Line]:
    counted = added([counts_of(one) for one in await tallies(bench)])
    return {(line.queue, line.task): line for line in counted.lines}


def counts_of(tally: Tally) -> Counted:
    counted = read(tally.body)
    assert counted
    return counted


async def test_every_way_in_which_an_attempt_ends_is_counted_by_queue_and_task(bench: Bench) -> None:
    tries = Counter[str]()

    @bench.app.task(queue="mail")
    async def send() -> None:
        await asyncio.sleep(2)

    @bench.app.task(retry=Retry.fixed("1s", max_attempts=2))
    async def fails() -> None:
        raise ValueError("no")

    @bench.app.task
    async def dozes() -> None:
        tries["dozes"] += 1
        if tries["dozes"] == 1:
            raise Snooze("5s")

    async with bench.app:
        for _ in range(3):
            await send.enqueue()
        await fails.enqueue()
        await dozes.enqueue()
        await drain(bench.app, scheduled=True)

    found = await whole(bench)
    by_task = {where[1].rpartition(".")[2]: line for where, line in found.items()}
    assert {name: line.queue for name, line in by_task.items()} == {
        "send": "mail",
        "fails": "default",
        "dozes": "default",
    }
    assert by_task["send"].ends == {"succeeded": 3}
    assert by_task["send"].runs == {step_of(2.0): 3}
    assert by_task["fails"].ends == {"will_retry": 1, "failed": 1}
    assert by_task["fails"].errors == {"ValueError": 2}
    assert by_task["dozes"].ends == {"snoozed": 1, "succeeded": 1}


async def test_a_wait_is_from_when_a_job_was_due_until_it_started(bench: Bench) -> None:
    @bench.app.task
    async def work() -> None:
        await asyncio.sleep(10)

    async with bench.app:
        await work.enqueue()
        await work.enqueue()
        await work.using(delay="1h").enqueue()
        await drain(bench.app, scheduled=True, concurrency=1)

    (line,) = (await whole(bench)).values()
    waits = sorted(line.waits)
    assert sum(line.waits.values()) == 3
    assert waits[-1] == pytest.approx(step_of(10.0), abs=1), "the second waited for the first"
    assert percentile(line.waits, 0.5) == pytest.approx(0.0005, abs=0.02), "the last was due after an hour"
    assert line.runs == {step_of(10.0): 3}


async def test_what_was_lost_with_its_node_is_counted_by_who_found_it(bench: Bench) -> None:
    @bench.app.task
    async def work() -> None:
        await asyncio.sleep(1000)

    async with bench.app:
        await work.enqueue()
        async with bench.app.node():
            memory = overview(bench)
            await asyncio.sleep(1)
            (view,) = (await memory.list_jobs(JobFilter())).jobs
            assert view.node
            term = next(one.term for one in await memory.nodes() if one.node.id == view.node)
            assert await memory.declare_dead(view.node, term)
            await asyncio.sleep(60)

    (line,) = (await whole(bench)).values()
    assert line.ends["lost"] == 1
    assert sum(line.runs.values()) == sum(line.ends.values()) - 1, "nobody knows how long that one took"


async def test_what_a_handlers_own_transaction_ended_is_counted_once(virtual_time: VirtualTime, tmp_path: Path) -> None:
    """The store for it here is a file, which need not keep counts: what is looked at is the meter."""
    app = Mainspring(f"sqlite:///{tmp_path}/jobs.db", clock=virtual_time.clock)

    @app.task
    async def work(ctx: Context) -> None:
        await asyncio.sleep(2)
        async with ctx.transaction() as tx:
            await tx.execute("SELECT 1")

    memory = MemoryStore(clock=virtual_time.clock)
    await memory.open()
    async with app.node(overview=False) as node:
        node.events.meter = metered(memory, virtual_time)
        job = await work.enqueue()
        await job.result()
        await asyncio.sleep(1)
        await node.events.meter.write()

    (tally,) = await memory.tallies(MINUTE, START)
    (line,) = counts_of(tally).lines
    assert (line.ends, line.runs) == ({"succeeded": 1}, {step_of(2.0): 1})


async def test_counts_are_written_within_seconds_and_at_the_end(bench: Bench) -> None:
    @bench.app.task
    async def work() -> None: ...

    async with bench.app.node():
        await work.enqueue()
        await asyncio.sleep(EVERY + 1)
        assert len(await tallies(bench)) == 1
        await work.enqueue()
        await asyncio.sleep(1)
        assert sum(line.ends["succeeded"] for line in (await whole(bench)).values()) == 1, "not yet"
    assert sum(line.ends["succeeded"] for line in (await whole(bench)).values()) == 2


async def test_a_node_that_has_nothing_to_count_writes_nothing(bench: Bench) -> None:
    @bench.app.task
    async def work() -> None: ...

    async with bench.app.node():
        await work.enqueue()
        await asyncio.sleep(60)
        bench.store.calls.clear()
        await asyncio.sleep(3600)

    assert len(await tallies(bench)) == 1
    assert bench.store.calls.count("write_tallies") <= 60 + 2 * 6, "those of the census, once a minute, and its folds"


@pytest.mark.parametrize("fault", ["drop", "lose_answer", "duplicate"])
async def test_a_write_that_goes_wrong_is_made_again_and_counts_once(bench: Bench, fault: str) -> None:
    @bench.app.task
    async def work() -> None: ...

    async with bench.app.node():
        getattr(bench.store, fault)("write_tallies", times=5)
        for _ in range(30):
            await work.enqueue()
            await asyncio.sleep(7)

    assert sum(line.ends["succeeded"] for line in (await whole(bench)).values()) == 30
    assert len(await tallies(bench)) >= 3, "in minutes of their own"


async def test_a_store_in_trouble_costs_no_more_than_an_hour_of_minutes(virtual_time: VirtualTime) -> None:
    store = Trouble(clock=virtual_time.clock)
    await store.open()
    events = Events()
    meter = metered(store, virtual_time, events=events)
    for _ in range(3 * KEPT):
        count(meter)
        with pytest.raises(StoreUnavailable):
            await meter.write()
        await asyncio.sleep(60)
    store.in_trouble = False
    await meter.write()

    written = await store.tallies(MINUTE, START)
    assert len(written) == KEPT + 1
    assert written[-1].at == START + timedelta(minutes=3 * KEPT - 1), "the newest"
    assert events.counts["minutes_forgotten"] == 2 * KEPT - 1


async def test_a_minute_that_turns_while_it_is_written_in_vain_is_not_forgotten(virtual_time: VirtualTime) -> None:
    store = Trouble(clock=virtual_time.clock)
    store.slow = 70
    await store.open()
    meter = metered(store, virtual_time)
    count(meter)
    writing = asyncio.ensure_future(meter.write())
    await asyncio.sleep(65)
    count(meter)
    with pytest.raises(StoreUnavailable):
        await writing
    store.in_trouble = False
    await meter.write()

    assert [one.at for one in await store.tallies(MINUTE, START)] == [START, START + MINUTE]


async def test_under_a_new_id_a_node_counts_anew(virtual_time: VirtualTime) -> None:
    store = MemoryStore(clock=virtual_time.clock)
    await store.open()
    me = [NodeId("first")]
    meter = Meter(store, Events(), now=store.now, me=lambda: me[0], clock=virtual_time.clock)
    for name in ("first", "second"):
        me[0] = NodeId(name)
        count(meter)
        await meter.write()

    found = await store.tallies(MINUTE, START)
    assert [one.by for one in found] == ["first", "second"]
    assert all(sum(line.ends["succeeded"] for line in counts_of(one).lines) == 1 for one in found)


async def test_a_clock_that_is_set_back_loses_no_counts(virtual_time: VirtualTime) -> None:
    store = MemoryStore(clock=virtual_time.clock)
    await store.open()
    meter = metered(store, virtual_time)
    for jump in (0, 120, -120, -100_000, 0):
        virtual_time.clock.jump(jump)
        count(meter)
        await meter.write()

    found = await store.tallies(MINUTE, START - timedelta(days=30))
    assert sum(line.ends["succeeded"] for one in found for line in counts_of(one).lines) == 5


async def test_there_is_a_bound_for_queues_tasks_and_classes_of_errors(virtual_time: VirtualTime) -> None:
    store = MemoryStore(clock=virtual_time.clock)
    await store.open()
    meter = metered(store, virtual_time)
    meter.look()
    for number in range(3 * MOST_LINES):
        queued = make_job(queue=f"tenant-{number}")
        meter.ended(queued, Event.FAILED, began=None, seconds=None, error="OSError")
    for number in range(10_000):
        meter.ended(make_job(queue="tenant-0"), Event.FAILED, began=None, seconds=None, error=f"Error{number}")
    await meter.write()

    (tally,) = await store.tallies(MINUTE, START)
    lines = {line.queue: line for line in counts_of(tally).lines}
    assert len(lines) == MOST_LINES + 1
    assert lines[OTHERS].ends["failed"] == 2 * MOST_LINES
    assert len(lines["tenant-0"].errors) == MOST_ERRORS
    assert sum(lines["tenant-0"].errors.values()) == 10_001


async def test_overview_false_counts_nothing_and_reports_nothing(bench: Bench) -> None:
    @bench.app.task
    async def work() -> None: ...

    async with bench.app.node(overview=False) as node:
        await work.enqueue()
        await asyncio.sleep(3600)
        assert node.events.meter is None

    assert {"write_tallies", "report", "census", "tallies"}.isdisjoint(bench.store.calls)


events = st.lists(
    st.tuples(st.just("count"), st.integers(min_value=1, max_value=5))
    | st.tuples(st.just("rest"), st.integers(min_value=1, max_value=90))
    | st.tuples(st.sampled_from(["fail", "lose"]), st.integers(min_value=1, max_value=4))
    | st.tuples(st.just("reborn"), st.just(0))
    | st.tuples(st.just("set"), st.integers(min_value=-100, max_value=100)),
    max_size=25,
)


@settings(max_examples=60)
@given(events)
def test_whatever_befalls_it_each_end_is_counted_once(told: list[tuple[str, int]]) -> None:
    """For as long as a store is in trouble for less than an hour, and its clock is not wrong by more than that."""

    async def story(time: VirtualTime) -> None:
        memory = MemoryStore(clock=time.clock)
        await memory.open()
        store = FaultyStore(memory)
        id_, counted = "me-0", 0
        meter = Meter(cast("Overview", store), Events(), now=memory.now, me=lambda: NodeId(id_), clock=time.clock)
        async with TaskSet() as tasks:
            backoff = Backoff.fixed(1)
            tasks.start(Service("meter", meter.step, wake=[meter.wake], pacing=NO_PAUSE, backoff=backoff, listeners=()))
            for what, number in told:
                match what:
                    case "count":
                        for _ in range(number):
                            count(meter)
                        counted += number
                    case "rest":
                        await asyncio.sleep(number)
                    case "fail":
                        store.drop("write_tallies", times=number)
                    case "lose":
                        store.lose_answer("write_tallies", times=number)
                    case "reborn":
                        id_ = f"me-{counted}-{time.elapsed}"
                    case _:
                        time.clock.jump(number)
        store.heal()
        await meter.write()
        found = await memory.tallies(MINUTE, START - timedelta(days=1))
        assert sum(sum(line.ends.values()) for one in found for line in counts_of(one).lines) == counted

    with VirtualTime() as time:
        time.run(story(time))


class Broken(MemoryStore):
    """Has a bug that shows when counts are written."""

    async def write_tallies(self, tallies: Sequence[Tally], *, drop: tuple[timedelta, datetime] | None = None) -> None:
        raise ValueError(f"a bug, with {len(tallies)} of them and {drop}")


async def test_counts_that_cannot_be_written_do_not_keep_a_node_from_leaving(virtual_time: VirtualTime) -> None:
    store = Broken(clock=virtual_time.clock)
    app = Mainspring(store, clock=virtual_time.clock)

    @app.task(name="work")
    async def work() -> None: ...

    async with app:
        async with app.node() as node:
            await work.enqueue()
            await asyncio.sleep(3)
        assert not [view for view in await store.nodes() if view.alive]
        assert node.has_ended
