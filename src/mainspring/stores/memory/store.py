"""The store that forgets: everything is in this process, and gone with it.

It is the reference model of the port, kept so plain that what it does can be read, and the store for tests.
"""

from typing import Final

from mainspring.clock import Clock, SystemClock
from mainspring.stores.memory.breakers import BreakersRole
from mainspring.stores.memory.guard import Shared
from mainspring.stores.memory.inspect import InspectorRole
from mainspring.stores.memory.jobs import JobsRole
from mainspring.stores.memory.locks import LocksRole
from mainspring.stores.memory.nodes import NodesRole, OperatorRole
from mainspring.stores.memory.outboxes import OutboxesRole
from mainspring.stores.memory.overview import OverviewRole
from mainspring.stores.memory.schedules import SchedulesRole
from mainspring.stores.memory.upkeep import UpkeepRole

_SYSTEM_CLOCK: Final = SystemClock()


class MemoryStore(
    JobsRole,
    UpkeepRole,
    SchedulesRole,
    BreakersRole,
    OutboxesRole,
    NodesRole,
    LocksRole,
    OperatorRole,
    InspectorRole,
    OverviewRole,
):
    """Fulfils every role of `mainspring.stores.port.Store`, and those of `mainspring.stores.outbox.Outboxes` and `mainspring.stores.overview.Overview`.

    What it holds outlives `close`: who opens it again finds everything there.
    """

    def __init__(self, clock: Clock = _SYSTEM_CLOCK, *, shared: Shared | None = None) -> None:
        super().__init__(shared or Shared(clock))

    def another(self) -> "MemoryStore":
        """Return a second handle on the same state, as a second app needs it: closing one leaves the other open."""
        return MemoryStore(shared=self._shared)
