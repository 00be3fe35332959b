"""Rows of jobs that cannot be decoded: edited by hand, damaged, or written by a newer version.

One such row must not block other jobs, so rows are decoded one by one. Where jobs are shown, settled or taken from dead
nodes, unreadable columns are replaced by defaults; a claim delivers the job with the error, and its node ends it as
failed, with the cause `unreadable`.
"""

from collections.abc import Callable
from typing import Final, TypeVar

from mainspring.core.backoff import Backoff
from mainspring.core.job import Retention
from mainspring.core.outcome import AttemptError

T = TypeVar("T")
V = TypeVar("V")

POLICY: Final = (Backoff.fixed(0), Retention(), True)
"""Default for an unreadable policy. Marked as scheduled, so that a run of a schedule gets the end of the job."""


def readable(read: Callable[[V], T], value: V, default: T) -> T:
    """Decode a value, or return the default."""
    try:
        return read(value)
    except Exception:  # noqa: BLE001 -- a row may contain anything
        return default


def as_int(value: object, default: int = 0) -> int:
    return value if isinstance(value, int) else default


def problem(error: Exception) -> AttemptError:
    """Describe why a row could not be decoded."""
    return AttemptError(
        type="mainspring.Unreadable", message=f"the stored job cannot be decoded: {type(error).__name__}: {error}"
    )


UNREADABLE_ERROR: Final = AttemptError(type="mainspring.Unreadable", message="the stored error cannot be decoded")
