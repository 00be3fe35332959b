"""Which jobs a claim gives out, and in which order."""

from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import datetime
from heapq import heapify, heappop, heapreplace

from mainspring.core.job import JobId
from mainspring.stores.memory.circuits import Circuits
from mainspring.stores.memory.gates import Gates
from mainspring.stores.memory.lanes import Lane
from mainspring.stores.records import ClaimRequest


class Room:
    """What a claim may still give out."""

    def __init__(self, request: ClaimRequest) -> None:
        self._at_once = request.room
        self._left = request.room + request.ahead
        self._suspects = request.suspects
        self._request = request
        self._taken: Counter[str] = Counter()

    def __bool__(self) -> bool:
        return self._left > 0

    def has(self, lane: Lane) -> bool:
        """Return whether one more may be claimed from this lane, at once or ahead."""
        queue = lane.kind.queue
        if self._taken[queue] >= self._request.room_in(queue):
            return False
        return not lane.kind.suspect or self._suspects > 0

    def must_wait(self, lane: Lane) -> bool:
        """Return whether a job of this lane, and all jobs behind it, must wait for a free place."""
        return lane.kind.last_chance and self._at_once <= 0

    def take(self, lane: Lane) -> None:
        self._left -= 1
        self._at_once -= 1
        self._suspects -= lane.kind.suspect
        self._taken[lane.kind.queue] += 1


def choose(
    lanes: Iterable[Lane], gates: Gates, circuits: Circuits, request: ClaimRequest, now: datetime
) -> Iterator[JobId]:
    """Yield the jobs to be given out: higher priorities first, then by run_at and id.

    Whoever asks for the next one has taken the last one out of its lane, through the gates and the breaker. A lane that is shut
    stays shut for the rest of the claim, and is not looked at again. A job that may not be claimed ahead ends the claim when
    its turn comes and no place is left: passed over, it would wait for as long as there is something to claim ahead.
    """
    due_by = now if request.due_by is None else min(now, request.due_by)
    room = Room(request)
    firsts = [
        (-lane.kind.priority, first[0], number, lane) for number, lane in enumerate(lanes) if (first := lane.first(now))
    ]
    heapify(firsts)
    while firsts and room:
        priority, turn, number, lane = firsts[0]
        first = lane.first(now)
        shut = (
            not room.has(lane)
            or circuits.refusal(lane.kind.task, now) is not None
            or not all(gates.lets_in(subject, now) for subject in lane.subjects)
        )
        if first is None or first[0][0] > due_by or shut:
            heappop(firsts)
        elif first[0] != turn:  # since it was looked at, its first job was taken, or the key of that one is full
            heapreplace(firsts, (priority, first[0], number, lane))
        elif room.must_wait(lane):
            return
        else:
            yield first[1]
            room.take(lane)


def next_due(
    lanes: Iterable[Lane], gates: Gates, circuits: Circuits, request: ClaimRequest, now: datetime
) -> datetime | None:
    """Say when the same request could be given something, as far as time alone decides."""
    room = Room(request)
    instants = []
    for lane in lanes:
        due = lane.next_due()
        if due is None or not room.has(lane) or any(gates.is_full(subject) for subject in lane.subjects):
            continue
        refused = circuits.refusal(lane.kind.task, now)
        if refused and refused.until is None:
            continue
        opens = [opens_at for subject in lane.subjects if (opens_at := gates.opens_at(subject))]
        if refused and refused.until:
            opens.append(refused.until)
        instants.append(max([due, *opens]))
    return min(instants, default=None)
