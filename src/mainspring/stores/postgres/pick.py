"""Choice among the jobs that a claim has read: higher priorities first, then by run_at and id. Pure."""

from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime
from heapq import merge
from uuid import UUID

from mainspring.core.job import JobId
from mainspring.core.limits import Scope
from mainspring.core.names import Name
from mainspring.stores.passage import Passage, Trial
from mainspring.stores.postgres.lines import LineIndex, Source
from mainspring.stores.postgres.positions import START, Position, ReadEnd
from mainspring.stores.postgres.rows import Care
from mainspring.stores.postgres.rules import LONG_AGO
from mainspring.stores.postgres.sight import CandidateJob, Sight, SourceRead
from mainspring.stores.records import ClaimRequest


class Room:
    """What the node can still take on."""

    def __init__(self, request: ClaimRequest) -> None:
        self._at_once = request.room
        self.left = request.room + request.ahead
        self.suspects = request.suspects
        self._request = request
        self._taken: Counter[str] = Counter()

    def has(self, job: CandidateJob) -> bool:
        """Return whether the node may take a job, at once or ahead."""
        if job.care == Care.SUSPECT and self.suspects <= 0:
            return False
        return self._taken[job.queue] < self._request.room_in(job.queue)

    def must_wait(self, job: CandidateJob) -> bool:
        """Return whether a job, and all jobs behind it, must wait for a free place."""
        return job.care != Care.NONE and self._at_once <= 0

    def take(self, job: CandidateJob) -> None:
        self._at_once -= 1
        self.left -= 1
        self.suspects -= job.care == Care.SUSPECT
        self._taken[job.queue] += 1


@dataclass(slots=True)
class Picked:
    """The jobs that a claim takes, of those that it has read."""

    jobs: list[CandidateJob] = field(default_factory=list)
    keys: dict[JobId, str] = field(default_factory=dict)
    """Of those that pass the gate of their key."""
    blocked: dict[JobId, tuple[Name, str]] = field(default_factory=dict)
    """Jobs whose key lets no job pass now."""
    ends: dict[Source, ReadEnd] = field(default_factory=dict)
    """Where the next claim begins to read each source."""
    cut: list[SourceRead] = field(default_factory=list)
    """Reads that ended before the claim was full; the next job of each was not read."""
    full_in_front: set[tuple[Scope, str]] = field(default_factory=set)
    """Full gates whose jobs may be in front of jobs that were not read."""

    @property
    def cut_short(self) -> bool:
        return bool(self.cut)

    @property
    def last_chances(self) -> bool:
        return any(job.care == Care.LAST_CHANCE for job in self.jobs)


class _Reader:
    """A read of a source, job by job."""

    def __init__(self, place: int, read: SourceRead) -> None:
        self.place = place
        self.read = read
        self.left: Position | None = None
        """The first job that was read and not taken."""
        self.shut = False
        """Whether no other job of the source can be taken by this claim."""

    def leave(self, job: CandidateJob) -> None:
        self.left = self.left or job.position


def pick(sight: Sight, request: ClaimRequest, keys: dict[tuple[Name, str], Passage]) -> Picked:
    """Choose. `keys` are the gates of the keys of jobs that were read; a key that is not among them lets every job pass."""
    room = Room(request)
    picked = Picked()
    readers = [_Reader(place, read) for place, read in enumerate(sight.reads)]
    barriers: dict[tuple[Name, str], list[Passage | Trial]] = {}
    filled = [
        [((-job.priority, job.run_at, job.id, reader.place), job, reader) for job in reader.read.jobs]
        for reader in readers
        if reader.read.jobs
    ]
    empty = [read for read in sight.reads if not read.jobs and read.reached is not None]
    unread = min(map(_end, empty), default=None)
    over = False
    ahead = iter(filled[0]) if len(filled) == 1 else merge(*filled)
    for turn, job, reader in ahead:
        over = over or room.left <= 0
        if unread is not None and not over and unread < turn:  # a job that was not read may come first
            over = True
            picked.cut += empty
        if over or reader.shut:
            reader.leave(job)
            continue
        subject = job.task, job.queue
        if subject not in barriers:
            barriers[subject] = sight.barriers(*subject)
        keyed = None if job.key is None else keys.get((job.task, job.key))
        if not room.has(job) or any(barrier.room <= 0 for barrier in barriers[subject]):
            reader.leave(job)
            reader.shut = _shuts(reader.read, sight, job, room)
            if not reader.shut and sight.full:
                picked.full_in_front |= sight.full & {(Scope.TASK, str(job.task)), (Scope.QUEUE, job.queue)}
        elif keyed is not None and keyed.room <= 0:
            picked.blocked[job.id] = (job.task, job.key or "")
            reader.leave(job)
        elif room.must_wait(job):
            room.left = 0  # passed over, it would wait for as long as there is a job to claim ahead
            reader.leave(job)
        else:
            picked.jobs.append(job)
            room.take(job)
            for barrier in barriers[subject]:
                barrier.let_pass(1)
            if keyed is not None:
                keyed.let_pass(1)
                picked.keys[job.id] = job.key or ""
        if room.left > 0 and reader.read.is_cut and not reader.shut and job is reader.read.jobs[-1]:
            # The next job of this source was not read, and may come before the next jobs of the others.
            over = True
            picked.cut.append(reader.read)
    if empty and room.left > 0 and not picked.cut:
        picked.cut += empty
    for reader in readers:
        read = reader.read
        picked.ends[read.source] = ReadEnd(
            _position(reader, sight),
            read.took,
            is_end=read.reached is None,
            is_at_limit=read.is_at_limit,
            without=sight.request_lines.left_out_of(read.source.line),
        )
    return picked


def _end(read: SourceRead) -> tuple[int, datetime, UUID]:
    """Where a read ended, in claim order."""
    assert read.reached is not None  # noqa: S101 -- as is checked before
    return -read.source.priority, *read.reached


def _shuts(read: SourceRead, sight: Sight, job: CandidateJob, room: Room) -> bool:
    """Return whether what keeps back a job keeps back all others of its source: a gate, a breaker or room they share."""
    match read.source.line.kind:
        case LineIndex.QUEUE:
            return True  # its tasks have no gates, or they would have lines of their own
        case LineIndex.TASK:
            return any(barrier.room <= 0 for barrier in sight.of_task(job.task))
        case LineIndex.SUSPECT:
            return room.suspects <= 0
        case LineIndex.ALL:
            return False


def _position(reader: _Reader, sight: Sight) -> Position:
    read = reader.read
    if reader.left is not None:
        return reader.left
    if read.reached is not None:
        return read.reached
    return read.jobs[-1].position if read.is_cut else (sight.horizon, START[1])


def next_due(sight: Sight, picked: Picked, keys: dict[tuple[Name, str], Passage]) -> datetime | None:
    """Return when the same request could be given more, as far as time alone decides."""
    instants = [keyed.look_at for keyed in sight.keyed.values() if keyed.look_at is not None]
    instants += sight.cooling
    left_out = [sight.passages[gate] for gate in sight.left_out if gate in sight.passages]
    instants += [passage.opens_at or sight.now for passage in left_out if not passage.is_full]
    taken = {job.id for job in picked.jobs}
    opening: dict[tuple[Name, str], datetime | None] = {}
    for read in sight.reads:
        instants += _behind(read, sight)
        for job in read.jobs:
            if job.id in taken:
                continue
            subject = job.task, job.queue
            if subject not in opening:
                opening[subject] = _opens(sight.barriers(*subject))
            opens_at = opening[subject]
            passage = None if job.key is None else keys.get((job.task, job.key))
            if opens_at is None or (passage is not None and passage.is_full):
                continue
            key_opens = None if passage is None else passage.opens_at
            due = job.run_at if key_opens is None else key_opens
            instants.append(max(due, opens_at))
    return min(instants, default=None)


def _behind(read: SourceRead, sight: Sight) -> list[datetime]:
    """Return when jobs that were not read may be due."""
    found = [read.later] if read.later is not None else []
    if read.is_cut:
        found.append(read.jobs[-1].run_at if read.jobs else sight.now)
    if not found:
        return found
    line = read.source.line
    shared: list[Passage | Trial] = []
    if line.kind is LineIndex.TASK:
        shared = sight.of_task(*line.tasks)
    elif line.kind is LineIndex.QUEUE:
        shared = sight.of_queue(line.name)
    opens_at = _opens(shared)
    return [] if opens_at is None else [max(instant, opens_at) for instant in found]


def _opens(barriers: list[Passage | Trial]) -> datetime | None:
    """When all of these let a job pass, as far as time alone decides; None: another job has to end first."""
    if any(barrier.is_full for barrier in barriers):
        return None
    return max((opens for barrier in barriers if (opens := barrier.opens_at) is not None), default=LONG_AGO)
