"""Lines of waiting jobs that a claim reads.

A line is a part of the waiting jobs that one index has in claim order: all of them (`jobs_by_order`), those of one
queue (`jobs_by_queue`) or of one task (`jobs_by_task`), or all suspects (`jobs_suspect`). A request without
restrictions reads one line, and that of the suspects. Tasks with limits or a breaker that is not closed, and queues
with limits or a concurrency of their own on the node, have lines of their own, so that a job that may not run now is
never in front of one that may. How many lines there are depends on what is declared, not on how many queues, tasks or
jobs there are. Pure.
"""

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from datetime import datetime
from enum import Enum
from typing import NamedTuple, TypeAlias

from mainspring.core.limits import Scope
from mainspring.core.names import Name
from mainspring.stores.postgres.rules import Rules
from mainspring.stores.records import ClaimRequest

Subject: TypeAlias = tuple[Scope, str]
"""A queue or a task."""


class LineIndex(Enum):
    """Which index a line is read from."""

    ALL = "all"
    TASK = "task"
    QUEUE = "queue"
    SUSPECT = "suspect"


class Line(NamedTuple):
    """Waiting jobs in claim order, with the filter of the request."""

    kind: LineIndex
    name: str
    """Of the task or the queue."""
    tasks: frozenset[Name]
    """Only jobs of these tasks."""
    named: frozenset[str] | None
    """Only jobs of these queues; None: of any."""
    rest: bool = False
    """Whether it is the line of the rest: all jobs that no other line contains."""
    not_in_rest: frozenset[str] = frozenset()
    """Queues that are not in the line of the rest: paused, or with a line of their own."""

    @property
    def gate(self) -> Subject | None:
        """Return the gate that all jobs of the line have to pass, if there is one."""
        match self.kind:
            case LineIndex.TASK:
                return Scope.TASK, self.name
            case LineIndex.QUEUE:
                return Scope.QUEUE, self.name
            case LineIndex.ALL | LineIndex.SUSPECT:
                return None


class Source(NamedTuple):
    """One priority of a line."""

    line: Line
    priority: int


class RequestLines(NamedTuple):
    """The lines that a request reads, and the filters that they share."""

    lines: Sequence[Line]
    plain: frozenset[Name]
    """Tasks without a line of their own."""
    suspects: frozenset[Name]
    """Tasks of the line of suspects."""
    named: frozenset[str] | None
    """The only queues of a request; None: all."""
    left_out_queues: frozenset[Subject]
    """Queues that lines of tasks, and that of suspects, leave out: paused, without room, or behind a full gate."""
    left_out_of_suspects: frozenset[Subject]
    """What the line of suspects leaves out: `left_out_queues`, and tasks behind a full gate."""

    def left_out_of(self, line: Line) -> frozenset[Subject]:
        """Return what a line leaves out in this claim, and perhaps not in the next one."""
        if line.kind is LineIndex.SUSPECT:
            return self.left_out_of_suspects
        return self.left_out_queues if line.kind is LineIndex.TASK and not line.rest else frozenset()


def lines_of(
    rules: Rules, request: ClaimRequest, now: datetime, full: AbstractSet[Subject] = frozenset()
) -> RequestLines:
    """Return the lines that a request reads; none of tasks whose breaker refuses every job.

    Lines of tasks leave out queues behind gates that are `full`, and the line of suspects those queues and tasks.
    """
    rooms = request.queues or {}
    left_out = rules.paused | {queue for queue, room in rooms.items() if room <= 0}
    apart = [task for task in request.tasks if rules.restricts(task)] if rules.gates or rules.unclosed else []
    plain = request.tasks.difference(apart) if apart else request.tasks
    apart = [task for task in apart if not (task in rules.unclosed and rules.refusal(task, now))]
    named = None if request.queues is None or request.others else frozenset(rooms)
    lines = [Line(LineIndex.TASK, str(task), frozenset((task,)), named) for task in apart]
    suspects = plain.union(apart) if apart else plain
    if suspects and request.suspects > 0:
        lines.append(Line(LineIndex.SUSPECT, "", suspects, named))
    limited = {name for scope, name in rules.gates if scope is Scope.QUEUE} if rules.gates else set()
    limited = limited | rooms.keys() if named is None else set(named)
    if plain:
        lines += [Line(LineIndex.QUEUE, queue, plain, None) for queue in sorted(limited - left_out)]
    if plain and named is None:
        task = next(iter(plain)) if len(plain) == 1 else None
        others = rules.paused | limited if limited else rules.paused
        lines.append(Line(LineIndex.TASK if task else LineIndex.ALL, str(task or ""), plain, None, True, others))
    left_out_queues = frozenset((Scope.QUEUE, queue) for queue in left_out)
    if full:
        left_out_queues = left_out_queues.union(gate for gate in full if gate[0] is Scope.QUEUE)
    return RequestLines(lines, plain, suspects, named, left_out_queues, left_out_queues.union(full))


def cooling(rules: Rules, request: ClaimRequest, now: datetime) -> list[datetime]:
    """Return when breakers that refuse every job of a task of the request will let one pass."""
    refusals = [rules.refusal(task, now) for task in rules.unclosed & request.tasks] if rules.unclosed else []
    return [refused.until for refused in refusals if refused is not None and refused.until is not None]
