"""The child process of a slot, as the node sees it: started, spoken to, ended.

A child leads a process group of its own, so that what its function has started dies with it when it is killed, and a
Ctrl-C in the terminal reaches the node alone. A thread waits for its end: the connection would not tell of the death
of a child whose own children still hold it open.
"""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import threading
from contextlib import suppress
from typing import Final

from mainspring.runtime.executors.pipe import Pipe
from mainspring.runtime.executors.wire import Hello

PROGRAM: Final = "mainspring.runtime.executors"


class Child:
    """One child process, and the connection to it. It belongs to one loop."""

    def __init__(self) -> None:
        self.code: int | None = None
        """How it ended, as `subprocess` has it."""
        self._loop = asyncio.get_running_loop()
        self._gone = asyncio.Event()
        self._ending = False
        ours, theirs = socket.socketpair()
        try:
            self._process = _start(theirs)
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        self.pipe = Pipe(ours)
        self.pipe.send(Hello(path=tuple(sys.path), python_path=os.environ.get("PYTHONPATH")))
        threading.Thread(target=self._attend, name=f"mainspring slot {self.pid}", daemon=True).start()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_usable(self) -> bool:
        return self.pipe.open and not self._ending

    async def gone(self) -> None:
        """Wait until it has ended."""
        await self._gone.wait()

    def dismiss(self) -> None:
        """Let go of it: a child without a node ends by itself."""
        self._ending = True
        self.pipe.close()

    def terminate(self) -> None:
        """Have its function end as by `sys.exit()`."""
        self._signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it now, and all that it has started."""
        self._signal(signal.SIGKILL)

    def _signal(self, which: signal.Signals) -> None:
        self._ending = True
        if self.code is None:
            self._signal_group(which)

    def _signal_group(self, which: signal.Signals) -> None:
        with suppress(ProcessLookupError, PermissionError):  # the second is what macOS says of one that has just ended
            os.killpg(self.pid, which)

    def _attend(self) -> None:
        code = self._process.wait()
        with suppress(RuntimeError):  # the loop has been closed
            self._loop.call_soon_threadsafe(self._ended, code)

    def _ended(self, code: int) -> None:
        self.code = code
        self._signal_group(signal.SIGKILL)  # what it had started goes with it, however it ended
        self.pipe.close()
        self._gone.set()


def _start(connection: socket.socket) -> "subprocess.Popen[bytes]":
    """Start Python as we were started. $PYTHONPATH makes sure that it finds us; the child puts it back."""
    number = connection.fileno()
    options = ["-" + "O" * sys.flags.optimize] if sys.flags.optimize else []
    options += [f"-W{option}" for option in sys.warnoptions]
    path = os.pathsep.join(entry for entry in sys.path if entry)
    return subprocess.Popen(  # noqa: S603 - our own program, in our own interpreter
        [sys.executable, *options, "-m", PROGRAM, str(number)],
        stdin=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": path},
        pass_fds=[number],
        process_group=0,
    )
