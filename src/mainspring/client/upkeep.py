"""The jobs that Mainspring brings itself, as a plugin like any other: `mainspring:retention_sweep` and its neighbours.

They keep a store small and quick, one at a time over all nodes, and each leaves a small result that tells what it did.
Nothing depends on them: nodes prune by themselves. They are there so that upkeep is seen, paused and run by hand in the
same way as all other work.
"""

import importlib.metadata
from typing import Final

from msgspec.structs import asdict

from mainspring.client.plugin import Plugin
from mainspring.core.job import State
from mainspring.core.limits import Limit
from mainspring.core.retry import Retry
from mainspring.core.rules import Every
from mainspring.plugins.capability import BackgroundJobs, Schedules
from mainspring.stores.port import Store, Upkeep
from mainspring.stores.records import JobFilter

ID: Final = "mainspring"
"""The namespace of what Mainspring brings itself; no other plugin may have it."""

CHUNK: Final = 1000
CHUNKS: Final = 20
"""That one sweep deletes at most: it comes again in ten minutes."""
QUEUES: Final = 50
COUNTED: Final = 200
"""Finished jobs of each state that are counted; more are not, because somebody would have to read them all."""

Result = dict[str, object]


def upkeep() -> Plugin:
    """Make the plugin, for one app."""
    plugin = Plugin(
        ID,
        importlib.metadata.version("mainspring"),
        requires=[BackgroundJobs(), Schedules()],
        docs="keeps the store small and quick",
    )
    alone = Limit(concurrency=1)

    async def store() -> Store:
        return await plugin.connection.store()  # type: ignore[no-any-return]  # that of the app it is installed in

    @plugin.schedule(Every("10m"), overlap="skip", keep_runs="1d", description="deletes what is past its retention")
    @plugin.task(timeout="2m", retry=Retry.none(), limit=alone, priority="background", keep="6h")
    async def retention_sweep() -> Result:
        return await sweep(await store())

    @plugin.schedule(Every("10m"), overlap="skip", keep_runs="1d", description="counts jobs, and has tables analyzed")
    @plugin.task(timeout="1m", retry=Retry.none(), limit=alone, priority="background", keep="6h")
    async def statistics() -> Result:
        return await count(await store())

    @plugin.schedule(Every("1h"), overlap="skip", keep_runs="1d", description="gives back room that is not needed")
    @plugin.task(timeout="10m", retry=Retry.none(), limit=alone, priority="background", keep="1d")
    async def compaction() -> Result:
        return await compact(await store())

    return plugin


async def sweep(store: Store) -> Result:
    """Delete what is past its time, in bounded chunks."""
    pruned = 0
    for _ in range(CHUNKS):
        chunk = await store.prune(CHUNK)
        pruned += chunk
        if chunk < CHUNK:
            return {"pruned": pruned, "more": False}
    return {"pruned": pruned, "more": True}


async def count(store: Store) -> Result:
    """Count what there is, as far as that is cheap, and have the store look at its tables again."""
    queues = (await store.queues())[:QUEUES]
    finished = {}
    for state in (State.SUCCEEDED, State.FAILED, State.CANCELLED):
        page = await store.list_jobs(JobFilter(states=(state,)), limit=COUNTED)
        finished[str(state)] = f"{len(page.jobs)} or more" if page.after else len(page.jobs)
    return {
        "queues": {queue.name: {"waiting": queue.waiting, "running": queue.running} for queue in queues},
        "finished": finished,
        "analyzed": list(await store.analyze()) if isinstance(store, Upkeep) else [],
    }


async def compact(store: Store) -> Result:
    """Have the store give back room."""
    if not isinstance(store, Upkeep):
        return {"left": "this store has nothing to give back"}
    return asdict(await store.compact())
