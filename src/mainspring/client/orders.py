"""Orders to nodes, and their answers.

An order is written to the store; the node learns of it with its next renewal, a fifth of its lease time later, and within
a second and a half.
"""

import asyncio
from datetime import timedelta
from difflib import get_close_matches
from typing import Final

from mainspring.core.job import NodeId
from mainspring.errors import NoAnswer, NodeGone, UnknownNode
from mainspring.stores.port import Store
from mainspring.stores.records import NodeOrder, NodeView, Order

LOOK_EVERY: Final = 0.1


async def node_view(store: Store, node: str) -> NodeView:
    """Read a node, or raise `UnknownNode` with the nearest that there is."""
    there = {one.node.id: one for one in await store.nodes()}
    if node not in there:
        near = get_close_matches(node, there, n=1)
        raise UnknownNode(node, near[0] if near else "")
    return there[NodeId(node)]


async def give(store: Store, node: str, order: NodeOrder) -> Order:
    """Ask something of a node; raises `UnknownNode` if there is none, and `NodeGone` if it has ended."""
    await node_view(store, node)
    return await store.order(NodeId(node), order)


async def answered(store: Store, order: Order, within: timedelta) -> Order:
    """Look until a node has answered an order; raises `NoAnswer` if it takes too long, and `NodeGone` if it has ended."""
    try:
        async with asyncio.timeout(within.total_seconds()):
            return await _answered(store, order)
    except TimeoutError:
        raise NoAnswer(order.node, within.total_seconds()) from None


async def _answered(store: Store, order: Order) -> Order:
    while True:
        found = next((one for one in await store.orders(order.node) if one.id == order.id), None)
        if found and found.done_at:
            return found
        if not any(one.alive for one in await store.nodes() if one.node.id == order.node):
            raise NodeGone(order.node, "it ended before it answered")
        await asyncio.sleep(LOOK_EVERY)
