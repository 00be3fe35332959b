"""Who is at the other end of a file descriptor: this event loop itself, or someone else.

Virtual time must wait for what another thread or process may send, and must not wait for what only the loop itself
could send. Looking changes nothing: no byte is read, nothing is closed. When in doubt, the other end is someone else:
time that stands still for nothing is reported (`Standstill`), time that runs away is not.
"""

import os
import socket
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

Address: TypeAlias = str | bytes | tuple[object, ...]


@dataclass(frozen=True, slots=True)
class Descriptor:
    """An open file, told apart from a later one under the same number."""

    number: int
    device: int
    inode: int

    def __str__(self) -> str:
        end = look(self.number)
        if end is None:
            return f"{_file(self.number)} (descriptor {self.number})"
        if end.peer is None:
            return f"a socket that is connecting (descriptor {self.number})"
        return f"the connection {_text(end.local)} to {_text(end.peer)} (descriptor {self.number})"


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """One end of a socket; `peer` is None while it is connected to nobody."""

    kind: int
    local: Address
    peer: Address | None = None
    listens: bool = False

    @property
    def streams(self) -> bool:
        return self.kind in {socket.SOCK_STREAM, socket.SOCK_SEQPACKET}


def identify(number: int) -> Descriptor | None:
    """Tell which open file has this number now; None when no file has."""
    try:
        status = os.fstat(number)
    except OSError:
        return None
    return Descriptor(number, status.st_dev, status.st_ino)


def look(number: int) -> End | None:
    """Look at a descriptor; None when it is no socket."""
    try:
        view = socket.socket(fileno=number)
    except OSError:
        return None
    try:
        return _end(view)
    finally:
        view.detach()  # it belongs to someone else, who will close it


def elsewhere(ends: Mapping[int, End | None], registered: Iterable[int]) -> list[int]:
    """Choose the registered descriptors whose other end is not among `ends`, the descriptors that the loop serves.

    Two ends are one connection when each is the other's peer. All clients of a UNIX socket have the same name, none,
    so ends of equal names are counted: one more here than there means that one of them leads elsewhere.
    """
    served = [end for end in ends.values() if end]
    wires = Counter((end.kind, end.local, end.peer) for end in served)
    mailboxes = {(end.kind, end.local) for end in served if end.local and not end.peer and not end.streams}

    def leads_elsewhere(end: End | None) -> bool:
        if end is None:  # a pipe, a child process: nothing tells who has the other end
            return True
        if end.peer is None:  # a listener and a mailbox wait for anyone, only one that connects waits for someone
            return end.streams and not end.listens
        if (end.kind, end.peer) in mailboxes:
            return False
        if not end.local and not end.peer:  # one of a socketpair: without names nothing tells either
            return True
        return wires[end.kind, end.peer, end.local] < wires[end.kind, end.local, end.peer]

    return [number for number in registered if leads_elsewhere(ends[number])]


def _end(view: socket.socket) -> End:
    local = _plain(view.getsockname())
    try:
        return End(kind=view.type, local=local, peer=_plain(view.getpeername()))
    except OSError:  # connected to nobody, or not yet
        return End(kind=view.type, local=local, listens=_listens(view))


def _listens(view: socket.socket) -> bool:
    return bool(view.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))


def _plain(address: Address) -> Address:
    """Write an address the same way from both ends: a dual-stack server sees 127.0.0.1 as ::ffff:127.0.0.1."""
    match address:
        case (str(host), int(port), *_):
            return (host.removeprefix("::ffff:"), port)
        case _:
            return address


def _text(address: Address) -> str:
    match address:
        case (host, port):
            return f"{host}:{port}"
        case _:
            return str(address or "(nameless)")


def _file(number: int) -> str:
    with suppress(OSError):
        return str(Path(f"/proc/self/fd/{number}").readlink())
    return "a file"
