"""Positions at which claims begin to read, one for each priority of each line.

A position is the place in a line (due time and id) in front of which there is no claimable job. It steps over index
entries of claimed jobs that cannot be removed while an old snapshot is held, and over jobs that the request may not
claim. It is a hint: a transaction that commits late, or one that is rolled back with a job locked, leaves a job in
front of it. Those are found by a read from the start, about once a second, or less often where such a read takes long.

A statement reads a bounded number of entries that the node may not claim. Where there are more, several claims share
the read: each continues where the one before has ended. Until its end such a read is *under way*. After one claim has
read as many entries as it may, announcements no longer restart the read (`must_finish`): a job that is announced in
front of it is left to the next read, which begins there. Otherwise a line with more entries than are read between two
announcements would never be read to its end.

Claims leave out queues and tasks that are full or have no room on the node, and these change from one claim to the
next. So the progress of a read records which queues and tasks were left out, each with the position from which its jobs
were skipped (`skipped`). The first claim that no longer leaves one out starts there, unless a read has to finish first.
"""

import math
import threading
import time
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Final, NamedTuple, TypeAlias
from uuid import UUID

from mainspring.stores.postgres.lines import Source, Subject

READ_FROM_START_INTERVAL_S: Final = 0.9
"""Seconds between two reads of a line from its start."""
SHARE: Final = 20
"""A read from the start is not repeated before this multiple of its duration: it takes a twentieth of the time."""
MAX_READ_FROM_START_INTERVAL_S: Final = 10.0
"""Upper bound of the seconds between two reads from the start, however long they take."""
SLOW_READ_S: Final = 0.02
"""Duration above which a read counts as slow: then only the pause decides when it is repeated."""
LATE: Final = timedelta(seconds=0.25)
"""Positions stay this far behind the present: most transactions that enqueue commit within that time."""
MAX_POSITIONS: Final = 20_000
"""Positions that are remembered; beyond, all are dropped."""
MAX_PULLS: Final = 200
"""Announcements that are remembered for claims which began before them; older ones are merged."""

Position: TypeAlias = tuple[datetime, UUID]
START: Final[Position] = (datetime(1, 1, 1, tzinfo=UTC), UUID(int=0))
_NONE_SKIPPED: Final[Mapping[Subject, Position]] = MappingProxyType({})


class ReadEnd(NamedTuple):
    """How far one claim has read a source."""

    position: Position
    """The first job that it left, or where it ended."""
    took: float = 0.0
    """Seconds."""
    is_end: bool = True
    """False: the bound of index entries was reached, and there may be more."""
    is_at_limit: bool = False
    """The claim has read as many index entries as one claim may."""
    without: AbstractSet[Subject] = frozenset()
    """Queues and tasks that it left out."""


class Progress(NamedTuple):
    """How far the reads of a source have come."""

    position: Position
    whole_at: float
    """When it is to be read from its start again, by the monotonic clock; infinite while such a read is under way."""
    took: float
    """Seconds that the last read from the start took, in one or several claims."""
    is_under_way: bool = False
    """The last read did not come to the end of the line: the next one continues at the position."""
    must_finish: bool = False
    """Whether the read under way goes on to its end before announced jobs in front of it are read."""
    announced: Position | None = None
    """Position of the earliest job that was announced in the part already read, and that no read has covered since; None:
    there is none."""
    skipped: Mapping[Subject, Position] = _NONE_SKIPPED
    """Queues and tasks that were left out, each with the position from which its jobs were skipped."""
    reads: int = 0
    """Counts the claims that have recorded it."""

    def is_valid(self, clock: float) -> bool:
        return self.is_under_way or self.whole_at > clock

    def start(self, without: AbstractSet[Subject]) -> Position:
        """Return where a claim begins that leaves out these queues and tasks.

        A read that has to finish is not restarted for a queue or task that has room again: rooms change with every
        claim, and a line with many entries would never be read to its end.
        """
        if not self.skipped or self.must_finish:
            return self.position
        return min([self.position, *(at for subject, at in self.skipped.items() if subject not in without)])

    def pulled(self, back: Position) -> "Progress":
        """Return the progress after the announcement of a job that is due since `back`."""
        skipped = self.skipped
        if any(at > back for at in skipped.values()):
            skipped = {subject: min(at, back) for subject, at in skipped.items()}
        if back >= self.position:
            return self if skipped is self.skipped else self._replace(skipped=skipped)
        announced = back if self.announced is None else min(self.announced, back)
        return self._replace(position=self.position if self.must_finish else back, announced=announced, skipped=skipped)


class Positions(NamedTuple):
    """The positions that one claim begins at. A source without one is read from its start."""

    valid: Mapping[Source, Progress]
    pulls: int
    stored: Mapping[Source, Progress]
    """All that was remembered when the claim began."""
    is_whole: bool = False
    """The claim must not miss a job."""

    def of(self, source: Source, without: AbstractSet[Subject] = frozenset()) -> Position:
        progress = self.valid.get(source)
        return START if progress is None else progress.start(without)

    def is_close(self, source: Source) -> bool:
        """Return whether only few entries that a request may not claim are to be expected from the position on."""
        progress = self.valid.get(source)
        return progress is not None and not progress.is_under_way and progress.announced is None

    @property
    def skip(self) -> bool:
        """Whether the claim may miss a job, and could be made again so that it does not."""
        return bool(self.valid) and not self.is_whole


class PositionCache:
    """Positions that a store remembers between two claims.

    Used by several loops and threads at once: every value is replaced whole, and what a claim records is merged with what
    others have recorded since it began.
    """

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._progress: dict[Source, Progress] = {}
        self._farthest = START
        """The greatest position recorded; the announcement of a job that is due later changes no position."""
        self._pulls = 0
        self._forgotten = 0
        """How many pulls there were when all positions were dropped."""
        self._log: list[tuple[int, Position]] = []
        """Pairs (number, position): the earliest position announced after the previous pair's number and up to this number.
        Both values ascend."""

    def after_fork(self) -> None:
        """Replace the lock in a forked child: another thread of the parent may have held it."""
        self._guard = threading.Lock()

    @property
    def pulls(self) -> int:
        """Counts announcements."""
        return self._pulls

    def positions(self) -> Positions:
        """Return the valid positions: a source that was not read from its start for a while has none."""
        clock = time.monotonic()
        with self._guard:
            pulls, stored = self._pulls, self._progress
        return Positions({source: one for source, one in stored.items() if one.is_valid(clock)}, pulls, stored)

    def from_start(self) -> Positions:
        """Return positions at the start of every source, except where such a read is under way or was slow just now."""
        began = self.positions()
        kept = {source: one for source, one in began.valid.items() if one.is_under_way or one.took > SLOW_READ_S}
        return began._replace(valid=kept, is_whole=True)

    def advance(self, began: Positions, ends: Mapping[Source, ReadEnd], now: datetime) -> bool:
        """Record a claim that started at `began`; return whether it may have left out claimable jobs in front."""
        latest, clock = (now - LATE, START[1]), time.monotonic()
        found = {source: _progress(began, source, end, latest, clock) for source, end in ends.items()}
        is_open_again = any(one.skipped.keys() - ends[source].without for source, one in found.items())
        with self._guard:
            if began.pulls < self._forgotten:
                return True
            back = next((least for count, least in self._log if count > began.pulls), None)
            for source, progress in found.items():
                one, other, before = progress, self._progress.get(source), began.stored.get(source)
                if back is not None:
                    one = one.pulled(back)
                if other is not None and other.reads != (0 if before is None else before.reads):
                    one = _merged(one, other)
                found[source] = one._replace(reads=1 if other is None else other.reads + 1)
                self._farthest = max(self._farthest, one.position, *one.skipped.values())
            kept = self._progress if len(self._progress) <= MAX_POSITIONS else {}
            self._progress = kept | found
        return is_open_again or any(one.announced is not None for one in found.values())

    def pull(self, least: datetime) -> None:
        """Pull positions back: a job was announced that is due since then."""
        back = (least, START[1])
        with self._guard:
            self._pulls += 1
            while self._log and self._log[-1][1] >= back:
                self._log.pop()
            self._log.append((self._pulls, back))
            if len(self._log) > MAX_PULLS:
                (_, first), (count, _), *rest = self._log
                self._log = [(count, first), *rest]
            if back < self._farthest:
                self._progress = {source: one.pulled(back) for source, one in self._progress.items()}

    def forget(self) -> None:
        """Drop all positions: a gate or a queue was opened, and its jobs may be due since long ago."""
        with self._guard:
            self._pulls += 1
            self._forgotten = self._pulls
            self._log = []
            self._progress = {}
            self._farthest = START


def _progress(began: Positions, source: Source, end: ReadEnd, latest: Position, clock: float) -> Progress:
    """Return how far the reads of a source have come with a claim."""
    before, stored = began.valid.get(source), began.stored.get(source)
    start = began.of(source, end.without)
    skipped = dict.fromkeys(end.without, start)
    if stored is not None and stored.skipped:
        goes_on = before is not None and before.must_finish
        skipped |= {subject: at for subject, at in stored.skipped.items() if goes_on or subject in end.without}
    is_whole = before is None or before.whole_at == math.inf
    took = end.took if before is None else before.took + end.took if is_whole else before.took
    must_finish = not end.is_end and (end.is_at_limit or (before is not None and before.must_finish))
    progress = Progress(min(end.position, latest), math.inf, took, not end.is_end, must_finish, skipped=skipped)
    if before is not None and not is_whole:
        progress = progress._replace(whole_at=before.whole_at)
    elif end.is_end:
        progress = progress._replace(whole_at=clock + pause_after(took))
    if before is None or not before.must_finish or before.announced is None:
        return progress
    return progress.pulled(before.announced)


def _merged(one: Progress, other: Progress) -> Progress:
    """Return what two claims have found that were made at once: less far than either has come."""
    skipped = {
        subject: min(at for each in (one, other) if (at := each.skipped.get(subject)) is not None)
        for subject in one.skipped.keys() | other.skipped.keys()
    }
    announced = min((each.announced for each in (one, other) if each.announced is not None), default=None)
    return min(one, other, key=lambda each: each.position)._replace(announced=announced, skipped=skipped)


def pause_after(took: float) -> float:
    """Return the seconds until a read from the start is repeated that took this long."""
    return min(max(READ_FROM_START_INTERVAL_S, took * SHARE), MAX_READ_FROM_START_INTERVAL_S)
