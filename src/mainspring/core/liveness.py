"""When a node counts as dead: its counter has stood still for as long as it may, before the eyes of one that was awake.

Every node watches the counters of the others, once with each renewal of its own. Only time in which the watcher itself
renewed without a break counts: after an outage of the store, a sleep of the machine or a stop of the watcher the
silence of others says nothing about them, and counting begins anew. No clock of another machine is read.

A break is more than half a lease time between two renewals. A slow store makes gaps too, of a beat and the time that a
renewal takes, and deaths must be noticed then as well. After the longest gap that counts, a node that was held up by
the same store has the other half of its lease time to renew.

A counter is read at some moment between the sending of a renewal and its answer, and the gaps are measured from sending
to sending. So the silence of a counter begins at the answer: the time that the renewal took is subtracted, and no time
before the counter was read is counted.

A renewal is seen up to one gap after it was made, and the silence that counts is a whole lease time. So a death is
noticed within a lease time, a gap and the time that a renewal takes: where renewals are quick, a beat after the lease
time. A beat is short for that reason.

A node renews in a thread, and a thread needs the interpreter's lock: a handler that holds it, as in a regular
expression that backtracks for minutes, keeps its node from renewing. Where the watcher can see that the process uses
the processor, that time does not count as silence, up to a few lease times; then the node is dead anyway.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from msgspec import Struct

from mainspring.core.job import NodeId

NOTHING_SEEN: Final[Mapping[NodeId, float]] = {}

LONGEST_BEAT: Final = 1.5
"""Seconds. With a look of the reaper on top, a death is noticed within two seconds of the end of the lease."""

BUSY_SHARE: Final = 0.1
"""Minimum share of a processor of a busy process; a process that only tries to reach its store uses less."""
MAX_BUSY_LEASES: Final = 4
"""Lease times after which a node that does not renew is dead, however busy its process is."""


def beat_of(lease: float) -> float:
    """Say how many seconds may lie between two renewals: at least five in every lease time."""
    return min(lease / 5, LONGEST_BEAT)


class Sighting(Struct, frozen=True):
    """A counter, and for how many seconds it has been seen standing still."""

    counter: int
    still: float
    """Negative at first: the time from the sending of the renewal that read the counter to its answer."""
    busy: float = 0.0
    """Seconds of these in which its process was seen to be busy."""
    cpu: float | None = None
    """Processor seconds used by its process at the last observation; None if not available."""


def observe(
    before: Mapping[NodeId, Sighting],
    counters: Iterable[tuple[NodeId, int]],
    *,
    since: float | None,
    took: float,
    lease: float,
    cpu: Mapping[NodeId, float] = NOTHING_SEEN,
) -> dict[NodeId, Sighting]:
    """Look at the counters again, `since` seconds after the last look; None if this is the first.

    Looks are renewals, and `since` is measured from the sending of one to the sending of the next; `took` is how many
    seconds this one took until its answer. A watcher that needed more than half a lease time was cut off from the store, or not awake. `cpu` has the processor
    seconds used by the visible processes that are not stopped.
    """
    elapsed = since if since is not None and since <= lease / 2 else None
    return {node: _again(before.get(node), counter, elapsed, took, cpu.get(node)) for node, counter in counters}


def _again(before: Sighting | None, counter: int, elapsed: float | None, took: float, cpu: float | None) -> Sighting:
    if before is None or before.counter != counter or elapsed is None:
        return Sighting(counter, still=-took, cpu=cpu)
    is_busy = cpu is not None and before.cpu is not None and cpu - before.cpu >= elapsed * BUSY_SHARE
    return Sighting(counter, before.still + elapsed, before.busy + elapsed * is_busy, cpu)


def is_dead(sighting: Sighting, *, lease: float) -> bool:
    """Say whether a node has been silent for too long."""
    return sighting.still - sighting.busy >= lease or sighting.still >= MAX_BUSY_LEASES * lease


def is_only_busy(sighting: Sighting, *, lease: float) -> bool:
    """Return whether a node would be dead by now if its process were not busy."""
    return sighting.still >= lease and not is_dead(sighting, lease=lease)
