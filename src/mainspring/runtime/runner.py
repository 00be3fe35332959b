"""Runs claimed jobs, so many at a time, each as one asyncio task.

Reads as the way of one job: taken, started, stopped if need be, ended, its place given to the next. A body that does
not stop when it is told to is abandoned after a grace time: its end is written and fenced, but its place here, and what
its limits count, stays taken until it has really ended.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from typing import Final

from mainspring.clock import Clock
from mainspring.core.breaker import PhaseChange
from mainspring.core.job import JobId, NodeId, State
from mainspring.core.machine import Event, is_expired
from mainspring.core.outcome import Expired, Interrupted, Outcome, Raised, Succeeded, Unreadable
from mainspring.duration import seconds
from mainspring.errors import UnknownTask
from mainspring.runtime.attempt import Attempt, Reason, outcome_of_attempt, stopped
from mainspring.runtime.body import Body
from mainspring.runtime.deadlines import Deadlines
from mainspring.runtime.definition import Definition, ExecutorKind, QueueSettings, Registry
from mainspring.runtime.events import Events, StateChange, log
from mainspring.runtime.settler import Ended, Settler
from mainspring.settings import NodeSettings
from mainspring.stores.port import Store
from mainspring.stores.records import Delivery, Held, Place

LATE: Final = 1.0  # seconds after which a claimed job that has found no place goes back


class Runner:
    """The places of a node, and what runs in them. Everything here happens on the node's event loop."""

    def __init__(
        self,
        store: Store,
        registry: Registry,
        settler: Settler,
        events: Events,
        body: Body,
        *,
        settings: NodeSettings,
        queues: Mapping[str, QueueSettings],
        clock: Clock,
    ) -> None:
        self.concurrency = settings.concurrency
        self.started = 0
        self.interrupted = 0
        self._refill_at = 0
        self._called = False
        self._closed = False
        self.freed: Callable[[], None] = lambda: None
        """Called when a place has become free, or claimed jobs are running low."""
        self.ended = asyncio.Event()
        """Set, and cleared again, whenever an attempt has ended."""
        self._store = store
        self._registry = registry
        self._settler = settler
        self._events = events
        self._body = body
        self._queues = queues
        self._clock = clock
        self._slots = settings.processes
        self._timeout = seconds(settings.timeout)
        self._stop_grace = seconds(settings.stop_grace)
        self._attempts: dict[tuple[JobId, int], Attempt] = {}
        self._abandoned: set[Attempt] = set()
        self._line: deque[tuple[Delivery, float]] = deque()
        self._by_queue: Counter[str] = Counter()
        self._claims: list[float] = []
        """When each claim under way began, by the monotonic clock."""
        self._strangers: dict[tuple[JobId, int], float] = {}
        """Leases that the store reports for this node and that are unknown here, with the time of the first report."""
        self._deadlines = Deadlines(self._attempts.values, partial(self._stop, reason=Reason.TIMEOUT))

    # What the claimer asks.

    @property
    def busy(self) -> int:
        return len(self._attempts) + len(self._abandoned)

    @property
    def bodies_ended(self) -> int:
        """How many bodies have ended so far: each has freed a place."""
        return self.started - self.busy

    @property
    def abandoned(self) -> int:
        return len(self._abandoned)

    @property
    def buffered(self) -> int:
        return len(self._line)

    @property
    def room(self) -> int:
        return self.concurrency - self.busy - len(self._line)

    def room_for_heavy(self, ahead: int) -> tuple[int, int]:
        """Room for jobs that need a process slot: places that are free now, with a slot, and how many to claim ahead.

        While quick jobs are claimed `ahead`, places are never idle. Then one such job may be claimed before a place is free;
        `take_heavy` reserves the next one.
        """
        running = (*self._attempts.values(), *self._abandoned)
        taken = sum(one.definition.executor is ExecutorKind.PROCESS for one in running)
        waiting = sum(self._is_heavy(delivery) for delivery, _ in self._line)
        free = self.concurrency - self.busy
        slots = self._slots - taken - waiting
        room = max(0, min(free - waiting, slots))
        return room, max(0, min(max(free, min(ahead, 1)) - waiting, slots) - room)

    def _is_heavy(self, delivery: Delivery) -> bool:
        try:
            definition = self._registry.find(delivery.claim.job.task)
        except UnknownTask:  # it was unregistered after the claim; the job goes back when its turn comes
            return False
        return definition.executor is ExecutorKind.PROCESS

    @property
    def has_suspect(self) -> bool:
        return any(attempt.delivery.claim.job.is_suspect for attempt in self._attempts.values())

    def rooms(self) -> dict[str, int]:
        """Room left in queues that have a concurrency of their own on this node."""
        return {
            name: max(0, queue.concurrency - self._by_queue[name])
            for name, queue in self._queues.items()
            if queue.concurrency is not None
        }

    def expects(self, ahead: int) -> None:
        """Have the claimer called again, once, when half of what it may claim ahead has been started.

        A claim of a thousand takes some milliseconds, in which a node of quick jobs would run dry.
        """
        self._refill_at = max(self.concurrency, ahead // 2) if ahead else 0
        self._called = False

    @contextmanager
    def claiming(self) -> Iterator[None]:
        """Mark a claim under way: what it has been given may be known to the store before it is known here."""
        began = self._clock.monotonic()
        self._claims.append(began)
        try:
            yield
        finally:
            self._claims.remove(began)

    def tell_of_probes(self, changes: Iterable[PhaseChange], node: NodeId) -> None:
        """Tell of breakers that are half open now, because this node has claimed their probe."""
        for change in changes:
            self._events.tell_of_breaker(change, node)

    # The way of a job.

    def take(self, delivery: Delivery) -> None:
        """Start a claimed job, or let it wait for the next place."""
        self._by_queue[delivery.claim.job.queue] += 1
        self._line.append((delivery, self._clock.monotonic()))
        self._fill()

    def take_heavy(self, delivery: Delivery) -> None:
        """Take a job that has a process slot: it has the next place, or a busy node would never run it."""
        self._by_queue[delivery.claim.job.queue] += 1
        self._line.appendleft((delivery, self._clock.monotonic()))
        self._fill()

    def _fill(self) -> None:
        """Give free places to those who wait for them."""
        while self._line and self.busy < self.concurrency:
            self._start(self._line.popleft()[0])

    def _start(self, delivery: Delivery) -> None:
        job = delivery.claim.job
        if (job.id, job.lease) in self._attempts:
            self._by_queue[job.queue] -= 1
            log.error(
                "job %s (%s) was delivered twice under lease %s; the attempt goes on", job.id, job.task, job.lease
            )
            return
        if delivery.unreadable is not None:
            self._settle_unstarted(delivery, Unreadable(delivery.unreadable))
            return
        try:
            definition = self._registry.find(job.task)
        except UnknownTask:  # it was unregistered after the claim had been sent
            self._settle_unstarted(delivery, Interrupted(started=False))
            return
        if job.expires_at is not None and is_expired(job, self._store.now()):
            self._settle_unstarted(delivery, Expired())
            return
        loop = asyncio.get_running_loop()
        timeout = self._timeout_of(delivery, definition)
        deadline = loop.time() + timeout
        attempt = Attempt(delivery, definition, timeout=timeout, began=self._clock.monotonic(), deadline=deadline)
        self._attempts[job.id, job.lease] = attempt
        self.started += 1
        attempt.task = loop.create_task(self._body.run(attempt))
        self._deadlines.watch(deadline)
        attempt.task.add_done_callback(partial(self._ended, attempt))
        if self._events.listeners:  # last, so that an error of a listener leaves no attempt without a task
            self._tell_claimed(delivery)

    def _timeout_of(self, delivery: Delivery, definition: Definition) -> float:
        if delivery.timeout is not None:
            return delivery.timeout.total_seconds()
        if definition.timeout is not None:
            return definition.timeout.total_seconds()
        queue = self._queues.get(delivery.claim.job.queue)
        return queue.timeout.total_seconds() if queue and queue.timeout is not None else self._timeout

    def _stop(self, attempt: Attempt, reason: Reason) -> None:
        """Tell an attempt to stop, once: a second cancel would cut short how it cleans up.

        The first reason is the one that counts, but a lost lease outweighs all.
        """
        told = attempt.reason is not None
        if not told or reason is Reason.LEASE_LOST:
            attempt.reason = reason
        if told or attempt.task is None or attempt.task.done():
            return
        if attempt.link:
            attempt.link.stop()
        attempt.task.cancel()
        if reason is not Reason.SHUTDOWN:  # there, the node's own deadline decides
            asyncio.get_running_loop().call_later(self._stop_grace, self._abandon, attempt)

    def _abandon(self, attempt: Attempt) -> None:
        job = attempt.delivery.claim.job
        if self._attempts.get(attempt.lease) is not attempt:
            return
        attempt.abandoned = True
        del self._attempts[attempt.lease]
        self._abandoned.add(attempt)
        self._events.count("abandoned")
        log.error("job %s (%s) did not stop when told to (%s); abandoned", job.id, job.task, attempt.reason)
        if attempt.reason is not Reason.LEASE_LOST and not attempt.settled:
            self._settle(attempt, stopped(attempt), keeps_place=True)

    def _ended(self, attempt: Attempt, task: "asyncio.Task[object]") -> None:
        outcome = outcome_of_attempt(attempt, task)
        self.interrupted += attempt.reason is Reason.SHUTDOWN and isinstance(outcome, Interrupted)
        if attempt.abandoned:
            self._really_ended(attempt)
        else:
            if self._attempts.get(attempt.lease) is attempt:
                del self._attempts[attempt.lease]
            if attempt.settled:
                self._after_the_end(attempt, outcome)
            elif outcome is not None:
                self._settle(attempt, outcome)
        self._free(attempt.delivery)

    def _after_the_end(self, attempt: Attempt, outcome: Outcome | None) -> None:
        """The handler's own transaction has ended the job; what happened later is worth a line and no more."""
        if not isinstance(outcome, Succeeded):
            job = attempt.delivery.claim.job
            self._events.count("errors_after_the_end")
            what = f"{outcome.error.type}: {outcome.error.message}" if isinstance(outcome, Raised) else str(outcome)
            log.warning("job %s (%s) had succeeded with its transaction; ignored: %s", job.id, job.task, what)

    def _settle(self, attempt: Attempt, outcome: Outcome, *, keeps_place: bool = False) -> None:
        claim = attempt.delivery.claim
        self._settler.put(
            Ended(
                claim=claim,
                outcome=outcome,
                by=claim.node,
                began=attempt.began,
                seconds=self._clock.monotonic() - attempt.began,
                keeps_place=keeps_place,
                term=attempt.delivery.term,
                told_elsewhere=attempt.ends_itself,
            )
        )

    def _settle_unstarted(self, delivery: Delivery, outcome: Outcome) -> None:
        self._by_queue[delivery.claim.job.queue] -= 1
        self._settler.put(Ended(claim=delivery.claim, outcome=outcome, by=delivery.claim.node, term=delivery.term))

    def _free(self, delivery: Delivery) -> None:
        self._by_queue[delivery.claim.job.queue] -= 1
        self._fill()
        self.ended.set()
        if not self._called and len(self._line) <= self._refill_at:
            self._called = True
            self.freed()

    def _really_ended(self, attempt: Attempt) -> None:
        self._abandoned.discard(attempt)
        claim = attempt.delivery.claim
        if not self._closed:  # else it was only let go of
            log.warning("the abandoned body of job %s (%s) has ended", claim.job.id, claim.job.task)
        self._settler.release(claim.node, Place(claim.job.id, claim.job.lease))

    def _tell_claimed(self, delivery: Delivery) -> None:
        claim = delivery.claim
        self._events.tell(
            StateChange(
                job=claim.job, event=Event.CLAIMED, source=delivery.source, target=State.RUNNING, node=claim.node
            )
        )

    # What the node asks.

    async def give_back_late(self) -> None:
        """Return jobs that have waited for a place for too long, so that others may run them.

        All jobs claimed after them are returned, too, and the caller waits up to a second for the write: otherwise these,
        or the next claim, would overtake them.
        """
        if not self._line or self._clock.monotonic() - self._line[0][1] <= LATE:
            return
        self.give_back_all()
        with suppress(TimeoutError):
            async with asyncio.timeout(LATE):
                await self._settler.emptied()

    def give_back_all(self) -> None:
        """Return all that has not been started."""
        while self._line:
            self._give_back(self._line.popleft()[0])

    def _give_back(self, delivery: Delivery) -> None:
        self._events.count("given_back_unstarted")
        self._settle_unstarted(delivery, Interrupted(started=False))

    def give_back(self, delivery: Delivery) -> None:
        """Return a claimed job at once."""
        self._by_queue[delivery.claim.job.queue] += 1
        self._give_back(delivery)

    def stop_all(self, reason: Reason) -> None:
        for attempt in list(self._attempts.values()):
            self._stop(attempt, reason)

    def cancel(self, job: JobId, lease: int) -> None:
        """Stop an attempt whose cancel an operator has asked for, without waiting for the next beat to tell of it."""
        attempt = self._attempts.get((job, lease))
        if attempt and attempt.reason is None:
            self._stop(attempt, Reason.CANCEL)

    def forget_line(self) -> None:
        """Drop what was claimed and not started, without a word: the node holds it no longer."""
        while self._line:
            delivery, _ = self._line.popleft()
            self._by_queue[delivery.claim.job.queue] -= 1

    def abandon_all(self) -> None:
        """Write the end of all that would not stop, because the program ends with it."""
        for attempt in list(self._attempts.values()):
            self._abandon(attempt)

    def set_concurrency(self, places: int) -> None:
        self.concurrency = places
        self._fill()

    def close(self) -> None:
        self._closed = True
        self._deadlines.close()

    async def drained(self) -> None:
        """Wait until nothing runs."""
        while self.busy:
            self.ended.clear()
            await self.ended.wait()

    def unstoppable(self) -> tuple[Attempt, ...]:
        """Name what still runs."""
        return (*self._attempts.values(), *self._abandoned)

    def reconcile(self, held: tuple[Held, ...], began: float) -> set[tuple[JobId, int]]:
        """Compare what the store believes that we hold, as of `began`, with what we know.

        Returns leases whose claim we never heard of, because its answer was lost.
        """
        believed = {one.job: one for one in held}
        for attempt in list(self._attempts.values()):
            claim = attempt.delivery.claim
            one = believed.get(claim.job.id)
            if one is None or one.lease != claim.job.lease:
                # One that ends itself may just have done so; if its node were dead, the node would know by now.
                if attempt.began < began and not attempt.ends_itself:
                    self._stop(attempt, Reason.LEASE_LOST)
            elif one.cancel_requested_at is not None and attempt.reason is None:
                self._stop(attempt, Reason.CANCEL)
        return self._lost_claims(held)

    def _lost_claims(self, held: tuple[Held, ...]) -> set[tuple[JobId, int]]:
        """Choose the leases whose claim has ended without an answer.

        Reported twice in a row, so that none of them has just been settled, and first reported before the oldest claim
        under way began, so that no pending answer can contain them.
        """
        now = self._clock.monotonic()
        seen = {lease: self._strangers.get(lease) for lease in self.unknown(held)}
        oldest = min(self._claims, default=now)
        lost = {lease for lease, first in seen.items() if first is not None and first < oldest}
        self._strangers = {lease: now if first is None else first for lease, first in seen.items() if lease not in lost}
        return lost

    def unknown(self, held: tuple[Held, ...]) -> set[tuple[JobId, int]]:
        """Choose the leases of which nothing is known here."""
        known = set(self._attempts)
        known |= {(delivery.claim.job.id, delivery.claim.job.lease) for delivery, _ in self._line}
        known |= self._settler.leases()
        return {(one.job, one.lease) for one in held} - known
