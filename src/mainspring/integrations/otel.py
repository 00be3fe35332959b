"""Traces in OpenTelemetry: `instrument(app)`. Needs the extra `otel`, and an SDK of the program's own that takes spans.

A job keeps the traceparent of the span that enqueued it. Each attempt is a span of a trace of its own with a link to that
one, and no child of it: a job may run days later, and more than once, in a trace that nobody would ever finish. What its
handler enqueues is linked to the attempt's span. Messages of outboxes are the same: each delivery is a span.
"""

import asyncio
import importlib.metadata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, Final

try:
    from opentelemetry import trace
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "mainspring.integrations.otel needs OpenTelemetry: install Mainspring with the extra 'otel'", name=error.name
    ) from error
from opentelemetry.context import Context as TraceContext
from opentelemetry.trace import Link, ProxyTracerProvider, Span, SpanKind, StatusCode, TracerProvider
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from opentelemetry.util.types import AttributeValue

from mainspring.app import Mainspring
from mainspring.core.outcome import Fail, RetryIn, Signal
from mainspring.outbox.message import Message
from mainspring.runtime.call import current_trace
from mainspring.runtime.context import Context
from mainspring.runtime.middleware import Next

# By hand: the conventions for messaging are still in development, and their package may drop a name with any release.
SYSTEM: Final = "messaging.system"
OPERATION: Final = "messaging.operation.name"
OPERATION_TYPE: Final = "messaging.operation.type"
DESTINATION: Final = "messaging.destination.name"
PARTITION: Final = "messaging.destination.partition.id"
MESSAGE: Final = "messaging.message.id"
BATCH: Final = "messaging.batch.message_count"
ERROR: Final = "error.type"
TASK: Final = "mainspring.task"
ATTEMPT: Final = "mainspring.attempt"
MAX_ATTEMPTS: Final = "mainspring.max_attempts"
PARENT: Final = "mainspring.parent"
SCHEDULE: Final = "mainspring.schedule"
OUTCOME: Final = "mainspring.outcome"
"""`succeeded`, `raised`, `put_off` (it asked to come again, and that is no failure) or `stopped` (from outside)."""

_EMPTY: Final = TraceContext()
_PROPAGATOR: Final = TraceContextTextMapPropagator()


def instrument(app: Mainspring, tracer_provider: TracerProvider | None = None) -> None:
    """Trace an app: what it enqueues and publishes keeps where that was done, and what its nodes run becomes spans.

    Call it once, where the app is declared, before its other middleware: what comes later runs within the span. Without
    a `tracer_provider` the program's global one counts, whenever that is set.
    """
    tracing = Tracing(tracer_provider)
    app.traced_by(current_traceparent, deliveries=Deliveries(tracing))
    app.middleware(Spans(tracing))


def current_traceparent() -> str | None:
    """Say which span the running code is in; None if it is in none."""
    context = trace.get_current_span().get_span_context()
    if not context.is_valid:
        return None
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"


class Tracing:
    """Where spans go."""

    def __init__(self, tracer_provider: TracerProvider | None = None) -> None:
        self._is_given: Final = tracer_provider is not None
        self._tracer: Final = trace.get_tracer(
            "mainspring", importlib.metadata.version("mainspring"), tracer_provider=tracer_provider
        )

    def begun(
        self, name: str, attributes: Mapping[str, AttributeValue], traceparents: Iterable[str | None]
    ) -> Span | None:
        """Begin a span of a trace of its own; None if nobody keeps it: no more is spent on it."""
        if not self._is_given and isinstance(trace.get_tracer_provider(), ProxyTracerProvider):
            return None  # the program has none: a span that goes nowhere would take 9 µs
        span = self._tracer.start_span(
            name,
            context=_EMPTY,  # a node may have been started within a span, of which its jobs are no part
            kind=SpanKind.CONSUMER,
            attributes=attributes,
            links=_links(traceparents),
        )
        return span if span.is_recording() else None


class Spans:
    """A middleware that makes a span of each attempt."""

    def __init__(self, tracing: Tracing) -> None:
        self._tracing: Final = tracing

    async def __call__(self, context: Context, call_next: Next) -> object:
        span = self._tracing.begun(f"run {context.task}", _attributes(context), [context.traceparent])
        if span is None:
            return await call_next()
        with trace.use_span(span, end_on_exit=True, record_exception=False, set_status_on_exception=False):
            current_trace.set(current_traceparent())
            try:
                value = await call_next()
            except BaseException as error:
                _end(span, error, is_stopped=context.cancelled, is_late=context.remaining() == 0.0)
                raise
            span.set_attribute(OUTCOME, "succeeded")
            return value


class Deliveries:
    """Makes a span of each call of an outbox's handler, with a link to where each message was published."""

    def __init__(self, tracing: Tracing) -> None:
        self._tracing: Final = tracing

    @contextmanager
    def __call__(self, messages: Sequence[Message[Any]]) -> Iterator[None]:
        first = messages[0]
        attributes: dict[str, AttributeValue] = {
            SYSTEM: "mainspring",
            OPERATION: "deliver",
            OPERATION_TYPE: "process",
            DESTINATION: first.outbox,
            PARTITION: str(first.partition),
            MESSAGE: first.id,
            BATCH: len(messages),
            ATTEMPT: first.attempt,
        }
        traceparents = dict.fromkeys(message.traceparent for message in messages)
        span = self._tracing.begun(f"deliver {first.outbox}", attributes, traceparents)
        if span is None:
            yield
            return
        with trace.use_span(span, end_on_exit=True, record_exception=False, set_status_on_exception=False):
            current_trace.set(current_traceparent())
            try:
                yield
            except BaseException as error:
                _end(span, error, is_late=first.remaining() <= timedelta(0))
                raise
            span.set_attribute(OUTCOME, "succeeded")


def _attributes(context: Context) -> dict[str, AttributeValue]:
    attributes: dict[str, AttributeValue] = {
        SYSTEM: "mainspring",
        OPERATION: "run",
        OPERATION_TYPE: "process",
        DESTINATION: context.queue,
        MESSAGE: str(context.job),
        TASK: context.task,
        ATTEMPT: context.attempt,
        MAX_ATTEMPTS: context.max_attempts,
    }
    if context.parent is not None:
        attributes[PARENT] = str(context.parent)
    if context.schedule is not None:
        attributes[SCHEDULE] = context.schedule
    return attributes


def _links(traceparents: Iterable[str | None]) -> list[Link]:
    carriers = [{"traceparent": one} for one in traceparents if one is not None]
    found = [trace.get_current_span(_PROPAGATOR.extract(one, _EMPTY)).get_span_context() for one in carriers]
    return [Link(one) for one in found if one.is_valid]


def _end(span: Span, error: BaseException, *, is_stopped: bool = False, is_late: bool = False) -> None:
    """Say how an attempt ended that did not return. Who has been stopped did not fail, unless its time was up."""
    if isinstance(error, Signal) and not isinstance(error, Fail | RetryIn):
        span.set_attribute(OUTCOME, "put_off")
        return
    if isinstance(error, asyncio.CancelledError) or is_stopped:
        span.set_attribute(OUTCOME, "stopped")
        if is_late:
            span.set_attribute(ERROR, "TimeoutError")
            span.set_status(StatusCode.ERROR, "it ran out of time")
        return
    span.set_attribute(OUTCOME, "raised")
    span.set_attribute(ERROR, type(error).__qualname__)
    span.record_exception(error)
    span.set_status(StatusCode.ERROR, str(error)[:500])
