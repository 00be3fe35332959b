"""Doorbells: a datagram socket for each process that watches, in a folder beside the file.

Ringing costs a listing of the folder and a datagram for each neighbour. Nothing rests on it: a bell that cannot be
hung or rung is done without, and whoever has none looks by himself soon enough.
"""

import errno
import os
import secrets
import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Final

LONGEST_PATH: Final = 100
"""Bytes that the path of a socket may have: 107 on Linux, 103 on macOS."""
_DESCRIPTORS: Final = Path("/proc/self/fd")


def folder_of(path: Path) -> Path:
    return path.with_name(path.name + "-bells")


class Doorbell:
    """A bell of one's own."""

    def __init__(self, folder: Path) -> None:
        self.name: Final = secrets.token_hex(4)
        self._folder = folder
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            self._socket.setblocking(False)
            self._hang()
        except BaseException:
            self._socket.close()
            raise

    def fileno(self) -> int:
        return self._socket.fileno()

    def silence(self) -> None:
        """Take in all rings that have come."""
        with suppress(BlockingIOError):
            while True:
                self._socket.recv(1)

    def leave_behind(self) -> None:
        """Close the inherited socket in a forked child; the parent keeps its own."""
        self._socket.close()

    def close(self) -> None:
        self._socket.close()
        with suppress(OSError):
            (self._folder / self.name).unlink()
        with suppress(OSError):  # it is the last one's to take away
            self._folder.rmdir()

    def _hang(self) -> None:
        while True:
            self._folder.mkdir(exist_ok=True)
            with suppress(FileNotFoundError), _reach(self._folder) as place:  # the last one was just taking it away
                self._socket.bind(f"{place}/{self.name}")
                return


def hang(path: Path) -> Doorbell | None:
    """Hang a bell for the store at that path; None where that cannot be."""
    if not hasattr(socket, "AF_UNIX"):
        return None
    try:
        return Doorbell(folder_of(path))
    except OSError:
        return None


def ring_others(path: Path, own: str | None) -> None:
    """Ring every bell of the store at that path but one's own; bells of the dead are taken down."""
    folder = folder_of(path)
    try:
        names = [name for name in os.listdir(folder) if name != own]  # noqa: PTH208 -- a third of the time
    except OSError:
        return
    if not names:
        return
    with suppress(OSError), _reach(folder) as place, closing(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)) as hand:
        hand.setblocking(False)
        for name in names:
            try:
                hand.sendto(b"!", f"{place}/{name}")
            except OSError as error:  # one whose line is full has been rung already
                if error.errno == errno.ECONNREFUSED:
                    _take_down(folder / name)


def _take_down(bell: Path) -> None:
    """Take down the bell of a process that is gone; what only looks like one, because it refuses too, is left alone."""
    with suppress(OSError):
        if bell.is_socket():
            bell.unlink()


@contextmanager
def _reach(folder: Path) -> Iterator[str]:
    """Name a folder shortly enough for a socket in it; by a descriptor of it, if its path is too long."""
    if len(os.fsencode(folder)) + 20 <= LONGEST_PATH:
        yield str(folder)
        return
    if not _DESCRIPTORS.is_dir():
        raise OSError(errno.ENAMETOOLONG, "the path is too long for a socket", str(folder))
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"{_DESCRIPTORS}/{descriptor}"
    finally:
        os.close(descriptor)
