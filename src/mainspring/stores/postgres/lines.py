"""Lines of waiting jobs that a claim reads, and the positions at which it starts in them.

A line is a part of the waiting jobs that one index has in claim order: all of them (`jobs_by_order`), those of one queue
(`jobs_by_queue`) or of one task (`jobs_by_task`). A request that has nothing to choose by but the order reads one line.
Tasks with limits or a breaker that is not closed, and queues with limits or little room, have lines of their own, so that
a job that may not run now is never in front of one that may. How many lines there are depends on what is declared, not on
how many queues, tasks or jobs there are.

A position is where nothing claimable is in front of, by line and priority. It steps over index entries of claimed jobs
that cannot be removed while an old snapshot is held, and over jobs that the request may not have. It is a hint: a
transaction that commits late, or one that is rolled back with a job locked, leaves a job in front of it. A job that is
enqueued into the past pulls positions back (`pull`); the others are found by a read from the start, at least once a second.
"""

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Final, NamedTuple
from uuid import UUID

from mainspring.core.limits import Gate, Scope
from mainspring.core.names import Name
from mainspring.stores.postgres.rules import Rules
from mainspring.stores.records import ClaimRequest

EVERY: Final = 0.9
"""Seconds between two reads of a line from its start."""
SHARE: Final = 20
"""A read from the start is not repeated before this multiple of its duration: it takes a twentieth of the time at most."""
LONG: Final = 0.02
"""Seconds that a read from the start may take without a pause before the next one."""
BRIEFLY: Final = 0.05
"""Seconds for which a claim does not read lines again in which no job could be taken, because of limits for example."""
LATE: Final = timedelta(seconds=0.25)
"""Positions stay this far behind the present: most transactions that enqueue commit within that time."""
MAX_POSITIONS: Final = 5_000
"""Positions that are remembered; beyond, all are dropped."""

ENTRIES: Final = 1000
MORE: Final = 16
MAX_ENTRIES: Final = 500_000
"""Index entries that are read of each source, besides four for each wanted job: at first, times more, at most.

500,000 entries of jobs that a request may not have take about 0.2 s; the next claim goes on where they end.
"""

Position = tuple[datetime, UUID]
START: Final[Position] = (datetime(1, 1, 1, tzinfo=UTC), UUID(int=0))
_BELOW_ALL: Final = -1
_ABOVE_ALL: Final = 101


class Kind(Enum):
    """Which index a line is read from."""

    ALL = "all"
    TASK = "task"
    QUEUE = "queue"


class Line(NamedTuple):
    """Waiting jobs in claim order, with the filter of the request."""

    kind: Kind
    name: str
    """Of the task or the queue."""
    tasks: frozenset[Name]
    """Only jobs of these tasks."""
    named: frozenset[str] | None
    """Only jobs of these queues; None: of any."""
    without: frozenset[str]
    """No jobs of these queues."""
    rest: bool = False
    """Whether it has all jobs that are in no other line."""


class Source(NamedTuple):
    """One priority of a line."""

    line: Line
    priority: int


class Positions(NamedTuple):
    """The positions that one claim starts at. A source without one is read from its start."""

    by_source: Mapping[Source, Position]
    pulls: int

    def of(self, source: Source) -> Position:
        return self.by_source.get(source, START)

    @property
    def skip(self) -> bool:
        """Whether the claim may miss a job."""
        return bool(self.by_source)


def lines_of(rules: Rules, request: ClaimRequest, now: datetime) -> list[Line]:
    """Return the lines that a request reads; none of tasks whose breaker refuses every job."""
    rooms = request.queues or {}
    wanted = request.room + request.ahead
    shut = rules.paused | {queue for queue, room in rooms.items() if room <= 0}
    apart = [task for task in request.tasks if rules.restricts(task)] if rules.gates or rules.unclosed else []
    plain = request.tasks.difference(apart) if apart else request.tasks
    named = None if request.queues is None or request.others else frozenset(rooms) - shut
    lines = [
        Line(Kind.TASK, str(task), frozenset((task,)), named, shut)
        for task in apart
        if not (task in rules.unclosed and rules.refusal(task, now))
    ]
    limited = {name for scope, name in rules.gates if scope is Scope.QUEUE} if rules.gates else set()
    if named is None:
        limited |= {queue for queue, room in rooms.items() if room < wanted}
    else:
        limited = set(named)
    if plain:
        lines += [Line(Kind.QUEUE, queue, plain, None, frozenset()) for queue in sorted(limited - shut)]
    if plain and named is None:
        task = next(iter(plain)) if len(plain) == 1 else None
        without = shut | limited if limited else shut
        lines.append(Line(Kind.TASK if task else Kind.ALL, str(task or ""), plain, None, without, rest=True))
    return lines


def cooling(rules: Rules, request: ClaimRequest, now: datetime) -> list[datetime]:
    """Return when the breakers open that refuse every job of tasks which a request asks for."""
    refusals = [rules.refusal(task, now) for task in rules.unclosed & request.tasks] if rules.unclosed else []
    return [refused.until for refused in refusals if refused is not None and refused.until is not None]


class Lines:
    """What a store remembers between two claims. Used by several loops and threads at once: values are replaced whole."""

    def __init__(self) -> None:
        self.rules = Rules()
        self.now: Callable[[], datetime] = lambda: datetime.now(UTC)
        """The time of the database, as exactly as it is known here."""
        self.hears: Callable[[], bool] = lambda: False
        """Whether commits of other processes are notified here: then an empty claim need not read from the start."""
        self.expects = False
        """Whether there is probably a job: it was announced, or the last claim did not take all."""
        self.last_chances = False
        """Whether jobs that are not claimed ahead were among the last that were claimed."""
        self.suspects = True
        """Whether suspects may be waiting."""
        self.full: frozenset[tuple[Scope, str]] = frozenset()
        """Gates of tasks and queues that let no job pass when they were last read."""
        self.gated = False
        """Whether the last jobs that were claimed had to pass a gate: then the next ones probably have to."""
        self._guard = threading.Lock()
        self._priorities: tuple[int, ...] = ()
        self._gaps_after = 0.0
        self._positions: dict[Source, Position] = {}
        self._pulls = 0
        self._counted: dict[tuple[Scope, str], Gate] = {}
        self._look_after: dict[Source, float] = {}
        self._whole_after = 0.0
        self._others_empty_until = 0.0
        self._others_due: datetime | None = None

    def after_fork(self) -> None:
        """Replace the lock in a forked child: another thread of the parent may have held it."""
        self._guard = threading.Lock()

    # Priorities

    @property
    def priorities(self) -> Sequence[int]:
        """Priorities that jobs were seen with, the highest first."""
        return self._priorities

    def gaps(self, *, whole: bool) -> tuple[list[int], list[int]]:
        """The ranges in which to look for other priorities: above which, and below which.

        None, if that was done a moment ago, nothing was announced since, and the read is not one from the start: there may be
        entries of claimed jobs with priorities that this store has never seen.
        """
        if not whole and time.monotonic() < self._gaps_after:
            return [], []
        known = sorted(self._priorities)
        return [_BELOW_ALL, *known], [*known, _ABOVE_ALL]

    def looked_into_gaps(self, took: float) -> None:
        """Record that there was no other priority, by a statement that took this many seconds."""
        self._gaps_after = time.monotonic() + max(EVERY, took * SHARE)

    def learn(self, priorities: Iterable[int]) -> None:
        self._priorities = tuple(sorted({*self._priorities, *priorities}, reverse=True))

    # Gates

    def uncounted(self, gates: Iterable[Gate]) -> list[Gate]:
        """Return the gates that were not held before as they are now: jobs may run behind them that have no place."""
        return [gate for gate in gates if self._counted.get((gate.scope, gate.name)) != gate]

    def counted(self, gates: Iterable[Gate]) -> None:
        """Record that every job that runs behind these gates has its place: that was committed."""
        self._counted |= {(gate.scope, gate.name): gate for gate in gates}

    # Lines beside that of the rest

    @property
    def others_are_empty(self) -> bool:
        """Whether no job of another line than that of the rest can be taken, as of a moment ago."""
        due = self._others_due
        return time.monotonic() < self._others_empty_until and (due is None or self.now() < due)

    def read_others(self, *, is_empty: bool, due: datetime | None = None) -> None:
        """Record whether there was a job to be taken in other lines than that of the rest, and when there will be one."""
        self._others_due = due
        self._others_empty_until = time.monotonic() + BRIEFLY if is_empty else 0.0

    # Positions

    @property
    def pulls(self) -> int:
        """How often positions were pulled back."""
        return self._pulls

    def sources(self, lines: Sequence[Line]) -> list[Source]:
        """Every priority of every line, the highest first."""
        return [Source(line, priority) for line in lines for priority in self._priorities]

    def positions(self) -> Positions:
        """Return the valid positions: a source that was not read from its start for a while has none."""
        now = time.monotonic()
        after = self._look_after
        return Positions(
            {source: at for source, at in self._positions.items() if after.get(source, 0) > now}, self._pulls
        )

    def from_start(self) -> Positions:
        """Read every source from its start."""
        return Positions({}, self._pulls)

    @property
    def may_read_all(self) -> bool:
        """Whether an empty claim may read everything from the start: not if that took long a moment ago."""
        return time.monotonic() >= self._whole_after

    def advance(self, began: Positions, new: Mapping[Source, Position], now: datetime, took: float) -> None:
        """Set positions after a claim that started at `began`, and whose reads took this many seconds."""
        again = time.monotonic() + max(EVERY, took * SHARE)
        whole = [source for source in new if source not in began.by_source]
        if whole and took > LONG:
            self._whole_after = again
        latest = (now - LATE, START[1])
        behind = {source: min(position, latest) for source, position in new.items()}
        with self._guard:
            if len(self._positions) > MAX_POSITIONS:
                self._positions, self._look_after = {}, {}
            self._look_after = self._look_after | dict.fromkeys(whole, again)
            if self._pulls == began.pulls:  # else they were pulled back meanwhile, which must not be undone
                self._positions = self._positions | behind

    def pull(self, least: datetime | None) -> None:
        """Pull positions back: a job has become claimable that is due since then; None: none has."""
        if least is None:
            return
        back = (least, START[1])
        self._others_empty_until = 0.0
        with self._guard:
            self._pulls += 1
            self._positions = {source: min(position, back) for source, position in self._positions.items()}
        self._gaps_after = 0.0
        self.expects = True

    def forget_positions(self) -> None:
        """Drop all positions: a gate or a queue was opened, and its jobs may be due since long ago."""
        self._others_empty_until = 0.0
        with self._guard:
            self._pulls += 1
            self._positions = {}
