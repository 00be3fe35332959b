"""Rules of all claims: gates, paused queues and breakers, cached between claims and replaced when their version changes."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final
from uuid import UUID

from mainspring.core.breaker import Attempt, Breaker, Circuit, Phase, Refusal, refusal
from mainspring.core.job import JobId
from mainspring.core.limits import Gate, Rate, Scope
from mainspring.core.names import Name
from mainspring.stores.circuits import Kept
from mainspring.stores.postgres.rows import name
from mainspring.stores.postgres.verb import Row

LONG_AGO: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Rules:
    """Gates, pauses and breakers, as of a version. The failures that a breaker has counted are not included."""

    version: int = 0
    paused: frozenset[str] = frozenset()
    gates: Mapping[tuple[Scope, str], Gate] = field(default_factory=dict)
    breakers: Mapping[Name, Kept] = field(default_factory=dict)
    unclosed: frozenset[Name] = frozenset()
    """The tasks whose breakers are not closed."""

    @classmethod
    def of(cls, row: Row) -> "Rules":
        version, paused, scopes, names = row[:4]
        limits, of_breakers = row[4:8], row[8:]
        gates = [
            Gate(
                scope=Scope(scope),
                name=named,
                concurrency=concurrency,
                rate=None if count is None else Rate(count=count, period=period, burst=burst),
            )
            for scope, named, concurrency, count, period, burst in zip(scopes, names, *limits, strict=True)
        ]
        breakers = [_breaker(*each) for each in zip(*of_breakers, strict=True)]
        return cls(
            version,
            frozenset(paused),
            {(gate.scope, gate.name): gate for gate in gates},
            {kept.task: kept for kept in breakers},
            frozenset(kept.task for kept in breakers if kept.circuit.phase is not Phase.CLOSED),
        )

    def gates_of(self, task: Name, queue: str) -> list[Gate]:
        """The gates that all jobs of a task in a queue have to pass."""
        if not self.gates:
            return []
        both = (self.gates.get((Scope.TASK, str(task))), self.gates.get((Scope.QUEUE, queue)))
        return [gate for gate in both if gate is not None]

    def keyed(self, task: Name) -> Gate | None:
        """The gate that the jobs of a task have to pass that have a key."""
        return self.gates.get((Scope.KEY, str(task))) if self.gates else None

    def restricts(self, task: Name) -> bool:
        """Return whether jobs of a task have to pass a gate of their own, or a breaker that is not closed."""
        if task in self.unclosed:
            return True
        return bool(self.gates) and ((Scope.TASK, str(task)) in self.gates or (Scope.KEY, str(task)) in self.gates)

    def refusal(self, task: Name, now: datetime) -> Refusal | None:
        """Return why the breaker of a task lets no job pass now."""
        kept = self.breakers[task] if task in self.unclosed else None
        return None if kept is None or kept.rule is None else refusal(kept.rule, kept.circuit, now)


def _breaker(  # noqa: PLR0917 -- the columns of a row
    task: str,
    threshold: int,
    cooldown: timedelta,
    phase: str,
    term: int,
    opened_at: datetime | None,
    probe_job: UUID | None,
    probe_lease: int | None,
    forced: bool,
) -> Kept:
    """Read as much of a breaker as a claim goes by."""
    probe = None if probe_job is None or probe_lease is None else Attempt(JobId(probe_job), probe_lease)
    circuit = Circuit(phase=Phase(phase), term=term, opened_at=opened_at, probe=probe, forced=forced)
    return Kept(task=name(task), rule=Breaker(threshold=threshold, cooldown=cooldown), circuit=circuit, since=LONG_AGO)
