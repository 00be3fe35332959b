"""A job, as far as the rules of its life need to know it.

Everything that any node needs in order to decide is in the job itself, as plain values that a store can keep: its
limits, its backoff, how long it is kept. Payload, result and history belong to the stores.
"""

from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final, NewType
from uuid import UUID

from msgspec import Struct

from mainspring.core.backoff import Backoff
from mainspring.core.names import Name
from mainspring.duration import duration

JobId = NewType("JobId", UUID)
NodeId = NewType("NodeId", str)


class State(StrEnum):
    """Where a job stands. The waiting states differ only in why they wait: what may run is due, in any of them."""

    SCHEDULED = "scheduled"
    READY = "ready"
    RUNNING = "running"
    RETRYING = "retrying"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


WAITING: Final = (State.READY, State.SCHEDULED, State.RETRYING)
FINISHED: Final = (State.SUCCEEDED, State.FAILED, State.CANCELLED)
_NUMBER_BITS: Final = 32
"""The low bits of a lease are the number of the claim; the bits above count the claims of the job."""


class Cause(StrEnum):
    """Why a job failed."""

    EXHAUSTED = "exhausted"  # it raised or timed out, and no attempts were left
    REFUSED = "refused"  # the error was not worth another attempt, by policy or by the handler's word
    LOST = "lost"  # its last attempt was lost with its node
    POISON = "poison"  # it was lost with its node too many times in a row
    EXPIRED = "expired"  # it had not started by the time until which it was wanted
    UNKNOWN_TASK = "unknown_task"  # no live node knew its task for the whole grace time
    UNREADABLE = "unreadable"  # its row in the store cannot be decoded


class Retention(Struct, frozen=True, kw_only=True, gc=False):
    """How long a finished job is kept: `failed` holds for cancelled ones too."""

    succeeded: timedelta = timedelta(hours=24)
    failed: timedelta = timedelta(days=7)

    def __post_init__(self) -> None:
        duration(self.succeeded)
        duration(self.failed)


class Job(Struct, frozen=True, kw_only=True, gc=False):
    """One durable call of a task.

    `attempt` counts executions from 1 and is raised when the job is claimed; `lease` grows with every claim and never
    falls, so it can be a fence, unlike `attempt`, which may be given back. The number of the claim is part of it:
    a claim that a failover or a restore undoes and its repetition have different leases. `revision` grows with every change of
    any kind: who decided on an older one decides again. `losses` counts the attempts in a row that were lost with
    their node. `expires_at` is gone once the handler has run.
    """

    id: JobId
    task: Name
    state: State
    run_at: datetime
    backoff: Backoff
    max_attempts: int
    queue: str = "default"
    priority: int = 50
    attempt: int = 0
    granted: int = 0
    losses: int = 0
    loss_limit: int = 3
    lease: int = 0
    revision: int = 0
    expires_at: datetime | None = None
    retention: Retention = Retention()
    cancel_requested_at: datetime | None = None
    finished_at: datetime | None = None
    keep_until: datetime | None = None
    cause: Cause | None = None
    of_schedule: bool = False
    """It was made by a schedule, whose run of the same id is told how it ends."""

    @property
    def claims(self) -> int:
        """How many times it was claimed."""
        return claim_count(self.lease)

    @property
    def attempts_allowed(self) -> int:
        """Its limit, and what operators granted on top."""
        return self.max_attempts + self.granted

    @property
    def has_attempts_left(self) -> bool:
        return self.attempt < self.attempts_allowed

    @property
    def is_suspect(self) -> bool:
        """Whether the next loss would be its last: it is run with care then, and does not share it with others.

        Not from the first loss on: after the crash of a node of twenty long jobs, each survivor would run them one by
        one. A job that kills its worker takes its neighbours with it once more, and its last chance alone.
        """
        return 0 < self.losses >= self.loss_limit - 1

    @property
    def is_last_chance(self) -> bool:
        """Whether a loss of its next attempt would end it, while it waits: it is claimed only if it can start at once.

        A node that dies loses all jobs that it holds, and it is not recorded which of them it had started.
        """
        return is_last_chance(attempts=self.attempts_allowed - self.attempt, losses=self.loss_limit - self.losses)


def is_last_chance(*, attempts: int, losses: int) -> bool:
    """Return whether a job with so many attempts and losses left would end with the next loss."""
    return attempts <= 1 or losses <= 1


def next_lease(lease: int, number: int) -> int:
    """Return the lease of the next claim of a job: the count of its claims, and below it the number of this claim."""
    return (claim_count(lease) + 1) << _NUMBER_BITS | number


def claim_count(lease: int) -> int:
    """Return how many claims of its job there were up to this lease."""
    return lease >> _NUMBER_BITS


class Claim(Struct, frozen=True, kw_only=True, gc=False):
    """A running job and the node that holds its lease: the right to run it, and to say how it ended."""

    job: Job
    node: NodeId
