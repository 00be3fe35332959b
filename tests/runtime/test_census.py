"""Who takes the census, how often, and what becomes of counts as they get old."""

import asyncio
from collections.abc import Sequence
from datetime import datetime, timedelta

import pytest

from mainspring import Mainspring
from mainspring.core.job import NodeId
from mainspring.core.names import Name
from mainspring.core.tally import MINUTE, TEN_MINUTES, Count, Counted, Line, added, read, written
from mainspring.errors import StoreUnavailable
from mainspring.runtime.census import KEEP_MINUTES, KEEP_TENS, first_of, folded
from mainspring.stores.memory import MemoryStore
from mainspring.stores.overview import Tally
from mainspring.stores.records import NodeRecord, NodeView, Process
from mainspring.testing import VirtualTime
from mainspring.testing.faults import FaultyStore
from mainspring.testing.virtual import START
from tests.runtime.conftest import Bench

HERE = Process(host="here", pid=1, started="then")


def memory_of(store: FaultyStore) -> MemoryStore:
    assert isinstance(store.inner, MemoryStore)
    return store.inner


async def censuses(store: FaultyStore, span: timedelta = MINUTE) -> list[tuple[datetime, Counted]]:
    memory = memory_of(store)
    await memory.open()
    found = await memory.tallies(span, START - timedelta(days=365))
    return [(one.at, counted) for one in found if not one.by and (counted := read(one.body))]


def program(memory: MemoryStore, time: VirtualTime) -> tuple[Mainspring, FaultyStore]:
    store = FaultyStore(memory.another())
    app = Mainspring(store=store.as_store, clock=time.clock)

    @app.task(name="work")
    async def work(seconds: float = 0) -> None:
        await asyncio.sleep(seconds)

    return app, store


async def test_a_census_says_what_waits_and_runs_and_how_many_places_there_are(bench: Bench) -> None:
    @bench.app.task(name="work")
    async def work() -> None:
        await asyncio.sleep(1000)

    async with bench.app.node(concurrency=2):
        await asyncio.sleep(5)
        for _ in range(5):
            await work.enqueue()
        await work.using(delay="1h").enqueue()
        await asyncio.sleep(50)
        at, counted = (await censuses(bench.store))[-1]

        assert at == START
        assert counted.counts == (
            Count(queue="default", task="work", due=3, later=1, running=2, oldest=counted.counts[0].oldest),
        )
        assert (counted.nodes, counted.places, counted.enqueued, counted.complete) == (1, 2, 6, True)
        assert counted.counted_at
        assert START + timedelta(seconds=45) < counted.counted_at < START + MINUTE
        await bench.app.store.pause("default")


async def test_what_is_enqueued_in_a_minute_is_counted_in_that_minute(bench: Bench) -> None:
    @bench.app.task(name="work")
    async def work() -> None: ...

    async with bench.app.node():
        for minute in range(6):
            for _ in range(minute):
                await asyncio.sleep(60 / (minute + 1))
                await work.enqueue()
            await asyncio.sleep(60 - bench.time.elapsed % 60)
        await asyncio.sleep(30)
        found = {at: counted.enqueued for at, counted in await censuses(bench.store)}

    assert [found.get(START + minute * MINUTE, 0) for minute in range(6)] == [0, 1, 2, 3, 4, 5]


async def test_a_store_at_rest_is_counted_once_a_minute_and_one_at_work_more_often(bench: Bench) -> None:
    @bench.app.task(name="work")
    async def work(seconds: float) -> None:
        await asyncio.sleep(seconds)

    async with bench.app.node():
        await asyncio.sleep(60)
        bench.store.calls.clear()
        await asyncio.sleep(600)
        assert bench.store.calls.count("census") == 10
        await work.enqueue(600)
        bench.store.calls.clear()
        await asyncio.sleep(590)
        assert 59 <= bench.store.calls.count("census") <= 70


async def test_one_node_counts_however_many_there_are(virtual_time: VirtualTime) -> None:
    memory = MemoryStore(clock=virtual_time.clock)
    (a, of_a), (b, of_b), (c, of_c) = (program(memory, virtual_time) for _ in range(3))
    async with a.node():
        await asyncio.sleep(1)
        async with b.node(), c.node():
            await asyncio.sleep(300)
            assert of_a.calls.count("census") >= 5
            assert "census" not in of_b.calls + of_c.calls
            assert (await censuses(of_a))[-1][1].nodes == 3


async def test_a_node_that_does_not_count_is_not_waited_for(virtual_time: VirtualTime) -> None:
    memory = MemoryStore(clock=virtual_time.clock)
    (a, of_a), (b, of_b) = (program(memory, virtual_time) for _ in range(2))
    async with a.node(overview=False), b.node():
        await asyncio.sleep(100)

    assert "census" not in of_a.calls
    assert "census" in of_b.calls


async def test_the_next_in_line_goes_on_where_the_first_one_stopped(virtual_time: VirtualTime) -> None:
    memory = MemoryStore(clock=virtual_time.clock)
    (a, _), (b, of_b) = (program(memory, virtual_time) for _ in range(2))
    async with b:
        async with a.node():
            await asyncio.sleep(1)
            node = b.node()
            await node.__aenter__()
            await b.enqueue("work", 100)
            await asyncio.sleep(20)
            assert "census" not in of_b.calls
        await asyncio.sleep(20)
        assert "census" in of_b.calls
        await node.__aexit__(None, None, None)
        found = await censuses(of_b)

    assert sum(counted.enqueued for _, counted in found) == 1, "counted once, though by two"


def view(node: str, joined: int, *, counts: bool = True) -> NodeView:
    at = START + timedelta(seconds=joined)
    record = NodeRecord(id=NodeId(node), process=HERE, tasks=frozenset({Name.parse("work")}), takes_census=counts)
    return NodeView(node=record, term=1, counter=1, alive=True, joined_at=at, renewed_at=at)


def test_the_first_is_who_has_been_there_for_the_longest_of_those_who_count() -> None:
    assert first_of([]) is None
    assert first_of([view("old", 0, counts=False)]) is None
    assert first_of([view("old", 0, counts=False), view("b", 2), view("c", 1), view("a", 2)]) == "c"
    assert first_of([view("b", 2), view("a", 2)]) == "a"


@pytest.mark.parametrize("verb", ["census", "write_tallies", "tallies"])
@pytest.mark.parametrize("fault", ["drop", "lose_answer"])
async def test_a_census_that_goes_wrong_is_taken_again_and_counts_once(bench: Bench, verb: str, fault: str) -> None:
    @bench.app.task(name="work")
    async def work() -> None: ...

    getattr(bench.store, fault)(verb, times=3)
    async with bench.app.node():
        await work.enqueue()
        await asyncio.sleep(200)

    assert sum(counted.enqueued for _, counted in await censuses(bench.store)) == 1


class Deaf(MemoryStore):
    """Writes counts down, and does not hear that it has; or does not even write them."""

    answers = True
    writes = True

    async def write_tallies(self, tallies: Sequence[Tally], *, drop: tuple[timedelta, datetime] | None = None) -> None:
        if self.writes:
            await super().write_tallies(tallies, drop=drop)
        if not self.answers:
            raise StoreUnavailable("it", "out of reach")


async def test_what_was_written_without_an_answer_is_not_counted_again_in_the_next_minute(
    virtual_time: VirtualTime,
) -> None:
    store = Deaf(clock=virtual_time.clock)
    app = Mainspring(store, clock=virtual_time.clock)

    @app.task(name="work")
    async def work() -> None: ...

    async with app, app.node():
        await store.pause("default")
        await work.enqueue()  # it waits, so that there is something to count every few seconds
        await asyncio.sleep(55)
        for _ in range(3):
            await work.enqueue()
        store.answers = False
        await asyncio.sleep(6)  # the minute has turned, and was written
        store.writes = False
        await asyncio.sleep(30)
        store.answers = store.writes = True
        await work.enqueue()
        await asyncio.sleep(120)
        found = await store.tallies(MINUTE, START)

    assert sum(counted.enqueued for one in found if not one.by and (counted := read(one.body))) == 5


# As counts get old.


@pytest.mark.slow
async def test_minutes_become_spans_of_ten_and_nothing_is_lost(bench: Bench) -> None:
    @bench.app.task(name="work")
    async def work() -> None: ...

    async with bench.app.node():
        for _ in range(40):
            await work.enqueue()
            await asyncio.sleep(300)
        await asyncio.sleep(700)
        memory = memory_of(bench.store)
        now = bench.time.clock.now()
        minutes = await memory.tallies(MINUTE, START)
        tens = await memory.tallies(TEN_MINUTES, START)

    assert minutes[0].at >= now - KEEP_MINUTES - 3 * TEN_MINUTES
    assert {one.by for one in tens} == {""}
    assert len({one.at for one in tens}) == len(tens)
    assert max(one.at for one in tens) + TEN_MINUTES <= minutes[0].at
    whole = added([counted for one in (*minutes, *tens) if (counted := read(one.body))])
    assert whole.enqueued == 40
    assert [line.ends for line in whole.lines] == [{"succeeded": 40}]


async def test_a_fold_whose_answer_was_lost_changes_nothing_when_it_is_made_again(bench: Bench) -> None:
    memory = memory_of(bench.store)
    await memory.open()
    old = [
        Tally(at=START - timedelta(hours=5) + n * MINUTE, span=MINUTE, by=by, body=written(Counted(enqueued=1)))
        for n in range(30)
        for by in ("", "a", "b")
    ]
    await memory.write_tallies(old)
    async with bench.app.node():
        await asyncio.sleep(59)
        bench.store.lose_answer("write_tallies", times=3)
        await asyncio.sleep(300)
        tens = await memory.tallies(TEN_MINUTES, START - timedelta(days=1))

    assert [read(one.body) for one in tens] == [Counted(enqueued=30)] * 3


async def test_what_a_node_writes_late_is_added_to_what_was_put_together(bench: Bench) -> None:
    memory = memory_of(bench.store)
    await memory.open()
    span = START - timedelta(hours=5)
    lines = tuple(Line(queue="mail", task=task, ends={"succeeded": 9}) for task in ("read", "send"))
    whole = Tally(at=span, span=TEN_MINUTES, by="", body=written(Counted(lines=lines, enqueued=9)))
    one = Counted(lines=(Line(queue="mail", task="send", ends={"succeeded": 1}),))
    late = Tally(at=span + MINUTE, span=MINUTE, by="slept", body=written(one))
    await memory.write_tallies([whole, late])
    async with bench.app.node():
        await asyncio.sleep(300)
        (ten,) = await memory.tallies(TEN_MINUTES, span)
        assert await memory.tallies(MINUTE, span, START - KEEP_MINUTES) == ()

    counted = read(ten.body)
    assert counted
    assert (counted.enqueued, [line.ends for line in counted.lines]) == (9, [{"succeeded": 9}, {"succeeded": 10}])


async def test_what_is_older_than_two_weeks_is_forgotten(bench: Bench) -> None:
    memory = memory_of(bench.store)
    await memory.open()
    body = written(Counted(enqueued=1))
    tens = [Tally(at=START - KEEP_TENS + n * TEN_MINUTES, span=TEN_MINUTES, by="", body=body) for n in range(-3, 3)]
    await memory.write_tallies(tens)
    async with bench.app.node():
        await asyncio.sleep(300)

    await memory.open()
    left = await memory.tallies(TEN_MINUTES, START - timedelta(days=365))
    assert [one.at for one in left] == [START - KEEP_TENS + n * TEN_MINUTES for n in range(3)]


def test_what_cannot_be_understood_does_not_keep_the_rest_from_being_folded() -> None:
    line = Line(queue="mail", task="send", ends={"succeeded": 2})
    minutes = [
        Tally(at=START, span=MINUTE, by="a", body=b"from the future"),
        Tally(at=START + MINUTE, span=MINUTE, by="a", body=written(Counted(lines=(line,)))),
        Tally(at=START + 2 * MINUTE, span=MINUTE, by="b", body=written(Counted(lines=(line,)))),
        Tally(at=START + 11 * MINUTE, span=MINUTE, by="b", body=written(Counted(lines=(line,)))),
    ]

    first, second = folded(minutes)

    assert (first.at, second.at) == (START, START + TEN_MINUTES)
    assert read(first.body) == Counted(lines=(Line(queue="mail", task="send", ends={"succeeded": 4}),))
