"""A gate or a breaker as one claim comes to it. Pure: what was read goes in, what is to be written comes out."""

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from mainspring.core.breaker import Phase, refusal
from mainspring.core.limits import Gate, Scope
from mainspring.stores.circuits import Kept

ENDLESS: Final = 1 << 62
"""Room without a limit: only to be compared with what is wanted."""


@dataclass(slots=True)
class Passage:
    """A gate as one claim comes to it: what has passed before, and what passes now."""

    gate: Gate
    key: str
    taken: int
    """Places that were taken before."""
    spent_until: datetime | None
    now: datetime
    room: int = ENDLESS
    """How many more may pass now."""
    passed: int = 0

    def __post_init__(self) -> None:
        if self.gate.concurrency is not None:
            self.room = self.gate.concurrency - self.taken
        if self.gate.rate is not None:
            self.spent_until = self.gate.rate.corrected(self.spent_until, self.now)
            self.room = min(self.room, self.gate.rate.room(self.spent_until, self.now))

    def let_pass(self, jobs: int) -> None:
        self.room -= jobs
        self.passed += jobs

    @property
    def is_keyed(self) -> bool:
        return self.gate.scope is Scope.KEY

    @property
    def is_full(self) -> bool:
        return self.gate.concurrency is not None and self.taken + self.passed >= self.gate.concurrency

    @property
    def spent(self) -> datetime | None:
        """The account of its rate, with those who passed now."""
        if self.gate.rate is None or not self.passed:
            return self.spent_until
        return self.gate.rate.take(self.spent_until, self.now, self.passed)

    @property
    def opens_at(self) -> datetime | None:
        """When its rate lets the next one start; None: now."""
        opens_at = None if self.gate.rate is None else self.gate.rate.opens_at(self.spent)
        return opens_at if opens_at is not None and opens_at > self.now else None


@dataclass(slots=True)
class Trial:
    """A task's breaker as one claim comes to it."""

    kept: Kept
    now: datetime
    room: int = ENDLESS
    """How many more may pass now: of a breaker that is not closed, one at most."""
    opens_at: datetime | None = None
    """When its cooldown is over; None: it is."""
    is_full: bool = False
    """Whether the probe has to end, or an operator to act, before another may pass."""

    def __post_init__(self) -> None:
        rule, circuit = self.kept.rule, self.kept.circuit
        if rule is None or circuit.phase is Phase.CLOSED:
            return
        refused = refusal(rule, circuit, self.now)
        self.room = 0 if refused else 1
        if refused:
            self.opens_at, self.is_full = refused.until, refused.until is None

    @property
    def is_closed(self) -> bool:
        return self.kept.circuit.phase is Phase.CLOSED

    def let_pass(self, jobs: int) -> None:
        self.room -= jobs
        self.is_full = self.is_full or self.room <= 0
