"""A task, as a program holds it: callable as the function that it is, and the way to enqueue jobs.

The types of the function are kept: what `enqueue` takes is what the function takes, without its `Context`, and what the
job's `result` returns is what the function returns. Options are never mixed with arguments: `task.using(delay="5m")`
returns something that enqueues in the same way.
"""

import functools
from collections.abc import Callable, Coroutine, Iterable, Iterator
from dataclasses import replace
from typing import Any, Concatenate, Final, Generic, ParamSpec, TypeAlias, TypeVar, Unpack, overload

from mainspring.client.calls import Call, Pattern, submit, submit_sync
from mainspring.client.connection import Connection
from mainspring.client.declaration import TaskOptions, declare
from mainspring.client.function import returns_outcome
from mainspring.client.keys import Keys
from mainspring.client.options import Options, Using
from mainspring.core.codec import Value
from mainspring.core.names import Name
from mainspring.core.unique import Unique
from mainspring.errors import DeclarationError, PayloadError
from mainspring.handle import JobHandle
from mainspring.runtime.context import Context
from mainspring.runtime.definition import Definition
from mainspring.stores.records import Enqueued, NewJob

P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R")
S = TypeVar("S")


class Enqueuer(Generic[P, R]):
    """A task with options: what `using` returns. Every method has a twin for code without an event loop."""

    def __init__(self, definition: Definition, connection: Connection, options: Options) -> None:
        self.definition: Final = definition
        self._connection: Final = connection
        self._options: Final = options
        self._pattern: Final = Pattern(definition, options)

    def using(self, **options: Unpack[Using]) -> "Enqueuer[P, R]":
        """Say more about the jobs to come: when, where, how often; what was said before stays."""
        read = self._options.but(options)
        if isinstance(read.unique, Unique):
            names = Keys(self.definition.arguments).names
            DeclarationError.unless(
                "using", ((key in names, f"unique: there is no argument `{key}`") for key in read.unique.keys or ())
            )
        return Enqueuer(self.definition, self._connection, read)

    def call(self, *args: P.args, **kwargs: P.kwargs) -> Call[R]:
        """Check and write the arguments, and keep them for `enqueue_many`."""
        if self._options.tx is not None:
            raise DeclarationError("using", "a call is made outside of transactions; use tx where it is enqueued")
        return Call(self.definition, self._new(args, kwargs), self._options.own)

    async def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> JobHandle[R]:
        """Enqueue one job, and return it once it is committed. Raises `PayloadError` for wrong arguments."""
        new = [self._new(args, kwargs)]
        (job,) = self._handles(await submit(self._connection, new, self._options.tx, kept=False))
        return job

    def enqueue_sync(self, *args: P.args, **kwargs: P.kwargs) -> JobHandle[R]:
        new = [self._new(args, kwargs)]
        (job,) = self._handles(submit_sync(self._connection, new, self._options.tx, kept=False))
        return job

    async def enqueue_many(self, calls: Iterable[Call[R]]) -> list[JobHandle[R]]:
        """Enqueue calls of this task, one round trip for each few thousand; returns their jobs in the same order."""
        return self._handles(await submit(self._connection, self._checked(calls), self._options.tx))

    def enqueue_many_sync(self, calls: Iterable[Call[R]]) -> list[JobHandle[R]]:
        return self._handles(submit_sync(self._connection, self._checked(calls), self._options.tx))

    def _new(self, args: tuple[object, ...], kwargs: dict[str, object]) -> NewJob:
        """Make the job of a call."""
        try:
            payload = self.definition.arguments.encode(args, kwargs)
        except PayloadError as misfit:
            if misfit.path not in Using.__annotations__:
                raise
            advice = f"options go before it: .using({misfit.path}=…).enqueue(…)"
            raise PayloadError(misfit.subject, misfit.path, f"{misfit.problem}; {advice}") from None
        connection = self._connection
        return self._pattern.job(payload, connection.clock.now(), connection.traceparent())

    def _checked(self, calls: Iterable[Call[R]]) -> list[NewJob]:
        calls = list(calls)
        DeclarationError.unless(f"enqueue_many of {self.definition.name}", self._requirements(calls))
        return [call.hand_over() for call in calls]

    def _requirements(self, calls: list[Call[R]]) -> Iterator[tuple[bool, str]]:
        strange = next((call for call in calls if not isinstance(call, Call)), None)
        yield strange is None, f"it takes calls, like [task.call(1), task.call(2)], and not {strange!r}"
        if strange is not None:
            return
        plain = replace(self._options, tx=None) == Options()
        yield plain, "calls bring their own options: write using(…).call(…); only tx can be said here"
        other = next((call for call in calls if call.definition is not self.definition), None)
        yield other is None, f"there is a {other!r} among them; for calls of several tasks there is app.enqueue_many"

    def _handles(self, answers: Iterable[Enqueued]) -> list[JobHandle[R]]:
        connection, codecs, task = self._connection.own, self._codec, self.definition.name
        return [JobHandle(connection, codecs, answer.id, task=task, fresh=answer.fresh) for answer in answers]

    def _codec(self, _: Name) -> Value[R]:
        return self.definition.result


class Task(Enqueuer[P, R]):
    """A registered function: `P` is what its callers pass, `R` what its jobs result in."""

    def __init__(self, definition: Definition, connection: Connection) -> None:
        super().__init__(definition, connection, Options())
        functools.update_wrapper(self, definition.function, updated=())

    @property
    def name(self) -> str:
        return str(self.definition.name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - `TaskFunction` says it better
        """Call the function itself, here and now: no job is made."""
        return self.definition.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<Task {self.name}>"


class TaskFunction(Task[P, R], Generic[P, R, Q, S]):
    """A task where it is declared: it can be called as the function that it was made from, `Q` in and `S` out."""

    def __call__(self, *args: Q.args, **kwargs: Q.kwargs) -> S:
        result: S = super().__call__(*args, **kwargs)
        return result


Adapt: TypeAlias = Callable[[Callable[..., Any], TaskOptions], TaskOptions]
"""Has the last word on what was said about a task, as a plugin does that has a namespace."""


class Declarer:
    """What `app.task` is: a decorator, with or without options.

    A first parameter that is annotated with `Context` is no part of what callers pass. One that takes anything at all,
    `object`, looks the same to a type checker: annotate it with what is really passed.
    """

    def __init__(
        self,
        connection: Connection,
        register: "Callable[[Task[..., Any]], None]",
        options: TaskOptions | None = None,
        *,
        adapt: Adapt | None = None,
        complete: Callable[[Definition], Definition] | None = None,
    ) -> None:
        self._complete = complete
        self._connection = connection
        self._register = register
        self._options: TaskOptions = options or {}
        self._adapt = adapt

    @overload
    def __call__(
        self, function: Callable[Concatenate[Context, P], Coroutine[Any, Any, R]], /
    ) -> TaskFunction[P, R, Concatenate[Context, P], Coroutine[Any, Any, R]]: ...

    @overload
    def __call__(
        self, function: Callable[P, Coroutine[Any, Any, R]], /
    ) -> TaskFunction[P, R, P, Coroutine[Any, Any, R]]: ...

    @overload
    def __call__(
        self, function: Callable[Concatenate[Context, P], R], /
    ) -> TaskFunction[P, R, Concatenate[Context, P], R]: ...

    @overload
    def __call__(self, function: Callable[P, R], /) -> TaskFunction[P, R, P, R]: ...

    @overload
    def __call__(self, /, **options: Unpack[TaskOptions]) -> "Declarer": ...

    def __call__(self, function: Callable[..., Any] | None = None, /, **options: Unpack[TaskOptions]) -> object:
        together: TaskOptions = {**self._options, **options}
        if function is None:
            return Declarer(self._connection, self._register, together, adapt=self._adapt, complete=self._complete)
        if isinstance(function, Task):  # of another app, as a rule
            function = function.definition.function
        if self._adapt:
            together = self._adapt(function, together)
        definition = declare(function, together)
        if self._complete:
            definition = self._complete(definition)
        elif returns_outcome(function):
            problem = "Done, DoneAndReschedule and Failed mean something in @plugin.job; return a value, or raise"
            raise DeclarationError(f"task {definition.name}", problem)
        task: TaskFunction[..., Any, ..., Any] = TaskFunction(definition, self._connection)
        self._register(task)
        return task
