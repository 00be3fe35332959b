"""Snapshot that a claim reads first: the first due jobs of each line and priority, and the state of gates."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from mainspring.core.job import JobId
from mainspring.core.limits import Gate, Scope
from mainspring.core.names import Name
from mainspring.errors import NodeGone
from mainspring.stores.passage import Passage, Trial
from mainspring.stores.postgres.claim_cache import ClaimCache, Gap
from mainspring.stores.postgres.lines import Line, LineIndex, RequestLines, Source, Subject, cooling, lines_of
from mainspring.stores.postgres.positions import Position, Positions
from mainspring.stores.postgres.rows import name, shown_key
from mainspring.stores.postgres.rules import Rules
from mainspring.stores.postgres.statements import statement
from mainspring.stores.postgres.verb import Ask, Row, Verb
from mainspring.stores.records import ClaimRequest

_PEEK: Final = statement("peek")
_RULES: Final = statement("rules_read")
_SPARE_SUSPECTS: Final = 3
"""Suspects that are read besides those that may be claimed, in case these are blocked."""
FIRST_ENTRIES_PER_SOURCE: Final = 1000
"""Index entries that are read of each source at first, besides four for each wanted job."""
ENTRIES_FACTOR: Final = 16
"""Factor by which the number of entries grows when a source is read again, because its first entries were jobs that the
request may not claim."""
MAX_ENTRIES: Final = 200_000
"""Index entries of all sources that are read again, for one statement (about 0.1 s); a claim that has read as many makes
no further statement. The next claim continues there."""
_TOOK: Final = 18
"""The column with the time from the beginning of the statement to a row."""


class CandidateJob(NamedTuple):
    """A due job, with the columns that decide whether the request may claim it."""

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
class SourceRead:
    """The first due jobs of a source, in order."""

    source: Source
    jobs: Sequence[CandidateJob]
    reached: Position | None
    """Where the read ended, if there may be more jobs behind that the request may claim."""
    later: datetime | None
    """When the first job is due that is not due yet, or a little earlier."""
    most: int
    """How many were read at most."""
    took: float = 0.0
    """Seconds."""
    is_at_limit: bool = False
    """Whether as many index entries were read as one claim may."""

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
    """Jobs, gates and breakers, as of one snapshot of the database."""

    now: datetime
    horizon: datetime
    """Up to when jobs count as due."""
    rules: Rules
    request_lines: RequestLines
    reads: Sequence[SourceRead]
    passages: dict[Subject, Passage]
    """Of tasks and queues."""
    full: frozenset[Subject]
    """Those of them that let no job pass."""
    keyed: dict[Name, Keyed]
    began: Positions
    """Where the reads began."""
    trials: dict[Name, Trial]
    """The breakers of the request's tasks that are not closed."""
    cooling: Sequence[datetime] = ()
    """When breakers that refuse every job of a task will let one pass."""
    left_out: frozenset[Subject] = frozenset()
    """Full gates whose jobs were not read in the lines of others."""

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

    def gates_of(self, job: CandidateJob) -> list[Gate]:
        """The gates that a job has to pass."""
        found = self.rules.gates_of(job.task, job.queue)
        keyed = None if job.key is None else self.rules.keyed(job.task)
        return found if keyed is None else [*found, keyed]

    def is_due(self, keyed: Keyed) -> bool:
        """Return whether keys have to be looked at."""
        if keyed.freed or keyed.look_at is None:
            return keyed.freed
        return not self.now < keyed.look_at <= self.now + keyed.gate.longest_wait  # later: the clock was ahead then


NOTHING_TOOK: Final[Mapping[Source, float]] = MappingProxyType({})


class ReadLimits(NamedTuple):
    """How much of each source is read."""

    most: int
    """Jobs that the request may claim."""
    of_rest: int
    """The same, of the line of the rest."""
    suspects: int
    """Jobs of the line of suspects."""
    first_entries: int
    """Index entries of a source that is read for the first time."""
    reread: frozenset[Source] = frozenset()
    """Sources that are read again, because their first entries were jobs that the request may not claim."""
    reread_entries: int = 0
    """Index entries of each of these sources."""
    is_at_limit: bool = False
    """Whether one claim may not read more entries."""
    spent: int = 0
    """Index entries of all sources that were read again, in all statements of the claim."""
    took: Mapping[Source, float] = NOTHING_TOOK
    """Seconds that the statements before took for each source."""
    full: frozenset[Subject] = frozenset()
    """Gates whose jobs are left out (`lines_of`), because they were in front of others."""

    def entries_of(self, source: Source) -> int:
        return self.reread_entries if source in self.reread else self.first_entries


def first_read_limits(cache: ClaimCache, request: ClaimRequest) -> ReadLimits:
    """Return how much to read at first: no more than the choice needs, so of many sources only a little of each."""
    wanted = max(1, request.room + request.ahead)
    count = len(cache.sources(lines_of(cache.rules, request, cache.now()).lines))
    most = wanted if count <= 1 else min(wanted, 8 + 2 * wanted // count)
    return ReadLimits(
        most,
        most,
        suspects=min(wanted, request.suspects + _SPARE_SUSPECTS),
        first_entries=FIRST_ENTRIES_PER_SOURCE + 4 * wanted,
    )


def look(
    at: datetime | None, request: ClaimRequest, cache: ClaimCache, began: Positions, read_limits: ReadLimits
) -> Verb[Sight]:
    """Read the first due jobs of each line and priority; read rules and priorities that are new first."""
    while True:
        rules = cache.rules
        now_here = cache.now()
        request_lines = lines_of(rules, request, now_here, read_limits.full)
        sources = cache.sources(request_lines.lines)
        wanted = _gates(rules, request)
        tasks = sorted({task for task in request.tasks if rules.keyed(task)}, key=str) if rules.gates else []
        gaps = cache.gaps(request_lines.lines, whole=not began.skip)
        most = [_most(cache, source.line, read_limits) for source in sources]
        rows = yield Ask(
            _PEEK,
            (
                at,
                request.due_by,
                request.node,
                request.term,
                *_gap_columns(request_lines, gaps),
                *_filters(request_lines),
                *_source_columns(request_lines, sources, began, most, read_limits),
                [str(gate.scope) for gate in wanted],
                [gate.name for gate in wanted],
                [str(task) for task in tasks],
            ),
        )
        took = _durations(rows)
        by_place = {row[0]: row for row in rows}
        now, version, fresh, gaps_took, taken, freed, look_at, spent = by_place[0][10:_TOOK]
        if version is None:
            raise NodeGone("PostgreSQL store", f"node {request.node} is not alive under this term; join under a new id")
        if version != rules.version:
            ((*row,),) = yield Ask(_RULES)
            cache.replace_rules(Rules.of(row))
            began = cache.positions.from_start()
            continue
        if fresh:
            cache.learn((request_lines.lines[place], priority) for place, priority in fresh)
            continue
        if gaps:
            cache.looked_into_gaps(began, gaps, gaps_took.total_seconds())
        reads = [
            _read(
                source,
                by_place[place],
                most[place - 1],
                read_limits.took.get(source, 0.0) + took[place],
                is_at_limit=read_limits.is_at_limit and source in read_limits.reread,
            )
            for place, source in enumerate(sources, start=1)
        ]
        suspects = [read for read in reads if read.source.line.kind is LineIndex.SUSPECT]
        if suspects or not sources:
            cache.suspects = any(read.jobs or read.later or read.reached for read in suspects)
        passages = {
            (gate.scope, gate.name): Passage(gate=gate, key="", taken=count, spent_until=until, now=now)
            for gate, count, until in zip(wanted, taken, spent, strict=True)
        }
        cache.full = frozenset(subject for subject, passage in passages.items() if passage.room <= 0)
        return Sight(
            now=now,
            horizon=now if request.due_by is None else min(now, request.due_by),
            rules=rules,
            request_lines=request_lines,
            reads=reads,
            passages=passages,
            full=cache.full,
            keyed={
                task: Keyed(rules.gates[Scope.KEY, str(task)], was_freed, when)
                for task, was_freed, when in zip(tasks, freed, look_at, strict=True)
            },
            began=began,
            trials={task: Trial(rules.breakers[task], now) for task in rules.unclosed & request.tasks},
            cooling=cooling(rules, request, now_here),
            left_out=read_limits.full,
        )


def _most(cache: ClaimCache, line: Line, read_limits: ReadLimits) -> int:
    """Return how many jobs of a line are read at most; one is enough if its gate let no job pass when it was last read."""
    if line.kind is LineIndex.SUSPECT:
        return read_limits.suspects
    if line.rest:
        return read_limits.of_rest
    return 1 if line.gate in cache.full else read_limits.most


def _gates(rules: Rules, request: ClaimRequest) -> list[Gate]:
    """The gates of tasks and queues that jobs of a request have to pass."""
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


def _gap_columns(request_lines: RequestLines, gaps: Sequence[Gap]) -> tuple[list[Any], ...]:
    """Return gaps by column: kind, name and place of the line, and the priorities between which to look."""
    places = {line: place for place, line in enumerate(request_lines.lines)}
    return (
        [gap.line.kind.value for gap in gaps],
        [gap.line.name for gap in gaps],
        [places[gap.line] for gap in gaps],
        [gap.above for gap in gaps],
        [gap.below for gap in gaps],
    )


def _filters(request_lines: RequestLines) -> tuple[Any, ...]:
    """Return tasks without lines of their own, those of suspects, queues that lines leave out, and the only queues."""
    full = {name for scope, name in request_lines.left_out_of_suspects if scope is Scope.TASK}
    suspects = (
        [task for task in names(request_lines.suspects) if task not in full] if full else names(request_lines.suspects)
    )
    left_out = [queue for _, queue in request_lines.left_out_queues]
    named = None if request_lines.named is None else list(request_lines.named)
    not_in_rest = next((line.not_in_rest for line in request_lines.lines if line.rest), frozenset())
    return names(request_lines.plain), suspects, left_out, list(not_in_rest), named


def _source_columns(
    request_lines: RequestLines,
    sources: Sequence[Source],
    began: Positions,
    most: Sequence[int],
    read_limits: ReadLimits,
) -> tuple[list[Any], ...]:
    """Return sources by column: kind, name, whether it is of the rest, priority, position, and how much of each is read."""
    positions = [began.of(source, request_lines.left_out_of(source.line)) for source in sources]
    return (
        [source.line.kind.value for source in sources],
        [source.line.name for source in sources],
        [source.line.rest for source in sources],
        [source.priority for source in sources],
        [position_at for position_at, _ in positions],
        [position_id for _, position_id in positions],
        list(most),
        [read_limits.entries_of(source) for source in sources],
    )


def _durations(rows: Sequence[Row]) -> dict[int, float]:
    """Return the seconds that each row took, by the server: here, a busy event loop would count too."""
    durations, before = {}, 0.0
    for row in rows:
        until = row[_TOOK].total_seconds()
        durations[row[0]] = max(0.0, until - before)  # the clock of the server may be set back meanwhile
        before = until
    return durations


def _read(source: Source, row: Row, most: int, took: float, *, is_at_limit: bool) -> SourceRead:
    _, ids, times, queues, tasks, cares, keys, reached_at, reached_id, later = row[:10]
    jobs = [
        CandidateJob(source.priority, run_at, id_, queue, name(task), care, None if key is None else shown_key(key))
        for run_at, id_, queue, task, care, key in zip(
            *(column or () for column in (times, ids, queues, tasks, cares, keys)), strict=True
        )
    ]
    reached = None if reached_at is None else (reached_at, reached_id)
    return SourceRead(source, jobs, reached, later, most, took, is_at_limit)
