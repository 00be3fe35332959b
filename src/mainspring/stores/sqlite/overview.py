"""The role `Overview` of the store. What reads here waits for no writer."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta

from mainspring.core.job import JobId, NodeId
from mainspring.core.names import Name
from mainspring.core.schedule import Run
from mainspring.stores.overview import (
    A_SECOND,
    Census,
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
from mainspring.stores.sqlite import audit as log
from mainspring.stores.sqlite import limits, runs
from mainspring.stores.sqlite import tallies as kept
from mainspring.stores.sqlite.census import census
from mainspring.stores.sqlite.handle import Handle
from mainspring.stores.sqlite.search import search


class OverviewVerbs(Handle):
    """What is asked of a store as a whole."""

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
        return await self._search(search, which, limit, after, budget, preview=preview, accept=accept)

    async def census(self, since: datetime, *, budget: timedelta = A_SECOND) -> Census:
        return await self._search(census, since, budget)

    async def write_tallies(self, tallies: Sequence[Tally], *, drop: tuple[timedelta, datetime] | None = None) -> None:
        await self._write(kept.write, tallies, drop)

    async def tallies(self, span: timedelta, since: datetime, until: datetime | None = None) -> tuple[Tally, ...]:
        return await self._read(kept.read, span, since, until)

    async def report(self, node: NodeId, term: int, body: bytes) -> None:
        await self._write(kept.report, node, term, body)

    async def reports(self) -> Mapping[NodeId, NodeReport]:
        return await self._read(kept.reports)

    async def write_audit(self, entries: Sequence[NewEntry], *, at: datetime | None = None) -> None:
        await self._write(log.write, entries, at)

    async def audit(self, which: EntryFilter, *, limit: int = 50, after: int | None = None) -> EntryPage:
        return await self._read(log.page, which, limit, after)

    async def limit_queue(self, queue: str, concurrency: int | None, *, by: str = "") -> bool:
        must_be_a_limit(concurrency)
        return await self._write(limits.limit, queue, concurrency, by)

    async def queue_rules(self) -> tuple[QueueRule, ...]:
        return await self._read(limits.rules)

    async def last_runs(self, schedules: Sequence[Name], *, limit: int = 10) -> Mapping[Name, tuple[Run, ...]]:
        return await self._read(runs.last_runs, schedules, limit)
