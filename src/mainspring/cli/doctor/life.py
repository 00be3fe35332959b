"""Checks of what goes on in a store: whether commits are heard, who is at work, and what nobody will ever run."""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Final, NamedTuple

from mainspring.cli.doctor.finding import Finding, fail, ok, warn
from mainspring.client.health.messages import messages
from mainspring.client.health.plans import plans
from mainspring.client.health.warnings import left_bodies
from mainspring.client.health.work import ahead, breakers, live_nodes, paused, waiting
from mainspring.client.standing import is_well
from mainspring.client.words import length
from mainspring.core.job import NodeId
from mainspring.errors import StoreError
from mainspring.runtime.report import read as read_report
from mainspring.stores.overview import Overview
from mainspring.stores.port import Store

COMMITTED_WITHIN: Final = 10.0  # seconds
HEARD_WITHIN: Final = 2.0  # seconds; a tenth of one is what the port promises
SOON: Final = 0.5
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
    for finding in await waiting(store, bool(well)):
        yield finding
    for finding in await ahead(store):
        yield finding
    async for finding in plans(store, {task for one in well for task in one.node.tasks}, anyone=bool(well)):
        yield finding
    for finding in await _left(store, [one.node.id for one in well]):
        yield finding
    for finding in await paused(store):
        yield finding
    for finding in await breakers(store):
        yield finding
    for finding in await messages(store, anyone=bool(well)):
        yield finding


async def _left(store: Store, nodes: Sequence[NodeId]) -> list[Finding]:
    """Warn of bodies that hold places on these nodes although their attempts have ended."""
    reports = await store.reports() if isinstance(store, Overview) else {}
    found = {node: report for node in nodes if node in reports and (report := read_report(reports[node].body))}
    return left_bodies(found)


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
