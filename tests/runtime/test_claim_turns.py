"""Nodes that take turns at announced jobs: who claims, when, and what becomes of a job whose first nodes do nothing."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from functools import partial
from itertools import count

import pytest

from mainspring import Limit, Mainspring
from mainspring.core.job import WAITING, NodeId
from mainspring.core.limits import Rate
from mainspring.core.names import Name
from mainspring.core.turns import MAX_WAIT_S, WAVE_S, group_name, wave_number
from mainspring.runtime import claimer
from mainspring.runtime.claim_turns import MAX_PENDING, ClaimTurns
from mainspring.runtime.node import Node
from mainspring.stores.announcements import Announcements, JobsAnnounced, JobsTaken, Notice, OtherChange
from mainspring.stores.memory import MemoryStore
from mainspring.stores.records import (
    Claimed,
    ClaimRequest,
    Enqueued,
    NewJob,
    NodeRecord,
    NodeView,
    Process,
    Settled,
    Settlement,
)
from mainspring.supervise import Notifier
from mainspring.testing import VirtualTime

NODES = 12
TRIP_S = 0.001  # that a notification takes
NEVER_S = 10_000.0


class AnnouncingStore(MemoryStore):
    """A store in memory that announces jobs as PostgreSQL does, with a round trip for each claim, and counts claims."""

    receives_announcements = True

    def __init__(self, time: VirtualTime) -> None:
        super().__init__(clock=time.clock)
        self.claims: list[NodeId] = []
        self.taken: list[JobsTaken] = []
        self._keys = count()
        self._listeners: dict[int, Callable[[Notice], None]] = {}

    def subscribe(self, listener: Callable[[Notice], None], group: Callable[[], str]) -> Callable[[], None]:
        del group
        number = next(self._keys)
        self._listeners[number] = listener
        return lambda: self._listeners.pop(number, None) and None

    def report_taken(self, taken: JobsTaken) -> None:
        self.taken.append(taken)
        self.send(taken)

    def send(self, notice: Notice) -> None:
        for listener in self._listeners.values():
            asyncio.get_running_loop().call_later(TRIP_S, listener, notice)

    async def enqueue(self, new: Sequence[NewJob]) -> tuple[Enqueued, ...]:
        enqueued = await super().enqueue(new)
        now = self.now()
        due = min(job.run_at if not isinstance(job.run_at, timedelta) else now + job.run_at for job in new)
        self.send(JobsAnnounced(key=f"key-{next(self._keys)}", jobs=len(new), due_times=(due,)))
        return enqueued

    async def settle(self, settlements: Sequence[Settlement]) -> tuple[Settled, ...]:
        settled = await super().settle(settlements)
        after = [one.change.after for one in settlements]
        waiting = [job.run_at for job in after if job is not None and job.state in WAITING]
        if waiting:
            self.send(JobsAnnounced(key=f"key-{next(self._keys)}", jobs=len(waiting), due_times=(min(waiting),)))
        return settled

    async def claim(self, request: ClaimRequest) -> Claimed:
        self.claims.append(request.node)
        await asyncio.sleep(TRIP_S)
        claimed = await super().claim(request)
        await asyncio.sleep(TRIP_S)
        return claimed


@pytest.fixture
def store(virtual_time: VirtualTime) -> AnnouncingStore:
    return AnnouncingStore(virtual_time)


@pytest.fixture
def app(store: AnnouncingStore, virtual_time: VirtualTime) -> Mainspring:
    return Mainspring(store=store, clock=virtual_time.clock)


@pytest.fixture
def no_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have nodes claim for announcements and free places only."""
    monkeypatch.setattr(claimer, "LOOK", NEVER_S)


@asynccontextmanager
async def idle_nodes(
    app: Mainspring, store: AnnouncingStore, number: int = NODES, *, concurrency: int = 2
) -> AsyncIterator[list[Node]]:
    """Run nodes, until each has seen the others, and forget what they claimed so far."""
    async with AsyncExitStack() as stack:
        nodes = [await stack.enter_async_context(app.node(concurrency=concurrency, grace="0s")) for _ in range(number)]
        await asyncio.sleep(4)
        store.claims.clear()
        store.taken.clear()
        yield nodes


async def until(holds: Callable[[], object], *, within: float = 10) -> float:
    """Let virtual time pass until something is true; returns how many seconds that took."""
    began = asyncio.get_running_loop().time()
    async with asyncio.timeout(within):
        while not holds():
            await asyncio.sleep(0.001)
    return asyncio.get_running_loop().time() - began


@pytest.mark.usefixtures("no_looks")
async def test_one_of_twelve_idle_nodes_claims_an_isolated_job(app: Mainspring, store: AnnouncingStore) -> None:
    started: list[int] = []

    @app.task(name="work")
    async def work(number: int) -> None:
        started.append(number)

    async with idle_nodes(app, store):
        for number in range(50):
            await work.enqueue(number)
            took = await until(partial(started.__contains__, number))
            assert took < WAVE_S, "the first in turn does not wait"
            await asyncio.sleep(1)

        assert len(store.claims) == len(store.taken) == 50
        assert len(set(store.claims)) > NODES / 2, "jobs are spread over nodes"


@pytest.mark.usefixtures("no_looks")
async def test_a_steady_stream_of_jobs_costs_no_more_than_two_claims_for_each(
    app: Mainspring, store: AnnouncingStore
) -> None:
    started: list[int] = []

    @app.task(name="work")
    async def work(number: int) -> None:
        started.append(number)
        await asyncio.sleep(0.03)

    async with idle_nodes(app, store):
        for number in range(200):
            await work.enqueue(number)
            await asyncio.sleep(0.02)
        await until(lambda: len(started) == 200)

        assert len(store.claims) <= 2 * 200


@pytest.mark.usefixtures("no_looks")
async def test_a_node_alone_claims_at_once(app: Mainspring, store: AnnouncingStore) -> None:
    started: list[int] = []

    @app.task(name="work")
    async def work() -> None:
        started.append(1)

    async with idle_nodes(app, store, 1):
        await work.enqueue()
        assert await until(lambda: started) < 4 * TRIP_S + 0.002

        assert len(store.claims) == 1
        assert store.taken == [], "nobody else waits for it"


@pytest.mark.usefixtures("no_looks")
async def test_jobs_that_come_together_are_claimed_by_as_many_nodes_and_start_at_once(
    app: Mainspring, store: AnnouncingStore
) -> None:
    started: list[int] = []

    @app.task(name="work")
    async def work(number: int) -> None:
        started.append(number)
        await asyncio.sleep(60)

    async with idle_nodes(app, store):
        await work.enqueue_many([work.call(number) for number in range(2 * NODES)])
        assert await until(lambda: len(started) == 2 * NODES) < WAVE_S
        assert len(set(store.claims)) == NODES


@pytest.mark.usefixtures("no_looks")
async def test_a_job_starts_within_100_ms_if_all_nodes_but_one_are_full(
    app: Mainspring, store: AnnouncingStore
) -> None:
    started: list[int] = []
    blocked = asyncio.Event()

    @app.task(name="work")
    async def work(number: int) -> None:
        started.append(number)
        if number >= 0:
            await blocked.wait()

    async with idle_nodes(app, store) as nodes:
        await work.enqueue_many([work.call(number) for number in range(2 * NODES - 1)])
        await until(lambda: len(started) == 2 * NODES - 1)
        assert sorted(node.running for node in nodes) == [1, *[2] * (NODES - 1)]
        await asyncio.sleep(2)
        store.claims.clear()
        for number in range(-20, 0):
            await work.enqueue(number)
            assert await until(partial(started.__contains__, number)) < 0.1
            await asyncio.sleep(0.5)
        assert len(store.claims) <= 2 * 20, "full nodes do not claim, and the one that took it reports that"
        blocked.set()


@pytest.mark.usefixtures("no_looks")
async def test_a_job_whose_first_nodes_hang_is_claimed_by_the_next(app: Mainspring, store: AnnouncingStore) -> None:
    started: list[int] = []

    @app.task(name="work")
    async def work(number: int) -> None:
        started.append(number)

    await store.open()
    elsewhere = Process(host="another machine", pid=1, started="then")
    hanging = {
        node: await store.join(NodeRecord(id=node, process=elsewhere, tasks=app.registry.names))
        for node in (NodeId(f"hangs-{number}") for number in range(NODES - 1))
    }
    async with app.node(concurrency=2):
        for number in range(20):
            for node, term in hanging.items():
                await store.renew(node, term)
            await work.enqueue(number)
            assert await until(partial(started.__contains__, number)) < 0.1
            await asyncio.sleep(0.5)


@pytest.mark.usefixtures("no_looks")
async def test_a_job_that_becomes_due_is_claimed_by_one_node_on_time(app: Mainspring, store: AnnouncingStore) -> None:
    started: list[float] = []

    @app.task(name="work")
    async def work() -> None:
        started.append(asyncio.get_running_loop().time())

    async with idle_nodes(app, store):
        enqueued = asyncio.get_running_loop().time()
        await work.using(delay="1.5s").enqueue()
        await until(lambda: started)

        assert 1.5 <= started[0] - enqueued < 1.5 + WAVE_S
        await asyncio.sleep(1)
        assert len(store.claims) == 1


async def test_jobs_due_later_than_the_horizon_are_claimed_on_time_by_few_nodes(
    app: Mainspring, store: AnnouncingStore
) -> None:
    started: list[float] = []

    @app.task(name="work")
    async def work() -> None:
        started.append(asyncio.get_running_loop().time())

    async with idle_nodes(app, store):
        enqueued = asyncio.get_running_loop().time()
        await work.using(delay="10s").enqueue()
        await asyncio.sleep(9.98)
        store.claims.clear()
        await until(lambda: started)

        assert 10 <= started[0] - enqueued < 10 + WAVE_S
        await asyncio.sleep(MAX_WAIT_S)
        assert len(store.claims) < NODES / 2, "one for the job, and looks that happened to come now"


@pytest.mark.usefixtures("no_looks")
async def test_the_end_of_a_job_leads_to_no_claim_where_nothing_waits(app: Mainspring, store: AnnouncingStore) -> None:
    ended: list[int] = []

    @app.task(name="work")
    async def work(number: int) -> None:
        await asyncio.sleep(0.5)
        ended.append(number)

    async with idle_nodes(app, store, 3):
        await work.enqueue(1)
        await until(lambda: ended)
        await asyncio.sleep(5)
        assert len(store.claims) == 1


@pytest.mark.usefixtures("no_looks")
async def test_a_full_node_claims_when_a_place_is_free_and_jobs_were_left(
    app: Mainspring, store: AnnouncingStore
) -> None:
    ended: list[int] = []

    @app.task(name="work")
    async def work(number: int) -> None:
        await asyncio.sleep(0.5)
        ended.append(number)

    async with idle_nodes(app, store, 1):
        for number in range(10):  # of which the node can run two
            await work.enqueue(number)
        assert await until(lambda: len(ended) == 10) < 5 * 0.5 + 0.1


async def test_where_announcements_do_not_arrive_a_free_place_leads_to_a_claim(
    app: Mainspring, store: AnnouncingStore
) -> None:
    ended: list[int] = []

    @app.task(name="work")
    async def work(number: int) -> None:
        await asyncio.sleep(0.1)
        ended.append(number)

    async with idle_nodes(app, store, 1):
        store.receives_announcements = False
        await work.enqueue(1)
        await until(lambda: ended)
        await asyncio.sleep(0.01)
        assert len(store.claims) == 2


# The list of announcements by itself.


class Sent:
    """A store of which only announcements are used."""

    receives_announcements = True

    def __init__(self) -> None:
        self.taken: list[JobsTaken] = []

    def subscribe(self, listener: Callable[[Notice], None], group: Callable[[], str]) -> Callable[[], None]:
        del listener, group
        return lambda: None

    def report_taken(self, taken: JobsTaken) -> None:
        self.taken.append(taken)


ME = NodeId("me")
PEERS = [NodeId(f"peer-{number}") for number in range(11)]
TASKS: frozenset[Name] = frozenset()
GROUP = group_name(TASKS, None)
LAST_KEY = next(key for key in map(str, count()) if wave_number(key, ME, PEERS) == 3)
FIRST_KEY = next(key for key in map(str, count()) if wave_number(key, ME, PEERS) == 0)


def view(node: NodeId, time: VirtualTime, *, alive: bool = True, queues: tuple[str, ...] | None = None) -> NodeView:
    process = Process(host="", pid=1, started="")
    record = NodeRecord(id=node, process=process, tasks=frozenset(), queues=queues)
    now = time.clock.now()
    return NodeView(node=record, term=1, counter=1, alive=alive, joined_at=now, renewed_at=now)


@pytest.fixture
def sent() -> Sent:
    return Sent()


@pytest.fixture
def wake() -> Notifier:
    return Notifier()


@pytest.fixture
def turns(sent: Sent, wake: Notifier, virtual_time: VirtualTime) -> ClaimTurns:
    assert isinstance(sent, Announcements)
    turns = ClaimTurns(sent, now=virtual_time.clock.now, wake=wake)
    turns.renewed(ME, [view(node, virtual_time) for node in (ME, *PEERS)])
    turns.end_claim(turns.begin_claim(), tasks=TASKS, jobs=0, is_drained=True)
    return turns


async def test_a_node_does_not_claim_for_an_announcement_that_another_has_taken(
    turns: ClaimTurns, wake: Notifier
) -> None:
    turns.receive(JobsAnnounced(key=LAST_KEY, jobs=1, were_held_back=True))
    await asyncio.sleep(0.01)
    turns.receive(JobsTaken(group=GROUP, keys=(LAST_KEY,)))
    await asyncio.sleep(1)
    assert not wake.take()
    assert not turns.expects_jobs


async def test_a_report_of_nodes_that_claim_other_tasks_or_queues_does_not_count(
    turns: ClaimTurns, wake: Notifier
) -> None:
    turns.receive(JobsAnnounced(key=LAST_KEY, jobs=1, were_held_back=True))
    turns.receive(JobsTaken(group="another", keys=(LAST_KEY,)))
    await asyncio.sleep(3 * WAVE_S - 0.001)
    assert not wake.take()
    await asyncio.sleep(0.002)
    assert wake.take()


async def test_nodes_that_claim_other_queues_or_are_dead_have_no_turn(
    turns: ClaimTurns, wake: Notifier, virtual_time: VirtualTime
) -> None:
    others = [view(node, virtual_time, alive=number < 5, queues=("mail",) if number < 5 else None)
              for number, node in enumerate(PEERS)]  # fmt: skip
    turns.renewed(ME, [view(ME, virtual_time), *others])
    turns.receive(JobsAnnounced(key=LAST_KEY, jobs=1, were_held_back=True))
    assert wake.take()


async def test_a_job_starts_within_100_ms_if_all_nodes_but_one_became_full_a_moment_ago(
    turns: ClaimTurns, wake: Notifier
) -> None:
    turns.receive(
        JobsAnnounced(key=LAST_KEY, jobs=1, were_held_back=True)
    )  # nobody else claims, and nobody reports it as taken
    await asyncio.sleep(MAX_WAIT_S)
    assert wake.take()


async def test_a_node_that_is_not_in_the_list_claims_at_once(
    turns: ClaimTurns, wake: Notifier, virtual_time: VirtualTime
) -> None:
    turns.renewed(ME, [view(node, virtual_time) for node in PEERS])
    turns.receive(JobsAnnounced(key=LAST_KEY, jobs=1, were_held_back=True))
    assert wake.take()


@pytest.mark.parametrize("how", [{"local": True}, {"for_all_nodes": True}, {"jobs": 100}])
async def test_a_commit_of_this_process_or_for_all_nodes_leads_to_a_claim_at_once(
    turns: ClaimTurns, wake: Notifier, how: dict[str, bool | int]
) -> None:
    turns.receive(JobsAnnounced(key=LAST_KEY, **how, were_held_back=True))  # type: ignore[arg-type]
    assert wake.take()


@pytest.mark.parametrize(("group", "wait"), [(GROUP, WAVE_S), ("another", 0.0), ("", 0.0)])
async def test_a_node_of_the_process_that_committed_comes_first(
    turns: ClaimTurns, wake: Notifier, group: str, wait: float
) -> None:
    turns.receive(JobsAnnounced(key=FIRST_KEY, jobs=1, group=group, were_held_back=True))
    assert wake.take() == (not wait)
    await asyncio.sleep(wait + 0.001)
    assert wake.take() == bool(wait)


async def test_a_claim_that_left_nothing_answers_what_was_announced_before_it_and_nothing_later(
    turns: ClaimTurns, sent: Sent, wake: Notifier
) -> None:
    turns.receive(JobsAnnounced(key="before", jobs=1, local=True, were_held_back=True))
    start = turns.begin_claim()
    turns.receive(JobsAnnounced(key=LAST_KEY, jobs=1, were_held_back=True))
    turns.end_claim(start, tasks=TASKS, jobs=1, is_drained=True)
    assert sent.taken == [JobsTaken(group=GROUP, keys=("before",))]
    assert wake.take()
    await asyncio.sleep(MAX_WAIT_S)
    assert wake.take()


async def test_a_claim_that_was_full_answers_nothing_and_leaves_the_node_expecting_more(
    turns: ClaimTurns, sent: Sent
) -> None:
    turns.receive(JobsAnnounced(key="a", local=True, were_held_back=True))
    turns.end_claim(turns.begin_claim(), tasks=TASKS, jobs=10, is_drained=False)
    assert sent.taken == []
    assert turns.expects_jobs


@pytest.mark.parametrize(("jobs", "claimed", "is_taken"), [(1, 1, True), (3, 2, False), (None, 1, False)])
async def test_a_full_claim_that_got_all_announced_jobs_left_nothing(
    turns: ClaimTurns, sent: Sent, jobs: int | None, claimed: int, *, is_taken: bool
) -> None:
    turns.receive(JobsAnnounced(key="a", jobs=jobs, local=True, were_held_back=True))
    turns.end_claim(turns.begin_claim(), tasks=TASKS, jobs=claimed, is_drained=False)
    assert bool(sent.taken) == is_taken
    assert turns.expects_jobs != is_taken


async def test_a_full_claim_counts_for_nothing_if_jobs_had_been_left_before(turns: ClaimTurns, sent: Sent) -> None:
    turns.end_claim(turns.begin_claim(), tasks=TASKS, jobs=10, is_drained=False)
    turns.receive(JobsAnnounced(key="a", jobs=1, local=True, were_held_back=True))
    turns.end_claim(turns.begin_claim(), tasks=TASKS, jobs=1, is_drained=False)
    assert sent.taken == []


async def test_a_claim_that_failed_leaves_the_node_expecting_jobs(turns: ClaimTurns) -> None:
    assert not turns.expects_jobs
    turns.begin_claim()
    assert turns.expects_jobs


async def test_a_node_without_room_keeps_announcements_until_they_are_taken(turns: ClaimTurns) -> None:
    turns.receive(JobsAnnounced(key="a", jobs=1, local=True, were_held_back=True))
    turns.skip_claim(turns.begin_claim())
    assert turns.expects_jobs
    turns.receive(JobsTaken(group=GROUP, keys=("a",)))
    assert not turns.expects_jobs


async def test_jobs_that_are_due_later_are_remembered_and_not_answered_before(
    turns: ClaimTurns, sent: Sent, wake: Notifier, virtual_time: VirtualTime
) -> None:
    now = virtual_time.clock.now()
    turns.receive(JobsAnnounced(key="a", due_times=(now, now + timedelta(seconds=1)), local=True))
    turns.end_claim(turns.begin_claim(), tasks=TASKS, jobs=1, is_drained=True)
    assert [taken.keys for taken in sent.taken] == [("a",)]
    assert wake.take()
    await asyncio.sleep(0.9)
    assert not wake.take()
    await asyncio.sleep(0.1 + MAX_WAIT_S)
    assert wake.take()
    turns.end_claim(turns.begin_claim(), tasks=TASKS, jobs=1, is_drained=True)
    assert len(sent.taken) == 2


async def test_what_is_due_after_the_horizon_is_left_to_the_next_look(turns: ClaimTurns, wake: Notifier) -> None:
    turns.receive(JobsAnnounced(key="a", due_times=(turns._now() + timedelta(hours=1),), local=True))
    assert not turns._pending
    assert not wake.take()


async def test_a_full_node_does_not_collect_announcements_without_end(turns: ClaimTurns) -> None:
    for number in range(3 * MAX_PENDING):
        turns.receive(JobsAnnounced(key=f"key-{number}", jobs=1, local=True, were_held_back=True))
    assert len(turns._pending) <= MAX_PENDING
    assert turns.expects_jobs


async def test_other_changes_wake_no_claimer(turns: ClaimTurns, wake: Notifier) -> None:
    changes: list[int] = []
    end = turns.subscribe(lambda: changes.append(1))
    turns.receive(OtherChange())
    assert changes == [1]
    assert not wake.take()
    end()


async def test_announcements_of_another_thread_arrive_on_the_loop(turns: ClaimTurns, wake: Notifier) -> None:
    end = turns.subscribe(lambda: None)
    await asyncio.to_thread(turns.receive, JobsAnnounced(key=FIRST_KEY, jobs=1, were_held_back=True))
    await asyncio.sleep(0)
    assert wake.take()
    await asyncio.to_thread(turns.receive, JobsAnnounced(key=LAST_KEY, jobs=1, were_held_back=True))
    await asyncio.sleep(0)
    end()
    await asyncio.sleep(1)
    assert not wake.take(), "timers end with the subscription"


async def test_a_turn_at_a_freed_place_does_not_wait_for_the_job_that_freed_it(
    turns: ClaimTurns, wake: Notifier
) -> None:
    later = turns._now() + timedelta(hours=1)
    turns.receive(JobsAnnounced(key=FIRST_KEY, due_times=(later,), were_held_back=True))
    assert wake.take()


async def test_the_next_due_time_is_reported_with_taken_jobs_and_other_nodes_take_turns_at_it(
    turns: ClaimTurns, sent: Sent, wake: Notifier
) -> None:
    due = turns._now() + timedelta(seconds=1)
    turns.receive(JobsAnnounced(key="a", were_held_back=True, local=True))
    assert wake.take()
    turns.end_claim(turns.begin_claim(), tasks=TASKS, jobs=1, is_drained=True, next_due=due)
    assert sent.taken == [JobsTaken(group=GROUP, keys=("a",), due_times=(due,))]
    turns.receive(sent.taken[0])
    await asyncio.sleep(0.999)
    assert not wake.take()
    await asyncio.sleep(0.001 + MAX_WAIT_S)
    assert wake.take()


async def test_a_timer_that_fires_before_the_due_time_is_set_again(
    sent: Sent, wake: Notifier, virtual_time: VirtualTime
) -> None:
    offset = timedelta(0)
    turns = ClaimTurns(sent, now=lambda: virtual_time.clock.now() + offset, wake=wake)
    due = turns._now() + timedelta(seconds=1)
    turns.remember_due(due)
    offset = timedelta(milliseconds=-3)  # the clock of the database was measured anew
    await asyncio.sleep(1)
    assert wake.take()
    turns.end_claim(turns.begin_claim(), tasks=TASKS, jobs=0, is_drained=True, next_due=due)
    turns.remember_due(due)
    await asyncio.sleep(0.0029)
    assert not wake.take()
    await asyncio.sleep(0.0002)
    assert wake.take()


async def test_a_claim_of_other_tasks_than_the_group_has_reports_nothing(turns: ClaimTurns, sent: Sent) -> None:
    turns.receive(JobsAnnounced(key="a", were_held_back=True, local=True))
    turns.end_claim(turns.begin_claim(), tasks=frozenset({Name.parse("new")}), jobs=1, is_drained=True)
    assert sent.taken == []
    assert not turns.expects_jobs


async def test_nodes_that_name_the_same_queues_in_another_order_take_turns(
    turns: ClaimTurns, wake: Notifier, virtual_time: VirtualTime
) -> None:
    peers = [view(node, virtual_time, queues=("b", "a")) for node in PEERS]
    turns.renewed(ME, [view(ME, virtual_time, queues=("a", "b")), *peers])
    turns.receive(JobsAnnounced(key=LAST_KEY, jobs=1, were_held_back=True))
    assert not wake.take()


async def test_a_notice_that_arrives_after_the_end_of_the_subscription_is_ignored(
    turns: ClaimTurns, wake: Notifier
) -> None:
    end = turns.subscribe(lambda: None)
    notice = JobsAnnounced(key=FIRST_KEY, jobs=1, were_held_back=True)
    thread = threading.Thread(target=turns.receive, args=(notice,))
    thread.start()
    thread.join()
    end()  # the notice is on its way to the loop
    await asyncio.sleep(1)
    assert not wake.take()
    assert not turns._pending


async def test_a_rate_of_one_job_at_a_time_is_used_up_by_twelve_nodes(app: Mainspring, store: AnnouncingStore) -> None:
    started: list[float] = []

    @app.task(name="work", limit=Limit(rate=Rate(count=50, period=timedelta(seconds=1), burst=1)))
    async def work() -> None:
        started.append(asyncio.get_running_loop().time())
        await asyncio.sleep(60)

    async with idle_nodes(app, store, concurrency=20):
        began = asyncio.get_running_loop().time()
        await work.enqueue_many([work.call() for _ in range(200)])
        await until(lambda: len(started) == 100)

    assert max(started) - began < 2.5, "2 s at the full rate"


async def test_jobs_that_become_due_one_after_the_other_start_on_time_on_nodes_that_fill_up(
    app: Mainspring, store: AnnouncingStore
) -> None:
    late: list[float] = []

    @app.task(name="work")
    async def work(due: float) -> None:
        late.append(asyncio.get_running_loop().time() - due)
        await asyncio.sleep(60)

    async with idle_nodes(app, store, 6):
        began = asyncio.get_running_loop().time() + 30
        for number in range(6 * 2):
            due = began + 0.2 * number
            await work.using(delay=due - asyncio.get_running_loop().time()).enqueue(due)
        await until(lambda: len(late) == 6 * 2, within=60)

    assert max(late) <= 0.1
