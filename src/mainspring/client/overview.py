"""A store as a whole, for programs and people: `app.overview`.

Everything here reads what nodes have counted and said: it costs the same however many jobs there are. Only while no node
counts, what waits and runs is counted here, a little. Twins for code without an event loop end in `_sync`.
"""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Unpack

from msgspec import Struct
from msgspec.structs import replace

from mainspring.client.connection import Connection
from mainspring.client.health.finding import Finding
from mainspring.client.health.warnings import STALE, warnings
from mainspring.client.look import FINE, SPARKLINE, Look, QueueLook, look, starts_of, step_for
from mainspring.client.searching import Which, overview_of, search_of
from mainspring.client.spans import Fetching, Spans, last_census
from mainspring.client.standing import is_well, standing
from mainspring.core.job import JobId, NodeId
from mainspring.core.tally import MINUTE, TEN_MINUTES, Count, Counted, start_of
from mainspring.duration import Duration, duration
from mainspring.runtime.report import Report, ServiceReport, ServiceState
from mainspring.runtime.report import read as read_report
from mainspring.stores.overview import (
    EntryFilter,
    EntryPage,
    Found,
    QueueRule,
)
from mainspring.stores.overview import Overview as Role
from mainspring.stores.port import Store
from mainspring.stores.records import NodeView

LONGEST: Final = 14 * 24 * 60
"""Minutes that can be looked back."""
A_DAY: Final = 24 * 60
A_LONG_WHILE: Final = 60.0
"""Seconds for which a look over more than a day will do for those who take one that is not new."""
RECENT: Final = 10
"""Minutes among which the last census is looked for."""
WARNED_FOR: Final = 5.0
"""Seconds for which warnings are not looked for again."""
A_LITTLE: Final = timedelta(milliseconds=250)
"""What a census may take that is taken here."""
MOST_HELD: Final = 8
"""Looks, over different lengths of time, that are kept for a moment."""
MOST: Final = 500
"""Jobs, or lines of the audit log, in one answer."""


class NodeLook(Struct, frozen=True, kw_only=True):
    """A node, and what it said last."""

    view: NodeView
    standing: str
    """alive, silent (it has not renewed for a while), gone (its process has ended) or dead."""
    reported_at: datetime | None = None
    report: Report | None = None

    @property
    def busy(self) -> int:
        """Places that are taken: by jobs that run, and by bodies that did not stop when their attempts ended.

        Jobs that were claimed ahead are running to the store, and have no place yet.
        """
        has_process = self.standing in {"alive", "silent"}  # the last report of another one is out of date
        left = sum(job.is_abandoned for job in self.report.running) if self.report and has_process else 0
        return min(self.view.running + left, self.view.node.concurrency)


class QueuesLook(Struct, frozen=True, kw_only=True):
    """All queues that anybody knows of, by name. What waits and runs in them is what was counted last."""

    queues: tuple[QueueLook, ...]
    counted_at: datetime | None = None
    """When what waits and runs was counted; None: nobody has."""
    complete: bool = True
    """Whether everything was counted then."""


class ServiceLook(Struct, frozen=True, kw_only=True):
    """A service on a node, as the node said last."""

    node: NodeId
    standing: str
    reported_at: datetime
    is_in_trouble: bool = False
    """Its last step raised, it has ended, or its node does not stand as it should."""
    service: ServiceReport


@dataclass(frozen=True, slots=True)
class Held:
    """A look that is kept for a moment."""

    look: Look
    store: Store
    since: float


class Overview:
    """Look at a store as a whole."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._fetching = Fetching()
        self._spans = Spans()
        self._held: dict[int, Held] = {}
        self._looking: dict[tuple[asyncio.AbstractEventLoop, int], asyncio.Task[Look]] = {}
        """Who comes while somebody looks waits, and gets the same; also if it fails."""
        self._warned: tuple[float, Store, tuple[Finding, ...]] | None = None
        self._counted: tuple[float, Store, Counted] | None = None

    # Looking.

    async def look(self, *, minutes: int = 60, no_older_than: Duration = 0) -> Look:
        """Say how the store has been doing in the last minutes, three hours by minute and more by ten of them.

        What waits and runs is what was counted last (`counted_at`), and not what is there this moment. Of a store that
        keeps no counts it is what is there, and all that is known. With `no_older_than` a look that somebody has had in
        that time will do: many who watch cost as much as one.
        """
        minutes = min(max(minutes, 1), LONGEST)
        patience = duration(no_older_than).total_seconds()
        if not patience:
            return await self._look(minutes)
        if minutes > A_DAY:  # which is more than is kept from one look to the next
            patience = max(patience, A_LONG_WHILE)
        key = asyncio.get_running_loop(), minutes
        under_way = self._looking.get(key)
        if under_way is None:
            under_way = self._looking[key] = asyncio.create_task(self._look_for_all(minutes, patience))
            under_way.add_done_callback(lambda task: self._looked(key, task))
        return await asyncio.shield(under_way)  # whoever gives up does not take the others along

    async def _look_for_all(self, minutes: int, patience: float) -> Look:
        """Look once for all who ask, unless somebody has just looked."""
        store = await self._connection.store()
        held = self._held.get(minutes)
        since = self._connection.clock.monotonic()
        if held and held.store is store and since - held.since < patience:
            return held.look
        found = await self._look(minutes)
        self._held = {**dict(list(self._held.items())[1 - MOST_HELD :]), minutes: Held(found, store, since)}
        return found

    def _looked(self, key: tuple[asyncio.AbstractEventLoop, int], task: "asyncio.Task[Look]") -> None:
        self._looking.pop(key, None)
        if not task.cancelled():
            task.exception()  # all who waited were told; there may be none

    async def _look(self, minutes: int) -> Look:
        store = await self._connection.store()
        if not isinstance(store, Role):
            return await self._present(store)
        role: Role = store
        step = step_for(minutes)
        now = store.now()
        since = start_of(now, step) - (minutes * MINUTE // step - 1) * step
        recent, wider = await self._fetching.fetch(
            role,
            step,
            minutes=_back_to(now, since, step),
            wider=since,
            now=now,
            monotonic=self._connection.clock.monotonic(),
        )
        spans = await self._spans.put_together(step, recent, wider)
        nodes = [view for view in await store.nodes() if view.alive]
        written = last_census(recent, now)
        census = await self._census(store, role, written, nodes)
        rules = await role.queue_rules()
        total = await self._spans.total([spans[at] for at in starts_of(since, now, step) if at in spans])
        found = look(spans, at=now, since=since, step=step, census=census, rules=rules, total=total)
        found = replace(found, queues=tuple(served(one, nodes) for one in found.queues))
        told = await self._warnings(store, nodes, replace(census, counted_at=written.counted_at), rules)
        return replace(found, warnings=told)

    async def _present(self, store: Store) -> Look:
        """Say what is there, of a store that keeps no counts."""
        now = store.now()
        nodes = [view for view in await store.nodes() if view.alive]
        queues = await store.queues()
        counts = tuple(Count(queue=one.name, task="", due=one.waiting, running=one.running) for one in queues)
        census = _with_nodes(Counted(counted_at=now, counts=counts), nodes)
        rules = tuple(QueueRule(name=one.name, paused=one.paused) for one in queues if one.paused)
        since = start_of(now, MINUTE)
        found = look({}, at=now, since=since, step=MINUTE, census=census, rules=rules, total=Counted())
        found = replace(found, queues=tuple(served(one, nodes) for one in found.queues))
        told = await self._warnings(store, nodes, census, rules)
        return replace(found, warnings=told, series=(), has_past=False)

    async def queues(self, *, also: Iterable[str] = ()) -> QueuesLook:
        """Say how each queue has been doing in the last hour; `also` names some that nothing may have happened in."""
        store, role = await self._store()
        now = store.now()
        since = start_of(now, MINUTE) - (SPARKLINE - 1) * MINUTE
        monotonic = self._connection.clock.monotonic()
        recent, _ = await self._fetching.fetch(role, MINUTE, minutes=since, wider=since, now=now, monotonic=monotonic)
        nodes = [view for view in await store.nodes() if view.alive]
        spans = await self._spans.put_together(MINUTE, recent, ())
        census = await self._census(store, role, last_census(recent, now), nodes)
        rules = await role.queue_rules()
        total = await self._spans.total([spans[at] for at in starts_of(since, now, MINUTE) if at in spans])
        seen = look(spans, at=now, since=since, step=MINUTE, census=census, rules=rules, total=total)
        found = {one.name: one for one in seen.queues}
        for name in (*also, *(queue for view in nodes for queue in view.node.queues or ())):
            found.setdefault(name, QueueLook(name=name))
        return QueuesLook(
            queues=tuple(served(found[name], nodes) for name in sorted(found)),
            counted_at=census.counted_at,
            complete=census.complete,
        )

    async def nodes(self, *, dead_too: bool = False) -> tuple[NodeLook, ...]:
        """List the nodes that have not ended, or all, with what each of them said last."""
        store = await self._connection.store()
        reports = await store.reports() if isinstance(store, Role) else {}
        now = store.now()
        return tuple(
            NodeLook(
                view=view,
                standing=standing(view, now),
                reported_at=said.at if said else None,
                report=read_report(said.body) if said else None,
            )
            for view in await store.nodes()
            if view.alive or dead_too
            for said in [reports.get(view.node.id)]
        )

    async def services(self) -> tuple[ServiceLook, ...]:
        """List the services of all nodes that have not ended: the app's first, by name."""
        await self._store()
        found = [
            service
            for one in await self.nodes()
            if one.report and one.reported_at
            for service in services_of(one.view.node.id, one.standing, one.reported_at, one.report)
        ]
        return tuple(sorted(found, key=_by_name))

    async def search(
        self, *, limit: int = 50, after: JobId | None = None, budget: Duration = "1s", **which: Unpack[Which]
    ) -> Found:
        """Look for jobs, the newest first, for about as long as `budget` says; an answer tells how far it got."""
        store, role = await self._store()
        wanted = search_of(which, store.now())
        return await role.search(wanted, limit=min(max(limit, 1), MOST), after=after, budget=duration(budget))

    async def audit(
        self,
        *,
        who: str | None = None,
        action: str | None = None,
        about: str | None = None,
        limit: int = 50,
        after: int | None = None,
    ) -> EntryPage:
        """Read what people had done, the newest first."""
        _, role = await self._store()
        which = EntryFilter(who=who, action=action, about=about)
        return await role.audit(which, limit=min(max(limit, 1), MOST), after=after)

    # For code without an event loop.

    def queues_sync(self, *, also: Iterable[str] = ()) -> QueuesLook:
        return self._connection.wait_for(lambda: self.queues(also=also))

    def look_sync(self, *, minutes: int = 60) -> Look:
        return self._connection.wait_for(lambda: self.look(minutes=minutes))

    def nodes_sync(self, *, dead_too: bool = False) -> tuple[NodeLook, ...]:
        return self._connection.wait_for(lambda: self.nodes(dead_too=dead_too))

    def services_sync(self) -> tuple[ServiceLook, ...]:
        return self._connection.wait_for(self.services)

    def search_sync(
        self, *, limit: int = 50, after: JobId | None = None, budget: Duration = "1s", **which: Unpack[Which]
    ) -> Found:
        return self._connection.wait_for(lambda: self.search(limit=limit, after=after, budget=budget, **which))

    # How it is done.

    async def _store(self) -> tuple[Store, Role]:
        store = await self._connection.store()
        return store, overview_of(store, "overview")

    async def _census(self, store: Store, role: Role, written: Counted, nodes: Sequence[NodeView]) -> Counted:
        """Return what was counted last; while nobody counts, count."""
        now = store.now()
        is_fresh = written.counted_at is not None and now - written.counted_at <= STALE
        if is_fresh or any(view.node.takes_census and is_well(view, now) for view in nodes):
            return written if written.counted_at else _with_nodes(written, nodes)
        begun = self._connection.clock.monotonic()
        if self._counted and self._counted[1] is store and begun - self._counted[0] < WARNED_FOR:
            return self._counted[2]
        census = await role.census(now, budget=A_LITTLE)
        counted = Counted(counted_at=census.at, complete=census.complete, counts=census.counts)
        self._counted = begun, store, _with_nodes(counted, nodes)
        return self._counted[2]

    async def _warnings(
        self, store: Store, nodes: Iterable[NodeView], census: Counted, rules: Iterable[QueueRule]
    ) -> tuple[Finding, ...]:
        now = self._connection.clock.monotonic()
        if self._warned and self._warned[1] is store and now - self._warned[0] < WARNED_FOR:
            return self._warned[2]
        reports = await store.reports() if isinstance(store, Role) else {}
        there = tuple(nodes)  # of those that are gone there may be many more
        alive = {view.node.id for view in there}
        said = {id_: report for id_ in alive & reports.keys() if (report := read_report(reports[id_].body))}
        found = await warnings(store, there, said, census, tuple(rules))
        self._warned = now, store, found
        return found


def services_of(node: NodeId, standing: str, at: datetime, report: Report) -> tuple[ServiceLook, ...]:
    """Name the services in a report of a node, the app's first."""
    found = [
        ServiceLook(
            node=node,
            standing=standing,
            reported_at=at,
            is_in_trouble=standing in {"silent", "gone"} or in_trouble(service),
            service=service,
        )
        for service in report.services
    ]
    return tuple(sorted(found, key=_by_name))


def in_trouble(service: ServiceReport) -> bool:
    """Say whether a service does not do what it is there for."""
    return service.failures > 0 or service.state in {ServiceState.FAILING, ServiceState.STOPPED}


def _by_name(one: ServiceLook) -> tuple[bool, str, str]:
    """Order by what stays: a service that fails now and then keeps its place under the eyes of who watches."""
    return (one.service.is_own, one.service.name, one.node)


def served(queue: QueueLook, nodes: Iterable[NodeView]) -> QueueLook:
    """Say who takes jobs from a queue."""
    serving = [view.node for view in nodes if view.node.queues is None or queue.name in view.node.queues]
    return replace(queue, nodes=len(serving), room=sum(node.concurrency for node in serving))


def _back_to(now: datetime, since: datetime, step: timedelta) -> datetime:
    """Say from when on minutes are read: those of a span that is about to be folded too."""
    if step == MINUTE:
        return min(since, start_of(now, MINUTE) - RECENT * MINUTE)
    return max(since, start_of(now - FINE, TEN_MINUTES) - 2 * TEN_MINUTES)


def _with_nodes(counted: Counted, nodes: Sequence[NodeView]) -> Counted:
    return replace(counted, nodes=len(nodes), places=sum(view.node.concurrency for view in nodes))
