"""Writes down how the node is doing, every few seconds while something goes on, and now and then while nothing does.

For people only. What it writes takes the place of what it wrote before, and dies with the node.
"""

import os
import resource
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Final

from mainspring.clock import Clock
from mainspring.errors import NodeGone
from mainspring.runtime.attempt import Attempt
from mainspring.runtime.board import Board
from mainspring.runtime.claimer import Claimer
from mainspring.runtime.keeper import Membership
from mainspring.runtime.report import MOST_JOBS, Report, RunningJob, written
from mainspring.runtime.runner import Runner
from mainspring.stores.overview import Overview
from mainspring.supervise import Directive, Sleep

EVERY: Final = 5.0  # seconds between two reports
AT_REST: Final = 30.0  # the same, while there is no news
LEAST: Final = 1.0  # the same, while there is more and more of it
A_MOMENT: Final = 0.001  # seconds: what is too short to be slept would not let time pass
STATM: Final = "/proc/self/statm"


class Reporting:
    """The step of a service; what is new on the board wakes it."""

    def __init__(
        self,
        store: Overview,
        board: Board,
        runner: Runner,
        claimer: Claimer,
        *,
        now: Callable[[], datetime],
        me: Callable[[], Membership],
        clock: Clock,
        singles: Callable[[], Mapping[str, bool]],
    ) -> None:
        self.wake = board.news
        self._store = store
        self._board = board
        self._runner = runner
        self._claimer = claimer
        self._now = now
        self._me = me
        self._clock = clock
        self._singles = singles
        self._machine = Machine()
        self._last: object = None
        self._written_at: float | None = None
        self._due: float | None = None
        """When the step was to begin, if nothing woke it."""

    async def step(self) -> Directive:
        began = self._clock.monotonic()
        if self._written_at is None:  # what comes up with the node has settled by then
            self._written_at = began
        rest = self._written_at + LEAST - began
        if rest > A_MOMENT:  # woken by one piece of news after the other
            self._due = None
            return Sleep(rest)
        lag = 0.0 if self._due is None else max(0.0, began - self._due)
        news = self._news()
        if news != self._last or began - self._written_at >= AT_REST - A_MOMENT:
            await self._write(lag)
            self._last, self._written_at = news, began
        self._due = self._clock.monotonic() + EVERY
        return Sleep(EVERY, wakeable=True)

    def _news(self) -> object:
        """What is worth a report when it has changed. How often services have turned is not."""
        runner, claimer = self._runner, self._claimer
        counts = runner.started, runner.busy, runner.abandoned, runner.concurrency, self._board.changes
        return self._me(), counts, claimer.quiet, claimer.silent, tuple(self._singles().items())

    async def _write(self, lag: float) -> None:
        me = self._me()
        with suppress(NodeGone):  # the keeper learns it too, and joins again
            await self._store.report(me.node, me.term, written(self.report(lag)))

    def report(self, lag: float = 0.0) -> Report:
        """Say how the node is doing now."""
        now, runner = self._now(), self._runner
        return Report(
            memory=memory(),
            cpu=self._machine.cpu(),
            lag=round(lag, 4),
            busy=runner.busy,
            places=runner.concurrency,
            is_quiet=self._claimer.quiet,
            is_silent=self._claimer.silent,
            skew=round((now - self._clock.now()).total_seconds(), 2) + 0.0,  # and no -0.0
            running=running(runner.unstoppable(), now, self._clock.monotonic()),
            services=self._board.services(now, self._singles()),
        )


def running(attempts: Iterable[Attempt], now: datetime, mono: float) -> tuple[RunningJob, ...]:
    """Name attempts that are under way, the longest first, as many as are told."""
    longest = sorted(attempts, key=lambda attempt: attempt.began)[:MOST_JOBS]
    return tuple(
        RunningJob(
            id=job.id,
            task=str(job.task),
            queue=job.queue,
            attempt=job.attempt,
            since=now - timedelta(seconds=mono - attempt.began),
            is_abandoned=attempt.abandoned,
        )
        for attempt in longest
        for job in [attempt.delivery.claim.job]
    )


class Machine:
    """How much of a processor this process takes, by the machine's own clocks, whatever time it is in a test."""

    def __init__(self) -> None:
        self._looked = time.monotonic(), time.process_time()

    def cpu(self) -> float | None:
        """Say how much since it was asked last; None if that was just now."""
        (began, before), self._looked = self._looked, (time.monotonic(), time.process_time())
        passed = self._looked[0] - began
        return round((self._looked[1] - before) / passed, 3) if passed > 0.1 else None


def memory() -> int | None:
    """Say how many bytes of memory this process has; where that is not told, how many it had at most."""
    try:
        with open(STATM, "rb") as file:  # noqa: PTH123 - a few microseconds instead of twenty
            return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")
    except (OSError, ValueError, IndexError):
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return most if sys.platform == "darwin" else most * 1024
