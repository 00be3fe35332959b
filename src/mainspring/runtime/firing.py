"""From a decision about a schedule to what a store is given: the step, its runs, and their jobs."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Final
from zlib import crc32

from mainspring.core.job import JobId
from mainspring.core.schedule import Decision, Origin, Run, Schedule
from mainspring.stores.records import AT_ONCE, Facts, Move, NewJob, SlotFacts

_SHARES: Final = 1 << 32


def move_of(*decisions: Decision, delay: timedelta | None = None) -> Move:
    """Make one step of decisions that were made one upon the other, with the jobs of those runs that make one.

    A job is made as the schedule was when that was decided; with a `delay`, it is due after that, whatever the plan says.
    """
    runs = {run.id: run for decision in decisions for run in decision.runs}  # one that has grown is written once
    jobs = tuple(job for decision in decisions for job in _jobs(decision, delay))
    return Move(before=decisions[0].before, after=decisions[-1].after, runs=tuple(runs.values()), jobs=jobs)


def _jobs(decision: Decision, delay: timedelta | None) -> Iterator[NewJob]:
    schedule = decision.after or decision.before
    for run in decision.runs:
        if run.is_open and schedule:
            yield _job(schedule, run, delay)


def _job(schedule: Schedule, run: Run, asked: timedelta | None) -> NewJob:
    template = schedule.plan.template
    delay = _delay(schedule, run) if asked is None else asked
    return NewJob(
        id=JobId(run.id),
        task=template.task,
        payload=template.payload,
        backoff=template.backoff,
        max_attempts=template.max_attempts,
        run_at=delay,
        expires=None if template.expires is None else delay + template.expires,
        queue=template.queue,
        priority=template.priority,
        loss_limit=template.loss_limit,
        retention=template.retention,
        timeout=template.timeout,
        key=template.key,
        unique=template.unique,
        facts=Facts(tags=template.tags, slot=_facts(run), redact=template.redact),
        is_new=asked is None,  # else its id is derived, and may have been used
    )


def _facts(run: Run) -> SlotFacts:
    return SlotFacts(
        schedule=str(run.schedule), slot=run.slot, zone=run.zone, origin=run.origin, is_catch_up=run.is_catch_up
    )


def _delay(schedule: Schedule, run: Run) -> timedelta:
    """Spread what comes up at the same instant. By name and slot, so that whoever fires it means the same."""
    if not schedule.plan.jitter or run.origin is not Origin.SLOT or run.is_catch_up:
        return AT_ONCE
    return schedule.plan.jitter * (crc32(f"{run.schedule} {run.slot}".encode()) / _SHARES)
