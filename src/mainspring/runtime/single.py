"""Runs a service on one node at a time, over the whole store, by a named lease.

Every node that has the service stands for election. The one that gets the lease runs the service and extends the lease;
the others ask now and then, and at once when the store hints at a change or a node is missing. A healthy holder is never
disturbed.

The holder stops its own step before another can have the lease. Before each step and twice a second during one it looks
at the store's clock: when that has jumped, or the machine has slept, another may have the lease at once. A step that will
not stop is reported, and nothing of the service runs here again before it has ended: its term is all that fences it.
"""

import random
from collections.abc import Callable
from typing import Final

from mainspring.clock import Clock
from mainspring.core.job import NodeId
from mainspring.runtime.events import Events, log
from mainspring.runtime.named_lease import NamedLease
from mainspring.runtime.service import ServiceContext, ServiceDefinition
from mainspring.supervise import Directive, Ending, Idle, Listener, Notifier, Sleep, Stop, TaskEnd, TaskSet
from mainspring.supervise.lines import first_of

JITTER: Final = 0.25  # by which a look may come sooner, so that nodes started together do not ask together
GAP: Final = 1.0  # seconds between two asks that nothing but a hint called for: a busy store hints all the time
ALERT: Final = 1.0  # seconds between two asks while a node is missing, which may have been the holder
GLANCE: Final = 0.5  # seconds between two looks at the store's clock: nothing wakes us when it has jumped
LEAST: Final = 0.001  # seconds that are worth a sleep: what is too short to be one would not let time pass


class Single:
    """One singleton on one node. `step` is that of a service which keeps its lease; the tenures run in `tasks`."""

    def __init__(
        self,
        definition: ServiceDefinition,
        lease: NamedLease,
        tasks: TaskSet,
        events: Events,
        *,
        me: Callable[[], NodeId],
        clock: Clock,
        stop_grace: float,
        listeners: tuple[Listener, ...] = (),
        roll: Callable[[], float] = random.random,
    ) -> None:
        self.name: Final = str(definition.name)
        self.wake = Notifier()
        self.lease: Final = lease
        self._definition = definition
        self._tasks = tasks
        self._events = events
        self._me = me
        self._clock = clock
        self._stop_grace = stop_grace
        self._listeners = listeners
        self._roll = roll
        self._asked_at = self._ask_at = self._alert_until = float("-inf")
        self._over = Stop()
        """The end of the present tenure."""
        self._body = TaskSet()
        """What runs, or ran, in the last tenure."""
        self._has_died = False
        self._when_retired: Callable[[], None] | None = None

    @property
    def is_stuck(self) -> bool:
        """Whether a step of an earlier tenure has not ended although it was told to."""
        return bool(self._body.running) and not self._leads

    @property
    def _leads(self) -> bool:
        return self.name in self._tasks.running

    def hint(self) -> None:
        """Look soon whether the lease is free; may be called from any thread."""
        if self.lease.lock is None:
            self.wake.notify_one()

    def alert(self) -> None:
        """Look more often for a while: a node is missing, and if it was the holder its lease is about to run out."""
        self._alert_until = self._clock.monotonic() + self.lease.ttl.total_seconds() + ALERT
        self.hint()

    def retire(self, then: Callable[[], None]) -> None:
        """Stop for good, give up the lease, and say so: the service is not wanted on this node any more."""
        self._when_retired = then
        self._over.set()
        self.wake.notify_one()

    # Keeping the lease.

    async def step(self) -> Directive:
        if self._has_died:
            await self.lease.resign()
            return Idle()
        if self.is_stuck:  # its lease runs out, and another may go on
            return Sleep(self.lease.beat, wakeable=True)
        if self._when_retired and not self._leads:
            await self.lease.resign()
            self._when_retired()
            return Idle()
        if self.lease.lock:
            return await self._keep()
        return Idle() if self._tasks.stop.is_set() else await self._ask()

    async def _ask(self) -> Directive:
        now = self._clock.monotonic()
        rest = min(self._asked_at + GAP, self._ask_at) - now
        if rest > LEAST:
            return Sleep(rest)
        # Until it has gone well, it is due: a rest in between would look like an answer to a store that gives none.
        self._asked_at, self._ask_at = now, float("-inf")
        return self._go_on() if await self.lease.ask() else self._stand_by()

    async def _keep(self) -> Directive:
        if await self.lease.extend():
            return self._go_on()
        self.lease.forget()
        if self._leads and not self._over.is_set():
            self._events.count("service_leases_lost")
            log.warning("service %s: another node has its lease by now; it is stopped here", self.name)
        self._over.set()
        return self._stand_by()

    def _stand_by(self) -> Directive:
        alert = self._clock.monotonic() < self._alert_until
        floor = self.lease.beat.total_seconds()
        pause = (min(ALERT, floor) if alert else floor) * (1 - JITTER * self._roll())
        self._ask_at = self._clock.monotonic() + pause
        return Sleep(pause, wakeable=True)

    def _go_on(self) -> Directive:
        """Run the service, unless it runs already, or the answer came too late, or the node is about to end."""
        if (
            self.lease.lock
            and self.lease.held
            and not self._leads
            and not self._tasks.stop.is_set()
            and not self._when_retired
        ):
            self._over = Stop()
            self._tasks.spawn(self.name, self._lead(self._over, self.lease.lock.term))
        return Sleep(self.lease.beat, wakeable=True)

    # Running the service.

    async def _lead(self, over: Stop, term: int) -> None:
        """Run the service for one tenure: until the lease is lost or cannot be trusted, or the node ends."""
        stop = self._tasks.stop
        body = self._body = TaskSet(on_end=lambda end: self._has_ended(end, over))
        context = ServiceContext(
            self.name,
            node=self._me,
            stopping=lambda: over.is_set() or stop.is_set(),
            held=lambda: not over.is_set() and self.lease.held,
            term=term,
        )

        async def step() -> Directive:
            if context.held:
                return await self._definition.step(context)
            over.set()
            return self._unanswered()

        log.info("service %s runs on node %s from now on, under term %s", self.name, self._me(), term)
        body.start(self._definition.service(step, self._listeners))
        try:
            while self.lease.held and not over.is_set():
                if stop.is_set():  # the step under way may finish, for as long as the node lets us
                    body.stop.set()
                until = min(self.lease.until, self._clock.monotonic() + GLANCE)
                await first_of([over] if stop.is_set() else [over, stop], until=until)
            if body.running and self.lease.lock:
                self._events.count("service_leases_lost")
                log.warning(
                    "service %s: its lease was not extended in time; it is stopped here before another node may run it",
                    self.name,
                )
        finally:
            over.set()
            await body.shutdown(grace=0, deadline=self._stop_grace)
            if body.running:
                self._events.count("services_abandoned")
                log.error(
                    "service %s: a step under term %s goes on although it was told to stop; nothing but its term keeps "
                    "it apart from those who come after it",
                    self.name,
                    term,
                )

    def _unanswered(self) -> Directive:
        """Give back what woke the service: the step that would have answered it may not run."""
        for wake in self._definition.wake:
            if isinstance(wake, Notifier):
                wake.notify_one()
        return Sleep(self.lease.beat)

    def _has_ended(self, end: TaskEnd, over: Stop) -> None:
        if end.ending is Ending.DIED and not self._body.stop.is_set():
            self._has_died = True
            log.error("service %s runs on this node no more; its lease goes to another", self.name)
        over.set()
        self.wake.notify_one()
