"""What goes into a store and what comes out of it: plain values, the same for every store.

Those of the hot path, and the job itself, are left out of garbage collection (`gc=False`): plain values cannot be in a
cycle, and a node that works off a backlog makes a hundred thousand of each. It saves a tenth of its processor time.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from enum import StrEnum
from sys import maxsize
from typing import Final, TypeAlias
from uuid import UUID

from msgspec import Struct, field

from mainspring.core.backoff import Backoff
from mainspring.core.breaker import Breaker, Circuit, PhaseChange
from mainspring.core.job import Cause, Claim, Job, JobId, NodeId, Retention, State
from mainspring.core.keys import MAX_KEY_BYTES, key_length
from mainspring.core.machine import Change, Event
from mainspring.core.names import LONGEST_PART, Name
from mainspring.core.outcome import AttemptError
from mainspring.core.schedule import Origin, Run, Schedule
from mainspring.core.unique import UniqueKey
from mainspring.errors import DeclarationError
from mainspring.ids import new_claim_number

When: TypeAlias = datetime | timedelta
"""An instant, or a length of time that counts from the store's now."""

AT_ONCE: Final = timedelta(0)


class SlotFacts(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Which slot of which schedule a job was made for."""

    schedule: str
    slot: datetime | None = None
    """None: somebody asked for it by hand."""
    zone: str = "UTC"
    origin: Origin = Origin.SLOT
    is_catch_up: bool = False


class Facts(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """What is kept with a job for people and tools; no rule looks at it."""

    tags: tuple[str, ...] = ()
    parent: JobId | None = None
    """The job whose handler enqueued it."""
    owner: str | None = None
    traceparent: str | None = None
    slot: SlotFacts | None = None
    """Says that the job is that of a schedule's run, which has the same id: the end of one is the end of the other."""
    redact: tuple[str, ...] | bool = ()
    """The `redact` of its task when it was enqueued: a dashboard that does not have the task obeys it too."""


class NewJob(Struct, frozen=True, kw_only=True, gc=False):
    """A job that is to be. Its id is made by the caller, so that an enqueue whose answer was lost can be repeated."""

    id: JobId
    task: Name
    payload: bytes
    backoff: Backoff
    max_attempts: int
    run_at: When = AT_ONCE
    expires: When | None = None
    queue: str = "default"
    priority: int = 50
    loss_limit: int = 3
    retention: Retention = Retention()
    timeout: timedelta | None = None
    key: str | None = None
    """What the task's keyed limit counts it under."""
    unique: UniqueKey | None = None
    facts: Facts = Facts()
    is_new: bool = False
    """Its id was drawn for this very enqueue, so that nobody can have enqueued it before: a store need not look."""

    def __post_init__(self) -> None:
        """Raise `DeclarationError` for a text that is too long for an index entry of some store.

        A row with such a text could be stored and never be claimed, and would fail every claim that reads it.
        """
        if self.key is not None and key_length(self.key) > MAX_KEY_BYTES:
            raise _too_long("key", key_length(self.key), f"{MAX_KEY_BYTES} bytes")
        if self.unique is not None and key_length(self.unique.key) > MAX_KEY_BYTES:
            raise _too_long("unique key", key_length(self.unique.key), f"{MAX_KEY_BYTES} bytes")
        if len(self.queue) > LONGEST_PART:
            raise _too_long("queue", len(self.queue), f"{LONGEST_PART} characters")


def _too_long(subject: str, length: int, limit: str) -> DeclarationError:
    return DeclarationError(subject, f"length {length:,} exceeds the limit of {limit}; use a shorter text or its hash")


class Enqueued(Struct, frozen=True, kw_only=True, gc=False):
    """The answer for one new job: the id of the job that is there now."""

    id: JobId
    fresh: bool
    """False: it was there before, under this id or with the same unique key."""


class ClaimRequest(Struct, frozen=True, kw_only=True):
    """How much a node can take on, and of what."""

    node: NodeId
    term: int
    tasks: frozenset[Name]
    queues: Mapping[str, int] | None = None
    """Room on this node by queue; a queue that is not named is not claimed from. None: from every queue."""
    others: bool = False
    """Claim from queues that are not named too; they have no room of their own to keep to."""
    room: int = 1
    """How many can start at once."""
    ahead: int = 0
    """How many more may be claimed because they will start soon; none of them a last chance (`Job.is_last_chance`)."""
    suspects: int = 1
    """How many suspects may be among them (`Job.is_suspect`)."""
    due_by: datetime | None = None
    """Take only what was due by then; None: by the store's now."""
    number: int = field(default_factory=new_claim_number)
    """Part of the leases that it gives (`core.job.next_lease`); a node uses no number twice."""

    def room_in(self, queue: str) -> int:
        """How many jobs may come from a queue, as far as its own room goes."""
        named = {} if self.queues is None else self.queues
        return named.get(queue, maxsize if self.queues is None or self.others else 0)


class Delivery(Struct, frozen=True, kw_only=True, gc=False):
    """A claimed job with all that its attempt needs."""

    claim: Claim
    source: State
    """In which state it waited."""
    payload: bytes
    enqueued_at: datetime
    timeout: timedelta | None = None
    key: str | None = None
    saved: bytes | None = None
    """What earlier attempts saved, one JSON object."""
    previous_error: AttemptError | None = None
    facts: Facts = Facts()
    term: int | None = None
    """The term of its task's breaker in which it was let through; None: it has none. To be handed back with its end."""
    unreadable: AttemptError | None = None
    """Error of a row that could not be decoded. The job cannot be run; settle it as `Unreadable`."""


class Claimed(Struct, frozen=True, kw_only=True):
    """The answer to a claim."""

    deliveries: tuple[Delivery, ...]
    next_due: datetime | None = None
    """When this node could get more: now or earlier if something is left that is due, None if nothing is known."""
    changes: tuple[PhaseChange, ...] = ()
    """Breakers that are half open now: one of these jobs is the probe."""


class Settlement(Struct, frozen=True, kw_only=True, gc=False):
    """A change that is to be written, and who writes it."""

    change: Change
    by: NodeId | None = None
    """The node that writes the end of an attempt: the holder of its lease, or the reaper of a dead one's."""
    seconds: float | None = None
    """How long the attempt took, by the monotonic clock."""
    keeps_place: bool = False
    """The body goes on although the attempt has ended: what its limits count stays taken until `release`."""
    term: int | None = None
    """What the attempt's `Delivery` said: in another term of its task's breaker, its end does not count there."""


class Verdict(StrEnum):
    """What became of a settlement."""

    ACCEPTED = "accepted"
    REPEATED = "repeated"  # it was accepted before, and the answer got lost; counts as accepted, tell nobody twice
    STALE = "stale"  # the job has changed; decide again on `job`
    REFUSED = "refused"  # the lease is not held, or the job is gone; nothing was written
    CONFLICT = "conflict"  # the job's unique key has been taken by another
    LOCKED = "locked"  # another transaction holds the job; nothing was written, settle it again


class Settled(Struct, frozen=True, kw_only=True):
    """The answer for one settlement."""

    verdict: Verdict
    job: Job | None = None
    """The job as it is now, where the verdict is STALE."""
    holder: JobId | None = None
    """The job that has the unique key, where the verdict is CONFLICT."""
    changed: PhaseChange | None = None
    """What this end has done to the breaker of its task, where the verdict is ACCEPTED."""

    @property
    def accepted(self) -> bool:
        return self.verdict in {Verdict.ACCEPTED, Verdict.REPEATED}


class LogLine(Struct, frozen=True):
    """One line that a handler logged."""

    at: datetime
    level: str
    message: str


class Progress(Struct, frozen=True):
    """How far a job is, in percent, and what it is doing."""

    percent: float
    message: str = ""


class Note(Struct, frozen=True, kw_only=True):
    """What an attempt wants to have kept while it runs; what is left out stays."""

    job: JobId
    lease: int
    node: NodeId
    saved: bytes | None = None
    progress: Progress | None = None
    lines: tuple[LogLine, ...] = ()


class Held(Struct, frozen=True, kw_only=True):
    """A lease that a store believes a node to hold."""

    job: JobId
    lease: int
    cancel_requested_at: datetime | None = None


class Place(Struct, frozen=True):
    """What a settlement that `keeps_place` left taken."""

    job: JobId
    lease: int


class Process(Struct, frozen=True, kw_only=True):
    """Where a node runs, so that its neighbours can see when it is gone."""

    host: str
    """Tells machines, their boots and their process namespaces apart."""
    pid: int
    started: str
    """Tells processes apart that had the same id."""


class NodeRecord(Struct, frozen=True, kw_only=True):
    """A node as it joins."""

    id: NodeId
    process: Process
    tasks: frozenset[Name]
    queues: tuple[str, ...] | None = None
    concurrency: int = 0
    version: str = ""
    doorbell: str | None = None
    takes_census: bool = False
    """It counts what is in the store, for people, if it is the first of those that do."""
    ticks: bool = False
    """Whether it runs a ticker; nodes with a ticker take turns at slots."""


class NodeView(Struct, frozen=True, kw_only=True):
    """A node as others see it."""

    node: NodeRecord
    term: int
    counter: int
    """Grows with every renewal."""
    alive: bool
    joined_at: datetime
    renewed_at: datetime
    """By the store's clock: for people. Whether a node is alive is not read from it."""
    running: int = 0


class Quiet(Struct, frozen=True, tag="quiet"):
    """Finish what runs, take nothing new."""


class Resume(Struct, frozen=True, tag="resume"):
    """Take jobs again."""


class StopNode(Struct, frozen=True, tag="stop"):
    """Shut down, as on SIGTERM."""


class DumpStacks(Struct, frozen=True, tag="dump_stacks"):
    """Say where every thread and task stands; the answer is kept with the order."""


class SetConcurrency(Struct, frozen=True, tag="concurrency"):
    """Run so many jobs at a time."""

    places: int


NodeOrder: TypeAlias = Quiet | Resume | StopNode | DumpStacks | SetConcurrency


class Order(Struct, frozen=True, kw_only=True):
    """Something that an operator asks of a node."""

    id: int
    node: NodeId
    order: NodeOrder
    given_at: datetime
    done_at: datetime | None = None
    answer: str | None = None


class Pulse(Struct, frozen=True, kw_only=True):
    """The answer to a renewal."""

    held: tuple[Held, ...]
    orders: tuple[Order, ...]
    nodes: tuple[NodeView, ...]
    """All nodes that are not known to be dead, the asking one included."""


class Lock(Struct, frozen=True, kw_only=True):
    """A named lease. `term` grows with every change of holder: the fencing number."""

    name: str
    holder: str
    term: int
    expires_at: datetime


class Unread(Struct, frozen=True, kw_only=True):
    """A schedule that cannot be understood here, such as by a zone that this machine does not know."""

    name: str
    revision: int
    problem: str


class Move(Struct, frozen=True, kw_only=True):
    """A step of a schedule that is to be written, with its runs and their jobs."""

    before: Schedule | Unread | None
    """Written only while it is still at this revision; None: only if there is none of that name."""
    after: Schedule | None
    """None: it is taken away."""
    runs: tuple[Run, ...] = ()
    """New ones, and such as are to be written over what is there under their id."""
    jobs: tuple[NewJob, ...] = ()
    """Of those among the runs that make one: they have the same ids."""


class Look(Struct, frozen=True, kw_only=True):
    """A schedule, and what of it has not ended."""

    schedule: Schedule
    open: tuple[JobId, ...] = ()
    """Jobs of its runs that wait or run, newest first, ten at most."""


class Former(Struct, frozen=True, kw_only=True):
    """A name under which no schedule is kept any more, or not yet again, but runs of one are."""

    name: str
    last_slot: datetime | None = None
    """The last slot that has a job; None: none of them has."""


class Looked(Struct, frozen=True, kw_only=True):
    """An answer about schedules."""

    now: datetime
    """The store's clock, when it looked."""
    looks: tuple[Look, ...]
    next_at: datetime | None = None
    """When the first schedule comes up that is not among them; None: none will by itself."""
    unread: tuple[Unread, ...] = ()
    former: tuple[Former, ...] = ()
    """Of the names that were asked for and are not there, those that have runs."""

    @property
    def unreadable(self) -> Mapping[str, str]:
        """Why schedules cannot be understood here, by their names."""
        return {one.name: one.problem for one in self.unread}


class SchedulePage(Struct, frozen=True, kw_only=True):
    """Some schedules, by name."""

    now: datetime
    looks: tuple[Look, ...]
    after: str | None = None
    """Where the next page begins; None if this was the last."""
    unread: tuple[Unread, ...] = ()

    @property
    def unreadable(self) -> Mapping[str, str]:
        """Why schedules cannot be understood here, by their names."""
        return {one.name: one.problem for one in self.unread}


class RunFilter(Struct, frozen=True, kw_only=True):
    """Which runs to list; what is left out does not matter."""

    schedule: Name | None = None
    after_slot: datetime | None = None
    """Only those of slots later than this."""
    until_slot: datetime | None = None
    """Only those of slots up to this."""
    with_job: bool | None = None


class RunPage(Struct, frozen=True, kw_only=True):
    """Some runs, the newest decision first."""

    runs: tuple[Run, ...]
    after: UUID | None = None
    """Where the next page begins; None if this was the last."""


class AttemptView(Struct, frozen=True, kw_only=True):
    """An attempt that did not succeed."""

    job: JobId
    lease: int
    attempt: int
    node: NodeId
    event: Event
    started_at: datetime | None
    ended_at: datetime
    seconds: float | None = None
    error: AttemptError | None = None
    reason: str = ""
    """Why it snoozed or was deferred."""


class Cut(Struct, frozen=True, kw_only=True):
    """Sizes, in bytes, of values of a `JobView` that were shortened or left out; 0: the value is complete, or there is none."""

    payload: int = 0
    saved: int = 0
    result: int = 0


def cut_of(preview: int | None, payload: int, saved: int | None, result: int | None) -> Cut | None:
    """Compare the sizes of a job's values with a preview; None: nothing is missing from it."""
    if preview is None:
        return None
    found = Cut(payload=payload if payload > preview else 0, saved=saved or 0, result=result or 0)
    return None if found == _COMPLETE else found


_COMPLETE: Final = Cut()


class JobView(Struct, frozen=True, kw_only=True):
    """A job with everything that is kept of it, but for its attempts and log lines."""

    job: Job
    payload: bytes
    enqueued_at: datetime
    facts: Facts = Facts()
    node: NodeId | None = None
    """The node that holds its lease, or held it last."""
    started_at: datetime | None = None
    """When its last attempt was claimed."""
    seconds: float | None = None
    """How long the attempt took that ended last."""
    timeout: timedelta | None = None
    key: str | None = None
    unique: UniqueKey | None = None
    saved: bytes | None = None
    progress: Progress | None = None
    result: bytes | None = None
    error: AttemptError | None = None
    """Of the last attempt that had one."""
    cut: Cut | None = None
    """Sizes of values that a preview leaves out: `payload` has the first bytes, `saved` and `result` are None."""


class JobFilter(Struct, frozen=True, kw_only=True):
    """Which jobs to list; what is left out does not matter."""

    states: tuple[State, ...] = ()
    queue: str | None = None
    task: Name | None = None
    tag: str | None = None
    cause: Cause | None = None
    parent: JobId | None = None


class JobPage(Struct, frozen=True, kw_only=True):
    """Some jobs, newest first."""

    jobs: tuple[JobView, ...]
    after: JobId | None = None
    """Where the next page begins; None if this was the last."""
    in_time: bool = True
    """False: the page ran out of time before it was full. It may have few jobs or none; continue at `after`."""


class Pause(Struct, frozen=True, kw_only=True):
    """Why a queue stands still."""

    at: datetime
    by: str = ""
    reason: str = ""


class QueueView(Struct, frozen=True, kw_only=True):
    """A queue: every one that has jobs, or is paused."""

    name: str
    waiting: int
    """Due and not."""
    running: int
    paused: Pause | None = None


class BreakerView(Struct, frozen=True, kw_only=True):
    """A task's breaker, as it stands."""

    task: Name
    rule: Breaker
    circuit: Circuit
    since: datetime
    """When it entered its phase, or was declared."""
    by: str = ""
    """Who forced or reset it; nobody, if it came to its phase by itself."""
    reason: str = ""
    """Why: an operator's words, or the error that opened it."""


class BreakerPage(Struct, frozen=True, kw_only=True):
    """Some breakers, by task."""

    now: datetime
    """The store's clock, when it looked."""
    breakers: tuple[BreakerView, ...]
    after: str | None = None
    """Where the next page begins; None if this was the last."""


class Compacted(Struct, frozen=True, kw_only=True):
    """What became of an attempt to make a store smaller."""

    freed: int = 0
    """Bytes that were given back, as far as they are known."""
    dropped: int = 0
    """Tables that went whole."""
    size: int | None = None
    """Bytes that it takes now, where that is known."""
    left: str = ""
    """Why there is room that was not given back; empty if there is none worth it."""


class SchemaVersion(Struct, frozen=True, kw_only=True):
    """How a store's tables stand to this code."""

    found: int
    """0: there are none yet."""
    wanted: int
