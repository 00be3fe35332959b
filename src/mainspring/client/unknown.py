"""What a search that found nothing may be due to: a task or a queue under a name that nobody knows.

Only what is cheap is read, as pages ask again and again: nothing is counted.
"""

from typing import Final

from mainspring.client.searching import search
from mainspring.client.spans import last_census
from mainspring.core.tally import MINUTE, Count, start_of
from mainspring.errors import UnknownQueue, UnknownTask
from mainspring.runtime.definition import Registry, nearest
from mainspring.stores.overview import Overview, Search
from mainspring.stores.port import Store

LOOK_BACK: Final = 10
"""Minutes in which the last census is looked for."""


async def unknown_in(which: Search, store: Store, registry: Registry) -> str | None:
    """Say which name of a search nobody knows, and the nearest that somebody does; None: all of them are known."""
    if which.task is not None and which.task not in registry.names:
        nodes = {str(one) for view in await store.nodes() for one in view.node.tasks}
        tasks = {str(one) for one in registry.names} | nodes | {one.task for one in await _counted(store)}
        task = str(which.task)
        if task not in tasks and not await _has(store, Search(task=which.task)):
            return str(UnknownTask(task, nearest(task, tasks)))
    if which.queue is not None:
        queues = {definition.queue for definition in registry} | {one.queue for one in await _counted(store)}
        queues |= {queue for view in await store.nodes() for queue in view.node.queues or ()}
        if isinstance(store, Overview):
            queues |= {one.name for one in await store.queue_rules()}
        if which.queue not in queues and not await _has(store, Search(queue=which.queue)):
            return str(UnknownQueue(which.queue, nearest(which.queue, queues)))
    return None


async def _counted(store: Store) -> tuple[Count, ...]:
    if not isinstance(store, Overview):
        return ()
    now = store.now()
    return last_census(await store.tallies(MINUTE, start_of(now, MINUTE) - LOOK_BACK * MINUTE), now).counts


async def _has(store: Store, which: Search) -> bool:
    return bool((await search(store, which, limit=1, preview=0)).jobs)
