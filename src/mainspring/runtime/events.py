"""What a node tells its listeners: logical transitions of jobs, after they were committed.

In order per job; at most once, also across a crash: what was committed and not told before the crash is not told again.
A listener that raises is counted and logged, and stops neither the job nor the other listeners: also where it raises
`SystemExit`, or a `CancelledError`, which is never that of the node's own task, because nothing is awaited here.
`KeyboardInterrupt` alone is let through. Listeners are called on the node's event loop and must not block it.
"""

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

from msgspec import Struct

from mainspring.core.breaker import Phase, PhaseChange
from mainspring.core.job import Job, NodeId, State
from mainspring.core.machine import Change, Event
from mainspring.core.outcome import AttemptError

if TYPE_CHECKING:
    from mainspring.runtime.meter import Meter

log: Final = logging.getLogger("mainspring.node")


class StateChange(Struct, frozen=True, kw_only=True):
    """A job has gone from one state to another."""

    job: Job
    """As it is now."""
    event: Event
    source: State | None
    target: State
    node: NodeId | None = None
    seconds: float | None = None
    """How long the attempt took that has ended."""
    error: AttemptError | None = None


class BreakerChange(Struct, frozen=True, kw_only=True):
    """The breaker of a task has entered another phase, by what a node did."""

    change: PhaseChange
    node: NodeId | None = None


def log_end(change: Change, error: AttemptError | None) -> None:
    """Write a line about an attempt that did not succeed: what a person who watches a worker wants to see."""
    job, after = change.before, change.after
    if after is None or change.event not in _WORTH_A_LINE:
        return
    what = f": {error.type}: {error.message}" if error else ""
    match change.event:
        case Event.FAILED:
            log.error("job %s (%s) failed, %s%s", job.id, job.task, after.cause, what)
        case Event.WILL_RETRY:
            again = after.run_at.isoformat(timespec="seconds")
            log.warning(
                "job %s (%s) attempt %s of %s raised%s; again at %s",
                job.id,
                job.task,
                job.attempt,
                job.attempts_allowed,
                what,
                again,
            )
        case _:
            log.warning("job %s (%s) was lost with node %s; it goes to another", job.id, job.task, change.node)


_WORTH_A_LINE: Final = {Event.FAILED, Event.WILL_RETRY, Event.LOST}

Listener: TypeAlias = Callable[[StateChange], None]
BreakerListener: TypeAlias = Callable[[BreakerChange], None]


class Events:
    """Tells listeners, and counts what nobody has to be told of one by one."""

    def __init__(
        self, listeners: Sequence[Listener] = (), *, breaker_listeners: Sequence[BreakerListener] = ()
    ) -> None:
        self.listeners = tuple(listeners)
        self.breaker_listeners = tuple(breaker_listeners)
        self.counts: Counter[str] = Counter()
        self.meter: Meter | None = None
        """Counts how attempts end, for people, where the store keeps such counts."""

    def tell(self, change: StateChange) -> None:
        for listener in self.listeners:
            try:
                listener(change)
            except KeyboardInterrupt:
                raise
            except BaseException:
                self.counts["listener_errors"] += 1
                log.exception("a listener raised on %s of job %s; the job goes on", change.event, change.job.id)

    def tell_of_breaker(self, change: PhaseChange, node: NodeId | None) -> None:
        """Tell that a breaker has changed its phase, after that was committed."""
        self.count(f"breakers_{change.target}")
        if change.target is Phase.OPEN:
            last = f"job {change.job} was the last to fail" + (f": {change.reason}" if change.reason else "")
            log.error("the breaker of %s is open: its jobs wait (%s)", change.task, last)
        elif change.target is Phase.HALF_OPEN:
            log.info("the breaker of %s is half open: job %s is the probe", change.task, change.job)
        else:
            log.warning("the breaker of %s is closed again: its jobs go on", change.task)
        for listener in self.breaker_listeners:
            try:
                listener(BreakerChange(change=change, node=node))
            except KeyboardInterrupt:
                raise
            except BaseException:
                self.counts["listener_errors"] += 1
                log.exception("a listener raised on the breaker of %s", change.task)

    def count(self, what: str, number: int = 1) -> None:
        self.counts[what] += number
