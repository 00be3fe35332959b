"""Breakers: what stands in front of all jobs of a task when it fails again and again.

What claims need of breakers is cached with gates and pauses (`rules.Rules`) and versioned together: a closed breaker costs
a claim nothing; claims do not read the line of a task whose breaker is open. Only a claim that gives out the probe, and an
end that changes something, hold the row: always after the jobs that they hold, and before the rules.
"""

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import datetime
from typing import Final, NamedTuple

from msgspec.structs import replace

from mainspring.core import breaker
from mainspring.core.breaker import Attempt, Breaker, Circuit, Phase, PhaseChange
from mainspring.core.job import JobId
from mainspring.core.names import Name
from mainspring.stores.circuits import (
    CHANGES_KEPT,
    Kept,
    Step,
    admitted,
    declared,
    freed,
    is_loud,
    is_told,
    operated,
    recorded,
)
from mainspring.stores.passage import Trial
from mainspring.stores.postgres.bodies import printable
from mainspring.stores.postgres.rows import columns, name
from mainspring.stores.postgres.statements import Statement, statement
from mainspring.stores.postgres.verb import Ask, Row, Verb
from mainspring.stores.records import BreakerPage, BreakerView, Delivery, Settled, Settlement, Verdict

_READ: Final = statement("breakers_read")
_HOLD: Final = statement("breakers_hold")
_TRY: Final = statement("breakers_try")
_ADD: Final = statement("breakers_add")
_SET: Final = statement("breakers_set")
_ADD_CHANGES: Final = statement("breaker_changes_add")
_CHANGES: Final = statement("breaker_changes_of")
_PAGE: Final = statement("breakers_page")
_STRAY: Final = statement("breakers_stray")
_TELL: Final = statement("rules_change")


class Read(NamedTuple):
    """Breakers as they were read, and when."""

    kept: dict[Name, Kept]
    now: datetime | None
    """None: there was nothing to be held."""


# What claims do.


def hold_for_a_probe(at: datetime | None, tasks: Iterable[Name]) -> Verb[dict[Name, Kept]]:
    """Hold breakers until the transaction ends, those that nobody else does."""
    return (yield from _ask(_TRY, at, tasks)).kept


def let_through(
    trials: Mapping[Name, Trial], deliveries: Sequence[Delivery], now: datetime
) -> Verb[tuple[tuple[Delivery, ...], tuple[PhaseChange, ...]]]:
    """Make those jobs probes that are given out although their breaker, which is held, is not closed."""
    given: list[Delivery] = []
    steps: list[Step] = []
    for delivery in deliveries:
        job = delivery.claim.job
        trial = trials.get(job.task)
        step = None if trial is None else admitted(trial.kept, Attempt(job.id, job.lease), now)
        if step is not None:
            steps.append(step)
            delivery = replace(delivery, term=step.kept.circuit.term)  # noqa: PLW2901 -- the same job, with its term
        given.append(delivery)
    yield from _write({task: trial.kept for task, trial in trials.items()}, steps)
    return tuple(given), tuple(step.change for step in steps if step.change is not None)


# What settlements do.


def are_quiet(at: datetime | None, settlements: Sequence[Settlement]) -> Verb[bool]:
    """Say whether these ends would change no breaker. One statement, or none."""
    if any(_is_bad(one) for one in settlements):
        return False
    kept, now = yield from _ask(_READ, at, {one.change.before.task for one in settlements})
    return now is None or not is_loud(kept, settlements, now)


def record(
    at: datetime | None, settlements: Sequence[Settlement], answers: list[Settled], probes: AbstractSet[JobId]
) -> Verb[list[Settled]]:
    """Take note of ends that were accepted, in order; returns the answers, with what has changed by them."""
    counting = {
        place: one
        for place, one in enumerate(settlements)
        if one.change.node is not None
        and (one.term is not None or one.change.before.id in probes)
        and answers[place].verdict is Verdict.ACCEPTED
    }
    if not counting or (yield from are_quiet(at, list(counting.values()))):
        return answers
    before, now = yield from _ask(_HOLD, at, {one.change.before.task for one in counting.values()})
    after = dict(before)
    changes: dict[Name, PhaseChange] = {}
    for place, one in counting.items():
        task = one.change.before.task
        if now is None or task not in after:
            continue
        step = recorded(after[task], one, now)
        after[task] = step.kept
        if step.change is not None:
            changes[task] = step.change
            answers[place] = replace(answers[place], changed=step.change)
    moved = [Step(kept, changes.get(task)) for task, kept in after.items() if kept is not before[task]]
    yield from _write(before, moved)
    return answers


def _is_bad(settlement: Settlement) -> bool:
    return settlement.term is not None and breaker.verdict(settlement.change) is breaker.Verdict.BAD


def mend(limit: int) -> Verb[int]:
    """Let others be probes in the place of attempts that do not run any more; returns how many. Several statements."""
    seen = [name(task) for (task,) in (yield Ask(_STRAY, (limit,)))]
    if not seen:
        return 0
    before = yield from hold_for_a_probe(None, seen)
    stray = {name(task) for (task,) in (yield Ask(_STRAY, (limit,)))}  # now that nobody can make another the probe
    steps = [Step(freed(kept)) for task, kept in before.items() if task in stray]
    yield from _write(before, steps)
    return len(steps)


# The role `Breakers`.


def declare(at: datetime | None, rules: Mapping[Name, Breaker | None]) -> Verb[bool]:
    """Set rules; says whether anything has changed. Several statements; one, where all is as it was."""
    there, _ = yield from _ask(_READ, at, rules)
    new = {task: rule for task, rule in rules.items() if rule != (there[task].rule if task in there else None)}
    if not new:
        return False
    if missing := sorted(str(task) for task in new if task not in there):
        yield Ask(_ADD, (at, missing))
    before, now = yield from _ask(_HOLD, at, new)
    if now is None:
        return False
    steps = [step for task, rule in new.items() if (step := declared(task, before.get(task), rule, now)) is not None]
    yield from _write(before, steps)
    return bool(steps)


def operate(
    at: datetime | None, task: Name, phase: Phase | None, *, term: int | None, by: str, reason: str
) -> Verb[PhaseChange | None]:
    """Force a breaker into a phase, or reset it without one. Several statements."""
    before, now = yield from _ask(_HOLD, at, [task])
    if now is None:
        return None
    step = operated(before.get(task), phase, now, term=term, by=printable(by), reason=printable(reason))
    if step is None:
        return None
    yield from _write(before, [step])
    return step.change


def views(at: datetime | None, tasks: Sequence[Name]) -> Verb[tuple[BreakerView, ...]]:
    there, _ = yield from _ask(_READ, at, tasks)
    found = [there[task] for task in tasks if task in there]
    return tuple(view for kept in found if (view := kept.view) is not None)


def page(at: datetime | None, now: datetime, limit: int, after: str | None) -> Verb[BreakerPage]:
    """Read a page; `now` is what it says if there is nothing."""
    rows = yield Ask(_PAGE, (at, after or "", limit + 1))
    found = tuple(view for row in rows[:limit] if (view := _kept(row).view) is not None)
    more = str(found[-1].task) if found and len(rows) > limit else None
    return BreakerPage(now=rows[0][14] if rows else now, breakers=found, after=more)


def changes(task: Name, limit: int) -> Verb[tuple[PhaseChange, ...]]:
    return tuple(_change(row) for row in (yield Ask(_CHANGES, (str(task), limit))))


# Rows.


def _ask(what: Statement, at: datetime | None, tasks: Iterable[Name]) -> Verb[Read]:
    rows = yield Ask(what, (at, sorted({str(task) for task in tasks})))
    kept = [_kept(row) for row in rows if row[0] is not None]
    return Read({one.task: one for one in kept}, rows[-1][14] if rows else None)


def _write(before: Mapping[Name, Kept], steps: Sequence[Step]) -> Verb[None]:
    """Write what was held; tell all claims if it is anything that they go by."""
    if not steps:
        return
    yield Ask(_SET, columns([_values(kept) for kept, _ in steps]))
    if changed := [_values_of_change(change) for _, change in steps if change is not None]:
        yield Ask(_ADD_CHANGES, (*columns(changed), CHANGES_KEPT))
    if any(is_told(before.get(kept.task), kept) for kept, _ in steps):
        yield Ask(_TELL)


def _values(kept: Kept) -> tuple[object, ...]:
    circuit, rule, probe = kept.circuit, kept.rule, kept.circuit.probe
    return (
        str(kept.task),
        None if rule is None else rule.threshold,
        None if rule is None else rule.cooldown,
        str(circuit.phase),
        circuit.term,
        circuit.revision,
        circuit.failures,
        circuit.opened_at,
        None if probe is None else probe.job,
        None if probe is None else probe.lease,
        circuit.forced,
        kept.since,
        kept.by,
        kept.reason,
    )


def _values_of_change(change: PhaseChange) -> tuple[object, ...]:
    return (
        str(change.task),
        change.term,
        change.at,
        str(change.source),
        str(change.target),
        change.job,
        change.by,
        change.reason,
    )


def _kept(row: Row) -> Kept:
    (
        task, threshold, cooldown, phase, term, revision, failures, opened_at, probe_job, probe_lease, forced, since, by,
        reason, _now,
    ) = row  # fmt: skip
    return Kept(
        task=name(task),
        rule=None if threshold is None else Breaker(threshold=threshold, cooldown=cooldown),
        circuit=Circuit(
            phase=Phase(phase),
            term=term,
            revision=revision,
            failures=failures,
            opened_at=opened_at,
            probe=None if probe_job is None else Attempt(probe_job, probe_lease),
            forced=forced,
        ),
        since=since,
        by=by,
        reason=reason,
    )


def _change(row: Row) -> PhaseChange:
    task, term, at, source, target, job, by, reason = row
    return PhaseChange(
        task=name(task),
        at=at,
        source=Phase(source),
        target=Phase(target),
        term=term,
        job=job,
        by=by,
        reason=reason,
    )
