"""Job selection of a claim: the first jobs in claim order that the request may claim.

Claim order is priority, run_at, id. Two scans give the same result. The scan in claim order reads the index of claimable
jobs in this order, whatever lanes they are in, so its cost does not depend on the number of lanes; it is given up after many
jobs that the request may not claim. The scan by lane reads the first job of every lane that the request may claim, and merges
the lanes; its cost does not depend on the jobs of other lanes.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heapreplace
from typing import Final, TypeAlias

from mainspring.stores.sqlite.lanes import Lane
from mainspring.stores.sqlite.parking import Blocked
from mainspring.stores.sqlite.rooms import Rooms
from mainspring.stores.sqlite.rows import Row
from mainspring.stores.sqlite.session import Session
from mainspring.stores.sqlite.statements import statement

KEY: Final = 16
LANE: Final = 19
"""Positions in whole rows (sql/jobs_claimed.sql)."""

_RANK: Final = statement("claim_rank")
_FIRST: Final = statement("claim_first")
_NEXT: Final = statement("claim_next")
_KEYS: Final = statement("claim_keys")
_HEADS: Final = statement("claim_heads")
_FIRST_OF_LANE: Final = statement("claim_first_of_lane")
_NEXT_OF_LANE: Final = statement("claim_next_of_lane")
_WHOLE: Final = statement("jobs_claimed")
_MAKE_DUE: Final = statement("jobs_unreadable_due")

_BEFORE_ALL: Final = -(1 << 62)
_BEFORE_THE_CALENDAR: Final = -(1 << 61)
"""A `run_at` that is due and cannot be decoded."""
_SCAN_CHUNK: Final = 500
"""Jobs that a scan in claim order reads at a time after the first ones."""
_MAX_SKIPPED: Final = 1000
"""Jobs that a scan in claim order reads in vain before it is given up, beside four for each wanted job."""
_MERGE_FIRST: Final = 8
_MERGE_MAX: Final = 1024
"""Jobs of a lane that are read at first, and at most, where several lanes are merged."""
_MAX_BLOCKED: Final = 10_000
"""Blocked jobs at which a claim ends, so that it does not hold the write lock for seconds; the next one goes on behind them."""

Position: TypeAlias = tuple[int, bytes]


class Selection:
    """Chosen jobs, blocked ones that are to be parked, and the earliest time at which a job that was left could be taken."""

    def __init__(self, session: Session, rooms: Rooms, horizon: int) -> None:
        self.rows: list[Row] = []
        """Of chosen jobs: whole rows, or numbers alone."""
        self.blocked: list[Blocked] = []
        self.next_due: int | None = None
        self.is_done = False
        """Nothing more has to be read: there is no room left and another job is due, or the next claim has to go on."""
        self.has_seen_all = False
        """Jobs that are not due yet were read too: it was a scan by lane."""
        self.ranks: list[int] = []
        """Ranks that the scan in claim order has come to."""
        self.horizon = horizon
        self.rooms = rooms
        self.closed: set[int] = set()
        """Lanes of which nothing more can be taken."""
        self._session = session
        self._left: list[tuple[Lane, int]] = []
        self._unlimited: dict[int, bool] = {}

    def offer_rows(self, rows: Sequence[Row]) -> None:
        """Choose from whole rows."""
        if all(map(self._is_unlimited, {row[LANE] for row in rows})):
            taken = rows[: max(0, self.rooms.left)]
            self.rows += taken
            self.rooms.take_unlimited(len(taken))
            if len(taken) < len(rows):
                row = rows[len(taken)]
                self.leave_lane(self._session.lane(row[LANE]), row[3])
            return
        for row in rows:
            if self.is_done:
                return
            if row[LANE] not in self.closed and (lane := self._lane(row[LANE])) is not None:
                self.offer(row, lane, row[KEY], row[3])

    def offer_entries(self, entries: Sequence[tuple[int, int, int, bytes]]) -> None:
        """Choose from index entries: (number, lane, run_at, id)."""
        numbers = {entry[1] for entry in entries} - self.closed
        lanes = {found.id: found for found in map(self._lane, numbers) if found is not None}
        self.closed.update(number for number, lane in lanes.items() if not self.rooms.admits(lane))
        open_ones = [entry for entry in entries if entry[1] not in self.closed]
        keyed = [number for number, lane, *_ in open_ones if self.rooms.has_keyed_gate(lanes[lane])]
        keys: dict[int, str] = dict(self._session.rows(_KEYS, (str(keyed),))) if keyed else {}
        for number, lane, run_at, _ in open_ones:
            if self.is_done:
                return
            if lane not in self.closed:
                self.offer((number,), lanes[lane], keys.get(number), run_at)

    def offer(self, row: Row, lane: Lane, key: str | None, run_at: int) -> None:
        rooms = self.rooms
        if not rooms.admits(lane):
            self.closed.add(lane.id)
        elif key is not None and rooms.of_key(lane, key) <= 0:
            self._block(Blocked(row[0], lane, key))
        elif rooms.of(lane) <= 0:
            self.leave_lane(lane, run_at)
        elif rooms.must_wait(lane):
            rooms.close()  # passed over, it would wait for as long as there is something to claim ahead
            self.leave_lane(lane, run_at)
        else:
            rooms.take(lane, key)
            self.rows.append(row)

    def _block(self, job: Blocked) -> None:
        self.blocked.append(job)
        if len(self.blocked) >= _MAX_BLOCKED:
            self.end()

    def end(self) -> None:
        """Leave the rest to the next claim, which is to be made at once."""
        self.is_done, self.next_due = True, self._session.now

    def leave_lane(self, lane: Lane, run_at: int) -> None:
        """Leave the first job of a lane that is not taken, and with it all others of the lane."""
        self.closed.add(lane.id)
        self._left.append((lane, run_at))
        if self.rooms.left <= 0:
            at = self.note(lane, run_at)
            self.is_done = self.is_done or (at is not None and at <= self.horizon)

    def note_left(self) -> None:
        """Note all jobs that were left. Call it after the choice, which may fill the gates that they wait for."""
        for lane, run_at in self._left:
            self.note(lane, run_at)

    def note(self, lane: Lane, at: int) -> int | None:
        """Take note of a job that is left; returns when it could be taken, as far as time alone decides."""
        if not self.rooms.admits(lane):
            return None
        passes_at = self.rooms.passes_at(lane, at)
        if passes_at is not None:
            self.note_time(max(passes_at, 0))  # the time of a damaged job is before the calendar
        return passes_at

    def note_time(self, at: int) -> None:
        """Take note of a time at which a job could be taken."""
        self.next_due = at if self.next_due is None else min(at, self.next_due)

    def whole_rows(self) -> list[Row]:
        """Read the rows of jobs of which only the number is known; returns all rows, without those of jobs without a payload."""
        if numbers := [row[0] for row in self.rows if len(row) == 1]:
            whole = {row[0]: row for row in self._session.rows(_WHOLE, (str(numbers),))}
            rows = (whole.get(row[0]) if len(row) == 1 else row for row in self.rows)
            self.rows = [row for row in rows if row is not None]
        return self.rows

    def is_readable(self) -> bool:
        """Return whether all chosen jobs have a payload. The index of the scan in claim order does not contain it."""
        chosen = len(self.rows)
        return len(self.whole_rows()) == chosen

    def _lane(self, number: int) -> Lane | None:
        """Return a lane; one that cannot be read is closed."""
        lane = self._session.readable_lane(number)
        if lane is None:
            self.closed.add(number)
        return lane

    def _is_unlimited(self, number: int) -> bool:
        known = self._unlimited.get(number)
        if known is None:
            lane = self._lane(number)
            known = lane is not None and self.rooms.admits(lane) and self.rooms.is_unlimited(lane)
            self._unlimited[number] = known
        return known


def scan_in_order(session: Session, selection: Selection) -> bool:
    """Choose jobs in claim order; returns False if that has to be left to a scan by lane.

    Too many jobs that the request may not claim were in front, or a chosen job has no payload and took the place of
    another.
    """
    return _choose_in_order(session, selection) and selection.is_readable()


def _choose_in_order(session: Session, selection: Selection) -> bool:
    budget = 4 * selection.rooms.left + _MAX_SKIPPED
    rank = _BEFORE_ALL
    while (rank := session.rows(_RANK, (rank,))[0][0]) is not None:
        selection.ranks.append(rank)
        wanted = max(0, selection.rooms.left) + 1
        rows = session.rows(_FIRST, (rank, selection.horizon, wanted))
        selection.offer_rows(rows)
        position = (rows[-1][3], rows[-1][1]) if rows else ()
        while not selection.is_done and len(rows) == wanted:
            budget -= wanted
            if budget <= 0:
                return False
            wanted = _SCAN_CHUNK
            rows = session.rows(_NEXT, (rank, selection.horizon, *position, wanted))
            selection.offer_entries(rows)
            position = rows[-1][2:] if rows else ()
        if selection.is_done:
            return True
    return True


@dataclass(slots=True)
class LaneReader:
    """The claimable jobs of a lane, due or not, read a few at a time."""

    session: Session
    lane: Lane
    position: Position = (_BEFORE_ALL, b"")
    _entries: list[tuple[int, str | None, int, bytes]] = field(default_factory=list)
    _count: int = _MERGE_FIRST
    _has_more: bool = True

    def peek(self) -> tuple[int, str | None, int, bytes] | None:
        if not self._entries and self._has_more:
            entries = self.session.rows(_NEXT_OF_LANE, (self.lane.id, *self.position, self._count))
            self._has_more = len(entries) == self._count
            self._count = min(2 * self._count, _MERGE_MAX)
            if entries:
                self.position = entries[-1][2:]
            self._entries = entries[::-1]
        return self._entries[-1] if self._entries else None

    def pop(self) -> None:
        self._entries.pop()


def scan_by_lane(session: Session, selection: Selection, lanes: Sequence[Lane]) -> None:
    """Choose jobs from these lanes, which are all that the request names."""
    selection.has_seen_all = True
    rooms = selection.rooms
    if rooms.has_limits:
        lanes = [lane for lane in lanes if rooms.admits(lane) and rooms.passes_at(lane, 0) is not None]
    due: defaultdict[int, list[tuple[int, bytes, Lane]]] = defaultdict(list)
    for lane, run_at, id_ in first_of_lanes(session, lanes):
        if run_at > selection.horizon:
            selection.leave_lane(lane, run_at)
        else:
            due[lane.priority].append((run_at, id_, lane))
    for priority in sorted(due, reverse=True):
        if selection.is_done:
            return
        heads = due[priority]
        if len(heads) == 1:
            _scan_lane(session, selection, heads[0][2])
        else:
            _merge(selection, [(run_at, id_, LaneReader(session, lane)) for run_at, id_, lane in heads])


def _scan_lane(session: Session, selection: Selection, lane: Lane) -> None:
    """Choose from the only lane of a priority, the most common case: whole rows with one statement."""
    rows = session.rows(_FIRST_OF_LANE, (lane.id, selection.horizon, max(0, selection.rooms.left) + 1))
    selection.offer_rows(rows)
    reader = LaneReader(session, lane, (rows[-1][3], rows[-1][1])) if rows else LaneReader(session, lane)
    if not selection.is_done and lane.id not in selection.closed and (entry := reader.peek()):
        _merge(selection, [(entry[2], entry[3], reader)])


def _merge(selection: Selection, heads: Iterable[tuple[int, bytes, LaneReader]]) -> None:
    readers: list[LaneReader] = []
    turns: list[tuple[int, bytes, int]] = []
    for run_at, id_, reader in heads:
        turns.append((run_at, id_, len(readers)))
        readers.append(reader)
    heapify(turns)
    while turns and not selection.is_done:
        reader = readers[turns[0][2]]
        entry = None if reader.lane.id in selection.closed else reader.peek()
        if entry is None:
            heappop(turns)
            continue
        number, key, run_at, id_ = entry
        if run_at > selection.horizon:
            selection.leave_lane(reader.lane, run_at)
        elif (run_at, id_) != turns[0][:2]:  # the heap still has the position of the job before
            heapreplace(turns, (run_at, id_, turns[0][2]))
        else:
            reader.pop()
            selection.offer((number,), reader.lane, key, run_at)


def first_of_lanes(session: Session, lanes: Sequence[Lane]) -> list[tuple[Lane, int, bytes]]:
    """Return the lane, `run_at` and id of the first claimable job of each lane, due or not; damaged times are replaced."""
    numbers = str([lane.id for lane in lanes])
    heads = session.rows(_HEADS, (numbers,))
    damaged = {-session.lane(number).priority for number, run_at, _ in heads if not isinstance(run_at, int)}
    if damaged:
        make_due(session, damaged)
        heads = session.rows(_HEADS, (numbers,))
    return [(session.lane(number), run_at, id_) for number, run_at, id_ in heads if isinstance(run_at, int)]


def make_due(session: Session, ranks: Iterable[int]) -> None:
    """Make jobs of some ranks whose `run_at` is not an integer due. SQLite orders texts after all numbers.

    They still cannot be decoded, so the next claim fails them.
    """
    session.run_many(_MAKE_DUE, [(_BEFORE_THE_CALENDAR, rank) for rank in ranks])
