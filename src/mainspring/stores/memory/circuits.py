"""Breakers as a table: which were declared, how each stands, and how it came to that."""

from collections.abc import Iterator
from datetime import datetime

from mainspring.core.breaker import Attempt, PhaseChange, Refusal, refusal
from mainspring.core.names import Name
from mainspring.stores.circuits import CHANGES_KEPT, Kept, Step, admitted, freed, recorded
from mainspring.stores.records import BreakerView, Settlement


class Circuits:
    """The breakers that were declared, and how they came to stand as they do."""

    def __init__(self) -> None:
        self._kept: dict[Name, Kept] = {}
        self._changes: dict[Name, list[PhaseChange]] = {}

    def __iter__(self) -> Iterator[BreakerView]:
        return (view for kept in self._kept.values() if (view := kept.view))

    def get(self, task: Name) -> Kept | None:
        return self._kept.get(task)

    def changes(self, task: Name) -> list[PhaseChange]:
        """The last ones, in order."""
        return self._changes.get(task, [])

    def refusal(self, task: Name, now: datetime) -> Refusal | None:
        """Say why no job of a task may be given out now."""
        kept = self._kept.get(task)
        return None if kept is None or kept.rule is None else refusal(kept.rule, kept.circuit, now)

    def admit(self, task: Name, attempt: Attempt, now: datetime) -> tuple[int | None, PhaseChange | None]:
        """Let an attempt through; returns its term, and what has changed by that."""
        kept = self._kept.get(task)
        step = None if kept is None or kept.rule is None else admitted(kept, attempt, now)
        return (None, None) if step is None else (step.kept.circuit.term, self.put(step))

    def record(self, settlement: Settlement, now: datetime) -> PhaseChange | None:
        kept = self._kept.get(settlement.change.before.task)
        return None if kept is None else self.put(recorded(kept, settlement, now))

    def put(self, step: Step) -> PhaseChange | None:
        """Keep what a step has come to; returns its change."""
        task = step.kept.task
        self._kept[task] = step.kept
        if step.change:
            self._changes[task] = [*self._changes.get(task, []), step.change][-CHANGES_KEPT:]
        return step.change

    def free(self, task: Name) -> None:
        self._kept[task] = freed(self._kept[task])
