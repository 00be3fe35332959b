"""Breakers: what stands in front of all jobs of a task when it fails again and again.

Whether one lets jobs pass is read with the gates of every claim, in the same statement. What moves it is decided by
`stores.circuits` and written here, in the transaction of whoever moves it; there is one writer at a time.
"""

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Final

from msgspec.structs import replace

from mainspring.core.breaker import Attempt, Breaker, Circuit, Phase, PhaseChange
from mainspring.core.job import JobId
from mainspring.core.names import Name
from mainspring.duration import duration
from mainspring.stores.circuits import CHANGES_KEPT, Kept, Step, admitted, declared, freed, operated, recorded
from mainspring.stores.passage import Trial
from mainspring.stores.records import BreakerPage, BreakerView, Settled, Settlement, Verdict
from mainspring.stores.sqlite.rows import (
    Row,
    clean,
    instant,
    job_id,
    micros,
    name,
    optional_instant,
    optional_micros,
    span_micros,
    to_span,
)
from mainspring.stores.sqlite.session import Session
from mainspring.stores.sqlite.statements import statement

_FIND: Final = statement("breaker_find")
_SET: Final = statement("breaker_set")
_ADD_CHANGE: Final = statement("breaker_change_add")
_TRIM_CHANGES: Final = statement("breaker_changes_trim")
_STRAY: Final = statement("breakers_stray")
_PAGE: Final = statement("view_breakers")
_CHANGES: Final = statement("view_breaker_changes")


def find(session: Session, task: Name) -> Kept | None:
    row = session.row(_FIND, (str(task),))
    return None if row is None else kept_of(row)


def write(session: Session, step: Step) -> None:
    """Write what a step has come to."""
    kept, change = step
    circuit, rule, probe = kept.circuit, kept.rule, kept.circuit.probe
    session.run(
        _SET,
        (
            str(kept.task),
            None if rule is None else rule.threshold,
            None if rule is None else span_micros(duration(rule.cooldown)),
            circuit.phase,
            circuit.term,
            circuit.revision,
            circuit.failures,
            optional_micros(circuit.opened_at),
            None if probe is None else probe.job.bytes,
            None if probe is None else probe.lease,
            circuit.forced,
            micros(kept.since),
            clean(kept.by),
            clean(kept.reason),
        ),
    )
    if change is None:
        return
    job = None if change.job is None else change.job.bytes
    texts = clean(change.by), clean(change.reason)
    session.run(
        _ADD_CHANGE, (str(change.task), change.term, micros(change.at), change.source, change.target, job, *texts)
    )
    session.run(_TRIM_CHANGES, (str(change.task), change.term - CHANGES_KEPT))


# What claims and settlements do.


def let_through(session: Session, trial: Trial, job: JobId, lease: int) -> PhaseChange | None:
    """Make a job the probe of its task's breaker; returns what has changed by that."""
    step = admitted(trial.kept, Attempt(job, lease), instant(session.now))
    assert step is not None  # noqa: S101 -- the trial had room for it
    trial.kept = step.kept
    write(session, step)
    return step.change


def record(
    session: Session, settlements: Sequence[Settlement], answers: list[Settled], probes: AbstractSet[JobId]
) -> list[Settled]:
    """Take note of ends that were accepted, in order; returns the answers, with what has changed by them.

    Only those can count that were let through in a term, or are of a probe.
    """
    known: dict[Name, Kept | None] = {}
    for place, one in enumerate(settlements):
        if one.term is None and not probes:
            continue
        counts = one.change.node is not None and (one.term is not None or one.change.before.id in probes)
        if not counts or answers[place].verdict is not Verdict.ACCEPTED:
            continue
        task = one.change.before.task
        kept = known[task] if task in known else find(session, task)
        known[task] = kept
        if kept is None:
            continue
        step = recorded(kept, one, instant(session.now))
        if step.kept is not kept:
            write(session, step)
            known[task] = step.kept
        if step.change is not None:
            answers[place] = replace(answers[place], changed=step.change)
    return answers


def mend(session: Session, limit: int) -> int:
    """Let others be probes in the place of attempts that do not run any more; returns how many."""
    stray = session.rows(_STRAY, (limit,))
    for (task,) in stray:
        if kept := find(session, name(task)):
            write(session, Step(freed(kept)))
            session.woke = True
    return len(stray)


# The role `Breakers`.


def declare(session: Session, rules: Mapping[Name, Breaker | None]) -> None:
    for task, rule in rules.items():
        step = declared(task, find(session, task), rule, instant(session.now))
        if step is not None:
            write(session, step)
            session.woke = True


def operate(
    session: Session, task: Name, phase: Phase | None, *, term: int | None, by: str, reason: str
) -> PhaseChange | None:
    """Force a breaker into a phase, or reset it without one."""
    now = instant(session.now)
    step = operated(find(session, task), phase, now, term=term, by=clean(by), reason=clean(reason))
    if step is None:
        return None
    write(session, step)
    session.woke = True
    return step.change


def views(session: Session, tasks: Sequence[Name]) -> tuple[BreakerView, ...]:
    found = [kept for task in tasks if (kept := find(session, task))]
    return tuple(view for kept in found if (view := kept.view))


def page(session: Session, limit: int, after: str | None) -> BreakerPage:
    rows = session.rows(_PAGE, (after or "", limit + 1))
    found = tuple(view for row in rows[:limit] if (view := kept_of(row).view))
    more = str(found[-1].task) if found and len(rows) > limit else None
    return BreakerPage(now=instant(session.now), breakers=found, after=more)


def changes(session: Session, task: Name, limit: int) -> tuple[PhaseChange, ...]:
    return tuple(_change(row) for row in session.rows(_CHANGES, (str(task), limit)))


# Rows.


def kept_of(row: Row) -> Kept:
    (
        task, threshold, cooldown, phase, term, revision, failures, opened_at, probe_job, probe_lease, forced, since, by,
        reason,
    ) = row  # fmt: skip
    return Kept(
        task=name(task),
        rule=None if threshold is None else Breaker(threshold=threshold, cooldown=to_span(cooldown)),
        circuit=Circuit(
            phase=Phase(phase),
            term=term,
            revision=revision,
            failures=failures,
            opened_at=optional_instant(opened_at),
            probe=None if probe_job is None else Attempt(job_id(probe_job), probe_lease),
            forced=bool(forced),
        ),
        since=instant(since),
        by=by,
        reason=reason,
    )


def _change(row: Row) -> PhaseChange:
    task, term, at, source, target, job, by, reason = row
    return PhaseChange(
        task=name(task),
        at=instant(at),
        source=Phase(source),
        target=Phase(target),
        term=term,
        job=None if job is None else job_id(job),
        by=by,
        reason=reason,
    )
