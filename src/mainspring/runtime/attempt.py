"""One execution of a job on this node, from its claim to its end, and what its end comes to."""

import asyncio
from enum import StrEnum
from typing import Final

from mainspring.core.job import JobId
from mainspring.core.outcome import AttemptError, Interrupted, Outcome, Raised, Signal, Succeeded, outcome_of
from mainspring.errors import BadResult
from mainspring.runtime.definition import Definition
from mainspring.runtime.executors.errors import CANNOT_TRAVEL, attempt_error, escaped
from mainspring.runtime.executors.executor import encode_result
from mainspring.runtime.executors.link import LoopLink
from mainspring.stores.records import Delivery


class Reason(StrEnum):
    """Why the node stops an attempt."""

    TIMEOUT = "timeout"
    CANCEL = "cancel"  # an operator asked for it
    SHUTDOWN = "shutdown"
    SILENCE = "no renewal"  # the node cannot renew, and others may soon take over
    LEASE_LOST = "lease lost"  # another node may be running the job by now


class Attempt:
    """A running attempt: its task, and whether the node has told it to stop."""

    __slots__ = (
        "_deadline",
        "abandoned",
        "began",
        "definition",
        "delivery",
        "ends_itself",
        "link",
        "reason",
        "returned",
        "settled",
        "task",
        "timeout",
    )

    def __init__(
        self, delivery: Delivery, definition: Definition, *, timeout: float, began: float, deadline: float
    ) -> None:
        self.delivery: Final = delivery
        self.definition: Final = definition
        self.timeout: Final = timeout
        self.began: Final = began
        self._deadline: Final = deadline
        self.task: asyncio.Task[object] | None = None
        self.link: LoopLink | None = None
        self.reason: Reason | None = None
        self.abandoned = False
        self.ends_itself = False
        """The handler has a transaction that may end the job."""
        self.returned: tuple[object] | None = None
        """What the handler returned: a success from then on, however long its last log lines take to be written."""
        self.settled = False
        """Its end was written by the handler's own transaction."""

    @property
    def lease(self) -> tuple[JobId, int]:
        """What it runs under: a node may have two of one job, of which the older one has been told to stop."""
        job = self.delivery.claim.job
        return job.id, job.lease

    @property
    def deadline(self) -> float:
        """Deadline on the event loop's clock, later by the time that the timeout was paused."""
        return self._deadline + self.link.paused if self.link else self._deadline

    @property
    def is_lost(self) -> bool:
        """Whether its end was written by somebody else, or without it."""
        return self.abandoned or self.reason is Reason.LEASE_LOST


def outcome_of_attempt(attempt: Attempt, ended: "asyncio.Task[object]") -> Outcome | None:
    """Say what an attempt came to; None if nothing that this node says about it counts any more. Never raises."""
    try:
        return _outcome(attempt, ended)
    except BaseException as error:  # noqa: BLE001 - a signal or a result whose own code is broken
        return Raised(error=attempt_error(error), retryable=False)


def _outcome(attempt: Attempt, ended: "asyncio.Task[object]") -> Outcome | None:
    raised = _raised(ended)  # always retrieved, or asyncio logs it as never retrieved
    if attempt.reason is Reason.LEASE_LOST:
        return None
    if attempt.returned is not None:
        return _returned(attempt, attempt.returned[0])
    if raised is None:
        return _returned(attempt, ended.result())
    if isinstance(raised, BadResult):  # of a function in another process
        return _bad_result(raised)
    if attempt.reason and not isinstance(raised, Signal):
        return stopped(attempt)  # what a handler raises because it is stopped is no failure of its own
    # Errors that would end an event loop or a thread are one class for the policy, wherever the function ran.
    seen = escaped(raised) if isinstance(raised, CANNOT_TRAVEL) else raised
    return outcome_of(seen, attempt_error(raised), attempt.definition.retry)


def _raised(ended: "asyncio.Task[object]") -> BaseException | None:
    try:
        return ended.exception()
    except asyncio.CancelledError as cancelled:
        return cancelled


def _returned(attempt: Attempt, value: object) -> Outcome:
    if attempt.settled or (value is None and attempt.definition.may_return_none):
        return Succeeded()
    try:
        return Succeeded(encode_result(attempt.definition, value))
    except BadResult as error:
        return _bad_result(error)


def _bad_result(error: BadResult) -> Outcome:
    """Fail the job, whatever the policy: a retry would repeat the effects of the function and fail again."""
    return Raised(error=attempt_error(error), retryable=False)


def stopped(attempt: Attempt) -> Outcome:
    """Say what an attempt comes to that was told to stop, and did, or does not."""
    if attempt.reason is Reason.TIMEOUT:
        error = AttemptError(type="TimeoutError", message=f"it ran for longer than {attempt.timeout:g} s")
        return Raised(error=error, retryable=attempt.definition.retry.wants(TimeoutError()))
    return Interrupted(started=True)
