"""Lines of waiting jobs that a claim reads, and the positions at which it starts in them.

A line is a part of the waiting jobs that one index has in claim order: all of them (`jobs_by_order`), those of one queue
(`jobs_by_queue`) or of one task (`jobs_by_task`), or all suspects (`jobs_suspect`). A request without restrictions reads one
line, and that of the suspects. Tasks with limits or a breaker that is not closed, and queues with limits or a room of their
own, have lines of their own, so that a job that may not run now is never in front of one that may. How many lines there are
depends on what is declared, not on how many queues, tasks or jobs there are.

A position is the place in a line (due time and id) in front of which there is no claimable job; one is kept for each line
and priority. It steps over index entries of claimed jobs that cannot be removed while an old snapshot is held, and over jobs
that the request may not have. It is a hint: a transaction that commits late, or one that is rolled back with a job locked,
leaves a job in front of it. A job that is enqueued into the past pulls positions back (`pull`); the others are found by a
read from the start, at least once a second, or seldomer where such a read takes long.
"""

import math
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Final, NamedTuple
from uuid import UUID

from mainspring.core.limits import Gate, Scope
from mainspring.core.names import Name
from mainspring.stores.postgres.rules import Rules
from mainspring.stores.records import ClaimRequest

EVERY_S: Final = 0.9
"""Seconds between two reads of a line from its start."""
SHARE: Final = 20
"""A read from the start is not repeated before this multiple of its duration: it takes a twentieth of the time."""
SELDOM_S: Final = 10.0
"""Seconds between two reads from the start, however long they take."""
LONG_S: Final = 0.02
"""Seconds that a read from the start may take without a pause before the next one."""
EMPTY_S: Final = 0.05
"""Seconds for which a claim does not read lines again in which no job could be taken, because of limits for example."""
LATE: Final = timedelta(seconds=0.25)
"""Positions stay this far behind the present: most transactions that enqueue commit within that time."""
MAX_POSITIONS: Final = 20_000
"""Positions that are remembered; beyond, all are dropped."""

FIRST_ENTRIES: Final = 1000
"""Index entries that are read of each source at first, besides four for each wanted job."""
MORE: Final = 16
"""How many times as many are read next, of sources in which these were of jobs that the request may not have."""
MAX_ENTRIES: Final = 200_000
"""Index entries that one statement reads of such sources together: about 0.1 s. The next claim continues there."""

Position = tuple[datetime, UUID]
START: Final[Position] = (datetime(1, 1, 1, tzinfo=UTC), UUID(int=0))
_BELOW_ALL: Final = -1
_ABOVE_ALL: Final = 101


class Kind(Enum):
    """Which index a line is read from."""

    ALL = "all"
    TASK = "task"
    QUEUE = "queue"
    SUSPECT = "suspect"


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


class Reach(NamedTuple):
    """How far the reads of a source have come."""

    position: Position
    valid_until: float
    """When it is to be read from its start again; infinite while a read from the start has not come to the end."""
    took: float
    """Seconds that the read from the start took, in one or several claims."""


class Came(NamedTuple):
    """What one claim has come to in a source."""

    position: Position
    took: float = 0.0
    is_end: bool = True
    """False: the bound of index entries was reached, and there may be more."""


class Positions(NamedTuple):
    """The positions that one claim starts at. A source without one is read from its start."""

    by_source: Mapping[Source, Position]
    pulls: int
    stored: Mapping[Source, Reach]
    """All that was known when the claim began."""
    is_whole: bool = False
    """The claim is to find whatever there is."""

    def of(self, source: Source) -> Position:
        return self.by_source.get(source, START)

    @property
    def skip(self) -> bool:
        """Whether the claim may miss a job, and could be made again so that it does not."""
        return bool(self.by_source) and not self.is_whole


class Asked(NamedTuple):
    """The lines that a request reads, and the filters that they share."""

    lines: Sequence[Line]
    plain: frozenset[Name]
    """Tasks without a line of their own."""
    named: frozenset[str] | None
    """The only queues of a request; None: all."""


def lines_of(
    rules: Rules, request: ClaimRequest, now: datetime, full: AbstractSet[tuple[Scope, str]] = frozenset()
) -> Asked:
    """Return the lines that a request reads; none of tasks whose breaker refuses every job.

    Lines of tasks, and that of suspects, are without the jobs behind gates of others that are `full`.
    """
    rooms = request.queues or {}
    shut = rules.paused | {queue for queue, room in rooms.items() if room <= 0}
    apart = [task for task in request.tasks if rules.restricts(task)] if rules.gates or rules.unclosed else []
    plain = request.tasks.difference(apart) if apart else request.tasks
    apart = [task for task in apart if not (task in rules.unclosed and rules.refusal(task, now))]
    named = None if request.queues is None or request.others else frozenset(rooms) - shut
    without = shut | {name for scope, name in full if scope is Scope.QUEUE} if full else shut
    lines = [Line(Kind.TASK, str(task), frozenset((task,)), named, without) for task in apart]
    able = plain.union(task for task in apart if (Scope.TASK, str(task)) not in full) if apart else plain
    if able and request.suspects > 0:
        lines.append(Line(Kind.SUSPECT, "", able, named, without))
    limited = {name for scope, name in rules.gates if scope is Scope.QUEUE} if rules.gates else set()
    limited = limited | rooms.keys() if named is None else set(named)
    if plain:
        lines += [Line(Kind.QUEUE, queue, plain, None, frozenset()) for queue in sorted(limited - shut)]
    if plain and named is None:
        task = next(iter(plain)) if len(plain) == 1 else None
        others = rules.paused | limited if limited else rules.paused
        lines.append(Line(Kind.TASK if task else Kind.ALL, str(task or ""), plain, None, others, rest=True))
    return Asked(lines, plain, named)


def cooling(rules: Rules, request: ClaimRequest, now: datetime) -> list[datetime]:
    """Return when the breakers open that refuse every job of tasks which a request asks for."""
    refusals = [rules.refusal(task, now) for task in rules.unclosed & request.tasks] if rules.unclosed else []
    return [refused.until for refused in refusals if refused is not None and refused.until is not None]


class Lines:
    """Positions, rules and expectations that a store remembers between two claims.

    Used by several loops and threads at once: every value is replaced whole, and what a claim writes is merged with what
    others have written since it began.
    """

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
        self._reaches: dict[Source, Reach] = {}
        self._pulls = 0
        self._counted: dict[tuple[Scope, str], Gate] = {}
        self._empty: Sequence[Line] = ()
        self._empty_until = 0.0
        self._empty_due: datetime | None = None

    def after_fork(self) -> None:
        """Replace the lock in a forked child: another thread of the parent may have held it."""
        self._guard = threading.Lock()

    # Priorities

    def gaps(self, *, whole: bool) -> tuple[list[int], list[int]]:
        """Return the ranges in which to look for other priorities: above which, and below which.

        None, if that was done a moment ago, nothing was announced since, and the read is not one from the start: there may be
        entries of claimed jobs with priorities that this store has never seen.
        """
        if not whole and time.monotonic() < self._gaps_after:
            return [], []
        known = sorted(self._priorities)
        return [_BELOW_ALL, *known], [*known, _ABOVE_ALL]

    def looked_into_gaps(self, began: Positions, took: float) -> None:
        """Record that there was no other priority, by a statement that took this many seconds."""
        if self._pulls == began.pulls:
            self._gaps_after = time.monotonic() + _pause(took)

    def learn(self, priorities: Iterable[int]) -> None:
        self._priorities = tuple(sorted({*self._priorities, *priorities}, reverse=True))

    # Rules

    def replace_rules(self, rules: Rules) -> None:
        """Go by other rules: gates may have been removed and set again, so jobs behind them are to be counted again."""
        self.rules, self._counted = rules, {}
        self.forget_positions()

    def uncounted(self, gates: Iterable[Gate]) -> list[Gate]:
        """Return the gates that were not held before as they are now: jobs may run behind them that have no place."""
        return [gate for gate in gates if self._counted.get((gate.scope, gate.name)) != gate]

    def counted(self, gates: Iterable[Gate]) -> None:
        """Record that every job that runs behind these gates has its place: that was committed."""
        self._counted = self._counted | {(gate.scope, gate.name): gate for gate in gates}

    # What the next claim may expect

    def expect(self, began: Positions, *, expects: bool) -> None:
        """Record whether a claim left jobs; one that was announced meanwhile counts too."""
        self.expects = expects or self._pulls != began.pulls

    def are_empty(self, lines: Sequence[Line]) -> bool:
        """Return whether no job of these lines can be taken, as of a moment ago."""
        due = self._empty_due
        is_recent = time.monotonic() < self._empty_until and (due is None or self.now() < due)
        return is_recent and lines == self._empty

    def found_empty(self, began: Positions, lines: Sequence[Line], due: datetime | None) -> None:
        """Record that no job of these lines could be taken, and when there will be one."""
        if self._pulls == began.pulls:
            self._empty, self._empty_due, self._empty_until = lines, due, time.monotonic() + EMPTY_S

    def found_job(self) -> None:
        """Record that jobs of any line may be taken."""
        self._empty_until = 0.0

    # Positions

    def sources(self, lines: Sequence[Line]) -> list[Source]:
        """Return every priority of every line, the highest first."""
        return [Source(line, priority) for line in lines for priority in self._priorities]

    def positions(self) -> Positions:
        """Return the valid positions: a source that was not read from its start for a while has none."""
        pulls, stored, now = self._pulls, self._reaches, time.monotonic()  # the count first: a pull after it is seen
        return Positions(
            {source: one.position for source, one in stored.items() if one.valid_until > now}, pulls, stored
        )

    def from_start(self) -> Positions:
        """Read every source from its start, but for those in which that took long a moment ago."""
        began, now = self.positions(), time.monotonic()
        kept = {
            source: one.position for source, one in began.stored.items() if one.valid_until > now and one.took > LONG_S
        }
        return began._replace(by_source=kept, is_whole=True)

    def advance(self, began: Positions, came: Mapping[Source, Came], now: datetime) -> None:
        """Set positions after a claim that started at `began`."""
        latest, clock = (now - LATE, START[1]), time.monotonic()
        reaches = {source: _reach(began, source, one, latest, clock) for source, one in came.items()}
        with self._guard:
            if self._pulls != began.pulls:  # they were pulled back meanwhile, which must not be undone
                return
            for source, reach in reaches.items():
                other = self._reaches.get(source)
                if other is not None and other is not began.stored.get(source):  # another claim has read more, or less
                    reaches[source] = reach._replace(position=min(reach.position, other.position))
            if len(self._reaches) > MAX_POSITIONS:
                self._reaches, self._priorities = {}, ()
            self._reaches = self._reaches | reaches

    def pull(self, least: datetime | None) -> None:
        """Pull positions back: a job has become claimable that is due since then; None: none has."""
        if least is None:
            return
        back = (least, START[1])
        with self._guard:
            self._pulls += 1
            self._reaches = {
                source: one if one.position <= back else one._replace(position=back)
                for source, one in self._reaches.items()
            }
        self._empty_until = self._gaps_after = 0.0
        self.expects = True

    def forget_positions(self) -> None:
        """Drop all positions: a gate or a queue was opened, and its jobs may be due since long ago."""
        with self._guard:
            self._pulls += 1
            self._reaches = {}
        self._empty_until = 0.0


def _reach(began: Positions, source: Source, came: Came, latest: Position, clock: float) -> Reach:
    """Return how far the reads of a source have come with a claim."""
    before = began.stored.get(source) if source in began.by_source else None
    took = came.took + (before.took if before is not None and before.valid_until == math.inf else 0.0)
    if not came.is_end and (before is None or before.valid_until == math.inf):
        valid_until = math.inf  # else it would begin anew before it has come to the end
    elif before is None or before.valid_until == math.inf:
        valid_until = clock + _pause(took)
    else:
        took, valid_until = before.took, before.valid_until
    return Reach(min(came.position, latest), valid_until, took)


def _pause(took: float) -> float:
    """Return the seconds until a read from the start is repeated that took this long."""
    return min(max(EVERY_S, took * SHARE), SELDOM_S)
