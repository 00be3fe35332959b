"""What a store remembers between two claims: which lanes there are, where each begins, and the rules.

All of it is a hint. Lanes and rules are checked by every claim, in the same statement that uses them. A mark says that
nothing can be claimed in front of it; it is wrong when a transaction commits late, when one is rolled back that had its
hands on a job, or when somebody enqueues into the past. Whoever does the last says so (`pull`); the others are found by
a look at the whole, which forgets all marks, at least once a second.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple
from uuid import UUID

from mainspring.core.breaker import Attempt, Breaker, Circuit, Phase, Refusal, refusal
from mainspring.core.job import JobId
from mainspring.core.limits import Gate, Rate, Scope
from mainspring.core.names import Name
from mainspring.stores.circuits import Kept
from mainspring.stores.postgres.lanes import Lane
from mainspring.stores.postgres.rows import name, shown_name
from mainspring.stores.postgres.verb import Row
from mainspring.stores.records import ClaimRequest

EVERY: Final = 0.9
"""Seconds between two looks at the whole of a lane."""
SHARE: Final = 20
"""A look at the whole that took long is not repeated before so many times as long: it may cost a twentieth."""
LATE: Final = timedelta(seconds=0.25)
"""A mark stays so far behind the present: most transactions that enqueue commit within that time."""
MOST_LANES: Final = 10_000
"""Beyond so many, those are forgotten in which nothing waits."""

Position = tuple[datetime, UUID]
START: Final[Position] = (datetime(1, 1, 1, tzinfo=UTC), UUID(int=0))
LONG_AGO: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LOWEST: Final = -(1 << 63)
_HIGHEST: Final = (1 << 63) - 1

_logger: Final = logging.getLogger("mainspring.stores.postgres")


@dataclass(frozen=True, slots=True)
class Rules:
    """Gates, pauses and breakers, as of a version. Failures that a breaker counts are not among what is told."""

    version: int = 0
    paused: frozenset[str] = frozenset()
    gates: Mapping[tuple[Scope, str], Gate] = field(default_factory=dict)
    breakers: Mapping[Name, Kept] = field(default_factory=dict)
    unclosed: frozenset[Name] = frozenset()
    """The tasks whose breakers are not closed."""

    @classmethod
    def of(cls, row: Row) -> "Rules":
        version, paused, scopes, names = row[:4]
        limits, of_breakers = row[4:8], row[8:]
        gates = [
            Gate(
                scope=Scope(scope),
                name=named,
                concurrency=concurrency,
                rate=None if count is None else Rate(count=count, period=period, burst=burst),
            )
            for scope, named, concurrency, count, period, burst in zip(scopes, names, *limits, strict=True)
        ]
        breakers = [_breaker(*each) for each in zip(*of_breakers, strict=True)]
        return cls(
            version,
            frozenset(paused),
            {(gate.scope, gate.name): gate for gate in gates},
            {kept.task: kept for kept in breakers},
            frozenset(kept.task for kept in breakers if kept.circuit.phase is not Phase.CLOSED),
        )

    def whole(self, lane: Lane) -> list[Gate]:
        """The gates that all jobs of a lane have to pass."""
        if not self.gates:
            return []
        both = (self.gates.get((Scope.TASK, str(lane.task))), self.gates.get((Scope.QUEUE, lane.queue)))
        return [gate for gate in both if gate is not None]

    def keyed(self, task: Name) -> Gate | None:
        """The gate that the jobs of a task have to pass that have a key."""
        return self.gates.get((Scope.KEY, str(task))) if self.gates else None

    def admit(self, lane: Lane, request: ClaimRequest) -> bool:
        """Say whether a request asks for a lane at all, and no operator has closed its queue."""
        if lane.task not in request.tasks or lane.queue in self.paused or request.room_in(lane.queue) <= 0:
            return False
        return not lane.suspect or request.suspects > 0

    def refusal(self, task: Name, now: datetime) -> Refusal | None:
        """Say why the breaker of a task lets no job pass now."""
        kept = self.breakers[task] if task in self.unclosed else None
        return None if kept is None or kept.rule is None else refusal(kept.rule, kept.circuit, now)


def _breaker(  # noqa: PLR0917 -- the columns of a row
    task: str,
    threshold: int,
    cooldown: timedelta,
    phase: str,
    term: int,
    opened_at: datetime | None,
    probe_job: UUID | None,
    probe_lease: int | None,
    forced: bool,
) -> Kept:
    """Read as much of a breaker as a claim goes by."""
    probe = None if probe_job is None or probe_lease is None else Attempt(JobId(probe_job), probe_lease)
    circuit = Circuit(phase=Phase(phase), term=term, opened_at=opened_at, probe=probe, forced=forced)
    return Kept(task=name(task), rule=Breaker(threshold=threshold, cooldown=cooldown), circuit=circuit, since=LONG_AGO)


class Marks(NamedTuple):
    """The marks as one claim takes them. A lane that has none is looked at from its start."""

    by_lane: Mapping[int, Position]
    pulls: int

    def of(self, lane: int) -> Position:
        return self.by_lane.get(lane, START)

    @property
    def skips(self) -> bool:
        """Whether it may miss something."""
        return bool(self.by_lane)


class Lines:
    """Used by several loops and threads at once: what is replaced is replaced whole."""

    def __init__(self) -> None:
        self.rules = Rules()
        self.now: Callable[[], datetime] = lambda: datetime.now(UTC)
        """What time it is in the database, as well as it can be known here: enough to leave out what is surely shut."""
        self.hears: Callable[[], bool] = lambda: False
        """Whether what others commit is told here: then a claim that finds nothing need not look at the whole."""
        self.expects = False
        """Whether there is probably something to be had: it was announced, or the last claim did not take all."""
        self.last_chances = False
        """Whether jobs that are not claimed ahead were among the last that were claimed."""
        self.gated = False
        """Whether the last jobs that were claimed had to pass a gate: then the next ones probably have to."""
        self._guard = threading.Lock()
        self._lanes: dict[int, Lane] = {}
        self._gaps: tuple[list[int], list[int]] | None = None
        self._gaps_after = 0.0
        self._marks: dict[int, Position] = {}
        self._pulls = 0
        self._counted: dict[tuple[Scope, str], Gate] = {}
        self._look_after: dict[int, float] = {}

    def after_fork(self) -> None:
        """Replace the lock in a forked child: another thread of the parent may have held it."""
        self._guard = threading.Lock()

    # Lanes

    @property
    def lanes(self) -> Mapping[int, Lane]:
        return self._lanes

    def gaps(self, *, whole: bool) -> tuple[list[int], list[int]]:
        """The ranges of numbers in which to look for lanes that are not known: above which, and below which.

        None at all, if that was done a moment ago, nothing was announced since, and the look is not at the whole: there
        may be the remains there of lanes that were emptied before this store could know them.
        """
        if not whole and time.monotonic() < self._gaps_after:
            return [], []
        if self._gaps is None:
            numbers = sorted(self._lanes)
            self._gaps = ([_LOWEST, *numbers], [*numbers, _HIGHEST])
        return self._gaps

    def looked_into_gaps(self, took: float) -> None:
        """Take note that there was no new lane, by a look that took so many seconds."""
        self._gaps_after = time.monotonic() + max(EVERY, took * SHARE)

    def learn(self, rows: Iterable[Row]) -> None:
        """Take note of lanes: (number, queue, task, priority)."""
        found: dict[int, Lane] = {}
        for number, queue, task, priority in rows:
            found[number] = lane_numbered(number, queue, shown_name(task), priority)
            if str(found[number].task) != task and number not in self._lanes:
                _logger.error(
                    "task name %r of a waiting job: it cannot be parsed, and the job is not claimed, nor are those behind it"
                    " in its lane; correct it in the table jobs, then restart the nodes",
                    task,
                )
        if len(self._lanes) > MOST_LANES:
            self._lanes = found
        else:  # a lane that is known stays, whatever the first job in it has for a name now
            self._lanes = found | {number: lane for number, lane in self._lanes.items() if lane.number == number}
        self._gaps = None

    def uncounted(self, gates: Iterable[Gate]) -> list[Gate]:
        """Which of these gates were not held before as they are now: something may run that they do not know of."""
        return [gate for gate in gates if self._counted.get((gate.scope, gate.name)) != gate]

    def counted(self, gates: Iterable[Gate]) -> None:
        """Take note that all that runs behind these gates has its place: that was committed."""
        self._counted |= {(gate.scope, gate.name): gate for gate in gates}

    # Marks

    def marks(self) -> Marks:
        """Return the marks that count now: a lane that has not been looked at as a whole for a while has none."""
        now = time.monotonic()
        after = self._look_after
        return Marks({lane: mark for lane, mark in self._marks.items() if after.get(lane, 0) > now}, self._pulls)

    def whole(self) -> Marks:
        """Forget all marks for one look."""
        return Marks({}, self._pulls)

    def advance(self, marks: Marks, positions: Mapping[int, Position], now: datetime, took: float) -> None:
        """Set the marks of lanes after a claim that began with `marks`, and whose look took so many seconds."""
        again = time.monotonic() + max(EVERY, took * SHARE)
        self._look_after |= {lane: again for lane in positions if lane not in marks.by_lane}
        latest = (now - LATE, START[1])
        new = {lane: min(position, latest) for lane, position in positions.items()}
        with self._guard:
            if self._pulls == marks.pulls:  # else somebody has pulled them back meanwhile: that must not be undone
                self._marks = self._marks | new

    def pull(self, least: datetime | None) -> None:
        """Pull marks back: something has become claimable that is due since then; None: nothing has."""
        if least is None:
            return
        back = (least, START[1])
        with self._guard:
            self._pulls += 1
            self._marks = {lane: min(mark, back) for lane, mark in self._marks.items()}
        self._gaps_after = 0.0
        self.expects = True

    def forget_marks(self) -> None:
        """A gate has been opened, or a queue: what waits there may be due since long ago."""
        with self._guard:
            self._pulls += 1
            self._marks = {}


def lane_numbered(number: int, queue: str, task: Name, priority: int) -> Lane:
    """Return which of three lanes has a number: suspects, other last chances, or the rest."""
    lanes = (Lane(queue, task, priority), Lane(queue, task, priority, last=True))
    return next((lane for lane in lanes if lane.number == number), Lane(queue, task, priority, suspect=True))


def asked_of(lines: Lines, request: ClaimRequest) -> Sequence[tuple[int, Lane]]:
    """The lanes that a request asks for, but for those behind a breaker that lets nobody pass."""
    rules = lines.rules
    asked = [(number, lane) for number, lane in lines.lanes.items() if rules.admit(lane, request)]
    if not rules.unclosed:
        return asked
    now = lines.now()
    return [(number, lane) for number, lane in asked if rules.refusal(lane.task, now) is None]


def cooling(lines: Lines, request: ClaimRequest, now: datetime) -> list[datetime]:
    """When the breakers open that hold back lanes which a request asks for."""
    rules = lines.rules
    if not rules.unclosed:
        return []
    tasks = {lane.task for lane in lines.lanes.values() if lane.task in rules.unclosed and rules.admit(lane, request)}
    refusals = [refused for task in tasks if (refused := rules.refusal(task, now)) is not None]
    return [refused.until for refused in refusals if refused.until is not None]
