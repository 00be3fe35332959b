"""Which queues there are, as far as anybody knows."""

from difflib import get_close_matches

from mainspring.errors import UnknownQueue
from mainspring.runtime.definition import Registry
from mainspring.stores.overview import Overview, Search
from mainspring.stores.port import Store


async def check_queue(store: Store, registry: Registry, name: str) -> None:
    """Raise `UnknownQueue`, with the nearest, for one that no job, task or node has to do with: it is a slip of the hand.

    Only for such a slip all that waits is counted: whoever stops a queue with millions of jobs in it is in a hurry.
    """
    known = {definition.queue for definition in registry}
    if name in known:
        return
    known |= {queue for view in await store.nodes() for queue in view.node.queues or ()}
    if isinstance(store, Overview):
        known |= {one.name for one in await store.queue_rules()}
        if name in known or (await store.search(Search(queue=name), limit=1)).jobs:
            return
    known |= {one.name for one in await store.queues()}
    if name not in known:
        near = get_close_matches(name, known, n=1)
        raise UnknownQueue(name, near[0] if near else "")
