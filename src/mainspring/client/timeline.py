"""The life of a job as a list of moments, derived from what is kept of it.

An attempt that succeeded leaves no record of its own: of the last attempt, the job itself tells. What happened between a
claim and its end is told by the log lines.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

from msgspec import Struct

from mainspring.client.outbox import job_of
from mainspring.client.words import length, percent
from mainspring.core.job import FINISHED, WAITING, JobId, NodeId, State
from mainspring.core.outcome import AttemptError
from mainspring.ids import number_in
from mainspring.runtime.definition import Definition
from mainspring.stores.outbox import Message, Outboxes, PartitionView
from mainspring.stores.overview import Entry
from mainspring.stores.port import Store
from mainspring.stores.records import AttemptView, JobView, SlotFacts

STRIDE: Final = 1 << 20
"""From one number to the next that ends the same, as `ids.number_in` reads it."""


DONE: Final = {
    "jobs.retry": "retried",
    "jobs.cancel": "cancel_requested",
    "jobs.run_now": "made_due",
    "jobs.clone": "cloned",
}
"""What was done to a job, in a word, by the action of a line of the audit log."""
DONE_WITHIN: Final = timedelta(seconds=10)
"""Of its being asked for, a cancel is written."""


class Moment(Struct, frozen=True, kw_only=True):
    """Something that happened to a job, happens now, or is about to."""

    at: datetime
    word: str
    """enqueued, started, the event that ended an attempt (will_retry, lost, snoozed…), cancel_requested, finished, running,
    due, or what an operator did (retried, made_due, cloned) or wanted to (retry, cancel…)."""
    text: str = ""
    node: NodeId | None = None
    lease: int | None = None


class MessagePlace(Struct, frozen=True, kw_only=True):
    """Where the message is, or was, that a job was made of."""

    outbox: str
    partition: int
    seq: int

    def __str__(self) -> str:
        return f"{self.outbox}/{self.partition}/{self.seq}"


def timeline(
    view: JobView,
    attempts: Sequence[AttemptView],
    now: datetime,
    *,
    entries: Sequence[Entry] = (),
    message: MessagePlace | None = None,
) -> tuple[Moment, ...]:
    """Tell the life of a job in order; `entries` are lines of the audit log about it."""
    moments = [
        Moment(at=view.enqueued_at, word="enqueued", text=_origin(view, message)),
        *(moment for attempt in attempts for moment in _of_attempt(attempt)),
        *_of_the_last(view, attempts),
        *(_of_a_line(one) for one in entries),
        *_of_the_end(view, attempts, entries),
        *_of_now(view, attempts, now),
    ]
    return tuple(sorted(moments, key=lambda moment: moment.at))  # those of one instant stay in the order above


def _origin(view: JobView, message: MessagePlace | None) -> str:
    facts = view.facts
    words = [
        *([_slot(facts.slot)] if facts.slot else []),
        *([f"by job {facts.parent}"] if facts.parent else []),
        *([f"from the message {message}"] if message else []),
    ]
    return ", ".join(words)


def _slot(facts: SlotFacts) -> str:
    if facts.slot is None:
        return f"by the schedule {facts.schedule}, by hand"
    how = f", {facts.origin}" if facts.origin != "slot" else ", catch-up" if facts.is_catch_up else ""
    return f"by the schedule {facts.schedule}, for its slot of {facts.slot.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC{how}"


def _of_attempt(attempt: AttemptView) -> Iterator[Moment]:
    number = f"attempt {attempt.attempt}"
    if attempt.started_at is not None:
        yield Moment(at=attempt.started_at, word="started", text=number, node=attempt.node, lease=attempt.lease)
    words = [number, _took(attempt.seconds), attempt.reason, _error(attempt.error)]
    text = ", ".join(word for word in words if word)
    yield Moment(at=attempt.ended_at, word=str(attempt.event), text=text, node=attempt.node, lease=attempt.lease)


def _of_the_last(view: JobView, attempts: Sequence[AttemptView]) -> Iterator[Moment]:
    """Tell of an attempt that runs, or has succeeded."""
    job = view.job
    if view.started_at is None or any(one.lease == job.lease for one in attempts):
        return
    if job.state in {State.RUNNING, State.SUCCEEDED}:
        yield Moment(at=view.started_at, word="started", text=f"attempt {job.attempt}", node=view.node, lease=job.lease)


def _of_the_end(view: JobView, attempts: Sequence[AttemptView], entries: Sequence[Entry]) -> Iterator[Moment]:
    job = view.job
    if job.cancel_requested_at is not None and not _is_told(job.cancel_requested_at, entries):
        yield Moment(at=job.cancel_requested_at, word="cancel_requested", text="it was asked to stop")
    if job.state in FINISHED and job.finished_at is not None:
        took = _took(view.seconds) if job.state is State.SUCCEEDED else ""
        text = ", ".join(word for word in (str(job.state), str(job.cause or ""), took) if word)
        # When an attempt ended is written by the store, a little after it was decided that the job has.
        ends = [one.ended_at for one in attempts if one.lease == job.lease]
        yield Moment(at=max([job.finished_at, *ends]), word="finished", text=text)


def _of_now(view: JobView, attempts: Sequence[AttemptView], now: datetime) -> Iterator[Moment]:
    job = view.job
    if job.state is State.RUNNING:
        progress = f"{percent(view.progress.percent)} {view.progress.message}".rstrip() if view.progress else ""
        yield Moment(at=now, word="running", text=progress, node=view.node, lease=job.lease)
    elif job.state in WAITING:
        # A job that was lost or given back keeps its due time, which lies before the end of that attempt.
        due = max([job.run_at, *(one.ended_at for one in attempts)])
        yield Moment(at=due, word="due", text=f"attempt {job.attempt + 1} of {job.attempts_allowed}")


def _of_a_line(line: Entry) -> Moment:
    """Put a line of the audit log into words."""
    done = line.entry.outcome == "done" and line.entry.count != 0
    word = DONE.get(line.entry.action, line.entry.action) if done else line.entry.action.rpartition(".")[2]
    came = "nothing changed" if line.entry.outcome == "done" else line.entry.outcome.replace("_", " ")
    outcome = "" if done else f", {came}"
    return Moment(at=line.at, word=word, text=f"by {line.entry.who or 'someone'}{outcome}")


def _is_told(requested_at: datetime, entries: Sequence[Entry]) -> bool:
    """Say whether a line of the audit log tells who asked for a job to be cancelled."""
    lines = (one for one in entries if one.entry.action == "jobs.cancel" and one.entry.outcome == "done")
    return any(abs(one.at - requested_at) <= DONE_WITHIN for one in lines)


def _took(seconds: float | None) -> str:
    return "" if seconds is None else f"took {length(seconds)}"


def _error(error: AttemptError | None) -> str:
    return f"{error.type}: {error.message}".splitlines()[0] if error else ""


async def message_of(store: Store, forwarding: Mapping[str, Definition], view: JobView) -> MessagePlace | None:
    """Find the message that a job was made of, while it is kept: its id tells where to look, and whether that is it."""
    job = view.job
    outboxes = [name for name, task in forwarding.items() if job.task in {task.name, *task.aliases}]
    if not outboxes or not isinstance(store, Outboxes):
        return None
    for one in (await store.look_at_partitions(outboxes)).partitions:
        message = await _message_in(store, one, job.id)
        if message:
            return MessagePlace(outbox=one.outbox, partition=one.partition, seq=message.seq)
    return None


async def _message_in(store: Outboxes, one: PartitionView, job: JobId) -> Message | None:
    """Look at those whose number ends as the id of the job does. What was cleared away is passed over at once."""
    seq = number_in(job) or STRIDE
    while seq <= one.last:
        messages = await store.read_messages(one.outbox, one.partition, seq - 1, 1)
        if not messages:
            return None
        (message,) = messages
        if job_of(message) == job:
            return message
        seq += max(1, math.ceil((message.seq - seq) / STRIDE)) * STRIDE
    return None
