"""The behaviours that the tests of qml pin, in their order (contracts 4.9), on both stores.

Where our words and rules differ (DESIGN 13), the test keeps the name and asserts ours: Enqueued is `ready`, Processing
is `running`, AwaitingRetry is `retrying`; N retries are `max_attempts = N + 1`; attempts are counted at the claim.
"""

import pytest

from mainspring import Context, Fail, Mainspring, Retry, RetryIn
from mainspring.core.job import Cause, State
from tests.jobs.conftest import Boom, Changes, ended, until

pytestmark = pytest.mark.usefixtures("virtual_time")

READY, RUNNING, RETRYING = State.READY, State.RUNNING, State.RETRYING
SUCCEEDED, FAILED = State.SUCCEEDED, State.FAILED


async def test_4_9_1_a_handler_that_returns_makes_its_job_succeed(app: Mainspring) -> None:
    @app.task
    async def add(a: int, b: int) -> int:
        return a + b

    async with app.node():
        job = await add.enqueue(2, 3)
        assert await job.result("1s") == 5
        view = await job.refresh()
    assert (view.job.state, view.job.attempt) == (SUCCEEDED, 1)


@pytest.mark.parametrize("signal", [Boom(), RetryIn("1s")], ids=["an error", "its own word"])
async def test_4_9_2_a_handler_that_wants_a_retry_leaves_its_job_retrying(app: Mainspring, signal: Exception) -> None:
    @app.task(retry=Retry.fixed("1s", max_attempts=3))
    async def fragile() -> None:
        raise signal.with_traceback(None)

    async with app.node():
        job = await fragile.enqueue()
        await until(0.5)
        view = await job.refresh()
        assert (view.job.state, view.job.attempt) == (RETRYING, 1)
        assert (view.job.run_at - view.enqueued_at).total_seconds() == pytest.approx(1, abs=0.2)


async def test_4_9_3_a_handler_that_says_fail_makes_its_job_fail_whatever_attempts_are_left(app: Mainspring) -> None:
    @app.task(max_attempts=6)
    async def hopeless() -> None:
        raise Fail("the card is stolen")

    async with app.node():
        view = await ended(await hopeless.enqueue())
    assert (view.job.state, view.job.attempt, view.job.cause) == (FAILED, 1, Cause.REFUSED)
    assert view.error
    assert "the card is stolen" in view.error.message


async def test_4_9_4_one_retry_means_retrying_after_attempt_1_and_failed_after_attempt_2(app: Mainspring) -> None:
    @app.task(retry=Retry.fixed("1s", max_attempts=2))
    async def fragile() -> None:
        raise Boom

    async with app.node():
        job = await fragile.enqueue()
        await until(0.5)
        first = (await job.refresh()).job
        assert (first.state, first.attempt) == (RETRYING, 1)
        last = (await ended(job)).job
    assert (last.state, last.attempt, last.cause) == (FAILED, 2, Cause.EXHAUSTED)


async def test_4_9_5_a_job_with_a_lower_limit_than_its_policy_keeps_to_its_own(app: Mainspring) -> None:
    @app.task(retry=Retry.fixed("1s", max_attempts=6))
    async def fragile() -> None:
        raise Boom

    async with app.node():
        job = await fragile.using(max_attempts=2).enqueue()
        await until(0.5)
        first = (await job.refresh()).job
        assert (first.state, first.attempt) == (RETRYING, 1)
        last = (await ended(job)).job
    assert (last.state, last.attempt, last.cause) == (FAILED, 2, Cause.EXHAUSTED)


@pytest.mark.parametrize("mended", [True, False], ids=["then succeeds", "fails again"])
async def test_4_9_6_a_manual_retry_after_a_permanent_failure_goes_on_counting(app: Mainspring, mended: bool) -> None:
    seen: list[tuple[int, int]] = []

    @app.task(max_attempts=1)
    async def fragile(ctx: Context) -> None:
        seen.append((ctx.attempt, ctx.max_attempts))
        if ctx.attempt == 1 or not mended:
            raise Fail("not now")

    async with app.node():
        job = await fragile.enqueue()
        assert (await ended(job)).job.state is FAILED
        await job.retry()
        last = (await ended(job)).job
    assert (last.state, last.attempt) == (SUCCEEDED if mended else FAILED, 2)
    assert seen == [(1, 1), (2, 2)]


async def test_4_9_7_the_hook_sees_a_success_as_two_steps(app: Mainspring) -> None:
    changes = Changes(app)

    @app.task
    async def work() -> None:
        return

    async with app.node():
        job = await work.enqueue()
        await ended(job)
    assert changes.of(job) == [(READY, RUNNING), (RUNNING, SUCCEEDED)]


async def test_4_9_8_the_hook_sees_a_retry_as_two_steps_and_no_failure_between(app: Mainspring) -> None:
    changes = Changes(app)

    @app.task(retry=Retry.fixed("1s", max_attempts=3))
    async def fragile(ctx: Context) -> None:
        if ctx.attempt == 1:
            raise Boom

    async with app.node():
        job = await fragile.enqueue()
        await until(0.5)
        assert changes.of(job) == [(READY, RUNNING), (RUNNING, RETRYING)]
        await ended(job)
    assert changes.of(job)[2:] == [(RETRYING, RUNNING), (RUNNING, SUCCEEDED)]


async def test_4_9_9_the_hook_sees_a_permanent_failure_as_two_steps(app: Mainspring) -> None:
    changes = Changes(app)

    @app.task
    async def hopeless() -> None:
        raise Fail("no")

    async with app.node():
        job = await hopeless.enqueue()
        await ended(job)
    assert changes.of(job) == [(READY, RUNNING), (RUNNING, FAILED)]


async def test_4_9_10_without_a_hook_jobs_run_as_they_do_with_one(app: Mainspring) -> None:
    @app.task(retry=Retry.fixed("1s", max_attempts=2))
    async def work(ctx: Context, kind: str) -> str:
        if kind == "bad" or (kind == "late" and ctx.attempt == 1):
            raise Boom
        return kind

    async with app.node():
        jobs = [await work.enqueue(kind) for kind in ("good", "late", "bad")]
        views = [await ended(job) for job in jobs]
    assert [(view.job.state, view.job.attempt) for view in views] == [(SUCCEEDED, 1), (SUCCEEDED, 2), (FAILED, 2)]


# What the steps mean beyond what qml pins: a hook is told where the job really came from.


async def test_the_hook_sees_a_delayed_job_start_from_scheduled(app: Mainspring) -> None:
    changes = Changes(app)

    @app.task
    async def work() -> None:
        return

    async with app.node():
        job = await work.using(delay="10s").enqueue()
        await ended(job)
    assert changes.of(job) == [(State.SCHEDULED, RUNNING), (RUNNING, SUCCEEDED)]


async def test_the_hook_sees_a_job_that_an_operator_retried_start_from_ready(app: Mainspring) -> None:
    changes = Changes(app)

    @app.task(max_attempts=1)
    async def fragile(ctx: Context) -> None:
        if ctx.attempt == 1:
            raise Boom

    async with app.node():
        job = await fragile.enqueue()
        await ended(job)
        await job.retry()
        await ended(job)
    assert changes.of(job) == [(READY, RUNNING), (RUNNING, FAILED), (READY, RUNNING), (RUNNING, SUCCEEDED)]
