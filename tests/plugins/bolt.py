"""A server that speaks enough Bolt for neo4j's own driver, and has a ladybug database answer.

It is no Neo4j. What it shows: that the real driver takes our statements and parameters and carries them over the wire
unharmed, and that they are the same Cypher for an engine that is not asked to do more than to run them. Bolt 5.0, as it
is described at neo4j.com/docs/bolt: messages of one structure each, in chunks, with values as PackStream writes them.
"""

import asyncio
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from enum import IntEnum
from typing import Any

from mainspring.plugins.sinks import LADYBUG_COLUMNS, LADYBUG_TABLE, NEO4J_CONSTRAINT
from tests.plugins.mirrors import Graph

MAGIC = b"\x60\x60\xb0\x17"
VERSION = b"\x00\x00\x00\x05"


class Kind(IntEnum):
    """What a message is, as far as it is told apart here."""

    HELLO = 0x01
    GOODBYE = 0x02
    RESET = 0x0F
    RUN = 0x10
    BEGIN = 0x11
    PULL = 0x3F
    SUCCESS = 0x70
    RECORD = 0x71
    IGNORED = 0x7E
    FAILURE = 0x7F


class BoltServer:
    """Serves one graph; what was asked is written down."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.asked: list[tuple[str, dict[str, Any], dict[str, Any]]] = []
        """Statement, parameters, and what the transaction was begun with."""
        self.port = 0

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        """Listen while the block runs; a second time, at the same port."""
        talks: set[asyncio.StreamWriter] = set()

        async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            talks.add(writer)
            with suppress(asyncio.IncompleteReadError, ConnectionError):
                await self._talk(reader, writer)
            writer.close()
            talks.discard(writer)

        server = await asyncio.start_server(talk, "127.0.0.1", self.port)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield
        finally:
            server.close()
            for writer in tuple(talks):
                writer.transport.abort()
            await server.wait_closed()

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert (await reader.readexactly(20))[:4] == MAGIC
        writer.write(VERSION)
        begun: dict[str, Any] = {}
        rows: list[dict[str, Any]] = []
        answer: dict[str, Any]
        failed = False
        while True:
            signature, fields = await receive(reader)
            match signature:
                case Kind.GOODBYE:
                    return
                case Kind.RESET:
                    failed, answer = False, {}
                case _ if failed:
                    send(writer, Kind.IGNORED)
                    continue
                case Kind.HELLO:
                    answer = {"server": "Neo4j/5.0.0", "connection_id": "bolt-1"}
                case Kind.BEGIN:
                    begun, answer = fields[0], {}
                case Kind.RUN:
                    self.asked.append((fields[0], fields[1], begun | fields[2]))
                    try:
                        rows = self._run(fields[0], fields[1])
                    except RuntimeError as error:
                        failed = True
                        send(writer, Kind.FAILURE, {"code": "Neo.ClientError.Statement.Failed", "message": str(error)})
                        continue
                    answer = {"fields": list(rows[0]) if rows else []}
                case Kind.PULL:
                    for row in rows:
                        send(writer, Kind.RECORD, list(row.values()))
                    answer = {"type": "rw", "has_more": False}
                case _:
                    answer = {}
            send(writer, Kind.SUCCESS, answer)
            await writer.drain()

    def _run(self, statement: str, parameters: dict[str, Any]) -> list[dict[str, Any]]:
        if statement != NEO4J_CONSTRAINT:
            return self.graph.rows(statement, **parameters)
        for one in (LADYBUG_TABLE, *LADYBUG_COLUMNS):  # what this engine has instead
            self.graph.rows(one)
        return []


async def receive(reader: asyncio.StreamReader) -> tuple[int, list[Any]]:
    """Read one message: chunks until an empty one, and in them one structure."""
    message = b""
    while size := int.from_bytes(await reader.readexactly(2), "big"):
        message += await reader.readexactly(size)
    return Unpack(message[2:], signature=message[1]).fields(message[0] & 0x0F)


def send(writer: asyncio.StreamWriter, signature: int, *fields: object) -> None:
    message = bytes([0xB0 + len(fields), signature]) + b"".join(map(pack, fields))
    for start in range(0, len(message), 60_000):
        part = message[start : start + 60_000]
        writer.write(len(part).to_bytes(2, "big") + part)
    writer.write(b"\x00\x00")


def pack(value: object) -> bytes:
    match value:
        case None:
            return b"\xc0"
        case bool():
            return b"\xc3" if value else b"\xc2"
        case int():
            return b"\xcb" + struct.pack(">q", value)
        case str():
            return b"\xd2" + struct.pack(">I", len(value.encode())) + value.encode()
        case list():
            return b"\xd6" + struct.pack(">I", len(value)) + b"".join(map(pack, value))
        case dict():
            return b"\xda" + struct.pack(">I", len(value)) + b"".join(pack(k) + pack(v) for k, v in value.items())
        case _:
            raise TypeError(value)


class Unpack:
    """Reads the fields of a message."""

    def __init__(self, data: bytes, *, signature: int) -> None:
        self._data = data
        self._at = 0
        self._signature = signature

    def fields(self, count: int) -> tuple[int, list[Any]]:
        return self._signature, [self._value() for _ in range(count)]

    def _take(self, size: int) -> bytes:
        self._at += size
        return self._data[self._at - size : self._at]

    def _size(self, width: int) -> int:
        return int.from_bytes(self._take(width), "big")

    def _value(self) -> Any:  # noqa: ANN401 - whatever was sent
        marker = self._size(1)
        match marker:
            case 0xC0:
                return None
            case 0xC2 | 0xC3:
                return marker == 0xC3
            case 0xC8 | 0xC9 | 0xCA | 0xCB:
                return int.from_bytes(self._take(1 << (marker - 0xC8)), "big", signed=True)
            case 0xD0 | 0xD1 | 0xD2:
                return self._take(self._size(1 << (marker - 0xD0))).decode()
            case 0xD4 | 0xD5 | 0xD6:
                return self._list(self._size(1 << (marker - 0xD4)))
            case 0xD8 | 0xD9 | 0xDA:
                return self._map(self._size(1 << (marker - 0xD8)))
            case _ if marker < 0x80 or marker >= 0xF0:
                return marker if marker < 0x80 else marker - 0x100
            case _ if marker < 0x90:
                return self._take(marker & 0x0F).decode()
            case _ if marker < 0xA0:
                return self._list(marker & 0x0F)
            case _ if marker < 0xB0:
                return self._map(marker & 0x0F)
            case _:
                raise TypeError(hex(marker))

    def _list(self, size: int) -> list[Any]:
        return [self._value() for _ in range(size)]

    def _map(self, size: int) -> dict[str, Any]:
        return {self._value(): self._value() for _ in range(size)}
