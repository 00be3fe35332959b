"""Counts how attempts end on this node, by minute, queue and task, and writes the counts down every few seconds.

For people only: what is counted steers nothing, and is written late rather than at the cost of work. Each write is the
whole of a minute, in place of what was written of it before; so one whose answer was lost is written again, and counts
once. A node that is killed takes a few seconds of counts along.
"""

from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import Final

from mainspring.clock import Clock
from mainspring.core.job import Job, NodeId
from mainspring.core.machine import Event
from mainspring.core.tally import MINUTE, MOST_ERRORS, OTHERS, Counted, Line, fewer, start_of, step_of, written
from mainspring.runtime.events import Events
from mainspring.stores.overview import Overview, Tally
from mainspring.supervise import Directive, Idle, Notifier, Sleep

EVERY: Final = 10.0  # seconds from the first end that is not written until it is
A_MOMENT: Final = 0.001  # seconds: what is too short to be slept would not let time pass
KEPT: Final = 60  # minutes that are kept while the store would not take them
MOST_LINES: Final = 500  # queues and tasks that are told apart in a minute; all others are one
MOST_CLASSES: Final = (
    5 * MOST_ERRORS
)  # of errors in a line, until it is written: the most frequent are not known before
SET_BACK: Final = timedelta(hours=1)  # by which a clock may be wrong before its minutes are taken for new ones


class Page:
    """One line of a minute, while it grows."""

    __slots__ = ("ends", "errors", "queue", "runs", "task", "waits")

    def __init__(self, queue: str, task: str) -> None:
        self.queue: Final = queue
        self.task: Final = task
        self.ends: dict[str, int] = {}
        self.waits: dict[int, int] = {}
        self.runs: dict[int, int] = {}
        self.errors: dict[str, int] = {}

    def raised(self, error: str) -> None:
        if error not in self.errors and len(self.errors) >= MOST_CLASSES:
            error = OTHERS
        self.errors[error] = self.errors.get(error, 0) + 1

    def line(self) -> Line:
        """Return what is there now; it may go on growing."""
        return Line(
            queue=self.queue,
            task=self.task,
            ends=dict(self.ends),
            waits=dict(self.waits),
            runs=dict(self.runs),
            errors=fewer(self.errors),
        )


class Minute:
    """What was counted in one minute under one id of the node."""

    __slots__ = ("at", "by", "is_written", "pages")

    def __init__(self, at: datetime, by: NodeId) -> None:
        self.at: Final = at
        self.by: Final = by
        self.pages: dict[tuple[str, str, str], Page] = {}
        self.is_written = True

    def page(self, where: tuple[str, str, str]) -> Page:
        """Begin a line."""
        if len(self.pages) >= MOST_LINES:
            where = OTHERS, "", OTHERS
        found = self.pages.get(where)
        if found is None:
            queue, namespace, local = where
            found = self.pages[where] = Page(queue, f"{namespace}:{local}" if namespace else local)
        return found

    def tally(self) -> Tally:
        counted = Counted(lines=tuple(page.line() for page in self.pages.values()))
        return Tally(at=self.at, span=MINUTE, by=self.by, body=written(counted))


class Meter:
    """The step of a service, and the counts in front of it. Everything here happens on the node's event loop."""

    def __init__(
        self, store: Overview, events: Events, *, now: Callable[[], datetime], me: Callable[[], NodeId], clock: Clock
    ) -> None:
        self.wake = Notifier()
        self._store = store
        self._events = events
        self._store_now = now
        self._me = me
        self._clock = clock
        self._now = datetime.min.replace(tzinfo=UTC)
        self._mono = clock.monotonic()
        self._minute = Minute(self._now, NodeId(""))  # of nobody, until the first look
        self._others: list[Minute] = []
        """Of earlier minutes, those that are not written yet."""
        self._write_at: float | None = None
        """When to write, on the monotonic clock; None: there is nothing to write."""

    # Counting.

    def look(self) -> None:
        """Read the clocks; to be done before ends are counted, once for as many as there are."""
        self._now, self._mono = self._store_now(), self._clock.monotonic()
        minute, by = start_of(self._now, MINUTE), self._me()
        current = self._minute
        if by == current.by and minute <= current.at < minute + SET_BACK:  # a clock was set back: it goes on there
            return
        if not current.is_written:
            self._others.append(current)
            self._bound()
        self._minute = Minute(minute, by)

    def ended(self, job: Job, event: Event, *, began: float | None, seconds: float | None, error: str | None) -> None:
        """Count the end of an attempt: a job that began then, on the monotonic clock, or was never started."""
        minute, task = self._minute, job.task
        where = job.queue, task.namespace, task.local
        page = minute.pages.get(where) or minute.page(where)
        page.ends[event] = page.ends.get(event, 0) + 1
        if began is not None:
            step = step_of((self._now - job.run_at).total_seconds() - (self._mono - began))
            page.waits[step] = page.waits.get(step, 0) + 1
        if seconds is not None:
            step = step_of(seconds)
            page.runs[step] = page.runs.get(step, 0) + 1
        if error is not None:
            page.raised(error)
        if minute.is_written:
            minute.is_written = False
            if self._write_at is None:
                self._write_at = self._mono + EVERY
                self.wake.notify_one()

    def _bound(self) -> None:
        while len(self._others) > KEPT:
            self._others.pop(0)
            self._events.count("minutes_forgotten")

    # Writing.

    async def step(self) -> Directive:
        if self._write_at is None:
            return Idle()
        rest = self._write_at - self._clock.monotonic()
        if rest > A_MOMENT:
            return Sleep(rest)
        await self.write()
        return Idle() if self._write_at is None else Sleep(EVERY)

    async def write(self) -> None:
        """Write what has been counted, if there is something."""
        minutes = [one for one in (*self._others, self._minute) if not one.is_written]
        if not minutes:
            return
        tallies = [minute.tally() for minute in minutes]
        for minute in minutes:
            minute.is_written = True  # unless more is counted meanwhile
        try:
            await self._store.write_tallies(tallies)
        except BaseException:
            self._keep(minutes)
            raise
        self._others = [one for one in self._others if not one.is_written]
        is_done = self._minute.is_written and not self._others
        self._write_at = None if is_done else self._clock.monotonic() + EVERY

    def _keep(self, minutes: Iterable[Minute]) -> None:
        """Keep for later what could not be written, though the minute may have turned meanwhile."""
        for minute in minutes:
            minute.is_written = False
            if minute is not self._minute and minute not in self._others:
                self._others.append(minute)
        self._bound()
