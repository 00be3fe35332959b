"""Rows to values and back. Texts that a handler or a user makes up are kept as bytes: text of PostgreSQL's has no NUL.

On the way of every job, so what repeats is remembered by its stored form: the jobs of a task share their policy.
"""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from enum import IntEnum
from functools import lru_cache
from typing import Final

import msgspec

from mainspring.core.backoff import Backoff
from mainspring.core.job import Cause, Job, JobId, Retention, State, is_last_chance
from mainspring.core.names import LONGEST_PART, Name
from mainspring.core.outcome import AttemptError
from mainspring.core.unique import OnConflict, UniqueKey
from mainspring.errors import BadName
from mainspring.stores.postgres.verb import Row
from mainspring.stores.records import Facts
from mainspring.stores.unreadable import POLICY, UNREADABLE_ERROR, readable

NO_FACTS: Final = Facts()
REMEMBERED: Final = 4096

STATES: Final = {str(state): state for state in State}
_CAUSES: Final = {str(cause): cause for cause in Cause}
_MOMENT: Final = timedelta(microseconds=1)

encode: Final = msgspec.json.Encoder().encode
_facts: Final = msgspec.json.Decoder(Facts)
_error: Final = msgspec.json.Decoder(AttemptError)


@lru_cache(REMEMBERED)
def policy_text(backoff: Backoff, retention: Retention, of_schedule: bool) -> str:
    spans = (backoff.initial, backoff.increment, backoff.cap, retention.succeeded, retention.failed)
    stored = [*(span // _MOMENT for span in spans), backoff.multiplier, backoff.jitter]
    return encode([*stored, True] if of_schedule else stored).decode()


@lru_cache(REMEMBERED)
def policy(text: str) -> tuple[Backoff, Retention, bool]:
    """Read what the jobs of a task share; last, whether they are those of a schedule."""
    initial, increment, cap, succeeded, failed, multiplier, jitter, *of_schedule = msgspec.json.decode(text)
    if of_schedule not in ([], [True]):
        raise ValueError(f"policy has more elements than this version can read: {text}")
    backoff = Backoff(
        initial=timedelta(0, 0, initial),
        increment=timedelta(0, 0, increment),
        cap=timedelta(0, 0, cap),
        multiplier=multiplier,
        jitter=jitter,
    )
    retention = Retention(succeeded=timedelta(0, 0, succeeded), failed=timedelta(0, 0, failed))
    return backoff, retention, bool(of_schedule)


name: Final = lru_cache(REMEMBERED)(Name.parse)


def shown_name(text: str) -> Name:
    """Read a name; in one that cannot be parsed, what is not allowed is replaced."""
    try:
        return name(text)
    except BadName:
        kept = "".join(one if one.isprintable() and one not in " :" else "\N{REPLACEMENT CHARACTER}" for one in text)
        return Name("", kept[:LONGEST_PART] or "\N{REPLACEMENT CHARACTER}")


def key_bytes(key: str | None) -> bytes | None:
    return None if key is None else key.encode("utf-8", "surrogatepass")


def key_text(stored: bytes | None) -> str | None:
    return None if stored is None else bytes(stored).decode("utf-8", "surrogatepass")


def shown_key(stored: bytes | None) -> str | None:
    """Read a key, or its readable part."""
    try:
        return key_text(stored)
    except UnicodeDecodeError:
        return bytes(stored or b"").decode(errors="replace")


def facts_bytes(facts: Facts) -> bytes | None:
    """Everything but the parent, which has a column of its own, so that children can be found."""
    if facts is NO_FACTS or facts == NO_FACTS:
        return None
    kept = msgspec.structs.replace(facts, parent=None)
    return None if kept == NO_FACTS else encode(kept)


def shown_facts(stored: bytes | None, parent: JobId | None) -> Facts:
    """Read facts, or as much of them as can be decoded."""
    return readable(lambda kept: facts(kept, parent), stored, NO_FACTS)


def facts(stored: bytes | None, parent: JobId | None) -> Facts:
    kept = NO_FACTS if stored is None else _facts.decode(stored)
    return kept if parent is None else msgspec.structs.replace(kept, parent=parent)


def clean(text: str) -> str:
    """Return text that can be kept: what is no character, as in names of files that are not UTF-8, is spelt out."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "backslashreplace").decode()
    return text


def error_bytes(error: AttemptError | None) -> bytes | None:
    """Write an error. Whatever it says, the attempt has to end."""
    if error is None:
        return None
    type_, message, traceback = map(clean, (error.type, error.message, error.traceback))
    return encode(AttemptError(type=type_, message=message, traceback=traceback))


def error(stored: bytes | None) -> AttemptError | None:
    return None if stored is None else readable(_error.decode, stored, UNREADABLE_ERROR)


def unique(key: bytes | None, period: timedelta | None, on_conflict: str | None) -> UniqueKey | None:
    """Read the three columns of a unique key."""
    text = shown_key(key)
    if text is None or on_conflict is None:
        return None
    return UniqueKey(key=text, period=period, on_conflict=readable(OnConflict, on_conflict, OnConflict.RAISE))


def columns(rows: Sequence[tuple[object, ...]]) -> tuple[object, ...]:
    """Turn rows into one list a column, as `unnest` takes them."""
    return tuple(map(list, zip(*rows, strict=True)))


def job(row: Row) -> Job:
    """Read the first 20 columns of every statement that returns whole jobs; all name the same ones in the same order:

    id, queue, task, priority, state, run_at, attempt, granted, losses, loss_limit, lease, revision, max_attempts,
    policy, expires_at, cancel_requested_at, finished_at, keep_until, cause, and one that is the reader's own.

    Of a row that cannot be decoded, the readable columns.
    """
    (
        id_, queue, task, priority, state, run_at, attempt, granted, losses, loss_limit, lease, revision, max_attempts,
        policy_, expires_at, cancel_requested_at, finished_at, keep_until, cause,
    ) = row[:19]  # fmt: skip
    backoff, retention, of_schedule = readable(policy, policy_, POLICY)
    return Job(
        id=id_,
        task=shown_name(task),
        state=STATES.get(state, State.FAILED),
        run_at=run_at,
        backoff=backoff,
        max_attempts=max_attempts,
        queue=queue,
        priority=priority,
        attempt=attempt,
        granted=granted,
        losses=losses,
        loss_limit=loss_limit,
        lease=lease,
        revision=revision,
        expires_at=expires_at,
        retention=retention,
        cancel_requested_at=cancel_requested_at,
        finished_at=finished_at,
        keep_until=keep_until,
        cause=_CAUSES.get(cause),
        of_schedule=of_schedule,
    )


@lru_cache(REMEMBERED)
def instant(epoch: float) -> datetime:
    """Read an instant that was sent as seconds, exact to the microsecond from 1900 to 2242.

    The driver takes 1.1 µs to read a timestamptz, and 0.1 µs to read this; jobs of a batch often share it.
    """
    return datetime.fromtimestamp(epoch, UTC)


class Care(IntEnum):
    """Claim restriction of a waiting job, as stored: none, suspect, or another job on its last chance."""

    NONE = 0
    SUSPECT = 1
    LAST_CHANCE = 2
    """A loss would end it; it is not a suspect."""


def care_of(job: Job) -> Care:
    if job.is_suspect:
        return Care.SUSPECT
    return Care.LAST_CHANCE if job.is_last_chance else Care.NONE


def care_of_new(attempts: int, losses: int) -> Care:
    return Care.LAST_CHANCE if is_last_chance(attempts=attempts, losses=losses) else Care.NONE
