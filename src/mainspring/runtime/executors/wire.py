"""Messages between a node and the child process of a slot: MessagePack, each behind its length.

Calls are numbered, and every message from the child carries the number of its call: the answer of one call is never
taken for the answer of the next.
"""

import struct
from collections.abc import Iterator
from typing import Final, Generic, TypeAlias, TypeVar

import msgspec
from msgspec import Struct

from mainspring.runtime.call import CallFacts
from mainspring.runtime.executors.thrown import Thrown
from mainspring.stores.records import LogLine, Progress

_LENGTH: Final = struct.Struct("!I")
LONGEST: Final = 1 << 28
"""Bytes of a message. Payloads, results and saved values have limits far below; what is longer is no message."""

CHUNK: Final = 1 << 16


class Hello(Struct, frozen=True, tag="hello"):
    """How to see the world as the node does; the first message."""

    path: tuple[str, ...]
    """`sys.path`."""
    python_path: str | None
    """What $PYTHONPATH was before it was used to start the child."""


class Call(Struct, frozen=True, kw_only=True, tag="call"):
    """Call a function."""

    number: int
    reference: str
    context: str | None
    facts: CallFacts
    saved: bytes | None
    """As of now: middleware may have saved something."""
    remaining: float | None
    """Seconds until the timeout, from the beginning of the function."""
    trace: str | None = None
    """The span of the attempt, where the node is traced."""


class Cancel(Struct, frozen=True, tag="cancel"):
    """The present call should end."""


class Kept(Struct, frozen=True, tag="kept"):
    """The answer to `Save`."""

    number: int
    error: Thrown | None = None


class Began(Struct, frozen=True, tag="began"):
    """The module has been imported, and the function is called now: the time of the attempt begins."""

    call: int


class Said(Struct, frozen=True, tag="said"):
    """What the function told, for those who look on."""

    call: int
    progress: Progress | None = None
    lines: tuple[LogLine, ...] = ()


class Save(Struct, frozen=True, tag="save"):
    """Keep these values, and answer when they are durable."""

    call: int
    number: int
    saved: bytes


class Returned(Struct, frozen=True, tag="returned"):
    """The function returned; its result, encoded."""

    call: int
    result: bytes


class Raised(Struct, frozen=True, tag="raised"):
    """The function raised, or could not be called."""

    call: int
    thrown: Thrown


ToSlot: TypeAlias = Hello | Call | Cancel | Kept
FromSlot: TypeAlias = Began | Said | Save | Returned | Raised
M = TypeVar("M")

_ENCODER: Final = msgspec.msgpack.Encoder()


def pack(message: ToSlot | FromSlot) -> bytes:
    body = _ENCODER.encode(message)
    return _LENGTH.pack(len(body)) + body


class Unpacker(Generic[M]):
    """Puts messages together from what comes in, however it was cut; raises `msgspec.DecodeError` on what is none."""

    def __init__(self, decoder: "msgspec.msgpack.Decoder[M]") -> None:
        self._decoder = decoder
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[M]:
        self._buffer += data
        while len(self._buffer) >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._buffer)
            if length > LONGEST:
                raise msgspec.DecodeError(f"a message of {length:,} bytes")
            end = _LENGTH.size + length
            if len(self._buffer) < end:
                return
            body = bytes(memoryview(self._buffer)[_LENGTH.size : end])
            del self._buffer[:end]
            yield self._decoder.decode(body)


def from_slot() -> Unpacker[FromSlot]:
    return Unpacker(msgspec.msgpack.Decoder(FromSlot))


def to_slot() -> Unpacker[ToSlot]:
    return Unpacker(msgspec.msgpack.Decoder(ToSlot))
