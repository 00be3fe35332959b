"""The life of a job: one table of legal steps, and the two functions that choose among them.

`decide` says what becomes of a job when an attempt ends, `command` what an operator's word does to it. Both return a
`Change`; stores apply changes and never choose them. What is not in `TRANSITIONS` cannot happen: it raises
`IllegalTransition`. The diagram in the docs is drawn from the same table.

A job that changes between the choice and the write is looked at again: a cancel that an operator asks for while an
attempt is ending must not be undone by that end.
"""

from collections.abc import Iterable
from datetime import datetime
from enum import StrEnum
from typing import Final, NamedTuple, assert_never

from msgspec import Struct
from msgspec.structs import replace

from mainspring.core.command import CancelJob, Command, DeleteJob, MoveJob, RetryJob
from mainspring.core.job import FINISHED, WAITING, Cause, Claim, Job, NodeId, State, next_lease
from mainspring.core.outcome import (
    Deferred,
    Expired,
    Interrupted,
    Lost,
    NoSuchTask,
    Outcome,
    Raised,
    Snoozed,
    Succeeded,
    Unreadable,
)
from mainspring.errors import IllegalTransition


class Event(StrEnum):
    """What happens to a job."""

    ENQUEUED = "enqueued"
    DELAYED = "delayed"
    CLAIMED = "claimed"
    SUCCEEDED = "succeeded"
    WILL_RETRY = "will_retry"
    SNOOZED = "snoozed"
    GIVEN_BACK = "given_back"
    LOST = "lost"
    FAILED = "failed"
    CANCEL_REQUESTED = "cancel_requested"
    CANCELLED = "cancelled"
    RETRIED = "retried"
    MOVED = "moved"
    DELETED = "deleted"


class Transition(NamedTuple):
    """One legal step. No source: the job is new. No target: it is gone."""

    source: State | None
    event: Event
    target: State | None
    when: str


def _from(sources: Iterable[State], event: Event, target: State | None, when: str) -> list[Transition]:
    return [Transition(source, event, target, when) for source in sources]


TRANSITIONS: Final[tuple[Transition, ...]] = (
    Transition(None, Event.ENQUEUED, State.READY, "enqueued, due at once"),
    Transition(None, Event.DELAYED, State.SCHEDULED, "enqueued for later"),
    *_from(WAITING, Event.CLAIMED, State.RUNNING, "a node claims it: attempt and lease go up by one"),
    Transition(State.RUNNING, Event.SUCCEEDED, State.SUCCEEDED, "the handler returned"),
    Transition(State.RUNNING, Event.WILL_RETRY, State.RETRYING, "it raised or timed out, and attempts are left"),
    Transition(State.RUNNING, Event.LOST, State.READY, "lost with its node, and attempts are left"),
    Transition(State.RUNNING, Event.GIVEN_BACK, State.READY, "the node is shutting down, or never learnt of its claim"),
    Transition(State.RUNNING, Event.SNOOZED, State.SCHEDULED, "it snoozed itself, or host or breaker said not now"),
    Transition(
        State.RUNNING, Event.FAILED, State.FAILED, "no attempts left, not retryable, poison, expired or unknown task"
    ),
    Transition(State.RUNNING, Event.CANCEL_REQUESTED, State.RUNNING, "an operator asks it to stop"),
    Transition(State.RUNNING, Event.CANCELLED, State.CANCELLED, "it was asked to stop, and ended without success"),
    *_from(WAITING, Event.CANCELLED, State.CANCELLED, "an operator cancels it before it runs"),
    *_from([State.FAILED, State.CANCELLED], Event.RETRIED, State.READY, "an operator retries it: one more attempt"),
    *(
        Transition(state, Event.MOVED, state, "an operator moves it to another priority, queue or time")
        for state in WAITING
    ),
    *_from(WAITING + FINISHED, Event.DELETED, None, "an operator or the pruner deletes it"),
)

NEW: Final = "new"
GONE: Final = "gone"

_TARGETS: Final = {(one.source, one.event): one.target for one in TRANSITIONS}
_AIMS: Final = {one.event: one.target for one in TRANSITIONS}
_ADVICE: Final[dict[tuple[State | None, Event], str]] = {
    (State.RUNNING, Event.DELETED): "it is running; cancel it first",
    (State.RUNNING, Event.MOVED): "it is running; what it waits for no longer matters",
    (State.RUNNING, Event.RETRIED): "it is running already",
    (State.SUCCEEDED, Event.RETRIED): "it succeeded; enqueue a new one to run it again",
    **dict.fromkeys(((state, Event.RETRIED) for state in WAITING), "it waits, and will run by itself"),
}


def target(source: State | None, event: Event) -> State | None:
    """Look up where an event leads from a state, or raise `IllegalTransition`."""
    try:
        return _TARGETS[source, event]
    except KeyError:
        aim = source if event is Event.MOVED else _AIMS[event]
        raise IllegalTransition(source or NEW, aim or GONE, _ADVICE.get((source, event), "")) from None


class Fit(StrEnum):
    """Whether a change may be written to a job as it is now."""

    FITS = "fits"
    STALE = "stale"  # the job has changed since; look at it and decide again
    REFUSED = "refused"  # the attempt is no longer the node's to end; nothing it says counts


class Change(Struct, frozen=True, kw_only=True, gc=False):
    """A guarded write: applied whole while the job is still as `before` says, else not at all.

    The end of an attempt also needs the lease that it ran under, in the hands of `node`. No `after` means that the job
    is deleted. `outcome` brings the result or the error that is kept with the job.
    """

    event: Event
    before: Job
    after: Job | None
    node: NodeId | None = None
    outcome: Outcome | None = None

    def fit(self, job: Job, holder: NodeId | None) -> Fit:
        """Hold the change against the job as it is now, and whoever holds its lease.

        A change that was written before, and whose answer got lost, is refused here like any other that comes too
        late. That the same end was written already only a store can know, which keeps them: it looks there first.
        """
        ends_an_attempt = self.node is not None
        if ends_an_attempt and (job.lease, job.state, holder) != (self.before.lease, State.RUNNING, self.node):
            return Fit.REFUSED
        return Fit.FITS if job.revision == self.before.revision else Fit.STALE


def first_state(run_at: datetime, now: datetime) -> State:
    """Say where a new job begins."""
    return State.READY if run_at <= now else State.SCHEDULED


def claim(job: Job, node: NodeId, number: int) -> Claim:
    """Give a node the right to run a job. Both counts must be durable before the handler starts.

    `number` must be unique among the claims of the node.
    """
    target(job.state, Event.CLAIMED)
    lease = next_lease(job.lease, number)
    running = replace(job, state=State.RUNNING, attempt=job.attempt + 1, lease=lease, revision=job.revision + 1)
    return Claim(job=running, node=node)


def is_expired(job: Job, now: datetime) -> bool:
    """Say whether a job that comes up now is no longer wanted. Once its handler has run it does not expire."""
    return job.expires_at is not None and job.expires_at <= now


def decide(claim: Claim, outcome: Outcome, now: datetime, roll: float) -> Change:
    """Choose what becomes of a job when its attempt ends; `roll` is drawn evenly from 0 to 1."""
    event, after = _after(claim.job, outcome, now, roll)
    return Change(event=event, before=claim.job, after=_revised(after), node=claim.node, outcome=outcome)


def _after(job: Job, outcome: Outcome, now: datetime, roll: float) -> tuple[Event, Job]:
    match outcome:
        case Succeeded():
            return _finish(job, Event.SUCCEEDED, now)
        case _ if job.cancel_requested_at:  # a cancel wins over every end but success
            return _finish(job, Event.CANCELLED, now)
        case Raised(retryable=False):
            return _finish(job, Event.FAILED, now, Cause.REFUSED)
        case Raised() if not job.has_attempts_left:
            return _finish(job, Event.FAILED, now, Cause.EXHAUSTED)
        case Raised(retry_in=asked):
            delay = job.backoff.delay(job.attempt, roll) if asked is None else asked
            return _wait(replace(job, losses=0, expires_at=None), Event.WILL_RETRY, now + delay)
        case Lost():
            return _lose(replace(job, losses=job.losses + 1, expires_at=None), now)
        # From here on the attempt does not count. A handler that snoozed has shown that it does not kill its worker;
        # one that was never called, or was cut short, has shown nothing and keeps its losses. A job that is given back
        # keeps its due time, and with it its position in the queue: docs/decisions/0048.
        case Snoozed(delay=delay):
            return _wait(replace(_given_back(job), losses=0, expires_at=None), Event.SNOOZED, now + delay)
        case Deferred(delay=delay):
            return _wait(_given_back(job), Event.SNOOZED, now + delay)
        case Interrupted(started=started):
            expires_at = None if started else job.expires_at
            return _wait(replace(_given_back(job), expires_at=expires_at), Event.GIVEN_BACK, job.run_at)
        case Expired():
            return _finish(_given_back(job), Event.FAILED, now, Cause.EXPIRED)
        case NoSuchTask():
            return _finish(_given_back(job), Event.FAILED, now, Cause.UNKNOWN_TASK)
        case Unreadable():
            return _finish(_given_back(job), Event.FAILED, now, Cause.UNREADABLE)
        case _:
            assert_never(outcome)


def command(job: Job, command: Command, now: datetime) -> Change:
    """Choose what an operator's command does to a job, or raise `IllegalTransition`."""
    event, after = _obeyed(job, command, now)
    return Change(event=event, before=job, after=_revised(after) if after else None)


def _obeyed(job: Job, command: Command, now: datetime) -> tuple[Event, Job | None]:
    match command:
        case CancelJob() if job.state is State.RUNNING:
            return Event.CANCEL_REQUESTED, replace(job, cancel_requested_at=job.cancel_requested_at or now)
        case CancelJob():
            return _finish(job, Event.CANCELLED, now)
        case RetryJob():
            return _wait(_granted_another(job), Event.RETRIED, now)
        case MoveJob(priority=priority, queue=queue, run_at=run_at):
            changed = replace(
                job,
                priority=job.priority if priority is None else priority,
                queue=job.queue if queue is None else queue,
            )
            return _wait(changed, Event.MOVED, run_at or job.run_at)
        case DeleteJob():
            target(job.state, Event.DELETED)
            return Event.DELETED, None
        case _:
            assert_never(command)


def _granted_another(job: Job) -> Job:
    """Clear what the end of the job left behind: an old stamp must not prune, expire or cancel the new attempt."""
    return replace(
        job,
        granted=job.granted + 1,
        losses=0,
        expires_at=None,
        cancel_requested_at=None,
        finished_at=None,
        keep_until=None,
        cause=None,
    )


def _revised(job: Job) -> Job:
    return replace(job, revision=job.revision + 1)


def _lose(job: Job, now: datetime) -> tuple[Event, Job]:
    if job.losses >= job.loss_limit:
        return _finish(job, Event.FAILED, now, Cause.POISON)
    if not job.has_attempts_left:
        return _finish(job, Event.FAILED, now, Cause.LOST)
    return _wait(job, Event.LOST, job.run_at)  # at once, at its old position: the loss is not the fault of the job


def _given_back(job: Job) -> Job:
    return replace(job, attempt=job.attempt - 1)


def _wait(job: Job, event: Event, run_at: datetime) -> tuple[Event, Job]:
    return event, replace(job, state=target(job.state, event), run_at=run_at)


def _finish(job: Job, event: Event, now: datetime, cause: Cause | None = None) -> tuple[Event, Job]:
    keep = job.retention.succeeded if event is Event.SUCCEEDED else job.retention.failed
    state = target(job.state, event)
    return event, replace(job, state=state, finished_at=now, keep_until=now + keep, cause=cause)
