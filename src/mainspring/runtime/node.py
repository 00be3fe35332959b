"""A node: opens the store that it is given, starts its services, owns their shutdown.

Nothing is global; two nodes can live in one process. The order of the end is the order of the data: no more claims and
no more steps of services, then what runs, then what is to be written, and the leases last.
"""

import asyncio
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Final, Self

from msgspec.structs import replace

from mainspring.clock import Clock, SystemClock
from mainspring.core.job import JobId, NodeId
from mainspring.core.names import Name
from mainspring.duration import Duration, seconds
from mainspring.errors import DeclarationError, StoreError
from mainspring.runtime.attempt import Reason
from mainspring.runtime.call import IN_SLOT
from mainspring.runtime.definition import QueueSettings, Registry
from mainspring.runtime.events import BreakerListener, Events, Listener, log
from mainspring.runtime.host import Host
from mainspring.runtime.keeper import Beat, Ears, Keeper, Membership
from mainspring.runtime.lingering import Lingering
from mainspring.runtime.middleware import Middleware
from mainspring.runtime.part import PartMaker, Seat
from mainspring.runtime.parts import Parts
from mainspring.runtime.planned import Planned
from mainspring.runtime.service import ServiceDefinition
from mainspring.runtime.settler import LOCKED_RETRY_S
from mainspring.runtime.thread_of_its_own import in_a_thread_of_its_own
from mainspring.settings import NodeSettings
from mainspring.stores.port import Store
from mainspring.supervise import Proceed, Stop

MIN_TIMER_S: Final = 1e-6
"""A shorter timer may not move the loop's clock, which is a float; on virtual time it would be due again for ever."""
LAST_WORDS: Final = 5.0  # seconds that all last writes together may take; a store that is locked can take a minute


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeReport:
    """How a node ended."""

    interrupted: int = 0
    """Attempts that were cut short and given back."""
    abandoned: tuple[JobId, ...] = ()
    """Jobs whose body did not stop. Unless the program exits, their leases are renewed until the body has ended."""
    unwritten: int = 0
    """Attempts whose end the store would not take; their jobs are noticed when the node is."""
    services: tuple[str, ...] = ()
    """Services whose step would not stop."""

    @property
    def drained(self) -> bool:
        """Whether everything that ran was finished, or given back in good order."""
        return not self.abandoned and not self.unwritten and not self.services


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
        planned: Planned | None = None,
        services: Mapping[Name, ServiceDefinition] | None = None,
        breaker_listeners: Sequence[BreakerListener] = (),
        host: Host | None = None,
        parts: Sequence[PartMaker] = (),
        keep_open: Callable[[], AbstractAsyncContextManager[object]] = nullcontext,
    ) -> None:
        self.settings = settings or NodeSettings()
        self.events = Events(listeners, breaker_listeners=breaker_listeners)
        self.stop = Stop()
        """Set it to have `run` shut the node down."""
        self.hurry = Stop()
        """Set it to have no more patience with what runs."""
        self._store = store
        self._keep_open = keep_open
        self._clock = clock or SystemClock()
        self._membership = Membership(node=NodeId(""), term=0)  # of nobody, until it has joined
        self._parts = Parts(
            store,
            registry,
            settings=self.settings,
            clock=self._clock,
            middleware=tuple(middleware),
            events=self.events,
            queues={} if queues is None else queues,  # the app's own, which may grow
            me=lambda: self._membership,
            planned=planned or Planned(),
            services={} if services is None else services,  # the app's own, which may grow
            host=host or Host(),
        )
        seat = Seat(
            store=store,
            events=self.events,
            settings=self.settings,
            clock=self._clock,
            me=lambda: self._membership,
            listeners=self._parts.listeners,
        )
        self._added = tuple(make(seat) for make in parts)
        self._orders = self._parts.orders(self)
        self._joined = Stop()
        self._is_gone = False
        self._keeper: Keeper | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._silence: asyncio.TimerHandle | None = None
        self._unwatch: Callable[[], None] | None = None
        self._ending: asyncio.Future[NodeReport] | None = None
        self._intake = self._parts.duties.task_set()
        self._duties = self._parts.duties.task_set()
        self._leases = self._parts.duties.task_set()

    @property
    def id(self) -> NodeId:
        """Its present id; it changes if the node was declared dead and came back."""
        return self._membership.node

    @property
    def running(self) -> int:
        return self._parts.runner.busy

    @property
    def places(self) -> int:
        """How many jobs it runs at a time."""
        return self._parts.runner.concurrency

    @property
    def has_ended(self) -> bool:
        return self._ending is not None and self._ending.done()

    @property
    def problem(self) -> str:
        """Reason why it does not work at present, or "". An operator's order is not a problem."""
        if not self._joined.is_set():
            return "it has not joined yet"
        if self.stop.is_set():
            return "it is stopping"
        if self._is_gone:
            return "it was declared dead, and has not joined again"
        if self._parts.claimer.silent:
            return "it could not renew for nearly a lease time"
        lease, age = self._parts.lease, self._renewal_age
        if age > lease:
            return f"last renewal {age:.0f} s ago, longer than the lease of {lease:g} s; check that the store accepts writes"
        return self._parts.duties.problem(tolerance=lease)

    # Beginning.

    async def start(self) -> None:
        """Open the store, join, and begin to work."""
        if IN_SLOT.is_set():
            advice = "start nodes under `if __name__ == '__main__':`"
            raise DeclarationError("node", f"a process slot imports the module to find its task; {advice}")
        parts = self._parts
        self._loop = asyncio.get_running_loop()
        await self._store.open()
        await parts.declare()
        for part in self._added:
            await part.declare()
        try:
            ears = Ears(joined=self._on_joined, renewed=self._on_renewed, gone=self._on_gone)
            self._keeper = parts.keeper(ears)
            keeping = parts.keeper_service(self._keeper)
            parts.duties.spawn(self._leases, keeping.name, lambda: in_a_thread_of_its_own(keeping, self._leases.stop))
            await self._joined.wait()
        except BaseException:
            deadline = asyncio.get_running_loop().time() + LAST_WORDS
            await self._leave(may_leave=self._joined.is_set(), deadline=deadline)
            raise
        parts.duties.start(self._duties, parts.service("settler", parts.settler))
        parts.duties.start(self._duties, parts.service("reaper", parts.reaper))
        parts.duties.start(self._duties, parts.service("orders", self._orders))
        parts.duties.start(self._duties, parts.pruner_service())
        turns = parts.claimer.turns
        self._unwatch = turns.subscribe(self._on_other_change) if turns else self._store.watch(self._on_hint)
        parts.duties.start(self._intake, parts.service("claimer", parts.claimer))
        if self.settings.ticker:
            parts.duties.start(self._intake, parts.service("ticker", parts.ticker))
        parts.services.start()
        for part in self._added:
            part.start()
        if parts.overview:  # last: work comes first
            parts.overview.start(partial(parts.duties.start, self._duties))

    def _on_hint(self) -> None:
        self._parts.claimer.wake.notify_one()
        self._on_other_change()

    def _on_other_change(self) -> None:
        """Wake everything but the claimer: a schedule, a lock or an outbox has changed, or a job of a schedule ended."""
        self._parts.ticker.wake.notify_one()
        self._parts.services.hint()
        for part in self._added:
            part.hint()

    # What the keeper tells.

    def _on_joined(self, membership: Membership) -> None:
        self._membership = membership
        self._is_gone = False
        self._joined.set()
        self._parts.reaper.sweep()
        self._parts.claimer.wake.notify_one()

    def _on_gone(self) -> None:
        self.events.count("declared_dead")
        self._is_gone = True
        self._parts.runner.forget_line()
        self._parts.runner.stop_all(Reason.LEASE_LOST)
        for part in self._added:
            part.gone()

    def _on_renewed(self, beat: Beat) -> None:
        self._end_silence()
        self._parts.reaper.renewed(beat)
        if self._parts.claimer.turns:
            self._parts.claimer.turns.renewed(self.id, beat.pulse.nodes)
        self._parts.services.renewed(beat)
        if self._parts.overview:
            self._parts.overview.renewed(beat)
        self._parts.ticker.known = self._parts.names.union(*(view.node.tasks for view in beat.pulse.nodes))
        self._parts.ticker.take_turns(self.id, [view.node.id for view in beat.pulse.nodes if view.node.ticks])
        self._parts.reaper.lost(self._parts.runner.reconcile(beat.pulse.held, beat.began))
        self._orders.received(beat.pulse.orders)
        if self._parts.has_news:
            self._declare_soon()
        for part in self._added:
            part.refresh()

    def refresh(self) -> None:
        """Look at once whether more or less is declared in this program; may be called from any thread."""
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop has been closed
                self._loop.call_soon_threadsafe(self._look_for_news)

    def cancel(self, job: JobId, lease: int) -> None:
        """Tell an attempt at once that its cancel was written, if it runs here; may be called from any thread."""
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop has been closed
                self._loop.call_soon_threadsafe(self._parts.runner.cancel, job, lease)

    def _look_for_news(self) -> None:
        self._parts.ticker.known = None  # until the next renewal
        self._parts.services.refresh()
        for part in self._added:
            part.refresh()
        if self._parts.has_news:
            self._declare_soon()

    def _declare_soon(self) -> None:
        if "declare" not in self._duties.running and not self._duties.stop.is_set():
            self._duties.spawn("declare", self._declare())

    async def _declare(self) -> None:
        """Tell the store what the node says about itself now. Tasks that are new are claimed only after that."""
        try:
            await self._parts.declare(self._update)
        except StoreError as error:
            log.warning("node %s could not say what it knows by now: %s", self.id, error)

    async def _update(self) -> None:
        await self._store.update(self.id, self._membership.term, replace(self._parts.record(), id=self.id))

    @property
    def _renewal_age(self) -> float:
        """Seconds since the last renewal that succeeded was sent, as the keeper's thread recorded it."""
        renewed_at = self._keeper.renewed_at if self._keeper else None
        return math.inf if renewed_at is None else self._clock.monotonic() - renewed_at

    def _end_silence(self) -> None:
        """Resume work after a renewal, and watch the next ones, unless an outage of the store affects all nodes alike."""
        if self._store.shares_fate:
            return
        if self._parts.claimer.silent:
            self._parts.claimer.silent = False
            self._parts.claimer.wake.notify_one()
            self._pause_parts()
        self._watch_renewals()

    def _watch_renewals(self) -> None:
        """Stop the node's own work a beat before other nodes may take it.

        The time of the last renewal is the keeper's. Its callback may run after this timer:
        after a handler has blocked the loop, asyncio runs callbacks of other threads first, and uvloop runs timers.
        """
        if self._silence:
            self._silence.cancel()
        if self._leases.stop.is_set():
            return
        left = self._parts.lease - self._parts.beat - self._renewal_age
        if left > MIN_TIMER_S:
            self._silence = asyncio.get_running_loop().call_later(left, self._watch_renewals)
        else:
            self._fall_silent()

    def _fall_silent(self) -> None:
        log.error("node %s could not renew for nearly a lease time; it stops its work before others take it", self.id)
        self._parts.claimer.silent = True
        self._parts.runner.give_back_all()
        self._parts.runner.stop_all(Reason.SILENCE)
        self._pause_parts()

    def _pause_parts(self) -> None:
        """Tell the parts whether anything may be begun, as the claimer is told."""
        for part in self._added:
            part.pause(quiet=self._parts.claimer.quiet, silent=self._parts.claimer.silent)

    # While it runs.

    def quiet(self) -> None:
        """Take nothing new; what runs goes on."""
        self._parts.claimer.quiet = True
        self._parts.runner.give_back_all()
        self._pause_parts()

    def resume(self) -> None:
        self._parts.claimer.quiet = False
        self._parts.claimer.wake.notify_one()
        self._pause_parts()

    def set_concurrency(self, places: int) -> None:
        self._parts.runner.set_concurrency(max(1, places))
        self._parts.claimer.wake.notify_one()
        self._declare_soon()

    def end(self) -> None:
        """Take nothing new, and have `run` shut the node down; inside of another program, that decides when."""
        self.quiet()
        self.stop.set()

    async def run(self) -> NodeReport:
        """Work until told to stop (`stop`), then shut down. It may be told so while it still waits for the store."""
        if not await self._started():
            return NodeReport()
        try:
            await self.stop.wait()
        except asyncio.CancelledError:
            self.hurry.set()
            await self.shutdown(exiting=True)
            raise
        return await self.shutdown(exiting=True)

    async def _started(self) -> bool:
        """Start; False if it was told to stop before it had."""
        starting = asyncio.ensure_future(self.start())
        stopping = asyncio.ensure_future(self.stop.wait())
        try:
            await asyncio.wait([starting, stopping], return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopping.cancel()
            starting.cancel()  # which does nothing to one that is done
            await asyncio.wait([starting])
        if starting.cancelled():
            return False
        starting.result()
        return True

    # The end.

    async def shutdown(self, *, grace: Duration | None = None, exiting: bool = False) -> NodeReport:
        """Stop intake, let running work finish within the grace time, cancel it, give it back, and leave.

        With `exiting`, the program ends right after, and jobs whose body would not stop are given back too. Else their
        leases are renewed until the body has ended. Cancelling this call ends the waiting only: the shutdown still leaves
        nothing else running. Later calls join the first one.
        """
        if self._ending is None:
            self._ending = asyncio.ensure_future(self._end(grace, exiting=exiting))
        cancelled: asyncio.CancelledError | None = None
        while not self._ending.done():
            try:
                await asyncio.shield(self._ending)
            except asyncio.CancelledError as word:
                self.hurry.set()
                cancelled = word
        if cancelled:
            raise cancelled
        return self._ending.result()

    async def _end(self, grace: Duration | None, *, exiting: bool) -> NodeReport:
        runner = self._parts.runner
        self.stop.set()
        if self._unwatch:
            self._unwatch()
        patience = seconds(self.settings.grace if grace is None else grace)
        async with asyncio.TaskGroup() as ends:
            services = ends.create_task(self._parts.services.end(grace=patience, hurry=self.hurry))
            added = [ends.create_task(part.end(grace=patience, hurry=self.hurry)) for part in self._added]
            await self._intake.shutdown(grace="1s", deadline="2s")
            runner.give_back_all()
            await self._patience(patience)
        runner.stop_all(Reason.SHUTDOWN)
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds(self.settings.stop_grace)):
                await runner.drained()
        left = runner.unstoppable()
        if exiting:
            runner.abandon_all()
        now = asyncio.get_running_loop().time()
        deadline = now + LAST_WORDS
        await self._give_back_lost_claims(now + LAST_WORDS / 2)  # the ends of attempts matter more
        await self._write_the_rest(deadline)
        await self._duties.shutdown(grace="1s", deadline="2s")
        still_running = () if exiting else runner.unstoppable()
        unwritten = await self._write_late_ends(deadline)
        if self._parts.overview:
            await self._parts.overview.end(deadline)
        runner.close()
        await self._parts.body.close()
        stuck = tuple(name for part in added for name in part.result())
        await self._leave(may_leave=not (still_running or stuck) or exiting, deadline=deadline)
        if still_running:
            lingering = Lingering(
                self._store, self.events, self._membership, still_running, beat=self._parts.beat, leaves=not stuck
            )
            await lingering.start(self._keep_open)
        abandoned = tuple(attempt.delivery.claim.job.id for attempt in left)
        return NodeReport(
            interrupted=runner.interrupted,
            abandoned=abandoned,
            unwritten=unwritten,
            services=(*services.result(), *stuck),
        )

    async def _patience(self, grace: float) -> None:
        """Wait until nothing runs, the grace time is over, or somebody is in a hurry."""
        waits = [asyncio.ensure_future(self._parts.runner.drained()), asyncio.ensure_future(self.hurry.wait())]
        try:
            await asyncio.wait(waits, timeout=grace, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()

    async def _give_back_lost_claims(self, deadline: float) -> None:
        """Look once more whether the store believes that we hold something of which we never heard."""
        try:
            async with asyncio.timeout_at(deadline):
                pulse = await self._store.renew(self._membership.node, self._membership.term, whole=True)
                self._parts.reaper.lost(self._parts.runner.unknown(pulse.held))
                await self._parts.reaper.give_back_lost_claims()
        except (StoreError, TimeoutError) as error:
            log.warning("node %s could not look for claims whose answer was lost: %r", self.id, error)

    async def _write_the_rest(self, deadline: float) -> None:
        """Wait for the settler to have written everything, until a deadline."""
        with suppress(TimeoutError):
            async with asyncio.timeout_at(deadline):
                await self._parts.settler.emptied()

    async def _write_late_ends(self, deadline: float) -> int:
        """Write the ends of bodies that returned while the settler was being stopped; returns how many are left.

        Bodies that return later are those of `still_running`, whose leases are renewed until then.
        """
        settler = self._parts.settler
        try:
            async with asyncio.timeout_at(deadline):
                while not settler.is_empty:
                    if not isinstance(await settler.step(), Proceed):
                        await asyncio.sleep(LOCKED_RETRY_S)
        except Exception as error:  # noqa: BLE001 -- the shutdown goes on
            log.warning("node %s: writing the last ends of attempts failed: %r", self.id, error)
        if unwritten := len(settler.leases()):
            log.error("the ends of %s attempts could not be written", unwritten)
        return unwritten

    async def _leave(self, *, may_leave: bool, deadline: float) -> None:
        await self._leases.shutdown(grace="2s", deadline="4s")
        if self._silence:  # only now: the last renewal has set the timer again
            self._silence.cancel()
        if not may_leave:
            return
        try:
            async with asyncio.timeout_at(deadline):
                await self._store.declare_dead(self._membership.node, self._membership.term)
        except (StoreError, TimeoutError) as error:
            log.warning("node %s could not say good-bye: %r", self.id, error)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.shutdown()
