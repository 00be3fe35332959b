"""From a function and what was said about it to the definition of a task. What is wrong is told all at once."""

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any, Final, Literal, TypedDict

from msgspec.structs import replace

from mainspring.client.function import context_parameters, default_name, reference_of, result_type
from mainspring.client.keys import Keys
from mainspring.client.options import (
    Priority,
    Reader,
    read_all,
    read_count,
    read_priority,
    read_queue,
    read_retention,
    read_texts,
)
from mainspring.core.breaker import Breaker
from mainspring.core.codec import LIMIT, Arguments, Value
from mainspring.core.job import Retention
from mainspring.core.limits import Limit
from mainspring.core.names import Name
from mainspring.core.retry import Retry
from mainspring.core.unique import Unique
from mainspring.duration import Duration, duration
from mainspring.errors import DeclarationError
from mainspring.runtime.definition import DEFAULT_QUEUE, DEFAULT_RETRY, Definition, ExecutorKind


class TaskOptions(TypedDict, total=False):
    """What `@app.task` takes. None stands for nothing said."""

    name: str | None
    """Without one it is `module.function`."""
    aliases: str | Iterable[str] | None
    """Names it had before: jobs that wait under them run too."""
    queue: str | None
    priority: Priority | None
    retry: Retry | None
    max_attempts: int | None
    """Executions in total, instead of what the retry policy says."""
    timeout: Duration | None
    expires: Duration | None
    """How long after it is due a job is still worth starting."""
    executor: Literal["coroutine", "thread", "process"] | None
    """Where it runs: as a "coroutine" on the node's loop, in a "thread", or in a "process" that can be killed."""
    unique: Unique | bool | None
    limit: Limit | Sequence[Limit] | None
    """At most one for the task as a whole, and one for each value of a key."""
    breaker: Breaker | bool | None
    """When it stops for a while because it fails again and again; True: after 10 failures in a row, for 30 s."""
    retention: Retention | None
    keep: Duration | None
    """How long finished jobs are kept, however they ended: short for a retention."""
    loss_limit: int | None
    """Attempts that may be lost with their node in a row."""
    payload_limit: int | None
    """Bytes of JSON that the arguments may have, and the result."""
    redact: str | Iterable[str] | bool | None
    """Names whose values are not shown over HTTP, beside those that never are; True: no argument is."""


def declare(function: Callable[..., object], given: TaskOptions) -> Definition:
    """Make the definition of a task, or raise `DeclarationError` with everything that stands against it."""
    draft = _Draft(function, given)
    subject = f"task {draft.label}"
    DeclarationError.unless(subject, draft.requirements())
    return draft.definition()


class _Draft:
    """A task that is being declared."""

    def __init__(self, function: Callable[..., object], given: TaskOptions) -> None:
        self._function = function
        self._given, self._problems = read_all(given, _READERS)
        self._is_async = inspect.iscoroutinefunction(function)
        self._name: Name | None = self._given.get("name") or self._try(lambda: default_name(function), None)
        self.label = str(self._name or getattr(function, "__qualname__", repr(function)))
        self._context = self._try(lambda: context_parameters(function), [])
        self._arguments = self._try(self._read_arguments, None)
        self._result = self._try(self._read_result, None)
        self._executor: ExecutorKind = self._given.get("executor") or (
            ExecutorKind.COROUTINE if self._is_async else ExecutorKind.THREAD
        )
        self._limits: tuple[Limit, ...] = self._given.get("limit", ())

    def _try(self, read: Callable[[], Any], otherwise: Any) -> Any:  # noqa: ANN401 - whatever is read
        try:
            return read()
        except DeclarationError as error:
            self._problems.append(error.problem)
            return otherwise

    def _read_arguments(self) -> Arguments:
        limit = self._given.get("payload_limit", LIMIT)
        return Arguments.of(self._function, subject=self.label, injected=self._context, limit=limit)

    def _read_result(self) -> Value[Any]:
        limit = self._given.get("payload_limit", LIMIT)
        try:
            return Value.of(result_type(self._function), subject=f"result of {self.label}", limit=limit)
        except DeclarationError as error:
            raise DeclarationError(self.label, f"its result: {error.problem}") from error

    def requirements(self) -> Iterator[tuple[bool, str]]:
        yield from ((False, problem) for problem in self._problems)
        yield len(self._context) <= 1, f"one parameter takes the Context, not {' and '.join(self._context)}"
        yield "keep" not in self._given or "retention" not in self._given, "keep is short for retention; give one"
        yield from self._of_the_executor()
        yield sum(not limit.keys for limit in self._limits) <= 1, "give one limit for the task as a whole, not several"
        yield sum(bool(limit.keys) for limit in self._limits) <= 1, "give one limit with a key, not several"
        if self._arguments:
            yield from self._of_the_keys(Keys(self._arguments))

    def _of_the_executor(self) -> Iterator[tuple[bool, str]]:
        if self._executor is ExecutorKind.COROUTINE:
            yield self._is_async, "executor 'coroutine' needs an `async def`; a plain `def` would block the loop"
        if self._executor is ExecutorKind.PROCESS:
            reference, advice = reference_of(self._function)
            yield reference is not None, f"executor 'process' finds the function by importing it: {advice}"

    def _of_the_keys(self, keys: Keys) -> Iterator[tuple[bool, str]]:
        unique: Unique | None = self._given.get("unique")
        wanted = [("unique", name) for name in (unique.keys or () if unique else ())]
        wanted += [("limit", name) for limit in self._limits for name in limit.keys]
        for option, name in wanted:
            known = ", ".join(f"`{one}`" for one in keys.names) or "it has none"
            yield name in keys.names, f"{option}: there is no argument `{name}` to make a key of: {known}"
            yield keys.can_default(name), f"{option}: the default of `{name}` cannot be written as JSON"

    def definition(self) -> Definition:
        given = self._given
        return Definition(
            name=self._name or Name("", self.label),
            function=self._function,
            arguments=self._arguments,
            result=self._result,
            executor=self._executor,
            context=self._context[0] if self._context else None,
            reference=reference_of(self._function)[0],
            aliases=given.get("aliases", ()),
            queue=given.get("queue", DEFAULT_QUEUE),
            priority=given.get("priority", 50),
            retry=self._retry(),
            timeout=given.get("timeout"),
            expires=given.get("expires"),
            loss_limit=given.get("loss_limit", 3),
            retention=given.get("retention") or given.get("keep") or Retention(),
            unique=given.get("unique"),
            limits=self._limits,
            breaker=given.get("breaker"),
            redact=given.get("redact", ()),
        )

    def _retry(self) -> Retry:
        retry: Retry = self._given.get("retry", DEFAULT_RETRY)
        return replace(retry, max_attempts=self._given.get("max_attempts", retry.max_attempts))


def _read_name(value: object) -> Name:
    (text,) = read_texts(value)
    return Name.parse(text)


def _read_aliases(value: object) -> tuple[Name, ...]:
    return tuple(Name.parse(text) for text in read_texts(value))


def _read_retry(value: object) -> Retry:
    if isinstance(value, Retry):
        return value
    raise DeclarationError(repr(value), "write Retry.exponential(max_attempts=5), or max_attempts=5 for short")


def _read_executor(value: object) -> ExecutorKind:
    try:
        return ExecutorKind(str(value))
    except ValueError:
        known = ", ".join(repr(str(kind)) for kind in ExecutorKind)
        raise DeclarationError("executor", f"executor is one of {known}, not {value!r}") from None


def _read_unique(value: object) -> Unique | None:
    if isinstance(value, Unique):
        return value
    if isinstance(value, bool):
        return Unique() if value else None
    raise DeclarationError(repr(value), "write Unique(key='order'), or True for all arguments together")


def _read_limits(value: object) -> tuple[Limit, ...]:
    limits = value if isinstance(value, Sequence) else (value,)
    if all(isinstance(limit, Limit) for limit in limits):
        return tuple(limits)
    raise DeclarationError(repr(value), "write Limit(concurrency=1), or several in a list")


def _read_breaker(value: object) -> Breaker | None:
    if isinstance(value, Breaker):
        return value
    if isinstance(value, bool):
        return Breaker() if value else None
    raise DeclarationError(repr(value), "write Breaker(threshold=10, cooldown='30s'), or True for just that")


def _read_keep(value: Duration) -> Retention:
    length: timedelta = duration(value)
    return Retention(succeeded=length, failed=length)


def _read_redact(value: object) -> tuple[str, ...] | bool:
    if isinstance(value, bool):
        return value
    return read_texts(value)


_READERS: Final[Mapping[str, Reader]] = {
    "name": _read_name,
    "aliases": _read_aliases,
    "queue": read_queue,
    "priority": read_priority,
    "retry": _read_retry,
    "max_attempts": read_count,
    "timeout": duration,
    "expires": duration,
    "executor": _read_executor,
    "unique": _read_unique,
    "limit": _read_limits,
    "breaker": _read_breaker,
    "retention": read_retention,
    "keep": _read_keep,
    "loss_limit": read_count,
    "payload_limit": read_count,
    "redact": _read_redact,
}
