"""The life of a job as a list: whatever happens to a job, everything that is kept of it is told once, and in order."""

from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mainspring import Mainspring
from mainspring.client.outbox import job_of
from mainspring.client.timeline import message_of, timeline
from mainspring.core import machine
from mainspring.core.backoff import Backoff
from mainspring.core.command import CancelJob, MoveJob, RetryJob
from mainspring.core.job import FINISHED, WAITING, Claim, Job, JobId, NodeId, State
from mainspring.core.machine import Event
from mainspring.core.names import Name
from mainspring.core.outbox import Stand
from mainspring.core.outcome import AttemptError, Interrupted, Lost, Raised, Snoozed, Succeeded
from mainspring.errors import IllegalTransition
from mainspring.ids import new_id
from mainspring.stores.outbox import Message, PartitionsLooked, PartitionView
from mainspring.stores.overview import Entry, NewEntry
from mainspring.stores.records import AttemptView, Facts, JobView
from mainspring.stores.sqlite import SqliteStore
from mainspring.testing import VirtualTime
from tests.web.test_description import NOON

NODE = NodeId("n1")
WRITTEN = timedelta(milliseconds=3)
"""After what is written was decided."""
ERROR = AttemptError(type="ValueError", message="no\nway", traceback="…")
ENDS = (Succeeded(b"1"), Raised(error=ERROR), Lost(), Snoozed(delay=timedelta(seconds=5)), Interrupted(started=True))
STEPS = st.lists(
    st.sampled_from(["claim", "cancel", "retry", "move", *ENDS]),
    max_size=14,
)


@settings(max_examples=200)
@given(STEPS)
def test_every_attempt_and_every_end_is_told_once_and_in_order(steps: list[object]) -> None:
    now, started = NOON, None
    job = Job(
        id=JobId(new_id(NOON)),
        task=Name("", "a"),
        state=State.READY,
        run_at=NOON,
        backoff=Backoff.fixed("1s"),
        max_attempts=3,
    )
    attempts: list[AttemptView] = []
    entries: list[Entry] = []
    for step in steps:
        now += timedelta(seconds=10)
        try:
            match step:
                case "claim":
                    job, started = machine.claim(job, NODE, 0).job, now
                case "cancel" | "retry" | "move":
                    command = {"cancel": CancelJob(), "retry": RetryJob(), "move": MoveJob(priority=1)}[str(step)]
                    job = machine.command(job, command, now).after or job  # type: ignore[arg-type]  # one of the three
                    entry = NewEntry(who="anna", action=f"jobs.{step}", about=str(job.id))
                    entries.append(Entry(id=len(entries), at=now, entry=entry))
                case _ if job.state is State.RUNNING:
                    change = machine.decide(Claim(job=job, node=NODE), step, now, 0.5)  # type: ignore[arg-type]  # one of the ends
                    job = change.after or job
                    if change.event is not Event.SUCCEEDED:
                        error = ERROR if isinstance(step, Raised) else None
                        attempts.append(
                            AttemptView(
                                job=job.id,
                                lease=job.lease,
                                attempt=change.before.attempt,
                                node=NODE,
                                event=change.event,
                                started_at=started,
                                ended_at=now + WRITTEN,
                                error=error,
                            )
                        )
                case _:
                    pass  # nothing runs that could end
        except IllegalTransition:
            continue
    view = JobView(
        job=job, payload=b"{}", enqueued_at=NOON, facts=Facts(), node=NODE if started else None, started_at=started
    )
    told = timeline(view, attempts, now, entries=entries)
    words = [moment.word for moment in told]
    assert [moment.at for moment in told] == sorted(moment.at for moment in told)
    assert words[0] == "enqueued"
    assert words.count("enqueued") == 1
    runs = [moment.lease or 0 for moment in told if moment.word == "started"]
    assert runs == sorted(set(runs))
    own = job.state in {State.RUNNING, State.SUCCEEDED}
    assert len(runs) == len(attempts) + own
    ends = {str(one.event) for one in attempts}
    assert sum(words.count(end) for end in ends) == len(attempts)
    assert words.count("finished") == (job.state in FINISHED)
    if "finished" in words:
        after = words[words.index("finished") + 1 :]
        assert set(after) <= {"retried", "cancel_requested"}
    assert words.count("running") == (job.state is State.RUNNING)
    assert words.count("due") == (job.state in WAITING)
    told_of = [entry.entry.action for entry in entries]
    assert words.count("retried") == told_of.count("jobs.retry")
    assert words.count("cancel_requested") == told_of.count("jobs.cancel")
    by = [moment.text for moment in told if moment.word in {"retried", "cancel_requested", "jobs.move"}]
    assert by == ["by anna"] * len(entries)
    assert all("\n" not in moment.text for moment in told)


def test_what_came_of_a_change_stands_behind_it() -> None:
    asked, second = NOON + timedelta(minutes=1), timedelta(seconds=1)
    job = Job(
        id=JobId(new_id(NOON)),
        task=Name("", "a"),
        state=State.CANCELLED,
        run_at=NOON,
        backoff=Backoff.fixed("1s"),
        max_attempts=3,
        lease=1,
        cancel_requested_at=asked + second / 50,
        finished_at=asked + second,
    )
    view = JobView(job=job, payload=b"{}", enqueued_at=NOON, facts=Facts())
    refused = NewEntry(who="otto", action="jobs.cancel", about=str(job.id), outcome="not_allowed")
    done = NewEntry(who="anna", action="jobs.cancel", about=str(job.id))
    vain = NewEntry(who="anna", action="jobs.retry", about=str(job.id), count=0)
    lines = [
        Entry(id=2, at=asked, entry=done),
        Entry(id=1, at=asked - second, entry=refused),
        Entry(id=0, at=asked - 2 * second, entry=vain),
    ]
    told = [(moment.word, moment.text) for moment in timeline(view, (), asked + 2 * second, entries=lines)]
    assert told == [
        ("enqueued", ""),
        ("retry", "by anna, nothing changed"),
        ("cancel", "by otto, not allowed"),
        ("cancel_requested", "by anna"),
        ("finished", "cancelled"),
    ]
    alone = [(moment.word, moment.text) for moment in timeline(view, (), asked + 2 * second, entries=lines[1:])]
    assert alone[3] == ("cancel_requested", "it was asked to stop")


class Long(SqliteStore):
    """An outbox through which five thousand million messages have gone, the last million of which are kept."""

    last = 5_000_000_000
    looks = 0

    async def look_at_partitions(self, outboxes: Sequence[str]) -> PartitionsLooked:
        stand = Stand(cursor=self.last, revision=1)
        view = PartitionView(outbox=outboxes[0], partition=0, last=self.last, stand=stand, is_held=False)
        return PartitionsLooked(now=NOON, partitions=(view,))

    async def read_messages(self, outbox: str, partition: int, after: int, limit: int) -> tuple[Message, ...]:
        self.looks += 1
        seq = max(after + 1, self.last - 1_000_000)
        numbers = range(seq, min(seq + limit, self.last + 1))
        return tuple(self.message(outbox, partition, number) for number in numbers)

    @staticmethod
    def message(outbox: str, partition: int, seq: int) -> Message:
        return Message(
            outbox=outbox,
            partition=partition,
            seq=seq,
            number=seq,
            payload=b"{}",
            type="",
            key=None,
            published_at=NOON,
        )


@pytest.mark.parametrize("seq", [Long.last - 1_000_000, Long.last - 5, Long.last, 7])
async def test_a_message_is_found_in_a_few_looks_among_any_number(
    seq: int, tmp_path: Path, virtual_time: VirtualTime
) -> None:
    app, store = Mainspring(clock=virtual_time.clock), Long(tmp_path / "jobs.db")

    @app.task(name="forward")
    async def forward() -> None: ...

    job = Job(
        id=job_of(store.message("sent", 0, seq)),
        task=Name("", "forward"),
        state=State.READY,
        run_at=NOON,
        backoff=Backoff.fixed("1s"),
        max_attempts=1,
    )
    view = JobView(job=job, payload=b"{}", enqueued_at=NOON, facts=Facts())
    found = await message_of(store, {"sent": forward.definition}, view)
    assert (found.seq if found else None) == (None if seq == 7 else seq)
    assert store.looks <= 3
