"""The flaws of qml and of forge's job queue that are not here (contracts 4.10, 4.11 and 2.9), one story or more for each.

Q26, options without an effect, has a file of its own: test_options.py.
"""

import asyncio
import time
from collections.abc import Callable
from datetime import timedelta
from itertools import pairwise

import pytest

from mainspring import Context, Fail, Limit, Mainspring, Retry, RetryIn, Snooze, Unique
from mainspring.core.job import Cause, State
from mainspring.core.outcome import Interrupted, Succeeded
from mainspring.errors import Conflict, DeclarationError, JobGone, LeaseLost, NodeGone
from mainspring.runtime.events import StateChange
from mainspring.stores.records import Verdict
from mainspring.testing import VirtualTime
from mainspring.testing.faults import FaultyStore
from tests.jobs.conftest import (
    HOUR,
    MINUTE,
    Boom,
    Changes,
    Ghost,
    MakeStore,
    Victim,
    ended,
    ids,
    now,
    opened,
    until,
    victim,
)

pytestmark = pytest.mark.usefixtures("virtual_time")

READY, RUNNING, RETRYING = State.READY, State.RUNNING, State.RETRYING
SUCCEEDED, FAILED, CANCELLED = State.SUCCEEDED, State.FAILED, State.CANCELLED
LEASE = 15.0


@pytest.fixture
def faulty(make_store: MakeStore) -> FaultyStore:
    return FaultyStore(make_store())


@pytest.fixture
def shaky(faulty: FaultyStore, virtual_time: VirtualTime) -> Mainspring:
    """An app on a store that can be made to misbehave."""
    return Mainspring(store=faulty.as_store, clock=virtual_time.clock)


# Q1: an attempt counts from its claim on.


async def test_Q1_an_attempt_is_durable_before_its_handler_starts(app: Mainspring, make_store: MakeStore) -> None:
    async with opened(make_store()) as other:
        seen: list[tuple[State, int, int]] = []

        @app.task
        async def look(ctx: Context) -> None:
            (view,) = await other.get([ctx.job])
            assert view
            seen.append((view.job.state, view.job.attempt, view.job.claims))

        async with app.node():
            await ended(await look.enqueue())
    assert seen == [(RUNNING, 1, 1)]


async def test_Q1_a_job_that_kills_its_process_uses_up_its_attempts(app: Mainspring) -> None:
    nodes: list[Victim] = []
    starts: list[int] = []

    @app.task(max_attempts=2, loss_limit=9)
    async def deadly(ctx: Context) -> None:
        starts.append(ctx.attempt)
        nodes[-1].kill()
        await asyncio.sleep(HOUR)

    async with app:
        job = await deadly.enqueue()
        for _ in range(4):
            async with victim(app) as node:
                nodes.append(node)
                await asyncio.sleep(LEASE + 2)
        view = await job.refresh()
    assert starts == [1, 2]
    assert (view.job.state, view.job.attempt, view.job.cause) == (FAILED, 2, Cause.LOST)


# Q2, Q12: what an attempt raised is kept, whole, and shown to the next one.


async def test_Q2_an_attempt_sees_what_the_one_before_it_raised(app: Mainspring) -> None:
    seen: list[str] = []

    @app.task(retry=Retry.fixed("1s", max_attempts=3))
    async def fragile(ctx: Context) -> None:
        error = ctx.previous_error
        seen.append(f"{error.type}: {error.message}" if error else "nothing")
        if ctx.attempt < 3:
            raise [ValueError, OSError][ctx.attempt - 1](f"attempt {ctx.attempt}")

    async with app.node():
        await ended(await fragile.enqueue())
    assert seen == ["nothing", "ValueError: attempt 1", "OSError: attempt 2"]


@pytest.mark.parametrize(
    ("error", "kind"),
    [(Boom("the disk"), "Boom"), (RetryIn("1s", "the disk"), "RetryIn"), (Fail("the disk"), "Fail")],
    ids=["raised", "retry", "fail"],
)
async def test_Q12_the_traceback_of_every_kind_of_failure_is_kept(app: Mainspring, error: Exception, kind: str) -> None:
    def deep_within() -> None:
        raise error.with_traceback(None)

    @app.task(max_attempts=1)
    async def fragile() -> None:
        deep_within()

    async with app.node():
        job = await fragile.enqueue()
        view = await ended(job)
        (attempt,) = await app.store.attempts(job.id)
    assert view.error == attempt.error
    assert view.error
    assert view.error.type.endswith(kind)
    assert "the disk" in view.error.message
    assert "deep_within" in view.error.traceback
    assert "test_flaws.py" in view.error.traceback


async def test_Q12_the_errors_of_all_attempts_stay_readable(app: Mainspring) -> None:
    @app.task(retry=Retry.fixed("1s", max_attempts=3))
    async def fragile(ctx: Context) -> None:
        raise Boom(f"attempt {ctx.attempt}")

    async with app.node():
        job = await fragile.enqueue()
        await ended(job)
        attempts = await app.store.attempts(job.id)
    assert [(one.attempt, one.error and one.error.message) for one in attempts] == [
        (1, "attempt 1"),
        (2, "attempt 2"),
        (3, "attempt 3"),
    ]


class Unprintable(Exception):
    def __str__(self) -> str:
        raise Boom


def ring() -> Exception:
    """An error that is the cause of its own cause."""
    first, second = Boom("first"), Boom("second")
    first.__cause__, second.__cause__ = second, first
    return first


@pytest.mark.parametrize(
    "error",
    [
        Unprintable(),
        Boom("x" * 5_000_000),
        Boom("\udcff\0 \N{SNOWMAN}"),
        Boom(object()),
        ring(),
        ExceptionGroup("both", [Boom("one"), ExceptionGroup("deeper", [Boom("two")])]),
    ],
    ids=["unprintable", "long", "strange", "object", "ring", "group"],
)
async def test_Q12_an_error_of_any_shape_is_kept(app: Mainspring, error: Exception) -> None:
    @app.task(max_attempts=1)
    async def fragile() -> None:
        raise error

    async with app.node():
        view = await ended(await fragile.enqueue(), within=5)
    assert view.job.state is FAILED
    assert view.error
    assert view.error.type
    assert "fragile" in view.error.traceback
    assert len(view.error.message) + len(view.error.traceback) < 500_000


# Q3: hooks hear of what was committed, and nothing else; they cannot harm.


async def test_Q3_a_hook_hears_of_an_end_only_after_it_is_committed(shaky: Mainspring, faulty: FaultyStore) -> None:
    changes = Changes(shaky)

    @shaky.task
    async def work() -> None:
        return

    async with shaky.node():
        faulty.delay("settle", "5s")
        job = await work.enqueue()
        await until(4.9)
        assert await job.state() is RUNNING
        assert changes.of(job) == [(READY, RUNNING)]
        await until(5.2)
        assert await job.state() is SUCCEEDED
        assert changes.of(job) == [(READY, RUNNING), (RUNNING, SUCCEEDED)]


@pytest.mark.parametrize("fault", ["drop", "lose_answer", "duplicate"])
async def test_Q3_a_write_that_had_to_be_repeated_is_told_once(
    shaky: Mainspring, faulty: FaultyStore, fault: str
) -> None:
    changes = Changes(shaky)

    @shaky.task(retry=Retry.fixed("30s", max_attempts=2))
    async def fragile(ctx: Context) -> None:
        if ctx.attempt == 1:
            raise Boom

    async with shaky.node():
        getattr(faulty, fault)("settle", times=3)
        job = await fragile.enqueue()
        await ended(job)
    steps = [(READY, RUNNING), (RUNNING, RETRYING), (RETRYING, RUNNING), (RUNNING, SUCCEEDED)]
    assert changes.of(job) == steps


async def test_Q3_a_write_that_is_refused_is_told_to_nobody_and_counted(app: Mainspring) -> None:
    changes = Changes(app)

    @app.task
    async def work() -> None:
        (view,) = await app.store.nodes()
        await app.store.declare_dead(view.node.id, view.term)

    async with app.node() as node:
        job = await work.enqueue()
        await until(1)
        assert changes.of(job) == [(READY, RUNNING)]
        assert node.events.counts["refused"] == 1


async def test_Q3_hooks_hear_of_a_loss_from_the_node_that_noticed_it(app: Mainspring) -> None:
    changes = Changes(app)

    @app.task(max_attempts=2)
    async def work() -> None:
        return

    @app.task(max_attempts=1)
    async def last() -> None:
        return

    async with app:
        jobs = [await work.enqueue(), await last.enqueue()]
        ghost = await Ghost.join(app)
        assert len(await ghost.claim(2)) == 2
        async with app.node():
            for job in jobs:
                await ended(job)
    assert changes.of(jobs[0]) == [(RUNNING, READY), (READY, RUNNING), (RUNNING, SUCCEEDED)]
    assert changes.of(jobs[1]) == [(RUNNING, FAILED)]


async def test_Q3_a_hook_that_raises_harms_neither_the_job_nor_the_other_hooks(app: Mainspring) -> None:
    @app.listener
    def broken(_: StateChange) -> None:
        raise Boom

    changes = Changes(app)

    @app.task
    async def work() -> int:
        return 7

    async with app.node() as node:
        job = await work.enqueue()
        assert await job.result("1s") == 7
        assert changes.of(job) == [(READY, RUNNING), (RUNNING, SUCCEEDED)]
        assert node.events.counts["listener_errors"] == 2


# Q4 to Q6: whether another attempt follows is said once, by the class of the error and one number.


async def test_Q4_a_list_of_errors_worth_a_retry_works(app: Mainspring) -> None:
    @app.task(retry=Retry.fixed("1s", max_attempts=3, retry_on=(OSError,)))
    async def fragile(kind: str) -> None:
        raise {"listed": OSError, "heir": ConnectionResetError, "other": ValueError}[kind](kind)

    async with app.node():
        views = [await ended(await fragile.enqueue(kind)) for kind in ("listed", "heir", "other")]
    assert [(view.job.attempt, view.job.cause) for view in views] == [
        (3, Cause.EXHAUSTED),
        (3, Cause.EXHAUSTED),
        (1, Cause.REFUSED),
    ]


async def test_Q5_a_list_of_errors_not_worth_a_retry_works_for_classes_of_ones_own(app: Mainspring) -> None:
    class InvalidCard(ValueError):
        pass

    @app.task(retry=Retry.fixed("1s", max_attempts=3, fail_on=(InvalidCard,)))
    async def charge(card: str) -> None:
        raise (InvalidCard if card == "invalid" else ValueError)(card)

    async with app.node():
        views = [await ended(await charge.enqueue(card)) for card in ("invalid", "unlucky")]
    assert [(view.job.attempt, view.job.cause) for view in views] == [(1, Cause.REFUSED), (3, Cause.EXHAUSTED)]
    assert views[0].error
    assert views[0].error.type.endswith("InvalidCard")


async def test_Q6_max_attempts_has_one_meaning_and_no_zero(app: Mainspring) -> None:
    with pytest.raises(DeclarationError, match="at least 1"):
        Retry.fixed("1s", max_attempts=0)
    with pytest.raises(DeclarationError, match="at least 1"):
        app.task(max_attempts=0)(_nothing)

    @app.task(retry=Retry.fixed("1s"))
    async def fragile() -> None:
        raise Boom

    with pytest.raises(DeclarationError, match="at least 1"):
        fragile.using(max_attempts=0)
    async with app.node():
        once, policy = await fragile.using(max_attempts=1).enqueue(), await fragile.enqueue()
        assert (await ended(once)).job.attempt == 1
        assert (await ended(policy)).job.attempt == 6, "without a number of its own, the policy's holds; there is one"


async def _nothing() -> None:
    return


# Q7, F15: nobody writes who does not hold the lease.


async def test_Q7_a_stale_worker_cannot_overwrite_the_new_owners_result(app: Mainspring) -> None:
    @app.task
    async def work() -> str:
        await asyncio.sleep(10)
        return "new"

    async with app:
        job = await work.enqueue()
        ghost = await Ghost.join(app)
        old = await ghost.claim_one()
        await ghost.die()
        async with app.node():
            await until(5)
            assert await ghost.end(old, Succeeded(work.definition.result.encode("old"))) is Verdict.REFUSED
            assert await job.state() is RUNNING
            assert await job.result("30s") == "new"
            assert await ghost.end(old, Succeeded(work.definition.result.encode("old"))) is Verdict.REFUSED
            assert await job.result() == "new"


async def test_Q7_an_older_lease_of_the_same_job_writes_nothing_although_its_node_lives(app: Mainspring) -> None:
    """The claim's answer came so late that the job had been given back, and was claimed by another node."""

    @app.task
    async def work() -> str:
        return "never here"

    async with app:
        job = await work.enqueue()
        first, second = await Ghost.join(app), await Ghost.join(app)
        old = await first.claim_one()
        assert await first.end(old, Interrupted(started=False)) is Verdict.ACCEPTED
        new = await second.claim_one()
        await first.end(old, Succeeded(work.definition.result.encode("old")))
        assert await job.state() is RUNNING
        assert await second.end(new, Succeeded(work.definition.result.encode("new"))) is Verdict.ACCEPTED
        assert await first.end(old, Succeeded(work.definition.result.encode("old"))) is Verdict.REFUSED
        assert await job.result("1s") == "new"


async def test_F15_nothing_that_a_zombie_says_counts(app: Mainspring) -> None:
    @app.task
    async def work() -> None:
        return

    async with app:
        job = await work.enqueue()
        zombie, heir = await Ghost.join(app), await Ghost.join(app)
        old = await zombie.claim_one()
        assert await zombie.say(old, b'{"page":1}')
        await zombie.die()
        with pytest.raises(NodeGone):
            await zombie.renew()
        with pytest.raises(NodeGone):
            await zombie.claim()
        assert not await zombie.say(old, b'{"page":2}')
        assert await zombie.end(old, Succeeded(None)) is Verdict.REFUSED
        (orphan,) = await app.store.orphans(10)
        assert orphan.job.id == job.id, "its words have not kept the job from being found"
        assert (await job.refresh()).saved == b'{"page":1}'
        assert await heir.claim() == ()


async def test_F15_a_handler_that_saves_after_its_lease_is_gone_is_told_so(app: Mainspring) -> None:
    told: list[Exception] = []

    @app.task
    async def work(ctx: Context) -> None:
        await ctx.save("page", 1)
        (view,) = await app.store.nodes()
        await app.store.declare_dead(view.node.id, view.term)
        try:
            await ctx.save("page", 2)
        except LeaseLost as error:
            told.append(error)

    async with app.node():
        job = await work.enqueue()
        await until(1)
        assert len(told) == 1
        assert (await job.refresh()).saved == b'{"page":1}'


# Q8: what is active is never pruned.


@pytest.mark.parametrize("when", ["waiting", "running"])
async def test_Q8_a_job_that_was_retried_by_hand_is_not_pruned_by_its_old_stamp(app: Mainspring, when: str) -> None:
    @app.task(keep="30s", max_attempts=1)
    async def slow(ctx: Context) -> str:
        if ctx.attempt == 1:
            raise Boom
        await asyncio.sleep(MINUTE)
        return "done"

    async with app.node(prune_every="3s"):
        job = await slow.enqueue()
        await ended(job)
        await until(15)
        if when == "waiting":
            await app.store.pause("default")
        await job.retry()
        await until(MINUTE)
        view = await job.refresh()
        assert view.job.keep_until is None
        if when == "waiting":
            assert view.job.state is READY
            await app.store.resume("default")
        assert await job.result("2m") == "done"
        await asyncio.sleep(40)
        with pytest.raises(JobGone):
            await job.refresh()


# Q9, F17: a task that nobody knows.


async def test_Q9_a_job_waits_for_a_node_that_knows_its_task(make_store: MakeStore, virtual_time: VirtualTime) -> None:
    old, new = (Mainspring(store=make_store(), clock=virtual_time.clock) for _ in range(2))

    @new.task
    async def fresh() -> str:
        return "ran"

    async with new, old.node():
        job = await fresh.enqueue()
        await until(5 * MINUTE)
        view = await job.refresh()
        assert (view.job.state, view.job.attempt) == (READY, 0)
        async with new.node():
            assert await job.result("5s") == "ran"


async def test_F17_a_job_whose_task_nobody_knows_ends_where_a_person_can_see_it(
    make_store: MakeStore, virtual_time: VirtualTime
) -> None:
    old, new = (Mainspring(store=make_store(), clock=virtual_time.clock) for _ in range(2))

    @new.task
    async def fresh() -> None:
        return

    async with new, old.node(unknown_task_grace="2m", prune_every="10s"):
        job = await fresh.enqueue()
        later = await fresh.using(delay="5m").enqueue()
        await until(1.9 * MINUTE)
        assert await job.state() is READY
        view = await ended(job, within=MINUTE)
        assert (view.job.state, view.job.cause, view.job.attempt) == (FAILED, Cause.UNKNOWN_TASK, 0)
        assert await later.state() is State.SCHEDULED, "it is not due yet"


async def test_F17_arguments_that_the_task_no_longer_takes_end_as_a_failure_of_the_job(
    make_store: MakeStore, virtual_time: VirtualTime
) -> None:
    old, new = (Mainspring(store=make_store(), clock=virtual_time.clock) for _ in range(2))

    @old.task(name="charge", max_attempts=1)
    async def charge_by_name(customer: str) -> None:
        raise AssertionError(customer)

    @new.task(name="charge")
    async def charge_by_number(customer: int) -> None:
        raise AssertionError(customer)

    async with old, new.node():
        view = await ended(await charge_by_name.enqueue("ann"))
    assert view.job.state is FAILED
    assert view.error
    assert view.error.type.endswith("PayloadError")
    assert "customer" in view.error.message


# Q10: whatever a handler raises, its node goes on.


class Panic(BaseException):
    pass


@pytest.mark.parametrize(
    "panic",
    [Panic("out"), SystemExit(1), asyncio.CancelledError(), GeneratorExit(), BaseExceptionGroup("both", [Panic()])],
    ids=lambda panic: type(panic).__name__,
)
async def test_Q10_a_panic_in_a_handler_ends_its_job_and_nothing_else(app: Mainspring, panic: BaseException) -> None:
    @app.task(max_attempts=1)
    async def in_a_coroutine() -> None:
        raise panic.with_traceback(None)

    @app.task(max_attempts=1)
    def in_a_thread() -> None:
        raise panic.with_traceback(None)

    @app.task
    async def neighbour() -> str:
        await asyncio.sleep(1)
        return "well"

    async with app.node():
        neighbours = [await neighbour.enqueue() for _ in range(3)]
        views = [await ended(await in_a_coroutine.enqueue()), await ended(await in_a_thread.enqueue())]
        assert [await one.result("5s") for one in [*neighbours, await neighbour.enqueue()]] == ["well"] * 4
    assert [view.job.state for view in views] == [FAILED, FAILED]
    for view in views:
        assert view.error
        assert view.error.type.endswith(type(panic).__name__)


# Q11, F19: timeouts.


async def test_Q11_the_timeout_of_the_job_comes_before_those_of_task_queue_and_node(app: Mainspring) -> None:
    app.queue("slow", timeout="20s")
    times: dict[str, float] = {}

    @app.task(max_attempts=1, timeout="10s")
    async def of_the_task(who: str) -> None:
        await _measure(who)

    @app.task(max_attempts=1)
    async def of_nothing(who: str) -> None:
        await _measure(who)

    async def _measure(who: str) -> None:
        began = now()
        try:
            await asyncio.sleep(HOUR)
        finally:
            times[who] = now() - began

    async with app.node(timeout="40s"):
        jobs = [
            await of_the_task.using(timeout="5s", queue="slow").enqueue("job"),
            await of_the_task.using(queue="slow").enqueue("task"),
            await of_nothing.using(queue="slow").enqueue("queue"),
            await of_nothing.enqueue("node"),
        ]
        views = [await ended(job) for job in jobs]
    assert times == pytest.approx({"job": 5, "task": 10, "queue": 20, "node": 40}, abs=0.01)
    assert {view.error and view.error.type for view in views} == {"TimeoutError"}
    assert {view.job.cause for view in views} == {Cause.EXHAUSTED}


async def test_Q11_a_handler_that_runs_out_of_time_is_told_and_can_clean_up(app: Mainspring) -> None:
    seen: list[object] = []

    @app.task(timeout="5s", max_attempts=1)
    async def slow(ctx: Context) -> None:
        seen.append((ctx.cancelled, ctx.remaining()))
        try:
            await asyncio.sleep(HOUR)
        except asyncio.CancelledError:
            seen.append((ctx.cancelled, ctx.remaining()))
            await asyncio.sleep(2)
            seen.append("cleaned up")
            raise

    async with app.node():
        view = await ended(await slow.enqueue())
    assert seen == [(False, 5), (True, 0), "cleaned up"]
    assert view.seconds == pytest.approx(7)


@pytest.mark.parametrize("place", ["of the task", "of the queue", "of the node"])
async def test_Q11_a_body_that_will_not_stop_keeps_its_place_until_it_really_ends(app: Mainspring, place: str) -> None:
    """Its job has ended, for everyone to see; but another must not begin where there is room for one."""
    app.queue("narrow", limit=Limit(concurrency=1) if place == "of the queue" else None)
    starts: dict[str, float] = {}

    @app.task(
        max_attempts=1,
        queue="narrow",
        limit=Limit(concurrency=1) if place == "of the task" else None,
    )
    async def work(label: str) -> None:
        starts[label] = now()
        while label == "stubborn" and now() < 40:
            try:
                await asyncio.sleep(40 - now())
            except asyncio.CancelledError:
                continue

    async with app.node(concurrency=1 if place == "of the node" else 20, stop_grace="3s") as node:
        stubborn = await work.using(timeout="5s").enqueue("stubborn")
        second = await work.enqueue("second")
        await until(9)
        view = await stubborn.refresh()
        assert (view.job.state, view.job.cause) == (FAILED, Cause.EXHAUSTED)
        assert await second.state() is READY
        assert node.events.counts["abandoned"] == 1
        await ended(second)
    assert starts["second"] == pytest.approx(40, abs=1)


@pytest.mark.parametrize("limit", [-1, "-5s", timedelta(seconds=-1), float("nan"), float("inf"), "soon", True])
async def test_Q11_a_timeout_that_makes_no_sense_is_refused_where_it_is_said(app: Mainspring, limit: str) -> None:
    @app.task
    async def work() -> None:
        return

    with pytest.raises(DeclarationError):
        app.task(name="other", timeout=limit)(_nothing)
    with pytest.raises(DeclarationError):
        work.using(timeout=limit)
    with pytest.raises(DeclarationError):
        app.queue("slow", timeout=limit)


async def test_F19_a_timeout_waits_as_long_as_the_policy_says_to_the_millisecond(app: Mainspring) -> None:
    starts: list[float] = []

    @app.task(timeout="1s", retry=Retry.linear("250ms", "125ms", max_attempts=4))
    async def slow() -> None:
        starts.append(now())
        await asyncio.sleep(HOUR)

    async with app.node():
        await ended(await slow.enqueue())
    waits = [after - before - 1 for before, after in pairwise(starts)]
    assert waits == pytest.approx([0.25, 0.375, 0.5], abs=0.02)


# Q13: durations come from the monotonic clock.


@pytest.mark.parametrize("jump", [timedelta(hours=-1), timedelta(hours=1)], ids=["back", "forward"])
async def test_Q13_a_clock_that_is_set_meanwhile_does_not_change_how_long_an_attempt_took(
    app: Mainspring, virtual_time: VirtualTime, jump: timedelta
) -> None:
    changes = Changes(app)

    @app.task
    async def work() -> None:
        await asyncio.sleep(5)
        virtual_time.clock.jump(jump)
        await asyncio.sleep(2)

    async with app.node():
        view = await ended(await work.enqueue())
    assert view.seconds == pytest.approx(7)
    assert changes[-1].seconds == pytest.approx(7)


# Q14: the end of an attempt is written, however often that has to be tried.


@pytest.mark.parametrize("fault", ["drop", "lose_answer"])
async def test_Q14_a_final_write_that_fails_is_repeated_and_the_job_does_not_run_again(
    shaky: Mainspring, faulty: FaultyStore, fault: str
) -> None:
    starts: list[float] = []

    @shaky.task
    async def work() -> str:
        starts.append(now())
        return "done"

    async with shaky.node() as one, shaky.node() as other:
        getattr(faulty, fault)("settle", times=30)
        job = await work.enqueue()
        assert await job.result("2m") == "done"
        if fault == "drop":
            assert now() > LEASE * 2, "the store was away for longer than a lease"
        await asyncio.sleep(LEASE * 4)
        assert not any(node.events.counts["refused"] for node in (one, other))
    assert len(starts) == 1


# Q15: the handler's own time wins, but it buys no attempts.


async def test_Q15_a_handler_that_always_asks_for_more_time_comes_to_an_end(app: Mainspring) -> None:
    starts: list[float] = []

    @app.task(retry=Retry.fixed("1s", max_attempts=3))
    async def patient() -> None:
        starts.append(now())
        raise RetryIn("20s")

    async with app.node():
        view = await ended(await patient.enqueue(), within=10 * MINUTE)
    assert starts == pytest.approx([0, 20, 40], abs=0.2)
    assert (view.job.state, view.job.cause, view.job.attempt) == (FAILED, Cause.EXHAUSTED, 3)
    assert now() < 42, "it failed at once, without a last wait"


@pytest.mark.parametrize("delay", [-1, "200w 1000000d", float("inf")], ids=str)
async def test_Q15_a_retry_at_an_impossible_time_is_an_error_of_the_handler(app: Mainspring, delay: float) -> None:
    @app.task(retry=Retry.fixed("1s", max_attempts=2))
    async def strange(ctx: Context) -> None:
        if ctx.attempt == 1:
            raise RetryIn(delay)

    async with app.node():
        job = await strange.enqueue()
        view = await ended(job)
        (attempt,) = await app.store.attempts(job.id)
    assert (view.job.state, view.job.attempt) == (SUCCEEDED, 2)
    assert attempt.error
    assert attempt.error.type.endswith("BadDuration")
    assert now() < 5


# Q16, Q20: who holds a job is written with it, and nobody else is taken for dead or alive.


async def test_Q16_a_claim_bears_the_name_of_the_node_that_made_it(app: Mainspring) -> None:
    @app.task
    async def work() -> None:
        await asyncio.sleep(30)

    async with app, victim(app, concurrency=1) as one, victim(app, concurrency=1) as two:
        jobs = [await work.enqueue() for _ in range(2)]
        await until(1)
        holders = {(await job.refresh()).node for job in jobs}
        known = {view.node.id for view in await app.store.nodes() if view.alive}
    assert holders == {one.id, two.id}
    assert known == holders


async def test_Q16_the_jobs_of_a_dead_node_are_found_and_no_others(app: Mainspring) -> None:
    starts: list[tuple[int, int]] = []

    @app.task
    async def work(ctx: Context, number: int) -> int:
        starts.append((number, ctx.attempt))
        await asyncio.sleep(40)
        return number

    async with app, victim(app, concurrency=2) as doomed:
        jobs = [await work.enqueue(number) for number in range(4)]
        await until(1)
        async with app.node() as heir:
            await until(2)
            doomed.kill()
            assert [await job.result("5m") for job in jobs] == [0, 1, 2, 3]
            assert {(await job.refresh()).node for job in jobs} == {heir.id}
    assert sorted(starts) == [(0, 1), (0, 2), (1, 1), (1, 2), (2, 1), (3, 1)]


async def test_Q20_a_job_that_runs_for_many_lease_times_is_left_alone(app: Mainspring) -> None:
    starts: list[float] = []

    @app.task(timeout="1h")
    async def long() -> str:
        starts.append(now())
        await asyncio.sleep(2 * MINUTE)
        return "done"

    async with app, victim(app, lease="5s"), victim(app, lease="5s"):
        job = await long.enqueue()
        assert await job.result("5m") == "done"
    assert len(starts) == 1


async def test_Q20_a_dead_nodes_job_waits_for_no_restart(app: Mainspring) -> None:
    @app.task
    async def work() -> float:
        return now()

    async with app:
        job = await work.enqueue()
        ghost = await Ghost.join(app)
        await ghost.claim_one()
        async with app.node():
            assert await job.result("1m") <= LEASE + 2


# Q17, Q27: a job that waits for its retry can be claimed from its time on, and not before.


async def test_Q17_nothing_shortens_a_backoff(app: Mainspring) -> None:
    starts: list[float] = []

    @app.task(retry=Retry.fixed("30s", max_attempts=2))
    async def fragile(ctx: Context) -> None:
        starts.append(now())
        if ctx.attempt == 1:
            raise Boom

    @app.task
    async def other() -> None:
        return

    async with app.node(), app.node():
        job = await fragile.enqueue()
        await until(1)
        ghost = await Ghost.join(app)
        while now() < 29:
            await other.enqueue()
            assert job.id not in [delivery.claim.job.id for delivery in await ghost.claim()]
            await ghost.renew()
            await asyncio.sleep(0.5)
        await ended(job)
    assert starts == pytest.approx([0, 30], abs=0.2)


@pytest.mark.parametrize("first_node_stays", [True, False])
async def test_Q27_a_job_that_went_to_retry_is_free_for_any_node(app: Mainspring, first_node_stays: bool) -> None:
    starts: list[float] = []

    @app.task(retry=Retry.fixed("20s", max_attempts=3))
    async def fragile(ctx: Context) -> None:
        starts.append(now())
        if ctx.attempt < 3:
            raise Boom

    async with app, victim(app) as first:
        job = await fragile.enqueue()
        await until(5)
        async with app.node():
            if not first_node_stays:
                first.kill()
            await ended(job, within=2 * MINUTE)
    assert starts == pytest.approx([0, 20, 40], abs=0.2)


# Q19: order.


async def test_Q19_higher_priorities_go_first_and_within_one_the_older_job(app: Mainspring) -> None:
    order: list[str] = []

    @app.task
    async def work(label: str) -> None:
        order.append(label)

    async with app:
        await app.store.pause("default")
        await work.using(priority=40).enqueue("low, very old")
        await asyncio.sleep(2 * HOUR)
        for number in range(3):
            await work.using(priority=50).enqueue(f"normal {number}")
            await asyncio.sleep(1)
        await work.using(priority=51).enqueue("high, new")
        await app.store.resume("default")
        async with app.node(concurrency=1):
            await asyncio.sleep(5)
    assert order == ["high, new", "normal 0", "normal 1", "normal 2", "low, very old"]


# Q22: no ticks.


async def test_Q22_throughput_is_not_a_number_of_ticks(app: Mainspring) -> None:
    @app.task
    async def work(number: int) -> int:
        return number

    async with app.node(concurrency=5):
        began = now()
        jobs = await work.enqueue_many([work.call(number) for number in range(500)])
        assert [await job.result("10s") for job in jobs] == list(range(500))
        ends = [(await job.refresh()).job.finished_at for job in jobs]
    assert max(filter(None, ends)) - min(filter(None, ends)) < timedelta(seconds=1)
    assert now() - began < 5


async def test_Q22_a_job_that_the_nodes_own_program_enqueues_starts_at_once(app: Mainspring) -> None:
    """Again and again, each time after the node has come to rest."""
    waits: list[float] = []

    @app.task
    async def work(enqueued: float) -> None:
        waits.append(now() - enqueued)

    async with app.node():
        for _ in range(20):
            await asyncio.sleep(1.23)
            await work.enqueue(now())
        await asyncio.sleep(1.23)
    assert waits == pytest.approx([0] * 20, abs=0.1)


async def test_Q22_a_claim_sees_what_another_program_committed_a_moment_ago(
    app: Mainspring, make_store: MakeStore
) -> None:
    """Hints only say when to look; whoever looks sees what is there."""
    other = Mainspring(store=make_store(), clock=app.clock)

    @other.task(name="work")
    @app.task(name="work")
    async def work() -> None:
        return

    async with app, other:
        unwatch = app.store.watch(lambda: None)
        ghost = await Ghost.join(app)
        seen = []
        for _ in range(20):
            assert await ghost.claim() == ()
            job = await other.enqueue("work")
            seen.append([delivery.claim.job.id == job.id for delivery in await ghost.claim(room=1)])
            await ghost.claim(room=5)
        unwatch()
    assert seen == [[True]] * 20


async def test_Q22_delayed_jobs_and_retries_start_when_they_are_due(app: Mainspring) -> None:
    starts: list[float] = []

    @app.task(retry=Retry.fixed("7300ms", max_attempts=2))
    async def fragile(ctx: Context) -> None:
        starts.append(now())
        if ctx.attempt == 1:
            raise Boom

    async with app.node():
        await ended(await fragile.using(delay="11700ms").enqueue())
    assert starts == pytest.approx([11.7, 19.0], abs=0.1)


@pytest.mark.parametrize(
    "what", ["enqueued", "resumed", "moved to now", "moved to another queue", "retried", "a place was freed elsewhere"]
)
async def test_Q22_whatever_makes_a_job_claimable_wakes_a_node(
    app: Mainspring, make_store: MakeStore, what: str
) -> None:
    """Done through another program's handle, so that no notifier of the node's own can help."""
    other = Mainspring(store=make_store(), clock=app.clock)
    starts: list[float] = []

    @other.task(name="work", max_attempts=1, limit=Limit(concurrency=1))
    @app.task(name="work", max_attempts=1, limit=Limit(concurrency=1))
    async def work(ctx: Context) -> None:
        starts.append(now())
        if ctx.attempt == 1 and what == "retried":
            raise Boom

    ghost, claim = None, None
    async with other, app.node(queues=["default", "paused"]):
        match what:
            case "resumed":
                await other.store.pause("paused")
                job = await work.using(queue="paused").enqueue()
            case "moved to now" | "enqueued":
                job = await work.using(delay="1h").enqueue()
            case "moved to another queue":
                job = await work.using(queue="nobody's").enqueue()
            case "retried":
                job = await work.enqueue()
            case _:
                await work.using(queue="nobody's").enqueue()
                ghost = await Ghost.join(other)
                claim = await ghost.claim_one()
                job = await work.enqueue()
        await until(10.37)
        starts.clear()
        match what:
            case "resumed":
                await other.store.resume("paused")
            case "moved to now":
                await job.move(run_at=app.clock.now())
            case "enqueued":
                await work.enqueue()
            case "moved to another queue":
                await job.move(queue="default")
            case "retried":
                await job.retry()
            case _:
                assert ghost
                assert claim
                await ghost.end(claim, Succeeded(None))
        await until(12)
    # A hint from another handle on a file comes in real time, which virtual time does not wait for; then the floor holds.
    assert starts == pytest.approx([10.37], abs=1.1 if make_store.file else 0.1)


async def test_Q22_without_any_hint_a_job_starts_within_a_second(
    app: Mainspring, make_store: MakeStore, virtual_time: VirtualTime
) -> None:
    class Deaf(FaultyStore):
        """A store whose hints never arrive."""

        def watch(self, _: Callable[[], None]) -> Callable[[], None]:
            return lambda: None

    deaf = Mainspring(store=Deaf(make_store()).as_store, clock=virtual_time.clock)
    starts: list[float] = []

    @app.task(name="work")
    @deaf.task(name="work")
    async def work() -> None:
        starts.append(now())

    async with app, deaf.node():
        await until(10.37)
        await app.enqueue("work")
        await until(20)
    assert len(starts) == 1
    assert starts[0] <= 10.37 + 1


# Q23: nothing scans, nothing fills up, nothing stays locked.


async def test_Q23_a_claim_costs_the_same_however_many_jobs_wait_and_none_are_too_many(app: Mainspring) -> None:
    @app.task
    async def work() -> None:
        return

    async def cost() -> float:
        """Take the best of several: it is real time that is measured, on a machine with other things to do."""
        best = float("inf")
        for _ in range(20):
            await work.using(priority=100).enqueue()
            began = time.perf_counter()
            claim = await ghost.claim_one()
            best = min(best, time.perf_counter() - began)
            assert await ghost.end(claim, Succeeded(None)) is Verdict.ACCEPTED
        return best

    async with app:
        ghost = await Ghost.join(app)
        alone = await cost()
        await work.enqueue_many([work.call() for _ in range(10_500)])
        assert await cost() < 10 * alone


@pytest.mark.parametrize("end", ["success", "failure", "retry", "cancel", "timeout", "loss"])
async def test_Q23_however_a_job_ends_its_place_is_free_for_the_next(app: Mainspring, end: str) -> None:
    starts: list[float] = []

    @app.task(limit=Limit(concurrency=1), retry=Retry.fixed("1h", max_attempts=2), timeout="5s")
    async def alone(how: str) -> None:
        starts.append(now())
        match how:
            case "failure":
                raise Fail("no")
            case "retry":
                raise Boom
            case "cancel" | "timeout":
                await asyncio.sleep(HOUR)
            case _:
                return

    async with app:
        if end == "loss":
            await alone.enqueue("never here")
            await (await Ghost.join(app)).claim_one()
        async with app.node(lease="5s"):
            first, second = await alone.enqueue(end), await alone.enqueue("success")
            await until(1)
            if end == "cancel":
                await first.cancel()
            assert (await ended(second, within=20)).job.state is SUCCEEDED
            if end in {"cancel", "timeout", "loss"}:
                assert starts[-1] >= 1, "until then, the place was taken"


# F16: what was never started costs nothing, what crashes again and again comes to an end.


@pytest.mark.parametrize("fault", ["lose_answer", "duplicate"])
@pytest.mark.parametrize("then", ["goes on", "shuts down"])
async def test_F16_a_claim_whose_answer_was_lost_burns_no_attempt(
    shaky: Mainspring, faulty: FaultyStore, fault: str, then: str
) -> None:
    seen: list[int] = []

    @shaky.task(max_attempts=1)
    async def work(ctx: Context) -> None:
        seen.append(ctx.attempt)

    async with shaky:
        job = await work.enqueue()
        getattr(faulty, fault)("claim")
        if then == "shuts down":
            async with shaky.node():
                await until(0.001)
        async with shaky.node():
            view = await ended(job)
    assert seen == [1]
    assert (view.job.state, view.job.attempt, view.job.losses) == (SUCCEEDED, 1, 0)
    assert view.job.claims > 1, "it was claimed once more under another lease"


async def test_F16_snoozing_and_shutting_down_burn_no_attempts(app: Mainspring) -> None:
    seen: list[int] = []

    @app.task(max_attempts=1)
    async def patient(ctx: Context) -> None:
        seen.append(ctx.attempt)
        if len(seen) == 1:
            raise Snooze("2s")
        if len(seen) == 2:
            await asyncio.sleep(HOUR)

    async with app:
        job = await patient.enqueue()
        async with app.node(grace=0):
            await until(5)
        async with app.node():
            view = await ended(job)
    assert seen == [1, 1, 1]
    assert (view.job.state, view.job.attempt) == (SUCCEEDED, 1)


async def test_F16_what_was_claimed_ahead_costs_nothing_when_the_node_shuts_down(app: Mainspring) -> None:
    starts: list[int] = []

    @app.task
    async def work(number: int) -> None:
        starts.append(number)
        await asyncio.sleep(0.01)

    async with app:
        jobs = await work.enqueue_many([work.call(number) for number in range(200)])
        async with app.node(concurrency=2):
            await until(0.3)
        rest = [(await job.refresh()).job for job in jobs[len(starts) :]]
    assert 0 < len(starts) < 200
    assert starts == list(range(len(starts)))
    assert {(job.state, job.attempt, job.losses) for job in rest} == {(READY, 0, 0)}


async def test_F16_a_job_that_keeps_crashing_its_node_ends_although_no_handler_ever_raised(app: Mainspring) -> None:
    nodes: list[Victim] = []

    @app.task(max_attempts=1000)
    async def deadly() -> None:
        nodes[-1].kill()
        await asyncio.sleep(HOUR)

    async with app:
        job = await deadly.enqueue()
        for _ in range(5):
            async with victim(app) as node:
                nodes.append(node)
                await asyncio.sleep(LEASE + 2)
        view = await job.refresh()
    assert (view.job.state, view.job.cause, view.job.losses) == (FAILED, Cause.POISON, 3)


# F18: a cancel that comes too late.


async def test_F18_a_job_that_succeeds_in_spite_of_a_cancel_has_succeeded_at_once(app: Mainspring) -> None:
    changes = Changes(app)

    @app.task
    async def work() -> str:
        try:
            await asyncio.sleep(HOUR)
        except asyncio.CancelledError:
            return "the last page was written already"
        return "never"

    async with app.node():
        job = await work.enqueue()
        await until(1)
        assert await job.cancel() is RUNNING
        assert await job.result("5s") == "the last page was written already"
        view = await job.refresh()
    assert view.job.state is SUCCEEDED
    assert changes.of(job)[-1] == (RUNNING, SUCCEEDED)


@pytest.mark.parametrize("end", ["raises", "is cancelled", "snoozes", "times out", "retries"])
async def test_F18_a_job_that_ends_otherwise_after_a_cancel_is_cancelled(app: Mainspring, end: str) -> None:
    @app.task(timeout="30s", retry=Retry.fixed("1s", max_attempts=6))
    async def work() -> None:
        try:
            await asyncio.sleep(HOUR)
        except asyncio.CancelledError:
            match end:
                case "raises":
                    raise Boom from None
                case "snoozes":
                    raise Snooze("1s") from None
                case "retries":
                    raise RetryIn("1s") from None
                case "times out":
                    await asyncio.sleep(HOUR)
                case _:
                    raise

    async with app.node():
        job = await work.enqueue()
        await until(1)
        assert await job.cancel() is RUNNING
        view = await ended(job)
        assert (view.job.state, view.job.attempt) == (CANCELLED, 1)
        assert now() < 12
        await asyncio.sleep(MINUTE)
        assert (await job.refresh()).job.claims == 1, "it was not started again"


async def test_F18_a_job_that_is_lost_after_a_cancel_is_cancelled_and_runs_nowhere_else(app: Mainspring) -> None:
    @app.task
    async def work() -> None:
        raise AssertionError

    async with app:
        job = await work.enqueue()
        await (await Ghost.join(app)).claim_one()
        assert await job.cancel() is RUNNING
        async with app.node():
            view = await ended(job)
    assert (view.job.state, view.job.attempt) == (CANCELLED, 1)


# F20: unique keys.


async def test_F20_keys_belong_to_their_task(app: Mainspring) -> None:
    @app.task(unique=Unique(key="order"))
    async def ship(order: int) -> None:
        raise AssertionError(order)

    @app.task(unique=Unique(key="order"))
    async def bill(order: int) -> None:
        raise AssertionError(order)

    async with app:
        jobs = [await ship.enqueue(1), await bill.enqueue(1), await ship.enqueue(1), await bill.enqueue(1)]
    assert [job.fresh for job in jobs] == [True, True, False, False]
    assert ids(jobs[:2]) == ids(jobs[2:])


async def test_F20_a_key_can_stay_taken_after_its_job_has_ended(app: Mainspring) -> None:
    starts: dict[int, list[float]] = {1: []}

    @app.task(unique=Unique(key="order", period="1m"))
    async def ship(order: int) -> None:
        starts[order].append(now())

    async with app.node():
        first = await ship.enqueue(1)
        await ended(first)
        await until(59)
        again = await ship.enqueue(1)
        assert (again.fresh, again.id) == (False, first.id)
        await until(61)
        fresh = await ship.enqueue(1)
        assert fresh.fresh
        await ended(fresh)
    assert starts[1] == pytest.approx([0, 61], abs=0.2)


async def test_F20_a_retry_by_hand_of_a_job_whose_key_is_taken_says_by_whom(app: Mainspring) -> None:
    @app.task(unique=Unique(key="order"), max_attempts=1)
    async def ship(order: int) -> None:
        raise Boom(order)

    async with app:
        async with app.node():
            old = await ship.enqueue(1)
            await ended(old)
        new = await ship.enqueue(1)
        assert new.fresh
        with pytest.raises(Conflict) as refusal:
            await old.retry()
        assert refusal.value.job == str(new.id)
        assert await old.state() is FAILED
