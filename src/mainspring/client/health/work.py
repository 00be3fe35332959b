"""Checks of the work in a store: who is at it, what waits that nobody will run, and what is held back."""

from datetime import datetime, timedelta
from typing import Final

from mainspring.client.health.finding import Finding, fail, ok, warn
from mainspring.client.searching import search
from mainspring.client.standing import SILENT, standing
from mainspring.client.words import count, length
from mainspring.core.breaker import Phase
from mainspring.core.job import State
from mainspring.core.limits import CLOCK_STEP
from mainspring.stores.overview import Search
from mainspring.stores.port import Store
from mainspring.stores.records import NodeView

STANDINGS: Final = ("alive", "gone", "silent")
LOOKED_AT: Final = 100
SLACK: Final = timedelta(seconds=5)
MOST_BREAKERS: Final = 1000


def live_nodes(nodes: tuple[NodeView, ...], now: datetime) -> list[Finding]:
    """Say who is at work, and who only seems to be."""
    by_standing = {word: [one.node.id for one in nodes if standing(one, now) == word] for word in STANDINGS}
    well, gone, silent = by_standing.values()
    ahead = max((one.renewed_at - now for one in nodes), default=timedelta(0))
    found = [ok("nodes", f"{count(len(well), 'node')} at work: {', '.join(well)}" if well else "none is at work")]
    if gone:
        do = "start a worker: it takes over what they held"
        found.append(
            warn("nodes", f"their processes have ended, and nobody has noticed: {', '.join(gone)}", do, "node_gone")
        )
    if silent:
        do = "see whether they hang, or their clocks differ; a worker that runs takes over from the dead"
        found.append(warn("nodes", f"silent for more than {length(SILENT)}: {', '.join(silent)}", do, "node_silent"))
    if ahead > SLACK:
        do = "the clock has been set back, or the clocks of two machines differ; set them by NTP"
        found.append(warn("node time", f"a node renewed its lease {length(ahead)} from now", do, "clock_skew"))
    return found


async def waiting(store: Store, anyone: bool) -> list[Finding]:
    """Say what waits that nobody will run."""
    queues = await store.queues()
    jobs = sum(one.waiting for one in queues)
    if not anyone:
        if not jobs:
            return [ok("jobs", "nothing waits")]
        says = f"no node is at work, and {count(jobs, 'job waits', 'jobs wait')}"
        is_due = any([await _has_due(store, one.name) for one in queues if one.waiting and not one.paused])
        return [(fail if is_due else warn)("jobs", says, "start one: mainspring worker MODULE:APP", "no_node")]
    if unknown := await store.unknown_tasks(timedelta(0)):
        names = ", ".join(str(one) for one in unknown)
        do = "deploy the code that has it, give the task its old name as an alias, or delete the jobs"
        return [warn("jobs", f"no live node knows the task of jobs that are due: {names}", do, "unknown_task")]
    return [ok("jobs", f"{count(jobs, 'job')} waiting; live nodes know the tasks of all that are due")]


async def ahead(store: Store) -> list[Finding]:
    """Warn of jobs that were to start at once and are due later than now: the clock was ahead when they were enqueued.

    One page of the newest is read: those that such a clock dated are among them.
    """
    found = await search(store, Search(states=(State.READY,)), limit=LOOKED_AT, preview=0)
    late = [view.job for view in found.jobs if view.job.run_at > store.now() + CLOCK_STEP]
    if not late:
        return []
    first = min(job.run_at for job in late) - store.now()
    many = f"{count(len(late), 'job')}{' or more' if len(found.jobs) == LOOKED_AT else ''}"
    says = f"{many} ready and due in {length(first)} at the earliest, because the clock was ahead at the enqueue"
    do = "make them due now: in the dashboard, or by POST /api/v1/jobs/run_now"
    return [warn("jobs", says, do, "jobs_ahead")]


async def _has_due(store: Store, queue: str) -> bool:
    """Say whether a job could start now. Of those that were to wait for their time, some are looked at."""
    if (await search(store, Search(queue=queue, states=(State.READY,)), limit=1, preview=0)).jobs:
        return True
    which = Search(queue=queue, states=(State.SCHEDULED, State.RETRYING))
    later = await search(store, which, limit=LOOKED_AT, preview=0)
    return any(view.job.run_at <= store.now() for view in later.jobs)


async def paused(store: Store) -> list[Finding]:
    """Say which queues stand still with jobs in them."""
    stopped = [one for one in await store.queues() if one.paused]
    held = [f"{one.name} ({count(one.waiting, 'job')})" for one in stopped if one.waiting]
    if held:
        do = f"when they may go on: mainspring queues resume {stopped[0].name}"
        return [warn("queues", f"paused with jobs in them: {', '.join(held)}", do, "queue_paused")]
    return [ok("queues", f"{count(len(stopped), 'paused queue')}, none with jobs" if stopped else "none is paused")]


async def breakers(store: Store) -> list[Finding]:
    """Say which tasks are held back by their breakers."""
    page = await store.list_breakers(limit=MOST_BREAKERS)
    shut = [view for view in page.breakers if view.circuit.phase is not Phase.CLOSED]
    if not shut:
        return []
    told = ", ".join(f"{view.task} (forced)" if view.circuit.forced else str(view.task) for view in shut[:5])
    more = f" and {len(shut) - 5} more" if len(shut) > 5 else ""
    do = "see what failed: mainspring breakers show TASK; mainspring breakers reset TASK lets its jobs go on"
    return [warn("breakers", f"jobs wait behind the open breakers of {told}{more}", do, "breaker_open")]
