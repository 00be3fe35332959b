"""A server that keeps what it has committed, one that follows it word by word and can take its place, and the network
in front of both.
"""

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import TracebackType
from typing import Literal, Self

from tests.servers.postgres import Server, new_server
from tests.servers.system import wait_until
from tests.servers.wire import Wire

How = Literal["fast", "immediate", "kill", "freeze", "stall"]
"""Restarts, in good order or not; a server that stands still; and one that commits nothing, because its standby does."""
IN_STEP = "SELECT 1 FROM pg_stat_replication WHERE (state, sync_state) = ('streaming', 'sync')"


class Cluster:
    """Two servers at first. After the failover the old one stays away for good, and the other is alone."""

    def __init__(self) -> None:
        self.faults: Counter[str] = Counter()
        """How often what has happened to it."""
        self.primary = new_server(durable=True)
        self._standby: Server | None = None
        self._wires: list[Wire] = []
        self._ends = ExitStack()

    @property
    def url(self) -> str:
        """Where the store is, whichever of the two is alive; a statement has two seconds."""
        hosts = ",".join(f"{wire.host}:{wire.port}" for wire in self._wires)
        return f"postgresql://postgres@{hosts}/postgres?timeout=2s"

    @contextmanager
    def away(self, how: How) -> Iterator[None]:
        """Have nobody there who takes writes while the block runs."""
        match how:
            case "freeze":
                self.primary.freeze()
            case "stall" if self._standby:  # commits wait for it
                self._standby.freeze()
            case "kill" | "stall":
                self.primary.kill()
            case "fast" | "immediate":
                self.primary.stop(how)
        yield
        match how:
            case "freeze":
                self.primary.thaw()
            case "stall" if self._standby:
                self._standby.thaw()
            case _:
                self.primary.start()
        self.faults[how] += 1

    def cut(self, *, after: float) -> None:
        """Let no answer pass for some seconds, so that what was asked is done, and end all connections then."""
        for wire in self._wires:
            wire.hang(answers_only=True)
        time.sleep(after)
        for wire in self._wires:
            wire.cut()
            wire.heal()
        self.faults["cut"] += 1

    def fail_over(self) -> None:
        """Kill the one that takes writes, and have the other take its place."""
        assert self._standby is not None, "there is nobody left to take over"
        # After a restart it needs a moment to catch up; before that nobody may choose it.
        wait_until(lambda: self.primary.sql(IN_STEP), "the standby is in step")
        self.primary.kill()
        self.primary.close()
        self._standby.promote()
        self.primary, self._standby = self._standby, None
        self.faults["failover"] += 1

    def __enter__(self) -> Self:
        with ExitStack() as ends:
            ends.enter_context(self.primary)
            self._standby = ends.enter_context(self.primary.standby())
            for server in (self.primary, self._standby):
                self._wires.append(ends.enter_context(Wire.to(server)))
            self._ends = ends.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ends.close()
