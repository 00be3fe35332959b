"""How times, numbers and tables read."""

from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainspring.cli.jobs import when
from mainspring.cli.table import GAP, SMALLEST, Column, fit, lines
from mainspring.client.causes import why
from mainspring.client.planned_words import paused_text
from mainspring.client.words import ago, count, length, percent, size
from mainspring.core.backoff import Backoff
from mainspring.core.job import Cause, Job, JobId, State
from mainspring.core.names import Name
from mainspring.core.schedule import CANCELLED, Paused
from mainspring.stores.records import JobView

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(("done", "text"), [(0, "0 %"), (24.9, "24 %"), (99.5, "99 %"), (100, "100 %")])
def test_what_is_not_done_is_not_shown_as_done(done: float, text: str) -> None:
    assert percent(done) == text


def test_a_job_that_waits_says_since_when_or_until_when_it_is_due() -> None:
    job = Job(
        id=JobId(UUID(int=1)),
        task=Name("", "t"),
        state=State.READY,
        run_at=NOON,
        backoff=Backoff.fixed(1),
        max_attempts=1,
    )
    view = JobView(job=job, payload=b"{}", enqueued_at=NOON)
    assert when(view, NOON + timedelta(seconds=1.3)) == "due for 1.3 s"
    assert when(view, NOON - timedelta(seconds=12)) == "in 12 s"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-1, "0.0 s"),
        (0.04, "0.0 s"),
        (9.94, "9.9 s"),
        (9.96, "10 s"),
        (59.4, "59 s"),
        (59.6, "1 min"),
        (61, "1 min 1 s"),
        (3599.7, "1 h"),
        (7500, "2 h 5 min"),
        (86_400, "1 d"),
        (90_000, "1 d 1 h"),
    ],
)
def test_a_length_of_time_is_said_in_one_or_two_units(seconds: float, text: str) -> None:
    assert length(seconds) == length(timedelta(seconds=seconds)) == text


def test_an_instant_is_said_as_seen_from_now() -> None:
    assert ago(NOON, NOON + timedelta(seconds=12)) == "12 s ago"
    assert ago(NOON + timedelta(minutes=3), NOON) == "in 3 min"


def test_where_there_is_little_room_one_unit_must_do() -> None:
    assert length(7500, shortly=True) == "2 h"
    assert ago(NOON, NOON + timedelta(minutes=61), shortly=True) == "1 h ago"


def test_numbers_take_their_plural() -> None:
    assert [count(0, "job"), count(1, "job"), count(1200, "job")] == ["0 jobs", "1 job", "1,200 jobs"]


@pytest.mark.parametrize(
    ("number", "text"), [(0, "0 bytes"), (1_500, "2 kB"), (1_234_567, "1.2 MB"), (5e9, "5.0 GB"), (7.2e13, "72.0 TB")]
)
def test_bytes_are_said_in_units(number: float, text: str) -> None:
    assert size(number) == text


COLUMNS = (Column("ID"), Column("TASK", shrinks=True), Column("QUEUE", optional=True), Column("N", right=True))
ROWS = [["a" * 10, "mail.send_the_weekly_letter", "default", "7"], ["b", "x", "mail", "12"]]


def test_what_goes_to_a_file_is_laid_out_in_columns_and_never_cut() -> None:
    assert lines(COLUMNS, ROWS) == [
        "ID          TASK                         QUEUE     N",
        "aaaaaaaaaa  mail.send_the_weekly_letter  default   7",
        "b           x                            mail     12",
    ]


def test_a_column_that_may_shrink_gives_way_before_one_is_left_out() -> None:
    columns, rows = fit(COLUMNS, ROWS, 42)
    assert [column.title for column in columns] == ["ID", "TASK", "QUEUE", "N"]
    assert rows[0] == ["a" * 10, "mail.send_the_we…", "default", "7"]


def test_what_can_be_missed_is_left_out_when_there_is_no_room() -> None:
    columns, rows = fit(COLUMNS, ROWS, 30)
    assert [column.title for column in columns] == ["ID", "TASK", "N"]
    assert rows[0] == ["a" * 10, "mail.send_the…", "7"]


@given(
    widths=st.lists(st.integers(0, 60), min_size=4, max_size=4),
    width=st.integers(20, 200),
)
def test_a_row_fits_whenever_it_can(widths: list[int], width: int) -> None:
    columns, rows = fit(COLUMNS, [["x" * one for one in widths]], width)
    longest = max(len(line) for line in lines(columns, rows))
    fixed = max(len("ID"), widths[0]) + max(len("N"), widths[3])
    smallest = fixed + min(SMALLEST, max(len("TASK"), widths[1])) + 2 * GAP
    assert longest <= max(width, smallest)


def test_a_schedule_that_was_cancelled_is_not_said_to_be_paused_by_that_word() -> None:
    now = datetime(2030, 1, 1, tzinfo=UTC)
    paused = Paused(at=now - timedelta(minutes=3), by=CANCELLED, reason="it was cancelled")
    assert paused_text(paused, now) == "cancelled 3 min ago; mainspring control add brings it back"
    assert paused_text(Paused(at=paused.at, by="ada", reason="moves"), now) == "since 3 min, by ada: moves"


def a_job(cause: Cause | None, *, attempts: int = 3, losses: int = 0) -> Job:
    return Job(
        id=JobId(UUID(int=1)),
        task=Name("", "work"),
        state=State.FAILED if cause else State.SUCCEEDED,
        run_at=NOON,
        backoff=Backoff.fixed("1s"),
        max_attempts=attempts,
        losses=losses,
        cause=cause,
    )


@pytest.mark.parametrize("cause", Cause)
def test_every_cause_has_a_sentence(cause: Cause) -> None:
    sentence = why(a_job(cause)) or ""

    assert sentence[0].isupper()
    assert sentence.endswith(".")
    assert len(sentence.split()) > 5


def test_why_a_job_failed_is_said_with_its_own_numbers() -> None:
    assert why(a_job(None)) is None
    assert why(a_job(Cause.EXHAUSTED)) == "It raised an error or took too long in the last of its 3 attempts."
    assert why(a_job(Cause.LOST, attempts=1)) == "It was running when its worker died, in its only attempt."
    assert why(a_job(Cause.POISON, losses=3)) == (
        "It was running when its worker died, 3 times in a row, and is not tried again by itself."
    )
    assert (
        why(a_job(Cause.POISON, losses=1)) == "It was running when its worker died, and is not tried again by itself."
    )
