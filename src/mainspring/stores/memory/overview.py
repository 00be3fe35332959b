"""The role `Overview`: the whole of it, for people."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from heapq import nlargest
from itertools import islice

from mainspring.core.job import JobId, NodeId, State
from mainspring.core.limits import Scope
from mainspring.core.names import Name
from mainspring.core.schedule import Run
from mainspring.core.tally import Count
from mainspring.stores.memory.guard import Guarded
from mainspring.stores.overview import (
    A_SECOND,
    MOST,
    MOST_LINES,
    Census,
    Entry,
    EntryFilter,
    EntryPage,
    Found,
    NewEntry,
    NodeReport,
    QueueRule,
    Search,
    Tally,
    must_be_a_limit,
)
from mainspring.stores.records import JobView
from mainspring.stores.searching import fits, previewed


class OverviewRole(Guarded):
    """The store as a whole. Walks over all there is: it is in memory."""

    async def search(
        self,
        which: Search,
        *,
        limit: int = 50,
        after: JobId | None = None,
        budget: timedelta = A_SECOND,
        preview: int | None = None,
        accept: Callable[[JobView], bool] | None = None,
    ) -> Found:
        del budget  # all of it is read in less
        with self._locked():
            views = [row.view for row in self._tables.rows.values()]
        older = (view for view in views if after is None or view.job.id < after)
        ordered = sorted(older, key=lambda view: view.job.id.int, reverse=True)
        jobs: list[JobView] = []
        looked = 0
        while looked < len(ordered) and len(jobs) < limit:
            if fits(which, ordered[looked]) and (accept is None or accept(ordered[looked])):
                jobs.append(ordered[looked])
            looked += 1
        last = ordered[looked - 1] if looked else None
        return Found(
            jobs=tuple(previewed(view, preview) for view in jobs),
            after=last.job.id if last and looked < len(ordered) else None,
            looked=looked,
            back_to=last.enqueued_at if last else None,
        )

    async def census(self, since: datetime, *, budget: timedelta = A_SECOND) -> Census:
        del budget
        with self._locked() as now:
            views = [row.view for row in self._tables.rows.values()]
        active = [view for view in views if view.job.finished_at is None]
        kinds = sorted({(view.job.queue, str(view.job.task)) for view in active})
        seconds = max((now - since).total_seconds(), 1)
        enqueued = sum(view.enqueued_at >= since for view in views)
        return Census(
            at=now,
            counts=tuple(_count(kind, active, now) for kind in kinds),
            enqueued=min(enqueued, int(MOST * seconds)),
        )

    async def write_tallies(self, tallies: Sequence[Tally], *, drop: tuple[timedelta, datetime] | None = None) -> None:
        with self._locked():
            kept = self._tables.tallies
            for tally in tallies:
                kept[tally.span, tally.at, tally.by] = tally
            if drop:
                for place in [place for place in kept if place[0] == drop[0] and place[1] < drop[1]]:
                    del kept[place]

    async def tallies(self, span: timedelta, since: datetime, until: datetime | None = None) -> tuple[Tally, ...]:
        with self._locked():
            kept = tuple(self._tables.tallies.values())
        found = [one for one in kept if one.span == span and one.at >= since and (until is None or one.at < until)]
        return tuple(sorted(found, key=lambda one: (one.at, one.by)))

    async def report(self, node: NodeId, term: int, body: bytes) -> None:
        with self._locked() as now:
            self._tables.living(node, term)
            self._tables.reports[node] = NodeReport(node=node, at=now, body=body)

    async def reports(self) -> Mapping[NodeId, NodeReport]:
        with self._locked():
            return dict(self._tables.reports)

    async def write_audit(self, entries: Sequence[NewEntry], *, at: datetime | None = None) -> None:
        with self._locked() as now:
            for entry in entries:
                id_ = next(self._tables.entry_ids)
                self._tables.entries[id_] = Entry(id=id_, at=at or now, entry=entry)

    async def audit(self, which: EntryFilter, *, limit: int = 50, after: int | None = None) -> EntryPage:
        with self._locked():
            lines = list(reversed(self._tables.entries.values()))
        older = [line for line in lines if after is None or line.id < after]
        found = list(islice((line for line in older[:MOST_LINES] if _is_meant(line, which)), limit + 1))
        page = tuple(found[:limit])
        if len(found) > limit:
            return EntryPage(entries=page, after=page[-1].id)
        return EntryPage(entries=page, after=older[MOST_LINES - 1].id if len(older) > MOST_LINES else None)

    async def limit_queue(self, queue: str, concurrency: int | None, *, by: str = "") -> bool:
        must_be_a_limit(concurrency)
        with self._locked():
            changed = self._tables.gates.limit(queue, concurrency, by)
        if changed:
            self._ring()
        return changed

    async def queue_rules(self) -> tuple[QueueRule, ...]:
        with self._locked():
            gates, paused = self._tables.gates, dict(self._tables.paused)
            declared = {gate.name: gate for gate in gates.declared if gate.scope is Scope.QUEUE}
            limits = dict(gates.limits)
        return tuple(
            QueueRule(
                name=name,
                paused=paused.get(name),
                declared=declared[name].concurrency if name in declared else None,
                rate=declared[name].rate if name in declared else None,
                limit=limits[name][0] if name in limits else None,
                by=limits[name][1] if name in limits else "",
            )
            for name in sorted({*declared, *limits, *paused})
        )

    async def last_runs(self, schedules: Sequence[Name], *, limit: int = 10) -> Mapping[Name, tuple[Run, ...]]:
        with self._locked():
            runs = list(self._tables.plans.runs.by_id.values())
        found = {name: nlargest(limit, (run for run in runs if run.schedule == name), key=_id) for name in schedules}
        return {name: tuple(some) for name, some in found.items() if some}


def _id(run: Run) -> int:
    return run.id.int


def _count(kind: tuple[str, str], active: Sequence[JobView], now: datetime) -> Count:
    jobs = [view.job for view in active if (view.job.queue, str(view.job.task)) == kind]
    waiting = [job for job in jobs if job.state is not State.RUNNING]
    due = [job for job in waiting if job.run_at <= now]
    return Count(
        queue=kind[0],
        task=kind[1],
        due=min(len(due), MOST),
        later=min(len(waiting) - len(due), MOST),
        running=min(len(jobs) - len(waiting), MOST),
        oldest=min((job.run_at for job in due), default=None),
    )


def _is_meant(line: Entry, which: EntryFilter) -> bool:
    entry = line.entry
    return (
        which.who in {None, entry.who} and which.action in {None, entry.action} and which.about in {None, entry.about}
    )
