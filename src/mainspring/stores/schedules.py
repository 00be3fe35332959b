"""Schedules and runs as every store keeps them: the record of a schedule, and what becomes of a run.

A schedule is kept whole, as one JSON record, and beside it, in columns, what a store looks for or changes by itself:
`revision`, `next_at`, `waits`, `last_end`. Where the two differ, the columns are right.
"""

from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import replace

from mainspring.core.job import FINISHED, State
from mainspring.core.machine import Change
from mainspring.core.missed import Reason
from mainspring.core.outcome import error_of
from mainspring.core.schedule import Run, Schedule
from mainspring.errors import ScheduleError
from mainspring.stores.records import Unread

OPEN_SHOWN: Final = 10
"""Of the open runs of a schedule, a look shows so many, the newest."""

_LONGEST_LINE: Final = 200
_FOREVER: Final = datetime.max.replace(tzinfo=UTC)
_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(Schedule).decode


def schedule_bytes(schedule: Schedule) -> bytes:
    """Write a schedule down. What cannot be written, such as half a character, or not be read again, raises `ScheduleError`.

    What nobody can read would never fire again, and could not even be mended or removed.
    """
    until = schedule.plan.until
    if until is not None and until.tzinfo is not UTC:  # it comes from a user, all others are ours
        schedule = replace(schedule, plan=replace(schedule.plan, until=until.astimezone(UTC)))
    try:
        record = _encode(schedule)
        if type(schedule) is Schedule:  # any other is of code that knows more, and has its own ways to read it
            _decode(record)
    except (UnicodeEncodeError, TypeError, ValueError) as error:
        problem = error.__cause__ if isinstance(error, msgspec.DecodeError) and error.__cause__ else error
        raise ScheduleError(f"schedule {schedule.name}", f"it cannot be kept: {problem}") from error
    return record


def read_schedule(
    name: str,
    record: bytes | str,
    *,
    revision: int,
    next_at: datetime | None,
    waits: bool,
    last_end: datetime | None,
) -> Schedule:
    """Read a schedule. What cannot be understood here, as by a zone that is not known, raises `ScheduleError`."""
    try:
        kept = _decode(record)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:  # also for a rule that raised, which knows best why
        raise ScheduleError(f"schedule {name}", str(error.__cause__ or error)) from error
    return replace(kept, revision=revision, next_at=next_at, waits=waits, last_end=last_end)


def kept_runs(subject: Schedule | Unread) -> timedelta:
    """Say how long a schedule keeps its runs; of one that cannot be read only what it has is known."""
    return subject.plan.keep_runs if isinstance(subject, Schedule) else timedelta(0)


def keep_until(run: Run, keep_runs: timedelta) -> datetime:
    """Say until when a run is kept once it is not open."""
    try:
        return run.decided_at + keep_runs
    except OverflowError:
        return _FOREVER


def taken(run: Run) -> Run:
    """Make of a run one without a job: another job has the unique key of its own."""
    return replace(run, reason=Reason.TAKEN, last=run.slot)


class End(NamedTuple):
    """What is written to a run; without a state it is open again."""

    state: State | None
    finished_at: datetime | None
    error: str | None


def end_of(change: Change, now: datetime) -> End | None:
    """Say what a change of a schedule's job means for its run; None: nothing."""
    was_finished = change.before.state in FINISHED
    after = change.after
    if after is None:
        return None if was_finished else End(State.CANCELLED, now, None)
    if was_finished == (after.state in FINISHED):
        return None
    return End(None, None, None) if was_finished else End(after.state, after.finished_at, _error(change))


def _error(change: Change) -> str | None:
    """Say in a line what a failure came to. Some have no error of their own, but all have a cause."""
    if change.after is None or change.after.state is not State.FAILED:
        return None
    if (error := error_of(change.outcome)) is not None:
        said = next((line for line in error.message.splitlines() if line.strip()), "")
        return _cut(f"{error.type}: {said}" if said else error.type)
    return None if change.after.cause is None else change.after.cause.value


def _cut(line: str) -> str:
    """Cut a line that is long: a run is kept for longer than its job, which has all of it."""
    return line if len(line) <= _LONGEST_LINE else f"{line[: _LONGEST_LINE - 1]}…"
