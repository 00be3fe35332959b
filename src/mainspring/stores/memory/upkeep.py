"""The rest of the role `Jobs`, and the role `Upkeep`: what is done now and then, a little at a time."""

from collections.abc import Iterable
from datetime import datetime, timedelta
from itertools import islice
from typing import Final, TypeVar

from mainspring.stores.memory.guard import Guarded
from mainspring.stores.overview import KEEP_AUDIT
from mainspring.stores.records import Compacted

A_DAY: Final = timedelta(days=1)

K = TypeVar("K")
V = TypeVar("V")


class UpkeepRole(Guarded):
    """Mending and pruning."""

    async def mend(self, limit: int) -> int:
        with self._locked() as now:
            tables = self._tables
            ended = (taken for taken in tables.gates if not tables.still_runs(taken))
            mended = list(islice((taken for taken in ended if not tables.is_alive(taken.node)), limit))
            for taken in mended:
                tables.give_up(taken, now)
            probes = self._free_probes(limit - len(mended))
        if mended or probes:
            self._ring()
        return len(mended) + probes

    def _free_probes(self, limit: int) -> int:
        """Let others be probes in the place of attempts that do not run any more."""
        circuits = self._tables.circuits
        probes = [(view.task, view.circuit.probe) for view in circuits if view.circuit.probe]
        stray = [task for task, probe in probes if not self._tables.runs(probe.job, probe.lease)][:limit]
        for task in stray:
            circuits.free(task)
        return len(stray)

    async def prune(self, limit: int) -> int:
        with self._locked() as now:
            left = limit
            left -= self._prune_jobs(left, now)
            left -= self._tables.plans.runs.prune(left, now)
            left -= self._tables.uniques.prune(left, now)
            left -= self._prune_nodes(left, now - A_DAY)
            left -= self._prune_orders(left, now - A_DAY)
            left -= self._prune_locks(left, now - A_DAY)
            left -= self._prune_audit(left, now - KEEP_AUDIT)
            self._tables.gates.forget(now)
        if left < limit:
            self._ring()
        return limit - left

    async def compact(self) -> Compacted:
        with self._locked():
            return Compacted()  # what is deleted is gone

    async def analyze(self) -> tuple[str, ...]:
        with self._locked():
            return ()

    async def flush(self) -> None:
        """Do nothing: there is no place where it would stay."""
        with self._locked():
            return

    def _prune_jobs(self, limit: int, now: datetime) -> int:
        finished = self._tables.finished
        pruned = 0
        while pruned < limit and (first := finished.first()) and first[0][0] <= now:
            self._tables.delete(self._tables.rows[first[1]], now)
            pruned += 1
        return pruned

    def _prune_nodes(self, limit: int, a_day_ago: datetime) -> int:
        nodes = self._tables.nodes
        keep_places = {taken.node for taken in self._tables.gates}
        dead = (name for name, node in nodes.items() if node.died_at and node.died_at <= a_day_ago and not node.running)
        pruned = _drop(nodes, (name for name in dead if name not in keep_places), limit)
        reports = self._tables.reports
        _drop(reports, [name for name in reports if name not in nodes], len(reports))
        return pruned

    def _prune_orders(self, limit: int, a_day_ago: datetime) -> int:
        orders = self._tables.orders
        return _drop(orders, (name for name, order in orders.items() if order.given_at <= a_day_ago), limit)

    def _prune_locks(self, limit: int, a_day_ago: datetime) -> int:
        locks = self._tables.locks
        return _drop(locks, (name for name, grant in locks.items() if grant.lock.expires_at <= a_day_ago), limit)

    def _prune_audit(self, limit: int, long_ago: datetime) -> int:
        entries = self._tables.entries
        return _drop(entries, (id_ for id_, line in entries.items() if line.at <= long_ago), limit)


def _drop(table: dict[K, V], names: Iterable[K], limit: int) -> int:
    """Take rows out of a table, at most so many; returns how many."""
    dropped = list(islice(names, limit))
    for name in dropped:
        del table[name]
    return len(dropped)
