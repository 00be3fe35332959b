"""What an operator does to many jobs: decided on what was read, and written together, some at a time.

One that has changed meanwhile is decided again; one to which it cannot be done does not hinder the others.
"""

from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum
from typing import Final, assert_never

from msgspec import Struct

from mainspring.core import machine
from mainspring.core.command import CancelJob, Command, DeleteJob, MoveJob, RetryJob
from mainspring.core.job import FINISHED, WAITING, Job, JobId, State
from mainspring.core.machine import Change
from mainspring.errors import IllegalTransition, JobGone
from mainspring.stores.port import Store
from mainspring.stores.records import Settled, Settlement, Verdict

TOGETHER: Final = 100
"""Jobs that are written in one transaction: some milliseconds, which others have to wait for."""
TRIES: Final = 5
TOLD: Final = 5
"""Problems that are told; there may be as many as there are jobs."""


class Action(StrEnum):
    """What can be done to a job. The names are those of the permissions, after "jobs."."""

    RETRY = "retry"
    CANCEL = "cancel"
    RUN_NOW = "run_now"
    DELETE = "delete"


class Trouble(Struct, frozen=True, kw_only=True):
    """A job to which it could not be done, and why."""

    id: JobId
    problem: str


class Acted(Struct, frozen=True, kw_only=True):
    """What came of it."""

    changed: int = 0
    refused: int = 0
    problems: tuple[Trouble, ...] = ()
    """The first of them."""


def makes_sense(action: Action, job: Job, now: datetime) -> bool:
    """Say whether it could be done to a job as it stands."""
    match action:
        case Action.RETRY:
            return job.state in {State.FAILED, State.CANCELLED}
        case Action.CANCEL:
            return job.state not in FINISHED and job.cancel_requested_at is None
        case Action.RUN_NOW:
            return job.state in WAITING and job.run_at > now
        case Action.DELETE:
            return job.state is not State.RUNNING
        case _:
            assert_never(action)


def command_of(action: Action, now: datetime) -> Command:
    match action:
        case Action.RETRY:
            return RetryJob()
        case Action.CANCEL:
            return CancelJob()
        case Action.RUN_NOW:
            return MoveJob(run_at=now)
        case Action.DELETE:
            return DeleteJob()
        case _:
            assert_never(action)


async def act(store: Store, jobs: Sequence[Job], action: Action) -> Acted:
    """Do the same to several jobs, as they were read."""
    changed = 0
    troubles: list[Trouble] = []
    for begin in range(0, len(jobs), TOGETHER):
        done, more = await _act(store, list(jobs[begin : begin + TOGETHER]), action)
        changed += done
        troubles += more
    return Acted(changed=changed, refused=len(troubles), problems=tuple(troubles[:TOLD]))


async def _act(store: Store, jobs: list[Job], action: Action) -> tuple[int, list[Trouble]]:
    changed = 0
    troubles: list[Trouble] = []
    for _ in range(TRIES):
        changes, refused = _chosen(jobs, action, store.now())
        troubles += refused
        answers = await store.settle([Settlement(change=change) for change in changes]) if changes else ()
        jobs = []
        for change, settled in zip(changes, answers, strict=True):
            if settled.accepted:
                changed += 1
            elif settled.verdict is Verdict.STALE and settled.job is not None:
                jobs.append(settled.job)
            else:
                troubles.append(Trouble(id=change.before.id, problem=_why(change, settled)))
        if not jobs:
            break
    troubles += [Trouble(id=job.id, problem="it changed all the time") for job in jobs]
    return changed, troubles


def _chosen(jobs: Sequence[Job], action: Action, now: datetime) -> tuple[list[Change], list[Trouble]]:
    changes: list[Change] = []
    troubles: list[Trouble] = []
    for job in jobs:
        if action is Action.RUN_NOW and job.state in WAITING and job.run_at <= now:
            # Another time would put it behind others that have waited for less long.
            troubles.append(Trouble(id=job.id, problem="it is due already"))
            continue
        try:
            changes.append(machine.command(job, command_of(action, now), now))
        except IllegalTransition as error:
            troubles.append(Trouble(id=job.id, problem=str(error)))
    return changes, troubles


def _why(change: Change, settled: Settled) -> str:
    job = change.before
    if settled.verdict is Verdict.CONFLICT:
        return f"its unique key is taken by job {settled.holder}"
    return str(JobGone(str(job.id)))
