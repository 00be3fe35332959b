"""The promises that the README makes (DESIGN 2), as far as jobs go: each as a story, and once more under faults.

Real processes, real kills and a busy event loop are in tests/chaos; here time is virtual, and what is asserted about it
is exact.
"""

import asyncio
import random
import sqlite3
import time
from collections import Counter
from collections.abc import Callable
from contextlib import AsyncExitStack, closing
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from msgspec.structs import replace

from mainspring import Context, Fail, Mainspring, Retry, Snooze
from mainspring.clock import Clock
from mainspring.core.job import Cause, State
from mainspring.core.outcome import Succeeded
from mainspring.duration import Duration, seconds
from mainspring.errors import (
    JobCancelled,
    JobFailed,
    JobGone,
    JobUnfinished,
    PayloadError,
    SchemaError,
    StoreError,
    StoreUnavailable,
)
from mainspring.runtime.events import StateChange
from mainspring.runtime.middleware import Next
from mainspring.runtime.process import this_process
from mainspring.settings import NodeSettings
from mainspring.stores.port import Store
from mainspring.stores.records import Verdict
from mainspring.stores.sqlite import SqliteStore
from mainspring.testing import VirtualTime
from mainspring.testing.faults import FaultyStore
from tests.jobs.conftest import HOUR, MINUTE, Boom, Changes, Ghost, MakeStore, Victim, ended, ids, now, until, victim

pytestmark = pytest.mark.usefixtures("virtual_time")

READY, RUNNING, SUCCEEDED, FAILED = State.READY, State.RUNNING, State.SUCCEEDED, State.FAILED
LEASE = 15.0
NOTICE = LEASE + 2
EVERY_VERB = ("claim", "settle", "note", "renew", "orphans", "declare_dead", "prune", "mend", "get", "release")


# 1. A committed job is never lost.


async def test_1_a_committed_job_outlives_the_program_that_enqueued_it(
    make_store: MakeStore, virtual_time: VirtualTime
) -> None:
    ran: list[int] = []

    def program() -> Mainspring:
        app = Mainspring(store=make_store(), clock=virtual_time.clock)

        @app.task(name="work")
        async def work(number: int) -> None:
            ran.append(number)

        return app

    async with program() as first:
        job = await first.enqueue("work", 7)
    second = program()
    async with second.node():
        view = await ended(second.job(job.id))
    assert view.job.state is SUCCEEDED
    assert ran == [7]


async def test_1_a_job_whose_node_is_killed_runs_elsewhere(app: Mainspring) -> None:
    starts: list[tuple[int, float]] = []

    @app.task
    async def work(ctx: Context) -> str:
        starts.append((ctx.attempt, now()))
        await asyncio.sleep(30)
        return "done"

    async with app, victim(app) as doomed:
        job = await work.enqueue()
        await until(5)
        async with app.node():
            await until(10)
            doomed.kill()
            assert await job.result("2m") == "done"
    assert [attempt for attempt, _ in starts] == [1, 2]


async def test_1_a_job_that_does_not_succeed_ends_where_a_person_can_see_it(app: Mainspring) -> None:
    @app.task(max_attempts=1)
    async def work(how: str) -> None:
        match how:
            case "raises":
                raise Boom
            case "fails":
                raise Fail("no")
            case _:
                await asyncio.sleep(HOUR)

    async with app:
        lost = await work.enqueue("lost")
        await (await Ghost.join(app)).claim_one()
        expired = await work.using(expires="1s").enqueue("expired")
        await until(2)
        async with app.node():
            raised, failed = await work.enqueue("raises"), await work.enqueue("fails")
            slow = await work.using(timeout="5s").enqueue("hangs")
            await asyncio.sleep(MINUTE)
            page = await app.jobs(state="failed")
    assert {view.job.id: view.job.cause for view in page.jobs} == {
        lost.id: Cause.LOST,
        expired.id: Cause.EXPIRED,
        raised.id: Cause.EXHAUSTED,
        failed.id: Cause.REFUSED,
        slow.id: Cause.EXHAUSTED,
    }


async def test_1_an_enqueue_whose_answer_was_lost_can_be_repeated_safely(
    make_store: MakeStore, virtual_time: VirtualTime
) -> None:
    faulty = FaultyStore(make_store())
    app = Mainspring(store=faulty.as_store, clock=virtual_time.clock)
    ran: list[int] = []

    @app.task
    async def work(number: int) -> None:
        ran.append(number)

    async with app.node():
        faulty.lose_answer("enqueue")
        calls = [work.call(number) for number in range(5)]
        with pytest.raises(StoreUnavailable):
            await work.enqueue_many(calls)
        jobs = await work.enqueue_many(calls)
        for job in jobs:
            await ended(job)
        assert len((await app.jobs()).jobs) == 5
    assert sorted(ran) == [0, 1, 2, 3, 4]


# 2. A lost worker cannot write.


class Remote(FaultyStore):
    """A store on another machine, as one node sees it: it may be out of reach for this node alone."""

    shares_fate = False


async def test_2_a_node_that_was_cut_off_and_comes_back_finds_its_words_refused(
    app: Mainspring, make_store: MakeStore, virtual_time: VirtualTime
) -> None:
    """Its renewals do not get through, its handler does not listen: another node runs the job meanwhile."""
    line = Remote(make_store())
    cut_off = Mainspring(store=line.as_store, clock=virtual_time.clock)
    refused = Changes(cut_off)

    def declare(one: Mainspring, who: str) -> None:
        @one.task(name="work", timeout="1h")
        async def work() -> str:
            end = now() + 2 * MINUTE
            while now() < end:
                try:
                    await asyncio.sleep(end - now())
                except asyncio.CancelledError:
                    continue
            return who

    declare(cut_off, "the lost one")
    declare(app, "the heir")
    async with cut_off.node() as lost:
        job = await cut_off.enqueue("work")
        await until(5)
        line.drop("renew", times=80)  # for longer than a lease, however soon each is tried again
        async with app.node():
            assert await app.job(job.id).result("5m") == "the heir"
            assert (await app.job(job.id).refresh()).job.attempt == 2
            assert refused.of(job) == [(READY, RUNNING)], "the lost one told nobody of an end"
            assert lost.events.counts["declared_dead"] == 1


async def test_2_a_node_that_was_declared_dead_comes_back_under_a_new_id_and_works(app: Mainspring) -> None:
    bodies: list[tuple[float, float]] = []

    @app.task
    async def work() -> str:
        began = now()
        try:
            await asyncio.sleep(10)
        finally:
            bodies.append((began, now()))
        return "done"

    async with app.node() as node:
        before = node.id
        job = await work.enqueue()
        await until(5)
        (view,) = await app.store.nodes()
        assert await app.store.declare_dead(view.node.id, view.term)
        assert await job.result("1m") == "done"
        assert node.id != before
        assert [view.alive for view in await app.store.nodes()] == [False, True]
        assert (await job.refresh()).node == node.id
    (_, stopped), (again, _) = bodies
    assert stopped <= again, "the first body was stopped, and only then the job ran again"


async def test_2_a_node_that_cannot_renew_stops_its_work_before_another_may_take_it(
    app: Mainspring, make_store: MakeStore, virtual_time: VirtualTime
) -> None:
    line = Remote(make_store())
    cut_off = Mainspring(store=line.as_store, clock=virtual_time.clock)
    bodies: list[tuple[str, float, float]] = []

    def declare(one: Mainspring, who: str) -> None:
        @one.task(name="work", timeout="1h")
        async def work() -> None:
            began = now()
            try:
                await asyncio.sleep(2 * MINUTE)
            finally:
                bodies.append((who, began, now()))

    declare(cut_off, "first")
    declare(app, "second")
    async with cut_off.node():
        job = await cut_off.enqueue("work")
        await until(5)
        for verb in EVERY_VERB:
            line.drop(verb, times=1000)
        async with app.node():
            await ended(app.job(job.id), within=5 * MINUTE)
        line.heal()
    (first, _, stopped), (second, began, _) = bodies
    assert (first, second) == ("first", "second")
    assert stopped <= began


@pytest.mark.parametrize("said", ["an end", "a note", "a renewal", "a claim"])
async def test_2_nothing_that_a_dead_node_says_changes_anything(app: Mainspring, said: str) -> None:
    @app.task
    async def work() -> None:
        return

    async with app:
        job = await work.enqueue()
        await work.enqueue()
        ghost = await Ghost.join(app)
        claim = await ghost.claim_one()
        await ghost.die()
        before = await job.refresh()
        match said:
            case "an end":
                assert await ghost.end(claim, Succeeded(None)) is Verdict.REFUSED
            case "a note":
                assert not await ghost.say(claim, b"{}")
            case "a renewal":
                with pytest.raises(StoreError):
                    await ghost.renew()
            case _:
                with pytest.raises(StoreError):
                    await ghost.claim()
        assert await job.refresh() == before


# 5. A crash is noticed in seconds, and nothing else is taken for one.


@pytest.mark.parametrize("beat", [0.0, 0.5, 1.0, 1.49], ids=lambda beat: f"{beat}s after its last renewal")
async def test_5_jobs_of_a_killed_node_run_elsewhere_within_the_lease_time_and_two_seconds(
    app: Mainspring, beat: float
) -> None:
    starts: list[float] = []

    @app.task
    async def work() -> None:
        starts.append(now())
        await asyncio.sleep(HOUR)

    async with app, victim(app) as doomed:
        for _ in range(5):
            await work.enqueue()
        await until(19)
        async with app.node(grace=0):
            await until(30.001 + beat)
            doomed.kill()
            await until(30.001 + beat + NOTICE)
            assert len(starts) == 10, "all five of them"
            assert max(starts[:5]) < 19
            assert min(starts[5:]) >= 30 + LEASE


async def test_5_jobs_of_a_killed_node_run_in_that_time_although_thousands_wait_behind_them(app: Mainspring) -> None:
    starts: list[tuple[float, int]] = []

    @app.task
    async def work(number: int) -> None:
        starts.append((now(), number))
        await asyncio.sleep(HOUR if len(starts) <= 5 else 0.1)

    async with app, victim(app, concurrency=5) as doomed:
        await work.enqueue_many([work.call(number) for number in range(5)])
        await until(1)
        await work.enqueue_many([work.call(number) for number in range(5, 5000)])
        await until(10)
        doomed.kill()
        async with app.node(concurrency=5, grace=0):
            await until(10 + NOTICE + 0.2)
    again = [number for at, number in starts[5:] if number < 5]
    assert again == [0, 1, 2, 3, 4]
    assert len(starts) < 1000, "most of the others still wait"


async def test_5_a_lease_time_of_ones_own_holds(app: Mainspring) -> None:
    starts: list[float] = []

    @app.task
    async def work() -> None:
        starts.append(now())
        await asyncio.sleep(20)

    async with app, victim(app, lease="4s") as doomed:
        job = await work.enqueue()
        await until(10)
        async with app.node(lease="4s"):
            await until(20)
            doomed.kill()
            await ended(job)
    assert 20 + 2 < starts[1] <= 20 + 4 + 2


async def test_5_where_the_dead_process_was_on_the_same_host_it_is_noticed_at_once(app: Mainspring) -> None:
    @app.task
    async def work() -> float:
        return now()

    async with app:
        job = await work.enqueue()
        ended_process = replace(this_process(), started="another time")
        await (await Ghost.join(app, process=ended_process)).claim_one()
        async with app.node():
            assert await job.result("1m") < 2


class Pair:
    """Two nodes with a long job each, and whether anything was taken for a crash that was none.

    After the trouble the second one is slow to renew, so that the first, already awake, has cause to wonder.
    """

    def __init__(self, make_store: MakeStore, clock: Clock) -> None:
        self.starts: list[float] = []
        self.stores = [FaultyStore(make_store()) for _ in range(2)]
        self._apps = [Mainspring(store=store.as_store, clock=clock) for store in self.stores]
        for app in self._apps:
            app.task(name="long", timeout="10h")(self._long)

    async def _long(self) -> str:
        self.starts.append(now())
        await asyncio.sleep(90)
        return "done"

    def slow_down(self) -> None:
        self.stores[1].delay("renew", "6s")

    async def watch(self, trouble: Callable[[], object]) -> None:
        one, other = self._apps
        async with one.node() as first, other.node() as second:
            jobs = [await app.enqueue("long") for app in self._apps]
            await until(30)
            trouble()
            assert [await job.result("1h") for job in jobs] == ["done", "done"]
            for node in (first, second):
                assert not node.events.counts["nodes_declared_dead"]
                assert not node.events.counts["declared_dead"]
        assert len(self.starts) == 2


@pytest.mark.parametrize("jump", [timedelta(hours=8), timedelta(hours=-8)], ids=["forward", "back"])
async def test_5_a_clock_jump_is_no_crash(make_store: MakeStore, virtual_time: VirtualTime, jump: timedelta) -> None:
    pair = Pair(make_store, virtual_time.clock)

    def trouble() -> None:
        virtual_time.clock.jump(jump)
        pair.slow_down()

    await pair.watch(trouble)


async def test_5_an_outage_of_the_store_is_no_crash(make_store: MakeStore, virtual_time: VirtualTime) -> None:
    pair = Pair(make_store, virtual_time.clock)

    def outage() -> None:
        for store in pair.stores:
            for verb in EVERY_VERB:
                store.drop(verb, times=100_000)
        asyncio.get_running_loop().call_later(40, end)

    def end() -> None:
        for store in pair.stores:
            store.heal()
        pair.slow_down()

    await pair.watch(outage)


class Sleepy:
    """A clock on a machine that can be suspended: time goes on, and no timer notices."""

    def __init__(self, time: VirtualTime) -> None:
        self._time = time
        self._slept = timedelta(0)

    def sleep(self, length: Duration) -> None:
        self._slept += timedelta(seconds=seconds(length))

    def now(self) -> datetime:
        return self._time.clock.now() + self._slept

    def monotonic(self) -> float:
        return self._time.clock.monotonic() + self._slept.total_seconds()


async def test_5_a_sleeping_laptop_is_no_crash(make_store: MakeStore, virtual_time: VirtualTime) -> None:
    clock = Sleepy(virtual_time)
    pair = Pair(make_store, clock)

    def trouble() -> None:
        clock.sleep("8h")
        pair.slow_down()

    await pair.watch(trouble)


@pytest.mark.parametrize("phase", [0.0, 0.7, 1.4], ids=lambda phase: f"watched with {phase}s between")
async def test_5_a_node_that_was_silent_for_less_than_the_lease_time_is_not_dead(
    app: Mainspring, make_store: MakeStore, virtual_time: VirtualTime, phase: float
) -> None:
    """One renewal takes long to arrive, at this node only."""
    faulty = FaultyStore(make_store())
    slow = Mainspring(store=faulty.as_store, clock=virtual_time.clock)
    async with slow.node() as silent:
        before = silent.id
        await until(20 + phase)
        async with app.node() as watcher:
            await until(40)
            faulty.delay("renew", LEASE - 1.5 - 0.5)  # on top of the time between two renewals
            await until(80)
            assert not watcher.events.counts["nodes_declared_dead"]
            assert silent.id == before


# 6. A job that kills its worker stops; its neighbours do not.


async def lose(app: Mainspring) -> None:
    """Have the next job claimed by a node that dies with it."""
    ghost = await Ghost.join(app)
    await ghost.claim_one()
    await ghost.die()
    await Ghost.reap(app)


async def test_6_a_job_that_kills_its_node_ends_as_poison_and_its_neighbours_end_well(app: Mainspring) -> None:
    nodes: list[Victim] = []
    kills: list[float] = []

    @app.task
    async def deadly() -> None:
        await asyncio.sleep(1)
        kills.append(now())
        nodes[-1].kill()
        await asyncio.sleep(HOUR)

    @app.task
    async def neighbour(number: int) -> int:
        await asyncio.sleep(3)
        return number

    async with app:
        killer = await deadly.enqueue()
        neighbours = [await neighbour.enqueue(number) for number in range(5)]
        for _ in range(3):
            async with victim(app) as node:
                nodes.append(node)
                await asyncio.sleep(25)
        async with app.node():
            view = await ended(killer)
            results = [await job.result("1m") for job in neighbours]
            losses = [(await job.refresh()).job.losses for job in neighbours]
    assert (view.job.state, view.job.cause, view.job.losses) == (FAILED, Cause.POISON, 3)
    assert len(kills) == 3
    assert results == [0, 1, 2, 3, 4]
    assert max(losses) < 3, "the last chance of each was taken alone"


async def test_6_an_operator_may_give_a_poisoned_job_another_chance(app: Mainspring) -> None:
    @app.task
    async def work() -> str:
        return "well"

    async with app:
        job = await work.enqueue()
        for _ in range(3):
            await lose(app)
        view = await job.refresh()
        assert (view.job.state, view.job.cause, view.job.losses) == (FAILED, Cause.POISON, 3)
        await job.retry()
        await lose(app)
        assert (await job.refresh()).job.losses == 1, "it counts from nothing again"
        async with app.node():
            assert await job.result("1m") == "well"


async def test_6_losses_that_do_not_follow_one_another_do_not_add_up(app: Mainspring) -> None:
    @app.task(loss_limit=2, retry=Retry.fixed("10s", max_attempts=10))
    async def work(ctx: Context) -> None:
        if ctx.attempt == 2:
            raise Boom

    async with app:
        job = await work.enqueue()
        await lose(app)
        assert (await job.refresh()).job.losses == 1
        async with app.node():
            await until(5)
        await until(15)
        await lose(app)
        assert (await job.refresh()).job.losses == 1
        async with app.node():
            view = await ended(job)
    assert (view.job.state, view.job.attempt) == (SUCCEEDED, 4)


# 7. Shutdown is bounded and free.


async def test_7_at_shutdown_short_work_finishes_and_long_work_is_given_back(app: Mainspring) -> None:
    @app.task
    async def work(length: float) -> str:
        await asyncio.sleep(length)
        return "done"

    async with app:
        async with app.node(grace="10s"):
            short, long = await work.enqueue(5), await work.enqueue(HOUR)
            await until(1)
        assert now() == pytest.approx(11, abs=0.5)
        assert await short.result() == "done"
        view = await long.refresh()
        assert (view.job.state, view.job.attempt, view.job.losses) == (READY, 0, 0)
        async with app.node(grace=0):
            await asyncio.sleep(0.5)
            view = await long.refresh()
            assert (view.job.state, view.job.attempt) == (RUNNING, 1)


async def test_7_what_comes_after_the_shutdown_began_is_left_to_others(app: Mainspring) -> None:
    starts: Counter[str] = Counter()

    @app.task
    async def work(label: str, length: float) -> None:
        starts[label] += 1
        await asyncio.sleep(length)

    async with app:
        node = app.make_node(NodeSettings(grace="20s"))
        await node.start()
        await work.enqueue("before", 10)
        await until(1)
        ending = asyncio.create_task(node.shutdown())
        await until(2)
        late = await work.enqueue("after", 0)
        assert (await ending).drained
        assert now() < 12
        assert (await late.state(), starts) == (READY, {"before": 1})


async def test_7_an_interrupted_job_is_claimable_elsewhere_once_its_body_has_stopped(app: Mainspring) -> None:
    inside = 0
    starts: list[float] = []

    @app.task
    async def tidy() -> None:
        nonlocal inside
        starts.append(now())
        assert inside == 0, "it was started while its last body was still there"
        inside += 1
        try:
            await asyncio.sleep(HOUR if len(starts) == 1 else 0)
        except asyncio.CancelledError:
            await asyncio.sleep(3)
            raise
        finally:
            inside -= 1

    async with app:
        first, second = (app.make_node(NodeSettings(grace="5s")) for _ in range(2))
        await first.start()
        job = await tidy.enqueue()
        await until(1)
        await second.start()
        report = await first.shutdown()
        assert now() == pytest.approx(1 + 5 + 3, abs=0.5)
        assert (report.interrupted, report.drained) == (1, True)
        view = await ended(job)
        await second.shutdown()
    assert (view.job.state, view.job.attempt, view.job.losses) == (SUCCEEDED, 1, 0)
    assert starts == pytest.approx([0, 1 + 5 + 3], abs=0.2), "no lease had to run out"


async def test_7_a_body_that_will_not_stop_cannot_hold_up_a_shutdown(app: Mainspring) -> None:
    @app.task
    async def stubborn() -> None:
        while now() < 2 * MINUTE:
            try:
                await asyncio.sleep(2 * MINUTE - now())
            except asyncio.CancelledError:
                continue

    async with app:
        node = app.make_node(NodeSettings(grace="5s", stop_grace="3s"))
        await node.start()
        job = await stubborn.enqueue()
        await until(1)
        report = await node.shutdown()
        assert now() <= 1 + 5 + 3 + 5
        assert report.abandoned == (job.id,)
        assert not report.drained
        await until(2 * MINUTE)


async def test_7_a_store_that_is_away_cannot_hold_up_a_shutdown(
    make_store: MakeStore, virtual_time: VirtualTime
) -> None:
    faulty = FaultyStore(make_store())
    app = Mainspring(store=faulty.as_store, clock=virtual_time.clock)

    @app.task
    async def work() -> None:
        await asyncio.sleep(2)

    async with app:
        node = app.make_node(NodeSettings(grace="5s"))
        await node.start()
        job = await work.enqueue()
        await until(1)
        for verb in EVERY_VERB:
            faulty.drop(verb, times=100_000)
        report = await node.shutdown()
        assert now() <= 1 + 5 + 3 + 10
        assert report.unwritten == 1
        faulty.heal()
        assert await job.state() is RUNNING
        async with app.node():
            assert (await ended(job)).job.state is SUCCEEDED


async def test_7_jobs_that_a_shutdown_interrupted_run_first_on_the_next_node_and_in_order(app: Mainspring) -> None:
    starts: list[int] = []

    @app.task
    async def work(number: int) -> None:
        starts.append(number)
        if len(starts) <= 3:
            await asyncio.sleep(HOUR)

    async with app:
        async with app.node(concurrency=3, grace=0):
            await work.enqueue_many([work.call(number) for number in range(3)])
            await until(1)
            jobs = await work.enqueue_many([work.call(number) for number in range(3, 3000)])
            await until(2)
        assert starts == [0, 1, 2]
        async with app.node(concurrency=3):
            await ended(jobs[-1])
    assert starts[3:] == list(range(3000))


# 8. Order is kept where it is promised.


async def test_8_jobs_of_one_queue_and_priority_are_claimed_by_due_time_and_then_by_id(app: Mainspring) -> None:
    order: list[str] = []

    @app.task
    async def work(label: str) -> None:
        order.append(label)

    async with app:
        await work.using(delay="3s").enqueue("due at 3")
        await work.using(delay="1s").enqueue("due at 1")
        twins = [await work.using(run_at=app.clock.now() + timedelta(seconds=2)).enqueue(f"twin {n}") for n in range(5)]
        assert ids(twins) == sorted(ids(twins))
        await until(5)
        await work.enqueue("due at 5")
        async with app.node(concurrency=1):
            await until(8)
    assert order == ["due at 1", "twin 0", "twin 1", "twin 2", "twin 3", "twin 4", "due at 3", "due at 5"]


async def test_8_jobs_that_were_claimed_ahead_and_given_back_run_in_the_order_of_their_due_times(
    app: Mainspring,
) -> None:
    starts: list[int] = []

    @app.task
    async def work(number: int) -> None:
        starts.append(number)
        # Quick ones, so that the node claims ahead; then all places are taken for longer than a claimed job may wait.
        await asyncio.sleep(4.0 if 3000 <= number < 3005 else 0.001)

    async with app:
        jobs = await work.enqueue_many([work.call(number) for number in range(6000)])
        async with app.node(concurrency=5) as node:
            await ended(jobs[-1])
    assert node.events.counts["given_back_unstarted"] > 10, "nothing had been claimed ahead"
    assert starts == list(range(6000))


async def test_8_order_survives_a_store_with_a_bad_day(make_store: MakeStore, virtual_time: VirtualTime) -> None:
    faulty = FaultyStore(make_store())
    app = Mainspring(store=faulty.as_store, clock=virtual_time.clock)
    order: list[int] = []

    @app.task
    async def work(number: int) -> None:
        order.append(number)

    async with app:
        jobs = [await work.enqueue(number) for number in range(20)]
        for _ in range(4):
            faulty.drop("claim")
            faulty.delay("claim", "300ms")
            faulty.drop("settle")
            faulty.lose_answer("settle")
            faulty.delay("settle", "2s")
        async with app.node(concurrency=1):
            for job in jobs:
                await ended(job)
    assert order == list(range(20))


# 9. Nothing is swallowed.


async def test_9_arguments_that_do_not_fit_are_refused_where_they_are_given(app: Mainspring) -> None:
    @app.task
    async def work(number: int) -> None:
        raise AssertionError(number)

    async with app:
        with pytest.raises(PayloadError, match="number"):
            await app.enqueue(work.name, "seven")
        with pytest.raises(PayloadError):
            await app.enqueue(work.name)
        assert (await app.jobs()).jobs == ()


@pytest.mark.parametrize("where", ["the handler", "its result", "a middleware before", "a middleware after"])
async def test_9_whatever_goes_wrong_in_an_attempt_is_kept_with_its_job(app: Mainspring, where: str) -> None:
    @app.middleware
    async def layer(_: Context, call_next: Next) -> object:
        if where == "a middleware before":
            raise Boom(where)
        value = await call_next()
        if where == "a middleware after":
            raise Boom(where)
        return "seven" if where == "its result" else value

    @app.task(max_attempts=1)
    async def work() -> int:
        if where == "the handler":
            raise Boom(where)
        return 7

    async with app.node():
        job = await work.enqueue()
        view = await ended(job)
        (attempt,) = await app.store.attempts(job.id)
    assert view.job.state is FAILED
    assert view.error == attempt.error
    assert view.error
    assert view.error.type.endswith("BadResult" if where == "its result" else "Boom")


async def test_9_a_job_without_a_result_says_why_in_the_type_of_the_error(app: Mainspring) -> None:
    @app.task(max_attempts=1)
    async def fragile() -> None:
        raise Boom("the disk is full")

    @app.task
    async def patient() -> None:
        await asyncio.sleep(HOUR)

    async with app.node(grace=0):
        with pytest.raises(JobFailed, match="the disk is full"):
            await (await fragile.enqueue()).result("5s")
        waiting = await patient.using(delay="1h").enqueue()
        with pytest.raises(JobUnfinished):
            await waiting.result("5s")
        await waiting.cancel()
        with pytest.raises(JobCancelled):
            await waiting.result("5s")
        await waiting.delete()
        with pytest.raises(JobGone):
            await waiting.result("5s")


async def test_9_log_lines_that_could_not_be_kept_are_counted(make_store: MakeStore, virtual_time: VirtualTime) -> None:
    faulty = FaultyStore(make_store())
    app = Mainspring(store=faulty.as_store, clock=virtual_time.clock)

    @app.task
    async def work(ctx: Context) -> str:
        ctx.log("the last words")
        return "done"

    async with app.node() as node:
        faulty.drop("note", times=1000)
        assert await (await work.enqueue()).result("1m") == "done"
        assert node.events.counts["notes_lost"] == 1


def spoil_text(file: Path) -> None:
    file.write_text("Dear diary, " * 1000, encoding="utf-8")


def spoil_half(file: Path) -> None:
    content = file.read_bytes()
    file.write_bytes(content[: len(content) // 2 // 4096 * 4096] + b"\xff" * 4096)


def spoil_newer(file: Path) -> None:
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("UPDATE mainspring_schema SET version = 9999, oldest_code = 9999")


@pytest.mark.parametrize("spoil", [spoil_text, spoil_half, spoil_newer], ids=["no database", "torn", "newer"])
async def test_9_a_corrupt_store_stops_the_start_and_is_left_as_it_is(
    tmp_path: Path, virtual_time: VirtualTime, spoil: Callable[[Path], None]
) -> None:
    file = tmp_path / "jobs.db"

    def declared() -> Mainspring:
        app = Mainspring(store=SqliteStore(file, clock=virtual_time.clock, durable=False), clock=virtual_time.clock)
        app.task(name="work")(_nothing)
        return app

    async with declared() as app:
        work = app.find("work")
        await work.enqueue_many([work.call() for _ in range(200)])
    for beside in (file.with_name("jobs.db-wal"), file.with_name("jobs.db-shm")):
        beside.unlink(missing_ok=True)
    spoil(file)
    content = file.read_bytes()
    with pytest.raises(StoreError) as refusal:
        async with declared().node():
            await asyncio.sleep(1)
    if spoil is not spoil_half:
        assert isinstance(refusal.value, SchemaError)
    assert str(file.name) in str(refusal.value)
    assert file.read_bytes() == content


async def _nothing() -> None:
    return


# 10. Time is one object.


class Skewed:
    """The clock of a machine whose wall time is wrong."""

    def __init__(self, time: VirtualTime, by: timedelta) -> None:
        self._time = time
        self._by = by

    def now(self) -> datetime:
        return self._time.clock.now() + self._by

    def monotonic(self) -> float:
        return self._time.clock.monotonic()


@pytest.mark.parametrize("skew", [timedelta(hours=-3), timedelta(hours=3)], ids=["behind", "ahead"])
async def test_10_due_times_come_from_the_stores_clock_whatever_the_programs_clock_says(
    make_store: MakeStore, virtual_time: VirtualTime, skew: timedelta
) -> None:
    app = Mainspring(store=make_store(), clock=Skewed(virtual_time, skew))
    starts: dict[str, list[float]] = {"delayed": [], "retried": [], "snoozed": [], "at once": []}

    @app.task(retry=Retry.fixed("20s", max_attempts=2), expires="5s")
    async def work(label: str) -> None:
        starts[label].append(now())
        if len(starts[label]) == 1 and label == "retried":
            raise Boom
        if len(starts[label]) == 1 and label == "snoozed":
            raise Snooze("30s")

    async with app.node():
        await work.using(delay="10s").enqueue("delayed")
        jobs = [await work.enqueue(label) for label in ("retried", "snoozed", "at once")]
        for job in jobs:
            await ended(job)
    assert starts["delayed"] == pytest.approx([10], abs=0.1)
    assert starts["retried"] == pytest.approx([0, 20], abs=0.1)
    assert starts["snoozed"] == pytest.approx([0, 30], abs=0.1)
    assert starts["at once"] == pytest.approx([0], abs=0.1)


async def test_10_a_clock_that_is_set_forward_makes_jobs_due_and_shortens_no_work(
    app: Mainspring, virtual_time: VirtualTime
) -> None:
    @app.task(timeout="1m")
    async def work() -> float:
        await asyncio.sleep(30)
        return now()

    async with app.node():
        running, later = await work.enqueue(), await work.using(delay="1h").enqueue()
        await until(10)
        virtual_time.clock.jump("1h")
        assert await running.result("1m") == pytest.approx(30, abs=0.1)
        assert await later.result("2m") <= 10 + 2 + 30
        assert (await running.refresh()).seconds == pytest.approx(30, abs=0.1)


async def test_10_ten_minutes_take_no_time(app: Mainspring) -> None:
    starts: list[float] = []

    @app.task(retry=Retry.fixed("30s", max_attempts=20))
    async def patient() -> None:
        starts.append(now())
        if len(starts) < 20:
            raise Boom

    began = time.monotonic()
    async with app.node():
        job = await patient.using(delay="30s").enqueue()
        await until(10 * MINUTE + 1)
        assert await job.state() is SUCCEEDED
    assert starts == pytest.approx([number * 30 for number in range(1, 21)], abs=0.1)
    assert time.monotonic() - began < 30


# All of them, under faults.


def bad_day(store: Store, roll: random.Random) -> FaultyStore:
    """Let about every third call of a node go wrong, for some hundred calls of each verb."""
    faulty = FaultyStore(store)
    for verb in EVERY_VERB:
        for _ in range(150):
            match roll.randrange(12):
                case 0:
                    faulty.drop(verb)
                case 1:
                    faulty.lose_answer(verb)
                case 2:
                    faulty.duplicate(verb)
                case 3:
                    faulty.delay(verb, roll.uniform(0, 2))
                case _:
                    faulty.delay(verb, 0)
    return faulty


@pytest.mark.parametrize("seed", range(4))
async def test_under_faults_every_job_ends_well_once_and_is_told_of_once(
    make_store: MakeStore, virtual_time: VirtualTime, seed: int
) -> None:
    """Two nodes on a store with a bad day, and a third that is killed; jobs that fail at first, and save as they go."""
    roll = random.Random(seed)  # noqa: S311 -- a story that can be told again
    runs: Counter[int] = Counter()

    def declared(app: Mainspring) -> Mainspring:
        @app.task(name="work", retry=Retry.fixed("1s", max_attempts=20), loss_limit=20)
        async def work(ctx: Context, number: int) -> int:
            runs[number] += 1
            await ctx.save("runs", runs[number])
            await asyncio.sleep(number % 4)
            if ctx.attempt == 1 and number % 5 == 0:
                raise Boom
            return number

        return app

    async with declared(Mainspring(store=make_store(), clock=virtual_time.clock)) as app, AsyncExitStack() as stack:
        shaken = [bad_day(make_store(), roll) for _ in range(2)]
        told: list[StateChange] = []
        for faulty in shaken:
            one = declared(Mainspring(store=faulty.as_store, clock=virtual_time.clock))
            one.listener(told.append)
            await stack.enter_async_context(one.node(concurrency=4, lease="5s", grace=0))
        doomed = await stack.enter_async_context(victim(app, concurrency=4, lease="5s"))
        jobs = [await app.enqueue("work", number) for number in range(40)]
        await until(6)
        doomed.kill()
        await until(20)
        for faulty in shaken:
            faulty.heal()
        views = [await ended(job, within=10 * MINUTE) for job in jobs]
        results = [await job.result() for job in jobs]
    assert {view.job.state for view in views} == {SUCCEEDED}
    assert results == list(range(40))
    assert min(runs.values()) >= 1
    successes = Counter(change.job.id for change in told if change.target is SUCCEEDED)
    assert successes == {view.job.id: 1 for view in views if view.node != doomed.id}
