"""What a node is made of, put together. Nothing here starts anything."""

import importlib.metadata
import platform
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

from mainspring.clock import Clock
from mainspring.core.backoff import Backoff
from mainspring.core.job import NodeId
from mainspring.core.limits import Gate, Scope
from mainspring.core.liveness import beat_of
from mainspring.core.names import Name
from mainspring.core.schedule import Plan
from mainspring.duration import duration, seconds
from mainspring.runtime.board import Board
from mainspring.runtime.body import Body
from mainspring.runtime.claimer import Claimer
from mainspring.runtime.declaring import declare as declare_schedules
from mainspring.runtime.definition import ExecutorKind, QueueSettings, Registry, gate_of
from mainspring.runtime.duties import Duties
from mainspring.runtime.events import Events
from mainspring.runtime.host import Host
from mainspring.runtime.keeper import Ears, Keeper, Membership, renewal_backoff
from mainspring.runtime.middleware import Middleware
from mainspring.runtime.orders import Obeys, Orders
from mainspring.runtime.overview import NodeOverview
from mainspring.runtime.planned import Planned, pause_gone
from mainspring.runtime.process import this_process
from mainspring.runtime.pruner import Pruner
from mainspring.runtime.reaper import Reaper
from mainspring.runtime.runner import Runner
from mainspring.runtime.service import ServiceDefinition
from mainspring.runtime.services import Services
from mainspring.runtime.settler import Settler
from mainspring.runtime.ticker import Ticker
from mainspring.settings import NodeSettings
from mainspring.stores.overview import Overview
from mainspring.stores.port import Store
from mainspring.stores.records import NodeRecord
from mainspring.supervise import NO_PAUSE, Listener, Service, log_failures

WRITE_AGAIN: Final = Backoff.exponential("100ms", cap="2s", jitter=0.3)


class Parts:
    """The duties of one node, wired to each other; `me` says under which membership they write."""

    def __init__(
        self,
        store: Store,
        registry: Registry,
        *,
        settings: NodeSettings,
        clock: Clock,
        middleware: Sequence[Middleware],
        events: Events,
        queues: Mapping[str, QueueSettings],
        me: Callable[[], Membership],
        planned: Planned,
        services: Mapping[Name, ServiceDefinition],
        host: Host,
    ) -> None:
        self.declared: frozenset[Name] = frozenset()
        """The tasks that the store knows this node to know."""
        self.lease = seconds(settings.lease)
        self.beat = beat_of(self.lease)
        self._store = store
        self._registry = registry
        self._settings = settings
        self._clock = clock
        self._queues = queues
        self._me = me
        self._planned = planned
        self._plans: Mapping[Name, Plan] | None = None
        """The schedules that the store has been told of."""
        self._changes = 0
        seen = store if settings.overview and isinstance(store, Overview) else None
        board = Board(clock) if seen else None
        self.listeners: tuple[Listener, ...] = (log_failures, board.own) if board else (log_failures,)
        """Of what works for the node: its own duties, and the services of its parts."""
        self.duties = Duties(events, clock)
        self.ticker = Ticker(store, events, clock=clock, tick=None if settings.tick is None else seconds(settings.tick))
        self.settler = Settler(store, events)
        self.body = Body(store, events, settings, middleware, clock=clock, host=host)
        self.runner = Runner(
            store, registry, self.settler, events, self.body, settings=settings, queues=queues, clock=clock
        )
        self.claimer = Claimer(store, self.runner, me=me, clock=clock, tasks=self._tasks, queues=settings.queues)
        self.runner.freed = self.claimer.place_freed
        self.reaper = Reaper(store, self.settler, events, me=lambda: me().node, clock=clock, lease=self.lease)
        self.services = Services(
            services, store, events, me=lambda: me().node, settings=settings, clock=clock, board=board
        )
        self.pruner = Pruner(
            store,
            self.settler,
            events,
            me=me,
            clock=clock,
            every=seconds(settings.prune_every),
            unknown_task_grace=duration(settings.unknown_task_grace),
        )
        self.overview = (
            NodeOverview(
                seen,
                events,
                board,
                runner=self.runner,
                claimer=self.claimer,
                services=self.services,
                now=store.now,
                me=me,
                clock=clock,
            )
            if seen and board
            else None
        )

    def keeper(self, ears: Ears) -> Keeper:
        return Keeper(self._store, self.record, beat=self.beat, clock=self._clock, ears=ears)

    def keeper_service(self, keeper: Keeper) -> Service:
        """Return the service that joins and renews; it needs a thread of its own."""
        listeners = (*self.listeners, self.duties.listen)
        again = renewal_backoff(self.beat)
        return Service("keeper", keeper.step, pacing=NO_PAUSE, backoff=again, listeners=listeners)

    def pruner_service(self) -> Service:
        return Service("pruner", self.pruner.step, pacing=NO_PAUSE, listeners=(*self.listeners, self.duties.listen))

    def service(self, name: str, part: "Settler | Reaper | Claimer | Orders | Ticker") -> Service:
        """A duty that is woken when there is something to do, and tries again soon when the store would not."""
        listeners = (*self.listeners, self.duties.listen)
        return Service(name, part.step, wake=[part.wake], pacing=NO_PAUSE, backoff=WRITE_AGAIN, listeners=listeners)

    def orders(self, node: Obeys) -> Orders:
        return Orders(self._store, node, me=self._me, running=self.runner.unstoppable)

    def gates(self) -> list[Gate]:
        """What is limited, and what is not: a limit that was taken out of the code is taken out of the store."""
        of_tasks = [gate for definition in self._registry for gate in definition.gates]
        return [*of_tasks, *(gate_of(Scope.QUEUE, name, queue.limit) for name, queue in tuple(self._queues.items()))]

    @property
    def has_news(self) -> bool:
        """Whether more has been declared in this program than the store knows of."""
        told = self.declared, self._plans, self._changes
        return told != (self.names, self._planned.everything(), self._planned.changes)

    async def declare(self, tell: Callable[[], Awaitable[None]] | None = None) -> None:
        """Tell the store what is declared here. Tasks that are new are claimed only after that."""
        names, plans, changes = self.names, self._planned.everything(), self._planned.changes
        await self._store.declare(self.gates())
        await self._store.declare_breakers(
            {name: rule for one in self._registry for name, rule in one.breakers.items()}
        )
        is_done = await declare_schedules(self._store, self._planned, names)
        if tell:
            await tell()
            # After that: of several who uninstall the same plugin at once, the last one sees that nobody has it any more.
            await pause_gone(self._store, self._planned, {self._me().node})
        self.declared, self._plans, self._changes = names, plans if is_done else None, changes

    def _tasks(self) -> tuple[frozenset[Name], frozenset[Name]]:
        """What may be claimed: tasks for the event loop and threads, and those for process slots."""
        heavy = frozenset(
            name
            for definition in self._registry
            if definition.executor is ExecutorKind.PROCESS
            for name in (definition.name, *definition.aliases)
        )
        known = self.declared & self.names  # one that was uninstalled since is not claimed any more
        return known - heavy, known & heavy

    @property
    def names(self) -> frozenset[Name]:
        """The tasks that are known here now."""
        return self._registry.names

    def record(self) -> NodeRecord:
        """What the node says about itself; its id is only the beginning of one."""
        process = this_process()
        return NodeRecord(
            id=NodeId(f"{platform.node()}-{process.pid}"),
            process=process,
            tasks=self._registry.names,
            queues=self._settings.queues,
            concurrency=self.runner.concurrency,
            version=importlib.metadata.version("mainspring"),
            takes_census=self.overview is not None,
            ticks=self._settings.ticker,
        )
