"""What the log of a run says, and what must be true of it however the run went."""

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from math import inf
from pathlib import Path
from typing import NamedTuple

from mainspring.core.machine import Event

SETTLED = frozenset(
    {Event.SUCCEEDED, Event.WILL_RETRY, Event.SNOOZED, Event.GIVEN_BACK, Event.LOST, Event.FAILED, Event.CANCELLED}
)
"""What a listener may be told of the end of an attempt."""
CUT_SHORT = frozenset({"raised", "stopped"})
OVER = CUT_SHORT | {"returned"}


class Line(NamedTuple):
    """One thing that happened."""

    event: str
    program: str
    job: str
    lease: int
    at: int
    """Nanoseconds of the system's monotonic clock, which all programs share."""


class Body(NamedTuple):
    """One execution of a handler, from its first line to its last or to the death of its program."""

    job: str
    lease: int
    program: str
    key: str
    """What its limit counts it under; empty where it has none."""
    began: float
    ended: float
    """Infinity, if nothing is known of an end."""


@dataclass(slots=True)
class Ledger:
    """The log, sorted by what it says."""

    lines: list[Line]
    killed: dict[str, int]
    """When each program was killed that was."""
    enqueued: set[str] = field(default_factory=set)
    started: dict[str, list[Line]] = field(default_factory=lambda: defaultdict(list))
    """The executions of each job, by lease."""
    succeeded: dict[str, list[Line]] = field(default_factory=lambda: defaultdict(list))
    """The accepted successes of each job."""

    @classmethod
    def read(cls, folder: Path, killed: dict[str, int]) -> "Ledger":
        ledger = cls(lines_of(folder), killed)
        for line in ledger.lines:
            match line.event:
                case "enqueued":
                    ledger.enqueued.add(line.job)
                case "started":
                    ledger.started[line.job].append(line)
                case "succeeded":
                    ledger.succeeded[line.job].append(line)
                case _:  # of no interest here
                    pass
        for executions in ledger.started.values():
            executions.sort(key=lambda line: line.lease)
        return ledger

    @property
    def executed_twice(self) -> dict[str, list[Line]]:
        return {job: lines for job, lines in self.started.items() if len(lines) > 1}

    def count(self, event: str) -> int:
        return sum(line.event == event for line in self.lines)

    def leases_started_twice(self) -> list[list[Line]]:
        """Find leases under which a handler was begun more than once: none may be."""
        seen: dict[tuple[str, int], list[Line]] = defaultdict(list)
        for executions in self.started.values():
            for line in executions:
                seen[line.job, line.lease].append(line)
        return [lines for lines in seen.values() if len(lines) > 1]

    def successes_told_twice(self) -> list[list[Line]]:
        return [lines for lines in self.succeeded.values() if len(lines) > 1]

    def started_after_success(self) -> list[tuple[Line, Line]]:
        """Find executions of jobs that had succeeded before, under an earlier lease."""
        return [
            (line, success)
            for job, successes in self.succeeded.items()
            for success in successes
            for line in self.started[job]
            if line.lease > success.lease
        ]

    def ends_told_twice(self) -> dict[tuple[str, int], int]:
        """Find leases that were settled more than once, in whatever way: none may be."""
        counts = Counter((line.job, line.lease) for line in self.lines if line.event in SETTLED)
        return {lease: count for lease, count in counts.items() if count > 1}

    def unexplained(self) -> list[tuple[Line, Line]]:
        """Find executions that were followed by another one although their program was not killed by then, and they had
        neither raised nor been stopped.
        """
        cut_short = {(line.job, line.lease): line.at for line in self.lines if line.event in CUT_SHORT}
        return [
            (one, following)
            for executions in self.started.values()
            for one, following in pairwise(executions)
            if not self.killed.get(one.program, following.at) < following.at
            and not cut_short.get((one.job, one.lease), following.at) < following.at
        ]

    def bodies(self) -> list[Body]:
        """List all executions with their length."""
        over = {(line.job, line.lease): line.at for line in self.lines if line.event in OVER}
        keys = {(line.job, line.lease): line.event[4:] for line in self.lines if line.event.startswith("key:")}
        return [
            Body(
                job=line.job,
                lease=line.lease,
                program=line.program,
                key=keys.get((line.job, line.lease), ""),
                began=line.at,
                ended=min(over.get((line.job, line.lease), inf), self.killed.get(line.program, inf)),
            )
            for executions in self.started.values()
            for line in executions
        ]

    def running_twice(self) -> list[tuple[Body, Body]]:
        """Find executions of one job that ran at the same time: none may."""
        of_jobs: dict[str, list[Body]] = defaultdict(list)
        for body in self.bodies():
            of_jobs[body.job].append(body)
        return [
            (one, following)
            for bodies in of_jobs.values()
            for one, following in pairwise(sorted(bodies, key=lambda body: body.began))
            if following.began < one.ended
        ]


def most_at_once(bodies: Iterable[Body]) -> int:
    """Count how many ran at the same time, where there were most."""
    # At the same nanosecond an end comes first.
    steps = sorted(step for body in bodies for step in ((body.began, 1), (body.ended, -1)))
    most = now = 0
    for _, step in steps:
        now += step
        most = max(most, now)
    return most


def lines_of(folder: Path) -> list[Line]:
    log = folder / "log"
    if not log.exists():
        return []
    found = []
    for text in log.read_text(encoding="ascii").splitlines():
        event, program, job, lease, at = text.split()
        found.append(Line(event, program, job, 0 if lease == "-" else int(lease), int(at)))
    return found
