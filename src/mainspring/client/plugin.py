"""A plugin, as its author writes it: tasks, schedules and services under one namespace, and what it asks for.

    plugin = Plugin("thumbnails", "1.2", requires=[BackgroundJobs(max_concurrent=4), Schedules()])

    @plugin.schedule(Every("1h"))
    @plugin.task
    async def sweep(ctx: Context) -> None: ...

What it declares is registered when a program installs it, all of it or none. Until then its tasks can be called like the
functions that they are, and not be enqueued.
"""

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar, Unpack, cast, overload

from mainspring.client.declaration import TaskOptions
from mainspring.client.job_definition import Concurrency, limited, overlap_of, reporting
from mainspring.client.options import read_text, read_texts
from mainspring.client.plans import ScheduleOptions, plan_of
from mainspring.client.services import ServiceFunction, ServiceOptions, declare_service
from mainspring.clock import Clock, SystemClock
from mainspring.core.missed import Missed
from mainspring.core.names import Name
from mainspring.core.rules import Rule
from mainspring.core.schedule import Plan
from mainspring.duration import Duration
from mainspring.errors import BadName, DeclarationError, NameTaken, PayloadError, PluginError, ScheduleError
from mainspring.plugins.capability import BackgroundJobs, Capability, Grants, Schedules, Services
from mainspring.runtime.service import ServiceDefinition
from mainspring.task import Declarer, Task

if TYPE_CHECKING:
    from mainspring.client.connection import Connection

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S", bound=ServiceFunction)
T = TypeVar("T", bound=Task[..., Any])


def read_capabilities(subject: str, given: object, otherwise: str = "") -> Iterable[Capability]:
    """Return several capabilities, or raise `DeclarationError` saying how they are written."""
    if isinstance(given, str) or not isinstance(given, Iterable):
        or_else = f", or {otherwise}" if otherwise else ""
        raise DeclarationError(subject, f"a list of capabilities, as in [BackgroundJobs()]{or_else}, not {given!r}")
    several = tuple(given)
    for one in several:
        if isinstance(one, type) and issubclass(one, Capability):
            name = one.__name__
            raise DeclarationError(subject, f"{name} is the class of a capability; write {name}(), with parentheses")
        if not isinstance(one, Capability):
            raise DeclarationError(subject, f"capabilities, like BackgroundJobs(), and not {one!r}")
    return several


def advised(what: str, advice: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Have a call that does not fit answered with how it is written."""

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        signature = inspect.signature(function)

        @functools.wraps(function)
        def checked(*args: P.args, **kwargs: P.kwargs) -> R:
            try:
                signature.bind(*args, **kwargs)
            except TypeError as error:
                raise DeclarationError(what, f"{advice}: {error}") from None
            return function(*args, **kwargs)

        return checked

    return decorate


class Borrowed:
    """The connection of the app that a plugin is installed in; until then there is none."""

    def __init__(self, plugin: str) -> None:
        self.lender: Connection | None = None
        self._plugin = plugin

    @property
    def clock(self) -> Clock:
        return self.lender.clock if self.lender else SystemClock()

    def traceparent(self) -> str | None:
        return self.lender.traceparent() if self.lender else None

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever a connection has
        if self.lender is None:
            raise PluginError(self._plugin, "it is not installed; a program does that with app.install(plugin)")
        return getattr(self.lender, name)


class Plugin:
    """A bundle of tasks, schedules and services. Its `id` is their namespace: `sweep` becomes `thumbnails:sweep`."""

    def __init__(self, id: str, version: str, *, requires: Iterable[Capability] = (), docs: str = "") -> None:  # noqa: A002 - what it is called
        try:
            self.id: Final = Name(read_text(id), "name").namespace
            self.version: Final = read_text(version)
        except DeclarationError as error:
            raise DeclarationError(f"plugin {id!r}", error.problem) from None
        self.requires: Final = Grants(read_capabilities(f"plugin {self.id}: requires", requires))
        self.docs: Final = docs
        self.tasks: Final[list[Task[..., Any]]] = []
        self.plans: Final[dict[Name, Plan]] = {}
        self.services: Final[dict[Name, ServiceDefinition]] = {}
        self.connection: Final = Borrowed(self.id)
        self.task: Final = Declarer(cast("Connection", self.connection), self.tasks.append, adapt=self._adapt)

    def schedule(
        self,
        rule: Rule,
        /,
        *,
        name: str | None = None,
        args: Iterable[object] = (),
        kwargs: Mapping[str, object] | None = None,
        **options: Unpack[ScheduleOptions],
    ) -> Callable[[T], T]:
        """Declare a schedule of a task of this plugin, above `@plugin.task`; as `@app.schedule` does."""

        def declare(task: T) -> T:
            if not isinstance(task, Task) or task not in self.tasks:
                raise ScheduleError(f"schedule {name or task!r}", "write @plugin.schedule(…) above @plugin.task")
            planned = task.definition.name if name is None else self._name(name)
            self._must_be_out()
            if planned in self.plans:
                raise NameTaken(str(planned))
            call = task.call(*args, **(kwargs or {}))
            self.plans[planned] = plan_of(f"schedule {planned}", rule, call, options)
            return task

        return declare

    @advised("job", "write @plugin.job(schedule=Every('1h'))")
    def job(
        self,
        *,
        schedule: Rule,
        concurrency: Concurrency = "exclusive",
        docs: str = "",
        missed: Missed | None = None,
        jitter: Duration | None = None,
        **options: Unpack[TaskOptions],
    ) -> Declarer:
        """Declare a task and a schedule of it under one name: `@plugin.job(schedule=Every("1h"), timeout="10m")`.

        It takes no arguments but its `Context`, and may return `Done()`, `DoneAndReschedule(delay)` or
        `Failed(reason, retry=…)`. `concurrency` counts over all nodes: "exclusive" is one at a time, and a slot that
        comes up meanwhile is skipped, with a run that says so; of a number, or "unbounded", each slot makes its job.
        """
        of_the_schedule: ScheduleOptions = {
            "overlap": overlap_of(concurrency),
            "description": docs,
            "missed": missed,
            "jitter": jitter,
        }

        def register(task: Task[..., Any]) -> None:
            name = task.definition.name
            if name in self.plans:
                raise NameTaken(str(name))
            try:
                call = task.call()
            except PayloadError as error:
                problem = f"its schedule gives it no arguments but its Context ({error}); give the others defaults"
                raise DeclarationError(f"job {name}", problem) from error
            self.plans[name] = plan_of(f"job {name}", schedule, call, of_the_schedule)
            self.tasks.append(task)

        return Declarer(
            cast("Connection", self.connection),
            register,
            limited(options, concurrency),
            adapt=self._adapt,
            complete=reporting,
        )

    @overload
    def service(self, function: S, /) -> S: ...

    @overload
    def service(self, /, **options: Unpack[ServiceOptions]) -> Callable[[S], S]: ...

    def service(self, function: S | None = None, /, **options: Unpack[ServiceOptions]) -> S | Callable[[S], S]:
        """Declare a service of this plugin; as `@app.service` does."""

        def declare(function: S) -> S:
            self._must_be_out()
            given: ServiceOptions = {**options, "name": str(self._name(options.get("name") or _local(function)))}
            definition = declare_service(function, given)
            if definition.name in self.services:
                raise NameTaken(str(definition.name))
            self.services[definition.name] = definition
            return function

        return declare if function is None else declare(function)

    def needs(self) -> list[type[Capability]]:
        """Name what it takes to have what it declares."""
        declared = ((self.tasks, BackgroundJobs), (self.plans, Schedules), (self.services, Services))
        return [capability for what, capability in declared if what]

    def lacks(self, grants: Grants) -> list[type[Capability]]:
        """Name what it requires, or needs for what it declares, and is not granted."""
        wanted = dict.fromkeys([*(type(one) for one in self.requires), *self.needs()])
        return [kind for kind in wanted if grants.find(kind) is None]

    def __repr__(self) -> str:
        return f"<Plugin {self.id} {self.version}>"

    def _adapt(self, function: Callable[..., Any], options: TaskOptions) -> TaskOptions:
        """Put a task into the namespace, and into the queue by which the plugin as a whole is limited."""
        self._must_be_out()
        if options.get("queue") is not None:
            raise DeclarationError(
                f"plugin {self.id}", "all its tasks are in the queue that has its name; leave out queue"
            )
        adapted: TaskOptions = {
            **options,
            "name": str(self._name(options.get("name") or _local(function))),
            "queue": self.id,
            "breaker": True if options.get("breaker") is None else options["breaker"],
        }
        if aliases := options.get("aliases"):
            adapted["aliases"] = [str(self._name(alias)) for alias in read_texts(aliases)]
        return adapted

    def _must_be_out(self) -> None:
        if self.connection.lender is not None:
            raise PluginError(
                self.id, "it is installed already, with what it had declared by then; declare all of it first"
            )

    def _name(self, local: str) -> Name:
        if ":" in local:
            raise BadName(local, f"a plugin has names of its own namespace only; {self.id}: is put in front of them")
        return Name(self.id, local)


def _local(function: Callable[..., object]) -> str:
    return getattr(function, "__name__", "").replace("<lambda>", "")
