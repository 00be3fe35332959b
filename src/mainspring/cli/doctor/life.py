"""Checks of what goes on in a store: whether commits are heard, who is at work, and what nobody will ever run."""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from mainspring.cli.doctor.finding import Finding, fail, ok, warn
from mainspring.cli.doctor.messages import messages
from mainspring.cli.doctor.plans import plans
from mainspring.cli.nodes import SILENT, standing
from mainspring.cli.words import count, length
from mainspring.core.breaker import Phase
from mainspring.core.job import State
from mainspring.errors import StoreError
from mainspring.stores.port import Store
from mainspring.stores.records import JobFilter, NodeView

COMMITTED_WITHIN: Final = 10.0  # seconds
HEARD_WITHIN: Final = 2.0  # seconds; a tenth of one is what the port promises
SOON: Final = 0.5
STANDINGS: Final = ("alive", "gone", "silent")
LOOKED_AT: Final = 100
SLACK: Final = timedelta(seconds=5)
QUEUE: Final = "mainspring.doctor"


class Bell(NamedTuple):
    """How commits of other processes are heard in a store of some kind."""

    unheard: str
    """What to do where they are not."""
    stuck: str
    """What to do where nothing can be committed."""
    rings: bool = True
    silent: str = "listen=false: nodes look by themselves, once a second"
    """Why there is none."""


FILE: Final = Bell(
    "jobs start late, by polling; see whether sockets can be made beside the file",
    "see which process holds its write lock",
)
ONE_PROCESS: Final = Bell("", "", rings=False, silent="one process has the file at a time: there is nobody to hear")
MOST_BREAKERS: Final = 1000
SERVER: Final = Bell(
    "jobs of other processes start up to a second late; see what is in between: a pooler, or another server",
    "see who holds locks there: SELECT * FROM pg_stat_activity WHERE wait_event_type = 'Lock'",
)


async def life(store: Store, make: Callable[[], Store], bell: Bell = FILE) -> AsyncGenerator[Finding, None]:
    """Look at an open store; `make` opens another door to the same one."""
    if bell.rings:
        yield await doorbell(store, make(), bell)
    else:
        yield ok("doorbell", bell.silent)
    nodes = await store.nodes()
    for finding in live_nodes(nodes, store.now()):
        yield finding
    well = [one for one in nodes if is_well(one, store.now())]
    for finding in await _waiting(store, bool(well)):
        yield finding
    async for finding in plans(store, {task for one in well for task in one.node.tasks}, anyone=bool(well)):
        yield finding
    for finding in await _paused(store):
        yield finding
    for finding in await _breakers(store):
        yield finding
    for finding in await messages(store, anyone=bool(well)):
        yield finding


async def doorbell(store: Store, other: Store, bell: Bell = FILE) -> Finding:
    """Have something change through another door, and listen for it: a queue that nobody uses stops and goes on."""
    heard = asyncio.Event()
    loop = asyncio.get_running_loop()

    def ring() -> None:
        loop.call_soon_threadsafe(heard.set)

    unwatch = store.watch(ring)
    try:
        async with asyncio.timeout(COMMITTED_WITHIN):
            await other.open()
            await other.pause(QUEUE, by="mainspring doctor", reason="tries the doorbell")
            heard.clear()
            await other.resume(QUEUE)
        return await _heard(heard, bell)
    except TimeoutError:
        return fail("doorbell", f"nothing could be committed within {COMMITTED_WITHIN:g} s", bell.stuck)
    except StoreError as error:
        return fail("doorbell", f"nothing can be committed: {error.problem}", "see what holds the store, and free it")
    finally:
        unwatch()
        await other.close()


async def _heard(heard: asyncio.Event, bell: Bell) -> Finding:
    began = time.monotonic()
    try:
        async with asyncio.timeout(HEARD_WITHIN):
            await heard.wait()
    except TimeoutError:
        return warn("doorbell", f"a commit was not heard within {HEARD_WITHIN:g} s", bell.unheard)
    took = time.monotonic() - began
    if took > SOON:
        return warn("doorbell", f"a commit is heard only after {length(took)}", "the machine is very busy")
    return ok("doorbell", f"a commit is heard within {1000 * took:.0f} ms")


def live_nodes(nodes: tuple[NodeView, ...], now: datetime) -> list[Finding]:
    """Say who is at work, and who only seems to be."""
    by_standing = {word: [one.node.id for one in nodes if standing(one, now) == word] for word in STANDINGS}
    well, gone, silent = by_standing.values()
    ahead = max((one.renewed_at - now for one in nodes), default=timedelta(0))
    found = [ok("nodes", f"{count(len(well), 'node')} at work: {', '.join(well)}" if well else "none is at work")]
    if gone:
        do = "start a worker: it takes over what they held"
        found.append(warn("nodes", f"their processes have ended, and nobody has noticed: {', '.join(gone)}", do))
    if silent:
        do = "see whether they hang, or their clocks differ; a worker that runs takes over from the dead"
        found.append(warn("nodes", f"silent for more than {length(SILENT)}: {', '.join(silent)}", do))
    if ahead > SLACK:
        do = "the clock has been set back, or the clocks of two machines differ; set them by NTP"
        found.append(warn("node time", f"a node renewed its lease {length(ahead)} from now", do))
    return found


def is_well(node: NodeView, now: datetime) -> bool:
    return standing(node, now) == "alive"


async def _waiting(store: Store, anyone: bool) -> list[Finding]:
    """Say what waits that nobody will run."""
    queues = await store.queues()
    waiting = sum(one.waiting for one in queues)
    if not anyone:
        if not waiting:
            return [ok("jobs", "nothing waits")]
        says = f"no node is at work, and {count(waiting, 'job waits', 'jobs wait')}"
        is_due = any([await _has_due(store, one.name) for one in queues if one.waiting and not one.paused])
        return [(fail if is_due else warn)("jobs", says, "start one: mainspring worker MODULE:APP")]
    if unknown := await store.unknown_tasks(timedelta(0)):
        names = ", ".join(str(one) for one in unknown)
        do = "deploy the code that has it, give the task its old name as an alias, or delete the jobs"
        return [warn("jobs", f"no live node knows the task of jobs that are due: {names}", do)]
    return [ok("jobs", f"{count(waiting, 'job')} waiting; live nodes know the tasks of all that are due")]


async def _has_due(store: Store, queue: str) -> bool:
    """Say whether a job could start now. Of those that were to wait for their time, some are looked at."""
    if (await store.list_jobs(JobFilter(queue=queue, states=(State.READY,)), limit=1)).jobs:
        return True
    later = await store.list_jobs(JobFilter(queue=queue, states=(State.SCHEDULED, State.RETRYING)), limit=LOOKED_AT)
    return any(view.job.run_at <= store.now() for view in later.jobs)


async def _paused(store: Store) -> list[Finding]:
    paused = [one for one in await store.queues() if one.paused]
    held = [f"{one.name} ({count(one.waiting, 'job')})" for one in paused if one.waiting]
    if held:
        do = f"when they may go on: mainspring queues resume {paused[0].name}"
        return [warn("queues", f"paused with jobs in them: {', '.join(held)}", do)]
    return [ok("queues", f"{count(len(paused), 'paused queue')}, none with jobs" if paused else "none is paused")]


async def _breakers(store: Store) -> list[Finding]:
    """Say which tasks are held back by their breakers."""
    page = await store.list_breakers(limit=MOST_BREAKERS)
    shut = [view for view in page.breakers if view.circuit.phase is not Phase.CLOSED]
    if not shut:
        return []
    told = ", ".join(f"{view.task} (forced)" if view.circuit.forced else str(view.task) for view in shut[:5])
    more = f" and {len(shut) - 5} more" if len(shut) > 5 else ""
    do = "see what failed: mainspring breakers show TASK; mainspring breakers reset TASK lets its jobs go on"
    return [warn("breakers", f"jobs wait behind the open breakers of {told}{more}", do)]
