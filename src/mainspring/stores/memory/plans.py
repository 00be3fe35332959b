"""Schedules and their runs, as tables: found by name and id, by when they are due, and by whether they are open.

A schedule is kept as the record that all stores keep, so that what another store could not read is not read here either.
"""

from bisect import bisect_left, bisect_right, insort
from collections import defaultdict
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from heapq import nlargest
from typing import Final
from uuid import UUID

from msgspec.structs import replace

from mainspring.core.job import JobId
from mainspring.core.schedule import Run, Schedule
from mainspring.stores.memory.turns import Turns
from mainspring.stores.records import Former, Look
from mainspring.stores.schedules import OPEN_SHOWN, End, read_schedule, schedule_bytes

_EVER: Final = datetime.min.replace(tzinfo=UTC)


@dataclass(slots=True)
class Kept:
    """A schedule, and what is looked for or changed without reading its record."""

    name: str
    owner: str | None
    revision: int
    next_at: datetime | None
    waits: bool
    is_paused: bool
    last_end: datetime | None
    record: bytes

    @classmethod
    def of(cls, schedule: Schedule) -> "Kept":
        return cls(
            name=str(schedule.name),
            owner=schedule.owner,
            revision=schedule.revision,
            next_at=schedule.next_at,
            waits=schedule.waits,
            is_paused=schedule.paused is not None,
            last_end=schedule.last_end,
            record=schedule_bytes(schedule),
        )

    def read(self) -> Schedule:
        return read_schedule(
            self.name,
            self.record,
            revision=self.revision,
            next_at=self.next_at,
            waits=self.waits,
            last_end=self.last_end,
        )


class Runs:
    """What happened at slots."""

    def __init__(self) -> None:
        self.by_id: dict[UUID, Run] = {}
        self._keep_until: dict[UUID, datetime] = {}
        self._slots: dict[tuple[str, datetime], UUID] = {}  # those with a job
        self._open: defaultdict[str, set[UUID]] = defaultdict(set)
        self._over: Turns[UUID] = Turns()  # by the time until which they are kept

    def put(self, run: Run, keep_until: datetime) -> None:
        """Write a run, over what is there under its id."""
        self.drop(run.id)
        self.by_id[run.id] = run
        self._keep_until[run.id] = keep_until
        if slot := slot_with_job(run):
            self._slots[slot] = run.id
        if run.is_open:
            self._open[str(run.schedule)].add(run.id)
        else:
            self._over.put(run.id, (keep_until, run.id.int))

    def drop(self, id_: UUID) -> None:
        run = self.by_id.pop(id_, None)
        if run is None:
            return
        del self._keep_until[id_]
        self._over.drop(id_)
        if slot := slot_with_job(run):
            del self._slots[slot]
        if run.is_open:
            self._open[str(run.schedule)].discard(id_)
            if not self._open[str(run.schedule)]:
                del self._open[str(run.schedule)]

    def end(self, id_: UUID, end: End, *, lingers: bool) -> None:
        """Write how the job of a run ended, or that it goes on."""
        if run := self.by_id.get(id_):
            ended = replace(run, state=end.state, finished_at=end.finished_at, error=end.error, lingers=lingers)
            self.put(ended, self._keep_until[id_])

    def let_go(self, id_: UUID) -> bool:
        """Write that no body of a run goes on any more; says whether one did."""
        run = self.by_id.get(id_)
        if run is None or not run.lingers:
            return False
        self.put(replace(run, lingers=False), self._keep_until[id_])
        return True

    def with_job(self, slot: tuple[str, datetime]) -> UUID | None:
        return self._slots.get(slot)

    def open(self, schedule: str) -> tuple[JobId, ...]:
        """List open runs of a schedule, the newest first, no more than are shown."""
        newest = nlargest(OPEN_SHOWN, self._open.get(schedule, ()), key=lambda id_: id_.int)
        return tuple(JobId(id_) for id_ in newest)

    def former(self, schedules: Collection[str]) -> tuple[Former, ...]:
        """Say which of these have runs, and the last slot of each that has a job."""
        if not schedules:
            return ()
        found = {str(run.schedule) for run in self.by_id.values()}.intersection(schedules)
        last: dict[str, datetime] = {}
        for schedule, slot in self._slots:
            if schedule in found:
                last[schedule] = max(slot, last.get(schedule, slot))
        return tuple(Former(name=name, last_slot=last.get(name)) for name in sorted(found))

    def prune(self, limit: int, now: datetime) -> int:
        """Forget runs that are past their time, at most so many; returns how many."""
        pruned = 0
        while pruned < limit and (first := self._over.first()) and first[0][0] <= now:
            self.drop(first[1])
            pruned += 1
        return pruned


def slot_with_job(run: Run) -> tuple[str, datetime] | None:
    """Name what only one run may have: the job of a slot."""
    return None if run.reason or run.slot is None else (str(run.schedule), run.slot)


class Plans:
    """The schedules, and their runs."""

    def __init__(self) -> None:
        self.kept: dict[str, Kept] = {}
        self.runs = Runs()
        self._due: list[tuple[datetime, str]] = []  # sorted

    def put(self, kept: Kept) -> None:
        self.remove(kept.name)
        self.kept[kept.name] = kept
        if kept.next_at:
            insort(self._due, (kept.next_at, kept.name))

    def remove(self, name: str) -> None:
        kept = self.kept.pop(name, None)
        if kept and kept.next_at:
            del self._due[bisect_left(self._due, (kept.next_at, name))]

    def look(self, kept: Kept) -> Look:
        """Read a schedule and what of it is open; raises `ScheduleError` if that cannot be."""
        return Look(schedule=kept.read(), open=self.runs.open(kept.name))

    def by_time(self, after: tuple[datetime, str] = (_EVER, "")) -> Iterator[Kept]:
        """Go through the schedules in the order in which they come up."""
        for place in range(bisect_right(self._due, after), len(self._due)):
            yield self.kept[self._due[place][1]]

    def ended(self, id_: UUID, end: End, now: datetime, *, lingers: bool) -> None:
        """Write the end of a schedule's job to its run, and have the schedule looked at if it waits for that."""
        self.runs.end(id_, end, lingers=lingers and end.state is not None)
        if end.state and not lingers:
            self._tell(id_, now)

    def let_go(self, id_: UUID, now: datetime) -> None:
        """Close the run of a job whose last body has ended."""
        if self.runs.let_go(id_):
            self._tell(id_, now)

    def _tell(self, id_: UUID, now: datetime) -> None:
        run = self.runs.by_id.get(id_)
        kept = self.kept.get(str(run.schedule)) if run else None
        if kept and kept.waits:
            next_at = kept.next_at if kept.is_paused else now
            self.put(_changed(kept, next_at=next_at, last_end=now))

    def wake_if_idle(self, name: str, now: datetime) -> None:
        """Have a schedule looked at that waits for the end of a run, and has none that is open."""
        kept = self.kept.get(name)
        if kept and kept.waits and not kept.is_paused and not self.runs.open(name):
            self.remove(name)
            kept.next_at = now
            self.put(kept)


def _changed(kept: Kept, *, next_at: datetime | None, last_end: datetime) -> Kept:
    return Kept(
        name=kept.name,
        owner=kept.owner,
        revision=kept.revision + 1,
        next_at=next_at,
        waits=False,
        is_paused=kept.is_paused,
        last_end=last_end,
        record=kept.record,
    )
