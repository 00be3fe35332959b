"""What an attempt came to, and what a handler may raise to say so itself.

A signal that handlers import from `mainspring` is of that module: so it is named in what is stored and shown of errors.
"""

from collections.abc import Iterator
from datetime import timedelta
from typing import TypeAlias

from msgspec import Struct

from mainspring.core.retry import Retry
from mainspring.duration import Duration, duration


class Signal(Exception):
    """What a handler raises to steer its own job: an instruction, not an error."""


class RetryIn(Signal):
    """Count this attempt as failed and try again after `delay`, whatever the policy's backoff says."""

    __module__ = "mainspring"

    def __init__(self, delay: Duration, reason: str = "") -> None:
        super().__init__(delay, reason)
        self.delay = duration(delay)
        self.reason = reason


class Snooze(Signal):
    """Not now: give the attempt back and come again after `delay`."""

    __module__ = "mainspring"

    def __init__(self, delay: Duration, reason: str = "") -> None:
        super().__init__(delay, reason)
        self.delay = duration(delay)
        self.reason = reason


class HostNotReady(Snooze):
    """The embedding program does not offer what the job asked for, now: `code` says in which way, as `HostMissing` does."""

    def __init__(self, delay: Duration, reason: str, code: int) -> None:
        super().__init__(delay, reason)
        self.args = (delay, reason, code)
        self.code = code


class Fail(Signal):
    """Fail the job for good, whatever attempts are left."""

    __module__ = "mainspring"

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class AttemptError(Struct, frozen=True, kw_only=True):
    """What went wrong in an attempt, as it is kept and shown to the next one."""

    type: str
    message: str
    traceback: str = ""


class Succeeded(Struct, frozen=True, gc=False):
    """The handler returned; `result` is encoded already."""

    result: bytes | None = None


class Raised(Struct, frozen=True, kw_only=True):
    """The handler raised, or ran out of time."""

    error: AttemptError
    retryable: bool = True
    retry_in: timedelta | None = None


class Snoozed(Struct, frozen=True, kw_only=True):
    """The handler ran and asked to be called again later."""

    delay: timedelta
    reason: str = ""


class Deferred(Struct, frozen=True, kw_only=True):
    """The handler got no further than to a host that is not there: it has shown nothing, and keeps its losses."""

    delay: timedelta
    reason: str = ""


class Interrupted(Struct, frozen=True, kw_only=True):
    """The node is shutting down, or never learnt that it held the job: the attempt does not count."""

    started: bool
    """Whether the handler had been called; if not, the job may still expire."""


class Lost(Struct, frozen=True):
    """The node died with the attempt."""


class Expired(Struct, frozen=True):
    """The job came up after the time until which it was wanted; the handler was never called."""


class NoSuchTask(Struct, frozen=True):
    """No live node has known the task for the whole grace time; the handler was never called."""


class Unreadable(Struct, frozen=True):
    """The job's row in the store cannot be decoded; the handler was never called."""

    error: AttemptError


Outcome: TypeAlias = Succeeded | Raised | Snoozed | Deferred | Interrupted | Lost | Expired | NoSuchTask | Unreadable


def error_of(outcome: Outcome | None) -> AttemptError | None:
    """Return the error of an outcome that has one."""
    return outcome.error if isinstance(outcome, Raised | Unreadable) else None


def outcome_of(raised: BaseException, error: AttemptError, retry: Retry) -> Outcome:
    """Read what a handler raised: its own signals if there are any, else what the policy thinks of its class.

    A group speaks with the voices of all its members, unless the policy names its own class: for a snooze all must have
    snoozed, for a retry all must be worth one, and the longest delay that any of them asked for holds. Whoever was
    cancelled by the node was interrupted and did not raise; that has to be told apart before.
    """
    members = list(_members(raised, retry))
    snoozes = [member for member in members if isinstance(member, Snooze)]
    if len(snoozes) == len(members):
        longest = max(snoozes, key=lambda snooze: snooze.delay)
        if all(isinstance(snooze, HostNotReady) for snooze in snoozes):
            return Deferred(delay=longest.delay, reason=str(longest.reason))
        return Snoozed(delay=longest.delay, reason=str(longest.reason))
    if not all(isinstance(member, RetryIn | Snooze) or _worth_it(member, retry) for member in members):
        return Raised(error=error, retryable=False)
    asked = max((member.delay for member in members if isinstance(member, RetryIn | Snooze)), default=None)
    return Raised(error=error, retry_in=asked)


def _worth_it(member: BaseException, retry: Retry) -> bool:
    return not isinstance(member, Fail) and retry.wants(member)


def _members(raised: BaseException, retry: Retry) -> Iterator[BaseException]:
    if not isinstance(raised, BaseExceptionGroup) or retry.names(type(raised)):
        yield raised
        return
    for member in raised.exceptions:
        yield from _members(member, retry)
