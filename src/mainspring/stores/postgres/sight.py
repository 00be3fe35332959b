"""What a claim reads before it takes anything: the first due jobs of each line and priority, and how gates stand."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Any, Final, NamedTuple

from mainspring.core.job import JobId
from mainspring.core.limits import Gate, Scope
from mainspring.core.names import Name
from mainspring.errors import NodeGone
from mainspring.stores.passage import Passage, Trial
from mainspring.stores.postgres.lines import Kind, Line, Lines, Position, Positions, Source, cooling, lines_of
from mainspring.stores.postgres.rows import Care, name, shown_key
from mainspring.stores.postgres.rules import Rules
from mainspring.stores.postgres.statements import statement
from mainspring.stores.postgres.verb import Ask, Row, Verb
from mainspring.stores.records import ClaimRequest

_PEEK: Final = statement("peek")
_RULES: Final = statement("rules_read")
_SUSPECTS: Final = -1
"""The place of the row of suspects."""


class Seen(NamedTuple):
    """A due job, with the columns that decide whether the request may have it."""

    priority: int
    run_at: datetime
    id: JobId
    queue: str
    task: Name
    care: int
    key: str | None

    @property
    def position(self) -> Position:
        return self.run_at, self.id


@dataclass(slots=True)
class Read:
    """What was read of a source, or of the suspects: the first due jobs, in order."""

    source: Source | None
    """None: the suspects."""
    jobs: Sequence[Seen]
    reached: Position | None
    """Where the read ended, if there may be more jobs behind that the request may have."""
    later: datetime | None
    """When the first job is due that is not due yet, or a little earlier."""
    most: int
    """How many were read at most."""

    @property
    def is_cut(self) -> bool:
        """Whether there may be more jobs that are due."""
        return self.reached is not None or len(self.jobs) >= self.most


@dataclass(frozen=True, slots=True)
class Keyed:
    """A task whose keys have a gate."""

    gate: Gate
    freed: bool
    """Places of keys were given up since a claim last looked."""
    look_at: datetime | None


@dataclass(frozen=True, slots=True)
class Sight:
    """All of it, as of one snapshot."""

    now: datetime
    horizon: datetime
    """Up to when jobs count as due."""
    rules: Rules
    reads: Sequence[Read]
    passages: dict[tuple[Scope, str], Passage]
    """Of tasks and queues."""
    full: frozenset[tuple[Scope, str]]
    """Those of them that let no job pass."""
    keyed: dict[Name, Keyed]
    took: float
    trials: dict[Name, Trial]
    """The breakers of the request's tasks that are not closed."""
    cooling: Sequence[datetime] = ()
    """When breakers open that refuse every job of a task."""

    def barriers(self, task: Name, queue: str) -> list[Passage | Trial]:
        """What all jobs of a task in a queue have to pass, as it stands: gates, and a breaker that is not closed."""
        return [*self.of_task(task), *self.of_queue(queue)] if self.passages or self.trials else []

    def of_task(self, task: Name) -> list[Passage | Trial]:
        found = (self.passages.get((Scope.TASK, str(task))), self.trials.get(task))
        return [barrier for barrier in found if barrier is not None]

    def of_queue(self, queue: str) -> list[Passage | Trial]:
        found = self.passages.get((Scope.QUEUE, queue))
        return [] if found is None else [found]

    @property
    def gates(self) -> list[Gate]:
        """The gates of all jobs that were read and that these gates let pass."""
        if not self.rules.gates:
            return []
        kinds = {(job.task, job.queue) for read in self.reads for job in read.jobs}
        keyed = {job.task for read in self.reads for job in read.jobs if job.key is not None}
        found: list[Gate] = []
        for task, queue in kinds:
            gates = self.rules.gates_of(task, queue)
            if not any((gate.scope, gate.name) in self.full for gate in gates):
                found += gates
                gate = self.rules.keyed(task)
                found += [gate] if gate is not None and task in keyed else []
        return found

    def gates_of(self, job: Seen) -> list[Gate]:
        """The gates that a job has to pass."""
        found = self.rules.gates_of(job.task, job.queue)
        keyed = None if job.key is None else self.rules.keyed(job.task)
        return found if keyed is None else [*found, keyed]

    def is_due(self, keyed: Keyed) -> bool:
        """Return whether keys have to be looked at."""
        if keyed.freed or keyed.look_at is None:
            return keyed.freed
        return not self.now < keyed.look_at <= self.now + keyed.gate.longest_wait  # later: the clock was ahead then


class Scan(NamedTuple):
    """How much of each source is read."""

    most: int
    """Jobs that the request may have."""
    entries: int
    """Index entries."""


def look(at: datetime | None, request: ClaimRequest, lines: Lines, began: Positions, scan: Scan) -> Verb[Sight]:
    """Read the first due jobs of each line and priority; read rules and priorities that are new first."""
    while True:
        rules = lines.rules
        now_here = lines.now()
        asked = lines_of(rules, request, now_here)
        sources = lines.sources(asked)
        wanted = _gates(rules, request)
        tasks = sorted({task for task in request.tasks if rules.keyed(task)}, key=str) if rules.gates else []
        gaps = lines.gaps(whole=not began.skip)
        most = [1 if _is_full(lines, source.line) else scan.most for source in sources]
        rows = yield Ask(
            _PEEK,
            (
                at,
                request.due_by,
                request.node,
                request.term,
                *gaps,
                scan.entries,
                *_filters(rules, request, asked),
                *_columns(sources, began, most),
                request.suspects > 0,
                [str(gate.scope) for gate in wanted],
                [gate.name for gate in wanted],
                [str(task) for task in tasks],
            ),
        )
        took = max(row[17] for row in rows).total_seconds()  # by the server: here, a busy event loop would count too
        by_place = {row[0]: row for row in rows}
        now, version, fresh, taken, freed, look_at, spent = by_place[0][10:17]
        if version is None:
            raise NodeGone("PostgreSQL store", f"node {request.node} is not alive under this term; join under a new id")
        if version != rules.version:
            ((*row,),) = yield Ask(_RULES)
            lines.rules = Rules.of(row)
            lines.forget_positions()
            began = lines.from_start()
            continue
        if fresh:
            lines.learn(fresh)
            continue
        if gaps[0]:
            lines.looked_into_gaps(took)
        reads = [_read(source, by_place[place], most[place - 1]) for place, source in enumerate(sources, start=1)]
        if _SUSPECTS in by_place:
            reads.append(_suspects(by_place[_SUSPECTS]))
            lines.suspects = bool(reads[-1].jobs) or reads[-1].later is not None
        passages = {
            (gate.scope, gate.name): Passage(gate=gate, key="", taken=count, spent_until=until, now=now)
            for gate, count, until in zip(wanted, taken, spent, strict=True)
        }
        lines.full = frozenset(subject for subject, passage in passages.items() if passage.room <= 0)
        return Sight(
            now=now,
            horizon=now if request.due_by is None else min(now, request.due_by),
            rules=rules,
            reads=reads,
            passages=passages,
            full=lines.full,
            keyed={
                task: Keyed(rules.gates[Scope.KEY, str(task)], was_freed, when)
                for task, was_freed, when in zip(tasks, freed, look_at, strict=True)
            },
            took=took,
            trials={task: Trial(rules.breakers[task], now) for task in rules.unclosed & request.tasks},
            cooling=cooling(rules, request, now_here),
        )


def _is_full(lines: Lines, line: Line) -> bool:
    """Return whether the gate of a line let no job pass when it was last read: then one job of it is enough."""
    if line.rest or line.kind is Kind.ALL:
        return False
    return (Scope.TASK if line.kind is Kind.TASK else Scope.QUEUE, line.name) in lines.full


def _gates(rules: Rules, request: ClaimRequest) -> list[Gate]:
    """The gates of tasks and queues that jobs of a request may have to pass."""
    if not rules.gates:
        return []
    tasks = {str(task) for task in request.tasks}
    return [
        gate
        for (scope, name), gate in rules.gates.items()
        if (scope is Scope.TASK and name in tasks) or (scope is Scope.QUEUE and request.room_in(name) > 0)
    ]


@lru_cache(256)
def names(tasks: frozenset[Name]) -> list[str]:
    """The names of tasks as they are stored, for the filter of a statement."""
    return [str(task) for task in tasks]


def _filters(rules: Rules, request: ClaimRequest, asked: Sequence[Line]) -> tuple[Any, ...]:
    """Return tasks without gates of their own; all tasks; queues that are shut; these and queues with lines; named queues."""
    rooms = request.queues or {}
    shut = rules.paused | {queue for queue, room in rooms.items() if room <= 0}
    plain = next((line.tasks for line in asked if line.rest or line.kind is Kind.QUEUE), frozenset())
    without = next((line.without for line in asked if line.rest), shut)
    named = None if request.queues is None or request.others else [queue for queue in rooms if queue not in shut]
    return names(plain), names(request.tasks), list(shut), list(without), named


def _columns(sources: Sequence[Source], began: Positions, most: Sequence[int]) -> tuple[list[Any], ...]:
    """The sources by index: their places, names, priorities, positions, and how many jobs are read of each."""
    columns: dict[Kind, tuple[list[Any], ...]] = {kind: ([], [], [], [], [], []) for kind in Kind}
    rest: list[bool] = []
    for place, source in enumerate(sources, start=1):
        line = source.line
        for column, value in zip(
            columns[line.kind], (place, line.name, source.priority, *began.of(source), most[place - 1]), strict=True
        ):
            column.append(value)
        if line.kind is Kind.TASK:
            rest.append(line.rest)
    every = columns[Kind.ALL]
    return every[0], *every[2:], *columns[Kind.TASK], rest, *columns[Kind.QUEUE]


def _read(source: Source, row: Row, most: int) -> Read:
    _, ids, times, queues, tasks, cares, keys, reached_at, reached_id, later = row[:10]
    if not ids:
        return Read(source, (), _position(reached_at, reached_id), later, most)
    priority = source.priority
    jobs = [
        Seen(priority, run_at, id_, queue, name(task), care, None if key is None else shown_key(key))
        for run_at, id_, queue, task, care, key in zip(times, ids, queues, tasks, cares, keys, strict=True)
    ]
    return Read(source, jobs, _position(reached_at, reached_id), later, most)


def _suspects(row: Row) -> Read:
    _, ids, times, queues, tasks, priorities, keys, _, _, later = row[:10]
    jobs = [
        Seen(priority, run_at, id_, queue, name(task), Care.SUSPECT, None if key is None else shown_key(key))
        for priority, run_at, id_, queue, task, key in zip(
            *(column or () for column in (priorities, times, ids, queues, tasks, keys)), strict=True
        )
    ]
    return Read(None, jobs, None, later, len(jobs) + 1)


def _position(at: datetime | None, id_: Any) -> Position | None:  # noqa: ANN401 -- a column
    return None if at is None else (at, id_)
