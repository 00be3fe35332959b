"""Schedules and runs as all stores keep them: what goes in comes out, and what cannot be understood is told."""

from datetime import UTC, datetime, timedelta, timezone
from uuid import UUID

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from mainspring.core import machine
from mainspring.core.backoff import Backoff
from mainspring.core.command import CancelJob, DeleteJob, MoveJob, RetryJob
from mainspring.core.job import Claim, Job, JobId, NodeId, State
from mainspring.core.machine import Change
from mainspring.core.missed import LEAST_GRACE, Missed, Reason
from mainspring.core.names import Name
from mainspring.core.outcome import AttemptError, Expired, Interrupted, Lost, Outcome, Raised, Snoozed, Succeeded
from mainspring.core.rules import Cron, Every, Manual, Once
from mainspring.core.schedule import Overlap, Paused, Plan, Run, Schedule, Slot, Template
from mainspring.errors import ScheduleError
from mainspring.stores.schedules import End, end_of, keep_until, read_schedule, schedule_bytes, taken

NOW = datetime(2030, 1, 1, 12, 0, 0, 123_457, tzinfo=UTC)
NAME = Name("shop", "nightly")
RUN = Run(id=UUID(int=7), schedule=NAME, decided_at=NOW, slot=NOW)
PLAN = Plan(rule=Manual(), template=Template(task=NAME, payload=b"\xff", backoff=Backoff.exponential(), max_attempts=3))
SCHEDULE = Schedule(name=NAME, plan=PLAN, created_at=NOW, cursor=NOW, next_at=None)


def read(record: bytes | str, found: Schedule = SCHEDULE) -> Schedule:
    """Read a record, with the columns that were written beside it."""
    return read_schedule(
        str(found.name),
        record,
        revision=found.revision,
        next_at=found.next_at,
        waits=found.waits,
        last_end=found.last_end,
    )


instants = st.datetimes(datetime(1970, 1, 1), datetime(9000, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001 -- hypothesis adds the zone
spans = st.timedeltas(timedelta(0), timedelta(days=30_000))
graces = st.timedeltas(LEAST_GRACE, timedelta(days=30_000))
texts = st.text(st.characters(codec="utf-8"), max_size=20)
plans = st.builds(
    Plan,
    rule=st.one_of(
        st.just(Manual()),
        st.builds(Once, instants),
        st.builds(Every, spans.map(lambda span: span + timedelta(seconds=1)), after_end=st.booleans(), start=instants),
    ),
    template=st.builds(
        Template,
        task=st.just(NAME),
        payload=st.binary(max_size=20),
        backoff=st.just(Backoff.exponential()),
        max_attempts=st.integers(1, 2**31),
        queue=texts,
        timeout=st.none() | spans,
        tags=st.lists(texts, max_size=3).map(tuple),
    ),
    missed=st.builds(Missed.all, limit=st.integers(1, 9), per_tick=st.integers(1, 9), grace=graces),
    overlap=st.sampled_from(Overlap),
    jitter=spans,
    until=st.none() | instants,
    keep_runs=spans,
    description=texts,
)
schedules = st.builds(
    Schedule,
    name=st.just(NAME),
    plan=plans,
    created_at=instants,
    cursor=instants,
    next_at=st.none() | instants,
    revision=st.integers(1, 2**53),
    owner=st.none() | texts,
    paused=st.none() | st.builds(Paused, at=instants, by=texts, reason=texts),
    held=st.none() | st.builds(Slot, at=instants, is_catch_up=st.booleans()),
    waits=st.booleans(),
    last_end=st.none() | instants,
    last_drop=st.none() | st.builds(lambda at, count: replace(RUN, slot=at, count=count), instants, st.integers(1)),
)


@given(schedules)
def test_a_schedule_comes_back_to_the_last_bit(schedule: Schedule) -> None:
    assert read(schedule_bytes(schedule), schedule) == schedule
    assert read(schedule_bytes(schedule).decode(), schedule) == schedule


def test_what_stands_beside_the_record_is_right() -> None:
    later = replace(SCHEDULE, revision=9, next_at=NOW, waits=True, last_end=NOW)

    assert read(schedule_bytes(SCHEDULE), later) == later
    assert read(schedule_bytes(later), SCHEDULE) == SCHEDULE


def test_an_end_date_is_kept_in_utc() -> None:
    until = datetime(2031, 1, 1, 9, tzinfo=timezone(timedelta(hours=9)))
    kept = read(schedule_bytes(replace(SCHEDULE, plan=replace(PLAN, until=until))))

    assert kept.plan.until == until
    assert kept.plan.until.tzinfo is UTC


@pytest.mark.parametrize(
    "record",
    [
        b"",
        b"{",
        b"{}",
        b"[]",
        b"\xff",
        schedule_bytes(SCHEDULE)[:-1],
        schedule_bytes(SCHEDULE).replace(b"manual", b"on_full_moon"),
        schedule_bytes(SCHEDULE).replace(b"nightly", b"at night"),
        schedule_bytes(SCHEDULE).replace(b'"max_attempts":3', b'"max_attempts":"many"'),
    ],
)
def test_what_cannot_be_understood_says_whose_it_is_and_why(record: bytes) -> None:
    with pytest.raises(ScheduleError) as caught:
        read(record)

    assert caught.value.subject == "schedule shop:nightly"
    assert caught.value.problem


@pytest.mark.parametrize(
    "wrong",
    [
        replace(SCHEDULE, paused=replace(Paused(at=NOW), by=7)),
        replace(SCHEDULE, release=1.2),
        replace(SCHEDULE, plan=replace(PLAN, overlap="on_full_moon")),
        replace(SCHEDULE, plan=replace(PLAN, description=7)),
    ],
)
def test_what_could_not_be_read_again_is_not_written(wrong: Schedule) -> None:
    with pytest.raises(ScheduleError, match="schedule shop:nightly: it cannot be kept: "):
        schedule_bytes(wrong)


def test_a_rule_that_is_refused_here_says_why_in_its_own_words() -> None:
    record = schedule_bytes(replace(SCHEDULE, plan=replace(PLAN, missed=Missed.all(limit=7))))
    with pytest.raises(
        ScheduleError, match=r"schedule shop:nightly: Missed: a limit of at least 1, in whole numbers, not 0"
    ):
        read(record.replace(b'"limit":7', b'"limit":0'))


def test_a_zone_that_this_machine_does_not_know_is_named() -> None:
    record = schedule_bytes(replace(SCHEDULE, plan=replace(PLAN, rule=Cron("0 9 * * *", tz="Europe/Berlin"))))
    with pytest.raises(ScheduleError, match=r"schedule shop:nightly: .*'Mars/Olympus'"):
        read(record.replace(b"Europe/Berlin", b"Mars/Olympus"))


def test_what_newer_code_says_beside_is_not_dropped_by_older_code() -> None:
    record = schedule_bytes(SCHEDULE).replace(b'{"name":', b'{"moon":"full","name":', 1)
    with pytest.raises(ScheduleError, match=r"schedule shop:nightly: .*`moon`"):
        read(record)


def test_what_is_no_text_cannot_be_kept() -> None:
    with pytest.raises(ScheduleError, match="schedule shop:nightly: it cannot be kept"):
        schedule_bytes(replace(SCHEDULE, release="\ud800"))


def test_runs_are_kept_from_their_decision_on_and_not_beyond_the_calendar() -> None:
    assert keep_until(RUN, timedelta(days=30)) == NOW + timedelta(days=30)
    assert keep_until(RUN, timedelta.max) == datetime.max.replace(tzinfo=UTC)


def test_a_run_whose_key_is_taken_has_no_job() -> None:
    run = taken(RUN)

    assert (run.job, run.reason, run.last, run.is_open) == (None, Reason.TAKEN, NOW, False)
    assert taken(replace(RUN, slot=None)).last is None


# What the change of a job means for its run.

NODE = NodeId("node")
WAITING = Job(
    id=JobId(UUID(int=7)),
    task=NAME,
    state=State.READY,
    run_at=NOW,
    backoff=Backoff.fixed(1),
    max_attempts=2,
    of_schedule=True,
)
CLAIM = machine.claim(WAITING, NODE, 0)
LAST = Claim(job=replace(CLAIM.job, attempt=2), node=NODE)
ERROR = AttemptError(type="ValueError", message="no")
FAILED = replace(WAITING, state=State.FAILED, finished_at=NOW)


def decided(outcome: Outcome, claim: Claim = LAST) -> Change:
    return machine.decide(claim, outcome, NOW, roll=0.5)


@pytest.mark.parametrize(
    ("change", "end"),
    [
        (decided(Succeeded(b"1")), End(State.SUCCEEDED, NOW, None)),
        (decided(Raised(error=ERROR)), End(State.FAILED, NOW, "ValueError: no")),
        (decided(Raised(error=AttemptError(type="KeyError", message=""))), End(State.FAILED, NOW, "KeyError")),
        (decided(Lost()), End(State.FAILED, NOW, "lost")),
        (decided(Expired()), End(State.FAILED, NOW, "expired")),
        (decided(Raised(error=ERROR), CLAIM), None),
        (decided(Snoozed(delay=timedelta(0))), None),
        (decided(Interrupted(started=True)), None),
        (decided(Lost(), CLAIM), None),
        (machine.command(WAITING, CancelJob(), NOW), End(State.CANCELLED, NOW, None)),
        (machine.command(CLAIM.job, CancelJob(), NOW), None),
        (machine.command(WAITING, MoveJob(priority=7), NOW), None),
        (machine.command(WAITING, DeleteJob(), NOW), End(State.CANCELLED, NOW, None)),
        (machine.command(FAILED, DeleteJob(), NOW), None),
        (machine.command(FAILED, RetryJob(), NOW), End(None, None, None)),
    ],
)
def test_a_run_hears_of_the_end_of_its_job_and_of_nothing_else(change: Change, end: End | None) -> None:
    assert end_of(change, NOW) == end


def test_a_record_is_json() -> None:
    """So that it can be looked at, and repaired, with any tool."""
    assert msgspec.json.decode(schedule_bytes(SCHEDULE))["name"] == {"namespace": "shop", "local": "nightly"}
