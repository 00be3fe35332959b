"""From a function and what was said about it to a service of an app. What is wrong is told all at once."""

import inspect
from collections.abc import Callable, Coroutine, Iterable, Mapping
from datetime import timedelta
from typing import Any, Final, Literal, TypeAlias, TypedDict

from mainspring.client.function import default_name
from mainspring.client.options import Reader, read_all, read_text
from mainspring.core.backoff import Backoff
from mainspring.core.names import Name
from mainspring.duration import Duration, duration
from mainspring.errors import DeclarationError
from mainspring.runtime.named_lease import SHORTEST
from mainspring.runtime.service import ServiceContext, ServiceDefinition
from mainspring.supervise import Bulkhead, Directive, Interval, Listener, Pacing, Wake, every, log_failures
from mainspring.supervise.service import DEFAULT_BACKOFF, DEFAULT_PACING, UNLIMITED

__all__ = ["ServiceContext", "ServiceFunction", "ServiceOptions", "declare_service"]

ServiceFunction: TypeAlias = (
    Callable[[], Coroutine[Any, Any, Directive | None]]
    | Callable[[ServiceContext], Coroutine[Any, Any, Directive | None]]
)
"""What `@app.service` decorates."""


class ServiceOptions(TypedDict, total=False):
    """What `@app.service` takes. None stands for nothing said."""

    name: str | None
    """Without one it is `module.function`."""
    every: Duration | None
    """Wakes it at a fixed rate."""
    wake: Wake | Iterable[Wake] | None
    """What wakes it beside that: notifiers, and intervals made by `every`."""
    start_idle: bool | None
    """Whether it waits to be woken, instead of starting with a step."""
    singleton: bool | None
    """Whether it runs on one node at a time, over the whole store."""
    ttl: Duration | None
    """How long after the death of its node another may run a singleton; without it the node's lease time."""
    pacing: Pacing | None
    bulkhead: Bulkhead | None
    backoff: Backoff | None
    listeners: Iterable[Listener] | None
    """Told of its steps; without them, failures are logged."""
    on_panic: Literal["retry", "propagate"] | None


def declare_service(function: Callable[..., Any], given: ServiceOptions) -> ServiceDefinition:
    """Make the definition of a service, or raise `DeclarationError` with everything that stands against it."""
    values, problems = read_all(given, _READERS)
    name = values.get("name") or _name_of(function, problems)
    problems += _of_the_function(function)
    definition = ServiceDefinition(
        name=name,
        function=function,
        takes_context=bool(_parameters(function)),
        wake=(*values.get("wake", ()), *values.get("every", ())),
        start_idle=values.get("start_idle", False),
        pacing=values.get("pacing", DEFAULT_PACING),
        bulkhead=values.get("bulkhead", UNLIMITED),
        backoff=values.get("backoff", DEFAULT_BACKOFF),
        listeners=values.get("listeners", (log_failures,)),
        on_panic=values.get("on_panic", "retry"),
        is_singleton=values.get("singleton", False),
        ttl=values.get("ttl"),
    )
    problems += _of_the_loop(definition)
    if definition.ttl and not definition.is_singleton:
        problems.append("ttl is the lifetime of a singleton's lease; say singleton=True, or leave it out")
    DeclarationError.unless(f"service {name}", ((False, problem) for problem in problems))
    return definition


def _name_of(function: Callable[..., Any], problems: list[str]) -> Name:
    try:
        return default_name(function)
    except DeclarationError as error:
        problems.append(error.problem)
        return Name("", "without-a-name")


def _of_the_function(function: Callable[..., Any]) -> list[str]:
    if not inspect.iscoroutinefunction(function):
        return [f"a service is an `async def`, and not {function!r}; blocking code goes into asyncio.to_thread"]
    parameters = _parameters(function)
    strange = [name for name, parameter in parameters.items() if not _is_context(parameter.annotation)]
    if strange:
        named = " and ".join(f"`{name}`" for name in strange)
        return [f"nobody would pass {named}: its step takes nothing, or one parameter annotated with ServiceContext"]
    if len(parameters) > 1:
        return [f"one parameter takes the ServiceContext, not {' and '.join(parameters)}"]
    return []


def _parameters(function: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """The parameters that have to be passed."""
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):  # it can be called by nobody who looks, and is no `async def` then
        return {}
    optional = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return {
        name: parameter
        for name, parameter in parameters.items()
        if _is_context(parameter.annotation)
        or (parameter.default is inspect.Parameter.empty and parameter.kind not in optional)
    }


def _is_context(annotation: object) -> bool:
    """Say whether an annotation is the context's, written out or kept as text, as `from __future__` does."""
    if isinstance(annotation, str):
        return annotation.strip("'\" ").rpartition(".")[2] == ServiceContext.__name__
    return annotation is ServiceContext


def _of_the_loop(definition: ServiceDefinition) -> list[str]:
    """Ask the loop that each node will make what it has to say against its options."""
    try:
        definition.service(_no_step)
    except DeclarationError as error:
        return [error.problem]
    return []


async def _no_step() -> Directive:
    raise NotImplementedError


def _read_name(value: object) -> Name:
    return Name.parse(read_text(value))


def _read_every(value: Duration) -> tuple[Interval]:
    return (every(value),)


def _read_several(value: object) -> tuple[object, ...]:
    """Read one of something, or several; what they are, the loop says."""
    return tuple(value) if isinstance(value, Iterable) and not isinstance(value, str) else (value,)


def _read_flag(value: object) -> bool:
    if isinstance(value, bool):
        return value
    raise DeclarationError(repr(value), "it is True or False")


def _read_ttl(value: Duration) -> timedelta:
    ttl = duration(value)
    if ttl < SHORTEST:
        raise DeclarationError("ttl", f"a ttl under {SHORTEST.total_seconds():g} s cannot be kept")
    return ttl


def _as_it_is(value: object) -> object:
    return value


_READERS: Final[Mapping[str, Reader]] = {
    "name": _read_name,
    "every": _read_every,
    "wake": _read_several,
    "start_idle": _read_flag,
    "singleton": _read_flag,
    "ttl": _read_ttl,
    "pacing": _as_it_is,
    "bulkhead": _as_it_is,
    "backoff": _as_it_is,
    "listeners": _read_several,
    "on_panic": _as_it_is,
}
