"""Finds jobs that nobody runs, and gives them to others: those of nodes that have died, and its own node's claims
whose answer was lost.

Two ways to notice: a process of the same machine that is not there any more, which is seen within a second, and a
counter that stands still for as long as a lease (`core.liveness`). Declaring a node dead is a compare-and-set on its
term, so that one watcher does it; taking its jobs is fenced by their leases, so that any number of reapers may try.
"""

from collections.abc import Callable, Mapping
from typing import Final

from mainspring.clock import Clock
from mainspring.core.job import Claim, JobId, NodeId, State
from mainspring.core.liveness import Sighting, is_dead, is_only_busy, observe
from mainspring.core.outcome import Interrupted, Lost
from mainspring.runtime.events import Events, log
from mainspring.runtime.keeper import Beat
from mainspring.runtime.process import cpu_of_neighbour, is_gone
from mainspring.runtime.settler import Ended, Settler
from mainspring.stores.port import Store
from mainspring.stores.records import NodeView
from mainspring.supervise import Directive, Notifier, Sleep

LOOK: Final = 0.5  # seconds between two looks at the neighbours' processes: no statement, a few system calls
SWEEP: Final = 30.0  # seconds between two looks for orphans that nobody's death explains
BATCH: Final = 500


class Reaper:
    """The step of a service."""

    def __init__(
        self,
        store: Store,
        settler: Settler,
        events: Events,
        *,
        me: Callable[[], NodeId],
        clock: Clock,
        lease: float,
    ) -> None:
        self.wake = Notifier()
        self._store = store
        self._settler = settler
        self._events = events
        self._me = me
        self._clock = clock
        self._lease = lease
        self._others: tuple[NodeView, ...] = ()
        self._sightings: Mapping[NodeId, Sighting] = {}
        self._busy: set[NodeId] = set()
        self._last_look: float | None = None
        self._next_sweep = 0.0
        self._lost_claims: set[tuple[JobId, int]] = set()

    def renewed(self, beat: Beat) -> None:
        """Look at the counters that came with a renewal."""
        since = None if self._last_look is None else beat.began - self._last_look
        self._last_look = beat.began
        counters = [(view.node.id, view.counter) for view in beat.pulse.nodes]
        seen = {view.node.id: cpu_of_neighbour(view.node.process) for view in beat.pulse.nodes}
        cpu = {node: used for node, used in seen.items() if used is not None}
        self._sightings = observe(
            self._sightings, counters, since=since, took=beat.answered - beat.began, lease=self._lease, cpu=cpu
        )
        self._warn_of_busy()
        alone = not self._others
        self._others = tuple(view for view in beat.pulse.nodes if view.node.id != self._me())
        if (alone and self._others) or any(
            is_dead(self._sightings[view.node.id], lease=self._lease) for view in self._others
        ):
            self.wake.notify_one()

    def _warn_of_busy(self) -> None:
        """Log a node that does not renew because its process is busy, once."""
        busy = {node for node, one in self._sightings.items() if is_only_busy(one, lease=self._lease)}
        for node in busy - self._busy:
            advice = 'run code that holds the GIL with executor="process"'
            log.warning("node %s: not renewing while its process is busy; waiting; %s", node, advice)
        self._busy = busy

    def sweep(self) -> None:
        """Look for orphans now: the node itself may have died and come back."""
        self._next_sweep = 0.0
        self.wake.notify_one()

    def lost(self, claims: set[tuple[JobId, int]]) -> None:
        """Have leases given back that the store believes this node to hold, and of which it never heard."""
        self._lost_claims |= claims
        if claims:
            self.wake.notify_one()

    async def step(self) -> Directive:
        if self._lost_claims:
            await self.give_back_lost_claims()
        died = [view for view in self._others if await self._bury(view)]
        now = self._clock.monotonic()
        if died or now >= self._next_sweep:
            found = await self._take_orphans()
            self._next_sweep = now if found == BATCH else now + SWEEP
        return Sleep(LOOK if self._others or self._next_sweep == now else SWEEP, wakeable=True)

    async def _bury(self, view: NodeView) -> bool:
        node = view.node
        counter: int | None = None  # of a process that has ended, no late renewal can come
        silence = 0.0
        if not is_gone(node.process):
            sighting = self._sightings.get(node.id)
            if sighting is None or not is_dead(sighting, lease=self._lease):
                return False
            counter, silence = sighting.counter, sighting.still
        declared = await self._store.declare_dead(node.id, view.term, counter)
        self._others = tuple(other for other in self._others if other.node.id != node.id)
        if declared:
            self._events.count("nodes_declared_dead")
            how = "its process has ended" if counter is None else f"it has been silent for {silence:.0f} s"
            log.warning("node %s is dead: %s; its jobs are taken over", node.id, how)
        return True

    async def _take_orphans(self) -> int:
        orphans = await self._store.orphans(BATCH)
        being_settled = self._settler.leases()
        for claim in orphans:
            if (claim.job.id, claim.job.lease) not in being_settled:
                self._settler.put(Ended(claim=claim, outcome=Lost(), by=self._me()))
        return len(orphans)

    async def give_back_lost_claims(self) -> None:
        """Give back what `lost` has named."""
        lost = tuple(self._lost_claims)
        views = await self._store.get([job for job, _ in lost])
        for (job, lease), view in zip(lost, views, strict=True):
            self._lost_claims.discard((job, lease))
            if view and view.node and (view.job.lease, view.job.state) == (lease, State.RUNNING):
                log.warning("job %s was claimed, but the answer never came; given back", job)
                claim = Claim(job=view.job, node=view.node)
                self._settler.put(Ended(claim=claim, outcome=Interrupted(started=False), by=view.node))
