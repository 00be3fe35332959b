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
were skipped (`skipped`). The first claim that no longer leaves one out starts there, unless a read has to finish first;
it reads from the start if the last such read that included the queue or task is too long ago.

Claims of several nodes of a process overlap. What a claim has found is merged with what others have recorded since it
began, so that the one that came less far decides.
"""

import math
import threading
import time
from collections.abc import Mapping, Sequence
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
MAX_RECENT: Final = 16
"""Claims of a source of which each result is remembered, for claims that began before them."""

Position: TypeAlias = tuple[datetime, UUID]
START: Final[Position] = (datetime(1, 1, 1, tzinfo=UTC), UUID(int=0))


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


class Skipped(NamedTuple):
    """From where on the jobs of a queue or task were left out."""

    position: Position
    whole_at: float
    """When they are to be read from the start of the line again, by the monotonic clock."""


_NONE_SKIPPED: Final[Mapping[Subject, Skipped]] = MappingProxyType({})


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
    skipped: Mapping[Subject, Skipped] = _NONE_SKIPPED
    """Queues and tasks that were left out."""
    reads: int = 0
    """Counts the claims that have recorded it."""
    recent: "tuple[Progress, ...]" = ()
    """What the last of these claims have found, each by itself; for claims that began before them."""

    def is_valid(self, clock: float) -> bool:
        return self.is_under_way or self.whole_at > clock

    def start(self, without: AbstractSet[Subject], clock: float) -> Position:
        """Return where a claim begins that leaves out these queues and tasks.

        One that is no longer left out is read from where it was skipped. If the last read from the start that included it
        is too long ago, the claim begins at the start: reads from the start in between did not see its jobs.

        A read that has to finish is not restarted for a queue or task that has room again: rooms change with every
        claim, and a line with many entries would never be read to its end.
        """
        if not self.skipped or self.must_finish:
            return self.position
        again = [one for subject, one in self.skipped.items() if subject not in without]
        if any(one.whole_at <= clock for one in again):
            return START
        return min([self.position, *(one.position for one in again)])

    def pulled(self, back: Position) -> "Progress":
        """Return the progress after the announcement of a job that is due since `back`."""
        skipped = self.skipped
        if any(one.position > back for one in skipped.values()):
            skipped = {subject: one._replace(position=min(one.position, back)) for subject, one in skipped.items()}
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
    clock: float
    """When that was, by the monotonic clock."""
    is_whole: bool = False
    """The claim must not miss a job."""

    def of(self, source: Source, without: AbstractSet[Subject] = frozenset()) -> Position:
        progress = self.valid.get(source)
        return START if progress is None else progress.start(without, self.clock)

    def is_close(self, source: Source) -> bool:
        """Return whether the last read did not stop at its bound of index entries that the request may not claim.

        There may be many of these entries all the same, behind the jobs that filled the claim.
        """
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
        return Positions({source: one for source, one in stored.items() if one.is_valid(clock)}, pulls, stored, clock)

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
            if len(self._progress) > MAX_POSITIONS:
                self._forget()
            for source, progress in found.items():
                other, before = self._progress.get(source), began.stored.get(source)
                one = own = progress if back is None else progress.pulled(back)
                if other is not None:
                    for meanwhile in _recorded_since(other, 0 if before is None else before.reads):
                        one = _merged(one, meanwhile)
                    if back is not None:  # the others may have recorded theirs before the announcement
                        one = one.pulled(back)
                    recent = (*other.recent[1 - MAX_RECENT :], own)
                    found[source] = one._replace(reads=other.reads + 1, recent=recent)
                else:
                    found[source] = one._replace(reads=1, recent=(own,))
                self._farthest = max(self._farthest, one.position, *(each.position for each in one.skipped.values()))
            self._progress = self._progress | found
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
            self._forget()

    def _forget(self) -> None:
        self._pulls += 1
        self._forgotten = self._pulls
        self._log = []
        self._progress = {}
        self._farthest = START


def _progress(began: Positions, source: Source, end: ReadEnd, latest: Position, clock: float) -> Progress:
    """Return how far the reads of a source have come with a claim."""
    before, start = began.valid.get(source), began.of(source, end.without)
    goes_on = before is not None and start != START  # else it is a read from the start
    whole_at, took = math.inf, end.took
    if before is not None and goes_on:
        took = before.took + end.took if before.whole_at == math.inf else before.took
        whole_at = before.whole_at
    if end.is_end and whole_at == math.inf:
        whole_at = clock + pause_after(took)
    skipped = dict.fromkeys(end.without, Skipped(start, clock))
    if before is not None:  # they were read until now
        again_at = clock + pause_after(took) if before.whole_at == math.inf else before.whole_at
        skipped = dict.fromkeys(end.without, Skipped(before.position, again_at))
    stored = began.stored.get(source)
    must_finish = before is not None and before.must_finish
    for subject, one in stored.skipped.items() if stored is not None else ():
        if must_finish or subject in end.without:
            skipped[subject] = one
        elif goes_on:
            whole_at = min(whole_at, one.whole_at)
    progress = Progress(
        min(end.position, latest),
        whole_at,
        took,
        is_under_way=not end.is_end,
        must_finish=not end.is_end and (end.is_at_limit or must_finish),
        skipped=skipped,
    )
    if before is None or not must_finish or before.announced is None:
        return progress
    return progress.pulled(before.announced)


def _recorded_since(progress: Progress, reads: int) -> Sequence[Progress]:
    """Return what claims have recorded after so many; if not all of these are remembered, what all have found together.

    What was recorded before a claim began is not merged with it: claims that always overlap would never come further.
    """
    count = progress.reads - reads
    if count > len(progress.recent):
        return [progress]
    return progress.recent[len(progress.recent) - count :]


def _merged(one: Progress, other: Progress) -> Progress:
    """Return what two claims have found that were made at once: less far than either has come."""
    skipped = {subject: _skipped(one, other, subject) for subject in one.skipped.keys() | other.skipped.keys()}
    announced = min((each.announced for each in (one, other) if each.announced is not None), default=None)
    merged = min(one, other, key=lambda each: each.position)
    whole_at = merged.whole_at
    if whole_at != math.inf:  # the later read from the start counts: both have seen the jobs in front of the position
        whole_at = max(each.whole_at for each in (one, other) if each.whole_at != math.inf)
    merged = merged._replace(whole_at=whole_at, announced=None, skipped=skipped)
    return merged if announced is None else merged.pulled(announced)._replace(announced=announced)


def _skipped(one: Progress, other: Progress, subject: Subject) -> Skipped:
    """Return from where on a queue or task was left out by one of two claims, or by both."""
    found = [each.skipped[subject] for each in (one, other) if subject in each.skipped]
    read = [each for each in (one, other) if subject not in each.skipped and each.whole_at != math.inf]
    found += [Skipped(each.position, each.whole_at) for each in read]
    if read:  # one of the claims has read its jobs up to its position
        return max(found, key=lambda each: each.whole_at)
    return Skipped(min(each.position for each in found), min(each.whole_at for each in found))


def pause_after(took: float) -> float:
    """Return the seconds until a read from the start is repeated that took this long."""
    return min(max(READ_FROM_START_INTERVAL_S, took * SHARE), MAX_READ_FROM_START_INTERVAL_S)
