"""When a node counts as dead: its counter has stood still for as long as it may, before the eyes of one that was awake.

Every node watches the counters of the others, once with each renewal of its own. Only time in which the watcher itself
renewed without a break counts: after an outage of the store, a sleep of the machine or a stop of the watcher the
silence of others says nothing about them, and counting begins anew. No clock of another machine is read.

A break is more than half a lease time between two renewals. A slow store makes gaps too, of a beat and the time that a
renewal takes, and deaths must be noticed then as well. After the longest gap that counts, a node that was held up by
the same store has the other half of its lease time to renew.

A renewal is seen up to one gap after it was made, and the silence that counts is a whole lease time. So a death is
noticed within a lease time and a gap: a beat, which is short for that reason, where renewals are quick.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from msgspec import Struct

from mainspring.core.job import NodeId

LONGEST_BEAT: Final = 1.5
"""Seconds. With a look of the reaper on top, a death is noticed within two seconds of the end of the lease."""


def beat_of(lease: float) -> float:
    """Say how many seconds may lie between two renewals: at least five in every lease time."""
    return min(lease / 5, LONGEST_BEAT)


class Sighting(Struct, frozen=True):
    """A counter, and for how many seconds it has been seen standing still."""

    counter: int
    still: float = 0.0


def observe(
    before: Mapping[NodeId, Sighting], counters: Iterable[tuple[NodeId, int]], *, since: float | None, lease: float
) -> dict[NodeId, Sighting]:
    """Look at the counters again, `since` seconds after the last look; None if this is the first.

    A watcher that needed more than half a lease time was cut off from the store, or not awake.
    """
    elapsed = since if since is not None and since <= lease / 2 else None
    return {node: _again(before.get(node), counter, elapsed) for node, counter in counters}


def _again(before: Sighting | None, counter: int, elapsed: float | None) -> Sighting:
    if before is None or before.counter != counter or elapsed is None:
        return Sighting(counter)
    return Sighting(counter, before.still + elapsed)


def is_dead(sighting: Sighting, *, lease: float) -> bool:
    """Say whether a node has been silent for too long."""
    return sighting.still >= lease
