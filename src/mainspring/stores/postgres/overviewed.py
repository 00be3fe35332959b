"""The role `Overview` of the store."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import cached_property
from typing import Final

from mainspring.core.job import JobId, NodeId
from mainspring.core.names import Name
from mainspring.core.schedule import Run
from mainspring.errors import StoreUnavailable
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
from mainspring.stores.postgres import census, gates, overview, runs, search
from mainspring.stores.postgres.handle import Handle
from mainspring.stores.postgres.search import AT_LEAST, Looking, Time
from mainspring.stores.postgres.trouble import was_cut_off
from mainspring.stores.postgres.verb import Verb
from mainspring.stores.records import JobView

LATE: Final = 0.25
"""Seconds that are waited for a server which should have cut a statement off by itself."""


class Turns:
    """A few at a time on each event loop: the others wait until it is their turn, and their time begins then."""

    def __init__(self, few: int) -> None:
        self._few = few
        self._by_loop: dict[asyncio.AbstractEventLoop, asyncio.Semaphore] = {}

    def here(self) -> asyncio.Semaphore:
        loop = asyncio.get_running_loop()
        found = self._by_loop.get(loop)
        if found is None:
            going_on = {one: turn for one, turn in tuple(self._by_loop.items()) if not one.is_closed()}
            found = asyncio.Semaphore(self._few)
            self._by_loop = {**going_on, loop: found}
        return found


class OverviewVerbs(Handle):
    """What is asked of a store as a whole."""

    @cached_property
    def _turns(self) -> Turns:
        """Of what may take a second each time: however many people search, nodes have connections left."""
        return Turns(max(1, self._settings.connections // 2))

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
        async with self._turns.here():
            looking = Looking.of(which, limit, after, budget.total_seconds(), preview=preview, accept=accept)
            await self._in_time(lambda: search.search(looking), looking.time, lambda: looking.is_answered)
        return looking.found

    async def census(self, since: datetime, *, budget: timedelta = A_SECOND) -> Census:
        async with self._turns.here():
            counting = census.Counting(since, Time(budget.total_seconds()))
            await self._in_time(
                lambda: census.count(self._at, counting), counting.time, lambda: counting.at is not None
            )
        return counting.census(self.now())

    async def _in_time(self, verb: Callable[[], Verb[None]], time: Time, is_answered: Callable[[], bool]) -> None:
        """Run a verb that keeps what it finds, and cut it off when its time is up.

        The server cuts off a statement that takes too long. One that does not even do that costs a connection; and if
        it has not answered anything before, that is trouble, and not a search that found nothing.
        """
        self._connections.must_be_open()
        try:
            async with asyncio.timeout(max(time.left, AT_LEAST) + LATE):
                await self._connections.run(verb, whole=True, again=False)
        except TimeoutError as error:
            if not is_answered():
                raise StoreUnavailable(self._settings.store, "the server does not answer in time") from error
        except StoreUnavailable as error:
            if not (is_answered() or was_cut_off(error)):
                raise

    async def write_tallies(self, tallies: Sequence[Tally], *, drop: tuple[timedelta, datetime] | None = None) -> None:
        await self._run(lambda: overview.write_tallies(tallies, drop), whole=True)

    async def tallies(self, span: timedelta, since: datetime, until: datetime | None = None) -> tuple[Tally, ...]:
        return await self._run(lambda: overview.tallies(span, since, until))

    async def report(self, node: NodeId, term: int, body: bytes) -> None:
        await self._run(lambda: overview.report(self._at, node, term, body))

    async def reports(self) -> Mapping[NodeId, NodeReport]:
        return await self._run(overview.reports)

    async def write_audit(self, entries: Sequence[NewEntry], *, at: datetime | None = None) -> None:
        """As the port says. It is not tried again where it may have been committed: a line has no id of its own."""
        self._connections.must_be_open()
        if entries:
            await self._run(lambda: overview.write_audit(at or self._at, entries), again=False)

    async def audit(self, which: EntryFilter, *, limit: int = 50, after: int | None = None) -> EntryPage:
        return await self._run(lambda: overview.audit(which, limit, after))

    async def limit_queue(self, queue: str, concurrency: int | None, *, by: str = "") -> bool:
        must_be_a_limit(concurrency)
        changed = await self._run(lambda: gates.limit_queue(queue, concurrency, by), whole=True)
        if changed:
            self._opened_up()
        return changed

    async def queue_rules(self) -> tuple[QueueRule, ...]:
        return await self._run(overview.queue_rules)

    async def last_runs(self, schedules: Sequence[Name], *, limit: int = 10) -> Mapping[Name, tuple[Run, ...]]:
        return await self._run(lambda: runs.last(schedules, limit))
