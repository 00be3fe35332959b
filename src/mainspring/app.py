"""An app: the registry of what can run, and the way to enqueue. Nothing here but the parts, put together.

    app = Mainspring("sqlite:///jobs.db")

    @app.task
    async def resize(photo: int, width: int = 800) -> str: ...

    async with app:
        job = await resize.enqueue(7, width=200)

Nothing is global: two apps can live in one process. Whoever enqueues needs no block: the first use opens the store, and
`close` or the end of the program closes it.
"""

import weakref
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, ParamSpec, Self, TypeVar, Unpack, overload
from uuid import UUID

from mainspring.client.adopting import AppTasks
from mainspring.client.breakers import Breakers
from mainspring.client.calls import Call, submit, submit_sync
from mainspring.client.connection import Connection
from mainspring.client.control import Control
from mainspring.client.lock import NamedLock
from mainspring.client.nodes import NodeOptions, node_settings
from mainspring.client.options import Reader, read_all, read_count, read_id, read_queue, read_short, read_word
from mainspring.client.outbox import Outboxes
from mainspring.client.overview import Overview
from mainspring.client.plans import ScheduleOptions, plan_of
from mainspring.client.plugin import Plugin
from mainspring.client.plugins import Grant, Plugins
from mainspring.client.readiness import Health
from mainspring.client.schedules import Schedules
from mainspring.client.services import ServiceFunction, ServiceOptions, declare_service
from mainspring.client.upkeep import ID as UPKEEP
from mainspring.client.urls import source_of
from mainspring.clock import Clock, SystemClock
from mainspring.core.codec import Value
from mainspring.core.job import Cause, JobId, NodeId, State
from mainspring.core.limits import Limit
from mainspring.core.names import Name
from mainspring.core.rules import Once, Rule
from mainspring.duration import Duration, duration
from mainspring.errors import DeclarationError, NameTaken, PayloadError, ScheduleError, UnknownTask
from mainspring.handle import JobHandle
from mainspring.runtime.definition import QueueSettings, Registry
from mainspring.runtime.events import log
from mainspring.runtime.host import Host
from mainspring.runtime.planned import Planned
from mainspring.runtime.service import ServiceContext, ServiceDefinition
from mainspring.settings import NodeSettings
from mainspring.stores.port import Store
from mainspring.stores.records import Enqueued, JobFilter, JobPage
from mainspring.supervise.directive import Directive
from mainspring.task import Declarer, Task

if TYPE_CHECKING:
    from mainspring.client.measuring import Measured
    from mainspring.outbox.caller import Around
    from mainspring.plugins.mirror import Mirror
    from mainspring.plugins.sinks import CypherSink
    from mainspring.runtime.events import Listener
    from mainspring.runtime.middleware import Middleware
    from mainspring.runtime.node import Node

MAX_UNKNOWN_LOGGED: Final = 20
"""Unknown tasks that lists of one app warn of. Names may come from users."""

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T", bound=Task[..., Any])
M = TypeVar("M", bound="Middleware")
L = TypeVar("L", bound="Listener")
S = TypeVar("S", bound=ServiceFunction)

_ANYTHING: Final[Value[Any]] = Value.of(Any, subject="result")


class Mainspring:
    """The app: what tasks there are, and where their jobs are kept.

    `url` is a store's address, such as "sqlite:///jobs.db" or "memory://", or a store; without one, $MAINSPRING_URL
    counts, and after that "sqlite:///mainspring.db". `owner` names the deployment whose schedules these are, if several
    programs share a store, and `release` its version: of two that run side by side, the newer one's schedules count.
    `upkeep` says whether its nodes bring Mainspring's own jobs along; without it `mainspring worker` brings them, and a
    node inside of a program does if there are plugins.
    """

    def __init__(
        self,
        url: str | Store | None = None,
        *,
        store: Store | None = None,
        clock: Clock | None = None,
        owner: str | None = None,
        release: str | None = None,
        upkeep: bool | None = None,
    ) -> None:
        _, problems = read_all({"owner": owner, "release": release}, _DEPLOYMENT_READERS)
        if url is not None and store is not None:
            problems.append("it was given a URL and a store; give one of them")
        DeclarationError.unless("Mainspring", ((False, problem) for problem in problems))
        self.registry: Final = Registry()
        source = source_of(url if store is None else store)
        self._connection: Final = Connection(source, clock or SystemClock(), self._introduce)
        self.task: Final = Declarer(self._connection, self._register)
        self.schedules: Final = Schedules(self._connection, self._made, self._own)
        self.breakers: Final = Breakers(self._connection)
        self.outbox: Final = Outboxes(self._connection)
        self.overview: Final = Overview(self._connection)
        self._planned = Planned(owner=owner or "app", owner_is_given=owner is not None, release=release or "")
        self._tasks: dict[Name, Task[..., Any]] = {}
        self._services: dict[Name, ServiceDefinition] = {}
        self._queues: dict[str, QueueSettings] = {}
        self._middleware: list[Middleware] = []
        self._listeners: list[Listener] = []
        self._nodes: weakref.WeakSet[Node] = weakref.WeakSet()
        self._connection.on_cancel = self._cancel_here
        self.host: Final = Host(self._connection.guard)
        self.health: Final = Health(self._connection, lambda: tuple(self._nodes))
        self._upkeep = upkeep
        self._asked_in_vain: set[Name] = set()
        self.plugins: Final = Plugins(
            self._connection,
            registry=self.registry,
            tasks=self._tasks,
            services=self._services,
            queues=self._queues,
            planned=self._planned,
            tell_nodes=self._tell_nodes,
        )
        self.control: Final = Control(
            self._connection,
            self.schedules,
            tasks=self._tasks,
            find=self.find,
            host=lambda: self.host,
        )

    # The store.

    @property
    def clock(self) -> Clock:
        return self._connection.clock

    def instead(self, store: Store, *, clock: Clock | None = None) -> AbstractContextManager[None]:
        """Keep jobs in another store while a block runs, as tests do: `with app.instead(MemoryStore()):`."""
        self._connection.guard.steer("app.instead")
        return self._connection.instead(source_of(store), clock or self.clock)

    @property
    def store(self) -> Store:
        """The store, which is open; `StoreClosed` if it is not. What it does, it does for anybody: not for plugins."""
        self._connection.guard.steer("app.store")
        return self._connection.opened

    async def __aenter__(self) -> Self:
        await self._connection.enter()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._connection.leave()

    async def close(self) -> None:
        """Close the store, whoever still uses it. A later use opens it again."""
        self._connection.guard.steer("app.close")
        await self._connection.close()

    def close_sync(self) -> None:
        self._connection.guard.steer("app.close")
        self._connection.close_sync()

    # Tasks and their jobs.

    def find(self, name: str) -> Task[..., Any]:
        """Look a task up by its name or an alias, or raise `UnknownTask` with the nearest that there is."""
        return self._tasks[self.registry.find(Name.parse(name)).name]

    async def enqueue(self, name: str, /, *args: object, **kwargs: object) -> JobHandle[Any]:
        """Enqueue a job of the task that this app has under that name or alias; raise `UnknownTask` if there is none."""
        return await self.find(name).enqueue(*args, **kwargs)

    def enqueue_sync(self, name: str, /, *args: object, **kwargs: object) -> JobHandle[Any]:
        return self.find(name).enqueue_sync(*args, **kwargs)

    async def enqueue_many(self, calls: Iterable[Call[Any]], *, tx: object = None) -> list[JobHandle[Any]]:
        """Enqueue calls of any tasks, one round trip for each few thousand; returns their jobs in the same order."""
        calls = self._own(calls)
        return self._handles(calls, await submit(self._connection, [call.hand_over() for call in calls], tx))

    def enqueue_many_sync(self, calls: Iterable[Call[Any]], *, tx: object = None) -> list[JobHandle[Any]]:
        calls = self._own(calls)
        return self._handles(calls, submit_sync(self._connection, [call.hand_over() for call in calls], tx))

    @overload
    def job(self, job: UUID | str) -> JobHandle[Any]: ...

    @overload
    def job(self, job: UUID | str, task: Task[P, R]) -> JobHandle[R]: ...

    def job(self, job: UUID | str, task: Task[..., Any] | None = None) -> JobHandle[Any]:
        """Hold a job by its id, which may have been kept anywhere; its task gives the result its type."""
        name = task.definition.name if task else None
        return JobHandle(self._connection, self._codec, read_id(job), task=name)

    async def jobs(
        self,
        *,
        state: State | str | Iterable[State | str] = (),
        queue: str | None = None,
        task: str | None = None,
        tag: str | None = None,
        cause: Cause | str | None = None,
        parent: UUID | str | None = None,
        limit: int = 100,
        after: JobId | None = None,
    ) -> JobPage:
        """List jobs, newest first; omitted filters match every job. Pass a page's `after` to get the next page.

        A page that is not `in_time` may have few jobs or none although there are more: go on with its `after`.
        """
        which = JobFilter(
            states=tuple(read_word("state", one, State) for one in ([state] if isinstance(state, str) else state)),
            queue=queue,
            task=None if task is None else Name.parse(task),
            tag=tag,
            cause=None if cause is None else read_word("cause", cause, Cause),
            parent=None if parent is None else read_id(parent),
        )
        store = await self._connection.store()
        page = await store.list_jobs(which, limit=limit, after=after)
        if which.task is not None and not page.jobs and after is None and page.in_time:
            await self._warn_of_unknown_task(store, which.task)
        return page

    async def _warn_of_unknown_task(self, store: Store, task: Name) -> None:
        """Log once that no task of that name is known, with the nearest one. No error: a job of it may come later."""
        from mainspring.client.unknown import unknown_in  # noqa: PLC0415 - only where nothing was found
        from mainspring.stores.overview import Search  # noqa: PLC0415 - likewise

        if task in self._asked_in_vain or task in self.registry.names or len(self._asked_in_vain) >= MAX_UNKNOWN_LOGGED:
            return
        if unknown := await unknown_in(Search(task=task), store, self.registry):
            self._asked_in_vain.add(task)
            log.warning("jobs: %s", unknown)

    async def measure(self) -> "Measured":
        """Read what is measured of the store as a whole: how much waits and runs, who is there, what lags behind."""
        from mainspring.client.measuring import measure  # noqa: PLC0415 - only programs that are watched load it

        return await measure(await self._connection.store())

    # Schedules.

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
        """Declare a schedule of a task, above `@app.task`: `@app.schedule(Cron("0 9 * * MON-FRI", tz="Europe/Berlin"))`.

        It has the name of its task unless it is given one, which a second schedule of the same task needs. `args` and
        `kwargs` are what the task is called with.
        """

        def declare(task: T) -> T:
            self._connection.guard.steer("app.schedule")
            if not isinstance(task, Task):
                raise ScheduleError(f"schedule {name or task!r}", "write @app.schedule(…) above @app.task")
            planned = Name.parse(name or task.name)
            try:
                call = task.call(*args, **(kwargs or {}))
            except PayloadError as error:
                raise PayloadError(f"schedule {planned}, {error.subject}", error.path, error.problem) from None
            self._own([call])
            plan = plan_of(f"schedule {planned}", rule, call, options)
            if planned in self._planned.plans:
                raise NameTaken(str(planned), "schedule")
            if plan.until is not None and plan.until <= self.clock.now():
                # No error: code may stand for longer than what it plans.
                log.warning("schedule %s will make no job: its until, %s, has passed", planned, plan.until.isoformat())
            if isinstance(rule, Once) and rule.when <= self.clock.now():
                log.warning("schedule %s will make no job: its time, %s, has passed", planned, rule.when.isoformat())
            self._planned.add(planned, plan)
            return task

        return declare

    # Services.

    @overload
    def service(self, function: S, /) -> S: ...

    @overload
    def service(self, /, **options: Unpack[ServiceOptions]) -> Callable[[S], S]: ...

    def service(self, function: S | None = None, /, **options: Unpack[ServiceOptions]) -> S | Callable[[S], S]:
        """Have every node run a step again and again, as its directive says: `@app.service(every="5s", singleton=True)`.

        The step is an async function without parameters, or with one that takes the `ServiceContext`. A singleton runs
        on one node at a time, over the whole store.
        """

        def declare(function: S) -> S:
            self._connection.guard.steer("app.service")
            definition = declare_service(function, options)
            self.plugins.leave_to_plugins(definition.name)
            if definition.name in self._services:
                raise NameTaken(str(definition.name))
            self._services[definition.name] = definition
            return function

        return declare if function is None else declare(function)

    # Plugins.

    def install(self, plugin: Plugin, *, grant: Grant = ()) -> None:
        """Take in all that a plugin declares, or nothing of it: `app.install(plugin, grant=[BackgroundJobs()])`."""
        self.plugins.install(plugin, grant=grant)
        if self._nodes:
            self._bring_upkeep()

    async def uninstall(self, id_: str | Plugin) -> None:
        """Take a plugin out: its jobs wait, its schedules pause, its services stop."""
        self._connection.guard.steer("app.uninstall")
        if id_ == UPKEEP:
            self._upkeep = False
        await self.plugins.uninstall(id_)

    @property
    def upkeep(self) -> bool | None:
        """Whether its nodes bring Mainspring's own jobs along; None if that is for whoever runs them to say."""
        return self._upkeep

    def mirror(self, sink: "CypherSink", *, name: str = "mainspring:mirror", timeout: Duration = "10s") -> "Mirror":
        """Have copies of the state of schedules kept in a graph, by one node at a time.

        `timeout` limits each call of the sink. Nothing waits for a mirror: what it cannot write now, it writes later.
        """
        from mainspring.plugins.mirror import TRY_AGAIN, Mirror  # noqa: PLC0415 - only programs that have one load it

        if isinstance(sink, type) or not callable(getattr(sink, "prepare", None)):
            raise DeclarationError("mirror", f"it writes into a sink, as LadybugSink('graph.lbug'), and not {sink!r}")
        mirror = Mirror(lambda: self._connection.opened, sink, timeout=timeout)

        @self.service(name=name, wake=mirror.wake, singleton=True, backoff=TRY_AGAIN, listeners=())
        async def step(context: ServiceContext) -> Directive:
            return await mirror.step(context.term)

        return mirror

    # What nodes are told.

    def queue(
        self,
        name: str,
        *,
        concurrency: int | None = None,
        timeout: Duration | None = None,
        limit: Limit | None = None,
    ) -> None:
        """Say how a queue is worked: `concurrency` holds for each node, `limit` for all of them together."""
        self._connection.guard.steer("app.queue")
        given = {"name": name, "concurrency": concurrency, "timeout": timeout, "limit": limit}
        values, problems = read_all(given, _QUEUE_READERS)
        values.pop("name", None)
        if name in self._queues:
            problems.append("it has been declared before")
        DeclarationError.unless(f"queue {name!r}", ((False, problem) for problem in problems))
        self._queues[name] = QueueSettings(**values)

    def middleware(self, layer: M) -> M:
        """Put an async function around every attempt, `async def layer(ctx, call_next)`; the first one is outermost."""
        self._connection.guard.steer("app.middleware")
        self._middleware.append(layer)
        return layer

    def listener(self, listener: L) -> L:
        """Have a function told of every change of a job's state on this app's nodes, after it was committed."""
        self._connection.guard.steer("app.listener")
        self._listeners.append(listener)
        return listener

    def traced_by(self, traceparent: Callable[[], str | None], *, deliveries: "Around | None" = None) -> None:
        """Have a function say which span the running code is in: what is enqueued or published keeps that.

        `deliveries` makes, for some messages, what the handler of their outbox is called in: a span.
        """
        self._connection.guard.steer("app.traced_by")
        DeclarationError.unless("tracing", [(self._connection.trace is None, "the app is instrumented already")])
        self._connection.trace = traceparent
        self._connection.around_deliveries = deliveries

    def lock(self, name: str, *, ttl: Duration = "30s", timeout: Duration | None = None) -> NamedLock:
        """Make a lock that all programs on the store share by its name; `timeout` limits the wait for it."""
        return NamedLock(self._connection, name, ttl=ttl, timeout=timeout)

    def node(self, **settings: Unpack[NodeOptions]) -> "AbstractAsyncContextManager[Node]":
        """Run work inside of this program: `async with app.node(concurrency=20):`. It opens the store too."""
        return self._running(node_settings(settings))

    def make_node(self, settings: NodeSettings, *, upkeep: bool = False) -> "Node":
        """Make a node on the open store, for a program that starts and stops it itself.

        With `upkeep` it brings Mainspring's own jobs along, unless the app says that it has none.
        """
        from mainspring.runtime.node import Node  # noqa: PLC0415 - only programs that run work load what runs it

        self._connection.guard.steer("app.node")
        if upkeep and self._upkeep is None:
            self._upkeep = True
        self._bring_upkeep()
        node = Node(
            self.store,
            self.registry,
            settings=settings,
            clock=self.clock,
            middleware=self._middleware,
            listeners=self._listeners,
            queues=self._queues,
            planned=self._planned,
            services=self._services,
            breaker_listeners=self.breakers.listeners,
            host=self.host,
            parts=[self.outbox.part],
            keep_open=lambda: self,
        )
        self._nodes.add(node)
        return node

    def _cancel_here(self, job: JobId, lease: int) -> None:
        for node in tuple(self._nodes):
            node.cancel(job, lease)

    def _bring_upkeep(self) -> None:
        """Install Mainspring's own jobs where they are wanted: where others bring theirs, or the app says so."""
        if self._upkeep or (self._upkeep is None and any(True for _ in self.plugins)):
            self.plugins.install_upkeep()

    def _tell_nodes(self) -> tuple[NodeId, ...]:
        """Have the nodes of this program look what has been declared since; returns who they are."""
        nodes = tuple(self._nodes)
        for node in nodes:
            node.refresh()
        return tuple(node.id for node in nodes)

    @asynccontextmanager
    async def _running(self, settings: NodeSettings) -> "AsyncIterator[Node]":
        async with self, self.make_node(settings) as node:
            yield node

    # What tasks and handles ask for.

    def _introduce(self, store: Store) -> None:
        AppTasks(self.registry, self._tasks, self._planned).introduce(store)

    def _register(self, task: Task[..., Any]) -> None:
        self._connection.guard.steer("app.task")
        for name in (task.definition.name, *task.definition.aliases):
            self.plugins.leave_to_plugins(name, task.definition.queue)
        self.registry.add(task.definition)
        self._tasks[task.definition.name] = task

    def _own(self, calls: Iterable[Call[Any]]) -> list[Call[Any]]:
        """Refuse calls of another app's tasks: nobody here would run them."""
        calls = list(calls)
        for definition in {id(call.definition): call.definition for call in calls}.values():
            if self.registry.find(definition.name) is not definition:
                raise DeclarationError(f"task {definition.name}", "the call is of a task of another app")
        return calls

    def _handles(self, calls: list[Call[Any]], answers: list[Enqueued]) -> list[JobHandle[Any]]:
        return [
            JobHandle(self._connection, self._codec, answer.id, task=call.definition.name, fresh=answer.fresh)
            for call, answer in zip(calls, answers, strict=True)
        ]

    def _made(self, job: JobId, task: Name) -> JobHandle[Any]:
        return JobHandle(self._connection, self._codec, job, task=task, fresh=True)

    def _codec(self, task: Name) -> Value[Any]:
        try:
            return self.registry.find(task).result
        except UnknownTask:  # of another program: its JSON says enough
            return _ANYTHING


def _read_limit(value: object) -> Limit:
    if isinstance(value, Limit) and not value.keys:
        return value
    raise DeclarationError(repr(value), "write Limit(concurrency=10); keys are for the limits of tasks")


def _read_owner(value: object) -> str:
    if not isinstance(value, str):
        raise DeclarationError("owner", f"owner is text, not {value!r}")
    if not value.strip():
        problem = "owner is empty, as from a variable that is not set; name the deployment, or leave it out"
        raise DeclarationError("owner", problem)
    return read_short(value)


def _read_release(value: object) -> str:
    if isinstance(value, str):
        return value
    raise DeclarationError("release", f"release is text, not {value!r}")


_DEPLOYMENT_READERS: Final[Mapping[str, Reader]] = {"owner": _read_owner, "release": _read_release}

_QUEUE_READERS: Final[Mapping[str, Reader]] = {
    "name": read_queue,
    "concurrency": read_count,
    "timeout": duration,
    "limit": _read_limit,
}
