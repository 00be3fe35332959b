"""The node's end of the connection to a slot's child process.

What has come in stays here until it is asked for, so that a cancel at any moment loses nothing; and nothing is half
sent, because sending does not wait. The loop listens only while someone waits for a message: a slot at rest does not
hold virtual time.
"""

import asyncio
import socket
from collections import deque
from contextlib import suppress

import msgspec

from mainspring.runtime.executors.wire import CHUNK, FromSlot, ToSlot, from_slot, pack


class Pipe:
    """Messages over a socket; belongs to one loop."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        self.open = True
        self.problem = ""
        """What was wrong with what came in, if that was why it closed."""
        self._socket = connection
        self._loop = asyncio.get_running_loop()
        self._unpacker = from_slot()
        self._inbox: deque[FromSlot] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._outgoing = bytearray()

    def send(self, message: ToSlot) -> None:
        """Send as much as goes at once, and the rest as soon as it goes."""
        if not self.open:
            return
        waits = bool(self._outgoing)
        self._outgoing += pack(message)
        if not waits:
            self._write()

    async def receive(self) -> FromSlot | None:
        """Wait for the next message; None if no more will come."""
        while not self._inbox:
            if not self.open:
                return None
            self._waiter = self._loop.create_future()
            self._loop.add_reader(self._socket, self._read)
            try:
                await self._waiter
            finally:
                if self.open:
                    self._loop.remove_reader(self._socket)
        return self._inbox.popleft()

    def close(self) -> None:
        """Take in what has arrived already, and close."""
        while self.open and self._read():
            pass
        self._close()

    def _read(self) -> bool:
        """Take in a piece; False if there is none."""
        try:
            data = self._socket.recv(CHUNK)
            self._inbox.extend(self._unpacker.feed(data))
        except (BlockingIOError, InterruptedError):
            return False
        except (OSError, msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError) as error:
            data = b""
            self.problem = str(error)
        if not data:
            self._close()
        elif self._inbox:
            self._wake()
        return bool(data)

    def _write(self) -> None:
        try:
            sent = self._socket.send(self._outgoing)
        except (BlockingIOError, InterruptedError):
            sent = 0
        except OSError:  # it is gone; whoever waits for an answer will be told
            sent = len(self._outgoing)
        del self._outgoing[:sent]
        if self._outgoing:
            self._loop.add_writer(self._socket, self._write)
        else:
            self._loop.remove_writer(self._socket)

    def _close(self) -> None:
        if not self.open:
            return
        self.open = False
        with suppress(RuntimeError, OSError):
            self._loop.remove_reader(self._socket)
            self._loop.remove_writer(self._socket)
        self._socket.close()
        self._wake()

    def _wake(self) -> None:
        if self._waiter and not self._waiter.done():
            self._waiter.set_result(None)
