"""An outbox as it was declared here, and the handler that its messages are delivered to."""

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from typing import Any, Final, Generic, TypedDict, TypeVar

from mainspring.core.outbox import Delivery, Order
from mainspring.core.retry import GREATEST
from mainspring.duration import Duration, duration
from mainspring.errors import DeclarationError
from mainspring.outbox.events import Counts, DeliveryListener
from mainspring.outbox.payloads import Payloads
from mainspring.outbox.tuning import TUNABLE, Tuning
from mainspring.supervise import Pacing

T = TypeVar("T")

MAX_ATTEMPTS: Final = 10
TIMEOUT: Final = timedelta(seconds=30)
TRANSACTION_TIMEOUT: Final = timedelta(seconds=2)
"""A transaction that is held for long is in everybody's way: on SQLite nobody else can write, on PostgreSQL nothing can
be cleared away."""


class Mode(StrEnum):
    """What a handler's effects and the acknowledgement of its messages have to do with each other."""

    LEASED = "leased"
    """At least once: acknowledged after the handler has returned, while nobody else has taken over."""
    TRANSACTIONAL = "transactional"
    """Effects in the store's own database exactly once: they are committed with the acknowledgement."""


class HandlerOptions(TypedDict, total=False):
    """What `outbox.handler` takes."""

    mode: str
    """"leased" or "transactional"."""
    batch: bool
    """Whether the handler takes a `Batch` of messages instead of one after the other."""
    order: str
    """What waits while a message is to be tried again: its whole "partition", or only what has its "key"."""
    max_attempts: int
    """Deliveries that a message may have altogether; then it becomes a dead letter."""
    timeout: Duration
    """How long each call of the handler may take; in a transaction, all calls of a delivery together."""
    profile: str | Tuning
    """"default", "low_latency", "high_throughput", "relaxed", or a `Tuning`. What is said beside it counts instead."""
    size: int
    """Messages that a delivery holds at most."""
    min_interval: Duration
    active_interval: Duration
    ramp_step: Duration
    retry_base: Duration
    retry_max: Duration
    degrade_after: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Handler:
    """A function that messages are delivered to, and the rules of that."""

    function: Callable[..., Any]
    mode: Mode
    rules: Delivery
    pacing: Pacing
    spacing: timedelta
    """How far apart looks for new messages are at least, on its behalf."""
    timeout: timedelta
    is_async: bool
    prefers_transactions: bool = False
    """It is leased only where the store has no transactions."""

    @property
    def name(self) -> str:
        return str(getattr(self.function, "__qualname__", repr(self.function)))


@dataclass(slots=True, kw_only=True, eq=False)
class OutboxDefinition(Generic[T]):
    """An outbox of this program."""

    name: str
    partitions: int
    payloads: Payloads[T]
    handler: Handler | None = None
    listeners: list[DeliveryListener] = field(default_factory=list)
    counts: list[Counts] = field(default_factory=list)
    """What was delivered by this program's nodes, by partition."""

    def __post_init__(self) -> None:
        self.counts = [Counts() for _ in range(self.partitions)]


def declare_handler(outbox: str, function: Callable[..., Any], given: HandlerOptions) -> Handler:
    """Make a handler of a function, or raise `DeclarationError` with everything that stands against it."""
    problems: list[str] = []
    known = HandlerOptions.__annotations__.keys()
    problems += [f"there is no option `{name}`" for name in given if name not in known]
    mode = _member(Mode, "mode", given.get("mode", "leased"), problems)
    order = _member(Order, "order", given.get("order", "partition"), problems)
    batch: object = given.get("batch", False)
    attempts = given.get("max_attempts", MAX_ATTEMPTS)
    if type(attempts) is not int or not 1 <= attempts <= GREATEST:
        problems.append(f"max_attempts is a number of deliveries, at least 1, not {attempts!r}")
    if not isinstance(batch, bool):
        problems.append(f"batch is True or False, not {batch!r}; how many a delivery holds is `size`")
    tuning = _tuning(given, problems)
    timeout = _timeout(given, mode, problems)
    problems += _of_the_function(function, mode)
    DeclarationError.unless(f"handler of outbox {outbox}", ((False, problem) for problem in problems))
    return Handler(
        function=function,
        mode=mode,
        rules=Delivery(
            batch=tuning.size,
            max_attempts=attempts,
            degrade_after=tuning.degrade_after,
            backoff=tuning.backoff,
            order=order,
            by_message=not batch,
        ),
        pacing=tuning.pacing,
        spacing=duration(tuning.min_interval),
        timeout=timeout,
        is_async=is_async(function),
    )


E = TypeVar("E", bound=StrEnum)


def _member(kind: type[E], option: str, value: object, problems: list[str]) -> E:
    try:
        return kind(str(value))
    except ValueError:
        problems.append(f"{option} is {' or '.join(map(repr, map(str, kind)))}, not {value!r}")
        return next(iter(kind))


def _tuning(given: HandlerOptions, problems: list[str]) -> Tuning:
    options = {name: value for name, value in given.items() if name in TUNABLE}
    try:
        return Tuning.of(given.get("profile", "default"), options)  # type: ignore[arg-type]  # the tunable ones of them
    except DeclarationError as error:
        problems.append(error.problem if error.subject in {"tuning", "profile"} else str(error))
        return Tuning()


def _timeout(given: HandlerOptions, mode: Mode, problems: list[str]) -> timedelta:
    otherwise = TRANSACTION_TIMEOUT if mode is Mode.TRANSACTIONAL else TIMEOUT
    try:
        timeout = duration(given.get("timeout", otherwise))
    except DeclarationError as error:
        problems.append(str(error))
        return otherwise
    if not timeout:
        problems.append("a timeout of nothing leaves no time")
    return timeout


def _of_the_function(function: object, mode: Mode) -> Iterator[str]:
    if not callable(function) or isinstance(function, type):
        yield f"a handler is a function, and not {function!r}"
        return
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        yield "a generator runs nothing by being called; return instead of yielding"
    taken = len(_positional(function))
    if mode is Mode.TRANSACTIONAL:
        if taken != 2:
            yield "in a transaction it takes what is delivered and the transaction: `async def handle(message, tx)`"
        if not is_async(function):
            yield "in a transaction it is an `async def`, since the transaction belongs to the node's event loop"
    elif taken != 1:
        yield "it takes what is delivered, and nothing else, unless mode='transactional': `async def handle(message)`"


def _positional(function: Callable[..., Any]) -> list[inspect.Parameter]:
    """The parameters that have to be passed."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return []
    optional = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [one for one in parameters if one.default is inspect.Parameter.empty and one.kind not in optional]


def is_async(function: object) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004 - the method itself is asked
