"""A schedule, its runs, and what becomes of both, as values.

A schedule is one row: what was declared (`Plan`), and how far it has been decided (`cursor`: the last slot of which it is
known what became of it). `steps` says how it goes on.
"""

from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final
from uuid import UUID

from msgspec import Struct

from mainspring.core.backoff import Backoff
from mainspring.core.job import JobId, Retention, State
from mainspring.core.missed import Missed, Reason
from mainspring.core.names import Name
from mainspring.core.rules import Cron, Every, Manual, Rule
from mainspring.core.unique import UniqueKey


class Overlap(StrEnum):
    """What a slot does that comes up while the run before it has not ended."""

    ALLOW = "allow"  # makes its job all the same
    SKIP = "skip"  # makes none
    QUEUE_ONE = "queue_one"  # waits for the end; a later slot takes its place
    CANCEL_PREVIOUS = "cancel_previous"  # has it cancelled, and waits for the end


class Template(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """The job that each slot makes."""

    task: Name
    payload: bytes
    backoff: Backoff
    max_attempts: int
    queue: str = "default"
    priority: int = 50
    loss_limit: int = 3
    retention: Retention = Retention()
    timeout: timedelta | None = None
    expires: timedelta | None = None
    key: str | None = None
    unique: UniqueKey | None = None
    tags: tuple[str, ...] = ()
    redact: tuple[str, ...] | bool = ()
    """The `redact` of the task when the schedule was declared."""


class Plan(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """What a schedule was declared to do.

    Code that does not know all of it must leave the schedule alone: a step that it wrote would drop the rest.
    """

    rule: Rule
    template: Template
    missed: Missed = Missed()
    overlap: Overlap = Overlap.ALLOW
    jitter: timedelta = timedelta(0)
    """By how much the start of a job may be put off: many schedules, not all at the same second."""
    until: datetime | None = None
    """No slot after this."""
    max_runs: int | None = None
    """No slot after so many have been fired; one whose unique key was taken counts too."""
    keep_runs: timedelta = timedelta(days=30)
    description: str = ""

    @property
    def zone(self) -> str:
        return self.rule.tz if isinstance(self.rule, Cron) else "UTC"

    @property
    def counts_from_the_end(self) -> bool:
        """Whether the next slot is known only when the run before it has ended."""
        return isinstance(self.rule, Every) and self.rule.after_end


CANCELLED: Final = "cancelled"
"""Who has paused a schedule for good that is declared in code: removed, it would be declared again."""


class Paused(Struct, frozen=True, kw_only=True):
    """Why a schedule stands still."""

    at: datetime
    by: str = ""
    reason: str = ""


class Origin(StrEnum):
    """What made a run."""

    SLOT = "slot"  # its slot came up
    BACKFILL = "backfill"  # somebody asked for slots of the past
    MANUAL = "manual"  # somebody asked for one now


class Run(Struct, frozen=True, kw_only=True):
    """What happened at a slot, or at several in a row that made no job. Its job, if it made one, has the same id."""

    id: UUID
    schedule: Name
    decided_at: datetime
    slot: datetime | None = None
    """None for one that was asked for by hand."""
    last: datetime | None = None
    """The last of several slots in a row."""
    count: int = 1
    origin: Origin = Origin.SLOT
    is_catch_up: bool = False
    zone: str = "UTC"
    owner: str | None = None
    reason: Reason | None = None
    """Why there is no job."""
    state: State | None = None
    """How the job ended; None while it has not, or if there is none."""
    finished_at: datetime | None = None
    error: str | None = None
    lingers: bool = False
    """The job has ended, and a body of it goes on: one that was abandoned because it did not stop when told to."""

    @property
    def job(self) -> JobId | None:
        return JobId(self.id) if self.reason is None else None

    @property
    def is_open(self) -> bool:
        """Whether its job waits or runs, or a body of it does."""
        return self.reason is None and (self.state is None or self.lingers)


class Slot(Struct, frozen=True, kw_only=True):
    """A slot that waits for the run before it to end."""

    at: datetime
    is_catch_up: bool = False


class Schedule(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A schedule as a store keeps it."""

    name: Name
    plan: Plan
    created_at: datetime
    cursor: datetime
    """Every slot up to here has been decided."""
    next_at: datetime | None
    """When to look at it again: at the next slot, or sooner. None: not before something else has happened."""
    revision: int = 1
    """Grows with every change. It begins at the instant of the creation, so that a step of one that was removed cannot be
    taken for one of its successor."""
    owner: str | None = None
    """Which deployment declares it; None for one that was added at run time."""
    release: str = ""
    """What that deployment called its version."""
    paused: Paused | None = None
    runs: int = 0
    """How many slots have been fired."""
    held: Slot | None = None
    waits: bool = False
    """The end of a run is awaited: whoever writes that has the schedule looked at again."""
    last_end: datetime | None = None
    """When a run ended, the last time that it was awaited."""
    last_drop: Run | None = None
    """The last run without a job, if nothing has come since: it grows while the reason stays the same."""
    last_drop_grown: int = 0
    """How often it has."""
    known_since: datetime | None = None
    """Earlier runs may have been pruned: they were kept for a shorter time, or were those of another of its name."""

    @property
    def next_slot(self) -> datetime | None:
        """The next slot, as far as that can be known: not while it is paused, nor before the end that it counts from."""
        if self.paused or (self.waits and self.plan.counts_from_the_end):
            return None
        return slot_after(self, self.cursor)

    @property
    def is_cancelled(self) -> bool:
        """Whether it was cancelled: it is kept for its name only, and nobody should count on it."""
        return self.paused is not None and self.paused.by == CANCELLED

    @property
    def is_over(self) -> bool:
        """Whether it has come to its end: no slot is left. One that never had any does not end by that."""
        if isinstance(self.plan.rule, Manual) and has_runs_left(self):
            return False
        return self.next_at is None and not self.waits and self.paused is None


class Decision(Struct, frozen=True, kw_only=True):
    """What is to be written, all of it or nothing."""

    before: Schedule | None
    """What was decided on; None: there is to be none of that name."""
    after: Schedule | None
    """None: it is taken away."""
    runs: tuple[Run, ...] = ()
    """To be written under their ids, over what is there."""
    cancels: bool = False
    """What still runs is to be cancelled."""


def has_runs_left(schedule: Schedule) -> bool:
    return schedule.plan.max_runs is None or schedule.runs < schedule.plan.max_runs


def slot_after(schedule: Schedule, after: datetime) -> datetime | None:
    """The first slot after an instant at which the schedule may still make a job."""
    plan = schedule.plan
    if not has_runs_left(schedule):
        return None
    if plan.counts_from_the_end:
        after = max(after, schedule.last_end or after)
    slot = plan.rule.next(after)
    return None if slot is None or (plan.until is not None and slot > plan.until) else slot
