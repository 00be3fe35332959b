"""A SQLite store as a whole: what is found, counted and kept, and what operators' limits do."""

import asyncio
import random
import sqlite3
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from mainspring.core.command import MoveJob
from mainspring.core.job import State
from mainspring.core.limits import Gate, Scope
from mainspring.core.outcome import Succeeded
from mainspring.errors import NodeGone, StoreClosed
from mainspring.stores.overview import (
    KEEP_AUDIT,
    EntryFilter,
    Found,
    NewEntry,
    Overview,
    QueueRule,
    Search,
    Tally,
)
from mainspring.stores.records import Facts, JobFilter
from mainspring.stores.sqlite import SqliteStore, census, inspect, overview, search
from mainspring.stores.sqlite.session import Session
from mainspring.testing import VirtualTime
from mainspring.testing.contract import SettableClock
from mainspring.testing.contract.overviews import answers, ids_of
from mainspring.testing.contract.world import DAY, FATAL, HOUR, RESIZE, SECOND, SEND, World
from tests.stores import drawn, surveyed
from tests.stores.drawn import Spec, Step
from tests.stores.pair import Pair
from tests.stores.surveyed import BUDGETS, Surveyed, wishes
from tests.stores.test_sqlite_nothing import Files
from tests.tier import FULL

MINUTE = timedelta(minutes=1)
MANY = 400


@pytest.fixture(scope="module", autouse=True)
def small() -> Iterator[None]:
    """What is read at a time is less than what there is: so all ways of going on are gone."""
    with pytest.MonkeyPatch.context() as patch:
        for name, number in (("_FEW", 2), ("_MANY", 16), ("_SMALL", 8), ("_OPERATIONS", 50)):
            patch.setattr(search, name, number)
        yield


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "jobs.db"


@pytest.fixture
def world(path: Path, virtual_time: VirtualTime) -> Iterator[World]:
    clock = SettableClock()
    world = World(Files(path, clock), clock)
    world.store = virtual_time.run(world.open())
    yield world
    virtual_time.run(world.close())


@pytest.fixture
def store(world: World) -> SqliteStore:
    assert isinstance(world.store, SqliteStore)
    return world.store


def test_it_plays_the_role(path: Path) -> None:
    store: Overview = SqliteStore(path)

    assert isinstance(store, Overview)


async def test_where_there_is_too_much_to_put_in_order_it_is_walked_over(world: World, store: SqliteStore) -> None:
    parent = await world.enqueue()
    for _ in range(MANY // 4):
        await world.enqueue(facts=Facts(parent=parent))
        await world.enqueue(run_at=HOUR)
    for which, wanted in ((Search(parent=parent), MANY // 4), (Search(states=(State.READY,)), MANY // 4 + 1)):
        found = await answers(world, which, budget=timedelta(0))
        assert sum(one.looked for one in found) == MANY // 2 + 1
        ids = [view.job.id for one in found for view in one.jobs]
        assert ids == await ids_of(world, which, budget=timedelta(minutes=1))
        assert len(ids) == wanted
    assert (await store.search(Search(parent=parent), limit=MANY)).looked == MANY // 4


def test_however_many_search_what_nodes_read_waits_for_none(
    store: SqliteStore, virtual_time: VirtualTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each search may take all of its time."""
    over = threading.Event()

    def slow(*_: object, **__: object) -> Found:
        assert over.wait(30)
        return Found(jobs=())

    monkeypatch.setattr(overview, "search", slow)

    async def look() -> None:
        searches = [asyncio.create_task(store.search(Search())) for _ in range(10)]
        await asyncio.sleep(0)
        try:
            looked = await asyncio.wait_for(store.due(10), 20)
            assert looked.looks == ()
        finally:
            over.set()
        await asyncio.gather(*searches)

    virtual_time.run(look())


def test_reads_of_nodes_do_not_wait_for_lists_of_jobs(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    free = threading.Event()

    def slow(*_: object, **__: object) -> Found:
        free.wait(30)
        return Found(jobs=())

    monkeypatch.setattr(inspect, "search", slow)

    async def story() -> None:
        store = SqliteStore(path)
        await store.open()
        lists = [asyncio.create_task(store.list_jobs(JobFilter())) for _ in range(10)]
        await asyncio.sleep(0)
        assert (await store.due(10)).looks == ()
        assert not any(one.done() for one in lists)
        free.set()
        await asyncio.gather(*lists)
        await store.close()

    asyncio.run(story())


async def test_a_list_that_runs_out_of_time_reports_it_and_can_be_continued(
    world: World, store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = [await world.enqueue(facts=Facts(tags=("rare",) if number == 0 else ())) for number in range(40)]
    monkeypatch.setattr(inspect, "LIST_BUDGET", timedelta(0))
    pages = [await store.list_jobs(JobFilter(tag="rare"), limit=2)]
    while (after := pages[-1].after) is not None:
        pages.append(await store.list_jobs(JobFilter(tag="rare"), limit=2, after=after))

    assert pages[0].jobs == ()
    assert [page.in_time for page in pages] == [False] * (len(pages) - 1) + [True]
    assert [view.job.id for page in pages for view in page.jobs] == ids[:1]


def test_closing_ends_searches_that_are_at_work_or_wait(path: Path) -> None:
    endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"
    began = threading.Event()

    def look(session: Session) -> object:
        began.set()
        return session.rows(endless)

    async def story() -> list[object]:
        store = SqliteStore(path)
        await store.open()
        searches = [asyncio.create_task(store._search(look)) for _ in range(5)]
        assert await asyncio.to_thread(began.wait, 30)
        await store.close()
        return await asyncio.gather(*searches, return_exceptions=True)

    assert [type(one) for one in asyncio.run(story())] == [StoreClosed] * 5


def test_a_search_that_nobody_waits_for_any_more_is_not_made(
    store: SqliteStore, virtual_time: VirtualTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    over = threading.Event()
    made: list[bool] = []

    def slow(*_: object, **__: object) -> Found:
        made.append(over.wait(60))
        return Found(jobs=())

    monkeypatch.setattr(overview, "search", slow)

    async def look() -> None:
        searches = [asyncio.create_task(store.search(Search())) for _ in range(10)]
        await asyncio.sleep(0)
        for one in searches[5:]:
            one.cancel()
        await asyncio.gather(*searches[5:], return_exceptions=True)
        over.set()
        await asyncio.gather(*searches[:5])
        await store.search(Search())  # which comes after all others

    virtual_time.run(look())
    assert len(made) == 6


# Search, held against the memory store.


class Surveys(RuleBasedStateMachine):
    """Random steps, and searches in between."""

    def __init__(self) -> None:
        super().__init__()
        self.story = Surveyed(Pair())

    @initialize(
        some=st.lists(drawn.specs, min_size=4, max_size=10), gates=st.lists(drawn.gates, min_size=1, max_size=3)
    )
    def begin(self, some: list[Spec], gates: list[Gate]) -> None:
        self.story.begin(some, gates)

    @rule(step=surveyed.steps)
    def go_on(self, step: Step) -> None:
        getattr(self.story, step.name)(**step.values)

    def teardown(self) -> None:
        try:
            if sys.exc_info()[0] is None:  # else the story has failed already
                self.story.drain()
        finally:
            self.story.close()


# A failure is made as small as it can be before it is told, which may take some minutes.
TestSurveys = pytest.mark.slow(pytest.mark.timeout(600)(Surveys.TestCase))
TestSurveys.settings = settings(max_examples=60 if FULL else 15, stateful_step_count=30, report_multiple_bugs=False)


@pytest.fixture(scope="module")
def crowd() -> Iterator[Surveyed]:
    """More jobs than are read at a time, in all states."""
    story = Surveyed(Pair())
    chance = random.Random(8)  # noqa: S311 -- the same crowd each time
    story.begin([], [])
    for _ in range(MANY // 20):
        story.enqueue([a_spec(chance) for _ in range(20)])
        story.work(chance.randrange(9), 12, [(Succeeded(), False)] * 8)
        story.fail(chance.randrange(9), 3, fatal=chance.random() < 0.7)
        story.pair.clock.advance(1)
    story.claim_plainly(0)
    yield story
    story.close()


def a_spec(chance: random.Random) -> Spec:
    return Spec(
        number=chance.randrange(1 << 20),
        task=chance.choice(drawn.TASKS[:2] if chance.random() < 0.98 else drawn.TASKS[2:]),
        lane=chance.choice(drawn.LANES),
        delay=timedelta(seconds=chance.choice([0, 0, 0, 1000])),
        key=chance.choice([None, None, "a", "b"]),
        unique=None,
        expires=None,
        max_attempts=3,
        loss_limit=3,
        again=False,
    )


def test_the_crowd_has_jobs_in_many_states(crowd: Surveyed) -> None:
    """So that what follows can fail."""
    states = {view.job.state for view in crowd.views.values()}

    assert states >= {State.READY, State.SCHEDULED, State.RUNNING, State.SUCCEEDED, State.FAILED, State.RETRYING}
    assert len(crowd.views) > MANY * 0.9


@given(wish=wishes, pick=drawn.numbers, limit=st.integers(1, 100), budget=st.sampled_from(BUDGETS))
@settings(max_examples=300 if FULL else 80, deadline=None)
def test_among_many_the_same_are_found_in_the_same_order(
    crowd: Surveyed, wish: dict[str, Any], pick: int, limit: int, budget: timedelta
) -> None:
    crowd.search(wish, pick, limit, budget)


async def test_a_search_whose_time_is_up_says_how_far_it_came(world: World, store: SqliteStore) -> None:
    jobs = [await world.enqueue(payload=b'{"args":{"n":1}}') for _ in range(20)]
    found = await store.search(Search(tag="none has it"), limit=2, budget=timedelta(0))

    assert (found.jobs, found.in_time, found.looked, found.after) == ((), False, 2, jobs[-2])
    assert found.back_to == (await world.view(jobs[-2])).enqueued_at


@pytest.mark.parametrize(("seconds", "widths"), [(60.0, [4, 8, 16, 16, 6]), (0.0, [4, 2, *[1] * 44])])
def test_a_window_that_took_long_is_followed_by_a_narrower_one(
    monkeypatch: pytest.MonkeyPatch, seconds: float, widths: list[int]
) -> None:
    """A thousand payloads, as long as they may be, would take most of a second, and of the memory of a small machine."""
    monkeypatch.setattr(search, "_A_MOMENT", seconds)
    places = [(number.to_bytes(16), number) for number in range(50)]
    windows = [*search._windows(iter(places), 4)]

    assert [len(window) for window in windows] == widths
    assert [place for window in windows for place in window] == places


async def test_a_ready_job_is_found_behind_many_that_are_not(world: World, store: SqliteStore) -> None:
    """One that was moved to a later time too, and is still called ready."""
    node = await world.node(tasks=[SEND])
    moved, old = await world.enqueue(RESIZE), await world.enqueue(RESIZE, key="k")
    await world.command(moved, MoveJob(run_at=world.now + DAY))
    await world.enqueue_all(world.new() for _ in range(30))
    for delivery in await world.claim(node, room=30, tasks=[SEND]):
        await world.end(delivery.claim, Succeeded())
    await world.enqueue_all(world.new(run_at=DAY) for _ in range(30))
    new = await world.enqueue(RESIZE)
    for which in (Search(states=(State.READY,)), Search(states=(State.READY,), task=RESIZE)):
        found = await store.search(which)

        assert [view.job.id for view in found.jobs] == [new, old, moved]
        assert found.looked < 20, "those that wait for their time are not looked at"


async def test_what_is_rare_is_found_without_looking_at_the_rest(world: World, store: SqliteStore) -> None:
    rare = await world.enqueue(RESIZE, queue="photos", key="k")
    await world.enqueue_all(world.new() for _ in range(3000))
    (one,) = (await store.search(Search(states=(State.READY,), task=RESIZE))).jobs
    node = await world.node()
    assert len(await world.claim(node, tasks=[SEND], room=20)) == 20
    for wanted in (Search(task=RESIZE), Search(queue="photos"), Search(key="k")):
        found = await store.search(wanted)

        assert ([view.job.id for view in found.jobs], found.looked, found.after) == ([rare], 1, None)
    claim = (await world.claim(node, tasks=[RESIZE]))[0].claim
    assert claim.job.id == one.job.id == rare
    assert (await store.search(Search(states=(State.RUNNING,), queue="photos"))).looked == 1
    await world.end(claim, FATAL)
    assert (await store.search(Search(states=(State.FAILED,)))).looked == 1


async def test_a_page_that_is_full_at_the_last_job_is_the_last(world: World, store: SqliteStore) -> None:
    jobs = [await world.enqueue() for _ in range(3)]
    whole = await store.search(Search(), limit=3)
    part = await store.search(Search(), limit=2)

    assert (whole.after, whole.looked) == (None, 3)
    assert (part.after, part.looked) == (jobs[1], 2)
    assert [view.job.id for view in (await store.search(Search(), limit=2, after=part.after)).jobs] == [jobs[0]]


async def test_nothing_is_found_in_an_empty_store(store: SqliteStore) -> None:
    found = await store.search(Search(), limit=5)

    assert (found.jobs, found.after, found.looked, found.back_to, found.in_time) == ((), None, 0, None, True)
    assert (await store.census(store.now())).counts == ()


async def test_a_search_does_not_wait_for_a_writer(path: Path, world: World, store: SqliteStore) -> None:
    job = await world.enqueue()
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        (found,) = (await store.search(Search())).jobs
        counted = await store.census(store.now())
        other.execute("ROLLBACK")

    assert found.job.id == job
    assert [count.due for count in counted.counts] == [1]


# Census.


async def test_more_than_the_most_is_counted_as_the_most(
    world: World, store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(census, "MOST", 5)
    await world.enqueue_all(world.new() for _ in range(7))
    await world.enqueue_all(world.new(key=str(number), priority=1) for number in range(7))
    await world.enqueue_all(world.new(queue="photos", run_at=HOUR) for _ in range(4))
    found = await store.census(world.now)

    assert {(count.queue, count.due, count.later) for count in found.counts} == {("default", 5, 0), ("photos", 0, 4)}
    assert (found.enqueued, found.complete) == (5, True)


async def test_a_census_without_time_says_that_it_is_not_complete(world: World, store: SqliteStore) -> None:
    await world.enqueue()

    assert not (await store.census(world.now, budget=timedelta(0))).complete
    assert (await store.census(world.now)).complete


async def test_how_many_were_enqueued_is_told_although_some_are_gone(world: World, store: SqliteStore) -> None:
    await world.enqueue_all(world.new() for _ in range(40))
    world.clock.advance("1m")
    since = world.now
    node = await world.node()
    for number in range(25):
        world.clock.advance("1s")
        await world.enqueue()
        if number % 2:
            await world.end((await world.claim_one(node)), Succeeded())
    world.clock.advance("1m")

    assert (await store.census(since)).enqueued == 25
    assert (await store.census(since + 20 * SECOND)).enqueued == 6
    assert (await store.census(world.now)).enqueued == 0
    assert (await store.census(since - HOUR)).enqueued == 65


# Tallies, reports, audit.


async def test_tallies_are_replaced_and_dropped(world: World, store: SqliteStore) -> None:
    start = world.now

    def tally(minutes: int, by: str, body: bytes, span: timedelta = MINUTE) -> Tally:
        return Tally(at=start + minutes * MINUTE, span=span, by=by, body=body)

    await store.write_tallies([tally(1, "b", b"1"), tally(0, "a", b"2"), tally(1, "a", b"3")])
    await store.write_tallies([tally(1, "a", b"4"), tally(0, "", b"5", 10 * MINUTE)])
    assert await store.tallies(MINUTE, start) == (tally(0, "a", b"2"), tally(1, "a", b"4"), tally(1, "b", b"1"))

    await store.write_tallies([tally(2, "a", b"6")], drop=(MINUTE, start + MINUTE))
    assert [one.body for one in await store.tallies(MINUTE, start)] == [b"4", b"1", b"6"]
    assert [one.body for one in await store.tallies(MINUTE, start + 2 * MINUTE)] == [b"6"]
    assert [one.body for one in await store.tallies(10 * MINUTE, start)] == [b"5"]


async def test_a_report_is_that_of_a_living_node_and_goes_with_it(world: World, store: SqliteStore) -> None:
    node, other = await world.node(), await world.node()
    await store.report(node.id, node.term, b"well")
    world.clock.advance("1s")
    await store.report(node.id, node.term, b"busy")
    await store.report(other.id, other.term, b"well")
    found = await store.reports()
    assert (found[node.id].body, found[node.id].at) == (b"busy", world.now)

    with pytest.raises(NodeGone):
        await store.report(node.id, node.term + 100, b"not me")
    await world.kill(node)
    with pytest.raises(NodeGone):
        await store.report(node.id, node.term, b"a ghost")
    assert (await store.reports())[node.id].body == b"busy"

    world.clock.advance(DAY + SECOND)
    assert await store.prune(100) == 1
    assert (await store.reports()).keys() == {other.id}


async def test_the_audit_log_is_read_in_pages_the_newest_line_first(world: World, store: SqliteStore) -> None:
    for number in range(7):
        entry = NewEntry(who=chosen("ab", number), action="jobs.retry", about=f"job-{number % 3}", count=number)
        await store.write_audit([entry])
    first = await store.audit(EntryFilter(), limit=3)
    second = await store.audit(EntryFilter(), limit=4, after=first.after)

    assert [line.entry.count for line in [*first.entries, *second.entries]] == [6, 5, 4, 3, 2, 1, 0]
    assert second.after is None
    assert {line.at for line in first.entries} == {world.now}
    for which, counts in (
        (EntryFilter(who="b"), [5, 3, 1]),
        (EntryFilter(about="job-1"), [4, 1]),
        (EntryFilter(about="job-1", who="a"), [4]),
        (EntryFilter(action="jobs.cancel"), []),
    ):
        assert [line.entry.count for line in (await store.audit(which)).entries] == counts


def chosen(some: str, number: int) -> str:
    return some[number % len(some)]


async def test_a_line_keeps_all_that_was_said(store: SqliteStore) -> None:
    whole = NewEntry(
        who="ann", action="jobs.retry", about="state=failed", count=3, outcome="refused: no", detail=b'{"a":1}'
    )
    await store.write_audit([whole, NewEntry(who="file\udcff", action="jobs.cancel")])
    strange, line = (await store.audit(EntryFilter())).entries

    assert line.entry == whole
    assert strange.entry == NewEntry(who="file\\udcff", action="jobs.cancel")


async def test_lines_are_forgotten_after_their_time_a_few_at_a_time(world: World, store: SqliteStore) -> None:
    await store.write_audit([NewEntry(who="me", action="queues.pause")] * 5)
    world.clock.advance(KEEP_AUDIT - SECOND)
    await store.write_audit([NewEntry(who="me", action="queues.resume")])
    assert await store.prune(100) == 0
    world.clock.advance(SECOND)

    assert [await store.prune(3), await store.prune(3), await store.prune(3)] == [3, 2, 0]
    assert [line.entry.action for line in (await store.audit(EntryFilter())).entries] == ["queues.resume"]


# Limits of queues.


async def test_an_operators_limit_holds_where_nothing_is_declared(world: World, store: SqliteStore) -> None:
    await world.enqueue_all(world.new(queue="mail") for _ in range(6))
    node = await world.node()
    running = await world.claim(node, room=2)
    assert await store.limit_queue("mail", 3, by="me")
    assert not await store.limit_queue("mail", 3, by="you")

    assert len(await world.claim(node, room=9)) == 1, "those that ran already count"
    assert await world.claim(node, room=9) == ()
    await world.end(running[0].claim, Succeeded())
    assert len(await world.claim(node, room=9)) == 1
    assert await store.limit_queue("mail", None)
    assert len(await world.claim(node, room=9)) == 2


async def test_it_holds_in_place_of_what_is_declared_and_through_a_restart(
    world: World, store: SqliteStore, path: Path
) -> None:
    gate = Gate(scope=Scope.QUEUE, name="mail", concurrency=4)
    await store.declare([gate])
    await store.limit_queue("mail", 1, by="me")
    await store.declare([gate])
    await store.declare([Gate(scope=Scope.QUEUE, name="mail", concurrency=5)])
    await store.close()
    await store.open()
    await store.pause("photos", by="you")
    await world.enqueue_all(world.new(queue="mail") for _ in range(8))
    node = await world.node()

    assert len(await world.claim(node, room=9)) == 1
    mail, photos = await store.queue_rules()
    assert mail == QueueRule(name="mail", declared=5, limit=1, by="me")
    assert (photos.name, photos.paused is not None, photos.limit) == ("photos", True, None)
    await store.limit_queue("mail", None)
    assert len(await world.claim(node, room=9)) == 4
    with closing(sqlite3.connect(path)) as other:
        assert other.execute("SELECT count(*) FROM mainspring_queue_limits").fetchone() == (0,)


async def test_a_change_of_a_limit_rings_and_no_change_does_not(store: SqliteStore) -> None:
    rung: list[int] = []
    store.watch(lambda: rung.append(1))
    await store.limit_queue("mail", 2)
    assert len(rung) == 1
    await store.limit_queue("mail", 2)
    assert len(rung) == 1
    await store.limit_queue("mail", None)
    assert len(rung) == 2


async def test_a_node_that_had_nothing_to_do_hears_of_a_higher_limit(world: World, store: SqliteStore) -> None:
    """An answer that was remembered must not outlive it."""
    store.watch(lambda: None)
    await store.limit_queue("mail", 1)
    await world.enqueue(queue="mail")
    node = await world.node()
    await world.claim_one(node)
    job = await world.enqueue(queue="mail")
    assert await world.claim(node) == ()
    await store.limit_queue("mail", 2)

    assert (await world.claim_one(node)).job.id == job
