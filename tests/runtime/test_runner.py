"""What runs when on a node, and that nothing a handler does costs the node a place."""

import asyncio
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from mainspring import Context, Mainspring, Retry, Snooze
from mainspring.core.job import Cause, State
from mainspring.errors import Escaped
from mainspring.runtime.events import StateChange
from mainspring.stores.sqlite import SqliteStore
from mainspring.testing import VirtualTime
from tests.runtime import slot_tasks
from tests.runtime.conftest import Bench


class Hollow(Snooze):
    """A signal whose author forgot what it is made from."""

    def __init__(self) -> None:
        pass


@pytest.fixture
def sqlite_app(tmp_path: Path, virtual_time: VirtualTime) -> Mainspring:
    store = SqliteStore(tmp_path / "jobs.db", clock=virtual_time.clock, durable=False)
    return Mainspring(store=store, clock=virtual_time.clock)


# Handlers that return what cannot be kept.


class Unreadable(Mapping[str, int]):
    """A mapping that raises when it is read."""

    def __getitem__(self, key: str) -> int:
        raise LookupError(key)

    def __iter__(self) -> Iterator[str]:
        raise LookupError("unreadable")

    def __len__(self) -> int:
        return 1


@pytest.mark.parametrize("executor", ["coroutine", "thread"])
@pytest.mark.parametrize(
    ("value", "problem"),
    [(object(), "object"), ("x" * 300_000, "262,144"), ({"a": {1, 2}}, "set"), (Unreadable(), "Unreadable")],
    ids=["no JSON", "too large", "no JSON inside", "raises"],
)
async def test_a_handler_whose_result_cannot_be_kept_is_not_called_again(
    bench: Bench, executor: str, value: object, problem: str
) -> None:
    called: list[int] = []

    async def coroutine(ctx: Context) -> object:
        called.append(ctx.attempt)
        return value

    def thread(ctx: Context) -> object:
        called.append(ctx.attempt)
        return value

    work = bench.app.task(name="work", retry=Retry.fixed("1s", max_attempts=6))(
        coroutine if executor == "coroutine" else thread
    )
    async with bench.app.node():
        job = await work.enqueue()
        await bench.until_finished(job.id)
    view = await bench.view(job.id)

    assert called == [1]
    assert (view.job.state, view.job.cause) == (State.FAILED, Cause.REFUSED)
    assert view.error is not None
    assert view.error.type == "mainspring.errors.BadResult"
    assert problem in view.error.message
    assert view.error.message.endswith("the function has returned and is not called again")


async def test_a_function_whose_result_has_another_type_than_declared_is_not_called_again(bench: Bench) -> None:
    called: list[int] = []

    @bench.app.task(name="work", retry=Retry.fixed("1s", max_attempts=6))
    async def work(ctx: Context) -> int:
        called.append(ctx.attempt)
        return "seven"  # type: ignore[return-value]  # what this is about

    async with bench.app.node():
        job = await work.enqueue()
        await bench.until_finished(job.id)

    assert called == [1]
    assert (await bench.view(job.id)).job.cause is Cause.REFUSED


@pytest.mark.slow
async def test_a_function_in_a_process_whose_result_cannot_be_kept_is_not_called_again(bench: Bench) -> None:
    policy = Retry.fixed("1s", max_attempts=6)
    work = bench.app.task(name="work", executor="process", retry=policy)(slot_tasks.object_of_no_type)

    async with bench.app.node(processes=1):
        job = await work.enqueue()
        await bench.until_finished(job.id)
    view = await bench.view(job.id)

    assert (view.job.state, view.job.cause, view.job.attempt) == (State.FAILED, Cause.REFUSED, 1)
    assert view.error is not None
    assert view.error.type == "mainspring.errors.BadResult"


# Handlers that raise what an event loop or a thread does not let through.


class Deadly(Exception):
    """An error whose `__str__` raises `SystemExit`."""

    def __str__(self) -> str:
        raise SystemExit(3)


@pytest.mark.parametrize("executor", ["coroutine", "thread"])
@pytest.mark.parametrize("error", [SystemExit(3), GeneratorExit("out"), asyncio.CancelledError()], ids=repr)
@pytest.mark.parametrize("is_retried", [True, False])
async def test_an_error_that_would_end_the_node_is_escaped_for_the_policy_and_kept_itself(
    bench: Bench, executor: str, error: BaseException, *, is_retried: bool
) -> None:
    async def coroutine() -> None:
        raise error.with_traceback(None)

    def thread() -> None:
        raise error.with_traceback(None)

    retried, refused = Retry.fixed(1, retry_on=(Escaped,), max_attempts=2), Retry.fixed(1, fail_on=(Escaped,))
    policy = retried if is_retried else refused
    work = bench.app.task(name="work", retry=policy)(coroutine if executor == "coroutine" else thread)
    async with bench.app.node():
        job = await work.enqueue()
        await bench.until_finished(job.id)
    view = await bench.view(job.id)

    expected = (Cause.EXHAUSTED, 2) if is_retried else (Cause.REFUSED, 1)
    assert (view.job.cause, view.job.attempt) == expected
    assert view.error is not None
    assert view.error.type.rpartition(".")[2] == type(error).__name__
    assert view.error.message == (str(error) or "something that the function awaited was cancelled")


async def test_an_error_whose_message_raises_ends_its_own_job_alone(bench: Bench) -> None:
    @bench.app.task(name="work", max_attempts=1)
    async def work(*, deadly: bool) -> int:
        if deadly:
            raise Deadly
        return 7

    async with bench.app.node():
        job = await work.enqueue(deadly=True)
        await bench.until_finished(job.id)
        assert await (await work.enqueue(deadly=False)).result("1m") == 7

    assert (await bench.view(job.id)).job.state is State.FAILED


# Handlers that say odd things.


async def test_a_broken_signal_fails_its_job_and_costs_no_place(bench: Bench) -> None:
    @bench.app.task(name="work", max_attempts=1)
    async def work(*, broken: bool) -> int:
        if broken:
            raise Hollow
        return 7

    async with bench.app.node(concurrency=1, grace="1s", stop_grace="1s") as node:
        job = await work.enqueue(broken=True)
        await bench.until_finished(job.id)
        assert node.running == 0
        assert await (await work.enqueue(broken=False)).result("1m") == 7

    assert (await bench.view(job.id)).job.state is State.FAILED


async def test_a_signal_with_an_odd_reason_holds_up_nobody(sqlite_app: Mainspring) -> None:
    @sqlite_app.task(name="odd")
    async def odd() -> None:
        raise Snooze("1h", OSError("busy"))  # type: ignore[arg-type]  # nobody checked that handler's types

    @sqlite_app.task(name="good")
    async def good() -> int:
        return 7

    async with sqlite_app.node(grace="0s", stop_grace="1s"):
        job = await odd.enqueue()
        await asyncio.sleep(1)
        assert await (await good.enqueue()).result("2m") == 7
        assert await job.state() is State.SCHEDULED


@pytest.mark.parametrize("level", ["\udc80", None, 20])
async def test_an_odd_level_of_a_log_line_does_not_turn_a_success_into_a_failure(
    sqlite_app: Mainspring, level: str
) -> None:
    @sqlite_app.task(name="work", max_attempts=1)
    async def work(ctx: Context) -> int:
        ctx.log("one")
        ctx.log("two", level)
        return 7

    async with sqlite_app.node(grace="0s", stop_grace="1s"):
        job = await work.enqueue()
        assert await job.result("2m") == 7
        assert [line.message for line in await sqlite_app.store.log_lines(job.id)] == ["one", "two"]


async def test_a_success_stays_one_though_its_last_log_lines_outlast_the_timeout(bench: Bench) -> None:
    ran: list[int] = []

    @bench.app.task(name="work", timeout="5s", retry=Retry.fixed("1s", max_attempts=3))
    async def work(ctx: Context) -> str:
        ran.append(ctx.attempt)
        bench.store.delay("note", "20s")
        ctx.log("done with everything")
        return "done"

    async with bench.app.node(grace="1s"):
        job = await work.enqueue()
        assert await job.result("5m") == "done"

    assert ran == [1]


async def test_a_success_stays_one_though_its_last_log_lines_outlast_the_node(bench: Bench) -> None:
    @bench.app.task(name="work")
    async def work(ctx: Context) -> None:
        bench.store.delay("note", "3s")
        ctx.log("done with everything")

    async with bench.app:
        async with bench.app.node(grace="0s"):
            job = await work.enqueue()
            await asyncio.sleep(1)
        assert (await bench.view(job.id)).job.state is State.SUCCEEDED


# Being stopped.


async def test_a_second_reason_to_stop_does_not_cut_short_how_a_handler_cleans_up(bench: Bench) -> None:
    clean: list[float] = []

    @bench.app.task(name="work", timeout="3s", max_attempts=1)
    async def work() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(3)
            clean.append(bench.time.elapsed)

    async with bench.app.node(stop_grace="5s"):
        job = await work.enqueue()
        await asyncio.sleep(1)
        await job.cancel()  # seen at once; and while it cleans up, its time is over
        await asyncio.sleep(20)

    assert len(clean) == 1
    assert clean[0] == 4
    assert (await bench.view(job.id)).job.state is State.CANCELLED


# What waits for a place.


@pytest.mark.slow
async def test_what_expires_in_the_line_fails_without_a_run_however_much_it_is(bench: Bench) -> None:
    @bench.app.task(name="work")
    async def work(seconds: float) -> None:
        await asyncio.sleep(seconds)

    @bench.app.task(name="late")
    async def late() -> None:
        raise AssertionError("too late")

    unhandled: list[object] = []  # what ends in a callback of the loop would else be logged and no more
    asyncio.get_running_loop().set_exception_handler(lambda _, context: unhandled.append(context.get("exception")))
    async with bench.app:
        quick = [work.call(0.001) for _ in range(5000)]  # half a second at a pace at which a thousand are claimed ahead
        blocking = [work.call(0.5) for _ in range(10)]
        expiring = [late.using(expires="0.7s").call() for _ in range(600)]
        jobs = await bench.app.enqueue_many([*quick, *blocking, *expiring])
        async with bench.app.node(concurrency=10) as node:
            await asyncio.sleep(0.65)
            assert len((await bench.app.jobs(task="late", state="running", limit=1000)).jobs) == 600  # all in the line
            await asyncio.sleep(10)
            assert node.running == 0
            await (await work.enqueue(0.0)).result("1m")

    assert unhandled == []
    views = [(await bench.view(job.id)).job for job in jobs[-600:]]
    assert {(job.state, job.cause, job.attempt) for job in views} == {(State.FAILED, Cause.EXPIRED, 0)}


async def test_more_places_start_what_waits_in_the_line_at_once(bench: Bench) -> None:
    started: list[float] = []

    @bench.app.task(name="quick")
    async def quick() -> None:
        await asyncio.sleep(0.001)

    @bench.app.task(name="long")
    async def long() -> None:
        started.append(bench.time.elapsed)
        if len(started) == 1:
            bench.store.delay("claim", "1h", times=1000)  # from now on it can only start what it has
        await asyncio.sleep(100)

    async with bench.app:
        await bench.app.enqueue_many([*(quick.call() for _ in range(400)), *(long.call() for _ in range(6))])
        async with bench.app.node(concurrency=1, grace="0s", stop_grace="1s") as node:
            await bench.until(lambda: started)
            node.set_concurrency(10)
            await asyncio.sleep(0.1)
            assert len(started) == 6
            (view,) = [view for view in await bench.store.inner.nodes() if view.alive]
            assert view.node.concurrency == 10
            bench.store.heal()


async def test_a_quiet_node_starts_nothing_of_a_claim_that_was_under_way(bench: Bench) -> None:
    ran: list[float] = []

    @bench.app.task(name="work")
    async def work() -> None:
        ran.append(bench.time.elapsed)

    async with bench.app.node() as node:
        await asyncio.sleep(1)
        bench.store.delay("claim", "2s")
        job = await work.enqueue()
        await asyncio.sleep(0.5)
        node.quiet()
        await asyncio.sleep(10)
        view = await bench.view(job.id)
        assert (view.job.state, view.job.attempt, ran) == (State.READY, 0, [])
        node.resume()
        await job.result("1m")


# Who comes first.


async def test_an_urgent_job_for_a_process_slot_is_not_starved_by_light_ones(bench: Bench) -> None:
    started: list[str] = []

    @bench.app.listener
    def listen(change: StateChange) -> None:
        if change.event == "claimed":
            started.append(str(change.job.task))

    heavy = bench.app.task(name="heavy", executor="process", priority=100)(slot_tasks.echo)

    @bench.app.task(name="light", priority=0)
    async def light() -> None:
        await asyncio.sleep(0.1)

    async with bench.app:
        await heavy.enqueue("x")
        await asyncio.sleep(1)  # so that it is older, too
        await light.enqueue_many([light.call() for _ in range(100)])
        async with bench.app.node(concurrency=2, processes=1, grace="0s"):
            await bench.until(lambda: len(started) == 101, within=600)

    assert started.index("heavy") < 5


async def test_a_task_declared_while_the_node_runs_is_not_taken_for_unknown(bench: Bench) -> None:
    @bench.app.task(name="old")
    async def old() -> None:
        await asyncio.sleep(100)

    async with bench.app.node(concurrency=1, unknown_task_grace="1m", prune_every="10s", grace="1s"):

        @bench.app.task(name="new")
        async def new() -> str:
            return "ran"

        for _ in range(3):
            await old.enqueue()  # the only place is taken for longer than an unknown task is kept
        job = await new.enqueue()
        assert await job.result("1h") == "ran"
