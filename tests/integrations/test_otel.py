"""Traces: what is enqueued remembers where, and what runs is a span of a trace of its own that is linked to it."""

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.trace import SpanKind, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from mainspring import Every, Fail, JobHandle, Mainspring, Message, Plugin, Retry, RetryIn, Snooze
from mainspring.errors import DeclarationError
from mainspring.integrations import otel
from mainspring.integrations.otel import instrument
from mainspring.outbox.message import Batch
from mainspring.plugins import BackgroundJobs, Schedules
from mainspring.stores.memory import MemoryStore
from mainspring.stores.sqlite import SqliteStore
from mainspring.testing import VirtualTime

LONG_AGO = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


class Traced:
    """A provider, and the spans that have ended."""

    def __init__(self) -> None:
        self.provider = TracerProvider()
        self._exporter = InMemorySpanExporter()
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.tracer = self.provider.get_tracer("the program's own")

    def spans(self, name: str) -> list[ReadableSpan]:
        return [span for span in self._exporter.get_finished_spans() if span.name == name]

    def one(self, name: str) -> ReadableSpan:
        (span,) = self.spans(name)
        return span


@pytest.fixture
def traced() -> Iterator[Traced]:
    found = Traced()
    yield found
    found.provider.shutdown()


@pytest.fixture(params=["memory", "sqlite"])
def app(request: pytest.FixtureRequest, virtual_time: VirtualTime, tmp_path: Path, traced: Traced) -> Mainspring:
    clock = virtual_time.clock
    store = MemoryStore(clock=clock) if request.param == "memory" else SqliteStore(tmp_path / "jobs.db", clock=clock)
    app = Mainspring(store, clock=clock)
    instrument(app, traced.provider)
    return app


def linked(span: ReadableSpan) -> list[tuple[int, int]]:
    return [(link.context.trace_id, link.context.span_id) for link in span.links]


def place(span: ReadableSpan) -> tuple[int, int]:
    assert span.context is not None
    return span.context.trace_id, span.context.span_id


async def ended(job: JobHandle[Any]) -> None:
    """Wait until a job has ended, however."""
    await asyncio.gather(job.result(timeout="1d"), return_exceptions=True)


async def test_a_run_is_a_trace_of_its_own_with_a_link_to_who_enqueued_it(app: Mainspring, traced: Traced) -> None:
    @app.task(name="mail.send", queue="mail")
    async def send(to: str) -> str:
        return to

    async with app, app.node():
        with traced.tracer.start_as_current_span("request"):
            job = await send.enqueue("anna")
        assert await job.result() == "anna"
    run, request = traced.one("run mail.send"), traced.one("request")
    assert run.parent is None
    assert place(run)[0] != place(request)[0]
    assert linked(run) == [place(request)]
    assert run.kind is SpanKind.CONSUMER
    assert run.status.status_code is StatusCode.UNSET
    assert dict(run.attributes or {}) == {
        "messaging.system": "mainspring",
        "messaging.operation.name": "run",
        "messaging.operation.type": "process",
        "messaging.destination.name": "mail",
        "messaging.message.id": str(job.id),
        "mainspring.task": "mail.send",
        "mainspring.attempt": 1,
        "mainspring.max_attempts": 6,
        "mainspring.outcome": "succeeded",
    }


async def test_every_attempt_is_a_span_linked_to_the_same_place(app: Mainspring, traced: Traced) -> None:
    @app.task(name="flaky", retry=Retry.fixed("1s", max_attempts=3))
    async def flaky() -> None:
        raise OSError("disk")

    async with app, app.node():
        with traced.tracer.start_as_current_span("request"):
            job = await flaky.enqueue()
        await ended(job)
    runs = traced.spans("run flaky")
    assert [(run.attributes or {})["mainspring.attempt"] for run in runs] == [1, 2, 3]
    assert len({place(run)[0] for run in runs}) == 3
    for run in runs:
        assert linked(run) == [place(traced.one("request"))]
        assert (run.status.status_code, run.status.description) == (StatusCode.ERROR, "disk")
        assert (run.attributes or {})["error.type"] == "OSError"
        assert [event.name for event in run.events] == ["exception"]


async def test_what_a_handler_enqueues_is_linked_to_the_handlers_span(app: Mainspring, traced: Traced) -> None:
    @app.task(name="child")
    async def child() -> None: ...

    @app.task(name="thread_parent")
    def thread_parent() -> None:
        child.enqueue_sync()

    @app.task(name="parent")
    async def parent() -> None:
        await thread_parent.enqueue()
        with traced.tracer.start_as_current_span("inside"):
            await child.enqueue()

    async with app, app.node():
        with traced.tracer.start_as_current_span("request"):
            await parent.enqueue()
        while len(traced.spans("run child")) < 2:
            await asyncio.sleep(1)
    inside, outer = traced.one("inside"), traced.one("run parent")
    assert inside.parent is not None
    assert inside.parent.span_id == place(outer)[1]
    assert linked(traced.one("run thread_parent")) == [place(outer)]
    links = [linked(run) for run in traced.spans("run child")]
    assert sorted(links) == sorted([[place(inside)], [place(traced.one("run thread_parent"))]])
    assert all("mainspring.parent" in (run.attributes or {}) for run in traced.spans("run child"))


@pytest.mark.parametrize(
    ("raised", "outcome", "status"),
    [
        (Snooze("1h"), "put_off", StatusCode.UNSET),
        (RetryIn("1h"), "raised", StatusCode.ERROR),
        (Fail("no such user"), "raised", StatusCode.ERROR),
    ],
)
async def test_the_status_is_that_of_the_outcome(
    app: Mainspring, traced: Traced, raised: Exception, outcome: str, status: StatusCode
) -> None:
    @app.task(name="work")
    async def work() -> None:
        raise raised

    async with app, app.node():
        await work.enqueue()
        while not traced.spans("run work"):
            await asyncio.sleep(1)
    run = traced.one("run work")
    assert ((run.attributes or {})["mainspring.outcome"], run.status.status_code) == (outcome, status)
    assert run.links == ()


async def test_who_runs_out_of_time_has_failed_and_who_is_cancelled_has_not(app: Mainspring, traced: Traced) -> None:
    @app.task(name="slow", timeout="5s", retry=Retry.none())
    async def slow() -> None:
        await asyncio.sleep(3600)

    @app.task(name="long")
    async def long() -> None:
        await asyncio.sleep(3600)

    async with app, app.node():
        job, other = await slow.enqueue(), await long.enqueue()
        await ended(job)
        await other.cancel()
        await ended(other)
    late, cancelled = traced.one("run slow"), traced.one("run long")
    assert (late.status.status_code, (late.attributes or {})["error.type"]) == (StatusCode.ERROR, "TimeoutError")
    assert (cancelled.status.status_code, (cancelled.attributes or {})["mainspring.outcome"]) == (
        StatusCode.UNSET,
        "stopped",
    )


async def test_what_is_said_outright_counts_and_what_makes_no_sense_is_no_link(app: Mainspring, traced: Traced) -> None:
    @app.task(name="work")
    async def work() -> None: ...

    async with app, app.node():
        with traced.tracer.start_as_current_span("request"):
            await ended(await work.using(traceparent=LONG_AGO).enqueue())
            await ended(await work.using(traceparent="nonsense").enqueue())
    said, nonsense = traced.spans("run work")
    assert linked(said) == [(0x0AF7651916CD43DD8448EB211C80319C, 0xB7AD6B7169203331)]
    assert nonsense.links == ()


async def test_calls_are_linked_to_where_they_were_made(app: Mainspring, traced: Traced) -> None:
    @app.task(name="work")
    async def work(number: int) -> None: ...

    async with app, app.node():
        with traced.tracer.start_as_current_span("request"):
            calls = [work.call(number) for number in range(3)]
        for job in await app.enqueue_many(calls):
            await ended(job)
    assert {tuple(linked(run)) for run in traced.spans("run work")} == {(place(traced.one("request")),)}


async def test_a_message_keeps_where_it_was_published_and_the_job_that_it_becomes_too(
    app: Mainspring, traced: Traced
) -> None:
    orders = app.outbox("orders", partitions=1)

    @app.task(name="ship")
    async def ship(order: dict[str, int]) -> None: ...

    orders.to(ship)
    async with app, app.node():
        with traced.tracer.start_as_current_span("request"):
            await orders.publish(None, {"n": 1})
        while not traced.spans("run ship"):
            await asyncio.sleep(1)
    assert linked(traced.one("run ship")) == [place(traced.one("request"))]


@pytest.mark.parametrize("in_thread", [False, True])
async def test_what_a_handler_of_messages_enqueues_comes_from_its_delivery_and_that_from_where_it_was_published(
    app: Mainspring, traced: Traced, in_thread: bool
) -> None:
    orders = app.outbox("orders", partitions=1)

    @app.task(name="ship")
    async def ship() -> None: ...

    async def deliver(_: Message[Any]) -> None:
        await ship.enqueue()

    def deliver_in_thread(_: Message[Any]) -> None:
        ship.enqueue_sync()

    orders.handler(deliver_in_thread if in_thread else deliver)
    async with app, app.node():
        for name in ("first", "second"):
            with traced.tracer.start_as_current_span(name):
                await orders.publish(None, {"n": 1})
        await orders.publish(None, {"n": 2})
        while len(traced.spans("run ship")) < 3:
            await asyncio.sleep(1)
    links = [linked(run) for run in traced.spans("run ship")]
    assert sorted(links) == sorted([place(delivery)] for delivery in traced.spans("deliver orders"))
    came = [linked(delivery) for delivery in traced.spans("deliver orders")]
    assert sorted(came) == sorted([[place(traced.one("first"))], [place(traced.one("second"))], []])
    assert len({place(one)[0] for one in (*traced.spans("deliver orders"), traced.one("first"))}) == 4  # traces


async def test_what_nobody_samples_is_linked_to_where_its_message_was_published(
    virtual_time: VirtualTime, traced: Traced
) -> None:
    app = Mainspring(MemoryStore(clock=virtual_time.clock), clock=virtual_time.clock)
    instrument(app, TracerProvider(sampler=ALWAYS_OFF))
    orders = app.outbox("orders", partitions=1)

    @app.task(name="ship")
    async def ship() -> None: ...

    @orders.handler
    async def deliver(_: Message[Any]) -> None:
        await ship.enqueue()

    async with app, app.node():
        with traced.tracer.start_as_current_span("request"):
            await orders.publish(None, {"n": 1})
        await asyncio.sleep(5)
        (view,) = (await app.jobs(task="ship")).jobs
    trace_id, span_id = place(traced.one("request"))
    assert (view.facts.traceparent or "").startswith(f"00-{trace_id:032x}-{span_id:016x}-")


async def test_a_batch_is_one_delivery_with_a_link_to_each_place(app: Mainspring, traced: Traced) -> None:
    orders = app.outbox("orders", partitions=1)

    @orders.handler(batch=True)
    async def deliver(batch: Batch[Any]) -> None:
        assert list(batch)

    async with app:
        for name in ("first", "second"):
            with traced.tracer.start_as_current_span(name):
                for number in range(2):
                    await orders.publish(None, {"n": number})
        async with app.node():
            await asyncio.sleep(10)
    span = traced.one("deliver orders")
    assert sorted(linked(span)) == sorted([place(traced.one("first")), place(traced.one("second"))])
    assert span.attributes is not None
    assert span.attributes["messaging.batch.message_count"] == 4
    assert span.attributes["messaging.message.id"] == "orders/0/1"
    assert span.attributes["mainspring.outcome"] == "succeeded"


async def test_a_delivery_that_goes_wrong_says_how(app: Mainspring, traced: Traced) -> None:
    orders = app.outbox("orders", partitions=1)

    @orders.handler(max_attempts=3, timeout="1s")
    async def deliver(message: Message[Any]) -> None:
        if message.attempt == 1:
            raise ValueError("no")
        if message.attempt == 2:
            await asyncio.sleep(10)

    async with app, app.node():
        await orders.publish(None, {"n": 1})
        while len(traced.spans("deliver orders")) < 3:
            await asyncio.sleep(1)
    spans = traced.spans("deliver orders")
    told = [span.attributes["mainspring.outcome"] for span in spans if span.attributes]
    assert told == ["raised", "stopped", "succeeded"]
    assert [span.attributes.get("error.type") for span in spans if span.attributes] == [
        "ValueError",
        "TimeoutError",
        None,
    ]
    assert [span.status.status_code for span in spans] == [StatusCode.ERROR, StatusCode.ERROR, StatusCode.UNSET]


async def test_a_slot_of_a_schedule_comes_from_nowhere_and_names_its_schedule(app: Mainspring, traced: Traced) -> None:
    with traced.tracer.start_as_current_span("import"):  # where it is declared is not where it comes from

        @app.schedule(Every("1h"))
        @app.task(name="hourly")
        async def hourly() -> None: ...

    async with app, app.node():
        await asyncio.sleep(3700)
    run = traced.spans("run hourly")[0]
    assert run.links == ()
    assert (run.attributes or {})["mainspring.schedule"] == "hourly"


async def test_a_node_inside_of_a_span_lends_it_to_nobody(app: Mainspring, traced: Traced) -> None:
    @app.task(name="work")
    async def work() -> None: ...

    async with app:
        job = await work.enqueue()
        with traced.tracer.start_as_current_span("main"):
            async with app.node():
                await ended(job)
    run = traced.one("run work")
    assert (run.parent, run.links) == (None, ())


async def test_a_plugins_tasks_are_traced_like_any(app: Mainspring, traced: Traced) -> None:
    plugin = Plugin("photos", "1", requires=[BackgroundJobs(), Schedules()])

    @plugin.job(schedule=Every("1h"))
    async def sweep() -> None: ...

    @plugin.task
    async def shrink() -> None: ...

    app.install(plugin, grant="all")
    async with app, app.node():
        with traced.tracer.start_as_current_span("request"):
            await ended(await shrink.enqueue())
    assert linked(traced.one("run photos:shrink")) == [place(traced.one("request"))]


async def test_spans_that_nobody_keeps_change_nothing(virtual_time: VirtualTime) -> None:
    app = Mainspring(MemoryStore(clock=virtual_time.clock), clock=virtual_time.clock)
    provider = TracerProvider(sampler=ALWAYS_OFF)
    instrument(app, provider)
    seen: list[object] = []

    @app.task(name="work")
    async def work() -> int:
        seen.append(trace.get_current_span())
        return 7

    async with app, app.node():
        assert await (await work.enqueue()).result() == 7
    assert seen == [trace.INVALID_SPAN]
    provider.shutdown()


async def test_without_an_sdk_nothing_is_kept_and_all_goes_on(virtual_time: VirtualTime) -> None:
    app = Mainspring(MemoryStore(clock=virtual_time.clock), clock=virtual_time.clock)
    instrument(app)

    @app.task(name="work")
    async def work() -> int:
        return 7

    async with app, app.node():
        job = await work.enqueue()
        assert await job.result() == 7
        assert (await job.refresh()).facts.traceparent is None


async def test_one_app_is_instrumented_and_another_is_not(app: Mainspring, traced: Traced) -> None:
    other = Mainspring(MemoryStore(clock=app.clock), clock=app.clock)

    @other.task(name="work")
    async def work() -> None: ...

    with traced.tracer.start_as_current_span("request"):
        job = await work.enqueue()
    assert (await job.refresh()).facts.traceparent is None
    await other.close()


def test_an_app_is_instrumented_once(traced: Traced) -> None:
    app = Mainspring("memory://")
    instrument(app, traced.provider)
    with pytest.raises(DeclarationError, match="already"):
        instrument(app, traced.provider)


def test_a_traceparent_is_written_as_the_standard_has_it(traced: Traced) -> None:
    assert otel.current_traceparent() is None
    with traced.tracer.start_as_current_span("x") as span:
        context = span.get_span_context()
        carrier: dict[str, str] = {}
        TraceContextTextMapPropagator().inject(carrier)
        assert otel.current_traceparent() == carrier["traceparent"]
        assert f"{context.trace_id:032x}" in carrier["traceparent"]


# In process slots.

SHOP = """
from mainspring import Mainspring

app = Mainspring("sqlite:///{folder}/jobs.db")

@app.task(name="child")
def child() -> None: ...

@app.task(name="heavy", executor="process")
def heavy() -> str:
    return str(child.enqueue_sync().id)

@app.task(name="heavy_async", executor="process")
async def heavy_async() -> str:
    return str((await child.enqueue()).id)
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", ["heavy", "heavy_async"])
def test_what_a_process_slot_enqueues_is_linked_to_the_span_of_its_attempt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, traced: Traced, name: str
) -> None:
    module = f"traced_{name}_shop"
    (tmp_path / f"{module}.py").write_text(SHOP.format(folder=tmp_path), encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    app: Mainspring = __import__(module).app
    monkeypatch.delitem(sys.modules, module)
    instrument(app, traced.provider)  # the child process is not instrumented, and need not be

    async def story() -> None:
        async with app, app.node():
            with traced.tracer.start_as_current_span("request"):
                job = await app.enqueue(name)
            child = await job.result(timeout="20s")
            await app.job(child).result(timeout="20s")

    asyncio.run(story())
    heavy = traced.one(f"run {name}")
    assert linked(heavy) == [place(traced.one("request"))]
    assert linked(traced.one("run child")) == [place(heavy)]
