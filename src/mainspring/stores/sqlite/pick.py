"""Which due jobs a claim takes, of lanes of one priority: by run_at, then id, over all their strands.

The first n jobs of a lane are among its first n strands, for each of them has a job that may be taken. Only where one
key has jobs in several lanes, or the clock was set back, can a strand turn out to give nothing after all; then what lies
beyond the strands that were read is not reached for, and the claim looks again.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heapreplace
from typing import Final, NamedTuple

from mainspring.stores.sqlite.lanes import Care, Lane
from mainspring.stores.sqlite.rooms import Rooms
from mainspring.stores.sqlite.rows import Row
from mainspring.stores.sqlite.session import Session
from mainspring.stores.sqlite.statements import statement

_STRANDS: Final = statement("strands_due")
_JOBS: Final = statement("jobs_due")
_WHOLE_JOBS: Final = statement("jobs_due_whole")
_FEW: Final = 8
"""How many jobs of a line are read at first, where several lines compete."""


class Pick(NamedTuple):
    """A job that is taken."""

    number: int
    job: bytes
    lane: Lane
    key: str | None
    strand: int
    row: Row | None = None
    """All that is read of it, if it was read at once."""


@dataclass(slots=True)
class Line:
    """The due jobs of a strand, read a few at a time."""

    session: Session
    horizon: int
    lane: Lane
    strand: int
    key: str | None
    head: tuple[int, bytes]
    _after: tuple[int, bytes] = (-(1 << 62), b"")
    _ahead: list[tuple[int, int, bytes]] = field(default_factory=list)
    _few: int = _FEW

    def read(self, count: int) -> list[tuple[int, int, bytes]]:
        """Read the next jobs: (number, run_at, id)."""
        jobs = self.session.rows(_JOBS, (self.strand, self.horizon, *self._after, count))
        if jobs:
            self._after = jobs[-1][1:]
        return jobs

    def first(self) -> tuple[int, int, bytes] | None:
        """Look at the next job without taking it."""
        if not self._ahead:
            self._ahead = self.read(self._few)[::-1]
            self._few *= 2
        return self._ahead[-1] if self._ahead else None

    def take(self) -> Pick:
        number, _run_at, job = self._ahead.pop()
        return Pick(number, job, self.lane, self.key, self.strand)


class Picked(NamedTuple):
    """What one look came to, and whether another one may find more."""

    jobs: list[Pick]
    look_again: bool


def pick(session: Session, lanes: Sequence[Lane], rooms: Rooms, horizon: int) -> Picked:
    """Take as many due jobs of these lanes as there is room for."""
    lines: list[Line] = []
    unread: list[tuple[int, bytes, Lane]] = []  # where the first strand begins that was not read
    for lane in lanes:
        room = rooms.of(lane)
        if room <= 0:
            continue
        strands = session.rows(_STRANDS, (lane.id, horizon, room + 1))
        if len(strands) > room:
            *_, head_at, head_id = strands.pop()
            unread.append((head_at, head_id, lane))
        lines += [Line(session, horizon, lane, strand, key, (at, job)) for strand, key, at, job in strands]
    if len(lines) == 1 and not unread and (lines[0].lane.care is Care.NONE or not rooms.is_ahead):
        return Picked(_alone(lines[0], rooms), look_again=False)
    return _merge(lines, unread, rooms)


def _alone(line: Line, rooms: Rooms) -> list[Pick]:
    """Nobody competes, as is most common: one read brings all that will be given out, 0.5 µs less for each than two."""
    room = min(rooms.of(line.lane), rooms.of_key(line.lane, line.key))
    rows = line.session.rows(_WHOLE_JOBS, (line.strand, line.horizon, room))
    rooms.take(line.lane, line.key, len(rows))
    return [Pick(row[0], row[1], line.lane, line.key, line.strand, row) for row in rows]


def _merge(lines: Sequence[Line], unread: Sequence[tuple[int, bytes, Lane]], rooms: Rooms) -> Picked:
    picked: list[Pick] = []
    turns = [(*line.head, place) for place, line in enumerate(lines)]
    heapify(turns)
    while turns and rooms.left > 0:
        run_at, job, place = turns[0]
        if any((head_at, head_id) < (run_at, job) and rooms.of(lane) > 0 for head_at, head_id, lane in unread):
            break
        line = lines[place]
        first = None if rooms.of(line.lane) <= 0 or rooms.of_key(line.lane, line.key) <= 0 else line.first()
        if first is None:
            heappop(turns)
        elif first[1:] != (run_at, job):  # the turn was that of the one before
            heapreplace(turns, (*first[1:], place))
        elif rooms.must_wait(line.lane):
            rooms.close()  # passed over, it would wait for as long as there is something to claim ahead
        else:
            rooms.take(line.lane, line.key)
            picked.append(line.take())
    return Picked(picked, look_again=any(rooms.of(lane) > 0 for *_, lane in unread))
