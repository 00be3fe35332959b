"""Writes how attempts ended, many at a time.

What was put here is written once the store takes it, however often that has to be tried: a finished attempt is not
forgotten because a write failed. While one batch is being written the next one gathers, so that batches are as large as
the node is busy, and a single job is written at once.
"""

import asyncio
import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from mainspring.core.job import Claim, JobId, NodeId
from mainspring.core.machine import Change, Event, decide
from mainspring.core.outcome import AttemptError, Outcome, Raised, error_of
from mainspring.errors import StoreError
from mainspring.runtime.events import Events, StateChange, log, log_end
from mainspring.stores.port import Store
from mainspring.stores.records import Place, Settled, Settlement, Verdict
from mainspring.supervise import Directive, Idle, Notifier, Proceed

BATCH: Final = 1000
LOCKED_RETRY_S: Final = 1.0  # seconds until the end of a locked job is written again


@dataclass(slots=True, kw_only=True)
class Ended:
    """An attempt that is over, until it is written."""

    claim: Claim
    outcome: Outcome
    by: NodeId
    began: float | None = None
    """When its body was started, on the monotonic clock; None: it was not, or somewhere else."""
    seconds: float | None = None
    keeps_place: bool = False
    settlement: Settlement | None = None
    """As it was decided; decided anew only if the job has changed, so that what is told is what was written."""
    replaced: bool = False
    """Its own end could not be written; this one says so."""
    term: int | None = None
    """Of its task's breaker, as the claim named it."""
    was_locked: bool = False
    """Another transaction held the job when it was written before."""
    told_elsewhere: bool = False
    """The handler's own transaction may have ended the job before, and told of it."""


class Settler:
    """The step of a service, and the line in front of it."""

    def __init__(self, store: Store, events: Events, *, roll: Callable[[], float] = random.random) -> None:
        self.wake = Notifier()
        self._store = store
        self._events = events
        self._roll = roll
        self._line: deque[Ended] = deque()
        self._writing: Sequence[Ended] = ()
        self._locked: list[Ended] = []
        self._places: dict[NodeId, list[Place]] = {}
        self._written = asyncio.Event()

    def put(self, ended: Ended) -> None:
        """Have the end of an attempt written. Call it on the node's event loop."""
        self._line.append(ended)
        if len(self._line) == 1:
            self.wake.notify_one()

    def release(self, node: NodeId, place: Place) -> None:
        """Have a place given up that the end of its attempt had left taken."""
        self._places.setdefault(node, []).append(place)
        self.wake.notify_one()

    @property
    def is_empty(self) -> bool:
        return not self._line and not self._writing and not self._places and not self._locked

    async def emptied(self) -> None:
        """Wait until everything has been written."""
        while not self.is_empty:
            self._written.clear()
            await self._written.wait()

    def leases(self) -> set[tuple[JobId, int]]:
        """What is held still, because its end is not written yet."""
        return {(one.claim.job.id, one.claim.job.lease) for one in (*self._line, *self._writing, *self._locked)}

    async def step(self) -> Directive:
        """Write what has gathered."""
        directive = await self._write()
        self._written.set()
        return directive

    async def _write(self) -> Directive:
        await self._release()
        batch = [self._line.popleft() for _ in range(min(BATCH, len(self._line)))]
        if not batch:
            return Idle()
        self._writing = batch
        try:
            await self._settle(batch)
        except (StoreError, asyncio.CancelledError):
            self._line.extendleft(reversed(batch))  # for when the store can again
            raise
        except Exception:  # noqa: BLE001 - one of them cannot be written; it must not keep back the others
            await self._settle_one_by_one(deque(batch))
        finally:
            self._writing = ()
        return Proceed() if self._line or self._due_places() else Idle()

    async def _settle(self, batch: Sequence[Ended]) -> None:
        settlements = self._decide(batch)
        answers = await self._store.settle(settlements)
        if self._events.meter:
            self._events.meter.look()
        for ended, settlement, answer in zip(batch, settlements, answers, strict=True):
            self._answered(ended, settlement.change, answer)

    async def _settle_one_by_one(self, left: "deque[Ended]") -> None:
        try:
            while left:
                try:
                    await self._settle([left[0]])
                except (StoreError, asyncio.CancelledError):
                    raise
                except Exception as error:
                    if left[0].replaced:
                        raise  # not even that can be written: tried again, at the pace of the service's backoff
                    self._replace(left[0], error)
                left.popleft()
        finally:
            self._line.extendleft(reversed(left))

    def _replace(self, ended: Ended, error: Exception) -> None:
        """Write that an end could not be written, in its stead: a job must not stay running for ever."""
        ended.replaced = True
        job = ended.claim.job
        self._events.count("unwritable")
        log.error("how job %s (%s) ended cannot be written; it fails instead", job.id, job.task, exc_info=error)
        ended.outcome = Raised(
            error=AttemptError(type=type(error).__name__, message=f"how it ended could not be written: {error}"[:1000]),
            retryable=False,
        )
        ended.settlement = None
        self.put(ended)

    async def _release(self) -> None:
        for node, places in self._due_places().items():
            await self._store.release(node, places)
            left = [one for one in self._places.pop(node) if one not in places]
            if left:
                self._places[node] = left

    def _due_places(self) -> dict[NodeId, list[Place]]:
        """Return the places to give up now. Not those of unwritten ends: the store keeps a place whose attempt still runs."""
        unwritten = self.leases() if self._places else set()
        due = {
            node: [one for one in places if (one.job, one.lease) not in unwritten]
            for node, places in self._places.items()
        }
        return {node: places for node, places in due.items() if places}

    def _decide(self, batch: Sequence[Ended]) -> list[Settlement]:
        now = self._store.now()
        roll = self._roll
        settlements = []
        for ended in batch:
            if ended.settlement is None:
                ended.settlement = Settlement(
                    change=decide(ended.claim, ended.outcome, now, roll()),
                    by=ended.by,
                    seconds=ended.seconds,
                    keeps_place=ended.keeps_place,
                    term=ended.term,
                )
            settlements.append(ended.settlement)
        return settlements

    def _answered(self, ended: Ended, change: Change, answer: Settled) -> None:
        if answer.verdict is Verdict.STALE and answer.job is not None:
            ended.claim = Claim(job=answer.job, node=ended.claim.node)
            ended.settlement = None
            self.put(ended)
            return
        if answer.verdict is Verdict.LOCKED:
            self._delay_locked(ended)
            return
        if answer.changed is not None:
            self._events.tell_of_breaker(answer.changed, ended.by)
        if answer.accepted:
            if not (answer.verdict is Verdict.REPEATED and ended.told_elsewhere):
                self._tell(change, ended)
        elif ended.by == ended.claim.node:  # of several reapers all but one come too late, and that is as it should be
            self._events.count("refused")
            log.warning(
                "%s of job %s came too late: lease %s is not held", change.event, change.before.id, change.before.lease
            )

    def _delay_locked(self, ended: Ended) -> None:
        """Retry an end later, without delaying the others."""
        if not ended.was_locked:
            ended.was_locked = True
            job = ended.claim.job
            log.warning(
                "job %s (%s): another transaction holds its row; retrying the write of its end", job.id, job.task
            )
        self._locked.append(ended)
        asyncio.get_running_loop().call_later(LOCKED_RETRY_S, self._try_locked)

    def _try_locked(self) -> None:
        self.put(self._locked.pop(0))

    def _tell(self, change: Change, ended: Ended) -> None:
        self._events.count(change.event)
        error = error_of(ended.outcome)
        if self._events.meter:
            self._events.meter.ended(
                change.before, change.event, began=ended.began, seconds=ended.seconds, error=_what(change, error)
            )
        if change.event is Event.SUCCEEDED and not self._events.listeners:
            return
        log_end(change, error)
        if not self._events.listeners or change.after is None:
            return
        self._events.tell(
            StateChange(
                job=change.after,
                event=change.event,
                source=change.before.state,
                target=change.after.state,
                node=ended.by,
                seconds=ended.seconds,
                error=error,
            )
        )


def _what(change: Change, error: AttemptError | None) -> str | None:
    """Name what went wrong in one word: the class of an error, or why the job failed without one."""
    if error is not None:
        return error.type
    return change.after.cause if change.after is not None else None
