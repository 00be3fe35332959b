"""A task's circuit breaker, as values: when its jobs may run, and what their ends do to it.

Closed, it lets everything through and counts failures in a row. At the threshold it opens and lets nothing through
for the cooldown. Then it is half open: exactly one attempt, the probe, goes through, and its verdict closes or opens the
breaker again. An end that is no verdict (lost, snoozed, cancelled) frees the probe's place for another.
The clock is the store's, as for everything that is due. Set forward, it lets a probe through too early, and no more than
that; set back, it keeps a breaker open for at most one more cooldown.

Every change of phase begins a new term, and an end counts only in the term in which its attempt was let through: a late
failure from before the breaker opened cannot fail the probe. Who asks does not matter, since the state is a value
that a store keeps: of two that ask at once, the second one finds what the first has made of it.
"""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple, assert_never

from msgspec import Struct
from msgspec.structs import replace

from mainspring.core.job import JobId
from mainspring.core.machine import Change, Event
from mainspring.core.names import Name
from mainspring.core.outcome import Raised
from mainspring.duration import Duration, duration
from mainspring.errors import DeclarationError


@dataclass(frozen=True, slots=True)
class Breaker:
    """The rule: open after `threshold` failures in a row, probe after `cooldown`."""

    threshold: int = 10
    cooldown: Duration = "30s"

    def __post_init__(self) -> None:
        object.__setattr__(self, "cooldown", duration(self.cooldown))  # so that equal rules are equal
        if type(self.threshold) is not int or self.threshold < 1:
            raise DeclarationError(
                "Breaker", f"the threshold is a number of failures, at least 1, not {self.threshold}"
            )


class Phase(StrEnum):
    """Where a breaker stands."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


class Attempt(NamedTuple):
    """One execution of a job, by what no other shares: the job and the lease it runs under."""

    job: JobId
    lease: int


class Circuit(Struct, frozen=True, kw_only=True):
    """The state of one task's breaker, as a store keeps it. `forced` means that only an operator moves it."""

    phase: Phase = Phase.CLOSED
    term: int = 0
    revision: int = 0
    failures: int = 0
    """In a row, up to now: those that opened it, and those of its probes since."""
    opened_at: datetime | None = None
    probe: Attempt | None = None
    forced: bool = False


class PhaseChange(Struct, frozen=True, kw_only=True):
    """A breaker has entered a phase, and a term with it."""

    task: Name
    at: datetime
    source: Phase
    target: Phase
    term: int
    """The one that began."""
    job: JobId | None = None
    """Whose end, or whose beginning as the probe, brought it about."""
    by: str = ""
    """Who forced or reset it; nobody, if it moved by itself."""
    reason: str = ""
    """Why: an operator's words, or the error that opened it."""


class Pass(Struct, frozen=True, kw_only=True):
    """The attempt may start. Its end is to be recorded with this term; `circuit` is to be kept if it changed."""

    circuit: Circuit

    @property
    def term(self) -> int:
        return self.circuit.term


class Refusal(Struct, frozen=True, kw_only=True):
    """The attempt may not start before `until`; None: not before the probe ends or an operator acts."""

    until: datetime | None


class Verdict(StrEnum):
    """What the end of an attempt says about the task."""

    GOOD = "good"
    BAD = "bad"
    NONE = "none"


def verdict(change: Change) -> Verdict:
    """Read the end of an attempt: only a handler that returned or raised has said anything."""
    if change.event is Event.SUCCEEDED:
        return Verdict.GOOD
    if change.event is not Event.CANCELLED and isinstance(change.outcome, Raised):
        return Verdict.BAD
    return Verdict.NONE


def refusal(rule: Breaker, circuit: Circuit, now: datetime) -> Refusal | None:
    """Say why no attempt may start now; None: one may, and if the breaker is not closed, that one is the probe."""
    match circuit.phase:
        case Phase.CLOSED:
            return None
        case Phase.OPEN:
            return _still_hot(rule, circuit, now)
        case Phase.HALF_OPEN:
            return None if circuit.probe is None else Refusal(until=None)
        case _:
            assert_never(circuit.phase)


def is_shut(rule: Breaker, circuit: Circuit, now: datetime) -> bool:
    """Say whether it is open, and not about to let a probe through."""
    return circuit.phase is Phase.OPEN and refusal(rule, circuit, now) is not None


def admit(rule: Breaker, circuit: Circuit, attempt: Attempt, now: datetime) -> Pass | Refusal:
    """Say whether an attempt may start now."""
    refused = refusal(rule, circuit, now)
    if refused:
        # The same attempt may ask again: the answer to its first question can get lost.
        return Pass(circuit=circuit) if circuit.probe == attempt else refused
    match circuit.phase:
        case Phase.CLOSED:
            return Pass(circuit=circuit)
        case Phase.OPEN:
            return Pass(circuit=replace(_enter(circuit, Phase.HALF_OPEN), probe=attempt, failures=circuit.failures))
        case Phase.HALF_OPEN:
            return Pass(circuit=replace(circuit, probe=attempt, revision=circuit.revision + 1))
        case _:
            assert_never(circuit.phase)


def record(
    rule: Breaker, circuit: Circuit, attempt: Attempt, *, term: int | None, verdict: Verdict, now: datetime
) -> Circuit:
    """Take note of the end of an attempt that was let through in `term`; the same circuit back means nothing to write.

    Without a term, as when another node writes the end, it counts only if the attempt is the probe, of which there is one.
    """
    if circuit.forced or term not in {None, circuit.term}:
        return circuit
    match circuit.phase:
        case Phase.CLOSED if term is not None:
            return _count(rule, circuit, verdict, now)
        case Phase.HALF_OPEN if attempt == circuit.probe:
            return _judge(circuit, verdict, now)
        case _:
            return circuit


def free(circuit: Circuit) -> Circuit:
    """Let another be the probe: the present one does not run any more, whoever forgot to say so."""
    return replace(circuit, probe=None, revision=circuit.revision + 1)


def force(circuit: Circuit, phase: Phase, now: datetime) -> Circuit:
    """Open or close it by an operator's word; it stays so until `reset`."""
    if phase is Phase.HALF_OPEN:
        raise DeclarationError("breaker", "it can be forced open or closed; half open is a passage between the two")
    opened_at = now if phase is Phase.OPEN else None
    return replace(_enter(circuit, phase), opened_at=opened_at, forced=True)


def reset(circuit: Circuit) -> Circuit:
    """Close it, forget its failures, and let it move by itself again."""
    return _enter(circuit, Phase.CLOSED)


def _count(rule: Breaker, circuit: Circuit, verdict: Verdict, now: datetime) -> Circuit:
    match verdict:
        case Verdict.NONE:
            return circuit
        case Verdict.GOOD:
            return replace(circuit, failures=0, revision=circuit.revision + 1) if circuit.failures else circuit
        case Verdict.BAD if circuit.failures + 1 >= rule.threshold:
            return _open(circuit, now)
        case Verdict.BAD:
            return replace(circuit, failures=circuit.failures + 1, revision=circuit.revision + 1)
        case _:
            assert_never(verdict)


def _judge(circuit: Circuit, verdict: Verdict, now: datetime) -> Circuit:
    match verdict:
        case Verdict.NONE:
            return free(circuit)
        case Verdict.GOOD:
            return _enter(circuit, Phase.CLOSED)
        case Verdict.BAD:
            return _open(circuit, now)
        case _:
            assert_never(verdict)


def _open(circuit: Circuit, now: datetime) -> Circuit:
    return replace(_enter(circuit, Phase.OPEN), opened_at=now, failures=circuit.failures + 1)


def _enter(circuit: Circuit, phase: Phase) -> Circuit:
    return Circuit(phase=phase, term=circuit.term + 1, revision=circuit.revision + 1)


def _still_hot(rule: Breaker, circuit: Circuit, now: datetime) -> Refusal | None:
    if circuit.forced or circuit.opened_at is None:
        return Refusal(until=None)
    cooldown = duration(rule.cooldown)
    # Before that, the clock was set back since. By less, and it may as well be another's, which is a little behind.
    earliest, until = circuit.opened_at - cooldown, circuit.opened_at + cooldown
    return Refusal(until=until) if earliest <= now < until else None
