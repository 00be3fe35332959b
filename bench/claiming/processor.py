"""CPU time of this process and of the PostgreSQL backends that serve its connections.

Backends are found by their titles (`postgres: user database 127.0.0.1(port) …`) among the children of the postmaster, and
compared with the ports of this process. So a second process on the same database does not count. Their CPU time is read
from `/proc/PID/schedstat`, in nanoseconds; that of a backend whose connection was closed in the meantime is lost.
"""

import os
import re
import time
from pathlib import Path
from typing import NamedTuple

CLIENT_PORT = re.compile(r"postgres: .*\((\d+)\)")


class Spent(NamedTuple):
    """Seconds by the clock, of CPU time of this process, and of CPU time of its backends."""

    clock: float
    node: float
    server: float


class Reading:
    """Start of a measurement; `postmaster` is a process id, None where there is no server."""

    def __init__(self, postmaster: int | None) -> None:
        self._postmaster = postmaster
        self._server = backends_time(postmaster)
        self._node = time.process_time()
        self._clock = time.perf_counter()

    def since(self) -> Spent:
        clock = time.perf_counter() - self._clock
        node = time.process_time() - self._node
        return Spent(clock, node, self.server_since())

    def server_since(self) -> float:
        now = backends_time(self._postmaster)
        return sum(spent - self._server.get(pid, 0.0) for pid, spent in now.items())


def backends_time(postmaster: int | None) -> dict[int, float]:
    """Return the CPU seconds of each backend that serves this process."""
    if postmaster is None:
        return {}
    ports, found = own_ports(), {}
    for pid in map(int, Path(f"/proc/{postmaster}/task/{postmaster}/children").read_text(encoding="ascii").split()):
        try:
            title = Path(f"/proc/{pid}/cmdline").read_text(encoding="utf-8")
            client = CLIENT_PORT.match(title)
            if client and int(client[1]) in ports:
                found[pid] = int(Path(f"/proc/{pid}/schedstat").read_text(encoding="ascii").split()[0]) / 1e9
        except (FileNotFoundError, ProcessLookupError):  # ended since the list was read
            continue
    return found


def own_ports() -> set[int]:
    """Return the local ports of all TCP connections of this process."""
    sockets = set()
    for descriptor in Path("/proc/self/fd").iterdir():
        try:
            kind, _, inode = str(descriptor.readlink()).partition(":")
        except FileNotFoundError:
            continue
        if kind == "socket":
            sockets.add(inode.strip("[]"))
    rows = (line.split() for line in Path(f"/proc/{os.getpid()}/net/tcp").read_text(encoding="ascii").splitlines()[1:])
    return {int(row[1].partition(":")[2], 16) for row in rows if row[9] in sockets}
