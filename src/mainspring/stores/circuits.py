"""A breaker as stores keep it, and the steps it takes. Pure: what was read goes in, what is to be written comes out."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Final, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from mainspring.core import breaker
from mainspring.core.breaker import Attempt, Breaker, Circuit, Pass, Phase, PhaseChange
from mainspring.core.names import Name
from mainspring.core.outcome import Raised
from mainspring.stores.records import BreakerView, Settlement

CHANGES_KEPT: Final = 100
"""Of each task. Every change begins a term, so the last ones are those of the last terms."""
WORDS_KEPT: Final = 200
"""Of the error that opened it: what a line has room for."""
UNDECLARED: Final = "its rule was taken out of the code"


class Kept(Struct, frozen=True, kw_only=True):
    """The breaker of a task. Without a rule there is none any more; only its term is kept, so that it never falls."""

    task: Name
    rule: Breaker | None
    circuit: Circuit
    since: datetime
    by: str = ""
    reason: str = ""

    @property
    def view(self) -> BreakerView | None:
        if self.rule is None:
            return None
        return BreakerView(
            task=self.task, rule=self.rule, circuit=self.circuit, since=self.since, by=self.by, reason=self.reason
        )


class Step(NamedTuple):
    """What a breaker becomes, and the change that is to be told if it has entered another phase."""

    kept: Kept
    change: PhaseChange | None = None


def declared(task: Name, kept: Kept | None, rule: Breaker | None, now: datetime) -> Step | None:
    """Give a task a rule, or none; None: there is nothing to write."""
    if kept is None:
        return None if rule is None else Step(Kept(task=task, rule=rule, circuit=Circuit(), since=now))
    if kept.rule == rule:
        return None
    if rule is None:
        kept, change = _moved(kept, breaker.reset(kept.circuit), now, reason=UNDECLARED)
        return Step(replace(kept, rule=None), change)
    return Step(replace(kept, rule=rule, since=kept.since if kept.rule else now))


def admitted(kept: Kept, attempt: Attempt, now: datetime) -> Step | None:
    """Let an attempt through that is given out now; None: it is not to be."""
    if kept.rule is None:
        return Step(kept)
    answer = breaker.admit(kept.rule, kept.circuit, attempt, now)
    if not isinstance(answer, Pass):
        return None
    moved, change = _moved(kept, answer.circuit, now, attempt=attempt)
    return Step(replace(moved, reason=kept.reason) if change else moved, change)  # half open for what it was open for


def recorded(kept: Kept, settlement: Settlement, now: datetime) -> Step:
    """Take note of the end of an attempt. The very same breaker back means that there is nothing to write."""
    change = settlement.change
    if kept.rule is None or change.node is None:
        return Step(kept)
    attempt, verdict = attempt_of(settlement), breaker.verdict(change)
    if settlement.term is None and verdict is breaker.Verdict.GOOD:
        return Step(kept)  # successes are written in one go, and only those with a term are held against their breakers
    circuit = breaker.record(kept.rule, kept.circuit, attempt, term=settlement.term, verdict=verdict, now=now)
    if circuit is kept.circuit:
        return Step(kept)
    reason = _words(change.outcome) if circuit.phase is Phase.OPEN else ""
    return _moved(kept, circuit, now, attempt=attempt, reason=reason)


def operated(
    kept: Kept | None, phase: Phase | None, now: datetime, *, term: int | None, by: str, reason: str
) -> Step | None:
    """Force a breaker into a phase, or reset it without one.

    None: it is not there, or in another term, or stands so by somebody's word already and there is no other reason.
    """
    if kept is None or kept.rule is None or term not in {None, kept.circuit.term}:
        return None
    if kept.circuit.forced and kept.circuit.phase is phase and reason in {"", kept.reason}:
        return None  # else whoever says it once more would take away who it was, since when, and why
    circuit = breaker.reset(kept.circuit) if phase is None else breaker.force(kept.circuit, phase, now)
    return _moved(kept, circuit, now, by=by, reason=reason)


def freed(kept: Kept) -> Kept:
    """Let another be the probe."""
    return replace(kept, circuit=breaker.free(kept.circuit))


def attempt_of(settlement: Settlement) -> Attempt:
    job = settlement.change.before
    return Attempt(job.id, job.lease)


def is_told(before: Kept | None, after: Kept) -> bool:
    """Say whether claims have to know: all that they go by has changed, unless only failures were counted."""
    if before is None or before.rule != after.rule:
        return True
    return before.circuit != replace(after.circuit, failures=before.circuit.failures, revision=before.circuit.revision)


def is_loud(breakers: Mapping[Name, Kept], settlements: Iterable[Settlement], now: datetime) -> bool:
    """Say whether these ends, one after the other, would change anything."""
    for settlement in settlements:
        kept = breakers.get(settlement.change.before.task)
        if kept is not None and recorded(kept, settlement, now).kept is not kept:
            return True
    return False


def _words(outcome: object) -> str:
    """Say in one line what was raised, in characters that every store can keep."""
    if not isinstance(outcome, Raised):
        return ""
    said = " ".join(f"{outcome.error.type}: {outcome.error.message}"[: 4 * WORDS_KEPT].split()).rstrip(": ")
    plain = "".join(one if one.isprintable() else "\N{REPLACEMENT CHARACTER}" for one in said)
    return plain if len(plain) <= WORDS_KEPT else f"{plain[: WORDS_KEPT - 1]}…"


def _moved(
    kept: Kept, circuit: Circuit, now: datetime, *, attempt: Attempt | None = None, by: str = "", reason: str = ""
) -> Step:
    moved = kept if circuit is kept.circuit else replace(kept, circuit=circuit)
    if circuit.term == kept.circuit.term:
        return Step(moved)
    change = PhaseChange(
        task=kept.task,
        at=now,
        source=kept.circuit.phase,
        target=circuit.phase,
        term=circuit.term,
        job=attempt.job if attempt else None,
        by=by,
        reason=reason,
    )
    return Step(replace(moved, since=now, by=by, reason=reason), change)
