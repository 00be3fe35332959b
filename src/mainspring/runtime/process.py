"""Which process a node is, and whether another one on the same machine is still there.

A process id alone says little: ids are used again, and containers count their own. So a process is its id, what tells
its machine, boot and namespace from others, and when it was started.
"""

import functools
import os
import platform
from pathlib import Path
from typing import Final

from mainspring.stores.records import Process

PROC: Final = Path("/proc")
ENDED: Final = frozenset("ZXx")  # a zombie has ended; only its parent has not looked yet


def this_process() -> Process:
    """Describe the process that asks. Not cached: after a fork it is another."""
    pid = os.getpid()
    return Process(host=host(), pid=pid, started=_started(pid) or "")


def is_gone(process: Process) -> bool:
    """Say whether a process has certainly ended: False where that cannot be known from here."""
    if process.host != host():
        return False
    if (PROC / "self").exists():
        return _started(process.pid) != process.started
    try:
        os.kill(process.pid, 0)
    except ProcessLookupError:
        return True
    except OSError:  # it is there, and not ours
        return False
    return False


@functools.cache
def host() -> str:
    """Tell machines, their boots and process namespaces apart."""
    parts = [platform.node()]
    for source in (_boot, _namespace):
        try:
            parts.append(source())
        except OSError:  # not on this system
            continue
    return " ".join(parts)


def _boot() -> str:
    return (PROC / "sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def _namespace() -> str:
    return str((PROC / "self/ns/pid").readlink())


def _started(pid: int) -> str | None:
    """When a process was started, in ticks since boot; None if it has ended."""
    try:
        stat = (PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    # The second field is the program's name in brackets, and may hold anything, brackets too.
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] in ENDED else fields[19]
