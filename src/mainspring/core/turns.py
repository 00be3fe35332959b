"""Order in which idle nodes claim after a notification.

A job needs one node, and a notification reaches all of them. So nodes that claim the same tasks from the same queues take
turns, in waves: the first wave has as many nodes as there are jobs, each later wave twice as many as the one before and
starts `WAVE_S` later. A node whose claim leaves nothing reports that the announcement is taken, and nodes of later waves
do not claim for it. The waves double so that a job waits little when most nodes are full: the last of 12 nodes starts in
the fourth wave. After `MAX_WAIT_S` all nodes claim, whatever their wave.

All nodes compute the same order, by a hash of the announcement and the id of the node: it differs from one announcement
to the next, so that jobs are spread over nodes. Pure; nothing here is more than a hint.
"""

from collections.abc import Iterable
from hashlib import blake2b
from typing import Final

from mainspring.core.job import NodeId
from mainspring.core.names import Name

WAVE_S: Final = 0.015
"""Seconds between two waves. A claim and the notification after it take 3 ms; 12 busy processes on two cores need more."""
MAX_WAIT_S: Final = 0.075
"""Seconds after which all nodes claim, however many they are: a job is started within 100 ms if any node has room."""


def wave_number(key: str, me: NodeId, peers: Iterable[NodeId], *, jobs: int = 1) -> int:
    """Return the wave in which a node claims, counted from 0, for an announcement of so many jobs.

    `peers` are the live nodes of its group, with or without the node itself.
    """
    mine = _position(key, me)
    rank = sum(_position(key, peer) < mine for peer in peers)
    return (rank // max(1, jobs) + 1).bit_length() - 1


def wave_delay_s(wave: int) -> float:
    """Return the seconds for which a wave waits."""
    return min(wave * WAVE_S, MAX_WAIT_S)


def group_name(tasks: Iterable[Name], queues: Iterable[str] | None) -> str:
    """Return a short name for all nodes that claim these tasks from these queues; None: from every queue."""
    words = [*sorted(map(str, tasks)), "", *(["*"] if queues is None else ["", *sorted(queues)])]
    return blake2b("\n".join(words).encode(), digest_size=6).hexdigest()


def _position(key: str, node: NodeId) -> bytes:
    return blake2b(f"{key} {node}".encode(), digest_size=8).digest()
