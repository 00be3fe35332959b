"""Leases of bodies that outlive their node.

A node that is left inside of a program cannot end a body that does not stop: a thread cannot be killed, and a coroutine
may refuse to be cancelled. Its job must not run elsewhere before the body has ended. So a daemon thread goes on
renewing the leases, independent of the node's event loop, which may be closed by then. When a body has ended, its job is
given back and its place released; after the last one the node leaves.

The store stays open until then. If it is closed anyway, or the node is declared dead, the renewals end, and other nodes
take the jobs after the lease time.
"""

import asyncio
import threading
from collections.abc import Callable, Iterable
from contextlib import AbstractAsyncContextManager, AsyncExitStack

from mainspring.clock import on_virtual_time
from mainspring.core.breaker import PhaseChange
from mainspring.core.job import NodeId
from mainspring.errors import NodeGone, StoreClosed
from mainspring.runtime.attempt import Attempt, outcome_of_attempt, stopped
from mainspring.runtime.events import Events, StateChange, log
from mainspring.runtime.keeper import Membership, renewal_backoff
from mainspring.runtime.settler import Ended, Settler
from mainspring.stores.port import Store
from mainspring.stores.records import Place
from mainspring.supervise import NO_PAUSE, Directive, Proceed, Service, Sleep, Stop


class Lingering:
    """The step of a service that runs until the last body has ended."""

    def __init__(
        self,
        store: Store,
        events: Events,
        membership: Membership,
        bodies: Iterable[Attempt],
        *,
        beat: float,
        leaves: bool,
    ) -> None:
        self._store = store
        self._membership = membership
        self._bodies = list(bodies)
        self._beat = beat
        self._leaves = leaves
        self._home = asyncio.get_running_loop()
        self._settler = Settler(store, _HomeLoopEvents(events, self._home))
        self._stop = Stop()
        self._held = AsyncExitStack()
        self._task: asyncio.Task[None] | None = None  # on virtual time

    async def start(self, keep_open: Callable[[], AbstractAsyncContextManager[object]]) -> None:
        """Start in the background. `keep_open` is entered now and left at the end."""
        await self._held.enter_async_context(keep_open())
        jobs = ", ".join(str(one.delivery.claim.job.id) for one in self._bodies)
        log.error(
            "node %s: jobs %s are still running; their leases are renewed until they end", self._membership.node, jobs
        )
        if on_virtual_time():
            self._task = asyncio.create_task(self._run(), name="lingering")
        else:
            threading.Thread(target=self._serve, name="mainspring lingering", daemon=True).start()

    def _serve(self) -> None:
        asyncio.run(self._run())

    async def _run(self) -> None:
        async with self._held:
            again = renewal_backoff(self._beat)
            await Service("lingering", self.step, pacing=NO_PAUSE, backoff=again).run(self._stop)

    async def step(self) -> Directive:
        node, term = self._membership.node, self._membership.term
        try:
            await self._store.renew(node, term)
            for attempt in [one for one in self._bodies if self._has_ended(one)]:
                self._bodies.remove(attempt)
                self._give_back(attempt)
            while isinstance(await self._settler.step(), Proceed):
                pass  # the end of a job whose row is locked is written again after a later renewal
            if not self._bodies and self._settler.is_empty:
                self._stop.set()
                if self._leaves:
                    await self._store.declare_dead(node, term)
        except NodeGone:
            self._stop.set()
            log.error("node %s: declared dead with jobs still running; other nodes take them over", node)
        except StoreClosed:
            self._stop.set()
            log.error(
                "node %s: store closed with jobs still running; other nodes take them over after the lease time", node
            )
        return Sleep(self._beat)

    def _has_ended(self, attempt: Attempt) -> bool:
        """Whether neither the node's event loop nor a thread runs the body any more. Safe in any thread."""
        hold = attempt.link.hold if attempt.link else None
        if hold is not None and not hold.thread_ended:
            return False
        return attempt.task is None or attempt.task.done() or self._home.is_closed()

    def _give_back(self, attempt: Attempt) -> None:
        claim = attempt.delivery.claim
        log.warning("job %s (%s): its body has ended, after the shutdown of its node", claim.job.id, claim.job.task)
        if attempt.abandoned:
            self._settler.release(claim.node, Place(claim.job.id, claim.job.lease))
            return
        done = attempt.task is not None and attempt.task.done()
        outcome = outcome_of_attempt(attempt, attempt.task) if attempt.task and done else stopped(attempt)
        if outcome is not None and not attempt.settled:
            self._settler.put(
                Ended(
                    claim=claim,
                    outcome=outcome,
                    by=claim.node,
                    began=attempt.began,
                    term=attempt.delivery.term,
                    told_elsewhere=attempt.ends_itself,
                )
            )


class _HomeLoopEvents(Events):
    """Emits events of another thread on the node's event loop, for as long as that is open."""

    def __init__(self, events: Events, home: asyncio.AbstractEventLoop) -> None:
        super().__init__(events.listeners)
        self.counts = events.counts
        self._events = events
        self._home = home

    def tell(self, change: StateChange) -> None:
        if self._home.is_closed():
            self._events.tell(change)
        else:
            self._home.call_soon_threadsafe(self._events.tell, change)

    def tell_of_breaker(self, change: PhaseChange, node: NodeId | None) -> None:
        if self._home.is_closed():
            self._events.tell_of_breaker(change, node)
        else:
            self._home.call_soon_threadsafe(self._events.tell_of_breaker, change, node)
