"""The role `Breakers`."""

from collections.abc import Mapping, Sequence
from heapq import nsmallest

from mainspring.core.breaker import Breaker, Phase, PhaseChange
from mainspring.core.names import Name
from mainspring.stores.circuits import declared, operated
from mainspring.stores.memory.guard import Guarded
from mainspring.stores.records import BreakerPage, BreakerView


class BreakersRole(Guarded):
    """The circuit breakers of tasks."""

    async def declare_breakers(self, rules: Mapping[Name, Breaker | None]) -> None:
        with self._locked() as now:
            circuits = self._tables.circuits
            steps = [step for task, rule in rules.items() if (step := declared(task, circuits.get(task), rule, now))]
            for step in steps:
                circuits.put(step)
        if steps:
            self._ring()

    async def breakers(self, tasks: Sequence[Name]) -> tuple[BreakerView, ...]:
        with self._locked():
            found = [kept for task in tasks if (kept := self._tables.circuits.get(task))]
            return tuple(view for kept in found if (view := kept.view))

    async def list_breakers(self, *, limit: int = 100, after: str | None = None) -> BreakerPage:
        with self._locked() as now:
            fitting = (view for view in self._tables.circuits if after is None or str(view.task) > after)
            found = nsmallest(limit + 1, fitting, key=lambda view: str(view.task))
        page = tuple(found[:limit])
        more = str(page[-1].task) if page and len(found) > limit else None
        return BreakerPage(now=now, breakers=page, after=more)

    async def force_breaker(
        self, task: Name, phase: Phase, *, term: int | None = None, by: str = "", reason: str = ""
    ) -> PhaseChange | None:
        return self._operate(task, phase, term, by, reason)

    async def reset_breaker(
        self, task: Name, *, term: int | None = None, by: str = "", reason: str = ""
    ) -> PhaseChange | None:
        return self._operate(task, None, term, by, reason)

    async def breaker_changes(self, task: Name, *, limit: int = 100) -> tuple[PhaseChange, ...]:
        with self._locked():
            return tuple(self._tables.circuits.changes(task)[::-1][:limit])

    def _operate(self, task: Name, phase: Phase | None, term: int | None, by: str, reason: str) -> PhaseChange | None:
        with self._locked() as now:
            circuits = self._tables.circuits
            step = operated(circuits.get(task), phase, now, term=term, by=by, reason=reason)
            if step is None:
                return None
            change = circuits.put(step)
        self._ring()
        return change
