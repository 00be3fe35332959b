"""The role `Inspector`: what can be seen."""

from collections import Counter
from collections.abc import Sequence
from heapq import nlargest

from mainspring.core.job import JobId, NodeId
from mainspring.stores.memory.guard import Guarded
from mainspring.stores.records import (
    AttemptView,
    JobFilter,
    JobPage,
    JobView,
    LogLine,
    NodeView,
    Order,
    QueueView,
)
from mainspring.stores.searching import is_listed, previewed


class InspectorRole(Guarded):
    """What can be seen. Walks over all there is, where it has to: nothing that runs jobs asks here."""

    async def get(self, ids: Sequence[JobId], *, preview: int | None = None) -> tuple[JobView | None, ...]:
        with self._locked():
            rows = [self._tables.rows.get(id_) for id_ in ids]
            return tuple(previewed(row.view, preview) if row else None for row in rows)

    async def list_jobs(self, which: JobFilter, *, limit: int = 100, after: JobId | None = None) -> JobPage:
        with self._locked():
            views = [row.view for row in self._tables.rows.values()]
        fitting = (view for view in views if (after is None or view.job.id < after) and is_listed(which, view))
        found = nlargest(limit + 1, fitting, key=lambda view: view.job.id.int)
        page = tuple(found[:limit])
        return JobPage(jobs=page, after=page[-1].job.id if page and len(found) > limit else None)

    async def attempts(self, job: JobId) -> tuple[AttemptView, ...]:
        with self._locked():
            row = self._tables.rows.get(job)
            return row.attempts if row else ()

    async def log_lines(self, job: JobId) -> tuple[LogLine, ...]:
        with self._locked():
            row = self._tables.rows.get(job)
            return tuple(row.lines) if row else ()

    async def queues(self) -> tuple[QueueView, ...]:
        with self._locked():
            tables = self._tables
            waiting: Counter[str] = Counter()
            for lane in tables.lanes:
                waiting[lane.kind.queue] += lane.waiting
            running = Counter(tables.rows[job].job.queue for node in tables.nodes.values() for job in node.running)
            return tuple(
                QueueView(name=name, waiting=waiting[name], running=running[name], paused=tables.paused.get(name))
                for name in sorted({*waiting, *running, *tables.paused})
            )

    async def nodes(self) -> tuple[NodeView, ...]:
        with self._locked():
            nodes = [node.view() for node in self._tables.nodes.values()]
        return tuple(sorted(nodes, key=lambda view: view.joined_at))

    async def orders(self, node: NodeId) -> tuple[Order, ...]:
        with self._locked():
            return tuple(order for order in self._tables.orders.values() if order.node == node)
