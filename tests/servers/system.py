"""What tests ask of the system for the programs that they start: an account, a folder, a port, a list of processes."""

import ctypes
import os
import pwd
import random
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple, TypedDict

HOST = "127.0.0.1"
PATIENCE = 60.0
"""Seconds that anything may take that is only waited for; a machine may be busy with other things."""

# Below the ports that systems give to outgoing connections: one of those could be in the way when a killed server
# wants its port back, and a client that tries a port of that range with nobody there may end up talking to itself.
PORTS = range(15_000, 32_000)


class Account(TypedDict, total=False):
    """Arguments of `subprocess` that say as whom a program runs; none where it may run as we do."""

    user: int
    group: int
    extra_groups: list[int]


def account() -> Account:
    """Choose someone else where we are root, as whom neither PostgreSQL nor PgBouncer starts."""
    if os.geteuid() != 0:
        return Account()
    nobody = pwd.getpwnam("nobody")
    return Account(user=nobody.pw_uid, group=nobody.pw_gid, extra_groups=[])


def environment() -> dict[str, str]:
    """Nothing of ours: neither a home, nor a language, nor the variables that lead libpq to another server."""
    return {"HOME": "/nonexistent", "LC_ALL": "C", "PATH": os.environ.get("PATH", os.defpath)}


def command(words: Sequence[str | Path]) -> "subprocess.CompletedProcess[str]":
    """Run a program that ends by itself, with that account and that environment."""
    return subprocess.run(
        [str(word) for word in words],
        cwd="/",
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        **account(),
    )


def temporary() -> Path:
    """Where that account can come to as well: the folder for temporary files may be one of root's own."""
    chosen = Path(tempfile.gettempdir()).resolve()
    open_to_all = all(folder.stat().st_mode & 0o001 for folder in (chosen, *chosen.parents))
    return chosen if open_to_all or os.geteuid() != 0 else Path("/tmp")  # noqa: S108 -- as a parent of safe ones


def new_folder(name: str) -> Path:
    folder = Path(tempfile.mkdtemp(prefix=f"mainspring-{name}-", dir=temporary()))
    owner = account()
    if owner:
        os.chown(folder, owner["user"], owner["group"])
    return folder


def free_port() -> int:
    """Find a port that nobody has just now: whoever takes it must be ready to find it taken.

    It does not depend on the seed of the run: other runs with the same seed would choose the same port.
    """
    for port in random.SystemRandom().sample(PORTS, k=200):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((HOST, port))
            except OSError:
                continue
            return port
    raise RuntimeError(f"no free port between {PORTS.start} and {PORTS.stop}")


def wait_until(true: Callable[[], object], what: str, *, patience: float = PATIENCE) -> None:
    """Look again and again; raise TimeoutError where it does not come true."""
    deadline = time.monotonic() + patience
    while not true():
        if time.monotonic() > deadline:
            raise TimeoutError(f"after {patience:.0f} s still not true: {what}")
        time.sleep(0.005)


class Process(NamedTuple):
    """A process of the system."""

    parent: int
    state: str
    """One letter, as `ps` prints it: T stands still, Z has ended and its parent has not looked yet."""


def processes() -> dict[int, Process]:
    """All of them, by id."""
    if not Path("/proc/self/stat").exists():
        listing = subprocess.run(["ps", "-A", "-o", "pid=,ppid=,state="], capture_output=True, text=True, check=True)
        rows = (line.split() for line in listing.stdout.splitlines())
        return {int(pid): Process(int(parent), letters[0]) for pid, parent, letters in rows}
    found = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            try:
                text = (folder / "stat").read_text(encoding="utf-8", errors="replace")
            except (FileNotFoundError, ProcessLookupError):
                continue  # has ended while we looked
            # The name comes in brackets, and may hold some itself.
            state, parent = text.rpartition(")")[2].split()[:2]
            found[int(folder.name)] = Process(int(parent), state)
    return found


def all_in(states: str, pids: Iterable[int]) -> bool:
    """Whether each of them is in one of these states, or is no more."""
    there = processes()
    return all(pid not in there or there[pid].state in states for pid in pids)


def signal_all(pids: Iterable[int], number: signal.Signals) -> None:
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue


def remove_shared_memory(number: int) -> bool:
    """Give back what a killed server could not: the system keeps it until it restarts, and has room for few."""
    return bool(ctypes.CDLL(None).shmctl(number, 0, None) == 0)  # the first 0 is IPC_RMID
