"""A program that tests start beside themselves, and that ends with them in any case.

A test ends its own; what is left, `atexit` ends; and where the tests were killed, the guard does: a shell that waits
for the end of a pipe, which the system closes whatever the tests died of.
"""

import atexit
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.servers.system import (
    HOST,
    PATIENCE,
    account,
    all_in,
    environment,
    free_port,
    new_folder,
    processes,
    signal_all,
    wait_until,
)

Words = Sequence[str | Path]

# Reads the id of the process to end, a new one with every start and an empty line after every stop. SIGQUIT is how
# PostgreSQL stops at once, its children with it; SIGCONT because it may be frozen.
GUARD = """
pid=
while read -r line; do pid=$line; done
if [ -n "$pid" ]; then
    kill -CONT "$pid"; kill -QUIT "$pid"
    for _ in 1 2 3 4 5 6 7 8; do kill -0 "$pid" || break; sleep 1; done
    kill -KILL "$pid"
fi
rm -rf -- "$1"
"""


class Program:
    """A program with a folder and a port of its own, started and ended as often as one likes; the folder goes with it.

    `with` starts it and removes it; without that, `close` does, or the end of the process.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.folder = new_folder(name)
        self.host = HOST
        self.port = free_port()
        self._has_started = False
        self._owner = os.getpid()
        self._process: subprocess.Popen[bytes] | None = None
        self._guard = subprocess.Popen(
            ["/bin/sh", "-c", GUARD, "guard", str(self.folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # else the Ctrl-C that it waits for would end it
        )
        atexit.register(self.close)

    def __enter__(self) -> Self:
        if not self.runs:
            self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def pid(self) -> int:
        if self._process is None:
            raise RuntimeError(f"{self.name} does not run")
        return self._process.pid

    @property
    def runs(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def log(self) -> str:
        """What it has printed since it is there."""
        return self._log_from(0)

    def start(self) -> None:
        """Start it, and wait until it is ready for work."""
        raise NotImplementedError

    def launch(self, words: Callable[[], Words], ready: Callable[[str], object]) -> None:
        """Start it and wait until it is ready, as it says itself; `ready` is given the log since then.

        It keeps its port for good, as its address has been given to others. Only if someone has taken that before the
        first start, it gets another.
        """
        while True:
            seen = self._log.stat().st_size if self._log.exists() else 0
            if self._came_up(words(), partial(self._says, ready, seen)):
                self._has_started = True
                return
            log = self._log_from(seen)
            if self._has_started or "Address already in use" not in log:
                raise RuntimeError(f"{self.name} did not start; its log says:\n{tail(log)}")
            self.port = free_port()

    def end(self, number: signal.Signals) -> None:
        """Send a signal that ends it, and wait for that; where it is in vain, kill it and raise TimeoutError."""
        if self._process is None:
            return
        try:
            if self.runs:
                self.thaw()
                self._process.send_signal(number)
                self._process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.kill()
            raise TimeoutError(f"{number.name} did not end {self.name}; its log says:\n{tail(self.log)}") from None
        self._forget()

    def kill(self) -> None:
        """SIGKILL to it and all that it has started; none of them is there afterwards."""
        if self._process is None:
            return
        if self.runs:
            self.freeze()
            family = self.family()
            signal_all(family, signal.SIGKILL)
            self._process.wait()
            wait_until(lambda: all_in("Z", family), f"all processes of {self.name} have gone after SIGKILL")
        self._forget()

    def freeze(self) -> None:
        """SIGSTOP to it and all that it has started: it stands still with its connections open, like a lost machine."""
        # Itself first: then it cannot start more of them.
        signal_all([self.pid], signal.SIGSTOP)
        wait_until(lambda: all_in("TZ", [self.pid]), f"{self.name} stands still")
        family = self.family()
        signal_all(family, signal.SIGSTOP)
        wait_until(lambda: all_in("TZ", family), f"all processes of {self.name} stand still")

    def thaw(self) -> None:
        signal_all(reversed(self.family()), signal.SIGCONT)

    def family(self) -> list[int]:
        """It and its children. They are looked up: PostgreSQL gives each a session and a group of its own."""
        return [self.pid, *(pid for pid, process in processes().items() if process.parent == self.pid)]

    def close(self) -> None:
        """End it and remove its folder; harmless the second time."""
        atexit.unregister(self.close)
        guard = self._guard.stdin
        if self._owner != os.getpid() or guard is None or guard.closed:
            return  # a fork of the tests must not end what belongs to its parent
        self.kill()
        self._sweep()
        guard.close()
        self._guard.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _sweep(self) -> None:
        """Remove what a killed one leaves behind elsewhere than in its folder."""

    def _came_up(self, words: Words, ready: Callable[[], object]) -> bool:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [str(word) for word in words],
                cwd="/",
                env=environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # the Ctrl-C is meant for the tests
                **account(),
            )
        self._tell_guard(str(self._process.pid))
        with suppress(TimeoutError):
            wait_until(lambda: not self.runs or ready(), f"{self.name} is ready")
            if self.runs:
                return True
        self.kill()
        return False

    def _forget(self) -> None:
        self._process = None
        self._tell_guard("")

    def _tell_guard(self, line: str) -> None:
        assert self._guard.stdin is not None
        self._guard.stdin.write(f"{line}\n".encode())
        self._guard.stdin.flush()

    @property
    def _log(self) -> Path:
        return self.folder / "log"

    def _log_from(self, position: int) -> str:
        if not self._log.exists():
            return ""
        with self._log.open("rb") as log:
            log.seek(position)
            return log.read().decode(errors="replace")

    def _says(self, ready: Callable[[str], object], position: int) -> object:
        return ready(self._log_from(position))


def tail(text: str, lines: int = 30) -> str:
    return "\n".join(text.splitlines()[-lines:])
