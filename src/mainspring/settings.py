"""What can be set about a node, with the defaults that most want."""

from collections.abc import Iterator
from dataclasses import dataclass

from mainspring.duration import Duration, seconds
from mainspring.errors import DeclarationError


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSettings:
    """How a node works. All times are durations as people write them."""

    concurrency: int = 20
    """Jobs that run at a time."""
    queues: tuple[str, ...] | None = None
    """The queues it works for; None: all."""
    processes: int = 2
    """Process slots for tasks that ask for one."""
    lease: Duration = "15s"
    """How long a node may be silent before another may declare it dead."""
    grace: Duration = "30s"
    """How long running jobs may go on once shutdown has begun."""
    stop_grace: Duration = "5s"
    """How long an attempt that was told to stop may take to do so; after that it is abandoned and fenced."""
    timeout: Duration = "1h"
    """For jobs whose own, whose task and whose queue say nothing."""
    unknown_task_grace: Duration = "1h"
    """How long jobs of a task that no live node knows may wait before they fail."""
    prune_every: Duration = "1m"
    ticker: bool = True
    """Whether it makes the jobs of schedules; any number of nodes may."""
    outbox_partitions: int = 4
    """Partitions of outboxes that are delivered at a time."""
    tick: Duration | None = None
    """How often to look for slots that have come, such as every "100ms"; None: when the next one comes."""

    overview: bool = True
    """Whether it counts and reports for people who look at the store as a whole, where the store keeps that."""

    def __post_init__(self) -> None:
        DeclarationError.unless("node", self._requirements())

    def _requirements(self) -> Iterator[tuple[bool, str]]:
        yield self.concurrency >= 1, f"concurrency of at least 1, not {self.concurrency}"
        yield self.processes >= 1, f"processes of at least 1, not {self.processes}"
        yield self.outbox_partitions >= 1, f"outbox_partitions of at least 1, not {self.outbox_partitions}"
        yield seconds(self.lease) >= 0.5, "a lease under half a second cannot be kept"
        yield self.queues is None or bool(self.queues), "name at least one queue, or leave queues out for all of them"
        yield self.tick is None or seconds(self.tick) >= 0.001, "a tick of at least a millisecond"
        for name in ("grace", "stop_grace", "timeout", "unknown_task_grace", "prune_every"):
            seconds(getattr(self, name))
