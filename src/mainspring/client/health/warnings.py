"""What needs a person, as far as it can be seen in a moment: for the overview, which is looked at every few seconds.

Where the doctor counts, this goes by the last census; where the doctor reads all there is, this asks for what is due.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

from mainspring.client.health.finding import Finding, Level, fail, warn
from mainspring.client.health.held import held_back
from mainspring.client.health.messages import FAILING, messages
from mainspring.client.health.work import breakers, live_nodes
from mainspring.client.standing import is_well
from mainspring.client.words import ago, count, length
from mainspring.core.job import NodeId
from mainspring.core.steps import IN_TIME
from mainspring.core.tally import Count, Counted
from mainspring.runtime.report import Report
from mainspring.stores.overview import QueueRule
from mainspring.stores.port import Store
from mainspring.stores.records import NodeView

PATIENCE: Final = 2.0
"""Seconds that all questions together may take."""
STALE: Final = timedelta(minutes=3)
"""Since the last census; a store at rest is counted once a minute."""
SETTLED: Final = timedelta(seconds=30)
"""After it joined, a node has counted, if it does at all."""
SKEWED: Final = 1.0
"""Seconds that the clock of a machine may differ from the store's."""
MOST_NAMED: Final = 5
MOST_LATE: Final = 50
WORKER: Final = "mainspring worker MODULE:APP"


async def warnings(
    store: Store,
    nodes: Sequence[NodeView],
    reports: Mapping[NodeId, Report],
    census: Counted,
    rules: Iterable[QueueRule],
) -> tuple[Finding, ...]:
    """Say what needs a person, the worst first."""
    now = store.now()
    well = [view for view in nodes if is_well(view, now)]
    found = [
        *(one for one in live_nodes(tuple(nodes), now) if one.level is not Level.OK),
        *_of_census(census, well, now),
        *_of_reports({view.node.id: reports[view.node.id] for view in well if view.node.id in reports}),
        *_of_queues(census, rules),
        *[one async for one in _asked(store, anyone=bool(well))],
    ]
    return tuple(sorted(found, key=lambda one: one.level is not Level.FAIL))


# What follows from what was read already.


def _of_census(census: Counted, well: Sequence[NodeView], now: datetime) -> list[Finding]:
    due = [one for one in census.counts if one.due]
    found = [*_untaken(due, well), *_not_counted(census, well, now)] if well else [_nobody(due)]
    if not census.complete:
        do = "what is shown is the least that there is"
        found.append(warn("census", "there are more jobs than could be counted in time", do, "census_cut_short"))
    return found


def _not_counted(census: Counted, well: Sequence[NodeView], now: datetime) -> list[Finding]:
    if census.counted_at is None:
        if all(now - view.joined_at < SETTLED for view in well):
            return []
        do = "wait for a minute; nodes that are started with overview=False do not count"
        return [warn("census", "nobody has counted yet what waits and runs", do, "census_missing")]
    if now - census.counted_at > STALE:
        do = "see the logs of the nodes, and whether one of them hangs"
        says = f"what waits and runs was counted last {ago(census.counted_at, now)}"
        return [warn("census", says, do, "census_stale")]
    return []


def _nobody(due: Sequence[Count]) -> Finding:
    jobs = sum(one.due for one in due)
    if not jobs:
        return warn("nodes", "no node is at work", f"start one: {WORKER}", "no_node")
    says = f"no node is at work, and {count(jobs, 'job is', 'jobs are')} due, as far as was counted"
    return fail("nodes", says, f"start one: {WORKER}", "no_node")


def _untaken(due: Iterable[Count], well: Iterable[NodeView]) -> list[Finding]:
    """Name what no live node would take: of a task that none knows, or in a queue that none of those serves."""
    serving = [({str(task) for task in view.node.tasks}, view.node.queues) for view in well]
    due = [one for one in due if one.task]  # of some stores nobody knows which
    unknown = [one for one in due if not any(one.task in tasks for tasks, _ in serving)]
    unserved = [
        one
        for one in due
        if one not in unknown
        and not any(one.task in tasks and (queues is None or one.queue in queues) for tasks, queues in serving)
    ]
    found = []
    if unknown:
        names = _named(sorted({one.task for one in unknown}))
        do = "deploy the code that has it, give the task its old name as an alias, or delete the jobs"
        found.append(warn("jobs", f"no live node knows the task of jobs that are due: {names}", do, "unknown_task"))
    if unserved:
        names = _named(sorted({one.queue for one in unserved}))
        do = "start a node that works for it: mainspring worker MODULE:APP --queue NAME"
        found.append(warn("jobs", f"no live node takes jobs that are due from {names}", do, "unserved_queue"))
    return found


def _of_reports(reports: Mapping[NodeId, Report]) -> list[Finding]:
    found = []
    skewed = {node: one.skew for node, one in reports.items() if abs(one.skew) > SKEWED}
    if skewed:
        worst = max(skewed, key=lambda node: abs(skewed[node]))
        where = "behind" if skewed[worst] > 0 else "ahead of"
        says = f"the clock of {worst} is {length(abs(skewed[worst]))} {where} the store's"
        also = f", and those of {len(skewed) - 1} more nodes differ" if len(skewed) > 1 else ""
        found.append(warn("node time", f"{says}{also}", "set the clocks by NTP", "clock_skew"))
    found += left_bodies(reports)
    failing = [
        f"{service.name} on {node} ({service.failures} in a row): {service.error}"
        for node, report in reports.items()
        for service in report.services
        if service.failures >= FAILING and not service.is_own
    ]
    if failing:
        more = f" and {len(failing) - 1} more" if len(failing) > 1 else ""
        do = "see the logs of the node; the service tries again by itself"
        found.append(warn("services", f"keeps failing: {failing[0]}{more}", do, "service_failing"))
    return found


def left_bodies(reports: Mapping[NodeId, Report]) -> list[Finding]:
    """Warn of bodies that did not stop when their attempts ended."""
    left = [
        f"{job.task} on {node} ({job.id})"
        for node, report in reports.items()
        for job in report.running
        if job.is_abandoned
    ]
    if left:
        runs = "runs" if len(left) == 1 else "run"
        says = f"{count(len(left), 'body', 'bodies')} did not stop when told to, and still {runs}: {_named(left)}"
        do = "each holds its place until it ends, or the process does; to see where: mainspring nodes stacks NODE"
        return [warn("jobs", says, do, "body_left")]
    return []


def _of_queues(census: Counted, rules: Iterable[QueueRule]) -> list[Finding]:
    waiting: dict[str, int] = {}
    for one in census.counts:
        waiting[one.queue] = waiting.get(one.queue, 0) + one.due + one.later
    held = [rule.name for rule in rules if rule.paused and waiting.get(rule.name)]
    if not held:
        return []
    told = _named([f"{name} ({count(waiting[name], 'job')})" for name in held])
    do = f"when they may go on: mainspring queues resume {held[0]}"
    return [warn("queues", f"paused with jobs in them: {told}", do, "queue_paused")]


# What has to be asked for.


async def _asked(store: Store, *, anyone: bool) -> AsyncIterator[Finding]:
    checks: Mapping[str, Callable[[], Awaitable[Iterable[Finding]]]] = {
        "schedules": lambda: late(store, anyone=anyone),
        "breakers": lambda: breakers(store),
        "outboxes": lambda: messages(store, anyone=anyone),
        "held transactions": lambda: held_back(store),
    }
    end = asyncio.get_running_loop().time() + PATIENCE
    unanswered = []
    for name, check in checks.items():
        try:
            async with asyncio.timeout_at(end):
                found = await check()
        except TimeoutError:
            unanswered.append(name)
            continue
        for one in found:
            if one.level is not Level.OK:
                yield one
    if unanswered:
        do = "the store is busy or far away; mainspring doctor has more patience"
        says = f"these were not looked at, since the store took longer than {PATIENCE:g} s: {', '.join(unanswered)}"
        yield warn("overview", says, do, "unanswered")


async def late(store: Store, *, anyone: bool) -> list[Finding]:
    """Name schedules whose slot nobody has decided in time."""
    looked = await store.due(MOST_LATE)
    late = [
        one.schedule for one in looked.looks if one.schedule.next_at and looked.now - one.schedule.next_at > IN_TIME
    ]
    if not late:
        return []
    since = min(one.next_at for one in late if one.next_at)
    more = " or more" if len(looked.looks) == MOST_LATE else ""
    names = _named([str(one.name) for one in late])
    says = f"{count(len(late), 'schedule')}{more} late, the first by a slot of {ago(since, looked.now)}: {names}"
    do = "see the logs of the nodes: one has to tick" if anyone else f"start a node: {WORKER}"
    return [fail("schedules", says, do, "schedule_late")]


def _named(names: Sequence[str]) -> str:
    more = len(names) - MOST_NAMED
    return ", ".join(names[:MOST_NAMED]) + (f" and {more:,} more" if more > 0 else "")
