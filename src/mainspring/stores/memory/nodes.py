"""The roles `Nodes` and `Operator`: who is at work, what they hold, and what is asked of them."""

from datetime import datetime, timedelta

from msgspec.structs import replace

from mainspring.core.job import Claim, JobId, NodeId
from mainspring.core.names import Name
from mainspring.errors import NodeGone
from mainspring.stores.memory.guard import Guarded
from mainspring.stores.memory.tables import Node
from mainspring.stores.records import Held, NodeOrder, NodeRecord, Order, Pause, Pulse


class NodesRole(Guarded):
    """Who is at work, and what they hold."""

    async def join(self, node: NodeRecord) -> int:
        with self._locked() as now:
            if node.id in self._tables.used_ids:
                raise NodeGone("memory", f"the id {node.id} was used before; join under a new one")
            self._tables.used_ids.add(node.id)
            self._tables.nodes[node.id] = Node(record=node, joined_at=now, renewed_at=now)
        self._ring()
        return Node.term

    async def renew(self, node: NodeId, term: int, *, whole: bool = False) -> Pulse:  # noqa: ARG002 -- every one is whole
        with self._locked() as now:
            found = self._tables.living(node, term)
            found.counter += 1
            found.renewed_at = now
            pulse = Pulse(
                held=tuple(self._held(job) for job in sorted(found.running)),
                orders=tuple(one for one in self._tables.orders.values() if one.node == node and one.done_at is None),
                nodes=tuple(one.view() for one in self._tables.nodes.values() if one.alive),
            )
        self._ring()
        return pulse

    async def update(self, node: NodeId, term: int, record: NodeRecord) -> None:
        with self._locked() as now:
            found = self._tables.living(node, term)
            self._forget_tasks(found, now)
            found.record = record
        self._ring()

    async def answer(self, node: NodeId, term: int, order: int, answer: str) -> None:
        with self._locked() as now:
            self._tables.living(node, term)
            given = self._tables.orders.get(order)
            if given and given.node == node and given.done_at is None:
                self._tables.orders[order] = replace(given, done_at=now, answer=answer)
        self._ring()

    async def declare_dead(self, node: NodeId, term: int, counter: int | None = None) -> bool:
        with self._locked() as now:
            found = self._tables.nodes.get(node)
            if found is None or not found.alive or found.term != term or counter not in {None, found.counter}:
                return False
            found.died_at = now
            self._forget_tasks(found, now)
        self._ring()
        return True

    async def orphans(self, limit: int) -> tuple[Claim, ...]:
        with self._locked():
            orphans = [
                Claim(job=self._tables.rows[job].job, node=name)
                for name, node in self._tables.nodes.items()
                if not node.alive
                for job in node.running
            ]
        orphans.sort(key=lambda claim: (claim.job.losses, claim.job.id.int))
        return tuple(orphans[:limit])

    async def unknown_tasks(self, grace: timedelta) -> tuple[Name, ...]:
        with self._locked() as now:
            tables = self._tables
            known = {task for node in tables.nodes.values() if node.alive for task in node.record.tasks}
            known |= {task for task, last in tables.last_known.items() if last > now - grace}
            waiting = [lane for lane in tables.lanes if lane.kind.task not in known]
            return tuple(sorted({lane.kind.task for lane in waiting if lane.oldest() <= now - grace}))

    def _held(self, job: JobId) -> Held:
        running = self._tables.rows[job].job
        return Held(job=job, lease=running.lease, cancel_requested_at=running.cancel_requested_at)

    def _forget_tasks(self, node: Node, now: datetime) -> None:
        self._tables.last_known.update(dict.fromkeys(node.record.tasks, now))


class OperatorRole(Guarded):
    """What a person may do beside changing jobs."""

    async def pause(self, queue: str, *, by: str = "", reason: str = "") -> bool:
        with self._locked() as now:
            if queue in self._tables.paused:
                return False
            self._tables.paused[queue] = Pause(at=now, by=by, reason=reason)
        self._ring()
        return True

    async def resume(self, queue: str) -> bool:
        with self._locked():
            resumed = self._tables.paused.pop(queue, None) is not None
        if resumed:
            self._ring()
        return resumed

    async def order(self, node: NodeId, order: NodeOrder) -> Order:
        with self._locked() as now:
            self._tables.living(node)
            given = Order(id=next(self._tables.order_ids), node=node, order=order, given_at=now)
            self._tables.orders[given.id] = given
        self._ring()
        return given
