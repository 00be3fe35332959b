"""How nodes stand, as seen from outside."""

from datetime import datetime, timedelta
from typing import Final

from mainspring.runtime.process import is_gone
from mainspring.stores.records import NodeView

SILENT: Final = timedelta(seconds=15)
"""Without a renewal, of which there is one in a second and a half."""


def standing(view: NodeView, now: datetime) -> str:
    """Say how a node stands: until another one notices, one that was killed is not dead to the store."""
    if not view.alive:
        return "dead"
    if is_gone(view.node.process):
        return "gone"
    return "silent" if now - view.renewed_at > SILENT else "alive"


def is_well(node: NodeView, now: datetime) -> bool:
    return standing(node, now) == "alive"
