"""What a claim sees before it takes anything: the first due jobs of each lane, and how gates stand."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from mainspring.core.job import JobId
from mainspring.core.limits import Gate, Scope
from mainspring.core.names import Name
from mainspring.errors import NodeGone
from mainspring.stores.passage import Passage, Trial
from mainspring.stores.postgres.lanes import Lane
from mainspring.stores.postgres.lines import Lines, Marks, Position, Rules, asked_of, cooling
from mainspring.stores.postgres.rows import shown_key
from mainspring.stores.postgres.statements import statement
from mainspring.stores.postgres.verb import Ask, Row, Verb
from mainspring.stores.records import ClaimRequest

_PEEK: Final = statement("peek")
_LANES: Final = statement("lanes_all")
_RULES: Final = statement("rules_read")


@dataclass(slots=True)
class Line:
    """The first due jobs of a lane, in order."""

    number: int
    lane: Lane
    ids: Sequence[JobId]
    times: Sequence[datetime]
    keys: Sequence[str | None] | None
    """Of a task whose keys have a gate."""
    later: datetime | None
    """When the first one is due that is not due yet."""
    most: int
    """How many were read at most."""

    @property
    def is_cut(self) -> bool:
        """Whether there may be more that is due."""
        return len(self.ids) >= self.most

    def position(self, place: int) -> Position:
        return self.times[place], self.ids[place]

    def key(self, place: int) -> str | None:
        return None if self.keys is None else self.keys[place]


@dataclass(frozen=True, slots=True)
class Keyed:
    """A task whose keys have a gate."""

    gate: Gate
    freed: bool
    """Places of keys were given up since somebody last looked."""
    look_at: datetime | None


@dataclass(frozen=True, slots=True)
class Sight:
    """All of it, as of one moment."""

    now: datetime
    horizon: datetime
    """Up to when jobs count as due."""
    rules: Rules
    lines: Sequence[Line]
    passages: dict[tuple[Scope, str], Passage]
    """Of tasks and queues."""
    keyed: dict[Name, Keyed]
    took: float
    shut: frozenset[int]
    """The lanes whose gates let nobody pass."""
    trials: dict[Name, Trial]
    """The breakers of these lanes that are not closed."""
    cooling: Sequence[datetime] = ()
    """When breakers open that hold back lanes which are not among these."""

    def whole(self, lane: Lane) -> list[Passage | Trial]:
        """What all jobs of a lane have to pass, as it stands: gates, and a breaker that is not closed."""
        found: list[Passage | Trial] = [self.passages[gate.scope, gate.name] for gate in self.rules.whole(lane)]
        if lane.task in self.trials:
            found.append(self.trials[lane.task])
        return found

    @property
    def gates(self) -> list[Gate]:
        """The gates of all lanes in which something is due and may pass."""
        if not self.rules.gates:
            return []
        lines = (line for line in self.lines if line.ids and line.number not in self.shut)
        return [gate for line in lines for gate in self.gates_of(line)]

    def gates_of(self, line: Line) -> list[Gate]:
        """The gates that jobs of a line have to pass."""
        found = self.rules.whole(line.lane)
        keyed = self.rules.keyed(line.lane.task)
        if keyed is not None and any(key is not None for key in line.keys or ()):
            found.append(keyed)
        return found

    def is_due(self, keyed: Keyed) -> bool:
        """Say whether keys have to be looked at."""
        if keyed.freed or keyed.look_at is None:
            return keyed.freed
        return not self.now < keyed.look_at <= self.now + keyed.gate.longest_wait  # later: the clock was ahead then


def look(at: datetime | None, request: ClaimRequest, lines: Lines, marks: Marks, most: int) -> Verb[Sight]:
    """See what there is, of each lane at most so many; learns what is new on the way."""
    while True:
        rules, asked = lines.rules, asked_of(lines, request)
        wanted = _gates(rules, [lane for _, lane in asked])
        tasks = sorted({lane for lane in request.tasks if rules.keyed(lane)}, key=str) if rules.gates else []
        limits = [most if not lane.suspect else max(1, min(most, request.suspects)) for _, lane in asked]
        positions = [marks.of(number) for number, _ in asked]
        gaps = lines.gaps(whole=not marks.skips)
        rows = yield Ask(
            _PEEK,
            (
                at,
                request.due_by,
                request.node,
                request.term,
                *gaps,
                [number for number, _ in asked],
                [mark_at for mark_at, _ in positions],
                [mark_id for _, mark_id in positions],
                limits,
                [rules.keyed(lane.task) is not None for _, lane in asked],
                [str(gate.scope) for gate in wanted],
                [gate.name for gate in wanted],
                [str(task) for task in tasks],
            ),
        )
        took = max(row[13] for row in rows).total_seconds()  # by the server: here, a busy event loop would count too
        by_place = {row[0]: row for row in rows}
        _, _, spent, _, now, version, fresh, _, _, _, taken, freed, look_at, _ = by_place[0]
        if version is None:
            raise NodeGone("PostgreSQL store", f"node {request.node} is not alive under this term; join under a new id")
        if version != rules.version:
            ((*row,),) = yield Ask(_RULES)
            lines.rules = Rules.of(row)
            lines.forget_marks()
            marks = lines.whole()
            continue
        if fresh:
            lines.learn((yield Ask(_LANES)))
            continue
        if gaps[0]:
            lines.looked_into_gaps(took)
        passages = {
            (gate.scope, gate.name): Passage(gate=gate, key="", taken=count, spent_until=until, now=now)
            for gate, count, until in zip(wanted, taken, spent, strict=True)
        }
        return Sight(
            now=now,
            horizon=now if request.due_by is None else min(now, request.due_by),
            rules=rules,
            lines=[
                _line(number, lane, by_place[place], most)
                for place, ((number, lane), most) in enumerate(zip(asked, limits, strict=True), start=1)
            ],
            passages=passages,
            keyed={
                task: Keyed(rules.gates[Scope.KEY, str(task)], was_freed, when)
                for task, was_freed, when in zip(tasks, freed, look_at, strict=True)
            },
            took=took,
            shut=_shut(rules, asked, passages),
            trials={
                lane.task: Trial(rules.breakers[lane.task], now) for _, lane in asked if lane.task in rules.unclosed
            },
            cooling=cooling(lines, request, now),
        )


def _shut(
    rules: Rules, asked: Sequence[tuple[int, Lane]], passages: Mapping[tuple[Scope, str], Passage]
) -> frozenset[int]:
    """The lanes that have a gate which lets nobody pass."""
    full = {subject for subject, passage in passages.items() if passage.room <= 0}
    if not full:
        return frozenset()
    return frozenset(
        number for number, lane in asked if any((gate.scope, gate.name) in full for gate in rules.whole(lane))
    )


def _gates(rules: Rules, lanes: Sequence[Lane]) -> list[Gate]:
    """The gates of these lanes, each once."""
    if not rules.gates:
        return []
    return list({(gate.scope, gate.name): gate for lane in lanes for gate in rules.whole(lane)}.values())


def _line(number: int, lane: Lane, row: Row, most: int) -> Line:
    _, ids, times, keys, later, *_ = row
    return Line(
        number=number,
        lane=lane,
        ids=ids or (),
        times=times or (),
        keys=None if keys is None else [shown_key(key) for key in keys],
        later=later,
        most=most,
    )
