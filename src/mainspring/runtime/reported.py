"""What a job of a plugin may return to say how it went, and what the node does about it.

    return Done()
    return DoneAndReschedule("5m")
    return Failed("the disk is full", retry=False)

Anything else that it returns is its result, and as good as `Done()`.
"""

from datetime import timedelta
from typing import TYPE_CHECKING, TypeAlias
from uuid import UUID

from msgspec import Struct
from msgspec.structs import force_setattr

from mainspring.core.names import Name
from mainspring.core.outcome import Fail
from mainspring.core.steps import run_again
from mainspring.duration import Duration, duration
from mainspring.errors import ReportedFailure, ScheduleError
from mainspring.ids import heir
from mainspring.runtime.call import CallFacts
from mainspring.runtime.events import log
from mainspring.runtime.firing import move_of
from mainspring.runtime.planned import TRIES
from mainspring.stores.port import Store
from mainspring.stores.records import RunFilter


class Done(Struct, frozen=True, tag="done"):
    """It went well."""


class DoneAndReschedule(Struct, frozen=True, tag="done_and_reschedule"):
    """It went well, and its schedule is to run it once more after `delay`, whatever its rule says."""

    if TYPE_CHECKING:
        delay: Duration
    else:
        delay: timedelta

    def __post_init__(self) -> None:
        force_setattr(self, "delay", duration(self.delay))


class Failed(Struct, frozen=True, tag="failed"):
    """It went wrong, because of `reason`; without `retry`, for good."""

    reason: str
    retry: bool = True


JobOutcome: TypeAlias = Done | DoneAndReschedule | Failed


async def finish(own: Name, store: Store, facts: CallFacts, value: object) -> object:
    """Do what a returned value asks for; `own` is the schedule of a job that none has made."""
    match value:
        case Failed(reason=reason, retry=retry):
            raise ReportedFailure(reason) if retry else Fail(reason)
        case DoneAndReschedule(delay=delay):
            schedule = Name.parse(facts.slot.schedule) if facts.slot else own
            await reschedule(store, schedule, facts, duration(delay))
        case type() if issubclass(value, JobOutcome):
            dots = "" if value is Done else "…"
            raise Fail(
                f"it returned the class {value.__name__}; write `return {value.__name__}({dots})`, with parentheses"
            )
        case _:
            pass
    return value


async def reschedule(store: Store, schedule: Name, facts: CallFacts, delay: timedelta) -> None:
    """Have a schedule make one more job, due after `delay`: one for each job, however often it asks.

    The id of the new job follows from that of the old one. So an attempt whose end was not written, and which is
    made again, finds the run that it has made before.
    """
    id_ = heir(facts.job, facts.enqueued_at)
    for _ in range(TRIES):
        looked = await store.look([schedule])
        if not looked.looks:
            log.info("schedule %s is gone: job %s is not run again", schedule, facts.job)
            return
        # Read after the look: who makes the run from here on moves the schedule on.
        if await _is_there(store, schedule, id_):
            return
        decision = run_again(looked.looks[0].schedule, looked.now, id_)
        (accepted,) = await store.move([move_of(decision, delay=delay)])
        if accepted:
            return
    raise ScheduleError(f"schedule {schedule}", f"it changed {TRIES} times while it was being changed; try again")


async def _is_there(store: Store, schedule: Name, id_: UUID) -> bool:
    page = await store.runs(RunFilter(schedule=schedule), limit=1, after=UUID(int=id_.int + 1))
    return any(run.id == id_ for run in page.runs)
