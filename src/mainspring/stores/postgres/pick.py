"""Which of the jobs that a claim sees it takes: higher priorities first, then by run_at and id. Pure."""

from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime
from heapq import heapify, heappop, heapreplace

from mainspring.core.job import JobId
from mainspring.core.names import Name
from mainspring.stores.passage import Passage, Trial
from mainspring.stores.postgres.lines import START, Position
from mainspring.stores.postgres.sight import Line, Sight
from mainspring.stores.records import ClaimRequest


class Room:
    """What the node can still take on."""

    def __init__(self, request: ClaimRequest) -> None:
        self._at_once = request.room
        self.left = request.room + request.ahead
        self._suspects = request.suspects
        self._request = request
        self._taken: Counter[str] = Counter()

    def of(self, line: Line) -> int:
        """How many more of a line may be taken, as far as the node goes."""
        lane = line.lane
        room = min(self._suspects, self.left) if lane.suspect else self.left
        return min(room, self._request.room_in(lane.queue) - self._taken[lane.queue])

    def at_once(self, line: Line) -> int:
        """How many more of a line may be taken before a place has to be freed."""
        return min(self.of(line), self._at_once) if line.lane.is_last_chance else self.of(line)

    def take(self, line: Line, jobs: int = 1) -> None:
        self._at_once -= jobs
        self.left -= jobs
        if line.lane.suspect:
            self._suspects -= jobs
        self._taken[line.lane.queue] += jobs


@dataclass(slots=True)
class Picked:
    """What a claim takes of what it sees."""

    jobs: list[tuple[JobId, Line]] = field(default_factory=list)
    keys: dict[JobId, str] = field(default_factory=dict)
    """Of those that pass the gate of their key."""
    blocked: dict[JobId, tuple[Name, str]] = field(default_factory=dict)
    """Those whose key lets nobody pass now."""
    left: dict[int, Position] = field(default_factory=dict)
    """By lane: the first that was seen and not taken."""
    last: dict[int, Position] = field(default_factory=dict)
    """By lane: the last that was taken."""
    cut_short: bool = False
    """It had to stop before a job that it did not see, though there was room: look for more of each lane."""

    @property
    def marks(self) -> dict[int, Position]:
        """Where each lane begins after this."""
        return self.last | self.left


def pick(sight: Sight, request: ClaimRequest, keys: dict[tuple[Name, str], Passage]) -> Picked:
    """Choose. `keys` are the gates of the keys that are in sight; one that is not there lets everyone pass."""
    room = Room(request)
    picked = Picked()
    for line in sight.lines:
        if not line.ids:
            picked.left[line.number] = (sight.horizon, START[1])
    lines = [line for line in sight.lines if line.ids]
    if len(lines) == 1 and lines[0].keys is None:
        _take_from_one(lines[0], room, sight.whole(lines[0].lane), picked)
    else:
        _merge(lines, room, sight, keys, picked)
    return picked


def _take_from_one(line: Line, room: Room, gates: list[Passage | Trial], picked: Picked) -> None:
    """Nobody competes, as is most common."""
    count = max(0, min(room.at_once(line), len(line.ids), *(passage.room for passage in gates)))
    picked.jobs = [(id_, line) for id_ in line.ids[:count]]
    room.take(line, count)
    for passage in gates:
        passage.let_pass(count)
    if count:
        picked.last[line.number] = line.position(count - 1)
    if count < len(line.ids):
        picked.left[line.number] = line.position(count)
    elif line.is_cut and room.at_once(line) > 0 and all(passage.room > 0 for passage in gates):
        picked.cut_short = True


def _merge(lines: list[Line], room: Room, sight: Sight, keys: dict[tuple[Name, str], Passage], picked: Picked) -> None:
    gates = {line.number: sight.whole(line.lane) for line in lines}
    turns: list[tuple[int, datetime, JobId, int, int]] = [
        (-line.lane.priority, line.times[0], line.ids[0], number, 0) for number, line in enumerate(lines)
    ]
    heapify(turns)
    while turns and room.left > 0:
        priority, _, id_, number, place = turns[0]
        line = lines[number]
        if room.of(line) <= 0 or any(passage.room <= 0 for passage in gates[line.number]):
            picked.left.setdefault(line.number, line.position(place))
            heappop(turns)
            continue
        key = line.key(place)
        keyed = None if key is None else keys.get((line.lane.task, key))
        if keyed is not None and keyed.room <= 0:
            picked.blocked[id_] = (line.lane.task, key or "")
            picked.left.setdefault(line.number, line.position(place))
        elif room.at_once(line) <= 0:
            break  # passed over, it would wait for as long as there is something to claim ahead
        else:
            picked.jobs.append((id_, line))
            picked.last[line.number] = line.position(place)
            room.take(line)
            for passage in gates[line.number]:
                passage.let_pass(1)
            if keyed is not None:
                keyed.let_pass(1)
                picked.keys[id_] = key or ""
        place += 1
        if place < len(line.ids):
            heapreplace(turns, (priority, line.times[place], line.ids[place], number, place))
            continue
        heappop(turns)
        if line.is_cut and room.left > 0 and room.of(line) > 0:
            # What comes next in this lane was not seen, and might come before what comes next in the others.
            picked.cut_short = True
            break
    for _, _, _, number, place in turns:
        picked.left.setdefault(lines[number].number, lines[number].position(place))


def next_due(sight: Sight, picked: Picked, keys: dict[tuple[Name, str], Passage]) -> datetime | None:
    """Say when the same request could be given more, as far as time alone decides."""
    instants = [keyed.look_at for keyed in sight.keyed.values() if keyed.look_at is not None]
    instants += sight.cooling
    for line in sight.lines:
        gates = sight.whole(line.lane)
        due = _due(line, picked, keys)
        if due is None or any(passage.is_full for passage in gates):
            continue
        instants.append(max([due, *(opens for passage in gates if (opens := passage.opens_at) is not None)]))
    return min(instants, default=None)


def _due(line: Line, picked: Picked, keys: dict[tuple[Name, str], Passage]) -> datetime | None:
    """When the next job of a line may go, as far as its key and its due time decide."""
    if not line.ids or line.number not in picked.left:
        return line.times[-1] if line.is_cut and line.times else line.later
    taken = {id_ for id_, _ in picked.jobs}
    instants = [line.times[-1]] if line.is_cut else [line.later] if line.later is not None else []
    for place, id_ in enumerate(line.ids):
        if id_ in taken:
            continue
        key = line.key(place)
        passage = None if key is None else keys.get((line.lane.task, key))
        if passage is None or not passage.is_full:
            opens_at = None if passage is None else passage.opens_at
            instants.append(line.times[place] if opens_at is None else opens_at)
    return min(instants, default=None)
