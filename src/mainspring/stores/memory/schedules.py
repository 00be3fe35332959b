"""The role `Schedules`."""

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from heapq import nlargest, nsmallest
from uuid import UUID

from mainspring.core.names import Name
from mainspring.core.schedule import Run
from mainspring.errors import ScheduleError
from mainspring.stores.memory.enqueuing import Plan
from mainspring.stores.memory.guard import Guarded
from mainspring.stores.memory.plans import Kept, Plans, slot_with_job
from mainspring.stores.records import Look, Looked, Move, NewJob, RunFilter, RunPage, SchedulePage, Unread
from mainspring.stores.schedules import keep_until, kept_runs, taken


class SchedulesRole(Guarded):
    """What is planned."""

    async def due(self, limit: int) -> Looked:
        with self._locked() as now:
            looks: list[Look] = []
            unread: list[Unread] = []
            for kept in self._tables.plans.by_time():
                if kept.next_at is None or kept.next_at > now or len(looks) == limit:
                    return Looked(now=now, looks=tuple(looks), next_at=kept.next_at, unread=tuple(unread))
                self._look(kept, looks.append, unread.append)
            return Looked(now=now, looks=tuple(looks), unread=tuple(unread))

    async def look(self, names: Sequence[Name]) -> Looked:
        with self._locked() as now:
            plans = self._tables.plans
            looks, unread = self._looks(plans.kept.get(str(name)) for name in names)
            former = plans.runs.former({str(name) for name in names} - plans.kept.keys())
            return Looked(now=now, looks=looks, unread=unread, former=former)

    async def move(self, moves: Sequence[Move]) -> tuple[bool, ...]:
        with self._locked() as now:
            batch = Batch(self._tables.plans)
            accepted = tuple(batch.accept(move) for move in moves)
            jobs = Plan(self._tables, batch.jobs, now, may_raise=False)
            self._write(batch, jobs, now)
        if any(accepted):
            self._ring()
        return accepted

    async def list_schedules(
        self, *, owner: str | None = None, limit: int = 100, after: str | None = None
    ) -> SchedulePage:
        with self._locked() as now:
            fitting = (
                kept
                for kept in self._tables.plans.kept.values()
                if owner in {None, kept.owner} and (after is None or kept.name > after)
            )
            found = nsmallest(limit + 1, fitting, key=lambda kept: kept.name)
            page = found[:limit]
            looks, unread = self._looks(page)
        more = page[-1].name if page and len(found) > limit else None
        return SchedulePage(now=now, looks=looks, after=more, unread=unread)

    async def runs(self, which: RunFilter, *, limit: int = 100, after: UUID | None = None) -> RunPage:
        with self._locked():
            runs = list(self._tables.plans.runs.by_id.values())
        fitting = (run for run in runs if (after is None or run.id < after) and _fits(run, which))
        found = nlargest(limit + 1, fitting, key=lambda run: run.id.int)
        page = tuple(found[:limit])
        return RunPage(runs=page, after=page[-1].id if page and len(found) > limit else None)

    def _looks(self, some: Iterable[Kept | None]) -> tuple[tuple[Look, ...], tuple[Unread, ...]]:
        looks: list[Look] = []
        unread: list[Unread] = []
        for kept in some:
            if kept:
                self._look(kept, looks.append, unread.append)
        return tuple(looks), tuple(unread)

    def _look(self, kept: Kept, found: Callable[[Look], object], not_read: Callable[[Unread], object]) -> None:
        try:
            found(self._tables.plans.look(kept))
        except ScheduleError as error:
            not_read(Unread(name=kept.name, revision=kept.revision, problem=error.problem))

    def _write(self, batch: "Batch", jobs: Plan, now: datetime) -> None:
        """Write what was accepted: schedules, runs, jobs. A job may end another one, whose run has to be there."""
        plans = self._tables.plans
        for name, kept in batch.kept.items():
            if kept:
                plans.put(kept)
            else:
                plans.remove(name)
        for run, until in batch.runs:
            plans.runs.put(run, until)
        jobs.write()
        not_made = {job.id for job, answer in zip(batch.jobs, jobs.answers, strict=True) if answer.id != job.id}
        for run, until in batch.runs:
            if run.id in not_made:
                plans.runs.put(taken(run), until)
        for name in batch.kept:
            plans.wake_if_idle(name, now)


class Batch:
    """Moves of one call, held against what is there and what those before them change."""

    def __init__(self, plans: Plans) -> None:
        self._plans = plans
        self._slots: dict[tuple[str, datetime], UUID] = {}
        self.kept: dict[str, Kept | None] = {}
        self.runs: list[tuple[Run, datetime]] = []
        self.jobs: list[NewJob] = []

    def accept(self, move: Move) -> bool:
        """Take a move in, all of it or nothing."""
        subject = move.after or move.before
        if subject is None:
            raise ScheduleError("move", "it leads from nothing to nothing")
        name = str(subject.name)
        there = self.kept[name] if name in self.kept else self._plans.kept.get(name)
        slots = [(slot, run.id) for run in move.runs if (slot := slot_with_job(run))]
        if (there and there.revision) != (move.before and move.before.revision) or self._is_taken(slots):
            return False
        self.kept[name] = Kept.of(move.after) if move.after else None
        self.runs += [(run, keep_until(run, kept_runs(subject))) for run in move.runs]
        self._slots.update(slots)
        self.jobs += move.jobs
        return True

    def _is_taken(self, slots: Sequence[tuple[tuple[str, datetime], UUID]]) -> bool:
        """Say whether another run has a job for one of these slots already, or two of them are for the same."""
        if len(dict(slots)) < len(slots):
            return True
        there = ((self._slots.get(slot) or self._plans.runs.with_job(slot), id_) for slot, id_ in slots)
        return any(other not in {None, id_} for other, id_ in there)


def _fits(run: Run, which: RunFilter) -> bool:
    first, last = run.slot, run.last or run.slot
    return (
        which.schedule in {None, run.schedule}
        and which.with_job in {None, run.job is not None}
        and (which.after_slot is None or (last is not None and last > which.after_slot))
        and (which.until_slot is None or (first is not None and first <= which.until_slot))
    )
