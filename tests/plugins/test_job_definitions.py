"""Job definitions: a task and a schedule under one name, and all that is said about it is honoured."""

import asyncio
import sys
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from importlib import import_module
from pathlib import Path
from typing import Any
from uuid import RFC_4122, UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainspring import Context, Every, Mainspring, Manual, Plugin, Retry
from mainspring.client.job_definition import Concurrency
from mainspring.core.job import Cause, State
from mainspring.core.limits import Limit
from mainspring.core.missed import Reason
from mainspring.core.rules import Rule
from mainspring.core.schedule import Run
from mainspring.errors import DeclarationError, JobFailed, LeaseLost, NameTaken
from mainspring.ids import Ids, heir
from mainspring.plugins import (
    BackgroundJobs,
    Done,
    DoneAndReschedule,
    Failed,
    HostWrite,
    JobOutcome,
    Schedules,
)
from mainspring.testing import VirtualTime
from mainspring.testing.faults import FaultyStore
from tests.jobs.conftest import victim
from tests.plugins.conftest import MakeStore

GRANT = [BackgroundJobs(), Schedules(), HostWrite()]
NAME = "tidy:sweep"


@pytest.fixture
def plugin() -> Plugin:
    return Plugin("tidy", "1", requires=GRANT)


async def runs_of(app: Mainspring) -> list[tuple[State | None, Reason | None]]:
    """What became of the schedule's slots, the oldest first."""
    page = await app.schedules.runs(NAME)
    return [(run.state, run.reason) for run in reversed(page.runs)]


# Declaring.


def test_a_job_is_a_task_and_a_schedule_of_one_name(plugin: Plugin) -> None:
    @plugin.job(
        schedule=Every("1h"), concurrency=3, timeout="10m", retry=Retry.fixed("5s", max_attempts=4), docs="Sweeps."
    )
    async def sweep() -> JobOutcome:
        return Done()

    (task,), ((name, plan),) = plugin.tasks, plugin.plans.items()
    assert task is sweep
    assert str(name) == str(task.definition.name) == NAME
    assert task.definition.limits == (Limit(concurrency=3),)
    assert task.definition.timeout
    assert task.definition.timeout.total_seconds() == 600
    assert (plan.template.max_attempts, plan.template.backoff) == (4, Retry.fixed("5s").backoff)
    assert plan.rule == Every("1h")
    assert (plan.description, plan.overlap) == ("Sweeps.", "allow")


@pytest.mark.parametrize(
    ("concurrency", "limits", "overlap"),
    [("exclusive", (Limit(concurrency=1),), "skip"), ("unbounded", (), "allow"), (2, (Limit(concurrency=2),), "allow")],
)
def test_concurrency_is_a_limit_and_an_overlap(
    plugin: Plugin,
    concurrency: Concurrency,
    limits: tuple[Limit, ...],
    overlap: str,
) -> None:
    @plugin.job(schedule=Manual(), concurrency=concurrency)
    async def sweep() -> None: ...

    assert sweep.definition.limits == limits
    assert next(iter(plugin.plans.values())).overlap == overlap


@pytest.mark.parametrize("concurrency", ["exclusiv", 0, -1, True, None, 1.5])
def test_a_concurrency_that_is_none_is_refused(plugin: Plugin, concurrency: Any) -> None:  # noqa: ANN401 - that is the point
    with pytest.raises(DeclarationError, match="concurrency"):
        plugin.job(schedule=Manual(), concurrency=concurrency)


def test_a_job_that_cannot_be_declared_leaves_nothing_behind(plugin: Plugin) -> None:
    async def sweep(folder: str) -> None: ...

    with pytest.raises(DeclarationError, match="folder"):
        plugin.job(schedule=Manual())(sweep)
    with pytest.raises(DeclarationError, match="one limit"):
        plugin.job(schedule=Manual(), limit=Limit(concurrency=2))(sweep)
    assert (plugin.tasks, plugin.plans) == ([], {})

    async def fine() -> None: ...

    with pytest.raises(DeclarationError, match="rule"):
        plugin.job(schedule="hourly")(fine)  # type: ignore[arg-type]  # that is the point
    assert (plugin.tasks, plugin.plans) == ([], {})
    plugin.job(schedule=Manual(), name="sweep")(fine)
    with pytest.raises(NameTaken):
        plugin.job(schedule=Manual(), name="sweep")(fine)
    assert len(plugin.tasks) == 1


# What it may return.


def returning(plugin: Plugin, *outcomes: object, **options: Any) -> list[int]:  # noqa: ANN401 - options of a job
    """Have a job return one after the other; returns the attempts that were made."""
    attempts: list[int] = []

    @plugin.job(schedule=Manual(), name="sweep", **options)
    async def sweep(ctx: Context):  # type: ignore[no-untyped-def]  # noqa: ANN202 - as a plugin without types is written
        attempts.append(ctx.attempt)
        return outcomes[min(len(attempts), len(outcomes)) - 1]

    return attempts


async def run_once(app: Mainspring, plugin: Plugin, seconds: float = 60) -> tuple[State, Cause | None, str]:
    app.install(plugin, grant=GRANT)
    async with app.node():
        job = await app.schedules.run(NAME)
        await asyncio.sleep(seconds)
        view = await job.refresh()
    return view.job.state, view.job.cause, view.error.message if view.error else ""


@pytest.mark.parametrize("outcome", [Done(), None, 7, "text", [1]])
async def test_done_and_any_plain_value_is_a_success(app: Mainspring, plugin: Plugin, outcome: object) -> None:
    attempts = returning(plugin, outcome)
    assert await run_once(app, plugin) == (State.SUCCEEDED, None, "")
    assert attempts == [1]


async def test_U6_a_failure_that_is_returned_is_retried_by_the_policy(app: Mainspring, plugin: Plugin) -> None:
    attempts = returning(plugin, Failed("no disk"), Failed("no disk"), Done(), retry=Retry.fixed("5s", max_attempts=3))
    assert await run_once(app, plugin) == (State.SUCCEEDED, None, "no disk")
    assert attempts == [1, 2, 3]


async def test_U6_a_failure_is_final_when_the_attempts_are_used_up(app: Mainspring, plugin: Plugin) -> None:
    attempts = returning(plugin, Failed("no disk"), retry=Retry.fixed("5s", max_attempts=3))
    assert await run_once(app, plugin) == (State.FAILED, Cause.EXHAUSTED, "no disk")
    assert attempts == [1, 2, 3]


async def test_U6_never_means_never(app: Mainspring, plugin: Plugin) -> None:
    attempts = returning(plugin, Failed("no disk"), retry=Retry.none())
    assert await run_once(app, plugin) == (State.FAILED, Cause.EXHAUSTED, "no disk")
    assert attempts == [1]


async def test_U6_a_failure_without_retry_is_final_at_once(app: Mainspring, plugin: Plugin) -> None:
    attempts = returning(plugin, Failed("no such disk", retry=False), retry=Retry.fixed("5s", max_attempts=3))
    assert await run_once(app, plugin) == (State.FAILED, Cause.REFUSED, "no such disk")
    assert attempts == [1]


async def test_outcomes_are_results_too_and_keep_their_types(app: Mainspring, plugin: Plugin) -> None:
    @plugin.job(schedule=Manual())
    async def sweep() -> int | JobOutcome:
        return DoneAndReschedule("1h")

    @plugin.job(schedule=Manual())
    def count(ctx: Context) -> int | Failed:
        return ctx.attempt

    app.install(plugin, grant=GRANT)
    async with app.node():
        result: int | JobOutcome = await (await sweep.enqueue()).result("1m")
        assert result == DoneAndReschedule("1h")
        number: int | Failed = await (await count.enqueue()).result("1m")
        assert number == 1


async def test_middleware_sees_a_failure_as_what_it_is(app: Mainspring, plugin: Plugin) -> None:
    returning(plugin, Failed("no disk", retry=False))
    seen: list[str] = []

    @app.middleware
    async def look(_: Context, call_next: Callable[[], Any]) -> object:
        try:
            return await call_next()
        except Exception as error:
            seen.append(type(error).__name__)
            raise

    await run_once(app, plugin)
    assert seen == ["Fail"]


IN_A_SLOT = """
from mainspring import Context, Manual, Plugin
from mainspring.plugins import DoneAndReschedule, Failed, JobOutcome

plugin = Plugin("tidy", "1")

@plugin.job(schedule=Manual(), executor="process", max_attempts=1)
def sweep(ctx: Context) -> JobOutcome:
    return Failed("enough") if ctx.load("again") or ctx.is_catch_up else DoneAndReschedule("5s")

@plugin.job(schedule=Manual(), executor="process", max_attempts=1)
def unsaid():
    return Failed("not even typed")
"""


async def test_outcomes_come_out_of_a_process_slot(
    app: Mainspring, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "slotted_job.py").write_text(IN_A_SLOT, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "slotted_job", raising=False)
    module = import_module("slotted_job")
    app.install(module.plugin, grant=GRANT)
    async with app.node(processes=1):
        assert await (await app.schedules.run(NAME)).result("1m") == DoneAndReschedule("5s")
        with pytest.raises(JobFailed, match="not even typed"):
            await (await app.schedules.run("tidy:unsaid")).result("1m")
        assert len(await runs_of(app)) == 2


# Done, and once more.


class Again:
    """A job that asks for so many more runs of itself."""

    def __init__(
        self, plugin: Plugin, virtual_time: VirtualTime, *, times: int, delay: str = "10s", schedule: Rule | None = None
    ) -> None:
        self.at: list[int] = []

        @plugin.job(schedule=schedule or Manual(), name="sweep")
        async def sweep() -> JobOutcome:
            self.at.append(round(virtual_time.elapsed))
            return DoneAndReschedule(delay) if len(self.at) <= times else Done()

        self.sweep = sweep


async def test_U6_done_and_reschedule_runs_once_more_after_the_delay(
    app: Mainspring, plugin: Plugin, virtual_time: VirtualTime
) -> None:
    again = Again(plugin, virtual_time, times=3)
    app.install(plugin, grant=GRANT)
    async with app.node():
        await app.schedules.run(NAME)
        await asyncio.sleep(300)
        assert await runs_of(app) == [(State.SUCCEEDED, None)] * 4
    first = again.at[0]
    assert [at - first for at in again.at] == [0, 10, 20, 30]


async def test_a_job_that_was_enqueued_asks_its_own_schedule(app: Mainspring, plugin: Plugin) -> None:
    at: list[str | None] = []

    @plugin.job(schedule=Manual())
    async def sweep(ctx: Context) -> JobOutcome:
        at.append(ctx.schedule)
        return Done() if ctx.schedule else DoneAndReschedule("10s")

    app.install(plugin, grant=GRANT)
    async with app.node():
        await sweep.enqueue()
        await asyncio.sleep(60)
    assert at == [None, NAME]


async def test_an_exclusive_job_that_is_to_run_again_takes_the_place_of_its_slots(
    app: Mainspring, plugin: Plugin, virtual_time: VirtualTime
) -> None:
    again = Again(plugin, virtual_time, times=1, delay="150s", schedule=Every("1m"))
    app.install(plugin, grant=GRANT)
    async with app.node():
        await asyncio.sleep(310)
        assert [reason for _, reason in await runs_of(app) if reason] == [Reason.OVERLAPPED]
    assert again.at == [60, 210, 240, 300]


async def test_a_schedule_that_is_gone_or_paused_is_not_run_again(
    app: Mainspring, plugin: Plugin, virtual_time: VirtualTime
) -> None:
    again = Again(plugin, virtual_time, times=9)
    app.install(plugin, grant=GRANT)
    async with app.node():
        await app.schedules.pause(NAME)
        job = await app.schedules.run(NAME)
        await asyncio.sleep(60)
        assert len(again.at) == 1
        assert await job.state() is State.SUCCEEDED
        assert sorted(await runs_of(app), key=str) == sorted([(State.SUCCEEDED, None), (None, Reason.PAUSED)], key=str)
        await app.schedules.resume(NAME)
        await app.schedules.remove(NAME)
        await (await again.sweep.enqueue()).result("1m")
        await asyncio.sleep(60)
    assert len(again.at) == 2


@pytest.mark.parametrize(
    "fault",
    [
        "settle dropped",
        "settle answer lost",
        "move answer lost",
        "move dropped",
        "killed",
        "killed, and the new one ran",
    ],
)
async def test_done_and_reschedule_makes_one_run_whatever_goes_wrong_in_between(
    make_store: MakeStore, virtual_time: VirtualTime, plugin: Plugin, fault: str
) -> None:
    """The process dies, or the store does not answer, between the new run and the end of the old one."""
    faulty = FaultyStore(make_store())
    app = Mainspring(store=faulty.as_store, clock=virtual_time.clock)
    attempts: list[tuple[str, int]] = []

    # An exclusive job waits until its orphaned predecessor is over; any other may have run before that is made again.
    concurrency: Concurrency = "unbounded" if "ran" in fault else "exclusive"

    @plugin.job(schedule=Manual(), name="sweep", retry=Retry.fixed("20s", max_attempts=3), concurrency=concurrency)
    async def sweep(ctx: Context) -> JobOutcome:
        attempts.append((str(ctx.job), ctx.attempt))
        if str(ctx.job) != attempts[0][0]:
            return Done()
        if ctx.attempt == 1:
            match fault:
                case "settle dropped":
                    faulty.drop("settle", times=3)
                case "settle answer lost":
                    faulty.lose_answer("settle", times=3)
                case "move answer lost":
                    faulty.lose_answer("move")
                case "move dropped":
                    faulty.drop("move")
                case _:
                    pass
        return DoneAndReschedule("10s")

    app.install(plugin, grant=GRANT)
    async with app:
        async with app.node():
            await asyncio.sleep(1)
        first = await app.schedules.run(NAME)
        if "killed" in fault:
            faulty.delay("settle", "1h")
            async with victim(app) as doomed:
                await asyncio.sleep(5)
                doomed.kill()
        async with app.node():
            await asyncio.sleep(300)
        assert await first.state() is State.SUCCEEDED
        assert await runs_of(app) == [(State.SUCCEEDED, None)] * 2
    assert len({job for job, _ in attempts}) == 2
    if "ran" in fault:
        assert [job == str(first.id) for job, _ in attempts] == [True, False, True]
    if "killed" in fault or "move" in fault:
        assert (str(first.id), 2) in attempts, "the story is about an attempt that is made twice"


# Time, and how many at a time.


async def test_U6_a_job_that_hangs_is_stopped_by_its_timeout(app: Mainspring, plugin: Plugin) -> None:
    ended = asyncio.Event()

    @plugin.job(schedule=Manual(), timeout="10s", retry=Retry.none())
    async def sweep() -> None:
        try:
            await asyncio.sleep(3600)
        finally:
            ended.set()

    state, cause, message = await run_once(app, plugin)
    assert (state, cause) == (State.FAILED, Cause.EXHAUSTED)
    assert "longer than 10 s" in message
    assert ended.is_set()


async def test_U6_an_exclusive_job_never_overlaps_and_a_slot_in_between_is_told_of(
    app: Mainspring, another_app: Callable[[], Mainspring]
) -> None:
    at_once = most = done = 0

    def tidy() -> Plugin:
        plugin = Plugin("tidy", "1")

        @plugin.job(schedule=Every("1m"), concurrency="exclusive")
        async def sweep() -> None:
            nonlocal at_once, most, done
            at_once += 1
            most = max(most, at_once)
            try:
                await asyncio.sleep(90)
                done += 1
            finally:
                at_once -= 1

        return plugin

    other = another_app()
    app.install(tidy(), grant=GRANT)
    other.install(tidy(), grant=GRANT)
    async with app.node(), other.node():
        await asyncio.sleep(580)
        for _ in range(3):  # by hand, while one runs or not: they wait in line
            await app.schedules.run(NAME)
        await asyncio.sleep(400)
        runs = await runs_of(app)
    assert most == 1
    assert done >= 5
    assert Reason.OVERLAPPED in [reason for _, reason in runs]


@pytest.mark.parametrize(("concurrency", "most_at_once"), [(2, 2), ("unbounded", 5)])
async def test_U6_a_bound_is_kept_and_no_bound_is_none(
    app: Mainspring,
    plugin: Plugin,
    concurrency: Concurrency,
    most_at_once: int,
) -> None:
    at_once = most = 0

    @plugin.job(schedule=Every("1m"), concurrency=concurrency)
    async def sweep() -> None:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        await asyncio.sleep(290)
        at_once -= 1

    app.install(plugin, grant=GRANT)
    async with app.node():
        await asyncio.sleep(1000)
    assert most == most_at_once


# Ends: the node's, and the job's own.


async def test_U7_what_runs_is_finished_before_the_program_ends(app: Mainspring, plugin: Plugin) -> None:
    done: list[str] = []

    @plugin.job(schedule=Manual())
    async def sweep(ctx: Context) -> None:
        await asyncio.sleep(20)
        await ctx.host.execute_write("swept")

    async def write(statement: str, _: object) -> None:
        done.append(statement)

    app.host.offer(execute_write=write)
    app.install(plugin, grant=GRANT)
    async with app:
        async with app.node(grace="1m"):
            job = await app.schedules.run(NAME)
            await asyncio.sleep(5)
        assert done == ["swept"]
        assert await job.state() is State.SUCCEEDED


async def test_U7_what_does_not_end_in_time_is_given_back_and_runs_after_the_restart(
    app: Mainspring, another_app: Callable[[], Mainspring]
) -> None:
    seen: list[int] = []

    def tidy(seconds: float) -> Plugin:
        plugin = Plugin("tidy", "1")

        @plugin.job(schedule=Manual())
        async def sweep(ctx: Context) -> None:
            await asyncio.sleep(seconds)
            seen.append(ctx.attempt)

        return plugin

    app.install(tidy(3600), grant=GRANT)
    async with app.node(grace="2s"):
        job = await app.schedules.run(NAME)
        await asyncio.sleep(5)
    restarted = another_app()
    restarted.install(tidy(1), grant=GRANT)
    async with restarted.node():
        await restarted.job(job.id).result("1m")
    assert seen == [1], "an attempt that a shutdown cut short is none"


async def test_U8_a_cancel_reaches_the_body_at_once(app: Mainspring, plugin: Plugin, virtual_time: VirtualTime) -> None:
    told: list[float] = []

    @plugin.job(schedule=Manual())
    async def sweep() -> None:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            told.append(virtual_time.elapsed)
            raise

    @plugin.job(schedule=Manual(), name="threaded")
    def threaded(ctx: Context) -> None:
        while not ctx.cancelled:
            threading.Event().wait(0.001)
        told.append(virtual_time.elapsed)
        ctx.raise_if_cancelled()

    app.install(plugin, grant=GRANT)
    async with app.node():
        for name in (NAME, "tidy:threaded"):
            job = await app.schedules.run(name)
            await asyncio.sleep(0 if name != NAME else 10)
            while await job.state() is not State.RUNNING:
                await asyncio.sleep(0)
            cancelled = virtual_time.elapsed
            await job.cancel()
            while await job.state() is State.RUNNING:
                await asyncio.sleep(0.01)
            assert await job.state() is State.CANCELLED
            assert told.pop() <= cancelled + 0.05


async def test_U8_a_cancel_is_kept_when_the_program_dies_before_it_is_obeyed(
    app: Mainspring, another_app: Callable[[], Mainspring]
) -> None:
    begun: list[str] = []

    def tidy(where: str) -> Plugin:
        plugin = Plugin("tidy", "1")

        @plugin.job(schedule=Manual())
        async def sweep() -> None:
            begun.append(where)
            await asyncio.sleep(3600)

        return plugin

    app.install(tidy("before"), grant=GRANT)
    async with app:
        async with app.node():
            await asyncio.sleep(1)
        async with victim(app) as doomed:
            job = await app.schedules.run(NAME)
            await asyncio.sleep(5)
            doomed.kill()
            await job.cancel()
        restarted = another_app()
        restarted.install(tidy("after"), grant=GRANT)
        async with restarted.node():
            await asyncio.sleep(120)
        assert await job.state() is State.CANCELLED
    assert begun == ["before"]


async def test_U8_a_body_that_goes_on_after_a_cancel_writes_nothing_and_keeps_its_place(
    app: Mainspring, plugin: Plugin, virtual_time: VirtualTime
) -> None:
    """No progress, nothing saved, no end of its own, nothing through the host; and no other run beside it."""
    writes: list[str] = []
    refused: list[type[Exception]] = []
    begun: list[float] = []

    async def write(statement: str, _: object) -> None:
        writes.append(statement)

    app.host.offer(execute_write=write)

    @plugin.job(schedule=Manual())
    async def sweep(ctx: Context) -> str | JobOutcome:
        begun.append(virtual_time.elapsed)
        if len(begun) > 1:
            return Done()
        while virtual_time.elapsed < begun[0] + 60:
            try:
                await asyncio.sleep(1)
            except asyncio.CancelledError:
                continue
        ctx.progress(99, "from the grave")
        for call in (lambda: ctx.save("key", "value"), lambda: ctx.host.execute_write("late")):
            try:
                await call()
            except LeaseLost as error:
                refused.append(type(error))
        return DoneAndReschedule("1s")

    app.install(plugin, grant=GRANT)
    async with app.node(stop_grace="2s"):
        job = await app.schedules.run(NAME)
        await asyncio.sleep(5)
        await job.cancel()
        await asyncio.sleep(10)
        assert await job.state() is State.CANCELLED
        second = await app.schedules.run(NAME)  # asked for while the old body still runs
        await asyncio.sleep(10)
        assert len(begun) == 1
        await second.result("2m")
        await asyncio.sleep(10)
        view = await job.refresh()
    assert begun[1] >= begun[0] + 60, "no two bodies of an exclusive job"
    assert (writes, refused) == ([], [LeaseLost, LeaseLost])
    assert (view.job.state, view.progress, view.result) == (State.CANCELLED, None, None)
    assert len(begun) == 2


# What it knows of the run before it.


@pytest.mark.parametrize("executor", ["coroutine", "thread"])
async def test_U14_a_job_sees_how_the_run_before_it_went(app: Mainspring, plugin: Plugin, executor: str) -> None:
    seen: list[Run | None] = []

    def outcome(before: Run | None) -> JobOutcome:
        seen.append(before)
        return Failed("at first", retry=False) if len(seen) == 1 else Done()

    if executor == "coroutine":

        @plugin.job(schedule=Every("1m"))
        async def sweep(ctx: Context) -> JobOutcome:
            return outcome(await ctx.previous_run())
    else:

        @plugin.job(schedule=Every("1m"), name="sweep")
        def sweep_in_a_thread(ctx: Context) -> JobOutcome:
            return outcome(ctx.previous_run_sync())

    app.install(plugin, grant=GRANT)
    async with app.node():
        await asyncio.sleep(190)
        await (await app.enqueue(NAME)).result("1m")
    assert [run and run.state for run in seen] == [None, State.FAILED, State.SUCCEEDED, None]
    assert seen[1]
    assert seen[1].error
    assert "at first" in seen[1].error


# Ids that follow from others.


@given(stranger=st.uuids(version=4), moment=st.integers(0, 1 << 47))
def test_the_id_of_what_follows_is_always_the_same_and_later(stranger: UUID, moment: int) -> None:
    born = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=moment)
    ours = Ids().next(born)
    child, theirs = heir(ours, born), heir(stranger, born)
    assert (child, theirs) == (heir(ours, born), heir(stranger, born))
    assert child != theirs
    assert {(one.version, one.variant) for one in (child, theirs)} == {(7, RFC_4122)}
    assert ours < child < heir(child, born), "in a line of them each is later than the one before"


# The behaviours pinned by contracts 1.10.


async def test_pinned_1_periodic_50_ms_fires_at_least_twice_in_400_ms(app: Mainspring, plugin: Plugin) -> None:
    fired = 0

    @plugin.job(schedule=Every("50ms"))
    async def sweep() -> None:
        nonlocal fired
        fired += 1

    app.install(plugin, grant=GRANT)
    async with app.node():
        await asyncio.sleep(0.4)
        assert 2 <= fired <= 8


async def test_pinned_2_cancel_after_a_fire_lets_at_most_one_more_through(app: Mainspring, plugin: Plugin) -> None:
    fired = 0

    @plugin.job(schedule=Every("50ms"))
    async def sweep() -> None:
        nonlocal fired
        fired += 1

    app.install(plugin, grant=GRANT)
    async with app.node():
        while fired < 1:
            await asyncio.sleep(0.01)
        before = fired
        await app.schedules.remove(NAME)
        await asyncio.sleep(1)
        assert fired <= before + 1
