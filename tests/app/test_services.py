"""What `@app.service` makes of a function, what it refuses, and how a service lives and ends with its node."""

import asyncio
import functools
import logging
from contextlib import closing
from typing import Any

import pytest

from mainspring import Context, Idle, Mainspring, Proceed, Sleep
from mainspring.client.services import ServiceContext
from mainspring.errors import DeclarationError, NameTaken
from mainspring.settings import NodeSettings
from mainspring.supervise import Backoff, Bulkhead, Lane, Notifier, Pacing, Stats, every, log_failures
from mainspring.testing import VirtualTime, in_memory


@pytest.fixture
def memory(virtual_time: VirtualTime) -> Mainspring:
    return Mainspring("memory://", clock=virtual_time.clock)


async def sweep() -> Idle:
    """Take away what is old."""
    return Idle()


def problems(function: object, **options: Any) -> str:  # noqa: ANN401 - what no type allows
    app = Mainspring("memory://")
    with pytest.raises(DeclarationError) as raised:
        app.service(**options)(function)  # type: ignore[type-var]  # the same
    assert app._services == {}
    return str(raised.value)


# Declaring.


def test_a_service_is_named_after_its_function_and_stays_that_function() -> None:
    app = Mainspring("memory://")

    assert app.service(sweep) is sweep

    (definition,) = app._services.values()
    assert str(definition.name) == f"{__name__}.sweep"
    assert (definition.wake, definition.is_singleton, definition.takes_context) == ((), False, False)
    assert definition.listeners == (log_failures,)


async def test_a_service_can_still_be_called_as_a_function(memory: Mainspring) -> None:
    @memory.service(every="5s")
    async def look() -> Sleep:
        return Sleep("1h")

    assert await look() == Sleep("1h")


def test_everything_can_be_said() -> None:
    app = Mainspring("memory://")
    mail, stats, bulkhead = Notifier(), Stats(), Bulkhead(Lane(1))
    pacing, backoff = Pacing(active_interval=1), Backoff.fixed("5s")

    app.service(
        name="mail:send",
        every="30s",
        wake=[mail],
        start_idle=True,
        singleton=True,
        ttl="1m",
        pacing=pacing,
        bulkhead=bulkhead,
        backoff=backoff,
        listeners=[stats],
        on_panic="propagate",
    )(sweep)

    (definition,) = app._services.values()
    assert (definition.name.namespace, definition.name.local) == ("mail", "send")
    assert definition.wake == (mail, every("30s"))
    assert (definition.pacing, definition.bulkhead, definition.backoff) == (pacing, bulkhead, backoff)
    assert (definition.start_idle, definition.on_panic, definition.listeners) == (True, "propagate", (stats,))
    assert definition.is_singleton
    assert definition.ttl is not None
    assert definition.ttl.total_seconds() == 60


def test_a_single_notifier_needs_no_list() -> None:
    app, mail = Mainspring("memory://"), Notifier()

    app.service(wake=mail)(sweep)

    assert next(iter(app._services.values())).wake == (mail,)


def test_two_services_of_one_name_are_refused() -> None:
    app = Mainspring("memory://")
    app.service(sweep)

    with pytest.raises(NameTaken, match="sweep"):
        app.service(every="5s")(sweep)
    app.service(name="another")(sweep)
    Mainspring("memory://").service(sweep)  # of another app


def test_every_problem_of_a_declaration_is_told_at_once() -> None:
    found = problems(
        lambda: None,
        every=0,
        wake="mail",
        singelton=True,
        start_idle="yes",
        ttl="100ms",
        pacing=3,
        bulkhead=3,
        backoff="5s",
        listeners=[3],
        on_panic="panic",
    )

    for part in (
        "it has no name of its own",
        "an interval of nothing",
        "wake takes notifiers and intervals",
        "there is no option 'singelton'; did you mean 'singleton'?",
        "start_idle: 'yes': it is True or False",
        "a ttl under 0.5 s cannot be kept",
        "a service is an `async def`",
        "pacing takes a Pacing",
        "bulkhead takes a Bulkhead",
        "backoff takes a Backoff",
        "a listener is a function",
        "on_panic is 'retry' or 'propagate'",
    ):
        assert part in found


def test_a_function_that_nobody_could_call_is_refused() -> None:
    async def with_argument(folder: str, *, ctx: ServiceContext) -> None: ...

    async def with_context_of_a_job(ctx: Context) -> None: ...

    async def with_two(one: ServiceContext, two: ServiceContext) -> None: ...

    async def generator() -> Any:  # noqa: ANN401 - an async generator
        yield Idle()

    app = Mainspring("memory://")
    assert "nobody would pass `folder`" in problems(with_argument)
    assert "nobody would pass `ctx`" in problems(with_context_of_a_job)
    assert "one parameter takes the ServiceContext, not one and two" in problems(with_two)
    assert "a service is an `async def`" in problems(generator)
    assert "a service is an `async def`" in problems(app.task(sweep))
    with closing(sweep()) as called:
        assert "a service is an `async def`" in problems(called)


def test_a_ttl_is_for_singletons() -> None:
    assert "say singleton=True" in problems(sweep, ttl="30s")


def test_an_annotation_may_be_text_and_what_has_a_default_needs_nobody() -> None:
    app = Mainspring("memory://")

    async def as_text(ctx: "ServiceContext") -> None: ...

    async def with_default(folder: str = "inbox", *more: str) -> None: ...

    app.service(as_text)
    app.service(with_default)
    app.service(name="partial")(functools.partial(sweep))

    assert [one.takes_context for one in app._services.values()] == [True, False, False]


# Living with a node.


async def test_a_service_runs_on_every_node_for_as_long_as_the_node_does(
    memory: Mainspring, virtual_time: VirtualTime
) -> None:
    steps: list[tuple[str, float]] = []

    @memory.service(every="10s")
    async def look(ctx: ServiceContext) -> None:  # which is as good as Idle()
        steps.append((ctx.node, virtual_time.elapsed))
        assert ctx.held
        assert not ctx.stopping
        with pytest.raises(DeclarationError, match="only a singleton has a term"):
            _ = ctx.term

    async with memory.node() as one:
        async with memory.node() as two:
            await asyncio.sleep(25)
        await asyncio.sleep(10)
    count = len(steps)
    await asyncio.sleep(100)

    assert [at for node, at in steps if node == one.id] == pytest.approx([0, 10, 20, 30], abs=0.1)
    assert [at for node, at in steps if node == two.id] == pytest.approx([0, 10, 20], abs=0.1)
    assert len(steps) == count


async def test_a_service_does_as_its_directives_say(memory: Mainspring, virtual_time: VirtualTime) -> None:
    at: list[float] = []
    mail = Notifier()

    @memory.service(wake=mail, start_idle=True, pacing=Pacing(active_interval=1, min_interval=1))
    async def send() -> Proceed | Idle | Sleep:
        at.append(virtual_time.elapsed)
        return Proceed() if len(at) == 1 else Sleep("10s") if len(at) == 2 else Idle()

    async with memory.node():
        await asyncio.sleep(5)
        assert at == []
        mail.notify_one()
        await asyncio.sleep(60)

    assert at == pytest.approx([5, 6, 16], abs=0.1)


async def test_a_step_that_raises_is_told_and_tried_again_and_nobody_else_notices(
    memory: Mainspring, caplog: pytest.LogCaptureFixture
) -> None:
    stats = Stats()

    @memory.service(name="broken", backoff=Backoff.fixed("10s"), listeners=[log_failures, stats])
    async def broken() -> None:
        raise OSError("no")

    @memory.task
    async def work() -> str:
        return "done"

    async with memory.node() as node:
        job = await work.enqueue()
        assert await job.result() == "done"
        await asyncio.sleep(35)
        assert node.id

    assert stats.errors == {"OSError": 4}
    assert "broken failed (4 in a row)" in caplog.text


async def test_a_service_that_may_die_dies_alone(memory: Mainspring, caplog: pytest.LogCaptureFixture) -> None:
    steps: list[str] = []

    @memory.service(name="fragile", every="1s", on_panic="propagate")
    async def fragile() -> None:
        steps.append("fragile")
        raise OSError("no")

    @memory.service(name="sturdy", every="1s")
    async def sturdy() -> None:
        steps.append("sturdy")

    async with memory.node() as node:
        await asyncio.sleep(4.5)
        report = await node.shutdown()

    assert steps.count("fragile") == 1
    assert steps.count("sturdy") == 5
    assert "fragile died" in caplog.text
    assert report.drained


async def test_a_service_that_is_declared_later_begins_soon(memory: Mainspring) -> None:
    steps: list[int] = []
    async with memory.node():
        await asyncio.sleep(5)

        @memory.service
        async def late() -> None:
            steps.append(1)

        await asyncio.sleep(5)

    assert steps == [1]


async def test_a_service_enqueues_jobs(memory: Mainspring) -> None:
    done: list[int] = []

    @memory.task
    async def work(number: int) -> None:
        done.append(number)

    @memory.service(every="1m")
    async def plan() -> None:
        await work.enqueue(len(done))

    async with memory.node():
        await asyncio.sleep(150)

    assert done == [0, 1, 2]


async def test_services_run_on_whatever_store_the_app_has_at_the_moment(virtual_time: VirtualTime) -> None:
    app = Mainspring("sqlite:///nowhere/at/all.db")
    steps: list[int] = []

    @app.service(singleton=True)
    async def look() -> None:
        steps.append(1)

    with in_memory(app, clock=virtual_time.clock):
        async with app.node():
            await asyncio.sleep(1)

    assert steps == [1]


# The end.


@pytest.mark.parametrize("singleton", [False, True])
async def test_a_step_under_way_may_finish_when_its_node_ends(
    memory: Mainspring, virtual_time: VirtualTime, singleton: bool
) -> None:
    told: list[str] = []

    @memory.service(singleton=singleton)
    async def work(ctx: ServiceContext) -> Proceed:
        await asyncio.sleep(5)
        told.append(f"stopping: {ctx.stopping}, held: {ctx.held}")
        return Proceed()

    async with memory.node():
        await asyncio.sleep(2)

    assert told == ["stopping: True, held: True"]
    assert 5 <= virtual_time.elapsed <= 6


@pytest.mark.parametrize("singleton", [False, True])
async def test_a_step_that_takes_longer_is_cancelled_before_running_jobs_are_given_up(
    memory: Mainspring, virtual_time: VirtualTime, singleton: bool
) -> None:
    told: dict[str, float] = {}

    @memory.service(singleton=singleton)
    async def work() -> None:
        try:
            await asyncio.sleep(600)
        finally:
            told["service"] = virtual_time.elapsed

    @memory.task
    async def job() -> None:
        try:
            await asyncio.sleep(600)
        finally:
            told["job"] = virtual_time.elapsed

    async with memory.node(grace="30s"):
        await job.enqueue()
        await asyncio.sleep(2)

    assert told == pytest.approx({"service": 12, "job": 32}, abs=0.5)


@pytest.mark.parametrize("singleton", [False, True])
async def test_whoever_is_in_a_hurry_waits_for_no_step(
    memory: Mainspring, virtual_time: VirtualTime, singleton: bool
) -> None:
    @memory.service(singleton=singleton)
    async def work() -> None:
        await asyncio.sleep(600)

    async with memory.node() as node:
        await asyncio.sleep(2)
        ending = asyncio.create_task(node.shutdown())
        await asyncio.sleep(1)
        node.hurry.set()
        await ending

    assert virtual_time.elapsed <= 4


@pytest.mark.parametrize("singleton", [False, True])
async def test_a_step_that_will_not_stop_is_left_behind_and_reported(
    memory: Mainspring, virtual_time: VirtualTime, caplog: pytest.LogCaptureFixture, singleton: bool
) -> None:
    @memory.service(name="stubborn", singleton=singleton)
    async def stubborn() -> None:
        until = virtual_time.elapsed + 100
        while virtual_time.elapsed < until:
            try:
                await asyncio.sleep(until - virtual_time.elapsed)
            except asyncio.CancelledError:
                continue

    async with memory:
        node = memory.make_node(NodeSettings(stop_grace="5s"))
        await node.start()
        await asyncio.sleep(2)
        report = await node.shutdown(grace="3s")
        assert virtual_time.elapsed <= 15
        await asyncio.sleep(100)

    assert report.services == ("stubborn",)
    assert not report.drained
    assert "stubborn did not end within" in caplog.text


async def test_a_node_without_services_ends_at_once(memory: Mainspring, virtual_time: VirtualTime) -> None:
    async with memory.node():
        pass

    assert virtual_time.elapsed <= 0.1


async def test_what_a_service_is_said_to_run_on_is_in_the_log(
    memory: Mainspring, caplog: pytest.LogCaptureFixture
) -> None:
    memory.service(name="sweep", singleton=True)(sweep)

    with caplog.at_level(logging.INFO, "mainspring.node"):
        async with memory.node() as node:
            await asyncio.sleep(1)

    assert f"service sweep runs on node {node.id} from now on, under term 1" in caplog.text
