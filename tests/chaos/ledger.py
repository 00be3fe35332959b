"""What the log of a run says, and what must be true of it however the run went."""

from collections import defaultdict
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple


class Line(NamedTuple):
    """One thing that happened."""

    event: str
    program: str
    job: str
    lease: int
    at: int
    """Nanoseconds of the system's monotonic clock, which all programs share."""


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

    def unexplained(self) -> list[tuple[Line, Line]]:
        """Find executions that were followed by another one although nobody had killed their program by then."""
        return [
            (one, following)
            for executions in self.started.values()
            for one, following in pairwise(executions)
            if not self.killed.get(one.program, following.at) < following.at
        ]


def lines_of(folder: Path) -> list[Line]:
    log = folder / "log"
    if not log.exists():
        return []
    found = []
    for text in log.read_text(encoding="ascii").splitlines():
        event, program, job, lease, at = text.split()
        found.append(Line(event, program, job, 0 if lease == "-" else int(lease), int(at)))
    return found
