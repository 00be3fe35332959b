"""A node: opens the store that it is given, starts its services, owns their shutdown.

Nothing is global; two nodes can live in one process. The order of the end is the order of the data: no more claims,
then what runs, then what is to be written, and the leases last.
"""

import asyncio
import importlib.metadata
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self

from mainspring.clock import Clock, SystemClock
from mainspring.core.backoff import Backoff
from mainspring.core.job import JobId, NodeId
from mainspring.core.limits import Gate, Scope
from mainspring.core.liveness import beat_of
from mainspring.core.names import Name
from mainspring.core.outcome import Interrupted
from mainspring.duration import Duration, duration, seconds
from mainspring.errors import DeclarationError, StoreError
from mainspring.runtime.attempt import Reason
from mainspring.runtime.body import Body
from mainspring.runtime.call import IN_SLOT
from mainspring.runtime.claimer import Claimer
from mainspring.runtime.definition import ExecutorKind, QueueSettings, Registry
from mainspring.runtime.events import Events, Listener, log
from mainspring.runtime.keeper import Beat, Ears, Keeper, Membership
from mainspring.runtime.middleware import Middleware
from mainspring.runtime.orders import Orders
from mainspring.runtime.process import this_process
from mainspring.runtime.pruner import Pruner
from mainspring.runtime.reaper import Reaper
from mainspring.runtime.runner import Runner
from mainspring.runtime.settler import Ended, Settler
from mainspring.runtime.thread_of_its_own import in_a_thread_of_its_own
from mainspring.settings import NodeSettings
from mainspring.stores.port import Store
from mainspring.stores.records import NodeRecord
from mainspring.supervise import NO_PAUSE, Service, Stop, TaskSet

WRITE_AGAIN: Final = Backoff.exponential("100ms", cap="2s", jitter=0.3)
LAST_WORDS: Final = 5.0  # seconds that the end of a node may take for writing what is left to be written


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeReport:
    """How a node ended."""

    interrupted: int = 0
    """Attempts that were cut short and given back."""
    abandoned: tuple[JobId, ...] = ()
    """Jobs whose body would not stop."""
    unwritten: int = 0
    """Attempts whose end the store would not take; their jobs are noticed when the node is."""

    @property
    def drained(self) -> bool:
        """Whether everything that ran was finished, or given back in good order."""
        return not self.abandoned and not self.unwritten


class Node:
    """One running node. Use it as an async context, or `run` it until it is told to stop."""

    def __init__(
        self,
        store: Store,
        registry: Registry,
        *,
        settings: NodeSettings | None = None,
        clock: Clock | None = None,
        middleware: Sequence[Middleware] = (),
        listeners: Sequence[Listener] = (),
        queues: Mapping[str, QueueSettings] | None = None,
    ) -> None:
        self.settings = settings or NodeSettings()
        self.events = Events(listeners)
        self.stop = Stop()
        """Set it to have `run` shut the node down."""
        self.hurry = Stop()
        """Set it to have no more patience with what runs."""
        self._store = store
        self._registry = registry
        self._clock = clock or SystemClock()
        self._middleware = tuple(middleware)
        self._queues = dict(queues or {})
        self._membership = Membership(node=NodeId(""), term=0)  # of nobody, until it has joined
        self._joined = Stop()
        self._silence: asyncio.TimerHandle | None = None
        self._intake = TaskSet()
        self._duties = TaskSet()
        self._leases = TaskSet()

    @property
    def id(self) -> NodeId:
        """Its present id; it changes if the node was declared dead and came back."""
        return self._membership.node

    @property
    def running(self) -> int:
        return self._runner.busy

    # Beginning.

    async def start(self) -> None:
        """Open the store, join, and begin to work."""
        if IN_SLOT.is_set():
            problem = (
                "a process slot imports the module to find its task; start nodes under `if __name__ == '__main__':`"
            )
            raise DeclarationError("node", problem)
        await self._store.open()
        await self._store.declare(self._gates())
        self._compose()
        self._leases.spawn("keeper", in_a_thread_of_its_own(self._keeper_service, self._leases.stop))
        await self._joined.wait()
        for name, part in (("settler", self._settler), ("reaper", self._reaper), ("orders", self._orders)):
            self._duties.start(Service(name, part.step, wake=[part.wake], pacing=NO_PAUSE, backoff=WRITE_AGAIN))
        self._duties.start(Service("pruner", self._pruner.step, pacing=NO_PAUSE))
        self._unwatch = self._store.watch(self._claimer.wake.notify_one)
        self._intake.start(
            Service("claimer", self._claimer.step, wake=[self._claimer.wake], pacing=NO_PAUSE, backoff=WRITE_AGAIN)
        )

    def _compose(self) -> None:
        lease = seconds(self.settings.lease)
        beat = beat_of(lease)
        self._settler = Settler(self._store, self.events)
        self._body = Body(self._store, self.events, self.settings, self._middleware, self._clock)
        self._runner = Runner(
            self._store,
            self._registry,
            self._settler,
            self.events,
            self._body,
            settings=self.settings,
            queues=self._queues,
            clock=self._clock,
        )
        self._claimer = Claimer(
            self._store,
            self._runner,
            me=lambda: self._membership,
            clock=self._clock,
            tasks=self._tasks,
            queues=self.settings.queues,
        )
        self._runner.freed = self._claimer.wake
        self._reaper = Reaper(
            self._store, self._settler, self.events, me=lambda: self.id, clock=self._clock, lease=lease, beat=beat
        )
        self._pruner = Pruner(
            self._store,
            self._settler,
            self.events,
            me=lambda: self._membership,
            clock=self._clock,
            every=seconds(self.settings.prune_every),
            unknown_task_grace=duration(self.settings.unknown_task_grace),
        )
        self._orders = Orders(self._store, self, me=lambda: self._membership)
        ears = Ears(joined=self._on_joined, renewed=self._on_renewed, gone=self._on_gone)
        keeper = Keeper(self._store, self._record(), beat=beat, clock=self._clock, ears=ears)
        self._keeper_service = Service(
            "keeper", keeper.step, pacing=NO_PAUSE, backoff=Backoff.fixed(min(1.0, beat / 3), jitter=0.3)
        )

    def _gates(self) -> list[Gate]:
        gates = [gate for definition in self._registry for gate in definition.gates]
        for name, queue in self._queues.items():
            limit = queue.limit
            gates.append(
                Gate(
                    scope=Scope.QUEUE,
                    name=name,
                    concurrency=limit.concurrency if limit else None,
                    rate=limit.pace if limit else None,
                )
            )
        return gates

    def _tasks(self) -> tuple[frozenset[Name], frozenset[Name]]:
        """What is known here: tasks for the event loop and threads, and those for process slots."""
        names = self._registry.names
        heavy = frozenset(
            name
            for definition in self._registry
            if definition.executor is ExecutorKind.PROCESS
            for name in (definition.name, *definition.aliases)
        )
        return names - heavy, heavy

    def _record(self) -> NodeRecord:
        process = this_process()
        return NodeRecord(
            id=NodeId(f"{platform.node()}-{process.pid}"),
            process=process,
            tasks=self._registry.names,
            queues=self.settings.queues,
            concurrency=self.settings.concurrency,
            version=importlib.metadata.version("mainspring"),
        )

    # What the keeper tells.

    def _on_joined(self, membership: Membership) -> None:
        self._membership = membership
        self._joined.set()
        self._reaper.sweep()
        self._claimer.wake.notify_one()

    def _on_gone(self) -> None:
        self.events.count("declared_dead")
        self._runner.forget_line()
        self._runner.stop_all(Reason.LEASE_LOST)

    def _on_renewed(self, beat: Beat) -> None:
        self._fear_silence(beat)
        self._reaper.renewed(beat)
        self._reaper.lost(self._runner.reconcile(beat.pulse.held, beat.began))
        self._orders.received(beat.pulse.orders)

    def _fear_silence(self, beat: Beat) -> None:
        """Stop our own work before others may take it, unless no renewal comes because there is no store for anyone."""
        if self._silence:
            self._silence.cancel()
        if self._store.shares_fate:
            return
        lease = seconds(self.settings.lease)
        left = beat.began + lease - beat_of(lease) - self._clock.monotonic()
        self._silence = asyncio.get_running_loop().call_later(left, self._runner.stop_all, Reason.SILENCE)

    # While it runs.

    def quiet(self) -> None:
        """Take nothing new; what runs goes on."""
        self._claimer.quiet = True
        self._runner.give_back_all()

    def resume(self) -> None:
        self._claimer.quiet = False
        self._claimer.wake.notify_one()

    def set_concurrency(self, places: int) -> None:
        self._runner.concurrency = max(1, places)
        self._claimer.wake.notify_one()

    def end(self) -> None:
        """Have `run` shut the node down."""
        self.stop.set()

    async def run(self) -> NodeReport:
        """Work until told to stop (`stop`), then shut down."""
        await self.start()
        await self.stop.wait()
        return await self.shutdown(exiting=True)

    # The end.

    async def shutdown(self, *, grace: Duration | None = None, exiting: bool = False) -> NodeReport:
        """Stop intake, let running work finish within the grace time, cancel it, give it back, and leave.

        With `exiting`, the program ends right after: so what would not stop is given back too.
        """
        self.stop.set()
        self._unwatch()
        await self._intake.shutdown(grace="1s", deadline="2s")
        self._runner.give_back_all()
        await self._patience(seconds(self.settings.grace if grace is None else grace))
        interrupted = self._runner.busy
        self._runner.stop_all(Reason.SHUTDOWN)
        await self._wait_drained(seconds(self.settings.stop_grace))
        left = self._runner.unstoppable()
        for attempt in left:
            job = attempt.delivery.claim.job
            log.error("job %s (%s) did not stop although it was told to", job.id, job.task)
            if exiting and not attempt.abandoned:
                claim = attempt.delivery.claim
                self._settler.put(Ended(claim=claim, outcome=Interrupted(started=True), by=claim.node))
        await self._give_back_lost_claims()
        unwritten = await self._write_the_rest()
        await self._duties.shutdown(grace="1s", deadline="2s")
        await self._body.close()
        await self._leave(may_leave=exiting or not left)
        return NodeReport(
            interrupted=interrupted,
            abandoned=tuple(attempt.delivery.claim.job.id for attempt in left),
            unwritten=unwritten,
        )

    async def _patience(self, grace: float) -> None:
        """Wait until nothing runs, the grace time is over, or somebody is in a hurry."""
        waits = [asyncio.ensure_future(self._runner.drained()), asyncio.ensure_future(self.hurry.wait())]
        try:
            await asyncio.wait(waits, timeout=grace, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()

    async def _wait_drained(self, limit: float) -> None:
        try:
            async with asyncio.timeout(limit):
                await self._runner.drained()
        except TimeoutError:
            pass

    async def _give_back_lost_claims(self) -> None:
        """Look once more whether the store believes that we hold something of which we never heard."""
        try:
            pulse = await self._store.renew(self._membership.node, self._membership.term)
            self._reaper.lost(self._runner.unknown(pulse.held))
            await self._reaper.give_back_lost_claims()
        except StoreError as error:
            log.warning("node %s could not look for claims whose answer was lost: %s", self.id, error)

    async def _write_the_rest(self) -> int:
        """Wait for the settler to have written everything, for a while."""
        try:
            async with asyncio.timeout(LAST_WORDS):
                await self._settler.emptied()
        except TimeoutError:
            log.error("the ends of %s attempts could not be written", len(self._settler.leases()))
        return len(self._settler.leases())

    async def _leave(self, *, may_leave: bool) -> None:
        await self._leases.shutdown(grace="2s", deadline="4s")
        if not may_leave:
            return
        try:
            await self._store.declare_dead(self._membership.node, self._membership.term)
        except StoreError as error:
            log.warning("node %s could not say good-bye: %s", self.id, error)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.shutdown()
