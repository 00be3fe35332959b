"""Which process a node is, and whether another one on the same machine is still there.

A process id alone says little: ids are used again, and containers count their own. So a process is its id, what tells
its machine, boot and namespace from others, and when it was started.
"""

import functools
import os
import platform
import uuid
from pathlib import Path
from typing import Final

from mainspring.stores.records import Process

PROC: Final = Path("/proc")
ZOMBIES: Final = frozenset("ZXx")  # they have ended; only their parent has not looked yet
STOPPED: Final = frozenset("Tt")  # by a signal, or by a debugger
ENDED: Final = "ended"


def this_process() -> Process:
    """Describe the process that asks. Not cached: after a fork it is another."""
    pid = os.getpid()
    return Process(host=host(), pid=pid, started=_started(pid) or "")


def is_gone(process: Process) -> bool:
    """Say whether a process has certainly ended: False where that cannot be known from here."""
    if process.host != host():
        return False
    started = _started(process.pid)
    if started is not None:
        return started != process.started
    # It has ended, or the processes of others are hidden from us: then only the kernel's own word is proof.
    try:
        os.kill(process.pid, 0)
    except ProcessLookupError:
        return True
    except OSError:  # it is there, and not ours
        return False
    return False


def cpu_of_neighbour(process: Process) -> float | None:
    """Return the processor seconds used by another process of this machine.

    None if it is on another machine or hidden, has ended, or is stopped. None also for the calling process: if a second
    node in it does not renew, the interpreter's lock is not the reason.
    """
    if process.host != host() or process.pid == os.getpid():
        return None
    fields = _stat(process.pid)
    if not fields or fields[0] in ZOMBIES | STOPPED or fields[19] != process.started:
        return None
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@functools.cache
def host() -> str:
    """Tell machines, their boots and process namespaces apart."""
    parts = [platform.node()]
    for source in (_boot, _namespace):
        try:
            parts.append(source())
        except OSError:  # not on this system
            continue
    if len(parts) == 1:  # two machines may have one name; their network interfaces have different addresses
        parts.append(f"{uuid.getnode():012x}")
    return " ".join(parts)


def _boot() -> str:
    return (PROC / "sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def _namespace() -> str:
    return str((PROC / "self/ns/pid").readlink())


def _started(pid: int) -> str | None:
    """When a process was started, in ticks since boot; ENDED for a zombie, None if nothing is to be seen of it."""
    fields = _stat(pid)
    if not fields:
        return None
    return ENDED if fields[0] in ZOMBIES else fields[19]


def _stat(pid: int) -> list[str]:
    """Return the fields of /proc/PID/stat from the third, the state; empty if the process is not visible."""
    try:
        stat = (PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    # The second field is the program's name in brackets, and may hold anything, brackets too.
    return stat.rpartition(")")[2].split()
