"""A node among others: what it does when answers are lost, the store is away, or it is thought dead."""

import asyncio
from contextlib import suppress
from datetime import timedelta

import pytest

from mainspring import Breaker, Context, Limit, Mainspring, Retry, Snooze
from mainspring.core.job import Cause, NodeId, Retention, State
from mainspring.core.names import Name
from mainspring.errors import JobGone
from mainspring.runtime.events import BreakerChange, StateChange
from mainspring.runtime.middleware import Next
from mainspring.settings import NodeSettings
from mainspring.stores.memory import MemoryStore
from mainspring.stores.records import (
    ClaimRequest,
    DumpStacks,
    JobView,
    NodeRecord,
    Process,
    Quiet,
    Resume,
    SetConcurrency,
    StopNode,
)
from mainspring.testing import VirtualTime
from tests.runtime.conftest import Bench

ELSEWHERE = Process(host="another machine", pid=1, started="then")


async def silent_node(bench: Bench, *tasks: str) -> tuple[NodeId, int]:
    """Join as a node of another machine that never renews."""
    node = NodeId("silent")
    record = NodeRecord(id=node, process=ELSEWHERE, tasks=frozenset(map(Name.parse, tasks)))
    return node, await bench.store.inner.join(record)


async def test_a_claim_whose_answer_was_lost_is_given_back(bench: Bench) -> None:
    ran = []

    @bench.app.task(name="work")
    async def work(ctx: Context) -> None:
        ran.append(ctx.attempt)

    async with bench.app.node():
        bench.store.lose_answer("claim")
        job = await work.enqueue()
        await job.result("1m")

    assert ran == [1]  # the attempt that never began did not count
    assert (await bench.view(job.id)).job.claims == 2


async def test_a_claim_whose_answer_was_lost_is_given_back_while_other_claims_are_always_under_way(
    bench: Bench,
) -> None:
    @bench.app.task(name="work")
    async def work() -> None: ...

    async def keep_busy() -> None:
        while True:
            await work.enqueue()
            await asyncio.sleep(0.1)

    async with bench.app.node(concurrency=100):
        bench.store.lose_answer("claim")
        job = await work.enqueue()
        await bench.until(lambda: "claim" in bench.store.calls)
        bench.store.delay("claim", "2s", times=1000)  # longer than a beat, and the next one follows at once
        load = asyncio.create_task(keep_busy())
        await job.result("30s")
        load.cancel()
        bench.store.heal()

    assert (await bench.view(job.id)).job.claims == 2


async def test_a_job_whose_claim_the_store_has_lost_runs_again_on_the_same_node_and_its_place_is_freed(
    bench: Bench,
) -> None:
    """As after a failover to a standby that the claim had not reached."""
    began: list[int] = []

    @bench.app.task(name="work")
    async def work(ctx: Context) -> int:
        began.append(ctx.attempt)
        until = bench.time.elapsed + 8
        while bench.time.elapsed < until:  # ignores the request to stop
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(1)
        return 7

    async with bench.app.node(concurrency=2, stop_grace="5s") as node:
        job = await work.enqueue()
        waiting = await bench.view(job.id)
        await bench.until(lambda: began)
        running = await bench.view(job.id)
        lose_claim(bench, waiting)
        assert await job.result("1m") == 7
        await bench.until(lambda: node.running == 0)
        later = [await work.enqueue() for _ in range(2)]
        assert [await one.result("1m") for one in later] == [7, 7]

    view = await bench.view(job.id)
    assert (began[:2], view.job.attempt, view.job.claims) == ([1, 1], 1, 1)
    assert view.job.lease != running.job.lease
    assert node.events.counts["abandoned"] == 1


def lose_claim(bench: Bench, before: JobView) -> None:
    """Put a job back to where it was before it was claimed."""
    assert isinstance(bench.store.inner, MemoryStore)
    tables = bench.store.inner._tables
    tables.write(tables.rows[before.job.id], before, bench.time.clock.now())


async def test_a_settle_whose_answer_was_lost_is_no_lost_lease(bench: Bench) -> None:
    changes: list[StateChange] = []
    bench.app.listener(changes.append)

    @bench.app.task(name="work")
    async def work() -> int:
        return 7

    async with bench.app.node() as node:
        bench.store.lose_answer("settle", times=2)
        job = await work.enqueue()
        assert await job.result("1m") == 7
        await asyncio.sleep(5)

    assert node.events.counts["refused"] == 0
    assert (await bench.view(job.id)).job.attempt == 1


async def test_the_end_of_an_attempt_is_written_once_the_store_is_back(bench: Bench) -> None:
    ran = []

    @bench.app.task(name="work")
    async def work() -> str:
        ran.append(1)
        bench.store.drop("settle", times=8)
        bench.store.drop("renew", times=5)
        return "done"

    async with bench.app.node():
        job = await work.enqueue()
        assert await job.result("5m") == "done"

    assert ran == [1]


async def test_an_outage_of_the_store_costs_no_lease(bench: Bench) -> None:
    @bench.app.task(name="work")
    async def work() -> str:
        await asyncio.sleep(120)
        return "done"

    async with bench.app.node(), bench.app.node():
        job = await work.enqueue()
        await asyncio.sleep(1)
        for verb in ("renew", "claim", "settle", "orphans", "declare_dead"):
            bench.store.drop(verb, times=60)  # of both nodes: nobody is served for about a minute
        await asyncio.sleep(70)
        bench.store.heal()
        assert await job.result("5m") == "done"

    view = await bench.view(job.id)
    assert (view.job.claims, view.job.attempt) == (1, 1)


async def test_a_jump_of_the_clock_costs_no_lease(bench: Bench) -> None:
    @bench.app.task(name="work")
    async def work() -> str:
        bench.time.clock.jump("2h")
        await asyncio.sleep(30)
        bench.time.clock.jump(-7200)
        await asyncio.sleep(30)
        return "done"

    async with bench.app.node(), bench.app.node():
        job = await work.enqueue()
        assert await job.result("5m") == "done"

    assert (await bench.view(job.id)).job.claims == 1


async def test_a_node_that_falls_silent_loses_its_jobs_within_the_lease_time(bench: Bench) -> None:
    ended = []

    @bench.app.task(name="work")
    async def work() -> None:
        ended.append(bench.time.elapsed)

    await bench.store.inner.open()
    node, term = await silent_node(bench, "work")
    job = await work.enqueue()
    await bench.store.inner.claim(ClaimRequest(node=node, term=term, tasks=frozenset({Name.parse("work")})))
    silent_since = bench.time.elapsed

    async with bench.app.node(lease="15s"):
        await job.result("1m")

    assert 12 <= ended[0] - silent_since <= 17
    view = await bench.view(job.id)
    assert (view.job.attempt, view.job.claims) == (2, 2)


async def test_a_node_that_was_declared_dead_stops_its_work_and_comes_back_under_a_new_id(bench: Bench) -> None:
    stopped = []

    @bench.app.task(name="work")
    async def work(ctx: Context) -> int:
        try:
            await asyncio.sleep(60 if ctx.attempt == 1 else 1)
        except asyncio.CancelledError:
            stopped.append(ctx.cancelled)
            raise
        return ctx.attempt

    async with bench.app.node() as node:
        job = await work.enqueue()
        await asyncio.sleep(1)
        first = node.id
        assert await bench.store.inner.declare_dead(first, 1)
        assert await job.result("5m") == 2
        assert node.id != first

    assert stopped == [True]
    assert await bench.ends(job.id) == ["lost"]


async def test_a_lost_worker_cannot_settle(bench: Bench) -> None:
    @bench.app.task(name="work")
    async def work(ctx: Context) -> str:
        if ctx.attempt == 1:
            bench.store.drop("renew", times=1000)  # it will not learn that it is dead
            await bench.store.inner.declare_dead(node.id, 1)
            return "by a lost worker"
        return "by another"

    async with bench.app.node() as node:
        job = await work.enqueue()
        await bench.until(lambda: node.events.counts["refused"] == 1)
        bench.store.heal()
        assert await job.result("5m") == "by another"


async def test_shutdown_lets_work_finish(bench: Bench) -> None:
    @bench.app.task(name="work")
    async def work() -> str:
        await asyncio.sleep(20)
        return "done"

    async with bench.app:
        async with bench.app.node(grace="30s"):
            job = await work.enqueue()
            await asyncio.sleep(1)
        assert (await bench.view(job.id)).job.state is State.SUCCEEDED
        assert [view.alive for view in await bench.store.inner.nodes()] == [False]


async def test_shutdown_gives_back_what_does_not_finish_and_counts_no_attempt(bench: Bench) -> None:
    @bench.app.task(name="work", retry=Retry.none())
    async def work() -> None:
        await asyncio.sleep(3600)

    async with bench.app:
        began = bench.time.elapsed
        async with bench.app.node(grace="30s") as node:
            jobs = [await work.enqueue() for _ in range(50)]  # more than there are places for
            await asyncio.sleep(1)
        assert 30 <= bench.time.elapsed - began <= 40
        for job in jobs:
            view = await bench.view(job.id)
            assert (view.job.state, view.job.attempt) == (State.READY, 0)
    assert node.running == 0


async def test_a_second_word_hurries_the_shutdown(bench: Bench) -> None:
    @bench.app.task(name="work")
    async def work() -> None:
        await asyncio.sleep(3600)

    async with bench.app:
        node = bench.app.make_node(NodeSettings(grace="1h"))
        running = asyncio.create_task(node.run())
        job = await work.enqueue()
        await asyncio.sleep(1)
        node.stop.set()
        await asyncio.sleep(10)
        node.hurry.set()
        report = await asyncio.wait_for(running, 10)
        assert report.drained
        assert report.interrupted == 1
        assert (await bench.view(job.id)).job.state is State.READY


async def test_a_cancel_reaches_a_running_coroutine_with_the_next_renewal(bench: Bench) -> None:
    @bench.app.task(name="work")
    async def work() -> None:
        await asyncio.sleep(3600)

    async with bench.app.node():
        job = await work.enqueue()
        await asyncio.sleep(1)
        assert await job.cancel() is State.RUNNING
        asked = bench.time.elapsed
        await bench.until_finished(job.id)

    assert bench.time.elapsed - asked <= 4
    assert (await bench.view(job.id)).job.state is State.CANCELLED


async def test_success_outweighs_a_cancel(bench: Bench) -> None:
    @bench.app.task(name="work")
    async def work() -> str:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            return "finished all the same"
        return "never"

    async with bench.app.node():
        job = await work.enqueue()
        await asyncio.sleep(1)
        await job.cancel()
        assert await job.result("1m") == "finished all the same"


async def test_a_timeout_is_an_outcome_like_any_other(bench: Bench) -> None:
    @bench.app.task(name="work", timeout="10s", retry=Retry.fixed("1s", max_attempts=2))
    async def work(ctx: Context) -> str:
        assert ctx.remaining() == 10
        if ctx.attempt == 1:
            await asyncio.sleep(3600)
        assert ctx.previous_error
        return ctx.previous_error.type

    async with bench.app.node():
        began = bench.time.elapsed
        job = await work.enqueue()
        assert await job.result("1m") == "TimeoutError"

    assert bench.time.elapsed - began < 13


async def test_a_body_that_does_not_stop_is_abandoned_and_keeps_its_place(bench: Bench) -> None:
    @bench.app.task(name="stubborn", timeout="10s", retry=Retry.none(), limit=Limit(concurrency=1))
    async def stubborn(seconds: float) -> None:
        ends = bench.time.elapsed + seconds
        while bench.time.elapsed < ends:
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(ends - bench.time.elapsed)

    async with bench.app.node(concurrency=5, stop_grace="5s") as node:
        first = await stubborn.enqueue(60.0)
        second = await stubborn.enqueue(0.0)
        await asyncio.sleep(30)
        assert (await bench.view(first.id)).job.state is State.FAILED  # its end is written …
        assert node.running == 1  # … but its place is taken, here
        assert (await bench.view(second.id)).job.state is State.READY  # … and in its limit
        await second.result("5m")
        assert bench.time.elapsed >= 60

    assert node.events.counts["abandoned"] == 1


@pytest.mark.slow
async def test_a_job_that_snoozes_comes_again_without_an_attempt_counted(bench: Bench) -> None:
    @bench.app.task(name="work", retry=Retry.none())
    async def work(ctx: Context) -> int:
        times: int = ctx.load("times", 0) + 1
        await ctx.save("times", times)
        if times < 5:
            raise Snooze("1h")
        return times

    async with bench.app.node():
        job = await work.enqueue()
        assert await job.result("1d") == 5

    assert bench.time.elapsed >= 4 * 3600
    assert (await bench.view(job.id)).job.attempt == 1


async def test_a_node_runs_one_suspect_at_a_time_and_no_neighbour_becomes_poison(bench: Bench) -> None:
    most = now = 0

    @bench.app.task(name="work", loss_limit=2)
    async def work() -> None:
        nonlocal most, now
        now += 1
        most = max(most, now)
        await asyncio.sleep(1)
        now -= 1

    await bench.store.inner.open()
    node, term = await silent_node(bench, "work")
    jobs = [await work.enqueue() for _ in range(5)]
    await bench.store.inner.claim(ClaimRequest(node=node, term=term, tasks=frozenset({Name.parse("work")}), room=5))
    await bench.store.inner.declare_dead(node, term)

    async with bench.app.node(concurrency=5):
        for job in jobs:
            await job.result("5m")

    assert most == 1


@pytest.mark.slow
async def test_a_job_of_a_task_that_nobody_knows_fails_after_the_grace_time_and_not_before(bench: Bench) -> None:
    elsewhere = Mainspring(store=bench.store.as_store, clock=bench.time.clock)

    @elsewhere.task(name="unknown")
    async def unknown() -> None: ...

    @bench.app.task(name="known")
    async def known() -> None: ...

    async with bench.app.node(unknown_task_grace="1h", prune_every="1m"):
        job = await unknown.enqueue()
        await asyncio.sleep(3500)
        assert (await bench.view(job.id)).job.state is State.READY
        await asyncio.sleep(300)
        view = await bench.view(job.id)

    assert (view.job.state, view.job.cause, view.job.attempt) == (State.FAILED, Cause.UNKNOWN_TASK, 0)


class StoreWithBacklogToPrune(MemoryStore):
    """A store that has 80 chunks of old jobs to delete, each of which takes ten seconds."""

    chunks = 80

    async def prune(self, limit: int) -> int:
        if not self.chunks:
            return 0
        self.chunks -= 1
        await asyncio.sleep(10)
        return limit


async def test_a_backlog_of_old_jobs_does_not_extend_the_grace_time_of_an_unknown_task(
    virtual_time: VirtualTime,
) -> None:
    store = StoreWithBacklogToPrune(clock=virtual_time.clock)
    app = Mainspring(store=store, clock=virtual_time.clock)
    elsewhere = Mainspring(store=store, clock=virtual_time.clock)

    @elsewhere.task(name="unknown")
    async def unknown() -> None: ...

    @app.task(name="known")
    async def known() -> None: ...

    async with app.node(unknown_task_grace="10m", prune_every="10s"):
        job = await unknown.enqueue()
        await asyncio.sleep(900)
        (view,) = await store.get([job.id])

    assert view
    assert view.job.cause is Cause.UNKNOWN_TASK


@pytest.mark.slow
async def test_the_grace_time_of_an_unknown_task_is_not_cut_short_by_a_clock_that_jumps_ahead(bench: Bench) -> None:
    elsewhere = Mainspring(store=bench.store.as_store, clock=bench.time.clock)

    @elsewhere.task(name="unknown")
    async def unknown() -> None: ...

    @bench.app.task(name="known")
    async def known() -> None: ...

    async with bench.app.node(unknown_task_grace="1h", prune_every="1m"):
        await asyncio.sleep(4000)
        async with elsewhere.node():
            await (await unknown.enqueue()).result("1m")
        job = await unknown.enqueue()
        bench.time.clock.jump("3h")
        await asyncio.sleep(3000)
        assert (await bench.view(job.id)).job.state is State.READY
        await asyncio.sleep(1000)
        assert (await bench.view(job.id)).job.cause is Cause.UNKNOWN_TASK


async def test_what_was_claimed_ahead_and_finds_no_place_goes_back(bench: Bench) -> None:
    @bench.app.task(name="quick")
    async def quick(block: bool) -> None:
        await asyncio.sleep(60 if block else 0.001)

    async with bench.app.node(concurrency=2):
        calls = [quick.call(block=False) for _ in range(400)] + [quick.call(block=True) for _ in range(20)]
        jobs = await quick.enqueue_many(calls)
        await jobs[399].result("1m")
        await asyncio.sleep(10)
        page = await bench.app.jobs(state="running")
        assert len(page.jobs) <= 3  # two run; one more may have been given to the claimer's last look

    assert (await bench.view(jobs[-1].id)).job.attempt == 0


async def test_a_queue_can_have_a_concurrency_of_its_own_on_each_node(bench: Bench) -> None:
    most = now = 0
    bench.app.queue("narrow", concurrency=2)

    @bench.app.task(name="work", queue="narrow")
    async def work() -> None:
        nonlocal most, now
        now += 1
        most = max(most, now)
        await asyncio.sleep(1)
        now -= 1

    @bench.app.task(name="other")
    async def other() -> None: ...

    async with bench.app.node(concurrency=10):
        jobs = [await work.enqueue() for _ in range(6)]
        await (await other.enqueue()).result("100ms")
        for job in jobs:
            await job.result("1m")

    assert most == 2


async def test_a_node_obeys_the_orders_of_operators(bench: Bench) -> None:
    @bench.app.task(name="work")
    async def work() -> None:
        await asyncio.sleep(1)

    async with bench.app.node(concurrency=1) as node:
        store = bench.store.inner
        await store.order(node.id, Quiet())
        await asyncio.sleep(5)
        job = await work.enqueue()
        await asyncio.sleep(60)
        assert (await bench.view(job.id)).job.state is State.READY

        await store.order(node.id, SetConcurrency(7))
        await store.order(node.id, DumpStacks())
        await store.order(node.id, Resume())
        await job.result("1m")
        await asyncio.sleep(5)
        orders = await store.orders(node.id)

    assert [order.answer == "done" for order in orders] == [True, True, False, True]
    assert "claimer" in (orders[2].answer or "")


async def test_an_order_to_stop_ends_the_node(bench: Bench) -> None:
    async with bench.app:
        node = bench.app.make_node(NodeSettings())
        running = asyncio.create_task(node.run())
        await bench.until(lambda: node.id)
        await bench.store.inner.order(node.id, StopNode())
        report = await asyncio.wait_for(running, 60)

    assert report.drained


async def test_listeners_see_logical_transitions_in_order(bench: Bench) -> None:
    seen: list[tuple[str, str]] = []

    @bench.app.listener
    def listen(change: StateChange) -> None:
        seen.append((str(change.source), str(change.target)))
        raise RuntimeError("a listener's own affair")

    @bench.app.task(name="work", retry=Retry.fixed("1s", max_attempts=2))
    async def work(ctx: Context) -> None:
        if ctx.attempt == 1:
            raise ValueError("once")

    async with bench.app.node() as node:
        await (await work.enqueue()).result("1m")

    assert seen == [("ready", "running"), ("running", "retrying"), ("retrying", "running"), ("running", "succeeded")]
    assert node.events.counts["listener_errors"] == 4


@pytest.mark.parametrize("error", [asyncio.CancelledError(), SystemExit(3), GeneratorExit(), BaseException("any")])
async def test_whatever_a_listener_raises_jobs_start_and_end(bench: Bench, error: BaseException) -> None:
    heard: list[str] = []

    @bench.app.listener
    def listen(change: StateChange) -> None:
        heard.append(change.event)
        raise error

    @bench.app.task(name="work")
    async def work(number: int) -> int:
        return number

    async with bench.app.node(concurrency=3) as node:
        jobs = [await work.enqueue(number) for number in range(10)]
        assert [await job.result("1m") for job in jobs] == list(range(10))

    assert sorted(heard) == ["claimed"] * 10 + ["succeeded"] * 10
    assert node.events.counts["listener_errors"] == 20


async def test_whatever_a_breaker_listener_raises_jobs_end(bench: Bench) -> None:
    heard: list[str] = []

    @bench.app.breakers.listener
    def listen(change: BreakerChange) -> None:
        heard.append(change.change.target)
        raise asyncio.CancelledError

    @bench.app.task(name="work", max_attempts=1, breaker=Breaker(threshold=2))
    async def work() -> None:
        raise ValueError("no")

    async with bench.app.node(concurrency=2):
        jobs = [await work.enqueue() for _ in range(2)]
        for job in jobs:
            await bench.until_finished(job.id)

    assert heard == ["open"]


async def test_middleware_is_an_onion_and_may_short_circuit(bench: Bench) -> None:
    said: list[str] = []

    @bench.app.middleware
    async def outer(_ctx: Context, call_next: Next) -> object:
        said.append("outer in")
        result = await call_next()
        said.append("outer out")
        return result

    @bench.app.middleware
    async def inner(ctx: Context, call_next: Next) -> object:
        said.append("inner")
        return "short" if ctx.task == "never" else await call_next()

    @bench.app.task(name="work")
    async def work() -> str:
        said.append("work")
        return "long"

    @bench.app.task(name="never")
    async def never() -> str:
        raise AssertionError("the middleware short-circuits")

    async with bench.app.node():
        assert await (await work.enqueue()).result("1m") == "long"
        assert await (await never.enqueue()).result("1m") == "short"

    assert said == ["outer in", "inner", "work", "outer out", "outer in", "inner", "outer out"]


async def test_a_cancel_by_somebody_else_is_an_error_and_not_the_end_of_the_node(bench: Bench) -> None:
    @bench.app.task(name="work", retry=Retry.fixed("1s", max_attempts=2))
    async def work(ctx: Context) -> str:
        if ctx.attempt == 1:
            other = asyncio.create_task(asyncio.sleep(60))
            other.cancel()
            await other
        assert ctx.previous_error
        return ctx.previous_error.type

    async with bench.app.node():
        assert await (await work.enqueue()).result("1m") == "asyncio.exceptions.CancelledError"


async def test_a_result_that_is_not_of_the_declared_type_is_an_error_of_the_attempt(bench: Bench) -> None:
    @bench.app.task(name="work", retry=Retry.none())
    async def work() -> int:
        return "seven"  # type: ignore[return-value]  # that is the point

    async with bench.app.node():
        job = await work.enqueue()
        await bench.until_finished(job.id)

    view = await bench.view(job.id)
    assert view.job.state is State.FAILED
    assert view.error
    assert "int" in view.error.message


async def test_expired_jobs_fail_without_a_run(bench: Bench) -> None:
    @bench.app.task(name="work")
    async def work() -> None:
        raise AssertionError("too late")

    job = await work.using(expires="1m").enqueue()
    await asyncio.sleep(120)
    async with bench.app.node():
        await bench.until_finished(job.id)

    view = await bench.view(job.id)
    assert (view.job.state, view.job.cause, view.job.attempt) == (State.FAILED, Cause.EXPIRED, 0)


async def test_finished_jobs_leave_when_their_time_is_over(bench: Bench) -> None:
    @bench.app.task(name="work", retention=Retention(succeeded=timedelta(hours=1)))
    async def work() -> int:
        return 1

    async with bench.app.node():
        job = await work.enqueue()
        assert await job.result("1m") == 1
        await asyncio.sleep(3700)
        with pytest.raises(JobGone):
            await job.result("1m")


async def test_a_job_may_come_back_while_its_lost_attempt_is_still_stopping(bench: Bench) -> None:
    ends: list[int] = []

    @bench.app.task(name="work")
    async def work(ctx: Context) -> int:
        if ctx.attempt == 1:
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(60)
            await asyncio.sleep(4)  # it takes its time
        else:
            await asyncio.sleep(10)
        ends.append(ctx.attempt)
        return ctx.attempt

    async with bench.app.node(stop_grace="5s") as node:
        job = await work.enqueue()
        await asyncio.sleep(1)
        await bench.store.inner.declare_dead(node.id, 1)
        await bench.until(lambda: node.running == 2)  # the node is back, and has taken the job again
        await bench.until(lambda: ends == [1])
        assert node.running == 1
        assert await job.result("1m") == 2
        assert node.running == 0
